//! A symmetric matrix, kept as its packed lower triangle, times a matrix: the backward pass of all pairs of vectors.
//!
//! `out[i] = start[i] + sum over j of S[i][j] * vectors[j]`, each element one chain of fused multiply-adds in ascending
//! j. A tile of R rows x V vectors stays in registers over all j. Its R coefficients of a step lie side by side in row
//! j of the triangle when j is below the tile's rows, and in a column when j is above them; of the square between, half
//! is there. So the columns' rows are first brought to a constant distance, where each coefficient is a broadcast from
//! a constant offset, and only the square is mirrored: S itself is never built.

use super::pairs::pairs_before;
use crate::simd::Simd;

/// Columns of the triangle that are brought to a constant distance at a time.
const CHUNK: usize = 32;

/// Elements that are copied at once: a vector of the widest instruction set.
const PIECE: usize = 16;

/// Elements behind the end of the triangle that [`Mirrored`] may read, of any value but in readable memory.
pub const SLACK: usize = CHUNK;

/// Rows and vectors of the tallest tile: 9 x 2 of 32 registers, 6 x 2 of 16, with room for operands.
const TALL: usize = 9;

/// What becomes of the result. A closure would not do: it is compiled without the kernel's instruction set where the
/// compiler does not inline it.
pub trait Take {
    /// Takes a vector of the result: row i, elements k.. of it, padding included.
    fn take<S: Simd>(&mut self, simd: S, i: usize, k: usize, v: S::V);
}

/// The product for one sample.
#[derive(Debug, Clone, Copy)]
pub struct Mirrored<'a> {
    /// The lower triangle row by row, with [`SLACK`] behind it: `S[i][j]` for j < i, or j <= i with `itself`; an entry
    /// on the diagonal counts twice, because it stands for both of its mirror images.
    pub triangle: &'a [f32],
    /// Whether the diagonal is there; else it is 0.
    pub itself: bool,
    /// The right operand, `count` rows of `row` elements, a multiple of 16.
    pub vectors: &'a [f32],
    /// Rows of S and of `vectors`.
    pub count: usize,
    /// Distance between `vectors`.
    pub row: usize,
    /// What row 0 starts at, `row` elements; the other rows start at 0.
    pub first: &'a [f32],
}

impl Mirrored<'_> {
    /// Gives each vector of the result to `to`.
    ///
    /// # Panics
    /// When an operand is too small.
    #[inline(always)]
    pub fn each<S: Simd>(self, simd: S, to: &mut impl Take) {
        assert!(self.row.is_multiple_of(PIECE) && self.vectors.len() >= self.count * self.row, "padded vectors");
        assert!(self.triangle.len() >= pairs_before(self.count, self.itself) + SLACK, "a triangle and its slack");
        let mut i = 0;
        while i < self.count {
            i += match self.count - i {
                TALL.. if S::LANES == 16 => self.band::<S, TALL>(simd, i, to),
                6.. if S::IN_REGISTERS => self.band::<S, 6>(simd, i, to),
                3.. if S::IN_REGISTERS => self.band::<S, 3>(simd, i, to),
                2 if S::IN_REGISTERS => self.band::<S, 2>(simd, i, to),
                _ => self.band::<S, 1>(simd, i, to),
            };
        }
    }

    /// The rows `i..i + R`; returns R.
    #[inline(always)]
    fn band<S: Simd, const R: usize>(&self, simd: S, i: usize, to: &mut impl Take) -> usize {
        let square = self.square::<R>(i);
        let mut k = 0;
        while k < self.row {
            if self.row - k >= 2 * S::LANES {
                self.tile::<S, R, 2>(simd, i, k, &square, to);
                k += 2 * S::LANES;
            } else {
                self.tile::<S, R, 1>(simd, i, k, &square, to);
                k += S::LANES;
            }
        }
        R
    }

    /// `S[i + a][i + b]` for a and b below R.
    #[inline(always)]
    fn square<const R: usize>(&self, i: usize) -> [[f32; R]; R] {
        let mut square = [[0.0; R]; R];
        for a in 0..R {
            let row = &self.triangle[pairs_before(i + a, self.itself) + i..][..R];
            for b in 0..a {
                square[a][b] = row[b];
                square[b][a] = row[b];
            }
            if self.itself {
                square[a][a] = 2.0 * row[a];
            }
        }
        square
    }

    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(
        &self,
        simd: S,
        i: usize,
        k: usize,
        square: &[[f32; R]; R],
        to: &mut impl Take,
    ) {
        let mut sums = [[simd.splat(0.0); V]; R];
        if i == 0 {
            for (v, sum) in sums[0].iter_mut().enumerate() {
                *sum = simd.load(&self.first[k + v * S::LANES..]);
            }
        }
        let row = |j: usize| &self.vectors[j * self.row + k..][..V * S::LANES];
        let mut near = [[0.0; CHUNK]; R];
        for first in (0..i).step_by(CHUNK) {
            let count = CHUNK.min(i - first);
            for (r, near) in near.iter_mut().enumerate() {
                let from = &self.triangle[pairs_before(i + r, self.itself) + first..][..CHUNK];
                for (to, from) in near.as_chunks_mut::<PIECE>().0.iter_mut().zip(from.as_chunks::<PIECE>().0) {
                    *to = *from;
                }
            }
            for j in first..first + count {
                step(simd, &mut sums, row(j), |r| near[r][j % CHUNK]);
            }
        }
        for (j, column) in square.iter().enumerate() {
            step(simd, &mut sums, row(i + j), |r| column[r]);
        }
        for j in i + R..self.count {
            let near = &self.triangle[pairs_before(j, self.itself) + i..][..R];
            step(simd, &mut sums, row(j), |r| near[r]);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                to.take(simd, i + r, k + v * S::LANES, sum);
            }
        }
    }
}

/// Adds one row of the right operand, times R coefficients, to a tile.
#[inline(always)]
fn step<S: Simd, const R: usize, const V: usize>(
    simd: S,
    sums: &mut [[S::V; V]; R],
    row: &[f32],
    coefficient: impl Fn(usize) -> f32,
) {
    let mut b = [simd.splat(0.0); V];
    for (v, b) in b.iter_mut().enumerate() {
        *b = simd.load(&row[v * S::LANES..]);
    }
    for (r, sums) in sums.iter_mut().enumerate() {
        let a = simd.splat(coefficient(r));
        for v in 0..V {
            sums[v] = simd.mul_add(a, b[v], sums[v]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;
    use crate::simd::{Isa, Kernel};

    struct Run<'a>(Mirrored<'a>, &'a mut [f32]);

    struct Rows<'a>(&'a mut [f32], usize);

    impl Take for Rows<'_> {
        #[inline(always)]
        fn take<S: Simd>(&mut self, simd: S, i: usize, k: usize, v: S::V) {
            simd.store(v, &mut self.0[i * self.1 + k..]);
        }
    }

    impl Kernel for Run<'_> {
        type Out = ();

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            let row = self.0.row;
            self.0.each(simd, &mut Rows(self.1, row));
        }
    }

    #[test]
    fn every_twin_gives_the_chains_of_the_definition() {
        for count in (1..24).chain([27, 75]) {
            for (row, itself) in [(16, false), (48, true), (64, false)] {
                let triangle = random(pairs_before(count, itself) + SLACK, 1);
                let (vectors, first) = (random(count * row, 2), random(row, 3));
                let coefficient = |i: usize, j: usize| match (i.max(j), i.min(j)) {
                    (i, j) if i != j => triangle[pairs_before(i, itself) + j],
                    (i, _) if itself => 2.0 * triangle[pairs_before(i, itself) + i],
                    _ => 0.0,
                };
                let mut expected = vec![0.0; count * row];
                expected[..row].copy_from_slice(&first);
                for (at, sum) in expected.iter_mut().enumerate() {
                    let (i, k) = (at / row, at % row);
                    (0..count).for_each(|j| *sum = coefficient(i, j).mul_add(vectors[j * row + k], *sum));
                }
                for isa in Isa::all() {
                    let mut found = vec![7.0; count * row];
                    let product =
                        Mirrored { triangle: &triangle, itself, vectors: &vectors, count, row, first: &first };
                    isa.run(Run(product, &mut found));
                    assert_eq!(found, expected, "{isa:?}, {count} rows of {row}");
                }
            }
        }
    }
}
