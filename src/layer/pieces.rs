//! A layer in pieces: weights that one rank moves for all, with their gradients.
//!
//! Ranks have the same weights and each its own gradient of them. One rank sums a piece's gradient over all ranks,
//! moves the piece, and gives the moved weights to the others (SC20, Section IV-A), so a piece shows its weights as
//! words that travel as they are. Pieces of a layer follow one another in memory order; cutting more finely keeps the
//! boundaries of a coarser cut, if its number divides the finer one.

use std::ops::Range;

use super::Linear;
use super::linear::UpdateOperands;
use super::weight::{Halves, Weight};
use crate::base::even_part;
use crate::math::brgemm::{Row, WIDTH};
use crate::optim::{
    Direct, Lamb, Low, MOMENTS, Move, MoveSplit, Optimizer, ROW, Rule, Scale, SquareRows, Squares, StepSize, trust,
    with_rule,
};
use crate::simd::Isa;
use crate::sync::Line;

/// Some of a layer's weights or biases with their gradients, padding included.
#[derive(Debug)]
pub struct Piece<'a> {
    gradient: &'a mut [f32],
    weight: PieceWeights<'a>,
    optimizer: Optimizer,
    /// As many elements as gradients in each that the optimizer has.
    moments: Moments<'a>,
    /// Elements of a row of memory.
    row: usize,
    /// A pair a row, where a norm is needed.
    squares: &'a mut [Squares],
}

type Moments<'a> = [&'a mut [f32]; MOMENTS];

#[derive(Debug)]
enum PieceWeights<'a> {
    Whole(&'a mut [f32]),
    Split(Pairs<'a, u32>),
    Short(Pairs<'a, u16>),
}

/// Rows of weights in pairs, in halves.
#[derive(Debug)]
struct Pairs<'a, L> {
    high: &'a mut [Row<u32>],
    low: &'a mut [Row<L>],
    /// The number of the first pair, all panels counted through.
    first: usize,
    shape: Shape,
}

/// Where pairs of rows lie in panels, and where their gradients.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Pairs from panel to panel.
    stride: usize,
    /// Rows of gradients from panel to panel.
    gradient_stride: usize,
    /// Rows of a panel that are no padding.
    rows: usize,
}

impl Shape {
    /// The row of gradients at which pair number `pair` begins, both counted through all panels.
    fn gradient_row(self, pair: usize) -> usize {
        pair / self.stride * self.gradient_stride + (2 * (pair % self.stride)).min(self.gradient_stride)
    }
}

impl<L> Pairs<'_, L> {
    /// The rows of their gradients.
    fn gradient_rows(&self) -> usize {
        self.shape.gradient_row(self.first + self.high.len()) - self.shape.gradient_row(self.first)
    }
}

/// Takes the first elements of a slice.
fn take<'a, T>(rest: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    rest.split_off_mut(..count).expect("pieces are cut from what is there")
}

impl Linear {
    /// The layer in `count` nearly equal pieces: each some of the weights and some of the biases.
    pub fn pieces(&mut self, count: usize) -> impl Iterator<Item = [Piece<'_>; 2]> {
        let UpdateOperands { weight, mut bias, gradient, optimizer, moments, squares: [squares, mut bias_squares] } =
            self.update_operands();
        let (biases, mut bias_gradient, mut bias_moments) = (bias.len(), &mut gradient.bias[..], Moments::default());
        let mut left = Moments::default();
        for ((tensors, bias), left) in moments.iter_mut().zip(&mut bias_moments).zip(&mut left) {
            (*bias, *left) = (&mut tensors.bias, tensors.weight.cells_mut().as_flattened_mut());
        }
        let gradient_stride = gradient.weight.stride();
        let mut weights = WeightsLeft {
            weight: Left::new(weight, gradient_stride),
            gradient: gradient.weight.cells_mut().as_flattened_mut(),
            optimizer,
            moments: left,
            squares,
        };
        (0..count).map(move |piece| {
            let lines = even_part(biases.div_ceil(Line::FLOATS), piece, count);
            let len = (lines.end * Line::FLOATS).min(biases) - (lines.start * Line::FLOATS).min(biases);
            let of_biases = Piece {
                gradient: take(&mut bias_gradient, len),
                weight: PieceWeights::Whole(take(&mut bias, len)),
                optimizer,
                moments: take_moments(&mut bias_moments, len),
                row: Line::FLOATS,
                squares: take_some(&mut bias_squares, len.div_ceil(Line::FLOATS)),
            };
            [weights.next(piece, count), of_biases]
        })
    }
}

/// Takes the first elements of the moments that there are.
fn take_moments<'a>(rest: &mut Moments<'a>, count: usize) -> Moments<'a> {
    rest.each_mut().map(|rest| take_some(rest, count))
}

/// Takes the first elements of a slice, if it has any.
fn take_some<'a, T>(rest: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    if rest.is_empty() { &mut [] } else { take(rest, count) }
}

/// What is left of a layer's weights while pieces are cut from their start.
struct WeightsLeft<'a> {
    weight: Left<'a>,
    gradient: &'a mut [f32],
    optimizer: Optimizer,
    moments: Moments<'a>,
    squares: &'a mut [Squares],
}

enum Left<'a> {
    /// With the rows of all pieces.
    Whole(&'a mut [Row<f32>], usize),
    Split(PairsLeft<'a, u32>),
    Short(PairsLeft<'a, u16>),
}

struct PairsLeft<'a, L> {
    high: &'a mut [Row<u32>],
    low: &'a mut [Row<L>],
    /// Of all pieces.
    pairs: usize,
    shape: Shape,
}

impl<'a> Left<'a> {
    fn new(weight: &'a mut Weight, gradient_stride: usize) -> Self {
        match weight {
            Weight::Whole(weight) => {
                let rows = weight.cells_mut();
                let count = rows.len();
                Self::Whole(rows, count)
            }
            Weight::Split(halves) => Self::Split(PairsLeft::new(halves, gradient_stride)),
            Weight::Short(halves) => Self::Short(PairsLeft::new(halves, gradient_stride)),
        }
    }
}

impl<'a> WeightsLeft<'a> {
    /// Piece `piece` of `count`; the pieces before it are gone.
    fn next(&mut self, piece: usize, count: usize) -> Piece<'a> {
        let (weight, rows) = match &mut self.weight {
            Left::Whole(rows, all) => {
                let cut = even_part(*all, piece, count).len();
                (PieceWeights::Whole(take(rows, cut).as_flattened_mut()), cut)
            }
            Left::Split(left) => {
                let pairs = left.take(piece, count);
                let rows = pairs.gradient_rows();
                (PieceWeights::Split(pairs), rows)
            }
            Left::Short(left) => {
                let pairs = left.take(piece, count);
                let rows = pairs.gradient_rows();
                (PieceWeights::Short(pairs), rows)
            }
        };
        let len = rows * WIDTH;
        let moments = take_moments(&mut self.moments, len);
        let (gradient, squares) = (take(&mut self.gradient, len), take_some(&mut self.squares, rows));
        Piece { gradient, weight, optimizer: self.optimizer, moments, row: WIDTH, squares }
    }
}

impl<'a, L: Low> PairsLeft<'a, L> {
    fn new(halves: &'a mut Halves<L>, gradient_stride: usize) -> Self {
        let Halves { high, low, inputs } = halves;
        let shape = Shape { stride: high.stride(), gradient_stride, rows: *inputs };
        let pairs = high.cells().len();
        Self { high: high.cells_mut(), low: low.cells_mut(), pairs, shape }
    }

    fn take(&mut self, piece: usize, count: usize) -> Pairs<'a, L> {
        let pairs = even_part(self.pairs, piece, count);
        let (high, low) = (take(&mut self.high, pairs.len()), take(&mut self.low, pairs.len()));
        Pairs { high, low, first: pairs.start, shape: self.shape }
    }
}

impl<'a> Piece<'a> {
    /// The gradients, in the order of memory.
    pub fn gradient(&mut self) -> &mut [f32] {
        self.gradient
    }

    /// The optimizer that moves it.
    #[must_use]
    pub const fn optimizer(&self) -> Optimizer {
        self.optimizer
    }

    /// All that is kept of the weights, as words that mean nothing.
    #[must_use]
    pub fn into_words(self) -> [&'a mut [f32]; 2] {
        match self.weight {
            PieceWeights::Whole(weight) => [weight, &mut []],
            PieceWeights::Split(Pairs { high, low, .. }) => [words(high), words(low)],
            PieceWeights::Short(Pairs { high, low, .. }) => [words(high), words(low)],
        }
    }

    /// Moves the weights against the gradients.
    pub fn update(&mut self, isa: Isa, step_size: StepSize) {
        // Of few biases most pieces have none.
        if self.gradient.is_empty() {
            return;
        }
        with_rule!(self.optimizer, step_size, rule => self.move_by(rule, isa));
    }

    fn move_by<R: Rule>(&mut self, rule: R, isa: Isa) {
        let (gradient, moments) = (&*self.gradient, self.moments.each_mut().map(|moment| &mut **moment));
        match &mut self.weight {
            PieceWeights::Whole(weight) => isa.run(Move { rule, weight, gradient, term: &[], moments }),
            PieceWeights::Split(pairs) => pairs.move_by(rule, gradient, moments, isa),
            PieceWeights::Short(pairs) => pairs.move_by(rule, gradient, moments, isa),
        }
    }

    /// Puts directions in the place of the gradients, and notes the squares of which norms are made.
    pub fn direct(&mut self, isa: Isa, rule: Lamb) {
        let Self { gradient, row, squares, weight, .. } = self;
        if gradient.is_empty() {
            return;
        }
        let (row, gradient, squares) = (*row, &mut **gradient, &mut **squares);
        let moments = self.moments.each_mut().map(|moment| &mut **moment);
        match weight {
            PieceWeights::Whole(weight) => {
                let weights = |index: usize, to: &mut [f32; ROW]| {
                    let from = &weight[index * row..weight.len().min((index + 1) * row)];
                    to[..from.len()].copy_from_slice(from);
                };
                isa.run(Direct { rule, weights, row, gradient, moments, squares });
            }
            PieceWeights::Split(pairs) => {
                let weights = |index: usize, to: &mut [f32; ROW]| pairs.join_row(index, to);
                isa.run(Direct { rule, weights, row, gradient, moments, squares });
            }
            PieceWeights::Short(pairs) => {
                let weights = |index: usize, to: &mut [f32; ROW]| pairs.join_row(index, to);
                isa.run(Direct { rule, weights, row, gradient, moments, squares });
            }
        }
    }

    /// Notes the squares of the gradients, of which the norm of all layers is made ([`Linear::supply_squares`]).
    pub fn square(&mut self, isa: Isa) {
        let Self { gradient, row, squares, .. } = self;
        isa.run(SquareRows { gradient, row: *row, squares });
    }

    /// Multiplies the gradients by a factor.
    pub fn scale(&mut self, isa: Isa, factor: f32) {
        isa.run(Scale { gradient: self.gradient, factor });
    }

    /// Moves the weights `range` against their gradients to which `term` is still to be added, if each is kept as a
    /// 32-bit float and moves on its own; false where not, and nothing is done.
    pub fn update_with(&mut self, range: Range<usize>, term: &[f32], isa: Isa, step_size: StepSize) -> bool {
        if !self.is_whole() {
            return false;
        }
        let PieceWeights::Whole(weight) = &mut self.weight else { return false };
        let (weight, gradient) = (&mut weight[range.clone()], &self.gradient[range.clone()]);
        let moments = self.moments.each_mut().map(|moment| moment.get_mut(range.clone()).unwrap_or_default());
        with_rule!(self.optimizer, step_size, rule => isa.run(Move { rule, weight, gradient, term, moments }));
        true
    }

    /// Forgets the moments.
    pub fn clear_moments(&mut self) {
        self.moments.iter_mut().for_each(|moment| moment.fill(0.0));
    }

    /// Whether [`Piece::update_with`] has an effect.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        matches!(self.weight, PieceWeights::Whole(_)) && !self.optimizer.needs_norms()
    }
}

fn words<T: bytemuck::Pod>(rows: &mut [Row<T>]) -> &mut [f32] {
    bytemuck::cast_slice_mut(rows.as_flattened_mut())
}

/// The squares of a layer's weights and of its biases, with those of their directions; or no squares, with those of
/// gradients.
#[derive(Debug, Clone, Copy, Default)]
pub struct TensorSquares(pub [[f64; 2]; 2]);

impl TensorSquares {
    /// Adds those of the next pieces, row by row: however a layer is cut, in its order of memory the sums are the same.
    pub fn add(&mut self, pieces: &[Piece<'_>; 2]) {
        for (sums, piece) in self.0.iter_mut().zip(pieces) {
            for of_row in &*piece.squares {
                sums.iter_mut().zip(of_row).for_each(|(sum, square)| *sum += f64::from(*square));
            }
        }
    }

    /// Adds other layers'.
    pub fn plus(&mut self, others: &Self) {
        let others = others.0.as_flattened();
        self.0.as_flattened_mut().iter_mut().zip(others).for_each(|(sum, square)| *sum += square);
    }

    /// Of all weights and biases, those of directions or gradients.
    #[must_use]
    pub fn second(self) -> f64 {
        self.0[0][1] + self.0[1][1]
    }

    /// The step size of the weights and that of the biases.
    #[must_use]
    pub fn step_sizes(self, step_size: StepSize) -> [StepSize; 2] {
        self.0.map(|squares| StepSize { rate: step_size.rate * trust(squares), ..step_size })
    }
}

impl<L: Low> Pairs<'_, L> {
    /// The weights whose gradients are row `index` of this piece's; of padding 0.
    #[inline(always)]
    fn join_row(&self, index: usize, to: &mut Row<f32>) {
        let Shape { stride, gradient_stride, rows } = self.shape;
        let row = self.shape.gradient_row(self.first) + index;
        let (panel, row) = (row / gradient_stride, row % gradient_stride);
        if row < rows {
            let pair = panel * stride + row / 2 - self.first;
            let both = self.high[pair].iter().zip(&self.low[pair]);
            to.iter_mut().zip(both).for_each(|(to, (high, low))| *to = low.join(*high)[row % 2]);
        }
    }

    fn move_by<R: Rule>(&mut self, rule: R, gradient: &[f32], moments: Moments<'_>, isa: Isa) {
        let mut moments = moments.map(|moment| moment.as_chunks_mut().0);
        let (Shape { stride, rows, .. }, first) = (self.shape, self.first);
        let gradient: &[Row<f32>] = gradient.as_chunks().0;
        let (begin, end) = (first, first + self.high.len());
        let mut pair = begin;
        while pair < end {
            // The pairs of one panel, without the padding at its end.
            let panel = pair / stride * stride;
            let (from, to) = (pair - panel, (end - panel).min(rows.div_ceil(2)));
            if from < to {
                let here = pair - begin..panel + to - begin;
                let start = self.shape.gradient_row(pair) - self.shape.gradient_row(begin);
                let rows = start..start + (2 * to).min(rows) - 2 * from;
                let gradient = &gradient[rows.clone()];
                let moments = moments.each_mut().map(|moment| moment.get_mut(rows.clone()).unwrap_or_default());
                let (high, low) = (&mut self.high[here.clone()], &mut self.low[here]);
                isa.run(MoveSplit { rule, high, low, gradient, moments });
            }
            pair = panel + stride;
        }
    }
}

#[cfg(test)]
mod tests;
