//! Tables whose columns lie at fixed distances in files: arrays, a file a column, or rows of one width. A format says
//! in a [`Layout`] where; [`Strided`] reads such files, and a [`StridedSink`] writes them.

mod sink;

use std::ops::Range;
use std::path::Path;

use half::f16;
use rayon::prelude::*;

use super::records::{PORTION, Portion, Records};
use super::{Rows, Table, bad, unfit};
use crate::base::{Error, Result, interrupt, named};
use crate::data::fill::{Features, Fill};
use crate::data::fingerprint::{of_bytes, of_ends};
use crate::data::{Batch, Description, Samples};

pub(super) use sink::{Page, StridedSink};

/// Rows that are turned at a time: they stay in the nearest cache while column after column is taken from them.
const TURNED: usize = 64;

named! {
    /// The types of numbers that the formats use, little-endian, as NumPy calls them.
    pub(super) enum Kind {
        Bool = "bool",
        Int8 = "int8",
        Int16 = "int16",
        Int32 = "int32",
        Float16 = "float16",
        Float32 = "float32",
    }
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

/// One column of a table: `count` numbers a row, `offset` bytes after the row's start in one of the table's files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) file: usize,
    offset: usize,
    pub(super) kind: Kind,
    pub(super) count: usize,
}

/// Some rows of a file, and how many bytes each has.
type Cut<'a> = (&'a [u8], usize);

impl Field {
    /// Bytes of its numbers in a row.
    const fn size(&self) -> usize {
        self.count * self.kind.size()
    }

    /// Appends the numbers of some rows, of N bytes each.
    fn read<T, const N: usize>(&self, (rows, width): Cut<'_>, to: &mut impl Extend<T>, number: impl Fn([u8; N]) -> T) {
        match self.count {
            // Nothing lies between them.
            count if width == count * N => to.extend(rows.as_chunks::<N>().0.iter().map(|&bytes| number(bytes))),
            1 => {
                let cell = |row: &[u8]| *row[self.offset..].first_chunk().expect("a field lies in its row");
                to.extend(rows.chunks_exact(width).map(|row| number(cell(row))));
            }
            count => rows.chunks_exact(width).for_each(|row| {
                let numbers = row[self.offset..][..count * N].as_chunks::<N>().0;
                to.extend(numbers.iter().map(|&bytes| number(bytes)));
            }),
        }
    }

    /// Appends the whole numbers of some rows.
    fn integers<T>(&self, rows: Cut<'_>, to: &mut impl Extend<T>, number: impl Fn(i32) -> T) {
        match self.kind {
            Kind::Bool => self.read(rows, to, |[byte]| number(i32::from(byte))),
            Kind::Int8 => self.read(rows, to, |[byte]| number(i32::from(byte as i8))),
            Kind::Int16 => self.read(rows, to, |word| number(i32::from(i16::from_le_bytes(word)))),
            _ => self.read(rows, to, |word| number(i32::from_le_bytes(word))),
        }
    }

    /// Appends the numbers of some rows.
    fn floats(&self, rows: Cut<'_>, to: &mut Vec<f32>) {
        match self.kind {
            Kind::Float16 => self.read(rows, to, |word| f16::from_le_bytes(word).to_f32()),
            Kind::Float32 => self.read(rows, to, f32::from_le_bytes),
            _ => self.integers(rows, to, |value| value as f32),
        }
    }

    /// Puts numbers, of N bytes each, into their places in some rows.
    fn write<T: Copy, const N: usize>(
        &self,
        (rows, width): (&mut [u8], usize),
        numbers: &[T],
        mut bytes: impl FnMut(T) -> [u8; N],
    ) {
        match self.count {
            // Nothing lies between them.
            count if width == count * N => {
                let cells = rows.as_chunks_mut::<N>().0.iter_mut().zip(numbers);
                cells.for_each(|(cell, &number)| *cell = bytes(number));
            }
            1 => rows.chunks_exact_mut(width).zip(numbers).for_each(|(row, &number)| {
                *row[self.offset..].first_chunk_mut().expect("a field lies in its row") = bytes(number);
            }),
            count => rows.chunks_exact_mut(width).zip(numbers.chunks_exact(count)).for_each(|(row, numbers)| {
                let cells = row[self.offset..][..count * N].as_chunks_mut::<N>().0;
                cells.iter_mut().zip(numbers).for_each(|(cell, &number)| *cell = bytes(number));
            }),
        }
    }
}

/// A row of a file, to which field after field is added.
pub(super) struct Row {
    pub(super) file: usize,
    /// Bytes of its fields.
    pub(super) width: usize,
}

impl Row {
    /// Its next field.
    pub(super) const fn field(&mut self, kind: Kind, count: usize) -> Field {
        let field = Field { file: self.file, offset: self.width, kind, count };
        self.width += field.size();
        field
    }
}

/// Where the columns of a table lie in its files.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) label: Field,
    pub(super) dense: Vec<Field>,
    pub(super) categorical: Vec<Field>,
}

impl Layout {
    /// That of one file of 32-bit numbers: label, dense columns and look-ups of a sample, then those of the next one.
    pub(super) fn words(description: &Description) -> Self {
        let mut row = Row { file: 0, width: 0 };
        let number = |float| if float { Kind::Float32 } else { Kind::Int32 };
        Self {
            label: row.field(Kind::Int32, 1),
            dense: description.dense.iter().map(|column| row.field(number(column.float), 1)).collect(),
            categorical: description
                .categorical
                .iter()
                .map(|column| row.field(Kind::Int32, column.hots as usize))
                .collect(),
        }
    }

    fn fields(&self) -> impl Iterator<Item = &Field> {
        [&self.label].into_iter().chain(&self.dense).chain(&self.categorical)
    }

    /// Bytes of a row in a file of which every number is a column's.
    pub(super) fn width(&self, file: usize) -> usize {
        self.fields().filter(|field| field.file == file).map(Field::size).sum()
    }
}

/// Rows of the files that some fields lie in, in memory.
struct Loaded<'a> {
    /// Nothing where no field lies.
    files: Vec<Option<(&'a Records, Portion)>>,
    /// Rows that are read at most at a time.
    most: usize,
}

impl<'a> Loaded<'a> {
    fn of<'f>(fields: impl Iterator<Item = &'f Field>, records: &'a [Records]) -> Self {
        let mut files: Vec<_> = records.iter().map(|_| None).collect();
        fields.for_each(|field| files[field.file] = Some((&records[field.file], Portion::default())));
        let bytes: usize = files.iter().flatten().map(|(records, _)| records.width()).sum();
        Self { files, most: (PORTION / bytes.max(1)).max(1) }
    }

    fn load(&mut self, rows: &Range<usize>) -> Result<()> {
        let most = self.most;
        self.files.iter_mut().flatten().try_for_each(|(records, portion)| portion.load(records, rows.clone(), most))
    }

    /// Some of the loaded rows that a field lies in.
    fn rows(&self, field: &Field, rows: &Range<usize>) -> Cut<'_> {
        let (records, portion) = self.files[field.file].as_ref().expect("the file of a field is loaded");
        (portion.bytes(records, rows.clone()), records.width())
    }
}

/// A table of such columns.
#[derive(Debug, Clone)]
pub(super) struct Strided {
    pub(super) description: Description,
    pub(super) layout: Layout,
    files: Vec<Records>,
    /// The first row of the files that belongs to the table.
    first: u64,
    pub(super) rows: u64,
    /// Whether it is told from others as its only file is, not as a list of files: checkpoints keep which.
    pub(super) told_as_file: bool,
}

impl Strided {
    /// A table of all rows that the files have. Every column must have as many as the labels.
    pub(super) fn new(description: Description, layout: Layout, files: Vec<Records>) -> Result<Self> {
        let rows = files[layout.label.file].rows() as u64;
        debug_assert!(
            layout.dense.iter().zip(&description.dense).all(|(field, column)| field.kind.float() == column.float)
        );
        let table = Self { description, layout, files, first: 0, rows, told_as_file: false };
        for field in table.layout.fields() {
            let found = table.files[field.file].rows() as u64;
            if found != rows {
                let labels = table.path().display();
                let reason = format!("has {found} rows, but {labels} has {rows}: copy or write the data again");
                return Err(bad(table.path_of(field), reason));
            }
        }
        Ok(table)
    }

    /// The file that a column lies in.
    fn path_of(&self, field: &Field) -> &Path {
        self.files[field.file].file().path()
    }

    /// The greatest look-up of each categorical column.
    pub(super) fn largest(&self) -> Result<Vec<Option<u32>>> {
        let fields = &self.layout.categorical;
        let load = || (Loaded::of(fields.iter(), &self.files), Vec::<u32>::new());
        let (most, rows, none) = (load().0.most, self.rows as usize, || vec![None; fields.len()]);
        let portions = (0..rows.div_ceil(most)).into_par_iter();
        let largest = portions.map_init(load, |(loaded, lookups), portion| {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            let rows = portion * most..rows.min((portion + 1) * most);
            loaded.load(&rows)?;
            let largest = fields.iter().map(|field| {
                lookups.clear();
                field.integers(loaded.rows(field, &rows), lookups, |value| value as u32);
                lookups.iter().copied().max()
            });
            Ok(largest.collect())
        });
        largest.try_reduce(none, |a, b| Ok(a.into_iter().zip(b).map(|(a, b)| a.max(b)).collect()))
    }

    /// Some of its rows.
    pub(super) fn part(&self, first: u64, rows: u64) -> Self {
        assert!(first + rows <= self.rows, "a part lies in its table");
        Self { first: self.first + first, rows, ..self.clone() }
    }

    /// Refuses numbers of a column that nothing can be learned from, the first of them in row number `first`.
    fn check(&self, field: &Field, name: &str, (values, first): (&[f32], usize), gaps: bool) -> Result<()> {
        match unfit(values, gaps) {
            Some((at, reason)) => Err(bad(self.path_of(field), format!("row {}: column {name}: {reason}", first + at))),
            None => Ok(()),
        }
    }

    /// Appends the labels of loaded rows.
    fn labels(&self, loaded: &Loaded<'_>, rows: &Range<usize>, to: &mut Vec<f32>) -> Result<()> {
        let (field, known) = (&self.layout.label, to.len());
        field.floats(loaded.rows(field, rows), to);
        let labels = &to[known..];
        if !self.description.label.float
            && let Some(at) = labels.iter().position(|&label| label != 0.0 && label != 1.0)
        {
            let row = rows.start + at;
            let mut label = labels[at].to_string();
            if !field.kind.float() {
                // With all its digits, which a float may not have.
                let mut whole = Vec::new();
                field.integers(loaded.rows(field, &(row..row + 1)), &mut whole, |value| value);
                label = whole[0].to_string();
            }
            return Err(bad(self.path(), format!("row {row}: the label is {label}; 0 or 1 expected")));
        }
        self.check(field, &self.description.label.name, (labels, rows.start), false)
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
        self.path_of(&self.layout.label)
    }

    fn files(&self) -> Vec<&Path> {
        self.layout.fields().map(|field| self.path_of(field)).collect()
    }

    fn fingerprint(&self) -> Option<u64> {
        if self.told_as_file {
            return of_ends(self.path());
        }
        let mut paths = self.files();
        paths.dedup();
        let files: Vec<u64> = paths.into_iter().map(of_ends).collect::<Option<_>>()?;
        Some(of_bytes([bytemuck::cast_slice(&files)]))
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        let loaded = Loaded::of(self.layout.fields(), &self.files);
        Ok(Box::new(StridedRows { table: self, next: start, read: 0, loaded, floats: Vec::new() }))
    }
}

/// A dense column of integers, to be filled.
struct Integers<'a, F>(&'a mut F, usize);

impl<F: Fill> Extend<i32> for Integers<'_, F> {
    fn extend<I: IntoIterator<Item = i32>>(&mut self, values: I) {
        self.0.integers(self.1, values.into_iter());
    }
}

struct StridedRows<'a> {
    table: &'a Strided,
    next: u64,
    /// Rows that were read.
    read: u64,
    loaded: Loaded<'a>,
    /// Those of a column, until they are checked.
    floats: Vec<f32>,
}

impl StridedRows<'_> {
    /// Appends the next rows, at most `limit`; returns how many there were.
    fn hand_to<F: Fill>(&mut self, to: &mut F, limit: usize) -> Result<usize> {
        let Self { table, loaded, floats, .. } = self;
        let all = (table.rows - self.next).min(limit as u64) as usize;
        for done in (0..all).step_by(loaded.most) {
            let count = loaded.most.min(all - done);
            let from = (table.first + self.next) as usize;
            let end = from + count;
            loaded.load(&(from..end))?;
            table.labels(loaded, &(from..end), to.labels())?;
            for first in (from..end).step_by(TURNED) {
                let rows = first..end.min(first + TURNED);
                to.begin(rows.len());
                let columns = table.layout.dense.iter().zip(&table.description.dense);
                for (at, (field, column)) in columns.enumerate() {
                    let rows = loaded.rows(field, &rows);
                    if column.float {
                        floats.clear();
                        field.floats(rows, floats);
                        table.check(field, &column.name, (&floats[..], first), true)?;
                        to.floats(at, floats.iter().copied());
                    } else {
                        field.integers(rows, &mut Integers(&mut *to, at), |value| value);
                    }
                }
                for (at, field) in table.layout.categorical.iter().enumerate() {
                    // A negative number becomes one that no table has, and is refused as such.
                    field.integers(loaded.rows(field, &rows), to.lookups(at).0, |value| value as u32);
                }
            }
            self.next += count as u64;
            self.read += count as u64;
        }
        Ok(all)
    }
}

impl Rows for StridedRows<'_> {
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize> {
        self.hand_to(samples, limit)
    }

    fn read_batch(
        &mut self,
        batch: &mut Batch,
        limit: usize,
        (_, description): (&mut Samples, &Description),
    ) -> Result<usize> {
        self.hand_to(&mut Features::new(batch, description), limit)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min(self.table.rows - self.next);
        self.next += count;
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        self.read * self.table.layout.fields().map(|field| field.size() as u64).sum::<u64>()
    }
}
