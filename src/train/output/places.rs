//! Where the files of a run lie, there or not, and which run a file is of.

use std::path::{Path, PathBuf};

use super::{ALL_FILES, BEST, CHECKPOINT, FILES, HOT, METRICS, PLAN, PREVIOUS, RESUME, VOCABULARY};

/// The checkpoint that `path` means: itself if it is a file, or that of the run in it.
#[must_use]
pub fn checkpoint_in(path: &Path) -> PathBuf {
    if path.is_dir() { held_in(path).join(CHECKPOINT) } else { path.to_owned() }
}

/// The files of the run in a directory, or of that whose checkpoint this is, and of its best model, there or not; of a
/// best model those of the run that keeps it, too.
#[must_use]
pub fn run_files(path: &Path) -> Vec<PathBuf> {
    let held = if path.is_dir() { held_in(path) } else { path.parent().unwrap_or(path).to_owned() };
    let keeper = held.parent().filter(|run| held.ends_with(BEST) && run.join(CHECKPOINT).exists());
    let runs = [Some(&*held), keeper].into_iter().flatten();
    runs.flat_map(|run| ALL_FILES.iter().map(|name| run.join(name))).collect()
}

/// The directory of the run of which this is a file, if it is one that is there.
#[must_use]
pub fn run_of(file: &Path) -> Option<PathBuf> {
    let file = file.canonicalize().ok().filter(|file| file.is_file())?;
    let run = file.parent().filter(|run| run.join(CHECKPOINT).exists())?;
    FILES.iter().any(|name| file.ends_with(name)).then(|| run.to_owned())
}

/// Where the plan of the run in a directory is, if it has had several ranks.
#[must_use]
pub fn plan_in(path: &Path) -> PathBuf {
    held_in(path).join(PLAN)
}

/// Where the configuration is with which the run in a directory goes on, if its checkpoint has another one.
#[must_use]
pub fn resume_in(path: &Path) -> PathBuf {
    held_in(path).join(RESUME)
}

/// Where the hot rows of the run in a directory are, if its hot and cold inputs take turns.
#[must_use]
pub fn hot_in(path: &Path) -> PathBuf {
    held_in(path).join(HOT)
}

/// The vocabulary beside the checkpoint that `path` means.
#[must_use]
pub fn vocabulary_in(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.with_file_name(VOCABULARY);
    }
    let (run, here) = (held_in(path), path.join(VOCABULARY));
    let held = run.join(VOCABULARY);
    // A kill may have come before it was moved aside, too; the metrics are the last to be.
    let moved = run != path && run.join(METRICS).exists();
    if moved || held.exists() { held } else { here }
}

/// Whether a folder of a best model holds one that was trained on, or has never been another run's.
pub(super) fn is_run_itself(best: &Path) -> bool {
    [CHECKPOINT, METRICS].iter().all(|name| held_in(best).join(name).exists())
}

/// Where a directory's run is: aside, while one that shall replace it has saved nothing.
pub(super) fn held_in(path: &Path) -> PathBuf {
    let aside = path.join(PREVIOUS);
    if !path.join(CHECKPOINT).exists() && aside.join(CHECKPOINT).exists() { aside } else { path.to_owned() }
}
