//! FTRL-Proximal (McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013), which keeps a weight at
//! exactly 0 until its gradients have told more than `l1`.
//!
//! The paper keeps z, the sum of gradients corrected for how rates have shrunk. Here z is kept times the rate, each
//! gradient by the rate of its own step: with one rate it is the paper's algorithm, and where rates warm up or decay,
//! weights do not grow or shrink by that alone, without l1 and l2. What these ask for is taken times the rate of the
//! step that asks: with a rate that has decayed, gradients of earlier steps count for more than l1, and weights that
//! were held at 0 are let go; and l2 pulls less, so that weights grow.

use super::{MOMENTS, Rule};
use crate::simd::Simd;

/// With n the sum of squares, `z += rate * gradient - (sqrt(n + gradient^2) - sqrt(n)) * weight; n += gradient^2`, and
/// then `weight = -(z without rate * l1 of its distance from 0) / (beta + sqrt(n) + rate * l2)`. A weight that began
/// elsewhere than at 0 begins with the z that belongs to it.
#[derive(Debug, Clone, Copy)]
pub struct Ftrl {
    /// The learning rate: the paper's alpha.
    pub rate: f32,
    /// What the root of the sum of squares is added to.
    pub beta: f32,
    /// What a weight's z must exceed.
    pub l1: f32,
    /// What pulls weights to 0, times the rate: less as it decays.
    pub l2: f32,
}

impl Rule for Ftrl {
    const MOMENTS: usize = 2;

    #[inline(always)]
    fn step(self, weight: f32, gradient: f32, [n, z]: &mut [f32; MOMENTS]) -> f32 {
        let (floor, threshold) = (self.rate.mul_add(self.l2, self.beta), self.rate * self.l1);
        let before = n.sqrt();
        if *z == 0.0 {
            *z = 0.0 - weight * (floor + before);
        }
        *n = gradient.mul_add(gradient, *n);
        let root = n.sqrt();
        *z = (before - root).mul_add(weight, self.rate.mul_add(gradient, *z));
        // What is no number stays so, and is seen.
        let beyond = |z: f32| if z - threshold <= 0.0 { 0.0 } else { z - threshold };
        let root = floor + root;
        // Where nothing damps, no gradient has come.
        if root <= 0.0 { 0.0 } else { (beyond(0.0 - *z) - beyond(*z)) / root }
    }

    #[inline(always)]
    fn steps<S: Simd>(self, simd: S, weight: S::V, gradient: S::V, moments: &mut [S::V; MOMENTS]) -> S::V {
        let [n, z] = *moments;
        let minus = |a: S::V, b: S::V| simd.mul_add(simd.splat(-1.0), b, a);
        let zero = simd.splat(0.0);
        let (floor, threshold) = (simd.splat(self.rate.mul_add(self.l2, self.beta)), simd.splat(self.rate * self.l1));
        let before = simd.sqrt(n);
        // Where z is 0, and nothing elsewhere.
        let first = minus(zero, simd.mul(weight, simd.add(floor, before)));
        let first = minus(minus(first, simd.gate(first, z)), simd.gate(first, minus(zero, z)));
        let n = simd.mul_add(gradient, gradient, n);
        let root = simd.sqrt(n);
        let z = simd.mul_add(simd.splat(self.rate), gradient, simd.add(z, first));
        let z = simd.mul_add(minus(before, root), weight, z);
        *moments = [n, z];
        let beyond = |z: S::V| simd.relu(minus(z, threshold));
        let root = simd.add(floor, root);
        simd.gate(simd.div(minus(beyond(minus(zero, z)), beyond(z)), root), root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;

    /// The paper's Algorithm 1 in 64 bits, weights from z in each step.
    fn by_the_paper(gradients: &[f32], [alpha, beta, l1, l2]: [f64; 4]) -> Vec<f64> {
        let (mut z, mut n, mut weight) = (0.0f64, 0.0f64, 0.0);
        let step = |&gradient: &f32| {
            let g = f64::from(gradient);
            let sigma = ((n + g * g).sqrt() - n.sqrt()) / alpha;
            z += g - sigma * weight;
            n += g * g;
            weight = match z.abs() <= l1 {
                true => 0.0,
                false => -(z - z.signum() * l1) / ((beta + n.sqrt()) / alpha + l2),
            };
            weight
        };
        gradients.iter().map(step).collect()
    }

    #[test]
    fn with_one_rate_it_is_the_papers_algorithm() {
        let gradients = random(100, 7);
        for (l1, l2) in [(0.0, 0.0), (0.8, 0.0), (0.0, 0.5), (0.3, 0.2)] {
            let rule = Ftrl { rate: 0.1, beta: 1.0, l1, l2 };
            let expected = by_the_paper(&gradients, [f64::from(rule.rate), 1.0, f64::from(l1), f64::from(l2)]);
            let (mut weight, mut moments) = (0.0, [0.0; MOMENTS]);
            for (gradient, expected) in gradients.iter().zip(&expected) {
                weight = rule.step(weight, *gradient, &mut moments);
                assert!((f64::from(weight) - expected).abs() < 1e-6, "l1 {l1}, l2 {l2}: {weight}, not {expected}");
                assert_eq!(weight == 0.0, *expected == 0.0, "l1 {l1}: {weight}, not {expected}");
            }
            assert_eq!(l1 > 0.0, expected.contains(&0.0), "some weights stay at 0");
        }
    }

    #[test]
    fn a_weight_that_has_learned_nothing_stays_and_a_rate_of_0_moves_nothing() {
        let rule = |rate| Ftrl { rate, beta: 1.0, l1: 0.0, l2: 0.0 };
        let mut moments = [0.25, 0.0];
        let weight = rule(0.1).step(0.7, 0.0, &mut moments);
        assert!((weight - 0.7).abs() < 1e-6, "{weight}");
        let moved = rule(0.1).step(weight, 0.5, &mut moments);
        assert!((moved - (0.7 - 0.1 * 0.5 / (1.0 + 0.5f32.sqrt()))).abs() < 1e-6, "{moved}");
        let still = rule(0.0).step(moved, 3.0, &mut moments);
        assert!((still - moved).abs() < 1e-6, "{still}, not {moved}");
    }

    #[test]
    fn a_rate_that_decays_moves_nothing_by_itself_but_what_l2_had_pulled() {
        for (l2, growth) in [(0.0, 1.0), (2.0, (1.5 + 0.1 * 2.0) / (1.5 + 0.01 * 2.0))] {
            let rule = |rate| Ftrl { rate, beta: 1.0, l1: 0.0, l2 };
            let mut moments = [0.25, 0.0];
            let weight = rule(0.1).step(0.7, 0.0, &mut moments);
            let later = rule(0.01).step(weight, 0.0, &mut moments);
            assert!((later / weight - growth).abs() < 1e-6, "l2 {l2}: {weight}, then {later}");
        }
    }

    #[test]
    fn nothing_that_damps_and_no_gradient_is_no_division_by_0() {
        let rule = Ftrl { rate: 0.1, beta: 0.0, l1: 0.0, l2: 0.0 };
        assert_eq!(rule.step(0.0, 0.0, &mut [0.0; MOMENTS]), 0.0);
    }
}
