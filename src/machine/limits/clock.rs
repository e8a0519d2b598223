//! The clock of the cores, from a chain of operations whose latency is known.
//!
//! A processor holds its power by its clock, and how far that falls depends on what runs. A ratio of rates holds a
//! kernel against cycles that it may not have had; rates over clocks say how many of its own it used.
//!
//! Clocks follow the load within milliseconds, so this is asked right after some work. It cannot see cycles that a
//! processor leaves out at an unchanged clock, nor those that it gives to a neighbour on the same core.

use std::hint::black_box;
use std::time::Instant;

use super::memory::shares;
use crate::machine::team::Team;

/// Steps of the chain: some ten microseconds.
const STEPS: u32 = 10_000;
/// Cycles of a step: a multiplication takes 3 and an addition 1, on all x86-64 cores of the last decade (Fog,
/// "Instruction tables").
const STEP_CYCLES: u32 = 4;
/// Chains, of which the fastest counts: an interrupt makes one slower.
const TRIES: usize = 3;

/// The mean clock of the team's cores, in GHz.
#[must_use]
pub fn clock_ghz(team: &Team) -> f64 {
    shares(team, |_| (0..TRIES).map(|_| chain_ghz()).fold(0.0, f64::max)) / team.threads() as f64
}

fn chain_ghz() -> f64 {
    let (factor, addend) = black_box((6_364_136_223_846_793_005_u64, 1_442_695_040_888_963_407_u64));
    let start = Instant::now();
    let mut x = black_box(1u64);
    for _ in 0..STEPS {
        x = x.wrapping_mul(factor).wrapping_add(addend);
    }
    black_box(x);
    f64::from(STEPS * STEP_CYCLES) / start.elapsed().as_nanos().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_ticks() {
        for threads in [1, 2] {
            let ghz = clock_ghz(&Team::new(threads).unwrap());
            assert!(ghz > 0.0 && ghz.is_finite(), "{ghz}");
        }
    }
}
