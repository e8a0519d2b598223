//! One case of the campaign: its own folder and chances, what it did, and the promises that it found broken.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tempfile::TempDir;

use super::process::{Ended, Line, Running};
use super::results::Results;
use super::stock::Stock;
use crate::chance::Chance;

/// A case while it runs.
pub struct Case<'a> {
    /// Sound files.
    pub stock: &'a Stock,
    /// What it draws.
    pub chance: Chance,
    folder: TempDir,
    /// What it counts as, if its family tells cases apart.
    pub kind: String,
    /// Processes that a signal was sent to.
    pub kills: usize,
    /// Inputs that were damaged.
    pub damages: usize,
    /// Command lines that ran.
    pub lines: Vec<String>,
    /// Promises that were broken, in words.
    pub broken: Vec<String>,
    /// Why it did nothing, where it did nothing.
    pub skipped: Option<String>,
}

impl<'a> Case<'a> {
    /// Case `number` of the campaign with this seed.
    pub fn new(stock: &'a Stock, seed: u64, number: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let chance = Chance::new(seed, number);
        let (kind, lines, broken) = (String::new(), Vec::new(), Vec::new());
        Self { stock, chance, folder, kind, kills: 0, damages: 0, lines, broken, skipped: None }
    }

    /// A place in the case's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Notes a broken promise.
    pub fn broke(&mut self, line: &Line, what: impl AsRef<str>, ended: Option<&Ended>) {
        let words = ended.map(|ended| format!("; its last words: {}", ended.last_words())).unwrap_or_default();
        self.broken.push(format!("{}: {line}{words}", what.as_ref()));
    }

    /// Starts a command.
    pub fn start(&mut self, line: &Line) -> Running {
        self.lines.push(line.to_string());
        line.start(&self.stock.program)
    }

    /// Runs a command that nothing disturbs.
    pub fn run(&mut self, line: &Line) -> Ended {
        let running = self.start(line);
        self.end(line, running)
    }

    /// As [`Case::run`], of a command that must succeed.
    pub fn succeeds(&mut self, line: &Line, why: &str) -> Option<Ended> {
        let ended = self.run(line);
        if ended.succeeded() {
            return Some(ended);
        }
        if matches!(ended.code(), Some(1 | 2 | 130)) {
            self.broke(line, format!("{why}, but exit code {:?}", ended.code()), Some(&ended));
        }
        None
    }

    /// As [`Case::run`], of a command whose input may be bad: if it fails, its message must hold one of `names`.
    pub fn told(&mut self, line: &Line, names: &[&str]) -> Ended {
        let ended = self.run(line);
        self.names(line, &ended, names);
        ended
    }

    /// Whether a failure's message holds one of `names`. Numbers that were damaged may be good ones and yet too large
    /// to learn from: such a training diverges, whatever its files are called.
    pub fn names(&mut self, line: &Line, ended: &Ended, names: &[&str]) {
        if ended.stderr.contains("diverged") {
            return;
        }
        if ended.code() == Some(1) && !names.iter().any(|name| ended.stderr.contains(name)) {
            self.broke(line, format!("the message names none of {}", names.join(", ")), Some(ended));
        }
    }

    /// As [`Case::end`], of a process whose messages nobody may have read.
    pub fn end_unread(&mut self, line: &Line, running: Running) -> Ended {
        self.hold(line, running.end(), true)
    }

    /// Waits for a process and holds it to what every process promises.
    pub fn end(&mut self, line: &Line, running: Running) -> Ended {
        self.hold(line, running.end(), false)
    }

    fn hold(&mut self, line: &Line, ended: Ended, unread: bool) -> Ended {
        let heard = |signal: &Signal| [Signal::TERM, Signal::INT, Signal::HUP].contains(signal);
        if ended.stderr.contains("panicked at") || ended.stderr.contains("has overflowed its stack") {
            self.broke(line, "a panic", Some(&ended));
        } else if ended.hung {
            self.broke(line, "it hangs", Some(&ended));
        } else if let Some(number) = ended.signal() {
            match ended.signals.iter().find(|signal| signal.as_raw() == number) {
                None => self.broke(line, format!("signal {number} ended it"), Some(&ended)),
                // A message was printed, so it was past its first milliseconds.
                Some(signal) if *signal != Signal::KILL && line.heeds_signals() && !ended.stderr.is_empty() => {
                    self.broke(line, format!("signal {number} ended it in the middle"), Some(&ended));
                }
                Some(_) => (),
            }
        } else {
            match ended.code() {
                Some(0 | 2) => (),
                Some(1) if unread || ended.stderr.contains("error: ") => (),
                Some(1) => self.broke(line, "it fails without a word", Some(&ended)),
                Some(130) if ended.signals.iter().any(heard) => (),
                code => self.broke(line, format!("exit code {code:?}"), Some(&ended)),
            }
        }
        ended
    }

    /// A folder in which a command is to leave its results; empty.
    pub fn results(&self) -> PathBuf {
        let folder = self.path("results");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    /// Holds files to those that were expected.
    pub fn same(&mut self, line: &Line, what: &str, found: &Results, expected: &Results) {
        if let Some(difference) = found.difference(expected) {
            self.broke(line, format!("{what}: {difference}"), None);
        }
    }

    /// What a sound command leaves in a folder, run once a campaign under a name that says all it depends on.
    pub fn known(&mut self, name: &str, line: &Line, folder: &Path) -> Results {
        if let Some(results) = self.stock.known.borrow().get(name) {
            return results.clone();
        }
        let ended = line.start(&self.stock.program).end();
        assert!(ended.succeeded(), "{line}\n{}", ended.stderr);
        let results = Results::of(folder);
        self.stock.known.borrow_mut().insert(name.to_owned(), results.clone());
        results
    }
}
