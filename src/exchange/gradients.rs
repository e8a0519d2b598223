//! Gradients of pooled rows, from the ranks that have the samples back to the owners of rows.
//!
//! An owner takes those of its own samples from where the network has left them.

use super::layout::{Holding, Layout};
use super::messages::RowMessages;
use super::{Ids, Minibatch, Pass, RankContext, Route, sparse};
use crate::base::{RankId, Result};
use crate::collective::Carrier;
use crate::memory::{Arena, Buffer, Supply};
use crate::simd::Isa;
use crate::sync::{Line, Rows, Stores, write_lines};

/// The exchange of gradients.
#[derive(Debug)]
pub struct Gradients {
    messages: RowMessages,
    /// Where messages have vectors of some bags only: those of this rank's own bags with divided rows.
    own: Buffer<Line>,
}

impl Gradients {
    /// For a rank, with room for minibatches of `batch` samples.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(context: &RankContext, batch: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let layout = &*context.layout;
        let own = layout.hot().map_or(0, |_| context.samples(batch) * layout.of(context.rank).partial_stride);
        Ok(Self {
            messages: RowMessages::new(context, Pass::Backward, batch, supply)?,
            own: supply.buffer("gradients of own bags", own.div_ceil(Line::FLOATS))?,
        })
    }

    /// Takes its place in the arena that was planned.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.messages.settle(arena);
        self.own.settle(arena);
    }

    /// Sends each other owner its part of `gradient`, a row of features a sample of this rank, or the vectors that
    /// `ids` tell of. Of divided rows every part gets the whole gradient.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn begin(
        &mut self,
        context: &RankContext,
        carrier: &mut dyn Carrier,
        minibatch: &Minibatch,
        ids: &Ids,
        gradient: &[f32],
    ) -> Result<()> {
        let RankContext { rank, team, layout } = context;
        let (isa, own) = (team.isa(), *rank);
        if !layout.asks_owners(minibatch.inputs) {
            return Ok(());
        }
        if layout.hot().is_some() {
            let pack = |to: RankId, lines: &mut [Line], stores: Stores| {
                team.each(Rows::new(lines, 1, team.threads(), 1), |band| {
                    sparse::pack((isa, stores), layout, ids, to, gradient, band.first, band.data);
                });
            };
            let floats = ids.blocks(Route::own(own), Pass::Backward).map_or(0, super::Blocks::floats);
            pack(own, &mut self.own[..floats.div_ceil(Line::FLOATS)], Stores::Plain);
            return self.messages.begin(context, carrier, minibatch, ids, pack);
        }
        self.messages.begin(context, carrier, minibatch, ids, |to, lines, stores| {
            let holder = layout.of(to);
            let lines_a_row = holder.stride * size_of::<f32>() / Line::BYTES;
            team.each(Rows::new(lines, lines_a_row, team.threads(), 1), |band| {
                pack((isa, stores), layout, holder, gradient, band.first, band.data);
            });
        })
    }

    /// Waits for the gradients of all ranks and lends them to `take`: of each rank a row of this rank's stride for each
    /// of its samples, and nothing of this rank's own; or the vectors that `ids` tell of, this rank's own of divided
    /// rows among them. Where copies serve all look-ups, whose gradients go as sums, there is nothing here and in
    /// [`Gradients::begin`].
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn finish(
        &mut self,
        context: &RankContext,
        carrier: &mut dyn Carrier,
        minibatch: &Minibatch,
        ids: &Ids,
        take: impl for<'m> FnOnce(&'m dyn Fn(RankId) -> Option<&'m [f32]>),
    ) -> Result<()> {
        let (own_rank, layout) = (context.rank, &context.layout);
        if !layout.asks_owners(minibatch.inputs) {
            take(&|_| Some(&[]));
            return Ok(());
        }
        let incoming = self.messages.finish(context, carrier)?;
        let own: &[f32] = bytemuck::cast_slice(&self.own[..]);
        take(&|rank| {
            if let Some(blocks) = ids.blocks(Route { owner: own_rank, asking: rank }, Pass::Backward) {
                let vectors = if rank == own_rank { own } else { incoming.from(rank) };
                return Some(&vectors[..blocks.floats()]);
            }
            let len = layout.samples(minibatch.whole, rank) * layout.of(own_rank).stride;
            (rank != own_rank).then(|| &incoming.from(rank)[..len])
        });
        Ok(())
    }
}

/// Packs the rows of a message from sample `first` on.
fn pack(
    (isa, stores): (Isa, Stores),
    layout: &Layout,
    holder: &Holding,
    gradient: &[f32],
    first: usize,
    to: &mut [Line],
) {
    // As much as fills up a row of any message.
    const NONE: [f32; 32] = [0.0; 32];
    let row = layout.feature_row();
    let samples = size_of_val(to) / (holder.stride * size_of::<f32>());
    let width: usize = holder.groups.iter().map(|group| group.width * group.positions * group.shards.len()).sum();
    let mut stream = Stream::new(isa, stores, to);
    for gradient in gradient[first * row..].chunks_exact(row).take(samples) {
        for group in &holder.groups {
            for start in &group.in_features {
                (0..group.positions).for_each(|at| stream.put(&gradient[start + at * group.step..][..group.width]));
            }
        }
        stream.put(&NONE[..holder.stride - width]);
    }
    stream.flush();
}

/// Elements that are gathered in the first-level cache before they are written away.
const STAGED: usize = 2048;

/// Lines that are written in order, from pieces of any length.
pub(super) struct Stream<'a> {
    isa: Isa,
    stores: Stores,
    /// What is left.
    to: &'a mut [Line],
    staged: [f32; STAGED],
    /// Elements that are staged.
    len: usize,
}

impl<'a> Stream<'a> {
    pub fn new(isa: Isa, stores: Stores, to: &'a mut [Line]) -> Self {
        Self { isa, stores, to, staged: [0.0; STAGED], len: 0 }
    }

    pub fn put(&mut self, mut piece: &[f32]) {
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(STAGED - self.len));
            self.staged[self.len..self.len + now.len()].copy_from_slice(now);
            self.len += now.len();
            piece = later;
            if self.len == STAGED {
                self.flush();
            }
        }
    }

    /// Writes what is staged: whole lines.
    pub fn flush(&mut self) {
        let lines = Line::hold(self.len * size_of::<f32>());
        let (now, later) = std::mem::take(&mut self.to).split_at_mut(lines);
        write_lines(self.isa, self.stores, now, &self.staged[..self.len]);
        (self.to, self.len) = (later, 0);
    }
}
