//! Which values the row numbers of stored data stand for, as far as files of values tell that lie beside them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Growth;
use super::fingerprint::of_bytes;
use super::vocabulary::file::{growth, identity};
use crate::base::Result;

/// By the name of each column whose values lie in a file: what tells these, in the order of their rows, from others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Numbering(BTreeMap<String, String>);

impl Numbering {
    /// That of columns with their files; a file that is not there tells nothing.
    ///
    /// # Errors
    /// When a file is no vocabulary, or damaged.
    pub(super) fn of<'a>(files: impl Iterator<Item = (&'a str, &'a Path)>) -> Result<Self> {
        let mut columns = BTreeMap::new();
        for (name, path) in files {
            if let Some(identity) = identity(path)? {
                columns.insert(name.to_owned(), format!("{identity:016x}"));
            }
        }
        Ok(Self(columns))
    }

    /// Whether nothing is known of any column.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A short text that tells it from others; "nothing" of no column.
    #[must_use]
    pub fn digest(&self) -> String {
        if self.is_empty() {
            return "nothing".to_owned();
        }
        let texts = self.0.iter().flat_map(|(name, values)| [name.as_bytes(), values.as_bytes()]);
        format!("{:016x}", of_bytes(texts))
    }

    /// The same, and what others know of the columns of which it knows nothing.
    #[must_use]
    pub fn or(mut self, others: &Self) -> Self {
        for (name, values) in &others.0 {
            self.0.entry(name.clone()).or_insert_with(|| values.clone());
        }
        self
    }

    /// The first column that both know, and whose values have other rows here than there.
    #[must_use]
    pub fn difference(&self, others: &Self) -> Option<&str> {
        self.differences(others).next()
    }

    /// All such columns.
    pub fn differences<'a>(&'a self, others: &Self) -> impl Iterator<Item = &'a str> {
        let differs = move |(name, own): &(&String, &String)| others.0.get(*name).is_some_and(|other| other != *own);
        self.0.iter().filter(differs).map(|(name, _)| &**name)
    }

    /// What has been added to a column's values that lie in this file, which begins with those that are known here;
    /// nothing where it begins with others, or none are known.
    ///
    /// # Errors
    /// When the file is no vocabulary, or damaged.
    pub(super) fn growth(&self, column: &str, path: &Path) -> Result<Option<Growth>> {
        let since = self.0.get(column).and_then(|identity| u64::from_str_radix(identity, 16).ok());
        match since.filter(|_| path.exists()) {
            Some(since) => growth(path, column, since),
            None => Ok(None),
        }
    }
}
