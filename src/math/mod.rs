//! Local arithmetic: the passes of a layer as matrix products (`brgemm`), sums over samples by grains, products of
//! pairs of vectors, the logistic function. No model, no data. `brgemm` and [`add`] share their work among a team.
//!
//! Each operation states its formula and the order of its sums; vectors of any width give the same bits, except on
//! tiles, as `brgemm` says.

pub mod brgemm;
mod grains;
mod logistic;
mod mirrored;
mod pairs;
mod part;
mod rows;

pub use grains::{Grains, Leaf, Node, Share, Sum, add};
pub use logistic::{exp_of_negative, log1p_of_fraction, logistic};
pub use mirrored::{Mirrored, SLACK, Take};
pub use pairs::{Block, GROUP, Lanes, Pairs, STEPS, pairs_before};
pub use part::{CHAIN, Chain, Part, Parts, part_for};
pub use rows::{StridedRows, StridedRowsMut};

/// Numbers in [-1, 1), a pure function of `which`.
#[cfg(test)]
pub(crate) fn random(len: usize, which: u32) -> Vec<f32> {
    let random = crate::base::rng::Random::new(9, crate::base::rng::Stream::Column(which));
    (0..len as u64).map(|i| (2.0 * random.uniform(i) - 1.0) as f32).collect()
}
