//! Local arithmetic on slices: matrix products, transposition, the gradient of ReLU. No model, no data; `brgemm` alone
//! shares its work among a team.
//!
//! Each operation states its formula and the order of its sums; vectors of any width give the same bits.

pub mod brgemm;
mod gate;
mod gemm;
mod transpose;

pub use gate::Gate;
pub use gemm::{Gemm, Start, Strided};
pub use transpose::transpose;

#[cfg(test)]
pub(crate) use gemm::tests::random;
