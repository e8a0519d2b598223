//! How many bytes a minibatch sends from each rank to each other, as it goes over the wire: what the lanes must have
//! counted afterwards, to the byte.
//!
//! Planning compares divisions of tables by what they make necessary (`shard`). On the wire rows of messages are
//! filled up to whole cache lines, and a line says how long a list of ids is.

use std::collections::HashSet;

use serde::Serialize;

use super::hot::row_words;
use super::layout::{Layout, Stream};
use super::row_gradients;
use super::vectors::MessageForm;
use super::{gradient_bytes, pairs, pooled_bytes};
use crate::base::{RankId, TableId};
use crate::collective::Links;
use crate::data::Batch;
use crate::data::hot::{Inputs, TableSlots};
use crate::shard::scheme::{Rows, Shard};
use crate::sync::Line;

/// Bytes from each rank to each other, by what they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Ids of rows, and weights of look-ups that have some.
    pub ids: Links,
    /// Pooled rows.
    pub pooled_rows: Links,
    /// Gradients of pooled rows.
    pub pooled_gradients: Links,
    /// Gradients of the MLPs and of replicated tables.
    pub dense_gradients: Links,
    /// What goes instead or besides, where the number of ranks shall change no bit: see [`super::Unpooled`],
    /// [`super::Replicas`] and [`super::Nodes`].
    pub ordered: Links,
    /// Sums of the gradients of hot rows, to their owners: see [`super::HotRows`].
    pub hot_gradients: Links,
    /// Hot rows that were moved, to all copies.
    pub hot_rows: Links,
}

impl Traffic {
    /// Its parts, by name.
    #[must_use]
    pub const fn parts(&self) -> [(&'static str, &Links); 7] {
        [
            ("ids", &self.ids),
            ("pooled rows", &self.pooled_rows),
            ("their gradients", &self.pooled_gradients),
            ("dense gradients", &self.dense_gradients),
            ("for determinism", &self.ordered),
            ("hot rows' gradients", &self.hot_gradients),
            ("hot rows", &self.hot_rows),
        ]
    }

    /// From parts in the order of [`Traffic::parts`].
    #[must_use]
    pub fn of(parts: [Links; 7]) -> Self {
        let [ids, pooled_rows, pooled_gradients, dense_gradients, ordered, hot_gradients, hot_rows] = parts;
        Self { ids, pooled_rows, pooled_gradients, dense_gradients, ordered, hot_gradients, hot_rows }
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> Links {
        let none = Links::uniform(self.ids.ranks(), 0);
        self.parts().into_iter().fold(none, |sum, (_, part)| sum.plus(part))
    }

    /// Both, added part by part.
    ///
    /// # Panics
    /// When they are of different numbers of ranks.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let (own, other) = (self.parts(), other.parts());
        Self::of(std::array::from_fn(|part| own[part].1.clone().plus(other[part].1)))
    }

    /// What one training step on `batch`, a whole minibatch of such inputs, sends; `dense` are the dense gradients,
    /// which go by grains where the layout has them. Between cold inputs and others, hot rows go to their copies
    /// beside.
    #[must_use]
    pub fn of_step(layout: &Layout, (batch, inputs): (&Batch, Inputs), dense: &Links) -> Self {
        let (of, none) = (CountedMinibatch { layout, batch, inputs }, || Links::uniform(layout.ranks(), 0));
        let (dense_gradients, ordered) = match layout.grains() {
            None => (dense.clone().plus(&of.replicas()), none()),
            Some(_) => (none(), of.ordered().plus(dense).plus(&of.replicas())),
        };
        let [pooled_rows, pooled_gradients] = of.rows();
        let [hot_gradients, hot_rows] = of.hot();
        let ids = if layout.asks_owners(inputs) { of.ids() } else { none() };
        Self { ids, pooled_rows, pooled_gradients, dense_gradients, ordered, hot_gradients, hot_rows }
    }
}

/// Bytes of a list of words, announced in a line of its own.
const fn list(words: usize) -> usize {
    Line::BYTES + words * size_of::<u32>()
}

/// A minibatch of such inputs, whose messages are counted.
struct CountedMinibatch<'a> {
    layout: &'a Layout,
    batch: &'a Batch,
    inputs: Inputs,
}

impl<'a> CountedMinibatch<'a> {
    /// The bags of a table that belong to a rank's samples.
    fn bags_of(&self, rank: RankId, table: usize) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        let Self { layout, batch, .. } = *self;
        let (bag, positions) = (&batch.bags[table], layout.positions(TableId(table as u32)));
        let samples = layout.slice(batch.samples(), rank);
        (samples.start * positions..samples.end * positions).map(move |at| bag.of(at))
    }

    /// The slots of a table of whose hot rows a rank reads copies.
    fn slots_of(&self, rank: RankId, table: TableId) -> Option<&'a TableSlots> {
        let layout = self.layout;
        layout.served(rank).filter(|_| self.inputs != Inputs::Cold).find(|served| *served == table)?;
        layout.hot().map(|hot| hot.table(table.index()))
    }

    /// The bags of a rank's samples that have look-ups in some rows of a table, how many they have, and whether the
    /// rank pools them from copies of hot rows.
    fn bags_in(&self, rank: RankId, table: TableId, rows: Rows) -> impl Iterator<Item = (usize, bool)> + use<'a> {
        let slots = self.slots_of(rank, table);
        let held = move |bag: &[u32]| bag.iter().filter(|row| rows.local(u64::from(**row)).is_some()).count();
        let bags = self.bags_of(rank, table.index());
        bags.map(move |bag| (held(bag), slots.is_some_and(|slots| slots.serves(bag)))).filter(|(held, _)| *held > 0)
    }

    /// For each stream of a holder the bags that go, and those look-ups that it holds.
    fn ids(&self) -> Links {
        let (layout, form) = (self.layout, self.layout.form());
        let mut links = Links::uniform(layout.ranks(), 0);
        for (from, to) in pairs(layout.ranks()) {
            let words = layout.of(to).streams.iter().map(|stream| {
                let Stream { table, rows, .. } = *stream;
                let bags = self.bags_in(from, table, rows).filter(|(_, hot)| !hot || form.marked());
                let (met, held) = bags.fold((0, 0), |(count, sum), (held, _)| (count + 1, sum + held));
                let every = form == MessageForm::RowPerSample;
                form.words(stream, if every { self.bags_of(from, table.index()).count() } else { met }, held)
            });
            *links.at_mut(from, to) = list(words.sum());
        }
        links
    }

    /// Pooled rows and their gradients: a row for each sample, or where there are copies of hot rows a vector for each
    /// bag that an owner pools, or whose gradient it gets.
    fn rows(&self) -> [Links; 2] {
        let Self { layout, batch, .. } = *self;
        let [mut rows, mut gradients] = [(); 2].map(|()| Links::uniform(layout.ranks(), 0));
        let element = layout.wire().bytes();
        for (owner, asking) in pairs(layout.ranks()) {
            if layout.form() == MessageForm::RowPerSample {
                *rows.at_mut(owner, asking) = pooled_bytes(layout, batch.samples(), owner, asking);
                *gradients.at_mut(asking, owner) = gradient_bytes(layout, batch.samples(), asking, owner);
                continue;
            }
            let (mut cold, mut all) = (0, 0);
            for shard in &layout.of(owner).shards {
                for (_, hot) in self.bags_in(asking, shard.table, shard.rows) {
                    cold += if hot { 0 } else { shard.columns.len() };
                    all += if hot && layout.grains().is_none() { 0 } else { shard.columns.len() };
                }
            }
            *rows.at_mut(owner, asking) = (cold * element).next_multiple_of(Line::BYTES);
            *gradients.at_mut(asking, owner) = (all * element).next_multiple_of(Line::BYTES);
        }
        [rows, gradients]
    }

    /// Sums of the gradients of hot rows that a rank's bags of hot rows alone met, and hot rows that any look-up met.
    fn hot(&self) -> [Links; 2] {
        let Self { layout, inputs, .. } = *self;
        let [mut gradients, mut rows] = [(); 2].map(|()| Links::uniform(layout.ranks(), 0));
        let Some(hot) = layout.hot().filter(|_| inputs != Inputs::Cold) else { return [gradients, rows] };
        let met = |shard: &Shard, from: RankId, own_alone: bool| -> HashSet<u32> {
            let slots = hot.table(shard.table.index());
            let served = self.slots_of(from, shard.table).is_some();
            let bags = self.bags_of(from, shard.table.index());
            let bags = bags.filter(|bag| !own_alone || served && slots.serves(bag));
            let here = |row: &u32| slots.slot(*row).is_some() && shard.rows.local(u64::from(*row)).is_some();
            bags.flatten().copied().filter(here).collect()
        };
        for (from, to) in pairs(layout.ranks()) {
            let shards = &layout.of(to).shards;
            let sums = shards.iter().map(|shard| {
                let rows = met(shard, from, true).len();
                row_gradients::words(rows, shard.columns.len(), rows, 1)
            });
            *gradients.at_mut(from, to) = if layout.grains().is_none() { list(sums.sum()) } else { 0 };
        }
        for owner in (0..layout.ranks() as u32).map(RankId) {
            let moved = layout.of(owner).shards.iter().map(|shard| {
                let all = (0..layout.ranks() as u32).flat_map(|from| met(shard, RankId(from), false));
                row_words(all.collect::<HashSet<_>>().len(), layout.hot_words(shard))
            });
            let bytes = list(moved.sum());
            let others = (0..layout.ranks() as u32).map(RankId).filter(|to| *to != owner);
            others.for_each(|to| *rows.at_mut(owner, to) = bytes);
        }
        [gradients, rows]
    }

    /// Rows of bags with several look-ups in a shard.
    fn ordered(&self) -> Links {
        let Self { layout, inputs, .. } = *self;
        let sharding = layout.sharding();
        let divided = sharding.shards().iter().any(|shard| layout.sums_of_ranks(shard.table));
        let mut links = Links::uniform(layout.ranks(), 0);
        for (from, to) in pairs(layout.ranks()) {
            let mut bytes = 0;
            if divided && layout.owners_pool(inputs) {
                let shards = layout.of(from).partial().filter(|(_, shard)| layout.sums_of_ranks(shard.table));
                let elements = shards.flat_map(|(_, shard)| {
                    let bags = self.bags_in(to, shard.table, shard.rows);
                    bags.filter(|(count, hot)| *count > 1 && !hot).map(|(count, _)| count * shard.columns.len())
                });
                bytes += list(elements.sum());
            }
            *links.at_mut(from, to) = bytes;
        }
        links
    }

    /// What ranks have for the replicated tables, around a ring: a rank's own list, then those of all but the next.
    fn replicas(&self) -> Links {
        let Self { layout, batch, .. } = *self;
        let (ranks, sharding) = (layout.ranks(), layout.sharding());
        let mut links = Links::uniform(ranks, 0);
        if layout.replicated().is_empty() {
            return links;
        }
        let of_rank = |rank: usize| {
            let parts = layout.replicated().iter().map(|table| {
                let (dim, rank) = (sharding.dim(*table), RankId(rank as u32));
                let rows = || self.bags_of(rank, table.index()).flatten();
                if layout.grains().is_some() {
                    let samples = layout.samples(batch.samples(), rank) * layout.positions(*table);
                    let (look_ups, each) = (rows().count(), 1 + usize::from(layout.weighted(*table)));
                    return row_gradients::words(samples, dim, look_ups, each);
                }
                let met = rows().collect::<HashSet<_>>().len();
                row_gradients::words(met, dim, met, 1)
            });
            list(parts.sum())
        };
        let lists: Vec<usize> = (0..ranks).map(of_rank).collect();
        for from in 0..ranks {
            let next = (from + 1) % ranks;
            let [from_rank, to] = [from, next].map(|rank| RankId(rank as u32));
            *links.at_mut(from_rank, to) = lists.iter().sum::<usize>() - lists[next];
        }
        links
    }
}
