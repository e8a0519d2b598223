//! Categorical values and their row numbers, by order of first appearance, as in the reference's `data_utils.py`.
//!
//! Invariant: `keys[c][id]` is the value whose id is `id`, and no value stands twice in a column. The keys alone
//! determine everything, so a checkpoint stores them and new data is mapped as the training data was.

pub(super) mod file;

use serde::{Deserialize, Serialize};

use crate::base::{Error, Result};
use crate::data::key_map::KeyMap;

/// The values of every categorical column.
#[derive(Debug, Clone)]
pub struct Vocabulary {
    keys: Vec<Vec<u32>>,
    ids: Vec<KeyMap<u32>>,
    unseen_row: bool,
    /// Values of text files with named columns, which have no `keys`.
    texts: Vec<Vec<Box<[u8]>>>,
}

// Ids follow from the keys.
impl PartialEq for Vocabulary {
    fn eq(&self, other: &Self) -> bool {
        (&self.keys, self.unseen_row, &self.texts) == (&other.keys, other.unseen_row, &other.texts)
    }
}

impl Eq for Vocabulary {}

impl Vocabulary {
    /// A vocabulary without values.
    pub(super) fn empty(columns: usize) -> Self {
        let (keys, ids) = (vec![Vec::new(); columns], vec![KeyMap::new(); columns]);
        Self { keys, ids, unseen_row: false, texts: Vec::new() }
    }

    /// A vocabulary from the values of each column in the order of their ids. With `unseen_row`, values that are not
    /// listed map to one more row, the last.
    ///
    /// # Errors
    /// [`Error::Config`] when a value stands twice in a column.
    pub fn from_columns(columns: Vec<Vec<u32>>, unseen_row: bool) -> Result<Self> {
        let mut vocabulary = Self { unseen_row, ..Self::empty(columns.len()) };
        for (column, values) in columns.iter().enumerate() {
            for &value in values {
                let known = vocabulary.keys[column].len();
                if (vocabulary.insert(column, value) as usize) < known {
                    return Err(Error::config(
                        "vocabulary",
                        format!("column C{}: the value {value:08x} stands in it twice", column + 1),
                    ));
                }
            }
        }
        Ok(vocabulary)
    }

    /// The values of text columns in the order of their ids; columns whose rows do not depend on the data have none.
    #[must_use]
    pub fn of_texts(texts: Vec<Vec<Box<[u8]>>>) -> Self {
        Self { texts, ..Self::empty(0) }
    }

    /// The same, with or without a row for values that are not listed: the last of each column.
    #[must_use]
    pub fn with_unseen_row(self, unseen_row: bool) -> Self {
        Self { unseen_row, ..self }
    }

    /// As they were given to [`Vocabulary::of_texts`].
    #[must_use]
    pub fn texts(&self) -> &[Vec<Box<[u8]>>] {
        &self.texts
    }

    /// The values of each column in the order of their ids.
    #[must_use]
    pub fn columns(&self) -> &[Vec<u32>] {
        &self.keys
    }

    /// Whether each column has one more row, the last, for values that are not listed.
    #[must_use]
    pub fn unseen_row(&self) -> bool {
        self.unseen_row
    }

    /// Whether the values of a column have their rows by it: not where rows do not depend on the data.
    #[must_use]
    pub fn numbers(&self, column: usize) -> bool {
        match &self.texts[..] {
            [] => column < self.keys.len(),
            texts => texts.get(column).is_some_and(|values| !values.is_empty()),
        }
    }

    /// As [`Vocabulary::unseen_row`], of one column: none whose rows do not depend on the data has such a row.
    #[must_use]
    pub fn has_unseen_row(&self, column: usize) -> bool {
        self.unseen_row && self.numbers(column)
    }

    /// What tells the values of a column, in the order of their ids, from others, as the file of blocks' values tells
    /// it, and how many there are; nothing where rows do not depend on the data.
    pub(super) fn identity(&self, column: usize) -> Option<(u64, u64)> {
        self.numbers(column).then(|| match self.texts.get(column) {
            Some(texts) => {
                let values = texts.iter().map(|text| file::fingerprint(text));
                (file::identity_of(values, self.unseen_row), texts.len() as u64)
            }
            None => {
                let keys = &self.keys[column];
                (file::identity_of(keys.iter().copied(), self.unseen_row), keys.len() as u64)
            }
        })
    }

    /// Rows of every column's table, the row for unseen values included.
    #[must_use]
    pub fn rows(&self) -> Vec<u64> {
        self.keys.iter().map(|keys| keys.len() as u64 + u64::from(self.unseen_row)).collect()
    }

    /// The row of a value; `None` when it is not listed and there is no row for such values.
    #[must_use]
    #[inline]
    pub fn row(&self, column: usize, value: u32) -> Option<u32> {
        let unseen = self.unseen_row.then_some(self.keys[column].len() as u32);
        self.ids[column].get(value).or(unseen)
    }

    /// The id of a value, which is given the next one when it is new.
    #[inline]
    pub(super) fn insert(&mut self, column: usize, value: u32) -> u32 {
        let keys = &mut self.keys[column];
        let id = self.ids[column].get_or_insert(value, keys.len() as u32);
        if id as usize == keys.len() {
            keys.push(value);
        }
        id
    }

    /// Forgets all but the first values of each column.
    pub(super) fn keep_first(&mut self, counts: &[usize]) {
        let columns = self.keys.iter_mut().zip(&mut self.ids).zip(counts);
        for ((keys, ids), &count) in columns.filter(|((keys, _), count)| keys.len() > **count) {
            keys.truncate(count);
            *ids = KeyMap::new();
            for (id, &key) in (0..).zip(keys.iter()) {
                ids.get_or_insert(key, id);
            }
        }
    }
}

/// What data add to a column of a model's vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// The column's name.
    pub column: String,
    /// Values that the vocabulary had, and keeps; 0 in a column whose rows do not depend on the data.
    pub kept: u64,
    /// Those of them that these data do not have; nothing of blocks, whose values were numbered before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<u64>,
    /// Values that it had not.
    pub new: u64,
    /// Whether values that it does not list have one more row, the last.
    pub unseen_row: bool,
}

impl Growth {
    /// Rows of the column's table before, where nothing limited them.
    #[must_use]
    pub fn rows_before(&self) -> u64 {
        (self.kept + u64::from(self.unseen_row)).max(1)
    }

    /// Whether no training sample had the only row of the column's table before: it had no values, and none that are
    /// infrequent. Text has new values in a row of their own, where blocks have those that are infrequent in the last.
    #[must_use]
    pub fn had_nothing(&self) -> bool {
        self.kept == 0 && !(self.unseen_row && self.absent.is_none())
    }
}

/// In which row of a pass the values of each column first appear, by their ids.
pub(in crate::data) struct FirstSeen {
    /// Values of each column that were known before; they have the first ids.
    known: Vec<usize>,
    /// Of those, 0 once they are met, and before that [`ABSENT`].
    rows: Vec<Vec<u64>>,
}

/// In place of a row: a known value that was not met.
const ABSENT: u64 = u64::MAX;

impl FirstSeen {
    /// Of columns of which so many values are known before the pass.
    pub(in crate::data) fn of(known: Vec<usize>) -> Self {
        let rows = known.iter().map(|&known| vec![ABSENT; known]).collect();
        Self { known, rows }
    }

    /// Notes that row `row` has a value: of new ones the next id, or one that was noted before.
    #[inline]
    pub(in crate::data) fn note(&mut self, column: usize, id: usize, row: u64) {
        let rows = &mut self.rows[column];
        if id < self.known[column] {
            rows[id] = 0;
        } else if id == rows.len() {
            rows.push(row);
        }
    }

    /// How many values each column has with those that are known and, of the new ones, those that first appear in a row
    /// before `train`: new ids follow first appearance, so the values that only later rows have are the last ones.
    pub(in crate::data) fn kept(&self, train: u64) -> Vec<usize> {
        let columns = self.rows.iter().zip(&self.known);
        columns.map(|(rows, &known)| known + rows[known..].partition_point(|&row| row < train)).collect()
    }

    /// What a vocabulary of columns of these names has grown by, where as many values as `kept` says stay.
    pub(in crate::data) fn growth(
        &self,
        names: impl Iterator<Item = String>,
        kept: &[usize],
        unseen_row: bool,
    ) -> Vec<Growth> {
        let columns = names.zip(&self.known).zip(self.rows.iter().zip(kept));
        let column = |((column, &known), (rows, &kept)): ((String, &usize), (&Vec<u64>, &usize))| Growth {
            column,
            kept: known as u64,
            absent: Some(rows[..known].iter().filter(|row| **row == ABSENT).count() as u64),
            new: (kept - known) as u64,
            unseen_row,
        };
        columns.map(column).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unseen_values_take_the_last_row_or_none() {
        let columns = vec![vec![7, 0, u32::MAX], vec![]];
        let open = Vocabulary::from_columns(columns.clone(), true).unwrap();
        assert_eq!(open.rows(), [4, 1]);
        assert_eq!([7, 0, u32::MAX, 8].map(|value| open.row(0, value)), [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(open.row(1, 7), Some(0));
        let closed = Vocabulary::from_columns(columns.clone(), false).unwrap();
        assert_eq!((closed.row(0, 7), closed.row(0, 8), closed.row(1, 7)), (Some(0), None, None));
        assert_eq!(closed.columns(), columns);
        let message = Vocabulary::from_columns(vec![vec![1, 2, 1]], true).unwrap_err().to_string();
        assert_eq!(message, "vocabulary: column C1: the value 00000001 stands in it twice");
    }

    proptest! {
        #[test]
        fn ids_follow_the_order_of_first_appearance(values in proptest::collection::vec(0..300u32, 0..2000)) {
            let mut vocabulary = Vocabulary::empty(1);
            let mut expected = HashMap::new();
            for value in values {
                let value = value.wrapping_mul(0x9E37_79B9);
                let next = expected.len() as u32;
                let id = *expected.entry(value).or_insert(next);
                prop_assert_eq!(vocabulary.insert(0, value), id);
            }
            prop_assert_eq!(vocabulary.rows(), vec![expected.len() as u64]);
            let half = expected.len() / 2;
            vocabulary.keep_first(&[half]);
            let vocabulary = vocabulary.with_unseen_row(true);
            for (value, id) in expected {
                prop_assert_eq!(vocabulary.row(0, value), Some(id.min(half as u32)));
            }
            let again = Vocabulary::from_columns(vocabulary.columns().to_vec(), true).unwrap();
            prop_assert_eq!(again, vocabulary);
        }
    }
}
