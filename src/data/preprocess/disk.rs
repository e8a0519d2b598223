//! A full disk says what to do; and what a run leaves in its output.
//!
//! Files of the working folder are whole or absent, but not flushed to the disk one by one, which would cost more than
//! making them: whatever a crash of the whole machine took is noticed by its checksum or length and made again.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::SUMMARY;
use crate::base::{Error, Result};
use crate::data::blocks::{EXTENSION, MANIFEST};
use crate::memory;

/// Says of a full disk what to do about it; other errors stay as they are.
pub(super) fn full(error: Error) -> Error {
    match error {
        Error::Io { path, source, .. }
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            let reason = format!(
                "the disk is full ({source}): what is finished is kept; free some space and run the same command again"
            );
            Error::bad_file(path, reason)
        }
        other => other,
    }
}

/// Removes a file that may be absent.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(path, "remove")(error)),
        _ => Ok(()),
    }
}

/// What lies in a folder; nothing if there is none.
///
/// # Errors
/// When it cannot be read.
pub(super) fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    memory::listed(folder, "read")
}

/// Whatever a run leaves in its output folder.
///
/// # Errors
/// When it cannot be read.
pub(super) fn outputs(folder: &Path) -> Result<Vec<PathBuf>> {
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ends = |end: &str| path.extension().is_some_and(|extension| extension == end);
        ends(EXTENSION) || ends("vocabulary") || [MANIFEST, SUMMARY].contains(&&name[..])
    };
    Ok(listed(folder)?.into_iter().filter(ours).collect())
}
