//! What is done to one row, in registers.
//!
//! A row of E columns falls into blocks of up to eight vectors, of one in portable code, and a shorter tail. A block's
//! sum stays in registers while its bag (forward) or its look-ups (update) are walked; wider rows walk them once a
//! block. How columns are blocked changes no bit: columns never meet.

use std::ops::Range;

use bytemuck::Pod;

use super::form::{Form, Seen};
use super::gradient_source::GradientSources;
use super::weights::Weigh;
use crate::optim::{MOMENTS, Rule, Sgd, StepRule, match_rule};
use crate::simd::{Simd, combine};

/// Vectors whose sums fit into registers on every instruction set, beside operands.
const WIDEST: usize = 8;

/// Bytes of rows that are asked for before they are used: a sixth of a first cache, and as many lines as a core waits
/// for at a time. On a Zen 5 look-ups of random rows of 128 bytes took 3.8 ms 24 rows ahead, 2.7 ms 48 and 96 rows
/// ahead.
const AHEAD_BYTES: usize = 8 << 10;

/// Rows that are asked for ahead, at least and at most.
const LEAST_AHEAD: usize = 8;
pub(super) const MOST_AHEAD: usize = 128;

/// How many rows ahead one is asked for, where each takes so many bytes.
#[inline(always)]
pub(super) fn rows_ahead(bytes: usize) -> usize {
    (AHEAD_BYTES / bytes.max(1)).clamp(LEAST_AHEAD, MOST_AHEAD)
}

/// Work on some columns of a row.
pub(super) trait Columns {
    /// Whether look-ups are walked: then a tail goes with the vectors before it, lest they be walked once more. Work
    /// that walks none takes a tail apart, which costs nothing and halves the variants that are compiled.
    const WALKS: bool;

    /// Columns `start` on: `FULL` vectors, then `tail` columns, fewer than a vector (0 unless `TAIL`).
    fn run<S: Simd, const FULL: usize, const TAIL: bool>(&mut self, simd: S, start: usize, tail: usize);
}

/// Walks over `dim` columns.
#[inline(always)]
pub(super) fn columns<S: Simd, C: Columns>(simd: S, dim: usize, work: &mut C) {
    let mut start = 0;
    if S::IN_REGISTERS {
        while dim - start >= WIDEST * S::LANES {
            work.run::<S, WIDEST, false>(simd, start, 0);
            start += WIDEST * S::LANES;
        }
    } else {
        while dim - start >= S::LANES {
            work.run::<S, 1, false>(simd, start, 0);
            start += S::LANES;
        }
    }
    let (full, tail) = ((dim - start) / S::LANES, (dim - start) % S::LANES);
    macro_rules! dispatch {
        ($($count:literal)*) => {
            if C::WALKS {
                match (full, tail) {
                    (0, 0) => {}
                    (0, _) => work.run::<S, 0, true>(simd, start, tail),
                    $(($count, 0) => work.run::<S, $count, false>(simd, start, 0),
                    ($count, _) => work.run::<S, $count, true>(simd, start, tail),)*
                    _ => unreachable!("fewer than {WIDEST} vectors are left"),
                }
            } else {
                match full {
                    0 => {}
                    $($count => work.run::<S, $count, false>(simd, start, 0),)*
                    _ => unreachable!("fewer than {WIDEST} vectors are left"),
                }
                if tail > 0 {
                    work.run::<S, 0, true>(simd, start + full * S::LANES, tail);
                }
            }
        };
    }
    if S::IN_REGISTERS {
        dispatch!(1 2 3 4 5 6 7);
    } else if tail > 0 {
        work.run::<S, 0, true>(simd, start, tail);
    }
}

/// Asks for a row's cache lines.
#[inline(always)]
pub(super) fn prefetch<S: Simd, T: Pod>(simd: S, row: &[T]) {
    let line = 64 / size_of::<T>();
    row.chunks(line).for_each(|line| simd.prefetch_ahead(line, 0));
    if !row.len().is_multiple_of(line) {
        // A row that starts in the middle of a line ends in one more.
        simd.prefetch_ahead(row, row.len() - 1);
    }
}

/// Asks for the cache lines of a row that will be written.
#[inline(always)]
pub(super) fn prefetch_write<S: Simd, T: Pod>(simd: S, row: &[T]) {
    let line = 64 / size_of::<T>();
    row.chunks(line).for_each(|line| simd.prefetch_write(line, 0));
    if !row.len().is_multiple_of(line) {
        simd.prefetch_write(row, row.len() - 1);
    }
}

/// `out[e] = scale * sum over the bag of factor * row[e]`, from 0 on, in the bag's order, each addition fused. A row
/// that has a learned weight is multiplied by that first, and rounded.
pub(super) struct Pool<'a, F, W> {
    pub form: F,
    /// All rows, and the words of one.
    pub table: &'a [u32],
    pub width: usize,
    pub dim: usize,
    /// All look-ups of the table.
    pub rows: &'a [u32],
    pub learned: W,
    pub weights: Option<&'a [f32]>,
    /// The bag.
    pub bag: Range<usize>,
    pub scale: f32,
    pub out: &'a mut [f32],
    /// Look-ups between asking for a row and using it.
    pub distance: usize,
}

impl<F: Seen, W: Weigh> Columns for Pool<'_, F, W> {
    const WALKS: bool = true;

    #[inline(always)]
    fn run<S: Simd, const FULL: usize, const TAIL: bool>(&mut self, simd: S, start: usize, tail: usize) {
        let zero = simd.splat(0.0);
        let (mut sums, mut rest) = ([zero; FULL], zero);
        let Self { form, table, width, dim, learned, .. } = *self;
        for position in self.bag.clone() {
            if start == 0
                && let Some(&ahead) = self.rows.get(position + self.distance)
            {
                prefetch(simd, &table[ahead as usize * width..][..F::seen_words(dim)]);
                learned.prefetch(simd, ahead as usize);
            }
            let number = self.rows[position] as usize;
            let (row, weight) = (&table[number * width..][..width], learned.of(simd, number));
            let body = form.seen(row, dim, start, FULL * S::LANES);
            let factor = simd.splat(self.weights.map_or(1.0, |weights| weights[position]));
            for (index, sum) in sums.iter_mut().enumerate() {
                *sum = simd.mul_add(factor, W::times(simd, weight, F::see(simd, body, index * S::LANES)), *sum);
            }
            if TAIL {
                let after = form.seen(row, dim, start + FULL * S::LANES, tail);
                rest = simd.mul_add(factor, W::times(simd, weight, F::see_partial(simd, after)), rest);
            }
        }
        let scale = simd.splat(self.scale);
        let (body, after) = self.out[start..].split_at_mut(FULL * S::LANES);
        for (index, sum) in sums.into_iter().enumerate() {
            simd.store(simd.mul(sum, scale), &mut body[index * S::LANES..]);
        }
        if TAIL {
            simd.store_partial(simd.mul(rest, scale), &mut after[..tail]);
        }
    }
}

/// `row[e] += -rate * (factor * gradient[e])`: the definition of a look-up's update. The product in parentheses is
/// rounded (it is the gradient row's element), the rest is one fused multiply-add, of which the row keeps what it can.
pub(super) struct Move<'a, F> {
    pub form: F,
    pub row: &'a mut [u32],
    pub dim: usize,
    pub gradient: &'a [f32],
    pub factor: f32,
    pub rate: f32,
}

impl<F: Form> Columns for Move<'_, F> {
    const WALKS: bool = false;

    #[inline(always)]
    fn run<S: Simd, const FULL: usize, const TAIL: bool>(&mut self, simd: S, start: usize, tail: usize) {
        let (form, factor, rate) = (self.form, simd.splat(self.factor), simd.splat(-self.rate));
        let (from, from_tail) = self.gradient[start..].split_at(FULL * S::LANES);
        {
            let mut to = form.all(self.row, self.dim, start, FULL * S::LANES);
            for index in 0..FULL {
                let at = index * S::LANES;
                let step = simd.mul(factor, simd.load(&from[at..]));
                let moved = simd.mul_add(rate, step, F::load(simd, &to, at));
                F::store(simd, F::keep(simd, moved), &mut to, at);
            }
        }
        if TAIL {
            let step = simd.mul(factor, simd.load_partial(&from_tail[..tail]));
            let mut to = form.all(self.row, self.dim, start + FULL * S::LANES, tail);
            let moved = simd.mul_add(rate, step, F::load_partial(simd, &to));
            F::store_partial(simd, F::keep(simd, moved), &mut to);
        }
    }
}

/// Several look-ups of one row, moved as by [`Move`] one after the other while the row stays in registers.
pub(super) struct MoveAll<'a, F> {
    pub form: F,
    pub row: &'a mut [u32],
    pub dim: usize,
    /// Look-ups; the lower half of each is its token.
    pub records: &'a [u64],
    pub sources: GradientSources<'a>,
    pub rate: f32,
}

impl<F: Form> Columns for MoveAll<'_, F> {
    const WALKS: bool = true;

    #[inline(always)]
    fn run<S: Simd, const FULL: usize, const TAIL: bool>(&mut self, simd: S, start: usize, tail: usize) {
        let (form, rate) = (self.form, simd.splat(-self.rate));
        let mut sums = [rate; FULL];
        {
            let to = form.all(self.row, self.dim, start, FULL * S::LANES);
            for (index, sum) in sums.iter_mut().enumerate() {
                *sum = F::load(simd, &to, index * S::LANES);
            }
        }
        let mut rest = rate;
        if TAIL {
            rest = F::load_partial(simd, &form.all(self.row, self.dim, start + FULL * S::LANES, tail));
        }
        for &record in self.records {
            let (gradient, factor) = self.sources.of(record as u32);
            let (from, from_tail) = gradient[start..].split_at(FULL * S::LANES);
            let factor = simd.splat(factor);
            for (index, sum) in sums.iter_mut().enumerate() {
                let step = simd.mul(factor, simd.load(&from[index * S::LANES..]));
                *sum = F::keep(simd, simd.mul_add(rate, step, *sum));
            }
            if TAIL {
                let step = simd.mul(factor, simd.load_partial(&from_tail[..tail]));
                rest = F::keep(simd, simd.mul_add(rate, step, rest));
            }
        }
        {
            let mut to = form.all(self.row, self.dim, start, FULL * S::LANES);
            for (index, sum) in sums.into_iter().enumerate() {
                F::store(simd, sum, &mut to, index * S::LANES);
            }
        }
        if TAIL {
            F::store_partial(simd, rest, &mut form.all(self.row, self.dim, start + FULL * S::LANES, tail));
        }
    }
}

/// `sum[e] += factor * gradient[e]` for several look-ups of one row, in their order; both operations are rounded. The
/// sum stays in the first cache.
#[inline(always)]
pub(super) fn add_all<S: Simd>(simd: S, sum: &mut [f32], records: &[u64], sources: GradientSources<'_>) {
    for &record in records {
        let (gradient, factor) = sources.of(record as u32);
        let factor = simd.splat(factor);
        combine(simd, sum, gradient, |sum, g| simd.add(sum, simd.mul(factor, g)));
    }
}

/// How a row moves by the sum of its gradients, and its learned weight if it has one.
pub(super) trait RowRule: Copy {
    /// See [`apply`].
    fn apply<S: Simd, F: Form>(self, simd: S, form: F, row: &mut [u32], sum: &[f32]);

    /// See [`move_weight`].
    fn move_weight(self, numbers: &mut [f32], gradient: f32);
}

/// A walk of its own for SGD, where a row is moved so fast that a look at its rule would be felt.
impl RowRule for Sgd {
    #[inline(always)]
    fn apply<S: Simd, F: Form>(self, simd: S, form: F, row: &mut [u32], sum: &[f32]) {
        apply(simd, form, self, row, sum);
    }

    #[inline(always)]
    fn move_weight(self, numbers: &mut [f32], gradient: f32) {
        move_weight(self, numbers, gradient);
    }
}

/// One walk for all other rules, which is looked at once a row: a walk is long, and most of it the same.
impl RowRule for StepRule {
    #[inline(always)]
    fn apply<S: Simd, F: Form>(self, simd: S, form: F, row: &mut [u32], sum: &[f32]) {
        match_rule!(self, rule => apply(simd, form, rule, row, sum));
    }

    #[inline(always)]
    fn move_weight(self, numbers: &mut [f32], gradient: f32) {
        match_rule!(self, rule => move_weight(rule, numbers, gradient));
    }
}

/// Moves a row, its weights and the moments behind them, one after another, by the sum of its gradients.
#[inline(always)]
pub(super) fn apply<S: Simd, F: Form, R: Rule>(simd: S, form: F, rule: R, row: &mut [u32], sum: &[f32]) {
    let dim = sum.len();
    let (weights, moments) = row.split_at_mut(F::words(dim));
    let moments: &mut [f32] = bytemuck::cast_slice_mut(moments);
    let whole = dim / S::LANES * S::LANES;
    for at in (0..whole).step_by(S::LANES) {
        let (mut to, mut own) = (form.all(weights, dim, at, S::LANES), [simd.splat(0.0); MOMENTS]);
        for (which, own) in own[..R::MOMENTS].iter_mut().enumerate() {
            *own = simd.load(&moments[which * dim + at..]);
        }
        let moved = rule.steps(simd, F::load(simd, &to, 0), simd.load(&sum[at..]), &mut own);
        F::store(simd, F::keep(simd, moved), &mut to, 0);
        for (which, own) in own[..R::MOMENTS].iter().enumerate() {
            simd.store(*own, &mut moments[which * dim + at..]);
        }
    }
    if whole < dim {
        // What the lanes behind the last column compute goes nowhere.
        let (mut to, mut own) = (form.all(weights, dim, whole, dim - whole), [simd.splat(0.0); MOMENTS]);
        for (which, own) in own[..R::MOMENTS].iter_mut().enumerate() {
            *own = simd.load_partial(&moments[which * dim + whole..][..dim - whole]);
        }
        let moved = rule.steps(simd, F::load_partial(simd, &to), simd.load_partial(&sum[whole..]), &mut own);
        F::store_partial(simd, F::keep(simd, moved), &mut to);
        for (which, own) in own[..R::MOMENTS].iter().enumerate() {
            simd.store_partial(*own, &mut moments[which * dim + whole..][..dim - whole]);
        }
    }
}

/// Moves a row's learned weight, the first of its `numbers`, by its gradient and the moments behind it.
#[inline(always)]
fn move_weight<R: Rule>(rule: R, numbers: &mut [f32], gradient: f32) {
    let (weight, kept) = numbers.split_at_mut(1);
    let mut moments = [0.0; MOMENTS];
    moments[..R::MOMENTS].copy_from_slice(&kept[..R::MOMENTS]);
    weight[0] = rule.step(weight[0], gradient, &mut moments);
    kept[..R::MOMENTS].copy_from_slice(&moments[..R::MOMENTS]);
}

/// `to[e] = factor * from[e]`: a gradient row (SC20, Algorithm 2).
pub(super) struct Scale<'a> {
    pub from: &'a [f32],
    pub factor: f32,
    pub to: &'a mut [f32],
}

impl Columns for Scale<'_> {
    const WALKS: bool = false;

    #[inline(always)]
    fn run<S: Simd, const FULL: usize, const TAIL: bool>(&mut self, simd: S, start: usize, tail: usize) {
        let factor = simd.splat(self.factor);
        let (from, from_tail) = self.from[start..].split_at(FULL * S::LANES);
        let (to, to_tail) = self.to[start..].split_at_mut(FULL * S::LANES);
        for index in 0..FULL {
            let at = index * S::LANES;
            simd.store(simd.mul(factor, simd.load(&from[at..])), &mut to[at..]);
        }
        if TAIL {
            simd.store_partial(simd.mul(factor, simd.load_partial(&from_tail[..tail])), &mut to_tail[..tail]);
        }
    }
}
