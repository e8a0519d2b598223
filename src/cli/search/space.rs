//! What a search may set: keys of the configuration, each with a range or a list of values.
//!
//! A value is found by its place in [0, 1): that is what is drawn, what the sampler learns from, and what a plot shows.

use std::path::Path;

use serde::Deserialize;
use toml::Value;

use crate::base::config::{Command, Config, Key, Layers, entries};
use crate::base::{Error, Result, input};

/// Keys with their domains, in alphabetical order.
#[derive(Debug, Clone, PartialEq)]
pub struct Space {
    pub parameters: Vec<Parameter>,
}

/// One key.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// With its section.
    pub key: String,
    pub domain: Domain,
    /// The file and the line, for messages.
    place: String,
}

/// What a key may be.
#[derive(Debug, Clone, PartialEq)]
pub enum Domain {
    /// A number between two, evenly or evenly by its logarithm; whole where both are.
    Range { from: f64, to: f64, log: bool, whole: bool },
    /// One of these.
    Choices(Vec<Value>),
}

/// As it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    from: Option<Value>,
    to: Option<Value>,
    #[serde(default)]
    log: bool,
    choices: Option<Vec<Value>>,
}

impl Space {
    /// Reads a file: a table a section, in it `key = { from = 0.01, to = 10, log = true }` or `key = { choices = [..]
    /// }`.
    ///
    /// # Errors
    /// [`Error::Config`] that names the file, the line and the key.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&input::read_text(path)?, &path.display().to_string())
    }

    /// As [`Space::read`], of text from `origin`.
    ///
    /// # Errors
    /// As there.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let mut parameters = Vec::new();
        for (key, line, value) in entries(text).map_err(|reason| Error::config(origin, reason))? {
            let place = format!("{origin}:{line}");
            let fail = |reason: &str| Error::config(&place, format!("{key}: {reason}"));
            if !key.contains('.') {
                return Err(fail("keys stand in the sections of a configuration, such as [train]"));
            }
            let entry: Entry = value.try_into().map_err(|error: toml::de::Error| {
                let form = "{ from = 0.01, to = 10, log = true } or { choices = [..] } is expected";
                fail(&format!("{}; {form}", error.message()))
            })?;
            let domain = entry.domain().map_err(|reason| fail(&reason))?;
            parameters.push(Parameter { key, domain, place });
        }
        if parameters.is_empty() {
            return Err(Error::config(origin, "there is no key to search over"));
        }
        parameters.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { parameters })
    }

    /// The configuration of these places, on top of another. Keys that have no effect there are passed over.
    ///
    /// # Errors
    /// When a key is unknown, a value is none of its, or keys contradict each other.
    pub fn at(&self, base: &Config, places: &[f64]) -> Result<Config> {
        let mut layers = Layers::from_config(base, "the configuration that is searched from");
        for (parameter, place) in self.parameters.iter().zip(places) {
            layers.set(&parameter.key, parameter.domain.at(*place), &parameter.place)?;
        }
        layers.finish(Command::Config)
    }

    /// Checks that the ends of all ranges and all choices can be set, one at a time, and that each key has an effect
    /// with some of the others'.
    ///
    /// # Errors
    /// When a key is unknown, has a value that is none of its, or has no effect.
    pub fn check(&self, base: &Config) -> Result<()> {
        let mut configs = vec![base.clone()];
        for parameter in &self.parameters {
            for place in parameter.domain.ends() {
                let mut layers = Layers::from_config(base, "the configuration that is searched from");
                layers.set(&parameter.key, parameter.domain.at(place), &parameter.place)?;
                // Keys may go together only with others.
                configs.extend(layers.finish(Command::Config));
            }
        }
        for Parameter { key, place, .. } in &self.parameters {
            let why = |config| Key::named(key).and_then(|key| key.idle(Command::Train, config));
            if let (Some(reason), true) = (why(base), configs.iter().all(|config| why(config).is_some())) {
                return Err(Error::config(format!("{place}: {key}"), reason));
            }
        }
        Ok(())
    }
}

impl Entry {
    fn domain(self) -> std::result::Result<Domain, String> {
        match self {
            Self { from: Some(from), to: Some(to), choices: None, log } => {
                let whole = from.is_integer() && to.is_integer();
                let number = |value: Value| match value {
                    Value::Integer(number) => Ok(number as f64),
                    Value::Float(number) => Ok(number),
                    other => Err(format!("{other} is no number")),
                };
                let (from, to) = (number(from)?, number(to)?);
                if !(from < to && (to - from).is_finite()) {
                    return Err(format!("from = {from} must be below to = {to}"));
                }
                if log && from <= 0.0 {
                    return Err(format!("from = {from} has no logarithm: log = true needs numbers above 0"));
                }
                Ok(Domain::Range { from, to, log, whole })
            }
            Self { from: None, to: None, choices: Some(choices), log: false } if choices.len() > 1 => {
                Ok(Domain::Choices(choices))
            }
            _ => Err("needs from and to (and perhaps log = true), or at least two choices".to_owned()),
        }
    }
}

impl Domain {
    /// The value at a place in [0, 1).
    pub fn at(&self, place: f64) -> Value {
        match self {
            Self::Range { from, to, log, whole } => {
                // A whole number has as much room as any other.
                let (low, high) = if *whole { (*from - 0.5, *to + 0.5) } else { (*from, *to) };
                let (low, high) = if *whole && *log { (low.max(0.5), high) } else { (low, high) };
                let number = if *log { low * libm::pow(high / low, place) } else { low + (high - low) * place };
                if *whole {
                    Value::Integer(number.round().clamp(*from, *to) as i64)
                } else {
                    Value::Float(number.clamp(*from, *to))
                }
            }
            Self::Choices(values) => values[Self::index(place, values.len())].clone(),
        }
    }

    /// Which of so many choices a place means.
    pub fn index(place: f64, count: usize) -> usize {
        ((place * count as f64) as usize).min(count - 1)
    }

    /// Places of both ends, or of all choices.
    fn ends(&self) -> Vec<f64> {
        match self {
            Self::Range { .. } => vec![0.0, 1.0 - f64::EPSILON],
            Self::Choices(values) => {
                (0..values.len()).map(|index| (index as f64 + 0.5) / values.len() as f64).collect()
            }
        }
    }

    /// In how many classes trials are compared, and which one a place is in.
    pub fn class(&self, place: f64) -> (usize, usize) {
        /// Of a range.
        const CLASSES: usize = 4;
        let count = match self {
            Self::Range { .. } => CLASSES,
            Self::Choices(values) => values.len(),
        };
        (count, Self::index(place, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[train]\nlr = { from = 0.01, to = 1.0, log = true }\nwarmup_steps = { from = 0, to = 2 }\n\
                        optimizer_rows = { choices = [\"sgd\", \"adagrad\"] }\n[model]\ndim = { choices = [8, 16, 32] }\n";

    #[test]
    fn places_are_values_of_their_domains() {
        let space = Space::parse(TEXT, "space.toml").unwrap();
        let keys: Vec<_> = space.parameters.iter().map(|parameter| &parameter.key[..]).collect();
        assert_eq!(keys, ["model.dim", "train.lr", "train.optimizer_rows", "train.warmup_steps"]);
        let of = |at: usize, place: f64| space.parameters[at].domain.at(place);
        assert_eq!([0.0, 0.34, 0.999].map(|place| of(0, place).as_integer().unwrap()), [8, 16, 32]);
        assert!((of(1, 0.5).as_float().unwrap() - 0.1).abs() < 1e-12);
        assert_eq!((of(1, 0.0), of(2, 0.7)), (Value::Float(0.01), Value::String("adagrad".to_owned())));
        assert_eq!(
            [0.0, 0.32, 0.34, 0.66, 0.67, 0.999].map(|place| of(3, place).as_integer().unwrap()),
            [0, 0, 1, 1, 2, 2]
        );
        space.check(&Config::default()).unwrap();
        let config = space.at(&Config::default(), &[0.0, 0.5, 0.9, 0.5]);
        // A bottom MLP that ends in 16 does not go with tables of 8 columns.
        assert!(config.unwrap_err().to_string().contains("model.dim"));
    }

    #[test]
    fn what_is_no_space_is_told_with_its_key() {
        for (text, words) in [
            ("[train]\nlr = 0.1", "space.toml:2: train.lr: "),
            ("[train]\n\nlr = { from = 1, to = 1 }", "space.toml:3: train.lr: from = 1 must be below to = 1"),
            ("[train.lr]\nfrom = 1\nto = 0", "space.toml:1: train.lr: from = 1"),
            ("[train]\nlr = { from", "line 2"),
            ("[train]\nlr = { from = 0, to = 1, log = true }", "no logarithm"),
            ("[train]\nlr = { choices = [0.1] }", "at least two choices"),
            ("[train]\nlr = { from = \"a\", to = 1 }", "is no number"),
            ("lr = 0.1", "in the sections"),
            ("", "no key"),
        ] {
            let message = Space::parse(text, "space.toml").unwrap_err().to_string();
            assert!(message.contains("space.toml") && message.contains(words), "{text}: {message}");
        }
        let unknown = Space::parse("[train]\nlrr = { from = 0.1, to = 1.0 }", "space.toml").unwrap();
        let message = unknown.check(&Config::default()).unwrap_err().to_string();
        assert!(message.contains("train.lrr") && message.contains("space.toml:2: "), "{message}");
        let worded = Space::parse("[train]\noptimizer = { choices = [\"sgd\", \"sdg\"] }", "space.toml").unwrap();
        assert!(worded.check(&Config::default()).unwrap_err().to_string().contains("sdg"));
    }
}
