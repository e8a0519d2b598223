//! From a data set to its hot rows: sample, log, estimate, choose, judge, collect.

use std::ops::Range;
use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;

use super::HotSet;
use super::estimate::{CHUNKS, Chunks, ENTRIES};
use super::log::{Kind, Log};
use super::optimizer::{Budget, Candidate, Size, Tried, optimize};
use super::rates::{MOST, Rates};
use super::sample::{Drawn, inputs, stream, stretch};
use crate::base::rng::{Random, Stream};
use crate::base::units::Bytes;
use crate::base::{Error, Result};
use crate::data::{Batch, Source, Split};

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
    fn counts(&self, source: &dyn Source, inputs: u64, stretch: u64) -> Result<(Vec<Kind>, u64)> {
        let schema = source.schema();
        let large: Vec<u64> =
            schema.tables.iter().map(|column| column.rows).filter(|&rows| !self.small(rows)).collect();
        let fixed = fixed_bytes(source, stretch, &large);
        let accesses = inputs * schema.longest() as u64;
        let (kinds, bytes) = Kind::of(&large, accesses, self.memory.saturating_sub(fixed))?;
        Ok((kinds, fixed + bytes))
    }

    /// Whether a table of so many rows is hot as a whole.
    const fn small(&self, rows: u64) -> bool {
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
/// a whole, or the memory for the counts; and what the source finds.
pub fn profile_within(
    source: &dyn Source,
    within: Range<u64>,
    options: &Options,
    progress: &(dyn Fn(Step) -> Result<()> + Sync),
) -> Result<Profile> {
    let fail = |origin: &str, reason: String| Err(Error::config(origin, reason));
    let schema = source.schema();
    let total = within.end - within.start;
    if total == 0 {
        return fail("data", "there is no training sample to count".to_owned());
    }
    let small = |rows: u64| options.small(rows);
    let whole: u64 = schema.tables.iter().map(|column| column.rows).filter(|&rows| small(rows)).sum();
    if whole * options.row_bytes > options.budget {
        return fail(
            "--hot-budget",
            format!(
                "tables of less than {} are hot as a whole, and take {}: allow more than {}",
                Bytes(options.whole_below),
                Bytes(whole * options.row_bytes),
                Bytes(options.budget)
            ),
        );
    }

    let began = Instant::now();
    let stretch = stretch(total, options.share, source.schema().longest());
    let drawn = Drawn::new(total, options.share, stretch, options.seed).from(within.start);
    let (kinds, memory_bytes) = options.counts(source, inputs(&drawn.counted), stretch)?;
    let mut kinds = kinds.into_iter();
    let log = |rows| (!small(rows)).then(|| Log::new(kinds.next().expect("a kind a large table"), rows));
    let mut step = Step { done: 0, total: inputs(&drawn.counted) + inputs(&drawn.judged) };
    let mut advance = |samples: usize| {
        step.done += samples as u64;
        progress(step)
    };
    let mut logs: Vec<Option<Log>> = schema.tables.iter().map(|column| column.rows).map(log).collect();
    stream(source, &drawn.counted, |batch| {
        let logs = logs.par_iter_mut().zip(&batch.bags);
        logs.filter_map(|(log, bag)| Some((log.as_mut()?, bag))).for_each(|(log, bag)| log.add(&bag.rows));
        advance(batch.samples())
    })?;
    let sample = began.elapsed().as_secs_f64();

    let began = Instant::now();
    let candidates: Vec<Candidate> = logs
        .par_iter()
        .zip(&schema.tables)
        .enumerate()
        .map(|(table, (log, column))| {
            let random = Random::new(options.seed, Stream::Profile(1, table as u32));
            let drawn = log.as_ref().map(|log| (Chunks::draw(log, &random), log.accesses()));
            Candidate { rows: column.rows, drawn }
        })
        .collect();
    let Options { budget, row_bytes, least, .. } = *options;
    let mut tried = optimize(&candidates, Budget { bytes: budget, row_bytes, least });
    let estimate = began.elapsed().as_secs_f64();

    let began = Instant::now();
    let share = inputs(&drawn.counted) as f64 / total as f64;
    let inferred = Some(share).filter(|share| options.infer && *share < 1.0);
    count(&mut tried, &logs, &candidates, options.row_bytes, inferred);
    // What is estimated to fit fits in all but one of a thousand cases, and the next higher threshold then.
    let fits =
        |tried: &Tried| tried.threshold >= least && tried.bytes.high <= budget as f64 && tried.counted_bytes <= budget;
    let Some(chosen) = tried.iter().rposition(fits) else {
        let reason = format!(
            "the tables that are hot as a whole take {}, and the hottest row of each other table more than is left of {}: \
             allow more",
            Bytes(whole * options.row_bytes),
            Bytes(options.budget)
        );
        return fail("--hot-budget", reason);
    };
    let lookups = judge(source, &drawn, &logs, &mut tried, &mut advance)?;
    let set = collect(&tried[chosen], &logs, &candidates);
    let tables = schema.tables.iter().zip(&logs).zip(&lookups).enumerate();
    let tables = tables.map(|(table, ((column, log), levels))| {
        let all: u64 = levels.iter().sum();
        TableProfile {
            name: column.name.clone(),
            rows: column.rows,
            small: log.is_none(),
            accesses: log.as_ref().map_or(0, Log::accesses),
            accessed_rows: log.as_ref().map_or(0, |log| log.rows().len() as u64),
            hot_rows: set.rows(table),
            hot_lookups: (all > 0).then(|| levels[..=chosen].iter().sum::<u64>() as f64 / all as f64),
        }
    });
    Ok(Profile {
        inputs: total,
        sampled: inputs(&drawn.counted),
        judged: inputs(&drawn.judged),
        stretch,
        budget_bytes: options.budget,
        row_bytes: options.row_bytes,
        memory_bytes,
        tables: tables.collect(),
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

/// Counts how many rows of each log are hot at each threshold, and infers how many all inputs would make hot, of which
/// `share` were sampled, if that is told.
fn count(tried: &mut [Tried], logs: &[Option<Log>], candidates: &[Candidate], row_bytes: u64, share: Option<f64>) {
    let found: Vec<Vec<(u64, f64)>> = logs
        .par_iter()
        .zip(candidates)
        .enumerate()
        .map(|(table, (log, candidate))| {
            let sizes = tried.iter().map(|tried| (tried.threshold, tried.tables[table]));
            match log {
                Some(log) => sized(sizes, log, candidate.rows, share),
                None => sizes.map(|_| (candidate.rows, candidate.rows as f64)).collect(),
            }
        })
        .collect();
    for (at, tried) in tried.iter_mut().enumerate() {
        for (size, found) in tried.tables.iter_mut().zip(&found) {
            (size.counted, size.inferred) = found[at];
        }
        tried.counted_bytes = tried.tables.iter().map(|size| size.counted).sum::<u64>() * row_bytes;
        tried.inferred_bytes = tried.tables.iter().map(|size| size.inferred).sum::<f64>() * row_bytes as f64;
    }
}

/// The rows of a table of `rows` that are hot at each of some thresholds: those of the log, and those that all inputs
/// would make hot, of which `share` were sampled.
fn sized(sizes: impl Iterator<Item = (f64, Size)>, log: &Log, rows: u64, share: Option<f64>) -> Vec<(u64, f64)> {
    let mut counts: Vec<u32> = log.rows().iter().map(|&row| log.of(row)).collect();
    counts.sort_unstable();
    // Rows by accesses, with those that have more.
    let mut by_accesses = vec![0; MOST + 2];
    by_accesses[0] = rows - counts.len() as u64;
    counts.iter().for_each(|&count| by_accesses[(count as usize).min(MOST + 1)] += 1);
    let rates = share.filter(|_| !counts.is_empty()).map(|share| (share, Rates::fit(&by_accesses)));
    let all = |share: f64| log.accesses() as f64 / share;
    let size = |(threshold, Size { cutoff, .. }): (f64, Size)| match &rates {
        _ if cutoff == 0 => (rows, rows as f64),
        rates => {
            let counted = (counts.len() - counts.partition_point(|&count| count < cutoff)) as u64;
            // Of many accesses chance is a small part.
            let inferred = rates.as_ref().filter(|_| cutoff as usize <= MOST / 2);
            (counted, inferred.map_or(counted as f64, |(share, rates)| rates.hot(threshold * all(*share), *share)))
        }
    };
    sizes.map(size).collect()
}

/// Of each threshold, falling, the accesses that make a row of a table hot; the last is 0.
fn cutoffs(tried: &[Tried], table: usize) -> Vec<u32> {
    tried.iter().map(|tried| tried.tables[table].cutoff).collect()
}

/// The first threshold at which a row of so many accesses is hot.
fn level(cutoffs: &[u32], accesses: u32) -> usize {
    cutoffs.partition_point(|&cutoff| cutoff > accesses)
}

/// A table's part in judging inputs.
struct Judge<'a> {
    log: Option<&'a Log>,
    cutoffs: Vec<u32>,
    /// Look-ups by level.
    lookups: Vec<u64>,
    /// The highest level of each input of a stretch.
    levels: Vec<u8>,
}

impl Judge<'_> {
    fn look(&mut self, batch: &Batch, table: usize) {
        let bag = &batch.bags[table];
        self.levels.clear();
        self.levels.resize(batch.samples(), 0);
        let Some(log) = self.log else {
            self.lookups[0] += bag.rows.len() as u64;
            return;
        };
        for (n, highest) in self.levels.iter_mut().enumerate() {
            for &row in bag.of(n) {
                let level = level(&self.cutoffs, log.of(row));
                self.lookups[level] += 1;
                *highest = (*highest).max(level as u8);
            }
        }
    }
}

/// Judges the inputs that were kept back, by every threshold; returns each table's look-ups by the first threshold at
/// which they are hot.
fn judge<'a>(
    source: &dyn Source,
    drawn: &Drawn,
    logs: &'a [Option<Log>],
    tried: &mut [Tried],
    advance: &mut (impl FnMut(usize) -> Result<()> + Send),
) -> Result<Vec<Vec<u64>>> {
    assert!(tried.len() <= usize::from(u8::MAX), "a level is a byte");
    let judge = |(table, log): (usize, &'a Option<Log>)| {
        let (cutoffs, lookups) = (cutoffs(tried, table), vec![0; tried.len()]);
        Judge { log: log.as_ref(), cutoffs, lookups, levels: Vec::new() }
    };
    let mut judges: Vec<Judge<'a>> = logs.iter().enumerate().map(judge).collect();
    let (mut inputs, mut highest) = (vec![0u64; tried.len()], Vec::new());
    stream(source, &drawn.judged, |batch| {
        judges.par_iter_mut().enumerate().for_each(|(table, judge)| judge.look(batch, table));
        highest.clear();
        highest.resize(batch.samples(), 0u8);
        for judge in &judges {
            highest.iter_mut().zip(&judge.levels).for_each(|(highest, &level)| *highest = (*highest).max(level));
        }
        highest.iter().for_each(|&level| inputs[usize::from(level)] += 1);
        advance(batch.samples())
    })?;
    let lookups: Vec<Vec<u64>> = judges.into_iter().map(|judge| judge.lookups).collect();
    let all = |counts: &[u64]| counts.iter().sum::<u64>().max(1) as f64;
    let total: Vec<u64> = (0..tried.len()).map(|level| lookups.iter().map(|table| table[level]).sum()).collect();
    for (at, tried) in tried.iter_mut().enumerate() {
        tried.hot_inputs = inputs[..=at].iter().sum::<u64>() as f64 / all(&inputs);
        tried.hot_lookups = total[..=at].iter().sum::<u64>() as f64 / all(&total);
    }
    Ok(lookups)
}

/// The rows that are hot at a threshold.
fn collect(tried: &Tried, logs: &[Option<Log>], candidates: &[Candidate]) -> HotSet {
    let mut set = HotSet::new();
    for ((size, log), candidate) in tried.tables.iter().zip(logs).zip(candidates) {
        match log {
            Some(log) if size.cutoff > 0 => {
                let hot = log.rows().iter().copied().filter(|&row| log.of(row) >= size.cutoff);
                set.push_some(candidate.rows, hot);
            }
            _ => set.push_whole(candidate.rows),
        }
    }
    set
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
