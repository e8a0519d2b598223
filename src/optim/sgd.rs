//! Stochastic gradient descent.

use crate::simd::{Kernel, Simd, combine};

/// `weight[i] -= rate * gradient[i]`, as one fused multiply-add.
#[derive(Debug)]
pub struct Sgd<'a> {
    /// What moves.
    pub weight: &'a mut [f32],
    /// As many elements.
    pub gradient: &'a [f32],
    /// The learning rate.
    pub rate: f32,
}

impl Kernel for Sgd<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let rate = simd.splat(-self.rate);
        combine(simd, self.weight, self.gradient, |w, g| simd.mul_add(rate, g, w));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;
    use crate::simd::Isa;

    #[test]
    fn weights_move_against_the_gradient() {
        let (before, gradient) = (random(45, 1), random(45, 2));
        for isa in Isa::all() {
            let mut weight = before.clone();
            isa.run(Sgd { weight: &mut weight, gradient: &gradient, rate: 0.3 });
            for i in 0..45 {
                assert_eq!(weight[i], (-0.3f32).mul_add(gradient[i], before[i]), "{isa:?}");
            }
        }
    }
}
