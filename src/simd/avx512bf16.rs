//! Products of bf16 pairs in vectors of 512 bits: AVX512-BF16.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS. A bf16 number is the upper
//! half of an f32, so that here it is a `u16`. The instruction rounds after each of its two additions and takes
//! denormals as zero.
#![allow(unsafe_code)]

use std::arch::x86_64::{__m512, __m512bh, __m512i, _mm512_dpbf16_ps, _mm512_loadu_si512};

use super::avx512::Avx512;

/// Proof that this processor has AVX512-BF16 beside everything of AVX-512 that octorec uses.
#[derive(Clone, Copy)]
pub struct Avx512Bf16(Avx512);

/// An algorithm with its arguments, for a processor with AVX512-BF16.
///
/// Implementations mark `run` `#[inline(always)]`, so that it is compiled with the instruction set of its caller.
pub trait Bf16Kernel {
    /// What the algorithm returns.
    type Out;

    /// Runs the algorithm.
    fn run(self, simd: Avx512Bf16) -> Self::Out;
}

impl Avx512Bf16 {
    /// The proof, where it can be given.
    #[must_use]
    pub fn detect() -> Option<Self> {
        Avx512::detect().filter(|_| is_x86_feature_detected!("avx512bf16")).map(Self)
    }

    /// The proof for vectors of 16 floats.
    #[must_use]
    pub const fn floats(self) -> Avx512 {
        self.0
    }

    /// Runs a kernel compiled for this instruction set.
    #[inline]
    pub fn run<K: Bf16Kernel>(self, kernel: K) -> K::Out {
        #[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn compiled<K: Bf16Kernel>(simd: Avx512Bf16, kernel: K) -> K::Out {
            kernel.run(simd)
        }
        // SAFETY: `self` exists, so `detect` saw AVX512-BF16 and everything that `Avx512` proves.
        unsafe { compiled(self, kernel) }
    }

    /// The first 32 bf16 numbers of `from`.
    #[inline(always)]
    #[must_use]
    pub fn load_pairs(self, from: &[u16]) -> __m512bh {
        assert!(from.len() >= 32);
        // SAFETY: 64 bytes can be read, checked above; `self` proves AVX-512 F.
        let bits = unsafe { _mm512_loadu_si512(from.as_ptr().cast()) };
        // SAFETY: both are 64 bytes of any bits.
        unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) }
    }

    /// In lane i: (acc\[i\] + a\[2i + 1\] b\[2i + 1\]) + a\[2i\] b\[2i\], each addition fused with its product and rounded
    /// to nearest even.
    #[inline(always)]
    #[must_use]
    pub fn dot_pairs(self, acc: __m512, a: __m512bh, b: __m512bh) -> __m512 {
        // SAFETY: `self` proves AVX512-BF16 and AVX-512 F.
        unsafe { _mm512_dpbf16_ps(acc, a, b) }
    }
}
