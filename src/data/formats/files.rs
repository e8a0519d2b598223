//! The [`Source`] that trains on a data set of any format.
//!
//! Tables of one role follow each other. Training, validation and test samples are those of their roles; where a data
//! set has no test samples, its validation samples stand in, and where it has neither, the last share of the training
//! samples. Where it has no validation samples, they may be the last share of what is then left for training.

mod stored;

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use super::dataset::learned;
use super::{Dataset, Format, Member, Reading, Rows, Table, bad, csv, open_for, refuse_described, scan};
use crate::base::config::DataConfig;
use crate::base::console::note;
use crate::base::{Error, Result};
use crate::data::blocks::Role;
use crate::data::fingerprint::of_files;
use crate::data::schema::feature::lost_ages;
use crate::data::schema::{Dense, Label, Scales};
use crate::data::tsv::first_part;
use crate::data::unseen::UnseenCounts;
use crate::data::wide::EXPECTED_MOST;
use crate::data::{
    Batch, Description, Growth, Labels, Lost, Numbering, Opening, Reader, Samples, Schema, Source, Split, TakeStored,
    UnseenValues, Vocabulary,
};

/// A data set to train on.
pub struct Files {
    description: Description,
    schema: Schema,
    /// The columns with what was learned of them: before the first reader is opened.
    scaled: OnceLock<Description>,
    /// What a trained model has learned of them.
    scales: Option<Scales>,
    /// Whether what it lacks is learned.
    begins: bool,
    cap: u64,
    learned: bool,
    /// Whether each sample must have a label.
    labels: Labels,
    /// Whether the user, Parquet or blocks name the columns; other formats number them, or have names of their own.
    named: bool,
    /// What described them.
    schema_text: Option<String>,
    vocabulary: Option<Vocabulary>,
    growth: Vec<Growth>,
    unseen: UnseenCounts,
    /// As [`Dataset::blanks`].
    blanks: Vec<Option<u32>>,
    numbering: Numbering,
    members: Vec<Member>,
    /// By split.
    fingerprints: [OnceLock<Option<String>>; 3],
    /// Whether samples for tests were told apart by whoever made the data, or lie in other files.
    own_tests: bool,
    train: Vec<Share>,
    validation: Vec<Share>,
    test: Vec<Share>,
}

/// Rows `first..first + rows` of a member.
#[derive(Debug, Clone, Copy)]
struct Share {
    member: usize,
    first: u64,
    rows: u64,
}

impl Files {
    /// Opens `data.path` (and `data.test_path`).
    ///
    /// # Errors
    /// As [`super::open`], and when test samples have other columns.
    pub fn open(config: &DataConfig, opening: Opening<'_>) -> Result<Self> {
        let (path, whole, labels) = (Path::new(&config.path), opening.whole, opening.labels);
        let (scales, begins) = (opening.scales.clone(), opening.begins);
        if !config.schema.is_empty() {
            let (dataset, text) = open_text(config, opening)?;
            let files = Self::over(dataset, None, config, whole)?;
            return Ok(Self { scales, begins, schema_text: Some(text), ..files });
        }
        let columns = opening.columns.as_ref();
        let reading = Reading { columns, labels, cap: config.rows_cap };
        let mut dataset = open_told(path, reading)?;
        dataset.growth = dataset.growth_since(&opening.numbering)?;
        let mut test = None;
        if !config.test_path.is_empty() {
            let (train, path) = (path, Path::new(&config.test_path));
            let mut other = open_told(path, reading)?;
            dataset.refuse_tests_of_training(train, &other)?;
            dataset.agree_on_rows(&mut other);
            if let Some(difference) = other.description.difference(&dataset.description) {
                let reason = format!("has other columns than {}: {difference}", config.path);
                return Err(bad(path, reason));
            }
            if let Some(column) = other.numbering()?.difference(&dataset.numbering()?) {
                let reason = format!(
                    "has other values in the rows of column {column} than {}: make both by one vocabulary, this one with \
                     `octorec preprocess` and its --vocabulary {}",
                    config.path,
                    super::folder(Path::new(&config.path)).display()
                );
                return Err(bad(path, reason));
            }
            test = Some(other.members);
        }
        Ok(Self { scales, begins, labels, ..Self::over(dataset, test, config, whole)? })
    }

    fn over(dataset: Dataset, test: Option<Vec<Member>>, config: &DataConfig, whole: bool) -> Result<Self> {
        let numbering = dataset.numbering()?;
        let Dataset { description, mut members, learned, vocabulary, growth, blanks, .. } = dataset;
        let share = |members: &[Member], from: usize, role: Option<Role>| -> Vec<Share> {
            let wanted = members.iter().enumerate().skip(from);
            wanted
                .filter(|(_, member)| role.is_none_or(|role| role == member.role))
                .map(|(at, member)| Share { member: at, first: 0, rows: member.table.rows() })
                .collect()
        };
        let mut train = share(&members, 0, (!whole).then_some(Role::Train));
        let mut validation = if whole { Vec::new() } else { share(&members, 0, Some(Role::Validation)) };
        let own = members.len();
        let mut tests = match test {
            Some(others) => {
                members.extend(others);
                share(&members, own, None)
            }
            None if whole => Vec::new(),
            None => share(&members, 0, Some(Role::Test)),
        };
        if tests.is_empty() {
            tests = std::mem::take(&mut validation);
        }
        let own_tests = !tests.is_empty();
        let total: u64 = train.iter().map(|share| share.rows).sum();
        let [mut held_out, last] = config.held_out();
        if own_tests {
            held_out = config.validation_fraction;
        } else if !whole {
            (train, tests) = cut(&train, first_part(total, last));
        }
        if config.validation_fraction > 0.0 && !whole {
            if !validation.is_empty() {
                let reason = "the data say which samples are for validation, and none is taken from those for training: \
                              leave it away";
                return Err(Error::config("data.validation_fraction (--validation-fraction)", reason));
            }
            (train, validation) = cut(&train, first_part(total, held_out));
        }
        let longest = members.iter().map(|member| member.table.longest());
        let longest = longest.reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| a.max(b)).collect()).unwrap_or_default();
        // One long bag among short ones would have every sample have its room.
        let lookups = |table: usize| longest.get(table).map_or(1, |&count| (count as usize).clamp(1, EXPECTED_MOST));
        let schema = description.schema(config.rows_cap).with_lookups(lookups).with_unseen_rows(vocabulary.as_ref());
        Ok(Self {
            unseen: UnseenCounts::of(&schema, vocabulary.as_ref()),
            schema,
            cap: config.rows_cap,
            description,
            scaled: OnceLock::new(),
            scales: None,
            begins: false,
            learned,
            labels: Labels::Optional,
            named: !config.schema.is_empty()
                || matches!(Format::detect(Path::new(&config.path)), Some(Format::Parquet | Format::Octorec)),
            schema_text: None,
            vocabulary,
            growth,
            blanks,
            numbering,
            members,
            fingerprints: Default::default(),
            own_tests,
            train,
            validation,
            test: tests,
        })
    }

    /// The columns with what was learned of them: known, or learned now.
    fn scaled(&self) -> Result<&Description> {
        if let Some(known) = self.scaled.get() {
            return Ok(known);
        }
        let mut description = self.description.clone();
        if description.dense.iter().any(Dense::learns) {
            let mut known = self.scales.clone().unwrap_or_default();
            let learns = self.scales.is_none() || self.begins;
            if learns && description.dense.iter().any(|column| column.learns() && !known.contains_key(&column.name)) {
                let rows = |share: &Share| (&*self.members[share.member].table, share.first..share.first + share.rows);
                let mut found = learned(&description, self.train.iter().map(rows))?;
                found.append(&mut known);
                known = found;
            }
            description.scaled(&known).map_err(|column| {
                let reason = format!(
                    "column {column} is standardised or an age, but the model that reads it has learned nothing of it: it was \
                     trained on other data"
                );
                bad(self.members.first().map_or(Path::new("data"), |member| member.table.path()), reason)
            })?;
            self.warn_of_lost_ages(&description)?;
        }
        Ok(self.scaled.get_or_init(|| description))
    }

    /// Warns, where training begins with another model's weights, of ages that have become nothing, as the first
    /// samples tell.
    fn warn_of_lost_ages(&self, description: &Description) -> Result<()> {
        const FIRST: u64 = 1 << 12;
        let Some(share) = self.train.first().filter(|_| self.begins) else { return Ok(()) };
        scan(&*self.members[share.member].table, share.first, share.first + share.rows.min(FIRST), |samples| {
            for column in lost_ages(description, samples) {
                note!(
                    "warning: column {column}: more than half of the first training samples are newer than all that the model \
                     first began with, and transform = \"log\" makes 0 of their ages: train from the start, without --init, \
                     and with transform = \"none\" or \"standardise\" where newer rows will come"
                );
            }
            Ok(())
        })
    }

    fn shares(&self, split: Split) -> &[Share] {
        match split {
            Split::Train => &self.train,
            Split::Validation => &self.validation,
            Split::Test => &self.test,
        }
    }
}

/// Opens described text, with all that a configuration says of it; with what describes it.
fn open_text(config: &DataConfig, opening: Opening<'_>) -> Result<(Dataset, String)> {
    let (path, test) = (Path::new(&config.path), Path::new(&config.test_path));
    let test = (!config.test_path.is_empty()).then_some(test);
    for path in [Some(path), test].into_iter().flatten() {
        refuse_described(path, opening.scales.is_some() && !opening.begins)?;
    }
    let choices = csv::Choices {
        known: opening.known.as_ref(),
        grows: opening.begins && opening.known.is_some(),
        kept: opening.schema.is_some(),
        unseen: opening.unseen,
        labels: opening.labels,
        vocab: config.vocab,
        rows_cap: config.rows_cap,
        on_bad_row: config.on_bad_row,
        max_line: config.max_line,
        rows: u64::MAX,
        test,
        held_out: config.held_out()[0],
    };
    let (schema, text) = csv::TextSchema::kept_or_read(opening.schema, Path::new(&config.schema))?;
    let mut progress = opening.progress;
    Ok((csv::open_as(path, schema, &choices, progress.as_mut())?, text))
}

/// Opens a data set whose files tell its format; nobody can name it here.
fn open_told(path: &Path, reading: Reading<'_>) -> Result<Dataset> {
    if path.exists() && Format::detect(path).is_none() {
        let known = Format::ALL.map(Format::name).join(", ");
        let reason = format!(
            "its files tell no format ({known}): name the folder or the file of a data set; text that is no log of Criteo's, a \
             file or a folder of them, is described with --schema FILE"
        );
        return Err(bad(path, reason));
    }
    open_for(path, None, None, reading)
}

/// The first `rows` rows, and the rest.
fn cut(shares: &[Share], mut rows: u64) -> (Vec<Share>, Vec<Share>) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for &share in shares {
        let here = rows.min(share.rows);
        rows -= here;
        before.extend((here > 0).then_some(Share { rows: here, ..share }));
        let rest = share.rows - here;
        after.extend((rest > 0).then_some(Share { first: share.first + here, rows: rest, ..share }));
    }
    (before, after)
}

impl Source for Files {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, split: Split) -> Option<u64> {
        Some(self.shares(split).iter().map(|share| share.rows).sum())
    }

    fn numbers_own_values(&self) -> bool {
        self.learned
    }

    fn vocabulary(&self) -> Option<&Vocabulary> {
        self.vocabulary.as_ref()
    }

    fn numbering(&self) -> Option<&Numbering> {
        Some(&self.numbering)
    }

    fn skipped_rows(&self) -> u64 {
        self.members.iter().map(|member| member.table.skipped_rows()).sum()
    }

    fn skipped_rows_beside(&self, split: Split) -> u64 {
        // A split has one share of a member at most.
        self.shares(split).iter().map(|share| self.members[share.member].table.skipped_rows()).sum()
    }

    fn first_skipped(&self) -> Option<&str> {
        self.members.iter().find_map(|member| member.table.first_skipped())
    }

    fn dense_columns(&self) -> Vec<(String, String)> {
        self.description.features().iter().filter(|_| self.named).map(Dense::title).collect()
    }

    fn label(&self) -> Option<&Label> {
        Some(&self.description.label).filter(|_| self.schema_text.is_none())
    }

    fn weight(&self) -> Option<&str> {
        self.description.weight.as_deref()
    }

    fn has_own_tests(&self) -> bool {
        self.own_tests
    }

    fn schema_text(&self) -> Option<&str> {
        self.schema_text.as_deref()
    }

    fn fingerprint(&self, split: Split) -> Option<String> {
        let files = || self.shares(split).iter().map(|share| self.members[share.member].table.fingerprint());
        self.fingerprints[split as usize].get_or_init(|| of_files(files())).clone()
    }

    fn scales(&self) -> Result<Scales> {
        let columns = self.scaled()?.dense.iter();
        Ok(columns.filter_map(|column| Some((column.name.clone(), column.scale?))).collect())
    }

    fn unseen_values(&self) -> Vec<UnseenValues> {
        let lost = self.lost();
        self.unseen.told(|column| lost.get(column).map_or(0, |lost| lost.values))
    }

    fn lost(&self) -> Vec<Lost> {
        let all = self.members.iter().map(|member| member.table.lost());
        all.reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| a.and(b)).collect()).unwrap_or_default()
    }

    fn growth(&self) -> &[Growth] {
        &self.growth
    }

    fn is_seekable(&self, split: Split) -> bool {
        self.shares(split).iter().all(|share| self.members[share.member].table.is_seekable())
    }

    fn each_stored(&self, split: Split, range: Range<u64>, take: &mut TakeStored<'_>) -> Result<bool> {
        self.hand_stored(split, range, take).map(|()| true)
    }

    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        let shares = self.shares(split);
        let total: u64 = shares.iter().map(|share| share.rows).sum();
        if start > total {
            let path = self.members.first().map_or(Path::new("data"), |member| member.table.path());
            return Err(bad(path, format!("sample {start} is asked for, but this part has {total} samples")));
        }
        let (_, left) = cut(shares, start);
        let scratch = Samples::new(&self.description);
        Ok(Box::new(FilesReader {
            files: self,
            description: self.scaled()?,
            left: left.into_iter().collect(),
            open: None,
            scratch,
            starts: Vec::new(),
            closed_bytes: 0,
        }))
    }
}

struct FilesReader<'a> {
    files: &'a Files,
    description: &'a Description,
    /// What is still to be read, that of `open` first.
    left: VecDeque<Share>,
    open: Option<Box<dyn Rows + 'a>>,
    scratch: Samples,
    /// Where each bag's new rows begin.
    starts: Vec<usize>,
    /// Bytes that were read of shares that are done.
    closed_bytes: u64,
}

impl Reader for FilesReader<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        let files = self.files;
        self.starts.clear();
        self.starts.extend(batch.bags.iter().map(|bag| bag.rows.len()));
        let mut read = 0;
        while read < limit
            && let Some(share) = self.left.front_mut()
        {
            if self.open.is_none() {
                self.open = Some(files.members[share.member].table.open(share.first)?);
            }
            let rows = self.open.as_mut().expect("opened above");
            let wanted = usize::try_from(share.rows).unwrap_or(usize::MAX).min(limit - read);
            let (before, table) = (batch.labels.len(), &*files.members[share.member].table);
            let found = rows.read_batch(batch, wanted, (&mut self.scratch, self.description))?;
            if found < wanted {
                return Err(shrunk(table));
            }
            if files.labels == Labels::Required && batch.labels[before..].iter().any(|label| label.is_nan()) {
                let reason =
                    "has samples without a label, which `octorec predict` alone reads: make it of text that has one";
                return Err(bad(table.path(), reason));
            }
            share.first += found as u64;
            share.rows -= found as u64;
            if share.rows == 0 {
                self.close();
            }
            read += found;
        }
        if files.cap > 0 {
            let columns = self.description.categorical.iter().enumerate();
            for ((bag, &start), (table, column)) in batch.bags.iter_mut().zip(&self.starts).zip(columns) {
                // Taken modulo the limit, a number that no row of the data has would be one like all others.
                bag.check_rows(start, table, &column.name, column.rows)?;
                limit_rows(&mut bag.rows[start..], files.cap);
            }
        }
        files.unseen.count(&batch.bags, &self.starts, 0);
        Ok(read)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let mut skipped = 0;
        while skipped < count
            && let Some(share) = self.left.front_mut()
        {
            let wanted = share.rows.min(count - skipped);
            // A file that is left whole need not be opened.
            if let Some(rows) = &mut self.open
                && wanted < share.rows
                && rows.skip(wanted)? < wanted
            {
                return Err(shrunk(&*self.files.members[share.member].table));
            }
            share.first += wanted;
            share.rows -= wanted;
            if share.rows == 0 {
                self.close();
            }
            skipped += wanted;
        }
        Ok(skipped)
    }

    fn bytes_read(&self) -> u64 {
        self.closed_bytes + self.open.as_ref().map_or(0, |rows| rows.bytes_read())
    }
}

impl FilesReader<'_> {
    /// Ends the first of the shares.
    fn close(&mut self) {
        self.left.pop_front();
        self.closed_bytes += self.open.take().map_or(0, |rows| rows.bytes_read());
    }
}

fn shrunk(table: &dyn Table) -> Error {
    bad(table.path(), "ends before the rows that it had when it was opened")
}

/// Takes row numbers modulo `cap`, as the reference does at load (`max-ind-range`).
pub(super) fn limit_rows(rows: &mut [u32], cap: u64) {
    let Ok(cap) = u32::try_from(cap) else { return };
    // The maximum first: it vectorises, and often it is all that is needed; a division takes as long as 20 comparisons.
    if rows.iter().copied().max().unwrap_or(0) >= cap {
        rows.iter_mut().for_each(|row| *row %= cap);
    }
}
