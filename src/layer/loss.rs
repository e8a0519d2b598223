//! The loss: from logits and labels to probabilities, the mean loss and the logits' gradient.
//!
//! With p = 1 / (1 + exp(-z)) and N samples, after facebookresearch/dlrm's `loss_fn_wrap`:
//! * `bce`: mean of -(t ln p + (1 - t) ln(1 - p));   dL/dz = (p - t) / N
//! * `wbce`: each term times `weights[t]`;              dL/dz = w (p - t) / N
//! * `mse`: mean of (p - t)²;                           dL/dz = 2 (p - t) p (1 - p) / N
//!
//! Where samples have weights, each term and its derivative are multiplied by that of the sample, and N stays their
//! number: PyTorch's `BCEWithLogitsLoss(weight=w)`.
//!
//! With a threshold h, p is clamped to [h, 1 - h] first; where it was clamped, the gradient is 0.
//! Sigmoid and cross-entropy are computed from z together, in f64, so that no probability is rounded to 0 or 1 before
//! its logarithm is taken; PyTorch's `BCELoss` caps each logarithm at -100 instead, which differs only beyond that.
//! Nothing of a sample branches, so that the compiler takes several at a time (`math/logistic.rs`).

use crate::base::Result;
use crate::base::config::{Loss, ModelConfig};
use crate::machine::team::Team;
use crate::math::{StridedRows, exp_of_negative, log1p_of_fraction, logistic};
use crate::memory::{Buffer, Supply};
use crate::simd::{Kernel, Simd};
use crate::sync::Rows;

/// The loss of a minibatch, with room for its probabilities and for the gradient of one part.
#[derive(Debug)]
pub struct LossLayer {
    objective: Objective,
    probabilities: Buffer<f32>,
    /// Each sample's term of the mean.
    terms: Buffer<f64>,
    gradient: Buffer<f32>,
}

impl LossLayer {
    /// The loss that a model's configuration asks for, with room for minibatches of `samples` in parts of `part`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(config: &ModelConfig, samples: usize, part: usize, supply: &mut Supply<'_>) -> Result<Self> {
        Ok(Self {
            objective: Objective::new(
                config.loss,
                config.loss_weights.map(f64::from),
                f64::from(config.loss_threshold),
            ),
            probabilities: supply.buffer("probabilities", samples)?,
            terms: supply.buffer("losses", samples)?,
            gradient: supply.buffer("logit gradients", part)?,
        })
    }

    /// What the samples from number `first` on, a part of a minibatch of `whole`, contribute to its mean loss by their
    /// `logits` against their `labels`: keeps every term and probability, and the gradient of these logits. Whoever
    /// wants the sum takes it of all ranks' terms. `weights` are those of these samples, each the first number of its
    /// row, where they do not count the same.
    ///
    /// # Panics
    /// When the lengths differ or there is no room.
    pub fn forward(
        &mut self,
        team: &Team,
        first: usize,
        logits: &[f32],
        labels: &[f32],
        weights: Option<StridedRows<'_>>,
        whole: usize,
    ) {
        let samples = logits.len();
        assert_eq!(samples, labels.len(), "one label a logit");
        let part = first..first + samples;
        let (isa, objective) = (team.isa(), self.objective);
        let probabilities = Rows::new(&mut self.probabilities[part.clone()], 1, team.threads(), 16);
        let terms = Rows::new(&mut self.terms[part], 1, team.threads(), 16);
        let gradient = Rows::new(&mut self.gradient[..samples], 1, team.threads(), 16);
        team.each((probabilities, (terms, gradient)), |(probabilities, (terms, gradient))| {
            let here = terms.first..terms.first + terms.rows;
            let weights = weights.map(|rows| StridedRows { data: &rows.data[here.start * rows.stride..], ..rows });
            let (logits, labels) = (&logits[here.clone()], &labels[here]);
            let results = Results { probabilities: probabilities.data, terms: terms.data, gradient: gradient.data };
            isa.run(Samples { objective, logits, labels, weights, samples: whole as f64, results });
        });
    }

    /// Each sample's loss in the last minibatch: the terms of the mean.
    #[must_use]
    pub fn terms(&self, samples: usize) -> &[f64] {
        &self.terms[..samples]
    }

    /// By what a term is multiplied beside the weight of its sample: of a label below 1, and of 1.
    #[must_use]
    pub const fn label_weights(&self) -> [f64; 2] {
        self.objective.weights
    }

    /// The gradient with respect to the logits of the last part.
    #[must_use]
    pub fn gradient(&self) -> &[f32] {
        &self.gradient
    }

    /// The probabilities of the first `samples` of the last minibatch, clamped as the loss saw them.
    #[must_use]
    pub fn probabilities(&self, samples: usize) -> &[f32] {
        &self.probabilities[..samples]
    }
}

/// What is minimised.
#[derive(Debug, Clone, Copy)]
struct Objective {
    loss: Loss,
    /// Of terms with label 0 and with label 1.
    weights: [f64; 2],
    /// The least and the largest probability.
    range: [f64; 2],
    /// ln p and ln(1 - p) of both.
    logarithms: [[f64; 2]; 2],
}

/// What the loss makes of one sample.
#[derive(Debug, Clone, Copy)]
struct Point {
    /// The probability, clamped.
    p: f64,
    /// The sample's term of the mean.
    value: f64,
    /// The term's derivative with respect to the logit.
    slope: f64,
}

impl Objective {
    fn new(loss: Loss, weights: [f64; 2], threshold: f64) -> Self {
        let weights = if loss == Loss::Wbce { weights } else { [1.0; 2] };
        let range = [threshold, 1.0 - threshold];
        Self { loss, weights, range, logarithms: range.map(|p| [libm::log(p), libm::log(1.0 - p)]) }
    }

    /// At logit `z` and label `t`; `SQUARED` must say whether the loss is `mse`.
    #[inline(always)]
    fn at<const SQUARED: bool>(&self, z: f64, t: f64) -> Point {
        let free = logistic(z);
        // Comparisons with NaN are false, so it stays.
        let [low, high] = self.range;
        let (below, above) = (free < low, free > high);
        let p = if below { low } else { free };
        let p = if above { high } else { p };
        let open = if below | above { 0.0 } else { 1.0 };
        if SQUARED {
            return Point { p, value: (p - t) * (p - t), slope: 2.0 * (p - t) * p * (1.0 - p) * open };
        }
        // -ln p = ln(1 + exp(-z)) and -ln(1 - p) = z + ln(1 + exp(-z)), rearranged so that exp never overflows.
        let positive = if z > 0.0 { z } else { 0.0 };
        let entropy = positive - z * t + log1p_of_fraction(exp_of_negative(-z.abs()));
        let clamped = |[p, rest]: [f64; 2]| -(t * p + (1.0 - t) * rest);
        let entropy = if below { clamped(self.logarithms[0]) } else { entropy };
        let entropy = if above { clamped(self.logarithms[1]) } else { entropy };
        let weight = if t >= 1.0 { self.weights[1] } else { self.weights[0] };
        Point { p, value: weight * entropy, slope: weight * (p - t) * open }
    }
}

/// The loss of some samples of a minibatch.
struct Samples<'a> {
    objective: Objective,
    logits: &'a [f32],
    labels: &'a [f32],
    weights: Option<StridedRows<'a>>,
    /// All samples of the minibatch.
    samples: f64,
    results: Results<'a>,
}

/// One element a sample each.
struct Results<'a> {
    probabilities: &'a mut [f32],
    terms: &'a mut [f64],
    gradient: &'a mut [f32],
}

impl Kernel for Samples<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        match (self.objective.loss == Loss::Mse, self.weights) {
            (true, None) => self.points::<true, false>(StridedRows { data: &[], stride: 0 }),
            (false, None) => self.points::<false, false>(StridedRows { data: &[], stride: 0 }),
            (true, Some(weights)) => self.points::<true, true>(weights),
            (false, Some(weights)) => self.points::<false, true>(weights),
        }
    }
}

impl Samples<'_> {
    #[inline(always)]
    fn points<const SQUARED: bool, const WEIGHTED: bool>(self, of_samples: StridedRows<'_>) {
        // Arrays of a fixed size: the compiler sees that they do not overlap, and how long the loop is.
        const AT_ONCE: usize = 16;
        let Results { probabilities, terms, gradient } = self.results;
        for first in (0..terms.len()).step_by(AT_ONCE) {
            let here = first..terms.len().min(first + AT_ONCE);
            let [mut logits, mut labels] = [[0.0f32; AT_ONCE]; 2];
            logits[..here.len()].copy_from_slice(&self.logits[here.clone()]);
            labels[..here.len()].copy_from_slice(&self.labels[here.clone()]);
            let mut weights = [1.0f32; AT_ONCE];
            if WEIGHTED {
                weights.iter_mut().zip(here.clone()).for_each(|(w, at)| *w = of_samples.data[at * of_samples.stride]);
            }
            let ([mut p, mut slopes], mut values) = ([[0.0f32; AT_ONCE]; 2], [0.0; AT_ONCE]);
            for i in 0..AT_ONCE {
                let point = self.objective.at::<SQUARED>(f64::from(logits[i]), f64::from(labels[i]));
                p[i] = point.p as f32;
                let weight = if WEIGHTED { f64::from(weights[i]) } else { 1.0 };
                values[i] = weight * point.value;
                slopes[i] = (weight * point.slope / self.samples) as f32;
            }
            probabilities[here.clone()].copy_from_slice(&p[..here.len()]);
            terms[here.clone()].copy_from_slice(&values[..here.len()]);
            gradient[here.clone()].copy_from_slice(&slopes[..here.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(loss: Loss, loss_threshold: f32) -> LossLayer {
        let config = ModelConfig { loss, loss_threshold, loss_weights: [0.5, 3.0], ..ModelConfig::default() };
        LossLayer::new(&config, 8, 8, &mut Supply::System).unwrap()
    }

    fn mean(layer: &mut LossLayer, team: &Team, logits: &[f32], labels: &[f32]) -> f64 {
        layer.forward(team, 0, logits, labels, None, labels.len());
        layer.terms(labels.len()).iter().sum::<f64>() / labels.len() as f64
    }

    fn at(objective: &Objective, z: f64, t: f64) -> Point {
        if objective.loss == Loss::Mse { objective.at::<true>(z, t) } else { objective.at::<false>(z, t) }
    }

    #[test]
    fn gradients_are_the_finite_differences() {
        let team = Team::new(1).unwrap();
        for loss in [Loss::Bce, Loss::Wbce, Loss::Mse] {
            for threshold in [0.0, 0.3] {
                let objective = Objective::new(loss, [0.5, 3.0], threshold);
                for z in [-3.0f64, -0.4, 0.0, 0.7, 5.0] {
                    for t in [0.0, 1.0] {
                        let value = |z| at(&objective, z, t).value;
                        let step = 1e-5;
                        let numeric = (value(z + step) - value(z - step)) / (2.0 * step);
                        let exact = at(&objective, z, t).slope;
                        assert!((numeric - exact).abs() < 1e-9, "{loss:?} {threshold} {z} {t}: {numeric} {exact}");
                    }
                }
                let mut layer = layer(loss, threshold as f32);
                let mean = mean(&mut layer, &team, &[0.7, -0.4], &[1.0, 0.0]);
                let each = |z, t| at(&layer.objective, f64::from(z), t).value;
                assert_eq!(mean, (each(0.7f32, 1.0) + each(-0.4f32, 0.0)) / 2.0);
            }
        }
    }

    /// The formulas at this file's head, as they stand there, by libm.
    fn define(loss: Loss, weights: [f64; 2], threshold: f64, z: f64, t: f64) -> [f64; 3] {
        let free = 1.0 / (1.0 + libm::exp(-z));
        let p = if threshold > 0.0 { free.clamp(threshold, 1.0 - threshold) } else { free };
        let open = if p == free { 1.0 } else { 0.0 };
        let weight = if loss == Loss::Wbce { weights[usize::from(t >= 1.0)] } else { 1.0 };
        if loss == Loss::Mse {
            return [p, (p - t) * (p - t), 2.0 * (p - t) * p * (1.0 - p) * open];
        }
        // -ln(1 - p) = -ln q at -z.
        let q = 1.0 / (1.0 + libm::exp(z));
        let [ln_p, ln_q] = if p == free { [libm::log(p), libm::log(q)] } else { [libm::log(p), libm::log(1.0 - p)] };
        [p, -weight * (t * ln_p + (1.0 - t) * ln_q), weight * (p - t) * open]
    }

    /// As in the reference, which truncates a label to a whole number and takes that one's weight.
    #[test]
    fn only_a_whole_click_has_the_weight_of_clicks() {
        let objective = Objective::new(Loss::Wbce, [0.5, 3.0], 0.0);
        for (t, weight) in [(0.0, 0.5), (0.3, 0.5), (0.5, 0.5), (0.7, 0.5), (0.999, 0.5), (1.0, 3.0)] {
            let p = 1.0 / (1.0 + libm::exp(-0.4));
            let point = at(&objective, 0.4, t);
            let value = -weight * (t * libm::log(p) + (1.0 - t) * libm::log(1.0 - p));
            assert!((point.value - value).abs() < 1e-12, "label {t}: {} and not {value}", point.value);
            assert!((point.slope - weight * (p - t)).abs() < 1e-12, "label {t}");
        }
    }

    #[test]
    fn every_twin_follows_the_formulas() {
        let random = crate::base::rng::Random::new(2, crate::base::rng::Stream::Label);
        let samples = 1000 + 7;
        let logits: Vec<f32> = (0..samples).map(|i| (random.normal(i) * 6.0) as f32).collect();
        let labels: Vec<f32> = (0..samples).map(|i| f32::from(random.uniform(5000 + i) < 0.3)).collect();
        for loss in [Loss::Bce, Loss::Wbce, Loss::Mse] {
            for threshold in [0.0, 0.2] {
                let config =
                    ModelConfig { loss, loss_threshold: threshold, loss_weights: [0.5, 3.0], ..ModelConfig::default() };
                let mut runs =
                    crate::simd::Isa::all().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]).map(|(isa, threads)| {
                        let team = Team::with_isa(threads, isa).unwrap();
                        let mut layer = LossLayer::new(&config, 2048, 2048, &mut Supply::System).unwrap();
                        let mean = mean(&mut layer, &team, &logits, &labels);
                        (
                            mean,
                            layer.probabilities(samples as usize).to_vec(),
                            layer.gradient()[..samples as usize].to_vec(),
                        )
                    });
                let (mean, probabilities, gradient) = runs.next().unwrap();
                assert!(
                    runs.all(|run| run == (mean, probabilities.clone(), gradient.clone())),
                    "all have the same bits"
                );
                let mut total = 0.0;
                for i in 0..samples as usize {
                    let (z, t) = (f64::from(logits[i]), f64::from(labels[i]));
                    let [p, value, slope] = define(loss, [0.5, 3.0], f64::from(threshold), z, t);
                    total += value;
                    // One rounding to f32, and the definition's own cancellation in 1 - p.
                    assert!((f64::from(probabilities[i]) - p).abs() <= 6e-8 * p, "{loss:?} {z} {t}");
                    let slope = slope / samples as f64;
                    assert!((f64::from(gradient[i]) - slope).abs() <= 6e-8 * slope.abs() + 1e-18, "{loss:?} {z} {t}");
                }
                assert!((mean / (total / samples as f64) - 1.0).abs() < 1e-13, "{loss:?}: {mean}");
            }
        }
    }

    #[test]
    fn a_weight_multiplies_its_samples_term_and_gradient_in_every_twin() {
        let logits: Vec<f32> = (0..37).map(|i| (i as f32 - 20.0) / 3.0).collect();
        let labels: Vec<f32> = (0..37).map(|i| f32::from(u8::from(i % 3 == 0))).collect();
        // Behind two features each; some are 0.
        let dense: Vec<f32> = (0..37).flat_map(|i| [9.0, 9.0, (i % 5) as f32 * 0.75]).collect();
        let weights = StridedRows { data: &dense, stride: 3 }.columns_from(2);
        for loss in [Loss::Bce, Loss::Wbce, Loss::Mse] {
            for (isa, threads) in crate::simd::Isa::all().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
                let team = Team::with_isa(threads, isa).unwrap();
                let config = ModelConfig { loss, loss_weights: [0.5, 3.0], ..ModelConfig::default() };
                let mut layer = LossLayer::new(&config, 64, 64, &mut Supply::System).unwrap();
                layer.forward(&team, 0, &logits, &labels, Some(weights), 37);
                for i in 0..37 {
                    let (z, t, w) = (f64::from(logits[i]), f64::from(labels[i]), f64::from(dense[3 * i + 2]));
                    let point = at(&layer.objective, z, t);
                    assert_eq!(layer.terms(37)[i], w * point.value, "{loss:?} {i}");
                    assert_eq!(layer.gradient()[i], (w * point.slope / 37.0) as f32, "{loss:?} {i}");
                    assert_eq!(layer.probabilities(37)[i], point.p as f32, "a weight changes no probability");
                }
            }
        }
    }

    #[test]
    fn extreme_logits_stay_finite_and_nan_stays_nan() {
        let team = Team::new(1).unwrap();
        let mut layer = layer(Loss::Bce, 0.0);
        let loss = mean(&mut layer, &team, &[1e4, -1e4, 1e4], &[0.0, 1.0, 1.0]);
        assert_eq!(loss, 2e4 / 3.0);
        assert!(layer.gradient()[..3].iter().all(|g| g.is_finite()));
        assert!(mean(&mut layer, &team, &[f32::NAN], &[1.0]).is_nan());
    }
}
