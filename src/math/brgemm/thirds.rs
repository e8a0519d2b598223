//! The passes in 32-bit floats on tiles of AMX-BF16: each number in three parts, six products of them a product.
//!
//! Tiles multiply bfloat16 some twelve times as fast as cores multiply 32-bit floats, so six products are half the
//! work. What is left out is smaller than the rounding of a product, and tiles round seldom: 16 products are summed
//! apart before they meet the sum. Errors are no larger than those of fused multiply-adds (the tests compare both with
//! exact sums).
//!
//! Source: Henry, Tang, Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
//! computations", ARITH 2019. Definition: [`crate::simd::bf16::dot_thirds`].

use super::bf16::{forward_shape_in_pairs, weights_shape_in_pairs};
use super::operands::{LeftSource, RightSource};
use super::panels::{Panels, WIDTH};
use super::passes::{After, Onto};
use super::terms::Samples;
use super::tiled::TiledPass;
use crate::machine::team::Team;
use crate::simd::Isa;
use crate::simd::amx::Amx;

/// The proof of tiles, if 32-bit floats are multiplied on them in a layer of so many inputs and outputs: more than a
/// panel of both, because for 64 columns the copies of the left operand cost what its faster products save. It does not
/// depend on the number of samples, so a sample's results don't either.
#[must_use]
pub fn thirds_for(isa: Isa, inputs: usize, outputs: usize) -> Option<Amx> {
    isa.amx_thirds().filter(|_| inputs.min(outputs) > WIDTH)
}

/// The first rows of a matrix.
fn rows(panels: &Panels<f32>, first: usize, count: usize) -> Samples<'_, f32> {
    Samples { cells: panels.cells_from(first), stride: panels.stride(), count }
}

/// As [`super::forward`].
pub(super) fn forward(
    team: &Team,
    amx: Amx,
    samples: usize,
    [x, w]: [&Panels<f32>; 2],
    bias: Option<&[f32]>,
    y: &mut Panels<f32>,
    after: After<'_, f32>,
) {
    let shape = forward_shape_in_pairs(samples, w.rows(), w.columns(), team.threads());
    let (left, right) = (LeftSource::ByRow(rows(x, 0, samples)), RightSource::ByRow(rows(w, 0, w.rows())));
    TiledPass { shape, left, right, bias, onto: Onto::Zero, after }.run(team, amx, y);
}

/// As [`super::backward_data`].
pub(super) fn backward_data(
    team: &Team,
    amx: Amx,
    samples: usize,
    [dy, w]: [&Panels<f32>; 2],
    dx: &mut Panels<f32>,
    after: After<'_, f32>,
) {
    let shape = forward_shape_in_pairs(samples, w.columns(), w.rows(), team.threads());
    let (left, right) = (LeftSource::ByRow(rows(dy, 0, samples)), RightSource::ByColumn(rows(w, 0, w.rows())));
    TiledPass { shape, left, right, bias: None, onto: Onto::Zero, after }.run(team, amx, dx);
}

/// As [`super::backward_weights`].
pub(super) fn backward_weights(
    team: &Team,
    amx: Amx,
    samples: std::ops::Range<usize>,
    [x, dy]: [&Panels<f32>; 2],
    onto: Onto,
    dw: &mut Panels<f32>,
) {
    let (first, count) = (samples.start, samples.len());
    let shape = weights_shape_in_pairs(count, dw.rows(), dw.columns(), team.threads());
    let (left, right) = (LeftSource::ByColumn(rows(x, first, count)), RightSource::ByRow(rows(dy, first, count)));
    TiledPass { shape, left, right, bias: None, onto, after: After::Keep }.run(team, amx, dw);
}
