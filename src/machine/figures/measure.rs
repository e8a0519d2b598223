//! Measures a machine node by node, and then pair by pair, on pinned threads with memory on the node.
//!
//! Nodes are measured one after another, so that none takes bandwidth or clock from another. A time that is given is
//! kept to by smaller memory, down to what caches serve, never by leaving something out; what that makes doubtful is
//! said.

use std::time::{Duration, Instant};

use super::packages::meet;
use super::store::now_s;
use super::{Figures, Fingerprint, NodeFigures, PairFigures, ROW_BYTES, VERSION};
use crate::base::units::{Bytes, Many};
use crate::base::{Error, NodeId, PuId, Result, median};
use crate::machine::describe::{CpuQuota, Machine, Node};
use crate::machine::limits::{Field, Pages, bf16_pass_peak, f32_peak, journeys, write_together};
use crate::machine::links::{Measured, infer};
use crate::machine::placement::cores_each;
use crate::machine::team::Team;
use crate::memory::{NodeMemory, available_bytes};
use crate::simd::Isa;

/// The least time that is worth asking for, a node: what its peaks take alone.
pub const LEAST_SECONDS: f64 = 0.5;

/// Memory of a node that is measured on: at least this and so much a thread, that each has rows of its own; at most the
/// last; between them four of the node's last-level caches.
const LEAST_BYTES: usize = 4 << 20;
const THREAD_BYTES: usize = 256 * ROW_BYTES;
const USUAL_BYTES: usize = 256 << 20;
const MOST_BYTES: usize = 4 << 30;
/// The most that is taken of a node's free memory.
const SHARE_OF_FREE: u64 = 8;
/// Passes over the memory that all measurements of a node are worth, in passes that read it: with a margin for random
/// rows.
const PASSES: f64 = 100.0;

/// The same for memory that others write to.
const PAIR_PASSES: f64 = 30.0;

/// Memory that others write to, at most.
const TARGET_BYTES: usize = 32 << 20;
/// Lines whose journeys are timed, how often, and for how long at most.
const LINES: usize = 8;
const TRIPS: usize = 500;
const WARM_UP: usize = 100;
const JOURNEYS: Duration = Duration::from_millis(50);

/// How long all pairs write at once, and how often.
const TOGETHER: Duration = Duration::from_millis(200);
const TIMES_TOGETHER: usize = 3;

/// A node that can be measured.
struct Place {
    node: NodeId,
    /// The first allowed hardware thread of each core.
    pus: Vec<PuId>,
}

impl Place {
    fn of(node: &Node) -> Option<Self> {
        let pus: Vec<PuId> = node.cores.iter().filter_map(|core| core.allowed().next()).collect();
        (node.memory_allowed && !pus.is_empty()).then_some(Self { node: node.id, pus })
    }

    fn least_bytes(&self) -> usize {
        LEAST_BYTES.max(THREAD_BYTES * self.pus.len())
    }

    fn team(&self) -> Result<Team> {
        Team::pinned(&self.pus, true, Isa::best())
    }
}

/// Measures this host in about `budget`; `told` hears what is being measured.
///
/// # Errors
/// When `machine` is not this system or this process may use no node, and when threads or memory are refused.
pub fn measure(machine: &Machine, budget: Duration, told: &mut dyn FnMut(&str)) -> Result<Figures> {
    let mut places: Vec<Place> = machine.nodes.iter().filter_map(Place::of).collect();
    if !machine.is_this_system || places.is_empty() {
        let reason = format!(
            "{} is not this machine, or nothing of it may be used: only what runs here is measured",
            machine.name
        );
        return Err(Error::Placement { reason });
    }
    let began = Instant::now();
    let mut doubts = Vec::new();
    doubts.extend(machine.cpu_quota.as_ref().and_then(|quota| within(quota, &mut places)));
    // Pairs are quick, and what nodes leave is theirs.
    let share = budget.mul_f64(0.8 / places.len() as f64);
    let (mut nodes, mut slowest) = (Vec::new(), 0.0);
    for place in &places {
        told(&format!("{}: {} and the memory", place.node, Many(place.pus.len() as u64, "core")));
        let l3: u64 = machine.node(place.node).map_or(0, |node| node.l3.iter().map(|group| group.bytes).sum());
        let (figures, a_byte) = node_figures(place, l3, share, &mut doubts)?;
        slowest = f64::max(slowest, a_byte);
        nodes.push(figures);
    }
    told("pairs of nodes, each alone and then all at once");
    let left = budget.saturating_sub(began.elapsed()).as_secs_f64();
    let bytes = left / (PAIR_PASSES * slowest * (places.len() * places.len()) as f64);
    let pairs = pair_figures(&places, bytes as usize, &mut doubts)?;
    let mut figures = Figures {
        version: VERSION,
        fingerprint: Fingerprint::of(machine),
        measured_s: now_s(),
        took_s: began.elapsed().as_secs_f64(),
        row_bytes: ROW_BYTES,
        nodes,
        pairs,
        links: Vec::new(),
        routes: Vec::new(),
        by_package: false,
        doubts,
    };
    infer_links(machine, &mut figures);
    figures.check().map_err(|reason| Error::Placement { reason })?;
    Ok(figures)
}

/// Leaves as many cores of each node as ranks on all of them may use at once; a doubt where there were more.
fn within(quota: &CpuQuota, places: &mut [Place]) -> Option<String> {
    let sizes: Vec<usize> = places.iter().map(|place| place.pus.len()).collect();
    let most = cores_each(&sizes, quota.whole());
    places.iter_mut().for_each(|place| place.pus.truncate(most));
    sizes.iter().any(|size| *size > most).then(|| {
        format!("a quota of {} cpus: no node was measured with more than {}", quota.cpus, Many(most as u64, "core"))
    })
}

/// Four digits: what follows is noise.
fn rounded(figure: f64) -> f64 {
    format!("{figure:.3e}").parse().expect("a number that was just printed")
}

/// A size that measures memory and not the caches, if there is so much.
fn wanted_bytes(node: NodeId, l3_bytes: u64) -> usize {
    let wanted = usize::try_from(4 * l3_bytes).unwrap_or(MOST_BYTES).clamp(USUAL_BYTES, MOST_BYTES);
    let free = [NodeMemory::of(node).map(|memory| memory.free), available_bytes()].into_iter().flatten().min();
    let limit = free.map_or(wanted, |free| usize::try_from(free / SHARE_OF_FREE).unwrap_or(wanted));
    wanted.min(limit)
}

/// The node's figures, and the seconds that reading a byte takes.
fn node_figures(
    place: &Place,
    l3_bytes: u64,
    budget: Duration,
    doubts: &mut Vec<String>,
) -> Result<(NodeFigures, f64)> {
    let began = Instant::now();
    let (team, node) = (place.team()?, place.node);
    let f32_peak = f32_peak(&team).median;
    let bf16_peak = bf16_pass_peak(&team).map(|rate| rounded(rate.median));
    let mut bytes = wanted_bytes(node, l3_bytes);
    // As much memory as the time that is left allows.
    let trial = Field::on(&team, place.least_bytes(), Pages::Huge, node)?;
    let _warm = trial.sum(&team);
    let start = Instant::now();
    let _timed = trial.sum(&team);
    let a_byte = start.elapsed().as_secs_f64() / trial.bytes() as f64;
    let left = budget.saturating_sub(began.elapsed()).as_secs_f64();
    bytes = bytes.min((left / (PASSES * a_byte)) as usize).max(place.least_bytes());
    drop(trial);
    let mut field = Field::on(&team, bytes, Pages::Huge, node)?;
    let strays = field.strays(node);
    if strays > 0.01 {
        doubts.push(format!("{:.0} % of the memory that {node} was measured on lies on other nodes", strays * 100.0));
    }
    if (field.bytes() as u64) < 2 * l3_bytes {
        let (memory, cache) = (Bytes(field.bytes() as u64), Bytes(l3_bytes));
        doubts.push(format!("{node} was measured on {memory} beside {cache} of cache, which serves a part of it"));
    }
    let figures = NodeFigures {
        node: node.0,
        threads: team.threads(),
        field_bytes: field.bytes(),
        read_gb_s: rounded(field.read(&team).median),
        copy_gb_s: rounded(field.copy(&team).median),
        stream_copy_gb_s: rounded(field.stream_copy(&team).median),
        row_gb_s: rounded(field.gather(&team, ROW_BYTES).rate.median),
        row_update_gb_s: rounded(field.update(&team, ROW_BYTES).rate.median),
        peak_f32_gflop_s: rounded(f32_peak),
        peak_bf16_gflop_s: bf16_peak,
    };
    Ok((figures, a_byte))
}

fn pair_figures(places: &[Place], most_bytes: usize, doubts: &mut Vec<String>) -> Result<Vec<PairFigures>> {
    let mut targets = Vec::new();
    for place in places {
        let free = NodeMemory::of(place.node).map_or(u64::MAX, |memory| memory.free / SHARE_OF_FREE);
        let bytes = TARGET_BYTES.min(most_bytes).min(usize::try_from(free).unwrap_or(usize::MAX)).max(LEAST_BYTES);
        let target = Field::on(&place.team()?, bytes, Pages::Huge, place.node)?;
        if places.len() > 1 && target.strays(place.node) > 0.01 {
            doubts.push(format!("memory that was to be written on {} lies on other nodes, too", place.node));
        }
        targets.push(target);
    }
    let mut pairs = Vec::new();
    for from in places {
        let team = from.team()?;
        for (to, target) in places.iter().zip(&mut targets) {
            let write_gb_s = rounded(target.write(&team).median);
            pairs.push(PairFigures {
                from: from.node.0,
                to: to.node.0,
                write_gb_s,
                loaded_gb_s: None,
                latency_ns: None,
            });
        }
    }
    if places.len() > 1 {
        let loaded = loaded(places, &mut targets, doubts)?;
        let figures = pairs.iter_mut().zip(loaded.into_iter().flatten());
        figures.filter(|(pair, _)| pair.from != pair.to).for_each(|(pair, gb_s)| pair.loaded_gb_s = Some(gb_s));
    }
    for pair in &mut pairs {
        let place = |node: u32| places.iter().find(|place| place.node.0 == node).expect("a node of the list");
        let (from, to) = (place(pair.from), place(pair.to));
        let other = if from.node == to.node { to.pus.get(1) } else { to.pus.first() };
        if let Some(other) = other {
            pair.latency_ns = Some(latency_ns(from.pus[0], *other)?);
        }
    }
    Ok(pairs)
}

/// What each writes to each while all do: the median of a few times.
fn loaded(places: &[Place], targets: &mut [Field], doubts: &mut Vec<String>) -> Result<Vec<Vec<f64>>> {
    let pus: Vec<PuId> = places.iter().flat_map(|place| place.pus.clone()).collect();
    let nodes: Vec<usize> = places.iter().zip(0..).flat_map(|(place, node)| vec![node; place.pus.len()]).collect();
    let few: Vec<&Place> = places.iter().filter(|place| place.pus.len() < places.len() - 1).collect();
    if let [first, ..] = &few[..] {
        let (count, others) = (Many(few.len() as u64, "node"), places.len() - 1);
        doubts.push(format!(
            "{count} with fewer cores than there are other nodes ({} has {} for {others}): each core writes to several in turn \
             while all write to all",
            first.node,
            first.pus.len()
        ));
    }
    let team = Team::pinned(&pus, true, Isa::best())?;
    let all: Vec<Vec<Vec<f64>>> =
        (0..TIMES_TOGETHER).map(|_| write_together(&team, &nodes, targets, TOGETHER)).collect();
    let of_pair = |from: usize, to: usize| {
        let mut times: Vec<f64> = all.iter().map(|rates| rates[from][to]).collect();
        rounded(median(&mut times))
    };
    Ok((0..places.len()).map(|from| (0..places.len()).map(|to| of_pair(from, to)).collect()).collect())
}

/// How long a line takes to another hardware thread.
fn latency_ns(from: PuId, to: PuId) -> Result<f64> {
    let team = Team::pinned(&[from, to], true, Isa::best())?;
    Ok(rounded(one_way(journeys(&team, LINES, WARM_UP, TRIPS, JOURNEYS).concat())))
}

/// Half the median journey there and back, in ns.
fn one_way(mut journeys: Vec<f64>) -> f64 {
    // A clock may be too coarse to see it.
    (median(&mut journeys) / 2.0).max(1.0)
}

/// Finds the links and routes that the figures speak for, if all nodes were measured.
fn infer_links(machine: &Machine, figures: &mut Figures) {
    let nodes: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
    if nodes.len() < 2 {
        return;
    }
    let matrix = |figure: &dyn Fn(&PairFigures) -> Option<f64>| -> Option<Vec<Vec<f64>>> {
        // Under load nobody writes within a node.
        let of = |from: NodeId, to: NodeId| figure(figures.pair(from, to)?).or((from == to).then_some(0.0));
        nodes.iter().map(|from| nodes.iter().map(|to| of(*from, *to)).collect()).collect()
    };
    let (alone, loaded) = (matrix(&|pair| Some(pair.write_gb_s)), matrix(&|pair| pair.loaded_gb_s));
    let (Some(alone), Some(loaded)) = (alone, loaded) else {
        figures.doubts.push("links were inferred from distances alone, since not all nodes may be used".to_owned());
        return;
    };
    let distance = |from: &NodeId, to: &NodeId| machine.distances.between(*from, *to).unwrap_or(u32::MAX);
    let distances: Vec<Vec<u32>> =
        nodes.iter().map(|from| nodes.iter().map(|to| distance(from, to)).collect()).collect();
    let found = infer(&Measured { nodes: &nodes, distances: &distances, alone: &alone, loaded: &loaded });
    figures.links = found.links.iter().map(|pair| pair.map(|at| nodes[at].0)).collect();
    figures.routes = found.routes.iter().map(|route| route.iter().map(|at| nodes[*at].0).collect()).collect();
    figures.doubts.extend(found.doubts);
    figures.by_package = found.unexplained && meet(machine, &figures.links);
    if figures.by_package {
        figures.doubts.push("nodes of a package are taken to share its links to other packages".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::linux::current_affinity;
    use crate::machine::describe::End;
    use crate::machine::placement::{CommCores, Wishes};
    use crate::machine::site::Known;
    use crate::machine::{Routes, Site, discover, place};

    #[test]
    fn a_figure_has_four_digits() {
        assert_eq!([rounded(31.938_42), rounded(0.001_234_56), rounded(123_456.0)], [31.94, 0.001_235, 123_500.0]);
    }

    #[test]
    fn a_latency_is_half_the_median_journey() {
        assert_eq!(one_way(vec![1000.0, 90.0, 200.0, 80.0, 900.0]), 100.0);
        assert_eq!(one_way(vec![0.5]), 1.0);
    }

    /// Eight sockets on which every pair is as `figures` says.
    fn measured(figures: impl Fn(u32, u32) -> (f64, f64)) -> (Machine, Figures) {
        let machine = Machine::load("twisted-hypercube-8").unwrap();
        let node = |node: u32| NodeFigures {
            node,
            threads: 28,
            field_bytes: 1 << 30,
            read_gb_s: 90.0 + f64::from(node),
            copy_gb_s: 70.0,
            stream_copy_gb_s: 80.0,
            row_gb_s: 60.0,
            row_update_gb_s: 50.0,
            peak_f32_gflop_s: 4000.0,
            peak_bf16_gflop_s: None,
        };
        let pair = |from: u32, to: u32| {
            let (write_gb_s, latency_ns) = figures(from, to);
            PairFigures { from, to, write_gb_s, loaded_gb_s: None, latency_ns: Some(latency_ns) }
        };
        let figures = Figures {
            version: VERSION,
            fingerprint: Fingerprint::of(&machine),
            measured_s: now_s() - 7200,
            took_s: 1.0,
            row_bytes: ROW_BYTES,
            nodes: (0..8).map(node).collect(),
            pairs: (0..8).flat_map(|from| (0..8).map(move |to| (from, to))).map(|(from, to)| pair(from, to)).collect(),
            links: Vec::new(),
            routes: Vec::new(),
            by_package: false,
            doubts: Vec::new(),
        };
        (machine, figures)
    }

    #[test]
    fn a_link_has_the_lesser_bandwidth_and_the_longer_latency_of_its_directions() {
        let (mut machine, figures) = measured(|from, to| if from < to { (20.0, 150.0) } else { (18.0, 130.0) });
        figures.complete(&mut machine, "here");
        assert!(machine.links.iter().all(|link| (link.gb_s, link.latency_ns) == (Some(18.0), Some(150.0))));
        let node = &machine.nodes[3];
        assert_eq!((node.memory_gb_s, node.row_gb_s, node.peak_bf16_gflop_s), (Some(93.0), Some(60.0), None));
        assert_eq!(machine.measured.as_deref(), Some("2 hours ago (here)"));
        assert_eq!(figures.check(), Ok(()));
        let again = Machine::parse(&machine.to_toml(), "exported").expect("figures can be described");
        assert_eq!((again.nodes, again.links), (machine.nodes, machine.links));
    }

    #[test]
    fn peaks_of_a_part_of_the_cores_are_described_as_those_of_all() {
        let (mut machine, mut figures) = measured(|_, _| (20.0, 100.0));
        // As for `taskset` with the first seven of 28 cores of node 2.
        machine.restrict(|pu| !(63..84).contains(&(pu.0 % 224)), |_| true);
        figures.nodes[2].threads = 7;
        figures.nodes[2].peak_f32_gflop_s = 1000.0;
        figures.nodes[2].peak_bf16_gflop_s = Some(2000.0);
        figures.complete(&mut machine, "here");
        let peaks = |node: usize| (machine.nodes[node].peak_f32_gflop_s, machine.nodes[node].peak_bf16_gflop_s);
        assert_eq!((peaks(1), peaks(2)), ((Some(4000.0), None), (Some(4000.0), Some(8000.0))));
        let text = machine.to_toml();
        assert!(text.contains("\n# peaks of node 2: as many times those"), "{text}");
        // What a rank has there is the same as measured, of the machine itself and of its description.
        let again = Machine::parse(&text, "exported").expect("figures can be described");
        for (machine, threads) in [(machine, 7), (again, 28)] {
            let wishes = Wishes { comm_cores: CommCores::Count(0), ..Wishes::default() };
            let site = Site::new(&machine, &place(&machine, &wishes).unwrap(), Known::default());
            assert!((site.ranks[2].f32_gflop_s - 1000.0 * f64::from(threads) / 7.0).abs() < 1e-6);
        }
    }

    #[test]
    fn pairs_are_measured_alone_and_all_at_once() {
        // As if these were nodes: what lies elsewhere is told.
        let pus = current_affinity().unwrap();
        let places = [0, 1, 2].map(|node| Place { node: NodeId(node), pus: vec![pus[node as usize % pus.len()]] });
        let mut doubts = Vec::new();
        let pairs = pair_figures(&places, LEAST_BYTES, &mut doubts).unwrap();
        assert_eq!(pairs.len(), 9);
        for pair in &pairs {
            assert_eq!(pair.loaded_gb_s.is_some_and(|gb_s| gb_s > 0.0), pair.from != pair.to, "{pair:?}");
            assert!(pair.write_gb_s > 0.0);
        }
        let few =
            doubts.iter().filter(|doubt| doubt.starts_with("3 nodes with fewer cores than there are other nodes"));
        assert_eq!(few.count(), 1, "{doubts:?}");
    }

    #[test]
    fn nodes_of_a_package_share_its_links_to_others() {
        // Four packages of four nodes: 30 GB/s between two of them, which sixteen pairs divide while all write.
        let mut machine = discover::synthetic("Package:4 NUMANode:4 Core:4 PU:1").unwrap();
        let inside = |from: usize, to: usize| from / 4 == to / 4;
        let far = |from: usize, to: usize| if inside(from, to) { 12 } else { 32 };
        for from in 0..16 {
            (0..16).filter(|to| *to != from).for_each(|to| machine.distances.rows[from][to] = far(from, to));
        }
        let (_, mut figures) = measured(|_, _| (20.0, 100.0));
        figures.nodes.clear();
        let pair = |from: usize, to: usize| PairFigures {
            from: from as u32,
            to: to as u32,
            write_gb_s: if from == to { 100.0 } else { 40.0 - 10.0 * f64::from(u8::from(!inside(from, to))) },
            loaded_gb_s: (from != to).then_some(if inside(from, to) { 20.0 } else { 30.0 / 16.0 }),
            latency_ns: Some(100.0),
        };
        figures.pairs = (0..256).map(|at| pair(at / 16, at % 16)).collect();
        infer_links(&machine, &mut figures);
        assert!(figures.by_package && figures.links.len() == 16 * 15 / 2, "{:?}", figures.doubts);
        figures.complete(&mut machine, "here");
        // Six a package, one a node to its package's switch, one a pair of packages.
        assert_eq!((machine.switches.len(), machine.links.len()), (4, 4 * 6 + 16 + 6));
        let routes = Routes::new(&machine);
        let way = |to: u32| {
            let gb_s: Vec<_> =
                routes.path(NodeId(0), NodeId(to)).iter().map(|hop| machine.links[hop.link].gb_s).collect();
            (gb_s.len(), gb_s.into_iter().map(Option::unwrap).fold(f64::INFINITY, f64::min))
        };
        assert_eq!([way(3), way(4), way(15)], [(1, 40.0), (3, 30.0), (3, 30.0)]);
        let mut traffic = vec![vec![0; 16]; 16];
        (0..16).for_each(|pair| traffic[pair / 4][4 + pair % 4] = 30_000_000_000 / 16);
        let busiest = routes.loads(&machine, &traffic).bottleneck(&machine).unwrap();
        assert!((busiest.seconds - 1.0).abs() < 1e-9, "all pairs share one link: {busiest:?}");
        let again = Machine::parse(&machine.to_toml(), "exported").expect("packages can be described");
        assert_eq!((again.links, again.distances), (machine.links, machine.distances));
    }

    #[test]
    fn links_that_were_inferred_replace_those_of_distances() {
        let (mut machine, mut figures) = measured(|_, _| (20.0, 100.0));
        // As one who may not use all nodes.
        infer_links(&machine, &mut figures);
        assert!(figures.links.is_empty() && figures.doubts[0].contains("from distances alone"), "{:?}", figures.doubts);
        figures.doubts.clear();
        // So much that a node's own memory limits all that it writes: any links would do, and distances decide.
        figures
            .pairs
            .iter_mut()
            .filter(|pair| pair.from != pair.to)
            .for_each(|pair| pair.loaded_gb_s = Some(20.0 / 7.0));
        infer_links(&machine, &mut figures);
        assert_eq!((figures.links.len(), &figures.routes[..], &figures.doubts[..]), (12, &[][..], &[][..]));
        assert_eq!(figures.check(), Ok(()));

        figures.links.retain(|link| *link != [0, 1]);
        figures.links.push([2, 0]);
        figures.routes = vec![vec![0, 2, 1]];
        assert_eq!(figures.check(), Ok(()));
        figures.complete(&mut machine, "here");
        let ends = [End::Node(NodeId(2)), End::Node(NodeId(0))];
        assert!(machine.links.len() == 12 && machine.links.iter().any(|link| link.ends == ends));
        assert_eq!(machine.routes.len(), 1);
        // The firmware's distances speak for other links, so a description leaves them out.
        let again = Machine::parse(&machine.to_toml(), "exported").expect("what was inferred can be described");
        assert_eq!((&again.links, &again.routes), (&machine.links, &machine.routes));
        assert_ne!(again.distances, machine.distances);
        for (links, routes, words) in [
            (vec![[0, 1]], vec![], "leave node 2 apart"),
            (vec![[0, 9]], vec![], "no link between nodes 0 and 9"),
            (figures.links.clone(), vec![vec![0, 7, 5]], "no route"),
        ] {
            let reason = Figures { links, routes, ..figures.clone() }.check().unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
    }
}
