//! How the values of text become row numbers: by a vocabulary, or by their bucket or hash.
//!
//! What [`Vocab`](crate::base::config::Vocab) says of Criteo's values holds for text alike: numbers follow first
//! appearance, and where only training samples count, all other values share one more row, the last. `data.rows_cap`
//! limits tables by taking numbers modulo it; the row of unseen values then stays the last, and has no known value.

use std::collections::HashMap;

use super::schema::{TextCategorical, TextSchema};
use super::shown;
use crate::base::{Error, Reason, Result};
use crate::data::Vocabulary;
use crate::data::tsv::{OnUnseen, first_rows_below};

/// Text of a column's values in a vocabulary, whose file has 32 bits for where each ends.
const MOST_BYTES: u64 = u32::MAX as u64;

/// The row numbers of every column's values.
pub(super) struct Encoding {
    /// Empty for a column whose rows do not depend on the data.
    ids: Vec<HashMap<Box<[u8]>, u32>>,
    /// Bytes of the values that were learned of every column.
    bytes: Vec<u64>,
    /// Whether values without a number share one more row.
    unseen_row: bool,
    unseen: OnUnseen,
    /// At most this many rows a table; 0: no limit.
    cap: u64,
    /// Whether new values still get numbers, and the row of each one's first appearance, if that is asked for.
    learning: Option<Vec<Vec<u64>>>,
}

impl Encoding {
    /// By the vocabulary of a trained model, or by one that is learned.
    ///
    /// # Errors
    /// [`Error::Config`] when the vocabulary is of other columns.
    pub(super) fn new(schema: &TextSchema, known: Option<&Vocabulary>, unseen: OnUnseen, cap: u64) -> Result<Self> {
        let columns = schema.categorical.len();
        let (ids, bytes) = (vec![HashMap::new(); columns], vec![0; columns]);
        let empty = Self { ids, bytes, unseen_row: false, unseen, cap, learning: None };
        let Some(known) = known else { return Ok(Self { learning: Some(vec![Vec::new(); columns]), ..empty }) };
        if known.texts().len() != columns {
            let reason = format!(
                "it has {} columns of text, the schema has {columns}: it belongs to a model of other data",
                known.texts().len()
            );
            return Err(Error::config("vocabulary", reason));
        }
        let ids = known.texts().iter().map(|values| values.iter().cloned().zip(0..).collect()).collect();
        Ok(Self { ids, unseen_row: known.unseen_row(), ..empty })
    }

    /// Gives the new values of a good row their numbers; `number` is that of the row.
    ///
    /// # Errors
    /// When the values of the column are more text than a vocabulary holds.
    pub(super) fn learn(&mut self, column: usize, value: &[u8], number: u64) -> std::result::Result<(), String> {
        let Some(seen) = &mut self.learning else { return Ok(()) };
        let ids = &mut self.ids[column];
        if !ids.contains_key(value) {
            self.bytes[column] += value.len() as u64;
            if self.bytes[column] > MOST_BYTES {
                return Err(
                    "its different values are more than 4 GiB of text, which no vocabulary holds: give the column \
                            rows in the schema, by which its values are hashed, or leave it out"
                        .to_owned(),
                );
            }
            ids.insert(value.into(), ids.len() as u32);
            seen[column].push(number);
        }
        Ok(())
    }

    /// Whether new values get numbers.
    pub(super) fn learns(&self) -> bool {
        self.learning.is_some()
    }

    /// Ends learning. Values that only rows from `train` on have are forgotten, and get one more row with all unseen
    /// ones.
    pub(super) fn keep_before(&mut self, train: u64) {
        let Some(seen) = self.learning.take() else { return };
        for (ids, kept) in self.ids.iter_mut().zip(first_rows_below(&seen, train)) {
            ids.retain(|_, id| (*id as usize) < kept);
        }
        self.unseen_row = true;
    }

    /// Ends learning, with all values.
    pub(super) fn keep_all(&mut self) {
        self.learning = None;
    }

    /// Whether a value of a column has a number.
    pub(super) fn knows(&self, column: usize, value: &[u8]) -> bool {
        self.ids[column].contains_key(value)
    }

    /// Rows of a column's table, and whether a value may have none of them.
    pub(super) fn table(&self, column: usize, spec: &TextCategorical) -> (u64, bool) {
        let leaves_out = self.unseen == OnUnseen::EmptyBag && !self.unseen_row;
        (self.rows(column, spec), leaves_out && spec.fixed_rows().is_none())
    }

    /// Rows of a column's table.
    fn rows(&self, column: usize, spec: &TextCategorical) -> u64 {
        let rows = self.ids[column].len() as u64 + u64::from(self.unseen_row);
        spec.fixed_rows().unwrap_or(if self.cap == 0 { rows } else { rows.min(self.cap) }).max(1)
    }

    /// The row of a value; nothing where it has none and that is no fault.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub(super) fn row(
        &self,
        column: usize,
        spec: &TextCategorical,
        value: &[u8],
    ) -> std::result::Result<Option<u32>, Reason> {
        if spec.fixed_rows().is_some() {
            return Ok(Some(spec.fixed_row(value)?));
        }
        if self.learning.is_some() {
            return Ok(Some(0));
        }
        // Fewer than 2^32: numbers are 32 bits wide.
        let last = self.rows(column, spec) as u32 - 1;
        match (self.ids[column].get(value), self.unseen) {
            (Some(&id), _) if self.unseen_row => Ok(Some(id % last.max(1))),
            (Some(&id), _) => Ok(Some(id % (last + 1))),
            (None, _) if self.unseen_row => Ok(Some(last)),
            (None, OnUnseen::EmptyBag) => Ok(None),
            (None, OnUnseen::Reject) => Err(Reason::with_remedy(format!(
                "column {}: the value \"{}\" is not in the vocabulary, which has no row for unseen values: is it other data \
                 than the model was trained on, or has the file changed since it was opened? Leave such rows out with \
                 --on-bad-row skip, or train another model with data.vocab = \"train\", if new values are to be expected",
                spec.column,
                shown(value)
            ))),
        }
    }

    /// The row of a blank field, where that is no other value's: lists have none, and hashes share theirs.
    pub(super) fn row_of_blank(&self, column: usize, spec: &TextCategorical) -> Option<u32> {
        let own = match spec.fixed_rows() {
            Some(_) => spec.rows == 0,
            None => self.cap == 0 && self.knows(column, b""),
        };
        if own && spec.separator.is_none() { self.row(column, spec, b"").ok()? } else { None }
    }

    /// The values behind row numbers.
    pub(super) fn vocabulary(&self) -> Vocabulary {
        let column = |ids: &HashMap<Box<[u8]>, u32>| {
            let mut values = vec![Box::default(); ids.len()];
            ids.iter().for_each(|(value, &id)| values[id as usize] = value.clone());
            values
        };
        Vocabulary::of_texts(self.ids.iter().map(column).collect()).with_unseen_row(self.unseen_row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_more_text_than_a_vocabulary_holds_are_an_error() {
        let column = TextCategorical { column: "url".to_owned(), ..TextCategorical::default() };
        let schema = TextSchema {
            label: "label".to_owned(),
            weight: None,
            delimiter: ',',
            columns: Vec::new(),
            missing: Vec::new(),
            dense: Vec::new(),
            categorical: vec![column],
        };
        let mut encoding = Encoding::new(&schema, None, OnUnseen::Reject, 0).unwrap();
        encoding.bytes[0] = MOST_BYTES - 3;
        assert_eq!(encoding.learn(0, b"abc", 0), Ok(()));
        assert_eq!(encoding.learn(0, b"abc", 1), Ok(()), "it is known");
        let told = encoding.learn(0, b"d", 2).unwrap_err();
        assert!(told.contains("more than 4 GiB of text"), "{told}");
    }
}
