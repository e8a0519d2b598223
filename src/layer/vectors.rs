//! Vectors that are made of pooled rows before anything meets.
//!
//! Mixed-dimension tables (Ginart et al., arXiv:1909.11810; facebookresearch/dlrm, `PrEmbeddingBag`): a table that is
//! narrower than the model's vectors is made as wide by a matrix. Matrices are multiplied in 32-bit floats, whatever
//! precision other layers have: they are small.
//!
//! Quotients and remainders (Shi et al., arXiv:1909.02107; facebookresearch/dlrm, `QREmbeddingBag`): the rows of two
//! tables are multiplied, added, or put side by side.

use super::Linear;
use super::flow::{Backward, Flow};
use crate::base::Result;
use crate::base::config::{Composition, ModelConfig, Precision};
use crate::machine::team::Team;
use crate::math::brgemm::import_rows;
use crate::math::{Part, StridedRows, StridedRowsMut};
use crate::memory::{Buffer, Supply};
use crate::optim::ParamState;
use crate::sync::Rows;

/// The vectors of the current part of a minibatch, which their gradient replaces on the way back, with the matrices of
/// those that have one.
#[derive(Debug)]
pub struct FeatureVectors {
    columns: Vec<Column>,
    layers: Vec<Linear>,
    /// Of each layer its input, its output or the gradient of that, and the gradient of its input.
    flows: Vec<[Flow; 3]>,
    /// Elements of a sample's features, and of its vectors.
    rows: [usize; 2],
    vectors: Buffer<f32>,
}

/// What a vector is made of.
#[derive(Debug, Clone, Copy)]
struct Column {
    /// Elements of a row of its table.
    dim: usize,
    /// Where they begin in a sample's features.
    from: usize,
    /// Where the vector begins.
    to: usize,
    made: Made,
}

#[derive(Debug, Clone, Copy)]
enum Made {
    /// The row itself.
    Row,
    /// The row times a matrix: that of the layer of this number.
    Projected(usize),
    /// The row and another, which begins there.
    Composed(Composition, usize),
}

impl FeatureVectors {
    /// Of tables of so many columns; a sample's features have `row` elements, those of other tables last. All weights
    /// 0, with room for parts of `samples`. Nothing where rows are the vectors.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(
        model: &ModelConfig,
        (dims, row): (&[usize], usize),
        samples: usize,
        kept: ParamState,
        supply: &mut Supply<'_>,
    ) -> Result<Option<Self>> {
        let (dim, composed) = (model.dim, model.own_composed());
        let narrow = model.md_temperature > 0.0 && dims.iter().any(|width| *width != dim);
        if !narrow && composed.is_empty() {
            return Ok(None);
        }
        let kept = ParamState { precision: Precision::F32, ..kept };
        let (mut columns, mut layers, mut flows, mut from) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let learning = if kept.optimizer.moves() { samples } else { 0 };
        // Remainders' rows are behind those of all columns, in the order of these.
        let (own, remainders) = dims.split_at(dims.len() - composed.len());
        let mut other = own.iter().sum();
        let mut remainders = remainders.iter();
        for (table, &width) in own.iter().enumerate() {
            let made = if composed.contains(&table) {
                let begin = other;
                other += remainders.next().expect("there is one for each");
                Made::Composed(model.qr_operation, begin)
            } else if width == dim {
                Made::Row
            } else {
                layers.push(Linear::without_biases(width, dim, kept, supply)?);
                let mut flow = |name: &str, rows: usize, width: usize| Flow::supplied(name, rows, width, false, supply);
                flows.push([
                    flow("narrow pooled rows", samples, width)?,
                    flow("projected rows", samples, dim)?,
                    flow("gradient of narrow pooled rows", learning, width)?,
                ]);
                Made::Projected(layers.len() - 1)
            };
            columns.push(Column { dim: width, from, to: table * dim, made });
            from += width;
        }
        let rows = [row, own.len() * dim];
        Ok(Some(Self { columns, layers, flows, rows, vectors: supply.buffer("vectors", samples * rows[1])? }))
    }

    /// The matrices, in the order of their tables.
    #[must_use]
    pub fn layers(&self) -> &[Linear] {
        &self.layers
    }

    /// As [`FeatureVectors::layers`], to be changed.
    pub fn layers_mut(&mut self) -> &mut [Linear] {
        &mut self.layers
    }

    /// The vectors of samples.
    #[must_use]
    pub fn vectors(&self) -> StridedRows<'_> {
        StridedRows { data: &self.vectors, stride: self.rows[1] }
    }

    /// The same, to be replaced by their gradient.
    pub fn vectors_mut(&mut self) -> StridedRowsMut<'_> {
        StridedRowsMut { data: &mut self.vectors, stride: self.rows[1] }
    }

    /// Makes the vectors of so many samples, whose features these are.
    pub fn forward(&mut self, team: &Team, samples: usize, features: &[f32]) {
        let Self { columns, layers, flows, rows: [from_row, to_row], vectors, .. } = self;
        let (from_row, to_row) = (*from_row, *to_row);
        for (column, layer) in projected(columns) {
            let [x, y, _] = &mut flows[layer];
            import_rows(team, samples, &features[column.from..], from_row, x.whole_mut());
            layers[layer].forward(team, samples, x, y, false);
        }
        let (columns, flows) = (&*columns, &*flows);
        team.share(Rows::new(&mut vectors[..samples * to_row], to_row, team.pieces(), 1), |band| {
            for &Column { dim, from, to, made } in columns {
                let features = features.chunks(from_row).skip(band.first);
                let of_samples =
                    features.zip(band.data.chunks_exact_mut(to_row)).map(|(features, row)| (features, &mut row[to..]));
                match made {
                    Made::Projected(layer) => {
                        let rows = band.first..band.first + band.rows;
                        flows[layer][1].whole().export(rows, &mut band.data[to..], to_row);
                    }
                    Made::Row => of_samples.for_each(|(x, y)| y[..dim].copy_from_slice(&x[from..from + dim])),
                    Made::Composed(operation, other) => of_samples.for_each(|(x, y)| {
                        compose(operation, &x[from..from + dim], &x[other..other + dim], y);
                    }),
                }
            }
        });
    }

    /// Back from the gradient of the vectors of a part, that of the last forward pass, to that of its features, whose
    /// place it takes; `done` gets each layer, as [`super::Mlp::backward`] has it.
    pub fn backward(
        &mut self,
        team: &Team,
        part: &Part<'_>,
        features: &mut [f32],
        mut done: impl FnMut(usize, &mut Linear),
    ) {
        let Self { columns, layers, flows, rows: [to_row, from_row], vectors, .. } = self;
        let (to_row, from_row, samples) = (*to_row, *from_row, part.len());
        for (column, number) in projected(columns) {
            let (layer, [x, dy, dx]) = (&mut layers[number], &mut flows[number]);
            import_rows(team, samples, &vectors[column.to..], from_row, dy.whole_mut());
            layer.backward_data(team, samples, dy, dx, Backward::Keep);
            layer.backward_weights(team, part, [x, dy], None);
            if part.is_last {
                done(number, layer);
            }
        }
        let (columns, flows, gradient) = (&*columns, &*flows, &vectors[..]);
        team.share(Rows::new(&mut features[..samples * to_row], to_row, team.pieces(), 1), |band| {
            for &Column { dim, from, to, made } in columns {
                let gradients = gradient.chunks(from_row).skip(band.first);
                let of_samples = gradients.zip(band.data.chunks_exact_mut(to_row)).map(|(dy, dx)| (&dy[to..], dx));
                match made {
                    Made::Projected(layer) => {
                        let rows = band.first..band.first + band.rows;
                        flows[layer][2].whole().export(rows, &mut band.data[from..], to_row);
                    }
                    Made::Row => of_samples.for_each(|(dy, dx)| dx[from..from + dim].copy_from_slice(&dy[..dim])),
                    Made::Composed(operation, other) => of_samples.for_each(|(dy, x)| {
                        let (own, others) = x.split_at_mut(other);
                        decompose(operation, dy, &mut own[from..from + dim], &mut others[..dim]);
                    }),
                }
            }
        });
    }
}

/// The columns that have a matrix, with its number.
fn projected(columns: &[Column]) -> impl Iterator<Item = (Column, usize)> {
    columns.iter().filter_map(|column| match column.made {
        Made::Projected(layer) => Some((*column, layer)),
        Made::Row | Made::Composed(..) => None,
    })
}

/// The vector of a quotient's and a remainder's row.
fn compose(operation: Composition, q: &[f32], r: &[f32], y: &mut [f32]) {
    let pairs = || q.iter().zip(r);
    match operation {
        Composition::Mult => y.iter_mut().zip(pairs()).for_each(|(y, (q, r))| *y = q * r),
        Composition::Add => y.iter_mut().zip(pairs()).for_each(|(y, (q, r))| *y = q + r),
        Composition::Concat => {
            y[..q.len()].copy_from_slice(q);
            y[q.len()..2 * q.len()].copy_from_slice(r);
        }
    }
}

/// Replaces both rows by their gradients, by that of the vector.
fn decompose(operation: Composition, dy: &[f32], q: &mut [f32], r: &mut [f32]) {
    let dim = q.len();
    match operation {
        Composition::Mult => {
            q.iter_mut().zip(r).zip(dy).for_each(|((q, r), dy)| (*q, *r) = (dy * *r, dy * *q));
        }
        Composition::Add => [q, r].into_iter().for_each(|to| to.copy_from_slice(&dy[..dim])),
        Composition::Concat => {
            q.copy_from_slice(&dy[..dim]);
            r.copy_from_slice(&dy[dim..2 * dim]);
        }
    }
}
