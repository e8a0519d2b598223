//! What planted click models have in common: how often there is a click, and how well the best model tells, are set by
//! an intercept and a scale of their scores; and test samples are those after the training samples.

use super::Split;
use crate::base::config::DataConfig;
use crate::base::{Error, Result};

/// How many samples are generated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    train: u64,
    test: u64,
}

impl Counts {
    /// As many as a configuration says.
    pub(super) const fn of(config: &DataConfig) -> Self {
        Self { train: config.train_samples, test: config.test_samples }
    }

    /// Samples of a split.
    pub(super) const fn of_split(self, split: Split) -> u64 {
        match split {
            Split::Train => self.train,
            Split::Test => self.test,
        }
    }

    /// The number of a split's sample among all.
    pub(super) const fn number(self, split: Split, sample: u64) -> u64 {
        match split {
            Split::Train => sample,
            Split::Test => self.train.wrapping_add(sample),
        }
    }

    /// The number of a split's sample `start` among all, and how many there are from there on.
    ///
    /// # Errors
    /// [`Error::Config`] when there is no such sample.
    pub(super) fn from(self, split: Split, start: u64) -> Result<[u64; 2]> {
        let count = self.of_split(split);
        if start > count {
            let reason = format!("sample {start} is asked for, but only {count} are generated");
            return Err(Error::config("data.train_samples, data.test_samples", reason));
        }
        Ok([self.number(split, start), count - start])
    }
}

/// Scale and intercept with which these scores make clicks so often, and the true probabilities have this AUC (the
/// Bayes AUC).
pub(super) fn calibrated(mut scores: Vec<f64>, rate: f64, bayes_auc: f64) -> [f64; 2] {
    scores.sort_unstable_by(f64::total_cmp);
    let scale = bisect(0.0, 8.0, |scale| auc(&scores, scale, intercept(&scores, scale, rate)) < bayes_auc);
    [scale, intercept(&scores, scale, rate)]
}

/// The intercept at which the click rate is met.
fn intercept(scores: &[f64], scale: f64, rate: f64) -> f64 {
    let clicks = |shift: f64| scores.iter().map(|score| logistic(scale * score + shift)).sum::<f64>();
    bisect(-30.0, 30.0, |shift| clicks(shift) < rate * scores.len() as f64)
}

/// The expected AUC of the true probabilities, for scores in ascending order.
fn auc(scores: &[f64], scale: f64, intercept: f64) -> f64 {
    let (mut clicks, mut others, mut right, mut same) = (0.0, 0.0, 0.0, 0.0);
    for score in scores {
        let p = logistic(scale * score + intercept);
        right += p * others;
        clicks += p;
        others += 1.0 - p;
        same += p * (1.0 - p);
    }
    right / (clicks * others - same)
}

/// Where a condition that holds up to a point stops to hold.
fn bisect(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..20 {
        let middle = 0.5 * (low + high);
        if holds(middle) { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The probability of a logit.
pub(super) fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}
