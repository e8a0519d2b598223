//! `octorec bench step`: milliseconds of a training step on random data, and the least that this machine allows.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::LimitArgs;
use crate::base::config::{Config, SourceKind};
use crate::base::{Error, Result};
use crate::cli::overrides::{BaseArgs, KeyArgs};
use crate::cli::profile::Profiled;
use crate::cli::ranks::{Breakdowns, RankArgs, Steps};
use crate::cli::session::{build_model, place_team};
use crate::cli::tuned::use_plans;
use crate::data::{self, Batch, Opening, Source, Split};
use crate::machine::Machine;
use crate::machine::limits::{Bracket, Ceiling, Processor, Rate, around};
use crate::machine::team::Team;
use crate::model::Dlrm;
use crate::train::ranks::Ranks;
use crate::train::{Clock, Profile, step};

/// Steps before the clock starts.
const WARM_UP: usize = 3;

/// Flags of `octorec bench step`.
#[derive(Debug, Clone, Args)]
#[command(args_override_self = true)]
pub struct StepArgs {
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    several: RankArgs,
    /// Exponent of a Zipf distribution of rows; default: uniform
    #[arg(long, value_name = "EXPONENT")]
    zipf: Option<f64>,
    /// Steps that are timed
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Different minibatches, drawn before the clock starts and used in turn
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    minibatches: u32,
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
    threads: usize,
    batch: usize,
    precision: &'static str,
    ms_median: f64,
    ms_min: f64,
    ms_max: f64,
    samples_per_s: f64,
    /// The sum over all stages.
    roofline_ms: f64,
    /// `roofline_ms / ms_median`.
    ratio: f64,
    #[serde(flatten)]
    profile: Profiled,
}

/// What was measured of several ranks, beside one rank with all of their threads.
#[derive(Debug, Serialize)]
pub struct Together {
    machine: Processor,
    ranks: u32,
    /// Whether ranks share cores, so that they wait for each other's turn.
    cores_shared: bool,
    batch: usize,
    precision: &'static str,
    ms_median: f64,
    ms_min: f64,
    ms_max: f64,
    samples_per_s: f64,
    /// One rank's median step with the threads of all ranks, on the same minibatches, before and after.
    alone_ms: Bracket,
    /// `alone_ms / ms_median - 1`: the samples/s that the division gains; negative: loses.
    gain: f64,
    breakdowns: Breakdowns,
}

/// One rank or several.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Measured {
    /// Against what the machine allows.
    One(Box<Report>),
    /// Against one rank.
    Several(Box<Together>),
}

impl StepArgs {
    /// The preset on random data, with rows capped as the user wishes.
    fn config(&self) -> Result<Config> {
        let mut layers = self.base.layers()?;
        layers.set("data.source", "random", "bench step")?;
        if let Some(zipf) = self.zipf {
            layers.set("data.zipf", zipf, "--zipf")?;
        }
        let mut config = self.keys.finish(layers)?;
        if config.data.source != SourceKind::Random {
            let reason = "the step is timed on random look-ups: leave --data and --source away".to_owned();
            return Err(Error::Config { origin: "bench step".to_owned(), reason });
        }
        let cap = if config.data.rows_cap == 0 { u64::MAX } else { config.data.rows_cap };
        config.model.rows.iter_mut().for_each(|rows| *rows = (*rows).min(cap));
        // No evaluation will need more room.
        config.train.eval_batch = 1;
        Ok(config)
    }

    /// Times the step.
    ///
    /// # Errors
    /// When the configuration is wrong, threads or memory are refused, or the hardware cannot be explored.
    pub fn measure(&self) -> Result<Measured> {
        if self.several.several(&self.config()?)? {
            return self.together().map(|report| Measured::Several(Box::new(report)));
        }
        self.one().map(|report| Measured::One(Box::new(report)))
    }

    /// Times steps of several ranks between steps of one.
    fn together(&self) -> Result<Together> {
        let config = self.config()?;
        if self.several.loader.is_some() {
            let reason = "minibatches are drawn before the clock starts: leave it away".to_owned();
            return Err(Error::Config { origin: "--loader".to_owned(), reason });
        }
        let source = data::open(&config, Opening::default())?;
        let drawn = draw(&*source, self.minibatches as usize, config.train.batch)?;
        let mut threads = 0;
        let alone = |threads: usize| {
            let (team, home) = place_team(threads, config.train.isa)?;
            let mut model = build_model(&config, &*source, &team, &home)?;
            model.initialise(&team, config.train.seed);
            let ms = self.time(&config, &drawn, &team, &mut model, &mut Clock::new(false));
            Ok::<_, Error>(Rate { median: ms[ms.len() / 2], min: ms[0], max: ms[ms.len() - 1], passes: ms.len() })
        };
        let machine = Machine::load("host")?;
        let placement = self.several.place(&config, &machine)?;
        placement.ranks.iter().for_each(|rank| threads += rank.compute.len() + rank.comm.len());
        // Threads that share a core with another are none that one rank could use.
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = threads.min(cores);
        let before = alone(threads)?;
        let batches: Vec<Arc<Batch>> = drawn.iter().cloned().map(Arc::new).collect();
        let steps = {
            let ranks = Ranks::start(self.several.setup(&config, &*source, &machine, &placement)?)?;
            Steps::run(&ranks, &batches, self.repeat as usize, config.train.lr as f32)?
        };
        let alone_ms = Bracket { before, after: alone(threads)? };
        let ms_median = steps.median_ms();
        Ok(Together {
            machine: Processor::of_this_machine()?,
            ranks: self.several.ranks,
            cores_shared: !placement.spin,
            batch: config.train.batch,
            precision: config.train.precision.name(),
            ms_median,
            ms_min: steps.ms[0],
            ms_max: steps.ms[steps.ms.len() - 1],
            samples_per_s: config.train.batch as f64 / ms_median * 1e3,
            gain: alone_ms.mean() / ms_median - 1.0,
            alone_ms,
            breakdowns: Breakdowns::new(steps.breakdowns),
        })
    }

    /// The milliseconds of steps of one rank, ascending.
    fn time(&self, config: &Config, batches: &[Batch], team: &Team, model: &mut Dlrm, clock: &mut Clock) -> Vec<f64> {
        let (rate, mut cold) = (config.train.lr as f32, Clock::new(false));
        batches.iter().cycle().take(WARM_UP.max(batches.len())).for_each(|batch| {
            step(team, model, batch, rate, &mut cold);
        });
        let timed = batches.iter().cycle().take(self.repeat as usize).map(|batch| {
            let began = Instant::now();
            let loss = step(team, model, batch, rate, clock);
            let ms = began.elapsed().as_secs_f64() * 1e3;
            assert!(loss.is_finite(), "the step trains");
            ms
        });
        let mut times = timed.collect::<Vec<f64>>();
        times.sort_by(f64::total_cmp);
        times
    }

    fn one(&self) -> Result<Report> {
        let config = self.config()?;
        let (team, home) = place_team(config.train.threads, config.train.isa)?;
        use_plans(&config, &team)?;
        let source = data::open(&config, Opening::default())?;
        let batches = draw(&*source, self.minibatches as usize, config.train.batch)?;
        let mut model = build_model(&config, &*source, &team, &home)?;
        model.initialise(&team, config.train.seed);
        let mut ceiling = Ceiling::new(&team, config.model.dim, config.train.precision, self.limit.bytes())?;
        let mut clock = Clock::new(false);
        let (brackets, times) =
            around(|| ceiling.measure(), || self.time(&config, &batches, &team, &mut model, &mut clock));
        let profile = Profiled::new(&Profile::of(&model, &batches[0]), &clock, brackets);
        let ms_median = (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0;
        let roofline_ms = profile.roofline_ms();
        Ok(Report {
            machine: Processor::of_this_machine()?,
            threads: team.threads(),
            batch: config.train.batch,
            precision: config.train.precision.name(),
            ms_median,
            ms_min: times[0],
            ms_max: times[times.len() - 1],
            samples_per_s: config.train.batch as f64 / ms_median * 1e3,
            roofline_ms,
            ratio: roofline_ms / ms_median,
            profile,
        })
    }
}

/// So many checked minibatches of a source.
pub(in crate::cli) fn draw(source: &dyn Source, count: usize, samples: usize) -> Result<Vec<Batch>> {
    let mut reader = source.open(Split::Train, 0)?;
    let draw = |_| {
        let mut batch = Batch::new(source.schema());
        reader.read(&mut batch, samples)?;
        batch.check(source.schema())?;
        Ok(batch)
    };
    (0..count).map(draw).collect()
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(report) => report.fmt(f),
            Self::Several(report) => report.fmt(f),
        }
    }
}

impl fmt::Display for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        let shared = if self.cores_shared { ", which share cores" } else { "" };
        writeln!(f, "a step of {} samples in {} on {} ranks{shared}\n", self.batch, self.precision, self.ranks)?;
        writeln!(f, "{}", self.breakdowns)?;
        let Self { ms_median, ms_min, ms_max, samples_per_s, alone_ms, gain, .. } = self;
        writeln!(f, "step: {ms_median:.3} ms ({ms_min:.3} to {ms_max:.3}), {samples_per_s:.0} samples/s")?;
        let (alone, gain) = (alone_ms.mean(), 100.0 * gain);
        writeln!(
            f,
            "one rank with all their threads: {alone:.3} ms, so that the division gains {gain:.1} % samples/s"
        )?;
        alone_ms.remark("one rank's step (ms)").map_or(Ok(()), |remark| writeln!(f, "{remark}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "a step of {} samples in {} on {} threads\n", self.batch, self.precision, self.threads)?;
        let Self { profile, ms_median, ms_min, ms_max, .. } = self;
        writeln!(f, "{}", profile.table("step (median)", *ms_median))?;
        writeln!(f, "  steps took {ms_min:.3} to {ms_max:.3} ms; `at least` divides each stage's work by")?;
        profile.write_limits(f)
    }
}
