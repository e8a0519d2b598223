//! What keeps copies of hot rows equal to the rows: sums of their gradients, to the owners, and the moved rows, from
//! there.
//!
//! A rank's bags of hot rows alone never leave it, so it sums their gradients row by row and sends each owner a list
//! for every shard: rows that were met, each once with its sum. The owner moves a row once a step, by these sums and
//! the gradients of bags that came whole, and keeps alone what the optimizer needs. Then every hot row that moved goes
//! to all ranks, as look-ups read it. A row that `n` of `r` ranks met so costs `n` gradients and `r - 1` rows, however
//! often it was looked up.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::layout::Layout;
use super::row_gradients::{RowListPart, RowListParts};
use super::{RankContext, Route};
use crate::base::{RankId, Result, TableId};
use crate::collective::{Carrier, ListExchange};
use crate::embedding::Source;
use crate::exchange::Group;
use crate::machine::team::Team;
use crate::shard::scheme::Shard;
use crate::simd::Isa;
use crate::sync::{AtomicU32, atomic_words_32};

/// Both exchanges, with their memory.
#[derive(Debug)]
pub struct HotRows {
    rank: RankId,
    sums: ListExchange,
    rows: ListExchange,
    /// Sums for all owners.
    out: Vec<u32>,
    /// Where those for each owner begin; one more entry than ranks. While room is being allotted, entries beyond
    /// `last + 1` are stale.
    starts: Vec<usize>,
    /// The last owner that has got room.
    last: usize,
    /// By sender.
    into: Vec<Vec<u32>>,
    /// By sender: a part of its list for each of this rank's shards.
    parts: Vec<RowListParts>,
    /// This rank's hot rows that moved.
    own: Vec<u32>,
    /// Its part of each of this rank's shards.
    own_parts: Vec<MovedPart>,
    /// By owner; nothing of this rank's own.
    lists: Vec<Vec<u32>>,
}

/// Where a shard's part of a list of moved rows lies: how many they are, their slots, and then so many words of each as
/// look-ups read ([`Layout::hot_words`]).
#[derive(Debug, Clone, Copy)]
struct MovedPart {
    start: usize,
    rows: usize,
    words: usize,
}

impl MovedPart {
    const fn slots(self) -> Range<usize> {
        self.start + 1..self.start + 1 + self.rows
    }

    const fn seen(self) -> Range<usize> {
        self.slots().end..self.slots().end + self.rows * self.words
    }
}

/// This rank's list of hot rows that moved, with room for each, to be written by a team.
#[derive(Debug, Clone, Copy)]
pub struct MovedList<'a> {
    words: &'a [AtomicU32],
    parts: &'a [MovedPart],
}

impl MovedList<'_> {
    /// How many words it has.
    #[must_use]
    pub const fn words(self) -> usize {
        self.words.len()
    }

    /// Writes one of a shard's rows, which nobody else writes: its slot, and what look-ups read of it.
    ///
    /// # Panics
    /// When the list has no room for it.
    #[inline(always)]
    pub fn put(self, shard: usize, index: usize, slot: u32, seen: impl Iterator<Item = u32>) {
        // Relaxed: every word has one writer, and the region's end hands them over.
        let put = |to: &AtomicU32, word: u32| to.store(word, Ordering::Relaxed);
        let part = self.parts[shard];
        put(&self.words[part.slots()][index], slot);
        let row = &self.words[part.seen()][index * part.words..][..part.words];
        row.iter().zip(seen).for_each(|(to, word)| put(to, word));
    }
}

/// Hot rows of a shard that its owner has moved.
#[derive(Debug, Clone, Copy)]
pub struct MovedRows<'a> {
    /// The shard.
    pub shard: &'a Shard,
    /// The slots of the rows, rising.
    pub slots: &'a [u32],
    /// What look-ups read of each ([`Layout::hot_words`]).
    pub seen: &'a [u32],
}

impl HotRows {
    /// For `rank` in minibatches of `batch` samples; longer bags than [`Layout::lookups`] work.
    #[must_use]
    pub fn new(layout: &Layout, rank: RankId, batch: usize, isa: Isa) -> Option<Self> {
        let hot = layout.hot()?;
        let ranks = layout.ranks();
        // As much as a list can hold: nothing of it is touched before it is needed.
        let rows = |table: TableId| hot.table(table.index()).rows().len();
        let words = |from: RankId, to: RankId, beside: usize| most_words(layout, batch, [from, to], beside, rows);
        let peers = || RankId::all(ranks);
        let all = |owner: RankId| peers().map(|from| words(from, owner, 1)).sum::<usize>();
        let ordered = layout.grains().is_some();
        let sums = |from, to| if ordered { 0 } else { words(from, to, 2) };
        let into = |from| Vec::with_capacity(if from == rank { 0 } else { sums(from, rank) });
        Some(Self {
            rank,
            sums: ListExchange::new(rank, ranks, isa, "exchange of hot rows' gradients"),
            rows: ListExchange::new(rank, ranks, isa, "exchange of hot rows"),
            out: Vec::with_capacity(peers().map(|to| sums(rank, to)).sum()),
            starts: vec![0; ranks + 1],
            last: 0,
            into: peers().map(into).collect(),
            parts: vec![RowListParts::default(); ranks],
            own: Vec::with_capacity(all(rank)),
            own_parts: Vec::with_capacity(layout.of(rank).shards.len()),
            lists: peers().map(|owner| Vec::with_capacity(if owner == rank { 0 } else { all(owner) })).collect(),
        })
    }

    /// Begins the lists of sums.
    pub fn clear_sums(&mut self) {
        self.starts[..2].fill(0);
        self.last = 0;
    }

    /// Makes room for the rows that were met of an owner's next shard, so many of so many columns, as it numbers them,
    /// and the sum of each one's gradients.
    ///
    /// # Panics
    /// When an owner behind it has room already.
    pub fn room_for_sums(&mut self, owner: RankId, sizes: [usize; 2]) -> RowListPart {
        assert!(self.last <= owner.index(), "owners in their order");
        self.begin(owner.index());
        let end = &mut self.starts[owner.index() + 1];
        let part = RowListPart::behind(&mut self.out, *end, sizes);
        *end = part.end();
        part
    }

    /// Begins what is for an owner, and for those between it and the last one, which get nothing.
    fn begin(&mut self, owner: usize) {
        let end = self.starts[self.last + 1];
        self.starts[self.last + 1..=owner + 1].fill(end);
        self.last = owner;
    }

    /// The lists for all owners, to be written by a team, each row where there is room for it; nothing gets room
    /// afterwards.
    pub fn sums_mut(&mut self) -> &[AtomicU32] {
        self.begin(self.starts.len() - 2);
        atomic_words_32(&mut self.out)
    }

    /// Sends the sums, and takes in those of all ranks.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When a list has not what it says.
    pub fn exchange_sums(&mut self, context: &RankContext, carrier: &mut dyn Carrier) -> Result<()> {
        let (out, starts, layout, owner) = (&self.out, &self.starts, &context.layout, self.rank);
        self.sums.all_to_all_v(&context.team, carrier, |peer| &out[starts[peer]..starts[peer + 1]], &mut self.into)?;
        let mut all = std::mem::take(&mut self.parts);
        for (asking, parts) in (0..).map(RankId).zip(&mut all) {
            let list = self.sums_of(asking);
            parts.clear();
            let mut end = 0;
            for group in layout.groups(Route { owner, asking }) {
                for _ in group.shards.clone() {
                    end = parts.find(list, end, group.width, false);
                }
            }
            assert_eq!(end, list.len(), "as many words as the shards' parts take");
        }
        self.parts = all;
        Ok(())
    }

    /// The list that has come from a rank.
    fn sums_of(&self, from: RankId) -> &[u32] {
        let own = || &self.out[self.starts[from.index()]..self.starts[from.index() + 1]];
        if from == self.rank { own() } else { &self.into[from.index()] }
    }

    /// What a rank has summed for the shards of one of this rank's groups; nothing for its own whole tables.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn sums<'a>(&'a self, from: RankId, group: &Group) -> Option<Source<'a>> {
        self.parts[from.index()].source(self.sums_of(from), group.shards.clone(), group.width)
    }

    /// Makes room in this rank's list for its hot rows that moved, so many of each of its shards.
    ///
    /// # Panics
    /// When there is not one number a shard, or 2^32 rows or more moved.
    pub fn room_for_rows(&mut self, context: &RankContext, rows: &[usize]) -> MovedList<'_> {
        let (layout, mut end) = (&*context.layout, 0);
        let shards = &layout.of(context.rank).shards;
        assert_eq!(shards.len(), rows.len(), "a number of rows a shard");
        self.own_parts.clear();
        self.own_parts.extend(shards.iter().zip(rows).map(|(shard, &rows)| {
            let part = MovedPart { start: end, rows, words: layout.hot_words(shard) };
            end = part.seen().end;
            part
        }));
        // Only what is longer than the list before is written twice.
        self.own.resize(end, 0);
        for part in &self.own_parts {
            self.own[part.start] = u32::try_from(part.rows).expect("fewer than 2^32 rows move");
        }
        MovedList { words: atomic_words_32(&mut self.own), parts: &self.own_parts }
    }

    /// Sends this rank's list to all ranks, and takes in theirs.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn exchange_rows(&mut self, team: &Team, carrier: &mut dyn Carrier) -> Result<()> {
        let own = &self.own;
        self.rows.all_to_all_v(team, carrier, |_| own, &mut self.lists)
    }

    /// The hot rows that an owner has moved, of each of its shards in their order.
    ///
    /// # Panics
    /// When there is no such rank, or its list has not what it says.
    pub fn rows<'a>(&'a self, context: &'a RankContext, owner: RankId) -> impl Iterator<Item = MovedRows<'a>> {
        let (layout, own) = (&*context.layout, owner == context.rank);
        let mut left: &[u32] = if own { &self.own } else { &self.lists[owner.index()] };
        let mut shards = layout.of(owner).shards.iter();
        std::iter::from_fn(move || {
            let Some(shard) = shards.next() else {
                assert!(left.is_empty(), "as many words as the shards' rows take");
                return None;
            };
            let mut next = |words: usize| left.split_off(..words).expect("as many words as the shards' rows take");
            let rows = next(1)[0] as usize;
            Some(MovedRows { shard, slots: next(rows), seen: next(rows * layout.hot_words(shard)) })
        })
    }
}

/// Words of a list of rows of an owner's shards that a rank's samples meet, of so many words beside the columns each,
/// at most; a table has so many hot rows.
fn most_words(
    layout: &Layout,
    batch: usize,
    [from, owner]: [RankId; 2],
    beside: usize,
    rows: impl Fn(TableId) -> usize,
) -> usize {
    let shards = layout.of(owner).shards.iter();
    let most = shards.map(|shard| {
        let look_ups = layout.samples(batch, from) * layout.lookups(shard.table);
        // Rows that are dealt in turn get nearly as many each.
        let look_ups = (2 * look_ups).div_ceil(shard.rows.step as usize).min(look_ups);
        let beside = beside + usize::from(layout.copies_weights(shard.table));
        look_ups.min(rows(shard.table)) * (shard.columns.len() + beside) + 2
    });
    most.sum()
}

/// Bytes of a list of sums from a rank to an owner, whichever rows are hot, at most.
pub(super) fn sum_bytes(layout: &Layout, batch: usize, from: RankId, owner: RankId) -> usize {
    most_words(layout, batch, [from, owner], 2, |_| usize::MAX) * size_of::<u32>()
}

/// Bytes of an owner's list of rows that a step has moved, whichever rows are hot, at most.
pub(super) fn row_bytes(layout: &Layout, batch: usize, owner: RankId) -> usize {
    let all = RankId::all(layout.ranks());
    all.map(|from| most_words(layout, batch, [from, owner], 1, |_| usize::MAX) * size_of::<u32>()).sum()
}
