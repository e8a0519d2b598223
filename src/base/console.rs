//! What people and scripts read: notes on standard error, results on standard output.
//!
//! Nobody has to read: a note that cannot be written is lost and ends nothing. A result that nobody wants any more, because
//! its pipe is closed, is no error either, unless the caller says that it matters; a full disk is one.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use super::{Error, Result};

/// Writes a line to standard error, or nothing if that is not possible.
pub fn write_note(line: fmt::Arguments<'_>) {
    // One write a line, so that lines of several threads do not mix.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Writes a result to standard output; whether somebody could read it.
///
/// # Errors
/// When it cannot be written for another reason than a closed pipe.
pub fn result(text: fmt::Arguments<'_>) -> Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(source) => Err(Error::Io { path: "standard output".into(), action: "write", source }),
    }
}

/// [`write_note`], formatted as by `println!`.
macro_rules! note {
    ($($text:tt)*) => { $crate::base::console::write_note(format_args!($($text)*)) };
}
pub(crate) use note;
