//! `octorec bench step`: milliseconds of a training step on random data, and the least that this machine allows.

use std::fmt;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::base::config::{Config, SourceKind};
use crate::base::{Error, Result};
use crate::cli::overrides::{BaseArgs, KeyArgs};
use crate::cli::profile::Profiled;
use crate::cli::session::{build_model, place_team};
use crate::cli::tuned::use_plans;
use crate::data::{self, Batch, Opening, Source, Split};
use crate::machine::limits::{Ceiling, Processor, around};
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
    /// Exponent of a Zipf distribution of rows; default: uniform
    #[arg(long, value_name = "EXPONENT")]
    zipf: Option<f64>,
    /// Steps that are timed
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Different minibatches, drawn before the clock starts and used in turn
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    minibatches: u32,
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
    pub fn measure(&self) -> Result<Report> {
        let config = self.config()?;
        let (team, home) = place_team(config.train.threads, config.train.isa)?;
        use_plans(&config, &team)?;
        let source = data::open(&config, Opening::default())?;
        let batches = draw(&*source, self.minibatches as usize, config.train.batch)?;
        let mut model = build_model(&config, &*source, &team, &home)?;
        model.initialise(&team, config.train.seed);
        let rate = config.train.lr as f32;
        let mut ceiling = Ceiling::new(&team, config.model.dim, config.train.precision)?;
        let mut clock = Clock::new(false);
        let (brackets, mut times) = around(
            || ceiling.measure(),
            || {
                let mut cold = Clock::new(false);
                batches.iter().cycle().take(WARM_UP.max(batches.len())).for_each(|batch| {
                    step(&team, &mut model, batch, rate, &mut cold);
                });
                let timed = batches.iter().cycle().take(self.repeat as usize).map(|batch| {
                    let began = Instant::now();
                    let loss = step(&team, &mut model, batch, rate, &mut clock);
                    let ms = began.elapsed().as_secs_f64() * 1e3;
                    assert!(loss.is_finite(), "the step trains");
                    ms
                });
                timed.collect::<Vec<f64>>()
            },
        );
        times.sort_by(f64::total_cmp);
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
