//! Whole lines of text become columns: the fast twin of [`Row::parse`], which stays the definition.
//!
//! A line is first walked eight bytes at a time; whatever that walk does not expect (a field of unusual length, CRLF,
//! the last bytes of the text, a fault) sends the line to [`Row::parse`], which judges it.

use super::fault::Fault;
use super::layout::Layout;
use super::row::Row;
use super::swar::{before_tab, decimal, hexadecimal, word};
use crate::base::config::OnBadRow;
use crate::data::samples::MISSING;
use crate::data::text::{BadLine, Columns, Tally, line_at, most_rows, shown};

impl Columns<u32> {
    /// Reads whole lines of Criteo's layout (or of other widths), replacing what was there.
    ///
    /// # Errors
    /// The first malformed row, unless malformed rows are left out.
    pub fn parse(&mut self, text: &[u8], layout: &Layout, on_bad_row: OnBadRow) -> Result<Tally, BadLine> {
        // A separator before each column but the first, which may be the label, and the end.
        self.reset(most_rows(text, layout.dense + layout.categorical), layout.dense, layout.categorical);
        let mut tally = Tally::default();
        let mut slow = Row::new(layout);
        let mut at = 0;
        while at < text.len() {
            if let Some(next) = self.walk(text, at, layout) {
                at = next;
            } else {
                let (next, line) = line_at(text, at);
                at = next;
                match self.judge(line, layout, &mut slow) {
                    Ok(()) => {}
                    Err(_) if on_bad_row == OnBadRow::Skip => tally.skipped += 1,
                    Err(fault) => return Err(BadLine { line: tally.lines, reason: fault.reason() }),
                }
            }
            tally.lines += 1;
        }
        Ok(tally)
    }

    /// Reads the usual line at `at`; `None` for any other, of which nothing stays.
    #[inline]
    fn walk(&mut self, text: &[u8], at: usize, layout: &Layout) -> Option<usize> {
        let row = self.labels.len();
        let label = match *text.get(at..at + 2)? {
            [b'0', b'\t'] => 0.0,
            [b'1', b'\t'] => 1.0,
            _ => return None,
        };
        let mut at = at + 2;
        let mut cell = row;
        for _ in 0..layout.dense {
            let (value, next) = integer(text, at)?;
            self.integers[cell] = value;
            cell += self.stride;
            at = next;
        }
        let mut cell = row;
        let last = layout.categorical.checked_sub(1)?;
        for column in 0..layout.categorical {
            let end = if column == last { b'\n' } else { b'\t' };
            if text.get(at) == Some(&end) {
                self.keys[cell] = 0;
                at += 1;
            } else if text.get(at + 8) == Some(&end) {
                self.keys[cell] = hexadecimal(word(text, at)?)?;
                at += 9;
            } else {
                return None;
            }
            cell += self.stride;
        }
        self.labels.push(label);
        Some(at)
    }

    fn judge(&mut self, line: &[u8], layout: &Layout, row: &mut Row) -> Result<(), Fault> {
        if line.len() > layout.max_line {
            return Err(Fault::TooLong { limit: layout.max_line });
        }
        row.parse(line, layout)?;
        let at = self.labels.len();
        for (column, value) in row.integers.iter().enumerate() {
            self.integers[column * self.stride + at] = match value.map(i32::try_from) {
                None => MISSING,
                Some(Ok(value)) if value != MISSING => value,
                Some(_) => {
                    let found = shown(line.split(|&byte| byte == b'\t').nth(column + 1).unwrap_or_default());
                    return Err(Fault::IntegerWide { column: column + 1, found });
                }
            };
        }
        for (column, &value) in row.categories.iter().enumerate() {
            self.keys[column * self.stride + at] = value;
        }
        self.labels.push(row.label);
        Ok(())
    }
}

/// The integer at `at` and the place behind its tab; `None` when it has more than 7 digits, or is none.
#[inline]
fn integer(text: &[u8], at: usize) -> Option<(i32, usize)> {
    let mut characters = word(text, at)?;
    let mut at = at;
    let negative = characters as u8 == b'-';
    if negative {
        at += 1;
        characters = word(text, at)?;
    }
    match before_tab(characters) {
        0 if !negative => Some((MISSING, at + 1)),
        0 | 8 => None,
        digits => {
            let value = decimal(characters, digits)? as i32;
            Some((if negative { -value } else { value }, at + digits as usize + 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::Labels;
    use crate::data::text::{line_ends, without_end};

    const LAYOUT: Layout = Layout { dense: 2, categorical: 2, labels: Labels::Required, max_line: 1 << 20 };

    /// The definition: line by line through [`Row::parse`].
    fn defined(text: &[u8]) -> (Columns<u32>, Tally) {
        let mut columns = Columns::default();
        columns.reset(line_ends(text) + 1, LAYOUT.dense, LAYOUT.categorical);
        let mut tally = Tally::default();
        let lines = text.split_inclusive(|&byte| byte == b'\n');
        for line in lines {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = without_end(line);
            let mut row = Row::new(&LAYOUT);
            tally.lines += 1;
            let small = |value: &Option<i64>| value.is_none_or(|value| value.unsigned_abs() < 1 << 31);
            if row.parse(line, &LAYOUT).is_ok() && row.integers.iter().all(small) {
                let integers: Vec<_> = row.integers.iter().map(|v| v.map_or(MISSING, |v| v as i32)).collect();
                columns.push(row.label, &integers, &row.categories);
            } else {
                tally.skipped += 1;
            }
        }
        (columns, tally)
    }

    fn columns(found: &Columns<u32>) -> (&[f32], [&[i32]; 2], [&[u32]; 2]) {
        (&found.labels, [found.integers(0), found.integers(1)], [found.keys(0), found.keys(1)])
    }

    #[test]
    fn faults_name_their_line_and_what_is_wrong() {
        let parse = |text: &str| Columns::default().parse(text.as_bytes(), &LAYOUT, OnBadRow::Fail).unwrap_err();
        let good = "1\t2\t3\t0000000a\t0000000b\n";
        let bad = parse(&format!("{good}{good}1\t2\t3\t0000000g\t0000000b\n"));
        assert_eq!(bad.line, 2);
        assert_eq!(&*bad.reason, "column C1: expected up to 8 hexadecimal digits, found \"0000000g\"");
        for wide in ["2147483648", "-2147483648", "9999999999"] {
            let bad = parse(&format!("{good}1\t2\t{wide}\ta\tb"));
            let reason = format!("column I2: expected an integer of at most 32 bits, found \"{wide}\"");
            assert_eq!(bad, BadLine { line: 1, reason: reason.into() });
        }
        let reason = parse(&format!("1\t2\t3\ta\t{}\n", "b".repeat(LAYOUT.max_line))).reason;
        assert!(reason.starts_with("the line is longer than 1.0 MiB"), "{reason}");
        assert_eq!(&*parse("1\tNaN\t3\ta\tb\n").reason, "column I1: expected an integer, found \"NaN\"");
        // Lines that are too short for a row have no room of one: 4,048 bytes hold 1,012 rows of four, and one more.
        let (mut found, text) = (Columns::default(), format!("{good}{}{good}", "\n".repeat(4000)));
        found.parse(text.as_bytes(), &LAYOUT, OnBadRow::Skip).unwrap();
        assert_eq!((found.rows(), found.keys(1)), (2, &[11, 11][..]));
        assert_eq!(found.keys.len(), 2 * 1040);
    }

    proptest! {
        #[test]
        fn any_bytes_give_what_the_definition_gives(text in proptest::collection::vec(
            proptest::sample::select(b"01\t\t\t\t\t-79fg\0\r\n\n\xff".to_vec()), 0..200)) {
            let mut found = Columns::default();
            let tally = found.parse(&text, &LAYOUT, OnBadRow::Skip).unwrap();
            let (expected, counted) = defined(&text);
            prop_assert_eq!((tally, columns(&found)), (counted, columns(&expected)));
        }

        #[test]
        fn rows_give_what_the_definition_gives(rows in proptest::collection::vec(
            (0..3u8, "-?[0-9]{0,11}", proptest::option::of(-3000..3000i32), "[0-9a-fA-F]{8}|[0-9a-f]{0,9}", any::<u32>(),
             proptest::sample::select(vec!["\n", "\n", "\n", "\r\n"])), 0..20)) {
            let text: String = rows.iter().map(|(label, a, b, c, d, end)| {
                format!("{label}\t{a}\t{}\t{c}\t{d:08x}{end}", b.map(|b| b.to_string()).unwrap_or_default())
            }).collect();
            let mut found = Columns::default();
            // What an earlier text left must not matter.
            found.parse(b"1\t5\t6\t0000000a\t0000000b\n1\t5\t6\t0000000a\t0000000b\n", &LAYOUT, OnBadRow::Fail).unwrap();
            let tally = found.parse(text.as_bytes(), &LAYOUT, OnBadRow::Skip).unwrap();
            let (expected, counted) = defined(text.as_bytes());
            prop_assert_eq!((tally, columns(&found)), (counted, columns(&expected)));
        }
    }
}
