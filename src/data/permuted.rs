//! A data set with the values of one column exchanged among samples: what scores lose by that is what the model knows
//! by the column (permutation importance: Breiman, "Random forests", Machine Learning 45, 2001).

use std::sync::Arc;

use super::{Bag, Batch, Reader, Schema, Source, Split};
use crate::base::Result;
use crate::base::rng::{Random, Stream};

/// A column of the data, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// A dense one.
    Dense(usize),
    /// A categorical one.
    Categorical(usize),
}

impl Feature {
    /// All columns of a data set with their names, the dense ones first.
    pub fn all(source: &dyn Source) -> impl Iterator<Item = (String, Self)> {
        let (schema, dense) = (source.schema(), &source.about().dense_columns);
        let dense_name = move |n: usize| dense.get(n).map_or_else(|| format!("I{}", n + 1), |(name, _)| name.clone());
        let dense = (0..schema.dense).map(move |n| (dense_name(n), Self::Dense(n)));
        dense.chain(schema.names().into_iter().zip((0..).map(Self::Categorical)))
    }
}

/// The data set. A sample gets the value of another that is read together with it, so that with other ranks and
/// minibatches it may be that of another one.
pub struct Permuted {
    from: Arc<dyn Source>,
    feature: Feature,
}

impl Permuted {
    /// With the values of this column exchanged.
    pub fn new(from: Arc<dyn Source>, feature: Feature) -> Self {
        Self { from, feature }
    }
}

impl Source for Permuted {
    fn schema(&self) -> &Schema {
        self.from.schema()
    }

    fn samples(&self, split: Split) -> Option<u64> {
        self.from.samples(split)
    }

    fn made_of(&self) -> Option<&dyn Source> {
        Some(&*self.from)
    }

    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        let number = match self.feature {
            Feature::Dense(n) => n,
            Feature::Categorical(n) => self.from.schema().dense + n,
        };
        let random = Random::new(0, Stream::Permutation(number as u32));
        Ok(Box::new(Permuting { from: self.from.open(split, start)?, feature: self.feature, random, at: start }))
    }
}

/// A reader of such a data set.
struct Permuting<'a> {
    from: Box<dyn Reader + 'a>,
    feature: Feature,
    random: Random,
    /// The next sample's number.
    at: u64,
}

impl Permuting<'_> {
    /// Exchanges the values of the samples from `first` on.
    fn permute(&self, batch: &mut Batch, first: usize) {
        let mut order: Vec<usize> = (first..batch.samples()).collect();
        for n in (1..order.len()).rev() {
            order.swap(n, self.random.below(self.at + n as u64, n as u64 + 1) as usize);
        }
        match self.feature {
            Feature::Dense(column) => in_order(batch, column, &order),
            Feature::Categorical(column) => {
                look_ups_in_order(&mut batch.bags[column], &mut batch.weights[column], &order);
            }
        }
    }
}

/// Gives the last samples the values of these.
fn in_order(batch: &mut Batch, column: usize, order: &[usize]) {
    let (width, first) = (batch.dense_width, batch.samples() - order.len());
    let values: Vec<f32> = order.iter().map(|n| batch.dense[n * width + column]).collect();
    let of_column = batch.dense[first * width..].iter_mut().skip(column).step_by(width);
    of_column.zip(values).for_each(|(to, value)| *to = value);
}

/// Gives the last samples the look-ups of these, with their weights, if they have any.
fn look_ups_in_order(bag: &mut Bag, weights: &mut Vec<f32>, order: &[usize]) {
    let (from, from_weights) = (bag.clone(), weights.clone());
    let first = bag.samples() - order.len();
    let begin = bag.offsets[first] as usize;
    bag.offsets.truncate(first + 1);
    bag.rows.truncate(begin);
    weights.truncate(begin);
    for &n in order {
        let range = from.offsets[n] as usize..from.offsets[n + 1] as usize;
        weights.extend_from_slice(from_weights.get(range.clone()).unwrap_or_default());
        bag.rows.extend_from_slice(&from.rows[range]);
        bag.close();
    }
}

impl Reader for Permuting<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        let first = batch.samples();
        let count = self.from.read(batch, limit)?;
        self.permute(batch, first);
        self.at += count as u64;
        Ok(count)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let skipped = self.from.skip(count)?;
        self.at += skipped;
        Ok(skipped)
    }

    fn pick(&mut self, batch: &mut Batch, picks: &[u64]) -> Result<usize> {
        let first = batch.samples();
        let count = self.from.pick(batch, picks)?;
        self.permute(batch, first);
        self.at += picks.last().map_or(0, |last| last + 1);
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        self.from.bytes_read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{DataConfig, LookUps, SourceKind};

    #[test]
    fn one_columns_values_are_exchanged_and_nothing_else() {
        let config = DataConfig {
            source: SourceKind::Random,
            lookups: LookUps::Each(vec![3, 1]),
            lookups_fixed: false,
            ..DataConfig::default()
        };
        let plain: Arc<dyn Source> = Arc::new(super::super::Random::new(&config, &[41, 1000], 2).unwrap());
        let read = |source: &dyn Source| {
            let mut batch = Batch::new(source.schema());
            let mut reader = source.open(Split::Train, 3).unwrap();
            // In two pieces: what was exchanged stays.
            assert_eq!(reader.read(&mut batch, 20).unwrap() + reader.read(&mut batch, 30).unwrap(), 50);
            batch.check(source.schema()).unwrap();
            batch
        };
        let before = read(&*plain);
        // Bits of a column's values, sample by sample.
        let values = |batch: &Batch, feature: Feature| -> Vec<Vec<u32>> {
            let of = |n: usize| match feature {
                Feature::Dense(column) => vec![batch.dense[n * batch.dense_width + column].to_bits()],
                Feature::Categorical(column) => batch.bags[column].of(n).to_vec(),
            };
            (0..batch.samples()).map(of).collect()
        };
        let features: Vec<_> = Feature::all(&*plain).collect();
        let names: Vec<_> = features.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["I1", "I2", "C1", "C2"]);
        for (_, exchanged) in &features {
            let after = read(&Permuted::new(Arc::clone(&plain), *exchanged));
            assert_eq!(before.labels, after.labels);
            for (name, feature) in &features {
                let (mut old, mut new) = (values(&before, *feature), values(&after, *feature));
                assert_eq!(old == new, feature != exchanged, "{name}");
                for part in [0..20, 20..50] {
                    old[part.clone()].sort();
                    new[part].sort();
                }
                assert_eq!(old, new, "{name}");
            }
        }
    }

    #[test]
    fn weights_go_with_their_look_ups() {
        let mut bag = Bag { offsets: vec![0, 2, 2, 5, 6], rows: vec![7, 8, 1, 2, 3, 9] };
        let mut weights: Vec<f32> = bag.rows.iter().map(|row| *row as f32).collect();
        look_ups_in_order(&mut bag, &mut weights, &[2, 3, 1]);
        assert_eq!((&bag.offsets[..], &bag.rows[..]), (&[0, 2, 5, 6, 6][..], &[7, 8, 1, 2, 3, 9][..]));
        assert_eq!(weights, [7.0, 8.0, 1.0, 2.0, 3.0, 9.0]);
        look_ups_in_order(&mut bag, &mut weights, &[3, 2, 0, 1]);
        assert_eq!((&bag.offsets[..], &bag.rows[..]), (&[0, 0, 1, 3, 6][..], &[9, 7, 8, 1, 2, 3][..]));
        assert_eq!(weights, [9.0, 7.0, 8.0, 1.0, 2.0, 3.0]);
    }
}
