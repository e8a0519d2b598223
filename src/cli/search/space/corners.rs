//! What of a space contradicts itself or the configuration that it is put on, which is told before the first trial: its
//! corners are tried, the choices and the ends of ranges.

use toml::Table;

use super::{Domain, Parameter, Space, advance};
use crate::base::config::{Command, Config, Key, Layers};
use crate::base::{Error, Result};

/// Combinations of choices, and of ranges' ends and the base's own values, that are checked before the first trial: a
/// second's work.
const CORNERS_MOST: u64 = 1024;

/// The keys of the rates' courses, each of which rows may have as one of their own.
const COURSES: [&str; 3] = ["train.warmup_steps", "train.decay_start", "train.decay_steps"];

/// Of each key the places of its choices or, of a range, of its ends and then of the base's own value.
struct Corners(Vec<Vec<f64>>);

impl Corners {
    /// Those of a space; nothing where these have more than [`CORNERS_MOST`] combinations.
    fn of(space: &Space, base: &Config) -> Option<Self> {
        let known = Table::try_from(base).expect("every field of Config is representable in TOML");
        let own = |Parameter { key, domain, .. }: &Parameter| {
            let (section, name) = key.split_once('.')?;
            let value = known.get(section)?.get(name)?;
            domain.place_of(value.as_float().or_else(|| value.as_integer().map(|number| number as f64))?)
        };
        let of = |parameter: &Parameter| parameter.domain.ends().into_iter().chain(own(parameter)).collect();
        let corners = Self(space.parameters.iter().map(of).collect());
        let count = corners.counts().iter().try_fold(1, |product: u64, count| product.checked_mul(*count));
        count.is_some_and(|count| count <= CORNERS_MOST).then_some(corners)
    }

    /// How many combinations there are.
    fn combinations(&self) -> u64 {
        self.counts().iter().product()
    }

    fn counts(&self) -> Vec<u64> {
        self.0.iter().map(|places| places.len() as u64).collect()
    }

    fn places(&self, corner: &[u64]) -> Vec<f64> {
        self.0.iter().zip(corner).map(|(places, number)| places[*number as usize]).collect()
    }

    /// Place `number` of one key, and the first ones of the others.
    fn with(&self, key: usize, number: usize) -> Vec<f64> {
        let mut corner = vec![0; self.0.len()];
        corner[key] = number as u64;
        self.places(&corner)
    }

    /// Of each place of each key whether some combination with it fits.
    fn fits(&self, mut fits: impl FnMut(&[f64]) -> bool) -> Vec<Vec<bool>> {
        let counts = self.counts();
        let mut found: Vec<Vec<bool>> = self.0.iter().map(|places| vec![false; places.len()]).collect();
        let mut corner = vec![0; counts.len()];
        for _ in 0..self.combinations() {
            if fits(&self.places(&corner)) {
                found.iter_mut().zip(&corner).for_each(|(found, number)| found[*number as usize] = true);
            }
            advance(&mut corner, &counts);
        }
        found
    }
}

/// How much of a space contradicts itself.
#[derive(Debug)]
pub struct Contradictions {
    /// Of so many combinations of choices, ranges' ends and the base's own values.
    pub all: u64,
    /// So many.
    pub wrong: u64,
    /// What the first of them says.
    pub first: String,
}

impl Space {
    /// Checks that the ends of all ranges and all choices can be set, one at a time, that each key has an effect with
    /// some of the others', and that each choice goes together with some of them. Returns which combinations do not go
    /// together; nothing where all do, or where they are too many to look at.
    ///
    /// # Errors
    /// When a key is unknown, has a value that is none of its or contradicts all of the others', or has no effect.
    pub fn check(&self, base: &Config) -> Result<Option<Contradictions>> {
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
        self.check_choices(base)
    }

    /// Refuses a choice that contradicts the base whatever the other keys are, of their choices and, of their ranges,
    /// the ends and the base's own value, where these have no more than [`CORNERS_MOST`] combinations. Where no
    /// combination fits, a choice is to blame only if it contradicts the base by itself.
    fn check_choices(&self, base: &Config) -> Result<Option<Contradictions>> {
        let Some(corners) = Corners::of(self, base) else { return Ok(None) };
        let (mut wrong, mut first) = (0, None);
        let fits = corners.fits(|places| match self.at(base, places) {
            Ok(_) => true,
            Err(error) => {
                wrong += 1;
                first.get_or_insert_with(|| error.to_string());
                false
            }
        });
        let is_any = fits.iter().flatten().any(|fits| *fits);
        for (key, (parameter, fits)) in self.parameters.iter().zip(&fits).enumerate() {
            let Domain::Choices(values) = &parameter.domain else { continue };
            for wrong in (0..values.len()).filter(|value| !fits[*value]) {
                let alone = Self { parameters: vec![parameter.clone()] }.at(base, &[corners.0[key][wrong]]).err();
                let beside = || self.at(base, &corners.with(key, wrong)).err().filter(|_| is_any);
                let Some(error) = alone.or_else(beside) else { continue };
                let reason = format!(
                    "{} = {} goes with no value of the others (ranges were tried at their ends and at the \
                     configuration's own value), as in {error}: leave this choice away, or change what it contradicts",
                    parameter.key, values[wrong]
                );
                return Err(Error::config(&parameter.place, reason));
            }
        }
        Ok(first.map(|first| Contradictions { all: corners.combinations(), wrong, first }))
    }

    /// Refuses a choice or an end of a range with which a rate would fall before it has risen, whatever the other keys
    /// of its course are: all trials from there on would fail, one by one.
    ///
    /// # Errors
    /// [`Error::Config`] that names the file, the line and both keys.
    pub fn check_courses(&self, base: &Config) -> Result<()> {
        let is_of_course = |of: &&Parameter| COURSES.contains(&of.key.strip_suffix("_rows").unwrap_or(&of.key));
        let space = Self { parameters: self.parameters.iter().filter(is_of_course).cloned().collect() };
        if space.parameters.is_empty() {
            return base.train.check_ends_of_warm_up();
        }
        let Some(corners) = Corners::of(&space, base) else { return Ok(()) };
        // What contradicts it otherwise may go together with keys that are not of a course.
        let falls = |places: &[f64]| space.put_on(base, places).ok()?.train.check_ends_of_warm_up().err();
        let fits = corners.fits(|places| falls(places).is_none());
        for (key, (Parameter { key: name, domain, place }, fits)) in space.parameters.iter().zip(&fits).enumerate() {
            // Not of the base's own value, behind them, which nobody asks for.
            for end in (0..domain.ends().len()).filter(|end| !fits[*end]) {
                let places = corners.with(key, end);
                let Some(error) = falls(&places) else { continue };
                let reason = format!(
                    "{name} = {} goes with no value of the others, as in {error}, or search where they do not contradict \
                     each other",
                    domain.at(places[key])
                );
                return Err(Error::config(place, reason));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{Setting, TrainConfig};

    const TEXT: &str = "[train]\nlr = { from = 0.01, to = 1.0, log = true }\n\
                        optimizer_rows = { choices = [\"sgd\", \"adagrad\"] }\n[model]\ndim = { choices = [8, 16, 32] }\n";

    #[test]
    fn a_choice_that_goes_with_nothing_is_told_before_the_first_trial() {
        let message = Space::parse(TEXT, "space.toml").unwrap().check(&Config::default()).unwrap_err().to_string();
        assert!(message.starts_with("space.toml:5: model.dim = 8 goes with no value of the others"), "{message}");
        assert!(message.contains("model.bottom ends in 16"), "{message}");
        // The remedy.
        let with = format!("{TEXT}bottom = {{ choices = [[13, 8], [13, 16], [13, 32]] }}\n");
        let found = Space::parse(&with, "space.toml").unwrap().check(&Config::default()).unwrap().unwrap();
        // Each width goes with one of three ends of the bottom MLP, whatever the others are.
        assert_eq!(3 * found.wrong, 2 * found.all);
        assert!(found.first.contains("model.bottom ends in 8 but model.dim is 16"), "{}", found.first);
    }

    #[test]
    fn a_choice_is_not_blamed_for_the_ends_of_a_range() {
        let base = Config::default();
        let check =
            |text: &str| Space::parse(text, "space.toml").unwrap().check(&base).map_err(|error| error.to_string());
        // Within the range is the number that the bottom MLP ends in, and that the configuration has.
        let dims = "[model]\ndim = { from = 8, to = 32 }\n";
        check(&format!("{dims}interaction = {{ choices = [\"dot\", \"cat\"] }}\n")).unwrap();
        // It is not: the dot interaction goes with none of these.
        let dims = "[model]\ndim = { from = 20, to = 32 }\n";
        let message = check(&format!("{dims}bottom = {{ choices = [[13, 16], [13, 32]] }}\n")).unwrap_err();
        assert!(message.starts_with("space.toml:3: model.bottom = [13, 16] goes with no value"), "{message}");
        // A choice that has nothing to do with what does not go together is not to blame.
        check(&format!("{dims}[train]\noptimizer = {{ choices = [\"sgd\", \"adam\"] }}\n")).unwrap();
        let wrong = "[data]\nseed = { choices = [1, 2] }\n[model]\ndim = { choices = [8, 32] }\n";
        let message = check(wrong).unwrap_err();
        assert!(message.starts_with("space.toml:4: model.dim = 8 goes with no value"), "{message}");
    }

    #[test]
    fn a_range_from_whose_end_on_rates_would_fall_before_they_have_risen_is_told_before_the_first_trial() {
        let train = TrainConfig { decay_steps: 20, decay_start: Setting::Given(10), ..TrainConfig::default() };
        let given = Config { train, ..Config::default() };
        let check = |base: &Config, text: &str| {
            let space = Space::parse(&format!("[train]\n{text}"), "space.toml").unwrap();
            space.check_courses(base).map_err(|error| error.to_string())
        };
        let warm = |to: u64| format!("warmup_steps = {{ from = 0, to = {to} }}\n");
        // More keys than there are corners for are none of a course.
        let others: String = ["lr", "lr_rows", "lr_wide", "momentum", "beta1", "beta2", "l1", "l2", "clip_norm"]
            .map(|key| format!("{key} = {{ from = 0.1, to = 0.5 }}\n"))
            .concat();
        let message = check(&given, &format!("{others}{}", warm(30))).unwrap_err();
        assert!(message.starts_with("space.toml:11: train.warmup_steps = 30 goes with no value"), "{message}");
        assert!(message.contains("train.decay_start: the rate would fall from step 10 on"), "{message}");
        // The remedies, of which one is that decay follows the warm-up, and another that it is searched over.
        check(&given, &warm(10)).unwrap();
        let train = TrainConfig { decay_start: Setting::AUTO, ..given.train.clone() };
        check(&Config { train, ..given.clone() }, &warm(30)).unwrap();
        check(&given, &format!("{}decay_start = {{ from = 0, to = 40 }}\n", warm(30))).unwrap();
        let train = TrainConfig { decay_steps: 0, ..given.train.clone() };
        check(&Config { train, ..given.clone() }, &warm(30)).unwrap();
        // The other way round, of rows alone, and of choices.
        let train = TrainConfig { warmup_steps: 4, ..given.train.clone() };
        let slow = Config { train, ..given.clone() };
        let message = check(&slow, "\ndecay_start = { from = 0, to = 40 }\n").unwrap_err();
        assert!(message.starts_with("space.toml:3: train.decay_start = 0 goes with no value"), "{message}");
        assert!(message.contains("before train.warmup_steps = 4 is over: set it to 4 or more"), "{message}");
        let message = check(&given, "warmup_steps_rows = { from = 0, to = 11 }\n").unwrap_err();
        assert!(message.contains("train.warmup_steps_rows = 11 goes with no value"), "{message}");
        let message = check(&given, "warmup_steps = { choices = [0, 12] }\n").unwrap_err();
        assert!(message.contains("train.warmup_steps = 12 goes with no value"), "{message}");
        // One in which nothing of it is searched over.
        let train = TrainConfig { warmup_steps: 11, ..given.train.clone() };
        let message = check(&Config { train, ..given }, "lr = { from = 0.1, to = 0.2 }\n").unwrap_err();
        assert!(message.starts_with("train.decay_start: the rate would fall"), "{message}");
    }
}
