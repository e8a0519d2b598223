//! Ids of rows, from the ranks that have the samples to those that have the rows; with them, where a column has weights,
//! those of its look-ups.

use std::ops::Range;

use super::layout::{Holding, Layout, Stream};
use super::words::Words;
use crate::base::{RankId, Result, TableId};
use crate::collective::Carrier;
use crate::data::{Bag, Batch};
use crate::embedding::Lookups;
use crate::machine::team::Team;

/// The exchange of ids, with its memory: after a step's [`Ids::exchange`], the look-ups of all ranks in this rank's
/// shards.
#[derive(Debug)]
pub struct Ids {
    words: Words,
    out: Vec<Vec<u32>>,
    into: Vec<Vec<u32>>,
    /// By rank that asks, then by shard.
    bags: Vec<Vec<Bag>>,
    /// As they are; lists without entries where look-ups have no weights.
    weights: Vec<Vec<Vec<f32>>>,
}

impl Ids {
    /// For `rank` of a layout's ranks.
    #[must_use]
    pub fn new(layout: &Layout, rank: RankId, team: &Team) -> Self {
        let (ranks, shards) = (layout.ranks(), layout.of(rank).shards.len());
        let lists = || vec![Vec::new(); ranks];
        let bag = Bag { offsets: vec![0], rows: Vec::new() };
        let words = Words::new(rank, ranks, team.isa(), "exchange of ids");
        let (bags, weights) = (vec![vec![bag; shards]; ranks], vec![vec![Vec::new(); shards]; ranks]);
        Self { words, out: lists(), into: lists(), bags, weights }
    }

    /// Sends the ids of this rank's samples to their owners and takes in those of all ranks; `whole` is the size of the
    /// whole minibatch, of which `batch` is this rank's slice.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When the slice has another size than the layout says, or weights for other columns.
    pub fn exchange(&mut self, layout: &Layout, carrier: &mut impl Carrier, batch: &Batch, whole: usize) -> Result<()> {
        let own = carrier.rank();
        assert_eq!(batch.samples(), layout.samples(whole, own), "this rank's slice of {whole} samples");
        for (table, (bag, weights)) in (0..).map(TableId).zip(batch.bags.iter().zip(&batch.weights)) {
            let due = if layout.weighted(table) { bag.rows.len() } else { 0 };
            assert_eq!(weights.len(), due, "{table}: one weight a look-up, where its column has weights");
        }
        for (rank, words) in (0..).map(RankId).zip(&mut self.out) {
            pack(layout.of(rank), batch, words);
        }
        let out = &self.out;
        self.words.swap(carrier, |peer| &out[peer], &mut self.into)?;
        let [out, into] = [&mut self.out, &mut self.into].map(|lists| &mut lists[own.index()]);
        std::mem::swap(out, into);
        let lookups = self.bags.iter_mut().zip(&mut self.weights);
        for (rank, (words, (bags, weights))) in (0..).map(RankId).zip(self.into.iter().zip(lookups)) {
            unpack(layout.of(own), words, layout.samples(whole, rank), bags, weights);
        }
        Ok(())
    }

    /// What `rank` looks up in this rank's shards, in the order of the layout: one bag a sample of that rank.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn bags(&self, rank: RankId) -> &[Bag] {
        &self.bags[rank.index()]
    }

    /// What `rank` looks up in some of this rank's shards, with the weights.
    ///
    /// # Panics
    /// When there is no such rank or shard.
    #[must_use]
    pub fn lookups(&self, rank: RankId, shards: Range<usize>) -> Lookups<'_> {
        let weights = Some(&self.weights[rank.index()][shards.clone()]);
        Lookups { bags: &self.bags(rank)[shards], weights }
    }
}

/// For each stream of the holder: where each sample's ids end, then the ids, as rows of the shard, then a weight for each
/// if the column has weights.
fn pack(holder: &Holding, batch: &Batch, words: &mut Vec<u32>) {
    words.clear();
    for Stream { table, rows, .. } in &holder.streams {
        let (bag, weights) = (&batch.bags[table.index()], &batch.weights[table.index()][..]);
        if rows.first == 0 && rows.step == 1 && bag.rows.iter().all(|row| u64::from(*row) < rows.count) {
            words.extend_from_slice(&bag.offsets[1..]);
            words.extend_from_slice(&bag.rows);
            words.extend_from_slice(bytemuck::cast_slice(weights));
            continue;
        }
        let (ends, samples) = (words.len(), batch.samples());
        words.resize(ends + samples, 0);
        for sample in 0..samples {
            words.extend(bag.of(sample).iter().filter_map(|row| rows.local(u64::from(*row))).map(|row| row as u32));
            words[ends + sample] = (words.len() - ends - samples) as u32;
        }
        let held = bag.rows.iter().zip(weights).filter(|(row, _)| rows.local(u64::from(**row)).is_some());
        words.extend(held.map(|(_, weight)| weight.to_bits()));
    }
}

fn unpack(holder: &Holding, mut words: &[u32], samples: usize, bags: &mut [Bag], weights: &mut [Vec<f32>]) {
    for (number, stream) in holder.streams.iter().enumerate() {
        let (ends, rest) = words.split_at(samples);
        let count = ends.last().map_or(0, |end| *end as usize);
        let (rows, rest) = rest.split_at(count);
        let (own, rest) = rest.split_at(if stream.weighted { count } else { 0 });
        let lookups = bags.iter_mut().zip(&mut *weights).zip(&holder.stream_of);
        for ((bag, weights), _) in lookups.filter(|(_, of)| **of == number) {
            bag.offsets.truncate(1);
            bag.offsets.extend_from_slice(ends);
            bag.rows.clear();
            bag.rows.extend_from_slice(rows);
            weights.clear();
            weights.extend_from_slice(bytemuck::cast_slice(own));
        }
        words = rest;
    }
    assert!(words.is_empty(), "{} words too many", words.len());
}
