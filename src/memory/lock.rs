//! A folder's lock: who writes to it holds it, and the system gives it back when that process ends, however it ends.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::file_id;
use super::own::open_own;
use crate::base::console::note;
use crate::base::{Error, Result};

/// The file whose lock it is; it stays.
const NAME: &str = ".lock";

/// A lock that is held is tried once more after this time.
const AGAIN_AFTER: Duration = Duration::from_millis(5);

/// The right to write to a folder, which one process has at a time.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
    /// Whether its file was not there before.
    is_new: bool,
}

impl FolderLock {
    /// Takes the lock of a folder that is there.
    ///
    /// # Errors
    /// [`Error::OutputBusy`] when another process has it, and when the system refuses.
    pub fn take(folder: &Path) -> Result<Self> {
        match Self::try_take(folder) {
            // Perhaps by one who looks for a moment whether it is held.
            Err(Error::OutputBusy { .. }) => {
                sleep(AGAIN_AFTER);
                Self::try_take(folder)
            }
            taken => taken,
        }
    }

    /// Whether somebody has the lock of a folder, this process or another one; nothing where the system does not let
    /// this user know, who may not write there.
    #[must_use]
    pub fn is_held(folder: &Path) -> Option<bool> {
        let name = folder.join(NAME);
        match open_own(&name, File::options().read(true), |source| Error::io(&name, "open")(source)) {
            Ok(file) => Some(matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => None,
            Err(_) => Some(false),
        }
    }

    /// Removes the file of [`FolderLock::take`] where nothing else is in its folder, which the holder then removes.
    pub fn remove_if_alone(&self, folder: &Path) {
        if fs::read_dir(folder).is_ok_and(|entries| entries.count() == 1) {
            let _ = fs::remove_file(folder.join(NAME));
        }
    }

    /// Removes the file of [`FolderLock::take`] if that has made it: the folder is then as it was before.
    pub fn remove_if_new(&self, folder: &Path) {
        if self.is_new {
            let _ = fs::remove_file(folder.join(NAME));
        }
    }

    fn try_take(folder: &Path) -> Result<Self> {
        let busy = || Error::OutputBusy { path: folder.to_owned() };
        let name = folder.join(NAME);
        let is_new = !name.exists();
        let fail = |source| Error::io(&name, "create")(source);
        // Whoever can read the file can hold its lock: so only those may who write to the folder anyway.
        let writers = fs::metadata(folder).map_err(fail)?.mode() & 0o022;
        let mode = 0o600 | writers | writers << 1;
        let options = File::options().create(true).write(true).truncate(false).mode(mode).clone();
        let file = match open_own(&name, &options, fail) {
            // Of another user of a group, by an earlier version, whose umask took the group's right to write to it.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied && !is_new => {
                open_own(&name, File::options().read(true), fail)?
            }
            opened => opened?,
        };
        if is_new {
            // Whatever the umask is; another process may have made it meanwhile, which does the same.
            let _ = file.set_permissions(Permissions::from_mode(mode));
        }
        match file.try_lock() {
            Ok(()) => {
                if leads_to(&name, &file) {
                    Ok(Self { _file: file, is_new })
                } else {
                    Err(busy())
                }
            }
            Err(TryLockError::WouldBlock) => Err(busy()),
            Err(TryLockError::Error(source)) if knows_no_locks(&source) => {
                note!(
                    "note: {} is on a file system without locks: let one process at a time write to it",
                    folder.display()
                );
                Ok(Self { _file: file, is_new })
            }
            Err(TryLockError::Error(source)) => Err(Error::io(&name, "lock")(source)),
        }
    }
}

/// Whether a name still leads to the open file whose lock was just taken: whoever had it before may have removed or
/// renamed that meanwhile, and somebody else begun another.
pub(super) fn leads_to(name: &Path, file: &File) -> bool {
    file.metadata().is_ok_and(|own| file_id(name) == Some((own.dev(), own.ino())))
}

/// Whether the file system has no locks at all, as some network and cluster file systems have none.
pub(super) fn knows_no_locks(error: &io::Error) -> bool {
    use linux_raw_sys::errno::{ENOLCK, ENOSYS, EOPNOTSUPP};
    let number = error.raw_os_error().and_then(|number| u32::try_from(number).ok());
    number.is_some_and(|number| [ENOLCK, ENOSYS, EOPNOTSUPP].contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_one_holders_and_a_file_system_may_have_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(FolderLock::is_held(folder.path()), Some(false));
        let held = FolderLock::take(folder.path()).unwrap();
        assert!(matches!(FolderLock::take(folder.path()), Err(Error::OutputBusy { .. })));
        assert_eq!(FolderLock::is_held(folder.path()), Some(true));
        drop(held);
        assert_eq!(FolderLock::is_held(folder.path()), Some(false));
        // A file that was there stays, and one that was not goes.
        for is_there in [true, false] {
            FolderLock::take(folder.path()).unwrap().remove_if_new(folder.path());
            assert_eq!(folder.path().join(NAME).exists(), is_there);
            let _ = fs::remove_file(folder.path().join(NAME));
        }
        FolderLock::try_take(folder.path()).unwrap();
        // Nobody who only reads the folder can hold it.
        for (folder_mode, readers) in [(0o755, 0), (0o775, 0o040), (0o777, 0o044)] {
            fs::remove_file(folder.path().join(NAME)).unwrap();
            fs::set_permissions(folder.path(), Permissions::from_mode(folder_mode)).unwrap();
            FolderLock::take(folder.path()).unwrap();
            let mode = fs::metadata(folder.path().join(NAME)).unwrap().mode();
            assert_eq!(mode & 0o777, 0o600 | readers | readers >> 1, "{folder_mode:o}: {mode:o}");
        }
        use linux_raw_sys::errno::{EACCES, EIO, ENOLCK, ENOSYS, EOPNOTSUPP};
        let [none, other] = [&[ENOLCK, ENOSYS, EOPNOTSUPP][..], &[EIO, EACCES]].map(|numbers| {
            numbers.iter().map(|&number| io::Error::from_raw_os_error(number as i32)).collect::<Vec<_>>()
        });
        assert!(none.iter().all(knows_no_locks) && !other.iter().any(knows_no_locks));
    }
}
