//! A tensor's numbers as a file has them: 32-bit floats, or those of fewer bits that other programs write.
//!
//! Only types are taken of which every number is a 32-bit float, too, so that nothing is rounded on the way.

use std::borrow::Cow;
use std::ops::Range;

use bytemuck::allocation::pod_collect_to_vec;
use safetensors::tensor::Dtype;

use crate::simd::bf16;

/// A tensor's numbers, one behind the other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Floats<'a> {
    /// 32-bit floats.
    Whole(&'a [u8]),
    /// bfloat16: their upper halves.
    Bf16(&'a [u8]),
    /// The half-precision floats of IEEE 754.
    F16(&'a [u8]),
}

impl<'a> Floats<'a> {
    /// The numbers of this type in these bytes; nothing where some of the type are no 32-bit floats.
    pub(super) const fn of(dtype: Dtype, bytes: &'a [u8]) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::Whole(bytes)),
            Dtype::BF16 => Some(Self::Bf16(bytes)),
            Dtype::F16 => Some(Self::F16(bytes)),
            _ => None,
        }
    }

    /// All of their bytes.
    pub(super) const fn bytes(self) -> &'a [u8] {
        let (Self::Whole(bytes) | Self::Bf16(bytes) | Self::F16(bytes)) = self;
        bytes
    }

    /// Bytes of a number.
    pub(super) const fn width(self) -> usize {
        match self {
            Self::Whole(_) => 4,
            Self::Bf16(_) | Self::F16(_) => 2,
        }
    }

    /// Those in this range, as 32-bit floats: where the file has them, if they are and lie aligned there, else copied.
    pub(super) fn values(self, range: Range<usize>) -> Cow<'a, [f32]> {
        let bytes = &self.bytes()[range.start * self.width()..range.end * self.width()];
        let widened = |widen: fn(u16) -> f32| {
            bytes.as_chunks().0.iter().map(|half| widen(u16::from_le_bytes(*half))).collect::<Vec<_>>()
        };
        match self {
            Self::Whole(_) => {
                bytemuck::try_cast_slice(bytes).map_or_else(|_| Cow::Owned(pod_collect_to_vec(bytes)), Cow::Borrowed)
            }
            Self::Bf16(_) => Cow::Owned(widened(bf16::widen)),
            Self::F16(_) => Cow::Owned(widened(widen_half)),
        }
    }
}

/// The value of a half-precision float of IEEE 754: a sign, 5 bits of exponent and 10 of fraction; exact.
fn widen_half(half: u16) -> f32 {
    let (exponent, fraction) = (u32::from(half >> 10 & 0x1f), u32::from(half & 0x3ff));
    let magnitude = match exponent {
        // Denormal numbers: so many times 2^-24.
        0 => (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        31 => 0x7f80_0000 | fraction << 13,
        // Exponents are those of 2 plus 15, and plus 127 in 32 bits.
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(u32::from(half & 0x8000) << 16 | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_has_the_value_that_the_standard_defines() {
        for half in 0..=u16::MAX {
            let (exponent, fraction) = (i32::from(half >> 10 & 0x1f), f64::from(half & 0x3ff));
            let sign = if half >> 15 == 1 { -1.0 } else { 1.0 };
            let expected = match exponent {
                0 => sign * fraction * 2f64.powi(-24),
                31 if fraction > 0.0 => f64::NAN,
                31 => sign * f64::INFINITY,
                _ => sign * (1024.0 + fraction) * 2f64.powi(exponent - 25),
            };
            let found = f64::from(widen_half(half));
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "{half:#x}: {found}");
        }
    }

    #[test]
    fn numbers_of_any_width_are_read_wherever_they_lie() {
        let halves = |of: &[u16]| of.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
        // With a byte before them, they need not lie where 32-bit floats do.
        let whole: Vec<u8> = [0].into_iter().chain([1.5f32, -2.0, 3.0].iter().flat_map(|x| x.to_le_bytes())).collect();
        let (bf16, f16) = (halves(&[0x3fc0, 0xc000, 0x4040]), halves(&[0x3e00, 0xc000, 0x4200]));
        for (dtype, bytes, width) in
            [(Dtype::F32, &whole[1..], 4), (Dtype::BF16, &bf16[..], 2), (Dtype::F16, &f16[..], 2)]
        {
            let floats = Floats::of(dtype, bytes).unwrap();
            assert_eq!((floats.width(), floats.bytes()), (width, bytes), "{dtype:?}");
            assert_eq!(
                (&*floats.values(0..3), &*floats.values(1..2)),
                (&[1.5, -2.0, 3.0][..], &[-2.0][..]),
                "{dtype:?}"
            );
        }
        assert!([Dtype::F64, Dtype::I32, Dtype::U16, Dtype::I8].iter().all(|dtype| Floats::of(*dtype, &[]).is_none()));
    }
}
