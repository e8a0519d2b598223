//! What the ranks of several machines have to tell each other outside of a step.

use std::ops::Range;

use bytemuck::Pod;

use super::Ranks;
use crate::base::{Result, interrupt};
use crate::collective::World;

impl Ranks {
    /// What all machines have, by machine.
    ///
    /// # Errors
    /// [`crate::base::Error::Mpi`].
    pub(super) fn everywhere<T: Pod>(&self, stage: &'static str, own: Vec<T>) -> Result<Vec<Vec<T>>> {
        if self.world.machines() == 1 {
            return Ok(vec![own]);
        }
        let mut bytes = bytemuck::cast_slice(&own).to_vec();
        bytes.push(u8::from(interrupt::requested()));
        let all = self.world.all_gather(stage, bytes, self.job.deadline())?;
        let parts = all.iter().filter_map(|bytes| bytes.split_last());
        Ok(parts
            .map(|(asked, values)| {
                self.interrupted.set(self.interrupted.get() || *asked == 1);
                bytemuck::pod_collect_to_vec(values)
            })
            .collect())
    }

    /// Whether the user has asked any machine to stop: the same on all, as of what they last gathered.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        if self.world.machines() == 1 { interrupt::requested() } else { self.interrupted.get() }
    }

    /// As [`Ranks::everywhere`], for the first machine: the others get nothing of each other.
    ///
    /// # Errors
    /// [`crate::base::Error::Mpi`].
    pub(super) fn gather<T: Pod>(&self, stage: &'static str, own: Vec<T>) -> Result<Vec<Vec<T>>> {
        if self.world.machines() == 1 {
            return Ok(vec![own]);
        }
        let all = self.world.gather(stage, bytemuck::cast_slice(&own).to_vec(), self.job.deadline())?;
        Ok(all.iter().map(|bytes| bytemuck::pod_collect_to_vec(bytes)).collect())
    }

    /// As [`World::meet`].
    ///
    /// # Errors
    /// [`crate::base::Error::Mpi`].
    pub(super) fn meet(&self, stage: &'static str) -> Result<()> {
        self.world.meet(stage, self.job.deadline())
    }

    /// The machines of the job.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// The ranks of a machine.
    pub(super) fn ranks_of(&self, machine: usize) -> Range<usize> {
        let first = self.machines[..machine].iter().sum();
        first..first + self.machines[machine]
    }

    /// The ranks of this machine.
    #[must_use]
    pub fn local(&self) -> Range<usize> {
        self.local.clone()
    }
}
