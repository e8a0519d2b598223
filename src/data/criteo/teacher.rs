//! The planted click model: a logistic teacher whose probabilities are known.
//!
//! The logit is the sum of three parts, each with mean 0 and a fixed share of the variance:
//! - integers: a slope and a hump of each signed logarithm, and an effect of its absence;
//! - categories: a bias of each value;
//! - interactions: every value, and the integers together, have a short vector; all pairs of vectors are multiplied
//!   (a factorisation machine, Rendle 2010), so that a model with dot interactions has something to find.
//!
//! A value's bias and vector are functions of (seed, column, rank), so tables of any size need no memory. They shrink
//! with the rank, because what is seen a few times can hardly be learned. Scale and intercept are set on samples of
//! their own such that click rate and the teacher's own AUC (the Bayes AUC) meet their targets.

use super::integers::signed_log;
use super::sample::Sample;
use super::shape::IntegerShape;
use crate::base::rng::{Random, Stream};

/// The share of clicks.
pub(super) const CLICK_RATE: f64 = 0.24;
/// The AUC of the true probabilities.
pub(super) const BAYES_AUC: f64 = 0.81;
/// Shares of the logit's variance: integers, categories, interactions.
const VARIANCE: [f64; 3] = [0.25, 0.50, 0.25];
/// Entries of a value's vector.
const DIM: usize = 4;
/// The rank from which on effects shrink, with the square root of the rank.
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
    /// One stream a categorical column, addressed by rank.
    values: Vec<Random>,
    /// How strongly a categorical column's biases and vectors act.
    strength: Vec<[f64; 2]>,
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
                    vector: [3, 4, 5, 6].map(|part| 0.4 * normal(part)),
                }
            })
            .collect();
        let strength = (0..categories as u64)
            .map(|column| random.uniform_pair((1 << 32) + column).map(|uniform| 0.5 + uniform))
            .collect();
        let values = (0..categories as u32).map(|column| Random::new(seed, Stream::Teacher(1 + column))).collect();
        Self { integers, values, strength, shift: [0.0; 3], scale: [1.0; 3], intercept: 0.0 }
    }

    /// The probability of a click.
    pub(super) fn probability(&self, sample: &Sample) -> f64 {
        let parts = self.parts(sample);
        let logit = (0..3).fold(self.intercept, |sum, part| sum + (parts[part] - self.shift[part]) * self.scale[part]);
        logistic(logit)
    }

    fn parts(&self, sample: &Sample) -> [f64; 3] {
        let (mut integers, mut biases, mut squares) = (0.0, 0.0, 0.0);
        let mut own = [0.0; DIM];
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
        squares += dot(&own, &own);
        let mut sum = own;
        for ((random, strength), &rank) in self.values.iter().zip(&self.strength).zip(&sample.ranks) {
            let [a, b, c, _] = random.block(u64::from(rank));
            let rare = (f64::from(rank) / FIRST_RARE_RANK).max(1.0);
            let size = 1.0 / rare.sqrt();
            biases += strength[0] * size * symmetric(a);
            let vector = [symmetric(b << 16), symmetric(b), symmetric(c << 16), symmetric(c)];
            for (entry, weight) in sum.iter_mut().zip(vector) {
                let weight = strength[1] * size * weight;
                *entry += weight;
                squares += weight * weight;
            }
        }
        // The sum of all products of two different vectors.
        [integers, biases, 0.5 * (dot(&sum, &sum) - squares)]
    }

    /// Sets shift, scale and intercept on samples that are drawn as the data is, but are not part of it.
    /// `draw(n, sample)` draws the n-th.
    pub(super) fn calibrate(&mut self, draw: impl Fn(u64, &mut Sample), count: u64) {
        let mut sample = Sample::default();
        let parts: Vec<[f64; 3]> = (0..count)
            .map(|n| {
                draw(n, &mut sample);
                self.parts(&sample)
            })
            .collect();
        for part in 0..3 {
            let mean = parts.iter().map(|parts| parts[part]).sum::<f64>() / count as f64;
            let variance = parts.iter().map(|parts| (parts[part] - mean).powi(2)).sum::<f64>() / count as f64;
            self.shift[part] = mean;
            // A part that never varies (no integers, one row everywhere) has nothing to say.
            self.scale[part] = if variance > 1e-12 { (VARIANCE[part] / variance).sqrt() } else { 0.0 };
        }
        let mut scores: Vec<f64> = parts
            .iter()
            .map(|parts| (0..3).map(|part| (parts[part] - self.shift[part]) * self.scale[part]).sum())
            .collect();
        scores.sort_unstable_by(f64::total_cmp);
        let scale = bisect(0.0, 8.0, |scale| auc(&scores, scale, intercept(&scores, scale)) < BAYES_AUC);
        self.intercept = intercept(&scores, scale);
        self.scale = self.scale.map(|part| part * scale);
    }
}

/// The intercept at which the click rate is met.
fn intercept(scores: &[f64], scale: f64) -> f64 {
    let rate = |shift: f64| scores.iter().map(|score| logistic(scale * score + shift)).sum::<f64>();
    bisect(-30.0, 30.0, |shift| rate(shift) < CLICK_RATE * scores.len() as f64)
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

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

fn dot(a: &[f64; DIM], b: &[f64; DIM]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A number in [-sqrt 3, sqrt 3), mean 0 and variance 1, from the upper half of a word.
fn symmetric(word: u32) -> f64 {
    const STEP: f64 = 1.732_050_807_568_877_2 / 32_768.0;
    (f64::from(word >> 16) - 32_767.5) * STEP
}
