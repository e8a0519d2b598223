//! One embedding table: rows x dim numbers.

use crate::base::Result;
use crate::memory::{Arena, Buffer, Supply};

/// The rows of one categorical column.
#[derive(Debug)]
pub struct Table {
    /// The column's name.
    pub name: String,
    dim: usize,
    weights: Buffer<f32>,
}

impl Table {
    /// A table of zeros.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When there are 2^32 rows or more.
    pub fn new(name: String, rows: u64, dim: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let rows = u32::try_from(rows).expect("rows are below 2^32") as usize;
        let weights = supply.buffer(&name, rows * dim)?;
        Ok(Self { name, dim, weights })
    }

    /// Takes its rows from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.weights.settle(arena);
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
