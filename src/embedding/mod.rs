//! Embedding tables: their rows, the look-up that pools them, and the update that moves them.
//!
//! Local rows only: nothing here knows that other ranks exist. A new way to update is one new file, one entry of
//! `base::config::Update` and one line in `update`.

mod atomic;
mod choice;
mod feed;
mod form;
mod lookup;
mod owned;
mod row;
mod sorted;
mod table;
mod update;

pub use choice::Choice;
pub use lookup::LookUp;
pub use table::Table;
pub use update::{Spec, Updater};

use crate::data::{Bag, Batch};

/// Where the pooled rows of all tables lie in the model's feature matrix.
///
/// Sample n's row starts at `n * row`; table t's vector starts `first + t * dim` elements into it.
#[derive(Debug, Clone, Copy)]
pub struct Slots {
    /// Distance between samples.
    pub row: usize,
    /// Where the first table's vector starts.
    pub first: usize,
}

/// The look-ups of one minibatch, with or without a weight for each.
#[derive(Debug, Clone, Copy)]
pub struct Lookups<'a> {
    /// One bag a table.
    pub bags: &'a [Bag],
    /// One list a table: what each look-up's row is multiplied by, in the order of `Bag::rows`; `None` and a list without
    /// entries: by 1.
    pub weights: Option<&'a [Vec<f32>]>,
}

impl<'a> Lookups<'a> {
    /// Look-ups that all count the same.
    #[must_use]
    pub const fn plain(bags: &'a [Bag]) -> Self {
        Self { bags, weights: None }
    }

    /// Those of a minibatch.
    #[must_use]
    pub fn of(batch: &'a Batch) -> Self {
        Self { bags: &batch.bags, weights: Some(&batch.weights) }
    }

    /// Those in one of the tables.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    pub fn of_table(self, table: usize) -> Self {
        Self { bags: &self.bags[table..=table], weights: self.weights.map(|weights| &weights[table..=table]) }
    }

    /// One table's weights.
    fn weights(&self, table: usize) -> Option<&'a [f32]> {
        self.weights.map(|weights| &weights[table][..]).filter(|weights| !weights.is_empty())
    }

    /// Checks that there is one bag a table, and one weight a look-up.
    fn check(&self, tables: usize) {
        assert_eq!(self.bags.len(), tables, "one bag a table");
        if let Some(weights) = self.weights {
            assert_eq!(weights.len(), tables, "one list of weights a table");
            let mut tables = weights.iter().zip(self.bags);
            let fits = tables.all(|(weights, bag)| weights.is_empty() || weights.len() == bag.rows.len());
            assert!(fits, "one weight a look-up, or none");
        }
    }

    /// Look-ups of all tables.
    fn total(&self) -> usize {
        self.bags.iter().map(|bag| bag.rows.len()).sum()
    }
}
