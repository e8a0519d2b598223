//! The [`Source`] that trains on a data set of any format.
//!
//! Tables of one role follow each other. Training, validation and test samples are those of their roles; where a data
//! set has no test samples, its validation samples stand in, and where it has neither, the last share of the training
//! samples. Where it has no validation samples, they may be the last share of what is then left for training.

mod reader;
mod stored;

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use reader::FilesReader;

use super::dataset::learned;
use super::{
    Dataset, Format, Like, Member, Reading, SCHEMA, Table, bad, csv, open_for, parquet, refuse_described, scan,
};
use crate::base::config::DataConfig;
use crate::base::console::note;
use crate::base::{Error, Result};
use crate::data::fingerprint::of_tables;
use crate::data::schema::feature::lost_ages;
use crate::data::schema::{Dense, Scales};
use crate::data::source::first_part;
use crate::data::unseen::UnseenCounts;
use crate::data::wide::EXPECTED_MOST;
use crate::data::{
    About, Description, Labels, Lost, Numbering, Opening, Reader, Schema, SizedBy, Source, Split, TakeStored,
    UnseenValues, tsv,
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
    /// Whether each sample must have a label.
    labels: Labels,
    about: About,
    unseen: UnseenCounts,
    /// As [`Dataset::blanks`].
    blanks: Vec<Option<u32>>,
    members: Vec<Member>,
    /// By split.
    fingerprints: [OnceLock<Option<String>>; 3],
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
            let about = About { dense_columns: titles(&dataset), schema_text: Some(text), ..About::default() };
            return Ok(Self { scales, begins, ..Self::over(dataset, None, config, whole, about)? });
        }
        let columns = opening.columns.as_ref();
        let reading = Reading { columns, labels, cap: config.rows_cap, like: None };
        let format = Format::detect(path);
        // The tables of a trained model have its rows.
        let is_told = columns.is_some_and(|trained| !trained.names.is_empty());
        let tells_itself = format == Some(Format::Parquet) && !is_told;
        let mut dataset = open_told(path, reading)?;
        dataset.growth = dataset.growth_since(&opening.numbering)?;
        let (mut test, mut numbering) = (None, Numbering::default());
        if !config.test_path.is_empty() {
            let (train, path) = (path, Path::new(&config.test_path));
            let Dataset { description, sized_by_values, .. } = &dataset;
            let like = Like { path: train, description, sized_by_values: *sized_by_values };
            let mut other = open_told(path, Reading { like: tells_itself.then_some(like), ..reading })?;
            dataset.refuse_tests_of_training(train, &other)?;
            dataset.agree_on_rows(&mut other);
            if let Some(difference) = other.description.difference(&dataset.description) {
                let reason = format!("has other columns than {}: {difference}", config.path);
                return Err(bad(path, reason));
            }
            numbering = other.numbering()?;
            if let Some(column) = numbering.difference(&dataset.numbering()?) {
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
        // Other formats number their columns, or have names of their own.
        let is_named = matches!(format, Some(Format::Parquet | Format::Octorec));
        let dense_columns = if is_named { titles(&dataset) } else { Vec::new() };
        let sized_by = tells_itself.then(|| match dataset.sized_by_values {
            true => SizedBy::Greatest,
            false => SizedBy::File(super::folder(path).join(SCHEMA)),
        });
        let label = Some(dataset.description.label.clone());
        // Of columns of which the files for training tell nothing, those for tests may.
        let about = About { dense_columns, label, numbering, sized_by, ..About::default() };
        Ok(Self { scales, begins, labels, ..Self::over(dataset, test, config, whole, about)? })
    }

    /// Opens `data.path` (and `data.test_path`), both Criteo's text. `model_rows` are the rows of the model's tables,
    /// or nothing where they follow from the data.
    ///
    /// # Errors
    /// As [`super::open`], and [`Error::Config`] when hashing has no number of rows.
    pub fn open_criteo(config: &DataConfig, model_rows: &[u64], opening: Opening<'_>) -> Result<Self> {
        let whole = opening.whole;
        let dataset = tsv::open(config, model_rows, opening)?;
        // Numbers of rows have it already: of values, it is taken before these are numbered.
        let config = DataConfig { rows_cap: 0, ..config.clone() };
        Self::over(dataset, None, &config, whole, About::default())
    }

    /// The splits of a data set, and of further samples for tests; `about` says of its columns what their format tells.
    fn over(
        dataset: Dataset,
        test: Option<Vec<Member>>,
        config: &DataConfig,
        whole: bool,
        about: About,
    ) -> Result<Self> {
        let names = dataset.description.categorical.iter().map(|column| &*column.name);
        let numbering = match &dataset.vocabulary {
            Some(vocabulary) => Numbering::by(vocabulary, names, config.rows_cap),
            None => dataset.numbering()?.or(&about.numbering),
        };
        let Dataset { description, mut members, learned, vocabulary, growth, blanks, .. } = dataset;
        let share = |members: &[Member], from: usize, role: Option<Split>| -> Vec<Share> {
            let wanted = members.iter().enumerate().skip(from);
            wanted
                .filter(|(_, member)| role.is_none_or(|role| role == member.role))
                .map(|(at, member)| Share { member: at, first: 0, rows: member.table.rows() })
                .collect()
        };
        let mut train = share(&members, 0, (!whole).then_some(Split::Train));
        let mut validation = if whole { Vec::new() } else { share(&members, 0, Some(Split::Validation)) };
        let own = members.len();
        let mut tests = match test {
            Some(others) => {
                members.extend(others);
                share(&members, own, None)
            }
            None if whole => Vec::new(),
            None => share(&members, 0, Some(Split::Test)),
        };
        if tests.is_empty() {
            tests = std::mem::take(&mut validation);
        }
        let has_own_tests = !tests.is_empty();
        let total: u64 = train.iter().map(|share| share.rows).sum();
        let [mut held_out, last] = config.held_out();
        if has_own_tests {
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
        let schema = description.schema(config.rows_cap).with_lookups(lookups).with_unseen_rows(vocabulary.as_deref());
        Ok(Self {
            unseen: UnseenCounts::of(&schema, vocabulary.as_deref()),
            schema,
            cap: config.rows_cap,
            scaled: OnceLock::new(),
            scales: None,
            begins: false,
            labels: Labels::Optional,
            about: About {
                vocabulary,
                numbers_own_values: learned,
                growth,
                numbering,
                weight: description.weight.clone(),
                has_own_tests,
                ..about
            },
            description,
            blanks,
            members,
            fingerprints: Default::default(),
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

/// Its dense columns, each with how its numbers are transformed.
fn titles(dataset: &Dataset) -> Vec<(String, String)> {
    dataset.description.features().iter().map(Dense::title).collect()
}

/// Opens a data set whose files tell its format; nobody can name it here.
fn open_told(path: &Path, reading: Reading<'_>) -> Result<Dataset> {
    if path.exists() && Format::detect(path).is_none() {
        if path.is_dir() {
            parquet::refuse_below(path, |_| false)?;
        }
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

    fn about(&self) -> &About {
        &self.about
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

    fn fingerprint(&self, split: Split) -> Option<String> {
        let tables = || -> Vec<&dyn Table> {
            self.shares(split).iter().map(|share| &*self.members[share.member].table).collect()
        };
        self.fingerprints[split as usize].get_or_init(|| of_tables(&tables())).clone()
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
        Ok(Box::new(FilesReader::new(self, self.scaled()?, left)))
    }
}

/// Takes row numbers modulo `cap`, as the reference does at load (`max-ind-range`).
pub(super) fn limit_rows(rows: &mut [u32], cap: u64) {
    let Ok(cap) = u32::try_from(cap) else { return };
    // The maximum first: it vectorises, and often it is all that is needed; a division takes as long as 20 comparisons.
    if rows.iter().copied().max().unwrap_or(0) >= cap {
        rows.iter_mut().for_each(|row| *row %= cap);
    }
}
