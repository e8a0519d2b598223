//! The columns that a model was trained on: which they are, what their samples look like, and whether data have the
//! columns of the model whose weights a run begins with: by name, before values are looked at.

use super::{Checkpoint, TrainedOn};
use crate::base::Result;
use crate::base::config::ModelConfig;
use crate::base::units::Count;
use crate::data::Source;
use crate::data::schema::TrainedColumns;
use crate::data::statistics::Statistics;

/// Those of some names that are `within` others, or are not, in their order.
fn of<'n>(names: &[&'n str], within: bool, others: &[&str]) -> Vec<&'n str> {
    names.iter().copied().filter(|name| others.contains(name) == within).collect()
}

impl Checkpoint<'_> {
    /// Checks that dense and categorical columns of these names are as many as those that the model was trained on, in
    /// its order. Another name in a column's place is the same column by a new name. `otherwise` is what else can be
    /// done.
    ///
    /// # Errors
    /// [`Error::Checkpoint`](crate::base::Error::Checkpoint) with the columns that are missing, new or elsewhere, and
    /// what to do.
    pub fn check_names(&self, dense: &[&str], categorical: &[&str], otherwise: &str) -> Result<()> {
        let Some(header) = self.sound_header() else { return Ok(()) };
        let had_dense: Vec<&str> = header.dense.iter().map(|(name, _)| &**name).collect();
        let had_categorical: Vec<&str> = header.config.model.columns.iter().map(|name| &**name).collect();
        for (kind, had, has) in [("dense", had_dense, dense), ("categorical", had_categorical, categorical)] {
            // Of versions that did not say, and of data that have no names.
            if had.is_empty() || has.is_empty() {
                continue;
            }
            if had.len() != has.len() {
                let (lost, new) = (of(&had, false, has).join(", "), of(has, false, &had).join(", "));
                let told =
                    [(lost, "describe it as it was", "which they lack"), (new, "leave it out", "which it lacks")];
                let told = told.iter().filter(|(names, ..)| !names.is_empty());
                let told: Vec<_> = told.map(|(names, remedy, lacks)| format!("{names}, {lacks} ({remedy})")).collect();
                return Err(self.fail(format!(
                    "the model was trained on {} {kind} columns, and these data have {}; what differs: {}; \
                     {otherwise}",
                    Count(had.len() as u64),
                    Count(has.len() as u64),
                    told.join("; "),
                )));
            }
            if of(&had, true, has) != of(has, true, &had) {
                return Err(self.fail(format!(
                    "the model was trained on {kind} columns in another order than these data have ({}): describe them in \
                     the model's, {}",
                    has.join(", "),
                    had.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// The columns that it reads; `model` is the model of its configuration.
    ///
    /// # Errors
    /// As [`Checkpoint::header`].
    pub fn columns(&self, model: &ModelConfig) -> Result<TrainedColumns> {
        let header = self.own_header()?;
        let dense = header.map(|header| header.dense.clone()).unwrap_or_default();
        Ok(TrainedColumns {
            names: model.columns.clone(),
            rows: model.rows.clone(),
            dense: (dense.len() == model.dense()).then_some(dense),
            label: header.and_then(|header| header.data.as_ref()?.label.clone()),
            weight: header.and_then(|header| header.data.as_ref()?.weight.clone()),
        })
    }

    /// What the samples look like that it was trained on; `None` where they are not stored, or the file does not say.
    ///
    /// # Errors
    /// As [`Checkpoint::header`].
    pub fn statistics(&self) -> Result<Option<&Statistics>> {
        Ok(self.own_header()?.and_then(|header| header.statistics.as_ref()))
    }

    /// The same, where these are the training samples of `source`.
    ///
    /// # Errors
    /// As [`Checkpoint::header`].
    pub(in crate::train) fn statistics_of(&self, source: &dyn Source) -> Result<Option<Statistics>> {
        let Some(header) = self.own_header()? else { return Ok(None) };
        let same = header.data.as_ref().zip(TrainedOn::of(source)).is_some_and(|(had, now)| had.trains_like(&now));
        Ok(header.statistics.clone().filter(|_| same))
    }
}
