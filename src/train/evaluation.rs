//! Judging a model by samples that it was not trained on.

use std::sync::Arc;

use super::Clock;
use super::metrics::Scores;
use super::step::forward;
use crate::base::{Error, Result, interrupt};
use crate::data::{Loader, Plan, Position, Source, Split};
use crate::machine::team::Team;
use crate::model::Dlrm;

/// Minibatches that are read ahead, in training too: enough to ride over a slow read, small beside the model.
pub(super) const READ_AHEAD: usize = 4;

/// Probabilities and labels of every sample of a split, in order.
#[derive(Debug, Default)]
pub struct Predictions {
    /// Click probabilities.
    pub probabilities: Vec<f32>,
    /// Labels.
    pub labels: Vec<f32>,
}

/// Runs every sample of `split` through the model, `batch` at a time.
///
/// # Errors
/// When the data is malformed, or the user interrupts.
pub fn predict(
    team: &Team,
    model: &mut Dlrm,
    source: &Arc<dyn Source>,
    split: Split,
    batch: usize,
) -> Result<Predictions> {
    let mut predictions = Predictions::default();
    let mut clock = Clock::new(false);
    let plan = Plan { split, batch, epochs: 1, start: Position::default(), shuffle: None, depth: READ_AHEAD };
    let mut loader = Loader::start(Arc::clone(source), plan)?;
    while let Some((batch, _)) = loader.next_batch()? {
        if interrupt::requested() {
            return Err(Error::Interrupted);
        }
        forward(team, model, &batch, &mut clock);
        predictions.probabilities.extend_from_slice(model.probabilities(&batch));
        predictions.labels.extend_from_slice(&batch.labels);
        loader.recycle(batch);
    }
    Ok(predictions)
}

/// The model's scores on the test samples, and beside them the AUC of the true probabilities where they are known.
///
/// # Errors
/// As [`predict`].
pub fn evaluate(
    team: &Team,
    model: &mut Dlrm,
    source: &Arc<dyn Source>,
    batch: usize,
) -> Result<(Scores, Option<f64>)> {
    let Predictions { probabilities, labels } = predict(team, model, source, Split::Test, batch)?;
    let truth = source.truth(Split::Test, 0, labels.len());
    Ok((Scores::new(&probabilities, &labels), truth.map(|truth| super::auc(&truth, &labels))))
}
