//! All schedules that could be taken for a collective on a machine: the list that a choice by price is made from.

use super::{BreadthFirst, Exchange, Parcels, Payload, Reduction, Ring, Schedule, Slices, relayed};
use crate::collective::price::Works;
use crate::machine::Site;

/// The reduce-scatters of `slices` among the ranks of a site, of which `local` stand on each host; see
/// [`Schedule::reversed`] and [`Schedule::all_reduce`] for what follows them.
///
/// # Panics
/// When there are other ranks.
#[must_use]
pub fn reductions(slices: &Slices, payload: Payload, site: &Site, local: Option<usize>) -> Vec<Schedule> {
    let ring = Ring::along(site);
    let mut all = vec![
        Reduction::Direct.plan(slices, payload),
        ring.plan(slices, payload, false),
        ring.plan(slices, payload, true),
        Reduction::HalvingDoubling.plan(slices, payload),
        BreadthFirst::of(site).plan(slices, payload),
    ];
    all.extend(local.map(|local| Reduction::Hierarchical(local).plan(slices, payload)));
    all
}

/// The all-to-alls of `parcels` among the ranks of a site, of which those with relays count these works.
///
/// # Panics
/// When there are other ranks.
#[must_use]
pub fn exchanges(parcels: &Parcels, payload: Payload, site: &Site, works: Works) -> Vec<Schedule> {
    let calls = Exchange::ALL.into_iter().map(|exchange| exchange.plan(parcels, payload));
    calls.chain([relayed(parcels, payload, site, works)]).collect()
}
