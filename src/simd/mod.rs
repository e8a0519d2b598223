//! Vector instructions behind one interface: an algorithm is written once, generic over [`Simd`], and compiled once for
//! each instruction set; [`Isa::run`] picks the compiled twin at run time.
//!
//! One of the four rooms in which `unsafe` may stand. A value of an instruction set's type is proof that this processor
//! has it: it can only be had from detection.
//!
//! All twins give the same bits. Every multiply-add is fused and rounded once, and every sum runs in an order that the
//! algorithm fixes, never the vector width. Tiles of bfloat16 ([`amx`]) are no twin: they have a definition of their
//! own.

pub mod amx;
mod avx2;
mod avx512;
mod avx512_bf16;
pub mod bf16;
mod combine;
mod isa;
mod scalar;
pub mod split;

pub use avx512_bf16::Avx512Bf16;
pub use combine::{combine, combine_halves};
pub use isa::{Isa, Kernel};

/// Puts streaming stores in order with all later memory accesses when it goes out of scope, even by a panic.
pub(crate) struct Ordered;

impl Drop for Ordered {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: SSE is part of x86-64, and a fence has no other precondition.
        #[allow(unsafe_code)]
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Asks for the cache line at an address, where there is memory or not, to be brought close; a hint without effect on
/// values.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch never faults, whatever the address, and SSE is part of x86-64.
    #[allow(unsafe_code)]
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
}

/// The same of a line that will be written, so that no other core need be asked for it then.
#[inline(always)]
fn prefetch_to_write<T>(at: *const T) {
    // SAFETY: a prefetch never faults, whatever the address, and changes nothing; where this one is unknown it does
    // nothing.
    #[allow(unsafe_code)]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
    }
}

/// Checks what [`Simd::stream`] demands of its slice.
#[inline(always)]
fn check_streamable(to: &[f32], lanes: usize) {
    assert!(to.as_ptr().addr().is_multiple_of(lanes * size_of::<f32>()), "streaming stores need an aligned slice");
    assert!(to.len().is_multiple_of(lanes), "streaming stores need whole vectors");
}

/// The vector operations of one instruction set, on 32-bit floats.
///
/// Slices must hold at least [`Simd::LANES`] elements, or as many as `partial` operations say; all operations panic
/// otherwise.
pub trait Simd: Copy + Send + Sync {
    /// Elements of a vector; at most 16.
    const LANES: usize;

    /// Whether a register holds a vector. Portable code's are arrays: to work on several at a time makes a kernel
    /// longer, not faster. A constant, so that the compiler makes none of the variants that only registers profit from.
    const IN_REGISTERS: bool = true;

    /// A vector.
    type V: Copy;

    /// Runs a kernel compiled for this instruction set, as a function of its own.
    fn run<K: Kernel>(self, kernel: K) -> K::Out;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::V;

    /// The first elements of `from`.
    fn load(self, from: &[f32]) -> Self::V;

    /// All of `from`, which is shorter than a vector; the other lanes are 0.
    fn load_partial(self, from: &[f32]) -> Self::V;

    /// Writes the lanes to the first elements of `to`.
    fn store(self, v: Self::V, to: &mut [f32]);

    /// Writes the first lanes to all of `to`, which is shorter than a vector.
    fn store_partial(self, v: Self::V, to: &mut [f32]);

    /// a * b + c, rounded once.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// a + b.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;

    /// a * b.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;

    /// a / b.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;

    /// The square root of a.
    fn sqrt(self, a: Self::V) -> Self::V;

    /// 0 where `a` is 0 or less, otherwise `a`: ReLU, which lets NaN through so that a diverged run is seen.
    #[inline(always)]
    fn relu(self, a: Self::V) -> Self::V {
        self.gate(a, a)
    }

    /// 0 where `gate` is 0 or less, otherwise `a`: ReLU's gradient.
    fn gate(self, a: Self::V, gate: Self::V) -> Self::V;

    /// Writes `value(i)` to the i-th vector of `to`, for all of it, past the caches where the instruction set can: the
    /// lines of `to` are neither read first nor kept. For results that nobody reads soon; on return they are in order
    /// with all other memory accesses.
    ///
    /// `to` starts at a multiple of a vector's size and holds whole vectors.
    #[inline(always)]
    fn stream(self, to: &mut [f32], value: impl FnMut(usize) -> Self::V) {
        let _fence = Ordered;
        // SAFETY: the fence is dropped while `to` is still borrowed.
        #[allow(unsafe_code)]
        unsafe {
            self.stream_unordered(to, value);
        }
    }

    /// As [`Simd::stream`], for many slices behind which one fence does for all.
    ///
    /// # Safety
    /// Who reads `to` next does so behind a fence of this thread (`Ordered`).
    #[allow(unsafe_code)]
    unsafe fn stream_unordered(self, to: &mut [f32], value: impl FnMut(usize) -> Self::V);

    /// Asks for the cache line of `at` to be brought close; a hint without effect on values, which portable code
    /// does not give.
    #[inline(always)]
    fn prefetch(self, at: &[f32]) {
        prefetch(at.as_ptr());
    }

    /// Asks for the cache line that lies `elements` after the start of `at`, inside the slice or not.
    #[inline(always)]
    fn prefetch_ahead<T>(self, at: &[T], elements: usize) {
        prefetch(at.as_ptr().wrapping_add(elements));
    }

    /// The same of a line that will be written, so that no other core need be asked for it then.
    #[inline(always)]
    fn prefetch_write<T>(self, at: &[T], elements: usize) {
        prefetch_to_write(at.as_ptr().wrapping_add(elements));
    }

    /// Transposes 16 x 16 elements, whatever their bits mean: `to[j * to_row + i] = from[i * from_row + j]`.
    #[inline(always)]
    fn transpose(self, from: &[f32], from_row: usize, to: &mut [f32], to_row: usize) {
        for i in 0..16 {
            for (j, &x) in from[i * from_row..][..16].iter().enumerate() {
                to[j * to_row + i] = x;
            }
        }
    }

    /// In each lane `sum` plus the products of two pairs of bfloat16, as [`bf16::dot_pair`] defines it.
    #[inline(always)]
    fn dot_pairs(self, a: Self::V, b: Self::V, sum: Self::V) -> Self::V {
        let [a, b, mut sum] = [a, b, sum].map(|v| {
            let mut lanes = [0.0; 16];
            self.store(v, &mut lanes);
            lanes
        });
        for i in 0..Self::LANES {
            sum[i] = bf16::dot_pair(a[i], b[i], sum[i]);
        }
        self.load(&sum)
    }

    /// Writes the lanes, as bfloat16, to the first elements of `to`; see [`bf16::narrow`].
    #[inline(always)]
    fn narrow(self, v: Self::V, to: &mut [u16]) {
        let mut lanes = [0.0; 16];
        self.store(v, &mut lanes);
        let lanes = &lanes[..Self::LANES];
        to[..Self::LANES].iter_mut().zip(lanes).for_each(|(to, &x)| *to = bf16::narrow(x));
    }

    /// The first elements of `from`, which are bfloat16.
    #[inline(always)]
    fn widen(self, from: &[u16]) -> Self::V {
        let mut lanes = [0.0; 16];
        let from = &from[..Self::LANES];
        lanes.iter_mut().zip(from).for_each(|(lane, &x)| *lane = bf16::widen(x));
        self.load(&lanes)
    }

    /// The numbers whose halves are the first elements of `high` and `low`; see [`split::join`].
    #[inline(always)]
    fn join(self, high: &[u16], low: &[u16]) -> Self::V {
        let mut lanes = [0.0; 16];
        let halves = high[..Self::LANES].iter().zip(&low[..Self::LANES]);
        lanes.iter_mut().zip(halves).for_each(|(lane, (&high, &low))| *lane = split::join(high, low));
        self.load(&lanes)
    }

    /// Writes the halves of the lanes to the first elements of `high` and `low`; see [`split::split`].
    #[inline(always)]
    fn split(self, v: Self::V, high: &mut [u16], low: &mut [u16]) {
        let mut lanes = [0.0; 16];
        self.store(v, &mut lanes);
        let halves = high[..Self::LANES].iter_mut().zip(&mut low[..Self::LANES]);
        halves.zip(&lanes).for_each(|((high, low), &x)| (*high, *low) = split::split(x));
    }

    /// Each lane rounded as [`split::shorten`] does.
    #[inline(always)]
    fn shorten(self, v: Self::V) -> Self::V {
        let mut lanes = [0.0; 16];
        self.store(v, &mut lanes);
        for lane in &mut lanes[..Self::LANES] {
            *lane = split::shorten(*lane);
        }
        self.load(&lanes)
    }
}
