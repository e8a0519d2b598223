//! The network that a model's layers make ([`ModelConfig::network`](crate::base::config::ModelConfig::network)),
//! built-in or of a user's own: DLRM (Naumov et al., arXiv:1906.00091) exactly as facebookresearch/dlrm trains it,
//! DCNv2 as MLPerf does since v3.0, Wide & Deep (Cheng et al. 2016), TBSM (Ishkhanov et al., arXiv:2008.11922), and
//! whatever else is composed.
//!
//! Pooled rows become the vectors of a sample as they are, by [`FeatureVectors`], or at each step of a time series
//! ([`Steps`]); blocks ([`plan()`]) run from there and from the dense features to the logit, to which a wide part adds
//! its own sum.

mod block;
mod plan;
mod planned;

pub use plan::plan;
pub use planned::{Block, ChainLayer, InputRows, Op, Origin, Piece, readings};

use std::ops::Range;

use self::block::{Inner, Runner};
use super::init;
use super::names::Project;
use super::network::{Announce, Network, NetworkSpec};
use super::shape::Shape;
use super::stage::{Stage, Work};
use crate::base::Result;
use crate::data::Batch;
use crate::layer::{FeatureVectors, Linear, LossLayer, Reading, Steps, Wide, sum_readings};
use crate::machine::team::Team;
use crate::math::brgemm::{export_rows, import_rows};
use crate::math::{Part, StridedRows, StridedRowsMut};
use crate::memory::{Buffer, Supply};
use crate::optim::{ParamGroup, ParamState};

/// All blocks, the wide part and the loss, with the activations of the current part of a minibatch.
#[derive(Debug)]
pub struct Graph {
    blocks: Vec<Runner>,
    vectors: Base,
    /// What blocks that have copies of vectors give back.
    readings: Vec<Reading>,
    wide: Option<Wide>,
    loss: LossLayer,
    kept: ParamState,
    project: Project,
    /// By layer, where in its input the inputs by their names are, if not in their order.
    named_inputs: Vec<(usize, Vec<usize>)>,
    shape: Shape,
    /// Pooled rows of the whole slice of a minibatch, samples x row, those of the wide part last; part by part their
    /// gradient takes their place.
    features: Buffer<f32>,
    /// Of the current part.
    logits: Buffer<f32>,
}

/// What the vectors of a sample are.
#[derive(Debug)]
enum Base {
    /// Its pooled rows.
    Features,
    /// Made of them.
    Made(FeatureVectors),
    /// Those of each step.
    Steps(Steps),
}

impl Graph {
    /// All weights 0.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When the model's layers make no network, or tables differ in width although their vectors are multiplied with
    /// each other.
    pub fn build(spec: &NetworkSpec<'_>, supply: &mut Supply<'_>) -> Result<Box<dyn Network>> {
        let NetworkSpec { config, dims, positions, samples, part, threads, kept: by_group } = *spec;
        let kept = by_group[ParamGroup::Dense];
        let (whole, deep) = (spec.feature_row(), spec.deep());
        let shape = Shape::of(config, positions, dims);
        let vectors = match config.ts_length {
            0 => FeatureVectors::new(config, (&dims[..deep], whole), part, kept, supply)?
                .map_or(Base::Features, Base::Made),
            _ => Base::Steps(Steps::new((dims, positions, config.steps()), part, supply)?),
        };
        let inner = Inner { samples: part, steps: config.steps(), threads, kept };
        let mut blocks = Vec::with_capacity(shape.blocks.len());
        let mut first = 0;
        for at in 0..shape.blocks.len() {
            let runner = Runner::new(&shape.blocks, at, first, inner, supply)?;
            first += runner.layers();
            blocks.push(runner);
        }
        let group = ParamGroup::WideDense;
        let mut wide = match config.wide {
            true => Some(Wide::new(config.dense(), (shape.row..whole, whole), part, by_group[group], supply)?),
            false => None,
        };
        wide.iter_mut().flat_map(Wide::layers_mut).for_each(|layer| layer.join(group));
        Ok(Box::new(Self {
            readings: readings(&shape.blocks, None),
            loss: LossLayer::new(config, samples, part, supply)?,
            features: supply.buffer("features", samples * whole)?,
            logits: supply.buffer("logits", part)?,
            project: Project::of(config),
            named_inputs: blocks.iter().filter_map(|block| block.named_inputs(config.triangle)).collect(),
            blocks,
            vectors,
            wide,
            kept,
            shape,
        }))
    }

    fn wide_layers(&self) -> &[Linear] {
        self.wide.as_ref().map_or(&[], Wide::layers)
    }

    /// Layers of blocks.
    fn of_blocks(&self) -> usize {
        self.blocks.iter().map(Runner::layers).sum()
    }

    /// Runs the operations and the chains of a stage, forward.
    fn forward(&mut self, team: &Team, stage: Stage, part: &Part<'_>) {
        let Self { blocks, vectors, features, shape, .. } = self;
        let row = shape.features();
        let (vectors, there) = match vectors {
            Base::Features => (StridedRows { data: &features[part.samples.start * row..], stride: row }, &[][..]),
            Base::Made(made) => (made.vectors(), &[][..]),
            Base::Steps(steps) => (steps.vectors(), steps.there()),
        };
        for at in 0..blocks.len() {
            let (before, rest) = blocks.split_at_mut(at);
            rest[0].forward(team, (stage, part.len()), before, vectors, there);
        }
    }

    /// Runs those of a stage backward, given the stage's forward counterpart.
    fn backward(&mut self, team: &Team, stage: Stage, part: &Part<'_>, announce: Announce<'_>) {
        let Self { blocks, vectors, features, shape, .. } = self;
        let mut vectors = gradient_of(vectors, features_of(features, shape, part));
        for at in (0..blocks.len()).rev() {
            let (before, rest) = blocks.split_at_mut(at);
            let (block, after) = rest.split_first_mut().expect("there is a block of that number");
            block.backward(team, (stage, part), [before, after], vectors.reborrow(), &mut *announce);
        }
    }
}

/// The features from those of a part on.
fn features_of<'a>(features: &'a mut [f32], shape: &Shape, part: &Part<'_>) -> StridedRowsMut<'a> {
    let stride = shape.features();
    StridedRowsMut { data: &mut features[part.samples.start * stride..], stride }
}

/// The vectors of a part, whose gradient takes their place; `features` are the part's.
fn gradient_of<'a>(vectors: &'a mut Base, features: StridedRowsMut<'a>) -> StridedRowsMut<'a> {
    match vectors {
        Base::Features => features,
        Base::Made(made) => made.vectors_mut(),
        Base::Steps(steps) => steps.vectors_mut(),
    }
}

impl Network for Graph {
    fn initialise(&mut self, seed: u64) {
        let project = self.project;
        let (mut crosses, shape) = (0, self.shape.clone());
        for (block, planned) in self.blocks.iter_mut().zip(&shape.blocks) {
            block.initialise(project, planned, &mut crosses, seed);
        }
        self.wide.iter_mut().for_each(|wide| init::zeros(wide.layers_mut()));
        if let Base::Made(made) = &mut self.vectors {
            init::projections(made.layers_mut(), seed);
        }
    }

    fn each_layer<'a>(&'a self, each: &mut dyn FnMut(&'a Linear)) {
        self.blocks.iter().for_each(|block| block.each_layer(each));
        self.wide_layers().iter().for_each(&mut *each);
        if let Base::Made(made) = &self.vectors {
            made.layers().iter().for_each(each);
        }
    }

    fn each_layer_mut<'a>(&'a mut self, each: &mut dyn FnMut(&'a mut Linear)) {
        self.blocks.iter_mut().for_each(|block| block.each_layer_mut(each));
        self.wide.iter_mut().flat_map(Wide::layers_mut).for_each(&mut *each);
        if let Base::Made(made) = &mut self.vectors {
            made.layers_mut().iter_mut().for_each(each);
        }
    }

    fn layer_names(&self, index: usize) -> [String; 2] {
        self.project.layer(index, &self.shape)
    }

    fn named_inputs(&self, index: usize) -> Option<&[usize]> {
        self.named_inputs.iter().find(|(layer, _)| *layer == index).map(|(_, inputs)| &inputs[..])
    }

    fn features_mut(&mut self, samples: &Range<usize>) -> &mut [f32] {
        let row = self.shape.features();
        &mut self.features[samples.start * row..samples.end * row]
    }

    fn features(&self, samples: usize) -> &[f32] {
        &self.features[..samples * self.shape.features()]
    }

    fn bottom(&mut self, team: &Team, batch: &Batch, part: &Part<'_>) {
        let dense = batch.features(part.samples.start);
        let mut begun = false;
        for input in self.blocks.iter_mut().filter_map(Runner::input_mut) {
            match &mut self.vectors {
                Base::Steps(steps) => {
                    let offsets = |table: usize| &batch.bags[table].offsets[..];
                    steps.begin(team, part, &offsets, batch.features(0), Some(input));
                }
                Base::Features | Base::Made(_) => import_rows(team, part.len(), dense.data, dense.stride, input),
            }
            begun = true;
        }
        if let (Base::Steps(steps), false) = (&mut self.vectors, begun) {
            let offsets = |table: usize| &batch.bags[table].offsets[..];
            steps.begin(team, part, &offsets, StridedRows { data: &[], stride: 0 }, None);
        }
        self.forward(team, Stage::Bottom, part);
    }

    fn interact(&mut self, team: &Team, part: &Part<'_>) {
        let features = &self.features[part.samples.start * self.shape.features()..];
        match &mut self.vectors {
            Base::Features => {}
            Base::Made(made) => made.forward(team, part.len(), features),
            Base::Steps(steps) => steps.take(team, part.len(), features),
        }
        self.forward(team, Stage::Interact, part);
    }

    fn top(&mut self, team: &Team, batch: &Batch, part: &Part<'_>) {
        self.forward(team, Stage::Top, part);
        let logits = &mut self.logits[..part.len()];
        export_rows(team, self.blocks.last().expect("a network has layers").output(), logits, 1);
        if let Some(wide) = &mut self.wide {
            let dense = batch.features(part.samples.start);
            wide.forward(team, dense, &self.features[part.samples.start * self.shape.features()..], logits);
        }
    }

    fn loss(&mut self, team: &Team, batch: &Batch, part: &Part<'_>, whole: usize) {
        let (first, labels) = (part.samples.start, &batch.labels[part.samples.clone()]);
        let weights = batch.sample_weights(first);
        self.loss.forward(team, first, &self.logits[..part.len()], labels, weights, whole);
    }

    fn losses(&self, samples: usize) -> &[f64] {
        self.loss.terms(samples)
    }

    fn label_weights(&self) -> [f64; 2] {
        self.loss.label_weights()
    }

    fn probabilities(&self, samples: usize) -> &[f32] {
        self.loss.probabilities(samples)
    }

    fn back_top(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        let before = self.of_blocks();
        if let Some(wide) = &mut self.wide {
            let features = &mut self.features[part.samples.start * self.shape.features()..];
            let announce = |index, layer: &mut Linear| announce(before + index, layer);
            wide.backward(team, part, self.loss.gradient(), features, announce);
        }
        let last = self.blocks.last_mut().expect("a network has layers");
        import_rows(team, part.len(), self.loss.gradient(), 1, last.gradient_mut());
        self.backward(team, Stage::Top, part, announce);
    }

    fn back_interact(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        self.backward(team, Stage::Interact, part, &mut *announce);
        let before = self.of_blocks() + self.wide_layers().len();
        let Self { blocks, vectors, readings, features, shape, .. } = self;
        let rows = part.len() * if let Base::Steps(steps) = vectors { steps.steps() } else { 1 };
        let mut features = features_of(features, shape, part);
        if !readings.is_empty() {
            let of_copies = |reader: usize| blocks[reader].copies();
            sum_readings(team, rows, readings, &of_copies, gradient_of(vectors, features.reborrow()));
        }
        match vectors {
            Base::Features => {}
            Base::Made(made) => {
                made.backward(team, part, features.data, |index, layer| announce(before + index, layer));
            }
            Base::Steps(steps) => steps.put(team, part.len(), features.data),
        }
    }

    fn back_bottom(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        self.backward(team, Stage::Bottom, part, announce);
    }

    fn work(&self, stage: Stage, samples: usize) -> Work {
        self.shape.work(stage, samples, self.kept)
    }
}
