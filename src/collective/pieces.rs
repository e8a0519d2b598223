//! Several tensors as one piece of memory for a collective, as gradients are in a bucket of PyTorch's DDP, but without
//! a copy: they stay where they are, and it sees them one after another, each from a cache line on.

use std::ops::Range;

use super::memory::{Memory, Tensor};
use super::schedule::{Fold, Payload};
use crate::memory::recycled;
use crate::simd::Isa;
use crate::sync::{Line, Stores};

/// Several tensors as one: each begins at a multiple of 16 elements, and what is between two of them means nothing.
pub struct Pieces<'a> {
    /// Where each begins, with its elements.
    pieces: Vec<(usize, &'a mut [f32])>,
    len: usize,
    isa: Isa,
}

/// Memory for [`Pieces`], kept from step to step.
#[derive(Debug, Default)]
pub struct PiecesMemory(Vec<(usize, &'static mut [f32])>);

impl<'a> Pieces<'a> {
    /// None yet, in memory that was used before.
    #[must_use]
    pub fn within(memory: &mut PiecesMemory, isa: Isa) -> Self {
        Self { pieces: recycled(std::mem::take(&mut memory.0)), len: 0, isa }
    }

    /// Adds a tensor behind the others.
    pub fn push(&mut self, tensor: &'a mut [f32]) {
        let start = self.len;
        self.len += tensor.len().next_multiple_of(Line::FLOATS);
        self.pieces.push((start, tensor));
    }

    /// Gives the memory back.
    #[must_use]
    pub fn into_memory(self) -> PiecesMemory {
        PiecesMemory(recycled(self.pieces))
    }

    /// What [`Pieces::len`] is for tensors of these sizes.
    #[must_use]
    pub fn len_of(sizes: impl Iterator<Item = usize>) -> usize {
        sizes.map(|size| size.next_multiple_of(Line::FLOATS)).sum()
    }

    /// Elements, those between tensors included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// For each tensor that `range` meets: the tensor, the part that is meant, and the lines of the message that hold
    /// it.
    fn meet(&mut self, range: &Range<usize>, mut with: impl FnMut(Isa, &mut [f32], Range<usize>, Range<usize>)) {
        debug_assert!(range.start.is_multiple_of(Line::FLOATS), "messages begin at lines");
        for at in meeting(&self.pieces, |(start, _)| *start, range) {
            let (start, tensor) = &mut self.pieces[at];
            if let Some((part, lines)) = met((*start, tensor.len()), range, Line::FLOATS) {
                with(self.isa, tensor, part, lines);
            }
        }
    }
}

/// The numbers of the pieces, ascending by where they begin, that `range` may meet.
#[must_use]
pub fn meeting<T>(pieces: &[T], start: impl Fn(&T) -> usize, range: &Range<usize>) -> Range<usize> {
    let first = pieces.partition_point(|piece| start(piece) <= range.start).saturating_sub(1);
    first..first + pieces[first..].partition_point(|piece| start(piece) < range.end)
}

/// The part of a piece that begins at `start` which `range` means, and the lines, of so many elements, that hold it in
/// the message of `range`; nothing where they do not meet.
#[must_use]
pub fn met((start, len): (usize, usize), range: &Range<usize>, line: usize) -> Option<(Range<usize>, Range<usize>)> {
    let (from, to) = (range.start.max(start), range.end.min(start + len));
    let lines = || (from - range.start) / line..(to - range.start).div_ceil(line);
    (from < to).then(|| (from - start..to - start, lines()))
}

impl Memory for Pieces<'_> {
    fn payload(&self) -> Payload {
        Payload::F32
    }

    fn put(&mut self, source: Range<usize>, to: &mut [Line], fold: Fold, stores: Stores) {
        self.meet(&source, |isa, tensor, part, lines| {
            Tensor::new(tensor, Payload::F32, isa).put(part, &mut to[lines], fold, stores)
        });
    }

    fn get(&mut self, target: Range<usize>, from: &[Line], fold: Fold) {
        self.meet(&target, |isa, tensor, part, lines| {
            Tensor::new(tensor, Payload::F32, isa).get(part, &from[lines], fold)
        });
    }

    fn keep(&mut self, source: Range<usize>, target: Range<usize>) {
        assert_eq!(source, target, "a sum stays where it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_meets_the_pieces_that_it_overlaps_wherever_it_begins_and_ends() {
        // Some are empty, and what fills up lines is no piece's.
        let pieces = [(0, 5), (16, 0), (16, 32), (48, 0), (48, 0), (48, 1), (64, 40)];
        for (start, end) in (0..=112).flat_map(|start| (start..=112).map(move |end| (start, end))) {
            let range = start..end;
            let all = pieces.iter().enumerate().filter_map(|(at, piece)| Some((at, met(*piece, &range, 16)?)));
            let found = meeting(&pieces, |(start, _)| *start, &range);
            let found = found.filter_map(|at| Some((at, met(pieces[at], &range, 16)?)));
            assert!(found.eq(all), "{range:?}");
        }
        assert_eq!(met((16, 32), &(0..40), 16), Some((0..24, 1..3)));
        assert_eq!(met((16, 32), &(32..112), 16), Some((16..32, 0..1)));
        assert!(meeting(&[0; 0], |start| *start, &(0..16)).is_empty());
    }
}
