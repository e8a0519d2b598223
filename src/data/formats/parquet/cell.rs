//! What the cells of a Parquet file's columns are as text.
//!
//! Numbers and booleans are what pandas writes into CSV, so that values have the same names there: integers and floats
//! have the fewest digits that give them back, floats a point or an exponent (`18.0`, `1e-05`), booleans are `True` and
//! `False`. Strings are as they are, decimals have their scale; then there are `2026-01-31`, `09:30:00` and
//! `2026-01-31 09:30:00.500` (UTC, also of a time zone). Where there is no value, or a float that is none, a cell is
//! blank. The values of a list stand between bars. UUIDs are `67e55044-10b1-426f-9247-bb680e5fe0c8`. Columns that are
//! none of these (structures, maps, lists of lists, half floats, intervals) have no text, and are told.

use std::io::Write;

use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};

use super::columns::{Kind, Leaf, leaves};
use super::numbers::records;
use crate::data::formats::csv::LeftOut;
use crate::data::moment::DAY;

/// What stands between the values of a list.
pub(super) const BAR: u8 = b'|';
/// Digits of the largest decimals, and the bytes that hold them.
const DIGITS: i32 = 38;
const BYTES: usize = 16;
/// Nanoseconds of a second, and the day of Julian's count that is the first of 1970: what INT96 counts.
const NANOS: i64 = 1_000_000_000;
const EPOCH: i64 = 2_440_588;

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
    /// Two digits of 16 for each byte.
    Uuid,
}

/// The columns of a file that are text, and those that are none, each once, with the reason.
pub(super) fn cells(schema: &SchemaDescriptor) -> (Vec<Cell>, Vec<LeftOut>) {
    let (mut cells, mut others): (Vec<Cell>, Vec<LeftOut>) = (Vec::new(), Vec::new());
    for (leaf, column) in leaves(schema).into_iter().zip(schema.columns()) {
        let Some(shape) = shape(&leaf, column) else {
            // The leaves of a column stand beside each other.
            if others.last().is_none_or(|last| last.column != leaf.name) {
                let what = kind(&leaf, column, schema.get_column_root(leaf.at));
                others.push(LeftOut { column: leaf.name, reason: format!("{what}, which has no text") });
            }
            continue;
        };
        cells.push(Cell { name: leaf.name.clone(), leaf, shape });
    }
    (cells, others)
}

/// What a column is that has no text.
fn kind(leaf: &Leaf, column: &ColumnDescriptor, root: &Type) -> String {
    let group = root.get_basic_info();
    let is_group = |logical, old| group.logical_type_ref() == Some(&logical) || group.converted_type() == old;
    let is_repeated = group.has_repetition() && group.repetition() == Repetition::REPEATED;
    let what = match column.logical_type_ref() {
        _ if leaf.nested && is_group(LogicalType::Map, ConvertedType::MAP) => "a map",
        _ if leaf.nested && (is_repeated || is_group(LogicalType::List, ConvertedType::LIST)) => {
            "a list of lists or of structures"
        }
        _ if leaf.nested => "a structure",
        Some(LogicalType::Float16) => "a half float",
        Some(LogicalType::Bson) => "BSON",
        Some(LogicalType::Decimal(_)) => "a decimal of more than 38 digits",
        _ => match column.converted_type() {
            ConvertedType::INTERVAL => "an interval",
            ConvertedType::BSON => "BSON",
            ConvertedType::DECIMAL => "a decimal of more than 38 digits",
            _ => return leaf.shown(),
        },
    };
    if leaf.list && !leaf.nested { format!("a list, each value of which is {what}") } else { what.to_owned() }
}

/// How a column's values are written; nothing where they are no text. Older files have but the converted type.
fn shape(leaf: &Leaf, column: &ColumnDescriptor) -> Option<Shape> {
    use ConvertedType as Old;
    match leaf.kind {
        _ if leaf.nested => return None,
        Kind::Whole { unsigned: true } => return Some(Shape::Unsigned),
        Kind::Whole { unsigned: false } | Kind::Float | Kind::Blank => return Some(Shape::Plain),
        Kind::Other(_) => (),
    }
    let decimal = |scale: i32, digits: i32| {
        let held = digits <= DIGITS && (0..=digits).contains(&scale);
        held.then_some(Shape::Decimal(scale as usize))
    };
    let parts = |unit: &TimeUnit| match unit {
        TimeUnit::MILLIS => 1_000,
        TimeUnit::MICROS => 1_000_000,
        TimeUnit::NANOS => NANOS,
    };
    let old = column.converted_type();
    match column.logical_type_ref() {
        Some(LogicalType::Decimal(kind)) => return decimal(kind.scale, kind.precision),
        Some(LogicalType::Date) => return Some(Shape::Date),
        Some(LogicalType::Time(kind)) => return Some(Shape::Time(parts(&kind.unit))),
        Some(LogicalType::Timestamp(kind)) => return Some(Shape::Moment(parts(&kind.unit))),
        // Of other sizes it is damaged.
        Some(LogicalType::Uuid) => return (column.type_length() == BYTES as i32).then_some(Shape::Uuid),
        Some(LogicalType::Float16 | LogicalType::Bson) => return None,
        _ => (),
    }
    match old {
        Old::DECIMAL => decimal(column.type_scale(), column.type_precision()),
        Old::DATE => Some(Shape::Date),
        Old::TIME_MILLIS => Some(Shape::Time(1_000)),
        Old::TIME_MICROS => Some(Shape::Time(1_000_000)),
        Old::TIMESTAMP_MILLIS => Some(Shape::Moment(1_000)),
        Old::TIMESTAMP_MICROS => Some(Shape::Moment(1_000_000)),
        Old::INTERVAL | Old::BSON => None,
        _ if column.physical_type() == Physical::INT96 => Some(Shape::Moment(NANOS)),
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
                self.take(cell, reader, rows, |value, to| julian(value.data(), to))
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
    match shape {
        // A UUID is bytes.
        Shape::Plain | Shape::Unsigned | Shape::Uuid => put(to, value),
        Shape::Date => date(value, to),
        Shape::Time(parts) => time(value, parts, to),
        Shape::Moment(parts) => moment(0, value, parts, to),
        Shape::Decimal(scale) => decimal(value.into(), scale, to),
    }
}

/// Appends a time of so many parts of a second each.
fn time(value: i64, parts: i64, to: &mut Vec<u8>) {
    let (seconds, fraction) = (value.div_euclid(parts), value.rem_euclid(parts));
    put(to, format_args!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60));
    if fraction > 0 {
        let digits = parts.ilog10() as usize;
        put(to, format_args!(".{fraction:0digits$}"));
    }
}

/// Appends the moment that is so many parts of a second behind the beginning of a day since 1970.
fn moment(day: i64, value: i64, parts: i64, to: &mut Vec<u8>) {
    let of_day = parts * DAY;
    date(day + value.div_euclid(of_day), to);
    to.push(b' ');
    time(value.rem_euclid(of_day), parts, to);
}

/// Appends the moment of an INT96: the nanoseconds of a day, in two halves, and its Julian number. One integer has no
/// room for both: Spark writes the end of the year 9999 where there is no end.
fn julian(parts: &[u32], to: &mut Vec<u8>) {
    let &[low, high, day] = parts else { return };
    let nanos = ((u64::from(high) << 32) | u64::from(low)) as i64;
    moment(i64::from(day) - EPOCH, nanos, NANOS, to);
}

/// Appends a string, a UUID's digits, or the decimal that bytes stand for: an integer of big-endian ones.
fn bytes(shape: Shape, value: &[u8], to: &mut Vec<u8>) {
    let scale = match shape {
        Shape::Decimal(scale) => scale,
        Shape::Uuid => {
            for (at, byte) in value.iter().enumerate() {
                let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                put(to, format_args!("{hyphen}{byte:02x}"));
            }
            return;
        }
        _ => return to.extend_from_slice(value),
    };
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
    use std::sync::Arc;

    use parquet::data_type::Int96;
    use parquet::schema::parser::parse_message_type;

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
    fn moments_of_96_bits_have_all_years() {
        for (day, nanos, expected) in [
            (5_373_484, 0, "9999-12-31 00:00:00"),
            (2_670_325, 86_399_999_999_999u64, "2598-12-31 23:59:59.999999999"),
            (2_440_588, 0, "1970-01-01 00:00:00"),
            (2_440_587, 34_200_500_000_000, "1969-12-31 09:30:00.500000000"),
        ] {
            let mut value = Int96::new();
            value.set_data(nanos as u32, (nanos >> 32) as u32, day);
            assert_eq!(text(|to| julian(value.data(), to)), expected);
        }
    }

    #[test]
    fn uuids_have_five_groups_of_digits() {
        let value: Vec<u8> = (0..16).map(|at| 0x11 * at).collect();
        assert_eq!(text(|to| bytes(Shape::Uuid, &value, to)), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn what_has_no_text_is_told_with_what_it_is() {
        let found = |columns: &str| {
            let message = parse_message_type(&format!("message log {{ {columns} }}")).unwrap();
            let (cells, others) = cells(&SchemaDescriptor::new(Arc::new(message)));
            let cells = cells.into_iter().map(|cell| (cell.name, cell.shape)).collect::<Vec<_>>();
            (cells, others.into_iter().map(|LeftOut { column, reason }| (column, reason)).collect::<Vec<_>>())
        };
        let (texts, others) = found(
            "optional fixed_len_byte_array(16) uid (UUID); optional int64 id (INTEGER(64,false)); \
             optional fixed_len_byte_array(2) half (FLOAT16); optional fixed_len_byte_array(12) span (INTERVAL); \
             optional fixed_len_byte_array(18) wide (DECIMAL(40,2)); \
             optional group st { optional int32 a; optional binary b (UTF8); } \
             optional group m (MAP) { repeated group key_value { required int32 key; optional int32 value; } } \
             optional group deep { optional group in (LIST) { repeated group list { optional int32 element; } } } \
             optional group ll (LIST) { repeated group list { optional group element (LIST) { \
                repeated group list { optional int32 element; } } } } \
             optional group ids (LIST) { repeated group list { optional int64 element; } }",
        );
        let shapes = [("uid", Shape::Uuid), ("id", Shape::Unsigned), ("ids", Shape::Plain)];
        assert_eq!(texts, shapes.map(|(name, shape)| (name.to_owned(), shape)));
        let kinds = [
            ("half", "a half float"),
            ("span", "an interval"),
            ("wide", "a decimal of more than 38 digits"),
            ("st", "a structure"),
            ("m", "a map"),
            ("deep", "a structure"),
            ("ll", "a list of lists or of structures"),
        ];
        assert_eq!(others, kinds.map(|(name, kind)| (name.to_owned(), format!("{kind}, which has no text"))));
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
        // Of 32 bits as with NumPy before 2.3, but for the one number that is 0.0001.
        for (value, expected) in [
            (0.1f32, "0.1"),
            (1.0 / 3.0, "0.33333334"),
            (16_777_216.0, "16777216.0"),
            (123_456.79, "123456.79"),
            (1e16, "1e+16"),
            (3.4e38, "3.4e+38"),
            (0.000_01, "1e-05"),
            (0.0001, "0.0001"),
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
