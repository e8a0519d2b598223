//! Walks over the rows of a table in their order, each with all of its look-ups: what is done to a row by them.

use super::form::Form;
use super::gradient_source::GradientSources;
use super::row::{MoveAll, RowRule, add_all, apply, columns, prefetch, rows_ahead};
use super::weights::{weigh, weigh_rowwise};
use crate::optim::{Sgd, rowwise_rate};
use crate::simd::{Kernel, Simd};
use crate::sync::Band;

/// What is done to the rows of one table that are walked in their order.
pub(super) trait EachRow {
    /// Some look-ups of a row, of whose look-ups they are the `first`, the `last`, or both.
    fn take<S: Simd>(&mut self, simd: S, row: &mut [u32], records: &[u64], sources: GradientSources<'_>, ends: Ends);

    /// Asks for what it keeps of a row beside it.
    #[inline(always)]
    fn prefetch<S: Simd>(&mut self, _: S, _row: usize) {}
}

/// Whether some look-ups of a row are its first ones, and its last ones.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    first: bool,
    last: bool,
}

/// Each look-up moves its row.
pub(super) struct MoveEach<F> {
    pub form: F,
    pub dim: usize,
    pub rate: f32,
}

impl<F: Form> EachRow for MoveEach<F> {
    #[inline(always)]
    fn take<S: Simd>(&mut self, simd: S, row: &mut [u32], records: &[u64], sources: GradientSources<'_>, _: Ends) {
        let Self { form, dim, rate } = *self;
        columns(simd, dim, &mut MoveAll { form, row, dim, records, sources, rate });
    }
}

/// The sum of a row's look-ups moves it, and its learned weight if it has one.
pub(super) struct SumEach<'a, F, R> {
    pub form: F,
    pub sum: &'a mut [f32],
    pub weights: Option<Band<'a, f32>>,
    pub rule: R,
}

impl<F: Form, R: RowRule> EachRow for SumEach<'_, F, R> {
    #[inline(always)]
    fn take<S: Simd>(&mut self, simd: S, row: &mut [u32], records: &[u64], sources: GradientSources<'_>, ends: Ends) {
        let Self { form, ref mut sum, ref mut weights, rule } = *self;
        if ends.first {
            sum.fill(0.0);
        }
        add_all(simd, sum, records, sources);
        if ends.last {
            if let Some(weights) = weights {
                weigh(simd, (form, row), rule, weights.row(row_of(records[0])), sum);
            }
            rule.apply(simd, form, row, sum);
        }
    }

    #[inline(always)]
    fn prefetch<S: Simd>(&mut self, simd: S, row: usize) {
        if let Some(weights) = &mut self.weights {
            simd.prefetch_ahead(weights.row(row), 0);
        }
    }
}

/// The sum of a row's look-ups moves it, and its learned weight if it has one, each at a rate of its own.
pub(super) struct SumRowwise<'a, F> {
    pub form: F,
    pub sum: &'a mut [f32],
    /// A number a row.
    pub kept: Band<'a, f32>,
    pub weights: Option<Band<'a, f32>>,
    pub rate: f32,
    pub eps: f32,
}

impl<F: Form> EachRow for SumRowwise<'_, F> {
    #[inline(always)]
    fn take<S: Simd>(&mut self, simd: S, row: &mut [u32], records: &[u64], sources: GradientSources<'_>, ends: Ends) {
        let Self { form, ref mut sum, ref mut kept, ref mut weights, rate, eps } = *self;
        if ends.first {
            sum.fill(0.0);
        }
        add_all(simd, sum, records, sources);
        if ends.last {
            if let Some(weights) = weights {
                weigh_rowwise(simd, (form, row), [rate, eps], weights.row(row_of(records[0])), sum);
            }
            let kept = &mut kept.row(row_of(records[0]))[0];
            apply(simd, form, Sgd { rate: rowwise_rate(sum, kept, rate, eps) }, row, sum);
        }
    }

    #[inline(always)]
    fn prefetch<S: Simd>(&mut self, simd: S, row: usize) {
        simd.prefetch_ahead(self.kept.row(row), 0);
        if let Some(weights) = &mut self.weights {
            simd.prefetch_ahead(weights.row(row), 0);
        }
    }
}

/// The row of a record.
#[inline(always)]
const fn row_of(record: u64) -> usize {
    (record >> 32) as usize
}

/// A thread's sorted look-ups of one table.
pub(super) struct WalkRows<'a, E> {
    pub band: Band<'a, u32>,
    pub records: &'a [u64],
    pub sources: GradientSources<'a>,
    pub each: E,
}

impl<E: EachRow> Kernel for WalkRows<'_, E> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { mut band, records, sources, mut each } = self;
        let Some(&record) = records.first() else { return };
        let bytes = size_of_val(band.row(row_of(record))) + size_of_val(sources.of(record as u32).0);
        let distance = rows_ahead(bytes);
        for &ahead in records.iter().take(distance) {
            prefetch(simd, band.row(row_of(ahead)));
            each.prefetch(simd, row_of(ahead));
            prefetch(simd, sources.of(ahead as u32).0);
        }
        let (mut at, mut first) = (0, true);
        while at < records.len() {
            let row = row_of(records[at]);
            // A hot row's look-ups are taken piece by piece, so that their gradients are asked for in time.
            let limit = records.len().min(at + distance);
            let mut end = at + 1;
            while end < limit && row_of(records[end]) == row {
                end += 1;
            }
            let horizon = records.len().min(end + distance);
            for &ahead in &records[horizon.min(at + distance)..horizon] {
                prefetch(simd, band.row(row_of(ahead)));
                each.prefetch(simd, row_of(ahead));
                prefetch(simd, sources.of(ahead as u32).0);
            }
            let last = records.get(end).is_none_or(|next| row_of(*next) != row);
            each.take(simd, band.row(row), &records[at..end], sources, Ends { first, last });
            (at, first) = (end, last);
        }
    }
}
