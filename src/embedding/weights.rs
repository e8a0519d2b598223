//! Learned weights of rows (`model.weighted_pooling`, facebookresearch/dlrm's `--weighted-pooling=learned`): what
//! look-ups multiply a row by, and how it moves.
//!
//! A row e with the weight w is to all others the row `w * e`, rounded: that is what is pooled, by the weight of the
//! look-up, and what travels where rows travel unpooled. So of the sum G of the gradients that a step has for such a
//! row, which is made as for any other row, the gradient of e is `w * G` and that of w `<e, G>`, by the values that the
//! look-ups read: both are formed once the sum is complete, and no more travels than without weights.
//!
//! Weights are 32-bit floats whatever the precision of the rows, and lie apart from these, so that rows begin at cache
//! lines.

use std::ops::Range;

use super::form::Seen;
use super::row::RowRule;
use crate::base::Result;
use crate::machine::team::Team;
use crate::memory::{Buffer, Supply};
use crate::optim::{MOMENTS, ParamState, Rule, Sgd, in_pairs, rowwise_rate};
use crate::simd::Simd;
use crate::sync::{Matrix, Rows};

/// A weight of each row of a table.
#[derive(Debug)]
pub(super) struct RowWeights {
    /// Row by row: the weight, then what the optimizer keeps of it.
    numbers: Buffer<f32>,
    /// How many these are.
    width: usize,
}

impl RowWeights {
    /// Those of so many rows, all 0, if they have any.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(name: &str, rows: usize, kept: ParamState, supply: &mut Supply<'_>) -> Result<Option<Self>> {
        let width = kept.row_weight_numbers();
        let new = |numbers| Self { numbers, width };
        (width > 0).then(|| supply.buffer(name, rows * width).map(new)).transpose()
    }

    /// Sets all weights to 1.
    pub fn reset_optimizer_state(&mut self, team: &Team) {
        self.each(team, |numbers| numbers[0] = 1.0);
    }

    /// Sets the first number that the optimizer keeps to `initial`, and others to 0.
    pub fn forget(&mut self, team: &Team, initial: f32) {
        self.each(team, |numbers| {
            if let [first, others @ ..] = &mut numbers[1..] {
                *first = initial;
                others.fill(0.0);
            }
        });
    }

    fn each(&mut self, team: &Team, set: impl Fn(&mut [f32]) + Sync) {
        let width = self.width;
        team.each(Rows::new(&mut self.numbers, width, team.threads(), 1), |band| {
            band.data.chunks_exact_mut(width).for_each(&set);
        });
    }

    /// How many numbers there are of a row.
    pub const fn width(&self) -> usize {
        self.width
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&self.numbers[..])
    }

    /// As look-ups read them.
    pub fn seen(&self) -> Learned<'_> {
        Learned { numbers: &self.numbers, width: self.width }
    }

    /// All numbers, those of a row side by side.
    pub fn matrix_mut(&mut self) -> Matrix<'_, f32> {
        Matrix { data: &mut self.numbers, width: self.width }
    }

    /// Of some rows the weight, or by its place what is kept of it.
    pub fn of(&self, place: usize, rows: Range<usize>) -> Vec<f32> {
        assert!(place < self.width, "number {place} of {}", self.width);
        rows.map(|row| self.numbers[row * self.width + place]).collect()
    }

    /// Overwrites the same of the rows from `first` on.
    pub fn set(&mut self, place: usize, first: usize, values: &[f32]) {
        assert!(place < self.width, "number {place} of {}", self.width);
        let rows = self.numbers[first * self.width..].chunks_exact_mut(self.width);
        assert!(rows.len() >= values.len(), "a value a row");
        rows.zip(values).for_each(|(numbers, value)| numbers[place] = *value);
    }
}

/// What a look-up multiplies a row by, before its own weight.
pub(super) trait Weigh: Copy + Send + Sync {
    /// A row's weight in all lanes.
    type Of<S: Simd>: Copy;

    fn of<S: Simd>(self, simd: S, row: usize) -> Self::Of<S>;

    /// Asks for the weight of a row.
    fn prefetch<S: Simd>(self, simd: S, row: usize);

    fn times<S: Simd>(simd: S, weight: Self::Of<S>, row: S::V) -> S::V;
}

/// By nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alike;

impl Weigh for Alike {
    type Of<S: Simd> = ();

    #[inline(always)]
    fn of<S: Simd>(self, _: S, _row: usize) {}

    #[inline(always)]
    fn prefetch<S: Simd>(self, _: S, _row: usize) {}

    #[inline(always)]
    fn times<S: Simd>(_: S, (): (), row: S::V) -> S::V {
        row
    }
}

/// By its learned weight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Learned<'a> {
    numbers: &'a [f32],
    width: usize,
}

impl Learned<'_> {
    /// The weight of a row.
    #[inline(always)]
    pub fn weight(self, row: usize) -> f32 {
        self.numbers[row * self.width]
    }
}

impl Weigh for Learned<'_> {
    type Of<S: Simd> = S::V;

    #[inline(always)]
    fn of<S: Simd>(self, simd: S, row: usize) -> S::V {
        simd.splat(self.weight(row))
    }

    #[inline(always)]
    fn prefetch<S: Simd>(self, simd: S, row: usize) {
        simd.prefetch_ahead(self.numbers, row * self.width);
    }

    #[inline(always)]
    fn times<S: Simd>(simd: S, weight: S::V, row: S::V) -> S::V {
        simd.mul(weight, row)
    }
}

/// Moves a row's weight, the first of its `numbers`, by a rule and the sum of the row's gradients, of which it makes
/// the gradient of the row.
#[inline(always)]
pub(super) fn weigh<S: Simd, F: Seen, R: RowRule>(
    simd: S,
    (form, row): (F, &[u32]),
    rule: R,
    numbers: &mut [f32],
    sum: &mut [f32],
) {
    let gradient = gradients(simd, (form, row), numbers[0], sum);
    rule.move_weight(numbers, gradient);
}

/// The same by row-wise Adagrad, to which a weight is a row of one column.
#[inline(always)]
pub(super) fn weigh_rowwise<S: Simd, F: Seen>(
    simd: S,
    (form, row): (F, &[u32]),
    [rate, eps]: [f32; 2],
    numbers: &mut [f32],
    sum: &mut [f32],
) {
    let gradient = gradients(simd, (form, row), numbers[0], sum);
    let rate = rowwise_rate(&[gradient], &mut numbers[1], rate, eps);
    numbers[0] = Sgd { rate }.step(numbers[0], gradient, &mut [0.0; MOMENTS]);
}

/// The gradient of a row's weight; makes that of the row of the `sum` of both.
#[inline(always)]
fn gradients<S: Simd, F: Seen>(simd: S, (form, row): (F, &[u32]), weight: f32, sum: &mut [f32]) -> f32 {
    let (dim, count) = (sum.len(), LANES / S::LANES);
    let (mut sums, whole) = ([simd.splat(0.0); LANES / LEAST], dim / S::LANES * S::LANES);
    for (number, at) in (0..whole).step_by(S::LANES).enumerate() {
        let seen = form.seen(row, dim, at, S::LANES);
        let lanes = &mut sums[number % count];
        *lanes = simd.mul_add(F::see(simd, seen, 0), simd.load(&sum[at..]), *lanes);
    }
    if whole < dim {
        // Lanes behind the last column add 0.
        let seen = form.seen(row, dim, whole, dim - whole);
        let lanes = &mut sums[whole / S::LANES % count];
        *lanes = simd.mul_add(F::see_partial(simd, seen), simd.load_partial(&sum[whole..]), *lanes);
    }
    let mut lanes = [0.0; LANES];
    for (lanes, sums) in lanes.chunks_exact_mut(S::LANES).zip(sums) {
        simd.store(sums, lanes);
    }
    let weight = simd.splat(weight);
    scale(simd, weight, sum);
    in_pairs(lanes)
}

/// `sum[e] *= weight`.
#[inline(always)]
fn scale<S: Simd>(simd: S, weight: S::V, sum: &mut [f32]) {
    let (body, rest) = sum.split_at_mut(sum.len() / S::LANES * S::LANES);
    for vector in body.chunks_exact_mut(S::LANES) {
        simd.store(simd.mul(weight, simd.load(vector)), vector);
    }
    if !rest.is_empty() {
        simd.store_partial(simd.mul(weight, simd.load_partial(rest)), rest);
    }
}

/// Sums of products are added up in so many lanes, element i in lane i mod 16, whatever the width of vectors.
const LANES: usize = 16;

/// Lanes of the narrowest vectors.
const LEAST: usize = 8;
