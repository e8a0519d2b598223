//! The links between ranks as a directed graph, and how much can flow through it.
//!
//! Vertices are the nodes that have ranks ([`Site::homes`], in that order), then whatever else passes messages on:
//! switches, and nodes without ranks. Arcs are the site's wires.

use std::collections::{BTreeMap, VecDeque};

use super::Site;
use super::describe::End;

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arc {
    /// The vertex that it leaves.
    pub from: usize,
    /// The vertex that it enters.
    pub to: usize,
    /// Its capacity: in GB/s in a [`Network`], in whatever is asked for in a [`max_flow`].
    pub capacity: f64,
}

/// Vertices and arcs.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    homes: usize,
    vertices: usize,
    arcs: Vec<Arc>,
    /// The arcs that leave each vertex, ascending.
    leaving: Vec<Vec<usize>>,
}

impl Network {
    /// The links of a site; arc i is its wire i.
    #[must_use]
    pub fn of(site: &Site) -> Self {
        let homes = site.homes();
        let mut places: BTreeMap<End, usize> = homes.iter().zip(0..).map(|(node, at)| (End::Node(*node), at)).collect();
        let arcs = site.wires.iter().map(|wire| {
            let [from, to] = wire.ends.map(|end| {
                let next = places.len();
                *places.entry(end).or_insert(next)
            });
            Arc { from, to, capacity: wire.gb_s }
        });
        let arcs = arcs.collect();
        Self::new(homes.len(), places.len(), arcs)
    }

    /// A graph whose first `homes` vertices have ranks.
    ///
    /// # Panics
    /// When an arc ends at no vertex.
    #[must_use]
    pub fn new(homes: usize, vertices: usize, arcs: Vec<Arc>) -> Self {
        assert!(homes <= vertices && arcs.iter().all(|arc| arc.from.max(arc.to) < vertices), "arcs between vertices");
        let mut leaving = vec![Vec::new(); vertices];
        arcs.iter().enumerate().for_each(|(number, arc)| leaving[arc.from].push(number));
        Self { homes, vertices, arcs, leaving }
    }

    /// How many vertices have ranks: the first ones.
    #[must_use]
    pub const fn homes(&self) -> usize {
        self.homes
    }

    /// How many vertices there are.
    #[must_use]
    pub const fn vertices(&self) -> usize {
        self.vertices
    }

    /// All directions of all links, with their GB/s.
    #[must_use]
    pub fn arcs(&self) -> &[Arc] {
        &self.arcs
    }

    /// All arcs the other way round.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let arcs = self.arcs.iter().map(|&Arc { from, to, capacity }| Arc { from: to, to: from, capacity });
        Self::new(self.homes, self.vertices, arcs.collect())
    }

    /// GB/s of what leads out of a part of the graph.
    #[must_use]
    pub fn leaving(&self, part: &[bool]) -> f64 {
        self.arcs.iter().filter(|arc| part[arc.from] && !part[arc.to]).map(|arc| arc.capacity).sum()
    }

    /// From one vertex to each the length of the shortest way and its last arc; no arc to where it starts, nor to what
    /// it cannot reach.
    #[must_use]
    pub fn ways(&self, from: usize, lengths: &[f64]) -> Vec<(f64, Option<usize>)> {
        let mut ways = vec![(f64::INFINITY, None); self.vertices];
        let mut open: Vec<usize> = (0..self.vertices).collect();
        ways[from].0 = 0.0;
        // Dijkstra; a machine has too few vertices for a heap to pay.
        while let Some(at) = (0..open.len()).min_by(|a, b| ways[open[*a]].0.total_cmp(&ways[open[*b]].0)) {
            let vertex = open.swap_remove(at);
            let here = ways[vertex].0;
            for &number in &self.leaving[vertex] {
                let arc = &self.arcs[number];
                if here + lengths[number] < ways[arc.to].0 {
                    ways[arc.to] = (here + lengths[number], Some(number));
                }
            }
        }
        ways
    }
}

/// The most that flows from one vertex to another, and the narrowest cut between them.
#[derive(Debug, Clone, PartialEq)]
pub struct MaxFlow {
    /// How much.
    pub amount: f64,
    /// Through each arc.
    pub arcs: Vec<f64>,
    /// The vertices on the near side of a narrowest cut: as few as possible.
    pub near: Vec<bool>,
}

/// The maximum flow from `from` to `to`, whose arcs need not be those of a network.
///
/// Source: Dinic, Algorithm for solution of a problem of maximum flow in networks with power estimation, 1970.
///
/// # Panics
/// When an arc ends at no vertex, or `from` is `to`.
#[must_use]
pub fn max_flow(vertices: usize, arcs: &[Arc], from: usize, to: usize) -> MaxFlow {
    assert_ne!(from, to, "a flow from somewhere to elsewhere");
    // Arc i and its reverse are at 2 i and 2 i + 1.
    let mut room: Vec<f64> = arcs.iter().flat_map(|arc| [arc.capacity, 0.0]).collect();
    let heads: Vec<usize> = arcs.iter().flat_map(|arc| [arc.to, arc.from]).collect();
    let mut leaving = vec![Vec::new(); vertices];
    arcs.iter().enumerate().for_each(|(number, arc)| {
        leaving[arc.from].push(2 * number);
        leaving[arc.to].push(2 * number + 1);
    });
    // What rounding leaves is no room.
    let finite = arcs.iter().map(|arc| arc.capacity).filter(|capacity| capacity.is_finite());
    let least = finite.fold(0.0, f64::max) * 1e-12;
    let mut amount = 0.0;
    loop {
        let mut levels = vec![usize::MAX; vertices];
        levels[from] = 0;
        let mut edge = VecDeque::from([from]);
        while let Some(vertex) = edge.pop_front() {
            for &way in leaving[vertex].iter().filter(|way| room[**way] > least) {
                if levels[heads[way]] == usize::MAX {
                    levels[heads[way]] = levels[vertex] + 1;
                    edge.push_back(heads[way]);
                }
            }
        }
        if levels[to] == usize::MAX {
            let flowed = arcs.iter().enumerate().map(|(number, _)| room[2 * number + 1]).collect();
            return MaxFlow { amount, arcs: flowed, near: levels.iter().map(|level| *level != usize::MAX).collect() };
        }
        let mut tried = vec![0; vertices];
        loop {
            let mut path: Vec<usize> = Vec::new();
            let mut vertex = from;
            while vertex != to {
                match leaving[vertex].get(tried[vertex]) {
                    Some(&way) if room[way] > least && levels[heads[way]] == levels[vertex] + 1 => {
                        path.push(way);
                        vertex = heads[way];
                    }
                    Some(_) => tried[vertex] += 1,
                    None => match path.pop() {
                        // A dead end: back, and not here again.
                        Some(way) => {
                            vertex = heads[way ^ 1];
                            tried[vertex] += 1;
                        }
                        None => break,
                    },
                }
            }
            if path.is_empty() {
                break;
            }
            let more = path.iter().map(|way| room[*way]).fold(f64::INFINITY, f64::min);
            for way in path {
                room[way] -= more;
                room[way ^ 1] += more;
            }
            amount += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arcs(list: &[(usize, usize, f64)]) -> Vec<Arc> {
        list.iter().map(|&(from, to, capacity)| Arc { from, to, capacity }).collect()
    }

    #[test]
    fn what_flows_is_what_the_narrowest_cut_lets_through() {
        let mut number = 7_u64;
        let mut random = |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % below
        };
        for _ in 0..300 {
            let vertices = 2 + random(6) as usize;
            let mut list = Vec::new();
            for _ in 0..random(20) {
                let [from, to] = [0; 2].map(|_| random(vertices as u64) as usize);
                if from != to {
                    list.push(Arc { from, to, capacity: random(9) as f64 * 0.7 });
                }
            }
            let found = max_flow(vertices, &list, 0, 1);
            let across = |near: &dyn Fn(usize) -> bool| -> f64 {
                list.iter().filter(|arc| near(arc.from) && !near(arc.to)).map(|arc| arc.capacity).sum()
            };
            let cuts = (0..1_usize << vertices).filter(|set| set & 3 == 1);
            let least = cuts.map(|set| across(&|vertex| set >> vertex & 1 == 1)).fold(f64::INFINITY, f64::min);
            assert!((found.amount - least).abs() < 1e-9, "{list:?}: {found:?}, {least}");
            assert!((across(&|vertex| found.near[vertex]) - least).abs() < 1e-9);
            for vertex in 2..vertices {
                let sum = |here: fn(&Arc) -> usize| -> f64 {
                    list.iter().zip(&found.arcs).filter(|(arc, _)| here(arc) == vertex).map(|(_, flow)| flow).sum()
                };
                assert!((sum(|arc| arc.to) - sum(|arc| arc.from)).abs() < 1e-9, "nothing stays on the way");
            }
            assert!(list.iter().zip(&found.arcs).all(|(arc, flow)| *flow <= arc.capacity + 1e-9));
        }
    }

    #[test]
    fn ways_are_shortest() {
        let network = Network::new(3, 4, arcs(&[(0, 3, 1.0), (3, 1, 1.0), (0, 2, 1.0), (2, 1, 1.0), (1, 0, 1.0)]));
        let ways = network.ways(0, &[1.0, 5.0, 2.0, 1.0, 1.0]);
        assert_eq!(ways.iter().map(|way| way.0).collect::<Vec<_>>(), [0.0, 3.0, 2.0, 1.0]);
        assert_eq!((ways[1].1, ways[0].1), (Some(3), None));
        assert_eq!(network.reversed().ways(1, &[1.0; 5])[0], (2.0, Some(0)));
        assert_eq!(network.leaving(&[true, false, false, true]), 2.0);
    }
}
