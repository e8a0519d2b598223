//! Samples that FAE's published code has told apart (Adnan et al., VLDB 2022; its `dlrm_input_profiler.py`), for runs
//! on its very own hot and cold inputs.
//!
//! | file               | array `arr_0`, of objects                                                               |
//! |--------------------|---------------------------------------------------------------------------------------|
//! | `train_normal.npz` | samples x 3: dense features, rows of tables, the label (0 or 1); cold samples           |
//! | `train_hot.npz`    | the same, with positions among all hot rows in the place of rows; hot samples           |
//! | `hot_emb_dict.npz` | a dictionary each table, from (table, row) to the position of that hot row: 0, 1, 2 …   |
//!
//! Rows and features are NumPy arrays, labels NumPy numbers. Rows of cold samples are float64 where Criteo's Kaggle log
//! was read as a whole and int32 where it was mapped; positions are float32, or int32 by the code of a later tutorial.
//!
//! FAE's profiler of several processes writes an array of lists of three instead. Its hot samples keep their rows, as
//! float32: each process puts positions into its own copy of them, which ends with it. Which of the two a
//! `train_hot.npz` holds is told by all of it: positions of rows of the columns in which they stand, or else rows that
//! are hot.
//!
//! Cold samples come first, then hot ones, each in the order of its file, which is that of FAE's training. Tables have
//! as many rows as `*_fea_count.npz` or the array `counts` of `*_processed.npz` says, beside the three files or in the
//! folder above, where FAE has them; else as many as the samples need. FAE's test samples are taken from
//! `*_processed.npz` (`held_out`).
//!
//! | what                                        | file         |
//! |---------------------------------------------|--------------|
//! | the dictionary of hot rows                  | `dictionary` |
//! | a file of samples, from front to back       | `packed`     |
//! | samples as rows of a table                  | `rows`       |
//! | test samples                                | `held_out`   |

mod dictionary;
mod held_out;
mod packed;
mod rows;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dictionary::Dictionary;
use held_out::Beside;
use packed::{Layout, Packed};
use rows::{Numbering, PackedRows};

use super::dataset::Member;
use super::{Dataset, SCHEMA, bad, folder, sidecar};
use crate::base::{Error, Result};
use crate::data::hot::{HotInputs, Tags};
use crate::data::{Description, Split};

const NORMAL: &str = "train_normal.npz";
const HOT: &str = "train_hot.npz";
const DICTIONARY: &str = "hot_emb_dict.npz";

/// How to get files that go together.
const RERUN: &str = "copy the three files of one run of FAE's profiler";

/// Whether a file of this name is one of FAE's.
pub(super) fn named(name: &str) -> bool {
    [NORMAL, HOT, DICTIONARY].contains(&name)
}

pub(super) fn open(path: &Path) -> Result<Dataset> {
    let folder = folder(path);
    let file = |name: &str| -> Result<PathBuf> {
        let path = folder.join(name);
        if path.exists() {
            return Ok(path);
        }
        Err(bad(&path, format!("is missing, and FAE's data are {NORMAL}, {HOT} and {DICTIONARY}: {RERUN}")))
    };
    let (normal, hot, dictionary) = (file(NORMAL)?, file(HOT)?, file(DICTIONARY)?);
    let dictionary = Arc::new(Dictionary::read(&dictionary)?);
    let (normal, hot) = (Arc::new(Packed::open(&normal)?), Arc::new(Packed::open(&hot)?));
    let layout = layout(&normal, &hot, &dictionary)?;
    let beside = Beside::find(folder)?;
    let test = beside.test(&layout)?;

    let numbering = rows::numbering(&hot, &layout, &dictionary)?;
    let (description, told) = match (sidecar(folder)?, beside.counts()?) {
        (Some(description), _) => (described(description, &layout, folder)?, folder.join(SCHEMA)),
        (None, Some((counts, told))) => {
            if counts.len() != layout.tables {
                let reason = format!(
                    "has {} counts, but {} has {} tables: remove it, or copy that of the same data",
                    counts.len(),
                    dictionary.path().display(),
                    layout.tables
                );
                return Err(bad(&told, reason));
            }
            (layout.description(&counts), told)
        }
        (None, None) => {
            let mut most = dictionary.largest();
            rows::largest(&normal, &layout, &mut most)?;
            test.iter().for_each(|test| test.largest(&mut most));
            let rows: Vec<u64> = most.iter().map(|most| most.map_or(1, |row| u64::from(row) + 1)).collect();
            (layout.description(&rows), dictionary.path().to_owned())
        }
    };
    description.check().map_err(|reason| bad(&told, reason))?;
    let set = dictionary.set(&description, &told)?;
    let tags = Arc::new(tags(normal.samples(), hot.samples()));

    let table = |packed: Arc<Packed>, numbering| {
        let table = PackedRows::new(packed, layout, numbering, description.clone());
        Member { role: Split::Train, table: Box::new(table) }
    };
    let mut members = vec![table(normal, Numbering::Rows), table(hot, numbering)];
    if let Some(test) = test {
        members.push(Member { role: Split::Test, table: Box::new(test.described(&description)) });
    }
    let mut dataset = Dataset::new(description, members);
    dataset.hot = Some(HotInputs { set, tags });
    dataset.beside = [dictionary.path()].into_iter().chain(beside.days()).map(Path::to_owned).collect();
    Ok(dataset)
}

/// What all samples consist of.
fn layout(normal: &Packed, hot: &Packed, dictionary: &Dictionary) -> Result<Layout> {
    let found = [normal.layout()?, hot.layout()?];
    let layout = match found {
        [Some(layout), None] | [None, Some(layout)] => layout,
        [Some(cold), Some(hot_layout)] if cold == hot_layout => cold,
        [Some(cold), Some(hot_layout)] => {
            let reason = format!("has samples of {hot_layout}, but {NORMAL} of {cold}: {RERUN}");
            return Err(bad(hot.path(), reason));
        }
        [None, None] => {
            return Err(bad(normal.path(), format!("has no sample, nor has {HOT}: {RERUN}")));
        }
    };
    if layout.tables != dictionary.tables() {
        let reason = format!("has {} dictionaries, but samples have {layout}: {RERUN}", dictionary.tables());
        return Err(bad(dictionary.path(), reason));
    }
    Ok(layout)
}

/// Columns as the document beside the files has them.
fn described(mut known: Description, layout: &Layout, folder: &Path) -> Result<Description> {
    let fail = |reason: String| Err(bad(&folder.join(SCHEMA), reason));
    let (dense, tables) = (known.dense.len(), known.categorical.len());
    if (dense, tables) != (layout.dense, layout.tables) {
        return fail(format!("has {dense} dense and {tables} categorical columns, but samples have {layout}"));
    }
    if let Some(column) = known.dense.iter().find(|column| column.float != layout.fractions) {
        let (is, float) = if layout.fractions { ("fractions", "true") } else { ("whole numbers", "false") };
        return fail(format!("column {}: the files have {is} there: write float = {float}", column.name));
    }
    if let Some(column) = known.not_one_hot() {
        let reason = "FAE's samples look up one row a column, without weights";
        return fail(format!("column {}: {reason}: leave hots and weighted away", column.name));
    }
    known.label.float = false;
    Ok(known)
}

/// Cold samples, then hot ones.
fn tags(cold: u64, hot: u64) -> Tags {
    let mut words = vec![0u64; (cold + hot).div_ceil(64) as usize];
    (cold..cold + hot).for_each(|sample| words[(sample / 64) as usize] |= 1 << (sample % 64));
    Tags::new(cold + hot, words).expect("a bit for each sample")
}

/// The error of a sample of a file, counted from 0.
fn fault(path: &Path, sample: u64, reason: impl std::fmt::Display) -> Error {
    bad(path, format!("sample {sample}: {reason}"))
}
