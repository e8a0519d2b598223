//! How much of the cores that compute something else takes.

use std::time::{Duration, Instant};

use super::peak::chains_a_second;
use crate::machine::team::Team;

/// How long the team computes alone.
const ALONE: Duration = Duration::from_millis(200);

/// Runs `other` on a thread of its own while all threads of the team compute. Returns what it returns, and how many of
/// the team's cores it took meanwhile, with whatever else works for it: 0 where nothing disturbs the team, and never
/// more than the team has.
///
/// # Panics
/// When `other` does.
pub fn cores_taken<T: Send>(team: &Team, other: impl FnOnce() -> T + Send) -> (T, f64) {
    let began = Instant::now();
    let alone = chains_a_second(team, || began.elapsed() < ALONE);
    std::thread::scope(|scope| {
        let other = scope.spawn(other);
        let beside = chains_a_second(team, || !other.is_finished());
        let threads = team.threads() as f64;
        let returned = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (returned, (threads * (1.0 - beside / alone)).clamp(0.0, threads))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_on_the_teams_core_takes_some_of_it_and_one_that_sleeps_none() {
        let pu = crate::ffi::linux::current_affinity().unwrap()[0];
        let team = Team::pinned(&[pu], false, crate::simd::Isa::best()).unwrap();
        // The thread inherits the leader's place.
        let busy = || {
            let began = Instant::now();
            let mut turns = 0u64;
            while began.elapsed() < Duration::from_millis(300) {
                turns += 1;
            }
            turns
        };
        let (turns, taken) = cores_taken(&team, busy);
        assert!(turns > 0 && taken > 0.1, "it took {taken} of the core for {turns} turns");
        let (word, idle) = cores_taken(&team, || {
            std::thread::sleep(Duration::from_millis(300));
            "done"
        });
        assert_eq!(word, "done");
        assert!(
            (0.0..=1.0).contains(&idle) && idle < taken,
            "{idle} of the core beside a sleeper, {taken} beside work"
        );
    }
}
