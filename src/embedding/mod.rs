//! Embedding tables: their rows, the look-up that pools them, and the update that moves them.
//!
//! Local rows only: nothing here knows that other ranks exist.

mod lookup;
mod table;
mod update;

pub use lookup::look_up;
pub use table::Table;
pub use update::update;

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
