//! `hierarchical`: first inside each machine, then between machines, so that what crosses the network is what it must be.
//!
//! Inside, a rank gets its machine's part of the slices of all ranks that have its place on their machines; then these
//! ranks, one a machine, send each other theirs. A machine with M - 1 others sends (M - 1) / M of the tensor over the
//! network, each rank its share: the endpoints of SC20, Section IV-A, which work side by side.

use super::{Hop, Slices, add};

/// With so many ranks on each machine, whose numbers follow each other.
pub(super) fn rounds(slices: &Slices, local: usize) -> Vec<Vec<Hop>> {
    let ranks = slices.ranks();
    assert!(local > 0 && ranks.is_multiple_of(local), "{ranks} ranks on machines of {local}");
    let machines = ranks / local;
    let rank = |machine: usize, place: usize| machine * local + place;
    let (mut inside, mut between) = (Vec::new(), Vec::new());
    for machine in 0..machines {
        for (step, to) in (1..local).flat_map(|step| (0..local).map(move |to| (step, to))) {
            let (from, to) = (rank(machine, (to + step) % local), to);
            for owner in (0..machines).map(|other| rank(other, to)) {
                inside.extend(add(slices, from, rank(machine, to), owner..owner + 1));
            }
        }
    }
    for (step, to) in (1..machines).flat_map(|step| (0..ranks).map(move |to| (step, to))) {
        between.extend(add(slices, (to + step * local) % ranks, to, to..to + 1));
    }
    vec![inside, between]
}
