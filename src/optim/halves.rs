//! Rules applied to weights that are kept in two parts; with SGD it is Split-SGD-BF16.
//!
//! Source: SC20, Section VII. The upper halves of the weights are the bfloat16 that forward and backward multiply with;
//! the lower halves are the optimizer's alone. An update joins them, moves the 32-bit weight exactly as [`super::Move`]
//! does, and takes it apart again: no copy of the weights in another precision exists, and nothing is rounded but the
//! update itself. Moments are 32-bit floats. Parts lie in pairs of rows, as the passes of [`crate::math::brgemm::bf16`]
//! want the upper one, so the update writes what the next forward pass reads.

use bytemuck::Pod;

use super::{MOMENTS, Move, Rule};
use crate::math::brgemm::{Row, WIDTH};
use crate::simd::split::shorten;
use crate::simd::{Kernel, Simd};

/// What is kept of the lower halves of a pair of weights.
pub trait Low: Pod + Send + Sync {
    /// Both weights, the even row's first.
    fn join(self, high: u32) -> [f32; 2];

    /// Their upper halves and what is kept of the lower ones.
    fn split(weights: [f32; 2]) -> (u32, Self);
}

/// All 16 bits of each.
impl Low for u32 {
    #[inline(always)]
    fn join(self, high: u32) -> [f32; 2] {
        [high << 16 | self & 0xffff, high & 0xffff_0000 | self >> 16].map(f32::from_bits)
    }

    #[inline(always)]
    fn split(weights: [f32; 2]) -> (u32, Self) {
        let [even, odd] = weights.map(f32::to_bits);
        (even >> 16 | odd & 0xffff_0000, even & 0xffff | odd << 16)
    }
}

/// The upper 8 bits of each, rounded to nearest.
impl Low for u16 {
    #[inline(always)]
    fn join(self, high: u32) -> [f32; 2] {
        let low = u32::from(self);
        [high << 16 | (low & 0xff) << 8, high & 0xffff_0000 | low & 0xff00].map(f32::from_bits)
    }

    #[inline(always)]
    fn split(weights: [f32; 2]) -> (u32, Self) {
        let [even, odd] = weights.map(|weight| shorten(weight).to_bits());
        (even >> 16 | odd & 0xffff_0000, (even >> 8 & 0xff | odd & 0xff00) as Self)
    }
}

/// Moves weights in pairs of rows of a panel by a rule.
#[derive(Debug)]
pub struct MoveSplit<'a, L, R> {
    /// How.
    pub rule: R,
    /// Upper halves: row i has rows 2i and 2i + 1 of the weights.
    pub high: &'a mut [Row<u32>],
    /// What is kept of the lower halves, as many rows.
    pub low: &'a mut [Row<L>],
    /// A row a row of weights: twice as many, or one fewer where the last pair has no second row.
    pub gradient: &'a [Row<f32>],
    /// As many rows as of gradients in each that the rule has.
    pub moments: [&'a mut [Row<f32>]; MOMENTS],
}

impl<L: Low, R: Rule> Kernel for MoveSplit<'_, L, R> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { rule, high, low, gradient, moments } = self;
        assert!(high.len() == low.len() && gradient.len().div_ceil(2) == high.len(), "pairs");
        let mut moments = moments.map(|rows| rows.iter_mut());
        for ((high, low), gradient) in high.iter_mut().zip(low).zip(gradient.chunks(2)) {
            if R::MOMENTS == 0 {
                move_pair(rule, high, low, gradient);
                continue;
            }
            let mut pair = [[0.0; WIDTH]; 2];
            for column in 0..WIDTH {
                [pair[0][column], pair[1][column]] = low[column].join(high[column]);
            }
            for (weight, gradient) in pair.iter_mut().zip(gradient) {
                let moments = moments.each_mut().map(|rows| rows.next().map_or(&mut [][..], |row| &mut row[..]));
                Move { rule, weight, gradient, term: &[], moments }.run(simd);
            }
            for column in 0..WIDTH {
                (high[column], low[column]) = L::split([pair[0][column], pair[1][column]]);
            }
        }
    }
}

/// Moves one pair of rows by a rule without moments, in one pass.
#[inline(always)]
fn move_pair<L: Low, R: Rule>(rule: R, high: &mut Row<u32>, low: &mut Row<L>, gradient: &[Row<f32>]) {
    let none = [0.0; WIDTH];
    let (even, odd) = (&gradient[0], gradient.get(1).unwrap_or(&none));
    for (((high, low), &even), &odd) in high.iter_mut().zip(low).zip(even).zip(odd) {
        let ([first, second], moments) = (low.join(*high), &mut [0.0; MOMENTS]);
        (*high, *low) = L::split([rule.step(first, even, moments), rule.step(second, odd, moments)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;
    use crate::optim::{Averages, Optimizer, Sgd, StepSize, with_rule};
    use crate::simd::Isa;
    use crate::simd::split::split;

    const ROWS: usize = 7;
    const RATE: f32 = 0.3;

    /// Weights as pairs of rows.
    fn pairs<L: Low>(weights: &[Row<f32>]) -> (Vec<Row<u32>>, Vec<Row<L>>) {
        let pair = |rows: &[Row<f32>]| {
            let (mut high, mut low) = ([0; WIDTH], [L::zeroed(); WIDTH]);
            for column in 0..WIDTH {
                let odd = rows.get(1).map_or(0.0, |row| row[column]);
                (high[column], low[column]) = L::split([rows[0][column], odd]);
            }
            (high, low)
        };
        weights.chunks(2).map(pair).unzip()
    }

    fn rows(which: u32) -> Vec<Row<f32>> {
        random(ROWS * WIDTH, which).as_chunks().0.to_vec()
    }

    #[test]
    fn split_weights_move_bit_for_bit_as_whole_ones() {
        let averages = Averages { beta1: 0.9, beta2: 0.999, eps: 1e-8, bias_correction: true };
        for optimizer in [
            Optimizer::SgdWithDecay { decay: 0.1 },
            Optimizer::Momentum { momentum: 0.9, decay: 0.0 },
            Optimizer::Adagrad { eps: 1e-10, initial: 0.0, decay: 0.0 },
            Optimizer::Adam { averages, decay: 0.1 },
            Optimizer::SparseAdam { averages },
        ] {
            split_as_whole(optimizer);
        }
    }

    fn split_as_whole(optimizer: Optimizer) {
        for isa in Isa::all() {
            let mut weights = rows(1);
            let (mut high, mut low) = pairs::<u32>(&weights);
            let zeros = || [(); MOMENTS].map(|()| vec![[0.0; WIDTH]; ROWS]);
            let [mut kept, mut split_kept] = [zeros(), zeros()];
            for step in 0..50 {
                let gradient = &rows(2 + step)[..];
                with_rule!(optimizer, StepSize { rate: RATE, step: 1 + u64::from(step) }, rule => {
                    let moments = split_kept.each_mut().map(|moment| &mut moment[..]);
                    isa.run(MoveSplit { rule, high: &mut high, low: &mut low, gradient, moments });
                    let (weight, gradient) = (weights.as_flattened_mut(), gradient.as_flattened());
                    let moments = kept.each_mut().map(|moment| moment.as_flattened_mut());
                    isa.run(Move { rule, weight, gradient, term: &[], moments });
                });
                assert_eq!(split_kept, kept, "{optimizer:?}, {isa:?}, step {step}");
                assert_eq!((high.clone(), low.clone()), pairs::<u32>(&weights), "{optimizer:?}, {isa:?}, step {step}");
            }
            // The passes read the upper halves, pair by pair.
            assert_eq!(high[2][5] & 0xffff, u32::from(split(weights[4][5]).0), "{isa:?}");
            assert_eq!(high[2][5] >> 16, u32::from(split(weights[5][5]).0), "{isa:?}");
        }
    }

    /// 2^-18, a thousandth of what the passes can see of 1.
    const SMALL: [Row<f32>; 2] = [[1.0 / 262_144.0; WIDTH]; 2];

    fn sgd<'a, L>(high: &'a mut [Row<u32>], low: &'a mut [Row<L>]) -> MoveSplit<'a, L, Sgd> {
        MoveSplit { rule: Sgd { rate: 1.0 }, high, low, gradient: &SMALL, moments: Default::default() }
    }

    #[test]
    fn eight_bits_lose_small_updates() {
        // 4096 times: in all 2^-6.
        let ones = [[1.0; WIDTH]; 2];
        let (mut high, mut low) = pairs::<u32>(&ones);
        let (mut short_high, mut short_low) = pairs::<u16>(&ones);
        for _ in 0..4096 {
            for isa in Isa::all() {
                let (mut expected_high, mut expected_low) = (short_high.clone(), short_low.clone());
                Isa::all()[0].run(sgd(&mut expected_high, &mut expected_low));
                let (mut high, mut low) = (short_high.clone(), short_low.clone());
                isa.run(sgd(&mut high, &mut low));
                assert_eq!((high, low), (expected_high, expected_low), "{isa:?}");
            }
            Isa::best().run(sgd(&mut high, &mut low));
            Isa::best().run(sgd(&mut short_high, &mut short_low));
        }
        assert_eq!(low[0][0].join(high[0][0]), [1.0 - 2.0f32.powi(-6); 2], "16 bits keep every step");
        assert_eq!(short_low[0][0].join(short_high[0][0]), [1.0; 2], "8 bits keep none");
    }
}
