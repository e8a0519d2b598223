//! The learning rate as a function of the step: linear warm-up, a plateau, polynomial decay.
//!
//! The formulas are those of facebookresearch/dlrm's `LRPolicyScheduler`. It differs in two places, on purpose:
//! * between warm-up and decay its rate stays at `lr * (W - 1) / W`, the last warm-up value; here it is `lr`.
//! * without warm-up and with a late decay it fails with an AttributeError; here the rate is `lr` until decay begins.

use crate::base::config::TrainConfig;

/// Rates below this are raised to it while they decay (as in the reference).
const FLOOR: f64 = 1e-7;

/// The learning rate's course over a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    base: f64,
    warmup_steps: u64,
    decay_start: u64,
    decay_steps: u64,
}

impl Schedule {
    /// The schedule that a configuration asks for.
    #[must_use]
    pub const fn new(config: &TrainConfig) -> Self {
        Self {
            base: config.lr,
            warmup_steps: config.warmup_steps,
            decay_start: config.decay_start,
            decay_steps: config.decay_steps,
        }
    }

    /// The rate of step `step`, counted from 1.
    #[must_use]
    pub fn rate(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.base * step as f64 / self.warmup_steps as f64;
        }
        if self.decay_steps == 0 || step < self.decay_start {
            return self.base;
        }
        let done = (step - self.decay_start).min(self.decay_steps - 1);
        let left = (self.decay_steps - done) as f64 / self.decay_steps as f64;
        (self.base * left * left).max(FLOOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_plateau_and_decay() {
        let config =
            TrainConfig { lr: 2.0, warmup_steps: 4, decay_start: 10, decay_steps: 2, ..TrainConfig::default() };
        let schedule = Schedule::new(&config);
        let rates: Vec<f64> = [1, 2, 3, 4, 9, 10, 11, 12, 1000].iter().map(|&step| schedule.rate(step)).collect();
        assert_eq!(rates, [0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 0.5, 0.5, 0.5]);
    }

    #[test]
    fn without_a_policy_the_rate_is_constant_and_decay_has_a_floor() {
        let constant = Schedule::new(&TrainConfig { lr: 0.1, ..TrainConfig::default() });
        assert!([1, 5, 1_000_000].iter().all(|&step| constant.rate(step) == 0.1));
        let late = TrainConfig { lr: 1e-6, decay_start: 7, decay_steps: 10, ..TrainConfig::default() };
        let late = Schedule::new(&late);
        assert_eq!((late.rate(6), late.rate(7), late.rate(16)), (1e-6, 1e-6, FLOOR));
    }
}
