//! What a run logs of steps and evaluations: lines of its metrics.

use serde::Serialize;

use super::metrics::Scores;

/// A step.
#[derive(Serialize)]
pub struct StepEntry {
    pub kind: &'static str,
    pub step: u64,
    pub epoch: u64,
    pub loss: f64,
    pub lr: f64,
    pub lr_rows: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lr_wide: Option<f64>,
    pub ms: f64,
    pub samples_per_s: f64,
}

/// An evaluation.
#[derive(Serialize)]
pub struct EvalEntry {
    pub kind: &'static str,
    pub step: u64,
    /// Which samples, where some are for validation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<&'static str>,
    /// After which step the model was saved that is scored, where it is not the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_step: Option<u64>,
    #[serde(flatten)]
    pub scores: Scores,
    pub best_possible_auc: Option<f64>,
    pub ms: f64,
}
