//! The gradient of ReLU.

use crate::simd::{Kernel, Simd, combine};

/// `gradient[n][j] = 0` where `y[n][j]` is 0 or less, for the first `columns` of every row of `gradient`.
#[derive(Debug)]
pub struct Gate<'a> {
    /// Whole rows.
    pub gradient: &'a mut [f32],
    /// Distance between rows of `gradient`.
    pub row: usize,
    /// Columns that have a ReLU.
    pub columns: usize,
    /// What the ReLU returned, as many rows.
    pub y: &'a [f32],
    /// Distance between rows of `y`.
    pub y_row: usize,
}

impl Kernel for Gate<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (n, gradient) in self.gradient.chunks_exact_mut(self.row).enumerate() {
            let y = &self.y[n * self.y_row..][..self.columns];
            combine(simd, &mut gradient[..self.columns], y, |g, y| simd.gate(g, y));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;
    use crate::simd::Isa;

    #[test]
    fn only_gated_columns_change() {
        let y: Vec<f32> = random(5 * 30, 1).iter().map(|x| x.max(0.0)).collect();
        let before = random(5 * 40, 2);
        for isa in Isa::all() {
            let mut gradient = before.clone();
            isa.run(Gate { gradient: &mut gradient, row: 40, columns: 27, y: &y, y_row: 30 });
            for (i, (&after, &before)) in gradient.iter().zip(&before).enumerate() {
                let (n, j) = (i / 40, i % 40);
                let closed = j < 27 && y[n * 30 + j] <= 0.0;
                assert_eq!(after, if closed { 0.0 } else { before }, "{isa:?}");
            }
        }
    }
}
