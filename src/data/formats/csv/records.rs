//! Lines of separated text become records: fields without their quotation marks (RFC 4180).
//!
//! A row is a line, except where a quoted field holds line ends. Files are streamed, plain or compressed, and no row
//! may be longer than `data.max_line`. A stray quotation mark may be closed by another one far behind it, or by none:
//! so a row of several lines that is no good one is its first line only ([`Records::keep_first_line`]), and the others
//! are read as what they are.

use std::ops::Index;
use std::path::Path;

use crate::base::Result;
use crate::data::text::{Judged, Line, Lines, Place, Wanted, too_long};

/// The fields of a row; reused from row to row.
#[derive(Debug, Clone, Default)]
pub(in crate::data) struct Record {
    bytes: Vec<u8>,
    /// Where each field ends.
    ends: Vec<usize>,
    fields: usize,
}

impl Record {
    /// How many fields there are.
    pub(super) fn len(&self) -> usize {
        self.fields
    }

    /// A record of these fields, in the place of what it was.
    pub(super) fn filled(&mut self, fields: &[Vec<u8>]) -> &Self {
        self.bytes.clear();
        self.ends.clear();
        for field in fields {
            self.bytes.extend_from_slice(field);
            self.ends.push(self.bytes.len());
        }
        self.fields = fields.len();
        self
    }

    pub(in crate::data) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.fields).map(|at| &self[at])
    }
}

impl Index<usize> for Record {
    type Output = [u8];

    fn index(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[..self.fields][at]]
    }
}

/// Takes rows of text apart.
pub(in crate::data) struct Splitter {
    delimiter: u8,
    grammar: csv_core::Reader,
    written: usize,
}

impl Splitter {
    pub(in crate::data) fn new(delimiter: char) -> Self {
        let mut builder = csv_core::ReaderBuilder::new();
        // Line ends are found before; a carriage return within a line is a character like others.
        builder.delimiter(delimiter as u8).terminator(csv_core::Terminator::Any(b'\n'));
        Self { delimiter: delimiter as u8, grammar: builder.build(), written: 0 }
    }

    /// Takes a line that is not empty apart; false: its last field is quoted and does not end on it.
    pub(in crate::data) fn split(&mut self, line: &[u8], record: &mut Record) -> bool {
        self.grammar.reset();
        (self.written, record.fields) = (0, 0);
        self.go_on(line, record)
    }

    /// Whether a line that begins within a quoted field closes it where no field ends: then the quotation mark before
    /// was a stray one, and so may this be.
    fn closes_amiss(&self, line: &[u8]) -> bool {
        let mut at = 0;
        while let Some(found) = memchr::memchr(b'"', &line[at..]) {
            at += found + 1;
            match line.get(at) {
                // Two of them are one that belongs to the field.
                Some(b'"') => at += 1,
                Some(&next) => return next != self.delimiter,
                None => return false,
            }
        }
        false
    }

    /// Takes one more line of the row that `split` did not end.
    fn go_on(&mut self, line: &[u8], record: &mut Record) -> bool {
        use csv_core::ReadRecordResult::{End, InputEmpty, OutputEndsFull, OutputFull, Record as Whole};
        // As many bytes as there are suffice: quotation marks only fall away.
        record.bytes.resize((self.written + line.len() + 2).max(record.bytes.len()), 0);
        // The grammar takes an empty input for the end of the file.
        let mut input = if line.is_empty() { &b"\n"[..] } else { line };
        let mut ended = line.is_empty();
        loop {
            let (bytes, ends) = (&mut record.bytes[self.written..], &mut record.ends[record.fields..]);
            let (result, read, written, fields) = self.grammar.read_record(input, bytes, ends);
            input = &input[read..];
            self.written += written;
            record.fields += fields;
            match result {
                Whole => return true,
                InputEmpty if ended => return false,
                InputEmpty | End => (input, ended) = (b"\n", true),
                OutputFull => record.bytes.resize(2 * record.bytes.len(), 0),
                OutputEndsFull => record.ends.resize((2 * record.ends.len()).max(16), 0),
            }
        }
    }
}

/// The records of a file, in order.
pub(super) struct Records {
    lines: Lines,
    /// The longest row, in bytes.
    max_line: usize,
    splitter: Splitter,
    pub(super) record: Record,
    line: Vec<u8>,
    /// The number of `line`, counted from 1.
    number: u64,
    /// Where the row begins that was read last, and its lines behind the first, each with its end.
    first: u64,
    behind: Vec<u8>,
    /// Lines that are read again, each with its end; and how much of them was read.
    held: (Vec<u8>, usize),
    /// Whether a line that is too long stands behind those.
    too_long: bool,
}

/// What came next.
enum Next {
    Line,
    TooLong,
    End,
}

impl Records {
    /// Opens a file at a place that [`Records::place`] gave; the default: at its first line.
    pub(super) fn open_at(
        path: &Path,
        delimiter: char,
        max_line: usize,
        place: Place,
        wanted: Wanted<'_>,
    ) -> Result<Self> {
        Ok(Self::of(Lines::open_at(path, place, wanted)?.limited(max_line), delimiter))
    }

    /// The records of these lines.
    pub(super) fn of(lines: Lines, delimiter: char) -> Self {
        let (splitter, record) = (Splitter::new(delimiter), Record::default());
        let (line, behind, held) = (Vec::new(), Vec::new(), (Vec::new(), 0));
        let (number, max_line) = (lines.place().lines, lines.longest());
        let (first, too_long) = (0, false);
        Self { lines, max_line, splitter, record, line, number, first, behind, held, too_long }
    }

    /// The line of the record that was read last, if it has but one.
    pub(super) fn line(&self) -> Option<&[u8]> {
        self.behind.is_empty().then_some(&self.line)
    }

    /// Whether the next record has not come yet.
    pub(super) fn wait(&mut self) -> bool {
        self.held.0.is_empty() && !self.too_long && self.lines.wait()
    }

    /// Where the next record begins; nothing where the file cannot be entered there.
    pub(super) fn place(&self) -> Option<Place> {
        let here = !self.lines.compressed() && self.held.0.is_empty() && !self.too_long;
        here.then(|| self.lines.place())
    }

    /// Bytes of the file that were read, and all of them.
    pub(super) fn progress(&self) -> (u64, u64) {
        self.lines.progress()
    }

    /// Puts the next line into `line`, without its end.
    fn next_line(&mut self) -> Result<Next> {
        self.line.clear();
        let (held, from) = &mut self.held;
        if let Some(end) = memchr::memchr(b'\n', &held[*from..]) {
            self.line.extend_from_slice(&held[*from..*from + end]);
            *from += end + 1;
            if *from == held.len() {
                held.clear();
                *from = 0;
            }
            self.number += 1;
            return Ok(Next::Line);
        }
        if std::mem::take(&mut self.too_long) {
            self.number += 1;
            return Ok(Next::TooLong);
        }
        match self.lines.next_line()? {
            None => return Ok(Next::End),
            Some(Line::TooLong) => {
                self.number = self.lines.place().lines;
                return Ok(Next::TooLong);
            }
            Some(Line::Text(text)) => self.line.extend_from_slice(text),
        }
        self.number = self.lines.place().lines;
        Ok(Next::Line)
    }

    /// Reads the next record; nothing at the end of the file. Returns its first line, and what is wrong with it as
    /// text. Empty lines are no records.
    pub(super) fn next(&mut self) -> Result<Option<Judged<()>>> {
        self.behind.clear();
        loop {
            match self.next_line()? {
                Next::End => return Ok(None),
                Next::TooLong => return Ok(Some((self.number, Err(too_long(self.max_line))))),
                Next::Line if self.line.is_empty() => (),
                Next::Line => break,
            }
        }
        self.first = self.number;
        if self.splitter.split(&self.line, &mut self.record) {
            return Ok(Some((self.first, Ok(()))));
        }
        while self.behind.len() <= self.max_line {
            match self.next_line()? {
                Next::End => break,
                Next::TooLong => {
                    self.too_long = true;
                    break;
                }
                Next::Line => (),
            }
            self.behind.extend_from_slice(&self.line);
            self.behind.push(b'\n');
            if self.splitter.closes_amiss(&self.line) {
                break;
            }
            if self.splitter.go_on(&self.line, &mut self.record) {
                return Ok(Some((self.first, Ok(()))));
            }
        }
        self.keep_first_line();
        Ok(Some((self.first, Err("a quotation mark opens a field that nothing closes".to_owned().into()))))
    }

    /// Makes the row that was read last end with its first line: the lines behind it come again.
    pub(super) fn keep_first_line(&mut self) {
        if self.behind.is_empty() {
            return;
        }
        let mut again = std::mem::take(&mut self.behind);
        again.extend_from_slice(&self.held.0[self.held.1..]);
        self.held = (again, 0);
        self.number = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Reason;
    use crate::data::text::LONGEST;

    fn all(text: &[u8]) -> Vec<(u64, std::result::Result<Vec<String>, Reason>)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let mut records = Records::open_at(file.path(), ',', LONGEST, Place::default(), Wanted::All).unwrap();
        let mut found = Vec::new();
        while let Some((line, result)) = records.next().unwrap() {
            let fields = || records.record.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
            found.push((line, result.map(|()| fields())));
        }
        found
    }

    fn fields(list: &[&str]) -> std::result::Result<Vec<String>, Reason> {
        Ok(list.iter().map(|&field| field.to_owned()).collect())
    }

    #[test]
    fn quotes_line_ends_and_marks_are_no_part_of_fields() {
        let found = all(b"\xef\xbb\xbfa,\"b,\"\"c\"\"\",\r\n\n5\" disk,x\n\"one\ntwo\",z\r\n\"\",\"\"\nlast");
        let expected = [
            (1, fields(&["a", "b,\"c\"", ""])),
            (3, fields(&["5\" disk", "x"])),
            (4, fields(&["one\ntwo", "z"])),
            (6, fields(&["", ""])),
            (7, fields(&["last"])),
        ];
        assert_eq!(found, expected);
        let many = vec!["f"; 1000].join(",");
        assert_eq!(all(many.as_bytes())[0].1.as_ref().unwrap().len(), 1000);
    }

    #[test]
    fn a_quotation_mark_that_nothing_closes_costs_its_own_line_only() {
        let found = all(b"a,b\n\"open,c\nd,e\n\n\"\",f\n");
        let faults: Vec<_> = found.iter().map(|(line, result)| (*line, result.is_ok())).collect();
        assert_eq!(faults, [(1, true), (2, false), (3, true), (5, true)]);
        assert_eq!(found[3].1, fields(&["", "f"]));
        // Another one closes it, but not where a field ends.
        let faults: Vec<_> =
            all(b"1,\"open\n2,x\n3,\"open\n4,y\n").iter().map(|(line, result)| (*line, result.is_ok())).collect();
        assert_eq!(faults, [(1, false), (2, true), (3, false), (4, true)]);
        // The same before a line that is too long, and before more text than a row may have.
        let mut text = b"\"open\nx\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', 2 * LONGEST));
        text.extend(b"\ny\n");
        let faults: Vec<_> = all(&text).iter().map(|(line, result)| (*line, result.is_ok())).collect();
        assert_eq!(faults, [(1, false), (2, true), (3, false), (4, true)]);
        let text = "\"open\n".to_owned() + &"abcdefg\n".repeat(LONGEST / 4) + "y\n";
        let found = all(text.as_bytes());
        assert_eq!(found.len(), LONGEST / 4 + 2);
        assert!(found[1..].iter().zip(2..).all(|((line, result), at)| *line == at && result.is_ok()));
    }
}
