//! The folder of a data set: what an earlier run left in it, and what of that is of use.

use std::path::{Path, PathBuf};

use super::Options;
use super::disk::outputs;
use super::journal::{Earlier, Journal};
use super::shards::SHARDED;
use crate::base::{Error, Result};
use crate::data::Unfinished;
use crate::data::blocks::MANIFEST;
use crate::data::unfinished::{JOURNAL, WORK, is_moving, listed, name, remove};
use crate::memory::{same_file, whole_name};

/// An output folder, to which nobody else writes.
pub(super) struct Output {
    folder: PathBuf,
    /// What is worked on, and what is finished.
    pub(super) work: PathBuf,
    unfinished: Unfinished,
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
        Ok(Self { unfinished: Unfinished::take(&folder)?, folder, work })
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
        if is_moving(&self.folder) {
            let earlier = journal.compare(&self.work);
            self.unfinished.move_out()?;
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
                self.unfinished.empty("another --out")?;
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
            let name = name(&path);
            let input = name.strip_suffix(".part").and_then(|name| name.split('-').next()?.parse().ok());
            let stale = !changed.is_empty() && input.is_none_or(|input: usize| changed.contains(&input));
            let unfinished = whole_name(&name) != name || path.extension().is_some_and(|end| end == SHARDED);
            if unfinished || stale && name != JOURNAL {
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
        let names = |folder: &Path| -> Result<Vec<String>> {
            Ok(outputs(folder)?.iter().map(|path| name(path).into_owned()).collect())
        };
        self.unfinished.replace(names(&self.folder)?, names(&self.work)?, MANIFEST)
    }
}
