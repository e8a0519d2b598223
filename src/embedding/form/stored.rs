//! Rows as a checkpoint has them, 32-bit floats, of which a look-up in a model of split weights reads the upper halves:
//! those of a mapped file, which nobody moves.

use super::{Seen, Whole};
use crate::simd::Simd;
use crate::simd::split::{join, split};

/// 32-bit floats that are seen without their lower halves.
#[derive(Debug, Clone, Copy)]
pub(in crate::embedding) struct Stored;

/// Without the lower halves.
#[inline(always)]
fn cut<S: Simd>(simd: S, v: S::V) -> S::V {
    let mut lanes = [0.0; 16];
    simd.store(v, &mut lanes);
    for lane in &mut lanes[..S::LANES] {
        *lane = join(split(*lane).0, 0);
    }
    simd.load(&lanes)
}

impl Seen for Stored {
    type Columns<'a> = &'a [f32];

    #[inline(always)]
    fn seen_words(dim: usize) -> usize {
        Whole::seen_words(dim)
    }

    #[inline(always)]
    fn seen(self, row: &[u32], dim: usize, first: usize, count: usize) -> &[f32] {
        Whole.seen(row, dim, first, count)
    }

    #[inline(always)]
    fn see<S: Simd>(simd: S, from: &[f32], at: usize) -> S::V {
        cut(simd, Whole::see(simd, from, at))
    }

    #[inline(always)]
    fn see_partial<S: Simd>(simd: S, from: &[f32]) -> S::V {
        cut(simd, Whole::see_partial(simd, from))
    }
}
