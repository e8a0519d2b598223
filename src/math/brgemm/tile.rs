//! The microkernel: a tile of R rows x V vectors of the result stays in registers for a whole batch of blocks.
//!
//! SC20, III-B: "batch-reduce GEMM". Every step of depth adds one product to each element of the tile, in ascending
//! order, as one fused multiply-add (or one dot product of a pair of bfloat16); so results have the same bits, whatever
//! the tile.
//!
//! With 32 registers, up to 14 x 2 vectors leave room for two vectors of the right operand: a step is 28 multiply-adds,
//! 2 loads and 14 broadcasts from memory, so the two multiply-add pipes are the limit, not the two load pipes. With 16
//! registers the tile is 6 x 2.
//!
//! What limits it, measured on a Xeon with AMX in turns with a loop of multiply-adds that never leaves its registers: a
//! tile that takes both operands from L2 runs at 98 % of that loop, whatever its shape (14 x 2, 12 x 2, 8 x 3 and 6 x 4
//! are alike), as long as no neighbour uses the core's other hardware thread, and at 75 to 80 % while one does: it
//! takes issue slots and load ports, which the loop never wants. Whole passes reach the tile's speed at their best (390
//! of 398 GFLOP/s), and half of the time 89 % of the loop's. So what is missing is not in the memory below L2; requests
//! even earlier than [`AHEAD`], or for the next rows' first steps, change nothing. Written by hand in assembly, the
//! same tile has 79 to 84 % of the loop on average beside a busy neighbour, all of its operands in L1 85 %, and a 6 x 4
//! tile then 90 %: no tile that reads its operands gets closer there.

use std::ops::Range;

use bytemuck::Pod;

use super::panels::{Row, WIDTH};
use crate::simd::{Kernel, Simd};

/// Steps between the request of an operand's cache lines and their use: 28 steps of 14 cycles.
const AHEAD: usize = 28;

/// Steps between the request of a tile's last row of results and the end of its sums: 64 of 14 cycles, for a line from
/// memory.
const LEAD: usize = 64;

/// Columns of a strip: a tile's with vectors of 8. Wider vectors have no strips: each size of a row is another twin of
/// all tiles, and the right operand's lines are half of a row there, of caches that are twice as large.
pub(super) const STRIP: usize = 16;

/// Floats of a cache line.
const LINE: usize = 16;

/// Which tiles an instruction set's kernels are compiled for. Constants, so that the compiler makes none of the others.
pub(super) trait Heights {
    /// Rows of the tallest tile.
    const TALLEST: usize;
    /// Whether tiles may have more than 6 rows.
    const TALL: bool = Self::TALLEST > 6;
    /// Whether tiles may have more than one row.
    const MANY: bool = Self::TALLEST > 1;
    /// Whether there are tiles that read strips.
    const STRIPS: bool;
}

impl<S: Simd> Heights for S {
    const TALLEST: usize = match S::LANES {
        16 => 14,
        _ if S::IN_REGISTERS => 6,
        _ => 1,
    };
    const STRIPS: bool = 2 * S::LANES == STRIP;
}

/// What panels of results are made of: 32-bit floats, or bfloat16 as the bits of a `u16`.
pub trait Cell: Pod + Send + Sync {
    /// A vector from the first elements of `from`.
    fn load<S: Simd>(simd: S, from: &[Self]) -> S::V;

    /// Writes a vector to the first elements of `to`.
    fn store<S: Simd>(simd: S, v: S::V, to: &mut [Self]);
}

impl Cell for f32 {
    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[Self]) -> S::V {
        simd.load(from)
    }

    #[inline(always)]
    fn store<S: Simd>(simd: S, v: S::V, to: &mut [Self]) {
        simd.store(v, to);
    }
}

impl Cell for u16 {
    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[Self]) -> S::V {
        simd.widen(from)
    }

    #[inline(always)]
    fn store<S: Simd>(simd: S, v: S::V, to: &mut [Self]) {
        simd.narrow(v, to);
    }
}

/// The left operand of a product, in the layout that a pass finds it in.
pub(super) trait Left: Copy + Sync {
    /// Whether a step is a pair of bfloat16.
    const PAIRS: bool;

    /// Tiles do not cross multiples of this many rows.
    const BLOCK: usize;

    /// Whether a right operand that is transposed first is multiplied with it: with gradients in backward-by-data.
    const MEETS_TRANSPOSED: bool;

    /// Adds the steps `first..first + b.len()` to the tile whose first row is `row`; `b` has the right operand's steps,
    /// and the tile's columns are those from `column` on. Shortly before the end, `expect` is called for each row of
    /// the tile, to ask for its results' cache lines.
    #[allow(clippy::too_many_arguments)]
    fn multiply<S: Simd, const R: usize, const V: usize, const N: usize>(
        self,
        simd: S,
        sums: [[S::V; V]; R],
        row: usize,
        first: usize,
        b: &[[f32; N]],
        column: usize,
        expect: impl Fn(usize),
    ) -> [[S::V; V]; R];
}

/// When rows of results are asked for: turn by turn, so that requests never queue up before those of operands.
#[derive(Clone, Copy)]
struct Expected {
    /// The turn in which to begin.
    first: usize,
    /// Rows a turn.
    rows: usize,
}

impl Expected {
    /// For `rows` rows within `turns` turns of `steps` steps.
    #[inline(always)]
    fn new(rows: usize, turns: usize, steps: usize) -> Self {
        let each = rows.div_ceil(turns.max(1));
        Self { first: turns.saturating_sub(rows.div_ceil(each) + LEAD / steps), rows: each }
    }

    /// The rows of a turn; all come before the last turn is over.
    #[inline(always)]
    fn of(self, turn: usize, rows: usize) -> Range<usize> {
        let first = (turn.max(self.first) - self.first) * self.rows;
        if turn < self.first { 0..0 } else { first.min(rows)..(first + self.rows).min(rows) }
    }
}

/// A left operand whose rows are rows of its panels, D steps each: activations in forward and backward-by-data.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByRow<'a, const D: usize> {
    pub(super) cells: &'a [[f32; D]],
    /// Rows between panels.
    pub(super) stride: usize,
}

impl<const D: usize> ByRow<'_, D> {
    /// The steps `step..step + 16` of R rows; `step` is a multiple of 16.
    #[inline(always)]
    fn line<const R: usize>(&self, row: usize, step: usize) -> [&[f32; LINE]; R] {
        let (rows, _) = self.cells[step / D * self.stride + row..].as_chunks::<R>();
        let line = step % D / LINE;
        let mut lines = [&[0.0; LINE]; R];
        for (line_of, row) in lines.iter_mut().zip(&rows[0]) {
            *line_of = &row.as_chunks().0[line];
        }
        lines
    }
}

impl<const D: usize> Left for ByRow<'_, D> {
    const PAIRS: bool = D < WIDTH;
    const BLOCK: usize = usize::MAX;
    const MEETS_TRANSPOSED: bool = true;

    #[inline(always)]
    fn multiply<S: Simd, const R: usize, const V: usize, const N: usize>(
        self,
        simd: S,
        mut sums: [[S::V; V]; R],
        row: usize,
        first: usize,
        b: &[[f32; N]],
        column: usize,
        expect: impl Fn(usize),
    ) -> [[S::V; V]; R] {
        assert!(column + V * S::LANES <= N && first.is_multiple_of(LINE));
        let (lines, rest) = b.as_chunks::<LINE>();
        let expected = Expected::new(R, lines.len(), LINE);
        for (index, b) in lines.iter().enumerate() {
            for r in expected.of(index, R) {
                expect(r);
            }
            let a = self.line::<R>(row, first + index * LINE);
            // The same rows of the next block lie far from this one, where no hardware prefetcher looks: a block of 16
            // rows has as many cache lines as steps, and one is asked for a step, in the order of memory.
            let behind = self.stride * D + (first + index * LINE) % D * (LINE - 1);
            // Four at a time: the compiler unrolls them, and the processor foresees the end of so short a loop.
            for quarter in 0..LINE / 4 {
                for d in 4 * quarter..4 * quarter + 4 {
                    simd.prefetch_ahead(a[0] as &[f32], behind + d * LINE);
                    sums = step::<S, R, V, N>(simd, sums, Self::PAIRS, |r| a[r][d], &b[d], column);
                }
            }
        }
        if !rest.is_empty() {
            let a = self.line::<R>(row, first + lines.len() * LINE);
            for (d, b) in (0..LINE).zip(rest) {
                sums = step::<S, R, V, N>(simd, sums, Self::PAIRS, |r| a[r][d], b, column);
            }
        }
        sums
    }
}

/// A left operand whose rows are the columns of its panels: activations in backward-by-weights.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByColumn<'a, const PAIRS: bool> {
    pub(super) cells: &'a [Row<f32>],
    /// Rows between panels.
    pub(super) stride: usize,
}

impl<const PAIRS: bool> Left for ByColumn<'_, PAIRS> {
    const PAIRS: bool = PAIRS;
    const BLOCK: usize = WIDTH;
    const MEETS_TRANSPOSED: bool = false;

    #[inline(always)]
    fn multiply<S: Simd, const R: usize, const V: usize, const N: usize>(
        self,
        simd: S,
        mut sums: [[S::V; V]; R],
        row: usize,
        first: usize,
        b: &[[f32; N]],
        column: usize,
        expect: impl Fn(usize),
    ) -> [[S::V; V]; R] {
        let offset = row % WIDTH;
        assert!(column + V * S::LANES <= N && offset + R <= WIDTH);
        let a = &self.cells[row / WIDTH * self.stride + first..][..b.len()];
        let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<4>(), b.as_chunks::<4>());
        let expected = Expected::new(R, b.len(), 4);
        for (turn, (a, b)) in a.iter().zip(b).enumerate() {
            for r in expected.of(turn, R) {
                expect(r);
            }
            for (a, b) in a.iter().zip(b) {
                sums = column_step::<S, R, V, N>(simd, sums, PAIRS, &a[offset..offset + R], b, column);
            }
        }
        for (a, b) in a_rest.iter().zip(b_rest) {
            sums = column_step::<S, R, V, N>(simd, sums, PAIRS, &a[offset..offset + R], b, column);
        }
        sums
    }
}

/// Adds one step whose part of the left operand is a row.
#[inline(always)]
fn column_step<S: Simd, const R: usize, const V: usize, const N: usize>(
    simd: S,
    sums: [[S::V; V]; R],
    pairs: bool,
    a: &[f32],
    b: &[f32; N],
    column: usize,
) -> [[S::V; V]; R] {
    // Both ends: the rows of a tile rarely begin with a cache line.
    simd.prefetch_ahead(a, AHEAD * WIDTH);
    simd.prefetch_ahead(a, AHEAD * WIDTH + R - 1);
    step::<S, R, V, N>(simd, sums, pairs, |r| a[r], b, column)
}

/// Adds one step to the tile: row r of it gets `a(r)` times the step's vectors.
#[inline(always)]
fn step<S: Simd, const R: usize, const V: usize, const N: usize>(
    simd: S,
    mut sums: [[S::V; V]; R],
    pairs: bool,
    a: impl Fn(usize) -> f32,
    b: &[f32; N],
    column: usize,
) -> [[S::V; V]; R] {
    let b = &b[column..column + V * S::LANES];
    // A strip is in L1 for all tiles but the first.
    if N == WIDTH {
        for line in (0..V * S::LANES).step_by(LINE) {
            simd.prefetch_ahead(b, AHEAD * N + line);
        }
    }
    let mut vectors = [simd.splat(0.0); V];
    for (v, vector) in vectors.iter_mut().enumerate() {
        *vector = simd.load(&b[v * S::LANES..]);
    }
    for (r, sums) in sums.iter_mut().enumerate() {
        let a = simd.splat(a(r));
        for (sum, &b) in sums.iter_mut().zip(&vectors) {
            *sum = if pairs { simd.dot_pairs(a, b, *sum) } else { simd.mul_add(a, b, *sum) };
        }
    }
    sums
}

/// What the sums of a panel start from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start<'a> {
    /// From 0.
    Zero,
    /// Each column from its bias.
    Bias(&'a Row<f32>),
    /// From what the result holds: the sums over the steps before.
    Out,
}

/// What becomes of the sums of a panel; operands have the result's rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Finish<'a, C> {
    /// They are the result.
    Keep,
    /// ReLU.
    Relu,
    /// 0 where this is 0 or less: ReLU's gradient.
    Gate(&'a [Row<C>]),
    /// This is added to them.
    Add(&'a [Row<C>]),
}

/// One tile of the result: rows of a panel, and where in it; and its operands.
pub(super) struct Tile<'a, L, C, const N: usize> {
    /// As many rows of the panel as the tile has.
    pub(super) out: &'a mut [Row<C>],
    /// The number of the first of them in the left operand.
    pub(super) row: usize,
    pub(super) column: usize,
    /// Columns of the panel that are no padding.
    pub(super) width: usize,
    pub(super) start: Start<'a>,
    pub(super) finish: Finish<'a, C>,
    pub(super) left: L,
    /// The number of the first step in the left operand.
    pub(super) first: usize,
    /// The right operand's steps, of which the tile has the columns from `at` on.
    pub(super) steps: &'a [[f32; N]],
    pub(super) at: usize,
}

impl<L: Left, C: Cell, const N: usize> Tile<'_, L, C, N> {
    /// Computes it, V vectors wide.
    #[inline(always)]
    pub(super) fn run<S: Simd, const V: usize>(mut self, simd: S) {
        match self.out.len() {
            14 if S::TALL => simd.run(Fixed::<_, 14, V>(&mut self)),
            13 if S::TALL => simd.run(Fixed::<_, 13, V>(&mut self)),
            12 if S::TALL => simd.run(Fixed::<_, 12, V>(&mut self)),
            11 if S::TALL => simd.run(Fixed::<_, 11, V>(&mut self)),
            10 if S::TALL => simd.run(Fixed::<_, 10, V>(&mut self)),
            9 if S::TALL => simd.run(Fixed::<_, 9, V>(&mut self)),
            8 if S::TALL => simd.run(Fixed::<_, 8, V>(&mut self)),
            7 if S::TALL => simd.run(Fixed::<_, 7, V>(&mut self)),
            6 if S::MANY => simd.run(Fixed::<_, 6, V>(&mut self)),
            5 if S::MANY => simd.run(Fixed::<_, 5, V>(&mut self)),
            4 if S::MANY => simd.run(Fixed::<_, 4, V>(&mut self)),
            3 if S::MANY => simd.run(Fixed::<_, 3, V>(&mut self)),
            2 if S::MANY => simd.run(Fixed::<_, 2, V>(&mut self)),
            1 => simd.run(Fixed::<_, 1, V>(&mut self)),
            height => unreachable!("no tile has {height} rows"),
        }
    }
}

/// A tile of R rows x V vectors. Each size is a function of its own, called once a tile: sweeps that held all of them
/// took half of the time in which the compiler optimises the library, since a pass over a loop takes longer, the
/// larger the function around it is.
struct Fixed<T, const R: usize, const V: usize>(T);

impl<L: Left, C: Cell, const R: usize, const V: usize, const N: usize> Kernel for Fixed<&mut Tile<'_, L, C, N>, R, V> {
    type Out = ();
    const BF16: bool = L::PAIRS;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let &mut Tile { ref mut out, row, column, width, start, finish, left, first, steps, at } = self.0;
        let lanes = S::LANES;
        let (out, _) = out.as_chunks_mut::<R>();
        let out = &mut out[0];
        let mut sums = [[simd.splat(0.0); V]; R];
        for (sums, out) in sums.iter_mut().zip(&*out) {
            for (v, sum) in sums.iter_mut().enumerate() {
                match start {
                    Start::Zero => (),
                    Start::Bias(bias) => *sum = simd.load(&bias[column + v * lanes..]),
                    Start::Out => *sum = C::load(simd, &out[column + v * lanes..]),
                }
            }
        }
        let expect = |r: usize| {
            for line in (0..V * lanes).step_by(LINE * size_of::<f32>() / size_of::<C>()) {
                if !matches!(start, Start::Out) {
                    simd.prefetch_ahead(&out[r], column + line);
                } else if N < WIDTH {
                    // The next tile of a strip goes on with the sums below these.
                    simd.prefetch_ahead(&out[r], R * WIDTH + column + line);
                }
                if let Finish::Gate(other) | Finish::Add(other) = finish {
                    simd.prefetch_ahead(&other[r], column + line);
                }
            }
        };
        let sums = left.multiply::<S, R, V, N>(simd, sums, row, first, steps, at, expect);
        for (r, (sums, out)) in sums.iter().zip(out).enumerate() {
            for (v, &sum) in sums.iter().enumerate() {
                put(simd, sum, finish, r, out, column + v * lanes, width);
            }
        }
    }
}

/// Makes a vector of complete sums the result, at column `at` of the finish's row r; `width` columns are no padding.
#[inline(always)]
pub(super) fn put<S: Simd, C: Cell>(
    simd: S,
    sum: S::V,
    finish: Finish<'_, C>,
    r: usize,
    out: &mut Row<C>,
    at: usize,
    width: usize,
) {
    let value = match finish {
        Finish::Keep => sum,
        Finish::Relu => simd.relu(sum),
        Finish::Gate(gate) => simd.gate(sum, C::load(simd, &gate[r][at..])),
        Finish::Add(term) => simd.add(sum, C::load(simd, &term[r][at..])),
    };
    if at + S::LANES <= width {
        C::store(simd, value, &mut out[at..]);
    } else {
        // Padding stays 0, even where a diverged run's NaN times the weights' padding is none.
        let mut whole = [C::zeroed(); 16];
        C::store(simd, value, &mut whole);
        out[at..width].copy_from_slice(&whole[..width - at]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_results_is_asked_for_once_and_late() {
        for rows in 1..=14 {
            for (turns, steps) in [(1, LINE), (3, LINE), (4, LINE), (64, LINE), (1, 4), (16, 4), (256, 4)] {
                let expected = Expected::new(rows, turns, steps);
                let asked: Vec<usize> = (0..turns).flat_map(|turn| expected.of(turn, rows)).collect();
                assert!(asked.iter().copied().eq(0..rows), "{rows} rows in {turns} turns: {asked:?}");
                assert!(turns * steps < 1000 || expected.of(turns / 2, rows).is_empty());
            }
        }
    }
}
