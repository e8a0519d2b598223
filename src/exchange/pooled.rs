//! Pooled rows, from their owners to the ranks that have the samples.
//!
//! The owner's look-up writes into the receiver's window; the receiver brings what came from other owners to its place
//! among the features. What the receiver holds whole is there already: its look-up writes the features themselves. Sums
//! of divided rows are added in the order of the table's parts, whoever was first; or row by row, where the number of
//! ranks shall change no bit ([`super::Unpooled`]).

use super::layout::Layout;
use super::messages::{Arrived, RowMessages};
use super::ordered::{Part, Unpooled};
use super::sparse::JoinBlocks;
use super::{Ids, Minibatch, Pass, RankContext, Route};
use crate::base::{RankId, Result, TableId};
use crate::collective::Carrier;
use crate::data::Batch;
use crate::memory::{Arena, Buffer, Supply};
use crate::simd::{Kernel, Simd, combine};
use crate::sync::{Line, Rows, Stores};

/// Bytes of the shortest message that passes the caches, on one node, too: of tiny minibatches on few cores, what is
/// shorter is still in them when it is read, and a link between sockets carries it in no time that shows.
const LONG: usize = 256 << 10;

/// The exchange of pooled rows, with its memory.
#[derive(Debug)]
pub struct Pooled {
    messages: RowMessages,
    /// What this rank pools of divided rows for its own samples.
    own: Buffer<f32>,
}

impl Pooled {
    /// For a rank, with room for minibatches of `batch` samples.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(context: &RankContext, batch: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let stride = context.layout.of(context.rank).partial_stride;
        let own = supply.buffer("own pooled terms", context.samples(batch) * stride)?;
        Ok(Self { messages: RowMessages::new(context, Pass::Forward, batch, supply)?, own })
    }

    /// Takes its place in the arena that was planned.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.own.settle(arena);
        self.messages.settle(arena);
    }

    /// Lets `look_up` write, for each other rank, this rank's part of the pooled rows of that rank's samples: rows of
    /// the layout's stride, or the vectors that `ids` tell of, by the stores that are best. Where copies serve all
    /// look-ups, nothing is pooled for others, here and in [`Pooled::finish`].
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When the minibatch is larger than was planned.
    pub fn begin(
        &mut self,
        context: &RankContext,
        carrier: &mut dyn Carrier,
        minibatch: &Minibatch,
        ids: &Ids,
        mut look_up: impl FnMut(RankId, &mut [f32], Stores),
    ) -> Result<()> {
        if !context.layout.owners_pool(minibatch.inputs) {
            return Ok(());
        }
        let fill = |to, lines: &mut [Line], stores| {
            let stores = if size_of_val(lines) < LONG { Stores::Plain } else { stores };
            look_up(to, bytemuck::cast_slice_mut(lines), stores);
        };
        self.messages.begin(context, carrier, minibatch, ids, fill)
    }

    /// Where this rank's pooled terms of its own samples go: rows of the layout's partial stride, or the vectors that
    /// `ids` tell of.
    pub fn own_mut(&mut self, context: &RankContext, minibatch: &Minibatch, ids: &Ids) -> &mut [f32] {
        let rows = || context.samples(minibatch.whole) * context.layout.of(context.rank).partial_stride;
        let len = ids.blocks(Route::own(context.rank), Pass::Forward).map_or_else(rows, super::Blocks::floats);
        &mut self.own[..len]
    }

    /// Waits for all owners and writes the pooled rows of every divided table that this rank does not hold whole to
    /// `features`, a row a sample. With `unpooled`, exchanged before, bags of divided rows are summed in their own
    /// order.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn finish(
        &mut self,
        context: &RankContext,
        carrier: &mut dyn Carrier,
        minibatch: &Minibatch,
        (ids, features): (&Ids, &mut [f32]),
        unpooled: Option<&Unpooled>,
    ) -> Result<()> {
        let (team, layout) = (&context.team, &*context.layout);
        if !layout.owners_pool(minibatch.inputs) {
            return Ok(());
        }
        let incoming = self.messages.finish(context, carrier)?;
        let (isa, own) = (team.isa(), (context.rank, &self.own[..]));
        let unpooled = unpooled.map(|unpooled| (unpooled, &*minibatch.slice));
        let row = layout.feature_row();
        if row == 0 || features.is_empty() || layout.ranks() == 1 && layout.of(context.rank).partial_stride == 0 {
            return Ok(());
        }
        if layout.hot().is_some() {
            let message = |from: RankId| if from == own.0 { own.1 } else { incoming.from(from) };
            team.each(Rows::new(features, row, team.threads(), 1), |band| {
                let (rank, message, first, features) = (own.0, &message, band.first, band.data);
                isa.run(JoinBlocks { layout, ids, rank, message, unpooled, first, features });
            });
            return Ok(());
        }
        team.each(Rows::new(features, row, team.threads(), 1), |band| {
            isa.run(Join { layout, incoming: &incoming, own, unpooled, first: band.first, row, features: band.data });
        });
        Ok(())
    }
}

/// Brings the rows of all owners side by side, for some samples.
struct Join<'a, 'b> {
    layout: &'a Layout,
    incoming: &'a Arrived<'b>,
    own: (RankId, &'a [f32]),
    unpooled: Option<(&'a Unpooled, &'a Batch)>,
    first: usize,
    row: usize,
    features: &'a mut [f32],
}

impl<'a> Join<'a, '_> {
    /// The pooled rows from a rank and the length of each.
    fn message(&self, from: RankId) -> (&'a [f32], usize) {
        let holding = self.layout.of(from);
        if from == self.own.0 {
            (self.own.1, holding.partial_stride)
        } else {
            (self.incoming.from(from), holding.stride)
        }
    }
}

impl Kernel for Join<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (layout, first, row) = (self.layout, self.first, self.row);
        let sharding = layout.sharding();
        for owner in (0..layout.ranks() as u32).map(RankId) {
            let (message, stride) = self.message(owner);
            if stride == 0 {
                continue;
            }
            let rows = message[first * stride..].chunks_exact(stride);
            for (features, message) in self.features.chunks_exact_mut(row).zip(rows) {
                for group in &layout.of(owner).groups {
                    if !group.partial && owner == self.own.0 {
                        break;
                    }
                    let shards = &layout.of(owner).shards[group.shards.clone()];
                    for (shard, (from, to)) in shards.iter().zip(group.in_message.iter().zip(&group.in_features)) {
                        // Terms of a sum follow the first one below.
                        if !group.partial || shard.part == 0 {
                            for at in 0..group.positions {
                                let message = &message[from + at * group.width..][..group.width];
                                features[to + at * group.step..][..group.width].copy_from_slice(message);
                            }
                        }
                    }
                }
            }
        }
        if let Some((unpooled, batch)) = self.unpooled {
            for (index, table) in unpooled.tables() {
                let (bag, weights) = (&batch.bags[table.index()], &batch.weights[table.index()][..]);
                for (sample, features) in (first..).zip(self.features.chunks_exact_mut(row)) {
                    let look_ups = bag.offsets[sample] as usize..bag.offsets[sample + 1] as usize;
                    let (incoming, own) = (self.incoming, self.own);
                    let pooled = |part: &Part, sample: usize| {
                        let message = if part.rank == own.0 { own.1 } else { incoming.from(part.rank) };
                        let stride = if part.rank == own.0 { part.own_stride } else { part.stride };
                        &message[sample * stride..][part.place.clone()]
                    };
                    unpooled.pool(simd, index, (look_ups, weights), &mut features[layout.columns(table)], pooled);
                }
            }
        }
        // Sums of divided rows: part 0 is in place, the others follow in their order.
        for table in (0..sharding.tables() as u32).map(TableId) {
            if !sharding.partial(table) || self.unpooled.is_some() && layout.sums_of_ranks(table) {
                continue;
            }
            for shard in &sharding.of_table(table)[1..] {
                let same = |(other, _): &(&crate::shard::Shard, _)| *other == shard;
                let (_, place) = layout.of(shard.rank).places().find(same).expect("a shard is in its rank's holding");
                let (incoming, own) = (self.incoming, self.own);
                let (message, stride) = if shard.rank == own.0 {
                    (own.1, layout.of(shard.rank).partial_stride)
                } else {
                    (incoming.from(shard.rank), layout.of(shard.rank).stride)
                };
                let rows = message[first * stride..].chunks_exact(stride);
                for (features, message) in self.features.chunks_exact_mut(row).zip(rows) {
                    let to = &mut features[layout.columns(table)];
                    combine(simd, to, &message[place.clone()], |sum, term| simd.add(sum, term));
                }
            }
        }
    }
}
