//! What keeps copies of hot rows equal to the rows: sums of their gradients, to the owners, and the moved rows, from
//! there.
//!
//! A rank's bags of hot rows alone never leave it, so it sums their gradients row by row and sends each owner a list
//! for every shard: rows that were met, each once with its sum. The owner moves a row once a step, by these sums and
//! the gradients of bags that came whole, and keeps alone what the optimizer needs. Then every hot row that moved goes
//! to all ranks, as look-ups read it. A row that `n` of `r` ranks met so costs `n` gradients and `r - 1` rows, however
//! often it was looked up.

use super::RankContext;
use super::layout::Layout;
use super::row_gradients::{self, Parts};
use super::words::Words;
use crate::base::{RankId, Result, TableId};
use crate::collective::Carrier;
use crate::embedding::Source;
use crate::exchange::Group;
use crate::machine::team::Team;
use crate::simd::Isa;

/// Both exchanges, with their memory.
#[derive(Debug)]
pub struct HotRows {
    rank: RankId,
    sums: Words,
    rows: Words,
    /// Sums for each owner.
    out: Vec<Vec<u32>>,
    /// By sender.
    into: Vec<Vec<u32>>,
    /// By sender: a part of its list for each of this rank's shards.
    parts: Vec<Parts>,
    /// This rank's hot rows that moved.
    own: Vec<u32>,
    /// By owner.
    lists: Vec<Vec<u32>>,
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
        let peers = || (0..ranks as u32).map(RankId);
        let all = |owner: RankId| peers().map(|from| words(from, owner, 1)).sum::<usize>();
        let ordered = layout.grains().is_some();
        let sums = |from, to| Vec::with_capacity(if ordered { 0 } else { words(from, to, 2) });
        Some(Self {
            rank,
            sums: Words::new(rank, ranks, isa, "exchange of hot rows' gradients"),
            rows: Words::new(rank, ranks, isa, "exchange of hot rows"),
            out: peers().map(|to| sums(rank, to)).collect(),
            into: peers().map(|from| if from == rank { Vec::new() } else { sums(from, rank) }).collect(),
            parts: vec![Parts::default(); ranks],
            own: Vec::with_capacity(all(rank)),
            lists: peers().map(|owner| Vec::with_capacity(if owner == rank { 0 } else { all(owner) })).collect(),
        })
    }

    /// Begins the lists of sums.
    pub fn clear_sums(&mut self) {
        self.out.iter_mut().for_each(Vec::clear);
    }

    /// Adds an owner's next shard, with the rows that were met, as it numbers them, and the sum of each one's
    /// gradients.
    pub fn push_sums<'a>(&mut self, owner: RankId, met: impl Iterator<Item = (u32, &'a [f32])> + Clone) {
        row_gradients::push(&mut self.out[owner.index()], met);
    }

    /// Sends the sums, and takes in those of all ranks.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When a list has not what it says.
    pub fn exchange_sums(&mut self, context: &RankContext, carrier: &mut dyn Carrier) -> Result<()> {
        let (out, layout) = (&self.out, &context.layout);
        self.sums.swap(&context.team, carrier, |peer| &out[peer], &mut self.into)?;
        let holding = layout.of(self.rank);
        for (from, parts) in (0..).zip(&mut self.parts) {
            let list = if from == self.rank.index() { &self.out[from] } else { &self.into[from] };
            parts.clear();
            let mut end = 0;
            for group in &holding.groups {
                // Of its own samples, a rank sums gradients of divided rows alone.
                if from == self.rank.index() && !group.partial {
                    break;
                }
                for _ in group.shards.clone() {
                    end = parts.find(list, end, group.width, false);
                }
            }
            assert_eq!(end, list.len(), "as many words as the shards' parts take");
        }
        Ok(())
    }

    /// What a rank has summed for the shards of one of this rank's groups; nothing for its own whole tables.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn sums<'a>(&'a self, from: RankId, group: &Group) -> Option<Source<'a>> {
        let list = if from == self.rank { &self.out[from.index()] } else { &self.into[from.index()] };
        self.parts[from.index()].source(list, group.shards.clone(), group.width)
    }

    /// This rank's list of hot rows that moved: for each shard how many they are, then their slots, then what look-ups
    /// read of each ([`Layout::hot_words`]).
    pub const fn own_mut(&mut self) -> &mut Vec<u32> {
        &mut self.own
    }

    /// Sends this rank's list to all ranks, and takes in theirs.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn exchange_rows(&mut self, team: &Team, carrier: &mut dyn Carrier) -> Result<()> {
        let own = &self.own;
        self.rows.swap(team, carrier, |_| own, &mut self.lists)
    }

    /// The list of an owner.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn list(&self, owner: RankId) -> &[u32] {
        if owner == self.rank { &self.own } else { &self.lists[owner.index()] }
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
    let all = (0..layout.ranks() as u32).map(RankId);
    all.map(|from| most_words(layout, batch, [from, owner], 1, |_| usize::MAX) * size_of::<u32>()).sum()
}

/// Words of a shard's part of a list of rows, of so many words each.
pub(super) const fn row_words(rows: usize, words: usize) -> usize {
    1 + rows * (1 + words)
}
