//! A multilayer perceptron: fully connected layers with ReLU between them.
//!
//! It keeps every activation for the backward pass, in panels sized for the largest minibatch. Its neighbours keep their
//! matrices row-major, so what goes in and out is repacked at the door; inside, nothing is.

use super::{Linear, View};
use crate::base::Result;
use crate::machine::team::Team;
use crate::math::Gate;
use crate::math::brgemm::{Panels, Scratch, export_rows, import_rows};
use crate::memory::{Arena, Supply};
use crate::sync::Rows;

/// Layers, their activations and the gradients that flow between them.
#[derive(Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
    /// The input of each layer, then the output of the last: samples x features.
    activations: Vec<Panels<f32>>,
    /// The gradient with respect to each of `activations`; that of the input only if somebody wants it.
    gradients: Vec<Option<Panels<f32>>>,
    scratch: Scratch,
}

/// Whether the gradient with respect to an MLP's input is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputGradient {
    /// The input is data.
    Unneeded,
    /// There are layers before.
    Needed,
}

impl Mlp {
    /// Layers from `widths[0]` inputs through each further width, all weights 0, with room for minibatches of
    /// `samples`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(
        widths: &[usize],
        samples: usize,
        input_gradient: InputGradient,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let layers = widths.windows(2).map(|pair| Linear::new(pair[0], pair[1], supply)).collect::<Result<_>>()?;
        let mut panels = |name: &str, width: usize| Panels::supplied(name, samples, width, supply);
        let activations = widths.iter().map(|&width| panels("activations", width)).collect::<Result<_>>()?;
        let gradients = widths.iter().enumerate().map(|(index, &width)| {
            let wanted = index > 0 || input_gradient == InputGradient::Needed;
            wanted.then(|| panels("activation gradients", width)).transpose()
        });
        Ok(Self { layers, activations, gradients: gradients.collect::<Result<_>>()?, scratch: Scratch::default() })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.layers.iter_mut().for_each(|layer| layer.settle(arena));
        let gradients = self.gradients.iter_mut().flatten();
        self.activations.iter_mut().chain(gradients).for_each(|panels| panels.settle(arena));
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
        import_rows(team, samples, x.data, x.row, &mut self.activations[0]);
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, after) = self.activations.split_at_mut(index + 1);
            layer.forward(team, samples, &before[index], &mut after[0], relu || index < last);
        }
        export_rows(team, &self.activations[last + 1], &mut out[..samples * out_row], out_row);
    }

    /// Back from `dy`, the gradient with respect to the last layer's sums (before any activation), to every weight's
    /// gradient, and to `dx` (a matrix and its row length) where the caller wants the input's gradient too.
    ///
    /// `samples` is that of the last forward pass.
    ///
    /// # Panics
    /// When a matrix is too small, or `dx` is wanted but was not planned for.
    pub fn backward(&mut self, team: &Team, samples: usize, dy: View<'_>, dx: Option<(&mut [f32], usize)>) {
        let Self { layers, activations, gradients, scratch } = self;
        if let Some(Some(gradient)) = gradients.last_mut() {
            import_rows(team, samples, dy.data, dy.row, gradient);
        }
        for (index, layer) in layers.iter_mut().enumerate().rev() {
            let (before, after) = gradients.split_at_mut(index + 1);
            let Some(dy) = &after[0] else { unreachable!("only the input may lack a gradient") };
            if let Some(dx) = &mut before[index] {
                // The input of the first layer is no ReLU's output.
                let gate = (index > 0).then(|| &activations[index]);
                layer.backward_data(team, samples, dy, dx, gate, scratch);
            }
            layer.backward_weights(team, samples, &activations[index], dy);
        }
        if let Some((dx, row)) = dx {
            let gradient = gradients[0].as_ref().expect("the input's gradient was planned for");
            export_rows(team, gradient, &mut dx[..samples * row], row);
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
