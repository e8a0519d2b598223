//! Clipping of gradients by their norm, as PyTorch's `clip_grad_norm_`: where the norm of all gradients together
//! exceeds a bound, all of them are multiplied by bound over norm (Pascanu, Mikolov, Bengio 2013).
//!
//! Squares are added up row by row of memory as those of LAMB's norms are, so that who has which rows changes no bit.

use super::Squares;
use super::adagrad::sum_of_squares;
use crate::simd::{Kernel, Simd};

/// PyTorch's, which keeps a quotient finite where all gradients are 0.
const EPS: f64 = 1e-6;

/// What every gradient is multiplied by: `most / (norm + 1e-6)`, at most 1, of the sum of all squares.
#[must_use]
pub fn clip_factor(squares: f64, most: f64) -> f32 {
    // A norm that is no number makes every weight none, which the loss tells at the next step.
    let factor = most / (squares.sqrt() + EPS);
    if factor > 1.0 { 1.0 } else { factor as f32 }
}

/// Notes the squares of gradients, row by row, where LAMB has those of directions.
#[derive(Debug)]
pub struct SquareRows<'a> {
    /// What is squared.
    pub gradient: &'a [f32],
    /// Elements of a row; the last one may have fewer.
    pub row: usize,
    /// One a row; the first number of each becomes 0.
    pub squares: &'a mut [Squares],
}

impl Kernel for SquareRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { gradient, row, squares } = self;
        assert!(squares.len() == gradient.len().div_ceil(row), "a pair of squares a row");
        for (gradient, squares) in gradient.chunks(row).zip(squares) {
            *squares = [0.0, sum_of_squares(gradient)];
        }
    }
}

/// Multiplies gradients by a factor.
#[derive(Debug)]
pub struct Scale<'a> {
    /// What is multiplied.
    pub gradient: &'a mut [f32],
    /// By what.
    pub factor: f32,
}

impl Kernel for Scale<'_> {
    type Out = ();

    // Elements do not meet: the compiler makes vectors of them, and their width changes no bit.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { gradient, factor } = self;
        gradient.iter_mut().for_each(|gradient| *gradient *= factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;
    use crate::simd::Isa;

    #[test]
    fn gradients_beyond_the_bound_get_its_norm_and_others_stay() {
        for (len, row) in [(0, 16), (1, 16), (16, 16), (45, 16), (64, 64), (1000, 64)] {
            let gradient = random(len, 7);
            let exact: f64 = gradient.iter().map(|&g| f64::from(g).powi(2)).sum();
            let mut first: Option<Vec<Squares>> = None;
            for isa in Isa::all() {
                let mut squares = vec![[9.0; 2]; len.div_ceil(row)];
                isa.run(SquareRows { gradient: &gradient, row, squares: &mut squares });
                assert_eq!(first.get_or_insert_with(|| squares.clone()), &squares, "{isa:?}");
                let sum: f64 = squares.iter().map(|of| f64::from(of[1])).sum();
                assert!(squares.iter().all(|of| of[0] == 0.0) && (sum - exact).abs() <= 1e-6 * exact, "{len}, {row}");
                let (norm, mut clipped) = (sum.sqrt(), gradient.clone());
                assert_eq!(clip_factor(sum, 2.0 * norm + 1e-3), 1.0);
                let factor = clip_factor(sum, 0.25 * norm);
                isa.run(Scale { gradient: &mut clipped, factor });
                let now: f64 = clipped.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
                assert!((now - 0.25 * norm).abs() <= 1e-5 * norm, "{len}, {row}: {now}, not a quarter of {norm}");
            }
        }
        assert!(clip_factor(f64::NAN, 1.0).is_nan());
        assert_eq!(clip_factor(f64::INFINITY, 1.0), 0.0);
        assert_eq!(clip_factor(0.0, 1.0), 1.0);
    }
}
