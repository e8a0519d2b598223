//! Integers by the inverse of their distribution: quantiles on a logarithmic scale with straight lines between them.

use super::shape::IntegerShape;

/// Where the quantiles of a shape lie; the largest of 80,000 values stands for the maximum.
const LEVELS: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0 - 1.0 / 80_000.0];

/// The distribution of an integer column.
#[derive(Debug, Clone)]
pub(super) struct Quantiles {
    /// sign(x) ln(1 + |x|) at each level.
    knots: [f64; 5],
}

impl Quantiles {
    pub(super) fn new(shape: &IntegerShape) -> Self {
        Self { knots: shape.quantiles.map(signed_log) }
    }

    /// The value below which a share `uniform` of all values lies.
    #[inline]
    pub(super) fn at(&self, uniform: f64) -> i64 {
        let segment = LEVELS[1..4].iter().filter(|&&level| uniform >= level).count();
        let (from, to) = (LEVELS[segment], LEVELS[segment + 1]);
        let along = ((uniform - from) / (to - from)).min(1.0);
        let y = self.knots[segment] + along * (self.knots[segment + 1] - self.knots[segment]);
        let size = (libm::exp(y.abs()) - 0.5) as i64;
        if y < 0.0 { -size } else { size }
    }
}

/// A logarithm that is defined for all integers.
pub(super) fn signed_log(value: i64) -> f64 {
    let size = libm::log1p(value.unsigned_abs() as f64);
    if value < 0 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::super::shape::INTEGERS;
    use super::*;

    #[test]
    fn the_quantiles_are_met() {
        for shape in &INTEGERS {
            let quantiles = Quantiles::new(shape);
            for (level, expected) in LEVELS.into_iter().zip(shape.quantiles) {
                assert_eq!(quantiles.at(level), expected, "{shape:?}");
            }
            assert_eq!(quantiles.at(1.0 - 1e-15), shape.quantiles[4]);
            assert!((0..1000).map(|i| quantiles.at(f64::from(i) / 1000.0)).is_sorted());
        }
    }
}
