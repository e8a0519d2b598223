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

/// `weight[i] -= rate * (gradient[i] + term[i])`: [`Sgd`] with the sum's last addition in it, which then needs no memory.
#[derive(Debug)]
pub struct LastTermSgd<'a> {
    /// What moves.
    pub weight: &'a mut [f32],
    /// The sum of all terms but the last; as many elements.
    pub gradient: &'a [f32],
    /// The last term; as many elements.
    pub term: &'a [f32],
    /// The learning rate.
    pub rate: f32,
}

impl Kernel for LastTermSgd<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { weight, gradient, term, rate } = self;
        assert!(weight.len() == gradient.len() && weight.len() == term.len(), "a gradient a weight");
        let step = simd.splat(-rate);
        let mut weight = weight.chunks_exact_mut(S::LANES);
        let (mut gradient, mut term) = (gradient.chunks_exact(S::LANES), term.chunks_exact(S::LANES));
        for ((w, g), t) in weight.by_ref().zip(gradient.by_ref()).zip(term.by_ref()) {
            simd.store(simd.mul_add(step, simd.add(simd.load(g), simd.load(t)), simd.load(w)), w);
        }
        let rest = gradient.remainder().iter().zip(term.remainder());
        for (w, (g, t)) in weight.into_remainder().iter_mut().zip(rest) {
            *w = (-rate).mul_add(g + t, *w);
        }
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

    #[test]
    fn the_last_term_in_the_step_gives_the_bits_of_a_sum_before_it() {
        let [before, gradient, term] = [1, 2, 3].map(|seed| random(45, seed));
        for isa in Isa::all() {
            let (mut weight, mut expected) = (before.clone(), before.clone());
            isa.run(LastTermSgd { weight: &mut weight, gradient: &gradient, term: &term, rate: 0.3 });
            let sum: Vec<f32> = gradient.iter().zip(&term).map(|(g, t)| g + t).collect();
            isa.run(Sgd { weight: &mut expected, gradient: &sum, rate: 0.3 });
            assert_eq!(weight, expected, "{isa:?}");
        }
    }
}
