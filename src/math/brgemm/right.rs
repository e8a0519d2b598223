//! The right operand of a product: read where it lies, or copied just before it is multiplied, for a group of panels.
//!
//! A tile of vectors of 8 reads one of the four cache lines of a panel's row. So the lines that it reads share a
//! quarter of the sets of L1, where they do not stay until the next rows of the left operand come. Copied in strips, as
//! wide as a tile, they lie one after another: a strip of few steps stays in L1 for all rows of a band, and what
//! streams from L2 is the left operand, whose lines are used up. What has to be copied anyway, Wᵀ, gets there without
//! another copy.

use std::cell::Cell;
use std::ops::Range;

use super::operands::first;
use super::panels::{Row, WIDTH};
use super::plan::Plan;
use super::tile::{Heights, Left, STRIP};
use super::transposed::Transposed;
use crate::memory::Buffer;
use crate::simd::Simd;

/// What a tile reads of a right operand, step by step.
#[derive(Debug, Clone, Copy)]
pub(super) enum Steps<'a> {
    /// All columns of the panel.
    Rows(&'a [Row<f32>]),
    /// The tile's columns.
    Strip(&'a [[f32; STRIP]]),
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

/// Whether right operands are copied in strips: where a plan says so and tiles read them.
#[inline(always)]
pub(super) const fn in_strips<S: Simd>(plan: &Plan) -> bool {
    S::STRIPS && plan.strips
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

    /// Copies the steps of a group of panels, if the plan has them copied; `columns` are those of all panels.
    #[inline(always)]
    pub(super) fn prepare<S: Simd, L: Left>(
        self,
        simd: S,
        plan: &Plan,
        columns: usize,
        group: Range<usize>,
        steps: Range<usize>,
        copy: &mut [Row<f32>],
    ) {
        let (strip, depth) = (if in_strips::<S>(plan) { STRIP } else { WIDTH }, plan.depth);
        match self {
            Self::Ready { cells, stride } if in_strips::<S>(plan) => {
                for (panel, copy) in group.zip(copy.chunks_mut(depth)) {
                    let from = &cells[panel * stride..][steps.clone()];
                    copy_rows(simd, from, columns - panel * WIDTH, [strip, depth], copy.as_flattened_mut());
                }
            }
            Self::Ready { .. } => {}
            Self::Transposed(of) if L::MEETS_TRANSPOSED => {
                of.prepare(simd, L::PAIRS, [strip, depth], group, steps, copy);
            }
            Self::Transposed(_) => unreachable!("columns are multiplied with rows as they lie"),
        }
    }

    /// The steps of panel number `index` of the group, which were prepared, from a column on at which a tile begins.
    #[inline(always)]
    pub(super) fn steps<'b, S: Simd>(
        &'b self,
        plan: &Plan,
        group: &Range<usize>,
        [index, column]: [usize; 2],
        steps: Range<usize>,
        copy: &'b [Row<f32>],
    ) -> Steps<'b> {
        let copied = index * plan.depth;
        match self {
            _ if in_strips::<S>(plan) => {
                let strips = copy[copied..][..plan.depth].as_flattened().as_chunks().0;
                Steps::Strip(&strips[column / STRIP * plan.depth..][..steps.len()])
            }
            Self::Ready { cells, stride } => Steps::Rows(&cells[(group.start + index) * stride..][steps]),
            Self::Transposed(_) => Steps::Rows(&copy[copied..][..steps.len()]),
        }
    }
}

/// Copies rows, which are steps, in strips as far as there are `columns`: no tile reads padding beyond its strip.
#[inline(always)]
pub(super) fn copy_rows<S: Simd>(
    simd: S,
    from: &[Row<f32>],
    columns: usize,
    [strip, depth]: [usize; 2],
    to: &mut [f32],
) {
    let width = columns.next_multiple_of(strip).min(WIDTH);
    for (step, from) in from.iter().enumerate() {
        for column in (0..width).step_by(S::LANES) {
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

/// Lends memory for the copies that `threads` threads make by a plan: the rows of all, and how many each has. A thread
/// has the same ones for all layers, large or small, so that it finds them in its own caches.
pub(super) fn with_copies(plan: &Plan, threads: usize, work: impl FnOnce(&mut [Row<f32>], usize)) {
    let mut copies = COPIES.take();
    first(&mut copies, threads * plan.depth * plan.group * WIDTH);
    let each = copies.len() / WIDTH / threads;
    work(&mut copies.as_chunks_mut().0[..threads * each], each);
    COPIES.set(copies);
}
