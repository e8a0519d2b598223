//! The rows of which ranks that train have copies: read from a file, or told from a sample of the data.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;

use super::data::bar;
use super::deep::Deep;
use super::help::MACHINE;
use crate::base::config::{Config, Hot};
use crate::base::units::{Bytes, Count, Many, Seconds, parse_bytes};
use crate::base::{Error, Result};
use crate::data::Source;
use crate::data::hot::{HotSet, HotSlots, Options, profile};
use crate::train::load_hot;

/// Samples from which hot rows are told: some seconds of reading, and a row that a minibatch looks up a few times comes
/// hundreds of times among them.
const SAMPLES: u64 = 1 << 20;

/// Bytes that counting may take.
const MEMORY: u64 = 4 << 30;

/// The part of the tables' weights that copies may take unless told otherwise: one in so many bytes.
const PART: u64 = 50;

/// Copies of hot rows.
#[derive(Debug, Clone, Args)]
pub struct CopyArgs {
    /// Rows that are looked up most: off, or exact (every rank reads its own copies, equal to the rows in every step; other
    /// look-ups travel, and what keeps copies equal).
    #[arg(long, value_name = "NAME", help_heading = MACHINE)]
    hot: Option<String>,

    /// What copies may take on each rank; default: a fiftieth of what the tables' weights take.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, conflicts_with = "hot_set", help_heading = MACHINE)]
    hot_budget: Option<u64>,

    /// The hot rows, as `octorec inspect --hot --out FILE` wrote them; default: told from a sample of the data.
    #[arg(long, value_name = "FILE", help_heading = MACHINE)]
    hot_set: Option<PathBuf>,
}

impl CopyArgs {
    /// Its flags, each with its key and value.
    #[must_use]
    pub fn values(&self) -> [(&'static str, &'static str, Option<toml::Value>); 3] {
        let text = |text: String| toml::Value::String(text);
        let bytes = self.hot_budget.map(|bytes| toml::Value::Integer(i64::try_from(bytes).unwrap_or(i64::MAX)));
        [
            ("--hot", "train.hot", self.hot.clone().map(text)),
            ("--hot-budget", "train.hot_budget", bytes),
            ("--hot-set", "train.hot_set", self.hot_set.as_ref().map(|path| text(path.display().to_string()))),
        ]
    }
}

/// The hot rows of a run on so many ranks; nothing where no copies are wanted, or one rank would have them. `tell` hears
/// what they are.
///
/// # Errors
/// When the file or the data cannot be read, or the budget is too small.
pub fn hot_rows(
    config: &Config,
    source: &dyn Source,
    ranks: usize,
    ordered: bool,
    tell: &mut dyn FnMut(&str),
) -> Result<Option<Arc<HotSlots>>> {
    if config.train.hot == Hot::Off {
        return Ok(None);
    }
    if ranks == 1 {
        tell("hot rows: one rank reads all rows where they are, without copies");
        return Ok(None);
    }
    let row_bytes = row_bytes(config, ordered);
    let deep = Deep::of(source);
    let (set, how) = match &*config.train.hot_set {
        "" => {
            let (set, how) = told(config, deep.source, ranks, row_bytes)?;
            (deep.of_all(set), how)
        }
        path => {
            let set = load_hot(Path::new(path), source.schema())?;
            deep.check(&set, path)?;
            (set, format!("as in {path}"))
        }
    };
    let rows: u64 = (0..set.tables()).map(|table| set.rows(table)).sum();
    tell(&format!("hot rows: copies of {} on each rank, up to {}; {how}", Many(rows, "row"), Bytes(rows * row_bytes)));
    Ok(Some(Arc::new(HotSlots::new(&set))))
}

/// What a hot row takes on a rank: its weights, its learned one included, and unless gradients go to owners bag by bag, a sum
/// of them.
fn row_bytes(config: &Config, ordered: bool) -> u64 {
    let copies = if ordered { 1 } else { 2 };
    let beside = usize::from(config.model.weighs_rows());
    ((config.model.dim * copies + beside) * size_of::<f32>()) as u64
}

/// Hot rows by a sample of the data, and how they were told.
fn told(config: &Config, source: &dyn Source, ranks: usize, row_bytes: u64) -> Result<(HotSet, String)> {
    let rows: u64 = source.schema().tables.iter().map(|column| column.rows).sum();
    let weights = rows * (config.model.dim * size_of::<f32>()) as u64;
    let total = source.samples(crate::data::Split::Train).unwrap_or(1).max(1);
    // A copy pays where a minibatch looks the row up as often as there are ranks. Without it, each look-up of another rank
    // sends the row and its gradient once; with it, each rank sends one sum and gets one row.
    let look_ups = (config.train.minibatch() * source.schema().longest()) as f64;
    let options = Options {
        share: (SAMPLES as f64 / total as f64).min(1.0),
        budget: config.train.hot_budget.or(weights / PART),
        row_bytes,
        memory: MEMORY,
        seed: config.train.seed,
        whole_below: 0,
        least: (ranks as f64 / look_ups).min(1.0),
    };
    let wanted = config.train.threads;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(wanted).build();
    let pool = pool.map_err(|error| Error::Threads { wanted, source: std::io::Error::other(error) })?;
    let (began, bar) = (Instant::now(), bar(0, "looking for hot rows"));
    let found = pool.install(|| {
        profile(source, &options, &|step| {
            bar.set_length(step.total);
            bar.set_position(step.done);
        })
    });
    bar.finish_and_clear();
    let found = found.map_err(|error| match error {
        Error::Config { origin, reason } if origin == "data.source" => {
            let remedy = "name the hot rows with --hot-set FILE, or use --hot off";
            Error::Config { origin, reason: format!("{reason}: {remedy}") }
        }
        error => error,
    })?;
    let chosen = &found.tried[found.chosen];
    let how = format!(
        "{:.1} % of look-ups are of them (as in {} samples, read in {})",
        100.0 * chosen.hot_lookups,
        Count(found.sampled + found.judged),
        Seconds(began.elapsed().as_secs_f64())
    );
    Ok((found.set, how))
}
