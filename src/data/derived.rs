//! Columns that a model makes of those of the data while they are read, so that nothing behind knows the difference.

use std::sync::Arc;

use super::quotients::Quotients;
use super::wide::WideColumns;
use super::{Bag, Batch, Reader, Schema, Source, Split};
use crate::base::Result;
use crate::base::config::ModelConfig;

/// Which columns these are.
pub trait DerivedColumns: Send + Sync {
    /// Columns of the data; the model's own follow.
    fn of_data(&self) -> usize;

    /// Whether the data's columns stay what they are.
    fn adds_only(&self) -> bool;

    /// All columns of data with these.
    fn schema(&self, of: &Schema) -> Schema;

    /// Makes them of a minibatch's samples from `first` on, which have been read into the data's columns.
    ///
    /// # Errors
    /// When a sample has more look-ups than there is room for.
    ///
    /// # Panics
    /// When the minibatch has not all of these columns.
    fn derive(&self, batch: &mut Batch, first: usize) -> Result<()>;
}

/// Those that a model makes of these columns; `None` where it takes them as they are.
///
/// # Errors
/// As [`WideColumns::of`].
pub fn derived_columns(model: &ModelConfig, schema: &Schema) -> Result<Option<Box<dyn DerivedColumns>>> {
    // No model has both.
    match WideColumns::of(model, schema)? {
        Some(wide) => Ok(Some(Box::new(wide))),
        None => Ok(Quotients::of(model, schema).map(|quotients| Box::new(quotients) as Box<dyn DerivedColumns>)),
    }
}

/// A data set with the columns that a model makes of its own.
pub struct Derived {
    from: Arc<dyn Source>,
    columns: Box<dyn DerivedColumns>,
    schema: Schema,
}

impl Derived {
    /// What the model reads of this data: the data itself, where it takes its columns as they are.
    ///
    /// # Errors
    /// As [`derived_columns`].
    pub fn of(model: &ModelConfig, from: Arc<dyn Source>) -> Result<Arc<dyn Source>> {
        match derived_columns(model, from.schema())? {
            None => Ok(from),
            Some(columns) => {
                let schema = columns.schema(from.schema());
                Ok(Arc::new(Self { from, columns, schema }))
            }
        }
    }
}

impl Source for Derived {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, split: Split) -> Option<u64> {
        self.from.samples(split)
    }

    fn made_of(&self) -> Option<&dyn Source> {
        Some(&*self.from)
    }

    fn without_wide(&self) -> Option<&dyn Source> {
        self.columns.adds_only().then_some(&*self.from)
    }

    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        let from = self.from.open(split, start)?;
        Ok(Box::new(Deriving { from, columns: &*self.columns, bags: Vec::new(), weights: Vec::new() }))
    }
}

/// A reader of such a data set.
struct Deriving<'a> {
    from: Box<dyn Reader + 'a>,
    columns: &'a dyn DerivedColumns,
    /// The model's own, while the data's columns are read.
    bags: Vec<Bag>,
    weights: Vec<Vec<f32>>,
}

impl Deriving<'_> {
    /// Reads the data's columns of some samples, and makes the model's of them.
    fn read_with(
        &mut self,
        batch: &mut Batch,
        read: impl FnOnce(&mut dyn Reader, &mut Batch) -> Result<usize>,
    ) -> Result<usize> {
        let (columns, first) = (self.columns.of_data(), batch.samples());
        self.bags.extend(batch.bags.drain(columns..));
        self.weights.extend(batch.weights.drain(columns..));
        let count = read(&mut *self.from, batch);
        batch.bags.append(&mut self.bags);
        batch.weights.append(&mut self.weights);
        let count = count?;
        self.columns.derive(batch, first)?;
        Ok(count)
    }
}

impl Reader for Deriving<'_> {
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
