//! `octorec bench step`: milliseconds of a training step on random data, and the least that this machine allows.
//!
//! Rows are looked up cold or warm. Cold, as a user's are: steps turn over so many minibatches that the rows of one
//! have left the caches when it comes again. Warm, one minibatch comes again and again.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::LimitArgs;
use crate::base::config::{Command, Config};
use crate::base::console::note;
use crate::base::units::{Bytes, Many};
use crate::base::{Error, Result, console};
use crate::cli::collective::Choice;
use crate::cli::figures;
use crate::cli::overrides::{BaseArgs, KeyArgs, sized};
use crate::cli::place::{PlaceArgs, RankCount};
use crate::cli::profile::{Profiled, limits};
use crate::cli::ranks::{ExchangeArgs, Purpose, RankArgs, Started};
use crate::cli::session::open_generated;
use crate::cli::timing::{Steps, machine_team};
use crate::collective::World;
use crate::data::{Batch, Source, Split};
use crate::machine::limits::{Bracket, Processor, Rate};
use crate::machine::placement::{CommCores, RankPer};
use crate::machine::team::processors;
use crate::machine::{Machine, place};
use crate::model::Shape;
use crate::train::{Rates, unused_plans};

/// Times the last-level cache that the rows of all minibatches take.
const CACHES: usize = 2;
/// Minibatches that are drawn at most.
const MOST_MINIBATCHES: usize = 1024;

/// Flags of `octorec bench step`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("preset", sized))]
pub struct StepArgs {
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    ranks: RankArgs,
    #[command(flatten)]
    exchange: ExchangeArgs,
    /// Exponent of a Zipf distribution of rows; default: uniform
    #[arg(long, value_name = "EXPONENT")]
    zipf: Option<f64>,
    /// Steps that are timed
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Different minibatches, drawn before the clock starts and used in turn; default: so many that their rows take
    /// twice the last-level cache, at most 1024
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    minibatches: Option<u32>,
    /// Several ranks: also time one rank with all of their threads, before and after
    #[arg(long)]
    alone: bool,
    #[command(flatten)]
    limit: LimitArgs,
    /// Print one JSON object, for scripts
    #[arg(long)]
    pub json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Processor,
    /// Compute threads of rank 0.
    threads: usize,
    /// Whether ranks share cores, so that they wait for each other's turn.
    cores_shared: bool,
    batch: usize,
    /// Weights and biases of the network's layers, which tell models apart.
    layer_parameters: usize,
    precision: &'static str,
    /// Different minibatches.
    minibatches: usize,
    /// Bytes of the different rows that they look up.
    row_bytes: usize,
    /// Whether those are more than the last-level cache holds: the steps below are cold then.
    cold: bool,
    ms_median: f64,
    ms_min: f64,
    ms_max: f64,
    samples_per_s: f64,
    /// The median step where one minibatch comes again and again.
    warm_ms_median: f64,
    /// The sum over all stages.
    roofline_ms: f64,
    /// `roofline_ms / ms_median`.
    ratio: f64,
    /// One rank's median step with the threads of all ranks, on the same minibatches, before and after.
    #[serde(skip_serializing_if = "Option::is_none")]
    alone_ms: Option<Bracket>,
    /// `alone_ms / ms_median - 1`: the samples/s that the division gains; negative: loses.
    #[serde(skip_serializing_if = "Option::is_none")]
    gain: Option<f64>,
    /// How dense gradients are reduced, and why, where there are several ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    collective: Option<Choice>,
    #[serde(flatten)]
    profile: Profiled,
}

impl StepArgs {
    /// The model on random data, with rows capped as the user wishes.
    fn config(&self) -> Result<Config> {
        let mut layers = self.base.layers_with_sizes(&self.keys)?;
        layers.fix("data.source", "random", "bench step")?;
        if let Some(zipf) = self.zipf {
            layers.set("data.zipf", zipf, "--zipf")?;
        }
        let mut config = self.keys.finish(layers, Command::Step)?;
        if self.alone && self.ranks.place.ranks == RankCount::Count(1) {
            return Err(Error::config(
                "--alone",
                "compares several ranks with one: use more --ranks, or leave it away",
            ));
        }
        let data = &config.data;
        config.model.rows.iter_mut().for_each(|rows| *rows = data.capped(*rows));
        // No evaluation will need more room.
        config.train.eval_batch = 1;
        Ok(config)
    }

    /// Times the step.
    ///
    /// # Errors
    /// When the configuration is wrong, threads or memory are refused, or the hardware cannot be explored.
    pub fn measure(&self) -> Result<Report> {
        let config = self.config()?;
        let machine = Processor::of_this_machine()?;
        let source = open_generated(&config)?;
        let dims = config.model.dims(&source.schema().rows());
        let rows: Vec<usize> = dims.iter().map(|dim| dim * config.train.precision.bytes()).collect();
        // Where the system does not tell, no cache is larger.
        let cache = machine.l3_bytes.map_or(1 << 30, |bytes| bytes as usize);
        let (batches, row_bytes) = self.draw(&*source, &config, &rows, cache)?;
        let purpose = Purpose::Train(self.exchange.overlap);
        let (world, own) = (World::alone(), figures::load(&self.ranks.place.topology)?);
        let placement = self.ranks.place(&world, &config, source.schema(), &own, purpose)?;
        let (several, threads) = (placement.ranks.len(), placement.ranks[0].compute.len());
        if self.alone {
            let nodes: HashSet<_> = placement.ranks.iter().map(|rank| rank.node).collect();
            let reason = match (several, nodes.len()) {
                (1, _) => "compares several ranks with one, and one was placed: use more --ranks, or leave it away",
                (_, 2..) => {
                    "compares with one rank, whose threads are on one node, and these ranks are on several: leave it away"
                }
                _ => "",
            };
            if !reason.is_empty() {
                return Err(Error::config("--alone", reason));
            }
        }
        let used = placement.ranks.iter().map(|rank| rank.compute.len() + rank.comm.len()).sum();
        let alone = || self.alone(&own, &config, &*source, &batches, used);
        // As long as there are several, this thread has the cores of the first one alone.
        let before = if self.alone { Some(alone()?) } else { None };
        let task = self.ranks.task(&world, &config, &*source, purpose);
        let started = self.ranks.start_placed(&own, placement, task)?;
        let (steps, warm, profile) = self.time(&started, &config, &batches)?;
        let cores_shared = !started.placement.spin;
        let Started { dense: collective, ranks, .. } = started;
        drop(ranks);
        let alone_ms = match before {
            Some((before, _)) => {
                let (after, warnings) = alone()?;
                // What was said of several is not said once more.
                let told = console::warnings();
                let new = warnings.into_iter().map(|warning| format!("warning: {warning}"));
                new.filter(|warning| !told.contains(warning)).for_each(|warning| note!("{warning}"));
                Some(Bracket { before, after })
            }
            None => None,
        };
        let (ms_median, roofline_ms) = (steps.median_ms(), profile.roofline_ms());
        Ok(Report {
            threads,
            cores_shared,
            batch: config.train.minibatch(),
            layer_parameters: Shape::of(&config.model, &source.schema().positions(&config.model), &dims).parameters(),
            precision: config.train.precision.name(),
            minibatches: batches.len(),
            row_bytes,
            cold: row_bytes > cache,
            ms_median,
            ms_min: steps.ms[0],
            ms_max: steps.ms[steps.ms.len() - 1],
            samples_per_s: config.train.minibatch() as f64 / ms_median * 1e3,
            warm_ms_median: warm.median_ms(),
            roofline_ms,
            ratio: roofline_ms / ms_median,
            gain: alone_ms.as_ref().map(|alone| alone.mean() / ms_median - 1.0),
            alone_ms,
            collective,
            profile,
            machine,
        })
    }

    /// Times the steps of ranks between two measurements of the limits.
    fn time(&self, started: &Started, config: &Config, batches: &[Arc<Batch>]) -> Result<(Steps, Steps, Profiled)> {
        let measure = || limits(&machine_team(&started.placement, started.isa)?, config, self.limit.bytes());
        let repeat = self.repeat as usize;
        let rates = Rates::base(&config.train);
        let before = measure()?;
        let steps = Steps::run(&started.ranks, batches, repeat, rates)?;
        let each = config.train.batch.div_ceil(started.ranks.layout().ranks());
        unused_plans(&config.train.tuned, Some(each)).iter().for_each(|told| note!("{told}"));
        let profile = started.ranks.profile()?;
        let after = measure()?;
        let warm = Steps::run(&started.ranks, &batches[..1], repeat, rates)?;
        let brackets = std::array::from_fn(|i| Bracket { before: before[i], after: after[i] });
        let profiled = Profiled::new(&profile, (&steps.breakdowns, 1), brackets);
        Ok((steps, warm, profiled))
    }

    /// The step of one rank with so many threads, or as many as there are cores, and what the user should know of it.
    fn alone(
        &self,
        own: &Machine,
        config: &Config,
        source: &dyn Source,
        batches: &[Arc<Batch>],
        threads: usize,
    ) -> Result<(Rate, Vec<String>)> {
        let mut config = config.clone();
        // Threads that share a core with another are none that one rank could use.
        config.train.threads = threads.min(processors());
        let (ranks, comm_cores) = (RankCount::Count(1), CommCores::Count(0));
        // Ranks of several caches are held against one of their node.
        let rank_per = match self.ranks.place.rank_per {
            RankPer::L3 => RankPer::Node,
            whole => whole,
        };
        let args = RankArgs {
            plan: None,
            place: PlaceArgs { ranks, comm_cores, rank_per, ..self.ranks.place.clone() },
            ..self.ranks.clone()
        };
        let placement = place(own, &args.place.wishes(config.train.threads))?;
        placement.ranks.iter().for_each(|rank| note!("placement: alone, {}", placement.line(rank)));
        let mut warnings = placement.warnings.clone();
        let world = World::alone();
        let task = args.task(&world, &config, source, Purpose::Train(self.exchange.overlap));
        let Started { ranks, .. } = args.start_on(own, placement, task, &mut |_: &str| ())?;
        warnings.extend_from_slice(ranks.warnings());
        let steps = Steps::run(&ranks, batches, self.repeat as usize, Rates::base(&config.train))?;
        let (ms, passes) = (&steps.ms, steps.ms.len());
        Ok((Rate { median: steps.median_ms(), min: ms[0], max: ms[passes - 1], passes }, warnings))
    }

    /// Minibatches, and the bytes of the different rows that they look up; `rows` are those of a row of each table.
    fn draw(
        &self,
        source: &dyn Source,
        config: &Config,
        rows: &[usize],
        cache: usize,
    ) -> Result<(Vec<Arc<Batch>>, usize)> {
        let mut reader = source.open(Split::Train, 0)?;
        let (mut batches, mut met) = (Vec::new(), vec![HashSet::<u32>::new(); source.schema().tables.len()]);
        let all: u64 = source.schema().tables.iter().map(|column| column.rows).sum();
        loop {
            let count: usize = met.iter().map(HashSet::len).sum();
            let bytes: usize = met.iter().zip(rows).map(|(met, row)| met.len() * row).sum();
            let enough = match self.minibatches {
                Some(wanted) => batches.len() == wanted as usize,
                // More minibatches bring no more rows than there are.
                None => {
                    let most = batches.len() == MOST_MINIBATCHES || 100 * count as u64 > 99 * all;
                    batches.len() > 1 && (most || bytes > CACHES * cache)
                }
            };
            if enough {
                return Ok((batches, bytes));
            }
            let mut batch = Batch::new(source.schema());
            reader.read(&mut batch, config.train.minibatch())?;
            batch.check(source.schema())?;
            met.iter_mut().zip(&batch.bags).for_each(|(met, bag)| met.extend(&bag.rows));
            batches.push(Arc::new(batch));
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        let shared = if self.cores_shared { ", which share cores" } else { "" };
        let Self { threads, profile, ms_median, ms_min, ms_max, .. } = self;
        let threads = Many(*threads as u64, "thread");
        let ranks = profile.ranks;
        let teams = if ranks == 1 { threads.to_string() } else { format!("{ranks} ranks of {threads}") };
        writeln!(f, "a step of {} in {} on {teams}{shared}", Many(self.batch as u64, "sample"), self.precision)?;
        let (rows, cold) =
            (Bytes(self.row_bytes as u64), if self.cold { "cold" } else { "cached: fewer than the cache holds" });
        let minibatches = Many(self.minibatches as u64, "minibatch");
        writeln!(f, "{minibatches} in turn look up {rows} of different rows ({cold})\n")?;
        writeln!(f, "{}", profile.table("step (median)", *ms_median))?;
        writeln!(
            f,
            "  steps took {ms_min:.3} to {ms_max:.3} ms; with one minibatch again and again, whose rows are warm,"
        )?;
        writeln!(f, "  {:.3} ms in the median; `at least` divides each stage's work by", self.warm_ms_median)?;
        profile.write_limits(f)?;
        let (Some(alone), Some(gain)) = (&self.alone_ms, self.gain) else { return Ok(()) };
        let (ms, gain) = (alone.mean(), 100.0 * gain);
        writeln!(f, "one rank with all their threads: {ms:.3} ms, so that the division gains {gain:.1} % samples/s")?;
        alone.remark("one rank's step (ms)").map_or(Ok(()), |remark| writeln!(f, "{remark}"))
    }
}
