//! Parquet, as NVIDIA Merlin's NVTabular, HugeCTR and TorchRec's users have it: a file or a directory of `*.parquet`,
//! in it folders or file names that begin with the word `train`, `val` (`valid`, `validation`) or `test`; all others are
//! for training.
//!
//! Columns are found by name, in this order of precedence:
//! 1. a [`SCHEMA`](super::SCHEMA) beside the files names them all; other columns are not read;
//! 2. those of the trained model that the files are opened for, as its checkpoint names them; only the label is then
//!    told by what follows;
//! 3. `_metadata.json`, which NVTabular writes for HugeCTR (`labels`, `conts`, `cats`, each with `col_name`);
//! 4. their names and types: `label`; dense are floats and whole numbers called `I1` or `int_0` (TorchRec), which are
//!    counts and read as logarithms; categorical are all other whole numbers and lists of them.
//!
//! `X_weights`, a list of floats beside a list `X`, has a weight for each of its look-ups. Numbers of rows that no
//! schema and no model tells are one more than the greatest value, by the files' statistics or else by a pass over the
//! column.
//!
//! Values that are no row numbers (strings, dates, decimals, identifiers) are described as those of text are, by a
//! [`TextSchema`](super::csv::TextSchema): `text` gives a file as text with a header line.
//!
//! Reading needs the cargo feature `parquet`; without it such files are recognised and refused.

#[cfg(feature = "parquet")]
mod cell;
#[cfg(feature = "parquet")]
mod columns;
#[cfg(feature = "parquet")]
mod numbers;
#[cfg(feature = "parquet")]
mod open;
#[cfg(feature = "parquet")]
mod read;
#[cfg(feature = "parquet")]
mod text;
#[cfg(feature = "parquet")]
mod types;
#[cfg(feature = "parquet")]
mod write;

use std::path::{Path, PathBuf};

#[cfg(not(feature = "parquet"))]
use super::Reading;
use super::is_hidden;
use crate::base::Result;
use crate::data::Split;
use crate::data::unfinished::{WORK, name};
use crate::memory::listed;

#[cfg(feature = "parquet")]
pub use open::tells_columns;
#[cfg(feature = "parquet")]
pub(super) use {
    open::open,
    write::{ParquetSink, seal},
};
#[cfg(feature = "parquet")]
pub(in crate::data) use {text::text, types::refuse_two_types};

/// What such files begin and end with.
pub(in crate::data) const MAGIC: [u8; 4] = *b"PAR1";

/// How such files end.
pub(super) const EXTENSION: &str = ".parquet";

/// What may stand behind `train`, `val` and `test` in a word that says the same.
const FORMS: [&[&str]; 3] = [&["", "ing"], &["", "id", "idation"], &["", "ing"]];

/// What the word that a file's or folder's name begins with says its rows are for: `train-0`, `valid`, `testA` and
/// `testset` tell it, `values` and `testimonials` do not.
pub(super) fn role(name: &str) -> Option<Split> {
    let mut before = ' ';
    let end = name.find(|next: char| {
        let ends = !next.is_alphabetic() || next.is_uppercase() && before.is_lowercase();
        before = next;
        ends
    });
    let word = name[..end.unwrap_or(name.len())].to_lowercase();
    let is_of = |role: &Split| {
        word.strip_prefix(role.of(super::ROLES)).is_some_and(|rest| {
            let rest = ["set", "data", "s"].iter().find_map(|end| rest.strip_suffix(end)).unwrap_or(rest);
            role.of(FORMS).contains(&rest)
        })
    };
    Split::ALL.into_iter().find(is_of)
}

/// Whether a file in a folder is one of its Parquet files.
pub(in crate::data) fn is_such(name: &str) -> bool {
    super::ends(name, EXTENSION) && !is_hidden(name)
}

/// Whether a directory of these names has Parquet files, itself or in the folder of a role.
pub(super) fn detect(folder: &Path, names: &[String]) -> bool {
    let below = |name: &String| {
        let inside = role(name).and_then(|_| std::fs::read_dir(folder.join(name)).ok());
        inside.is_some_and(|entries| entries.flatten().any(|entry| is_such(&entry.file_name().to_string_lossy())))
    };
    names.iter().any(|name| is_such(name) || below(name))
}

/// Refuses a folder within which others have Parquet files, at any depth, but for those whose names `is_read` tells:
/// nobody would read their rows.
///
/// # Errors
/// [`Error::BadFile`](crate::base::Error::BadFile) that names the first of them.
pub(in crate::data) fn refuse_below(folder: &Path, is_read: impl Fn(&str) -> bool) -> Result<()> {
    /// The first folder with such files, from `folder` on.
    fn first(folder: &Path) -> Option<PathBuf> {
        // What cannot be listed has nothing that could be read.
        let all = listed(folder, "list").ok()?;
        if all.iter().any(|path| is_such(&name(path)) && path.is_file()) {
            return Some(folder.to_owned());
        }
        // Links may lead back to where they are.
        let deeper = |path: &&PathBuf| path.is_dir() && !path.is_symlink() && !is_hidden(&name(path));
        all.iter().filter(deeper).find_map(|path| first(path))
    }
    let mut others = listed(folder, "list")?.into_iter().filter(|path| {
        let name = name(path);
        path.is_dir() && name != WORK && !is_hidden(&name) && !is_read(&name)
    });
    others.find_map(|path| first(&path)).map_or(Ok(()), |found| {
        let reason = format!(
            "has Parquet files in {}, a folder within it, and files of one folder alone are read: name that one, or put all \
             files beside each other",
            found.display()
        );
        Err(super::bad(folder, reason))
    })
}

#[cfg(not(feature = "parquet"))]
pub(super) fn open(path: &Path, _: Reading<'_>) -> Result<super::Dataset> {
    Err(super::bad(path, ABSENT))
}

/// Whether the columns of a file are told without a schema for text: nobody knows here.
///
/// # Errors
/// None.
#[cfg(not(feature = "parquet"))]
pub fn tells_columns(_: &Path) -> Result<bool> {
    Ok(true)
}

#[cfg(not(feature = "parquet"))]
pub(in crate::data) fn text<F>(_: F, path: &Path) -> Result<Box<dyn std::io::Read + Send>> {
    Err(super::bad(path, ABSENT))
}

/// Nobody knows the types of a file's columns here: whoever reads it says so.
#[cfg(not(feature = "parquet"))]
pub(in crate::data) fn refuse_two_types<'a>(
    _: impl Iterator<Item = &'a Path>,
    _: &super::csv::TextSchema,
    _: bool,
) -> Result<()> {
    Ok(())
}

/// What a build without the feature says.
#[cfg(not(feature = "parquet"))]
pub(super) const ABSENT: &str =
    "is Parquet, which this octorec was built without: build it with `cargo build --release --features parquet`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_rows_are_for_and_no_part_of_one() {
        let [train, validation, test] = Split::ALL.map(Some);
        for (names, expected) in [
            (
                "train train.parquet train_0 train0 TRAIN.PARQUET trainA trainData training-1 trainset traindata.parquet",
                train,
            ),
            ("val val.parquet valid validation-00000-of-00001.parquet Valid_2 valset valB.parquet", validation),
            ("test test.parquet testA.parquet Test testing tests.parquet testset test-1 testData", test),
            (
                "values.parquet validated_clicks.parquet valued.parquet testimonials.parquet tested trainer a.parquet",
                None,
            ),
            ("day_test.parquet part-0.parquet 0train .parquet valentine testament", None),
        ] {
            for name in names.split(' ') {
                assert_eq!(role(name), expected, "{name}");
            }
        }
    }

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
        assert_eq!(told("train"), Ok(()));
        assert!(
            told("").unwrap_err().contains(&format!("has Parquet files in {}", home.path().join("train").display()))
        );
        write("date=2024-01-02/hour=0/a.parquet");
        let below = home.path().join("date=2024-01-02/hour=0");
        assert!(told("train").unwrap_err().contains(&format!("has Parquet files in {}, a folder", below.display())));
        let names = |name: &str| vec![name.to_owned()];
        assert!(detect(home.path(), &names("train")) && !detect(home.path(), &names("notes")));
        assert!(!detect(home.path(), &names("_tmp.parquet")) && detect(home.path(), &names("a.parquet")));
    }
}
