//! What a search has done, a line at a time: where a kill leaves it, the next process goes on.
//!
//! The first line says what is searched; then come trials that began, with their places, and how they ended. A line
//! that a kill cut off was not done.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::space::Space;
use super::trial::Files;
use crate::base::config::{BestBy, Config};
use crate::base::console::note;
use crate::base::{Error, Result, input};
use crate::memory::{append_own, listed, refuse_foreign};
use crate::train::Best;

/// The file's name.
pub const JOURNAL: &str = "search.jsonl";
/// The page of its results.
pub const PAGE: &str = "search.html";

/// So many things in which two searches differ are named.
const NAMED: usize = 3;

/// What is searched: a search goes on only where all of it is the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    pub space: String,
    pub configuration: String,
    pub target: String,
    pub sampler: String,
    pub halving: u64,
    pub seed: u64,
}

impl Subject {
    /// In what the search of a folder is another one, each with what it has there and what is asked for; nothing where
    /// it is the same. Of configurations counts what they mean: that of an earlier version lacks keys that have been
    /// added since, and these have their defaults; and values of keys that are searched over are no trial's.
    fn differences(&self, there: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |name: &str, there: &str, here: &str| {
            if there != here {
                found.push(format!("{name} {there}, where {here} is asked for"));
            }
        };
        compare("target", &there.target, &self.target);
        compare("sampler", &there.sampler.to_lowercase(), &self.sampler.to_lowercase());
        compare("--halving", &there.halving.to_string(), &self.halving.to_string());
        compare("--search-seed", &there.seed.to_string(), &self.seed.to_string());
        if there.space != self.space {
            found.push("another space than the file of --space".to_owned());
        }
        // A text that is no space was refused before.
        let searched = Space::parse(&self.space, "--space").map(|space| space.parameters).unwrap_or_default();
        let values = |of: &Self| {
            let mut values = input::from_toml::<Config>(&of.configuration).ok()?.values();
            for parameter in &searched {
                values.remove(&parameter.key);
            }
            Some(values)
        };
        match (values(there), values(self)) {
            (Some(there), Some(here)) => {
                let keys: BTreeSet<&String> = there.keys().chain(here.keys()).collect();
                let value =
                    |of: &BTreeMap<String, String>, key: &str| of.get(key).map_or("none", String::as_str).to_owned();
                for key in keys {
                    let [there, here] = [&there, &here].map(|of| value(of, key));
                    if there != here {
                        found.push(format!("{key} = {there}, where {here} is asked for"));
                    }
                }
            }
            _ => found.push("a configuration of another version".to_owned()),
        }
        found
    }
}

/// One evaluation of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Found {
    pub step: u64,
    /// `None` where it is no number.
    pub auc: Option<f64>,
    pub logloss: Option<f64>,
}

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    Finished,
    TargetReached,
    /// By `train.patience`.
    NoImprovement,
    /// By successive halving.
    Stopped,
    Failed,
}

impl End {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::TargetReached => "target reached",
            Self::NoImprovement => "no improvement",
            Self::Stopped => "stopped early",
            Self::Failed => "failed",
        }
    }
}

/// A trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub number: u64,
    /// In [0, 1), by the space's keys.
    pub places: Vec<f64>,
    /// What they mean.
    pub values: Vec<Value>,
    pub end: Option<End>,
    /// Why it failed.
    pub reason: Option<String>,
    pub evaluations: Vec<Found>,
    /// The best one, where its model is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Found>,
    /// Of a trial whose process was killed: when the checkpoint was written that it had ([`Files::saved`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub killed: Option<u64>,
    /// Of training, without evaluations.
    pub seconds: f64,
    /// To the target, with them, where it was reached.
    pub target_seconds: Option<f64>,
}

impl Trial {
    /// Keeps the best evaluation, as the run does.
    pub fn keep_best(&mut self, by: BestBy) {
        let of = |found: &Found| Best { step: found.step, auc: found.auc, logloss: found.logloss };
        let better = |kept: Option<Found>, next: &Found| of(next).is_better(kept.as_ref().map(of), by);
        self.kept =
            self.evaluations.iter().fold(None, |kept, next| if better(kept, next) { Some(*next) } else { kept });
    }

    /// The evaluation by which it is compared: of the model that is kept, or the last.
    pub fn compared(&self) -> Option<&Found> {
        self.kept.as_ref().or(self.evaluations.last())
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Search(Subject),
    Began(Trial),
    Killed { number: u64, saved: u64 },
    Ended(Trial),
}

/// A search's journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// A trial's number is its place; those without an end were under way.
    pub trials: Vec<Trial>,
}

impl Journal {
    /// Goes on with the search of a folder, or begins it.
    ///
    /// # Errors
    /// When the folder holds another search, or trials of another one, and when the system refuses.
    pub fn open(folder: &Path, subject: &Subject) -> Result<Self> {
        let names: Vec<String> =
            listed(folder, "read")?.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
        refuse_foreign(folder, names.iter().filter(|name| Files::number_of(name).is_some()))?;
        refuse_foreign(folder, [JOURNAL, PAGE])?;
        let path = folder.join(JOURNAL);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::io(&path, "read")(error)),
        };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let bad = |what: String| {
            Error::bad_file(
                path.clone(),
                format!("is no journal of a search ({what}): name another --out, or move its folder elsewhere"),
            )
        };
        let mut lines = text[..whole]
            .lines()
            .map(|line| serde_json::from_str::<Line>(line).map_err(|error| bad(error.to_string())));
        let mut trials: Vec<Trial> = Vec::new();
        let begun = match lines.next().transpose()? {
            None => false,
            Some(Line::Search(other)) => {
                let found = subject.differences(&other);
                if !found.is_empty() {
                    let named = &found[..found.len().min(NAMED)];
                    let more = match found.len() - named.len() {
                        0 => String::new(),
                        more => format!("; and {more} more"),
                    };
                    let reason = format!(
                        "{} holds another search, with {}{more}: ask for the same, name another folder, or remove that one",
                        folder.display(),
                        named.join("; ")
                    );
                    return Err(Error::config("--out", reason));
                }
                // Versions without the key made all evaluations on test samples.
                if !other.configuration.contains("eval_split") {
                    note!(
                        "note: an earlier version has begun this search and compared trials by test samples: where the data have \
                         validation samples, those from here on are compared by these, so begin another one with --out"
                    );
                }
                true
            }
            Some(_) => return Err(bad("its first line says not what is searched".to_owned())),
        };
        for line in lines {
            match line? {
                Line::Search(_) => (),
                Line::Began(trial) if trial.number == trials.len() as u64 => trials.push(trial),
                Line::Began(trial) => {
                    return Err(bad(format!("trial {} begins behind {} others", trial.number, trials.len())));
                }
                Line::Killed { number, saved } => match trials.get_mut(number as usize) {
                    Some(trial) => trial.killed = Some(saved),
                    None => return Err(bad(format!("trial {number} is killed and never began"))),
                },
                Line::Ended(trial) => {
                    let Some(known) = trials.get_mut(trial.number as usize) else {
                        return Err(bad(format!("trial {} ends and never began", trial.number)));
                    };
                    *known = trial;
                }
            }
        }
        // A trial is in the journal before it has files: without that, a run would be gone on with that is not its own.
        let number = |path: &Path| Files::number_of(&path.file_name()?.to_string_lossy());
        let is_foreign = |path: &PathBuf| number(path).is_some_and(|number| number >= trials.len() as u64);
        if let Some(path) = listed(folder, "list")?.into_iter().find(is_foreign) {
            let reason = format!(
                "{} is of no trial of this search, which would take it for its own: name another --out, or move the folder {} \
                 elsewhere",
                path.display(),
                folder.display()
            );
            return Err(Error::config("--out", reason));
        }
        let file = append_own(&path)?;
        file.set_len(whole as u64).map_err(Error::io(&path, "write"))?;
        let mut journal = Self { path, file, trials };
        if !begun {
            journal.line(&Line::Search(subject.clone()))?;
        }
        Ok(journal)
    }

    fn line(&mut self, line: &Line) -> Result<()> {
        let text = serde_json::to_string(line).expect("a trial is representable in JSON");
        writeln!(self.file, "{text}").and_then(|()| self.file.sync_data()).map_err(Error::io(&self.path, "write"))
    }

    /// A trial begins.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn begin(&mut self, trial: Trial) -> Result<()> {
        let line = Line::Began(trial);
        self.line(&line)?;
        if let Line::Began(trial) = line {
            self.trials.push(trial);
        }
        Ok(())
    }

    /// The process of a trial was killed, which is gone on with; `saved` tells its checkpoint.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn killed(&mut self, number: u64, saved: u64) -> Result<()> {
        self.line(&Line::Killed { number, saved })?;
        self.trials[number as usize].killed = Some(saved);
        Ok(())
    }

    /// A trial has ended.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn end(&mut self, trial: Trial) -> Result<()> {
        let line = Line::Ended(trial);
        self.line(&line)?;
        if let Line::Ended(trial) = line {
            let at = trial.number as usize;
            self.trials[at] = trial;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(number: u64, end: Option<End>) -> Trial {
        let found = Found { step: 7, auc: Some(0.7), logloss: None };
        Trial {
            number,
            places: vec![0.25],
            values: vec![Value::from(3)],
            end,
            reason: None,
            evaluations: vec![found],
            seconds: 1.5,
            target_seconds: None,
            kept: None,
            killed: None,
        }
    }

    #[test]
    fn a_journal_goes_on_where_a_kill_left_it() {
        let folder = tempfile::tempdir().unwrap();
        let subject = Subject {
            space: "a".to_owned(),
            configuration: Config::default().to_toml(),
            target: "auc".to_owned(),
            sampler: "tpe".to_owned(),
            halving: 3,
            seed: 1,
        };
        let mut journal = Journal::open(folder.path(), &subject).unwrap();
        journal.begin(trial(0, None)).unwrap();
        journal.begin(trial(1, None)).unwrap();
        journal.end(trial(0, Some(End::Stopped))).unwrap();
        drop(journal);
        // A line that was cut off.
        let path = folder.path().join(JOURNAL);
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"ended\":{\"number\":1,").unwrap();
        let mut journal = Journal::open(folder.path(), &subject).unwrap();
        assert_eq!(journal.trials, [trial(0, Some(End::Stopped)), trial(1, None)]);
        journal.end(trial(1, Some(End::Finished))).unwrap();
        drop(journal);
        let journal = Journal::open(folder.path(), &subject).unwrap();
        assert_eq!(journal.trials, [trial(0, Some(End::Stopped)), trial(1, Some(End::Finished))]);
        let mut config = Config::default();
        config.train.batch += 1;
        let batch = |config: &Config| format!("train.batch = {}", config.train.batch);
        let other_batch = format!("{}, where {} is asked for", batch(&Config::default()), config.train.batch);
        for (another, told) in [
            (Subject { seed: 2, ..subject.clone() }, "--search-seed 1, where 2 is asked for:"),
            (Subject { halving: 0, ..subject.clone() }, "--halving 3, where 0 is asked for:"),
            (Subject { space: "b".to_owned(), ..subject.clone() }, "another space than"),
            (Subject { configuration: config.to_toml(), ..subject.clone() }, &*other_batch),
            (Subject { configuration: "of no version".to_owned(), ..subject.clone() }, "of another version"),
        ] {
            let message = Journal::open(folder.path(), &another).unwrap_err().to_string();
            assert!(message.contains("--out") && message.contains(told), "{message}");
        }
        // A configuration of an earlier version, which lacks a key.
        let lacks = subject.configuration.replace("best_by = \"auc\"\n", "");
        assert_ne!(lacks, subject.configuration);
        Journal::open(folder.path(), &Subject { configuration: lacks, ..subject.clone() }).unwrap();
        let mut journal = Journal::open(folder.path(), &subject).unwrap();
        journal.begin(trial(2, None)).unwrap();
        journal.killed(2, 5).unwrap();
        drop(journal);
        let journal = Journal::open(folder.path(), &subject).unwrap();
        assert_eq!(journal.trials[2], Trial { killed: Some(5), ..trial(2, None) });
        let text = fs::read_to_string(&path).unwrap();
        for (without, told) in
            [(1, "trial 1 begins behind 0"), (2, "trial 1 ends and never began"), (5, "trial 2 is killed and")]
        {
            let lines = text.lines().enumerate().filter(|(at, _)| *at != without);
            fs::write(&path, lines.map(|(_, line)| line.to_owned() + "\n").collect::<String>()).unwrap();
            assert!(Journal::open(folder.path(), &subject).unwrap_err().to_string().contains(told), "{told}");
        }
        fs::create_dir(folder.path().join("trial-003")).unwrap();
        fs::write(&path, text).unwrap();
        let message = Journal::open(folder.path(), &subject).unwrap_err().to_string();
        assert!(message.contains("trial-003 is of no trial of this search"), "{message}");
        fs::write(&path, "loss\n").unwrap();
        assert!(Journal::open(folder.path(), &subject).unwrap_err().to_string().contains("no journal"));
        // What they lead to is cut off by nobody.
        let elsewhere = tempfile::tempdir().unwrap();
        let own = elsewhere.path().join("own");
        fs::write(&own, "{").unwrap();
        for name in [JOURNAL, PAGE, "trial-001", "trial-000.log"] {
            let again = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink(&own, again.path().join(name)).unwrap();
            let message = Journal::open(again.path(), &subject).unwrap_err().to_string();
            assert!(message.contains(&format!("{name}: is a link")), "{message}");
            assert_eq!(fs::read_to_string(&own).unwrap(), "{");
        }
    }
}
