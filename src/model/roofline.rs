//! The least time that a step can take on a machine: the sum over its stages of work over limit.
//!
//! Williams, Waterman, Patterson, "Roofline", CACM 2009, stage by stage: each takes at least
//! max(operations / peak, bytes / bandwidth), with the bandwidth of its kind of access; what is streamed beside random
//! rows takes its time after them, since both use the same memory.

use super::{Bound, Work};

/// A machine's limits, in 10^9 operations or bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Multiply-adds in the precision of the MLPs, two operations each.
    pub gflop_s: f64,
    /// Memory, streamed.
    pub stream_gb_s: f64,
    /// Random rows, read.
    pub gather_gb_s: f64,
    /// Random rows, read and written.
    pub scatter_gb_s: f64,
}

impl Limits {
    /// Milliseconds that this work takes at least.
    #[must_use]
    pub fn ms(&self, work: &Work) -> f64 {
        let bandwidth = match work.bound {
            Bound::Arithmetic | Bound::Stream => self.stream_gb_s,
            Bound::Gather => self.gather_gb_s,
            Bound::Scatter => self.scatter_gb_s,
        };
        (work.operations / self.gflop_s).max(work.bytes / bandwidth + work.streamed / self.stream_gb_s) / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_arithmetic_and_memory_counts() {
        let limits = Limits { gflop_s: 100.0, stream_gb_s: 10.0, gather_gb_s: 5.0, scatter_gb_s: 2.0 };
        let work = |bound, operations, bytes| Work { bound, operations, bytes, streamed: 0.0, sent: 0.0 };
        assert_eq!(limits.ms(&work(Bound::Arithmetic, 1e9, 0.0)), 10.0);
        assert_eq!(limits.ms(&work(Bound::Stream, 1e6, 1e7)), 1.0);
        assert_eq!(limits.ms(&work(Bound::Gather, 1e6, 1e7)), 2.0);
        assert_eq!(limits.ms(&work(Bound::Scatter, 1e6, 1e7)), 5.0);
        assert_eq!(limits.ms(&Work { streamed: 1e7, ..work(Bound::Gather, 1e6, 1e7) }), 3.0);
    }
}
