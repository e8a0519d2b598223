//! A fully connected layer: Y = act(X W + b), with its two backward passes and its SGD step.
//!
//! Weights lie input-major in panels of 64 outputs, activations in panels of 64 features, so all three passes are
//! batch-reduce GEMMs that read whole cache lines (`math/brgemm`). Passes are named as in SC20, Section III-B.

use crate::base::Result;
use crate::machine::team::Team;
use crate::math::brgemm::{After, Panels, Scratch, backward_data, backward_weights, bias_gradient, forward};
use crate::math::transpose;
use crate::memory::{Arena, Buffer, Supply};
use crate::optim::Sgd;
use crate::sync::Rows;

/// Weights, bias and their gradients.
#[derive(Debug)]
pub struct Linear {
    /// Inputs x outputs.
    weight: Panels<f32>,
    bias: Buffer<f32>,
    weight_gradient: Panels<f32>,
    bias_gradient: Buffer<f32>,
}

impl Linear {
    /// A layer whose weights are 0.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(inputs: usize, outputs: usize, supply: &mut Supply<'_>) -> Result<Self> {
        Ok(Self {
            weight: Panels::supplied("weight", inputs, outputs, supply)?,
            bias: supply.buffer("bias", outputs)?,
            weight_gradient: Panels::supplied("weight gradient", inputs, outputs, supply)?,
            bias_gradient: supply.buffer("bias gradient", outputs)?,
        })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        let Self { weight, bias, weight_gradient, bias_gradient } = self;
        for panels in [weight, weight_gradient] {
            panels.settle(arena);
        }
        for buffer in [bias, bias_gradient] {
            buffer.settle(arena);
        }
    }

    /// Columns of X.
    #[must_use]
    pub const fn inputs(&self) -> usize {
        self.weight.rows()
    }

    /// Columns of Y.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.weight.columns()
    }

    /// The weights as other programs store them: outputs x inputs, row-major.
    #[must_use]
    pub fn export_weight(&self) -> Vec<f32> {
        let mut rows = vec![0.0; self.inputs() * self.outputs()];
        transpose(&self.weight.to_rows(), self.inputs(), self.outputs(), 0, &mut rows);
        rows
    }

    /// Takes weights as other programs store them: outputs x inputs, row-major.
    ///
    /// # Panics
    /// When `rows` has another size.
    pub fn import_weight(&mut self, rows: &[f32]) {
        let mut input_major = vec![0.0; rows.len()];
        transpose(rows, self.outputs(), self.inputs(), 0, &mut input_major);
        self.weight.import(0..self.inputs(), &input_major, self.outputs());
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

    /// Y = act(X W + b) for the first `samples` rows.
    ///
    /// # Panics
    /// When a matrix is too small.
    pub fn forward(&self, team: &Team, samples: usize, x: &Panels<f32>, y: &mut Panels<f32>, relu: bool) {
        let after = if relu { After::Relu } else { After::Keep };
        forward(team, samples, x, &self.weight, &self.bias, y, after);
    }

    /// dX = dY Wᵀ for the first `samples` rows; `x` is the ReLU's output that X is, if it is one: dX becomes 0 where
    /// it is.
    ///
    /// # Panics
    /// When a matrix is too small.
    pub fn backward_data(
        &self,
        team: &Team,
        samples: usize,
        dy: &Panels<f32>,
        dx: &mut Panels<f32>,
        x: Option<&Panels<f32>>,
        scratch: &mut Scratch,
    ) {
        let after = x.map_or(After::Keep, After::Gate);
        backward_data(team, samples, dy, &self.weight, dx, after, scratch);
    }

    /// dW = Xᵀ dY and db = the column sums of dY, over the first `samples` rows.
    ///
    /// # Panics
    /// When a matrix is too small.
    pub fn backward_weights(&mut self, team: &Team, samples: usize, x: &Panels<f32>, dy: &Panels<f32>) {
        backward_weights(team, samples, x, dy, &mut self.weight_gradient);
        bias_gradient(team, samples, dy, &mut self.bias_gradient);
    }

    /// Moves weights and bias against their gradients.
    pub fn update(&mut self, team: &Team, rate: f32) {
        let isa = team.isa();
        // Padding moves too: from 0 by 0.
        let gradient = self.weight_gradient.cells().as_flattened();
        let weight = self.weight.cells_mut().as_flattened_mut();
        team.each(Rows::new(weight, 1, team.threads(), 16), |band| {
            let gradient = &gradient[band.first..][..band.data.len()];
            isa.run(Sgd { weight: band.data, gradient, rate });
        });
        isa.run(Sgd { weight: &mut self.bias, gradient: &self.bias_gradient, rate });
    }
}
