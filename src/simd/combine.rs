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
