//! The right operand of a product: read where it lies, or copied just before it is multiplied, for a group of panels.
//!
//! A tile reads one or two cache lines of each row of a panel, which has four. Rows are so far apart that the lines of a
//! tile's columns share a quarter of the sets of L1, where they do not stay until the next rows of the left operand
//! come. Copied in strips, as wide as a tile, they lie one after another: a strip of few steps stays in L1 for all rows
//! of a band, and what streams from L2 is the left operand, whose lines are used up. What has to be copied anyway, Wᵀ,
//! gets there without another copy.

use std::cell::Cell;
use std::ops::Range;

use super::panels::{Row, WIDTH};
use super::plan::Plan;
use super::tile::Left;
use super::transposed::Transposed;
use crate::memory::Buffer;
use crate::simd::Simd;

/// What a tile reads of a right operand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steps<'a> {
    /// The tile's columns of the first step, and what follows.
    pub(super) cells: &'a [f32],
    /// Floats from a step's columns to the next step's.
    pub(super) stride: usize,
    pub(super) count: usize,
}

impl<'a> Steps<'a> {
    /// The first `columns` columns of a step.
    #[inline(always)]
    pub(super) fn step(&self, index: usize, columns: usize) -> &'a [f32] {
        &self.cells[index * self.stride..][..columns]
    }
}

/// The right operand of a product. Not a type that a sweep is compiled for: which one it is counts once a group and
/// once a strip of columns, and the microkernel sees [`Steps`] alone.
#[derive(Debug, Clone, Copy)]
pub(super) enum Right<'a> {
    /// Its rows are steps.
    Ready {
        cells: &'a [Row<f32>],
        /// Rows between panels.
        stride: usize,
    },
    /// Its columns are steps.
    Transposed(Transposed<'a>),
}

/// Columns of a strip in copies of right operands.
#[inline(always)]
pub(super) const fn strip<S: Simd>(plan: &Plan) -> usize {
    if plan.strips { 2 * S::LANES } else { WIDTH }
}

/// Where a copy has this column of its first step, of a panel with room for `depth` steps.
#[inline(always)]
pub(super) const fn place(column: usize, strip: usize, depth: usize) -> usize {
    column / strip * depth * strip + column % strip
}

impl Right<'_> {
    /// Whether a plan has it copied.
    pub(super) const fn is_copied(&self, plan: &Plan) -> bool {
        plan.strips || matches!(self, Self::Transposed(_))
    }

    /// Copies the steps of a group of panels, if the plan has them copied.
    #[inline(always)]
    pub(super) fn prepare<S: Simd, L: Left>(
        self,
        simd: S,
        plan: &Plan,
        group: Range<usize>,
        steps: Range<usize>,
        copy: &mut [Row<f32>],
    ) {
        let (strip, depth) = (strip::<S>(plan), plan.depth);
        match self {
            Self::Ready { cells, stride } if plan.strips => {
                for (panel, copy) in group.zip(copy.chunks_mut(depth)) {
                    let from = &cells[panel * stride..][steps.clone()];
                    in_strips(simd, from, strip, depth, copy.as_flattened_mut());
                }
            }
            Self::Ready { .. } => {}
            Self::Transposed(of) if L::MEETS_TRANSPOSED => {
                of.prepare(simd, L::PAIRS, [strip, depth], group, steps, copy);
            }
            Self::Transposed(_) => unreachable!("columns are multiplied with rows as they lie"),
        }
    }

    /// The steps of panel number `index` of the group, which were prepared, from a column on at which a strip begins.
    #[inline(always)]
    pub(super) fn steps<'b, S: Simd>(
        &'b self,
        plan: &Plan,
        group: &Range<usize>,
        [index, column]: [usize; 2],
        steps: Range<usize>,
        copy: &'b [Row<f32>],
    ) -> Steps<'b> {
        let count = steps.len();
        match self {
            Self::Ready { cells, stride } if !plan.strips => {
                let cells = cells[(group.start + index) * stride..][steps].as_flattened();
                Steps { cells: cells.get(column..).unwrap_or_default(), stride: WIDTH, count }
            }
            _ => {
                let (strip, depth) = (strip::<S>(plan), plan.depth);
                let cells = copy[index * depth..][..depth].as_flattened();
                Steps { cells: &cells[place(column, strip, depth)..], stride: strip, count }
            }
        }
    }
}

/// Copies rows, strip by strip.
#[inline(always)]
pub(super) fn in_strips<S: Simd>(simd: S, from: &[Row<f32>], strip: usize, depth: usize, to: &mut [f32]) {
    for (step, from) in from.iter().enumerate() {
        for column in (0..WIDTH).step_by(S::LANES) {
            let at = place(column, strip, depth) + step * strip;
            simd.store(simd.load(&from[column..]), &mut to[at..]);
        }
    }
}

thread_local! {
    /// Copies of the passes that this thread began, those of all its team's threads: memory grows to what the largest
    /// layer needs and is then reused.
    static COPIES: Cell<Buffer<f32>> = Cell::default();
}

/// Lends memory for the copies that `threads` threads make by a plan: the rows of all, and how many each has.
pub(super) fn with_copies(plan: &Plan, threads: usize, work: impl FnOnce(&mut [Row<f32>], usize)) {
    let each = plan.depth * plan.group;
    let mut copies = COPIES.take();
    if copies.len() < threads * each * WIDTH {
        copies = Buffer::zeroed(threads * each * WIDTH);
    }
    work(&mut copies.as_chunks_mut().0[..threads * each], each);
    COPIES.set(copies);
}
