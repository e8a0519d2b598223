//! Brings what owners have pooled to its places among the features, where a message has a vector for some bags only.
//!
//! All places of tables that other ranks have a part of, or whose rows are divided, are 0, or hold what was pooled from
//! copies of hot rows, before.

use super::Blocks;
use crate::base::{RankId, TableId};
use crate::data::{BagView, Batch};
use crate::exchange::layout::{Group, Layout};
use crate::exchange::ordered::{Part, Unpooled};
use crate::exchange::{Ids, Pass, Route};
use crate::simd::{Kernel, Simd, combine};

/// For some samples.
pub(in crate::exchange) struct JoinBlocks<'a> {
    pub layout: &'a Layout,
    pub ids: &'a Ids,
    pub rank: RankId,
    /// The vectors from a rank, or of divided rows this rank's own.
    pub message: &'a (dyn Fn(RankId) -> &'a [f32] + Sync),
    pub unpooled: Option<(&'a Unpooled, &'a Batch)>,
    pub first: usize,
    pub features: &'a mut [f32],
}

/// A shard's vectors.
struct Block<'a> {
    group: &'a Group,
    /// Where a sample's first vector goes.
    start: usize,
    /// The bag of each.
    numbers: &'a [u32],
    vectors: &'a [f32],
}

impl<'a> JoinBlocks<'a> {
    fn block(&self, owner: RankId, group: &'a Group, at: usize) -> Block<'a> {
        let shard = group.shards.start + at;
        let blocks: &Blocks =
            self.ids.blocks(Route { owner, asking: self.rank }, Pass::Forward).expect("messages have some bags only");
        Block {
            group,
            start: group.in_features[at],
            numbers: self.ids.list(owner, group.streams[at], Pass::Forward),
            vectors: &(self.message)(owner)[blocks.range(&(shard..shard + 1))],
        }
    }

    /// Takes the vectors of this piece's samples, each with its place.
    #[inline(always)]
    fn take(&mut self, block: &Block<'_>, mut take: impl FnMut(&mut [f32], &[f32])) {
        let (row, Group { width, positions, step, .. }) = (self.layout.feature_row(), block.group);
        let samples = self.features.len() / row;
        let place = |number: &u32| [*number as usize / positions, *number as usize % positions];
        let skipped = block.numbers.partition_point(|number| place(number)[0] < self.first);
        let vectors = block.vectors[skipped * width..].chunks_exact(*width);
        for (number, vector) in block.numbers[skipped..].iter().zip(vectors) {
            let [sample, position] = place(number);
            if sample >= self.first + samples {
                break;
            }
            let start = (sample - self.first) * row + block.start + position * step;
            take(&mut self.features[start..start + width], vector);
        }
    }
}

impl Kernel for JoinBlocks<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let (layout, ids, own) = (self.layout, self.ids, self.rank);
        for owner in (0..layout.ranks() as u32).map(RankId).filter(|owner| *owner != own) {
            for group in layout.of(owner).groups.iter().filter(|group| !group.partial) {
                for at in 0..group.shards.len() {
                    let block = self.block(owner, group, at);
                    self.take(&block, |to, vector| to.copy_from_slice(vector));
                }
            }
        }
        // Sums of divided rows, whose parts follow in their order.
        for table in (0..layout.sharding().tables() as u32).map(TableId) {
            if !layout.sharding().partial(table) || self.unpooled.is_some() && layout.sums_of_ranks(table) {
                continue;
            }
            for shard in layout.sharding().of_table(table) {
                let (group, at) = layout.of(shard.rank).find(shard);
                let block = self.block(shard.rank, group, at);
                self.take(&block, |to, vector| combine(simd, to, vector, |sum, term| simd.add(sum, term)));
            }
        }
        let Some((unpooled, batch)) = self.unpooled else { return };
        let row = layout.feature_row();
        for (index, table) in unpooled.tables() {
            let (bag, weights) = (&batch.bags[table.index()], &batch.weights[table.index()][..]);
            for (sample, features) in (self.first..).zip(self.features.chunks_exact_mut(row)) {
                let look_ups = bag.offsets[sample] as usize..bag.offsets[sample + 1] as usize;
                if look_ups.is_empty() || is_served(ids.hot_bag(table), sample) {
                    continue;
                }
                let (message, rank) = (self.message, self.rank);
                let pooled = |part: &Part, bag: usize| {
                    let blocks = ids
                        .blocks(Route { owner: part.rank, asking: rank }, Pass::Forward)
                        .expect("messages have some bags only");
                    let start = blocks.starts(&(part.shard..part.shard + 1))[0] + bag * part.place.len();
                    &message(part.rank)[start..start + part.place.len()]
                };
                unpooled.pool(simd, index, (look_ups, weights), &mut features[layout.columns(table)], pooled);
            }
        }
    }
}

/// Whether a bag is pooled from copies: it has look-ups among theirs.
pub(in crate::exchange) fn is_served(hot: Option<BagView<'_>>, number: usize) -> bool {
    hot.is_some_and(|hot| hot.offsets[number] < hot.offsets[number + 1])
}
