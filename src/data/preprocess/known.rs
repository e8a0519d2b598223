//! The data set whose vocabulary numbers other data: as it is, or with the values behind its own that they add.

use std::fs;
use std::path::{Path, PathBuf};

use super::ids::Column;
use super::{Options, Recipe};
use crate::base::{Error, Result};
use crate::data::blocks::{MANIFEST, Manifest};
use crate::data::schema::{Categorical, Description};
use crate::data::vocabulary::file::{self as vocabulary, identity, size};
use crate::data::{Growth, Numbering};

/// A data set that was made before.
pub(super) struct Known<'a> {
    folder: &'a Path,
    columns: Vec<Categorical>,
    /// Whether values are added to its vocabulary.
    grows: bool,
}

impl<'a> Known<'a> {
    /// The one that is asked for.
    ///
    /// # Errors
    /// When it has no manifest, or a damaged one.
    pub(super) fn of(options: &'a Options) -> Result<Option<Self>> {
        let Some(folder) = options.vocabulary.as_deref() else { return Ok(None) };
        Ok(Some(Self { folder, columns: Manifest::read(folder)?.schema.categorical, grows: options.grow }))
    }

    /// Refuses data of which a column that is numbered here has its rows by itself, and for a vocabulary that grows
    /// those of other columns: models go on with all of its columns. `min_count` is that of new values.
    ///
    /// # Errors
    /// With the column, and what to do.
    pub(super) fn check(&self, columns: &Description, recipe: &Recipe, min_count: u32) -> Result<()> {
        let has = |name: &str| columns.categorical.iter().position(|column| column.name == name);
        for Categorical { name, vocabulary, .. } in &self.columns {
            let is_numbered = !vocabulary.is_empty();
            let reason = match has(name) {
                None if self.grows => format!(
                    "has a column {name}, and these data have none: a vocabulary grows by data of the same columns, so name it \
                     in the schema"
                ),
                Some(at) if is_numbered && recipe.fixed_rows(at).is_some() => format!(
                    "numbers the values of column {name}, and by the schema of these data they are hashed or in buckets: \
                     describe it as it was"
                ),
                _ => continue,
            };
            return Err(Error::bad_file(self.folder.join(MANIFEST), reason));
        }
        for (at, column) in columns.categorical.iter().enumerate().filter(|_| self.grows) {
            if recipe.fixed_rows(at).is_none() && !size(&self.file(&column.name)?)?.unseen_row && min_count > 0 {
                let reason = format!(
                    "in {} no row is that of infrequent values, since it was made without --min-count: leave it away, and every \
                     new value gets a row",
                    self.folder.display()
                );
                return Err(Error::config("--min-count with --grow", reason));
            }
        }
        Ok(())
    }

    /// What tells the values of all its columns, in their order, from others.
    ///
    /// # Errors
    /// When one of its files is no vocabulary, its head is damaged, or it is cut.
    pub(super) fn digest(&self) -> Result<String> {
        let named = self.columns.iter().filter(|column| !column.vocabulary.is_empty());
        let files: Vec<_> = named.map(|column| (&*column.name, self.folder.join(&column.vocabulary))).collect();
        Ok(Numbering::of(files.iter().map(|(name, file)| (*name, &**file)))?.digest())
    }

    /// Bytes of the file of a column's values, which a copy takes, too.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn bytes(&self, column: &str) -> Result<u64> {
        let file = self.file(column)?;
        fs::metadata(&file).map(|found| found.len()).map_err(Error::io(&file, "open"))
    }

    /// The file of a column's values.
    fn file(&self, column: &str) -> Result<PathBuf> {
        let found = self.columns.iter().find(|known| known.name == column && !known.vocabulary.is_empty());
        found.map(|found| self.folder.join(&found.vocabulary)).ok_or_else(|| {
            let reason = format!("has no vocabulary of column {column}: it is of other data");
            Error::bad_file(self.folder.join(MANIFEST), reason)
        })
    }

    /// A column with the values that it has here.
    ///
    /// # Errors
    /// When there are none of that name.
    pub(super) fn with<'c>(&self, column: Column<'c>) -> Result<Column<'c>> {
        let file = self.file(column.name)?;
        Ok(match self.grows {
            true => Column { first: Some((file.clone(), size(&file)?)), ..column },
            false => Column { known: Some(file), ..column },
        })
    }
}

/// What the vocabulary of a column that is numbered has grown by; nothing where it is a new one, or an old one as it
/// is.
///
/// # Errors
/// When it was begun with other values than it would be now, by an attempt that was not finished.
pub(super) fn growth(column: &Column<'_>) -> Result<Option<Growth>> {
    let Some((first, _)) = &column.first else { return Ok(None) };
    let since = identity(first)?.unwrap_or_default();
    let growth = vocabulary::growth(&column.vocabulary, column.name, since)?;
    growth.map(Some).ok_or_else(|| {
        let work = column.vocabulary.parent().unwrap_or(first).display();
        let reason = format!(
            "is another vocabulary than that with which unfinished work was begun: put that back, or remove {work}"
        );
        Error::bad_file(first.clone(), reason)
    })
}
