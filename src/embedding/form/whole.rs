//! Rows of 32-bit floats.

use super::{Form, Seen};
use crate::simd::Simd;

/// 32-bit floats.
#[derive(Debug, Clone, Copy)]
pub(in crate::embedding) struct Whole;

impl Seen for Whole {
    type Columns<'a> = &'a [f32];

    #[inline(always)]
    fn seen_words(dim: usize) -> usize {
        dim
    }

    #[inline(always)]
    fn seen(self, row: &[u32], _dim: usize, first: usize, count: usize) -> &[f32] {
        bytemuck::cast_slice(&row[first..][..count])
    }

    #[inline(always)]
    fn see<S: Simd>(simd: S, from: &[f32], at: usize) -> S::V {
        simd.load(&from[at..])
    }

    #[inline(always)]
    fn see_partial<S: Simd>(simd: S, from: &[f32]) -> S::V {
        simd.load_partial(from)
    }
}

impl Form for Whole {
    type All<'a> = &'a mut [f32];

    #[inline(always)]
    fn words(dim: usize) -> usize {
        dim
    }

    #[inline(always)]
    fn all(self, row: &mut [u32], _dim: usize, first: usize, count: usize) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut row[first..][..count])
    }

    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &&mut [f32], at: usize) -> S::V {
        simd.load(&from[at..])
    }

    #[inline(always)]
    fn load_partial<S: Simd>(simd: S, from: &&mut [f32]) -> S::V {
        simd.load_partial(from)
    }

    #[inline(always)]
    fn keep<S: Simd>(_simd: S, v: S::V) -> S::V {
        v
    }

    #[inline(always)]
    fn store<S: Simd>(simd: S, v: S::V, to: &mut &mut [f32], at: usize) {
        simd.store(v, &mut to[at..]);
    }

    #[inline(always)]
    fn store_partial<S: Simd>(simd: S, v: S::V, to: &mut &mut [f32]) {
        simd.store_partial(v, to);
    }

    fn get(row: &[u32], _dim: usize, column: usize) -> f32 {
        f32::from_bits(row[column])
    }

    fn set(row: &mut [u32], _dim: usize, column: usize, x: f32) {
        row[column] = x.to_bits();
    }
}
