//! Element by element over two slices, whole vectors first and a partial one at the end.

use super::Simd;

/// `out[i] = f(out[i], from[i])` for every element.
///
/// # Panics
/// When the lengths differ.
#[inline(always)]
pub fn combine<S: Simd>(simd: S, out: &mut [f32], from: &[f32], f: impl Fn(S::V, S::V) -> S::V) {
    assert_eq!(out.len(), from.len(), "one element each");
    for (out, from) in out.chunks_mut(S::LANES).zip(from.chunks(S::LANES)) {
        if from.len() == S::LANES {
            simd.store(f(simd.load(out), simd.load(from)), out);
        } else {
            simd.store_partial(f(simd.load_partial(out), simd.load_partial(from)), out);
        }
    }
}

/// As [`combine`], of halves that are widened.
///
/// # Panics
/// When the lengths differ.
#[inline(always)]
pub fn combine_halves<S: Simd>(simd: S, out: &mut [f32], from: &[u16], f: impl Fn(S::V, S::V) -> S::V) {
    assert_eq!(out.len(), from.len(), "one element each");
    for (out, from) in out.chunks_mut(S::LANES).zip(from.chunks(S::LANES)) {
        if from.len() == S::LANES {
            simd.store(f(simd.load(out), simd.widen(from)), out);
        } else {
            let mut whole = [0; 16];
            whole[..from.len()].copy_from_slice(from);
            simd.store_partial(f(simd.load_partial(out), simd.widen(&whole)), out);
        }
    }
}
