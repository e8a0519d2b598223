//! What a step of ranks should send, counted from the minibatch and from what messages have by their definition: by
//! nothing of what writes them.

use std::collections::HashSet;

use octorec::base::{RankId, Result, TableId};
use octorec::collective::Links;
use octorec::data::Batch;
use octorec::data::hot::{Inputs, TableSlots};
use octorec::exchange::{Layout, Traffic};
use octorec::shard::Shard;
use octorec::shard::traffic::id_streams;
use octorec::train::Ranks;

/// Bytes of a cache line, up to which rows of messages are filled.
const LINE: usize = 64;

/// Bytes that a training step on this minibatch of such inputs sends, as planned: [`Ranks::traffic`] grows by just so
/// much.
pub fn planned_traffic(ranks: &Ranks, batch: &Batch, inputs: Inputs) -> Result<Traffic> {
    Ok(step_traffic(ranks.layout(), (batch, inputs), &ranks.dense_traffic()?))
}

/// What one training step on `batch`, a whole minibatch of such inputs, sends; `dense` are the dense gradients, which
/// go by grains where the layout has them. Between cold inputs and others, hot rows go to their copies beside.
pub fn step_traffic(layout: &Layout, (batch, inputs): (&Batch, Inputs), dense: &Links) -> Traffic {
    let (of, none) = (CountedMinibatch { layout, batch, inputs }, || Links::uniform(layout.ranks(), 0));
    let dense = of.replicas().plus(dense);
    let (dense_gradients, ordered) = match layout.grains() {
        None => (dense, none()),
        Some(_) => (none(), of.ordered().plus(&dense)),
    };
    let ids = if of.owners_pool() || layout.grains().is_some() { of.ids() } else { none() };
    let [pooled_rows, pooled_gradients] = of.rows();
    let [hot_gradients, hot_rows] = of.hot();
    Traffic { ids, pooled_rows, pooled_gradients, dense_gradients, ordered, hot_gradients, hot_rows }
}

/// Both, added part by part.
pub fn plus(one: &Traffic, other: &Traffic) -> Traffic {
    let mut others = other.parts().into_iter();
    one.clone().map(|links| links.plus(others.next().expect("as many parts").1))
}

/// Bytes of a list of words of 32 bits, announced in a line of its own.
const fn list(words: usize) -> usize {
    LINE + words * 4
}

/// Words of a part of a list of gradients: how many there are, the vectors, where the look-ups of each begin and the
/// last ones end, and so many words of these.
const fn gradients(vectors: usize, width: usize, look_ups: usize) -> usize {
    1 + vectors * width + vectors + 1 + look_ups
}

/// Whether all of a bag's rows are hot, and there are any.
fn are_hot(slots: &TableSlots, bag: &[u32]) -> bool {
    !bag.is_empty() && bag.iter().all(|row| slots.slot(*row).is_some())
}

/// A minibatch of such inputs, whose messages are counted.
struct CountedMinibatch<'a> {
    layout: &'a Layout,
    batch: &'a Batch,
    inputs: Inputs,
}

impl<'a> CountedMinibatch<'a> {
    /// Whether owners pool rows for other ranks: not where copies serve all.
    fn owners_pool(&self) -> bool {
        self.inputs != Inputs::Hot || self.layout.hot().is_none()
    }

    /// The bags of a table that belong to a rank's samples.
    fn bags_of(&self, rank: RankId, table: TableId) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        let Self { layout, batch, .. } = *self;
        let (bag, positions) = (&batch.bags[table.index()], layout.positions(table));
        let samples = layout.slice(batch.samples(), rank);
        (samples.start * positions..samples.end * positions).map(move |at| bag.of(at))
    }

    /// The slots of a table of whose hot rows a rank reads copies.
    fn slots_of(&self, rank: RankId, table: TableId) -> Option<&'a TableSlots> {
        let layout = self.layout;
        layout.served(rank).filter(|_| self.inputs != Inputs::Cold).find(|served| *served == table)?;
        layout.hot().map(|hot| hot.table(table.index()))
    }

    /// The bags of a rank's samples that have look-ups in a shard's rows, how many they have, and whether the rank
    /// pools them from copies of hot rows.
    fn bags_in(&self, rank: RankId, shard: &Shard) -> impl Iterator<Item = (usize, bool)> + use<'a> {
        let (slots, rows) = (self.slots_of(rank, shard.table), shard.rows);
        let held = move |bag: &[u32]| bag.iter().filter(|row| rows.local(u64::from(**row)).is_some()).count();
        let bags = self.bags_of(rank, shard.table);
        bags.map(move |bag| (held(bag), slots.is_some_and(|slots| are_hot(slots, bag)))).filter(|(held, _)| *held > 0)
    }

    /// For each stream of an owner where its bags begin and the last one ends, and those look-ups that the owner has.
    /// Where there are copies of hot rows, bags without such look-ups stay away, so that their number goes first, and
    /// bags that copies serve do, too, or, where sums have an order, a bit a bag says which these are.
    fn ids(&self) -> Links {
        let (layout, ordered) = (self.layout, self.layout.grains().is_some());
        Links::from_fn(layout.ranks(), |from, to| {
            let streams = id_streams(layout.sharding()).filter(|shard| shard.rank == to);
            let words = streams.map(|shard| {
                let bags = self.bags_in(from, shard).filter(|(_, hot)| !hot || ordered);
                let (met, held) = bags.fold((0, 0), |(count, sum), (held, _)| (count + 1, sum + held));
                let look_ups = held * if layout.weighted(shard.table) { 2 } else { 1 };
                match layout.hot() {
                    None => self.bags_of(from, shard.table).count() + 1 + look_ups,
                    Some(_) => 1 + met + 1 + look_ups + if ordered { usize::div_ceil(met, 32) } else { 0 },
                }
            });
            list(words.sum())
        })
    }

    /// Pooled rows and their gradients: a row for each sample, or where there are copies of hot rows a vector for each
    /// bag that an owner pools, or whose gradient it gets.
    fn rows(&self) -> [Links; 2] {
        let Self { layout, batch, .. } = *self;
        let (ranks, element) = (layout.ranks(), layout.wire().bytes());
        let bytes = |owner: RankId, asking: RankId, all: bool| {
            let shards = layout.of(owner).shards.iter();
            if layout.hot().is_none() {
                let row: usize = shards.map(|shard| shard.columns.len() * layout.positions(shard.table)).sum();
                return layout.samples(batch.samples(), asking) * (row * element).next_multiple_of(LINE);
            }
            let bags = |shard: &Shard| self.bags_in(asking, shard).filter(|(_, hot)| all || !hot).count();
            (shards.map(|shard| bags(shard) * shard.columns.len()).sum::<usize>() * element).next_multiple_of(LINE)
        };
        let rows = Links::from_fn(ranks, |owner, asking| bytes(owner, asking, false));
        [rows, Links::from_fn(ranks, |asking, owner| bytes(owner, asking, layout.grains().is_some()))]
    }

    /// Sums of the gradients of hot rows that a rank's bags of hot rows alone met, and hot rows that any look-up met:
    /// of each shard how many they are, and of each its slot and what look-ups read.
    fn hot(&self) -> [Links; 2] {
        let Self { layout, inputs, .. } = *self;
        let (ranks, none) = (layout.ranks(), Links::uniform(layout.ranks(), 0));
        let Some(hot) = layout.hot().filter(|_| inputs != Inputs::Cold) else { return [none.clone(), none] };
        let met = |shard: &Shard, from: RankId, own_alone: bool| -> HashSet<u32> {
            let slots = hot.table(shard.table.index());
            let served = self.slots_of(from, shard.table).is_some();
            let bags = self.bags_of(from, shard.table);
            let bags = bags.filter(|bag| !own_alone || served && are_hot(slots, bag));
            let here = |row: &u32| slots.slot(*row).is_some() && shard.rows.local(u64::from(*row)).is_some();
            bags.flatten().copied().filter(here).collect()
        };
        let sums = Links::from_fn(ranks, |from, to| {
            let sums = layout.of(to).shards.iter().map(|shard| {
                let rows = met(shard, from, true).len();
                gradients(rows, shard.columns.len(), rows)
            });
            list(sums.sum())
        });
        let moved = RankId::all(ranks).map(|owner| {
            let moved = layout.of(owner).shards.iter().map(|shard| {
                let all: HashSet<_> = RankId::all(ranks).flat_map(|from| met(shard, from, false)).collect();
                1 + all.len() * (1 + layout.hot_words(shard))
            });
            list(moved.sum())
        });
        let moved: Vec<usize> = moved.collect();
        // Where sums have an order, gradients go bag by bag.
        [if layout.grains().is_none() { sums } else { none }, Links::from_fn(ranks, |owner, _| moved[owner.index()])]
    }

    /// Rows of bags with several look-ups in a shard of divided rows.
    fn ordered(&self) -> Links {
        let layout = self.layout;
        let divided = |shard: &&Shard| layout.sums_of_ranks(shard.table);
        if !self.owners_pool() || !layout.sharding().shards().iter().any(|shard| divided(&shard)) {
            return Links::uniform(layout.ranks(), 0);
        }
        Links::from_fn(layout.ranks(), |from, to| {
            let elements = layout.of(from).shards.iter().filter(divided).flat_map(|shard| {
                let bags = self.bags_in(to, shard).filter(|(count, hot)| *count > 1 && !hot);
                bags.map(|(count, _)| count * shard.columns.len())
            });
            list(elements.sum())
        })
    }

    /// What ranks have for the replicated tables, around a ring: a rank's own list, then those of all but the next.
    fn replicas(&self) -> Links {
        let Self { layout, batch, .. } = *self;
        let ranks = layout.ranks();
        if layout.replicated().is_empty() {
            return Links::uniform(ranks, 0);
        }
        let lists = RankId::all(ranks).map(|rank| {
            let parts = layout.replicated().iter().map(|table| {
                let (dim, rows) = (layout.sharding().dim(*table), || self.bags_of(rank, *table).flatten());
                if layout.grains().is_some() {
                    let samples = layout.samples(batch.samples(), rank) * layout.positions(*table);
                    return gradients(samples, dim, rows().count() * if layout.weighted(*table) { 2 } else { 1 });
                }
                let met = rows().collect::<HashSet<_>>().len();
                gradients(met, dim, met)
            });
            list(parts.sum())
        });
        let lists: Vec<usize> = lists.collect();
        Links::from_fn(ranks, |from, to| {
            let next = (from.index() + 1) % ranks;
            if to.index() == next { lists.iter().sum::<usize>() - lists[next] } else { 0 }
        })
    }
}
