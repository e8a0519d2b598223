//! Initial weights, by the reference's distributions (facebookresearch/dlrm, `create_mlp` and `create_emb`):
//! W ~ N(0, sqrt(2 / (m + n))) for m outputs and n inputs, b ~ N(0, sqrt(1 / m)), embedding rows ~ U(-sqrt(1 / rows),
//! sqrt(1 / rows)). Drawn as f64 and rounded once.
//!
//! The reference draws all of them from one sequential generator, so they depend on what was drawn before; here each
//! number is a pure function of (seed, tensor, position), whatever the threads, ranks or order.

use crate::base::rng::{Random, Stream};
use crate::embedding::Table;
use crate::layer::Mlp;
use crate::machine::team::Team;
use crate::shard::scheme::Shard;

/// Fills an MLP; `which` tells it from the model's other MLPs.
pub(super) fn mlp(mlp: &mut Mlp, which: u32, seed: u64) {
    for (index, layer) in (0..).zip(mlp.layers_mut()) {
        let (inputs, outputs) = (layer.inputs() as f64, layer.outputs() as f64);
        let fill = |stream, len: usize, deviation: f64| -> Vec<f32> {
            let random = Random::new(seed, stream);
            (0..len as u64).map(|i| (random.normal(i) * deviation) as f32).collect()
        };
        let deviation = libm::sqrt(2.0 / (inputs + outputs));
        layer.import_weight(
            0..layer.outputs(),
            &fill(Stream::Weight(which, index), layer.inputs() * layer.outputs(), deviation),
        );
        let bias = fill(Stream::Bias(which, index), layer.outputs(), libm::sqrt(1.0 / outputs));
        layer.bias_mut().copy_from_slice(&bias);
    }
}

/// Numbers that a block of the generator gives.
const DRAW: usize = 4;

/// The generator's word as a weight of a table of so many rows.
fn weight(word: u32, rows: u64) -> f32 {
    let bound = libm::sqrt(1.0 / rows as f64);
    (bound * (((f64::from(word) + 0.5) * (2.0 / 4_294_967_296.0)) - 1.0)) as f32
}

/// Fills a part of a table of `rows` rows and `dim` columns with what [`table`] gives to it.
pub(super) fn shard(team: &Team, part: &mut Table, shard: &Shard, rows: u64, dim: usize, seed: u64) {
    let random = Random::new(seed, Stream::Embedding(shard.table.0));
    let width = shard.columns.len();
    part.fill(team, |first, row| {
        let start = shard.rows.global((first / width) as u64) * dim as u64 + shard.columns.start as u64;
        let mut words = random.block(start / DRAW as u64);
        for (to, number) in row.iter_mut().zip(start..) {
            let within = (number % DRAW as u64) as usize;
            if within == 0 && number > start {
                words = random.block(number / DRAW as u64);
            }
            *to = weight(words[within], rows);
        }
    });
}

/// Fills a table.
pub(super) fn table(team: &Team, table: &mut Table, index: u32, seed: u64) {
    let rows = table.rows() as u64;
    let random = Random::new(seed, Stream::Embedding(index));
    let draw = |word: u32| weight(word, rows);
    table.fill(team, |first, row| {
        let mut words = random.block((first / DRAW) as u64);
        for (weight, number) in row.iter_mut().zip(first..) {
            if number.is_multiple_of(DRAW) && number > first {
                words = random.block((number / DRAW) as u64);
            }
            *weight = draw(words[number % DRAW]);
        }
    });
}
