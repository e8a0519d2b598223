//! The keys of `[train]`.

use serde::{Deserialize, Serialize};

use super::check::{Contradiction, fail};
use super::{
    BestBy, Collective, Decay, Determinism, EvalSplit, Hot, IsaChoice, LrScaling, OptimizerName, Precision, Setting,
    Update, WireChoice,
};

/// Optimisation, evaluation and the length of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainConfig {
    /// Samples a step, or with `accumulate` a part of a step.
    pub batch: usize,
    /// Minibatches of `batch` samples whose gradients are summed for one update: the same as one minibatch that is as
    /// many times as large.
    pub accumulate: usize,
    /// Samples that walk through a rank's network at a time, forward and back, at most; `auto`: so many that what they
    /// leave between the layers stays in the caches. No bit of the results depends on it.
    pub part: Setting<usize>,
    /// Steps in all; 0: as many as the epochs take.
    pub steps: u64,
    /// Passes over the training samples.
    pub epochs: u64,
    /// Base learning rate.
    pub lr: f64,
    /// That of the tables' rows; `auto`: the same.
    pub lr_rows: Setting<f64>,
    /// That of a wide part (`model.wide`), which warms up and decays as `lr` does; `auto`: the same.
    pub lr_wide: Setting<f64>,
    /// How the base rates grow with the minibatch, from what they are at `lr_batch` samples.
    pub lr_scaling: LrScaling,
    /// Samples of the minibatch for which the base rates were chosen.
    pub lr_batch: usize,
    /// Steps over which the rate rises linearly to `lr`.
    pub warmup_steps: u64,
    /// How the rate decays.
    pub decay: Decay,
    /// The step at which decay begins; `auto`: the end of the warm-up.
    pub decay_start: Setting<u64>,
    /// Steps over which the rate decays, or after which it has decayed once by `decay_factor`; 0: no decay.
    pub decay_steps: u64,
    /// The power of polynomial decay.
    pub decay_power: f64,
    /// What the rate is multiplied by in `decay_steps` steps, where it decays in steps or exponentially.
    pub decay_factor: f64,
    /// `warmup_steps` of the tables' rows; `auto`: the same, as of the next three.
    pub warmup_steps_rows: Setting<u64>,
    /// `decay` of the tables' rows.
    pub decay_rows: Setting<Decay>,
    /// `decay_start` of the tables' rows, if anybody has set that; otherwise the end of their own warm-up.
    pub decay_start_rows: Setting<u64>,
    /// `decay_steps` of the tables' rows.
    pub decay_steps_rows: Setting<u64>,
    /// The optimizer of the network's layers.
    pub optimizer: OptimizerName,
    /// The optimizer of the tables' rows. All but `sgd`, and `sgd` in large minibatches, move each row that a step
    /// looked up once, by the sum of its gradients; what they keep of other rows stays as it is.
    pub optimizer_rows: OptimizerName,
    /// The optimizer of a wide part (`model.wide`): of its tables, and of its layer over the dense features.
    pub optimizer_wide: OptimizerName,
    /// The part of the last step that `momentum` makes again.
    pub momentum: f64,
    /// What the denominators of `adagrad`, `rowwise-adagrad`, `adam` and `lamb` are at least; `auto`: 1e-10, 1e-8, 1e-8
    /// and 1e-6.
    pub eps: Setting<f64>,
    /// The part of the mean of gradients that stays in a step of `adam` and `lamb`.
    pub beta1: f64,
    /// The part of the mean of their squares that stays.
    pub beta2: f64,
    /// Whether the means are made up for having begun at 0; `auto`: of `adam`, not of
    /// `lamb`.
    pub bias_correction: Setting<bool>,
    /// The part of a weight that is added to its gradient, in the network's layers; with `lamb`, to its direction.
    pub weight_decay: f64,
    /// The gradients of all layers together are scaled down to this norm where theirs is longer, before the optimizer
    /// sees them (PyTorch's `clip_grad_norm_`); 0: never. Those of rows are not clipped and do not count.
    pub clip_norm: f64,
    /// What the roots of `ftrl`'s sums of squares are added to: McMahan's beta.
    pub ftrl_beta: f64,
    /// What `ftrl` takes from every weight's pull away from 0: McMahan's lambda 1.
    pub l1: f64,
    /// What `ftrl` pulls a weight back with, times its square: McMahan's lambda 2.
    pub l2: f64,
    /// What the sums of squares of `adagrad`, `rowwise-adagrad` and `ftrl` begin with.
    pub initial_accumulator: f64,
    /// How the embedding rows that a minibatch looked up are moved.
    pub update: Update,
    /// Whether embedding rows are moved straight from the gradient of their bags, without gradient rows in between.
    pub update_fused: bool,
    /// What weights are read in, and how much of them is kept.
    pub precision: Precision,
    /// What may differ between two runs that give the same bits.
    pub determinism: Determinism,
    /// What rows and gradients travel in, from rank to rank.
    pub wire: WireChoice,
    /// Whether rows that are looked up most are read from copies that every rank has.
    pub hot: Hot,
    /// Bytes that copies of hot rows may take on each rank; `auto`: a fiftieth of what the tables' weights take, beside
    /// tables that are hot as a whole.
    pub hot_budget: Setting<u64>,
    /// A file of `octorec inspect --hot --out` with the hot rows; empty: they are told from a sample of the data.
    pub hot_set: String,
    /// Steps after which it is told anew which rows are hot, from a sample of the samples to come; 0: they stay.
    pub hot_revise: u64,
    /// Samples of an evaluation, the first ones, by which the order of hot and cold inputs is judged each time that
    /// they take turns; 0: all.
    pub hot_test_samples: u64,
    /// How the gradients of layers are reduced, from rank to rank.
    pub collective: Collective,
    /// Seed of initial weights and of the shuffle.
    pub seed: u64,
    /// Compute threads; 0: one for each core.
    pub threads: usize,
    /// A file of `octorec tune gemm` with the blocking of the MLPs' passes; empty: by the cost model.
    pub tuned: String,
    /// The instruction set. All but those with AMX give the same bits.
    pub isa: IsaChoice,
    /// Steps between evaluations; 0: at the end only. By a flag it takes the place of `evals_per_epoch` of a file or a
    /// preset, and by a file of that of a preset; so do they.
    pub eval_every: u64,
    /// Evaluations in an epoch, evenly; 0: none. Where both keys are given together, at the times of both.
    pub evals_per_epoch: u64,
    /// Which samples evaluations are made on, by which `target_auc`, `patience` and `keep_best` go: `validation`, where
    /// the data have some for that (test samples are then scored once, at the end, by the model that is kept), or
    /// `test`.
    pub eval_split: EvalSplit,
    /// Samples an evaluation step.
    pub eval_batch: usize,
    /// Training stops once an evaluation reaches this AUC; 0: never.
    pub target_auc: f64,
    /// Training stops when so many evaluations on the way, one behind the other, have not been better than the best one
    /// before; 0: never.
    pub patience: u64,
    /// Whether the model of the best evaluation is kept in the folder `best` of the run's directory; `auto`: where
    /// `patience` is above 0.
    pub keep_best: Setting<bool>,
    /// By which score an evaluation is the best. A run that is resumed with another one begins to look for its best
    /// evaluation anew.
    pub best_by: BestBy,
    /// Steps between checkpoints, beside those at the end and when interrupted; 0: by time, see `checkpoint_minutes`.
    pub checkpoint_every: u64,
    /// Minutes from one checkpoint to the next, fractions too, where `checkpoint_every` is 0; 20 times as long as the
    /// last one took to write if that is longer, so that later ones take less than 5 % of the time. 0: at the end and
    /// when interrupted.
    pub checkpoint_minutes: f64,
}

impl TrainConfig {
    /// Samples of a step: the minibatch that one update is made of.
    #[must_use]
    pub const fn minibatch(&self) -> usize {
        self.batch * self.accumulate
    }

    /// The course of the rates of layers and of rows: the steps of the warm-up, the step at which decay begins, and the
    /// steps over which the rate decays, 0 if it does not; then nothing begins behind the warm-up.
    #[must_use]
    pub fn courses(&self) -> [[u64; 3]; 2] {
        let of = |warmup, start: Option<u64>, steps, decay| {
            // PyTorch's schedulers give the first step the whole rate, which the reference's decay does not.
            let first = u64::from(steps > 0 && decay != Decay::Polynomial);
            [warmup, start.filter(|_| steps > 0).unwrap_or(warmup).max(first), steps]
        };
        [
            of(self.warmup_steps, self.decay_start.given(), self.decay_steps, self.decay),
            of(
                self.warmup_steps_rows.or(self.warmup_steps),
                self.decay_start_rows.given().or(self.decay_start.given()),
                self.decay_steps_rows.or(self.decay_steps),
                self.decay_rows.or(self.decay),
            ),
        ]
    }

    /// Whether an evaluation of this AUC reaches the target, if there is one.
    #[must_use]
    pub fn reaches_target(&self, auc: f64) -> bool {
        self.target_auc > 0.0 && auc >= self.target_auc
    }

    /// Whether the best model is kept, where anything is.
    #[must_use]
    pub const fn keeps_best(&self) -> bool {
        self.keep_best.or(self.patience > 0)
    }

    /// Whether there are evaluations beside the one at the end.
    #[must_use]
    pub const fn evaluates_on_the_way(&self) -> bool {
        self.eval_every > 0 || self.evals_per_epoch > 0
    }

    /// Refuses to wait for what never comes.
    pub(super) fn check_patience(&self) -> Result<(), Contradiction> {
        if self.patience == 0 || self.evaluates_on_the_way() {
            return Ok(());
        }
        fail(
            &["train.patience", "train.eval_every", "train.evals_per_epoch"],
            format!(
                "train.patience = {} needs evaluations on the way: use --eval-every STEPS or, where an epoch ends, --set \
                 train.evals_per_epoch=N",
                self.patience
            ),
        )
    }
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            batch: 128,
            accumulate: 1,
            part: Setting::AUTO,
            steps: 0,
            epochs: 1,
            lr: 0.1,
            lr_rows: Setting::AUTO,
            lr_wide: Setting::AUTO,
            lr_scaling: LrScaling::None,
            lr_batch: 0,
            warmup_steps: 0,
            decay: Decay::Polynomial,
            decay_start: Setting::AUTO,
            decay_steps: 0,
            decay_power: 2.0,
            decay_factor: 0.1,
            warmup_steps_rows: Setting::AUTO,
            decay_rows: Setting::AUTO,
            decay_start_rows: Setting::AUTO,
            decay_steps_rows: Setting::AUTO,
            optimizer: OptimizerName::Sgd,
            optimizer_rows: OptimizerName::Sgd,
            optimizer_wide: OptimizerName::Ftrl,
            momentum: 0.9,
            eps: Setting::AUTO,
            beta1: 0.9,
            beta2: 0.999,
            bias_correction: Setting::AUTO,
            weight_decay: 0.0,
            clip_norm: 0.0,
            // As recommended by McMahan et al. 2013.
            ftrl_beta: 1.0,
            l1: 0.0,
            l2: 0.0,
            initial_accumulator: 0.0,
            update: Update::Auto,
            update_fused: true,
            precision: Precision::F32,
            determinism: Determinism::Run,
            wire: WireChoice::Auto,
            hot: Hot::Off,
            hot_budget: Setting::AUTO,
            hot_set: String::new(),
            hot_revise: 0,
            hot_test_samples: 1 << 16,
            collective: Collective::Auto,
            seed: 123,
            threads: 0,
            tuned: String::new(),
            isa: IsaChoice::Auto,
            eval_every: 0,
            evals_per_epoch: 0,
            eval_split: EvalSplit::Validation,
            eval_batch: 4096,
            target_auc: 0.0,
            patience: 0,
            keep_best: Setting::AUTO,
            best_by: BestBy::Auc,
            checkpoint_every: 0,
            checkpoint_minutes: 30.0,
        }
    }
}
