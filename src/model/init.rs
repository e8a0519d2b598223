//! Initial weights, by the reference's distributions (facebookresearch/dlrm, `create_mlp` and `create_emb`): W ~ N(0,
//! sqrt(2 / (m + n))) for m outputs and n inputs, b ~ N(0, sqrt(1 / m)), embedding rows ~ U(-sqrt(1 / rows), sqrt(1 /
//! rows)). Models that TorchRec defines begin as there: layers of MLPs with PyTorch's W, b ~ U(-sqrt(1 / n), sqrt(1 /
//! n)), cross layers with W ~ N(0, sqrt(2 / (m + n))) and b = 0, embedding rows as above. Rows of quotients and of
//! remainders of n values, where they are multiplied, ~ U(sqrt(1 / n), 1) (`QREmbeddingBag`). The row that all unseen
//! values share is 0. Drawn as f64 and rounded once.
//!
//! The reference draws all of them from one sequential generator, so they depend on what was drawn before; here each
//! number is a pure function of (seed, tensor, position), whatever the threads, ranks or order.

use super::names::Project;
use crate::base::config::{Composition, ModelConfig};
use crate::base::rng::{Random, Stream};
use crate::data::{Column, Schema};
use crate::embedding::Table;
use crate::layer::{LayerTensor, Linear};
use crate::machine::team::Team;
use crate::shard::scheme::Shard;

/// A distribution around 0.
#[derive(Debug, Clone, Copy)]
enum Draw {
    Zero,
    /// Normal, by its standard deviation.
    Normal(f64),
    /// Uniform up to this on either side.
    Uniform(f64),
}

impl Draw {
    fn fill(self, random: Random, len: usize) -> Vec<f32> {
        let number = |i| match self {
            Self::Zero => 0.0,
            Self::Normal(deviation) => random.normal(i) * deviation,
            Self::Uniform(bound) => 2.0f64.mul_add(random.uniform(i), -1.0) * bound,
        };
        (0..len as u64).map(|i| number(i) as f32).collect()
    }
}

/// The variance of a layer's weights by Glorot and Bengio (2010).
fn glorot(layer: &Linear) -> Draw {
    Draw::Normal(libm::sqrt(2.0 / (layer.inputs() as f64 + layer.outputs() as f64)))
}

/// What tells the layers of a network of each kind from each other: `which` of the generator's streams of weights.
mod which {
    pub(super) const CROSS: u32 = 2;
    pub(super) const PROJECTIONS: u32 = 3;
    pub(super) const MATRIX: u32 = 3;
    pub(super) const ATTENTION: u32 = 4;
    /// Of a cross network behind the first.
    pub(super) const FURTHER: u32 = 1 << 16;

    /// Of the first, the second, and so on, of the layers of type linear.
    pub(super) const fn linear(number: usize) -> u32 {
        let number = number as u32;
        if number < CROSS { number } else { number - CROSS + ATTENTION + 1 }
    }
}

/// Fills one of an MLP's layers, the MLP and the layer by their numbers.
pub(super) fn linear(project: Project, layer: &mut Linear, [number, index]: [usize; 2], seed: u64) {
    mlp(project, std::slice::from_mut(layer), [which::linear(number), index as u32], seed);
}

/// Fills the layers of attention.
pub(super) fn attention(project: Project, [matrix, layers]: [&mut [Linear]; 2], seed: u64) {
    product(matrix, which::MATRIX, seed);
    mlp(project, layers, [which::ATTENTION, 0], seed);
}

/// Fills a cross network, by its number.
pub(super) fn cross(layers: &mut [Linear], number: u32, seed: u64) {
    product(layers, if number == 0 { which::CROSS } else { which::FURTHER + number }, seed);
}

/// Fills the layers of an MLP from that number on.
fn mlp(project: Project, layers: &mut [Linear], which: [u32; 2], seed: u64) {
    fill(layers, which, seed, |layer| match project {
        Project::Dlrm | Project::Tbsm | Project::Own => {
            [glorot(layer), Draw::Normal(libm::sqrt(1.0 / layer.outputs() as f64))]
        }
        Project::TorchRec => [Draw::Uniform(libm::sqrt(1.0 / layer.inputs() as f64)); 2],
    });
}

/// Fills layers whose outputs are multiplied with something: those of a cross network, that of attention. As [`mlp`]
/// does.
fn product(layers: &mut [Linear], which: u32, seed: u64) {
    fill(layers, [which, 0], seed, |layer| [glorot(layer), Draw::Zero]);
}

/// Fills the matrices of narrow tables as facebookresearch/dlrm does (`xavier_uniform_`).
pub(super) fn projections(layers: &mut [Linear], seed: u64) {
    let bound = |layer: &Linear| libm::sqrt(6.0 / (layer.inputs() + layer.outputs()) as f64);
    fill(layers, [which::PROJECTIONS, 0], seed, |layer| [Draw::Uniform(bound(layer)), Draw::Zero]);
}

/// Sets layers of a wide part to 0: they begin by telling nothing, as their tables' rows do.
pub(super) fn zeros(layers: &mut [Linear]) {
    fill(layers, [0, 0], 0, |_| [Draw::Zero; 2]);
}

/// Fills layers, `by` the distributions of weights and biases.
fn fill(layers: &mut [Linear], [which, first]: [u32; 2], seed: u64, by: impl Fn(&Linear) -> [Draw; 2]) {
    for (index, layer) in (first..).zip(layers) {
        let [weight, bias] = by(layer);
        let weight = weight.fill(Random::new(seed, Stream::Weight(which, index)), layer.inputs() * layer.outputs());
        layer.import(LayerTensor::Weight, 0..layer.outputs(), &weight);
        let bias = bias.fill(Random::new(seed, Stream::Bias(which, index)), layer.biases());
        layer.bias_mut().copy_from_slice(&bias);
    }
}

/// Numbers that a block of the generator gives.
const DRAW: usize = 4;

/// Between which bounds a table's weights are drawn evenly, and which of its rows begins as 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The middle of the bounds, and how far they are from it.
    around: [f64; 2],
    /// The row of all unseen values, which no training sample looks up: as it is drawn it would stay, and be noise to
    /// whoever meets a new value; 0 tells nothing, as PyTorch's padding row.
    zero: Option<u64>,
}

impl Bounds {
    /// Those of each of a model's tables of these columns: 1/sqrt(rows) on both sides of 0; of a column that is looked
    /// up in two, by its values instead of the tables' rows. Rows that are multiplied are drawn from there to 1, as
    /// facebookresearch/dlrm draws all rows of such tables: products of numbers near 0 would begin with nearly no
    /// gradient, and sums of numbers near 1 with vectors that are nearly the same and so large that training diverges.
    /// Of the wide part's, 0, as its layers ([`zeros`]).
    pub(super) fn of(model: &ModelConfig, schema: &Schema) -> Vec<Self> {
        let root = |rows: u64| libm::sqrt(1.0 / rows as f64);
        let columns = &schema.tables;
        let deep = model.deep_tables(columns.len());
        let of_table = |(table, column): (usize, &Column)| Self {
            around: [0.0, if table < deep { root(column.rows) } else { 0.0 }],
            zero: column.unseen(),
        };
        let mut bounds: Vec<_> = columns.iter().enumerate().map(of_table).collect();
        let vectors = model.vectors(columns.len());
        for (remainders, column) in (vectors..).zip(model.own_composed()) {
            let least = root(model.rows[column]);
            let drawn = match model.qr_operation {
                Composition::Mult => [f64::midpoint(1.0, least), (1.0 - least) / 2.0],
                Composition::Add | Composition::Concat => [0.0, least],
            };
            [column, remainders].iter().for_each(|table| bounds[*table].around = drawn);
        }
        bounds
    }

    /// The generator's word as a weight.
    fn weight(self, word: u32) -> f32 {
        let [middle, reach] = self.around;
        (middle + reach * (((f64::from(word) + 0.5) * (2.0 / 4_294_967_296.0)) - 1.0)) as f32
    }
}

/// Fills a part of a table of `dim` columns; each number is that of its place in the whole table, and 0 in its row of
/// unseen values.
pub(super) fn shard(team: &Team, part: &mut Table, shard: &Shard, bounds: Bounds, dim: usize, seed: u64) {
    let random = Random::new(seed, Stream::Embedding(shard.table.0));
    let width = shard.columns.len();
    part.fill(team, |first, row| {
        let of_table = shard.rows.global((first / width) as u64);
        if bounds.zero == Some(of_table) {
            row.fill(0.0);
            return;
        }
        let start = of_table * dim as u64 + shard.columns.start as u64;
        let mut words = random.block(start / DRAW as u64);
        for (to, number) in row.iter_mut().zip(start..) {
            let within = (number % DRAW as u64) as usize;
            if within == 0 && number > start {
                words = random.block(number / DRAW as u64);
            }
            *to = bounds.weight(words[within]);
        }
    });
}
