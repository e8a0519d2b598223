//! The longest that somebody waits, and what allows more.

use std::fmt;
use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;

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
