//! A file of losses, one a line: what a run is compared by.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::base::{Error, Result};
use crate::memory::create_file;

/// A file of losses.
#[derive(Debug)]
pub struct LossTrace {
    path: PathBuf,
    file: BufWriter<File>,
}

impl LossTrace {
    /// Starts a file of losses.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        Ok(Self { path: path.to_owned(), file: BufWriter::new(create_file(path)?) })
    }

    pub(super) fn push(&mut self, loss: f64) -> Result<()> {
        writeln!(self.file, "{loss:.8e}").map_err(Error::io(&self.path, "write"))
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(Error::io(&self.path, "write"))
    }
}
