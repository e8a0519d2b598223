//! What the operands of a pass on tiles are made of, and how they come to be pairs of bfloat16.

use bytemuck::Pod;

use super::panels::{Row, WIDTH};
use crate::simd::amx::{Pairs, UNIT};
use crate::simd::bf16::{pair, thirds};

/// bfloat16, or a 32-bit float that is multiplied in three parts.
pub(super) trait Term: Pod + Sync {
    /// bfloat16 that a number becomes, at most 3.
    const PARTS: usize;

    /// Units of a chunk of depth: 16 to 24 KiB of either operand for 32 rows or columns.
    const CHUNK: usize;

    /// Elements of 32 columns of a right operand in a chunk.
    const BLOCK: usize = Self::CHUNK * Self::PARTS;

    /// The parts of two numbers, as pairs: parts beyond the last are not touched.
    fn pair(even: Self, odd: Self) -> [u32; 3];

    /// The parts of a row, whose neighbours are pairs.
    fn row(from: &Row<Self>, to: &mut [Pairs; 3]);
}

impl Term for u16 {
    const PARTS: usize = 1;
    const CHUNK: usize = 4;

    #[inline(always)]
    fn pair(even: Self, odd: Self) -> [u32; 3] {
        [pair(even, odd), 0, 0]
    }

    #[inline(always)]
    fn row(from: &Row<Self>, to: &mut [Pairs; 3]) {
        to[0] = bytemuck::cast(*from);
    }
}

impl Term for f32 {
    const PARTS: usize = 3;
    const CHUNK: usize = 2;

    #[inline(always)]
    fn pair(even: Self, odd: Self) -> [u32; 3] {
        let (even, odd) = (thirds(even), thirds(odd));
        [even[0] >> 16 | odd[0], even[1] >> 16 | odd[1], even[2] >> 16 | odd[2]]
    }

    #[inline(always)]
    fn row(from: &Row<Self>, to: &mut [Pairs; 3]) {
        let to: &mut [[u16; WIDTH]; 3] = bytemuck::cast_mut(to);
        for (i, &x) in from.iter().enumerate() {
            let [high, middle, low] = thirds(x);
            to[0][i] = (high >> 16) as u16;
            to[1][i] = (middle >> 16) as u16;
            to[2][i] = (low >> 16) as u16;
        }
    }
}

/// Rows of a matrix in panels: samples, or weights.
#[derive(Debug, Clone, Copy)]
pub(super) struct Samples<'a, T> {
    /// All panels.
    pub(super) cells: &'a [Row<T>],
    /// Rows between panels.
    pub(super) stride: usize,
    /// How many count; those behind them are taken for zeros where they are summed over.
    pub(super) count: usize,
}

impl<T: Term> Samples<'_, T> {
    /// N columns from `column` on of rows 2 `index` and 2 `index` + 1, column by column, part by part.
    #[inline(always)]
    pub(super) fn pair<const N: usize>(&self, panel: usize, index: usize, column: usize, to: &mut [[u32; N]; 3]) {
        let zeros = [T::zeroed(); N];
        let (even, odd) = (self.part(panel, 2 * index, column), self.part(panel, 2 * index + 1, column));
        let (even, odd) = (even.unwrap_or(&zeros), odd.unwrap_or(&zeros));
        for i in 0..N {
            let parts = T::pair(even[i], odd[i]);
            for (to, part) in to.iter_mut().zip(parts).take(T::PARTS) {
                to[i] = part;
            }
        }
    }

    /// N columns of a row, if it counts.
    #[inline(always)]
    fn part<const N: usize>(&self, panel: usize, row: usize, column: usize) -> Option<&[T; N]> {
        if row >= self.count {
            return None;
        }
        self.cells[panel * self.stride + row][column..].first_chunk()
    }

    /// All columns of a panel of a row, part by part.
    #[inline(always)]
    pub(super) fn row(&self, panel: usize, row: usize, to: &mut [[u32; UNIT]; 3]) {
        T::row(&self.cells[panel * self.stride + row], to);
    }
}
