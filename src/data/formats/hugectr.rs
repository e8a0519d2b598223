//! HugeCTR's raw rows (NVIDIA-Merlin/HugeCTR, `samples/dlrm/preprocessing/convert_to_raw.py`): for each sample a label
//! (i32), dense features (f32, as they are trained on) and the look-ups of every column (i32), one behind the other,
//! little-endian. MLPerf's DCNv2 data has 1 + 13 + 214 words, 912 bytes a row.
//!
//! Files are called `train_data.bin`, `val_data.bin` and `test_data.bin`. They say nothing of their columns, so a
//! `schema.toml` must lie beside them; row numbers are a column's own, from 0.

use std::path::{Path, PathBuf};

use super::dataset::Member;
use super::records::Records;
use super::strided::{Layout, Strided, StridedSink};
use super::{Dataset, SCHEMA, bad, filled, folder, sidecar};
use crate::base::Result;
use crate::data::{Description, Split};
use crate::memory::{FileBytes, WholeFile, write_file};

/// What the file of a role is called.
const NAMES: [&str; 3] = ["train_data.bin", "val_data.bin", "test_data.bin"];

/// What a file's name says it is for.
pub(super) fn role(name: &str) -> Option<Split> {
    Split::ALL.into_iter().find(|role| role.of(NAMES) == name)
}

/// Whether rows of one width can hold these columns.
fn fits(description: &Description) -> std::result::Result<(), String> {
    match description.not_multi_hot() {
        Some(column) => Err(format!(
            "raw rows hold the same number of look-ups for every sample, without weights, unlike column {}",
            column.name
        )),
        None => Ok(()),
    }
}

pub(super) fn open(path: &Path) -> Result<Dataset> {
    let folder = folder(path);
    let files: Vec<(Split, PathBuf)> = if path.is_dir() {
        let known = Split::ALL.map(|role| (role, folder.join(role.of(NAMES))));
        known.into_iter().filter(|(_, path)| path.exists()).collect()
    } else {
        let role = path.file_name().and_then(|name| role(&name.to_string_lossy()));
        vec![(role.unwrap_or(Split::Train), path.to_owned())]
    };
    let Some(description) = sidecar(folder)? else {
        return Err(bad(path, format!("raw rows do not tell their columns: there must be a {SCHEMA} beside them")));
    };
    fits(&description).map_err(|reason| bad(&folder.join(SCHEMA), reason))?;
    let description = description.with_features();
    let member = |(role, path): (Split, PathBuf)| Ok(Member { role, table: Box::new(table(&path, &description)?) });
    let members = files.into_iter().map(member).collect::<Result<Vec<_>>>()?;
    if members.is_empty() {
        let [train, validation, test] = NAMES;
        return Err(bad(path, format!("has none of {train}, {validation} and {test}")));
    }
    Ok(Dataset::new(description, members))
}

fn table(path: &Path, description: &Description) -> Result<Strided> {
    let bytes = FileBytes::streamed(path)?;
    filled(&bytes)?;
    let layout = Layout::words(description);
    let stride = layout.width(0);
    if !bytes.len().is_multiple_of(stride) {
        let reason = format!(
            "its {} bytes are no whole number of rows of {stride} bytes: it is truncated, or {SCHEMA} is of other data",
            bytes.len()
        );
        return Err(bad(path, reason));
    }
    let rows = bytes.len() / stride;
    Strided::new(description.clone(), layout, vec![Records::new(bytes, 0, stride, rows)])
}

/// Writes raw rows.
pub(super) fn sink(folder: &Path, role: Split, description: &Description) -> Result<StridedSink> {
    fits(description).map_err(|reason| bad(folder, reason))?;
    let file = WholeFile::create(&folder.join(role.of(NAMES)))?;
    Ok(StridedSink::new(Layout::words(&description.clone().with_features()), vec![file], description))
}

/// Writes what the rows do not say.
pub(super) fn seal(folder: &Path, description: &Description) -> Result<()> {
    write_file(&folder.join(SCHEMA), description.clone().with_features().to_toml().as_bytes())
}
