//! `hierarchical`: first inside each machine, then between machines, so that what crosses the network is what it must
//! be.
//!
//! Inside, a rank gets its machine's part of the slices of all ranks that have its place on their machines; then these
//! ranks, one a machine, send each other theirs. A machine with M - 1 others sends (M - 1) / M of the tensor over the
//! network, each rank its share: the endpoints of SC20, Section IV-A, which work side by side.

use super::{Flow, Reduction};

/// Among so many ranks with `local` on each machine, whose numbers follow each other.
///
/// # Panics
/// When machines of `local` ranks do not make `ranks`.
#[must_use]
pub fn hierarchical(ranks: usize, local: usize) -> Reduction {
    assert!(local > 0 && ranks.is_multiple_of(local), "{ranks} ranks on machines of {local}");
    let machines = ranks / local;
    let rank = |machine: usize, place: usize| machine * local + place;
    let flow = |from: usize, to: usize, owner: usize| Flow { from, to, owner, ways: 0..1 };
    let mut inside = Vec::new();
    for machine in 0..machines {
        for (step, to) in (1..local).flat_map(|step| (0..local).map(move |to| (step, to))) {
            let (from, to_rank) = (rank(machine, (to + step) % local), rank(machine, to));
            inside.extend((0..machines).map(|other| flow(from, to_rank, rank(other, to))));
        }
    }
    let steps = (1..machines).flat_map(|step| (0..ranks).map(move |to| (step, to)));
    let between = steps.map(|(step, to)| flow((to + step * local) % ranks, to, to)).collect();
    Reduction::new("hierarchical", ranks, 1, vec![inside, between])
}
