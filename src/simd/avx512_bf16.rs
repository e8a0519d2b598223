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

    /// Runs a kernel compiled for this instruction set.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
        fn compiled<K: Kernel>(simd: Avx512Bf16, kernel: K) -> K::Out {
            kernel.run(simd)
        }
        // SAFETY: `self` exists, so `detect` saw every feature.
        unsafe { compiled(self, kernel) }
    }
}

/// The same bits as pairs of bfloat16.
#[inline(always)]
fn pairs(v: __m512) -> __m512bh {
    // SAFETY: both are 64 bytes of which every pattern is valid.
    unsafe { std::mem::transmute::<__m512, __m512bh>(v) }
}

impl Simd for Avx512Bf16 {
    const LANES: usize = 16;
    type V = __m512;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        self.0.splat(x)
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> __m512 {
        self.0.load(from)
    }

    #[inline(always)]
    fn load_partial(self, from: &[f32]) -> __m512 {
        self.0.load_partial(from)
    }

    #[inline(always)]
    fn store(self, v: __m512, to: &mut [f32]) {
        self.0.store(v, to);
    }

    #[inline(always)]
    fn store_partial(self, v: __m512, to: &mut [f32]) {
        self.0.store_partial(v, to);
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        self.0.mul_add(a, b, c)
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        self.0.add(a, b)
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        self.0.mul(a, b)
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        self.0.div(a, b)
    }

    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        self.0.sqrt(a)
    }

    #[inline(always)]
    fn relu(self, a: __m512) -> __m512 {
        self.0.relu(a)
    }

    #[inline(always)]
    fn gate(self, a: __m512, gate: __m512) -> __m512 {
        self.0.gate(a, gate)
    }

    #[inline(always)]
    unsafe fn stream_unordered(self, to: &mut [f32], value: impl FnMut(usize) -> __m512) {
        // SAFETY: the caller's promise.
        unsafe { self.0.stream_unordered(to, value) }
    }

    #[inline(always)]
    fn prefetch(self, at: &[f32]) {
        self.0.prefetch(at);
    }

    #[inline(always)]
    fn prefetch_ahead<T>(self, at: &[T], elements: usize) {
        self.0.prefetch_ahead(at, elements);
    }

    #[inline(always)]
    fn prefetch_write<T>(self, at: &[T], elements: usize) {
        self.0.prefetch_write(at, elements);
    }

    #[inline(always)]
    fn transpose(self, from: &[f32], from_row: usize, to: &mut [f32], to_row: usize) {
        self.0.transpose(from, from_row, to, to_row);
    }

    #[inline(always)]
    fn dot_pairs(self, a: __m512, b: __m512, sum: __m512) -> __m512 {
        // SAFETY: `self` proves AVX512-BF16.
        unsafe { _mm512_dpbf16_ps(sum, pairs(a), pairs(b)) }
    }

    #[inline(always)]
    fn widen(self, from: &[u16]) -> __m512 {
        self.0.widen(from)
    }

    #[inline(always)]
    fn join(self, high: &[u16], low: &[u16]) -> __m512 {
        self.0.join(high, low)
    }

    #[inline(always)]
    fn split(self, v: __m512, high: &mut [u16], low: &mut [u16]) {
        self.0.split(v, high, low);
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
