//! The peak of the arithmetic: chains of multiply-adds that never leave their registers.
//!
//! A core can start two 512-bit multiply-adds a cycle, each of which takes 4 (f32) to 6 (bf16 pairs) cycles, so at
//! least 8 or 12 independent chains keep it busy. A multiplier takes little power for factors that stay the same or
//! have few bits, and a processor at the limit of its power would run them at a clock that no product of real matrices
//! sees. So the factors here have all bits of their significands and change with every instruction.
//!
//! Each chain goes up by a product and down by the same: the answer after any number of swings is known exactly,
//! however long it runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::Rate;
use super::memory::shares;
use crate::machine::team::Team;
use crate::simd::amx::{Amx, BLOCK, Sums, TILE, Tile};
use crate::simd::bf16::THIRDS;
use crate::simd::{Avx512Bf16, Isa, Kernel, Simd};

/// Which operations [`f32_peak`] counts.
pub const F32_PEAK_FORMULA: &str = "2 x lanes x multiply-adds / s (f32)";
/// Which operations [`bf16_peak`] counts.
pub const BF16_PEAK_FORMULA: &str = "4 x lanes x vdpbf16ps / s (bf16 pairs into f32)";

/// Which operations [`amx_peak`] counts.
pub const AMX_PEAK_FORMULA: &str = "16384 x tdpbf16ps / s (bf16 tiles into f32)";

/// Independent chains of f32: with factors of both signs they fit the 16 registers of AVX2.
const CHAINS: usize = 10;
/// Independent chains of bf16 pairs: with four operands they fit the 32 registers of AVX-512.
const PAIR_CHAINS: usize = 16;
/// Lanes of the widest vector.
const WIDEST: usize = 16;
/// How long one timed pass should take.
const PASS: Duration = Duration::from_millis(10);

/// Vectors of factors; each instruction multiplies one with the next in turn.
const FACTORS: usize = 3;

/// `swings` times x = (x + a b) - a b on every lane of every chain, rounded after each; chain c starts with
/// `start[c * 16 .. c * 16 + lanes]` and ends there. Its a and b are vectors c and c + 1 of `factors`, in a circle.
struct Chains<'a> {
    state: &'a mut [f32; CHAINS * WIDEST],
    factors: &'a [[f32; WIDEST]; FACTORS],
    swings: usize,
}

impl Kernel for Chains<'_> {
    /// Lanes of a vector.
    type Out = usize;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> usize {
        let (mut up, mut down) = ([simd.splat(0.0); FACTORS], [simd.splat(0.0); FACTORS]);
        for ((up, down), factor) in up.iter_mut().zip(&mut down).zip(self.factors) {
            *up = simd.load(factor);
            *down = simd.mul(*up, simd.splat(-1.0));
        }
        let mut chains = [simd.splat(0.0); CHAINS];
        for (chain, state) in chains.iter_mut().zip(self.state.chunks(WIDEST)) {
            *chain = simd.load(state);
        }
        for _ in 0..self.swings {
            for way in [&up, &down] {
                for (index, chain) in chains.iter_mut().enumerate() {
                    *chain = simd.mul_add(way[index % FACTORS], up[(index + 1) % FACTORS], *chain);
                }
            }
        }
        for (chain, state) in chains.into_iter().zip(self.state.chunks_exact_mut(WIDEST)) {
            simd.store(chain, state);
        }
        S::LANES
    }
}

/// As [`Chains`], with pairs of bfloat16.
struct PairChains<'a> {
    state: &'a mut [f32; PAIR_CHAINS * WIDEST],
    /// The factors, and the same with the other sign.
    factors: &'a [[[u16; 2 * WIDEST]; FACTORS]; 2],
    swings: usize,
}

impl Kernel for PairChains<'_> {
    type Out = ();

    const BF16: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut factors = [[simd.splat(0.0); FACTORS]; 2];
        for (to, from) in factors.as_flattened_mut().iter_mut().zip(self.factors.as_flattened()) {
            *to = simd.load(&bytemuck::cast::<_, [f32; WIDEST]>(*from));
        }
        // Narrower vectors leave the other lanes as they are; only the widest are timed.
        let mut chains = [simd.splat(0.0); PAIR_CHAINS];
        for (chain, state) in chains.iter_mut().zip(self.state.chunks(WIDEST)) {
            *chain = simd.load(state);
        }
        for _ in 0..self.swings {
            for way in &factors {
                for (index, chain) in chains.iter_mut().enumerate() {
                    *chain = simd.dot_pairs(way[index % FACTORS], factors[0][(index + 1) % FACTORS], *chain);
                }
            }
        }
        for (chain, state) in chains.into_iter().zip(self.state.chunks_exact_mut(WIDEST)) {
            simd.store(chain, state);
        }
    }
}

/// Bits without a pattern: a multiplicative hash (Knuth, TAOCP volume 3, 6.4) of `i`.
const fn hash(i: usize) -> u32 {
    (i as u32 + 1).wrapping_mul(0x9E37_79B1)
}

/// Starts in [1.25, 1.5) and factors in [0.25, 0.5), whose products are less than 0.25: a chain stays between 1 and 2,
/// where floats lie on one grid, and goes down by as many of its steps as it went up.
fn f32_swing() -> ([f32; CHAINS * WIDEST], [[f32; WIDEST]; FACTORS]) {
    let number = |first: f32, i: usize| first + (hash(i) >> 9) as f32 / 2.0f32.powi(25);
    let factor = |of: usize| std::array::from_fn(|lane| number(0.25, 1000 + of * WIDEST + lane));
    (std::array::from_fn(|i| number(1.25, i)), std::array::from_fn(factor))
}

/// A whole number from 128 to 255: all bits of a bfloat16's significand, and sums of products are exact.
const fn bf16_number(i: usize) -> f32 {
    (128 + (hash(i) >> 25)) as f32
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

/// Floating-point operations of [`Chains`] on so many lanes: a swing is a multiply-add up and one down.
fn chain_operations(lanes: f64, swings: usize) -> f64 {
    2.0 * 2.0 * lanes * (CHAINS * swings) as f64
}

/// The same of [`PairChains`] on `threads` threads: a lane multiplies and adds a pair.
const fn pair_operations(swings: usize, threads: usize) -> usize {
    2 * 4 * WIDEST * PAIR_CHAINS * swings * threads
}

/// Floating-point operations of `steps` steps on `threads` threads, each of eight products of tiles
/// ([`crate::simd::amx::Tiles::swing`]).
const fn tile_operations(steps: usize, threads: usize) -> usize {
    8 * 2 * 2 * TILE * TILE * TILE * steps * threads
}

/// How often a second all threads together carry a set of chains up and down, as long as `goes_on` says so, which each
/// thread asks every few microseconds.
///
/// # Panics
/// When a chain ends elsewhere than it must.
pub(super) fn chains_a_second(team: &Team, goes_on: impl Fn() -> bool + Sync) -> f64 {
    const SWINGS: usize = 1 << 8;
    let (isa, (start, factors)) = (team.isa(), black_box(f32_swing()));
    shares(team, |_| {
        let (began, mut passes) = (Instant::now(), 0u64);
        while goes_on() {
            let mut state = start;
            isa.run(Chains { state: &mut state, factors: &factors, swings: SWINGS });
            assert_eq!(state, start, "as far up as down");
            passes += 1;
        }
        passes as f64 / began.elapsed().as_secs_f64()
    })
}

/// The most f32 operations that the team can do, in GFLOP/s: [`F32_PEAK_FORMULA`]. Portable code is measured too, and
/// is slow where the compiler may not assume a fused multiply-add.
///
/// # Panics
/// When a chain ends elsewhere than it must.
pub fn f32_peak(team: &Team) -> Rate {
    let (isa, (start, factors)) = (team.isa(), black_box(f32_swing()));
    let pass = |swings: usize| {
        let lanes = shares(team, |_| {
            let mut state = start;
            let lanes = isa.run(Chains { state: &mut state, factors: &factors, swings });
            assert_eq!(state, start, "as far up as down");
            lanes as f64
        });
        chain_operations(lanes, swings)
    };
    let swings = calibrated(|swings| {
        pass(swings);
    });
    Rate::measure(pass(swings), || {
        pass(swings);
    })
}

/// The most bf16 operations that the team can do, in GFLOP/s: [`BF16_PEAK_FORMULA`]; `None` where the processor has
/// no AVX512-BF16.
///
/// # Panics
/// When a chain ends elsewhere than it must.
pub fn bf16_peak(team: &Team) -> Option<Rate> {
    let isa = Avx512Bf16::detect().map(Isa::Avx512Bf16)?;
    let start: [f32; PAIR_CHAINS * WIDEST] = std::array::from_fn(|i| i as f32);
    let factors = |sign: f32| -> [[u16; 2 * WIDEST]; FACTORS] {
        std::array::from_fn(|of| std::array::from_fn(|i| bf16(sign * bf16_number(of * 2 * WIDEST + i))))
    };
    let factors = black_box([factors(1.0), factors(-1.0)]);
    let pass = |swings: usize| {
        team.run(|_| {
            let mut state = start;
            isa.run(PairChains { state: &mut state, factors: &factors, swings });
            assert_eq!(state, start, "as far up as down");
        });
    };
    let swings = calibrated(pass);
    Some(Rate::measure(pair_operations(swings, team.threads()) as f64, || pass(swings)))
}

/// The most bf16 operations that the team can do with tiles, in GFLOP/s: [`AMX_PEAK_FORMULA`]; `None` where there is no
/// AMX-BF16.
///
/// # Panics
/// When a chain ends elsewhere than it must.
pub fn amx_peak(team: &Team) -> Option<Rate> {
    let amx = Amx::detect()?;
    let start = Sums(std::array::from_fn(|i| std::array::from_fn(|j| (i * BLOCK + j) as f32)));
    let tile = |sign: f32, seed: usize| -> Tile {
        let half = |i: usize| u32::from(bf16(sign * bf16_number(seed + i)));
        let pair = |i: usize| half(2 * i) | half(2 * i + 1) << 16;
        std::array::from_fn(|i| std::array::from_fn(|j| pair(i * TILE + j)))
    };
    let (a, b) = black_box((tile(1.0, 0), [tile(1.0, 1000), tile(-1.0, 1000)]));
    let pass = |steps: usize| {
        team.run(|_| {
            let mut sums = start;
            amx.tiles().swing(&mut sums, &a, &b, steps);
            assert_eq!(sums.0, start.0, "as far up as down");
        });
    };
    let steps = calibrated(pass);
    Some(Rate::measure(tile_operations(steps, team.threads()) as f64, || pass(steps)))
}

/// The peak that the blocked passes on bf16 of this team are held against: of tiles if it uses AMX, else [`bf16_peak`].
pub fn bf16_pass_peak(team: &Team) -> Option<Rate> {
    if team.isa().amx().is_some() { amx_peak(team) } else { bf16_peak(team) }
}

/// The most f32 operations that this team can do with tiles, in GFLOP/s: six products a product, see
/// [`crate::simd::bf16::thirds`]; `None` where its passes do not multiply so.
pub fn thirds_peak(team: &Team) -> Option<Rate> {
    team.isa().amx_thirds()?;
    let Rate { median, min, max, passes } = amx_peak(team)?;
    let products = THIRDS.len() as f64;
    Some(Rate { median: median / products, min: min / products, max: max / products, passes })
}

/// The bf16 number of a value that has one.
const fn bf16(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::requirement::required;

    #[test]
    fn chains_do_what_a_scalar_does() {
        // Factors with which they do not end where they start.
        let factors: [[f32; WIDEST]; FACTORS] =
            std::array::from_fn(|of| std::array::from_fn(|lane| 1.0173 + (of * WIDEST + lane) as f32 * 0.71));
        let (start, _) = f32_swing();
        for isa in Isa::all() {
            for swings in [0, 1, 2, 7, 100] {
                let mut state = start;
                let lanes = isa.run(Chains { state: &mut state, factors: &factors, swings });
                for (index, (&start, &end)) in start.iter().zip(&state).enumerate() {
                    let (chain, lane) = (index / WIDEST, index % WIDEST);
                    let (a, b) = (factors[chain % FACTORS][lane], factors[(chain + 1) % FACTORS][lane]);
                    let swings = if lane < lanes { swings } else { 0 };
                    let expected = (0..swings).fold(start, |x, _| (-a).mul_add(b, a.mul_add(b, x)));
                    assert_eq!(end.to_bits(), expected.to_bits(), "{isa:?} {swings} swings, number {index}");
                }
            }
        }
    }

    #[test]
    fn pair_chains_do_what_a_scalar_does() {
        let found = Avx512Bf16::detect().map(Isa::Avx512Bf16).ok_or("not detected");
        let Some(isa) = required("avx512-bf16", found) else { return };
        let number = |way: usize, of: usize, i: usize| ((i * 7 + of * 5 + way) % 19) as f32 - 9.0;
        let factors: [[[u16; 2 * WIDEST]; FACTORS]; 2] =
            std::array::from_fn(|way| std::array::from_fn(|of| std::array::from_fn(|i| bf16(number(way, of, i)))));
        for swings in [0, 1, 3, 50] {
            let start: [f32; PAIR_CHAINS * WIDEST] = std::array::from_fn(|i| i as f32 - 100.0);
            let mut state = start;
            isa.run(PairChains { state: &mut state, factors: &factors, swings });
            for (index, (&start, &end)) in start.iter().zip(&state).enumerate() {
                let (chain, lane) = (index / WIDEST, index % WIDEST);
                let (a, b) = (chain % FACTORS, (chain + 1) % FACTORS);
                let product = |way: usize, i: usize| number(way, a, i) * number(0, b, i);
                let both = |way: usize| product(way, 2 * lane) + product(way, 2 * lane + 1);
                // Whole numbers far below 2^24: every order gives the same.
                assert_eq!(end, start + swings as f32 * (both(0) + both(1)), "{swings} swings, number {index}");
            }
        }
    }

    #[test]
    fn tiles_swing_as_far_as_a_scalar_says() {
        let Some(amx) = required("amx-bf16", Amx::detect().ok_or("not detected")) else { return };
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
    fn operations_are_counted_by_hand() {
        for isa in Isa::all() {
            let (mut state, factors) = f32_swing();
            let lanes = isa.run(Chains { state: &mut state, factors: &factors, swings: 7 });
            assert!([1, 8, 16].contains(&lanes), "{isa:?} has {lanes} lanes");
            // Each chain swings 7 times, by one multiply-add up and one down, each of which is two operations a lane.
            let by_hand = (0..CHAINS).flat_map(|_| (0..7).map(|_| lanes * (1 + 1) * 2)).sum::<usize>();
            assert_eq!(chain_operations(lanes as f64, 7), by_hand as f64, "{isa:?}");
        }
        // Up and down by an instruction each of 16 lanes, of a pair each: two multiply-adds; on 16 chains.
        assert_eq!([pair_operations(1, 1), pair_operations(7, 3)], [2048, 7 * 3 * 2048]);
        // Each of eight products of 16 x 32 numbers and 32 x 16 numbers has 16 x 32 x 16 multiply-adds.
        assert_eq!([tile_operations(1, 1), tile_operations(7, 3)], [8 * 16_384, 7 * 3 * 8 * 16_384]);
    }

    #[test]
    fn peaks_check_out() {
        for isa in Isa::all() {
            let team = Team::with_isa(2, isa).unwrap();
            let rate = f32_peak(&team);
            assert!(0.0 < rate.min && rate.min <= rate.median && rate.median <= rate.max, "{isa:?} {rate:?}");
            assert!(rate.max.is_finite() && rate.passes >= 5, "{isa:?} {rate:?}");
        }
        let team = Team::new(1).unwrap();
        assert_eq!(bf16_peak(&team).is_some(), Avx512Bf16::detect().is_some());
        assert_eq!(amx_peak(&team).is_some(), Amx::detect().is_some());
        assert_eq!(thirds_peak(&team).is_some(), team.isa().amx_thirds().is_some());
        assert_eq!(bf16_pass_peak(&team).is_some(), Avx512Bf16::detect().is_some());
    }
}
