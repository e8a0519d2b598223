//! `octorec bench step`: milliseconds of a training step on random data, and the least that this machine allows.

use std::fmt;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::table::Table;
use crate::base::config::{Config, SourceKind};
use crate::base::{Error, Result};
use crate::cli::overrides::{BaseArgs, KeyArgs};
use crate::cli::session::{build_model, place_team};
use crate::data::{self, Batch, Opening, Source, Split};
use crate::machine::limits::{Bracket, CEILINGS, Ceiling, Processor, around};
use crate::model::{Limits, Stage};
use crate::train::{Clock, step};

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
    ms_median: f64,
    ms_min: f64,
    ms_max: f64,
    samples_per_s: f64,
    /// The sum over all stages.
    roofline_ms: f64,
    /// `roofline_ms / ms_median`.
    ratio: f64,
    stages: Vec<StageRow>,
    limits: Vec<LimitRow>,
    remarks: Vec<String>,
}

#[derive(Debug, Serialize)]
struct StageRow {
    stage: &'static str,
    /// Mean over the timed steps.
    ms: f64,
    roofline_ms: f64,
    operations: f64,
    bytes: f64,
}

#[derive(Debug, Serialize)]
struct LimitRow {
    what: &'static str,
    #[serde(flatten)]
    bracket: Bracket,
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
        let (team, home) = place_team(config.train.threads)?;
        let source = data::open(&config, Opening::default())?;
        let batches = draw(&*source, self.minibatches as usize, config.train.batch)?;
        let mut model = build_model(&config, &*source, &team, &home)?;
        model.initialise(&team, config.train.seed);
        let rate = config.train.lr as f32;
        let mut ceiling = Ceiling::new(&team, config.model.dim * size_of::<f32>())?;
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
        let limits = Limits {
            gflop_s: brackets[0].mean(),
            stream_gb_s: brackets[1].mean(),
            gather_gb_s: brackets[2].mean(),
            scatter_gb_s: brackets[3].mean(),
        };
        let stages: Vec<StageRow> = Stage::ALL
            .into_iter()
            .map(|stage| {
                let work = model.work(stage, &batches[0]);
                StageRow {
                    stage: stage.name(),
                    ms: clock.ms(stage),
                    roofline_ms: limits.ms(&work),
                    operations: work.operations,
                    bytes: work.bytes,
                }
            })
            .collect();
        let ms_median = (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0;
        let roofline_ms = stages.iter().map(|row| row.roofline_ms).sum();
        let limits: Vec<_> =
            CEILINGS.into_iter().zip(brackets).map(|(what, bracket)| LimitRow { what, bracket }).collect();
        Ok(Report {
            machine: Processor::of_this_machine()?,
            threads: team.threads(),
            batch: config.train.batch,
            ms_median,
            ms_min: times[0],
            ms_max: times[times.len() - 1],
            samples_per_s: config.train.batch as f64 / ms_median * 1e3,
            roofline_ms,
            ratio: roofline_ms / ms_median,
            remarks: limits.iter().filter_map(|row| row.bracket.remark(row.what)).collect(),
            stages,
            limits,
        })
    }
}

fn draw(source: &dyn Source, count: usize, samples: usize) -> Result<Vec<Batch>> {
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
        writeln!(f, "a step of {} samples on {} threads\n", self.batch, self.threads)?;
        let mut table = Table::new(["stage", "ms", "at least", "reached", "achieved"]);
        let percent =
            |part: f64, whole: f64| if whole > 0.0 { format!("{:.0} %", 100.0 * part / whole) } else { "-".to_owned() };
        for row in &self.stages {
            let achieved = match row.bytes {
                0.0 => format!("{:.1} GFLOP/s", row.operations / row.ms / 1e6),
                bytes => format!("{:.1} GB/s", bytes / row.ms / 1e6),
            };
            let figures =
                [format!("{:.3}", row.ms), format!("{:.3}", row.roofline_ms), percent(row.roofline_ms, row.ms)];
            table.row([row.stage.to_owned()].into_iter().chain(figures).chain([achieved]));
        }
        let median = [format!("{:.3}", self.ms_median), format!("{:.3}", self.roofline_ms)];
        table.row(
            ["step (median)".to_owned()]
                .into_iter()
                .chain(median)
                .chain([percent(self.ratio, 1.0), format!("{:.0} samples/s", self.samples_per_s)]),
        );
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "  steps took {:.3} to {:.3} ms; `at least` divides each stage's work by",
            self.ms_min, self.ms_max
        )?;
        for row in &self.limits {
            writeln!(
                f,
                "  {}: {:.1} (before {:.1}, after {:.1})",
                row.what,
                row.bracket.mean(),
                row.bracket.before.median,
                row.bracket.after.median
            )?;
        }
        self.remarks.iter().try_for_each(|remark| writeln!(f, "  {remark}"))
    }
}
