//! What a search looks for, and what a trial is worth by it.

use clap::ValueEnum;

use super::journal::{End, Found, Trial};
use crate::base::{Error, Result};

/// What a good trial is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Target {
    /// The highest AUC of the last evaluation, or with train.keep_best of the best one
    #[default]
    Auc,
    /// The lowest log loss of the same
    Logloss,
    /// The shortest time, evaluations and checkpoints included, to train.target_auc
    TimeToAuc,
}

/// A score behind those of all trials that reach their target: more seconds than any run takes.
pub const NEVER: f64 = 1e12;

impl Target {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auc => "AUC",
            Self::Logloss => "log loss",
            Self::TimeToAuc => "seconds to the target AUC",
        }
    }

    /// The same, and of which samples, where validation samples are judged by.
    pub fn heading(self, by_validation: bool) -> String {
        match self {
            Self::Auc | Self::Logloss if by_validation => format!("validation {}", self.name()),
            _ => self.name().to_owned(),
        }
    }

    /// What an evaluation found, small where it is good.
    pub fn of(self, found: &Found) -> f64 {
        match self {
            Self::Logloss => found.logloss.unwrap_or(f64::INFINITY),
            Self::Auc | Self::TimeToAuc => found.auc.map_or(f64::INFINITY, |auc| 1.0 - auc),
        }
    }

    /// What a trial is worth, small where it is good; infinite where it failed.
    pub fn score(self, trial: &Trial) -> f64 {
        let found = trial.compared().map_or(f64::INFINITY, |found| self.of(found));
        match self {
            _ if trial.end == Some(End::Failed) => f64::INFINITY,
            Self::TimeToAuc => trial.target_seconds.unwrap_or(NEVER * (1.0 + found)),
            Self::Auc | Self::Logloss => found,
        }
    }

    /// The same for people.
    pub fn shown(self, trial: &Trial) -> String {
        let found = trial.compared();
        let number = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| format!("{number:.5}"));
        match self {
            Self::Auc => number(found.and_then(|found| found.auc)),
            Self::Logloss => number(found.and_then(|found| found.logloss)),
            Self::TimeToAuc => trial.target_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}")),
        }
    }

    /// Fails where no trial has a score, and says why.
    ///
    /// # Errors
    /// [`Error::Config`] with what would give one.
    pub fn check_scores(self, trials: &[Trial]) -> Result<()> {
        if trials.iter().any(|trial| self.score(trial).is_finite()) {
            return Ok(());
        }
        let tested = || trials.iter().filter_map(Trial::compared);
        let why = match trials.iter().find_map(|trial| trial.reason.as_deref()) {
            Some(reason) => format!("the first that failed: {reason}"),
            None if tested().any(|found| found.logloss.is_some()) => {
                "an AUC needs samples of both kinds to judge by, and these are all of one: name others with --test-data, \
                 --test-fraction or --validation-fraction, or use --target logloss"
                    .to_owned()
            }
            None if tested().next().is_some() => {
                "all models give probabilities that are no numbers, as at too high a rate (train.lr)".to_owned()
            }
            None => "name test samples with --test-data or --test-fraction".to_owned(),
        };
        let reason = format!("no trial has a score: {why}; a search that is changed needs another --out");
        Err(Error::config(format!("--target {}", self.name()), reason))
    }
}
