//! Vectors of 8 floats: AVX2 with FMA.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2. Each method is one instruction,
//! with its slice's length checked first.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m256, __m256i, _CMP_NLE_UQ, _mm256_add_ps, _mm256_and_ps, _mm256_cmp_ps, _mm256_cmpgt_epi32, _mm256_div_ps,
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_maskload_ps, _mm256_maskstore_ps, _mm256_mul_ps, _mm256_set1_epi32,
    _mm256_set1_ps, _mm256_setr_epi32, _mm256_setzero_ps, _mm256_sqrt_ps, _mm256_storeu_ps, _mm256_stream_ps,
};

use super::{Kernel, Simd};

/// Proof that this processor has AVX2 and FMA.
#[derive(Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// The proof, where it can be given.
    #[must_use]
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        has.then_some(Self(()))
    }

    /// Runs a kernel compiled for this instruction set.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[target_feature(enable = "avx2,fma")]
        fn compiled<K: Kernel>(simd: Avx2, kernel: K) -> K::Out {
            kernel.run(simd)
        }
        // SAFETY: `self` exists, so `detect` saw both features.
        unsafe { compiled(self, kernel) }
    }
}

/// A mask that selects the lowest `count` lanes.
#[inline(always)]
fn first(_proof: Avx2, count: usize) -> __m256i {
    assert!(count < 8);
    // SAFETY: the proof says that AVX2 is here.
    let wanted = unsafe { _mm256_set1_epi32(count as i32) };
    // SAFETY: as above.
    let lanes = unsafe { _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7) };
    // SAFETY: as above.
    unsafe { _mm256_cmpgt_epi32(wanted, lanes) }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    type V = __m256;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: AVX2 is here: `self` proves it.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> __m256 {
        assert!(from.len() >= 8);
        // SAFETY: 8 floats can be read, checked above; `self` proves AVX2.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn load_partial(self, from: &[f32]) -> __m256 {
        // SAFETY: masked lanes are not read, the others lie in `from`; `self` proves AVX2.
        unsafe { _mm256_maskload_ps(from.as_ptr(), first(self, from.len())) }
    }

    #[inline(always)]
    fn store(self, v: __m256, to: &mut [f32]) {
        assert!(to.len() >= 8);
        // SAFETY: 8 floats can be written, checked above; `self` proves AVX2.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn store_partial(self, v: __m256, to: &mut [f32]) {
        // SAFETY: masked lanes are not written, the others lie in `to`; `self` proves AVX2.
        unsafe { _mm256_maskstore_ps(to.as_mut_ptr(), first(self, to.len()), v) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    fn sqrt(self, a: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_sqrt_ps(a) }
    }

    #[inline(always)]
    fn gate(self, a: __m256, gate: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        let zero = unsafe { _mm256_setzero_ps() };
        // SAFETY: as above.
        let open = unsafe { _mm256_cmp_ps::<_CMP_NLE_UQ>(gate, zero) };
        // SAFETY: as above.
        unsafe { _mm256_and_ps(open, a) }
    }

    #[inline(always)]
    unsafe fn stream_unordered(self, to: &mut [f32], mut value: impl FnMut(usize) -> Self::V) {
        super::check_streamable(to, 8);
        for (index, to) in to.chunks_exact_mut(8).enumerate() {
            // SAFETY: `to` is a whole vector and aligned to it, because the slice is (checked above); `self` proves the
            // instruction; nothing reads `to` before a fence, which the caller promises.
            unsafe { _mm256_stream_ps(to.as_mut_ptr(), value(index)) }
        }
    }
}
