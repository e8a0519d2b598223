//! AVX-512 with the two bfloat16 instructions: everything else is AVX-512's.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS and VCVTNEPS2BF16.
#![allow(unsafe_code)]

use std::arch::x86_64::{__m256bh, __m512, __m512bh, _mm512_cvtneps_pbh, _mm512_dpbf16_ps};

use super::avx512::Avx512;
use super::{Kernel, Simd};

/// Proof that this processor has AVX512-BF16 beside all that `Avx512` proves.
#[derive(Clone, Copy)]
pub struct Avx512Bf16(Avx512);

impl Avx512Bf16 {
    /// The proof, where it can be given.
    #[must_use]
    pub fn detect() -> Option<Self> {
        if is_x86_feature_detected!("avx512bf16") { Avx512::detect().map(Self) } else { None }
    }

    /// The smaller proof, for kernels without bfloat16.
    #[must_use]
    pub const fn avx512(self) -> Avx512 {
        self.0
    }
}

/// The same bits as pairs of bfloat16.
#[inline(always)]
fn pairs(v: __m512) -> __m512bh {
    // SAFETY: both are 64 bytes of which every pattern is valid.
    unsafe { std::mem::transmute::<__m512, __m512bh>(v) }
}

/// Methods of [`Simd`] as AVX-512 has them.
macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $Argument:ty),*) $(-> $Result:ty)?;)+) => {
        $(
            #[inline(always)]
            fn $name(self, $($argument: $Argument),*) $(-> $Result)? {
                self.0.$name($($argument),*)
            }
        )+
    };
}

impl Simd for Avx512Bf16 {
    const LANES: usize = 16;
    type V = __m512;

    #[inline]
    fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[inline(never)]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
        fn compiled<K: Kernel>(simd: Avx512Bf16, kernel: K) -> K::Out {
            kernel.run(simd)
        }
        // SAFETY: `self` exists, so `detect` saw every feature.
        unsafe { compiled(self, kernel) }
    }

    forward! {
        fn splat(x: f32) -> __m512;
        fn load(from: &[f32]) -> __m512;
        fn load_partial(from: &[f32]) -> __m512;
        fn store(v: __m512, to: &mut [f32]);
        fn store_partial(v: __m512, to: &mut [f32]);
        fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512;
        fn add(a: __m512, b: __m512) -> __m512;
        fn mul(a: __m512, b: __m512) -> __m512;
        fn div(a: __m512, b: __m512) -> __m512;
        fn sqrt(a: __m512) -> __m512;
        fn gate(a: __m512, gate: __m512) -> __m512;
        fn transpose(from: &[f32], from_row: usize, to: &mut [f32], to_row: usize);
        fn widen(from: &[u16]) -> __m512;
        fn join(high: &[u16], low: &[u16]) -> __m512;
        fn split(v: __m512, high: &mut [u16], low: &mut [u16]);
    }

    #[inline(always)]
    unsafe fn stream_unordered(self, to: &mut [f32], value: impl FnMut(usize) -> __m512) {
        // SAFETY: the caller's promise.
        unsafe { self.0.stream_unordered(to, value) }
    }

    #[inline(always)]
    fn dot_pairs(self, a: __m512, b: __m512, sum: __m512) -> __m512 {
        // SAFETY: `self` proves AVX512-BF16.
        unsafe { _mm512_dpbf16_ps(sum, pairs(a), pairs(b)) }
    }

    #[inline(always)]
    fn narrow(self, v: __m512, to: &mut [u16]) {
        // SAFETY: `self` proves AVX512-BF16.
        let narrowed = unsafe { _mm512_cvtneps_pbh(v) };
        // SAFETY: both are 32 bytes of which every pattern is valid.
        let narrowed = unsafe { std::mem::transmute::<__m256bh, [u16; 16]>(narrowed) };
        to[..16].copy_from_slice(&narrowed);
    }
}
