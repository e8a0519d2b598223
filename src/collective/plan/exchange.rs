//! All-to-alls in which every parcel goes straight to its place: they differ in what goes together.

use super::{Fold, Goal, Hop, Parcel, Parcels, Payload, Schedule};
use crate::base::{RankId, named};

named! {
    /// How an all-to-all is divided into calls or rounds (SC20, section IV-B).
    pub enum Exchange {
        /// One scatter for each source, as many calls as there are embedding tables.
        ScatterList = "scatter-list",
        /// One scatter for each rank, of all its sources together.
        FusedScatter = "fused-scatter",
        /// Everything at once. Rank r serves r + 1 first, so that at no time all send to one.
        AllToAll = "alltoall",
        /// In round k rank r sends to r + k and receives from r - k, so that nobody sends or receives twice at once:
        /// what MPI's libraries do with long messages (Thakur, Rabenseifner and Gropp, "Optimization of Collective
        /// Communication Operations in MPICH", 2005, section 4.3).
        Pairwise = "pairwise",
    }
}

impl Exchange {
    /// The all-to-all of `parcels`.
    #[must_use]
    pub fn plan(self, parcels: &Parcels, payload: Payload) -> Schedule {
        let ranks = parcels.ranks();
        let shifted = |step: usize| {
            (0..ranks).flat_map(move |from| bring_all(parcels, from, (from + step) % ranks)).collect::<Vec<_>>()
        };
        let rounds = match self {
            Self::ScatterList => {
                (0..parcels.sources()).map(|source| parcels.of(source).iter().map(bring).collect()).collect()
            }
            Self::FusedScatter => {
                (0..ranks).map(|from| (0..ranks).flat_map(|to| bring_all(parcels, from, to)).collect()).collect()
            }
            Self::AllToAll => vec![(1..=ranks).flat_map(shifted).collect()],
            Self::Pairwise => (1..=ranks).map(shifted).collect(),
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
pub(super) fn bring_all(parcels: &Parcels, from: usize, to: usize) -> Vec<Hop> {
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
