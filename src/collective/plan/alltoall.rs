//! `alltoall`: everything at once (SC20, section IV-B). Rank r serves r + 1 first, so that at no time all send to one.

use super::{Hop, Parcels, bring_all};

pub(super) fn rounds(parcels: &Parcels) -> Vec<Vec<Hop>> {
    let ranks = parcels.ranks();
    let pairs = (1..=ranks).flat_map(|step| (0..ranks).map(move |from| (from, (from + step) % ranks)));
    vec![pairs.flat_map(|(from, to)| bring_all(parcels, from, to)).collect()]
}
