//! Gradients of what every rank has a copy of, summed over the grains of the minibatch in a fixed tree.
//!
//! Each rank has added what lies completely in its grains: a few nodes of the tree, one if the number of ranks is a
//! power of two. A slice of the elements belongs to each rank. It gets that slice of all nodes, in the order of grains,
//! adds the rest of the tree, and sends the sums to all. As a reduce-scatter that is `direct`, as is the all-gather.

use std::ops::Range;

use crate::base::units::Bytes;
use crate::base::{RankId, Result};
use crate::collective::plan::{Exchange, direct};
use crate::collective::{Carrier, Executor, Fold, Links, Memory, Parcels, Payload, Pieces, Schedule, Slices};
use crate::machine::team::Team;
use crate::math::{Grains, Share, Sum};
use crate::memory::{Buffer, Supply};
use crate::simd::{Kernel, Simd, combine};
use crate::sync::{Line, Rows, Stores};

/// Lines that are added up at once: a stack of them stays in the first-level cache.
const BLOCK: usize = 16;

/// The most nodes that are ever on the stack: twice the logarithm of 2^12 grains, 2^20 samples.
const DEEPEST: usize = 24;

/// The sum of a gradient over the minibatch.
#[derive(Debug)]
pub(in crate::train) struct Nodes {
    rank: RankId,
    grains: Grains,
    slices: Slices,
    /// This rank's grains.
    share: Share,
    /// Of all ranks' nodes.
    sum: Sum,
    scatter: Schedule,
    gather: Schedule,
    executors: Option<[Executor; 2]>,
    /// This rank's slice of all nodes, one after another.
    received: Buffer<Line>,
    /// The sum of this rank's slice.
    total: Buffer<Line>,
}

impl Nodes {
    /// For `rank` of `ranks` and gradients of `len` elements, as [`Pieces`] counts them.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When `len` is no whole number of lines, or there are more grains than 2^12.
    pub fn new(grains: Grains, ranks: usize, rank: RankId, len: usize, supply: &mut Supply<'_>) -> Result<Self> {
        assert!(len.is_multiple_of(Line::FLOATS), "{len} elements of whole lines");
        let shares: Vec<_> = (0..ranks).map(|rank| Share::new(grains, ranks, rank)).collect();
        let sum = Sum::of(shares.iter().flat_map(|share| share.sum.left.iter().copied()));
        assert!(sum.depth <= DEEPEST, "{} grains", grains.count());
        let slices = Slices::even(len, ranks);
        let lengths: Vec<_> = (0..ranks).map(|rank| slices.slice(rank).len()).collect();
        let owners = RankId::all(ranks).zip(&shares);
        let owners = owners.flat_map(|(owner, share)| std::iter::repeat_n(owner, share.sum.left.len()));
        let sources: Vec<_> = owners.map(|owner| (owner, lengths.clone())).collect();
        let own = lengths[rank.index()] / Line::FLOATS;
        Ok(Self {
            received: supply.buffer("slices of partial gradients", sum.merges.len() * own)?,
            total: supply.buffer("a slice of the gradient", own)?,
            scatter: Exchange::AllToAll.plan(&Parcels::new(ranks, &sources), Payload::F32),
            gather: direct(ranks).plan(&slices, Payload::F32).all_gather(),
            share: shares[rank.index()].clone(),
            executors: None,
            rank,
            grains,
            slices,
            sum,
        })
    }

    /// How many parts of the gradient this rank gives: its nodes of the tree, and one for the sum if it has none.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.share.sum.left.len().max(1)
    }

    /// What it costs in memory and messages, for people.
    #[must_use]
    pub fn cost(&self) -> String {
        let buffer = size_of_val(&self.received[..]) + size_of_val(&self.total[..]);
        let all_reduce = direct(self.slices.ranks()).plan(&self.slices, Payload::F32).all_reduce();
        let sent = |links: &Links| Bytes(links.row(self.rank).iter().sum::<usize>() as u64);
        format!(
            "dense gradients in {} grains: up to {} copies on a rank at a time, {} of receive buffer; {} sent a rank and \
             step instead of {}",
            self.grains.count(),
            self.share.sum.depth,
            Bytes(buffer as u64),
            sent(&self.traffic()),
            sent(&all_reduce.traffic())
        )
    }

    /// Bytes from each rank to each other in a step.
    #[must_use]
    pub fn traffic(&self) -> Links {
        self.scatter.traffic().plus(&self.gather.traffic())
    }

    /// Adds up what all ranks have: `parts` are this rank's nodes, the first of which becomes the sum over the whole
    /// minibatch.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When there are not as many parts as [`Nodes::parts`] says, or they have another size than was
    /// planned.
    pub fn sum(&mut self, team: &Team, carrier: &mut dyn Carrier, parts: &mut [Pieces<'_>]) -> Result<()> {
        assert_eq!(parts.len(), self.parts(), "a part for each node of this rank");
        assert!(parts.iter().all(|part| part.len() == self.slices.end()), "as many elements as was planned");
        let [scatter, gather] = self.executors.get_or_insert_with(|| {
            [
                Executor::new(&self.scatter, carrier, "reduce-scatter of dense gradients"),
                Executor::new(&self.gather, carrier, "all-gather of dense gradients"),
            ]
        });
        let nodes = self.share.sum.left.len();
        let received = &mut self.received[..];
        scatter.run(carrier, &mut NodeMemory { parts, nodes, slices: &self.slices, received })?;
        let (isa, sum, received) = (team.isa(), &self.sum, &self.received[..]);
        if !self.total.is_empty() {
            let stride = self.total.len();
            team.each(Rows::new(&mut self.total[..], 1, team.threads(), BLOCK), |band| {
                isa.run(AddUp { sum, received, stride, first: band.first, to: band.data });
            });
        }
        let whole = &mut parts[0];
        whole.get(self.slices.slice(self.rank.index()), &self.total, Fold::Copy);
        gather.run(carrier, whole)
    }
}

/// This rank's nodes as what is sent, by receiver and then by node; and what it receives, by node.
struct NodeMemory<'a, 'b> {
    parts: &'a mut [Pieces<'b>],
    nodes: usize,
    slices: &'a Slices,
    received: &'a mut [Line],
}

/// For each run of elements of one of `nodes` nodes in a range of what is sent: the node, its elements, and where they
/// are in the range.
fn runs(slices: &Slices, nodes: usize, mut range: Range<usize>, mut with: impl FnMut(usize, Range<usize>, usize)) {
    let start = range.start;
    for slice in (0..slices.ranks()).map(|rank| slices.slice(rank)) {
        for node in 0..nodes {
            let first = slice.start * nodes + node * slice.len();
            if range.start >= first && range.start < first + slice.len() && !range.is_empty() {
                let end = range.end.min(first + slice.len());
                with(node, slice.start + (range.start - first)..slice.start + (end - first), range.start - start);
                range.start = end;
            }
        }
    }
    debug_assert!(range.is_empty(), "what is sent lies in the nodes");
}

impl Memory for NodeMemory<'_, '_> {
    fn payload(&self) -> Payload {
        Payload::F32
    }

    fn put(&mut self, source: Range<usize>, to: &mut [Line], fold: Fold, stores: Stores) {
        let Self { parts, nodes, slices, .. } = self;
        runs(slices, *nodes, source, |node, elements, at| {
            let lines = at / Line::FLOATS..(at + elements.len()) / Line::FLOATS;
            parts[node].put(elements, &mut to[lines], fold, stores);
        });
    }

    fn get(&mut self, target: Range<usize>, from: &[Line], _: Fold) {
        self.received[target.start / Line::FLOATS..target.end / Line::FLOATS]
            .copy_from_slice(&from[..target.len() / Line::FLOATS]);
    }

    fn keep(&mut self, source: Range<usize>, target: Range<usize>) {
        let received = std::mem::take(&mut self.received);
        self.put(
            source,
            &mut received[target.start / Line::FLOATS..target.end / Line::FLOATS],
            Fold::Copy,
            Stores::Plain,
        );
        self.received = received;
    }
}

/// Adds up all nodes, for some lines of this rank's slice.
struct AddUp<'a> {
    sum: &'a Sum,
    received: &'a [Line],
    /// Lines of a node.
    stride: usize,
    first: usize,
    to: &'a mut [Line],
}

impl Kernel for AddUp<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { sum, received, stride, mut first, to } = self;
        let mut stack = [[0.0f32; BLOCK * Line::FLOATS]; DEEPEST];
        for to in to.chunks_mut(BLOCK) {
            let (len, mut height) = (to.len() * Line::FLOATS, 0);
            for (node, merges) in sum.merges.iter().enumerate() {
                let from: &[f32] = bytemuck::cast_slice(&received[node * stride + first..][..to.len()]);
                stack[height][..len].copy_from_slice(from);
                height += 1;
                for _ in 0..*merges {
                    height -= 1;
                    let (below, top) = stack.split_at_mut(height);
                    combine(simd, &mut below[height - 1][..len], &top[0][..len], |sum, term| simd.add(sum, term));
                }
            }
            bytemuck::cast_slice_mut(to).copy_from_slice(&stack[0][..len]);
            first += to.len();
        }
    }
}
