//! Linux calls that place threads and reserve memory.
//!
//! A [`Reservation`] fixes the order that the kernel needs: reserve inaccessible, bind, choose the page size, and only
//! then open for use. A mapping that is writable before it is bound can share a transparent huge page with its
//! neighbour, and those pages then stay on the neighbour's node although `mbind` returned 0.

use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::numa::{NodeMask, bind_region};
use crate::base::{Error, PuId, Result};

/// The size of a huge page on x86-64 in bytes, and the alignment of every [`Reservation`].
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Lets the current thread run on `pus` only.
///
/// # Errors
/// [`Error::System`] when the list is empty, holds a number beyond the system's limit of 1024, or names no processing
/// unit that this process may use.
pub fn pin_current_thread(pus: &[PuId]) -> Result<()> {
    let action = || format!("pin this thread to cpus {:?}", pus.iter().map(|pu| pu.0).collect::<Vec<_>>());
    let mut set = CpuSet::new();
    for pu in pus {
        if pu.index() >= CpuSet::MAX_CPU {
            let reason = format!("{pu} is beyond the limit of {}", CpuSet::MAX_CPU);
            return Err(Error::System { action: action(), source: io::Error::other(reason) });
        }
        set.set(pu.index());
    }
    sched_setaffinity(None, &set).map_err(|source| Error::System { action: action(), source: source.into() })
}

/// Lets the current thread, and those that it starts, run wherever the process's control group allows.
///
/// # Errors
/// [`Error::System`] when the kernel refuses.
pub fn unpin_current_thread() -> Result<()> {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|pu| all.set(pu));
    let action = || "let this process use all cpus".to_owned();
    sched_setaffinity(None, &all).map_err(|source| Error::System { action: action(), source: source.into() })
}

/// The processing units that the current thread may run on, ascending.
///
/// # Errors
/// [`Error::System`] when the kernel refuses, e.g. because the machine has more than 1024 of them.
pub fn current_affinity() -> Result<Vec<PuId>> {
    let set = sched_getaffinity(None)
        .map_err(|source| Error::System { action: "read this thread's affinity".to_owned(), source: source.into() })?;
    Ok((0..CpuSet::MAX_CPU).filter(|pu| set.is_set(*pu)).map(|pu| PuId(pu as u32)).collect())
}

/// The processing units that the process's control group allows, wherever the current thread may run now.
///
/// # Errors
/// [`Error::System`] when the kernel refuses.
pub fn affinity_of_group() -> Result<Vec<PuId>> {
    let before = current_affinity()?;
    unpin_current_thread()?;
    let all = current_affinity();
    pin_current_thread(&before)?;
    all
}

/// The processing unit that runs the current thread at this moment.
#[must_use]
pub fn current_pu() -> PuId {
    PuId(sched_getcpu() as u32)
}

/// Asks the system to let this process use AMX tiles, in all its threads, for good; whether it does.
///
/// Source: Linux, Documentation/arch/x86/xstate.rst. A thread that touches a tile without permission is killed
/// (SIGILL).
#[must_use]
pub fn permit_tile_data() -> bool {
    const ARCH_REQ_XCOMP_PERM: c_int = 0x1023;
    const XFEATURE_XTILEDATA: c_long = 18;
    // SAFETY: this request takes one number and writes no memory; kernels that do not know it return an error.
    unsafe { libc::syscall(libc::SYS_arch_prctl, c_long::from(ARCH_REQ_XCOMP_PERM), XFEATURE_XTILEDATA) == 0 }
}

/// Address space that nobody can touch yet, aligned to [`HUGE_PAGE_BYTES`].
#[derive(Debug)]
pub struct Reservation {
    /// What was mapped, alignment slack included; invariant: this value alone owns it.
    mapped: NonNull<c_void>,
    mapped_len: usize,
    /// Bytes from `mapped` to the aligned start; `offset + len <= mapped_len`.
    offset: usize,
    len: usize,
}

// SAFETY: the value owns its mapping alone, and every call on it takes any thread's word for it.
unsafe impl Send for Reservation {}

impl Reservation {
    /// Reserves `len` bytes, rounded up to huge pages; takes no memory yet.
    ///
    /// # Errors
    /// [`Error::System`] when `len` is 0 or the address space is exhausted or limited (`ulimit -v`).
    pub fn new(len: usize) -> Result<Self> {
        let action = || format!("reserve {len} bytes of address space");
        let too_big = || Error::System { action: action(), source: io::ErrorKind::InvalidInput.into() };
        let rounded = len.checked_next_multiple_of(HUGE_PAGE_BYTES).filter(|len| *len > 0).ok_or_else(too_big)?;
        let mapped_len = rounded.checked_add(HUGE_PAGE_BYTES).ok_or_else(too_big)?;
        let mapped = map(mapped_len).map_err(|source| Error::System { action: action(), source })?;
        let start = mapped.addr().get();
        let offset = start.next_multiple_of(HUGE_PAGE_BYTES) - start;
        Ok(Self { mapped, mapped_len, offset, len: rounded })
    }

    /// Bytes that can be used: a multiple of [`HUGE_PAGE_BYTES`].
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Never: a reservation has at least one huge page.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte; aligned to [`HUGE_PAGE_BYTES`].
    #[must_use]
    pub const fn start(&self) -> *mut u8 {
        self.mapped.as_ptr().cast::<u8>().wrapping_add(self.offset)
    }

    /// Says from which nodes the pages shall come. No page exists yet, so none can be elsewhere.
    ///
    /// # Errors
    /// As [`bind_region`].
    pub fn bind(&self, nodes: &NodeMask) -> Result<()> {
        // SAFETY: start..start + len lies in the mapping that `self` owns alone, page-aligned.
        unsafe { bind_region(self.start(), self.len, nodes) }
    }

    /// Asks for huge pages (`true`) or for small ones.
    ///
    /// # Errors
    /// [`Error::System`] when the kernel is built without transparent huge pages.
    pub fn advise_huge(&self, huge: bool) -> Result<()> {
        let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: start..start + len lies in the mapping that `self` owns alone; neither advice discards contents.
        unsafe { madvise(self.start().cast(), self.len, advice) }
            .map_err(|source| self.failure("choose the page size of", source.into()))
    }

    /// Makes the bytes readable and writable. They are zero, and come into being on the node of the policy when
    /// touched.
    ///
    /// # Errors
    /// [`Error::System`] when the kernel refuses, e.g. because of a memory limit without overcommit.
    pub fn open(self) -> Result<Region> {
        // SAFETY: start..start + len lies in the mapping that `self` owns alone, and nothing refers to it yet.
        unsafe { mprotect(self.start().cast(), self.len, MprotectFlags::READ | MprotectFlags::WRITE) }
            .map_err(|source| self.failure("open", source.into()))?;
        Ok(Region { reservation: self })
    }

    fn failure(&self, action: &str, source: io::Error) -> Error {
        Error::System { action: format!("{action} {} bytes of reserved memory", self.len), source }
    }
}

/// Maps `len` bytes of anonymous memory that nobody can touch yet.
fn map(len: usize) -> io::Result<NonNull<c_void>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses the address (null hint, no MAP_FIXED), so no existing mapping is replaced.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
    NonNull::new(start).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping of `new`, owned by `self` alone; its users borrow from `self` and are gone.
        let result = unsafe { munmap(self.mapped.as_ptr(), self.mapped_len) };
        debug_assert!(result.is_ok(), "munmap of an own mapping failed: {result:?}");
    }
}

/// Zeroed memory that is bound to its nodes, owned and aligned to [`HUGE_PAGE_BYTES`].
#[derive(Debug)]
pub struct Region {
    /// Invariant: open for reading and writing.
    reservation: Reservation,
}

// SAFETY: shared access only reads (`bytes`), exclusive access needs `&mut`.
unsafe impl Sync for Region {}

impl Region {
    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: start..start + len is mapped readable (`open`), zero or written through `bytes_mut`, owned by self.
        unsafe { std::slice::from_raw_parts(self.reservation.start(), self.reservation.len) }
    }

    /// All bytes, to write.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: start..start + len is mapped writable (`open`) and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.reservation.start(), self.reservation.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::requirement::required;
    use crate::ffi::numa::{PageHome, allowed_nodes, nodes_of_pages};

    #[test]
    fn a_thread_is_pinned_where_it_was_told() {
        let home = current_affinity().expect("affinity can be read");
        let last = *home.last().expect("a thread runs somewhere");
        pin_current_thread(&[last]).expect("an allowed cpu can be chosen");
        assert_eq!(current_affinity().expect("affinity can be read"), [last]);
        assert_eq!(current_pu(), last);
        let all = affinity_of_group().expect("affinity can be widened");
        assert!(home.iter().all(|pu| all.contains(pu)), "{home:?} of {all:?}");
        assert_eq!(current_affinity().expect("affinity can be read"), [last], "where it was");
        pin_current_thread(&home).expect("the way back");
    }

    #[test]
    fn impossible_pinning_says_which_cpu() {
        let message = pin_current_thread(&[PuId(5000)]).expect_err("no such cpu").to_string();
        assert!(message.contains("cpus [5000]") && message.contains("1024"), "{message}");
        assert!(pin_current_thread(&[]).is_err());
    }

    #[test]
    fn a_bound_region_is_on_its_node() {
        let Some(nodes) = required("numa-calls", allowed_nodes()) else { return };
        let node = nodes.iter().next().expect("one node");
        let reservation = Reservation::new(3 << 20).expect("address space");
        assert_eq!((reservation.len(), reservation.start().addr() % HUGE_PAGE_BYTES), (4 << 20, 0));
        assert!(!reservation.is_empty());
        let Some(()) = required("numa-calls", reservation.bind(&NodeMask::of(&[node]))) else { return };
        let _huge = required("huge-pages", reservation.advise_huge(true));
        let mut region = reservation.open().expect("memory");
        region.bytes_mut()[..1 << 21].fill(7);
        assert_eq!(region.bytes()[(1 << 21) - 1], 7);
        let homes = nodes_of_pages(region.bytes().as_ptr(), region.bytes().len(), 1).expect("the kernel answers");
        let half = homes.len() / 2;
        assert!(homes[..half].iter().all(|home| *home == PageHome::Node(node)), "{:?}", &homes[..4]);
        assert!(homes[half..].iter().all(|home| *home == PageHome::Untouched), "{:?}", homes.last());
    }

    #[test]
    fn a_node_that_is_not_there_is_an_error() {
        let reservation = Reservation::new(1).expect("address space");
        let nowhere = NodeMask::of(&[crate::base::NodeId(1000)]);
        let message = reservation.bind(&nowhere).expect_err("no such node").to_string();
        assert!(message.contains("bind 2097152 bytes of memory to nodes {1000}"), "{message}");
    }

    #[test]
    fn absurd_sizes_are_errors() {
        assert!(Reservation::new(0).is_err());
        assert!(Reservation::new(usize::MAX).is_err());
    }
}
