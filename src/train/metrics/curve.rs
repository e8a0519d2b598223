//! What the order of scores tells: the areas under the ROC and the precision-recall curve, and calibration by bucket.
//! All of them read samples once, lowest score first.

use serde::Serialize;

use super::runs::Tied;

/// Pairs of a sample that was clicked and one that was not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pairs {
    /// Twice the number of rightly ordered pairs, so that a tie counts 1.
    twice: u128,
    clicks: u64,
    others: u64,
}

impl Pairs {
    /// The samples of the next higher score.
    pub fn push(&mut self, tied: Tied) {
        self.twice += u128::from(tied.clicks) * u128::from(2 * self.others + tied.others);
        self.clicks += tied.clicks;
        self.others += tied.others;
    }

    /// How many samples there were so far.
    pub const fn samples(&self) -> u64 {
        self.clicks + self.others
    }

    /// The share of pairs that scores order rightly, a tie counting half. NaN when there is no pair.
    pub fn auc(&self) -> f64 {
        let pairs = u128::from(self.clicks) * u128::from(self.others);
        if pairs == 0 { f64::NAN } else { self.twice as f64 / (2.0 * pairs as f64) }
    }
}

/// The samples of one bucket of probabilities.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bucket {
    /// The lowest probability.
    pub lowest: f32,
    /// The highest.
    pub highest: f32,
    /// How many samples.
    pub samples: u64,
    /// Mean probability.
    pub probability: f64,
    /// Share of clicks: labels of at least 0.5.
    pub clicked: f64,
}

/// One pass over the samples of a set whose numbers are known.
#[derive(Debug)]
pub struct Curve {
    pairs: Pairs,
    /// Clicks and samples of the whole set.
    clicks: u64,
    samples: u64,
    /// Precision, added up over clicks.
    precision: f64,
    /// How many buckets.
    buckets: u64,
    /// Those that have samples so far, with their numbers; probabilities are added up, and clicks.
    filled: Vec<(u64, Bucket)>,
}

impl Curve {
    /// Over so many samples, of which so many were clicked.
    pub const fn new(samples: u64, clicks: u64, buckets: u64) -> Self {
        let pairs = Pairs { twice: 0, clicks: 0, others: 0 };
        Self { pairs, clicks, samples, precision: 0.0, buckets, filled: Vec::new() }
    }

    /// The samples of the next higher score.
    pub fn push(&mut self, tied: Tied) {
        let below = self.pairs.samples();
        // Of all samples with at least this score: sklearn's threshold.
        let (clicks, samples) = (self.clicks - self.pairs.clicks, self.samples - below);
        self.precision += tied.clicks as f64 * (clicks as f64 / samples as f64);
        self.pairs.push(tied);
        if self.buckets == 0 {
            return;
        }
        // Buckets are of equal numbers of samples; equal scores lie in one, that of the first of them.
        let number = (u128::from(below) * u128::from(self.buckets) / u128::from(self.samples)) as u64;
        let (score, count) = (tied.probability(), tied.samples());
        if self.filled.last().is_none_or(|(last, _)| *last != number) {
            let bucket = Bucket { lowest: score, highest: score, samples: 0, probability: 0.0, clicked: 0.0 };
            self.filled.push((number, bucket));
        }
        if let Some((_, bucket)) = self.filled.last_mut() {
            bucket.highest = score;
            bucket.samples += count;
            bucket.probability += f64::from(score) * count as f64;
            bucket.clicked += tied.clicks as f64;
        }
    }

    /// The area under the ROC curve: the share of (click, no click) pairs that scores order rightly, a tie counting
    /// half, as sklearn's `roc_auc_score`. Exact: pairs are counted in integers. NaN when there is no pair.
    pub fn auc(&self) -> f64 {
        self.pairs.auc()
    }

    /// The area under the precision-recall curve as sklearn's `average_precision_score`: the mean over clicks of the
    /// share of clicks among all samples of at least their score. NaN without clicks.
    pub fn average_precision(&self) -> f64 {
        if self.clicks == 0 { f64::NAN } else { self.precision / self.clicks as f64 }
    }

    /// How many samples there were so far.
    pub const fn samples(&self) -> u64 {
        self.pairs.samples()
    }

    /// The buckets that have samples, lowest first.
    pub fn into_buckets(self) -> Vec<Bucket> {
        let mean = |(_, bucket): (u64, Bucket)| {
            let count = bucket.samples as f64;
            Bucket { probability: bucket.probability / count, clicked: bucket.clicked / count, ..bucket }
        };
        self.filled.into_iter().map(mean).collect()
    }
}
