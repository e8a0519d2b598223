//! The whole configuration of a run: model, data and training, as one TOML document.
//!
//! A resolved configuration is complete: every key has a value, and `octorec config` prints it. It is built from
//! layers (`layers`): defaults, then a preset, a file, `--set`, and flags; a later layer overrides an earlier one.
//! Key names follow the reference implementation's flags where both mean the same (facebookresearch/dlrm).

mod choices;
mod layers;
mod presets;

use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
pub use choices::{Determinism, IsaChoice, OptimizerName, Precision, Update};
pub use layers::Layers;
pub use presets::{DEFAULT_PRESET, PRESETS, preset};

/// Everything that determines a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Config {
    /// Which network is trained.
    pub model: ModelConfig,
    /// Where samples come from.
    pub data: DataConfig,
    /// How the network is trained.
    pub train: TrainConfig,
}

/// The network: sizes of its layers and tables, its interaction and its loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Bottom MLP: the number of dense features, then each layer's outputs.
    pub bottom: Vec<usize>,
    /// Top MLP: each layer's outputs; its input follows from the interaction.
    pub top: Vec<usize>,
    /// Columns of every embedding table.
    pub dim: usize,
    /// Rows of each embedding table; empty: as many as the data has.
    pub rows: Vec<u64>,
    /// How the rows of a bag become one vector.
    pub pooling: Pooling,
    /// How dense and sparse features meet.
    pub interaction: Interaction,
    /// Whether `dot` keeps each vector's product with itself.
    pub interaction_itself: bool,
    /// What is minimised.
    pub loss: Loss,
    /// Weights of the two classes, label 0 first (`wbce`).
    pub loss_weights: [f32; 2],
    /// Probabilities are clamped to [t, 1 - t] before the loss; 0: not clamped.
    pub loss_threshold: f32,
}

/// How the rows of an embedding bag become one vector; an empty bag gives 0 either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// Their sum.
    #[default]
    Sum,
    /// Their sum divided by their number.
    Mean,
}

/// How the vectors of one sample are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interaction {
    /// Pairwise dot products, lower triangle.
    Dot,
    /// Concatenation.
    Cat,
}

/// The loss function; all are means over the minibatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loss {
    /// Binary cross-entropy.
    Bce,
    /// Binary cross-entropy, each sample weighted by its label.
    Wbce,
    /// Mean squared error.
    Mse,
}

/// The data set and how it is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataConfig {
    /// Which kind of source.
    pub source: SourceKind,
    /// The data file or directory; for `tsv` and `files`.
    pub path: String,
    /// The file that describes a text file with a header; for `files`.
    #[serde(default)]
    pub schema: String,
    /// A second file that holds the test samples; empty: the last part of `path`.
    pub test_path: String,
    /// The share of samples, taken from the end, that is kept for testing.
    pub test_fraction: f64,
    /// How categorical values become row numbers; for `tsv`.
    pub vocab: Vocab,
    /// At most this many rows a table (values are taken modulo it); 0: no limit.
    pub rows_cap: u64,
    /// What a malformed row does.
    pub on_bad_row: OnBadRow,
    /// Whether training samples are visited in random order.
    pub shuffle: bool,
    /// Samples that are shuffled among themselves; the data set is read once, in windows of this size, two in memory.
    pub shuffle_window: usize,
    /// Minibatches that are read ahead of the step: enough to ride over a slow read, small beside the model.
    #[serde(default = "prefetch")]
    pub prefetch: usize,
    /// Training samples to generate; for `criteo`.
    pub train_samples: u64,
    /// Test samples to generate; for `criteo` and `random`.
    pub test_samples: u64,
    /// Seed of generated data (initial weights have their own).
    pub seed: u64,
    /// Look-ups a table and sample; for `random`.
    pub lookups: usize,
    /// Whether every bag has exactly `lookups` indices, or 1 to `lookups`; for `random`.
    pub lookups_fixed: bool,
    /// Exponent of a Zipf distribution of rows; 0: uniform; for `random`.
    pub zipf: f64,
}

/// The kinds of data source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Built-in generator with the shape of Criteo's click logs and a planted click model.
    Criteo,
    /// Criteo's raw tab-separated layout, plain or gzip.
    Tsv,
    /// Files in any other format that octorec reads; which one, their names and first bytes tell.
    Files,
    /// Random look-ups and labels, as in the papers' benchmarks.
    Random,
}

/// How categorical values become row numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vocab {
    /// By first appearance in the whole data set, test samples included (as the reference does).
    All,
    /// By first appearance in the training samples; unseen values share one row.
    Train,
    /// The value itself modulo the number of rows; no pass over the data is needed.
    Hash,
}

/// What a malformed row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBadRow {
    /// Ends the run with the file and line.
    Fail,
    /// Leaves the row out and counts it.
    Skip,
}

/// Optimisation, evaluation and the length of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainConfig {
    /// Samples a step.
    pub batch: usize,
    /// Steps in all; 0: as many as the epochs take.
    pub steps: u64,
    /// Passes over the training samples.
    pub epochs: u64,
    /// Base learning rate.
    pub lr: f64,
    /// Steps over which the rate rises linearly to `lr`.
    pub warmup_steps: u64,
    /// The step at which polynomial decay (power 2) begins.
    pub decay_start: u64,
    /// Steps over which the rate decays; 0: no decay.
    pub decay_steps: u64,
    /// The optimizer of the network's layers.
    #[serde(default)]
    pub optimizer: OptimizerName,
    /// The optimizer of the tables' rows. One with moments moves each row that a step looked up once, by the sum of its
    /// gradients; the moments of other rows stay as they are.
    #[serde(default)]
    pub optimizer_rows: OptimizerName,
    /// The part of the last step that `momentum` makes again.
    #[serde(default = "momentum")]
    pub momentum: f64,
    /// How the embedding rows that a minibatch looked up are moved.
    pub update: Update,
    /// Whether embedding rows are moved straight from the gradient of their bags, without gradient rows in between.
    pub update_fused: bool,
    /// What weights are read in, and how much of them is kept.
    #[serde(default)]
    pub precision: Precision,
    /// What may differ between two runs that give the same bits.
    #[serde(default)]
    pub determinism: Determinism,
    /// Seed of initial weights and of the shuffle.
    pub seed: u64,
    /// Compute threads; 0: one for each core.
    pub threads: usize,
    /// A file of `octorec tune gemm` with the blocking of the MLPs' passes; empty: by the cost model.
    pub tuned: String,
    /// The instruction set. All but those with AMX give the same bits.
    pub isa: IsaChoice,
    /// Steps between evaluations; 0: at the end only.
    pub eval_every: u64,
    /// Samples an evaluation step.
    pub eval_batch: usize,
    /// Training stops once an evaluation reaches this AUC; 0: never.
    pub target_auc: f64,
    /// Steps between checkpoints; 0: at the end and when interrupted.
    pub checkpoint_every: u64,
}

const fn momentum() -> f64 {
    0.9
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            bottom: vec![13, 512, 256, 64, 16],
            top: vec![512, 256, 1],
            dim: 16,
            rows: Vec::new(),
            pooling: Pooling::Sum,
            interaction: Interaction::Dot,
            interaction_itself: false,
            loss: Loss::Bce,
            loss_weights: [1.0, 1.0],
            loss_threshold: 0.0,
        }
    }
}

fn prefetch() -> usize {
    4
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            source: SourceKind::Criteo,
            path: String::new(),
            schema: String::new(),
            test_path: String::new(),
            test_fraction: 0.1,
            vocab: Vocab::All,
            rows_cap: 0,
            on_bad_row: OnBadRow::Fail,
            shuffle: true,
            shuffle_window: 1 << 17,
            prefetch: prefetch(),
            train_samples: 400_000,
            test_samples: 50_000,
            seed: 1,
            lookups: 1,
            lookups_fixed: true,
            zipf: 0.0,
        }
    }
}

impl DataConfig {
    /// Rows of a table that would have `rows`.
    #[must_use]
    pub const fn capped(&self, rows: u64) -> u64 {
        if self.rows_cap == 0 || rows < self.rows_cap { rows } else { self.rows_cap }
    }
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            batch: 128,
            steps: 0,
            epochs: 1,
            lr: 0.1,
            warmup_steps: 0,
            decay_start: 0,
            decay_steps: 0,
            optimizer: OptimizerName::Sgd,
            optimizer_rows: OptimizerName::Sgd,
            momentum: momentum(),
            update: Update::Auto,
            update_fused: true,
            precision: Precision::F32,
            determinism: Determinism::Run,
            seed: 123,
            threads: 0,
            tuned: String::new(),
            isa: IsaChoice::Auto,
            eval_every: 0,
            eval_batch: 4096,
            target_auc: 0.0,
            checkpoint_every: 0,
        }
    }
}

impl Config {
    /// Keeps what a trained model is, and takes this machine's best instead of what it was trained with: as many threads
    /// a rank (0: one for each core), the widest instruction set, no order of sums over ranks, since predictions have
    /// none, and no memory for an optimizer's moments.
    pub fn use_here(&mut self, threads: usize) {
        let TrainConfig { isa, tuned, determinism, optimizer, optimizer_rows, .. } = TrainConfig::default();
        self.train = TrainConfig { threads, isa, tuned, determinism, optimizer, optimizer_rows, ..self.train.clone() };
    }
}

impl Config {
    /// Checks what a single key's type cannot: that layers fit each other and that numbers are in range.
    ///
    /// # Errors
    /// [`Error::Config`] that names the key, what it is and what it should be.
    pub fn validate(&self, origin: &str) -> Result<()> {
        let fail = |reason: String| Err(Error::Config { origin: origin.to_owned(), reason });
        let model = &self.model;
        if model.bottom.len() < 2 {
            return fail(format!("model.bottom = {:?} needs the inputs and at least one layer", model.bottom));
        }
        if model.bottom.contains(&0) || model.top.contains(&0) || model.dim == 0 {
            return fail("model.bottom, model.top and model.dim must not contain 0".to_owned());
        }
        if model.top.last() != Some(&1) {
            return fail(format!("model.top = {:?} must end in 1, the click probability", model.top));
        }
        let bottom_out = model.bottom[model.bottom.len() - 1];
        if model.interaction == Interaction::Dot && bottom_out != model.dim {
            return fail(format!(
                "model.bottom ends in {bottom_out} but model.dim is {}: the dot interaction multiplies them, \
                 so they must be equal (or use model.interaction = \"cat\")",
                model.dim
            ));
        }
        if !(0.0..0.5).contains(&model.loss_threshold) {
            return fail(format!("model.loss_threshold = {} must lie in [0, 0.5)", model.loss_threshold));
        }
        if let Some(table) = model.rows.iter().position(|&rows| rows == 0 || rows > u64::from(u32::MAX)) {
            return fail(format!(
                "model.rows: table {table} has {} rows; 1 to 2^32 - 1 are possible",
                model.rows[table]
            ));
        }
        let data = &self.data;
        if matches!(data.source, SourceKind::Tsv | SourceKind::Files) && data.path.is_empty() {
            return fail("data.source = \"tsv\" and \"files\" need data.path: use --data PATH".to_owned());
        }
        if !(0.0..1.0).contains(&data.test_fraction) {
            return fail(format!("data.test_fraction = {} must lie in [0, 1)", data.test_fraction));
        }
        if data.shuffle_window == 0 || data.lookups == 0 {
            return fail("data.shuffle_window and data.lookups must be at least 1".to_owned());
        }
        if !(1..=1024).contains(&data.prefetch) {
            return fail(format!("data.prefetch = {} must lie in [1, 1024]", data.prefetch));
        }
        if !(0.0..=10.0).contains(&data.zipf) {
            return fail(format!("data.zipf = {} must lie in [0, 10]", data.zipf));
        }
        let train = &self.train;
        if train.batch == 0 || train.eval_batch == 0 {
            return fail("train.batch and train.eval_batch must be at least 1".to_owned());
        }
        if !(train.lr.is_finite() && train.lr >= 0.0) {
            return fail(format!("train.lr = {} must be a finite number that is not negative", train.lr));
        }
        if train.determinism != Determinism::None && matches!(train.update, Update::Atomic | Update::Rtm) {
            let name = if train.update == Update::Atomic { "atomic" } else { "rtm" };
            return fail(format!(
                "train.update = \"{name}\" leaves the order of sums to chance, so that no two runs need agree: use auto, \
                 serial, race-free or sorted, or allow it with train.determinism = \"none\" (--determinism none)"
            ));
        }
        if train.optimizer_rows != OptimizerName::Sgd && !matches!(train.update, Update::Auto | Update::Sorted) {
            return fail(
                "train.optimizer_rows sums a row's gradients before it moves the row, for which look-ups are sorted: \
                 use train.update = \"auto\" or \"sorted\""
                    .to_owned(),
            );
        }
        if !(0.0..1.0).contains(&train.momentum) {
            return fail(format!("train.momentum = {} must lie in [0, 1)", train.momentum));
        }
        if train.epochs == 0 && train.steps == 0 {
            return fail("train.epochs and train.steps are both 0: nothing to train".to_owned());
        }
        if !(0.0..=1.0).contains(&train.target_auc) {
            return fail(format!("train.target_auc = {} must lie in [0, 1]", train.target_auc));
        }
        Ok(())
    }

    /// The configuration as a TOML document.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field of Config is representable in TOML")
    }
}
