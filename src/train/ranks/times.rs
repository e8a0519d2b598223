//! Where a rank's step goes: what it computes, what it packs, what it waits for, and what hides behind other work.
//!
//! SC20 (Section VI-D) asks of a hybrid-parallel step: how long it computes, how long each collective is exposed, how
//! much of it is hidden, and what packing costs. Every stage is timed, always; a stage that waits for other ranks is
//! told apart from its own work by the lane that counts its waits.

use std::time::{Duration, Instant};

use serde::Serialize;

/// What a rank does in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Waits until its slice of the next minibatch has been read.
    WaitData,
    /// The layers, the interaction and the loss, forward and backward.
    Dense,
    /// Looks rows up and sums gradients of replicated tables.
    Tables,
    /// Moves rows.
    UpdateRows,
    /// Takes its samples and packs their ids for the owners of rows.
    PackIds,
    /// Brings pooled rows from the windows side by side.
    UnpackRows,
    /// Packs gradients of pooled rows into the owners' windows.
    PackGradients,
    /// Waits for ids.
    WaitIds,
    /// Waits for pooled rows.
    WaitRows,
    /// Waits for gradients of pooled rows.
    WaitGradients,
    /// Exchanges the gradients of layers and replicated tables with its compute threads, or waits for the threads that
    /// do.
    ExposedDense,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::WaitData,
        Self::Dense,
        Self::Tables,
        Self::UpdateRows,
        Self::PackIds,
        Self::UnpackRows,
        Self::PackGradients,
        Self::WaitIds,
        Self::WaitRows,
        Self::WaitGradients,
        Self::ExposedDense,
    ];

    /// As people read it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WaitData => "exposed: reading of data",
            Self::Dense => "layers, interaction, loss",
            Self::Tables => "look-ups",
            Self::UpdateRows => "update of rows",
            Self::PackIds => "packing: ids",
            Self::UnpackRows => "packing: pooled rows",
            Self::PackGradients => "packing: gradients of rows",
            Self::WaitIds => "exposed: ids",
            Self::WaitRows => "exposed: pooled rows",
            Self::WaitGradients => "exposed: gradients of rows",
            Self::ExposedDense => "exposed: dense gradients",
        }
    }
}

/// The time of every stage so far.
#[derive(Debug, Clone, Default)]
pub struct Times {
    seconds: [f64; Stage::ALL.len()],
    steps: u64,
}

/// One rank's mean step.
#[derive(Debug, Clone, Serialize)]
pub struct Breakdown {
    /// Its number.
    pub rank: u32,
    /// Milliseconds a step, by [`Stage::ALL`].
    pub stages_ms: Vec<f64>,
    /// Milliseconds a step in which communication threads were at work while the compute threads were, too.
    pub hidden_dense_ms: f64,
    /// Steps that were counted.
    pub steps: u64,
}

impl Times {
    /// Runs and times a stage.
    pub fn time<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        self.seconds[stage as usize] += began.elapsed().as_secs_f64();
        result
    }

    /// Counts a part of what was timed as `from` as `to` instead.
    pub fn shift(&mut self, from: Stage, to: Stage, part: Duration) {
        self.seconds[from as usize] -= part.as_secs_f64();
        self.seconds[to as usize] += part.as_secs_f64();
    }

    /// Ends a step.
    pub const fn step_done(&mut self) {
        self.steps += 1;
    }

    /// The mean step; `exposed` and `busy` are those of the dense exchange in all steps.
    #[must_use]
    pub fn breakdown(&self, rank: u32, exposed: Duration, busy: Duration) -> Breakdown {
        let each = |seconds: f64| if self.steps == 0 { 0.0 } else { seconds * 1e3 / self.steps as f64 };
        let mut stages_ms: Vec<f64> = self.seconds.iter().map(|&seconds| each(seconds)).collect();
        stages_ms[Stage::ExposedDense as usize] += each(exposed.as_secs_f64());
        let hidden_dense_ms = each(busy.saturating_sub(exposed).as_secs_f64());
        Breakdown { rank, stages_ms, hidden_dense_ms, steps: self.steps }
    }
}
