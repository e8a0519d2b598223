//! What to do about a disk that is or will be full; and what a run leaves in its output.
//!
//! Files of the working folder are whole or absent, but not flushed to the disk one by one, which would cost more than
//! making them: whatever a crash of the whole machine took is noticed by its checksum or length and made again.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::SUMMARY;
use super::progress::{Meter, Stage};
use crate::base::console::note;
use crate::base::units::Bytes;
use crate::base::{Error, Result};
use crate::data::blocks::{BlockFile, EXTENSION, MANIFEST};
use crate::data::formats::Table;
use crate::data::unfinished::{listed, name};

/// Says of a full disk what to do about it, and how much is missing where that can be told; other errors stay as they
/// are.
pub(super) fn full(error: Error, meter: &Meter<'_>) -> Error {
    match error {
        Error::Io { path, source, .. }
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            let missing = missing(&path, meter).map_or(String::new(), |(stage, bytes)| {
                format!(" (about {} free are needed for what is left of {})", Bytes(bytes), stage.name())
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
    let (kind, folder) = (path.extension()?.to_str()?, path.parent()?);
    let stage = match kind {
        "part" => Stage::Text,
        EXTENSION => Stage::Blocks,
        _ => return None,
    };
    let (mut done, total) = meter.done(stage);
    if stage == Stage::Blocks {
        // Rows of files that were not finished are counted by the meter, too.
        let rows = |path: &PathBuf| BlockFile::open(path).map_or(0, |file| file.rows());
        done = of_kind(folder, kind).ok()?.iter().map(rows).sum();
    }
    let written = held(folder, kind).ok()?;
    let rest = u128::from(written) * u128::from(total.saturating_sub(done)) / u128::from(done).max(1);
    Some((stage, u64::try_from(rest).ok()?)).filter(|_| done > 0 && written > 0)
}

/// Bytes of the files in a folder that are of this kind.
///
/// # Errors
/// When it cannot be read.
pub(super) fn held(folder: &Path, kind: &str) -> Result<u64> {
    let bytes = |path: PathBuf| fs::metadata(path).map_or(0, |found| found.len());
    Ok(of_kind(folder, kind)?.into_iter().map(bytes).sum())
}

fn of_kind(folder: &Path, kind: &str) -> Result<Vec<PathBuf>> {
    let mine = |path: &PathBuf| path.extension().is_some_and(|extension| extension == kind);
    Ok(listed(folder)?.into_iter().filter(mine).collect())
}

/// Warns where so many bytes more are to be written to a folder, and its disk has fewer free.
pub(super) fn warn_of_small(folder: &Path, bytes: u64) {
    // Some file systems do not tell.
    if let Ok(found) = rustix::fs::statvfs(folder)
        && found.f_blocks > 0
        && let Some(reason) = shortage(bytes, found.f_bavail.saturating_mul(found.f_frsize))
    {
        note!("warning: {}: {reason}", folder.display());
    }
}

/// What to say of a disk with so many bytes free, if more are to come.
fn shortage(bytes: u64, free: u64) -> Option<String> {
    (bytes > free).then(|| {
        format!(
            "its disk has {} free, and the numbers of values and the runs of the shuffle alone take {} there, before any \
             block is written, unless it compresses them: free {} and more, or begin anew with --out on a larger disk; \
             should it get full, what is finished is kept, and the same command goes on from there",
            Bytes(free),
            Bytes(bytes),
            Bytes(bytes - free)
        )
    })
}

/// Whatever a run leaves in its output folder.
///
/// # Errors
/// When it cannot be read.
pub(super) fn outputs(folder: &Path) -> Result<Vec<PathBuf>> {
    let ours = |path: &PathBuf| {
        let ends = |end: &str| path.extension().is_some_and(|extension| extension == end);
        ends(EXTENSION) || ends("vocabulary") || [MANIFEST, SUMMARY].contains(&&*name(path))
    };
    Ok(listed(folder)?.into_iter().filter(ours).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Samples;
    use crate::data::blocks::{Options, Writer};
    use crate::data::formats::Sink;
    use crate::data::samples::Values;
    use crate::data::schema::{Dense, Description};

    #[test]
    fn a_full_disk_says_how_much_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let whole = folder.path().join("part-00000.octo");
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
        let dense = vec![Dense { name: "age".to_owned(), ..Dense::default() }];
        let description = Description { dense, ..Description::default() };
        let mut samples = Samples::new(&description);
        (samples.labels, samples.dense) = (vec![1.0; 100], vec![Values::Integers(vec![7; 100])]);
        let mut writer = Box::new(Writer::create(&whole, &description, Options::default()).unwrap());
        writer.push(&samples).unwrap();
        writer.finish().unwrap();
        // A file of 100 rows, and 50 of one that found no room.
        meter.add(Stage::Blocks, 150);
        let found = told("part-00001.octo", &meter);
        let rest = Bytes(2 * fs::metadata(&whole).unwrap().len());
        let words = format!(
            "free some space (about {rest} free are needed for what is left of writing blocks) and run the same command again"
        );
        assert!(found.contains(&words), "{found}");
        assert!(told("00000.ids", &meter).contains("free some space and run"));
    }

    #[test]
    fn of_a_disk_that_is_too_small_is_told_what_is_missing() {
        assert_eq!(shortage(3 << 20, 3 << 20), None);
        let told = shortage(3 << 20, 1 << 20).unwrap();
        let words = ["has 1.0 MiB free", "take 3.0 MiB there, before any block is written", ": free 2.0 MiB and more"];
        assert!(words.iter().all(|words| told.contains(words)), "{told}");
    }
}
