//! Products of 32-bit floats on tiles: six products of their thirds, see [`crate::simd::bf16::thirds`].
//!
//! A step of 32 terms is 24 tile products for 14 tile loads, so loads are hidden where plain bfloat16 waits for them:
//! four products need four loads there. Only blocks of 2 x 2 tiles are multiplied; tails are padded.

use std::arch::asm;

use super::{BLOCK, Left, Origin, Packed, Pairs, Sums, TILE, Tiles};

/// Rows of the left operand from one third of 16 rows to the next.
pub const THIRD: usize = TILE;

/// Loads the tile of rows 0 or 1 of the left operand, `$at` bytes after them, to its register.
macro_rules! left {
    (0, $at:expr) => {
        concat!("tileloadd tmm4, [{a} + {a_row} + ", $at, "]\n")
    };
    (1, $at:expr) => {
        concat!("tileloadd tmm5, [{a} + {a_row} + ", $at, " + 6144]\n")
    };
}

/// Loads the tile of columns 0 or 1 of the right operand, `$at` bytes after them, to its register.
macro_rules! right {
    (0, $at:expr) => {
        concat!("tileloadd tmm6, [{b} + {b_row} + ", $at, "]\n")
    };
    (1, $at:expr) => {
        concat!("tileloadd tmm7, [{b} + {b_row} + ", $at, " + 1024]\n")
    };
}

/// Asks for eight lines, `$from` bytes after the start of the unit ahead.
macro_rules! ahead {
    ($from:expr) => {
        concat!(
            ahead!(@ $from, "0"), ahead!(@ $from, "64"), ahead!(@ $from, "128"), ahead!(@ $from, "192"),
            ahead!(@ $from, "256"), ahead!(@ $from, "320"), ahead!(@ $from, "384"), ahead!(@ $from, "448"),
        )
    };
    (@ $from:expr, $line:literal) => { concat!("prefetcht0 [{ahead} + ", $from, " + ", $line, "]\n") };
}

/// The products of both rows of tiles with column 0, then with column 1; after each the loads that they leave room for,
/// and requests for eight lines.
macro_rules! by_column {
    ([$($first:expr),*], [$($second:expr),*], $ahead:expr) => {
        concat!(
            "tdpbf16ps tmm0, tmm4, tmm6\n", "tdpbf16ps tmm2, tmm5, tmm6\n",
            $($first,)* ahead!($ahead),
            "tdpbf16ps tmm1, tmm4, tmm7\n", "tdpbf16ps tmm3, tmm5, tmm7\n",
            $($second,)* ahead!(concat!($ahead, " + 512")),
        )
    };
}

/// The same, row by row.
macro_rules! by_row {
    ([$($first:expr),*], [$($second:expr),*], $ahead:expr) => {
        concat!(
            "tdpbf16ps tmm0, tmm4, tmm6\n", "tdpbf16ps tmm1, tmm4, tmm7\n",
            $($first,)* ahead!($ahead),
            "tdpbf16ps tmm2, tmm5, tmm6\n", "tdpbf16ps tmm3, tmm5, tmm7\n",
            $($second,)* ahead!(concat!($ahead, " + 512")),
        )
    };
}

/// A step in depth but for its last products: [`crate::simd::bf16::THIRDS`] in their order. `$a` and `$b` are its bytes
/// from the unit's start. The first thirds are there; others are loaded as soon as their registers are free, two
/// products before they are wanted. Meanwhile lines of the unit of the left operand that comes next, from `$ahead` on,
/// are asked for.
macro_rules! step {
    ($a:literal, $b:literal, $ahead:literal) => {
        concat!(
            by_column!([right!(0, concat!($b, " + 4096"))], [right!(1, concat!($b, " + 4096"))], $ahead),
            by_row!([left!(0, concat!($a, " + 2048"))], [left!(1, concat!($a, " + 2048"))], concat!($ahead, " + 1024")),
            by_column!([right!(0, $b)], [right!(1, $b)], concat!($ahead, " + 2048")),
            by_row!([left!(0, concat!($a, " + 4096"))], [left!(1, concat!($a, " + 4096"))], concat!($ahead, " + 3072")),
            by_row!([left!(0, $a)], [left!(1, $a)], concat!($ahead, " + 4096")),
        )
    };
}

/// The last products of a step, whose thirds are loaded, and the loads for the first of the step after it.
macro_rules! turn {
    ($a:literal, $b:literal, $ahead:literal) => {
        by_row!([left!(0, $a)], [left!(1, $a), right!(0, $b), right!(1, $b)], $ahead)
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
            let third = row.checked_mul(3);
            assert!(third.is_some_and(|row| left.holds(before, row, 3 * BLOCK)), "all rows of all units");
        }
        let to = sums.0.as_mut_ptr();
        let (from, from_row, below) = match start {
            Origin::Row(row) => (row.as_ptr(), 0, row.as_ptr()),
            Origin::Sums => {
                (to.cast_const().cast(), size_of::<[f32; BLOCK]>(), to.cast_const().wrapping_add(TILE).cast())
            }
        };
        let (a, next) = (
            left.cells.as_ptr().wrapping_add(row.wrapping_mul(3)),
            left.cells.as_ptr().wrapping_add(next.wrapping_mul(3)),
        );
        let (b, stride) = (right.as_ptr(), left.bytes_to_next());
        // SAFETY: `self` proves the instructions and eight whole tiles. The start is 32 rows of 128 bytes that are
        // `sums`, or 32 times the same 128 bytes of `row`; the result is `sums`. Unit u of the left operand is 96 rows
        // of 128 bytes from cell u * stride + 3 * row on, which end in `cells` because those of the last unit do
        // (checked above); the right operand is 12 KiB a unit, all of it `right`. Prefetches never fault.
        unsafe {
            asm!(
                "tileloadd tmm0, [{from} + {from_row}]",
                "tileloadd tmm1, [{from} + {from_row} + 64]",
                "tileloadd tmm2, [{below} + {from_row}]",
                "tileloadd tmm3, [{below} + {from_row} + 64]",
                "test {units}, {units}",
                "jz 3f",
                left!(0, "0"),
                left!(1, "0"),
                right!(0, "8192"),
                right!(1, "8192"),
                ".p2align 4",
                "2:",
                "cmp {units}, 1",
                "cmove {ahead}, {next}",
                step!("0", "0", "0"),
                turn!("64", "10240", "5120"),
                step!("64", "2048", "6144"),
                "add {a}, {stride}",
                "add {b}, 12288",
                "dec {units}",
                "jz 4f",
                turn!("0", "8192", "11264"),
                "add {ahead}, {stride}",
                "jmp 2b",
                "4:",
                by_row!([], [], "11264"),
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
