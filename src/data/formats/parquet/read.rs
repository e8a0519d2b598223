//! Rows of a Parquet file: a row group is entered at the row that is asked for, and only wanted columns are read of it.
//!
//! A page (by default 20,000 rows or 1 MiB) of each column is in memory at a time, whatever the size of row groups.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use rayon::prelude::*;

use super::columns::{Columns, Kind, Leaf, leaves};
use super::numbers::{Counted, Numbers, Scratch, guarded};
use super::{ENCRYPTED, SEALED};
use crate::base::{Error, Result};
use crate::data::fingerprint::of_bytes;
use crate::data::formats::{Rows, Table, bad, unfit};
use crate::data::samples::{Lookups, MISSING, Values};
use crate::data::schema::Categorical;
use crate::data::{Description, Labels, Samples};
use crate::memory::{Access, FileBytes};

/// A Parquet file.
pub(super) struct ParquetTable {
    path: PathBuf,
    bytes: Arc<FileBytes>,
    pub(super) metadata: Arc<ParquetMetaData>,
    /// The first row of each row group, and the number of rows.
    starts: Vec<u64>,
    columns: Option<Columns>,
    pub(super) description: Description,
    pub(super) longest: Vec<u32>,
    pub(super) labels: Labels,
    /// Read once, since a file may have a part in every split.
    first_values: OnceLock<Option<[u64; 2]>>,
}

/// What the library says of a column.
pub(super) fn fault(path: &Path, group: usize, column: &str, error: ParquetError) -> Error {
    let reason = match error {
        ParquetError::NYI(what) => {
            format!("{what}, which is not read here: write the file again with zstd or snappy and the usual encodings")
        }
        // So begins a page that is none, as that of a column is which its writer has encrypted.
        error if error.to_string().contains("Required field") => format!(
            "{error}: the column is encrypted, which is not read here: write the file again without that; or the file is \
             damaged, get it again"
        ),
        error => format!("{error}: the file is damaged or truncated, get it again"),
    };
    bad(path, format!("row group {group}, column {column}: {reason}"))
}

impl ParquetTable {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = FileBytes::open(path)?;
        file.advise(Access::Random);
        let bytes = Arc::new(file);
        let fail = |reason: String| bad(path, format!("is no whole Parquet file: {reason}"));
        if bytes.len() > SEALED.len() && bytes.bytes(bytes.len() - SEALED.len()..bytes.len())? == SEALED {
            return Err(bad(path, ENCRYPTED));
        }
        let metadata = guarded(|| ParquetMetaDataReader::new().parse_and_finish(&Counted::new(&bytes)));
        let metadata = metadata.map_err(|error| fail(error.to_string()))?;
        let mut starts = vec![0u64];
        for (number, group) in metadata.row_groups().iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).ok().and_then(|rows| rows.checked_add(starts[number]));
            starts.push(rows.ok_or_else(|| fail(format!("row group {number} has {} rows", group.num_rows())))?);
        }
        Ok(Self {
            path: path.to_owned(),
            bytes,
            metadata: Arc::new(metadata),
            starts,
            columns: None,
            description: Description::default(),
            longest: Vec::new(),
            labels: Labels::default(),
            first_values: OnceLock::new(),
        })
    }

    pub(super) fn leaves(&self) -> Vec<Leaf> {
        leaves(self.metadata.file_metadata().schema_descr())
    }

    pub(super) fn with(self, columns: Columns) -> Self {
        Self { columns: Some(columns), ..self }
    }

    pub(super) fn columns(&self) -> &Columns {
        self.columns.as_ref().expect("they are found when the file is opened")
    }

    pub(super) fn path_of(&self) -> &Path {
        &self.path
    }

    pub(super) fn rows_of(&self, group: usize) -> u64 {
        self.starts[group + 1] - self.starts[group]
    }

    /// A column's name, its values in the first rows, where their lists begin and where no value is, whatever row
    /// groups they are in; nothing where they cannot be read.
    fn beginning(&self, leaf: &Leaf) -> Option<Vec<u8>> {
        const FIRST: u64 = 1 << 8;
        let (mut bytes, mut lists) = (leaf.name.clone().into_bytes(), Vec::new());
        let (mut gaps, mut levels): (Vec<u64>, u64) = (Vec::new(), 0);
        let (mut scratch, mut left) = (Scratch::default(), FIRST);
        for group in 0..self.metadata.num_row_groups() {
            let rows = left.min(self.rows_of(group));
            if rows > 0 {
                let mut numbers = Numbers::open(&self.counted(), &self.metadata, group, leaf, 0).ok()?;
                numbers.read(rows as usize, &mut scratch).ok()?;
                bytes.extend_from_slice(bytemuck::cast_slice(&scratch.integers));
                bytes.extend_from_slice(bytemuck::cast_slice(&scratch.floats));
                lists.extend_from_slice(&scratch.again);
                let all = (levels..).zip(&scratch.present);
                gaps.extend(all.filter(|(_, level)| **level < leaf.present).map(|(at, _)| at));
                levels += scratch.present.len() as u64;
            }
            left -= rows;
        }
        bytes.extend_from_slice(bytemuck::cast_slice(&lists));
        bytes.extend_from_slice(bytemuck::cast_slice(&gaps));
        Some(bytes)
    }

    pub(super) fn counted(&self) -> Arc<Counted> {
        Arc::new(Counted::new(&self.bytes))
    }
}

impl Table for ParquetTable {
    fn description(&self) -> &Description {
        &self.description
    }

    fn rows(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn longest(&self) -> Vec<u32> {
        self.longest.clone()
    }

    /// Nothing but rows: whoever mends one writes the whole file again, in groups and pages of another writer's choice.
    fn fingerprint(&self) -> Option<u64> {
        Some(of_bytes([bytemuck::bytes_of(&self.rows())]))
    }

    fn first_values(&self) -> Option<[u64; 2]> {
        let read = || {
            let mut leaves: Vec<&Leaf> = self.columns().all().collect();
            // In the order of the file, whatever the columns are described by.
            leaves.sort_by_key(|leaf| leaf.at);
            let columns = leaves.into_par_iter().map(|leaf| Some((&*leaf.name, self.beginning(leaf)?)));
            let mut columns: Vec<(&str, Vec<u8>)> = columns.collect::<Option<_>>()?;
            let all = |columns: &[(&str, Vec<u8>)]| of_bytes(columns.iter().map(|(_, bytes)| &bytes[..]));
            let placed = all(&columns);
            columns.sort_by_key(|(name, _)| *name);
            Some([placed, all(&columns)])
        };
        *self.first_values.get_or_init(read)
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        Ok(Box::new(ParquetRows {
            table: self,
            file: self.counted(),
            next: start,
            open: None,
            scratch: Scratch::default(),
            weights: Scratch::default(),
        }))
    }
}

struct ParquetRows<'a> {
    table: &'a ParquetTable,
    file: Arc<Counted>,
    /// The number of the next row in the file.
    next: u64,
    /// The row group that was entered, and its columns in the order of [`Columns::all`].
    open: Option<(usize, Vec<Numbers>)>,
    scratch: Scratch,
    weights: Scratch,
}

impl ParquetRows<'_> {
    /// Enters the row group of the next row, if it is not the one that is open.
    fn enter(&mut self) -> Result<usize> {
        let table = self.table;
        if let Some((group, _)) = self.open
            && self.next < table.starts[group + 1]
        {
            return Ok(group);
        }
        // Not counting row groups without rows.
        let group = table.starts.partition_point(|&start| start <= self.next) - 1;
        let skip = (self.next - table.starts[group]) as usize;
        let open = |leaf: &Leaf| {
            Numbers::open(&self.file, &table.metadata, group, leaf, skip)
                .map_err(|error| fault(&table.path, group, &leaf.name, error))
        };
        let columns = table.columns().all().map(open).collect::<Result<_>>()?;
        self.open = Some((group, columns));
        Ok(group)
    }

    /// Appends `rows` rows of the open row group.
    fn push(&mut self, samples: &mut Samples, group: usize, rows: usize) -> Result<()> {
        let table = self.table;
        let (scratch, weights, first) = (&mut self.scratch, &mut self.weights, self.next);
        let (_, numbers) = self.open.as_mut().expect("a row group was entered");
        let mut numbers = numbers.iter_mut();
        let mut read = |leaf: &Leaf, scratch: &mut Scratch| {
            let numbers = numbers.next().expect("one for each column");
            numbers.read(rows, scratch).map_err(|error| fault(&table.path, group, &leaf.name, error))
        };
        let wrong = |leaf: &Leaf, at: usize, reason: String| {
            let row = first + at as u64;
            bad(&table.path, format!("row group {group}, column {}, row {row}: {reason}", leaf.name))
        };
        let columns = table.columns();
        match &columns.label {
            Some(leaf) => {
                read(leaf, scratch)?;
                labels(scratch, leaf, table, rows, &mut samples.labels)
                    .map_err(|(at, reason)| wrong(leaf, at, reason))?;
            }
            None => samples.labels.resize(samples.labels.len() + rows, f32::NAN),
        }
        for (number, (leaf, values)) in columns.dense.iter().zip(&mut samples.dense).enumerate() {
            read(leaf, scratch)?;
            let known = values.len();
            dense(scratch, leaf, rows, values).map_err(|(at, reason)| wrong(leaf, at, reason))?;
            if table.description.weighs(number)
                && let Some((at, reason)) = values.no_weight(known..values.len())
            {
                return Err(wrong(leaf, at, reason));
            }
        }
        for (((leaf, of), lookups), column) in
            columns.categorical.iter().zip(&mut samples.lookups).zip(&table.description.categorical)
        {
            read(leaf, scratch)?;
            let known = lookups.rows.len();
            let fill = |at: usize, value: i64| {
                let row = u32::try_from(value)
                    .map_err(|_| (at, format!("{} is no row number{NUMBERED}", leaf.shown_value(value))))?;
                if u64::from(row) >= column.rows {
                    return Err((at, beyond(row, column)));
                }
                lookups.rows.push(row);
                Ok(())
            };
            let counts = lists(scratch, leaf, rows, column.hots, &scratch.integers, fill)
                .map_err(|(at, reason)| wrong(leaf, at, reason))?;
            if let Some(of) = of {
                read(of, weights)?;
                let push = |at, weight: f32| {
                    lookups.weights.push(weight);
                    unfit(&[weight], false).map_or(Ok(()), |(_, reason)| Err((at, reason)))
                };
                let weighed = lists(weights, of, rows, column.hots, &weights.floats, push)
                    .map_err(|(at, reason)| wrong(of, at, reason))?;
                if let Some(at) = (0..rows).find(|&at| counts[at] != weighed[at]) {
                    let reason = format!("{} weights for the {} values of {}", weighed[at], counts[at], leaf.name);
                    return Err(wrong(of, at, reason));
                }
            }
            end(lookups, known, &counts, column.hots);
        }
        Ok(())
    }
}

/// Where a fault is among the rows that are read, and what it is.
type Fault = (usize, String);

/// What to do with values that are no row numbers.
pub(super) const NUMBERED: &str = ": values that are not numbered from 0 on are described by a schema (`octorec inspect FILE --label \
                        COLUMN --write-schema SCHEMA`, then --schema SCHEMA)";

/// That a table has no such row.
fn beyond(row: u32, Categorical { rows, .. }: &Categorical) -> String {
    format!(
        "row {row} is beyond the {rows} rows of its table, which has those of the data that the model was trained on, or those \
         that a schema.toml beside the files says: leave such rows out, or train a model whose tables are large enough (rows in \
         the schema.toml)"
    )
}

/// What is missing and must not be.
fn null(at: usize) -> Fault {
    (at, "there is no value: give it one (a row of its own, often 0) before training".to_owned())
}

/// Which row the first missing value is in, of a column without lists.
fn missing(scratch: &Scratch, leaf: &Leaf) -> Option<usize> {
    scratch.present.iter().position(|&level| level < leaf.present)
}

/// Appends labels; NaN where there is none and need not be one.
fn labels(
    scratch: &Scratch,
    leaf: &Leaf,
    table: &ParquetTable,
    rows: usize,
    labels: &mut Vec<f32>,
) -> std::result::Result<(), Fault> {
    let (known, float, gaps) = (labels.len(), table.description.label.float, table.labels != Labels::Required);
    if let Some(at) = missing(scratch, leaf).filter(|_| !gaps) {
        return Err((at, "there is no label".to_owned()));
    }
    let integers = scratch.integers.iter().map(|&label| label as f32);
    let mut found = integers.chain(scratch.floats.iter().copied());
    let there = (0..rows).map(|at| scratch.present.get(at).is_none_or(|&level| level == leaf.present));
    labels.extend(there.map(|there| if there { found.next().expect("a value") } else { f32::NAN }));
    let is_bit = |label: f32| label == 0.0 || label == 1.0 || gaps && label.is_nan();
    match labels[known..].iter().position(|&label| !float && !is_bit(label)) {
        Some(at) => Err((at, format!("the label is {}; 0 or 1 expected", labels[known + at]))),
        None => unfit(&labels[known..], gaps).map_or(Ok(()), Err),
    }
}

fn dense(scratch: &Scratch, leaf: &Leaf, rows: usize, values: &mut Values) -> std::result::Result<(), Fault> {
    let mut there = (0..rows).map(|at| scratch.present.get(at).is_none_or(|&level| level == leaf.present));
    match (values, &leaf.kind) {
        (Values::Floats(values), Kind::Float) => {
            let (mut found, known) = (scratch.floats.iter(), values.len());
            values.extend(there.map(|there| if there { *found.next().expect("a value") } else { f32::NAN }));
            return unfit(&values[known..], true).map_or(Ok(()), Err);
        }
        (Values::Floats(values), _) => {
            let mut found = scratch.integers.iter();
            values.extend(there.map(|there| if there { *found.next().expect("a value") as f32 } else { f32::NAN }));
        }
        (Values::Integers(values), _) => {
            let mut found = scratch.integers.iter();
            let wide = there.by_ref().enumerate().try_for_each(|(at, there)| {
                let value = if there { *found.next().expect("a value") } else { i64::from(MISSING) };
                let held = i32::try_from(value).ok().filter(|&value| !there || value != MISSING);
                values
                    .push(held.ok_or_else(|| (at, format!("{value} does not fit into 32 bits: store it as a float")))?);
                Ok(())
            });
            wide?;
        }
    }
    Ok(())
}

/// Hands the values of each row to `push`; returns how many each row has.
fn lists<N: Copy>(
    scratch: &Scratch,
    leaf: &Leaf,
    rows: usize,
    hots: u32,
    values: &[N],
    mut push: impl FnMut(usize, N) -> std::result::Result<(), Fault>,
) -> std::result::Result<Vec<u32>, Fault> {
    if !leaf.list {
        if let Some(at) = missing(scratch, leaf) {
            return Err(null(at));
        }
        values.iter().enumerate().try_for_each(|(at, &value)| push(at, value))?;
        return Ok(vec![1; rows]);
    }
    let mut counts = Vec::with_capacity(rows);
    let mut values = values.iter();
    for (&again, &level) in scratch.again.iter().zip(&scratch.present) {
        if again == 0 || counts.is_empty() {
            counts.push(0);
        }
        let at = counts.len() - 1;
        match level {
            _ if level == leaf.present => {
                push(at, *values.next().expect("a value"))?;
                counts[at] += 1;
            }
            // A list that is there and empty.
            _ if level + 1 == leaf.place => (),
            _ => return Err(null(at)),
        }
    }
    if counts.len() != rows {
        return Err((0, format!("{} lists instead of {rows}: the file is damaged", counts.len())));
    }
    match counts.iter().position(|&count| hots > 0 && count != hots) {
        Some(at) => Err((at, format!("has {} values, but hots = {hots}", counts[at]))),
        None => Ok(counts),
    }
}

fn end(lookups: &mut Lookups, known: usize, counts: &[u32], hots: u32) {
    if hots == 0 {
        let mut end = known as u32;
        lookups.ends.extend(counts.iter().map(|count| {
            end += count;
            end
        }));
    }
}

impl Rows for ParquetRows<'_> {
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize> {
        let mut read = 0;
        while read < limit && self.next < self.table.rows() {
            let group = self.enter()?;
            let rows = (self.table.starts[group + 1] - self.next).min((limit - read) as u64) as usize;
            if let Err(error) = self.push(samples, group, rows) {
                // Its columns stand at different rows now.
                self.open = None;
                return Err(error);
            }
            self.next += rows as u64;
            read += rows;
        }
        Ok(read)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min(self.table.rows() - self.next);
        let next = self.next + count;
        let inside = self.open.as_mut().filter(|(group, _)| next < self.table.starts[group + 1]);
        let Some((group, numbers)) = inside else {
            (self.next, self.open) = (next, None);
            return Ok(count);
        };
        let group = *group;
        let mut skipped = numbers.iter_mut().zip(self.table.columns().all()).map(|(numbers, leaf)| {
            numbers.skip(count as usize).map_err(|error| fault(&self.table.path, group, &leaf.name, error))
        });
        if let Some(Err(error)) = skipped.find(Result::is_err) {
            self.open = None;
            return Err(error);
        }
        self.next = next;
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        self.file.read.load(Ordering::Relaxed)
    }
}
