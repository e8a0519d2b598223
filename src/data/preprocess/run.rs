//! The stages of a run, one after the other.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::disk::{full, held, warn_of_small};
use super::gather::{Gather, Source};
use super::ids::{Column, Numbering};
use super::inputs::{input_files, note_left_out, refuse_empty};
use super::journal::{Journal, Stamp, WorkSizes};
use super::known::{Known, growth};
use super::output::{Output, Start};
use super::pieces::Input;
use super::points::{self, Points};
use super::progress::{Meter, Stage, Watch};
use super::recipe::{CriteoParser, RowParser, TextParser, description};
use super::shuffle::{Shuffle, least_words};
use super::split::{KAGGLE_DAYS, equal_days, refuse_only_day};
use super::stored::{Scratch, Stored};
use super::targets::{Group, Target, groups, targets};
use super::{Options, Recipe};
use crate::base::{Error, Result};
use crate::data::blocks::{self, BlockFile, Manifest, Part, Writer};
use crate::data::formats::parquet::refuse_two_types;
use crate::data::formats::{Sink, Table};
use crate::data::key_map::Key;
use crate::data::schema::Description;
use crate::data::tsv::{Layout, refuse_other_lines};
use crate::data::vocabulary::file::file_names;
use crate::data::{Growth, Labels, Samples};
use crate::machine::team::{pool, processors};
use crate::memory::{raise_open_files, write_file};

/// The file, beside the manifest, that says what was counted.
pub const SUMMARY: &str = "preprocess.json";
/// The version of what an unfinished run leaves behind: what another one has left is refused.
const JOURNAL_VERSION: u32 = 9;

/// What a run has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Rows of the data set.
    pub rows: u64,
    /// Malformed rows that were left out.
    pub skipped: u64,
    /// Rows of each day (the reference's `total_per_file`).
    pub days: Vec<u64>,
    /// Rows for each purpose.
    pub roles: BTreeMap<String, u64>,
    /// Rows of each column's table (the reference's `day_fea_count`), in order.
    pub counts: Vec<(String, u64)>,
    /// What the vocabulary of each column has grown by; empty where it could not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<Growth>,
    /// Bytes of the input files.
    pub bytes: u64,
}

/// Turns logs into a data set.
///
/// # Errors
/// What is wrong with the input, as file, row and what to do; a full disk; [`Error::Interrupted`]. Whatever was
/// finished is kept, and the same call goes on from there.
pub fn preprocess(options: &Options, watch: &Watch<'_>) -> Result<Summary> {
    let meter = Meter::new(watch);
    attempt(options, &meter).map_err(|error| full(error, &meter))
}

fn attempt(options: &Options, meter: &Meter<'_>) -> Result<Summary> {
    // Those of all columns' ids are open at a time.
    raise_open_files();
    let paths = input_files(&options.inputs)?;
    options.inputs.iter().try_for_each(|input| note_left_out(input))?;
    refuse_only_day(options, paths.len())?;
    let inputs = opened(&paths, options.max_line)?;
    match &options.recipe {
        Recipe::CriteoKaggle | Recipe::CriteoTerabyte => {
            Run::new(options, inputs)?.whole(&CriteoParser::new(options.on_bad_row, options.max_line), meter)
        }
        Recipe::Table(layout) => {
            // By the vocabulary of older data as it is a model predicts, too.
            let predicts = options.vocabulary.is_some() && !options.grow;
            let labels = if predicts { Labels::Optional } else { Labels::Required };
            let text = TextParser::open(layout, &paths, labels, options.on_bad_row, options.max_line)?;
            refuse_two_types(paths.iter().map(|path| &**path), layout, true)?;
            let mut run = Run::new(options, inputs)?;
            // Only a fraction can be missing.
            run.description.label.float = !text.is_labelled();
            run.whole(&text, meter)
        }
        Recipe::Points { most, history } => {
            let how = (options.on_bad_row, options.max_line);
            let points = Points::open(&paths, [*most, *history], options.seed, how)?;
            Run::new(options, inputs)?.whole(&points, meter)
        }
    }
}

/// The inputs of a run.
///
/// # Errors
/// When one of them cannot be read, or has no byte: each is read to its end before the rows of any are known.
fn opened(paths: &[PathBuf], max_line: usize) -> Result<Vec<Input>> {
    let inputs: Vec<Input> = paths.iter().map(|path| Input::open(path, max_line)).collect::<Result<_>>()?;
    let filled: Vec<_> = inputs.iter().map(|input| [u64::from(input.bytes > 0), 0]).collect();
    refuse_empty(paths.iter().map(PathBuf::as_path), &filled)?;
    Ok(inputs)
}

struct Run<'a> {
    options: &'a Options,
    threads: usize,
    inputs: Vec<Input>,
    output: Output,
    start: Start,
    sizes: WorkSizes,
    description: Description,
}

impl<'a> Run<'a> {
    /// Looks at inputs and output, and keeps what an earlier attempt has finished.
    fn new(options: &'a Options, inputs: Vec<Input>) -> Result<Self> {
        let threads = if options.threads == 0 { processors() } else { options.threads };
        let paths: Vec<PathBuf> = inputs.iter().map(|input| input.path.clone()).collect();
        let description = match &options.recipe {
            Recipe::Table(layout) => description(Some(layout)),
            Recipe::Points { .. } => description(Some(&points::columns())),
            Recipe::CriteoKaggle | Recipe::CriteoTerabyte => {
                let layout = Layout::criteo(Labels::Required, options.max_line);
                paths.iter().try_for_each(|path| refuse_other_lines(path, &layout))?;
                description(None)
            }
        };
        description.check().map_err(|reason| Error::bad_file(paths[0].clone(), reason))?;
        let share = options.memory / (8 * threads as u64);
        let words = 8 + description.dense.len() + description.categorical.len();
        let sizes = WorkSizes {
            piece_bytes: if options.piece_bytes > 0 { options.piece_bytes } else { share.clamp(1 << 16, 16 << 20) },
            run_rows: (4 * share / (4 * words as u64)).clamp(1 << 12, 1 << 30),
        };
        let output = Output::take(options, &paths)?;
        let mut run = Self { options, threads, inputs, output, start: Start::Goes, sizes, description };
        let mut journal = run.journal()?;
        run.start = run.output.begin(&mut journal, options.force, || {
            let Some(known) = Known::of(options)? else { return Ok(None) };
            known.check(&run.description, &options.recipe, options.min_count)?;
            known.digest().map(Some)
        })?;
        run.sizes = journal.work;
        Ok(run)
    }

    fn journal(&self) -> Result<Journal> {
        Ok(Journal {
            version: JOURNAL_VERSION,
            options: self.options.clone(),
            known: None,
            inputs: self.inputs.iter().map(Stamp::of).collect::<Result<_>>()?,
            work: self.sizes,
        })
    }

    fn whole<R: RowParser>(mut self, parser: &R, meter: &Meter<'_>) -> Result<Summary> {
        if self.start == Start::Finished {
            return self.summary();
        }
        let pool = pool(self.threads)?;
        let bytes = self.inputs.iter().map(|input| input.bytes).sum();
        meter.expect(Stage::Text, bytes);
        let parts = Gather {
            inputs: &self.inputs,
            folder: &self.output.work,
            size: self.sizes.piece_bytes,
            threads: self.threads,
            meter,
        }
        .run(parser)?;
        let days = self.days(&parts)?;
        warn_of_small(&self.output.work, self.to_come(&parts, &days)?);
        let growth = pool.install(|| self.number::<R::Key>(&parts, meter))?;
        let written = pool.install(|| self.write_blocks(&parts, &days, meter))?;
        let mut roles = BTreeMap::new();
        for part in &written {
            let role = part.role.of(["train", "validation", "test"]);
            *roles.entry(role.to_owned()).or_default() += part.rows;
        }
        let summary = Summary {
            rows: days.iter().sum(),
            skipped: parts.iter().map(|part| part.contents.head.skipped).sum(),
            days,
            roles,
            counts: self.description.categorical.iter().map(|column| (column.name.clone(), column.rows)).collect(),
            growth,
            bytes,
        };
        let text = serde_json::to_string_pretty(&summary).expect("plain data is JSON");
        write_file(&self.output.work.join(SUMMARY), text.as_bytes())?;
        Manifest::new(self.description.clone(), written).write(&self.output.work)?;
        self.output.finish().map(|()| summary)
    }

    /// Bytes that are sure to come between the parts and the blocks: of ids, of the runs of the largest stretch that is
    /// still to be shuffled, and of an older vocabulary, of which the data get a copy.
    fn to_come(&self, parts: &[Source], days: &[u64]) -> Result<u64> {
        let (work, description) = (&self.output.work, &self.description);
        let groups = groups(self.options.split.stretches(days), self.options.shuffle);
        let targets = targets(&groups, self.options.file_rows.max(1));
        let missing =
            targets.iter().filter(|target| !work.join(&target.name).exists()).map(|target| &groups[target.group]);
        let most = missing.filter(|group| group.shuffled).map(Group::rows).max().unwrap_or(0);
        let distinct = parts.iter().flat_map(|part| &part.contents.entries).map(|entry| u64::from(entry.distinct));
        let bytes = 4 * (distinct.sum::<u64>() + most * least_words(description) as u64);
        Ok(bytes.saturating_sub(held(work, "ids")? + held(work, "run")?) + self.copies()?)
    }

    /// Bytes of the copies of an older vocabulary that are still to be made.
    fn copies(&self) -> Result<u64> {
        let Some(known) = Known::of(self.options)? else { return Ok(0) };
        let (description, recipe) = (&self.description, &self.options.recipe);
        let files = file_names(description);
        let missing = (0..description.categorical.len())
            .filter(|at| recipe.fixed_rows(*at).is_none() && !self.output.work.join(&files[*at]).exists());
        missing.map(|at| known.bytes(&description.categorical[at].name)).sum()
    }

    /// What was counted when the data set was finished.
    fn summary(&self) -> Result<Summary> {
        let path = self.options.out.join(SUMMARY);
        let text = fs::read_to_string(&path).map_err(Error::io(&path, "read"))?;
        let damaged = |error| Error::bad_file(path.clone(), format!("is no summary of a run: {error}"));
        serde_json::from_str(&text).map_err(damaged)
    }

    /// Rows of each day.
    fn days(&self, parts: &[Source]) -> Result<Vec<u64>> {
        let mut found = vec![[0; 2]; self.inputs.len()];
        for part in parts {
            let ([rows, skipped], head) = (&mut found[part.input], &part.contents.head);
            *rows += u64::from(head.rows);
            *skipped += head.skipped;
        }
        refuse_empty(self.inputs.iter().map(|input| &*input.path), &found)?;
        let files: Vec<u64> = found.into_iter().map(|[rows, _]| rows).collect();
        let total = files.iter().sum();
        Ok(match (self.options.days, &self.options.recipe) {
            (0, Recipe::CriteoKaggle) => equal_days(total, KAGGLE_DAYS),
            (0, _) => files,
            (days, _) => equal_days(total, days),
        })
    }

    /// Gives every column its ids, and the description their number; returns what vocabularies have grown by.
    fn number<K: Key>(&mut self, parts: &[Source], meter: &Meter<'_>) -> Result<Vec<Growth>> {
        let columns = self.description.categorical.len();
        let distinct = |part: &Source| part.contents.entries.iter().map(|entry| u64::from(entry.distinct)).sum::<u64>();
        meter.expect(Stage::Ids, parts.iter().map(distinct).sum());
        let known = Known::of(self.options)?;
        let numbering = Numbering {
            parts,
            work: &self.output.work,
            min_count: self.options.min_count,
            // Half: what the pass over the text gave back may still be with the allocator.
            memory: self.options.memory / (2 * self.threads.min(columns.max(1)) as u64),
            meter,
        };
        let (out, description) = (&self.output.work, &self.description);
        let files = file_names(description);
        // `max_len(1)`: one column after the other is taken, the largest first.
        let sizes = largest_first(parts, columns).into_par_iter().with_max_len(1).map(|at| {
            if self.options.recipe.fixed_rows(at).is_some() {
                return numbering.as_they_are::<K>(at).map(|()| None);
            }
            let (name, vocabulary) = (&description.categorical[at].name[..], out.join(&files[at]));
            let column = Column { at, name, vocabulary, known: None, first: None };
            let column = match &known {
                Some(known) => known.with(column)?,
                None => column,
            };
            // A column without a value has a row all the same.
            let rows = numbering.number::<K>(&column)?.rows().max(1);
            Ok(Some((at, rows, growth(&column)?)))
        });
        let sizes: Vec<Option<(usize, u64, Option<Growth>)>> = sizes.collect::<Result<_>>()?;
        let mut sizes: Vec<_> = sizes.into_iter().flatten().collect();
        sizes.sort_by_key(|(at, ..)| *at);
        let numbered = sizes.into_iter().filter_map(|(at, rows, growth)| {
            let column = &mut self.description.categorical[at];
            (column.rows, column.vocabulary) = (rows, files[at].clone());
            growth
        });
        Ok(numbered.collect())
    }

    /// Rows that a thread takes into memory when rows are shuffled: fewer where rows have lists, by the part that has
    /// the longest in the mean.
    fn thread_rows(&self, parts: &[Source]) -> u64 {
        let columns = self.description.categorical.len() as u64;
        let words = 8 + self.description.dense.len() as u64 + columns;
        let mean = |part: &Source| -> u64 {
            // A weight is a word, as the look-up's row is.
            let words = |entry: &super::part::Entry| entry.lookups * (1 + u64::from(entry.weights_at > 0));
            let lookups: u64 = part.contents.entries.iter().map(words).sum();
            lookups.div_ceil(u64::from(part.contents.head.rows).max(1))
        };
        let longest = parts.iter().map(mean).max().unwrap_or(0);
        // A list is longer by the word that counts it.
        (self.sizes.run_rows * words / (words + 2 * longest.saturating_sub(columns))).max(1 << 8)
    }

    /// Writes every block file that is not there yet.
    fn write_blocks(&self, parts: &[Source], days: &[u64], meter: &Meter<'_>) -> Result<Vec<Part>> {
        let stored = Stored::open(parts, &self.description, &self.output.work)?;
        let groups = groups(self.options.split.stretches(days), self.options.shuffle);
        let targets = targets(&groups, self.options.file_rows.max(1));
        let rows = |shuffled_only: bool| -> u64 {
            let some = groups.iter().filter(|group| group.shuffled || !shuffled_only);
            some.map(Group::rows).sum()
        };
        let thread_rows = self.thread_rows(parts);
        meter.expect(Stage::Shuffle, rows(true));
        meter.expect(Stage::Blocks, rows(false));
        for mine in targets.chunk_by(|a, b| a.group == b.group) {
            let (at, group) = (mine[0].group, &groups[mine[0].group]);
            let (done, missing): (Vec<&Target>, Vec<&Target>) = mine.iter().partition(|target| self.is_there(target));
            done.iter().for_each(|target| meter.add(Stage::Blocks, target.rows.end - target.rows.start));
            if missing.is_empty() {
                continue;
            }
            if !group.shuffled {
                self.write_in_order(&missing, &stored, meter)?;
                continue;
            }
            let shuffle = Shuffle {
                stored: &stored,
                description: &self.description,
                rows: group.stretch.rows.clone(),
                seed: self.options.seed,
                thread_rows,
                threads: self.threads,
                work: &self.output.work,
                name: format!("group-{at:05}"),
            };
            self.write_shuffled(&missing, &shuffle, meter)?;
        }
        let part =
            |target: Target| Part { file: target.name, rows: target.rows.end - target.rows.start, role: target.role };
        Ok(targets.into_iter().map(part).collect())
    }

    fn write_in_order(&self, targets: &[&Target], stored: &Stored<'_>, meter: &Meter<'_>) -> Result<()> {
        targets.par_iter().with_max_len(1).try_for_each_init(
            || (Scratch::default(), Samples::new(&self.description)),
            |(scratch, samples), target| {
                self.write_file(target, meter, |push| stored.each(target.rows.clone(), scratch, samples, push))
            },
        )
    }

    fn write_shuffled(&self, targets: &[&Target], shuffle: &Shuffle<'_>, meter: &Meter<'_>) -> Result<()> {
        let shuffled = shuffle.spread(meter)?;
        targets.par_iter().with_max_len(1).try_for_each_init(
            || Samples::new(&self.description),
            |samples, target| self.write_file(target, meter, |push| shuffled.each(target.rows.clone(), samples, push)),
        )?;
        shuffled.remove()
    }

    /// Whether an earlier attempt has written this file.
    fn is_there(&self, target: &Target) -> bool {
        let file = BlockFile::open(&self.output.work.join(&target.name));
        file.is_ok_and(|file| {
            file.rows() == target.rows.end - target.rows.start && *file.description() == self.description
        })
    }

    fn write_file(
        &self,
        target: &Target,
        meter: &Meter<'_>,
        rows: impl FnOnce(&mut dyn FnMut(&Samples) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let path = self.output.work.join(&target.name);
        let options = blocks::Options { codec: self.options.codec, ..blocks::Options::default() };
        let mut writer = Box::new(Writer::create(&path, &self.description, options)?);
        rows(&mut |samples| {
            writer.push(samples)?;
            meter.add(Stage::Blocks, samples.len() as u64);
            Ok(())
        })?;
        writer.finish().map(|_| ())
    }
}

/// Columns in the order in which they are numbered.
fn largest_first(parts: &[Source], columns: usize) -> Vec<usize> {
    let total = |column: usize| parts.iter().map(|part| u64::from(part.contents.entries[column].distinct)).sum::<u64>();
    let mut order: Vec<usize> = (0..columns).collect();
    order.sort_by_cached_key(|&column| std::cmp::Reverse(total(column)));
    order
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::base::config::{MAX_LINE, OnBadRow};
    use crate::data::preprocess::ShuffleBy;

    #[test]
    fn what_is_told_to_come_is_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let row = |n: u32| {
            let values: String = (0..26).map(|column| format!("\t{:08x}", n % (column + 2))).collect();
            format!("1{}{values}\n", "\t7".repeat(13))
        };
        fs::write(&log, (0..1000).map(row).collect::<String>()).unwrap();
        let out = folder.path().join("out");
        let options = Options {
            shuffle: ShuffleBy::Total,
            threads: 1,
            ..Options::new(Recipe::CriteoTerabyte, vec![log.clone()], out)
        };
        let mut run = Run::new(&options, opened(&[log], options.max_line).unwrap()).unwrap();
        let work = run.output.work.clone();
        let there = || held(&work, "ids").unwrap() + held(&work, "run").unwrap();
        let most = AtomicU64::new(0);
        let watch = |_: Stage, _: u64, _: u64| {
            most.fetch_max(there(), Ordering::Relaxed);
        };
        let meter = Meter::new(&watch);
        let gather = Gather { inputs: &run.inputs, folder: &work, size: 1 << 16, threads: 1, meter: &meter };
        let parts = gather.run(&CriteoParser::new(OnBadRow::Fail, MAX_LINE)).unwrap();
        let days = run.days(&parts).unwrap();
        let told = run.to_come(&parts, &days).unwrap();
        run.number::<u32>(&parts, &meter).unwrap();
        assert_eq!(run.to_come(&parts, &days).unwrap(), told - there());
        run.write_blocks(&parts, &days, &meter).unwrap();
        // The only run has one bucket, and two lists of two numbers before its rows.
        assert_eq!(most.load(Ordering::Relaxed), told + 32);
    }

    #[test]
    fn a_copy_of_an_older_vocabulary_comes_too() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let row = |n: u32| format!("1{}{}\n", "\t7".repeat(13), format!("\t{:08x}", n % 50).repeat(26));
        fs::write(&log, (0..200).map(row).collect::<String>()).unwrap();
        let known = folder.path().join("known");
        let of = |out: PathBuf| Options { threads: 1, ..Options::new(Recipe::CriteoTerabyte, vec![log.clone()], out) };
        preprocess(&of(known.clone()), &|_, _, _| ()).unwrap();
        let options = Options { vocabulary: Some(known.clone()), grow: true, ..of(folder.path().join("out")) };
        let mut run = Run::new(&options, opened(&[log], options.max_line).unwrap()).unwrap();
        let (work, watch) = (run.output.work.clone(), |_: Stage, _: u64, _: u64| ());
        let meter = Meter::new(&watch);
        let gather = Gather { inputs: &run.inputs, folder: &work, size: 1 << 16, threads: 1, meter: &meter };
        let parts = gather.run(&CriteoParser::new(OnBadRow::Fail, MAX_LINE)).unwrap();
        let days = run.days(&parts).unwrap();
        let told = run.to_come(&parts, &days).unwrap();
        run.number::<u32>(&parts, &meter).unwrap();
        // 26 columns of 50 values each.
        let copies = held(&known, "vocabulary").unwrap();
        assert_eq!(copies, 26 * (32 + 4 * 50));
        assert_eq!((told, run.to_come(&parts, &days).unwrap()), (held(&work, "ids").unwrap() + copies, 0));
    }
}
