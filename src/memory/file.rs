//! A file mapped for reading, so that a checkpoint larger than the free memory can be streamed from.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use memmap2::{Advice, Mmap};

use crate::base::{Error, Result};

/// How a mapped file will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// From here on: the system reads far ahead and lets go of what was read.
    Sequential,
    /// Here and there: the system reads what is touched.
    Random,
}

/// The bytes of a file.
#[derive(Debug)]
pub struct FileBytes(Mmap);

impl FileBytes {
    /// Maps a file.
    ///
    /// # Errors
    /// When it cannot be opened or mapped.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(path, "open"))?;
        // SAFETY: octorec replaces files by renaming, never by writing into them, so the bytes behind this private
        // mapping do not change. (A foreign program that truncates the file ends this one with SIGBUS, as it would
        // end any program that maps files.)
        let map = unsafe { Mmap::map(&file) };
        Ok(Self(map.map_err(Error::io(path, "map"))?))
    }

    /// Tells the system how the bytes will be read.
    pub fn advise(&self, access: Access) {
        let advice = match access {
            Access::Sequential => Advice::Sequential,
            Access::Random => Advice::Random,
        };
        // A hint: where the system does not take it, reading is slower and as right.
        let _ = self.0.advise(advice);
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
