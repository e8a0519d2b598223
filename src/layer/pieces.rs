//! A layer in pieces: weights that one rank moves for all, with their gradients.
//!
//! Ranks have the same weights and each its own gradient of them. One rank sums a piece's gradient over all ranks, moves
//! the piece, and gives the moved weights to the others (SC20, Section IV-A), so a piece shows its weights as words that
//! travel as they are. Pieces of a layer follow one another in memory order; cutting more finely keeps the boundaries of
//! a coarser cut, if its number divides the finer one.

use std::ops::Range;

use super::Linear;
use super::linear::Parts;
use super::weight::{Halves, Weight};
use crate::math::brgemm::{Row, WIDTH};
use crate::optim::{Low, MOMENTS, Move, MoveSplit, Optimizer, Pace, Rule, with_rule};
use crate::simd::Isa;

/// Elements to a cache line, at which a bias is cut.
const LINE: usize = 16;

/// Some of a layer's weights or biases with their gradients, padding included.
#[derive(Debug)]
pub struct Piece<'a> {
    gradient: &'a mut [f32],
    weight: Part<'a>,
    optimizer: Optimizer,
    /// As many elements as gradients in each that the optimizer has.
    moments: Moments<'a>,
}

type Moments<'a> = [&'a mut [f32]; MOMENTS];

#[derive(Debug)]
enum Part<'a> {
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

/// The part of `count` things that is piece `piece` of `pieces`.
fn cut(count: usize, piece: usize, pieces: usize) -> Range<usize> {
    count * piece / pieces..count * (piece + 1) / pieces
}

/// Takes the first elements of a slice.
fn take<'a, T>(rest: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    rest.split_off_mut(..count).expect("pieces are cut from what is there")
}

impl Linear {
    /// The layer in `count` nearly equal pieces: each some of the weights and some of the biases.
    pub fn pieces(&mut self, count: usize) -> impl Iterator<Item = [Piece<'_>; 2]> {
        let Parts { weight, mut bias, gradient, optimizer, moments } = self.parts();
        let (outputs, mut bias_gradient, mut bias_moments) = (bias.len(), &mut gradient.bias[..], Moments::default());
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
        };
        (0..count).map(move |piece| {
            let lines = cut(outputs.div_ceil(LINE), piece, count);
            let len = (lines.end * LINE).min(outputs) - (lines.start * LINE).min(outputs);
            let biases = Piece {
                gradient: take(&mut bias_gradient, len),
                weight: Part::Whole(take(&mut bias, len)),
                optimizer,
                moments: take_moments(&mut bias_moments, len),
            };
            [weights.next(piece, count), biases]
        })
    }
}

/// Takes the first elements of the moments that there are.
fn take_moments<'a>(rest: &mut Moments<'a>, count: usize) -> Moments<'a> {
    rest.each_mut().map(|rest| if rest.is_empty() { &mut [] } else { take(rest, count) })
}

/// What is left of a layer's weights while pieces are cut from their start.
struct WeightsLeft<'a> {
    weight: Left<'a>,
    gradient: &'a mut [f32],
    optimizer: Optimizer,
    moments: Moments<'a>,
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
                let cut = cut(*all, piece, count).len();
                (Part::Whole(take(rows, cut).as_flattened_mut()), cut)
            }
            Left::Split(left) => {
                let pairs = left.take(piece, count);
                let rows = pairs.gradient_rows();
                (Part::Split(pairs), rows)
            }
            Left::Short(left) => {
                let pairs = left.take(piece, count);
                let rows = pairs.gradient_rows();
                (Part::Short(pairs), rows)
            }
        };
        let len = rows * WIDTH;
        let moments = take_moments(&mut self.moments, len);
        Piece { gradient: take(&mut self.gradient, len), weight, optimizer: self.optimizer, moments }
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
        let pairs = cut(self.pairs, piece, count);
        let (high, low) = (take(&mut self.high, pairs.len()), take(&mut self.low, pairs.len()));
        Pairs { high, low, first: pairs.start, shape: self.shape }
    }
}

impl<'a> Piece<'a> {
    /// The gradients, in the order of memory.
    pub fn gradient(&mut self) -> &mut [f32] {
        self.gradient
    }

    /// All that is kept of the weights, as words that mean nothing.
    #[must_use]
    pub fn into_words(self) -> [&'a mut [f32]; 2] {
        match self.weight {
            Part::Whole(weight) => [weight, &mut []],
            Part::Split(Pairs { high, low, .. }) => [words(high), words(low)],
            Part::Short(Pairs { high, low, .. }) => [words(high), words(low)],
        }
    }

    /// Moves the weights against the gradients.
    pub fn update(&mut self, isa: Isa, pace: Pace) {
        // Of few biases most pieces have none.
        if self.gradient.is_empty() {
            return;
        }
        with_rule!(self.optimizer, pace, rule => self.move_by(rule, isa));
    }

    fn move_by<R: Rule>(&mut self, rule: R, isa: Isa) {
        let (gradient, moments) = (&*self.gradient, self.moments.each_mut().map(|moment| &mut **moment));
        match &mut self.weight {
            Part::Whole(weight) => isa.run(Move { rule, weight, gradient, term: &[], moments }),
            Part::Split(pairs) => pairs.move_by(rule, gradient, moments, isa),
            Part::Short(pairs) => pairs.move_by(rule, gradient, moments, isa),
        }
    }

    /// Moves the weights `range` against their gradients to which `term` is still to be added, if they are kept as
    /// 32-bit floats; false where they are not, and nothing is done.
    pub fn update_with(&mut self, range: Range<usize>, term: &[f32], isa: Isa, pace: Pace) -> bool {
        let Part::Whole(weight) = &mut self.weight else { return false };
        let (weight, gradient) = (&mut weight[range.clone()], &self.gradient[range.clone()]);
        let moments = self.moments.each_mut().map(|moment| moment.get_mut(range.clone()).unwrap_or_default());
        with_rule!(self.optimizer, pace, rule => isa.run(Move { rule, weight, gradient, term, moments }));
        true
    }

    /// Forgets the moments.
    pub fn clear_moments(&mut self) {
        self.moments.iter_mut().for_each(|moment| moment.fill(0.0));
    }

    /// Whether [`Piece::update_with`] has an effect.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        matches!(self.weight, Part::Whole(_))
    }
}

fn words<T: bytemuck::Pod>(rows: &mut [Row<T>]) -> &mut [f32] {
    bytemuck::cast_slice_mut(rows.as_flattened_mut())
}

impl<L: Low> Pairs<'_, L> {
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
mod tests {
    use super::*;
    use crate::base::config::Precision;
    use crate::machine::team::Team;
    use crate::math::random;
    use crate::memory::Supply;
    use crate::optim::{Averages, Kept};

    /// A layer with weights, biases and gradients; equal for equal shapes.
    fn layer(inputs: usize, outputs: usize, kept: Kept) -> Linear {
        let mut layer = Linear::new(inputs, outputs, kept, &mut Supply::System).unwrap();
        layer.import_weight(0..outputs, &random(inputs * outputs, 1));
        layer.bias_mut().copy_from_slice(&random(outputs, 2));
        let gradient = layer.parts().gradient;
        gradient.weight.import(0..inputs, &random(inputs * outputs, 3), outputs);
        gradient.bias.copy_from_slice(&random(outputs, 4));
        layer
    }

    fn bits(layer: &Linear) -> Vec<u32> {
        layer.export_weight(0..layer.outputs()).iter().chain(layer.bias()).map(|x| x.to_bits()).collect()
    }

    fn moments(layer: &mut Linear) -> Vec<Vec<f32>> {
        let count = layer.parts().optimizer.moments().len();
        let of = |moment| [layer.export_moment(moment, 0..layer.outputs()), layer.bias_moment_mut(moment).to_vec()];
        (0..count).flat_map(of).collect()
    }

    #[test]
    fn a_layer_moves_as_each_of_its_weights() {
        let team = Team::new(3).unwrap();
        for ((inputs, outputs), kept) in cases().filter(|(_, kept)| kept.precision != Precision::Bf16Lsb8) {
            let mut layer = layer(inputs, outputs, kept);
            let count = inputs * outputs;
            let (mut weights, mut biases) = (random(count, 1), random(outputs, 2));
            let [mut of_weights, mut of_biases] = [count, outputs].map(|len| [vec![0.0f32; len], vec![0.0; len]]);
            // Gradients are inputs x outputs, weights outputs x inputs.
            let gradient: Vec<f32> = {
                let g = random(count, 3);
                (0..count).map(|at| g[at % inputs * outputs + at / inputs]).collect()
            };
            let step = |weights: &mut [f32], kept_of: &mut [Vec<f32>; MOMENTS], gradient: &[f32], pace: Pace| {
                for (at, (weight, gradient)) in weights.iter_mut().zip(gradient).enumerate() {
                    let mut own = [kept_of[0][at], kept_of[1][at]];
                    *weight = with_rule!(kept.optimizer, pace, rule => rule.step(*weight, *gradient, &mut own));
                    [kept_of[0][at], kept_of[1][at]] = own;
                }
            };
            for number in 1..=3 {
                let pace = Pace { rate: 0.3, step: number };
                layer.update(&team, pace);
                step(&mut weights, &mut of_weights, &gradient, pace);
                step(&mut biases, &mut of_biases, &random(outputs, 4), pace);
            }
            let expected: Vec<u32> = weights.iter().chain(&biases).map(|x| x.to_bits()).collect();
            assert_eq!(bits(&layer), expected, "{inputs} x {outputs} {kept:?}");
            let of_each = of_weights.into_iter().zip(of_biases).take(kept.optimizer.moments().len());
            let expected: Vec<_> = of_each.flat_map(|(weight, bias)| [weight, bias]).collect();
            assert_eq!(moments(&mut layer), expected, "{inputs} x {outputs} {kept:?}");
        }
    }

    const SHAPES: [(usize, usize); 6] = [(1, 1), (13, 64), (33, 65), (64, 130), (129, 48), (200, 513)];

    fn cases() -> impl Iterator<Item = ((usize, usize), Kept)> {
        let averages = Averages { beta1: 0.9, beta2: 0.999, eps: 1e-8, bias_correction: true };
        let optimizers = [
            Optimizer::Sgd,
            Optimizer::SgdWithDecay { decay: 0.1 },
            Optimizer::Momentum { momentum: 0.9, decay: 0.0 },
            Optimizer::Adam { averages, decay: 0.1 },
        ];
        let precisions = [Precision::F32, Precision::Bf16, Precision::Bf16Lsb8];
        let kept = precisions.map(|precision| optimizers.map(|optimizer| Kept { precision, optimizer }));
        SHAPES.into_iter().flat_map(move |shape| kept.concat().into_iter().map(move |kept| (shape, kept)))
    }

    #[test]
    fn pieces_move_as_the_layer_does() {
        let team = Team::new(1).unwrap();
        for ((inputs, outputs), kept) in cases() {
            for count in [1, 2, 3, 8, 40] {
                let (mut whole, mut cut) = (layer(inputs, outputs, kept), layer(inputs, outputs, kept));
                for _ in 0..2 {
                    whole.update(&team, 0.3);
                    cut.pieces(count).flatten().for_each(|mut piece| piece.update(team.isa(), 0.3.into()));
                }
                assert_eq!(moments(&mut whole), moments(&mut cut), "{inputs} x {outputs} {kept:?} in {count}");
                assert_eq!(bits(&whole), bits(&cut), "{inputs} x {outputs} {kept:?} in {count}");
            }
        }
    }

    #[test]
    fn words_are_all_there_is_and_finer_cuts_keep_boundaries() {
        for ((inputs, outputs), kept) in cases() {
            let (mut from, mut to) = (layer(inputs, outputs, kept), layer(inputs, outputs, kept));
            to.import_weight(0..outputs, &vec![0.0; inputs * outputs]);
            to.bias_mut().fill(0.0);
            for (from, to) in from.pieces(6).flatten().zip(to.pieces(6).flatten()) {
                for (from, to) in from.into_words().into_iter().zip(to.into_words()) {
                    to.copy_from_slice(from);
                }
            }
            assert_eq!(bits(&from), bits(&to), "{inputs} x {outputs} {kept:?}");

            let lengths = |layer: &mut Linear, count: usize| -> Vec<[usize; 2]> {
                layer.pieces(count).map(|pair| pair.map(|mut piece| piece.gradient().len())).collect()
            };
            let (coarse, fine) = (lengths(&mut from, 3), lengths(&mut from, 6));
            let joined: Vec<_> = fine.chunks(2).map(|two| [two[0][0] + two[1][0], two[0][1] + two[1][1]]).collect();
            assert_eq!(coarse, joined, "{inputs} x {outputs} {kept:?}");
        }
    }
}
