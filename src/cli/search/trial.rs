//! One trial: an ordinary `octorec train` in a process of its own, on cores of its own, watched by its metrics.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::journal::Found;
use crate::base::config::size_variables;
use crate::base::interrupt::EXIT_CODE;
use crate::base::{Error, Result};
use crate::ffi::child::{interrupt, start_bound};
use crate::memory::FolderLock;
use crate::train::checkpoint_in;

/// A run's metrics.
const METRICS: &str = "metrics.jsonl";

/// How often a trial is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where a trial's files are: its run's directory, and beside it its configuration, what it said and what it found.
#[derive(Debug, Clone)]
pub struct Files {
    pub run: PathBuf,
    pub configuration: PathBuf,
    pub said: PathBuf,
    pub results: PathBuf,
}

impl Files {
    pub fn of(folder: &Path, number: u64) -> Self {
        let name = format!("trial-{number:03}");
        let file = |extension: &str| folder.join(format!("{name}.{extension}"));
        Self { run: folder.join(&name), configuration: file("toml"), said: file("log"), results: file("json") }
    }

    /// The trial whose file, or run, has this name.
    pub fn number_of(name: &str) -> Option<u64> {
        name.split('.').next()?.strip_prefix("trial-")?.parse().ok()
    }

    /// What the trial's process has told at its end, if it came there.
    pub fn results(&self) -> Option<Value> {
        serde_json::from_str(&fs::read_to_string(&self.results).ok()?).ok()
    }

    /// When its checkpoint was written, in ns since 1970; 0 where there is none.
    pub fn saved(&self) -> u64 {
        let at = fs::metadata(checkpoint_in(&self.run)).and_then(|file| file.modified());
        let since = at.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        since.map_or(0, |since| since.as_nanos() as u64)
    }

    /// Seconds of its steps up to one, as its log has them, and of these with the evaluations between.
    pub fn seconds_until(&self, step: u64) -> [f64; 2] {
        let metrics = fs::read_to_string(self.run.join(METRICS)).unwrap_or_default();
        let entries = metrics.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut seconds = [0.0; 2];
        for entry in entries.filter(|entry| entry["step"].as_u64().is_some_and(|at| at <= step)) {
            let ms = entry["ms"].as_f64().unwrap_or(0.0);
            seconds[0] += if entry["kind"] == "step" { ms / 1e3 } else { 0.0 };
            seconds[1] += ms / 1e3;
        }
        seconds
    }

    /// The last line that the trial has said: why it failed, unless a signal has ended it.
    fn last_words(&self, signal: Option<i32>) -> String {
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        signal.map_or_else(|| last.to_owned(), |signal| format!("ended by signal {signal} behind the words: {last}"))
    }
}

/// How the process ended.
pub enum Ended {
    /// With its results, as `train --json` prints them.
    Done(Value),
    /// After it was asked to, with them if it had some.
    Stopped(Value),
    /// By somebody else, and how: it may go on.
    CutShort(String),
    /// By signal 9, as the system does where memory is short: it may go on, unless it is its own need that is too much.
    Killed,
    /// With what it said last.
    Failed(String),
}

/// Runs a trial to its end, until `goes_on` says otherwise of an evaluation, or until nobody is `wanted` any more. Of
/// evaluations behind the one that ends it nothing is told, however late it is noticed.
///
/// # Errors
/// When the process cannot be started, or its files cannot be read.
pub fn run(files: &Files, mut goes_on: impl FnMut(Found) -> Result<bool>, wanted: impl Fn() -> bool) -> Result<Ended> {
    if !wait_until_free(&files.run, &wanted)? {
        return Ok(Ended::Stopped(Value::Null));
    }
    let mut metrics = Metrics::new(files.run.join(METRICS));
    let (mut last, mut decided) = (None, false);
    let mut judge = |metrics: &mut Metrics| {
        for found in metrics.new_evaluations()? {
            if !decided && last.is_none_or(|last| found.step > last) {
                last = Some(found.step);
                decided = !goes_on(found)?;
            }
        }
        Ok((last, decided))
    };
    // It may have come to its end just when a search before was stopped.
    if let Some(results) = files.results().filter(|results| results["outcome"] != "interrupted") {
        let (last, decided) = judge(&mut metrics)?;
        let is_done = !decided || results["step"].as_u64() == last;
        return Ok(if is_done { Ended::Done(results) } else { Ended::Stopped(results) });
    }
    let mut child = start(files)?;
    let mut asked = false;
    let (status, last, decided) = loop {
        let ended = child.try_wait().map_err(Error::io(&files.run, "wait for the process of"))?;
        let (last, decided) = judge(&mut metrics)?;
        if let Some(status) = ended {
            break (status, last, decided);
        }
        if !asked && (decided || !wanted()) {
            asked = true;
            interrupt(&mut child);
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let results = files.results();
    Ok(match results {
        // It had come to its end by then.
        Some(results) if status.success() && (!decided || results["step"].as_u64() == last) => Ended::Done(results),
        results if status.success() || asked => Ended::Stopped(results.unwrap_or_default()),
        _ if status.signal() == Some(9) => Ended::Killed,
        _ => cut_short(status).map_or_else(|| Ended::Failed(files.last_words(status.signal())), Ended::CutShort),
    })
}

/// How somebody else has ended a process that the search has not asked to stop; nothing where it has failed by itself,
/// as one does that crashes. Signal 9 is not among them ([`Ended::Killed`]).
fn cut_short(status: ExitStatus) -> Option<String> {
    // SIGHUP, SIGINT, SIGTERM and SIGXCPU.
    const BY_OTHERS: [i32; 4] = [1, 2, 15, 24];
    match status.signal() {
        Some(signal) => BY_OTHERS.contains(&signal).then(|| format!("was ended by signal {signal}")),
        None => (status.code() == Some(i32::from(EXIT_CODE))).then(|| "was interrupted".to_owned()),
    }
}

/// Waits for a process that a search before has left to let go of the run's directory; false when nobody is wanted any
/// more.
fn wait_until_free(run: &Path, wanted: &impl Fn() -> bool) -> Result<bool> {
    loop {
        match FolderLock::take(run).map(|_| ()) {
            Err(Error::OutputBusy { .. }) if wanted() => std::thread::sleep(LOOK_EVERY),
            Err(Error::OutputBusy { .. }) => return Ok(false),
            Err(error) if run.exists() => return Err(error),
            // Nobody has it, or it is not there yet.
            _ => return Ok(true),
        }
    }
}

fn start(files: &Files) -> Result<Child> {
    let mut command = command(files)?;
    let create = |path: &Path| File::create(path).map_err(Error::io(path, "create"));
    command.stdin(Stdio::null()).stdout(create(&files.results)?).stderr(create(&files.said)?);
    start_bound(&mut command).map_err(Error::io(&files.run, "start the process of"))
}

/// What a trial is started as: alone, whatever job its search may be a process of.
fn command(files: &Files) -> Result<Command> {
    let program = std::env::current_exe().map_err(Error::io(Path::new("octorec"), "find the program"))?;
    let mut command = Command::new(program);
    command.arg("train").arg("--json");
    if checkpoint_in(&files.run).exists() {
        command.arg("--resume").arg(&files.run);
    } else {
        command.arg("--config").arg(&files.configuration).arg("--out").arg(&files.run).arg("--force");
    }
    for name in size_variables() {
        command.env_remove(name);
    }
    Ok(command)
}

/// A run's metrics, read as they grow.
struct Metrics {
    path: PathBuf,
    /// The file that was read, and how much of it: one that replaces it is read from its start.
    inode: u64,
    read: u64,
}

impl Metrics {
    const fn new(path: PathBuf) -> Self {
        Self { path, inode: 0, read: 0 }
    }

    /// Evaluations since the last call; of a file that was replaced, all.
    fn new_evaluations(&mut self) -> Result<Vec<Found>> {
        // It may not be there yet, or be just replaced.
        let Ok(mut file) = File::open(&self.path) else { return Ok(Vec::new()) };
        let inode = file.metadata().map_err(Error::io(&self.path, "read"))?.ino();
        if std::mem::replace(&mut self.inode, inode) != inode {
            self.read = 0;
        }
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(self.read)).map_err(Error::io(&self.path, "read"))?;
        file.read_to_end(&mut text).map_err(Error::io(&self.path, "read"))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        let lines = text[..whole].split(|byte| *byte == b'\n');
        let entries = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        // By test samples no trial is chosen where others are for that.
        let evaluations = entries.filter(|entry| entry["kind"] == "eval" && entry["split"] != "test");
        let found = evaluations.filter_map(|entry| {
            Some(Found {
                step: entry["step"].as_u64()?,
                auc: entry["auc"].as_f64(),
                logloss: entry["logloss"].as_f64(),
            })
        });
        Ok(found.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_somebody_else_has_ended_has_not_failed() {
        // As wait(2) tells them: signals, then codes.
        let of = |status: i32| cut_short(ExitStatus::from_raw(status));
        assert_eq!(of(15).as_deref(), Some("was ended by signal 15"));
        assert_eq!(of(130 << 8).as_deref(), Some("was interrupted"));
        assert_eq!([of(11), of(6), of(1 << 8), of(101 << 8)], [None, None, None, None]);
        assert_eq!(
            ["trial-007.toml", "trial-1000", "trial-x", "space.toml"].map(Files::number_of),
            [Some(7), Some(1000), None, None]
        );
    }

    #[test]
    fn a_trial_is_told_of_no_launcher() {
        let folder = tempfile::tempdir().unwrap();
        let command = command(&Files::of(folder.path(), 3)).unwrap();
        let removed: Vec<_> =
            command.get_envs().filter(|(_, text)| text.is_none()).map(|(name, _)| name.to_owned()).collect();
        assert_eq!(removed, ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"]);
    }

    #[test]
    fn metrics_are_read_as_they_grow() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut metrics = Metrics::new(path.clone());
        assert!(metrics.new_evaluations().unwrap().is_empty());
        let mut text =
            "{\"kind\":\"step\",\"step\":1}\n{\"kind\":\"eval\",\"step\":1,\"auc\":0.5,\"logloss\":null}\n{\"ki"
                .to_owned();
        fs::write(&path, &text).unwrap();
        assert_eq!(metrics.new_evaluations().unwrap(), [Found { step: 1, auc: Some(0.5), logloss: None }]);
        text += "nd\":\"eval\",\"step\":2,\"split\":\"validation\",\"auc\":0.75,\"logloss\":0.5}\n";
        text += "{\"kind\":\"eval\",\"step\":3,\"split\":\"test\",\"auc\":0.8,\"logloss\":0.4}\n";
        fs::write(&path, &text).unwrap();
        assert_eq!(metrics.new_evaluations().unwrap(), [Found { step: 2, auc: Some(0.75), logloss: Some(0.5) }]);
        assert!(metrics.new_evaluations().unwrap().is_empty());
        // As a run that is resumed replaces it.
        let other = folder.path().join("other");
        fs::write(&other, &text).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(metrics.new_evaluations().unwrap().len(), 2);
    }

    #[test]
    fn seconds_of_processes_before_count() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::of(folder.path(), 3);
        assert!(files.seconds_until(u64::MAX) == [0.0; 2], "nothing is there yet");
        fs::create_dir(&files.run).unwrap();
        let step = |step: u64| format!("{{\"kind\": \"step\", \"step\": {step}, \"ms\": 500.0}}\n");
        let evaluation = "{\"kind\": \"eval\", \"step\": 4, \"ms\": 250.0}\n";
        let text = (1..=4).map(step).collect::<String>()
            + evaluation
            + &(5..=10).map(step).collect::<String>()
            + "{\"kind\": \"st";
        fs::write(files.run.join(METRICS), text).unwrap();
        assert_eq!(files.seconds_until(4), [2.0, 2.25]);
        assert_eq!(files.seconds_until(3), [1.5, 1.5]);
        assert!(files.seconds_until(0) == [0.0; 2], "the first process");
    }
}
