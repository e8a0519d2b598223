//! Random order of more rows than fit into memory: an external bucket shuffle.
//!
//! Every row has a random 64-bit key, a pure function of (seed, row), and the order is that of the keys: each order is
//! equally likely, and it depends neither on memory nor on threads. Rows are first written in runs, each sorted by key;
//! then a bucket, which is a range of keys, is read from all runs and sorted.
//!
//! A record is the row's number (two words), its label, its dense columns and its look-ups, behind their number where
//! rows have lists, and before their weights where a column has some; so records say themselves where they end.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::disk::{self, Growing};
use super::part::read_at;
use super::progress::{Meter, Stage};
use super::stored::{Scratch, Stored};
use crate::base::rng::{Random, Stream};
use crate::base::{Error, Result};
use crate::data::Samples;
use crate::data::samples::Values;
use crate::data::schema::Description;

/// Words before a record's columns: the row's number (two) and its label.
const BEFORE: usize = 3;

/// How a stretch of rows is shuffled.
pub(super) struct Shuffle<'a> {
    pub(super) stored: &'a Stored<'a>,
    pub(super) description: &'a Description,
    pub(super) rows: Range<u64>,
    pub(super) seed: u64,
    /// Rows of a run; a bucket has half as many.
    pub(super) run_rows: u64,
    /// Where runs go, and how their files begin.
    pub(super) work: &'a Path,
    pub(super) name: String,
}

/// All runs of a stretch.
pub(super) struct Shuffled<'a> {
    of: &'a Shuffle<'a>,
    runs: Vec<Run>,
    /// Rows before each bucket, and of all.
    starts: Vec<u64>,
}

/// A file of records behind two lists: how many records, and how many words of them, are before each bucket, and of
/// all.
struct Run {
    path: PathBuf,
    starts: Vec<u64>,
    words: Vec<u64>,
}

impl Shuffle<'_> {
    fn buckets(&self) -> u64 {
        (self.rows.end - self.rows.start).div_ceil((self.run_rows / 2).max(1))
    }

    fn random(&self) -> Random {
        // The loader's epochs stay below 2^24 - 1.
        Random::new(self.seed, Stream::Shuffle((1 << 24) - 1, 0))
    }

    fn key(random: &Random, row: u64) -> u64 {
        let [a, b, ..] = random.block(row);
        u64::from(a) << 32 | u64::from(b)
    }

    fn path(&self, run: u64) -> PathBuf {
        self.work.join(format!("{}-{run:06}.run", self.name))
    }

    /// Writes all runs that are not there yet.
    pub(super) fn spread(&self, meter: &Meter<'_>) -> Result<Shuffled<'_>> {
        let runs = (self.rows.end - self.rows.start).div_ceil(self.run_rows);
        let runs = (0..runs).into_par_iter().map(|run| {
            let from = self.rows.start + run * self.run_rows;
            let rows = from..self.rows.end.min(from + self.run_rows);
            let count = rows.end - rows.start;
            let path = self.path(run);
            let known = if path.exists() { self.whole(&path, count)? } else { None };
            let run = match known {
                Some(run) => run,
                None => {
                    self.write(&path, rows)?;
                    let changed = || Error::bad_file(path.clone(), "changed while it was used");
                    self.whole(&path, count)?.ok_or_else(changed)?
                }
            };
            meter.add(Stage::Shuffle, count);
            Ok(run)
        });
        let runs: Vec<Run> = runs.collect::<Result<_>>()?;
        let starts = (0..=self.buckets() as usize).map(|bucket| runs.iter().map(|run| run.starts[bucket]).sum());
        Ok(Shuffled { of: self, starts: starts.collect(), runs })
    }

    /// A run of `count` rows, if the file is one that was finished.
    fn whole(&self, path: &Path, count: u64) -> Result<Option<Run>> {
        let file = File::open(path).map_err(Error::io(path, "open"))?;
        let bytes = file.metadata().map_err(Error::io(path, "read"))?.len();
        let head = self.buckets() as usize + 1;
        if bytes < 16 * head as u64 {
            return Ok(None);
        }
        let (mut starts, mut words): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        read_at(&file, path, 0, head, &mut starts)?;
        read_at(&file, path, 8 * head as u64, head, &mut words)?;
        let sorted = starts.is_sorted() && words.is_sorted();
        let whole =
            sorted && starts[head - 1] == count && words[head - 1].checked_mul(4) == Some(bytes - 16 * head as u64);
        Ok(whole.then(|| Run { path: path.to_owned(), starts, words }))
    }

    /// One run: its rows in the order of their keys, behind where each bucket begins.
    fn write(&self, path: &Path, rows: Range<u64>) -> Result<()> {
        let random = self.random();
        let count = (rows.end - rows.start) as usize;
        let mut records: Vec<u32> = Vec::new();
        // Where each record ends.
        let mut ends = vec![0u64];
        let mut order: Vec<(u64, u32)> = Vec::with_capacity(count);
        let mut row = rows.start;
        let mut samples = Samples::new(self.description);
        self.stored.each(rows, &mut Scratch::default(), &mut samples, |samples| {
            for at in 0..samples.len() {
                order.push((Self::key(&random, row), order.len() as u32));
                records.extend([row as u32, (row >> 32) as u32, samples.labels[at].to_bits()]);
                records.extend(samples.dense.iter().map(|column| match column {
                    Values::Integers(values) => values[at] as u32,
                    Values::Floats(values) => values[at].to_bits(),
                }));
                for (lookups, column) in samples.lookups.iter().zip(&self.description.categorical) {
                    let span = lookups.span(&(at..at + 1), column.hots);
                    records.extend((column.hots == 0).then_some(span.len() as u32));
                    records.extend_from_slice(&lookups.rows[span.clone()]);
                    if column.weighted {
                        records.extend(lookups.weights[span].iter().map(|weight| weight.to_bits()));
                    }
                }
                ends.push(records.len() as u64);
                row += 1;
            }
            Ok(())
        })?;
        order.sort_unstable();
        let buckets = self.buckets();
        let bucket = |key: u64| ((u128::from(key) * u128::from(buckets)) >> 64) as u64;
        let starts: Vec<u64> =
            (0..=buckets).map(|b| order.partition_point(|&(key, _)| bucket(key) < b) as u64).collect();
        let record = |at: u32| ends[at as usize] as usize..ends[at as usize + 1] as usize;
        let (mut before, mut from) = (0, 0);
        let words = starts.iter().map(|&start| {
            let bucket = &order[std::mem::replace(&mut from, start as usize)..start as usize];
            before += bucket.iter().map(|&(_, at)| record(at).len() as u64).sum::<u64>();
            before
        });
        let words: Vec<u64> = words.collect();
        let mut file = Growing::create(path)?;
        file.append(bytemuck::cast_slice(&starts))?;
        file.append(bytemuck::cast_slice(&words))?;
        for &(_, at) in &order {
            file.append(bytemuck::cast_slice(&records[record(at)]))?;
        }
        file.finish()
    }
}

impl Shuffled<'_> {
    /// Calls `visit` with the rows that stand at `range` in the random order; `samples` is cleared before each call.
    pub(super) fn each(
        &self,
        range: Range<u64>,
        samples: &mut Samples,
        mut visit: impl FnMut(&Samples) -> Result<()>,
    ) -> Result<()> {
        let (random, description) = (self.of.random(), self.of.description);
        let (mut records, mut some): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut order: Vec<(u64, u64, usize)> = Vec::new();
        for bucket in 0..self.starts.len() - 1 {
            let (start, end) = (self.starts[bucket], self.starts[bucket + 1]);
            if end <= range.start || start >= range.end || start == end {
                continue;
            }
            records.clear();
            order.clear();
            for run in &self.runs {
                let (from, to) = (run.words[bucket], run.words[bucket + 1]);
                let at = 16 * run.words.len() as u64 + 4 * from;
                // There may be more runs than files that a process may have open.
                let file = File::open(&run.path).map_err(Error::io(&run.path, "open"))?;
                read_at(&file, &run.path, at, (to - from) as usize, &mut some)?;
                records.extend_from_slice(&some);
            }
            let mut at = 0;
            while at < records.len() {
                let row = u64::from(records[at]) | u64::from(records[at + 1]) << 32;
                order.push((Shuffle::key(&random, row), row, at));
                at += length(&records[at..], description);
            }
            order.sort_unstable();
            let within = (range.start.max(start) - start) as usize..(range.end.min(end) - start) as usize;
            samples.clear();
            for &(_, _, at) in &order[within] {
                push(&records[at..], samples, description);
            }
            visit(samples)?;
        }
        Ok(())
    }

    /// Removes the runs.
    pub(super) fn remove(&self) -> Result<()> {
        self.runs.iter().try_for_each(|run| disk::remove(&run.path))
    }
}

/// Words of the first of some records.
fn length(records: &[u32], description: &Description) -> usize {
    let mut at = BEFORE + description.dense.len();
    for column in &description.categorical {
        let (head, lookups) = if column.hots == 0 { (1, records[at]) } else { (0, column.hots) };
        at += head + lookups as usize * (1 + usize::from(column.weighted));
    }
    at
}

/// Appends the first of some records.
fn push(records: &[u32], samples: &mut Samples, description: &Description) {
    let (dense, mut ids) = records[BEFORE..].split_at(samples.dense.len());
    samples.labels.push(f32::from_bits(records[BEFORE - 1]));
    for (column, &word) in samples.dense.iter_mut().zip(dense) {
        match column {
            Values::Integers(values) => values.push(word as i32),
            Values::Floats(values) => values.push(f32::from_bits(word)),
        }
    }
    for (lookups, column) in samples.lookups.iter_mut().zip(&description.categorical) {
        let count = if column.hots == 0 { ids[0] } else { column.hots };
        let (mine, rest) = ids[usize::from(column.hots == 0)..].split_at(count as usize);
        lookups.rows.extend_from_slice(mine);
        if column.hots == 0 {
            lookups.ends.push(lookups.rows.len() as u32);
        }
        let (weights, rest) = rest.split_at(if column.weighted { mine.len() } else { 0 });
        lookups.weights.extend(weights.iter().map(|&bits| f32::from_bits(bits)));
        ids = rest;
    }
}
