//! Several machines as one: what plans are made for when a job runs on more than one.

use super::describe::{CapacityTier, Distances, End, FIGURES, LOCAL_DISTANCE, Link, Machine, Node, Switch};
use super::figures::Network;
use super::placement::{Placement, RankPlace};
use crate::base::{NodeId, RankId};

/// What is taken of a network that nobody has measured: an adapter of 100 Gbit/s.
const NETWORK_GB_S: f64 = 12.5;
/// Nanoseconds from a machine to the network's switch.
const NETWORK_NS: f64 = 500.0;
/// What is said of it, among a machine's assumptions.
pub const UNMEASURED: &str = "network between machines: 12.5 GB/s and 1 us, not measured";
/// The switch that joins all machines.
const NETWORK: &str = "network";

/// Machines with the ranks on each, machine after machine: one machine whose nodes are numbered through, joined by a
/// network that was measured or is assumed, and all ranks on it.
///
/// # Panics
/// When there is no machine.
#[must_use]
pub fn cluster(parts: &[(Machine, Placement)], network: Option<&Network>) -> (Machine, Placement) {
    assert!(!parts.is_empty(), "a cluster has machines");
    if let [(machine, placement)] = parts {
        return (machine.clone(), placement.clone());
    }
    let (gb_s, latency_ns) = network.map_or((NETWORK_GB_S, NETWORK_NS), Network::adapter);
    let core_s_per_gb = network.map(|network| network.core_s_per_gb).filter(|seconds| FIGURES.contains(seconds));
    let measured = |network: &Network| format!("network between machines: measured {}", network.age());
    let mut whole = Machine {
        name: format!("{} machines like {}", parts.len(), parts[0].0.name),
        about: "put together from the machines of this job".to_owned(),
        nodes: Vec::new(),
        tiers: Vec::new(),
        switches: vec![Switch { name: NETWORK.to_owned(), oversubscription: None }],
        links: Vec::new(),
        routes: Vec::new(),
        distances: Distances { ids: Vec::new(), rows: Vec::new() },
        is_this_system: true,
        assumptions: if network.is_some() { Vec::new() } else { vec![UNMEASURED.to_owned()] },
        measured: match (&parts[0].0.measured, network) {
            (Some(first), Some(network)) => Some(format!("{first}; {}", measured(network))),
            (first, _) => first.clone(),
        },
        figures_note: (0..).zip(parts).find_map(|(number, (machine, _))| {
            let note = machine.figures_note.as_ref()?;
            Some(if number == 0 { note.clone() } else { format!("machine {number}: {note}") })
        }),
        cpu_quota: None,
    };
    let mut ranks = Placement { ranks: Vec::new(), spin: true, reasons: Vec::new(), warnings: Vec::new() };
    let (mut first_node, mut first_rank) = (0, 0);
    for (host, (machine, placement)) in (0..).zip(parts) {
        let node = |id: NodeId| NodeId(first_node + id.0);
        let end = |end: &End| match end {
            End::Node(id) => End::Node(node(*id)),
            End::Switch(number) => End::Switch(*number + whole.switches.len()),
        };
        let links = machine.links.iter().map(|link| Link { ends: [end(&link.ends[0]), end(&link.ends[1])], ..*link });
        let routes = machine.routes.iter().map(|route| {
            let path = route.path.iter().map(end).collect();
            super::describe::Route { path }
        });
        let (links, routes): (Vec<_>, Vec<_>) = (links.collect(), routes.collect());
        whole.links.extend(links);
        whole.routes.extend(routes);
        whole.switches.extend(
            machine
                .switches
                .iter()
                .map(|switch| Switch { name: format!("{}-of-{host}", switch.name), ..switch.clone() }),
        );
        whole.nodes.extend(machine.nodes.iter().map(|own| Node { id: node(own.id), host, ..own.clone() }));
        let near = |tier: &CapacityTier| tier.near.iter().map(|id| node(*id)).collect();
        let tiers =
            machine.tiers.iter().map(|tier| CapacityTier { id: node(tier.id), near: near(tier), ..tier.clone() });
        whole.tiers.extend(tiers);
        let adapter = node(machine.nodes[0].id);
        whole.links.push(Link {
            ends: [End::Node(adapter), End::Switch(0)],
            gb_s: Some(gb_s),
            latency_ns: Some(latency_ns),
            core_s_per_gb,
        });
        whole.assumptions.extend(machine.assumptions.iter().map(|assumption| format!("machine {host}: {assumption}")));
        ranks.spin &= placement.spin;
        ranks.ranks.extend(placement.ranks.iter().map(|place| RankPlace {
            rank: RankId(first_rank + place.rank.0),
            host,
            node: node(place.node),
            memory_nodes: place.memory_nodes.iter().map(|id| node(*id)).collect(),
            ..place.clone()
        }));
        first_rank += placement.ranks.len() as u32;
        let ids = machine.nodes.iter().map(|node| node.id).chain(machine.tiers.iter().map(|tier| tier.id));
        first_node += 1 + ids.map(|id| id.0).max().unwrap_or(0);
    }
    let ids: Vec<NodeId> =
        whole.nodes.iter().map(|node| node.id).chain(whole.tiers.iter().map(|tier| tier.id)).collect();
    let apart = 4 * LOCAL_DISTANCE;
    let distance = |a: usize, b: usize| if a == b { LOCAL_DISTANCE } else { apart };
    whole.distances =
        Distances { rows: (0..ids.len()).map(|a| (0..ids.len()).map(|b| distance(a, b)).collect()).collect(), ids };
    (whole, ranks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::figures::Together;
    use crate::machine::placement::{Wishes, place};
    use crate::machine::routes::Routes;

    #[test]
    fn nodes_and_ranks_are_numbered_through_and_reach_each_other_over_the_network() {
        let machine = Machine::load("twisted-hypercube-8").unwrap();
        let placement = place(&machine, &Wishes { ranks: Some(8), threads: Some(1), ..Wishes::default() }).unwrap();
        let parts = [(machine.clone(), placement.clone()), (machine, placement)];
        let together = Together { gb_s: 0.5, core_s_per_gb: 1.0 };
        let network = Network::of(vec!["a".to_owned(), "b".to_owned()], 1_000_000, &[[1e-3, 4e-6]], together);
        let (measured, _) = cluster(&parts, Some(&network));
        let link = measured.links.iter().find(|link| link.ends[1] == End::Switch(0)).unwrap();
        assert_eq!((link.gb_s, link.latency_ns, link.core_s_per_gb), (Some(0.5), Some(2000.0), Some(1.0)));
        assert!(!measured.assumptions.iter().any(|line| line.contains("network")));
        let again = Machine::parse(&measured.to_toml(), "exported").unwrap();
        assert_eq!(again.links, measured.links);
        // More than one host may have.
        let many = cluster(&vec![parts[0].clone(); 33], None).0;
        let again = Machine::parse(&many.to_toml(), "exported").unwrap();
        assert_eq!((again.nodes.len(), again.hosts(), again.links.len()), (264, 33, 33 * 13));
        let (whole, ranks) = cluster(&parts, None);
        assert!(whole.assumptions.iter().any(|line| line.contains("network")));
        assert_eq!((whole.nodes.len(), ranks.ranks.len()), (16, 16));
        let last = &ranks.ranks[15];
        assert_eq!((last.rank, last.node, last.host), (RankId(15), NodeId(15), 1));
        let path = Routes::new(&whole).path(NodeId(0), NodeId(8)).len();
        assert_eq!(path, 2, "to the switch and on");
        assert!(Routes::new(&whole).path(NodeId(5), NodeId(13)).len() > 2);
    }
}
