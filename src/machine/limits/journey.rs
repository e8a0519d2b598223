//! How long a cache line takes to another core and back: the least that any message between two threads can take.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;

use crate::base::Unpoisoned;
use crate::machine::team::Team;

/// Looks at a line after which a thread looks less often (a journey is over long before), and after which it lets
/// others run, in case both share a core.
const HASTY_LOOKS: u32 = 1 << 10;
const LOOKS: u32 = 1 << 14;

/// What the first thread writes to end the second one's waiting.
const END: usize = usize::MAX;

fn wait(line: &AtomicUsize, value: usize) -> usize {
    let mut looks = 0u32;
    loop {
        let found = line.load(Ordering::Acquire);
        if found == value || found == END {
            return found;
        }
        looks += 1;
        if looks > HASTY_LOOKS {
            std::hint::spin_loop();
        }
        if looks.is_multiple_of(LOOKS) {
            std::thread::yield_now();
        }
    }
}

/// Nanoseconds of the journeys of `lines` lines between the first two threads of a team, a list a line: `trips` timed
/// ones after `warm_up` others, or as many as `within` allows for all lines together, and at least one of each. Where a
/// line's home is decides how far it travels; that is why there are several.
///
/// # Panics
/// When the team has one thread only.
#[must_use]
pub fn journeys(team: &Team, lines: usize, warm_up: usize, trips: usize, within: Duration) -> Vec<Vec<f64>> {
    assert!(team.threads() > 1, "a line travels between two threads");
    let marks: Vec<CachePadded<AtomicUsize>> = (0..lines).map(|_| CachePadded::new(AtomicUsize::new(0))).collect();
    let share = within / lines.max(1) as u32;
    let times = Mutex::new(Vec::new());
    team.run(|thread| match thread {
        0 => {
            for line in &marks {
                let mut nanoseconds = Vec::new();
                let began = Instant::now();
                for trip in 0..warm_up + trips {
                    let start = Instant::now();
                    line.store(2 * trip + 1, Ordering::Release);
                    wait(line, 2 * trip + 2);
                    let took = start.elapsed().as_nanos() as f64;
                    let late = began.elapsed() > share;
                    if trip >= warm_up || late {
                        nanoseconds.push(took);
                    }
                    if late {
                        break;
                    }
                }
                line.store(END, Ordering::Release);
                times.lock().unpoisoned().push(nanoseconds);
            }
        }
        1 => {
            for line in &marks {
                let mut trip = 0;
                while wait(line, 2 * trip + 1) != END {
                    line.store(2 * trip + 2, Ordering::Release);
                    trip += 1;
                }
            }
        }
        _ => (),
    });
    times.into_inner().unpoisoned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_travels_as_often_as_it_should_or_once() {
        let team = Team::new(2).unwrap();
        let times = journeys(&team, 3, 5, 20, Duration::from_secs(60));
        assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [20; 3]);
        assert!(times.iter().flatten().all(|ns| *ns >= 0.0));
        let times = journeys(&team, 3, 5, 20, Duration::ZERO);
        assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [1; 3]);
    }
}
