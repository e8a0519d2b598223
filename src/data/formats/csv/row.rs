//! One record becomes numbers: its label, dense values, and the look-ups of every categorical column.

use std::path::Path;

use super::encoding::Encoding;
use super::label::{Rule, finite as number};
use super::records::Record;
use super::schema::TextSchema;
use super::{bad, shown};
use crate::base::Result;
use crate::data::Labels;
use crate::data::moment::Unit;
use crate::data::samples::{MISSING, Samples, Values};

/// Where the columns of a schema stand in a record.
pub(super) struct Columns {
    pub(super) schema: TextSchema,
    /// The label's column and its rule.
    label_name: String,
    rule: Rule,
    labels: Labels,
    /// Columns of a record.
    width: usize,
    /// Label (nowhere, if there need be none), dense, categorical, weights.
    label: Option<usize>,
    dense: Vec<usize>,
    categorical: Vec<usize>,
    weights: Vec<Option<usize>>,
}

/// The numbers of one row; reused from row to row.
#[derive(Default)]
pub(super) struct Row {
    label: f32,
    dense: Vec<Option<f64>>,
    /// Whether each dense value is an i32, or nothing.
    pub(super) whole: Vec<bool>,
    pub(super) lookups: Vec<Weighed>,
    /// Values without a row.
    unseen: u64,
}

/// The rows of a bag, and their weights.
#[derive(Default)]
pub(super) struct Weighed {
    pub(super) rows: Vec<u32>,
    weights: Vec<f32>,
}

impl Columns {
    /// Finds the columns in a file's header.
    pub(super) fn find(path: &Path, schema: &TextSchema, header: &[Vec<u8>], labels: Labels) -> Result<Self> {
        let (label_name, rule) = Rule::parse(&schema.label).map_err(|reason| bad(path, reason))?;
        let place = |name: &str| {
            header.iter().position(|field| field == name.as_bytes()).ok_or_else(|| {
                let known: Vec<String> = header.iter().map(|name| shown(name)).collect();
                let nearest = crate::base::error::nearest(name, known.iter().map(|name| &**name));
                let meant = nearest.map(|name| format!(" (did you mean {name}?)")).unwrap_or_default();
                bad(path, format!("has no column {name}{meant}; its header has {}", known.join(", ")))
            })
        };
        let label = match place(&label_name) {
            Err(_) if labels == Labels::Optional => None,
            found => Some(found?),
        };
        let categorical = &schema.categorical;
        Ok(Self {
            labels,
            width: header.len(),
            label,
            dense: schema.dense.iter().map(|column| place(&column.column)).collect::<Result<_>>()?,
            categorical: categorical.iter().map(|column| place(&column.column)).collect::<Result<_>>()?,
            weights: categorical
                .iter()
                .map(|column| column.weights.as_deref().map(place).transpose())
                .collect::<Result<_>>()?,
            label_name,
            rule,
            schema: schema.clone(),
        })
    }

    /// The label; NaN where there is none.
    fn label_of(&self, record: &Record) -> std::result::Result<f32, String> {
        let Some(at) = self.label else { return Ok(f32::NAN) };
        if self.labels == Labels::Optional && record[at].trim_ascii().is_empty() {
            return Ok(f32::NAN);
        }
        self.rule.label(&record[at]).ok_or_else(|| {
            let (column, expected) = (&self.label_name, self.rule.expects());
            format!("column {column}: {expected} is expected, found \"{}\"", shown(&record[at]))
        })
    }

    /// A dense field, nothing where it is blank; and whether it is an i32.
    fn dense_of(&self, column: usize, record: &Record) -> std::result::Result<(Option<f64>, bool), String> {
        let (field, spec) = (record[self.dense[column]].trim_ascii(), &self.schema.dense[column]);
        if let Some(count) = spec.counted(field) {
            return Ok((Some(count.into()), true));
        }
        if field.is_empty() {
            return Ok((None, true));
        }
        let unit = spec.unit();
        let value = match unit {
            Some(unit) => unit.parse(field).map(|moment| moment.0.into()),
            None => number(field).filter(|value| (*value as f32).is_finite()),
        };
        let value = value.ok_or_else(|| {
            let expected = unit.map_or("a finite number", Unit::expects);
            format!("column {}: {expected} is expected, found \"{}\"", spec.column, shown(field))
        })?;
        if unit.is_some() {
            return Ok((Some(value), true));
        }
        let text = std::str::from_utf8(field).unwrap_or_default();
        // The smallest i32 means that there is none.
        Ok((Some(value), text.parse().is_ok_and(|value: i32| value != MISSING)))
    }

    /// Calls `each` with every value of a categorical column.
    pub(super) fn each_value(
        &self,
        column: usize,
        record: &Record,
        each: impl FnMut(&[u8], f32) -> std::result::Result<(), String>,
    ) -> std::result::Result<(), String> {
        let weights = self.weights[column].map(|at| &record[at]);
        self.schema.categorical[column].each_value(&record[self.categorical[column]], weights, each)
    }
}

impl Row {
    pub(super) fn new(columns: &Columns) -> Self {
        let mut row = Self { whole: vec![true; columns.dense.len()], ..Self::default() };
        row.dense.resize(columns.dense.len(), None);
        row.lookups.resize_with(columns.categorical.len(), Weighed::default);
        row
    }

    /// Reads a record.
    ///
    /// # Errors
    /// What is wrong with it; the row's numbers are then unspecified.
    pub(super) fn read(
        &mut self,
        record: &Record,
        columns: &Columns,
        encoding: &Encoding,
    ) -> std::result::Result<(), String> {
        if record.len() != columns.width {
            let whose = if columns.schema.columns.is_empty() { "as in the header" } else { "as the schema lists" };
            return Err(format!("expected {} columns {whose}, found {}", columns.width, record.len()));
        }
        self.label = columns.label_of(record)?;
        for (column, (value, whole)) in self.dense.iter_mut().zip(&mut self.whole).enumerate() {
            (*value, *whole) = columns.dense_of(column, record)?;
        }
        self.unseen = 0;
        for (column, bag) in self.lookups.iter_mut().enumerate() {
            bag.rows.clear();
            bag.weights.clear();
            columns.each_value(column, record, |value, weight| {
                match encoding.row(column, &columns.schema.categorical[column], value)? {
                    Some(row) => {
                        bag.rows.push(row);
                        bag.weights.push(weight);
                    }
                    None => self.unseen += 1,
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Appends the row to others; returns how many of its values have no row.
    pub(super) fn push(&self, samples: &mut Samples, columns: &Columns, lists: &[bool]) -> u64 {
        samples.labels.push(self.label);
        for (values, value) in samples.dense.iter_mut().zip(&self.dense) {
            match values {
                // Exact: only i32s are in such a column.
                Values::Integers(values) => values.push(value.map_or(MISSING, |value| value as i32)),
                Values::Floats(values) => values.push(value.map_or(f32::NAN, |value| value as f32)),
            }
        }
        let specs = columns.schema.categorical.iter().zip(lists);
        for ((lookups, bag), (spec, &list)) in samples.lookups.iter_mut().zip(&self.lookups).zip(specs) {
            lookups.rows.extend_from_slice(&bag.rows);
            if spec.weighted() {
                lookups.weights.extend_from_slice(&bag.weights);
            }
            if list {
                lookups.ends.push(lookups.rows.len() as u32);
            }
        }
        self.unseen
    }
}
