//! A multilayer perceptron: fully connected layers with ReLU between them.
//!
//! It keeps every hidden activation for the backward pass, in buffers sized for the largest minibatch.

use super::{Linear, View};
use crate::base::Result;
use crate::machine::team::Team;
use crate::math::Gate;
use crate::memory::{Arena, Buffer, Supply};
use crate::sync::Rows;

/// Layers, their hidden activations and the gradients that flow between them.
#[derive(Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
    /// Output of each layer but the last, samples x outputs.
    hidden: Vec<Buffer<f32>>,
    /// Gradient with respect to each of `hidden`.
    hidden_gradient: Vec<Buffer<f32>>,
}

impl Mlp {
    /// Layers from `widths[0]` inputs through each further width, all weights 0, with room for minibatches of
    /// `samples`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(widths: &[usize], samples: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let layers = widths.windows(2).map(|pair| Linear::new(pair[0], pair[1], supply)).collect::<Result<_>>()?;
        let mut activations = |name: &str| -> Result<Vec<_>> {
            let inner = &widths[1..widths.len() - 1];
            inner.iter().map(|outputs| supply.buffer(name, samples * outputs)).collect()
        };
        Ok(Self { layers, hidden: activations("activations")?, hidden_gradient: activations("activation gradients")? })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.layers.iter_mut().for_each(|layer| layer.settle(arena));
        self.hidden.iter_mut().chain(&mut self.hidden_gradient).for_each(|buffer| buffer.settle(arena));
    }

    /// The layers, first to last.
    #[must_use]
    pub fn layers(&self) -> &[Linear] {
        &self.layers
    }

    /// The layers, to be overwritten.
    pub fn layers_mut(&mut self) -> &mut [Linear] {
        &mut self.layers
    }

    /// Runs `samples` rows of `x` through all layers into `out`, whose rows have length `out_row`; `relu` says whether
    /// the last layer has one too.
    ///
    /// # Panics
    /// When there is no room for the samples or a matrix is too small.
    pub fn forward(&mut self, team: &Team, x: View<'_>, samples: usize, out: &mut [f32], out_row: usize, relu: bool) {
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, after) = self.hidden.split_at_mut(index);
            let x = before.last().map_or(x, |hidden| View { data: hidden, row: layer.inputs() });
            if index == last {
                layer.forward(team, x, &mut out[..samples * out_row], out_row, relu);
            } else {
                layer.forward(team, x, &mut after[0][..samples * layer.outputs()], layer.outputs(), true);
            }
        }
    }

    /// Back from `dy`, the gradient with respect to the last layer's sums (before any activation), to every weight's
    /// gradient, and to `dx` (a matrix and its row length) where the caller wants the inputs' gradient too.
    ///
    /// `x` and `samples` are those of the last forward pass.
    ///
    /// # Panics
    /// When a matrix is too small.
    pub fn backward(
        &mut self,
        team: &Team,
        x: View<'_>,
        samples: usize,
        dy: View<'_>,
        mut dx: Option<(&mut [f32], usize)>,
    ) {
        for index in (0..self.layers.len()).rev() {
            let layer = &mut self.layers[index];
            let (gradients_before, gradients_after) = self.hidden_gradient.split_at_mut(index);
            let dy = gradients_after.first().map_or(dy, |gradient| View { data: gradient, row: layer.outputs() });
            let inputs = layer.inputs();
            let x = if index == 0 { x } else { View { data: &self.hidden[index - 1], row: inputs } };
            if let Some(dx) = gradients_before.last_mut() {
                let dx = &mut dx[..samples * inputs];
                layer.backward_data(team, dy, dx, inputs);
                gate(team, dx, inputs, inputs, x);
            } else if let Some((dx, row)) = &mut dx {
                layer.backward_data(team, dy, &mut dx[..samples * *row], *row);
            }
            layer.backward_weights(team, x, dy, samples);
        }
    }

    /// Moves all weights against their gradients.
    pub fn update(&mut self, team: &Team, rate: f32) {
        self.layers.iter_mut().for_each(|layer| layer.update(team, rate));
    }
}

/// Back through a ReLU in place: the first `columns` of each row of `gradient` become 0 where the activation `y` is.
pub(crate) fn gate(team: &Team, gradient: &mut [f32], row: usize, columns: usize, y: View<'_>) {
    let isa = team.isa();
    team.each(Rows::new(gradient, row, team.threads(), 1), |band| {
        let data = &y.data[band.first * y.row..];
        isa.run(Gate { gradient: band.data, row, columns, y: data, y_row: y.row });
    });
}
