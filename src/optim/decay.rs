//! Decay of weights as PyTorch's `weight_decay`: a part of each weight is added to its gradient.

use super::{MOMENTS, Rule};
use crate::simd::Simd;

/// Another rule, given `gradient + decay * weight`, one fused multiply-add.
#[derive(Debug, Clone, Copy)]
pub struct Decayed<R> {
    /// The rule.
    pub rule: R,
    /// The part.
    pub decay: f32,
}

impl<R: Rule> Rule for Decayed<R> {
    const MOMENTS: usize = R::MOMENTS;

    #[inline(always)]
    fn step(self, weight: f32, gradient: f32, moments: &mut [f32; MOMENTS]) -> f32 {
        self.rule.step(weight, self.decay.mul_add(weight, gradient), moments)
    }

    #[inline(always)]
    fn steps<S: Simd>(self, simd: S, weight: S::V, gradient: S::V, moments: &mut [S::V; MOMENTS]) -> S::V {
        let gradient = simd.mul_add(simd.splat(self.decay), weight, gradient);
        self.rule.steps(simd, weight, gradient, moments)
    }
}
