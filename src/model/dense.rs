//! What every rank has a copy of: both MLPs, the interaction, the loss, and what a minibatch leaves between them.
//!
//! One method a stage. Pooled rows come into the features from outside and their gradient is taken from there, so the
//! tables may be anywhere.

use crate::base::Result;
use crate::base::config::{Interaction, ModelConfig, Precision};
use crate::data::Batch;
use crate::embedding::Slots;
use crate::layer::{Concat, Dot, Features, FeaturesMut, InputGradient, Linear, LossLayer, Mlp};
use crate::machine::team::Team;
use crate::math::Share;
use crate::math::brgemm::{export_rows, import_rows};
use crate::memory::{Arena, Buffer, Supply};

use super::init;

/// MLPs, interaction and loss with the activations of the current minibatch.
#[derive(Debug)]
pub struct Dense {
    pub(super) bottom: Mlp,
    pub(super) top: Mlp,
    interaction: Interacts,
    loss: LossLayer,
    slots: Slots,
    activations: Activations,
}

#[derive(Debug)]
enum Interacts {
    Dot(Dot),
    Concat(Concat),
}

/// What a minibatch leaves in memory between its forward and its backward pass.
#[derive(Debug)]
struct Activations {
    /// Pooled rows, samples x (tables x dim).
    features: Buffer<f32>,
    features_gradient: Buffer<f32>,
    /// Samples.
    logits: Buffer<f32>,
}

impl Dense {
    /// For so many tables, with room for minibatches of `samples`; all weights 0.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(
        config: &ModelConfig,
        tables: usize,
        team: &Team,
        samples: usize,
        precision: Precision,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let bottom_width = config.bottom[config.bottom.len() - 1];
        let slots = Slots { row: tables * config.dim, first: 0 };
        let interaction = match config.interaction {
            Interaction::Dot => {
                Interacts::Dot(Dot::new(tables + 1, config.dim, config.interaction_itself, team.threads(), supply)?)
            }
            Interaction::Cat => Interacts::Concat(Concat::new(bottom_width, slots.row)),
        };
        let top: Vec<_> = std::iter::once(interaction.outputs()).chain(config.top.iter().copied()).collect();
        Ok(Self {
            bottom: Mlp::new(&config.bottom, samples, InputGradient::Unneeded, precision, supply)?,
            top: Mlp::new(&top, samples, InputGradient::Needed, precision, supply)?,
            loss: LossLayer::new(config, samples, supply)?,
            activations: Activations::new(samples, slots.row, supply)?,
            interaction,
            slots,
        })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.bottom.settle(arena);
        self.top.settle(arena);
        if let Interacts::Dot(dot) = &mut self.interaction {
            dot.settle(arena);
        }
        self.loss.settle(arena);
        self.activations.settle(arena);
    }

    /// Draws initial weights; see `model/init.rs` for their distributions.
    pub fn initialise(&mut self, seed: u64) {
        init::mlp(&mut self.bottom, 0, seed);
        init::mlp(&mut self.top, 1, seed);
    }

    /// Plans room for the gradients of parts of a minibatch; see [`Dense::cut`].
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn plan_parts(&mut self, share: &Share, supply: &mut Supply<'_>) -> Result<()> {
        self.bottom.plan_parts(share, supply)?;
        self.top.plan_parts(share, supply)
    }

    /// The next backward pass sums the gradients of weights by these grains of a minibatch of `whole` samples, and leaves
    /// the parts that they make.
    pub fn cut(&mut self, share: &Share, whole: usize) {
        self.bottom.cut(share, whole);
        self.top.cut(share, whole);
    }

    /// The lengths of the gradients of all weights and biases, layer after layer, the padding of their layout included.
    pub fn gradient_sizes(&self) -> impl Iterator<Item = usize> {
        self.bottom.layers().iter().chain(self.top.layers()).flat_map(Linear::gradient_sizes)
    }

    /// The gradients of all weights and biases, of the first `count` parts of the minibatch: part after part.
    ///
    /// # Panics
    /// When there is no room for so many.
    pub fn parts_mut(&mut self, count: usize) -> Vec<Vec<&mut [f32]>> {
        let mut parts: Vec<Vec<&mut [f32]>> = (0..count).map(|_| Vec::new()).collect();
        for layer in self.bottom.layers_mut().iter_mut().chain(self.top.layers_mut()) {
            let mut of_layer = layer.parts_mut();
            for part in &mut parts {
                part.extend(of_layer.next().expect("room was planned for the parts"));
            }
        }
        parts
    }

    /// Where each table's pooled rows lie in the features.
    #[must_use]
    pub const fn slots(&self) -> Slots {
        self.slots
    }

    /// The pooled rows of `samples` samples, to be written.
    pub fn features_mut(&mut self, samples: usize) -> &mut [f32] {
        &mut self.activations.features[..samples * self.slots.row]
    }

    /// The gradient of the pooled rows of `samples` samples.
    #[must_use]
    pub fn features_gradient(&self, samples: usize) -> &[f32] {
        &self.activations.features_gradient[..samples * self.slots.row]
    }

    /// As [`Dense::features_gradient`], to be changed.
    pub fn features_gradient_mut(&mut self, samples: usize) -> &mut [f32] {
        &mut self.activations.features_gradient[..samples * self.slots.row]
    }

    /// Forward: the bottom MLP.
    pub fn bottom(&mut self, team: &Team, batch: &Batch) {
        import_rows(team, batch.samples(), &batch.dense, batch.dense_width, self.bottom.input_mut());
        self.bottom.forward(team, batch.samples(), true);
    }

    /// Forward: the interaction of all features.
    pub fn interact(&mut self, team: &Team, batch: &Batch) {
        let from = Features { x: self.bottom.output(), pooled: &self.activations.features };
        let out = self.top.input_mut();
        match &mut self.interaction {
            Interacts::Dot(dot) => dot.forward(team, batch.samples(), from, out),
            Interacts::Concat(concat) => concat.forward(team, batch.samples(), from, out),
        }
    }

    /// Forward: the top MLP, to one logit a sample.
    pub fn top(&mut self, team: &Team, batch: &Batch) {
        self.top.forward(team, batch.samples(), false);
        export_rows(team, self.top.output(), &mut self.activations.logits[..batch.samples()], 1);
    }

    /// The part of these samples in the mean loss of a minibatch of `whole` samples; also leaves its gradient with
    /// respect to the logits.
    pub fn loss(&mut self, team: &Team, batch: &Batch, whole: usize) -> f64 {
        self.loss.forward(team, &self.activations.logits[..batch.samples()], &batch.labels, whole)
    }

    /// Each sample's loss, from the last [`Dense::loss`].
    #[must_use]
    pub fn losses(&self, samples: usize) -> &[f64] {
        self.loss.terms(samples)
    }

    /// The click probabilities of the last `loss`, one a sample.
    #[must_use]
    pub fn probabilities(&self, samples: usize) -> &[f32] {
        self.loss.probabilities(samples)
    }

    /// Backward: the top MLP; `done` as in [`Mlp::backward_each`], with the layer's number among those of both MLPs.
    pub fn back_top(&mut self, team: &Team, batch: &Batch, mut done: impl FnMut(usize, &mut Linear)) {
        let (_, gradient) = self.top.output_and_gradient();
        import_rows(team, batch.samples(), self.loss.gradient(), 1, gradient);
        let before = self.bottom.layers().len();
        self.top.backward_each(team, batch.samples(), |index, layer| done(before + index, layer));
    }

    /// Backward: the interaction, and the ReLU that the bottom MLP ends with.
    pub fn back_interact(&mut self, team: &Team, batch: &Batch) {
        let (x, x_gradient) = self.bottom.output_and_gradient();
        let Activations { features, features_gradient, .. } = &mut self.activations;
        let from = Features { x, pooled: features };
        let to = FeaturesMut { x: x_gradient, pooled: features_gradient };
        let gradient = self.top.input_gradient();
        match &mut self.interaction {
            Interacts::Dot(dot) => dot.backward(team, batch.samples(), from, gradient, to),
            Interacts::Concat(concat) => concat.backward(team, batch.samples(), from, gradient, to),
        }
    }

    /// Backward: the bottom MLP; `done` as in [`Mlp::backward_each`].
    pub fn back_bottom(&mut self, team: &Team, batch: &Batch, done: impl FnMut(usize, &mut Linear)) {
        self.bottom.backward_each(team, batch.samples(), done);
    }

    /// All layers: those of the bottom MLP, then those of the top.
    pub fn layers_mut(&mut self) -> impl Iterator<Item = &mut Linear> {
        self.bottom.layers_mut().iter_mut().chain(self.top.layers_mut())
    }

    /// Layer number `index` of [`Dense::layers_mut`].
    ///
    /// # Panics
    /// When there is no such layer.
    pub fn layer_mut(&mut self, index: usize) -> &mut Linear {
        let before = self.bottom.layers().len();
        if index < before { &mut self.bottom.layers_mut()[index] } else { &mut self.top.layers_mut()[index - before] }
    }

    /// Moves the weights of both MLPs.
    pub fn update(&mut self, team: &Team, rate: f32) {
        self.bottom.update(team, rate);
        self.top.update(team, rate);
    }

    /// Vectors that meet in the interaction, and their elements; `cat` multiplies nothing.
    pub(super) const fn interaction_shape(&self) -> (usize, usize) {
        match &self.interaction {
            Interacts::Dot(dot) => dot.shape(),
            Interacts::Concat(_) => (0, 0),
        }
    }
}

impl Interacts {
    const fn outputs(&self) -> usize {
        match self {
            Self::Dot(dot) => dot.outputs(),
            Self::Concat(concat) => concat.outputs(),
        }
    }
}

impl Activations {
    fn new(samples: usize, features: usize, supply: &mut Supply<'_>) -> Result<Self> {
        Ok(Self {
            features: supply.buffer("features", samples * features)?,
            features_gradient: supply.buffer("feature gradients", samples * features)?,
            logits: supply.buffer("logits", samples)?,
        })
    }

    fn settle(&mut self, arena: &mut Arena) {
        let Self { features, features_gradient, logits } = self;
        for buffer in [features, features_gradient, logits] {
            buffer.settle(arena);
        }
    }
}
