//! A schema for a text file, guessed from its header and its first rows: a start for a person to edit.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use csv::ByteRecord;

use super::schema::{TextCategorical, TextDense, TextSchema};
use super::{fault, number, reader, values};
use crate::base::{Error, Result};
use crate::data::formats::bad;
use crate::data::schema::Transform;

/// Rows that are looked at.
const ROWS: usize = 20_000;
/// A numeric column of at most this many values is taken as categorical.
const FEW: usize = 50;
/// Names that columns of labels have.
const LABELS: [&str; 6] = ["label", "click", "clicked", "is_click", "target", "y"];

#[derive(Default)]
struct Seen {
    present: usize,
    numbers: usize,
    integers: usize,
    binary: usize,
    several: usize,
    least: f64,
    most: f64,
    distinct: HashSet<u32>,
}

/// Guesses the delimiter, the label and every column's kind.
///
/// # Errors
/// When the file cannot be read, or no column can be the label.
pub fn propose(path: &Path) -> Result<TextSchema> {
    let mut line = String::new();
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    BufReader::new(file).read_line(&mut line).map_err(Error::io(path, "read"))?;
    let delimiter = [',', '\t', ';', '|'].into_iter().max_by_key(|&sign| line.matches(sign).count()).unwrap_or(',');
    let mut text = reader(path, delimiter, false)?;
    let header = text.headers().map_err(|error| fault(path, error))?.clone();
    let mut seen: Vec<Seen> = header.iter().map(|_| Seen::default()).collect();
    let mut record = ByteRecord::new();
    let mut rows = 0;
    while rows < ROWS && text.read_byte_record(&mut record).map_err(|error| fault(path, error))? {
        rows += 1;
        seen.iter_mut().zip(&record).for_each(|(seen, field)| seen.add(field));
    }
    let columns: Vec<(&str, &Seen)> = header.iter().zip(&seen).collect();
    let named = |(name, _): &&(&str, &Seen)| LABELS.contains(&name.to_ascii_lowercase().as_str());
    let binary = |(_, seen): &&(&str, &Seen)| seen.present > 0 && seen.binary == seen.present;
    let rating = |(name, seen): &&(&str, &Seen)| name.eq_ignore_ascii_case("rating") && seen.numbers == seen.present;
    let label = columns.iter().find(|column| named(column) && binary(column)).or_else(|| columns.iter().find(binary));
    let (source, label) = match (label, columns.iter().find(rating)) {
        (Some((name, _)), _) => (*name, (*name).to_owned()),
        (None, Some((name, seen))) => {
            (*name, format!("{name} >= {}", (seen.least + 0.75 * (seen.most - seen.least)).floor()))
        }
        (None, None) => {
            return Err(bad(path, "no column holds 0 and 1 only: write a schema with label = \"column >= number\""));
        }
    };
    let (mut dense, mut categorical) = (Vec::new(), Vec::new());
    for (name, seen) in columns.into_iter().filter(|(name, _)| *name != source) {
        let identifier = name.to_ascii_lowercase().ends_with("id");
        let numeric = seen.numbers == seen.present && seen.present > 0;
        let whole = seen.integers == seen.present;
        if numeric && !(whole && (identifier || seen.distinct.len() <= FEW)) {
            let counts = whole && seen.least >= 0.0;
            let transform = if counts { Transform::Log } else { Transform::None };
            dense.push(TextDense { column: name.to_owned(), float: !whole, transform, ..TextDense::default() });
        } else {
            let separator = (seen.several * 20 > seen.present && delimiter != '|').then(|| "|".to_owned());
            categorical.push(TextCategorical { column: name.to_owned(), separator, ..TextCategorical::default() });
        }
    }
    Ok(TextSchema { label, delimiter, columns: Vec::new(), dense, categorical })
}

impl Seen {
    fn add(&mut self, field: &[u8]) {
        if field.trim_ascii().is_empty() {
            return;
        }
        let value = number(field);
        let (first, value_or) = (self.numbers == 0, value.unwrap_or(0.0));
        self.present += 1;
        self.several += usize::from(values(field, "|").count() > 1);
        self.distinct.insert(crc32fast::hash(field));
        if value.is_some() {
            self.numbers += 1;
            self.integers += usize::from(!field.contains(&b'.') && !field.contains(&b'e'));
            self.binary += usize::from(matches!(field.trim_ascii(), b"0" | b"1"));
            self.least = if first { value_or } else { self.least.min(value_or) };
            self.most = if first { value_or } else { self.most.max(value_or) };
        }
    }
}
