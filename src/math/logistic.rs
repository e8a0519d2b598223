//! The logistic function, exp and log1p in 64-bit floats without branches, so that the compiler makes vectors of a loop
//! over them, with the same bits on every instruction set: only additions, multiplications, divisions and fused
//! multiply-adds, each rounded once by IEEE 754, in an order that is written here.
//!
//! Method: Muller, "Elementary Functions", 3rd edition: argument reduction by ln 2 in two parts (Cody and Waite), and
//! Taylor series that are cut off far below half a unit in the last place. Tests hold exp within 1 and log1p within 2
//! units in the last place of libm's over the ranges named.

/// exp(x) for x <= 0: relative error below 2^-52; 0 where the result would be below the smallest normal number; NaN for
/// NaN.
#[must_use]
#[inline(always)]
pub fn exp_of_negative(x: f64) -> f64 {
    // 1.5 * 2^52: added to a number of magnitude below 2^51 it rounds that to an integer, in the low bits of the sum.
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    // The upper part has 32 bits, so n times it is exact.
    const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
    const LN_2_LOW: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
    /// exp of this is the smallest normal number, rounded up.
    const LOWEST: f64 = -708.0;
    // Not `max`, which would turn NaN into a number.
    let kept = if x < LOWEST { LOWEST } else { x };
    let rounded = kept.mul_add(std::f64::consts::LOG2_E, ROUNDER);
    let n = rounded - ROUNDER;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, kept));
    // The sum of r^k / k! up to k = 13, for |r| <= ln(2) / 2: what is left out is below 2^-57 of it.
    let mut sum = TAYLOR[0];
    for &coefficient in &TAYLOR[1..] {
        sum = sum.mul_add(r, coefficient);
    }
    // 2^n from its exponent bits: the low bits of `rounded` are n in two's complement.
    let power = f64::from_bits((rounded.to_bits() << 52).wrapping_add(0x3ff0_0000_0000_0000));
    if x < LOWEST { 0.0 } else { sum * power }
}

/// 1 / k! from k = 13 down to 0.
const TAYLOR: [f64; 14] = {
    let (mut coefficients, mut factorial, mut k) = ([0.0; 14], 1.0, 0);
    while k < 14 {
        // Factorials up to 13! are exact.
        if k > 0 {
            factorial *= k as f64;
        }
        coefficients[13 - k] = 1.0 / factorial;
        k += 1;
    }
    coefficients
};

/// 1 / (1 + e^-x), with e^x in place of e^-x where that would overflow; NaN for NaN.
#[must_use]
#[inline(always)]
pub fn logistic(x: f64) -> f64 {
    let e = exp_of_negative(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// ln(1 + x) for 0 <= x <= 1: relative error below 2^-51; NaN for NaN.
#[must_use]
#[inline(always)]
pub fn log1p_of_fraction(x: f64) -> f64 {
    // ln(1 + x) = 2 artanh(s) with s = x / (2 + x) <= 1/3: the sum of 2 s^(2k + 1) / (2k + 1) up to k = 16; what is
    // left out is below 2^-58 of it.
    let s = x / (2.0 + x);
    let square = s * s;
    let mut sum = ARTANH[0];
    for &coefficient in &ARTANH[1..] {
        sum = sum.mul_add(square, coefficient);
    }
    // 2s + 2s * square * sum: the first term is exact.
    let twice = 2.0 * s;
    (twice * square).mul_add(sum, twice)
}

/// 1 / (2k + 1) from k = 16 down to 1.
const ARTANH: [f64; 16] = {
    let (mut coefficients, mut k) = ([0.0; 16], 0);
    while k < 16 {
        coefficients[k] = 1.0 / (33 - 2 * k) as f64;
        k += 1;
    }
    coefficients
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::{Random, Stream};

    /// |found - expected| in units of the last place of `expected`.
    fn units(found: f64, expected: f64) -> f64 {
        let unit = f64::from_bits(expected.to_bits() + 1) - expected;
        (found - expected).abs() / unit
    }

    #[test]
    fn both_follow_libm_over_their_ranges() {
        let random = Random::new(1, Stream::Label);
        let (mut exp_worst, mut log_worst) = (0.0f64, 0.0f64);
        for i in 0..2_000_000 {
            let uniform = random.uniform(i);
            // All magnitudes: logits are small, but may be anything.
            let x = match i % 3 {
                0 => -708.0 * uniform,
                1 => -8.0 * uniform,
                _ => -libm::exp(-60.0 * uniform),
            };
            exp_worst = exp_worst.max(units(exp_of_negative(x), libm::exp(x)));
            let x = if i % 2 == 0 { uniform } else { libm::exp(-700.0 * uniform) };
            log_worst = log_worst.max(units(log1p_of_fraction(x), libm::log1p(x)));
        }
        println!("units in the last place from libm: exp {exp_worst}, log1p {log_worst}");
        assert!(exp_worst <= 1.0 && log_worst <= 2.0, "exp {exp_worst}, log1p {log_worst}");
    }

    #[test]
    fn ends_and_nan_are_exact() {
        assert_eq!(exp_of_negative(0.0), 1.0);
        assert_eq!(exp_of_negative(-0.0), 1.0);
        assert_eq!(exp_of_negative(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp_of_negative(-709.0), 0.0);
        assert!(exp_of_negative(-708.0) >= f64::MIN_POSITIVE);
        assert_eq!(log1p_of_fraction(0.0), 0.0);
        assert_eq!(log1p_of_fraction(f64::MIN_POSITIVE), f64::MIN_POSITIVE);
        assert!((log1p_of_fraction(1.0) - std::f64::consts::LN_2).abs() < 1.2e-16);
        assert!(exp_of_negative(f64::NAN).is_nan() && log1p_of_fraction(f64::NAN).is_nan());
    }
}
