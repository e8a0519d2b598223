//! The threads of a rank: they run a closure together, on whole regions or on pieces of memory.
//!
//! Work is dealt statically: which thread computes which piece depends on the piece and the thread count alone, and no
//! result depends on it, because pieces are independent (see `sync::parts`).

use crate::base::{Error, Result};
use crate::simd::Isa;
use crate::sync::{Crew, Parts, Patience};

/// A rank's threads and the instruction set that they use. The thread that owns the team is its number 0.
pub struct Team {
    crew: Crew,
    isa: Isa,
}

impl Team {
    /// A team of `threads` that uses this processor's widest vectors; 0: one thread for each core that this process
    /// may use.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(threads: usize) -> Result<Self> {
        Self::with_isa(threads, Isa::best())
    }

    /// As [`Team::new`], with a chosen instruction set.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if threads == 0 { cores } else { threads };
        let patience = if threads <= cores { Patience::OWN_CORE } else { Patience::SHARED_CORE };
        let crew =
            Crew::start(threads, patience, |_| ()).map_err(|source| Error::Threads { wanted: threads, source })?;
        Ok(Self { crew, isa })
    }

    /// How many threads work together.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.crew.threads()
    }

    /// The instruction set that kernels run with.
    #[must_use]
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// Runs `body(thread)` on every thread at once and waits for all.
    ///
    /// # Panics
    /// When `body` panics on any thread, with the first panic's message.
    pub fn run(&self, body: impl Fn(usize) + Sync) {
        self.crew.run(&body);
    }

    /// Runs `body(piece)` for every piece, thread t taking the t-th share of consecutive pieces.
    ///
    /// # Panics
    /// As [`Team::run`].
    pub fn each<P: Parts>(&self, parts: P, body: impl Fn(P::Part) + Sync) {
        self.crew.deal(parts, body);
    }
}
