//! Text files in pieces of whole lines: piece n holds the lines that begin within bytes [n S, (n + 1) S) of the text,
//! counted from its first line that is not blank. Blank lines before that are piece 0's, so a header is in it, too.
//!
//! Where a piece begins depends on the text and on S alone, so plain and compressed files, and any number of threads,
//! give the same pieces. A plain file is entered anywhere; a compressed one is decoded from its first byte, by one
//! thread. A line longer than is allowed is cut a little behind that length: whoever parses it reports it.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Error, Result, input, interrupt};
use crate::data::text::{Counted, MARK, MOST_CRS, Wanted, decoded, line_ends, unreadable};

/// Bytes of an over-long line that are kept beyond the longest that is allowed: one more than a mark and its end may
/// have.
const BEYOND: usize = MARK.len() + MOST_CRS + 1;
/// Bytes read at once while a line's end is looked for.
const STEP: usize = 64 << 10;

/// A text file of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) compressed: bool,
    /// Bytes of the text before its first line that is not blank.
    blank: u64,
    /// The longest line, in bytes.
    pub(super) max_line: usize,
}

/// Bytes of blank lines at the start of a text, a byte order mark before them included. What cannot be read ends them:
/// it is told when the text is.
fn blank(text: impl Read) -> u64 {
    let mut bytes = BufReader::new(text).bytes().map_while(io::Result::ok).peekable();
    let mark = MARK.iter().take_while(|&&byte| bytes.next_if_eq(&byte).is_some()).count();
    (mark + bytes.take_while(|byte| matches!(byte, b'\r' | b'\n')).count()) as u64
}

impl Input {
    pub(super) fn open(path: &Path, max_line: usize) -> Result<Self> {
        let data = input::metadata(path)?;
        let (text, compressed) = decoded(input::open(path)?, path, Wanted::Names)?;
        Ok(Self { path: path.to_owned(), bytes: data.len(), compressed, blank: blank(text), max_line })
    }

    /// Bytes that are kept of a line.
    fn kept(&self) -> usize {
        self.max_line.saturating_add(BEYOND)
    }

    /// Pieces of a plain file.
    pub(super) fn pieces(&self, size: u64) -> u64 {
        self.bytes.saturating_sub(self.blank).div_ceil(size).max(u64::from(self.bytes > 0))
    }

    /// Where the lines of piece `number` of a plain file begin.
    pub(super) fn range(&self, number: u64, size: u64) -> Range<u64> {
        let border = |number: u64| if number == 0 { 0 } else { self.bytes.min(self.blank + number * size) };
        border(number)..border(number + 1)
    }

    /// Reads piece `number` of a plain file; it may have no line.
    pub(super) fn read_piece(&self, file: &File, number: u64, size: u64, text: &mut Vec<u8>) -> Result<()> {
        let fail = |error| Error::io(&self.path, "read")(error);
        let Range { start: mut begin, end: border } = self.range(number, size);
        text.clear();
        if begin > 0 {
            // A line begins behind the first line end at or after the byte before the piece.
            begin -= 1;
            let mut some = [0; 512];
            loop {
                let count = some.len().min((border - begin) as usize);
                read_exact(file, &mut some[..count], begin).map_err(fail)?;
                let end = memchr::memchr(b'\n', &some[..count]);
                begin += end.map_or(count, |end| end + 1) as u64;
                if begin == border {
                    return Ok(());
                }
                if end.is_some() {
                    break;
                }
            }
        }
        text.resize((border - begin) as usize, 0);
        read_exact(file, text, begin).map_err(fail)?;
        if text.is_empty() || text.ends_with(b"\n") {
            return Ok(());
        }
        // The last line ends beyond the piece.
        let mut last = text.len() - memchr::memrchr(b'\n', text).map_or(0, |end| end + 1);
        let mut at = border;
        let mut some = vec![0; STEP];
        while at < self.bytes {
            let count = STEP.min((self.bytes - at) as usize);
            read_exact(file, &mut some[..count], at).map_err(fail)?;
            let end = memchr::memchr(b'\n', &some[..count]);
            let line = &some[..end.unwrap_or(count)];
            let kept = line.len().min(self.kept().saturating_sub(last));
            text.extend_from_slice(&line[..kept]);
            last += kept;
            if end.is_some() || last >= self.kept() {
                text.push(b'\n');
                break;
            }
            at += count as u64;
        }
        Ok(())
    }

    /// Lines before piece `number` of a plain file; for messages.
    pub(super) fn lines_before(&self, number: u64, size: u64) -> Result<u64> {
        let mut file = File::open(&self.path).map_err(Error::io(&self.path, "open"))?;
        let mut left = self.range(number, size).start;
        let (mut lines, mut some) = (0, vec![0; 1 << 20]);
        let mut ended = true;
        while left > 0 {
            let count = some.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = file.read(&mut some[..count]).map_err(Error::io(&self.path, "read"))?;
            if read == 0 {
                break;
            }
            lines += line_ends(&some[..read]) as u64;
            ended = some[read - 1] == b'\n';
            left -= read as u64;
        }
        // A line that reaches into the piece belongs to the one before.
        Ok(lines + u64::from(!ended))
    }
}

fn read_exact(file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(into, at).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => io::Error::other("the file became shorter while it was read"),
        _ => error,
    })
}

/// The pieces of a compressed file, in order.
pub(super) struct Stream {
    path: PathBuf,
    input: Box<dyn Read + Send>,
    /// Bytes before the first line that is not blank, and of each piece from there on.
    blank: u64,
    size: u64,
    /// Bytes that are kept of a line.
    kept: usize,
    /// Decoded text that was not handed out, and where it begins.
    carry: Vec<u8>,
    base: u64,
    number: u64,
    /// Lines handed out.
    lines: u64,
    /// Bytes of the file that were decoded.
    decoded: Arc<AtomicU64>,
    ended: bool,
}

impl Stream {
    pub(super) fn open(input: &Input, size: u64, wanted: Wanted<'_>) -> Result<Self> {
        let file = File::open(&input.path).map_err(Error::io(&input.path, "open"))?;
        let read = Arc::new(AtomicU64::new(0));
        let (decoder, _) = decoded(Counted::new(file, Arc::clone(&read)), &input.path, wanted)?;
        let (path, carry, kept, blank) = (input.path.clone(), Vec::new(), input.kept(), input.blank);
        let (base, number, lines) = (0, 0, 0);
        Ok(Self { path, input: decoder, blank, size, kept, carry, base, number, lines, decoded: read, ended: false })
    }

    /// Bytes of the compressed file so far.
    pub(super) fn decoded(&self) -> u64 {
        self.decoded.load(Ordering::Relaxed)
    }

    /// Puts the next piece into `text`; returns its number and the lines before it, `None` at the end.
    pub(super) fn next_piece(&mut self, text: &mut Vec<u8>) -> Result<Option<(u64, u64)>> {
        text.clear();
        let number = self.number;
        let border = self.blank + (number + 1) * self.size;
        // A line that began in an earlier piece may reach beyond this one.
        if self.base < border {
            while !self.ended && self.base + (self.carry.len() as u64) < border {
                self.fill()?;
            }
            self.cut(border, text)?;
        }
        if text.is_empty() && self.ended && self.carry.is_empty() {
            return Ok(None);
        }
        let lines = self.lines;
        self.lines += (line_ends(text) + usize::from(!text.is_empty() && !text.ends_with(b"\n"))) as u64;
        self.number += 1;
        Ok(Some((number, lines)))
    }

    /// Moves the lines that begin before `border` from the carry to `text`.
    fn cut(&mut self, border: u64, text: &mut Vec<u8>) -> Result<()> {
        let within = ((border - self.base) as usize).min(self.carry.len());
        // The line that holds the byte before the border is the last one.
        let mut searched = within.saturating_sub(1);
        let end = loop {
            if let Some(found) = memchr::memchr(b'\n', &self.carry[searched..]) {
                break searched + found + 1;
            }
            searched = self.carry.len();
            if self.ended {
                break searched;
            }
            let line = memchr::memrchr(b'\n', &self.carry).map_or(0, |end| end + 1);
            if searched - line > self.kept {
                self.step_over(line + self.kept)?;
                break line + self.kept + 1;
            }
            self.fill()?;
        };
        text.extend_from_slice(&self.carry[..end]);
        self.carry.drain(..end);
        self.base += end as u64;
        Ok(())
    }

    /// Drops what an over-long line has behind `keep`, up to its end.
    fn step_over(&mut self, keep: usize) -> Result<()> {
        loop {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            if let Some(found) = memchr::memchr(b'\n', &self.carry[keep..]) {
                self.base += found as u64;
                self.carry.drain(keep..keep + found);
                return Ok(());
            }
            self.base += (self.carry.len() - keep) as u64;
            self.carry.truncate(keep);
            if self.ended {
                self.carry.push(b'\n');
                return Ok(());
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<()> {
        let from = self.carry.len();
        self.carry.resize(from + 4 * STEP, 0);
        let read = loop {
            match self.input.read(&mut self.carry[from..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.carry.truncate(from + *read.as_ref().unwrap_or(&0));
        let lines = self.lines + line_ends(&self.carry) as u64;
        let read = read.map_err(|error| unreadable(&self.path, true, lines, error))?;
        self.ended = read == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;
    use crate::data::text::without_end;

    const LONGEST: usize = 1 << 20;

    fn written(folder: &Path, name: &str, bytes: &[u8]) -> Input {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        Input::open(&path, LONGEST).unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn plain(input: &Input, size: u64) -> Vec<(Vec<u8>, u64)> {
        let file = File::open(&input.path).unwrap();
        let piece = |number| {
            let mut text = vec![7; 3];
            input.read_piece(&file, number, size, &mut text).unwrap();
            (text, input.lines_before(number, size).unwrap())
        };
        (0..input.pieces(size)).map(piece).collect()
    }

    fn streamed(input: &Input, size: u64) -> Vec<(Vec<u8>, u64)> {
        let mut stream = Stream::open(input, size, Wanted::All).unwrap();
        let (mut text, mut all) = (Vec::new(), Vec::new());
        while let Some((number, lines)) = stream.next_piece(&mut text).unwrap() {
            assert_eq!(number, all.len() as u64);
            all.push((text.clone(), lines));
        }
        all
    }

    proptest! {
        #[test]
        fn pieces_are_whole_lines_and_all_of_the_text(
            text in proptest::collection::vec(proptest::sample::select(b"abc\n".to_vec()), 0..300), size in 1..40u64) {
            let folder = tempfile::tempdir().unwrap();
            let found = plain(&written(folder.path(), "a", &text), size);
            let whole: Vec<u8> = found.iter().flat_map(|piece| piece.0.clone()).collect();
            prop_assert_eq!(&whole, &text);
            let mut lines = 0;
            for (at, (piece, before)) in found.iter().enumerate() {
                prop_assert!(piece.ends_with(b"\n") || piece.is_empty() || at + 1 == found.len()
                    || found[at + 1..].iter().all(|piece| piece.0.is_empty()));
                if !piece.is_empty() {
                    prop_assert_eq!(*before, lines, "piece {}", at);
                }
                lines += piece.split_inclusive(|&byte| byte == b'\n').count() as u64;
            }
            let mut streamed = streamed(&written(folder.path(), "a.gz", &gzip(&text)), size);
            let mut found = found;
            // Trailing pieces without a line may be left out.
            for pieces in [&mut streamed, &mut found] {
                while pieces.pop_if(|piece| piece.0.is_empty()).is_some() {}
            }
            prop_assert_eq!(streamed.iter().map(|piece| &piece.0).collect::<Vec<_>>(),
                found.iter().map(|piece| &piece.0).collect::<Vec<_>>());
            prop_assert!(streamed.iter().zip(&found).all(|(a, b)| a.0.is_empty() || a.1 == b.1));
        }
    }

    #[test]
    fn blank_lines_at_the_start_are_in_one_piece_with_the_first_line() {
        let folder = tempfile::tempdir().unwrap();
        for start in ["", "\n", "\r\n\n\n\r\n\n", "\u{feff}", "\u{feff}\n\r\n\n"] {
            let text = format!("{start}first\n\nlast\n");
            let (a, b) = (text.as_bytes(), gzip(text.as_bytes()));
            let (a, b) = (written(folder.path(), "a", a), written(folder.path(), "b", &b));
            for pieces in [plain(&a, 4), streamed(&b, 4)] {
                assert_eq!(pieces[0], (format!("{start}first\n").into_bytes(), 0), "{start:?}");
                assert_eq!(pieces[1], (b"\nlast\n".to_vec(), text.lines().count() as u64 - 2), "{start:?}");
            }
        }
    }

    #[test]
    fn a_line_that_is_cut_among_crs_is_still_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let text = "x".repeat(LONGEST) + "\r\r\r\rx\nlast\n";
        let (a, b) = (text.as_bytes(), gzip(text.as_bytes()));
        let (a, b) = (written(folder.path(), "a", a), written(folder.path(), "b", &b));
        for pieces in [plain(&a, 1 << 14), streamed(&b, 1 << 14)] {
            let first = pieces[0].0.strip_suffix(b"\n").unwrap();
            assert!(without_end(first).len() > LONGEST);
        }
    }

    #[test]
    fn a_line_without_end_is_cut_in_bounded_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut text = b"first\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', 20 * LONGEST));
        text.extend(b"\nlast\n");
        let (a, b) = (written(folder.path(), "a", &text), written(folder.path(), "b", &gzip(&text)));
        for size in [1 << 14, 3 << 20] {
            for pieces in [plain(&a, size), streamed(&b, size)] {
                let longest = pieces.iter().map(|piece| piece.0.len()).max().unwrap();
                assert!(longest > LONGEST && longest < 2 * LONGEST + size as usize + STEP, "{longest}");
                let lines: Vec<usize> = pieces
                    .iter()
                    .flat_map(|piece| {
                        piece.0.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::len).collect::<Vec<_>>()
                    })
                    .collect();
                assert_eq!((lines.len(), lines[0], lines[2]), (3, 6, 5));
                assert!(lines[1] > LONGEST + MOST_CRS + 1, "too long without its end, too");
            }
        }
    }
}
