//! Files for reading: mapped where octorec wrote them, read piece by piece where they are the user's.
//!
//! A mapping is the quickest way to bytes that stay where they are: a checkpoint larger than the free memory is
//! streamed from one. octorec replaces its own files by renaming, never by writing into them; others may copy over
//! theirs while a run reads them, and then a read that fails says which file it was. Where somebody cuts a mapped file
//! short, what is missing reads as zeros, and [`FileMap::check`] tells; where somebody writes into it, its numbers
//! change ([`FileMap`]).
#![allow(unsafe_code)]

use std::fs::{File, Metadata};
use std::io;
use std::ops::{Deref, Range};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;

use super::lost::Watched;
use crate::base::{Error, Result, input};

/// How a file will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// From here on: the system reads far ahead and lets go of what was read.
    Sequential,
    /// Here and there: the system reads what is asked for.
    Random,
}

/// Has the system forget what it holds of a file, or of all files in a folder and those below it, so that what is read
/// next comes from the disk. What is not on the disk yet stays.
///
/// # Errors
/// When it cannot be opened, or the system refuses.
pub fn forget_cached(path: &Path) -> Result<()> {
    if path.is_dir() {
        return listed(path, "list")?.iter().try_for_each(|entry| forget_cached(entry));
    }
    let file = input::open(path)?;
    let told = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    told.map_err(|error| Error::io(path, "leave the cache of")(error.into()))
}

/// What lies in a folder, by name: the system lists it in an order that differs from machine to machine. A folder that
/// cannot be listed is an error of `action`.
///
/// # Errors
/// When it cannot be listed.
pub fn listed(folder: &Path, action: &'static str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = entries.map_err(Error::io(folder, action))?;
    paths.sort_unstable();
    Ok(paths)
}

/// Text with every number as its length and digits, so that it sorts by value: day_2 before day_10.
#[must_use]
pub fn natural(text: &str) -> String {
    let mut key = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = rest[at..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - at);
        let number = rest[at..at + digits].trim_start_matches('0');
        key.push_str(&rest[..at]);
        key.push_str(&format!("{:04}{number}", number.len()));
        rest = &rest[at + digits..];
    }
    key + rest
}

/// A mapped file: one that is replaced and not written into, as octorec's own are.
///
/// Another program can write into it all the same, as `cp` onto it does. Whoever reads a mapping is ready for that:
/// what it parses, unpacks, or relies on once it was checked, it copies before; in place it reads plain numbers alone,
/// of which all bits are a value. These may then be others than those that were checked, and a run computes with what
/// it finds. One limit remains, which no mapping can lift: for Rust, memory behind a `&[u8]` does not change, so that a
/// compiler may read a number twice and take both for one.
#[derive(Debug)]
pub struct FileMap {
    map: Mmap,
    path: PathBuf,
    /// The device and the number of the file, which the path may lead to no longer.
    number: (u64, u64),
    watched: &'static Watched,
}

impl FileMap {
    /// Maps a file.
    ///
    /// # Errors
    /// When it cannot be opened or mapped, or is no regular file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = input::open(path)?;
        let number = number(&file.metadata().map_err(Error::io(path, "read"))?);
        // SAFETY: the bytes behind this mapping do not change while it lives: octorec replaces files by renaming, never
        // by writing into them. Block files and checkpoints alone are mapped; data in other formats is read with
        // `FileBytes`. Where another program writes into one, what is read is numbers, and what else it leads to was
        // copied before it was checked, within the limit that `FileMap` names. (Of a file that a foreign program cuts
        // short, the rest turns to zeros, and `check` tells.)
        let map = unsafe { Mmap::map(&file) };
        let map = map.map_err(Error::io(path, "map"))?;
        let watched = Watched::add(&map);
        Ok(Self { map, path: path.to_owned(), number, watched })
    }

    /// Whether all that was read so far was the file's.
    ///
    /// # Errors
    /// [`Error::BadFile`] when it was cut short, or could not be read, since it was mapped: some of what was read is
    /// then zeros.
    pub fn check(&self) -> Result<()> {
        let had = self.map.len();
        let reason = match std::fs::metadata(&self.path) {
            // Without a signal where the end lies within the last page that is left: the rest of that is zeros.
            Ok(now) if number(&now) == self.number && now.len() < had as u64 => cut_short(had, Some(now.len())),
            _ if !self.watched.is_lost() => return Ok(()),
            _ => "could not be read on: was it cut short, or does its disk or network fail? copy or write it again"
                .to_owned(),
        };
        Err(Error::bad_file(self.path.clone(), reason))
    }

    /// Tells the system how the bytes will be read.
    pub fn advise(&self, access: Access) {
        let advice = match access {
            Access::Sequential => memmap2::Advice::Sequential,
            Access::Random => memmap2::Advice::Random,
        };
        // A hint: where the system does not take it, reading is slower and as right.
        let _ = self.map.advise(advice);
    }
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        self.watched.forget();
    }
}

fn number(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// Of a file that had so many bytes when it was opened.
fn cut_short(had: usize, has: Option<u64>) -> String {
    let has = has.map_or_else(|| "fewer".to_owned(), |has| has.to_string());
    format!(
        "was cut short while it was read: it had {had} bytes when it was opened and has {has} now: copy or write it again"
    )
}

/// A file that is read piece by piece, each where it is asked for; several threads may read at once.
#[derive(Debug)]
pub struct FileBytes {
    path: PathBuf,
    file: File,
    len: usize,
}

impl FileBytes {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be opened, or its length is not known.
    pub fn open(path: &Path) -> Result<Self> {
        let file = input::open(path)?;
        let len = file.metadata().map_err(Error::io(path, "read"))?.len();
        let len = usize::try_from(len).map_err(|error| Error::io(path, "read")(io::Error::other(error)))?;
        Ok(Self { path: path.to_owned(), file, len })
    }

    /// Opens a file that will be read from front to back.
    ///
    /// # Errors
    /// As [`FileBytes::open`].
    pub fn streamed(path: &Path) -> Result<Arc<Self>> {
        let file = Self::open(path)?;
        file.advise(Access::Sequential);
        Ok(Arc::new(file))
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes when it was opened.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it had none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tells the system how the bytes will be read.
    pub fn advise(&self, access: Access) {
        let advice = match access {
            Access::Sequential => rustix::fs::Advice::Sequential,
            Access::Random => rustix::fs::Advice::Random,
        };
        // A hint, as for a mapping.
        let _ = rustix::fs::fadvise(&self.file, 0, None, advice);
    }

    /// Fills `into` with the bytes from `start` on.
    ///
    /// # Errors
    /// As [`FileBytes::read_at`]; the error does not name the file.
    pub fn fill(&self, start: usize, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, start as u64).map_err(|error| {
            if error.kind() != io::ErrorKind::UnexpectedEof {
                return error;
            }
            let has = self.file.metadata().ok().map(|now| now.len());
            io::Error::new(io::ErrorKind::UnexpectedEof, cut_short(self.len, has))
        })
    }

    /// Fills `into` with the bytes from `start` on.
    ///
    /// # Errors
    /// When the file cannot be read, or has become shorter; the message names it.
    pub fn read_at(&self, start: usize, into: &mut [u8]) -> Result<()> {
        self.fill(start, into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::bad_file(self.path.clone(), error.to_string()),
            _ => Error::io(&self.path, "read")(error),
        })
    }

    /// The bytes of a range.
    ///
    /// # Errors
    /// As [`FileBytes::read_at`].
    ///
    /// # Panics
    /// When the range did not lie in the file when it was opened.
    pub fn bytes(&self, range: Range<usize>) -> Result<Vec<u8>> {
        assert!(range.end <= self.len, "bytes {range:?} of {}", self.len);
        let mut bytes = vec![0; range.len()];
        self.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// A position at byte `start`, for libraries that want one; unbuffered.
    #[must_use]
    pub fn cursor(self: &Arc<Self>, start: usize) -> FileCursor {
        FileCursor { file: Arc::clone(self), at: start as u64 }
    }
}

/// A position in a [`FileBytes`].
#[derive(Debug)]
pub struct FileCursor {
    file: Arc<FileBytes>,
    at: u64,
}

impl io::Read for FileCursor {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = (self.file.len as u64).saturating_sub(self.at);
        let count = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if count > 0 {
            self.file.fill(self.at as usize, &mut into[..count])?;
        }
        self.at += count as u64;
        Ok(count)
    }
}

impl io::Seek for FileCursor {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let at = match to {
            io::SeekFrom::Start(at) => Some(at),
            io::SeekFrom::End(by) => (self.file.len as u64).checked_add_signed(by),
            io::SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom};

    use super::*;

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        let (long, longer) = ("part_18446744073709551616", "part_18446744073709551617");
        let mut names = [longer, "part_10", "part_9", long, "part_9_2", "a2b", "part"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["a2b", "part", "part_9", "part_9_2", "part_10", long, longer]);
    }

    #[test]
    fn a_file_that_is_cut_short_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clicks.bin");
        std::fs::write(&path, (0..=255).collect::<Vec<u8>>()).unwrap();
        let file = Arc::new(FileBytes::open(&path).unwrap());
        assert_eq!(file.bytes(3..6).unwrap(), [3, 4, 5]);
        let mut cursor = file.cursor(250);
        let mut rest = Vec::new();
        cursor.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, [250, 251, 252, 253, 254, 255]);
        assert_eq!(cursor.seek(SeekFrom::End(-100)).unwrap(), 156);
        assert_eq!(cursor.seek(SeekFrom::Current(-6)).unwrap(), 150);
        assert!(cursor.seek(SeekFrom::Current(-151)).is_err());
        File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
        assert_eq!(file.bytes(99..100).unwrap(), [99]);
        let message = file.bytes(99..101).unwrap_err().to_string();
        assert!(message.contains("clicks.bin: was cut short while it was read: it had 256 bytes"), "{message}");
        assert!(message.contains("has 100 now"), "{message}");
        assert!(cursor.read(&mut [0; 8]).is_err());
    }

    #[test]
    fn a_mapping_that_is_cut_short_reads_as_zeros_and_tells() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clicks.octorec");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, vec![9; 100_000]).unwrap();
        let (map, whole) = (FileMap::open(&path).unwrap(), FileMap::open(&other).unwrap());
        map.check().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        // What is cut off within a page goes without a signal.
        file.set_len(99_990).unwrap();
        assert_eq!((map[99_989], map[99_999]), (7, 0));
        assert!(map.check().is_err());
        file.set_len(5000).unwrap();
        assert_eq!((map[50_000], map[99_999], map[4999]), (0, 0, 7));
        let message = map.check().unwrap_err().to_string();
        assert!(message.contains("clicks.octorec: was cut short while it was read: it had 100000 bytes"), "{message}");
        assert!(message.contains("has 5000 now"), "{message}");
        // Other mappings are what they were, and a place that was left is taken again.
        assert!(whole.iter().all(|&byte| byte == 9));
        whole.check().unwrap();
        drop(map);
        let again = FileMap::open(&other).unwrap();
        assert!(again.iter().all(|&byte| byte == 9) && again.check().is_ok());
    }
}
