//! Local arithmetic: the passes of a layer as matrix products (`brgemm`), sums over samples by grains, products of
//! pairs of vectors, the logistic function; and the plain product that tests and benchmarks hold `brgemm` against
//! ([`Gemm`]). No model, no data. `brgemm` and [`add`] share their work among a team.
//!
//! Each operation states its formula and the order of its sums; vectors of any width give the same bits, except on
//! tiles, as `brgemm` says.

pub mod brgemm;
mod gemm;
mod grains;
mod logistic;
mod mirrored;
mod pairs;
mod part;
mod rows;

pub use gemm::{Gemm, Start, Strided};
pub use grains::{Grains, Leaf, Node, Share, Sum, add};
pub use logistic::{exp_of_negative, log1p_of_fraction, logistic};
pub use mirrored::{Mirrored, SLACK, Take};
pub use pairs::{Block, GROUP, Lanes, Pairs, STEPS, pairs_before};
pub use part::{CHAIN, Chain, Part, Parts, part_for};
pub use rows::{StridedRows, StridedRowsMut};

#[cfg(test)]
pub(crate) use gemm::tests::random;
