//! Streams: reading all of a field, and copying its first half to its second with and without the caches.

use super::Rate;
use super::memory::{BLOCK, Field, share, shares};
use crate::machine::team::Team;
use crate::simd::{Kernel, Simd};
use crate::sync::{Line, Rows};

/// Which bytes [`Field::read`] counts.
pub const READ_FORMULA: &str = "bytes read / s";
/// Which bytes [`Field::copy`] counts.
pub const COPY_FORMULA: &str =
    "2 x bytes copied / s (read once, written once; lines fetched to be written not counted)";
/// Which bytes [`Field::stream_copy`] counts.
pub const STREAM_COPY_FORMULA: &str = "2 x bytes copied / s (read once, written past the caches)";

/// Cells of the source of [`Field::write`]: 16 KiB, half of a first-level cache.
pub(super) const SOURCE: usize = 4 << 10;

/// What is written: small whole numbers.
pub(super) fn source() -> Vec<f32> {
    (0..SOURCE).map(|cell| (cell % 251) as f32).collect()
}

/// Running sums of [`Sum`]; more than the latency of an addition times two a cycle.
const SUMS: usize = 8;

/// The sum of whole numbers, exact: in f32 within blocks, in f64 across them.
pub(super) struct Sum<'a> {
    pub cells: &'a [f32],
}

impl Kernel for Sum<'_> {
    type Out = f64;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f64 {
        let mut total = 0.0;
        for block in self.cells.chunks(BLOCK) {
            let mut sums = [simd.splat(0.0); SUMS];
            let chunks = block.chunks_exact(SUMS * S::LANES);
            total += chunks.remainder().iter().map(|&x| f64::from(x)).sum::<f64>();
            for chunk in chunks {
                for (sum, cells) in sums.iter_mut().zip(chunk.chunks_exact(S::LANES)) {
                    *sum = simd.add(*sum, simd.load(cells));
                }
            }
            total += horizontal(simd, &sums);
        }
        total
    }
}

/// The sum of all lanes.
#[inline(always)]
pub(super) fn horizontal<S: Simd>(simd: S, sums: &[S::V]) -> f64 {
    let mut lanes = [0.0; 16];
    let mut total = 0.0;
    for sum in sums {
        simd.store(*sum, &mut lanes);
        total += lanes[..S::LANES].iter().map(|&x| f64::from(x)).sum::<f64>();
    }
    total
}

/// `to = from`.
pub(super) struct Copy<'a> {
    pub from: &'a [f32],
    pub to: &'a mut [f32],
    pub past_caches: bool,
}

impl Kernel for Copy<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { from, to, past_caches } = self;
        if past_caches {
            simd.stream(to, |index| simd.load(&from[index * S::LANES..]));
        } else {
            for (to, from) in to.chunks_exact_mut(S::LANES).zip(from.chunks_exact(S::LANES)) {
                simd.store(simd.load(from), to);
            }
        }
    }
}

/// Bytes that [`Field::copy`] counts where these cells are copied: each is read and written.
fn copied_bytes(from: &[f32]) -> usize {
    2 * size_of_val(from)
}

impl Field {
    /// Reads all cells once a pass, each thread its own share: [`READ_FORMULA`].
    ///
    /// # Panics
    /// When a pass reads something else than the pass before.
    pub fn read(&self, team: &Team) -> Rate {
        let (cells, threads) = (self.cells(), team.threads());
        let expected =
            shares(team, |thread| share(cells, Line::FLOATS, thread, threads).iter().map(|&x| f64::from(x)).sum());
        Rate::measure(self.bytes() as f64, || assert_eq!(self.sum(team), expected, "a pass reads every cell"))
    }

    /// Copies the first half to the second once a pass: [`COPY_FORMULA`].
    ///
    /// # Panics
    /// When the halves differ afterwards.
    pub fn copy(&mut self, team: &Team) -> Rate {
        self.copying(team, false)
    }

    /// Copies the first half to the second with non-temporal stores: [`STREAM_COPY_FORMULA`]. Portable code has no
    /// such stores and copies as [`Field::copy`] does.
    ///
    /// # Panics
    /// When the halves differ afterwards.
    pub fn stream_copy(&mut self, team: &Team) -> Rate {
        self.copying(team, true)
    }

    /// Writes all cells once a pass with non-temporal stores, each thread its own share, out of its cache: what a team
    /// on one node can give to the memory of another. Counts the bytes that are written, not those of the source.
    ///
    /// # Panics
    /// When a cell did not arrive.
    pub fn write(&mut self, team: &Team) -> Rate {
        let (threads, isa) = (team.threads(), team.isa());
        let source = source();
        let cells = self.cells_mut();
        let rate = Rate::measure(size_of_val(&*cells) as f64, || {
            team.each(Rows::new(&mut *cells, Line::FLOATS, threads, 1), |band| {
                for to in band.data.chunks_mut(SOURCE) {
                    isa.run(Copy { from: &source[..to.len()], to, past_caches: true });
                }
            });
        });
        team.each(Rows::new(&mut *cells, Line::FLOATS, threads, 1), |band| {
            let arrived = |cells: &[f32]| cells == &source[..cells.len()];
            assert!(band.data.chunks(SOURCE).all(arrived), "what was written arrived");
        });
        rate
    }

    fn copying(&mut self, team: &Team, past_caches: bool) -> Rate {
        let (threads, isa, half) = (team.threads(), team.isa(), self.cells().len() / 2);
        let (from, to) = self.cells_mut().split_at_mut(half);
        let from = &*from;
        team.each(Rows::new(&mut *to, Line::FLOATS, threads, 1), |band| band.data.fill(-1.0));
        let rate = Rate::measure(copied_bytes(from) as f64, || {
            team.each(Rows::new(&mut *to, Line::FLOATS, threads, 1), |band| {
                let from = &from[band.first * Line::FLOATS..][..band.data.len()];
                isa.run(Copy { from, to: band.data, past_caches });
            });
        });
        let differing = shares(team, |thread| {
            let (from, to) = (share(from, Line::FLOATS, thread, threads), share(to, Line::FLOATS, thread, threads));
            if from == to { 0.0 } else { 1.0 }
        });
        assert_eq!(differing, 0.0, "the copy equals its source");
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_what_is_read_and_what_is_written() {
        let field = vec![0.0; (4 << 20) / size_of::<f32>()];
        assert_eq!(copied_bytes(&field[..field.len() / 2]), 4 << 20);
    }
}
