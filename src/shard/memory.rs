//! What a division of tables needs of each memory: weights and state of shards, receive buffers, and what every rank has.

use super::cost::{Model, Tally};
use crate::base::RankId;
use crate::math::part_for;

impl Model<'_> {
    /// Bytes of a rank's receive buffers, each twice; rows that travel as they are go in pieces, and are kept as long.
    pub(super) fn buffers(&self, tally: &Tally, rank: usize) -> i64 {
        self.exchanged(tally, rank).iter().map(|[received, _]| 2 * received).sum()
    }

    /// Samples of a rank's slice that walk through its network at a time.
    #[must_use]
    pub fn part(&self, rank: RankId) -> usize {
        let (work, threads) = (self.workload, self.site.ranks[rank.index()].threads);
        let part = work.part.unwrap_or_else(|| part_for([work.part_bytes as usize, work.part_rows], threads));
        part.min(self.samples(rank))
    }

    pub(super) fn dense(&self, tally: &Tally, rank: usize) -> i64 {
        let work = self.workload;
        let (samples, part) = (self.slices[rank], self.part(RankId(rank as u32)) as i64);
        let activations = samples * work.sample_bytes as i64 + part * work.part_bytes as i64;
        tally.replicas.memory + work.dense_bytes as i64 + activations
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
