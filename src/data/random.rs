//! Random look-ups, dense features and labels: the load of the papers' benchmarks (DLRM, Naumov et al. 2019; SC20).
//!
//! Sample n is a pure function of (`data.seed`, n); training never ends. Unlike the reference's generator, which sorts
//! a bag and drops repeated indices, a bag here keeps every draw in its order: with `data.lookups_fixed` it has exactly
//! the table's `data.lookups` of them, as the bandwidth figures of the papers assume. Otherwise its size is uniform in
//! 1 to so many.

use super::planted::Generated;
use super::zipf::{Scatter, Zipf};
use super::{Batch, Reader, Schema, Source, Split};
use crate::base::config::{DataConfig, LookUps};
use crate::base::rng::{Random as Numbers, Stream};
use crate::base::{Error, Result};

/// The sample number of the first test sample: training never gets there.
const FIRST_TEST: u64 = 1 << 40;

/// Random samples without end.
pub struct Random {
    schema: Schema,
    common: Numbers,
    tables: Vec<RandomColumn>,
    fixed: bool,
    test_samples: u64,
}

struct RandomColumn {
    draws: Draws,
    lookups: u64,
}

/// The rows that samples look up in a table.
pub(super) struct Draws {
    numbers: Numbers,
    rows: u64,
    /// Frequency ranks, and where in the table they lie; nothing: uniform.
    skew: Option<(Zipf, Scatter)>,
}

impl Random {
    /// The same with these names of columns, if there are any.
    #[must_use]
    pub fn named(mut self, columns: &[String]) -> Self {
        self.schema = self.schema.named(columns);
        self
    }

    /// Look-ups into tables of `model_rows` rows, beside `dense` features.
    ///
    /// # Errors
    /// [`Error::Config`] when there are no tables, a table or bag without rows, or not a size of bags for each table.
    pub fn new(config: &DataConfig, model_rows: &[u64], dense: usize) -> Result<Self> {
        let fail = |origin: &str, reason: &str| Err(Error::config(origin, reason));
        if model_rows.is_empty() {
            return fail(
                "model.rows",
                "data.source = \"random\" draws rows of tables whose sizes the configuration has to name: start from a preset \
                 that names them, as --preset kaggle does, or give one for each table, e.g. --set model.rows=[1000,500]",
            );
        }
        if model_rows.iter().any(|&rows| rows == 0 || rows > u64::from(u32::MAX)) {
            return fail("model.rows", "every table needs 1 to 2^32 - 1 rows");
        }
        if config.lookups.counts().contains(&0) {
            return fail("data.lookups", "a bag needs at least 1 look-up");
        }
        if matches!(&config.lookups, LookUps::Each(counts) if counts.len() != model_rows.len()) {
            return fail("data.lookups", "there must be one for each of model.rows");
        }
        let rows: Vec<u64> = model_rows.iter().map(|rows| config.capped(*rows)).collect();
        let tables = (0u32..)
            .zip(&rows)
            .map(|(table, &rows)| RandomColumn {
                draws: Draws::new(config.seed, table, rows, config.zipf),
                lookups: config.lookups.of(table as usize) as u64,
            })
            .collect();
        Ok(Self {
            schema: Schema::criteo(dense, &rows).with_lookups(|table| config.lookups.of(table)),
            common: Numbers::new(config.seed, Stream::Sample(0)),
            tables,
            fixed: config.lookups_fixed,
            test_samples: config.test_samples,
        })
    }

    fn sample(&self, n: u64, batch: &mut Batch) {
        // A label, then four dense features a block.
        let dense = self.schema.dense;
        let first = n.wrapping_mul(1 + dense.div_ceil(4) as u64);
        batch.labels.push((self.common.block(first)[0] & 1) as f32);
        for (at, block) in (0..dense).step_by(4).zip(first + 1..) {
            // 24 bits are what an f32 in [0, 1) holds without rounding up to 1.
            let uniform = self.common.block(block).map(|word| (word >> 8) as f32 / 16_777_216.0);
            batch.dense.extend(&uniform[..(dense - at).min(4)]);
        }
        for (table, bag) in self.tables.iter().zip(&mut batch.bags) {
            let first = n.wrapping_mul(1 + table.lookups.div_ceil(2));
            let size = if self.fixed { table.lookups } else { 1 + table.draws.numbers.below(first, table.lookups) };
            table.draws.push(first + 1, size, &mut bag.rows);
            bag.close();
        }
    }
}

impl Draws {
    /// Of table number `table`, by a Zipf distribution, or uniform where its exponent is 0.
    pub(super) fn new(seed: u64, table: u32, rows: u64, zipf: f64) -> Self {
        let numbers = Numbers::new(seed, Stream::Column(table));
        let skew = (zipf > 0.0).then(|| (Zipf::new(rows, zipf), Scatter::new(rows, 7 * u64::from(table) + 1)));
        Self { numbers, rows, skew }
    }

    /// Appends `count` rows, two from each block of numbers from `first` on.
    #[inline]
    pub(super) fn push(&self, first: u64, count: u64, to: &mut Vec<u32>) {
        for pair in 0..count.div_ceil(2) {
            let rows = self.pair(first.wrapping_add(pair));
            to.extend(&rows[..(count - 2 * pair).min(2) as usize]);
        }
    }

    /// Two rows.
    #[inline]
    fn pair(&self, block: u64) -> [u32; 2] {
        match &self.skew {
            Some((zipf, scatter)) => self.numbers.uniform_pair(block).map(|uniform| scatter.row(zipf.rank(uniform))),
            None => {
                let [a, b, c, d] = self.numbers.block(block);
                let below = |high: u32, low: u32| {
                    let word = u64::from(high) << 32 | u64::from(low);
                    ((u128::from(word) * u128::from(self.rows)) >> 64) as u32
                };
                [below(a, b), below(c, d)]
            }
        }
    }
}

impl Source for Random {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, split: Split) -> Option<u64> {
        match split {
            Split::Train => None,
            Split::Validation => Some(0),
            Split::Test => Some(self.test_samples),
        }
    }

    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        let (next, left) = match split {
            Split::Train => (start, u64::MAX),
            Split::Validation => (FIRST_TEST, 0),
            Split::Test => match self.test_samples.checked_sub(start) {
                Some(left) => (FIRST_TEST + start, left),
                None => {
                    let reason = format!("sample {start} is asked for, but only {} exist", self.test_samples);
                    return Err(Error::config("data.test_samples", reason));
                }
            },
        };
        Ok(Box::new(Generated { push: |n, batch: &mut Batch| self.sample(n, batch), next, left }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &DataConfig, rows: &[u64], samples: usize) -> Batch {
        let source = Random::new(config, rows, 5).unwrap();
        let mut batch = Batch::new(source.schema());
        source.open(Split::Train, 0).unwrap().read(&mut batch, samples).unwrap();
        batch.check(source.schema()).unwrap();
        batch
    }

    #[test]
    fn fixed_bags_have_exactly_their_size_and_others_every_size() {
        let mut config = DataConfig { lookups: LookUps::Same(7), ..DataConfig::default() };
        let batch = read(&config, &[3, 1000], 5000);
        assert!((0..5000).all(|n| batch.bags.iter().all(|bag| bag.of(n).len() == 7)));
        let mean = batch.bags[1].rows.iter().map(|&row| f64::from(row)).sum::<f64>() / 35_000.0;
        assert!((mean - 499.5).abs() < 8.0, "{mean}");
        assert!(batch.dense.iter().all(|x| (0.0..1.0).contains(x)));
        let clicks: f32 = batch.labels.iter().sum();
        assert!((2300.0..2700.0).contains(&clicks) && batch.labels.iter().all(|&y| y == 0.0 || y == 1.0));
        config.lookups_fixed = false;
        let batch = read(&config, &[3, 1000], 5000);
        let mut sizes = [0u32; 8];
        (0..5000).for_each(|n| sizes[batch.bags[0].of(n).len()] += 1);
        assert!(sizes[0] == 0 && sizes[1..].iter().all(|&count| (550..900).contains(&count)), "{sizes:?}");
    }

    #[test]
    fn each_table_has_bags_of_its_own_size() {
        let config = DataConfig { lookups: LookUps::Each(vec![3, 1, 12]), ..DataConfig::default() };
        let batch = read(&config, &[50, 1000, 7], 200);
        let sizes = |n| [0, 1, 2].map(|table: usize| batch.bags[table].of(n).len());
        assert!((0..200).all(|n| sizes(n) == [3, 1, 12]));
        assert_eq!(Random::new(&config, &[50, 1000, 7], 5).unwrap().schema().longest(), 12);
        // A table's look-ups do not depend on other tables.
        let alone = read(&DataConfig { lookups: LookUps::Same(3), ..config.clone() }, &[50], 200);
        assert_eq!(alone.bags[0], batch.bags[0]);
        let message = Random::new(&config, &[50, 1000], 5).err().unwrap().to_string();
        assert_eq!(message, "data.lookups: there must be one for each of model.rows");
    }

    #[test]
    fn zipf_has_a_hot_row_that_is_not_row_0() {
        let config = DataConfig { lookups: LookUps::Same(10), zipf: 1.1, ..DataConfig::default() };
        let batch = read(&config, &[10_000], 5000);
        let mut counts = vec![0u32; 10_000];
        batch.bags[0].rows.iter().for_each(|&row| counts[row as usize] += 1);
        let hottest = (0..10_000).max_by_key(|&row| counts[row]).unwrap();
        let expected = 50_000.0 * Zipf::new(10_000, 1.1).share(1);
        assert!((f64::from(counts[hottest]) / expected - 1.0).abs() < 0.05 && hottest > 0);
    }

    #[test]
    fn tables_must_be_given() {
        let message = Random::new(&DataConfig::default(), &[], 1).err().unwrap().to_string();
        let told =
            "model.rows: data.source = \"random\" draws rows of tables whose sizes the configuration has to name: ";
        assert!(message.starts_with(told) && message.contains("--preset kaggle"), "{message}");
    }
}
