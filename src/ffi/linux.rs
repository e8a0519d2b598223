//! Linux calls that place threads and reserve memory.
//!
//! A [`Reservation`] fixes the order that the kernel needs: reserve inaccessible, bind, choose the page size, and only
//! then open for use. A mapping that is writable before it is bound can share a transparent huge page with its
//! neighbour, and those pages then stay on the neighbour's node although `mbind` returned 0.

use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use rustix::thread::sched_getcpu;

use super::numa::{NodeMask, bind_region};
use crate::base::{Error, PuId, Result};

/// The size of a huge page on x86-64 in bytes, and the alignment of every [`Reservation`].
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The most cpus of a host: Linux counts no more on x86-64 (CONFIG_NR_CPUS).
pub const PUS_MOST: usize = 1 << 13;

const WORD_BITS: usize = c_ulong::BITS as usize;

/// A set of processing units in the kernel's layout, with a bit for each that Linux can count.
///
/// C libraries' own type ends at 1024. The kernel refuses to fill such a set where it counts more cpus, be they only
/// possible ones, however few this process may use; of a set that is longer than it needs it ignores the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PuMask([c_ulong; PUS_MOST / WORD_BITS]);

impl PuMask {
    const NONE: Self = Self([0; PUS_MOST / WORD_BITS]);
    const ALL: Self = Self([c_ulong::MAX; PUS_MOST / WORD_BITS]);

    /// The set of `pus`, unless one is beyond all that Linux can count.
    fn of(pus: &[PuId]) -> io::Result<Self> {
        let mut mask = Self::NONE;
        for pu in pus {
            let beyond = || io::Error::other(format!("{pu} is beyond the {PUS_MOST} cpus that Linux can count"));
            *mask.0.get_mut(pu.index() / WORD_BITS).ok_or_else(beyond)? |= 1 << (pu.index() % WORD_BITS);
        }
        Ok(mask)
    }

    /// What is in the set, ascending.
    fn pus(&self) -> Vec<PuId> {
        let has = |pu: &PuId| self.0[pu.index() / WORD_BITS] >> (pu.index() % WORD_BITS) & 1 == 1;
        (0..PUS_MOST as u32).map(PuId).filter(has).collect()
    }
}

/// Writes the set of processing units that the current thread may run on, and zeros behind it.
fn get_affinity(words: &mut [c_ulong]) -> io::Result<()> {
    // SAFETY: 0 means this thread. `words` is as long in bytes as is said, all of them writable; the pointer's type
    // says nothing of the length, as with sets of CPU_ALLOC(3).
    let answer = unsafe { libc::sched_getaffinity(0, size_of_val(words), words.as_mut_ptr().cast()) };
    if answer == 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    if source.raw_os_error() != Some(libc::EINVAL) {
        return Err(source);
    }
    let bits = words.len() * WORD_BITS;
    Err(io::Error::other(format!("the kernel counts more than {bits} cpus: boot it with nr_cpus={bits}")))
}

/// Lets the current thread run on these processing units only, as far as its control group allows.
fn set_affinity(mask: &PuMask) -> io::Result<()> {
    // SAFETY: 0 means this thread. The mask is as long in bytes as is said; they are only read, and the pointer's type
    // says nothing of the length.
    let answer = unsafe { libc::sched_setaffinity(0, size_of_val(&mask.0), mask.0.as_ptr().cast()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the current thread run on `pus` only. Those that this process may not use are dropped silently when it may use
/// one of the others.
///
/// # Errors
/// [`Error::System`] when the list is empty, holds a number that is not below [`PUS_MOST`], or names no processing unit
/// that this process may use.
pub fn pin_current_thread(pus: &[PuId]) -> Result<()> {
    PuMask::of(pus).and_then(|mask| set_affinity(&mask)).map_err(|source| {
        let action = format!("pin this thread to cpus {:?}", pus.iter().map(|pu| pu.0).collect::<Vec<_>>());
        Error::System { action, source }
    })
}

/// Lets the current thread, and those that it starts, run wherever the process's control group allows.
///
/// # Errors
/// [`Error::System`] when the kernel refuses.
pub fn unpin_current_thread() -> Result<()> {
    let failed = |source| Error::System { action: "let this process use all cpus".to_owned(), source };
    set_affinity(&PuMask::ALL).map_err(failed)
}

/// The processing units that the current thread may run on, ascending.
///
/// # Errors
/// [`Error::System`] when the kernel refuses, e.g. because it counts more than [`PUS_MOST`] of them.
pub fn current_affinity() -> Result<Vec<PuId>> {
    let mut mask = PuMask::NONE;
    let failed = |source| Error::System { action: "read this thread's affinity".to_owned(), source };
    get_affinity(&mut mask.0).map_err(failed)?;
    Ok(mask.pus())
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
    fn a_mask_holds_all_cpus_that_linux_counts() {
        let pus = [0, 63, 64, 1023, 1024, 1375, 8191].map(PuId);
        let mask = PuMask::of(&pus).expect("numbers that Linux has");
        assert_eq!(mask.pus(), pus);
        let set: Vec<_> =
            mask.0.iter().enumerate().filter(|(_, word)| **word != 0).map(|(at, word)| (at, *word)).collect();
        assert_eq!(set, [(0, 1 | 1 << 63), (1, 1), (15, 1 << 63), (16, 1), (21, 1 << 31), (127, 1 << 63)]);
        assert_eq!((PuMask::NONE.pus().len(), PuMask::ALL.pus().len()), (0, 8192));
        assert_eq!(PuMask::of(&[]).expect("no number is none that Linux has"), PuMask::NONE);
    }

    #[test]
    fn a_kernel_that_counts_more_cpus_than_a_mask_has_is_an_error_with_a_remedy() {
        let message = get_affinity(&mut []).expect_err("there is a cpu").to_string();
        assert_eq!(message, "the kernel counts more than 0 cpus: boot it with nr_cpus=0");
        let mut words = [c_ulong::MAX; PUS_MOST / WORD_BITS];
        get_affinity(&mut words).expect("Linux has no more");
        assert_eq!(PuMask(words).pus(), current_affinity().expect("affinity can be read"), "zeros behind");
    }

    #[test]
    fn impossible_pinning_says_which_cpu() {
        let home = current_affinity().expect("affinity can be read");
        // As the kernel has it: beyond 1024, and no cpu of this machine.
        for (pus, text) in [(&[PuId(5000)][..], "cpus [5000]"), (&[PuId(5000), PuId(8191)], "cpus [5000, 8191]")] {
            let Err(Error::System { action, source }) = pin_current_thread(pus) else { panic!("no such cpu") };
            assert_eq!((action, source.raw_os_error()), (format!("pin this thread to {text}"), Some(libc::EINVAL)));
        }
        let message = pin_current_thread(&[home[0], PuId(8192)]).expect_err("no such cpu").to_string();
        assert!(message.contains("8192]: cpu 8192 is beyond the 8192 cpus that Linux can count"), "{message}");
        let Err(Error::System { source, .. }) = pin_current_thread(&[]) else { panic!("nowhere to run") };
        assert_eq!(source.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(current_affinity().expect("affinity can be read"), home, "where it was");
        // What a set holds beyond the kernel's cpus does not matter.
        pin_current_thread(&[home[0], PuId(5000)]).expect("an allowed cpu is among them");
        assert_eq!(current_affinity().expect("affinity can be read"), home[..1]);
        pin_current_thread(&home).expect("the way back");
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
