//! One row of text becomes numbers: a single walk over its bytes, nothing allocated for a good row.
//!
//! Blank fields are missing: `None` for an integer, 0 for a category, as in the reference's `data_utils.py`.
//! A row that has both a wrong number of columns and a bad field is reported for its columns: one shifts the other.

use super::fault::Fault;
use super::layout::{Layout, columns};
use crate::data::Labels;
use crate::data::samples::{MISSING, Samples, Values};
use crate::data::text::shown;

/// The numbers of one row; reused from row to row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// 0 or 1; NaN where the layout lets it be absent.
    pub label: f32,
    /// One entry an integer column; `None`: missing.
    pub integers: Vec<Option<i64>>,
    /// One entry a categorical column; missing: 0.
    pub categories: Vec<u32>,
}

impl Row {
    /// A row to parse into.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        Self { label: 0.0, integers: vec![None; layout.dense], categories: vec![0; layout.categorical] }
    }

    /// Reads one line without its line end.
    ///
    /// # Errors
    /// The [`Fault`]; the row's numbers are then unspecified.
    pub fn parse(&mut self, line: &[u8], layout: &Layout) -> Result<(), Fault> {
        let labelled = layout.labels == Labels::Required || columns(line) != layout.columns() - 1;
        self.walk(line, layout, labelled).map_err(|fault| {
            let (expected, found) = (layout.columns(), columns(line));
            let wrong = if labelled { found != expected } else { found != expected - 1 };
            let label_optional = layout.labels != Labels::Required;
            if wrong { Fault::Columns { expected, found, label_optional } } else { fault }
        })
    }

    /// Appends the row to others, whose dense columns hold integers and whose bags any number of look-ups; a category
    /// of the number `none` is no look-up.
    pub fn push(&self, samples: &mut Samples, none: u32) {
        const LIMITS: (i64, i64) = (MISSING as i64 + 1, i32::MAX as i64);
        samples.labels.push(self.label);
        for (values, integer) in samples.dense.iter_mut().zip(&self.integers) {
            if let Values::Integers(values) = values {
                values.push(integer.map_or(MISSING, |value| value.clamp(LIMITS.0, LIMITS.1) as i32));
            }
        }
        for (lookups, &category) in samples.lookups.iter_mut().zip(&self.categories) {
            if category != none {
                lookups.rows.push(category);
            }
            lookups.ends.push(lookups.rows.len() as u32);
        }
    }

    fn walk(&mut self, line: &[u8], layout: &Layout, labelled: bool) -> Result<(), Fault> {
        debug_assert_eq!((self.integers.len(), self.categories.len()), (layout.dense, layout.categorical));
        let mut fields = Fields { line, at: 0 };
        self.label = f32::NAN;
        if labelled {
            self.label = match fields.rest() {
                [b'0', b'\t', ..] | b"0" => 0.0,
                [b'1', b'\t', ..] | b"1" => 1.0,
                [b'\t', ..] if layout.labels != Labels::Required => f32::NAN,
                _ => return Err(Fault::Label { found: fields.shown() }),
            };
            fields.at += usize::from(!self.label.is_nan());
            fields.end();
        }
        for (column, cell) in (1..).zip(&mut self.integers) {
            *cell = fields.integer().map_err(|wrong| match wrong {
                Wrong::Form(found) => Fault::Integer { column, found },
                Wrong::Range(found) => Fault::IntegerRange { column, found },
            })?;
        }
        for (column, cell) in (1..).zip(&mut self.categories) {
            *cell = fields.hex().map_err(|found| Fault::Hex { column, found })?;
        }
        // `at` stands behind the tab that would follow the last field: one beyond the end when all were read.
        if fields.at == line.len() + 1 {
            return Ok(());
        }
        Err(Fault::Columns { expected: layout.columns(), found: columns(line), label_optional: false })
    }
}

enum Wrong {
    Form(String),
    Range(String),
}

/// The value of every byte as a hexadecimal digit; `BAD` where it is none.
const HEX: [u8; 256] = {
    let mut table = [BAD; 256];
    let mut digit = 0u8;
    while digit < 16 {
        table[b"0123456789abcdef"[digit as usize] as usize] = digit;
        table[b"0123456789ABCDEF"[digit as usize] as usize] = digit;
        digit += 1;
    }
    table
};
const BAD: u8 = 0x80;

/// A walk over the fields of a line. `at` is the first byte of the next field, `line.len() + 1` after the last.
struct Fields<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn rest(&self) -> &'a [u8] {
        self.line.get(self.at..).unwrap_or_default()
    }

    /// The whole field at `at`, for a message.
    fn shown(&self) -> String {
        shown(self.rest().split(|&byte| byte == b'\t').next().unwrap_or_default())
    }

    /// Whether a field ends at `at`.
    #[inline]
    fn ended(&self, at: usize) -> bool {
        matches!(self.line.get(at), None | Some(b'\t'))
    }

    /// Steps over the tab.
    #[inline]
    fn end(&mut self) {
        self.at += 1;
    }

    #[inline]
    fn integer(&mut self) -> Result<Option<i64>, Wrong> {
        let negative = self.line.get(self.at) == Some(&b'-');
        let first = self.at + usize::from(negative);
        let (mut at, mut value) = (first, 0i64);
        while let Some(digit) = self.line.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit <= 9) {
            value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
            at += 1;
        }
        let digits = at - first;
        // A walk that is past the end has no field left.
        if !self.ended(at) || (digits == 0 && negative) || self.at > self.line.len() {
            return Err(Wrong::Form(self.shown()));
        }
        if digits > 18 {
            // 18 digits always fit; more are rare, so the standard library judges them.
            let text = std::str::from_utf8(&self.line[self.at..at]).expect("digits are ASCII");
            value = text.parse().map_err(|_| Wrong::Range(shown(text.as_bytes())))?;
        } else if negative {
            value = -value;
        }
        self.at = at;
        self.end();
        Ok((digits > 0).then_some(value))
    }

    #[inline]
    fn hex(&mut self) -> Result<u32, String> {
        let eight = self.line.get(self.at..self.at + 8).and_then(|field| <&[u8; 8]>::try_from(field).ok());
        if let Some(field) = eight.filter(|_| self.ended(self.at + 8)) {
            // The usual case, without a branch a digit.
            let digits = field.map(|byte| HEX[usize::from(byte)]);
            if digits.iter().fold(0, |all, digit| all | digit) < BAD {
                self.at += 9;
                return Ok(digits.iter().fold(0, |value, &digit| value << 4 | u32::from(digit)));
            }
            // Not a fault yet: the eight bytes may be several short fields with the tabs between them.
        }
        let (mut at, mut value) = (self.at, 0u32);
        while !self.ended(at) {
            let digit = HEX[usize::from(self.line[at])];
            if digit == BAD || at - self.at == 8 {
                return Err(self.shown());
            }
            value = value << 4 | u32::from(digit);
            at += 1;
        }
        if self.at > self.line.len() {
            return Err(String::new());
        }
        self.at = at;
        self.end();
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LAYOUT: Layout = Layout { dense: 2, categorical: 2, labels: Labels::Required, max_line: 1 << 20 };
    const UNLABELLED: Layout = Layout { labels: Labels::Optional, ..LAYOUT };

    fn parse(line: &str, layout: &Layout) -> Result<Row, String> {
        let mut row = Row::new(layout);
        row.parse(line.as_bytes(), layout).map(|()| row).map_err(|fault| fault.to_string())
    }

    #[test]
    fn good_rows_of_every_form() {
        let row = parse("1\t-5\t12\t68fd1e64\tFF", &LAYOUT).unwrap();
        assert_eq!((row.label, &row.integers[..]), (1.0, &[Some(-5), Some(12)][..]));
        assert_eq!(row.categories, [0x68fd_1e64, 0xff]);
        let row = parse("1\t-5\t12\tabcde\t67", &LAYOUT).unwrap();
        assert_eq!(row.categories, [0xabcde, 0x67], "eight bytes up to the end, but two fields");
        let row = parse("0\t\t\t\t", &LAYOUT).unwrap();
        assert_eq!((row.integers, row.categories), (vec![None, None], vec![0, 0]));
        let row = parse("0\t9223372036854775807\t-9223372036854775808\tffffffff\t0", &LAYOUT).unwrap();
        assert_eq!(row.integers, [Some(i64::MAX), Some(i64::MIN)]);
        assert_eq!(row.categories, [u32::MAX, 0]);
    }

    #[test]
    fn labels_may_be_absent_where_the_layout_says_so() {
        for line in ["\t1\t2\ta\tb", "1\t2\ta\tb"] {
            let row = parse(line, &UNLABELLED).unwrap();
            assert!(row.label.is_nan());
            assert_eq!(row.categories, [0xa, 0xb]);
        }
        assert_eq!(parse("1\t1\t2\ta\tb", &UNLABELLED).unwrap().label, 1.0);
        assert_eq!(
            parse("\t1\t2\ta\tb", &LAYOUT).unwrap_err(),
            "expected the label 0 or 1 in the first column, found \"\""
        );
        assert_eq!(
            parse("1\t2\t3", &UNLABELLED).unwrap_err(),
            "expected 5 tab-separated columns (4 without a label), found 3"
        );
    }

    #[test]
    fn faults_name_the_column_and_what_was_found() {
        for (line, message) in [
            ("", "expected 5 tab-separated columns, found 1: is the file separated by tabs?"),
            ("1\t2\t3\ta", "expected 5 tab-separated columns, found 4"),
            ("1\t2\t3\ta\tb\tc", "expected 5 tab-separated columns, found 6"),
            ("1\t2\t3\ta\tb\t", "expected 5 tab-separated columns, found 6"),
            ("1\tx\t3\ta", "expected 5 tab-separated columns, found 4"),
            ("2\t2\t3\ta\tb", "expected the label 0 or 1 in the first column, found \"2\""),
            ("01\t2\t3\ta\tb", "expected the label 0 or 1 in the first column, found \"01\""),
            ("1\t2.5\t3\ta\tb", "column I1: expected an integer, found \"2.5\""),
            ("1\t2\t-\ta\tb", "column I2: expected an integer, found \"-\""),
            ("1\t2\t3\0\ta\tb", "column I2: expected an integer, found \"3\\x00\""),
            (
                "1\t9223372036854775808\t3\ta\tb",
                "column I1: expected an integer of at most 64 bits, found \"9223372036854775808\"",
            ),
            ("1\t2\t3\tg\tb", "column C1: expected up to 8 hexadecimal digits, found \"g\""),
            ("1\t2\t3\ta\t0123456z", "column C2: expected up to 8 hexadecimal digits, found \"0123456z\""),
            ("1\t2\t3\t012345678\tb", "column C1: expected up to 8 hexadecimal digits, found \"012345678\""),
            ("1\t2\t3\ta\tb\r", "column C2: expected up to 8 hexadecimal digits, found \"b\\r\""),
        ] {
            assert_eq!(parse(line, &LAYOUT).unwrap_err(), message, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(line in proptest::collection::vec(
            proptest::sample::select(b"01\t\t\t\t-9fg\0\r\xff".to_vec()), 0..40)) {
            for layout in [LAYOUT, UNLABELLED] {
                let mut row = Row::new(&layout);
                if row.parse(&line, &layout).is_ok() {
                    let found = columns(&line);
                    prop_assert!(found == 5 || (found == 4 && layout == UNLABELLED));
                }
            }
        }

        #[test]
        fn printed_numbers_come_back(label in 0..2u8, a: i64, b: Option<i64>, c: u32, d in proptest::option::of(1..u32::MAX)) {
            let text = |value: Option<i64>| value.map(|value| value.to_string()).unwrap_or_default();
            let hex = d.map(|d| format!("{d:x}")).unwrap_or_default();
            let row = parse(&format!("{label}\t{a}\t{}\t{c:08x}\t{hex}", text(b)), &LAYOUT).unwrap();
            prop_assert_eq!(row.label, f32::from(label));
            prop_assert_eq!(row.integers, vec![Some(a), b]);
            prop_assert_eq!(row.categories, vec![c, d.unwrap_or(0)]);
        }
    }
}
