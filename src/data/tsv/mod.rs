//! Criteo's raw layout: label, 13 integers and 26 hexadecimal categories a line, separated by tabs, plain or gzip.
//!
//! The file is streamed and never held. Opening it makes one pass that counts rows and, where ids follow first
//! appearance, learns the vocabulary; reading is a second pass. Follows facebookresearch/dlrm, `data_utils.py`: blank
//! is 0, categories are taken modulo `rows_cap` before they get ids, dense features are ln(x + 1) with negatives as 0.
//! The split is by position: test samples are the last `test_fraction` of the good rows, or a second file, validation
//! samples the last `validation_fraction` before them.

mod arriving;
mod columns;
mod compressed;
mod encoding;
mod fault;
mod layout;
mod lines;
mod row;
mod scan;
mod stored;
mod swar;
mod vocabulary;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub(super) use arriving::Arriving;
pub use columns::{BadLine, Columns, Tally, line_at, line_ends, most_rows};
pub(super) use compressed::{Counted, decoded, is_parquet_at, packed, unreadable};
pub use encoding::OnUnseen;
use encoding::{Encoding, NO_ROW, cap};
pub use fault::Fault;
pub(super) use fault::{SHOWN, shown};
pub use layout::{Labels, Layout};
pub use lines::{LONGEST, Line, Lines, MARK, MOST_CRS, Place, without_end, without_mark};
pub use row::Row;
pub use scan::{GoodRows, Progress};
use scan::{Scan, Task, scan};
pub(super) use vocabulary::FirstSeen;
pub use vocabulary::{Growth, Vocabulary};

use super::dense::log_count;
use super::fingerprint::{of_files, of_text};
use super::schema::{Scales, TrainedColumns};
use super::unseen::{Lost, LostCounts, UnseenCounts, UnseenValues};
use super::{Batch, Numbering, Reader, Schema, Source, Split, TakeStored};
use crate::base::config::{DataConfig, OnBadRow, Vocab};
use crate::base::input::Found;
use crate::base::{Error, Result};

/// How a data set is opened, beyond its configuration.
pub struct Opening<'a> {
    /// The vocabulary of a trained model; without it one is learned, where `data.vocab` asks for one.
    pub known: Option<Vocabulary>,
    /// Whether rows need a label.
    pub labels: Labels,
    /// What a value of a training sample does that `known` lacks; one of a test sample is left out in any case.
    pub unseen: OnUnseen,
    /// Whether all rows of a data set are one split for training, in the order of its files, whatever they are for.
    pub whole: bool,
    /// What a trained model has learned of dense columns; without it, it is learned from the training samples.
    pub scales: Option<Scales>,
    /// Whether what `scales` lacks is learned, too, and values of training samples are added to `known`: where training
    /// begins with that model's weights.
    pub begins: bool,
    /// The text of a trained model's schema; without it, that of the file that `data.schema` names.
    pub schema: Option<String>,
    /// The columns that a trained model reads, for files that tell their columns by name.
    pub columns: Option<TrainedColumns>,
    /// By which files of values the rows of the model are numbered that training begins with, or that data are compared
    /// with: values that data have more in theirs have rows behind those.
    pub numbering: Numbering,
    /// Told now and then how many bytes of how many the opening pass has read.
    pub progress: Box<Progress<'a>>,
}

impl Default for Opening<'_> {
    /// To learn from, with rows that all have labels, and nobody who is told.
    fn default() -> Self {
        Self {
            known: None,
            labels: Labels::default(),
            unseen: OnUnseen::default(),
            whole: false,
            scales: None,
            begins: false,
            schema: None,
            columns: None,
            numbering: Numbering::default(),
            progress: Box::new(|_, _| {}),
        }
    }
}

/// A tab-separated data set.
pub struct Tsv {
    layout: Layout,
    on_bad_row: OnBadRow,
    encoding: Encoding,
    /// What a value without a row does, by split.
    on_unseen: [OnUnseen; 3],
    growth: Vec<Growth>,
    schema: Schema,
    train: Part,
    validation: Part,
    test: Part,
    skipped: u64,
    first_skipped: Option<String>,
    /// Whether rows were numbered while it was opened.
    learned: bool,
    /// By split.
    fingerprints: [OnceLock<Option<String>>; 3],
    unseen: UnseenCounts,
    /// What readers have met that look-ups do not show, by column.
    lost: Vec<LostCounts>,
}

/// The samples of one split: some good rows of a file.
#[derive(Clone)]
struct Part {
    path: PathBuf,
    /// The file that the pass went through.
    found: Found,
    scan: Scan,
    /// Good rows of the file before the first sample.
    first: u64,
    samples: u64,
}

impl Part {
    /// All good rows of a file.
    const fn whole(path: PathBuf, found: Found, scan: Scan) -> Self {
        Self { path, found, first: 0, samples: scan.rows, scan }
    }

    /// The first `samples` of all, and the last ones.
    fn split(self, samples: u64) -> (Self, Self) {
        let samples = samples.min(self.samples);
        let last = Self { first: self.first + samples, samples: self.samples - samples, ..self.clone() };
        (Self { samples, ..self }, last)
    }
}

impl Tsv {
    /// Opens `data.path` (and `data.test_path`), with one pass over each. `model_rows` are the rows of the model's
    /// tables, or nothing where they follow from the data.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::BadFile`] and [`Error::BadRow`] for what is wrong with the files, [`Error::Config`] when
    /// hashing has no number of rows, [`Error::Interrupted`].
    pub fn open(config: &DataConfig, model_rows: &[u64], opening: Opening<'_>) -> Result<Self> {
        let layout = Layout::criteo(opening.labels, config.max_line);
        let mut progress = opening.progress;
        let path = PathBuf::from(&config.path);
        let test_path = (!config.test_path.is_empty()).then(|| PathBuf::from(&config.test_path));
        let found = Found::at(&path)?;
        let found_test = test_path.as_deref().map(Found::at).transpose()?;
        let sizes = (found.bytes(), found_test.as_ref().map_or(0, Found::bytes));
        let total = sizes.0 + sizes.1;
        let mut pass = |path: &Path, task: Task<'_>, done: u64| {
            let mut rows = GoodRows::open(path, &layout, config.on_bad_row)?;
            scan(&mut rows, task, (done, total), progress.as_mut())
        };
        let cap = cap(config.rows_cap);
        let [held_out, tests] = config.held_out();
        let learned = opening.known.is_none() && config.vocab != Vocab::Hash;
        let train = |first: &Scan| first_part(first.rows, held_out);
        // Values that a model's vocabulary lacks are no fault of samples that it is judged by.
        let of_tests = if opening.known.is_some() { OnUnseen::EmptyBag } else { opening.unseen };
        let mut on_unseen = [opening.unseen, of_tests, of_tests];
        let mut growth = Vec::new();

        let (encoding, first, second) = match (opening.known, config.vocab) {
            (None, Vocab::All) => {
                let mut vocabulary = Vocabulary::empty(layout.categorical);
                let mut learn = |path: &Path, done| {
                    let vocabulary = &mut vocabulary;
                    pass(path, Task::Learn { vocabulary, cap, first_seen: None }, done)
                };
                let first = learn(&path, 0)?;
                let second = test_path.as_deref().map(|path| learn(path, sizes.0)).transpose()?;
                (Encoding::Vocabulary { vocabulary, cap }, first, second)
            }
            (known, vocab) if opening.begins && known.is_some() || vocab == Vocab::Train && known.is_none() => {
                let grows = known.is_some();
                let vocabulary = known.map(|known| checked(known, &layout)).transpose()?;
                let mut vocabulary = vocabulary.unwrap_or_else(|| Vocabulary::empty(layout.categorical));
                let mut seen = FirstSeen::of(vocabulary.columns().iter().map(Vec::len).collect());
                let task = Task::Learn { vocabulary: &mut vocabulary, cap, first_seen: Some(&mut seen) };
                let first = pass(&path, task, 0)?;
                let kept = seen.kept(train(&first));
                vocabulary.keep_first(&kept);
                if grows {
                    growth = seen.growth((1..).map(|n| format!("C{n}")), &kept, vocabulary.unseen_row());
                } else {
                    vocabulary = vocabulary.with_unseen_row(true);
                }
                let encoding = Encoding::Vocabulary { vocabulary, cap };
                let check = |path: &Path| pass(path, Task::Check(&encoding, of_tests), sizes.0);
                let second = test_path.as_deref().map(check).transpose()?;
                (encoding, first, second)
            }
            (known, _) => {
                let encoding = match known {
                    Some(vocabulary) => Encoding::Vocabulary { vocabulary: checked(vocabulary, &layout)?, cap },
                    None => Encoding::modulo(layout.categorical, config.rows_cap, model_rows)?,
                };
                // Nothing is learned here. Where a malformed row ends the run anyway, lines need only be counted.
                let task = |unseen| match config.on_bad_row {
                    OnBadRow::Fail => Task::Count,
                    OnBadRow::Skip => Task::Check(&encoding, unseen),
                };
                // Which samples of a single file are for tests is known when all are counted.
                let mut first = pass(&path, task(on_unseen[usize::from(held_out > 0.0)]), 0)?;
                if on_unseen[0] == OnUnseen::Reject && first.first_unseen.is_some_and(|row| row < train(&first)) {
                    // Test samples of a file of their own are judged as ever.
                    let cut = if test_path.is_some() { Split::Test as usize } else { Split::ALL.len() };
                    on_unseen[..cut].fill(OnUnseen::Reject);
                    first = pass(&path, task(OnUnseen::Reject), 0)?;
                }
                let second = test_path.as_deref().map(|path| pass(path, task(of_tests), sizes.0)).transpose()?;
                (encoding, first, second)
            }
        };

        let skipped = first.skipped + second.as_ref().map_or(0, |second| second.skipped);
        let rows = first.rows;
        let told = [Some(&first), second.as_ref()].into_iter().flatten().find_map(|scan| scan.first_skipped.clone());
        let whole = Part::whole(path, found, first);
        let (before, test) = match (test_path.zip(found_test), second) {
            (Some((path, found)), Some(scan)) => (whole, Part::whole(path, found, scan)),
            _ => whole.split(first_part(rows, tests)),
        };
        let (train, validation) = before.split(first_part(rows, held_out));
        let schema = Schema::criteo(layout.dense, &encoding.rows()).with_unseen_rows(encoding.vocabulary());
        Ok(Self {
            on_bad_row: config.on_bad_row,
            unseen: UnseenCounts::of(&schema, encoding.vocabulary()),
            lost: (0..layout.categorical).map(|_| LostCounts::default()).collect(),
            layout,
            encoding,
            on_unseen,
            growth,
            schema,
            train,
            validation,
            test,
            skipped,
            first_skipped: told,
            learned,
            fingerprints: Default::default(),
        })
    }

    fn part(&self, split: Split) -> &Part {
        match split {
            Split::Train => &self.train,
            Split::Validation => &self.validation,
            Split::Test => &self.test,
        }
    }

    /// Counts a value of this column that has no row.
    fn leave_out(&self, column: usize) {
        self.lost[column].add(Lost { values: 1, emptied: 1, ..Lost::default() });
    }

    /// A reader whose first sample is number `start` of the split.
    fn reader(&self, split: Split, start: u64) -> Result<TsvReader<'_>> {
        let part = self.part(split);
        if start > part.samples {
            let reason = format!("sample {start} is asked for, but this part has {} samples", part.samples);
            return Err(Error::bad_file(part.path.clone(), reason));
        }
        part.found.check(&part.path)?;
        let (place, mut at) = part.scan.place_before(part.first + start);
        let rows = GoodRows::open_at(&part.path, &self.layout, self.on_bad_row, place)?;
        let on_unseen = self.on_unseen[split as usize];
        let mut reader = TsvReader { tsv: self, part, rows, on_unseen, left: part.samples - start, before: Vec::new() };
        if reader.left == 0 {
            return Ok(reader);
        }
        while at < part.first + start {
            if at.is_multiple_of(1 << 13) && crate::base::interrupt::requested() {
                return Err(Error::Interrupted);
            }
            if !reader.rows.step_over(&self.encoding, on_unseen)? {
                return Err(reader.changed(at));
            }
            at += 1;
        }
        Ok(reader)
    }
}

/// Samples of `rows` before the last `fraction` of them: floor(rows x (1 - fraction)), where the product's own rounding
/// does not count.
pub(super) fn first_part(rows: u64, fraction: f64) -> u64 {
    let exact = rows as f64 * (1.0 - fraction);
    let nearest = exact.round();
    // A few units in the last place: 0.71 x 100 is 71, whatever the product says.
    let first = if (exact - nearest).abs() <= 4.0 * f64::EPSILON * exact { nearest } else { exact.floor() };
    (first as u64).min(rows)
}

fn checked(vocabulary: Vocabulary, layout: &Layout) -> Result<Vocabulary> {
    if vocabulary.columns().len() == layout.categorical {
        return Ok(vocabulary);
    }
    Err(Error::config(
        "vocabulary",
        format!(
            "it has {} columns, the data has {}: it belongs to a model of other data",
            vocabulary.columns().len(),
            layout.categorical
        ),
    ))
}

impl Source for Tsv {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, split: Split) -> Option<u64> {
        Some(self.part(split).samples)
    }

    fn is_seekable(&self, split: Split) -> bool {
        self.part(split).scan.is_seekable()
    }

    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(self.reader(split, start)?))
    }

    fn each_stored(&self, split: Split, range: Range<u64>, take: &mut TakeStored<'_>) -> Result<bool> {
        self.hand_stored(split, range, take).map(|()| true)
    }

    fn numbers_own_values(&self) -> bool {
        self.learned
    }

    fn vocabulary(&self) -> Option<&Vocabulary> {
        self.encoding.vocabulary()
    }

    fn fingerprint(&self, split: Split) -> Option<String> {
        let of_part = || of_files([of_text(&self.part(split).path)].into_iter());
        self.fingerprints[split as usize].get_or_init(of_part).clone()
    }

    /// Malformed rows of all files, each counted once. They are all found while the source is opened.
    fn skipped_rows(&self) -> u64 {
        self.skipped
    }

    fn skipped_rows_beside(&self, split: Split) -> u64 {
        self.part(split).scan.skipped
    }

    fn first_skipped(&self) -> Option<&str> {
        self.first_skipped.as_deref()
    }

    fn unseen_values(&self) -> Vec<UnseenValues> {
        self.unseen.told(|column| self.lost[column].told(false).values)
    }

    fn lost(&self) -> Vec<Lost> {
        let columns = self.lost.iter().enumerate();
        columns.map(|(at, lost)| lost.told(self.encoding.tells_blanks(at))).collect()
    }

    fn growth(&self) -> &[Growth] {
        &self.growth
    }
}

/// Appends a row whose categories are encoded to a minibatch; `leave_out` is told the columns of those without a row.
fn append(row: &Row, batch: &mut Batch, mut leave_out: impl FnMut(usize)) {
    batch.labels.push(row.label);
    batch.dense.extend(row.integers.iter().map(|&value| log_count(value)));
    for (column, (bag, &id)) in batch.bags.iter_mut().zip(&row.categories).enumerate() {
        if id == NO_ROW {
            leave_out(column);
        } else {
            bag.rows.push(id);
        }
        bag.close();
    }
}

struct TsvReader<'a> {
    tsv: &'a Tsv,
    part: &'a Part,
    rows: GoodRows<'a>,
    /// What a value without a row does.
    on_unseen: OnUnseen,
    left: u64,
    /// Look-ups of each bag before the latest read.
    before: Vec<usize>,
}

impl TsvReader<'_> {
    /// Reads the next of the samples that are left.
    #[inline]
    fn next_row(&mut self) -> Result<()> {
        self.next_row_as(|_| ())
    }

    /// The same, where `raw` is told each row's categories as they stand in the file.
    #[inline]
    fn next_row_as(&mut self, mut raw: impl FnMut(&[u32])) -> Result<()> {
        let (encoding, on_unseen) = (&self.tsv.encoding, self.on_unseen);
        let found = self.rows.next_row_by(|categories| {
            raw(categories);
            encoding.encode(categories, on_unseen)
        });
        if !found? {
            return Err(self.changed(self.part.first + self.part.samples - self.left));
        }
        self.left -= 1;
        Ok(())
    }

    fn changed(&self, found: u64) -> Error {
        let reason = format!(
            "the file has changed: it had {} usable rows when it was opened and ends after {found} now",
            self.part.scan.rows
        );
        Error::bad_file(self.part.path.clone(), reason)
    }
}

impl Reader for TsvReader<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(limit);
        self.before.clear();
        self.before.extend(batch.bags.iter().map(|bag| bag.rows.len()));
        for _ in 0..wanted {
            self.next_row()?;
            append(&self.rows.row, batch, |column| self.tsv.leave_out(column));
        }
        self.tsv.unseen.count(&batch.bags, &self.before, 0);
        Ok(wanted)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min(self.left);
        for _ in 0..count {
            if !self.rows.step_over(&self.tsv.encoding, self.on_unseen)? {
                return Err(self.changed(self.part.first + self.part.samples - self.left));
            }
            self.left -= 1;
        }
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        self.rows.lines.progress().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_takes_the_last_part() {
        assert_eq!(first_part(80_000, 0.2), 64_000);
        assert_eq!(first_part(100, 0.29), 71);
        assert_eq!(first_part(10, 0.25), 7);
        assert_eq!(first_part(1, 0.5), 0);
        assert_eq!(first_part(7, 0.0), 7);
        assert_eq!(first_part(4_195_197_692, 0.0), 4_195_197_692);
    }
}
