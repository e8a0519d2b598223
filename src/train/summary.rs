//! What came out of a run.

use serde::Serialize;

use super::{Best, Judged};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All steps were done.
    Finished,
    /// They had been done before: a run that was continued had nothing left to train.
    AlreadyFinished,
    /// An evaluation reached the target AUC.
    TargetReached,
    /// As many evaluations as `train.patience` says were no better than the best one before.
    NoImprovement,
    /// The user asked it to stop.
    Interrupted,
}

/// A run's results, as `--json` prints them.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Why training ended.
    pub outcome: Outcome,
    /// Test AUC, after the last step; of a run whose evaluations are on validation samples, that of the model that is
    /// kept: the best one, or else the last. Absent without test samples, as are the other scores, and where the user
    /// has interrupted before that model was tested, be an earlier one or not.
    pub auc: Option<f64>,
    /// The AUC of the true probabilities, where the data is synthetic.
    pub best_possible_auc: Option<f64>,
    /// The last test between turns of hot and cold inputs, if they take some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shuffle: Option<Judged>,
    /// Mean binary cross-entropy on the test samples.
    pub logloss: Option<f64>,
    /// Area under the precision-recall curve.
    pub pr_auc: Option<f64>,
    /// Log loss over that of the mean label.
    pub normalised_entropy: Option<f64>,
    /// Share of test samples predicted rightly.
    pub accuracy: Option<f64>,
    /// Mean probability over mean label.
    pub calibration: Option<f64>,
    /// AUC of the last evaluation, where evaluations are on validation samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_auc: Option<f64>,
    /// Its log loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_logloss: Option<f64>,
    /// The test AUC of the run's best evaluation (by `train.best_by`); absent without one. Those before it was resumed
    /// are included, but for one that was made because the run had ended, unless the best model is kept: the checkpoint
    /// is older than it. Where evaluations are on validation samples, that of its model, if the test samples are scored
    /// by that.
    pub best_auc: Option<f64>,
    /// Its test log loss.
    pub best_logloss: Option<f64>,
    /// The validation AUC of the best evaluation, where evaluations are on such samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_validation_auc: Option<f64>,
    /// Its log loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_validation_logloss: Option<f64>,
    /// The step after which it was made.
    pub best_step: Option<u64>,
    /// The evaluation of this process with the lowest log loss.
    #[serde(skip)]
    pub lowest_logloss: Option<Best>,
    /// The run's last step: those since it began, before it was resumed included.
    pub step: u64,
    /// The step of the last checkpoint, this process's or an earlier one's; null without one.
    pub saved_step: Option<u64>,
    /// Steps of this process.
    pub steps: u64,
    /// Samples of these steps, of all ranks together.
    pub samples: u64,
    /// Seconds from when the first minibatch was asked for to the end of the last step, without evaluations and
    /// checkpoints: the same wall clock for any number of ranks.
    pub seconds: f64,
    /// Of these, seconds in which the next minibatch was not ready; of several ranks, the one that waited longest.
    pub data_wait_seconds: f64,
    /// Of these, seconds before the first step: a shuffle's first window has to be read by then.
    pub data_first_wait_seconds: f64,
    /// The others, milliseconds a step.
    pub data_wait_ms_step: f64,
    /// Bytes of data files that were read for training, minibatches that are still ahead included: one entry a rank
    /// that reads.
    pub data_bytes_read: Vec<u64>,
    /// `samples / seconds`.
    pub samples_per_s: f64,
    /// Seconds from when the first minibatch was asked for until an evaluation of this process reached the target AUC,
    /// evaluations and checkpoints included; absent where none did.
    pub target_seconds: Option<f64>,
    /// Training loss of the last step.
    pub final_loss: Option<f64>,
    /// Malformed rows that were left out.
    pub skipped_rows: u64,
}
