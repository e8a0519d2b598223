//! What `eval`, `predict` and `train` say of values that a model's vocabulary does not know.

use serde::Serialize;

use crate::base::console::note;
use crate::base::units::Many;
use crate::base::{Deadline, Result};
use crate::collective::World;
use crate::data::UnseenValues;

/// A column of whose values so many are unknown is told of by name.
const MUCH: f64 = 0.2;

/// The values that were met of each column that the vocabulary numbers.
pub(super) struct Unseen(pub(super) Vec<UnseenValues>);

/// Those of a column that the vocabulary does not know, in JSON.
#[derive(Debug, Serialize)]
pub(super) struct Unknown {
    column: String,
    /// How many.
    values: u64,
    /// Of all values of the column that were met; 0 where there were none.
    share: f64,
}

impl Unknown {
    fn of(met: &UnseenValues) -> Self {
        let values = met.left_out + met.shared;
        let share = if met.values == 0 { 0.0 } else { values as f64 / met.values as f64 };
        Self { column: met.column.clone(), values, share }
    }
}

impl Unseen {
    /// Those that all machines have met together, each of which has met these.
    ///
    /// # Errors
    /// When a machine does not answer.
    pub(super) fn together(self, world: &World, deadline: Deadline) -> Result<Self> {
        let counts = self.0.iter().flat_map(|met| [met.values, met.left_out, met.shared]);
        let own = counts.flat_map(u64::to_le_bytes).collect();
        let all = world.all_gather("count unknown values", own, deadline)?;
        let at = |place: usize| -> u64 {
            let counts = all.iter().filter_map(|bytes| bytes.as_chunks().0.get(place).copied());
            counts.map(u64::from_le_bytes).sum()
        };
        let columns = self.0.into_iter().enumerate().map(|(column, met)| UnseenValues {
            values: at(3 * column),
            left_out: at(3 * column + 1),
            shared: at(3 * column + 2),
            ..met
        });
        Ok(Self(columns.collect()))
    }

    /// All of them, whatever became of them.
    pub(super) fn total(&self) -> u64 {
        self.0.iter().map(|met| met.left_out + met.shared).sum()
    }

    /// Column by column.
    pub(super) fn by_column(&self) -> Vec<Unknown> {
        self.0.iter().map(Unknown::of).collect()
    }

    /// Says of which columns the samples that a run's model is judged by have values that count as empty: training
    /// samples have none such.
    pub(super) fn report_judged(&self) {
        let columns: Vec<_> = self.0.iter().filter(|met| met.left_out > 0).map(|met| &*met.column).collect();
        if !columns.is_empty() {
            let columns = columns.join(", ");
            note!(
                "samples that the model is judged by have values that are not in the model's vocabulary, and count as empty: of \
                 {columns}"
            );
        }
    }

    /// Says how many there were and what they counted as, and which columns have many.
    pub(super) fn report(&self) {
        let left_out = self.0.iter().map(|met| met.left_out).sum();
        let shared = self.0.iter().map(|met| met.shared).sum();
        let told = [(left_out, "counts as empty", "count as empty"), (shared, "has the row", "have the row")];
        for ((count, one, many), more) in told.into_iter().zip(["", " of unseen values"]) {
            let (was, so) = if count == 1 { ("was", format!("it {one}")) } else { ("were", format!("they {many}")) };
            if count > 0 {
                note!("{} {was} not in the model's vocabulary: {so}{more}", Many(count, "categorical value"));
            }
        }
        for Unknown { column, share, .. } in self.by_column().iter().filter(|unknown| unknown.share > MUCH) {
            note!(
                "note: {:.1} % of the values of column {column} were unknown: either it has new values since the model was \
                 trained (train --init RUN learns them), or they are written otherwise than they were then",
                100.0 * share
            );
        }
    }
}
