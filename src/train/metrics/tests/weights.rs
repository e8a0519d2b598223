//! Tests of scores of samples that have weights.

use super::super::{Evaluation, Scores, Sums, ValueScores, is_scored};
use super::{evaluation, weighed};
use crate::base::rng::{Random, Stream};

const SAMPLES: u64 = 400;

/// Probabilities, many of them equal, labels, and weights of which some are 0.
fn drawn() -> [Vec<f32>; 3] {
    let random = Random::new(11, Stream::Label);
    let uniform = |from: u64| (0..SAMPLES).map(move |i| random.uniform(from + i) as f32);
    let probabilities = uniform(0).map(|x| (x * 50.0).round() / 50.0).collect();
    let labels = uniform(1000).map(|x| f32::from(u8::from(x < 0.3))).collect();
    [probabilities, labels, uniform(2000).map(|x| (x * 4.0).floor()).collect()]
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-12, "{a} {b}");
}

fn by_row(of: &Evaluation) -> Vec<ValueScores> {
    let mut values = of.by_value.as_ref().unwrap().values.clone();
    values.sort_by_key(|value| value.row);
    values
}

#[test]
fn samples_of_whole_weights_score_as_so_many_of_weight_1() {
    fn times<T: Copy>(of: &[T], weights: &[f32]) -> Vec<T> {
        of.iter().zip(weights).flat_map(|(x, w)| vec![*x; *w as usize]).collect()
    }
    let [probabilities, labels, weights] = drawn();
    let groups: Vec<u32> = (0..SAMPLES as u32).map(|i| i % 7).collect();
    let repeated = [&probabilities, &labels].map(|of| times(of, &weights));
    let found = weighed(&probabilities, &labels, Some(&weights), 5, Some(&groups));
    let due = evaluation(&repeated[0], &repeated[1], 5, Some(&times(&groups, &weights)));
    let (own, all) = (found.scores, due.scores);
    assert_eq!((own.samples, own.weight), (SAMPLES, Some(all.samples as f64)));
    let each = |s: &Scores| [s.auc, s.pr_auc, s.logloss, s.normalised_entropy, s.accuracy, s.calibration, s.label_rate];
    each(&own).into_iter().zip(each(&all)).for_each(|(a, b)| near(a, b));
    assert_eq!(found.calibration_buckets.len(), due.calibration_buckets.len());
    for (bucket, due) in found.calibration_buckets.iter().zip(&due.calibration_buckets) {
        assert_eq!(bucket.weight, Some(due.samples as f64));
        near(bucket.probability, due.probability);
        near(bucket.clicked, due.clicked);
    }
    let (own, all) = (found.grouped.unwrap(), due.grouped.unwrap());
    near(own.gauc, all.gauc);
    assert_eq!((own.gauc_groups, own.gauc_weight), (all.gauc_groups, Some(all.gauc_samples as f64)));
    assert_eq!(own.gauc_samples, SAMPLES, "samples stay a number");
    let values = by_row(&found).into_iter().zip(by_row(&due));
    for (own, all) in values {
        assert_eq!((own.row, own.weight), (all.row, Some(all.samples as f64)));
        [(own.auc, all.auc), (own.logloss, all.logloss), (own.label_rate, all.label_rate)]
            .into_iter()
            .for_each(|(a, b)| near(a, b));
    }
}

#[test]
fn equal_weights_change_no_score_and_the_formulas_hold_for_any() {
    let [probabilities, labels, _] = drawn();
    let plain = evaluation(&probabilities, &labels, 0, None).scores;
    for weight in [1.0f32, 0.25, 1e-6, 1e9] {
        let found = weighed(&probabilities, &labels, Some(&[weight; SAMPLES as usize]), 0, None).scores;
        assert!((found.auc - plain.auc).abs() < 1e-12 && (found.logloss - plain.logloss).abs() < 1e-7, "{weight}");
        assert!((found.accuracy - plain.accuracy).abs() < 1e-7, "{weight}");
    }
    // As sklearn's roc_auc_score and log_loss with sample_weight.
    let weights: Vec<f32> = (0..SAMPLES).map(|i| (i * 37 % 101) as f32 / 13.0).collect();
    let found = weighed(&probabilities, &labels, Some(&weights), 0, None).scores;
    let (mut rightly, mut pairs, mut loss, mut all) = (0.0, 0.0, 0.0, 0.0);
    for i in 0..SAMPLES as usize {
        let [p, t, w] = [probabilities[i], labels[i], weights[i]].map(f64::from);
        let kept = p.clamp(f64::from(f32::EPSILON), 1.0 - f64::from(f32::EPSILON));
        loss -= w * (t * kept.ln() + (1.0 - t) * (1.0 - kept).ln());
        all += w;
        for j in (0..SAMPLES as usize).filter(|&j| t == 1.0 && labels[j] == 0.0) {
            let both = w * f64::from(weights[j]);
            pairs += both;
            rightly += match probabilities[i].total_cmp(&probabilities[j]) {
                std::cmp::Ordering::Greater => both,
                std::cmp::Ordering::Equal => both / 2.0,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    near(found.auc, rightly / pairs);
    near(found.logloss, loss / all);
    assert_eq!((found.samples, found.weight), (SAMPLES, Some(all)));
}

#[test]
fn samples_without_weight_are_an_error_where_there_are_no_others() {
    let sums = |weights: &[f64]| {
        let mut sums = Sums::default();
        for weight in weights {
            sums.add(0.5, 1.0, *weight);
            sums.samples += 1;
        }
        sums
    };
    for all in [true, false] {
        assert!(is_scored(&sums(&[0.0, 1e-3]), all).unwrap());
        assert!(!is_scored(&sums(&[]), all).unwrap());
    }
    assert!(!is_scored(&sums(&[0.0, 0.0]), false).unwrap(), "the first of some say nothing");
    assert!(is_scored(&sums(&[0.0, 0.0]), true).unwrap_err().to_string().contains("all 2 samples"));
}
