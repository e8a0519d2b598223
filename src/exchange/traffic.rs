//! How many bytes a minibatch sends from each rank to each other, as it goes over the wire: what the lanes must have
//! counted afterwards, to the byte.
//!
//! [`crate::shard::traffic`] counts what a division of tables makes necessary; planning compares divisions by it. On the
//! wire rows of messages are filled up to whole cache lines, and a line says how long a list of ids is.

use std::collections::HashSet;

use serde::Serialize;

use super::layout::{Layout, Stream};
use super::replicas::part_words;
use super::{gradient_bytes, pairs, pooled_bytes};
use crate::base::{RankId, TableId};
use crate::collective::Links;
use crate::data::{Bag, Batch};
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
    /// What goes instead or besides, where the number of ranks shall change no bit: see [`super::Unpooled`], [`super::Replicas`] and [`super::Nodes`].
    pub ordered: Links,
}

impl Traffic {
    /// Its parts, by name.
    #[must_use]
    pub const fn parts(&self) -> [(&'static str, &Links); 5] {
        [
            ("ids", &self.ids),
            ("pooled rows", &self.pooled_rows),
            ("their gradients", &self.pooled_gradients),
            ("dense gradients", &self.dense_gradients),
            ("for determinism", &self.ordered),
        ]
    }

    /// From parts in the order of [`Traffic::parts`].
    #[must_use]
    pub fn of([ids, pooled_rows, pooled_gradients, dense_gradients, ordered]: [Links; 5]) -> Self {
        Self { ids, pooled_rows, pooled_gradients, dense_gradients, ordered }
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

    /// What one training step on `batch`, a whole minibatch, sends; `dense` are the dense gradients, which go by grains
    /// where the layout has them.
    #[must_use]
    pub fn of_step(layout: &Layout, batch: &Batch, dense: &Links) -> Self {
        let (ranks, whole) = (layout.ranks(), batch.samples());
        let none = || Links::uniform(ranks, 0);
        let rows = |bytes: fn(&Layout, usize, RankId, RankId) -> usize| {
            let mut links = none();
            pairs(ranks).for_each(|(from, to)| *links.at_mut(from, to) = bytes(layout, whole, from, to));
            links
        };
        let (dense_gradients, ordered) = match layout.grains() {
            None => (dense.clone().plus(&replicas(layout, batch)), none()),
            Some(_) => (none(), ordered(layout, batch).plus(dense).plus(&replicas(layout, batch))),
        };
        Self {
            ids: ids(layout, batch),
            pooled_rows: rows(pooled_bytes),
            pooled_gradients: rows(gradient_bytes),
            dense_gradients,
            ordered,
        }
    }
}

/// Bytes of a list of words, announced in a line of its own.
const fn list(words: usize) -> usize {
    Line::BYTES + words * size_of::<u32>()
}

/// The bags of a table that belong to a rank's samples.
fn bags_of<'a>(layout: &Layout, batch: &'a Batch, rank: RankId, table: usize) -> impl Iterator<Item = &'a [u32]> {
    let (bag, positions): (&'a Bag, _) = (&batch.bags[table], layout.positions(TableId(table as u32)));
    let samples = layout.slice(batch.samples(), rank);
    (samples.start * positions..samples.end * positions).map(move |at| bag.of(at))
}

/// Words of a look-up: its row, and its weight if the column has weights.
const fn words(weighted: bool) -> usize {
    1 + weighted as usize
}

/// For each stream of a holder where every sample's ids begin and the last one's end, and those look-ups that it holds.
fn ids(layout: &Layout, batch: &Batch) -> Links {
    let mut links = Links::uniform(layout.ranks(), 0);
    for (from, to) in pairs(layout.ranks()) {
        let words = layout.of(to).streams.iter().map(|Stream { table, rows, weighted, .. }| {
            let held = |bag: &[u32]| bag.iter().filter(|row| rows.local(u64::from(**row)).is_some()).count();
            let bags = bags_of(layout, batch, from, table.index());
            1 + bags.map(|bag| 1 + held(bag) * words(*weighted)).sum::<usize>()
        });
        *links.at_mut(from, to) = list(words.sum());
    }
    links
}

/// Rows of bags with several look-ups in a shard.
fn ordered(layout: &Layout, batch: &Batch) -> Links {
    let sharding = layout.sharding();
    let divided = sharding.shards().iter().any(|shard| layout.sums_of_ranks(shard.table));
    let mut links = Links::uniform(layout.ranks(), 0);
    for (from, to) in pairs(layout.ranks()) {
        let mut bytes = 0;
        if divided {
            let shards = layout.of(from).partial().filter(|(_, shard)| layout.sums_of_ranks(shard.table));
            let elements = shards.flat_map(|(_, shard)| {
                let bags = bags_of(layout, batch, to, shard.table.index());
                let held = |bag: &[u32]| bag.iter().filter(|row| shard.rows.local(u64::from(**row)).is_some()).count();
                bags.map(held).filter(|count| *count > 1).map(|count| count * shard.columns.len())
            });
            bytes += list(elements.sum());
        }
        *links.at_mut(from, to) = bytes;
    }
    links
}

/// What ranks have for the replicated tables, around a ring: a rank's own list, then those of all but the next.
fn replicas(layout: &Layout, batch: &Batch) -> Links {
    let (ranks, sharding) = (layout.ranks(), layout.sharding());
    let mut links = Links::uniform(ranks, 0);
    if layout.replicated().is_empty() {
        return links;
    }
    let of_rank = |rank: usize| {
        let parts = layout.replicated().iter().map(|table| {
            let (dim, rank) = (sharding.dim(*table), RankId(rank as u32));
            let rows = || bags_of(layout, batch, rank, table.index()).flatten();
            if layout.grains().is_some() {
                let samples = layout.samples(batch.samples(), rank) * layout.positions(*table);
                return part_words(samples, dim, rows().count(), words(layout.weighted(*table)));
            }
            let met = rows().collect::<HashSet<_>>().len();
            part_words(met, dim, met, 1)
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
