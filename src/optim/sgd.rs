//! Stochastic gradient descent.

use super::{MOMENTS, Rule};
use crate::simd::Simd;

/// `weight -= rate * gradient`, as one fused multiply-add.
#[derive(Debug, Clone, Copy)]
pub struct Sgd {
    /// The learning rate.
    pub rate: f32,
}

impl Rule for Sgd {
    const MOMENTS: usize = 0;

    #[inline(always)]
    fn step(self, weight: f32, gradient: f32, _: &mut [f32; MOMENTS]) -> f32 {
        (-self.rate).mul_add(gradient, weight)
    }

    #[inline(always)]
    fn steps<S: Simd>(self, simd: S, weight: S::V, gradient: S::V, _: &mut [S::V; MOMENTS]) -> S::V {
        simd.mul_add(simd.splat(-self.rate), gradient, weight)
    }
}
