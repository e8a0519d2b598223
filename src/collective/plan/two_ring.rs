//! `two-ring`: half of every slice goes around the ring one way and half the other way, so that both directions of each
//! link are used. On the twisted hypercube of eight sockets the order 0-1-2-4-7-6-5-3 uses direct links only.

use super::{Hop, Ring, Slices};

pub(super) fn rounds(slices: &Slices, ring: &Ring) -> Vec<Vec<Hop>> {
    rounds_of([&slices.part(0, 2), &slices.part(1, 2)], ring)
}

/// The first half of every slice one way, the second the other way.
pub(super) fn rounds_of([first, second]: [&Slices; 2], ring: &Ring) -> Vec<Vec<Hop>> {
    let there = ring.rounds(first);
    let back = ring.reversed().rounds(second);
    there.into_iter().zip(back).map(|(there, back)| [there, back].concat()).collect()
}
