//! Inner products of all pairs of a sample's vectors, for 16 samples at once: each sample is a lane.
//!
//! Vectors of a few dozen elements are too short for one sample to fill vector registers without waste or horizontal
//! sums. With a sample a lane, every product of two elements is one fused multiply-add for 16 samples, a triangle is
//! computed without its other half, and every sum is one chain in ascending elements, whatever the vector width. The
//! price is a transposition of what comes in and of what goes out.

use crate::simd::Simd;

/// Samples of a group.
pub const GROUP: usize = 16;

/// One number of each sample of a group.
pub type Lanes = [f32; GROUP];

/// Elements of a [`Block`].
pub const STEPS: usize = 16;

/// Consecutive elements of one vector of each sample: element by element, then sample by sample.
pub type Block = [Lanes; STEPS];

/// How many pairs (i, j) with j < i, or j <= i with `itself`, come before those of vector i.
#[must_use]
#[inline(always)]
pub const fn pairs_before(i: usize, itself: bool) -> usize {
    if itself { i * (i + 1) / 2 } else { i * i.saturating_sub(1) / 2 }
}

/// The products of some elements of all vectors.
#[derive(Debug)]
pub struct Pairs<'a> {
    /// One block a vector.
    pub vectors: &'a [Block],
    /// How many elements of each block count.
    pub steps: usize,
    /// Whether a vector also meets itself.
    pub itself: bool,
    /// Whether the sums start at 0 rather than at what they are.
    pub fresh: bool,
    /// One a pair, i ascending, within it j ascending.
    pub sums: &'a mut [Lanes],
}

/// Which sums of a square on the diagonal are wanted.
const ALL: usize = 0;
const BELOW: usize = 1;
const BELOW_AND_ON: usize = 2;

impl Pairs<'_> {
    /// `sums[(i, j)] += sum over k of vectors[i][k] * vectors[j][k]`, k ascending.
    ///
    /// # Panics
    /// When there are fewer sums than pairs.
    #[inline(always)]
    pub fn add<S: Simd>(mut self, simd: S) {
        let mut row = 0;
        while row < self.vectors.len() {
            let left = self.vectors.len() - row;
            // 4 x 4 sums and 4 + 4 operands take 24 of 32 registers, 3 x 3 and 3 + 3 take 15 of 16.
            row += match left {
                4.. if S::LANES == 16 => self.band::<S, 4, 4>(simd, row),
                3 if S::LANES == 16 => self.band::<S, 3, 4>(simd, row),
                2 if S::LANES == 16 => self.band::<S, 2, 4>(simd, row),
                1 if S::LANES == 16 => self.band::<S, 1, 4>(simd, row),
                3.. if S::IN_REGISTERS => self.band::<S, 3, 3>(simd, row),
                2 if S::IN_REGISTERS => self.band::<S, 2, 3>(simd, row),
                1 if S::IN_REGISTERS => self.band::<S, 1, 3>(simd, row),
                _ => self.band::<S, 1, 1>(simd, row),
            };
        }
    }

    /// All pairs whose first is one of R vectors, with up to C others at a time; returns R.
    #[inline(always)]
    fn band<S: Simd, const R: usize, const C: usize>(&mut self, simd: S, row: usize) -> usize {
        for column in (0..row).step_by(C) {
            self.tile::<S, R, C, ALL>(simd, row, column);
        }
        if self.itself {
            self.tile::<S, R, R, BELOW_AND_ON>(simd, row, row);
        } else {
            self.tile::<S, R, R, BELOW>(simd, row, row);
        }
        R
    }

    /// The pairs of R vectors with C others, or those of them that `WANTED` says.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const C: usize, const WANTED: usize>(
        &mut self,
        simd: S,
        row: usize,
        column: usize,
    ) {
        let columns = |r: usize| match WANTED {
            ALL => C,
            BELOW => r,
            _ => r + 1,
        };
        let (Some(a), Some(b)) = (self.vectors[row..].first_chunk::<R>(), self.vectors[column..].first_chunk::<C>())
        else {
            unreachable!("tiles lie among the vectors")
        };
        for half in (0..GROUP).step_by(S::LANES) {
            let mut sums = [[simd.splat(0.0); C]; R];
            if !self.fresh {
                for (r, sums) in sums.iter_mut().enumerate() {
                    let from = &self.sums[pairs_before(row + r, self.itself) + column..][..columns(r)];
                    for (sum, from) in sums.iter_mut().zip(from) {
                        *sum = simd.load(&from[half..]);
                    }
                }
            }
            for k in 0..self.steps.min(STEPS) {
                let (mut x, mut y) = ([simd.splat(0.0); R], [simd.splat(0.0); C]);
                for (x, a) in x.iter_mut().zip(a) {
                    *x = simd.load(&a[k][half..]);
                }
                for (y, b) in y.iter_mut().zip(b) {
                    *y = simd.load(&b[k][half..]);
                }
                for r in 0..R {
                    for c in 0..columns(r) {
                        sums[r][c] = simd.mul_add(x[r], y[c], sums[r][c]);
                    }
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                let to = &mut self.sums[pairs_before(row + r, self.itself) + column..][..columns(r)];
                for (to, &sum) in to.iter_mut().zip(sums) {
                    simd.store(sum, &mut to[half..]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;
    use crate::simd::{Isa, Kernel};

    struct Run<'a>(Pairs<'a>);

    impl Kernel for Run<'_> {
        type Out = ();

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            self.0.add(simd);
        }
    }

    #[test]
    fn every_twin_gives_the_chains_of_the_definition() {
        for vectors in (0..14).chain([27]) {
            for (steps, itself, fresh) in [(16, false, true), (16, true, false), (5, false, false), (1, true, true)] {
                let from = random(vectors * 256, 1);
                let blocks: &[Block] = bytemuck::cast_slice(&from);
                let count = pairs_before(vectors, itself);
                let before: Vec<Lanes> = random(count * GROUP, 2).as_chunks().0.to_vec();
                let mut expected = before.clone();
                for i in 0..vectors {
                    for j in 0..i + usize::from(itself) {
                        for lane in 0..GROUP {
                            let sum = &mut expected[pairs_before(i, itself) + j][lane];
                            *sum = if fresh { 0.0 } else { *sum };
                            (0..steps).for_each(|k| *sum = blocks[i][k][lane].mul_add(blocks[j][k][lane], *sum));
                        }
                    }
                }
                for isa in Isa::all() {
                    let mut sums = before.clone();
                    isa.run(Run(Pairs { vectors: blocks, steps, itself, fresh, sums: &mut sums }));
                    assert_eq!(sums, expected, "{isa:?}, {vectors} vectors, {steps} steps");
                }
            }
        }
    }
}
