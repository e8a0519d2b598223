//! Malformed rows of a text: they end the run, or are skipped and counted.

use std::path::Path;

use crate::base::config::OnBadRow;
use crate::base::{Error, Reason, Result};

/// The malformed rows that whoever goes through a file has skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    on_bad_row: OnBadRow,
    rows: u64,
    first: Option<String>,
}

impl Skipped {
    /// None yet.
    #[must_use]
    pub const fn new(on_bad_row: OnBadRow) -> Self {
        Self { on_bad_row, rows: 0, first: None }
    }

    /// Skips a malformed row, whose first line has this number, counted from 1.
    ///
    /// # Errors
    /// [`Error::BadRow`], where malformed rows end the run.
    pub fn add(&mut self, path: &Path, line: u64, reason: impl FnOnce() -> Reason) -> Result<()> {
        let error = || Error::BadRow { path: path.to_owned(), line, reason: reason() };
        if self.is_never() {
            return Err(error());
        }
        if self.rows == 0 {
            self.first = Some(error().to_string());
        }
        self.rows += 1;
        Ok(())
    }

    /// Whether no row is ever skipped, since the first malformed one ends the run: then each is a good one.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.on_bad_row == OnBadRow::Fail
    }

    /// How many there are.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// The first of them: its file, its line, and what is wrong with it.
    #[must_use]
    pub fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_row_is_an_error_or_counts_and_the_first_is_told() {
        let path = Path::new("a.tsv");
        let mut skipped = Skipped::new(OnBadRow::Skip);
        skipped.add(path, 3, || "no label".to_owned().into()).unwrap();
        skipped.add(path, 7, || unreachable!("only the first is told")).unwrap();
        assert!(!skipped.is_never());
        let told = Skipped::new(OnBadRow::Fail).add(path, 3, || "no label".to_owned().into()).unwrap_err();
        assert_eq!((skipped.rows(), skipped.first()), (2, Some(&*told.to_string())));
        assert!(matches!(told, Error::BadRow { line: 3, .. }));
    }
}
