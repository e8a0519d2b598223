//! Planners, one file each. Those of all-to-alls make a schedule of sizes; those of reductions, which training takes
//! for many tensors, a [`Reduction`], which makes schedules. A new one is a file and a line in a list
//! ([`reductions()`], [`exchanges()`]).

mod alltoall;
mod breadth_first;
mod candidates;
mod direct;
mod fused_scatter;
mod halving_doubling;
mod hierarchical;
mod multi_ring;
mod pairwise;
mod phases;
mod reduction;
mod relayed;
mod ring;
mod scatter_list;
mod trees;
mod two_ring;

use super::parcels::{Parcel, Parcels};
use super::schedule::{Fold, Goal, Hop, Payload, Schedule};
use super::slices::Slices;
use crate::base::RankId;

pub use breadth_first::breadth_first;
pub use candidates::{EXCHANGES, Topology, exchange, exchanges, reductions};
pub use direct::direct;
pub use halving_doubling::halving_doubling;
pub use hierarchical::hierarchical;
pub use multi_ring::{disjoint_rings, multi_ring};
pub use reduction::{Flow, Reduction};
pub use relayed::relayed;
pub use ring::{Ring, ring};
pub use trees::{pipelined_trees, spanning_trees};
pub use two_ring::two_ring;

/// How an all-to-all is divided into calls or rounds (SC20, section IV-B).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// One scatter for each source (embedding table).
    ScatterList,
    /// One scatter for each rank.
    FusedScatter,
    /// All at once.
    AllToAll,
    /// Each rank with one other a round.
    Pairwise,
}

impl Exchange {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ScatterList, Self::FusedScatter, Self::AllToAll, Self::Pairwise];

    /// As people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScatterList => "scatter-list",
            Self::FusedScatter => "fused-scatter",
            Self::AllToAll => "alltoall",
            Self::Pairwise => "pairwise",
        }
    }

    /// The all-to-all of `parcels`.
    #[must_use]
    pub fn plan(self, parcels: &Parcels, payload: Payload) -> Schedule {
        let rounds = match self {
            Self::ScatterList => scatter_list::rounds(parcels),
            Self::FusedScatter => fused_scatter::rounds(parcels),
            Self::AllToAll => alltoall::rounds(parcels),
            Self::Pairwise => pairwise::rounds(parcels),
        };
        Schedule::new(self.name(), Goal::AllToAll(parcels.clone()), payload, rounds)
    }
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
