//! Samples of a split as the text has them.

use std::ops::Range;

use super::encoding::{Encoding, NO_ROW};
use super::{Lost, Tsv};
use crate::base::{Error, Result, interrupt};
use crate::data::{Description, Samples, Split, Stored, TakeStored, Vocabulary};

/// Samples that are handed over at a time.
const PORTION: usize = 1 << 12;

impl Tsv {
    /// As [`each_stored`](crate::data::Source::each_stored).
    pub(super) fn hand_stored(&self, split: Split, range: Range<u64>, take: &mut TakeStored<'_>) -> Result<()> {
        let mut description = Description::criteo(self.layout.dense, &self.encoding.rows());
        // A value without a row is no look-up.
        description.categorical.iter_mut().for_each(|column| column.hots = 0);
        let blanks = self.encoding.rows_of_blanks();
        let mut are_blank = vec![false; self.layout.categorical];
        let mut samples = Samples::new(&description);
        let mut reader = self.reader(split, range.start)?;
        let mut left = reader.left.min(range.end - range.start);
        while left > 0 {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            samples.clear();
            while left > 0 && samples.len() < PORTION {
                reader.next_row_as(|raw| are_blank.iter_mut().zip(raw).for_each(|(is, value)| *is = *value == 0))?;
                let row = &reader.rows.row;
                row.push(&mut samples, NO_ROW);
                let unseen = row.categories.iter().enumerate().filter(|(_, id)| **id == NO_ROW);
                unseen.for_each(|(column, _)| self.leave_out(column));
                for (lost, _) in self.lost.iter().zip(&are_blank).filter(|(_, is)| **is) {
                    lost.add(Lost { blanks: 1, ..Lost::default() });
                }
                left -= 1;
            }
            take(Stored { samples: &samples, description: &description, blanks: &blanks })?;
        }
        Ok(())
    }
}

impl Encoding {
    /// The row of a blank field of each column, where that is no other value's.
    fn rows_of_blanks(&self) -> Vec<Option<u32>> {
        match self {
            // A blank is 0.
            Self::Vocabulary { vocabulary, cap: None } => {
                let columns = 0..vocabulary.columns().len();
                columns.map(|column| known_row(vocabulary, column, 0)).collect()
            }
            Self::Vocabulary { .. } | Self::Modulo(_) => Vec::new(),
        }
    }

    /// Whether blank fields of a column have no row that the vocabulary knows, and are taken for an unseen value.
    pub(super) fn tells_blanks(&self, column: usize) -> bool {
        match self {
            Self::Vocabulary { vocabulary, cap: None } => known_row(vocabulary, column, 0).is_none(),
            Self::Vocabulary { .. } | Self::Modulo(_) => false,
        }
    }
}

/// The row of a value that is listed.
fn known_row(vocabulary: &Vocabulary, column: usize, value: u32) -> Option<u32> {
    let row = vocabulary.row(column, value)?;
    (vocabulary.columns()[column].get(row as usize) == Some(&value)).then_some(row)
}
