//! Which command uses which key, and when: one table, by which a key that would have no effect is refused, and by which
//! `--help` shows the flags that a command honours.

use std::path::Path;

use super::{Config, Decay, Hot, Interaction, Loss, LrScaling, OptimizerName, SourceKind};
use crate::base::named;

named! {
    /// A command that takes a configuration. `octorec config` prints one and so takes every key.
    pub enum Command {
        /// `octorec config`.
        Config = "config",
        /// `octorec train`.
        Train = "train",
        /// `octorec plan`.
        Plan = "plan",
        /// `octorec simulate`.
        Simulate = "simulate",
        /// `octorec tune gemm`.
        Tune = "tune gemm",
        /// `octorec data generate`.
        Generate = "data generate",
        /// `octorec bench step`.
        Step = "bench step",
        /// `octorec bench overlap`.
        Overlap = "bench overlap",
        /// `octorec inspect --hot`.
        Inspect = "inspect",
    }
}

/// A key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Its name, with its section.
    pub name: &'static str,
    /// Commands that use it, beside `train` and `config`.
    others: &'static [Command],
    /// When it has an effect.
    when: When,
}

/// When a key has an effect.
#[derive(Debug)]
enum When {
    Always,
    /// With these sources.
    Source(&'static [SourceKind]),
    /// When other keys say so; in words, and as a question.
    Other(&'static str, fn(&Config) -> bool),
}

use Command::{Generate, Inspect, Overlap, Plan, Simulate, Step, Tune};
use SourceKind::{Criteo, Files, Random, Taobao, Tsv};
use When::{Always, Other, Source};

/// Those that build the whole model and run its step.
const STEPS: &[Command] = &[Step, Overlap];
/// Those that need the model's layers.
const LAYERS: &[Command] = &[Plan, Simulate, Tune, Step, Overlap];
/// Those that need to know what each table gives to the layers.
const WIDTHS: &[Command] = &[Plan, Simulate, Step, Overlap];
/// Those that need to know which rows there are.
const QUOTIENTS: &[Command] = &[Plan, Simulate, Step, Overlap, Inspect];
/// Those that need to know what a table is.
const TABLES: &[Command] = &[Plan, Simulate, Tune, Generate, Step, Overlap, Inspect];
/// Those that read data; where these are, inspect is told by an argument of its own.
const SHAPES: &[Command] = &[Plan, Simulate, Tune];
const READERS: &[Command] = &[Plan, Simulate, Tune, Inspect];
const STORED: When = Source(&[Tsv, Files]);
const GENERATED: When = Source(&[Criteo, Taobao, Random]);
const RANDOM: When = Source(&[Random]);
const BUILT_IN: When = Other("a built-in network (no model.layers)", built_in);
const DOT: When =
    Other("model.interaction = \"dot\" and no model.layers", |config| interacts(config, Interaction::Dot));
const CROSS: When =
    Other("model.interaction = \"dcn\" and no model.layers", |config| interacts(config, Interaction::Dcn));
const MIXED: When = Other("model.md_temperature above 0", |config| config.model.md_temperature > 0.0);
const COMPOSED: When = Other("model.qr_collisions above 0", |config| config.model.qr_collisions > 0);
const SERIES: When = Other("model.ts_length above 0", |config| config.model.ts_length > 0);
const SERIES_BUILT_IN: When =
    Other("model.ts_length above 0 and no model.layers", |config| config.model.ts_length > 0 && built_in(config));
const WIDE: When = Other("model.wide = true, or a layer of type wide", |config| config.model.wide);
/// With text: formats that store row numbers have numbered their values, and checked their rows, before.
const TEXT: When = Other("text (data.source = \"tsv\", or a data.schema: --schema FILE)", |config| {
    config.data.source == Tsv || (config.data.source == Files && !config.data.schema.is_empty())
});

const fn built_in(config: &Config) -> bool {
    config.model.layers.is_empty()
}

fn interacts(config: &Config, how: Interaction) -> bool {
    built_in(config) && config.model.interaction == how
}

const fn key(name: &'static str, others: &'static [Command], when: When) -> Key {
    Key { name, others, when }
}

const ADAM: &str = "an optimizer that is `adam` or `lamb`";

/// Whether one of them moves layers, rows or a wide part.
fn averages(config: &Config) -> bool {
    optimizers(config, &[OptimizerName::Adam, OptimizerName::Lamb])
}

/// Whether one of these moves layers, rows or a wide part.
fn optimizers(config: &Config, names: &[OptimizerName]) -> bool {
    let Config { model, train, .. } = config;
    let wide = model.wide.then_some(train.optimizer_wide);
    [train.optimizer, train.optimizer_rows].into_iter().chain(wide).any(|name| names.contains(&name))
}

const FTRL: When = Other("an optimizer that is `ftrl`", |config| optimizers(config, &[OptimizerName::Ftrl]));

const HOT: When = Other("train.hot = \"exact\" or \"fae\"", |config| config.train.hot != Hot::Off);

const DECAYS: &str = "train.decay_steps above 0";

/// How the rate of rows decays, if it does.
fn rows_decay(config: &Config) -> Option<Decay> {
    let train = &config.train;
    (train.decay_steps_rows.or(train.decay_steps) > 0).then(|| train.decay_rows.or(train.decay))
}

/// Whether the rate of layers decays, or that of rows, if it follows.
fn follow_decay(config: &Config, rows_follow: bool) -> bool {
    config.train.decay_steps > 0 || rows_follow && rows_decay(config).is_some()
}

/// Whether the rate of layers or rows decays in one of these ways.
fn decays(config: &Config, ways: &[Decay]) -> bool {
    let layers = (config.train.decay_steps > 0).then_some(config.train.decay);
    [layers, rows_decay(config)].into_iter().flatten().any(|way| ways.contains(&way))
}

/// Every key.
pub const KEYS: &[Key] = &[
    key("model.bottom", TABLES, Always),
    key("model.top", LAYERS, BUILT_IN),
    key("model.dim", &[Plan, Simulate, Tune, Step, Overlap, Inspect], Always),
    key("model.md_temperature", WIDTHS, Always),
    key("model.md_threshold", WIDTHS, MIXED),
    key("model.md_round_dims", WIDTHS, MIXED),
    key("model.qr_collisions", QUOTIENTS, Always),
    key("model.qr_operation", WIDTHS, COMPOSED),
    key("model.qr_threshold", QUOTIENTS, COMPOSED),
    key("model.rows", TABLES, GENERATED),
    key("model.columns", &[Plan, Simulate, Tune, Step, Overlap, Inspect], RANDOM),
    key("model.pooling", STEPS, Always),
    key("model.weighted_pooling", QUOTIENTS, Always),
    key("model.interaction", LAYERS, BUILT_IN),
    key("model.interaction_itself", LAYERS, DOT),
    key("model.triangle", &[], DOT),
    key("model.cross_layers", LAYERS, CROSS),
    key("model.cross_rank", LAYERS, CROSS),
    key("model.wide", LAYERS, BUILT_IN),
    key("model.wide_crosses", LAYERS, WIDE),
    key(
        "model.wide_buckets",
        LAYERS,
        Other("model.wide_crosses", |config| config.model.wide && !config.model.wide_crosses.is_empty()),
    ),
    key("model.ts_length", LAYERS, Always),
    key("model.sequences", WIDTHS, SERIES),
    key("model.tsl_mlp", LAYERS, SERIES_BUILT_IN),
    key("model.arch_mlp", LAYERS, SERIES_BUILT_IN),
    key("model.loss", STEPS, Always),
    key("model.loss_weights", STEPS, Other("model.loss = \"wbce\"", |config| config.model.loss == Loss::Wbce)),
    key("model.loss_threshold", STEPS, Always),
    key("model.layers", LAYERS, Always),
    key("data.source", READERS, Always),
    key("data.path", SHAPES, STORED),
    key("data.schema", READERS, Source(&[Files])),
    key("data.test_path", READERS, STORED),
    key("data.test_fraction", READERS, STORED),
    key("data.validation_fraction", READERS, STORED),
    key("data.vocab", READERS, TEXT),
    key("data.rows_cap", &[Plan, Simulate, Generate, Step, Overlap, Inspect], Always),
    key("data.on_bad_row", READERS, TEXT),
    key("data.max_line", READERS, TEXT),
    key("data.shuffle", &[], Source(&[Criteo, Taobao, Tsv, Files])),
    key("data.shuffle_window", &[], Other("data.shuffle = true", |config| config.data.shuffle)),
    key("data.prefetch", &[], Always),
    key("data.train_samples", &[Generate, Inspect], Source(&[Criteo, Taobao])),
    key("data.test_samples", &[Generate], GENERATED),
    key("data.seed", &[Generate, Step, Overlap, Inspect], GENERATED),
    key("data.lookups", &[Plan, Simulate, Generate, Step, Overlap, Inspect], GENERATED),
    key("data.lookups_fixed", &[Plan, Simulate, Step, Overlap], RANDOM),
    key("data.days", &[Generate, Inspect], Other("data.drift above 0", |config| config.data.drift > 0.0)),
    key("data.drift", &[Generate, Inspect], Source(&[Criteo])),
    key("data.zipf", &[Plan, Simulate, Step, Overlap], RANDOM),
    key("train.batch", LAYERS, Always),
    key("train.accumulate", LAYERS, Always),
    key("train.part", LAYERS, Always),
    key("train.steps", &[], Always),
    key("train.epochs", &[], Other("train.steps = 0", |config| config.train.steps == 0)),
    key("train.lr", STEPS, Always),
    key("train.lr_rows", STEPS, Always),
    key("train.lr_wide", STEPS, WIDE),
    key("train.lr_scaling", STEPS, Always),
    key(
        "train.lr_batch",
        STEPS,
        Other("train.lr_scaling = \"linear\" or \"sqrt\"", |config| config.train.lr_scaling != LrScaling::None),
    ),
    key("train.warmup_steps", &[], Always),
    key("train.decay", &[], Other(DECAYS, |config| follow_decay(config, config.train.decay_rows.given().is_none()))),
    key(
        "train.decay_start",
        &[],
        Other(DECAYS, |config| follow_decay(config, config.train.decay_start_rows.given().is_none())),
    ),
    key("train.decay_steps", &[], Always),
    key(
        "train.decay_power",
        &[],
        Other("train.decay_steps above 0 and train.decay = \"polynomial\"", |config| {
            decays(config, &[Decay::Polynomial])
        }),
    ),
    key(
        "train.decay_factor",
        &[],
        Other("train.decay_steps above 0 and train.decay = \"steps\" or \"exponential\"", |config| {
            decays(config, &[Decay::Steps, Decay::Exponential])
        }),
    ),
    key("train.warmup_steps_rows", &[], Always),
    key("train.decay_rows", &[], Other(DECAYS, |config| rows_decay(config).is_some())),
    key("train.decay_start_rows", &[], Other(DECAYS, |config| rows_decay(config).is_some())),
    key("train.decay_steps_rows", &[], Always),
    key("train.optimizer", &[Plan, Simulate, Step, Overlap], Always),
    key("train.optimizer_rows", &[Plan, Simulate, Step, Overlap, Inspect], Always),
    key("train.optimizer_wide", &[Plan, Simulate, Step, Overlap], WIDE),
    key(
        "train.momentum",
        STEPS,
        Other("an optimizer that is `momentum`", |config| optimizers(config, &[OptimizerName::Momentum])),
    ),
    key(
        "train.eps",
        STEPS,
        Other("an optimizer that is `adagrad`, `rowwise-adagrad`, `adam` or `lamb`", |config| {
            optimizers(config, &[OptimizerName::Adagrad, OptimizerName::RowwiseAdagrad]) || averages(config)
        }),
    ),
    key("train.beta1", STEPS, Other(ADAM, averages)),
    key("train.beta2", STEPS, Other(ADAM, averages)),
    key("train.bias_correction", STEPS, Other(ADAM, averages)),
    key("train.weight_decay", STEPS, Always),
    key("train.clip_norm", &[Simulate, Step, Overlap], Always),
    key("train.ftrl_beta", STEPS, FTRL),
    key("train.l1", STEPS, FTRL),
    key("train.l2", STEPS, FTRL),
    key(
        "train.initial_accumulator",
        STEPS,
        Other("an optimizer that is `adagrad`, `rowwise-adagrad` or `ftrl`", |config| {
            optimizers(config, &[OptimizerName::Adagrad, OptimizerName::RowwiseAdagrad, OptimizerName::Ftrl])
        }),
    ),
    key("train.update", &[Plan, Step, Overlap], Always),
    key(
        "train.update_fused",
        &[Plan, Step, Overlap],
        Other("train.optimizer_rows = \"sgd\"", |config| config.train.optimizer_rows == OptimizerName::Sgd),
    ),
    key("train.precision", &[Plan, Simulate, Step, Overlap, Inspect], Always),
    key("train.determinism", &[Plan, Step, Overlap], Always),
    key("train.wire", &[Plan, Simulate, Step, Overlap], Always),
    key("train.hot", &[Plan, Simulate, Step, Overlap], Always),
    key("train.hot_budget", &[Plan, Simulate, Step, Overlap], HOT),
    key("train.hot_set", STEPS, HOT),
    key("train.hot_revise", &[Plan], Other("train.hot = \"exact\"", |config| config.train.hot == Hot::Exact)),
    key("train.hot_test_samples", &[], Other("train.hot = \"fae\"", |config| config.train.hot == Hot::Fae)),
    key("train.collective", &[Plan, Simulate, Step, Overlap], Always),
    key("train.seed", &[Inspect], Always),
    key("train.threads", &[Plan, Simulate, Tune, Step, Inspect], Always),
    key("train.tuned", &[Step], Always),
    key("train.isa", &[Tune, Step, Overlap], Always),
    key("train.eval_every", &[], Always),
    key("train.evals_per_epoch", &[], Source(&[Criteo, Taobao, Tsv, Files])),
    key("train.eval_split", &[], STORED),
    key("train.eval_batch", &[Plan], Always),
    key("train.target_auc", &[], Always),
    key("train.patience", &[], Always),
    key("train.keep_best", &[], Always),
    key(
        "train.best_by",
        &[],
        Other("train.patience above 0 or train.keep_best = true", |config| {
            config.train.patience > 0 || config.train.keeps_best()
        }),
    ),
    key("train.checkpoint_every", &[], Always),
    key(
        "train.checkpoint_minutes",
        &[],
        Other("train.checkpoint_every = 0", |config| config.train.checkpoint_every == 0),
    ),
];

impl Config {
    /// The files and folders that it names of those that a command reads.
    #[must_use]
    pub fn input_files(&self, command: Command) -> Vec<&Path> {
        let Self { data, train, .. } = self;
        let used = |key: &str| Key::named(key).is_some_and(|key| key.honoured(command));
        let of_training = [("train.tuned", &train.tuned), ("train.hot_set", &train.hot_set)];
        let of_training = of_training.into_iter().filter(|(key, _)| used(key)).map(|(_, name)| name);
        let named = [&data.path, &data.test_path, &data.schema].into_iter().chain(of_training);
        named.filter(|name| !name.is_empty()).map(Path::new).collect()
    }
}

impl Key {
    /// The key of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// Whether a command uses it at all.
    #[must_use]
    pub fn honoured(&self, command: Command) -> bool {
        matches!(command, Command::Train | Command::Config) || self.others.contains(&command)
    }

    /// Why it would have no effect, and what to do; `None` where it has one.
    #[must_use]
    pub fn idle(&self, command: Command, config: &Config) -> Option<String> {
        let name = self.name;
        if !self.honoured(command) {
            let users: Vec<_> = Command::ALL.into_iter().filter(|command| self.honoured(*command)).collect();
            let users: Vec<_> = users.iter().filter(|user| **user != Command::Config).map(|user| user.name()).collect();
            return Some(format!(
                "`octorec {}` does not use {name}: leave it away (it is for {})",
                command.name(),
                users.join(", ")
            ));
        }
        match &self.when {
            _ if command == Command::Config => None,
            Always => None,
            Source(kinds) if kinds.contains(&config.data.source) => None,
            // A click log is drawn, unless the preset's data are time series.
            Source(kinds) if command == Generate && kinds.contains(&Criteo) && config.data.source != Taobao => None,
            Source(kinds) => {
                let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
                let instead = match command {
                    Generate => ", or start from another --preset",
                    // Their data are always random.
                    Step | Overlap => "",
                    Inspect => ", or name the data that it is for (PATH)",
                    _ => ", or name the data that it is for (--data PATH, --source NAME)",
                };
                Some(format!(
                    "{name} has no effect with data.source = \"{}\", only with {}: leave it away{instead}",
                    config.data.source.name(),
                    kinds.join(" or ")
                ))
            }
            Other(_, has_effect) if has_effect(config) => None,
            Other(needs, _) => Some(format!("{name} has an effect only with {needs}: set that, too, or leave it away")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_key_of_the_configuration_once_and_no_other() {
        let document = toml::Table::try_from(Config::default()).unwrap();
        let mut known: Vec<String> = document
            .iter()
            .flat_map(|(section, keys)| keys.as_table().unwrap().keys().map(move |key| format!("{section}.{key}")))
            .collect();
        let mut listed: Vec<_> = KEYS.iter().map(|key| key.name.to_owned()).collect();
        known.sort();
        listed.sort();
        assert_eq!(known, listed);
    }

    #[test]
    fn inputs_are_the_files_that_the_command_reads() {
        let mut config = Config::default();
        assert!(config.input_files(Command::Train).is_empty());
        let Config { data, train, .. } = &mut config;
        let names = [&mut data.path, &mut data.test_path, &mut data.schema, &mut train.tuned, &mut train.hot_set];
        for (name, file) in names.into_iter().zip(["log", "tests", "schema", "plans", "hot"]) {
            file.clone_into(name);
        }
        let all = ["log", "tests", "schema", "plans", "hot"].map(Path::new);
        assert_eq!(config.input_files(Command::Train), all);
        // These write what a run reads later by the same configuration.
        assert_eq!(config.input_files(Command::Inspect), all[..3]);
        assert_eq!(config.input_files(Command::Tune), all[..3]);
    }
}
