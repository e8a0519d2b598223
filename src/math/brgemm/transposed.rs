//! Wᵀ for backward-by-data, made from W a few panels at a time, just before they are multiplied.
//!
//! A transpose of all weights would cost a trip through memory. A piece that fits L2 costs a sixteenth of a shuffle an
//! element, once for all rows of a thread's share.

use std::ops::Range;

use super::panels::{Row, WIDTH};
use super::plan::Plan;
use crate::memory::Buffer;
use crate::simd::{Simd, bf16};

/// Elements of a side of the blocks that [`Simd::transpose`] takes.
const SIDE: usize = 16;

/// Each thread's memory for pieces of Wᵀ. It grows to what the largest layer needs and is then reused.
#[derive(Debug)]
pub struct Scratch {
    cells: Buffer<f32>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { cells: Buffer::zeroed(0) }
    }
}

impl Scratch {
    /// So many rows for each thread.
    pub(super) fn rows(&mut self, plan: &Plan, threads: usize) -> (&mut [Row<f32>], usize) {
        let each = plan.depth * plan.group;
        if self.cells.len() < threads * each * WIDTH {
            self.cells = Buffer::zeroed(threads * each * WIDTH);
        }
        (&mut self.cells.as_chunks_mut().0[..threads * each], each)
    }
}

/// Wᵀ of C-by-K weights: its panels are 64 columns of dX, its steps are columns of W, or pairs of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transposed<'a> {
    /// W, or its pairs of rows.
    pub(super) cells: &'a [Row<f32>],
    /// Rows between panels, as they lie in memory.
    pub(super) stride: usize,
    /// Rows of a panel, as they lie in memory.
    pub(super) rows: usize,
    /// Rows of scratch for each panel of a group.
    pub(super) depth: usize,
}

/// A row of floats seen as bfloat16.
type Halves = [u16; 2 * WIDTH];

/// Transposes up to 64 rows into 64 rows.
#[inline(always)]
fn transpose<S: Simd>(simd: S, from: &[Row<f32>], to: &mut [Row<f32>; WIDTH]) {
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
            simd.transpose(&from.as_flattened()[j..], WIDTH, &mut to[j..].as_flattened_mut()[i * SIDE..], WIDTH);
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
    transpose(simd, from, columns);
    for (to, [even, odd]) in to.iter_mut().zip(columns.as_chunks().0) {
        let (even, odd): (&Halves, &Halves) = (bytemuck::cast_ref(even), bytemuck::cast_ref(odd));
        for ((to, &even), &odd) in to.iter_mut().zip(even).zip(odd) {
            *to = f32::from_bits(bf16::pair(even, odd));
        }
    }
}

impl Transposed<'_> {
    /// Makes the steps of a group of panels, in pairs or not: a constant to who calls it.
    #[inline(always)]
    pub(super) fn prepare<S: Simd>(
        self,
        simd: S,
        pairs: bool,
        group: Range<usize>,
        steps: Range<usize>,
        scratch: &mut [Row<f32>],
    ) {
        // A panel of W has 64 columns, and 64 columns of dX are 64 rows of W; pairs halve both.
        let block = if pairs { WIDTH / 2 } else { WIDTH };
        let mut columns = [[0.0; WIDTH]; WIDTH];
        for (panel, scratch) in group.zip(scratch.chunks_mut(self.depth)) {
            let rows = panel * block..self.rows.min((panel + 1) * block);
            let sources = steps.start / block..steps.end.div_ceil(block);
            for (source, to) in sources.zip(scratch.chunks_mut(block)) {
                let from = &self.cells[source * self.stride..][rows.clone()];
                if pairs {
                    transpose_pairs(simd, from, &mut columns, to);
                } else {
                    transpose(simd, from, to.first_chunk_mut().expect("depth is a multiple of the block"));
                }
            }
        }
    }
}
