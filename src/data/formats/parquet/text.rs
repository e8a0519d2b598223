//! A Parquet file as separated text with a header line, for whoever reads tables of text: a schema says of it what it
//! says of those, and its rows go the same way.
//!
//! Rows are read from the first on, a portion of a row group at a time.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parquet::column::reader::ColumnReader;

use super::cell::{BAR, Cell, Fields, cells};
use super::columns::Kind;
use super::numbers::{Counted, guarded, values};
use super::read::{ParquetTable, fault};
use crate::base::{Error, Result, interrupt};
use crate::data::formats::bad;
use crate::data::formats::csv::LeftOut;
use crate::data::text::Wanted;

/// Rows that are made text at a time.
const PORTION: u64 = 1 << 10;

/// The text of a file.
struct Text<F> {
    /// Whose place says how much of it was read.
    file: F,
    table: ParquetTable,
    counted: Arc<Counted>,
    /// The columns that are wanted.
    cells: Vec<Cell>,
    /// Where the columns of the text are among those; nowhere: they are blank.
    places: Vec<Option<usize>>,
    /// Whether values of lists are to be told apart.
    apart: bool,
    /// The row group that comes next.
    next: usize,
    /// The readers of the row group that is open, one a cell, and its rows that are left.
    open: Vec<ColumnReader>,
    left: u64,
    /// Rows before the next one.
    rows: u64,
    /// The fields of a portion, by cell.
    fields: Vec<Fields>,
    /// What was not handed over yet begins at `from`.
    text: Vec<u8>,
    from: usize,
}

/// The text of the Parquet file at `path`, blank in columns that are not `wanted`; the place of `file`, which is the
/// same, follows what was read.
///
/// # Errors
/// When it is no whole Parquet file, no column of it is text, or one is not that is wanted by its name.
pub(in crate::data) fn text(
    file: impl Seek + Send + 'static,
    path: &Path,
    wanted: Wanted<'_>,
) -> Result<Box<dyn Read + Send>> {
    let table = ParquetTable::open(path)?;
    let (all, others) = cells(table.metadata.file_metadata().schema_descr());
    if all.is_empty() {
        return Err(bad(path, "has no column of values or of lists of values: write such columns"));
    }
    if let Wanted::Of(reads) = wanted
        && let Some(LeftOut { column, reason }) = others.iter().find(|other| reads(&other.column))
    {
        let remedy = "write it as columns of values or of lists of values, or leave it out of the schema";
        return Err(bad(path, format!("column {column} is {reason}: {remedy}")));
    }
    let mut text = Vec::new();
    line(all.iter().map(|cell| cell.name.as_bytes()), &mut text);
    let is_wanted = |cell: &Cell| match wanted {
        Wanted::Names => false,
        Wanted::All => true,
        Wanted::Of(reads) => reads(&cell.name),
    };
    let (mut cells, mut places) = (Vec::new(), Vec::new());
    for cell in all {
        let is_wanted = is_wanted(&cell);
        places.push(is_wanted.then_some(cells.len()));
        cells.extend(is_wanted.then_some(cell));
    }
    let (counted, fields) = (table.counted(), cells.iter().map(|_| Fields::default()).collect());
    let (next, open, left, rows, from) = (0, Vec::new(), 0, 0, 0);
    let apart = matches!(wanted, Wanted::Of(_));
    Ok(Box::new(Text { file, table, counted, cells, places, apart, next, open, left, rows, fields, text, from }))
}

/// The columns of the Parquet file at `path` that no schema of text can read, and why: those that have no text, and
/// lists of which a value has a bar in it in the first `rows` rows, or in those that are made text with them.
///
/// # Errors
/// When it is no whole Parquet file, or a list cannot be read.
pub(in crate::data) fn unread(path: &Path, rows: u64) -> Result<Vec<LeftOut>> {
    let table = ParquetTable::open(path)?;
    let (all, mut others) = cells(table.metadata.file_metadata().schema_descr());
    others.iter_mut().for_each(|other| other.reason.insert_str(0, "it is "));
    // Numbers have no bars.
    for cell in all.into_iter().filter(|cell| cell.leaf.list && matches!(cell.leaf.kind, Kind::Other(_))) {
        if is_divided(&table, &cell, rows)? {
            let bar = char::from(BAR);
            let reason = format!(
                "it is a list of which a value holds {bar}, which stands between the values of a list where they are read as \
                 text: write the column with another character in its place"
            );
            others.push(LeftOut { column: cell.name, reason });
        }
    }
    Ok(others)
}

/// Whether a value of a list has a bar in it.
fn is_divided(table: &ParquetTable, cell: &Cell, rows: u64) -> Result<bool> {
    let (counted, mut fields, mut seen) = (table.counted(), Fields::default(), 0);
    for group in 0..table.metadata.num_row_groups() {
        let fail = |error| fault(table.path_of(), group, &cell.name, error);
        let mut reader = guarded(|| values(&counted, &table.metadata, group, cell.leaf.at)).map_err(fail)?;
        let mut left = table.rows_of(group);
        // Whoever has read so many looks whether there is another one.
        while left > 0 && seen <= rows {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            let portion = left.min(PORTION);
            guarded(|| fields.read(cell, &mut reader, portion as usize)).map_err(fail)?;
            if fields.divided.is_some() {
                return Ok(true);
            }
            (left, seen) = (left - portion, seen + portion);
        }
        if seen > rows {
            break;
        }
    }
    Ok(false)
}

/// Appends a line of these fields, in quotation marks where they need them.
fn line<'a>(fields: impl ExactSizeIterator<Item = &'a [u8]>, text: &mut Vec<u8>) {
    let alone = fields.len() == 1;
    for (at, field) in fields.enumerate() {
        if at > 0 {
            text.push(b',');
        }
        // An empty line would be no row.
        let blank = alone && field.is_empty();
        if !blank && !field.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
            text.extend_from_slice(field);
            continue;
        }
        text.push(b'"');
        for &byte in field {
            text.extend_from_slice(if byte == b'"' { b"\"\"" } else { std::slice::from_ref(&byte) });
        }
        text.push(b'"');
    }
    text.push(b'\n');
}

impl<F: Seek> Text<F> {
    /// Opens the next row group; false where there is none.
    fn enter(&mut self) -> Result<bool> {
        let (table, counted, group) = (&self.table, &self.counted, self.next);
        if group == table.metadata.num_row_groups() {
            return Ok(false);
        }
        let open = |cell: &Cell| {
            guarded(|| values(counted, &table.metadata, group, cell.leaf.at))
                .map_err(|error| fault(table.path_of(), group, &cell.name, error))
        };
        self.open = self.cells.iter().map(open).collect::<Result<_>>()?;
        (self.left, self.next) = (table.rows_of(group), group + 1);
        Ok(true)
    }

    /// Puts the next rows into `text`; none at the end.
    fn fill(&mut self) -> Result<()> {
        self.text.clear();
        self.from = 0;
        while self.left == 0 {
            if !self.enter()? {
                return Ok(());
            }
        }
        let rows = self.left.min(PORTION) as usize;
        let path = self.table.path_of();
        for ((cell, reader), fields) in self.cells.iter().zip(&mut self.open).zip(&mut self.fields) {
            guarded(|| fields.read(cell, reader, rows))
                .map_err(|error| fault(path, self.next - 1, &cell.name, error))?;
            if let Some(at) = fields.divided.filter(|_| self.apart) {
                let bar = char::from(BAR);
                let reason = format!(
                    "row group {}, column {}, row {}: a value of its list holds {bar}, which stands between \
                     the values of a list where they are read as text: write the column with another character in its place, \
                     or leave it out of the schema",
                    self.next - 1,
                    cell.name,
                    self.rows + at as u64
                );
                return Err(bad(path, reason));
            }
        }
        for at in 0..rows {
            let field = |place: &Option<usize>| place.map_or(&b""[..], |place| self.fields[place].get(at));
            line(self.places.iter().map(field), &mut self.text);
        }
        (self.left, self.rows) = (self.left - rows as u64, self.rows + rows as u64);
        let read = SeekFrom::Start(self.counted.read.load(Ordering::Relaxed));
        self.file.seek(read).map_err(Error::io(path, "read"))?;
        Ok(())
    }
}

impl<F: Seek> Read for Text<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.from == self.text.len() {
            self.fill().map_err(io::Error::other)?;
        }
        let count = into.len().min(self.text.len() - self.from);
        into[..count].copy_from_slice(&self.text[self.from..self.from + count]);
        self.from += count;
        Ok(count)
    }
}
