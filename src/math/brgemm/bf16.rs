//! The passes on bfloat16: two products a step, sums in 32-bit floats.
//!
//! Activations and their gradients are [`Panels`] of bfloat16 (as `u16`), rounded from complete sums; what leaves a
//! chain of layers may stay in 32-bit floats. A right operand is `Panels<u32>` of pairs: row i has rows 2i and 2i + 1
//! of the matrix, column by column, `[Kb][C / 2][64][2]`: the order that VDPBF16PS wants, called VNNI-2. Weights are
//! kept so. Backward-by-weights sums over samples, so both of its operands are paired first: N (C + K) moves beside N C
//! K products; for tiles, while they are packed.
//!
//! An odd number of terms is padded with a product of zeros.
//!
//! With AMX the same operands are multiplied tile by tile: see `tiled`. Where no instruction multiplies pairs, operands
//! are widened first: see `widened`.

use std::ops::Range;

use super::operands::{LeftSource, RightSource};
use super::panels::{Panels, WIDTH};
use super::passes::{After, Onto, Pass, biases, check, forward_shape, weights_shape};
use super::plan::{Plan, Shape};
use super::right::Right;
use super::terms::Samples;
use super::tile::{ByColumn, ByRow, Cell};
use super::tiled::TiledPass;
use super::transposed::Transposed;
use super::widened::{Halves, Wide, may_go_on, passed};
use crate::machine::team::Team;
use crate::simd::amx;
use crate::simd::bf16::{narrow, pair};
use crate::simd::{Kernel, Simd};

/// The shape of [`forward`]'s work; backward-by-data's has inputs and outputs exchanged.
#[must_use]
pub const fn forward_shape_in_pairs(samples: usize, inputs: usize, outputs: usize, threads: usize) -> Shape {
    Shape { whole: true, ..forward_shape(samples, inputs.div_ceil(2), outputs, threads) }
}

/// The shape of [`backward_weights`]'s work.
#[must_use]
pub const fn weights_shape_in_pairs(samples: usize, inputs: usize, outputs: usize, threads: usize) -> Shape {
    weights_shape(samples.div_ceil(2), inputs, outputs, threads)
}

/// Weights in 32-bit floats (inputs x outputs) rounded to bfloat16, as pairs of rows.
#[must_use]
pub fn pairs_of(team: &Team, from: &Panels<f32>) -> Panels<u32> {
    let mut halves = Panels::zeroed(from.rows(), from.columns());
    let narrowed = halves.cells_mut().iter_mut().zip(from.cells());
    narrowed.for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, &x)| *to = narrow(x)));
    let mut pairs = Panels::zeroed(from.rows().div_ceil(2), from.columns());
    pair_rows(team, 0..from.rows(), &halves, &mut pairs);
    pairs
}

/// Row i of `to` = rows 2i and 2i + 1 of these `rows` of `from`; a missing last row is 0.
///
/// # Panics
/// When sizes do not fit together.
fn pair_rows(team: &Team, rows: Range<usize>, from: &Panels<u16>, to: &mut Panels<u32>) {
    check("the matrix", from, rows.end, to.columns());
    check("its pairs", to, rows.len().div_ceil(2), from.columns());
    let isa = team.isa();
    team.share(to.grid(rows.len().div_ceil(2), team.pieces(), 1), |mut part| {
        let range = part.rows();
        for panel in part.panels() {
            let from = &from.panel(panel)[rows.clone()][2 * range.start..rows.len().min(2 * range.end)];
            isa.run(Interleave { from, to: part.panel(panel) });
        }
    });
}

/// The pairing of some rows of a panel.
struct Interleave<'a> {
    from: &'a [[u16; WIDTH]],
    to: &'a mut [[u32; WIDTH]],
}

impl Kernel for Interleave<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let (rows, last) = self.from.as_chunks::<2>();
        let zero = [0; WIDTH];
        let last = last.first().map(|even| (even, &zero));
        let rows = rows.iter().map(|[even, odd]| (even, odd)).chain(last);
        for (to, (even, odd)) in self.to.iter_mut().zip(rows) {
            for ((to, &even), &odd) in to.iter_mut().zip(even).zip(odd) {
                *to = pair(even, odd);
            }
        }
    }
}

/// Rows of bfloat16 as tiles take them.
fn rows_of(panels: &Panels<u16>) -> amx::Left<'_> {
    amx::Left { cells: bytemuck::cast_slice(panels.cells()), stride: panels.stride() }
}

/// The first rows of a matrix, to be widened.
fn by_row(panels: &Panels<u16>, rows: usize) -> Halves<'_> {
    Halves::ByRow { cells: panels.cells(), stride: panels.stride(), rows }
}

/// Some rows of a matrix, to be widened.
fn by_column<'a>(panels: &'a Panels<u16>, rows: &Range<usize>) -> Halves<'a> {
    Halves::ByColumn { cells: panels.cells_from(rows.start), stride: panels.stride(), rows: rows.len() }
}

/// Y = act(X W + b) for the first `samples` rows, rounded to bfloat16 unless Y is in 32-bit floats.
///
/// `x` is samples x inputs, `w` pairs of inputs x outputs, `y` samples x outputs; one `bias` an output, or none
/// at all.
///
/// # Panics
/// When sizes do not fit together.
pub fn forward<C: Cell>(
    team: &Team,
    samples: usize,
    x: &Panels<u16>,
    w: &Panels<u32>,
    bias: &[f32],
    y: &mut Panels<C>,
    after: After<'_, C>,
) {
    check("X", x, samples, x.columns());
    check("W", w, x.columns().div_ceil(2), y.columns());
    check("Y", y, samples, w.columns());
    let bias = biases(bias, w.columns());
    let shape = forward_shape_in_pairs(samples, x.columns(), w.columns(), team.threads());
    if let Some(amx) = team.isa().amx() {
        let left = LeftSource::<u16>::Ready(rows_of(x));
        let right = RightSource::Ready { cells: bytemuck::cast_slice(w.cells()), stride: w.stride() };
        return TiledPass { shape, left, right, bias, onto: Onto::Zero, after }.run(team, amx, y);
    }
    let pairs = Halves::Pairs { cells: w.cells(), stride: w.stride(), rows: shape.steps };
    let widened = passed(team, [(by_row(x, samples), x.panels()), (pairs, w.panels())], bias, |x, w| {
        let shape = shape.widened();
        let left = ByRow::<WIDTH> { cells: x.cells, stride: x.stride };
        let right = Right::Ready { cells: w.cells, stride: w.stride };
        Pass { shape, plan: Plan::new(shape), left, right, bias, onto: Onto::Zero, after }.run(team, y);
    });
    if widened {
        return;
    }
    let left = ByRow::<{ WIDTH / 2 }> { cells: bytemuck::cast_slice(x.cells()), stride: x.stride() };
    let right = Right::Ready { cells: bytemuck::cast_slice(w.cells()), stride: w.stride() };
    Pass { shape, plan: Plan::new(shape), left, right, bias, onto: Onto::Zero, after }.run(team, y);
}

/// dX = dY Wᵀ for the first `samples` rows, rounded to bfloat16 unless dX is in 32-bit floats.
///
/// `dy` is samples x outputs, `w` pairs of inputs x outputs, `dx` samples x inputs.
///
/// # Panics
/// When sizes do not fit together.
pub fn backward_data<C: Cell>(
    team: &Team,
    samples: usize,
    dy: &Panels<u16>,
    w: &Panels<u32>,
    dx: &mut Panels<C>,
    after: After<'_, C>,
) {
    check("dY", dy, samples, w.columns());
    check("dX", dx, samples, dx.columns());
    check("W", w, dx.columns().div_ceil(2), dy.columns());
    let shape = forward_shape_in_pairs(samples, w.columns(), dx.columns(), team.threads());
    if let Some(amx) = team.isa().amx() {
        let left = LeftSource::<u16>::Ready(rows_of(dy));
        let cells = bytemuck::cast_slice(w.cells());
        let right = RightSource::Transposed { cells, stride: w.stride(), rows: w.rows() };
        return TiledPass { shape, left, right, bias: None, onto: Onto::Zero, after }.run(team, amx, dx);
    }
    let pairs = Halves::Transposed { cells: w.cells(), stride: w.stride(), rows: dx.columns().div_ceil(2) };
    let widened = passed(team, [(by_row(dy, samples), dy.panels()), (pairs, w.panels())], None, |dy, w| {
        let shape = shape.widened();
        let left = ByRow::<WIDTH> { cells: dy.cells, stride: dy.stride };
        let Wide { cells, stride, rows } = w;
        let right = Right::Transposed(Transposed { cells, stride, rows });
        Pass { shape, plan: Plan::new(shape), left, right, bias: None, onto: Onto::Zero, after }.run(team, dx);
    });
    if widened {
        return;
    }
    let left = ByRow::<{ WIDTH / 2 }> { cells: bytemuck::cast_slice(dy.cells()), stride: dy.stride() };
    let cells = bytemuck::cast_slice(w.cells());
    let (stride, rows) = (w.stride(), w.rows());
    let right = Right::Transposed(Transposed { cells, stride, rows });
    Pass { shape, plan: Plan::new(shape), left, right, bias: None, onto: Onto::Zero, after }.run(team, dx);
}

/// dW = Xᵀ dY over a range of samples, in 32-bit floats; `onto` and ranges are as in [`super::backward_weights`]. `x`
/// is samples x inputs, `dy` samples x outputs, `dw` inputs x outputs. `pairs` is room for `x` and `dy` in pairs of
/// samples: tiles take them without.
///
/// # Panics
/// When sizes do not fit together.
pub fn backward_weights(
    team: &Team,
    samples: Range<usize>,
    x: &Panels<u16>,
    dy: &Panels<u16>,
    pairs: &mut [Panels<u32>; 2],
    onto: Onto,
    dw: &mut Panels<f32>,
) {
    check("X", x, samples.end, dw.rows());
    check("dY", dy, samples.end, dw.columns());
    let shape = weights_shape_in_pairs(samples.len(), dw.rows(), dw.columns(), team.threads());
    if let Some(amx) = team.isa().amx() {
        let (first, count) = (samples.start, samples.len());
        let [x, dy] = [x, dy].map(|from| Samples { cells: from.cells_from(first), stride: from.stride(), count });
        let (left, right) = (LeftSource::ByColumn(x), RightSource::ByRow(dy));
        return TiledPass { shape, left, right, bias: None, onto, after: After::Keep }.run(team, amx, dw);
    }
    let operands = [(by_column(x, &samples), x.panels()), (by_column(dy, &samples), dy.panels())];
    let widened = !team.isa().multiplies_pairs()
        && (onto == Onto::Zero || may_go_on(team, dw))
        && passed(team, operands, None, |x, dy| {
            let shape = shape.widened();
            let left = ByColumn::<false> { cells: x.cells, stride: x.stride };
            let right = Right::Ready { cells: dy.cells, stride: dy.stride };
            let pass = Pass { shape, plan: Plan::new(shape), left, right, bias: None, onto, after: After::Keep };
            pass.run(team, dw);
        });
    if widened {
        return;
    }
    let [x_pairs, dy_pairs] = pairs;
    pair_rows(team, samples.clone(), x, x_pairs);
    pair_rows(team, samples, dy, dy_pairs);
    let left = ByColumn::<true> { cells: bytemuck::cast_slice(x_pairs.cells()), stride: x_pairs.stride() };
    let right = Right::Ready { cells: bytemuck::cast_slice(dy_pairs.cells()), stride: dy_pairs.stride() };
    Pass { shape, plan: Plan::new(shape), left, right, bias: None, onto, after: After::Keep }.run(team, dw);
}
