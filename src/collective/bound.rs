//! How fast a collective can be at best on given links and memories, whatever its schedule.
//!
//! Nothing here knows a planner. Links:
//!
//! * all-gather: what lies on one side of a cut must pass it if anybody on the other side wants it, so no schedule is
//!   faster than the slices on one side over the links that leave it, for any cut; and one that is as fast as the worst
//!   cut exists (Edmonds, Edge-disjoint branchings, 1973). The worst cut is found by Newton's method on the narrowest
//!   cuts of flows.
//! * reduce-scatter: the same with all links turned round.
//! * all-reduce: the sums need 2 (R - 1) messages an element, because after R - 1 of them one rank has the first sum at
//!   the earliest, and then R - 1 others want it; all of them enter ranks by their links. And the whole tensor passes
//!   each cut both ways.
//! * all-to-all: give each link a length. Each byte must go at least the length of its shortest way, and the links
//!   together have so many bytes a second times length. Any lengths give a bound; those of every cut are tried, and
//!   others that are learned by making full links longer (Garg and Koenemann, Faster and simpler algorithms for
//!   multicommodity flow, 2007).
//!
//! Memories: what a carrier of windows must read and write, as [`super::Schedule::memory_bytes`] counts it.

use super::parcels::Parcels;
use super::schedule::{Goal, Payload};
use super::slices::Slices;
use crate::base::RankId;
use crate::machine::Site;
use crate::machine::network::{Arc, Network, max_flow};
use crate::machine::site::Pool;

/// Where all cuts of a graph are tried for an all-to-all.
const CUTS_OF: usize = 10;

/// How often lengths are changed, at most; and how often for nothing, which is while the bound grows by no more than
/// this share in all.
const LESSONS: usize = 400;
const IDLE_LESSONS: usize = 100;
const GROWTH: f64 = 1e-4;

/// The least seconds that a collective can take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// For its links.
    pub links_s: f64,
    /// For its memories.
    pub memory_s: f64,
}

impl Bound {
    /// Of a collective with this payload on a site.
    ///
    /// # Panics
    /// When goal and site have different ranks.
    #[must_use]
    pub fn of(goal: &Goal, payload: Payload, site: &Site) -> Self {
        assert_eq!(goal.ranks(), site.ranks.len(), "a collective among the ranks of a site");
        Self { links_s: links_s(goal, payload, site), memory_s: memory_s(goal, payload, site) }
    }

    /// The larger.
    #[must_use]
    pub const fn seconds(&self) -> f64 {
        self.links_s.max(self.memory_s)
    }
}

fn links_s(goal: &Goal, payload: Payload, site: &Site) -> f64 {
    let network = Network::of(site);
    let home = |rank: usize| site.home(RankId(rank as u32));
    let bytes = |slices: &Slices| {
        let mut bytes = vec![0.0; network.homes()];
        (0..slices.ranks()).for_each(|rank| bytes[home(rank)] += (slices.slice(rank).len() * payload.bytes()) as f64);
        bytes
    };
    match goal {
        Goal::AllGather(slices) => gather_s(&network, &bytes(slices)),
        Goal::ReduceScatter(slices) => gather_s(&network.reversed(), &bytes(slices)),
        Goal::AllReduce(slices) => reduce_s(&network, bytes(slices).iter().sum()),
        Goal::AllToAll(parcels) => {
            let mut demand = vec![vec![0.0; network.homes()]; network.homes()];
            for parcel in parcels.iter() {
                let [from, to] = [parcel.from, parcel.to].map(|rank| home(rank.index()));
                demand[from][to] += (parcel.send.len() * payload.bytes()) as f64;
            }
            exchange_s(&network, &demand)
        }
    }
}

/// Seconds until every home has the bytes of all.
pub(super) fn gather_s(network: &Network, bytes: &[f64]) -> f64 {
    (0..network.homes()).map(|to| until_all_have_come(network, bytes, to)).fold(0.0, f64::max)
}

/// Seconds until all others' bytes can have come to one home.
fn until_all_have_come(network: &Network, bytes: &[f64], to: usize) -> f64 {
    let source = network.vertices();
    let others = || (0..network.homes()).filter(|home| *home != to);
    let wanted: f64 = others().map(|home| bytes[home]).sum();
    let mut seconds = 0.0;
    if wanted == 0.0 {
        return seconds;
    }
    loop {
        let supply = others().map(|home| Arc { from: source, to: home, capacity: bytes[home] });
        let links = network.arcs().iter().map(|arc| Arc { capacity: arc.capacity * 1e9 * seconds, ..*arc });
        let flow = max_flow(source + 1, &links.chain(supply).collect::<Vec<_>>(), source, to);
        if flow.amount >= wanted * (1.0 - 1e-9) {
            return seconds;
        }
        let inside: f64 = others().filter(|home| flow.near[*home]).map(|home| bytes[home]).sum();
        let longer = inside / (network.leaving(&flow.near[..source]) * 1e9);
        // Rounding alone cannot go on for ever.
        if longer <= seconds * (1.0 + 1e-12) {
            return seconds;
        }
        seconds = longer;
    }
}

/// Seconds until every home has the sum of all tensors of so many bytes.
fn reduce_s(network: &Network, bytes: f64) -> f64 {
    let homes = network.homes();
    if homes < 2 {
        return 0.0;
    }
    let entering: f64 = network.arcs().iter().filter(|arc| arc.to < homes).map(|arc| arc.capacity).sum();
    let messages = 2.0 * (homes - 1) as f64 * bytes / (entering * 1e9);
    let narrowest = (1..homes).flat_map(|other| [(0, other), (other, 0)]);
    let narrowest = narrowest.map(|(from, to)| max_flow(network.vertices(), network.arcs(), from, to).amount);
    messages.max(bytes / (narrowest.fold(f64::INFINITY, f64::min) * 1e9))
}

/// Seconds until `demand[from][to]` bytes have gone from each home to each.
fn exchange_s(network: &Network, demand: &[Vec<f64>]) -> f64 {
    let homes = network.homes();
    let mut least: f64 = 0.0;
    if homes <= CUTS_OF {
        for set in 1..(1_usize << homes) - 1 {
            least = least.max(through_cut_s(network, demand, &|home| set >> home & 1 == 1));
        }
    }
    least.max(along_ways_s(network, demand).0)
}

/// The same as ways tell it, links that are full becoming longer, and after how many lessons.
fn along_ways_s(network: &Network, demand: &[Vec<f64>]) -> (f64, usize) {
    let arcs = network.arcs();
    let mut lengths: Vec<f64> = arcs.iter().map(|arc| 1.0 / arc.capacity).collect();
    let (mut least, mut grown, mut since): (f64, f64, usize) = (0.0, 0.0, 0);
    for lesson in 0..LESSONS {
        let mut loads = vec![0.0; arcs.len()];
        let mut way = 0.0;
        for (from, row) in demand.iter().enumerate() {
            let ways = network.ways(from, &lengths);
            for (to, bytes) in row.iter().enumerate().filter(|(to, bytes)| *to != from && **bytes > 0.0) {
                way += bytes * ways[to].0;
                let mut vertex = to;
                while let Some(arc) = ways[vertex].1 {
                    loads[arc] += bytes;
                    vertex = arcs[arc].from;
                }
            }
        }
        let room: f64 = arcs.iter().zip(&lengths).map(|(arc, length)| arc.capacity * 1e9 * length).sum();
        least = least.max(way / room);
        let busy: Vec<f64> = loads.iter().zip(arcs).map(|(load, arc)| load / arc.capacity).collect();
        let most = busy.iter().copied().fold(0.0, f64::max);
        if least > grown * (1.0 + GROWTH) {
            (grown, since) = (least, lesson);
        }
        if most == 0.0 || lesson - since >= IDLE_LESSONS {
            return (least, lesson);
        }
        lengths.iter_mut().zip(&busy).for_each(|(length, busy)| *length *= 1.0 + 0.05 * busy / most);
    }
    (least, LESSONS)
}

/// Seconds of what must leave a set of homes, over the narrowest cut around it.
fn through_cut_s(network: &Network, demand: &[Vec<f64>], inside: &dyn Fn(usize) -> bool) -> f64 {
    let (from, to) = (network.vertices(), network.vertices() + 1);
    let homes = 0..network.homes();
    let ends = homes.clone().map(|home| match inside(home) {
        true => Arc { from, to: home, capacity: f64::INFINITY },
        false => Arc { from: home, to, capacity: f64::INFINITY },
    });
    let width = max_flow(to + 1, &ends.chain(network.arcs().iter().copied()).collect::<Vec<_>>(), from, to).amount;
    let leaves = |home: usize| -> f64 { homes.clone().filter(|to| !inside(*to)).map(|to| demand[home][to]).sum() };
    homes.clone().filter(|home| inside(*home)).map(leaves).sum::<f64>() / (width * 1e9)
}

/// Seconds of what must be read and written: of an element R - 1 copies and as many sums, wherever the schedule lets
/// ranks do that, so all memories together bound it; and what comes to a rank of a gather is its own to receive.
fn memory_s(goal: &Goal, payload: Payload, site: &Site) -> f64 {
    let (there, travels) = payload.accesses();
    let [copy, add] = [2, 3].map(|own| own * there + 2 * travels);
    let others = goal.ranks() - 1;
    let elements = |slices: &Slices| (0..slices.ranks()).map(|rank| slices.slice(rank).len()).sum::<usize>();
    let together: f64 = site.pools.iter().map(|pool| pool.rates.stream_copy_gb_s).sum();
    let all_s = |slices: &Slices, bytes: usize| (elements(slices) * others * bytes) as f64 / (together * 1e9);
    let comes_s = |slices: &Slices, pool: &Pool| {
        let mine = pool.ranks.iter().map(|rank| elements(slices) - slices.slice(rank.index()).len());
        (mine.sum::<usize>() * (copy - there)) as f64 / (pool.rates.stream_copy_gb_s * 1e9)
    };
    match goal {
        Goal::AllGather(slices) => {
            site.pools.iter().map(|pool| comes_s(slices, pool)).fold(all_s(slices, copy), f64::max)
        }
        Goal::ReduceScatter(slices) => all_s(slices, add),
        Goal::AllReduce(slices) => all_s(slices, copy + add),
        Goal::AllToAll(parcels) => exchanged_memory_s(parcels, payload, site),
    }
}

fn exchanged_memory_s(parcels: &Parcels, payload: Payload, site: &Site) -> f64 {
    let (there, travels) = payload.accesses();
    let mut bytes = vec![0.0; site.pools.len()];
    for parcel in parcels.iter() {
        let elements = parcel.send.len() as f64;
        let pool = |rank: RankId| site.ranks[rank.index()].pool;
        bytes[pool(parcel.from)] += elements * there as f64;
        let arrives = if parcel.from == parcel.to { there } else { there + 2 * travels };
        bytes[pool(parcel.to)] += elements * arrives as f64;
    }
    let seconds = bytes.iter().zip(&site.pools).map(|(bytes, pool)| bytes / (pool.rates.stream_copy_gb_s * 1e9));
    seconds.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of so many vertices, some of which have ranks, in one piece.
    fn graph(random: &mut impl FnMut(u64) -> u64) -> Network {
        let homes = 2 + random(4) as usize;
        let vertices = homes + random(3) as usize;
        let mut arcs = Vec::new();
        let mut join = |a: usize, b: usize, capacity: f64| {
            arcs.extend([(a, b), (b, a)].map(|(from, to)| Arc { from, to, capacity }));
        };
        for vertex in 1..vertices {
            join(vertex, random(vertex as u64) as usize, 1.0 + random(5) as f64);
        }
        for _ in 0..random(6) {
            let [a, b] = [0; 2].map(|_| random(vertices as u64) as usize);
            if a != b {
                join(a, b, 1.0 + random(5) as f64);
            }
        }
        Network::new(homes, vertices, arcs)
    }

    /// All sets of vertices with homes on both sides.
    fn cuts(network: &Network) -> impl Iterator<Item = Vec<bool>> {
        let (vertices, homes) = (network.vertices(), network.homes());
        let sets =
            (0..1_usize << vertices).map(move |set| (0..vertices).map(|at| set >> at & 1 == 1).collect::<Vec<_>>());
        sets.filter(move |set| set[..homes].contains(&true) && set[..homes].contains(&false))
    }

    #[test]
    fn bounds_are_those_of_all_cuts() {
        let mut number = 11_u64;
        let mut random = move |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % below
        };
        for _ in 0..200 {
            let network = graph(&mut random);
            let homes = network.homes();
            let bytes: Vec<f64> = (0..homes).map(|_| random(9) as f64 * 1e6).collect();
            let inside = |set: &[bool]| -> f64 { (0..homes).filter(|home| set[*home]).map(|home| bytes[home]).sum() };
            let worst = |what: &dyn Fn(&[bool]) -> f64| {
                cuts(&network).map(|set| what(&set) / (network.leaving(&set) * 1e9)).fold(0.0, f64::max)
            };
            let near = |found: f64, wanted: f64| assert!((found - wanted).abs() <= 1e-9 * wanted, "{found} {wanted}");
            near(gather_s(&network, &bytes), worst(&|set| inside(set)));
            assert!(reduce_s(&network, 1e6) >= worst(&|_| 1e6) * (1.0 - 1e-9));
            let demand: Vec<Vec<f64>> =
                (0..homes).map(|_| (0..homes).map(|_| random(5) as f64 * 1e6).collect()).collect();
            let leaves = |set: &[bool]| -> f64 {
                let pairs = (0..homes).flat_map(|from| (0..homes).map(move |to| (from, to)));
                pairs.filter(|(from, to)| set[*from] && !set[*to]).map(|(from, to)| demand[from][to]).sum()
            };
            assert!(exchange_s(&network, &demand) >= worst(&leaves) * (1.0 - 1e-9));
        }
    }

    #[test]
    fn an_exchange_is_bound_by_ways_where_no_cut_binds_it() {
        // A ring of five: each to each is 5 x 2 x (1 + 2) over ten directions of links; the worst cut has 6 over 2.
        let ring = (0..5).flat_map(|at| [(at, (at + 1) % 5), ((at + 1) % 5, at)]);
        let arcs = ring.map(|(from, to)| Arc { from, to, capacity: 1.0 }).collect();
        let demand: Vec<Vec<f64>> =
            (0..5).map(|from| (0..5).map(|to| if from == to { 0.0 } else { 1e9 }).collect()).collect();
        let network = Network::new(5, 5, arcs);
        let found = exchange_s(&network, &demand);
        assert!((found - 3.0).abs() < 1e-9, "{found}");
        assert_eq!(along_ways_s(&network, &demand).1, IDLE_LESSONS, "the first lesson knows it all");
        // K(2, 3), whose cuts are looser than its ways (Okamura and Seymour): three homes that are joined through two.
        let pairs = [(0, 3), (0, 4), (1, 3), (1, 4), (2, 3), (2, 4)];
        let arcs = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).map(|(from, to)| Arc { from, to, capacity: 1.0 });
        let network = Network::new(5, 5, arcs.collect());
        let mut demand = vec![vec![0.0; 5]; 5];
        for (from, to) in [(0, 1), (1, 2), (2, 0), (3, 4), (1, 0), (2, 1), (0, 2), (4, 3)] {
            demand[from][to] = 1e9;
        }
        // Eight demands of two steps each over twelve directions; all cuts allow one second.
        let found = exchange_s(&network, &demand);
        assert!((found - 4.0 / 3.0).abs() < 1e-3, "{found}");
    }
}
