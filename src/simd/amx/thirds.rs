//! Products of 32-bit floats on tiles: six products of their thirds, see [`crate::simd::bf16::thirds`].
//!
//! A step of 32 terms is 24 tile products for 14 tile loads, so loads are hidden where plain bfloat16 waits for them: four
//! products need four loads there. Only blocks of 2 x 2 tiles are multiplied; tails are padded.

use std::arch::asm;

use super::{BLOCK, Left, Origin, Packed, Pairs, Sums, TILE, Tiles};

/// Rows of the left operand from one third of 16 rows to the next.
pub const THIRD: usize = TILE;

/// The third of the left operand at byte `$third` of the rows, for both tiles of rows.
macro_rules! left {
    ($step:literal, $third:literal) => {
        concat!(
            concat!("tileloadd tmm4, [{a} + {a_row} + ", $step, " + ", $third, "]\n"),
            concat!("tileloadd tmm5, [{a} + {a_row} + ", $step, " + ", $third, " + 6144]\n"),
        )
    };
}

/// The third of the right operand at byte `$third` of the unit, for both tiles of columns.
macro_rules! right {
    ($step:literal, $third:literal) => {
        concat!(
            concat!("tileloadd tmm6, [{b} + {b_row} + ", $step, " + ", $third, "]\n"),
            concat!("tileloadd tmm7, [{b} + {b_row} + ", $step, " + ", $third, " + 1024]\n"),
        )
    };
}

/// Asks for eight lines, `$from` bytes after the start of the unit ahead.
macro_rules! ahead {
    ($from:literal, $more:expr) => {
        concat!(
            ahead!(@ $from, $more, "0"), ahead!(@ $from, $more, "64"),
            ahead!(@ $from, $more, "128"), ahead!(@ $from, $more, "192"),
            ahead!(@ $from, $more, "256"), ahead!(@ $from, $more, "320"),
            ahead!(@ $from, $more, "384"), ahead!(@ $from, $more, "448"),
        )
    };
    (@ $from:literal, $more:expr, $line:literal) => {
        concat!("prefetcht0 [{ahead} + ", $from, " + ", $more, " + ", $line, "]\n")
    };
}

/// The four products of what is loaded; meanwhile 16 lines are asked for.
macro_rules! products {
    ($from:literal, $more:literal) => {
        concat!(
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            ahead!($from, $more),
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            "tdpbf16ps tmm3, tmm5, tmm7\n",
            ahead!($from, concat!($more, " + 512")),
        )
    };
}

/// One step in depth, [`crate::simd::bf16::THIRDS`] in their order. `$a` and `$b` are its bytes from the unit's start.
/// Meanwhile half of the lines of the unit of the left operand that comes next, from `$ahead` on, are asked for.
macro_rules! step {
    ($a:literal, $b:literal, $ahead:literal) => {
        concat!(
            left!($a, "0"),
            right!($b, "8192"),
            products!($ahead, "0"),
            right!($b, "4096"),
            products!($ahead, "1024"),
            left!($a, "2048"),
            products!($ahead, "2048"),
            right!($b, "0"),
            products!($ahead, "3072"),
            left!($a, "4096"),
            products!($ahead, "4096"),
            left!($a, "0"),
            products!($ahead, "5120"),
        )
    };
}

impl Tiles {
    /// Adds to `sums` the products of 32 rows of `left` with 32 columns of `right`, unit by unit of depth.
    ///
    /// Both operands are in thirds. 16 rows of the left one take 48 of its rows: their first thirds, their second and
    /// their last; `row` and `next` are multiples of 16 and count them once. A unit of the right one is three of its
    /// elements. The first unit of the rows from `next` on is brought to L1 meanwhile.
    ///
    /// # Panics
    /// When the operands have less than that.
    #[inline]
    pub fn multiply_thirds(
        &self,
        sums: &mut Sums,
        start: Origin<'_>,
        left: Left<'_>,
        [row, next]: [usize; 2],
        right: &[Packed],
    ) {
        assert!(right.len().is_multiple_of(3) && row.is_multiple_of(TILE) && next.is_multiple_of(TILE), "whole thirds");
        let units = right.len() / 3;
        if let Some(before) = units.checked_sub(1) {
            assert!(left.cells.len() >= before * left.stride + 3 * (row + BLOCK), "all rows of all units");
        }
        let to = sums.0.as_mut_ptr();
        let (from, from_row, below) = match start {
            Origin::Row(row) => (row.as_ptr(), 0, row.as_ptr()),
            Origin::Sums => {
                (to.cast_const().cast(), size_of::<[f32; BLOCK]>(), to.cast_const().wrapping_add(TILE).cast())
            }
        };
        let (a, next) = (left.cells.as_ptr().wrapping_add(3 * row), left.cells.as_ptr().wrapping_add(3 * next));
        let (b, stride) = (right.as_ptr(), left.stride * size_of::<Pairs>());
        // SAFETY: `self` proves the instructions and eight whole tiles. The start is 32 rows of 128 bytes that are `sums`,
        // or 32 times the same 128 bytes of `row`; the result is `sums`. Unit u of the left operand is 96 rows of 128
        // bytes from cell u * stride + 3 * row on, which end in `cells` because those of the last unit do (checked
        // above); the right operand is 12 KiB a unit, all of it `right`. Prefetches never fault.
        unsafe {
            asm!(
                "tileloadd tmm0, [{from} + {from_row}]",
                "tileloadd tmm1, [{from} + {from_row} + 64]",
                "tileloadd tmm2, [{below} + {from_row}]",
                "tileloadd tmm3, [{below} + {from_row} + 64]",
                "test {units}, {units}",
                "jz 3f",
                ".p2align 4",
                "2:",
                "cmp {units}, 1",
                "cmove {ahead}, {next}",
                step!("0", "0", "0"),
                step!("64", "2048", "6144"),
                "add {a}, {stride}",
                "add {ahead}, {stride}",
                "add {b}, 12288",
                "dec {units}",
                "jnz 2b",
                "3:",
                "tilestored [{to} + {a_row}], tmm0",
                "tilestored [{to} + {a_row} + 64], tmm1",
                "tilestored [{to} + {a_row} + 2048], tmm2",
                "tilestored [{to} + {a_row} + 2112], tmm3",
                from = in(reg) from,
                from_row = in(reg) from_row,
                below = in(reg) below,
                a = inout(reg) a => _,
                a_row = in(reg) size_of::<Pairs>(),
                stride = in(reg) stride,
                b = inout(reg) b => _,
                ahead = inout(reg) a.wrapping_byte_add(stride) => _,
                next = in(reg) next,
                b_row = in(reg) size_of::<[u32; TILE]>(),
                units = inout(reg) units => _,
                to = in(reg) to,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}
