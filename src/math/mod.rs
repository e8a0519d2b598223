//! Local arithmetic on slices: matrix products, products of pairs of vectors, transposition, the logistic function. No
//! model, no data; `brgemm` alone shares its work among a team.
//!
//! Each operation states its formula and the order of its sums; vectors of any width give the same bits.

pub mod brgemm;
mod gemm;
mod grains;
mod logistic;
mod mirrored;
mod pairs;
mod part;
mod rows;
mod transpose;

pub use gemm::{Gemm, Start, Strided};
pub use grains::{Grains, Leaf, Node, Share, Sum, add};
pub use logistic::{exp_of_negative, log1p_of_fraction};
pub use mirrored::{Mirrored, SLACK, Take};
pub use pairs::{Block, GROUP, Lanes, Pairs, STEPS, pairs_before};
pub use part::{CHAIN, Chain, Part, Parts, part_for};
pub use rows::{StridedRows, StridedRowsMut};
pub use transpose::transpose;

#[cfg(test)]
pub(crate) use gemm::tests::random;
