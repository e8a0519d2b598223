//! The planted click model: a logistic teacher whose probabilities are known.
//!
//! The logit is the sum of three parts, each with mean 0 and a fixed share of the variance:
//! - integers: a slope and a hump of each signed logarithm, and an effect of its absence;
//! - categories: a bias of each value;
//! - interactions: every value, and the integers together, have a short vector; all pairs of vectors are multiplied
//!   (a factorisation machine, Rendle 2010), so that a model with dot interactions has something to find.
//!
//! A value's bias and vector are functions of (seed, column, value, rank), so tables of any size need no memory. They
//! shrink with the rank, because what is seen a few times can hardly be learned. Scale and intercept are set on samples
//! of their own such that click rate and the teacher's own AUC (the Bayes AUC) meet their targets.

use super::integers::signed_log;
use super::sample::Sample;
use super::shape::IntegerShape;
use crate::base::rng::{Random, Stream};
use crate::data::planted::{calibrated, logistic};

/// The share of clicks.
pub(super) const CLICK_RATE: f64 = 0.24;
/// The AUC of the true probabilities.
pub(super) const BAYES_AUC: f64 = 0.81;
/// Shares of the logit's variance: integers, categories, interactions.
const VARIANCE: [f64; 3] = [0.30, 0.45, 0.25];
/// Entries of a value's vector.
const DIM: usize = 2;
/// The rank from which on effects shrink: a bias with the square root of the rank, a vector with the rank.
const FIRST_RARE_RANK: f64 = 24.0;

/// What one integer column says about a click.
struct IntegerEffect {
    centre: f64,
    spread: f64,
    slope: f64,
    hump: f64,
    missing: f64,
    vector: [f64; DIM],
}

/// The teacher of one data set.
pub(super) struct Teacher {
    integers: Vec<IntegerEffect>,
    /// One stream a categorical column, addressed by value.
    values: Vec<Random>,
    /// How strongly a categorical column's biases and vectors act.
    strength: Vec<[f64; 2]>,
    /// The mean vector of each categorical column, and of the integers last. Vectors count from there: otherwise a hot
    /// value's vector would act on every sample alike, which is a bias and no interaction.
    means: Vec<[f64; DIM]>,
    /// Per part: what is subtracted and what the rest is multiplied with.
    shift: [f64; 3],
    scale: [f64; 3],
    intercept: f64,
}

impl Teacher {
    /// A teacher that is not calibrated yet.
    pub(super) fn new(seed: u64, integers: &[IntegerShape], categories: usize) -> Self {
        let random = Random::new(seed, Stream::Teacher(0));
        let integers = (0u64..)
            .zip(integers)
            .map(|(column, shape)| {
                let normal = |part: u64| random.normal(16 * column + part);
                let [_, median, high, ..] = shape.quantiles;
                IntegerEffect {
                    centre: signed_log(median),
                    // The 90th percentile of a normal distribution lies 1.28 deviations above its median.
                    spread: ((signed_log(high) - signed_log(median)) / 1.28).max(0.5),
                    slope: normal(0),
                    hump: 0.5 * normal(1),
                    missing: normal(2),
                    vector: [3, 4].map(|part| 0.4 * normal(part)),
                }
            })
            .collect();
        let strength = (0..categories as u64)
            .map(|column| {
                let [bias, vector] = random.uniform_pair((1 << 32) + column);
                // Few columns interact strongly: what is spread over all pairs of columns cannot be found.
                [0.5 + bias, vector * vector]
            })
            .collect();
        let values = (0..categories as u32).map(|column| Random::new(seed, Stream::Teacher(1 + column))).collect();
        let means = vec![[0.0; DIM]; categories + 1];
        Self { integers, values, strength, means, shift: [0.0; 3], scale: [1.0; 3], intercept: 0.0 }
    }

    /// The probability of a click.
    pub(super) fn probability(&self, sample: &Sample) -> f64 {
        let parts = self.parts(sample);
        let logit = (0..3).fold(self.intercept, |sum, part| sum + (parts[part] - self.shift[part]) * self.scale[part]);
        logistic(logit)
    }

    fn parts(&self, sample: &Sample) -> [f64; 3] {
        let (mut sum, mut squares) = ([0.0; DIM], 0.0);
        let [integers, biases] = self.visit(sample, |column, vector| {
            for entry in 0..DIM {
                let centred = vector[entry] - self.means[column][entry];
                sum[entry] += centred;
                squares += centred * centred;
            }
        });
        // The sum of all products of two different vectors.
        [integers, biases, 0.5 * (sum.iter().map(|x| x * x).sum::<f64>() - squares)]
    }

    /// The first two parts of the logit; every column's vector goes to `take`.
    fn visit(&self, sample: &Sample, mut take: impl FnMut(usize, [f64; DIM])) -> [f64; 2] {
        let (mut integers, mut biases, mut own) = (0.0, 0.0, [0.0; DIM]);
        for (effect, value) in self.integers.iter().zip(&sample.integers) {
            let Some(value) = value else {
                integers += effect.missing;
                continue;
            };
            let x = ((signed_log(*value) - effect.centre) / effect.spread).clamp(-2.0, 2.0);
            integers += effect.slope * x + effect.hump * (x * x - 1.0);
            for (entry, weight) in own.iter_mut().zip(effect.vector) {
                *entry += weight * x;
            }
        }
        let drawn = sample.values.iter().zip(&sample.ranks);
        for (column, ((random, strength), (&value, &rank))) in
            self.values.iter().zip(&self.strength).zip(drawn).enumerate()
        {
            let [bias, a, b, _] = random.block(u64::from(value));
            let rare = (f64::from(rank) / FIRST_RARE_RANK).max(1.0);
            biases += strength[0] / rare.sqrt() * symmetric(bias);
            take(column, [a, b].map(|word| strength[1] / rare * symmetric(word)));
        }
        take(self.values.len(), own);
        [integers, biases]
    }

    /// Sets shift, scale and intercept on samples that are drawn as the data is, but are not part of it.
    pub(super) fn calibrate(&mut self, samples: &[Sample]) {
        let count = samples.len() as f64;
        let mut means = vec![[0.0; DIM]; self.means.len()];
        for sample in samples {
            self.visit(sample, |column, vector| {
                means[column].iter_mut().zip(vector).for_each(|(mean, entry)| *mean += entry / count);
            });
        }
        self.means = means;
        let parts: Vec<[f64; 3]> = samples.iter().map(|sample| self.parts(sample)).collect();
        for part in 0..3 {
            let mean = parts.iter().map(|parts| parts[part]).sum::<f64>() / count;
            let variance = parts.iter().map(|parts| (parts[part] - mean).powi(2)).sum::<f64>() / count;
            self.shift[part] = mean;
            // A part that never varies (no integers, one row everywhere) has nothing to say.
            self.scale[part] = if variance > 1e-12 { (VARIANCE[part] / variance).sqrt() } else { 0.0 };
        }
        let score = |parts: &[f64; 3]| (0..3).map(|part| (parts[part] - self.shift[part]) * self.scale[part]).sum();
        let [scale, intercept] = calibrated(parts.iter().map(score).collect(), CLICK_RATE, BAYES_AUC);
        self.intercept = intercept;
        self.scale = self.scale.map(|part| part * scale);
    }
}

/// A number in [-sqrt 3, sqrt 3), mean 0 and variance 1, from the upper half of a word.
fn symmetric(word: u32) -> f64 {
    const STEP: f64 = 1.732_050_807_568_877_2 / 32_768.0;
    (f64::from(word >> 16) - 32_767.5) * STEP
}
