//! Adagrad (Duchi, Hazan, Singer 2011) as PyTorch's `Adagrad` without decay of the rate, and row-wise Adagrad, which
//! keeps one number a row (fbgemm's exact row-wise Adagrad, TorchRec's, and `RWSAdagrad` of facebookresearch/dlrm).

use super::{MOMENTS, Rule};
use crate::simd::Simd;

/// `sum += gradient^2; weight -= rate * gradient / (sqrt(sum) + eps)`, products and sums fused.
#[derive(Debug, Clone, Copy)]
pub struct Adagrad {
    /// The learning rate.
    pub rate: f32,
    /// What keeps a step finite where all gradients were small.
    pub eps: f32,
}

impl Rule for Adagrad {
    const MOMENTS: usize = 1;

    #[inline(always)]
    fn step(self, weight: f32, gradient: f32, moments: &mut [f32; MOMENTS]) -> f32 {
        moments[0] = gradient.mul_add(gradient, moments[0]);
        (-self.rate).mul_add(gradient / (moments[0].sqrt() + self.eps), weight)
    }

    #[inline(always)]
    fn steps<S: Simd>(self, simd: S, weight: S::V, gradient: S::V, moments: &mut [S::V; MOMENTS]) -> S::V {
        moments[0] = simd.mul_add(gradient, gradient, moments[0]);
        let root = simd.add(simd.sqrt(moments[0]), simd.splat(self.eps));
        simd.mul_add(simd.splat(-self.rate), simd.div(gradient, root), weight)
    }
}

/// Adds the mean of the squares of a row's `gradient` to what is kept of the row, `sum`; the rate at which SGD then
/// moves the row: `rate / (sqrt(sum) + eps)`.
#[inline(always)]
pub fn rowwise_rate(gradient: &[f32], sum: &mut f32, rate: f32, eps: f32) -> f32 {
    *sum += sum_of_squares(gradient) / gradient.len() as f32;
    rate / (sum.sqrt() + eps)
}

/// Added up in 16 lanes, element i in lane i mod 16, and the lanes in pairs of ever fewer: the order does not depend on
/// the width of vectors.
#[inline(always)]
pub(super) fn sum_of_squares(numbers: &[f32]) -> f32 {
    let (mut lanes, (whole, rest)) = ([0.0f32; LANES], numbers.as_chunks::<LANES>());
    for some in whole {
        lanes.iter_mut().zip(some).for_each(|(lane, g)| *lane = g.mul_add(*g, *lane));
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, g)| *lane = g.mul_add(*g, *lane));
    in_pairs(lanes)
}

/// The sum of the lanes, added up in pairs of ever fewer.
#[inline(always)]
#[must_use]
pub fn in_pairs(mut lanes: [f32; LANES]) -> f32 {
    let mut count = LANES / 2;
    while count > 0 {
        for lane in 0..count {
            lanes[lane] += lanes[lane + count];
        }
        count /= 2;
    }
    lanes[0]
}

const LANES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;

    #[test]
    fn the_rate_of_a_row_is_that_of_the_definition() {
        for dim in [1, 3, 16, 17, 100, 300] {
            let gradient = random(dim, dim as u32);
            let (mut sum, mut exact) = (0.25, 0.25f64);
            for _ in 0..3 {
                exact += gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>() / dim as f64;
                let rate = rowwise_rate(&gradient, &mut sum, 0.1, 1e-8);
                assert!((f64::from(sum) / exact - 1.0).abs() < 1e-6, "{dim} columns: {sum}, not {exact}");
                assert!((f64::from(rate) * exact.sqrt() / 0.1 - 1.0).abs() < 1e-6, "{dim} columns: {rate}");
            }
        }
    }
}
