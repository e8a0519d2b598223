//! Mapped files that somebody cuts short: the pages behind the new end cannot be read, which would end the process with
//! SIGBUS.
//!
//! Instead, the rest of such a mapping becomes zeros, and a mark says that they are none of the file's. Whoever reads
//! from a mapping asks for the mark before it relies on what it read: see [`super::FileMap::check`]. (Wayland's
//! compositors do the same with the memory of their clients.)
//!
//! The list of mappings is walked by a signal handler, so it is made of atomics, and nothing of it is ever freed: a
//! mapping that ends leaves its place to another one.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::base::Unpoisoned;
use crate::ffi::signals::repair_mappings;

/// The smallest page.
const PAGE: usize = 4096;

static FIRST: Watched = Watched::nothing();
/// Held by whoever adds a mapping.
static ADDING: Mutex<()> = Mutex::new(());

/// A mapping that is watched; invariant: while `end` is not 0, `start..end` is mapped by whoever holds this.
#[derive(Debug)]
pub(super) struct Watched {
    start: AtomicUsize,
    /// 0: the place is free.
    end: AtomicUsize,
    lost: AtomicBool,
    next: OnceLock<Box<Watched>>,
}

impl Watched {
    const fn nothing() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            next: OnceLock::new(),
        }
    }

    /// Watches a mapping from now on, until [`Watched::forget`].
    pub(super) fn add(mapping: &[u8]) -> &'static Self {
        // Where the system refuses, files that are cut short end the process, as they do everywhere.
        // SAFETY: `repair` reads and writes atomics and maps pages, no more.
        let _ = unsafe { repair_mappings(repair) };
        let _adding = ADDING.lock().unpoisoned();
        let mut place = &FIRST;
        while place.end.load(Ordering::Acquire) != 0 {
            place = place.next.get_or_init(|| Box::new(Self::nothing()));
        }
        place.lost.store(false, Ordering::Release);
        let start = mapping.as_ptr().expose_provenance();
        place.start.store(start, Ordering::Release);
        // Last: a handler that sees the end sees the start.
        place.end.store(start + mapping.len().max(1), Ordering::Release);
        place
    }

    /// The mapping ends.
    pub(super) fn forget(&self) {
        self.end.store(0, Ordering::Release);
    }

    /// Whether bytes of it were not there when somebody read them.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

/// Puts zeros in the place of what is behind `address` in its mapping; whether it is one of those that are watched.
fn repair(address: usize) -> bool {
    let mut place = Some(&FIRST);
    while let Some(watched) = place {
        let end = watched.end.load(Ordering::Acquire);
        let start = watched.start.load(Ordering::Acquire);
        // A place that went to another mapping between the two would pair its start with the end of the one before.
        let is_pair = watched.end.load(Ordering::Acquire) == end;
        if is_pair && (start..end).contains(&address) {
            let page = address / PAGE * PAGE;
            let len = end.next_multiple_of(PAGE) - page;
            // Before the zeros can be read.
            watched.lost.store(true, Ordering::Release);
            let (at, flags) = (std::ptr::with_exposed_provenance_mut(page), MapFlags::PRIVATE | MapFlags::FIXED);
            // SAFETY: page..page + len lies in a mapping of whole pages that whoever watches it owns (invariant of
            // `end`). What was there turns to zeros, which is a change as one by another program is: of a `FileMap`
            // plain numbers alone are read in place, and zeros are numbers.
            return unsafe { mmap_anonymous(at, len, ProtFlags::READ, flags) }.is_ok();
        }
        place = watched.next.get().map(|next| &**next);
    }
    false
}
