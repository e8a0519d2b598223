//! One piece of a pass: the loops around the microkernel.
//!
//! From the outside in: groups of panels whose right operand stays in L2 for one chunk of depth, tiles of rows, the
//! group's panels, the panel's columns. A tile's rows of the left operand are so read from L3 or memory once a
//! group and come from L1 or L2 for all but the first columns; the right operand streams from L2 under the
//! multiply-adds.

use std::ops::Range;

use super::panels::{Row, WIDTH};
use super::passes::{After, Onto};
use super::tile::{Cell, Heights, Left, Start, Tile};
use super::transposed::Transposed;
use crate::simd::{Kernel, Simd};
use crate::sync::GridPart;

/// The right operand of a product. Not a type that a sweep is compiled for: which one it is counts once a group and
/// once a panel, and the microkernel sees rows alone.
#[derive(Debug, Clone, Copy)]
pub(super) enum Right<'a> {
    /// It lies in memory as the microkernel reads it.
    Ready {
        cells: &'a [Row<f32>],
        /// Rows between panels.
        stride: usize,
    },
    /// It is made ready group by group.
    Transposed(Transposed<'a>),
}

impl Right<'_> {
    /// Makes the steps of a group of panels ready, in `scratch` if it needs any.
    #[inline(always)]
    fn prepare<S: Simd, L: Left>(self, simd: S, group: Range<usize>, steps: Range<usize>, scratch: &mut [Row<f32>]) {
        match self {
            Self::Ready { .. } => {}
            Self::Transposed(of) if L::MEETS_TRANSPOSED => of.prepare(simd, L::PAIRS, group, steps, scratch),
            Self::Transposed(_) => unreachable!("columns are multiplied with rows as they lie"),
        }
    }

    /// The steps of panel number `index` of the group, made ready before.
    #[inline(always)]
    fn steps<'b>(
        &'b self,
        group: &Range<usize>,
        index: usize,
        steps: Range<usize>,
        scratch: &'b [Row<f32>],
    ) -> &'b [Row<f32>] {
        match self {
            Self::Ready { cells, stride } => &cells[(group.start + index) * stride..][steps],
            Self::Transposed(of) => &scratch[index * of.depth..][..steps.len()],
        }
    }
}

/// What a thread keeps from piece to piece of one chunk.
#[derive(Debug, Default)]
pub(super) struct Own<'a> {
    /// Memory for the right operand, if it needs any.
    pub(super) rows: &'a mut [Row<f32>],
    /// The panels that are ready there.
    pub(super) held: Option<Range<usize>>,
}

/// A piece of a pass, for one chunk of depth.
pub(super) struct Sweep<'a, 'b, L, C> {
    pub(super) out: GridPart<'a, Row<C>>,
    /// Columns of the whole result.
    pub(super) columns: usize,
    pub(super) left: L,
    pub(super) right: Right<'a>,
    pub(super) own: &'a mut Own<'b>,
    /// The chunk; after the first, sums go on from what the result holds.
    pub(super) steps: Range<usize>,
    /// Panels whose right operand is near at a time.
    pub(super) group: usize,
    /// One a column of the whole result: what the sums of the first chunk start from, if not 0.
    pub(super) bias: Option<&'a [f32]>,
    /// What they start from where there is no bias.
    pub(super) onto: Onto,
    /// What becomes of the sums after this chunk.
    pub(super) ending: After<'a, C>,
}

impl<L: Left, C: Cell> Kernel for Sweep<'_, '_, L, C> {
    type Out = ();
    const BF16: bool = L::PAIRS;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        if self.out.rows().is_empty() {
            return;
        }
        for group in self.out.panels().step_by(self.group) {
            let group = group..self.out.panels().end.min(group + self.group);
            if self.own.held.as_ref() != Some(&group) {
                self.right.prepare::<S, L>(simd, group.clone(), self.steps.clone(), self.own.rows);
                self.own.held = Some(group.clone());
            }
            let mut row = self.out.rows().start;
            while row < self.out.rows().end {
                let end = if L::BLOCK == usize::MAX { usize::MAX } else { (row / L::BLOCK + 1) * L::BLOCK };
                let end = end.min(self.out.rows().end);
                // Tiles of nearly equal height: 64 rows are 13 + 13 + 13 + 13 + 12, not 4 x 14 + 8.
                let tiles = (end - row).div_ceil(S::TALLEST);
                let height = (end - row).div_ceil(tiles);
                for index in 0..group.len() {
                    self.panel(simd, &group, index, row..row + height);
                }
                row += height;
            }
        }
    }
}

impl<L: Left, C: Cell> Sweep<'_, '_, L, C> {
    /// Adds the chunk to some rows of panel number `index` of the group.
    #[inline(always)]
    fn panel<S: Simd>(&mut self, simd: S, group: &Range<usize>, index: usize, rows: Range<usize>) {
        let panel = group.start + index;
        let width = WIDTH.min(self.columns - panel * WIDTH);
        let mut bias = [0.0; WIDTH];
        let start = match (self.bias, self.onto) {
            _ if self.steps.start > 0 => Start::Out,
            (Some(all), _) => {
                bias[..width].copy_from_slice(&all[panel * WIDTH..][..width]);
                Start::Bias(&bias)
            }
            (None, Onto::Result) => Start::Out,
            (None, Onto::Zero) => Start::Zero,
        };
        let finish = self.ending.of(panel, &rows);
        let b = self.right.steps(group, index, self.steps.clone(), self.own.rows);
        let first_row = self.out.rows().start;
        let out = &mut self.out.panel(panel)[rows.start - first_row..rows.end - first_row];
        let (left, row, first) = (self.left, rows.start, self.steps.start);
        for column in (0..width).step_by(2 * S::LANES) {
            let tile = Tile { out: &mut *out, row, column, width, start, finish };
            if width - column > S::LANES {
                by_height::<S, L, C, 2>(simd, tile, left, first, b);
            } else {
                by_height::<S, L, C, 1>(simd, tile, left, first, b);
            }
        }
    }
}

/// Runs the microkernel for the tile's height.
#[inline(always)]
fn by_height<S: Simd, L: Left, C: Cell, const V: usize>(
    simd: S,
    tile: Tile<'_, C>,
    left: L,
    first: usize,
    b: &[Row<f32>],
) {
    match tile.out.len() {
        14 if S::TALL => tile.run::<S, L, 14, V>(simd, left, first, b),
        13 if S::TALL => tile.run::<S, L, 13, V>(simd, left, first, b),
        12 if S::TALL => tile.run::<S, L, 12, V>(simd, left, first, b),
        11 if S::TALL => tile.run::<S, L, 11, V>(simd, left, first, b),
        10 if S::TALL => tile.run::<S, L, 10, V>(simd, left, first, b),
        9 if S::TALL => tile.run::<S, L, 9, V>(simd, left, first, b),
        8 if S::TALL => tile.run::<S, L, 8, V>(simd, left, first, b),
        7 if S::TALL => tile.run::<S, L, 7, V>(simd, left, first, b),
        6 if S::MANY => tile.run::<S, L, 6, V>(simd, left, first, b),
        5 if S::MANY => tile.run::<S, L, 5, V>(simd, left, first, b),
        4 if S::MANY => tile.run::<S, L, 4, V>(simd, left, first, b),
        3 if S::MANY => tile.run::<S, L, 3, V>(simd, left, first, b),
        2 if S::MANY => tile.run::<S, L, 2, V>(simd, left, first, b),
        1 => tile.run::<S, L, 1, V>(simd, left, first, b),
        height => unreachable!("no tile has {height} rows"),
    }
}
