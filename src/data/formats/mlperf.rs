//! The binary rows of MLPerf's DLRM and of the reference (facebookresearch/dlrm, `data_loader_terabyte.py`): 40 little-
//! endian i32 a row (label, 13 integers, 26 categories), 160 bytes; table sizes in `day_fea_count.npz`, key `counts`.
//!
//! Negative integers were set to 0 when such a file was made; the logarithm is taken at load, as the reference does.

use std::path::{Path, PathBuf};

use super::dataset::Member;
use super::records::Records;
use super::strided::{Layout, Strided, StridedSink};
use super::{Dataset, ROLES, Sink, bad, filled, folder, npz, sidecar};
use crate::base::Result;
use crate::data::samples::Values;
use crate::data::schema::Transform;
use crate::data::{Description, Samples, Split};
use crate::memory::{FileBytes, WholeFile, listed, write_file};

pub(super) const DENSE: usize = 13;
pub(super) const TABLES: usize = 26;
const ROW_BYTES: usize = 4 * (1 + DENSE + TABLES);

/// How the file with the table sizes is called.
pub(super) const COUNTS: &str = "day_fea_count.npz";

/// What the end of a file's name says it is for.
pub(super) fn role(name: &str) -> Option<Split> {
    let last = name.strip_suffix(".bin")?.rsplit(['_', '.']).next()?;
    Split::ALL.into_iter().find(|role| role.of(ROLES) == last)
}

pub(super) fn open(path: &Path) -> Result<Dataset> {
    let mut files: Vec<(Split, PathBuf)> = Vec::new();
    if path.is_dir() {
        for path in listed(path, "list")? {
            let role = path.file_name().and_then(|name| role(&name.to_string_lossy()));
            files.extend(role.map(|role| (role, path)));
        }
    } else {
        files.push((Split::Train, path.to_owned()));
    }
    let folder = folder(path);
    let description = match sidecar(folder)? {
        Some(description) => checked(description, folder)?,
        None => {
            let counts = folder.join(COUNTS);
            if !counts.exists() {
                let reason = format!("there is no {COUNTS} (or {}) beside it with the tables' sizes", super::SCHEMA);
                return Err(bad(path, reason));
            }
            let rows: Vec<u64> = npz::counts(&counts)?;
            if rows.len() != TABLES {
                return Err(bad(&counts, format!("has {} counts, but a row has {TABLES} categories", rows.len())));
            }
            let description = Description::criteo(DENSE, &rows);
            description.check().map_err(|reason| bad(&counts, reason))?;
            description
        }
    };
    let member = |(role, path): (Split, PathBuf)| Ok(Member { role, table: Box::new(table(&path, &description)?) });
    let members = files.into_iter().map(member).collect::<Result<_>>()?;
    Ok(Dataset::new(description.clone(), members))
}

fn checked(description: Description, folder: &Path) -> Result<Description> {
    fits(&description).map_err(|reason| bad(&folder.join(super::SCHEMA), reason))?;
    Ok(description)
}

/// Whether rows of 40 integers can hold these columns.
fn fits(description: &Description) -> std::result::Result<(), String> {
    let (dense, tables) = (description.dense.len(), description.categorical.len());
    if (dense, tables) != (DENSE, TABLES) {
        return Err(format!(
            "rows of 160 bytes have {DENSE} dense and {TABLES} categorical columns, not {dense} and {tables}"
        ));
    }
    if let Some(column) = description.dense.iter().find(|column| column.float) {
        return Err(format!("rows of 160 bytes hold integers, but column {} holds floats", column.name));
    }
    match description.not_one_hot() {
        Some(column) => {
            Err(format!("rows of 160 bytes hold one look-up a column without weight, unlike column {}", column.name))
        }
        None => Ok(()),
    }
}

fn table(path: &Path, description: &Description) -> Result<Strided> {
    let bytes = FileBytes::streamed(path)?;
    filled(&bytes)?;
    let (rows, rest) = (bytes.len() / ROW_BYTES, bytes.len() % ROW_BYTES);
    if rest != 0 {
        let reason = format!("is truncated: row {rows} has {rest} of {ROW_BYTES} bytes: copy or write it again");
        return Err(bad(path, reason));
    }
    let records = Records::new(bytes, 0, ROW_BYTES, rows);
    let mut table = Strided::new(description.clone(), Layout::words(description), vec![records])?;
    table.told_as_file = true;
    Ok(table)
}

/// Writes rows of 160 bytes.
pub(super) struct BinSink(StridedSink);

impl BinSink {
    pub(super) fn create(folder: &Path, role: Split, description: &Description) -> Result<Self> {
        fits(description).map_err(|reason| bad(folder, reason))?;
        let file = WholeFile::create(&folder.join(format!("octorec_{}.bin", role.of(ROLES))))?;
        Ok(Self(StridedSink::new(Layout::words(description), vec![file], description)))
    }
}

impl Sink for BinSink {
    fn push(&mut self, samples: &Samples) -> Result<()> {
        for (values, column) in samples.dense.iter().zip(&self.0.description.dense) {
            // As logarithms, missing and negative values are 0; nothing else reads a 0 as what they are.
            let is_kept = |value: i32| match column.transform {
                _ if value >= 0 => true,
                Transform::Log => !column.age,
                Transform::None => !column.age && value == i32::MIN,
                Transform::Standardise => false,
            };
            let Values::Integers(values) = values else { continue };
            if let Some(value) = values.iter().find(|value| !is_kept(**value)) {
                let what = if *value == i32::MIN { "a missing value".to_owned() } else { format!("the value {value}") };
                let reason = format!(
                    "column {} has {what}, and rows of 160 bytes hold no negative numbers: give it transform = \"log\", \
                     or choose another --format",
                    column.name
                );
                return Err(bad(self.0.pages[0].file.path(), reason));
            }
        }
        self.0.push(samples)
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        Box::new(self.0).finish()
    }
}

/// Writes the tables' sizes, and what else the rows do not say where the columns are not Criteo's.
pub(super) fn seal(folder: &Path, description: &Description) -> Result<()> {
    let rows: Vec<u64> = description.categorical.iter().map(|column| column.rows).collect();
    if *description != Description::criteo(DENSE, &rows) {
        write_file(&folder.join(super::SCHEMA), description.to_toml().as_bytes())?;
    }
    npz::write_counts(&folder.join(COUNTS), &rows)
}
