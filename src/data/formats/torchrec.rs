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
use super::strided::{Kind, Layout, Page, Row, Strided, StridedSink};
use super::{Dataset, Sink, Table, bad, folder, npz, sidecar};
use crate::base::Result;
use crate::base::console::note;
use crate::base::error::shell;
use crate::data::{Description, Samples, Split};
use crate::memory::{FileBytes, WholeFile, listed, write_file};

/// How the name of a day's dense features ends.
pub(super) const DENSE: &str = "_dense.npy";

/// Bytes of a number.
const WORD: usize = 4;

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
    let widths = |Layout { dense, categorical, .. }: &Layout| -> Vec<_> {
        categorical.iter().map(|field| field.count).chain([dense.len()]).collect()
    };
    for table in &tables {
        if widths(&table.layout) != widths(&first.layout) {
            let reason = format!("has other columns than {}", first.path().display());
            return Err(bad(table.path(), reason));
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

/// Where columns lie in their arrays: of labels, of look-ups (one array or, where they are `apart`, one a column, of
/// `hots` look-ups a sample each), then of dense features.
fn layout(dense: usize, hots: &[usize], apart: bool) -> Layout {
    let row = |file| Row { file, width: 0 };
    let (mut sparse, mut features) = (row(1), row(if apart { 1 + hots.len() } else { 2 }));
    let lookups = |(file, &count)| match apart {
        true => row(file).field(Kind::Int32, count),
        false => sparse.field(Kind::Int32, count),
    };
    Layout {
        label: row(0).field(Kind::Int32, 1),
        dense: (0..dense).map(|_| features.field(Kind::Float32, 1)).collect(),
        categorical: (1..).zip(hots).map(lookups).collect(),
    }
}

/// The arrays of one stem, with table sizes not yet known.
fn day_arrays(folder: &Path, stem: &str) -> Result<Strided> {
    let dense = file(&folder.join(format!("{stem}{DENSE}")), "<f4", None)?;
    let mut files = vec![file(&folder.join(format!("{stem}_labels.npy")), "<i4", Some(1))?];
    let multi_hot = folder.join(format!("{stem}_sparse_multi_hot.npz"));
    let apart = multi_hot.exists();
    let mut hots = Vec::new();
    if apart {
        let bytes = FileBytes::streamed(&multi_hot)?;
        // Arrays are named 0, 1, 2 …; the first missing number ends them, and 0 must be there.
        while hots.is_empty() || npz::has(&bytes, &hots.len().to_string())? {
            let name = hots.len().to_string();
            let place = npz::stored(&bytes, &name)?;
            files.push(array(&bytes, place, &format!("array {name}"), "<i4", None)?);
            // All of its columns are one field.
            hots.push(files[files.len() - 1].width() / WORD);
        }
        if hots.contains(&0) {
            return Err(bad(&multi_hot, "has an array without columns"));
        }
    } else {
        files.push(file(&folder.join(format!("{stem}_sparse.npy")), "<i4", None)?);
        hots.resize(files[1].width() / WORD, 1);
    }
    let layout = layout(dense.width() / WORD, &hots, apart);
    files.push(dense);
    Strided::new(Description::default(), layout, files)
}

/// The rows of an array file.
fn file(path: &Path, dtype: &str, width: Option<usize>) -> Result<Records> {
    let bytes = FileBytes::streamed(path)?;
    array(&bytes, (0, bytes.len()), "array", dtype, width)
}

/// The rows of an array that begins at byte `start` of a file.
fn array(
    bytes: &Arc<FileBytes>,
    (start, length): (usize, usize),
    name: &str,
    dtype: &str,
    width: Option<usize>,
) -> Result<Records> {
    let header = Header::read(bytes, (start, length), name)?;
    let (rows, width, numbers) = header.matrix(length, &[dtype], width, (bytes.path(), name))?;
    Ok(Records::new(Arc::clone(bytes), start + numbers.start, width * WORD, rows))
}

fn described(folder: &Path, tables: &[Strided]) -> Result<Description> {
    let first = &tables[0].layout;
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
        shell(folder),
        shell(&folder.join(super::SCHEMA))
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
    arrays: StridedSink,
    /// Where a column has an array of its own: the archive of these, which are files until they are complete.
    archive: Option<PathBuf>,
    rows: usize,
}

impl ArraySink {
    pub(super) fn create(folder: &Path, role: Split, description: &Description) -> Result<Self> {
        if let Some(column) = description.not_multi_hot() {
            let reason = "TorchRec's arrays hold the same number of look-ups for every sample, without weights";
            return Err(bad(folder, format!("{reason}, unlike column {}", column.name)));
        }
        let stem = role.of(STEMS);
        let hots: Vec<usize> = description.categorical.iter().map(|column| column.hots as usize).collect();
        let apart = hots.iter().any(|&hots| hots != 1);
        let sparse: Vec<String> = match apart {
            true => (0..hots.len()).map(|at| format!("_sparse_multi_hot.{at}.npy")).collect(),
            false => vec!["_sparse.npy".to_owned()],
        };
        let begin = |name: &str| {
            let mut file = WholeFile::create(&folder.join(format!("{stem}{name}")))?;
            // Its place; the shape is known at the end.
            file.append(&[0; npy::HEADER_BYTES])?;
            Ok(file)
        };
        let names = ["_labels.npy"].into_iter().chain(sparse.iter().map(|name| &**name)).chain([DENSE]);
        let files = names.map(begin).collect::<Result<_>>()?;
        let arrays = StridedSink::new(layout(description.dense.len(), &hots, apart), files, description);
        let archive = apart.then(|| folder.join(format!("{stem}_sparse_multi_hot.npz")));
        Ok(Self { arrays, archive, rows: 0 })
    }
}

impl Sink for ArraySink {
    fn push(&mut self, samples: &Samples) -> Result<()> {
        self.rows += samples.len();
        self.arrays.push(samples)
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        let rows = self.rows;
        let end = |Page { mut file, width, .. }: Page, dtype: &str| {
            file.overwrite_start(&npy::header(dtype, &[rows, width / WORD]))?;
            file.finish()
        };
        let mut pages = self.arrays.pages;
        let dense = pages.pop().expect("the last array is that of dense features");
        let members: Vec<_> = pages[1..].iter().map(|page| page.file.path().to_owned()).collect();
        let mut bytes = 0;
        for (at, page) in pages.into_iter().enumerate() {
            let whole = end(page, "<i4")?;
            // Those of an archive's arrays are the archive's.
            bytes += if at == 0 || self.archive.is_none() { whole } else { 0 };
        }
        if let Some(path) = self.archive {
            let named = members.into_iter().enumerate().map(|(at, path)| (at.to_string(), path));
            bytes += npz::bundle(&path, &named.collect::<Vec<_>>())?;
        }
        // Last: a stem is recognised by its dense array.
        Ok(bytes + end(dense, "<f4")?)
    }
}

/// Writes what the arrays do not say.
pub(super) fn seal(folder: &Path, description: &Description) -> Result<()> {
    write_file(&folder.join(super::SCHEMA), description.clone().with_features().to_toml().as_bytes())
}
