//! `octorec search`: trains with many configurations and says which was best.
//!
//! Each trial is an ordinary run with a directory of its own, in a process of its own on cores of its own. What was
//! done is in a journal: after a kill the same command goes on, trials that were under way from their last checkpoints.

mod halving;
mod importance;
mod journal;
mod length;
mod page;
mod sampler;
mod space;
mod target;
mod trial;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::overrides::{BaseArgs, KeyArgs};
use crate::base::config::{Command, Config};
use crate::base::console::note;
use crate::base::units::{Many, Seconds};
use crate::base::{Error, PuId, Result, Unpoisoned, console, even_part, input, interrupt};
use crate::cli::heed_signals;
use crate::cli::output::refuse_text_folder;
use crate::cli::table::Table;
use crate::ffi::linux::pin_current_thread;
use crate::machine::Machine;
use crate::memory::{FolderLock, make_folder, write_file};
use halving::Halving;
use journal::{End, Found, JOURNAL, Journal, PAGE, Subject, Trial};
use page::{Page, json_of, shown};
use sampler::Sampler;
use space::{Contradictions, Space};
use target::Target;
use trial::{Ended, Files};

/// Arguments of `octorec search`.
#[derive(Debug, Args)]
pub struct SearchArgs {
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    base: BaseArgs,

    /// The keys that are searched over, a TOML file: `[train]` and below it `lr = { from = 0.01, to = 10.0, log = true
    /// }` or `optimizer = { choices = ["sgd", "adagrad"] }`; of a range whose ends are whole, all numbers are.
    #[arg(long, value_name = "FILE", display_order = 0)]
    space: PathBuf,

    /// The folder of the search: a run's directory a trial, a journal, and a page. One that is there goes on.
    #[arg(long, value_name = "DIR", display_order = 0)]
    out: PathBuf,

    /// Trials in all.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=100_000), display_order = 0)]
    trials: u64,

    /// Trials at a time: cores are divided among them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024), display_order = 0)]
    parallel: u64,

    /// What is searched for.
    #[arg(long, value_enum, default_value_t, display_order = 0)]
    target: Target,

    /// How trials are chosen.
    #[arg(long, value_enum, default_value_t, display_order = 0)]
    sampler: Sampler,

    /// Stop trials early (asynchronous successive halving): of those that reach evaluation 1, N, N^2, ... the best 1/N
    /// go on; 0: all do.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = halving, display_order = 0)]
    halving: u64,

    /// Seed of the choice of trials.
    #[arg(long, value_name = "N", default_value_t = 1, display_order = 0)]
    search_seed: u64,

    /// Print all trials as one JSON object on stdout.
    #[arg(long, display_order = 10)]
    json: bool,
}

fn halving(text: &str) -> std::result::Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number != 1 && *number <= 1000);
    number.ok_or_else(|| "0 or a whole number from 2 to 1000 is expected".to_owned())
}

/// What the trials that are under way share.
struct Shared {
    journal: Journal,
    halving: Option<Halving>,
    /// Those that a process before has left, to be gone on with first.
    left: Vec<u64>,
    /// The first thing that went wrong with the search itself.
    error: Option<Error>,
}

/// A search.
struct Search<'a> {
    args: &'a SearchArgs,
    base: Config,
    space: Space,
    shared: Mutex<Shared>,
}

/// Why a trial has failed that would be killed for ever.
const KILLED_TWICE: &str = "killed twice by signal 9, and no checkpoint between: out of memory? Use fewer trials at a time \
                            (--parallel), or a space of smaller models and batches";

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    best: Option<u64>,
    trials: Vec<Value>,
    importance: Vec<(&'a str, Option<f64>)>,
}

impl SearchArgs {
    /// Searches, and tells what was found.
    pub fn run(&self) -> Result<()> {
        heed_signals()?;
        let layers = self.base.layers()?;
        let base = self.keys.finish(layers.clone(), Command::Train)?;
        self.check(&base)?;
        let space = Space::read(&self.space)?;
        let contradictions = space.check(&base)?;
        // Of a search that goes on, that was no error when it began, and what its trials have found stays.
        if !self.out.join(JOURNAL).exists() {
            space.check_courses(&base)?;
        }
        refuse_text_folder("--out", "a search", &self.out, &base)?;
        self.check_length(&layers, &base, &space)?;
        for (given, key) in space.parameters.iter().filter_map(|of| Some((self.keys.origin(&of.key)?, &of.key))) {
            note!("note: {key} is searched over, as {} says: {given} changes nothing", self.space.display());
        }
        if let Some(Contradictions { all, wrong, first }) = contradictions {
            note!(
                "note: {}: of {} of choices, ranges' ends and the configuration's own values, {wrong} contradict themselves; a \
                 trial there fails at once and counts as the worst, as in {first}",
                self.space.display(),
                Many(all, "combination")
            );
        }
        make_folder(&self.out)?;
        let _lock = FolderLock::take(&self.out)?;
        let subject = Subject {
            space: input::read_text(&self.space)?,
            configuration: base.to_toml(),
            target: self.target.name().to_owned(),
            sampler: format!("{:?}", self.sampler),
            halving: self.halving,
            seed: self.search_seed,
        };
        let journal = Journal::open(&self.out, &subject)?;
        let left: Vec<u64> =
            journal.trials.iter().filter(|trial| trial.end.is_none()).map(|trial| trial.number).rev().collect();
        let mut halving = (self.halving > 0).then(|| Halving::new(self.halving));
        for trial in &journal.trials {
            for (found, evaluation) in trial.evaluations.iter().zip(1..) {
                halving.as_mut().map(|halving| halving.goes_on(trial.number, evaluation, self.target.of(found)));
            }
        }
        if !journal.trials.is_empty() {
            let done = journal.trials.len() - left.len();
            note!("going on: {} done, {} under way", Many(done as u64, "trial"), left.len());
        }
        let shared = Mutex::new(Shared { journal, halving, left, error: None });
        let search = Search { args: self, base, space, shared };
        let places = search.cores()?;
        std::thread::scope(|scope| {
            for cores in &places {
                scope.spawn(|| search.work(cores));
            }
        });
        let Search { space, shared, .. } = search;
        let shared = shared.into_inner().unpoisoned();
        self.tell(&space, &shared.journal.trials)?;
        let left = shared.journal.trials.iter().filter(|trial| trial.end.is_none()).count() as u64;
        match shared.error {
            Some(error) => Err(error),
            None if interrupt::requested() => Err(Error::Interrupted),
            None if left > 0 => {
                let reason = format!("{} did not come to an end: the same command goes on there", Many(left, "trial"));
                Err(Error::bad_file(self.out.clone(), reason))
            }
            None => {
                if (shared.journal.trials.len() as u64) < self.trials {
                    note!("note: all that the space has was tried: --trials {} asks for more", self.trials);
                }
                self.target.check_scores(&shared.journal.trials)
            }
        }
    }

    /// Refuses what no trial could do.
    fn check(&self, base: &Config) -> Result<()> {
        let train = &base.train;
        let fail = |origin: &str, reason: &str| Err(Error::config(origin, reason));
        if !base.data.is_stored() && base.data.test_samples == 0 {
            return fail("data.test_samples = 0", "trials are compared by test samples: generate some");
        }
        if self.target == Target::TimeToAuc && train.target_auc == 0.0 {
            return fail("--target time-to-auc", "says nothing of how good: use --target-auc AUC, too");
        }
        if (self.halving > 0 || self.target == Target::TimeToAuc) && !train.evaluates_on_the_way() {
            let origin = if self.halving > 0 { "--halving" } else { "--target time-to-auc" };
            return fail(
                origin,
                "needs evaluations on the way: use --eval-every STEPS, or --set train.evals_per_epoch=N",
            );
        }
        Ok(())
    }

    /// The table, what matters, and the page.
    fn tell(&self, space: &Space, trials: &[Trial]) -> Result<()> {
        let ended: Vec<&Trial> = trials.iter().filter(|trial| trial.end.is_some()).collect();
        let mut scored: Vec<(&Trial, f64, String)> =
            ended.iter().map(|trial| (*trial, self.target.score(trial), self.target.shown(trial))).collect();
        let places: Vec<(Vec<f64>, f64)> =
            scored.iter().map(|(trial, score, _)| (trial.places.clone(), *score)).collect();
        let shares = importance::shares(space, &places);
        let results = |trial: &Trial| Files::of(&self.out, trial.number).results().unwrap_or_default();
        let is_validated = |trial: &Trial| results(trial)["validation_auc"].is_number();
        let heading = &self.target.heading(ended.iter().any(|trial| is_validated(trial)));
        let page = Page { space, trials: &scored, target: self.target, heading, shares: &shares }.html();
        let path = self.out.join(PAGE);
        write_file(&path, page.as_bytes())?;
        scored.sort_by(|a, b| a.1.total_cmp(&b.1));
        let best = scored.first().filter(|(_, score, _)| score.is_finite()).map(|(trial, ..)| *trial);
        if self.json {
            let trial = |(trial, _, _): &(&Trial, f64, String)| self.json_of(space, trial);
            let importance = space.parameters.iter().map(|parameter| &parameter.key[..]).zip(shares.iter().copied());
            let report = Report {
                best: best.map(|trial| trial.number),
                trials: scored.iter().map(trial).collect(),
                importance: importance.collect(),
            };
            console::json(&report)?;
        } else {
            console::result(format_args!("{}\n{}", self.table(space, heading, &scored), matters(space, &shares)))?;
        }
        note!("page: {}", path.display());
        if let Some(best) = best {
            let run = Files::of(&self.out, best.number).run;
            // One that was stopped may have gone on behind the evaluation that it was stopped by.
            let kept = best.kept.filter(|_| best.end != Some(End::Stopped));
            let model = kept.map_or_else(String::new, |_| format!("; its best model is in {}/best", run.display()));
            let auc = results(best)["auc"].as_f64().filter(|_| best.end != Some(End::Stopped) && is_validated(best));
            let tested = auc.map_or_else(String::new, |auc| format!(", with test AUC {auc:.5}"));
            note!(
                "best: trial {} in {}{tested}; its config.toml is a configuration for `train --config`{model}",
                best.number,
                run.display()
            );
        }
        Ok(())
    }

    fn json_of(&self, space: &Space, trial: &Trial) -> Value {
        let keys = space.parameters.iter().map(|parameter| parameter.key.clone());
        let found = trial.compared();
        json!({
            "trial": trial.number,
            "run": Files::of(&self.out, trial.number).run.display().to_string(),
            "end": trial.end,
            "reason": trial.reason,
            "auc": found.and_then(|found| found.auc),
            "logloss": found.and_then(|found| found.logloss),
            "evaluations": trial.evaluations.len(),
            "seconds": trial.seconds,
            "target_seconds": trial.target_seconds,
            "values": keys.zip(trial.values.iter().cloned()).collect::<serde_json::Map<_, _>>(),
        })
    }

    fn table(&self, space: &Space, heading: &str, scored: &[(&Trial, f64, String)]) -> Table {
        let keys = space.parameters.iter().map(|parameter| parameter.key.clone());
        let headings = ["trial", heading, "end", "training"].map(str::to_owned);
        let mut table = Table::new(headings.into_iter().chain(keys));
        for (trial, _, score) in scored {
            let end = trial.end.map_or("under way", End::name).to_owned();
            let cells = [trial.number.to_string(), score.clone(), end, Seconds(trial.seconds).to_string()];
            table.row(cells.into_iter().chain(trial.values.iter().map(shown)));
        }
        table
    }
}

/// What each key explains.
fn matters(space: &Space, shares: &[Option<f64>]) -> Table {
    let mut table = Table::new(["key", "share of the variance of ranks that it explains alone"]);
    for (parameter, share) in space.parameters.iter().zip(shares) {
        let share = share.map_or_else(|| "too few trials".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        table.row([parameter.key.clone(), share]);
    }
    table
}

impl Search<'_> {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unpoisoned()
    }

    /// The cores of each trial at a time.
    fn cores(&self) -> Result<Vec<Vec<PuId>>> {
        let machine = Machine::load("host")?;
        let cores = machine.nodes.iter().flat_map(|node| &node.cores);
        let allowed = cores.map(|core| core.pus.iter().filter(|pu| pu.allowed).map(|pu| pu.id).collect::<Vec<_>>());
        let cores: Vec<Vec<PuId>> = allowed.filter(|pus| !pus.is_empty()).collect();
        let parallel = self.args.parallel as usize;
        if parallel > cores.len() {
            note!("warning: {parallel} trials at a time share {}", Many(cores.len() as u64, "core"));
        }
        let of = |at: usize| match cores.len() / parallel {
            0 => cores[at % cores.len()].clone(),
            _ => cores[even_part(cores.len(), at, parallel)].concat(),
        };
        Ok((0..parallel).map(of).collect())
    }

    /// Runs trials on these cores until there are none left.
    fn work(&self, cores: &[PuId]) {
        let result = pin_current_thread(cores).and_then(|()| {
            while let Some(trial) = self.next()? {
                self.try_out(trial)?;
            }
            Ok(())
        });
        if let Err(error) = result {
            self.shared().error.get_or_insert(error);
        }
    }

    /// Whether the search goes on.
    fn wanted(&self) -> bool {
        !interrupt::requested() && self.shared().error.is_none()
    }

    /// The trial that comes next: one that was left, or a new one.
    fn next(&self) -> Result<Option<Trial>> {
        if !self.wanted() {
            return Ok(None);
        }
        let mut shared = self.shared();
        if let Some(number) = shared.left.pop() {
            return Ok(shared.journal.trials.get(number as usize).cloned());
        }
        let number = shared.journal.trials.len() as u64;
        if number >= self.args.trials {
            return Ok(None);
        }
        let ended = shared.journal.trials.iter().filter(|trial| trial.end.is_some());
        let ended: Vec<_> = ended.map(|trial| (trial.places.clone(), self.args.target.score(trial))).collect();
        let places = self.args.sampler.next(&self.space, self.args.search_seed, number, &ended);
        let tried = shared.journal.trials.iter().map(|trial| &trial.places[..]);
        let Some(places) = self.space.untried(places, tried) else { return Ok(None) };
        let values = self.space.parameters.iter().zip(&places);
        let trial = Trial {
            number,
            values: values.map(|(parameter, place)| json_of(&parameter.domain.at(*place))).collect(),
            places,
            end: None,
            reason: None,
            evaluations: Vec::new(),
            kept: None,
            killed: None,
            seconds: 0.0,
            target_seconds: None,
        };
        shared.journal.begin(trial.clone())?;
        Ok(Some(trial))
    }

    fn try_out(&self, mut trial: Trial) -> Result<()> {
        let files = Files::of(&self.args.out, trial.number);
        let (mut stopped, mut keeps_best) = (false, None);
        let ended = match self.space.at(&self.base, &trial.places) {
            Err(error) => Ended::Failed(error.to_string()),
            Ok(config) => {
                write_file(&files.configuration, config.to_toml().as_bytes())?;
                keeps_best = config.train.keeps_best().then_some(config.train.best_by);
                let mut goes_on = |found: Found| {
                    trial.evaluations.push(found);
                    let evaluation = trial.evaluations.len() as u64;
                    let value = self.args.target.of(&found);
                    let goes_on = self
                        .shared()
                        .halving
                        .as_mut()
                        .is_none_or(|halving| halving.goes_on(trial.number, evaluation, value));
                    stopped |= !goes_on;
                    Ok(goes_on)
                };
                trial::run(&files, &mut goes_on, || self.wanted())?
            }
        };
        let results = match ended {
            // Nobody has stopped it but the search's own end: the next process goes on with it.
            Ended::Stopped(_) if !stopped => return Ok(()),
            Ended::Stopped(results) => {
                trial.end = Some(End::Stopped);
                results
            }
            Ended::Done(results) => {
                trial.end = Some(match results["outcome"].as_str() {
                    Some("target-reached") => End::TargetReached,
                    Some("no-improvement") => End::NoImprovement,
                    _ => End::Finished,
                });
                results
            }
            Ended::CutShort(how) => {
                note!("warning: trial {}: its process {how}; the same command goes on with it", trial.number);
                return Ok(());
            }
            Ended::Killed if trial.killed != Some(files.saved()) => {
                note!(
                    "warning: trial {}: its process was killed by signal 9, as the system does where memory is short; the same \
                     command goes on with it, also with fewer trials at a time (--parallel)",
                    trial.number
                );
                return self.shared().journal.killed(trial.number, files.saved());
            }
            Ended::Killed => {
                trial.end = Some(End::Failed);
                trial.reason = Some(KILLED_TWICE.to_owned());
                Value::Null
            }
            Ended::Failed(reason) => {
                trial.end = Some(End::Failed);
                trial.reason = Some(reason);
                Value::Null
            }
        };
        if let Some(by) = keeps_best {
            trial.keep_best(by);
        }
        // A process counts its own seconds, and one before it may have been stopped with the search.
        let step = |key: &str| results[key].as_u64();
        let began = step("step").and_then(|step_| step_.checked_sub(step("steps")?)).unwrap_or(u64::MAX);
        let [steps, all] = files.seconds_until(began);
        trial.seconds = steps + results["seconds"].as_f64().unwrap_or(0.0);
        trial.target_seconds = results["target_seconds"].as_f64().map(|seconds| all + seconds);
        self.say(&trial);
        self.shared().journal.end(trial)
    }

    fn say(&self, trial: &Trial) {
        let keys = self.space.parameters.iter().zip(&trial.values);
        let values: Vec<String> =
            keys.map(|(parameter, value)| format!("{} {}", parameter.key, shown(value))).collect();
        let end = trial.end.map_or("under way", End::name);
        let reason = trial.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        let (score, target) = (self.args.target.shown(trial), self.args.target.name());
        note!("trial {}: {target} {score}, {end}{reason}: {}", trial.number, values.join(", "));
    }
}
