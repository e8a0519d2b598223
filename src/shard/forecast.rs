//! The cost of a finished division, spelled out by rank, memory and exchange.

use serde::Serialize;

use super::cost::{Model, Score, Tally};
use super::scheme::Sharding;
use super::traffic::{Exchanged, ID_BYTES, WORD_BYTES};
use crate::base::RankId;
use crate::machine::Site;

/// The one that takes longer, or else the first.
fn longer<T>(a: (T, f64), b: (T, f64)) -> (T, f64) {
    if b.1 > a.1 { b } else { a }
}

/// What people call a rank that reads what it sends and stores what it receives.
pub(super) fn copier_name(rank: RankId) -> String {
    format!("{rank}, which copies")
}

/// A rank's share of a minibatch, predicted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankCost {
    /// The rank.
    pub rank: RankId,
    /// Shards that it holds alone; replicas aside.
    pub shards: usize,
    /// Bytes of its shards' weights and state.
    pub shard_bytes: u64,
    /// Bytes of replicated tables with state and gradient, of copies of hot rows, of MLPs and of activations.
    pub dense_bytes: u64,
    /// Bytes of what it receives and sends, and of what its updates reserve.
    pub buffer_bytes: u64,
    /// Seconds of look-up.
    pub lookup_s: f64,
    /// Seconds of exchange.
    pub exchange_s: f64,
    /// Seconds in which gradients of replicated tables reach all ranks, and those of MLPs are all-reduced.
    pub allreduce_s: f64,
    /// Seconds of the update.
    pub update_s: f64,
    /// Seconds of the MLPs at the cores' peak.
    pub mlp_s: f64,
}

impl RankCost {
    /// All stages one after another.
    #[must_use]
    pub fn total_s(&self) -> f64 {
        self.lookup_s + self.exchange_s + self.allreduce_s + self.update_s + self.mlp_s
    }
}

/// One all-to-all, predicted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExchangeCost {
    /// That of an [`Exchanged`].
    pub name: &'static str,
    /// Bytes that leave their rank.
    pub bytes: u64,
    /// The most loaded wire, its bytes and its seconds; none where no message leaves its node.
    pub wire: Option<(String, u64, f64)>,
    /// The host whose cores work longest for the network, and for how many seconds; none where they have nothing to do.
    pub cores: Option<(String, f64)>,
    /// The rank that takes longest to read what it sends and to store what it receives, and its seconds; none where
    /// nothing is sent.
    pub copies: Option<(RankId, f64)>,
}

/// What takes most of the slowest rank's minibatch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// The rank.
    pub rank: RankId,
    /// What it is, and what limits that, in words.
    pub what: String,
    /// Its seconds.
    pub seconds: f64,
}

/// A division's cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cost {
    /// What planning minimises.
    pub score: Score,
    /// By rank.
    pub ranks: Vec<RankCost>,
    /// Bytes wanted of each of the site's pools.
    pub pool_bytes: Vec<u64>,
    /// The three all-to-alls.
    pub exchanges: Vec<ExchangeCost>,
    /// Bytes that a rank gives to all others for the replicated tables.
    pub allreduce_bytes: u64,
    /// What is busy longest with these, in words, and for how many seconds; none where there are none.
    pub allreduce_busiest: Option<(String, f64)>,
    /// What limits it.
    pub limit: Limit,
}

impl Model<'_> {
    /// Bytes of copies of hot rows for which every rank has room beside all else that a division wants; where they are
    /// revised, the old ones lie beside the new ones for a while.
    #[must_use]
    pub fn room_for_copies(&self, cost: &Cost, revised: bool) -> u64 {
        let pools = self.site.pools.iter().zip(&cost.pool_bytes);
        let left = pools.map(|(pool, wanted)| {
            let free = pool.free.map_or(u64::MAX, |free| free.saturating_sub(pool.reserve));
            pool.usable().min(free).saturating_sub(*wanted) / pool.ranks.len().max(1) as u64
        });
        let reserved = if self.ranks() > 1 { self.workload.reserve.copies } else { 0 };
        let room = left.min().unwrap_or(0).saturating_add(reserved);
        if revised { room / 2 } else { room }
    }

    /// Everything that is known of a division's cost, whether it fits or not.
    #[must_use]
    pub fn cost(&self, sharding: &Sharding) -> Cost {
        let tally = self.tally(sharding);
        let (wires, allreduce) = self.wires_s(&tally);
        let mut shards = vec![0; self.ranks()];
        sharding.divided().for_each(|shard| shards[shard.rank.index()] += 1);
        let rank_cost = |rank: usize| {
            let [lookup_s, exchange_s, allreduce_s, update_s, mlp_s] = self.seconds(&tally, rank, wires, allreduce);
            RankCost {
                rank: RankId(rank as u32),
                shards: shards[rank],
                shard_bytes: tally.ranks[rank].memory as u64,
                dense_bytes: self.dense(&tally, rank) as u64,
                buffer_bytes: self.buffers(&tally, rank) as u64,
                lookup_s,
                exchange_s,
                allreduce_s,
                update_s,
                mlp_s,
            }
        };
        let ranks: Vec<RankCost> = (0..self.ranks()).map(rank_cost).collect();
        let exchange = |exchange: Exchanged| {
            // What a rank sends to itself does not leave it.
            let stays = |rank: usize| {
                let (own, samples) = (&tally.ranks[rank], self.slices[rank] as f64);
                let [ids, unpooled] =
                    [own.row_ids, own.unpooled].map(|all| all as f64 * samples / self.workload.batch as f64);
                let rows = own.columns as f64 * samples * self.workload.exchange_bytes as f64;
                match exchange {
                    Exchanged::Ids => ID_BYTES as f64 * (own.streams as f64 * (samples + 1.0) + ids),
                    Exchanged::PooledRows => rows + WORD_BYTES * unpooled,
                    Exchanged::Gradients => rows,
                }
            };
            let leaves = (0..self.ranks()).map(|rank| self.exchanged(&tally, rank, exchange)[1] as f64 - stays(rank));
            let (wires, all) = (self.site.wires.len(), self.reached());
            let cores = self.busiest(&tally, exchange, wires..all);
            let cores = cores.map(|(at, seconds)| (Site::cores_name(at - wires), seconds));
            let wire = self.busiest(&tally, exchange, 0..wires).map(|(wire, seconds)| {
                let bytes = self.wire_bytes(&tally.wires[wire], exchange).round() as u64;
                (self.site.wires[wire].name.clone(), bytes, seconds)
            });
            let bytes = if self.ranks() == 1 { 0.0 } else { leaves.sum::<f64>() };
            let copies = self.slowest(|rank| self.copied_s(&tally, rank, exchange));
            ExchangeCost { name: exchange.name(), bytes: bytes.round() as u64, wire, cores, copies }
        };
        let of_lists = self.slowest(|rank| self.lists_copied_s(&tally, rank));
        let of_lists = of_lists.map(|(rank, seconds)| (copier_name(rank), seconds));
        let on_lists = self.busiest_of_lists(&tally).map(|(at, seconds)| (self.way_name(at), seconds));
        let totals = ranks.iter().map(RankCost::total_s);
        let slowest_s = totals.clone().fold(0.0, f64::max);
        Cost {
            score: Score { slowest_s, mean_s: totals.sum::<f64>() / self.ranks() as f64 },
            pool_bytes: (0..self.site.pools.len()).map(|pool| self.wanted(&tally, pool) as u64).collect(),
            exchanges: Exchanged::ALL.into_iter().map(exchange).collect(),
            allreduce_bytes: tally.replicated as u64 * WORD_BYTES as u64,
            allreduce_busiest: on_lists.into_iter().chain(of_lists).reduce(longer),
            limit: self.limit(&tally),
            ranks,
        }
    }

    /// The rank that takes longest for something, where any takes time.
    fn slowest(&self, seconds: impl Fn(usize) -> f64) -> Option<(RankId, f64)> {
        let all = (0..self.ranks()).map(|rank| (RankId(rank as u32), seconds(rank)));
        all.filter(|(_, seconds)| *seconds > 0.0).reduce(longer)
    }

    /// What people call a wire or, behind them, a host's cores that work for the network.
    fn way_name(&self, at: usize) -> String {
        let wires = self.site.wires.len();
        if at < wires { self.site.resource_name(at) } else { Site::cores_name(at - wires) }
    }

    /// What takes most of the slowest rank's minibatch.
    fn limit(&self, tally: &Tally) -> Limit {
        let (wires, lists_s) = self.wires_s(tally);
        let seconds = |rank: usize| self.seconds(tally, rank, wires, lists_s).iter().sum::<f64>();
        let slowest = self.slowest(seconds).map_or(RankId(0), |(rank, _)| rank);
        let rank = slowest.index();
        let [own, copies] = [&tally.ranks[rank], &tally.replicas].map(|load| self.local_s(load, rank));
        let on = |copied_s: f64, busiest: Option<(usize, f64)>| match busiest.filter(|(_, seconds)| *seconds > copied_s)
        {
            Some((at, seconds)) => (format!("on {}", self.way_name(at)), seconds),
            None => ("as the rank copies".to_owned(), copied_s),
        };
        let schedule = self.dense.as_ref().map_or_else(String::new, |dense| format!(" by {}", dense.reduction.name));
        let mut all = vec![
            ("look-up of its tables".to_owned(), own[0]),
            ("look-up of replicated tables".to_owned(), copies[0]),
            ("update of its tables".to_owned(), own[1]),
            ("update of replicated tables".to_owned(), copies[1]),
            (format!("all-reduce of the MLPs' gradients{schedule}"), self.dense_s()),
            ("MLPs".to_owned(), self.mlp_s(rank)),
        ];
        for exchange in Exchanged::ALL.into_iter().take(self.exchanges()) {
            let busiest = self.busiest(tally, exchange, 0..self.reached());
            let (by, seconds) = on(self.copied_s(tally, rank, exchange), busiest);
            all.push((format!("exchange of {} {by}", exchange.name()), seconds));
        }
        let (by, seconds) = on(self.lists_copied_s(tally, rank), self.busiest_of_lists(tally));
        all.push((format!("gradients of replicated tables {by}"), seconds));
        let (what, seconds) = all.into_iter().reduce(longer).expect("a rank has work");
        Limit { rank: slowest, what, seconds }
    }
}
