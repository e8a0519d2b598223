//! Optimizers by name: what is the same in all steps, what they keep, and their rule at one step.

use super::{Adagrad, Adam, Averages, ByGroup, Decayed, Ftrl, Lamb, Momentum, ParamGroup, Schedule, Sgd};
use crate::base::config::{OptimizerName, Precision, TrainConfig, Update};

/// Minibatches of so many samples and more, over the base rate of rows, move rows by sums of gradients: a look-up's own
/// step, of a mean over the minibatch, is then so small beside most weights that it would be rounded away.
const SUMS_FROM: f64 = (1 << 18) as f64;

/// An optimizer, with what is the same in all steps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Optimizer {
    /// None: weights stay as they are, and nothing is kept for moving them, gradients included. For predictions.
    None,
    /// See [`Sgd`].
    #[default]
    Sgd,
    /// The same by the sum of a row's gradients: of rows alone, in large minibatches.
    SgdOfSums,
    /// The same with decay of weights.
    SgdWithDecay {
        /// The part of a weight that is added to its gradient, see [`Decayed`].
        decay: f32,
    },
    /// See [`Momentum`].
    Momentum {
        /// The part of the last step that is made again.
        momentum: f32,
        /// As [`Optimizer::SgdWithDecay`] has it.
        decay: f32,
    },
    /// See [`Adagrad`].
    Adagrad {
        /// Of its denominator.
        eps: f32,
        /// What sums of squares begin with.
        initial: f32,
        /// As [`Optimizer::SgdWithDecay`] has it.
        decay: f32,
    },
    /// See [`super::rowwise_rate`]: of rows alone.
    RowwiseAdagrad {
        /// Of its denominator.
        eps: f32,
        /// What sums of squares begin with.
        initial: f32,
    },
    /// See [`Adam`].
    Adam {
        /// What it averages.
        averages: Averages,
        /// As [`Optimizer::SgdWithDecay`] has it.
        decay: f32,
    },
    /// See [`Adam::sparse`].
    SparseAdam {
        /// What it averages.
        averages: Averages,
    },
    /// See [`Ftrl`].
    Ftrl {
        /// What the root of the sum of squares is added to.
        beta: f32,
        /// What a weight's z must exceed.
        l1: f32,
        /// What pulls weights to 0.
        l2: f32,
        /// What sums of squares begin with.
        initial: f32,
        /// As [`Optimizer::SgdWithDecay`] has it.
        decay: f32,
    },
    /// See [`Lamb`]: of layers alone.
    Lamb {
        /// What it averages.
        averages: Averages,
        /// The part of a weight that is added to its direction.
        decay: f32,
    },
}

/// When in a run weights move, and how far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepSize {
    /// The learning rate.
    pub rate: f32,
    /// The number of this update, from 1, since what the optimizer keeps began.
    pub step: u64,
}

/// How far each group's parameters move in one step.
pub type StepSizes = ByGroup<StepSize>;

impl From<f32> for StepSize {
    /// The first update, at this rate; most optimizers do not count.
    fn from(rate: f32) -> Self {
        Self { rate, step: 1 }
    }
}

/// The rule by which each weight moves in one step.
#[derive(Debug, Clone, Copy)]
pub enum StepRule {
    /// Of SGD.
    Sgd(Sgd),
    /// Of SGD with decay.
    SgdWithDecay(Decayed<Sgd>),
    /// Of momentum.
    Momentum(Decayed<Momentum>),
    /// Of Adagrad.
    Adagrad(Decayed<Adagrad>),
    /// Of Adam.
    Adam(Decayed<Adam>),
    /// Of FTRL.
    Ftrl(Decayed<Ftrl>),
}

impl Optimizer {
    /// That of the network's layers.
    ///
    /// # Panics
    /// When it is one for rows, which [`crate::base::config::Config::contradiction`] refuses.
    #[must_use]
    pub const fn dense(config: &TrainConfig) -> Self {
        let decay = config.weight_decay as f32;
        match config.optimizer {
            OptimizerName::Sgd if decay == 0.0 => Self::Sgd,
            OptimizerName::Sgd => Self::SgdWithDecay { decay },
            OptimizerName::Momentum => Self::Momentum { momentum: config.momentum as f32, decay },
            OptimizerName::Adagrad => Self::Adagrad { eps: eps(config, 1e-10), initial: initial(config), decay },
            OptimizerName::RowwiseAdagrad => panic!("layers have no rows of their own"),
            OptimizerName::Adam => Self::Adam { averages: averages(config, 1e-8, true), decay },
            OptimizerName::Lamb => Self::Lamb { averages: averages(config, 1e-6, false), decay },
            OptimizerName::Ftrl => ftrl(config, decay),
        }
    }

    /// That of the tables' rows. Their weights do not decay: PyTorch, too, refuses it of sparse gradients.
    ///
    /// # Panics
    /// When it is one for layers, which [`crate::base::config::Config::contradiction`] refuses.
    #[must_use]
    pub fn rows(config: &TrainConfig) -> Self {
        match config.optimizer_rows {
            OptimizerName::Sgd if sums_first(config) => Self::SgdOfSums,
            OptimizerName::Sgd => Self::Sgd,
            OptimizerName::Momentum => Self::Momentum { momentum: config.momentum as f32, decay: 0.0 },
            OptimizerName::Adagrad => Self::Adagrad { eps: eps(config, 1e-10), initial: initial(config), decay: 0.0 },
            OptimizerName::RowwiseAdagrad => Self::RowwiseAdagrad { eps: eps(config, 1e-8), initial: initial(config) },
            OptimizerName::Adam => Self::SparseAdam { averages: averages(config, 1e-8, true) },
            OptimizerName::Lamb => panic!("rows have no norm of their own"),
            OptimizerName::Ftrl => ftrl(config, 0.0),
        }
    }

    /// What each moment of a weight is called in PyTorch's optimizer state.
    #[must_use]
    pub const fn moments(self) -> &'static [&'static str] {
        match self {
            Self::None | Self::Sgd | Self::SgdOfSums | Self::SgdWithDecay { .. } | Self::RowwiseAdagrad { .. } => &[],
            Self::Momentum { .. } => &["momentum_buffer"],
            Self::Adagrad { .. } => &["sum"],
            Self::Adam { .. } | Self::SparseAdam { .. } | Self::Lamb { .. } => &["exp_avg", "exp_avg_sq"],
            // As TensorFlow calls them; z is kept times the rate.
            Self::Ftrl { .. } => &["accumulator", "linear"],
        }
    }

    /// What the number that is kept of a row is called, if one is: as in facebookresearch/dlrm's `RWSAdagrad`.
    #[must_use]
    pub const fn row_moment(self) -> Option<&'static str> {
        if let Self::RowwiseAdagrad { .. } = self { Some("momentum") } else { None }
    }

    /// What the number of its updates is called in its state, where it has one.
    #[must_use]
    pub const fn counter(self) -> Option<&'static str> {
        match self {
            Self::None | Self::Sgd | Self::SgdOfSums | Self::SgdWithDecay { .. } => None,
            Self::Momentum { .. } | Self::Ftrl { .. } => None,
            Self::Adagrad { .. }
            | Self::RowwiseAdagrad { .. }
            | Self::Adam { .. }
            | Self::SparseAdam { .. }
            | Self::Lamb { .. } => Some("step"),
        }
    }

    /// What its first moment begins with, or what it keeps of a row; all others begin with 0.
    #[must_use]
    pub const fn initial(self) -> f32 {
        match self {
            Self::Adagrad { initial, .. } | Self::RowwiseAdagrad { initial, .. } | Self::Ftrl { initial, .. } => {
                initial
            }
            _ => 0.0,
        }
    }

    /// By what gradients become directions before weights move, if they do.
    #[must_use]
    pub fn direction(self, step_size: StepSize) -> Option<Lamb> {
        if let Self::Lamb { averages, decay } = self { Some(Lamb::at(averages, decay, step_size)) } else { None }
    }

    /// Whether weights move at all.
    #[must_use]
    pub const fn moves(self) -> bool {
        !matches!(self, Self::None)
    }

    /// Whether a tensor's weights move at a rate that depends on all of them: by [`Optimizer::direction`] first.
    #[must_use]
    pub const fn needs_norms(self) -> bool {
        matches!(self, Self::Lamb { .. })
    }

    /// Its rule at one step. What row-wise Adagrad leaves to do once a row's rate is known, and LAMB once a tensor's
    /// is, is SGD.
    ///
    /// # Panics
    /// When weights do not move.
    #[must_use]
    pub fn at(self, step_size: StepSize) -> StepRule {
        let rate = step_size.rate;
        match self {
            Self::None => panic!("weights that only predict are not moved"),
            Self::Sgd | Self::SgdOfSums | Self::RowwiseAdagrad { .. } | Self::Lamb { .. } => {
                StepRule::Sgd(Sgd { rate })
            }
            Self::SgdWithDecay { decay } => StepRule::SgdWithDecay(Decayed { rule: Sgd { rate }, decay }),
            Self::Momentum { momentum, decay } => {
                StepRule::Momentum(Decayed { rule: Momentum { rate, momentum }, decay })
            }
            Self::Adagrad { eps, decay, .. } => StepRule::Adagrad(Decayed { rule: Adagrad { rate, eps }, decay }),
            Self::Adam { averages, decay } => StepRule::Adam(Decayed { rule: Adam::dense(averages, step_size), decay }),
            Self::SparseAdam { averages } => {
                StepRule::Adam(Decayed { rule: Adam::sparse(averages, step_size), decay: 0.0 })
            }
            Self::Ftrl { beta, l1, l2, decay, .. } => {
                StepRule::Ftrl(Decayed { rule: Ftrl { rate, beta, l1, l2 }, decay })
            }
        }
    }
}

impl ByGroup<Optimizer> {
    /// Those that a configuration asks for. A wide part's weights do not decay.
    ///
    /// # Panics
    /// When a group cannot be moved by its optimizer, which [`crate::base::config::Config::contradiction`] refuses.
    #[must_use]
    pub fn configured(config: &TrainConfig) -> Self {
        let own = config.optimizer_wide;
        let (lr_rows, weight_decay) = (config.lr_wide, 0.0);
        let wide = TrainConfig { optimizer: own, optimizer_rows: own, lr_rows, weight_decay, ..config.clone() };
        Self::new(|group| match group {
            ParamGroup::Dense => Optimizer::dense(config),
            ParamGroup::Sparse => Optimizer::rows(config),
            ParamGroup::WideDense => Optimizer::dense(&wide),
            ParamGroup::WideSparse => Optimizer::rows(&wide),
        })
    }
}

/// Whether SGD moves rows by sums: known from the configuration alone, so that all steps and ranks do alike. A way to
/// move rows that is asked for by name and does not sort look-ups moves them one by one.
fn sums_first(config: &TrainConfig) -> bool {
    let sorts = matches!(config.update, Update::Auto | Update::Sorted);
    sorts && config.minibatch() as f64 >= SUMS_FROM * Schedule::rows(config).base()
}

/// What was configured, or the optimizer's own.
const fn eps(config: &TrainConfig, own: f32) -> f32 {
    match config.eps.given() {
        Some(eps) => eps as f32,
        None => own,
    }
}

const fn ftrl(config: &TrainConfig, decay: f32) -> Optimizer {
    let [beta, l1, l2] = [config.ftrl_beta as f32, config.l1 as f32, config.l2 as f32];
    Optimizer::Ftrl { beta, l1, l2, initial: initial(config), decay }
}

const fn initial(config: &TrainConfig) -> f32 {
    config.initial_accumulator as f32
}

const fn averages(config: &TrainConfig, own_eps: f32, corrects: bool) -> Averages {
    let bias_correction = match config.bias_correction.given() {
        Some(given) => given,
        None => corrects,
    };
    Averages { beta1: config.beta1, beta2: config.beta2, eps: eps(config, own_eps), bias_correction }
}

/// What is kept of weights.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ParamState {
    /// Of the weights themselves.
    pub precision: Precision,
    /// Whose moments are kept beside them.
    pub optimizer: Optimizer,
    /// Whether each row has a learned weight, by which look-ups multiply it.
    pub row_weights: bool,
}

impl From<Precision> for ParamState {
    fn from(precision: Precision) -> Self {
        Self { precision, ..Self::default() }
    }
}

impl ParamState {
    /// Bytes of a weight, without what layouts pad it with.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.precision.bytes() + self.optimizer.moments().len() * size_of::<f32>()
    }

    /// Bytes of a row beside those of its weights.
    #[must_use]
    pub const fn row_bytes(self) -> usize {
        (self.row_weight_numbers() + self.optimizer.row_moment().is_some() as usize) * size_of::<f32>()
    }

    /// Numbers that a row's learned weight takes: itself, and what the optimizer keeps of it. None where rows have no
    /// weight.
    #[must_use]
    pub const fn row_weight_numbers(self) -> usize {
        let moments = self.optimizer.moments().len() + self.optimizer.row_moment().is_some() as usize;
        if self.row_weights { 1 + moments } else { 0 }
    }

    /// Whether a row moves once a step, by the sum of its gradients, and not by each of them: where something is kept
    /// of it that must not be moved twice, where it moves by a product with the sum, or where single steps would be
    /// lost.
    #[must_use]
    pub fn sums_gradients(self) -> bool {
        self.optimizer != Optimizer::Sgd || self.row_weights
    }
}

/// Runs `$body` with `$rule` bound to the rule of `$optimizer` by the step size `$step_size`.
macro_rules! with_rule {
    ($optimizer:expr, $step_size:expr, $rule:ident => $body:expr) => {
        $crate::optim::match_rule!($crate::optim::Optimizer::at($optimizer, $step_size), $rule => $body)
    };
}
pub(crate) use with_rule;

/// Runs `$body` with `$rule` bound to the rule that `$step_rule` is.
macro_rules! match_rule {
    ($step_rule:expr, $rule:ident => $body:expr) => {
        match $step_rule {
            $crate::optim::StepRule::Sgd($rule) => $body,
            $crate::optim::StepRule::SgdWithDecay($rule) => $body,
            $crate::optim::StepRule::Momentum($rule) => $body,
            $crate::optim::StepRule::Adagrad($rule) => $body,
            $crate::optim::StepRule::Adam($rule) => $body,
            $crate::optim::StepRule::Ftrl($rule) => $body,
        }
    };
}
pub(crate) use match_rule;
