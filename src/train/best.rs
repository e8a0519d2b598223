//! The best evaluation of a run: for how long none has been better, and the model as it was then, in a folder of its
//! own.
//!
//! What the evaluations before it have come to stands in every checkpoint's header ([`Evaluations`]), with all else
//! that a run goes on by: its metrics may be gone, or of other machines. The best model's file is such a checkpoint
//! itself, and its header says that it is the best. It is written before the run's own, but for the first one: a run
//! that was killed between the two makes its steps up to there again, and what it kept stays, for they can lead to
//! nothing better.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, absolute};

use serde::{Deserialize, Serialize};

use super::checkpoint::{Checkpoint, Progress, Writers};
use super::metrics::Scores;
use super::output::OutputDir;
use super::run::Run;
use crate::base::config::{BestBy, TrainConfig};
use crate::base::console::note;
use crate::base::error::shell;
use crate::base::{Error, Result};

/// An evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// After which step it was made.
    pub step: u64,
    /// The AUC; nothing where that is no number.
    pub auc: Option<f64>,
    /// The log loss; nothing where that is no number, or of a version that did not say.
    pub logloss: Option<f64>,
}

impl Best {
    fn reaches_target_of(&self, train: &TrainConfig) -> bool {
        self.auc.is_some_and(|auc| train.reaches_target(auc))
    }

    /// What these scores say of the model after a step.
    pub(super) fn new(step: u64, scores: &Scores) -> Self {
        let [auc, logloss] = [scores.auc, scores.logloss].map(|score| Some(score).filter(|score| score.is_finite()));
        Self { step, auc, logloss }
    }

    /// The score that it is compared by.
    #[must_use]
    pub const fn score(&self, by: BestBy) -> Option<f64> {
        match by {
            BestBy::Auc => self.auc,
            BestBy::Logloss => self.logloss,
        }
    }

    /// Whether it is better than another, if there is one: where it has no score it is not, and what has one is better
    /// than what has none.
    #[must_use]
    pub fn is_better(&self, other: Option<Self>, by: BestBy) -> bool {
        let merit = |of: &Self| match by {
            BestBy::Auc => of.auc,
            BestBy::Logloss => of.logloss.map(|loss| -loss),
        };
        merit(self) > other.as_ref().and_then(merit)
    }
}

/// What the evaluations of a run have come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evaluations {
    /// The first one of those with the best score; nothing where none had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
    /// Those on the way that have come since and were not better.
    pub since: u64,
    /// Whether the one that is due after the last step is still to be made: it was interrupted, or has failed.
    pub is_due: bool,
    /// The last one, where that has reached `train.target_auc`; it need not be the best one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<Best>,
}

impl Evaluations {
    /// Whether there was none, and none is due.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// With one more, on the way or after the last step, and whether that is the best. One that a run makes again, as
    /// it makes its steps again up to the best model, does not count.
    fn with(self, now: Best, by: BestBy, on_the_way: bool) -> (Self, bool) {
        let Self { best, since, .. } = self;
        if now.is_better(best, by) {
            return (Self { best: Some(now), ..Self::default() }, true);
        }
        let is_new = on_the_way && best.is_none_or(|best| now.step > best.step);
        (Self { best, since: since.saturating_add(u64::from(is_new)), ..Self::default() }, false)
    }

    /// With the evaluation of the model that was kept, if that is better: the run was killed behind it, or it was its
    /// last.
    fn with_kept(self, kept: Best, by: BestBy) -> Self {
        if kept.is_better(self.best, by) { Self { best: Some(kept), since: 0, ..self } } else { self }
    }

    /// Whether so many on the way have not been better than the best.
    pub(super) const fn exhaust(&self, patience: u64) -> bool {
        patience > 0 && self.since >= patience
    }

    /// Whether the model of a step has reached the target AUC that there is now, if there is one.
    pub(super) fn have_reached(&self, train: &TrainConfig, step: u64) -> bool {
        let reached = self.reached.filter(|reached| reached.step == step);
        reached.is_some_and(|reached| reached.reaches_target_of(train))
    }
}

impl Run {
    /// Whether the best model is kept.
    #[must_use]
    pub fn keeps_best(&self) -> bool {
        self.saves && self.config.train.keeps_best()
    }

    /// The directory that holds the model of the best evaluation, if it is kept; of several machines the first one's.
    #[must_use]
    pub fn best_kept(&self) -> Option<&Path> {
        self.state.best.as_ref().filter(|_| self.state.is_best_kept).map(OutputDir::path)
    }

    /// Takes the folder of the best model, if that is kept, and what it says of the best evaluation; where the model
    /// that the run goes on from is the best one and nobody has kept it, it is saved there. All machines take part, and
    /// go on by what the first one says, which has the folder: another one's test samples may have changed.
    ///
    /// # Errors
    /// When another process writes to it, somebody has trained on from there, it cannot be saved, or another machine
    /// fails.
    pub(super) fn open_best(&mut self) -> Result<()> {
        if self.keeps_best() {
            self.state.best = self.output.as_ref().map(OutputDir::best).transpose()?;
        }
        let kept = self.state.best.as_ref().and_then(|best| self.kept_in(best));
        let before = self.state.progress.evaluations;
        let found = kept.map_or(before, |kept| before.with_kept(kept, self.config.train.best_by));
        let is_others = kept.is_none() && self.state.best.as_ref().is_some_and(|best| best.checkpoint().exists());
        let own = serde_json::to_vec(&(found, kept.is_some() && found.best == kept, is_others));
        let own = own.expect("evaluations are representable in JSON");
        let told = self.ranks.everywhere("tell of the evaluations", own)?;
        let told: (Evaluations, bool, bool) = serde_json::from_slice(&told[0]).expect("machines run the same program");
        (self.state.progress.evaluations, self.state.is_best_kept, self.state.is_best_others) = told;
        let Progress { step, evaluations, .. } = self.state.progress;
        let is_here = self.state.is_resumed && evaluations.best.is_some_and(|best| best.step == step);
        if self.keeps_best() && is_here && !self.state.is_best_kept {
            self.save_best(evaluations)?;
        }
        Ok(())
    }

    /// The evaluation of the model in a folder of a best one, if there is one on these samples by this score.
    fn kept_in(&self, best: &OutputDir) -> Option<Best> {
        let path = best.checkpoint();
        if !path.exists() {
            return None;
        }
        let read = || {
            let checkpoint = Checkpoint::open(&path)?;
            checkpoint.check_evaluated(&self.config, &*self.source, self.evaluated())?;
            checkpoint.header()
        };
        match read() {
            Ok(header) => {
                let same = header.filter(|(_, trained)| trained.train.best_by == self.config.train.best_by);
                same.and_then(|(progress, _)| progress.evaluations.best)
            }
            Err(error) => {
                note!("note: {error}; the best model from here on takes its place");
                None
            }
        }
    }

    /// Takes an evaluation after the last step, on the way or at the end; the model is saved if it is the best and that
    /// is kept. At the end of a process that has trained nothing, one that was kept by other samples or another score
    /// is not replaced: nobody has compared the two.
    ///
    /// # Errors
    /// When it cannot be saved: the best one before is then still there, and an evaluation on the way still due.
    pub(super) fn take_evaluation(&mut self, now: Best, on_the_way: bool, has_trained: bool) -> Result<()> {
        let before = self.state.progress.evaluations;
        let (mut evaluations, is_best) = before.with(now, self.config.train.best_by, on_the_way);
        evaluations.reached = Some(now).filter(|now| now.reaches_target_of(&self.config.train));
        if is_best && self.keeps_best() && (on_the_way || has_trained || !self.state.is_best_others) {
            self.save_best(evaluations)?;
        }
        self.state.progress.evaluations = evaluations;
        Ok(())
    }

    /// Gives the ranks the model that is kept: the best one or else the last, which they have; after which step it was
    /// saved. All machines take part. Nothing where some of them do not see the best model's folder, or it cannot be
    /// read: the run is saved, and what it has found is worth telling.
    ///
    /// # Errors
    /// When a rank or another machine fails, and of several machines, when the best model is damaged.
    pub(super) fn take_kept(&mut self) -> Result<Option<u64>> {
        let step = self.state.progress.step;
        let best = self.state.progress.evaluations.best.filter(|_| self.keeps_best() && self.state.is_best_kept);
        let Some(best) = best.filter(|best| best.step != step) else { return Ok(Some(step)) };
        if self.state.saved == Some(Writers::First { is_seen: false }) {
            self.tell_untested("other machines do not see the best model");
            return Ok(None);
        }
        let own = self.state.best.as_ref().map(OutputDir::checkpoint);
        let own = own.map(|path| absolute(&path).map_err(Error::io(&path, "find"))).transpose()?;
        let own = own.map_or_else(Vec::new, |path| path.into_os_string().into_vec());
        let all = self.ranks.everywhere("name the best model", own)?;
        let path = Path::new(OsStr::from_bytes(&all[0]));
        let kept = Checkpoint::open(path);
        let opened = self.ranks.everywhere("open the best model", vec![u8::from(kept.is_ok())])?;
        let is_open = opened.iter().all(|opened| opened[..] == [1]);
        let why =
            match kept.and_then(|kept| if is_open { kept.load_into(&self.ranks).map(|()| true) } else { Ok(false) }) {
                Ok(true) => return Ok(Some(best.step)),
                Ok(false) => "another machine cannot read the best model".to_owned(),
                // Of several machines the others wait for this one.
                Err(error) if is_open && self.ranks.world().machines() > 1 => return Err(error),
                Err(error @ Error::Rank(_)) => return Err(error),
                Err(error) => error.to_string(),
            };
        note!("note: the test samples are not scored: {why}");
        self.state.is_best_kept = false;
        Ok(None)
    }

    /// Tells why the test samples are not scored by the model that is kept, and what scores them, if it was saved.
    pub(super) fn tell_untested(&self, why: &str) {
        let told = "note: the test samples are not scored, since";
        match self.best_kept().or(self.output.as_ref().map(OutputDir::path)) {
            Some(kept) => note!("{told} {why}: octorec eval --checkpoint {} scores them", shell(kept)),
            None if self.saves => (),
            None => note!("{told} {why}"),
        }
    }

    /// Saves the model as the best one, by evaluations that end with its own.
    fn save_best(&mut self, evaluations: Evaluations) -> Result<()> {
        // Where there is a best model, its run can be continued.
        if !self.has_saved() {
            self.save()?;
        }
        let is_gone = self.output.as_mut().map_or(Ok(false), OutputDir::recreate)?;
        self.describe_if(is_gone, Self::describe_itself)?;
        let written = self.write_best(evaluations);
        if let (Err(Error::Io { .. }), Some(output)) = (&written, &self.output) {
            note!(
                "note: the best model could not be saved beside the run's own: to go on without keeping it, use --resume {} \
                 --set train.keep_best=false",
                shell(output.path())
            );
        }
        written
    }

    fn write_best(&mut self, evaluations: Evaluations) -> Result<()> {
        let is_anew = self.state.best.as_mut().map_or(Ok(false), OutputDir::recreate)?;
        let is_due = is_anew || self.state.best.is_some() && !self.state.is_best_described;
        self.describe_if(is_due, |run| run.state.best.as_ref().map_or(Ok(()), |best| run.describe(best)))?;
        self.state.is_best_described = true;
        let path = self.state.best.as_ref().map(OutputDir::checkpoint);
        self.save_as(path.as_deref(), Progress { evaluations, ..self.state.progress })?;
        self.state.is_best_kept = true;
        // Who would have trained the one before on from there has not begun to.
        self.state.best.as_mut().map_or(Ok(()), OutputDir::saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An evaluation of an AUC, and a log loss that falls as the AUC rises.
    fn of(step: u64, auc: f64) -> Best {
        let known = |score: f64| Some(score).filter(|score| score.is_finite());
        Best { step, auc: known(auc), logloss: known(1.0 - auc) }
    }

    /// The state after evaluations on the way, as (step, AUC), and which of them were the best so far: by either score
    /// the same.
    fn after(begin: Evaluations, found: &[(u64, f64)]) -> (Evaluations, Vec<u64>) {
        let by_score = [BestBy::Auc, BestBy::Logloss].map(|by| {
            let mut best = Vec::new();
            let end = found.iter().fold(begin, |before, (step, auc)| {
                let (now, is_best) = before.with(of(*step, *auc), by, true);
                best.extend(is_best.then_some(*step));
                now
            });
            (end, best)
        });
        let [by_auc, by_loss] = by_score;
        assert_eq!(by_auc, by_loss);
        by_auc
    }

    #[test]
    fn evaluations_on_the_way_that_are_no_better_are_counted_since_the_best() {
        let (end, best) =
            after(Evaluations::default(), &[(2, 0.6), (4, 0.5), (6, 0.6), (8, 0.7), (10, 0.65), (12, 0.7)]);
        assert_eq!((end.best, end.since, best), (Some(of(8, 0.7)), 2, vec![2, 8]));
        assert!(end.exhaust(2) && end.exhaust(1) && !end.exhaust(3) && !end.exhaust(0));
        // The one at the end may be the best, and is not counted.
        let with_last = |auc: f64| end.with(of(13, auc), BestBy::Auc, false);
        assert_eq!(with_last(0.69), (end, false));
        assert!(with_last(0.71).1);
        // What is no number is not better, not even than nothing.
        let (none, best) = after(Evaluations::default(), &[(1, f64::NAN), (2, f64::NAN)]);
        assert_eq!((none.best, none.since, best), (None, 2, vec![]));
        assert_eq!(after(none, &[(3, 0.1)]).1, [3]);
        assert_eq!(after(end, &[(14, f64::NAN)]).0.since, 3);
        // Scores need not agree, and test samples of one kind have no AUC.
        let other = Best { step: 14, auc: None, logloss: Some(0.2) };
        assert_eq!([BestBy::Auc, BestBy::Logloss].map(|by| end.with(other, by, true).1), [false, true]);
    }

    #[test]
    fn a_run_that_was_killed_behind_its_best_model_decides_as_one_that_was_not() {
        let found = [(2, 0.6), (4, 0.5), (6, 0.62), (8, 0.61), (10, 0.7), (12, 0.6), (14, 0.6)];
        let whole = after(Evaluations::default(), &found).0;
        for saved in 0..=4 {
            let header = after(Evaluations::default(), &found[..saved]).0;
            let resumed = header.with_kept(of(10, 0.7), BestBy::Auc);
            for made in saved..=5 {
                assert!(!after(resumed, &found[saved..made]).0.exhaust(1), "saved after {saved}, {made} made");
            }
            assert_eq!(after(resumed, &found[saved..]), (whole, vec![]), "saved after {saved}");
        }
        // What is no better than the best of the header is of an earlier time.
        assert_eq!(whole.with_kept(of(6, 0.62), BestBy::Auc), whole);
    }

    #[test]
    fn headers_without_evaluations_and_with_them_are_read() {
        let read = |text: &str| serde_json::from_str::<Progress>(text).unwrap();
        let before = read("{\"step\": 3, \"epoch\": 0, \"sample\": 9}");
        assert!(before.evaluations.is_none());
        let of_auc = read(
            "{\"step\": 3, \"epoch\": 0, \"sample\": 9, \"evaluations\": {\"best\": {\"step\": 2, \"auc\": 0.7}}}",
        );
        assert_eq!(of_auc.evaluations.best, Some(Best { step: 2, auc: Some(0.7), logloss: None }));
        for best in [of(2, 0.1 + 0.2), Best { step: 2, auc: None, logloss: Some(0.1 + 0.2) }] {
            let after = Progress {
                evaluations: Evaluations { best: Some(best), since: 1, is_due: true, reached: Some(best) },
                ..before
            };
            assert_eq!(read(&serde_json::to_string(&after).unwrap()), after);
        }
        assert!(!serde_json::to_string(&before).unwrap().contains("evaluations"));
    }
}
