//! How far a run is: counted by all threads, told to whoever draws it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::named;

named! {
    /// What a run does one after the other, by what it is called for people.
    pub enum Stage {
        /// In bytes of the files.
        Text = "reading text",
        /// In distinct values of parts.
        Ids = "numbering values",
        /// Bringing training samples into random order; in samples.
        Shuffle = "shuffling",
        /// In samples.
        Blocks = "writing blocks",
    }
}

/// Told now and then what was done of a stage and how much there is.
pub type Watch<'a> = dyn Fn(Stage, u64, u64) + Sync + 'a;

/// Counts what is done.
pub(super) struct Meter<'a> {
    done: [AtomicU64; 4],
    totals: [AtomicU64; 4],
    watch: &'a Watch<'a>,
}

impl<'a> Meter<'a> {
    pub(super) fn new(watch: &'a Watch<'a>) -> Self {
        Self { done: [const { AtomicU64::new(0) }; 4], totals: [const { AtomicU64::new(0) }; 4], watch }
    }

    // Relaxed in all: figures for people, they order nothing.

    pub(super) fn expect(&self, stage: Stage, total: u64) {
        self.totals[stage as usize].store(total, Ordering::Relaxed);
        self.add(stage, 0);
    }

    /// What is done of a stage, and how much there is.
    pub(super) fn done(&self, stage: Stage) -> (u64, u64) {
        let of = |counts: &[AtomicU64; 4]| counts[stage as usize].load(Ordering::Relaxed);
        (of(&self.done), of(&self.totals))
    }

    pub(super) fn add(&self, stage: Stage, more: u64) {
        let done = self.done[stage as usize].fetch_add(more, Ordering::Relaxed) + more;
        let total = self.totals[stage as usize].load(Ordering::Relaxed);
        (self.watch)(stage, done, total);
    }
}
