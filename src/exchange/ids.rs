//! Ids of rows, from the ranks that have the samples to those that have the rows.

use super::layout::{Holding, Layout};
use super::words::Words;
use crate::base::{RankId, Result};
use crate::collective::Carrier;
use crate::data::{Bag, Batch};
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
}

impl Ids {
    /// For `rank` of a layout's ranks.
    #[must_use]
    pub fn new(layout: &Layout, rank: RankId, team: &Team) -> Self {
        let (ranks, shards) = (layout.ranks(), layout.of(rank).shards.len());
        let lists = || vec![Vec::new(); ranks];
        let bag = Bag { offsets: vec![0], rows: Vec::new() };
        let words = Words::new(rank, ranks, team.isa(), "exchange of ids");
        Self { words, out: lists(), into: lists(), bags: vec![vec![bag; shards]; ranks] }
    }

    /// Sends the ids of this rank's samples to their owners and takes in those of all ranks; `whole` is the size of the
    /// whole minibatch, of which `batch` is this rank's slice.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When the slice has another size than the layout says.
    pub fn exchange(&mut self, layout: &Layout, carrier: &mut impl Carrier, batch: &Batch, whole: usize) -> Result<()> {
        let own = carrier.rank();
        assert_eq!(batch.samples(), layout.samples(whole, own), "this rank's slice of {whole} samples");
        for (rank, words) in (0..).map(RankId).zip(&mut self.out) {
            pack(layout.of(rank), batch, words);
        }
        let out = &self.out;
        self.words.swap(carrier, |peer| &out[peer], &mut self.into)?;
        let [out, into] = [&mut self.out, &mut self.into].map(|lists| &mut lists[own.index()]);
        std::mem::swap(out, into);
        for (rank, (words, bags)) in (0..).map(RankId).zip(self.into.iter().zip(&mut self.bags)) {
            unpack(layout.of(own), words, layout.samples(whole, rank), bags);
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
}

/// For each stream of the holder: where each sample's ids end, then the ids, as rows of the shard.
fn pack(holder: &Holding, batch: &Batch, words: &mut Vec<u32>) {
    words.clear();
    for (table, rows) in &holder.streams {
        let bag = &batch.bags[table.index()];
        if rows.first == 0 && rows.step == 1 && bag.rows.iter().all(|row| u64::from(*row) < rows.count) {
            words.extend_from_slice(&bag.offsets[1..]);
            words.extend_from_slice(&bag.rows);
            continue;
        }
        let (ends, samples) = (words.len(), batch.samples());
        words.resize(ends + samples, 0);
        for sample in 0..samples {
            words.extend(bag.of(sample).iter().filter_map(|row| rows.local(u64::from(*row))).map(|row| row as u32));
            words[ends + sample] = (words.len() - ends - samples) as u32;
        }
    }
}

fn unpack(holder: &Holding, mut words: &[u32], samples: usize, bags: &mut [Bag]) {
    for stream in 0..holder.streams.len() {
        let (ends, rest) = words.split_at(samples);
        let (rows, rest) = rest.split_at(ends.last().map_or(0, |end| *end as usize));
        for (bag, _) in bags.iter_mut().zip(&holder.stream_of).filter(|(_, of)| **of == stream) {
            bag.offsets.truncate(1);
            bag.offsets.extend_from_slice(ends);
            bag.rows.clear();
            bag.rows.extend_from_slice(rows);
        }
        words = rest;
    }
    assert!(words.is_empty(), "{} words too many", words.len());
}
