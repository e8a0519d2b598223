//! One generated sample before it is labelled: integers, and the frequency ranks of the categories.
//!
//! Sample n takes its random numbers from the n-th run of Philox blocks, so any sample is drawn at once.

use super::integers::Quantiles;
use super::shape::{CATEGORIES, GROUPS, INTEGERS};
use crate::base::rng::Random;
use crate::data::zipf::Zipf;

/// What was drawn; reused from sample to sample.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// `None`: missing.
    pub(super) integers: Vec<Option<i64>>,
    /// Rank 0 is the most frequent value; a missing one has the last rank of its column.
    pub(super) ranks: Vec<u32>,
    /// Which value has that rank when the sample is drawn, as that of the rank at first.
    pub(super) values: Vec<u32>,
    /// Uniform in [0, 1): a click when it is below the probability.
    pub(super) luck: f64,
}

/// How an integer column is drawn.
struct Integer {
    missing: f64,
    group: usize,
    quantiles: Quantiles,
}

/// How a categorical column is drawn.
struct Category {
    missing: f64,
    group: usize,
    /// The rank that stands for "missing".
    last: u32,
    values: Zipf,
}

/// Draws samples of one shape.
pub(super) struct Drawer {
    integers: Vec<Integer>,
    categories: Vec<Category>,
}

/// Blocks for what is drawn once a sample: luck, then four groups a block.
const COMMON_BLOCKS: u64 = 1 + GROUPS.div_ceil(4) as u64;

impl Drawer {
    /// `dense` integers and one category for each of `rows`; columns beyond Criteo's repeat its shapes.
    pub(super) fn new(dense: usize, rows: &[u64]) -> Self {
        let integers = INTEGERS.iter().cycle().take(dense).map(|shape| Integer {
            missing: shape.missing,
            group: shape.group,
            quantiles: Quantiles::new(shape),
        });
        let categories = CATEGORIES.iter().cycle().zip(rows).map(|(shape, &rows)| {
            // A table of one row has no room for two values.
            let missing = if rows > 1 { shape.missing } else { 0.0 };
            let values = if missing > 0.0 { rows - 1 } else { rows };
            Category {
                missing,
                group: shape.group,
                last: (rows - 1) as u32,
                values: Zipf::with_hottest_share(values, shape.hottest_share),
            }
        });
        Self { integers: integers.collect(), categories: categories.collect() }
    }

    /// Whether the last rank of a categorical column stands for a missing value.
    pub(super) fn has_missing(&self, column: usize) -> bool {
        self.categories[column].missing > 0.0
    }

    /// Draws sample `n` of a stream.
    pub(super) fn draw(&self, random: &Random, n: u64, sample: &mut Sample) {
        let blocks = COMMON_BLOCKS + self.integers.len().div_ceil(4) as u64 + self.categories.len().div_ceil(2) as u64;
        let mut block = n.wrapping_mul(blocks);
        let mut next = || {
            block = block.wrapping_add(1);
            block.wrapping_sub(1)
        };
        sample.luck = random.uniform(next());
        let mut absence = [0.0; GROUPS];
        for four in absence.chunks_mut(4) {
            four.copy_from_slice(&random.block(next()).map(unit));
        }
        sample.integers.clear();
        for four in self.integers.chunks(4) {
            let uniform = random.block(next()).map(unit);
            sample.integers.extend(four.iter().zip(uniform).map(|(column, uniform)| {
                (absence[column.group] >= column.missing).then(|| column.quantiles.at(uniform))
            }));
        }
        sample.ranks.clear();
        for two in self.categories.chunks(2) {
            let uniform = random.uniform_pair(next());
            sample.ranks.extend(two.iter().zip(uniform).map(|(column, uniform)| {
                if absence[column.group] < column.missing { column.last } else { column.values.rank(uniform) as u32 }
            }));
        }
        sample.values.clone_from(&sample.ranks);
    }
}

const _: () = assert!(GROUPS.is_multiple_of(4), "groups are drawn four at a time");

fn unit(word: u32) -> f64 {
    f64::from(word) * (1.0 / 4_294_967_296.0)
}
