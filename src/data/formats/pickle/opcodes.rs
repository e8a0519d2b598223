//! The opcodes of a pickle, one after the other; payloads of any length stay in the stream until they are asked for.

use std::io::{self, BufRead, BufReader, Read};

use super::Origin;
use crate::base::units::{Bytes, Count};
use crate::base::{Error, Result};

/// What a damaged or cut pickle asks for.
pub(super) const AGAIN: &str = "copy or write the file again";

/// Bytes that are asked of the file at once.
const CHUNK: usize = 64 << 10;

/// The longest line of a name, in bytes.
const LONGEST_NAME: usize = 256;

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Opcode {
    /// Nothing: a version, or how the bytes are framed.
    Framing,
    Stop,
    Mark,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// So many bytes of UTF-8 follow.
    Text(u64),
    /// So many bytes follow.
    Bytes(u64),
    /// A tuple of all values since the mark.
    Tuple,
    /// A tuple of so many values.
    TupleOf(usize),
    EmptyList,
    Append,
    Appends,
    EmptyDict,
    SetItem,
    SetItems,
    /// The name that two lines give, which follow.
    Global,
    /// The name that two texts give.
    StackGlobal,
    Reduce,
    Build,
    Get(u32),
    Put(u32),
    Memoize,
}

/// The opcodes of a stream of bytes.
#[derive(Debug)]
pub(super) struct Opcodes<R> {
    bytes: BufReader<R>,
    at: u64,
    pub(super) origin: Origin,
}

impl<R: Read> Opcodes<R> {
    pub(super) fn new(stream: R, origin: Origin) -> Self {
        Self { bytes: BufReader::with_capacity(CHUNK, stream), at: 0, origin }
    }

    /// How many bytes were read.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// The error of what was read last.
    pub(super) fn fail(&self, reason: impl std::fmt::Display) -> Error {
        self.origin.fail(self.at, reason)
    }

    /// The next opcode, with its number if it has one.
    ///
    /// # Errors
    /// When the bytes end or cannot be read, or the opcode is none that makes data.
    pub(super) fn next(&mut self) -> Result<Opcode> {
        let [code] = self.array()?;
        Ok(match code {
            b'.' => Opcode::Stop,
            b'(' => Opcode::Mark,
            b'N' => Opcode::None,
            0x88 => Opcode::Bool(true),
            0x89 => Opcode::Bool(false),
            b'K' => Opcode::Int(i64::from(u8::from_le_bytes(self.array()?))),
            b'M' => Opcode::Int(i64::from(u16::from_le_bytes(self.array()?))),
            b'J' => Opcode::Int(i64::from(i32::from_le_bytes(self.array()?))),
            0x8a => Opcode::Int(self.long()?),
            b'G' => Opcode::Float(f64::from_be_bytes(self.array()?)),
            0x8c => Opcode::Text(u64::from(u8::from_le_bytes(self.array()?))),
            b'X' => Opcode::Text(u64::from(u32::from_le_bytes(self.array()?))),
            0x8d => Opcode::Text(u64::from_le_bytes(self.array()?)),
            b'C' => Opcode::Bytes(u64::from(u8::from_le_bytes(self.array()?))),
            b'B' => Opcode::Bytes(u64::from(u32::from_le_bytes(self.array()?))),
            0x8e => Opcode::Bytes(u64::from_le_bytes(self.array()?)),
            b')' => Opcode::TupleOf(0),
            0x85..=0x87 => Opcode::TupleOf(usize::from(code - 0x84)),
            b't' => Opcode::Tuple,
            b']' => Opcode::EmptyList,
            b'a' => Opcode::Append,
            b'e' => Opcode::Appends,
            b'}' => Opcode::EmptyDict,
            b's' => Opcode::SetItem,
            b'u' => Opcode::SetItems,
            b'c' => Opcode::Global,
            0x93 => Opcode::StackGlobal,
            b'R' => Opcode::Reduce,
            b'b' => Opcode::Build,
            b'h' => Opcode::Get(u32::from(u8::from_le_bytes(self.array()?))),
            b'j' => Opcode::Get(u32::from_le_bytes(self.array()?)),
            b'q' => Opcode::Put(u32::from(u8::from_le_bytes(self.array()?))),
            b'r' => Opcode::Put(u32::from_le_bytes(self.array()?)),
            0x94 => Opcode::Memoize,
            0x80 => {
                let [version] = self.array()?;
                if !(2..=4).contains(&version) {
                    let reason = format!(
                        "is of protocol {version}; 2 to 4 are read, which NumPy writes: write the file with \
                         numpy.savez_compressed"
                    );
                    return Err(self.fail(reason));
                }
                Opcode::Framing
            }
            0x95 => {
                let _: [u8; 8] = self.array()?;
                Opcode::Framing
            }
            other => {
                let reason = format!(
                    "opcode {other:#04x} makes no list, tuple, dictionary, array or number, and nothing else is read: is \
                     this the right file? If so, {AGAIN}"
                );
                return Err(self.fail(reason));
            }
        })
    }

    /// A whole number of at most eight bytes, the lowest first.
    fn long(&mut self) -> Result<i64> {
        let [length] = self.array()?;
        let mut bytes = [0; 8];
        let Some(used) = bytes.get_mut(..usize::from(length)) else {
            return Err(self.fail(format!("a whole number of {length} bytes; eight at most are read: {AGAIN}")));
        };
        self.bytes.read_exact(used).map_err(|error| stopped(&self.origin, self.at, &error))?;
        self.at += u64::from(length);
        if used.last().is_some_and(|last| *last >= 0x80) {
            bytes[usize::from(length)..].fill(0xff);
        }
        Ok(i64::from_le_bytes(bytes))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.bytes.read_exact(&mut bytes).map_err(|error| stopped(&self.origin, self.at, &error))?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// The bytes that an opcode announced, at most `limit` of them.
    ///
    /// # Errors
    /// When they end before, cannot be read, or are more.
    pub(super) fn payload(&mut self, length: u64, limit: u64) -> Result<Vec<u8>> {
        if length > limit {
            let reason = format!("a value of {} bytes, where up to {} are held: {AGAIN}", Count(length), Bytes(limit));
            return Err(self.fail(reason));
        }
        let mut bytes = Vec::new();
        // Memory grows with the bytes that are there, not with those that are announced.
        let read = self.bytes.by_ref().take(length).read_to_end(&mut bytes);
        let read = read.map_err(|error| stopped(&self.origin, self.at, &error))? as u64;
        self.at += read;
        if read < length {
            return Err(stopped(&self.origin, self.at, &io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(bytes)
    }

    /// Steps over the bytes that an opcode announced.
    ///
    /// # Errors
    /// When they end before, or cannot be read.
    pub(super) fn skip(&mut self, length: u64) -> Result<()> {
        let skipped = io::copy(&mut self.bytes.by_ref().take(length), &mut io::sink());
        let skipped = skipped.map_err(|error| stopped(&self.origin, self.at, &error))?;
        self.at += skipped;
        if skipped < length {
            return Err(stopped(&self.origin, self.at, &io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    /// A line, without its end.
    ///
    /// # Errors
    /// When the bytes end before it does, cannot be read, or it is too long for a name.
    pub(super) fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        let read = self.bytes.by_ref().take(LONGEST_NAME as u64).read_until(b'\n', &mut line);
        self.at += read.map_err(|error| stopped(&self.origin, self.at, &error))? as u64;
        let name = line.strip_suffix(b"\n").and_then(|name| str::from_utf8(name).ok());
        name.map(str::to_owned).ok_or_else(|| self.fail(format!("a name that is none: {AGAIN}")))
    }

    /// Reads to the end, where the archive's checksum is compared: nothing may follow.
    ///
    /// # Errors
    /// When something does, or the checksum is another one.
    pub(super) fn end(&mut self) -> Result<()> {
        let rest = self.bytes.fill_buf().map_err(|error| stopped(&self.origin, self.at, &error))?;
        if rest.is_empty() {
            return Ok(());
        }
        Err(self.fail(format!("bytes follow its end: {AGAIN}")))
    }
}

/// The error of a stream that gives no more.
fn stopped(origin: &Origin, at: u64, error: &io::Error) -> Error {
    // The error of a file that was cut short says so itself.
    let end = error.kind() == io::ErrorKind::UnexpectedEof && error.get_ref().is_none();
    let reason = if end { "it ends in the middle".to_owned() } else { format!("it cannot be read ({error})") };
    origin.fail(at, format!("{reason}: {AGAIN}"))
}
