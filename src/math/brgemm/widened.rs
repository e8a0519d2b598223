//! The passes on bfloat16 for processors that multiply no pairs of them: both operands become 32-bit floats and go
//! through the passes of those.
//!
//! [`dot_pair`](crate::simd::bf16::dot_pair) is two fused multiply-adds, the odd product first, but takes denormal
//! numbers as 0, also results. So terms of a pair change places, denormal factors become 0, and the sums have the bits
//! of the definition if none of them can be tiny. A product of bfloat16 whose exponents, as stored, are e and f is a
//! multiple of 2^(e + f - 268), because each factor has 7 bits behind its first. Where the least exponents of both
//! operands have a sum of 142 or more, all products are multiples of 2^-126, the least normal number; and so are all
//! sums that start from 0 or from a number with 24 or more as its exponent, whose last bit is no less. What is no such
//! multiple, numbers that training hardly meets, is left to [`crate::simd::Simd::dot_pairs`], element by element.
//!
//! Copies cost three operations a number, beside as many multiply-adds as the layer has outputs or inputs, half a cycle
//! for eight. On a Zen 3, whose processor has AVX2 alone, a pass on pairs ran at 7 % of the peak of multiply-adds.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use super::operands::first;
use super::panels::{Panels, Row, WIDTH};
use crate::machine::team::Team;
use crate::memory::Buffer;
use crate::simd::{Kernel, Simd};
use crate::sync::Grid;

/// The bits of an exponent.
const EXPONENT: u32 = 0x7f80_0000;

/// Least sum of two exponents whose products are never tiny.
const LEAST_PRODUCT: u32 = 142;

/// Least exponent of a sum whose last bit is never tiny.
const LEAST_SUM: u32 = 24;

/// An operand in bfloat16, and where the two terms of a pair lie.
#[derive(Clone, Copy)]
pub(super) enum Halves<'a> {
    /// Beside each other: a row has all terms of a sum.
    ByRow { cells: &'a [Row<u16>], stride: usize, rows: usize },
    /// Below each other: a column has all terms of a sum.
    ByColumn { cells: &'a [Row<u16>], stride: usize, rows: usize },
    /// In one word: a row has a pair of terms of each column.
    Pairs { cells: &'a [Row<u32>], stride: usize, rows: usize },
    /// The same, but terms are columns: a row has two terms of each, of two sums.
    Transposed { cells: &'a [Row<u32>], stride: usize, rows: usize },
}

/// An operand in 32-bit floats, as [`super::right::Right::Ready`] and others read it.
#[derive(Clone, Copy)]
pub(super) struct Wide<'a> {
    pub(super) cells: &'a [Row<f32>],
    /// Rows between panels.
    pub(super) stride: usize,
    pub(super) rows: usize,
}

thread_local! {
    /// Operands of the passes that this thread began: memory grows to what the largest layer needs and is then reused.
    static COPIES: RefCell<[Buffer<f32>; 2]> = RefCell::default();
}

/// The upper and the lower halves of words.
#[inline(always)]
fn parted(words: &Row<u32>) -> [Row<u16>; 2] {
    let mut halves = [[0; WIDTH]; 2];
    for (at, &word) in words.iter().enumerate() {
        (halves[0][at], halves[1][at]) = ((word >> 16) as u16, word as u16);
    }
    halves
}

/// Each number in its neighbour's place.
#[inline(always)]
fn swapped(row: &Row<u16>) -> Row<u16> {
    let mut words: [u32; WIDTH / 2] = bytemuck::cast(*row);
    for word in &mut words {
        *word = word.rotate_left(16);
    }
    bytemuck::cast(words)
}

impl Halves<'_> {
    /// Rows of the widened operand.
    const fn rows(&self) -> usize {
        match *self {
            Self::ByRow { rows, .. } | Self::ByColumn { rows, .. } => rows.next_multiple_of(2),
            Self::Pairs { rows, .. } | Self::Transposed { rows, .. } => 2 * rows,
        }
    }

    /// The rows 2i and 2i + 1 of a panel of the widened operand, still in bfloat16; a missing row is 0.
    #[inline(always)]
    fn two_rows(&self, panel: usize, i: usize) -> [Row<u16>; 2] {
        let rows_of = |cells: &[Row<u16>], stride: usize, rows: usize| {
            let at = panel * stride + 2 * i;
            [cells[at], if 2 * i + 1 < rows { cells[at + 1] } else { [0; WIDTH] }]
        };
        match *self {
            Self::ByRow { cells, stride, rows } => rows_of(cells, stride, rows).map(|row| swapped(&row)),
            Self::ByColumn { cells, stride, rows } => {
                let [even, odd] = rows_of(cells, stride, rows);
                [odd, even]
            }
            Self::Pairs { cells, stride, .. } => parted(&cells[panel * stride + i]),
            Self::Transposed { cells, stride, .. } => {
                let [odd, even] = parted(&cells[panel * stride + i]);
                [swapped(&even), swapped(&odd)]
            }
        }
    }

    /// The operand of so many panels in 32-bit floats, and the least exponent of its numbers, 0 left out.
    fn widened<'b>(&self, team: &Team, panels: usize, copy: &'b mut Buffer<f32>) -> (Wide<'b>, u32) {
        let rows = self.rows();
        let stride = Panels::<f32>::bare(rows, panels * WIDTH).stride();
        let cells: &mut [Row<f32>] = first(copy, panels * stride * WIDTH).as_chunks_mut().0;
        let (isa, least) = (team.isa(), AtomicU32::new(u32::MAX));
        let much = team.is_much(panels * rows * WIDTH, Team::WORDS_ALONE);
        team.share_if(much, Grid::new(cells, [panels, rows, stride], [1, team.pieces()], 2), |mut part| {
            for panel in part.panels() {
                let first = part.rows().start / 2;
                least.fetch_min(isa.run(Widen { from: self, panel, first, to: part.panel(panel) }), Ordering::Relaxed);
            }
        });
        let least = least.into_inner().wrapping_add(1);
        (Wide { cells, stride, rows }, if least == 0 { u32::MAX } else { least >> EXPONENT.trailing_zeros() })
    }
}

/// Rows of a panel of an operand, from pair number `first` on; returns the least exponent in its place among the bits
/// of a number, less 1, so that 0 counts as the greatest.
struct Widen<'a> {
    from: &'a Halves<'a>,
    panel: usize,
    first: usize,
    to: &'a mut [Row<f32>],
}

impl Kernel for Widen<'_> {
    type Out = u32;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> u32 {
        let mut least = [u32::MAX; 16];
        for (index, to) in self.to.chunks_mut(2).enumerate() {
            let from = self.from.two_rows(self.panel, self.first + index);
            for (to, from) in to.iter_mut().zip(&from) {
                for (to, from) in to.as_chunks_mut::<16>().0.iter_mut().zip(from.as_chunks::<16>().0) {
                    for ((to, &half), least) in to.iter_mut().zip(from).zip(&mut least) {
                        let bits = u32::from(half) << 16;
                        let exponent = bits & EXPONENT;
                        *to = f32::from_bits(if exponent == 0 { bits & !(u32::MAX >> 1) } else { bits });
                        *least = (*least).min(exponent.wrapping_sub(1));
                    }
                }
            }
        }
        least.into_iter().min().expect("16 lanes")
    }
}

/// Whether sums may start from all these numbers.
fn may_start(numbers: &[f32]) -> bool {
    let least = numbers.iter().fold(u32::MAX, |least, x| {
        let bits = x.to_bits() & (u32::MAX >> 1);
        least.min(bits.wrapping_sub(1))
    });
    least.wrapping_add(1) == 0 || least.wrapping_add(1) >> EXPONENT.trailing_zeros() >= LEAST_SUM
}

/// The same of a result that sums go on from.
pub(super) fn may_go_on(team: &Team, from: &mut Panels<f32>) -> bool {
    let (least, rows) = (AtomicU32::new(1), from.rows());
    let much = team.is_much(rows * from.panels() * WIDTH, Team::WORDS_ALONE);
    team.share_if(much, from.grid(rows, team.pieces(), 1), |mut part| {
        let may = part.panels().all(|panel| may_start(part.panel(panel).as_flattened()));
        least.fetch_and(u32::from(may), Ordering::Relaxed);
    });
    least.into_inner() == 1
}

/// Where no instruction multiplies pairs: gives `pass` both operands, with so many panels, if the bits are those of the
/// definition; `bias` is what sums start from. Whether it did.
pub(super) fn passed(
    team: &Team,
    [left, right]: [(Halves<'_>, usize); 2],
    bias: Option<&[f32]>,
    pass: impl FnOnce(Wide<'_>, Wide<'_>),
) -> bool {
    if team.isa().multiplies_pairs() || !bias.is_none_or(may_start) {
        return false;
    }
    let [mut left_copy, mut right_copy] = COPIES.take();
    let (left, left_least) = left.0.widened(team, left.1, &mut left_copy);
    let (right, right_least) = right.0.widened(team, right.1, &mut right_copy);
    let exact = left_least.saturating_add(right_least) >= LEAST_PRODUCT;
    if exact {
        pass(left, right);
    }
    COPIES.set([left_copy, right_copy]);
    exact
}

#[cfg(test)]
mod tests {
    use super::super::{After, bf16};
    use super::*;
    use crate::math::random;
    use crate::simd::Isa;
    use crate::simd::bf16::dot_pair;

    /// Numbers of bfloat16 with this exponent, some of them 0.
    fn draw(len: usize, which: u32, exponent: u32) -> Vec<u16> {
        let number = |x: &f32| {
            let (sign, mantissa) = ((x.to_bits() >> 31) << 15, (x.to_bits() >> 9) & 0x7f);
            if mantissa.is_multiple_of(5) { 0 } else { (sign | exponent << 7 | mantissa) as u16 }
        };
        random(len, which).iter().map(number).collect()
    }

    /// X's numbers have the first exponent, W's the second.
    fn forward_is_as_defined([x, w]: [u32; 2], start: f32, widened: bool) {
        let (exponents, [n, c, k]) = ([x, w], [13, 37, 70]);
        let (x, w) = (draw(n * c, 1, x), draw(c * k, 2, w));
        let px = Panels::from_rows(&x, n, c);
        let pairs: Vec<u32> = (0..c.div_ceil(2) * k)
            .map(|at| {
                let (d, j) = (2 * (at / k), at % k);
                let odd = if d + 1 < c { w[(d + 1) * k + j] } else { 0 };
                u32::from(odd) << 16 | u32::from(w[d * k + j])
            })
            .collect();
        let pw = Panels::from_rows(&pairs, c.div_ceil(2), k);
        let bias = vec![start; k];
        for isa in Isa::all().into_iter().filter(|isa| !isa.multiplies_pairs()) {
            let team = Team::with_isa(3, isa).unwrap();
            let left = (Halves::ByRow { cells: px.cells(), stride: px.stride(), rows: n }, px.panels());
            let right = (Halves::Pairs { cells: pw.cells(), stride: pw.stride(), rows: pw.rows() }, pw.panels());
            assert_eq!(passed(&team, [left, right], Some(&bias), |_, _| ()), widened, "{exponents:?} from {start:e}");
            let mut y = Panels::<f32>::zeroed(n, k);
            bf16::forward(&team, n, &px, &pw, &bias, &mut y, After::Keep);
            let y = y.to_rows();
            for (at, y) in y.iter().enumerate() {
                let (i, j) = (at / k, at % k);
                let expected = (0..c.div_ceil(2)).fold(start, |sum, d| {
                    let odd = if 2 * d + 1 < c { x[i * c + 2 * d + 1] } else { 0 };
                    let a = f32::from_bits(u32::from(odd) << 16 | u32::from(x[i * c + 2 * d]));
                    dot_pair(a, f32::from_bits(pairs[d * k + j]), sum)
                });
                assert_eq!(y.to_bits(), expected.to_bits(), "{exponents:?} from {start:e}, {i}, {j}");
            }
        }
    }

    #[test]
    fn what_may_become_tiny_is_not_widened() {
        for (exponents, start, widened) in [
            ([71, 71], 0.0, true),
            ([60, 82], -0.0, true),
            ([70, 71], 0.0, false),
            ([60, 81], 0.0, false),
            ([0, 150], 0.0, true),
            ([1, 140], 0.0, false),
            ([1, 141], 1.0, true),
            ([71, 71], f32::from_bits(24 << 23 | 1), true),
            ([71, 71], f32::from_bits(23 << 23), false),
            ([71, 71], f32::from_bits(1), false),
        ] {
            forward_is_as_defined(exponents, start, widened);
        }
    }

    #[test]
    fn sums_go_on_only_from_what_cannot_become_tiny() {
        let team = Team::new(2).unwrap();
        for (number, may) in [(0.0, true), (-1.0, true), (1e-36, false), (f32::from_bits(24 << 23), true)] {
            let mut from = Panels::zeroed(70, 70);
            from.panel_mut(1)[69][5] = number;
            assert_eq!(may_go_on(&team, &mut from), may, "{number:e}");
        }
    }
}
