//! What ranks do with rows in a step, and what they send each other: bytes, for a division that is given.
//!
//! With copies of hot rows, bags of hot rows alone are pooled at home. Their gradients are summed row by row there;
//! owners get the sums and send moved rows to all. Rows come as [`Skew`](super::skew::Skew) says.

use super::cost::{CACHE_GAIN, Model};
use super::hot::{HotPrices, ShardLookups};
use super::scheme::{Shard, Sharding};
use super::traffic::{ID_BYTES, WORD_BYTES, brings_ids};
use super::workload::Load;
use crate::base::{RankId, TableId};
use crate::data::hot::Inputs;

/// A rank's part of a step. Look-ups and updates are bytes of random rows, and bytes in order.
#[derive(Debug, Clone, Default)]
pub struct RankLoad {
    /// Bytes of ids that a sample of another rank makes it send here.
    pub ids: f64,
    /// Bytes of ids from each other rank besides.
    pub id_heads: f64,
    /// Columns of pooled rows that a sample of another rank gets from here.
    pub columns: f64,
    /// Look-ups for a sample of another rank.
    pub for_others: [f64; 2],
    /// Look-ups for own samples, of copies and own rows.
    pub for_own: [f64; 2],
    /// Sums of the gradients of copies.
    pub sums: [f64; 2],
    /// Bytes of them from here to each other rank.
    pub sent_sums: Vec<f64>,
    /// Update of own rows.
    pub update: [f64; 2],
    /// Sums of own samples' gradients of replicated tables.
    pub listed: [f64; 2],
    /// Bytes of the list of them, which goes to all other ranks.
    pub list: f64,
    /// Update of replicated tables by all ranks' lists.
    pub update_replicas: [f64; 2],
    /// Bytes of moved hot rows to each other rank.
    pub moved: f64,
}

impl RankLoad {
    /// Of each rank, without copies.
    #[must_use]
    pub fn without_copies(model: &Model<'_>, sharding: &Sharding) -> Vec<Self> {
        let (tally, batch) = (model.tally(sharding), model.workload.batch as f64);
        let of_rank = |(rank, load): (usize, &Load)| {
            let samples = model.samples(RankId(rank as u32)) as f64;
            let [rows, stream] = [load.lookup_rows, load.lookup_stream].map(|all| all as f64 / batch);
            let mut of_rank = Self::of_replicas(model, sharding);
            of_rank.id_heads = (load.streams * ID_BYTES as i64) as f64;
            of_rank.ids = of_rank.id_heads + ID_BYTES as f64 * load.row_ids as f64 / batch;
            of_rank.columns = load.columns as f64;
            of_rank.for_others = [rows, stream];
            of_rank.for_own[0] += rows * samples;
            of_rank.for_own[1] += stream * samples;
            of_rank.update = [load.update_rows, load.update_stream].map(|bytes| bytes as f64);
            of_rank
        };
        tally.ranks.iter().enumerate().map(of_rank).collect()
    }

    /// What replicated tables ask of each rank.
    fn of_replicas(model: &Model<'_>, sharding: &Sharding) -> Self {
        let tally = model.tally(sharding);
        let load = tally.replicas;
        let mut listed = [0.0; 2];
        for table in TableId::all(sharding.tables()) {
            if sharding.is_replicated(table) {
                listed.iter_mut().zip(model.listed(table)).for_each(|(sum, bytes)| *sum += bytes);
            }
        }
        Self {
            for_own: [load.lookup_rows, load.lookup_stream].map(|bytes| bytes as f64),
            listed,
            list: tally.replicated as f64 * WORD_BYTES,
            update_replicas: [
                (load.update_rows as f64 - listed[0]).max(0.0),
                (load.update_stream as f64 - listed[1]).max(0.0),
            ],
            sent_sums: vec![0.0; model.ranks()],
            ..Self::default()
        }
    }

    /// Of each rank with copies, where so many rows of each table are hot, and inputs may look up any rows or hot ones
    /// alone.
    ///
    /// # Panics
    /// When inputs are cold: these know no copies.
    #[must_use]
    pub fn with_copies(model: &Model<'_>, prices: &HotPrices<'_>, hot: &[u64], inputs: Inputs) -> Vec<Self> {
        assert_ne!(inputs, Inputs::Cold, "cold inputs read no copies");
        let ranks = model.ranks();
        let mut loads = vec![Self::of_replicas(model, prices.sharding()); ranks];
        for shard in prices.sharding().divided() {
            Step { model, prices, shard, hot: hot[shard.table.index()], inputs }.add(&mut loads);
        }
        loads
    }
}

/// A shard in a step.
struct Step<'a> {
    model: &'a Model<'a>,
    prices: &'a HotPrices<'a>,
    shard: &'a Shard,
    hot: u64,
    inputs: Inputs,
}

impl Step<'_> {
    fn add(&self, loads: &mut [RankLoad]) {
        let Self { model, prices, shard, hot, .. } = *self;
        let (work, width, owner) = (model.workload, shard.columns.len(), shard.rank.index());
        let table = &work.tables[shard.table.index()];
        let (row, moved) = model.row_bytes(table, width);
        let again = |bytes: f64, draws: f64, unique: f64| bytes * (unique + (draws - unique).max(0.0) / CACHE_GAIN);
        let (element, gradient) = (work.exchange_bytes as f64 * width as f64, (size_of::<f32>() * width) as f64);
        let (split, summed) = self.split();
        let (batch, own) = (work.batch as f64, model.samples(shard.rank) as f64);
        let others = batch - own;
        // All look-ups of a minibatch that are of the shard's rows, and the different rows among them.
        let draws = split.look_ups + split.hot_look_ups;
        let hot_rows = prices.unique_hot(shard, hot, batch * table.lookups * summed);
        let all_rows = match self.inputs {
            Inputs::Hot => hot_rows,
            _ => model.unique(shard.table, &shard.rows),
        };

        let cold = others * split.look_ups;
        // Of rows that a minibatch names each rank's samples bring their part, as without copies.
        let cold_rows = ((all_rows - hot_rows * split.all_hot).max(0.0) * others / batch).min(cold);
        let load = &mut loads[owner];
        if brings_ids(prices.sharding(), shard) {
            load.ids += ID_BYTES as f64 * split.words(table);
            load.id_heads += ID_BYTES as f64 * 2.0;
        }
        load.columns += split.bags * width as f64;
        if others > 0.0 {
            load.for_others[0] += again(row, cold, cold_rows) / others;
            load.for_others[1] += split.look_ups * table.lookup_bytes() + split.bags * element;
        }
        // Sums of other ranks stand for all of their look-ups of a row.
        let mut met = cold + own * draws;
        let mut read = others * split.bags * element + own * (split.bags + split.hot_bags) * gradient;
        for (rank, load) in loads.iter_mut().enumerate() {
            let samples = model.samples(RankId(rank as u32)) as f64;
            if rank == owner {
                let rows = (all_rows * samples / batch).max(hot_rows.min(samples * draws)).min(samples * draws);
                load.for_own[0] += again(row, samples * draws, rows);
                load.for_own[1] += samples * (draws * table.lookup_bytes() + (split.bags + split.hot_bags) * gradient);
                continue;
            }
            let hot_draws = samples * split.hot_look_ups;
            let rows = prices.unique_hot(shard, hot, samples * table.lookups * summed).min(hot_draws);
            load.for_own[0] += again(row, hot_draws, rows);
            load.for_own[1] += samples * (split.hot_look_ups * table.lookup_bytes() + split.hot_bags * gradient);
            load.sums[0] += again(2.0 * gradient, hot_draws, rows);
            load.sums[1] += samples * split.hot_bags * gradient + rows * gradient;
            let bytes = if hot == 0 { 0.0 } else { HotPrices::sum_bytes(shard, rows) };
            load.sent_sums[owner] += bytes;
            met += rows;
            read += bytes;
        }
        let load = &mut loads[owner];
        load.update[0] += again(moved, met, all_rows.min(met));
        load.update[1] += read + met * table.lookup_bytes();
        if hot > 0 {
            load.moved +=
                prices.moved_bytes(shard, prices.unique_hot(shard, hot, batch * table.lookups * self.moving()));
        }
    }

    /// What a sample looks up, and how many of a minibatch's look-ups are summed, of as many as there are.
    fn split(&self) -> (ShardLookups, f64) {
        let split = self.prices.split(self.shard, self.hot);
        match self.inputs {
            Inputs::Hot => {
                let more = self.moving();
                let [bags, lookups] = self.model.workload.tables[self.shard.table.index()].bags();
                let share = self.prices.hot_share(self.shard, self.hot) * more;
                let hot_bags = bags * (1.0 - libm::pow((1.0 - share).max(0.0), lookups));
                let hot_look_ups = bags * lookups * share;
                (ShardLookups { bags: 0.0, look_ups: 0.0, hot_bags, hot_look_ups, all_hot: 1.0 }, more)
            }
            _ => (split, split.all_hot),
        }
    }

    /// Look-ups that move hot rows, of as many as there are: where all inputs are hot, more of them are of each hot
    /// row.
    fn moving(&self) -> f64 {
        match self.inputs {
            Inputs::Hot => self.prices.more(self.shard.table, self.hot),
            _ => 1.0,
        }
    }
}
