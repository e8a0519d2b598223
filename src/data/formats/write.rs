//! Writing a data set: a [`Sink`] for the rows of each role, then a seal that makes the directory a data set.

use std::fs::File;
use std::path::{Path, PathBuf};

#[cfg(feature = "parquet")]
use super::parquet;
use super::taken::{last, refuse_taken};
use super::{Format, bad, hugectr, mlperf, nvidia, torchrec};
use crate::base::console::note;
use crate::base::{Error, Result};
use crate::data::blocks::{EXTENSION, Manifest, Options, Part, Writer};
use crate::data::vocabulary::file;
use crate::data::{Description, Samples, Split, Unfinished, Vocabulary};
use crate::memory::WholeFile;

/// Where rows go.
pub trait Sink: Send {
    /// Appends rows.
    ///
    /// # Errors
    /// When they cannot be written, or the format cannot hold them.
    fn push(&mut self, samples: &Samples) -> Result<()>;

    /// Makes the files whole; returns their bytes.
    ///
    /// # Errors
    /// When they cannot be written; nothing of them stays then.
    fn finish(self: Box<Self>) -> Result<u64>;
}

/// A data set that is being written to a directory; dropped before it is sealed, nothing of it stays.
pub struct Target {
    format: Format,
    description: Description,
    options: Options,
    parts: Vec<Part>,
    roles: Vec<Split>,
    bytes: u64,
    task: String,
    unfinished: Unfinished,
}

impl Target {
    /// Prepares `folder` for rows of `description`.
    ///
    /// # Errors
    /// When it cannot be created, holds a data set or files of its kind already, another process writes to it, or the
    /// format can only be read.
    pub fn create(folder: &Path, format: Format, description: &Description, options: Options) -> Result<Self> {
        if !Format::WRITTEN.contains(&format) {
            #[cfg(not(feature = "parquet"))]
            if format == Format::Parquet {
                return Err(bad(folder, super::parquet::ABSENT));
            }
            let known = Format::WRITTEN.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
            return Err(bad(
                folder,
                format!("octorec writes no {}: choose one of {known} with --format", format.name()),
            ));
        }
        description.check().map_err(|reason| bad(folder, reason))?;
        if !matches!(format, Format::Octorec | Format::Parquet) {
            held(description).map_err(|reason| bad(folder, format!("{} {reason}", format.name())))?;
        }
        if format.holds_features()
            && let Some(column) = description.dense.iter().find(|column| column.learns() && column.scale.is_none())
        {
            let reason =
                format!("{} holds features, and the scale of column {} is not known", format.name(), column.name);
            return Err(bad(folder, reason));
        }
        let mut description = description.clone();
        if format != Format::Octorec {
            // Others have no place for the files that these are.
            description.categorical.iter_mut().for_each(|column| column.vocabulary.clear());
        }
        Ok(Self {
            unfinished: Unfinished::begin(folder, || refuse_taken(folder, format))?,
            format,
            description,
            options,
            parts: Vec::new(),
            roles: Vec::new(),
            bytes: 0,
            task: String::new(),
        })
    }

    /// The same, for what a command was asked for: see [`Unfinished::end`].
    #[must_use]
    pub fn of_task(self, task: &str) -> Self {
        Self { task: task.to_owned(), ..self }
    }

    /// The folder for what goes with the data set, from which everything moves when it is sealed.
    #[must_use]
    pub fn work(&self) -> &Path {
        self.unfinished.work()
    }

    /// Writes the rows that `fill` hands over, for one role.
    ///
    /// # Errors
    /// Those of `fill` and of the sink.
    pub fn write(&mut self, role: Split, fill: impl FnOnce(&mut dyn Sink) -> Result<u64>) -> Result<u64> {
        let (work, description) = (self.unfinished.work(), &self.description);
        let name = format!("part-{:05}.{EXTENSION}", self.parts.len());
        let mut sink: Box<dyn Sink> = match self.format {
            Format::Octorec => Box::new(Writer::create(&work.join(&name), description, self.options)?),
            Format::Mlperf => Box::new(mlperf::BinSink::create(work, role, description)?),
            Format::Nvidia => Box::new(nvidia::sink(work, role, description)?),
            Format::Torchrec => Box::new(torchrec::ArraySink::create(work, role, description)?),
            Format::Hugectr => Box::new(hugectr::sink(work, role, description)?),
            #[cfg(feature = "parquet")]
            Format::Parquet => Box::new(parquet::ParquetSink::create(work, role, description, self.options)?),
            _ => unreachable!("refused by create"),
        };
        let rows = fill(&mut *sink)?;
        self.bytes += sink.finish()?;
        self.parts.push(Part { file: name, rows, role });
        self.roles.push(role);
        Ok(rows)
    }

    /// Writes the values that text has just been numbered by, in octorec's own format, and names their files in what is
    /// written from now on, so that data with other numbers are told from these; says that other formats do not. A
    /// column that is `numbered` has a file even where it has no value, as those of preprocessing have.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn number_by(&mut self, vocabulary: &Vocabulary, numbered: &[bool]) -> Result<()> {
        if self.format != Format::Octorec {
            note!(
                "warning: {} has no place for the values behind row numbers: nothing will tell these from those of other \
                 files that are converted, which number values by their own order; write --format octorec, or make all with \
                 `octorec preprocess` and its --vocabulary",
                self.format.name()
            );
            return Ok(());
        }
        let names = file::file_names(&self.description);
        let columns = self.description.categorical.iter_mut().zip(vocabulary.texts()).zip(names).zip(numbered);
        for (((column, texts), name), _) in columns.filter(|(_, numbered)| **numbered) {
            file::write(&self.unfinished.work().join(&name), texts, vocabulary.unseen_row())?;
            column.vocabulary = name;
        }
        Ok(())
    }

    /// Takes over the values behind row numbers, in octorec's own format; says that others have no place for them.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub fn bring(&self, vocabularies: &[(PathBuf, u64)]) -> Result<()> {
        if self.format != Format::Octorec {
            if !vocabularies.is_empty() {
                note!(
                    "warning: {} has no place for the values behind row numbers: nothing will tell these data from others, whose \
                     numbers may stand for other values; write --format octorec, which keeps them",
                    self.format.name()
                );
            }
            return Ok(());
        }
        vocabularies.iter().try_for_each(|(from, _)| {
            let to = self.work().join(from.file_name().unwrap_or_default());
            let mut source = File::open(from).map_err(Error::io(from, "open"))?;
            let mut copy = WholeFile::create(&to)?;
            std::io::copy(&mut source, &mut copy).map_err(Error::io(&to, "write"))?;
            copy.finish().map(|_| ())
        })
    }

    /// Writes what makes the directory a data set; returns all bytes of its rows.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn seal(self) -> Result<u64> {
        let work = self.unfinished.work();
        match self.format {
            Format::Octorec => Manifest::new(self.description, self.parts).write(work)?,
            Format::Mlperf => mlperf::seal(work, &self.description)?,
            Format::Nvidia => nvidia::seal(work, &self.description, &self.roles)?,
            Format::Torchrec => torchrec::seal(work, &self.description)?,
            Format::Hugectr => hugectr::seal(work, &self.description)?,
            #[cfg(feature = "parquet")]
            Format::Parquet => parquet::seal(work, &self.description)?,
            _ => unreachable!("refused by create"),
        }
        self.unfinished.finish(last(self.format), (&self.task, self.bytes))?;
        Ok(self.bytes)
    }
}

/// Whether formats of integers can hold these samples: no weights of theirs, labels of 0 and 1, and such row numbers.
fn held(description: &Description) -> std::result::Result<(), String> {
    if let Some(weight) = &description.weight {
        return Err(format!(
            "has no place for weights of samples, which column {weight} has: use --format octorec or parquet"
        ));
    }
    if description.label.float {
        return Err(format!("holds labels 0 and 1, but those of {} are fractions", description.label.name));
    }
    match description.categorical.iter().find(|column| column.rows > 1 << 31) {
        Some(column) => Err(format!("numbers rows with an i32, but column {} has {} rows", column.name, column.rows)),
        None => Ok(()),
    }
}
