//! `pairwise`: in round k rank r sends to r + k and receives from r - k, so that nobody sends or receives twice at
//! once: what MPI's libraries do with long messages (Thakur, Rabenseifner and Gropp, "Optimization of Collective
//! Communication Operations in MPICH", 2005, section 4.3).

use super::{Hop, Parcels, bring_all};

pub(super) fn rounds(parcels: &Parcels) -> Vec<Vec<Hop>> {
    let ranks = parcels.ranks();
    let round = |step: usize| (0..ranks).flat_map(|from| bring_all(parcels, from, (from + step) % ranks)).collect();
    (1..=ranks).map(round).collect()
}
