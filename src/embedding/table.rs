//! One embedding table: rows x dim numbers.

use crate::memory::Buffer;

/// The rows of one categorical column.
#[derive(Debug)]
pub struct Table {
    /// The column's name.
    pub name: String,
    dim: usize,
    weights: Buffer<f32>,
}

impl Table {
    /// A table of zeros; its memory is untouched until rows are written.
    ///
    /// # Panics
    /// When the address space cannot hold it.
    #[must_use]
    pub fn new(name: String, rows: u64, dim: usize) -> Self {
        let rows = usize::try_from(rows).expect("rows are below 2^32");
        Self { name, dim, weights: Buffer::zeroed(rows * dim) }
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.weights.len() / self.dim
    }

    /// Columns of a row.
    #[must_use]
    pub const fn dim(&self) -> usize {
        self.dim
    }

    /// Row `row`.
    #[must_use]
    #[inline]
    pub fn row(&self, row: u32) -> &[f32] {
        &self.weights[row as usize * self.dim..][..self.dim]
    }

    /// All rows, row-major.
    #[must_use]
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// All rows, row-major, to be overwritten.
    pub fn weights_mut(&mut self) -> &mut [f32] {
        &mut self.weights
    }
}
