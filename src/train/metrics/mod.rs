//! How good probabilities are: AUC, log loss and normalised entropy, average precision, accuracy and calibration, all
//! of them together and by bucket or group.
//!
//! Ranks tally their own samples ([`Tally`]); what follows from all of them is added up and merged ([`runs`]), so that
//! the number of ranks and machines changes no bit.

mod curve;
mod errors;
mod groups;
mod paired;
mod runs;
mod tally;

use std::fmt;

use serde::Serialize;

pub use curve::Bucket;
pub use errors::StandardErrors;
pub use groups::{ByValue, Grouped, MOST_VALUES, ValueScores};
pub(super) use groups::{Grouping, NO_VALUE};
pub use paired::{EachSample, paired_errors};
pub(super) use tally::{LossSum, Tally};

use curve::Curve;
use errors::of_mean;
use groups::Groups;
use runs::{Merged, Tied, merge_machines, unit_of};
use tally::Sums;

use super::Ranks;
use crate::base::units::Many;
use crate::base::{Error, Result};

/// The scores of a set of samples. A label of at least 0.5 counts as a click where samples are clicked or not.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scores {
    /// Area under the ROC curve; NaN when all labels are the same.
    pub auc: f64,
    /// Area under the precision-recall curve, as sklearn's `average_precision_score`; NaN without clicks.
    pub pr_auc: f64,
    /// Mean binary cross-entropy.
    pub logloss: f64,
    /// The mean binary cross-entropy over that of the mean label as everybody's probability (He et al. 2014): 1 is no
    /// better than the mean, 0 is perfect. NaN when all labels are the same.
    pub normalised_entropy: f64,
    /// Share of samples whose rounded probability is their label.
    pub accuracy: f64,
    /// Mean probability over mean label: 1 is calibrated, 2 promises twice the clicks that come.
    pub calibration: f64,
    /// Mean label.
    pub label_rate: f64,
    /// How many samples.
    pub samples: u64,
    /// The sum of their weights, where they have some: then it stands in place of their number in all other scores, as
    /// sklearn's `sample_weight` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// What an evaluation found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Of all samples.
    #[serde(flatten)]
    pub scores: Scores,
    /// Of AUC and log loss, where samples have no weights.
    #[serde(flatten)]
    pub errors: Option<StandardErrors>,
    /// The AUC of the true probabilities, where the data is synthetic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_possible_auc: Option<f64>,
    /// Calibration by bucket of probabilities, each of as many samples, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calibration_buckets: Vec<Bucket>,
    /// AUC by group, where asked for.
    #[serde(flatten)]
    pub grouped: Option<Grouped>,
    /// Scores by value of a column, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_value: Option<ByValue>,
    /// What each sample was given, where asked for.
    #[serde(skip)]
    pub each: Option<EachSample>,
}

/// What of an evaluation's samples is read in an order.
#[derive(Debug, Clone, Copy)]
enum Stream {
    /// Probabilities.
    Scores,
    /// True probabilities.
    Truths,
    /// Probabilities, group by group of a column, by its number among those that group samples.
    Groups(usize),
}

/// A stream of ranks whose tallies are sorted; `unit` is the weight that counts as one, where samples have weights.
fn merged(tallies: &[Tally], stream: Stream, unit: Option<f64>) -> Box<dyn Iterator<Item = Tied> + '_> {
    let weighed =
        |at: usize, unit| Box::new(Merged::new(tallies.iter().map(move |tally| &tally.weighed[at])).in_units(unit));
    match (stream, unit) {
        (Stream::Scores, Some(unit)) => weighed(0, unit),
        (Stream::Groups(number), Some(unit)) => weighed(1 + number, unit),
        (Stream::Scores, None) => Box::new(Merged::new(tallies.iter().map(|tally| &tally.scores))),
        (Stream::Truths, _) => Box::new(Merged::new(tallies.iter().map(|tally| &tally.truths))),
        (Stream::Groups(number), None) => Box::new(Merged::new(tallies.iter().map(move |tally| &tally.groups[number]))),
    }
}

impl Evaluation {
    /// Of the sorted tallies of this machine's ranks, and of those of all machines; all of them call it at the same
    /// time. With calibration by so many `buckets`, and what is asked of groups. `None` where there is no sample, or,
    /// of samples that are not `all` that there are, none counts.
    ///
    /// # Errors
    /// As [`Ranks::everywhere`], and when none of all samples counts.
    pub(super) fn new(
        tallies: &[Tally],
        all: bool,
        buckets: u64,
        groupings: &[Grouping],
        ranks: &Ranks,
    ) -> Result<Option<Self>> {
        let total = |all: &mut dyn Iterator<Item = Sums>| {
            all.fold(Sums::default(), |mut sums, own| {
                sums.plus(&own);
                sums
            })
        };
        let own = total(&mut tallies.iter().map(|tally| tally.sums));
        let sums = total(&mut ranks.everywhere("gather scores", vec![own])?.into_iter().flatten());
        let weighted = tallies.iter().any(|tally| !tally.weighed.is_empty());
        if !is_scored(&sums, all)? {
            return Ok(None);
        }
        let unit = weighted.then(|| unit_of(sums.weight.value()));
        let units = match unit {
            None => [sums.clicks, sums.samples - sums.broken],
            Some(unit) => {
                let own = tallies.iter().map(|tally| tally.weighed[0].units(unit)).fold([0, 0], both);
                ranks.everywhere("gather weights", vec![own])?.into_iter().flatten().fold([0, 0], both)
            }
        };
        let (machine, machines) = (ranks.world().machine(), ranks.world().machines());
        let found = Self::of((&sums, units, unit), buckets, groupings, |stream, each| {
            let exchange = |own| ranks.everywhere("merge scores", own);
            merge_machines(merged(tallies, stream, unit), machine, machines, exchange, each)
        })?;
        Ok(Some(found))
    }

    /// Of all samples' sums, as how many clicks and all count, the weight that counts as one where they have some, and
    /// of streams of them, which `read` hands over lowest first.
    ///
    /// # Errors
    /// Those of `read`.
    fn of(
        (sums, units, unit): (&Sums, [u64; 2], Option<f64>),
        buckets: u64,
        groupings: &[Grouping],
        read: impl Fn(Stream, &mut dyn FnMut(Tied)) -> Result<()>,
    ) -> Result<Self> {
        let mut curve = Curve::new(units, unit, buckets);
        let mut scores = Scores::without_order(sums, unit.is_some());
        let (mut calibration_buckets, mut auc_se) = (Vec::new(), f64::NAN);
        if sums.broken == 0 {
            read(Stream::Scores, &mut |tied| curve.push(tied))?;
            (scores.auc, scores.pr_auc, auc_se) = (curve.auc(), curve.average_precision(), curve.auc_se());
            calibration_buckets = curve.into_buckets();
        }
        let known = |x: f64| if sums.broken == 0 { x } else { f64::NAN };
        let logloss_se = known(of_mean(sums.samples, sums.entropy.value(), sums.squares.value()));
        let errors = unit.is_none().then_some(StandardErrors { auc_se, logloss_se });
        // Generated samples, whose truths are known, have no weights.
        let mut possible = Curve::new([sums.clicks, sums.samples], None, 0);
        read(Stream::Truths, &mut |tied| possible.push(tied))?;
        let best_possible_auc = (possible.units() > 0).then(|| possible.auc());
        let (mut grouped, mut by_value) = (None, None);
        for (number, grouping) in groupings.iter().enumerate().filter(|_| sums.broken == 0) {
            let mut groups = Groups::new(*grouping, unit);
            read(Stream::Groups(number), &mut |tied| groups.push(tied))?;
            let (gauc, values) = groups.finish();
            (grouped, by_value) = (grouped.or(gauc), by_value.or(values));
        }
        Ok(Self { scores, errors, best_possible_auc, calibration_buckets, grouped, by_value, each: None })
    }
}

/// Whether scores follow of samples with these sums: of none they do not, nor of those of which none counts, which is
/// an error where they are `all` that there are.
fn is_scored(sums: &Sums, all: bool) -> Result<bool> {
    // Without weights, samples have the weight 1.
    let counts = sums.weight.value() > 0.0;
    if sums.samples > 0 && !counts && all {
        let reason = format!(
            "all {} that the model is to be judged by have weight 0, of which no score follows: name others \
             (--test-fraction, --validation-fraction or --test-data of train, --data of eval)",
            Many(sums.samples, "sample")
        );
        return Err(Error::config("weight", reason));
    }
    Ok(counts)
}

fn both(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0] + b[0], a[1] + b[1]]
}

impl Scores {
    /// Those that need no order of samples; the others are NaN.
    fn without_order(sums: &Sums, weighted: bool) -> Self {
        let count = sums.weight.value();
        let rate = sums.labels.value() / count;
        let entropy = -(rate * rate.ln() + (1.0 - rate) * (1.0 - rate).ln());
        let known = |x: f64| if sums.broken == 0 { x } else { f64::NAN };
        let logloss = known(sums.entropy.value() / count);
        Self {
            auc: f64::NAN,
            pr_auc: f64::NAN,
            logloss,
            normalised_entropy: logloss / entropy,
            accuracy: known(sums.right.value() / count),
            calibration: known(sums.promised.value() / sums.labels.value()),
            label_rate: rate,
            samples: sums.samples,
            weight: weighted.then_some(count),
        }
    }

    /// Why there is no AUC, where there is none.
    #[must_use]
    pub fn undefined(&self) -> Option<String> {
        let only = match self.label_rate {
            0.0 => "all labels are 0",
            1.0 => "all labels are 1",
            _ if self.logloss.is_nan() => return Some("the model gives probabilities that are no numbers".to_owned()),
            _ => "all labels lie on one side of 0.5",
        };
        self.auc.is_nan().then(|| {
            let only =
                if self.weight.is_some() { format!("{only} where weights are above 0") } else { only.to_owned() };
            let others = if self.label_rate == 0.0 { "AUC and calibration need" } else { "an AUC needs" };
            format!("{only}; {others} samples of both kinds")
        })
    }
}

impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { auc, logloss, accuracy, calibration, samples, weight, .. } = self;
        let weight = weight.map_or_else(String::new, |weight| format!(" of weight {weight:.6}"));
        let number = |x: f64, digits: usize| if x.is_finite() { format!("{x:.digits$}") } else { "-".to_owned() };
        write!(
            f,
            "AUC {}  log loss {logloss:.4}  accuracy {accuracy:.4}  calibration {}  ({}{weight})",
            number(*auc, 4),
            number(*calibration, 3),
            Many(*samples, "sample")
        )?;
        self.undefined().map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

#[cfg(test)]
mod tests {
    mod weights;

    use serde_json::Value;

    use super::*;
    use crate::base::rng::{self, Random};
    use crate::machine::team::Team;

    /// In place of a group: that of unseen values.
    const UNSEEN: u32 = 1 << 20;

    /// Of samples that are all here; `groups` has one for each sample.
    pub(super) fn evaluation(
        probabilities: &[f32],
        labels: &[f32],
        buckets: u64,
        groups: Option<&[u32]>,
    ) -> Evaluation {
        weighed(probabilities, labels, None, buckets, groups)
    }

    /// The same of samples that may have weights.
    pub(super) fn weighed(
        probabilities: &[f32],
        labels: &[f32],
        weights: Option<&[f32]>,
        buckets: u64,
        groups: Option<&[u32]>,
    ) -> Evaluation {
        let groups: Vec<_> = groups.iter().map(|groups| groups.to_vec()).collect();
        let asked = Grouping { unseen: Some(UNSEEN), gauc: true, by: true };
        let mut tally = Tally::new(groups.len(), weights.is_some());
        tally.take(probabilities, labels, weights, &groups, None);
        tally.sort(&Team::new(1).unwrap());
        let (sums, groupings, tallies) = (tally.sums, vec![asked; groups.len()], [tally]);
        let unit = weights.map(|_| unit_of(sums.weight.value()));
        let units = unit.map_or([sums.clicks, sums.samples - sums.broken], |unit| tallies[0].weighed[0].units(unit));
        let read = |stream, each: &mut dyn FnMut(Tied)| {
            merged(&tallies, stream, unit).for_each(each);
            Ok(())
        };
        Evaluation::of((&sums, units, unit), buckets, &groupings, read).unwrap()
    }

    fn scores(probabilities: &[f32], labels: &[f32]) -> Scores {
        evaluation(probabilities, labels, 0, None).scores
    }

    /// Cases that sklearn has scored, of `tests/vectors`.
    fn golden(file: &str) -> Vec<Value> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(file);
        let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert!(cases.len() >= 5);
        cases
    }

    fn floats(numbers: &Value) -> Vec<f32> {
        numbers.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
    }

    fn close(what: &str, found: f64, expected: &Value, bound: f64) {
        match expected.as_f64() {
            Some(expected) => assert!((found - expected).abs() < bound, "{what}: {found}, not {expected}"),
            None => assert!(found.is_nan(), "{what}: {found}"),
        }
    }

    #[test]
    fn auc_and_log_loss_are_those_of_sklearn() {
        for case in golden("auc.json") {
            let found = scores(&floats(&case["scores"]), &floats(&case["labels"]));
            close(&format!("auc of {}", case["name"]), found.auc, &case["auc"], 1e-12);
            close(&format!("log loss of {}", case["name"]), found.logloss, &case["log_loss"], 1e-6);
        }
    }

    #[test]
    fn scores_are_those_of_sklearn_and_of_their_definitions() {
        for case in golden("metrics.json") {
            let (name, groups) = (&case["name"], floats(&case["groups"]));
            let groups: Vec<_> = groups.iter().map(|group| *group as u32).collect();
            let expected = case["buckets"].as_array().unwrap();
            let found = evaluation(&floats(&case["scores"]), &floats(&case["labels"]), 7, Some(&groups));
            let close = |key: &str, found, expected, bound| close(&format!("{name}, {key}"), found, expected, bound);
            close("auc", found.scores.auc, &case["auc"], 1e-12);
            close("pr_auc", found.scores.pr_auc, &case["pr_auc"], 1e-12);
            close("logloss", found.scores.logloss, &case["logloss"], 1e-6);
            close("normalised_entropy", found.scores.normalised_entropy, &case["normalised_entropy"], 1e-5);
            assert_eq!(found.calibration_buckets.len(), expected.len(), "{name}");
            for (bucket, expected) in found.calibration_buckets.iter().zip(expected) {
                let range = [&expected[0], &expected[1]].map(|score| score.as_f64().unwrap() as f32);
                assert_eq!(
                    ([bucket.lowest, bucket.highest], bucket.samples),
                    (range, expected[2].as_u64().unwrap()),
                    "{name}"
                );
                close("mean probability", bucket.probability, &expected[3], 1e-12);
                close("clicked", bucket.clicked, &expected[4], 1e-12);
            }
            let grouped = found.grouped.unwrap();
            close("gauc", grouped.gauc, &case["gauc"][0], 1e-12);
            let counts = [
                grouped.gauc_groups,
                grouped.gauc_samples,
                grouped.gauc_groups_of_one_class,
                grouped.gauc_samples_of_one_class,
            ];
            assert_eq!(counts.map(Value::from)[..], case["gauc"].as_array().unwrap()[1..], "{name}");
        }
    }

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
            let random = Random::new(3, rng::Stream::Column(round as u32));
            let probabilities: Vec<f32> = (0..300).map(|i| random.below(i, levels) as f32 / levels as f32).collect();
            let labels: Vec<f32> = (0..300).map(|i| f32::from(random.uniform(1000 + i) < 0.2)).collect();
            assert_eq!(scores(&probabilities, &labels).auc, count_pairs(&probabilities, &labels));
        }
        assert_eq!(scores(&[0.1, 0.9], &[0.0, 1.0]).auc, 1.0);
        assert_eq!(scores(&[-0.0, 0.0], &[0.0, 1.0]).auc, 0.5);
        assert!(scores(&[0.1, 0.9], &[1.0, 1.0]).auc.is_nan());
    }

    #[test]
    fn the_other_scores_follow_their_definitions() {
        let found = scores(&[0.8, 0.4, 0.6, 0.0], &[1.0, 0.0, 0.0, 0.0]);
        assert_eq!(found.accuracy, 0.75);
        // An even chance is no click, as in facebookresearch/dlrm, whose `np.round` makes it 0; half a label is one.
        assert_eq!(scores(&[0.5, 0.5, 0.5, 0.4], &[1.0, 0.0, 0.0, 0.5]).accuracy, 0.5);
        assert_eq!(scores(&[0.5, 0.9, 0.1], &[1.0, 0.5, 0.5]).accuracy, 1.0 / 3.0);
        assert!((found.calibration - 1.8).abs() < 1e-6);
        let expected = -(0.8f64.ln() + 0.6f64.ln() + 0.4f64.ln()) / 4.0;
        assert!((found.logloss - expected).abs() < 1e-6);
        let by_mean = -(0.25f64 * 0.25f64.ln() + 0.75 * 0.75f64.ln());
        assert!((found.normalised_entropy - expected / by_mean).abs() < 1e-6);
        // One click above all others, or below one of three.
        assert_eq!(found.pr_auc, 1.0);
        assert_eq!(scores(&[0.5, 0.4, 0.6, 0.0], &[1.0, 0.0, 0.0, 0.0]).pr_auc, 0.5);
        assert!(scores(&[0.5, 0.4], &[0.0, 0.0]).pr_auc.is_nan());
    }

    #[test]
    fn a_probability_that_is_no_number_leaves_no_score() {
        for bad in [f32::NAN, 1.5] {
            let found = evaluation(&[0.8, bad, 0.6], &[1.0, 0.0, 0.0], 3, Some(&[1; 3]));
            let Scores { auc, pr_auc, logloss, accuracy, calibration, .. } = found.scores;
            assert!([auc, pr_auc, logloss, accuracy, calibration].iter().all(|score| score.is_nan()), "{bad}");
            assert!(found.calibration_buckets.is_empty() && found.grouped.is_none() && found.by_value.is_none());
            assert!(found.scores.undefined().unwrap().contains("no numbers"));
        }
    }

    #[test]
    fn groups_of_one_class_and_samples_without_a_group_are_left_out_and_counted() {
        let probabilities = [0.1, 0.9, 0.5, 0.4, 0.3, 0.2, 0.6, 0.7];
        let labels = [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0];
        let groups = [7, 7, 2, 2, 2, 9, NO_VALUE, UNSEEN];
        let found = evaluation(&probabilities, &labels, 0, Some(&groups)).grouped.unwrap();
        // Group 7 is in order; of group 2 one of two pairs.
        assert_eq!((found.gauc, found.gauc_groups, found.gauc_samples), ((2.0 + 3.0 * 0.5) / 5.0, 2, 5));
        assert_eq!((found.gauc_groups_of_one_class, found.gauc_samples_of_one_class), (1, 1));
        assert_eq!(found.gauc_samples_without_group, 2);
    }

    #[test]
    fn each_value_has_the_scores_that_its_samples_have_alone() {
        let random = Random::new(4, rng::Stream::Column(9));
        let probabilities: Vec<f32> = (0..500).map(|i| random.below(i, 64) as f32 / 64.0).collect();
        let labels: Vec<f32> = (0..500).map(|i| f32::from(random.uniform(1000 + i) < 0.3)).collect();
        let group = |i: u64| [5, UNSEEN, 1, 0, 5, 8, NO_VALUE][random.below(2000 + i, 7) as usize];
        let groups: Vec<u32> = (0..500).map(group).collect();
        let found = evaluation(&probabilities, &labels, 0, Some(&groups)).by_value.unwrap();
        let rows: Vec<_> = found.values.iter().map(|value| value.row).collect();
        assert!(found.count == rows.len() as u64 && rows[0] == Some(5) && rows.contains(&None), "{rows:?}");
        assert!(found.values.is_sorted_by_key(|value| std::cmp::Reverse(value.samples)), "{found:?}");
        for value in &found.values {
            let own = |numbers: &[f32]| -> Vec<f32> {
                let with = numbers.iter().zip(&groups).filter(|(_, group)| **group == value.row.unwrap_or(NO_VALUE));
                with.map(|(number, _)| *number).collect()
            };
            let alone = scores(&own(&probabilities), &own(&labels));
            assert_eq!((value.unseen, value.samples), (value.row == Some(UNSEEN), alone.samples));
            for (found, expected) in [
                (value.auc, alone.auc),
                (value.label_rate, alone.label_rate),
                (value.logloss, alone.logloss),
                (value.normalised_entropy, alone.normalised_entropy),
                (value.calibration, alone.calibration),
            ] {
                assert!((found - expected).abs() < 1e-12, "{value:?}, {alone:?}");
            }
        }
        // No more are kept than are told of, those with the most samples.
        let many = 3 * MOST_VALUES as u32;
        let groups: Vec<u32> = (0..many).chain(many - 5..many).collect();
        let numbers = vec![0.5; groups.len()];
        let found = evaluation(&numbers, &numbers, 0, Some(&groups)).by_value.unwrap();
        let rows: Vec<_> = found.values.iter().map(|value| value.row.unwrap()).collect();
        assert!(found.count == u64::from(many) && rows.len() == MOST_VALUES);
        assert!(rows.iter().copied().eq((many - 5..many).chain(0..many - 5).take(MOST_VALUES)), "{:?}", &rows[..9]);
    }
}
