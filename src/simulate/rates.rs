//! How near stages come to the limits of a machine.

use crate::model::Stage;

/// Shares of the limits, and what a step costs besides.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// By [`Stage::ALL`]: least time over time.
    pub of_limit: [f64; Stage::ALL.len()],
    /// Bytes a second, in 10^9, that a communication core reads and writes by itself.
    pub core_gb_s: f64,
    /// Seconds of a step that are no stage's.
    pub step_s: f64,
    /// Where these figures come from, for people.
    pub told: String,
}

/// Share of the peak that the MLPs of SC20 reach on a socket, forward and backward, on average (Section VI-A, Figure 5).
const LAYERS: f64 = 0.72;

/// What a core reads and writes while the others of its socket compute: from the same paper's all-reduce by four cores
/// (Section VI-B): 2.84 and 1.86 ms for the gradients and weights of five layers of 1024 x 1024.
const CORE_GB_S: f64 = 9.0;

impl Default for Rates {
    /// Those of SC20's implementation; memory at its limits.
    fn default() -> Self {
        let of_limit = Stage::ALL.map(|stage| match stage {
            Stage::Bottom | Stage::Top | Stage::BackTop | Stage::BackBottom => LAYERS,
            _ => 1.0,
        });
        let told = format!("layers at {LAYERS} of the peak and {CORE_GB_S} GB/s a communication core, as in SC20");
        Self { of_limit, core_gb_s: CORE_GB_S, step_s: 0.0, told }
    }
}

impl Rates {
    /// Of an implementation that is as fast as the machine allows.
    #[must_use]
    pub fn at_the_limits() -> Self {
        let told = "every stage at the machine's limits".to_owned();
        Self { of_limit: [1.0; Stage::ALL.len()], told, ..Self::default() }
    }

    /// The share of a stage.
    #[must_use]
    pub const fn of(&self, stage: Stage) -> f64 {
        self.of_limit[stage as usize]
    }
}
