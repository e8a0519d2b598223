//! What ranks tell about themselves: where their steps go, what they have to do, and why they do it so.

use super::clock::Breakdown;
use super::profile::Profile;
use super::{Ranks, Run, trace};
use crate::base::Result;
use crate::base::units::Many;
use crate::math::brgemm::unmatched;

/// Shapes that a message names at most.
const SHAPES: usize = 16;

/// What the user should know of a file of measured plans, where passes were run and none of them was of a shape that it
/// has a plan for; the ranks of a run train `batch` samples each.
#[must_use]
pub fn unused_plans(path: &str, batch: Option<usize>) -> Option<String> {
    let shapes = unmatched();
    let threads = shapes.first()?.threads;
    // Passes of one size may differ in how their ranges begin.
    let mut sizes: Vec<_> = shapes.iter().map(|shape| [shape.rows, shape.columns, shape.steps]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let more = sizes.len().saturating_sub(SHAPES);
    let size = |[rows, columns, steps]: &[usize; 3]| format!("{rows} x {columns} x {steps}");
    let mut named: Vec<String> = sizes.iter().take(SHAPES).map(size).collect();
    named.extend((more > 0).then(|| format!("{more} more")));
    let remedy = match batch {
        Some(batch) => {
            format!(
                "`octorec tune gemm` with this run's model, --batch {batch} --threads {threads} --out FILE measures them"
            )
        }
        None => "`octorec tune gemm` measures those of a model's layers".to_owned(),
    };
    Some(format!(
        "note: no plan of {path} is used, which has none for these passes on {} (rows x columns of the result x terms of \
         each sum): {}; {remedy}",
        Many(threads as u64, "thread"),
        named.join(", "),
    ))
}

impl Run {
    /// As [`unused_plans`], of the passes of its ranks on this machine.
    pub(super) fn unused_plans(&self) -> Option<String> {
        let train = &self.config.train;
        unused_plans(&train.tuned, Some(train.batch.div_ceil(self.ranks.layout().ranks())))
    }
}

impl Ranks {
    /// Where the steps of each rank of this machine have gone so far.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn breakdowns(&self) -> Result<Vec<Breakdown>> {
        self.all(|rank| Ok(rank.breakdown()))
    }

    /// What every stage of steps like the last one has to do, on the ranks of this machine, whose limits they meet.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn profile(&self) -> Result<Profile> {
        Ok(Profile::new(self.all(|rank| Ok(rank.work()))?))
    }

    /// How rank 0 last moved embedding rows, and why so.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn update_choice(&self) -> Result<Option<String>> {
        let choices = self.all(|rank| Ok(rank.tables.update_choice().map(ToString::to_string)))?;
        Ok(choices.into_iter().flatten().next())
    }

    /// What the user should know about the configured way to move rows.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn update_note(&self) -> Result<Option<String>> {
        Ok(self.all(|rank| Ok(rank.tables.update_note()))?.into_iter().flatten().next())
    }

    /// What it costs that the number of ranks changes no bit, for people; `None` where it may.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn reduction_cost(&self) -> Result<Option<String>> {
        Ok(self.all(|rank| Ok(rank.reduction.cost()))?.into_iter().next().flatten())
    }

    /// The trace of the first steps on this machine, for Perfetto (ui.perfetto.dev) or chrome://tracing: a process a
    /// rank, a track a thread.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn trace(&self) -> Result<String> {
        let spans = self.all(|rank| Ok((rank.clock.spans().to_vec(), rank.reduction.spans())))?;
        Ok(trace::json(self.began, &spans))
    }
}
