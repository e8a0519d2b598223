//! What was measured of a whole machine: every node's memory and arithmetic, and every pair of nodes.
//!
//! Figures are measured once ([`measure()`]), kept in the user's cache under the machine's [`Fingerprint`], and fill
//! the gaps of the [`Machine`] that hwloc discovered ([`Figures::complete`]); figures of another machine are never
//! taken.

mod fingerprint;
mod measure;
mod network;
mod packages;
mod store;

use serde::{Deserialize, Serialize};

use super::describe::{End, FIGURES, LINK_GB_S, Link, Machine, Route};
use super::discover;
use super::ranges::ranges;
use crate::base::{NodeId, Result};
pub use fingerprint::Fingerprint;
pub use measure::{LEAST_SECONDS, measure};
pub use network::{Network, Together};
pub use store::{Kept, Store};

/// Bytes of the random rows that are measured.
pub const ROW_BYTES: usize = 256;

/// The layout of the file that keeps figures.
const VERSION: u32 = 1;

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Of this layout.
    version: u32,
    /// Of which machine.
    pub fingerprint: Fingerprint,
    /// When, in seconds since 1970.
    pub measured_s: u64,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// Bytes of a random row.
    pub row_bytes: usize,
    /// By node with cores that may be used, ascending.
    pub nodes: Vec<NodeFigures>,
    /// From each node to each, itself included, in the order of nodes.
    pub pairs: Vec<PairFigures>,
    /// Nodes that are joined by links, as far as it was inferred from distances and pairs; empty where it was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<[u32; 2]>,
    /// Ways along links that messages take though others are as short: the nodes that they pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Vec<u32>>,
    /// Whether nodes of a package share what joins it to others: their links explain nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_package: bool,
    /// What makes a figure doubtful.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

/// A node: all cores that may be used, or those that a quota pays for, one thread each, on its own memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFigures {
    /// The node.
    pub node: u32,
    /// Threads that measured.
    pub threads: usize,
    /// Memory that was measured on, in bytes.
    pub field_bytes: usize,
    /// Reading, in GB/s.
    pub read_gb_s: f64,
    /// Copying, bytes read and written, in GB/s.
    pub copy_gb_s: f64,
    /// The same with non-temporal stores.
    pub stream_copy_gb_s: f64,
    /// Reading random rows, in GB/s.
    pub row_gb_s: f64,
    /// Changing random rows in place, bytes read and written, in GB/s.
    pub row_update_gb_s: f64,
    /// Multiply-adds of f32, in GFLOP/s.
    pub peak_f32_gflop_s: f64,
    /// The same of bf16; none where the processor has no instruction for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bf16_gflop_s: Option<f64>,
}

/// What one node can give to another's memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairFigures {
    /// Who writes.
    pub from: u32,
    /// Whose memory is written.
    pub to: u32,
    /// Bytes written past the caches by all threads of `from` while nobody else writes, in GB/s.
    pub write_gb_s: f64,
    /// The same while every node writes to every other, each with a share of its threads; none within a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_gb_s: Option<f64>,
    /// Half the journey of a cache line to a core of `to` and back, in ns; none within a node of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
}

impl Figures {
    /// The figures of a pair of nodes.
    #[must_use]
    pub fn pair(&self, from: NodeId, to: NodeId) -> Option<&PairFigures> {
        self.pairs.iter().find(|pair| (pair.from, pair.to) == (from.0, to.0))
    }

    /// Every figure that no hardware has.
    fn check(&self) -> std::result::Result<(), String> {
        let node = |node: &NodeFigures| {
            let gb_s = [node.read_gb_s, node.copy_gb_s, node.stream_copy_gb_s, node.row_gb_s, node.row_update_gb_s];
            gb_s.into_iter().chain([node.peak_f32_gflop_s]).chain(node.peak_bf16_gflop_s).collect::<Vec<_>>()
        };
        let pair = |pair: &PairFigures| [pair.write_gb_s].into_iter().chain(pair.loaded_gb_s).collect::<Vec<_>>();
        let wrong = |figures: &[f64]| figures.iter().copied().find(|figure| !FIGURES.contains(figure));
        let narrow = |figures: &[f64]| figures.iter().copied().find(|figure| !LINK_GB_S.contains(figure));
        if self.version != VERSION {
            return Err(format!("version {} is not this octorec's, which is {VERSION}", self.version));
        }
        for figures in &self.nodes {
            if let Some(figure) = wrong(&node(figures)) {
                return Err(format!("node {}: no hardware has a figure of {figure}", figures.node));
            }
        }
        for figures in &self.pairs {
            if let Some(figure) = narrow(&pair(figures)).or_else(|| wrong(figures.latency_ns.as_slice())) {
                return Err(format!("nodes {} to {}: no hardware has a figure of {figure}", figures.from, figures.to));
            }
        }
        self.check_links()
    }

    /// Every link and route that this machine cannot have.
    fn check_links(&self) -> std::result::Result<(), String> {
        let known = |node: &u32| self.nodes.iter().any(|own| own.node == *node);
        let joined = |pair: &[u32]| self.links.iter().any(|[a, b]| pair == [*a, *b] || pair == [*b, *a]);
        for (at, [a, b]) in self.links.iter().enumerate() {
            let again = self.links[..at].iter().any(|other| other == &[*a, *b] || other == &[*b, *a]);
            if a == b || again || !known(a) || !known(b) {
                return Err(format!("there is no link between nodes {a} and {b}"));
            }
        }
        for route in &self.routes {
            let twice = (1..route.len()).any(|at| route[..at].contains(&route[at]));
            if route.len() < 2 || twice || !route.windows(2).all(joined) {
                return Err(format!("there is no route {route:?}"));
            }
        }
        let mut reached: Vec<u32> = self.nodes.iter().take(1).map(|node| node.node).collect();
        let mut at = 0;
        while at < reached.len() {
            let here = reached[at];
            let next =
                self.links.iter().filter_map(|[a, b]| if *a == here { Some(*b) } else { (*b == here).then_some(*a) });
            let next: Vec<u32> = next.filter(|next| !reached.contains(next)).collect();
            reached.extend(next);
            at += 1;
        }
        match self.nodes.iter().find(|node| !self.links.is_empty() && !reached.contains(&node.node)) {
            Some(apart) => Err(format!("links leave node {} apart", apart.node)),
            None => Ok(()),
        }
    }

    /// Gives a machine its figures: nodes theirs, the links that were inferred, and each link the lesser bandwidth and
    /// the longer latency of the two directions between its ends. `kept` says where the figures are.
    pub fn complete(&self, machine: &mut Machine, kept: &str) {
        let mut partly = Vec::new();
        for node in &mut machine.nodes {
            let Some(own) = self.nodes.iter().find(|own| own.node == node.id.0) else { continue };
            node.memory_gb_s = Some(own.read_gb_s);
            node.copy_gb_s = Some(own.copy_gb_s);
            node.stream_copy_gb_s = Some(own.stream_copy_gb_s);
            node.row_gb_s = Some(own.row_gb_s);
            node.row_update_gb_s = Some(own.row_update_gb_s);
            // A description has peaks of all cores, whoever may use them here.
            let (cores, threads) = (node.cores.len(), own.threads.max(1));
            let of_all = |peak: f64| if threads < cores { peak * cores as f64 / threads as f64 } else { peak };
            node.peak_f32_gflop_s = Some(of_all(own.peak_f32_gflop_s));
            node.peak_bf16_gflop_s = own.peak_bf16_gflop_s.map(of_all);
            if threads < cores {
                partly.push(node.id.0);
            }
        }
        if !partly.is_empty() {
            machine.assumptions.push(format!(
                "peaks of node {}: as many times those that were measured as it has more cores than could be used; \
                 bandwidths are those of the cores that were used, and all may reach more",
                ranges(partly)
            ));
        }
        if !self.links.is_empty() {
            let ends = |nodes: &[u32]| nodes.iter().map(|node| End::Node(NodeId(*node))).collect::<Vec<_>>();
            let link = |[a, b]: &[u32; 2]| Link {
                ends: [a, b].map(|node| End::Node(NodeId(*node))),
                gb_s: None,
                latency_ns: None,
                core_s_per_gb: None,
            };
            machine.links = self.links.iter().map(link).collect();
            machine.routes = self.routes.iter().map(|route| Route { path: ends(route) }).collect();
            machine.assumptions.retain(|line| !line.starts_with(discover::LINKS));
            machine.assumptions.push(format!("{} from distances and what pairs of nodes write", discover::LINKS));
        }
        for link in &mut machine.links {
            let [End::Node(a), End::Node(b)] = link.ends else { continue };
            let both: Vec<&PairFigures> = [self.pair(a, b), self.pair(b, a)].into_iter().flatten().collect();
            link.gb_s = both.iter().map(|pair| pair.write_gb_s).min_by(f64::total_cmp);
            link.latency_ns = both.iter().filter_map(|pair| pair.latency_ns).max_by(f64::total_cmp);
        }
        if self.by_package && self.routes.is_empty() {
            self.join_packages(machine);
        }
        machine.assumptions.retain(|line| line != discover::UNMEASURED);
        machine.measured = Some(format!("{} ({kept})", self.age()));
    }

    /// "3 days ago".
    #[must_use]
    pub fn age(&self) -> String {
        store::age(self.measured_s)
    }
}

/// As [`Machine::load`]; this host with the figures that were measured of it, if they are kept. The notes say what is
/// wrong with files that should have had them.
///
/// # Errors
/// As [`Machine::load`].
pub fn load(wanted: &str, store: Option<&Store>) -> Result<(Machine, Vec<String>)> {
    let mut machine = Machine::load(wanted)?;
    let mut notes = Vec::new();
    if let (true, Some(store)) = (machine.is_this_system, store) {
        let kept = store.find(&Fingerprint::of(&machine));
        (notes, machine.figures_note) = (kept.notes, kept.doubt);
        if let Some((figures, path)) = kept.figures {
            figures.complete(&mut machine, &path.display().to_string());
        }
    }
    Ok((machine, notes))
}
