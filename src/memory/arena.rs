//! One piece of memory a rank, on the rank's node, from before step one to the end.
//!
//! The order is what makes it land there: reserve inaccessible at a 2 MiB boundary, bind, ask for huge pages, open,
//! and only then touch, by the threads that will use it. A region that is writable before it is bound can share a huge
//! page with its neighbour, and that page stays where it is although `mbind` returned 0 (see `ffi::linux`). Afterwards
//! every page is asked where it is, because no return value of the steps before proves it.
//!
//! Regions are handed out in the order of the plan, each once, as [`ArenaSlice`]s that keep the memory alive, so a
//! model can own its parts of the arena.
#![allow(unsafe_code)]

use std::fmt;
use std::io::ErrorKind;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use super::buffer::Supply;
use super::capacity::{Demand, check_capacity};
use super::homes::Homes;
use super::huge::no_huge_pages;
use super::plan::{Plan, Planned, Regions};
use crate::base::units::Bytes;
use crate::base::{Error, NodeId, Result};
use crate::ffi::linux::{Region, Reservation};
use crate::ffi::numa::{NodeMask, allowed_nodes};

/// How an arena came to its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    /// The kernel was told, and takes its pages from nowhere else.
    Bound,
    /// There is one node: every page is at home.
    OneNode,
    /// The kernel forbids binding (its reason), so each page lies where the thread runs that touched it first.
    FirstTouch(String),
}

/// The open memory; invariant: `start..start + len` is `region`'s, and only disjoint slices of it are in use.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// Owns the memory and gives it back; its own views are never asked for again.
    _region: Region,
}

// SAFETY: a Mapping by itself reads and writes nothing; who may touch which bytes is ArenaSlice's matter.
unsafe impl Send for Mapping {}

// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// A rank's memory: bound, touched and verified, of pages of 2 MiB where the kernel finds them free (transparent huge
/// pages), of 4 KiB elsewhere.
pub struct Arena {
    mapping: Arc<Mapping>,
    home: Vec<NodeId>,
    /// What it was planned for.
    regions: Regions,
    binding: Binding,
    homes: Option<Homes>,
    warnings: Vec<String>,
}

impl Arena {
    /// An arena of its own for what `build` builds, which runs twice: to measure, and then with memory; the rest is as
    /// for [`Arena::build`].
    ///
    /// ```no_run
    /// # use octorec::{base::NodeId, memory::{Arena, Supply}};
    /// let build = |supply: &mut Supply<'_>| supply.buffer::<f32>("rows of table 3", 1 << 20);
    /// let (mut rows, _) = Arena::of(&[NodeId(0)], |memory| memory.fill(0), build)?;
    /// rows[7] = 0.5;
    /// # Ok::<(), octorec::base::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `build` and of [`Arena::build`].
    ///
    /// # Panics
    /// As [`Arena::build`], and when `build` states other needs when it runs again.
    pub fn of<T>(
        home: &[NodeId],
        touch: impl FnOnce(&mut [u8]),
        build: impl Fn(&mut Supply<'_>) -> Result<T>,
    ) -> Result<(T, Self)> {
        let mut arena = Self::build(Plan::of(&build)?, home, touch)?;
        Ok((arena.fill(build)?, arena))
    }

    /// Builds the arena of `plan` on the nodes of `home`.
    ///
    /// `touch` gets all bytes and must write to every page, each from a thread that runs on the rank's node: see
    /// [`crate::machine::team::Team::touch`]. Ranks that build their arenas at the same time are checked against their
    /// nodes' capacity together beforehand, with [`check_capacity`]; here each is checked alone.
    ///
    /// # Errors
    /// [`Error::NodeFull`] before anything is touched, [`Error::Placement`] when this process may not use a node of
    /// `home`, [`Error::System`] when the kernel refuses memory. That binding is forbidden is no error but a warning,
    /// and so are pages that are found elsewhere.
    ///
    /// # Panics
    /// When `home` is empty.
    pub fn build(plan: Plan, home: &[NodeId], touch: impl FnOnce(&mut [u8])) -> Result<Self> {
        let (mut region, binding, warnings) = Self::open(plan.bytes(), home)?;
        touch(region.bytes_mut());
        Ok(Self::verified(plan, home, region, binding, warnings))
    }

    /// Memory that nothing has touched yet, how it came to its nodes, and what the user should know.
    fn open(bytes: usize, home: &[NodeId]) -> Result<(Region, Binding, Vec<String>)> {
        assert!(!home.is_empty(), "an arena has a home");
        let route = Route::choose(home)?;
        let mut warnings = Vec::new();
        check_capacity(&[Demand { nodes: home.to_vec(), bytes: bytes as u64 }])?;
        let reservation = Reservation::new(bytes)?;
        let binding = match route {
            Route::OneNode => Binding::OneNode,
            Route::Forbidden(reason) => Binding::FirstTouch(reason),
            Route::Bind => match reservation.bind(&NodeMask::of(home)) {
                Ok(()) => Binding::Bound,
                Err(reason) if forbidden(&reason) => Binding::FirstTouch(reason.to_string()),
                Err(reason) => return Err(reason),
            },
        };
        if let Binding::FirstTouch(reason) = &binding {
            warnings.push(format!("memory is placed by first touch only, the kernel forbids to bind it: {reason}"));
        }
        if let Err(reason) = reservation.advise_huge(true) {
            warnings.push(format!("the kernel chooses the page size itself: {reason}"));
        }
        warnings.extend(no_huge_pages());
        Ok((reservation.open()?, binding, warnings))
    }

    /// An arena of memory that has been touched.
    fn verified(plan: Plan, home: &[NodeId], mut region: Region, binding: Binding, warnings: Vec<String>) -> Self {
        let memory = region.bytes_mut();
        let (start, len) = (NonNull::from(&mut *memory).cast(), memory.len());
        let mapping = Arc::new(Mapping { start, len, _region: region });
        let regions = Regions::of(plan);
        let mut arena = Self { mapping, home: home.to_vec(), regions, binding, homes: None, warnings };
        match arena.ask(home) {
            Ok(homes) => {
                if homes.first_elsewhere.is_some() {
                    arena.warnings.push(format!("an arena for {} is not where it should be: {homes}", nodes(home)));
                }
                arena.homes = Some(homes);
            }
            // Whoever forbids binding usually forbids asking too, and has been reported above.
            Err(_) if matches!(arena.binding, Binding::FirstTouch(_)) => {}
            Err(reason) => arena.warnings.push(format!("where memory lies is not known: {reason}")),
        }
        arena
    }

    /// Builds for good what this arena was planned for: `build` gets its regions, in the order of the plan.
    ///
    /// # Errors
    /// Those of `build`.
    ///
    /// # Panics
    /// When `build` states other needs than the plan has.
    pub fn fill<T>(&mut self, build: impl FnOnce(&mut Supply<'_>) -> Result<T>) -> Result<T> {
        let built = build(&mut Supply::Arena(self))?;
        self.regions.check_all_taken();
        Ok(built)
    }

    /// Hands out the next region of the plan, which was planned for just this need.
    ///
    /// # Panics
    /// When the next region was planned for another need, or there is none.
    pub(super) fn take<T: Pod>(&mut self, name: &str, len: usize) -> ArenaSlice<T> {
        // A region comes once, and those of a plan do not overlap: no other slice has its elements.
        let region = self.regions.take::<T>(name, len);
        assert_eq!(Some(region.bytes), len.checked_mul(size_of::<T>()), "the region was planned for these elements");
        assert!(region.offset + region.bytes <= self.mapping.len, "the arena was built for this plan");
        // SAFETY: offset + bytes <= len (asserted), so the address stays inside the mapping.
        let start = unsafe { self.mapping.start.add(region.offset) };
        assert!(start.addr().get().is_multiple_of(align_of::<T>()), "planned regions are aligned");
        ArenaSlice { mapping: Arc::clone(&self.mapping), start: start.cast(), len, kind: PhantomData }
    }

    /// Size in bytes: whole huge pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.len
    }

    /// How it came there.
    #[must_use]
    pub const fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Where its pages were when it was built; `None` where the kernel does not say.
    #[must_use]
    pub const fn homes(&self) -> Option<&Homes> {
        self.homes.as_ref()
    }

    /// What the user should know; the same words for the same fact, so that a host's ranks can say it once.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Asks the kernel again, against any nodes.
    ///
    /// # Errors
    /// [`Error::System`] when the kernel refuses the call.
    pub fn ask(&self, wanted: &[NodeId]) -> Result<Homes> {
        Homes::ask(self.mapping.start.as_ptr(), self.mapping.len, wanted)
    }

    /// As [`Arena::ask`], of each region of the arena's plan against the arena's nodes: its name, its bytes, and the
    /// pages that have a part of it.
    ///
    /// # Errors
    /// As [`Arena::ask`].
    pub fn ask_regions(&self) -> Result<Vec<(String, usize, Homes)>> {
        /// The smallest page.
        const PAGE: usize = 4096;
        let start = self.mapping.start.as_ptr();
        let ask = |region: &Planned| {
            let pages = region.offset / PAGE * PAGE..(region.offset + region.bytes).next_multiple_of(PAGE);
            let homes = Homes::ask(start.wrapping_add(pages.start), pages.len(), &self.home)?;
            Ok((region.name.clone(), region.bytes, homes))
        };
        self.regions.plan.regions().iter().filter(|region| region.bytes > 0).map(ask).collect()
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} for {}, {:?})", Bytes(self.bytes() as u64), nodes(&self.home), self.binding)
    }
}

/// `len` numbers in an arena: owned like a `Box`, and the arena's memory lives as long as it does.
pub(super) struct ArenaSlice<T> {
    /// Keeps the memory.
    mapping: Arc<Mapping>,
    /// Invariant: `len` elements inside the mapping, aligned, and no other slice has them.
    start: NonNull<T>,
    len: usize,
    kind: PhantomData<T>,
}

// SAFETY: the slice owns its elements alone (invariant of `start`), like a Box.
unsafe impl<T: Send> Send for ArenaSlice<T> {}

// SAFETY: shared access only reads its own elements.
unsafe impl<T: Sync> Sync for ArenaSlice<T> {}

impl<T> ArenaSlice<T> {
    /// Offset from the arena's start in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.start.addr().get() - self.mapping.start.addr().get()
    }
}

impl<T: Pod> Deref for ArenaSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` aligned elements of a live mapping that this slice alone reaches (invariant of `start`); zeroed
        // by the kernel or written as T, and any bits are a T (Pod).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Pod> DerefMut for ArenaSlice<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as `deref`, and `&mut self` is the only access to this slice.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> fmt::Debug for ArenaSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArenaSlice({} elements at {:#x})", self.len, self.offset())
    }
}

/// Which way an arena can come to its home.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    Bind,
    OneNode,
    Forbidden(String),
}

impl Route {
    fn choose(home: &[NodeId]) -> Result<Self> {
        match allowed_nodes() {
            Ok(allowed) => Self::within(home, &allowed.iter().collect::<Vec<_>>()),
            Err(reason) if forbidden(&reason) => Ok(Self::Forbidden(reason.to_string())),
            Err(reason) => Err(reason),
        }
    }

    /// `mbind` would drop a forbidden node silently if it got an allowed one with it.
    fn within(home: &[NodeId], allowed: &[NodeId]) -> Result<Self> {
        if let Some(node) = home.iter().find(|node| !allowed.contains(node)) {
            let reason = format!(
                "memory of {node} does not exist or is not allowed to this process (its cpuset): it may use {}",
                nodes(allowed)
            );
            return Err(Error::Placement { reason });
        }
        Ok(if allowed.len() == 1 { Self::OneNode } else { Self::Bind })
    }
}

/// Whether the kernel has no such call or a filter (container, seccomp) forbids it.
fn forbidden(error: &Error) -> bool {
    let kinds = [ErrorKind::PermissionDenied, ErrorKind::Unsupported];
    matches!(error, Error::System { source, .. } if kinds.contains(&source.kind()))
}

fn nodes(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::base::requirement::required;
    use crate::ffi::linux::HUGE_PAGE_BYTES;
    use crate::memory::Buffer;

    fn allowed() -> Option<Vec<NodeId>> {
        required("numa-calls", allowed_nodes()).map(|nodes| nodes.iter().collect())
    }

    fn touch(bytes: &mut [u8]) {
        bytes.iter_mut().step_by(4096).for_each(|byte| *byte = 0);
    }

    #[test]
    fn regions_are_zero_disjoint_and_outlive_the_arena() {
        let Some(allowed) = allowed() else { return };
        let build = |supply: &mut Supply<'_>| -> Result<(Buffer<f32>, Buffer<u32>, Buffer<f64>)> {
            Ok((supply.buffer("rows", 600_000)?, supply.buffer("ids", 5)?, supply.buffer("none", 0)?))
        };
        let ((mut rows, mut ids, none), arena) = Arena::of(&allowed[..1], touch, build).unwrap();
        assert_eq!(arena.bytes(), 4 << 20);
        let homes = arena.homes().expect("the kernel says where pages are").clone();
        assert!(homes.all_at_home() && homes.pages == arena.bytes() / 4096, "{homes}");
        assert!(arena.warnings().is_empty(), "{:?}", arena.warnings());
        drop(arena);
        // In the order of the plan.
        assert_eq!(ids.as_ptr().addr() - rows.as_ptr().addr(), 600_000 * 4);
        assert_eq!((rows.len(), ids.len(), none.len()), (600_000, 5, 0));
        assert!(rows.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES) && ids.as_ptr().addr().is_multiple_of(64));
        assert!(rows.iter().all(|&x| x == 0.0) && ids.iter().all(|&x| x == 0));
        rows.fill(1.5);
        assert_eq!(*ids, [0; 5]);
        ids.fill(7);
        std::thread::spawn(move || assert!(rows.iter().all(|&x| x == 1.5))).join().unwrap();
        assert_eq!(*ids, [7; 5]);
    }

    /// The flags that the kernel keeps of the mapping at an address (proc(5), VmFlags).
    fn flags_at(address: usize) -> String {
        let text = std::fs::read_to_string("/proc/self/smaps").expect("Linux tells it");
        let mut inside = false;
        for line in text.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let ends = range.map(|(start, end)| [start, end].map(|end| usize::from_str_radix(end, 16)));
            if let Some([Ok(start), Ok(end)]) = ends {
                inside = (start..end).contains(&address);
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
                return format!("{flags} ");
            }
        }
        panic!("nothing is mapped at {address:#x}")
    }

    #[test]
    fn the_kernel_is_asked_for_huge_pages() {
        let Some(allowed) = allowed() else { return };
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if required("huge-pages", enabled).is_none() {
            return;
        }
        let build = |supply: &mut Supply<'_>| supply.buffer::<f32>("rows", 1 << 20);
        let (rows, _) = Arena::of(&allowed[..1], touch, build).unwrap();
        let flags = flags_at(rows.as_ptr().addr());
        assert!(flags.contains(" hg "), "{flags}");
    }

    #[test]
    fn what_does_not_fit_is_refused_before_it_is_touched() {
        let Some(allowed) = allowed() else { return };
        let plan = Plan::of(|supply| supply.buffer::<u8>("everything", 1 << 45)).unwrap();
        let never = |_: &mut [u8]| panic!("nothing may be touched");
        let message = Arena::build(plan.clone(), &allowed[..1], never).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{}: needs 32.0 TiB, has ", allowed[0])), "{message}");
        let message = Arena::build(plan, &[NodeId(1000)], never).unwrap_err().to_string();
        assert!(message.contains("memory of node 1000"), "{message}");
    }

    #[test]
    fn homes_are_chosen_among_allowed_nodes() {
        let ids = [NodeId(0), NodeId(3), NodeId(5)];
        assert_eq!(Route::within(&ids[1..2], &ids[..2]).unwrap(), Route::Bind);
        assert_eq!(Route::within(&ids[..1], &ids[..1]).unwrap(), Route::OneNode);
        let message = Route::within(&ids[1..], &ids[..2]).unwrap_err().to_string();
        assert!(message.contains("memory of node 5") && message.ends_with("it may use node 0, node 3"), "{message}");
    }

    #[test]
    fn only_a_forbidden_call_falls_back_to_first_touch() {
        let error = |number| Error::System { action: "bind".to_owned(), source: io::Error::from_raw_os_error(number) };
        // EPERM, EACCES, ENOSYS; then EINVAL, ENOMEM, EIO.
        assert!([1, 13, 38].into_iter().all(|number| forbidden(&error(number))));
        assert!([22, 12, 5].into_iter().all(|number| !forbidden(&error(number))));
    }
}
