//! The wish to stop: Ctrl-C or SIGTERM sets a flag that long loops look at between steps.
//!
//! The first signal asks for an orderly end (a checkpoint is written); the second ends the process at once.

use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{Error, Result};

/// The exit code of a process that was asked to stop by a signal: 128 + SIGINT.
pub const EXIT_CODE: u8 = 130;

// Relaxed everywhere: the flag carries no data, it is only looked at again and again.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Takes over SIGINT, SIGTERM and SIGHUP for this process.
///
/// # Errors
/// When the operating system refuses the handler, or when one is installed already.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(EXIT_CODE));
        }
    })
    .map_err(|source| Error::Signals { source })
}

/// Whether somebody asked this process to stop.
#[must_use]
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}
