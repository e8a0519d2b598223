//! Pooled rows, from their owners to the ranks that have the samples.
//!
//! The owner's look-up writes into the receiver's window; the receiver brings what came from other owners to its place
//! among the features. What the receiver holds whole is there already: its look-up writes the features themselves. Sums
//! of divided rows are added in the order of the table's parts, whoever was first; or row by row, where the number of
//! ranks shall change no bit ([`super::Unpooled`]).

use super::ids::is_served;
use super::layout::{Group, Layout};
use super::messages::{Cells, Rounding, RowMessages};
use super::unpooled::Unpooled;
use super::vectors::MessageForm;
use super::{Ids, Minibatch, Pass, RankContext, Route, Vectors};
use crate::base::{RankId, Result, TableId};
use crate::collective::{Carrier, Incoming, Opened};
use crate::data::Batch;
use crate::math::Part;
use crate::memory::{Buffer, Supply};
use crate::simd::{Kernel, Simd};
use crate::sync::{Line, Rows, Stores};

/// Bytes of the shortest message that passes the caches, on one node, too: of tiny minibatches on few cores, what is
/// shorter is still in them when it is read, and a link between sockets carries it in no time that shows.
const LONG: usize = 256 << 10;

/// The exchange of pooled rows, with its memory.
#[derive(Debug)]
pub struct Pooled {
    messages: RowMessages,
    rounding: Rounding,
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
        let rounding = Rounding::new(context, Pass::Forward, batch, supply)?;
        Ok(Self { messages: RowMessages::new(context, Pass::Forward), rounding, own })
    }

    /// Lets `look_up` write, for each other rank, this rank's part of the pooled rows of that rank's samples: rows of
    /// the layout's stride, or the vectors that `ids` tell of, by the stores that are best; for as many ranks at once
    /// as have a place for them. Where copies serve all look-ups, nothing is pooled for others, here and in
    /// [`Pooled::finish`].
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
        mut look_up: impl FnMut(&mut [Opened<'_>]),
    ) -> Result<()> {
        if !context.layout.owners_pool(minibatch.inputs) {
            return Ok(());
        }
        let Self { messages, rounding, .. } = self;
        messages.begin(context, carrier, minibatch, ids, |messages| {
            let short = messages.iter_mut().filter(|message| size_of_val::<[Line]>(message.lines) < LONG);
            short.for_each(|message| message.stores = Stores::Plain);
            rounding.fill(context, messages, &mut look_up);
        })
    }

    /// Where this rank's pooled terms of its own samples go: rows of the layout's partial stride, or the vectors that
    /// `ids` tell of.
    pub fn own_mut(&mut self, context: &RankContext, minibatch: &Minibatch, ids: &Ids) -> &mut [f32] {
        let vectors = ids.vectors(Route::own(context.rank), Pass::Forward);
        &mut self.own[..vectors.elements(context.samples(minibatch.whole))]
    }

    /// Whether [`Pooled::finish`] would not wait for any owner.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn has_come(
        &mut self,
        context: &RankContext,
        carrier: &mut dyn Carrier,
        minibatch: &Minibatch,
    ) -> Result<bool> {
        Ok(!context.layout.owners_pool(minibatch.inputs) || self.messages.has_come(carrier)?)
    }

    /// Waits for all owners and writes the pooled rows of every divided table that this rank does not hold whole to
    /// `features`, those of a part of its slice, a row a sample; called for one part after the other, since the windows
    /// are given back with the last. With `unpooled`, exchanged before, bags of divided rows are summed in their own
    /// order.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn finish(
        &mut self,
        context: &RankContext,
        carrier: &mut dyn Carrier,
        (minibatch, ids): (&Minibatch, &Ids),
        (part, features): (&Part<'_>, &mut [f32]),
        unpooled: Option<&Unpooled>,
    ) -> Result<()> {
        let (team, layout) = (&context.team, &*context.layout);
        if !layout.owners_pool(minibatch.inputs) {
            return Ok(());
        }
        let mut incoming = self.messages.finish(carrier)?;
        if !part.is_last {
            incoming.keep();
        }
        let (isa, incoming, own) = (team.isa(), &incoming, &self.own[..]);
        let unpooled = unpooled.map(|unpooled| (unpooled, &*minibatch.slice));
        let row = layout.feature_row();
        if row == 0 || features.is_empty() || layout.ranks() == 1 && layout.of(context.rank).partial_stride == 0 {
            return Ok(());
        }
        team.each(Rows::new(features, row, team.threads(), 1), |band| {
            let first = part.samples.start + band.first;
            isa.run(Join { layout, ids, incoming, own, unpooled, first, features: band.data });
        });
        Ok(())
    }
}

/// Brings what owners have pooled to its places among the features, for some samples. Where messages have a vector for
/// some bags only, all places are 0, or hold what was pooled from copies of hot rows, before.
struct Join<'a, 'b> {
    layout: &'a Layout,
    ids: &'a Ids,
    incoming: &'a Incoming<'b>,
    own: &'a [f32],
    unpooled: Option<(&'a Unpooled, &'a Batch)>,
    first: usize,
    features: &'a mut [f32],
}

impl<'a> Join<'a, '_> {
    /// The pooled rows from a rank, or of divided rows this rank's own.
    fn message(&self, from: RankId) -> Cells<'a> {
        if from == self.ids.rank() {
            return Cells::Floats(self.own);
        }
        Cells::new(self.layout.wire(), self.incoming.from(from))
    }

    /// Copies all that an owner has pooled, row by row; of sums, the first terms.
    #[inline(always)]
    fn copy_rows<S: Simd>(&mut self, simd: S, owner: RankId, stride: usize) {
        let (layout, row) = (self.layout, self.layout.feature_row());
        let groups = layout.groups(Route { owner, asking: self.ids.rank() });
        if stride == 0 {
            return;
        }
        let message = self.message(owner);
        for (sample, features) in (self.first..).zip(self.features.chunks_exact_mut(row)) {
            let message = message.behind(sample * stride);
            for group in groups {
                let shards = &layout.of(owner).shards[group.shards.clone()];
                for (shard, (from, to)) in shards.iter().zip(group.in_message.iter().zip(&group.in_features)) {
                    if !group.partial || shard.part == 0 {
                        for at in 0..group.positions {
                            let features = &mut features[to + at * group.step..][..group.width];
                            message.put::<S, false>(simd, from + at * group.width, features);
                        }
                    }
                }
            }
        }
    }

    /// Takes the vectors of a shard, each to its place: as they are, or to `ADD` them to what is there.
    #[inline(always)]
    fn take<S: Simd, const ADD: bool>(&mut self, simd: S, owner: RankId, group: &Group, at: usize) {
        let Group { width, positions, step, .. } = *group;
        let (row, start) = (self.layout.feature_row(), group.in_features[at]);
        let samples = self.features.len() / row;
        let message = self.message(owner);
        match self.ids.vectors(Route { owner, asking: self.ids.rank() }, Pass::Forward) {
            Vectors::Rows(stride) => {
                // Where a sequence's vectors lie side by side at both ends, they are one.
                let (width, positions) = if step == width { (positions * width, 1) } else { (width, positions) };
                for (sample, features) in (self.first..).zip(self.features.chunks_exact_mut(row)) {
                    let message = message.behind(sample * stride + group.in_message[at]);
                    for position in 0..positions {
                        let features = &mut features[start + position * step..][..width];
                        message.put::<S, ADD>(simd, position * width, features);
                    }
                }
            }
            Vectors::Bags(starts) => {
                let (shard, place) = (group.shards.start + at, |number: &u32| *number as usize / positions);
                let numbers = self.ids.list(owner, group.streams[at], Pass::Forward);
                let skipped = numbers.partition_point(|number| place(number) < self.first);
                for (index, number) in numbers.iter().enumerate().skip(skipped) {
                    let (sample, position) = (place(number), *number as usize % positions);
                    if sample >= self.first + samples {
                        break;
                    }
                    let start = (sample - self.first) * row + start + position * step;
                    let features = &mut self.features[start..start + width];
                    message.put::<S, ADD>(simd, starts[shard] + index * width, features);
                }
            }
        }
    }
}

impl Kernel for Join<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let (layout, ids, own) = (self.layout, self.ids, self.ids.rank());
        for owner in RankId::all(layout.ranks()) {
            let route = Route { owner, asking: own };
            if let Vectors::Rows(stride) = ids.vectors(route, Pass::Forward) {
                self.copy_rows(simd, owner, *stride);
                continue;
            }
            for group in layout.groups(route).iter().filter(|group| !group.partial) {
                for at in 0..group.shards.len() {
                    self.take::<S, false>(simd, owner, group, at);
                }
            }
        }
        if let Some((unpooled, batch)) = self.unpooled {
            let row = layout.feature_row();
            for (index, table) in unpooled.tables() {
                let (bag, weights) = (&batch.bags[table.index()], &batch.weights[table.index()][..]);
                let (hot, columns) = (ids.hot_bag(table), layout.columns(table));
                let (incoming, of_own) = (self.incoming, self.own);
                // Where the number of ranks changes no bit, what travels is not rounded.
                let floats = |from: RankId| bytemuck::cast_slice(incoming.from(from));
                let message = |from: RankId| if from == own { of_own } else { floats(from) };
                for (sample, features) in (self.first..).zip(self.features.chunks_exact_mut(row)) {
                    if !is_served(hot, sample) {
                        let look_ups = bag.offsets[sample] as usize..bag.offsets[sample + 1] as usize;
                        unpooled.pool(simd, index, (look_ups, weights), &mut features[columns.clone()], message);
                    }
                }
            }
        }
        // Sums of divided rows, whose parts follow in their order; in rows the first one is in place.
        let copied = usize::from(layout.form() == MessageForm::RowPerSample);
        for table in TableId::all(layout.sharding().tables()) {
            if !layout.sharding().partial(table) || self.unpooled.is_some() && layout.sums_of_ranks(table) {
                continue;
            }
            for shard in &layout.sharding().of_table(table)[copied..] {
                let [group, at] = layout.of(shard.rank).find(shard);
                self.take::<S, true>(simd, shard.rank, &layout.of(shard.rank).groups[group], at);
            }
        }
    }
}
