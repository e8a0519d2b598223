//! Which ranks are on which machine of a job.

use std::ops::Range;

/// The ranks of each machine, which are numbered machine after machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machines {
    /// The first rank of each machine, and one more entry.
    firsts: Vec<usize>,
}

impl Machines {
    /// For so many ranks on each.
    #[must_use]
    pub fn new(ranks: &[usize]) -> Self {
        let mut firsts = vec![0];
        ranks.iter().for_each(|ranks| firsts.push(firsts[firsts.len() - 1] + ranks));
        Self { firsts }
    }

    /// How many machines there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.firsts.len() - 1
    }

    /// How many ranks there are, on all machines together.
    #[must_use]
    pub fn all_ranks(&self) -> usize {
        self.firsts[self.count()]
    }

    /// The machine of a rank.
    #[must_use]
    pub fn of(&self, rank: usize) -> usize {
        self.firsts.partition_point(|first| *first <= rank) - 1
    }

    /// The ranks of a machine.
    ///
    /// # Panics
    /// When there is no such machine.
    #[must_use]
    pub fn ranks(&self, machine: usize) -> Range<usize> {
        self.firsts[machine]..self.firsts[machine + 1]
    }

    /// The most ranks of a machine.
    #[must_use]
    pub fn widest(&self) -> usize {
        (0..self.count()).map(|machine| self.ranks(machine).len()).max().unwrap_or(0)
    }
}
