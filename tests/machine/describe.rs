//! Every shipped machine is what its source says, and every contradiction is named with its line.

use octorec::base::{Error, NodeId};
use octorec::machine::describe::{End, SHIPPED};
use octorec::machine::{Machine, Routes};

fn load(name: &str) -> Machine {
    Machine::load(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn neighbours(machine: &Machine, of: u32) -> Vec<u32> {
    let routes = Routes::new(machine);
    let near = machine.nodes.iter().filter(|node| routes.hops(NodeId(of), node.id) == 1);
    near.map(|node| node.id.0).collect()
}

#[test]
fn every_shipped_machine_loads_and_survives_a_round_trip() {
    for (name, _) in SHIPPED {
        let machine = load(name);
        assert_eq!(machine.name, name, "the name in the file is the file's");
        let mut again =
            Machine::parse(&machine.to_toml(), "exported").unwrap_or_else(|error| panic!("{name}: {error}"));
        again.assumptions.clone_from(&machine.assumptions);
        assert_eq!(again, machine, "{name}");
    }
    // Caches of one node need not be alike.
    let some = CHAIN.replace("cores = 4", "cores = 4\nl3_kib = [96, 32]\nl3_cores = [3, 1]");
    let machine = Machine::parse(&some, "some.toml").expect("caches of two sizes");
    assert_eq!(
        machine.nodes[1].l3.iter().map(|group| (group.bytes >> 10, group.cores)).collect::<Vec<_>>(),
        [(96, 3), (32, 1)]
    );
    assert_eq!(Machine::parse(&machine.to_toml(), "exported").expect("an export"), machine);
}

#[test]
fn the_twisted_hypercube_is_the_papers() {
    let machine = load("twisted-hypercube-8");
    let routes = Routes::new(&machine);
    assert_eq!((machine.nodes.len(), machine.cores(), machine.links.len()), (8, 224, 12));
    assert_eq!(routes.diameter(), 2);
    for from in 0..8 {
        let at = |hops| (0..8).filter(|to| routes.hops(NodeId(from), NodeId(*to)) == hops).count();
        assert_eq!((at(0), at(1), at(2)), (1, 3, 4), "node {from}");
        let twist = |to: u32| matches!((from.min(to), from.max(to)), (2, 5) | (3, 4));
        let mut expected: Vec<u32> = [1, 3, 7].map(|bits| from ^ bits).into_iter().filter(|to| !twist(*to)).collect();
        expected.extend([(2, 4), (4, 2), (3, 5), (5, 3)].iter().filter(|pair| pair.0 == from).map(|pair| pair.1));
        expected.sort_unstable();
        assert_eq!(neighbours(&machine, from), expected, "node {from}");
    }
    for ring in [[0, 1, 2, 4, 7, 6, 5, 3], [0, 3, 5, 6, 7, 4, 2, 1]] {
        for (position, node) in ring.iter().enumerate() {
            let next = ring[(position + 1) % ring.len()];
            assert_eq!(routes.hops(NodeId(*node), NodeId(next)), 1, "{node} to {next}");
        }
    }
    let total: f64 = machine.links.iter().filter_map(|link| link.gb_s).sum();
    assert!((total - 260.0).abs() < 8.0, "the paper adds the links up to 260 GB/s, here {total}");
    let node = &machine.nodes[5];
    assert_eq!((node.memory_bytes, node.memory_gb_s, node.peak_f32_gflop_s), (192 << 30, Some(100.0), Some(4100.0)));
}

#[test]
fn the_other_machines_have_their_shape() {
    let shape = |name: &str| {
        let machine = load(name);
        (machine.nodes.len(), machine.cores(), machine.links.len(), Routes::new(&machine).diameter(), machine.hosts())
    };
    assert_eq!(shape("hypercube-8"), (8, 224, 12, 3, 1));
    assert_eq!(shape("ring-4"), (4, 112, 4, 2, 1));
    assert_eq!(shape("full-4"), (4, 112, 6, 1, 1));
    assert_eq!(shape("two-socket"), (2, 56, 1, 1, 1));
    assert_eq!(shape("epyc-nps4-2s"), (8, 128, 9, 3, 1));
    assert_eq!(shape("fat-tree-64"), (64, 1792, 66, 4, 32));
    assert_eq!(shape("this-small-box"), (1, 4, 0, 0, 1));
    let far = Machine::parse(&CHAIN.replace("cores = 4", "cores = 4\nhost = 7"), "far").expect("a host of any number");
    assert_eq!(far.hosts(), 1);
    let epyc = load("epyc-nps4-2s");
    assert!(epyc.nodes.iter().all(|node| node.l3.len() == 4 && node.l3[3].first_core == 12));
    assert_eq!(epyc.nodes.iter().map(|node| node.package).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(epyc.nodes[1].cores[0].pus.iter().map(|pu| pu.id.0).collect::<Vec<_>>(), [16, 144]);
}

#[test]
fn the_fat_tree_is_pruned() {
    let machine = load("fat-tree-64");
    let routes = Routes::new(&machine);
    let way = |to: u32| {
        let links: Vec<_> =
            routes.path(NodeId(0), NodeId(to)).into_iter().map(|hop| &machine.links[hop.link]).collect();
        let narrowest = links.iter().map(|link| link.gb_s.unwrap()).fold(f64::INFINITY, f64::min);
        (links.iter().map(|link| link.latency_ns.unwrap()).sum::<f64>(), narrowest)
    };
    let ((near_ns, _), (far_ns, far_gb_s)) = (way(31), way(32));
    assert_eq!((near_ns, far_ns, far_gb_s), (1000.0, 1200.0, 12.5));
    // Everybody sends 1 MB to everybody: 32 x 32 MB cross the root each way, 63 MB leave each socket.
    let loads = routes.loads(&machine, &vec![vec![1_000_000; 64]; 64]);
    let bottleneck = loads.bottleneck(&machine).expect("something travels");
    assert_eq!(bottleneck.bytes, 1_024_000_000);
    assert!(machine.links[bottleneck.hop.link].ends.iter().all(|end| matches!(end, End::Switch(_))));
    assert!((bottleneck.seconds - 1.024 / 200.0).abs() < 1e-12);
}

#[test]
fn ties_go_to_the_lowest_next_hop_and_routes_win() {
    let machine = load("ring-4");
    let ends = |machine: &Machine, from, to| {
        let path = Routes::new(machine).path(NodeId(from), NodeId(to));
        path.iter().map(|hop| machine.links[hop.link].ends[usize::from(hop.forward)]).collect::<Vec<_>>()
    };
    assert_eq!(ends(&machine, 0, 2), [1, 2].map(|id| End::Node(NodeId(id))));
    assert_eq!(ends(&machine, 3, 1), [0, 1].map(|id| End::Node(NodeId(id))));
    let other = format!("{}\n[[route]]\npath = [0, 3, 2]\n", machine.to_toml());
    let other = Machine::parse(&other, "ring").expect("a route along links");
    assert_eq!(ends(&other, 0, 2), [3, 2].map(|id| End::Node(NodeId(id))));
    assert_eq!(ends(&other, 2, 0), [3, 0].map(|id| End::Node(NodeId(id))));
    // A ring shift loads every link once in one direction.
    let mut traffic = vec![vec![0; 4]; 4];
    (0..4).for_each(|from| traffic[from][(from + 1) % 4] = 7);
    let loads = Routes::new(&machine).loads(&machine, &traffic);
    assert!(loads.bytes.iter().all(|both| both.iter().sum::<u64>() == 7));
}

/// A small machine with `{}` replaced: nodes 0 to 2 in a chain.
const CHAIN: &str = "\
name = \"chain\"
distances = [
    [10, 16, 24],
    [16, 10, 16],
    [24, 16, 10],
]
[[node]]
ids = \"0-2\"
cores = 4
memory_gib = 1
memory_gb_s = 10
[[link]]
pairs = [[0, 1],
    [1, 2]]
gb_s = 5
";

/// The line and the reason after `from` became `to`.
fn broken(from: &str, to: &str) -> (usize, String) {
    assert_eq!(CHAIN.matches(from).count(), 1, "`{from}` is there once");
    match Machine::parse(&CHAIN.replace(from, to), "chain.toml") {
        Err(Error::Topology { origin, line, reason }) => {
            assert_eq!(origin, "chain.toml");
            (line, reason)
        }
        other => panic!("`{to}` gave {other:?}"),
    }
}

#[test]
fn contradictions_are_named_with_their_line() {
    Machine::parse(CHAIN, "chain.toml").expect("the chain itself is right");
    let cases = [
        ("    [1, 2]]", "    [1, 7]]", 14, "there is no node 7 with cores: they are numbered 0 to 2"),
        ("    [1, 2]]", "    [1, \"leaf\"]]", 14, "there is no switch `leaf`"),
        ("    [1, 2]]", "    [1, 0]]", 14, "node 1 and node 0 are linked twice"),
        ("    [1, 2]]", "    [1, 1]]", 14, "joins node 1 with itself"),
        ("[[0, 1],\n    [1, 2]]", "[[0, 1]]", 8, "in pieces: node 0 cannot reach node 2"),
        ("gb_s = 5\n", "gb_s = 0\n", 15, "gb_s = 0 must lie in [1e-4, 1e6]"),
        ("gb_s = 5\n", "gb_s = 1e-12\n", 15, "gb_s = 0.000000000001 must lie in [1e-4, 1e6]"),
        ("memory_gb_s = 10", "memory_gb_s = -1.5", 11, "memory_gb_s = -1.5 must lie in [1e-6, 1e9]"),
        ("memory_gib = 1", "memory_gib = -1", 10, "memory_gib = -1 must be 0 (no memory) to"),
        ("cores = 4", "cores = 0", 9, "cores = 0 must be 1 to 1024"),
        ("memory_gib = 1", "memory_gib = 1e300", 10, "must be 0 (no memory) to"),
        ("cores = 4", "cores = 4\nsmt = 9", 10, "smt = 9 must be 1 to 8"),
        ("cores = 4", "cores = 4\nl3_kib = 1\nl3_groups = 3", 11, "4 cores do not fall into l3_groups = 3"),
        ("cores = 4", "cores = 4\nl3_kib = [1, 2, 3]\nl3_groups = 2", 10, "l3_kib has 3 sizes for 2 last-level caches"),
        (
            "cores = 4",
            "cores = 4\nl3_kib = [1, -2]\nl3_groups = 2",
            10,
            "a number of KiB or a list of such numbers is expected",
        ),
        ("cores = 4", "cores = 4\nl3_kib = \"1\"", 10, "a number of KiB or a list of such numbers is expected"),
        ("cores = 4", "cores = 4\nl3_kib = 1\nl3_cores = [1, 2]", 11, "l3_cores add up to 3, the node has 4 cores"),
        ("cores = 4", "cores = 4\nnodes_per_host = 0", 10, "each has at least one node"),
        ("cores = 4", "cores = 2\npus = [[0], [0]]", 10, "cpu 0 belongs to two cores"),
        ("cores = 4", "cores = 4\npus = [[0], [1]]", 10, "pus lists 2 cores, the node has 4"),
        ("ids = \"0-2\"", "ids = \"2-0\"", 8, "goes backwards"),
        ("ids = \"0-2\"", "ids = \"0-2,1\"", 8, "1 is named twice"),
        ("    [1, 2]]", "    [\"0-1\", \"2\"],\n[\"0-1\", \"2\"]]", 15, "node 0 and node 2 are linked twice"),
        ("cores = 4", "cores = 1\npus = [[0, 1, 2, 3, 4, 5, 6, 7, 8]]", 10, "one list of 1 to 8 numbers a core"),
        ("cores = 4", "core = 4", 9, "unknown field `core`"),
        ("cores = 4", "cores = \"four\"", 9, "invalid type"),
        ("[16, 10, 16]", "[16, 10, 17]", 4, "asymmetric: node 1 to node 2 is 17, node 2 to node 1 is 16"),
        ("[16, 10, 16]", "[16, 11, 16]", 4, "node 1 is at distance 11 from itself: it must be 10"),
        ("[16, 10, 16]", "[16, 10]", 4, "the distances of node 1 are 2 numbers for 3 nodes"),
        ("    [24, 16, 10],\n", "", 2, "distances has 2 rows for 3 nodes"),
        ("    [10, 16, 24],", "    [10, 16, 9],", 3, "another node is beyond 10"),
    ];
    for (from, to, line, reason) in cases {
        let (found_line, found) = broken(from, to);
        assert!(found.contains(reason), "`{to}`: {found}");
        assert_eq!(found_line, line, "`{to}`: {found}");
    }
}

#[test]
fn contradictions_between_parts_are_named_too() {
    let fails = |text: &str, line: usize, reason: &str| match Machine::parse(text, "x.toml") {
        Err(Error::Topology { line: found_line, reason: found, .. }) => {
            assert!(found.contains(reason), "{found}");
            assert_eq!(found_line, line, "{found}");
        }
        other => panic!("{text}\ngave {other:?}"),
    };
    let hops = CHAIN.replace("16, 24]", "30, 24]").replace("[16, 10", "[30, 10");
    fails(&hops, 3, "node 0 to node 2 is 24 over 2 hops, but node 0 to node 1 is 30 over 1");
    fails(&format!("{CHAIN}[[route]]\npath = [0, 2]\n"), 17, "from node 0 to node 2, but no link joins them");
    fails(&format!("{CHAIN}[[route]]\npath = [0]\n"), 17, "a route joins two nodes");
    fails(&format!("{CHAIN}[[route]]\npath = [0, 1, 0, 1, 2]\n"), 17, "passes nothing twice");
    fails(&format!("{CHAIN}[[route]]\npath = [0, 1, 0]\n"), 17, "passes nothing twice");
    let switch = format!("{CHAIN}[[switch]]\nname = \"s\"\n[[route]]\npath = ");
    fails(&format!("{switch}[0, \"s\", 0, 1, \"s\", 2]\n"), 19, "passes nothing twice");
    fails(&format!("{switch}[0, \"s\"]\n"), 19, "a route begins and ends at a node");
    fails(&format!("{CHAIN}[[route]]\npath = [0, 1, 2]\n[[route]]\npath = [2, 1, 0]\n"), 19, "a second route");
    fails(&format!("{CHAIN}[[switch]]\nname = \"s\"\n"), 16, "node 0 cannot reach s");
    let switches = "[[switch]]\nname = \"a\"\n[[switch]]\nname = \"b\"\n";
    let worked = format!("{CHAIN}{switches}[[link]]\npairs = [[\"a\", \"b\"]]\ncore_s_per_gb = 1\n");
    fails(&worked, 21, "between two switches there is no machine");
    let worked = CHAIN.replace("gb_s = 5\n", "gb_s = 5\ncore_s_per_gb = 1\n");
    fails(&worked, 13, "both ends are one machine's");
    let within = "name = \"x\"\n[[node]]\nids = \"0-3\"\nnodes_per_host = 2\ncores = 1\nmemory_gib = 1\n[[switch]]\n\
                  name = \"a\"\n[[link]]\npairs = [[1, 2], [2, 3]]\n[[link]]\npairs = [[\"0-1\", \"a\"]]\ncore_s_per_gb = 1\n";
    fails(within, 12, "both ends are one machine's");
    fails(&format!("{CHAIN}[[switch]]\nname = \"9\"\n"), 16, "must start with a letter");
    let switches: String = (0..1025).map(|number| format!("[[switch]]\nname = \"s{number}\"\n")).collect();
    fails(&format!("{CHAIN}{switches}"), 2064, "1025 switches: at most 1024 can be described");
    let again = "[[switch]]\nname = \"a\"\n[[link]]\npairs = [[\"0-2\", \"a\"], [\"a\", \"0-2\"]]\n";
    fails(&format!("{CHAIN}{again}"), 19, "a and node 0 are linked twice");
    fails(&format!("{CHAIN}[[route]]\npath = [\"0-2\", \"0-2\"]\n"), 17, "passes nothing twice");
    let switch =
        format!("{CHAIN}[[switch]]\nname = \"s\"\noversubscription = 2\n[[link]]\npairs = [[0, \"s\"]]\ngb_s = 1\n");
    fails(&switch, 16, "switch `s`: oversubscription = 2, but its links carry 1 GB/s down and 0 up");
    fails(&format!("{CHAIN}[[memory_only]]\nids = 2\nmemory_gib = 1\n"), 17, "node 2 is described twice");
    fails("name = \"empty\"\n", 1, "no [[node]] is described");
    fails("name = \n", 1, "");
    let far = CHAIN.replace("distances = [\n    [10, 16, 24],\n    [16, 10, 16],\n    [24, 16, 10],\n]\n", "");
    fails(&format!("{far}[[memory_only]]\nids = 8\nmemory_gib = 1\nnear = [9]\n"), 14, "there is no node 9 with cores");
    fails(&format!("{far}[[memory_only]]\nids = 8\nmemory_gib = 1\nnear = [1, 1]\n"), 14, "node 1 is named twice");
    let near = format!("{far}[[memory_only]]\nids = 8\nmemory_gib = 1\nnear = [1]\n");
    let machine = Machine::parse(&near, "x.toml").expect("a machine with a capacity tier");
    assert_eq!(machine.tiers[0].near, [NodeId(1)]);
}

#[test]
fn unknown_machines_get_a_suggestion() {
    let message = Machine::load("twisted-hypercube").expect_err("no such machine").to_string();
    assert!(message.contains("did you mean `twisted-hypercube-8`?") && message.contains("fat-tree-64"), "{message}");
    let message = Machine::load("no/such.toml").expect_err("no such file").to_string();
    assert!(message.starts_with("no/such.toml: cannot read"), "{message}");
}
