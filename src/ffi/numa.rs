//! libnuma, bound by hand: which node memory belongs to, and where it really is.
//!
//! The crate libnuma-sys no longer compiles and lacks `mbind`, so the few functions that placement needs are declared
//! here against libnuma 2.0 (numa.h, numaif.h). Holding a [`Numa`] proves that `numa_available` succeeded, which
//! numa(3) demands before any other `numa_*` call. The memory-policy calls are plain system calls behind libnuma's
//! names and need no such proof. Never `numa_alloc_onnode`: it returns memory on another node when the wished one does
//! not exist.

use std::ffi::{c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use std::fmt;
use std::io;
use std::ptr;

use linux_raw_sys::errno::{EBUSY, EFAULT, ENOENT};
use linux_raw_sys::mempolicy as sys;

use crate::base::{Error, NodeId, Result};

#[link(name = "numa")]
unsafe extern "C" {
    fn numa_available() -> c_int;
    fn numa_max_node() -> c_int;
    fn numa_node_size64(node: c_int, free: *mut c_longlong) -> c_longlong;
    fn numa_distance(from: c_int, to: c_int) -> c_int;
    fn mbind(start: *mut c_void, len: c_ulong, mode: c_int, mask: *const c_ulong, bits: c_ulong, f: c_uint) -> c_long;
    fn set_mempolicy(mode: c_int, mask: *const c_ulong, bits: c_ulong) -> c_long;
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

/// Where new pages may be taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// As the surrounding policy says; at the outermost, from the node of the thread that touches first.
    Default,
    /// From these nodes only. Beyond their free memory the process is killed: check capacity before.
    Bind(NodeMask),
    /// From this node, and from its neighbours when it is full.
    Preferred(NodeId),
    /// Page by page (huge page by huge page) round the nodes.
    Interleave(NodeMask),
}

impl Policy {
    const fn mode(self) -> c_int {
        let mode = match self {
            Self::Default => sys::MPOL_DEFAULT,
            Self::Bind(_) => sys::MPOL_BIND,
            Self::Preferred(_) => sys::MPOL_PREFERRED,
            Self::Interleave(_) => sys::MPOL_INTERLEAVE,
        };
        mode as c_int
    }

    fn mask(self) -> NodeMask {
        match self {
            Self::Default => NodeMask::default(),
            Self::Bind(mask) | Self::Interleave(mask) => mask,
            Self::Preferred(node) => NodeMask::of(&[node]),
        }
    }
}

/// What is done about pages that are already elsewhere when a policy is set on a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// They stay.
    Leave,
    /// They are moved; a page that cannot be moved is an error.
    Move,
}

/// Proof that this kernel has NUMA support and that libnuma is ready.
#[derive(Debug, Clone, Copy)]
pub struct Numa(());

impl Numa {
    /// `None` where the kernel (or a container's filter) has no NUMA calls.
    #[must_use]
    pub fn detect() -> Option<Self> {
        // SAFETY: takes nothing, may be called at any time and any number of times.
        let answer = unsafe { numa_available() };
        (answer >= 0).then_some(Self(()))
    }

    /// The highest node number on this system.
    #[must_use]
    pub fn max_node(self) -> NodeId {
        // SAFETY: numa_available succeeded (`self` exists).
        let node = unsafe { numa_max_node() };
        NodeId(u32::try_from(node).unwrap_or(0))
    }

    /// Total and free bytes of a node; `None` when there is no such node.
    #[must_use]
    pub fn node_bytes(self, node: NodeId) -> Option<(u64, u64)> {
        let number = c_int::try_from(node.0).ok()?;
        let mut free: c_longlong = 0;
        // SAFETY: numa_available succeeded; `free` is a live c_longlong that is written at most.
        let total = unsafe { numa_node_size64(number, &mut free) };
        Some((u64::try_from(total).ok()?, u64::try_from(free).unwrap_or(0)))
    }

    /// The firmware's distance (SLIT, 10 = local); `None` when it is not known.
    #[must_use]
    pub fn distance(self, from: NodeId, to: NodeId) -> Option<u32> {
        let (from, to) = (c_int::try_from(from.0).ok()?, c_int::try_from(to.0).ok()?);
        // SAFETY: numa_available succeeded; any numbers may be asked for, 0 means unknown.
        let distance = unsafe { numa_distance(from, to) };
        u32::try_from(distance).ok().filter(|distance| *distance > 0)
    }
}

/// Sets the policy of a region's pages.
///
/// Bind before the region is writable: with transparent huge pages a writable region can already share a huge page
/// with its neighbour, and that page stays where it is (see [`super::linux::Reservation`]).
///
/// # Errors
/// [`Error::System`]: EINVAL when no node of the set exists or is allowed, EPERM under some container filters, EIO when
/// a page could not be moved. Nodes that are not allowed are dropped silently when one of the set is.
///
/// # Safety
/// `start..start + len` is a mapping that the caller owns, `start` is aligned to a page, and no other owner relies on
/// where those pages are.
pub unsafe fn bind_region(start: *mut u8, len: usize, policy: Policy, existing: Existing) -> Result<()> {
    let mask = policy.mask();
    let flags = match existing {
        Existing::Leave => 0,
        Existing::Move => sys::MPOL_MF_MOVE | sys::MPOL_MF_STRICT,
    };
    let (words, bits) = mask_argument(&mask, policy);
    // SAFETY: the caller owns the mapping; `words` is null with 0 bits or points to CAPACITY readable bits of `mask`.
    let answer = unsafe { mbind(start.cast(), len as c_ulong, policy.mode(), words, bits, flags) };
    check(answer, || format!("bind {len} bytes of memory to nodes {mask:?}"))
}

/// Sets the policy of what the current thread touches first.
///
/// # Errors
/// [`Error::System`], as [`bind_region`].
pub fn set_thread_policy(policy: Policy) -> Result<()> {
    let mask = policy.mask();
    let (words, bits) = mask_argument(&mask, policy);
    // SAFETY: `words` is null with 0 bits or points to CAPACITY readable bits of `mask`.
    let answer = unsafe { set_mempolicy(policy.mode(), words, bits) };
    check(answer, || format!("set this thread's memory policy to {policy:?}"))
}

/// The kernel's mode number (MPOL_*) and nodes of the current thread's policy.
///
/// # Errors
/// [`Error::System`] when the kernel refuses the call.
pub fn thread_policy() -> Result<(i32, NodeMask)> {
    let mut mode: c_int = 0;
    let mask = read_policy(&mut mode, 0)?;
    Ok((mode, mask))
}

/// The nodes from which this process may take memory (its cpuset's mems).
///
/// # Errors
/// [`Error::System`] when the kernel refuses the call.
pub fn allowed_nodes() -> Result<NodeMask> {
    read_policy(ptr::null_mut(), sys::MPOL_F_MEMS_ALLOWED)
}

fn read_policy(mode: *mut c_int, flags: c_uint) -> Result<NodeMask> {
    let mut mask = NodeMask::default();
    // SAFETY: `mode` is null or a live c_int (both callers above), the mask has CAPACITY writable bits, no address is
    // asked about.
    let answer = unsafe { get_mempolicy(mode, mask.words.as_mut_ptr(), MAXNODE, ptr::null_mut(), flags) };
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

/// Asks the kernel for the node of each page that starts in `start..start + len`, without touching or moving any.
///
/// `start` is rounded down to a page. A page of a huge page can answer EBUSY at first: it is asked again.
///
/// # Errors
/// [`Error::System`] when the kernel refuses the call.
pub fn nodes_of_pages(start: *const u8, len: usize) -> Result<Vec<PageHome>> {
    let page = rustix::param::page_size();
    let first = start.addr() / page * page;
    let end = start.addr().saturating_add(len);
    let mut pages: Vec<*mut c_void> = (first..end).step_by(page).map(ptr::without_provenance_mut).collect();
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

fn mask_argument(mask: &NodeMask, policy: Policy) -> (*const c_ulong, c_ulong) {
    if policy == Policy::Default { (ptr::null(), 0) } else { (mask.words.as_ptr(), MAXNODE) }
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
    fn this_system_answers() {
        let Some(numa) = required("numa-calls", Numa::detect().ok_or("not detected")) else { return };
        let node = allowed_nodes().expect("the kernel says which nodes are allowed").iter().next().expect("one node");
        assert!(node <= numa.max_node());
        let (total, free) = numa.node_bytes(node).expect("an allowed node exists");
        assert!(0 < total && free <= total);
        assert_eq!(numa.distance(node, node), Some(10));
        assert_eq!(numa.node_bytes(NodeId(1000)), None);
        set_thread_policy(Policy::Preferred(node)).expect("an allowed node can be preferred");
        assert!(thread_policy().expect("the policy can be read").1.contains(node));
        set_thread_policy(Policy::Default).expect("the default is always possible");
    }
}
