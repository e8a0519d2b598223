//! Opening what users name: files that are read more than once, and small texts, whose places are told by line.
//!
//! A pipe, a device or a folder in a file's place is told at once: nobody waits for the other end of a pipe, and
//! nothing that never ends is read into memory.

use std::fs::{File, FileType, Metadata};
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use serde::de::DeserializeOwned;

use super::units::Bytes;
use super::{Error, Result};

/// The longest configuration, schema, plan or machine description, in bytes.
const LONGEST_TEXT: u64 = 64 << 20;

/// Opens a regular file, which can be read again and anywhere.
///
/// # Errors
/// [`Error::Io`], and [`Error::BadFile`] when it is something else.
pub fn open(path: &Path) -> Result<File> {
    metadata(path)?;
    // What was a file a moment ago may be a pipe now, whose opening would wait for a writer.
    let file = nonblocking(path)?;
    regular(path, file.metadata().map_err(Error::io(path, "open"))?)?;
    Ok(file)
}

/// What the system knows of a regular file.
///
/// # Errors
/// As [`open`].
pub fn metadata(path: &Path) -> Result<Metadata> {
    regular(path, std::fs::metadata(path).map_err(Error::io(path, "open"))?)
}

/// A file as it was found, to whose places one comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its device, and its number there.
    number: (u64, u64),
    bytes: u64,
    modified: (i64, i64),
}

impl Found {
    /// A regular file as it is now.
    ///
    /// # Errors
    /// As [`open`].
    pub fn at(path: &Path) -> Result<Self> {
        let data = metadata(path)?;
        let modified = (data.mtime(), data.mtime_nsec());
        Ok(Self { number: (data.dev(), data.ino()), bytes: data.len(), modified })
    }

    /// Its bytes then.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether what it had then is still where it was, as far as the system tells: behind that it may have grown.
    ///
    /// # Errors
    /// As [`open`], and [`Error::BadFile`] when it is another file or was changed.
    pub fn check(&self, path: &Path) -> Result<()> {
        let now = Self::at(path)?;
        let same = (now.bytes, now.modified) == (self.bytes, self.modified);
        if same || now.number == self.number && now.bytes > self.bytes {
            return Ok(());
        }
        let reason = format!(
            "the file has changed since it was opened: it had {} bytes then and has {} now; start again, and leave it as it \
             is while it is read",
            self.bytes, now.bytes
        );
        Err(Error::bad_file(path, reason))
    }
}

/// Reads a regular file whole.
///
/// # Errors
/// As [`open`], and when it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes).map_err(Error::io(path, "read"))?;
    Ok(bytes)
}

/// Reads a small text, such as a configuration; it may come by a pipe.
///
/// # Errors
/// When it cannot be read, is longer than any such text, or is no UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    let fail = |reason: String| Error::bad_file(path, reason);
    let kind = std::fs::metadata(path).map_err(Error::io(path, "read"))?.file_type();
    if kind.is_dir() {
        return Err(fail(format!("is {}: name a file in it", name(kind))));
    }
    let file = nonblocking(path)?;
    // Opened without waiting; read with.
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty())
        .map_err(|source| Error::io(path, "read")(source.into()))?;
    let mut bytes = Vec::new();
    file.take(LONGEST_TEXT + 1).read_to_end(&mut bytes).map_err(Error::io(path, "read"))?;
    if bytes.len() as u64 > LONGEST_TEXT {
        return Err(fail(format!("is longer than {}: is this the right file?", Bytes(LONGEST_TEXT))));
    }
    if kind.is_fifo() && bytes.is_empty() {
        return Err(fail("is a pipe into which nobody writes: put the text into a file".to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let is_utf16 = [b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| error.as_bytes().starts_with(*mark));
        let (what, from) = if is_utf16 { ("text in UTF-16", "UTF-16") } else { ("no UTF-8", "WINDOWS-1252") };
        fail(format!("is {what}: save it as UTF-8 (such as by `iconv -f {from} -t UTF-8 FILE > NEW`)"))
    })
}

/// The line, from 1 on, in which a place of a text is.
#[must_use]
pub fn line(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// What a TOML text says.
///
/// # Errors
/// Where it is wrong, and why, on one line.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> std::result::Result<T, (Range<usize>, String)> {
    toml::from_str(text).map_err(|error| (error.span().unwrap_or(0..0), error.message().replace('\n', ": ")))
}

fn nonblocking(path: &Path) -> Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).custom_flags(flags).open(path).map_err(Error::io(path, "open"))
}

fn regular(path: &Path, found: Metadata) -> Result<Metadata> {
    let kind = found.file_type();
    let remedy = match () {
        () if kind.is_file() => return Ok(found),
        () if kind.is_dir() => "name a file in it",
        () => "it is read more than once, so put it into a file",
    };
    Err(Error::bad_file(path, format!("is {}, no regular file: {remedy}", name(kind))))
}

/// What a person calls it.
fn name(kind: FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_opened_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for (path, expected) in [
            (&*pipe, "pipe: is a pipe, no regular file: it is read more than once, so put it into a file"),
            (folder.path(), "is a folder, no regular file: name a file in it"),
            (Path::new("/dev/zero"), "is a device, no regular file"),
            (Path::new("/nowhere"), "/nowhere: cannot open"),
        ] {
            let message = open(path).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        for (path, expected) in [
            (&*pipe, "is a pipe into which nobody writes"),
            (folder.path(), "is a folder: name a file in it"),
            (Path::new("/dev/zero"), "is longer than 64.0 MiB"),
            (Path::new("/nowhere"), "/nowhere: cannot read"),
        ] {
            let message = read_text(path).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let utf16 = |bytes: fn(u16) -> [u8; 2]| "\u{feff}x = 1".encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        for (text, what, from) in [
            (utf16(u16::to_le_bytes), "is text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
            (utf16(u16::to_be_bytes), "is text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
            (b"x = 'm\xfcde'".to_vec(), "is no UTF-8", "iconv -f WINDOWS-1252 -t UTF-8"),
        ] {
            let odd = folder.path().join("odd.toml");
            std::fs::write(&odd, text).unwrap();
            let message = read_text(&odd).unwrap_err().to_string();
            assert!(message.contains(&format!("odd.toml: {what}: save it as UTF-8")), "{message}");
            assert!(message.contains(from), "{message}");
        }
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "x = 1").unwrap();
        assert_eq!(read_text(&file).unwrap(), "x = 1");
        assert_eq!(open(&file).unwrap().metadata().unwrap().len(), 5);
    }
}
