//! Tables whose columns lie at fixed distances in files: arrays, a file a column, or rows of one width.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use half::f16;
use rayon::prelude::*;

use super::records::{PORTION, Portion, Records};
use super::{Rows, Table, bad, unfit};
use crate::base::{Error, Result, interrupt};
use crate::data::fingerprint::{of_bytes, of_ends};
use crate::data::samples::Values;
use crate::data::{Description, Samples};

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

/// One column of a table in a file: `count` numbers a row, `offset` bytes after the row's start.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) records: Arc<Records>,
    pub(super) offset: usize,
    pub(super) kind: Kind,
    pub(super) count: usize,
}

impl Field {
    /// The field `skip` numbers further on in the same rows.
    pub(super) fn at(&self, skip: usize) -> Self {
        Self { offset: self.offset + skip * self.kind.size(), ..self.clone() }
    }

    /// Its file.
    pub(super) fn path(&self) -> &Path {
        self.records.file().path()
    }

    fn numbers<'a, const N: usize>(&self, rows: &'a [u8]) -> impl Iterator<Item = &'a [u8; N]> {
        let (offset, count) = (self.offset, self.count);
        rows.chunks_exact(self.records.width()).flat_map(move |row| row[offset..][..count * N].as_chunks::<N>().0)
    }

    fn integers(&self, rows: &[u8], mut push: impl FnMut(i32)) {
        match self.kind {
            Kind::Bool => self.numbers(rows).for_each(|&[byte]| push(i32::from(byte))),
            Kind::Int8 => self.numbers(rows).for_each(|&[byte]| push(i32::from(byte as i8))),
            Kind::Int16 => self.numbers(rows).for_each(|&word| push(i32::from(i16::from_le_bytes(word)))),
            _ => self.numbers(rows).for_each(|&word| push(i32::from_le_bytes(word))),
        }
    }

    fn floats(&self, rows: &[u8], values: &mut Vec<f32>) {
        match self.kind {
            Kind::Float16 => values.extend(self.numbers(rows).map(|&word| f16::from_le_bytes(word).to_f32())),
            Kind::Float32 => values.extend(self.numbers(rows).map(|&word| f32::from_le_bytes(word))),
            _ => self.integers(rows, |value| values.push(value as f32)),
        }
    }
}

/// Rows of all the files that some fields lie in, in memory.
struct Loaded {
    files: Vec<(Arc<Records>, Portion)>,
    /// Of each field, its file.
    of: Vec<usize>,
    /// Rows that are read at most at a time.
    most: usize,
    rows: Range<usize>,
}

impl Loaded {
    fn of<'a>(fields: impl Iterator<Item = &'a Field>) -> Self {
        let mut files: Vec<(Arc<Records>, Portion)> = Vec::new();
        let mut file = |field: &Field| {
            files.iter().position(|(known, _)| Arc::ptr_eq(known, &field.records)).unwrap_or_else(|| {
                files.push((Arc::clone(&field.records), Portion::default()));
                files.len() - 1
            })
        };
        let of = fields.map(&mut file).collect();
        let bytes: usize = files.iter().map(|(records, _)| records.width()).sum();
        Self { files, of, most: (PORTION / bytes.max(1)).max(1), rows: 0..0 }
    }

    fn load(&mut self, rows: Range<usize>) -> Result<()> {
        let most = self.most;
        self.files.iter_mut().try_for_each(|(records, portion)| portion.load(records, rows.clone(), most))?;
        self.rows = rows;
        Ok(())
    }

    /// The loaded rows that field number `field` lies in.
    fn rows(&self, field: usize) -> &[u8] {
        let (records, portion) = &self.files[self.of[field]];
        portion.bytes(records, self.rows.clone())
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
        let rows = label.records.rows();
        for field in dense.iter().chain(&categorical) {
            let found = field.records.rows();
            if found != rows {
                let labels = label.path().display();
                let reason = format!("has {found} rows, but {labels} has {rows}: copy or write the data again");
                return Err(bad(field.path(), reason));
            }
        }
        debug_assert!(dense.iter().zip(&description.dense).all(|(field, column)| field.kind.float() == column.float));
        Ok(Self { description, label, dense, categorical, first: 0, rows: rows as u64 })
    }

    fn fields(&self) -> impl Iterator<Item = &Field> {
        [&self.label].into_iter().chain(&self.dense).chain(&self.categorical)
    }

    /// The greatest look-up of each categorical column.
    pub(super) fn largest(&self) -> Result<Vec<Option<u32>>> {
        let load = || Loaded::of(self.categorical.iter());
        let (most, rows, none) = (load().most, self.rows as usize, || vec![None; self.categorical.len()]);
        let portions = (0..rows.div_ceil(most)).into_par_iter();
        let largest = portions.map_init(load, |loaded, portion| {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            loaded.load(portion * most..rows.min((portion + 1) * most))?;
            let mut largest = none();
            for (at, (field, largest)) in self.categorical.iter().zip(&mut largest).enumerate() {
                field.integers(loaded.rows(at), |value| *largest = (*largest).max(Some(value as u32)));
            }
            Ok(largest)
        });
        largest.try_reduce(none, |a, b| Ok(a.into_iter().zip(b).map(|(a, b)| a.max(b)).collect()))
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
        self.label.path()
    }

    fn fingerprint(&self) -> Option<u64> {
        let mut paths: Vec<&Path> = self.fields().map(Field::path).collect();
        paths.dedup();
        let files: Vec<u64> = paths.into_iter().map(of_ends).collect::<Option<_>>()?;
        Some(of_bytes([bytemuck::cast_slice(&files)]))
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        Ok(Box::new(StridedRows { table: self, next: start, read: 0, loaded: Loaded::of(self.fields()) }))
    }
}

struct StridedRows<'a> {
    table: &'a Strided,
    next: u64,
    /// Rows that were read.
    read: u64,
    /// Of the label, the dense columns and the categorical ones.
    loaded: Loaded,
}

impl StridedRows<'_> {
    /// Appends the next `rows` rows, as many as are loaded at a time.
    fn take(&mut self, samples: &mut Samples, rows: usize) -> Result<()> {
        let (table, loaded) = (self.table, &mut self.loaded);
        let from = (table.first + self.next) as usize;
        loaded.load(from..from + rows)?;
        let known = samples.labels.len();
        table.label.floats(loaded.rows(0), &mut samples.labels);
        if !table.description.label.float
            && let Some(at) = samples.labels[known..].iter().position(|&label| label != 0.0 && label != 1.0)
        {
            let (row, label) = (from + at, samples.labels[known + at]);
            return Err(bad(table.label.path(), format!("row {row}: the label is {label}; 0 or 1 expected")));
        }
        let check = |field: &Field, name: &str, values: &[f32], gaps: bool| match unfit(values, gaps) {
            Some((at, reason)) => Err(bad(field.path(), format!("row {}: column {name}: {reason}", from + at))),
            None => Ok(()),
        };
        check(&table.label, &table.description.label.name, &samples.labels[known..], false)?;
        let columns = table.dense.iter().zip(&table.description.dense);
        for (at, ((field, column), values)) in (1..).zip(columns.zip(&mut samples.dense)) {
            match values {
                Values::Integers(values) => field.integers(loaded.rows(at), |value| values.push(value)),
                Values::Floats(values) => {
                    let known = values.len();
                    field.floats(loaded.rows(at), values);
                    check(field, &column.name, &values[known..], true)?;
                }
            }
        }
        for (at, (field, lookups)) in (1 + table.dense.len()..).zip(table.categorical.iter().zip(&mut samples.lookups))
        {
            // A negative number becomes one that no table has, and is refused as such.
            field.integers(loaded.rows(at), |value| lookups.rows.push(value as u32));
        }
        self.next += rows as u64;
        self.read += rows as u64;
        Ok(())
    }
}

impl Rows for StridedRows<'_> {
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize> {
        let rows = (self.table.rows - self.next).min(limit as u64) as usize;
        let mut read = 0;
        while read < rows {
            let count = (rows - read).min(self.loaded.most);
            self.take(samples, count)?;
            read += count;
        }
        Ok(rows)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min(self.table.rows - self.next);
        self.next += count;
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        self.read * self.table.fields().map(|field| (field.count * field.kind.size()) as u64).sum::<u64>()
    }
}
