//! What the cells of a Parquet file's columns are as text.
//!
//! Numbers and booleans are what pandas writes into CSV, so that values have the same names there: integers and floats
//! have the fewest digits that give them back, floats a point or an exponent (`18.0`, `1e-05`), booleans are `True` and
//! `False`. Strings are as they are, decimals have their scale; then there are `2026-01-31`, `09:30:00` and
//! `2026-01-31 09:30:00.500` (UTC, also of a time zone). Where there is no value, or a float that is none, a cell is
//! blank. The values of a list stand between bars. Columns that are no such text (structures, maps, lists of lists,
//! half floats, UUIDs, intervals) are left out.

use std::io::Write;

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use super::columns::{Leaf, leaves};
use super::numbers::records;
use crate::data::moment::DAY;

/// What stands between the values of a list.
pub(super) const BAR: u8 = b'|';
/// Digits of the largest decimals, and the bytes that hold them.
const DIGITS: i32 = 38;
const BYTES: usize = 16;

/// A column that is text.
pub(super) struct Cell {
    pub(super) leaf: Leaf,
    pub(super) name: String,
    shape: Shape,
}

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    /// Integers whose highest bit is a value's.
    Unsigned,
    /// Days since 1970.
    Date,
    /// So many parts of a second each, since midnight.
    Time(i64),
    /// So many parts of a second each, since 1970.
    Moment(i64),
    /// Behind the point are so many digits.
    Decimal(usize),
}

/// The columns of a file that are text.
pub(super) fn cells(schema: &SchemaDescriptor) -> Vec<Cell> {
    let root = |at: usize| schema.get_column_root_idx(at);
    let found = leaves(schema).into_iter().zip(schema.columns()).filter_map(|(leaf, column)| {
        let parts = column.path().parts().len();
        // A list's values are below a group of its own, at most.
        let deepest = if leaf.list { 3 } else { 1 };
        let several = (0..schema.num_columns()).any(|other| other != leaf.at && root(other) == root(leaf.at));
        let nested = column.max_rep_level() > 1 || parts > deepest || several;
        let shape = shape(column).filter(|_| !nested)?;
        Some(Cell { name: leaf.name.clone(), leaf, shape })
    });
    found.collect()
}

/// How a column's values are written; nothing where they are no text. Older files have but the converted type.
fn shape(column: &ColumnDescriptor) -> Option<Shape> {
    use ConvertedType as Old;
    let decimal = |scale: i32, digits: i32| {
        let held = digits <= DIGITS && (0..=digits).contains(&scale);
        held.then_some(Shape::Decimal(scale as usize))
    };
    let parts = |unit: &TimeUnit| match unit {
        TimeUnit::MILLIS => 1_000,
        TimeUnit::MICROS => 1_000_000,
        TimeUnit::NANOS => 1_000_000_000,
    };
    let old = column.converted_type();
    match column.logical_type_ref() {
        Some(LogicalType::Decimal(kind)) => return decimal(kind.scale, kind.precision),
        Some(LogicalType::Date) => return Some(Shape::Date),
        Some(LogicalType::Time(kind)) => return Some(Shape::Time(parts(&kind.unit))),
        Some(LogicalType::Timestamp(kind)) => return Some(Shape::Moment(parts(&kind.unit))),
        Some(LogicalType::Integer(kind)) if !kind.is_signed => return Some(Shape::Unsigned),
        Some(LogicalType::Uuid | LogicalType::Float16 | LogicalType::Bson) => return None,
        _ => (),
    }
    match old {
        Old::DECIMAL => decimal(column.type_scale(), column.type_precision()),
        Old::DATE => Some(Shape::Date),
        Old::TIME_MILLIS => Some(Shape::Time(1_000)),
        Old::TIME_MICROS => Some(Shape::Time(1_000_000)),
        Old::TIMESTAMP_MILLIS => Some(Shape::Moment(1_000)),
        Old::TIMESTAMP_MICROS => Some(Shape::Moment(1_000_000)),
        Old::UINT_8 | Old::UINT_16 | Old::UINT_32 | Old::UINT_64 => Some(Shape::Unsigned),
        Old::INTERVAL | Old::BSON => None,
        _ if column.physical_type() == Physical::INT96 => Some(Shape::Moment(1_000_000_000)),
        _ => Some(Shape::Plain),
    }
}

/// The fields of some rows of a column.
#[derive(Default)]
pub(super) struct Fields {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    present: Vec<i16>,
    again: Vec<i16>,
    /// The first of the rows in which a value of a list holds what stands between them.
    pub(super) divided: Option<usize>,
}

impl Fields {
    /// The field of row `at`.
    pub(super) fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    /// Takes the next `rows` rows of a column.
    ///
    /// # Errors
    /// What the library says of a file that is damaged.
    pub(super) fn read(&mut self, cell: &Cell, reader: &mut ColumnReader, rows: usize) -> Result<()> {
        let shape = cell.shape;
        match reader {
            ColumnReader::BoolColumnReader(reader) => self.take(cell, reader, rows, |&value, to| {
                put(to, if value { "True" } else { "False" });
            }),
            ColumnReader::Int32ColumnReader(reader) => self.take(cell, reader, rows, |&value, to| match shape {
                Shape::Unsigned => put(to, value as u32),
                _ => whole(shape, value.into(), to),
            }),
            ColumnReader::Int64ColumnReader(reader) => self.take(cell, reader, rows, |&value, to| match shape {
                Shape::Unsigned => put(to, value as u64),
                _ => whole(shape, value, to),
            }),
            ColumnReader::Int96ColumnReader(reader) => {
                self.take(cell, reader, rows, |value, to| whole(shape, value.to_nanos(), to))
            }
            ColumnReader::FloatColumnReader(reader) => self.take(cell, reader, rows, |&value, to| float(value, to)),
            ColumnReader::DoubleColumnReader(reader) => self.take(cell, reader, rows, |&value, to| float(value, to)),
            ColumnReader::ByteArrayColumnReader(reader) => {
                self.take(cell, reader, rows, |value, to| bytes(shape, value.data(), to))
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                self.take(cell, reader, rows, |value, to| bytes(shape, value.data(), to))
            }
        }
    }

    fn take<T: DataType>(
        &mut self,
        Cell { leaf, .. }: &Cell,
        reader: &mut ColumnReaderImpl<T>,
        rows: usize,
        write: impl Fn(&T::T, &mut Vec<u8>),
    ) -> Result<()> {
        let Self { bytes, ends, present, again, divided } = self;
        bytes.clear();
        ends.clear();
        present.clear();
        again.clear();
        *divided = None;
        let mut values = Vec::new();
        records(reader, rows, (&mut *present, &mut *again), &mut values, |value| value)?;
        let mut values = values.iter();
        let mut next = || values.next().ok_or_else(|| ParquetError::EOF("it has fewer values than levels".to_owned()));
        let places = if leaf.list { present.len() } else { rows };
        for at in 0..places {
            if again.get(at).is_some_and(|&level| level > 0) {
                bytes.push(BAR);
            } else if at > 0 {
                ends.push(bytes.len());
            }
            // Without levels every value is there. What is not is an empty list, or a gap.
            if present.get(at).is_some_and(|&level| level < leaf.present) {
                continue;
            }
            let from = bytes.len();
            write(next()?, bytes);
            if leaf.list && bytes[from..].contains(&BAR) {
                divided.get_or_insert(ends.len());
            }
        }
        ends.push(bytes.len());
        if ends.len() == rows {
            return Ok(());
        }
        Err(ParquetError::General(format!("{} lists instead of {rows}", ends.len())))
    }
}

/// Appends what is written so by whoever prints it.
fn put(to: &mut Vec<u8>, value: impl std::fmt::Display) {
    // Writing to a vector cannot fail.
    let _ = write!(to, "{value}");
}

/// Appends a float as Python writes it: its exponent has a sign and two digits at least. A float that is none is blank.
fn float(value: impl std::fmt::Debug + Into<f64> + Copy, to: &mut Vec<u8>) {
    if value.into().is_nan() {
        return;
    }
    let from = to.len();
    put(to, format_args!("{value:?}"));
    let Some(at) = to[from..].iter().position(|&byte| byte == b'e') else { return };
    let behind = from + at + 1;
    let sign = if to[behind] == b'-' { to.remove(behind) } else { b'+' };
    let zero = (to.len() == behind + 1).then_some(b'0');
    to.splice(behind..behind, [sign].into_iter().chain(zero));
}

/// Appends an integer, or what it stands for.
fn whole(shape: Shape, value: i64, to: &mut Vec<u8>) {
    let time = |value: i64, parts: i64, to: &mut Vec<u8>| {
        let (seconds, fraction) = (value.div_euclid(parts), value.rem_euclid(parts));
        put(to, format_args!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60));
        if fraction > 0 {
            let digits = parts.ilog10() as usize;
            put(to, format_args!(".{fraction:0digits$}"));
        }
    };
    match shape {
        Shape::Plain | Shape::Unsigned => put(to, value),
        Shape::Date => date(value, to),
        Shape::Time(parts) => time(value, parts, to),
        Shape::Moment(parts) => {
            let day = parts * DAY;
            date(value.div_euclid(day), to);
            to.push(b' ');
            time(value.rem_euclid(day), parts, to);
        }
        Shape::Decimal(scale) => decimal(value.into(), scale, to),
    }
}

/// Appends a string, or the decimal that it stands for: an integer of big-endian bytes.
fn bytes(shape: Shape, value: &[u8], to: &mut Vec<u8>) {
    let Shape::Decimal(scale) = shape else { return to.extend_from_slice(value) };
    // Bytes before those that count repeat the sign.
    let counting = &value[value.len().saturating_sub(BYTES)..];
    let negative = value.first().is_some_and(|byte| *byte > 127);
    let mut all = [if negative { u8::MAX } else { 0 }; BYTES];
    all[BYTES - counting.len()..].copy_from_slice(counting);
    decimal(i128::from_be_bytes(all), scale, to);
}

fn decimal(unscaled: i128, scale: usize, to: &mut Vec<u8>) {
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (before, behind) = digits.split_at(digits.len() - scale);
    let (sign, point) = (if unscaled < 0 { "-" } else { "" }, if scale > 0 { "." } else { "" });
    put(to, format_args!("{sign}{before}{point}{behind}"));
}

/// Appends a day of the Gregorian calendar, by its number since the first of 1970.
fn date(day: i64, to: &mut Vec<u8>) {
    // Years that begin in March have their leap day at the end; 400 of them have 146,097 days.
    let day = day + 719_468;
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    put(to, format_args!("{:04}-{month:02}-{day:02}", 400 * era + year));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::moment::Unit;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut to = Vec::new();
        write(&mut to);
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn days_and_moments_are_those_that_are_read_back() {
        for (day, expected) in [(0, "1970-01-01"), (-1, "1969-12-31"), (11_016, "2000-02-29"), (16_364, "2014-10-21")] {
            assert_eq!(text(|to| date(day, to)), expected);
        }
        for seconds in (-1_000_000_000..3_000_000_000).step_by(98_765_432) {
            let written = text(|to| whole(Shape::Moment(1_000), seconds * 1_000 + 7, to));
            let back = Unit::Written.parse(written.as_bytes());
            assert_eq!(back, Unit::Seconds.parse(seconds.to_string().as_bytes()), "{written}");
        }
        assert_eq!(text(|to| whole(Shape::Moment(1_000_000), 1_413_860_400_500_000, to)), "2014-10-21 03:00:00.500000");
        assert_eq!(text(|to| whole(Shape::Time(1_000), 34_200_000, to)), "09:30:00");
    }

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (value, expected) in [
            (18.0, "18.0"),
            (-0.125, "-0.125"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.5e100, "-1.5e+100"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(text(|to| float(value, to)), expected);
        }
    }

    #[test]
    fn decimals_have_their_scale_whatever_holds_them() {
        for (unscaled, scale, expected) in [(1250i64, 2, "12.50"), (-5, 2, "-0.05"), (7, 0, "7"), (0, 3, "0.000")] {
            assert_eq!(text(|to| whole(Shape::Decimal(scale), unscaled, to)), expected);
            let whole = unscaled.to_be_bytes();
            assert_eq!(text(|to| bytes(Shape::Decimal(scale), &whole, to)), expected);
            assert_eq!(text(|to| bytes(Shape::Decimal(scale), &whole[6..], to)), expected);
            let long = i128::from(unscaled).to_be_bytes();
            assert_eq!(text(|to| bytes(Shape::Decimal(scale), &long, to)), expected);
        }
    }
}
