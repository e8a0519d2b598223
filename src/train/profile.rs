//! The profile of a run: each stage's time, what it achieved, and the least time that this machine allows.

use serde::Serialize;

use super::Clock;
use crate::data::Batch;
use crate::model::{Bound, Dlrm, Limits, Stage, Work};

/// What every stage of one minibatch has to do.
#[derive(Debug, Clone)]
pub struct Profile {
    samples: usize,
    work: Vec<(Stage, Work)>,
}

/// A stage's time beside its work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StageTime {
    /// Its name.
    pub stage: &'static str,
    /// Mean milliseconds a step.
    pub ms: f64,
    /// The part of all stages' time.
    pub share: f64,
    /// The least milliseconds under the limits.
    pub roofline_ms: f64,
    /// `roofline_ms / ms`; 0 where no time was measured.
    pub ratio: f64,
    /// Floating-point operations.
    pub operations: f64,
    /// Bytes that have to move.
    pub bytes: f64,
    /// What it should be limited by.
    #[serde(skip)]
    pub bound: Bound,
}

impl Profile {
    /// The profile of steps like this one.
    #[must_use]
    pub fn of(model: &Dlrm, batch: &Batch) -> Self {
        let work = Stage::ALL.iter().map(|&stage| (stage, model.work(stage, batch))).collect();
        Self { samples: batch.samples(), work }
    }

    /// Samples of the minibatch.
    #[must_use]
    pub const fn samples(&self) -> usize {
        self.samples
    }

    /// The least milliseconds of a step under a machine's limits.
    #[must_use]
    pub fn roofline_ms(&self, limits: &Limits) -> f64 {
        self.work.iter().map(|(_, work)| limits.ms(work)).sum()
    }

    /// All stages in the order of the corridor, against a machine's limits.
    #[must_use]
    pub fn stages(&self, clock: &Clock, limits: &Limits) -> Vec<StageTime> {
        let total: f64 = self.work.iter().map(|(stage, _)| clock.ms(*stage)).sum();
        let part = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let time = |(stage, work): &(Stage, Work)| {
            let (ms, roofline_ms) = (clock.ms(*stage), limits.ms(work));
            let Work { bound, operations, streamed, .. } = *work;
            let bytes = work.bytes + streamed;
            let (share, ratio) = (part(ms, total), part(roofline_ms, ms));
            StageTime { stage: stage.name(), ms, share, roofline_ms, ratio, operations, bytes, bound }
        };
        self.work.iter().map(time).collect()
    }
}

impl StageTime {
    /// GFLOP/s or GB/s, whichever limits the stage.
    #[must_use]
    pub fn achieved(&self) -> String {
        let per_second = |amount: f64| if self.ms > 0.0 { amount / self.ms / 1e6 } else { 0.0 };
        match self.bound {
            Bound::Arithmetic => format!("{:.1} GFLOP/s", per_second(self.operations)),
            Bound::Stream | Bound::Gather | Bound::Scatter => format!("{:.1} GB/s", per_second(self.bytes)),
        }
    }
}
