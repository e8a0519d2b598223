//! How separated text becomes columns: a TOML document that names them, for `train --schema`, `convert`, `inspect` and
//! `preprocess csv` alike.
//!
//! ```toml
//! label = "rating >= 4"          # or "behavior == buy", or a column that holds 0 and 1
//! delimiter = ","                # the default
//! columns = ["user", "price"]    # the names of all columns, where the file has no header line
//! [[dense]]
//! column = "price"
//! float = true                   # decimal fractions; without it integers, or what the file turns out to hold
//! transform = "log"              # ln(x + 1); the default is none
//! [[dense]]
//! column = "history"             # 17,4,0,0
//! name = "length"
//! count = ","                    # the number of its values: 2
//! padding = "0"
//! [[categorical]]
//! column = "genres"              # Animation|Children's
//! separator = "|"
//! [[categorical]]
//! column = "age"
//! buckets = [18.0, 25.0, 50.0]
//! [[categorical]]
//! column = "device"
//! rows = 1000                    # values are hashed; without it they are numbered as they appear
//! ```

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::label::{Rule, finite};
use super::values;
use crate::base::{Error, Result};
use crate::data::formats::bad;
use crate::data::schema::Transform;

/// The columns of a text file that are read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextSchema {
    /// A column of 0 and 1, or a comparison: `column >= number`, with >=, <=, >, <, == or !=.
    pub label: String,
    /// What separates columns: one ASCII character.
    #[serde(default = "comma")]
    pub delimiter: char,
    /// The names of all columns, where the file has no header line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Dense features, in order.
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
    /// Whether values are decimal fractions rather than integers of 32 bits. Opening a file to train on it looks at all of
    /// its values and finds that out; `preprocess` reads once and must be told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub float: bool,
    /// What happens to a value on its way into a minibatch.
    #[serde(default)]
    pub transform: Transform,
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
    /// Numbers at which a new bucket begins, rising; a blank field has a bucket of its own, the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<f64>,
    /// Rows of the table, at most 2^32 - 1, where values are hashed; 0: they are numbered in the order of first appearance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows: u64,
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
    /// [`Error::Io`], and [`Error::BadFile`] with what is impossible.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path, "read"))?;
        let schema: Self =
            toml::from_str(&text).map_err(|error| bad(path, format!("is no schema of a text file: {error}")))?;
        schema.check().map_err(|reason| bad(path, reason))?;
        Ok(schema)
    }

    fn check(&self) -> std::result::Result<(), String> {
        if !self.delimiter.is_ascii() || matches!(self.delimiter, '"' | '\n' | '\r') {
            return Err(format!("delimiter = {:?}: one ASCII character is expected", self.delimiter));
        }
        Rule::parse(&self.label)?;
        for column in &self.dense {
            let name = column.name();
            match &column.count {
                Some(separator) if separator.is_empty() => return Err(format!("column {name}: count is empty")),
                Some(_) if column.float => return Err(format!("column {name}: a count of values is no fraction")),
                None if !column.padding.is_empty() => return Err(format!("column {name}: padding goes with count")),
                _ => (),
            }
        }
        for column in &self.categorical {
            let name = column.name();
            if column.separator.is_none() && !column.padding.is_empty() {
                return Err(format!("column {name}: padding goes with separator"));
            }
            let ways = [column.separator.is_some(), !column.buckets.is_empty()];
            if ways == [true, true] {
                return Err(format!("column {name}: separator and buckets exclude each other"));
            }
            if column.separator.as_ref().is_some_and(String::is_empty) {
                return Err(format!("column {name}: the separator is empty"));
            }
            if !column.buckets.is_sorted_by(|a, b| a < b) || column.buckets.iter().any(|edge| edge.is_nan()) {
                return Err(format!("column {name}: buckets must rise"));
            }
            if column.rows > u64::from(u32::MAX) {
                return Err(format!("column {name} has {} rows; at most 2^32 - 1 are possible", column.rows));
            }
            if !column.buckets.is_empty() && column.rows > 0 {
                return Err(format!("column {name}: rows follow from buckets"));
            }
        }
        Ok(())
    }

    /// The schema as a TOML document.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field of a schema is representable in TOML")
    }
}

impl TextDense {
    /// How many values a field has, where that is the feature.
    pub(in crate::data) fn counted(&self, field: &[u8]) -> Option<u32> {
        let separator = self.count.as_ref()?;
        Some(values(field, separator).filter(|value| !is_padding(value, &self.padding)).count() as u32)
    }

    /// Its name in the data set.
    #[must_use]
    pub fn name(&self) -> &str {
        if self.name.is_empty() { &self.column } else { &self.name }
    }
}

fn is_padding(value: &[u8], padding: &str) -> bool {
    !padding.is_empty() && value == padding.as_bytes()
}

impl TextCategorical {
    /// The values of a field, where one has several.
    pub(in crate::data) fn several<'a>(&'a self, field: &'a [u8]) -> Option<impl Iterator<Item = &'a [u8]>> {
        let separator = self.separator.as_ref()?;
        Some(values(field, separator).filter(|value| !is_padding(value, &self.padding)))
    }

    /// Rows of the table where they do not depend on the data.
    #[must_use]
    pub fn fixed_rows(&self) -> Option<u64> {
        match (self.buckets.len() as u64, self.rows) {
            (0, 0) => None,
            (0, rows) => Some(rows),
            (edges, _) => Some(edges + 2),
        }
    }

    /// The row of a value, where rows do not depend on the data: its bucket, or its hash.
    ///
    /// # Errors
    /// What was expected.
    pub(in crate::data) fn fixed_row(&self, value: &[u8]) -> std::result::Result<u32, &'static str> {
        if self.buckets.is_empty() {
            return Ok((u64::from(crc32fast::hash(value)) % self.rows) as u32);
        }
        if value.trim_ascii().is_empty() {
            return Ok(self.buckets.len() as u32 + 1);
        }
        let value = finite(value).ok_or("a number")?;
        Ok(self.buckets.partition_point(|&edge| edge <= value) as u32)
    }

    /// Its name in the data set.
    #[must_use]
    pub fn name(&self) -> &str {
        if self.name.is_empty() { &self.column } else { &self.name }
    }
}
