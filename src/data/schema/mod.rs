//! What a sample consists of: how many dense features, and which categorical columns with how many values.
//!
//! The model is sized from [`Schema`]: one embedding table a categorical column. [`Description`] says what the rows of a
//! stored data set hold, column by column.

mod description;

use crate::base::{Error, Result};
pub use description::{Categorical, Dense, Description, Label, Transform};

/// The columns of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// Dense features a sample.
    pub dense: usize,
    /// Categorical columns, in order.
    pub tables: Vec<Column>,
}

/// A categorical column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, for people.
    pub name: String,
    /// Distinct values: row numbers are below this. At most 2^32 - 1.
    pub rows: u64,
    /// Whether every look-up has a weight, which its row is multiplied by.
    pub weighted: bool,
}

impl Column {
    /// A column whose look-ups all count the same.
    #[must_use]
    pub fn new(name: impl Into<String>, rows: u64) -> Self {
        Self { name: name.into(), rows, weighted: false }
    }
}

impl Schema {
    /// Criteo's layout: I1 to I13 and C1 to C26, or C1 to Cn for as many `rows` as are given.
    #[must_use]
    pub fn criteo(dense: usize, rows: &[u64]) -> Self {
        let tables = rows.iter().zip(1..).map(|(&rows, n)| Column::new(format!("C{n}"), rows)).collect();
        Self { dense, tables }
    }

    /// Rows of every table.
    #[must_use]
    pub fn rows(&self) -> Vec<u64> {
        self.tables.iter().map(|column| column.rows).collect()
    }

    /// Checks that a model with `dense` inputs can read this data.
    ///
    /// # Errors
    /// [`Error::Config`] with both widths.
    pub fn check_dense(&self, dense: usize, origin: &str) -> Result<()> {
        if self.dense == dense {
            return Ok(());
        }
        Err(Error::Config {
            origin: origin.to_owned(),
            reason: format!(
                "the data has {} dense features but model.bottom starts with {dense}: set its first entry to {}",
                self.dense, self.dense
            ),
        })
    }
}
