//! Gradients of pooled rows, from the ranks that have the samples back to the owners of rows.

use super::gradient_parcels;
use super::layout::{Holding, Layout};
use super::pooled::floats;
use crate::base::{RankId, Result};
use crate::collective::{Lane, OneSided, Payload};
use crate::machine::team::Team;
use crate::memory::{Arena, Buffer, Supply};
use crate::simd::Isa;
use crate::sync::{Line, Rows, stream_lines};

/// Samples that are packed at once: their rows stay in L1 until they are streamed away.
const AT_ONCE: usize = 8;

/// The exchange of gradients, with its memory.
#[derive(Debug)]
pub struct Gradients {
    rank: RankId,
    whole: usize,
    messages: Option<OneSided>,
    /// What this rank sends itself.
    own: Buffer<f32>,
}

impl Gradients {
    /// For `rank`, with room for minibatches of `batch` samples.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(layout: &Layout, rank: RankId, batch: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let own = supply.buffer("own gradients", layout.samples(batch, rank) * layout.of(rank).stride)?;
        Ok(Self { rank, whole: 0, messages: None, own })
    }

    /// Takes its memory from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.own.settle(arena);
    }

    /// Sends each owner its part of `gradient`, a row a sample of this rank with `dim` elements a table. Of divided rows
    /// every part gets the whole gradient.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn begin(
        &mut self,
        team: &Team,
        layout: &Layout,
        lane: &mut Lane,
        whole: usize,
        gradient: &[f32],
    ) -> Result<()> {
        let (outbox, inbox) = lane.halves();
        if self.whole != whole || self.messages.is_none() {
            let parcels = gradient_parcels(layout, whole);
            self.messages = Some(OneSided::new(&parcels, Payload::F32, outbox, inbox, "exchange of gradients"));
            self.whole = whole;
        }
        let isa = team.isa();
        let pack = |holder: &Holding, lines: &mut [Line]| {
            let lines_a_row = holder.stride * size_of::<f32>() / Line::BYTES;
            if lines_a_row > 0 && !lines.is_empty() {
                team.each(Rows::new(lines, lines_a_row, team.threads(), AT_ONCE), |band| {
                    pack(isa, layout, holder, gradient, band.first, band.data);
                });
            }
        };
        let messages = self.messages.as_mut().expect("planned above");
        messages.begin(outbox, |to, lines| pack(layout.of(to), lines))?;
        let holder = layout.of(self.rank);
        let own = layout.samples(whole, self.rank) * holder.stride;
        pack(holder, bytemuck::cast_slice_mut(&mut self.own[..own]));
        Ok(())
    }

    /// Waits for the gradients of all ranks and lends them, rank after rank in ascending order, to `take`: with the
    /// rank's number, a row of this rank's stride for each of its samples.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When nothing was begun.
    pub fn finish(&mut self, layout: &Layout, lane: &mut Lane, mut take: impl FnMut(RankId, &[f32])) -> Result<()> {
        let incoming = self.messages.as_ref().expect("begun before").finish(lane.halves().1)?;
        for rank in (0..layout.ranks() as u32).map(RankId) {
            let message = if rank == self.rank { &self.own[..] } else { floats(incoming.from(rank)) };
            take(rank, &message[..layout.samples(self.whole, rank) * layout.of(self.rank).stride]);
        }
        Ok(())
    }
}

/// Packs the rows of a message from sample `first` on.
fn pack(isa: Isa, layout: &Layout, holder: &Holding, gradient: &[f32], first: usize, to: &mut [Line]) {
    let dim = layout.sharding().dim();
    let row = layout.sharding().tables() * dim;
    let mut staged = vec![0.0; AT_ONCE * holder.stride];
    let lines_at_once = size_of_val(&staged[..]) / Line::BYTES;
    for (block, to) in to.chunks_mut(lines_at_once).enumerate() {
        let samples = to.len() * AT_ONCE / lines_at_once;
        for (index, staged) in staged.chunks_exact_mut(holder.stride).take(samples).enumerate() {
            let from = &gradient[(first + block * AT_ONCE + index) * row..][..row];
            for (shard, place) in holder.places() {
                let start = shard.table.index() * dim + shard.columns.start;
                staged[place].copy_from_slice(&from[start..start + shard.columns.len()]);
            }
        }
        stream_lines(isa, to, &staged[..samples * holder.stride]);
    }
}
