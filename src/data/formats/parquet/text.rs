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
use super::numbers::{Counted, guarded, values};
use super::read::{ParquetTable, fault};
use crate::base::{Error, Result};
use crate::data::formats::bad;

/// Rows that are made text at a time.
const PORTION: u64 = 1 << 10;

/// The text of a file.
struct Text<F> {
    /// Whose place says how much of it was read.
    file: F,
    table: ParquetTable,
    counted: Arc<Counted>,
    cells: Vec<Cell>,
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

/// The text of the Parquet file at `path`; the place of `file`, which is the same, follows what was read.
///
/// # Errors
/// When it is no whole Parquet file, or no column of it is text.
pub(in crate::data) fn text(file: impl Seek + Send + 'static, path: &Path) -> Result<Box<dyn Read + Send>> {
    let table = ParquetTable::open(path)?;
    let cells = cells(table.metadata.file_metadata().schema_descr());
    if cells.is_empty() {
        return Err(bad(path, "has no column of values or of lists of values: write such columns"));
    }
    let mut text = Vec::new();
    line(cells.iter().map(|cell| cell.name.as_bytes()), &mut text);
    let (counted, fields) = (table.counted(), cells.iter().map(|_| Fields::default()).collect());
    let (next, open, left, rows, from) = (0, Vec::new(), 0, 0, 0);
    Ok(Box::new(Text { file, table, counted, cells, next, open, left, rows, fields, text, from }))
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
            if let Some(at) = fields.divided {
                let bar = char::from(BAR);
                let reason = format!(
                    "row group {}, column {}, row {}: a value of its list holds {bar}, which stands between \
                     the values of a list where they are read as text: write the column with another character in its place",
                    self.next - 1,
                    cell.name,
                    self.rows + at as u64
                );
                return Err(bad(path, reason));
            }
        }
        for at in 0..rows {
            line(self.fields.iter().map(|fields| fields.get(at)), &mut self.text);
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
