//! A file of text after the pass over it: what a table of its rows tells, whatever they are.

use std::path::PathBuf;

use super::{Marks, Place, Skipped};
use crate::base::Result;
use crate::base::input::Found;

/// What the pass over a file of text has found.
pub struct Scanned {
    /// Where it is.
    pub path: PathBuf,
    /// The file that the pass went through.
    pub found: Found,
    /// Good rows.
    pub rows: u64,
    /// Malformed rows.
    pub skipped: Skipped,
    /// The first good row with a value that is left out, where values are looked at; of several files that are one
    /// table, by its number among the rows of all.
    pub first_unseen: Option<u64>,
    /// None of a compressed file.
    pub marks: Marks,
}

impl Scanned {
    /// The last good row up to number `start` at which the file can be entered, and where; nothing where it is read
    /// from its first line.
    ///
    /// # Errors
    /// When the file is no longer the one that was found.
    pub fn enter(&self, start: u64) -> Result<Option<(u64, Place)>> {
        self.found.check(&self.path)?;
        Ok(self.marks.before(start))
    }
}
