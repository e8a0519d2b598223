//! A reduction as a value without sizes: which part of whose slice goes from whom to whom, round by round.
//!
//! A slice may go several ways at once: every owner's is cut in as many nearly equal parts, and each flow of the
//! reduce-scatter adds some that follow each other to what the receiver has. Sizes come last ([`Reduction::plan`]), so
//! that one value serves all layers of a model and all threads that share them; who owns an element and in which order
//! its terms are added follows from its owner and its way alone.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Fold, Goal, Hop, Payload, Schedule, Slices};
use crate::base::RankId;
use crate::sync::Line;

/// What goes from one rank to another in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The sender.
    pub from: usize,
    /// The receiver, which adds it to what it has.
    pub to: usize,
    /// The rank that the sum will belong to.
    pub owner: usize,
    /// Which parts of the owner's slice.
    pub ways: Range<usize>,
}

/// A reduce-scatter of any slices, whose reverse is the all-gather.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduction {
    /// The planner's name.
    pub name: &'static str,
    /// How many ranks take part.
    pub ranks: usize,
    /// In how many parts every slice is cut.
    pub ways: usize,
    /// The rounds.
    pub rounds: Vec<Vec<Flow>>,
}

impl Reduction {
    /// Of these rounds.
    ///
    /// # Panics
    /// When a flow has no such rank or way.
    pub(super) fn new(name: &'static str, ranks: usize, ways: usize, rounds: Vec<Vec<Flow>>) -> Self {
        let fits = |flow: &Flow| {
            let ends = [flow.from, flow.to, flow.owner];
            ends.iter().all(|rank| *rank < ranks) && flow.ways.start < flow.ways.end && flow.ways.end <= ways
        };
        assert!(rounds.iter().flatten().all(fits), "flows among {ranks} ranks, {ways} ways each");
        Self { name, ranks, ways, rounds }
    }

    /// The reduce-scatter of `slices`, each cut evenly in whole lines; see [`Schedule::all_gather`] and
    /// [`Schedule::all_reduce`] for what follows it.
    ///
    /// # Panics
    /// When there are other ranks, or the payload is raw bytes, which cannot be added.
    #[must_use]
    pub fn plan(&self, slices: &Slices, payload: Payload) -> Schedule {
        let ways: Vec<Slices> = (0..self.ways).map(|way| slices.part(way, self.ways)).collect();
        self.lay(slices.clone(), |owner, way| ways[way].slice(owner), payload)
    }

    /// The reduce-scatter of slices that lie one after another, each in parts of these lengths: `lengths[owner * ways +
    /// way]`. So who cuts slices among threads can keep every element on its way.
    ///
    /// # Panics
    /// When there is not a length for each way of each rank, or the payload is raw bytes.
    #[must_use]
    pub fn plan_cut(&self, lengths: &[usize], payload: Payload) -> Schedule {
        assert_eq!(lengths.len(), self.ranks * self.ways, "a length for each way of each rank");
        let parts = Slices::of(lengths);
        let slices = Slices::of(&lengths.chunks(self.ways).map(|ways| ways.iter().sum()).collect::<Vec<_>>());
        self.lay(slices, |owner, way| parts.slice(owner * self.ways + way), payload)
    }

    /// The all-gather of a cache line of each rank: of few numbers of each that all ranks need.
    #[must_use]
    pub fn gather_lines(&self) -> Schedule {
        let first = |part: usize| part.is_multiple_of(self.ways);
        let lengths: Vec<usize> =
            (0..self.ranks * self.ways).map(|part| if first(part) { Line::FLOATS } else { 0 }).collect();
        self.plan_cut(&lengths, Payload::F32).all_gather()
    }

    /// The flows as hops of elements: `part` says where a way of an owner's slice lies.
    ///
    /// A hop brings the last terms of all of its elements or of none, so that who adds them can go on at once with the
    /// sums.
    fn lay(&self, slices: Slices, part: impl Fn(usize, usize) -> Range<usize>, payload: Payload) -> Schedule {
        assert!(!matches!(payload, Payload::Raw(_)), "raw bytes cannot be added");
        assert_eq!(self.ranks, slices.ranks(), "a reduction among the ranks of the slices");
        // The last flow to each owner of each of its ways, all rounds counted through.
        let mut last = vec![usize::MAX; self.ranks * self.ways];
        for (number, flow) in self.rounds.iter().flatten().enumerate().filter(|(_, flow)| flow.to == flow.owner) {
            last[flow.owner * self.ways..][flow.ways.clone()].fill(number);
        }
        let mut number = 0;
        let mut round = |flows: &Vec<Flow>| {
            let mut hops: Vec<Hop> = Vec::new();
            // What a receiver gets next to what it got last from the same rank is one hop: no term changes its turn.
            let mut latest: BTreeMap<usize, (usize, bool)> = BTreeMap::new();
            for Flow { from, to, owner, ways } in flows {
                let sender = RankId(*from as u32);
                for way in ways.clone() {
                    let (span, completes) = (part(*owner, way), last[owner * self.ways + way] == number);
                    if span.is_empty() {
                        continue;
                    }
                    if let Some((at, before)) = latest.get(to)
                        && let last = &mut hops[*at]
                        && (last.from, last.source.end, *before) == (sender, span.start, completes)
                    {
                        (last.source.end, last.target.end) = (span.end, span.end);
                        continue;
                    }
                    latest.insert(*to, (hops.len(), completes));
                    let to = RankId(*to as u32);
                    hops.push(Hop { from: sender, to, source: span.clone(), target: span, fold: Fold::Add });
                }
                number += 1;
            }
            hops
        };
        let rounds = self.rounds.iter().map(&mut round).collect();
        Schedule::new(self.name, Goal::ReduceScatter(slices), payload, rounds)
    }
}
