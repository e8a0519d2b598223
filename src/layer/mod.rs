//! The dense layers of a model, each forward beside its backward.
//!
//! Activations are row-major, a row a sample; a [`View`] may have rows that are longer than its columns, so that a layer
//! can read from and write into a slice of a wider matrix. A layer knows its own weights and the rank's team, and
//! nothing of the model around it.

mod concat;
mod dot;
mod linear;
mod loss;
mod mlp;
mod weight;

pub use concat::Concat;
pub use dot::Dot;
pub use linear::Linear;
pub use loss::LossLayer;
pub(crate) use mlp::gate;
pub use mlp::{InputGradient, Mlp};

/// The first columns of a matrix with rows of length `row`.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The elements; row n starts at `n * row`.
    pub data: &'a [f32],
    /// Distance between rows.
    pub row: usize,
}
