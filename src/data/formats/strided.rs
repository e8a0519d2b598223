//! Tables whose columns lie at fixed distances in mapped files: arrays, a file a column, or rows of one width.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::f16;

use super::{Rows, Table, bad};
use crate::base::Result;
use crate::data::samples::Values;
use crate::data::{Description, Samples};
use crate::memory::FileBytes;

/// The types of numbers that the formats use, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Float16,
    Float32,
}

impl Kind {
    /// Bytes of a number.
    pub(super) const fn size(self) -> usize {
        match self {
            Self::Bool | Self::Int8 => 1,
            Self::Int16 | Self::Float16 => 2,
            Self::Int32 | Self::Float32 => 4,
        }
    }

    /// Whether it counts in fractions.
    pub(super) const fn float(self) -> bool {
        matches!(self, Self::Float16 | Self::Float32)
    }
}

/// One column of a table in a mapped file: `count` numbers a row, every `stride` bytes from `start`.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) path: PathBuf,
    pub(super) bytes: Arc<FileBytes>,
    pub(super) start: usize,
    pub(super) stride: usize,
    pub(super) kind: Kind,
    pub(super) count: usize,
}

impl Field {
    /// The field `skip` numbers further on in the same rows.
    pub(super) fn at(&self, skip: usize) -> Self {
        Self { start: self.start + skip * self.kind.size(), ..self.clone() }
    }

    /// Rows that the file has bytes for.
    fn rows(&self) -> usize {
        let row = self.count * self.kind.size();
        match self.bytes.len().checked_sub(self.start + row) {
            Some(rest) => rest / self.stride + 1,
            None => 0,
        }
    }

    /// The greatest of its integers in the first `rows` rows.
    pub(super) fn largest(&self, rows: usize) -> Option<u32> {
        let mut most = None;
        self.integers(0, rows, |value| most = most.max(Some(value as u32)));
        most
    }

    fn numbers<const N: usize>(&self, from: usize, rows: usize) -> impl Iterator<Item = &[u8; N]> {
        let bytes = &self.bytes[(self.start + from * self.stride).min(self.bytes.len())..];
        bytes.chunks(self.stride).take(rows).flat_map(|row| row[..self.count * N].as_chunks::<N>().0)
    }

    fn integers(&self, from: usize, rows: usize, mut push: impl FnMut(i32)) {
        match self.kind {
            Kind::Bool => self.numbers(from, rows).for_each(|&[byte]| push(i32::from(byte))),
            Kind::Int8 => self.numbers(from, rows).for_each(|&[byte]| push(i32::from(byte as i8))),
            Kind::Int16 => self.numbers(from, rows).for_each(|&word| push(i32::from(i16::from_le_bytes(word)))),
            _ => self.numbers(from, rows).for_each(|&word| push(i32::from_le_bytes(word))),
        }
    }

    fn floats(&self, from: usize, rows: usize, values: &mut Vec<f32>) {
        match self.kind {
            Kind::Float16 => values.extend(self.numbers(from, rows).map(|&word| f16::from_le_bytes(word).to_f32())),
            Kind::Float32 => values.extend(self.numbers(from, rows).map(|&word| f32::from_le_bytes(word))),
            _ => self.integers(from, rows, |value| values.push(value as f32)),
        }
    }
}

/// A table of such columns.
#[derive(Debug, Clone)]
pub(super) struct Strided {
    pub(super) description: Description,
    pub(super) label: Field,
    pub(super) dense: Vec<Field>,
    pub(super) categorical: Vec<Field>,
    /// The first row of the files that belongs to the table.
    pub(super) first: u64,
    pub(super) rows: u64,
}

impl Strided {
    /// A table of all rows that the files have. Every column must have as many as the labels.
    pub(super) fn new(
        description: Description,
        label: Field,
        dense: Vec<Field>,
        categorical: Vec<Field>,
    ) -> Result<Self> {
        let rows = label.rows();
        for field in dense.iter().chain(&categorical) {
            if field.rows() != rows {
                let (found, labels) = (field.rows(), label.path.display());
                let reason = format!("has {found} rows, but {labels} has {rows}: copy or write the data again");
                return Err(bad(&field.path, reason));
            }
        }
        debug_assert!(dense.iter().zip(&description.dense).all(|(field, column)| field.kind.float() == column.float));
        Ok(Self { description, label, dense, categorical, first: 0, rows: rows as u64 })
    }

    /// Some of its rows.
    pub(super) fn part(&self, first: u64, rows: u64) -> Self {
        assert!(first + rows <= self.rows, "a part lies in its table");
        Self { first: self.first + first, rows, ..self.clone() }
    }
}

impl Table for Strided {
    fn description(&self) -> &Description {
        &self.description
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn path(&self) -> &Path {
        &self.label.path
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        Ok(Box::new(StridedRows { table: self, next: start, read: 0 }))
    }
}

struct StridedRows<'a> {
    table: &'a Strided,
    next: u64,
    /// Rows that were read.
    read: u64,
}

impl Rows for StridedRows<'_> {
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize> {
        let table = self.table;
        let rows = (table.rows - self.next).min(limit as u64) as usize;
        let from = (table.first + self.next) as usize;
        let known = samples.labels.len();
        table.label.floats(from, rows, &mut samples.labels);
        if !table.description.label.float
            && let Some(at) = samples.labels[known..].iter().position(|&label| label != 0.0 && label != 1.0)
        {
            let (row, label) = (from + at, samples.labels[known + at]);
            return Err(bad(&table.label.path, format!("row {row}: the label is {label}; 0 or 1 expected")));
        }
        for (field, values) in table.dense.iter().zip(&mut samples.dense) {
            match values {
                Values::Integers(values) => field.integers(from, rows, |value| values.push(value)),
                Values::Floats(values) => field.floats(from, rows, values),
            }
        }
        for (field, lookups) in table.categorical.iter().zip(&mut samples.lookups) {
            // A negative number becomes one that no table has, and is refused as such.
            field.integers(from, rows, |value| lookups.rows.push(value as u32));
        }
        self.next += rows as u64;
        self.read += rows as u64;
        Ok(rows)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min(self.table.rows - self.next);
        self.next += count;
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        let table = self.table;
        let fields = table.dense.iter().chain(&table.categorical).chain([&table.label]);
        self.read * fields.map(|field| (field.count * field.kind.size()) as u64).sum::<u64>()
    }
}
