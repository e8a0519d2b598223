//! A machine as ranks see it: the memory they share and the wires between them.
//!
//! Everything that the cost model needs of [`Machine`] and [`Placement`], with each unknown figure replaced by a stated
//! assumption, so that pricing never meets a `None`.

mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

use serde::Serialize;

use super::describe::{End, Hosts, Node};
use super::placement::RankPlace;
use super::ranges::ranges;
use super::{Machine, Placement, Routes};
use crate::base::{NodeId, RankId};
use crate::memory::NodeMemory;
pub use wire::Wire;
use wire::{core_seconds, wires};

/// Streaming bandwidth of a node where no node's is known: a socket of SC20's eight-socket machine, in GB/s.
pub const MEMORY_GB_S: f64 = 100.0;

/// Bandwidth of a link and direction where no link's is known: UPI as in SC20, in GB/s.
pub const LINK_GB_S: f64 = 22.0;

/// Latency of a link where none of its kind is known: UPI, from the same paper's machine, in nanoseconds.
pub const LATENCY_NS: f64 = 70.0;

/// Peak of a core where no core's is known: 4.1 TFLOP/s of f32 over the 28 cores of that machine's sockets.
pub const CORE_GFLOP_S: f64 = 4100.0 / 28.0;

/// Memory that some ranks share and others do not touch: a node's, usually.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pool {
    /// Its nodes.
    pub nodes: Vec<NodeId>,
    /// All of it.
    pub bytes: u64,
    /// What of it can be had now, where that is known.
    #[serde(skip)]
    pub free: Option<u64>,
    /// What stays with the system: by node a 32nd, at least 16 MiB and at most 1 GiB.
    pub reserve: u64,
    /// Bandwidths; its ranks share them evenly.
    #[serde(flatten)]
    pub rates: Rates,
    /// Who lives there.
    pub ranks: Vec<RankId>,
}

/// How fast memory is, in GB/s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rates {
    /// Streams that are read.
    pub gb_s: f64,
    /// Copies through the caches.
    pub copy_gb_s: f64,
    /// Copies past the caches.
    pub stream_copy_gb_s: f64,
    /// Random rows that are read.
    pub row_gb_s: f64,
    /// Random rows that are changed.
    pub row_update_gb_s: f64,
}

impl Rates {
    /// All as fast as streams.
    const fn flat(gb_s: f64) -> Self {
        Self { gb_s, copy_gb_s: gb_s, stream_copy_gb_s: gb_s, row_gb_s: gb_s, row_update_gb_s: gb_s }
    }

    /// What a link lets through: what is read and written by turns goes both ways at once.
    const fn over_link(gb_s: f64) -> Self {
        let both = 2.0 * gb_s;
        Self { copy_gb_s: both, stream_copy_gb_s: both, row_update_gb_s: both, ..Self::flat(gb_s) }
    }

    fn map(self, with: Self, combine: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            gb_s: combine(self.gb_s, with.gb_s),
            copy_gb_s: combine(self.copy_gb_s, with.copy_gb_s),
            stream_copy_gb_s: combine(self.stream_copy_gb_s, with.stream_copy_gb_s),
            row_gb_s: combine(self.row_gb_s, with.row_gb_s),
            row_update_gb_s: combine(self.row_update_gb_s, with.row_update_gb_s),
        }
    }
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

/// Where one rank stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RankSite {
    /// The node of its cores.
    pub node: NodeId,
    /// Position of its memory in [`Site::pools`].
    pub pool: usize,
    /// Its share of that memory's bandwidths.
    #[serde(flatten)]
    pub rates: Rates,
    /// Its compute threads.
    pub threads: usize,
    /// Its threads that work for the network: communication threads; where it has none, those that compute.
    #[serde(skip)]
    pub network_threads: usize,
    /// The position of its host among those that have ranks.
    #[serde(skip)]
    pub host: usize,
    /// Peak of its compute threads' cores with f32, in GFLOP/s; cores that ranks share are divided among them.
    pub f32_gflop_s: f64,
    /// The same with bfloat16; that of f32 where the cores have nothing better.
    pub bf16_gflop_s: f64,
}

impl RankSite {
    /// Peak of its compute threads' cores in GFLOP/s, of bfloat16 or f32.
    #[must_use]
    pub const fn peak_gflop_s(&self, bf16: bool) -> f64 {
        if bf16 { self.bf16_gflop_s } else { self.f32_gflop_s }
    }
}

impl std::ops::Deref for RankSite {
    type Target = Rates;

    fn deref(&self) -> &Rates {
        &self.rates
    }
}

/// Ranks on a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Site {
    /// The machine's name.
    pub machine: String,
    /// Where each rank stands.
    pub ranks: Vec<RankSite>,
    /// The memory, in the order of its first rank.
    pub pools: Vec<Pool>,
    /// Directions of links: forward and backward of each link in turn.
    pub wires: Vec<Wire>,
    /// What was taken for unknown figures, and why.
    pub assumptions: Vec<String>,
    /// How many ranks stand on each host, if there are several hosts with as many each.
    #[serde(skip)]
    pub local: Option<usize>,
    /// Those that have ranks, ascending.
    #[serde(skip)]
    nodes: Vec<NodeId>,
    /// For each rank its place in `nodes` and `paths`.
    #[serde(skip)]
    homes: Vec<usize>,
    /// The wires from each rank's node to each other's.
    #[serde(skip)]
    paths: Vec<Vec<Vec<usize>>>,
    /// On the same ways, core seconds a byte of the sender's machine and of the receiver's.
    #[serde(skip)]
    core_s: Vec<Vec<[f64; 2]>>,
}

/// Figures that the user knows better than the machine's description or measurement.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Known {
    /// Bandwidth of every node in GB/s, of streams as of copies and random rows.
    pub memory_gb_s: Option<f64>,
    /// Bandwidth of every link and direction in GB/s.
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
        let (pools, pool_of) = pools(machine, placement, &memories);
        let peaks = peaks(machine, placement, &mut assumptions);
        let routes = Routes::new(machine);
        let far = remote_gb_s(machine, placement, &routes, &wires);
        let all_hosts: BTreeSet<u32> = placement.ranks.iter().map(|place| place.host).collect();
        let ranks =
            placement.ranks.iter().zip(&pool_of).zip(peaks).zip(far).map(|(((place, pool), [f32, bf16]), far)| {
                let share = 1.0 / pools[*pool].ranks.len() as f64;
                let rates = pools[*pool].rates.map(Rates::flat(share), |rate, share| rate * share);
                let rates = rates.map(Rates::over_link(far), f64::min);
                RankSite {
                    node: place.node,
                    pool: *pool,
                    rates,
                    threads: place.compute.len(),
                    network_threads: if place.comm.is_empty() { place.compute.len() } else { place.comm.len() },
                    host: all_hosts.range(..place.host).count(),
                    f32_gflop_s: f32,
                    bf16_gflop_s: bf16,
                }
            });
        let mut nodes: Vec<NodeId> = placement.ranks.iter().map(|place| place.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let path = |from: NodeId, to: NodeId| routes.path(from, to).iter().map(|hop| hop.wire()).collect();
        let paths: Vec<Vec<Vec<usize>>> =
            nodes.iter().map(|from| nodes.iter().map(|to| path(*from, *to)).collect()).collect();
        // Ranks of one host write into each other's memory, whatever joins its nodes.
        let hosts = Hosts::of(machine);
        let host_of: Vec<Option<u32>> = nodes.iter().map(|node| hosts.end(End::Node(*node))).collect();
        let core_s = |from: usize, to: usize| match host_of[from] == host_of[to] {
            true => [0.0; 2],
            false => core_seconds(paths[from][to].iter().map(|wire| &wires[*wire])),
        };
        let homes = || 0..nodes.len();
        let core_s = homes().map(|from| homes().map(|to| core_s(from, to)).collect()).collect();
        let home = |node: NodeId| nodes.binary_search(&node).expect("every rank's node is in the list");
        let hosts: Vec<&[RankPlace]> = placement.ranks.chunk_by(|a, b| a.host == b.host).collect();
        let local = hosts.first().map_or(0, |host| host.len());
        let alike = hosts.len() > 1 && hosts.iter().all(|host| host.len() == local);
        Self {
            machine: machine.name.clone(),
            homes: placement.ranks.iter().map(|place| home(place.node)).collect(),
            ranks: ranks.collect(),
            pools,
            wires,
            assumptions,
            local: alike.then_some(local),
            paths,
            core_s,
            nodes,
        }
    }

    /// The same, where memories are as large as what of them can be had now.
    #[must_use]
    pub fn with_free_memory(&self) -> Self {
        let mut site = self.clone();
        site.pools.iter_mut().for_each(|pool| pool.bytes = pool.bytes.min(pool.free.unwrap_or(u64::MAX)));
        site
    }

    /// The wires from one rank to another; none between ranks on one node.
    #[must_use]
    pub fn path(&self, from: RankId, to: RankId) -> &[usize] {
        &self.paths[self.homes[from.index()]][self.homes[to.index()]]
    }

    /// Core seconds that a byte from one rank to another takes: of the sender's machine, and of the receiver's.
    #[must_use]
    pub fn core_s(&self, from: RankId, to: RankId) -> [f64; 2] {
        self.core_s[self.homes[from.index()]][self.homes[to.index()]]
    }

    /// Who works for a byte from one rank to another, and for how many core seconds: the host that it leaves, and the
    /// one that it enters, by their positions among those that have ranks.
    #[must_use]
    pub fn network_work(&self, from: RankId, to: RankId) -> [(usize, f64); 2] {
        let [leaves, enters] = self.core_s(from, to);
        [(self.ranks[from.index()].host, leaves), (self.ranks[to.index()].host, enters)]
    }

    /// How many cores of each host that has ranks work for the network: its ranks' [`RankSite::network_threads`].
    #[must_use]
    pub fn network_cores(&self) -> Vec<f64> {
        let hosts = self.ranks.iter().map(|rank| rank.host + 1).max().unwrap_or(0);
        let mut cores = vec![0.0; hosts];
        self.ranks.iter().for_each(|rank| cores[rank.host] += rank.network_threads as f64);
        cores
    }

    /// The nodes that have ranks, ascending.
    #[must_use]
    pub fn homes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The position of a rank's node in [`Site::homes`].
    #[must_use]
    pub fn home(&self, rank: RankId) -> usize {
        self.homes[rank.index()]
    }

    /// GB/s of the way from one rank to another if no node with ranks lies between them: they are neighbours.
    #[must_use]
    pub fn neighbour_gb_s(&self, from: RankId, to: RankId) -> Option<f64> {
        /// Between ranks of one node: so wide that links count.
        const WITHIN: f64 = 1e6;
        let path = self.path(from, to);
        let has_ranks = |end| matches!(end, End::Node(node) if self.nodes.binary_search(&node).is_ok());
        let apart = path.iter().skip(1).any(|wire| has_ranks(self.wires[*wire].ends[0]));
        (from != to && !apart).then(|| path.iter().map(|wire| self.wires[*wire].gb_s).fold(WITHIN, f64::min))
    }

    /// Bytes a second of each wire, then of each pool, copied past the caches: what a [`Fluid`](super::fluid::Fluid)
    /// shares.
    #[must_use]
    pub fn resources(&self) -> Vec<f64> {
        let wires = self.wires.iter().map(|wire| wire.gb_s);
        wires.chain(self.pools.iter().map(|pool| pool.rates.stream_copy_gb_s)).map(|gb_s| gb_s * 1e9).collect()
    }

    /// What people call a host's cores that work for the network.
    #[must_use]
    pub fn cores_name(host: usize) -> String {
        format!("network cores of host {host}")
    }

    /// What people call a resource: "link node 3 to node 4" or "memory of node 2".
    ///
    /// # Panics
    /// When there is no such resource.
    #[must_use]
    pub fn resource_name(&self, resource: usize) -> String {
        match self.wires.get(resource) {
            Some(wire) => format!("link {}", wire.name),
            None => format!("memory of {}", self.pools[resource - self.wires.len()].name()),
        }
    }

    /// Seconds of an empty message; 0 between ranks on one node.
    #[must_use]
    pub fn latency_s(&self, from: RankId, to: RankId) -> f64 {
        self.path(from, to).iter().map(|wire| self.wires[*wire].latency_ns * 1e-9).sum()
    }
}

/// Size and bandwidth of every node that has memory.
fn memories(machine: &Machine, known: Option<f64>, assumptions: &mut Vec<String>) -> BTreeMap<NodeId, (u64, Rates)> {
    if let Some(gb_s) = known {
        assumptions.push(format!("memory of every node: {gb_s} GB/s, as given with --memory-gb-s"));
        let nodes = machine.nodes.iter().map(|node| (node.id, node.memory_bytes));
        let all = nodes.chain(machine.tiers.iter().map(|tier| (tier.id, tier.memory_bytes)));
        return all.map(|(id, bytes)| (id, (bytes, Rates::flat(gb_s)))).collect();
    }
    let nodes = machine.nodes.iter().map(|node| (node.id, node.memory_gb_s));
    let streams: Vec<_> = nodes.chain(machine.tiers.iter().map(|tier| (tier.id, tier.memory_gb_s))).collect();
    let least = streams.iter().filter_map(|(_, gb_s)| *gb_s).min_by(f64::total_cmp);
    let (filler, why) = filler(least, MEMORY_GB_S, "node", "a socket of SC20's machine");
    let unknown = ranges(streams.iter().filter(|(_, gb_s)| gb_s.is_none()).map(|(id, _)| id.0));
    if !unknown.is_empty() {
        assumptions.push(format!("memory of node {unknown}: {filler} GB/s ({why})"));
    }
    let mut flat = Vec::new();
    let mut all = BTreeMap::new();
    for node in &machine.nodes {
        let gb_s = node.memory_gb_s.unwrap_or(filler);
        let others = [node.copy_gb_s, node.stream_copy_gb_s, node.row_gb_s, node.row_update_gb_s];
        if others.contains(&None) {
            flat.push(node.id.0);
        }
        let [copy_gb_s, stream_copy_gb_s, row_gb_s, row_update_gb_s] = others.map(|rate| rate.unwrap_or(gb_s));
        let rates = Rates { gb_s, copy_gb_s, stream_copy_gb_s, row_gb_s, row_update_gb_s };
        all.insert(node.id, (node.memory_bytes, rates));
    }
    if !flat.is_empty() {
        assumptions.push(format!("copies and random rows on node {}: as fast as streams", ranges(flat)));
    }
    let tiers = machine.tiers.iter();
    all.extend(tiers.map(|tier| (tier.id, (tier.memory_bytes, Rates::flat(tier.memory_gb_s.unwrap_or(filler))))));
    all
}

/// What stands for an unknown bandwidth, and why.
fn filler(least: Option<f64>, usual: f64, what: &str, whose: &str) -> (f64, String) {
    match least {
        Some(least) => (least, format!("the least of any {what} here")),
        None => (usual, whose.to_owned()),
    }
}

/// Of each rank, the peak of the cores that compute for it: with f32, and with bfloat16.
fn peaks(machine: &Machine, placement: &Placement, assumptions: &mut Vec<String>) -> Vec<[f64; 2]> {
    let of_all = |node: &Node| node.cores.len().max(1) as f64;
    let a_core = |node: &Node| node.peak_f32_gflop_s.map(|peak| peak / of_all(node));
    let least = machine.nodes.iter().filter_map(a_core).min_by(f64::total_cmp);
    let (filler, why) = filler(least, CORE_GFLOP_S, "core", "a core of SC20's machine");
    let unknown = ranges(machine.nodes.iter().filter(|node| node.peak_f32_gflop_s.is_none()).map(|node| node.id.0));
    if !unknown.is_empty() {
        assumptions.push(format!("cores of node {unknown}: {filler:.0} GFLOP/s each ({why})"));
    }
    // Each hardware thread's core, and what that can do.
    let mut cores = BTreeMap::new();
    let mut peaks = Vec::new();
    for node in &machine.nodes {
        let f32 = a_core(node).unwrap_or(filler);
        let bf16 = node.peak_bf16_gflop_s.map_or(f32, |peak| peak / of_all(node));
        for core in &node.cores {
            cores.extend(core.pus.iter().map(|pu| ((node.host, pu.id), peaks.len())));
            peaks.push([f32, bf16]);
        }
    }
    let used = |place: &RankPlace| -> BTreeSet<usize> {
        place.compute.iter().filter_map(|pu| cores.get(&(place.host, *pu)).copied()).collect()
    };
    let mut users = vec![0.0; peaks.len()];
    placement.ranks.iter().flat_map(used).for_each(|core| users[core] += 1.0);
    let share = |place: &RankPlace| {
        let sum = |sum: [f64; 2], core: usize| [0, 1].map(|kind| sum[kind] + peaks[core][kind] / users[core]);
        used(place).into_iter().fold([0.0; 2], sum)
    };
    placement.ranks.iter().map(share).collect()
}

/// Of each rank what the links to its memory let through, each divided among the ranks that need it for that; infinite
/// where some of its cores have the memory beside them, or no link is known to lead there.
fn remote_gb_s(machine: &Machine, placement: &Placement, routes: &Routes, wires: &[Wire]) -> Vec<f64> {
    let path = |place: &RankPlace| -> Vec<usize> {
        let memory = machine.nodes.iter().filter(|node| place.memory_nodes.contains(&node.id));
        let own = |node: &&Node| node.cores.iter().flat_map(|core| &core.pus).any(|pu| place.compute.contains(&pu.id));
        let beside = memory.clone().any(|node| node.host == place.host && own(&node));
        match memory.map(|node| node.id).next() {
            Some(there) if !beside => routes.path(there, place.node).iter().map(|hop| hop.wire()).collect(),
            _ => Vec::new(),
        }
    };
    let paths: Vec<Vec<usize>> = placement.ranks.iter().map(path).collect();
    let mut users = vec![0.0; wires.len()];
    paths.iter().flatten().for_each(|wire| users[*wire] += 1.0);
    let narrowest =
        |path: &Vec<usize>| path.iter().map(|wire| wires[*wire].gb_s / users[*wire]).fold(f64::INFINITY, f64::min);
    paths.iter().map(narrowest).collect()
}

/// Ranks whose memory has a node in common share a pool.
fn pools(
    machine: &Machine,
    placement: &Placement,
    memories: &BTreeMap<NodeId, (u64, Rates)>,
) -> (Vec<Pool>, Vec<usize>) {
    let free: BTreeMap<NodeId, Option<u64>> = machine
        .nodes
        .iter()
        .map(|node| (node.id, node.free_bytes))
        .chain(machine.tiers.iter().map(|tier| (tier.id, tier.free_bytes)))
        .collect();
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
            free: nodes.iter().map(|node| free[node]).sum(),
            reserve: nodes.iter().map(|node| reserve(of(node).0)).sum(),
            rates: nodes.iter().map(|node| of(node).1).fold(Rates::flat(0.0), |sum, rates| sum.map(rates, Add::add)),
            nodes,
            ranks,
        }
    });
    (pools.collect(), pool_of)
}
