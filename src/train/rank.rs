//! One rank: its threads, its memory, its part of the model and its ends of the exchange.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::clock::Breakdown;
use super::copies::{CopyState, HotState, PlannedCopies};
use super::metrics::LossSum;
use super::profile::StepWork;
use super::ranks::Step;
use super::rates::{Rates, Updates};
use super::reduction::{self, DenseReduction, Nodes};
use super::{Clock, Setup, step};
use crate::base::{Error, RankId, Result, TableId, Unpoisoned};
use crate::collective::{Carrier, Fabric, Member, Pieces};
use crate::data::hot::Inputs;
use crate::data::{Batch, Portion, RankLoader, Waited};
use crate::exchange::{
    Gradients, Ids, LanePlan, Lanes, Layout, Minibatch, Pass, Pooled, RankContext, Route, Unpooled, message_bytes,
};
use crate::layer::{LayerTensor, Linear};
use crate::machine::team::Team;
use crate::math::{CHAIN, Parts, Share};
use crate::memory::{Arena, Buffer, Demand, Plan, Supply, check_capacity};
use crate::model::{Network, NetworkSpec, Stage, Tables, TensorSlot, Work};
use crate::sync::{Barrier, Line};

/// A rank of a job.
pub struct Rank {
    pub(super) context: RankContext,
    pub(super) network: Box<dyn Network>,
    pub(super) tables: Tables,
    pub(super) ids: Ids,
    pub(super) pooled: Pooled,
    pub(super) gradients: Gradients,
    /// Where the number of ranks changes no bit.
    pub(super) unpooled: Option<Unpooled>,
    /// Where ranks have copies of hot rows.
    pub(super) hot: Option<HotState>,
    pub(super) reduction: Box<dyn DenseReduction>,
    /// Those that every step uses; copies of hot rows and the dense reduction have their own.
    pub(super) lanes: Lanes<Box<dyn Carrier>>,
    pub(super) clock: Clock,
    /// How its slice of a minibatch is parted.
    pub(super) parts: Parts,
    /// Of how many of them own rows are pooled.
    pub(super) looked_up: usize,
    /// The minibatch of the last step, whose memory the next one takes.
    last: Minibatch,
    /// The slice that [`Rank::predict`] scored last, whose memory the next one takes; none of a rank that is alone,
    /// whose slices are the caller's minibatches.
    scored: Option<Arc<Batch>>,
    pub(super) updates: Updates,
    feeds: Vec<Feed>,
    /// All of this rank's other memory.
    pub(super) arena: Arena,
}

/// What all ranks are given when they start.
pub(super) struct Common {
    pub layout: Arc<Layout>,
    pub fabric: Box<dyn Fabric>,
    /// Which lanes the fabric has.
    pub lanes: LanePlan<()>,
    /// The memory that each rank has planned.
    pub demands: Mutex<Vec<Demand>>,
}

impl Common {
    /// Checks that the memory of all ranks fits the machine, before any of it is touched.
    fn check_memory(&self, barrier: &mut Barrier, demand: Demand) -> Result<()> {
        let demands = || self.demands.lock().unpoisoned();
        demands().push(demand);
        barrier.wait_without_deadline("plan of memory").map_err(Error::Rank)?;
        if barrier.is_first() {
            check_capacity(&demands())?;
        }
        barrier.wait_without_deadline("check of memory").map_err(Error::Rank)
    }
}

/// What a rank has in its arena, all weights 0.
struct InArena {
    network: Box<dyn Network>,
    tables: Tables,
    ids: Ids,
    pooled: Pooled,
    gradients: Gradients,
    /// Where the number of ranks changes no bit.
    nodes: Option<Nodes>,
    windows: Buffer<Line>,
}

impl InArena {
    /// That of a rank whose parts of minibatches have up to `part` samples, and which has this share of their grains.
    /// It runs twice, to measure and for good, so it changes nothing but the supply.
    fn build(
        setup: &Setup,
        fabric: &dyn Fabric,
        context: &RankContext,
        (part, share): (usize, Option<&Share>),
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let (Setup { config, schema, spec, .. }, RankContext { rank, team, layout }) = (setup, context);
        let (sharding, most, samples) = (layout.sharding(), spec.samples, context.samples(spec.samples));
        let dims: Vec<usize> = (0..sharding.tables() as u32).map(|table| sharding.dim(TableId(table))).collect();
        let of_network = NetworkSpec {
            config,
            dims: &dims,
            positions: &setup.sequences,
            samples: samples.max(1),
            part,
            threads: team.threads(),
            kept: spec.param_states(config),
        };
        let mut network = (setup.network)(&of_network, supply)?;
        if spec.clip_norm.is_some() {
            (0..network.layers()).try_for_each(|index| network.layer_mut(index).supply_squares(supply))?;
        }
        let sums = match share {
            Some(share) => share.sum.depth,
            // What is summed in several chains needs room for the sum of one beside that of those before.
            None if samples > CHAIN && spec.learns() => 2,
            None => 1,
        };
        (0..network.layers()).try_for_each(|index| network.layer_mut(index).supply_sums(sums, supply))?;
        let tables = Tables::new(config, schema, layout, *rank, team, (*spec, setup.stored.as_ref()), supply)?;
        let ids = Ids::new(context, most, supply)?;
        let pooled = Pooled::new(context, most, supply)?;
        let gradients = Gradients::new(context, most, supply)?;
        let mut nodes = None;
        if let Some(grains) = layout.grains() {
            let len = Pieces::len_of(network.gradient_sizes());
            nodes = Some(Nodes::new(grains, layout.ranks(), *rank, len, supply)?);
        }
        let windows = fabric.memory(*rank, supply)?;
        Ok(Self { network, tables, ids, pooled, gradients, nodes, windows })
    }
}

/// Where a rank's slices of such inputs come from.
struct Feed {
    inputs: Inputs,
    loader: RankLoader,
    /// The one that is trained on next; nothing after the last.
    next: Option<Portion>,
}

impl Rank {
    /// Takes its place: pins the threads, builds the arena on its nodes, and meets the others.
    pub(super) fn build(setup: &Setup, common: &Common, member: Member) -> Result<Self> {
        let Member { rank, job, mut barrier } = member;
        let (layout, fabric, place) = (&common.layout, &*common.fabric, &setup.places[rank.index()]);
        let team = Team::pinned(&place.compute, setup.spin, setup.isa)?;
        let context = RankContext { rank, team, layout: layout.clone() };
        let (team, most) = (&context.team, setup.spec.samples);
        let share = layout.grains().map(|grains| Share::new(grains, layout.ranks(), rank.index()));
        let mut parts = Parts::new(setup.spec.part, share.clone());
        let part = parts.room(context.samples(most), most);

        let build = |supply: &mut Supply<'_>| InArena::build(setup, fabric, &context, (part, share.as_ref()), supply);
        let plan = Plan::of(build)?;
        let copies = PlannedCopies::new(setup, layout, rank, team)?;
        let at_once = if setup.hot_revised { 2 } else { 1 };
        let of_copies = at_once * copies.as_ref().map_or(0, PlannedCopies::bytes);
        let bytes = (plan.bytes() + of_copies + fabric.beside(rank)) as u64;
        common.check_memory(&mut barrier, Demand { nodes: place.memory_nodes.clone(), bytes })?;

        let mut arena = Arena::build(plan, &place.memory_nodes, |memory| team.touch(memory))?;
        let InArena { mut network, mut tables, ids, pooled, gradients, nodes, windows } = arena.fill(build)?;
        let (copies, copy_memory) = copies.map(PlannedCopies::build).transpose()?.unzip();
        tables.replace_copies(copies);
        network.each_layer_mut(&mut Linear::reset_optimizer_state);
        tables.reset_optimizer_state(team);

        let mut ends = fabric.connect(&mut barrier, windows)?.into_iter();
        let mut end = || ends.next().expect("a fabric has the lanes that it was asked for");
        let LanePlan { step: lanes, hot, replicas, dense } = common.lanes.clone().map(|()| end());
        let hot = copy_memory.zip(hot).map(|(memory, lanes)| HotState::new(setup, layout, rank, memory, lanes));
        let dense = reduction::DenseLanes { reducers: dense, replicas };
        let reduction = reduction::build(setup, &job, layout, rank, &mut *network, nodes, dense)?;
        Ok(Self {
            clock: Clock::new(job, rank, setup.traced),
            unpooled: layout.grains().map(|_| Unpooled::new(&context)),
            hot,
            parts,
            looked_up: 0,
            last: Minibatch { slice: Arc::new(Batch::new(&setup.schema)), whole: 0, inputs: Inputs::Mixed },
            scored: Some(Arc::new(Batch::new(&setup.schema))),
            updates: Updates::default(),
            feeds: Vec::new(),
            reduction,
            lanes,
            ids,
            pooled,
            gradients,
            arena,
            context,
            network,
            tables,
        })
    }

    /// Puts every layer back in its place: before anything but a step is done.
    pub(super) fn complete(&mut self) -> Result<()> {
        let Self { reduction, network, clock, .. } = self;
        reduction.complete(&mut **network, clock)
    }

    pub(super) fn warnings(&self) -> &[String] {
        self.arena.warnings()
    }

    pub(super) fn initialise(&mut self, seed: u64) {
        self.overwrite_copies();
        self.network.initialise(seed);
        self.tables.initialise(&self.context.team, &self.context.layout, seed);
    }

    /// Takes its slices of minibatches of such inputs from these loaders from now on; of each whether there is a first
    /// one.
    ///
    /// An error of the data is no error of the rank.
    pub(super) fn feed(&mut self, loaders: Vec<(Inputs, RankLoader)>) -> Vec<Result<bool>> {
        let feed = |(inputs, loader)| Feed { inputs, loader, next: None };
        self.feeds = loaders.into_iter().map(feed).collect();
        (0..self.feeds.len()).map(|at| self.fetch(at)).collect()
    }

    fn fetch(&mut self, at: usize) -> Result<bool> {
        let Feed { loader, next, .. } = &mut self.feeds[at];
        *next = self.clock.time(Stage::WaitData, || loader.next_portion())?;
        Ok(next.is_some())
    }

    /// Trains on the slice of such inputs that was fetched, and fetches the next one, outside of anything for which
    /// others wait: what was trained on, and whether there is more of these inputs.
    ///
    /// # Panics
    /// When there is no slice.
    pub(super) fn advance(&mut self, inputs: Inputs, rates: Rates) -> Result<(Step<()>, Result<bool>)> {
        let at = self.feeds.iter().position(|feed| feed.inputs == inputs).expect("the ranks are fed with these inputs");
        let feed = &mut self.feeds[at];
        let mut portion = feed.next.take().expect("there is a slice, as was said");
        let (samples, position) = (portion.samples, portion.position);
        portion.take(Arc::make_mut(&mut self.last.slice));
        feed.loader.recycle(portion);
        self.context.spread_sequences(&mut self.last.slice);
        self.train_slice((samples, inputs), rates)?;
        Ok((Step { loss: (), weighted_mean: (), samples, position }, self.fetch(at)))
    }

    /// Trains on its slice of this minibatch of such inputs.
    pub(super) fn train(&mut self, (whole, inputs): (&Arc<Batch>, Inputs), rates: Rates) -> Result<()> {
        self.context.take_slice(whole, &mut self.last.slice);
        self.train_slice((whole.samples(), inputs), rates)
    }

    /// Trains on the slice that was taken, of a minibatch of `whole` samples.
    fn train_slice(&mut self, (whole, inputs): (usize, Inputs), rates: Rates) -> Result<()> {
        (self.last.whole, self.last.inputs) = (whole, inputs);
        let step_sizes = self.updates.next(rates);
        step::step(self, &self.last.clone(), step_sizes)
    }

    /// The losses of its own samples in the last step.
    pub(super) fn losses(&self) -> LossSum {
        let losses = LossSum::of(self.network.losses(self.context.samples(self.last.whole)));
        let (slice, of_labels) = (&self.last.slice, self.network.label_weights());
        if !slice.weighted && of_labels == [1.0; 2] {
            return losses;
        }
        let of_label = |label: &f32| of_labels[usize::from(*label >= 1.0)];
        let labels = slice.labels.iter().map(of_label);
        losses.weighed(labels.zip(slice.each_sample_weight()).map(|(of_label, own)| of_label * f64::from(own)))
    }

    /// The click probabilities of its slice of this minibatch.
    pub(super) fn predict(&mut self, whole: &Arc<Batch>) -> Result<Vec<f32>> {
        let mut slice = self.scored.take().unwrap_or_else(|| whole.clone());
        self.context.take_slice(whole, &mut slice);
        let probabilities = self.score(slice.clone(), whole.samples());
        self.scored = Some(slice).filter(|slice| !Arc::ptr_eq(slice, whole));
        probabilities
    }

    /// The click probabilities of its slice of a minibatch of `whole` samples.
    pub(super) fn predict_slice(&mut self, slice: &mut Arc<Batch>, whole: usize) -> Result<Vec<f32>> {
        self.context.spread_sequences(slice);
        self.score(slice.clone(), whole)
    }

    fn score(&mut self, slice: Arc<Batch>, whole: usize) -> Result<Vec<f32>> {
        // Scoring reads owners' rows while copies are merely stale; overwritten copies are refreshed first.
        let is_stale = self.hot.as_ref().is_some_and(|hot| hot.state == CopyState::Stale);
        let inputs = if is_stale { Inputs::Cold } else { Inputs::Mixed };
        let minibatch = Minibatch { slice, whole, inputs };
        // What an evaluation takes is no part of a step.
        let stopped = self.clock.stop(true);
        let result = step::evaluate(self, &minibatch);
        self.clock.stop(stopped);
        result.map(|()| self.network.probabilities(minibatch.slice.samples()).to_vec())
    }

    /// How long this rank has waited for its loaders, and bytes that were read for it.
    pub(super) fn data_use(&self) -> (Waited, u64) {
        let used = self.feeds.iter().map(|Feed { loader, .. }| (loader.waited(), loader.bytes_read()));
        used.fold(Default::default(), |(waited, read), (more, bytes)| (waited + more, read + bytes))
    }

    /// What every stage of a step like the last one has to do.
    pub(super) fn work(&self) -> StepWork {
        let (Minibatch { slice, whole, .. }, RankContext { rank: own, layout, .. }) = (&self.last, &self.context);
        let (whole, own) = (*whole, *own);
        let mut work = StepWork::new(whole);
        let samples = self.context.samples(whole);
        for stage in Stage::ALL.into_iter().filter(|stage| *stage != Stage::UpdateDense) {
            work.add(stage, self.network.work(stage, samples));
        }
        // Where each rank updates a slice, all of them together update everything once.
        let update = self.network.work(Stage::UpdateDense, samples);
        let (stage, part) = match self.reduction.is_sliced() {
            true => (Stage::ReduceDense, 1.0 / layout.ranks() as f64),
            false => (Stage::UpdateDense, 1.0),
        };
        work.add(stage, update.times(part));
        if slice.samples() == samples {
            let [look_up, update] = self.tables.work(layout, &self.ids, slice);
            work.add(Stage::LookUp, look_up);
            work.add(Stage::UpdateRows, update);
        }
        let to_others = |bytes: &dyn Fn(RankId) -> usize| {
            let others = RankId::all(layout.ranks()).filter(|to| *to != own);
            Work::NONE.sending(others.map(bytes).sum::<usize>() as f64)
        };
        let dense = self.reduction.sent().planned;
        work.add(Stage::PackIds, to_others(&|to| self.ids.bytes_to(to)));
        let sent = |pass, to| message_bytes(layout, &self.ids, whole, pass, Route::of(pass, own, to));
        work.add(Stage::LookUp, to_others(&|to| sent(Pass::Forward, to)));
        work.add(Stage::PackGradients, to_others(&|to| sent(Pass::Backward, to)));
        work.add(Stage::ReduceDense, to_others(&|to| dense.at(own, to)));
        work
    }

    /// Some rows of a tensor of the network; of a moment, only what this rank keeps, and else 0.
    pub(super) fn export_layer(&mut self, index: usize, tensor: LayerTensor, rows: &Range<usize>) -> Vec<f32> {
        let layer = self.network.layer_mut(index);
        if tensor.is_moment() && self.reduction.is_sliced() {
            reduction::clear_foreign_moments(layer, self.context.rank, self.context.layout.ranks());
        }
        let values = layer.export(tensor, rows.clone());
        match self.network.named_inputs(index).filter(|_| tensor.has_inputs()) {
            None => values,
            Some(inputs) => {
                values.chunks_exact(inputs.len()).flat_map(|row| inputs.iter().map(|&input| row[input])).collect()
            }
        }
    }

    /// Has all copies of hot rows written before they are read again. Ranks do so together: each of them is told.
    pub(super) fn overwrite_copies(&mut self) {
        self.hot.iter_mut().for_each(|hot| hot.state = CopyState::Overwritten);
    }

    /// Overwrites this rank's part of some rows of a tensor.
    pub(super) fn import(&mut self, slot: TensorSlot, rows: &Range<usize>, values: &[f32]) {
        match slot {
            TensorSlot::Table(table, tensor) => {
                self.overwrite_copies();
                self.tables.import(&self.context.layout, table, tensor, rows, values);
            }
            TensorSlot::Layer(index, tensor) => self.import_layer(index, tensor, rows, values),
            TensorSlot::RowUpdates => self.updates.rows = values[0] as u64,
            TensorSlot::LayerUpdates => self.updates.layers = values[0] as u64,
        }
    }

    fn import_layer(&mut self, index: usize, tensor: LayerTensor, rows: &Range<usize>, values: &[f32]) {
        let mut values = Cow::Borrowed(values);
        if let Some(inputs) = self.network.named_inputs(index).filter(|_| tensor.has_inputs()) {
            let mut ordered = vec![0.0; values.len()];
            for (to, from) in ordered.chunks_exact_mut(inputs.len()).zip(values.chunks_exact(inputs.len())) {
                inputs.iter().zip(from).for_each(|(&input, value)| to[input] = *value);
            }
            values = ordered.into();
        }
        self.network.layer_mut(index).import(tensor, rows.clone(), &values);
    }

    /// Where its steps have gone so far.
    pub(super) fn breakdown(&self) -> Breakdown {
        self.clock.breakdown(self.reduction.busy())
    }
}
