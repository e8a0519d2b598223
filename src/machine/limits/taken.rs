//! How much of the cores that compute something else takes.

use std::time::{Duration, Instant};

use super::peak::chains_a_second;
use crate::machine::team::Team;

/// How long the team computes alone, before and after.
const ALONE: Duration = Duration::from_millis(200);

/// The part of a team that its clock alone may lose from one moment to the next: what is less is nothing.
const NOISE: f64 = 0.02;

/// Runs `other` on a thread of its own while all threads of the team compute. Returns what it returns, and for how many
/// seconds of a core it, and whatever else works for it, kept the team from computing.
///
/// # Panics
/// When `other` does.
pub fn core_seconds_taken<T: Send>(team: &Team, other: impl FnOnce() -> T + Send) -> (T, f64) {
    let alone = || {
        let began = Instant::now();
        chains_a_second(team, || began.elapsed() < ALONE)
    };
    let before = alone();
    let (returned, beside, took) = std::thread::scope(|scope| {
        let (began, other) = (Instant::now(), scope.spawn(other));
        let beside = chains_a_second(team, || !other.is_finished());
        let took = began.elapsed();
        (other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), beside, took)
    });
    // Of the two the slower: a processor that has computed for a while is.
    let taken = part_taken(before.min(alone()), beside);
    (returned, taken * team.threads() as f64 * took.as_secs_f64())
}

/// The part of the time that was taken from who did so much a second alone, and then beside something else.
fn part_taken(alone: f64, beside: f64) -> f64 {
    let taken = 1.0 - beside / alone;
    if taken < NOISE { 0.0 } else { taken }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::linux::current_affinity;
    use crate::simd::Isa;

    #[test]
    fn what_is_not_done_beside_something_else_was_taken() {
        assert_eq!([part_taken(4.0, 3.0), part_taken(4.0, 0.0)], [0.25, 1.0]);
        assert_eq!([part_taken(4.0, 3.96), part_taken(4.0, 4.0), part_taken(4.0, 5.0)], [0.0; 3]);
    }

    #[test]
    fn a_thread_that_computes_on_the_teams_core_takes_some_of_it() {
        let pu = current_affinity().unwrap()[0];
        let team = Team::pinned(&[pu], false, Isa::best()).unwrap();
        // The thread inherits the leader's place.
        let busy = || {
            let (began, mut turns) = (Instant::now(), 0u64);
            while began.elapsed() < Duration::from_millis(300) {
                turns += 1;
            }
            turns
        };
        // Others may compute there, too, while the team is meant to be alone.
        let takes = |_| matches!(core_seconds_taken(&team, busy), (1.., taken) if taken > 0.05);
        assert!((0..20).any(takes), "nothing was taken");
    }
}
