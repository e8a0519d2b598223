//! What has a name of octorec's own in a folder: files and folders, and never what leads out of there.
//!
//! A folder may come from others, who may write to it, too. It may be a link itself, and so may any file that a user
//! names; but a link under a name that octorec has chosen (a lock, a partial file, a run's files, a working folder)
//! would have it remove or write what lies elsewhere, and a pipe would be waited for.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::base::{Error, Result};

/// Refuses a folder in which one of these names is something else than a file or a folder, or lies within such.
/// A name that is not there is free.
///
/// # Errors
/// [`Error::BadFile`] that tells which one, and [`Error::Io`] when the system refuses to look.
pub fn refuse_foreign<N: AsRef<Path>>(folder: &Path, names: impl IntoIterator<Item = N>) -> Result<()> {
    for name in names {
        let mut at = folder.to_owned();
        for part in name.as_ref().components() {
            at.push(part);
            match fs::symlink_metadata(&at) {
                Ok(found) if found.is_file() || found.is_dir() => {}
                Ok(found) => return Err(foreign(&at, found.is_symlink())),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => break,
                Err(error) => return Err(Error::io(&at, "look at")(error)),
            }
        }
    }
    Ok(())
}

/// Opens a file that has a name of octorec's own, as `options` say; `fail` tells what the system refuses.
///
/// # Errors
/// [`Error::BadFile`] when it is no regular file, and those of `fail`.
pub(super) fn open_own(path: &Path, options: &OpenOptions, fail: impl Fn(io::Error) -> Error) -> Result<File> {
    refuse_foreign(path.parent().unwrap_or(Path::new("")), path.file_name())?;
    // What was a file a moment ago may be a link or a pipe now.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.clone().custom_flags(flags).open(path).map_err(&fail)?;
    if file.metadata().map_err(&fail)?.is_file() { Ok(file) } else { Err(foreign(path, false)) }
}

/// Opens a file of octorec's own to which lines are appended; it is made where it is not there.
///
/// # Errors
/// [`Error::BadFile`] when it is no regular file, and when the system refuses.
pub fn append_own(path: &Path) -> Result<File> {
    open_own(path, File::options().create(true).append(true), |source| Error::io(path, "create")(source))
}

fn foreign(path: &Path, is_link: bool) -> Error {
    let (what, first) = match is_link {
        true => ("a link", "put what it leads to in its place, or, where that is not yours, "),
        false => ("no regular file", ""),
    };
    let reason = format!(
        "is {what}, and octorec keeps a file or folder of its own under this name, which must lie here itself: {first}move \
         it away, or choose another folder"
    );
    Error::bad_file(path, reason)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;
    use crate::memory::{FolderLock, write_file};

    #[test]
    fn locks_and_partial_files_lead_nowhere_else_and_are_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let [within, empty, nowhere] = ["within", "empty", "nowhere"].map(|name| folder.path().join(name));
        fs::create_dir(&within).unwrap();
        fs::write(&empty, "").unwrap();
        let own = within.join("own");
        for name in [".own.octorec-partial", ".lock"] {
            let at = within.join(name);
            let refused = |what: &str| {
                let found = if name == ".lock" { FolderLock::take(&within).map(drop) } else { write_file(&own, b"x") };
                let message = found.unwrap_err().to_string();
                assert!(message.contains(&format!("{name}: is {what}, and octorec keeps")), "{message}");
                fs::remove_file(&at).unwrap();
            };
            for target in [&empty, &nowhere] {
                symlink(target, &at).unwrap();
                refused("a link");
            }
            mknodat(CWD, &at, FileType::Fifo, 0o600.into(), 0).unwrap();
            refused("no regular file");
            assert!(!nowhere.exists() && !own.exists() && fs::read(&empty).unwrap().is_empty());
        }
        // The folder itself may be a link.
        let link = folder.path().join("link");
        symlink(&within, &link).unwrap();
        drop(FolderLock::take(&link).unwrap());
        write_file(&link.join("own"), b"x").unwrap();
        assert_eq!(fs::read(&own).unwrap(), b"x");
        refuse_foreign(folder.path(), ["within/own", "none/own", "empty/own"]).unwrap();
        let message = refuse_foreign(folder.path(), ["link/own"]).unwrap_err().to_string();
        assert!(message.contains("link: is a link, and octorec keeps"), "{message}");
    }
}
