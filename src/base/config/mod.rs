//! The whole configuration of a run: model, data and training, as one TOML document.
//!
//! A resolved configuration is complete: every key has a value, and `octorec config` prints it. It is built from
//! layers (`layers`): defaults, then a preset, a file, `--set`, and flags; a later layer overrides an earlier one.
//! Key names follow the reference implementation's flags where both mean the same (facebookresearch/dlrm).

mod cache;
mod check;
mod choices;
mod keys;
mod launcher;
mod layers;
mod look_ups;
mod model;
mod network;
mod presets;
mod rayon;
mod setting;
mod train;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use cache::cache_dir;
pub use check::Contradiction;
pub use choices::{
    BestBy, Collective, Decay, Determinism, EvalSplit, Hot, IsaChoice, LrScaling, OptimizerName, Precision, Update,
    Wire, WireChoice, Wires,
};
pub use keys::{Command, KEYS, Key};
pub use launcher::{alone_on_machine, bound_although_alone, launched, one_caller, refuse_several, size_variables};
pub use layers::{Layers, entries};
pub use look_ups::LookUps;
pub(crate) use network::names as layer_names;
pub use network::{DENSE, EMBEDDINGS, LayerKind, NamedLayer, Width, Widths};
pub use presets::{DEFAULT_PRESET, PRESETS, preset};
pub use rayon::tells_rayon;
pub use setting::Setting;
pub use train::TrainConfig;

use crate::base::named;

/// Everything that determines a run. A key that a configuration of an earlier version lacks has its default.
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
#[serde(default)]
pub struct ModelConfig {
    /// Bottom MLP: the number of dense features (0: as many as the data has), then each layer's outputs. Empty: there
    /// are no dense features and no bottom MLP.
    pub bottom: Vec<usize>,
    /// Top MLP: each layer's outputs; its input follows from the interaction.
    pub top: Vec<usize>,
    /// Columns of every embedding table.
    pub dim: usize,
    /// How much narrower tables of more rows are (mixed dimensions, Ginart et al. 2019): columns of the smallest times
    /// (its rows / their rows) to this power. What is narrower than `dim` is made as wide by a matrix. 0: all tables
    /// have `dim` columns.
    pub md_temperature: f64,
    /// Tables of at most so many rows have `dim` columns in any case.
    pub md_threshold: u64,
    /// Whether these columns are rounded to powers of two.
    pub md_round_dims: bool,
    /// How many values share a row of a large table (quotient-remainder trick, Shi et al. 2019): a value's vector is
    /// made of two rows, one of a table of its row number divided by this, one of a table of what is left. 0: every
    /// value has its own row.
    pub qr_collisions: u64,
    /// How the two become one vector.
    pub qr_operation: Composition,
    /// Tables of at most so many rows stay whole.
    pub qr_threshold: u64,
    /// Rows of each embedding table; empty: as many as the data has.
    pub rows: Vec<u64>,
    /// Names of the categorical columns; empty: C1, C2 and so on, or as the data has them.
    pub columns: Vec<String>,
    /// How the rows of a bag become one vector.
    pub pooling: Pooling,
    /// What rows are multiplied by before they are pooled (`--weighted-pooling` of facebookresearch/dlrm).
    pub weighted_pooling: WeightedPooling,
    /// How dense and sparse features meet.
    pub interaction: Interaction,
    /// Whether `dot` keeps each vector's product with itself.
    pub interaction_itself: bool,
    /// In which order `dot` gives its products; with `upper` the model is TorchRec's DLRM, by its initial weights and
    /// the names of its tensors, too.
    pub triangle: Triangle,
    /// Layers of the cross network (`dcn`).
    pub cross_layers: usize,
    /// Numbers between the two matrices of a cross layer (`dcn`).
    pub cross_rank: usize,
    /// Whether a wide part (Cheng et al. 2016) adds to the logit: a weight for each dense feature, each category and
    /// each cross of categories.
    pub wide: bool,
    /// Crosses of categorical columns, by their names, whose combinations the wide part has weights for.
    pub wide_crosses: Vec<Vec<String>>,
    /// Rows of the table of each cross; combinations are hashed to them.
    pub wide_buckets: u64,
    /// Steps of a time series before the one in question (TBSM, Ishkhanov et al. 2020): the network above, `bottom`,
    /// interaction and `top`, is then a tower that is run for each step, and attention over the steps follows. The
    /// step's position in the series counts as a dense feature, the first. 0: no time series.
    pub ts_length: usize,
    /// Columns whose look-ups are the steps, by their names, the last one that in question; every other column is the
    /// same at each step. Empty: all that have several look-ups a sample.
    pub sequences: Vec<String>,
    /// Layers of attention: each one's outputs, between as many inputs and outputs as the series has steps.
    pub tsl_mlp: Vec<usize>,
    /// Layers from a time series' context and its last step to the click probability: each one's outputs.
    pub arch_mlp: Vec<usize>,
    /// What is minimised.
    pub loss: Loss,
    /// Weights of the two classes, label 0 first (`wbce`).
    pub loss_weights: [f32; 2],
    /// Probabilities are clamped to [t, 1 - t] before the loss; 0: not clamped.
    pub loss_threshold: f32,
    /// The layers between the features and the logit, by their names, instead of those that `bottom`, `interaction`,
    /// `top`, `tsl_mlp`, `arch_mlp` and `wide` describe; of `bottom` the number of dense features remains. Empty:
    /// those.
    pub layers: Vec<NamedLayer>,
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

/// What a look-up's row is multiplied by before it is pooled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightedPooling {
    /// The look-up's weight, where the data have weights, and else 1.
    #[default]
    Fixed,
    /// That, and a weight that each row of a table has and that is learned with the row, beginning with 1.
    Learned,
}

/// How the vectors of one sample are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interaction {
    /// Pairwise dot products.
    Dot,
    /// Concatenation.
    Cat,
    /// Concatenation through the low-rank cross network of DCNv2.
    Dcn,
}

/// How the rows of a quotient and of a remainder become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Composition {
    /// They are multiplied, element by element.
    #[default]
    Mult,
    /// They are added.
    Add,
    /// They have half of a vector's columns each, and lie side by side.
    Concat,
}

/// Which half of the matrix of all products `dot` gives, row by row: each product once in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Triangle {
    /// Below the diagonal, as facebookresearch/dlrm: each vector with those before it.
    #[default]
    Lower,
    /// Above it, as TorchRec: each vector with those behind it.
    Upper,
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
#[serde(default)]
pub struct DataConfig {
    /// Which kind of source.
    pub source: SourceKind,
    /// The data file or directory; for `tsv` and `files`.
    pub path: String,
    /// The file that describes a text file with a header; for `files`.
    pub schema: String,
    /// A second file that holds the test samples; empty: the last part of `path`.
    pub test_path: String,
    /// The share of samples, taken from the end, that is kept for testing.
    pub test_fraction: f64,
    /// The share of samples, taken from the end of `path` before those for testing, that is kept for validation: by
    /// them the run's evaluations are made, and the test samples are scored once, at its end (`train.eval_split`).
    pub validation_fraction: f64,
    /// How categorical values become row numbers; for text: `tsv`, and `files` with a schema.
    pub vocab: Vocab,
    /// At most this many rows a table (values are taken modulo it); 0: no limit.
    pub rows_cap: u64,
    /// What a malformed row does; for text.
    pub on_bad_row: OnBadRow,
    /// The longest line of a text file in bytes; a longer one is a malformed row.
    pub max_line: usize,
    /// Whether training samples are visited in random order.
    pub shuffle: bool,
    /// Samples that are shuffled among themselves; the data set is read once, in windows of this size, two in memory.
    pub shuffle_window: usize,
    /// Minibatches that are read ahead of the step: enough to ride over a slow read, small beside the model.
    pub prefetch: usize,
    /// Training samples to generate; for `criteo` and `taobao`.
    pub train_samples: u64,
    /// Test samples to generate; for `criteo`, `taobao` and `random`.
    pub test_samples: u64,
    /// Seed of generated data (initial weights have their own).
    pub seed: u64,
    /// Look-ups of a sample in each table: a number for all, or a list with one for each; for `criteo`, whose further
    /// ones tell nothing, `random`, and `taobao`, whose users have one however long sequences are.
    pub lookups: LookUps,
    /// The days that the training samples are of, as many of each; for `criteo`.
    pub days: u64,
    /// The share of a column's hottest values that others take the place of from one day to the next; for `criteo`.
    pub drift: f64,
    /// Whether every bag has exactly so many indices, or 1 to so many; for `random`.
    pub lookups_fixed: bool,
    /// Exponent of a Zipf distribution of rows; 0: uniform; for `random`.
    pub zipf: f64,
}

named! {
    /// The kinds of data source.
    pub enum SourceKind {
        /// Built-in generator with the shape of Criteo's click logs and a planted click model.
        Criteo = "criteo",
        /// Built-in generator of time series with the shape of Taobao's behaviour log, and a planted click model.
        Taobao = "taobao",
        /// Criteo's raw tab-separated layout, plain or gzip.
        Tsv = "tsv",
        /// Files in any other format that octorec reads; which one, their names and first bytes tell.
        Files = "files",
        /// Random look-ups and labels, as in the papers' benchmarks.
        Random = "random",
    }
}

/// How categorical values become row numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vocab {
    /// By first appearance in the whole data set, test samples included (as the reference does).
    All,
    /// By first appearance in the training samples; unseen values share one row.
    Train,
    /// The value itself modulo the number of rows: nothing is learned from the data.
    Hash,
}

/// What a malformed row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OnBadRow {
    /// Stop and say what is wrong.
    Fail,
    /// Leave it out and count it.
    Skip,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            bottom: vec![13, 512, 256, 64, 16],
            top: vec![512, 256, 1],
            dim: 16,
            md_temperature: 0.0,
            // As facebookresearch/dlrm has it.
            md_threshold: 200,
            md_round_dims: false,
            qr_collisions: 0,
            qr_operation: Composition::Mult,
            // As facebookresearch/dlrm has it.
            qr_threshold: 200,
            rows: Vec::new(),
            columns: Vec::new(),
            pooling: Pooling::Sum,
            weighted_pooling: WeightedPooling::Fixed,
            interaction: Interaction::Dot,
            interaction_itself: false,
            triangle: Triangle::Lower,
            // MLPerf's DCNv2 has these layers.
            cross_layers: 3,
            cross_rank: 512,
            wide: false,
            wide_crosses: Vec::new(),
            // Enough for a cross of two columns of some hundreds of common values each.
            wide_buckets: 100_000,
            ts_length: 0,
            sequences: Vec::new(),
            // These two are RMC1's.
            tsl_mlp: vec![15, 15],
            arch_mlp: vec![60, 1],
            loss: Loss::Bce,
            loss_weights: [1.0, 1.0],
            loss_threshold: 0.0,
            layers: Vec::new(),
        }
    }
}

/// [`DataConfig::max_line`] unless somebody says otherwise: 16 MiB.
pub const MAX_LINE: usize = 16 << 20;

/// No rank has more threads than this, so that a slip of the pen cannot ask for all memory.
pub const THREADS_MAX: usize = 4096;

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            source: SourceKind::Criteo,
            path: String::new(),
            schema: String::new(),
            test_path: String::new(),
            test_fraction: 0.1,
            validation_fraction: 0.0,
            vocab: Vocab::All,
            rows_cap: 0,
            on_bad_row: OnBadRow::Fail,
            max_line: MAX_LINE,
            shuffle: true,
            shuffle_window: 1 << 17,
            prefetch: 4,
            train_samples: 400_000,
            test_samples: 50_000,
            seed: 1,
            lookups: LookUps::Same(1),
            lookups_fixed: true,
            zipf: 0.0,
            days: 7,
            drift: 0.0,
        }
    }
}

impl DataConfig {
    /// Whether it reads files, which say how many dense features and rows there are.
    #[must_use]
    pub const fn is_stored(&self) -> bool {
        matches!(self.source, SourceKind::Tsv | SourceKind::Files)
    }

    /// The shares of the samples of `path`, from its end, that are not for training, and of these that are for tests.
    #[must_use]
    pub fn held_out(&self) -> [f64; 2] {
        let tests = if self.test_path.is_empty() { self.test_fraction } else { 0.0 };
        [tests + self.validation_fraction, tests]
    }

    /// Refuses to hold out more than all.
    fn check_held_out(&self) -> std::result::Result<(), check::Contradiction> {
        let Self { validation_fraction, test_fraction, .. } = self;
        if *validation_fraction == 0.0 || self.held_out()[0] <= 1.0 {
            return Ok(());
        }
        check::fail(
            &["data.validation_fraction", "data.test_fraction"],
            format!(
                "data.validation_fraction = {validation_fraction} and data.test_fraction = {test_fraction} are more than all \
                 samples together: lower one of them"
            ),
        )
    }

    /// Rows of a table that would have `rows`.
    #[must_use]
    pub const fn capped(&self, rows: u64) -> u64 {
        if self.rows_cap == 0 || rows < self.rows_cap { rows } else { self.rows_cap }
    }
}

impl Config {
    /// Keeps what a trained model is, and takes this machine's best instead of what it was trained with: as many
    /// threads a rank (0: one for each core), the widest instruction set, no order of sums over ranks, since
    /// predictions have none, rows that travel as they are, and no memory for an optimizer's moments or copies of hot
    /// rows.
    pub fn use_here(&mut self, threads: usize) {
        let plain = TrainConfig::default();
        let TrainConfig { isa, tuned, determinism, collective, optimizer, optimizer_rows, hot, .. } = plain;
        self.train = TrainConfig {
            threads,
            isa,
            tuned,
            determinism,
            wire: WireChoice::F32,
            collective,
            optimizer,
            optimizer_rows,
            hot,
            ..self.train.clone()
        };
    }
}

impl Config {
    /// What ranks send each other travels in.
    #[must_use]
    pub fn wires(&self) -> Wires {
        let TrainConfig { wire, precision, determinism, .. } = self.train;
        match wire {
            WireChoice::F32 => Wires::all(Wire::F32),
            WireChoice::Bf16 => Wires::all(Wire::Bf16),
            WireChoice::Auto if determinism == Determinism::Ranks => Wires::all(Wire::F32),
            WireChoice::Auto if self.model.layer_precision(precision).is_split() => {
                Wires { rows: Wire::Bf16, dense: Wire::F32 }
            }
            WireChoice::Auto => Wires::all(Wire::F32),
        }
    }

    /// All keys that it has, each with its value as TOML writes it.
    ///
    /// # Panics
    /// Never: its document is one.
    #[must_use]
    pub fn values(&self) -> BTreeMap<String, String> {
        let all = entries(&self.to_toml()).expect("a configuration is written as TOML");
        all.into_iter().map(|(key, _, value)| (key, value.to_string())).collect()
    }

    /// The first key with a whole number above those of TOML, which have a sign, and that number: what was read from
    /// TOML has none, what comes from elsewhere may.
    ///
    /// # Panics
    /// Never: it is plain data.
    #[must_use]
    pub fn beyond_toml(&self) -> Option<(String, u64)> {
        let all = serde_json::to_value(self).expect("plain data with string keys is JSON");
        let sections = all.as_object().into_iter().flatten();
        let mut keys = sections.flat_map(|(section, keys)| {
            keys.as_object()
                .into_iter()
                .flatten()
                .map(move |(key, value)| (format!("{section}.{key}"), greatest(value)))
        });
        keys.find(|(_, number)| i64::try_from(*number).is_err())
    }

    /// The configuration as a TOML document.
    ///
    /// # Panics
    /// When a number is [beyond](Self::beyond_toml) what TOML holds.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field of Config is representable in TOML")
    }
}

/// The greatest whole number of a value of a key.
fn greatest(value: &serde_json::Value) -> u64 {
    match value {
        serde_json::Value::Number(number) => number.as_u64().unwrap_or(0),
        serde_json::Value::Array(all) => all.iter().map(greatest).max().unwrap_or(0),
        serde_json::Value::Object(all) => all.values().map(greatest).max().unwrap_or(0),
        _ => 0,
    }
}
