//! Where a hot row lies among the hot rows of its table: what a copy of them is looked up by.
//!
//! Every look-up of a step asks whether its row is hot, at random places, so that one answer reads one cache line: for
//! 32 rows a bit each, and beside them how many hot rows lie before these 32.

use twox_hash::XxHash3_64;

use super::HotSet;

/// Rows that one word of bits tells of.
const ROWS: usize = u32::BITS as usize;

/// The places of the hot rows of all tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotSlots {
    tables: Vec<TableSlots>,
}

/// Those of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSlots {
    /// The hot rows, rising; a row's slot is its place among them.
    rows: Vec<u32>,
    /// For so many rows each, their bits, and the number of hot rows before them; nothing where all rows are hot.
    words: Option<Vec<[u32; 2]>>,
}

impl HotSlots {
    /// Of these hot rows.
    #[must_use]
    pub fn new(set: &HotSet) -> Self {
        let tables = (0..set.tables()).map(|table| TableSlots::new(set, table)).collect();
        Self { tables }
    }

    /// What tells these rows from all others: the XXH3 of all tables' rows.
    #[must_use]
    pub fn digest(&self) -> String {
        let add = |digest: u64, TableSlots { rows, .. }: &TableSlots| {
            let digest = XxHash3_64::oneshot_with_seed(digest, &(rows.len() as u64).to_le_bytes());
            XxHash3_64::oneshot_with_seed(digest, bytemuck::cast_slice(rows))
        };
        format!("{:016x}", self.tables.iter().fold(0, add))
    }

    /// How many tables there are.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    /// How many hot rows there are.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows.len() as u64).sum()
    }

    /// How many of them are not hot in others of the same tables.
    ///
    /// # Panics
    /// When the tables differ.
    #[must_use]
    pub fn missing_in(&self, other: &Self) -> u64 {
        assert_eq!(self.tables.len(), other.tables.len(), "hot rows of the same tables");
        let missing = |(own, other): (&TableSlots, &TableSlots)| {
            own.rows.iter().filter(|row| other.slot(**row).is_none()).count()
        };
        self.tables.iter().zip(&other.tables).map(missing).sum::<usize>() as u64
    }

    /// Those of one table.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    pub fn table(&self, table: usize) -> &TableSlots {
        &self.tables[table]
    }
}

impl TableSlots {
    fn new(set: &HotSet, table: usize) -> Self {
        let rows: Vec<u32> = set.iter(table).collect();
        if set.is_whole(table) {
            return Self { rows, words: None };
        }
        let mut words = vec![[0u32; 2]; (set.all_rows(table) as usize).div_ceil(ROWS)];
        rows.iter().for_each(|row| words[*row as usize / ROWS][0] |= 1 << (row % u32::BITS));
        let mut before = 0;
        for [bits, count] in &mut words {
            *count = before;
            before += bits.count_ones();
        }
        Self { rows, words: Some(words) }
    }

    /// The hot rows, rising: the row of each slot.
    #[must_use]
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// The slot of a row; `None` when the row is not hot.
    ///
    /// # Panics
    /// When the table has no such row and not all of its rows are hot.
    #[inline(always)]
    #[must_use]
    pub fn slot(&self, row: u32) -> Option<u32> {
        let Some(words) = &self.words else { return Some(row) };
        let ([bits, before], bit) = (words[row as usize / ROWS], row % u32::BITS);
        if bits >> bit & 1 == 0 {
            return None;
        }
        Some(before + (bits & ((1 << bit) - 1)).count_ones())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_count_the_hot_rows_before() {
        let mut set = HotSet::new();
        let hot = [0u32, 3, 31, 32, 63, 64, 95, 96, 129];
        set.push_some(130, hot.into_iter());
        set.push_whole(5);
        set.push_some(40, std::iter::empty());
        let slots = HotSlots::new(&set);
        let [some, whole, none] = [0, 1, 2].map(|table| slots.table(table));
        assert_eq!(
            (slots.tables(), some.rows(), whole.rows(), none.rows()),
            (3, &hot[..], &[0, 1, 2, 3, 4][..], &[][..])
        );
        for row in 0..130 {
            let place = hot.iter().position(|other| *other == row).map(|place| place as u32);
            assert_eq!(some.slot(row), place, "row {row}");
        }
        let mut fewer = HotSet::new();
        fewer.push_some(130, [0, 4, 129].into_iter());
        (1..3).for_each(|table| fewer.push_some(set.all_rows(table), std::iter::empty()));
        let fewer = HotSlots::new(&fewer);
        assert_eq!((slots.rows(), slots.missing_in(&fewer), fewer.missing_in(&slots)), (14, 12, 1));
        assert_ne!(slots.digest(), HotSlots::new(&HotSet::new()).digest());
        assert_eq!((whole.slot(4), none.slot(39)), (Some(4), None));
    }
}
