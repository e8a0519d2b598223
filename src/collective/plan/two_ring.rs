//! `two-ring`: half of every slice goes around the ring one way and half the other way, so that both directions of each
//! link are used. On the twisted hypercube of eight sockets the order 0-1-2-4-7-6-5-3 uses direct links only.

use super::{Hop, Ring, Slices};

pub(super) fn rounds(slices: &Slices, ring: &Ring) -> Vec<Vec<Hop>> {
    let there = ring.rounds(&slices.part(0, 2));
    let back = ring.reversed().rounds(&slices.part(1, 2));
    there.into_iter().zip(back).map(|(there, back)| [there, back].concat()).collect()
}
