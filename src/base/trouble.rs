//! What brings a job of several ranks down: who, in which stage, at which number, because of whom.

use std::fmt;

use super::{Deadline, RankId};

/// Where a rank stands: its stage, and which one of them it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Who.
    pub rank: RankId,
    /// Doing what, as a noun: "all-to-all of pooled rows".
    pub stage: &'static str,
    /// In which step, or for the how-manieth time, from 1; 0 before the first.
    pub sequence: u64,
}

impl Place {
    /// A rank that has not begun anything.
    #[must_use]
    pub const fn start(rank: RankId) -> Self {
        Self { rank, stage: "start", sequence: 0 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} #{}", self.rank, self.stage, self.sequence)
    }
}

/// The first thing that went wrong in a job; every rank returns it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Somebody waited in vain.
    #[error(
        "{place}: waited {waited} s for {peer}{}{}: whoever is behind is stuck or far too slow{}; the ranks stop together",
        machine.as_ref().map_or_else(String::new, |machine| format!(" on {machine}")),
        list(behind),
        waited.remedy(": if it")
    )]
    Stalled {
        /// Who waited.
        place: Place,
        /// For whom.
        peer: RankId,
        /// On which machine, if that is another one.
        machine: Option<Box<str>>,
        /// For how long: the job's deadline.
        waited: Deadline,
        /// What the ranks of this machine began last that are at another place: the peer may itself wait for one of
        /// them. Nothing where the peer is on another machine.
        behind: Box<[Place]>,
    },

    /// A thread of a rank panicked.
    #[error("{place}: panicked: {message}; the ranks stop together")]
    Panicked {
        /// Whose thread, doing what.
        place: Place,
        /// Its message.
        message: String,
    },

    /// A rank met an error of its own.
    #[error("{place}: {message}; the ranks stop together")]
    Failed {
        /// Who, doing what.
        place: Place,
        /// The error.
        message: String,
    },

    /// Two ranks disagree about what they exchange.
    #[error("{place}: {peer} sent {sent} bytes where {due} are due: the ranks follow different schedules")]
    Disagreement {
        /// Who received.
        place: Place,
        /// From whom.
        peer: RankId,
        /// What came.
        sent: usize,
        /// What should have come.
        due: usize,
    },
}

fn list(places: &[Place]) -> String {
    match places {
        [] => String::new(),
        _ => format!(" (began last: {})", places.iter().map(Place::to_string).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn troubles_name_rank_stage_number_and_peer() {
        let place = Place { rank: RankId(2), stage: "all-gather", sequence: 17 };
        let behind = Place { rank: RankId(5), stage: "backward", sequence: 16 };
        let waited = Deadline { flag: Some("--timeout"), ..Deadline::fixed(Duration::from_millis(2500)) };
        let stalled = |machine, behind: Box<[Place]>| {
            Trouble::Stalled { place, peer: RankId(3), machine, waited, behind }.to_string()
        };
        let text = stalled(None, Box::new([behind]));
        assert!(
            text.starts_with(
                "rank 2 in all-gather #17: waited 2.5 s for rank 3 (began last: rank 5 in backward #16): "
            ),
            "{text}"
        );
        let there = stalled(Some("machine 1 (node7)".into()), Box::default());
        assert!(there.contains(" waited 2.5 s for rank 3 on machine 1 (node7): whoever"), "{there}");
        assert!(text.contains("slow: if it only has more to do, allow more with --timeout above 2.5; the"), "{text}");
        let waited = Deadline::fixed(Duration::from_millis(1));
        let text =
            Trouble::Stalled { place, peer: RankId(3), machine: None, waited, behind: Box::default() }.to_string();
        assert!(text.contains("waited 0.001 s for rank 3: whoever is behind is stuck or far too slow; the"), "{text}");
    }
}
