//! Links between packages of several nodes each (sub-NUMA clustering, NPS): nodes share those of their package.
//!
//! Distances join each node of a package with each of the next one, and a pair alone has the link between the packages
//! to itself: taken for links of their own, sixteen pairs would have sixteen times what there is. So each package is a
//! switch, as `topology/epyc-nps4-2s.toml` has it, and a link joins two of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Figures, PairFigures};
use crate::base::NodeId;
use crate::machine::describe::{End, Link, Machine, Switch};
use crate::machine::discover;

/// What it takes from a node to its package's switch, where nobody can tell it from the rest of the way.
const WITHIN_NS: f64 = 1.0;

/// The links between two packages, by their numbers, of the nodes at their ends.
type Between = BTreeMap<[u32; 2], Vec<[NodeId; 2]>>;

fn between<'a>(machine: &Machine, links: impl Iterator<Item = &'a [u32; 2]>) -> Between {
    let package = |node: NodeId| machine.node(node).map_or(node.0, |node| node.package);
    let mut all = Between::new();
    for ends in links {
        let mut ends = ends.map(NodeId);
        ends.sort_unstable_by_key(|node| package(*node));
        let packages = ends.map(package);
        if packages[0] != packages[1] {
            all.entry(packages).or_default().push(ends);
        }
    }
    all
}

/// Whether these links join all nodes of packages with all of others, and more than one with more than one.
pub(super) fn meet(machine: &Machine, links: &[[u32; 2]]) -> bool {
    let nodes = |package: u32| machine.nodes.iter().filter(|node| node.package == package).count();
    let between = between(machine, links.iter());
    let whole = between.iter().all(|([a, b], pairs)| pairs.len() == nodes(*a) * nodes(*b));
    whole && between.values().any(|pairs| pairs.len() > 1)
}

impl Figures {
    /// Gives packages a switch each. The link between two of them has what their nodes write each other while all
    /// write, or what a pair writes alone if that is more.
    pub(super) fn join_packages(&self, machine: &mut Machine) {
        let between = between(machine, self.links.iter());
        let packages: BTreeSet<u32> = between.keys().flatten().copied().collect();
        let first = machine.switches.len();
        let switch = |package: u32| End::Switch(first + packages.iter().take_while(|other| **other < package).count());
        let across: BTreeSet<[NodeId; 2]> = between.values().flatten().copied().collect();
        let is_across = |ends: &[End; 2]| match *ends {
            [End::Node(a), End::Node(b)] => across.contains(&[a, b]) || across.contains(&[b, a]),
            _ => false,
        };
        machine.links.retain(|link| !is_across(&link.ends));
        machine.switches.extend(
            packages.iter().map(|package| Switch { name: format!("package{package}"), oversubscription: None }),
        );
        let most = |figures: &[&PairFigures]| figures.iter().map(|pair| pair.write_gb_s).max_by(f64::total_cmp);
        for node in machine.nodes.iter().filter(|node| packages.contains(&node.package)) {
            let ends = across.iter().filter_map(|[a, b]| match node.id {
                id if id == *a => Some(*b),
                id if id == *b => Some(*a),
                _ => None,
            });
            let (out, back): (Vec<_>, Vec<_>) =
                ends.filter_map(|other| Some((self.pair(node.id, other)?, self.pair(other, node.id)?))).unzip();
            machine.links.push(Link {
                ends: [End::Node(node.id), switch(node.package)],
                gb_s: [most(&out), most(&back)].into_iter().flatten().min_by(f64::total_cmp),
                latency_ns: Some(WITHIN_NS),
                core_s_per_gb: None,
            });
        }
        for ([a, b], pairs) in &between {
            let (out, back): (Vec<_>, Vec<_>) =
                pairs.iter().filter_map(|[a, b]| Some((self.pair(*a, *b)?, self.pair(*b, *a)?))).unzip();
            let together = |figures: &[&PairFigures]| {
                let all: f64 = figures.iter().filter_map(|pair| pair.loaded_gb_s).sum();
                most(figures).map(|alone| alone.max(all))
            };
            let latency = out.iter().chain(&back).filter_map(|pair| pair.latency_ns).max_by(f64::total_cmp);
            machine.links.push(Link {
                ends: [switch(*a), switch(*b)],
                gb_s: [together(&out), together(&back)].into_iter().flatten().min_by(f64::total_cmp),
                latency_ns: latency.map(|latency| (latency - 2.0 * WITHIN_NS).max(WITHIN_NS)),
                core_s_per_gb: None,
            });
        }
        let why = "nodes of a package share its link to another one, as they write less while all do";
        machine.assumptions.push(format!("{} between packages: {why}", discover::LINKS));
    }
}
