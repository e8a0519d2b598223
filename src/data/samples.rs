//! Rows between two formats: columns of what the log said, integers as integers, before any transform.
//!
//! Invariant ([`Samples::check`]): all columns have as many samples as there are labels. A [`super::Batch`] is made
//! from it by [`Batch::append`], which applies transforms.

use std::ops::Range;

use super::Batch;
use super::fill::{Features, Fill};
use super::schema::feature::Feature;
use super::schema::{A_WEIGHT, Description, is_weight};

/// An integer that the log lacks.
pub const MISSING: i32 = i32::MIN;

/// Some rows of a stored data set, column by column; cleared and filled again.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples {
    /// One label a sample.
    pub labels: Vec<f32>,
    /// One entry a dense column.
    pub dense: Vec<Values>,
    /// One entry a categorical column.
    pub lookups: Vec<Lookups>,
}

/// A dense column.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Integers; [`MISSING`] where there is none.
    Integers(Vec<i32>),
    /// Floats; NaN where there is none.
    Floats(Vec<f32>),
}

/// A categorical column.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lookups {
    /// Row numbers, sample after sample.
    pub rows: Vec<u32>,
    /// Where each sample's rows end, where their number differs from sample to sample; otherwise empty.
    pub ends: Vec<u32>,
    /// One weight a look-up, where the column has weights; otherwise empty.
    pub weights: Vec<f32>,
}

impl Values {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Floats(values) => values.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first of some values that is no weight of a sample, by its place among them, and what is wrong with it.
    pub(super) fn no_weight(&self, range: Range<usize>) -> Option<(usize, String)> {
        let Self::Floats(values) = self else { return None };
        let values = &values[range];
        let at = values.iter().position(|&weight| !is_weight(weight))?;
        let found = values[at];
        let found = if found.is_nan() { "none".to_owned() } else { found.to_string() };
        Some((at, format!("{A_WEIGHT} is expected, found {found}")))
    }

    /// The number that a sample has; nothing where it is missing.
    pub(super) fn number(&self, sample: usize) -> Option<f64> {
        match self {
            Self::Integers(values) => Some(values[sample]).filter(|value| *value != MISSING).map(f64::from),
            Self::Floats(values) => Some(values[sample]).filter(|value| !value.is_nan()).map(f64::from),
        }
    }

    /// The features that the values of some samples are, in place of what `features` holds.
    pub(super) fn features(&self, range: Range<usize>, to: Feature, features: &mut Vec<f32>) {
        features.resize(range.len(), 0.0);
        match self {
            Self::Integers(values) => to.integers(features.iter_mut().zip(values[range].iter().copied())),
            Self::Floats(values) => {
                features.iter_mut().zip(&values[range]).for_each(|(cell, &value)| *cell = to.float(value));
            }
        }
    }

    /// The feature that a sample's value is, for those who write them one by one.
    pub(super) fn feature(&self, sample: usize, to: Feature) -> f32 {
        match self {
            Self::Integers(values) => to.integer(values[sample]),
            Self::Floats(values) => to.float(values[sample]),
        }
    }
}

impl Lookups {
    /// Where the look-ups of samples `range` stand in `rows`.
    #[must_use]
    pub fn span(&self, range: &Range<usize>, hots: u32) -> Range<usize> {
        let place = |n: usize| match (hots, n) {
            (0, 0) => 0,
            (0, n) => self.ends[n - 1] as usize,
            (hots, n) => n * hots as usize,
        };
        place(range.start)..place(range.end)
    }

    /// The first look-up that is none of a table's `rows`, by its place in `self.rows`, and its sample.
    #[must_use]
    pub fn beyond(&self, hots: u32, rows: u64) -> Option<(usize, usize)> {
        // There hardly ever is one, and their maximum is found many at a time.
        if u64::from(self.rows.iter().copied().max()?) < rows {
            return None;
        }
        let at = self.rows.iter().position(|&row| u64::from(row) >= rows)?;
        let sample = match hots {
            0 => self.ends.partition_point(|&end| end as usize <= at),
            hots => at / hots as usize,
        };
        Some((at, sample))
    }
}

impl Samples {
    /// No samples of a data set.
    #[must_use]
    pub fn new(description: &Description) -> Self {
        let values = |float| if float { Values::Floats(Vec::new()) } else { Values::Integers(Vec::new()) };
        Self {
            labels: Vec::new(),
            dense: description.dense.iter().map(|column| values(column.float)).collect(),
            lookups: vec![Lookups::default(); description.categorical.len()],
        }
    }

    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Forgets all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.labels.clear();
        for column in &mut self.dense {
            match column {
                Values::Integers(values) => values.clear(),
                Values::Floats(values) => values.clear(),
            }
        }
        for column in &mut self.lookups {
            column.rows.clear();
            column.ends.clear();
            column.weights.clear();
        }
    }

    /// Appends samples `range` of another data set of the same description.
    ///
    /// # Panics
    /// When the columns differ in kind.
    pub fn extend_from(&mut self, from: &Self, range: Range<usize>, description: &Description) {
        from.hand_to(self, range, description);
    }

    /// Appends samples `range` of these to other columns.
    fn hand_to(&self, to: &mut impl Fill, range: Range<usize>, description: &Description) {
        to.begin(range.len());
        to.labels().extend_from_slice(&self.labels[range.clone()]);
        for (column, values) in self.dense.iter().enumerate() {
            match values {
                Values::Integers(values) => to.integers(column, values[range.clone()].iter().copied()),
                Values::Floats(values) => to.floats(column, values[range.clone()].iter().copied()),
            }
        }
        for (table, (lookups, column)) in self.lookups.iter().zip(&description.categorical).enumerate() {
            let span = lookups.span(&range, column.hots);
            if column.hots == 0 {
                to.ends(table, lookups.ends[range.clone()].iter().map(|end| end - span.start as u32));
            }
            let (rows, weights) = to.lookups(table);
            rows.extend_from_slice(&lookups.rows[span.clone()]);
            if column.weighted {
                weights.extend_from_slice(&lookups.weights[span]);
            }
        }
    }

    /// Checks every column's length and kind.
    ///
    /// # Panics
    /// When they contradict the description: a defect of whoever filled them.
    pub fn check(&self, description: &Description) {
        let samples = self.len();
        assert_eq!(self.dense.len(), description.dense.len(), "one column a dense feature");
        assert_eq!(self.lookups.len(), description.categorical.len(), "one column a table");
        for (values, column) in self.dense.iter().zip(&description.dense) {
            assert_eq!(values.len(), samples, "{}: one value a sample", column.name);
            assert_eq!(matches!(values, Values::Floats(_)), column.float, "{}: its kind", column.name);
        }
        for (lookups, column) in self.lookups.iter().zip(&description.categorical) {
            let name = &column.name;
            if column.hots == 0 {
                assert_eq!(lookups.ends.len(), samples, "{name}: one end a sample");
                assert!(lookups.ends.is_sorted(), "{name}: ends never fall");
                assert_eq!(lookups.ends.last().map_or(0, |&end| end as usize), lookups.rows.len(), "{name}: all rows");
            } else {
                assert_eq!(lookups.rows.len(), samples * column.hots as usize, "{name}: hots a sample");
                assert!(lookups.ends.is_empty(), "{name}: ends follow from hots");
            }
            let weights = if column.weighted { lookups.rows.len() } else { 0 };
            assert_eq!(lookups.weights.len(), weights, "{name}: one weight a look-up");
        }
    }
}

impl Batch {
    /// Appends samples, dense features transformed.
    ///
    /// # Panics
    /// When a column's scale is needed and was not learned.
    pub fn append(&mut self, samples: &Samples, description: &Description) {
        debug_assert_eq!(self.dense_width, samples.dense.len());
        samples.hand_to(&mut Features::new(self, description), 0..samples.len(), description);
    }
}
