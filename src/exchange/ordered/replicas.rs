//! Gradients of the replicated tables' pooled rows, from each rank to all, with the ids that they belong to and their
//! weights.
//!
//! All ranks then move the rows of their copy in the order of samples, as the owner of a divided table does.

use crate::base::{RankId, Result};
use crate::collective::Carrier;
use crate::data::{Bag, Batch};
use crate::embedding::{Lookups, Slots};
use crate::exchange::layout::Layout;
use crate::exchange::words::Words;
use crate::machine::team::Team;

/// The exchange, with its memory.
#[derive(Debug)]
pub struct Replicas {
    rank: RankId,
    words: Words,
    out: Vec<u32>,
    into: Vec<Vec<u32>>,
    /// Of the rank that is taken in, one a replicated table.
    bags: Vec<Bag>,
    /// As they are; lists without entries where look-ups have no weights.
    weights: Vec<Vec<f32>>,
}

impl Replicas {
    pub(super) fn new(layout: &Layout, rank: RankId, team: &Team) -> Self {
        let ranks = layout.ranks();
        let words = Words::new(rank, ranks, team.isa(), "exchange of replicated tables' gradients");
        let bag = Bag { offsets: vec![0], rows: Vec::new() };
        let tables = layout.replicated().len();
        let (bags, weights) = (vec![bag; tables], vec![Vec::new(); tables]);
        Self { rank, words, out: Vec::new(), into: vec![Vec::new(); ranks], bags, weights }
    }

    /// Sends the look-ups in replicated tables of this rank's slice `batch` of `whole` samples, and the gradients of
    /// their pooled rows; `gradient` has all tables' in the order of `slots`. Takes in those of all ranks.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn exchange(
        &mut self,
        layout: &Layout,
        carrier: &mut impl Carrier,
        batch: &Batch,
        (gradient, slots): (&[f32], Slots),
    ) -> Result<()> {
        let (tables, dim) = (layout.replicated(), layout.sharding().dim());
        if tables.is_empty() {
            return Ok(());
        }
        self.out.clear();
        // Gradients first, so that they lie as a message does: at a cache line.
        for row in gradient.chunks_exact(slots.row.max(1)) {
            for table in tables {
                let vector = &row[slots.first + table.index() * dim..][..dim];
                self.out.extend_from_slice(bytemuck::cast_slice(vector));
            }
        }
        for table in tables {
            let bag = &batch.bags[table.index()];
            self.out.extend_from_slice(&bag.offsets[1..]);
            self.out.extend_from_slice(&bag.rows);
            self.out.extend_from_slice(bytemuck::cast_slice(&batch.weights[table.index()]));
        }
        let out = &self.out;
        self.words.swap(carrier, |_| out, &mut self.into)
    }

    /// Lends what all ranks have sent of a minibatch of `whole` samples, rank after rank in ascending order, to `take`:
    /// the look-ups in the replicated tables, rows of gradients with those tables' columns alone, and the rows' length.
    pub fn take(&mut self, layout: &Layout, whole: usize, mut take: impl FnMut(Lookups<'_>, &[f32], usize)) {
        let (tables, dim) = (layout.replicated(), layout.sharding().dim());
        if tables.is_empty() {
            return;
        }
        for rank in (0..layout.ranks() as u32).map(RankId) {
            let words = if rank == self.rank { &self.out } else { &self.into[rank.index()] };
            let samples = layout.samples(whole, rank);
            let (gradient, mut rest) = words.split_at(samples * tables.len() * dim);
            for ((table, bag), weights) in tables.iter().zip(&mut self.bags).zip(&mut self.weights) {
                let (ends, more) = rest.split_at(samples);
                let count = ends.last().map_or(0, |end| *end as usize);
                let (rows, more) = more.split_at(count);
                let (own, more) = more.split_at(if layout.weighted(*table) { count } else { 0 });
                bag.offsets.truncate(1);
                bag.offsets.extend_from_slice(ends);
                bag.rows.clear();
                bag.rows.extend_from_slice(rows);
                weights.clear();
                weights.extend_from_slice(bytemuck::cast_slice(own));
                rest = more;
            }
            assert!(rest.is_empty(), "{} words too many", rest.len());
            take(
                Lookups { bags: &self.bags, weights: Some(&self.weights) },
                bytemuck::cast_slice(gradient),
                tables.len() * dim,
            );
        }
    }
}
