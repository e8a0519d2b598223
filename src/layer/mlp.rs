//! A multilayer perceptron: fully connected layers with ReLU between them.
//!
//! It keeps every activation for the backward pass, in panels sized for the largest part of a minibatch. Its neighbours
//! write its input and read its output there, and likewise for the gradients, so nothing is repacked at its doors.
//!
//! Layers of split weights pass bfloat16 to each other. What they get and give at the ends is in 32-bit floats: a
//! logit of 8 bits would tell too few samples apart.

use super::Linear;
use super::flow::{Backward, Flow};
use crate::base::Result;
use crate::machine::team::Team;
use crate::math::Part;
use crate::math::brgemm::{Panels, narrow_panels};
use crate::memory::Supply;
use crate::optim::ParamState;

/// Layers, their activations and the gradients that flow between them.
#[derive(Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
    /// The input of each layer, then the output of the last: samples x features.
    activations: Vec<Flow>,
    /// The gradient with respect to each of `activations`; that of the input only if somebody wants it.
    gradients: Vec<Option<Flow>>,
    /// Where layers compute in bfloat16: what is in 32-bit floats at their ends, and both operands in pairs.
    doors: Option<Doors>,
}

/// What a chain in bfloat16 keeps besides.
#[derive(Debug)]
struct Doors {
    /// The input as the caller gave it.
    input: Panels<f32>,
    /// The gradient of the output as the caller gave it.
    output_gradient: Panels<f32>,
    /// For each layer, its input and the gradient of its output in pairs of samples.
    pairs: Vec<[Panels<u32>; 2]>,
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
    /// Layers from `widths[0]` inputs through each further width, all weights 0, with room for parts of
    /// `samples`. With one width there are no layers: the output is the input.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(
        widths: &[usize],
        samples: usize,
        input_gradient: InputGradient,
        kept: ParamState,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let precision = kept.precision;
        let layers = widths.windows(2).map(|pair| Linear::new(pair[0], pair[1], kept, supply));
        let layers = layers.collect::<Result<_>>()?;
        // Without layers, both ends are one matrix.
        let doors =
            if precision.is_split() && widths.len() > 1 { Some(Doors::new(widths, samples, supply)?) } else { None };
        let mut flow = |name: &str, width: usize, half: bool| {
            Flow::supplied(name, samples, width, half && precision.is_split(), supply)
        };
        // The last layer's output and the input's gradient leave the chain in 32-bit floats.
        let last = widths.len() - 1;
        let activations = widths.iter().enumerate();
        let activations = activations.map(|(index, &width)| flow("activations", width, index < last));
        let activations = activations.collect::<Result<_>>()?;
        let gradients = widths.iter().enumerate().map(|(index, &width)| {
            let wanted = kept.optimizer.moves() && (index > 0 || input_gradient == InputGradient::Needed);
            wanted.then(|| flow("activation gradients", width, index > 0)).transpose()
        });
        let gradients = gradients.collect::<Result<_>>()?;
        Ok(Self { layers, activations, gradients, doors })
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
        match &mut self.doors {
            Some(doors) => &mut doors.input,
            None => self.activations[0].whole_mut(),
        }
    }

    /// The output of the last [`Mlp::forward`].
    #[must_use]
    pub fn output(&self) -> &Panels<f32> {
        self.activations[self.layers.len()].whole()
    }

    /// The output, and the gradient with respect to the last layer's sums (before any activation), which is to be
    /// written before [`Mlp::backward`]; padding must stay 0.
    ///
    /// # Panics
    /// When there are no layers and the input's gradient was not planned for.
    pub fn output_and_gradient(&mut self) -> (&Panels<f32>, &mut Panels<f32>) {
        let last = self.layers.len();
        let gradient = match (&mut self.doors, &mut self.gradients[last]) {
            (Some(doors), _) => &mut doors.output_gradient,
            (None, Some(gradient)) => gradient.whole_mut(),
            (None, None) => unreachable!("only the input may lack a gradient"),
        };
        (self.activations[last].whole(), gradient)
    }

    /// The gradient with respect to the input, from the last [`Mlp::backward`].
    ///
    /// # Panics
    /// When it was not planned for.
    #[must_use]
    pub fn input_gradient(&self) -> &Panels<f32> {
        self.gradients[0].as_ref().expect("the input's gradient was planned for").whole()
    }

    /// Runs the first `samples` rows of the input through all layers; `relu` says whether the last has one too.
    ///
    /// # Panics
    /// When there is no room for the samples.
    pub fn forward(&mut self, team: &Team, samples: usize, relu: bool) {
        let last = self.layers.len().saturating_sub(1);
        if let (Some(doors), Flow::Half(input)) = (&self.doors, &mut self.activations[0]) {
            narrow_panels(team, samples, &doors.input, input);
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, after) = self.activations.split_at_mut(index + 1);
            layer.forward(team, samples, &before[index], &mut after[0], relu || index < last);
        }
    }

    /// Back from the gradient of the output to every weight's gradient, and to the input's where it was planned for;
    /// the part is that of the last forward pass. With the last part, `done` gets each layer, last to first, as soon as
    /// the gradients of its weights are complete: until the next forward pass nothing else needs it.
    ///
    /// # Panics
    /// When there is no room for the samples.
    pub fn backward(&mut self, team: &Team, part: &Part<'_>, mut done: impl FnMut(usize, &mut Linear)) {
        let Self { layers, activations, gradients, doors } = self;
        let samples = part.len();
        if let (Some(doors), Some(Some(Flow::Half(gradient)))) = (&doors, gradients.last_mut()) {
            narrow_panels(team, samples, &doors.output_gradient, gradient);
        }
        for (index, layer) in layers.iter_mut().enumerate().rev() {
            let (before, after) = gradients.split_at_mut(index + 1);
            let Some(dy) = &after[0] else { unreachable!("only the input may lack a gradient") };
            if let Some(dx) = &mut before[index] {
                // The input of the first layer is no ReLU's output.
                let then = if index > 0 { Backward::Gate(&activations[index]) } else { Backward::Keep };
                layer.backward_data(team, samples, dy, dx, then);
            }
            let pairs = doors.as_mut().map(|doors| &mut doors.pairs[index]);
            layer.backward_weights(team, part, [&activations[index], dy], pairs);
            if part.is_last {
                done(index, layer);
            }
        }
    }
}

impl Doors {
    fn new(widths: &[usize], samples: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let ends = [widths[0], widths[widths.len() - 1]];
        let [input, output_gradient] = [("input", ends[0]), ("output gradient", ends[1])]
            .map(|(name, width)| Panels::supplied(name, samples, width, supply));
        let mut pair = |width| Panels::supplied("activations in pairs", samples.div_ceil(2), width, supply);
        let pairs = widths.windows(2).map(|widths| Ok([pair(widths[0])?, pair(widths[1])?]));
        Ok(Self { pairs: pairs.collect::<Result<_>>()?, input: input?, output_gradient: output_gradient? })
    }
}
