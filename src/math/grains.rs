//! Sums over a minibatch whose bits do not depend on who has which samples.
//!
//! The minibatch is cut into a fixed number of grains, a power of two. What is summed over samples (the gradient of a
//! weight) is summed in each grain alone, and grains are added in a fixed binary tree: 0 and 1, 2 and 3, then 0-1 and
//! 2-3, and so on. Whoever has consecutive grains adds up the nodes of the tree that lie in them completely, and hands
//! those few on ([`Sum`]); whoever gets the nodes of all adds up the rest. The number of ranks decides who adds, not
//! what is added to what.
//!
//! The same idea: Demmel and Nguyen, Parallel reproducible summation, 2015, section II; here the tree is fixed instead
//! of the accumulator, so sums are as exact and as quick as others of 32 bits.

use std::ops::Range;

use serde::Serialize;

use crate::base::even_part;
use crate::machine::team::Team;
use crate::simd::{Kernel, Simd, combine};
use crate::sync::Rows;

/// Grains of a small minibatch: as many ranks can share it, and more ranks than 5 of it evenly within 17 %.
const FEW: usize = 32;

/// Samples of a grain above which there are more grains instead: a gradient's elements are then written once for so
/// many multiply-adds that it hardly shows.
const MANY_SAMPLES: usize = 256;

/// Samples that are never parted: passes on bfloat16 take them in pairs.
const TOGETHER: usize = 2;

/// How minibatches are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Grains(usize);

impl Grains {
    /// For minibatches of up to `batch` samples: 32, and more where a grain would have more than 256 samples.
    #[must_use]
    pub fn of(batch: usize) -> Self {
        Self(batch.div_ceil(MANY_SAMPLES).next_power_of_two().max(FEW))
    }

    /// So many: for tests.
    ///
    /// # Panics
    /// When that is no power of two.
    #[must_use]
    pub fn exactly(count: usize) -> Self {
        assert!(count.is_power_of_two(), "{count} grains make no binary tree");
        Self(count)
    }

    /// How many there are.
    #[must_use]
    pub const fn count(self) -> usize {
        self.0
    }

    /// Where grain `index` begins in a minibatch of `batch` samples: even numbers of samples, nearly equal, the larger
    /// ones first; those of a small minibatch may be empty.
    fn border(self, batch: usize, index: usize) -> usize {
        let pairs = batch.div_ceil(TOGETHER);
        ((pairs / self.0 * index + index.min(pairs % self.0)) * TOGETHER).min(batch)
    }

    /// The samples of some consecutive grains.
    #[must_use]
    pub fn samples(self, batch: usize, grains: &Range<usize>) -> Range<usize> {
        self.border(batch, grains.start)..self.border(batch, grains.end)
    }

    /// The grains of a rank: nearly equal numbers, in the order of ranks.
    #[must_use]
    pub const fn share(self, ranks: usize, rank: usize) -> Range<usize> {
        even_part(self.0, rank, ranks)
    }
}

/// A node of the tree: a power of two of consecutive grains, from a multiple of their number on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The first grain.
    pub first: usize,
    /// How many.
    pub count: usize,
}

impl Node {
    /// Whether the two are the children of one node.
    const fn joins(self, right: Self) -> bool {
        self.count == right.count && self.first.is_multiple_of(2 * self.count) && self.first + self.count == right.first
    }
}

/// How consecutive nodes are added, as a value. They are put on a stack one after another; after each of them so many
/// times the top is added to what lies below it. What is left are the largest nodes that they make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sum {
    /// For each node in its order, how often the top is then added to the one below.
    pub merges: Vec<usize>,
    /// What is left, in order.
    pub left: Vec<Node>,
    /// The highest that the stack grows.
    pub depth: usize,
}

impl Sum {
    /// Of these nodes, each of which begins where the one before ends.
    ///
    /// # Panics
    /// When they do not.
    #[must_use]
    pub fn of(nodes: impl IntoIterator<Item = Node>) -> Self {
        let (mut merges, mut left, mut depth) = (Vec::new(), Vec::<Node>::new(), 0);
        for mut top in nodes {
            let end = left.last().map_or(top.first, |last| last.first + last.count);
            assert_eq!(end, top.first, "nodes follow each other");
            depth = depth.max(left.len() + 1);
            let mut count = 0;
            while let Some(below) = left.pop_if(|below| below.joins(top)) {
                top = Node { first: below.first, count: 2 * below.count };
                count += 1;
            }
            left.push(top);
            merges.push(count);
        }
        Self { merges, left, depth }
    }

    /// Of single grains.
    #[must_use]
    pub fn of_grains(grains: Range<usize>) -> Self {
        Self::of(grains.map(|first| Node { first, count: 1 }))
    }
}

/// The grains of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    grains: Grains,
    own: Range<usize>,
    /// How they are added.
    pub sum: Sum,
}

/// A grain of a minibatch, as who has it sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Its samples, counted from the first that its rank has.
    pub samples: Range<usize>,
    /// How often the top of the stack is then added to what lies below it.
    pub merges: usize,
}

impl Share {
    /// Those of `rank`.
    #[must_use]
    pub fn new(grains: Grains, ranks: usize, rank: usize) -> Self {
        let own = grains.share(ranks, rank);
        Self { grains, sum: Sum::of_grains(own.clone()), own }
    }

    /// The grains of a minibatch of `whole` samples.
    pub fn leaves(&self, whole: usize) -> impl Iterator<Item = Leaf> {
        let first = self.grains.samples(whole, &self.own).start;
        self.own.clone().zip(&self.sum.merges).map(move |(grain, &merges)| {
            let samples = self.grains.samples(whole, &(grain..grain + 1));
            Leaf { samples: samples.start - first..samples.end - first, merges }
        })
    }
}

/// `to += from`, shared out among the team.
///
/// # Panics
/// When they have different lengths.
pub fn add(team: &Team, to: &mut [f32], from: &[f32]) {
    /// Elements of a piece.
    const GRAIN: usize = 64;
    assert_eq!(to.len(), from.len(), "terms of one sum");
    let isa = team.isa();
    team.each(Rows::new(to, 1, team.threads(), GRAIN), |band| {
        isa.run(Add { from: &from[band.first..band.first + band.rows], to: band.data });
    });
}

struct Add<'a> {
    to: &'a mut [f32],
    from: &'a [f32],
}

impl Kernel for Add<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        combine(simd, self.to, self.from, |sum, term| simd.add(sum, term));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_a_ranks_samples() {
        let (grains, whole) = (Grains::exactly(8), 21);
        for (ranks, rank) in [(1, 0), (3, 1), (5, 4), (9, 0)] {
            let own = grains.samples(whole, &grains.share(ranks, rank));
            let mut next = 0;
            for leaf in Share::new(grains, ranks, rank).leaves(whole) {
                assert_eq!(leaf.samples.start, next);
                next = leaf.samples.end;
            }
            assert_eq!(next, own.len());
        }
    }

    #[test]
    fn grains_hold_every_sample_once_in_pairs_and_grow_with_the_minibatch() {
        for count in [1, 4, 32] {
            let grains = Grains::exactly(count);
            for batch in (0..200).chain([2047, 2048]) {
                let mut next = 0;
                for grain in 0..count {
                    let samples = grains.samples(batch, &(grain..grain + 1));
                    assert_eq!(samples.start, next);
                    assert!(samples.start.is_multiple_of(2) || samples.is_empty(), "pairs stay together");
                    next = samples.end;
                }
                assert_eq!(next, batch);
                for ranks in 1..12 {
                    let shares = (0..ranks).map(|rank| grains.share(ranks, rank));
                    // Room for an even number of samples holds every smaller minibatch's share.
                    for share in shares {
                        let room = grains.samples(batch.next_multiple_of(2), &share).len();
                        assert!(batch == 0 || grains.samples(batch - 1, &share).len() <= room);
                    }
                    assert_eq!(grains.share(ranks, ranks - 1).end, count);
                }
            }
        }
        let counts = [1, 128, 2048, 8192, 8193, 65536].map(|batch| Grains::of(batch).count());
        assert_eq!(counts, [32, 32, 32, 32, 64, 256]);
    }

    /// Adds terms as a [`Sum`] says; terms are texts, so that the order shows.
    fn add(sum: &Sum, terms: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut stack: Vec<String> = Vec::new();
        for (term, merges) in terms.into_iter().zip(&sum.merges) {
            stack.push(term);
            assert!(stack.len() <= sum.depth);
            for _ in 0..*merges {
                let (right, left) = (stack.pop().unwrap(), stack.pop().unwrap());
                stack.push(format!("({left}+{right})"));
            }
        }
        stack
    }

    #[test]
    fn any_number_of_ranks_adds_the_same_to_the_same() {
        for count in [1, 2, 8, 32] {
            let grains = Grains::exactly(count);
            let alone = add(&Sum::of_grains(0..count), (0..count).map(|grain| grain.to_string()));
            assert_eq!(alone.len(), 1);
            for ranks in 1..=40 {
                let (mut nodes, mut terms) = (Vec::new(), Vec::new());
                for rank in 0..ranks {
                    let share = grains.share(ranks, rank);
                    let sum = Sum::of_grains(share.clone());
                    let most = 2 * count.ilog2().max(1) as usize;
                    assert!(sum.depth <= most && sum.left.len() <= most, "{count} grains, {ranks} ranks: {sum:?}");
                    terms.extend(add(&sum, share.map(|grain| grain.to_string())));
                    nodes.extend(sum.left);
                }
                if ranks.is_power_of_two() && ranks <= count {
                    assert_eq!(nodes.len(), ranks, "one node a rank");
                }
                assert_eq!(add(&Sum::of(nodes), terms), alone, "{count} grains, {ranks} ranks");
            }
        }
    }
}
