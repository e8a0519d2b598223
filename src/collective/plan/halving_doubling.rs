//! `halving-doubling`: ceil(log2 R) rounds, for any number of ranks.
//!
//! The ranks are divided into two groups; each rank sends its part of all slices of the other group to a partner there,
//! and then both groups go on by themselves. If one group has a rank more, its last rank sends to the partner of
//! another and gets nothing: invariant is only that the parts of a group's ranks add up to the whole for the group's
//! slices. With R a power of two this is recursive halving (Thakur, Rabenseifner and Gropp, 2005); no rank is left out
//! and nothing is sent twice with any other R.

use std::ops::Range;

use super::{Flow, Reduction};

/// Among so many ranks.
#[must_use]
pub fn halving_doubling(ranks: usize) -> Reduction {
    let mut rounds = Vec::new();
    let mut groups: Vec<Range<usize>> = std::iter::once(0..ranks).collect();
    while groups.iter().any(|group| group.len() > 1) {
        let mut round = Vec::new();
        groups = groups.into_iter().flat_map(|group| split(group, &mut round)).collect();
        rounds.push(round);
    }
    Reduction::new("halving-doubling", ranks, 1, rounds)
}

/// Divides a group in two, the first of which is the larger one if they differ.
fn split(group: Range<usize>, round: &mut Vec<Flow>) -> Vec<Range<usize>> {
    if group.len() < 2 {
        return vec![group];
    }
    let middle = group.start + group.len().div_ceil(2);
    let (low, high) = (group.start..middle, middle..group.end);
    for (mine, theirs) in [(&low, &high), (&high, &low)] {
        for (index, from) in mine.clone().enumerate() {
            let to = theirs.start + index % theirs.len();
            round.extend(theirs.clone().map(|owner| Flow { from, to, owner, ways: 0..1 }));
        }
    }
    vec![low, high]
}
