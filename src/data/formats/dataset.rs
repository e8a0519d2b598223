//! A data set of any format on disk.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::{
    Format, SCHEMA, Table, bad, csv, fae, hugectr, mlperf, nvidia, octorec, parquet, refuse_described, scan, torchrec,
};
use crate::base::config::OnBadRow;
use crate::base::input::Found;
use crate::base::{Error, Result};
use crate::data::hot::HotInputs;
use crate::data::schema::feature::Learner;
use crate::data::schema::{Dense, Scales, TrainedColumns};
use crate::data::text::{LONGEST, is_parquet_at};
use crate::data::unfinished::refuse_moving;
use crate::data::{Description, Growth, Labels, Numbering, Split, Vocabulary, tested_on_training};
use crate::memory::file_id;

/// A data set on disk.
pub struct Dataset {
    /// The columns of all tables.
    pub description: Description,
    /// Its rows, by what they are for.
    pub members: Vec<Member>,
    /// Whether row numbers were given while the files were opened: other files then have other numbers.
    pub learned: bool,
    /// Whether tables have as many rows as the values of these files ask for: other files of the same columns may ask
    /// for more.
    pub sized_by_values: bool,
    /// The values behind row numbers, where they were numbered by first appearance, now or for an earlier model.
    pub vocabulary: Option<Arc<Vocabulary>>,
    /// Which categorical columns have their rows by it, be it that these files have no value of theirs.
    pub numbered: Vec<bool>,
    /// What an earlier model's vocabulary has grown by, column by column; nothing where it could not.
    pub growth: Vec<Growth>,
    /// The row of a blank field of each categorical column of text, where that is no other value's; nothing at all of
    /// other formats.
    pub blanks: Vec<Option<u32>>,
    /// The files with the values behind row numbers that lie beside octorec's blocks, each with its table's rows.
    pub vocabularies: Vec<(PathBuf, u64)>,
    /// Its hot rows, and which training samples look up no others, where its files tell.
    pub hot: Option<HotInputs>,
    /// Further files that its rows and its hot rows follow from.
    pub(in crate::data) beside: Vec<PathBuf>,
    /// What describes it, where it is text.
    pub schema_text: Option<String>,
}

/// Some rows of a data set.
pub struct Member {
    /// What they are for.
    pub role: Split,
    /// The rows.
    pub table: Box<dyn Table>,
}

impl Dataset {
    pub(in crate::data) fn new(description: Description, members: Vec<Member>) -> Self {
        Self {
            description,
            members,
            learned: false,
            sized_by_values: false,
            vocabulary: None,
            numbered: Vec::new(),
            growth: Vec::new(),
            blanks: Vec::new(),
            vocabularies: Vec::new(),
            hot: None,
            beside: Vec::new(),
            schema_text: None,
        }
    }

    /// All files that its rows, their values and its hot rows are read from, as they are now.
    ///
    /// # Errors
    /// When one of them is gone.
    pub fn found(&self) -> Result<BTreeMap<PathBuf, Found>> {
        let of_rows = self.members.iter().flat_map(|member| member.table.files());
        // Of values that are missing, whoever needs them tells.
        let values = self.vocabularies.iter().map(|(path, _)| path).filter(|path| path.is_file());
        let beside = values.chain(&self.beside).map(PathBuf::as_path);
        let all: BTreeSet<&Path> = of_rows.chain(beside).collect();
        all.into_iter().map(|path| Ok((path.to_owned(), Found::at(path)?))).collect()
    }

    /// Gives tables the rows that the values of `other` ask for, too, where nobody has said how many they have.
    pub(super) fn agree_on_rows(&mut self, other: &mut Self) {
        for (column, others) in self.description.categorical.iter_mut().zip(&mut other.description.categorical) {
            if self.sized_by_values {
                column.rows = column.rows.max(others.rows);
            }
            if other.sized_by_values {
                others.rows = column.rows;
            }
        }
    }

    /// Refuses test samples in a file that has samples for training here; `named` names this data set.
    ///
    /// # Errors
    /// [`Error::Config`] with the first such file.
    pub(super) fn refuse_tests_of_training(&self, named: &Path, tests: &Self) -> Result<()> {
        let own = self.members.iter().filter(|member| member.role == Split::Train);
        let own: HashSet<_> = own.filter_map(|member| file_id(member.table.path())).collect();
        let is_own = |path: &&Path| file_id(path).is_some_and(|file| own.contains(&file));
        match tests.members.iter().map(|member| member.table.path()).find(is_own) {
            Some(both) => Err(tested_on_training(both, named, "name samples of other files")),
            None => Ok(()),
        }
    }

    /// Names no file of values for its row numbers: none lies beside it.
    pub(super) fn forget_vocabularies(&mut self) {
        self.description.categorical.iter_mut().for_each(|column| column.vocabulary.clear());
    }

    /// Which values its row numbers stand for, as far as the files beside it tell.
    ///
    /// # Errors
    /// When one of them is no vocabulary, or damaged.
    pub fn numbering(&self) -> Result<Numbering> {
        let named = self.description.categorical.iter().filter(|column| !column.vocabulary.is_empty());
        Numbering::of(named.zip(&self.vocabularies).map(|(column, (path, _))| (&*column.name, &**path)))
    }

    /// What the files beside it have added to the values that a model's rows are numbered by, column by column; nothing
    /// where they have added none. A column whose values they number otherwise has not grown.
    ///
    /// # Errors
    /// As [`Dataset::numbering`].
    pub(super) fn growth_since(&self, numbering: &Numbering) -> Result<Vec<Growth>> {
        let mut files = self.vocabularies.iter();
        let columns = self.description.categorical.iter().map(|column| {
            let file = if column.vocabulary.is_empty() { None } else { files.next() };
            (&column.name, file.map(|(path, _)| path))
        });
        let columns: Vec<_> = columns.collect();
        let growth = columns.into_par_iter().map(|(column, file)| {
            let found = file.map(|path| numbering.growth(column, path)).transpose()?.flatten();
            Ok(found.unwrap_or_else(|| Growth {
                column: column.clone(),
                kept: 0,
                absent: None,
                new: 0,
                unseen_row: false,
            }))
        });
        // The first error is told, whoever is the first to find one.
        let growth: Vec<Result<Growth>> = growth.collect();
        let growth: Vec<Growth> = growth.into_iter().collect::<Result<_>>()?;
        Ok(if growth.iter().any(|column| column.new > 0) { growth } else { Vec::new() })
    }

    /// Rows for a purpose.
    #[must_use]
    pub fn rows(&self, role: Split) -> u64 {
        self.members.iter().filter(|member| member.role == role).map(|member| member.table.rows()).sum()
    }

    /// Learns from its training samples (from all, where there are none) what its columns need to become features: for
    /// formats that hold features.
    ///
    /// # Errors
    /// When rows are malformed or damaged.
    pub fn learn_scales(&mut self) -> Result<()> {
        if self.description.dense.iter().any(Dense::learns) {
            let all = self.rows(Split::Train) == 0;
            let members = self.members.iter().filter(|member| all || member.role == Split::Train);
            let rows = members.map(|member| (&*member.table, 0..member.table.rows()));
            let scales = learned(&self.description, rows)?;
            self.description.scaled(&scales).expect("they are of these columns");
        }
        Ok(())
    }

    /// What its rows are for, in the order of [`Split`].
    #[must_use]
    pub fn roles(&self) -> Vec<Split> {
        Split::ALL.into_iter().filter(|&role| self.members.iter().any(|member| member.role == role)).collect()
    }
}

/// Text with a header line, as somebody describes it.
#[derive(Debug, Clone, Copy)]
pub struct Described<'a> {
    /// The file that says what its columns are.
    pub schema: &'a Path,
    /// The longest line, in bytes.
    pub max_line: usize,
    /// What a malformed row does.
    pub on_bad_row: OnBadRow,
}

impl<'a> Described<'a> {
    /// With lines of usual length, none of them malformed.
    #[must_use]
    pub const fn by(schema: &'a Path) -> Self {
        Self { schema, max_line: LONGEST, on_bad_row: OnBadRow::Fail }
    }
}

/// What a data set is opened for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading<'a> {
    /// The columns of the model that reads it, if that is trained.
    pub columns: Option<&'a TrainedColumns>,
    /// Whether there must be labels.
    pub labels: Labels,
    /// At most this many rows a table, modulo which row numbers are taken; 0: no limit.
    pub cap: u64,
    /// The data set whose columns these are, where they are named and nothing beside the files tells otherwise.
    pub like: Option<Like<'a>>,
}

/// A data set whose columns others have, in whatever order.
#[derive(Debug, Clone, Copy)]
pub struct Like<'a> {
    /// Where it is, for messages.
    pub path: &'a Path,
    /// Its columns.
    pub description: &'a Description,
    /// As [`Dataset::sized_by_values`].
    pub sized_by_values: bool,
}

/// Opens a data set, in the format that its files tell where none is given.
///
/// # Errors
/// When the format cannot be told, another format than text is described, or the files cannot be used.
pub fn open(path: &Path, format: Option<Format>, text: Option<Described<'_>>) -> Result<Dataset> {
    open_for(path, format, text, Reading::default())
}

/// As [`open`], for a model: of formats that name their columns, those that it was trained on.
///
/// # Errors
/// As [`open`], and when a column of the model is missing.
pub fn open_for(
    path: &Path,
    format: Option<Format>,
    text: Option<Described<'_>>,
    reading: Reading<'_>,
) -> Result<Dataset> {
    std::fs::metadata(path).map_err(Error::io(path, "open"))?;
    if let (Some(format), Some(_)) = (format.filter(|format| !format.is_described()), text) {
        let name = format.name();
        let reason =
            format!("describes text with a header line, and {name} is none: leave one of --schema and {name} away");
        return Err(Error::config("--schema", reason));
    }
    if text.is_some() {
        let is_parquet =
            if path.is_dir() { Format::detect(path) == Some(Format::Parquet) } else { is_parquet_at(path) };
        refuse_described(path, false)?;
        if let Some(given) = format.filter(|given| (*given == Format::Parquet) != is_parquet) {
            let is = if is_parquet { "is Parquet" } else { "is no Parquet" };
            return Err(bad(path, format!("{is}, and {} is named as its format: leave that away", given.name())));
        }
    }
    let format = text.map(|_| Format::Csv).or(format).or_else(|| Format::detect(path));
    // Of octorec's own, the manifest moves last; the values of a single file may be on their way.
    if format != Some(Format::Octorec) || octorec::is_block_file(path) {
        refuse_moving(path)?;
    }
    let mut dataset = match format {
        Some(Format::Octorec) => return octorec::open(path),
        Some(Format::Mlperf) => mlperf::open(path),
        Some(Format::Nvidia) => nvidia::open(path),
        Some(Format::Torchrec) => torchrec::open(path),
        Some(Format::Hugectr) => hugectr::open(path),
        Some(Format::Parquet) => parquet::open(path, reading),
        Some(Format::Csv) => csv::open(path, text),
        Some(Format::Fae) => fae::open(path),
        None => {
            if path.is_dir() {
                parquet::refuse_below(path, |_| false)?;
            }
            let known = Format::ALL.map(Format::name).join(", ");
            let flags = "--from-format of convert, --format of inspect and data verify";
            let reason = format!(
                "its files tell no format: name one of {known} ({flags}); text in Criteo's layout becomes a data set by \
                 `octorec preprocess criteo-kaggle` or `criteo-terabyte`; files with a header line are trained on by `octorec \
                 train --data {0} --schema FILE`, or become one by `octorec preprocess csv --in {0} --schema FILE --out \
                 BLOCKS`, with the schema that `octorec inspect` proposes for one of them",
                path.display()
            );
            Err(bad(path, reason))
        }
    }?;
    let unable = format.filter(|format| !format.is_described());
    if let (Some(weight), Some(format)) = (&dataset.description.weight, unable) {
        let reason = format!(
            "weight = {weight:?} in its {SCHEMA}: {} has no place for weights of samples: take the key away, or make \
             octorec's blocks or Parquet of the samples with their weights",
            format.name()
        );
        return Err(bad(path, reason));
    }
    // In the same order whatever the files are called.
    dataset.members.sort_by_key(|member| member.role);
    dataset.forget_vocabularies();
    Ok(dataset)
}

/// What these rows tell of the columns of which something must be learned.
pub(super) fn learned<'a>(
    description: &Description,
    rows: impl Iterator<Item = (&'a dyn Table, Range<u64>)>,
) -> Result<Scales> {
    let mut learner = Learner::new(description);
    for (table, rows) in rows {
        scan(table, rows.start, rows.end, |samples| {
            learner.add(samples);
            Ok(())
        })?;
    }
    Ok(learner.scales(description))
}
