//! Whole cache lines, and copying into them past the caches.
//!
//! A line that is written whole with non-temporal stores is neither read first nor kept by the writer: over a link
//! between sockets it travels once, one way. Source: Intel 64 and IA-32 Architectures Optimization Reference Manual,
//! "Non-temporal stores".

use bytemuck::{Pod, Zeroable};

use crate::simd::{Isa, Kernel, Ordered, Simd};

/// A cache line: 64 bytes, aligned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Line([u32; 16]);

impl Line {
    /// Its size.
    pub const BYTES: usize = size_of::<Self>();

    /// 32-bit floats of a line.
    pub const FLOATS: usize = Self::BYTES / size_of::<f32>();

    /// How many lines hold `bytes` bytes.
    #[must_use]
    pub const fn hold(bytes: usize) -> usize {
        bytes.div_ceil(Self::BYTES)
    }
}

impl From<[u32; 16]> for Line {
    fn from(words: [u32; 16]) -> Self {
        Self(words)
    }
}

/// How lines are written that somebody else reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// Past the caches: for a reader on another node, and for more than a cache holds.
    Streaming,
    /// Into the caches: for a reader near by, soon.
    Plain,
}

/// Copies `from` to the first lines of `to`; the last line, if `from` ends inside of it, is filled up with zeros.
/// `from` may lie anywhere. On return all stores are in order with later ones.
///
/// # Panics
/// When `to` is too short.
#[inline]
pub fn write_lines<T: Pod>(isa: Isa, stores: Stores, to: &mut [Line], from: &[T]) {
    let from: &[u8] = bytemuck::cast_slice(from);
    let to = &mut to[..Line::hold(from.len())];
    let (whole, tail) = from.split_at(from.len() / Line::BYTES * Line::BYTES);
    let (lines, last) = to.split_at_mut(whole.len() / Line::BYTES);
    match (stores, bytemuck::try_cast_slice::<u8, f32>(whole)) {
        (Stores::Plain, _) => bytemuck::cast_slice_mut(lines).copy_from_slice(whole),
        (Stores::Streaming, Ok(floats)) if !matches!(isa, Isa::Scalar(_)) => {
            isa.run(Stream { to: bytemuck::cast_slice_mut(lines), from: floats });
        }
        (Stores::Streaming, _) => stream_sse2(lines, whole),
    }
    if let [last] = last {
        let mut line = Line::zeroed();
        bytemuck::bytes_of_mut(&mut line)[..tail.len()].copy_from_slice(tail);
        *last = line;
    }
}

/// What is longer is not in the caches any more when it has been copied, so that it had better not pass them: the
/// second-level cache of a core.
const LONG: usize = 2 << 20;

/// Fewest bytes that are streamed at once: of less, too much would be parts of lines.
const LEAST: usize = 16 << 10;

/// `to = from`, a part of `all` bytes that are copied: past the caches if those are long. Either may lie anywhere; on
/// return all stores are in order with later ones.
///
/// # Panics
/// When the lengths differ.
pub fn copy_part<T: Pod>(isa: Isa, to: &mut [T], from: &[T], all: usize) {
    if all < LONG || size_of_val(from) < LEAST {
        return to.copy_from_slice(from);
    }
    assert_eq!(to.len(), from.len(), "copies are as long as what is copied");
    let (to, from): (&mut [u8], &[u8]) = (bytemuck::cast_slice_mut(to), bytemuck::cast_slice(from));
    let head = to.as_ptr().align_offset(Line::BYTES);
    let whole = (to.len() - head) / Line::BYTES * Line::BYTES;
    let (to_head, to) = to.split_at_mut(head);
    let (to, to_tail) = to.split_at_mut(whole);
    to_head.copy_from_slice(&from[..head]);
    write_lines(isa, Stores::Streaming, bytemuck::cast_slice_mut(to), &from[head..head + whole]);
    to_tail.copy_from_slice(&from[head + whole..]);
}

/// The vectors of 32 or 64 bytes; floats as containers of any bits.
struct Stream<'a> {
    to: &'a mut [f32],
    from: &'a [f32],
}

impl Kernel for Stream<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let from = self.from;
        simd.stream(self.to, |index| simd.load(&from[index * S::LANES..]));
    }
}

/// What every x86-64 processor has: 16 bytes a store, from addresses of any alignment.
fn stream_sse2(to: &mut [Line], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    assert_eq!(size_of_val(to), from.len(), "whole lines");
    for (to, from) in to.iter_mut().zip(from.chunks_exact(Line::BYTES)) {
        for at in (0..Line::BYTES).step_by(size_of::<__m128i>()) {
            // SAFETY: at + 16 <= 64, the length of `from`; the load has no alignment; SSE2 is part of x86-64.
            #[allow(unsafe_code)]
            let vector = unsafe { _mm_loadu_si128(from.as_ptr().wrapping_add(at).cast()) };
            let place = std::ptr::from_mut(to).cast::<u8>().wrapping_add(at);
            // SAFETY: inside `to`, which is 64 bytes and aligned to 64; the fence below comes before anybody reads it,
            // while the exclusive borrow lasts.
            #[allow(unsafe_code)]
            unsafe {
                _mm_stream_si128(place.cast(), vector);
            }
        }
    }
    drop(Ordered);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_arrives_and_nothing_else_changes() {
        let bytes: Vec<u8> = (0..1000).map(|i| (i * 7 % 251) as u8 + 1).collect();
        for isa in Isa::all() {
            for (start, stores) in (0..9).flat_map(|start| [(start, Stores::Streaming), (start, Stores::Plain)]) {
                for len in (0..70).chain([127, 128, 129, 640, 641, 900]) {
                    let mut to = vec![Line::from([u32::MAX; 16]); 17];
                    let from = &bytes[start..start + len];
                    write_lines(isa, stores, &mut to[1..16], from);
                    let seen: &[u8] = bytemuck::cast_slice(&to);
                    let end = 64 + Line::hold(len) * 64;
                    assert_eq!(&seen[64..64 + len], from, "{isa:?} {start} {len}");
                    assert!(seen[64 + len..end].iter().all(|&x| x == 0), "{isa:?} {start} {len}");
                    assert!(seen[..64].iter().chain(&seen[end..]).all(|&x| x == 255), "{isa:?} {start} {len}");
                }
            }
        }
    }

    #[test]
    fn parts_of_long_copies_are_copies() {
        let most = LEAST + 300;
        let bytes: Vec<u8> = (0..most).map(|i| (i * 7 % 251) as u8 + 1).collect();
        for isa in Isa::all() {
            for all in [0, LONG] {
                for (start, at, len) in
                    [(0, 0, LEAST), (1, 5, LEAST + 64), (3, 63, LEAST + 200), (64, 64, 100), (0, 7, LEAST - 1)]
                {
                    let mut to = vec![0u8; most];
                    copy_part(isa, &mut to[at..at + len], &bytes[start..start + len], all);
                    assert_eq!(to[at..at + len], bytes[start..start + len], "{isa:?} {start} {at} {len}");
                    assert!(to[..at].iter().chain(&to[at + len..]).all(|&x| x == 0), "{isa:?} {start} {at} {len}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "range end index 3")]
    fn too_few_lines_are_refused() {
        write_lines(Isa::best(), Stores::Streaming, &mut [Line::from([0; 16]); 2], &[0u8; 129]);
    }
}
