//! How the numbers of a row lie in its 32-bit words: whole, or in halves (SC20, Section VII).
//!
//! A split row has the upper halves of all its columns first and then what is kept of the lower ones, `[high | low]`: a
//! look-up reads one contiguous half of the row, an update all of it. Two tensors of their own, as in the paper, would
//! make no look-up cheaper but an update of a narrow row twice as dear: with 16 columns both halves share one cache
//! line, and whatever the width, one translation.

mod halves;
mod stored;
mod whole;

pub(super) use halves::{Short, Split};
pub(super) use stored::Stored;
pub(super) use whole::Whole;

use crate::base::config::Precision;
use crate::simd::Simd;

/// A way to lay out a row, as far as a look-up reads it.
pub(super) trait Seen: Copy + Send + Sync {
    /// Columns as a look-up reads them.
    type Columns<'a>: Copy;

    /// The first words of a row, all that a look-up reads.
    fn seen_words(dim: usize) -> usize;

    /// Columns `first..first + count` for a look-up.
    fn seen(self, row: &[u32], dim: usize, first: usize, count: usize) -> Self::Columns<'_>;

    /// The vector at `at` of what a look-up reads.
    fn see<S: Simd>(simd: S, from: Self::Columns<'_>, at: usize) -> S::V;

    /// All of what a look-up reads, less than a vector.
    fn see_partial<S: Simd>(simd: S, from: Self::Columns<'_>) -> S::V;
}

/// A way to lay out a row that is moved.
pub(super) trait Form: Seen {
    /// Columns as an update moves them.
    type All<'a>;

    /// Words of a row.
    fn words(dim: usize) -> usize;

    /// Columns `first..first + count` for an update.
    fn all(self, row: &mut [u32], dim: usize, first: usize, count: usize) -> Self::All<'_>;

    /// The exact vector at `at`.
    fn load<S: Simd>(simd: S, from: &Self::All<'_>, at: usize) -> S::V;

    /// All columns exactly, less than a vector.
    fn load_partial<S: Simd>(simd: S, from: &Self::All<'_>) -> S::V;

    /// What the row can hold of a vector.
    fn keep<S: Simd>(simd: S, v: S::V) -> S::V;

    /// Writes a vector that the row can hold.
    fn store<S: Simd>(simd: S, v: S::V, to: &mut Self::All<'_>, at: usize);

    /// As [`Form::store`] for all columns, less than a vector.
    fn store_partial<S: Simd>(simd: S, v: S::V, to: &mut Self::All<'_>);

    /// One column, exactly.
    fn get(row: &[u32], dim: usize, column: usize) -> f32;

    /// Writes what the row can hold of a number to one column.
    fn set(row: &mut [u32], dim: usize, column: usize, x: f32);
}

/// Runs `$body` with `$form` bound to the form of `$precision`.
macro_rules! with_form {
    ($precision:expr, $form:ident => $body:expr) => {
        match $precision {
            $crate::base::config::Precision::F32 => {
                let $form = $crate::embedding::form::Whole;
                $body
            }
            $crate::base::config::Precision::Bf16 => {
                let $form = $crate::embedding::form::Split;
                $body
            }
            $crate::base::config::Precision::Bf16Lsb8 => {
                let $form = $crate::embedding::form::Short;
                $body
            }
        }
    };
}
pub(super) use with_form;

/// Runs `$body` with `$form` bound to what a look-up reads of a table's rows: of all rows in halves the upper ones,
/// which lie alike, however much is kept of the lower ones.
macro_rules! with_seen {
    ($table:expr, $form:ident => $body:expr) => {
        match ($table.precision().is_split(), $table.is_stored()) {
            (false, _) => {
                let $form = $crate::embedding::form::Whole;
                $body
            }
            (true, false) => {
                let $form = $crate::embedding::form::Split;
                $body
            }
            (true, true) => {
                let $form = $crate::embedding::form::Stored;
                $body
            }
        }
    };
}
pub(super) use with_seen;

/// The width in words of a table's rows.
pub(super) fn words(precision: Precision, dim: usize) -> usize {
    fn of<F: Form>(_form: F, dim: usize) -> usize {
        F::words(dim)
    }
    with_form!(precision, form => of(form, dim))
}

/// The words that a look-up reads of a row of so many columns.
#[must_use]
pub fn seen_words(precision: Precision, dim: usize) -> usize {
    fn of<F: Form>(_form: F, dim: usize) -> usize {
        F::seen_words(dim)
    }
    with_form!(precision, form => of(form, dim))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;
    use crate::simd::split::{join, shorten, split};
    use crate::simd::{Isa, Kernel};

    /// Doubles some columns of a row in place and returns what a look-up sees of them before.
    struct Double<'a, F> {
        row: &'a mut [u32],
        dim: usize,
        first: usize,
        form: F,
    }

    impl<F: Form> Kernel for Double<'_, F> {
        type Out = Vec<f32>;

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> Vec<f32> {
            let (form, two) = (self.form, simd.splat(2.0));
            let tail = self.dim - self.first - S::LANES;
            let mut out = [0.0; 32];
            simd.store(F::see(simd, form.seen(self.row, self.dim, self.first, S::LANES), 0), &mut out);
            {
                let mut body = form.all(self.row, self.dim, self.first, S::LANES);
                F::store(simd, F::keep(simd, simd.mul(two, F::load(simd, &body, 0))), &mut body, 0);
            }
            if tail > 0 {
                let rest = form.seen(self.row, self.dim, self.first + S::LANES, tail);
                simd.store(F::see_partial(simd, rest), &mut out[S::LANES..]);
                let mut rest = form.all(self.row, self.dim, self.first + S::LANES, tail);
                let doubled = simd.mul(two, F::load_partial(simd, &rest));
                F::store_partial(simd, F::keep(simd, doubled), &mut rest);
            }
            out[..self.dim - self.first].to_vec()
        }
    }

    fn check<F: Form>(form: F, exact: fn(f32) -> f32, seen: fn(f32) -> f32) {
        for isa in Isa::all() {
            let lanes = if isa.name().starts_with("avx512") { 16 } else { 8 };
            for tail in 0..lanes {
                let (first, dim) = (3, 3 + lanes + tail);
                let values = random(dim, 9);
                let mut row = vec![u32::MAX; F::words(dim)];
                values.iter().enumerate().for_each(|(column, &x)| F::set(&mut row, dim, column, x));
                let found = isa.run(Double { row: &mut row, dim, first, form });
                for (column, &x) in values.iter().enumerate() {
                    let doubled = exact(x) * if column < first { 1.0 } else { 2.0 };
                    assert_eq!(F::get(&row, dim, column).to_bits(), doubled.to_bits(), "{isa:?}, {dim} columns");
                    assert!(column < first || found[column - first] == seen(x), "{isa:?}, {dim} columns");
                }
            }
        }
    }

    #[test]
    fn rows_hold_what_they_promise() {
        let cut = |x: f32| join(split(x).0, 0);
        check(Whole, |x| x, |x| x);
        check(Split, |x| x, cut);
        check(Short, shorten, |x| join(split(shorten(x)).0, 0));
    }

    struct See<'a>(&'a [u32], usize);

    impl Kernel for See<'_> {
        type Out = Vec<u32>;

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> Vec<u32> {
            let (Self(row, first), mut out) = (self, [0.0; 32]);
            simd.store(Stored::see(simd, Stored.seen(row, row.len(), first, S::LANES), 0), &mut out);
            let rest = Stored.seen(row, row.len(), first + S::LANES, row.len() - first - S::LANES);
            simd.store(Stored::see_partial(simd, rest), &mut out[S::LANES..]);
            out[..row.len() - first].iter().map(|x| x.to_bits()).collect()
        }
    }

    #[test]
    fn rows_of_a_file_are_seen_as_split_ones() {
        for isa in Isa::all() {
            let lanes = if isa.name().starts_with("avx512") { 16 } else { 8 };
            for tail in 0..lanes {
                let first = 3;
                let mut row: Vec<u32> = random(first + lanes + tail, 9).iter().map(|x| x.to_bits()).collect();
                row[first] = f32::NAN.to_bits() | 1;
                row[first + 1] = f32::INFINITY.to_bits();
                let expected: Vec<u32> = row[first..].iter().map(|bits| bits & 0xffff_0000).collect();
                assert_eq!(isa.run(See(&row, first)), expected, "{isa:?}, {tail} behind");
            }
        }
    }

    #[test]
    fn split_rows_take_the_bytes_of_whole_ones() {
        for dim in [1, 2, 3, 16, 17, 64, 100] {
            assert_eq!(words(Precision::Bf16, dim), words(Precision::F32, dim));
            assert_eq!(words(Precision::Bf16Lsb8, dim), (3 * dim).div_ceil(4));
        }
    }
}
