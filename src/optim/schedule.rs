//! The learning rate as a function of the step: linear warm-up, a plateau, and a decay that is polynomial, a half wave
//! of the cosine, in steps, or exponential. Rows have a course of their own where one is configured.
//!
//! Warm-up and polynomial decay are those of facebookresearch/dlrm's `LRPolicyScheduler`. It differs in two places, on
//! purpose:
//! * between warm-up and decay its rate stays at `lr * (W - 1) / W`, the last warm-up value; here it is `lr`.
//! * without warm-up and with a late decay it fails with an AttributeError; here the rate is `lr` until decay begins.
//!
//! The others are PyTorch's `CosineAnnealingLR` down to 0, `StepLR` and `ExponentialLR`, counted from where decay
//! begins.

use crate::base::config::{Decay, LrScaling, TrainConfig};

/// Rates below this are raised to it while they decay (as in the reference).
const FLOOR: f64 = 1e-7;

/// The learning rate's course over a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    base: f64,
    warmup_steps: u64,
    decay: Decay,
    decay_start: u64,
    decay_steps: u64,
    power: f64,
    factor: f64,
}

impl Schedule {
    /// The schedule that a configuration asks for, of the network's layers.
    #[must_use]
    pub fn new(config: &TrainConfig) -> Self {
        let [[warmup_steps, decay_start, decay_steps], _] = config.courses();
        Self {
            base: scaled(config, config.lr),
            warmup_steps,
            decay: config.decay,
            decay_start,
            decay_steps,
            power: config.decay_power,
            factor: config.decay_factor,
        }
    }

    /// That of the tables' rows.
    #[must_use]
    pub fn rows(config: &TrainConfig) -> Self {
        let [_, [warmup_steps, decay_start, decay_steps]] = config.courses();
        Self {
            base: scaled(config, config.lr_rows.or(config.lr)),
            warmup_steps,
            decay: config.decay_rows.or(config.decay),
            decay_start,
            decay_steps,
            ..Self::new(config)
        }
    }

    /// That of a wide part, which warms up and decays as the layers' does.
    #[must_use]
    pub fn wide(config: &TrainConfig) -> Self {
        Self { base: scaled(config, config.lr_wide.or(config.lr)), ..Self::new(config) }
    }

    /// The rate on the plateau.
    #[must_use]
    pub const fn base(&self) -> f64 {
        self.base
    }

    /// The rate of step `step`, counted from 1.
    #[must_use]
    pub fn rate(&self, step: u64) -> f64 {
        let Self { base, warmup_steps, decay, decay_start, decay_steps, power, factor } = *self;
        if step < warmup_steps {
            return base * step as f64 / warmup_steps as f64;
        }
        if decay_steps == 0 || step < decay_start {
            return base;
        }
        let (done, all) = (step - decay_start, decay_steps as f64);
        let left = match decay {
            Decay::Polynomial => libm::pow((decay_steps - done.min(decay_steps - 1)) as f64 / all, power),
            Decay::Cosine => libm::cos(std::f64::consts::PI * done.min(decay_steps) as f64 / all).midpoint(1.0),
            Decay::Steps => libm::pow(factor, (done / decay_steps) as f64),
            Decay::Exponential => libm::pow(factor, done as f64 / all),
        };
        // What stands still, or nearly so, is not sped up.
        (base * left).max(FLOOR.min(base))
    }
}

/// A base rate at this minibatch.
fn scaled(config: &TrainConfig, lr: f64) -> f64 {
    let times = || config.minibatch() as f64 / config.lr_batch as f64;
    match config.lr_scaling {
        LrScaling::None => lr,
        LrScaling::Linear => lr * times(),
        LrScaling::Sqrt => lr * times().sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::Setting;

    #[test]
    fn warm_up_plateau_and_decay() {
        let config = TrainConfig {
            lr: 2.0,
            warmup_steps: 4,
            decay_start: Setting::Given(10),
            decay_steps: 2,
            ..TrainConfig::default()
        };
        let schedule = Schedule::new(&config);
        let rates: Vec<f64> = [1, 2, 3, 4, 9, 10, 11, 12, 1000].iter().map(|&step| schedule.rate(step)).collect();
        assert_eq!(rates, [0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 0.5, 0.5, 0.5]);
    }

    #[test]
    fn without_a_policy_the_rate_is_constant_and_decay_has_a_floor() {
        let constant = Schedule::new(&TrainConfig { lr: 0.1, ..TrainConfig::default() });
        assert!([1, 5, 1_000_000].iter().all(|&step| constant.rate(step) == 0.1));
        let late = TrainConfig { lr: 1e-6, decay_start: Setting::Given(7), decay_steps: 10, ..TrainConfig::default() };
        let late = Schedule::new(&late);
        assert_eq!((late.rate(6), late.rate(7), late.rate(16)), (1e-6, 1e-6, FLOOR));
    }

    #[test]
    fn every_decay_is_that_of_its_formula() {
        let rates = |decay, decay_power, decay_factor| {
            let config = TrainConfig {
                lr: 0.8,
                decay,
                decay_start: Setting::Given(3),
                decay_steps: 4,
                decay_power,
                decay_factor,
                ..TrainConfig::default()
            };
            [2, 3, 4, 5, 7, 8, 11, 12].map(|step| Schedule::new(&config).rate(step))
        };
        let close = |found: [f64; 8], expected: [f64; 8]| {
            let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart < 1e-12, "{found:?}, not {expected:?}");
        };
        close(rates(Decay::Polynomial, 1.0, 0.1), [0.8, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2, 0.2]);
        let eighth = 0.4 * (1.0 + std::f64::consts::FRAC_1_SQRT_2);
        close(rates(Decay::Cosine, 2.0, 0.1), [0.8, 0.8, eighth, 0.4, FLOOR, FLOOR, FLOOR, FLOOR]);
        close(rates(Decay::Steps, 2.0, 0.5), [0.8, 0.8, 0.8, 0.8, 0.4, 0.4, 0.2, 0.2]);
        let root = 0.5f64.sqrt();
        close(rates(Decay::Exponential, 2.0, 0.25), [0.8, 0.8, 0.8 * root, 0.4, 0.2, 0.2 * root, 0.05, 0.05 * root]);
    }

    /// From the first step on, PyTorch's schedulers give the whole rate once; facebookresearch/dlrm's never does.
    #[test]
    fn the_first_step_of_a_run_without_warm_up_has_the_whole_rate_but_of_the_references_decay() {
        let rates = |decay| {
            let config = TrainConfig { lr: 0.8, decay, decay_steps: 2, decay_factor: 0.25, ..TrainConfig::default() };
            [1, 2, 3, 4, 5].map(|step| Schedule::new(&config).rate(step))
        };
        assert_eq!(rates(Decay::Steps), [0.8, 0.8, 0.2, 0.2, 0.8 * 0.0625]);
        assert_eq!(rates(Decay::Exponential), [0.8, 0.4, 0.2, 0.1, 0.8 * 0.0625]);
        let half = 0.8 * libm::cos(std::f64::consts::FRAC_PI_2).midpoint(1.0);
        assert_eq!(rates(Decay::Cosine), [0.8, half, FLOOR, FLOOR, FLOOR]);
        assert_eq!(rates(Decay::Polynomial), [0.2; 5]);
    }

    #[test]
    fn rows_have_a_course_of_their_own_where_they_are_given_one() {
        let config = TrainConfig { lr: 0.4, warmup_steps: 2, decay_steps: 8, ..TrainConfig::default() };
        assert_eq!(Schedule::rows(&config), Schedule::new(&config));
        let own = TrainConfig {
            lr_rows: Setting::Given(0.1),
            warmup_steps_rows: Setting::Given(4),
            decay_rows: Setting::Given(Decay::Steps),
            decay_start_rows: Setting::Given(6),
            decay_steps_rows: Setting::Given(1),
            ..config.clone()
        };
        let rows = Schedule::rows(&own);
        assert_eq!([1, 4, 6, 7].map(|step| rows.rate(step)), [0.025, 0.1, 0.1, 0.1 * 0.1]);
        assert_eq!(Schedule::new(&own), Schedule::new(&config));
    }

    #[test]
    fn decay_begins_at_the_end_of_ones_own_warm_up_where_nobody_says_otherwise() {
        let train = TrainConfig { warmup_steps: 5, decay_steps: 10, ..TrainConfig::default() };
        assert_eq!(train.courses(), [[5, 5, 10]; 2]);
        let slower = TrainConfig { warmup_steps_rows: Setting::Given(8), ..train.clone() };
        assert_eq!(slower.courses(), [[5, 5, 10], [8, 8, 10]]);
        let late = TrainConfig { decay_start: Setting::Given(7), ..slower };
        assert_eq!(late.courses(), [[5, 7, 10], [8, 7, 10]]);
        let rows = TrainConfig { decay_steps: 0, decay_steps_rows: Setting::Given(3), ..train };
        assert_eq!(rows.courses(), [[5, 5, 0], [5, 5, 3]]);
    }

    #[test]
    fn rows_that_stand_still_stay_so() {
        let config = TrainConfig { lr: 0.4, lr_rows: Setting::Given(0.0), decay_steps: 8, ..TrainConfig::default() };
        assert!([1, 4, 8, 100].iter().all(|step| Schedule::rows(&config).rate(*step) == 0.0));
        assert!(Schedule::new(&config).rate(100) > 0.0);
    }

    #[test]
    fn rates_grow_with_the_minibatch_where_that_is_asked_for() {
        let at = |lr_scaling| {
            let config = TrainConfig { batch: 2048, lr: 0.1, lr_scaling, lr_batch: 128, ..TrainConfig::default() };
            [Schedule::new(&config), Schedule::rows(&config)].map(|schedule| schedule.rate(1))
        };
        assert_eq!(at(LrScaling::None), [0.1; 2]);
        assert_eq!(at(LrScaling::Linear), [1.6; 2]);
        assert_eq!(at(LrScaling::Sqrt), [0.4; 2]);
    }
}
