//! `two-ring`: half of every slice goes around the ring one way and half the other way, so that both directions of each
//! link are used. On the twisted hypercube of eight sockets the order 0-1-2-4-7-6-5-3 uses direct links only.

use super::{Reduction, Ring};

/// Around this ring and back.
#[must_use]
pub fn two_ring(ring: &Ring) -> Reduction {
    let (there, back) = (ring.rounds(0), ring.reversed().rounds(1));
    let rounds = there.into_iter().zip(back).map(|(there, back)| [there, back].concat()).collect();
    Reduction::new("two-ring", ring.ranks(), 2, rounds)
}
