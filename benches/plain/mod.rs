//! The plain matrix product, against which benchmarks hold the library's kernels.
//!
//! Each element is one chain of fused multiply-adds in ascending d, as theirs are, so that both have the same bits.
//!
//! Method: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008. A panel of R rows of
//! `a` is packed so that each step of d reads R neighbours; a tile of R x V vectors of `out` stays in registers for a
//! whole block of d. R x V = 12 x 2 fills 24 of AVX-512's 32 registers, 6 x 2 fills 12 of AVX2's 16.

use octorec::simd::{Kernel, Simd};

/// Steps of d between two visits of an output tile: a packed panel of 12 rows takes 12 KiB, a quarter of a small L1.
const DEPTH_BLOCK: usize = 256;
const MAX_ROWS: usize = 12;

/// `out[i][j] += sum over d of a[i][d] * b[d][j]`, of row-major matrices.
pub struct Gemm<'a> {
    /// Rows x columns.
    pub out: &'a mut [f32],
    /// Rows x depth.
    pub a: &'a [f32],
    /// Depth x columns.
    pub b: &'a [f32],
    pub rows: usize,
    pub depth: usize,
    pub columns: usize,
}

impl Kernel for Gemm<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Gemm { rows, depth, columns, .. } = self;
        let sizes = [self.out.len(), self.a.len(), self.b.len()];
        assert_eq!(sizes, [rows * columns, rows * depth, depth * columns], "elements of out, a and b");
        let mut packed = [0.0f32; DEPTH_BLOCK * MAX_ROWS];
        for first in (0..depth).step_by(DEPTH_BLOCK) {
            let block = [first, DEPTH_BLOCK.min(depth - first)];
            let mut row = 0;
            while row < rows {
                row += match rows - row {
                    12.. if S::LANES == 16 => panel::<S, 12>(simd, &mut self, row, block, &mut packed),
                    8.. if S::LANES == 16 => panel::<S, 8>(simd, &mut self, row, block, &mut packed),
                    6.. if S::LANES < 16 => panel::<S, 6>(simd, &mut self, row, block, &mut packed),
                    4.. => panel::<S, 4>(simd, &mut self, row, block, &mut packed),
                    2.. => panel::<S, 2>(simd, &mut self, row, block, &mut packed),
                    _ => panel::<S, 1>(simd, &mut self, row, block, &mut packed),
                };
            }
        }
    }
}

/// Adds the terms of a block, so many from its first one, to R rows of the result; returns R.
#[inline(always)]
fn panel<S: Simd, const R: usize>(
    simd: S,
    gemm: &mut Gemm<'_>,
    row: usize,
    [first, depth]: [usize; 2],
    packed: &mut [f32; DEPTH_BLOCK * MAX_ROWS],
) -> usize {
    let panel = &mut packed.as_chunks_mut::<R>().0[..depth];
    for r in 0..R {
        let from = &gemm.a[(row + r) * gemm.depth + first..];
        panel.iter_mut().zip(from).for_each(|(step, &x)| step[r] = x);
    }
    let panel = &*panel;
    for column in (0..gemm.columns).step_by(2 * S::LANES) {
        let left = gemm.columns - column;
        if left >= 2 * S::LANES {
            tile::<S, R, 2, true>(simd, gemm, panel, row, column, first);
        } else if left > S::LANES {
            tile::<S, R, 2, false>(simd, gemm, panel, row, column, first);
        } else if left == S::LANES {
            tile::<S, R, 1, true>(simd, gemm, panel, row, column, first);
        } else {
            tile::<S, R, 1, false>(simd, gemm, panel, row, column, first);
        }
    }
    R
}

/// R rows x V vectors of the result; the last vector is partial unless `FULL`.
#[inline(always)]
fn tile<S: Simd, const R: usize, const V: usize, const FULL: bool>(
    simd: S,
    gemm: &mut Gemm<'_>,
    panel: &[[f32; R]],
    row: usize,
    column: usize,
    first: usize,
) {
    let columns = gemm.columns;
    let width = if FULL { V * S::LANES } else { columns - column };
    let load = |from: &[f32], v: usize| {
        if FULL || v + 1 < V { simd.load(&from[v * S::LANES..]) } else { simd.load_partial(&from[v * S::LANES..width]) }
    };
    let mut sums = [[simd.splat(0.0); V]; R];
    for (r, sums) in sums.iter_mut().enumerate() {
        let out = &gemm.out[(row + r) * columns + column..][..width];
        sums.iter_mut().enumerate().for_each(|(v, sum)| *sum = load(out, v));
    }
    let mut from = first * columns + column;
    for a in panel {
        let b_row = &gemm.b[from..from + width];
        let mut b = [simd.splat(0.0); V];
        for (v, b) in b.iter_mut().enumerate() {
            *b = load(b_row, v);
        }
        for r in 0..R {
            let x = simd.splat(a[r]);
            for v in 0..V {
                sums[r][v] = simd.mul_add(x, b[v], sums[r][v]);
            }
        }
        from += columns;
    }
    for (r, sums) in sums.iter().enumerate() {
        let out = &mut gemm.out[(row + r) * columns + column..][..width];
        for (v, &sum) in sums.iter().enumerate() {
            if FULL || v + 1 < V {
                simd.store(sum, &mut out[v * S::LANES..]);
            } else {
                simd.store_partial(sum, &mut out[v * S::LANES..]);
            }
        }
    }
}
