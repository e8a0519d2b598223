//! Random order of more rows than fit into memory: an external bucket shuffle.
//!
//! Every row has a random 64-bit key, a pure function of (seed, row), and the order is that of the keys: each order is
//! equally likely, and it depends neither on memory nor on threads. Rows are first written in runs, each sorted by key;
//! then a bucket, which is a range of keys, is read from all runs and sorted.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::disk;
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

struct Run {
    path: PathBuf,
    file: File,
    /// Records before each bucket, and of all.
    starts: Vec<u64>,
}

impl Shuffle<'_> {
    fn words(&self) -> usize {
        BEFORE + self.description.dense.len() + self.description.categorical.len()
    }

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
            let head = self.buckets() as usize + 1;
            let bytes = 8 * head as u64 + count * 4 * self.words() as u64;
            if !fs::metadata(&path).is_ok_and(|data| data.len() == bytes) {
                self.write(&path, rows)?;
            }
            meter.add(Stage::Shuffle, count);
            let file = File::open(&path).map_err(Error::io(&path, "open"))?;
            let mut starts = Vec::new();
            read_at(&file, &path, 0, head, &mut starts)?;
            Ok(Run { path, file, starts })
        });
        let runs: Vec<Run> = runs.collect::<Result<_>>()?;
        let starts = (0..=self.buckets() as usize).map(|bucket| runs.iter().map(|run| run.starts[bucket]).sum());
        Ok(Shuffled { of: self, starts: starts.collect(), runs })
    }

    /// One run: its rows in the order of their keys, behind a list of where each bucket begins.
    fn write(&self, path: &Path, rows: Range<u64>) -> Result<()> {
        let random = self.random();
        let (words, count) = (self.words(), (rows.end - rows.start) as usize);
        let mut records: Vec<u32> = Vec::with_capacity(words * count);
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
                records.extend(samples.lookups.iter().map(|column| column.rows[at]));
                row += 1;
            }
            Ok(())
        })?;
        order.sort_unstable();
        let buckets = self.buckets();
        let bucket = |key: u64| ((u128::from(key) * u128::from(buckets)) >> 64) as u64;
        let starts: Vec<u64> =
            (0..=buckets).map(|b| order.partition_point(|&(key, _)| bucket(key) < b) as u64).collect();
        disk::whole(path, |file| {
            let mut file = std::io::BufWriter::with_capacity(1 << 18, file);
            file.write_all(bytemuck::cast_slice(&starts))?;
            for &(_, at) in &order {
                file.write_all(bytemuck::cast_slice(&records[at as usize * words..][..words]))?;
            }
            file.flush()
        })
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
        let (words, random) = (self.of.words(), self.of.random());
        let (mut records, mut some): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut order: Vec<(u64, u64, u32)> = Vec::new();
        for bucket in 0..self.starts.len() - 1 {
            let (start, end) = (self.starts[bucket], self.starts[bucket + 1]);
            if end <= range.start || start >= range.end || start == end {
                continue;
            }
            records.clear();
            order.clear();
            for run in &self.runs {
                let (from, to) = (run.starts[bucket], run.starts[bucket + 1]);
                let at = 8 * run.starts.len() as u64 + 4 * words as u64 * from;
                read_at(&run.file, &run.path, at, (to - from) as usize * words, &mut some)?;
                records.extend_from_slice(&some);
            }
            order.extend((0u32..).zip(records.chunks_exact(words)).map(|(at, record)| {
                let row = u64::from(record[0]) | u64::from(record[1]) << 32;
                (Shuffle::key(&random, row), row, at)
            }));
            order.sort_unstable();
            let within = (range.start.max(start) - start) as usize..(range.end.min(end) - start) as usize;
            samples.clear();
            for &(_, _, at) in &order[within] {
                push(&records[at as usize * words..][..words], samples);
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

fn push(record: &[u32], samples: &mut Samples) {
    let (dense, categories) = record[BEFORE..].split_at(samples.dense.len());
    samples.labels.push(f32::from_bits(record[BEFORE - 1]));
    for (column, &word) in samples.dense.iter_mut().zip(dense) {
        match column {
            Values::Integers(values) => values.push(word as i32),
            Values::Floats(values) => values.push(f32::from_bits(word)),
        }
    }
    for (column, &id) in samples.lookups.iter_mut().zip(categories) {
        column.rows.push(id);
    }
}
