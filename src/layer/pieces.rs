//! A layer in pieces: weights that one rank moves for all, with their gradients.
//!
//! Ranks have the same weights and each its own gradient of them. One rank sums a piece's gradient over all ranks, moves
//! the piece, and gives the moved weights to the others (SC20, Section IV-A), so a piece shows its weights as words that
//! travel as they are. Pieces of a layer follow one another in memory order; cutting more finely keeps the boundaries of
//! a coarser cut, if its number divides the finer one.

use std::ops::Range;

use super::Linear;
use super::weight::{Halves, Weight};
use crate::math::brgemm::{Panels, Row};
use crate::optim::{LastTermSgd, Low, Sgd, SplitSgd};
use crate::simd::Isa;

/// Elements to a cache line, at which a bias is cut.
const LINE: usize = 16;

/// Some of a layer's weights or biases with their gradients, padding included.
#[derive(Debug)]
pub struct Piece<'a> {
    gradient: &'a mut [f32],
    weight: Part<'a>,
}

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

impl Shape {
    /// The rows of gradients of some pairs.
    fn gradient_rows(self, pairs: &Range<usize>) -> usize {
        self.gradient_row(pairs.end) - self.gradient_row(pairs.start)
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
        let (weight, weight_gradient, mut bias, mut bias_gradient) = self.tensors_mut();
        let mut weights = WeightsLeft::new(weight, weight_gradient);
        let outputs = bias.len();
        (0..count).map(move |piece| {
            let lines = cut(outputs.div_ceil(LINE), piece, count);
            let len = (lines.end * LINE).min(outputs) - (lines.start * LINE).min(outputs);
            let biases = Part::Whole(take(&mut bias, len));
            [weights.next(piece, count), Piece { gradient: take(&mut bias_gradient, len), weight: biases }]
        })
    }
}

/// What is left of a layer's weights while pieces are cut from their start.
struct WeightsLeft<'a> {
    weight: Left<'a>,
    gradient: &'a mut [Row<f32>],
    /// Rows, or pairs of rows, of all pieces.
    all: usize,
}

enum Left<'a> {
    Whole(&'a mut [Row<f32>]),
    Split(PairsLeft<'a, u32>),
    Short(PairsLeft<'a, u16>),
}

struct PairsLeft<'a, L> {
    high: &'a mut [Row<u32>],
    low: &'a mut [Row<L>],
    shape: Shape,
}

impl<'a> WeightsLeft<'a> {
    fn new(weight: &'a mut Weight, gradient: &'a mut Panels<f32>) -> Self {
        let stride = gradient.stride();
        let weight = match weight {
            Weight::Whole(weight) => Left::Whole(weight.cells_mut()),
            Weight::Split(halves) => Left::Split(PairsLeft::new(halves, stride)),
            Weight::Short(halves) => Left::Short(PairsLeft::new(halves, stride)),
        };
        let all = match &weight {
            Left::Whole(rows) => rows.len(),
            Left::Split(pairs) => pairs.high.len(),
            Left::Short(pairs) => pairs.high.len(),
        };
        Self { weight, gradient: gradient.cells_mut(), all }
    }

    /// Piece `piece` of `count`; the pieces before it are gone.
    fn next(&mut self, piece: usize, count: usize) -> Piece<'a> {
        let pairs = cut(self.all, piece, count);
        let (weight, rows) = match &mut self.weight {
            Left::Whole(rows) => (Part::Whole(take(rows, pairs.len()).as_flattened_mut()), pairs.len()),
            Left::Split(left) => (Part::Split(left.take(&pairs)), left.shape.gradient_rows(&pairs)),
            Left::Short(left) => (Part::Short(left.take(&pairs)), left.shape.gradient_rows(&pairs)),
        };
        Piece { gradient: take(&mut self.gradient, rows).as_flattened_mut(), weight }
    }
}

impl<'a, L: Low> PairsLeft<'a, L> {
    fn new(halves: &'a mut Halves<L>, gradient_stride: usize) -> Self {
        let Halves { high, low, inputs } = halves;
        let shape = Shape { stride: high.stride(), gradient_stride, rows: *inputs };
        Self { high: high.cells_mut(), low: low.cells_mut(), shape }
    }

    fn take(&mut self, pairs: &Range<usize>) -> Pairs<'a, L> {
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
    pub fn update(&mut self, isa: Isa, rate: f32) {
        match &mut self.weight {
            Part::Whole(weight) => isa.run(Sgd { weight, gradient: self.gradient, rate }),
            Part::Split(pairs) => pairs.update(self.gradient, isa, rate),
            Part::Short(pairs) => pairs.update(self.gradient, isa, rate),
        }
    }

    /// Moves the weights `range` against their gradients to which `term` is still to be added, if they are kept as
    /// 32-bit floats; false where they are not, and nothing is done.
    pub fn update_with(&mut self, range: Range<usize>, term: &[f32], isa: Isa, rate: f32) -> bool {
        let Part::Whole(weight) = &mut self.weight else { return false };
        let (weight, gradient) = (&mut weight[range.clone()], &self.gradient[range]);
        isa.run(LastTermSgd { weight, gradient, term, rate });
        true
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
    fn update(&mut self, gradient: &[f32], isa: Isa, rate: f32) {
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
                let gradient = &gradient[start..][..(2 * to).min(rows) - 2 * from];
                isa.run(SplitSgd { high: &mut self.high[here.clone()], low: &mut self.low[here], gradient, rate });
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

    /// A layer with weights, biases and gradients; equal for equal shapes.
    fn layer(inputs: usize, outputs: usize, precision: Precision) -> Linear {
        let mut layer = Linear::new(inputs, outputs, precision, &mut Supply::System).unwrap();
        layer.import_weight(0..outputs, &random(inputs * outputs, 1));
        layer.bias_mut().copy_from_slice(&random(outputs, 2));
        let (_, weight_gradient, _, bias_gradient) = layer.tensors_mut();
        weight_gradient.import(0..inputs, &random(inputs * outputs, 3), outputs);
        bias_gradient.copy_from_slice(&random(outputs, 4));
        layer
    }

    fn bits(layer: &Linear) -> Vec<u32> {
        layer.export_weight(0..layer.outputs()).iter().chain(layer.bias()).map(|x| x.to_bits()).collect()
    }

    const SHAPES: [(usize, usize); 6] = [(1, 1), (13, 64), (33, 65), (64, 130), (129, 48), (200, 513)];
    const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::Bf16Lsb8];

    #[test]
    fn pieces_move_as_the_layer_does() {
        let team = Team::new(1).unwrap();
        for ((inputs, outputs), precision) in SHAPES.into_iter().flat_map(|shape| PRECISIONS.map(|p| (shape, p))) {
            for count in [1, 2, 3, 8, 40] {
                let (mut whole, mut cut) = (layer(inputs, outputs, precision), layer(inputs, outputs, precision));
                whole.update(&team, 0.3);
                cut.pieces(count).flatten().for_each(|mut piece| piece.update(team.isa(), 0.3));
                assert_eq!(bits(&whole), bits(&cut), "{inputs} x {outputs} {precision:?} in {count}");
            }
        }
    }

    #[test]
    fn words_are_all_there_is_and_finer_cuts_keep_boundaries() {
        for ((inputs, outputs), precision) in SHAPES.into_iter().flat_map(|shape| PRECISIONS.map(|p| (shape, p))) {
            let (mut from, mut to) = (layer(inputs, outputs, precision), layer(inputs, outputs, precision));
            to.import_weight(0..outputs, &vec![0.0; inputs * outputs]);
            to.bias_mut().fill(0.0);
            for (from, to) in from.pieces(6).flatten().zip(to.pieces(6).flatten()) {
                for (from, to) in from.into_words().into_iter().zip(to.into_words()) {
                    to.copy_from_slice(from);
                }
            }
            assert_eq!(bits(&from), bits(&to), "{inputs} x {outputs} {precision:?}");

            let lengths = |layer: &mut Linear, count: usize| -> Vec<[usize; 2]> {
                layer.pieces(count).map(|pair| pair.map(|mut piece| piece.gradient().len())).collect()
            };
            let (coarse, fine) = (lengths(&mut from, 3), lengths(&mut from, 6));
            let joined: Vec<_> = fine.chunks(2).map(|two| [two[0][0] + two[1][0], two[0][1] + two[1][1]]).collect();
            assert_eq!(coarse, joined, "{inputs} x {outputs} {precision:?}");
        }
    }
}
