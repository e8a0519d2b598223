//! What lies between pooled rows and the loss: a network, of which every rank has a copy.
//!
//! A training step knows a network by this trait alone. Its parameters are [`Linear`] layers, numbered from 0; the
//! backward pass announces each as soon as its gradient is complete, so that its reduction over ranks can begin. Pooled
//! rows come into the features from outside, one row a sample with each table's columns side by side, and their
//! gradient is taken from there: the tables may be anywhere and of any width, and a network need not use all of them.
//! Rows of a bag may also come unpooled, side by side in their order, the last one last
//! ([`crate::exchange::LayoutSpec::sequences`]).

use std::fmt::Debug;
use std::ops::Range;

use super::Parameter;
use super::stage::{Stage, Work};
use crate::base::Result;
use crate::base::config::ModelConfig;
use crate::data::Batch;
use crate::layer::Linear;
use crate::machine::team::Team;
use crate::math::Part;
use crate::memory::Supply;
use crate::optim::{ByGroup, ParamState, StepSizes};

/// Gets the number of a layer whose gradient is complete, and the layer.
pub type Announce<'a> = &'a mut dyn FnMut(usize, &mut Linear);

const NO_LAYER: &str = "there is no such layer";

/// A network, and what a part of a minibatch leaves in it between its forward and its backward pass.
///
/// Each method of a stage is called once for each part of a minibatch, in the order of [`Stage`]: a part goes forward
/// and back before the next, and the gradients of weights are complete with the last.
pub trait Network: Debug + Send {
    /// Draws initial weights: a pure function of the seed.
    fn initialise(&mut self, seed: u64);

    /// Gives its parameter layers to `each`, in the order in which they are numbered.
    fn each_layer<'a>(&'a self, each: &mut dyn FnMut(&'a Linear));

    /// As [`Network::each_layer`], to be changed.
    fn each_layer_mut<'a>(&'a mut self, each: &mut dyn FnMut(&'a mut Linear));

    /// How many parameter layers it has.
    fn layers(&self) -> usize {
        let mut count = 0;
        self.each_layer(&mut |_| count += 1);
        count
    }

    /// Parameter layer number `index`.
    ///
    /// # Panics
    /// When there is no such layer.
    fn layer(&self, index: usize) -> &Linear {
        let (mut at, mut found) = (0, None);
        self.each_layer(&mut |layer| {
            if at == index {
                found = Some(layer);
            }
            at += 1;
        });
        found.expect(NO_LAYER)
    }

    /// As [`Network::layer`], to be changed.
    ///
    /// # Panics
    /// When there is no such layer.
    fn layer_mut(&mut self, index: usize) -> &mut Linear {
        let (mut at, mut found) = (0, None);
        self.each_layer_mut(&mut |layer| {
            if at == index {
                found = Some(layer);
            }
            at += 1;
        });
        found.expect(NO_LAYER)
    }

    /// What a layer's weights and its biases are called in a state dict.
    ///
    /// # Panics
    /// When there is no such layer.
    fn layer_names(&self, index: usize) -> [String; 2];

    /// Where in a layer's inputs those of its weights in a state dict are; nothing where they come in their order.
    ///
    /// # Panics
    /// When there is no such layer.
    fn named_inputs(&self, index: usize) -> Option<&[usize]> {
        let _ = index;
        None
    }

    /// The pooled rows of a slice of `samples` samples; of each part, once [`Network::back_interact`] has run, their
    /// gradient.
    fn features(&self, samples: usize) -> &[f32];

    /// The same of some of its samples, to be written.
    fn features_mut(&mut self, samples: &Range<usize>) -> &mut [f32];

    /// Forward: what needs no pooled rows.
    fn bottom(&mut self, team: &Team, batch: &Batch, part: &Part<'_>);

    /// Forward: the interaction of all features.
    fn interact(&mut self, team: &Team, part: &Part<'_>);

    /// Forward: from there to one logit a sample.
    fn top(&mut self, team: &Team, batch: &Batch, part: &Part<'_>);

    /// The part of these samples in the mean loss of a minibatch of `whole` samples, and its gradient.
    fn loss(&mut self, team: &Team, batch: &Batch, part: &Part<'_>, whole: usize);

    /// Each sample's loss in the last minibatch.
    fn losses(&self, samples: usize) -> &[f64];

    /// By what a sample's loss is multiplied beside its own weight: where its label is below 1, and where it is 1.
    fn label_weights(&self) -> [f64; 2] {
        [1.0; 2]
    }

    /// The click probabilities of the last minibatch, one a sample.
    fn probabilities(&self, samples: usize) -> &[f32];

    /// Backward of [`Network::top`].
    fn back_top(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>);

    /// Backward of [`Network::interact`]: afterwards the gradient of the part's pooled rows, all of them, is in their
    /// place.
    fn back_interact(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>);

    /// Backward of [`Network::bottom`].
    fn back_bottom(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>);

    /// The work of one of its own stages for a minibatch of `samples`; none for any other stage.
    fn work(&self, stage: Stage, samples: usize) -> Work;
}

/// What a network is built for.
#[derive(Debug, Clone, Copy)]
pub struct NetworkSpec<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// Columns of each table.
    pub dims: &'a [usize],
    /// Rows of each table that a sample's features have side by side: 1 where rows are pooled, else the steps of a time
    /// series.
    pub positions: &'a [usize],
    /// Samples of the rank's largest slice of a minibatch.
    pub samples: usize,
    /// Samples of its largest part.
    pub part: usize,
    /// Threads of the rank's team.
    pub threads: usize,
    /// What is kept of the weights of each group.
    pub kept: ByGroup<ParamState>,
}

impl NetworkSpec<'_> {
    /// Tables whose rows are vectors of the network's features; those of a wide part follow.
    #[must_use]
    pub fn deep(&self) -> usize {
        self.config.deep_tables(self.dims.len())
    }

    /// Elements of a sample's features.
    #[must_use]
    pub fn feature_row(&self) -> usize {
        self.dims.iter().zip(self.positions).map(|(dim, positions)| dim * positions).sum()
    }
}

/// Builds a network, all weights 0. It runs twice, the first time to measure: buffers have no memory then, and are not
/// used, and both times it asks for the same ones.
pub type BuildNetwork = fn(&NetworkSpec<'_>, &mut Supply<'_>) -> Result<Box<dyn Network>>;

impl dyn Network + '_ {
    /// Every tensor of its layers, in their order.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let of_layer = |index| Parameter::of_layer(index, self.layer_names(index), self.layer(index));
        (0..self.layers()).flat_map(of_layer).collect()
    }

    /// The lengths of the gradients of all weights and biases, layer after layer, the padding of their layout included.
    pub fn gradient_sizes(&self) -> impl Iterator<Item = usize> {
        (0..self.layers()).flat_map(|index| self.layer(index).gradient_sizes())
    }

    /// Moves the weights of all layers against their gradients.
    pub fn update(&mut self, team: &Team, step_sizes: StepSizes) {
        self.each_layer_mut(&mut |layer| layer.update(team, step_sizes[layer.group()]));
    }
}
