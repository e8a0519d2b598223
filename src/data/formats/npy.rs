//! NumPy's array files (NumPy Enhancement Proposal 1): a header that names type, order and shape, then the numbers.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use super::bad;
use crate::base::{Error, Result};
use crate::memory::FileBytes;

/// What an array file's header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Byte order, kind and size, e.g. `<i4`.
    pub dtype: String,
    /// The array's sizes.
    pub shape: Vec<usize>,
    /// Whether the numbers stand column by column, the first index running fastest.
    pub by_columns: bool,
    /// Where the numbers begin.
    pub data: usize,
}

/// Bytes of the longest header that is looked for; those of plain arrays have 128.
const LONGEST: usize = 1 << 17;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

impl Header {
    /// Reads the header of an array file that lies in another file, its first byte and its length given.
    ///
    /// # Errors
    /// As [`Header::parse`], and when the file cannot be read.
    pub fn read(file: &FileBytes, (start, length): (usize, usize), name: &str) -> Result<Self> {
        let bytes = file.bytes(start..start + length.min(LONGEST))?;
        Self::parse(&bytes, file.path(), name)
    }

    /// Reads the header of an array file that comes as a stream, which then stands at the first number.
    ///
    /// # Errors
    /// As [`Header::parse`], and when the stream cannot be read.
    pub fn take(stream: &mut impl Read, path: &Path, name: &str) -> Result<Self> {
        let mut bytes = Vec::new();
        let mut read_to = |bytes: &mut Vec<u8>, end: usize| {
            let more = end.saturating_sub(bytes.len()) as u64;
            stream.by_ref().take(more).read_to_end(bytes).map_err(|error| unreadable(path, name, &error))
        };
        // No header is shorter than what says how long it is.
        read_to(&mut bytes, 12)?;
        let end = text(&bytes).map_or(0, |text| text.end);
        read_to(&mut bytes, end.min(LONGEST))?;
        Self::parse(&bytes, path, name)
    }

    /// Reads the header at the start of `bytes`; `name` is what messages call the array.
    ///
    /// # Errors
    /// [`crate::base::Error::BadFile`] when it is none.
    pub fn parse(bytes: &[u8], path: &Path, name: &str) -> Result<Self> {
        let fail = |reason: &str| bad(path, format!("{name}: {reason}"));
        let no_array = || fail("is no NumPy array: its header is damaged");
        let version = bytes.strip_prefix(MAGIC).and_then(|rest| rest.first()).ok_or_else(no_array)?;
        if !(1..=3).contains(version) {
            return Err(fail("has an unknown version of NumPy's format"));
        }
        let place = text(bytes).ok_or_else(no_array)?;
        let data = place.end;
        let text = bytes.get(place).and_then(|text| std::str::from_utf8(text).ok()).ok_or_else(no_array)?;
        let value = |key: &str| {
            let (_, rest) = text.split_once(&format!("'{key}':"))?;
            Some(rest.trim_start())
        };
        let dtype = value("descr")
            .and_then(|rest| rest.strip_prefix('\'')?.split('\'').next())
            .ok_or_else(|| fail("has a structured type; a plain one is expected, such as int32"))?;
        let by_columns = value("fortran_order").ok_or_else(no_array)?.starts_with("True");
        let shape = value("shape").and_then(|rest| rest.strip_prefix('(')?.split(')').next()).ok_or_else(no_array)?;
        let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
        let shape = sizes.map(|size| size.trim_end_matches('L').parse().ok()).collect::<Option<Vec<usize>>>();
        Ok(Self { dtype: dtype.to_owned(), shape: shape.ok_or_else(no_array)?, by_columns, data })
    }

    /// The numbers of an array that must be row by row, of one of `dtypes` and of two dimensions, the second `width`
    /// long where that is given (one dimension counts as a width of 1); the array file has `length` bytes. Returns the
    /// number of rows, the width and which bytes they are.
    ///
    /// # Errors
    /// [`crate::base::Error::BadFile`] with what was found.
    pub fn matrix(
        &self,
        length: usize,
        dtypes: &[&str],
        width: Option<usize>,
        (path, name): (&Path, &str),
    ) -> Result<(usize, usize, Range<usize>)> {
        let fail = |reason: String| bad(path, format!("{name}: {reason}"));
        if self.by_columns {
            return Err(fail("is stored column by column: save it with numpy.ascontiguousarray".to_owned()));
        }
        if !dtypes.contains(&self.dtype.as_str()) {
            return Err(fail(format!(
                "has dtype {}; {} expected: convert it with astype",
                self.dtype,
                dtypes.join(" or ")
            )));
        }
        let (rows, columns) = match self.shape[..] {
            [rows] => (rows, 1),
            [rows, columns] => (rows, columns),
            _ => return Err(fail(format!("has shape {:?}; two dimensions expected", self.shape))),
        };
        if width.is_some_and(|width| width != columns) {
            return Err(fail(format!("has shape {:?}; {} columns expected", self.shape, width.unwrap_or(0))));
        }
        let size: usize = self.dtype[2..].parse().map_err(|_| fail(format!("has dtype {}", self.dtype)))?;
        let wanted = rows.checked_mul(columns).and_then(|cells| cells.checked_mul(size));
        let found = length.saturating_sub(self.data);
        let end = wanted.and_then(|wanted| self.data.checked_add(wanted));
        match end.filter(|&end| end <= length) {
            Some(end) => Ok((rows, columns, self.data..end)),
            None => Err(fail(format!(
                "is truncated: shape {:?} of {} needs more than the {found} bytes there are: copy or write it again",
                self.shape, self.dtype
            ))),
        }
    }
}

/// Where the text of the header stands that begins with these bytes: at most twelve are looked at.
fn text(bytes: &[u8]) -> Option<Range<usize>> {
    let (start, length) = match bytes.get(MAGIC.len())? {
        1 => (10, bytes.get(8..10).map(|word| usize::from(word[0]) | usize::from(word[1]) << 8)?),
        _ => (12, bytes.get(8..12).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as usize)?),
    };
    Some(start..length.checked_add(start)?)
}

/// The error of an array that cannot be read on.
pub(super) fn unreadable(path: &Path, name: &str, error: &std::io::Error) -> Error {
    bad(path, format!("{name}: cannot be read ({error}): copy or write the file again"))
}

/// Bytes of the headers that are written, whatever the shape: they can be written over.
pub const HEADER_BYTES: usize = 128;

/// A header of version 1.
#[must_use]
pub fn header(dtype: &str, shape: &[usize]) -> [u8; HEADER_BYTES] {
    let mut sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    if sizes.len() == 1 {
        sizes.push(String::new());
    }
    let text = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({}), }}", sizes.join(", ").trim_end());
    let mut bytes = [b' '; HEADER_BYTES];
    bytes[..6].copy_from_slice(MAGIC);
    bytes[6..8].copy_from_slice(&[1, 0]);
    bytes[8..10].copy_from_slice(&((HEADER_BYTES - 10) as u16).to_le_bytes());
    bytes[10..10 + text.len()].copy_from_slice(text.as_bytes());
    bytes[HEADER_BYTES - 1] = b'\n';
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_survive_and_faults_are_named() {
        for shape in [&[0][..], &[5], &[178_274_637, 26], &[1, 2, 3]] {
            let bytes = header("<i4", shape);
            let found = Header::parse(&bytes, Path::new("a.npy"), "array").unwrap();
            let expected =
                Header { dtype: "<i4".to_owned(), shape: shape.to_vec(), by_columns: false, data: HEADER_BYTES };
            assert_eq!(found, expected);
            let mut stream = &[&bytes[..], &[7; 3]].concat()[..];
            assert_eq!(Header::take(&mut stream, Path::new("a.npy"), "array").unwrap(), expected);
            assert_eq!(stream, [7; 3], "the numbers are left");
        }
        // As NumPy itself writes one.
        let text = b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }          \n";
        let bytes = [&text[..], &[0; 8]].concat();
        let found = Header::parse(&bytes, Path::new("a.npy"), "array").unwrap();
        let place = (Path::new("a.npy"), "array");
        assert_eq!(found.matrix(bytes.len(), &["<f4"], None, place).unwrap(), (2, 1, bytes.len() - 8..bytes.len()));
        let message = found.matrix(bytes.len(), &["<i4", "<i8"], None, place).unwrap_err().to_string();
        assert_eq!(message, "a.npy: array: has dtype <f4; <i4 or <i8 expected: convert it with astype");
        let message = found.matrix(bytes.len() - 1, &["<f4"], None, place).unwrap_err().to_string();
        assert!(message.contains("is truncated: shape [2, 1] of <f4 needs more than the 7 bytes"), "{message}");
        let message = found.matrix(bytes.len(), &["<f4"], Some(13), place).unwrap_err().to_string();
        assert!(message.contains("has shape [2, 1]; 13 columns expected"), "{message}");
        let turned = String::from_utf8_lossy(&header("<f4", &[2, 2])[6..]).replace("False", "True ");
        let turned = [&MAGIC[..], turned.as_bytes()].concat();
        let found = Header::parse(&turned, Path::new("a.npy"), "array").unwrap();
        let message = found.matrix(200, &["<f4"], None, place).unwrap_err().to_string();
        assert!(found.by_columns && message.contains("column by column"), "{message}");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index, to: u8, real: bool,
        ) {
            let mut bytes = if real { header("<i4", &[3, 4]).to_vec() } else { [&MAGIC[..], &bytes].concat() };
            let at = at.index(bytes.len());
            bytes[at] = to;
            let streamed = Header::take(&mut &bytes[..], Path::new("a.npy"), "array");
            if let Ok(found) = Header::parse(&bytes, Path::new("a.npy"), "array") {
                prop_assert_eq!(streamed.unwrap(), found.clone());
                let _ = found.matrix(bytes.len(), &["<i4"], None, (Path::new("a.npy"), "array"));
            }
        }
    }
}
