//! Gradients of pooled rows, from the ranks that have the samples back to the owners of rows.
//!
//! An owner takes those of its own samples from where the network has left them.

use super::layout::Layout;
use super::messages::{RowMessages, Widening};
use super::vectors::MessageForm;
use super::{Ids, Minibatch, Pass, RankContext, Route, Vectors};
use crate::base::config::Wire;
use crate::base::{RankId, Result};
use crate::collective::{Carrier, Opened, narrow};
use crate::memory::{Buffer, Supply};
use crate::simd::Isa;
use crate::sync::{Lender, Line, Matrix, Stores, write_lines};

/// The exchange of gradients.
#[derive(Debug)]
pub struct Gradients {
    messages: RowMessages,
    widening: Widening,
    /// Where messages have vectors of some bags only: those of this rank's own bags with divided rows.
    own: Buffer<Line>,
    lender: Lender<Line>,
}

impl Gradients {
    /// For a rank, with room for minibatches of `batch` samples.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(context: &RankContext, batch: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let layout = &*context.layout;
        let own = match layout.form() {
            MessageForm::RowPerSample => 0,
            MessageForm::VectorPerBag { .. } => context.samples(batch) * layout.of(context.rank).partial_stride,
        };
        Ok(Self {
            messages: RowMessages::new(context, Pass::Backward),
            widening: Widening::new(context, Pass::Backward, batch, supply)?,
            own: supply.buffer("gradients of own bags", own.div_ceil(Line::FLOATS))?,
            lender: Lender::new(layout.ranks(), context.team.threads()),
        })
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
        let (isa, asking) = (team.isa(), *rank);
        if !layout.asks_owners(minibatch.inputs) {
            return Ok(());
        }
        let Self { messages, own, lender, .. } = self;
        let vectors = |owner| ids.vectors(Route { owner, asking }, Pass::Backward);
        let mut pack_all = |wire: Wire, messages: &mut [Opened<'_>]| {
            let mut loan = lender.begin();
            for Opened { to, lines, .. } in messages.iter_mut() {
                loan.matrix(Matrix { data: std::mem::take(lines), width: vectors(*to).lines_together(wire) });
            }
            loan.cut_evenly(team.threads());
            let messages = &*messages;
            team.each(loan.lend(), |mut share| {
                let mut staged = [0.0; STAGED];
                for at in share.matrices() {
                    let (Opened { to, stores, .. }, mut band) = (&messages[at], share.band(at));
                    let (first, of) = (band.rows().start, (ids, *to, vectors(*to)));
                    pack((isa, *stores, wire), layout, of, gradient, first, (band.all(), &mut staged));
                }
            });
        };
        // Those of its own samples stay where the network has left them, if messages have a row a sample.
        if !own.is_empty() {
            let elements = vectors(asking).elements(context.samples(minibatch.whole));
            let lines = &mut own[..elements.div_ceil(Line::FLOATS)];
            pack_all(Wire::F32, &mut [Opened { to: asking, stores: Stores::Plain, lines }]);
        }
        messages.begin(context, carrier, minibatch, ids, |messages| pack_all(layout.wire(), messages))
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
        let (owner, layout) = (context.rank, &context.layout);
        if !layout.asks_owners(minibatch.inputs) {
            take(&|_| Some(&[]));
            return Ok(());
        }
        let Self { messages, widening, own, .. } = self;
        let incoming = messages.finish(carrier)?;
        widening.take(context, &incoming);
        let own: &[f32] = bytemuck::cast_slice(&own[..]);
        take(&|asking| {
            let message = match layout.form() {
                MessageForm::RowPerSample if asking == owner => return None,
                _ if asking == owner => own,
                _ => widening.from(&incoming, asking),
            };
            let vectors = ids.vectors(Route { owner, asking }, Pass::Backward);
            Some(&message[..vectors.elements(layout.samples(minibatch.whole, asking))])
        });
        Ok(())
    }
}

/// Packs the lines of a message to an owner from the rank that `ids` are of, from a sample's row on where its vectors
/// lie in rows, or from line `first` on; `gradient` is that of the rank's features.
fn pack(
    (isa, stores, wire): (Isa, Stores, Wire),
    layout: &Layout,
    (ids, owner, vectors): (&Ids, RankId, &Vectors),
    gradient: &[f32],
    first: usize,
    (to, staged): (&mut [Line], &mut [f32; STAGED]),
) {
    // As much as fills up a row of any message, and whole lines of what travels.
    const NONE: [f32; 32] = [0.0; 32];
    let (row, groups) = (layout.feature_row(), layout.groups(Route { owner, asking: ids.rank() }));
    let elements = size_of_val(to) / wire.bytes();
    let mut writer = LineWriter { isa, stores, wire, to, staged, len: 0 };
    match vectors {
        Vectors::Rows(stride) => {
            let width: usize = groups.iter().map(|group| group.width * group.positions * group.shards.len()).sum();
            for gradient in gradient[first * row..].chunks_exact(row).take(elements / stride) {
                for group in groups {
                    for start in &group.in_features {
                        let vector = |at: usize| &gradient[start + at * group.step..][..group.width];
                        (0..group.positions).for_each(|at| writer.put(vector(at)));
                    }
                }
                writer.put(&NONE[..stride - width]);
            }
        }
        Vectors::Bags(starts) => {
            let start = first * (Line::BYTES / wire.bytes());
            let (mut at, end) = (start, start + elements);
            for group in groups {
                for (place, shard) in group.shards.clone().enumerate() {
                    let numbers = ids.list(owner, group.streams[place], Pass::Backward);
                    while at < end.min(starts[shard + 1]) {
                        let (bag, skipped) = ((at - starts[shard]) / group.width, (at - starts[shard]) % group.width);
                        let (number, count) = (numbers[bag] as usize, (group.width - skipped).min(end - at));
                        let (sample, position) = (number / group.positions, number % group.positions);
                        let start = sample * row + group.in_features[place] + position * group.step + skipped;
                        writer.put(&gradient[start..start + count]);
                        at += count;
                    }
                }
            }
            while at < end {
                let count = (end - at).min(NONE.len());
                writer.put(&NONE[..count]);
                at += count;
            }
        }
    }
    writer.flush();
}

/// Elements that are gathered in the first-level cache before they are written away.
const STAGED: usize = 2048;

/// Lines that are written in order, from pieces of any length.
struct LineWriter<'a> {
    isa: Isa,
    stores: Stores,
    /// What is written of the floats.
    wire: Wire,
    /// What is left.
    to: &'a mut [Line],
    staged: &'a mut [f32; STAGED],
    /// Elements that are staged.
    len: usize,
}

impl LineWriter<'_> {
    fn put(&mut self, mut piece: &[f32]) {
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
    fn flush(&mut self) {
        let lines = Line::hold(self.len * self.wire.bytes());
        let (now, later) = std::mem::take(&mut self.to).split_at_mut(lines);
        match self.wire {
            Wire::F32 => write_lines(self.isa, self.stores, now, &self.staged[..self.len]),
            Wire::Bf16 => narrow(self.isa, self.stores, &self.staged[..self.len], now),
        }
        (self.to, self.len) = (later, 0);
    }
}
