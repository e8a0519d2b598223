//! From a data set to its hot rows: sample, log, estimate, choose, judge, collect.

use std::ops::Range;
use std::time::Instant;

use serde::Serialize;

use super::HotSet;
use super::estimate::{CHUNKS, ENTRIES};
use super::log::Kind;
use super::optimizer::Tried;
use super::sample::{inputs, stretch};
use super::search::Search;
use crate::base::units::Bytes;
use crate::base::{Error, Result};
use crate::data::{Schema, Source, Split};

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The share of the inputs whose accesses are counted, more than 0 and at most 1: the paper's x.
    pub share: f64,
    /// Bytes that hot rows may take, the paper's L.
    pub budget: u64,
    /// Bytes of a row, with what an optimizer keeps beside it.
    pub row_bytes: u64,
    /// Bytes that counts and what is read may take.
    pub memory: u64,
    /// Decides which inputs and entries are drawn.
    pub seed: u64,
    /// Bytes below which a table is hot as a whole: the paper's are [`super::WHOLE_BELOW`].
    pub whole_below: u64,
    /// The share of its table's accesses that a hot row has at least, whatever the budget: the paper's is 0.
    pub least: f64,
    /// Whether it is inferred how many rows all inputs would make hot; else what was counted stands for that.
    pub infer: bool,
}

impl Options {
    /// The same of fewer inputs, where counting as many of `total` as are wanted could take more than the memory.
    #[must_use]
    pub fn within_memory(mut self, source: &dyn Source, total: u64) -> Self {
        let fits = |options: &Self| {
            let stretch = stretch(total, options.share, source.schema().longest());
            let counted = (total as f64 * options.share).ceil() as u64 + stretch;
            options.counts(source, counted, stretch).is_ok()
        };
        while self.share * total as f64 >= 2.0 && !fits(&self) {
            self.share /= 2.0;
        }
        self
    }

    /// What holds the counts of so many inputs, by table that is not hot as a whole, and the bytes that are taken, at
    /// most.
    pub(super) fn counts(&self, source: &dyn Source, inputs: u64, stretch: u64) -> Result<(Vec<Kind>, u64)> {
        let schema = source.schema();
        let large: Vec<u64> =
            schema.tables.iter().map(|column| column.rows).filter(|&rows| !self.small(rows)).collect();
        let fixed = fixed_bytes(source, stretch, &large);
        let accesses = inputs.saturating_mul(schema.longest() as u64);
        let (kinds, bytes) = Kind::of(&large, accesses, self.memory.saturating_sub(fixed))?;
        Ok((kinds, fixed + bytes))
    }

    /// Bytes of the tables that are hot as a whole.
    pub(super) fn whole_bytes(&self, schema: &Schema) -> u64 {
        let rows = schema.tables.iter().map(|column| column.rows);
        rows.filter(|rows| self.small(*rows)).sum::<u64>() * self.row_bytes
    }

    /// Checks that these tables fit the budget.
    fn check_budget(&self, schema: &Schema) -> Result<()> {
        let (budget, whole) = (self.budget, self.whole_bytes(schema));
        if whole <= budget {
            return Ok(());
        }
        // How much more the hottest rows of the others take, only a sample tells.
        let reason = format!(
            "tables of less than {} are hot as a whole, and take {}, of {} that are allowed: allow more than {whole}B",
            Bytes(self.whole_below),
            Bytes(whole),
            Bytes(budget)
        );
        Err(Error::config("--hot-budget", reason))
    }

    /// Whether a table of so many rows is hot as a whole.
    pub(super) const fn small(&self, rows: u64) -> bool {
        rows * self.row_bytes < self.whole_below
    }
}

/// The hot rows of a data set, and how they were found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Profile {
    /// Training samples.
    pub inputs: u64,
    /// Those of them that were counted.
    pub sampled: u64,
    /// Those that were judged: none that was counted, unless all were.
    pub judged: u64,
    /// Samples of a stretch, which are drawn together.
    pub stretch: u64,
    /// As wanted.
    pub budget_bytes: u64,
    /// As wanted.
    pub row_bytes: u64,
    /// Memory that was set aside, at most.
    pub memory_bytes: u64,
    /// By table.
    pub tables: Vec<TableProfile>,
    /// All thresholds that were tried, falling.
    pub tried: Vec<Tried>,
    /// The one among them that is chosen.
    pub chosen: usize,
    /// How long it took.
    pub seconds: Times,
    /// The rows.
    #[serde(skip)]
    pub set: HotSet,
}

/// What was found of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableProfile {
    /// Its column's name.
    pub name: String,
    /// All of its rows.
    pub rows: u64,
    /// Whether it is hot as a whole because it is small.
    pub small: bool,
    /// Accesses in the sample, and the rows that they were to; 0 for small tables, whose accesses are not counted.
    pub accesses: u64,
    /// The rows that these were to.
    pub accessed_rows: u64,
    /// Hot rows.
    pub hot_rows: u64,
    /// Share of the judged inputs' look-ups that are of hot rows; nothing where there was none.
    pub hot_lookups: Option<f64>,
}

/// Seconds of each step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// Reading the sample and counting.
    pub sample: f64,
    /// Trying thresholds.
    pub estimate: f64,
    /// Judging inputs, and collecting the rows.
    pub judge: f64,
}

/// How far a profile is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Samples that were counted or judged.
    pub done: u64,
    /// Those that will have been in the end.
    pub total: u64,
}

/// Finds the hot rows of all training samples, as [`profile_within`].
///
/// # Errors
/// As [`profile_within`], and [`Error::Config`] where the data never end.
pub fn profile(
    source: &dyn Source,
    options: &Options,
    progress: &(dyn Fn(Step) -> Result<()> + Sync),
) -> Result<Profile> {
    let Some(total) = source.samples(Split::Train) else {
        let reason = "its samples never end, so that no share of them can be drawn: name data that end (PATH, or --source criteo)"
            .to_owned();
        return Err(Error::config("data.source", reason));
    };
    profile_within(source, 0..total, options, progress)
}

/// Finds the hot rows of some training samples; `progress` is told of every stretch that is done with, and an error of
/// it ends the search.
///
/// Counting and judging use the threads of the rayon pool that this is called in. The result depends on the data and
/// the options alone.
///
/// # Errors
/// [`Error::Config`] where there is no sample, the budget is too small for the tables that are hot as
/// a whole, or the memory for the counts or for what is drawn; [`Error::Interrupted`]; and what the source finds.
pub fn profile_within(
    source: &dyn Source,
    within: Range<u64>,
    options: &Options,
    progress: &(dyn Fn(Step) -> Result<()> + Sync),
) -> Result<Profile> {
    if within.is_empty() {
        return Err(Error::config("data", "there is no training sample to count".to_owned()));
    }
    options.check_budget(source.schema())?;
    let began = Instant::now();
    let mut search = Search::new(source, within, options)?;
    let mut step = Step { done: 0, total: inputs(&search.drawn.counted) + inputs(&search.drawn.judged) };
    let mut advance = |samples: usize| {
        step.done += samples as u64;
        progress(step)
    };
    search.count(&mut advance)?;
    let sample = began.elapsed().as_secs_f64();

    let began = Instant::now();
    let mut tried = search.estimate();
    let estimate = began.elapsed().as_secs_f64();

    let began = Instant::now();
    search.size(&mut tried);
    let chosen = search.choose(&tried)?;
    let lookups = search.judge(&mut tried, &mut advance)?;
    let set = search.collect(&tried[chosen]);
    Ok(Profile {
        inputs: search.total,
        sampled: inputs(&search.drawn.counted),
        judged: inputs(&search.drawn.judged),
        stretch: search.drawn.stretch,
        budget_bytes: options.budget,
        row_bytes: options.row_bytes,
        memory_bytes: search.memory_bytes,
        tables: search.tables(&set, &lookups, chosen),
        chosen,
        seconds: Times { sample, estimate, judge: began.elapsed().as_secs_f64() },
        tried,
        set,
    })
}

/// Bytes beside the counts: two stretches with their levels, what is drawn of the logs, a bit a row.
fn fixed_bytes(source: &dyn Source, stretch: u64, large: &[u64]) -> u64 {
    let schema = source.schema();
    // A row number, a weight and an offset a look-up; a minibatch's memory doubles when it is full.
    let lookups = schema.lookups() as u64;
    let stretches = 2 * 2 * stretch * (12 * lookups + 4 * schema.dense as u64 + 4);
    let drawn = large.iter().map(|rows| (*rows).min((CHUNKS * ENTRIES) as u64) * 4).sum::<u64>();
    stretches + drawn + large.iter().map(|rows| rows.div_ceil(8)).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{DataConfig, LookUps};
    use crate::data::Random;

    #[test]
    fn fewer_inputs_are_sampled_where_counts_of_all_do_not_fit() {
        let config = DataConfig { lookups: LookUps::Same(40), ..DataConfig::default() };
        let source = Random::new(&config, &[1 << 24, 1 << 20, 7], 2).unwrap();
        let total = 1 << 22;
        let options = Options {
            share: 0.5,
            budget: 1 << 20,
            row_bytes: 64,
            memory: 64 << 20,
            seed: 1,
            whole_below: 0,
            least: 0.0,
            infer: true,
        };
        let fitting = options.within_memory(&source, total);
        let inputs = |options: &Options| (options.share * total as f64) as u64;
        let bytes = |options: &Options| options.counts(&source, inputs(options), 1).map(|(_, bytes)| bytes);
        assert!(bytes(&options).is_err() && bytes(&fitting).unwrap() <= options.memory);
        // Not many fewer: at the edge half as many are taken.
        assert!(bytes(&Options { share: 4.0 * fitting.share, ..fitting }).is_err(), "{}", fitting.share);
        let roomy = Options { memory: 16 << 30, ..options };
        assert_eq!(roomy.within_memory(&source, total), roomy);
        // Of one input, whatever is left: the error tells.
        let tight = Options { memory: 1 << 10, ..options }.within_memory(&source, total);
        assert!(inputs(&tight) <= 1 && bytes(&tight).is_err());
    }
}
