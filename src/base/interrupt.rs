//! The wish to stop: Ctrl-C or another signal sets a flag that long loops look at between steps.
//!
//! The wish is for an orderly end, in which a checkpoint is written. Whoever takes signals says that there is one
//! (`ffi::signals`).

use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a process that was asked to stop by a signal: 128 + SIGINT.
pub const EXIT_CODE: u8 = 130;

// Relaxed everywhere: the flag carries no data, it is only looked at again and again.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Asks this process to stop; a signal's handler may do so.
pub fn request() {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// Whether somebody asked this process to stop.
#[must_use]
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
