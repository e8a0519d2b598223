//! Streams: outputs that are no file of their own, as devices, pipes, and what this process was started with.
//!
//! A path that names an open descriptor of this process (/dev/stdout, /dev/fd/N, /proc/self/fd/N) is written to as that
//! descriptor is, also where it leads to a regular file: from where it stands, or at the end of a log that the shell
//! has opened by `>>`. Whoever opened that file anew would write over what is in it, or over what comes next.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

use crate::base::{Error, Result};

/// The folders of this process's open descriptors.
const OPEN: [&str; 2] = ["/proc/self/fd", "/proc/thread-self/fd"];

/// As many links as Linux follows.
const LINKS: usize = 40;

/// A path, and what it leads to link by link; one that leads on and on is followed to one more than Linux follows.
fn led_to(path: &Path) -> impl Iterator<Item = PathBuf> {
    let next = |at: &PathBuf| Some(at.parent().unwrap_or(Path::new("")).join(fs::read_link(at).ok()?));
    std::iter::successors(Some(path.to_owned()), next).take(LINKS + 2)
}

/// What a path leads to through links, whether it is there or not.
pub(super) fn target(path: &Path) -> io::Result<PathBuf> {
    let mut all: Vec<PathBuf> = led_to(path).collect();
    let ends = all.len() <= LINKS + 1;
    let last = all.pop().filter(|_| ends);
    last.ok_or_else(|| io::Error::from_raw_os_error(linux_raw_sys::errno::ELOOP as i32))
}

/// The open descriptor of this process that a path names, through links or not.
fn descriptor(path: &Path) -> Option<RawFd> {
    let own: Vec<PathBuf> = OPEN.iter().filter_map(|folder| fs::canonicalize(folder).ok()).collect();
    let number = |at: PathBuf| {
        let folder = at.parent().and_then(|folder| fs::canonicalize(folder).ok())?;
        let is_open = own.contains(&folder) && fs::symlink_metadata(&at).is_ok();
        // Never negative.
        let number: u32 = at.file_name().filter(|_| is_open)?.to_str()?.parse().ok()?;
        RawFd::try_from(number).ok()
    };
    led_to(path).find_map(number)
}

/// Another handle of a descriptor, with its place in the file.
#[allow(unsafe_code)]
fn duplicate(number: RawFd) -> io::Result<File> {
    // SAFETY: the descriptor was open a moment ago and is no negative number; it is only asked for a duplicate, for
    // which the system itself looks whether it is still open, and which this process then owns.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    borrowed.try_clone_to_owned().map(File::from)
}

/// Opens a path that is a stream; nothing where it is a regular file, or is not there.
///
/// # Errors
/// When it is a folder, and when the system refuses.
pub(super) fn open_stream(path: &Path) -> io::Result<Option<File>> {
    if let Some(number) = descriptor(path) {
        return duplicate(number).map(Some);
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(found) if found.is_file() => Ok(None),
        // By the name that was given: it may be a link to what has no name itself.
        Ok(_) => File::options().write(true).open(path).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether what is written to this path goes to a stream, and replaces nothing.
#[must_use]
pub fn is_stream(path: &Path) -> bool {
    let is_other = |found: fs::Metadata| !found.is_file() && !found.is_dir();
    descriptor(path).is_some() || fs::metadata(path).is_ok_and(is_other)
}

/// Begins a file that others read while it is written, in the place of what it holds; a stream is written to as it is.
///
/// # Errors
/// When it cannot be created.
pub fn create_file(path: &Path) -> Result<File> {
    let open = || open_stream(path)?.map_or_else(|| File::create(path), Ok);
    open().map_err(Error::io(path, "create"))
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::memory::{WholeFile, write_file};

    #[test]
    fn a_descriptor_is_written_to_where_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let [log, link] = ["log", "link"].map(|name| folder.path().join(name));
        fs::write(&log, "before\n").unwrap();
        let mut own = File::options().append(true).open(&log).unwrap();
        let number = own.as_raw_fd();
        symlink(format!("/dev/fd/{number}"), &link).unwrap();
        let names =
            ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"].map(|of| PathBuf::from(of).join(number.to_string()));
        let mut expected = "before\n".to_owned();
        for name in names.iter().chain([&link]) {
            assert!(is_stream(name) && descriptor(name) == Some(number), "{}", name.display());
            write_file(name, b"whole\n").unwrap();
            create_file(name).unwrap().write_all(b"line\n").unwrap();
            expected += "whole\nline\n";
        }
        // Whoever has the descriptor goes on behind what was written.
        own.write_all(b"after\n").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), expected + "after\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing partial is left");

        // Not at the end, but at its own place.
        let mut own = File::options().read(true).write(true).open(&log).unwrap();
        own.write_all(b"BEF").unwrap();
        let name = format!("/proc/self/fd/{}", own.as_raw_fd());
        write_file(Path::new(&name), b"ORE").unwrap();
        assert!(own.stream_position().unwrap() == 6 && fs::read(&log).unwrap().starts_with(b"BEFORE\nwhole\n"));
        // It has no start that could be written over.
        let mut file = WholeFile::create(Path::new(&name)).unwrap();
        file.append(b"xy").unwrap();
        assert!(file.overwrite_start(b"z").is_err() && file.write_at(0, b"z").is_err());
    }

    #[test]
    fn files_of_their_own_are_no_streams() {
        let folder = tempfile::tempdir().unwrap();
        let [file, none, round] = ["1", "2", "round"].map(|name| folder.path().join(name));
        fs::write(&file, "before").unwrap();
        symlink(&round, &round).unwrap();
        for path in [&file, &none, &round, &folder.path().to_owned(), &PathBuf::from("/proc/self/fd/999999")] {
            assert!(!is_stream(path) && descriptor(path).is_none(), "{}", path.display());
        }
        assert!(is_stream(Path::new("/dev/null")) && target(&round).is_err());
        create_file(&file).unwrap().write_all(b"x").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }
}
