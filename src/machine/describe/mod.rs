//! A machine as data: what octorec knows of sockets, memory and links, wherever it learned it.
//!
//! Files (`topology/*.toml`), hwloc exports, synthetic strings and the host itself all become a [`Machine`], so that
//! planners, collectives and the simulator cannot tell which. Invariants, held by `parse` and `discover`: node numbers
//! ascend and are unique, every link end exists, the link graph is in one piece, distances are symmetric. What nobody
//! measured is `None`, never a guess; what was inferred is said in `assumptions`.

mod check;
mod export;
mod file;
mod hosts;
mod parse;
mod shipped;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::discover;
use crate::base::{Error, NodeId, PuId, Result, input};
pub(super) use crate::ffi::linux::PUS_MOST;
pub(super) use hosts::Hosts;
pub(super) use parse::nearest_nodes;
pub use shipped::SHIPPED;

/// The firmware's distance of a node to itself (ACPI SLIT).
pub const LOCAL_DISTANCE: u32 = 10;

/// The most NUMA nodes of a host.
pub(super) const NODES_MOST: usize = 1 << 8;

/// The most memory of a node, in bytes: 4 PiB, so that sums over all nodes stay far from overflow.
pub(super) const MEMORY_MOST: u64 = 1 << 52;
/// What a figure of hardware can be: 10^9 a second, nanoseconds, or a ratio. Beyond that plans have no end or no
/// meaning.
pub const FIGURES: RangeInclusive<f64> = 1e-6..=1e9;
/// The same of a link's bandwidth, in 10^9 bytes a second: wide and narrow links are added up.
pub const LINK_GB_S: RangeInclusive<f64> = 1e-4..=1e6;

/// One machine, or several hosts behind switches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Short name, e.g. "twisted-hypercube-8".
    pub name: String,
    /// What it is and where its figures come from.
    pub about: String,
    /// NUMA nodes with cores, ascending by id.
    pub nodes: Vec<Node>,
    /// Memory without cores of its own (CXL expanders, HBM beside DDR), ascending by id.
    pub tiers: Vec<CapacityTier>,
    /// Switches between nodes; empty within one host, usually.
    pub switches: Vec<Switch>,
    /// What joins nodes and switches.
    pub links: Vec<Link>,
    /// Paths that traffic takes although shorter or equally short ones may exist.
    pub routes: Vec<Route>,
    /// Distances as the firmware tells them.
    pub distances: Distances,
    /// Whether this is the machine that runs this process, so that threads can be pinned as planned.
    pub is_this_system: bool,
    /// What was inferred or is unknown, and why.
    pub assumptions: Vec<String>,
    /// When this machine's figures were measured, and where they are kept; `None` where a description has them, or
    /// nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<String>,
    /// Why measured figures may be of another state of this machine; where it has none, why those that are kept are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures_note: Option<String>,
    /// The time of cpus that this process has, where that is less than that of all hardware threads that it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<CpuQuota>,
}

/// How much time of cpus a control group grants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuQuota {
    /// As many cpus as could run all the time.
    pub cpus: f64,
    /// What says so.
    pub file: PathBuf,
}

impl CpuQuota {
    /// How many hardware threads have work: the last may wait now and then.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.cpus.ceil().max(1.0) as usize
    }
}

/// A NUMA node: cores and the memory next to them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The operating system's number.
    pub id: NodeId,
    /// Which host (one operating system) it belongs to, counted from 0.
    pub host: u32,
    /// Which package (socket) of all hosts it belongs to, counted from 0.
    pub package: u32,
    /// Physical cores, those of an L3 group side by side.
    pub cores: Vec<Core>,
    /// Data cache of one core's first level in bytes.
    pub l1_bytes: Option<u64>,
    /// Cache of the second level in bytes.
    pub l2_bytes: Option<u64>,
    /// Last-level caches; they cover all cores, or there are none.
    pub l3: Vec<L3Group>,
    /// Size of the memory in bytes.
    pub memory_bytes: u64,
    /// What of it can be had, where somebody has looked: on this system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Whether this process may take memory here.
    pub memory_allowed: bool,
    /// Streaming bandwidth in 10^9 bytes a second: reading.
    pub memory_gb_s: Option<f64>,
    /// Copying, in 10^9 bytes read and written a second.
    pub copy_gb_s: Option<f64>,
    /// The same past the caches, with non-temporal stores.
    pub stream_copy_gb_s: Option<f64>,
    /// Reading random rows of 256 bytes, in 10^9 bytes a second.
    pub row_gb_s: Option<f64>,
    /// Changing such rows in place, in 10^9 bytes read and written a second.
    pub row_update_gb_s: Option<f64>,
    /// Peak of all cores with f32 in 10^9 operations a second; a fused multiply-add counts as two.
    pub peak_f32_gflop_s: Option<f64>,
    /// The same with bf16 inputs; `None` where the cores cannot or nobody knows.
    pub peak_bf16_gflop_s: Option<f64>,
}

/// A physical core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Its hardware threads; the first is the one that is used without SMT.
    pub pus: Vec<Pu>,
}

/// A hardware thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pu {
    /// The operating system's number; unique within a host.
    pub id: PuId,
    /// Whether this process may run there (cpuset, affinity).
    pub allowed: bool,
}

/// Cores that share a last-level cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct L3Group {
    /// Size of the cache.
    pub bytes: u64,
    /// Position of its first core in the node.
    pub first_core: usize,
    /// How many cores share it.
    pub cores: usize,
}

/// A NUMA node that has memory and no cores of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CapacityTier {
    /// The operating system's number.
    pub id: NodeId,
    /// Size of the memory in bytes.
    pub memory_bytes: u64,
    /// What of it can be had, where somebody has looked: on this system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Streaming bandwidth in 10^9 bytes a second.
    pub memory_gb_s: Option<f64>,
    /// Whether this process may take memory here.
    pub memory_allowed: bool,
    /// The nodes that are nearest to it.
    pub near: Vec<NodeId>,
}

/// A switch; it has no cores and no memory. One from which ways over switches lead to the nodes of one host alone lies
/// inside of that; others are the network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    /// Unique, starts with a letter.
    pub name: String,
    /// Bandwidth towards nodes over bandwidth towards other switches; 2 is "pruned 2:1".
    pub oversubscription: Option<f64>,
}

/// What a link ends at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// A NUMA node.
    Node(NodeId),
    /// A switch, by its position in [`Machine::switches`].
    Switch(usize),
}

/// A full-duplex connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// What it joins; "forward" traffic goes from the first to the second.
    pub ends: [End; 2],
    /// Bandwidth of each direction in 10^9 bytes a second.
    pub gb_s: Option<f64>,
    /// Time of an empty message in nanoseconds.
    pub latency_ns: Option<f64>,
    /// Core seconds, on the machine at either end, for 10^9 bytes that cross it between machines in either direction:
    /// the work of the network's software. None where only adapters work.
    pub core_s_per_gb: Option<f64>,
}

/// An explicit path, with its turning points; used in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Every end on the way; the first and the last are nodes.
    pub path: Vec<End>,
}

/// Distances between the machine's nodes and tiers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distances {
    /// The nodes of rows and columns: those with cores first, then the tiers.
    pub ids: Vec<NodeId>,
    /// `rows[from][to]`; [`LOCAL_DISTANCE`] on the diagonal, symmetric.
    pub rows: Vec<Vec<u32>>,
}

impl Distances {
    /// The distance between two nodes; `None` when one is unknown.
    #[must_use]
    pub fn between(&self, from: NodeId, to: NodeId) -> Option<u32> {
        let row = self.ids.iter().position(|id| *id == from)?;
        let column = self.ids.iter().position(|id| *id == to)?;
        Some(self.rows[row][column])
    }
}

impl Core {
    /// The hardware threads that this process may use.
    pub fn allowed(&self) -> impl Iterator<Item = PuId> + '_ {
        self.pus.iter().filter(|pu| pu.allowed).map(|pu| pu.id)
    }
}

impl Node {
    /// Hardware threads of a core, at most.
    #[must_use]
    pub fn smt(&self) -> usize {
        self.cores.iter().map(|core| core.pus.len()).max().unwrap_or(0)
    }
}

impl Machine {
    /// Loads a machine by what the user wrote: `host`, the name of a shipped machine, a `.toml` description, an
    /// hwloc `.xml` export, or `synthetic:` and an hwloc synthetic description.
    ///
    /// # Errors
    /// [`Error::UnknownName`] for an unknown machine, [`Error::Topology`] with file and line for a contradiction,
    /// [`Error::Io`] and [`Error::Discovery`] for what cannot be read or explored.
    pub fn load(wanted: &str) -> Result<Self> {
        if wanted == "host" {
            return discover::host();
        }
        if let Some(description) = wanted.strip_prefix("synthetic:") {
            return discover::synthetic(description);
        }
        let path = Path::new(wanted);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("xml") => return discover::xml_file(path),
            Some("toml") => {
                let text = input::read_text(path)?;
                return Self::parse(&text, wanted);
            }
            _ => {}
        }
        if let Some((name, text)) = SHIPPED.iter().find(|(name, _)| *name == wanted) {
            return Self::parse(text, &format!("topology/{name}.toml"));
        }
        let names = SHIPPED.iter().map(|(name, _)| *name);
        let names = names.chain(["host", "FILE.toml", "FILE.xml", "synthetic:..."]);
        Err(Error::unknown("--topology", "machine", wanted, names))
    }

    /// Whether these are all hardware threads of a core, of a node or of a package, as far as they are among `of`; both
    /// are ascending.
    #[must_use]
    pub fn has_part(&self, pus: &[PuId], of: &[PuId]) -> bool {
        let is = |cores: &mut dyn Iterator<Item = &Core>| {
            let all = cores.flat_map(|core| core.pus.iter().map(|pu| pu.id));
            let mut all: Vec<PuId> = all.filter(|pu| of.binary_search(pu).is_ok()).collect();
            all.sort_unstable();
            all == pus
        };
        let of_package = |package: u32| self.nodes.iter().filter(move |node| node.package == package);
        self.nodes.iter().any(|node| {
            node.cores.iter().any(|core| is(&mut std::iter::once(core)))
                || is(&mut node.cores.iter())
                || is(&mut of_package(node.package).flat_map(|node| &node.cores))
        })
    }

    /// Reads a description in TOML; `origin` is the file name that errors show.
    ///
    /// # Errors
    /// [`Error::Topology`] with the line of what is wrong.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        parse::parse(text, origin)
    }

    /// The description as TOML; [`Machine::parse`] makes an equal machine of it, except that what this process may
    /// use is not part of a description.
    #[must_use]
    pub fn to_toml(&self) -> String {
        export::to_toml(self)
    }

    /// That the description has cores which this process may not use, if it has, and what follows.
    #[must_use]
    pub fn forbidden(&self) -> Option<String> {
        export::forbidden(self)
    }

    /// The node with this number.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// How many hosts (operating systems) there are.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.nodes.iter().map(|node| node.host).collect::<BTreeSet<_>>().len()
    }

    /// How many physical cores there are.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.nodes.iter().map(|node| node.cores.len()).sum()
    }

    /// Withdraws the permission to use processing units and memory for which the questions say no.
    pub fn restrict(&mut self, pu_allowed: impl Fn(PuId) -> bool, memory_allowed: impl Fn(NodeId) -> bool) {
        for node in &mut self.nodes {
            node.memory_allowed &= memory_allowed(node.id);
            for pu in node.cores.iter_mut().flat_map(|core| &mut core.pus) {
                pu.allowed &= pu_allowed(pu.id);
            }
        }
        for tier in &mut self.tiers {
            tier.memory_allowed &= memory_allowed(tier.id);
        }
    }

    /// An end in words: "node 3" or the switch's name.
    #[must_use]
    pub fn end_name(&self, end: End) -> String {
        match end {
            End::Node(id) => id.to_string(),
            End::Switch(position) => self.switches[position].name.clone(),
        }
    }
}

impl fmt::Display for Distances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "     ")?;
        for id in &self.ids {
            write!(f, "{:>4}", id.0)?;
        }
        for (id, row) in self.ids.iter().zip(&self.rows) {
            write!(f, "\n{:>4}:", id.0)?;
            for distance in row {
                write!(f, "{distance:>4}")?;
            }
        }
        Ok(())
    }
}
