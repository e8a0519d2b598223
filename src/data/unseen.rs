//! How many categorical values readers meet that a model's vocabulary does not know, column by column.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Bag, Schema, Vocabulary};

/// The values of a column that a vocabulary numbers, and those of them that it does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnseenValues {
    /// The column's name.
    pub column: String,
    /// Values that readers have met.
    pub values: u64,
    /// Those of them without a row: each left its bag without it.
    pub left_out: u64,
    /// Those of them that have the row of all unseen values.
    pub shared: u64,
}

/// What the look-ups of a column of text do not show: values without a row, and blank fields that are taken for values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lost {
    /// Values without a row: each left its bag without it.
    pub values: u64,
    /// Samples that these have left without a look-up.
    pub emptied: u64,
    /// Blank fields that the vocabulary does not know, and that are taken for unseen values; lists have none.
    pub blanks: u64,
    /// Whether all blank fields are known by these, or by bags without a look-up, as those of lists are; otherwise they
    /// have a row.
    pub tells_blanks: bool,
}

impl Lost {
    /// Both together, of the same column.
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            values: self.values + other.values,
            emptied: self.emptied + other.emptied,
            blanks: self.blanks + other.blanks,
            tells_blanks: self.tells_blanks && other.tells_blanks,
        }
    }
}

/// Counts what is lost of a column.
#[derive(Debug, Default)]
pub(super) struct LostCounts {
    values: AtomicU64,
    emptied: AtomicU64,
    blanks: AtomicU64,
}

impl LostCounts {
    pub(super) fn add(&self, lost: Lost) {
        for (all, here) in [(&self.values, lost.values), (&self.emptied, lost.emptied), (&self.blanks, lost.blanks)] {
            if here > 0 {
                // Relaxed: counts that are read when all reading is done.
                all.fetch_add(here, Ordering::Relaxed);
            }
        }
    }

    /// What was counted, where blank fields count only if they have no row that is known.
    pub(super) fn told(&self, tells_blanks: bool) -> Lost {
        let [values, emptied, blanks] =
            [&self.values, &self.emptied, &self.blanks].map(|count| count.load(Ordering::Relaxed));
        Lost { values, emptied, blanks: if tells_blanks { blanks } else { 0 }, tells_blanks }
    }
}

/// Counts the values of columns.
pub(super) struct UnseenCounts(Vec<Count>);

struct Count {
    column: String,
    /// Whether a vocabulary numbers its values.
    numbered: bool,
    unseen_row: Option<u32>,
    /// Values with a row, and those of them with that of unseen values.
    met: AtomicU64,
    shared: AtomicU64,
}

impl UnseenCounts {
    /// Of columns whose values have their rows by this vocabulary, if by one.
    pub(super) fn of(schema: &Schema, known: Option<&Vocabulary>) -> Self {
        let schema = schema.clone().with_unseen_rows(known);
        let count = |(number, column): (usize, &super::Column)| Count {
            column: column.name.clone(),
            numbered: known.is_some_and(|known| known.numbers(number)),
            // A number of 32 bits, and never 0: the only row of a table is no row of unseen values.
            unseen_row: column.unseen().map(|row| row as u32),
            met: AtomicU64::new(0),
            shared: AtomicU64::new(0),
        };
        Self(schema.tables.iter().enumerate().map(count).collect())
    }

    /// Counts the rows that were appended to bags, each of which had so many before; `stand_ins` of the samples look up
    /// nothing but the first row of each table, for which there is no value.
    pub(super) fn count(&self, bags: &[Bag], before: &[usize], stand_ins: u64) {
        let numbered = self.0.iter().zip(bags.iter().zip(before)).filter(|(count, _)| count.numbered);
        for (count, (bag, &before)) in numbered {
            let rows = &bag.rows[before..];
            // Relaxed: counts that are read when all reading is done.
            count.met.fetch_add(rows.len() as u64 - stand_ins, Ordering::Relaxed);
            if let Some(unseen) = count.unseen_row {
                let shared = rows.iter().filter(|row| **row == unseen).count() as u64;
                count.shared.fetch_add(shared, Ordering::Relaxed);
            }
        }
    }

    /// What was counted, with how many values of each column had no row.
    pub(super) fn told(&self, left_out: impl Fn(usize) -> u64) -> Vec<UnseenValues> {
        let told = |(number, count): (usize, &Count)| {
            let (left_out, met) = (left_out(number), count.met.load(Ordering::Relaxed));
            let shared = count.shared.load(Ordering::Relaxed);
            UnseenValues { column: count.column.clone(), values: met + left_out, left_out, shared }
        };
        self.0.iter().enumerate().filter(|(_, count)| count.numbered).map(told).collect()
    }
}
