//! The longest that somebody waits, and what allows more.

use std::fmt;
use std::time::{Duration, Instant};

/// The longest that somebody waits for others. Displayed as its seconds, as a user would write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// How long.
    pub time: Duration,
    /// The flag that says so; nothing where no user does.
    pub flag: Option<&'static str>,
}

impl Deadline {
    /// One that no user chooses.
    #[must_use]
    pub const fn fixed(time: Duration) -> Self {
        Self { time, flag: None }
    }

    /// This long at least, by the same flag.
    #[must_use]
    pub fn at_least(self, time: Duration) -> Self {
        Self { time: self.time.max(time), ..self }
    }

    /// What a user can do if `who` (": if it") was late for a good reason; nothing where no flag allows more.
    #[must_use]
    pub fn remedy(self, who: &str) -> String {
        let remedy = |flag| format!("{who} only has more to do, allow more with {flag} above {self}");
        self.flag.map_or_else(String::new, remedy)
    }
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.time.as_secs_f64())
    }
}

/// The most that counts between two looks of one waiter, who looks far more often: what is beyond that it has not run
/// itself, as when its process was suspended, and nor may those have that it waits for.
const LONGEST_LOOK: Duration = Duration::from_millis(200);

/// How long somebody has waited, by the time in which the waiter itself ran.
#[derive(Debug, Clone, Copy)]
pub struct Waited {
    last: Instant,
    total: Duration,
}

impl Waited {
    /// Begins to count.
    #[must_use]
    pub fn begin() -> Self {
        Self { last: Instant::now(), total: Duration::ZERO }
    }

    /// How long it is by now: to be asked at least ten times a second.
    pub fn look(&mut self) -> Duration {
        self.look_at(Instant::now())
    }

    fn look_at(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.last);
        self.last = now;
        self.total += passed.min(LONGEST_LOOK);
        self.total
    }

    /// Counts from nothing again, as something has come.
    pub fn restart(&mut self) {
        self.look();
        self.total = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_waiter_did_not_run_is_no_waiting() {
        let began = Instant::now();
        let mut waited = Waited { last: began, total: Duration::ZERO };
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        assert_eq!(waited.look_at(at(100)), Duration::from_millis(100));
        assert_eq!(waited.look_at(at(250)), Duration::from_millis(250));
        // Suspended for an hour: what was waited before counts all the same.
        assert_eq!(waited.look_at(at(3_600_250)), Duration::from_millis(450));
        assert_eq!(waited.look_at(at(3_600_300)), Duration::from_millis(500));
    }

    #[test]
    fn a_remedy_is_told_where_a_flag_chooses_how_long_and_only_there() {
        let of = |milliseconds| Deadline::fixed(Duration::from_millis(milliseconds));
        let chosen = |milliseconds| Deadline { flag: Some("--timeout"), ..of(milliseconds) };
        for (milliseconds, seconds) in [(1, "0.001"), (2500, "2.5"), (300_000, "300")] {
            assert_eq!(of(milliseconds).to_string(), seconds);
            let remedy = chosen(milliseconds).remedy(" If it");
            assert_eq!(remedy, format!(" If it only has more to do, allow more with --timeout above {seconds}"));
            assert_eq!(of(milliseconds).remedy(" If it"), "");
        }
        let hour = Duration::from_secs(3600);
        assert!(chosen(1).at_least(hour).remedy("").ends_with("--timeout above 3600"));
        assert_eq!(chosen(7_200_000).at_least(hour), chosen(7_200_000));
    }
}
