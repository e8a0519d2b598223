//! A disk that is or will be full says what to do; and what a run leaves in its output.
//!
//! Files of the working folder are whole or absent, but not flushed to the disk one by one, which would cost more than
//! making them: whatever a crash of the whole machine took is noticed by its checksum or length and made again.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::SUMMARY;
use super::gather::Source;
use super::progress::{Meter, Stage};
use crate::base::units::Bytes;
use crate::base::{Error, Result};
use crate::data::blocks::{EXTENSION, MANIFEST};
use crate::memory;

/// Says of a full disk what to do about it, and how much is missing where that can be told; other errors stay as they
/// are.
pub(super) fn full(error: Error, meter: &Meter<'_>) -> Error {
    match error {
        Error::Io { path, source, .. }
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            let missing = missing(&path, meter).map_or(String::new(), |(stage, bytes)| {
                format!(", about {} for what is left of {},", Bytes(bytes), stage.name())
            });
            let reason = format!(
                "the disk is full ({source}): what is finished is kept; free some space{missing} and run the same command again"
            );
            Error::bad_file(path, reason)
        }
        other => other,
    }
}

/// Of the stage that writes such files, and what it has written so far, how many bytes the rest of it takes.
fn missing(path: &Path, meter: &Meter<'_>) -> Option<(Stage, u64)> {
    let kind = path.extension()?.to_str()?;
    let stage = match kind {
        "part" => Stage::Text,
        EXTENSION => Stage::Blocks,
        _ => return None,
    };
    let (done, total) = meter.done(stage);
    let written = held(path.parent()?, kind).ok()?;
    let rest = u128::from(written) * u128::from(total.saturating_sub(done)) / u128::from(done).max(1);
    Some((stage, u64::try_from(rest).ok()?)).filter(|_| done > 0 && written > 0)
}

/// Bytes of the files in a folder that are of this kind.
///
/// # Errors
/// When it cannot be read.
pub(super) fn held(folder: &Path, kind: &str) -> Result<u64> {
    let mine = |path: &PathBuf| path.extension().is_some_and(|extension| extension == kind);
    let bytes = |path: PathBuf| fs::metadata(path).map_or(0, |found| found.len());
    Ok(listed(folder)?.into_iter().filter(mine).map(bytes).sum())
}

/// Refuses to go on where so many bytes more are sure to be written to the folder of these parts, and its disk has
/// fewer free; one that compresses what is written may hold more than its size.
///
/// # Errors
/// [`Error::BadFile`] with what is missing.
pub(super) fn refuse_small(folder: &Path, parts: &[Source], bytes: u64) -> Result<()> {
    let stored = |part: &Source| fs::metadata(&part.path).map_or(0, |found| 512 * found.blocks());
    let written: u64 = parts.iter().map(|part| part.contents.bytes()).sum();
    match rustix::fs::statvfs(folder) {
        // Some file systems do not tell.
        Ok(found) if found.f_blocks > 0 && parts.iter().map(stored).sum::<u64>() >= written => {
            refuse_beyond(folder, bytes, found.f_bfree.saturating_mul(found.f_frsize))
        }
        _ => Ok(()),
    }
}

fn refuse_beyond(folder: &Path, bytes: u64, free: u64) -> Result<()> {
    if bytes <= free {
        return Ok(());
    }
    let reason = format!(
        "its disk has {} free, and the numbers of values and the runs of the shuffle alone take {} there, before any block is \
         written: free {} and more, and run the same command again, which goes on from here; or begin anew with --out on a \
         larger disk",
        Bytes(free),
        Bytes(bytes),
        Bytes(bytes - free)
    );
    Err(Error::bad_file(folder, reason))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_says_how_much_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("part-00000.octo"), [0; 2048]).unwrap();
        fs::write(folder.path().join("00000-00000000.part"), [0; 9]).unwrap();
        let told = |name: &str, meter: &Meter<'_>| {
            let full = std::io::Error::from(ErrorKind::StorageFull);
            super::full(Error::io(&folder.path().join(name), "write")(full), meter).to_string()
        };
        let nobody = |_: Stage, _: u64, _: u64| ();
        let meter = Meter::new(&nobody);
        meter.expect(Stage::Blocks, 300);
        let found = told("part-00001.octo", &meter);
        assert!(found.contains("is kept; free some space and run the same command again"), "{found}");
        meter.add(Stage::Blocks, 100);
        let found = told("part-00001.octo", &meter);
        let rest = "free some space, about 4.0 KiB for what is left of writing blocks, and run the same command again";
        assert!(found.contains(rest), "{found}");
        assert!(told("00000.ids", &meter).contains("free some space and run"));
    }

    #[test]
    fn a_disk_that_is_too_small_is_refused_with_what_is_missing() {
        let folder = Path::new("blocks/unfinished");
        assert!(refuse_beyond(folder, 3 << 20, 3 << 20).is_ok());
        let told = refuse_beyond(folder, 3 << 20, 1 << 20).unwrap_err().to_string();
        let words = ["has 1.0 MiB free", "take 3.0 MiB there, before any block is written: free 2.0 MiB and more"];
        assert!(words.iter().all(|words| told.contains(words)), "{told}");
    }
}
