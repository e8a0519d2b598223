//! How a stored value becomes a dense feature, and what has to be learned from training data for it.
//!
//! A stored data set keeps what the log said. What depends on other rows (the mean and deviation of a column that is
//! standardised, the newest moment of one that becomes an age) belongs to the model: it is learned from the training
//! samples when training begins, kept in the checkpoint, and used as it is wherever the model is. So the same value is
//! the same feature, whichever file it comes in.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Dense, Description, Transform};
use crate::data::dense::log_count;
use crate::data::moment::{DAY, Moment};
use crate::data::samples::{MISSING, Samples, Values};

/// What was learned of a dense column.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The newest moment, in seconds since 2000; 0 where values are no moments.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub newest: i32,
    /// The mean of values that are there; of ages, in days.
    #[serde(serialize_with = "exact", deserialize_with = "number")]
    pub mean: f64,
    /// Their standard deviation, of ages in days; 1 where all are equal.
    #[serde(serialize_with = "exact", deserialize_with = "number")]
    pub deviation: f64,
}

/// What was learned, by the column's name.
pub type Scales = BTreeMap<String, Scale>;

fn is_zero(newest: &i32) -> bool {
    *newest == 0
}

/// As text: readers of JSON may round numbers, and a run that goes on must have the very same ones.
fn exact<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let value = text.parse().ok().filter(|value: &f64| value.is_finite());
    value.ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no finite number")))
}

impl PartialEq for Scale {
    fn eq(&self, other: &Self) -> bool {
        let bits = |scale: &Self| (scale.newest, scale.mean.to_bits(), scale.deviation.to_bits());
        bits(self) == bits(other)
    }
}

impl Eq for Scale {}

impl Dense {
    /// Whether something must be learned from training data before values become features.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.age || self.transform == Transform::Standardise
    }

    /// How its values become features.
    ///
    /// # Panics
    /// When something has to be learned that was not: a defect of whoever opened the data.
    #[must_use]
    pub fn feature(&self) -> Feature {
        assert!(self.scale.is_some() || !self.learns(), "column {}: its scale is learned first", self.name);
        let scale = self.scale.unwrap_or(Scale { newest: 0, mean: 0.0, deviation: 1.0 });
        Feature { transform: self.transform, newest: self.age.then_some(Moment(scale.newest)), scale }
    }
}

/// How values of a column become features: small, to be held while many are turned.
#[derive(Debug, Clone, Copy)]
pub struct Feature {
    transform: Transform,
    /// Where values are moments: what their age is counted to.
    newest: Option<Moment>,
    scale: Scale,
}

impl Feature {
    /// The feature of an integer.
    #[must_use]
    #[inline]
    pub fn integer(self, value: i32) -> f32 {
        match (self.newest, self.transform) {
            (None, Transform::Log) => log_count(Some(i64::from(value))),
            _ if value == MISSING => 0.0,
            (None, Transform::None) => value as f32,
            (None, Transform::Standardise) => self.standardised(f64::from(value)),
            (Some(newest), transform) => {
                let days = Moment(value).days_until(newest);
                match transform {
                    Transform::None => days as f32,
                    Transform::Log => libm::log1p(days.max(0.0)) as f32,
                    Transform::Standardise => self.standardised(days),
                }
            }
        }
    }

    /// Writes the features of integers into cells: most are logarithms of counts, and what they are is asked once.
    pub(in crate::data) fn integers<'a>(self, pairs: impl Iterator<Item = (&'a mut f32, i32)>) {
        match (self.newest, self.transform) {
            (None, Transform::Log) => pairs.for_each(|(cell, value)| *cell = log_count(Some(value.into()))),
            _ => pairs.for_each(|(cell, value)| *cell = self.integer(value)),
        }
    }

    /// The feature of a float.
    #[must_use]
    #[inline]
    pub fn float(self, value: f32) -> f32 {
        match self.transform {
            _ if value.is_nan() => 0.0,
            Transform::Log => libm::log(f64::from(value.max(0.0) + 1.0)) as f32,
            Transform::None => value,
            Transform::Standardise => self.standardised(f64::from(value)),
        }
    }

    fn standardised(self, value: f64) -> f32 {
        ((value - self.scale.mean) / self.scale.deviation) as f32
    }
}

/// The columns that are logarithms of ages in which more than half of the values are newer than the newest moment that
/// was learned: nothing but 0 is left of these.
#[must_use]
pub fn lost_ages<'a>(description: &'a Description, samples: &Samples) -> Vec<&'a str> {
    let is_lost = |(column, values): &(&Dense, &Values)| {
        let Values::Integers(values) = values else { return false };
        let there = values.iter().filter(|value| **value != MISSING);
        let newer = |newest: i32| there.clone().filter(|value| **value > newest).count();
        let is_log = column.age && column.transform == Transform::Log;
        column.scale.filter(|_| is_log).is_some_and(|scale| 2 * newer(scale.newest) > there.clone().count())
    };
    let columns = description.dense.iter().zip(&samples.dense);
    columns.filter(is_lost).map(|(column, _)| &*column.name).collect()
}

/// Learns scales from one pass over training samples.
#[derive(Debug, Clone)]
pub struct Learner {
    columns: Vec<Option<Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    count: f64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
    newest: i32,
}

impl Learner {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(description: &Description) -> Self {
        let seen = Seen { count: 0.0, mean: 0.0, squares: 0.0, newest: i32::MIN };
        Self { columns: description.dense.iter().map(|column| column.learns().then_some(seen)).collect() }
    }

    /// Looks at samples.
    pub fn add(&mut self, samples: &Samples) {
        for (seen, values) in self.columns.iter_mut().zip(&samples.dense) {
            let Some(seen) = seen else { continue };
            (0..values.len()).filter_map(|at| values.number(at)).for_each(|value| seen.add(value));
        }
    }

    /// What was learned.
    #[must_use]
    pub fn scales(&self, description: &Description) -> Scales {
        let learned = self.columns.iter().zip(&description.dense);
        learned.filter_map(|(seen, column)| Some((column.name.clone(), seen.as_ref()?.scale(column.age)))).collect()
    }
}

impl Seen {
    /// Welford's update, which stays exact where values are large and their differences small.
    fn add(&mut self, value: f64) {
        // Moments are whole seconds.
        self.newest = self.newest.max(value as i32);
        self.count += 1.0;
        let from = value - self.mean;
        self.mean += from / self.count;
        self.squares += from * (value - self.mean);
    }

    fn scale(&self, age: bool) -> Scale {
        let days = |seconds: f64| seconds / DAY as f64;
        let spread = (self.squares / self.count.max(1.0)).sqrt();
        let spread = if age { days(spread) } else { spread };
        // Where all values are equal, every feature is 0, and that of a later day's age is in days.
        let deviation = if spread > 0.0 && spread.is_finite() { spread } else { 1.0 };
        if !age {
            return Scale { newest: 0, mean: self.mean, deviation };
        }
        let newest = if self.count > 0.0 { self.newest } else { 0 };
        Scale { newest, mean: days(f64::from(newest) - self.mean), deviation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(transform: Transform, age: bool, float: bool) -> Dense {
        Dense { name: "x".to_owned(), float, transform, age, scale: None }
    }

    fn learned(mut column: Dense, values: Values) -> Dense {
        let mut description = Description { dense: vec![column.clone()], ..Description::default() };
        let mut learner = Learner::new(&description);
        // In two portions.
        for half in 0..2 {
            let cut = |n: usize| if half == 0 { 0..n / 2 } else { n / 2..n };
            let values = match &values {
                Values::Integers(values) => Values::Integers(values[cut(values.len())].to_vec()),
                Values::Floats(values) => Values::Floats(values[cut(values.len())].to_vec()),
            };
            learner.add(&Samples { dense: vec![values], ..Samples::default() });
        }
        let scales = learner.scales(&description);
        let text = serde_json::to_string(&scales).unwrap();
        assert_eq!(serde_json::from_str::<Scales>(&text).unwrap(), scales, "{text}");
        description.scaled(&scales).unwrap();
        column.scale = description.dense[0].scale;
        column
    }

    #[test]
    fn standardised_values_have_mean_0_and_deviation_1_and_missing_ones_are_0() {
        let found = learned(column(Transform::Standardise, false, false), Values::Integers(vec![1, MISSING, 3, 5, 7]));
        assert_eq!(found.scale, Some(Scale { newest: 0, mean: 4.0, deviation: 5f64.sqrt() }));
        let feature = found.feature();
        assert_eq!([MISSING, 4, 9].map(|value| feature.integer(value)), [0.0, 0.0, 5f32.sqrt()]);
        let found = learned(column(Transform::Standardise, false, true), Values::Floats(vec![0.5, f32::NAN, 1.5]));
        assert_eq!([f32::NAN, 1.0, 2.0].map(|value| found.feature().float(value)), [0.0, 0.0, 2.0]);
        // Large values with small differences, a constant, and nothing at all.
        let large = (0..1000).map(|n| 2_000_000_000 + n % 2).collect();
        let found = learned(column(Transform::Standardise, false, false), Values::Integers(large)).scale.unwrap();
        assert!((found.deviation - 0.5).abs() < 1e-9 && (found.mean - 2_000_000_000.5).abs() < 1e-6, "{found:?}");
        for values in [vec![7, 7, 7], vec![MISSING], vec![]] {
            let found = learned(column(Transform::Standardise, false, false), Values::Integers(values.clone()));
            assert_eq!(found.feature().integer(values.first().copied().unwrap_or(0)), 0.0, "{values:?}");
        }
    }

    #[test]
    fn ages_are_days_to_the_newest_training_sample() {
        const DAY: i32 = 86_400;
        let moments = || Values::Integers(vec![-DAY, MISSING, 0, DAY]);
        let features = |transform| {
            let feature = learned(column(transform, true, false), moments()).feature();
            [DAY, DAY / 2, -DAY, 2 * DAY, MISSING].map(|value| feature.integer(value))
        };
        assert_eq!(features(Transform::None), [0.0, 0.5, 2.0, -1.0, 0.0]);
        assert_eq!(
            features(Transform::Log),
            [0.0, 1.5f32.ln(), 3f32.ln(), 0.0, 0.0],
            "newer ones than any are 0 days old"
        );
        let lost = |transform, values: Vec<i32>| {
            let dense = vec![learned(column(transform, true, false), moments())];
            let description = Description { dense, ..Description::default() };
            let mut samples = Samples::new(&description);
            samples.dense[0] = Values::Integers(values);
            lost_ages(&description, &samples).len()
        };
        let newer = || vec![MISSING, MISSING, DAY, 2 * DAY, 3 * DAY];
        assert_eq!([Transform::Log, Transform::Standardise].map(|transform| lost(transform, newer())), [1, 0]);
        assert_eq!(lost(Transform::Log, vec![DAY, 2 * DAY]), 0, "half of them");
        let deviation = (2.0f64 / 3.0).sqrt() as f32;
        let found = features(Transform::Standardise);
        let expected = [-1.0, -0.5, 1.0, -2.0, 0.0].map(|days| days / deviation);
        assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{found:?}");
    }

    #[test]
    fn ages_that_are_all_equal_or_missing_have_a_deviation_of_a_day() {
        const DAY: i32 = 86_400;
        let age = || column(Transform::Standardise, true, false);
        let found = learned(age(), Values::Integers(vec![5, 5, 5]));
        assert_eq!(found.scale, Some(Scale { newest: 5, mean: 0.0, deviation: 1.0 }));
        assert_eq!([5, 5 + DAY, 5 - 2 * DAY].map(|value| found.feature().integer(value)), [0.0, -1.0, 2.0]);
        let found = learned(age(), Values::Integers(vec![MISSING, MISSING]));
        assert_eq!(found.scale, Some(Scale { newest: 0, mean: 0.0, deviation: 1.0 }));
    }

    #[test]
    #[should_panic(expected = "its scale is learned first")]
    fn a_scale_that_was_not_learned_is_a_defect() {
        let _ = column(Transform::Standardise, false, false).feature();
    }
}
