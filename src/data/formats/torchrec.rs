//! TorchRec's arrays (torchrec/datasets/criteo.py): for each day `day_N_dense.npy` (float32, transformed),
//! `day_N_sparse.npy` (int32, one look-up a column) or `day_N_sparse_multi_hot.npz` (int32, one array a column, named
//! by its number) and `day_N_labels.npy` (int32).
//!
//! The last of several days is split as TorchRec does: its first half (rounded up) is for validation, its second for
//! test; the reference (facebookresearch/dlrm) has it the other way round. Table sizes are in none of these files: they
//! come from `schema.toml`, or from a pass over the arrays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dataset::Member;
use super::npy::{self, Header};
use super::records::Records;
use super::strided::{Field, Kind, Strided};
use super::{Dataset, Sink, bad, folder, npz, sidecar};
use crate::base::Result;
use crate::base::console::note;
use crate::data::{Description, Samples, Split};
use crate::memory::{FileBytes, WholeFile, listed, write_file};

/// How the name of a day's dense features ends.
pub(super) const DENSE: &str = "_dense.npy";

/// What the files of a role are called: days, of which the last is no training data.
const STEMS: [&str; 3] = ["day_0", "val", "test"];

pub(super) fn open(path: &Path) -> Result<Dataset> {
    let folder = folder(path);
    let stem = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.strip_suffix(DENSE).map(str::to_owned)
    };
    let mut stems = Vec::new();
    if path.is_dir() {
        listed(path, "list")?.iter().for_each(|path| stems.extend(stem(path)));
    } else {
        stems.extend(stem(path));
    }
    // Days in the order of their numbers, 10 after 9.
    stems.sort_by_key(|stem| (day(stem), stem.clone()));
    let tables = stems.iter().map(|stem| day_arrays(folder, stem)).collect::<Result<Vec<_>>>()?;
    let Some(first) = tables.first() else { return Err(bad(path, format!("has no file *{DENSE}"))) };
    let widths = |table: &Strided| -> Vec<_> {
        table.categorical.iter().map(|field| field.count).chain([table.dense.len()]).collect()
    };
    for table in &tables {
        if widths(table) != widths(first) {
            let reason = format!("has other columns than {}", first.label.path().display());
            return Err(bad(table.label.path(), reason));
        }
    }
    let description = described(folder, &tables)?;
    let mut members = Vec::new();
    let days = stems.iter().filter(|stem| day(stem).is_some()).count();
    let last_day = stems.iter().rposition(|stem| days > 1 && day(stem).is_some());
    for (at, (mut table, stem)) in tables.into_iter().zip(&stems).enumerate() {
        table.description = description.clone();
        let mut member = |role, table| members.push(Member { role, table: Box::new(table) });
        match stem.as_str() {
            "val" | "validation" => member(Split::Validation, table),
            "test" => member(Split::Test, table),
            _ if last_day == Some(at) => {
                let half = table.rows.div_ceil(2);
                member(Split::Validation, table.part(0, half));
                member(Split::Test, table.part(half, table.rows - half));
            }
            _ => member(Split::Train, table),
        }
    }
    let sized_by_values = sidecar(folder)?.is_none();
    Ok(Dataset { sized_by_values, ..Dataset::new(description, members) })
}

fn day(stem: &str) -> Option<u64> {
    stem.strip_prefix("day_")?.parse().ok()
}

/// The arrays of one stem, with table sizes not yet known.
fn day_arrays(folder: &Path, stem: &str) -> Result<Strided> {
    let dense = folder.join(format!("{stem}{DENSE}"));
    let dense = file(&dense, &["<f4"], Kind::Float32, None)?;
    let label = file(&folder.join(format!("{stem}_labels.npy")), &["<i4"], Kind::Int32, Some(1))?;
    let multi_hot = folder.join(format!("{stem}_sparse_multi_hot.npz"));
    let categorical = if multi_hot.exists() {
        let bytes = FileBytes::streamed(&multi_hot)?;
        let mut fields = Vec::new();
        // Arrays are named 0, 1, 2 …; the first missing number ends them, and 0 must be there.
        while fields.is_empty() || npz::has(&bytes, &fields.len().to_string())? {
            let name = fields.len().to_string();
            let place = npz::stored(&bytes, &name)?;
            let field = array(&bytes, place, &format!("array {name}"), &["<i4"], Kind::Int32, None)?;
            // All of its columns are one field.
            fields.push(Field { count: field.records.width() / 4, ..field });
        }
        fields
    } else {
        columns(&file(&folder.join(format!("{stem}_sparse.npy")), &["<i4"], Kind::Int32, None)?)
    };
    if let Some(field) = categorical.iter().find(|field| field.count == 0) {
        return Err(bad(field.path(), "has an array without columns"));
    }
    Strided::new(Description::default(), label, columns(&dense), categorical)
}

/// Each number of the rows that the field begins.
fn columns(first: &Field) -> Vec<Field> {
    (0..first.records.width() / first.kind.size()).map(|at| first.at(at)).collect()
}

/// The first column of an array file.
fn file(path: &Path, dtypes: &[&str], kind: Kind, width: Option<usize>) -> Result<Field> {
    let bytes = FileBytes::streamed(path)?;
    array(&bytes, (0, bytes.len()), "array", dtypes, kind, width)
}

/// The first column of an array that begins at byte `start` of a file.
fn array(
    bytes: &Arc<FileBytes>,
    (start, length): (usize, usize),
    name: &str,
    dtypes: &[&str],
    kind: Kind,
    width: Option<usize>,
) -> Result<Field> {
    let header = Header::read(bytes, (start, length), name)?;
    let (rows, width, numbers) = header.matrix(length, dtypes, width, (bytes.path(), name))?;
    let records = Records::new(Arc::clone(bytes), start + numbers.start, width * kind.size(), rows);
    Ok(Field { records: Arc::new(records), offset: 0, kind, count: 1 })
}

fn described(folder: &Path, tables: &[Strided]) -> Result<Description> {
    let first = &tables[0];
    let (dense, columns) = (first.dense.len(), first.categorical.len());
    if let Some(mut known) = sidecar(folder)? {
        let path = folder.join(super::SCHEMA);
        if (known.dense.len(), known.categorical.len()) != (dense, columns) {
            let (d, c) = (known.dense.len(), known.categorical.len());
            return Err(bad(
                &path,
                format!("has {d} dense and {c} categorical columns, but the arrays {dense} and {columns}"),
            ));
        }
        known = known.with_features();
        for (column, field) in known.categorical.iter_mut().zip(&first.categorical) {
            (column.hots, column.weighted) = (field.count as u32, false);
        }
        return Ok(known);
    }
    note!(
        "reading all arrays of {0} for the rows of its tables, as at every start: octorec inspect {0} --write-schema {1} keeps \
         them",
        folder.display(),
        folder.join(super::SCHEMA).display()
    );
    let mut most = vec![None; columns];
    for table in tables {
        most.iter_mut().zip(table.largest()?).for_each(|(most, here)| *most = (*most).max(here));
    }
    let rows: Vec<u64> = most.into_iter().map(|most| most.map_or(1, |most| u64::from(most) + 1)).collect();
    let mut description = Description::criteo(dense, &rows);
    description = description.with_features();
    for (column, field) in description.categorical.iter_mut().zip(&first.categorical) {
        column.hots = field.count as u32;
    }
    description.check().map_err(|reason| bad(folder, format!("{reason}; is there a negative number?")))?;
    Ok(description)
}

/// Writes one day.
pub(super) struct ArraySink {
    labels: WholeFile,
    dense: WholeFile,
    sparse: Sparse,
    description: Description,
    rows: usize,
    words: Vec<u32>,
}

enum Sparse {
    /// One look-up a column: one array.
    One(WholeFile),
    /// An archive, and its arrays as files until they are complete.
    Many(PathBuf, Vec<(String, PathBuf, WholeFile)>),
}

impl ArraySink {
    pub(super) fn create(folder: &Path, role: Split, description: &Description) -> Result<Self> {
        if let Some(column) = description.not_multi_hot() {
            let reason = "TorchRec's arrays hold the same number of look-ups for every sample, without weights";
            return Err(bad(folder, format!("{reason}, unlike column {}", column.name)));
        }
        let stem = role.of(STEMS);
        let begin = |name: &str| {
            let mut file = WholeFile::create(&folder.join(format!("{stem}_{name}")))?;
            // Its place; the shape is known at the end.
            file.append(&[0; npy::HEADER_BYTES])?;
            Ok(file)
        };
        let sparse = if description.categorical.iter().all(|column| column.hots == 1) {
            Sparse::One(begin("sparse.npy")?)
        } else {
            let member = |at: usize| {
                let name = format!("sparse_multi_hot.{at}.npy");
                Ok((at.to_string(), folder.join(format!("{stem}_{name}")), begin(&name)?))
            };
            let members = (0..description.categorical.len()).map(member).collect::<Result<_>>()?;
            Sparse::Many(folder.join(format!("{stem}_sparse_multi_hot.npz")), members)
        };
        let (labels, dense) = (begin("labels.npy")?, begin("dense.npy")?);
        Ok(Self { labels, dense, sparse, description: description.clone(), rows: 0, words: Vec::new() })
    }
}

impl Sink for ArraySink {
    fn push(&mut self, samples: &Samples) -> Result<()> {
        let words = &mut self.words;
        words.clear();
        words.extend(samples.labels.iter().map(|&label| label as i32 as u32));
        self.labels.append(bytemuck::cast_slice(words))?;
        let width = samples.dense.len();
        words.clear();
        words.resize(width * samples.len(), 0);
        for (at, (values, column)) in samples.dense.iter().zip(&self.description.dense).enumerate() {
            let (cells, to) = (words.iter_mut().skip(at).step_by(width), column.feature());
            cells.enumerate().for_each(|(n, cell)| *cell = values.feature(n, to).to_bits());
        }
        self.dense.append(bytemuck::cast_slice(words))?;
        match &mut self.sparse {
            Sparse::One(file) => {
                let width = samples.lookups.len();
                words.clear();
                words.resize(width * samples.len(), 0);
                for (at, lookups) in samples.lookups.iter().enumerate() {
                    let cells = words.iter_mut().skip(at).step_by(width);
                    cells.zip(&lookups.rows).for_each(|(cell, &row)| *cell = row);
                }
                file.append(bytemuck::cast_slice(words))?;
            }
            Sparse::Many(_, members) => {
                for ((.., file), lookups) in members.iter_mut().zip(&samples.lookups) {
                    file.append(bytemuck::cast_slice(&lookups.rows))?;
                }
            }
        }
        self.rows += samples.len();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        let rows = self.rows;
        let end = |mut file: WholeFile, dtype: &str, width: usize| {
            file.overwrite_start(&npy::header(dtype, &[rows, width]))?;
            file.finish()
        };
        let columns = &self.description.categorical;
        let mut bytes = end(self.labels, "<i4", 1)?;
        bytes += match self.sparse {
            Sparse::One(file) => end(file, "<i4", columns.len())?,
            Sparse::Many(path, members) => {
                let mut names = Vec::new();
                for ((name, path, file), column) in members.into_iter().zip(columns) {
                    end(file, "<i4", column.hots as usize)?;
                    names.push((name, path));
                }
                npz::bundle(&path, &names)?
            }
        };
        // Last: a stem is recognised by its dense array.
        Ok(bytes + end(self.dense, "<f4", self.description.dense.len())?)
    }
}

/// Writes what the arrays do not say.
pub(super) fn seal(folder: &Path, description: &Description) -> Result<()> {
    write_file(&folder.join(super::SCHEMA), description.clone().with_features().to_toml().as_bytes())
}
