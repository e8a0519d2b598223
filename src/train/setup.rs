//! What the ranks of a job are built from.

use std::time::Duration;

use crate::base::config::ModelConfig;
use crate::collective::plan::Reduction;
use crate::collective::{Fabric, Links, Payload, SharedMemory, Slices};
use crate::data::Schema;
use crate::machine::placement::{Placement, RankPlace};
use crate::math::Grains;
use crate::model::{BuildNetwork, Dlrm, Room};
use crate::shard::scheme::Sharding;
use crate::simd::Isa;
use crate::sync::Job;

/// Connects the ranks of a job by lanes of these sizes.
pub type BuildFabric = fn(&Job, Vec<Links>) -> Box<dyn Fabric>;

/// What ranks are built from.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The model.
    pub config: ModelConfig,
    /// Its data.
    pub schema: Schema,
    /// Who holds what.
    pub sharding: Sharding,
    /// For whole minibatches.
    pub room: Room,
    /// Where each rank stands.
    pub places: Vec<RankPlace>,
    /// Whether waiting threads have cores of their own.
    pub spin: bool,
    /// The instruction set of all ranks.
    pub isa: Isa,
    /// How dense gradients are summed.
    pub reduction: Reduction,
    /// Whether communication threads, where ranks have them, reduce gradients of layers behind the backward pass; else
    /// they do it after it.
    pub overlap: bool,
    /// What minibatches are cut into, if the number of ranks and the division of tables shall change no bit; then dense
    /// gradients are summed by grains instead.
    pub grains: Option<Grains>,
    /// The longest that a rank waits for another, once all have their memory.
    pub deadline: Duration,
    /// Whether it is kept when each stage began.
    pub traced: bool,
    /// By table, as how many rows side by side a sample's look-ups reach the network, in their order and 0 where a bag has
    /// fewer; 1: pooled to one.
    pub sequences: Vec<usize>,
    /// What lies between pooled rows and the loss.
    pub network: BuildNetwork,
    /// What connects the ranks.
    pub fabric: BuildFabric,
}

impl Setup {
    /// On these places: DLRM over shared memory, dense gradients around a ring in both directions, five minutes' patience.
    #[must_use]
    pub fn new(config: &ModelConfig, schema: &Schema, sharding: Sharding, room: Room, placement: &Placement) -> Self {
        Self {
            config: config.clone(),
            schema: schema.clone(),
            sharding,
            room,
            places: placement.ranks.clone(),
            spin: placement.spin,
            isa: Isa::best(),
            reduction: Reduction::TwoRing,
            overlap: true,
            grains: None,
            deadline: DEADLINE,
            traced: false,
            sequences: vec![1; schema.tables.len()],
            network: Dlrm::build,
            fabric: |job, lanes| Box::new(SharedMemory::new(job, lanes)),
        }
    }

    /// How many threads of each rank reduce dense gradients: its communication threads if all ranks have some, else its
    /// compute threads; the least of any rank.
    fn reducers(&self) -> usize {
        let least = |threads: fn(&RankPlace) -> usize| self.places.iter().map(threads).min().unwrap_or(1);
        let comm = least(|place| place.comm.len());
        if comm > 0 { comm } else { least(|place| place.compute.len()) }
    }

    /// The lanes of the dense reduction: windows only where its schedule sends something.
    pub(super) fn dense_lanes(&self) -> Vec<Links> {
        /// Elements of a slice: as much as a window's piece holds.
        const SLICE: usize = 64 << 10;
        let ranks = self.places.len();
        if self.grains.is_some() {
            return vec![Links::uniform(ranks, SLICE * size_of::<f32>())];
        }
        if ranks == 1 {
            return Vec::new();
        }
        // Large layers go in pieces, small ones need less; which ranks talk does not depend on the size.
        let widest = self.config.bottom.iter().chain(&self.config.top).max().map_or(1, |width| width * width);
        let slice = (widest / ranks / self.reducers()).clamp(1024, SLICE);
        let links = self.reduction.plan(&Slices::even(slice * ranks, ranks), Payload::F32).all_reduce().longest();
        vec![links; self.reducers()]
    }
}

/// The longest that a rank waits for another unless somebody says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(300);
