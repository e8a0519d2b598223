//! The Deep Learning Recommendation Model (Naumov et al., arXiv:1906.00091), exactly as facebookresearch/dlrm trains it:
//! a bottom MLP over the dense features, the interaction of its output with the pooled rows, a top MLP and the loss. Where
//! samples have no dense features there is no bottom MLP, and pooled rows interact among themselves.
//!
//! The MLPs keep their own ends, and each stage reads and writes its neighbours', so that none copies what another has
//! written.

use super::init;
use super::network::{Announce, Network, NetworkSpec};
use super::shape::Shape;
use super::stage::{Stage, Work};
use crate::base::Result;
use crate::base::config::Interaction;
use crate::data::Batch;
use crate::layer::{Concat, Dot, Features, FeaturesMut, InputGradient, Linear, LossLayer, Mlp};
use crate::machine::team::Team;
use crate::math::brgemm::{export_rows, import_rows};
use crate::math::{Part, Share};
use crate::memory::{Arena, Buffer, Supply};
use crate::optim::Kept;

/// MLPs, interaction and loss with the activations of the current part of a minibatch.
#[derive(Debug)]
pub struct Dlrm {
    bottom: Mlp,
    top: Mlp,
    interaction: Interacts,
    loss: LossLayer,
    kept: Kept,
    shape: Shape,
    activations: Activations,
}

#[derive(Debug)]
enum Interacts {
    Dot(Dot),
    Concat(Concat),
}

/// What lies around the MLPs.
#[derive(Debug)]
struct Activations {
    /// Pooled rows of the whole slice of a minibatch, samples x row.
    features: Buffer<f32>,
    features_gradient: Buffer<f32>,
    /// Of the current part.
    logits: Buffer<f32>,
}

impl Dlrm {
    /// All weights 0.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When tables differ in width although their vectors are multiplied with each other.
    pub fn build(spec: &NetworkSpec<'_>, supply: &mut Supply<'_>) -> Result<Box<dyn Network>> {
        let NetworkSpec { config, dims, positions, samples, part, threads, kept } = *spec;
        let row = dims.iter().zip(positions).map(|(dim, positions)| dim * positions).sum();
        let bottom = config.bottom_widths();
        // A bottom MLP without layers has no input either; both its ends are one empty matrix.
        let ends = if config.bottom.is_empty() { InputGradient::Needed } else { InputGradient::Unneeded };
        let interaction = match config.interaction {
            Interaction::Dot => {
                assert!(dims.iter().all(|dim| *dim == config.dim), "vectors of one width are multiplied: {dims:?}");
                let rows = [positions.iter().sum(), config.dim];
                Interacts::Dot(Dot::new(!config.bottom.is_empty(), rows, config.interaction_itself, threads, supply)?)
            }
            Interaction::Cat => Interacts::Concat(Concat::new(bottom[bottom.len() - 1], row)),
        };
        let top: Vec<_> = std::iter::once(interaction.outputs()).chain(config.top.iter().copied()).collect();
        Ok(Box::new(Self {
            bottom: Mlp::new(bottom, part, ends, kept, supply)?,
            top: Mlp::new(&top, part, InputGradient::Needed, kept, supply)?,
            loss: LossLayer::new(config, samples, part, supply)?,
            activations: Activations::new([samples, part], row, supply)?,
            interaction,
            kept,
            shape: Shape::dlrm(config, positions.iter().sum(), row),
        }))
    }
}

impl Network for Dlrm {
    fn settle(&mut self, arena: &mut Arena) {
        self.bottom.settle(arena);
        self.top.settle(arena);
        if let Interacts::Dot(dot) = &mut self.interaction {
            dot.settle(arena);
        }
        self.loss.settle(arena);
        self.activations.settle(arena);
    }

    fn initialise(&mut self, seed: u64) {
        init::mlp(&mut self.bottom, 0, seed);
        init::mlp(&mut self.top, 1, seed);
    }

    fn layers(&self) -> usize {
        self.bottom.layers().len() + self.top.layers().len()
    }

    fn layer(&self, index: usize) -> &Linear {
        let before = self.bottom.layers().len();
        if index < before { &self.bottom.layers()[index] } else { &self.top.layers()[index - before] }
    }

    fn layer_mut(&mut self, index: usize) -> &mut Linear {
        let before = self.bottom.layers().len();
        if index < before { &mut self.bottom.layers_mut()[index] } else { &mut self.top.layers_mut()[index - before] }
    }

    fn each_layer_mut<'a>(&'a mut self, each: &mut dyn FnMut(&'a mut Linear)) {
        self.bottom.layers_mut().iter_mut().chain(self.top.layers_mut()).for_each(each);
    }

    fn layer_name(&self, index: usize) -> String {
        let before = self.bottom.layers().len();
        let (prefix, layer) = if index < before { ("bot_l", index) } else { ("top_l", index - before) };
        // Every second module of the reference's Sequential is an activation.
        format!("{prefix}.{}", 2 * layer)
    }

    fn plan_sums(&mut self, share: &Share, supply: &mut Supply<'_>) -> Result<()> {
        self.bottom.plan_sums(share, supply)?;
        self.top.plan_sums(share, supply)
    }

    fn features_mut(&mut self, samples: usize) -> &mut [f32] {
        &mut self.activations.features[..samples * self.shape.row]
    }

    fn features_gradient(&self, samples: usize) -> &[f32] {
        &self.activations.features_gradient[..samples * self.shape.row]
    }

    fn features_gradient_mut(&mut self, samples: usize) -> &mut [f32] {
        &mut self.activations.features_gradient[..samples * self.shape.row]
    }

    fn bottom(&mut self, team: &Team, batch: &Batch, part: &Part<'_>) {
        let dense = &batch.dense[part.samples.start * batch.dense_width..];
        import_rows(team, part.len(), dense, batch.dense_width, self.bottom.input_mut());
        self.bottom.forward(team, part.len(), true);
    }

    fn interact(&mut self, team: &Team, part: &Part<'_>) {
        let pooled = &self.activations.features[part.samples.start * self.shape.row..];
        let from = Features { x: self.bottom.output(), pooled };
        let out = self.top.input_mut();
        match &mut self.interaction {
            Interacts::Dot(dot) => dot.forward(team, part.len(), from, out),
            Interacts::Concat(concat) => concat.forward(team, part.len(), from, out),
        }
    }

    fn top(&mut self, team: &Team, part: &Part<'_>) {
        self.top.forward(team, part.len(), false);
        export_rows(team, self.top.output(), &mut self.activations.logits[..part.len()], 1);
    }

    fn loss(&mut self, team: &Team, batch: &Batch, part: &Part<'_>, whole: usize) {
        let (first, labels) = (part.samples.start, &batch.labels[part.samples.clone()]);
        self.loss.forward(team, first, &self.activations.logits[..part.len()], labels, whole);
    }

    fn losses(&self, samples: usize) -> &[f64] {
        self.loss.terms(samples)
    }

    fn probabilities(&self, samples: usize) -> &[f32] {
        self.loss.probabilities(samples)
    }

    fn back_top(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        let (_, gradient) = self.top.output_and_gradient();
        import_rows(team, part.len(), self.loss.gradient(), 1, gradient);
        let before = self.bottom.layers().len();
        self.top.backward(team, part, |index, layer| announce(before + index, layer));
    }

    fn back_interact(&mut self, team: &Team, part: &Part<'_>) {
        let (x, x_gradient) = self.bottom.output_and_gradient();
        let Activations { features, features_gradient, .. } = &mut self.activations;
        let first = part.samples.start * self.shape.row;
        let from = Features { x, pooled: &features[first..] };
        let to = FeaturesMut { x: x_gradient, pooled: &mut features_gradient[first..] };
        let gradient = self.top.input_gradient();
        match &mut self.interaction {
            Interacts::Dot(dot) => dot.backward(team, part.len(), from, gradient, to),
            Interacts::Concat(concat) => concat.backward(team, part.len(), from, gradient, to),
        }
    }

    fn back_bottom(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        self.bottom.backward(team, part, announce);
    }

    fn work(&self, stage: Stage, samples: usize) -> Work {
        self.shape.work(stage, samples, self.kept)
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
    fn new([samples, part]: [usize; 2], features: usize, supply: &mut Supply<'_>) -> Result<Self> {
        Ok(Self {
            features: supply.buffer("features", samples * features)?,
            features_gradient: supply.buffer("feature gradients", samples * features)?,
            logits: supply.buffer("logits", part)?,
        })
    }

    fn settle(&mut self, arena: &mut Arena) {
        let Self { features, features_gradient, logits } = self;
        for buffer in [features, features_gradient, logits] {
            buffer.settle(arena);
        }
    }
}
