//! Ordinary memory seen as atomic words for the length of a region, and the float addition that x86 lacks.
//!
//! All accesses are relaxed: the words carry numbers, never permissions. What one region wrote the next may read
//! because the end of a region orders everything before it (see `region`).

use super::primitive::{AtomicU32, AtomicU64, Ordering};
use crate::simd::prefetch;

/// 32-bit words, or the bits of floats, that several threads may change at once.
#[must_use]
#[allow(unsafe_code)]
pub fn atomic_words_32(data: &mut [u32]) -> &[AtomicU32] {
    const { assert!(size_of::<AtomicU32>() == size_of::<u32>() && align_of::<AtomicU32>() == align_of::<u32>()) };
    // SAFETY: same size and alignment, every bit pattern is valid in both, and the exclusive borrow lasts as long as
    // the atomic view, so that nobody uses the memory otherwise meanwhile.
    unsafe { std::slice::from_raw_parts(data.as_mut_ptr().cast(), data.len()) }
}

/// Words that several threads may write at once, each to places of its own.
#[must_use]
#[allow(unsafe_code)]
pub fn atomic_words(data: &mut [u64]) -> &[AtomicU64] {
    const { assert!(size_of::<AtomicU64>() == size_of::<u64>() && align_of::<AtomicU64>() == align_of::<u64>()) };
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(data.as_mut_ptr().cast(), data.len()) }
}

/// Writes a word that nobody else writes in this region.
#[inline(always)]
pub fn put(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// `float = factor * gradient + float`, rounded once, whole against other threads: SC20's float addition by compare and
/// exchange.
#[inline(always)]
pub fn mul_add(float: &AtomicU32, factor: f32, gradient: f32) {
    let mut seen = float.load(Ordering::Relaxed);
    loop {
        let moved = factor.mul_add(gradient, f32::from_bits(seen)).to_bits();
        match float.compare_exchange_weak(seen, moved, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Asks for the cache lines of these floats; a hint.
#[inline(always)]
pub fn ask(floats: &[AtomicU32]) {
    for line in floats.chunks(16) {
        prefetch(line.as_ptr());
    }
}
