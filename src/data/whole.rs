//! Files that appear only when they are whole: written under another name, flushed to the disk, then renamed.
//!
//! A full disk, a crash or a kill leaves an older file of that name untouched, and at most a `.partial` beside it.

use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::base::{Error, Result};

/// A file on its way to be whole; dropped before [`WholeFile::finish`], nothing of it stays.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    partial: PathBuf,
    file: Option<BufWriter<File>>,
    written: u64,
}

impl WholeFile {
    /// Begins a file that will be called `path`.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let partial = path.with_file_name(name);
        let file = File::create(&partial).map_err(Error::io(path, "create"))?;
        Ok(Self { path: path.to_owned(), partial, file: Some(BufWriter::with_capacity(1 << 18, file)), written: 0 })
    }

    /// The name that it will have.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that were appended.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    fn file(&mut self) -> &mut BufWriter<File> {
        self.file.as_mut().expect("a finished file is consumed")
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// When the system refuses them: a full disk.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        self.file().write_all(bytes).map_err(Error::io(&self.path.clone(), "write"))
    }

    /// Writes over the file's first bytes; for headers that hold a count.
    ///
    /// # Errors
    /// As [`WholeFile::append`].
    pub fn overwrite_start(&mut self, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() as u64 <= self.written, "only what was written can be written over");
        let file = self.file();
        let result = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.write_all(bytes))
            .and_then(|()| file.seek(SeekFrom::End(0)).map(|_| ()));
        result.map_err(Error::io(&self.path, "write"))
    }

    /// Flushes to the disk and gives the file its name.
    ///
    /// # Errors
    /// As [`WholeFile::append`]; an older file of that name then stays.
    pub fn finish(mut self) -> Result<u64> {
        let file = self.file.take().expect("a finished file is consumed");
        let finish = || -> std::io::Result<()> {
            file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
            fs::rename(&self.partial, &self.path)?;
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        match finish() {
            Ok(()) => Ok(self.written),
            Err(source) => {
                let _ = fs::remove_file(&self.partial);
                Err(Error::io(&self.path, "write")(source))
            }
        }
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Useless without its end; if even this fails there is nothing to add.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.file().write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file().flush()
    }
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
