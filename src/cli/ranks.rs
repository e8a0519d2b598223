//! The ranks of a job on this host: how they are asked for, and how they are started.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::collective::{Choice, Dense, choose, idle, rows_note};
use super::copies::hot_rows;
use super::division::{Aim, Division, Wanted, divide, grains};
use super::figures;
use super::help::MACHINE;
use super::machines::{Everyone, introduce};
use super::place::{PlaceArgs, RankCount, machine_file, warn, warn_of_places};
use super::trials::{TRIAL_ROWS, Trials};
use super::tuned::use_plans;
use crate::base::config::{Config, Determinism, Hot};
use crate::base::console::note;
use crate::base::{Deadline, Error, Result};
use crate::collective::{Machines, World};
use crate::data::hot::HotSlots;
use crate::data::{Schema, Source};
use crate::ffi::linux::current_affinity;
use crate::machine::placement::{CommCores, Placement, RankPlace, Wishes, comm_cores_to_try};
use crate::machine::{Machine, place};
use crate::math::part_for;
use crate::model::{Shape, StoredTables, TrainSpec};
use crate::optim::ByGroup;
use crate::shard::Sharding;
use crate::shard::file::with_collective;
use crate::simd::Isa;
use crate::train::{Checkpoint, DEADLINE, Ranks, Setup};

/// Where ranks stand, and who holds what.
#[derive(Debug, Clone, Args)]
pub struct RankArgs {
    #[command(flatten)]
    pub place: PlaceArgs,

    /// Divide the tables among ranks as this file of `octorec plan --out` says; default: as is predicted to be best.
    #[arg(long, value_name = "FILE", help_heading = MACHINE)]
    pub plan: Option<PathBuf>,

    /// The longest that a rank waits for another, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = timeout(DEADLINE.time), value_parser = seconds, help_heading = MACHINE)]
    pub timeout: Deadline,
}

/// How several ranks exchange gradients, wherever steps are made.
#[derive(Debug, Clone, Args)]
pub struct ExchangeArgs {
    /// Whether communication cores work behind the backward pass or after it.
    #[arg(long, value_enum, default_value_t, help_heading = MACHINE)]
    pub overlap: Overlap,
}

/// What `--timeout` says.
const fn timeout(time: Duration) -> Deadline {
    Deadline { time, flag: Some("--timeout") }
}

/// A number of seconds.
fn seconds(text: &str) -> std::result::Result<Deadline, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=1e9).contains(seconds));
    let seconds = seconds.ok_or_else(|| "a number of seconds from 0.001 to 1,000,000,000 is expected".to_owned())?;
    Ok(timeout(Duration::from_secs_f64(seconds)))
}

/// When communication cores reduce the gradients of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Overlap {
    /// As soon as they are there.
    #[default]
    On,
    /// When all are there: the compute cores wait.
    Off,
}

/// What ranks are started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To train, with or without overlap.
    Train(Overlap),
    /// To predict: nothing is reduced, so all cores compute.
    Predict,
}

/// What ranks are to do, and with what.
pub struct StartSpec<'a> {
    /// All machines of the job.
    pub world: &'a World,
    /// The model and its training.
    pub config: &'a Config,
    /// The data.
    pub source: &'a dyn Source,
    /// What for.
    pub purpose: Purpose,
    /// How tables are to be divided.
    pub wanted: Wanted<'a>,
    /// How dense gradients are to be reduced.
    pub dense: Dense,
    /// Whether it is kept when each stage began.
    pub traced: bool,
    /// Hot rows, where inputs are in an order by them.
    pub hot: Option<Arc<HotSlots>>,
    /// The training sample that comes first.
    pub from: u64,
    /// To predict: where a checkpoint has the tables.
    pub stored: Option<StoredTables>,
}

impl<'a> StartSpec<'a> {
    /// What begins with the first sample, all else as is predicted to be best.
    #[must_use]
    pub fn new(world: &'a World, config: &'a Config, source: &'a dyn Source, purpose: Purpose) -> Self {
        let (wanted, dense) = (Wanted::default(), Dense::Chosen);
        Self { world, config, source, purpose, wanted, dense, traced: false, hot: None, from: 0, stored: None }
    }
}

/// Ranks that were started, and where they stand.
pub struct Started {
    /// The ranks.
    pub ranks: Ranks,
    /// Where they stand.
    pub placement: Placement,
    /// Their instruction set.
    pub isa: Isa,
    /// Who holds what, as a plan's file; nothing for one rank.
    pub plan: Option<String>,
    /// Why dense gradients are reduced as they are, where that was chosen.
    pub dense: Option<Choice>,
}

impl RankArgs {
    /// As many ranks as this, and all else as it comes: for benches.
    #[must_use]
    pub fn count(ranks: usize) -> Self {
        Self { place: PlaceArgs::count(ranks), plan: None, timeout: DEADLINE }
    }

    /// The files that say where ranks stand, and what each holds.
    pub fn input_files(&self) -> impl Iterator<Item = &Path> {
        self.plan.as_deref().into_iter().chain(machine_file(&self.place.topology))
    }

    fn wishes(&self, config: &Config, comm_cores: CommCores) -> Wishes {
        Wishes { comm_cores, ..self.place.wishes(config.train.threads) }
    }

    /// What begins with the first sample, its tables divided as --plan says, or else as is predicted to be best.
    pub fn task<'a>(
        &'a self,
        world: &'a World,
        config: &'a Config,
        source: &'a dyn Source,
        purpose: Purpose,
    ) -> StartSpec<'a> {
        let wanted = Wanted { file: self.plan.as_deref(), kept: None, sampled: purpose != Purpose::Predict };
        StartSpec { wanted, ..StartSpec::new(world, config, source, purpose) }
    }

    /// Starts to predict with a checkpoint's model, whose tables are looked up where they are as far as ranks have
    /// their rows as they lie there; all else is loaded.
    ///
    /// # Errors
    /// As [`RankArgs::start`], and when the checkpoint is damaged or of another model.
    pub fn start_trained(
        &self,
        world: &World,
        config: &Config,
        source: &dyn Source,
        checkpoint: &Checkpoint<'_>,
    ) -> Result<Started> {
        world.meet("read the data", self.timeout)?;
        let stored = checkpoint.stored_tables()?;
        let started = self.start(StartSpec { stored, ..self.task(world, config, source, Purpose::Predict) })?;
        checkpoint.load_into(&started.ranks)?;
        Ok(started)
    }

    /// Places the ranks, divides the tables and starts, all weights 0; prints where each stands.
    ///
    /// # Errors
    /// When the wishes cannot be met, or threads or memory are refused.
    pub fn start(&self, task: StartSpec<'_>) -> Result<Started> {
        let StartSpec { world, config, source, purpose, .. } = task;
        world.describe().iter().for_each(|line| note!("{line}"));
        let own = figures::load(&self.place.topology)?;
        let placement = self.place(world, config, source.schema(), &own, purpose)?;
        self.start_placed(&own, placement, task)
    }

    /// As [`RankArgs::start`], of ranks that stand on this machine already.
    ///
    /// # Errors
    /// As there.
    pub fn start_placed(&self, own: &Machine, placement: Placement, task: StartSpec<'_>) -> Result<Started> {
        let config = task.config;
        let started = self.start_on(own, placement, task, &mut |line: &str| note!("{line}"))?;
        let Started { ranks, .. } = &started;
        // Where the kernel does not say, the ranks' warnings do.
        if let Ok(pages) = ranks.verify() {
            note!("pages: {pages}");
        }
        if let Some(cost) = ranks.reduction_cost()?.filter(|_| started.placement.ranks.len() > 1) {
            note!("determinism: ranks: {cost}");
        }
        rows_note(config).filter(|_| started.plan.is_some()).iter().for_each(|told| note!("{told}"));
        ranks.warnings().iter().for_each(|warning| note!("warning: {warning}"));
        ranks.update_note()?.iter().for_each(|note| note!("note: {note}"));
        Ok(started)
    }

    /// As [`RankArgs::start_placed`], which all machines do at the same time. `tell` hears how tables were divided, and
    /// how dense gradients are reduced; nothing else is printed.
    ///
    /// # Errors
    /// As [`RankArgs::start`].
    pub fn start_on(
        &self,
        own: &Machine,
        placement: Placement,
        task: StartSpec<'_>,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Started> {
        let StartSpec { world, config, source, purpose, wanted, traced, .. } = task;
        let (isa, deadline) = (Isa::chosen(config.train.isa)?, self.timeout);
        let everyone = introduce(world, config, source, (own, &placement), isa, deadline)?;
        let machines = Machines::new(&everyone.counts);
        // Dividing takes long for very many.
        Setup::check_host(&everyone.placement.ranks, &machines.ranks(world.machine()))?;
        let aim = Aim::of(purpose == Purpose::Predict, task.stored.as_ref());
        let site = (&everyone.machine, &everyone.placement);
        let Division { sharding, toml: plan, collective: kept, told } = divide(config, source, site, wanted, aim)?;
        told.iter().for_each(|line| tell(line));
        if everyone.placement.ranks.len() == 1 && purpose != Purpose::Predict {
            idle(&config.train).iter().for_each(|line| tell(line));
        }
        world.agree("follow one plan", plan.as_deref().unwrap_or_default(), deadline)?;
        let mut setup = self.setup(config, source, &everyone.placement, sharding, purpose)?;
        if purpose != Purpose::Predict {
            setup.hot = match task.hot.clone() {
                Some(hot) => Some(hot),
                None => hot_rows(config, source, (setup.places.len(), setup.grains.is_some()), task.from, tell)?,
            };
            setup.hot_revised = config.train.hot == Hot::Exact && config.train.hot_revise > 0;
            let digest = setup.hot.as_ref().map_or_else(String::new, |hot| hot.digest());
            world.agree("have copies of the same hot rows", &digest, deadline)?;
        }
        // Where a rank's threads and memory are is numbered as on its own machine.
        let mut places = setup.places;
        for (place, own) in places[machines.ranks(world.machine())].iter_mut().zip(&placement.ranks) {
            *place = RankPlace { rank: place.rank, ..own.clone() };
        }
        let dense = self.choose_dense(&task, &everyone, kept.as_deref(), (own, &placement))?;
        let plan = plan.map(|plan| dense.iter().fold(plan, |plan, choice| with_collective(&plan, choice.schedule())));
        dense.iter().for_each(|choice| tell(&choice.to_string()));
        let reduction = match (&task.dense, &dense) {
            (Dense::Given(reduction), _) => reduction.clone(),
            (_, Some(choice)) => choice.reduction().clone(),
            (_, None) => setup.reduction,
        };
        let (world, stored) = (world.clone(), task.stored);
        let setup = Setup { traced, places, world, machines, reduction, stored, ..setup };
        use_plans(config, placement.ranks[0].compute.len(), setup.isa)?;
        Ok(Started { ranks: Ranks::start(setup)?, placement, isa, plan, dense })
    }

    /// How dense gradients are reduced, if several ranks do and nobody has said it: as is predicted to be quickest, and
    /// of the best as a few steps are, where such a run may differ from the next one. The first machine decides.
    fn choose_dense(
        &self,
        task: &StartSpec<'_>,
        everyone: &Everyone,
        kept: Option<&str>,
        (own, placement): (&Machine, &Placement),
    ) -> Result<Option<Choice>> {
        let StartSpec { world, config, source, purpose, dense, .. } = task;
        let (determinism, deadline) = (config.train.determinism, self.timeout);
        let Purpose::Train(overlap) = *purpose else { return Ok(None) };
        let alone = everyone.placement.ranks.len() == 1;
        if alone || determinism == Determinism::Ranks || matches!(dense, Dense::Given(_)) {
            return Ok(None);
        }
        let mut choice = choose(config, source.schema(), everyone, kept)?;
        let agree = |name: &str| world.all_gather("agree on a schedule", name.as_bytes().to_vec(), deadline);
        choice.take(&agree(choice.schedule())?[0]);
        let may_try = matches!(dense, Dense::Chosen) && determinism == Determinism::None && everyone.placement.spin;
        let doubtful = if may_try { choice.doubtful() } else { Vec::new() };
        if !doubtful.is_empty() {
            let trials = Trials::new(config, source.schema())?;
            let trial =
                |reduction| trials.step_ms((self, world, overlap), own, placement.clone(), Dense::Given(reduction));
            let steps_ms = doubtful.into_iter().map(trial).collect::<Result<Vec<_>>>()?;
            let quickest = choice.tried(&steps_ms).to_owned();
            choice.take(&agree(&quickest)?[0]);
        }
        Ok(Some(choice))
    }

    /// Where the ranks stand, which is printed.
    ///
    /// # Errors
    /// When the wishes cannot be met, contradict each other, or mean another machine than this one.
    pub fn place(
        &self,
        world: &World,
        config: &Config,
        schema: &Schema,
        machine: &Machine,
        purpose: Purpose,
    ) -> Result<Placement> {
        let by_grains = config.train.determinism == Determinism::Ranks;
        let refuse = |origin: &str, reason: String| Err(Error::config(origin, reason));
        if self.place.topology != "host" {
            if machine.hosts() > 1 {
                let (name, hosts) = (&self.place.topology, machine.hosts());
                let reason = format!(
                    "{name} describes {hosts} hosts, and this process runs on one: start a process on each, with --topology \
                     host; `octorec plan --topology {name}` prices them"
                );
                return refuse("--topology", reason);
            }
            let first = place(machine, &self.wishes(config, CommCores::Count(0)))?;
            let allowed = current_affinity()?;
            let foreign = |rank: &RankPlace| {
                rank.compute.iter().chain(&rank.comm).find(|pu| !allowed.contains(pu)).map(|pu| (rank.rank, pu.0))
            };
            if let Some((rank, pu)) = first.ranks.iter().find_map(foreign) {
                return refuse(
                    "--topology",
                    format!(
                        "{} describes another machine: {} would run on cpu {}, which this process may not use here; \
                         `octorec plan --topology {}` prices that machine",
                        self.place.topology, rank, pu, self.place.topology
                    ),
                );
            }
        }
        let comm_cores = match self.place.comm_cores {
            CommCores::Count(1..) if by_grains => {
                let reason = "--determinism ranks sums gradients with the compute cores: leave it away or use 0";
                return refuse("--comm-cores", reason.to_owned());
            }
            CommCores::Count(1..) if purpose == Purpose::Predict => {
                return refuse("--comm-cores", "predictions reduce no gradients: leave it away or use 0".to_owned());
            }
            // Sums by grains are the compute threads', and predictions need no sums.
            CommCores::Auto if by_grains || purpose == Purpose::Predict => CommCores::Count(0),
            CommCores::Auto => CommCores::Count(self.choose(world, config, schema, machine)?),
            count => count,
        };
        let wishes = self.wishes(config, comm_cores);
        let placement = place(machine, &wishes)?;
        if placement.ranks.len() * world.machines() == 1 && matches!(comm_cores, CommCores::Count(1..)) {
            let reason = "one rank has nobody to communicate with: use more --ranks, or leave it away";
            return refuse("--comm-cores", reason.to_owned());
        }
        // Nobody measures predictions.
        if purpose == Purpose::Predict {
            warn_of_places(&placement)
        } else {
            warn(&placement)
        }
        self.place.advise(machine, &wishes, &placement);
        if placement.ranks.len() * world.machines() == 1 && self.timeout.time != DEADLINE.time {
            note!("one rank waits for nobody: --timeout changes nothing");
        }
        if let (RankCount::Auto, [reason, ..]) = (self.place.ranks, &placement.reasons[..])
            && placement.ranks.len() > 1
        {
            note!("placement: {reason}");
        }
        placement.ranks.iter().for_each(|rank| note!("placement: {}", placement.line(rank)));
        Ok(placement)
    }

    /// What the ranks are built from.
    ///
    /// # Errors
    /// When this processor has no such instruction set as is wanted.
    pub fn setup(
        &self,
        config: &Config,
        source: &dyn Source,
        placement: &Placement,
        sharding: Sharding,
        purpose: Purpose,
    ) -> Result<Setup> {
        let mut spec = train_spec(config, source, placement);
        if purpose == Purpose::Predict {
            spec = TrainSpec { samples: config.train.eval_batch, ..spec.to_predict() };
        }
        let setup = Setup::new(&config.model, source.schema(), sharding, spec, placement);
        let grains = grains(&config.train);
        let (isa, overlap) = (Isa::chosen(config.train.isa)?, purpose != Purpose::Train(Overlap::Off));
        let wires = config.wires();
        Ok(Setup { isa, overlap, grains, wires, deadline: self.timeout, ..setup })
    }

    /// The number of communication cores with which a step on small tables is quickest; prints the trade. All machines
    /// try together, and the first one decides.
    fn choose(&self, world: &World, config: &Config, schema: &Schema, machine: &Machine) -> Result<usize> {
        let deadline = self.timeout;
        let placement = |count: usize| place(machine, &self.wishes(config, CommCores::Count(count)));
        let plain = placement(0)?;
        let counts = comm_cores_to_try(machine, &self.wishes(config, CommCores::Auto))?;
        let counts: Vec<u8> = counts.into_iter().map(|count| count as u8).collect();
        let everywhere = world.all_gather("choose communication cores", counts.clone(), deadline)?;
        let everywhere = |count: &u8| everywhere.iter().all(|counts| counts.contains(count));
        let counts: Vec<usize> = counts.into_iter().filter(everywhere).map(usize::from).collect();
        if plain.ranks.len() * world.machines() == 1 || counts.len() < 2 {
            return Ok(0);
        }
        let trials = Trials::new(config, schema)?;
        let trial = |count: usize| {
            let (placement, by_price) = (placement(count)?, Dense::Priced);
            Ok((count, trials.step_ms((self, world, Overlap::On), machine, placement, by_price)?))
        };
        let trials: Vec<(usize, f64)> = counts.into_iter().map(trial).collect::<Result<_>>()?;
        let &(best, _) = trials.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("two trials at least");
        let best = usize::from(world.all_gather("agree on communication cores", vec![best as u8], deadline)?[0][0]);
        let told = trials.iter().map(|(count, ms)| format!("{count}: {ms:.2} ms")).collect::<Vec<_>>().join(", ");
        note!(
            "communication cores of a rank: {best} (a step with tables of at most {TRIAL_ROWS} rows takes with {told})"
        );
        Ok(best)
    }
}

/// What trains and evaluates a model on these places.
fn train_spec(config: &Config, source: &dyn Source, placement: &Placement) -> TrainSpec {
    let threads = placement.ranks.iter().map(|rank| rank.compute.len()).max().unwrap_or(1);
    let (model, schema) = (&config.model, source.schema());
    let shape = Shape::of(model, &schema.positions(model), &model.dims(&schema.rows()));
    TrainSpec {
        samples: config.train.minibatch().max(config.train.eval_batch),
        part: config.train.part.given().unwrap_or_else(|| part_for(shape.part_sizes(), threads)),
        update: config.train.update,
        update_fused: config.train.update_fused,
        precision: config.train.precision,
        optimizers: ByGroup::configured(&config.train),
        clip_norm: Some(config.train.clip_norm).filter(|bound| *bound > 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_have_no_timeout_tell_nobody_to_raise_it() {
        assert_eq!(RankArgs::count(2).timeout.remedy(" If it"), "");
        assert!(seconds("5").unwrap().remedy(" If it").ends_with("allow more with --timeout above 5"));
        assert!(seconds("0.0001").is_err());
    }
}
