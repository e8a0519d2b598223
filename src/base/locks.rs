//! Locks that somebody held who panicked.

use std::sync::{LockResult, PoisonError};

/// Takes what a lock guards, whether or not a thread has panicked while it held the lock.
///
/// A panic ends the job, and its message is the one to be told. Who finds the lock later ends, too, and may have to
/// tell of it by what the lock guards: a panic of its own, about a lock, would hide the cause.
pub trait Unpoisoned<T> {
    /// The guard, or the value.
    fn unpoisoned(self) -> T;
}

impl<T> Unpoisoned<T> for LockResult<T> {
    fn unpoisoned(self) -> T {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}
