//! Parquet, as NVIDIA Merlin's NVTabular, HugeCTR and TorchRec's users have it: a file or a directory of `*.parquet`,
//! in it folders or file names that begin with the word `train`, `val` (`valid`, `validation`) or `test`; all others
//! are for training.
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
mod within;
#[cfg(feature = "parquet")]
mod write;

use std::path::Path;

#[cfg(not(feature = "parquet"))]
use super::Reading;
use crate::data::Split;
#[cfg(not(feature = "parquet"))]
use crate::data::text::Wanted;

#[cfg(feature = "parquet")]
pub use open::tells_columns;
#[cfg(feature = "parquet")]
pub(in crate::data) use text::{text, unread};
#[cfg(feature = "parquet")]
pub(in crate::data) use types::refuse_two_types;
pub(in crate::data) use within::{is_such, refuse_below};
#[cfg(feature = "parquet")]
pub(super) use {
    open::open,
    write::{ParquetSink, seal},
};

/// What such files begin and end with.
pub(in crate::data) const MAGIC: [u8; 4] = *b"PAR1";

/// The same of files whose columns and their names are encrypted.
pub(in crate::data) const SEALED: [u8; 4] = *b"PARE";

/// What is said of these.
pub(in crate::data) const ENCRYPTED: &str = "is encrypted Parquet, which is not read here: write it without encryption";

/// How such files end.
pub(super) const EXTENSION: &str = ".parquet";

/// What may stand behind `train`, `val` and `test` in a word that says the same.
const FORMS: [&[&str]; 3] = [&["", "ing"], &["", "id", "idate", "idation"], &["", "ing"]];

/// What a word may end with that says it of several rows.
const ENDINGS: [&str; 6] = ["set", "data", "fold", "part", "split", "file"];

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
            let rest = rest.strip_suffix('s').unwrap_or(rest);
            let rest = ENDINGS.iter().find_map(|end| rest.strip_suffix(end)).unwrap_or(rest);
            role.of(FORMS).contains(&rest)
        })
    };
    Split::ALL.into_iter().find(is_of)
}

/// Whether a directory of these names has Parquet files, itself or in the folder of a role.
pub(super) fn detect(folder: &Path, names: &[String]) -> bool {
    let below = |name: &String| {
        let inside = role(name).and_then(|_| std::fs::read_dir(folder.join(name)).ok());
        inside.is_some_and(|entries| entries.flatten().any(|entry| is_such(&entry.file_name().to_string_lossy())))
    };
    names.iter().any(|name| is_such(name) || below(name))
}

/// Nobody knows the types of a file's columns here: whoever reads it says so.
#[cfg(not(feature = "parquet"))]
pub(in crate::data) fn refuse_two_types<'a>(
    _: impl Iterator<Item = &'a Path>,
    _: &super::csv::TextSchema,
    _: bool,
) -> crate::base::Result<()> {
    Ok(())
}

#[cfg(not(feature = "parquet"))]
pub(super) fn open(path: &Path, _: Reading<'_>) -> crate::base::Result<super::Dataset> {
    Err(super::bad(path, ABSENT))
}

/// Whether the columns of a file are told without a schema for text: nobody knows here.
///
/// # Errors
/// None.
#[cfg(not(feature = "parquet"))]
pub fn tells_columns(_: &Path) -> crate::base::Result<bool> {
    Ok(true)
}

#[cfg(not(feature = "parquet"))]
pub(in crate::data) fn text<F>(_: F, path: &Path, _: Wanted<'_>) -> crate::base::Result<Box<dyn std::io::Read + Send>> {
    Err(super::bad(path, ABSENT))
}

#[cfg(not(feature = "parquet"))]
pub(in crate::data) fn unread(path: &Path, _: u64) -> crate::base::Result<Vec<super::csv::LeftOut>> {
    Err(super::bad(path, ABSENT))
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
            (
                "val val.parquet valid validation-00000-of-00001.parquet Valid_2 valset valB.parquet validate.parquet valfold1.parquet",
                validation,
            ),
            (
                "test test.parquet testA.parquet Test testing tests.parquet testset test-1 testData testfold0.parquet testpart0 testsplit.parquet testfiles",
                test,
            ),
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
}
