//! Whether files write the same values alike: as text, whole numbers of one file are no values of floats in another.

use std::path::{Path, PathBuf};

use parquet::file::statistics::Statistics;

use super::columns::{Kind, Leaf};
use super::numbers::{Numbers, Scratch};
use super::read::{ParquetTable, fault};
use crate::base::console::note;
use crate::base::{Error, Result, interrupt};
use crate::data::formats::bad;
use crate::data::formats::csv::TextSchema;
use crate::data::formats::csv::row::is_named;
use crate::data::text::is_parquet_at;

/// What gives whole numbers with gaps their type back.
const REMEDY: &str = "write it as whole numbers in all files (pandas: .astype(\"Int64\"), which keeps gaps)";

/// Rows that are looked at together.
const PORTION: u64 = 1 << 12;

/// Refuses files of one data set of which one has whole numbers and another one floats in a column whose values a
/// schema tells by their text: pandas writes floats where whole numbers have a gap, and 5.0 is another value than 5.
/// `told`: where all files have floats that are whole numbers, that is said.
///
/// # Errors
/// [`Error::BadFile`] with the column and both files, and when one of them is no whole
/// Parquet file.
pub(in crate::data) fn refuse_two_types<'a>(
    files: impl Iterator<Item = &'a Path>,
    schema: &TextSchema,
    told: bool,
) -> Result<()> {
    let by_text = schema.categorical.iter().filter(|column| column.buckets.is_empty() && column.time.is_none());
    let names: Vec<&str> = by_text.map(|column| &*column.column).collect();
    // The first file of whole numbers and that of floats, and whether floats are whole, one entry a column.
    let mut first: Vec<[Option<PathBuf>; 2]> = vec![[None, None]; names.len()];
    let mut whole = vec![true; names.len()];
    for path in files.filter(|path| is_parquet_at(path)) {
        let table = ParquetTable::open(path)?;
        let leaves = table.leaves();
        for ((name, first), whole) in names.iter().zip(&mut first).zip(&mut whole) {
            // What is wrong with two columns of a name is said by whoever reads them.
            let Some(leaf) = leaves.iter().find(|leaf| is_named(leaf.name.as_bytes(), name)) else { continue };
            let kind = match leaf.kind {
                Kind::Whole { .. } => 0,
                Kind::Float => 1,
                Kind::Blank | Kind::Other(_) => continue,
            };
            if is_blank(&table, leaf)? {
                continue;
            }
            first[kind].get_or_insert_with(|| path.to_owned());
            if let [Some(of_whole), Some(of_floats)] = first {
                let reason = format!(
                    "column {name} has floats, and whole numbers in {}: as values of a category, 5.0 is another one than 5, so \
                     {REMEDY}",
                    of_whole.display()
                );
                return Err(bad(of_floats, reason));
            }
            if told && *whole && kind == 1 {
                *whole = begins_whole(&table, leaf)?;
            }
        }
    }
    for ((name, first), whole) in names.iter().zip(&first).zip(whole) {
        if let ([None, Some(path)], true, true) = (first, told, whole) {
            note!(
                "note: {}: column {name} has floats, which are whole numbers as far as its first values tell, and 5.0 is \
                 another value than 5: if other days have whole numbers, {REMEDY}",
                path.display()
            );
        }
    }
    Ok(())
}

/// Whether a column has no value, as one of nothing but gaps has, be they NaN: then its type says nothing.
fn is_blank(table: &ParquetTable, leaf: &Leaf) -> Result<bool> {
    for group in 0..table.metadata.num_row_groups() {
        let chunk = table.metadata.row_group(group).column(leaf.at);
        let absent = chunk.statistics().and_then(Statistics::null_count_opt);
        if chunk.num_values() == 0 || absent.is_some_and(|absent| i64::try_from(absent) == Ok(chunk.num_values())) {
            continue;
        }
        // The greatest value is one.
        let is_told = match chunk.statistics() {
            Some(Statistics::Int32(found)) => found.max_opt().is_some(),
            Some(Statistics::Int64(found)) => found.max_opt().is_some(),
            Some(Statistics::Float(found)) => found.max_opt().is_some_and(|most| !most.is_nan()),
            Some(Statistics::Double(found)) => found.max_opt().is_some_and(|most| !most.is_nan()),
            _ => false,
        };
        if is_told || has_value(table, group, leaf)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a column has a value in a row group, in whose statistics none is.
fn has_value(table: &ParquetTable, group: usize, leaf: &Leaf) -> Result<bool> {
    let fail = |error| fault(table.path_of(), group, &leaf.name, error);
    let mut numbers = Numbers::open(&table.counted(), &table.metadata, group, leaf, 0).map_err(fail)?;
    let (mut scratch, mut left) = (Scratch::default(), table.rows_of(group));
    while left > 0 {
        if interrupt::requested() {
            return Err(Error::Interrupted);
        }
        let rows = left.min(PORTION);
        numbers.read(rows as usize, &mut scratch).map_err(fail)?;
        if !scratch.integers.is_empty() || scratch.floats.iter().any(|value| !value.is_nan()) {
            return Ok(true);
        }
        left -= rows;
    }
    Ok(false)
}

/// Whether the first floats of a file are whole numbers; it has some.
fn begins_whole(table: &ParquetTable, leaf: &Leaf) -> Result<bool> {
    let (mut scratch, mut left, mut found) = (Scratch::default(), PORTION, false);
    for group in 0..table.metadata.num_row_groups() {
        let rows = left.min(table.rows_of(group));
        if rows == 0 {
            continue;
        }
        let fail = |error| fault(table.path_of(), group, &leaf.name, error);
        let mut numbers = Numbers::open(&table.counted(), &table.metadata, group, leaf, 0).map_err(fail)?;
        numbers.read(rows as usize, &mut scratch).map_err(fail)?;
        let mut values = scratch.floats.iter().filter(|value| !value.is_nan()).peekable();
        found |= values.peek().is_some();
        if values.any(|value| !value.is_finite() || value.fract() != 0.0) {
            return Ok(false);
        }
        left -= rows;
    }
    Ok(found)
}
