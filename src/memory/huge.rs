//! Huge pages: the pool of reserved ones (hugetlb), asked before it is used, and whether the kernel gives others.
//!
//! The kernel grants a mapping when the pools of all nodes together suffice, but a bound page comes from its node's
//! pool alone: touching beyond that ends the process with SIGBUS. So the node's pool is counted first.

use std::fs;

use crate::base::{Error, NodeId, Result};
use crate::ffi::linux::HUGE_PAGE_BYTES;

/// Checks that the pools of `nodes` hold `bytes`.
///
/// # Errors
/// [`Error::Placement`] that says how many pages are missing and how to reserve them.
pub fn check_pool(nodes: &[NodeId], bytes: u64) -> Result<()> {
    let free = |node: &NodeId| fs::read_to_string(pool(*node, "free_hugepages")).ok()?.trim().parse::<u64>().ok();
    let found: u64 = nodes.iter().filter_map(free).sum();
    let need = bytes.div_ceil(HUGE_PAGE_BYTES as u64);
    if need <= found {
        return Ok(());
    }
    let names = nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(" + ");
    let pool = pool(nodes[0], "nr_hugepages");
    let reason = format!("{names}: needs {need} huge pages of 2 MiB, has {found} reserved and free: raise {pool}");
    Err(Error::Placement { reason })
}

/// A warning where the kernel gives nobody transparent huge pages, though it takes the advice to use some.
pub fn no_huge_pages() -> Option<String> {
    /// Where it says so.
    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let is_never = fs::read_to_string(ENABLED).is_ok_and(|text| text.contains("[never]"));
    is_never.then(|| {
        format!(
            "this system has no huge pages for programs ({ENABLED} is never): random rows of large tables take two to three times \
             as long; as root, `echo madvise > {ENABLED}` turns them on"
        )
    })
}

fn pool(node: NodeId, file: &str) -> String {
    format!("/sys/devices/system/node/node{}/hugepages/hugepages-2048kB/{file}", node.0)
}
