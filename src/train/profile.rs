//! The profile of a run: each stage's time, what it achieved, and the least time that this machine allows.

use serde::Serialize;

use super::clock::Breakdown;
use crate::model::{Bound, Limits, Stage, Work};

/// What every stage of one rank's step has to do.
#[derive(Debug, Clone)]
pub struct StepWork {
    /// Samples of the whole minibatch.
    whole: usize,
    /// By [`Stage::ALL`].
    stages: [Work; Stage::ALL.len()],
}

/// What every stage of a step has to do, by rank of a machine.
#[derive(Debug, Clone)]
pub struct Profile {
    ranks: Vec<StepWork>,
}

/// A stage's time beside its work; of several ranks the mean of their times, and the work of all together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageTime {
    /// Its name.
    pub stage: &'static str,
    /// Mean milliseconds a step.
    pub ms: f64,
    /// Those of the quickest rank.
    pub ms_min: f64,
    /// Those of the slowest rank.
    pub ms_max: f64,
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
    /// Bytes that ranks send each other.
    pub sent_bytes: f64,
    /// What it should be limited by.
    #[serde(skip)]
    pub bound: Bound,
}

impl StepWork {
    /// Nothing yet, of a minibatch of `whole` samples.
    #[must_use]
    pub const fn new(whole: usize) -> Self {
        Self { whole, stages: [Work::NONE; Stage::ALL.len()] }
    }

    /// Adds to the work of a stage, of the kind that it had first.
    pub fn add(&mut self, stage: Stage, work: Work) {
        if work != Work::NONE {
            let before = &mut self.stages[stage as usize];
            *before = if *before == Work::NONE { work } else { before.plus(work) };
        }
    }
}

impl Profile {
    /// Of these ranks.
    #[must_use]
    pub const fn new(ranks: Vec<StepWork>) -> Self {
        Self { ranks }
    }

    /// Samples of the minibatch.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.ranks.first().map_or(0, |work| work.whole)
    }

    /// One stage's work on all ranks together.
    fn work(&self, stage: Stage) -> Work {
        let mut works = self.ranks.iter().map(|rank| rank.stages[stage as usize]);
        let first = works.next().unwrap_or(Work::NONE);
        works.fold(first, Work::plus)
    }

    /// The least milliseconds of a step under the limits of the machine, which its ranks reach together: work of all of
    /// them over what all of their threads can do.
    #[must_use]
    pub fn roofline_ms(&self, limits: &Limits) -> f64 {
        Stage::ALL.iter().map(|stage| limits.ms(&self.work(*stage))).sum()
    }

    /// All stages that have work or took time, in the order of the corridor, against the limits of the machine.
    #[must_use]
    pub fn stages(&self, ranks: &[Breakdown], limits: &Limits) -> Vec<StageTime> {
        let count = ranks.len().max(1) as f64;
        let ms = |stage: Stage| ranks.iter().map(move |rank| rank.stages_ms[stage as usize]);
        // What is waited for before the step is told beside it.
        let stages = || Stage::ALL.into_iter().filter(|stage| *stage != Stage::WaitData);
        let total: f64 = stages().flat_map(ms).sum::<f64>() / count;
        let part = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let time = |stage: Stage| {
            let (work, mean) = (self.work(stage), ms(stage).sum::<f64>() / count);
            let roofline_ms = limits.ms(&work);
            StageTime {
                stage: stage.name(),
                ms: mean,
                ms_min: ms(stage).fold(f64::INFINITY, f64::min),
                ms_max: ms(stage).fold(0.0, f64::max),
                share: part(mean, total),
                roofline_ms,
                ratio: part(roofline_ms, mean),
                operations: work.operations,
                bytes: work.bytes + work.streamed,
                sent_bytes: work.sent,
                bound: work.bound,
            }
        };
        // A single rank neither packs nor waits; a reading of the clock is no time. Several may wait, even if none had
        // to.
        let several = ranks.len() > 1;
        let shown = |stage: &Stage| {
            self.work(*stage) != Work::NONE || several && (stage.is_wait() || ms(*stage).any(|ms| ms > 0.0))
        };
        stages().filter(shown).map(time).collect()
    }
}

impl StageTime {
    /// GFLOP/s or GB/s, whichever limits the stage.
    #[must_use]
    pub fn achieved(&self) -> String {
        if self.operations == 0.0 && self.bytes == 0.0 {
            return String::new();
        }
        let per_second = |amount: f64| if self.ms > 0.0 { amount / self.ms / 1e6 } else { 0.0 };
        match self.bound {
            Bound::Arithmetic => format!("{:.1} GFLOP/s", per_second(self.operations)),
            Bound::Stream | Bound::Gather | Bound::Scatter => format!("{:.1} GB/s", per_second(self.bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_ratios_and_rates_are_of_the_time_that_was_measured() {
        let mut work = StepWork::new(1);
        work.add(Stage::Bottom, Work::arithmetic(4e6));
        work.add(Stage::Loss, Work::stream(0.0, 3e6));
        let mut stages_ms = vec![0.0; Stage::ALL.len()];
        (stages_ms[Stage::Bottom as usize], stages_ms[Stage::Loss as usize]) = (2.0, 6.0);
        let ranks = [Breakdown { rank: 0, stages_ms, hidden_dense_ms: 0.0, steps: 1 }];
        let limits = Limits { gflop_s: 4.0, stream_gb_s: 2.0, gather_gb_s: 1.0, scatter_gb_s: 1.0 };
        let stages = Profile::new(vec![work]).stages(&ranks, &limits);
        let found: Vec<_> = stages.iter().map(|time| (time.stage, time.share, time.ratio, time.achieved())).collect();
        let [bottom, loss] = ["2.0 GFLOP/s", "0.5 GB/s"].map(str::to_owned);
        assert_eq!(found, [("bottom MLP", 0.25, 0.5, bottom), ("loss", 0.75, 0.25, loss)]);
    }
}
