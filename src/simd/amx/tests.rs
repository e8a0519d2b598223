//! The tile instructions against their definition, to the bit, and the edges of what they read.

use super::*;
use crate::base::requirement::required;
use crate::base::rng::{Random, Stream};
use crate::simd::bf16::{dot_thirds, dot_tile};

fn amx() -> Option<Amx> {
    required("amx-bf16", Amx::detect().ok_or("not detected"))
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// A pair of bfloat16, or a sum where `sum`: any bits, special values among ordinary ones, products near the least
/// normal number (in all steps, or in few, so that sums end there), and numbers near 1, where rounding shows.
fn draw([a, b, c, _]: [u32; 4], kind: u64, sum: bool) -> u32 {
    const SPECIAL: [u32; 20] = [
        0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x0081, 0x8080, 0x3f80, 0xbf80, 0x7f7f, 0xff7f, 0x7f80, 0xff80,
        0x7fc0, 0x7f81, 0x0100, 0x2000, 0x1f80, 0x2080,
    ];
    let special = |kinds: usize| SPECIAL[b as usize % kinds] << 16 | SPECIAL[c as usize % kinds];
    let small = (b & 0x807f_807f) | (0x1c00_1c00 + (b >> 8 & 0x0f80) + (c >> 8 & 0x0f80 << 16));
    let near_one = (b & 0x807f_807f) | (0x3f00_3f00 + (c & 0x0180_0180));
    match (kind, sum) {
        (0, _) => b,
        (1, true) => b & 0x80ff_ffff,
        (1, false) if a.is_multiple_of(8) => special(20),
        (2 | 3, true) => (a & 0x807f_ffff) | (b % 4) << 23,
        (2, false) => small,
        (3, false) => [small, 0, 0x8000_0000, 0x8000][a as usize % 4],
        (4, true) => b & 0x8000_0000,
        (4, false) => {
            if a.is_multiple_of(5) {
                special(12)
            } else {
                0
            }
        }
        (_, true) => (a & 0x807f_ffff) | (0x7a + b % 8) << 23,
        (_, false) => near_one,
    }
}

/// Rows of the left operand, a unit of the right one and sums, all of one kind.
fn operands(random: &Random, round: u64) -> ([Pairs; BLOCK], Packed, Sums) {
    let mut at = round * 4 * BLOCK as u64 * BLOCK as u64;
    let mut next = |sum| {
        at += 1;
        draw(random.block(at), round % 6, sum)
    };
    let left = std::array::from_fn(|_| std::array::from_fn(|_| next(false)));
    let right =
        std::array::from_fn(|_| std::array::from_fn(|_| std::array::from_fn(|_| std::array::from_fn(|_| next(false)))));
    (left, right, Sums(std::array::from_fn(|_| std::array::from_fn(|_| f32::from_bits(next(true))))))
}

/// What element (i, j) of a block must be after one unit.
fn expected(left: &[Pairs; BLOCK], right: &Packed, i: usize, j: usize, sum: f32) -> f32 {
    (0..2).fold(sum, |sum, step| {
        let b = std::array::from_fn(|d| right[step][j / TILE][d][j % TILE]);
        dot_tile(left[i][step * TILE..].first_chunk().unwrap(), &b, sum)
    })
}

#[test]
fn the_instruction_gives_the_bits_of_the_definition() {
    let Some(amx) = amx() else { return };
    let (random, tiles) = (Random::new(17, Stream::Label), amx.tiles());
    // A million sums of 64 products.
    for round in 0..1000 {
        let (left, right, mut sums) = operands(&random, round);
        let before = sums;
        let source = Left { cells: &left, stride: BLOCK };
        tiles.multiply::<2, 2>(&mut sums, Origin::Sums, source, [0, 0], &[right]);
        for i in 0..BLOCK {
            for j in 0..BLOCK {
                let expected = expected(&left, &right, i, j, before.0[i][j]);
                let (start, found) = (before.0[i][j], sums.0[i][j]);
                assert!(same(found, expected), "round {round}: {start:e} became {found:e}, not {expected:e}");
            }
        }
    }
}

/// M x N tiles over several units, in an operand that ends where the last unit's rows do.
fn tiles_of<const M: usize, const N: usize>(amx: Amx) {
    let (random, tiles) = (Random::new(18, Stream::Label), amx.tiles());
    for units in [0, 1, 2, 5] {
        let stride = 50;
        let mut cells = vec![[0; UNIT]; units.max(1) * stride - stride + 3 + M * TILE];
        let mut right = Vec::new();
        let mut all = Vec::new();
        for unit in 0..units {
            let (left, packed, _) = operands(&random, 5 + 6 * unit as u64);
            cells[unit * stride + 3..][..M * TILE].copy_from_slice(&left[..M * TILE]);
            right.push(packed);
            all.push(left);
        }
        let row: [f32; BLOCK] = std::array::from_fn(|j| j as f32 - 7.5);
        for origin in [Origin::Row(&row), Origin::Sums] {
            let start = Sums(std::array::from_fn(|i| std::array::from_fn(|j| (i * 32 + j) as f32)));
            let mut sums = start;
            tiles.multiply::<M, N>(&mut sums, origin, Left { cells: &cells, stride }, [3, 0], &right);
            for (i, j) in (0..BLOCK).flat_map(|i| (0..BLOCK).map(move |j| (i, j))) {
                let start = if let Origin::Row(row) = origin { row[j] } else { start.0[i][j] };
                let inside = i < M * TILE && j < N * TILE;
                let pairs = all.iter().zip(&right).filter(|_| inside);
                let expected = pairs.fold(start, |sum, (left, right)| expected(left, right, i, j, sum));
                assert_eq!(sums.0[i][j].to_bits(), expected.to_bits(), "{M} x {N}, {units} units, ({i}, {j})");
            }
        }
    }
}

#[test]
fn every_number_of_tiles_and_units_is_right() {
    let Some(amx) = amx() else { return };
    tiles_of::<2, 2>(amx);
    tiles_of::<1, 2>(amx);
    tiles_of::<2, 1>(amx);
    tiles_of::<1, 1>(amx);
}

#[test]
fn thirds_give_the_bits_of_their_definition() {
    let Some(amx) = amx() else { return };
    let (random, tiles) = (Random::new(19, Stream::Label), amx.tiles());
    for (kind, units) in (0..6u64).flat_map(|kind| [0, 1, 2, 3].map(|units| (kind, units))) {
        let (row, stride) = (16, 3 * (BLOCK + 16) + 5);
        let mut cells = vec![[0; UNIT]; units.max(1) * stride - stride + 3 * (row + BLOCK)];
        let (mut right, mut lefts) = (Vec::new(), Vec::new());
        for unit in 0..units {
            let parts = [0, 1, 2].map(|part| operands(&random, kind + 6 * (3 * unit as u64 + part)));
            for (part, (left, packed, _)) in parts.iter().enumerate() {
                for (i, pairs) in left.iter().enumerate() {
                    cells[unit * stride + 3 * (row + i / TILE * TILE) + part * THIRD + i % TILE] = *pairs;
                }
                right.push(*packed);
            }
            lefts.push(parts.map(|(left, ..)| left));
        }
        let bias: [f32; BLOCK] = std::array::from_fn(|j| j as f32 - 7.5);
        for origin in [Origin::Row(&bias), Origin::Sums] {
            let start = Sums(std::array::from_fn(|i| std::array::from_fn(|j| (i * 32 + j) as f32)));
            let mut sums = start;
            tiles.multiply_thirds(&mut sums, origin, Left { cells: &cells, stride }, [row, 0], &right);
            for (i, j) in (0..BLOCK).flat_map(|i| (0..BLOCK).map(move |j| (i, j))) {
                let start = if let Origin::Row(bias) = origin { bias[j] } else { start.0[i][j] };
                let steps = lefts.iter().zip(right.chunks(3)).flat_map(|unit| [(unit, 0), (unit, 1)]);
                let expected = steps.fold(start, |sum, ((left, right), step)| {
                    let a = [0, 1, 2].map(|part: usize| *left[part][i][step * TILE..].first_chunk().unwrap());
                    let b =
                        [0, 1, 2].map(|part: usize| std::array::from_fn(|d| right[part][step][j / TILE][d][j % TILE]));
                    dot_thirds(&a, &b, sum)
                });
                assert!(same(sums.0[i][j], expected), "kind {kind}, {units} units, ({i}, {j})");
            }
        }
    }
}

#[test]
#[should_panic(expected = "all rows of all units")]
fn operands_are_not_read_past_their_end() {
    let Some(amx) = amx() else { panic!("all rows of all units: not run") };
    let cells = vec![[0; UNIT]; 2 * BLOCK - 1];
    let mut sums = Sums([[0.0; BLOCK]; BLOCK]);
    let left = Left { cells: &cells, stride: BLOCK };
    amx.tiles().multiply::<2, 2>(&mut sums, Origin::Sums, left, [0, 0], &[[[[[0; TILE]; TILE]; 2]; 2]; 2]);
}

#[test]
fn other_threads_may_use_tiles_too() {
    let Some(amx) = amx() else { return };
    let work = move || {
        let (left, right) = ([[0x3f80_3f80; UNIT]; BLOCK], [[[[0x4000_4000; TILE]; TILE]; 2]; 2]);
        let mut sums = Sums([[0.0; BLOCK]; BLOCK]);
        let source = Left { cells: &left, stride: BLOCK };
        amx.tiles().multiply::<2, 2>(&mut sums, Origin::Sums, source, [0, 0], &[right]);
        sums.0.as_flattened().iter().all(|&sum| sum == 128.0)
    };
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(work)).collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}

#[test]
#[should_panic(expected = "this thread holds its tiles already")]
fn a_thread_has_one_proof_of_its_tiles() {
    let Some(amx) = amx() else { panic!("this thread holds its tiles already: not tried without tiles") };
    // One after the other is fine.
    drop(amx.tiles());
    let _first = amx.tiles();
    let _second = amx.tiles();
}

#[test]
#[should_panic(expected = "all rows of all units")]
fn a_left_operand_whose_end_wraps_is_refused() {
    let Some(amx) = amx() else { panic!("all rows of all units: not tried without tiles") };
    // The last of 17 units begins at row 2^64, which is 0 where products wrap.
    let cells = [[0; UNIT]; BLOCK];
    let left = Left { cells: &cells, stride: 1 << 60 };
    let mut sums = Sums([[0.0; BLOCK]; BLOCK]);
    amx.tiles().multiply::<2, 2>(&mut sums, Origin::Sums, left, [0, 0], &[[[[[0; TILE]; TILE]; 2]; 2]; 17]);
}

#[test]
#[should_panic(expected = "all rows of all units")]
fn rows_of_thirds_that_wrap_are_refused() {
    let Some(amx) = amx() else { panic!("all rows of all units: not tried without tiles") };
    // Three times this row is 32 where products wrap.
    let cells = [[0; UNIT]; 32 + 3 * BLOCK];
    let row = TILE * (1usize << 60).div_ceil(3);
    assert_eq!(row.wrapping_mul(3), 32);
    let left = Left { cells: &cells, stride: 0 };
    let mut sums = Sums([[0.0; BLOCK]; BLOCK]);
    amx.tiles().multiply_thirds(&mut sums, Origin::Sums, left, [row, 0], &[[[[[0; TILE]; TILE]; 2]; 2]; 3]);
}
