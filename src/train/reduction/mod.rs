//! The dense reduction: how the gradients of layers and replicated tables, of which every rank has a copy, become
//! updates that are the same on all ranks.
//!
//! | implementation  | who exchanges                         | when                                    |
//! |-----------------|---------------------------------------|-----------------------------------------|
//! | [`Alone`]       | nobody: there is one rank             |                                         |
//! | [`Blocking`]    | the compute threads                   | after the backward pass                 |
//! | [`Overlapped`]  | communication threads                 | behind the backward pass, or after it   |
//! | [`ByGrains`]    | the compute threads, in a fixed order | after the backward pass                 |
//!
//! The corridor announces a layer when its gradient is complete ([`DenseReduction::begin`]), updates at the end of the
//! step ([`DenseReduction::update`]), and needs all layers back before the next forward pass uses them
//! ([`DenseReduction::complete`]). Weights do not depend on who exchanges, how many threads do, and when. Where
//! gradients are clipped ([`Clip`]), layers are summed as they come, and all of them are moved once the last one's norm
//! is known ([`Sliced::reduce`]).

mod alone;
mod blocking;
mod clip;
mod grains;
mod layers;
mod nodes;
mod norms;
mod overlapped;
mod sliced;

use std::time::Duration;

use alone::Alone;
use blocking::Blocking;
use clip::Clip;
use grains::ByGrains;
pub(super) use nodes::Nodes;
use overlapped::{CommPlace, Overlapped};
use sliced::Sliced;
pub(super) use sliced::clear_foreign_moments;

use super::clock::Span;
use super::{Clock, Setup};
use crate::base::{RankId, Result};
use crate::collective::{Carrier, Links};
use crate::data::Batch;
use crate::exchange::{Layout, Replicas};
use crate::layer::Linear;
use crate::machine::team::Team;
use crate::model::{Network, Tables};
use crate::optim::StepSizes;
use crate::sync::Job;

/// What the end of a step works on.
pub(super) struct UpdateContext<'a> {
    pub team: &'a Team,
    pub network: &'a mut dyn Network,
    pub tables: &'a mut Tables,
    pub clock: &'a mut Clock,
    pub step_sizes: StepSizes,
}

/// Bytes that a rank sends for dense gradients.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// In a step, from each rank to each, as planned; without the lists of replicated tables, whose length depends on
    /// data.
    pub planned: Links,
    /// To each rank so far.
    pub so_far: Vec<usize>,
}

/// A way to reduce dense gradients over ranks.
pub(super) trait DenseReduction: Send {
    /// The gradient of a layer is complete; its weights move by the step's step sizes, those of
    /// [`DenseReduction::update`].
    fn begin(&mut self, _index: usize, _layer: &mut Linear, _step_sizes: StepSizes) {}

    /// The gradient of the features is complete, and with it what the replicated tables need.
    fn begin_replicas(&mut self, _team: &Team, _tables: &mut Tables, _batch: &Batch, _gradient: &[f32]) {}

    /// All gradients are complete: what was not begun is reduced now, and what is reduced is applied.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    fn update(&mut self, context: UpdateContext<'_>) -> Result<()>;

    /// Returns when every layer is here, updated.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    fn complete(&mut self, _network: &mut dyn Network, _clock: &mut Clock) -> Result<()> {
        Ok(())
    }

    /// Whether each rank moves its slice of every layer, in the stage [`crate::model::Stage::ReduceDense`]; else each
    /// moves all of it, in [`crate::model::Stage::UpdateDense`].
    fn is_sliced(&self) -> bool {
        false
    }

    /// How long communication threads were at work so far.
    fn busy(&self) -> Duration {
        Duration::ZERO
    }

    /// What was sent; everything is complete.
    fn sent(&self) -> Sent;

    /// What communication threads did, by thread.
    fn spans(&self) -> Vec<Vec<Span>> {
        Vec::new()
    }

    /// What it costs, for people, where it costs more than a reduction must.
    fn cost(&self) -> Option<String> {
        None
    }
}

/// The lanes of the dense reduction.
pub(super) struct DenseLanes {
    /// One a thread that takes part.
    pub reducers: Vec<Box<dyn Carrier>>,
    /// Where there are replicated tables.
    pub replicas: Option<Box<dyn Carrier>>,
}

/// The dense reduction that a setup asks for; `nodes` are the sums by grains, where the number of ranks changes no bit.
pub(super) fn build(
    setup: &Setup,
    job: &Job,
    layout: &Layout,
    rank: RankId,
    network: &mut dyn Network,
    nodes: Option<Nodes>,
    lanes: DenseLanes,
) -> Result<Box<dyn DenseReduction>> {
    let (place, clip) = (&setup.places[rank.index()], setup.spec.clip_norm.map(Clip::to));
    let replicas = Replicas::new(layout, rank, setup.isa);
    let DenseLanes { reducers, replicas: replicas_lane } = lanes;
    if let Some(nodes) = nodes {
        let lane = reducers.into_iter().next().expect("a lane for sums by grains");
        return Ok(Box::new(ByGrains::new(nodes, replicas, replicas_lane, lane, clip)));
    }
    if layout.ranks() == 1 || !setup.spec.learns() {
        return Ok(Box::new(Alone::new(clip)));
    }
    let ways = (&setup.reduction, setup.wires.dense);
    let sliced = Sliced::new((reducers, replicas_lane), network, ways, clip, setup.traced);
    if !setup.reduces_aside() {
        return Ok(Box::new(Blocking::new(sliced, replicas)));
    }
    let place = CommPlace { rank, pus: place.comm.clone(), spin: setup.spin, isa: setup.isa };
    Ok(Box::new(Overlapped::start(place, job, sliced, replicas, setup.overlap)?))
}
