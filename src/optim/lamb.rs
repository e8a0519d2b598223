//! LAMB (You et al. 2020), as Intel's MLPerf DLRM submissions have it: Adam's direction, made as long as the weights of
//! its tensor are.
//!
//! `r = m / (sqrt(v) + eps) + decay * weight; weight -= rate * trust * r`, where `trust` is the norm of the tensor's
//! weights, at most [`LONGEST`], over that of r, or 1 where either is 0. Their implementation corrects no bias unless
//! asked to.
//!
//! A tensor moves in two passes: the first leaves r in the gradient's place ([`Direct`]), with the squares that the
//! norms are made of; then SGD moves the weights at `rate * trust`. Squares are added up row by row in an order that
//! depends on nothing else, and rows in theirs, so that who has which rows changes no bit of a norm.

use super::adagrad::sum_of_squares;
use super::adam::Means;
use super::{Averages, MOMENTS, StepSize};
use crate::simd::{Kernel, Simd};

/// What the norm of a tensor's weights counts at most.
pub const LONGEST: f64 = 10.0;

/// The direction of one step.
#[derive(Debug, Clone, Copy)]
pub struct Lamb {
    means: Means,
    /// What makes up for the first mean having begun at 0.
    scale: f32,
    decay: f32,
}

impl Lamb {
    /// At one step.
    #[must_use]
    pub fn at(of: Averages, decay: f32, step_size: StepSize) -> Self {
        let [first, second] = of.shares(step_size.step);
        Self { means: Means::new(of, 1.0 / second.sqrt()), scale: (1.0 / first) as f32, decay }
    }

    #[inline(always)]
    fn direction(self, weight: f32, gradient: f32, moments: &mut [f32; MOMENTS]) -> f32 {
        self.decay.mul_add(weight, self.scale * self.means.direction(gradient, moments))
    }
}

/// The squares of some weights and of their directions, added up.
pub type Squares = [f32; 2];

/// Puts directions in the place of gradients, row by row.
#[derive(Debug)]
pub struct Direct<'a, W> {
    /// How.
    pub rule: Lamb,
    /// The weights of row i.
    pub weights: W,
    /// Elements of a row; the last one may have fewer.
    pub row: usize,
    /// The gradients; afterwards the directions.
    pub gradient: &'a mut [f32],
    /// As many elements.
    pub moments: [&'a mut [f32]; MOMENTS],
    /// One a row: those of weights and of directions.
    pub squares: &'a mut [Squares],
}

/// The longest row of weights.
pub const ROW: usize = 64;

impl<W: Fn(usize, &mut [f32; ROW])> Kernel for Direct<'_, W> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { rule, weights, row, gradient, moments: [first, second], squares } = self;
        assert!(row <= ROW && squares.len() == gradient.len().div_ceil(row), "a pair of squares a row");
        let moments = first.chunks_mut(row).zip(second.chunks_mut(row));
        let rows = gradient.chunks_mut(row).zip(moments).zip(squares).enumerate();
        for (index, ((gradient, (first, second)), squares)) in rows {
            let mut own = [0.0; ROW];
            weights(index, &mut own);
            let own = &own[..gradient.len()];
            for (((gradient, weight), first), second) in gradient.iter_mut().zip(own).zip(first).zip(second) {
                let mut moments = [*first, *second];
                *gradient = rule.direction(*weight, *gradient, &mut moments);
                [*first, *second] = moments;
            }
            *squares = [sum_of_squares(own), sum_of_squares(gradient)];
        }
    }
}

/// What SGD's rate is multiplied by, of the squares of a tensor's weights and directions.
#[must_use]
pub fn trust([weights, directions]: [f64; 2]) -> f32 {
    let [weights, directions] = [weights.sqrt().min(LONGEST), directions.sqrt()];
    if weights == 0.0 || directions == 0.0 { 1.0 } else { (weights / directions) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_trusted_by_its_norms_up_to_the_longest_and_without_one_as_sgd_is() {
        assert_eq!(trust([36.0, 4.0]), 3.0);
        assert_eq!(trust([400.0, 4.0]), 5.0);
        assert_eq!([trust([0.0, 4.0]), trust([4.0, 0.0]), trust([0.0, 0.0])], [1.0; 3]);
    }
}
