//! AMX-BF16: products of whole tiles of bfloat16. All other operations are those of AVX512-BF16.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18 and volume 2, LDTILECFG,
//! TILELOADD and TDPBF16PS. A tile has 16 rows of 64 bytes. One instruction adds to 16 x 16 sums the products of 16
//! rows of 16 pairs with 16 pairs of 16 columns, as [`super::bf16::dot_tile`] defines it.
//!
//! The instructions are written out, because the compiler's names for them are not stable; the assembler knows them
//! whatever the processor. Only whole tiles are multiplied: tails are padded with zeros in memory, so one configuration
//! serves for all. Loading it takes longer than a tile product, so a thread loads it once a pass and holds [`Tiles`]
//! meanwhile; afterwards the tiles are released, lest the system saves 8 KiB with every switch of threads.
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::avx512_bf16::Avx512Bf16;
use crate::ffi::linux::permit_tile_data;

/// Rows and columns of a tile of sums, and pairs of a step in depth.
pub const TILE: usize = 16;
/// Rows and columns of a block of sums: 2 x 2 tiles, which take half of the registers.
pub const BLOCK: usize = 2 * TILE;
/// Pairs of a unit of depth: two steps, as many as a row of a panel of 64 bfloat16 has.
pub const UNIT: usize = 2 * TILE;

/// A row of the left operand of one unit: 32 pairs.
pub type Pairs = [u32; UNIT];
/// 16 rows of 16 pairs.
pub type Tile = [[u32; TILE]; TILE];
/// A unit of the right operand for 32 columns: for each of two steps two tiles, each of 16 rows of 16 columns' pairs.
pub type Packed = [[Tile; 2]; 2];

/// Sums of a block.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub struct Sums(pub [[f32; BLOCK]; BLOCK]);

/// Proof that this process may use AMX-BF16, beside all that `Avx512Bf16` proves.
#[derive(Clone, Copy)]
pub struct Amx(Avx512Bf16);

/// What the processor says of itself in a leaf.
fn cpuid(leaf: u32, sub_leaf: u32) -> CpuidResult {
    // SAFETY: every processor with x86-64 has the instruction. Rust before 1.94 asks for this proof.
    #[allow(unused_unsafe)]
    unsafe {
        __cpuid_count(leaf, sub_leaf)
    }
}

/// Whether processor and system know the tiles: their bfloat16 products, and their state in a thread's.
fn is_present() -> bool {
    const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
    const OSXSAVE: u32 = 1 << 27;
    const TILE_STATE: u64 = 0b11 << 17;
    // Leaf 0x1d describes tiles; some hypervisors pass the instructions on and hide it. Then there is palette 1, as
    // always.
    let last = cpuid(0, 0).eax;
    let no_palette = last >= 0x1d && cpuid(0x1d, 0).eax == 0;
    if last < 7 || no_palette || cpuid(1, 0).ecx & OSXSAVE == 0 {
        return false;
    }
    // SAFETY: the system enabled XSAVE (checked above), which makes XGETBV available.
    let enabled = unsafe { std::arch::x86_64::_xgetbv(0) };
    cpuid(7, 0).edx & BF16_AND_TILES == BF16_AND_TILES && enabled & TILE_STATE == TILE_STATE
}

impl Amx {
    /// The proof, where it can be given. The first call asks the system to let this process use tiles.
    #[must_use]
    pub fn detect() -> Option<Self> {
        static AMX: OnceLock<Option<Amx>> = OnceLock::new();
        *AMX.get_or_init(|| {
            let avx512 = Avx512Bf16::detect()?;
            (is_present() && permit_tile_data()).then_some(Self(avx512))
        })
    }

    /// The smaller proof.
    #[must_use]
    pub const fn avx512_bf16(self) -> Avx512Bf16 {
        self.0
    }

    /// Makes this thread's tiles ready.
    ///
    /// # Panics
    /// When this thread holds its tiles already.
    #[must_use]
    pub fn tiles(self) -> Tiles {
        assert!(!HELD.replace(true), "this thread holds its tiles already: a second holder would release them");
        let mut bytes = [0; 64];
        bytes[0] = 1;
        for tile in 0..8 {
            bytes[16 + 2 * tile] = 64;
            bytes[48 + tile] = TILE as u8;
        }
        let configuration = Configuration(bytes);
        // SAFETY: `self` proves the instruction and the permission; palette 1 has 8 tiles of 16 rows of 64 bytes. No
        // other `Tiles` of this thread relies on what its tiles hold.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const configuration.0, options(nostack, readonly, preserves_flags));
        }
        Tiles(PhantomData)
    }
}

/// What LDTILECFG reads.
#[repr(align(64))]
struct Configuration([u8; 64]);

thread_local! {
    /// Whether this thread has a [`Tiles`].
    static HELD: Cell<bool> = const { Cell::new(false) };
}

/// Proof that this thread's tiles are configured, 16 rows of 64 bytes each; it stays on its thread, which has no other.
#[derive(Debug)]
pub struct Tiles(PhantomData<*const ()>);

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `self` proves the instruction, and as the thread's only one that nobody relies on the tiles any more.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) }
        HELD.set(false);
    }
}

/// What sums start from.
#[derive(Debug, Clone, Copy)]
pub enum Origin<'a> {
    /// All rows from this one.
    Row(&'a [f32; BLOCK]),
    /// From what is there.
    Sums,
}

/// A left operand: `[depth unit][row]`, 32 pairs each, a unit `stride` rows after the one before.
#[derive(Debug, Clone, Copy)]
pub struct Left<'a> {
    /// All units.
    pub cells: &'a [Pairs],
    /// Rows from a unit to the next.
    pub stride: usize,
}

impl Left<'_> {
    /// Whether `rows` rows from `row` on are there, also those of the unit `units` behind the first.
    #[inline]
    fn holds(&self, units: usize, row: usize, rows: usize) -> bool {
        let end = units.checked_mul(self.stride).and_then(|start| start.checked_add(row)?.checked_add(rows));
        end.is_some_and(|end| end <= self.cells.len())
    }

    /// Bytes from a unit to the next; wrapping, because a single unit has no next, whatever its stride.
    #[inline]
    const fn bytes_to_next(&self) -> usize {
        self.stride.wrapping_mul(size_of::<Pairs>())
    }
}

/// Asks for so many lines, `$from + $more` bytes after the start of the unit ahead.
macro_rules! ahead {
    ($from:literal, $more:literal, 16) => { concat!(ahead!($from, $more, 8), ahead!($from, $more, "512", 8)) };
    ($from:literal, $more:literal, 8) => { ahead!($from, $more, "0", 8) };
    ($from:literal, $more:literal, $at:literal, 8) => {
        concat!(
            ahead!(@ $from, $more, $at, "0"), ahead!(@ $from, $more, $at, "64"),
            ahead!(@ $from, $more, $at, "128"), ahead!(@ $from, $more, $at, "192"),
            ahead!(@ $from, $more, $at, "256"), ahead!(@ $from, $more, $at, "320"),
            ahead!(@ $from, $more, $at, "384"), ahead!(@ $from, $more, $at, "448"),
        )
    };
    (@ $from:literal, $more:literal, $at:literal, $line:literal) => {
        concat!("prefetcht0 [{ahead} + ", $from, " + ", $more, " + ", $at, " + ", $line, "]\n")
    };
}

/// One step in depth of M x N tiles: `$a` and `$b` are its bytes from the unit's start. Meanwhile half of the lines of
/// the unit of the left operand that comes next, from `$ahead` on, are asked for.
macro_rules! step {
    (2, 2, $a:literal, $b:literal, $ahead:literal) => {
        concat!(
            "tileloadd tmm6, [{b} + {b_row} + ",
            $b,
            "]\n",
            "tileloadd tmm4, [{a} + {a_row} + ",
            $a,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            ahead!($ahead, "0", 8),
            "tileloadd tmm7, [{b} + {b_row} + ",
            $b,
            " + 1024]\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            ahead!($ahead, "512", 8),
            "tileloadd tmm5, [{a} + {a_row} + ",
            $a,
            " + 2048]\n",
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            ahead!($ahead, "1024", 8),
            "tdpbf16ps tmm3, tmm5, tmm7\n",
            ahead!($ahead, "1536", 8),
        )
    };
    (1, 2, $a:literal, $b:literal, $ahead:literal) => {
        concat!(
            "tileloadd tmm6, [{b} + {b_row} + ",
            $b,
            "]\n",
            "tileloadd tmm4, [{a} + {a_row} + ",
            $a,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            ahead!($ahead, "0", 8),
            "tileloadd tmm7, [{b} + {b_row} + ",
            $b,
            " + 1024]\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            ahead!($ahead, "512", 8),
        )
    };
    (2, 1, $a:literal, $b:literal, $ahead:literal) => {
        concat!(
            "tileloadd tmm6, [{b} + {b_row} + ",
            $b,
            "]\n",
            "tileloadd tmm4, [{a} + {a_row} + ",
            $a,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            ahead!($ahead, "0", 16),
            "tileloadd tmm5, [{a} + {a_row} + ",
            $a,
            " + 2048]\n",
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            ahead!($ahead, "1024", 16),
        )
    };
    (1, 1, $a:literal, $b:literal, $ahead:literal) => {
        concat!(
            "tileloadd tmm6, [{b} + {b_row} + ",
            $b,
            "]\n",
            "tileloadd tmm4, [{a} + {a_row} + ",
            $a,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            ahead!($ahead, "0", 16),
        )
    };
}

/// The loop over units of M x N tiles.
macro_rules! multiply {
    ($m:tt, $n:tt, $from:expr, $from_row:expr, $below:expr, $a:expr, $stride:expr, $next:expr, $b:expr, $units:expr, $to:expr) => {
        // SAFETY: the `Tiles` of `multiply` prove the instructions and eight whole tiles. The start is 32 rows of 128
        // bytes that are `sums`, or 32 times the same 128 bytes of `row`; the result is `sums`. Unit u of the left
        // operand is 16 M rows of 128 bytes from cell u * stride + row on, which end in `cells` because those of the
        // last unit do (checked there); the right operand is 4 KiB a unit, all of it `right`. Prefetches never fault.
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
                step!($m, $n, "0", "0", "0"),
                step!($m, $n, "64", "2048", "2048"),
                "add {a}, {stride}",
                "add {ahead}, {stride}",
                "add {b}, 4096",
                "dec {units}",
                "jnz 2b",
                "3:",
                "tilestored [{to} + {a_row}], tmm0",
                "tilestored [{to} + {a_row} + 64], tmm1",
                "tilestored [{to} + {a_row} + 2048], tmm2",
                "tilestored [{to} + {a_row} + 2112], tmm3",
                from = in(reg) $from,
                from_row = in(reg) $from_row,
                below = in(reg) $below,
                a = inout(reg) $a => _,
                a_row = in(reg) size_of::<Pairs>(),
                stride = in(reg) $stride,
                b = inout(reg) $b => _,
                ahead = inout(reg) $a.wrapping_byte_add($stride) => _,
                next = in(reg) $next,
                b_row = in(reg) size_of::<[u32; TILE]>(),
                units = inout(reg) $units => _,
                to = in(reg) $to,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            )
        }
    };
}

impl Tiles {
    /// Adds to M x N tiles of `sums` the products of 16 M rows of `left` from `row` on with 16 N columns of `right`,
    /// unit by unit of depth. Other elements of `sums` become their start. The first unit of the rows from `next` on is
    /// brought to L1 meanwhile.
    ///
    /// # Panics
    /// When the left operand has less than that.
    #[inline]
    pub fn multiply<const M: usize, const N: usize>(
        &self,
        sums: &mut Sums,
        start: Origin<'_>,
        left: Left<'_>,
        [row, next]: [usize; 2],
        right: &[Packed],
    ) {
        const { assert!(1 <= M && M <= 2 && 1 <= N && N <= 2, "a block has 2 x 2 tiles") }
        if let Some(before) = right.len().checked_sub(1) {
            assert!(left.holds(before, row, TILE * M), "all rows of all units");
        }
        let to = sums.0.as_mut_ptr();
        let (from, from_row, below) = match start {
            Origin::Row(row) => (row.as_ptr(), 0, row.as_ptr()),
            Origin::Sums => {
                (to.cast_const().cast(), size_of::<[f32; BLOCK]>(), to.cast_const().wrapping_add(TILE).cast())
            }
        };
        let (a, next) = (left.cells.as_ptr().wrapping_add(row), left.cells.as_ptr().wrapping_add(next));
        let (b, stride, units) = (right.as_ptr(), left.bytes_to_next(), right.len());
        match (M, N) {
            (2, 2) => multiply!(2, 2, from, from_row, below, a, stride, next, b, units, to),
            (1, 2) => multiply!(1, 2, from, from_row, below, a, stride, next, b, units, to),
            (2, 1) => multiply!(2, 1, from, from_row, below, a, stride, next, b, units, to),
            _ => multiply!(1, 1, from, from_row, below, a, stride, next, b, units, to),
        }
    }
}

impl Tiles {
    /// `steps` times: `a` times the first of `b`, then `a` times the second, is added to each of the four tiles of
    /// `sums`, none of which leaves its register: eight tile products a step, nothing else.
    pub fn swing(&self, sums: &mut Sums, a: &Tile, b: &[Tile; 2], steps: usize) {
        let to = sums.0.as_mut_ptr();
        // SAFETY: `self` proves the instructions and eight whole tiles; `sums` is 32 rows of 128 bytes, `a` and each of
        // `b` 16 rows of 64 bytes.
        unsafe {
            asm!(
                "tileloadd tmm0, [{to} + {wide}]",
                "tileloadd tmm1, [{to} + {wide} + 64]",
                "tileloadd tmm2, [{to} + {wide} + 2048]",
                "tileloadd tmm3, [{to} + {wide} + 2112]",
                "tileloadd tmm4, [{a} + {narrow}]",
                "tileloadd tmm6, [{b} + {narrow}]",
                "tileloadd tmm7, [{b} + {narrow} + 1024]",
                "test {steps}, {steps}",
                "jz 3f",
                "2:",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm6",
                "tdpbf16ps tmm2, tmm4, tmm6",
                "tdpbf16ps tmm3, tmm4, tmm6",
                "tdpbf16ps tmm0, tmm4, tmm7",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm4, tmm7",
                "tdpbf16ps tmm3, tmm4, tmm7",
                "dec {steps}",
                "jnz 2b",
                "3:",
                "tilestored [{to} + {wide}], tmm0",
                "tilestored [{to} + {wide} + 64], tmm1",
                "tilestored [{to} + {wide} + 2048], tmm2",
                "tilestored [{to} + {wide} + 2112], tmm3",
                to = in(reg) to,
                wide = in(reg) size_of::<[f32; BLOCK]>(),
                a = in(reg) a,
                b = in(reg) b,
                narrow = in(reg) size_of::<[u32; TILE]>(),
                steps = inout(reg) steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

mod thirds;

pub use thirds::THIRD;

#[cfg(test)]
mod tests;
