//! Ranks stand where they may, alone on their cores, for any machine and any wish.

use std::collections::{BTreeMap, BTreeSet};

use octorec::base::{NodeId, PuId};
use octorec::machine::describe::{CpuQuota, SHIPPED};
use octorec::machine::placement::{CommCores, RankPer, Wishes, comm_cores_to_try};
use octorec::machine::site::Known;
use octorec::machine::{Machine, Placement, Site, discover, place};
use proptest::prelude::*;

/// What holds for every placement.
fn check(machine: &Machine, wishes: &Wishes, placement: &Placement) {
    let mut core_of = BTreeMap::new();
    let mut allowed = BTreeSet::new();
    for node in &machine.nodes {
        for (position, core) in node.cores.iter().enumerate() {
            for pu in &core.pus {
                core_of.insert((node.host, pu.id), (node.id, position));
            }
            allowed.extend(core.allowed().map(|pu| (node.host, pu)));
        }
    }
    let mut owner = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for (position, place) in placement.ranks.iter().enumerate() {
        assert_eq!(place.rank.index(), position, "ranks ascend without gaps");
        assert!(!place.compute.is_empty(), "somebody computes");
        assert!(!place.memory_nodes.is_empty());
        assert!(place.aside.iter().all(|pu| allowed.contains(&(place.host, *pu))), "loaders run where they may");
        if let Some(threads) = wishes.threads {
            assert_eq!(place.compute.len(), threads);
        }
        let cores = |pus: &[PuId]| pus.iter().map(|pu| core_of[&(place.host, *pu)]).collect::<BTreeSet<_>>();
        assert!(cores(&place.compute).is_disjoint(&cores(&place.comm)), "communication cores never compute");
        assert_eq!(cores(&place.comm).len(), place.comm.len(), "a core for each communication thread");
        for pu in place.compute.iter().chain(&place.comm) {
            assert!(allowed.contains(&(place.host, *pu)), "{pu} is not allowed");
            let alone = *owner.entry(core_of[&(place.host, *pu)]).or_insert(place.rank) == place.rank;
            let first = taken.insert((place.host, *pu));
            if placement.spin {
                assert!(alone && first, "{} shares {pu} and yet may spin", place.rank);
            }
        }
    }
    assert_eq!(placement.spin, placement.warnings.iter().all(|line| !line.contains("take turns")));
    assert!(placement.warnings.iter().filter(|line| line.contains("take turns")).count() <= 1, "said once");
}

fn cpus(pus: &[PuId]) -> Vec<u32> {
    pus.iter().map(|pu| pu.0).collect()
}

#[test]
fn every_shipped_machine_is_placed_by_default() {
    for (name, _) in SHIPPED {
        let machine = Machine::load(name).expect("shipped");
        let placement = place(&machine, &Wishes::default()).expect("a default placement");
        check(&machine, &Wishes::default(), &placement);
        assert_eq!(placement.ranks.len(), machine.nodes.len(), "{name}");
        assert!(placement.spin && placement.warnings.is_empty(), "{name}: {:?}", placement.warnings);
    }
}

#[test]
fn the_twisted_hypercube_computes_on_24_and_communicates_on_4() {
    let machine = Machine::load("twisted-hypercube-8").expect("shipped");
    let placement = place(&machine, &Wishes::default()).expect("a placement");
    let place = &placement.ranks[3];
    assert_eq!((place.node, place.memory_nodes.as_slice()), (NodeId(3), [NodeId(3)].as_slice()));
    assert_eq!(cpus(&place.compute), (84..108).collect::<Vec<_>>());
    assert_eq!(cpus(&place.comm), (108..112).collect::<Vec<_>>(), "the last cores of the node");
}

#[test]
fn siblings_compute_only_when_asked() {
    let machine = Machine::load("two-socket").expect("shipped");
    let wishes = Wishes { smt: true, comm_cores: CommCores::Count(1), ..Wishes::default() };
    let placement = place(&machine, &wishes).expect("a placement");
    check(&machine, &wishes, &placement);
    let expected: Vec<u32> = (0..27).chain(56..83).collect();
    assert_eq!(cpus(&placement.ranks[0].compute), expected, "one a core first, then siblings; core 27 communicates");
    assert_eq!(cpus(&placement.ranks[0].comm), [27]);
}

#[test]
fn sockets_and_caches_are_places_too() {
    let machine = Machine::load("epyc-nps4-2s").expect("shipped");
    let per = |rank_per| place(&machine, &Wishes { rank_per, ..Wishes::default() }).expect("a placement");
    let sockets = per(RankPer::Socket);
    assert_eq!(sockets.ranks.len(), 2);
    assert_eq!(sockets.ranks[1].memory_nodes, [4, 5, 6, 7].map(NodeId));
    assert_eq!((sockets.ranks[1].compute.len(), sockets.ranks[1].comm.len()), (60, 4));
    let caches = per(RankPer::L3);
    assert_eq!(caches.ranks.len(), 32);
    assert_eq!((caches.ranks[5].node, cpus(&caches.ranks[5].compute)), (NodeId(1), vec![20, 21, 22, 23]));
}

#[test]
fn more_ranks_than_nodes_divide_cores_and_then_take_turns() {
    let machine = discover::synthetic("Package:1 NUMANode:1 Core:4 PU:1").expect("synthetic");
    let wish = |ranks| Wishes { ranks: Some(ranks), ..Wishes::default() };
    let two = place(&machine, &wish(2)).expect("a placement");
    assert_eq!((cpus(&two.ranks[0].compute), cpus(&two.ranks[1].compute)), (vec![0, 1], vec![2, 3]));
    assert!(two.spin && two.warnings.is_empty());
    let eight = place(&machine, &wish(8)).expect("a placement");
    check(&machine, &wish(8), &eight);
    assert!(!eight.spin);
    assert_eq!(eight.warnings.len(), 1, "{:?}", eight.warnings);
    assert!(eight.warnings[0].contains("8 ranks take turns on 4 cores"), "{}", eight.warnings[0]);
    let crowded = Wishes { threads: Some(9), ..Wishes::default() };
    let placement = place(&machine, &crowded).expect("a placement");
    assert!(!placement.spin && placement.warnings[0].contains("9 threads of a rank take turns on 4"));
    assert!(placement.is_crowded() && !two.is_crowded() && !eight.is_crowded());
}

#[test]
fn one_communication_core_or_as_many_as_a_quarter_of_the_threads_are_tried() {
    let cases: [(usize, Option<usize>, &[usize]); 5] = [
        (28, None, &[0, 1, 2, 4]),
        (28, Some(28), &[0]),
        (28, Some(20), &[0, 1, 2, 4]),
        (2, None, &[0, 1]),
        (1, None, &[0]),
    ];
    for (cores, threads, tried) in cases {
        let machine = discover::synthetic(&format!("Package:1 NUMANode:2 Core:{cores} PU:1")).expect("synthetic");
        let wishes = Wishes { threads, ..Wishes::default() };
        assert_eq!(comm_cores_to_try(&machine, &wishes).expect("a placement"), tried, "{cores} {threads:?}");
    }
}

#[test]
fn what_is_idle_in_a_place_is_for_its_ranks_loaders() {
    let aside = |machine: &Machine, wishes: Wishes| -> Vec<Vec<PuId>> {
        let placement = place(machine, &wishes).expect("a placement");
        check(machine, &wishes, &placement);
        placement.ranks.into_iter().map(|place| place.aside).collect()
    };
    let of = |machine: &Machine, node: usize, of_core: &dyn Fn(usize, usize) -> bool| -> Vec<PuId> {
        let cores = machine.nodes[node].cores.iter().enumerate();
        let pus = cores.flat_map(|(core, pus)| pus.allowed().enumerate().map(move |(level, pu)| (core, level, pu)));
        pus.filter(|(core, level, _)| of_core(*core, *level)).map(|(.., pu)| pu).collect()
    };
    let with_siblings = discover::synthetic("Package:2 NUMANode:1 Core:2 PU:2").expect("synthetic");
    let siblings = [0, 1].map(|node| of(&with_siblings, node, &|_, level| level == 1));
    assert_eq!(aside(&with_siblings, Wishes::default()), siblings);
    let machine = discover::synthetic("Package:2 NUMANode:1 Core:2 PU:1").expect("synthetic");
    let (one, first) =
        (Wishes { ranks: Some(1), ..Wishes::default() }, Wishes { threads: Some(1), ..Wishes::default() });
    assert_eq!(aside(&machine, first.clone()), [0, 1].map(|node| of(&machine, node, &|core, _| core == 1)));
    assert_eq!(aside(&machine, Wishes::default()), [0, 1].map(|node| of(&machine, node, &|_, _| true)), "all compute");
    let all_of = |machine: &Machine, node: usize| of(machine, node, &|_, _| true);
    assert_eq!(aside(&machine, one.clone()), [all_of(&machine, 1)], "the other node is idle");
    // Idle cores come before siblings of those that compute, if there are as many as ranks that have none.
    assert_eq!(aside(&with_siblings, first), [0, 1].map(|node| of(&with_siblings, node, &|core, _| core == 1)));
    assert_eq!(aside(&with_siblings, one), [all_of(&with_siblings, 1)]);
    let ranks = |ranks: usize| Wishes { ranks: Some(ranks), ..Wishes::default() };
    let four = discover::synthetic("Package:4 NUMANode:1 Core:1 PU:2").expect("synthetic");
    assert_eq!(aside(&four, ranks(2)), [0, 1].map(|_| [all_of(&four, 2), all_of(&four, 3)].concat()));
    assert_eq!(aside(&four, ranks(3)), [0, 1, 2].map(|node| of(&four, node, &|_, level| level == 1)), "two for three");
    // Ranks of one place that have an idle core each share these; else siblings are added to them.
    let several = |ranks: usize| Wishes { ranks: Some(ranks), threads: Some(1), ..Wishes::default() };
    let node = discover::synthetic("Package:1 NUMANode:1 Core:5 PU:2").expect("synthetic");
    assert_eq!(aside(&node, several(2)), [0, 1].map(|_| of(&node, 0, &|core, _| matches!(core, 1 | 3 | 4))));
    assert_eq!(aside(&node, several(4)), [0; 4].map(|_| of(&node, 0, &|core, level| core == 4 || level == 1)));
    // Of three ranks, one has the only idle core in its place.
    let one_idle =
        [0, 0, 1].map(|node| of(&with_siblings, node, &|core, level| if node == 0 { level == 1 } else { core == 1 }));
    assert_eq!(aside(&with_siblings, several(3)), one_idle);
    let three = discover::synthetic("Package:3 NUMANode:1 Core:1 PU:1").expect("synthetic");
    assert_eq!(aside(&three, ranks(2)), [Vec::<PuId>::new(), Vec::new()], "one core for two: anywhere");
}

#[test]
fn permissions_are_respected() {
    let mut machine = Machine::load("twisted-hypercube-8").expect("shipped");
    machine.restrict(|pu| pu.0 % 56 < 20, |node| node.0 != 2);
    let placement = place(&machine, &Wishes::default()).expect("a placement");
    check(&machine, &Wishes::default(), &placement);
    assert_eq!(placement.ranks.iter().map(|place| place.node.0).collect::<Vec<_>>(), [0, 2, 4, 6]);
    // Node 2 may not give memory; its nearest neighbours are 1, 3 and 4.
    assert_eq!(placement.ranks[1].memory_nodes, [NodeId(1)]);
    assert!(placement.warnings[0].contains("node 2: its memory is not allowed"), "{:?}", placement.warnings);
    machine.restrict(|_| false, |_| true);
    let message = place(&machine, &Wishes::default()).expect_err("nothing is allowed").to_string();
    assert!(message.contains("may use no core"), "{message}");
}

#[test]
fn memory_of_another_node_is_as_fast_as_the_link_to_it() {
    let text = "name = \"pair\"\n[[node]]\nids = \"0-1\"\ncores = 4\nmemory_gib = 4\nmemory_gb_s = 50\n[[link]]\n\
                pairs = [[0, 1]]\ngb_s = 10\n";
    let mut machine = Machine::parse(text, "pair").expect("a valid machine");
    machine.restrict(|_| true, |node| node.0 == 1);
    let rates = |ranks| {
        let wishes = Wishes { ranks: Some(ranks), ..Wishes::default() };
        let site = Site::new(&machine, &place(&machine, &wishes).expect("a placement"), Known::default());
        site.ranks.iter().map(|rank| (rank.row_gb_s, rank.row_update_gb_s)).collect::<Vec<_>>()
    };
    assert_eq!(rates(2), [(10.0, 20.0), (25.0, 25.0)]);
    assert_eq!(rates(4), [(5.0, 10.0), (5.0, 10.0), (12.5, 12.5), (12.5, 12.5)]);
}

#[test]
fn communication_cores_are_as_many_as_a_ranks_cores_allow() {
    for (cores, comm) in [(4, 0), (5, 1), (9, 1), (10, 2), (19, 2), (20, 4)] {
        let machine = discover::synthetic(&format!("Package:2 NUMANode:1 Core:{cores} PU:1")).expect("synthetic");
        let placement = place(&machine, &Wishes::default()).expect("a placement");
        assert_eq!(
            placement.ranks.iter().map(|place| place.comm.len()).collect::<Vec<_>>(),
            [comm; 2],
            "{cores} cores"
        );
    }
}

#[test]
fn a_rank_with_far_fewer_threads_than_another_is_told() {
    for (cores, told) in [(20, true), (27, false)] {
        let mut machine = Machine::load("two-socket").expect("shipped");
        machine.restrict(|pu| pu.0 % 56 < 28 + cores, |_| true);
        let warnings = place(&machine, &Wishes::default()).expect("a placement").warnings;
        let found = warnings.iter().any(|line| line.contains("rank 1 computes on 16 threads and another rank on 24"));
        assert_eq!((found, warnings.is_empty()), (told, !told), "28 and {cores} cores: {warnings:?}");
    }
}

#[test]
fn cores_that_ranks_share_are_divided_among_them() {
    let text = "name = \"one\"\n[[node]]\nids = 0\ncores = 4\nmemory_gib = 4\npeak_f32_gflop_s = 400\n";
    let machine = Machine::parse(text, "one").expect("a valid machine");
    let wishes = Wishes { ranks: Some(8), ..Wishes::default() };
    let site = Site::new(&machine, &place(&machine, &wishes).expect("a placement"), Known::default());
    assert_eq!(site.ranks.iter().map(|rank| rank.f32_gflop_s).collect::<Vec<_>>(), [50.0; 8]);
}

#[test]
fn threads_beyond_a_quota_have_a_cpu_each_where_there_are_enough() {
    let mut machine = Machine::load("two-socket").expect("shipped");
    machine.cpu_quota = Some(CpuQuota { cpus: 12.0, file: "cpu.max".into() });
    let wishes = Wishes { ranks: Some(8), threads: Some(2), ..Wishes::default() };
    let placement = place(&machine, &wishes).expect("a placement");
    check(&machine, &wishes, &placement);
    // Four ranks a node have eight threads there, and the quota is worth six cores of each.
    assert!(placement.ranks.iter().all(|place| place.compute[0] != place.compute[1]), "{:?}", placement.ranks);
}

#[test]
fn of_memories_as_far_away_the_near_one_of_the_host_is_taken() {
    let machine = "name = \"far\"\n[[node]]\nids = \"0-1\"\ncores = 4\nmemory_gib = 0\n[[memory_only]]\nids = 2\n\
                   memory_gib = 1\nnear = [0]\n[[memory_only]]\nids = 3\nmemory_gib = 1\nnear = [1]\n[[link]]\npairs = [[0, 1]]\n";
    let placed = |text: &str| {
        let placement = place(&Machine::parse(text, "far.toml").unwrap(), &Wishes::default()).expect("a placement");
        let memories: Vec<Vec<NodeId>> = placement.ranks.iter().map(|place| place.memory_nodes.clone()).collect();
        (memories, placement.warnings)
    };
    let (own, told) = placed(machine);
    assert_eq!(own, [[NodeId(2)], [NodeId(3)]]);
    assert!(told[1].contains("its ranks use that of node 3: which is near it"), "{told:?}");
    // Where none is said to be near, each node has one of its own, too, as long as there are so many.
    let anywhere = machine.replace("near = [0]\n", "").replace("near = [1]\n", "");
    assert_eq!(placed(&anywhere).0, [[NodeId(2)], [NodeId(3)]]);
    // Memory of nothing is no memory, and that of another host is out of reach.
    let one = machine.replacen("memory_gib = 1", "memory_gib = 0", 1);
    let (shared, told) = placed(&one);
    assert_eq!(shared, [[NodeId(3)], [NodeId(3)]]);
    assert!(told[0].contains("its ranks use that of node 3: every access is remote"), "{told:?}");
    let (_, told) = placed(&one.replace("cores = 4", "cores = 4\nnodes_per_host = 1"));
    assert!(told[0].contains("node 0: no memory is known that its ranks may use"), "{told:?}");
}

#[test]
fn a_quota_of_cpu_time_leaves_cores_idle() {
    let mut machine = Machine::load("two-socket").expect("shipped");
    let file = "/sys/fs/cgroup/cpu.max".into();
    machine.cpu_quota = Some(CpuQuota { cpus: 7.5, file });
    let placed = |wishes: Wishes| {
        let placement = place(&machine, &wishes).expect("a placement");
        check(&machine, &wishes, &placement);
        let cores = placement.ranks.iter().map(|place| place.compute.len() + place.comm.len()).collect::<Vec<_>>();
        (cores, placement.spin, placement.warnings)
    };
    // Both nodes by default, one where one rank is wished; siblings count, too.
    let (cores, spin, warnings) = placed(Wishes::default());
    assert!(cores == [4, 4] && spin && warnings.len() == 1, "{cores:?} {warnings:?}");
    let words = "/sys/fs/cgroup/cpu.max: the quota is the time of 7.5 cpus, so 8 of 56 cores are used";
    assert!(warnings[0].starts_with(words), "{warnings:?}");
    assert_eq!(placed(Wishes { ranks: Some(1), ..Wishes::default() }).0, [8]);
    assert_eq!(placed(Wishes { smt: true, ..Wishes::default() }).0, [4, 4]);
    assert_eq!(placed(Wishes { threads: Some(4), ..Wishes::default() }), (vec![4, 4], true, Vec::new()));
    let (cores, spin, warnings) = placed(Wishes { threads: Some(5), ..Wishes::default() });
    assert!(cores == [5, 5] && !spin && warnings.len() == 1, "{warnings:?}");
    // Wishes beyond the quota are granted, and take turns.
    let wishes = Wishes { threads: Some(7), comm_cores: CommCores::Count(1), ..Wishes::default() };
    let (cores, spin, warnings) = placed(wishes);
    assert!(
        cores == [8, 8] && !spin && warnings[0].contains("16 threads take turns in a quota of 8 cpus"),
        "{warnings:?}"
    );
    machine.cpu_quota = Some(CpuQuota { cpus: 0.5, file: "cpu.max".into() });
    let placed = |wishes: Wishes| place(&machine, &wishes).expect("a placement");
    assert_eq!(placed(Wishes::default()).ranks.len(), 1, "as many ranks as there are cpus");
    let two = placed(Wishes { ranks: Some(2), ..Wishes::default() });
    assert!(!two.spin && two.warnings.iter().any(|line| line.contains("2 threads take turns in a quota of 1 cpu:")));
}

#[test]
fn impossible_wishes_say_what_is_possible() {
    let machine = discover::synthetic("Package:1 NUMANode:1 Core:4 PU:1").expect("synthetic");
    let fails = |wishes: Wishes, words: &str| {
        let message = place(&machine, &wishes).expect_err("impossible").to_string();
        assert!(message.contains(words), "{message}");
    };
    fails(Wishes { ranks: Some(0), ..Wishes::default() }, "0 ranks: between 1 and");
    fails(Wishes { threads: Some(0), ..Wishes::default() }, "0 threads a rank: between 1 and");
    fails(Wishes { comm_cores: CommCores::Count(4), ..Wishes::default() }, "use at most 3");
    fails(Wishes { ranks: Some(9), comm_cores: CommCores::Count(1), ..Wishes::default() }, "shares its only core");
}

fn any_wishes() -> impl Strategy<Value = Wishes> {
    let per = prop_oneof![Just(RankPer::Node), Just(RankPer::Socket), Just(RankPer::L3)];
    let comm = prop_oneof![Just(CommCores::Auto), (0..6_usize).prop_map(CommCores::Count)];
    let number = |most: usize| proptest::option::of(1..most);
    (per, number(80), number(40), comm, any::<bool>()).prop_map(|(rank_per, ranks, threads, comm_cores, smt)| Wishes {
        rank_per,
        ranks,
        threads,
        comm_cores,
        smt,
    })
}

proptest! {
    #[test]
    fn any_machine_and_wish(
        wishes in any_wishes(),
        name in 0..SHIPPED.len(),
        forbidden in proptest::collection::btree_set(0..224_u32, 0..200),
        forbidden_nodes in proptest::collection::btree_set(0..8_u32, 0..8),
    ) {
        let mut machine = Machine::load(SHIPPED[name].0).expect("shipped");
        machine.restrict(|pu| !forbidden.contains(&pu.0), |node| !forbidden_nodes.contains(&node.0));
        if let Ok(placement) = place(&machine, &wishes) {
            check(&machine, &wishes, &placement);
            prop_assert_eq!(&placement, &place(&machine, &wishes).expect("the same again"));
            if let Some(ranks) = wishes.ranks {
                prop_assert_eq!(placement.ranks.len(), ranks);
            }
        } else {
            let nothing = machine.nodes.iter().all(|n| n.cores.iter().all(|core| core.allowed().next().is_none()));
            prop_assert!(nothing || matches!(wishes.comm_cores, CommCores::Count(1..)), "{:?}", wishes);
        }
    }
}
