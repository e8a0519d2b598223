//! Separated text with a header line (RFC 4180 quoting), described by a [`TextSchema`].
//!
//! Opening reads the file once: it counts rows, numbers values in the order of their first appearance (or as a trained
//! model knows them), tells integers from floats and marks places to enter at. Vocabularies are held in memory: this is for
//! data sets of up to some million values, beyond which `octorec preprocess` is the way.

pub(in crate::data) mod label;
mod propose;
mod schema;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use csv::{ByteRecord, Position, Reader, ReaderBuilder};

use label::{Rule, finite as number};
pub use propose::propose;
pub use schema::{TextCategorical, TextDense, TextSchema};

use super::dataset::Member;
use super::{Dataset, Rows, Table, bad};
use crate::base::{Error, Result, interrupt};
use crate::data::blocks::Role;
use crate::data::samples::{MISSING, Samples, Values};
use crate::data::schema::{Categorical, Dense, Description, Label};
use crate::data::{Labels, Unseen, Vocabulary};

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
    open_as(path, TextSchema::read(schema)?, &Choices::default())
}

/// How a text file is opened, beyond its schema.
#[derive(Default)]
pub struct Choices<'a> {
    /// The values of a trained model; without them, values are numbered as they appear.
    pub known: Option<&'a Vocabulary>,
    /// What a value does that `known` lacks.
    pub unseen: Unseen,
    /// Whether there must be a label.
    pub labels: Labels,
}

/// As [`open`], with a schema at hand.
///
/// # Errors
/// As [`open`].
pub fn open_as(path: &Path, schema: TextSchema, choices: &Choices<'_>) -> Result<Dataset> {
    let table = CsvTable::open(path, schema, choices)?;
    let numbered = table.schema.categorical.iter().any(|column| column.fixed_rows().is_none());
    let vocabulary = numbered.then(|| table.vocabulary());
    let mut dataset =
        Dataset::new(table.description.clone(), vec![Member { role: Role::Train, table: Box::new(table) }]);
    dataset.learned = numbered && choices.known.is_none();
    dataset.vocabulary = vocabulary;
    Ok(dataset)
}

struct CsvTable {
    path: PathBuf,
    schema: TextSchema,
    rule: Rule,
    /// The label's column.
    label_name: String,
    /// Where each column stands in a record: label (nowhere, if there need be none), dense, categorical.
    label: Option<usize>,
    dense: Vec<usize>,
    categorical: Vec<usize>,
    vocabularies: Vec<HashMap<Box<[u8]>, u32>>,
    marks: Vec<Position>,
    rows: u64,
    longest: Vec<u32>,
    description: Description,
    /// What values do that are not known, and how many readers have met.
    unseen: Unseen,
    unseen_values: AtomicU64,
}

fn reader(path: &Path, delimiter: char, headless: bool) -> Result<Reader<File>> {
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    let builder = &mut ReaderBuilder::new();
    Ok(builder.has_headers(!headless).delimiter(delimiter as u8).buffer_capacity(1 << 18).from_reader(file))
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

/// A field for a message.
fn shown(field: &[u8]) -> String {
    field[..field.len().min(32)].escape_ascii().to_string()
}

/// The values of a field that may have several; blank ones are none.
pub(in crate::data) fn values<'a>(field: &'a [u8], separator: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let text = std::str::from_utf8(field).ok();
    // Where it is no text, it is one value.
    let whole = text.is_none().then_some(field);
    let parts = text.into_iter().flat_map(move |text| text.split(separator)).map(str::trim).map(str::as_bytes);
    parts.chain(whole).filter(|value| !value.is_empty())
}

impl CsvTable {
    fn open(path: &Path, schema: TextSchema, choices: &Choices<'_>) -> Result<Self> {
        let (label_name, rule) = Rule::parse(&schema.label).map_err(|reason| bad(path, reason))?;
        let headless = !schema.columns.is_empty();
        let mut text = reader(path, schema.delimiter, headless)?;
        let header = if headless {
            ByteRecord::from(schema.columns.clone())
        } else {
            text.byte_headers().map_err(|error| fault(path, error))?.clone()
        };
        let place = |name: &str| {
            header.iter().position(|field| field == name.as_bytes()).ok_or_else(|| {
                let known: Vec<String> = header.iter().map(shown).collect();
                bad(path, format!("has no column {name}; its header has {}", known.join(", ")))
            })
        };
        let label = match place(&label_name) {
            Err(_) if choices.labels == Labels::Optional => None,
            found => Some(found?),
        };
        let mut table = Self {
            label,
            dense: schema.dense.iter().map(|column| place(&column.column)).collect::<Result<_>>()?,
            categorical: schema.categorical.iter().map(|column| place(&column.column)).collect::<Result<_>>()?,
            vocabularies: vocabularies(&schema, choices.known)?,
            longest: vec![1; schema.categorical.len()],
            path: path.to_owned(),
            rule,
            label_name,
            schema,
            marks: Vec::new(),
            rows: 0,
            description: Description::default(),
            unseen: choices.unseen,
            unseen_values: AtomicU64::new(0),
        };
        let integers = table.learn(text, header.len(), choices.known.is_some())?;
        let empty_bags = choices.known.is_some() && choices.unseen == Unseen::NoRow;
        table.description = table.described(&integers, empty_bags);
        table.description.check().map_err(|reason| bad(path, reason))?;
        Ok(table)
    }

    /// Reads the file; returns which dense columns hold nothing but i32s.
    fn learn(&mut self, mut text: Reader<File>, width: usize, known: bool) -> Result<Vec<bool>> {
        let mut integers: Vec<bool> = self.schema.dense.iter().map(|column| !column.float).collect();
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
            if record.len() != width {
                return Err(self.bad_row(&record, format!("expected {width} columns, found {}", record.len())));
            }
            self.label_of(&record)?;
            for (column, (at, integer)) in self.dense.iter().zip(&mut integers).enumerate() {
                let field = record[*at].trim_ascii();
                // The smallest i32 means that there is none.
                *integer &= self.schema.dense[column].count.is_some()
                    || field.is_empty()
                    || std::str::from_utf8(field)
                        .is_ok_and(|text| text.parse().is_ok_and(|value: i32| value != MISSING));
                self.dense_of(column, &record)?;
            }
            for (column, (at, spec)) in self.categorical.iter().zip(&self.schema.categorical).enumerate() {
                if known || spec.fixed_rows().is_some() {
                    // What is wrong is told now, not hours later; what is only unknown is counted when it is read.
                    let judge = |value| {
                        if self.judged(column) { self.row_of(column, value, &record).map(|_| ()) } else { Ok(()) }
                    };
                    let Some(several) = spec.several(&record[*at]) else {
                        judge(&record[*at])?;
                        continue;
                    };
                    let mut count = 0;
                    for value in several {
                        judge(value)?;
                        count += 1;
                    }
                    self.longest[column] = self.longest[column].max(count);
                    continue;
                }
                let vocabulary = &mut self.vocabularies[column];
                let mut learn = |value: &[u8]| {
                    if !vocabulary.contains_key(value) {
                        let id = vocabulary.len() as u32;
                        vocabulary.insert(value.into(), id);
                    }
                };
                match spec.several(&record[*at]) {
                    None => learn(&record[*at]),
                    Some(several) => {
                        let mut count = 0;
                        several.for_each(|value| {
                            learn(value);
                            count += 1;
                        });
                        self.longest[column] = self.longest[column].max(count);
                    }
                }
            }
        }
    }

    /// Whether a value of this column may be a fault.
    fn judged(&self, column: usize) -> bool {
        self.unseen == Unseen::Fault || self.schema.categorical[column].fixed_rows().is_some()
    }

    /// The values behind row numbers.
    fn vocabulary(&self) -> Vocabulary {
        let column = |ids: &HashMap<Box<[u8]>, u32>| {
            let mut values = vec![Box::default(); ids.len()];
            ids.iter().for_each(|(value, &id)| values[id as usize] = value.clone());
            values
        };
        Vocabulary::of_texts(self.vocabularies.iter().map(column).collect())
    }

    /// The columns; `empty_bags`: where a value may have no row.
    fn described(&self, integers: &[bool], empty_bags: bool) -> Description {
        let dense = self.schema.dense.iter().zip(integers).map(|(column, &integer)| Dense {
            name: column.name().to_owned(),
            float: !integer,
            transform: column.transform,
        });
        let categorical = self.schema.categorical.iter().zip(&self.vocabularies).map(|(column, vocabulary)| {
            let rows = column.fixed_rows().unwrap_or(vocabulary.len().max(1) as u64);
            let hots = u32::from(column.separator.is_none() && !(empty_bags && column.fixed_rows().is_none()));
            Categorical { hots, ..Categorical::new(column.name(), rows) }
        });
        let label = Label { name: self.schema.label.clone(), float: false };
        Description { label, dense: dense.collect(), categorical: categorical.collect() }
    }

    fn bad_row(&self, record: &ByteRecord, reason: String) -> Error {
        let line = record.position().map_or(0, Position::line);
        Error::BadRow { path: self.path.clone(), line, reason }
    }

    /// The label; NaN where there is none.
    fn label_of(&self, record: &ByteRecord) -> Result<f32> {
        let Some(at) = self.label else { return Ok(f32::NAN) };
        self.rule.label(&record[at]).ok_or_else(|| {
            let (column, expected) = (&self.label_name, self.rule.expects());
            self.bad_row(record, format!("column {column}: {expected} is expected, found \"{}\"", shown(&record[at])))
        })
    }

    /// A dense field; nothing where it is blank.
    fn dense_of(&self, column: usize, record: &ByteRecord) -> Result<Option<f64>> {
        let field = record[self.dense[column]].trim_ascii();
        if let Some(count) = self.schema.dense[column].counted(field) {
            return Ok(Some(count.into()));
        }
        if field.is_empty() {
            return Ok(None);
        }
        number(field).map(Some).ok_or_else(|| {
            let name = &self.schema.dense[column].column;
            self.bad_row(record, format!("column {name}: a finite number is expected, found \"{}\"", shown(field)))
        })
    }

    /// The row of a value; nothing where it is not known and that is no fault.
    fn row_of(&self, column: usize, value: &[u8], record: &ByteRecord) -> Result<Option<u32>> {
        let spec = &self.schema.categorical[column];
        let wrong = |reason: String| self.bad_row(record, format!("column {}: {reason}", spec.column));
        if spec.fixed_rows().is_some() {
            let row = spec.fixed_row(value);
            return row
                .map(Some)
                .map_err(|expected| wrong(format!("{expected} is expected, found \"{}\"", shown(value))));
        }
        match (self.vocabularies[column].get(value), self.unseen) {
            (Some(&row), _) => Ok(Some(row)),
            (None, Unseen::NoRow) => {
                // Relaxed: a count that is read when all reading is done.
                self.unseen_values.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
            (None, Unseen::Fault) => {
                let reason = "is not in the vocabulary: is it other data than the model was trained on, or has the file \
                              changed since it was opened?";
                Err(wrong(format!("the value \"{}\" {reason}", shown(value))))
            }
        }
    }
}

/// Row numbers by value, as a trained model knows them.
fn vocabularies(schema: &TextSchema, known: Option<&Vocabulary>) -> Result<Vec<HashMap<Box<[u8]>, u32>>> {
    let columns = schema.categorical.len();
    let Some(known) = known else { return Ok(vec![HashMap::new(); columns]) };
    if known.texts().len() != columns {
        let reason = format!(
            "it has {} columns of text, the schema has {columns}: it belongs to a model of other data",
            known.texts().len()
        );
        return Err(Error::Config { origin: "vocabulary".to_owned(), reason });
    }
    Ok(known.texts().iter().map(|values| values.iter().cloned().zip(0..).collect()).collect())
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

    fn unseen_values(&self) -> u64 {
        self.unseen_values.load(Ordering::Relaxed)
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        let headless = !self.schema.columns.is_empty();
        let text = reader(&self.path, self.schema.delimiter, headless)?;
        let mut rows = CsvRows { table: self, text, record: ByteRecord::new(), began: 0 };
        // The header is read even where the file is entered behind it.
        if !headless {
            rows.text.byte_headers().map_err(|error| fault(&self.path, error))?;
        }
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
                match table.schema.categorical[column].several(&record[at]) {
                    None => lookups.rows.extend(table.row_of(column, &record[at], record)?),
                    Some(several) => {
                        for value in several {
                            lookups.rows.extend(table.row_of(column, value, record)?);
                        }
                    }
                }
                if table.description.categorical[column].hots == 0 {
                    lookups.ends.push(lookups.rows.len() as u32);
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
