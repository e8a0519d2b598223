//! What the order of scores tells: the areas under the ROC and the precision-recall curve, and calibration by bucket.
//! All of them read samples once, lowest score first.

use serde::Serialize;

use super::errors::{Placements, of_auc};
use super::runs::Tied;

/// Pairs of a sample that was clicked and one that was not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pairs {
    /// Twice the number of rightly ordered pairs, so that a tie counts 1. Where samples have weights, those of a pair
    /// are multiplied, as in sklearn: as if there were as many samples as units.
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

    /// As how many the samples count that came so far.
    pub const fn units(&self) -> u64 {
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
    /// The sum of their weights, where they have some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Mean probability.
    pub probability: f64,
    /// Share of clicks: labels of at least 0.5.
    pub clicked: f64,
}

/// One pass over the samples of a set whose numbers are known.
#[derive(Debug)]
pub struct Curve {
    pairs: Pairs,
    /// As how many clicks, and all samples, of the whole set count.
    clicks: u64,
    units: u64,
    /// The weight that counts as one, where samples have weights.
    unit: Option<f64>,
    /// Precision, added up over clicks.
    precision: f64,
    /// Of clicks and of other samples, where these have no weights.
    placements: [Placements; 2],
    /// How many buckets.
    buckets: u64,
    /// Those that have samples so far, with their numbers and as how many these count; probabilities are added up, and
    /// clicks.
    filled: Vec<(u64, u64, Bucket)>,
}

impl Curve {
    /// Over samples of which those that were clicked, and all, count as so many; `unit` is the weight that counts as
    /// one, where samples have weights.
    pub fn new([clicks, units]: [u64; 2], unit: Option<f64>, buckets: u64) -> Self {
        let (pairs, placements) = (Pairs::default(), Default::default());
        Self { pairs, clicks, units, unit, precision: 0.0, placements, buckets, filled: Vec::new() }
    }

    /// The samples of the next higher score.
    pub fn push(&mut self, tied: Tied) {
        let below = self.pairs.units();
        // Of all samples with at least this score: sklearn's threshold.
        let (clicks, units) = (self.clicks - self.pairs.clicks, self.units - below);
        if tied.clicks > 0 {
            self.precision += tied.clicks as f64 * (clicks as f64 / units as f64);
        }
        if self.unit.is_none() {
            let [of_clicks, of_others] = &mut self.placements;
            of_clicks.add(i128::from(2 * self.pairs.others + tied.others), tied.clicks);
            of_others.add(i128::from(2 * clicks - tied.clicks), tied.others);
        }
        self.pairs.push(tied);
        if self.buckets == 0 {
            return;
        }
        // Buckets are of equal numbers of samples; equal scores lie in one, that of the first of them.
        let number = (u128::from(below) * u128::from(self.buckets) / u128::from(self.units)) as u64;
        // Samples of weight 0 may lie above all that count.
        let (score, number) = (tied.probability(), number.min(self.buckets - 1));
        if self.filled.last().is_none_or(|(last, ..)| *last != number) {
            let sums =
                Bucket { lowest: score, highest: score, samples: 0, weight: None, probability: 0.0, clicked: 0.0 };
            self.filled.push((number, 0, sums));
        }
        if let Some((_, units, bucket)) = self.filled.last_mut() {
            bucket.highest = score;
            bucket.samples += tied.samples;
            *units += tied.units();
            bucket.probability += f64::from(score) * tied.units() as f64;
            bucket.clicked += tied.clicks as f64;
        }
    }

    /// The area under the ROC curve: the share of (click, no click) pairs that scores order rightly, a tie counting
    /// half, as sklearn's `roc_auc_score`. Exact: pairs are counted in integers. NaN when there is no pair.
    pub fn auc(&self) -> f64 {
        self.pairs.auc()
    }

    /// The standard error of [`Curve::auc`] by DeLong's method, which has no place for weights: NaN where samples have
    /// some, and with fewer than two clicks or other samples.
    pub fn auc_se(&self) -> f64 {
        of_auc(self.placements)
    }

    /// The area under the precision-recall curve as sklearn's `average_precision_score`: the mean over clicks of the
    /// share of clicks among all samples of at least their score. NaN without clicks.
    pub fn average_precision(&self) -> f64 {
        if self.clicks == 0 { f64::NAN } else { self.precision / self.clicks as f64 }
    }

    /// As how many the samples count that came so far.
    pub const fn units(&self) -> u64 {
        self.pairs.units()
    }

    /// The buckets that have samples that count, lowest first.
    pub fn into_buckets(self) -> Vec<Bucket> {
        let mean = |(_, units, bucket): (u64, u64, Bucket)| {
            let (count, weight) = (units as f64, self.unit.map(|unit| units as f64 * unit));
            let (probability, clicked) = (bucket.probability / count, bucket.clicked / count);
            (units > 0).then_some(Bucket { probability, clicked, weight, ..bucket })
        };
        self.filled.into_iter().filter_map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::evaluation;
    use super::*;

    #[test]
    fn buckets_hold_equal_numbers_and_ties_stay_together() {
        let probabilities = [0.1, 0.9, 0.2, 0.2, 0.2, 0.2, 0.7, 0.8];
        let labels = [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        let found = evaluation(&probabilities, &labels, 4, None).calibration_buckets;
        // 0.1 and all of 0.2, whose first is the second of the lowest quarter; the second and the third quarter are
        // empty.
        let of = |bucket: &Bucket| (bucket.lowest, bucket.highest, bucket.samples, bucket.clicked);
        assert_eq!(
            found.iter().map(of).collect::<Vec<_>>(),
            [(0.1, 0.2, 5, 0.2), (0.7, 0.7, 1, 0.0), (0.8, 0.9, 2, 1.0)]
        );
        assert!((found[2].probability - 0.85).abs() < 1e-7);
        assert!(evaluation(&probabilities, &labels, 0, None).calibration_buckets.is_empty());
    }
}
