//! The columns of a wide part (Cheng et al. 2016): those of the data once more, for tables of one column, and crosses
//! of them.
//!
//! A cross has a look-up for each combination of one look-up of each of its columns, the last column's varying fastest,
//! and so none where one of them has none. Combinations are hashed to the rows of the cross's table: [`bucket`].

use super::derived::DerivedColumns;
use super::{Bag, Batch, Column, Schema};
use crate::base::config::ModelConfig;
use crate::base::error::nearest;
use crate::base::rng::spread;
use crate::base::{Error, Result};

/// Most look-ups that a sample has in a cross: bags of 100 values in three columns would make a million.
const COMBINATIONS_MOST: usize = 1 << 16;

/// For so many look-ups of a sample in a column of long bags or a cross of such there is room from the beginning; those
/// that have more allocate when they come.
pub(super) const EXPECTED_MOST: usize = 1 << 10;

/// How many combinations so many look-ups of some columns have, if not too many.
fn combinations(mut lookups: impl Iterator<Item = usize>) -> Option<usize> {
    let count = lookups.try_fold(1usize, usize::checked_mul);
    count.filter(|count| *count <= COMBINATIONS_MOST)
}

/// Which columns follow those of the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WideColumns {
    /// Columns of the data.
    columns: usize,
    /// The columns of each cross, by number.
    crosses: Vec<Vec<usize>>,
    /// Rows of the table of each cross.
    buckets: u64,
}

impl WideColumns {
    /// Those that a model adds to these columns; none where it has no wide part.
    ///
    /// # Errors
    /// [`Error::Config`] when a cross names a column that is not there.
    pub fn of(model: &ModelConfig, schema: &Schema) -> Result<Option<Self>> {
        if !model.wide {
            return Ok(None);
        }
        let names = || schema.tables.iter().map(|column| column.name.as_str());
        let number = |name: &String| {
            names().position(|known| known == name).ok_or_else(|| {
                let meant = nearest(name, names()).map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
                let reason = format!(
                    "unknown categorical column `{name}`{meant}; one of: {}: cross columns that are there, or none with \
                     --set model.wide_crosses=[]",
                    names().collect::<Vec<_>>().join(", ")
                );
                Error::config("model.wide_crosses", reason)
            })
        };
        let crosses = model.wide_crosses.iter().map(|cross| cross.iter().map(number).collect());
        let crosses = crosses.collect::<Result<_>>()?;
        Ok(Some(Self { columns: schema.tables.len(), crosses, buckets: model.wide_buckets }))
    }

    /// Adds the combinations of a sample.
    fn cross(
        &self,
        columns: &[usize],
        (bags, weights): (&[Bag], &[Vec<f32>]),
        sample: usize,
        (to, to_weights): (&mut Bag, &mut Vec<f32>),
    ) -> Result<()> {
        let count = combinations(columns.iter().map(|&column| bags[column].of(sample).len()));
        let count = count.ok_or_else(|| Error::config("model.wide_crosses", format!(
                "a sample has more than {COMBINATIONS_MOST} combinations in the cross of columns {columns:?} (counted from 0): \
                 cross columns with fewer values a sample"
            )))?;
        let weighted = columns.iter().any(|&column| !weights[column].is_empty());
        for number in 0..count {
            // The digits of the combination's number, the first column's first.
            let (mut hash, mut weight, mut left) = (0, 1.0, count);
            for &column in columns {
                let bag = &bags[column];
                left /= bag.of(sample).len();
                let at = bag.offsets[sample] as usize + number / left % bag.of(sample).len();
                hash = mixed(hash, bag.rows[at]);
                if let Some(own) = weights[column].get(at) {
                    weight *= own;
                }
            }
            to.rows.push((hash % self.buckets) as u32);
            if weighted {
                to_weights.push(weight);
            }
        }
        Ok(())
    }
}

impl DerivedColumns for WideColumns {
    fn of_data(&self) -> usize {
        self.columns
    }

    fn adds_only(&self) -> bool {
        true
    }

    fn schema(&self, of: &Schema) -> Schema {
        let name = |columns: &[usize]| {
            let names: Vec<_> = columns.iter().map(|&column| of.tables[column].name.as_str()).collect();
            format!("wide {}", names.join(" x "))
        };
        let single = of.tables.iter().enumerate();
        let single = single.map(|(at, column)| Column { name: name(&[at]), ..column.clone() });
        let crosses = self.crosses.iter().map(|cross| Column {
            name: name(cross),
            rows: self.buckets,
            weighted: cross.iter().any(|&column| of.tables[column].weighted),
            lookups: combinations(cross.iter().map(|&column| of.tables[column].lookups))
                .map_or(EXPECTED_MOST, |count| count.min(EXPECTED_MOST)),
            unseen_row: false,
        });
        Schema {
            dense: of.dense,
            weighted: of.weighted,
            tables: of.tables.iter().cloned().chain(single).chain(crosses).collect(),
        }
    }

    fn derive(&self, batch: &mut Batch, first: usize) -> Result<()> {
        let samples = batch.samples();
        let (bags, wide) = batch.bags.split_at_mut(self.columns);
        let (weights, wide_weights) = batch.weights.split_at_mut(self.columns);
        let (single, crossed) = wide.split_at_mut(self.columns);
        let (single_weights, crossed_weights) = wide_weights.split_at_mut(self.columns);
        for ((to, to_weights), (from, weights)) in
            single.iter_mut().zip(single_weights).zip(bags.iter().zip(weights.iter()))
        {
            let begin = from.offsets[first] as usize;
            to.rows.extend_from_slice(&from.rows[begin..]);
            to.offsets.extend_from_slice(&from.offsets[first + 1..]);
            if !weights.is_empty() {
                to_weights.extend_from_slice(&weights[begin..]);
            }
        }
        for ((cross, to), to_weights) in self.crosses.iter().zip(crossed).zip(crossed_weights) {
            for sample in first..samples {
                self.cross(cross, (bags, weights), sample, (to, to_weights))?;
                to.close();
            }
        }
        Ok(())
    }
}

/// The row of a cross's table for a combination of rows of its columns.
#[must_use]
pub fn bucket(rows: &[u32], buckets: u64) -> u64 {
    rows.iter().fold(0, |hash, &row| mixed(hash, row)) % buckets
}

/// Takes one more row into a hash, as `SplitMix64` goes on.
const fn mixed(hash: u64, row: u32) -> u64 {
    spread(hash.wrapping_add(row as u64 + 1).wrapping_add(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{DataConfig, LookUps, SourceKind};
    use std::sync::Arc;

    use crate::data::derived::Derived;
    use crate::data::{Random, Source, Split};

    fn model(crosses: &[&[&str]]) -> ModelConfig {
        let owned = |cross: &&[&str]| cross.iter().map(|&name| name.to_owned()).collect();
        let wide_crosses = crosses.iter().map(owned).collect();
        ModelConfig { wide: true, wide_crosses, wide_buckets: 50, ..ModelConfig::default() }
    }

    fn source() -> Arc<dyn Source> {
        let (source, lookups) = (SourceKind::Random, LookUps::Each(vec![3, 1, 2]));
        let config = DataConfig { source, lookups, lookups_fixed: false, ..DataConfig::default() };
        Arc::new(Random::new(&config, &[7, 40, 1000], 2).unwrap())
    }

    fn read(source: &dyn Source, start: u64, count: usize) -> Batch {
        let mut batch = Batch::new(source.schema());
        let mut reader = source.open(Split::Train, start).unwrap();
        // In two pieces, which one after the other are what a single one is.
        assert_eq!(reader.read(&mut batch, count / 2).unwrap(), count / 2);
        assert_eq!(reader.read(&mut batch, count - count / 2).unwrap(), count - count / 2);
        batch.check(source.schema()).unwrap();
        batch
    }

    #[test]
    fn a_wide_part_has_each_column_again_and_every_combination_of_crossed_ones() {
        let model = model(&[&["C3", "C1"], &["C1", "C2", "C3"]]);
        let (plain, wide) = (source(), Derived::of(&model, source()).unwrap());
        let names: Vec<_> = wide.schema().tables.iter().map(|column| (&*column.name, column.rows)).collect();
        let of_columns = [("C1", 7), ("C2", 40), ("C3", 1000), ("wide C1", 7), ("wide C2", 40), ("wide C3", 1000)];
        assert_eq!(names, [&of_columns[..], &[("wide C3 x C1", 50), ("wide C1 x C2 x C3", 50)]].concat());
        let expected: Vec<_> = wide.schema().tables.iter().map(|column| column.lookups).collect();
        assert_eq!(expected, [3, 1, 2, 3, 1, 2, 6, 6], "room for all combinations");
        let (deep, batch) = (read(&*plain, 5, 30), read(&*wide, 5, 30));
        assert_eq!((&batch.dense, &batch.labels), (&deep.dense, &deep.labels));
        assert_eq!(batch.bags[..3], deep.bags[..]);
        assert_eq!(batch.bags[3..6], deep.bags[..]);
        let mut several = 0;
        for sample in 0..30 {
            let of = |column: usize| deep.bags[column].of(sample).to_vec();
            let pairs = of(2).into_iter().flat_map(|c| of(0).into_iter().map(move |a| [c, a]));
            let pairs: Vec<_> = pairs.map(|rows| bucket(&rows, 50) as u32).collect();
            assert_eq!(batch.bags[6].of(sample), pairs);
            several += usize::from(pairs.len() > 1);
            let mut triples = Vec::new();
            for a in of(0) {
                for b in of(1) {
                    triples.extend(of(2).into_iter().map(|c| bucket(&[a, b, c], 50) as u32));
                }
            }
            assert_eq!(batch.bags[7].of(sample), triples);
        }
        assert!(several > 5, "most have several combinations");
        // Picked samples are the same.
        let mut picked = Batch::new(wide.schema());
        assert_eq!(wide.open(Split::Train, 0).unwrap().pick(&mut picked, &[6, 7, 20]).unwrap(), 3);
        for (at, sample) in [1, 2, 15].into_iter().enumerate() {
            for (bag, whole) in picked.bags.iter().zip(&batch.bags) {
                assert_eq!(bag.of(at), whole.of(sample));
            }
        }
    }

    #[test]
    fn weights_of_a_combination_are_those_of_its_look_ups_multiplied_and_an_empty_bag_has_none() {
        let weighted = |name, weighted| Column { weighted, ..Column::new(name, 9) };
        let schema = Schema {
            dense: 0,
            weighted: false,
            tables: vec![weighted("a", true), weighted("b", false), weighted("c", true)],
        };
        let columns = WideColumns::of(&model(&[&["a", "b"], &["a", "c"]]), &schema).unwrap().unwrap();
        let schema = columns.schema(&schema);
        assert_eq!(
            schema.tables.iter().map(|column| column.weighted).collect::<Vec<_>>()[3..],
            [true, false, true, true, true]
        );
        let mut batch = Batch::new(&schema);
        batch.labels = vec![0.0; 2];
        for (bag, bags) in batch.bags.iter_mut().zip([[&[1, 2][..], &[3]], [&[4], &[]], [&[5, 6], &[7]]]) {
            for rows in bags {
                bag.rows.extend_from_slice(rows);
                bag.close();
            }
        }
        batch.weights[0] = vec![0.5, 2.0, 3.0];
        batch.weights[2] = vec![10.0, 100.0, 7.0];
        columns.derive(&mut batch, 0).unwrap();
        batch.check(&schema).unwrap();
        assert_eq!((&batch.weights[3], &batch.weights[4]), (&vec![0.5, 2.0, 3.0], &Vec::new()));
        assert_eq!((batch.bags[6].offsets.clone(), &batch.weights[6]), (vec![0, 2, 2], &vec![0.5, 2.0]));
        assert_eq!(batch.weights[7], [5.0, 50.0, 20.0, 200.0, 21.0]);
    }

    #[test]
    fn a_column_that_is_not_there_and_too_many_combinations_are_refused() {
        let Err(error) = Derived::of(&model(&[&["C1", "C4"]]), source()) else { panic!("there is no C4") };
        let message = error.to_string();
        assert!(message.contains("model.wide_crosses") && message.contains("C4") && message.contains("C1, C2, C3"));
        let schema = Schema { dense: 0, weighted: false, tables: vec![Column::new("a", 1000), Column::new("b", 1000)] };
        let columns = WideColumns::of(&model(&[&["a", "b"]]), &schema).unwrap().unwrap();
        let mut batch = Batch::new(&columns.schema(&schema));
        batch.labels = vec![0.0];
        for bag in &mut batch.bags[..2] {
            bag.rows.extend(0..300);
            bag.close();
        }
        let message = columns.derive(&mut batch, 0).unwrap_err().to_string();
        assert!(message.contains("65536 combinations"), "{message}");
        assert!(Derived::of(&ModelConfig::default(), source()).unwrap().schema().tables.len() == 3);
    }
}
