//! What octorec sees of the emulated machine, where it places ranks, and whether their threads meet.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use octorec::base::{NodeId, PuId};
use octorec::ffi::linux::{current_affinity, current_pu};
use octorec::machine::describe::End;
use octorec::machine::placement::Wishes;
use octorec::machine::team::Team;
use octorec::machine::{Machine, Placement, place};
use octorec::simd::Isa;

use crate::host;

/// The node that has memory and nothing else, in the machine that has one.
pub const MEMORY_ONLY: NodeId = NodeId(8);

fn nodes(ids: impl IntoIterator<Item = u32>) -> Vec<NodeId> {
    ids.into_iter().map(NodeId).collect()
}

fn links(machine: &Machine) -> Vec<[End; 2]> {
    let mut ends: Vec<_> = machine.links.iter().map(|link| link.ends).collect();
    ends.iter_mut().for_each(|ends| ends.sort());
    ends.sort();
    ends
}

/// Eight nodes of `cores` each, with the distances and so the links of the shipped description.
pub fn discovered(cores: usize, memory_only: bool) -> String {
    let (found, described) = (host(), Machine::load("twisted-hypercube-8").expect("a shipped machine"));
    assert!(found.is_this_system);
    assert_eq!(found.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), nodes(0..8));
    for node in &found.nodes {
        assert_eq!((node.cores.len(), node.smt(), node.package), (cores, 1, node.id.0), "{}", node.id);
        assert!(node.memory_allowed && (100 << 20..200 << 20).contains(&node.memory_bytes), "{node:?}");
    }
    for a in nodes(0..8) {
        for b in nodes(0..8) {
            assert_eq!(found.distances.between(a, b), described.distances.between(a, b), "{a} to {b}");
        }
    }
    assert_eq!(links(&found), links(&described), "the links follow from the distances");
    let tiers: Vec<NodeId> = found.tiers.iter().map(|tier| tier.id).collect();
    assert_eq!(tiers, if memory_only { vec![MEMORY_ONLY] } else { vec![] });
    for tier in &found.tiers {
        assert_eq!((&tier.near[..], tier.memory_allowed), (&nodes([0])[..], true), "{tier:?}");
    }
    format!("{} nodes, {} memory-only, {} links as described", found.nodes.len(), tiers.len(), found.links.len())
}

/// The emulator has AVX2 and FMA and no AVX-512, so dispatch must stop there.
pub fn instruction_sets() -> String {
    let names: Vec<_> = Isa::all().into_iter().map(Isa::name).collect();
    assert_eq!(names, ["scalar", "avx2"]);
    assert_eq!(Isa::best().name(), "avx2");
    names.join(", ")
}

/// The placement of default wishes: one rank a node with cores.
pub fn placement() -> Placement {
    place(&host(), &Wishes::default()).expect("default wishes can be met")
}

pub fn ranks(count: usize, threads: usize) -> String {
    let placement = placement();
    assert_eq!(placement.ranks.len(), count);
    assert!(placement.spin && placement.warnings.is_empty(), "{:?}", placement.warnings);
    for (number, place) in placement.ranks.iter().enumerate() {
        let first = number * threads;
        assert_eq!(place.rank.index(), number);
        assert_eq!((place.node, &place.memory_nodes[..]), (NodeId(number as u32), &nodes([number as u32])[..]));
        assert_eq!(place.compute, (first..first + threads).map(|pu| PuId(pu as u32)).collect::<Vec<_>>());
        assert!(place.comm.is_empty());
    }
    format!("{count} ranks of {threads} threads, each on its node")
}

/// Inside a control group with processing units and memory of nodes 0 to 3.
pub fn half() -> String {
    let found = host();
    assert_eq!(found.nodes.len(), 8, "what is forbidden is still shown");
    for node in &found.nodes {
        let ours = node.id.0 < 4;
        assert_eq!(node.memory_allowed, ours, "{}", node.id);
        assert_eq!(node.cores.iter().flat_map(|core| core.allowed()).count(), usize::from(ours), "{}", node.id);
    }
    "nodes 0 to 3 of 8".to_owned()
}

/// That many regions on `threads` pinned threads, all processing units of the machine.
pub fn regions(count: usize, threads: usize) -> String {
    let pus: Vec<PuId> = placement().ranks.iter().flat_map(|rank| rank.compute.clone()).collect();
    assert_eq!(pus.len(), threads);
    let team = Team::pinned(&pus, true, Isa::best()).expect("the team is pinned");
    team.run(|thread| {
        assert_eq!(current_affinity().expect("affinity can be read"), [pus[thread]]);
        assert_eq!(current_pu(), pus[thread]);
    });
    let counts: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
    let began = Instant::now();
    for region in 0..count {
        team.run(|thread| {
            // Relaxed is enough: the region's end orders each count before the next region.
            let before = counts[thread].fetch_add(1, Ordering::Relaxed);
            assert_eq!(before, region, "thread {thread}");
            let neighbour = counts[(thread + 1) % threads].load(Ordering::Relaxed);
            assert!((region..=region + 1).contains(&neighbour), "{neighbour} in region {region}");
        });
    }
    let each_us = began.elapsed().as_secs_f64() / count as f64 * 1e6;
    assert!(counts.iter().all(|ran| ran.load(Ordering::Relaxed) == count));
    format!("{count} on {threads} threads, {each_us:.0} us each")
}
