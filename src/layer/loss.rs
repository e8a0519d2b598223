//! The loss: from logits and labels to probabilities, the mean loss and the logits' gradient.
//!
//! With p = 1 / (1 + exp(-z)) and N samples, after facebookresearch/dlrm's `loss_fn_wrap`:
//! * `bce`: mean of -(t ln p + (1 - t) ln(1 - p));   dL/dz = (p - t) / N
//! * `wbce`: each term times `weights[t]`;              dL/dz = w (p - t) / N
//! * `mse`: mean of (p - t)²;                           dL/dz = 2 (p - t) p (1 - p) / N
//!
//! With a threshold h, p is clamped to [h, 1 - h] first; where it was clamped, the gradient is 0.
//! Sigmoid and cross-entropy are computed from z together, in f64, so that no probability is rounded to 0 or 1 before
//! its logarithm is taken; PyTorch's `BCELoss` caps each logarithm at -100 instead, which differs only beyond that.

use crate::base::Result;
use crate::base::config::{Loss, ModelConfig};
use crate::machine::team::Team;
use crate::memory::{Arena, Buffer, Supply};
use crate::sync::Rows;

/// The loss of a minibatch, with room for its probabilities and gradient.
#[derive(Debug)]
pub struct LossLayer {
    loss: Loss,
    weights: [f64; 2],
    threshold: f64,
    probabilities: Buffer<f32>,
    /// Each sample's term of the mean.
    terms: Buffer<f64>,
    gradient: Buffer<f32>,
}

impl LossLayer {
    /// The loss that a model's configuration asks for, with room for minibatches of `samples`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(config: &ModelConfig, samples: usize, supply: &mut Supply<'_>) -> Result<Self> {
        Ok(Self {
            loss: config.loss,
            weights: config.loss_weights.map(f64::from),
            threshold: f64::from(config.loss_threshold),
            probabilities: supply.buffer("probabilities", samples)?,
            terms: supply.buffer("losses", samples)?,
            gradient: supply.buffer("logit gradients", samples)?,
        })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.terms.settle(arena);
        for buffer in [&mut self.probabilities, &mut self.gradient] {
            buffer.settle(arena);
        }
    }

    /// The mean loss of `logits` against `labels`; keeps every probability and the logits' gradient.
    ///
    /// # Panics
    /// When the lengths differ or there is no room.
    pub fn forward(&mut self, team: &Team, logits: &[f32], labels: &[f32]) -> f64 {
        let samples = logits.len();
        assert_eq!(samples, labels.len(), "one label a logit");
        let (loss, weights, threshold) = (self.loss, self.weights, self.threshold);
        let probabilities = Rows::new(&mut self.probabilities[..samples], 1, team.threads(), 16);
        let terms = Rows::new(&mut self.terms[..samples], 1, team.threads(), 16);
        let gradient = Rows::new(&mut self.gradient[..samples], 1, team.threads(), 16);
        team.each((probabilities, (terms, gradient)), |(probabilities, (terms, gradient))| {
            for i in 0..terms.rows {
                let (z, t) = (f64::from(logits[terms.first + i]), f64::from(labels[terms.first + i]));
                let point = Point::at(z, threshold);
                let (value, slope) = point.loss(loss, weights, z, t);
                probabilities.data[i] = point.p as f32;
                terms.data[i] = value;
                gradient.data[i] = (slope / samples as f64) as f32;
            }
        });
        self.terms[..samples].iter().sum::<f64>() / samples as f64
    }

    /// The gradient with respect to the logits of the last minibatch.
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

/// A probability on its way to the loss.
struct Point {
    /// Clamped to [threshold, 1 - threshold].
    p: f64,
    clamped: bool,
}

impl Point {
    fn at(z: f64, threshold: f64) -> Self {
        let free = 1.0 / (1.0 + libm::exp(-z));
        let p = if threshold > 0.0 { free.clamp(threshold, 1.0 - threshold) } else { free };
        Self { p, clamped: p != free && !p.is_nan() }
    }

    /// The loss and its derivative with respect to z.
    fn loss(&self, loss: Loss, weights: [f64; 2], z: f64, t: f64) -> (f64, f64) {
        let p = self.p;
        let open = if self.clamped { 0.0 } else { 1.0 };
        match loss {
            Loss::Mse => ((p - t) * (p - t), 2.0 * (p - t) * p * (1.0 - p) * open),
            Loss::Bce | Loss::Wbce => {
                let weight = if loss == Loss::Wbce { weights[usize::from(t >= 1.0)] } else { 1.0 };
                let entropy = if self.clamped {
                    -(t * libm::log(p) + (1.0 - t) * libm::log(1.0 - p))
                } else {
                    // -ln p = ln(1 + exp(-z)) and -ln(1 - p) = z + ln(1 + exp(-z)), rearranged so that exp never overflows.
                    z.max(0.0) - z * t + libm::log1p(libm::exp(-z.abs()))
                };
                (weight * entropy, weight * (p - t) * open)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(loss: Loss, loss_threshold: f32) -> LossLayer {
        let config = ModelConfig { loss, loss_threshold, loss_weights: [0.5, 3.0], ..ModelConfig::default() };
        LossLayer::new(&config, 8, &mut Supply::System).unwrap()
    }

    #[test]
    fn gradients_are_the_finite_differences() {
        let team = Team::new(1).unwrap();
        for loss in [Loss::Bce, Loss::Wbce, Loss::Mse] {
            for threshold in [0.0, 0.3] {
                for z in [-3.0f64, -0.4, 0.0, 0.7, 5.0] {
                    for t in [0.0, 1.0] {
                        let value = |z| Point::at(z, threshold).loss(loss, [0.5, 3.0], z, t).0;
                        let step = 1e-5;
                        let numeric = (value(z + step) - value(z - step)) / (2.0 * step);
                        let exact = Point::at(z, threshold).loss(loss, [0.5, 3.0], z, t).1;
                        assert!((numeric - exact).abs() < 1e-9, "{loss:?} {threshold} {z} {t}: {numeric} {exact}");
                    }
                }
                let mut layer = layer(loss, threshold as f32);
                let mean = layer.forward(&team, &[0.7, -0.4], &[1.0, 0.0]);
                let each = |z, t| {
                    Point::at(f64::from(z), f64::from(threshold as f32)).loss(loss, [0.5, 3.0], f64::from(z), t).0
                };
                assert_eq!(mean, (each(0.7f32, 1.0) + each(-0.4f32, 0.0)) / 2.0);
            }
        }
    }

    #[test]
    fn extreme_logits_stay_finite_and_nan_stays_nan() {
        let team = Team::new(1).unwrap();
        let mut layer = layer(Loss::Bce, 0.0);
        let loss = layer.forward(&team, &[1e4, -1e4, 1e4], &[0.0, 1.0, 1.0]);
        assert_eq!(loss, 2e4 / 3.0);
        assert!(layer.gradient()[..3].iter().all(|g| g.is_finite()));
        assert!(layer.forward(&team, &[f32::NAN], &[1.0]).is_nan());
    }
}
