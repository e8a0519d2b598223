//! What the rows of a stored data set hold, column by column: a TOML document that a person can read and edit.
//!
//! Dense columns keep what the log said, integers as integers; transforms are applied when a minibatch is made, and
//! what they learn from training samples is the model's (see [`super::feature`]). Row numbers of categorical columns
//! are below `rows`; a limit on table sizes is applied at load, never stored.

use std::ops::RangeInclusive;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Column, Scale, Scales, Schema};
use crate::base::{Error, Result};

/// The columns of a stored data set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The column by whose values samples count, where they do not count the same: the last of `dense`, as floats. So
    /// it is read, kept, shuffled and written as any dense column is, by code that knows nothing of it; a model's
    /// features end before it ([`Description::features`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// What is to be predicted.
    #[serde(default)]
    pub label: Label,
    /// Dense features, in the order in which a model sees them.
    #[serde(default)]
    pub dense: Vec<Dense>,
    /// Categorical columns, one embedding table each, in order.
    #[serde(default)]
    pub categorical: Vec<Categorical>,
}

/// The label column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// Its name.
    pub name: String,
    /// Whether labels are f32 rather than 0 or 1.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub float: bool,
}

/// A dense column.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dense {
    /// Its name.
    pub name: String,
    /// Whether values are f32 rather than i32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub float: bool,
    /// What happens to a value on its way into a minibatch.
    #[serde(default)]
    pub transform: Transform,
    /// Whether values are moments, in seconds since the start of 2000 (UTC), of which the age in days is the feature:
    /// against the newest of the training samples.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub age: bool,
    /// What was learned of it from training samples, where that is needed: never stored with the data.
    #[serde(skip)]
    pub scale: Option<Scale>,
}

impl Transform {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Log, Self::Standardise];
}

impl Dense {
    /// Its name, and how it is transformed.
    #[must_use]
    pub fn title(&self) -> (String, String) {
        let transform = match self.transform {
            Transform::None => "as it is",
            Transform::Log => "by log",
            Transform::Standardise => "standardised",
        };
        (self.name.clone(), if self.age { format!("as an age, {transform}") } else { transform.to_owned() })
    }
}

/// How a stored value becomes a dense feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transform {
    /// As it is; 0 where it is missing.
    #[default]
    None,
    /// ln(x + 1), missing and negative values as 0 (see [`super::super::dense`]).
    Log,
    /// (x - mean) / deviation, both of the training samples; 0 where it is missing.
    Standardise,
}

/// A categorical column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Categorical {
    /// Its name.
    pub name: String,
    /// Row numbers are below this; 1 to 2^32 - 1.
    pub rows: u64,
    /// Look-ups of every sample; 0: any number, each sample its own.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub hots: u32,
    /// Whether every look-up has a weight.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weighted: bool,
    /// The file, beside the manifest, that has the values behind the row numbers; empty: there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vocabulary: String,
}

fn one() -> u32 {
    1
}

fn is_one(hots: &u32) -> bool {
    *hots == 1
}

impl Default for Label {
    fn default() -> Self {
        Self { name: "label".to_owned(), float: false }
    }
}

impl Categorical {
    /// A column with one look-up a sample.
    #[must_use]
    pub fn new(name: impl Into<String>, rows: u64) -> Self {
        Self { name: name.into(), rows, hots: 1, weighted: false, vocabulary: String::new() }
    }
}

/// Weights of samples that count. Scores add them up in fixed point, which has no room for many larger ones, and too
/// few digits for smaller ones.
const WEIGHTS: RangeInclusive<f32> = 1e-9..=1e9;

/// Whether a sample can have this weight; one of 0 does not count.
#[must_use]
pub fn is_weight(weight: f32) -> bool {
    weight == 0.0 || WEIGHTS.contains(&weight)
}

/// What is expected of a weight that is none, for messages.
pub const A_WEIGHT: &str = "a weight, which is 0 or a number from 10^-9 to 10^9,";

/// Checks that no two columns have one name.
///
/// # Errors
/// A sentence that names the columns.
pub fn check_names<'a>(names: impl IntoIterator<Item = &'a str>) -> std::result::Result<(), String> {
    let mut seen = std::collections::HashSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(format!("two columns are called {twice}")),
        None => Ok(()),
    }
}

impl Description {
    /// In what these columns differ from others first, for people; nothing where they are the same. What is numbered by
    /// no file of values, as blocks that have left the folder of theirs, may be numbered by any.
    #[must_use]
    pub fn difference(&self, others: &Self) -> Option<String> {
        let counts = |of: &Self| (of.dense.len(), of.categorical.len());
        if self == others {
            return None;
        }
        // That of weights is one of the dense columns.
        if self.weight != others.weight {
            let told = |of: &Self| of.weight.as_ref().map_or("all the same".to_owned(), |name| format!("by {name}"));
            let (has, had) = (told(self), told(others));
            return Some(format!("its samples count {has}, not {had}: weigh both by a column of one name, or neither"));
        }
        if counts(self) != counts(others) {
            let ((dense, categorical), (wanted, also)) = (counts(self), counts(others));
            return Some(format!("{dense} dense and {categorical} categorical ones, not {wanted} and {also}"));
        }
        if let Some((has, had)) = self.dense.iter().zip(&others.dense).find(|(has, had)| has != had) {
            return Some(match has.name == had.name {
                true => format!("{} is of another type, or transformed otherwise", has.name),
                false => format!("{} stands in the place of {}", has.name, had.name),
            });
        }
        let differ = |(has, had): &(&Categorical, &Categorical)| {
            let is_told = !has.vocabulary.is_empty() && !had.vocabulary.is_empty();
            let vocabulary = if is_told { &has.vocabulary } else { &had.vocabulary };
            Categorical { vocabulary: vocabulary.clone(), ..(*has).clone() } != **had
        };
        let Some((has, had)) = self.categorical.iter().zip(&others.categorical).find(differ) else {
            let is_other = self.label != others.label;
            return is_other.then(|| format!("its label is {}, not {}", self.label.name, others.label.name));
        };
        let name = &has.name;
        let hots = |column: &Categorical| match column.hots {
            0 => "any number of look-ups".to_owned(),
            hots => format!("{hots} look-ups"),
        };
        Some(match () {
            () if has.name != had.name => format!("{name} stands in the place of {}", had.name),
            () if has.rows != had.rows => format!("{name} has {} rows, not {}", has.rows, had.rows),
            () if has.hots != had.hots => format!("{name} has {} a sample, not {}", hots(has), hots(had)),
            () if has.weighted != had.weighted => format!("look-ups of {name} have weights in one of the two only"),
            () => format!("values of {name} are numbered by {:?}, not by {:?}", has.vocabulary, had.vocabulary),
        })
    }

    /// Criteo's layout: integers I1 to I`dense`, read as logarithms, and one-hot columns C1 to Cn.
    #[must_use]
    pub fn criteo(dense: usize, rows: &[u64]) -> Self {
        let integer = |n| Dense { name: format!("I{n}"), transform: Transform::Log, ..Dense::default() };
        Self {
            weight: None,
            label: Label::default(),
            dense: (1..=dense).map(integer).collect(),
            categorical: rows.iter().zip(1..).map(|(&rows, n)| Categorical::new(format!("C{n}"), rows)).collect(),
        }
    }

    /// A TOML document; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::BadFile`] with the place in the document, or the column that cannot be.
    pub fn parse(text: &str, origin: &Path) -> Result<Self> {
        let fail = |reason: String| Error::bad_file(origin, reason);
        let found: Self = toml::from_str(text).map_err(|error| fail(format!("is no schema: {error}")))?;
        found.check().map_err(fail)?;
        Ok(found)
    }

    /// What is impossible about these columns.
    ///
    /// # Errors
    /// A sentence that names the column.
    pub fn check(&self) -> std::result::Result<(), String> {
        for column in &self.categorical {
            if column.rows == 0 || column.rows > u64::from(u32::MAX) {
                let Categorical { name, rows, .. } = column;
                return Err(format!("column {name} has {rows} rows; 1 to 2^32 - 1 are possible"));
            }
        }
        if let Some(weight) = &self.weight {
            let plain = Dense { name: weight.clone(), float: true, ..Dense::default() };
            if self.dense.last() != Some(&plain) {
                return Err(format!(
                    "weight = {weight:?} is to be the last of the dense columns, with float = true and nothing else"
                ));
            }
        }
        if let Some(Dense { name, .. }) = self.dense.iter().find(|column| column.age && column.float) {
            return Err(format!("column {name}: moments are whole seconds, so float = true does not go with age"));
        }
        let dense = self.dense.iter().map(|column| column.name.as_str());
        let categorical = self.categorical.iter().map(|column| column.name.as_str());
        check_names(dense.chain(categorical).chain([self.label.name.as_str()]))
    }

    /// The dense columns that are a model's features: all but that of weights.
    #[must_use]
    pub fn features(&self) -> &[Dense] {
        &self.dense[..self.dense.len() - usize::from(self.weight.is_some())]
    }

    /// Whether a dense column is that of weights.
    #[must_use]
    pub fn weighs(&self, dense: usize) -> bool {
        self.weight.is_some() && dense + 1 == self.dense.len()
    }

    /// The first categorical column of which a sample does not look up one row, without a weight.
    #[must_use]
    pub fn not_one_hot(&self) -> Option<&Categorical> {
        self.categorical.iter().find(|column| column.hots != 1 || column.weighted)
    }

    /// The first categorical column of which samples look up differently many rows, or rows with weights.
    #[must_use]
    pub fn not_multi_hot(&self) -> Option<&Categorical> {
        self.categorical.iter().find(|column| column.hots == 0 || column.weighted)
    }

    /// Takes over what was learned of dense columns.
    ///
    /// # Errors
    /// The name of a column of which something is needed that is not there.
    pub fn scaled(&mut self, scales: &Scales) -> std::result::Result<(), String> {
        for column in self.dense.iter_mut().filter(|column| column.learns()) {
            column.scale = Some(*scales.get(&column.name).ok_or_else(|| column.name.clone())?);
        }
        Ok(())
    }

    /// The columns with dense features as they are: as formats hold them that know no transforms.
    #[must_use]
    pub fn with_features(mut self) -> Self {
        for column in &mut self.dense {
            *column = Dense { name: std::mem::take(&mut column.name), float: true, ..Dense::default() };
        }
        self
    }

    /// The columns as a TOML document.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field of a description is representable in TOML")
    }

    /// What the model sees, with at most `cap` rows a table (0: no limit).
    #[must_use]
    pub fn schema(&self, cap: u64) -> Schema {
        let limit = if cap == 0 { u64::MAX } else { cap };
        let tables = self
            .categorical
            .iter()
            .map(|column| Column {
                weighted: column.weighted,
                ..Column::new(column.name.clone(), column.rows.min(limit))
            })
            .collect();
        Schema { dense: self.features().len(), weighted: self.weight.is_some(), tables }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_survives_toml_and_says_what_is_wrong() {
        let mut description = Description::criteo(2, &[10, 20, 30]);
        description.dense[1] = Dense { name: "price".to_owned(), float: true, ..Dense::default() };
        description.dense.push(Dense { name: "time".to_owned(), age: true, ..description.dense[0].clone() });
        description.categorical[1].hots = 0;
        description.categorical[2] = Categorical {
            weighted: true,
            vocabulary: "C3.txt".to_owned(),
            hots: 4,
            ..description.categorical[2].clone()
        };
        let names = |description: &Description| {
            [description.not_one_hot(), description.not_multi_hot()]
                .map(|column| column.map(|column| column.name.clone()))
        };
        assert_eq!(names(&description), [Some("C2".to_owned()), Some("C2".to_owned())]);
        description.categorical[1].hots = 2;
        assert_eq!(names(&description), [Some("C2".to_owned()), Some("C3".to_owned())]);
        description.categorical[1].hots = 0;
        let text = description.to_toml();
        assert_eq!(Description::parse(&text, Path::new("x")).unwrap(), description);
        let message = |from: &str, to: &str| {
            Description::parse(&text.replacen(from, to, 1), Path::new("x.toml")).unwrap_err().to_string()
        };
        assert!(message("rows = 20", "rows = 0").contains("x.toml: column C2 has 0 rows"));
        assert!(message("\"C2\"", "\"C1\"").contains("two columns are called C1"));
        assert!(message("hots", "hats").contains("hats"));
        assert!(message("age = true", "age = true\nfloat = true").contains("column time: moments are whole seconds"));
        assert_eq!(description.schema(15).rows(), [10, 15, 15]);
        // Of the dense columns, that of weights is the last, and no feature.
        assert!(!description.weighs(2) && !description.schema(0).weighted);
        description.weight = Some("w".to_owned());
        assert!(description.check().unwrap_err().contains("weight = \"w\" is to be the last of the dense columns"));
        description.dense.push(Dense { name: "w".to_owned(), float: true, ..Dense::default() });
        let text = description.to_toml();
        assert_eq!(Description::parse(&text, Path::new("x")).unwrap(), description);
        assert_eq!((description.features().len(), description.weighs(2), description.weighs(3)), (3, false, true));
        assert_eq!((description.schema(0).dense, description.schema(0).weighted), (3, true));
        // Before columns are counted, of which that of weights is one.
        let alike = Description { weight: None, dense: description.features().to_vec(), ..description.clone() };
        let told = "its samples count all the same, not by w: weigh both by a column of one name, or neither";
        assert_eq!(alike.difference(&description).as_deref(), Some(told));
        assert!(description.difference(&alike).unwrap().starts_with("its samples count by w, not all the same"));
        assert!([0.0, 1e-9, 0.5, 1e9].into_iter().all(is_weight));
        assert!(![-0.5, 1e-10, 2e9, f32::INFINITY, f32::NAN].into_iter().any(is_weight));
    }
}
