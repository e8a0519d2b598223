//! Columns that rows of a format are appended to: those of [`Samples`], as they are stored, or of a [`Batch`], as
//! features.

use super::samples::{Samples, Values};
use super::{Batch, Description};

/// Columns to fill: so many rows are begun, then each column gets its values of all of them.
pub(super) trait Fill {
    /// Begins so many more rows.
    fn begin(&mut self, rows: usize);

    /// Where labels go.
    fn labels(&mut self) -> &mut Vec<f32>;

    /// Appends the values of a dense column that holds integers.
    fn integers(&mut self, column: usize, values: impl Iterator<Item = i32>);

    /// Appends the values of a dense column that holds floats.
    fn floats(&mut self, column: usize, values: impl Iterator<Item = f32>);

    /// Where the row numbers of a table's look-ups go, and their weights.
    fn lookups(&mut self, table: usize) -> (&mut Vec<u32>, &mut Vec<f32>);

    /// Says where the look-ups of each row end, counted from those of the first row that was begun, in a column whose
    /// rows have differently many.
    fn ends(&mut self, table: usize, ends: impl Iterator<Item = u32>);
}

impl Fill for Samples {
    fn begin(&mut self, _rows: usize) {}

    fn labels(&mut self) -> &mut Vec<f32> {
        &mut self.labels
    }

    fn integers(&mut self, column: usize, values: impl Iterator<Item = i32>) {
        let Values::Integers(to) = &mut self.dense[column] else { panic!("dense column {column} holds floats") };
        to.extend(values);
    }

    fn floats(&mut self, column: usize, values: impl Iterator<Item = f32>) {
        let Values::Floats(to) = &mut self.dense[column] else { panic!("dense column {column} holds integers") };
        to.extend(values);
    }

    fn lookups(&mut self, table: usize) -> (&mut Vec<u32>, &mut Vec<f32>) {
        let lookups = &mut self.lookups[table];
        (&mut lookups.rows, &mut lookups.weights)
    }

    fn ends(&mut self, table: usize, ends: impl Iterator<Item = u32>) {
        let to = &mut self.lookups[table].ends;
        let before = to.last().copied().unwrap_or(0);
        to.extend(ends.map(|end| before + end));
    }
}

/// A minibatch that is filled with what a model makes of values: their features.
pub(super) struct Features<'a> {
    batch: &'a mut Batch,
    description: &'a Description,
    /// Where the dense features of the rows stand that were begun.
    first: usize,
}

impl<'a> Features<'a> {
    /// Rows of `description` go behind those that the minibatch has.
    pub(super) fn new(batch: &'a mut Batch, description: &'a Description) -> Self {
        Self { batch, description, first: 0 }
    }

    /// The cells of a dense column, with the values whose features go there.
    fn cells<T>(&mut self, column: usize, values: impl Iterator<Item = T>) -> impl Iterator<Item = (&mut f32, T)> {
        let width = self.batch.dense_width;
        self.batch.dense[self.first..].chunks_exact_mut(width).map(move |row| &mut row[column]).zip(values)
    }
}

impl Fill for Features<'_> {
    fn begin(&mut self, rows: usize) {
        self.first = self.batch.dense.len();
        self.batch.dense.resize(self.first + rows * self.batch.dense_width, 0.0);
        let columns = self.batch.bags.iter_mut().zip(&self.description.categorical);
        for (bag, column) in columns.filter(|(_, column)| column.hots > 0) {
            let before = bag.offsets[bag.offsets.len() - 1];
            bag.offsets.extend((1..=rows as u32).map(|n| before + n * column.hots));
        }
    }

    fn labels(&mut self) -> &mut Vec<f32> {
        &mut self.batch.labels
    }

    fn integers(&mut self, column: usize, values: impl Iterator<Item = i32>) {
        self.description.dense[column].feature().integers(self.cells(column, values));
    }

    fn floats(&mut self, column: usize, values: impl Iterator<Item = f32>) {
        let feature = self.description.dense[column].feature();
        self.cells(column, values).for_each(|(cell, value)| *cell = feature.float(value));
    }

    fn lookups(&mut self, table: usize) -> (&mut Vec<u32>, &mut Vec<f32>) {
        (&mut self.batch.bags[table].rows, &mut self.batch.weights[table])
    }

    fn ends(&mut self, table: usize, ends: impl Iterator<Item = u32>) {
        let offsets = &mut self.batch.bags[table].offsets;
        let before = offsets[offsets.len() - 1];
        offsets.extend(ends.map(|end| before + end));
    }
}
