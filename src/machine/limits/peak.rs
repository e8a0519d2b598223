//! The peak of the arithmetic: chains of multiply-adds that never leave their registers.
//!
//! A core can start two 512-bit multiply-adds a cycle, each of which takes 4 (f32) to 6 (bf16 pairs) cycles, so at
//! least 8 or 12 independent chains keep it busy. The numbers are chosen so that chains swing exactly between two
//! values: the answer after any number of steps is known, however long it runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::Rate;
use super::memory::shares;
use crate::machine::team::Team;
use crate::simd::amx::{Amx, BLOCK, Sums, TILE, Tile};
use crate::simd::{Avx512Bf16, Isa, Kernel, Simd};

/// Which operations [`f32_peak`] counts.
pub const F32_PEAK_FORMULA: &str = "2 x lanes x multiply-adds / s (f32)";
/// Which operations [`bf16_peak`] counts.
pub const BF16_PEAK_FORMULA: &str = "4 x lanes x vdpbf16ps / s (bf16 pairs into f32)";

/// Which operations [`amx_peak`] counts.
pub const AMX_PEAK_FORMULA: &str = "16384 x tdpbf16ps / s (bf16 tiles into f32)";

/// Independent chains of f32: with both operands they fit the 16 registers of AVX2.
const CHAINS: usize = 12;
/// Independent chains of bf16 pairs: with four operands they fit the 32 registers of AVX-512.
const PAIR_CHAINS: usize = 16;
/// Lanes of the widest vector.
const WIDEST: usize = 16;
/// How long one timed pass should take.
const PASS: Duration = Duration::from_millis(10);

/// `steps` times x = x * factor + addend on every lane of every chain; chain c starts with
/// `start[c * 16 .. c * 16 + lanes]` and ends there.
struct Chains<'a> {
    state: &'a mut [f32; CHAINS * WIDEST],
    factor: f32,
    addend: f32,
    steps: usize,
}

impl Kernel for Chains<'_> {
    /// Lanes of a vector.
    type Out = usize;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> usize {
        let (factor, addend) = (simd.splat(self.factor), simd.splat(self.addend));
        let mut chains: [S::V; CHAINS] = std::array::from_fn(|chain| simd.load(&self.state[chain * WIDEST..]));
        for _ in 0..self.steps {
            for chain in &mut chains {
                *chain = simd.mul_add(*chain, factor, addend);
            }
        }
        for (chain, state) in chains.into_iter().zip(self.state.chunks_exact_mut(WIDEST)) {
            simd.store(chain, state);
        }
        S::LANES
    }
}

/// `steps` times x = (x + up pairs) + down pairs, two instructions a step, on every lane of every chain.
struct PairChains<'a> {
    state: &'a mut [f32; PAIR_CHAINS * WIDEST],
    /// Factors of the first and of the second instruction of a step.
    factors: [[[u16; 32]; 2]; 2],
    steps: usize,
}

impl Kernel for PairChains<'_> {
    type Out = ();

    const BF16: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let load = |numbers: [u16; 32]| simd.load(&bytemuck::cast::<_, [f32; WIDEST]>(numbers));
        let factors = self.factors.map(|pair| pair.map(load));
        // Narrower vectors leave the other lanes as they are; only the widest are timed.
        let mut chains: [_; PAIR_CHAINS] = std::array::from_fn(|chain| simd.load(&self.state[chain * WIDEST..]));
        for _ in 0..self.steps {
            for [a, b] in factors {
                for chain in &mut chains {
                    *chain = simd.dot_pairs(a, b, *chain);
                }
            }
        }
        for (chain, state) in chains.into_iter().zip(self.state.chunks_exact_mut(WIDEST)) {
            simd.store(chain, state);
        }
    }
}

/// Numbers in [0.5, 1): 1 - x is exact, and so is 1 - (1 - x).
fn starts<const N: usize>() -> [f32; N] {
    std::array::from_fn(|i| 0.5 + (i as u32).wrapping_mul(0x9E37_79B1) as f32 / 2.0f32.powi(33) * 0.999)
}

/// The number of steps of which a pass takes [`PASS`]; always even.
fn calibrated(mut pass: impl FnMut(usize)) -> usize {
    let mut steps = 1 << 10;
    loop {
        let start = Instant::now();
        pass(steps);
        if start.elapsed() * 2 >= PASS {
            return steps;
        }
        steps *= 2;
    }
}

/// The most f32 operations that the team can do, in GFLOP/s: [`F32_PEAK_FORMULA`]. Portable code is measured too, and
/// is slow where the compiler may not assume a fused multiply-add.
///
/// # Panics
/// When a chain ends elsewhere than it must.
pub fn f32_peak(team: &Team) -> Rate {
    let (isa, start) = (team.isa(), starts());
    // x = 1 - x, which the compiler must not know.
    let (factor, addend) = (black_box(-1.0), black_box(1.0));
    let pass = |steps: usize| {
        let lanes = shares(team, |_| {
            let mut state = start;
            let lanes = isa.run(Chains { state: &mut state, factor, addend, steps });
            assert_eq!(state, start, "an even number of steps leads back");
            lanes as f64
        });
        2.0 * lanes * (CHAINS * steps) as f64
    };
    let steps = calibrated(|steps| {
        pass(steps);
    });
    Rate::measure(pass(steps), || {
        pass(steps);
    })
}

/// The most bf16 operations that the team can do, in GFLOP/s: [`BF16_PEAK_FORMULA`]; `None` where the processor has
/// no AVX512-BF16.
///
/// # Panics
/// When a chain ends elsewhere than it must.
pub fn bf16_peak(team: &Team) -> Option<Rate> {
    let isa = Avx512Bf16::detect().map(Isa::Avx512Bf16)?;
    // Whole numbers: exact. Up by 2 x 3 + 2 x 3, then down by as much.
    let start: [f32; PAIR_CHAINS * WIDEST] = std::array::from_fn(|i| i as f32);
    let factors = black_box([[[bf16(2.0); 32], [bf16(3.0); 32]], [[bf16(-2.0); 32], [bf16(3.0); 32]]]);
    let pass = |steps: usize| {
        team.run(|_| {
            let mut state = start;
            isa.run(PairChains { state: &mut state, factors, steps });
            assert_eq!(state, start, "as many steps up as down");
        });
    };
    let steps = calibrated(pass);
    let operations = 2 * 4 * WIDEST * PAIR_CHAINS * steps * team.threads();
    Some(Rate::measure(operations as f64, || pass(steps)))
}

/// The most bf16 operations that the team can do with tiles, in GFLOP/s: [`AMX_PEAK_FORMULA`]; `None` where there is no
/// AMX-BF16.
///
/// # Panics
/// When a chain ends elsewhere than it must.
pub fn amx_peak(team: &Team) -> Option<Rate> {
    let amx = Amx::detect()?;
    // Whole numbers: exact. Up by 32 x 2 x 3, then down by as much.
    let start = Sums(std::array::from_fn(|i| std::array::from_fn(|j| (i * BLOCK + j) as f32)));
    let tile = |x: f32| -> Tile { [[u32::from(bf16(x)) << 16 | u32::from(bf16(x)); TILE]; TILE] };
    let (a, b) = black_box((tile(2.0), [tile(3.0), tile(-3.0)]));
    let pass = |steps: usize| {
        team.run(|_| {
            let mut sums = start;
            amx.tiles().swing(&mut sums, &a, &b, steps);
            assert_eq!(sums.0, start.0, "as many steps up as down");
        });
    };
    let steps = calibrated(pass);
    let operations = 8 * 2 * 2 * TILE * TILE * TILE * steps * team.threads();
    Some(Rate::measure(operations as f64, || pass(steps)))
}

/// The peak that the blocked passes on bf16 of this team are held against: of tiles if it uses AMX, else [`bf16_peak`].
pub fn bf16_pass_peak(team: &Team) -> Option<Rate> {
    if team.isa().amx().is_some() { amx_peak(team) } else { bf16_peak(team) }
}

/// The bf16 number of a value that has one.
const fn bf16(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_do_what_a_scalar_does() {
        for isa in Isa::all() {
            for steps in [0, 1, 2, 7, 100] {
                let start: [f32; CHAINS * WIDEST] = starts();
                let mut state = start;
                let lanes = isa.run(Chains { state: &mut state, factor: 1.0173, addend: -0.0711, steps });
                for (index, (&start, &end)) in start.iter().zip(&state).enumerate() {
                    let steps = if index % WIDEST < lanes { steps } else { 0 };
                    let expected = (0..steps).fold(start, |x, _| x.mul_add(1.0173, -0.0711));
                    assert_eq!(end.to_bits(), expected.to_bits(), "{isa:?} {steps} steps, number {index}");
                }
            }
        }
    }

    #[test]
    fn pair_chains_do_what_a_scalar_does() {
        let Some(isa) = Avx512Bf16::detect().map(Isa::Avx512Bf16) else {
            return println!("skipped: no AVX512-BF16");
        };
        let numbers = |seed: usize| -> [f32; 32] { std::array::from_fn(|i| ((i * 7 + seed) % 19) as f32 - 9.0) };
        let values = [[numbers(1), numbers(5)], [numbers(11), numbers(3)]];
        let factors = values.map(|pair| pair.map(|numbers| numbers.map(bf16)));
        for steps in [0, 1, 3, 50] {
            let start: [f32; PAIR_CHAINS * WIDEST] = std::array::from_fn(|i| i as f32 - 100.0);
            let mut state = start;
            isa.run(PairChains { state: &mut state, factors, steps });
            for (index, (&start, &end)) in start.iter().zip(&state).enumerate() {
                let lane = index % WIDEST;
                let dot = |[a, b]: &[[f32; 32]; 2]| a[2 * lane] * b[2 * lane] + a[2 * lane + 1] * b[2 * lane + 1];
                // Whole numbers far below 2^24: every order gives the same.
                let expected = start + steps as f32 * values.iter().map(dot).sum::<f32>();
                assert_eq!(end, expected, "{steps} steps, number {index}");
            }
        }
    }

    #[test]
    fn tiles_swing_as_far_as_a_scalar_says() {
        let Some(amx) = Amx::detect() else { return println!("skipped: no AMX-BF16") };
        let number = |i: usize, seed: usize| ((i * 7 + seed) % 19) as f32 - 9.0;
        let tile = |seed: usize| -> Tile {
            let pair = |i| u32::from(bf16(number(i, seed))) | u32::from(bf16(number(i + 5, seed))) << 16;
            std::array::from_fn(|i| std::array::from_fn(|j| pair(i * TILE + j)))
        };
        let dot = |i: usize, j: usize, seed: usize| -> f32 {
            let pair = |d: usize| {
                let (a, b) = (i * TILE + d, d * TILE + j);
                number(a, 1) * number(b, seed) + number(a + 5, 1) * number(b + 5, seed)
            };
            (0..TILE).map(pair).sum()
        };
        for steps in [0, 1, 3, 50] {
            let mut sums = Sums(std::array::from_fn(|i| std::array::from_fn(|j| (i * BLOCK + j) as f32)));
            amx.tiles().swing(&mut sums, &tile(1), &[tile(3), tile(11)], steps);
            for (i, j) in (0..BLOCK).flat_map(|i| (0..BLOCK).map(move |j| (i, j))) {
                // Whole numbers far below 2^24: every order gives the same.
                let step = dot(i % TILE, j % TILE, 3) + dot(i % TILE, j % TILE, 11);
                assert_eq!(sums.0[i][j], (i * BLOCK + j) as f32 + steps as f32 * step, "{steps} steps, ({i}, {j})");
            }
        }
    }

    #[test]
    fn peaks_are_positive() {
        for isa in Isa::all() {
            let team = Team::with_isa(2, isa).unwrap();
            let rate = f32_peak(&team);
            assert!(rate.median > 0.0 && rate.median.is_finite(), "{isa:?} {rate:?}");
        }
        let team = Team::new(1).unwrap();
        for rate in [bf16_peak(&team), amx_peak(&team), bf16_pass_peak(&team)].into_iter().flatten() {
            assert!(rate.median > 0.0 && rate.median.is_finite(), "{rate:?}");
        }
    }
}
