//! A search for hot rows step by step: counts of a sample, thresholds, judgement of inputs.

use std::ops::Range;

use rayon::prelude::*;

use super::HotSet;
use super::estimate::Chunks;
use super::log::Log;
use super::optimizer::{Budget, Candidate, Size, Tried, optimize};
use super::profile::{Options, TableProfile};
use super::rates::{MOST, Rates};
use super::sample::{Drawn, inputs, stream, stretch};
use crate::base::rng::{Random, Stream};
use crate::base::units::{Bytes, Count, spelled};
use crate::base::{Error, Result};
use crate::data::schema::Column;
use crate::data::{Batch, Source};
use crate::memory::check_host;

/// A search for hot rows: what is drawn of the inputs, and what was counted of it.
pub(super) struct Search<'a> {
    source: &'a dyn Source,
    options: &'a Options,
    /// Training samples.
    pub total: u64,
    pub drawn: Drawn,
    /// By table; nothing of those that are hot as a whole.
    logs: Vec<Option<Log>>,
    /// Bytes that all this takes, at most.
    pub memory_bytes: u64,
}

impl<'a> Search<'a> {
    /// Draws inputs, and makes room for their counts.
    ///
    /// # Errors
    /// [`Error::Config`] where either takes more memory than there is, and [`Error::Interrupted`].
    pub fn new(source: &'a dyn Source, within: Range<u64>, options: &'a Options) -> Result<Self> {
        let (schema, total) = (source.schema(), within.end - within.start);
        let stretch = stretch(total, options.share, schema.longest());
        let bytes = Drawn::bytes(total, options.share, stretch);
        check_host("what is drawn of the training samples", bytes, 0).map_err(|_| {
            let reason = format!(
                "drawing {:.3} % of {} training samples, in stretches of {}, takes up to {}, and this machine has less free: \
                 sample fewer inputs",
                100.0 * options.share,
                Count(total),
                Count(stretch),
                Bytes(bytes)
            );
            Error::config("--sample", reason)
        })?;
        let drawn = Drawn::new(total, options.share, stretch, options.seed)?.from(within.start);
        let (kinds, memory_bytes) = options.counts(source, inputs(&drawn.counted), stretch)?;
        let mut kinds = kinds.into_iter();
        let log = |rows| (!options.small(rows)).then(|| Log::new(kinds.next().expect("a kind a large table"), rows));
        let logs = schema.tables.iter().map(|column| column.rows).map(log).collect();
        Ok(Self { source, options, total, drawn, logs, memory_bytes })
    }

    /// Counts the accesses of the inputs that are drawn for that.
    pub fn count(&mut self, advance: &mut (impl FnMut(usize) -> Result<()> + Send)) -> Result<()> {
        let Self { source, drawn, logs, .. } = self;
        stream(*source, &drawn.counted, |batch| {
            let logs = logs.par_iter_mut().zip(&batch.bags);
            logs.filter_map(|(log, bag)| Some((log.as_mut()?, bag))).for_each(|(log, bag)| log.add(&bag.rows));
            advance(batch.samples())
        })
    }

    /// Tries thresholds on a part of the counts.
    pub fn estimate(&self) -> Vec<Tried> {
        let candidate = |(table, (log, column)): (usize, (&Option<Log>, &Column))| {
            let random = Random::new(self.options.seed, Stream::Profile(1, table as u32));
            let drawn = log.as_ref().map(|log| (Chunks::draw(log, &random), log.accesses()));
            Candidate { rows: column.rows, drawn }
        };
        let tables = self.logs.par_iter().zip(&self.source.schema().tables);
        let candidates: Vec<Candidate> = tables.enumerate().map(candidate).collect();
        let Options { budget, row_bytes, least, .. } = *self.options;
        optimize(&candidates, Budget { bytes: budget, row_bytes, least })
    }

    /// Counts how many rows of each log are hot at each threshold, and infers how many all inputs would make hot, if
    /// that is wanted.
    pub fn size(&self, tried: &mut [Tried]) {
        let share = inputs(&self.drawn.counted) as f64 / self.total as f64;
        let share = Some(share).filter(|share| self.options.infer && *share < 1.0);
        let of_table = |(table, (log, column)): (usize, (&Option<Log>, &Column))| {
            let sizes = tried.iter().map(|tried| (tried.threshold, tried.tables[table]));
            match log {
                Some(log) => sized(sizes, log, column.rows, share),
                None => sizes.map(|_| (column.rows, column.rows as f64)).collect(),
            }
        };
        let tables = self.logs.par_iter().zip(&self.source.schema().tables);
        let found: Vec<Vec<(u64, f64)>> = tables.enumerate().map(of_table).collect();
        let row_bytes = self.options.row_bytes;
        for (at, tried) in tried.iter_mut().enumerate() {
            for (size, found) in tried.tables.iter_mut().zip(&found) {
                (size.counted, size.inferred) = found[at];
            }
            tried.counted_bytes = tried.tables.iter().map(|size| size.counted).sum::<u64>() * row_bytes;
            tried.inferred_bytes = tried.tables.iter().map(|size| size.inferred).sum::<f64>() * row_bytes as f64;
        }
    }

    /// The lowest threshold whose hot rows fit: what is estimated to fit does in all but one of a thousand cases, and
    /// in that one the next higher threshold is taken.
    pub fn choose(&self, tried: &[Tried]) -> Result<usize> {
        let Options { budget, least, .. } = *self.options;
        let fits = |tried: &Tried| {
            tried.threshold >= least && tried.bytes.high <= budget as f64 && tried.counted_bytes <= budget
        };
        tried.iter().rposition(fits).ok_or_else(|| {
            // Its rows are the fewest, and it is tried whatever the budget.
            let highest = tried.first().expect("a threshold of 1 is tried");
            let needed = (highest.bytes.high.ceil() as u64).max(highest.counted_bytes);
            let unit = if needed < 1 << 20 { 1 << 10 } else { 1 << 20 };
            let reason = format!(
                "the tables that are hot as a whole take {}, and the hottest rows of the others, as a sample tells, may \
                 take more than is left of {}: allow {}",
                Bytes(self.options.whole_bytes(self.source.schema())),
                Bytes(budget),
                spelled(needed.next_multiple_of(unit))
            );
            Error::config("--hot-budget", reason)
        })
    }

    /// Judges the inputs that were kept back, by every threshold; returns each table's look-ups by the first threshold
    /// at which they are hot.
    pub fn judge<'l>(
        &'l self,
        tried: &mut [Tried],
        advance: &mut (impl FnMut(usize) -> Result<()> + Send),
    ) -> Result<Vec<Vec<u64>>> {
        assert!(tried.len() <= usize::from(u8::MAX), "a level is a byte");
        let judge = |(table, log): (usize, &'l Option<Log>)| {
            let (cutoffs, lookups) = (cutoffs(tried, table), vec![0; tried.len()]);
            Judge { log: log.as_ref(), cutoffs, lookups, levels: Vec::new() }
        };
        let mut judges: Vec<Judge<'l>> = self.logs.iter().enumerate().map(judge).collect();
        let (mut inputs, mut highest) = (vec![0u64; tried.len()], Vec::new());
        stream(self.source, &self.drawn.judged, |batch| {
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
    pub fn collect(&self, tried: &Tried) -> HotSet {
        let mut set = HotSet::new();
        for ((size, log), column) in tried.tables.iter().zip(&self.logs).zip(&self.source.schema().tables) {
            match log {
                Some(log) if size.cutoff > 0 => {
                    let hot = log.rows().iter().copied().filter(|&row| log.of(row) >= size.cutoff);
                    set.push_some(column.rows, hot);
                }
                _ => set.push_whole(column.rows),
            }
        }
        set
    }

    /// What was found of each table, of whose look-ups these are by the first threshold at which they are hot.
    pub fn tables(&self, set: &HotSet, lookups: &[Vec<u64>], chosen: usize) -> Vec<TableProfile> {
        let tables = self.source.schema().tables.iter().zip(&self.logs).zip(lookups).enumerate();
        let profile = |table: usize, column: &Column, log: &Option<Log>, levels: &[u64]| {
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
        };
        tables.map(|(table, ((column, log), levels))| profile(table, column, log, levels)).collect()
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
