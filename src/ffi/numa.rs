//! libnuma, bound by hand: which node memory belongs to, and where it really is.
//!
//! The crate libnuma-sys no longer compiles and lacks `mbind`, so the few functions that placement needs are declared
//! here against libnuma 2.0 (numaif.h). They are plain system calls behind libnuma's names, and need no
//! `numa_available` before them as `numa_*` calls do. Never `numa_alloc_onnode`: it returns memory on another node when
//! the wished one does not exist.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use std::fmt;
use std::io;
use std::ptr;

use linux_raw_sys::errno::{EBUSY, EFAULT, ENOENT};
use linux_raw_sys::mempolicy as sys;

use crate::base::{Error, NodeId, Result};

#[link(name = "numa")]
unsafe extern "C" {
    fn mbind(start: *mut c_void, len: c_ulong, mode: c_int, mask: *const c_ulong, bits: c_ulong, f: c_uint) -> c_long;
    fn get_mempolicy(mode: *mut c_int, mask: *mut c_ulong, bits: c_ulong, addr: *mut c_void, f: c_uint) -> c_long;
    fn move_pages(
        pid: c_int,
        count: c_ulong,
        pages: *mut *mut c_void,
        nodes: *const c_int,
        status: *mut c_int,
        flags: c_int,
    ) -> c_long;
}

const WORD_BITS: usize = c_ulong::BITS as usize;
const WORDS: usize = NodeMask::CAPACITY / WORD_BITS;
/// What the kernel wants as `maxnode`: one more than the bits that it may read or write.
const MAXNODE: c_ulong = NodeMask::CAPACITY as c_ulong + 1;

/// A set of NUMA nodes in the kernel's layout.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeMask {
    words: [c_ulong; WORDS],
}

impl NodeMask {
    /// Nodes are numbered below this: the kernel's own upper limit (CONFIG_NODES_SHIFT = 10).
    pub const CAPACITY: usize = 1024;

    /// The set of `nodes`.
    ///
    /// # Panics
    /// When a number is [`NodeMask::CAPACITY`] or more; no kernel has such a node.
    #[must_use]
    pub fn of(nodes: &[NodeId]) -> Self {
        let mut mask = Self::default();
        for node in nodes {
            assert!(node.index() < Self::CAPACITY, "{node} is beyond the kernel's {} nodes", Self::CAPACITY);
            mask.words[node.index() / WORD_BITS] |= 1 << (node.index() % WORD_BITS);
        }
        mask
    }

    /// Whether `node` is in the set.
    #[must_use]
    pub const fn contains(&self, node: NodeId) -> bool {
        node.index() < Self::CAPACITY && self.words[node.index() / WORD_BITS] >> (node.index() % WORD_BITS) & 1 == 1
    }

    /// The nodes in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..Self::CAPACITY as u32).map(NodeId).filter(|node| self.contains(*node))
    }
}

impl fmt::Debug for NodeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|node| node.0)).finish()
    }
}

/// Lets a region's pages that are not there yet come from these nodes only. Beyond their free memory the process is
/// killed: check capacity before.
///
/// Bind before the region is writable: with transparent huge pages a writable region can already share a huge page
/// with its neighbour, and that page stays where it is (see [`super::linux::Reservation`]).
///
/// # Errors
/// [`Error::System`]: EINVAL when no node of the set exists or is allowed, EPERM under some container filters.
/// Nodes that are not allowed are dropped silently when one of the set is.
///
/// # Safety
/// `start..start + len` is a mapping that the caller owns, `start` is aligned to a page, and no other owner relies on
/// where those pages are.
pub unsafe fn bind_region(start: *mut u8, len: usize, mask: &NodeMask) -> Result<()> {
    let words = mask.words.as_ptr();
    // SAFETY: the caller owns the mapping; `words` points to CAPACITY readable bits of `mask`.
    let answer = unsafe { mbind(start.cast(), len as c_ulong, sys::MPOL_BIND as c_int, words, MAXNODE, 0) };
    check(answer, || format!("bind {len} bytes of memory to nodes {mask:?}"))
}

/// The nodes from which this process may take memory (its cpuset's mems).
///
/// # Errors
/// [`Error::System`] when the kernel refuses the call.
pub fn allowed_nodes() -> Result<NodeMask> {
    let (mut mask, flags) = (NodeMask::default(), sys::MPOL_F_MEMS_ALLOWED);
    // SAFETY: no mode is asked for and no address asked about; the mask has CAPACITY writable bits.
    let answer = unsafe { get_mempolicy(ptr::null_mut(), mask.words.as_mut_ptr(), MAXNODE, ptr::null_mut(), flags) };
    check(answer, || "read the memory policy".to_owned())?;
    Ok(mask)
}

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageHome {
    /// On this node.
    Node(NodeId),
    /// Nowhere: nobody has touched it.
    Untouched,
    /// The kernel did not say; its error number.
    Unknown(i32),
}

/// Asks the kernel for the node of a page each `step` bytes of `start..start + len`, of each page at least, without
/// touching or moving any.
///
/// `start` is rounded down to a page. A page of a huge page can answer EBUSY at first: it is asked again.
///
/// # Errors
/// [`Error::System`] when the kernel refuses the call.
pub fn nodes_of_pages(start: *const u8, len: usize, step: usize) -> Result<Vec<PageHome>> {
    let page = rustix::param::page_size();
    let first = start.addr() / page * page;
    let end = start.addr().saturating_add(len);
    let mut pages: Vec<*mut c_void> =
        (first..end).step_by(step.next_multiple_of(page).max(page)).map(ptr::without_provenance_mut).collect();
    let mut status = vec![0; pages.len()];
    query(&mut pages, &mut status)?;
    for _ in 0..4 {
        let busy: Vec<usize> = (0..status.len()).filter(|page| status[*page] == -(EBUSY as c_int)).collect();
        if busy.is_empty() {
            break;
        }
        let mut again: Vec<*mut c_void> = busy.iter().map(|page| pages[*page]).collect();
        let mut answers = vec![0; again.len()];
        query(&mut again, &mut answers)?;
        for (page, answer) in busy.into_iter().zip(answers) {
            status[page] = answer;
        }
    }
    Ok(status.into_iter().map(home).collect())
}

fn home(status: c_int) -> PageHome {
    match u32::try_from(status) {
        Ok(node) => PageHome::Node(NodeId(node)),
        // Linux 6.1 says EFAULT for a page without memory, newer kernels say ENOENT.
        Err(_) if [EFAULT, ENOENT].contains(&status.unsigned_abs()) => PageHome::Untouched,
        Err(_) => PageHome::Unknown(-status),
    }
}

fn query(pages: &mut [*mut c_void], status: &mut [c_int]) -> Result<()> {
    assert_eq!(pages.len(), status.len(), "one answer a page");
    let (count, pages, status) = (pages.len() as c_ulong, pages.as_mut_ptr(), status.as_mut_ptr());
    // SAFETY: `pages` has `count` readable and `status` `count` writable entries (asserted); without target nodes the
    // call only reads page tables, and it checks every address itself.
    let answer = unsafe { move_pages(0, count, pages, ptr::null(), status, 0) };
    check(answer, || format!("ask for the nodes of {count} pages"))
}

fn check(answer: c_long, action: impl FnOnce() -> String) -> Result<()> {
    if answer >= 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    Err(Error::System { action: action(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::requirement::required;

    #[test]
    fn a_mask_holds_its_nodes() {
        let mask = NodeMask::of(&[NodeId(0), NodeId(5), NodeId(64), NodeId(1023)]);
        assert_eq!(mask.iter().map(|node| node.0).collect::<Vec<_>>(), [0, 5, 64, 1023]);
        assert!(!mask.contains(NodeId(1)) && !mask.contains(NodeId(4096)));
    }

    #[test]
    fn page_answers_are_understood() {
        assert_eq!(home(3), PageHome::Node(NodeId(3)));
        assert_eq!(home(-14), PageHome::Untouched);
        assert_eq!(home(-2), PageHome::Untouched);
        assert_eq!(home(-1), PageHome::Unknown(1));
    }

    #[test]
    fn this_system_says_which_nodes_are_allowed() {
        let Some(nodes) = required("numa-calls", allowed_nodes()) else { return };
        assert!(nodes.iter().next().is_some());
    }
}
