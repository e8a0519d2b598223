//! Schedules on the links of machines: proven, carried out, priced, and held against bounds that know no schedule.

use octorec::base::RankId;
use octorec::collective::plan::{
    Exchange, Reduction, Ring, Topology, breadth_first, disjoint_rings, exchanges, multi_ring, pipelined_trees,
    reductions, spanning_trees, two_ring,
};
use octorec::collective::{Bound, Parcels, Payload, Reduced, Schedule, Slices, Timing, Works, priced};
use octorec::machine::describe::SHIPPED;
use octorec::machine::{Machine, Site};
use proptest::prelude::*;

use super::proof::check;
use super::reductions::{bits, run};
use super::{interpret, numbers, sizes};
use crate::shard::{linked, on, shipped};

/// All shipped machines that have several nodes, with a rank on each.
fn machines() -> impl Iterator<Item = Site> {
    let nodes = |name: &str| Machine::load(name).expect("shipped").nodes.len();
    SHIPPED
        .iter()
        .map(|(name, _)| *name)
        .filter(move |name| nodes(name) > 1)
        .map(move |name| shipped(name, nodes(name)))
}

fn scatters(slices: &Slices, payload: Payload, site: &Site) -> Vec<Schedule> {
    reductions(&Topology::along(site)).iter().map(|kind| kind.plan(slices, payload)).collect()
}

/// Reduce-scatters, all-gathers and all-reduces.
fn all(slices: &Slices, payload: Payload, site: &Site) -> Vec<Schedule> {
    let scatters = scatters(slices, payload, site);
    scatters.into_iter().flat_map(|scatter| [scatter.all_gather(), scatter.all_reduce(), scatter]).collect()
}

fn seconds(schedule: &Schedule, site: &Site, works: Works) -> f64 {
    let (timing, bound) = (Timing::of(schedule, site, works), Bound::of(&schedule.goal, schedule.payload, site));
    let bound = if works == Works::Links { bound.links_s } else { bound.seconds() };
    assert!(timing.seconds >= bound * (1.0 - 1e-6), "{} on {}: {timing:?}, {bound}", schedule.algorithm, site.machine);
    timing.seconds
}

#[test]
fn on_every_machine_the_chosen_schedule_is_near_the_bound() {
    for site in machines() {
        let ranks = site.ranks.len();
        for elements in [1 << 18, 1 << 24] {
            for works in [Works::Links, Works::LinksAndMemories] {
                let near = |schedules: &[Schedule]| {
                    let bound = Bound::of(&schedules[0].goal, schedules[0].payload, &site);
                    let bound = if works == Works::Links { bound.links_s } else { bound.seconds() };
                    let times = schedules.iter().map(|schedule| seconds(schedule, &site, works));
                    times.fold(f64::INFINITY, f64::min) / bound
                };
                let scatters = scatters(&Slices::even(elements, ranks), Payload::F32, &site);
                for change in [Schedule::all_gather, Schedule::clone, Schedule::all_reduce] {
                    let found = near(&scatters.iter().map(change).collect::<Vec<_>>());
                    assert!(found <= 1.05, "{}: {found} of the bound", site.machine);
                }
                let found = near(&exchanges(&Parcels::uniform(ranks, elements / ranks), Payload::Raw(4), &site, works));
                assert!(found <= 1.10, "all-to-all on {}, {works:?}: {found} of the bound", site.machine);
            }
        }
    }
}

#[test]
fn the_twisted_hypercube_is_used_whole() {
    let site = shipped("twisted-hypercube-8", 8);
    let slices = Slices::even(1 << 22, 8);
    let few = breadth_first(&site).expect("neighbours everywhere").plan(&slices, Payload::F32);
    let rings = Ring::along(&site);
    assert_eq!(few.rounds.len(), 2);
    // The ring goes over links, each way of it over a third of them.
    let rings = two_ring(&rings).plan(&slices, Payload::F32);
    let direct = |schedule: &Schedule| {
        let traffic = schedule.traffic();
        let pairs = (0..64).map(|at| (RankId(at / 8), RankId(at % 8)));
        pairs.filter(|(from, to)| traffic.at(*from, *to) > 0).all(|(from, to)| site.path(from, to).len() == 1)
    };
    assert!(direct(&few) && direct(&rings));
    let [few, rings] = [few, rings].map(|schedule| seconds(&schedule, &site, Works::Links));
    assert!(rings / few >= 1.45, "{few} {rings}");
}

#[test]
fn the_cheapest_is_chosen_for_the_layers_of_a_model_and_twins_are_one() {
    // 13-512-256-64-16 and 367-512-256-1, each with its biases.
    let layers = [(13, 512), (512, 256), (256, 64), (64, 16), (367, 512), (512, 256), (256, 1)];
    let layer = |(inputs, outputs): (usize, usize)| (inputs + 1) * outputs;
    let layers = layers.map(layer).map(|elements| Reduced { gradients: elements, words: elements });
    for payload in [Payload::F32, Payload::Bf16] {
        let names = |site: &Site| {
            let all = priced(reductions(&Topology::along(site)), &layers, payload, site);
            let least = all.iter().map(|priced| priced.seconds).fold(f64::INFINITY, f64::min);
            assert!(all[0].seconds <= least * 1.01 && all[1..].is_sorted_by_key(|priced| priced.seconds));
            all.iter().map(|priced| priced.reduction.name).collect::<Vec<_>>()
        };
        // As much for memories as others, and least for links.
        assert_eq!(names(&shipped("twisted-hypercube-8", 8))[0], "breadth-first");
        // Two ranks send each other their halves, whatever that is called.
        assert_eq!(names(&shipped("two-socket", 2)), ["direct"]);
        // Without links, fewest rounds win.
        for ranks in [3, 4, 7] {
            assert_eq!(names(&on(&linked(&[(4096, 50.0)], &[]), ranks))[0], "direct");
        }
    }
}

/// A machine whose links are all different: of ranks among each other, or of ranks and these switches, which form a
/// tree.
fn unequal(seed: u64, ranks: usize, switches: usize) -> Site {
    let any = |stream: u64, below: usize| sizes(seed * 64 + stream, 1, 1 << 20)[0] % below;
    let mut pairs: Vec<(usize, usize)> = match switches {
        0 => (1..ranks).map(|rank| (any(rank as u64, rank), rank)).collect(),
        _ => {
            let between = (1..switches).map(|switch| (ranks + any(switch as u64, switch), ranks + switch));
            between.chain((0..ranks).map(|rank| (rank, ranks + any(8 + rank as u64, switches)))).collect()
        }
    };
    if switches == 0 {
        let further = (0..ranks as u64 + 2).map(|at| (any(16 + at, ranks), any(32 + at, ranks)));
        pairs.extend(further.filter(|(a, b)| a < b));
    }
    pairs.sort_unstable();
    pairs.dedup();
    let mut text = format!("name = \"unequal\"\n[[node]]\nids = \"0-{}\"\ncores = 4\nmemory_gib = 4\n", ranks - 1);
    text += "memory_gb_s = 50\n";
    (0..switches).for_each(|switch| text += &format!("[[switch]]\nname = \"s{switch}\"\n"));
    let end = |at: usize| if at < ranks { at.to_string() } else { format!("\"s{}\"", at - ranks) };
    for (number, (a, b)) in pairs.iter().enumerate() {
        let gb_s = 8.0 + any(40 + number as u64, 400) as f64 / 10.0;
        text += &format!("[[link]]\npairs = [[{}, {}]]\ngb_s = {gb_s:?}\n", end(*a), end(*b));
    }
    on(&Machine::parse(&text, "unequal").expect("a valid machine"), ranks)
}

/// The worst and the mean ratio of a schedule's time to the bound on many machines, for links alone.
fn ratios(sites: &[Site], plan: impl Fn(&Site) -> Reduction) -> (f64, f64) {
    let ratio = |site: &Site| {
        let scatter = plan(site).plan(&Slices::even(1 << 26, site.ranks.len()), Payload::F32);
        let over = |schedule: &Schedule| {
            seconds(schedule, site, Works::Links) / Bound::of(&schedule.goal, schedule.payload, site).links_s
        };
        over(&scatter).max(over(&scatter.all_gather()))
    };
    let all: Vec<f64> = sites.iter().map(ratio).collect();
    (all.iter().copied().fold(0.0, f64::max), all.iter().sum::<f64>() / all.len() as f64)
}

#[test]
fn trees_reach_the_bound_where_links_are_unequal() {
    let sites = |switches: fn(usize) -> usize| -> Vec<Site> {
        (0..36).map(|seed| unequal(seed, 3 + seed as usize % 6, switches(seed as usize))).collect()
    };
    let trees = |site: &Site| pipelined_trees(site).or_else(|| spanning_trees(site)).expect("routes leave enough");
    let linked = sites(|_| 0);
    let (worst, mean) = ratios(&linked, trees);
    let flat = |site: &Site| breadth_first(site).expect("neighbours everywhere");
    let (_, breadth) = ratios(&linked, flat);
    assert!(worst <= 1.05 && mean <= 1.03 && breadth >= 1.15, "{worst} {mean} {breadth}");
    // What a round of unequal messages loses to fair shares of a link is more behind several switches.
    let switched = sites(|seed| 1 + seed / 6 % 3);
    let (worst, mean) = ratios(&switched, trees);
    let (widest, breadth) = ratios(&switched, flat);
    assert!(worst <= 1.12 && mean <= 1.02 && breadth > mean && widest > worst, "{worst} {mean} {breadth} {widest}");
}

#[test]
fn routes_that_leave_a_rank_without_neighbours_leave_other_schedules() {
    // Of three nodes that are all linked, what goes from 0 to either other passes the third.
    let machine = |routes: &str| {
        let text = "name = \"routed\"\n[[node]]\nids = \"0-2\"\ncores = 4\nmemory_gib = 4\n[[link]]\n\
                    pairs = [[0, 1], [1, 2], [0, 2]]\ngb_s = 20\n";
        on(&Machine::parse(&format!("{text}{routes}"), "routed").expect("a valid machine"), 3)
    };
    assert!(breadth_first(&machine("")).is_some());
    // Of two narrow ways to 0, one has time for all long after the wide one: no part of that is waited for.
    let link = |pairs: &str, gb_s: &str| format!("[[link]]\npairs = [{pairs}]\ngb_s = {gb_s}\n");
    let text = "name = \"narrow\"\n[[node]]\nids = \"0-5\"\ncores = 4\nmemory_gib = 4\n".to_owned()
        + &link("[1, 4], [2, 4], [3, 5]", "1")
        + &link("[0, 1]", "1e-4")
        + &link("[0, 2]", "1.5e-4")
        + &link("[0, 3]", "1e6");
    assert!(breadth_first(&on(&Machine::parse(&text, "narrow").expect("a valid machine"), 6)).is_some());
    let site = machine("[[route]]\npath = [0, 2, 1]\n[[route]]\npath = [0, 1, 2]\n");
    assert_eq!(breadth_first(&site), None);
    let names: Vec<&str> = reductions(&Topology::along(&site)).iter().map(|reduction| reduction.name).collect();
    assert_eq!(names, ["direct", "ring", "two-ring", "halving-doubling"]);
    for schedule in all(&Slices::even(3000, 3), Payload::F32, &site) {
        assert!(seconds(&schedule, &site, Works::LinksAndMemories).is_finite());
    }
}

#[test]
fn disjoint_rings_take_their_links_equally() {
    let site = shipped("twisted-hypercube-8", 8);
    let schedule = multi_ring(&disjoint_rings(&site)).plan(&Slices::even(1 << 22, 8), Payload::F32);
    assert_eq!(schedule.rounds.len(), 7);
    let wires = Timing::of(&schedule, &site, Works::Links).wire_bytes;
    let each = wires.iter().copied().fold(0.0, f64::max);
    assert_eq!(wires.iter().filter(|bytes| **bytes == each).count(), 16);
    assert_eq!(wires.iter().filter(|bytes| **bytes == 0.0).count(), 8);
}

#[test]
fn links_carry_what_a_schedule_sends_along_their_routes() {
    for site in machines() {
        let ranks = site.ranks.len();
        for schedule in all(&Slices::of(&sizes(7, ranks, 5000)), Payload::Bf16, &site) {
            let traffic = schedule.traffic();
            let mut wires = vec![0.0; site.wires.len()];
            for (from, to) in (0..ranks * ranks).map(|at| (RankId((at / ranks) as u32), RankId((at % ranks) as u32))) {
                site.path(from, to).iter().for_each(|wire| wires[*wire] += traffic.at(from, to) as f64);
            }
            let timing = Timing::of(&schedule, &site, Works::LinksAndMemories);
            assert_eq!(timing.wire_bytes, wires);
            let memory: f64 = timing.pool_bytes.iter().sum();
            assert!((memory - schedule.memory_bytes() as f64).abs() < 1e-3, "{memory} of {}", schedule.memory_bytes());
        }
    }
}

#[test]
fn prices_are_those_that_a_hand_computes() {
    // One link of 66 GB/s, 105 GB/s a memory; 70 ns.
    let site = shipped("two-socket", 2);
    let direct = &all(&Slices::of(&[1 << 20, 1 << 20]), Payload::F32, &site)[0];
    let bytes = f64::from(4 << 20);
    let near = |works, wanted: f64| {
        let found = Timing::of(direct, &site, works).seconds;
        assert!((found - wanted).abs() < 1e-9 * wanted, "{found} {wanted}");
    };
    near(Works::Links, bytes / 66e9 + 70e-9);
    // Read here, written and read and written there, both ways at the same time.
    near(Works::LinksAndMemories, 4.0 * bytes / 105e9 + 70e-9);
    // Around a ring of four: 0 to 2 goes through 1, so the link from 0 to 1 has the parcels of 1 and 2, and of 3 to 1.
    let ring = shipped("ring-4", 4);
    let exchange = &Exchange::AllToAll.plan(&Parcels::uniform(4, 1 << 20), Payload::Raw(4));
    let timing = Timing::of(exchange, &ring, Works::Links);
    let busiest = timing.busiest(&ring).expect("something moves");
    let most = timing.wire_bytes.iter().copied().fold(0.0, f64::max);
    assert!((timing.seconds - most / 22e9).abs() < 1e-6 && busiest.share > 0.99, "{timing:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// On any machine in one piece, with any links and slices, and carried out to the last bit.
    #[test]
    fn what_goes_along_links_reduces_and_gathers(
        ranks in 2usize..9, switches in 0usize..3, seed in 0u64..1000, bf16 in any::<bool>()
    ) {
        let site = unequal(seed, ranks, switches);
        let slices = Slices::of(&sizes(seed * 3 + 1, ranks, 400));
        let payload = if bf16 { Payload::Bf16 } else { Payload::F32 };
        let trees = [spanning_trees(&site), pipelined_trees(&site)];
        prop_assert!(trees[0].is_some(), "routes leave enough");
        let rings = disjoint_rings(&site);
        let kinds = trees.into_iter().flatten().chain((!rings.is_empty()).then(|| multi_ring(&rings)));
        for kind in kinds.chain(breadth_first(&site)) {
            let scatter = kind.plan(&slices, payload);
            for schedule in [scatter.all_gather(), scatter.all_reduce(), scatter] {
                prop_assert_eq!(check(&schedule), Ok(()));
                seconds(&schedule, &site, Works::Links);
                let data: Vec<Vec<f32>> =
                    (0..ranks as u64).map(|rank| numbers(seed * 8 + rank, slices.end())).collect();
                let mut expected = data.clone();
                interpret(&schedule, &mut expected);
                for (seen, expected) in run(&schedule, &data, 256).iter().zip(&expected) {
                    prop_assert_eq!(bits(&seen.0), bits(expected));
                }
            }
        }
    }
}
