//! Which rows are hot: a bit a row, or a whole table; and which inputs are.
//!
//! An input is hot when every row that it looks up is (the paper's section 4.2); an input without look-ups is hot.

use crate::data::{Bag, Batch};

/// The hot rows of all tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HotSet {
    tables: Vec<Hot>,
}

/// The hot rows of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hot {
    rows: u64,
    count: u64,
    /// A bit a row; nothing where all rows are hot.
    bits: Option<Vec<u64>>,
}

impl HotSet {
    /// No table yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { tables: Vec::new() }
    }

    /// The next table, hot as a whole.
    pub fn push_whole(&mut self, rows: u64) {
        self.tables.push(Hot { rows, count: rows, bits: None });
    }

    /// The next table, with these hot rows, each given once.
    ///
    /// # Panics
    /// When the table lacks one of them.
    pub fn push_some(&mut self, rows: u64, hot: impl Iterator<Item = u32>) {
        let mut bits = vec![0u64; rows.div_ceil(64) as usize];
        let mut count = 0;
        for row in hot {
            bits[row as usize / 64] |= 1 << (row % 64);
            count += 1;
        }
        self.tables.push(Hot { rows, count, bits: Some(bits) });
    }

    /// The next table, with the hot rows of one that is there.
    ///
    /// # Panics
    /// When there is no such table.
    pub fn push_again(&mut self, table: usize) {
        self.tables.push(self.tables[table].clone());
    }

    /// Those of the first tables.
    ///
    /// # Panics
    /// When there are not that many.
    #[must_use]
    pub fn first(&self, tables: usize) -> Self {
        Self { tables: self.tables[..tables].to_vec() }
    }

    /// How many tables there are.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    /// The number of a table's hot rows.
    #[must_use]
    pub fn rows(&self, table: usize) -> u64 {
        self.tables[table].count
    }

    /// The number of all rows of a table.
    #[must_use]
    pub fn all_rows(&self, table: usize) -> u64 {
        self.tables[table].rows
    }

    /// Whether all rows of a table are hot without being told one by one.
    #[must_use]
    pub fn is_whole(&self, table: usize) -> bool {
        self.tables[table].bits.is_none()
    }

    /// Whether a row is hot.
    ///
    /// # Panics
    /// When the table has no such row.
    #[must_use]
    pub fn contains(&self, table: usize, row: u32) -> bool {
        let Hot { rows, bits, .. } = &self.tables[table];
        assert!(u64::from(row) < *rows, "row {row} of {rows}");
        bits.as_ref().is_none_or(|bits| is_set(bits, row))
    }

    /// A table's hot rows, rising.
    pub fn iter(&self, table: usize) -> impl Iterator<Item = u32> + '_ {
        let Hot { rows, bits, .. } = &self.tables[table];
        (0..*rows as u32).filter(move |&row| bits.as_ref().is_none_or(|bits| is_set(bits, row)))
    }

    /// Tells of every input of a minibatch whether it is hot; returns how many are.
    ///
    /// # Panics
    /// When the minibatch has other tables, or rows that a table lacks (see [`Batch::check`]).
    pub fn classify(&self, batch: &Batch, hot: &mut Vec<bool>) -> usize {
        assert_eq!(batch.bags.len(), self.tables.len(), "a bag a table");
        hot.clear();
        hot.resize(batch.samples(), true);
        for (bag, table) in batch.bags.iter().zip(&self.tables) {
            if let Some(bits) = &table.bits {
                cool(bag, bits, hot);
            }
        }
        hot.iter().map(|&hot| usize::from(hot)).sum()
    }
}

/// Clears what is true of every sample that looks up a row without a bit.
fn cool(bag: &Bag, bits: &[u64], hot: &mut [bool]) {
    // Mostly every sample looks up one row; no branch depends on a row then.
    if bag.is_single(&(0..hot.len())) {
        hot.iter_mut().zip(&bag.rows).for_each(|(hot, &row)| *hot &= is_set(bits, row));
    } else {
        for (n, hot) in hot.iter_mut().enumerate() {
            *hot = *hot && bag.of(n).iter().all(|&row| is_set(bits, row));
        }
    }
}

fn is_set(bits: &[u64], row: u32) -> bool {
    bits[row as usize / 64] >> (row % 64) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Schema;

    #[test]
    fn an_input_is_hot_when_all_of_its_rows_are() {
        let mut set = HotSet::new();
        set.push_whole(5);
        set.push_some(130, [129, 3, 64].into_iter());
        assert_eq!((set.tables(), set.rows(0), set.rows(1)), (2, 5, 3));
        assert!(set.is_whole(0) && !set.is_whole(1));
        assert_eq!(set.iter(1).collect::<Vec<_>>(), [3, 64, 129]);
        assert_eq!(set.iter(0).count(), 5);
        assert_eq!([4, 64, 65, 129].map(|row| set.contains(1, row)), [false, true, false, true]);
        assert!(set.contains(0, 4));

        let batch = |inputs: &[&[u32]]| {
            let mut batch = Batch::new(&Schema::criteo(0, &[5, 130]));
            for rows in inputs {
                batch.labels.push(0.0);
                batch.bags[0].rows.push(2);
                batch.bags[1].rows.extend_from_slice(rows);
                batch.bags.iter_mut().for_each(Bag::close);
            }
            batch
        };
        let mut hot = vec![false; 9];
        assert_eq!(set.classify(&batch(&[&[3], &[4], &[129]]), &mut hot), 2);
        assert_eq!(hot, [true, false, true]);
        // As many look-ups as inputs, and yet not one each.
        assert_eq!(set.classify(&batch(&[&[3, 4], &[], &[129]]), &mut hot), 2);
        assert_eq!(hot, [false, true, true]);
        assert_eq!(set.classify(&batch(&[&[3, 64], &[64, 129, 5]]), &mut hot), 1);
        assert_eq!(hot, [true, false]);
        assert_eq!(set.classify(&batch(&[]), &mut hot), 0);
        assert!(hot.is_empty());
    }

    #[test]
    #[should_panic(expected = "row 130 of 130")]
    fn rows_that_a_table_lacks_are_no_answer() {
        let mut set = HotSet::new();
        set.push_some(130, std::iter::empty());
        let _ = set.contains(0, 130);
    }
}
