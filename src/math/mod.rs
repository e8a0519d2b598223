//! Local arithmetic on slices: matrix products, transposition, sums. No threads, no model, no data.
//!
//! Each operation states its formula and the order of its sums; vectors of any width give the same bits.

pub mod brgemm;
mod gate;
mod gemm;
mod reduce;
mod transpose;

pub use gate::Gate;
pub use gemm::{Gemm, Start, Strided};
pub use reduce::ColumnSums;
pub use transpose::transpose;

#[cfg(test)]
pub(crate) use gemm::tests::random;
