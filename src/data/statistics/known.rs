//! What of a table a model has learned, as later data number it.

/// The rows of a table that a model has learned.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Those below this one.
    pub rows: u64,
    /// The row of unseen values, which was number `rows` then, where new rows stand before it now.
    pub moved: Option<u32>,
}

impl Known {
    /// All of them.
    pub(super) const ALL: Self = Self { rows: u64::MAX, moved: None };

    /// The number that a row had when the model learned it.
    pub(super) fn learned(self, row: u32) -> Option<u32> {
        if Some(row) == self.moved {
            u32::try_from(self.rows).ok()
        } else {
            Some(row).filter(|_| u64::from(row) < self.rows)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::samples::Lookups;
    use crate::data::statistics::CategoricalStatistics;

    #[test]
    fn the_row_of_unseen_values_is_known_where_it_has_moved() {
        let mut found =
            CategoricalStatistics { rows: vec![0, 3], counts: vec![0; 3], ..CategoricalStatistics::default() };
        let lookups = Lookups { rows: vec![0, 1, 3, 4, 5, 5], ..Lookups::default() };
        found.add(&lookups, 1, None, Known { rows: 3, moved: Some(5) });
        assert_eq!((found.counts, found.unseen), (vec![1, 2, 1], 2));
    }
}
