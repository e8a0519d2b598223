//! Stochastic gradient descent with momentum, as PyTorch's `SGD(momentum=…)` without dampening and Nesterov's
//! correction (Sutskever et al., 2013, in PyTorch's form).

use super::{MOMENTS, Rule};
use crate::simd::Simd;

/// `buffer = momentum * buffer + gradient; weight -= rate * buffer`, each one fused multiply-add.
#[derive(Debug, Clone, Copy)]
pub struct Momentum {
    /// The learning rate.
    pub rate: f32,
    /// The part of the buffer that stays.
    pub momentum: f32,
}

impl Rule for Momentum {
    const MOMENTS: usize = 1;

    #[inline(always)]
    fn step(self, weight: f32, gradient: f32, moments: &mut [f32; MOMENTS]) -> f32 {
        moments[0] = self.momentum.mul_add(moments[0], gradient);
        (-self.rate).mul_add(moments[0], weight)
    }

    #[inline(always)]
    fn steps<S: Simd>(self, simd: S, weight: S::V, gradient: S::V, moments: &mut [S::V; MOMENTS]) -> S::V {
        moments[0] = simd.mul_add(simd.splat(self.momentum), moments[0], gradient);
        simd.mul_add(simd.splat(-self.rate), moments[0], weight)
    }
}
