//! Whole numbers of trees for links, and a graph of ranks alone: how many trees a link may carry, with what passes messages
//! on (switches, and nodes without ranks) replaced by edges past it.
//!
//! Trees of equal parts take so long as the narrowest cut needs, and a link carries as many of them as it has time for; parts
//! are made as small as it takes to lose little of the links to rounding. A vertex without ranks vanishes as capacity that
//! enters it is joined to capacity that leaves it, as long as all that must reach every rank still can.
//!
//! Sources: Zhao et al., ForestColl, arXiv 2402.06787; Bang-Jensen, Frank and Jackson, Preserving and increasing local
//! edge-connectivity in mixed graphs, 1995.

use std::collections::BTreeMap;

use crate::machine::network::{Arc, Network, max_flow};

/// In how many trees from each rank its slice may be cut.
const TREES_MOST: u64 = 16;

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

/// How many trees from each rank, and the ways between homes that can carry them: only such as `allows` says of the arcs of
/// parts of ways and of whole ones. `ranks` stand at the homes; the narrowest cut needs `seconds` for a unit of each.
pub fn divide(
    network: &Network,
    ranks: &[u64],
    seconds: f64,
    allows: &dyn Fn(&[usize]) -> bool,
) -> Option<(u64, Vec<Way>)> {
    let all: u64 = ranks.iter().sum();
    let attempts = SLOWER.iter().flat_map(|slower| (1..=TREES_MOST).map(move |units| (1.0 + slower, units)));
    attempts
        .filter_map(|(slower, units)| {
            let carries = |gb_s: f64| ((gb_s * seconds * units as f64 * slower + 1e-6) as u64).min(all * units);
            let arcs = network.arcs().iter().enumerate().filter(|(number, _)| allows(&[*number]));
            let ways = arcs.map(|(number, arc)| Way {
                from: arc.from,
                to: arc.to,
                units: carries(arc.capacity),
                arcs: vec![number],
            });
            let sends = ranks.iter().map(|ranks| ranks * units).collect();
            let mut graph = Graph::new(sends, network.vertices(), ways.collect());
            (graph.suffices() && graph.split_off(allows)).then_some((units, graph.ways))
        })
        .next()
}

/// Ways between homes, the first vertices, and others; each home must get what all homes send.
#[derive(Debug, Clone)]
struct Graph {
    sends: Vec<u64>,
    vertices: usize,
    ways: Vec<Way>,
    /// Where the way along these arcs is among them.
    places: BTreeMap<Vec<usize>, usize>,
    /// The home that last got too little: where to look first.
    poor: usize,
}

impl Graph {
    fn new(sends: Vec<u64>, vertices: usize, ways: Vec<Way>) -> Self {
        let places = ways.iter().enumerate().map(|(place, way)| (way.arcs.clone(), place)).collect();
        Self { sends, vertices, ways, places, poor: 0 }
    }

    /// Whether every home can get all.
    fn suffices(&mut self) -> bool {
        let source = self.vertices;
        let ways = self.ways.iter().filter(|way| way.units > 0);
        let ways = ways.map(|way| Arc { from: way.from, to: way.to, capacity: way.units as f64 });
        let homes = self.sends.iter().enumerate();
        let homes = homes.map(|(to, sends)| Arc { from: source, to, capacity: *sends as f64 });
        let arcs: Vec<Arc> = ways.chain(homes).collect();
        let wanted = self.sends.iter().sum::<u64>() as f64;
        let gets = |home: &usize| max_flow(source + 1, &arcs, source, *home).amount >= wanted - 0.5;
        let count = self.sends.len();
        match (0..count).map(|step| (self.poor + step) % count).find(|home| !gets(home)) {
            Some(poor) => {
                self.poor = poor;
                false
            }
            None => true,
        }
    }

    /// Makes ways past all vertices that are no homes; whether every home can still get all.
    fn split_off(&mut self, allows: &dyn Fn(&[usize]) -> bool) -> bool {
        (self.sends.len()..self.vertices).all(|vertex| {
            self.split(vertex, allows);
            let left = self.ways.drain(..).filter(|way| way.from != vertex && way.to != vertex && way.units > 0);
            *self = Self::new(self.sends.clone(), self.vertices, left.collect());
            self.suffices()
        })
    }

    /// Joins what enters a vertex to what leaves it, a little of each pair in turn, so that trees become flat and messages
    /// alike; each as long as that takes nothing away from what homes get.
    fn split(&mut self, vertex: usize, allows: &dyn Fn(&[usize]) -> bool) {
        let mut joints = self.joints(vertex, allows);
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

    /// Joins so much of all pairs, or of some if all is too much; whether of any. What is too much for a single unit is no
    /// longer among the pairs, because what others take makes it no less.
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
    fn joints(&self, vertex: usize, allows: &dyn Fn(&[usize]) -> bool) -> Vec<(usize, usize)> {
        let places = |is: &dyn Fn(&Way) -> bool| -> Vec<usize> {
            (0..self.ways.len()).filter(|place| is(&self.ways[*place])).collect()
        };
        let (into, out) = (places(&|way| way.to == vertex), places(&|way| way.from == vertex));
        let turns =
            (0..out.len()).flat_map(|turn| into.iter().enumerate().map(move |(number, first)| (turn + number, *first)));
        let pairs = turns.map(|(number, first)| (first, out[number % out.len()]));
        let joins = |(first, second): &(usize, usize)| {
            let [first, second] = [*first, *second].map(|way| &self.ways[way]);
            first.from != second.to && allows(&[&first.arcs[..], &second.arcs[..]].concat())
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
