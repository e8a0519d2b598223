//! Random rows: what an embedding table asks of memory. Reading them (look-up) and adding to them in place (update).
//!
//! A row's lines are asked for some rows ahead of their use; the best distance depends on the machine, so a few are
//! tried and the fastest counts. Rows are uniform over the whole field: a cache of a quarter of the field serves up to
//! a quarter of them, which is part of the limit as any table of that size would see it.

use std::ops::Range;
use std::time::Instant;

use serde::Serialize;

use super::Rate;
use super::memory::{Field, shares};
use super::stream::horizontal;
use crate::base::even_part;
use crate::base::rng::{Random, Stream};
use crate::machine::team::Team;
use crate::simd::{Kernel, Simd};
use crate::sync::{Line, Rows};

/// Which bytes [`Field::gather`] counts.
pub const GATHER_FORMULA: &str = "rows x row bytes / s (4-byte row numbers, read in order, not counted)";
/// Which bytes [`Field::update`] counts.
pub const UPDATE_FORMULA: &str = "2 x rows x row bytes / s (each row read once, written once)";

/// The distances, in rows, that are tried.
pub const AHEAD: [usize; 7] = [0, 4, 8, 16, 32, 64, 128];

/// Rows whose sums stay exact in f32.
const GROUP: usize = 256;

/// The longest row: longer ones are streams.
const LONGEST_ROW_BYTES: usize = 16 << 10;

/// A measurement on random rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gathered {
    /// GB/s at the best distance.
    pub rate: Rate,
    /// The distance in rows between a prefetch and the row's use.
    pub ahead: usize,
    /// Bytes of a row.
    pub row_bytes: usize,
}

/// Asks for all lines of the row `ahead` of position `at`.
#[inline(always)]
fn prefetch<S: Simd>(simd: S, cells: &[f32], width: usize, rows: &[u32], at: usize) {
    if let Some(&row) = rows.get(at) {
        for line in cells[row as usize * width..][..width].chunks_exact(Line::FLOATS) {
            simd.prefetch(line);
        }
    }
}

/// The sum of all cells of some rows.
struct Gather<'a> {
    cells: &'a [f32],
    width: usize,
    rows: &'a [u32],
    ahead: usize,
}

impl Kernel for Gather<'_> {
    type Out = f64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        let Self { cells, width, rows, ahead } = self;
        let mut total = 0.0;
        for first in (0..rows.len()).step_by(GROUP) {
            let mut sums = [simd.splat(0.0); 4];
            for at in first..rows.len().min(first + GROUP) {
                if ahead > 0 {
                    prefetch(simd, cells, width, rows, at + ahead);
                }
                let row = &cells[rows[at] as usize * width..][..width];
                let fours = row.chunks_exact(4 * S::LANES);
                for cells in fours.remainder().chunks_exact(S::LANES) {
                    sums[0] = simd.add(sums[0], simd.load(cells));
                }
                for four in fours {
                    for (index, sum) in sums.iter_mut().enumerate() {
                        *sum = simd.add(*sum, simd.load(&four[index * S::LANES..]));
                    }
                }
            }
            total += horizontal(simd, &sums);
        }
        total
    }
}

/// Adds `step` to every cell of some rows.
struct Update<'a> {
    cells: &'a mut [f32],
    width: usize,
    rows: &'a [u32],
    ahead: usize,
    step: f32,
}

impl Kernel for Update<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { cells, width, rows, ahead, step } = self;
        // As SGD does it: row += rate * gradient.
        let (rate, gradient) = (simd.splat(-0.5), simd.splat(-2.0 * step));
        for (at, &row) in rows.iter().enumerate() {
            if ahead > 0 {
                prefetch(simd, cells, width, rows, at + ahead);
            }
            for cells in cells[row as usize * width..][..width].chunks_exact_mut(S::LANES) {
                simd.store(simd.mul_add(rate, gradient, simd.load(cells)), cells);
            }
        }
    }
}

/// Cells of a row of `row_bytes`.
fn width(row_bytes: usize) -> usize {
    assert!(row_bytes > 0 && row_bytes.is_multiple_of(64), "a row of {row_bytes} bytes is no whole cache lines");
    assert!(row_bytes <= LONGEST_ROW_BYTES, "a row of {row_bytes} bytes is a stream");
    row_bytes / size_of::<f32>()
}

/// For each thread as many random numbers below `rows(thread)`.
fn draw(threads: usize, count: usize, rows: impl Fn(usize) -> usize) -> Vec<Vec<u32>> {
    let list = |thread: usize| {
        let random = Random::new(thread as u64, Stream::Sample(2));
        let rows = rows(thread) as u64;
        (0..count as u64).map(|index| random.below(index, rows) as u32).collect()
    };
    (0..threads).map(list).collect()
}

/// Passes of [`best_distance`] over each distance.
const TRIES: usize = 2;

/// The distance whose fastest pass over a part of `count` rows is the fastest of all. Each pass has a part of its own,
/// so that no cache still holds its rows.
fn best_distance(count: usize, mut pass: impl FnMut(usize, Range<usize>)) -> usize {
    let parts = AHEAD.len() * TRIES;
    let mut best = (f64::INFINITY, 0);
    for part in 0..parts {
        let ahead = AHEAD[part % AHEAD.len()];
        let start = Instant::now();
        pass(ahead, even_part(count, part, parts));
        let seconds = start.elapsed().as_secs_f64();
        if seconds < best.0 {
            best = (seconds, ahead);
        }
    }
    best.1
}

/// Bytes that [`Field::gather`] counts where each thread visits so many rows.
const fn gathered_bytes(count: usize, threads: usize, row_bytes: usize) -> usize {
    count * threads * row_bytes
}

/// Bytes that [`Field::update`] counts of the same rows.
const fn updated_bytes(count: usize, threads: usize, row_bytes: usize) -> usize {
    2 * gathered_bytes(count, threads, row_bytes)
}

impl Field {
    /// Reads random rows of `row_bytes` bytes, every thread from the whole field: [`GATHER_FORMULA`]. A pass reads as
    /// many bytes as half the field.
    ///
    /// # Panics
    /// When a sum is wrong, or `row_bytes` is no multiple of 64 up to 16 KiB.
    pub fn gather(&self, team: &Team, row_bytes: usize) -> Gathered {
        let (cells, width, threads, isa) = (self.cells(), width(row_bytes), team.threads(), team.isa());
        let count = (self.bytes() / row_bytes / 2 / threads).max(1);
        let lists = draw(threads, count, |_| cells.len() / width);
        let pass = |ahead: usize, part: Range<usize>| {
            shares(team, |thread| isa.run(Gather { cells, width, rows: &lists[thread][part.clone()], ahead }))
        };
        let ahead = best_distance(count, |ahead, part| {
            pass(ahead, part);
        });
        let row_sum = |row: &u32| cells[*row as usize * width..][..width].iter().map(|&x| f64::from(x)).sum::<f64>();
        let expected = shares(team, |thread| lists[thread].iter().map(row_sum).sum());
        let rate = Rate::measure(gathered_bytes(count, threads, row_bytes) as f64, || {
            assert_eq!(pass(ahead, 0..count), expected, "every row is read once");
        });
        Gathered { rate, ahead, row_bytes }
    }

    /// Adds to random rows of `row_bytes` bytes in place, every thread in its own share of the field:
    /// [`UPDATE_FORMULA`]. Passes add and subtract 1 in turn.
    ///
    /// # Panics
    /// When the sum over the field is wrong afterwards, or `row_bytes` is no multiple of 64 up to 16 KiB.
    pub fn update(&mut self, team: &Team, row_bytes: usize) -> Gathered {
        let (width, threads, isa) = (width(row_bytes), team.threads(), team.isa());
        let before = self.sum(team);
        let cells = self.cells_mut();
        let rows = cells.len() / width;
        let whole = rows * width;
        let height = rows.div_ceil(threads);
        let count = (size_of_val(cells) / row_bytes / 2 / threads).max(1);
        // The bands that `Rows` makes: all of the same height but the last.
        let lists = draw(threads, count, |thread| height.min(rows.saturating_sub(thread * height)));
        let (mut step, mut net) = (1.0, 0.0);
        let mut pass = |ahead: usize, part: Range<usize>| {
            let bands = Rows::new(&mut cells[..whole], width, threads, 1);
            let visited = crate::sync::Parts::len(&bands);
            team.each(bands, |band| {
                let rows = &lists[band.first / height][part.clone()];
                isa.run(Update { cells: band.data, width, rows, ahead, step });
            });
            net += f64::from(step) * (visited * part.len() * width) as f64;
            step = -step;
        };
        let ahead = best_distance(count, &mut pass);
        let rate = Rate::measure(updated_bytes(count, threads, row_bytes) as f64, || pass(ahead, 0..count));
        assert_eq!(self.sum(team), before + net, "every update arrived once");
        Gathered { rate, ahead, row_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_count_once_where_they_are_read_and_twice_where_they_change() {
        assert_eq!([gathered_bytes(10, 3, 256), updated_bytes(10, 3, 256)], [7_680, 15_360]);
    }
}
