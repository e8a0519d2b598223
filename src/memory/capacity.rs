//! Whether all ranks' arenas fit their nodes, asked before anything is touched.
//!
//! Memory that is bound to a node never spills: beyond the node's free memory the kernel ends the process instead of
//! returning an error. So all arenas of a host are checked together, and every node keeps a reserve for the system and
//! for what is not planned. Free is what the kernel can hand out at once plus what it holds of files and can drop.

use std::fs;

use super::system::{Available, Limit, available, field};
use crate::base::units::Bytes;
use crate::base::{Error, NodeId, Result};
use crate::ffi::linux::HUGE_PAGE_BYTES;

/// What one arena wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// The nodes that it may lie on; at least one.
    pub nodes: Vec<NodeId>,
    /// Its size.
    pub bytes: u64,
}

/// The memory of a node in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeMemory {
    /// All of it.
    pub total: u64,
    /// What can be had, dropping cached files.
    pub free: u64,
}

impl NodeMemory {
    /// As the kernel tells it; `None` where there is no such node or no sysfs.
    #[must_use]
    pub fn of(node: NodeId) -> Option<Self> {
        let text = fs::read_to_string(format!("/sys/devices/system/node/node{}/meminfo", node.0)).ok()?;
        Self::parse(&text, node)
    }

    fn parse(text: &str, node: NodeId) -> Option<Self> {
        let value = |name: &str| field(text, &format!("Node {} {name}:", node.0));
        let files = value("Active(file)").unwrap_or(0) + value("Inactive(file)").unwrap_or(0);
        Some(Self { total: value("MemTotal")?, free: value("MemFree")? + files })
    }

    /// What stays with the system: a 32nd of the node, at least 16 MiB, and at most 1 GiB or a 256th, half of which the
    /// tables of small pages take.
    #[must_use]
    pub fn reserve(self) -> u64 {
        (self.total / 32).clamp(16 << 20, (1 << 30).max(self.total / 256))
    }
}

/// Checks that all arenas of this host fit together.
///
/// # Errors
/// [`Error::NodeFull`] for the first node, or set of nodes, that cannot hold what is planned there, or for the host if
/// all together exceed what the machine, a control group or the process's limits have left.
pub fn check_capacity(demands: &[Demand]) -> Result<()> {
    check(demands, NodeMemory::of)?;
    let need = demands.iter().fold(0u64, |sum, demand| sum.saturating_add(demand.bytes));
    check_host("all ranks of this host together", need, demands.len())
}

/// Checks that this host can give `bytes` for `what`, in so many pieces.
///
/// # Errors
/// [`Error::NodeFull`] that names what the machine, a control group or the process's limits have left.
pub fn check_host(what: &str, bytes: u64, pieces: usize) -> Result<()> {
    available().map_or(Ok(()), |left| check_sum(what, bytes, pieces, &left))
}

fn check_sum(what: &str, bytes: u64, pieces: usize, left: &Available) -> Result<()> {
    // Address space is cut at huge pages, so that a part of one is lost beside each piece.
    let lost = if left.limit == Limit::AddressSpace { HUGE_PAGE_BYTES.saturating_mul(pieces) } else { 0 };
    let need = bytes.saturating_add(lost as u64);
    let free = left.bytes;
    let reserve = NodeMemory { total: free, free }.reserve();
    if need <= free.saturating_sub(reserve) {
        return Ok(());
    }
    let place = format!("{what} ({})", left.limit);
    Err(Error::NodeFull { place, need: Bytes(need), free: Bytes(free), reserve: Bytes(reserve) })
}

/// Nodes that `memory` does not know are not checked.
fn check(demands: &[Demand], memory: impl Fn(NodeId) -> Option<NodeMemory>) -> Result<()> {
    // An arena with fewer nodes to choose from comes first; what the others find is what that one leaves.
    let mut order: Vec<&Demand> = demands.iter().collect();
    order.sort_by_key(|demand| (demand.nodes.len(), demand.nodes.clone()));
    let mut taken: Vec<(NodeId, u64)> = Vec::new();
    for group in order.chunk_by(|a, b| a.nodes == b.nodes) {
        let nodes = &group[0].nodes;
        let Some(known) = nodes.iter().map(|node| memory(*node)).collect::<Option<Vec<_>>>() else { continue };
        let used = |node: NodeId| taken.iter().filter(|(other, _)| *other == node).map(|(_, bytes)| bytes).sum::<u64>();
        let free: Vec<u64> =
            nodes.iter().zip(&known).map(|(node, memory)| memory.free.saturating_sub(used(*node))).collect();
        let need = group.iter().fold(0u64, |sum, demand| sum.saturating_add(demand.bytes));
        let reserve: u64 = known.iter().map(|memory| memory.reserve()).sum();
        let all: u64 = free.iter().sum();
        if need > all.saturating_sub(reserve) {
            let place = nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(" + ");
            return Err(Error::NodeFull { place, need: Bytes(need), free: Bytes(all), reserve: Bytes(reserve) });
        }
        let mut left = need;
        for (node, free) in nodes.iter().zip(free) {
            let part = left.min(free);
            taken.push((*node, part));
            left -= part;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn demand(nodes: &[u32], bytes: u64) -> Demand {
        Demand { nodes: nodes.iter().copied().map(NodeId).collect(), bytes }
    }

    /// Nodes 0 to 3 with 192 GiB, of which 12 GiB are free on node 3.
    fn memory(node: NodeId) -> Option<NodeMemory> {
        let free = if node.0 == 3 { 12 * GIB } else { 180 * GIB };
        (node.0 < 4).then_some(NodeMemory { total: 192 * GIB, free })
    }

    #[test]
    fn the_full_node_is_named() {
        let demands = [demand(&[0], 100 * GIB), demand(&[3], 19 * GIB)];
        let message = check(&demands, memory).unwrap_err().to_string();
        assert!(message.starts_with("node 3: needs 19.0 GiB, has 12.0 GiB free (1.0 GiB"), "{message}");
        assert!(check(&[demand(&[3], 11 * GIB)], memory).is_ok());
        assert!(check(&[demand(&[3], 11 * GIB + 1)], memory).is_err(), "the reserve is kept");
    }

    #[test]
    fn ranks_of_one_node_are_added_up() {
        assert!(check(&[demand(&[1], 100 * GIB)], memory).is_ok());
        let message = check(&[demand(&[1], 100 * GIB), demand(&[1], 100 * GIB)], memory).unwrap_err().to_string();
        assert!(message.starts_with("node 1: needs 200.0 GiB, has 180.0 GiB free"), "{message}");
    }

    #[test]
    fn a_rank_of_several_nodes_gets_what_the_others_leave() {
        let both = demand(&[0, 3], 185 * GIB);
        assert!(check(std::slice::from_ref(&both), memory).is_ok());
        let message = check(&[both, demand(&[0], 10 * GIB)], memory).unwrap_err().to_string();
        assert!(message.starts_with("node 0 + node 3: needs 185.0 GiB, has 182.0 GiB free"), "{message}");
    }

    #[test]
    fn control_groups_and_the_limits_of_the_process_limit_the_sum() {
        let left = |bytes, limit| Available { bytes, limit };
        let group = |bytes| left(bytes, Limit::Group("/sys/fs/cgroup/job".into()));
        assert!(check_sum("all", 5 * GIB, 2, &group(6 * GIB)).is_ok());
        let message = check_sum("all ranks", 5 * GIB, 2, &group(5 * GIB)).unwrap_err().to_string();
        assert!(message.starts_with("all ranks (the control group's memory, /sys/fs/cgroup/job): "), "{message}");
        assert!(message.contains("needs 5.0 GiB, has 5.0 GiB free (160.0 MiB of it"), "{message}");
        assert!(message.contains("fewer --ranks or a smaller --batch"), "{message}");
        // 512 arenas lose 1 GiB of address space, and nothing of memory.
        assert!(check_sum("all", 5 * GIB, 512, &group(6 * GIB)).is_ok());
        let message = check_sum("all", 5 * GIB, 512, &left(6 * GIB, Limit::AddressSpace)).unwrap_err().to_string();
        assert!(message.contains("ulimit -v): needs 6.0 GiB"), "{message}");
    }

    #[test]
    fn unknown_nodes_are_not_judged_and_huge_sums_do_not_wrap() {
        assert!(check(&[demand(&[9], u64::MAX)], memory).is_ok());
        assert!(check(&[demand(&[0], u64::MAX), demand(&[0], u64::MAX)], memory).is_err());
    }

    #[test]
    fn the_kernels_words_are_understood() {
        let text = "Node 5 MemTotal:       196608 kB\nNode 5 MemFree:        100000 kB\nNode 5 MemUsed: 96608 kB\n\
                    Node 5 Active(file):      300 kB\nNode 5 Inactive(file):     24 kB\n";
        let memory = NodeMemory::parse(text, NodeId(5)).unwrap();
        assert_eq!(memory, NodeMemory { total: 196_608 << 10, free: 100_324 << 10 });
        assert_eq!(memory.reserve(), 16 << 20);
        assert_eq!(NodeMemory::parse(text, NodeId(6)), None);
    }
}
