//! Where a text can be entered in the middle.

use super::Place;

/// Some good rows of a text, in order, and where each begins; none where it can only be read from its first line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Marks(Vec<(u64, Place)>);

impl Marks {
    /// Marks a good row that begins at `place`, unless one of the `every` rows before it is marked.
    pub fn add(&mut self, row: u64, place: Place, every: u64) {
        if self.0.last().is_none_or(|(last, _)| row >= last + every) {
            self.0.push((row, place));
        }
    }

    /// The last of them up to good row `row`.
    #[must_use]
    pub fn before(&self, row: u64) -> Option<(u64, Place)> {
        self.0[..self.0.partition_point(|(marked, _)| *marked <= row)].last().copied()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_entered_at_the_last_mark_up_to_a_row() {
        let (mut marks, place) = (Marks::default(), |row| Place { offset: 10 * row, lines: row });
        assert!(marks.is_empty() && marks.before(5).is_none());
        // The place of row 4 is not known.
        [0, 1, 2, 3, 5, 6, 7, 8, 9].into_iter().for_each(|row| marks.add(row, place(row), 4));
        assert!(!marks.is_empty());
        let marked = |row| marks.before(row).map(|(row, _)| row);
        assert_eq!([0, 3, 4, 5, 8, 9, 100].map(marked), [0, 0, 0, 5, 5, 9, 9].map(Some));
        assert_eq!(marks.before(6), Some((5, place(5))));
    }
}
