//! Gradients of the replicated tables' pooled rows, from each rank to all, with the ids that they belong to and their
//! weights.
//!
//! All ranks then move the rows of their copy in the order of samples, as the owner of a divided table does.

use crate::base::{RankId, Result, TableId};
use crate::collective::Carrier;
use crate::data::Batch;
use crate::embedding::{Lookups, PackedBag, Slots};
use crate::exchange::layout::Layout;
use crate::exchange::words::{Words, find_bags};
use crate::machine::team::Team;

/// The exchange, with its memory.
#[derive(Debug)]
pub struct Replicas {
    rank: RankId,
    words: Words,
    out: Vec<u32>,
    into: Vec<Vec<u32>>,
    /// Of the rank whose look-ups are lent, one a replicated table.
    bags: Vec<PackedBag>,
    /// Elements of a sample's gradients: those of all replicated tables.
    row: usize,
    /// Where each table's begin.
    starts: Vec<usize>,
}

impl Replicas {
    /// For `rank`.
    #[must_use]
    pub fn new(layout: &Layout, rank: RankId, team: &Team) -> Self {
        let ranks = layout.ranks();
        let words = Words::new(rank, ranks, team.isa(), "exchange of replicated tables' gradients");
        let mut row = 0;
        let mut start = |table: &TableId| {
            row += layout.sharding().dim(*table);
            row - layout.sharding().dim(*table)
        };
        let starts: Vec<usize> = layout.replicated().iter().map(&mut start).collect();
        let bags = vec![PackedBag::default(); starts.len()];
        Self { rank, words, out: Vec::new(), into: vec![Vec::new(); ranks], bags, row, starts }
    }

    /// Sends the look-ups in replicated tables of this rank's slice `batch` of `whole` samples, and the gradients of
    /// their pooled rows; `gradient` has a row of features a sample. Takes in those of all ranks.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn exchange(
        &mut self,
        layout: &Layout,
        carrier: &mut dyn Carrier,
        batch: &Batch,
        gradient: &[f32],
    ) -> Result<()> {
        let tables = layout.replicated();
        if tables.is_empty() {
            return Ok(());
        }
        self.out.clear();
        // Gradients first, so that they lie as a message does: at a cache line.
        for row in gradient.chunks_exact(layout.feature_row()) {
            for table in tables {
                self.out.extend_from_slice(bytemuck::cast_slice(&row[layout.columns(*table)]));
            }
        }
        for table in tables {
            let bag = &batch.bags[table.index()];
            self.out.extend_from_slice(&bag.offsets);
            self.out.extend_from_slice(&bag.rows);
            self.out.extend_from_slice(bytemuck::cast_slice(&batch.weights[table.index()]));
        }
        let out = &self.out;
        self.words.swap(carrier, |_| out, &mut self.into)
    }

    /// Lends what all ranks have sent of a minibatch of `whole` samples, rank after rank in ascending order, to `take`:
    /// the look-ups in the replicated tables, and their gradients, a row a sample with those tables' columns alone.
    pub fn take(&mut self, layout: &Layout, whole: usize, mut take: impl FnMut(Lookups<'_>, &[f32], Slots<'_>)) {
        let tables = layout.replicated();
        if tables.is_empty() {
            return;
        }
        for rank in (0..layout.ranks() as u32).map(RankId) {
            let words = if rank == self.rank { &self.out } else { &self.into[rank.index()] };
            let samples = layout.samples(whole, rank);
            let weighted = tables.iter().map(|table| layout.weighted(*table));
            let end = find_bags(words, samples * self.row, samples, weighted, &mut self.bags);
            assert_eq!(end, words.len(), "as many words as the bags of {rank} take");
            let gradient = bytemuck::cast_slice(&words[..samples * self.row]);
            take(Lookups::packed(words, &self.bags), gradient, Slots { row: self.row, starts: &self.starts });
        }
    }
}
