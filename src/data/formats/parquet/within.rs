//! Which files of a folder are Parquet that is read, and which of folders within it nobody would read.

use std::path::{Path, PathBuf};

use super::EXTENSION;
use crate::base::{Result, interrupt};
use crate::data::formats::{bad, ends, is_hidden};
use crate::data::unfinished::{WORK, name};
use crate::memory::listed;

/// Whether a file in a folder is one of its Parquet files.
pub(in crate::data) fn is_such(name: &str) -> bool {
    ends(name, EXTENSION) && !is_hidden(name)
}

/// Folders within each other in which files are looked for: tables are hardly divided by more columns, and other
/// programs' trees may be large.
const LEVELS: usize = 4;

/// Refuses a folder within which others have Parquet files, [`LEVELS`] deep, but for those whose names `is_read` tells:
/// nobody would read their rows.
///
/// # Errors
/// [`Error::BadFile`](crate::base::Error::BadFile) that names the first of them.
pub(in crate::data) fn refuse_below(folder: &Path, is_read: impl Fn(&str) -> bool) -> Result<()> {
    /// The first folder with such files, from `folder` on.
    fn first(folder: &Path, levels: usize) -> Option<PathBuf> {
        // Whoever reads the files ends where the program is to.
        if levels == 0 || interrupt::requested() {
            return None;
        }
        // What cannot be listed has nothing that could be read.
        let all = listed(folder, "list").ok()?;
        if all.iter().any(|path| is_such(&name(path)) && path.is_file()) {
            return Some(folder.to_owned());
        }
        // Links may lead back to where they are.
        let deeper = |path: &&PathBuf| path.is_dir() && !path.is_symlink() && !is_hidden(&name(path));
        all.iter().filter(deeper).find_map(|path| first(path, levels - 1))
    }
    let mut others = listed(folder, "list")?.into_iter().filter(|path| {
        let name = name(path);
        path.is_dir() && name != WORK && !is_hidden(&name) && !is_read(&name)
    });
    others.find_map(|path| first(&path, LEVELS)).map_or(Ok(()), |found| {
        let reason = format!(
            "has Parquet files in {}, a folder within it, and files of one folder alone are read: name that one, or put all \
             files beside each other, or, if its rows are others, move that folder elsewhere",
            found.display()
        );
        Err(bad(folder, reason))
    })
}

#[cfg(test)]
mod tests {
    use super::super::detect;
    use super::*;

    #[test]
    fn files_that_nobody_would_read_are_told_with_their_folder() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = home.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        for hidden in ["_delta_log/1.parquet", ".tmp/a.parquet", "unfinished/train/a.parquet", "notes/a.txt"] {
            write(hidden);
        }
        std::os::unix::fs::symlink(home.path(), home.path().join("notes/back")).unwrap();
        write("train/a.parquet");
        let told = |read: &str| refuse_below(home.path(), |name| name == read).map_err(|error| error.to_string());
        write("modules/1/2/3/4/a.parquet");
        assert_eq!(told("train"), Ok(()));
        assert!(
            told("").unwrap_err().contains(&format!("has Parquet files in {}", home.path().join("train").display()))
        );
        std::fs::remove_dir_all(home.path().join("modules")).unwrap();
        write("date=2024-01-02/hour=0/a.parquet");
        let below = home.path().join("date=2024-01-02/hour=0");
        assert!(told("train").unwrap_err().contains(&format!("has Parquet files in {}, a folder", below.display())));
        let names = |name: &str| vec![name.to_owned()];
        assert!(detect(home.path(), &names("train")) && !detect(home.path(), &names("notes")));
        assert!(!detect(home.path(), &names("_tmp.parquet")) && detect(home.path(), &names("a.parquet")));
    }
}
