//! How good probabilities are: AUC, log loss, accuracy and calibration.

use std::fmt;

use serde::Serialize;

use crate::base::units::Many;

/// The scores of a set of samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scores {
    /// Area under the ROC curve; NaN when all labels are the same.
    pub auc: f64,
    /// Mean binary cross-entropy.
    pub logloss: f64,
    /// Share of samples whose rounded probability is their label.
    pub accuracy: f64,
    /// Mean probability over mean label: 1 is calibrated, 2 promises twice the clicks that come.
    pub calibration: f64,
    /// Mean label.
    pub label_rate: f64,
    /// How many samples.
    pub samples: u64,
}

impl Scores {
    /// Scores `probabilities` against `labels` (0 or 1, a label of at least 0.5 counts as 1).
    ///
    /// # Panics
    /// When the lengths differ.
    #[must_use]
    pub fn new(probabilities: &[f32], labels: &[f32]) -> Self {
        assert_eq!(probabilities.len(), labels.len(), "one probability a label");
        // As sklearn's log_loss: probabilities of type f32 are kept this far from 0 and 1.
        let edge = f64::from(f32::EPSILON);
        let (mut entropy, mut right, mut promised, mut clicks) = (0.0, 0u64, 0.0, 0.0);
        for (&p, &t) in probabilities.iter().zip(labels) {
            let (p, t) = (f64::from(p), f64::from(t));
            let kept = p.clamp(edge, 1.0 - edge);
            entropy -= t * kept.ln() + (1.0 - t) * (1.0 - kept).ln();
            right += u64::from((p >= 0.5) == (t >= 0.5));
            promised += p;
            clicks += t;
        }
        let count = labels.len() as f64;
        Self {
            auc: auc(probabilities, labels),
            logloss: entropy / count,
            accuracy: right as f64 / count,
            calibration: promised / clicks,
            label_rate: clicks / count,
            samples: labels.len() as u64,
        }
    }

    /// Why there is no AUC, where there is none.
    #[must_use]
    pub fn undefined(&self) -> Option<String> {
        let only = match self.label_rate {
            0.0 => "all labels are 0",
            1.0 => "all labels are 1",
            _ => "all labels lie on one side of 0.5",
        };
        self.auc.is_nan().then(|| {
            let others = if self.label_rate == 0.0 { "AUC and calibration need" } else { "an AUC needs" };
            format!("{only}; {others} samples of both kinds")
        })
    }
}

impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { auc, logloss, accuracy, calibration, samples, .. } = self;
        let number = |x: f64, digits: usize| if x.is_finite() { format!("{x:.digits$}") } else { "-".to_owned() };
        write!(
            f,
            "AUC {}  log loss {logloss:.4}  accuracy {accuracy:.4}  calibration {}  ({})",
            number(*auc, 4),
            number(*calibration, 3),
            Many(*samples, "sample")
        )?;
        self.undefined().map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

/// The area under the ROC curve: the share of (click, no click) pairs that `scores` order rightly, a tie counting half.
/// This is what sklearn's `roc_auc_score` returns. Exact: pairs are counted in integers. NaN when there is no pair or a
/// score is NaN.
///
/// # Panics
/// When the lengths differ.
#[must_use]
pub fn auc(scores: &[f32], labels: &[f32]) -> f64 {
    assert_eq!(scores.len(), labels.len(), "one score a label");
    if scores.iter().any(|score| score.is_nan()) {
        return f64::NAN;
    }
    let mut samples: Vec<(f32, bool)> = scores.iter().zip(labels).map(|(&s, &t)| (s + 0.0, t >= 0.5)).collect();
    samples.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    // Twice the number of rightly ordered pairs, so that a tie counts 1.
    let (mut twice, mut clicks_below, mut others_below) = (0u128, 0u64, 0u64);
    for tied in samples.chunk_by(|a, b| a.0 == b.0) {
        let clicks = tied.iter().filter(|(_, click)| *click).count() as u64;
        let others = tied.len() as u64 - clicks;
        twice += u128::from(clicks) * u128::from(2 * others_below + others);
        clicks_below += clicks;
        others_below += others;
    }
    let pairs = u128::from(clicks_below) * u128::from(others_below);
    if pairs == 0 { f64::NAN } else { twice as f64 / (2.0 * pairs as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::{Random, Stream};

    /// The definition: every pair.
    fn count_pairs(scores: &[f32], labels: &[f32]) -> f64 {
        let (mut right, mut pairs) = (0.0, 0.0);
        for (i, &click) in labels.iter().enumerate() {
            for (j, &other) in labels.iter().enumerate() {
                if click == 1.0 && other == 0.0 {
                    pairs += 1.0;
                    right += match scores[i].partial_cmp(&scores[j]) {
                        Some(std::cmp::Ordering::Greater) => 1.0,
                        Some(std::cmp::Ordering::Equal) => 0.5,
                        _ => 0.0,
                    };
                }
            }
        }
        right / pairs
    }

    #[test]
    fn auc_is_the_share_of_ordered_pairs() {
        for (round, levels) in [1u64, 2, 3, 10, 1000].into_iter().enumerate() {
            let random = Random::new(3, Stream::Column(round as u32));
            let scores: Vec<f32> = (0..300).map(|i| random.below(i, levels) as f32 / levels as f32 - 0.3).collect();
            let labels: Vec<f32> = (0..300).map(|i| f32::from(random.uniform(1000 + i) < 0.2)).collect();
            assert_eq!(auc(&scores, &labels), count_pairs(&scores, &labels));
        }
        assert_eq!(auc(&[0.1, 0.9], &[0.0, 1.0]), 1.0);
        assert_eq!(auc(&[-0.0, 0.0], &[0.0, 1.0]), 0.5);
        assert!(auc(&[0.1, 0.9], &[1.0, 1.0]).is_nan());
        assert!(auc(&[0.1, f32::NAN], &[0.0, 1.0]).is_nan());
    }

    #[test]
    fn the_other_scores_follow_their_definitions() {
        let scores = Scores::new(&[0.8, 0.4, 0.6, 0.0], &[1.0, 0.0, 0.0, 0.0]);
        assert_eq!(scores.accuracy, 0.75);
        // An even chance is a click, as sklearn's `p >= 0.5`, and so is half a label.
        assert_eq!(Scores::new(&[0.5, 0.5, 0.5, 0.4], &[1.0, 1.0, 0.0, 0.5]).accuracy, 0.5);
        assert_eq!(Scores::new(&[0.5, 0.9, 0.1], &[1.0, 0.5, 0.5]).accuracy, 2.0 / 3.0);
        assert!((scores.calibration - 1.8).abs() < 1e-6);
        let expected = -(0.8f64.ln() + 0.6f64.ln() + 0.4f64.ln()) / 4.0;
        assert!((scores.logloss - expected).abs() < 1e-6);
    }
}
