//! The mark of a data set that is being written: its writer holds the mark's lock and removes it at the end. Where that
//! one was killed, the mark stays and says of which format its files are, so that they are told from anybody else's.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Format, bad, csv, hugectr, mlperf, nvidia, parquet};
use crate::base::{Error, Result};
use crate::data::blocks::{EXTENSION, MANIFEST};
use crate::memory::{FolderLock, listed, whole_name};

const MARK: &str = ".unfinished";

/// A data set that is being written; dropped before [`Unfinished::finish`], nothing of it stays.
pub(super) struct Unfinished {
    folder: PathBuf,
    format: Format,
    finished: bool,
    _lock: FolderLock,
}

impl Unfinished {
    /// Marks a folder that is there, and removes what a writer left in it that was killed.
    ///
    /// # Errors
    /// When the folder holds a data set, a file of the kind that will be written, or another process writes to it.
    pub(super) fn begin(folder: &Path, format: Format) -> Result<Self> {
        let mark = folder.join(MARK);
        let lock = FolderLock::take_by(folder, MARK)?;
        let killed = fs::read_to_string(&mark).unwrap_or_default();
        let since = fs::metadata(&mark).and_then(|mark| mark.modified()).ok();
        let killed = Format::WRITTEN.iter().find(|format| format.name() == killed);
        // Killed behind its last act, it has left a data set.
        let left = killed.filter(|killed| !folder.join(last(**killed)).exists());
        let begun = left
            .map_or(Ok(()), |left| remove_written(folder, *left, since))
            .and_then(|()| refuse_taken(folder, format))
            .and_then(|()| fs::write(&mark, format.name()).map_err(Error::io(&mark, "write")));
        if let Err(error) = begun {
            let _ = fs::remove_file(&mark);
            return Err(error);
        }
        Ok(Self { folder: folder.to_owned(), format, finished: false, _lock: lock })
    }

    /// The data set is whole.
    ///
    /// # Errors
    /// When the mark cannot be removed.
    pub(super) fn finish(mut self) -> Result<()> {
        self.finished = true;
        let mark = self.folder.join(MARK);
        fs::remove_file(&mark).map_err(Error::io(&mark, "remove"))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // If this fails, the mark stays, and whoever writes next does it.
        if !self.finished && remove_written(&self.folder, self.format, None).is_ok() {
            let _ = fs::remove_file(self.folder.join(MARK));
        }
    }
}

/// The file that is written last.
fn last(format: Format) -> &'static str {
    match format {
        Format::Octorec => MANIFEST,
        Format::Mlperf => mlperf::COUNTS,
        Format::Nvidia => nvidia::SPEC,
        _ => super::SCHEMA,
    }
}

/// Whether a format has a file of this name, or a folder with such files.
fn writes(format: Format, name: &str) -> bool {
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    name == super::SCHEMA
        || name == last(format)
        || match format {
            Format::Octorec => name.starts_with("part-") && ends(&[EXTENSION]) || ends(&[".vocabulary"]),
            Format::Mlperf => name.starts_with("octorec_") && mlperf::role(name).is_some(),
            Format::Hugectr => hugectr::role(name).is_some(),
            Format::Torchrec => {
                ["day_0_", "val_", "test_"].iter().any(|stem| name.starts_with(stem)) && ends(&[".npy", ".npz"])
            }
            Format::Nvidia | Format::Parquet => ["train", "val", "valid", "test"].contains(&name),
            Format::Csv | Format::Fae => false,
        }
}

/// Whether octorec writes a file of this name to the folder of a role.
fn writes_within(format: Format, name: &str) -> bool {
    match format {
        Format::Nvidia => nvidia::writes(name),
        _ => name == parquet::PART,
    }
}

/// The files of a format in a folder, whole or not, by name.
fn written(folder: &Path, format: Format) -> Result<Vec<PathBuf>> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut all = Vec::new();
    for path in listed(folder, "list")?.into_iter().filter(|path| writes(format, whole_name(&name(path)))) {
        if path.is_dir() {
            let of_ours = |path: &PathBuf| {
                let name = name(path);
                [".bin", ".parquet"].iter().any(|end| whole_name(&name).ends_with(end))
            };
            all.extend(listed(&path, "list")?.into_iter().filter(of_ours));
        } else {
            all.push(path);
        }
    }
    Ok(all)
}

/// Removes what octorec writes of a format, unless it lay there before: `since` is when the mark was written.
fn remove_written(folder: &Path, format: Format, since: Option<SystemTime>) -> Result<()> {
    let own = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let changed = || fs::symlink_metadata(path).and_then(|file| file.modified());
        (path.parent() == Some(folder) || writes_within(format, whole_name(&name)))
            && since.is_none_or(|since| changed().is_ok_and(|at| at >= since))
    };
    for path in written(folder, format)?.into_iter().filter(own) {
        fs::remove_file(&path).map_err(Error::io(&path, "remove"))?;
        if let Some(within) = path.parent().filter(|within| *within != folder) {
            // Unless something else is in it.
            let _ = fs::remove_dir(within);
        }
    }
    Ok(())
}

/// What names of files end in that may be tables of text: reports and notes, which lie beside data, may look like one.
const TEXT: [&str; 6] = ["", "tsv", "txt", "inter", "data", "dat"];

/// Refuses a folder whose files are read as one table of text, which it would not be any more.
///
/// # Errors
/// That names one of them.
pub fn refuse_text(folder: &Path) -> Result<()> {
    let is_text = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let plain = [".gz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        let day = plain.strip_prefix("day_").is_some_and(|day| day.parse::<u64>().is_ok());
        let ending = Path::new(plain).extension().unwrap_or_default();
        let sniffed = || TEXT.iter().any(|text| ending == *text) && csv::sniff::is_table(path);
        path.is_file() && !name.starts_with(['.', '_']) && (day || ending == "csv" || sniffed())
    };
    listed(folder, "list")?.iter().find(|path| is_text(path)).map_or(Ok(()), |path| {
        let reason = "is text, of which all files of a folder are read as one table: choose another directory, or move it \
                      away";
        Err(bad(path, reason))
    })
}

/// Refuses a folder in which files would be written over, or be mixed with others.
fn refuse_taken(folder: &Path, format: Format) -> Result<()> {
    let marked = [MANIFEST, nvidia::SPEC, mlperf::COUNTS, super::SCHEMA];
    if marked.iter().any(|name| folder.join(name).exists()) || Format::detect(folder).is_some() {
        return Err(bad(folder, "holds a data set already: choose another directory, or remove this one"));
    }
    refuse_text(folder)?;
    let is_whole = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        whole_name(&name) == name
    };
    let taken = written(folder, format)?.into_iter().find(is_whole);
    match taken {
        None => Ok(()),
        Some(taken) => {
            let reason =
                format!("has the name of a file of {}: choose another directory, or move it away", format.name());
            Err(bad(&taken, reason))
        }
    }
}
