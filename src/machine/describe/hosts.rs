//! What lies inside one host, and what joins different ones: the network.

use std::collections::{BTreeMap, BTreeSet};

use super::{End, Link, Machine};
use crate::base::NodeId;

/// The host of each end of a machine's links.
pub struct Hosts {
    nodes: BTreeMap<NodeId, u32>,
    /// None of those that join different hosts.
    switches: Vec<Option<u32>>,
}

impl Hosts {
    /// Those of a machine. A switch lies inside a host if ways from it over switches lead to no other host's nodes, as
    /// do those from a node controller, or from the I/O die of a package; else it is one of the network.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        let nodes: BTreeMap<NodeId, u32> = machine.nodes.iter().map(|node| (node.id, node.host)).collect();
        let mut near = vec![Vec::new(); machine.switches.len()];
        let mut joined = vec![BTreeSet::new(); machine.switches.len()];
        for link in &machine.links {
            match link.ends {
                [End::Switch(a), End::Switch(b)] => {
                    near[a].push(b);
                    near[b].push(a);
                }
                [End::Switch(switch), End::Node(node)] | [End::Node(node), End::Switch(switch)] => {
                    joined[switch].extend(nodes.get(&node).copied());
                }
                [End::Node(_), End::Node(_)] => {}
            }
        }
        let mut switches = vec![None; machine.switches.len()];
        let mut seen = vec![false; machine.switches.len()];
        for start in 0..switches.len() {
            if seen[start] {
                continue;
            }
            seen[start] = true;
            let (mut group, mut at) = (vec![start], 0);
            while at < group.len() {
                for &other in &near[group[at]] {
                    if !seen[other] {
                        seen[other] = true;
                        group.push(other);
                    }
                }
                at += 1;
            }
            let hosts: BTreeSet<u32> = group.iter().flat_map(|switch| &joined[*switch]).copied().collect();
            let only = hosts.first().copied().filter(|_| hosts.len() == 1);
            group.into_iter().for_each(|switch| switches[switch] = only);
        }
        Self { nodes, switches }
    }

    /// The host in which a node or a switch lies; none of a switch that joins different hosts.
    #[must_use]
    pub fn end(&self, end: End) -> Option<u32> {
        match end {
            End::Node(id) => self.nodes.get(&id).copied(),
            End::Switch(position) => self.switches[position],
        }
    }

    /// Whether a link lies inside one host.
    #[must_use]
    pub fn has_inside(&self, link: &Link) -> bool {
        matches!(link.ends.map(|end| self.end(end)), [Some(a), Some(b)] if a == b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_that_reach_the_nodes_of_one_host_alone_lie_inside_of_it() {
        // Two hosts of two nodes: each with a controller, the first one's behind another; a leaf each, and a root.
        let names = ["controller", "crossbar", "other", "leaf0", "leaf1", "root"];
        let switches: String = names.iter().map(|name| format!("[[switch]]\nname = \"{name}\"\n")).collect();
        let text = format!(
            "name = \"hosts\"\n[[node]]\nids = \"0-3\"\nnodes_per_host = 2\ncores = 1\nmemory_gib = 1\n{switches}\
             [[link]]\npairs = [[0, \"controller\"], [\"controller\", \"crossbar\"], [\"crossbar\", 1], [\"2-3\", \
             \"other\"], [0, \"leaf0\"], [2, \"leaf1\"], [\"leaf0\", \"root\"], [\"root\", \"leaf1\"]]\n"
        );
        let machine = Machine::parse(&text, "hosts").expect("a valid machine");
        let hosts = Hosts::of(&machine);
        let found: Vec<_> = (0..names.len()).map(|switch| hosts.end(End::Switch(switch))).collect();
        assert_eq!(found, [Some(0), Some(0), Some(1), None, None, None]);
        let inside: Vec<bool> = machine.links.iter().map(|link| hosts.has_inside(link)).collect();
        assert_eq!(inside, [true, true, true, true, true, false, false, false, false]);
        // In one host nothing is network.
        let machine = Machine::parse(&text.replace("nodes_per_host = 2\n", ""), "host").expect("a valid machine");
        let hosts = Hosts::of(&machine);
        assert!(machine.links.iter().all(|link| hosts.has_inside(link)));
    }
}
