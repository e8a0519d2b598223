//! Judging a model by samples that it was not trained on.

use std::sync::Arc;

use super::Ranks;
use super::metrics::Scores;
use crate::base::{Error, Result};
use crate::data::{Batch, Loader, Plan, Position, Source, Split};

/// Minibatches that are read ahead.
const READ_AHEAD: usize = 4;

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
pub fn predict(ranks: &Ranks, source: &Arc<dyn Source>, split: Split, batch: usize) -> Result<Predictions> {
    let mut predictions = Predictions::default();
    let plan = Plan { split, batch, epochs: 1, start: Position::default(), shuffle: None, depth: READ_AHEAD };
    let mut loader = Loader::start(Arc::clone(source), plan)?;
    while let Some((batch, _)) = loader.next_batch()? {
        if ranks.interrupted() {
            return Err(Error::Interrupted);
        }
        let batch = Arc::new(batch);
        predictions.probabilities.extend(ranks.predict(&batch)?);
        predictions.labels.extend_from_slice(&batch.labels);
        recycle(&loader, batch);
    }
    Ok(predictions)
}

/// Gives a batch back to its loader, unless a rank is still about to let go of it.
fn recycle(loader: &Loader, batch: Arc<Batch>) {
    if let Some(batch) = Arc::into_inner(batch) {
        loader.recycle(batch);
    }
}

/// The model's scores on the test samples, and beside them the AUC of the true probabilities where they are known.
///
/// # Errors
/// As [`predict`].
pub fn evaluate(ranks: &Ranks, source: &Arc<dyn Source>, batch: usize) -> Result<(Scores, Option<f64>)> {
    let Predictions { probabilities, labels } = predict(ranks, source, Split::Test, batch)?;
    let truth = source.truth(Split::Test, 0, labels.len());
    Ok((Scores::new(&probabilities, &labels), truth.map(|truth| super::auc(&truth, &labels))))
}
