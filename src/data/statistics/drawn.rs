//! Which training samples are looked at, and which of them are held in memory to be counted.
//!
//! Both follow from the samples, in their order, alone: a run that was interrupted sees those that it has seen before.

use std::iter;
use std::ops::Range;

use crate::data::samples::Samples;
use crate::data::{Description, Stored};

/// Training samples that are looked at.
pub(super) const LOOKED_AT: u64 = 1 << 15;
/// Stretches of samples that lie behind each other, into which these fall: where data can be entered in the middle, and
/// have more samples, they lie all over them. Many short ones, since neighbours may be alike.
const STRETCHES: u64 = 1 << 8;
/// Values that they have together, at most, as many in each stretch: they are held in memory.
const VALUES: u64 = 1 << 22;
/// Which samples of `all` are looked at.
pub(super) fn looked_at(all: u64, seekable: bool) -> Vec<Range<u64>> {
    const LENGTH: u64 = LOOKED_AT / STRETCHES;
    if all <= LOOKED_AT || !seekable {
        return iter::once(0..all.min(LOOKED_AT)).collect();
    }
    // Numbers of samples are far below 2^64 / 2^8.
    (0..STRETCHES).map(|at| at * (all - LENGTH) / (STRETCHES - 1)).map(|from| from..from + LENGTH).collect()
}

/// Samples that are held to be counted, of those that are looked at.
pub(super) struct Drawn {
    pub(super) samples: Samples,
    pub(super) description: Description,
    pub(super) blanks: Vec<Option<u32>>,
    /// How many will be looked at, and how many were.
    of: u64,
    met: u64,
    /// Values of those that are held.
    values: u64,
    /// The last stretch of which no more are held.
    full: u64,
}

impl Drawn {
    /// None yet, of data like these.
    pub(super) fn new(Stored { samples: _, description, blanks }: Stored<'_>, of: u64) -> Self {
        let (samples, blanks) = (Samples::new(description), blanks.to_vec());
        Self { samples, description: description.clone(), blanks, of, met: 0, values: 0, full: 0 }
    }

    /// Looks at the next samples. A stretch may have its share of all values, and what those before it have left: it
    /// ends where a sample has more.
    pub(super) fn draw(&mut self, from: &Samples) {
        let mut run = 0..0;
        for at in 0..from.len() {
            self.met += 1;
            // From 1 on; of fewer samples than stretches not all.
            let stretch = (self.met * STRETCHES).div_ceil(self.of);
            let columns = from.lookups.iter().zip(&self.description.categorical);
            let lookups = columns.map(|(lookups, column)| lookups.span(&(at..at + 1), column.hots).len());
            let values = (from.dense.len() + lookups.sum::<usize>()) as u64;
            if stretch > self.full && self.values + values <= VALUES / STRETCHES * stretch {
                self.values += values;
                run.end = at + 1;
            } else {
                self.full = stretch;
                self.samples.extend_from(from, run, &self.description);
                run = at + 1..at + 1;
            }
        }
        self.samples.extend_from(from, run, &self.description);
    }
}
