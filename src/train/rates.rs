//! How far weights move in a step, and how often they have moved.

use crate::base::config::TrainConfig;
use crate::optim::{ByGroup, ParamGroup, Schedule, StepSize, StepSizes};

/// The learning rates of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// That of the network's layers.
    pub layers: f32,
    /// That of the tables' rows.
    pub rows: f32,
    /// That of the wide part.
    pub wide: f32,
}

impl Rates {
    /// Those of a configuration between warm-up and decay.
    #[must_use]
    pub fn base(config: &TrainConfig) -> Self {
        let schedules = [Schedule::new(config), Schedule::rows(config), Schedule::wide(config)];
        let [layers, rows, wide] = schedules.map(|schedule| schedule.base() as f32);
        Self { layers, rows, wide }
    }

    /// That of a parameter group.
    const fn of(self, group: ParamGroup) -> f32 {
        match group {
            ParamGroup::Dense => self.layers,
            ParamGroup::Sparse => self.rows,
            ParamGroup::WideDense | ParamGroup::WideSparse => self.wide,
        }
    }
}

impl From<f32> for Rates {
    /// The same of all parts.
    fn from(rate: f32) -> Self {
        Self { layers: rate, rows: rate, wide: rate }
    }
}

/// Updates that were made since what the optimizers keep began: PyTorch's `step`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Updates {
    pub layers: u64,
    pub rows: u64,
}

impl Updates {
    /// Counts one more, at these rates.
    pub(super) fn next(&mut self, rates: Rates) -> StepSizes {
        self.layers += 1;
        self.rows += 1;
        let steps = ByGroup::of_kinds(self.layers, self.rows);
        ByGroup::new(|group| StepSize { rate: rates.of(group), step: steps[group] })
    }
}
