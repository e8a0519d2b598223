//! Mixed-dimension tables (Ginart et al., arXiv:1909.11810; facebookresearch/dlrm, `PrEmbeddingBag`): a table that is narrower than
//! the model's vectors is made as wide by a matrix, before anything meets.
//!
//! Matrices are multiplied in 32-bit floats, whatever precision other layers have: they are small.

use super::Linear;
use super::flow::{Backward, Flow};
use crate::base::Result;
use crate::base::config::Precision;
use crate::machine::team::Team;
use crate::math::brgemm::{Scratch, import_rows};
use crate::math::{Part, Share};
use crate::memory::{Arena, Buffer, Supply};
use crate::optim::Kept;
use crate::sync::Rows;

/// The matrices, with the vectors of the current part of a minibatch and their gradient.
#[derive(Debug)]
pub struct Projections {
    columns: Vec<Column>,
    layers: Vec<Linear>,
    /// Of each layer its input, its output or the gradient of that, and the gradient of its input.
    flows: Vec<[Flow; 3]>,
    /// Elements of a sample's features, and of its vectors.
    rows: [usize; 2],
    vectors: Buffer<f32>,
    gradient: Buffer<f32>,
    scratch: Scratch,
}

/// Where a table's vector is.
#[derive(Debug, Clone, Copy)]
struct Column {
    /// Elements in a sample's features.
    dim: usize,
    /// Where they begin.
    from: usize,
    /// Where the vector begins.
    to: usize,
    /// The layer that makes it as wide as all, unless it is.
    layer: Option<usize>,
}

impl Projections {
    /// Of tables of so many columns, for vectors of `dim` elements; a sample's features have `row` elements, those of other
    /// tables last. All weights 0, with room for parts of `samples`. Nothing where all are as wide as vectors.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(
        (dims, row): (&[usize], usize),
        dim: usize,
        samples: usize,
        kept: Kept,
        supply: &mut Supply<'_>,
    ) -> Result<Option<Self>> {
        if dims.iter().all(|width| *width == dim) {
            return Ok(None);
        }
        let kept = Kept { precision: Precision::F32, ..kept };
        let (mut columns, mut layers, mut flows, mut from) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let learning = if kept.optimizer.moves() { samples } else { 0 };
        for (table, &width) in dims.iter().enumerate() {
            let layer = (width != dim).then_some(layers.len());
            columns.push(Column { dim: width, from, to: table * dim, layer });
            from += width;
            if layer.is_some() {
                layers.push(Linear::without_biases(width, dim, kept, supply)?);
                let mut flow = |name: &str, rows: usize, width: usize| Flow::supplied(name, rows, width, false, supply);
                flows.push([
                    flow("narrow pooled rows", samples, width)?,
                    flow("projected rows", samples, dim)?,
                    flow("gradient of narrow pooled rows", learning, width)?,
                ]);
            }
        }
        let rows = [row, dims.len() * dim];
        Ok(Some(Self {
            columns,
            layers,
            flows,
            rows,
            vectors: supply.buffer("vectors", samples * rows[1])?,
            gradient: supply.buffer("gradients of vectors", learning * rows[1])?,
            scratch: Scratch::default(),
        }))
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.layers.iter_mut().for_each(|layer| layer.settle(arena));
        self.flows.iter_mut().flatten().for_each(|flow| flow.settle(arena));
        self.vectors.settle(arena);
        self.gradient.settle(arena);
    }

    /// As [`super::Mlp::plan_sums`].
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn plan_sums(&mut self, share: &Share, supply: &mut Supply<'_>) -> Result<()> {
        self.layers.iter_mut().try_for_each(|layer| layer.plan_sums(share.sum.depth, supply))
    }

    /// The matrices, in the order of their tables.
    #[must_use]
    pub fn layers(&self) -> &[Linear] {
        &self.layers
    }

    /// As [`Projections::layers`], to be changed.
    pub fn layers_mut(&mut self) -> &mut [Linear] {
        &mut self.layers
    }

    /// Elements of a sample's vectors.
    #[must_use]
    pub const fn row(&self) -> usize {
        self.rows[1]
    }

    /// The vectors of samples.
    #[must_use]
    pub fn vectors(&self) -> &[f32] {
        &self.vectors
    }

    /// The same, and their gradient, to be written.
    pub fn vectors_and_gradient(&mut self) -> (&[f32], &mut [f32]) {
        (&self.vectors, &mut self.gradient)
    }

    /// Makes the vectors of so many samples, whose features these are.
    pub fn forward(&mut self, team: &Team, samples: usize, features: &[f32]) {
        let Self { columns, layers, flows, rows: [from_row, to_row], vectors, .. } = self;
        let (from_row, to_row) = (*from_row, *to_row);
        for (column, layer) in columns.iter().filter_map(|column| Some((column, column.layer?))) {
            let [x, y, _] = &mut flows[layer];
            import_rows(team, samples, &features[column.from..], from_row, x.whole_mut());
            layers[layer].forward(team, samples, x, y, false);
        }
        let (columns, flows) = (&*columns, &*flows);
        team.share(Rows::new(&mut vectors[..samples * to_row], to_row, team.pieces(), 1), |band| {
            for &Column { dim, from, to, layer } in columns {
                match layer {
                    Some(layer) => {
                        flows[layer][1].whole().export(
                            band.first..band.first + band.rows,
                            &mut band.data[to..],
                            to_row,
                        );
                    }
                    None => {
                        let features = features.chunks(from_row).skip(band.first);
                        for (row, features) in band.data.chunks_exact_mut(to_row).zip(features) {
                            row[to..to + dim].copy_from_slice(&features[from..from + dim]);
                        }
                    }
                }
            }
        });
    }

    /// Back from the gradient of the vectors of a part, that of the last forward pass, to that of its features; `done` gets
    /// each layer, as [`super::Mlp::backward`] has it.
    pub fn backward(&mut self, team: &Team, part: &Part<'_>, to: &mut [f32], mut done: impl FnMut(usize, &mut Linear)) {
        let Self { columns, layers, flows, rows: [to_row, from_row], gradient, scratch, .. } = self;
        let (to_row, from_row, samples) = (*to_row, *from_row, part.len());
        for (column, number) in columns.iter().filter_map(|column| Some((column, column.layer?))) {
            let (layer, [x, dy, dx]) = (&mut layers[number], &mut flows[number]);
            import_rows(team, samples, &gradient[column.to..], from_row, dy.whole_mut());
            layer.backward_data(team, samples, dy, dx, Backward::Keep, scratch);
            layer.backward_weights(team, part, [x, dy], None);
            if part.is_last {
                done(number, layer);
            }
        }
        let (columns, flows, gradient) = (&*columns, &*flows, &gradient[..]);
        team.share(Rows::new(&mut to[..samples * to_row], to_row, team.pieces(), 1), |band| {
            for &Column { dim, from, to, layer } in columns {
                match layer {
                    Some(layer) => {
                        flows[layer][2].whole().export(
                            band.first..band.first + band.rows,
                            &mut band.data[from..],
                            to_row,
                        );
                    }
                    None => {
                        let gradients = gradient.chunks(from_row).skip(band.first);
                        for (row, gradients) in band.data.chunks_exact_mut(to_row).zip(gradients) {
                            row[from..from + dim].copy_from_slice(&gradients[to..to + dim]);
                        }
                    }
                }
            }
        });
    }
}
