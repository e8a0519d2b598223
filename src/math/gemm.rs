//! The plain matrix product, by which tests and benchmarks judge the passes of `brgemm`; training does not use it.
//!
//! `out[i][j] = act(start[i][j] + sum over d of a[i][d] * b[d][j])`: each element is one chain of fused multiply-adds
//! in ascending d, so its bits depend neither on the vector width nor on how rows are dealt to threads.
//!
//! Method: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008. A panel of R rows of
//! `a` is packed so that each step of d reads R neighbours; a tile of R x V vectors of `out` stays in registers for a
//! whole block of d. R x V = 12 x 2 fills 24 of AVX-512's 32 registers, 6 x 2 fills 12 of AVX2's 16.

use crate::simd::{Kernel, Simd};

/// Steps of d between two visits of an output tile: a packed panel of 12 rows takes 12 KiB, a quarter of a small L1.
const DEPTH_BLOCK: usize = 256;
const MAX_ROWS: usize = 12;

/// A matrix read as `a[i][d] = data[i * row + d * depth]`: either stride may be 1, so it can stand for its transpose.
#[derive(Debug, Clone, Copy)]
pub struct Strided<'a> {
    /// The elements.
    pub data: &'a [f32],
    /// Distance between rows.
    pub row: usize,
    /// Distance between columns.
    pub depth: usize,
}

/// What a sum starts from.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a> {
    /// From 0.
    Zero,
    /// From the column's bias; one element a column.
    Bias(&'a [f32]),
    /// From what `out` holds.
    Out,
}

/// One product with its operands; see the module for the formula.
#[derive(Debug)]
pub struct Gemm<'a> {
    /// The result: element (i, j) at `i * out_row + j`.
    pub out: &'a mut [f32],
    /// Distance between rows of `out`.
    pub out_row: usize,
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub columns: usize,
    /// The left operand, rows x depth.
    pub a: Strided<'a>,
    /// The right operand, depth x columns: element (d, j) at `d * b_row + j`.
    pub b: &'a [f32],
    /// Distance between rows of `b`.
    pub b_row: usize,
    /// Terms of each sum.
    pub depth: usize,
    /// What the sums start from.
    pub start: Start<'a>,
    /// Whether negative results become 0.
    pub relu: bool,
}

impl Gemm<'_> {
    fn check(&self) {
        let last = |rows: usize, row: usize, columns: usize| if rows == 0 { 0 } else { (rows - 1) * row + columns };
        assert!(self.out.len() >= last(self.rows, self.out_row, self.columns), "out is rows x columns");
        assert!(self.b.len() >= last(self.depth, self.b_row, self.columns), "b is depth x columns");
        let a = last(self.rows, self.a.row, 1) + last(self.depth, self.a.depth, 1).saturating_sub(1);
        assert!(self.rows == 0 || self.depth == 0 || self.a.data.len() >= a, "a is rows x depth");
        if let Start::Bias(bias) = self.start {
            assert!(bias.len() >= self.columns, "one bias a column");
        }
    }
}

impl Kernel for Gemm<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        self.check();
        let mut packed = [0.0f32; DEPTH_BLOCK * MAX_ROWS];
        let mut block = 0;
        loop {
            let depth = DEPTH_BLOCK.min(self.depth - block);
            let range = Block { first: block, depth, last: block + depth == self.depth };
            let mut row = 0;
            while row < self.rows {
                row += match self.rows - row {
                    12.. if S::LANES == 16 => panel::<S, 12>(simd, &mut self, row, range, &mut packed),
                    8.. if S::LANES == 16 => panel::<S, 8>(simd, &mut self, row, range, &mut packed),
                    6.. if S::LANES < 16 => panel::<S, 6>(simd, &mut self, row, range, &mut packed),
                    4.. => panel::<S, 4>(simd, &mut self, row, range, &mut packed),
                    2.. => panel::<S, 2>(simd, &mut self, row, range, &mut packed),
                    _ => panel::<S, 1>(simd, &mut self, row, range, &mut packed),
                };
            }
            block += depth;
            if block == self.depth {
                return;
            }
        }
    }
}

/// The terms of the sums that one sweep adds.
#[derive(Clone, Copy)]
struct Block {
    first: usize,
    depth: usize,
    last: bool,
}

/// Adds a block's terms to R rows of the result; returns R.
#[inline(always)]
fn panel<S: Simd, const R: usize>(
    simd: S,
    gemm: &mut Gemm<'_>,
    row: usize,
    block: Block,
    packed: &mut [f32; DEPTH_BLOCK * MAX_ROWS],
) -> usize {
    let a = gemm.a;
    let (panel, _) = packed.as_chunks_mut::<R>();
    let panel = &mut panel[..block.depth];
    if a.row == 1 {
        for (d, step) in panel.iter_mut().enumerate() {
            let from = (block.first + d) * a.depth + row;
            step.copy_from_slice(&a.data[from..from + R]);
        }
    } else {
        for r in 0..R {
            let from = (row + r) * a.row + block.first * a.depth;
            let source = a.data[from..].iter().step_by(a.depth);
            panel.iter_mut().zip(source).for_each(|(step, &x)| step[r] = x);
        }
    }
    let panel = &*panel;
    let mut column = 0;
    while column < gemm.columns {
        let left = gemm.columns - column;
        if left >= 2 * S::LANES {
            tile::<S, R, 2, true>(simd, gemm, panel, row, column, block);
        } else if left > S::LANES {
            tile::<S, R, 2, false>(simd, gemm, panel, row, column, block);
        } else if left == S::LANES {
            tile::<S, R, 1, true>(simd, gemm, panel, row, column, block);
        } else {
            tile::<S, R, 1, false>(simd, gemm, panel, row, column, block);
        }
        column += 2 * S::LANES;
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
    block: Block,
) {
    let width = if FULL { V * S::LANES } else { gemm.columns - column };
    let load = |from: &[f32], v: usize| {
        if FULL || v + 1 < V { simd.load(&from[v * S::LANES..]) } else { simd.load_partial(&from[v * S::LANES..width]) }
    };
    let mut sums = [[simd.splat(0.0); V]; R];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (v, sum) in sums.iter_mut().enumerate() {
            let out = (row + r) * gemm.out_row + column;
            match gemm.start {
                _ if block.first > 0 => *sum = load(&gemm.out[out..out + width], v),
                Start::Out => *sum = load(&gemm.out[out..out + width], v),
                Start::Bias(bias) => *sum = load(&bias[column..column + width], v),
                Start::Zero => (),
            }
        }
    }
    let mut from = block.first * gemm.b_row + column;
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
        from += gemm.b_row;
    }
    for (r, sums) in sums.iter().enumerate() {
        let out = (row + r) * gemm.out_row + column;
        let out = &mut gemm.out[out..out + width];
        for (v, &sum) in sums.iter().enumerate() {
            let value = if gemm.relu && block.last { simd.relu(sum) } else { sum };
            if FULL || v + 1 < V {
                simd.store(value, &mut out[v * S::LANES..]);
            } else {
                simd.store_partial(value, &mut out[v * S::LANES..]);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::rng::{Random, Stream};
    use crate::simd::Isa;

    /// Numbers in [-1, 1), a pure function of `which`.
    pub(crate) fn random(len: usize, which: u32) -> Vec<f32> {
        let random = Random::new(9, Stream::Column(which));
        (0..len as u64).map(|i| (2.0 * random.uniform(i) - 1.0) as f32).collect()
    }

    /// The definition.
    fn define(gemm: &mut Gemm<'_>) {
        for i in 0..gemm.rows {
            for j in 0..gemm.columns {
                let out = &mut gemm.out[i * gemm.out_row + j];
                let mut sum = match gemm.start {
                    Start::Zero => 0.0,
                    Start::Bias(bias) => bias[j],
                    Start::Out => *out,
                };
                for d in 0..gemm.depth {
                    sum = gemm.a.data[i * gemm.a.row + d * gemm.a.depth].mul_add(gemm.b[d * gemm.b_row + j], sum);
                }
                *out = if gemm.relu && sum <= 0.0 { 0.0 } else { sum };
            }
        }
    }

    #[test]
    fn every_twin_gives_the_bits_of_the_definition() {
        let shapes =
            [(1, 1, 1), (13, 1, 300), (25, 33, 7), (12, 32, 256), (23, 47, 513), (5, 16, 0), (0, 4, 4), (3, 70, 1)];
        for (rows, columns, depth) in shapes {
            for transposed in [false, true] {
                for (pick, relu) in [(0, true), (1, true), (2, false)] {
                    let (out_row, b_row) = (columns + 3, columns + 1);
                    let a = random(rows * depth + 9, 1);
                    let b = random(depth * b_row + 9, 2);
                    let bias = random(columns, 3);
                    let before = random(rows * out_row + 9, 4);
                    let a = if transposed {
                        Strided { data: &a, row: 1, depth: rows }
                    } else {
                        Strided { data: &a, row: depth, depth: 1 }
                    };
                    let start = [Start::Zero, Start::Bias(&bias), Start::Out][pick];
                    let product = |out: &mut Vec<f32>, isa: Option<Isa>| {
                        let mut gemm = Gemm { out, out_row, rows, columns, a, b: &b, b_row, depth, start, relu };
                        match isa {
                            Some(isa) => isa.run(gemm),
                            None => define(&mut gemm),
                        }
                    };
                    let mut expected = before.clone();
                    product(&mut expected, None);
                    for isa in Isa::all() {
                        let mut found = before.clone();
                        product(&mut found, Some(isa));
                        assert_eq!(found, expected, "{isa:?} {rows} x {columns} x {depth}, start {pick}");
                    }
                }
            }
        }
    }
}
