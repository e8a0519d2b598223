//! How separated text becomes columns: a TOML document that names them, for `train --schema`, `convert`, `inspect` and
//! `preprocess csv` alike.
//!
//! ```toml
//! label = "rating >= 4"
//! [[dense]]
//! column = "price"
//! transform = "log"
//! [[categorical]]
//! column = "genres"              # Animation|Children's
//! separator = "|"
//! ```
//!
//! Every key is explained, with an example, in [`super::keys`], which `octorec schema` prints.

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::found_instead;
use super::label::{Rule, finite};
use super::lookups::{trimmed, values_of};
use super::row::is_named;
use crate::base::{Result, input};
use crate::data::Labels;
use crate::data::formats::bad;
use crate::data::moment::Unit;
use crate::data::schema::{Categorical, Dense, Description, Label, Transform, check_names};
use crate::data::text::is_parquet_at;

/// The columns of a text file that are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextSchema {
    /// A column of 0 and 1, or a comparison: `column >= number`, with >=, <=, >, <, == or !=.
    pub label: String,
    /// The column of rows' weights; nothing: all count the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// What separates columns: one ASCII character.
    #[serde(default = "comma")]
    pub delimiter: char,
    /// The names of all columns, where the file has no header line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Texts that count as blank fields, in every column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Dense features, in order; behind them the weight, once it is there (`weighing`).
    #[serde(default)]
    pub dense: Vec<TextDense>,
    /// Categorical columns, in order.
    #[serde(default)]
    pub categorical: Vec<TextCategorical>,
}

/// A dense column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextDense {
    /// Its name in the header.
    pub column: String,
    /// Its name in the data set, where that differs: one text column may serve twice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What separates the values of a field whose number of values is the feature; nothing: the field is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// With `count`, the value that stands for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub padding: String,
    /// Whether values are decimal fractions rather than integers of 32 bits. Opening a file to train on it looks at all
    /// of its values and finds that out; `preprocess` reads once and must be told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub float: bool,
    /// What happens to a value on its way into a minibatch.
    #[serde(default)]
    pub transform: Transform,
    /// That values are moments, and what of them is the feature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
    /// With `time`, how moments are written; nothing: in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// That values are no feature, but the rows' weights.
    #[serde(skip)]
    pub weighs: bool,
}

/// What of a moment is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Span {
    /// Days from there to the newest of the training samples.
    Age,
}

/// What of a moment is a category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The hour of the day: rows 0 to 23, and 24 for a blank field.
    Hour,
    /// The day of the week: rows 0 (Monday) to 6, and 7 for a blank field.
    Weekday,
}

/// A categorical column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextCategorical {
    /// Its name in the header.
    pub column: String,
    /// Its name in the data set, where that differs: one text column may serve twice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What separates the values of a field that has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<String>,
    /// With `separator`, the value that stands for none: it makes lists equally long.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub padding: String,
    /// The column of the look-ups' weights: as many as there are values, separated as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// What stands between a value and its weight, where weights are in the same field: `:` for `drama:0.7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_separator: Option<String>,
    /// Numbers at which a new bucket begins, rising; a blank field has a bucket of its own, the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<f64>,
    /// Rows of the table, at most 2^32 - 1, where values are hashed; 0: they are numbered in the order of first
    /// appearance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows: u64,
    /// That values are moments, and what of them is the category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Clock>,
    /// With `time`, how moments are written; nothing: in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
}

fn comma() -> char {
    ','
}

fn is_zero(rows: &u64) -> bool {
    *rows == 0
}

impl TextSchema {
    /// Reads a schema from its file.
    ///
    /// # Errors
    /// [`crate::base::Error::Io`], and [`crate::base::Error::BadFile`] with what is impossible.
    pub fn read(path: &Path) -> Result<Self> {
        Self::kept_or_read(None, path).map(|(schema, _)| schema)
    }

    /// The schema whose text a trained model keeps, or else that of the file; with its text.
    ///
    /// # Errors
    /// As [`TextSchema::read`].
    pub fn kept_or_read(kept: Option<String>, path: &Path) -> Result<(Self, String)> {
        let is_kept = kept.is_some();
        let fail = |reason: String| match is_kept {
            true => bad(
                Path::new("the checkpoint's schema"),
                format!("{reason}; if another version of octorec wrote it, read it with that"),
            ),
            false => bad(path, reason),
        };
        let text = kept.map_or_else(|| input::read_text(path), Ok)?;
        let schema: Self =
            toml::from_str(&text).map_err(|error| fail(format!("is no schema of a text file: {error}")))?;
        let schema = schema.weighing();
        schema.check().map_err(fail)?;
        if !is_kept {
            schema.check_label().map_err(fail)?;
        }
        Ok((schema, text))
    }

    pub(super) fn check(&self) -> std::result::Result<(), String> {
        if !self.delimiter.is_ascii() || matches!(self.delimiter, '"' | '\n' | '\r') {
            return Err(format!("delimiter = {:?}: one ASCII character is expected", self.delimiter));
        }
        Rule::parse(&self.label)?;
        self.check_weight()?;
        if let Some(text) =
            self.missing.iter().find(|text| text.is_empty() || trimmed(text.as_bytes()) != text.as_bytes())
        {
            return Err(format!("missing has {text:?}: a text without blanks around it is expected, such as \"NULL\""));
        }
        let dense = self.dense.iter().map(|column| (column.name(), column.check()));
        let categorical = self.categorical.iter().map(|column| (column.name(), column.check()));
        for (name, checked) in dense.chain(categorical) {
            checked.map_err(|reason| format!("column {name}: {reason}"))?;
        }
        if self.categorical.iter().any(|column| column.name().is_empty()) {
            // That of an index, as other programs write it.
            return Err("[[categorical]] column = \"\" has no name, and a model knows its columns by their names: give it one, such \
                        as name = \"index\", or leave it out"
                .to_owned());
        }
        let dense = self.dense.iter().map(TextDense::name);
        let categorical = self.categorical.iter().map(TextCategorical::name);
        check_names(dense.chain(categorical).chain([self.label.as_str()]))
            .map_err(|reason| format!("{reason}: give one of them another `name`"))
    }

    /// The schema with the weight that it names as the last of the dense columns, which it is for all that read rows;
    /// as it is where it names none, or has it there.
    #[must_use]
    pub(super) fn weighing(mut self) -> Self {
        self.dense.retain(|column| !column.weighs);
        let weight =
            |column: &String| TextDense { column: column.clone(), float: true, weighs: true, ..TextDense::default() };
        self.dense.extend(self.weight.as_ref().map(weight));
        self
    }

    /// The schema as a TOML document.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut written = self.clone();
        written.dense.retain(|column| !column.weighs);
        toml::to_string(&written).expect("every field of a schema is representable in TOML")
    }
}

impl TextSchema {
    /// The schema of the file at `path`: the text of Parquet has commas and a line of names, whatever is said of text.
    pub(in crate::data) fn at(&self, path: &Path) -> Cow<'_, Self> {
        let is_told = self.delimiter == comma() && self.columns.is_empty();
        match !is_told && is_parquet_at(path) {
            true => Cow::Owned(Self { delimiter: comma(), columns: Vec::new(), ..self.clone() }),
            false => Cow::Borrowed(self),
        }
    }

    /// Whether rows are read by a column of this name: what others hold does not matter.
    pub(in crate::data) fn reads(&self, name: &str, labels: Labels) -> bool {
        let is_it = |own: &str| is_named(name.as_bytes(), own);
        // The name of the label's column may look like a comparison.
        let is_label = || is_it(&self.label) || Rule::parse(&self.label).is_ok_and(|(column, _)| is_it(&column));
        let weighs = labels == Labels::Required;
        labels != Labels::Unused && is_label()
            || weighs && self.weight.as_deref().is_some_and(is_it)
            || self.dense.iter().any(|column| (!column.weighs || weighs) && is_it(&column.column))
            || self.categorical.iter().any(|spec| is_it(&spec.column) || spec.weights.as_deref().is_some_and(is_it))
    }

    /// The columns of the data set that it becomes: `float`: whether a dense column holds fractions; `table`: rows of a
    /// categorical column's table, and whether a sample may have none of them.
    pub(in crate::data) fn description(
        &self,
        float: impl Fn(usize) -> bool,
        table: impl Fn(usize) -> (u64, bool),
    ) -> Description {
        let categorical = self.categorical.iter().enumerate().map(|(at, column)| {
            let (rows, empty_bags) = table(at);
            let hots = u32::from(column.separator.is_none() && !empty_bags);
            Categorical { hots, weighted: column.weighted(), ..Categorical::new(column.name(), rows) }
        });
        Description {
            weight: self.dense.last().filter(|column| column.weighs).map(|column| column.name().to_owned()),
            label: Label { name: self.label.clone(), float: false },
            dense: self.dense.iter().enumerate().map(|(at, column)| column.described(float(at))).collect(),
            categorical: categorical.collect(),
        }
    }

    /// Hashes the values of columns that would be numbered into `rows` rows.
    ///
    /// # Errors
    /// The name of a column for which no number of rows is given.
    pub(super) fn hash(&mut self, rows: u64) -> std::result::Result<(), String> {
        let numbered = self.categorical.iter_mut().filter(|column| column.fixed_rows().is_none());
        for column in numbered {
            if rows == 0 {
                return Err(column.name().to_owned());
            }
            column.rows = rows.min(u64::from(u32::MAX));
        }
        Ok(())
    }
}

impl TextDense {
    fn check(&self) -> std::result::Result<(), String> {
        let reason = match (&self.count, self.time) {
            (Some(separator), _) if separator.is_empty() => "count is empty",
            (Some(_), _) if self.float => "a count of values is no fraction",
            (None, _) if !self.padding.is_empty() => "padding goes with count",
            (Some(_), Some(_)) => "count and time exclude each other",
            (_, Some(_)) if self.float => "a time is read by its unit: leave float out",
            (_, None) if self.unit.is_some() => "unit goes with time",
            _ => return Ok(()),
        };
        Err(reason.to_owned())
    }

    /// What a field has to be, where it is a moment.
    #[must_use]
    pub fn unit(&self) -> Option<Unit> {
        self.time.map(|Span::Age| self.unit.unwrap_or_default())
    }

    /// The column of a data set that it becomes; `float`: whether values are fractions.
    #[must_use]
    pub fn described(&self, float: bool) -> Dense {
        let Self { transform, time, .. } = *self;
        Dense { name: self.name().to_owned(), float, transform, age: time == Some(Span::Age), scale: None }
    }

    /// How many values a field has, where that is the feature.
    pub(super) fn counted(&self, field: &[u8]) -> Option<u32> {
        let separator = self.count.as_ref()?;
        Some(values_of(field, separator, &self.padding).count() as u32)
    }

    /// Its name in the data set.
    #[must_use]
    pub fn name(&self) -> &str {
        if self.name.is_empty() { &self.column } else { &self.name }
    }
}

impl TextCategorical {
    fn check_weights(&self) -> std::result::Result<(), String> {
        let reason = match (&self.weights, &self.weight_separator) {
            (Some(_), Some(_)) => "weights and weight_separator exclude each other".to_owned(),
            (Some(weights), None) if is_named(weights.as_bytes(), &self.column) => {
                "its weights stand in a column of their own, or behind a weight_separator".to_owned()
            }
            (None, Some(separator)) if separator.is_empty() || self.separator.as_ref() == Some(separator) => {
                format!("weight_separator = {separator:?} must tell a weight from the next value")
            }
            _ => return Ok(()),
        };
        Err(reason)
    }

    /// Whether look-ups have weights.
    #[must_use]
    pub fn weighted(&self) -> bool {
        self.weights.is_some() || self.weight_separator.is_some()
    }

    fn check(&self) -> std::result::Result<(), String> {
        self.check_weights()?;
        let ways = [
            ("separator", self.separator.is_some()),
            ("buckets", !self.buckets.is_empty()),
            ("time", self.time.is_some()),
        ];
        let mut used = ways.iter().filter(|(_, used)| *used).map(|(name, _)| *name);
        let reason = match (used.next(), used.next()) {
            (Some(one), Some(other)) => format!("{one} and {other} exclude each other"),
            (None | Some("buckets" | "time"), _) if !self.padding.is_empty() => {
                "padding goes with separator".to_owned()
            }
            (Some(way @ ("buckets" | "time")), _) if self.rows > 0 => format!("rows follow from {way}"),
            _ if self.time.is_none() && self.unit.is_some() => "unit goes with time".to_owned(),
            _ if self.separator.as_ref().is_some_and(String::is_empty) => "the separator is empty".to_owned(),
            _ if !self.buckets.is_sorted_by(|a, b| a < b) || self.buckets.iter().any(|edge| edge.is_nan()) => {
                "buckets must rise".to_owned()
            }
            _ if self.rows > u64::from(u32::MAX) => {
                format!("{} rows are too many: at most 2^32 - 1 are possible", self.rows)
            }
            _ => return Ok(()),
        };
        Err(reason)
    }

    /// Rows of the table where they do not depend on the data.
    #[must_use]
    pub fn fixed_rows(&self) -> Option<u64> {
        match (self.time, self.buckets.len() as u64, self.rows) {
            (Some(Clock::Hour), ..) => Some(24 + 1),
            (Some(Clock::Weekday), ..) => Some(7 + 1),
            (None, 0, 0) => None,
            (None, 0, rows) => Some(rows),
            (None, edges, _) => Some(edges + 2),
        }
    }

    /// The row of a value, where rows do not depend on the data: its hour or weekday, its bucket, or its hash.
    ///
    /// # Errors
    /// What was expected, and what was found.
    pub(in crate::data) fn fixed_row(&self, value: &[u8]) -> std::result::Result<u32, String> {
        let wrong = |expected| found_instead(&self.column, expected, value);
        if let Some(clock) = self.time {
            let blank = self.fixed_rows().expect("a clock has its rows") as u32 - 1;
            if value.trim_ascii().is_empty() {
                return Ok(blank);
            }
            let unit = self.unit.unwrap_or_default();
            let moment = unit.parse(value).ok_or_else(|| wrong(unit.expects()))?;
            return Ok(match clock {
                Clock::Hour => moment.hour(),
                Clock::Weekday => moment.weekday(),
            });
        }
        if self.buckets.is_empty() {
            return Ok((u64::from(crc32fast::hash(value)) % self.rows) as u32);
        }
        if value.trim_ascii().is_empty() {
            return Ok(self.buckets.len() as u32 + 1);
        }
        let value = finite(value).ok_or_else(|| wrong("a number"))?;
        Ok(self.buckets.partition_point(|&edge| edge <= value) as u32)
    }

    /// Its name in the data set.
    #[must_use]
    pub fn name(&self) -> &str {
        if self.name.is_empty() { &self.column } else { &self.name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_a_model_keeps_is_not_told_what_a_written_one_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.toml");
        let user = "missing = [\"NULL\"]\n[[categorical]]\ncolumn = \"user\"\n";
        for (label, more, told) in [
            ("rating >= 4", "[[dense]]\ncolumn = \"rating\"\n", "[[dense]] column = \"rating\" reads as a feature"),
            ("bought != NULL", "", "\"NULL\" counts as blank (missing), and a row without a label is malformed"),
            ("bought == 'NULL'", "", "compare with a blank field (label = \"bought ==\")"),
        ] {
            let text = format!("label = \"{label}\"\n{user}{more}");
            std::fs::write(&path, &text).unwrap();
            let message = TextSchema::read(&path).unwrap_err().to_string();
            assert!(message.starts_with(&path.display().to_string()) && message.contains(told), "{message}");
            let (kept, same) = TextSchema::kept_or_read(Some(text.clone()), &path).unwrap();
            assert_eq!((kept.label.as_str(), same), (label, text));
        }
        // The label's column, but for blanks.
        let columns = "label = \"rating >= 4\"\ncolumns = [\"rating\", \"user\"]\n";
        std::fs::write(&path, format!("{columns}{user}[[dense]]\ncolumn = \" rating\"\n")).unwrap();
        let message = TextSchema::read(&path).unwrap_err().to_string();
        assert!(message.contains("[[dense]] column = \" rating\" reads as a feature"), "{message}");
        // So with weights, of rows and of look-ups.
        for (text, told) in [
            (
                format!("weight = \" label\"\nlabel = \"label\"\ncolumns = [\"label\", \"user\"]\n{user}"),
                "weight = \" label\" says how much each row counts",
            ),
            (
                format!("label = \"y\"\n{user}separator = \"|\"\nweights = \" user\"\n"),
                "its weights stand in a column of their own",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let message = TextSchema::read(&path).unwrap_err().to_string();
            assert!(message.contains(told), "{message}");
        }
        // What no version has taken is refused of both.
        let message = TextSchema::kept_or_read(Some(format!("label = \"y\"\ndelimiter = '\"'\n{user}")), &path);
        assert!(message.unwrap_err().to_string().contains("the checkpoint's schema: delimiter"));
        let (_, rule) = Rule::parse("bought !=").unwrap();
        assert_eq!((rule.label(b""), rule.label(b"2024-01-01")), (Some(0.0), Some(1.0)), "the remedy");
    }
}
