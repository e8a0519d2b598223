//! Whether memory is where octorec says, and whether octorec says so when it is not.

use std::sync::Barrier;
use std::thread;

use octorec::base::{NodeId, PuId};
use octorec::ffi::linux::{Reservation, current_affinity, current_pu, pin_current_thread};
use octorec::machine::team::Team;
use octorec::memory::{Arena, Binding, Demand, Homes, NodeMemory, Plan, Supply, check_capacity};
use octorec::simd::Isa;

use crate::place::{MEMORY_ONLY, placement};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

fn plan(bytes: usize) -> Plan {
    Plan::of(|supply| supply.buffer::<u8>("everything", bytes)).expect("a small plan")
}

fn touch(bytes: &mut [u8]) {
    bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
}

/// An arena at `home`, touched by the calling thread wherever it runs; the binding alone decides.
fn arena(bytes: usize, home: &[NodeId]) -> Arena {
    let arena = Arena::build(plan(bytes), home, touch).expect("there is room");
    assert_eq!(arena.binding(), &Binding::Bound);
    arena
}

/// The kernel's own words for an arena's policy (numa(7), numa_maps): a preferred node would be left when it is full.
pub fn bound_alone() -> String {
    let rows = |supply: &mut Supply<'_>| supply.buffer::<u8>("rows", 4 * MIB);
    let (rows, _) = Arena::of(&[NodeId(6)], touch, rows).expect("there is room");
    let address = format!("{:x}", rows.as_ptr().addr());
    let maps = std::fs::read_to_string("/proc/self/numa_maps").expect("the kernel lists policies");
    let mut words = maps.lines().map(|line| line.split(' ')).filter(|line| line.clone().next() == Some(&*address));
    let policy = words.next().and_then(|mut words| words.nth(1)).unwrap_or_else(|| panic!("no {address} in\n{maps}"));
    assert_eq!(policy, "bind:6");
    policy.to_owned()
}

fn all_at_home(arena: &Arena) -> usize {
    let homes = arena.homes().expect("the kernel says where pages are");
    assert!(homes.all_at_home(), "{arena:?}: {homes}");
    assert_eq!(homes.pages * PAGE, arena.bytes());
    assert!(arena.warnings().is_empty(), "{:?}", arena.warnings());
    homes.pages
}

/// All ranks at once: each pins its team, builds 16 MiB with it and uses what it took.
pub fn arenas_at_home(ranks: usize) -> String {
    let placement = placement();
    assert_eq!(placement.ranks.len(), ranks);
    let bytes = 16 * MIB;
    let demands = placement.ranks.iter().map(|rank| Demand { nodes: rank.memory_nodes.clone(), bytes: bytes as u64 });
    check_capacity(&demands.collect::<Vec<_>>()).expect("every node has room");
    let together = Barrier::new(ranks);
    let pages: Vec<usize> = thread::scope(|scope| {
        let threads: Vec<_> = placement
            .ranks
            .iter()
            .map(|place| {
                let together = &together;
                scope.spawn(move || {
                    let team = Team::pinned(&place.compute, true, Isa::best());
                    together.wait();
                    let team = team.expect("the team is pinned");
                    team.run(|thread| {
                        assert_eq!(current_affinity().expect("affinity can be read"), [place.compute[thread]]);
                        assert_eq!(current_pu(), place.compute[thread]);
                    });
                    let build = |supply: &mut Supply<'_>| {
                        let weights = supply.buffer::<f32>("weights", 1000)?;
                        Ok((weights, supply.buffer::<u32>("rows", (bytes - 2 * MIB) / 4)?))
                    };
                    let touch = |bytes: &mut [u8]| team.touch(bytes);
                    let built = Arena::of(&place.memory_nodes, touch, build);
                    let ((weights, mut rows), arena) = built.expect("there is room");
                    assert_eq!((arena.bytes(), arena.binding()), (bytes, &Binding::Bound));
                    let pages = all_at_home(&arena);
                    assert!(weights.iter().all(|&x| x == 0.0));
                    rows.iter_mut().step_by(PAGE / 4).for_each(|row| *row = 1 + place.rank.0);
                    assert_eq!(arena.ask(&place.memory_nodes).expect("the kernel answers").at_home, pages);
                    assert!(rows.iter().step_by(PAGE / 4).all(|&row| row == 1 + place.rank.0));
                    pages
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank's checks pass")).collect()
    });
    format!("{ranks} arenas of {} MiB, {} pages at home", bytes / MIB, pages.iter().sum::<usize>())
}

/// Small regions side by side, each for another node than the one before: the trap of merging huge pages.
pub fn neighbours() -> String {
    let arenas: Vec<Arena> = (0..40).map(|number| arena(2 * MIB, &[NodeId(number * 3 % 8)])).collect();
    let pages: usize = arenas.iter().map(all_at_home).sum();
    format!("{} arenas, {pages} pages at home", arenas.len())
}

/// Memory bound to the wrong node on purpose: the report must say so, of every page.
pub fn wrong_binding() -> String {
    let (wanted, wrong) = (NodeId(2), NodeId(5));
    let arena = arena(4 * MIB, &[wrong]);
    assert_eq!(all_at_home(&arena), 1024);
    let homes = arena.ask(&[wanted]).expect("the kernel answers");
    assert!(!homes.all_at_home());
    let report = homes.to_string();
    assert_eq!(report, "0 of 1024 pages at home; 1024 elsewhere, the first at offset 0x0 (1024 on node 5)");
    report
}

/// Unbound memory, touched by two nodes' threads: the second half is elsewhere.
pub fn half_wrong() -> String {
    let reservation = Reservation::new(4 * MIB).expect("address space");
    reservation.advise_huge(false).expect("small pages can be had");
    let mut region = reservation.open().expect("memory");
    let (first, second) = region.bytes_mut().split_at_mut(2 * MIB);
    for (pu, half) in [(PuId(1), first), (PuId(6), second)] {
        pin_current_thread(&[pu]).expect("the processing unit exists");
        touch(half);
    }
    let bytes = region.bytes();
    let homes = Homes::ask(bytes.as_ptr(), bytes.len(), &[NodeId(1)]).expect("the kernel answers").to_string();
    assert_eq!(homes, "512 of 1024 pages at home; 512 elsewhere, the first at offset 0x200000 (512 on node 6)");
    homes
}

/// Without the check the kernel would end this process.
pub fn full_node() -> String {
    let memory = NodeMemory::of(NodeId(3)).expect("node 3 exists");
    let bytes = (memory.free as usize).next_multiple_of(2 * MIB);
    let never = |_: &mut [u8]| panic!("nothing may be touched");
    let message = Arena::build(plan(bytes), &[NodeId(3)], never).expect_err("no room").to_string();
    assert!(message.starts_with("node 3: needs ") && message.contains(" MiB free (16.0 MiB of it"), "{message}");
    assert!(NodeMemory::of(NodeId(8)).is_none());
    message
}

/// In the control group with nodes 0 to 3. The kernel would bind to nodes 3 and 5 without a word and use 3 alone.
pub fn forbidden_nodes() -> String {
    let mut message = String::new();
    for home in [vec![NodeId(5)], vec![NodeId(3), NodeId(5)]] {
        let never = |_: &mut [u8]| panic!("nothing may be touched");
        let result = Arena::build(plan(2 * MIB), &home, never);
        message = result.expect_err("node 5 is forbidden").to_string();
        assert!(message.contains("memory of node 5"), "{message}");
        assert!(message.ends_with("it may use node 0, node 1, node 2, node 3"), "{message}");
    }
    all_at_home(&arena(2 * MIB, &[NodeId(3), NodeId(1)]));
    message
}

/// Nothing runs on the node, yet an arena can be there.
pub fn capacity_tier() -> String {
    let pages = all_at_home(&arena(8 * MIB, &[MEMORY_ONLY]));
    format!("{pages} pages on {MEMORY_ONLY}")
}
