//! How a categorical value becomes a row number: through a vocabulary, or modulo the number of rows.
//!
//! `data.rows_cap` is applied before the vocabulary, as the reference's `--max-ind-range` is.

use std::sync::Arc;

use super::fault::Fault;
use crate::base::{Error, Result};
use crate::data::{OnUnseen, Vocabulary};

/// In place of a row number: the value has none. Tables have fewer rows than this.
pub(super) const NO_ROW: u32 = u32::MAX;

/// The mapping of every column.
#[derive(Debug, Clone)]
pub(super) enum Encoding {
    /// By the order of first appearance of the value, taken modulo `cap` if there is one.
    Vocabulary { vocabulary: Arc<Vocabulary>, cap: Option<u32> },
    /// The value modulo the number of rows of each column.
    Modulo(Vec<u32>),
}

/// `data.rows_cap` as a divisor; `None` where it cannot change a 32-bit value.
pub(super) fn cap(rows_cap: u64) -> Option<u32> {
    u32::try_from(rows_cap).ok().filter(|&cap| cap > 0)
}

impl Encoding {
    /// Sizes for hashing: the smaller of `rows_cap` and the model's rows, whichever are given.
    pub(super) fn modulo(columns: usize, rows_cap: u64, model_rows: &[u64]) -> Result<Self> {
        let fail = |reason: String| Err(Error::config("data.vocab = \"hash\"", reason));
        if model_rows.is_empty() && rows_cap == 0 {
            return fail("the number of rows must be given: set data.rows_cap (--rows-cap)".to_owned());
        }
        if !model_rows.is_empty() && model_rows.len() != columns {
            return fail(format!(
                "model.rows lists {} tables, the data has {columns} categorical columns",
                model_rows.len()
            ));
        }
        let limit = if rows_cap == 0 { u64::MAX } else { rows_cap };
        let rows = |column: usize| model_rows.get(column).copied().unwrap_or(u64::MAX).min(limit);
        // 2^32 rows and more leave every 32-bit value but the largest as it is.
        Ok(Self::Modulo((0..columns).map(|column| u32::try_from(rows(column)).unwrap_or(u32::MAX)).collect()))
    }

    /// The values behind row numbers, unless these are hashes.
    pub(super) fn vocabulary(&self) -> Option<&Arc<Vocabulary>> {
        match self {
            Self::Vocabulary { vocabulary, .. } => Some(vocabulary),
            Self::Modulo(_) => None,
        }
    }

    /// Rows of every column's table.
    pub(super) fn rows(&self) -> Vec<u64> {
        match self {
            Self::Vocabulary { vocabulary, .. } => vocabulary.rows(),
            Self::Modulo(rows) => rows.iter().copied().map(u64::from).collect(),
        }
    }

    /// Replaces the values of one row by their row numbers; `unseen` is what one without does.
    #[inline]
    pub(super) fn encode(&self, categories: &mut [u32], unseen: OnUnseen) -> std::result::Result<(), Fault> {
        match self {
            Self::Modulo(rows) => {
                for (value, &rows) in categories.iter_mut().zip(rows) {
                    *value %= rows;
                }
            }
            Self::Vocabulary { vocabulary, cap } => {
                let vocabulary = &**vocabulary;
                for (column, value) in categories.iter_mut().enumerate() {
                    let capped = cap.map_or(*value, |cap| *value % cap);
                    *value = match (vocabulary.row(column, capped), unseen) {
                        (Some(row), _) => row,
                        (None, OnUnseen::EmptyBag) => NO_ROW,
                        (None, OnUnseen::Reject) => return Err(Fault::Unseen { column: column + 1, value: capped }),
                    };
                }
            }
        }
        Ok(())
    }

    /// The row of a blank field of each column, where that is no other value's.
    pub(super) fn rows_of_blanks(&self) -> Vec<Option<u32>> {
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
