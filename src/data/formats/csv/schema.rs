//! How separated text with a header becomes columns: a TOML document that names them.
//!
//! ```toml
//! label = "rating >= 4"          # or a column that holds 0 and 1
//! delimiter = ","                # the default
//! [[dense]]
//! column = "price"
//! transform = "log"              # ln(x + 1); the default is none
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
    /// Dense features, in order.
    #[serde(default)]
    pub dense: Vec<TextDense>,
    /// Categorical columns, in order.
    #[serde(default)]
    pub categorical: Vec<TextCategorical>,
}

/// A dense column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextDense {
    /// Its name in the header.
    pub column: String,
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
    /// Numbers at which a new bucket begins, rising; a blank field has a bucket of its own, the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<f64>,
    /// Rows of the table, where values are hashed; 0: they are numbered in the order of first appearance.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows: u64,
}

fn comma() -> char {
    ','
}

fn is_zero(rows: &u64) -> bool {
    *rows == 0
}

/// A label as it is found in a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LabelRule {
    pub(super) column: String,
    pub(super) comparison: Option<(Comparison, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    AtLeast,
    AtMost,
    Equal,
    Unequal,
    Above,
    Below,
}

impl Comparison {
    /// The longer ones first: `>` is a part of `>=`.
    const ALL: [(&'static str, Self); 6] = [
        (">=", Self::AtLeast),
        ("<=", Self::AtMost),
        ("==", Self::Equal),
        ("!=", Self::Unequal),
        (">", Self::Above),
        ("<", Self::Below),
    ];

    pub(super) fn holds(self, a: f64, b: f64) -> bool {
        match self {
            Self::AtLeast => a >= b,
            Self::AtMost => a <= b,
            Self::Equal => a == b,
            Self::Unequal => a != b,
            Self::Above => a > b,
            Self::Below => a < b,
        }
    }
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
        if !self.delimiter.is_ascii() {
            return Err(format!("delimiter = '{}' must be one ASCII character", self.delimiter));
        }
        self.rule()?;
        for column in &self.categorical {
            let name = column.name();
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
            if !column.buckets.is_empty() && column.rows > 0 {
                return Err(format!("column {name}: rows follow from buckets"));
            }
        }
        Ok(())
    }

    pub(super) fn rule(&self) -> std::result::Result<LabelRule, String> {
        let found = Comparison::ALL.iter().find_map(|(sign, comparison)| {
            self.label.split_once(sign).map(|(column, number)| (column, *comparison, number))
        });
        let Some((column, comparison, number)) = found else {
            return Ok(LabelRule { column: self.label.trim().to_owned(), comparison: None });
        };
        let number =
            number.trim().parse().map_err(|_| format!("label = \"{}\" must compare with a number", self.label))?;
        Ok(LabelRule { column: column.trim().to_owned(), comparison: Some((comparison, number)) })
    }

    /// The schema as a TOML document.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field of a schema is representable in TOML")
    }
}

impl TextCategorical {
    /// Its name in the data set.
    #[must_use]
    pub fn name(&self) -> &str {
        if self.name.is_empty() { &self.column } else { &self.name }
    }
}
