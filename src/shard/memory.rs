//! What a division of tables needs of each memory: weights and state of shards, receive buffers, and what every rank
//! has.

use super::cost::{Model, Tally};
use super::scheme::Rows;
use super::traffic::ID_BYTES;
use super::workload::TableLoad;
use crate::base::RankId;
use crate::math::{CHAIN, part_for};

impl Model<'_> {
    /// Look-ups of these rows in the largest minibatch for which there is room: in proportion to the rows.
    pub(super) fn most_lookups(&self, table: &TableLoad, rows: &Rows) -> i64 {
        let share = rows.count as f64 / table.rows.max(1) as f64;
        (self.room as f64 * table.most_lookups() * share).ceil() as i64
    }

    /// Bytes that the updates of so many columns of these rows reserve.
    pub(super) fn update_room(&self, table: &TableLoad, rows: &Rows, width: usize) -> i64 {
        if !self.workload.learns {
            return 0;
        }
        let gradient = if self.workload.reserve.gradient_rows { width * size_of::<f32>() } else { 0 };
        self.most_lookups(table, rows) * (table.sorting + gradient) as i64
    }

    /// Bytes of what a rank receives and sends, and of what its updates reserve. Windows of rows are double; the owner
    /// of rows that travel rounded has them whole beside them, on the way out and back. Ids go in pieces, and are kept
    /// as a whole on both sides.
    pub(super) fn buffers(&self, tally: &Tally, rank: usize) -> i64 {
        let own = &tally.ranks[rank];
        let updates = own.update_room + tally.replicas.update_room;
        if self.ranks() == 1 {
            return updates;
        }
        let (batch, slice, ranks) = (self.room as i64, self.room_slices[rank] as i64, self.ranks() as i64);
        let sent = (i128::from(tally.all.ids_room) * i128::from(slice) / i128::from(batch.max(1))) as i64;
        let [ids_in, ids_out] = [own.streams * (batch + ranks) + own.ids_room, tally.all.streams * (slice + 1) + sent];
        let element = self.workload.exchange_bytes;
        let whole = if element < size_of::<f32>() { 2 * size_of::<f32>() } else { 0 };
        let rows = tally.all.columns * slice + own.columns * batch;
        let windows = rows * 2 * element as i64 + own.columns * batch * whole as i64;
        updates + ID_BYTES as i64 * (ids_in + ids_out) + windows
    }

    /// Samples of a rank's slice that walk through its network at a time.
    #[must_use]
    pub fn part(&self, rank: RankId) -> usize {
        self.part_of(rank, self.samples(rank))
    }

    fn part_of(&self, rank: RankId, samples: usize) -> usize {
        let (work, threads) = (self.workload, self.site.ranks[rank.index()].threads);
        let part = work.part.unwrap_or_else(|| part_for([work.part_bytes as usize, work.part_rows], threads));
        part.min(samples)
    }

    /// Bytes of what every rank has: replicated tables, copies of hot rows, layers and activations.
    pub(super) fn dense(&self, tally: &Tally, rank: usize) -> i64 {
        let (work, samples) = (self.workload, self.room_slices[rank]);
        let part = self.part_of(RankId(rank as u32), samples) as i64;
        let activations = samples as i64 * work.sample_bytes as i64 + part * work.part_bytes as i64;
        let copies = if self.ranks() > 1 { i64::try_from(work.reserve.copies).unwrap_or(i64::MAX / 4) } else { 0 };
        let chains =
            if work.learns && work.grains.is_none() && samples > CHAIN { work.reserve.gradients as i64 } else { 0 };
        tally.replicas.memory + work.dense_bytes as i64 + activations + copies + chains
    }

    /// Bytes wanted of a pool.
    #[must_use]
    pub fn wanted(&self, tally: &Tally, pool: usize) -> i64 {
        let ranks = self.site.pools[pool].ranks.iter().map(|rank| rank.index());
        ranks.map(|rank| tally.ranks[rank].memory + self.buffers(tally, rank) + self.dense(tally, rank)).sum()
    }

    /// The first pool that cannot hold what is wanted of it, with the bytes wanted.
    #[must_use]
    pub fn overfull(&self, tally: &Tally) -> Option<(usize, i64)> {
        let pools = self.site.pools.iter().enumerate();
        pools
            .map(|(pool, site)| (pool, self.wanted(tally, pool), site.usable() as i64))
            .find_map(|(pool, wanted, usable)| (wanted > usable).then_some((pool, wanted)))
    }
}
