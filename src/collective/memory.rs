//! A rank's memory as a schedule sees it: where hops take their elements from and what they do with those that arrive.
//!
//! The wire format is the payload's. A message is whole cache lines, each written once, as the carrier wants it.

use std::ops::Range;

use bytemuck::Pod;

use super::schedule::{Fold, Payload};
use crate::simd::{Isa, Kernel, Simd, bf16, combine, combine_halves};
use crate::sync::{Line, Stores, copy_part, write_lines};

/// bfloat16 to a cache line.
const HALVES: usize = Line::BYTES / size_of::<u16>();

/// bfloat16 that are narrowed before they are streamed: 8 KiB.
const BLOCK: usize = 128 * HALVES;

#[repr(align(64))]
struct Block([u16; BLOCK]);

/// What the executor moves elements from and to.
pub trait Memory {
    /// How elements travel; the schedule says the same.
    fn payload(&self) -> Payload;

    /// Writes elements of this rank into a message, in this way. For a hop that copies, both sides must end with the
    /// same bits.
    fn put(&mut self, source: Range<usize>, lines: &mut [Line], fold: Fold, stores: Stores);

    /// Does what the fold says with the elements of a message.
    fn get(&mut self, target: Range<usize>, lines: &[Line], fold: Fold);

    /// Adds the last terms to elements whose sum stays with this rank; who has a use for the sum has it now.
    fn complete(&mut self, target: Range<usize>, lines: &[Line]) {
        self.get(target, lines, Fold::Add);
    }

    /// Moves elements that stay with this rank to their place.
    fn keep(&mut self, source: Range<usize>, target: Range<usize>);
}

/// A tensor of f32, reduced or gathered in place.
///
/// With a bf16 payload a rank that sends an element on to be copied rounds its own as well, so that all ranks end with
/// the same bits.
pub struct Tensor<'a> {
    data: &'a mut [f32],
    payload: Payload,
    isa: Isa,
}

impl<'a> Tensor<'a> {
    /// A tensor whose elements travel as `payload`.
    ///
    /// # Panics
    /// When the payload is raw bytes.
    #[must_use]
    pub fn new(data: &'a mut [f32], payload: Payload, isa: Isa) -> Self {
        assert!(!matches!(payload, Payload::Raw(_)), "a tensor travels as f32 or bf16");
        Self { data, payload, isa }
    }
}

impl Memory for Tensor<'_> {
    fn payload(&self) -> Payload {
        self.payload
    }

    fn put(&mut self, source: Range<usize>, lines: &mut [Line], fold: Fold, stores: Stores) {
        let data = &mut self.data[source];
        if self.payload == Payload::F32 {
            return write_lines(self.isa, stores, lines, data);
        }
        let lines = &mut lines[..data.len().div_ceil(HALVES)];
        self.isa.run(Narrow { data, stores, to: bytemuck::cast_slice_mut(lines) });
        if fold == Fold::Copy {
            self.isa.run(Round(data));
        }
    }

    fn get(&mut self, target: Range<usize>, lines: &[Line], fold: Fold) {
        let all = size_of_val(self.data);
        let data = &mut self.data[target];
        if self.payload == Payload::Bf16 {
            let from = &bytemuck::cast_slice(lines)[..data.len()];
            return self.isa.run(Widen { data, from, fold });
        }
        let from = &bytemuck::cast_slice(lines)[..data.len()];
        match fold {
            Fold::Copy => copy_part(self.isa, data, from, all),
            Fold::Add => self.isa.run(Sum { data, from }),
        }
    }

    fn keep(&mut self, source: Range<usize>, target: Range<usize>) {
        self.data.copy_within(source, target.start);
    }
}

/// `data += from`.
struct Sum<'a> {
    data: &'a mut [f32],
    from: &'a [f32],
}

impl Kernel for Sum<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        combine(simd, self.data, self.from, |sum, term| simd.add(sum, term));
    }
}

/// Writes `bf16(data)` to lines that travel; the last one is filled up with 0.
///
/// # Panics
/// When there are not as many lines as it takes.
pub fn narrow(isa: Isa, stores: Stores, data: &[f32], to: &mut [Line]) {
    assert_eq!(to.len(), Line::hold(data.len() * Payload::Bf16.bytes()), "the lines of {} elements", data.len());
    isa.run(Narrow { data, stores, to: bytemuck::cast_slice_mut(to) });
}

/// Writes what [`narrow`] has sent to `data`.
///
/// # Panics
/// When there are fewer elements in the lines.
pub fn widen(isa: Isa, from: &[Line], data: &mut [f32]) {
    let from = &bytemuck::cast_slice(from)[..data.len()];
    isa.run(Widen { data, from, fold: Fold::Copy });
}

/// `to = bf16(data)`; `to` is whole lines, filled up with 0.
struct Narrow<'a> {
    data: &'a [f32],
    stores: Stores,
    to: &'a mut [f32],
}

impl Kernel for Narrow<'_> {
    type Out = ();
    const BF16: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { data, stores, to } = self;
        let whole = data.len() / HALVES * HALVES;
        let (data, tail) = data.split_at(whole);
        let (to, last) = to.split_at_mut(whole / 2);
        // By way of the first-level cache: a line that is loaded right after its halves were stored would have to wait
        // for them to get there.
        let mut block = Block([0; BLOCK]);
        for (data, to) in data.chunks(BLOCK).zip(to.chunks_mut(BLOCK / 2)) {
            for (from, halves) in data.chunks_exact(S::LANES).zip(block.0.chunks_exact_mut(S::LANES)) {
                simd.narrow(simd.load(from), halves);
            }
            let words: &[f32] = bytemuck::cast_slice(&block.0);
            match stores {
                Stores::Streaming => simd.stream(to, |index| simd.load(&words[index * S::LANES..])),
                Stores::Plain => to.copy_from_slice(&words[..to.len()]),
            }
        }
        let mut halves = [0u16; HALVES];
        for (half, x) in halves.iter_mut().zip(tail) {
            *half = bf16::narrow(*x);
        }
        last.copy_from_slice(&bytemuck::cast_slice(&halves)[..last.len()]);
    }
}

/// `data = f32(bf16(data))`.
struct Round<'a>(&'a mut [f32]);

impl Kernel for Round<'_> {
    type Out = ();
    const BF16: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut halves = Block([0; BLOCK]);
        for data in self.0.chunks_mut(BLOCK) {
            let (whole, tail) = data.split_at_mut(data.len() / S::LANES * S::LANES);
            for (x, halves) in whole.chunks_exact_mut(S::LANES).zip(halves.0.chunks_exact_mut(S::LANES)) {
                simd.narrow(simd.load(x), halves);
            }
            for (x, halves) in whole.chunks_exact_mut(S::LANES).zip(halves.0.chunks_exact(S::LANES)) {
                simd.store(simd.widen(halves), x);
            }
            tail.iter_mut().for_each(|x| *x = bf16::widen(bf16::narrow(*x)));
        }
    }
}

/// `data = f32(from)` or `data += f32(from)`.
struct Widen<'a> {
    data: &'a mut [f32],
    from: &'a [u16],
    fold: Fold,
}

impl Kernel for Widen<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { data, from, fold } = self;
        match fold {
            Fold::Add => combine_halves(simd, data, from, |sum, term| simd.add(sum, term)),
            Fold::Copy => combine_halves(simd, data, from, |_, term| term),
        }
    }
}

/// A send and a receive buffer, and a transit buffer if it relays, whose elements travel as they are.
pub struct Between<'a, T> {
    send: &'a [T],
    receive: &'a mut [T],
    transit: &'a mut [T],
    isa: Isa,
}

impl<'a, T: Pod> Between<'a, T> {
    /// From one to the other, for schedules without relays.
    #[must_use]
    pub fn new(send: &'a [T], receive: &'a mut [T], isa: Isa) -> Self {
        Self { send, receive, transit: &mut [], isa }
    }

    /// With a transit buffer of [`super::Schedule::transit_len`] elements; send and receive buffer must be as long as
    /// the parcels.
    #[must_use]
    pub fn relaying(self, transit: &'a mut [T]) -> Self {
        Self { transit, ..self }
    }
}

/// Where a span lies in the buffer behind one of `len` elements; nothing when it does not.
fn behind(len: usize, span: &Range<usize>) -> Option<Range<usize>> {
    (span.start >= len).then(|| span.start - len..span.end - len)
}

impl<T: Pod> Memory for Between<'_, T> {
    fn payload(&self) -> Payload {
        Payload::Raw(size_of::<T>())
    }

    fn put(&mut self, source: Range<usize>, lines: &mut [Line], _: Fold, stores: Stores) {
        let from = match behind(self.send.len(), &source) {
            None => &self.send[source],
            Some(span) => &self.transit[span],
        };
        write_lines(self.isa, stores, lines, from);
    }

    fn get(&mut self, target: Range<usize>, lines: &[Line], _: Fold) {
        let all = size_of_val(self.receive);
        let target = match behind(self.receive.len(), &target) {
            None => &mut self.receive[target],
            Some(span) => &mut self.transit[span],
        };
        let target: &mut [u8] = bytemuck::cast_slice_mut(target);
        copy_part(self.isa, target, &bytemuck::cast_slice(lines)[..target.len()], all);
    }

    fn keep(&mut self, source: Range<usize>, target: Range<usize>) {
        let all = size_of_val(self.receive);
        copy_part(self.isa, &mut self.receive[target], &self.send[source], all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bfloat16_arrives_as_its_definition_says_on_every_twin() {
        let values = |len: usize| -> Vec<f32> { (0..len).map(|i| (i as f32 * 0.713 - 9.0).sin() * 3.0).collect() };
        let rounded = |x: f32| bf16::widen(bf16::narrow(x));
        for isa in Isa::all() {
            for len in [0, 1, 7, 15, 16, 31, 32, 33, 64, 95, 1000, BLOCK, 2 * BLOCK + 77] {
                let ways = [Stores::Streaming, Stores::Plain];
                for (fold, stores) in [Fold::Copy, Fold::Add].into_iter().flat_map(|fold| ways.map(|way| (fold, way))) {
                    let (mut sender, mut receiver) = (values(len + 1), values(len + 2));
                    let mut lines = vec![Line::from([u32::MAX; 16]); len.div_ceil(HALVES) + 1];
                    Tensor::new(&mut sender, Payload::Bf16, isa).put(1..len + 1, &mut lines, fold, stores);
                    assert_eq!(lines.last(), Some(&Line::from([u32::MAX; 16])));
                    Tensor::new(&mut receiver, Payload::Bf16, isa).get(2..len + 2, &lines, fold);
                    for i in 0..len {
                        let sent = values(len + 1)[i + 1];
                        let (kept, base) =
                            if fold == Fold::Copy { (rounded(sent), 0.0) } else { (sent, receiver_at(i)) };
                        assert_eq!(sender[i + 1].to_bits(), kept.to_bits(), "{isa:?} {len} {i}");
                        assert_eq!(receiver[i + 2], base + rounded(sent), "{isa:?} {len} {i}");
                    }
                }
            }
        }
        fn receiver_at(i: usize) -> f32 {
            ((i + 2) as f32 * 0.713 - 9.0).sin() * 3.0
        }
    }
}
