//! The passes in 32-bit floats.

use std::ops::Range;

use super::panels::{Panels, Row, WIDTH};
use super::plan::{Plan, Shape};
use super::right::{Right, with_copies};
use super::sweep::{Own, Sweep};
use super::thirds;
use super::tile::{ByColumn, ByRow, Cell, Finish, Left};
use super::transposed::Transposed;
use crate::machine::team::Team;
use crate::simd::{Kernel, Simd};
use crate::sync::{Grid, Rows};

/// Samples that one part of a minibatch has a multiple of, so that sums over its parts have the bits of sums over the
/// whole: passes on bfloat16 take samples in pairs, tiles 64 at a time.
pub const TOGETHER: usize = 64;

/// What a pass does with complete sums.
#[derive(Debug, Clone, Copy)]
pub enum After<'a, C> {
    /// Nothing.
    Keep,
    /// ReLU: 0 where they are 0 or less.
    Relu,
    /// ReLU's gradient: 0 where the activation, which has the result's shape, is 0 or less.
    Gate(&'a Panels<C>),
    /// What is added to them, of the result's shape: the gradient that went round the layer.
    Add(&'a Panels<C>),
}

impl<'a, C: Cell> After<'a, C> {
    /// What becomes of some rows of a panel of the result.
    #[inline(always)]
    pub(super) fn of(self, panel: usize, rows: &Range<usize>) -> Finish<'a, C> {
        match self {
            Self::Keep => Finish::Keep,
            Self::Relu => Finish::Relu,
            Self::Gate(gate) => Finish::Gate(&gate.panel(panel)[rows.clone()]),
            Self::Add(term) => Finish::Add(&term.panel(panel)[rows.clone()]),
        }
    }
}

/// What the sums over samples start from: those of a minibatch that is taken in parts go on from one part to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onto {
    /// From 0.
    Zero,
    /// From what the result holds.
    Result,
}

/// Sizes that the operands of a pass must agree on.
pub(super) fn check<C: bytemuck::Pod>(name: &str, panels: &Panels<C>, rows: usize, columns: usize) {
    let has = (panels.rows(), panels.columns());
    assert!(has.0 >= rows && has.1 == columns, "{name} is {has:?}, not {rows} (or more) x {columns}");
}

/// A pass: its operands and what happens to the sums.
pub(super) struct Pass<'a, L, C> {
    pub(super) shape: Shape,
    pub(super) plan: Plan,
    pub(super) left: L,
    pub(super) right: Right<'a>,
    /// One a column of the result.
    pub(super) bias: Option<&'a [f32]>,
    /// Without a bias.
    pub(super) onto: Onto,
    pub(super) after: After<'a, C>,
}

impl<L: Left, C: Cell> Pass<'_, L, C> {
    /// Shares the first `shape.rows` rows of `out` out among the team, for one chunk of depth after another.
    pub(super) fn run(self, team: &Team, out: &mut Panels<C>) {
        let Self { shape, plan, left, right, bias, onto, after } = self;
        let sizes = [out.panels(), shape.rows, out.stride()];
        if sizes[0] == 0 || sizes[1] == 0 {
            return;
        }
        let (isa, pieces, columns) = (team.isa(), plan.pieces(shape), shape.columns);
        let mut first = 0;
        loop {
            let end = shape.steps.min(first + plan.depth);
            let (steps, bias) = (first..end, bias.filter(|_| first == 0));
            let ending = if end == shape.steps { after } else { After::Keep };
            let sweep = |own: &mut Own<'_>, out| {
                isa.run(Sweep { out, columns, left, right, own, steps: steps.clone(), plan, bias, onto, ending });
            };
            let grid = Grid::new(out.cells_mut(), sizes, [plan.across, plan.down], shape.grain).split(pieces);
            if right.is_copied(&plan) {
                with_copies(&plan, team.threads(), |rows, each| {
                    // One "row" of `Rows` is all that one thread needs.
                    let rows = Rows::new(rows, each, team.threads(), 1);
                    team.share_with(rows, grid, |rows| Own { rows: rows.data, held: None }, sweep);
                });
            } else {
                team.share(grid, |part| sweep(&mut Own::default(), part));
            }
            first = end;
            if first == shape.steps {
                return;
            }
        }
    }
}

/// Y = act(X W + b) for the first `samples` rows.
///
/// `x` is samples x inputs, `w` inputs x outputs, `y` samples x outputs; one `bias` an output, or none at all.
///
/// # Panics
/// When sizes do not fit together.
pub fn forward(
    team: &Team,
    samples: usize,
    x: &Panels<f32>,
    w: &Panels<f32>,
    bias: &[f32],
    y: &mut Panels<f32>,
    after: After<'_, f32>,
) {
    check("X", x, samples, w.rows());
    check("Y", y, samples, w.columns());
    let bias = biases(bias, w.columns());
    if let Some(amx) = thirds::thirds_for(team.isa(), w.rows(), w.columns()) {
        return thirds::forward(team, amx, samples, [x, w], bias, y, after);
    }
    let shape = forward_shape(samples, w.rows(), w.columns(), team.threads());
    let left = ByRow { cells: x.cells(), stride: x.stride() };
    let right = Right::Ready { cells: w.cells(), stride: w.stride() };
    Pass { shape, plan: Plan::new(shape), left, right, bias, onto: Onto::Zero, after }.run(team, y);
}

/// What sums start from, if there are biases.
pub(super) fn biases(bias: &[f32], outputs: usize) -> Option<&[f32]> {
    assert!(bias.is_empty() || bias.len() == outputs, "one bias an output, or none");
    (!bias.is_empty()).then_some(bias)
}

/// The shape of [`forward`]'s work; backward-by-data's has inputs and outputs exchanged.
#[must_use]
pub const fn forward_shape(samples: usize, inputs: usize, outputs: usize, threads: usize) -> Shape {
    Shape { rows: samples, grain: 1, columns: outputs, steps: inputs, whole: false, threads }
}

/// dX = dY Wᵀ for the first `samples` rows.
///
/// `dy` is samples x outputs, `w` inputs x outputs, `dx` samples x inputs.
///
/// # Panics
/// When sizes do not fit together.
pub fn backward_data(
    team: &Team,
    samples: usize,
    dy: &Panels<f32>,
    w: &Panels<f32>,
    dx: &mut Panels<f32>,
    after: After<'_, f32>,
) {
    check("dY", dy, samples, w.columns());
    check("dX", dx, samples, w.rows());
    if let Some(amx) = thirds::thirds_for(team.isa(), w.rows(), w.columns()) {
        return thirds::backward_data(team, amx, samples, [dy, w], dx, after);
    }
    let shape = forward_shape(samples, w.columns(), w.rows(), team.threads());
    let left = ByRow { cells: dy.cells(), stride: dy.stride() };
    let right = Right::Transposed(Transposed { cells: w.cells(), stride: w.stride(), rows: w.rows() });
    Pass { shape, plan: Plan::new(shape), left, right, bias: None, onto: Onto::Zero, after }.run(team, dx);
}

/// dW = Xᵀ dY over a range of samples; `onto` says what the sums start from. Ranges that follow each other, each but
/// the last a multiple of [`TOGETHER`] samples, give the bits of one range.
///
/// `x` is samples x inputs, `dy` samples x outputs, `dw` inputs x outputs.
///
/// # Panics
/// When sizes do not fit together.
pub fn backward_weights(
    team: &Team,
    samples: Range<usize>,
    x: &Panels<f32>,
    dy: &Panels<f32>,
    onto: Onto,
    dw: &mut Panels<f32>,
) {
    check("X", x, samples.end, dw.rows());
    check("dY", dy, samples.end, dw.columns());
    if let Some(amx) = thirds::thirds_for(team.isa(), dw.rows(), dw.columns()) {
        return thirds::backward_weights(team, amx, samples, [x, dy], onto, dw);
    }
    let shape = weights_shape(samples.len(), dw.rows(), dw.columns(), team.threads());
    let left = ByColumn::<false> { cells: x.cells_from(samples.start), stride: x.stride() };
    let right = Right::Ready { cells: dy.cells_from(samples.start), stride: dy.stride() };
    Pass { shape, plan: Plan::new(shape), left, right, bias: None, onto, after: After::Keep }.run(team, dw);
}

/// The shape of [`backward_weights`]'s work. A tile stays within a panel of inputs; where there are fewer blocks of 64
/// x 64 weights than threads, as in narrow layers on a socket of many cores, quarters of these are shared out.
#[must_use]
pub const fn weights_shape(samples: usize, inputs: usize, outputs: usize, threads: usize) -> Shape {
    let blocks = inputs.div_ceil(WIDTH) * outputs.div_ceil(WIDTH);
    let grain = if blocks < threads { WIDTH / 4 } else { WIDTH };
    Shape { rows: inputs, grain, columns: outputs, steps: samples, whole: false, threads }
}

/// db = the column sums of dY over some rows, in ascending order.
///
/// # Panics
/// When sizes do not fit together.
pub fn bias_gradient<C: Cell>(team: &Team, samples: Range<usize>, dy: &Panels<C>, onto: Onto, out: &mut [f32]) {
    check("dY", dy, samples.end, out.len());
    let isa = team.isa();
    let grain = columns_together(out.len(), team.threads());
    team.share(Rows::new(out, 1, team.pieces(), grain), |band| {
        for (index, out) in band.data.chunks_mut(grain).enumerate() {
            let column = band.first + index * grain;
            let from = &dy.panel(column / WIDTH)[samples.clone()];
            isa.run(PanelSums { out, first: column % WIDTH, onto, from });
        }
    });
}

/// Columns that are summed by one thread at a time: a panel's, whose sums hide each other's latencies, unless threads
/// would have nothing to do; then parts of it, down to a cache line of a row. They divide a panel.
fn columns_together(columns: usize, threads: usize) -> usize {
    columns.div_ceil(threads).next_power_of_two().clamp(WIDTH / 4, WIDTH)
}

/// Sums down some columns of a panel from a multiple of 16 on, as many as `out` has.
struct PanelSums<'a, C> {
    out: &'a mut [f32],
    first: usize,
    onto: Onto,
    from: &'a [Row<C>],
}

impl<C: Cell> Kernel for PanelSums<'_, C> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut sums = [0.0; WIDTH];
        if self.onto == Onto::Result {
            sums[..self.out.len()].copy_from_slice(self.out);
        }
        for column in (0..self.out.len()).step_by(4 * S::LANES) {
            let count = (self.out.len() - column).div_ceil(S::LANES).min(4);
            let mut four = [simd.splat(0.0); 4];
            for (v, sum) in four.iter_mut().enumerate().take(count) {
                *sum = simd.load(&sums[column + v * S::LANES..]);
            }
            for row in self.from {
                for (v, sum) in four.iter_mut().enumerate().take(count) {
                    *sum = simd.add(*sum, C::load(simd, &row[self.first + column + v * S::LANES..]));
                }
            }
            for (v, sum) in four.into_iter().enumerate().take(count) {
                simd.store(sum, &mut sums[column + v * S::LANES..]);
            }
        }
        self.out.copy_from_slice(&sums[..self.out.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    #[test]
    fn every_thread_has_columns_to_sum_and_no_sum_changes() {
        let together = [(512, 1), (512, 8), (512, 16), (512, 24), (512, 64), (64, 2), (1, 64)];
        assert_eq!(together.map(|(columns, threads)| columns_together(columns, threads)), [64, 64, 32, 32, 16, 32, 16]);
        for columns in [1, 15, 16, 17, 64, 65, 130, 512] {
            let values: Vec<f32> =
                (0..37 * columns).map(|at| ((at / columns * 31 + at % columns * 7) % 101) as f32 / 7.0 - 6.0).collect();
            sums_are_those_of_one_thread(columns, &values, |x| x);
            let halves: Vec<u16> = values.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
            sums_are_those_of_one_thread(columns, &halves, |half| f32::from_bits(u32::from(half) << 16));
        }
    }

    fn sums_are_those_of_one_thread<C: Cell>(columns: usize, values: &[C], value: impl Fn(C) -> f32) {
        let samples = values.len() / columns;
        let dy = Panels::from_rows(values, samples, columns);
        let before = |k: usize| k as f32 / 3.0;
        for (isa, threads) in Isa::all().into_iter().flat_map(|isa| [1, 2, 3, 9].map(|threads| (isa, threads))) {
            let team = Team::with_isa(threads, isa).unwrap();
            for onto in [Onto::Zero, Onto::Result] {
                let mut out: Vec<f32> = (0..columns).map(before).collect();
                bias_gradient(&team, 2..samples, &dy, onto, &mut out);
                for (k, sum) in out.iter().enumerate() {
                    let start = if onto == Onto::Result { before(k) } else { 0.0 };
                    let expected = (2..samples).fold(start, |sum, n| sum + value(values[n * columns + k]));
                    assert_eq!(sum.to_bits(), expected.to_bits(), "{isa:?}, {threads} threads, {k} of {columns}");
                }
            }
        }
    }
}
