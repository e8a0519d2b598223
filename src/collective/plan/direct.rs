//! `direct`: every rank sends every other its slice at once; one round, R - 1 messages a rank.
//!
//! The owner adds to its own part those of the ranks after it, in ring order.

use super::{Hop, Slices, add};

pub(super) fn rounds(slices: &Slices) -> Vec<Vec<Hop>> {
    let ranks = slices.ranks();
    let pairs = (1..ranks).flat_map(|step| (0..ranks).map(move |to| ((to + step) % ranks, to)));
    vec![pairs.flat_map(|(from, to)| add(slices, from, to, to..to + 1)).collect()]
}
