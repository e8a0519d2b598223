//! What ranks tell about themselves: where their steps go, what they have to do, and why they do it so.

use super::clock::Breakdown;
use super::profile::Profile;
use super::{Ranks, trace};
use crate::base::Result;

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
