//! bfloat16: the upper half of a 32-bit float, as AVX512-BF16 converts and multiplies it; these functions define both.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VCVTNEPS2BF16 and VDPBF16PS. Both
//! take denormal inputs as 0 and round to nearest even whatever MXCSR says. What the manual leaves open was settled
//! against the instruction (the tests do so again wherever it exists): the odd element of a pair is added before the
//! even one, each product and sum is rounded once, together, and a sum that is tiny becomes 0 of the same sign, where
//! tiny means: below the least normal number after rounding to 24 bits as if exponents had no end.
//!
//! AMX-BF16 multiplies the same numbers but sums them otherwise, see [`dot_tile`]: its bits are its own. It is so much
//! faster than multiply-adds in 32-bit floats that it multiplies these, too, in three parts each: see [`thirds`].
//! Source: Henry, Tang, Heinecke, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
//! computations", ARITH 2019.

/// The value of a bfloat16; exact.
#[inline(always)]
#[must_use]
pub const fn widen(x: u16) -> f32 {
    f32::from_bits((x as u32) << 16)
}

/// The nearest bfloat16, ties to even; denormal numbers become 0, NaN stays NaN.
#[inline(always)]
#[must_use]
pub fn narrow(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40;
    let zero = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let number = if magnitude < 0x0080_0000 { zero } else { rounded };
    (if magnitude > 0x7f80_0000 { quiet } else { number }) as u16
}

/// Two neighbours in memory order as one word.
#[inline(always)]
#[must_use]
pub const fn pair(even: u16, odd: u16) -> u32 {
    even as u32 | (odd as u32) << 16
}

/// `sum + a.odd * b.odd + a.even * b.even`, the pairs given as the bits of `a` and `b`; see the module for the
/// rounding.
#[inline(always)]
#[must_use]
pub fn dot_pair(a: f32, b: f32, sum: f32) -> f32 {
    let odd = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
    let even = |x: f32| f32::from_bits(x.to_bits() << 16);
    let sum = multiply_add(odd(a), odd(b), without_denormals(sum));
    multiply_add(even(a), even(b), sum)
}

/// `sum` plus the products of 16 pairs, as TDPBF16PS adds them to an element of a tile: the even products and the odd
/// ones are summed apart, each sum from 0 in ascending order, then both are added, then `sum` is; every step is rounded
/// as in [`dot_pair`].
#[must_use]
pub fn dot_tile(a: &[u32; 16], b: &[u32; 16], sum: f32) -> f32 {
    let [mut even, mut odd] = [0.0; 2];
    for (&a, &b) in a.iter().zip(b) {
        even = multiply_add(f32::from_bits(a << 16), f32::from_bits(b << 16), even);
        odd = multiply_add(f32::from_bits(a & 0xffff_0000), f32::from_bits(b & 0xffff_0000), odd);
    }
    multiply_add(1.0, without_denormals(sum), multiply_add(1.0, even, odd))
}

/// Three bfloat16 whose sum is `x`, from the largest to the smallest, as the upper halves of 32-bit words.
///
/// Exact for numbers from 2^-103 to 2^127, whose parts are normal numbers or 0: each rounds what is left, ties away
/// from 0, and takes 8 of the 24 bits. What is not finite stays so in the sum of its parts, though it may become NaN.
#[inline(always)]
#[must_use]
pub fn thirds(x: f32) -> [u32; 3] {
    let nearest = |x: f32| f32::from_bits(x.to_bits().wrapping_add(0x8000) & 0xffff_0000);
    let high = nearest(x);
    let rest = x - high;
    let middle = nearest(rest);
    // No bit of a number is cut off here; rounding could turn NaN into 0.
    [high.to_bits(), middle.to_bits(), (rest - middle).to_bits() & 0xffff_0000]
}

/// Which third of the left factor meets which of the right one, in this order: the largest product last, and only one
/// operand changes at a time. The three products that are left out are
/// together hardly more than 2^-24 of the whole at most: one rounding of a 32-bit float.
pub const THIRDS: [[usize; 2]; 6] = [[0, 2], [0, 1], [1, 1], [1, 0], [2, 0], [0, 0]];

/// `sum` plus the products of 32 numbers in [`thirds`], which are 16 pairs each: [`dot_tile`] for each of [`THIRDS`].
#[must_use]
pub fn dot_thirds(a: &[[u32; 16]; 3], b: &[[u32; 16]; 3], sum: f32) -> f32 {
    THIRDS.iter().fold(sum, |sum, &[left, right]| dot_tile(&a[left], &b[right], sum))
}

/// Terms that tiles add in one step; they add two steps at least.
const STEP: usize = 32;

/// `start` plus the products of `terms` pairs of bfloat16, as the passes on tiles sum them: in whole units of 64.
#[must_use]
pub fn sum_on_tiles(start: f32, terms: usize, term: impl Fn(usize) -> (u16, u16)) -> f32 {
    let term = |i: usize| if i < terms { term(i) } else { (0, 0) };
    (0..terms.next_multiple_of(2 * STEP)).step_by(STEP).fold(start, |sum, first| {
        let pairs: [_; STEP / 2] = std::array::from_fn(|k| [term(first + 2 * k), term(first + 2 * k + 1)]);
        dot_tile(&pairs.map(|[even, odd]| pair(even.0, odd.0)), &pairs.map(|[even, odd]| pair(even.1, odd.1)), sum)
    })
}

/// The same of 32-bit floats, each in [`thirds`].
#[must_use]
pub fn sum_in_thirds(start: f32, terms: usize, term: impl Fn(usize) -> (f32, f32)) -> f32 {
    let term = |i: usize| if i < terms { term(i) } else { (0.0, 0.0) };
    (0..terms.next_multiple_of(2 * STEP)).step_by(STEP).fold(start, |sum, first| {
        let parted: [_; STEP] = std::array::from_fn(|k| [term(first + k).0, term(first + k).1].map(thirds));
        let [a, b] = [0, 1].map(|side| {
            std::array::from_fn(|part| {
                std::array::from_fn(|k| parted[2 * k][side][part] >> 16 | parted[2 * k + 1][side][part])
            })
        });
        dot_thirds(&a, &b, sum)
    })
}

/// 0 with the sign of a denormal `x`; otherwise `x`.
#[inline(always)]
fn without_denormals(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits })
}

/// a * b + sum for a `sum` that is not denormal, rounded once, denormal factors and tiny results taken as 0.
#[inline(always)]
fn multiply_add(a: f32, b: f32, sum: f32) -> f32 {
    const SCALE: f32 = (1u64 << 63) as f32;
    let (a, b) = (without_denormals(a), without_denormals(b));
    let result = a.mul_add(b, sum);
    // Sums that round to the least normal number may be tiny. Scaled up they are rounded as if exponents had no end;
    // nothing overflows there: so small a result of 24 + 16 bits has terms and factors far below 2^63.
    let scaled = (a * SCALE).mul_add(b, sum * SCALE);
    let tiny = result.abs() <= f32::MIN_POSITIVE && scaled.abs() < f32::MIN_POSITIVE * SCALE;
    f32::from_bits(if tiny { result.to_bits() & 0x8000_0000 } else { result.to_bits() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::{Random, Stream};
    use crate::simd::{Isa, Kernel, Simd};

    /// `dot_pairs` and `narrow` of one vector of 16 elements.
    struct Both<'a>(&'a [f32; 16], &'a [f32; 16], &'a [f32; 16]);

    impl Kernel for Both<'_> {
        type Out = ([f32; 16], [u16; 16]);
        const BF16: bool = true;

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> Self::Out {
            let (mut dots, mut narrowed) = ([0.0; 16], [0; 16]);
            for start in (0..16).step_by(S::LANES) {
                let [a, b, sum] = [self.0, self.1, self.2].map(|from| simd.load(&from[start..]));
                simd.store(simd.dot_pairs(a, b, sum), &mut dots[start..]);
                simd.narrow(sum, &mut narrowed[start..]);
            }
            (dots, narrowed)
        }
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }

    /// Numbers of all kinds: any bits, special values, numbers whose products are near the least normal number, and
    /// numbers near 1, where rounding shows.
    fn draw(random: &Random, round: u64, which: u64) -> [f32; 16] {
        const SPECIAL: [u32; 20] = [
            0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x0081, 0x8080, 0x3f80, 0xbf80, 0x7f7f, 0xff7f, 0x7f80,
            0xff80, 0x7fc0, 0x7f81, 0x0100, 0x2000, 0x1f80, 0x2080,
        ];
        std::array::from_fn(|i| {
            let [a, b, c, _] = random.block((round * 3 + which) * 16 + i as u64);
            let small = |x: u32| (x & 0x807f) | (0x1c00 + (x >> 8 & 0x0f80));
            let near_one = |x: u32| (x & 0x807f) | (0x3f00 + (x >> 8 & 0x0180));
            f32::from_bits(match (round % 4, which) {
                (0, _) => a,
                (1, 2) if a.is_multiple_of(2) => b & 0x80ff_ffff,
                (1, _) => SPECIAL[a as usize % 20] << 16 | SPECIAL[b as usize % 20],
                (2, 2) => (a & 0x807f_ffff) | (b % 4) << 23,
                (2, _) => small(a) << 16 | small(c),
                (_, 2) => (a & 0x807f_ffff) | (0x7a + b % 8) << 23,
                (_, _) => near_one(a) << 16 | near_one(c),
            })
        })
    }

    #[test]
    fn thirds_are_the_whole_number() {
        let random = Random::new(13, Stream::Label);
        for round in 0..100_000 {
            let [a, b, ..] = random.block(round);
            let x = f32::from_bits(a);
            let parts = thirds(x).map(f32::from_bits);
            assert!(thirds(x).iter().all(|part| part & 0xffff == 0));
            if (2.0f32.powi(-103)..2.0f32.powi(127)).contains(&x.abs()) {
                assert_eq!(parts[0] + (parts[1] + parts[2]), x, "{x:e}");
                assert!(parts.iter().all(|part| *part == 0.0 || part.is_normal()), "{x:e}: {parts:?}");
                assert!(parts[1].abs() <= x.abs() * 2.0f32.powi(-8) && parts[2].abs() <= x.abs() * 2.0f32.powi(-16));
            }
            let special = [f32::NAN, f32::INFINITY, -f32::INFINITY, f32::from_bits(0x7fff_ffff), f32::MAX];
            let lost = thirds(special[b as usize % 5]).map(f32::from_bits);
            assert!(!lost.iter().sum::<f32>().is_finite(), "{lost:?}");
        }
        assert_eq!(thirds(0.0), [0; 3]);
    }

    #[test]
    fn every_twin_gives_the_bits_of_the_definition() {
        let random = Random::new(11, Stream::Label);
        for round in 0..200_000 {
            let [a, b, sum] = [0, 1, 2].map(|which| draw(&random, round, which));
            for isa in Isa::all() {
                let (dots, narrowed) = isa.run(Both(&a, &b, &sum));
                for i in 0..16 {
                    let expected = dot_pair(a[i], b[i], sum[i]);
                    let facts = || format!("{isa:?} {:x?}", [a[i], b[i], sum[i], expected, dots[i]].map(f32::to_bits));
                    assert!(same(dots[i], expected), "{}", facts());
                    assert_eq!(narrowed[i], narrow(sum[i]), "{}", facts());
                }
            }
        }
        println!("checked {:?}", Isa::all());
    }

    #[test]
    fn conversion_rounds_to_nearest_even() {
        let cases = [
            (0x3f80_8000, 0x3f80),
            (0x3f81_8000, 0x3f82),
            (0x3f80_8001, 0x3f81),
            (0x7f7f_ffff, 0x7f80),
            (0x807f_ffff, 0x8000),
            (0x0080_0000, 0x0080),
            (0x7f80_0001, 0x7fc0),
            (0xff80_0000, 0xff80),
        ];
        for (from, to) in cases {
            assert_eq!(narrow(f32::from_bits(from)), to, "{from:x}");
        }
        for x in 0..=u16::MAX {
            let denormal = x & 0x7f80 == 0;
            let quiet = if widen(x).is_nan() { 0x40 } else { 0 };
            assert_eq!(narrow(widen(x)), if denormal { x & 0x8000 } else { x | quiet });
        }
    }

    #[test]
    fn products_are_exact_and_odd_comes_first() {
        let of = |x: f32| narrow(x);
        let pairs = |even: f32, odd: f32| f32::from_bits(pair(of(even), of(odd)));
        // 2^24 + 1 rounds to 2^24: so 1 survives only if it comes after the cancellation.
        let big = 16_777_216.0;
        assert_eq!(dot_pair(pairs(1.0, -big), pairs(1.0, 1.0), big), 1.0);
        assert_eq!(dot_pair(pairs(-big, 1.0), pairs(1.0, 1.0), big), 0.0);
    }
}
