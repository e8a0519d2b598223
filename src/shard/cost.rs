//! What a division of tables costs on a machine: seconds of each rank a minibatch, and bytes of each memory.
//!
//! A minibatch of N samples on R ranks; rank r has N_r of them ([`Workload::slices`]), nearly N / R, or where the
//! number of ranks shall change no bit as many as whole grains have, which may be far from that. All quantities are
//! whole bytes until the last division, so sums do not depend on the order in which tables are added. Per rank:
//!
//! * look-up: rows that the minibatch names, each once from memory in whole cache lines, further times from cache
//!   ([`CACHE_GAIN`] as fast), over the bandwidth of random rows; ids read, pooled sums written, over that of streams.
//! * exchange: ids, pooled sums (S x N x E elements, SC20 equation 2) and their gradients, one all-to-all each. It ends
//!   when its most loaded wire has carried its bytes along the machine's routes, when the cores of the busiest host
//!   have done what the network takes of them meanwhile ([`Site::core_s`]), or when the rank has read what it sends and
//!   stored what it receives (past the caches), whichever is latest, and then the latency of the way from its farthest
//!   peer. Nothing is taken as hidden behind computation.
//! * all-reduce: of replicated tables, each rank's list of the rows that its samples name, with their summed gradients,
//!   brought to every other around a ring of ranks in the order of their numbers, as the exchange does it; of the MLPs'
//!   gradients, layer by layer, the schedule that they take, as [`priced`]. Where the number of ranks shall change no
//!   bit, a list has each sample's gradient and look-ups as they are, and of rows that are divided those travel
//!   unpooled, too, of which a bag has several in one part (`exchange/unpooled`).
//! * update: pooled gradients read, each named row (and its optimizer state) read and written once; of replicated
//!   tables each rank sums its samples' gradients by row, and moves the rows that any rank names (SC20 III-A).
//! * MLPs: operations of the rank's samples over the peak of its cores, in f32 or bfloat16; the same for every
//!   division, but not on all ranks of a machine whose nodes differ.
//!
//! A rank's windows are double; room is kept for the longest bags, and for an evaluation's minibatches if they are
//! larger.

use std::ops::Range;

use serde::Serialize;

use super::scheme::{Rows, Sharding};
use super::skew::Skew;
use super::traffic::{Exchanged, ID_BYTES, WORD_BYTES, brings_ids};
use super::ways::Ways;
use super::workload::{Load, TableLoad, Workload};
use crate::base::{RankId, TableId};
use crate::collective::{Priced, candidates, priced};
use crate::machine::Site;
use crate::sync::Line;

/// How much faster a row is read that this minibatch has read before: a last-level cache against memory, an estimate.
pub const CACHE_GAIN: f64 = 4.0;

/// What a wire carries, in units that are exact: see [`Model::add`]. Of a host, what its cores work on for the network:
/// the same, each byte times what it takes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct WireLoad {
    /// Elements of pooled sums.
    pooled: i64,
    /// Elements of their gradients.
    gradients: i64,
    /// Offsets.
    offsets: i64,
    /// Row numbers and weights, times N.
    row_ids: i64,
    /// Elements of rows that travel as they are, times N.
    unpooled: i64,
}

/// What a division adds up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Each rank's parts.
    pub ranks: Vec<Load>,
    /// All ranks' parts together.
    pub all: Load,
    /// What replicated tables add to every rank.
    pub replicas: Load,
    /// Words of a rank's list for the replicated tables.
    pub replicated: i64,
    /// Of each wire, then of each host.
    pub(super) wires: Vec<WireLoad>,
}

/// How good a division is: lower is better.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
pub struct Score {
    /// Seconds of the slowest rank.
    pub slowest_s: f64,
    /// Mean seconds of all ranks.
    pub mean_s: f64,
}

/// Seconds of each exchange, as [`Exchanged::ALL`] has them.
type ExchangesS = [f64; Exchanged::ALL.len()];

/// The cost model of one workload on one site.
#[derive(Debug, Clone)]
pub struct Model<'a> {
    /// What is trained.
    pub workload: &'a Workload,
    /// Where.
    pub site: &'a Site,
    skews: Vec<Skew>,
    /// Different rows of each table that a minibatch is expected to name.
    uniques: Vec<f64>,
    /// Words of a rank's list for each table, if it is replicated.
    lists: Vec<f64>,
    /// N_r of each rank.
    pub(super) slices: Vec<i64>,
    /// Samples of the longest one.
    longest: i64,
    /// Samples of the largest minibatch, an evaluation's included, and of each rank's slice of it.
    pub(super) room: usize,
    pub(super) room_slices: Vec<usize>,
    ways: Ways,
    /// Seconds of each rank's MLPs.
    mlp_s: Vec<f64>,
    /// How gradients of layers are reduced, and what that takes; nothing with one rank, or where the schedule that was
    /// named is not to be had.
    pub dense: Option<Priced>,
}

/// `bytes` in whole cache lines.
fn lines(bytes: usize) -> f64 {
    bytes.next_multiple_of(Line::BYTES) as f64
}

impl<'a> Model<'a> {
    /// Prepares skews and routes.
    #[must_use]
    pub fn new(workload: &'a Workload, site: &'a Site) -> Self {
        let ranks = site.ranks.len();
        let slices: Vec<i64> = workload.slices(workload.batch, ranks).into_iter().map(|slice| slice as i64).collect();
        let longest = slices.iter().copied().max().unwrap_or(0);
        // Ranks round the largest minibatch up to whole grains.
        let room = workload.batch.max(workload.reserve.samples);
        let room = if workload.grains.is_some() { room.next_multiple_of(2) } else { room };
        let room_slices = workload.slices(room, ranks);
        let skews: Vec<Skew> = workload.tables.iter().map(|table| Skew::new(table.rows, table.skew)).collect();
        let unique = |(skew, table): (&Skew, &TableLoad)| {
            skew.unique(&Rows::all(table.rows), workload.batch as f64 * table.lookups)
        };
        let uniques = skews.iter().zip(&workload.tables).map(unique).collect();
        // Of each row that the longest slice's samples name the sum, an offset and the number.
        let list = |(skew, table): (&Skew, &TableLoad)| {
            if !workload.learns {
                return 0.0;
            }
            let draws = longest as f64 * table.lookups;
            if workload.grains.is_some() {
                let bags = (longest as usize * table.positions) as f64;
                return bags * (table.dim + 1) as f64 + draws * table.words() as f64 + 2.0;
            }
            skew.unique(&Rows::all(table.rows), draws).min(draws) * (table.dim + 2) as f64 + 2.0
        };
        let lists = skews.iter().zip(&workload.tables).map(list).collect();
        let mlp_s = site.ranks.iter().zip(&slices).map(|(standing, samples)| {
            *samples as f64 * workload.sample_operations as f64 / (standing.peak_gflop_s(workload.bf16) * 1e9)
        });
        let mlp_s = mlp_s.collect();
        let reduces = ranks > 1 && workload.learns;
        let candidates = if reduces { candidates(workload.collective, site) } else { Vec::new() };
        let dense = priced(candidates, &workload.layers, workload.payload, site).into_iter().next();
        let ways = Ways::new(site, &slices);
        Self { workload, site, skews, uniques, lists, slices, longest, room, room_slices, ways, mlp_s, dense }
    }

    /// Seconds in which the gradients of all layers are reduced and the weights come back.
    pub(super) fn dense_s(&self) -> f64 {
        self.dense.as_ref().map_or(0.0, |dense| dense.seconds)
    }

    /// Seconds of a rank's MLPs.
    pub(super) fn mlp_s(&self, rank: usize) -> f64 {
        self.mlp_s[rank]
    }

    /// Samples of a rank's slice of the minibatch.
    #[must_use]
    pub fn samples(&self, rank: RankId) -> usize {
        self.slices[rank.index()] as usize
    }

    /// How many ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.slices.len()
    }

    /// Look-ups of a minibatch that name one of these rows.
    #[must_use]
    pub fn draws(&self, table: TableId, rows: &Rows) -> f64 {
        let all = self.workload.batch as f64 * self.workload.tables[table.index()].lookups;
        all * self.skews[table.index()].share(rows)
    }

    /// Different ones of these rows that a minibatch's look-ups name.
    pub(super) fn unique(&self, table: TableId, rows: &Rows) -> f64 {
        let TableLoad { rows: all, lookups, .. } = self.workload.tables[table.index()];
        // Whole tables and rows that are dealt in turn, of which all parts are alike, need no sum of their own.
        match rows.step == 1 && rows.count < all {
            true => self.skews[table.index()].unique(rows, self.workload.batch as f64 * lookups),
            false => self.uniques[table.index()] * rows.count as f64 / all as f64,
        }
    }

    /// What a part of a table adds to its rank; without ids where another part brings them.
    #[must_use]
    pub fn load(&self, table: TableId, rows: &Rows, width: usize, with_ids: bool) -> Load {
        let work = self.workload;
        let draws = self.draws(table, rows);
        let load = &work.tables[table.index()];
        let unique = self.unique(table, rows).min(draws);
        let (row, moved) = self.row_bytes(load, width);
        let again = draws - unique;
        let width_of_all = width * load.positions;
        let sums = (work.batch * width_of_all * work.exchange_bytes) as f64;
        let ids = draws * load.lookup_bytes();
        let updated = if work.learns { 1.0 } else { 0.0 };
        // What lies in a checkpoint as the rank needs it is mapped.
        let mapped = load.stored && width == load.dim && (rows.step == 1 || rows.count <= 1);
        let row_bytes = if mapped { 0 } else { width * (work.weight_bytes + load.state_bytes) };
        Load {
            lookup_rows: (unique * row + again * row / CACHE_GAIN).round() as i64,
            lookup_stream: (ids + sums).round() as i64,
            update_rows: (updated * (unique * moved + again * moved / CACHE_GAIN)).round() as i64,
            update_stream: (updated * (sums + ids)).round() as i64,
            memory: rows.count as i64 * (row_bytes + load.row_state_bytes) as i64,
            columns: width_of_all as i64,
            streams: if with_ids { load.positions as i64 } else { 0 },
            row_ids: if with_ids { draws.round() as i64 * load.words() as i64 } else { 0 },
            unpooled: (self.unpooled(table, rows) * width as f64).round() as i64,
            ids_room: if with_ids { self.most_lookups(load, rows) * load.words() as i64 } else { 0 },
            update_room: self.update_room(load, rows, width),
        }
    }

    /// Look-ups of a minibatch whose rows travel as they are, since their bag has others in this part of a divided
    /// table.
    fn unpooled(&self, table: TableId, rows: &Rows) -> f64 {
        let load = &self.workload.tables[table.index()];
        let whole = rows.count == load.rows;
        if self.workload.grains.is_none() || whole || load.positions > 1 {
            return 0.0;
        }
        let alone = libm::pow(1.0 - self.skews[table.index()].share(rows), (load.lookups - 1.0).max(0.0));
        self.draws(table, rows) * (1.0 - alone)
    }

    /// Bytes that a look-up reads of so many columns of a table's row, and that its update reads and writes.
    pub(super) fn row_bytes(&self, table: &TableLoad, width: usize) -> (f64, f64) {
        let row = lines(width * self.workload.weight_bytes);
        let moved = row + lines(width * table.state_bytes) + lines(table.row_state_bytes);
        (row + lines(table.row_weight_bytes), 2.0 * moved)
    }

    /// What a replicated table adds to every rank; priced for the longest slice of the minibatch.
    #[must_use]
    pub fn replica(&self, table: TableId) -> Load {
        let work = self.workload;
        let load = &work.tables[table.index()];
        let (rows, lookups) = (load.rows, load.lookups);
        let slice = self.longest as f64;
        let draws = slice * lookups;
        let unique = self.skews[table.index()].unique(&Rows::all(rows), draws).min(draws);
        let (row, moved) = self.row_bytes(load, load.dim);
        let again = draws - unique;
        let [gathered, _] = self.listed(table);
        let sums = slice * (load.positions * load.dim) as f64 * WORD_BYTES;
        let elements = rows as f64 * load.dim as f64;
        let updated = if work.learns { 1.0 } else { 0.0 };
        // Sums are made as rows are moved.
        let updaters = if work.grains.is_some() { 1 } else { 2 };
        let of_rows = (rows as usize * load.row_state_bytes) as f64;
        let weights = if load.stored { 0.0 } else { elements * (work.weight_bytes + load.state_bytes) as f64 };
        let gradient = if work.grains.is_some() { 0.0 } else { updated * elements * WORD_BYTES };
        let names = self.uniques[table.index()];
        // Without sums of ranks, a row is moved for each of its look-ups.
        let more = if work.grains.is_some() { (work.batch as f64 * lookups - names).max(0.0) } else { 0.0 };
        let moved = (names + more / CACHE_GAIN) * moved;
        let lists = self.ranks() as f64 * self.lists[table.index()] * WORD_BYTES;
        Load {
            lookup_rows: (unique * row + again * row / CACHE_GAIN).round() as i64,
            lookup_stream: (draws * load.lookup_bytes() + sums).round() as i64,
            update_rows: (updated * (gathered + moved)).round() as i64,
            update_stream: (updated * (sums + lists)).round() as i64,
            memory: (weights + of_rows + gradient).round() as i64,
            update_room: updaters * self.update_room(load, &Rows::all(rows), load.dim),
            ..Load::default()
        }
    }

    /// Bytes of random rows, and bytes in order, with which a rank sums its samples' gradients of a replicated table by
    /// row; part of what [`Model::replica`] counts as update.
    pub(super) fn listed(&self, table: TableId) -> [f64; 2] {
        if !self.workload.learns {
            return [0.0; 2];
        }
        let load = &self.workload.tables[table.index()];
        let slice = self.longest as f64;
        let draws = slice * load.lookups;
        let sums = slice * (load.positions * load.dim * size_of::<f32>()) as f64;
        if self.workload.grains.is_some() {
            return [0.0, sums];
        }
        let unique = self.skews[table.index()].unique(&Rows::all(load.rows), draws).min(draws);
        let row = lines(load.dim * size_of::<f32>());
        [2.0 * row * (unique + (draws - unique) / CACHE_GAIN), sums]
    }

    /// Nothing yet.
    #[must_use]
    pub fn empty(&self) -> Tally {
        Tally {
            ranks: vec![Load::default(); self.ranks()],
            all: Load::default(),
            replicas: Load::default(),
            replicated: 0,
            wires: vec![WireLoad::default(); self.ways.rates.len()],
        }
    }

    /// Adds a part to a rank, or takes it away (`times` -1).
    pub fn add(&self, tally: &mut Tally, rank: usize, load: Load, times: i64) {
        let load = load * times;
        tally.ranks[rank] += load;
        tally.all += load;
        for reach in &self.ways.reach[rank] {
            let wire = &mut tally.wires[reach.wire];
            wire.pooled += load.columns * reach.out;
            wire.gradients += load.columns * reach.back;
            wire.offsets += load.streams * (reach.back + reach.back_ranks);
            wire.row_ids += load.row_ids * reach.back;
            wire.unpooled += load.unpooled * reach.out;
        }
    }

    /// Adds a replicated table, or takes it away (`times` -1).
    pub fn add_replica(&self, tally: &mut Tally, table: TableId, load: Load, times: i64) {
        tally.replicas += load * times;
        tally.replicated += self.lists[table.index()].ceil() as i64 * times;
    }

    /// Adds a table as it is divided, or takes it away (`times` -1).
    pub(super) fn add_table(&self, tally: &mut Tally, sharding: &Sharding, table: TableId, times: i64) {
        if sharding.is_replicated(table) {
            return self.add_replica(tally, table, self.replica(table), times);
        }
        for shard in sharding.of_table(table) {
            let load = self.load(table, &shard.rows, shard.columns.len(), brings_ids(sharding, shard));
            self.add(tally, shard.rank.index(), load, times);
        }
    }

    /// What a division adds up to.
    #[must_use]
    pub fn tally(&self, sharding: &Sharding) -> Tally {
        let mut tally = self.empty();
        TableId::all(sharding.tables()).for_each(|table| self.add_table(&mut tally, sharding, table, 1));
        tally
    }

    /// Bytes that a rank receives in an exchange, and sends, its own among them.
    pub(super) fn exchanged(&self, tally: &Tally, rank: usize, exchange: Exchanged) -> [i64; 2] {
        if self.ranks() == 1 {
            return [0; 2];
        }
        let (batch, ranks) = (self.workload.batch as i64, self.ranks() as i64);
        let (own, samples) = (&tally.ranks[rank], self.slices[rank]);
        let element = self.workload.exchange_bytes as i64;
        let share = |all: i64| (all as f64 * samples as f64 / batch as f64).round() as i64;
        let (to_samples, of_rows) = (tally.all.columns * samples * element, own.columns * batch * element);
        match exchange {
            Exchanged::Ids => {
                let received = own.streams * (batch + ranks) + own.row_ids;
                let sent = tally.all.streams * (samples + 1) + share(tally.all.row_ids);
                [received, sent].map(|words| ID_BYTES as i64 * words)
            }
            Exchanged::PooledRows => {
                let unpooled = [share(tally.all.unpooled), own.unpooled].map(|elements| WORD_BYTES as i64 * elements);
                [to_samples + unpooled[0], of_rows + unpooled[1]]
            }
            Exchanged::Gradients => [of_rows, to_samples],
        }
    }

    /// The bytes of an exchange on a wire.
    pub(super) fn wire_bytes(&self, wire: &WireLoad, exchange: Exchanged) -> f64 {
        let element = self.workload.exchange_bytes as f64;
        match exchange {
            Exchanged::Ids => {
                ID_BYTES as f64 * (wire.offsets as f64 + wire.row_ids as f64 / self.workload.batch as f64)
            }
            Exchanged::PooledRows => {
                wire.pooled as f64 * element + WORD_BYTES * wire.unpooled as f64 / self.workload.batch as f64
            }
            Exchanged::Gradients => wire.gradients as f64 * element,
        }
    }

    /// How many wires and hosts there are.
    pub(super) fn reached(&self) -> usize {
        self.ways.rates.len()
    }

    /// The most loaded of these of an exchange, wires first, then hosts, and its seconds.
    pub(super) fn busiest(&self, tally: &Tally, exchange: Exchanged, of: Range<usize>) -> Option<(usize, f64)> {
        let loads = of.map(|wire| (wire, self.wire_bytes(&tally.wires[wire], exchange)));
        let seconds = loads.map(|(wire, load)| (wire, load / self.ways.rates[wire]));
        seconds.filter(|(_, seconds)| *seconds > 0.0).reduce(|a, b| if b.1 > a.1 { b } else { a })
    }

    /// Seconds in which a rank alone does what a load is.
    #[must_use]
    pub fn alone_s(&self, load: &Load, rank: usize) -> f64 {
        let [lookup, update] = self.local_s(load, rank);
        lookup + update
    }

    /// Seconds of look-up and update.
    pub(super) fn local_s(&self, load: &Load, rank: usize) -> [f64; 2] {
        let at = &self.site.ranks[rank];
        let (row, update, stream) = (at.row_gb_s * 1e9, at.row_update_gb_s * 1e9, at.gb_s * 1e9);
        [
            load.lookup_rows as f64 / row + load.lookup_stream as f64 / stream,
            load.update_rows as f64 / update + load.update_stream as f64 / stream,
        ]
    }

    /// Seconds of look-up, exchange, all-reduce, update and MLPs of a rank; `wires_s` are those of [`Model::busiest`].
    pub(super) fn seconds(&self, tally: &Tally, rank: usize, wires_s: ExchangesS, allreduce_wire_s: f64) -> [f64; 5] {
        let mut own = tally.ranks[rank];
        own += tally.replicas;
        let [lookup, update] = self.local_s(&own, rank);
        let latency = |is_sent: bool, seconds: &[f64]| if is_sent { seconds[rank] } else { 0.0 };
        let exchange = |(exchange, wire_s): (Exchanged, f64)| f64::max(self.copied_s(tally, rank, exchange), wire_s);
        let count = self.exchanges();
        let exchanges: f64 = Exchanged::ALL.into_iter().zip(wires_s).take(count).map(exchange).sum();
        let reduced = self.lists_copied_s(tally, rank);
        [
            lookup,
            exchanges + count as f64 * latency(tally.all.columns > 0, &self.ways.latency_s),
            reduced.max(allreduce_wire_s) + latency(tally.replicated > 0, &self.ways.ring_latency_s) + self.dense_s(),
            update,
            self.mlp_s[rank],
        ]
    }

    /// How many of [`Exchanged::ALL`] there are: who only predicts sends no gradients.
    pub(super) const fn exchanges(&self) -> usize {
        if self.workload.learns { Exchanged::ALL.len() } else { Exchanged::Gradients as usize }
    }

    /// Seconds in which a rank reads what it sends in an exchange, and stores what it receives.
    pub(super) fn copied_s(&self, tally: &Tally, rank: usize, exchange: Exchanged) -> f64 {
        let [received, sent] = self.exchanged(tally, rank, exchange);
        (received + sent) as f64 / (self.site.ranks[rank].stream_copy_gb_s * 1e9)
    }

    /// Seconds in which a rank reads lists for replicated tables where it sends them, and writes what it receives.
    pub(super) fn lists_copied_s(&self, tally: &Tally, rank: usize) -> f64 {
        let others = (self.ranks() - 1) as f64;
        2.0 * tally.replicated as f64 * WORD_BYTES * others / (self.site.ranks[rank].copy_gb_s * 1e9)
    }

    /// The wire or host that is busy longest with lists for replicated tables, and its seconds.
    pub(super) fn busiest_of_lists(&self, tally: &Tally) -> Option<(usize, f64)> {
        let list = tally.replicated as f64 * WORD_BYTES;
        let ring = self.ways.ring.iter().zip(&self.ways.rates);
        let slowest =
            ring.map(|(lists, rate)| *lists as f64 / rate).enumerate().reduce(|a, b| if b.1 > a.1 { b } else { a });
        slowest.map(|(at, seconds)| (at, list * seconds)).filter(|(_, seconds)| *seconds > 0.0)
    }

    /// Seconds of the most loaded wire or host of each exchange, and of lists for replicated tables.
    pub(super) fn wires_s(&self, tally: &Tally) -> (ExchangesS, f64) {
        let all = 0..self.reached();
        let busiest = |exchange| self.busiest(tally, exchange, all.clone()).map_or(0.0, |(_, seconds)| seconds);
        (Exchanged::ALL.map(busiest), self.busiest_of_lists(tally).map_or(0.0, |(_, seconds)| seconds))
    }

    /// Seconds of every rank's whole minibatch.
    #[must_use]
    pub fn totals(&self, tally: &Tally) -> Vec<f64> {
        let (wires, allreduce) = self.wires_s(tally);
        (0..self.ranks()).map(|rank| self.seconds(tally, rank, wires, allreduce).iter().sum()).collect()
    }

    /// How good a division is; `None` when a memory cannot hold it.
    #[must_use]
    pub fn score(&self, tally: &Tally) -> Option<Score> {
        if self.overfull(tally).is_some() {
            return None;
        }
        let (wires, allreduce) = self.wires_s(tally);
        let (mut slowest, mut sum) = (0.0, 0.0);
        for rank in 0..self.ranks() {
            let total: f64 = self.seconds(tally, rank, wires, allreduce).iter().sum();
            slowest = f64::max(slowest, total);
            sum += total;
        }
        Some(Score { slowest_s: slowest, mean_s: sum / self.ranks() as f64 })
    }
}
