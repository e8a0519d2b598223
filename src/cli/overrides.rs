//! Flags that change a configuration: presets, files, `--set`, and short names for the keys that are changed most.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::base::config::{Config, DEFAULT_PRESET, Layers, SourceKind};
use crate::base::{Error, Result};
use crate::data::formats::Format;

/// Where the configuration comes from, before single keys are changed.
#[derive(Debug, Clone, Args)]
pub struct BaseArgs {
    /// Start from a built-in model (see `octorec config --list`).
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,

    /// Read keys from a TOML file; they override the preset's.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Single keys. A flag overrides `--set`, which overrides the file and the preset.
#[derive(Debug, Clone, Args)]
pub struct KeyArgs {
    /// Change any key of the configuration; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Data in Criteo's tab-separated layout, plain or gzip, or in any format that `octorec convert` reads.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,

    /// What describes a text file with a header line (`octorec inspect` proposes it); for --data.
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,

    /// Data source: criteo (built-in generator), tsv, files, random; --data tells which of the files' it is.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,

    /// A second data file that holds the test samples.
    #[arg(long, value_name = "FILE")]
    test_data: Option<PathBuf>,

    /// Share of samples, from the end of the file, kept for testing.
    #[arg(long, value_name = "SHARE")]
    test_fraction: Option<f64>,

    /// Categories to rows: all, train (unseen values share a row) or hash.
    #[arg(long, value_name = "NAME")]
    vocab: Option<String>,

    /// At most this many rows a table.
    #[arg(long, value_name = "ROWS")]
    rows_cap: Option<u64>,

    /// What a malformed row does: fail or skip.
    #[arg(long, value_name = "WHAT")]
    on_bad_row: Option<String>,

    /// Keep the samples' order.
    #[arg(long)]
    no_shuffle: bool,

    /// Minibatches that are read ahead of the step.
    #[arg(long, value_name = "N")]
    prefetch: Option<u64>,

    /// Samples a step.
    #[arg(long, value_name = "N")]
    batch: Option<u64>,

    /// Steps in all, over as many epochs as that takes; 0: as many as the epochs take.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,

    /// Passes over the training samples.
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,

    /// Learning rate.
    #[arg(long, value_name = "RATE")]
    lr: Option<f64>,

    /// Optimizer of the network's layers: sgd or momentum.
    #[arg(long, value_name = "NAME")]
    optimizer: Option<String>,

    /// Optimizer of the tables' rows: sgd or momentum.
    #[arg(long, value_name = "NAME")]
    optimizer_rows: Option<String>,

    /// How embedding rows are moved: auto, serial, atomic, rtm, race-free or sorted.
    #[arg(long, value_name = "NAME")]
    update: Option<String>,

    /// What weights are read in: f32, bf16 (updates as exact as f32's) or bf16-lsb8 (8 bits fewer, to compare).
    #[arg(long, value_name = "NAME")]
    precision: Option<String>,

    /// What may differ without changing a bit: run (the number of threads), ranks (that of ranks and the plan, too), or none
    /// (updates may leave the order of sums to chance).
    #[arg(long, value_name = "NAME")]
    determinism: Option<String>,

    /// Seed of initial weights and of the shuffle.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Compute threads; 0: one for each core.
    #[arg(long, value_name = "N")]
    threads: Option<u64>,

    /// Use the blocking that `octorec tune gemm` wrote to this file.
    #[arg(long, value_name = "FILE")]
    tuned: Option<PathBuf>,

    /// Instruction set: auto, scalar, avx2, avx512, avx512-bf16, amx-bf16 or amx-bf16x3. All but those with AMX give the
    /// same bits; the last multiplies f32 on tiles, too, as three bf16 each, faster and no less accurately.
    #[arg(long, value_name = "NAME")]
    isa: Option<String>,

    /// Steps between evaluations; 0: at the end only.
    #[arg(long, value_name = "N")]
    eval_every: Option<u64>,

    /// Stop once a test AUC reaches this.
    #[arg(long, value_name = "AUC")]
    target_auc: Option<f64>,

    /// Steps between checkpoints; 0: at the end and when interrupted.
    #[arg(long, value_name = "N")]
    checkpoint_every: Option<u64>,
}

impl BaseArgs {
    /// Defaults, then the preset, then the file.
    pub fn layers(&self) -> Result<Layers> {
        let mut layers = Layers::default();
        match (&self.preset, &self.config) {
            (Some(name), _) => layers.preset(name)?,
            (None, None) => layers.preset(DEFAULT_PRESET)?,
            (None, Some(_)) => (),
        }
        if let Some(path) = &self.config {
            layers.file(path)?;
        }
        Ok(layers)
    }
}

impl KeyArgs {
    /// Puts `--set` and then the flags onto `layers`.
    pub fn finish(&self, mut layers: Layers) -> Result<Config> {
        for assignment in &self.set {
            layers.assignment(assignment)?;
        }
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        // Checked below: none is larger than TOML's integers.
        let integer = |value: Option<u64>| value.map(|value| toml::Value::Integer(value.cast_signed()));
        let integers = [
            ("--rows-cap", self.rows_cap),
            ("--prefetch", self.prefetch),
            ("--batch", self.batch),
            ("--steps", self.steps),
            ("--epochs", self.epochs),
            ("--seed", self.seed),
            ("--threads", self.threads),
            ("--eval-every", self.eval_every),
            ("--checkpoint-every", self.checkpoint_every),
        ];
        let too_large = |(_, value): &(&str, Option<u64>)| value.is_some_and(|value| i64::try_from(value).is_err());
        if let Some((flag, _)) = integers.into_iter().find(too_large) {
            return Err(Error::Config { origin: flag.to_owned(), reason: format!("must be at most {}", i64::MAX) });
        }
        let float = |value: Option<f64>| value.map(toml::Value::Float);
        let text = |value: Option<String>| value.map(toml::Value::String);
        // Naming a file means reading it.
        let described = self.schema.is_some();
        let files = |path: &PathBuf| described || source_of(path) == SourceKind::Files;
        let source = self
            .source
            .clone()
            .or_else(|| self.data.as_ref().map(|path| if files(path) { "files" } else { "tsv" }.to_owned()));
        let shuffle = self.no_shuffle.then_some(toml::Value::Boolean(false));
        let flags = [
            ("--data", "data.path", text(path(&self.data))),
            ("--schema", "data.schema", text(path(&self.schema))),
            ("--source", "data.source", text(source)),
            ("--test-data", "data.test_path", text(path(&self.test_data))),
            ("--test-fraction", "data.test_fraction", float(self.test_fraction)),
            ("--vocab", "data.vocab", text(self.vocab.clone())),
            ("--rows-cap", "data.rows_cap", integer(self.rows_cap)),
            ("--on-bad-row", "data.on_bad_row", text(self.on_bad_row.clone())),
            ("--no-shuffle", "data.shuffle", shuffle),
            ("--prefetch", "data.prefetch", integer(self.prefetch)),
            ("--batch", "train.batch", integer(self.batch)),
            ("--steps", "train.steps", integer(self.steps)),
            ("--epochs", "train.epochs", integer(self.epochs)),
            ("--lr", "train.lr", float(self.lr)),
            ("--optimizer", "train.optimizer", text(self.optimizer.clone())),
            ("--optimizer-rows", "train.optimizer_rows", text(self.optimizer_rows.clone())),
            ("--update", "train.update", text(self.update.clone())),
            ("--precision", "train.precision", text(self.precision.clone())),
            ("--determinism", "train.determinism", text(self.determinism.clone())),
            ("--seed", "train.seed", integer(self.seed)),
            ("--threads", "train.threads", integer(self.threads)),
            ("--tuned", "train.tuned", text(path(&self.tuned))),
            ("--isa", "train.isa", text(self.isa.clone())),
            ("--eval-every", "train.eval_every", integer(self.eval_every)),
            ("--target-auc", "train.target_auc", float(self.target_auc)),
            ("--checkpoint-every", "train.checkpoint_every", integer(self.checkpoint_every)),
        ];
        for (flag, key, value) in flags {
            if let Some(value) = value {
                layers.set(key, value, flag)?;
            }
        }
        layers.finish()
    }
}

/// The source that reads what lies at `path`: text in Criteo's layout, where nothing tells another format.
pub(super) fn source_of(path: &Path) -> SourceKind {
    if path.is_dir() || Format::detect(path).is_some() { SourceKind::Files } else { SourceKind::Tsv }
}
