//! Data sets on disk, in every format of the field: one file a format, all behind [`Table`].
//!
//! | format     | files                                                                        | reads | writes |
//! |------------|------------------------------------------------------------------------------|-------|--------|
//! | `octorec`  | block files with `dataset.toml` ([`super::blocks`])                          | yes   | yes    |
//! | `mlperf`   | `*_train.bin`, `*_val.bin`, `*_test.bin` (160 bytes a row), `day_fea_count.npz` | yes | yes    |
//! | `nvidia`   | `feature_spec.yaml` and a binary file a column                               | yes   | yes    |
//! | `torchrec` | `*_dense.npy`, `*_sparse.npy` or `*_sparse_multi_hot.npz`, `*_labels.npy`    | yes   | yes    |
//! | `hugectr`  | `train_data.bin`, `val_data.bin`, `test_data.bin` (raw rows), `schema.toml`  | yes   | yes    |
//! | `parquet`  | `*.parquet` ([`parquet`]); with the cargo feature of that name                 | yes   | yes    |
//! | `csv`      | text with a header line and a description of it ([`csv`])                      | yes   | no     |
//! | `fae`      | `train_normal.npz`, `train_hot.npz`, `hot_emb_dict.npz` of FAE's published code (`fae`)  | yes   | no     |
//!
//! Criteo's text is a table as well ([`super::tsv`]); its files do not tell it, so it is a source of its own.
//!
//! `nvidia`, `torchrec` and `hugectr` hold dense features as a model reads them; all others keep what the log said,
//! with the transform that a model applies (see [`super::schema::feature`]).
//!
//! A `schema.toml` (a [`Description`]) beside foreign files tells what their format does not: names and numbers of
//! rows.

pub mod csv;
mod dataset;
mod fae;
mod files;
mod hugectr;
mod mlperf;
mod named;
pub mod npy;
mod npz;
mod nvidia;
mod octorec;
pub mod parquet;
mod pickle;
mod records;
mod strided;
mod taken;
mod torchrec;
mod transfer;
mod write;

use std::path::Path;

use super::blocks::{EXTENSION, MANIFEST};
use super::fingerprint::{of_ends, of_text};
use super::text::Scanned;
use super::{Batch, Description, Lost, Samples};
use crate::base::{Error, Result, input, named};
use crate::memory::FileBytes;

pub use dataset::{Dataset, Described, Like, Member, Reading, open, open_for};
pub use files::Files;
pub(super) use named::refuse_described;
pub use named::refuse_mixed;
pub use taken::refuse_text;
pub use transfer::{convert, scan, verify};
pub use write::{Sink, Target};

/// The file beside foreign data that says what its format does not.
pub const SCHEMA: &str = "schema.toml";

/// What other programs call the roles in names of files and folders.
const ROLES: [&str; 3] = ["train", "val", "test"];

named! {
    /// How a data set is laid out on disk.
    #[derive(Hash)]
    pub enum Format {
        /// octorec's blocks.
        Octorec = "octorec",
        /// The 160-byte rows of MLPerf's and the reference's binary loader.
        Mlperf = "mlperf",
        /// NVIDIA's split binary.
        Nvidia = "nvidia",
        /// TorchRec's arrays.
        Torchrec = "torchrec",
        /// HugeCTR's raw rows.
        Hugectr = "hugectr",
        /// Parquet.
        Parquet = "parquet",
        /// Separated text with a header line.
        Csv = "csv",
        /// The hot and cold samples of FAE's published code.
        Fae = "fae",
    }
}

impl Format {
    /// Whether its dense values are features: transformed when they are written, not when they are read.
    #[must_use]
    pub const fn holds_features(self) -> bool {
        matches!(self, Self::Nvidia | Self::Torchrec | Self::Hugectr)
    }

    /// Whether a schema says of its columns what it says of text: Parquet, too, may hold values that are no row
    /// numbers.
    #[must_use]
    pub const fn is_described(self) -> bool {
        matches!(self, Self::Csv | Self::Parquet)
    }

    /// Those that this build writes too.
    #[cfg(feature = "parquet")]
    pub const WRITTEN: &[Self] =
        &[Self::Octorec, Self::Mlperf, Self::Nvidia, Self::Torchrec, Self::Hugectr, Self::Parquet];

    /// Those that this build writes too.
    #[cfg(not(feature = "parquet"))]
    pub const WRITTEN: &[Self] = &[Self::Octorec, Self::Mlperf, Self::Nvidia, Self::Torchrec, Self::Hugectr];

    /// The format of what lies at `path`, told by names and first bytes; nothing where it is none of these.
    #[must_use]
    pub fn detect(path: &Path) -> Option<Self> {
        // `.` and `..` have no name.
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            let names: Vec<String> = std::fs::read_dir(path)
                .ok()?
                .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
                .collect();
            let has = |test: &dyn Fn(&str) -> bool| names.iter().any(|name| test(name));
            return match () {
                () if has(&|name| name == MANIFEST) => Some(Self::Octorec),
                () if has(&|name| name == nvidia::SPEC) => Some(Self::Nvidia),
                () if has(&|name| ends(name, torchrec::DENSE)) => Some(Self::Torchrec),
                () if has(&fae::named) => Some(Self::Fae),
                () if has(&|name| hugectr::role(name).is_some()) => Some(Self::Hugectr),
                () if has(&|name| mlperf::role(name).is_some()) => Some(Self::Mlperf),
                () if parquet::detect(path, &names) => Some(Self::Parquet),
                () => None,
            };
        }
        match () {
            () if name == MANIFEST || ends(&name, EXTENSION) => Some(Self::Octorec),
            () if name == nvidia::SPEC => Some(Self::Nvidia),
            () if ends(&name, torchrec::DENSE) => Some(Self::Torchrec),
            () if fae::named(&name) => Some(Self::Fae),
            () if hugectr::role(&name).is_some() => Some(Self::Hugectr),
            () if ends(&name, ".bin") => Some(Self::Mlperf),
            () if ends(&name, parquet::EXTENSION) => Some(Self::Parquet),
            () if [".csv", ".csv.gz", ".csv.zst"].iter().any(|ending| ends(&name, ending)) => Some(Self::Csv),
            () if csv::sniff::header(path).is_some() => Some(Self::Csv),
            () => None,
        }
    }
}

/// Rows that are stored in one format, in one order.
pub trait Table: Send + Sync {
    /// The columns.
    fn description(&self) -> &Description;

    /// How many rows there are.
    fn rows(&self) -> u64;

    /// Where they are, for messages.
    fn path(&self) -> &Path;

    /// The files that they are read from.
    fn files(&self) -> Vec<&Path> {
        vec![self.path()]
    }

    /// The most look-ups of a row, one entry a categorical column.
    fn longest(&self) -> Vec<u32> {
        self.description().categorical.iter().map(|column| column.hots).collect()
    }

    /// What a pass over the rows has found, where they are text.
    fn scanned(&self) -> Option<&Scanned> {
        None
    }

    /// Malformed rows that are left out; each counts once, however often they are read.
    fn skipped_rows(&self) -> u64 {
        self.scanned().map_or(0, |text| text.skipped.rows())
    }

    /// The first malformed row that is left out: its file, its line, and what is wrong with it.
    fn first_skipped(&self) -> Option<&str> {
        self.scanned()?.skipped.first()
    }

    /// What the look-ups of rows that readers have met so far do not show, one entry a categorical column of text.
    fn lost(&self) -> Vec<Lost> {
        Vec::new()
    }

    /// What tells them from other rows; nothing where that cannot be read.
    fn fingerprint(&self) -> Option<u64> {
        self.scanned().map_or_else(|| of_ends(self.path()), |text| of_text(&text.path))
    }

    /// What tells the names of their columns and their first values from others, where [`Table::fingerprint`] does not
    /// and they can be read: in the order of the file's columns, which earlier versions kept alone, and in that of
    /// their names, by which they are found.
    fn first_values(&self) -> Option<[u64; 2]> {
        None
    }

    /// Whether a row is reached without those before it.
    fn is_seekable(&self) -> bool {
        self.scanned().is_none_or(|text| !text.marks.is_empty())
    }

    /// A reader whose first row is number `start`, at most [`Table::rows`].
    ///
    /// # Errors
    /// When the files cannot be read.
    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>>;
}

/// A position in a table.
pub trait Rows: Send {
    /// Appends up to `limit` rows as they are stored; fewer only at the end.
    ///
    /// # Errors
    /// When rows are malformed or damaged; the message names them.
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize>;

    /// Appends up to `limit` rows to a minibatch, by way of `scratch` where the format has no straighter one;
    /// `description` is the table's, with what was learned of its columns.
    ///
    /// # Errors
    /// As [`Rows::read`].
    fn read_batch(
        &mut self,
        batch: &mut Batch,
        limit: usize,
        (scratch, description): (&mut Samples, &Description),
    ) -> Result<usize> {
        scratch.clear();
        let read = self.read(scratch, limit)?;
        batch.append(scratch, description);
        Ok(read)
    }

    /// Steps over up to `count` rows, which are not parsed; fewer only at the end.
    ///
    /// # Errors
    /// As [`Rows::read`].
    fn skip(&mut self, count: u64) -> Result<u64>;

    /// Bytes of the files that were read so far: what was parsed, copied or checked.
    fn bytes_read(&self) -> u64;
}

/// Refuses a file without any bytes: formats whose files begin with rows cannot tell it from a whole one.
fn filled(file: &FileBytes) -> Result<()> {
    if !file.is_empty() {
        return Ok(());
    }
    Err(bad(file.path(), "is empty: copy or write it again, or remove it where it should have no rows"))
}

/// What lies beside foreign data and describes it, if anything does.
fn sidecar(folder: &Path) -> Result<Option<Description>> {
    let path = folder.join(SCHEMA);
    if !path.exists() {
        return Ok(None);
    }
    let text = input::read_text(&path)?;
    if text.trim().is_empty() {
        return Err(bad(&path, "is empty: copy or write it again, or remove it where the files tell their columns"));
    }
    let parsed = Description::parse(&text, &path);
    parsed.map(Some).map_err(|error| match toml::from_str::<csv::TextSchema>(&text) {
        Ok(_) => bad(
            &path,
            "has the keys of `octorec schema`, and a file of this name beside data has others (`octorec guide data`): call it \
             otherwise, and name it with --schema",
        ),
        Err(_) => error,
    })
}

/// Whether a file's name ends so, in letters of either case: other systems tell no difference.
fn ends(name: &str, ending: &str) -> bool {
    name.to_ascii_lowercase().ends_with(ending)
}

/// Whether nobody means a file or a folder of this name to be read as data: such as `_SUCCESS`, the mark of a job that
/// is done.
pub(in crate::data) fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '_'])
}

/// Where files beside `path` are: itself, when it is a directory.
fn folder(path: &Path) -> &Path {
    if path.is_dir() {
        return path;
    }
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where the first of some numbers is that nothing can be learned from, and what is wrong with it; with gaps, NaN is a
/// value that is missing.
fn unfit(values: &[f32], gaps: bool) -> Option<(usize, String)> {
    let at = values.iter().position(|value| !(value.is_finite() || gaps && value.is_nan()))?;
    Some((at, format!("a finite number is expected, found {}", values[at])))
}

/// The error of a file that cannot be used as it is.
fn bad(path: &Path, reason: impl Into<String>) -> Error {
    Error::bad_file(path, reason.into())
}
