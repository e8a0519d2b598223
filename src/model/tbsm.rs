//! The time-based sequence model (Ishkhanov et al., arXiv:2008.11922), as facebookresearch/tbsm trains it (`model_type`
//! "tsl"; RMC1 of FAE): a DLRM of each step of a sample's time series, its steps so far and the item in question, then
//! attention of that item over the steps, and an MLP of both.
//!
//! Every rank has a copy, as of any network; rows of sequences come to it unpooled, from wherever their tables are.

use super::init;
use super::names::Project;
use super::network::{Announce, CHAINS, Network, NetworkSpec};
use super::shape::Shape;
use super::stage::{Stage, Work};
use crate::base::Result;
use crate::data::Batch;
use crate::layer::{Attention, Linear, LossLayer, Steps, Tower};
use crate::machine::team::Team;
use crate::math::{Part, Share};
use crate::memory::{Arena, Buffer, Supply};
use crate::optim::Kept;

/// The tower of each step, attention and the loss with the activations of the current part of a minibatch.
#[derive(Debug)]
pub struct Tbsm {
    steps: Steps,
    tower: Tower,
    attention: Attention,
    loss: LossLayer,
    kept: Kept,
    project: Project,
    shape: Shape,
    /// Rows of the whole slice of a minibatch, samples x features.
    features: Buffer<f32>,
    features_gradient: Buffer<f32>,
    /// Of the current part.
    logits: Buffer<f32>,
}

impl Tbsm {
    /// All weights 0.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When the model has no time series, or tables differ in width.
    pub fn build(spec: &NetworkSpec<'_>, supply: &mut Supply<'_>) -> Result<Box<dyn Network>> {
        let NetworkSpec { config, dims, positions, samples, part, threads, kept, .. } = *spec;
        assert!(config.ts_length > 0 && dims.iter().all(|dim| *dim == config.dim), "a time series of equal vectors");
        let (count, learns, whole) = (config.steps(), kept.optimizer.moves(), spec.feature_row());
        let steps = Steps::new((dims, positions, count), part, learns, supply)?;
        let shape = Shape::of(config, positions, dims);
        let numbers = shape.attention[0].inputs;
        Ok(Box::new(Self {
            tower: Tower::new(config, [dims.len(), steps.row()], part * count, threads, kept, supply)?,
            attention: Attention::new(config, numbers, part, kept, supply)?,
            loss: LossLayer::new(config, samples, part, supply)?,
            features: supply.buffer("features", samples * whole)?,
            features_gradient: supply.buffer("feature gradients", if learns { samples * whole } else { 0 })?,
            logits: supply.buffer("logits", part)?,
            project: Project::of(config),
            steps,
            kept,
            shape,
        }))
    }
}

impl Network for Tbsm {
    fn settle(&mut self, arena: &mut Arena) {
        self.steps.settle(arena);
        self.tower.settle(arena);
        self.attention.settle(arena);
        self.loss.settle(arena);
        for buffer in [&mut self.features, &mut self.features_gradient, &mut self.logits] {
            buffer.settle(arena);
        }
    }

    fn initialise(&mut self, seed: u64) {
        init::tower(self.project, self.tower.chains_mut(), seed);
        let [matrix, mlp, head] = self.attention.chains_mut();
        init::product(matrix, 3, seed);
        init::mlp(self.project, mlp, 4, seed);
        init::mlp(self.project, head, 5, seed);
    }

    fn chains(&self) -> [&[Linear]; CHAINS] {
        let ([bottom, cross, top], [matrix, mlp, head]) = (self.tower.chains(), self.attention.chains());
        [bottom, cross, top, matrix, mlp, head]
    }

    fn chains_mut(&mut self) -> [&mut [Linear]; CHAINS] {
        let ([bottom, cross, top], [matrix, mlp, head]) = (self.tower.chains_mut(), self.attention.chains_mut());
        [bottom, cross, top, matrix, mlp, head]
    }

    fn layer_names(&self, index: usize) -> [String; 2] {
        self.project.layer(index, &self.shape)
    }

    fn plan_sums(&mut self, share: &Share, supply: &mut Supply<'_>) -> Result<()> {
        self.tower.plan_sums(share, supply)?;
        self.attention.plan_sums(share, supply)
    }

    fn features_mut(&mut self, samples: usize) -> &mut [f32] {
        &mut self.features[..samples * self.shape.row]
    }

    fn features_gradient(&self, samples: usize) -> &[f32] {
        &self.features_gradient[..samples * self.shape.row]
    }

    fn features_gradient_mut(&mut self, samples: usize) -> &mut [f32] {
        &mut self.features_gradient[..samples * self.shape.row]
    }

    fn bottom(&mut self, team: &Team, batch: &Batch, part: &Part<'_>) {
        let (offsets, dense) = (|table: usize| &batch.bags[table].offsets[..], (&batch.dense[..], batch.dense_width));
        self.steps.begin(team, part, &offsets, dense, self.tower.input_mut());
        self.tower.bottom(team, part.len() * self.steps.steps());
    }

    fn interact(&mut self, team: &Team, part: &Part<'_>) {
        let Self { steps, tower, features, shape, .. } = self;
        steps.take(team, part.len(), &features[part.samples.start * shape.row..]);
        tower.interact(team, part.len() * steps.steps(), (steps.vectors(), steps.row()));
    }

    fn top(&mut self, team: &Team, _: &Batch, part: &Part<'_>) {
        let Self { steps, tower, attention, logits, .. } = self;
        tower.top(team, part.len() * steps.steps(), true);
        attention.forward(team, tower.output(), steps.there(), &mut logits[..part.len()]);
    }

    fn loss(&mut self, team: &Team, batch: &Batch, part: &Part<'_>, whole: usize) {
        let (first, labels) = (part.samples.start, &batch.labels[part.samples.clone()]);
        self.loss.forward(team, first, &self.logits[..part.len()], labels, whole);
    }

    fn losses(&self, samples: usize) -> &[f64] {
        self.loss.terms(samples)
    }

    fn probabilities(&self, samples: usize) -> &[f32] {
        self.loss.probabilities(samples)
    }

    fn back_top(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        let Self { steps, tower, attention, loss, .. } = self;
        let before = tower.layers();
        let (z, gradient) = tower.output_and_gradient();
        let done = |index, layer: &mut Linear| announce(before + index, layer);
        attention.backward(team, part, z, loss.gradient(), gradient, done);
        tower.back_top(team, &part.with_rows(steps.steps()), announce);
    }

    fn back_interact(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        let Self { steps, tower, features_gradient, shape, .. } = self;
        let (row, rows) = (steps.row(), part.with_rows(steps.steps()));
        let (vectors, gradient) = steps.vectors_and_gradient();
        tower.back_interact(team, &rows, (vectors, gradient, row), announce);
        steps.put(team, part.len(), &mut features_gradient[part.samples.start * shape.row..]);
    }

    fn back_bottom(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        self.tower.back_bottom(team, &part.with_rows(self.steps.steps()), announce);
    }

    fn work(&self, stage: Stage, samples: usize) -> Work {
        self.shape.work(stage, samples, self.kept)
    }
}
