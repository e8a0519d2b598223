//! Fully connected layers one after another, and each pass through them: what `bench mlp`, `bench gemm` and `tune gemm`
//! run. The matrices are those of training; the passes are `math/brgemm`'s.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use crate::machine::limits::{Rate, bf16_pass_peak, f32_peak, thirds_peak};
use crate::machine::team::Team;
use crate::math::brgemm::{self, After, Onto, Panels, Shape, WIDTH, bf16};
use crate::simd::Isa;
use crate::simd::bf16::{dot_pair, narrow, pair, sum_in_thirds, sum_on_tiles, widen};

/// A pass through a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pass {
    /// Y = relu(X W + b)
    Forward,
    /// dX = dY Wᵀ, 0 where X is
    BackwardData,
    /// dW = Xᵀ dY
    BackwardWeights,
}

/// The numbers that a pass multiplies; it sums in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floats
    F32,
    /// bfloat16, in pairs
    Bf16,
}

impl Pass {
    /// All, in the order of training.
    pub const ALL: [Self; 3] = [Self::Forward, Self::BackwardData, Self::BackwardWeights];

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::BackwardData => "backward-data",
            Self::BackwardWeights => "backward-weights",
        }
    }

    /// The shape of this pass's work for `n` samples, `c` inputs and `k` outputs.
    pub fn shape(self, precision: Precision, [n, c, k]: [usize; 3], team: &Team) -> Shape {
        let (threads, in_pairs) = (team.threads(), brgemm::thirds_for(team.isa(), c, k).is_some());
        let shape = match (self, in_pairs || precision == Precision::Bf16) {
            (Self::Forward, false) => brgemm::forward_shape(n, c, k, threads),
            (Self::BackwardData, false) => brgemm::forward_shape(n, k, c, threads),
            (Self::BackwardWeights, false) => brgemm::weights_shape(n, c, k, threads),
            (Self::Forward, true) => bf16::forward_shape_in_pairs(n, c, k, threads),
            (Self::BackwardData, true) => bf16::forward_shape_in_pairs(n, k, c, threads),
            (Self::BackwardWeights, true) => bf16::weights_shape_in_pairs(n, c, k, threads),
        };
        if precision == Precision::Bf16 && !team.isa().multiplies_pairs() { shape.widened() } else { shape }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

/// The limit of a pass and its name: the instruction that multiplies, on all threads, in registers. bfloat16 without
/// such an instruction is computed with those of f32 and held against them.
pub fn peak(team: &Team, precision: Precision) -> (Rate, &'static str) {
    let multiplies = matches!(team.isa(), Isa::Avx512Bf16(_) | Isa::AmxBf16(_) | Isa::AmxThirds(_));
    let name = if team.isa().amx().is_some() { "AMX peak" } else { "bf16 peak" };
    let peak = (precision == Precision::Bf16 && multiplies).then(|| bf16_pass_peak(team)).flatten();
    peak.map_or_else(|| (f32_peak(team), "f32 peak"), |rate| (rate, name))
}

/// The limit of f32 on tiles, where the passes through a layer of `c` inputs and `k` outputs multiply so.
pub fn tiles_peak(team: &Team, precision: Precision, [c, k]: [usize; 2]) -> Option<Rate> {
    let on_tiles = precision == Precision::F32 && brgemm::thirds_for(team.isa(), c, k).is_some();
    on_tiles.then(|| thirds_peak(team)).flatten()
}

/// Layers of equal or different widths with everything that their passes read and write.
pub struct Chain {
    /// Samples that there are, and those that are taken.
    most: usize,
    samples: usize,
    /// Inputs, then each layer's outputs.
    widths: Vec<usize>,
    biases: Vec<Vec<f32>>,
    weight_gradients: Vec<Panels<f32>>,
    numbers: Numbers,
}

enum Numbers {
    F32(Matrices<f32, f32>),
    /// With room for each layer's inputs and gradients in pairs of samples, for backward-by-weights.
    Bf16(Matrices<u16, u32>, Vec<[Panels<u32>; 2]>),
}

struct Matrices<A, W> {
    /// The first layer's input, then each layer's output.
    activations: Vec<Panels<A>>,
    gradients: Vec<Panels<A>>,
    weights: Vec<Panels<W>>,
}

impl Chain {
    /// Layers through `widths` for `samples` samples; data and weights are pseudo-random, outputs 0.
    pub fn new(team: &Team, samples: usize, widths: &[usize], precision: Precision) -> Self {
        let layers = || widths.windows(2).map(|pair| (pair[0], pair[1]));
        // Sums of unit variance stay near 1 through all layers.
        let weights = || layers().map(|(c, k)| random(c, k, (6.0 / c as f32).sqrt()));
        let activations = || widths.iter().map(|&width| random(samples, width, 1.0));
        let numbers = match precision {
            Precision::F32 => Numbers::F32(Matrices {
                activations: activations().collect(),
                gradients: activations().collect(),
                weights: weights().collect(),
            }),
            Precision::Bf16 => {
                let pairs = |(c, k)| [c, k].map(|width| Panels::zeroed(samples.div_ceil(2), width));
                let matrices = Matrices {
                    activations: activations().map(|panels| narrowed(&panels)).collect(),
                    gradients: activations().map(|panels| narrowed(&panels)).collect(),
                    weights: weights().map(|panels| bf16::pairs_of(team, &panels)).collect(),
                };
                Numbers::Bf16(matrices, layers().map(pairs).collect())
            }
        };
        Self {
            most: samples,
            samples,
            widths: widths.to_vec(),
            biases: layers().map(|(_, k)| (0..k).map(|j| value(j, 1.0)).collect()).collect(),
            weight_gradients: layers().map(|(c, k)| Panels::zeroed(c, k)).collect(),
            numbers,
        }
    }

    /// Takes the first `samples` samples in the runs to come.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn shorten(&mut self, samples: usize) {
        assert!(samples <= self.most, "{samples} of {} samples", self.most);
        self.samples = samples;
    }

    /// Multiplications and additions of one pass.
    pub fn operations(&self) -> f64 {
        self.widths.windows(2).map(|pair| 2.0 * (self.samples * pair[0]) as f64 * pair[1] as f64).sum()
    }

    /// Runs a pass through all layers, in the order of training.
    pub fn run(&mut self, team: &Team, pass: Pass) {
        let Self { samples, biases, weight_gradients, numbers, .. } = self;
        let (samples, layers) = (*samples, biases.len());
        match (numbers, pass) {
            (Numbers::F32(Matrices { activations, weights, .. }), Pass::Forward) => {
                for layer in 0..layers {
                    let (x, y) = activations.split_at_mut(layer + 1);
                    let (x, w, bias) = (&x[layer], &weights[layer], &biases[layer]);
                    brgemm::forward(team, samples, x, w, bias, &mut y[0], After::Relu);
                }
            }
            (Numbers::Bf16(Matrices { activations, weights, .. }, _), Pass::Forward) => {
                for layer in 0..layers {
                    let (x, y) = activations.split_at_mut(layer + 1);
                    let (x, w, bias) = (&x[layer], &weights[layer], &biases[layer]);
                    bf16::forward(team, samples, x, w, bias, &mut y[0], After::Relu);
                }
            }
            (Numbers::F32(Matrices { activations, gradients, weights }), Pass::BackwardData) => {
                for layer in (0..layers).rev() {
                    let (dx, dy) = gradients.split_at_mut(layer + 1);
                    let (w, gate) = (&weights[layer], After::Gate(&activations[layer]));
                    brgemm::backward_data(team, samples, &dy[0], w, &mut dx[layer], gate);
                }
            }
            (Numbers::Bf16(Matrices { activations, gradients, weights }, _), Pass::BackwardData) => {
                for layer in (0..layers).rev() {
                    let (dx, dy) = gradients.split_at_mut(layer + 1);
                    let (w, gate) = (&weights[layer], After::Gate(&activations[layer]));
                    bf16::backward_data(team, samples, &dy[0], w, &mut dx[layer], gate);
                }
            }
            (Numbers::F32(Matrices { activations, gradients, .. }), Pass::BackwardWeights) => {
                for (layer, dw) in weight_gradients.iter_mut().enumerate().rev() {
                    let (x, dy) = (&activations[layer], &gradients[layer + 1]);
                    brgemm::backward_weights(team, 0..samples, x, dy, Onto::Zero, dw);
                }
            }
            (Numbers::Bf16(Matrices { activations, gradients, .. }, pairs), Pass::BackwardWeights) => {
                for (layer, dw) in weight_gradients.iter_mut().enumerate().rev() {
                    let (x, dy) = (&activations[layer], &gradients[layer + 1]);
                    bf16::backward_weights(team, 0..samples, x, dy, &mut pairs[layer], Onto::Zero, dw);
                }
            }
        }
    }

    /// Holds some results of the last run of `pass` with `isa` against their definition, to the bit.
    ///
    /// # Panics
    /// When one differs.
    pub fn check(&self, isa: Isa, pass: Pass) {
        for layer in 0..self.biases.len() {
            let (c, k) = (self.widths[layer], self.widths[layer + 1]);
            let (rows, columns) = match pass {
                Pass::Forward => (self.samples, k),
                Pass::BackwardData => (self.samples, c),
                Pass::BackwardWeights => (c, k),
            };
            // All corners, and places that share no factor with blocks.
            let spread = (0..24).map(|place| (place * 7919 % rows, place * 104_729 % columns));
            for (row, column) in [(0, columns - 1), (rows - 1, 0), (rows - 1, columns - 1)].into_iter().chain(spread) {
                let place = Place { layer, row, column };
                let (found, expected) = match &self.numbers {
                    Numbers::F32(matrices) => self.f32_result(matrices, isa, pass, place),
                    Numbers::Bf16(matrices, _) => self.bf16_result(matrices, isa, pass, place),
                };
                assert!(
                    found == expected,
                    "{} of layer {layer} at ({row}, {column}): {found}, not {expected}",
                    pass.name()
                );
            }
        }
    }

    /// What a pass wrote at a place, and the sum that belongs there.
    fn f32_result(&self, matrices: &Matrices<f32, f32>, isa: Isa, pass: Pass, place: Place) -> (f32, f32) {
        let Place { layer, row, column } = place;
        let Matrices { activations, gradients, weights } = matrices;
        let (x, w, dy) = (&activations[layer], &weights[layer], &gradients[layer + 1]);
        let thirds = brgemm::thirds_for(isa, w.rows(), w.columns()).is_some();
        let sum = |start: f32, terms: usize, term: &dyn Fn(usize) -> (f32, f32)| {
            let fused = |sum, i| {
                let (left, right) = term(i);
                left.mul_add(right, sum)
            };
            if thirds { sum_in_thirds(start, terms, term) } else { (0..terms).fold(start, fused) }
        };
        match pass {
            Pass::Forward => {
                let sum = sum(self.biases[layer][column], x.columns(), &|i| (at(x, row, i), at(w, i, column)));
                (at(&activations[layer + 1], row, column), sum.max(0.0))
            }
            Pass::BackwardData => {
                let sum = sum(0.0, dy.columns(), &|j| (at(dy, row, j), at(w, column, j)));
                (at(&gradients[layer], row, column), if at(x, row, column) > 0.0 { sum } else { 0.0 })
            }
            Pass::BackwardWeights => {
                let sum = sum(0.0, self.samples, &|n| (at(x, n, row), at(dy, n, column)));
                (at(&self.weight_gradients[layer], row, column), sum)
            }
        }
    }

    /// As [`Chain::f32_result`].
    fn bf16_result(&self, matrices: &Matrices<u16, u32>, isa: Isa, pass: Pass, place: Place) -> (f32, f32) {
        let Place { layer, row, column } = place;
        let Matrices { activations, gradients, weights } = matrices;
        let (x, dy) = (&activations[layer], &gradients[layer + 1]);
        let w = |i: usize, j: usize| (at(&weights[layer], i / 2, j) >> (16 * (i % 2))) as u16;
        let sum = |start: f32, terms: usize, term: &dyn Fn(usize) -> (u16, u16)| {
            if isa.amx().is_some() {
                return sum_on_tiles(start, terms, term);
            }
            // A term behind the last is 0.
            let term = |i: usize| if i < terms { term(i) } else { (0, 0) };
            (0..terms).step_by(2).fold(start, |sum, i| {
                let (even, odd) = (term(i), term(i + 1));
                dot_pair(f32::from_bits(pair(even.0, odd.0)), f32::from_bits(pair(even.1, odd.1)), sum)
            })
        };
        match pass {
            Pass::Forward => {
                let sum = sum(self.biases[layer][column], x.columns(), &|i| (at(x, row, i), w(i, column)));
                (widen(at(&activations[layer + 1], row, column)), widen(narrow(sum.max(0.0))))
            }
            Pass::BackwardData => {
                let sum = sum(0.0, dy.columns(), &|j| (at(dy, row, j), w(column, j)));
                let open = widen(at(x, row, column)) > 0.0;
                (widen(at(&gradients[layer], row, column)), if open { widen(narrow(sum)) } else { 0.0 })
            }
            Pass::BackwardWeights => {
                let sum = sum(0.0, self.samples, &|n| (at(x, n, row), at(dy, n, column)));
                (at(&self.weight_gradients[layer], row, column), sum)
            }
        }
    }
}

/// Where a layer's pass writes.
#[derive(Clone, Copy)]
struct Place {
    layer: usize,
    row: usize,
    column: usize,
}

fn at<T: bytemuck::Pod>(panels: &Panels<T>, row: usize, column: usize) -> T {
    panels.panel(column / WIDTH)[row][column % WIDTH]
}

/// A number in [-scale / 2, scale / 2): a multiplicative hash (Knuth, TAOCP volume 3, 6.4) of its place.
fn value(place: usize, scale: f32) -> f32 {
    (((place as u32).wrapping_mul(0x9E37_79B1) >> 8) as f32 / 16_777_216.0 - 0.5) * scale
}

fn random(rows: usize, columns: usize, scale: f32) -> Panels<f32> {
    let mut panels = Panels::zeroed(rows, columns);
    for panel in 0..panels.panels() {
        let width = panels.width(panel);
        for (i, row) in panels.panel_mut(panel).iter_mut().enumerate() {
            let first = i * columns + panel * WIDTH;
            row[..width].iter_mut().enumerate().for_each(|(j, cell)| *cell = value(first + j, scale));
        }
    }
    panels
}

fn narrowed(from: &Panels<f32>) -> Panels<u16> {
    let mut to: Panels<u16> = Panels::zeroed(from.rows(), from.columns());
    let cells = to.cells_mut().as_flattened_mut().iter_mut().zip(from.cells().as_flattened());
    cells.for_each(|(to, &x)| *to = narrow(x));
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_on_every_instruction_set_holds_against_its_definition() {
        for isa in Isa::all() {
            let team = Team::with_isa(2, isa).unwrap();
            for precision in [Precision::F32, Precision::Bf16] {
                for (samples, widths) in [(33, vec![13, 130, 1]), (64, vec![64; 6])] {
                    let mut chain = Chain::new(&team, samples, &widths, precision);
                    for pass in Pass::ALL {
                        chain.run(&team, pass);
                        chain.check(team.isa(), pass);
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "backward-weights of layer 0")]
    fn a_result_that_was_not_computed_is_noticed() {
        let team = Team::new(1).unwrap();
        Chain::new(&team, 8, &[8, 8], Precision::F32).check(team.isa(), Pass::BackwardWeights);
    }
}
