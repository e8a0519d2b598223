//! Vectors of 8 floats: AVX2 with FMA.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2. Each method is one instruction,
//! with its slice's length checked first.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128, __m256, __m256i, _CMP_NLE_UQ, _mm_loadu_ps, _mm_loadu_si128, _mm_storeu_si128, _mm256_add_ps,
    _mm256_and_ps, _mm256_and_si256, _mm256_castps_si256, _mm256_castps128_ps256, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_cmp_ps, _mm256_cmpgt_epi32, _mm256_cvtepu16_epi32, _mm256_div_ps,
    _mm256_extracti128_si256, _mm256_fmadd_ps, _mm256_insertf128_ps, _mm256_loadu_ps, _mm256_maskload_ps,
    _mm256_maskstore_ps, _mm256_mul_ps, _mm256_or_si256, _mm256_packus_epi32, _mm256_permute4x64_epi64,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_setzero_ps, _mm256_shuffle_ps, _mm256_slli_epi32,
    _mm256_sqrt_ps, _mm256_srli_epi32, _mm256_storeu_ps, _mm256_stream_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
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

/// The first 8 elements, each in a word of its own.
#[inline(always)]
fn words(_proof: Avx2, from: &[u16]) -> __m256i {
    assert!(from.len() >= 8);
    // SAFETY: 16 bytes can be read, checked above; SSE2 is part of x86-64.
    let halves = unsafe { _mm_loadu_si128(from.as_ptr().cast()) };
    // SAFETY: the proof says that AVX2 is here.
    unsafe { _mm256_cvtepu16_epi32(halves) }
}

/// The words of `a` and then of `b`, none of which is above 65,535, as 8 halves and 8 halves.
#[inline(always)]
fn halves(_proof: Avx2, a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the proof says that AVX2 is here.
    let packed = unsafe { _mm256_packus_epi32(a, b) };
    // Lower lanes of both came first. SAFETY: as above.
    unsafe { _mm256_permute4x64_epi64::<0b11_01_10_00>(packed) }
}

/// Writes the lower 8 of 16 halves to the first 8 elements.
#[inline(always)]
fn store_lower(_proof: Avx2, halves: __m256i, to: &mut [u16]) {
    assert!(to.len() >= 8);
    // SAFETY: the proof says that AVX2 is here.
    let lower = unsafe { _mm256_castsi256_si128(halves) };
    // SAFETY: 16 bytes can be written, checked above; SSE2 is part of x86-64.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), lower) }
}

/// The first 4 elements.
#[inline(always)]
fn four(from: &[f32]) -> __m128 {
    assert!(from.len() >= 4);
    // SAFETY: 16 bytes can be read, checked above; SSE is part of x86-64.
    unsafe { _mm_loadu_ps(from.as_ptr()) }
}

/// The first 4 elements of `lower`, then those of `upper`.
#[inline(always)]
fn four_and_four(_proof: Avx2, lower: &[f32], upper: &[f32]) -> __m256 {
    // SAFETY: the proof says that AVX2, and so AVX, is here.
    let whole = unsafe { _mm256_castps128_ps256(four(lower)) };
    // SAFETY: as above.
    unsafe { _mm256_insertf128_ps::<1>(whole, four(upper)) }
}

/// In each half of a vector the lower elements of `a` and `b`, in turn.
#[inline(always)]
fn lower(_proof: Avx2, a: __m256, b: __m256) -> __m256 {
    // SAFETY: the proof says that AVX2, and so AVX, is here.
    unsafe { _mm256_unpacklo_ps(a, b) }
}

/// The same of upper elements.
#[inline(always)]
fn upper(_proof: Avx2, a: __m256, b: __m256) -> __m256 {
    // SAFETY: the proof says that AVX2, and so AVX, is here.
    unsafe { _mm256_unpackhi_ps(a, b) }
}

/// In each half of a vector the lower two elements of `a`, then of `b`.
#[inline(always)]
fn lower_twos(_proof: Avx2, a: __m256, b: __m256) -> __m256 {
    // SAFETY: the proof says that AVX2, and so AVX, is here.
    unsafe { _mm256_shuffle_ps::<0b01_00_01_00>(a, b) }
}

/// The same of the upper two.
#[inline(always)]
fn upper_twos(_proof: Avx2, a: __m256, b: __m256) -> __m256 {
    // SAFETY: the proof says that AVX2, and so AVX, is here.
    unsafe { _mm256_shuffle_ps::<0b11_10_11_10>(a, b) }
}

/// Transposes 4 x 4 elements in each half of four vectors.
#[inline(always)]
fn turned(proof: Avx2, [a, b, c, d]: [__m256; 4]) -> [__m256; 4] {
    let (ab, cd) = (lower(proof, a, b), lower(proof, c, d));
    let (ab_upper, cd_upper) = (upper(proof, a, b), upper(proof, c, d));
    [
        lower_twos(proof, ab, cd),
        upper_twos(proof, ab, cd),
        lower_twos(proof, ab_upper, cd_upper),
        upper_twos(proof, ab_upper, cd_upper),
    ]
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    type V = __m256;

    #[inline]
    fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[inline(never)]
        #[target_feature(enable = "avx2,fma")]
        fn compiled<K: Kernel>(simd: Avx2, kernel: K) -> K::Out {
            kernel.run(simd)
        }
        // SAFETY: `self` exists, so `detect` saw both features.
        unsafe { compiled(self, kernel) }
    }

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

    #[inline(always)]
    fn widen(self, from: &[u16]) -> __m256 {
        // SAFETY: `self` proves AVX2.
        let upper = unsafe { _mm256_slli_epi32::<16>(words(self, from)) };
        // SAFETY: as above.
        unsafe { _mm256_castsi256_ps(upper) }
    }

    #[inline(always)]
    fn join(self, high: &[u16], low: &[u16]) -> __m256 {
        // SAFETY: `self` proves AVX2.
        let upper = unsafe { _mm256_slli_epi32::<16>(words(self, high)) };
        // SAFETY: as above.
        let bits = unsafe { _mm256_or_si256(upper, words(self, low)) };
        // SAFETY: as above.
        unsafe { _mm256_castsi256_ps(bits) }
    }

    #[inline(always)]
    fn split(self, v: __m256, high: &mut [u16], low: &mut [u16]) {
        // SAFETY: `self` proves AVX2.
        let bits = unsafe { _mm256_castps_si256(v) };
        // SAFETY: as above.
        let upper = unsafe { _mm256_srli_epi32::<16>(bits) };
        // SAFETY: as above.
        let mask = unsafe { _mm256_set1_epi32(0xffff) };
        // SAFETY: as above.
        let lower = unsafe { _mm256_and_si256(bits, mask) };
        let both = halves(self, upper, lower);
        store_lower(self, both, high);
        assert!(low.len() >= 8);
        // SAFETY: as above.
        let lower = unsafe { _mm256_extracti128_si256::<1>(both) };
        // SAFETY: 16 bytes can be written, checked above; SSE2 is part of x86-64.
        unsafe { _mm_storeu_si128(low.as_mut_ptr().cast(), lower) }
    }

    #[inline(always)]
    fn transpose(self, from: &[f32], from_row: usize, to: &mut [f32], to_row: usize) {
        // 8 x 4 elements at a time: rows i and i + 4 share a vector.
        for i in (0..16).step_by(8) {
            for j in (0..16).step_by(4) {
                let mut rows = [self.splat(0.0); 4];
                for (r, row) in rows.iter_mut().enumerate() {
                    let at = (i + r) * from_row + j;
                    *row = four_and_four(self, &from[at..], &from[at + 4 * from_row..]);
                }
                for (c, column) in turned(self, rows).into_iter().enumerate() {
                    self.store(column, &mut to[(j + c) * to_row + i..]);
                }
            }
        }
    }
}
