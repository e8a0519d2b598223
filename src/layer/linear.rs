//! A fully connected layer: Y = act(X W + b), with its two backward passes and its SGD step.
//!
//! Weights lie input-major, `weight[c][k]` for input c and output k: so forward reads them row by row, and their gradient
//! is written row by row. Only backward-by-data reads them the other way, from a transpose that is made for it.
//! Passes are named as in SC20, Section III-B.

use super::View;
use crate::base::Result;
use crate::machine::team::Team;
use crate::math::{ColumnSums, Gemm, Start, Strided, transpose};
use crate::memory::{Arena, Buffer, Supply};
use crate::optim::Sgd;
use crate::sync::Rows;

/// Weights, bias and their gradients.
#[derive(Debug)]
pub struct Linear {
    inputs: usize,
    outputs: usize,
    /// Input-major: inputs x outputs.
    weight: Buffer<f32>,
    bias: Buffer<f32>,
    /// Output-major: outputs x inputs; current only during backward-by-data.
    transposed: Buffer<f32>,
    weight_gradient: Buffer<f32>,
    bias_gradient: Buffer<f32>,
}

impl Linear {
    /// A layer whose weights are 0.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(inputs: usize, outputs: usize, supply: &mut Supply<'_>) -> Result<Self> {
        Ok(Self {
            inputs,
            outputs,
            weight: supply.buffer("weight", inputs * outputs)?,
            bias: supply.buffer("bias", outputs)?,
            transposed: supply.buffer("transposed weight", inputs * outputs)?,
            weight_gradient: supply.buffer("weight gradient", inputs * outputs)?,
            bias_gradient: supply.buffer("bias gradient", outputs)?,
        })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        let Self { weight, bias, transposed, weight_gradient, bias_gradient, .. } = self;
        for buffer in [weight, bias, transposed, weight_gradient, bias_gradient] {
            buffer.settle(arena);
        }
    }

    /// Columns of X.
    #[must_use]
    pub const fn inputs(&self) -> usize {
        self.inputs
    }

    /// Columns of Y.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.outputs
    }

    /// The weights as other programs store them: outputs x inputs, row-major.
    #[must_use]
    pub fn export_weight(&self) -> Vec<f32> {
        let mut rows = vec![0.0; self.weight.len()];
        transpose(&self.weight, self.inputs, self.outputs, 0, &mut rows);
        rows
    }

    /// Takes weights as other programs store them: outputs x inputs, row-major.
    ///
    /// # Panics
    /// When `rows` has another size.
    pub fn import_weight(&mut self, rows: &[f32]) {
        transpose(rows, self.outputs, self.inputs, 0, &mut self.weight);
    }

    /// The bias, one element an output.
    #[must_use]
    pub fn bias(&self) -> &[f32] {
        &self.bias
    }

    /// The bias, to be overwritten.
    pub fn bias_mut(&mut self) -> &mut [f32] {
        &mut self.bias
    }

    /// The gradients that the last backward-by-weights left: of the weights, input-major, and of the bias.
    #[must_use]
    pub fn gradients(&self) -> (&[f32], &[f32]) {
        (&self.weight_gradient, &self.bias_gradient)
    }

    /// Y = act(X W + b) for every row of `out`, whose rows have length `out_row`.
    ///
    /// # Panics
    /// When `x` has fewer rows than `out` or either is too narrow.
    pub fn forward(&self, team: &Team, x: View<'_>, out: &mut [f32], out_row: usize, relu: bool) {
        let isa = team.isa();
        team.each(Rows::new(out, out_row, team.threads(), 4), |band| {
            isa.run(Gemm {
                out: band.data,
                out_row,
                rows: band.rows,
                columns: self.outputs,
                a: Strided { data: &x.data[band.first * x.row..], row: x.row, depth: 1 },
                b: &self.weight,
                b_row: self.outputs,
                depth: self.inputs,
                start: Start::Bias(&self.bias),
                relu,
            });
        });
    }

    /// dX = dY Wᵀ for every row of `dx`, whose rows have length `dx_row`.
    ///
    /// # Panics
    /// When `dy` has fewer rows than `dx` or either is too narrow.
    pub fn backward_data(&mut self, team: &Team, dy: View<'_>, dx: &mut [f32], dx_row: usize) {
        let isa = team.isa();
        let (weight, inputs, outputs) = (&self.weight, self.inputs, self.outputs);
        team.each(Rows::new(&mut self.transposed, inputs, team.threads(), 16), |band| {
            transpose(weight, inputs, outputs, band.first, band.data);
        });
        let transposed = &self.transposed;
        team.each(Rows::new(dx, dx_row, team.threads(), 4), |band| {
            isa.run(Gemm {
                out: band.data,
                out_row: dx_row,
                rows: band.rows,
                columns: inputs,
                a: Strided { data: &dy.data[band.first * dy.row..], row: dy.row, depth: 1 },
                b: transposed,
                b_row: inputs,
                depth: outputs,
                start: Start::Zero,
                relu: false,
            });
        });
    }

    /// dW = Xᵀ dY and db = the column sums of dY, over `samples` rows.
    ///
    /// # Panics
    /// When `x` or `dy` has fewer rows or is too narrow.
    pub fn backward_weights(&mut self, team: &Team, x: View<'_>, dy: View<'_>, samples: usize) {
        let isa = team.isa();
        let outputs = self.outputs;
        let weights = Rows::new(&mut self.weight_gradient, outputs, team.threads(), 4);
        team.each(weights, |band| {
            isa.run(Gemm {
                out: band.data,
                out_row: outputs,
                rows: band.rows,
                columns: outputs,
                a: Strided { data: &x.data[band.first..], row: 1, depth: x.row },
                b: dy.data,
                b_row: dy.row,
                depth: samples,
                start: Start::Zero,
                relu: false,
            });
        });
        team.each(Rows::new(&mut self.bias_gradient, 1, team.threads(), 16), |band| {
            isa.run(ColumnSums { out: band.data, first: band.first, from: dy.data, row: dy.row, rows: samples });
        });
    }

    /// Moves weights and bias against their gradients.
    pub fn update(&mut self, team: &Team, rate: f32) {
        let isa = team.isa();
        let outputs = self.outputs;
        let gradient = &self.weight_gradient;
        team.each(Rows::new(&mut self.weight, outputs, team.threads(), 1), |band| {
            let gradient = &gradient[band.first * outputs..][..band.data.len()];
            isa.run(Sgd { weight: band.data, gradient, rate });
        });
        isa.run(Sgd { weight: &mut self.bias, gradient: &self.bias_gradient, rate });
    }
}
