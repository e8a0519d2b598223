//! The folder of a data set: who may write to it, what an earlier run left in it, and how a new data set takes its
//! place.
//!
//! Everything is written into a working folder, beside an older data set, which stays and can be read until the new one
//! is whole. Then the old one goes and the new files move into its place, the manifest last. A kill in the middle of
//! that is mended by the next run, whatever it was asked for.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::disk::{listed, outputs, remove};
use super::journal::{Earlier, Journal};
use super::shards::SHARDED;
use super::{Options, SUMMARY};
use crate::base::{Error, Result};
use crate::data::blocks::{MANIFEST, Manifest};
use crate::memory::{FolderLock, make_folder, same_file, whole_name, write_file};

const WORK: &str = "unfinished";
/// The file that says that the data set in the working folder is whole and on its way out.
const MOVING: &str = "moving";

/// An output folder, to which nobody else writes.
pub(super) struct Output {
    folder: PathBuf,
    /// What is worked on, and what is finished.
    pub(super) work: PathBuf,
    _lock: FolderLock,
}

/// What there is for a run to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Something: what an earlier attempt has finished is there.
    Goes,
    /// Nothing: an earlier attempt was killed in its last acts, which were done now.
    Finished,
}

impl Output {
    /// Takes a run's output folder for these input files.
    ///
    /// # Errors
    /// When an input would be replaced or another process writes to the folder.
    pub(super) fn take(options: &Options, inputs: &[PathBuf]) -> Result<Self> {
        let folder = options.out.clone();
        let work = folder.join(WORK);
        let mut ours = outputs(&folder)?;
        ours.extend(listed(&work)?);
        ours.extend([folder.clone(), work.clone()]);
        let lost = |input: &&PathBuf| ours.iter().any(|output| same_file(output, input));
        if let Some(path) = options.inputs.iter().chain(inputs).chain(&options.vocabulary).find(lost).cloned() {
            let reason = format!("is an input that would be lost to --out {}: choose another --out", folder.display());
            return Err(Error::bad_file(path, reason));
        }
        make_folder(&folder)?;
        let lock = FolderLock::take(&folder)?;
        Ok(Self { folder, work, _lock: lock })
    }

    /// Makes the working folder ready and keeps what an earlier attempt has finished; the journal takes over its sizes.
    /// `known` tells an older vocabulary, once it is clear that values are still to be numbered by it.
    ///
    /// # Errors
    /// When the folder holds a data set or another run, unless they may be replaced by `force`, and those of `known`.
    pub(super) fn begin(
        &self,
        journal: &mut Journal,
        force: bool,
        known: impl FnOnce() -> Result<Option<String>>,
    ) -> Result<Start> {
        if self.work.join(MOVING).exists() {
            let earlier = journal.compare(&self.work);
            self.move_out()?;
            if matches!(earlier, Ok(Earlier::Same { changed, .. }) if changed.is_empty()) {
                return Ok(Start::Finished);
            }
        }
        journal.known = known()?;
        let earlier = journal.compare(&self.work);
        let fail = |path: &Path, reason: &str| Err(Error::bad_file(path, reason));
        if !force && self.folder.join(MANIFEST).exists() {
            return fail(&self.folder, "holds a data set already: replace it with --force, or choose another --out");
        }
        let earlier = if force { earlier.unwrap_or(Earlier::None) } else { earlier? };
        match earlier {
            Earlier::None => {
                if !force && let Some(taken) = outputs(&self.folder)?.first() {
                    return fail(taken, "is of another data set: remove it with --force, or choose another --out");
                }
                let held = listed(&self.work)?;
                // The journal is the first that comes, in a file beside its own, and the last that goes.
                let (journals, others): (Vec<_>, Vec<_>) =
                    held.iter().partition(|path| whole_name(&name(path)).starts_with("journal"));
                if !Journal::is_in(&self.work) && !others.is_empty() {
                    return fail(
                        &self.work,
                        "is where unfinished work goes, and holds something else: move it away, or choose another --out",
                    );
                }
                for path in others.into_iter().chain(journals) {
                    if path.is_dir() { remove_folder(path)? } else { remove(path)? }
                }
                remove_folder(&self.work)?;
                fs::create_dir_all(&self.work).map_err(Error::io(&self.work, "create"))?;
            }
            Earlier::Same { work, changed } => {
                journal.work = work;
                self.forget(&changed)?;
            }
        }
        journal.write(&self.work)?;
        Ok(Start::Goes)
    }

    /// Removes what nobody finished, which would only take room until it is begun anew, the parts of inputs that have
    /// changed, and whatever was made of them.
    fn forget(&self, changed: &[usize]) -> Result<()> {
        for path in listed(&self.work)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let input = name.strip_suffix(".part").and_then(|name| name.split('-').next()?.parse().ok());
            let stale = !changed.is_empty() && input.is_none_or(|input: usize| changed.contains(&input));
            let unfinished = whole_name(&name) != name || path.extension().is_some_and(|end| end == SHARDED);
            if unfinished || stale && name != "journal.json" {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// The data set in the working folder is whole: it takes its place.
    ///
    /// # Errors
    /// When the system refuses; the next run goes on from there.
    pub(super) fn finish(&self) -> Result<()> {
        write_file(&self.work.join(MOVING), b"")?;
        self.move_out()
    }

    /// As often as it is called, whatever was moved before.
    fn move_out(&self) -> Result<()> {
        let (from, to) = (self.work.join(MANIFEST), self.folder.join(MANIFEST));
        if from.exists() {
            let manifest = Manifest::read(&self.work)?;
            let parts = manifest.parts.into_iter().map(|part| part.file);
            let vocabularies = manifest.schema.categorical.into_iter().map(|column| column.vocabulary);
            let new: HashSet<String> = parts.chain(vocabularies).chain([SUMMARY.to_owned()]).collect();
            // Without its manifest the old data is none; nobody reads old and new together.
            remove(&to)?;
            for old in outputs(&self.folder)? {
                if !new.contains(&*name(&old)) {
                    remove(&old)?;
                }
            }
            for path in outputs(&self.work)?.iter().filter(|path| **path != from) {
                let to = self.folder.join(&*name(path));
                fs::rename(path, &to).map_err(Error::io(&to, "create"))?;
            }
            fs::rename(&from, &to).map_err(Error::io(&to, "create"))?;
            File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(Error::io(&self.folder, "write"))?;
        }
        // Last of all what says that nothing else is left to do.
        for path in listed(&self.work)?.iter().filter(|path| name(path) != MOVING) {
            if path.is_dir() { remove_folder(path)? } else { remove(path)? }
        }
        remove_folder(&self.work)
    }
}

fn name(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn remove_folder(path: &Path) -> Result<()> {
    if path.is_dir() { fs::remove_dir_all(path).map_err(Error::io(path, "remove")) } else { Ok(()) }
}
