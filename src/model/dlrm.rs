//! The Deep Learning Recommendation Model (Naumov et al., arXiv:1906.00091), exactly as facebookresearch/dlrm trains it:
//! a bottom MLP over the dense features, the interaction of its output with the pooled rows, a top MLP and the loss. Where
//! samples have no dense features there is no bottom MLP, and pooled rows interact among themselves.
//!
//! With a cross network for an interaction it is DCNv2 as MLPerf trains it since v3.0 (TorchRec's `DLRM_DCN`): an
//! interaction that has layers of its own, which are numbered between those of the MLPs.
//!
//! Where the model has a wide part, its sum goes round all of that to the logit; with features that are only put side by
//! side, and no bottom MLP, that is Wide & Deep (Cheng et al. 2016). The wide part's rows are the last of the features.

use super::init;
use super::names::Project;
use super::network::{Announce, CHAINS, Network, NetworkSpec};
use super::shape::Shape;
use super::stage::{Stage, Work};
use crate::base::Result;
use crate::data::Batch;
use crate::layer::{Linear, LossLayer, Tower, Vectors, Wide};
use crate::machine::team::Team;
use crate::math::brgemm::{export_rows, import_rows};
use crate::math::{Part, Share};
use crate::memory::{Arena, Buffer, Supply};
use crate::optim::Kept;

/// The tower, the wide part and the loss with the activations of the current part of a minibatch.
#[derive(Debug)]
pub struct Dlrm {
    tower: Tower,
    /// Where they are made of pooled rows.
    vectors: Option<Vectors>,
    wide: Option<Wide>,
    loss: LossLayer,
    kept: Kept,
    project: Project,
    /// Where in the top MLP's input the inputs by their names are, if not in their order.
    named_inputs: Option<Vec<usize>>,
    shape: Shape,
    /// Pooled rows of the whole slice of a minibatch, samples x row, those of the wide part last.
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
        let NetworkSpec { config, dims, positions, samples, part, threads, kept, kept_wide } = *spec;
        let (whole, deep) = (spec.feature_row(), spec.deep());
        let row = dims[..deep].iter().zip(positions).map(|(dim, positions)| dim * positions).sum();
        let shape = Shape::of(config, positions, dims);
        let vectors = Vectors::new(config, (&dims[..deep], whole), part, kept, supply)?;
        let width = vectors.as_ref().map_or(row, Vectors::row);
        let count = vectors.as_ref().map_or(positions[..deep].iter().sum(), |_| config.vectors(dims.len()));
        let tower = Tower::new(config, [count, width], part, threads, kept, supply)?;
        let wide = match config.wide {
            true => Some(Wide::new(config.dense(), (row..whole, whole), part, kept_wide, supply)?),
            false => None,
        };
        let learning = if kept.optimizer.moves() { samples } else { 0 };
        Ok(Box::new(Self {
            loss: LossLayer::new(config, samples, part, supply)?,
            features: supply.buffer("features", samples * whole)?,
            features_gradient: supply.buffer("feature gradients", learning * whole)?,
            logits: supply.buffer("logits", part)?,
            project: Project::of(config),
            named_inputs: tower.named_inputs(config.triangle),
            tower,
            vectors,
            wide,
            kept,
            shape,
        }))
    }
}

impl Network for Dlrm {
    fn settle(&mut self, arena: &mut Arena) {
        self.tower.settle(arena);
        self.vectors.iter_mut().for_each(|vectors| vectors.settle(arena));
        self.wide.iter_mut().for_each(|wide| wide.settle(arena));
        self.loss.settle(arena);
        for buffer in [&mut self.features, &mut self.features_gradient, &mut self.logits] {
            buffer.settle(arena);
        }
    }

    fn initialise(&mut self, seed: u64) {
        init::tower(self.project, self.tower.chains_mut(), seed);
        self.wide.iter_mut().for_each(|wide| init::zeros(wide.layers_mut()));
        self.vectors.iter_mut().for_each(|vectors| init::projections(vectors.layers_mut(), 3, seed));
    }

    fn chains(&self) -> [&[Linear]; CHAINS] {
        let ([bottom, cross, top], wide) = (self.tower.chains(), self.wide.as_ref().map_or(&[][..], Wide::layers));
        [bottom, cross, top, wide, self.vectors.as_ref().map_or(&[][..], Vectors::layers), &[]]
    }

    fn chains_mut(&mut self) -> [&mut [Linear]; CHAINS] {
        let wide = self.wide.as_mut().map_or(&mut [][..], Wide::layers_mut);
        let [bottom, cross, top] = self.tower.chains_mut();
        [bottom, cross, top, wide, self.vectors.as_mut().map_or(&mut [][..], Vectors::layers_mut), &mut []]
    }

    fn layer_names(&self, index: usize) -> [String; 2] {
        self.project.layer(index, &self.shape)
    }

    fn named_inputs(&self, index: usize) -> Option<&[usize]> {
        let first_of_top = self.shape.bottom.len() + self.shape.cross.len();
        self.named_inputs.as_deref().filter(|_| index == first_of_top)
    }

    fn plan_sums(&mut self, share: &Share, supply: &mut Supply<'_>) -> Result<()> {
        self.tower.plan_sums(share, supply)?;
        self.vectors.iter_mut().try_for_each(|vectors| vectors.plan_sums(share, supply))?;
        self.wide.iter_mut().try_for_each(|wide| wide.plan_sums(share, supply))
    }

    fn features_mut(&mut self, samples: usize) -> &mut [f32] {
        &mut self.features[..samples * self.shape.features()]
    }

    fn features_gradient(&self, samples: usize) -> &[f32] {
        &self.features_gradient[..samples * self.shape.features()]
    }

    fn features_gradient_mut(&mut self, samples: usize) -> &mut [f32] {
        &mut self.features_gradient[..samples * self.shape.features()]
    }

    fn bottom(&mut self, team: &Team, batch: &Batch, part: &Part<'_>) {
        let dense = &batch.dense[part.samples.start * batch.dense_width..];
        import_rows(team, part.len(), dense, batch.dense_width, self.tower.input_mut());
        self.tower.bottom(team, part.len());
    }

    fn interact(&mut self, team: &Team, part: &Part<'_>) {
        let row = self.shape.features();
        let features = &self.features[part.samples.start * row..];
        match &mut self.vectors {
            None => self.tower.interact(team, part.len(), (features, row)),
            Some(vectors) => {
                vectors.forward(team, part.len(), features);
                self.tower.interact(team, part.len(), (vectors.vectors(), vectors.row()));
            }
        }
    }

    fn top(&mut self, team: &Team, batch: &Batch, part: &Part<'_>) {
        self.tower.top(team, part.len(), false);
        let logits = &mut self.logits[..part.len()];
        export_rows(team, self.tower.output(), logits, 1);
        if let Some(wide) = &mut self.wide {
            let dense = (&batch.dense[part.samples.start * batch.dense_width..], batch.dense_width);
            wide.forward(team, dense, &self.features[part.samples.start * self.shape.features()..], logits);
        }
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
        if let Some(wide) = &mut self.wide {
            let (last, features) = (self.tower.layers(), part.samples.start * self.shape.features());
            let gradient = &mut self.features_gradient[features..];
            let announce = |index, layer: &mut Linear| announce(last + index, layer);
            wide.backward(team, part, self.loss.gradient(), gradient, announce);
        }
        let (_, gradient) = self.tower.output_and_gradient();
        import_rows(team, part.len(), self.loss.gradient(), 1, gradient);
        self.tower.back_top(team, part, announce);
    }

    fn back_interact(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        let row = self.shape.features();
        let first = part.samples.start * row;
        let (features, gradient) = (&self.features[first..], &mut self.features_gradient[first..]);
        match &mut self.vectors {
            None => self.tower.back_interact(team, part, (features, gradient, row), announce),
            Some(made) => {
                let row = made.row();
                let (vectors, of_vectors) = made.vectors_and_gradient();
                self.tower.back_interact(team, part, (vectors, of_vectors, row), &mut *announce);
                let before = self.tower.layers() + self.wide.as_ref().map_or(0, |wide| wide.layers().len());
                made.backward(team, part, (features, gradient), |index, layer| announce(before + index, layer));
            }
        }
    }

    fn back_bottom(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        self.tower.back_bottom(team, part, announce);
    }

    fn work(&self, stage: Stage, samples: usize) -> Work {
        self.shape.work(stage, samples, self.kept)
    }
}
