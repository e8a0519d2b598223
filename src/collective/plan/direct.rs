//! `direct`: every rank sends every other its slice at once; one round, R - 1 messages a rank.
//!
//! The owner adds to its own part those of the ranks after it, in ring order.

use super::{Flow, Reduction};

/// Among so many ranks.
#[must_use]
pub fn direct(ranks: usize) -> Reduction {
    let pairs = (1..ranks).flat_map(|step| (0..ranks).map(move |to| ((to + step) % ranks, to)));
    let round = pairs.map(|(from, to)| Flow { from, to, owner: to, ways: 0..1 }).collect();
    Reduction::new("direct", ranks, 1, vec![round])
}
