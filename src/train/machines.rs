//! What the ranks of several machines have to tell each other outside of a step.

use std::ops::Range;
use std::time::Instant;

use bytemuck::Pod;

use super::Ranks;
use crate::base::{Result, interrupt};
use crate::collective::World;

/// What a machine asks of all in the byte behind what it gathers: to stop.
const STOP: u8 = 1;
/// To save.
const SAVE: u8 = 2;

impl Ranks {
    /// What all machines have, by machine.
    ///
    /// # Errors
    /// [`crate::base::Error::Mpi`].
    pub(super) fn everywhere<T: Pod>(&self, stage: &'static str, own: Vec<T>) -> Result<Vec<Vec<T>>> {
        if self.world().machines() == 1 {
            return Ok(vec![own]);
        }
        let mut bytes = bytemuck::cast_slice(&own).to_vec();
        bytes.push(self.asks());
        let all = self.world().all_gather(stage, bytes, self.job.deadline())?;
        let parts = all.iter().filter_map(|bytes| bytes.split_last());
        Ok(parts
            .map(|(asked, values)| {
                self.asked.set(self.asked.get() | asked);
                bytemuck::pod_collect_to_vec(values)
            })
            .collect())
    }

    /// What this machine asks of all.
    fn asks(&self) -> u8 {
        let save = self.save_at.get().is_some_and(|moment| Instant::now() >= moment);
        (u8::from(interrupt::requested()) * STOP) | (u8::from(save) * SAVE)
    }

    /// Whether any machine asks this of all: the same on all, as of what they last gathered.
    fn is_asked(&self, what: u8) -> bool {
        let asked = if self.world().machines() == 1 { self.asks() } else { self.asked.get() };
        asked & what != 0
    }

    /// Whether the user has asked any machine to stop: the same on all, as of what they last gathered.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.is_asked(STOP)
    }

    /// Whether a checkpoint is due by the first machine's clock: the same on all, as of what they last gathered.
    pub(super) fn save_due(&self) -> bool {
        self.is_asked(SAVE)
    }

    /// Has a checkpoint due from this moment on, or none by time. All machines call it after the same step, and the
    /// moment is the first one's.
    pub(super) fn set_save_at(&self, moment: Option<Instant>) {
        self.asked.set(self.asked.get() & !SAVE);
        self.save_at.set(moment.filter(|_| self.world().is_first()));
    }

    /// As [`Ranks::everywhere`], for the first machine: the others get nothing of each other.
    ///
    /// # Errors
    /// [`crate::base::Error::Mpi`].
    pub(super) fn gather<T: Pod>(&self, stage: &'static str, own: Vec<T>) -> Result<Vec<Vec<T>>> {
        if self.world().machines() == 1 {
            return Ok(vec![own]);
        }
        let all = self.world().gather(stage, bytemuck::cast_slice(&own).to_vec(), self.job.deadline())?;
        Ok(all.iter().map(|bytes| bytemuck::pod_collect_to_vec(bytes)).collect())
    }

    /// As [`World::meet`].
    ///
    /// # Errors
    /// [`crate::base::Error::Mpi`].
    pub(super) fn meet(&self, stage: &'static str) -> Result<()> {
        self.world().meet(stage, self.job.deadline())
    }

    /// As [`World::meet_anyway`], of machines that read, check or write gigabytes on their own.
    ///
    /// # Errors
    /// [`crate::base::Error::Mpi`], which names a machine that does not come.
    pub fn meet_anyway(&self, stage: &'static str) -> Result<()> {
        self.world().meet_anyway(stage, self.job.deadline())
    }

    /// Waits until the first machine has written what it writes alone to describe the run.
    ///
    /// # Errors
    /// As [`Ranks::meet_anyway`].
    pub(super) fn meet_described(&self) -> Result<()> {
        self.meet_anyway("describe the run")
    }

    /// The machines of the job.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.setup.world
    }

    /// The ranks of this machine.
    #[must_use]
    pub fn local(&self) -> Range<usize> {
        self.setup.local()
    }
}
