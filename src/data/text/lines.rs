//! Lines of a text file, plain, gzip, zstd or the text of Parquet, in bounded memory.
//!
//! The buffer holds a few lines; a line that is longer than is allowed is reported and, if anybody wants the next one,
//! stepped over, not stored.

use std::borrow::Cow;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::compressed::{Counted, Wanted, decoded, unreadable};
use super::{Judged, too_long};
use crate::base::config::MAX_LINE;
use crate::base::{Error, Result, input, interrupt};
use crate::data::incoming::Input;

/// The longest line that is accepted unless somebody says otherwise, in bytes; a row of Criteo has about 250.
pub const LONGEST: usize = MAX_LINE;
/// Bytes that are asked of the file or the decoder at once.
const CHUNK: usize = 256 << 10;

/// The byte order mark with which some programs begin a text in UTF-8; it is no part of its first line.
pub const MARK: [u8; 3] = *b"\xef\xbb\xbf";

/// A text without the mark that it may begin with.
#[must_use]
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(&MARK).unwrap_or(text)
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Its bytes without the line end, the text's first without its mark: see [`without_end`] and [`without_mark`].
    Text(&'a [u8]),
    /// It is longer than is allowed, and its end was not looked for yet.
    TooLong,
}

/// A place in a file: the start of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Bytes of text before it.
    pub offset: u64,
    /// Lines before it.
    pub lines: u64,
}

/// CRs of a line's end at most: text that was written as CRLF twice has CR CR LF.
pub const MOST_CRS: usize = 2;

/// A line without the CRs of its end.
#[must_use]
pub fn without_end(mut line: &[u8]) -> &[u8] {
    for _ in 0..MOST_CRS {
        line = line.strip_suffix(b"\r").unwrap_or(line);
    }
    line
}

/// A text of several lines whose ends are what they are in a file that was read: LF alone, see [`without_end`].
#[must_use]
pub fn with_plain_ends(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memmem::find(text, b"\r\n").is_none() {
        return Cow::Borrowed(text);
    }
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    // Behind the last one there is no line end.
    if let Some((_, ended)) = lines.split_last_mut() {
        ended.iter_mut().for_each(|line| *line = without_end(line));
    }
    Cow::Owned(lines.join(&b'\n'))
}

/// A file that is read line by line.
pub struct Lines {
    path: PathBuf,
    input: Box<dyn Input>,
    compressed: bool,
    /// The longest line that is accepted, in bytes.
    longest: usize,
    /// Whether the next line begins behind the end of one that is too long.
    inside: bool,
    /// Bytes of the file (compressed ones, if it is) that were read; shared with the counter inside `input`.
    bytes_read: Arc<AtomicU64>,
    bytes_total: u64,
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    from: usize,
    to: usize,
    place: Place,
    /// What went wrong while somebody only asked whether to wait: a decoder tells it once.
    trouble: Option<Error>,
}

impl Lines {
    /// Opens a file at its first line, one of Parquet for the columns that are `wanted`.
    ///
    /// # Errors
    /// When it cannot be opened or read, or is no regular file.
    pub fn open(path: &Path, wanted: Wanted<'_>) -> Result<Self> {
        let file = input::open(path)?;
        let bytes_total = file.metadata().map_err(Error::io(path, "open"))?.len();
        let bytes_read = Arc::new(AtomicU64::new(0));
        let (input, compressed) = decoded(Counted::new(file, Arc::clone(&bytes_read)), path, wanted)?;
        Ok(Self { compressed, bytes_read, bytes_total, ..Self::incoming(path, Box::new(input)) })
    }

    /// Text that arrives: no file, of which nobody knows how long it is; `name` is what it is called.
    #[must_use]
    pub fn incoming(name: &Path, input: Box<dyn Input>) -> Self {
        let (path, bytes_read) = (name.to_owned(), Arc::default());
        let (compressed, longest, inside, bytes_total) = (false, LONGEST, false, 0);
        let (buffer, from, to, place, trouble) = (vec![0; CHUNK], 0, 0, Place::default(), None);
        Self { path, input, compressed, longest, inside, bytes_read, bytes_total, buffer, from, to, place, trouble }
    }

    /// Whether the end of the next line has not come yet: [`Lines::next_line`] would wait. Takes in what has come; what
    /// goes wrong by that, who reads the next line is told.
    #[must_use]
    pub fn wait(&mut self) -> bool {
        while memchr::memchr(b'\n', &self.buffer[self.from..self.to]).is_none() {
            if self.trouble.is_some() {
                return false;
            }
            if self.input.waits() {
                return true;
            }
            if self.inside || self.to - self.from > self.most() {
                return false;
            }
            match self.fill() {
                Ok(true) => (),
                Ok(false) => return false,
                Err(trouble) => self.trouble = Some(trouble),
            }
        }
        false
    }

    /// Opens a file at a line whose place is known; a compressed one is opened at its first line.
    ///
    /// # Errors
    /// When it cannot be opened or read.
    pub fn open_at(path: &Path, place: Place, wanted: Wanted<'_>) -> Result<Self> {
        let mut lines = Self::open(path, wanted)?;
        if !lines.compressed && place.offset > 0 {
            let mut file = input::open(path)?;
            file.seek(SeekFrom::Start(place.offset)).map_err(Error::io(path, "read"))?;
            let file: Box<dyn Read + Send> = Box::new(Counted::new(file, Arc::clone(&lines.bytes_read)));
            lines.input = Box::new(file);
            lines.place = place;
        }
        Ok(lines)
    }

    /// Accepts lines of up to `max_line` bytes, instead of [`LONGEST`].
    #[must_use]
    pub fn limited(self, max_line: usize) -> Self {
        Self { longest: max_line, ..self }
    }

    /// The longest line that is accepted, in bytes.
    #[must_use]
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// The file, or what text that arrives is called.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lines before the next one; after a line was taken, its number counted from 1.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// Whether the file is gzip or zstd.
    #[must_use]
    pub fn compressed(&self) -> bool {
        self.compressed
    }

    /// Bytes of the file that were read, and all of them.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.bytes_read.load(Ordering::Relaxed), self.bytes_total)
    }

    /// The next line; `None` at the end of the file.
    ///
    /// # Errors
    /// When the file cannot be read, or is a truncated or corrupt compressed file; [`Error::Interrupted`] within a line
    /// that is too long.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>> {
        if self.inside {
            self.step_over()?;
        }
        let mut searched = 0;
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[self.from + searched..self.to]) {
                let start = self.from;
                let end = start + searched + found;
                self.from = end + 1;
                return Ok(Some(self.taken(start, end, 1)));
            }
            searched = self.to - self.from;
            if searched > self.most() {
                self.place.lines += 1;
                self.inside = true;
                return Ok(Some(Line::TooLong));
            }
            if !self.fill()? {
                if searched == 0 {
                    return Ok(None);
                }
                // The last line has no line end.
                let (start, end) = (self.from, self.to);
                self.from = end;
                return Ok(Some(self.taken(start, end, 0)));
            }
        }
    }

    /// The next line with its number; `None` at the end.
    ///
    /// # Errors
    /// As [`Lines::next_line`].
    pub fn next_row(&mut self) -> Result<Option<Judged<&[u8]>>> {
        let (number, longest) = (self.place.lines + 1, self.longest);
        let line = self.next_line()?;
        Ok(line.map(|line| match line {
            Line::Text(text) => (number, Ok(text)),
            Line::TooLong => (number, Err(too_long(longest))),
        }))
    }

    /// The most bytes that the next line may have, those of its end but the LF and of a mark included.
    const fn most(&self) -> usize {
        self.longest + MOST_CRS + if self.place.lines == 0 { MARK.len() } else { 0 }
    }

    fn taken(&mut self, start: usize, end: usize, line_end: usize) -> Line<'_> {
        let is_first = self.place.lines == 0;
        self.place.offset += (end + line_end - start) as u64;
        self.place.lines += 1;
        let text = without_end(&self.buffer[start..end]);
        let text = if is_first { without_mark(text) } else { text };
        if text.len() > self.longest { Line::TooLong } else { Line::Text(text) }
    }

    /// Reads on to the end of a line that is too long, without keeping it.
    fn step_over(&mut self) -> Result<()> {
        loop {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[self.from..self.to]) {
                self.from += found + 1;
                self.place.offset += found as u64 + 1;
                break;
            }
            self.place.offset += (self.to - self.from) as u64;
            self.from = self.to;
            if !self.fill()? {
                break;
            }
        }
        self.inside = false;
        Ok(())
    }

    /// Moves the unread bytes to the front and reads behind them; false at the end of the file.
    fn fill(&mut self) -> Result<bool> {
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        self.buffer.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        // Grows to twice the longest line at most: `next_line` steps over longer ones.
        if self.to == self.buffer.len() {
            self.buffer.resize(2 * self.to, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.to..]) {
                Ok(read) => {
                    self.to += read;
                    return Ok(read > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted && interrupt::requested() => {
                    return Err(Error::Interrupted);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(&self.path, self.compressed, self.place.lines, error)),
            }
        }
    }
}

impl Input for Box<dyn Read + Send> {
    /// What is stored is there.
    fn waits(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const LONGEST: usize = 1 << 20;

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn all(path: &Path) -> Result<Vec<Option<Vec<u8>>>> {
        let mut lines = Lines::open(path, Wanted::All)?.limited(LONGEST);
        let mut found = Vec::new();
        while let Some(line) = lines.next_line()? {
            found.push(match line {
                Line::Text(text) => Some(text.to_vec()),
                Line::TooLong => None,
            });
            assert_eq!(lines.place().lines, found.len() as u64);
        }
        assert_eq!(lines.progress().0, lines.progress().1);
        Ok(found)
    }

    #[test]
    fn plain_gzip_and_line_ends_give_the_same_lines() {
        let rows: Vec<String> = (0..20_000).map(|row| format!("{row}\t{}", "x".repeat(row % 97))).collect();
        let expected: Vec<_> = rows.iter().map(|row| Some(row.clone().into_bytes())).collect();
        for (end, last) in [("\n", "\n"), ("\r\n", "\r\n"), ("\r\r\n", "\r\r\n"), ("\n", "")] {
            let text = rows.join(end) + last;
            assert_eq!(all(file(text.as_bytes()).path()).unwrap(), expected);
            let frames = text.as_bytes().chunks(100_000).flat_map(|some| zstd::encode_all(some, 1).unwrap());
            assert_eq!(all(file(&frames.collect::<Vec<_>>()).path()).unwrap(), expected);
            let (a, b) = text.as_bytes().split_at(text.len() / 3);
            assert_eq!(all(file(&[gzip(a), gzip(b)].concat()).path()).unwrap(), expected);
        }
        assert!(all(file(b"").path()).unwrap().is_empty());
        assert_eq!(all(file(b"\n\nx").path()).unwrap(), [Some(vec![]), Some(vec![]), Some(b"x".to_vec())]);
    }

    #[test]
    fn how_long_a_line_may_be_does_not_depend_on_where_the_buffer_ends() {
        // Before the LF, one of the CRs, and the text's last byte.
        for edge in 0..=MOST_CRS + 1 {
            let longest = CHUNK - edge;
            for (bytes, end, is_taken) in [(longest, "\n", true), (longest, "\r\n", true), (longest, "\r\r\n", true)]
                .into_iter()
                .chain(["\n", "\r\n", "\r\r\n"].map(|end| (longest + 1, end, false)))
                .chain([(longest, "\r\r\r\n", false)])
            {
                let file = file(("x".repeat(bytes) + end + "last" + end).as_bytes());
                let mut lines = Lines::open(file.path(), Wanted::All).unwrap().limited(longest);
                let first = lines.next_line().unwrap().unwrap();
                assert_eq!(first != Line::TooLong, is_taken, "{edge} {end:?}");
                assert!(matches!(lines.next_line(), Ok(Some(Line::Text(text))) if text.starts_with(b"last")));
            }
        }
    }

    #[test]
    fn a_mark_is_no_part_of_the_first_line_and_counts_as_bytes() {
        let text = b"\xef\xbb\xbf1\ta\r\n\xef\xbb\xbf2\nlast";
        let marked = b"\xef\xbb\xbf2".to_vec();
        let expected = [Some(b"1\ta".to_vec()), Some(marked), Some(b"last".to_vec())];
        let plain = file(text);
        for stored in [text.to_vec(), gzip(text), zstd::encode_all(&text[..], 1).unwrap()] {
            assert_eq!(all(file(&stored).path()).unwrap(), expected);
        }
        let arriving: Box<dyn Read + Send> = Box::new(&text[..]);
        let mut lines = Lines::incoming(Path::new("stdin"), Box::new(arriving));
        assert_eq!(lines.next_line().unwrap(), Some(Line::Text(b"1\ta")));
        assert_eq!(lines.place(), Place { offset: 8, lines: 1 });
        let mut lines = Lines::open_at(plain.path(), lines.place(), Wanted::All).unwrap();
        assert_eq!(lines.next_line().unwrap(), Some(Line::Text(b"\xef\xbb\xbf2")));
        let mut lines = Lines::open_at(plain.path(), Place::default(), Wanted::All).unwrap();
        assert_eq!(lines.next_line().unwrap(), Some(Line::Text(b"1\ta")));
        // It takes nothing from what a line may have, wherever the buffer ends.
        for longest in CHUNK - MARK.len() - MOST_CRS - 1..=CHUNK {
            for (bytes, is_taken) in [(longest, true), (longest + 1, false)] {
                let file = file(("\u{feff}".to_owned() + &"x".repeat(bytes) + "\r\r\nlast").as_bytes());
                let mut lines = Lines::open(file.path(), Wanted::All).unwrap().limited(longest);
                let first = lines.next_line().unwrap().unwrap();
                assert_eq!(first != Line::TooLong, is_taken, "{longest}");
                assert_eq!(lines.next_line().unwrap(), Some(Line::Text(b"last")));
            }
        }
    }

    #[test]
    fn rows_have_the_numbers_of_their_lines_and_one_that_is_too_long_says_so() {
        let file = file(b"a\nbbbb\ncc");
        let mut lines = Lines::open(file.path(), Wanted::All).unwrap().limited(2);
        assert_eq!(lines.longest(), 2);
        assert_eq!(lines.next_row().unwrap(), Some((1, Ok(&b"a"[..]))));
        assert_eq!(lines.next_row().unwrap(), Some((2, Err(too_long(2)))));
        assert_eq!(lines.next_row().unwrap(), Some((3, Ok(&b"cc"[..]))));
        assert_eq!(lines.next_row().unwrap(), None);
    }

    #[test]
    fn a_line_that_never_ends_is_stepped_over_in_bounded_memory() {
        let mut text = b"first\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', 20 * LONGEST));
        text.extend(b"\nlast\n");
        let file = file(&gzip(&text));
        let found = all(file.path()).unwrap();
        assert_eq!(found, [Some(b"first".to_vec()), None, Some(b"last".to_vec())]);
        let mut lines = Lines::open(file.path(), Wanted::All).unwrap().limited(LONGEST);
        while lines.next_line().unwrap().is_some() {}
        assert!(lines.buffer.len() <= 2 * LONGEST + CHUNK);
        assert_eq!(lines.place(), Place { offset: text.len() as u64, lines: 3 });
    }

    #[test]
    fn a_known_place_is_reached_at_once() {
        let file = file(b"a\r\nbb\nccc");
        let mut lines = Lines::open(file.path(), Wanted::All).unwrap().limited(LONGEST);
        lines.next_line().unwrap();
        let place = lines.place();
        assert_eq!(place, Place { offset: 3, lines: 1 });
        let mut lines = Lines::open_at(file.path(), place, Wanted::All).unwrap();
        assert_eq!(lines.next_line().unwrap(), Some(Line::Text(b"bb")));
        assert_eq!(lines.place().lines, 2);
    }

    #[test]
    fn broken_gzip_files_say_so() {
        let rows: Vec<u8> =
            (0..50_000u32).flat_map(|row| format!("{}\n", row.wrapping_mul(2_654_435_761)).into_bytes()).collect();
        let mut packed = gzip(&rows);
        let message = all(file(&packed[..packed.len() / 2]).path()).unwrap_err().to_string();
        assert!(message.contains("the gzip file is truncated") && message.contains("complete lines"), "{message}");
        let message = all(file(&packed[..packed.len() - 3]).path()).unwrap_err().to_string();
        assert!(message.contains("truncated"), "{message}");
        let at = packed.len() - 6;
        packed[at] ^= 1;
        let message = all(file(&packed).path()).unwrap_err().to_string();
        assert!(message.contains("the gzip file is corrupt"), "{message}");
        let message = Lines::open(Path::new("missing.tsv"), Wanted::All).err().unwrap().to_string();
        assert!(message.starts_with("missing.tsv: cannot open"), "{message}");
    }
}
