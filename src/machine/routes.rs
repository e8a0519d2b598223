//! Which links a message takes, and what a traffic matrix makes each link carry.
//!
//! Shortest paths by hops; where several are equally short, each step goes to the lowest next hop: nodes by id, then
//! switches in the order of their description. So a path is a function of the machine alone. An explicit route of the
//! description wins over it, in both directions.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::describe::{End, Machine};
use crate::base::NodeId;

/// One step of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Hop {
    /// Position in [`Machine::links`].
    pub link: usize,
    /// Whether from the link's first end to its second.
    pub forward: bool,
}

impl Hop {
    /// Its position where each link has two wires, forward and backward.
    #[must_use]
    pub const fn wire(self) -> usize {
        self.link * 2 + !self.forward as usize
    }
}

/// Where one step leads.
#[derive(Debug, Clone, Copy)]
struct Step {
    vertex: usize,
    hop: Hop,
}

/// Paths between all nodes of a machine.
#[derive(Debug, Clone)]
pub struct Routes {
    /// Nodes in the machine's order; vertices are these and then the switches.
    ids: Vec<NodeId>,
    /// `next[to][vertex]`: the first step from a vertex towards node `to`; `None` at the goal or out of reach.
    next: Vec<Vec<Option<Step>>>,
    /// `hops[to][vertex]`.
    hops: Vec<Vec<Option<usize>>>,
    explicit: BTreeMap<(usize, usize), Vec<Hop>>,
}

impl Routes {
    /// All paths of `machine`.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let ids: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
        let vertex = |end: End| match end {
            End::Node(id) => ids.binary_search(&id).expect("links end at nodes of the machine"),
            End::Switch(position) => ids.len() + position,
        };
        let links: Vec<[usize; 2]> = machine.links.iter().map(|link| link.ends.map(vertex)).collect();
        let explicit = machine.routes.iter().map(|route| route.path.iter().map(|end| vertex(*end)).collect());
        let explicit: Vec<Vec<usize>> = explicit.collect();
        Self::along(ids, machine.switches.len(), &links, &explicit)
    }

    /// All paths between nodes with these numbers, ascending, along links between positions in the list, behind which
    /// switches follow; `explicit` ones pass positions, too.
    ///
    /// # Panics
    /// When a link ends nowhere, or an explicit path follows no links.
    #[must_use]
    pub fn along(ids: Vec<NodeId>, switches: usize, links: &[[usize; 2]], explicit: &[Vec<usize>]) -> Self {
        let mut steps: Vec<Vec<Step>> = vec![Vec::new(); ids.len() + switches];
        for (link, [from, to]) in links.iter().copied().enumerate() {
            steps[from].push(Step { vertex: to, hop: Hop { link, forward: true } });
            steps[to].push(Step { vertex: from, hop: Hop { link, forward: false } });
        }
        for ways in &mut steps {
            ways.sort_by_key(|step| step.vertex);
        }
        let hops: Vec<_> = (0..ids.len()).map(|goal| hops_to(goal, &steps)).collect();
        let next = hops.iter().map(|hops| first_steps(hops, &steps)).collect();
        let mut paths = BTreeMap::new();
        for way in explicit {
            for way in [way.clone(), way.iter().rev().copied().collect()] {
                let path = way.windows(2).map(|pair| {
                    let step = steps[pair[0]].iter().find(|step| step.vertex == pair[1]);
                    step.expect("routes follow links, checked when the machine was described").hop
                });
                paths.insert((way[0], way[way.len() - 1]), path.collect());
            }
        }
        Self { ids, next, hops, explicit: paths }
    }

    /// The steps of a message; empty from a node to itself.
    ///
    /// # Panics
    /// When a node is not one of the machine's.
    #[must_use]
    pub fn path(&self, from: NodeId, to: NodeId) -> Vec<Hop> {
        let (from, to) = (self.position(from), self.position(to));
        if let Some(path) = self.explicit.get(&(from, to)) {
            return path.clone();
        }
        let mut path = Vec::new();
        let mut vertex = from;
        while let Some(step) = self.next[to][vertex] {
            path.push(step.hop);
            vertex = step.vertex;
        }
        path
    }

    /// Links on the way of a message.
    ///
    /// # Panics
    /// As [`Routes::path`].
    #[must_use]
    pub fn hops(&self, from: NodeId, to: NodeId) -> usize {
        self.path(from, to).len()
    }

    /// Links on the shortest way, explicit routes aside; `None` when there is no way or no such node with cores.
    #[must_use]
    pub fn shortest_hops(&self, from: NodeId, to: NodeId) -> Option<usize> {
        let (from, to) = (self.ids.binary_search(&from).ok()?, self.ids.binary_search(&to).ok()?);
        self.hops[to][from]
    }

    /// The most hops between any two nodes.
    #[must_use]
    pub fn diameter(&self) -> usize {
        self.ids.iter().flat_map(|from| self.ids.iter().map(|to| self.hops(*from, *to))).max().unwrap_or(0)
    }

    /// What each link carries when `traffic[from][to]` bytes travel, nodes in the machine's order.
    ///
    /// # Panics
    /// When `traffic` is not square in the number of nodes.
    #[must_use]
    pub fn loads(&self, machine: &Machine, traffic: &[Vec<u64>]) -> LinkLoads {
        assert_eq!(traffic.len(), self.ids.len(), "one row of traffic a node");
        let mut bytes = vec![[0; 2]; machine.links.len()];
        for (from, row) in self.ids.iter().zip(traffic) {
            assert_eq!(row.len(), self.ids.len(), "one column of traffic a node");
            for (to, amount) in self.ids.iter().zip(row).filter(|(_, amount)| **amount > 0) {
                for hop in self.path(*from, *to) {
                    bytes[hop.link][usize::from(!hop.forward)] += amount;
                }
            }
        }
        LinkLoads { bytes }
    }

    fn position(&self, id: NodeId) -> usize {
        self.ids.binary_search(&id).unwrap_or_else(|_| panic!("{id} is not a node with cores of this machine"))
    }
}

/// Breadth first from the goal.
fn hops_to(goal: usize, steps: &[Vec<Step>]) -> Vec<Option<usize>> {
    let mut hops = vec![None; steps.len()];
    hops[goal] = Some(0);
    let mut edge = VecDeque::from([(goal, 0)]);
    while let Some((vertex, far)) = edge.pop_front() {
        for step in &steps[vertex] {
            if hops[step.vertex].is_none() {
                hops[step.vertex] = Some(far + 1);
                edge.push_back((step.vertex, far + 1));
            }
        }
    }
    hops
}

/// From each vertex the lowest neighbour that is one hop nearer to the goal.
fn first_steps(hops: &[Option<usize>], steps: &[Vec<Step>]) -> Vec<Option<Step>> {
    let nearer = |vertex: usize| {
        let here = hops[vertex].filter(|hops| *hops > 0)?;
        steps[vertex].iter().find(|step| hops[step.vertex] == Some(here - 1)).copied()
    };
    (0..steps.len()).map(nearer).collect()
}

/// What each link carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkLoads {
    /// Bytes of each link: forward, backward.
    pub bytes: Vec<[u64; 2]>,
}

/// The link that is busy the longest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The link and the direction.
    pub hop: Hop,
    /// What it carries in that direction.
    pub bytes: u64,
    /// How long that takes at the link's bandwidth, latency aside.
    pub seconds: f64,
}

impl LinkLoads {
    /// The link that is busy the longest; `None` when nothing travels or no loaded link has a known bandwidth.
    #[must_use]
    pub fn bottleneck(&self, machine: &Machine) -> Option<Bottleneck> {
        let all = self.bytes.iter().zip(&machine.links).enumerate().flat_map(|(link, (bytes, described))| {
            bytes.iter().zip([true, false]).filter_map(move |(bytes, forward)| {
                let seconds = *bytes as f64 / (described.gb_s? * 1e9);
                (*bytes > 0).then_some(Bottleneck { hop: Hop { link, forward }, bytes: *bytes, seconds })
            })
        });
        all.max_by(|a, b| a.seconds.total_cmp(&b.seconds).then(b.hop.cmp(&a.hop)))
    }
}
