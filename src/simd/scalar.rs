//! Portable vectors: plain arrays. The definition that the other instruction sets are held to.

use super::{Kernel, Simd};

const WIDTH: usize = 8;

/// Portable code.
#[derive(Clone, Copy)]
pub struct Scalar;

#[inline(always)]
fn zip(a: [f32; WIDTH], b: [f32; WIDTH], f: impl Fn(f32, f32) -> f32) -> [f32; WIDTH] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Scalar {
    const LANES: usize = WIDTH;
    const IN_REGISTERS: bool = false;
    type V = [f32; WIDTH];

    /// Inlined, it would be compiled once more wherever it is run from.
    #[inline(never)]
    fn run<K: Kernel>(self, kernel: K) -> K::Out {
        kernel.run(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; WIDTH]
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::V {
        std::array::from_fn(|i| from[i])
    }

    #[inline(always)]
    fn load_partial(self, from: &[f32]) -> Self::V {
        assert!(from.len() < WIDTH);
        std::array::from_fn(|i| from.get(i).copied().unwrap_or(0.0))
    }

    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32]) {
        to[..WIDTH].copy_from_slice(&v);
    }

    #[inline(always)]
    fn store_partial(self, v: Self::V, to: &mut [f32]) {
        to.copy_from_slice(&v[..to.len()]);
    }

    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |x, y| x + y)
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |x, y| x * y)
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |x, y| x / y)
    }

    #[inline(always)]
    fn sqrt(self, a: Self::V) -> Self::V {
        a.map(f32::sqrt)
    }

    #[inline(always)]
    fn gate(self, a: Self::V, gate: Self::V) -> Self::V {
        zip(a, gate, |x, g| if g <= 0.0 { 0.0 } else { x })
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn stream_unordered(self, to: &mut [f32], mut value: impl FnMut(usize) -> Self::V) {
        super::check_streamable(to, WIDTH);
        for (index, to) in to.chunks_exact_mut(WIDTH).enumerate() {
            to.copy_from_slice(&value(index));
        }
    }

    #[inline(always)]
    fn prefetch(self, _at: &[f32]) {}

    #[inline(always)]
    fn prefetch_ahead<T>(self, _at: &[T], _elements: usize) {}

    #[inline(always)]
    fn prefetch_write<T>(self, _at: &[T], _elements: usize) {}
}
