//! How weights move: optimizers and the learning rate over time.
//!
//! An optimizer is a [`Rule`]: what one weight becomes by its gradient and the moments that belong to it. Who owns weights
//! applies the rule to all of them: layers to whole blocks ([`Move`], and [`MoveSplit`] where weights are in halves),
//! embedding tables to each row that a step looked up. Moments lie beside the weights: they are allocated, divided and
//! saved with them.
//!
//! A new optimizer is one new file with its rule, one variant of [`Optimizer`] and one line in `with_rule`.

mod halves;
mod momentum;
mod schedule;
mod sgd;
mod whole;

pub use halves::{Low, MoveSplit};
pub use momentum::Momentum;
pub use schedule::Schedule;
pub use sgd::Sgd;
pub use whole::Move;

use crate::base::config::{OptimizerName, Precision, TrainConfig};

/// Moments that a weight has at most.
pub const MOMENTS: usize = 2;

/// How one weight moves.
pub trait Rule: Copy + Send + Sync {
    /// Numbers that are kept beside each weight, at most [`MOMENTS`]; they begin at 0.
    const MOMENTS: usize;

    /// The weight afterwards; moves the moments, of which only the first [`Rule::MOMENTS`] mean something.
    fn step(self, weight: f32, gradient: f32, moments: &mut [f32; MOMENTS]) -> f32;
}

/// An optimizer, with what is the same in all steps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Optimizer {
    /// See [`Sgd`].
    #[default]
    Sgd,
    /// See [`Momentum`].
    Momentum {
        /// The part of the last step that is made again.
        momentum: f32,
    },
}

impl Optimizer {
    /// That of the network's layers.
    #[must_use]
    pub const fn dense(config: &TrainConfig) -> Self {
        Self::of(config.optimizer, config)
    }

    /// That of the tables' rows.
    #[must_use]
    pub const fn rows(config: &TrainConfig) -> Self {
        Self::of(config.optimizer_rows, config)
    }

    const fn of(name: OptimizerName, config: &TrainConfig) -> Self {
        match name {
            OptimizerName::Sgd => Self::Sgd,
            OptimizerName::Momentum => Self::Momentum { momentum: config.momentum as f32 },
        }
    }

    /// What each moment of a weight is called in PyTorch's optimizer state.
    #[must_use]
    pub const fn moments(self) -> &'static [&'static str] {
        match self {
            Self::Sgd => &[],
            Self::Momentum { .. } => &["momentum_buffer"],
        }
    }
}

/// What is kept of weights.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Kept {
    /// Of the weights themselves.
    pub precision: Precision,
    /// Whose moments are kept beside them.
    pub optimizer: Optimizer,
}

impl From<Precision> for Kept {
    fn from(precision: Precision) -> Self {
        Self { precision, optimizer: Optimizer::Sgd }
    }
}

impl Kept {
    /// Bytes of a weight, without what layouts pad it with.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.precision.bytes() + self.optimizer.moments().len() * size_of::<f32>()
    }
}

/// Runs `$body` with `$rule` bound to the rule of `$optimizer` at learning rate `$rate`.
macro_rules! with_rule {
    ($optimizer:expr, $rate:expr, $rule:ident => $body:expr) => {
        match $optimizer {
            $crate::optim::Optimizer::Sgd => {
                let $rule = $crate::optim::Sgd { rate: $rate };
                $body
            }
            $crate::optim::Optimizer::Momentum { momentum } => {
                let $rule = $crate::optim::Momentum { rate: $rate, momentum };
                $body
            }
        }
    };
}
pub(crate) use with_rule;
