//! The profile of a run as a table: each stage's time and what it achieved.

use std::fmt::Write;

use super::Clock;
use crate::data::Batch;
use crate::model::{Bound, Dlrm, Stage, Work};

/// What every stage of one minibatch has to do.
#[derive(Debug, Clone)]
pub struct Profile {
    work: Vec<(Stage, Work)>,
}

impl Profile {
    /// The profile of steps like this one.
    #[must_use]
    pub fn of(model: &Dlrm, batch: &Batch) -> Self {
        Self { work: Stage::ALL.iter().map(|&stage| (stage, model.work(stage, batch))).collect() }
    }

    /// A line a stage: milliseconds a step, share of the step, and GFLOP/s or GB/s.
    #[must_use]
    pub fn table(&self, clock: &Clock) -> String {
        let total: f64 = self.work.iter().map(|(stage, _)| clock.ms(*stage)).sum();
        let mut text = format!("{:<18}{:>9}{:>8}{:>16}\n", "stage", "ms", "share", "achieved");
        for (stage, work) in &self.work {
            let ms = clock.ms(*stage);
            let per_second = |amount: f64| if ms > 0.0 { amount / ms / 1e6 } else { 0.0 };
            let achieved = match work.bound {
                Bound::Arithmetic => format!("{:.1} GFLOP/s", per_second(work.operations)),
                Bound::Stream | Bound::Gather | Bound::Scatter => format!("{:.1} GB/s", per_second(work.bytes)),
            };
            let share = if total > 0.0 { 100.0 * ms / total } else { 0.0 };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{:<18}{ms:>9.3}{share:>7.1}%{achieved:>16}", stage.name());
        }
        let _ = write!(text, "{:<18}{total:>9.3}", "step");
        text
    }
}
