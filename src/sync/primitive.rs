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
