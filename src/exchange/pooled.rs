//! Pooled rows, from their owners to the ranks that have the samples.
//!
//! The owner's look-up writes into the receiver's window; the receiver brings what came from all owners side by side.
//! Sums of divided rows are added in the order of the table's parts, whoever was first; or row by row, where the number
//! of ranks shall change no bit ([`super::Rest`]).

use super::layout::Layout;
use super::ordered::{Part, Rest};
use super::pooled_parcels;
use crate::base::{RankId, Result, TableId};
use crate::collective::{Incoming, Lane, OneSided, Payload};
use crate::data::Batch;
use crate::machine::team::Team;
use crate::memory::{Arena, Buffer, Supply};
use crate::simd::{Kernel, Simd, combine};
use crate::sync::{Line, Rows};

/// The exchange of pooled rows, with its memory.
#[derive(Debug)]
pub struct Pooled {
    rank: RankId,
    whole: usize,
    messages: Option<OneSided>,
    /// What this rank sends itself.
    own: Buffer<f32>,
}

impl Pooled {
    /// For `rank`, with room for minibatches of `batch` samples.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(layout: &Layout, rank: RankId, batch: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let own = supply.buffer("own pooled rows", layout.samples(batch, rank) * layout.of(rank).stride)?;
        Ok(Self { rank, whole: 0, messages: None, own })
    }

    /// Takes its memory from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.own.settle(arena);
    }

    /// Lets `look_up` write, for each rank, this rank's part of the pooled rows of that rank's samples: rows of the
    /// layout's stride. `whole` is the size of the whole minibatch.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When the minibatch is larger than was planned.
    pub fn begin(
        &mut self,
        layout: &Layout,
        lane: &mut Lane,
        whole: usize,
        mut look_up: impl FnMut(RankId, &mut [f32]),
    ) -> Result<()> {
        let (outbox, inbox) = lane.halves();
        if self.whole != whole || self.messages.is_none() {
            let parcels = pooled_parcels(layout, whole);
            self.messages = Some(OneSided::new(&parcels, Payload::F32, outbox, inbox, "exchange of pooled rows"));
            self.whole = whole;
        }
        let messages = self.messages.as_mut().expect("planned above");
        messages.begin(outbox, |to, lines| look_up(to, bytemuck::cast_slice_mut(lines)))?;
        let own = layout.samples(whole, self.rank) * layout.of(self.rank).stride;
        look_up(self.rank, &mut self.own[..own]);
        Ok(())
    }

    /// Waits for all owners and writes the pooled rows of every divided table to `features`, a row a sample with `dim`
    /// elements a table. With `rest`, exchanged before, bags of divided rows are summed in their own order; they are
    /// those of `batch`.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When nothing was begun.
    pub fn finish(
        &mut self,
        team: &Team,
        layout: &Layout,
        lane: &mut Lane,
        features: &mut [f32],
        rest: Option<(&Rest, &Batch)>,
    ) -> Result<()> {
        let incoming = self.messages.as_ref().expect("begun before").finish(lane.halves().1)?;
        let (isa, own) = (team.isa(), (self.rank, &self.own[..]));
        let row = layout.sharding().tables() * layout.sharding().dim();
        if row == 0 || features.is_empty() {
            return Ok(());
        }
        team.each(Rows::new(features, row, team.threads(), 1), |band| {
            isa.run(Join { layout, incoming: &incoming, own, rest, first: band.first, row, features: band.data });
        });
        Ok(())
    }
}

/// Brings the rows of all owners side by side, for some samples.
struct Join<'a> {
    layout: &'a Layout,
    incoming: &'a Incoming<'a>,
    own: (RankId, &'a [f32]),
    rest: Option<(&'a Rest, &'a Batch)>,
    first: usize,
    row: usize,
    features: &'a mut [f32],
}

impl Kernel for Join<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { layout, incoming, own, rest, first, row, features } = self;
        let sharding = layout.sharding();
        let dim = sharding.dim();
        for owner in (0..layout.ranks() as u32).map(RankId) {
            let holding = layout.of(owner);
            if holding.shards.is_empty() {
                continue;
            }
            let message = if owner == own.0 { own.1 } else { floats(incoming.from(owner)) };
            let rows = message[first * holding.stride..].chunks_exact(holding.stride);
            for (features, message) in features.chunks_exact_mut(row).zip(rows) {
                for (shard, place) in holding.places() {
                    if !sharding.partial(shard.table) || shard.part == 0 {
                        let start = shard.table.index() * dim + shard.columns.start;
                        features[start..start + shard.columns.len()].copy_from_slice(&message[place]);
                    }
                }
            }
        }
        if let Some((rest, batch)) = rest {
            for (index, table) in rest.tables() {
                let (bag, weights) = (&batch.bags[table.index()], &batch.weights[table.index()][..]);
                for (sample, features) in (first..).zip(features.chunks_exact_mut(row)) {
                    let look_ups = bag.offsets[sample] as usize..bag.offsets[sample + 1] as usize;
                    let to = &mut features[table.index() * dim..][..dim];
                    let pooled = |part: &Part| {
                        let message = if part.rank == own.0 { own.1 } else { floats(incoming.from(part.rank)) };
                        &message[sample * part.stride..][part.place.clone()]
                    };
                    rest.pool(simd, index, (look_ups, weights), to, pooled);
                }
            }
            return;
        }
        // Sums of divided rows: part 0 is in place, the others follow in their order.
        for table in (0..sharding.tables() as u32).map(TableId) {
            if !sharding.partial(table) {
                continue;
            }
            for shard in &sharding.of_table(table)[1..] {
                let holding = layout.of(shard.rank);
                let same = |(other, _): &(&crate::shard::Shard, _)| *other == shard;
                let (_, place) = holding.places().find(same).expect("a shard is in its rank's holding");
                let message = if shard.rank == own.0 { own.1 } else { floats(incoming.from(shard.rank)) };
                let rows = message[first * holding.stride..].chunks_exact(holding.stride);
                for (features, message) in features.chunks_exact_mut(row).zip(rows) {
                    let to = &mut features[table.index() * dim..][..dim];
                    combine(simd, to, &message[place.clone()], |sum, term| simd.add(sum, term));
                }
            }
        }
    }
}

/// The elements of a message.
pub(super) fn floats(lines: &[Line]) -> &[f32] {
    bytemuck::cast_slice(lines)
}
