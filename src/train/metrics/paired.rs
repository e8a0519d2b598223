//! Two models on the same samples. What is hard or easy for both of them is no part of their difference, whose standard
//! error is therefore far below those of their scores.

use rayon::prelude::*;

use super::errors::{Placements, StandardErrors, of_auc, of_mean};
use super::tally::{FixedSum, cross_entropy};
use crate::base::units::Many;
use crate::base::{Error, Result, interrupt};

/// Samples between two looks at the wish to stop.
const PIECE: usize = 1 << 16;

/// What a model gives each sample of a set, in their order: 8 bytes a sample, 12 where they have weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EachSample {
    probabilities: Vec<f32>,
    labels: Vec<f32>,
    /// Empty where samples have none.
    weights: Vec<f32>,
}

impl EachSample {
    /// Adds the next sample: its probability, its label, and its weight where it has one.
    pub(in crate::train) fn push(&mut self, [probability, label, weight]: [f32; 3], weighted: bool) {
        self.probabilities.push(probability);
        self.labels.push(label);
        if weighted {
            self.weights.push(weight);
        }
    }

    /// In what samples are others than those that another model was given, for people, where this one is A and that
    /// one B; `None` where they are the same, as far as labels and weights tell.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Option<String> {
        let counts = [self, other].map(|each| each.labels.len() as u64);
        if counts[0] != counts[1] {
            return Some(format!("A has {} and B has {}", Many(counts[0], "sample"), Many(counts[1], "sample")));
        }
        if self.weights.len() != other.weights.len() {
            return Some("samples have weights by one of their schemas alone".to_owned());
        }
        let of = |what: &str, own: &[f32], others: &[f32]| {
            let (number, (own, other)) = own.iter().zip(others).enumerate().find(|(_, (a, b))| a != b)?;
            Some(format!("sample {number} has {what} {own} by A and {other} by B"))
        };
        of("label", &self.labels, &other.labels).or_else(|| of("weight", &self.weights, &other.weights))
    }
}

/// Standard errors of the differences of two models' AUC and log loss on the same samples; `None` where these have
/// weights, for which DeLong's method has no place. In O(n log n), and 8 more bytes a sample, 4
/// of which are those of the labels of `b`.
///
/// # Errors
/// [`Error::Interrupted`].
///
/// # Panics
/// When the samples are others: see [`EachSample::differs`].
pub fn paired_errors(a: EachSample, b: EachSample) -> Result<Option<StandardErrors>> {
    assert_eq!(a.labels.len(), b.labels.len(), "the same samples");
    if !(a.weights.is_empty() && b.weights.is_empty()) {
        return Ok(None);
    }
    drop(b.labels);
    let (labels, given) = (&a.labels[..], [&a.probabilities[..], &b.probabilities[..]]);
    let is_probability = |probability: &f32| (0.0..=1.0).contains(probability);
    if !given.iter().all(|given| given.iter().all(is_probability)) {
        return Ok(Some(StandardErrors { auc_se: f64::NAN, logloss_se: f64::NAN }));
    }
    let add = |[mut sum, mut squares]: [FixedSum; 2], sample: usize| {
        let [own, other] = given.map(|given| cross_entropy(given[sample], labels[sample]));
        sum.add(own - other);
        squares.add((own - other) * (own - other));
        [sum, squares]
    };
    let [sum, squares] = over(labels.len(), add, |[mut sum, mut squares], other| {
        sum.plus(other[0]);
        squares.plus(other[1]);
        [sum, squares]
    })?;
    let logloss_se = of_mean(labels.len() as u64, sum.value(), squares.value());
    Ok(Some(StandardErrors { auc_se: of_auc(placements(given, labels)?), logloss_se }))
}

/// By how much clicks, and other samples, are placed better by the first model than by the second.
fn placements(given: [&[f32]; 2], labels: &[f32]) -> Result<[Placements; 2]> {
    let [clicks, others] = [true, false].map(|clicks| given.map(|given| sorted(given, labels, clicks)));
    // Twice the number of these that lie below a score, where equal ones count half.
    let below = |scores: &[f32], score: f32| {
        let [less, all] =
            [scores.partition_point(|other| *other < score), scores.partition_point(|other| *other <= score)];
        (less + all) as i128
    };
    let add = |[mut of_clicks, mut of_others]: [Placements; 2], sample: usize| {
        let [own, other] = given.map(|given| given[sample]);
        if labels[sample] >= 0.5 {
            of_clicks.add(below(&others[0], own) - below(&others[1], other), 1);
        } else {
            // Of clicks, those that lie above are right.
            of_others.add(below(&clicks[1], other) - below(&clicks[0], own), 1);
        }
        [of_clicks, of_others]
    };
    over(labels.len(), add, |a, b| [a[0].with(b[0]), a[1].with(b[1])])
}

/// The probabilities of clicks, or those of other samples, lowest first.
fn sorted(given: &[f32], labels: &[f32], clicks: bool) -> Vec<f32> {
    let own = given.iter().zip(labels).filter(|(_, label)| (**label >= 0.5) == clicks);
    let mut own: Vec<f32> = own.map(|(probability, _)| *probability).collect();
    own.par_sort_unstable_by(f32::total_cmp);
    own
}

/// What is found of so many samples, by all threads: `both` joins parts in any order.
fn over<T: Default + Send>(
    samples: usize,
    add: impl Fn(T, usize) -> T + Sync + Send,
    both: impl Fn(T, T) -> T + Sync + Send,
) -> Result<T> {
    let next = |found: T, sample: usize| match sample.is_multiple_of(PIECE) && interrupt::requested() {
        true => Err(Error::Interrupted),
        false => Ok(add(found, sample)),
    };
    (0..samples).into_par_iter().try_fold(T::default, next).try_reduce(T::default, |a, b| Ok(both(a, b)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::evaluation;
    use super::*;
    use crate::base::rng::{Random, Stream};

    fn each(probabilities: &[f32], labels: &[f32]) -> EachSample {
        let mut each = EachSample::default();
        probabilities.iter().zip(labels).for_each(|(p, label)| each.push([*p, *label, 1.0], false));
        each
    }

    fn errors(a: &EachSample, b: &EachSample) -> Option<StandardErrors> {
        paired_errors(a.clone(), b.clone()).unwrap()
    }

    /// The definition: the placements of each sample by every pair, clicks first, then others.
    fn components(probabilities: &[f32], labels: &[f32]) -> [Vec<f64>; 2] {
        let of = |click: f32| -> Vec<f32> {
            probabilities.iter().zip(labels).filter(|(_, label)| **label == click).map(|(p, _)| *p).collect()
        };
        let (clicks, others) = (of(1.0), of(0.0));
        let right = |click: f32, other: f32| match click.partial_cmp(&other) {
            Some(std::cmp::Ordering::Greater) => 1.0,
            Some(std::cmp::Ordering::Equal) => 0.5,
            _ => 0.0,
        };
        let of_click =
            |click: &f32| others.iter().map(|other| right(*click, *other)).sum::<f64>() / others.len() as f64;
        let of_other =
            |other: &f32| clicks.iter().map(|click| right(*click, *other)).sum::<f64>() / clicks.len() as f64;
        [clicks.iter().map(of_click).collect(), others.iter().map(of_other).collect()]
    }

    fn covariance(a: &[f64], b: &[f64]) -> f64 {
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len() as f64;
        let products = a.iter().zip(b).map(|(x, y)| (x - mean(a)) * (y - mean(b)));
        products.sum::<f64>() / (a.len() - 1) as f64
    }

    /// DeLong's variance of the difference of two AUCs.
    fn delong(a: &[f32], b: &[f32], labels: &[f32]) -> f64 {
        let (a, b) = (components(a, labels), components(b, labels));
        let part =
            |a: &[f64], b: &[f64]| (covariance(a, a) + covariance(b, b) - 2.0 * covariance(a, b)) / a.len() as f64;
        part(&a[0], &b[0]) + part(&a[1], &b[1])
    }

    #[test]
    fn the_error_of_a_difference_is_delongs_as_worked_out_by_hand() {
        let labels = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0];
        let (a, b) = ([0.8, 0.7, 0.6, 0.3, 0.4, 0.4, 0.1], [0.5, 0.1, 0.9, 0.6, 0.2, 0.3, 0.4]);
        // Placements of clicks differ by 2/8, -2/8 and 3/8, with variance 7/64; those of others by -4/6, 4/6, 1/6 and
        // 2/6, with variance 139/432.
        let due = 7.0 / 64.0 / 3.0 + 139.0 / 432.0 / 4.0;
        assert!((delong(&a, &b, &labels) - due).abs() < 1e-12);
        let found = errors(&each(&a, &labels), &each(&b, &labels)).unwrap();
        assert!((found.auc_se.powi(2) - due).abs() < 1e-12, "{found:?}");
        assert!((due - 101.0 / 864.0).abs() < 1e-12);
    }

    #[test]
    fn errors_of_differences_follow_their_definitions_with_ties_and_without() {
        for (round, levels) in [2u64, 5, 20, 1 << 20].into_iter().enumerate() {
            let random = Random::new(9, Stream::Column(round as u32));
            let labels: Vec<f32> = (0..150).map(|i| f32::from(u8::from(random.uniform(i) < 0.3))).collect();
            let drawn = |from: u64| -> Vec<f32> {
                (0..150).map(|i| (random.below(from + i, levels) + 1) as f32 / (levels + 1) as f32).collect()
            };
            let (a, b) = (drawn(1000), drawn(2000));
            let found = errors(&each(&a, &labels), &each(&b, &labels)).unwrap();
            let due = delong(&a, &b, &labels);
            assert!((found.auc_se.powi(2) - due).abs() < 1e-12 && due > 0.0, "{levels}: {found:?}, {due}");
            let loss = |p: f32, label: f32| -f64::from(if label == 1.0 { p } else { 1.0 - p }).ln();
            let differences = (0..150).map(|i| loss(a[i], labels[i]) - loss(b[i], labels[i])).collect::<Vec<_>>();
            let due = (covariance(&differences, &differences) / 150.0).sqrt();
            assert!((found.logloss_se - due).abs() < 1e-6, "{levels}: {found:?}, {due}");
            // Whoever is first.
            assert_eq!(errors(&each(&b, &labels), &each(&a, &labels)), Some(found));
            // Against a model that gives all the same, the difference is as uncertain as the score.
            let alone = evaluation(&a, &labels, 0, None).errors.unwrap();
            let against = errors(&each(&a, &labels), &each(&[0.5; 150], &labels)).unwrap();
            assert!((against.auc_se - alone.auc_se).abs() < 1e-12, "{levels}: {against:?}, {alone:?}");
        }
    }

    #[test]
    fn a_model_does_not_differ_from_itself_and_what_is_no_number_has_no_error() {
        let (probabilities, labels) = ([0.8, 0.1, 0.4, 0.6], [1.0, 0.0, 0.0, 1.0]);
        let own = each(&probabilities, &labels);
        assert_eq!(errors(&own, &own), Some(StandardErrors { auc_se: 0.0, logloss_se: 0.0 }));
        let broken = each(&[0.8, f32::NAN, 0.4, 0.6], &labels);
        let found = errors(&own, &broken).unwrap();
        assert!(found.auc_se.is_nan() && found.logloss_se.is_nan(), "{found:?}");
    }

    #[test]
    fn other_samples_are_told_by_what_they_differ_in() {
        let own = each(&[0.8, 0.1, 0.4], &[1.0, 0.0, 0.0]);
        assert_eq!(own.differs(&each(&[0.1, 0.2, 0.3], &[1.0, 0.0, 0.0])), None);
        let told = |other: &EachSample| own.differs(other).unwrap();
        assert_eq!(told(&each(&[0.8, 0.1, 0.4], &[1.0, 0.0, 1.0])), "sample 2 has label 0 by A and 1 by B");
        assert_eq!(told(&each(&[0.8], &[1.0])), "A has 3 samples and B has 1 sample");
        let weighted = |weight: f32| {
            let mut each = EachSample::default();
            [[0.8, 1.0, weight], [0.1, 0.0, 1.0], [0.4, 0.0, 1.0]].into_iter().for_each(|own| each.push(own, true));
            each
        };
        assert!(told(&weighted(1.0)).contains("by one of their schemas alone"));
        assert_eq!(weighted(1.0).differs(&weighted(2.5)).unwrap(), "sample 0 has weight 1 by A and 2.5 by B");
        assert_eq!(errors(&weighted(1.0), &weighted(1.0)), None);
    }
}
