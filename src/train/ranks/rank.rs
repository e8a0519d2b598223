//! One rank: its threads, its memory, its part of the model and its ends of the exchange.

use std::sync::Arc;

use super::hands::{Hands, Post, Shipping};
use super::times::{Breakdown, Stage, Times};
use super::{Setup, Step, step};
use crate::base::{Error, Place, RankId, Result, TableId};
use crate::collective::{Lane, Lobby, Member};
use crate::data::{Batch, Portion, RankLoader, Waited};
use crate::exchange::{Gradients, Ids, Layout, Ordered, Pooled};
use crate::machine::team::Team;
use crate::memory::{Arena, Pages, Plan, Supply};
use crate::model::{Parameter, Sharded};
use crate::shard::scheme::Shard;
use crate::sync::{Gate, Job};

/// A rank of a job.
pub struct Rank {
    pub(super) number: RankId,
    pub(super) job: Job,
    pub(super) layout: Arc<Layout>,
    pub(super) team: Team,
    pub(super) model: Sharded,
    pub(super) ids: Ids,
    pub(super) pooled: Pooled,
    pub(super) gradients: Gradients,
    pub(super) shipping: Shipping,
    /// What keeps the bits the same for any number of ranks, with its lane.
    pub(super) ordered: Option<(Ordered, Lane)>,
    /// Of ids, pooled rows and gradients.
    pub(super) lanes: [Lane; 3],
    pub(super) times: Times,
    /// This rank's slice of the minibatch.
    pub(super) batch: Batch,
    pub(super) steps: u64,
    feed: Option<Feed>,
    /// All of this rank's memory, and what lies where in it.
    pub(super) arena: Arena,
    pub(super) plan: Plan,
    gate: Gate,
    warnings: Vec<String>,
}

/// Where a rank's slices come from.
struct Feed {
    loader: RankLoader,
    /// The one that is trained on next; nothing after the last.
    next: Option<Portion>,
}

impl Rank {
    /// Takes its place: pins the threads, builds the arena on its nodes, and meets the others.
    pub(super) fn build(setup: &Setup, layout: Arc<Layout>, lobby: &Lobby, member: Member) -> Result<Self> {
        let Member { rank, job, mut gate } = member;
        let place = &setup.places[rank.index()];
        let team = Team::pinned(&place.compute, setup.spin, setup.isa)?;
        let mut plan = Plan::new();
        let supply = &mut Supply::Arena(&mut plan);
        let mut model = Sharded::new(&setup.config, &setup.schema, &layout, rank, &team, setup.room, supply)?;
        let mut pooled = Pooled::new(&layout, rank, setup.room.samples, supply)?;
        let mut gradients = Gradients::new(&layout, rank, setup.room.samples, supply)?;
        let sizes = model.dense().gradient_sizes();
        let mut ordered = Ordered::new(&layout, rank, &team, sizes, supply)?;
        let mut windows = lobby.memory(rank, supply)?;
        let mut arena = Arena::build(&plan, &place.memory_nodes, Pages::Transparent, |memory| team.touch(memory))?;
        model.settle(&mut arena);
        pooled.settle(&mut arena);
        gradients.settle(&mut arena);
        windows.settle(&mut arena);
        if let Some(ordered) = &mut ordered {
            ordered.settle(&mut arena);
        }
        let mut lanes = lobby.enter(&mut gate, windows)?;
        let ordered = ordered.map(|ordered| (ordered, lanes.pop().expect("the last lane is theirs")));
        let hands = lanes.split_off(3);
        let Ok(lanes) = <[Lane; 3]>::try_from(lanes) else { unreachable!("the exchange has three lanes and hands") };
        let hands = Hands::new(hands, layout.ranks(), &mut model, setup.reduction, setup.isa);
        let shipping = if place.comm.is_empty() {
            Shipping::own(rank, &job, hands)
        } else {
            let post = Post { rank, pus: place.comm.clone(), spin: setup.spin, isa: setup.isa };
            Shipping::courier(post, &job, hands, setup.overlap)?
        };
        Ok(Self {
            number: rank,
            ids: Ids::new(&layout, rank, &team),
            shipping,
            times: Times::default(),
            batch: Batch::new(&setup.schema),
            warnings: arena.warnings().to_vec(),
            steps: 0,
            feed: None,
            arena,
            plan,
            job,
            layout,
            team,
            model,
            pooled,
            gradients,
            ordered,
            lanes,
            gate,
        })
    }

    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(super) fn initialise(&mut self, seed: u64) -> Result<()> {
        self.home()?;
        self.model.initialise(&self.team, &self.layout, seed);
        Ok(())
    }

    /// Takes its slices from this loader from now on, or from none; whether there is a first one.
    ///
    /// An error of the data is no error of the rank.
    pub(super) fn feed(&mut self, loader: Option<RankLoader>) -> Result<bool> {
        self.feed = loader.map(|loader| Feed { loader, next: None });
        if self.feed.is_some() { self.fetch() } else { Ok(false) }
    }

    fn fetch(&mut self) -> Result<bool> {
        let Some(Feed { loader, next }) = &mut self.feed else { return Ok(false) };
        *next = self.times.time(Stage::WaitData, || loader.next_portion())?;
        Ok(next.is_some())
    }

    /// Trains on the slice that was fetched, and fetches the next one, outside of anything for which others wait: what
    /// was trained on, and whether there is more.
    ///
    /// # Panics
    /// When there is no slice.
    pub(super) fn advance(&mut self, rate: f32) -> Result<(Step<Vec<f64>>, Result<bool>)> {
        let feed = self.feed.as_mut().expect("the ranks are fed");
        let mut portion = feed.next.take().expect("there is a slice, as was said");
        let (samples, position) = (portion.samples, portion.position);
        self.times.time(Stage::PackIds, || portion.take(&mut self.batch));
        feed.loader.recycle(portion);
        let losses = step::step(self, samples, rate)?;
        Ok((Step { loss: losses, samples, position }, self.fetch()))
    }

    /// How long this rank has waited for its loader, and bytes that were read for it.
    pub(super) fn data_use(&self) -> (Waited, u64) {
        let used = |Feed { loader, .. }: &Feed| (loader.waited(), loader.bytes_read());
        self.feed.as_ref().map(used).unwrap_or_default()
    }

    /// Takes this rank's slice of a minibatch.
    fn take_slice(&mut self, whole: &Batch) {
        let (slice, batch) = (self.layout.slice(whole.samples(), self.number), &mut self.batch);
        self.times.time(Stage::PackIds, || {
            batch.clear();
            batch.append_range(whole, slice);
        });
    }

    /// Notes what this rank does now, for messages about it.
    pub(super) fn enter(&self, stage: &'static str) {
        self.job.enter(Place { rank: self.number, stage, sequence: self.steps });
    }

    pub(super) fn step(&mut self, whole: &Batch, rate: f32) -> Result<Vec<f64>> {
        self.take_slice(whole);
        step::step(self, whole.samples(), rate)
    }

    pub(super) fn predict(&mut self, whole: &Batch) -> Result<Vec<f32>> {
        // What an evaluation takes is no part of a step.
        let times = self.times.clone();
        self.take_slice(whole);
        step::forward(self, whole.samples())?;
        self.times = times;
        Ok(self.model.dense().probabilities(self.batch.samples()).to_vec())
    }

    /// This rank's part of a table; of a replicated one, the first rank's copy stands for all.
    pub(super) fn export_table(&self, table: TableId) -> Vec<(Shard, Vec<f32>)> {
        self.model.export_table(&self.layout, table)
    }

    pub(super) fn dense_parameters(&mut self) -> Result<Vec<Parameter>> {
        self.home()?;
        Ok(self.model.dense().parameters())
    }

    pub(super) fn export_dense(&mut self, parameter: &Parameter) -> Result<Vec<f32>> {
        self.home()?;
        Ok(if self.number == RankId(0) { self.model.dense().export(parameter).into_owned() } else { Vec::new() })
    }

    pub(super) fn import(&mut self, parameter: &Parameter, values: &[f32]) -> Result<()> {
        self.home()?;
        match parameter.table() {
            Some(table) => self.model.import_table(&self.layout, TableId(table as u32), values),
            None => self.model.dense_mut().import(parameter, values),
        }
        Ok(())
    }

    /// Waits until no part of the model is away with communication threads.
    pub(super) fn home(&mut self) -> Result<()> {
        self.shipping.home(&mut self.model)
    }

    /// Where its steps have gone so far.
    pub(super) fn breakdown(&mut self) -> Result<Breakdown> {
        self.home()?;
        let (exposed, busy) = self.shipping.times();
        Ok(self.times.breakdown(self.number.0, exposed, busy))
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// [`Error::Rank`] when the job is in trouble.
    pub fn meet(&mut self) -> Result<()> {
        self.gate.pass("meeting").map_err(Error::Rank)
    }
}
