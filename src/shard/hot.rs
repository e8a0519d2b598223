//! What copies of hot rows on every rank save in a step's exchange, and what they cost: bytes, for a division that is
//! given.
//!
//! Rows are looked up as [`Skew`] says, each look-up by itself. A row is hot from a share of its table's look-ups on,
//! which is the same for all tables; a bag is pooled at home when all its rows are hot. Of others only what lies in a
//! shard goes to its owner. What keeps copies equal are sums of hot bags' gradients, a row once from each rank that met
//! it, and rows that any look-up moved, to all other ranks.

use serde::Serialize;

use super::scheme::{Rows, Shard, Sharding};
use super::skew::Skew;
use super::traffic::{ID_BYTES, brings_ids, id_streams};
use super::workload::{TableLoad, Workload};
use crate::base::TableId;

/// Halvings of the interval that holds the threshold, in decades.
const HALVINGS: usize = 40;

/// The least share of look-ups that is told from none.
const LEAST_DECADE: f64 = -15.0;

/// The first budget of a ladder.
const FIRST_BUDGET: u64 = 1 << 20;

/// How near to the most that any budget saves the chosen one comes.
const NEARLY: f64 = 0.99;

/// What copies within a budget come to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HotPrice {
    /// What copies may take on each rank.
    pub budget: u64,
    /// What they take.
    pub bytes: u64,
    /// Hot rows of all tables.
    pub rows: u64,
    /// Share of all look-ups that are of them.
    pub lookups: f64,
    /// Bytes that leave their rank in a step without copies: ids, pooled rows and their gradients.
    pub without: f64,
    /// The same with copies, of the bags that still travel.
    pub cold: f64,
    /// Sums of hot rows' gradients.
    pub gradients: f64,
    /// Hot rows that moved.
    pub moved: f64,
    /// Bytes that leave their rank when all copies are written: before the first step, and in a revision at most.
    pub filling: f64,
    /// What the budget gives where hot and cold inputs are trained in minibatches of their own.
    pub fae: FaePrice,
}

/// What copies within a budget come to in FAE's order: rows that are looked up seldom have copies, too, so that more
/// inputs look up no others.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct FaePrice {
    /// Hot rows of all tables.
    pub rows: u64,
    /// Share of inputs that look up hot rows alone, if columns know nothing of each other.
    pub inputs: f64,
    /// Bytes that leave their rank in a step of hot inputs: sums of gradients, and hot rows that moved.
    pub hot: f64,
    /// The same in the mean step of an epoch, in which others send what they do without copies.
    pub mean: f64,
}

impl HotPrice {
    /// Bytes that leave their rank in a step with copies, besides those of revisions, one after so many steps, of which
    /// each row is new: as many as there can be.
    #[must_use]
    pub fn with_revisions(&self, steps: u64) -> f64 {
        self.with() + self.filling / steps as f64
    }

    /// Bytes that leave their rank in a step with copies.
    #[must_use]
    pub fn with(&self) -> f64 {
        self.cold + self.gradients + self.moved
    }
}

/// The prices of budgets for one division.
#[derive(Debug)]
pub struct HotPrices<'a> {
    workload: &'a Workload,
    sharding: &'a Sharding,
    skews: Vec<Skew>,
    /// Tables of whose hot rows ranks may have copies.
    copied: Vec<bool>,
    slices: Vec<f64>,
    without: f64,
}

impl<'a> HotPrices<'a> {
    /// For a workload whose tables are divided so.
    #[must_use]
    pub fn new(workload: &'a Workload, sharding: &'a Sharding) -> Self {
        let skews = workload.tables.iter().map(|table| Skew::new(table.rows, table.skew)).collect();
        let slices = workload.slices(workload.batch, sharding.ranks());
        let slices = slices.into_iter().map(|slice| slice as f64).collect();
        let mut copied = workload.copied();
        for (table, copied) in (0..).map(TableId).zip(&mut copied) {
            // Where every rank has the table, nothing of it is copied.
            *copied &= !sharding.is_replicated(table);
        }
        let mut prices = Self { workload, sharding, skews, copied, slices, without: 0.0 };
        let pooled = sharding.divided().map(|shard| {
            let positions = workload.tables[shard.table.index()].positions;
            prices.others(shard) * (positions * shard.columns.len() * workload.exchange_bytes) as f64
        });
        let pooled: f64 = pooled.sum();
        let streams = id_streams(sharding).map(|shard| {
            let table = &workload.tables[shard.table.index()];
            let look_ups = table.lookups * prices.skews[shard.table.index()].share(&shard.rows) * table.words() as f64;
            let others = prices.others(shard);
            ID_BYTES as f64 * (others * (table.positions as f64 + look_ups) + sharding.ranks() as f64 - 1.0)
        });
        prices.without = 2.0 * pooled + streams.sum::<f64>();
        prices
    }

    /// Who holds what.
    pub(super) const fn sharding(&self) -> &'a Sharding {
        self.sharding
    }

    /// Samples of all ranks but a shard's.
    fn others(&self, shard: &Shard) -> f64 {
        self.slices.iter().sum::<f64>() - self.slices[shard.rank.index()]
    }

    /// What these hot rows of each table take.
    fn bytes(&self, hot: impl Iterator<Item = u64>) -> u64 {
        let bytes = hot.zip(&self.workload.tables).map(|(rows, table)| rows.saturating_mul(table.copy_bytes()));
        bytes.fold(0, u64::saturating_add)
    }

    /// The least share of a table's look-ups from which a copy pays: as many look-ups in a minibatch as there are
    /// ranks.
    fn least(&self) -> f64 {
        let copied = self.workload.copied();
        let tables = self.workload.tables.iter().zip(&copied).filter(|(_, copied)| **copied);
        let most = tables.map(|(table, _)| table.lookups).fold(1.0, f64::max);
        (self.sharding.ranks() as f64 / (self.workload.batch as f64 * most)).min(1.0)
    }

    /// Hot rows of each table at a threshold.
    fn hot(&self, threshold: f64) -> impl Iterator<Item = u64> {
        let tables = self.skews.iter().zip(&self.copied);
        tables.map(move |(skew, copied)| if *copied { skew.hottest(threshold) } else { 0 })
    }

    /// Hot rows of each table within a budget: the hottest ones, as far as copies of them pay.
    #[must_use]
    pub fn rows(&self, budget: u64) -> Vec<u64> {
        self.rows_from(self.least(), budget)
    }

    /// Hot rows of each table within a budget in FAE's order: as many of the hottest ones as fit.
    #[must_use]
    pub fn fae_rows(&self, budget: u64) -> Vec<u64> {
        self.rows_from(0.0, budget)
    }

    /// Hot rows of each table within a budget: the hottest ones, from a share of look-ups on.
    fn rows_from(&self, least: f64, budget: u64) -> Vec<u64> {
        let bytes = |threshold: f64| self.bytes(self.hot(threshold));
        if bytes(least) <= budget {
            return self.hot(least).collect();
        }
        // The lowest threshold that fits lies above the least, if any does.
        let (mut low, mut high) = (libm::log10(least).max(LEAST_DECADE), 0.0);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if bytes(libm::pow(10.0, middle)) > budget { low = middle } else { high = middle }
        }
        let threshold = libm::pow(10.0, high);
        let fits = bytes(threshold) <= budget;
        self.hot(threshold).map(|rows| if fits { rows } else { 0 }).collect()
    }

    /// The price of a budget.
    #[must_use]
    pub fn of(&self, budget: u64) -> HotPrice {
        let hot = self.rows(budget);
        let mut price = HotPrice {
            budget,
            bytes: self.bytes(hot.iter().copied()),
            rows: hot.iter().sum(),
            lookups: 0.0,
            without: self.without,
            cold: 0.0,
            gradients: 0.0,
            moved: 0.0,
            filling: 0.0,
            fae: self.fae(&self.fae_rows(budget)),
        };
        let tables = &self.workload.tables;
        let all: f64 = tables.iter().map(|table| table.lookups).sum();
        let share = |(table, hot): (usize, &u64)| tables[table].lookups * self.skews[table].share(&first(*hot));
        price.lookups = hot.iter().enumerate().map(share).sum::<f64>() / all;
        for shard in self.sharding.divided() {
            self.add(&mut price, shard, hot[shard.table.index()]);
        }
        price
    }

    /// What a sample of another rank looks up in a shard with so many hot rows, on average.
    pub(super) fn split(&self, shard: &Shard, hot: u64) -> ShardLookups {
        let (skew, table) = (&self.skews[shard.table.index()], &self.workload.tables[shard.table.index()]);
        let [bags, lookups] = table.bags();
        // Shares of look-ups: in the shard, of hot rows, and of the shard's hot rows.
        let here = skew.share(&shard.rows);
        let share = if hot == 0 { 0.0 } else { skew.share(&first(hot)) };
        let part = hot_rows(shard, hot);
        let hot_share = if part.count == 0 { 0.0 } else { skew.share(&part).min(here) };
        let power = |x: f64| libm::pow(x.max(0.0), lookups);
        let hot_bags = power(share) - power(share - hot_share);
        let all_hot = if lookups > 1.0 { libm::pow(share, lookups - 1.0) } else { 1.0 };
        ShardLookups {
            bags: bags * (1.0 - power(1.0 - here) - hot_bags),
            hot_bags: bags * hot_bags,
            look_ups: table.lookups * (here - hot_share * all_hot).max(0.0),
            hot_look_ups: table.lookups * hot_share * all_hot,
            all_hot,
        }
    }

    /// Adds what goes between a shard's rank and all others.
    fn add(&self, price: &mut HotPrice, shard: &Shard, hot: u64) {
        let Workload { tables, exchange_bytes, .. } = self.workload;
        let (others, width, peers) = (self.others(shard), shard.columns.len() as f64, self.slices.len() as f64 - 1.0);
        let split = self.split(shard, hot);
        price.cold += 2.0 * others * split.bags * width * *exchange_bytes as f64;
        if brings_ids(self.sharding, shard) {
            let words = split.words(&tables[shard.table.index()]);
            price.cold += ID_BYTES as f64 * (others * words + 2.0 * peers);
        }
        let [gradients, moved] = self.copies(shard, hot, [split.all_hot, 1.0]);
        price.gradients += gradients;
        price.moved += moved;
        price.filling += peers * self.moved_bytes(shard, hot_rows(shard, hot).count as f64);
    }

    /// The share of a table's look-ups that are of a shard's hot rows.
    pub(super) fn hot_share(&self, shard: &Shard, hot: u64) -> f64 {
        let part = hot_rows(shard, hot);
        if part.count == 0 { 0.0 } else { self.skews[shard.table.index()].share(&part) }
    }

    /// How many times as many look-ups each of a table's hot rows has, where all of its look-ups are of them.
    pub(super) fn more(&self, table: TableId, hot: u64) -> f64 {
        if hot == 0 { 1.0 } else { 1.0 / self.skews[table.index()].share(&first(hot)) }
    }

    /// How many different ones of a shard's hot rows so many look-ups of the whole table name.
    pub(super) fn unique_hot(&self, shard: &Shard, hot: u64, draws: f64) -> f64 {
        let (skew, part) = (&self.skews[shard.table.index()], hot_rows(shard, hot));
        match (part.count, part.step) {
            (0, _) => 0.0,
            (_, 1) => skew.unique(&part, draws),
            // Rows that are dealt in turn are alike.
            (count, _) => skew.unique(&first(hot), draws) * count as f64 / hot as f64,
        }
    }

    /// Bytes of sums of a shard's hot rows' gradients that a rank sends to its owner, if it meets so many of the rows.
    pub(super) fn sum_bytes(shard: &Shard, rows: f64) -> f64 {
        ID_BYTES as f64 * (rows * (shard.columns.len() as f64 + 2.0) + 2.0)
    }

    /// Bytes of a shard's hot rows, so many of which have moved, to one rank.
    pub(super) fn moved_bytes(&self, shard: &Shard, rows: f64) -> f64 {
        let Workload { tables, weight_bytes, .. } = self.workload;
        let table = &tables[shard.table.index()];
        let seen = (shard.columns.len() * weight_bytes).next_multiple_of(ID_BYTES as usize) + table.row_weight_bytes;
        rows * (ID_BYTES as f64 + seen as f64) + ID_BYTES as f64
    }

    /// What keeps copies of a shard's hot rows equal to them: sums of gradients to it, of so many times a minibatch's
    /// look-ups, and moved rows from it, of so many.
    fn copies(&self, shard: &Shard, hot: u64, [summed, moving]: [f64; 2]) -> [f64; 2] {
        let lookups = self.workload.tables[shard.table.index()].lookups;
        let unique = |samples: f64| self.unique_hot(shard, hot, samples * lookups);
        let others = self.slices.iter().enumerate().filter(|(from, _)| *from != shard.rank.index());
        let sums = others.map(|(_, slice)| Self::sum_bytes(shard, unique(slice * summed))).sum();
        let moved = unique(self.workload.batch as f64 * moving);
        [sums, (self.slices.len() as f64 - 1.0) * self.moved_bytes(shard, moved)]
    }

    /// What these hot rows of each table come to in FAE's order.
    fn fae(&self, hot: &[u64]) -> FaePrice {
        let share = |table: usize| if hot[table] == 0 { 0.0 } else { self.skews[table].share(&first(hot[table])) };
        let tables = self.workload.tables.iter().enumerate().filter(|(table, _)| self.copied[*table]);
        let inputs = tables.map(|(table, load)| libm::pow(share(table), load.lookups)).product::<f64>();
        let mut price = FaePrice { rows: hot.iter().sum(), inputs, hot: 0.0, mean: self.without };
        if inputs > 0.0 {
            let shards = self.sharding.shards().iter().filter(|shard| self.copied[shard.table.index()]);
            // All look-ups are of hot rows: as many as there would be among more.
            let more = |table: TableId| [self.more(table, hot[table.index()]); 2];
            let bytes = shards.map(|shard| self.copies(shard, hot[shard.table.index()], more(shard.table)));
            price.hot = bytes.map(|[gradients, moved]| gradients + moved).sum();
            price.mean = inputs * price.hot + (1.0 - inputs) * self.without;
        }
        price
    }

    /// What copies of all rows that pay take on each rank.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.bytes(self.rows(u64::MAX).into_iter())
    }

    /// The prices of doubling budgets until all rows that pay have copies or a rank has no `room` for more, and which
    /// of them is chosen: the least with which nearly as little travels as with any, revisions after so many steps
    /// included; nothing where no budget lets less travel.
    #[must_use]
    pub fn ladder(&self, revised: Option<u64>, room: u64) -> (Vec<HotPrice>, Option<usize>) {
        let all = self.most();
        let doubled =
            std::iter::successors(Some(FIRST_BUDGET), |budget| budget.checked_mul(2).filter(|_| *budget < all));
        let doubled = doubled.take_while(|budget| *budget <= room);
        let prices: Vec<HotPrice> = doubled.map(|budget| self.of(budget)).collect();
        let with = |price: &HotPrice| revised.map_or_else(|| price.with(), |steps| price.with_revisions(steps));
        let saved = |price: &HotPrice| price.without - with(price);
        let most = prices.iter().map(saved).fold(0.0, f64::max);
        let chosen = prices.iter().position(|price| saved(price) > 0.0 && saved(price) >= NEARLY * most);
        (prices, chosen)
    }
}

/// What a sample looks up in a shard, on average.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShardLookups {
    /// Bags with a row of the shard, without those of hot rows alone.
    pub bags: f64,
    /// Bags of hot rows alone with a row of the shard.
    pub hot_bags: f64,
    /// Look-ups of the shard's rows in the former.
    pub look_ups: f64,
    /// And in the latter.
    pub hot_look_ups: f64,
    /// The chance that all other rows of a bag are hot.
    pub all_hot: f64,
}

impl ShardLookups {
    /// Words that say what is looked up for the bags that travel: how many rows, and which.
    pub(super) fn words(&self, table: &TableLoad) -> f64 {
        self.bags + self.look_ups * table.words() as f64
    }
}

/// The hot ones of a shard's rows, where so many rows of the table are.
fn hot_rows(shard: &Shard, hot: u64) -> Rows {
    Rows { count: shard.rows.within(&(0..hot as usize)).len() as u64, ..shard.rows }
}

/// The first rows of a table.
const fn first(count: u64) -> Rows {
    Rows { first: 0, step: 1, count }
}
