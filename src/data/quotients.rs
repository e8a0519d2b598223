//! Quotients and remainders (Shi et al., arXiv:1909.02107): a column of many values is looked up twice, by a value's
//! row number divided by how many values share a row, and by what is left, in two tables that are together smaller.

use super::derived::DerivedColumns;
use super::{Batch, Column, Schema};
use crate::base::Result;
use crate::base::config::ModelConfig;

/// Which columns are looked up so. Quotients take the column's place, remainders follow all columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quotients {
    columns: usize,
    /// By number.
    composed: Vec<usize>,
    /// Values that share a row of quotients: rows of remainders.
    collisions: u64,
}

impl Quotients {
    /// Those of a model of these columns; `None` where it looks none up so.
    #[must_use]
    pub fn of(model: &ModelConfig, schema: &Schema) -> Option<Self> {
        let (columns, composed) = (schema.tables.len(), model.composed(&schema.rows()));
        (!composed.is_empty()).then_some(Self { columns, composed, collisions: model.qr_collisions })
    }
}

impl DerivedColumns for Quotients {
    fn of_data(&self) -> usize {
        self.columns
    }

    fn adds_only(&self) -> bool {
        false
    }

    fn schema(&self, of: &Schema) -> Schema {
        let (mut tables, by) = (of.tables.clone(), self.collisions);
        for &column in &self.composed {
            let from = &of.tables[column];
            let named = |sign: &str, rows: u64| Column {
                lookups: from.lookups,
                weighted: from.weighted,
                ..Column::new(format!("{} {sign} {by}", from.name), rows)
            };
            tables[column] = named("/", from.rows.div_ceil(by));
            tables.push(named("mod", by));
        }
        Schema { tables, ..*of }
    }

    fn derive(&self, batch: &mut Batch, first: usize) -> Result<()> {
        let by = self.collisions as u32;
        let (quotients, remainders) = batch.bags.split_at_mut(self.columns);
        let (weights, own_weights) = batch.weights.split_at_mut(self.columns);
        for ((&column, to), to_weights) in self.composed.iter().zip(remainders).zip(own_weights) {
            let from = &mut quotients[column];
            let begin = from.offsets[first] as usize;
            to.rows.extend(from.rows[begin..].iter().map(|row| row % by));
            to.offsets.extend_from_slice(&from.offsets[first + 1..]);
            to_weights.extend_from_slice(weights[column].get(begin..).unwrap_or_default());
            from.rows[begin..].iter_mut().for_each(|row| *row /= by);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::config::{DataConfig, LookUps, SourceKind};
    use crate::data::derived::Derived;
    use crate::data::{Random, Source, Split};

    #[test]
    fn quotients_and_remainders_make_the_row() {
        let model = ModelConfig { qr_collisions: 4, qr_threshold: 10, ..ModelConfig::default() };
        let config = DataConfig {
            source: SourceKind::Random,
            lookups: LookUps::Each(vec![3, 1, 2]),
            lookups_fixed: false,
            ..DataConfig::default()
        };
        let source = || Arc::new(Random::new(&config, &[41, 10, 1000], 2).unwrap());
        let composed = Derived::of(&model, source()).unwrap();
        let columns: Vec<_> = composed.schema().tables.iter().map(|column| (&*column.name, column.rows)).collect();
        assert_eq!(columns, [("C1 / 4", 11), ("C2", 10), ("C3 / 4", 250), ("C1 mod 4", 4), ("C3 mod 4", 4)]);
        assert!(composed.without_wide().is_none(), "what the model looks up is no column of the data");
        let read = |source: &dyn Source| {
            let mut batch = Batch::new(source.schema());
            let mut reader = source.open(Split::Train, 3).unwrap();
            // In two pieces: what was divided is not divided again.
            assert_eq!(reader.read(&mut batch, 20).unwrap() + reader.read(&mut batch, 30).unwrap(), 50);
            batch.check(source.schema()).unwrap();
            batch
        };
        let (plain, composed) = (read(&*source()), read(&*composed));
        assert_eq!(plain.bags[1], composed.bags[1]);
        for (column, quotient, remainder) in [(0, 0, 3), (2, 2, 4)] {
            let [bag, quotient, remainder] = [&plain.bags[column], &composed.bags[quotient], &composed.bags[remainder]];
            assert_eq!((&bag.offsets, &bag.offsets), (&quotient.offsets, &remainder.offsets));
            let rows: Vec<_> = quotient.rows.iter().zip(&remainder.rows).map(|(q, r)| q * 4 + r).collect();
            assert_eq!(bag.rows, rows);
        }
    }
}
