//! Random order of more rows than fit into memory: an external bucket shuffle.
//!
//! Every row has a random 64-bit key, a pure function of (seed, row), and the order is that of the keys: each order is
//! equally likely, and it depends neither on memory nor on threads. Rows are first written in runs, in which the rows
//! of a bucket, which is a range of keys, stand together; then a bucket is read from all runs and sorted.
//!
//! A bucket is read by one thread, in its share of the memory. A run is made by as many threads as it takes for few
//! runs: reads of a bucket are then few and long. In memory stay the buckets' sizes, of all runs together.
//!
//! A record is the row's number (two words), its label, its dense columns and its look-ups, behind their number where
//! rows have lists, and before their weights where a column has some; so records say themselves where they end.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rayon::prelude::*;

use super::part::read_at;
use super::progress::{Meter, Stage};
use super::stored::{Scratch, Stored};
use crate::base::rng::{Random, Stream};
use crate::base::{Error, Result, Unpoisoned, interrupt};
use crate::data::Samples;
use crate::data::samples::Values;
use crate::data::schema::{Categorical, Description};
use crate::data::unfinished::remove;
use crate::memory::WholeFile;

/// Words before a record's columns: the row's number (two) and its label.
const BEFORE: usize = 3;
/// Runs at most, if the memory of all threads is enough for that.
const RUNS_MOST: u64 = 1000;

/// How a stretch of rows is shuffled.
pub(super) struct Shuffle<'a> {
    pub(super) stored: &'a Stored<'a>,
    pub(super) description: &'a Description,
    pub(super) rows: Range<u64>,
    pub(super) seed: u64,
    /// Rows that a thread takes into its memory; a bucket has half as many.
    pub(super) thread_rows: u64,
    pub(super) threads: usize,
    /// Where runs go, and how their files begin.
    pub(super) work: &'a Path,
    pub(super) name: String,
}

/// All runs of a stretch.
pub(super) struct Shuffled<'a> {
    of: &'a Shuffle<'a>,
    division: Division,
    /// Rows before each bucket, and of all.
    starts: Vec<u64>,
}

/// How rows are divided into runs. A run is a file of records behind two lists: how many records, and how many words of
/// them, are before each bucket, and of all.
#[derive(Debug, PartialEq, Eq)]
struct Division {
    /// Rows of a run.
    run_rows: u64,
    /// Runs, and how many are made at a time.
    runs: u64,
    writers: u64,
    /// Threads that make one.
    lanes: u64,
}

impl Division {
    fn of(rows: u64, thread_rows: u64, threads: u64) -> Self {
        // So many threads' memory for one run.
        let together = rows.div_ceil(thread_rows).div_ceil(RUNS_MOST).clamp(1, threads);
        let run_rows = together * thread_rows;
        let runs = rows.div_ceil(run_rows);
        let writers = (threads / together).min(runs).max(1);
        Self { run_rows, runs, writers, lanes: threads / writers }
    }
}

/// The rows of a run that one thread has taken into memory.
struct Lane {
    records: Vec<u32>,
    /// Where each record begins, and where the last one ends.
    ends: Vec<u64>,
    /// Keys in order, each with its record.
    order: Vec<(u64, u32)>,
    /// Records, and words of them, before each bucket, and of all.
    starts: Vec<u64>,
    words: Vec<u64>,
}

impl Lane {
    /// The records of a bucket.
    fn bucket(&self, bucket: usize) -> impl Iterator<Item = &[u32]> {
        let some = self.starts[bucket] as usize..self.starts[bucket + 1] as usize;
        let record = move |at: usize| self.ends[at] as usize..self.ends[at + 1] as usize;
        self.order[some].iter().map(move |&(_, at)| &self.records[record(at as usize)])
    }
}

impl Shuffle<'_> {
    fn count(&self) -> u64 {
        self.rows.end - self.rows.start
    }

    fn buckets(&self) -> u64 {
        self.count().div_ceil((self.thread_rows / 2).max(1))
    }

    fn random(&self) -> Random {
        // The loader's epochs count from 0, and the orders of its windows begin again after 2^24 of them: the last of
        // these is beyond any run, so that its stream is free.
        Random::new(self.seed, Stream::Shuffle((1 << 24) - 1, 0))
    }

    fn key(random: &Random, row: u64) -> u64 {
        let [a, b, ..] = random.block(row);
        u64::from(a) << 32 | u64::from(b)
    }

    /// The file of a run of so many rows: another number of threads, with which the work may go on, makes others.
    fn path(&self, run: u64, run_rows: u64) -> PathBuf {
        self.work.join(format!("{}-{run_rows}-{run:06}.run", self.name))
    }

    /// Writes all runs that are not there yet.
    pub(super) fn spread(&self, meter: &Meter<'_>) -> Result<Shuffled<'_>> {
        let division = Division::of(self.count(), self.thread_rows, self.threads as u64);
        let all = Mutex::new(vec![0u64; self.buckets() as usize + 1]);
        let writers = division.writers as usize;
        (0..writers).into_par_iter().with_max_len(1).try_for_each(|writer| {
            for run in (writer as u64..division.runs).step_by(writers) {
                let from = self.rows.start + run * division.run_rows;
                let rows = from..self.rows.end.min(from + division.run_rows);
                let count = rows.end - rows.start;
                let path = self.path(run, division.run_rows);
                let known = if path.exists() { self.whole(&path, count)? } else { None };
                let starts = match known {
                    Some(starts) => starts,
                    None => self.write(&path, rows, division.lanes)?,
                };
                meter.add(Stage::Shuffle, count);
                let mut all = all.lock().unpoisoned();
                all.iter_mut().zip(starts).for_each(|(all, start)| *all += start);
            }
            Ok(())
        })?;
        let starts = all.into_inner().unpoisoned();
        Ok(Shuffled { of: self, starts, division })
    }

    /// The rows before each bucket, and of all, of a run of `count` rows, if the file is one that was finished.
    fn whole(&self, path: &Path, count: u64) -> Result<Option<Vec<u64>>> {
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
        Ok(whole.then_some(starts))
    }

    /// One run, made by so many threads; returns the rows before each bucket, and of all.
    fn write(&self, path: &Path, rows: Range<u64>, lanes: u64) -> Result<Vec<u64>> {
        let each = (rows.end - rows.start).div_ceil(lanes).max(1);
        let begins = (rows.start..rows.end).step_by(each as usize).collect::<Vec<_>>().into_par_iter();
        let lanes = begins.with_max_len(1).map(|from| self.lane(from..rows.end.min(from + each)));
        let lanes: Vec<Lane> = lanes.collect::<Result<_>>()?;
        let buckets = self.buckets() as usize;
        let sums = |of: &dyn Fn(&Lane) -> &[u64]| -> Vec<u64> {
            (0..=buckets).map(|bucket| lanes.iter().map(|lane| of(lane)[bucket]).sum()).collect()
        };
        let (starts, words) = (sums(&|lane| &lane.starts[..]), sums(&|lane| &lane.words[..]));
        let mut file = WholeFile::create(path)?;
        file.append(bytemuck::cast_slice(&starts))?;
        file.append(bytemuck::cast_slice(&words))?;
        for bucket in 0..buckets {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            for record in lanes.iter().flat_map(|lane| lane.bucket(bucket)) {
                file.append(bytemuck::cast_slice(record))?;
            }
        }
        file.finish_unsynced().map(|_| starts)
    }

    /// Takes rows into memory and sorts their keys.
    fn lane(&self, rows: Range<u64>) -> Result<Lane> {
        let random = self.random();
        let mut row = rows.start;
        let count = (rows.end - rows.start) as usize;
        let mut order: Vec<(u64, u32)> = Vec::with_capacity(count);
        // Growing, they would lie in memory twice at times.
        let mut records: Vec<u32> = Vec::with_capacity(count * least_words(self.description));
        let mut ends: Vec<u64> = Vec::with_capacity(count + 1);
        ends.push(0);
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
        debug_assert!(
            records.len() >= count * least_words(self.description),
            "less is sure to be written than was told"
        );
        order.sort_unstable();
        let buckets = self.buckets();
        let bucket = |key: u64| ((u128::from(key) * u128::from(buckets)) >> 64) as u64;
        let starts = (0..=buckets).map(|b| order.partition_point(|&(key, _)| bucket(key) < b) as u64).collect();
        let mut lane = Lane { records, ends, order, starts, words: vec![0] };
        for bucket in 0..buckets as usize {
            let words = lane.bucket(bucket).map(|record| record.len() as u64).sum::<u64>();
            lane.words.push(lane.words[bucket] + words);
        }
        Ok(lane)
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
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            records.clear();
            order.clear();
            for run in 0..self.division.runs {
                self.read(run, bucket, &mut some)?;
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

    /// Reads a run's records of a bucket.
    fn read(&self, run: u64, bucket: usize, records: &mut Vec<u32>) -> Result<()> {
        let path = self.of.path(run, self.division.run_rows);
        // There may be more runs than files that a process may have open.
        let file = File::open(&path).map_err(Error::io(&path, "open"))?;
        let (head, mut words) = (self.starts.len(), Vec::new());
        read_at::<u64>(&file, &path, 8 * (head + bucket) as u64, 2, &mut words)?;
        let count = words[1].checked_sub(words[0]);
        let count = count.ok_or_else(|| Error::bad_file(path.clone(), "changed while it was used"))?;
        read_at(&file, &path, 16 * head as u64 + 4 * words[0], count as usize, records)
    }

    /// Removes the runs.
    pub(super) fn remove(&self) -> Result<()> {
        (0..self.division.runs).try_for_each(|run| remove(&self.of.path(run, self.division.run_rows)))
    }
}

/// Words that every record has: all of them where rows have no lists.
pub(super) fn least_words(description: &Description) -> usize {
    let column = |column: &Categorical| match column.hots {
        0 => 1,
        hots => hots as usize * (1 + usize::from(column.weighted)),
    };
    BEFORE + description.dense.len() + description.categorical.iter().map(column).sum::<usize>()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_with_little_memory_share_it_among_few_runs() {
        // Criteo's Terabyte log with 4 GiB on 64 threads; then memory that is enough, too little, and for a single run.
        for (rows, thread_rows, threads, most) in [
            (4_195_197_692, 178_000, 64, RUNS_MOST),
            (4_195_197_692, 2_800_000, 64, 1499),
            (4_195_197_692, 1000, 4, 1_048_800),
            (9000, 4096, 3, 3),
            (100, 4096, 8, 1),
        ] {
            let Division { run_rows, runs, writers, lanes } = Division::of(rows, thread_rows, threads);
            assert!(runs <= most && (runs - 1) * run_rows < rows && runs * run_rows >= rows, "{rows} {thread_rows}");
            assert!(writers >= 1 && writers * lanes <= threads, "{rows} {thread_rows}: {writers} {lanes}");
            assert!(run_rows.div_ceil(lanes) <= thread_rows, "{rows} {thread_rows}: {lanes}");
        }
    }
}
