//! `octorec simulate`: a training step on a machine that is described or measured, for several numbers of ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::chart::{Line, lines};
use super::collectives::ranks_of_a_host;
use crate::base::config::{Command, Config, Wire};
use crate::base::console::note;
use crate::base::{Error, Result, input};
use crate::cli::bench::table::Table;
use crate::cli::division::planned;
use crate::cli::figures;
use crate::cli::help::{MACHINE, OUTPUT};
use crate::cli::overrides::{BaseArgs, KeyArgs};
use crate::cli::place::comm_cores;
use crate::collective::plan::reductions;
use crate::collective::{Payload, Schedule, Slices, Timing, Works};
use crate::machine::placement::{CommCores, Placement, RankPer, Wishes};
use crate::machine::site::Known;
use crate::machine::{Machine, Site, place};
use crate::memory::write_file;
use crate::model::Shape;
use crate::optim::{Kept, Optimizer};
use crate::shard::{Model, Options, Workload, plan};
use crate::simulate::{Kind, Outcome, Rates, Scene, simulate};

/// Numbers of communication cores that are tried.
const COMM_CORES: [usize; 6] = [0, 1, 2, 4, 6, 8];

/// With more ranks than this fewer of them are tried.
const MANY_RANKS: usize = 16;

/// Flags of `octorec simulate`.
#[derive(Debug, Clone, Args)]
#[command(args_override_self = true)]
pub struct StepArgs {
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// Numbers of ranks; default: one for each NUMA node with cores
    #[arg(long, value_name = "R,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024), display_order = 9)]
    ranks: Vec<u32>,
    /// Samples of each rank; the minibatch grows with the ranks (instead of --batch)
    #[arg(long, value_name = "N", conflicts_with = "batch", value_parser = clap::value_parser!(u32).range(1..), display_order = 6)]
    batch_per_rank: Option<u32>,
    /// strong: every number of ranks has the minibatch of --batch; weak: that is the smallest number's, and others' grow
    #[arg(long, value_enum, default_value_t, conflicts_with = "batch_per_rank", display_order = 7)]
    scaling: Scaling,
    /// The machine: `host`, a shipped name, FILE.toml, an hwloc FILE.xml or synthetic:DESCRIPTION
    #[arg(long, value_name = "MACHINE", default_value = "host", help_heading = MACHINE)]
    topology: String,
    /// What a rank is given
    #[arg(long, value_enum, default_value_t, help_heading = MACHINE)]
    rank_per: RankPer,
    /// Cores of each rank that reduce the gradients of layers while the others compute; `auto`: as many as are predicted best
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = comm_cores, help_heading = MACHINE)]
    comm_cores: CommCores,
    /// The schedule of dense gradients, one of those that `octorec simulate collectives` lists; `auto`: the fastest
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = MACHINE)]
    collective: String,
    /// Whether communication cores reduce layers behind the backward pass or after it
    #[arg(long, value_enum, default_value_t, help_heading = MACHINE)]
    overlap: Overlap,
    /// Rates that were measured on real cores: what `octorec bench step --ranks 1 --json` printed for the same model; or
    /// FILE.toml with shares of the limits, as `topology/rates/sc20.toml`
    #[arg(long, value_name = "FILE", help_heading = MACHINE)]
    calibrate: Option<PathBuf>,
    /// Write a timeline of the last number of ranks for Perfetto
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    trace: Option<PathBuf>,
    /// Draw step time and speed-up over the number of ranks
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    svg: Option<PathBuf>,
    /// Print one JSON object, for scripts
    #[arg(long, display_order = 10)]
    json: bool,
}

/// How the minibatch follows the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Scaling {
    #[default]
    Strong,
    Weak,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Overlap {
    #[default]
    On,
    Off,
}

/// What is predicted.
#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    figures: String,
    rates: String,
    points: Vec<Point>,
}

/// One number of ranks.
#[derive(Debug, Serialize)]
struct Point {
    ranks: usize,
    machines: usize,
    batch: usize,
    comm_cores: usize,
    collective: Option<String>,
    step_ms: f64,
    samples_per_s: f64,
    compute_ms: f64,
    exposed_ms: BTreeMap<&'static str, f64>,
    hidden_ms: BTreeMap<&'static str, f64>,
    /// Samples a second over those of the first point.
    speedup: f64,
    /// That over the growth of ranks.
    efficiency: f64,
    /// Shares of the time in which the busiest links are busy.
    links_busy: BTreeMap<String, f64>,
    bottleneck: String,
}

impl StepArgs {
    /// All points as text or JSON; writes the trace.
    pub(super) fn report(&self) -> Result<String> {
        let mut config = self.keys.finish(self.base.layers()?, Command::Simulate)?;
        let machine = figures::load(&self.topology)?;
        let workload = planned(&mut config, None, None)?;
        let mut counts: Vec<Option<usize>> = self.ranks.iter().map(|ranks| Some(*ranks as usize)).collect();
        if counts.is_empty() {
            counts.push(None);
        }
        let rates = self.rates(&config, &workload, &machine)?;
        let (mut points, mut first, mut told): (Vec<Point>, Option<(usize, usize)>, _) = (Vec::new(), None, String::new());
        let mut last = None;
        for count in counts {
            let (placement, site) = self.site(&config, &machine, count, CommCores::Count(0))?;
            told = figures::line(&machine, &site.assumptions);
            let ranks = site.ranks.len();
            let (of, batch) = first.unwrap_or((ranks, config.train.batch));
            let batch = match (self.batch_per_rank, self.scaling) {
                (Some(each), _) => each as usize * ranks,
                (None, Scaling::Weak) => batch * ranks / of,
                (None, Scaling::Strong) => batch,
            };
            first.get_or_insert((ranks, batch));
            let workload = Workload { batch, ..workload.clone() };
            let machines = placement.ranks.iter().map(|place| place.host).collect::<BTreeSet<_>>().len();
            let best = self.best(&config, &machine, count, &workload, &rates)?;
            let samples_per_s = batch as f64 / best.outcome.step_s;
            let (before, ranks_before) = points.first().map_or((samples_per_s, ranks), |point| (point.samples_per_s, point.ranks));
            let ms = |seconds: [f64; Kind::ALL.len()]| {
                Kind::ALL.into_iter().zip(seconds).map(|(kind, seconds)| (kind.name(), seconds * 1e3)).collect()
            };
            let links = best.outcome.busy.iter().filter(|(name, share)| name.starts_with("link ") && *share > 0.0);
            points.push(Point {
                ranks,
                machines,
                batch,
                comm_cores: best.comm_cores,
                collective: best.collective,
                step_ms: best.outcome.step_s * 1e3,
                samples_per_s,
                compute_ms: best.outcome.compute_s * 1e3,
                exposed_ms: ms(best.outcome.exposed_s),
                hidden_ms: ms(best.outcome.hidden_s),
                speedup: samples_per_s / before,
                efficiency: samples_per_s / before * ranks_before as f64 / ranks as f64,
                links_busy: links.take(8).cloned().collect(),
                bottleneck: best.outcome.bottleneck(),
            });
            last = Some(best.outcome);
        }
        if let (Some(path), Some(outcome)) = (&self.trace, &last) {
            write_file(path, outcome.trace().as_bytes())?;
        }
        note!("{told}");
        if let Some(path) = &self.svg {
            write_file(path, chart(&machine.name, &points).as_bytes())?;
        }
        let report = Report { machine: machine.name, figures: told, rates: rates.told, points };
        Ok(match self.json {
            true => serde_json::to_string_pretty(&report).expect("plain data with string keys is JSON") + "\n",
            false => report.to_string(),
        })
    }

    fn site(
        &self,
        config: &Config,
        machine: &Machine,
        ranks: Option<usize>,
        comm_cores: CommCores,
    ) -> Result<(Placement, Site)> {
        let threads = Some(config.train.threads).filter(|threads| *threads > 0);
        let placement = place(machine, &Wishes { rank_per: self.rank_per, ranks, threads, comm_cores, smt: false })?;
        let site = Site::new(machine, &placement, Known::default());
        Ok((placement, site))
    }

    /// The best of the numbers of communication cores that were asked for.
    fn best(
        &self,
        config: &Config,
        machine: &Machine,
        ranks: Option<usize>,
        workload: &Workload,
        rates: &Rates,
    ) -> Result<Predicted> {
        let (placement, _) = self.site(config, machine, ranks, CommCores::Count(0))?;
        let cores = placement.ranks.iter().map(|place| place.compute.len()).min().unwrap_or(1);
        let several = placement.ranks.len() > 1;
        let tried: Vec<usize> = match self.comm_cores {
            CommCores::Count(count) => vec![count],
            CommCores::Auto if !several => vec![0],
            CommCores::Auto => {
                let few = placement.ranks.len() > MANY_RANKS;
                let fits = |count: &usize| 2 * count < cores.max(1) && (!few || [0, 2, 4].contains(count));
                COMM_CORES.into_iter().filter(fits).collect()
            }
        };
        let mut best: Option<Predicted> = None;
        for count in tried {
            let predicted = self.predict(config, machine, ranks, count, workload, rates)?;
            if best.as_ref().is_none_or(|best| predicted.outcome.step_s < best.outcome.step_s) {
                best = Some(predicted);
            }
        }
        Ok(best.expect("some number is tried"))
    }

    fn predict(
        &self,
        config: &Config,
        machine: &Machine,
        ranks: Option<usize>,
        comm_cores: usize,
        workload: &Workload,
        rates: &Rates,
    ) -> Result<Predicted> {
        let (placement, site) = self.site(config, machine, ranks, CommCores::Count(comm_cores))?;
        let model = Model::new(workload, &site);
        let plan = plan(&model, &Options::default())?;
        let shape = shape(config, workload);
        let local = ranks_of_a_host(&placement);
        let payload = if config.train.wire == Wire::Bf16 { Payload::Bf16 } else { Payload::F32 };
        let collective = (site.ranks.len() > 1).then(|| self.collective(&shape, &site, local, payload)).transpose()?;
        let name = collective.clone().unwrap_or_default();
        let reduction = |slices: &Slices, payload: Payload| {
            let all = reductions(slices, payload, &site, local);
            all.into_iter().find(|schedule| schedule.algorithm == name).expect("a schedule of that name was chosen")
        };
        let outcome = simulate(&Scene {
            shape: &shape,
            kept: Kept { precision: config.train.precision, optimizer: Optimizer::dense(&config.train) },
            model: &model,
            sharding: &plan.sharding,
            placement: &placement,
            reduction: &reduction,
            payload,
            overlap: self.overlap == Overlap::On,
            rates,
        });
        Ok(Predicted { outcome, comm_cores, collective })
    }

    /// The schedule that was asked for, or the fastest of all for this network's layers.
    fn collective(&self, shape: &Shape, site: &Site, local: Option<usize>, payload: Payload) -> Result<String> {
        let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
        shape.layers().for_each(|[inputs, outputs]| *sizes.entry((inputs + 1) * outputs).or_default() += 1);
        let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
        for (parameters, count) in sizes {
            for schedule in reductions(&Slices::even(parameters, site.ranks.len()), payload, site, local) {
                let whole = Schedule::all_reduce(&schedule);
                let took = Timing::of(&whole, site, Works::LinksAndMemories).seconds * count as f64;
                *seconds.entry(schedule.algorithm).or_default() += took;
            }
        }
        if self.collective == "auto" {
            let least = seconds.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
            return Ok(least.expect("there are schedules").0.to_owned());
        }
        match seconds.keys().find(|name| **name == self.collective) {
            Some(name) => Ok((*name).to_owned()),
            None => {
                let known: Vec<&str> = seconds.into_keys().collect();
                let reason = format!("{} is none of auto, {}", self.collective, known.join(", "));
                Err(Error::Config { origin: "--collective".to_owned(), reason })
            }
        }
    }

    /// Those of the file that was named, or SC20's.
    fn rates(&self, config: &Config, workload: &Workload, machine: &Machine) -> Result<Rates> {
        let Some(path) = &self.calibrate else { return Ok(Rates::default()) };
        if path.extension().is_some_and(|extension| extension == "toml") {
            let refuse = |reason| Error::Config { origin: path.display().to_string(), reason };
            return Rates::parse(&input::read_text(path)?).map_err(refuse);
        }
        let measured = super::calibrate::read(path)?;
        let (placement, site) = self.site(config, machine, Some(1), CommCores::Count(0))?;
        let workload = Workload { batch: measured.batch, ..workload.clone() };
        let model = Model::new(&workload, &site);
        let plan = plan(&model, &Options::default())?;
        let shape = shape(config, &workload);
        let outcome = simulate(&Scene {
            shape: &shape,
            kept: Kept { precision: config.train.precision, optimizer: Optimizer::dense(&config.train) },
            model: &model,
            sharding: &plan.sharding,
            placement: &placement,
            reduction: &|_, _| unreachable!("one rank reduces nothing"),
            payload: Payload::F32,
            overlap: false,
            rates: &Rates::at_the_limits(),
        });
        measured.rates(&outcome, placement.ranks[0].compute.len(), path)
    }
}

/// Samples a second, beside those that as many times the ranks would ideally give.
fn chart(machine: &str, points: &[Point]) -> String {
    let ranks = |point: &Point| point.ranks as f64;
    let first = &points[0];
    let line = |name: &str, of: &dyn Fn(&Point) -> f64| Line {
        name: name.to_owned(),
        points: points.iter().map(|point| (ranks(point), of(point))).collect(),
        joined: true,
    };
    let all = [
        line("predicted", &|point| point.samples_per_s),
        line("in proportion to ranks", &|point| first.samples_per_s * ranks(point) / ranks(first)),
    ];
    lines(&format!("training on {machine}"), ["ranks", "samples a second"], &all)
}

struct Predicted {
    outcome: Outcome,
    comm_cores: usize,
    collective: Option<String>,
}

fn shape(config: &Config, workload: &Workload) -> Shape {
    Shape::dlrm(&config.model, workload.tables.len(), workload.tables.len() * workload.dim)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A training step on {}; {}\n", self.machine, self.rates)?;
        let mut table = Table::new([
            "ranks", "minibatch", "step ms", "samples/s", "compute ms", "exposed ms", "hidden ms", "speedup", "efficiency",
            "dense gradients", "limited by",
        ]);
        for point in &self.points {
            let sum = |ms: &BTreeMap<&str, f64>| ms.values().sum::<f64>();
            let by = match (&point.collective, point.comm_cores) {
                (None, _) => String::new(),
                (Some(name), 0) => format!("{name}, compute cores"),
                (Some(name), cores) => format!("{name}, {cores} cores"),
            };
            table.row([
                point.ranks.to_string(),
                point.batch.to_string(),
                format!("{:.2}", point.step_ms),
                format!("{:.0}", point.samples_per_s),
                format!("{:.2}", point.compute_ms),
                format!("{:.2}", sum(&point.exposed_ms)),
                format!("{:.2}", sum(&point.hidden_ms)),
                format!("{:.2}", point.speedup),
                format!("{:.0} %", point.efficiency * 1e2),
                by,
                point.bottleneck.clone(),
            ]);
        }
        writeln!(f, "{table}")?;
        let mut exposed = Table::new(["ranks, exposed ms", "ids", "pooled rows", "their gradients", "dense gradients"]);
        for point in self.points.iter().filter(|point| point.ranks > 1) {
            let cells = Kind::ALL.map(|kind| format!("{:.3}", point.exposed_ms[kind.name()]));
            exposed.row([point.ranks.to_string()].into_iter().chain(cells));
        }
        if self.points.iter().any(|point| point.ranks > 1) { write!(f, "{exposed}") } else { Ok(()) }
    }
}
