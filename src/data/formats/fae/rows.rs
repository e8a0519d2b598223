//! FAE's samples as rows of a table: positions of hot rows become rows again.

use std::path::Path;
use std::sync::Arc;

use super::dictionary::Dictionary;
use super::packed::{Layout, Packed, Sample, SampleReader};
use super::{RERUN, fault};
use crate::base::{Error, Result, interrupt};
use crate::data::formats::pickle::{Number, Value};
use crate::data::formats::{Rows, Table};
use crate::data::samples::Values;
use crate::data::{Description, Samples};

/// Whole numbers beyond this are not all there among 32-bit fractions.
const SINGLE: i64 = 1 << 24;

/// Samples between two looks at the wish to stop.
const PORTION: u64 = 1 << 14;

/// What the look-ups of a file's samples are.
#[derive(Clone)]
pub(super) enum Numbering {
    /// Rows of their tables.
    Rows,
    /// Positions among all hot rows.
    Positions(Arc<Dictionary>),
}

/// A file's samples as rows.
pub(super) struct PackedRows {
    packed: Arc<Packed>,
    layout: Layout,
    numbering: Numbering,
    description: Description,
}

impl PackedRows {
    pub(super) fn new(packed: Arc<Packed>, layout: Layout, numbering: Numbering, description: Description) -> Self {
        Self { packed, layout, numbering, description }
    }
}

impl Table for PackedRows {
    fn description(&self) -> &Description {
        &self.description
    }

    fn rows(&self) -> u64 {
        self.packed.samples()
    }

    fn path(&self) -> &Path {
        self.packed.path()
    }

    fn is_seekable(&self) -> bool {
        false
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        let mut reader = Reader { table: self, from: self.packed.read()? };
        reader.skip(start)?;
        Ok(Box::new(reader))
    }
}

struct Reader<'a> {
    table: &'a PackedRows,
    from: SampleReader<'a>,
}

impl Rows for Reader<'_> {
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize> {
        let count = usize::try_from(self.from.left()).unwrap_or(usize::MAX).min(limit);
        for _ in 0..count {
            let (table, number) = (self.table, self.from.number());
            let sample = self.from.next()?;
            push(&sample, table, samples).map_err(|reason| fault(table.path(), number, reason))?;
        }
        Ok(count)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min(self.from.left());
        for number in 0..count {
            if number % PORTION == 0 && interrupt::requested() {
                return Err(Error::Interrupted);
            }
            self.from.next()?;
        }
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        self.from.at()
    }
}

/// Appends a sample.
fn push(sample: &Sample, table: &PackedRows, samples: &mut Samples) -> std::result::Result<(), String> {
    let layout = &table.layout;
    let label = sample.label.number().and_then(Number::whole).filter(|label| matches!(label, 0 | 1));
    let label = label.ok_or_else(|| {
        let found = sample.label.number().map_or_else(|| sample.label.kind(), |number| number.to_string());
        format!("the label is {found}; 0 or 1 expected: {RERUN}")
    })?;
    let found = sample.dense.row();
    if found != Some(layout.dense) {
        return Err(format!("has {} for {} dense features: {RERUN}", sample.dense.kind(), layout.dense));
    }
    for (at, values) in samples.dense.iter_mut().enumerate() {
        let number = sample.dense.number_at(at);
        let fail = || {
            let found = number.map_or("none".to_owned(), |number| number.to_string());
            let kind = if layout.fractions { "a number" } else { "a whole number of 32 bits" };
            format!("dense feature {at} is {found}; {kind} expected, as in the first sample: {RERUN}")
        };
        match values {
            Values::Integers(values) => {
                let value = number.and_then(Number::whole).and_then(|value| i32::try_from(value).ok());
                values.push(value.ok_or_else(fail)?);
            }
            Values::Floats(values) => values.push(number.ok_or_else(fail)?.float() as f32),
        }
    }
    for (at, lookups) in samples.lookups.iter_mut().enumerate() {
        let value = lookup(&sample.lookups, at, layout)?;
        let row = match &table.numbering {
            Numbering::Rows => value,
            Numbering::Positions(dictionary) => position(dictionary, at, value)?,
        };
        lookups.rows.push(row);
    }
    samples.labels.push(label as f32);
    Ok(())
}

/// The number that a sample has for a table.
fn lookup(row: &Value, table: usize, layout: &Layout) -> std::result::Result<u32, String> {
    if row.row() != Some(layout.tables) {
        return Err(format!("has {} for look-ups in {} tables: {RERUN}", row.kind(), layout.tables));
    }
    let number = row.number_at(table);
    let whole = number.and_then(Number::whole);
    let found = || number.map_or("none".to_owned(), |number| number.to_string());
    let single = matches!(row, Value::Array(array) if array.single());
    if single && whole.is_some_and(|whole| whole > SINGLE) {
        return Err(format!(
            "table {table}: look-up {} is a 32-bit fraction, which tells whole numbers apart up to {SINGLE}, so that the row \
             is not known: write the files with FAE's dlrm_input_profiler.py instead of that of several processes",
            found()
        ));
    }
    whole
        .and_then(|whole| u32::try_from(whole).ok())
        .ok_or_else(|| format!("table {table}: look-up {} is no row's number: {RERUN}", found()))
}

/// The row at a position, which must be of this table.
fn position(dictionary: &Dictionary, table: usize, position: u32) -> std::result::Result<u32, String> {
    match dictionary.at(position) {
        Some((of, row)) if of as usize == table => Ok(row),
        Some((of, row)) => {
            Err(format!("table {table}: position {position} among hot rows is row {row} of table {of}: {RERUN}"))
        }
        None => Err(format!(
            "table {table}: position {position} is beyond the {} hot rows of {}: {RERUN}",
            dictionary.len(),
            dictionary.path().display()
        )),
    }
}

/// Hands each sample's look-ups to `each`, until it has seen enough.
fn survey(packed: &Packed, layout: &Layout, mut each: impl FnMut(u64, &[u32]) -> bool) -> Result<()> {
    let mut reader = packed.read()?;
    let mut lookups = Vec::new();
    while reader.left() > 0 {
        let number = reader.number();
        if number.is_multiple_of(PORTION) && interrupt::requested() {
            return Err(Error::Interrupted);
        }
        let sample = reader.next()?;
        lookups.clear();
        for table in 0..layout.tables {
            let value = lookup(&sample.lookups, table, layout);
            lookups.push(value.map_err(|reason| fault(packed.path(), number, reason))?);
        }
        if !each(number, &lookups) {
            break;
        }
    }
    Ok(())
}

/// What the look-ups of the hot samples are, told by all of them.
///
/// # Errors
/// When they are neither, or the file cannot be read.
pub(super) fn numbering(hot: &Packed, layout: &Layout, dictionary: &Arc<Dictionary>) -> Result<Numbering> {
    let mut no_position = None;
    let mut are_rows = true;
    let sorted = dictionary.sorted();
    survey(hot, layout, |number, lookups| {
        for (table, &value) in lookups.iter().enumerate() {
            if no_position.is_none() {
                no_position = position(dictionary, table, value).err().map(|reason| (number, reason));
            }
            are_rows = are_rows && sorted[table].binary_search(&value).is_ok();
        }
        no_position.is_none() || are_rows
    })?;
    match no_position {
        None => Ok(Numbering::Positions(Arc::clone(dictionary))),
        Some(_) if are_rows => Ok(Numbering::Rows),
        Some((number, reason)) => Err(fault(hot.path(), number, reason)),
    }
}

/// Raises `most` to the largest row of each table that samples look up.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn largest(packed: &Packed, layout: &Layout, most: &mut [Option<u32>]) -> Result<()> {
    survey(packed, layout, |_, lookups| {
        most.iter_mut().zip(lookups).for_each(|(most, &row)| *most = (*most).max(Some(row)));
        true
    })
}
