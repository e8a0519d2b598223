//! The one door to atomics and threads: the standard library's, or loom's when `--cfg loom` is set.

/// Words of ordinary memory that threads share for a region: always the standard library's, since loom's own have
/// another size than the numbers they lie over. They take part in no protocol.
pub use std::sync::atomic::{AtomicU32, AtomicU64};

#[cfg(not(loom))]
pub(crate) use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
    thread,
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
    thread,
};

/// A value that a protocol guards instead of the borrow checker.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Guarded<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Lends the value's address for reading; the caller's protocol excludes writers meanwhile.
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Lends the value's address for writing; the caller's protocol excludes everybody else meanwhile.
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell as Guarded;

/// A wait in which a thread gives its core away: it yields at first, and sleeps between looks once it has waited for
/// long.
///
/// To yield costs nothing where nobody else wants the core. Where others do, Linux counts it as if the thread had used
/// up its slice (EEVDF since 6.18), and threads that yield to each other may starve one that has work to do for
/// seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Yielding {
    #[cfg(not(loom))]
    since: Option<std::time::Instant>,
}

impl Yielding {
    /// How long it yields: so much longer than a nap that naps make no wait much longer.
    #[cfg(not(loom))]
    const LONG: std::time::Duration = std::time::Duration::from_millis(1);
    /// How long it sleeps between two looks: a 32nd of what it has waited, within these bounds; the kernel adds some 50
    /// us. Who computes on the same core is interrupted twice by every nap: 10,000 of them in a second took a third of
    /// a virtual core from a step's GEMMs.
    #[cfg(not(loom))]
    const NAP: [std::time::Duration; 2] = [std::time::Duration::from_micros(20), std::time::Duration::from_micros(400)];

    /// Lets others have the core for a moment.
    pub fn turn(&mut self) {
        #[cfg(not(loom))]
        {
            let waited = self.since.get_or_insert_with(std::time::Instant::now).elapsed();
            if waited > Self::LONG {
                return thread::sleep((waited / 32).clamp(Self::NAP[0], Self::NAP[1]));
            }
        }
        thread::yield_now();
    }
}
