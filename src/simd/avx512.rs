//! Vectors of 16 floats: AVX-512 F, BW, DQ and VL, with FMA.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2. Each method is one instruction,
//! with its slice's length checked first.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m256i, __m512, __m512i, _CMP_NLE_UQ, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_add_ps, _mm512_castps_si512,
    _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_cvtepi32_epi16, _mm512_cvtepu16_epi32, _mm512_div_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_maskz_mov_ps, _mm512_mul_ps,
    _mm512_or_si512, _mm512_permutex2var_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_sqrt_ps,
    _mm512_srli_epi32, _mm512_storeu_ps, _mm512_stream_ps,
};

use super::{Kernel, Simd};

/// Proof that this processor has AVX-512 F, BW, DQ and VL, and FMA.
#[derive(Clone, Copy)]
pub struct Avx512(());

impl Avx512 {
    /// The proof, where it can be given.
    #[must_use]
    pub fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("fma");
        has.then_some(Self(()))
    }
}

/// The lowest `count` lanes.
#[inline(always)]
fn first(count: usize) -> u16 {
    assert!(count < 16);
    (1u16 << count) - 1
}

/// Picks for the lower halves of two vectors, element by element in turn.
const LOWER: [i32; 16] = [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23];
/// Picks for the upper halves.
const UPPER: [i32; 16] = [8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31];

/// Elements of `a` (picks below 16) and `b`.
#[inline(always)]
fn pick(_proof: Avx512, a: __m512, b: __m512, picks: [i32; 16]) -> __m512 {
    // SAFETY: both are 64 bytes of which every pattern is valid.
    let picks = unsafe { std::mem::transmute::<[i32; 16], __m512i>(picks) };
    // SAFETY: the proof says that AVX-512 F is here.
    unsafe { _mm512_permutex2var_ps(a, picks, b) }
}

/// The first 16 elements, each in a word of its own.
#[inline(always)]
fn words(_proof: Avx512, from: &[u16]) -> __m512i {
    assert!(from.len() >= 16);
    // SAFETY: 32 bytes can be read, checked above; the proof says that AVX2 is here.
    let halves = unsafe { _mm256_loadu_si256(from.as_ptr().cast::<__m256i>()) };
    // SAFETY: the proof says that AVX-512 F is here.
    unsafe { _mm512_cvtepu16_epi32(halves) }
}

/// Writes the lower half of each word to the first 16 elements.
#[inline(always)]
fn store_words(_proof: Avx512, v: __m512i, to: &mut [u16]) {
    assert!(to.len() >= 16);
    // SAFETY: the proof says that AVX-512 F is here.
    let halves = unsafe { _mm512_cvtepi32_epi16(v) };
    // SAFETY: 32 bytes can be written, checked above; the proof says that AVX2 is here.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast::<__m256i>(), halves) }
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    type V = __m512;

    #[inline]
    fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[inline(never)]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn compiled<K: Kernel>(simd: Avx512, kernel: K) -> K::Out {
            kernel.run(simd)
        }
        // SAFETY: `self` exists, so `detect` saw every feature (AVX-512 F implies AVX2).
        unsafe { compiled(self, kernel) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: AVX-512 F is here: `self` proves it.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> __m512 {
        assert!(from.len() >= 16);
        // SAFETY: 16 floats can be read, checked above; `self` proves AVX-512 F.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn load_partial(self, from: &[f32]) -> __m512 {
        // SAFETY: masked lanes are not read, the others lie in `from`; `self` proves AVX-512 F.
        unsafe { _mm512_maskz_loadu_ps(first(from.len()), from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m512, to: &mut [f32]) {
        assert!(to.len() >= 16);
        // SAFETY: 16 floats can be written, checked above; `self` proves AVX-512 F.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn store_partial(self, v: __m512, to: &mut [f32]) {
        // SAFETY: masked lanes are not written, the others lie in `to`; `self` proves AVX-512 F.
        unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), first(to.len()), v) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512 F.
        unsafe { _mm512_sqrt_ps(a) }
    }

    #[inline(always)]
    fn gate(self, a: __m512, gate: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512 F.
        let zero = unsafe { _mm512_setzero_ps() };
        // SAFETY: as above.
        let open = unsafe { _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(gate, zero) };
        // SAFETY: as above.
        unsafe { _mm512_maskz_mov_ps(open, a) }
    }

    #[inline(always)]
    unsafe fn stream_unordered(self, to: &mut [f32], mut value: impl FnMut(usize) -> Self::V) {
        super::check_streamable(to, 16);
        for (index, to) in to.chunks_exact_mut(16).enumerate() {
            // SAFETY: `to` is a whole vector and aligned to it, because the slice is (checked above); `self` proves the
            // instruction; nothing reads `to` before a fence, which the caller promises.
            unsafe { _mm512_stream_ps(to.as_mut_ptr(), value(index)) }
        }
    }

    #[inline(always)]
    fn widen(self, from: &[u16]) -> __m512 {
        // SAFETY: `self` proves AVX-512 F.
        let upper = unsafe { _mm512_slli_epi32::<16>(words(self, from)) };
        // SAFETY: as above.
        unsafe { _mm512_castsi512_ps(upper) }
    }

    #[inline(always)]
    fn join(self, high: &[u16], low: &[u16]) -> __m512 {
        // SAFETY: `self` proves AVX-512 F.
        let upper = unsafe { _mm512_slli_epi32::<16>(words(self, high)) };
        // SAFETY: as above.
        let bits = unsafe { _mm512_or_si512(upper, words(self, low)) };
        // SAFETY: as above.
        unsafe { _mm512_castsi512_ps(bits) }
    }

    #[inline(always)]
    fn split(self, v: __m512, high: &mut [u16], low: &mut [u16]) {
        // SAFETY: `self` proves AVX-512 F.
        let bits = unsafe { _mm512_castps_si512(v) };
        // SAFETY: as above.
        store_words(self, unsafe { _mm512_srli_epi32::<16>(bits) }, high);
        store_words(self, bits, low);
    }

    #[inline(always)]
    fn transpose(self, from: &[f32], from_row: usize, to: &mut [f32], to_row: usize) {
        // Rows i and i + 8 interleave until each vector holds a column: four rounds of 16 two-source shuffles.
        let mut rows = [self.splat(0.0); 16];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = self.load(&from[i * from_row..]);
        }
        for _ in 0..4 {
            let before = rows;
            for i in 0..8 {
                rows[2 * i] = pick(self, before[i], before[i + 8], LOWER);
                rows[2 * i + 1] = pick(self, before[i], before[i + 8], UPPER);
            }
        }
        for (j, &row) in rows.iter().enumerate() {
            self.store(row, &mut to[j * to_row..]);
        }
    }
}
