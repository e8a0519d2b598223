//! What the generated columns look like: missing rates, quantiles, cardinalities and skew.
//!
//! The figures are those of the Criteo display-advertising log's public sample (80,000 rows in time order).

/// An integer column.
#[derive(Debug, Clone, Copy)]
pub(super) struct IntegerShape {
    /// The share of samples that lack it.
    pub(super) missing: f64,
    /// Columns of one group lack their value together.
    pub(super) group: usize,
    /// Minimum, median, 90th and 99th percentile, maximum.
    pub(super) quantiles: [i64; 5],
}

/// A categorical column.
#[derive(Debug, Clone, Copy)]
pub(super) struct CategoryShape {
    /// The share of samples that lack it.
    pub(super) missing: f64,
    /// Columns of one group lack their value together.
    pub(super) group: usize,
    /// Distinct values, "missing" included.
    pub(super) rows: u64,
    /// The share of the samples that have a value which falls on the hottest 1 % of values.
    pub(super) hottest_share: f64,
}

/// Groups of columns that are missing together.
pub(super) const GROUPS: usize = 12;

const fn integer(missing: f64, group: usize, quantiles: [i64; 5]) -> IntegerShape {
    IntegerShape { missing, group, quantiles }
}

const fn category(missing: f64, group: usize, rows: u64, hottest_share: f64) -> CategoryShape {
    CategoryShape { missing, group, rows, hottest_share }
}

/// I1 to I13.
pub(super) const INTEGERS: [IntegerShape; 13] = [
    integer(0.445, 0, [0, 1, 9, 44, 556]),
    integer(0.0, 1, [-2, 3, 206, 2298, 18_522]),
    integer(0.191, 2, [0, 8, 61, 364, 65_535]),
    integer(0.194, 3, [0, 5, 21, 45, 417]),
    integer(0.048, 4, [0, 2214, 32_247, 275_158, 1_170_890]),
    integer(0.252, 5, [0, 38, 341, 1575, 16_290]),
    integer(0.047, 4, [0, 3, 31, 200, 8807]),
    integer(0.001, 6, [0, 8, 35, 48, 4352]),
    integer(0.047, 4, [0, 40, 310, 1248, 12_661]),
    integer(0.445, 0, [0, 1, 1, 3, 6]),
    integer(0.047, 4, [0, 1, 6, 23, 104]),
    integer(0.772, 7, [0, 0, 2, 15, 493]),
    integer(0.194, 3, [0, 5, 27, 76, 6558]),
];

/// C1 to C26.
pub(super) const CATEGORIES: [CategoryShape; 26] = [
    category(0.0, 1, 484, 0.80),
    category(0.0, 1, 491, 0.28),
    category(0.039, 8, 35_104, 0.38),
    category(0.039, 8, 20_746, 0.47),
    category(0.0, 1, 136, 0.67),
    category(0.137, 9, 12, 0.54),
    category(0.0, 1, 7220, 0.24),
    category(0.0, 1, 235, 0.76),
    category(0.0, 1, 3, 0.88),
    category(0.0, 1, 9833, 0.47),
    category(0.0, 1, 3674, 0.23),
    category(0.039, 8, 33_153, 0.40),
    category(0.0, 1, 2732, 0.23),
    category(0.0, 1, 26, 0.36),
    category(0.0, 1, 4804, 0.29),
    category(0.039, 8, 27_922, 0.43),
    category(0.0, 1, 9, 0.43),
    category(0.0, 1, 2375, 0.35),
    category(0.414, 10, 1221, 0.73),
    category(0.414, 10, 4, 0.37),
    category(0.039, 8, 31_058, 0.42),
    category(0.817, 11, 11, 0.52),
    category(0.0, 1, 14, 0.44),
    category(0.039, 8, 10_541, 0.58),
    category(0.414, 10, 49, 0.32),
    category(0.414, 10, 8167, 0.49),
];
