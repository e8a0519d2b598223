//! `scatter-list`: one scatter for each source, as many calls as there are embedding tables (SC20, section IV-B).

use super::{Hop, Parcels, bring};

pub(super) fn rounds(parcels: &Parcels) -> Vec<Vec<Hop>> {
    (0..parcels.sources()).map(|source| parcels.of(source).iter().map(bring).collect()).collect()
}
