//! Flags that change a configuration: presets, files, `--set`, and short names for the keys that are changed most.

use std::path::{Path, PathBuf};

use clap::Args;

use super::help::{DATA, MACHINE, MODEL, TRAINING};
use super::text::max_line;
use crate::base::config::{Command, Config, DEFAULT_PRESET, Layers, MAX_LINE, OnBadRow, SourceKind};
use crate::base::{Error, Result};
use crate::data::formats::{Described, Format};

/// A flag, its key, and the value that it gives it, if it was given.
pub type KeyFlag = (&'static str, &'static str, Option<toml::Value>);

/// Where the configuration comes from, before single keys are changed.
#[derive(Debug, Clone, Args)]
pub struct BaseArgs {
    /// Start from a built-in model (see `octorec config --list`).
    #[arg(long, value_name = "NAME", display_order = 3)]
    pub preset: Option<String>,

    /// Read keys from a TOML file; they override the preset's.
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    pub config: Option<PathBuf>,
}

/// Single keys. A flag overrides `--set`, which overrides the file and the preset.
#[derive(Debug, Clone, Default, Args)]
pub struct KeyArgs {
    /// Data in Criteo's tab-separated layout, plain or gzip, or in any format that `octorec convert` reads.
    #[arg(long, value_name = "PATH", display_order = 1)]
    data: Option<PathBuf>,

    /// What describes a text file with a header line, a folder of them, or a Parquet file (`octorec inspect` proposes
    /// it).
    #[arg(long, value_name = "FILE", display_order = 2)]
    schema: Option<PathBuf>,

    /// Data source: criteo or taobao (built-in generators), tsv, files, random; --data tells which of the files' it is.
    #[arg(long, value_name = "NAME", help_heading = DATA)]
    source: Option<String>,

    /// A second data file that holds the test samples.
    #[arg(long, value_name = "FILE", help_heading = DATA)]
    test_data: Option<PathBuf>,

    /// Share of samples, from the end of the file, kept for testing.
    #[arg(long, value_name = "SHARE", help_heading = DATA)]
    test_fraction: Option<f64>,

    /// Share of samples, from the end of --data before those for testing, kept for validation: evaluations are made by
    /// them, and the test samples are scored once, at the end.
    #[arg(long, value_name = "SHARE", help_heading = DATA)]
    validation_fraction: Option<f64>,

    /// Categories to rows: all, train (unseen values share a row) or hash.
    #[arg(long, value_name = "NAME", help_heading = DATA)]
    vocab: Option<String>,

    /// At most this many rows a table.
    #[arg(long, value_name = "ROWS", help_heading = DATA)]
    rows_cap: Option<u64>,

    /// What a malformed row does: fail or skip.
    #[arg(long, value_name = "WHAT", help_heading = DATA)]
    on_bad_row: Option<String>,

    /// The longest line of a text file, such as 64MiB.
    #[arg(long, value_name = "SIZE", value_parser = max_line, help_heading = DATA)]
    max_line: Option<u64>,

    /// Keep the samples' order.
    #[arg(long, help_heading = DATA)]
    no_shuffle: bool,

    /// Minibatches that are read ahead of the step.
    #[arg(long, value_name = "N", help_heading = DATA)]
    prefetch: Option<u64>,

    /// Change any key of the configuration; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", help_heading = MODEL)]
    set: Vec<String>,

    /// Order of dot products: lower (the reference's), or upper (TorchRec's DLRM, whose weights --init then takes).
    #[arg(long, value_name = "NAME", help_heading = MODEL)]
    triangle: Option<String>,

    /// Samples a step.
    #[arg(long, value_name = "N", display_order = 5)]
    batch: Option<u64>,

    /// Steps in all, over as many epochs as that takes; 0: as many as the epochs take.
    #[arg(long, value_name = "N", help_heading = TRAINING)]
    steps: Option<u64>,

    /// Passes over the training samples.
    #[arg(long, value_name = "N", display_order = 4)]
    epochs: Option<u64>,

    /// Learning rate, of the layers and, unless train.lr_rows is given too, of the rows.
    #[arg(long, value_name = "RATE", display_order = 6)]
    lr: Option<f64>,

    /// Optimizer of the network's layers: sgd, momentum, adagrad, adam, lamb or ftrl.
    #[arg(long, value_name = "NAME", help_heading = TRAINING)]
    optimizer: Option<String>,

    /// Optimizer of the tables' rows: sgd, momentum, adagrad, rowwise-adagrad, adam or ftrl.
    #[arg(long, value_name = "NAME", help_heading = TRAINING)]
    optimizer_rows: Option<String>,

    /// How embedding rows are moved: auto, serial, atomic, rtm, race-free or sorted.
    #[arg(long, value_name = "NAME", help_heading = TRAINING)]
    update: Option<String>,

    /// What weights are read in: f32, bf16 (updates as exact as f32's) or bf16-lsb8 (8 bits fewer, to compare).
    #[arg(long, value_name = "NAME", help_heading = TRAINING)]
    precision: Option<String>,

    /// What may differ without changing a bit: run (the number of threads), ranks (that of ranks and the plan, too), or
    /// none (updates may leave the order of sums to chance).
    #[arg(long, value_name = "NAME", help_heading = TRAINING)]
    determinism: Option<String>,

    /// What rows and gradients travel in, from rank to rank: auto (rows and their gradients in bf16 where layers
    /// multiply bf16, all else in f32), f32, or bf16 (half the bytes of all; weights travel whole).
    #[arg(long, value_name = "NAME", help_heading = TRAINING)]
    wire: Option<String>,

    /// How the gradients of layers are reduced among ranks: auto (the quickest by this machine's figures), direct,
    /// ring, two-ring, multi-ring, halving-doubling, breadth-first, spanning-trees, pipelined-trees or hierarchical
    /// (several machines).
    #[arg(long, value_name = "NAME", help_heading = MACHINE)]
    collective: Option<String>,

    /// Seed of initial weights and of the shuffle.
    #[arg(long, value_name = "N", help_heading = TRAINING)]
    seed: Option<u64>,

    /// Compute threads; 0: one for each core.
    #[arg(long, value_name = "N", help_heading = MACHINE)]
    threads: Option<u64>,

    /// Use the blocking that `octorec tune gemm` wrote to this file.
    #[arg(long, value_name = "FILE", help_heading = MACHINE)]
    tuned: Option<PathBuf>,

    /// Instruction set: auto, scalar, avx2, avx512, avx512-bf16, amx-bf16 or amx-bf16x3. All but those with AMX give
    /// the same bits; the last multiplies f32 on tiles, too, as three bf16 each, faster and no less accurately.
    #[arg(long, value_name = "NAME", help_heading = MACHINE)]
    isa: Option<String>,

    /// Steps between evaluations; 0: at the end only.
    #[arg(long, value_name = "N", help_heading = TRAINING)]
    eval_every: Option<u64>,

    /// Stop once an evaluation's AUC reaches this.
    #[arg(long, value_name = "AUC", help_heading = TRAINING)]
    target_auc: Option<f64>,

    /// Stop when so many evaluations in a row have not had a better AUC (train.best_by: or log loss) than the best one
    /// before; with --out, the best model is kept.
    #[arg(long, value_name = "N", help_heading = TRAINING)]
    patience: Option<u64>,

    /// Keep the model of the evaluation with the best AUC (or log loss: train.best_by), too: in the folder `best` of
    /// --out.
    #[arg(long, help_heading = TRAINING)]
    keep_best: bool,

    /// Steps between checkpoints; 0: every train.checkpoint_minutes (30). One is also written at the end and when
    /// interrupted.
    #[arg(long, value_name = "N", help_heading = TRAINING)]
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

    /// The files and folders that a command reads with this configuration, that of the configuration among them: what
    /// it must not write over.
    pub fn input_files<'a>(&'a self, config: &'a Config, command: Command) -> Vec<&'a Path> {
        config.input_files(command).into_iter().chain(self.config.as_deref()).collect()
    }
}

impl KeyArgs {
    /// Puts `--set` and then the flags onto `layers`, for a command.
    ///
    /// # Errors
    /// As [`Layers::finish`].
    pub fn finish(&self, layers: Layers, command: Command) -> Result<Config> {
        self.finish_with(layers, command, [])
    }

    /// The same with the flags of one command, each with its key and value.
    ///
    /// # Errors
    /// As [`Layers::finish`].
    pub fn finish_with<const N: usize>(
        &self,
        mut layers: Layers,
        command: Command,
        more: [KeyFlag; N],
    ) -> Result<Config> {
        let before = layers.text_of("data.path").zip(layers.text_of("data.test_path"));
        let before = before.map(|(data, tests)| (data.to_owned(), tests.to_owned()));
        for assignment in &self.set {
            layers.assignment(assignment)?;
        }
        for (flag, key, value) in self.values()? {
            if let Some(value) = value {
                // A description that a file or a run has is of text, too, whatever the text looks like.
                let described =
                    key == "data.source" && self.source.is_none() && layers.text_of("data.schema").is_some();
                let value = if described { toml::Value::String("files".to_owned()) } else { value };
                layers.set(key, value, flag)?;
            }
        }
        for (flag, key, value) in more {
            value.map_or(Ok(()), |value| layers.set(key, value, flag))?;
        }
        let config = layers.finish(command)?;
        let is_tested = matches!(command, Command::Train | Command::Config);
        if let Some((data, tests)) = before.filter(|(data, _)| is_tested && *data != config.data.path)
            && let (Some(origin), None) = (self.origin("data.path"), self.origin("data.test_path"))
        {
            let reason = format!(
                "the test samples would still be those of {tests} (data.test_path), which come with other data, {data}: name \
                 those of these data with --test-data FILE, the same file if it is meant, or take a part of these data for tests \
                 with --set data.test_path="
            );
            return Err(Error::config(origin, reason));
        }
        Ok(config)
    }

    /// The first flag that was given of those that are not among `known`.
    ///
    /// # Errors
    /// When a number is too large for any.
    pub fn given(&self, known: &[&str]) -> Result<Option<&'static str>> {
        let given = self.values()?.into_iter().filter_map(|(flag, _, value)| value.map(|_| flag));
        Ok(given.chain((!self.set.is_empty()).then_some("--set")).find(|flag| !known.contains(flag)))
    }

    /// Whether the command line gives a key that begins with one of these.
    ///
    /// # Errors
    /// When a number is too large for any.
    pub fn begins(&self, with: &[&str]) -> Result<bool> {
        let flags = self.values()?.into_iter().filter_map(|(_, key, value)| value.map(|_| key));
        let mut keys = flags.chain(self.set.iter().map(|text| text.trim()));
        Ok(keys.any(|key| with.iter().any(|begin| key.starts_with(begin))))
    }

    /// What on the command line gives this key: a flag, or --set.
    pub fn origin(&self, key: &str) -> Option<String> {
        let flag = self.values().ok()?.into_iter().find(|(_, of, value)| *of == key && value.is_some());
        let set = || {
            let named = |text: &&String| text.split_once('=').is_some_and(|(name, _)| name.trim() == key);
            self.set.iter().find(named).map(|text| format!("--set {text}"))
        };
        flag.map(|(flag, _, _)| flag.to_owned()).or_else(set)
    }

    /// What describes text.
    pub fn schema(&self) -> Option<&Path> {
        self.schema.as_deref()
    }

    /// How text is described, if it is.
    ///
    /// # Errors
    /// As [`KeyArgs::on_bad_row`].
    pub fn described(&self) -> Result<Option<Described<'_>>> {
        let (max_line, on_bad_row) = (self.max_line(), self.on_bad_row()?);
        Ok(self.schema().map(|schema| Described { schema, max_line, on_bad_row }))
    }

    /// What a malformed row does.
    ///
    /// # Errors
    /// [`Error::Config`] that lists what there is, where it is none of that.
    pub fn on_bad_row(&self) -> Result<OnBadRow> {
        let Some(text) = &self.on_bad_row else { return Ok(OnBadRow::Fail) };
        let told = |error: toml::de::Error| Error::config("--on-bad-row", error.message().trim());
        toml::Value::String(text.clone()).try_into().map_err(told)
    }

    /// The longest line of a text file.
    pub fn max_line(&self) -> usize {
        self.max_line.map_or(MAX_LINE, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Every flag of a key.
    ///
    /// # Errors
    /// When a number is too large for any, or a path is no UTF-8.
    pub fn values(&self) -> Result<[KeyFlag; 33]> {
        let path = |flag: &'static str, key: &'static str, path: &Option<PathBuf>| {
            let path = path.as_deref().map(|path| named(path, flag)).transpose()?;
            Ok::<KeyFlag, Error>((flag, key, path.map(toml::Value::String)))
        };
        let integer = |flag: &'static str, key: &'static str, value: Option<u64>| {
            let too_large = |_| Error::config(flag, format!("must be at most {}", i64::MAX));
            let value = value.map(i64::try_from).transpose().map_err(too_large)?;
            Ok::<KeyFlag, Error>((flag, key, value.map(toml::Value::Integer)))
        };
        let float =
            |flag: &'static str, key: &'static str, value: Option<f64>| (flag, key, value.map(toml::Value::Float));
        let text = |flag: &'static str, key: &'static str, value: &Option<String>| {
            (flag, key, value.clone().map(toml::Value::String))
        };
        // Naming a file means reading it.
        let described = self.schema.is_some();
        let files = |path: &PathBuf| described || source_of(path) == SourceKind::Files;
        let source = self
            .source
            .clone()
            .or_else(|| self.data.as_ref().map(|path| if files(path) { "files" } else { "tsv" }.to_owned()));
        let shuffle = self.no_shuffle.then_some(toml::Value::Boolean(false));
        let keep_best = self.keep_best.then_some(toml::Value::Boolean(true));
        Ok([
            path("--data", "data.path", &self.data)?,
            path("--schema", "data.schema", &self.schema)?,
            text("--source", "data.source", &source),
            path("--test-data", "data.test_path", &self.test_data)?,
            float("--test-fraction", "data.test_fraction", self.test_fraction),
            float("--validation-fraction", "data.validation_fraction", self.validation_fraction),
            text("--vocab", "data.vocab", &self.vocab),
            integer("--rows-cap", "data.rows_cap", self.rows_cap)?,
            text("--on-bad-row", "data.on_bad_row", &self.on_bad_row),
            integer("--max-line", "data.max_line", self.max_line)?,
            ("--no-shuffle", "data.shuffle", shuffle),
            integer("--prefetch", "data.prefetch", self.prefetch)?,
            text("--triangle", "model.triangle", &self.triangle),
            integer("--batch", "train.batch", self.batch)?,
            integer("--steps", "train.steps", self.steps)?,
            integer("--epochs", "train.epochs", self.epochs)?,
            float("--lr", "train.lr", self.lr),
            text("--optimizer", "train.optimizer", &self.optimizer),
            text("--optimizer-rows", "train.optimizer_rows", &self.optimizer_rows),
            text("--update", "train.update", &self.update),
            text("--precision", "train.precision", &self.precision),
            text("--determinism", "train.determinism", &self.determinism),
            text("--wire", "train.wire", &self.wire),
            text("--collective", "train.collective", &self.collective),
            integer("--seed", "train.seed", self.seed)?,
            integer("--threads", "train.threads", self.threads)?,
            path("--tuned", "train.tuned", &self.tuned)?,
            text("--isa", "train.isa", &self.isa),
            integer("--eval-every", "train.eval_every", self.eval_every)?,
            float("--target-auc", "train.target_auc", self.target_auc),
            integer("--patience", "train.patience", self.patience)?,
            ("--keep-best", "train.keep_best", keep_best),
            integer("--checkpoint-every", "train.checkpoint_every", self.checkpoint_every)?,
        ])
    }
}

/// A path as a configuration has it.
///
/// # Errors
/// When it is no UTF-8, as all text of a configuration is, or means standard input.
pub(super) fn named(path: &Path, origin: &str) -> Result<String> {
    refuse_standard_input(path, origin)?;
    path.to_str().map(str::to_owned).ok_or_else(|| {
        let reason = format!(
            "{}: this name is no UTF-8, which a configuration is written in: give the file another name, or name a link to it",
            path.display()
        );
        Error::config(origin, reason)
    })
}

/// Refuses standard input where a file is read.
///
/// # Errors
/// [`Error::Config`] that says what to do.
pub(super) fn refuse_standard_input(path: &Path, origin: &str) -> Result<()> {
    if path.as_os_str() != "-" {
        return Ok(());
    }
    let reason = "standard input can be read once, and files are read several times: put it into a file first \
                  (... > FILE), and name that; only `octorec predict` takes rows as they arrive (a file of this name is ./-)";
    Err(Error::config(format!("{origin} -"), reason))
}

/// The source that reads what lies at `path`: text in Criteo's layout, where nothing tells another format.
pub(super) fn source_of(path: &Path) -> SourceKind {
    if path.is_dir() || Format::detect(path).is_some() { SourceKind::Files } else { SourceKind::Tsv }
}
