//! Those who exchange what every rank has a copy of, and the threads that do it while others compute.
//!
//! A rank's hands are its compute threads after the backward pass, or communication threads beside it (SC20, Section
//! IV-A). [`Hands`] are the same in both cases: a lane a thread, and what each does for each layer. A [`Courier`] is a
//! team of communication threads with its hands: layers are given away when their gradients are there, and come home
//! moved. They are given by value, so nobody can touch a layer that is away. Weights and bits do not depend on who
//! exchanges them, how many, and when.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};

use crate::base::{Error, Place, PuId, RankId, Result};
use crate::collective::plan::Reduction;
use crate::collective::{Lane, Links};
use crate::exchange::{Dense, LayerExchange, Pieces, Share, shares};
use crate::layer::Linear;
use crate::machine::team::Team;
use crate::memory::Buffer;
use crate::model::Sharded;
use crate::simd::Isa;
use crate::sync::{Each, Job, Waiting};

/// What is exchanged at a time. Layers travel by value: a box would be an allocation a layer and step.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Cargo {
    /// A layer with its number.
    Layer(usize, Linear),
    /// The gradients of all replicated tables.
    Sums(Vec<Buffer<f32>>),
}

/// A lane a thread.
pub(super) struct Hands {
    hands: Vec<Hand>,
    sums: Dense,
    ranks: usize,
}

struct Hand {
    lane: Lane,
    layers: Vec<LayerExchange>,
}

/// What one hand has to do for a layer.
struct Errand<'a> {
    hand: &'a mut Hand,
    share: Share<'a>,
    outcome: Result<()>,
}

impl Hands {
    /// A hand for each lane, for the layers and replicated tables of a model.
    pub(super) fn new(lanes: Vec<Lane>, ranks: usize, model: &mut Sharded, reduction: Reduction, isa: Isa) -> Self {
        let threads = lanes.len();
        let mut hands: Vec<Hand> = lanes.into_iter().map(|lane| Hand { lane, layers: Vec::new() }).collect();
        for layer in model.dense_mut().layers_mut() {
            for (hand, share) in hands.iter_mut().zip(shares(layer, ranks, threads)) {
                hand.layers.push(LayerExchange::new(share, &hand.lane, reduction));
            }
        }
        let len = Pieces::new(model.sums_mut().map(|sums| &mut sums[..]), isa).len();
        Self { sums: Dense::new(&hands[0].lane, len, reduction), hands, ranks }
    }

    /// Bytes from each rank to each other in a step, as planned.
    pub(super) fn traffic(&self) -> Links {
        let layers = self.hands.iter().flat_map(|hand| &hand.layers);
        layers.fold(self.sums.traffic().clone(), |sum, layer| sum.plus(layer.traffic()))
    }

    /// Bytes that this rank has sent to each so far.
    pub(super) fn sent(&self) -> Vec<usize> {
        use crate::collective::Carrier;
        let each = |to: usize| self.hands.iter().map(|hand| hand.lane.sent()[to]).sum();
        (0..self.ranks).map(each).collect()
    }

    /// Exchanges a layer's gradients and moves it.
    fn layer(&mut self, team: &Team, index: usize, layer: &mut Linear, rate: f32) -> Result<()> {
        let (isa, threads) = (team.isa(), self.hands.len());
        let errand = |(hand, share)| Errand { hand, share, outcome: Ok(()) };
        let mut errands: Vec<_> = self.hands.iter_mut().zip(shares(layer, self.ranks, threads)).map(errand).collect();
        let run = |errand: &mut Errand<'_>| {
            let Hand { lane, layers } = &mut *errand.hand;
            errand.outcome = layers[index].run(lane, std::mem::take(&mut errand.share), isa, rate);
        };
        match &mut errands[..] {
            [only] => run(only),
            many => team.each(Each::new(many), run),
        }
        errands.into_iter().try_for_each(|errand| errand.outcome)
    }

    /// Sums the gradients of replicated tables over all ranks.
    fn sums<'a>(&mut self, isa: Isa, sums: impl Iterator<Item = &'a mut Buffer<f32>>) -> Result<()> {
        self.sums.sum(&mut self.hands[0].lane, Pieces::new(sums.map(|sums| &mut sums[..]), isa))
    }

    fn carry(&mut self, team: &Team, cargo: &mut Cargo, rate: f32) -> Result<()> {
        match cargo {
            Cargo::Layer(index, layer) => self.layer(team, *index, layer, rate),
            Cargo::Sums(sums) => self.sums(team.isa(), sums.iter_mut()),
        }
    }
}

/// Threads that exchange while others compute.
pub(super) struct Courier {
    /// `None` when it is asked to end.
    orders: Option<Sender<(Cargo, f32)>>,
    returns: Receiver<Delivery>,
    /// What was given and has not come home.
    away: usize,
    life: Option<JoinHandle<()>>,
    /// So far, waiting for other ranks included.
    busy: Duration,
    sent: Vec<usize>,
}

/// What comes home, and what it took.
struct Delivery {
    cargo: Cargo,
    busy: Duration,
    sent: Vec<usize>,
}

/// Where a courier's threads stand.
#[derive(Debug, Clone)]
pub(super) struct Post {
    pub(super) rank: RankId,
    pub(super) pus: Vec<PuId>,
    pub(super) spin: bool,
    pub(super) isa: Isa,
}

impl Courier {
    /// Starts the threads; `loads` is how much may be away at once.
    fn start(post: Post, mut hands: Hands, job: &Job, loads: usize) -> Result<Self> {
        let (orders, inbox) = bounded::<(Cargo, f32)>(loads);
        let (outbox, returns) = bounded(loads);
        let (job, sent) = (job.clone(), hands.sent());
        let name = format!("octorec-comm-{}", post.rank.0);
        let life = move || {
            // Its error is the job's, which all others meet.
            let _ = job.guard(post.rank, || {
                let team = Team::pinned(&post.pus, post.spin, post.isa)?;
                for (mut cargo, rate) in &inbox {
                    let began = Instant::now();
                    hands.carry(&team, &mut cargo, rate)?;
                    // The rank has ended if it does not take it.
                    let _ = outbox.send(Delivery { cargo, busy: began.elapsed(), sent: hands.sent() });
                }
                Ok(())
            });
        };
        let life = std::thread::Builder::new().name(name).spawn(life);
        let life = life.map_err(|source| Error::Threads { wanted: 1, source })?;
        let orders = Some(orders);
        Ok(Self { orders, returns, away: 0, life: Some(life), busy: Duration::ZERO, sent })
    }

    fn give(&mut self, cargo: Cargo, rate: f32) {
        self.away += 1;
        // If it has ended, the job is in trouble, and whoever waits for the cargo is told.
        let _ = self.orders.as_ref().expect("it was not asked to end").send((cargo, rate));
    }

    /// Waits for what was given first of all that is away.
    fn take(&mut self, job: &Job, rank: RankId) -> Result<Cargo> {
        let mut waiting = Waiting::default();
        loop {
            match self.returns.try_recv() {
                Ok(Delivery { cargo, busy, sent }) => {
                    self.away -= 1;
                    self.busy += busy;
                    self.sent = sent;
                    return Ok(cargo);
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                    let place = Place { rank, stage: "wait for communication threads", sequence: 0 };
                    waiting.turn(job, place, rank).map_err(Error::Rank)?;
                }
            }
        }
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.orders = None;
        // While something is away it may wait for ranks that wait for this one, until the job is poisoned, which happens
        // only after a rank that fails is dropped. Then it ends by itself.
        if let Some(life) = self.life.take().filter(|_| self.away == 0) {
            // It guards itself.
            let _ = life.join();
        }
    }
}

/// Who exchanges, and when.
pub(super) struct Shipping {
    way: Way,
    rank: RankId,
    job: Job,
    /// Whether layers leave as soon as their gradients are there.
    overlap: bool,
    /// What is ready and has not left, in order; `None`: the replicated tables.
    ready: Vec<Option<usize>>,
    /// Whether the sums of replicated tables are away.
    sums_away: bool,
    /// The time that the rank's own threads lost.
    exposed: Duration,
    planned: Links,
}

enum Way {
    Own(Hands),
    Courier(Courier),
}

impl Shipping {
    /// The compute threads do it, after the backward pass.
    pub(super) fn own(rank: RankId, job: &Job, hands: Hands) -> Self {
        let planned = hands.traffic();
        Self::new(Way::Own(hands), rank, job, false, planned)
    }

    /// Communication threads do it, behind the backward pass with `overlap`, else after it.
    pub(super) fn courier(post: Post, job: &Job, hands: Hands, overlap: bool) -> Result<Self> {
        let (rank, planned) = (post.rank, hands.traffic());
        let loads = hands.hands[0].layers.len() + 1;
        Ok(Self::new(Way::Courier(Courier::start(post, hands, job, loads)?), rank, job, overlap, planned))
    }

    fn new(way: Way, rank: RankId, job: &Job, overlap: bool, planned: Links) -> Self {
        Self {
            way,
            rank,
            job: job.clone(),
            overlap,
            ready: Vec::new(),
            sums_away: false,
            exposed: Duration::ZERO,
            planned,
        }
    }

    /// The gradients of a layer are there.
    pub(super) fn layer(&mut self, index: usize, layer: &mut Linear, rate: f32) {
        match &mut self.way {
            Way::Courier(courier) if self.overlap => {
                courier.give(Cargo::Layer(index, std::mem::replace(layer, Linear::hollow())), rate);
            }
            _ => self.ready.push(Some(index)),
        }
    }

    /// The gradients of the replicated tables are there.
    pub(super) fn sums(&mut self, model: &mut Sharded, rate: f32) {
        if model.sums_mut().next().is_none() {
            return;
        }
        match &mut self.way {
            Way::Courier(courier) if self.overlap => {
                courier.give(sums_of(model), rate);
                self.sums_away = true;
            }
            _ => self.ready.push(None),
        }
    }

    /// All gradients are there: what has not left is exchanged now; returns when the replicated tables' sums are home.
    pub(super) fn finish(&mut self, team: &Team, model: &mut Sharded, rate: f32) -> Result<()> {
        let began = Instant::now();
        for ready in std::mem::take(&mut self.ready) {
            match (&mut self.way, ready) {
                (Way::Own(hands), Some(index)) => hands.layer(team, index, model.dense_mut().layer_mut(index), rate)?,
                (Way::Own(hands), None) => hands.sums(team.isa(), model.sums_mut())?,
                (Way::Courier(courier), Some(index)) => {
                    let layer = std::mem::replace(model.dense_mut().layer_mut(index), Linear::hollow());
                    courier.give(Cargo::Layer(index, layer), rate);
                }
                (Way::Courier(courier), None) => courier.give(sums_of(model), rate),
            }
        }
        if let Way::Courier(courier) = &mut self.way {
            while courier.away > 0 && (self.sums_away || !self.overlap) {
                if unload(courier.take(&self.job, self.rank)?, model) {
                    self.sums_away = false;
                }
            }
        }
        self.exposed += began.elapsed();
        Ok(())
    }

    /// Returns when all layers are home.
    pub(super) fn home(&mut self, model: &mut Sharded) -> Result<()> {
        let Way::Courier(courier) = &mut self.way else { return Ok(()) };
        let began = Instant::now();
        while courier.away > 0 {
            unload(courier.take(&self.job, self.rank)?, model);
        }
        self.exposed += began.elapsed();
        Ok(())
    }

    /// The time that the rank's compute threads have lost with it so far, and the time it took.
    pub(super) fn times(&self) -> (Duration, Duration) {
        match &self.way {
            Way::Own(_) => (self.exposed, self.exposed),
            Way::Courier(courier) => (self.exposed, courier.busy),
        }
    }

    /// Bytes from each rank to each other in a step, as planned.
    pub(super) const fn planned(&self) -> &Links {
        &self.planned
    }

    /// Bytes that this rank has sent to each so far; nothing is away.
    pub(super) fn sent(&self) -> Vec<usize> {
        match &self.way {
            Way::Own(hands) => hands.sent(),
            Way::Courier(courier) => courier.sent.clone(),
        }
    }
}

fn sums_of(model: &mut Sharded) -> Cargo {
    Cargo::Sums(model.sums_mut().map(std::mem::take).collect())
}

/// Puts what came home in its place; whether it was the replicated tables' sums.
fn unload(cargo: Cargo, model: &mut Sharded) -> bool {
    match cargo {
        Cargo::Layer(index, layer) => {
            *model.dense_mut().layer_mut(index) = layer;
            false
        }
        Cargo::Sums(sums) => {
            model.sums_mut().zip(sums).for_each(|(place, sums)| *place = sums);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use crate::base::RankId;
    use crate::base::config::ModelConfig;
    use crate::data::{Column, Schema};
    use crate::machine::placement::{CommCores, Wishes};
    use crate::machine::{Machine, place};
    use crate::model::Room;
    use crate::shard::scheme::{Scheme, Sharding};
    use crate::train::ranks::{Ranks, Setup};

    #[test]
    fn a_rank_that_fails_while_a_layer_is_away_is_told_at_once_and_by_its_own_message() {
        let config = ModelConfig {
            bottom: vec![3, 64, 4],
            top: vec![64, 1],
            dim: 4,
            rows: vec![10, 20],
            ..ModelConfig::default()
        };
        let tables = [10, 20].map(|rows| Column::new(format!("of {rows}"), rows)).to_vec();
        let schema = Schema { dense: 3, tables };
        let wishes = Wishes { ranks: Some(2), threads: Some(1), comm_cores: CommCores::Count(0), ..Wishes::default() };
        let placement = place(&Machine::load("host").unwrap(), &wishes).unwrap();
        let schemes = vec![Scheme::Table(RankId(0)), Scheme::Table(RankId(1))];
        let sharding = Sharding::new(&[10, 20], 4, 2, schemes).unwrap();
        let mut setup = Setup::new(&config, &schema, sharding, Room::samples(8), &placement);
        setup.spin = false;
        setup.places.iter_mut().for_each(|place| place.comm = place.compute.clone());
        let ranks = Ranks::start(setup.clone()).unwrap();
        let began = Instant::now();
        let error = ranks
            .all(|rank| {
                if rank.number == RankId(0) {
                    // The other rank never gives its own, so this one stays away.
                    rank.shipping.layer(0, rank.model.dense_mut().layer_mut(0), 0.1);
                    panic!("row 7 is bad");
                }
                rank.meet()
            })
            .unwrap_err();
        assert!(error.to_string().contains("row 7 is bad"), "{error}");
        // No bound on speed: without care the message would be another, after this.
        assert!(began.elapsed() < setup.deadline);
    }
}
