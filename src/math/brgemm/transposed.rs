//! Wᵀ for backward-by-data, made from W a few panels at a time, just before they are multiplied.
//!
//! A transpose of all weights would cost a trip through memory. A piece that fits L2 costs a sixteenth of a shuffle an
//! element, once for all rows of a thread's share, and lies then as the plan wants it: see [`super::right`].

use std::ops::Range;

use super::panels::{Row, WIDTH};
use super::right::{copy_rows, place};
use crate::simd::{Simd, bf16};

/// Elements of a side of the blocks that [`Simd::transpose`] takes.
const SIDE: usize = 16;

/// Wᵀ of C-by-K weights: its panels are 64 columns of dX, its steps are columns of W, or pairs of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transposed<'a> {
    /// W, or its pairs of rows.
    pub(super) cells: &'a [Row<f32>],
    /// Rows between panels, as they lie in memory.
    pub(super) stride: usize,
    /// Rows of a panel, as they lie in memory.
    pub(super) rows: usize,
}

/// A row of floats seen as bfloat16.
type Halves = [u16; 2 * WIDTH];

/// Transposes up to 64 rows into 64 rows, which lie in strips, in a copy with room for `depth` rows.
#[inline(always)]
fn transpose<S: Simd>(simd: S, from: &[Row<f32>], [strip, depth]: [usize; 2], to: &mut [f32]) {
    for (i, from) in from.chunks(SIDE).enumerate() {
        let padded;
        let from = if let Some(from) = from.first_chunk::<SIDE>() {
            from
        } else {
            let mut rows = [[0.0; WIDTH]; SIDE];
            rows[..from.len()].copy_from_slice(from);
            padded = rows;
            &padded
        };
        for j in (0..WIDTH).step_by(SIDE) {
            let to = &mut to[place(i * SIDE, strip, depth) + j * strip..];
            simd.transpose(&from.as_flattened()[j..], WIDTH, to, strip);
        }
    }
}

/// Transposes up to 32 rows of pairs, and pairs the other way: row k of `to` has columns 2k and 2k + 1 of W. `columns`
/// is memory to work in, lest it be cleared each time.
#[inline(always)]
pub(super) fn transpose_pairs<S: Simd>(
    simd: S,
    from: &[Row<f32>],
    columns: &mut [Row<f32>; WIDTH],
    to: &mut [Row<f32>],
) {
    // Each row of this is one column of W: 64 neighbours in bfloat16.
    if from.len() < WIDTH / 2 {
        *columns = [[0.0; WIDTH]; WIDTH];
    }
    transpose(simd, from, [WIDTH; 2], columns.as_flattened_mut());
    for (to, [even, odd]) in to.iter_mut().zip(columns.as_chunks().0) {
        let (even, odd): (&Halves, &Halves) = (bytemuck::cast_ref(even), bytemuck::cast_ref(odd));
        for ((to, &even), &odd) in to.iter_mut().zip(even).zip(odd) {
            *to = f32::from_bits(bf16::pair(even, odd));
        }
    }
}

impl Transposed<'_> {
    /// Copies the steps of a group of panels, in pairs or not (a constant to who calls it), in strips with room for
    /// `depth` steps.
    #[inline(always)]
    pub(super) fn prepare<S: Simd>(
        self,
        simd: S,
        pairs: bool,
        [strip, depth]: [usize; 2],
        group: Range<usize>,
        steps: Range<usize>,
        copy: &mut [Row<f32>],
    ) {
        // A panel of W has 64 columns, and 64 columns of dX are 64 rows of W; pairs halve both.
        let block = if pairs { WIDTH / 2 } else { WIDTH };
        let (mut columns, mut paired) = ([[0.0; WIDTH]; WIDTH], [[0.0; WIDTH]; WIDTH / 2]);
        for (panel, copy) in group.zip(copy.chunks_mut(depth)) {
            let rows = panel * block..self.rows.min((panel + 1) * block);
            let sources = steps.start / block..steps.end.div_ceil(block);
            for (index, source) in sources.enumerate() {
                let from = &self.cells[source * self.stride..][rows.clone()];
                let to = &mut copy.as_flattened_mut()[index * block * strip..];
                if pairs && strip == WIDTH {
                    transpose_pairs(simd, from, &mut columns, to.as_chunks_mut().0);
                } else if pairs {
                    transpose_pairs(simd, from, &mut columns, &mut paired);
                    copy_rows(simd, &paired, 2 * rows.len(), [strip, depth], to);
                } else {
                    transpose(simd, from, [strip, depth], to);
                }
            }
        }
    }
}
