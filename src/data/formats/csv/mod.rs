//! Separated text with a header line (RFC 4180 quoting), described by a [`TextSchema`].
//!
//! Opening reads the file once: it counts rows, numbers values in the order of their first appearance, tells integers
//! from floats and marks places to enter at. Vocabularies are held in memory: this is for data sets of up to some million
//! values, beyond which `octorec preprocess` is the way.

mod propose;
mod schema;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use csv::{ByteRecord, Position, Reader, ReaderBuilder};

pub use propose::propose;
use schema::LabelRule;
pub use schema::{TextCategorical, TextDense, TextSchema};

use super::dataset::Member;
use super::{Dataset, Rows, Table, bad};
use crate::base::{Error, Result, interrupt};
use crate::data::blocks::Role;
use crate::data::samples::{MISSING, Samples, Values};
use crate::data::schema::{Categorical, Dense, Description, Label};

/// Rows between two places at which the file can be entered.
const ROWS_A_MARK: u64 = 1 << 12;

/// Opens a text file as its schema says.
///
/// # Errors
/// When a column is missing, or a row is malformed ([`Error::BadRow`]).
pub fn open(path: &Path, schema: Option<&Path>) -> Result<Dataset> {
    let Some(schema) = schema else {
        let reason =
            "needs a description: name one with --schema FILE (octorec inspect proposes one: --write-schema FILE)";
        return Err(bad(path, reason));
    };
    open_as(path, TextSchema::read(schema)?)
}

/// As [`open`], with a schema at hand.
///
/// # Errors
/// As [`open`].
pub fn open_as(path: &Path, schema: TextSchema) -> Result<Dataset> {
    let table = CsvTable::open(path, schema)?;
    let learned = table.schema.categorical.iter().any(|column| column.rows == 0 && column.buckets.is_empty());
    let mut dataset =
        Dataset::new(table.description.clone(), vec![Member { role: Role::Train, table: Box::new(table) }]);
    dataset.learned = learned;
    Ok(dataset)
}

struct CsvTable {
    path: PathBuf,
    schema: TextSchema,
    rule: LabelRule,
    /// Where each column stands in a record: label, dense, categorical.
    label: usize,
    dense: Vec<usize>,
    categorical: Vec<usize>,
    vocabularies: Vec<HashMap<Box<[u8]>, u32>>,
    marks: Vec<Position>,
    rows: u64,
    longest: Vec<u32>,
    description: Description,
}

fn reader(path: &Path, delimiter: char) -> Result<Reader<File>> {
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    Ok(ReaderBuilder::new().delimiter(delimiter as u8).buffer_capacity(1 << 18).from_reader(file))
}

/// The error of a record that the text's grammar refuses.
fn fault(path: &Path, error: csv::Error) -> Error {
    let line = error.position().map_or(1, Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(source) => Error::io(path, "read")(source),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let reason = format!("expected {expected_len} columns as in the header, found {len}");
            Error::BadRow { path: path.to_owned(), line, reason }
        }
        other => Error::BadRow { path: path.to_owned(), line, reason: format!("{other:?}") },
    }
}

fn number(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

/// A field for a message.
fn shown(field: &[u8]) -> String {
    field[..field.len().min(32)].escape_ascii().to_string()
}

/// The values of a field that may have several; blank ones are none.
fn values<'a>(field: &'a [u8], separator: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let text = std::str::from_utf8(field).ok();
    // Where it is no text, it is one value.
    let whole = text.is_none().then_some(field);
    let parts = text.into_iter().flat_map(move |text| text.split(separator)).map(str::trim).map(str::as_bytes);
    parts.chain(whole).filter(|value| !value.is_empty())
}

impl CsvTable {
    fn open(path: &Path, schema: TextSchema) -> Result<Self> {
        let rule = schema.rule().map_err(|reason| bad(path, reason))?;
        let mut text = reader(path, schema.delimiter)?;
        let header = text.byte_headers().map_err(|error| fault(path, error))?.clone();
        let place = |name: &str| {
            header.iter().position(|field| field == name.as_bytes()).ok_or_else(|| {
                let known: Vec<String> = header.iter().map(shown).collect();
                bad(path, format!("has no column {name}; its header has {}", known.join(", ")))
            })
        };
        let mut table = Self {
            label: place(&rule.column)?,
            dense: schema.dense.iter().map(|column| place(&column.column)).collect::<Result<_>>()?,
            categorical: schema.categorical.iter().map(|column| place(&column.column)).collect::<Result<_>>()?,
            vocabularies: vec![HashMap::new(); schema.categorical.len()],
            longest: vec![1; schema.categorical.len()],
            path: path.to_owned(),
            rule,
            schema,
            marks: Vec::new(),
            rows: 0,
            description: Description::default(),
        };
        let integers = table.learn(text)?;
        table.description = table.described(&integers);
        table.description.check().map_err(|reason| bad(path, reason))?;
        Ok(table)
    }

    /// Reads the file; returns which dense columns hold nothing but i32s.
    fn learn(&mut self, mut text: Reader<File>) -> Result<Vec<bool>> {
        let mut integers = vec![true; self.dense.len()];
        let mut record = ByteRecord::new();
        loop {
            let place = text.position().clone();
            if !text.read_byte_record(&mut record).map_err(|error| fault(&self.path, error))? {
                return Ok(integers);
            }
            if self.rows.is_multiple_of(ROWS_A_MARK) {
                if interrupt::requested() {
                    return Err(Error::Interrupted);
                }
                self.marks.push(place);
            }
            self.rows += 1;
            self.label_of(&record)?;
            for (column, (at, integer)) in self.dense.iter().zip(&mut integers).enumerate() {
                let field = record[*at].trim_ascii();
                // The smallest i32 means that there is none.
                *integer &= field.is_empty()
                    || std::str::from_utf8(field)
                        .is_ok_and(|text| text.parse().is_ok_and(|value: i32| value != MISSING));
                self.dense_of(column, &record)?;
            }
            for (column, (at, spec)) in self.categorical.iter().zip(&self.schema.categorical).enumerate() {
                if spec.rows > 0 || !spec.buckets.is_empty() {
                    if let Some(separator) = &spec.separator {
                        let count = values(&record[*at], separator).count() as u32;
                        self.longest[column] = self.longest[column].max(count);
                    }
                    continue;
                }
                let vocabulary = &mut self.vocabularies[column];
                let mut learn = |value: &[u8]| {
                    if !vocabulary.contains_key(value) {
                        let id = vocabulary.len() as u32;
                        vocabulary.insert(value.into(), id);
                    }
                };
                match &spec.separator {
                    None => learn(&record[*at]),
                    Some(separator) => {
                        let mut count = 0;
                        values(&record[*at], separator).for_each(|value| {
                            learn(value);
                            count += 1;
                        });
                        self.longest[column] = self.longest[column].max(count);
                    }
                }
            }
        }
    }

    fn described(&self, integers: &[bool]) -> Description {
        let dense = self.schema.dense.iter().zip(integers).map(|(column, &integer)| Dense {
            name: column.column.clone(),
            float: !integer,
            transform: column.transform,
        });
        let categorical = self.schema.categorical.iter().zip(&self.vocabularies).map(|(column, vocabulary)| {
            let rows = match (column.buckets.len() as u64, column.rows) {
                (0, 0) => vocabulary.len().max(1) as u64,
                (0, rows) => rows,
                (edges, _) => edges + 2,
            };
            let hots = u32::from(column.separator.is_none());
            Categorical { hots, ..Categorical::new(column.name(), rows) }
        });
        let label = Label { name: self.schema.label.clone(), float: false };
        Description { label, dense: dense.collect(), categorical: categorical.collect() }
    }

    fn bad_row(&self, record: &ByteRecord, reason: String) -> Error {
        let line = record.position().map_or(0, Position::line);
        Error::BadRow { path: self.path.clone(), line, reason }
    }

    fn label_of(&self, record: &ByteRecord) -> Result<f32> {
        let field = &record[self.label];
        let found = || {
            self.bad_row(
                record,
                format!("column {}: a number is expected, found \"{}\"", self.rule.column, shown(field)),
            )
        };
        match self.rule.comparison {
            Some((comparison, than)) => {
                Ok(f32::from(u8::from(comparison.holds(number(field).ok_or_else(found)?, than))))
            }
            None => match field.trim_ascii() {
                b"0" => Ok(0.0),
                b"1" => Ok(1.0),
                _ => {
                    let column = &self.rule.column;
                    let reason = format!("column {column}: the label 0 or 1 is expected, found \"{}\"", shown(field));
                    Err(self.bad_row(record, reason))
                }
            },
        }
    }

    /// A dense field; nothing where it is blank.
    fn dense_of(&self, column: usize, record: &ByteRecord) -> Result<Option<f64>> {
        let field = record[self.dense[column]].trim_ascii();
        if field.is_empty() {
            return Ok(None);
        }
        number(field).map(Some).ok_or_else(|| {
            let name = &self.schema.dense[column].column;
            self.bad_row(record, format!("column {name}: a finite number is expected, found \"{}\"", shown(field)))
        })
    }

    fn row_of(&self, column: usize, value: &[u8], record: &ByteRecord) -> Result<u32> {
        let spec = &self.schema.categorical[column];
        if !spec.buckets.is_empty() {
            if value.trim_ascii().is_empty() {
                return Ok(spec.buckets.len() as u32 + 1);
            }
            let Some(value) = number(value) else {
                let reason = format!("column {}: a number is expected, found \"{}\"", spec.column, shown(value));
                return Err(self.bad_row(record, reason));
            };
            return Ok(spec.buckets.partition_point(|&edge| edge <= value) as u32);
        }
        if spec.rows > 0 {
            return Ok((u64::from(crc32fast::hash(value)) % spec.rows) as u32);
        }
        self.vocabularies[column].get(value).copied().ok_or_else(|| {
            self.bad_row(
                record,
                format!("column {}: \"{}\" was not there when the file was opened", spec.column, shown(value)),
            )
        })
    }
}

impl Table for CsvTable {
    fn description(&self) -> &Description {
        &self.description
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn longest(&self) -> Vec<u32> {
        self.longest.clone()
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        let text = reader(&self.path, self.schema.delimiter)?;
        let mut rows = CsvRows { table: self, text, record: ByteRecord::new(), began: 0 };
        // The header is read even where the file is entered behind it.
        rows.text.byte_headers().map_err(|error| fault(&self.path, error))?;
        let mark = (start / ROWS_A_MARK).min((self.marks.len() as u64).saturating_sub(1));
        if let Some(place) = self.marks.get(mark as usize) {
            rows.text.seek(place.clone()).map_err(|error| fault(&self.path, error))?;
            rows.began = place.byte();
            for _ in mark * ROWS_A_MARK..start {
                rows.text.read_byte_record(&mut rows.record).map_err(|error| fault(&self.path, error))?;
            }
        }
        Ok(Box::new(rows))
    }
}

struct CsvRows<'a> {
    table: &'a CsvTable,
    text: Reader<File>,
    record: ByteRecord,
    /// The byte at which the file was entered.
    began: u64,
}

impl Rows for CsvRows<'_> {
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize> {
        let table = self.table;
        for read in 0..limit {
            if !self.text.read_byte_record(&mut self.record).map_err(|error| fault(&table.path, error))? {
                return Ok(read);
            }
            let record = &self.record;
            samples.labels.push(table.label_of(record)?);
            for (column, values) in samples.dense.iter_mut().enumerate() {
                let value = table.dense_of(column, record)?;
                match values {
                    // Exact: only i32s are in such a column.
                    Values::Integers(values) => values.push(value.map_or(MISSING, |value| value as i32)),
                    Values::Floats(values) => values.push(value.map_or(f32::NAN, |value| value as f32)),
                }
            }
            for (column, (&at, lookups)) in table.categorical.iter().zip(&mut samples.lookups).enumerate() {
                match &table.schema.categorical[column].separator {
                    None => lookups.rows.push(table.row_of(column, &record[at], record)?),
                    Some(separator) => {
                        for value in values(&record[at], separator) {
                            lookups.rows.push(table.row_of(column, value, record)?);
                        }
                        lookups.ends.push(lookups.rows.len() as u32);
                    }
                }
            }
        }
        Ok(limit)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        for skipped in 0..count {
            if !self.text.read_byte_record(&mut self.record).map_err(|error| fault(&self.table.path, error))? {
                return Ok(skipped);
            }
        }
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        self.text.position().byte() - self.began
    }
}
