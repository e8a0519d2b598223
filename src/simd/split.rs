//! A 32-bit float as two halves: its upper 16 bits, which are a bfloat16, and the 16 bits that these leave out.
//!
//! Source: SC20, Section VII. Training reads the upper halves; an update joins both, so nothing is lost and nothing is
//! stored twice. The upper half is cut off, not rounded: any other choice would need more than a shift to undo.
//!
//! With only 8 of the lower bits ([`shorten`]) a number has 24 bits in all, 16 of them significant: the paper's variant
//! that is not enough.

/// The number with these halves.
#[inline(always)]
#[must_use]
pub const fn join(high: u16, low: u16) -> f32 {
    f32::from_bits((high as u32) << 16 | low as u32)
}

/// The halves of a number, upper one first; [`join`] undoes it, bit for bit.
#[inline(always)]
#[must_use]
pub const fn split(x: f32) -> (u16, u16) {
    let bits = x.to_bits();
    ((bits >> 16) as u16, bits as u16)
}

/// The nearest number whose lowest 8 bits are 0, ties to even; infinities and NaN keep their upper bits.
#[inline(always)]
#[must_use]
pub const fn shorten(x: f32) -> f32 {
    let bits = x.to_bits();
    let finite = bits & 0x7f80_0000 != 0x7f80_0000;
    let up = if finite { 0x7f + (bits >> 8 & 1) } else { 0 };
    f32::from_bits((bits + up) & 0xffff_ff00)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::{Random, Stream};
    use crate::simd::bf16::widen;
    use crate::simd::{Isa, Kernel, Simd};

    /// Every operation on halves, on one vector of 16 elements: values, then halves of the sum with 0.
    struct Everything<'a>(&'a [u16; 16], &'a [u16; 16]);

    impl Kernel for Everything<'_> {
        type Out = ([u32; 16], [u16; 16], [u16; 16], [u32; 16], [u32; 16]);
        const BF16: bool = true;

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> Self::Out {
            let (mut joined, mut short, mut wide) = ([0.0; 16], [0.0; 16], [0.0; 16]);
            let (mut high, mut low) = ([0; 16], [0; 16]);
            for at in (0..16).step_by(S::LANES) {
                let v = simd.join(&self.0[at..], &self.1[at..]);
                simd.store(v, &mut joined[at..]);
                simd.split(v, &mut high[at..], &mut low[at..]);
                simd.store(simd.shorten(v), &mut short[at..]);
                simd.store(simd.widen(&self.0[at..]), &mut wide[at..]);
            }
            (joined.map(f32::to_bits), high, low, short.map(f32::to_bits), wide.map(f32::to_bits))
        }
    }

    #[test]
    fn every_twin_gives_the_bits_of_the_definition() {
        let random = Random::new(23, Stream::Label);
        for round in 0..20_000u64 {
            // Any bits, then numbers whose exponents are the least and the greatest, NaN included.
            let draw = |i: usize| {
                let [a, b, ..] = random.block(round * 16 + i as u64);
                match round % 3 {
                    0 => a,
                    1 => a & 0x80ff_ffff,
                    _ => a | 0x7f00_0000 | b & 0xff,
                }
            };
            let numbers: [u32; 16] = std::array::from_fn(draw);
            let halves = numbers.map(|bits| split(f32::from_bits(bits)));
            let (high, low) = (halves.map(|(high, _)| high), halves.map(|(_, low)| low));
            let short = numbers.map(|bits| shorten(f32::from_bits(bits)).to_bits());
            let wide = high.map(|half| widen(half).to_bits());
            for isa in Isa::all() {
                assert_eq!(isa.run(Everything(&high, &low)), (numbers, high, low, short, wide), "{isa:?}");
            }
        }
    }

    #[test]
    fn a_short_number_is_the_nearest_with_24_bits() {
        let cases = [
            (0x3f80_0080, 0x3f80_0000),
            (0x3f80_0180, 0x3f80_0200),
            (0x3f80_0081, 0x3f80_0100),
            (0x3fff_ffff, 0x4000_0000),
            (0x7f7f_ffff, 0x7f80_0000),
            (0xff80_0000, 0xff80_0000),
            (0x7fff_ffff, 0x7fff_ff00),
            (0x8000_0001, 0x8000_0000),
        ];
        for (from, to) in cases {
            assert_eq!(shorten(f32::from_bits(from)).to_bits(), to, "{from:x}");
        }
    }
}
