//! Whole numbers of trees for links, and a graph of ranks alone: how many trees a link may carry, with what passes
//! messages on (switches, and nodes without ranks) replaced by edges past it.
//!
//! Trees of equal parts take so long as the narrowest cut needs, and a link carries as many of them as it has time for;
//! parts are made as small as it takes to lose little of the links to rounding. A vertex without ranks vanishes as
//! capacity that enters it is joined to capacity that leaves it, as long as all that must reach every rank still can.
//!
//! Sources: Zhao et al., ForestColl, arXiv 2402.06787; Bang-Jensen, Frank and Jackson, Preserving and increasing local
//! edge-connectivity in mixed graphs, 1995.

use std::collections::BTreeMap;

use crate::machine::network::{Arc, Network, max_flow};

/// In how many trees from each rank its slice may be cut: so many, and more where there are few ranks, whose cuts have
/// few trees to round.
const TREES_MOST: u64 = 16;
const TREES_OF_ALL: u64 = 64;

/// By how much trees may be slower than the narrowest cut; the first at which any number of them fits is taken.
const SLOWER: [f64; 12] = [0.0, 0.004, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.4, 0.6, 0.8, 1.0];

/// Capacity along links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// Where it begins.
    pub from: usize,
    /// Where it ends.
    pub to: usize,
    /// How many trees may go along it.
    pub units: u64,
    /// The arcs of the network on it.
    pub arcs: Vec<usize>,
}

/// How many trees from each rank, and the ways between homes that can carry them: only such as `allows` says of the
/// arcs of parts of ways and of whole ones. `ranks` stand at the homes; the narrowest cut needs `seconds` for a unit of
/// each.
pub fn divide(
    network: &Network,
    ranks: &[u64],
    seconds: f64,
    allows: &dyn Fn(&[usize]) -> bool,
) -> Option<(u64, Vec<Way>)> {
    let all: u64 = ranks.iter().sum();
    let most = TREES_MOST.max(TREES_OF_ALL / all.max(1));
    SLOWER.iter().flat_map(|slower| (1..=most).map(move |units| (1.0 + slower, units))).find_map(|(slower, units)| {
        let carries = |gb_s: f64| ((gb_s * seconds * units as f64 * slower + 1e-6) as u64).min(all * units);
        let arcs = network.arcs().iter().enumerate().filter(|(number, _)| allows(&[*number]));
        let ways = arcs.map(|(number, arc)| Way {
            from: arc.from,
            to: arc.to,
            units: carries(arc.capacity),
            arcs: vec![number],
        });
        let sends = ranks.iter().map(|ranks| ranks * units).collect();
        let mut graph = Graph::new(sends, network.vertices(), ways.collect(), allows);
        (graph.suffices() && graph.split_off()).then_some((units, graph.ways))
    })
}

/// Ways between homes, the first vertices, and others; each home must get what all homes send.
#[derive(Clone)]
struct Graph<'a> {
    allows: &'a dyn Fn(&[usize]) -> bool,
    sends: Vec<u64>,
    vertices: usize,
    ways: Vec<Way>,
    /// Where the way along these arcs is among them.
    places: BTreeMap<Vec<usize>, usize>,
    /// The home that last got too little: where to look first.
    poor: usize,
}

impl<'a> Graph<'a> {
    fn new(sends: Vec<u64>, vertices: usize, ways: Vec<Way>, allows: &'a dyn Fn(&[usize]) -> bool) -> Self {
        let places = ways.iter().enumerate().map(|(place, way)| (way.arcs.clone(), place)).collect();
        Self { allows, sends, vertices, ways, places, poor: 0 }
    }

    /// Whether every home can get all, along ways that may be joined.
    fn suffices(&mut self) -> bool {
        let homes = self.sends.len();
        let source = homes;
        let sends = self.sends.iter().enumerate();
        let mut arcs: Vec<Arc> = sends.map(|(to, sends)| Arc { from: source, to, capacity: *sends as f64 }).collect();
        // Where ways end at no home, these are the ends of ways: which go on where depends on where they come from.
        let end = |place: usize, far: usize| homes + 1 + 2 * place + far;
        let at = |vertex: usize, end: usize| if vertex < homes { vertex } else { end };
        for (place, way) in self.ways.iter().enumerate().filter(|(_, way)| way.units > 0) {
            let (from, to) = (at(way.from, end(place, 0)), at(way.to, end(place, 1)));
            arcs.push(Arc { from, to, capacity: way.units as f64 });
        }
        for (first, second) in (homes..self.vertices).flat_map(|vertex| self.joints(vertex)) {
            let capacity = self.ways[first].units.min(self.ways[second].units) as f64;
            arcs.push(Arc { from: end(first, 1), to: end(second, 0), capacity });
        }
        let wanted = self.sends.iter().sum::<u64>() as f64;
        let vertices = end(self.ways.len(), 0);
        let gets = |home: &usize| max_flow(vertices, &arcs, source, *home).amount >= wanted - 0.5;
        match (0..homes).map(|step| (self.poor + step) % homes).find(|home| !gets(home)) {
            Some(poor) => {
                self.poor = poor;
                false
            }
            None => true,
        }
    }

    /// Makes ways past all vertices that are no homes; whether every home can still get all.
    fn split_off(&mut self) -> bool {
        (self.sends.len()..self.vertices).all(|vertex| {
            self.split(vertex);
            let left = self.ways.drain(..).filter(|way| way.from != vertex && way.to != vertex && way.units > 0);
            *self = Self::new(self.sends.clone(), self.vertices, left.collect(), self.allows);
            self.suffices()
        })
    }

    /// Joins what enters a vertex to what leaves it, a little of each pair in turn, so that trees become flat and
    /// messages alike; each as long as that takes nothing away from what homes get.
    fn split(&mut self, vertex: usize) {
        let mut joints = self.joints(vertex);
        let widest = joints.iter().map(|(first, _)| self.ways[*first].units).max().unwrap_or(0);
        let mut amount = (widest * self.sends.len() as u64 / joints.len().max(1) as u64).max(1);
        loop {
            if !self.join_all(&mut joints, amount) {
                if amount == 1 {
                    return;
                }
                amount /= 2;
            }
        }
    }

    /// Joins so much of all pairs, or of some if all is too much; whether of any. What is too much for a single unit is
    /// no longer among the pairs, because what others take makes it no less.
    fn join_all(&mut self, joints: &mut Vec<(usize, usize)>, amount: u64) -> bool {
        joints.retain(|(first, second)| self.ways[*first].units.min(self.ways[*second].units) > 0);
        if joints.is_empty() {
            return false;
        }
        let before = self.clone();
        joints.iter().for_each(|(first, second)| self.join(*first, *second, amount));
        if self.suffices() {
            return true;
        }
        *self = Self { poor: self.poor, ..before };
        if amount > 1 {
            return false;
        }
        if joints.len() == 1 {
            joints.clear();
            return false;
        }
        let mut others = joints.split_off(joints.len() / 2);
        let joined = self.join_all(joints, amount);
        let more = self.join_all(&mut others, amount);
        joints.extend(others);
        joined || more
    }

    /// Positions of ways into and out of a vertex that may be joined: of each way in one pair, then of each another.
    fn joints(&self, vertex: usize) -> Vec<(usize, usize)> {
        let places = |is: &dyn Fn(&Way) -> bool| -> Vec<usize> {
            (0..self.ways.len()).filter(|place| self.ways[*place].units > 0 && is(&self.ways[*place])).collect()
        };
        let (into, out) = (places(&|way| way.to == vertex), places(&|way| way.from == vertex));
        let turns =
            (0..out.len()).flat_map(|turn| into.iter().enumerate().map(move |(number, first)| (turn + number, *first)));
        let pairs = turns.map(|(number, first)| (first, out[number % out.len()]));
        let joins = |(first, second): &(usize, usize)| {
            let [first, second] = [*first, *second].map(|way| &self.ways[way]);
            first.from != second.to && (self.allows)(&[&first.arcs[..], &second.arcs[..]].concat())
        };
        pairs.filter(joins).collect()
    }

    /// So much of two ways, or all that there is, becomes one that passes by the vertex between them.
    fn join(&mut self, first: usize, second: usize, most: u64) {
        let units = self.ways[first].units.min(self.ways[second].units).min(most);
        [first, second].iter().for_each(|way| self.ways[*way].units -= units);
        let (from, to) = (self.ways[first].from, self.ways[second].to);
        let arcs = [&self.ways[first].arcs[..], &self.ways[second].arcs[..]].concat();
        let place = *self.places.entry(arcs.clone()).or_insert(self.ways.len());
        match self.ways.get_mut(place) {
            Some(way) => way.units += units,
            None => self.ways.push(Way { from, to, units, arcs }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packing::{Edge, pack};
    use super::*;
    use crate::collective::bound::gather_s;

    #[test]
    fn trees_past_switches_are_as_fast_as_the_narrowest_cut() {
        let mut number = 3_u64;
        let mut random = move |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % below
        };
        for _ in 0..150 {
            let homes = 2 + random(4) as usize;
            let vertices = homes + random(3) as usize;
            let mut arcs = Vec::new();
            let mut link = |a: usize, b: usize, capacity: f64| {
                arcs.extend([(a, b), (b, a)].map(|(from, to)| Arc { from, to, capacity }));
            };
            for vertex in 1..vertices {
                link(vertex, random(vertex as u64) as usize, 1.0 + random(90) as f64 * 0.3);
            }
            for _ in 0..random(6) {
                let [a, b] = [0; 2].map(|_| random(vertices as u64) as usize);
                if a != b {
                    link(a, b, 1.0 + random(90) as f64 * 0.3);
                }
            }
            let network = Network::new(homes, vertices, arcs);
            // Seconds of the worst of all cuts, as the tests of bounds show.
            let seconds = gather_s(&network, &vec![1.0; homes]) * 1e9;
            let (units, ways) = divide(&network, &vec![1; homes], seconds, &|_| true).expect("a graph in one piece");
            for (number, arc) in network.arcs().iter().enumerate() {
                let times = |way: &Way| way.units * way.arcs.iter().filter(|arc| **arc == number).count() as u64;
                let busy = ways.iter().map(times).sum::<u64>() as f64 / arc.capacity;
                assert!(busy <= seconds * units as f64 * 1.041, "{busy} {seconds} {units}");
            }
            for way in &ways {
                let ends: Vec<[usize; 2]> =
                    way.arcs.iter().map(|arc| network.arcs()[*arc]).map(|arc| [arc.from, arc.to]).collect();
                assert!(ends.windows(2).all(|pair| pair[0][1] == pair[1][0]) && way.from.max(way.to) < homes);
                assert_eq!([ends[0][0], ends[ends.len() - 1][1]], [way.from, way.to]);
            }
            let edges: Vec<Edge> =
                ways.iter().map(|way| Edge { from: way.from, to: way.to, units: way.units }).collect();
            assert!(pack(homes, &edges, units).is_some());
        }
    }
}
