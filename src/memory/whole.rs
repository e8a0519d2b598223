//! Files that appear only when they are whole: written under another name, flushed to the disk, then renamed.
//!
//! A full disk, a crash or a kill leaves an older file of that name untouched, and at most a hidden one beside it
//! ([`partial_of`]), whose lock the process has that writes it: two that write the same file take turns, or the second
//! is told. Where the flush is left out ([`WholeFile::finish_unsynced`]), a crash of the machine may take the file, old
//! and new. Only regular files are replaced so, a link's target in the link's place; streams (`stream`) are written to
//! as they are. Processes of several machines may write parts of one such file ([`FilePart`]), if they see it and its
//! file system keeps apart what they write ([`super::is_coherent`]).

use std::fs::{self, File, TryLockError};
use std::io::{BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::lock::{knows_no_locks, leads_to};
use super::own::open_own;
use super::partial::partial_of;
use super::stream::{open_stream, target};
use crate::base::{Error, Result};

/// How long a file is waited for that another process writes: a small one is whole by then.
const PATIENCE: Duration = Duration::from_secs(3);

/// A file on its way to be whole; dropped before [`WholeFile::finish`], nothing of it stays.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    /// What it is called until then, and where it goes; `None`: straight into a stream.
    renamed: Option<[PathBuf; 2]>,
    file: Option<BufWriter<File>>,
    /// Where the next bytes come.
    at: u64,
    written: u64,
}

impl WholeFile {
    /// Begins a file that will be called `path`.
    ///
    /// # Errors
    /// When it cannot be created, and when another process writes it.
    pub fn create(path: &Path) -> Result<Self> {
        let fail = |source| Error::io(path, "create")(source);
        let (renamed, file) = match open_stream(path).map_err(fail)? {
            Some(stream) => (None, stream),
            None => {
                let to = target(path).map_err(fail)?;
                let partial = partial_of(&to);
                let file = begin(&partial, path)?;
                (Some([partial, to]), file)
            }
        };
        Ok(Self {
            path: path.to_owned(),
            renamed,
            file: Some(BufWriter::with_capacity(1 << 18, file)),
            at: 0,
            written: 0,
        })
    }

    /// The name that it will have.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes up to the last one that was appended.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    fn went(&mut self, bytes: usize) {
        self.at += bytes as u64;
        self.written = self.written.max(self.at);
    }

    fn file(&mut self) -> &mut BufWriter<File> {
        self.file.as_mut().expect("a finished file is consumed")
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When the system refuses them: a full disk.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.went(bytes.len());
        let written = self.file().write_all(bytes);
        written.map_err(|error| Error::io(&self.path, "write")(error))
    }

    /// Writes over the file's first bytes, for headers that hold a count; what is appended next comes behind all else.
    ///
    /// # Errors
    /// As [`WholeFile::append`], and of a pipe or a descriptor, in which nobody goes back.
    pub fn overwrite_start(&mut self, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() as u64 <= self.written, "only what was written can be written over");
        let end = self.written;
        self.seek(0)?;
        self.append(bytes)?;
        self.seek(end)
    }

    /// Writes bytes at this place, behind which the next ones are appended; between what was written there are zeros.
    ///
    /// # Errors
    /// As [`WholeFile::overwrite_start`].
    pub fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.seek(at)?;
        self.append(bytes)
    }

    /// The next bytes come here.
    fn seek(&mut self, at: u64) -> Result<()> {
        if self.at == at {
            return Ok(());
        }
        let is_stream = self.renamed.is_none();
        let file = self.file();
        // A descriptor that leads to a regular file has others' bytes before its own.
        let sought = match is_stream && file.get_ref().metadata().is_ok_and(|found| found.is_file()) {
            true => Err(ErrorKind::NotSeekable.into()),
            false => file.seek(SeekFrom::Start(at)),
        };
        self.at = sought.map_err(Error::io(&self.path, "write"))?;
        Ok(())
    }

    /// What it is called until it has its name, from the root, once what was written is on the disk, where others see
    /// it; nothing where it goes straight into a stream.
    ///
    /// # Errors
    /// As [`WholeFile::append`].
    pub fn share(&mut self) -> Result<Option<PathBuf>> {
        let Some([partial, _]) = &self.renamed else { return Ok(None) };
        let partial = std::path::absolute(partial).map_err(Error::io(partial, "find"))?;
        let file = self.file();
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(Error::io(&self.path, "write"))?;
        Ok(Some(partial))
    }

    /// What flushes it while it is written; nothing for a stream.
    ///
    /// # Errors
    /// When the system has no handle for it.
    pub fn flush_beside(&self) -> Result<Option<Flush>> {
        let file = self.file.as_ref().filter(|_| self.renamed.is_some());
        file.map(|file| Flush::of(&self.path, file.get_ref())).transpose()
    }

    /// Flushes to the disk and gives the file its name.
    ///
    /// # Errors
    /// As [`WholeFile::append`]; an older file of that name then stays.
    pub fn finish(self) -> Result<u64> {
        self.named(true)
    }

    /// Gives the file its name, whenever it may come to the disk: for what is noticed and made again where a crash of
    /// the machine has taken it.
    ///
    /// # Errors
    /// As [`WholeFile::finish`].
    pub fn finish_unsynced(self) -> Result<u64> {
        self.named(false)
    }

    fn named(mut self, synced: bool) -> Result<u64> {
        let mut file = self.file.take().expect("a finished file is consumed");
        let mut finish = || -> std::io::Result<()> {
            file.flush()?;
            let Some([partial, to]) = &self.renamed else { return Ok(()) };
            if !synced {
                return fs::rename(partial, to);
            }
            file.get_ref().sync_all()?;
            fs::rename(partial, to)?;
            let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        match finish() {
            Ok(()) => Ok(self.written),
            Err(source) => {
                // Its lock is still this process's.
                self.remove_partial();
                Err(Error::io(&self.path, "write")(source))
            }
        }
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        // Closed, and its lock given back, only then.
        if self.file.is_some() {
            self.remove_partial();
        }
    }
}

impl WholeFile {
    fn remove_partial(&self) {
        if let Some([partial, _]) = &self.renamed {
            // Useless without its end; if even this fails there is nothing to add.
            let _ = fs::remove_file(partial);
        }
    }
}

/// Opens what a file is called until it is whole, empty and locked.
fn begin(partial: &Path, path: &Path) -> Result<File> {
    let patience = Instant::now() + PATIENCE;
    loop {
        let options = File::options().write(true).create(true).truncate(false).clone();
        let file = open_own(partial, &options, |source| Error::io(path, "create")(source))?;
        match file.try_lock() {
            Err(TryLockError::Error(source)) if !knows_no_locks(&source) => {
                return Err(Error::io(path, "lock")(source));
            }
            Err(TryLockError::WouldBlock) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => {
                let reason = format!(
                    "is being written by another process: wait for it, stop it, or name another file; if there is none, as \
                     when its machine has died, remove {}",
                    partial.display()
                );
                return Err(Error::bad_file(path, reason));
            }
            Ok(()) | Err(TryLockError::Error(_)) => {
                if leads_to(partial, &file) {
                    if file.metadata().map_err(Error::io(path, "create"))?.len() == 0 {
                        return Ok(file);
                    }
                    // What a process has left that was killed. Another machine that had a part in it may only hang, and
                    // still write to it: that must not be this file.
                    match fs::remove_file(partial) {
                        Err(error) if error.kind() != ErrorKind::NotFound => {
                            return Err(Error::io(partial, "remove")(error));
                        }
                        _ => continue,
                    }
                }
                if Instant::now() >= patience {
                    let reason = format!("{} is made and removed again and again: by whom?", partial.display());
                    return Err(Error::bad_file(path, reason));
                }
            }
        }
    }
}

/// A file that another process has begun as a [`WholeFile`], to write parts of it.
#[derive(Debug)]
pub struct FilePart {
    path: PathBuf,
    file: File,
}

impl FilePart {
    /// Opens it by the name that [`WholeFile::share`] told, if this machine sees it: if it begins with `len` bytes of
    /// which `known` says that they are its own.
    #[must_use]
    pub fn open(path: &Path, len: usize, known: impl FnOnce(&[u8]) -> bool) -> Option<Self> {
        let fail = |source| Error::io(path, "open")(source);
        let file = open_own(path, File::options().read(true).write(true), fail).ok()?;
        let mut start = vec![0; len];
        file.read_exact_at(&mut start, 0).ok()?;
        known(&start).then(|| Self { path: path.to_owned(), file })
    }

    /// Writes bytes at this place.
    ///
    /// # Errors
    /// As [`WholeFile::append`].
    pub fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at).map_err(Error::io(&self.path, "write"))
    }

    /// As [`WholeFile::flush_beside`].
    ///
    /// # Errors
    /// As there.
    pub fn flush_beside(&self) -> Result<Flush> {
        Flush::of(&self.path, &self.file)
    }

    /// Flushes to the disk.
    ///
    /// # Errors
    /// As [`WholeFile::append`].
    pub fn finish(self) -> Result<()> {
        self.file.sync_all().map_err(Error::io(&self.path, "write"))
    }
}

/// Flushes what was written of a file, by a thread of its own.
#[derive(Debug)]
pub struct Flush {
    path: PathBuf,
    file: File,
}

impl Flush {
    fn of(path: &Path, file: &File) -> Result<Self> {
        Ok(Self { path: path.to_owned(), file: file.try_clone().map_err(Error::io(path, "write"))? })
    }

    /// Waits until what was written before is on the disk. An error is told here or by the file, not by both.
    ///
    /// # Errors
    /// As [`WholeFile::append`].
    pub fn now(&self) -> Result<()> {
        self.file.sync_data().map_err(Error::io(&self.path, "write"))
    }
}

/// The device and number of a file or folder that is there, which tell it from all others whatever path leads to it.
#[must_use]
pub fn file_id(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Whether both paths lead to the same file, one that is there or one that is to be in a folder that is.
#[must_use]
pub fn same_file(a: &Path, b: &Path) -> bool {
    let of = |path: &Path| {
        let to_be = || {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some((file_id(folder)?, Some(path.file_name()?.to_owned())))
        };
        file_id(path).map(|file| (file, None)).or_else(to_be)
    };
    of(a).is_some_and(|file| of(b) == Some(file))
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.file().write(bytes)?;
        self.went(count);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file().flush()
    }
}

/// Makes a folder, and those that it lies in, where they are not there.
///
/// # Errors
/// When a file or a device has that name, and when the system refuses.
pub fn make_folder(path: &Path) -> Result<()> {
    if path.exists() && !path.is_dir() {
        return Err(Error::bad_file(path, "is no folder, and several files are written into one: name a folder"));
    }
    fs::create_dir_all(path).map_err(Error::io(path, "create"))
}

/// Writes a small file as a whole.
///
/// # Errors
/// When it cannot be written; an older one then stays.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = WholeFile::create(path)?;
    file.append(bytes)?;
    file.finish().map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::memory::whole_name;

    #[test]
    fn links_stay_and_their_targets_change() {
        let folder = tempfile::tempdir().unwrap();
        let [target, link, dangling, nowhere] = ["a", "b", "c", "d"].map(|name| folder.path().join(name));
        fs::write(&target, "before").unwrap();
        symlink("a", &link).unwrap();
        symlink(&nowhere, &dangling).unwrap();
        write_file(&link, b"after").unwrap();
        write_file(&dangling, b"new").unwrap();
        assert!(
            fs::symlink_metadata(&link).unwrap().is_symlink() && fs::symlink_metadata(&dangling).unwrap().is_symlink()
        );
        assert_eq!((fs::read(&target).unwrap(), fs::read(&nowhere).unwrap()), (b"after".to_vec(), b"new".to_vec()));
        assert!(same_file(&link, &target) && !same_file(&link, &nowhere) && !same_file(&link, Path::new("none")));
        let again = folder.path().join(".").join("d");
        assert!(same_file(&nowhere, &again) && !same_file(&nowhere, &folder.path().join("e")));
        symlink(folder.path().join("e"), folder.path().join("e")).unwrap();
        assert!(write_file(&folder.path().join("e"), b"x").unwrap_err().to_string().contains("create"));
        assert!(write_file(folder.path(), b"x").is_err());
        // Nothing partial is left.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
    }

    #[test]
    fn two_that_write_a_file_do_not_take_it_from_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let (path, partial) = (folder.path().join("whole"), folder.path().join(".whole.octorec-partial"));
        let (own, text) = (folder.path().join("whole.partial"), "a user's own");
        fs::write(&own, text).unwrap();
        assert_eq!(
            (partial_of(&path), whole_name(".whole.octorec-partial"), whole_name(".whole")),
            (partial.clone(), "whole", ".whole")
        );
        // What a process that was killed has left goes, and who still writes to it writes to nothing that is read.
        fs::write(&partial, "of a process that was killed").unwrap();
        let late = File::options().write(true).open(&partial).unwrap();
        let mut first = WholeFile::create(&path).unwrap();
        first.append(b"first").unwrap();
        late.write_all_at(b"late", 3).unwrap();
        let message = WholeFile::create(&path).unwrap_err().to_string();
        assert!(message.contains("whole: is being written by another process"), "{message}");
        assert!(partial.exists(), "the first one's stays");
        first.finish().unwrap();
        assert_eq!((fs::read(&path).unwrap(), partial.exists()), (b"first".to_vec(), false));
        // A small one is waited for.
        let first = WholeFile::create(&path).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| write_file(&path, b"second"));
            std::thread::sleep(Duration::from_millis(50));
            first.finish_unsynced().unwrap();
            second.join().unwrap().unwrap();
        });
        assert_eq!((fs::read(&path).unwrap(), partial.exists()), (b"second".to_vec(), false));
        assert_eq!(fs::read_to_string(&own).unwrap(), text);
    }

    #[test]
    fn parts_of_a_file_come_from_others_who_see_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("whole");
        let mut file = WholeFile::create(&path).unwrap();
        file.append(b"head").unwrap();
        let partial = file.share().unwrap().unwrap();
        assert!(FilePart::open(&partial, 4, |start| start == b"tail").is_none());
        assert!(FilePart::open(&partial, 5, |_| true).is_none() && FilePart::open(&path, 4, |_| true).is_none());
        let mut part = FilePart::open(&partial, 4, |start| start == b"head").unwrap();
        part.write_at(10, b"their?").unwrap();
        part.flush_beside().unwrap().now().unwrap();
        file.append(b"mi").unwrap();
        file.write_at(14, b"r").unwrap();
        file.append(b"s").unwrap();
        file.write_at(6, b"ne").unwrap();
        part.finish().unwrap();
        file.overwrite_start(b"HEAD").unwrap();
        assert_eq!(file.finish().unwrap(), 16);
        assert_eq!(fs::read(&path).unwrap(), b"HEADmine\0\0theirs");
        let mut device = WholeFile::create(Path::new("/dev/null")).unwrap();
        assert!(device.share().unwrap().is_none() && device.flush_beside().unwrap().is_none());
    }

    #[test]
    fn devices_stay_what_they_are() {
        use std::os::unix::fs::FileTypeExt;
        write_file(Path::new("/dev/null"), b"gone").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        // Full, and said so.
        assert!(write_file(Path::new("/dev/full"), b"x").unwrap_err().to_string().contains("/dev/full"));
    }
}
