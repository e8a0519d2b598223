//! Layers of configuration, each with an origin that errors can name.
//!
//! Invariant: after every layer the merged document is a complete, well-typed [`Config`]; a layer that would break
//! that is refused as a whole, with the key that is wrong.

use std::path::Path;

use toml::{Table, Value};

use super::{Config, preset};
use crate::base::error::{Error, Result, nearest};

/// Defaults plus the layers put on so far.
#[derive(Debug, Clone)]
pub struct Layers {
    merged: Table,
    origin: String,
}

impl Default for Layers {
    fn default() -> Self {
        Self::from_config(&Config::default(), "defaults")
    }
}

impl Layers {
    /// Starts from a complete configuration instead of the defaults.
    #[must_use]
    pub fn from_config(config: &Config, origin: &str) -> Self {
        let merged = Table::try_from(config).expect("every field of Config is representable in TOML");
        Self { merged, origin: origin.to_owned() }
    }

    /// Puts on a built-in preset.
    ///
    /// # Errors
    /// When no preset has that name.
    pub fn preset(&mut self, name: &str) -> Result<()> {
        self.document(preset(name)?, &format!("preset {name}"))
    }

    /// Puts on a TOML file.
    ///
    /// # Errors
    /// When the file cannot be read, is not TOML, or has an unknown key or a value of the wrong type.
    pub fn file(&mut self, path: &Path) -> Result<()> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path, "read"))?;
        self.document(&text, &path.display().to_string())
    }

    /// Puts on TOML text.
    ///
    /// # Errors
    /// As [`Layers::file`].
    pub fn document(&mut self, text: &str, origin: &str) -> Result<()> {
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| Error::Config { origin: origin.to_owned(), reason: error.to_string() })?;
        self.overlay(table, origin)
    }

    /// Puts on one `key=value`; a value that is not TOML is taken as a string.
    ///
    /// # Errors
    /// When there is no `=`, the key is unknown or the value has the wrong type.
    pub fn assignment(&mut self, text: &str) -> Result<()> {
        let origin = format!("--set {text}");
        let Some((key, value)) = text.split_once('=') else {
            return Err(Error::Config { origin, reason: "must have the form key=value".to_owned() });
        };
        let value = value.trim();
        let parsed = format!("v = {value}")
            .parse::<Table>()
            .ok()
            .and_then(|mut table| table.remove("v"))
            .unwrap_or_else(|| Value::String(value.to_owned()));
        self.set(key.trim(), parsed, &origin)
    }

    /// Sets one dotted key.
    ///
    /// # Errors
    /// When the key is unknown or the value has the wrong type.
    pub fn set(&mut self, key: &str, value: impl Into<Value>, origin: &str) -> Result<()> {
        let (table, name) = key.split_once('.').unwrap_or(("", key));
        let mut inner = Table::new();
        inner.insert(name.to_owned(), value.into());
        let mut outer = Table::new();
        if table.is_empty() {
            outer = inner;
        } else {
            outer.insert(table.to_owned(), Value::Table(inner));
        }
        self.overlay(outer, origin)
    }

    /// The finished configuration.
    ///
    /// # Errors
    /// When layers contradict each other, see [`Config::validate`].
    pub fn finish(self) -> Result<Config> {
        let config: Config = self.merged.try_into().expect("every layer was checked when it was put on");
        config.validate(&self.origin)?;
        Ok(config)
    }

    fn overlay(&mut self, layer: Table, origin: &str) -> Result<()> {
        let known = leaves(&self.merged);
        for (key, _) in leaves(&layer) {
            if !known.iter().any(|(name, _)| *name == key) {
                let nearest = nearest_key(&key, &known);
                return Err(Error::UnknownKey { origin: origin.to_owned(), key, nearest });
            }
        }
        let mut merged = self.merged.clone();
        for (section, values) in layer {
            let Value::Table(values) = values else { unreachable!("top-level keys are sections, checked above") };
            let Some(Value::Table(target)) = merged.get_mut(&section) else {
                unreachable!("sections were checked above")
            };
            target.extend(values);
        }
        merged
            .clone()
            .try_into::<Config>()
            .map_err(|error| Error::Config { origin: origin.to_owned(), reason: error.to_string() })?;
        self.merged = merged;
        origin.clone_into(&mut self.origin);
        Ok(())
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
    use crate::base::config::{Interaction, PRESETS};

    #[test]
    fn every_preset_is_a_valid_configuration() {
        for (name, _) in PRESETS {
            let mut layers = Layers::default();
            layers.preset(name).unwrap();
            let config = layers.finish().unwrap();
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
        let config = layers.finish().unwrap();
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
            message(layers.document("[modell]\ndim = 3", "a.toml")).starts_with("a.toml: unknown key `modell.dim`")
        );
        assert!(message(layers.preset("kagle")).contains("did you mean `kaggle`"));
        assert!(message(layers.assignment("train.batch=many")).contains("--set train.batch=many"));
        assert!(message(layers.assignment("train.batch")).contains("key=value"));
    }

    #[test]
    fn contradictions_are_refused() {
        let mut layers = Layers::default();
        layers.assignment("model.dim=32").unwrap();
        let message = layers.finish().unwrap_err().to_string();
        assert!(message.contains("model.bottom ends in 16 but model.dim is 32"), "{message}");
    }
}
