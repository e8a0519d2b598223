//! The manifest of a directory of block files: `dataset.toml`, with the schema, the parts and what each is for.
//!
//! Parts of one role follow each other in the order of the list. The manifest is written last, so a directory that has
//! one is complete.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::file::BlockFile;
use crate::base::{Error, Result, input};
use crate::data::Split;
use crate::data::formats::Table;
use crate::data::schema::Description;
use crate::memory::write_file;

/// How the manifest is called.
pub const MANIFEST: &str = "dataset.toml";
/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;

/// A directory of block files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Of this layout.
    pub version: u32,
    /// The files, in order.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// The columns of every part.
    pub schema: Description,
}

/// One block file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its name in the directory.
    pub file: String,
    /// Its samples.
    pub rows: u64,
    /// What they are for; those for validation are read as test samples where there are no others.
    #[serde(default)]
    pub role: Split,
}

impl Manifest {
    /// A manifest of this version.
    #[must_use]
    pub fn new(schema: Description, parts: Vec<Part>) -> Self {
        Self { version: VERSION, parts, schema }
    }

    /// Reads a directory's manifest.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::BadFile`].
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST);
        let text = input::read_text(&path)?;
        let fail = |reason: String| Error::bad_file(path.clone(), reason);
        let found: Self = toml::from_str(&text).map_err(|error| fail(format!("is no manifest: {error}")))?;
        if found.version != VERSION {
            return Err(fail(format!("has version {}; this octorec reads version {VERSION}", found.version)));
        }
        found.schema.check().map_err(fail)?;
        if found.parts.is_empty() {
            let reason = "lists no part, so that there is no sample: make the data set again, of data that have some";
            return Err(fail(reason.to_owned()));
        }
        // A name that lost a bit is another part's.
        let mut names = HashSet::new();
        if let Some(twice) = found.parts.iter().find(|part| !names.insert(&part.file)) {
            return Err(fail(format!("part {} is listed twice: its samples would count twice", twice.file)));
        }
        let outside = found.parts.iter().find(|part| Path::new(&part.file).components().count() != 1);
        match outside {
            Some(part) => Err(fail(format!("part {} must be the name of a file beside it", part.file))),
            None => Ok(found),
        }
    }

    /// Writes the manifest; from then on the directory is a data set.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let text = toml::to_string(self).expect("every field of a manifest is representable in TOML");
        write_file(&folder.join(MANIFEST), text.as_bytes())
    }

    /// Opens one of its files and holds it to what the manifest says.
    ///
    /// # Errors
    /// As [`BlockFile::open`], and when the file has other columns or another number of samples.
    pub fn open(&self, folder: &Path, part: &Part) -> Result<BlockFile> {
        let path = folder.join(&part.file);
        let file = BlockFile::open(&path)?;
        if file.rows() != part.rows {
            let reason = format!("has {} samples, but {MANIFEST} says {}", file.rows(), part.rows);
            return Err(Error::bad_file(path, reason));
        }
        if *file.description() != self.schema {
            let reason = format!("has other columns than {MANIFEST}: it belongs to another data set");
            return Err(Error::bad_file(path, reason));
        }
        Ok(file)
    }
}
