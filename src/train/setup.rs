//! What the ranks of a job are built from.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::base::config::{ModelConfig, Wires};
use crate::base::{Deadline, Result};
use crate::collective::plan::{Reduction, Ring, two_ring};
use crate::collective::{Fabric, GRAIN, LaneSpec, Links, Machines, Payload, Slices, World};
use crate::data::Schema;
use crate::data::hot::HotSlots;
use crate::exchange::{HotCopies, Layout, LayoutSpec, piece_of_pairs};
use crate::machine::placement::{Placement, RankPlace};
use crate::math::Grains;
use crate::memory::check_host;
use crate::model::{BuildNetwork, Graph, StoredTables, TrainSpec, check_columns, check_tables};
use crate::optim::ParamGroup;
use crate::shard::scheme::Sharding;
use crate::simd::Isa;
use crate::sync::Job;

/// Connects the ranks of a job, which are on these machines of a world, by lanes of these sizes.
pub type BuildFabric = fn(&World, &Job, &Machines, Vec<LaneSpec>) -> Result<Box<dyn Fabric>>;

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
    pub spec: TrainSpec,
    /// Where each rank stands, on its machine.
    pub places: Vec<RankPlace>,
    /// The machines.
    pub world: World,
    /// Which of the ranks are on each machine.
    pub machines: Machines,
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
    /// What rows and gradients travel in.
    pub wires: Wires,
    /// Rows of which every rank has a copy beside their owners'; nothing where there is one rank. No result depends on
    /// them.
    pub hot: Option<Arc<HotSlots>>,
    /// Whether other rows will be hot later: for a moment, ranks then have the copies before and those after it.
    pub hot_revised: bool,
    /// The longest that a rank waits for another, once all have their memory.
    pub deadline: Deadline,
    /// Whether it is kept when each stage began.
    pub traced: bool,
    /// By table, as how many rows side by side a sample's look-ups reach the network, in their order, the
    /// last one last, and 0 before where a bag has fewer; 1: pooled to one.
    pub sequences: Vec<usize>,
    /// Tables that are looked up where a checkpoint has them, as far as ranks have their rows as they lie there: of a
    /// model that only predicts.
    pub stored: Option<StoredTables>,
    /// What lies between pooled rows and the loss.
    pub network: BuildNetwork,
    /// What connects the ranks.
    pub fabric: BuildFabric,
}

impl Setup {
    /// The defaults for ranks on these places: the model's network over shared memory, dense gradients around a ring in
    /// both directions, five minutes' patience.
    #[must_use]
    pub fn new(
        config: &ModelConfig,
        schema: &Schema,
        sharding: Sharding,
        spec: TrainSpec,
        placement: &Placement,
    ) -> Self {
        Self {
            config: config.clone(),
            schema: schema.clone(),
            sharding,
            spec,
            places: placement.ranks.clone(),
            world: World::alone(),
            machines: Machines::new(&[placement.ranks.len()]),
            spin: placement.spin,
            isa: Isa::best(),
            reduction: two_ring(&Ring::of(placement.ranks.len())),
            overlap: true,
            grains: None,
            wires: Wires::default(),
            hot: None,
            hot_revised: false,
            deadline: DEADLINE,
            traced: false,
            sequences: schema.positions(config),
            stored: None,
            network: Graph::build,
            fabric: World::fabric,
        }
    }

    /// Checks that model, data, division and host go together, and rounds minibatches to what ranks make room for.
    ///
    /// # Errors
    /// When the schema's columns are not the model's, the host cannot hold what connects the ranks, or this machine's
    /// part of the tables is too large for it.
    ///
    /// # Panics
    /// When places and sharding have different numbers of ranks.
    pub(super) fn checked(mut self) -> Result<Self> {
        assert_eq!(self.places.len(), self.sharding.ranks(), "a place for each rank of the sharding");
        Self::check_host(&self.places, &self.local())?;
        self.schema.check_model(&self.config)?;
        check_columns(self.sharding.schemes(), &self.config, self.spec.optimizers[ParamGroup::Sparse])?;
        assert!(self.stored.is_none() || !self.spec.learns(), "a checkpoint's rows are not moved");
        if self.stored.is_none() {
            check_tables(&self.schema, &self.config, &self.spec, (&self.sharding, &self.local()))?;
        }
        if self.grains.is_some() {
            // Grains part no pair of samples: a minibatch of an odd number may take the place of one more.
            self.spec.samples = self.spec.samples.next_multiple_of(2);
        }
        Ok(self)
    }

    /// The ranks of this machine.
    #[must_use]
    pub fn local(&self) -> Range<usize> {
        self.machines.ranks(self.world.machine())
    }

    /// What these ranks send each other.
    pub(super) fn layout(&self) -> Layout {
        let tables = self.schema.tables.len();
        let (weighing, deep) = (self.config.weighing_tables(tables), self.config.deep_tables(tables));
        let spec = LayoutSpec {
            columns: &self.schema.tables,
            deep: Some(deep),
            sequences: &self.sequences,
            grains: self.grains,
            wire: self.wires.rows,
        };
        let precision = self.spec.precision;
        let hot = self.hot.clone().map(|slots| HotCopies { slots, precision, weighing });
        Layout::new(self.sharding.clone(), &spec).with_hot(hot)
    }

    /// Pairs of ranks, in both directions, of which one is on a machine: as many as the one with most ranks has, and
    /// the same on all.
    pub(super) fn pairs(&self) -> usize {
        let own = self.machines.widest();
        own * (2 * self.places.len() - own)
    }

    /// Checks that the host of the `local` ones among these ranks can hold what they take beside their arenas, which
    /// grows with the pairs of them, before any of it is taken.
    ///
    /// # Errors
    /// [`Error::NodeFull`](crate::base::Error::NodeFull).
    pub fn check_host(places: &[RankPlace], local: &Range<usize>) -> Result<()> {
        check_host(&format!("what connects {} ranks", places.len()), Self::connection_bytes(places, local), 0)
    }

    fn connection_bytes(places: &[RankPlace], local: &Range<usize>) -> u64 {
        /// Of each pair with a rank of this host, the windows of the three lanes that connect all: their counters, and
        /// their ends on both sides.
        const PAIR: u64 = 1536;
        /// Of each pair and lane, which every host knows, how long its messages are and where its ends would be.
        const PLACE: u64 = 128;
        /// Of each thread, the part of its stack that is used.
        const THREAD: u64 = 64 << 10;
        let (ranks, lanes) = (places.len() as u64, 7 + reducers(places) as u64);
        let own = &places[local.clone()];
        let threads: usize = own.iter().map(|place| place.compute.len() + place.comm.len()).sum();
        own.len() as u64 * ranks * PAIR + ranks * ranks * PLACE * lanes + threads as u64 * THREAD
    }

    /// Whether communication threads reduce dense gradients: on all ranks or on none.
    pub(super) fn reduces_aside(&self) -> bool {
        all_communicate(&self.places)
    }

    /// The lanes of the dense reduction: windows only where its schedule sends something.
    pub(super) fn dense_lanes(&self) -> Vec<Links> {
        /// Elements of a slice: as much as a window's piece holds.
        const SLICE: usize = 64 << 10;
        let ranks = self.places.len();
        if self.grains.is_some() {
            return vec![Links::uniform(ranks, piece_of_pairs(self.pairs()))];
        }
        if ranks == 1 || !self.spec.learns() {
            return Vec::new();
        }
        // Large layers go in pieces, small ones need less; which ranks talk does not depend on the size.
        let widest = self.config.network().into_iter().flat_map(|layer| layer.outputs).max();
        let widest = widest.map_or(1, |width| width * width);
        let slice = (widest / ranks / reducers(&self.places)).clamp(1024, SLICE);
        // No way is empty.
        let slice = slice.max(GRAIN * self.reduction.ways);
        let links = self.reduction.plan(&Slices::even(slice * ranks, ranks), Payload::F32).all_reduce().longest();
        vec![links; reducers(&self.places)]
    }
}

/// Compute threads of a rank that reduce dense gradients at most: the leader cuts each layer into pieces for each of
/// them on each rank, 30 us a layer for 56 on 16 ranks, and so few move all that links between sockets take.
pub(crate) const MOST_REDUCERS: usize = 16;

/// How many threads of each rank reduce dense gradients: its communication threads if all ranks have some, else its
/// compute threads, [`MOST_REDUCERS`] at most; the least of any rank.
fn reducers(places: &[RankPlace]) -> usize {
    let least = |threads: fn(&RankPlace) -> usize| places.iter().map(threads).min().unwrap_or(1);
    match all_communicate(places) {
        true => least(|place| place.comm.len()),
        false => least(|place| place.compute.len()).min(MOST_REDUCERS),
    }
}

/// Whether all ranks have communication threads, which reduce dense gradients then. Where some have none, compute
/// threads do so on all ranks: the two come to layers and replicated tables in different orders.
fn all_communicate(places: &[RankPlace]) -> bool {
    places.iter().all(|place| !place.comm.is_empty())
}

/// The longest that a rank waits for another unless somebody says otherwise.
pub const DEADLINE: Deadline = Deadline::fixed(Duration::from_secs(300));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::PuId;
    use crate::machine::placement::{CommCores, Wishes};
    use crate::machine::{Machine, place};

    #[test]
    fn few_of_many_compute_threads_reduce_and_all_that_are_there_for_it() {
        let wishes = Wishes { ranks: Some(2), threads: Some(1), ..Wishes::default() };
        let mut places = place(&Machine::load("host").unwrap(), &wishes).unwrap().ranks;
        let mut of = |compute: [usize; 2], comm: [usize; 2]| {
            for ((place, compute), comm) in places.iter_mut().zip(compute).zip(comm) {
                (place.compute, place.comm) = (vec![PuId(0); compute], vec![PuId(1); comm]);
            }
            reducers(&places)
        };
        assert_eq!([of([56, 56], [0, 0]), of([56, 3], [0, 0]), of([56, 56], [20, 18])], [MOST_REDUCERS, 3, 18]);
    }

    #[test]
    fn a_host_has_windows_and_threads_of_its_own_ranks_and_knows_the_places_of_all() {
        let wishes = Wishes { ranks: Some(1), threads: Some(1), comm_cores: CommCores::Count(0), ..Wishes::default() };
        let places = vec![place(&Machine::load("host").unwrap(), &wishes).unwrap().ranks.remove(0); 64];
        let [whole, eighth] = [0..64, 8..16].map(|local| Setup::connection_bytes(&places, &local));
        // Of 8 lanes.
        assert_eq!(whole - 64 * 64 * 128 * 8, 64 * 64 * 1536 + 64 * (64 << 10));
        assert_eq!(eighth - 64 * 64 * 128 * 8, 8 * 64 * 1536 + 8 * (64 << 10));
    }
}
