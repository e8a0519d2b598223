//! What a file is called until it is whole.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

/// What the name of a file that is not whole yet ends in.
const PARTIAL: &str = ".octorec-partial";

/// The longest name of a file, in bytes (`NAME_MAX`).
const LONGEST: usize = 255;

/// What a file is called until it is whole: hidden, and as nobody calls a file of their own, which would be lost. In
/// a name that would be too long so, a hash stands for its end.
#[must_use]
pub fn partial_of(path: &Path) -> PathBuf {
    let whole = path.file_name().unwrap_or_default().as_bytes();
    let room = LONGEST - 1 - PARTIAL.len();
    let mut name = OsString::from(".");
    if whole.len() <= room {
        name.push(OsStr::from_bytes(whole));
    } else {
        name.push(OsStr::from_bytes(&whole[..room - 17]));
        name.push(format!("~{:016x}", XxHash3_64::oneshot(whole)));
    }
    name.push(PARTIAL);
    path.with_file_name(name)
}

/// The name that a file of this one has or will have, as one that is not whole yet ([`partial_of`]).
#[must_use]
pub fn whole_name(name: &str) -> &str {
    name.strip_prefix('.').and_then(|name| name.strip_suffix(PARTIAL)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::memory::{WholeFile, write_file};

    #[test]
    fn long_names_have_a_partial_one_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        // 238 bytes are the most that have room for what is added.
        for length in [238, 239, 255] {
            let [one, other] = ["a", "b"].map(|end| folder.path().join("n".repeat(length - 1) + end));
            assert_ne!(partial_of(&one), partial_of(&other));
            assert_eq!(partial_of(&one).file_name().unwrap().len(), 255);
            let mut first = WholeFile::create(&one).unwrap();
            write_file(&other, b"other").unwrap();
            first.append(b"one").unwrap();
            first.finish().unwrap();
            assert_eq!((fs::read(&one).unwrap(), fs::read(&other).unwrap()), (b"one".to_vec(), b"other".to_vec()));
        }
        assert!(write_file(&folder.path().join("n".repeat(256)), b"").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6);
    }
}
