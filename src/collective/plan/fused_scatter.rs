//! `fused-scatter`: one scatter for each rank, of all its sources together (SC20, section IV-B).

use super::{Hop, Parcels, bring_all};

pub(super) fn rounds(parcels: &Parcels) -> Vec<Vec<Hop>> {
    let ranks = parcels.ranks();
    (0..ranks).map(|from| (0..ranks).flat_map(|to| bring_all(parcels, from, to)).collect()).collect()
}
