//! The Deep Learning Recommendation Model (Naumov et al., arXiv:1906.00091), exactly as facebookresearch/dlrm trains it:
//! a bottom MLP over the dense features, the interaction of its output with the pooled rows, a top MLP and the loss. Where
//! samples have no dense features there is no bottom MLP, and pooled rows interact among themselves.
//!
//! With a cross network for an interaction it is DCNv2 as MLPerf trains it since v3.0 (TorchRec's `DLRM_DCN`): an
//! interaction that has layers of its own, which are numbered between those of the MLPs.
//!
//! Where the model has a wide part, its sum goes round all of that to the logit; with features that are only put side by
//! side, and no bottom MLP, that is Wide & Deep (Cheng et al. 2016). The wide part's rows are the last of the features.
//!
//! The MLPs keep their own ends, and each stage reads and writes its neighbours', so that none copies what another has
//! written.

use super::init;
use super::names::Project;
use super::network::{Announce, Network, NetworkSpec};
use super::shape::Shape;
use super::stage::{Stage, Work};
use crate::base::Result;
use crate::base::config::{Interaction, Triangle};
use crate::data::Batch;
use crate::layer::{Concat, Cross, Dot, Features, FeaturesMut, InputGradient, Linear, LossLayer, Mlp, Wide};
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
    wide: Option<Wide>,
    loss: LossLayer,
    kept: Kept,
    project: Project,
    /// Tables that are not the wide part's.
    deep: usize,
    /// Where in the top MLP's input the inputs by their names are, if not in their order.
    named_inputs: Option<Vec<usize>>,
    shape: Shape,
    activations: Activations,
}

#[derive(Debug)]
enum Interacts {
    Dot(Dot),
    Concat(Concat),
    Cross(Box<Cross>),
}

/// What lies around the MLPs.
#[derive(Debug)]
struct Activations {
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
        let (whole, deep) = (dims.iter().zip(positions).map(|(dim, positions)| dim * positions).sum(), spec.deep());
        let (dims, positions) = (&dims[..deep], &positions[..deep]);
        let row = dims.iter().zip(positions).map(|(dim, positions)| dim * positions).sum();
        let bottom = config.bottom_widths();
        // Both ends of a bottom MLP without layers are one matrix: the dense features, or an empty one.
        let ends = if bottom.len() == 1 { InputGradient::Needed } else { InputGradient::Unneeded };
        let interaction = match config.interaction {
            Interaction::Dot => {
                assert!(dims.iter().all(|dim| *dim == config.dim), "vectors of one width are multiplied: {dims:?}");
                let rows = [positions.iter().sum(), config.dim];
                Interacts::Dot(Dot::new(!config.bottom.is_empty(), rows, config.interaction_itself, threads, supply)?)
            }
            Interaction::Cat => Interacts::Concat(Concat::new(bottom[bottom.len() - 1], row)),
            Interaction::Dcn => {
                let (concat, sizes) =
                    (Concat::new(bottom[bottom.len() - 1], row), [config.cross_layers, config.cross_rank]);
                Interacts::Cross(Box::new(Cross::new(concat, sizes, part, kept, supply)?))
            }
        };
        let wide = match config.wide {
            true => Some(Wide::new(config.dense(), (row..whole, whole), part, kept_wide, supply)?),
            false => None,
        };
        let top: Vec<_> = std::iter::once(interaction.outputs()).chain(config.top.iter().copied()).collect();
        Ok(Box::new(Self {
            bottom: Mlp::new(bottom, part, ends, kept, supply)?,
            top: Mlp::new(&top, part, InputGradient::Needed, kept, supply)?,
            loss: LossLayer::new(config, samples, part, supply)?,
            activations: Activations::new([samples, part], whole, kept, supply)?,
            project: Project::of(config),
            named_inputs: match &interaction {
                Interacts::Dot(dot) if config.triangle == Triangle::Upper => Some(dot.upper_triangle()),
                _ => None,
            },
            interaction,
            wide,
            kept,
            deep,
            shape: Shape::dlrm(config, positions.iter().sum(), row),
        }))
    }
}

impl Network for Dlrm {
    fn settle(&mut self, arena: &mut Arena) {
        self.bottom.settle(arena);
        self.top.settle(arena);
        match &mut self.interaction {
            Interacts::Dot(dot) => dot.settle(arena),
            Interacts::Concat(_) => {}
            Interacts::Cross(cross) => cross.settle(arena),
        }
        self.wide.iter_mut().for_each(|wide| wide.settle(arena));
        self.loss.settle(arena);
        self.activations.settle(arena);
    }

    fn initialise(&mut self, seed: u64) {
        let project = self.project;
        init::mlp(project, self.bottom.layers_mut(), 0, seed);
        init::mlp(project, self.top.layers_mut(), 1, seed);
        init::cross(self.interaction.layers_mut(), 2, seed);
        self.wide.iter_mut().for_each(|wide| init::zeros(wide.layers_mut()));
    }

    fn layers(&self) -> usize {
        self.chains().map(<[_]>::len).into_iter().sum()
    }

    fn layer(&self, index: usize) -> &Linear {
        self.chains().into_iter().flatten().nth(index).expect(NO_LAYER)
    }

    fn layer_mut(&mut self, index: usize) -> &mut Linear {
        self.chains_mut().into_iter().flatten().nth(index).expect(NO_LAYER)
    }

    fn each_layer_mut<'a>(&'a mut self, each: &mut dyn FnMut(&'a mut Linear)) {
        self.chains_mut().into_iter().flatten().for_each(each);
    }

    fn layer_names(&self, index: usize) -> [String; 2] {
        let [bottom, crossed, top, _] = self.chains().map(<[_]>::len);
        self.project.layer(index, [bottom, crossed, top])
    }

    fn named_inputs(&self, index: usize) -> Option<&[usize]> {
        let [bottom, crossed, ..] = self.chains().map(<[_]>::len);
        self.named_inputs.as_deref().filter(|_| index == bottom + crossed)
    }

    fn table_name(&self, table: usize) -> String {
        self.project.table_of(table, self.deep)
    }

    fn plan_sums(&mut self, share: &Share, supply: &mut Supply<'_>) -> Result<()> {
        self.bottom.plan_sums(share, supply)?;
        if let Interacts::Cross(cross) = &mut self.interaction {
            cross.plan_sums(share, supply)?;
        }
        self.wide.iter_mut().try_for_each(|wide| wide.plan_sums(share, supply))?;
        self.top.plan_sums(share, supply)
    }

    fn features_mut(&mut self, samples: usize) -> &mut [f32] {
        &mut self.activations.features[..samples * self.shape.features()]
    }

    fn features_gradient(&self, samples: usize) -> &[f32] {
        &self.activations.features_gradient[..samples * self.shape.features()]
    }

    fn features_gradient_mut(&mut self, samples: usize) -> &mut [f32] {
        &mut self.activations.features_gradient[..samples * self.shape.features()]
    }

    fn bottom(&mut self, team: &Team, batch: &Batch, part: &Part<'_>) {
        let dense = &batch.dense[part.samples.start * batch.dense_width..];
        import_rows(team, part.len(), dense, batch.dense_width, self.bottom.input_mut());
        self.bottom.forward(team, part.len(), true);
    }

    fn interact(&mut self, team: &Team, part: &Part<'_>) {
        let row = self.shape.features();
        let pooled = &self.activations.features[part.samples.start * row..];
        let from = Features { x: self.bottom.output(), pooled, row };
        let out = self.top.input_mut();
        match &mut self.interaction {
            Interacts::Dot(dot) => dot.forward(team, part.len(), from, out),
            Interacts::Concat(concat) => concat.forward(team, part.len(), from, out),
            Interacts::Cross(cross) => cross.forward(team, part.len(), from, out),
        }
    }

    fn top(&mut self, team: &Team, batch: &Batch, part: &Part<'_>) {
        self.top.forward(team, part.len(), false);
        let Activations { features, logits, .. } = &mut self.activations;
        let logits = &mut logits[..part.len()];
        export_rows(team, self.top.output(), logits, 1);
        if let Some(wide) = &mut self.wide {
            let dense = (&batch.dense[part.samples.start * batch.dense_width..], batch.dense_width);
            wide.forward(team, dense, &features[part.samples.start * self.shape.features()..], logits);
        }
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
        let before = self.bottom.layers().len() + self.interaction.layers().len();
        if let Some(wide) = &mut self.wide {
            let (last, features) = (before + self.top.layers().len(), part.samples.start * self.shape.features());
            let gradient = &mut self.activations.features_gradient[features..];
            let announce = |index, layer: &mut Linear| announce(last + index, layer);
            wide.backward(team, part, self.loss.gradient(), gradient, announce);
        }
        let (_, gradient) = self.top.output_and_gradient();
        import_rows(team, part.len(), self.loss.gradient(), 1, gradient);
        self.top.backward(team, part, |index, layer| announce(before + index, layer));
    }

    fn back_interact(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        let before = self.bottom.layers().len();
        let (x, x_gradient) = self.bottom.output_and_gradient();
        let Activations { features, features_gradient, .. } = &mut self.activations;
        let row = self.shape.features();
        let first = part.samples.start * row;
        let from = Features { x, pooled: &features[first..], row };
        let to = FeaturesMut { x: x_gradient, pooled: &mut features_gradient[first..], row };
        let gradient = self.top.input_gradient();
        match &mut self.interaction {
            Interacts::Dot(dot) => dot.backward(team, part.len(), from, gradient, to),
            Interacts::Concat(concat) => concat.backward(team, part.len(), from, gradient, to),
            Interacts::Cross(cross) => {
                let announce = |index, layer: &mut Linear| announce(before + index, layer);
                cross.backward(team, part, from, gradient, to, announce);
            }
        }
    }

    fn back_bottom(&mut self, team: &Team, part: &Part<'_>, announce: Announce<'_>) {
        self.bottom.backward(team, part, announce);
    }

    fn work(&self, stage: Stage, samples: usize) -> Work {
        self.shape.work(stage, samples, self.kept)
    }
}

const NO_LAYER: &str = "there is no such layer";

impl Dlrm {
    /// The layers of the bottom MLP, of the interaction, of the top MLP and of the wide part.
    fn chains(&self) -> [&[Linear]; 4] {
        let wide = self.wide.as_ref().map_or(&[][..], Wide::layers);
        [self.bottom.layers(), self.interaction.layers(), self.top.layers(), wide]
    }

    fn chains_mut(&mut self) -> [&mut [Linear]; 4] {
        let wide = self.wide.as_mut().map_or(&mut [][..], Wide::layers_mut);
        [self.bottom.layers_mut(), self.interaction.layers_mut(), self.top.layers_mut(), wide]
    }
}

impl Interacts {
    fn outputs(&self) -> usize {
        match self {
            Self::Dot(dot) => dot.outputs(),
            Self::Concat(concat) => concat.outputs(),
            Self::Cross(cross) => cross.outputs(),
        }
    }

    fn layers(&self) -> &[Linear] {
        if let Self::Cross(cross) = self { cross.layers() } else { &[] }
    }

    fn layers_mut(&mut self) -> &mut [Linear] {
        if let Self::Cross(cross) = self { cross.layers_mut() } else { &mut [] }
    }
}

impl Activations {
    fn new([samples, part]: [usize; 2], features: usize, kept: Kept, supply: &mut Supply<'_>) -> Result<Self> {
        let learning = if kept.optimizer.moves() { samples } else { 0 };
        Ok(Self {
            features: supply.buffer("features", samples * features)?,
            features_gradient: supply.buffer("feature gradients", learning * features)?,
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
