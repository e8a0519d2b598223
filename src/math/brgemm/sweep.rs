//! One piece of a pass: the loops around the microkernel.
//!
//! From the outside in: groups of panels whose right operand stays in L2 for one chunk of depth, bands of rows, the
//! group's panels, the panel's columns, two vectors at a time, the band's tiles. A band's rows of the left operand are
//! so read from L3 or memory once a group and come from L1 or L2 for all but the first columns. Without a copy of the
//! right operand in strips, a band is one tile, and the right operand streams from L2 under the multiply-adds; with
//! one, a strip stays in L1 while the band's rows stream.

use std::ops::Range;

use super::panels::{Row, WIDTH};
use super::passes::{After, Onto};
use super::plan::{BAND_ROWS, Plan};
use super::right::{Right, Steps, in_strips};
use super::tile::{Cell, Heights, Left, Start, Tile};
use crate::simd::{Kernel, Simd};
use crate::sync::GridPart;

/// What a thread keeps from piece to piece of one chunk.
#[derive(Debug, Default)]
pub(super) struct Own<'a> {
    /// Memory for copies of the right operand, if there are any.
    pub(super) rows: &'a mut [Row<f32>],
    /// The panels that are ready, there or where they lie.
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
    pub(super) plan: Plan,
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
        let rows = self.out.rows();
        if rows.is_empty() {
            return;
        }
        for group in self.out.panels().step_by(self.plan.group) {
            let group = group..self.out.panels().end.min(group + self.plan.group);
            if self.own.held.as_ref() != Some(&group) {
                let (columns, steps) = (self.columns, self.steps.clone());
                self.right.prepare::<S, L>(simd, &self.plan, columns, group.clone(), steps, self.own.rows);
                self.own.held = Some(group.clone());
            }
            let mut row = rows.start;
            while row < rows.end {
                let block = rows.end.min((row / L::BLOCK + 1).saturating_mul(L::BLOCK)) - row;
                let band = if in_strips::<S>(&self.plan) { even(block, BAND_ROWS) } else { even(block, S::TALLEST) };
                for index in 0..group.len() {
                    self.panel(simd, &group, index, row..row + band);
                }
                row += band;
            }
        }
    }
}

/// The first of nearly equal parts of so many rows, of at most `most`: 64 are 13 + 13 + 13 + 13 + 12, not 4 x 14 + 8.
#[inline(always)]
const fn even(rows: usize, most: usize) -> usize {
    rows.div_ceil(rows.div_ceil(most))
}

impl<L: Left, C: Cell> Sweep<'_, '_, L, C> {
    /// Adds the chunk to a band of rows of panel number `index` of the group.
    #[inline(always)]
    fn panel<S: Simd>(&mut self, simd: S, group: &Range<usize>, index: usize, band: Range<usize>) {
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
        let first_row = self.out.rows().start;
        let out = self.out.panel(panel);
        let (left, first) = (self.left, self.steps.start);
        for column in (0..width).step_by(2 * S::LANES) {
            let b = self.right.steps::<S>(&self.plan, group, [index, column], self.steps.clone(), self.own.rows);
            let mut row = band.start;
            while row < band.end {
                let left_over = band.end - row;
                // Without strips, the band is one tile: it needs no other division.
                let height = if in_strips::<S>(&self.plan) { even(left_over, S::TALLEST) } else { left_over };
                let rows = row..row + height;
                let finish = self.ending.of(panel, &rows);
                let out = &mut out[rows.start - first_row..rows.end - first_row];
                let wide = width - column > S::LANES;
                match b {
                    Steps::Rows(steps) => {
                        let at = column;
                        let tile = Tile { out, row, column, width, start, finish, left, first, steps, at };
                        if wide { tile.run::<S, 2>(simd) } else { tile.run::<S, 1>(simd) }
                    }
                    Steps::Strip(steps) if S::STRIPS => {
                        let at = 0;
                        let tile = Tile { out, row, column, width, start, finish, left, first, steps, at };
                        if wide { tile.run::<S, 2>(simd) } else { tile.run::<S, 1>(simd) }
                    }
                    Steps::Strip(_) => unreachable!("no tile reads strips"),
                }
                row = rows.end;
            }
        }
    }
}
