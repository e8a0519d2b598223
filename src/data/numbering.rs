//! Which values row numbers stand for: those of stored data, as far as files of values tell that lie beside them, and
//! those that a vocabulary gives to values of text.

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::fingerprint::of_bytes;
use super::vocabulary::file::{growth, identity};
use super::{Growth, Vocabulary};
use crate::base::Result;

/// By the name of each column whose values lie in a file, or in a vocabulary: what tells these, in the order of their
/// rows, from others.
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

    /// That of columns of these names whose values have their rows by a vocabulary, as of files with its values. No
    /// table has more than `cap` rows (0: no limit), modulo which rows of stored data are taken. Those of text are not
    /// where the row of unseen values is the last one, and they have a numbering of their own.
    pub(super) fn by<'a>(vocabulary: &Vocabulary, names: impl Iterator<Item = &'a str>, cap: u64) -> Self {
        let column = |(at, name): (usize, &str)| {
            let (identity, values) = vocabulary.identity(at)?;
            let is_cut = vocabulary.unseen_row() && cap > 0 && values >= cap;
            let told = if is_cut { of_bytes([identity, cap].iter().map(bytemuck::bytes_of)) } else { identity };
            Some((name.to_owned(), format!("{told:016x}")))
        };
        let columns: Vec<(usize, &str)> = names.enumerate().collect();
        Self(columns.into_par_iter().filter_map(column).collect())
    }

    /// Whether it tells of each column of which others do, which are some.
    #[must_use]
    pub fn tells(&self, others: &Self) -> bool {
        !others.is_empty() && others.0.keys().all(|name| self.0.contains_key(name))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::vocabulary::file::write;

    #[test]
    fn a_vocabulary_is_told_from_others_as_files_of_its_values_are() {
        let folder = tempfile::tempdir().unwrap();
        let texts = |values: &[&str]| values.iter().map(|value| value.as_bytes().into()).collect::<Vec<Box<[u8]>>>();
        let values = [texts(&["u1", "", "u2"]), texts(&[]), texts(&["x"])];
        let names = ["user", "hashed", "genre"];
        for unseen_row in [false, true] {
            let vocabulary = Vocabulary::of_texts(values.to_vec()).with_unseen_row(unseen_row);
            let told = |cap| Numbering::by(&vocabulary, names.into_iter(), cap);
            let files = [0, 2].map(|at| (names[at], folder.path().join(names[at])));
            for ((_, file), values) in files.iter().zip([&values[0], &values[2]]) {
                write(file, values, unseen_row).unwrap();
            }
            let of_files = Numbering::of(files.iter().map(|(name, file)| (*name, &**file))).unwrap();
            assert_eq!(told(0), of_files);
            // Under a limit the row of unseen values is not the one that numbers have modulo it.
            assert_eq!(told(4), of_files);
            assert_eq!(told(3).difference(&of_files), unseen_row.then_some("user"));
            assert_eq!(told(3).difference(&told(2)), unseen_row.then_some("user"));
            assert_eq!(told(3), told(3));
            // Other values, another order, another number of them: other rows of that column alone.
            for others in [&["u1", "", "u3"][..], &["u2", "", "u1"], &["u1", ""], &["u1", "", "u2", "u3"]] {
                let [_, second, third] = values.clone();
                let other = Vocabulary::of_texts(vec![texts(others), second, third]).with_unseen_row(unseen_row);
                let other = Numbering::by(&other, names.into_iter(), 0);
                assert_eq!(other.differences(&of_files).collect::<Vec<_>>(), ["user"], "{others:?}");
            }
        }
        let words = Vocabulary::from_columns(vec![vec![7, 3], vec![]], false).unwrap();
        let words = Numbering::by(&words, ["C1", "C2"].into_iter(), 0);
        assert_eq!(words.0.len(), 2);
        let (one, nothing) = (Numbering(words.0.clone().into_iter().take(1).collect()), Numbering::default());
        assert!(words.tells(&one) && words.tells(&words) && !one.tells(&words));
        assert!(!words.tells(&nothing) && !nothing.tells(&nothing));
    }
}
