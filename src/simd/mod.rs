//! Vector instructions behind one interface: an algorithm is written once, generic over [`Simd`], and compiled once for
//! each instruction set; [`Isa::run`] picks the compiled twin at run time.
//!
//! One of the four rooms in which `unsafe` may stand. A value of an instruction set's type is proof that this processor
//! has it: it can only be had from detection.
//!
//! All twins give the same bits. Every multiply-add is fused and rounded once, and every sum runs in an order that the
//! algorithm fixes, never the vector width.

mod avx2;
mod avx512;
mod avx512bf16;
mod combine;
mod isa;
mod scalar;

pub use avx512bf16::{Avx512Bf16, Bf16Kernel};
pub use combine::combine;
pub use isa::{Isa, Kernel};

/// Puts streaming stores in order with all later memory accesses when it goes out of scope, even by a panic.
struct Ordered;

impl Drop for Ordered {
    fn drop(&mut self) {
        // SAFETY: SSE is part of x86-64, and a fence has no other precondition.
        #[allow(unsafe_code)]
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
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

    /// A vector.
    type V: Copy;

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

    /// 0 where `a` is 0 or less, otherwise `a`: ReLU, which lets NaN through so that a diverged run is seen.
    fn relu(self, a: Self::V) -> Self::V;

    /// 0 where `gate` is 0 or less, otherwise `a`: ReLU's gradient.
    fn gate(self, a: Self::V, gate: Self::V) -> Self::V;

    /// Writes `value(i)` to the i-th vector of `to`, for all of it, past the caches where the instruction set can: the
    /// lines of `to` are neither read first nor kept. For results that nobody reads soon; on return they are in order
    /// with all other memory accesses.
    ///
    /// `to` starts at a multiple of a vector's size and holds whole vectors.
    fn stream(self, to: &mut [f32], value: impl FnMut(usize) -> Self::V);

    /// Asks for the cache line of `at` to be brought close; a hint without effect on values.
    fn prefetch(self, at: &[f32]);
}
