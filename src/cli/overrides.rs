//! Flags that change a configuration: presets, files, `--set`, and short names for the keys that are changed most.

use std::path::{Path, PathBuf};

use clap::{Arg, Args};

use super::help::{DATA, MACHINE, MODEL, TRAINING};
use super::text::max_line;
use crate::base::config::{Command, Config, DEFAULT_PRESET, Key, Layers, MAX_LINE, OnBadRow, SourceKind};
use crate::base::console::note;
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

/// What a bench of random data starts from where nothing names the sizes of tables.
const SIZED_PRESET: &str = "kaggle";

/// Says of `--preset` what [`BaseArgs::layers_with_sizes`] does.
pub(super) fn sized(preset: Arg) -> Arg {
    preset.help(format!(
        "Start from a built-in model whose tables have sizes (see `octorec config --list`); default: {SIZED_PRESET}, or \
         {DEFAULT_PRESET} where model.rows is set; with --config: the plain defaults"
    ))
}

/// The flags of keys, each declared once: its field, what clap is told of it, and the key that it sets.
macro_rules! keys {
    ($($(#[$about:meta])* $field:ident($($arg:tt)*): $Type:ty $(= $flag:literal, $key:literal)?;)+) => {
        /// Single keys. A flag overrides `--set`, which overrides the file and the preset.
        #[derive(Debug, Clone, Default, Args)]
        pub struct KeyArgs {
            $($(#[$about])* #[arg(long, $($arg)*)] $field: $Type,)+
        }

        impl KeyArgs {
            fn flags(&self) -> Result<Vec<KeyFlag>> {
                Ok(vec![$($(($flag, $key, self.$field.given($flag)?),)?)+])
            }
        }
    };
}

keys! {
    /// Data in Criteo's tab-separated layout, plain or gzip, or in any format that `octorec convert` reads.
    data(value_name = "PATH", display_order = 1): Option<PathBuf> = "--data", "data.path";
    /// What describes a text file with a header line, a Parquet file, or a folder of such (`octorec inspect` proposes
    /// it).
    schema(value_name = "FILE", display_order = 2): Option<PathBuf> = "--schema", "data.schema";
    /// Data source: criteo or taobao (built-in generators), tsv, files, random; --data tells which of the files' it is.
    source(value_name = "NAME", help_heading = DATA): Option<String> = "--source", "data.source";
    /// A second data file that holds the test samples.
    test_data(value_name = "FILE", help_heading = DATA): Option<PathBuf> = "--test-data", "data.test_path";
    /// Share of samples, from the end of the file, kept for testing.
    test_fraction(value_name = "SHARE", help_heading = DATA): Option<f64> = "--test-fraction", "data.test_fraction";
    /// Share of samples, from the end of --data before those for testing, kept for validation: evaluations are made by
    /// them, and the test samples are scored once, at the end.
    validation_fraction(value_name = "SHARE", help_heading = DATA): Option<f64>
        = "--validation-fraction", "data.validation_fraction";
    /// Categories to rows: all, train (unseen values share a row) or hash.
    vocab(value_name = "NAME", help_heading = DATA): Option<String> = "--vocab", "data.vocab";
    /// At most this many rows a table.
    rows_cap(value_name = "ROWS", help_heading = DATA): Option<u64> = "--rows-cap", "data.rows_cap";
    /// What a malformed row does: fail or skip.
    on_bad_row(value_name = "WHAT", help_heading = DATA): Option<String> = "--on-bad-row", "data.on_bad_row";
    /// The longest line of a text file, such as 64MiB.
    max_line(value_name = "SIZE", value_parser = max_line, help_heading = DATA): Option<u64>
        = "--max-line", "data.max_line";
    /// Keep the samples' order.
    no_shuffle(help_heading = DATA): bool = "--no-shuffle", "data.shuffle";
    /// Minibatches that are read ahead of the step.
    prefetch(value_name = "N", help_heading = DATA): Option<u64> = "--prefetch", "data.prefetch";
    /// Change any key of the configuration; may be repeated.
    set(value_name = "KEY=VALUE", help_heading = MODEL): Vec<String>;
    /// Order of dot products: lower (the reference's), or upper (TorchRec's DLRM, whose weights --init then takes).
    triangle(value_name = "NAME", help_heading = MODEL): Option<String> = "--triangle", "model.triangle";
    /// Samples a step.
    batch(value_name = "N", display_order = 5): Option<u64> = "--batch", "train.batch";
    /// Steps in all, over as many epochs as that takes; 0: as many as the epochs take.
    steps(value_name = "N", help_heading = TRAINING): Option<u64> = "--steps", "train.steps";
    /// Passes over the training samples.
    epochs(value_name = "N", display_order = 4): Option<u64> = "--epochs", "train.epochs";
    /// Learning rate, of the layers and, unless train.lr_rows is given too, of the rows; with --resume rows keep the
    /// train.lr_rows that the run has, if it has one.
    lr(value_name = "RATE", display_order = 6): Option<f64> = "--lr", "train.lr";
    /// Optimizer of the network's layers: sgd, momentum, adagrad, adam, lamb or ftrl.
    optimizer(value_name = "NAME", help_heading = TRAINING): Option<String> = "--optimizer", "train.optimizer";
    /// Optimizer of the tables' rows: sgd, momentum, adagrad, rowwise-adagrad, adam or ftrl.
    optimizer_rows(value_name = "NAME", help_heading = TRAINING): Option<String>
        = "--optimizer-rows", "train.optimizer_rows";
    /// How embedding rows are moved: auto, serial, atomic, rtm, race-free or sorted.
    update(value_name = "NAME", help_heading = TRAINING): Option<String> = "--update", "train.update";
    /// What weights are read in: f32, bf16 (updates as exact as f32's) or bf16-lsb8 (8 bits fewer, to compare).
    precision(value_name = "NAME", help_heading = TRAINING): Option<String> = "--precision", "train.precision";
    /// What may differ without changing a bit: run (the number of threads), ranks (that of ranks and the plan, too), or
    /// none (updates may leave the order of sums to chance).
    determinism(value_name = "NAME", help_heading = TRAINING): Option<String> = "--determinism", "train.determinism";
    /// What rows and gradients travel in, from rank to rank: auto (rows and their gradients in bf16 where layers
    /// multiply bf16, all else in f32), f32, or bf16 (half the bytes of all; weights travel whole).
    wire(value_name = "NAME", help_heading = TRAINING): Option<String> = "--wire", "train.wire";
    /// How the gradients of layers are reduced among ranks: auto (the quickest by this machine's figures), direct,
    /// ring, two-ring, multi-ring, halving-doubling, breadth-first, spanning-trees, pipelined-trees or hierarchical
    /// (several machines).
    collective(value_name = "NAME", help_heading = MACHINE): Option<String> = "--collective", "train.collective";
    /// Seed of initial weights and of the shuffle.
    seed(value_name = "N", help_heading = TRAINING): Option<u64> = "--seed", "train.seed";
    /// Compute threads; 0: one for each core.
    threads(value_name = "N", help_heading = MACHINE): Option<u64> = "--threads", "train.threads";
    /// Use the blocking that `octorec tune gemm` wrote to this file.
    tuned(value_name = "FILE", help_heading = MACHINE): Option<PathBuf> = "--tuned", "train.tuned";
    /// Instruction set: auto, scalar, avx2, avx512, avx512-bf16, amx-bf16 or amx-bf16x3. All but those with AMX give
    /// the same bits; the last multiplies f32 on tiles, too, as three bf16 each, faster and no less accurately.
    isa(value_name = "NAME", help_heading = MACHINE): Option<String> = "--isa", "train.isa";
    /// Steps between evaluations; 0: at the end only.
    eval_every(value_name = "N", help_heading = TRAINING): Option<u64> = "--eval-every", "train.eval_every";
    /// Stop once an evaluation's AUC reaches this.
    target_auc(value_name = "AUC", help_heading = TRAINING): Option<f64> = "--target-auc", "train.target_auc";
    /// Stop when so many evaluations in a row have not had a better AUC (train.best_by: or log loss) than the best one
    /// before; with --out, the best model is kept.
    patience(value_name = "N", help_heading = TRAINING): Option<u64> = "--patience", "train.patience";
    /// Keep the model of the evaluation with the best AUC (or log loss: train.best_by), too: in the folder `best` of
    /// --out.
    keep_best(help_heading = TRAINING): bool = "--keep-best", "train.keep_best";
    /// Steps between checkpoints; 0: every train.checkpoint_minutes (30). One is also written at the end and when
    /// interrupted.
    checkpoint_every(value_name = "N", help_heading = TRAINING): Option<u64>
        = "--checkpoint-every", "train.checkpoint_every";
}

/// A flag's value as its key has it, if the flag was given.
trait Given {
    /// The value; nothing where the flag was not given.
    ///
    /// # Errors
    /// When a number is too large for any, or a path is no UTF-8.
    fn given(&self, flag: &str) -> Result<Option<toml::Value>>;
}

impl Given for bool {
    fn given(&self, flag: &str) -> Result<Option<toml::Value>> {
        Ok(self.then(|| toml::Value::Boolean(!flag.starts_with("--no-"))))
    }
}

impl Given for Option<PathBuf> {
    fn given(&self, flag: &str) -> Result<Option<toml::Value>> {
        self.as_deref().map(|path| named(path, flag).map(toml::Value::String)).transpose()
    }
}

impl Given for Option<String> {
    fn given(&self, _: &str) -> Result<Option<toml::Value>> {
        Ok(self.clone().map(toml::Value::String))
    }
}

impl Given for Option<f64> {
    fn given(&self, _: &str) -> Result<Option<toml::Value>> {
        Ok(self.map(toml::Value::Float))
    }
}

impl Given for Option<u64> {
    fn given(&self, flag: &str) -> Result<Option<toml::Value>> {
        let Some(number) = *self else { return Ok(None) };
        let too_large = |_| Error::config(flag, format!("{number} is more than any key takes: 2^63 - 1 at most"));
        i64::try_from(number).map(toml::Value::Integer).map(Some).map_err(too_large)
    }
}

impl BaseArgs {
    /// Defaults, then the preset, then the file.
    pub fn layers(&self) -> Result<Layers> {
        self.layers_from(DEFAULT_PRESET)
    }

    /// The same for a bench, whose random data have the sizes of their tables from the configuration alone: where
    /// nothing names them, it starts from a preset that does.
    pub fn layers_with_sizes(&self, keys: &KeyArgs) -> Result<Layers> {
        if keys.origin("model.rows").is_some() {
            return self.layers();
        }
        if self.preset.is_none() && self.config.is_none() {
            note!("note: the model is --preset {SIZED_PRESET}, since no other is named");
        }
        self.layers_from(SIZED_PRESET)
    }

    fn layers_from(&self, default: &str) -> Result<Layers> {
        let mut layers = Layers::default();
        match (&self.preset, &self.config) {
            (Some(name), _) => layers.preset(name)?,
            (None, None) => layers.preset(default)?,
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
        if Key::named("data.source").is_some_and(|key| key.honoured(command)) {
            infer_source(&mut layers)?;
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

    /// Whether the user asks for this key: on the command line, or in a file that is among these layers.
    pub fn ask_for(&self, key: &str, layers: &Layers) -> bool {
        layers.in_file(key) || self.origin(key).is_some()
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
    pub fn values(&self) -> Result<Vec<KeyFlag>> {
        // Naming a file means reading it.
        let files = |path: &PathBuf| self.schema.is_some() || source_of(path) == SourceKind::Files;
        let read = |path| if files(path) { "files" } else { "tsv" }.to_owned();
        let source = self.source.clone().or_else(|| self.data.as_ref().map(read));
        Self { source, ..self.clone() }.flags()
    }
}

/// Sees to it that data which a configuration file names are read, by the source that `--data` would infer: those of a
/// generator must not take their place without a word.
///
/// # Errors
/// [`Error::Config`] with the file and the line, where another source is said there or nothing names the data.
fn infer_source(layers: &mut Layers) -> Result<()> {
    const SOURCE: &str = "data.source";
    const OF_FILES: [&str; 3] = ["data.path", "data.schema", "data.test_path"];
    let source = layers.text_of(SOURCE).unwrap_or_default().to_owned();
    let is_stored = [SourceKind::Tsv, SourceKind::Files].iter().any(|kind| kind.name() == source);
    let place_of_source = layers.place_in_file(SOURCE).map(str::to_owned);
    let in_file =
        |key: &str| layers.text_of(key).and_then(|text| Some((text.to_owned(), layers.place_in_file(key)?.to_owned())));
    if is_stored {
        return Ok(());
    }
    // A generator that the command line asks for is what the user wants, whatever a file has for other commands: what
    // that names is no part of this configuration, which a file of its own would contradict.
    if layers.is_given(SOURCE) && place_of_source.is_none() {
        let named = OF_FILES.into_iter().filter_map(|key| Some((key, in_file(key)?.1)));
        let named: Vec<_> = named.collect();
        return named.into_iter().try_for_each(|(key, place)| layers.fix(key, "", &place));
    }
    let Some((path, place)) = in_file("data.path") else {
        let of_none = OF_FILES.into_iter().find_map(|key| Some((key, in_file(key)?.1)));
        return match of_none.filter(|_| layers.text_of("data.path").is_none()) {
            None => Ok(()),
            Some((key, place)) => {
                let reason = format!(
                    "{key} belongs to data that nothing names: name them (data.path, or --data), or leave the key away"
                );
                Err(Error::config(place, reason))
            }
        };
    };
    if let Some(other) = place_of_source {
        let reason = format!(
            "data.path names data, but data.source = {source:?} ({other}) generates others: leave data.source away, so that \
             these are read, or data.path"
        );
        return Err(Error::config(place, reason));
    }
    let path = Path::new(&path);
    refuse_standard_input(path, &format!("{place}: data.path"))?;
    let is_described = layers.text_of("data.schema").is_some();
    let kind = if is_described { SourceKind::Files } else { source_of(path) };
    layers.fix(SOURCE, kind.name(), &place)
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
