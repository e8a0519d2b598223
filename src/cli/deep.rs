//! The tables of whose hot rows ranks may have copies: those of a model's deep part. A row of a wide part is one weight: to copy
//! all of its table to each rank is cheaper than to tell which rows are hot.

use std::path::PathBuf;

use crate::base::config::ModelConfig;
use crate::base::{Error, Result};
use crate::data::hot::HotSet;
use crate::data::schema::Scales;
use crate::data::{Bag, Batch, Reader, Schema, Source, Split, Vocabulary};

/// A data set without the columns that a wide part adds.
pub struct Deep<'a> {
    from: &'a dyn Source,
    schema: Schema,
}

impl<'a> Deep<'a> {
    /// Of what a model reads.
    pub fn of(model: &ModelConfig, from: &'a dyn Source) -> Self {
        let mut schema = from.schema().clone();
        schema.tables.truncate(model.deep_tables(schema.tables.len()));
        Self { from, schema }
    }

    /// Hot rows of these columns as those of all of the model's tables.
    pub fn of_all(&self, mut hot: HotSet) -> HotSet {
        for column in &self.from.schema().tables[self.schema.tables.len()..] {
            hot.push_some(column.rows, std::iter::empty());
        }
        hot
    }

    /// Refuses a file's hot rows of all tables where they are of others than these.
    ///
    /// # Errors
    /// [`Error::BadFile`], which names the table.
    pub fn check(&self, hot: &HotSet, path: &str) -> Result<()> {
        let deep = self.schema.tables.len();
        let Some(table) = (deep..hot.tables()).find(|table| hot.rows(*table) > 0) else { return Ok(()) };
        let reason = format!(
            "hot rows of table {table} ({}), which is the wide part's: only the first {deep} tables are copied; write the file \
             with `octorec inspect --hot --out FILE`",
            self.from.schema().tables[table].name
        );
        Err(Error::BadFile { path: PathBuf::from(path), reason })
    }
}

impl Source for Deep<'_> {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, split: Split) -> Option<u64> {
        self.from.samples(split)
    }

    fn numbers_own_values(&self) -> bool {
        self.from.numbers_own_values()
    }

    fn pauses(&self) -> bool {
        self.from.pauses()
    }

    fn close(&self) {
        self.from.close();
    }

    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        let empty = Batch::new(self.from.schema()).bags.split_off(self.schema.tables.len());
        Ok(Box::new(Narrow { from: self.from.open(split, start)?, empty }))
    }

    fn truth(&self, split: Split, start: u64, count: usize) -> Option<Vec<f32>> {
        self.from.truth(split, start, count)
    }

    fn skipped_rows(&self) -> u64 {
        self.from.skipped_rows()
    }

    fn unseen_values(&self) -> u64 {
        self.from.unseen_values()
    }

    fn vocabulary(&self) -> Option<&Vocabulary> {
        self.from.vocabulary()
    }

    fn scales(&self) -> Result<Scales> {
        self.from.scales()
    }
}

/// A reader that leaves away the last columns.
struct Narrow<'a> {
    from: Box<dyn Reader + 'a>,
    /// The bags of these columns without samples.
    empty: Vec<Bag>,
}

impl Narrow<'_> {
    /// Reads samples with all columns, and keeps the first ones.
    fn read_with(
        &mut self,
        batch: &mut Batch,
        read: impl FnOnce(&mut dyn Reader, &mut Batch) -> Result<usize>,
    ) -> Result<usize> {
        let (columns, samples) = (batch.bags.len(), batch.samples());
        let mut beside = self.empty.clone();
        // As many samples as there are already, without look-ups.
        beside.iter_mut().for_each(|bag| (0..samples).for_each(|_| bag.close()));
        batch.weights.resize(columns + beside.len(), Vec::new());
        batch.bags.append(&mut beside);
        let count = read(&mut *self.from, batch);
        batch.bags.truncate(columns);
        batch.weights.truncate(columns);
        count
    }
}

impl Reader for Narrow<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        self.read_with(batch, |from, batch| from.read(batch, limit))
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        self.from.skip(count)
    }

    fn pick(&mut self, batch: &mut Batch, picks: &[u64]) -> Result<usize> {
        self.read_with(batch, |from, batch| from.pick(batch, picks))
    }

    fn bytes_read(&self) -> u64 {
        self.from.bytes_read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{DataConfig, SourceKind};
    use crate::data::Random;
    use crate::data::wide::Widened;

    #[test]
    fn the_columns_of_a_wide_part_are_left_away() {
        let config = DataConfig { source: SourceKind::Random, ..DataConfig::default() };
        let plain = || Random::new(&config, &[7, 40], 2).unwrap();
        let crosses = vec![vec!["C1".to_owned(), "C2".to_owned()]];
        let model = ModelConfig { wide: true, wide_crosses: crosses, wide_buckets: 50, ..ModelConfig::default() };
        let wide = Widened::of(&model, std::sync::Arc::new(plain())).unwrap();
        assert_eq!(wide.schema().tables.len(), 5);
        let deep = Deep::of(&model, &*wide);
        let read = |source: &dyn Source| {
            let mut batch = Batch::new(source.schema());
            let mut reader = source.open(Split::Train, 3).unwrap();
            // A batch that has samples already is read on.
            reader.read(&mut batch, 10).unwrap();
            reader.skip(2).unwrap();
            reader.pick(&mut batch, &[0, 4]).unwrap();
            batch.check(source.schema()).unwrap();
            batch
        };
        let (found, wanted) = (read(&deep), read(&plain()));
        assert_eq!((found.bags, found.dense, found.labels), (wanted.bags, wanted.dense, wanted.labels));

        let mut hot = HotSet::new();
        hot.push_whole(7);
        hot.push_some(40, [3].into_iter());
        let all = deep.of_all(hot);
        assert_eq!((0..all.tables()).map(|table| all.rows(table)).collect::<Vec<_>>(), [7, 1, 0, 0, 0]);
        deep.check(&all, "hot.safetensors").unwrap();
        let mut others = HotSet::new();
        others.push_whole(7);
        [40, 7].into_iter().for_each(|rows| others.push_some(rows, [3].into_iter()));
        [40, 50].into_iter().for_each(|rows| others.push_some(rows, std::iter::empty()));
        let message = deep.check(&others, "hot.safetensors").unwrap_err().to_string();
        assert!(message.contains("hot.safetensors") && message.contains("table 2 (wide C1)"), "{message}");
    }
}
