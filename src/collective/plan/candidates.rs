//! All that could be taken for a collective on a machine: the lists that a choice by price is made from.

use super::relayed::NAME as RELAYED;
use super::{
    Exchange, Parcels, Payload, Reduction, Ring, Schedule, breadth_first, direct, disjoint_rings, halving_doubling,
    hierarchical, multi_ring, pipelined_trees, relayed, ring, spanning_trees, two_ring,
};
use crate::collective::price::Works;
use crate::machine::Site;

/// What planners may know of where ranks are.
#[derive(Debug, Clone, Copy)]
pub struct Topology<'a> {
    /// How many there are.
    pub ranks: usize,
    /// Where they stand, and the links between them.
    pub site: Option<&'a Site>,
    /// How many stand on each host, if there are several hosts with as many each.
    pub local: Option<usize>,
}

/// Makes a reduction where it has what it needs to know.
type Planner = fn(&Topology<'_>) -> Option<Reduction>;

/// Every planner of reductions, by the name that its reductions have.
const PLANNERS: [(&str, Planner); 9] = [
    ("direct", |topology| Some(direct(topology.ranks))),
    ("ring", |topology| Some(ring(&topology.ring()))),
    ("two-ring", |topology| Some(two_ring(&topology.ring()))),
    ("multi-ring", |topology| topology.rings().map(|rings| multi_ring(&rings))),
    ("halving-doubling", |topology| Some(halving_doubling(topology.ranks))),
    ("breadth-first", |topology| topology.site.and_then(breadth_first)),
    ("spanning-trees", |topology| topology.site.and_then(spanning_trees)),
    ("pipelined-trees", |topology| topology.site.and_then(pipelined_trees)),
    ("hierarchical", |topology| topology.local.map(|local| hierarchical(topology.ranks, local))),
];

impl<'a> Topology<'a> {
    /// Ranks of which nothing else is known.
    #[must_use]
    pub const fn of(ranks: usize) -> Self {
        Self { ranks, site: None, local: None }
    }

    /// Ranks of a site.
    #[must_use]
    pub const fn along(site: &'a Site) -> Self {
        Self { ranks: site.ranks.len(), site: Some(site), local: site.local }
    }

    fn ring(&self) -> Ring {
        self.site.map_or_else(|| Ring::of(self.ranks), Ring::along)
    }

    /// Those that share no link, where there are any.
    fn rings(&self) -> Option<Vec<Ring>> {
        self.site.map(disjoint_rings).filter(|rings| !rings.is_empty())
    }
}

impl Reduction {
    /// The names of all planners.
    pub const NAMES: [&str; PLANNERS.len()] = {
        let mut names = [""; PLANNERS.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = PLANNERS[at].0;
            at += 1;
        }
        names
    };

    /// The one of this name; none if there is no such name, or what its planner needs to know is not known.
    #[must_use]
    pub fn named(name: &str, topology: &Topology<'_>) -> Option<Self> {
        PLANNERS.iter().find(|planner| planner.0 == name).and_then(|(_, planner)| planner(topology))
    }
}

/// All reductions that can be planned with what is known.
#[must_use]
pub fn reductions(topology: &Topology<'_>) -> Vec<Reduction> {
    PLANNERS.iter().filter_map(|(_, planner)| planner(topology)).collect()
}

/// The names of all planners of all-to-alls, which their schedules have.
pub const ALL_TO_ALLS: [&str; Exchange::ALL.len() + 1] = {
    let [a, b, c, d] = Exchange::ALL;
    [a.name(), b.name(), c.name(), d.name(), RELAYED]
};

/// The all-to-all of `parcels` of this name among the ranks of a site; with relays it counts these works. None if there
/// is no such name.
///
/// # Panics
/// When there are other ranks.
#[must_use]
pub fn exchange(name: &str, parcels: &Parcels, payload: Payload, site: &Site, works: Works) -> Option<Schedule> {
    let straight = Exchange::ALL.into_iter().find(|exchange| exchange.name() == name);
    let straight = straight.map(|exchange| exchange.plan(parcels, payload));
    straight.or_else(|| (name == RELAYED).then(|| relayed(parcels, payload, site, works)))
}

/// All all-to-alls of `parcels` among the ranks of a site, of which that with relays counts these works.
///
/// # Panics
/// When there are other ranks.
#[must_use]
pub fn exchanges(parcels: &Parcels, payload: Payload, site: &Site, works: Works) -> Vec<Schedule> {
    let straight = Exchange::ALL.map(|exchange| exchange.plan(parcels, payload));
    straight.into_iter().chain([relayed(parcels, payload, site, works)]).collect()
}
