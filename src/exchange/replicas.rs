//! Gradients of replicated tables' rows, from each rank to all.
//!
//! A rank's list has, table by table, only rows that its samples looked up: each once with its summed gradient, or,
//! where the number of ranks shall change no bit, each sample with the gradient of its pooled row and its look-ups as
//! they are. Lists go around a ring until all ranks have all of them; then every rank moves its copy by them, rank
//! after rank in ascending order, so that copies stay the same.

use super::layout::Layout;
use super::row_gradients::{self, Parts};
use super::words::Words;
use crate::base::{RankId, Result, TableId};
use crate::collective::Carrier;
use crate::data::Batch;
use crate::embedding::Source;
use crate::simd::Isa;

/// The exchange, with its memory.
#[derive(Debug)]
pub struct Replicas {
    rank: RankId,
    words: Words,
    tables: Vec<Replicated>,
    /// By rank.
    lists: Vec<Vec<u32>>,
    /// By rank: a part of its list for each table.
    parts: Vec<Parts>,
}

/// A replicated table.
#[derive(Debug)]
struct Replicated {
    table: TableId,
    /// Where its columns begin in a sample's features, and how many a row has.
    start: usize,
    dim: usize,
    /// Bags of a sample, whose vectors lie side by side.
    positions: usize,
    /// Whether its look-ups have weights, and are sent as they are.
    weighted: bool,
}

impl Replicas {
    /// For `rank`.
    #[must_use]
    pub fn new(layout: &Layout, rank: RankId, isa: Isa) -> Self {
        let ranks = layout.ranks();
        let table = |&table: &TableId| {
            let (start, dim) = (layout.columns(table).start, layout.sharding().dim(table));
            let weighted = layout.grains().is_some() && layout.weighted(table);
            Replicated { table, start, dim, positions: layout.positions(table), weighted }
        };
        let tables: Vec<_> = layout.replicated().iter().map(table).collect();
        Self {
            rank,
            words: Words::new(rank, ranks, isa, "exchange of replicated tables' gradients"),
            parts: vec![Parts::default(); ranks],
            lists: vec![Vec::new(); ranks],
            tables,
        }
    }

    /// Whether there are no replicated tables.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Begins the own list of a step.
    pub fn clear(&mut self) {
        self.lists[self.rank.index()].clear();
    }

    /// Adds the next table's rows, each once, with the sum of its gradients.
    pub fn push_sums<'a>(&mut self, met: impl Iterator<Item = (u32, &'a [f32])> + Clone) {
        row_gradients::push(&mut self.lists[self.rank.index()], met);
    }

    /// Makes the own list the look-ups of `batch`, this rank's slice, as they are; `gradient` has a row of `width`
    /// features a sample.
    pub fn push_samples(&mut self, batch: &Batch, gradient: &[f32], width: usize) {
        self.clear();
        let list = &mut self.lists[self.rank.index()];
        for Replicated { table, start, dim, positions, .. } in &self.tables {
            let bag = &batch.bags[table.index()];
            list.push(bag.samples() as u32);
            for row in gradient.chunks_exact(width).take(batch.samples()) {
                list.extend_from_slice(bytemuck::cast_slice(&row[*start..start + positions * dim]));
            }
            list.extend_from_slice(&bag.offsets);
            list.extend_from_slice(&bag.rows);
            list.extend_from_slice(bytemuck::cast_slice(&batch.weights[table.index()]));
        }
    }

    /// Sends the own list, and takes in those of all ranks.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When a list has not what it says.
    pub fn exchange(&mut self, carrier: &mut dyn Carrier) -> Result<()> {
        self.words.gather(carrier, &mut self.lists)?;
        for (list, parts) in self.lists.iter().zip(&mut self.parts) {
            parts.clear();
            let find = |end, table: &Replicated| parts.find(list, end, table.dim, table.weighted);
            let end = self.tables.iter().fold(0, find);
            assert_eq!(end, list.len(), "as many words as the tables' parts take");
        }
        Ok(())
    }

    /// What all ranks have sent of replicated table number `index`, in the order of ranks.
    pub fn sources(&self, index: usize) -> impl Iterator<Item = Source<'_>> {
        let dim = self.tables[index].dim;
        let lists = self.lists.iter().zip(&self.parts);
        let sources = lists.filter_map(move |(list, parts)| parts.source(list, index..index + 1, dim));
        sources.filter(|source| source.lookups.bag(0).samples() > 0)
    }
}
