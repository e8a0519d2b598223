//! What a run leaves behind: `config.toml`, `metrics.jsonl`, the checkpoint, the vocabulary and, of several ranks, who
//! held what (`plan.toml`), in one directory; in the folder `best` of it the same of its best model, if that is kept.

mod places;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::config::Config;
use crate::base::{Error, Result, input};
use crate::memory::{FolderLock, WholeFile, append_own, make_folder, refuse_foreign, same_file, write_file};

pub use places::{checkpoint_in, hot_in, plan_in, resume_in, run_files, run_of, vocabulary_in};
use places::{held_in, is_run_itself};

const CONFIG: &str = "config.toml";
const METRICS: &str = "metrics.jsonl";
const CHECKPOINT: &str = "checkpoint.safetensors";
const VOCABULARY: &str = "vocabulary.safetensors";
const PLAN: &str = "plan.toml";
const HOT: &str = "hot.safetensors";
/// With what configuration a run goes on that has saved nothing by it yet.
const RESUME: &str = "resume.toml";
/// How that begins where rows of its data are taken for the model's without a check, because somebody has said so.
pub const ROWS_TAKEN: &str = "rows_taken = true\n";
const FILES: [&str; 7] = [METRICS, RESUME, CONFIG, PLAN, HOT, VOCABULARY, CHECKPOINT];

/// The directory of the best model, which is a run's own as long as nobody trains on from it: who does logs there.
const BEST: &str = "best";
/// The files of a run and of its best model.
const ALL_FILES: [&str; 13] = [
    METRICS,
    "best/resume.toml",
    "best/config.toml",
    "best/plan.toml",
    "best/hot.safetensors",
    "best/vocabulary.safetensors",
    BEST_CHECKPOINT,
    RESUME,
    CONFIG,
    PLAN,
    HOT,
    VOCABULARY,
    CHECKPOINT,
];
const BEST_CHECKPOINT: &str = "best/checkpoint.safetensors";

/// Where the run before waits until the one that replaces it has saved something.
const PREVIOUS: &str = ".previous";

/// A run's directory, to which nobody else writes.
///
/// A run that replaces another moves it aside when it begins, and removes it when it has saved its own first
/// checkpoint; if it ends before, by whatever, the one before comes back. A directory without a checkpoint holds no
/// run, and a file in it that has the name of one of a run's is somebody's own unless a run has begun there.
#[derive(Debug)]
pub struct OutputDir {
    path: PathBuf,
    lock: FolderLock,
    /// From the run's beginning on.
    metrics: Option<BufWriter<File>>,
    /// Folders that were made for it, the innermost first: they go if the run ends before it begins.
    made: Vec<PathBuf>,
    /// What [`OutputDir::resume_with`] has replaced: it comes back if the run ends before it logs anything.
    resumed_before: Option<Option<Vec<u8>>>,
}

impl OutputDir {
    /// Takes a directory for a new run, creating it if need be; with `force` it may hold a run, or files of such names,
    /// which stay until [`OutputDir::begin`].
    ///
    /// # Errors
    /// [`Error::OutputTaken`] when it holds a run, [`Error::Config`] when it holds other files of such names, or the
    /// folder of its best model holds a run of its own, [`Error::OutputBusy`] when another process writes to it, or
    /// when the system refuses.
    pub fn create(path: &Path, force: bool) -> Result<Self> {
        let output = Self::claim(path)?;
        let best = path.join(BEST);
        let [is_run, is_best] = [path, &held_in(&best)].map(|run| run.join(CHECKPOINT).exists());
        if is_run && !force {
            return Err(Error::OutputTaken { path: path.to_owned() });
        }
        if !is_run && !force && !has_begun(path) {
            refuse_others(path)?;
        }
        // Beside no checkpoint nobody knows whose it is.
        if is_best && !is_run || is_run_itself(&best) {
            let (path, best) = (path.display(), best.display());
            let reason = format!(
                "{best} holds a run of its own, and a run in {path} keeps its best model there: choose another folder, or move \
                 {best} elsewhere"
            );
            return Err(Error::config("--out", reason));
        }
        Ok(output)
    }

    /// Takes a directory, and knows which folders were made for it.
    fn claim(path: &Path) -> Result<Self> {
        let made = path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let made = made.map(Path::to_owned).collect();
        make_folder(path)?;
        let mut output = Self::take(path)?;
        output.made = made;
        Ok(output)
    }

    /// Takes the directory of a run that is to be continued.
    ///
    /// # Errors
    /// [`Error::OutputBusy`] when another process writes to it, or when the system refuses.
    pub fn resume(path: &Path) -> Result<Self> {
        Self::take(path)
    }

    fn take(path: &Path) -> Result<Self> {
        // In a folder that comes from others they may lead to what is no part of it.
        refuse_foreign(path, ALL_FILES.into_iter().chain([BEST]))?;
        refuse_foreign(path, ALL_FILES.map(|name| Path::new(PREVIOUS).join(name)))?;
        let lock = FolderLock::take(path)?;
        let output = Self { path: path.to_owned(), lock, metrics: None, made: Vec::new(), resumed_before: None };
        output.bring_back()?;
        Ok(output)
    }

    /// Notes with what configuration the run goes on from here, if that is another one than its checkpoint's: whoever
    /// resumes it does so, too, until a checkpoint has it. A run that ends by an error before its first step takes that
    /// back; after a kill it stays. `rows_taken`: so are rows of its data taken for the model's ([`ROWS_TAKEN`]).
    ///
    /// # Errors
    /// When the system refuses.
    pub fn resume_with(&mut self, config: Option<&Config>, rows_taken: bool) -> Result<()> {
        let file = self.path.join(RESUME);
        self.resumed_before = Some(fs::read(&file).ok());
        match config {
            Some(config) => {
                let taken = if rows_taken { ROWS_TAKEN } else { "" };
                write_file(&file, format!("{taken}{}", config.to_toml()).as_bytes())
            }
            None => removed(fs::remove_file(&file), &file),
        }
    }

    /// Nothing was trained by the configuration that [`OutputDir::resume_with`] has noted, which goes: the run is as it
    /// was saved.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn leave_untrained(&mut self) -> Result<()> {
        // Without one, what was noted before says the same as the checkpoint.
        self.resumed_before.take_if(|_| !self.path.join(RESUME).exists());
        self.take_back()
    }

    /// Brings back what [`OutputDir::resume_with`] has replaced, unless something was logged or saved since.
    fn take_back(&mut self) -> Result<()> {
        let file = self.path.join(RESUME);
        match self.resumed_before.take() {
            None => Ok(()),
            Some(Some(bytes)) => write_file(&file, &bytes),
            Some(None) => removed(fs::remove_file(&file), &file),
        }
    }

    /// Takes the directory within it of the best model.
    ///
    /// # Errors
    /// As [`OutputDir::resume`], and [`Error::Config`] when somebody has trained on from there.
    pub fn best(&self) -> Result<Self> {
        let best = self.path.join(BEST);
        if is_run_itself(&best) {
            let (path, best) = (self.path.display(), best.display());
            let reason = format!(
                "{best} was trained on and is a run of its own now, and {path} keeps its best model there: move {best} \
                 elsewhere, or use --set train.keep_best=false"
            );
            return Err(Error::config("train.keep_best", reason));
        }
        Self::claim(&best)
    }

    /// Makes room for a new run's files: what the directory holds moves aside.
    ///
    /// # Errors
    /// [`Error::OutputBusy`] when another process writes to the directory of the best model, or when the system
    /// refuses.
    pub fn begin(&mut self) -> Result<()> {
        let best = self.path.join(BEST);
        let is_kept = [CHECKPOINT, BEST_CHECKPOINT].iter().all(|name| self.path.join(name).exists());
        let is_ours = is_kept && !is_run_itself(&best);
        let best_lock = is_ours.then(|| FolderLock::take(&best)).transpose()?;
        // A folder of that name without a checkpoint, or beside none, is the user's own.
        let ours = |name: &&str| best_lock.is_some() || !name.starts_with(BEST);
        let held = ALL_FILES.into_iter().filter(|name| ours(name) && self.path.join(name).exists());
        let held: Vec<_> = held.collect();
        if held.contains(&CHECKPOINT) {
            let aside = self.path.join(PREVIOUS);
            // What was left there of a run has come back: what is there is somebody's own.
            [&*aside, &*aside.join(BEST)].into_iter().try_for_each(refuse_others)?;
            fs::create_dir_all(&aside).map_err(Error::io(&aside, "create"))?;
            // The checkpoint first, and last on its way back: where it is, its run is, with files that have not moved
            // yet.
            let first_to_last: Vec<_> = held.into_iter().rev().collect();
            move_files(&first_to_last, &self.path, &aside)?;
        } else {
            // The metrics last: as long as anything of a run that has begun is there, they say so.
            held.iter().rev().try_for_each(|name| remove(&self.path.join(name)))?;
        }
        if let Some(lock) = best_lock {
            lock.remove_if_alone(&best);
            removed(fs::remove_dir(&best), &best)?;
        }
        self.open_metrics()
    }

    /// Takes back what the run had logged after `step` steps, and where an evaluation `is_due` after that one, what was
    /// logged of it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn rewind(&mut self, step: u64, is_due: bool) -> Result<()> {
        let is_past = |entry: Entry| entry.step < step || entry.step == step && !(is_due && entry.kind == "eval");
        let file = self.path.join(METRICS);
        match File::open(&file) {
            Ok(before) => {
                // Line by line: those of a long run are many.
                let mut kept = WholeFile::create(&file)?;
                for line in BufReader::new(before).split(b'\n') {
                    let line = line.map_err(Error::io(&file, "read"))?;
                    if logged(&line).is_some_and(is_past) {
                        kept.append(&line)?;
                        kept.append(b"\n")?;
                    }
                }
                kept.finish()?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(&file, "read")(error)),
        }
        self.open_metrics()
    }

    fn open_metrics(&mut self) -> Result<()> {
        let file = self.path.join(METRICS);
        let metrics = append_own(&file)?;
        // What else the run writes is told by it from a user's own files, whatever a machine that fails has lost.
        let synced = metrics.sync_all().and_then(|()| File::open(&self.path)?.sync_all());
        synced.map_err(Error::io(&file, "create"))?;
        self.metrics = Some(BufWriter::new(metrics));
        Ok(())
    }

    /// Brings a run back that was moved aside for one that has saved nothing.
    fn bring_back(&self) -> Result<()> {
        let aside = self.path.join(PREVIOUS);
        if self.path.join(CHECKPOINT).exists() || !aside.join(CHECKPOINT).exists() {
            return remove_run(&aside);
        }
        // The metrics are the last to move aside: what is here is not of the run that comes back.
        if aside.join(METRICS).exists() {
            FILES.iter().try_for_each(|name| removed(fs::remove_file(self.path.join(name)), &self.path.join(name)))?;
        }
        let held: Vec<_> = ALL_FILES.into_iter().filter(|name| aside.join(name).exists()).collect();
        move_files(&held, &aside, &self.path)?;
        remove_run(&aside)
    }

    /// The files of its run, and of the best model.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        ALL_FILES.iter().map(|name| self.path.join(name)).collect()
    }

    /// Whether an input is a file that a new run moves aside or removes: what a run before does not need any more may
    /// be named to the one that replaces it, but for hot rows, which a run goes on reading.
    #[must_use]
    pub fn would_lose(&self, input: &Path) -> bool {
        let is = |name: &&str| same_file(&self.path.join(name), input);
        ALL_FILES.iter().any(|name| is(name) && (name.ends_with(HOT) || !self.path.join(CHECKPOINT).exists()))
    }

    /// A checkpoint was saved: what it replaces goes, and the configuration that it has now.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn saved(&mut self) -> Result<()> {
        self.resumed_before = None;
        let file = self.path.join(RESUME);
        removed(fs::remove_file(&file), &file)?;
        remove_run(&self.path.join(PREVIOUS))
    }

    /// Makes the directory again if somebody has removed it; whether that was so.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn recreate(&mut self) -> Result<bool> {
        if self.path.is_dir() {
            return Ok(false);
        }
        fs::create_dir_all(&self.path).map_err(Error::io(&self.path, "create"))?;
        self.lock = FolderLock::take(&self.path)?;
        // Nothing is logged in the directory of the best model.
        if self.metrics.is_some() {
            self.open_metrics()?;
        }
        Ok(true)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the run's checkpoint is or will be.
    #[must_use]
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join(CHECKPOINT)
    }

    /// Where the run's vocabulary is or will be.
    #[must_use]
    pub fn vocabulary(&self) -> PathBuf {
        self.path.join(VOCABULARY)
    }

    /// Where the run's plan is, if it has had several ranks.
    #[must_use]
    pub fn plan(&self) -> PathBuf {
        self.path.join(PLAN)
    }

    /// Where the run's hot rows and the tags of its inputs are, if hot and cold ones take turns.
    #[must_use]
    pub fn hot(&self) -> PathBuf {
        self.path.join(HOT)
    }

    /// Writes who holds what: the run goes on with it, whatever another plan would be predicted to give.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_plan(&self, plan: &str) -> Result<()> {
        write_file(&self.plan(), plan.as_bytes())
    }

    /// Writes the resolved configuration.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_config(&self, config: &Config) -> Result<()> {
        write_file(&self.path.join(CONFIG), config.to_toml().as_bytes())
    }

    /// Appends one JSON object to the metrics.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn log(&mut self, entry: &impl Serialize) -> Result<()> {
        self.resumed_before = None;
        let line = serde_json::to_string(entry).expect("a metrics entry is representable in JSON");
        let metrics = self.metrics.as_mut().expect("the run has begun");
        writeln!(metrics, "{line}").map_err(Error::io(&self.path.join(METRICS), "write"))
    }

    /// Hands all metrics to the system.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        let flushed = self.metrics.as_mut().map_or(Ok(()), BufWriter::flush);
        flushed.map_err(Error::io(&self.path.join(METRICS), "write"))
    }
}

impl Drop for OutputDir {
    fn drop(&mut self) {
        if self.metrics.is_some() && self.path.join(PREVIOUS).is_dir() {
            // What this run has written without a checkpoint gives way; if that fails, the next start does it.
            let _ = self.bring_back();
        }
        let _ = self.take_back();
        if self.metrics.is_none() {
            self.lock.remove_if_new(&self.path);
            // Folders that hold something else stay.
            let _ = self.made.iter().try_for_each(fs::remove_dir);
        }
    }
}

fn move_files(names: &[&str], from: &Path, to: &Path) -> Result<()> {
    if names.iter().any(|name| name.starts_with(BEST)) {
        fs::create_dir_all(to.join(BEST)).map_err(Error::io(&to.join(BEST), "create"))?;
    }
    names
        .iter()
        .try_for_each(|name| fs::rename(from.join(name), to.join(name)).map_err(Error::io(&from.join(name), "move")))
}

fn remove(file: &Path) -> Result<()> {
    fs::remove_file(file).map_err(Error::io(file, "remove"))
}

/// Removes the files of a run and of its best model, and the folder if it holds nothing else. The checkpoint is the
/// first that comes there and the last that goes: without one, nothing there is of a run.
fn remove_run(folder: &Path) -> Result<()> {
    if folder.join(CHECKPOINT).exists() {
        ALL_FILES.iter().try_for_each(|name| removed(fs::remove_file(folder.join(name)), &folder.join(name)))?;
    }
    [&*folder.join(BEST), folder].into_iter().try_for_each(|folder| removed(fs::remove_dir(folder), folder))
}

/// What is not there need not be removed, nor a folder that others use.
fn removed(result: std::io::Result<()>, path: &Path) -> Result<()> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => Ok(()),
        result => result.map_err(Error::io(path, "remove")),
    }
}

/// Whether a run has begun in a directory, saved or not: its metrics are there, with a run's lines or with nothing.
/// Zeros are nothing: a machine that fails may leave them where lines had not come to the disk.
#[must_use]
pub fn has_begun(run: &Path) -> bool {
    /// No line of a run's is as long.
    const LONGEST: u64 = 1 << 16;
    let mut start = Vec::new();
    let file = input::open(&run.join(METRICS)).ok();
    let read = file.and_then(|file| file.take(LONGEST).read_to_end(&mut start).ok());
    let zeros = start.iter().take_while(|byte| **byte == 0).count();
    // Behind zeros comes the end of a line, perhaps.
    let mut lines = start[zeros..].split(|byte| *byte == b'\n').take(if zeros > 0 { 2 } else { 1 });
    read.is_some() && (zeros == start.len() || lines.any(|line| logged(line).is_some()))
}

/// Refuses a directory for the files in it that a run would replace.
fn refuse_others(path: &Path) -> Result<()> {
    let others = FILES.into_iter().map(|name| path.join(name)).filter(|file| file.exists());
    let others: Vec<_> = others.map(|file| file.display().to_string()).collect();
    if others.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "this run's own files would replace {}: move {} elsewhere, or choose another folder",
        others.join(" and "),
        if others.len() == 1 { "it" } else { "them" }
    );
    Err(Error::config("--out", reason))
}

/// What a metrics line is of.
#[derive(Deserialize)]
struct Entry {
    kind: String,
    step: u64,
}

/// That of a line; `None` for one that was cut off, or lost with its machine.
fn logged(line: &[u8]) -> Option<Entry> {
    serde_json::from_slice(line).ok()
}

#[cfg(test)]
mod tests;
