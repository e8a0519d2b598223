//! Rules applied to weights that are 32-bit floats.

use super::{MOMENTS, Rule};
use crate::simd::{Kernel, Simd};

/// Moves weights by a rule.
#[derive(Debug)]
pub struct Move<'a, R> {
    /// How.
    pub rule: R,
    /// What moves.
    pub weight: &'a mut [f32],
    /// As many elements; with `term`, the sum of all terms but the last.
    pub gradient: &'a [f32],
    /// The gradient's last term, which then needs no memory of its sum; or nothing.
    pub term: &'a [f32],
    /// As many elements in each that the rule has.
    pub moments: [&'a mut [f32]; MOMENTS],
}

impl<R: Rule> Kernel for Move<'_, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if self.term.is_empty() { self.each::<S, false>(simd) } else { self.each::<S, true>(simd) }
    }
}

impl<R: Rule> Move<'_, R> {
    // Elements do not meet: the compiler makes vectors of them, and their width changes no bit.
    #[inline(always)]
    fn each<S: Simd, const TERM: bool>(self, _simd: S) {
        let Self { rule, weight, gradient, term, moments: [first, second] } = self;
        let len = weight.len();
        let of = |count: bool| if count { len } else { 0 };
        assert!(gradient.len() == len && term.len() == of(TERM), "a gradient a weight");
        let (first, second) = (&mut first[..of(R::MOMENTS > 0)], &mut second[..of(R::MOMENTS > 1)]);
        for i in 0..len {
            let gradient = if TERM { gradient[i] + term[i] } else { gradient[i] };
            let mut moments = [0.0; MOMENTS];
            if R::MOMENTS > 0 {
                moments[0] = first[i];
            }
            if R::MOMENTS > 1 {
                moments[1] = second[i];
            }
            weight[i] = rule.step(weight[i], gradient, &mut moments);
            if R::MOMENTS > 0 {
                first[i] = moments[0];
            }
            if R::MOMENTS > 1 {
                second[i] = moments[1];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;
    use crate::optim::{Momentum, Sgd};
    use crate::simd::Isa;

    const COUNT: usize = 45;

    #[test]
    fn weights_move_against_the_gradient() {
        let (before, gradient) = (random(COUNT, 1), random(COUNT, 2));
        for isa in Isa::all() {
            let mut weight = before.clone();
            let rule = Sgd { rate: 0.3 };
            isa.run(Move { rule, weight: &mut weight, gradient: &gradient, term: &[], moments: Default::default() });
            for i in 0..COUNT {
                assert_eq!(weight[i], (-0.3f32).mul_add(gradient[i], before[i]), "{isa:?}");
            }
        }
    }

    #[test]
    fn steps_are_made_again_in_part() {
        let (before, gradients) = (random(COUNT, 1), [2, 3].map(|seed| random(COUNT, seed)));
        for isa in Isa::all() {
            let (mut weight, mut buffer) = (before.clone(), vec![0.0; COUNT]);
            for gradient in &gradients {
                let rule = Momentum { rate: 0.3, momentum: 0.9 };
                let moments = [&mut buffer[..], &mut []];
                isa.run(Move { rule, weight: &mut weight, gradient, term: &[], moments });
            }
            for i in 0..COUNT {
                let first = gradients[0][i];
                let second = 0.9f32.mul_add(first, gradients[1][i]);
                let expected = (-0.3f32).mul_add(second, (-0.3f32).mul_add(first, before[i]));
                assert_eq!((weight[i], buffer[i]), (expected, second), "{isa:?}");
            }
        }
    }

    #[test]
    fn the_last_term_in_the_step_gives_the_bits_of_a_sum_before_it() {
        let [before, gradient, term] = [1, 2, 3].map(|seed| random(COUNT, seed));
        let sum: Vec<f32> = gradient.iter().zip(&term).map(|(g, t)| g + t).collect();
        for isa in Isa::all() {
            let (mut weight, mut expected) = ([before.clone(), before.clone()], [before.clone(), before.clone()]);
            let rule = Momentum { rate: 0.3, momentum: 0.9 };
            let moved = |[weight, buffer]: &mut [Vec<f32>; 2], gradient: &[f32], term: &[f32]| {
                isa.run(Move { rule, weight, gradient, term, moments: [buffer, &mut []] });
            };
            moved(&mut weight, &gradient, &term);
            moved(&mut expected, &sum, &[]);
            assert_eq!(weight, expected, "{isa:?}");
        }
    }
}
