//! The wires of a site: every link, one way at a time.

use serde::Serialize;

use super::{LATENCY_NS, LINK_GB_S, filler};
use crate::machine::Machine;
use crate::machine::describe::{End, Hosts, Link};

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Wire {
    /// "node 0 to node 1".
    pub name: String,
    /// From where to where.
    #[serde(skip)]
    pub ends: [End; 2],
    /// Bandwidth in GB/s.
    pub gb_s: f64,
    /// Latency in nanoseconds.
    pub latency_ns: f64,
    /// Core seconds, on the machine at either end, for 10^9 bytes that cross it between machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_s_per_gb: Option<f64>,
}

/// Both directions of every link.
pub(super) fn wires(machine: &Machine, known: Option<f64>, assumptions: &mut Vec<String>) -> Vec<Wire> {
    let least = machine.links.iter().filter_map(|link| link.gb_s).min_by(f64::total_cmp);
    let (usual, why) = filler(least, LINK_GB_S, "link", "a UPI link of SC20's machine");
    let (of, links) = (machine.links.len(), &machine.links);
    let unknown = links.iter().filter(|link| link.gb_s.is_none()).count();
    match known {
        Some(gb_s) if of > 0 => {
            assumptions.push(format!("every link: {gb_s} GB/s each way, as given with --link-gb-s"));
        }
        None if unknown > 0 => {
            assumptions.push(format!("{unknown} of {of} links: {usual} GB/s each way ({why})"));
        }
        _ => (),
    }
    let hosts = Hosts::of(machine);
    let late = latencies(machine, &hosts, assumptions);
    let both = links.iter().flat_map(|link| {
        let [a, b] = link.ends;
        let gb_s = known.or(link.gb_s).unwrap_or(usual);
        let latency_ns = link.latency_ns.unwrap_or(late[usize::from(hosts.has_inside(link))]);
        [(a, b), (b, a)].map(|(from, to)| {
            let name = format!("{} to {}", machine.end_name(from), machine.end_name(to));
            Wire { name, ends: [from, to], gb_s, latency_ns, core_s_per_gb: link.core_s_per_gb }
        })
    });
    both.collect()
}

/// What stands for an unknown latency in nanoseconds: of links between hosts, and of those inside one, which a
/// network's says nothing of.
fn latencies(machine: &Machine, hosts: &Hosts, assumptions: &mut Vec<String>) -> [f64; 2] {
    [false, true].map(|inside| {
        let links = || machine.links.iter().filter(|link| hosts.has_inside(link) == inside);
        let longest =
            |links: &mut dyn Iterator<Item = &Link>| links.filter_map(|link| link.latency_ns).reduce(f64::max);
        let alike = longest(&mut links());
        let any = if inside { None } else { longest(&mut machine.links.iter()) };
        let (late, why) = match (alike, any) {
            (Some(alike), _) if inside => (alike, "the longest of any link inside a machine here"),
            (Some(alike), _) => (alike, "the longest of any link between machines here"),
            (None, Some(any)) => (any, "the longest of any link here"),
            (None, None) => (LATENCY_NS, "a UPI link of SC20's machine"),
        };
        let unknown = links().filter(|link| link.latency_ns.is_none()).count();
        if unknown > 0 {
            assumptions.push(format!("{unknown} of {} links: latency {late} ns ({why})", machine.links.len()));
        }
        late
    })
}

/// Core seconds of a byte on a way between hosts: of the machine that it leaves by the first wire that has any, and of
/// the one that it enters by the last.
pub(super) fn core_seconds<'a>(way: impl DoubleEndedIterator<Item = &'a Wire> + Clone) -> [f64; 2] {
    let is_node = |end: End| matches!(end, End::Node(_));
    let mut works = way.filter_map(|wire| Some((wire.ends.map(is_node), wire.core_s_per_gb? / 1e9)));
    let leaves = works.clone().find(|(nodes, _)| nodes[0]);
    let enters = works.rfind(|(nodes, _)| nodes[1]);
    [leaves, enters].map(|works| works.map_or(0.0, |(_, seconds)| seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::NodeId;

    #[test]
    fn a_link_inside_a_machine_is_not_as_late_as_a_network() {
        let text = "name = \"hosts\"\n[[node]]\nids = \"0-3\"\nnodes_per_host = 2\ncores = 1\nmemory_gib = 1\n\
                    [[link]]\npairs = [[0, 1]]\ngb_s = 20\n[[link]]\npairs = [[2, 3]]\ngb_s = 20\nlatency_ns = 90\n\
                    [[link]]\npairs = [[1, 2]]\ngb_s = 12.5\nlatency_ns = 1000\n\
                    [[link]]\npairs = [[0, 3]]\ngb_s = 12.5\n";
        let latencies = |text: &str| {
            let (machine, mut told) = (Machine::parse(text, "hosts").expect("a valid machine"), Vec::new());
            let wires = wires(&machine, None, &mut told);
            (wires.iter().step_by(2).map(|wire| wire.latency_ns).collect::<Vec<_>>(), told)
        };
        let (found, told) = latencies(text);
        assert_eq!(found, [90.0, 90.0, 1000.0, 1000.0], "{told:?}");
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[1].contains("1 of 4 links: latency 90 ns (the longest of any link inside"), "{told:?}");
        // Where no link inside has any, a usual one's; of one machine all links are inside.
        assert_eq!(latencies(&text.replace("latency_ns = 90\n", "")).0, [LATENCY_NS, LATENCY_NS, 1000.0, 1000.0]);
        assert_eq!(latencies(&text.replace("nodes_per_host = 2\n", "")).0, [1000.0, 90.0, 1000.0, 1000.0]);
        // Nodes that a switch inside of their host joins are as near as those that a link does.
        let switches = "[[switch]]\nname = \"a\"\n[[switch]]\nname = \"b\"\n";
        let switched = text.replace("[[0, 1]]", "[[\"0-1\", \"a\"]]").replace("[[2, 3]]", "[[\"2-3\", \"b\"]]");
        let (found, told) = latencies(&switched.replacen("[[link]]", &format!("{switches}[[link]]"), 1));
        assert_eq!(found, [90.0, 90.0, 90.0, 90.0, 1000.0, 1000.0], "{told:?}");
    }

    #[test]
    fn who_a_byte_leaves_and_who_it_enters_works_for_it() {
        let (node, switch) = (|id| End::Node(NodeId(id)), End::Switch(0));
        let wire = |ends, core_s_per_gb| Wire { name: String::new(), ends, gb_s: 1.0, latency_ns: 1.0, core_s_per_gb };
        // Within a machine, out of it, through the network, in, and on.
        let way = [
            wire([node(0), node(1)], None),
            wire([node(1), switch], Some(2.0)),
            wire([switch, End::Switch(1)], None),
            wire([End::Switch(1), node(2)], Some(3.0)),
            wire([node(2), node(3)], None),
        ];
        assert_eq!(core_seconds(way.iter()), [2e-9, 3e-9]);
        assert_eq!(core_seconds(way[1..2].iter()), [2e-9, 0.0], "who receives it has an adapter for that");
        assert_eq!(core_seconds(way[3..].iter()), [0.0, 3e-9]);
        assert_eq!(core_seconds(way[..1].iter()), [0.0; 2]);
        // Machines that pass it on are none of the two.
        let hosts = [0, 1, 2].map(|id| wire([node(id), node(id + 1)], Some(f64::from(id))));
        assert_eq!(core_seconds(hosts.iter()), [0.0, 2e-9]);
    }
}
