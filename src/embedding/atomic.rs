//! Updates by threads that share rows: each takes an equal part of the look-ups and adds to rows that others may be
//! adding to. Nothing is lost, but the order of a row's sums is left to chance, so the last bits are too.
//!
//! A whole number is exchanged by one instruction. The halves of a split one lie apart, so split rows are moved under
//! locks, each row as one.

use std::ops::Range;

use super::form::Form;
use super::gradient_source::{GradientSource, sample_of};
use super::row::{Move, columns};
use crate::simd::{Kernel, Simd};
use crate::sync::{AtomicU32, LockedRows, Rtm, ask, mul_add};

/// How many look-ups ahead a row is asked for.
const PREFETCH_DISTANCE: usize = 16;

/// One table's look-ups, for rows of whole numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct MoveShared<'a> {
    pub weights: &'a [AtomicU32],
    pub dim: usize,
    pub source: GradientSource<'a>,
    pub rate: f32,
    /// Move a row in one transaction where one commits.
    pub rtm: Option<Rtm>,
}

impl MoveShared<'_> {
    /// Moves the rows of the look-ups at `positions`.
    pub(super) fn run(self, positions: Range<usize>) {
        if positions.is_empty() {
            return;
        }
        let Self { weights, dim, source, rate, rtm } = self;
        let bag = source.bag();
        let vector = |row: u32| &weights[row as usize * dim..][..dim];
        let mut sample = sample_of(bag, positions.start);
        for position in positions {
            while bag.offsets[sample + 1] as usize <= position {
                sample += 1;
            }
            if let Some(&ahead) = bag.rows.get(position + PREFETCH_DISTANCE) {
                ask(vector(ahead));
            }
            let row = vector(bag.rows[position]);
            let (gradient, factor) = source.at(sample, position);
            if rtm.is_some_and(|rtm| rtm.mul_add(row, -rate, factor, gradient)) {
                continue;
            }
            row.iter().zip(gradient).for_each(|(float, g)| mul_add(float, -rate, factor * g));
        }
    }
}

/// A part of one table's look-ups, for rows of any form.
pub(super) struct MoveLocked<'a, F> {
    pub form: F,
    pub table: &'a LockedRows<'a, u32>,
    pub dim: usize,
    pub source: GradientSource<'a>,
    pub rate: f32,
    pub positions: Range<usize>,
}

impl<F: Form> Kernel for MoveLocked<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { form, table, dim, source, rate, positions } = self;
        let bag = source.bag();
        let mut sample = sample_of(bag, positions.start);
        for position in positions {
            while bag.offsets[sample + 1] as usize <= position {
                sample += 1;
            }
            if let Some(&ahead) = bag.rows.get(position + PREFETCH_DISTANCE) {
                table.ask(ahead as usize);
            }
            let (gradient, factor) = source.at(sample, position);
            let row = &mut *table.lock(bag.rows[position] as usize);
            columns(simd, dim, &mut Move { form, row, dim, gradient, factor, rate });
        }
    }
}
