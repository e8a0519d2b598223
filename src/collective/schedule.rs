//! A schedule: what travels in a collective, as a value.
//!
//! The executor carries it out, a simulator prices it, a report prints it; they cannot drift apart, because it is the
//! same value. Rounds order the hops of each rank: a rank begins the hops of a round when it has finished its own hops
//! of the round before, but for what stays with it in an all-to-all. Ranks do not wait for each other beyond that.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use super::carrier::Links;
use super::parcels::Parcels;
use super::slices::Slices;
use crate::base::RankId;
use crate::base::config::Wire;
use crate::base::units::Bytes;

/// What becomes of an element where it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// It replaces the element that is there.
    Copy,
    /// It is added to the element that is there, in f32, after those of earlier hops.
    Add,
}

/// How an element travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// As f32.
    F32,
    /// As bfloat16, rounded to nearest even by the sender; the receiver computes in f32.
    Bf16,
    /// As it is: this many bytes.
    Raw(usize),
}

impl From<Wire> for Payload {
    fn from(wire: Wire) -> Self {
        match wire {
            Wire::F32 => Self::F32,
            Wire::Bf16 => Self::Bf16,
        }
    }
}

impl Payload {
    /// Bytes of an element on its way.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::Raw(bytes) => bytes,
        }
    }

    /// Bytes of an element where it is read or written in a rank's own memory, and in a window.
    pub(super) const fn accesses(self) -> (usize, usize) {
        match self {
            Self::F32 | Self::Bf16 => (4, self.bytes()),
            Self::Raw(bytes) => (bytes, bytes),
        }
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("f32"),
            Self::Bf16 => f.write_str("bf16"),
            Self::Raw(bytes) => write!(f, "elements of {bytes} bytes"),
        }
    }
}

/// A span of elements that goes from one rank to another, or stays (`from == to`) but moves to its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The sender.
    pub from: RankId,
    /// The receiver.
    pub to: RankId,
    /// The elements in the sender's memory.
    pub source: Range<usize>,
    /// The elements in the receiver's memory; as many.
    pub target: Range<usize>,
    /// What the receiver does with them.
    pub fold: Fold,
}

/// What a schedule claims to compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// Each rank has a tensor; afterwards rank r has the sum of all ranks' slice r in its own.
    ReduceScatter(Slices),
    /// Rank r has slice r of a tensor; afterwards every rank has all slices.
    AllGather(Slices),
    /// Each rank has a tensor; afterwards every rank has the sum of all of them.
    AllReduce(Slices),
    /// Each rank has parcels for the others in a send buffer; afterwards each has its own in a receive buffer. What
    /// others relay waits in a transit buffer: its element i is element `send_len + i` where the rank sends it, and
    /// element `receive_len + i` where the rank receives it. No hop is in two of these buffers.
    AllToAll(Parcels),
}

impl Goal {
    /// How many ranks take part.
    #[must_use]
    pub fn ranks(&self) -> usize {
        match self {
            Self::ReduceScatter(slices) | Self::AllGather(slices) | Self::AllReduce(slices) => slices.ranks(),
            Self::AllToAll(parcels) => parcels.ranks(),
        }
    }

    /// As people call it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::ReduceScatter(_) => "reduce-scatter",
            Self::AllGather(_) => "all-gather",
            Self::AllReduce(_) => "all-reduce",
            Self::AllToAll(_) => "all-to-all",
        }
    }
}

/// Rounds of hops that reach a goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The planner's name.
    pub algorithm: &'static str,
    /// What it computes.
    pub goal: Goal,
    /// How elements travel.
    pub payload: Payload,
    /// The rounds; no hop is empty.
    pub rounds: Vec<Vec<Hop>>,
}

impl Schedule {
    /// A schedule of these rounds without their empty hops, and without rounds that are empty then.
    #[must_use]
    pub fn new(algorithm: &'static str, goal: Goal, payload: Payload, mut rounds: Vec<Vec<Hop>>) -> Self {
        rounds.iter_mut().for_each(|round| round.retain(|hop| !hop.source.is_empty()));
        rounds.retain(|round| !round.is_empty());
        Self { algorithm, goal, payload, rounds }
    }

    /// How many ranks take part.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.goal.ranks()
    }

    /// Bytes that a hop moves between ranks.
    #[must_use]
    pub fn hop_bytes(&self, hop: &Hop) -> usize {
        if hop.from == hop.to { 0 } else { hop.source.len() * self.payload.bytes() }
    }

    /// Bytes from each rank to each other in all rounds.
    #[must_use]
    pub fn traffic(&self) -> Links {
        let mut traffic = Links::uniform(self.ranks(), 0);
        for hop in self.rounds.iter().flatten() {
            *traffic.at_mut(hop.from, hop.to) += self.hop_bytes(hop);
        }
        traffic
    }

    /// Bytes of the longest hop from each rank to each other: what windows must hold so that no message is cut.
    #[must_use]
    pub fn longest(&self) -> Links {
        let mut longest = Links::uniform(self.ranks(), 0);
        for hop in self.rounds.iter().flatten() {
            let place = longest.at_mut(hop.from, hop.to);
            *place = (*place).max(self.hop_bytes(hop));
        }
        longest
    }

    /// Elements of a rank's transit buffer, in which it keeps what it relays in an all-to-all; a reduction needs none.
    #[must_use]
    pub fn transit_len(&self, rank: RankId) -> usize {
        let Goal::AllToAll(parcels) = &self.goal else { return 0 };
        let comes = self.rounds.iter().flatten().filter(|hop| hop.to == rank).map(|hop| hop.target.end);
        comes.max().unwrap_or(0).saturating_sub(parcels.receive_len(rank))
    }

    /// Bytes of memory that must be read and written at the least, by all ranks: two for each byte that is copied into
    /// a window or from it, three where it is added (the term, the sum before and after). An element is read and
    /// written as f32, or as it is; it travels as the payload says.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let (there, travels) = self.payload.accesses();
        let cost = |hop: &Hop| match (hop.from == hop.to, hop.fold) {
            (true, _) => 2 * there,
            (false, Fold::Copy) => 2 * there + 2 * travels,
            (false, Fold::Add) => 3 * there + 2 * travels,
        };
        self.rounds.iter().flatten().map(|hop| hop.source.len() * cost(hop)).sum()
    }

    /// The schedule run backwards, copying where it added: what turns a reduce-scatter into the all-gather that undoes
    /// it. Rank r ends with all that it sent away, from those that it sent it to.
    ///
    /// # Panics
    /// When this is no reduce-scatter.
    #[must_use]
    pub fn all_gather(&self) -> Self {
        let Goal::ReduceScatter(slices) = &self.goal else { panic!("only a reduce-scatter is reversed") };
        let back = |hop: &Hop| Hop {
            from: hop.to,
            to: hop.from,
            source: hop.target.clone(),
            target: hop.source.clone(),
            fold: Fold::Copy,
        };
        let rounds = self.rounds.iter().rev().map(|round| round.iter().map(back).collect()).collect();
        Self { algorithm: self.algorithm, goal: Goal::AllGather(slices.clone()), payload: self.payload, rounds }
    }

    /// A reduce-scatter followed by its own all-gather: an all-reduce.
    ///
    /// # Panics
    /// When this is no reduce-scatter.
    #[must_use]
    pub fn all_reduce(&self) -> Self {
        let Goal::ReduceScatter(slices) = &self.goal else { panic!("only a reduce-scatter is continued") };
        let rounds = self.rounds.iter().cloned().chain(self.all_gather().rounds).collect();
        Self { algorithm: self.algorithm, goal: Goal::AllReduce(slices.clone()), payload: self.payload, rounds }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (goal, ranks) = (self.goal.name(), self.ranks());
        let starts: Vec<[usize; 2]> = match &self.goal {
            Goal::AllToAll(parcels) => RankId::all(ranks).map(|rank| parcels.transit_starts(rank)).collect(),
            _ => vec![[usize::MAX; 2]; ranks],
        };
        let beside = |rank: &RankId, span: &Range<usize>, side: usize| {
            let start = starts[rank.index()][side];
            if span.start < start {
                format!("{span:?}")
            } else {
                format!("transit {:?}", span.start - start..span.end - start)
            }
        };
        writeln!(f, "{} {goal} among {ranks} ranks, {}, {} rounds", self.algorithm, self.payload, self.rounds.len())?;
        for (number, round) in self.rounds.iter().enumerate() {
            writeln!(f, "round {}", number + 1)?;
            for hop in round {
                let Hop { from, to, source, target, fold } = hop;
                let sign = if *fold == Fold::Add { "+=" } else { "=" };
                let bytes = Bytes(self.hop_bytes(hop) as u64);
                let (source, target) = (beside(from, source, 0), beside(to, target, 1));
                writeln!(f, "  {to} {target} {sign} {from} {source}, {bytes}")?;
            }
        }
        write!(f, "bytes from (row) to (column)\n{}", self.traffic())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::plan::{Ring, ring};

    #[test]
    fn a_schedule_prints_itself() {
        let schedule = ring(&Ring::of(3)).plan(&Slices::of(&[16, 0, 3]), Payload::Bf16);
        let expected = "ring reduce-scatter among 3 ranks, bf16, 2 rounds\n\
                        round 1\n  rank 1 16..19 += rank 0 16..19, 6 B\n  rank 2 0..16 += rank 1 0..16, 32 B\n\
                        round 2\n  rank 2 16..19 += rank 1 16..19, 6 B\n  rank 0 0..16 += rank 2 0..16, 32 B\n\
                        bytes from (row) to (column)\n";
        let text = schedule.to_string();
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(schedule.traffic().total(), 76);
        // Each of 38 elements: 4 read and 2 written, 2 read, and 4 read and 4 written again.
        assert_eq!(schedule.memory_bytes(), 38 * 16);
    }
}
