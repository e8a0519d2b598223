//! A folder's lock: who writes to it holds it, and the system gives it back when that process ends, however it ends.

use std::fs::{File, TryLockError};
use std::path::Path;

use crate::base::{Error, Result};

/// The file whose lock it is; it stays.
const NAME: &str = ".lock";

/// The right to write to a folder, which one process has at a time.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Takes the lock of a folder that is there.
    ///
    /// # Errors
    /// [`Error::OutputBusy`] when another process has it, and when the system refuses.
    pub fn take(folder: &Path) -> Result<Self> {
        let name = folder.join(NAME);
        let file = File::options().create(true).write(true).truncate(false).open(&name);
        let file = file.map_err(Error::io(&name, "create"))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Error::OutputBusy { path: folder.to_owned() }),
            Err(TryLockError::Error(source)) => Err(Error::io(&name, "lock")(source)),
        }
    }
}
