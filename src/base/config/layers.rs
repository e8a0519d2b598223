//! Layers of configuration, each with an origin that errors can name.
//!
//! Invariant: after every layer the merged document is a complete, well-typed [`Config`]; a layer that would break
//! that is refused as a whole, with the key that is wrong and the place that gave it.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::{Command, Config, Contradiction, Key, Setting, preset};
use crate::base::console::note;
use crate::base::error::{Error, Result, nearest};
use crate::base::input;

/// Defaults plus the layers put on so far.
#[derive(Debug, Clone)]
pub struct Layers {
    merged: Table,
    /// Where each value comes from; a key that is not here has its default.
    origins: BTreeMap<String, Origin>,
    layers: usize,
}

/// Bytes of an assignment that errors show, at least.
const LONGEST: usize = 120;

/// Where a value comes from.
#[derive(Debug, Clone)]
struct Origin {
    /// A file and its line, a flag, a preset.
    place: String,
    kind: Kind,
    /// The layer's number: a later one overrides an earlier one.
    layer: usize,
}

/// How a value was given, the most general way first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// By octorec: a preset, or what a command cannot do otherwise.
    BuiltIn,
    /// By an earlier run.
    Stored,
    /// In a file, which may serve several commands.
    File,
    /// On this command line.
    Flag,
}

impl Default for Layers {
    fn default() -> Self {
        let merged = Table::try_from(Config::default()).expect("every field of Config is representable in TOML");
        Self { merged, origins: BTreeMap::new(), layers: 0 }
    }
}

impl Layers {
    /// Starts from a complete configuration of an earlier run instead of the defaults.
    ///
    /// # Panics
    /// When a number is [beyond](Config::beyond_toml) what TOML holds.
    #[must_use]
    pub fn from_config(config: &Config, origin: &str) -> Self {
        let merged = Table::try_from(config).expect("every field of Config is representable in TOML");
        let stored = Origin { place: origin.to_owned(), kind: Kind::Stored, layer: 0 };
        let origins = leaves(&merged).into_iter().map(|(key, _)| (key, stored.clone())).collect();
        Self { merged, origins, layers: 0 }
    }

    /// Puts on a built-in preset.
    ///
    /// # Errors
    /// When no preset has that name.
    pub fn preset(&mut self, name: &str) -> Result<()> {
        let origin = format!("preset {name}");
        self.text(preset(name)?, Kind::BuiltIn, |_| origin.clone())
    }

    /// What the layers are together.
    fn config(&self) -> Config {
        self.merged.clone().try_into().expect("every layer was checked when it was put on")
    }

    /// Puts on a TOML file.
    ///
    /// # Errors
    /// When the file cannot be read, is not TOML, or has an unknown key or a value of the wrong type.
    pub fn file(&mut self, path: &Path) -> Result<()> {
        let text = input::read_text(path)?;
        self.document(&text, &path.display().to_string())
    }

    /// Puts on TOML text.
    ///
    /// # Errors
    /// As [`Layers::file`].
    pub fn document(&mut self, text: &str, origin: &str) -> Result<()> {
        self.text(text, Kind::File, |line| format!("{origin}:{line}")).map_err(|error| match error {
            // What is no TOML has no key; the parser shows the line itself.
            Error::Config { origin: place, reason } if place.is_empty() => Error::config(origin, reason),
            error => error,
        })
    }

    fn text(&mut self, text: &str, kind: Kind, place: impl Fn(usize) -> String) -> Result<()> {
        let values = entries(text).map_err(|reason| Error::config(String::new(), reason))?;
        self.layers += 1;
        values.into_iter().try_for_each(|(key, line, value)| {
            self.put(&key, value, Origin { place: place(line), kind, layer: self.layers })
        })
    }

    /// Puts on one `key=value`; a value that is not TOML is taken as a string.
    ///
    /// # Errors
    /// When there is no `=`, the key is unknown or the value has the wrong type.
    pub fn assignment(&mut self, text: &str) -> Result<()> {
        // A network is many lines; its key tells which flag is meant.
        let origin = match text.char_indices().find(|(at, letter)| *at >= LONGEST || *letter == '\n') {
            Some((at, _)) => format!("--set {}...", &text[..at]),
            None => format!("--set {text}"),
        };
        let Some((key, value)) = text.split_once('=') else {
            return Err(Error::config(origin, "must have the form key=value"));
        };
        let value = value.trim();
        let parsed = format!("v = {value}")
            .parse::<Table>()
            .ok()
            .and_then(|mut table| table.remove("v"))
            .unwrap_or_else(|| Value::String(value.to_owned()));
        self.set(key.trim(), parsed, &origin)
    }

    /// Sets one dotted key, as the user asked.
    ///
    /// # Errors
    /// When the key is unknown or the value has the wrong type.
    pub fn set(&mut self, key: &str, value: impl Into<Value>, origin: &str) -> Result<()> {
        self.one(key, value.into(), origin, Kind::Flag)
    }

    /// Sets one dotted key, as a command needs it.
    ///
    /// # Errors
    /// As [`Layers::set`].
    pub fn fix(&mut self, key: &str, value: impl Into<Value>, origin: &str) -> Result<()> {
        self.one(key, value.into(), origin, Kind::BuiltIn)
    }

    /// Whether a file of the user's has this key.
    #[must_use]
    pub fn in_file(&self, key: &str) -> bool {
        self.place_in_file(key).is_some()
    }

    /// The file and the line of the user's that give this key its value, if a file does.
    #[must_use]
    pub fn place_in_file(&self, key: &str) -> Option<&str> {
        self.origins.get(key).filter(|origin| origin.kind == Kind::File).map(|origin| &*origin.place)
    }

    /// Whether a file, the command line or an earlier run gives this key its value, and no preset.
    #[must_use]
    pub fn is_given(&self, key: &str) -> bool {
        self.origins.get(key).is_some_and(|origin| origin.kind > Kind::BuiltIn)
    }

    /// The text that a key has by now, if not an empty one.
    #[must_use]
    pub fn text_of(&self, key: &str) -> Option<&str> {
        let mut parts = key.split('.');
        let first = parts.next().and_then(|part| self.merged.get(part));
        let found = parts.fold(first, |at, part| at.and_then(|at| at.get(part)));
        found.and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    fn one(&mut self, key: &str, value: Value, place: &str, kind: Kind) -> Result<()> {
        self.layers += 1;
        self.put(key, value, Origin { place: place.to_owned(), kind, layer: self.layers })
    }

    /// The finished configuration of a command.
    ///
    /// Where data come from files, they say how many rows a table has, and how many dense features there are unless
    /// `model.bottom` was given.
    ///
    /// # Errors
    /// When layers contradict each other, see [`Config::contradiction`], or the command line has a key that would have
    /// no effect on this command.
    pub fn finish(self, command: Command) -> Result<Config> {
        let mut config = self.config();
        if !config.model.layers.is_empty() {
            config.model.follow_layers();
        }
        // Two ways to ask for evaluations: a flag's takes the place of a file's other one, and a file's of a preset's.
        let kind = |key: &str| self.origins.get(key).map(|origin| origin.kind);
        let (steps, parts) = (kind("train.eval_every"), kind("train.evals_per_epoch"));
        if steps > parts {
            config.train.evals_per_epoch = 0;
        } else if steps < parts && config.train.evals_per_epoch > 0 {
            config.train.eval_every = 0;
        }
        // A rate that is given alone is that of the rows, too, whatever a preset says of theirs.
        if kind("train.lr") > Some(Kind::BuiltIn) && kind("train.lr_rows") == Some(Kind::BuiltIn) {
            config.train.lr_rows = Setting::AUTO;
        }
        for (key, Origin { place, kind, .. }) in &self.origins {
            if *kind == Kind::Flag
                && let Some(reason) = Key::named(key).and_then(|key| key.idle(command, &config))
            {
                return Err(Error::config(place.clone(), reason));
            }
        }
        if config.data.is_stored() && command != Command::Config {
            let given = |key: &str| self.origins.get(key).filter(|origin| origin.kind != Kind::BuiltIn);
            if given("model.bottom").is_none()
                && let Some(first) = config.model.bottom.first_mut()
            {
                *first = 0;
            }
            if let Some(Origin { place, kind: Kind::File, .. }) = given("model.rows") {
                note!("note: {place}: model.rows gives way to the data, which say how many rows each table has");
            }
            config.model.rows.clear();
            config.model.columns.clear();
        }
        config.contradiction().map_err(|contradiction| self.blame(contradiction))?;
        Ok(config)
    }

    /// Names the place that gave the last of some keys, and those of the others.
    fn blame(&self, Contradiction { keys, reason }: Contradiction) -> Error {
        let mut given: Vec<(&str, &Origin)> =
            keys.iter().filter_map(|key| self.origins.get(*key).map(|origin| (*key, origin))).collect();
        given.sort_by_key(|(_, origin)| origin.layer);
        let Some((_, last)) = given.pop() else { return Error::config("defaults", reason) };
        let others: Vec<String> = given
            .iter()
            .filter(|(_, origin)| origin.place != last.place)
            .map(|(key, origin)| format!("{key} is from {}", origin.place))
            .collect();
        let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
        Error::config(last.place.clone(), format!("{reason}{others}"))
    }

    fn put(&mut self, key: &str, value: Value, origin: Origin) -> Result<()> {
        let known = leaves(&self.merged);
        let Some((_, old)) = known.iter().find(|(name, _)| *name == key) else {
            let nearest = nearest_key(key, &known);
            return Err(Error::UnknownKey { origin: origin.place, key: key.to_owned(), nearest });
        };
        let told = format!("{key} = {value}");
        let kind = match key {
            "model.wide_crosses" => "a list of lists of names is expected, such as [[\"C1\", \"C2\"]]",
            "model.sequences" | "model.columns" => "a list of names is expected, such as [\"C1\", \"C2\"]",
            _ => expected(old),
        };
        let mut merged = self.merged.clone();
        let (section, name) = key.split_once('.').expect("known keys have a section");
        let table = merged.get_mut(section).and_then(Value::as_table_mut).expect("known sections are tables");
        table.insert(name.to_owned(), value);
        if let Err(error) = merged.clone().try_into::<Config>() {
            let message = error.message().trim();
            // Of names, the parser lists those that are possible.
            let tells = message.starts_with("unknown variant") || message.ends_with("is expected");
            // Of a layer of a network, it says what the layer lacks.
            if key == "model.layers" {
                return Err(Error::config(origin.place, format!("{key}: {message}")));
            }
            let reason = if tells { message } else { kind };
            return Err(Error::config(origin.place, format!("{told}: {reason}")));
        }
        self.merged = merged;
        self.origins.insert(key.to_owned(), origin);
        Ok(())
    }
}

/// The dotted keys of a TOML document that has sections, each with its line and its value, in their order.
///
/// # Errors
/// What is no TOML, as the parser shows it.
pub fn entries(text: &str) -> std::result::Result<Vec<(String, usize, Value)>, String> {
    let document = DeTable::parse(text).map_err(|error| error.to_string())?;
    let line = |at: usize| input::line(text, at);
    let mut values = Vec::new();
    for (section, value) in document.get_ref() {
        match value.get_ref() {
            DeValue::Table(inner) => values.extend(inner.iter().map(|(name, value)| {
                let key = format!("{}.{}", section.get_ref(), name.get_ref());
                (key, line(name.span().start), owned(value.get_ref()))
            })),
            value => values.push((section.get_ref().to_string(), line(section.span().start), owned(value))),
        }
    }
    values.sort_by_key(|(_, line, _)| *line);
    Ok(values)
}

/// What a key expects, told by a value that it may have.
const fn expected(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "a whole number from 0 to 2^63 - 1 is expected",
        Value::Float(_) => "a number is expected",
        Value::Boolean(_) => "true or false is expected",
        Value::Array(_) => "a list of numbers is expected, such as [512, 256, 1]",
        _ => "a word is expected",
    }
}

/// A parsed value without its place in the text.
fn owned(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::Table(table) => {
            let entries = table.iter().map(|(key, value)| (key.get_ref().to_string(), owned(value.get_ref())));
            Value::Table(entries.collect())
        }
        DeValue::Array(array) => Value::Array(array.iter().map(|value| owned(value.get_ref())).collect()),
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Datetime(value) => Value::Datetime(*value),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::String(number.to_string()),
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => Value::Float(number),
            Err(_) => Value::String(number.to_string()),
        },
    }
}

/// Dotted keys of a document that has one level of sections.
fn leaves(table: &Table) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for (section, value) in table {
        match value {
            Value::Table(inner) => {
                found.extend(inner.iter().map(|(key, value)| (format!("{section}.{key}"), value)));
            }
            value => found.push((section.clone(), value)),
        }
    }
    found
}

/// Compares the last part of the key too, so that `lr` finds `train.lr`.
fn nearest_key(key: &str, known: &[(String, &Value)]) -> Option<String> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let same_end = known.iter().find(|(name, _)| last(name) == last(key)).map(|(name, _)| name.clone());
    same_end.or_else(|| nearest(key, known.iter().map(|(name, _)| name.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{DEFAULT_PRESET, Interaction, OptimizerName, PRESETS, TrainConfig};

    #[test]
    fn every_preset_is_a_valid_configuration() {
        for (name, _) in PRESETS {
            let mut layers = Layers::default();
            layers.preset(name).unwrap();
            let config = layers.finish(Command::Train).unwrap();
            let again: Config = toml::from_str(&config.to_toml()).unwrap();
            assert_eq!(config, again, "{name} survives being printed and read");
        }
    }

    #[test]
    fn later_layers_override_earlier_ones() {
        let mut layers = Layers::default();
        layers.preset("kaggle").unwrap();
        layers.document("[train]\nlr = 1\nbatch = 7\n", "file").unwrap();
        layers.assignment("train.lr=0.25").unwrap();
        layers.assignment("model.interaction=cat").unwrap();
        let config = layers.finish(Command::Train).unwrap();
        assert_eq!((config.train.lr, config.train.batch), (0.25, 7));
        assert_eq!(config.model.interaction, Interaction::Cat);
        assert_eq!(config.model.rows.len(), 26);
    }

    #[test]
    fn unknown_keys_name_the_nearest_known_one() {
        let mut layers = Layers::default();
        let message = |result: Result<()>| result.unwrap_err().to_string();
        assert!(message(layers.assignment("train.batchsize=3")).contains("did you mean `train.batch`"));
        assert!(message(layers.assignment("lr=3")).contains("did you mean `train.lr`"));
        assert!(
            message(layers.document("[modell]\ndim = 3", "a.toml")).starts_with("a.toml:2: unknown key `modell.dim`")
        );
        assert!(message(layers.preset("kagle")).contains("did you mean `kaggle`"));
        assert!(message(layers.assignment("train.batch=many")).contains("--set train.batch=many"));
        assert!(message(layers.assignment("train.batch")).contains("key=value"));
    }

    #[test]
    fn a_decay_begins_where_it_is_said_to_or_once_the_rate_has_risen() {
        let decays = |given: &[&str]| {
            let mut layers = Layers::default();
            layers.preset(DEFAULT_PRESET).unwrap();
            given.iter().for_each(|assignment| layers.assignment(assignment).unwrap());
            layers.finish(Command::Config).unwrap().train.courses()[0]
        };
        assert_eq!([decays(&[]), decays(&["train.decay_steps=70"])], [[0, 0, 0], [0, 0, 70]]);
        assert_eq!(decays(&["train.decay_steps=70", "train.decay_start=9"]), [0, 9, 70]);
        assert_eq!(decays(&["train.decay_steps=70", "train.warmup_steps=5"]), [5, 5, 70]);
    }

    #[test]
    fn the_default_preset_is_the_same_for_all_data_and_below_all_that_is_given() {
        let train = |given: &[&str]| {
            let mut layers = Layers::default();
            layers.preset(DEFAULT_PRESET).unwrap();
            given.iter().for_each(|assignment| layers.assignment(assignment).unwrap());
            layers.finish(Command::Config).unwrap().train
        };
        let plain = TrainConfig {
            optimizer: OptimizerName::Adagrad,
            optimizer_rows: OptimizerName::RowwiseAdagrad,
            lr: 0.01,
            lr_rows: Setting::Given(0.05),
            evals_per_epoch: 4,
            ..TrainConfig::default()
        };
        let files = ["data.source=files", "data.path=mine"];
        assert_eq!([train(&[]), train(&files)], [plain.clone(), plain.clone()]);
        let mine = train(&["train.lr_rows=0.5", files[0], files[1], "train.epochs=7"]);
        assert_eq!(mine, TrainConfig { lr_rows: Setting::Given(0.5), epochs: 7, ..plain.clone() });
        let both = train(&["train.lr=0.5", files[0], files[1]]);
        assert_eq!(both, TrainConfig { lr: 0.5, lr_rows: Setting::AUTO, ..plain }, "one rate for both");
    }

    #[test]
    fn evaluations_are_asked_for_in_the_way_that_was_given_last() {
        let asked = |file: &str, flags: &[&str]| {
            let mut layers = Layers::default();
            layers.preset(DEFAULT_PRESET).unwrap();
            layers.document(file, "mine.toml").unwrap();
            flags.iter().for_each(|flag| layers.assignment(flag).unwrap());
            let train = layers.finish(Command::Config).unwrap().train;
            (train.eval_every, train.evals_per_epoch)
        };
        let (steps, parts) = ("[train]\neval_every = 1250\n", "[train]\nevals_per_epoch = 3\n");
        assert_eq!([asked("", &[]), asked(steps, &[]), asked(parts, &[])], [(0, 4), (1250, 0), (0, 3)]);
        assert_eq!([asked(parts, &["train.eval_every=5"]), asked(parts, &["train.eval_every=0"])], [(5, 0), (0, 0)]);
        assert_eq!(asked(steps, &["train.evals_per_epoch=7"]), (0, 7));
        assert_eq!(asked(steps, &["train.evals_per_epoch=0"]), (1250, 0), "what is none takes no other's place");
        assert_eq!(asked("", &["train.eval_every=5", "train.evals_per_epoch=2"]), (5, 2), "both, where both are said");
    }

    #[test]
    fn contradictions_are_refused() {
        let mut layers = Layers::default();
        layers.assignment("model.dim=32").unwrap();
        let message = layers.finish(Command::Train).unwrap_err().to_string();
        assert!(message.contains("model.bottom ends in 16 but model.dim is 32"), "{message}");
    }
}
