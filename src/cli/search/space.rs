//! What a search may set: keys of the configuration, each with a range or a list of values.
//!
//! A value is found by its place in [0, 1): that is what is drawn, what the sampler learns from, and what a plot shows.

mod corners;

use std::collections::HashSet;
use std::path::Path;

pub use corners::Contradictions;
use serde::Deserialize;
use toml::Value;

use crate::base::config::{Command, Config, Layers, entries};
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
    pub place: String,
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
            let form =
                "a range, { from = 0.01, to = 10, log = true }, or a list, { choices = [0.1, 0.2] }, is expected";
            if !value.is_table() {
                return Err(fail(&format!("{value} says not what is searched over: {form}")));
            }
            let told = |error: toml::de::Error| fail(&format!("{}; {form}", error.message()));
            let entry: Entry = value.try_into().map_err(told)?;
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
        let config = self.put_on(base, places)?;
        config.train.check_ends_of_warm_up()?;
        Ok(config)
    }

    /// As [`Space::at`], whatever becomes of the rates.
    fn put_on(&self, base: &Config, places: &[f64]) -> Result<Config> {
        let mut layers = Layers::from_config(base, "the configuration that is searched from");
        for (parameter, place) in self.parameters.iter().zip(places) {
            layers.set(&parameter.key, parameter.domain.at(*place), &parameter.place)?;
        }
        layers.finish(Command::Config)
    }

    /// These places where they mean none of the trials before, or else, of a space that has an end, the next ones that
    /// do not; nothing where all were tried.
    pub fn untried<'a>(&self, places: Vec<f64>, tried: impl Iterator<Item = &'a [f64]>) -> Option<Vec<f64>> {
        let numbers = |places: &[f64]| -> Option<Vec<(u64, u64)>> {
            self.parameters.iter().zip(places).map(|(parameter, place)| parameter.domain.number(*place)).collect()
        };
        let Some(drawn) = numbers(&places) else { return Some(places) };
        let (counts, drawn): (Vec<u64>, Vec<u64>) = drawn.into_iter().unzip();
        let tried = tried.filter_map(numbers).map(|numbers| numbers.into_iter().map(|(_, number)| number).collect());
        let tried: HashSet<Vec<u64>> = tried.collect();
        if !tried.contains(&drawn) {
            return Some(places);
        }
        let mut next = drawn;
        // Of so many that follow each other, one is none of the former unless these are all.
        for _ in 0..tried.len() {
            advance(&mut next, &counts);
            if !tried.contains(&next) {
                let places = self.parameters.iter().zip(&next);
                return Some(places.map(|(parameter, number)| parameter.domain.place(*number)).collect());
            }
        }
        None
    }
}

/// Counts on by one, the last digit fastest, each below a count of its own.
fn advance(digits: &mut [u64], counts: &[u64]) {
    for (digit, count) in digits.iter_mut().zip(counts).rev() {
        *digit += 1;
        if *digit < *count {
            return;
        }
        *digit = 0;
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
                let (low, high) = bounds(*from, *to, *log, *whole);
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

    /// How many values there are, and which of them a place means; nothing of numbers that are not whole.
    fn number(&self, place: f64) -> Option<(u64, u64)> {
        match self {
            Self::Range { whole: false, .. } => None,
            Self::Range { from, to, .. } => {
                let number = self.at(place).as_integer().unwrap_or_default() as f64;
                Some((((to - from) as u64).saturating_add(1), (number - from) as u64))
            }
            Self::Choices(values) => Some((values.len() as u64, Self::index(place, values.len()) as u64)),
        }
    }

    /// A place that means the value of this number.
    fn place(&self, number: u64) -> f64 {
        match self {
            Self::Range { from, to, .. } => self.place_of((from + number as f64).min(*to)).unwrap_or_default(),
            Self::Choices(values) => (number as f64 + 0.5) / values.len() as f64,
        }
    }

    /// A place that means this number; nothing where that is in no range.
    fn place_of(&self, number: f64) -> Option<f64> {
        let Self::Range { from, to, log, whole } = self else { return None };
        let (low, high) = bounds(*from, *to, *log, *whole);
        let place = if *log { libm::log(number / low) / libm::log(high / low) } else { (number - low) / (high - low) };
        (*from..=*to).contains(&number).then(|| place.clamp(0.0, 1.0 - f64::EPSILON))
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

/// Between what a range is drawn: of whole numbers, each has as much room as any other.
fn bounds(from: f64, to: f64, log: bool, whole: bool) -> (f64, f64) {
    if !whole {
        return (from, to);
    }
    let low = from - 0.5;
    (if log { low.max(0.5) } else { low }, to + 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{Setting, TrainConfig};

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
        let config = space.at(&Config::default(), &[0.0, 0.5, 0.9, 0.5]);
        // A bottom MLP that ends in 16 does not go with tables of 8 columns.
        assert!(config.unwrap_err().to_string().contains("model.dim"));
    }

    #[test]
    fn decay_follows_the_warm_up_that_is_tried() {
        let space = Space::parse("[train]\nwarmup_steps = { from = 0, to = 30 }\n", "space.toml").unwrap();
        let train = TrainConfig { warmup_steps: 10, decay_steps: 20, ..TrainConfig::default() };
        let base = Config { train, ..Config::default() };
        let courses = |base: &Config, place| space.at(base, &[place]).map(|config| config.train.courses()[0]);
        assert_eq!(
            [0.2, 0.5, 1.0].map(|place| courses(&base, place).unwrap()),
            [[6, 6, 20], [15, 15, 20], [30, 30, 20]]
        );
        // Unless it is given; then what would fall before it has risen is no configuration.
        let train = TrainConfig { decay_start: Setting::Given(10), ..base.train.clone() };
        let fixed = Config { train, ..base };
        assert_eq!(courses(&fixed, 0.2).unwrap(), [6, 10, 20]);
        assert!(courses(&fixed, 0.5).unwrap_err().to_string().contains("set it to 15 or more"));
    }

    #[test]
    fn a_space_that_has_an_end_is_drawn_without_repetition() {
        let text = "[train]\nwarmup_steps = { from = 3, to = 5 }\noptimizer = { choices = [\"sgd\", \"adam\"] }\n\
                    batch = { from = 1, to = 40, log = true }";
        let space = Space::parse(text, "space.toml").unwrap();
        let mut tried: Vec<Vec<f64>> = Vec::new();
        let next = |tried: &[Vec<f64>]| space.untried(vec![0.3, 0.9, 0.4], tried.iter().map(Vec::as_slice));
        while let Some(places) = next(&tried) {
            assert!(places.iter().all(|place| (0.0..1.0).contains(place)), "{places:?}");
            tried.push(places);
        }
        assert_eq!(tried[0], [0.3, 0.9, 0.4], "what is new stays as it was drawn");
        let values = |places: &Vec<f64>| {
            let of = space.parameters.iter().zip(places);
            of.map(|(parameter, place)| parameter.domain.at(*place).to_string()).collect::<Vec<_>>()
        };
        let all: HashSet<Vec<String>> = tried.iter().map(values).collect();
        assert_eq!((tried.len(), all.len()), (40 * 2 * 3, 40 * 2 * 3));
        // Numbers that are not whole have no end.
        let endless = Space::parse(TEXT, "space.toml").unwrap();
        let drawn = vec![0.5; 4];
        assert_eq!(endless.untried(drawn.clone(), [&drawn[..]].into_iter()), Some(drawn));
    }

    #[test]
    fn what_is_no_space_is_told_with_its_key() {
        for (text, words) in [
            ("[train]\nlr = 0.1", "space.toml:2: train.lr: 0.1 says not"),
            ("[train]\nlr = [0.1, 0.2]", "a list, { choices = [0.1, 0.2] }, is expected"),
            ("[train]\nlr = { of = 1 }", "a range, { from = 0.01, to = 10, log = true }"),
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
