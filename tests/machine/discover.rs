//! hwloc's view becomes the same kind of machine, from the host, an export or a synthetic description.

use std::path::Path;

use octorec::base::{NodeId, PuId};
use octorec::machine::{Machine, Routes, discover};

fn twisted8() -> Machine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/twisted8.xml");
    discover::xml_file(&path).expect("the export is readable")
}

/// A renumbering that turns the distances of `a` into those of `b`, if there is one.
fn renumbering(a: &[Vec<u32>], b: &[Vec<u32>], order: &mut Vec<usize>) -> bool {
    let next = order.len();
    if next == a.len() {
        return true;
    }
    for candidate in 0..b.len() {
        if order.contains(&candidate) || (0..next).any(|node| a[next][node] != b[candidate][order[node]]) {
            continue;
        }
        order.push(candidate);
        if renumbering(a, b, order) {
            return true;
        }
        order.pop();
    }
    false
}

#[test]
fn an_emulated_twisted_hypercube_is_the_shipped_one_renumbered() {
    let (seen, shipped) = (twisted8(), Machine::load("twisted-hypercube-8").expect("shipped"));
    let mut order = Vec::new();
    assert!(renumbering(&seen.distances.rows, &shipped.distances.rows, &mut order), "{}", seen.distances);
    // Its links were inferred from distances; under the same renumbering they are the described ones.
    let (from_seen, from_shipped) = (Routes::new(&seen), Routes::new(&shipped));
    assert_eq!(seen.links.len(), shipped.links.len());
    for a in 0..8 {
        for b in 0..8 {
            let hops = from_seen.hops(NodeId(a as u32), NodeId(b as u32));
            let same = from_shipped.hops(NodeId(order[a] as u32), NodeId(order[b] as u32));
            assert_eq!(hops, same, "{a} to {b} is {} to {}", order[a], order[b]);
        }
    }
    assert!(seen.assumptions.iter().any(|line| line.contains("links: inferred")));
}

#[test]
fn the_firmwares_distances_arrive_unchanged() {
    // The export with the shipped machine's matrix in place of its own reads back exactly that matrix.
    let shipped = Machine::load("twisted-hypercube-8").expect("shipped");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/twisted8.xml");
    let text = std::fs::read_to_string(path).expect("the export is readable");
    let (head, rest) = text.split_once("<u64values").expect("distances are there");
    let (_, tail) = rest.rsplit_once("</u64values>").expect("distances are there");
    let rows = shipped.distances.rows.iter().map(|row| {
        let words: String = row.iter().map(|distance| format!("{distance} ")).collect();
        format!("<u64values length=\"{}\">{words}</u64values>\n", words.len())
    });
    let own = format!("{head}{}{tail}", rows.collect::<String>());
    let seen = discover::xml(&own, "own", "own.xml").expect("still an export");
    assert_eq!(seen.distances, shipped.distances);
    let pairs = |machine: &Machine| {
        let mut pairs: Vec<_> =
            machine.links.iter().map(|link| [link.ends[0].min(link.ends[1]), link.ends[0].max(link.ends[1])]).collect();
        pairs.sort_unstable();
        pairs
    };
    assert_eq!(pairs(&seen), pairs(&shipped));
}

#[test]
fn absurd_distances_are_not_believed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/twisted8.xml");
    let text = std::fs::read_to_string(path).expect("the export is readable");
    let absurd = text.replace(">10 16 16 24 16 ", ">10 10 10 24 16 ");
    let machine = discover::xml(&absurd, "absurd", "absurd.xml").expect("still an export");
    assert_eq!(machine.distances.between(NodeId(0), NodeId(3)), Some(20));
    assert!(machine.assumptions.iter().any(|line| line.contains("contradict themselves")), "{:?}", machine.assumptions);
    // One direction alone is believed at its larger value.
    let lopsided = text.replace(">10 16 16 24 16 ", ">10 16 16 24 20 ");
    let machine = discover::xml(&lopsided, "lopsided", "lopsided.xml").expect("still an export");
    assert_eq!(machine.distances.between(NodeId(4), NodeId(0)), Some(20));
    assert!(machine.assumptions.iter().any(|line| line.contains("asymmetric")), "{:?}", machine.assumptions);
    Machine::parse(&machine.to_toml(), "exported").expect("what was mended can be described");
}

#[test]
fn an_export_shows_cores_caches_and_memory() {
    let machine = twisted8();
    assert!(!machine.is_this_system);
    assert_eq!((machine.nodes.len(), machine.cores(), machine.tiers.len()), (8, 16, 0));
    for (position, node) in machine.nodes.iter().enumerate() {
        assert_eq!((node.id.index(), node.package as usize, node.smt()), (position, position, 2));
        assert_eq!((node.l1_bytes, node.l2_bytes), (Some(32 << 10), Some(4 << 20)));
        assert_eq!((node.l3.len(), node.l3[0].bytes, node.l3[0].cores), (1, 16 << 20, 2));
        assert!(node.memory_allowed && (150 << 20..200 << 20).contains(&node.memory_bytes));
        let pus: Vec<u32> = node.cores.iter().flat_map(|core| &core.pus).map(|pu| pu.id.0).collect();
        assert_eq!(pus, (0..4).map(|pu| position as u32 * 4 + pu).collect::<Vec<_>>());
        assert!(node.memory_gb_s.is_none() && node.peak_f32_gflop_s.is_none());
    }
}

#[test]
fn forbidden_cores_and_memory_are_shown_as_such() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/twisted8.xml");
    let text = std::fs::read_to_string(path).expect("the export is readable");
    let half = text
        .replace("allowed_cpuset=\"0xffffffff\"", "allowed_cpuset=\"0x0000ffff\"")
        .replace("allowed_nodeset=\"0x000000ff\"", "allowed_nodeset=\"0x0000000f\"");
    let machine = discover::xml(&half, "half", "half.xml").expect("still an export");
    assert_eq!(machine.nodes.len(), 8);
    for node in &machine.nodes {
        let allowed = node.id.0 < 4;
        assert_eq!(node.memory_allowed, allowed, "{}", node.id);
        assert!(node.cores.iter().flat_map(|core| &core.pus).all(|pu| pu.allowed == allowed), "{}", node.id);
    }
}

#[test]
fn synthetic_descriptions_become_machines() {
    let machine = Machine::load("synthetic:Package:2 NUMANode:1 L3Cache:2 L2Cache:4 Core:1 PU:2").expect("synthetic");
    assert_eq!((machine.nodes.len(), machine.cores(), machine.links.len()), (2, 16, 1));
    let node = &machine.nodes[1];
    assert_eq!((node.package, node.smt(), node.l3.len()), (1, 2, 2));
    assert_eq!((node.l3[1].first_core, node.l3[1].cores), (4, 4));
    assert_eq!(machine.distances.between(NodeId(0), NodeId(1)), Some(20));
    let eight = discover::synthetic("Package:8 NUMANode:1 Core:28 PU:1").expect("synthetic");
    assert_eq!((eight.nodes.len(), eight.cores(), eight.links.len()), (8, 224, 28));
    assert!(!eight.is_this_system);
    let message = Machine::load("synthetic:Socket=8").expect_err("not hwloc's language").to_string();
    assert!(message.contains("Package:2 NUMANode:1"), "{message}");
}

#[test]
fn what_launchers_bind_to_is_a_part_of_a_machine() {
    let machine = discover::synthetic("Package:2 NUMANode:2 Core:2 PU:2").expect("synthetic");
    let pus = |range: std::ops::Range<u32>| range.map(PuId).collect::<Vec<_>>();
    let all = pus(0..16);
    for part in [0..2, 4..8, 8..16] {
        assert!(machine.has_part(&pus(part.clone()), &all), "{part:?}");
    }
    for wish in [0..1, 1..3, 0..6, 4..12] {
        assert!(!machine.has_part(&pus(wish.clone()), &all), "{wish:?}");
    }
    assert!(machine.has_part(&pus(5..8), &pus(5..16)), "a node of which a cpu is forbidden");
}

#[test]
fn memory_beside_other_memory_is_a_capacity_tier() {
    // Two memories for the same cores, as a processor with HBM shows them.
    let machine =
        discover::synthetic("Package:2 [numa(memory=4GB)] [numa(memory=64GB)] Core:4 PU:1").expect("synthetic");
    assert_eq!((machine.nodes.len(), machine.tiers.len(), machine.cores()), (2, 2, 8));
    for tier in &machine.tiers {
        assert_eq!((tier.near.len(), tier.memory_bytes), (1, 64_000_000_000), "{tier:?}");
    }
    let again = Machine::parse(&machine.to_toml(), "exported").expect("tiers survive the export");
    assert_eq!(again.tiers, machine.tiers);
}

#[test]
fn exports_of_discovered_machines_load_again() {
    for mut machine in [twisted8(), discover::synthetic("Package:3 NUMANode:2 Core:2 PU:2").expect("synthetic")] {
        let mut again = Machine::parse(&machine.to_toml(), "exported").expect("an export is a description");
        again.assumptions.clear();
        machine.assumptions.clear();
        assert_eq!(again, machine);
    }
}

#[test]
fn an_export_says_which_cores_this_process_may_use() {
    let mut machine = discover::synthetic("Package:2 NUMANode:1 Core:4 PU:1").expect("synthetic");
    assert!(machine.forbidden().is_none() && !machine.to_toml().contains("may use"));
    machine.restrict(|pu| pu.0 < 3, |_| true);
    let told = "# all 8 cores are described, of which this process may use 3 (cpus 0-2)";
    assert!(machine.to_toml().contains(told), "{}", machine.to_toml());
    let again = Machine::parse(&machine.to_toml(), "exported").expect("an export is a description");
    assert_eq!(again.cores(), 8);
}

#[test]
fn nonsense_is_refused_with_its_origin() {
    let message = discover::xml("<not hwloc>", "x", "x.xml").expect_err("not an export").to_string();
    assert!(message.starts_with("x.xml: cannot"), "{message}");
    // More than any plan can add up.
    let message = Machine::load("synthetic:node:1(memory=5000TB) core:2 pu:1").expect_err("too much").to_string();
    assert!(message.contains("node 0 has 5000000000000000 bytes of memory; at most"), "{message}");
    let message = Machine::load("synthetic:node:2 core:2 pu:2(indexes=0,2,4,6,1,3,5,4294967290)").expect_err("absurd");
    assert!(message.to_string().contains("indexes: 4294967290 is no hardware thread's number"), "{message}");
}

#[test]
fn this_machine_is_discovered() {
    let machine = discover::host().expect("hwloc explores the host");
    assert!(machine.is_this_system);
    let allowed = octorec::ffi::linux::current_affinity().expect("affinity can be read");
    let mut seen: Vec<_> =
        machine.nodes.iter().flat_map(|node| &node.cores).flat_map(octorec::machine::describe::Core::allowed).collect();
    seen.sort_unstable();
    assert_eq!(seen, allowed, "exactly what the affinity says may be used");
    assert!(machine.nodes.iter().all(|node| node.memory_bytes > 0));
    let again = Machine::parse(&machine.to_toml(), "exported").expect("the host can be exported");
    assert_eq!(again.cores(), machine.cores());
}

#[test]
fn affinity_is_respected() {
    let all = octorec::ffi::linux::current_affinity().expect("affinity can be read");
    let only = all[all.len() - 1];
    // The affinity of a thread of its own, so that other tests keep theirs.
    let machine = std::thread::spawn(move || {
        octorec::ffi::linux::pin_current_thread(&[only]).expect("an allowed cpu");
        discover::host().expect("hwloc explores the host")
    });
    let machine = machine.join().expect("the thread ends well");
    let seen: Vec<_> =
        machine.nodes.iter().flat_map(|node| &node.cores).flat_map(octorec::machine::describe::Core::allowed).collect();
    assert_eq!(seen, [only]);
}
