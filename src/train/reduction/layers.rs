//! What ranks exchange of a layer: gradients that each has, for weights that one rank moves for all.
//!
//! SC20, Section IV-A: gradients are reduce-scattered, each rank moves its slice of the weights, moved weights are
//! gathered by all. The step is in the last addition where weights are 32-bit floats: the sum is never written. Where
//! they are in halves it follows at once, and both halves travel, so that every rank has the whole layer.
//!
//! Several threads of a rank share a layer: each takes a part of every rank's slice, in a lane of its own. Who owns an
//! element and in which order its terms are added does not depend on their number: slices are cut in the ways of the
//! reduction first, and then each way among threads.

use std::ops::Range;

use crate::base::Result;
use crate::base::config::Wire;
use crate::collective::plan::Reduction;
use crate::collective::{
    Carrier, Executor, Fold, Links, Memory, Payload, Pieces, PiecesMemory, Tensor, meeting, met, widen,
};
use crate::layer::{Linear, Piece};
use crate::optim::StepSize;
use crate::simd::Isa;
use crate::sync::{Line, Stores};

/// Some weights and some biases of each way of each owner's slice, by owner.
pub(super) type ThreadShare<'a> = Vec<[Piece<'a>; 2]>;

/// Elements of a last term that are widened at a time.
const TERM: usize = 1024;

/// Gives `deal` a layer's pieces for `threads` threads of each of `ranks` ranks, whose slices go so many ways: the
/// thread, and what its share has next.
pub(super) fn share_out<'a>(
    layer: &'a mut Linear,
    [ranks, ways, threads]: [usize; 3],
    mut deal: impl FnMut(usize, [Piece<'a>; 2]),
) {
    layer.pieces(ranks * ways * threads).enumerate().for_each(|(index, pieces)| deal(index % threads, pieces));
}

/// One thread's part in the exchange of one layer.
#[derive(Debug)]
pub(super) struct LayerExchange {
    reduce_scatter: Executor,
    all_gather: Executor,
    /// Positions in a share of what this rank owns.
    own: Range<usize>,
    traffic: Links,
    /// Where each piece begins.
    starts: Vec<usize>,
    /// What gradients travel in; weights travel as they are.
    payload: Payload,
    memory: PiecesMemory,
}

impl LayerExchange {
    /// For pieces of these sizes, which are the same on all ranks.
    ///
    /// # Panics
    /// When there is not a piece for each way of each rank, or the rank is alone.
    #[must_use]
    pub fn new(share: ThreadShare<'_>, carrier: &dyn Carrier, reduction: &Reduction, wire: Wire) -> Self {
        assert_eq!(share.len(), carrier.ranks() * reduction.ways, "pieces for each way of each rank");
        let owner = carrier.rank().index();
        let own = owner * reduction.ways..(owner + 1) * reduction.ways;
        let payload = Payload::from(wire);
        let line = Line::BYTES / payload.bytes();
        let padded = |len: usize, line: usize| len.next_multiple_of(line);
        let (mut gradients, mut words, mut starts, mut start) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for mut pieces in share {
            for piece in &mut pieces {
                starts.push(start);
                start += padded(piece.gradient().len(), line);
            }
            gradients.push(pieces.iter_mut().map(|piece| padded(piece.gradient().len(), line)).sum::<usize>());
            words.push(
                pieces.into_iter().flat_map(Piece::into_words).map(|words| padded(words.len(), Line::FLOATS)).sum(),
            );
        }
        let reduce_scatter = reduction.plan_cut(&gradients, payload);
        let all_gather = reduction.plan_cut(&words, Payload::F32).all_gather();
        let traffic = reduce_scatter.traffic().plus(&all_gather.traffic());
        let reduce_scatter = Executor::new(&reduce_scatter, carrier, "reduce-scatter of a layer's gradients");
        let sums = gradients[own.clone()].iter().sum::<usize>();
        assert_eq!(reduce_scatter.completed(), sums, "every sum has a last term: a rank alone reduces nothing");
        let all_gather = Executor::new(&all_gather, carrier, "all-gather of a layer's weights");
        Self { reduce_scatter, all_gather, own, traffic, starts, payload, memory: PiecesMemory::default() }
    }

    /// Bytes from each rank to each other in one run.
    #[must_use]
    pub const fn traffic(&self) -> &Links {
        &self.traffic
    }

    /// Sums this rank's pieces of all ranks' gradients, and moves their weights by this step size; where that needs
    /// norms of the whole layer, gradients become directions, and [`LayerExchange::all_gather`] moves the weights.
    /// Without one, notes the squares of the sums, which [`LayerExchange::clip`] moves by.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When the pieces have other sizes than were planned.
    pub fn reduce_scatter(
        &mut self,
        carrier: &mut dyn Carrier,
        share: &mut ThreadShare<'_>,
        isa: Isa,
        step_size: Option<StepSize>,
    ) -> Result<()> {
        assert_eq!(share.len() * 2, self.starts.len(), "as many pieces as was planned");
        self.reduce_scatter
            .run(carrier, &mut Sums { share, starts: &self.starts, payload: self.payload, isa, step_size })?;
        for piece in share[self.own.clone()].iter_mut().flatten() {
            match step_size {
                None => piece.square(isa),
                Some(step_size) if !piece.is_whole() => begin_step(piece, isa, step_size),
                Some(_) => (),
            }
        }
        Ok(())
    }

    /// Does with gradients that were summed without a step size, multiplied by a factor, what
    /// [`LayerExchange::reduce_scatter`] does with one.
    pub fn clip(&self, share: &mut ThreadShare<'_>, isa: Isa, factor: f32, step_size: StepSize) {
        for piece in share[self.own.clone()].iter_mut().flatten() {
            if factor != 1.0 {
                piece.scale(isa, factor);
            }
            begin_step(piece, isa, step_size);
        }
    }

    /// This rank's pieces, in their order: each way's.
    pub fn own<'s, 'p>(&self, share: &'s ThreadShare<'p>) -> &'s [[Piece<'p>; 2]] {
        &share[self.own.clone()]
    }

    /// Gives this rank's weights to all, first moved at `step_sizes` if there are some, weights and biases; takes the
    /// pieces.
    ///
    /// # Errors
    /// As [`LayerExchange::reduce_scatter`].
    pub fn all_gather(
        &mut self,
        carrier: &mut dyn Carrier,
        share: &mut ThreadShare<'_>,
        isa: Isa,
        step_sizes: Option<[StepSize; 2]>,
    ) -> Result<()> {
        for pair in &mut share[self.own.clone()] {
            let step_sizes = step_sizes.into_iter().flatten();
            pair.iter_mut().zip(step_sizes).for_each(|(piece, step_size)| piece.update(isa, step_size));
        }
        let mut words = Pieces::within(&mut self.memory, isa);
        share.drain(..).flatten().flat_map(Piece::into_words).for_each(|part| words.push(part));
        let result = self.all_gather.run(carrier, &mut words);
        self.memory = words.into_memory();
        result
    }
}

/// Moves weights, or where that needs norms of the whole layer, puts directions in the place of gradients.
fn begin_step(piece: &mut Piece<'_>, isa: Isa, step_size: StepSize) {
    match piece.optimizer().direction(step_size) {
        Some(rule) => piece.direct(isa, rule),
        None => piece.update(isa, step_size),
    }
}

/// Gradients on their way to their owners; the owner's become steps, if they have a step size.
struct Sums<'a, 'b> {
    share: &'a mut ThreadShare<'b>,
    starts: &'a [usize],
    payload: Payload,
    isa: Isa,
    step_size: Option<StepSize>,
}

impl<'b> Sums<'_, 'b> {
    /// For each of the pieces that `range` meets: the piece, the part that is meant, and its lines.
    fn meet(&mut self, range: &Range<usize>, mut with: impl FnMut(&mut Piece<'b>, Range<usize>, Range<usize>)) {
        let line = Line::BYTES / self.payload.bytes();
        for at in meeting(self.starts, |start| *start, range) {
            // Weights and biases of each.
            let piece = &mut self.share[at / 2][at % 2];
            if let Some((part, lines)) = met((self.starts[at], piece.gradient().len()), range, line) {
                with(piece, part, lines);
            }
        }
    }
}

impl Memory for Sums<'_, '_> {
    fn payload(&self) -> Payload {
        self.payload
    }

    fn put(&mut self, source: Range<usize>, to: &mut [Line], fold: Fold, stores: Stores) {
        let (isa, payload) = (self.isa, self.payload);
        self.meet(&source, |piece, part, lines| {
            Tensor::new(piece.gradient(), payload, isa).put(part, &mut to[lines], fold, stores);
        });
    }

    fn get(&mut self, target: Range<usize>, from: &[Line], fold: Fold) {
        let (isa, payload) = (self.isa, self.payload);
        self.meet(&target, |piece, part, lines| {
            Tensor::new(piece.gradient(), payload, isa).get(part, &from[lines], fold);
        });
    }

    fn complete(&mut self, target: Range<usize>, from: &[Line]) {
        let (isa, step_size, payload) = (self.isa, self.step_size, self.payload);
        self.meet(&target, |piece, part, lines| {
            let from = &from[lines];
            let Some(step_size) = step_size else {
                return Tensor::new(piece.gradient(), payload, isa).get(part, from, Fold::Add);
            };
            let moved = if payload == Payload::F32 {
                let term: &[f32] = &bytemuck::cast_slice(from)[..part.len()];
                piece.update_with(part.clone(), term, isa, step_size)
            } else {
                let mut term = [0.0; TERM];
                let starts = part.clone().step_by(TERM);
                let mut terms = starts.zip(from.chunks(TERM * payload.bytes() / Line::BYTES));
                terms.all(|(start, from)| {
                    let part = start..part.end.min(start + TERM);
                    let term = &mut term[..part.len()];
                    widen(isa, from, term);
                    piece.update_with(part, term, isa, step_size)
                })
            };
            if !moved {
                Tensor::new(piece.gradient(), payload, isa).get(part, from, Fold::Add);
            }
        });
    }

    fn keep(&mut self, source: Range<usize>, target: Range<usize>) {
        assert_eq!(source, target, "a sum stays where it is");
    }
}
