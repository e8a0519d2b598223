//! How the values of text become row numbers: by a vocabulary, or by their bucket or hash.
//!
//! What [`Vocab`](crate::base::config::Vocab) says of Criteo's values holds for text alike: numbers follow first
//! appearance, and where only training samples count, all other values share one more row, the last. `data.rows_cap`
//! limits tables by taking numbers modulo it; the row of unseen values then stays the last, and has no known value.
//!
//! Where training begins with a model, new values of training samples get the numbers behind those that its vocabulary
//! has. Known values keep their rows, under `data.rows_cap` too: as long as numbers are taken modulo nothing, rows are
//! numbers, and from then on tables no longer grow.

use std::collections::HashMap;

use super::schema::{TextCategorical, TextSchema};
use super::shown;
use crate::base::{Error, Reason, Result};
use crate::data::vocabulary::FirstSeen;
use crate::data::{Growth, OnUnseen, Vocabulary};

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
    /// At most this many rows a table; 0: no limit.
    cap: u64,
    /// Where values first appear, while new ones still get numbers.
    learning: Option<FirstSeen>,
    /// Whether values were forgotten that had a number.
    forgot: bool,
    /// What a model's vocabulary has grown by, column by column; nothing where it cannot grow.
    growth: Vec<Growth>,
}

impl Encoding {
    /// By the vocabulary of a trained model, which is learned on if it `grows`, or by one that is learned.
    ///
    /// # Errors
    /// [`Error::Config`] when the vocabulary is of other columns, or has a value twice.
    pub(super) fn new(schema: &TextSchema, known: Option<&Vocabulary>, grows: bool, cap: u64) -> Result<Self> {
        let columns = schema.categorical.len();
        let (ids, bytes) = (vec![HashMap::new(); columns], vec![0; columns]);
        let empty = Self { ids, bytes, unseen_row: false, cap, learning: None, forgot: false, growth: Vec::new() };
        let Some(known) = known else {
            return Ok(Self { learning: Some(FirstSeen::of(vec![0; columns])), ..empty });
        };
        if known.texts().len() != columns {
            let reason = format!(
                "it has {} columns of text, the schema has {columns}: it belongs to a model of other data",
                known.texts().len()
            );
            return Err(Error::config("vocabulary", reason));
        }
        let ids: Vec<HashMap<Box<[u8]>, u32>> =
            known.texts().iter().map(|values| values.iter().cloned().zip(0..).collect()).collect();
        let mut columns = ids.iter().zip(known.texts()).zip(&schema.categorical);
        if let Some(((ids, values), spec)) = columns.find(|((ids, values), _)| ids.len() < values.len()) {
            // Of equal values the last one's number is there.
            let twice = values.iter().zip(0..).find(|(value, id)| ids.get(&value[..]) != Some(id));
            let value = twice.map(|(value, _)| shown(value)).unwrap_or_default();
            let reason = format!(
                "column {}: the value \"{value}\" stands in it twice: use vocabulary.safetensors as the run has written it",
                spec.name()
            );
            return Err(Error::config("vocabulary", reason));
        }
        let bytes = known.texts().iter().map(|values| values.iter().map(|value| value.len() as u64).sum()).collect();
        let learning = grows.then(|| FirstSeen::of(known.texts().iter().map(Vec::len).collect()));
        Ok(Self { ids, bytes, unseen_row: known.unseen_row(), learning, ..empty })
    }

    /// Gives the new values of a good row their numbers; `number` is that of the row.
    ///
    /// # Errors
    /// When the values of the column are more text than a vocabulary holds.
    pub(super) fn learn(&mut self, column: usize, value: &[u8], number: u64) -> std::result::Result<(), String> {
        let Some(seen) = &mut self.learning else { return Ok(()) };
        let ids = &mut self.ids[column];
        if let Some(&id) = ids.get(value) {
            seen.note(column, id as usize, number);
            return Ok(());
        }
        self.bytes[column] += value.len() as u64;
        if self.bytes[column] > MOST_BYTES {
            return Err(
                "its different values are more than 4 GiB of text, which no vocabulary holds: give the column \
                        rows in the schema, by which its values are hashed, or leave it out"
                    .to_owned(),
            );
        }
        seen.note(column, ids.len(), number);
        ids.insert(value.into(), ids.len() as u32);
        Ok(())
    }

    /// Whether new values get numbers.
    pub(super) fn learns(&self) -> bool {
        self.learning.is_some()
    }

    /// Ends learning. New values that only rows from `train` on have are forgotten.
    fn keep_before(&mut self, train: u64) -> Option<(FirstSeen, Vec<usize>)> {
        let seen = self.learning.take()?;
        let kept = seen.kept(train);
        for (ids, &kept) in self.ids.iter_mut().zip(&kept) {
            if ids.len() > kept {
                self.forgot = true;
                ids.retain(|_, id| (*id as usize) < kept);
            }
        }
        Some((seen, kept))
    }

    /// Ends learning. Values that only rows from `train` on have are forgotten, and get one more row with all unseen
    /// ones.
    pub(super) fn share_from(&mut self, train: u64) {
        self.unseen_row |= self.keep_before(train).is_some();
    }

    /// Ends learning what a model's vocabulary lacks: it has grown by the values of rows before `train`, and does with
    /// all others what it has done.
    pub(super) fn grow_before(&mut self, train: u64, schema: &TextSchema) {
        let Some((seen, kept)) = self.keep_before(train) else { return };
        let names = schema.categorical.iter().map(|column| column.name().to_owned());
        self.growth = seen.growth(names, &kept, self.unseen_row);
    }

    /// Whether values were forgotten that have no row now.
    pub(super) fn leaves_out(&self) -> bool {
        self.forgot && !self.unseen_row
    }

    /// What a model's vocabulary has grown by, column by column; nothing where it cannot grow.
    pub(super) fn growth(&self) -> &[Growth] {
        &self.growth
    }

    /// Ends learning, with all values.
    pub(super) fn keep_all(&mut self) {
        self.learning = None;
    }

    /// Whether a value of a column has a number.
    pub(super) fn knows(&self, column: usize, value: &[u8]) -> bool {
        self.ids[column].contains_key(value)
    }

    /// Rows of a column's table, and whether a value may have none of them; `unseen` is what one without does.
    pub(super) fn table(&self, column: usize, spec: &TextCategorical, unseen: OnUnseen) -> (u64, bool) {
        let leaves_out = unseen == OnUnseen::EmptyBag && !self.unseen_row;
        (self.rows(column, spec), leaves_out && spec.fixed_rows().is_none())
    }

    /// Rows of a column's table.
    fn rows(&self, column: usize, spec: &TextCategorical) -> u64 {
        let rows = self.ids[column].len() as u64 + u64::from(self.unseen_row);
        spec.fixed_rows().unwrap_or(if self.cap == 0 { rows } else { rows.min(self.cap) }).max(1)
    }

    /// The row of a value; nothing where it has none and that is no fault, as `unseen` says.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub(super) fn row(
        &self,
        column: usize,
        spec: &TextCategorical,
        value: &[u8],
        unseen: OnUnseen,
    ) -> std::result::Result<Option<u32>, Reason> {
        if spec.fixed_rows().is_some() {
            return Ok(Some(spec.fixed_row(value)?));
        }
        if self.learning.is_some() {
            return Ok(Some(0));
        }
        // Fewer than 2^32: numbers are 32 bits wide.
        let last = self.rows(column, spec) as u32 - 1;
        match (self.ids[column].get(value), unseen) {
            (Some(&id), _) if self.unseen_row => Ok(Some(id % last.max(1))),
            (Some(&id), _) => Ok(Some(id % (last + 1))),
            (None, _) if self.unseen_row => Ok(Some(last)),
            (None, OnUnseen::EmptyBag) => Ok(None),
            (None, OnUnseen::Reject) => Err(Reason::with_remedy(format!(
                "column {}: the value \"{}\" is not in the vocabulary, which has no row for unseen values: is it other data \
                 than the model was trained on, or has the file changed since it was opened? Leave such rows out with \
                 --on-bad-row skip; if new values are to be expected, begin another run with this one's weights (--init RUN \
                 --out NEW), which gives them rows",
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
        if own && spec.separator.is_none() { self.row(column, spec, b"", OnUnseen::EmptyBag).ok()? } else { None }
    }

    /// Whether blank fields have no row that the vocabulary knows: those of lists look up none, others are taken for an
    /// unseen value.
    pub(super) fn tells_blanks(&self, column: usize, spec: &TextCategorical) -> bool {
        spec.separator.is_some() || spec.fixed_rows().is_none() && !self.knows(column, b"")
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
        let mut encoding = Encoding::new(&schema, None, false, 0).unwrap();
        encoding.bytes[0] = MOST_BYTES - 3;
        assert_eq!(encoding.learn(0, b"abc", 0), Ok(()));
        assert_eq!(encoding.learn(0, b"abc", 1), Ok(()), "it is known");
        let told = encoding.learn(0, b"d", 2).unwrap_err();
        assert!(told.contains("more than 4 GiB of text"), "{told}");
    }
}
