//! Planners, one file each: from sizes to a schedule. A new one is a file and a line in a list.

mod alltoall;
mod breadth_first;
mod candidates;
mod direct;
mod fused_scatter;
mod halving_doubling;
mod hierarchical;
mod phases;
mod relayed;
mod ring;
mod scatter_list;
mod two_ring;

use super::parcels::{Parcel, Parcels};
use super::schedule::{Fold, Goal, Hop, Payload, Schedule};
use super::slices::Slices;
use crate::base::RankId;

pub use breadth_first::BreadthFirst;
pub use candidates::{exchanges, reductions};
pub use relayed::relayed;
pub use ring::Ring;

/// How a reduction goes from rank to rank; each is a reduce-scatter, whose reverse is the all-gather.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Everybody sends everybody its part at once.
    Direct,
    /// Around one ring.
    Ring,
    /// Around a ring in both directions, half each.
    TwoRing,
    /// Halving the ranks and the tensor in each round.
    HalvingDoubling,
    /// Inside each machine of so many ranks first, then between machines.
    Hierarchical(usize),
}

impl Reduction {
    /// All that know no machines.
    pub const ALL: [Self; 4] = [Self::Direct, Self::Ring, Self::TwoRing, Self::HalvingDoubling];

    /// As people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Ring => "ring",
            Self::TwoRing => "two-ring",
            Self::HalvingDoubling => "halving-doubling",
            Self::Hierarchical(_) => "hierarchical",
        }
    }

    /// The reduce-scatter of `slices`; see [`Schedule::reversed`] and [`Schedule::all_reduce`] for what follows it.
    ///
    /// # Panics
    /// When the payload is raw bytes, which cannot be added.
    #[must_use]
    pub fn plan(self, slices: &Slices, payload: Payload) -> Schedule {
        let order = Ring::of(slices.ranks());
        let rounds = match self {
            Self::Direct => direct::rounds(slices),
            Self::Ring => order.rounds(slices),
            Self::TwoRing => two_ring::rounds(slices, &order),
            Self::HalvingDoubling => halving_doubling::rounds(slices),
            Self::Hierarchical(local) => hierarchical::rounds(slices, local),
        };
        reduce_scatter(self.name(), slices, payload, rounds)
    }

    /// The reduce-scatter of slices that consist of two halves each, one after the other, which go opposite ways around
    /// two rings: so that who cuts slices into parts can keep every element on its way.
    ///
    /// # Panics
    /// When the payload is raw bytes, or the halves do not touch.
    #[must_use]
    pub fn plan_halves(self, halves: [&Slices; 2], payload: Payload) -> Schedule {
        let slices = halves[0].joined(halves[1]);
        match self {
            Self::TwoRing => {
                let rounds = two_ring::rounds_of(halves, &Ring::of(slices.ranks()));
                reduce_scatter(self.name(), &slices, payload, rounds)
            }
            _ => self.plan(&slices, payload),
        }
    }
}

/// How an all-to-all is divided into calls (SC20, section IV-B).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// One scatter for each source (embedding table).
    ScatterList,
    /// One scatter for each rank.
    FusedScatter,
    /// All at once.
    AllToAll,
}

impl Exchange {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ScatterList, Self::FusedScatter, Self::AllToAll];

    /// As people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScatterList => "scatter-list",
            Self::FusedScatter => "fused-scatter",
            Self::AllToAll => "alltoall",
        }
    }

    /// The all-to-all of `parcels`.
    #[must_use]
    pub fn plan(self, parcels: &Parcels, payload: Payload) -> Schedule {
        let rounds = match self {
            Self::ScatterList => scatter_list::rounds(parcels),
            Self::FusedScatter => fused_scatter::rounds(parcels),
            Self::AllToAll => alltoall::rounds(parcels),
        };
        Schedule::new(self.name(), Goal::AllToAll(parcels.clone()), payload, rounds)
    }
}

impl Ring {
    /// The reduce-scatter around this ring, in both directions if `both`.
    ///
    /// # Panics
    /// When the ring and the slices have different ranks, or the payload is raw bytes.
    #[must_use]
    pub fn plan(&self, slices: &Slices, payload: Payload, both: bool) -> Schedule {
        let rounds = if both { two_ring::rounds(slices, self) } else { self.rounds(slices) };
        let kind = if both { Reduction::TwoRing } else { Reduction::Ring };
        reduce_scatter(kind.name(), slices, payload, rounds)
    }
}

impl BreadthFirst {
    /// The reduce-scatter of `slices` along these ways.
    ///
    /// # Panics
    /// When there are other ranks, or the payload is raw bytes.
    #[must_use]
    pub fn plan(&self, slices: &Slices, payload: Payload) -> Schedule {
        reduce_scatter("breadth-first", slices, payload, self.rounds(slices))
    }
}

fn reduce_scatter(name: &'static str, slices: &Slices, payload: Payload, rounds: Vec<Vec<Hop>>) -> Schedule {
    assert!(!matches!(payload, Payload::Raw(_)), "raw bytes cannot be added");
    Schedule::new(name, Goal::ReduceScatter(slices.clone()), payload, rounds)
}

/// Hops that add the slices of `owners`, a range of ranks, to what `to` has of them.
fn add(slices: &Slices, from: usize, to: usize, owners: std::ops::Range<usize>) -> impl Iterator<Item = Hop> {
    let (from, to) = (RankId(from as u32), RankId(to as u32));
    slices.spans(owners).into_iter().map(move |span| Hop {
        from,
        to,
        source: span.clone(),
        target: span,
        fold: Fold::Add,
    })
}

/// The hop that brings a parcel to its place.
fn bring(parcel: &Parcel) -> Hop {
    let Parcel { from, to, send, receive } = parcel.clone();
    Hop { from, to, source: send, target: receive, fold: Fold::Copy }
}

/// All parcels from one rank to another, in as few hops as their places allow.
fn bring_all(parcels: &Parcels, from: usize, to: usize) -> Vec<Hop> {
    let mut hops: Vec<Hop> = Vec::new();
    let parcels = parcels.between(RankId(from as u32), RankId(to as u32));
    for hop in parcels.map(bring).filter(|hop| !hop.source.is_empty()) {
        match hops.last_mut() {
            Some(last) if last.source.end == hop.source.start && last.target.end == hop.target.start => {
                last.source.end = hop.source.end;
                last.target.end = hop.target.end;
            }
            _ => hops.push(hop),
        }
    }
    hops
}
