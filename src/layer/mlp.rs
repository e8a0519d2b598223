//! A multilayer perceptron: fully connected layers with ReLU between them.
//!
//! It keeps every activation for the backward pass, in panels sized for the largest minibatch. Its neighbours write its
//! input and read its output there, and likewise for the gradients, so nothing is repacked at its doors.

use super::Linear;
use crate::base::Result;
use crate::machine::team::Team;
use crate::math::brgemm::{Panels, Scratch};
use crate::memory::{Arena, Supply};

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

    /// The input, to be written before [`Mlp::forward`]; padding must stay 0.
    pub fn input_mut(&mut self) -> &mut Panels<f32> {
        &mut self.activations[0]
    }

    /// The output of the last [`Mlp::forward`].
    #[must_use]
    pub fn output(&self) -> &Panels<f32> {
        &self.activations[self.layers.len()]
    }

    /// The output, and the gradient with respect to the last layer's sums (before any activation), which is to be
    /// written before [`Mlp::backward`]; padding must stay 0.
    ///
    /// # Panics
    /// When there are no layers.
    pub fn output_and_gradient(&mut self) -> (&Panels<f32>, &mut Panels<f32>) {
        let last = self.layers.len();
        (&self.activations[last], self.gradients[last].as_mut().expect("only the input may lack a gradient"))
    }

    /// The gradient with respect to the input, from the last [`Mlp::backward`].
    ///
    /// # Panics
    /// When it was not planned for.
    #[must_use]
    pub fn input_gradient(&self) -> &Panels<f32> {
        self.gradients[0].as_ref().expect("the input's gradient was planned for")
    }

    /// Runs the first `samples` rows of the input through all layers; `relu` says whether the last has one too.
    ///
    /// # Panics
    /// When there is no room for the samples.
    pub fn forward(&mut self, team: &Team, samples: usize, relu: bool) {
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, after) = self.activations.split_at_mut(index + 1);
            layer.forward(team, samples, &before[index], &mut after[0], relu || index < last);
        }
    }

    /// Back from the gradient of the output to every weight's gradient, and to the input's where it was planned for.
    ///
    /// `samples` is that of the last forward pass.
    ///
    /// # Panics
    /// When there is no room for the samples.
    pub fn backward(&mut self, team: &Team, samples: usize) {
        let Self { layers, activations, gradients, scratch } = self;
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
    }

    /// Moves all weights against their gradients.
    pub fn update(&mut self, team: &Team, rate: f32) {
        self.layers.iter_mut().for_each(|layer| layer.update(team, rate));
    }
}
