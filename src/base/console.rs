//! What people and scripts read: notes on standard error, results on standard output.
//!
//! Nobody has to read: a note that cannot be written is lost and ends nothing. A result that nobody wants any more,
//! because its pipe is closed, is no error either, unless the caller says that it matters; a full disk is one.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, OnceLock};

use serde::Serialize;

use super::{Error, Result};
use crate::base::Unpoisoned;

/// Of several machines, the one that this process is, where it is not the first: that one tells for all.
static OTHER_MACHINE: OnceLock<usize> = OnceLock::new();

/// The warnings and notes that were told, which the objects of `--json` have, too.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on this process tells only what goes wrong, as machine `number`.
pub fn speak_as_other_machine(number: usize) {
    let _ = OTHER_MACHINE.set(number);
}

/// Writes a line to standard error, or nothing if that is not possible.
pub fn write_note(line: fmt::Arguments<'_>) {
    let mut line = format!("{line}\n");
    if let Some(machine) = OTHER_MACHINE.get() {
        if !line.starts_with("warning: ") && !line.starts_with("error: ") {
            return;
        }
        line = format!("machine {machine}: {line}");
    }
    if let Some(("warning" | "note", _)) = line.split_once(": ") {
        let mut warnings = WARNINGS.lock().unpoisoned();
        warnings.push(line.trim_end().to_owned());
    }
    // One write a line, so that lines of several threads do not mix.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// A name of a file's, in which nothing moves the cursor of whoever reads it.
#[must_use]
pub fn escaped(name: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    name.chars().map(shown).collect()
}

/// The warnings and notes so far, in their order, each as it was told: "warning: ..." or "note: ...".
#[must_use]
pub fn warnings() -> Vec<String> {
    WARNINGS.lock().unpoisoned().clone()
}

/// Writes a result to standard output, of several machines the first one alone.
///
/// # Errors
/// When it cannot be written for another reason than a closed pipe.
pub fn result(text: fmt::Arguments<'_>) -> Result<()> {
    told(text).map(|_| ())
}

/// Writes a result as one line of JSON to standard output: see [`result`].
///
/// # Errors
/// As [`result`].
pub fn json(report: &impl Serialize) -> Result<()> {
    json_told(report).map(|_| ())
}

/// The same; whether somebody could read it.
///
/// # Errors
/// As [`result`].
pub fn json_told(report: &impl Serialize) -> Result<bool> {
    let text = serde_json::to_string(report).expect("plain data with string keys is JSON");
    told(format_args!("{text}\n"))
}

fn told(text: fmt::Arguments<'_>) -> Result<bool> {
    if OTHER_MACHINE.get().is_some() {
        return Ok(true);
    }
    let mut stdout = io::stdout().lock();
    match stdout.write_fmt(text).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(source) => Err(Error::Io { path: "standard output".into(), action: "write", source }),
    }
}

/// A report as a person or a script wants it.
pub fn shown<R: Serialize + fmt::Display>(report: &R, json: bool) -> String {
    if json { pretty(report) } else { report.to_string() }
}

/// A report as JSON that people can read, too.
pub fn pretty(report: &impl Serialize) -> String {
    serde_json::to_string_pretty(report).expect("plain data with string keys is JSON") + "\n"
}

/// [`write_note`], formatted as by `println!`.
macro_rules! note {
    ($($text:tt)*) => { $crate::base::console::write_note(format_args!($($text)*)) };
}
pub(crate) use note;
