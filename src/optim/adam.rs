//! Adam (Kingma, Ba 2015): of layers as PyTorch's `Adam`, of rows as its `SparseAdam`.

use super::{MOMENTS, Rule, StepSize};
use crate::simd::Simd;

/// What Adam and its relatives average, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Averages {
    /// The part of the mean of gradients that stays.
    pub beta1: f64,
    /// The part of the mean of their squares that stays.
    pub beta2: f64,
    /// What keeps a step finite where all gradients were small.
    pub eps: f32,
    /// Whether the means are made up for having begun at 0.
    pub bias_correction: bool,
}

impl Averages {
    /// What the means of update number `step` would be of, had all gradients been 1: 1 - beta^step each, or 1.
    #[must_use]
    pub fn shares(&self, step: u64) -> [f64; 2] {
        let share = |beta: f64| if self.bias_correction { 1.0 - libm::pow(beta, step as f64) } else { 1.0 };
        [share(self.beta1), share(self.beta2)]
    }
}

/// Both means at one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means {
    beta1: f32,
    beta2: f32,
    /// 1 - beta, rounded once.
    rest1: f32,
    rest2: f32,
    /// What the root of the second is multiplied by.
    root: f32,
    eps: f32,
}

impl Means {
    /// With this factor at the root.
    pub(super) fn new(of: Averages, root: f64) -> Self {
        let Averages { beta1, beta2, eps, .. } = of;
        let [rest1, rest2] = [beta1, beta2].map(|beta| (1.0 - beta) as f32);
        Self { beta1: beta1 as f32, beta2: beta2 as f32, rest1, rest2, root: root as f32, eps }
    }

    /// Moves both means; the first over `root * sqrt(second) + eps`.
    #[inline(always)]
    pub(super) fn direction(self, gradient: f32, moments: &mut [f32; MOMENTS]) -> f32 {
        let Self { beta1, beta2, rest1, rest2, root, eps } = self;
        moments[0] = beta1.mul_add(moments[0], rest1 * gradient);
        moments[1] = beta2.mul_add(moments[1], (rest2 * gradient) * gradient);
        moments[0] / root.mul_add(moments[1].sqrt(), eps)
    }

    /// [`Means::direction`] in every lane.
    #[inline(always)]
    pub(super) fn directions<S: Simd>(self, simd: S, gradient: S::V, moments: &mut [S::V; MOMENTS]) -> S::V {
        let [beta1, beta2] = [self.beta1, self.beta2].map(|beta| simd.splat(beta));
        let [first, second] = [self.rest1, self.rest2].map(|rest| simd.mul(simd.splat(rest), gradient));
        moments[0] = simd.mul_add(beta1, moments[0], first);
        moments[1] = simd.mul_add(beta2, moments[1], simd.mul(second, gradient));
        let root = simd.mul_add(simd.splat(self.root), simd.sqrt(moments[1]), simd.splat(self.eps));
        simd.div(moments[0], root)
    }
}

/// `m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; weight -= step * m / (root * sqrt(v) + eps)`.
///
/// At update t, PyTorch's `Adam` has `step = rate / (1 - beta1^t)` and `root = 1 / sqrt(1 - beta2^t)`; its `SparseAdam`
/// leaves `eps` as it is: `step = rate * sqrt(1 - beta2^t) / (1 - beta1^t)` and `root = 1`.
#[derive(Debug, Clone, Copy)]
pub struct Adam {
    step: f32,
    means: Means,
}

impl Adam {
    /// PyTorch's `Adam`.
    #[must_use]
    pub fn dense(of: Averages, step_size: StepSize) -> Self {
        let [first, second] = of.shares(step_size.step);
        Self { step: (f64::from(step_size.rate) / first) as f32, means: Means::new(of, 1.0 / second.sqrt()) }
    }

    /// PyTorch's `SparseAdam`, of the rows that a step has met.
    #[must_use]
    pub fn sparse(of: Averages, step_size: StepSize) -> Self {
        let [first, second] = of.shares(step_size.step);
        Self { step: (f64::from(step_size.rate) * second.sqrt() / first) as f32, means: Means::new(of, 1.0) }
    }
}

impl Rule for Adam {
    const MOMENTS: usize = 2;

    #[inline(always)]
    fn step(self, weight: f32, gradient: f32, moments: &mut [f32; MOMENTS]) -> f32 {
        (-self.step).mul_add(self.means.direction(gradient, moments), weight)
    }

    #[inline(always)]
    fn steps<S: Simd>(self, simd: S, weight: S::V, gradient: S::V, moments: &mut [S::V; MOMENTS]) -> S::V {
        simd.mul_add(simd.splat(-self.step), self.means.directions(simd, gradient, moments), weight)
    }
}
