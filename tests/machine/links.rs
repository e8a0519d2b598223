//! Links and routes, inferred from what would be measured on machines whose links are known.

use octorec::base::rng::{Random, Stream};
use octorec::base::{NodeId, RankId};
use octorec::machine::fluid::{Activity, Fluid};
use octorec::machine::links::{Inferred, Measured, infer};
use octorec::machine::placement::Wishes;
use octorec::machine::site::Known;
use octorec::machine::{Machine, Site, place};

const MACHINES: [&str; 5] = ["twisted-hypercube-8", "hypercube-8", "ring-4", "two-socket", "full-4"];

/// Matrices of a machine.
#[derive(Debug, Clone)]
struct Matrices {
    distances: Vec<Vec<u32>>,
    alone: Vec<Vec<f64>>,
    loaded: Vec<Vec<f64>>,
}

impl Matrices {
    fn infer(&self) -> Inferred {
        let nodes: Vec<NodeId> = (0..self.distances.len() as u32).map(NodeId).collect();
        let Self { distances, alone, loaded } = self;
        infer(&Measured { nodes: &nodes, distances, alone, loaded })
    }

    /// Off by up to this share, each figure by another.
    fn noisy(mut self, share: f64, seed: u64) -> Self {
        let random = Random::new(seed, Stream::Label);
        let figures = self.alone.iter_mut().chain(&mut self.loaded).flatten();
        for (at, figure) in (0..).zip(figures) {
            let [bits, ..] = random.block(at);
            *figure *= 1.0 + share * (f64::from(bits) / f64::from(u32::MAX) * 2.0 - 1.0);
        }
        self
    }

    /// All remote nodes as far away.
    fn flat(mut self) -> Self {
        self.distances.iter_mut().flatten().filter(|distance| **distance > 10).for_each(|distance| *distance = 20);
        self
    }
}

/// What would be measured with a rank on each node: the narrowest of what a message passes, alone; a max-min fair share
/// of it, under load.
fn ideal(machine: &Machine) -> Matrices {
    let wishes = Wishes { ranks: Some(machine.nodes.len()), threads: Some(1), ..Wishes::default() };
    let placement = place(machine, &wishes).expect("a rank a node");
    let site = Site::new(machine, &placement, Known::default());
    let nodes = site.ranks.len();
    let own = |node: usize| machine.nodes[node].memory_gb_s.expect("described");
    let wires = site.wires.iter().map(|wire| wire.gb_s);
    let rates: Vec<f64> = wires.chain((0..nodes).map(own)).chain((0..nodes).map(own)).collect();
    let takes = |from: usize, to: usize| -> Vec<usize> {
        let path = site.path(RankId(from as u32), RankId(to as u32));
        path.iter().copied().chain([site.wires.len() + from, site.wires.len() + nodes + to]).collect()
    };
    let alone = |from: usize, to: usize| takes(from, to).iter().map(|of| rates[*of]).fold(f64::INFINITY, f64::min);
    let mut fluid = Fluid::new(rates.clone());
    let pairs: Vec<(usize, usize)> =
        (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))).filter(|(from, to)| from != to).collect();
    for (from, to) in &pairs {
        let takes = takes(*from, *to).into_iter().map(|of| (of, 1.0)).collect();
        fluid.add(Activity { amount: 1.0, takes, latency_s: 0.0 }, []);
    }
    let mut loaded = vec![vec![0.0; nodes]; nodes];
    pairs.iter().zip(fluid.fair()).for_each(|((from, to), rate)| loaded[*from][*to] = rate);
    let alone = (0..nodes).map(|from| (0..nodes).map(|to| alone(from, to)).collect()).collect();
    Matrices { distances: machine.distances.rows.clone(), alone, loaded }
}

fn links(machine: &Machine) -> Vec<[usize; 2]> {
    let end = |end: &octorec::machine::describe::End| match end {
        octorec::machine::describe::End::Node(node) => node.index(),
        octorec::machine::describe::End::Switch(_) => panic!("no switches here"),
    };
    let mut links: Vec<[usize; 2]> = machine.links.iter().map(|link| [0, 1].map(|at| end(&link.ends[at]))).collect();
    links.iter_mut().for_each(|ends| ends.sort_unstable());
    links.sort_unstable();
    links
}

fn shipped(name: &str) -> Machine {
    Machine::load(name).expect("shipped")
}

/// A shipped description with a line more.
fn changed(name: &str, from: &str, to: &str) -> Machine {
    let text = shipped(name).to_toml();
    assert!(text.contains(from), "{text}");
    Machine::parse(&text.replacen(from, to, 1), name).expect("a description")
}

#[test]
fn every_machine_is_known_again_by_its_own_figures() {
    for name in MACHINES {
        let machine = shipped(name);
        for seed in 0..20 {
            let found = ideal(&machine).noisy(0.05, seed).infer();
            let expected = Inferred { links: links(&machine), ..Inferred::default() };
            assert_eq!(found, expected, "{name}, seed {seed}");
        }
    }
}

#[test]
fn what_pairs_write_at_once_tells_links_that_distances_do_not() {
    for name in MACHINES {
        let machine = shipped(name);
        for seed in 0..3 {
            let found = ideal(&machine).noisy(0.03, seed).flat().infer();
            // On the smallest machines all distances are alike anyway.
            let alike = ["two-socket", "full-4"].contains(&name);
            if name == "ring-4" || alike {
                assert_eq!(found.links, links(&machine), "{name}");
            }
            assert_eq!(found.doubts.is_empty(), alike, "{name}: {:?}", found.doubts);
        }
    }
}

#[test]
fn another_way_than_the_usual_one_is_found() {
    // From 0 to 2 by way of 3 instead of 1.
    let machine = changed("ring-4", "\n[[link]]", "\n[[route]]\npath = [0, 3, 2]\n\n[[link]]");
    for seed in 0..10 {
        let found = ideal(&machine).noisy(0.03, seed).infer();
        let expected = Inferred { links: links(&machine), routes: vec![vec![0, 3, 2]], ..Inferred::default() };
        assert_eq!(found, expected);
    }
}

#[test]
fn links_are_known_again_whatever_the_routes() {
    let machine = shipped("twisted-hypercube-8");
    let joined = |a: usize, b: usize| links(&machine).contains(&[a.min(b), a.max(b)]);
    let mut explained = 0;
    for seed in 0..20 {
        let random = Random::new(seed, Stream::Label);
        let mut routes = String::new();
        for (a, b) in (0..8).flat_map(|a| (a + 1..8).map(move |b| (a, b))).filter(|(a, b)| !joined(*a, *b)) {
            let between: Vec<usize> = (0..8).filter(|at| joined(a, *at) && joined(*at, b)).collect();
            let at = between[random.below((8 * a + b) as u64, between.len() as u64) as usize];
            routes += &format!("\n[[route]]\npath = [{a}, {at}, {b}]\n");
        }
        let machine = changed("twisted-hypercube-8", "\n[[link]]", &format!("{routes}\n[[link]]"));
        let found = ideal(&machine).noisy(0.03, seed).infer();
        assert_eq!(found.links, links(&machine), "seed {seed}: {:?}", found.doubts);
        explained += usize::from(found.doubts.is_empty());
    }
    assert!(explained >= 16, "{explained} of 20");
}

#[test]
fn what_contradicts_is_told() {
    let machine = shipped("twisted-hypercube-8");
    let good = ideal(&machine).noisy(0.03, 1);
    let doubts = |change: &dyn Fn(&mut Matrices)| {
        let mut matrices = good.clone();
        change(&mut matrices);
        let found = matrices.infer();
        assert_eq!(found.links, links(&machine), "{:?}", found.doubts);
        found.doubts.join("\n")
    };
    assert_eq!(doubts(&|_| ()), "");
    // 0 and 2 have no link.
    let told = doubts(&|all| {
        all.alone[0][2] *= 2.0;
        all.alone[2][0] *= 2.0;
    });
    assert!(told.starts_with("nodes 0 to 2 and 1 more pair are written to faster than the links"), "{told}");
    let told = doubts(&|all| all.alone[5][2] *= 0.5);
    assert!(told.starts_with("nodes 5 to 2 are written to slower than the links"), "{told}");
    let told = doubts(&|all| all.loaded[0][1] *= 0.4);
    assert!(told.starts_with("nodes 0 to 1 write ") && told.contains("while all pairs write"), "{told}");
    let told = doubts(&|all| all.loaded.iter_mut().flatten().for_each(|rate| *rate *= 0.6));
    assert!(told.contains("links carry") && told.contains("% of what they carry for one pair"), "{told}");
}

#[test]
fn a_link_that_distances_do_not_tell_is_found_and_doubted() {
    let ring = shipped("ring-4");
    let machine = Machine::parse(
        &ring.to_toml().replace("[3, 0]]", "[3, 0], [0, 2]]").replace(
            "    [10, 21, 31, 21],\n    [21, 10, 21, 31],\n    [31, 21, 10, 21]",
            "    [10, 21, 21, 21],\n    [21, 10, 21, 31],\n    [21, 21, 10, 21]",
        ),
        "ring-4 with a diagonal",
    )
    .expect("a description");
    let mut matrices = ideal(&machine).noisy(0.03, 5);
    matrices.distances = ring.distances.rows;
    let found = matrices.infer();
    assert_eq!(found.links, links(&machine));
    assert!(found.doubts[0].ends_with("there are links 0-2"), "{:?}", found.doubts);
}
