//! A machine as ranks see it: the memory they share and the wires between them.
//!
//! Everything that the cost model needs of [`Machine`] and [`Placement`], with each unknown figure replaced by a stated
//! assumption, so that pricing never meets a `None`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::{NodeId, RankId};
use crate::machine::{Machine, Placement, Routes};
use crate::memory::NodeMemory;

/// Streaming bandwidth of a node where no node's is known: a socket of SC20's eight-socket machine, in GB/s.
pub const MEMORY_GB_S: f64 = 100.0;

/// Bandwidth of a link and direction where no link's is known: UPI as in SC20, in GB/s.
pub const LINK_GB_S: f64 = 22.0;

/// Memory that some ranks share and others do not touch: a node's, usually.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pool {
    /// Its nodes.
    pub nodes: Vec<NodeId>,
    /// All of it.
    pub bytes: u64,
    /// What stays with the system: by node a 32nd, at least 16 MiB and at most 1 GiB.
    pub reserve: u64,
    /// Streaming bandwidth in GB/s; its ranks share it evenly.
    pub gb_s: f64,
    /// Who lives there.
    pub ranks: Vec<RankId>,
}

impl Pool {
    /// What tables and buffers may take.
    #[must_use]
    pub const fn usable(&self) -> u64 {
        self.bytes.saturating_sub(self.reserve)
    }

    /// "node 3" or "nodes 0, 1".
    #[must_use]
    pub fn name(&self) -> String {
        let numbers: Vec<String> = self.nodes.iter().map(|node| node.0.to_string()).collect();
        format!("node{} {}", if numbers.len() == 1 { "" } else { "s" }, numbers.join(", "))
    }
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Wire {
    /// "node 0 to node 1".
    pub name: String,
    /// Bandwidth in GB/s.
    pub gb_s: f64,
}

/// Where one rank stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Standing {
    /// The node of its cores.
    pub node: NodeId,
    /// Position of its memory in [`Site::pools`].
    pub pool: usize,
    /// Its share of that memory's bandwidth in GB/s.
    pub gb_s: f64,
}

/// Ranks on a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Site {
    /// The machine's name.
    pub machine: String,
    /// Where each rank stands.
    pub ranks: Vec<Standing>,
    /// The memory, in the order of its first rank.
    pub pools: Vec<Pool>,
    /// Directions of links: forward and backward of each link in turn.
    pub wires: Vec<Wire>,
    /// What was taken for unknown figures, and why.
    pub assumptions: Vec<String>,
    /// For each rank its place in `paths`.
    #[serde(skip)]
    homes: Vec<usize>,
    /// The wires from each rank's node to each other's.
    #[serde(skip)]
    paths: Vec<Vec<Vec<usize>>>,
}

/// Figures that the user knows better than the machine's description: they fill its gaps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Known {
    /// Streaming bandwidth of a node in GB/s.
    pub memory_gb_s: Option<f64>,
    /// Bandwidth of a link and direction in GB/s.
    pub link_gb_s: Option<f64>,
}

impl Site {
    /// The ranks of `placement` on `machine`.
    ///
    /// # Panics
    /// When the placement is not one of this machine.
    #[must_use]
    pub fn new(machine: &Machine, placement: &Placement, known: Known) -> Self {
        let mut assumptions = Vec::new();
        let memories = memories(machine, known.memory_gb_s, &mut assumptions);
        let wires = wires(machine, known.link_gb_s, &mut assumptions);
        let (pools, pool_of) = pools(placement, &memories);
        let ranks = placement.ranks.iter().zip(&pool_of).map(|(place, pool)| {
            let gb_s = pools[*pool].gb_s / pools[*pool].ranks.len() as f64;
            Standing { node: place.node, pool: *pool, gb_s }
        });
        let mut nodes: Vec<NodeId> = placement.ranks.iter().map(|place| place.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let routes = Routes::new(machine);
        let path = |from: NodeId, to: NodeId| {
            routes.path(from, to).iter().map(|hop| hop.link * 2 + usize::from(!hop.forward)).collect()
        };
        let paths = nodes.iter().map(|from| nodes.iter().map(|to| path(*from, *to)).collect()).collect();
        let home = |node: NodeId| nodes.binary_search(&node).expect("every rank's node is in the list");
        Self {
            machine: machine.name.clone(),
            homes: placement.ranks.iter().map(|place| home(place.node)).collect(),
            ranks: ranks.collect(),
            pools,
            wires,
            assumptions,
            paths,
        }
    }

    /// The wires from one rank to another; none between ranks on one node.
    #[must_use]
    pub fn path(&self, from: RankId, to: RankId) -> &[usize] {
        &self.paths[self.homes[from.index()]][self.homes[to.index()]]
    }
}

/// Size and bandwidth of every node that has memory.
fn memories(machine: &Machine, known: Option<f64>, assumptions: &mut Vec<String>) -> BTreeMap<NodeId, (u64, f64)> {
    let nodes = machine.nodes.iter().map(|node| (node.id, node.memory_bytes, node.memory_gb_s));
    let tiers = machine.tiers.iter().map(|tier| (tier.id, tier.memory_bytes, tier.memory_gb_s));
    let all: Vec<_> = nodes.chain(tiers).collect();
    let least = all.iter().filter_map(|(_, _, gb_s)| *gb_s).min_by(f64::total_cmp);
    let (filler, why) = filler(known, least, MEMORY_GB_S, "--memory-gb-s", "node", "a socket of SC20's machine");
    let unknown: Vec<String> = all.iter().filter(|all| all.2.is_none()).map(|all| all.0.0.to_string()).collect();
    if !unknown.is_empty() {
        let which = unknown.join(", ");
        assumptions.push(format!("memory bandwidth of node {which} is unknown: taken as {filler} GB/s ({why})"));
    }
    all.into_iter().map(|(id, bytes, gb_s)| (id, (bytes, gb_s.unwrap_or(filler)))).collect()
}

fn wires(machine: &Machine, known: Option<f64>, assumptions: &mut Vec<String>) -> Vec<Wire> {
    let least = machine.links.iter().filter_map(|link| link.gb_s).min_by(f64::total_cmp);
    let (filler, why) = filler(known, least, LINK_GB_S, "--link-gb-s", "link", "a UPI link of SC20's machine");
    let unknown = machine.links.iter().filter(|link| link.gb_s.is_none()).count();
    if unknown > 0 {
        let of = machine.links.len();
        assumptions
            .push(format!("bandwidth of {unknown} of {of} links is unknown: taken as {filler} GB/s each way ({why})"));
    }
    let wire = |from, to, gb_s| Wire { name: format!("{} to {}", machine.end_name(from), machine.end_name(to)), gb_s };
    let both = machine.links.iter().flat_map(|link| {
        let ([a, b], gb_s) = (link.ends, link.gb_s.unwrap_or(filler));
        [wire(a, b, gb_s), wire(b, a, gb_s)]
    });
    both.collect()
}

/// What stands for an unknown bandwidth, and why.
fn filler(known: Option<f64>, least: Option<f64>, usual: f64, flag: &str, what: &str, whose: &str) -> (f64, String) {
    match (known, least) {
        (Some(known), _) => (known, format!("as given with {flag}")),
        (None, Some(least)) => (least, format!("the least of any {what} here; {flag} changes it")),
        (None, None) => (usual, format!("{whose}; {flag} changes it")),
    }
}

/// Ranks whose memory has a node in common share a pool.
fn pools(placement: &Placement, memories: &BTreeMap<NodeId, (u64, f64)>) -> (Vec<Pool>, Vec<usize>) {
    let mut groups: Vec<(Vec<NodeId>, Vec<RankId>)> = Vec::new();
    for place in &placement.ranks {
        let (mut nodes, mut ranks) = (place.memory_nodes.clone(), vec![place.rank]);
        // A rank on several nodes may join pools that were apart.
        groups.retain(|(theirs, others)| {
            let apart = theirs.iter().all(|node| !nodes.contains(node));
            if !apart {
                nodes.extend(theirs);
                ranks.extend(others);
            }
            apart
        });
        nodes.sort_unstable();
        nodes.dedup();
        ranks.sort_unstable();
        groups.push((nodes, ranks));
    }
    groups.sort_by_key(|(_, ranks)| ranks[0]);
    let mut pool_of = vec![0; placement.ranks.len()];
    let pools = groups.into_iter().enumerate().map(|(position, (nodes, ranks))| {
        ranks.iter().for_each(|rank| pool_of[rank.index()] = position);
        let of = |node: &NodeId| memories[node];
        let reserve = |bytes| NodeMemory { total: bytes, free: bytes }.reserve();
        Pool {
            bytes: nodes.iter().map(|node| of(node).0).sum(),
            reserve: nodes.iter().map(|node| reserve(of(node).0)).sum(),
            gb_s: nodes.iter().map(|node| of(node).1).sum(),
            nodes,
            ranks,
        }
    });
    (pools.collect(), pool_of)
}
