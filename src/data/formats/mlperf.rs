//! The binary rows of MLPerf's DLRM and of the reference (facebookresearch/dlrm, `data_loader_terabyte.py`): 40 little-
//! endian i32 a row (label, 13 integers, 26 categories), 160 bytes; table sizes in `day_fea_count.npz`, key `counts`.
//!
//! Negative integers were set to 0 when such a file was made; the logarithm is taken at load, as the reference does.

use std::path::{Path, PathBuf};

use super::dataset::Member;
use super::records::{PORTION, Portion, Records};
use super::{Dataset, ROLES, Rows, Table, bad, filled, folder, npz, sidecar};
use crate::base::Result;
use crate::data::dense::log_count;
use crate::data::samples::Values;
use crate::data::schema::feature::Feature;
use crate::data::schema::{Dense, Transform};
use crate::data::{Batch, Description, Samples, Split};
use crate::memory::{FileBytes, WholeFile, listed, write_file};

pub(super) const DENSE: usize = 13;
pub(super) const TABLES: usize = 26;
const WIDTH: usize = 1 + DENSE + TABLES;
const ROW_BYTES: usize = 4 * WIDTH;
/// Rows that are turned at a time: they stay in the nearest cache while column after column is taken from them.
const TURNED: usize = 64;

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
    let table =
        |(role, path): (Split, PathBuf)| Ok(Member { role, table: Box::new(BinTable::open(&path, &description)?) });
    let members = files.into_iter().map(table).collect::<Result<_>>()?;
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

struct BinTable {
    records: Records,
    description: Description,
}

impl BinTable {
    fn open(path: &Path, description: &Description) -> Result<Self> {
        let bytes = FileBytes::streamed(path)?;
        filled(&bytes)?;
        let (rows, rest) = (bytes.len() / ROW_BYTES, bytes.len() % ROW_BYTES);
        if rest != 0 {
            let reason = format!("is truncated: row {rows} has {rest} of {ROW_BYTES} bytes: copy or write it again");
            return Err(bad(path, reason));
        }
        Ok(Self { records: Records::new(bytes, 0, ROW_BYTES, rows), description: description.clone() })
    }
}

impl Table for BinTable {
    fn description(&self) -> &Description {
        &self.description
    }

    fn rows(&self) -> u64 {
        self.records.rows() as u64
    }

    fn path(&self) -> &Path {
        self.records.file().path()
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        Ok(Box::new(BinRows { table: self, next: start as usize, read: 0, portion: Portion::default() }))
    }
}

struct BinRows<'a> {
    table: &'a BinTable,
    next: usize,
    /// Rows that were read.
    read: u64,
    portion: Portion,
}

impl BinRows<'_> {
    /// The next rows, at most `limit` and as many as are read at a time; none at the end.
    fn take(&mut self, limit: usize) -> Result<&[[i32; WIDTH]]> {
        const MOST: usize = PORTION / ROW_BYTES;
        let records = &self.table.records;
        let rows = self.next..records.rows().min(self.next.saturating_add(limit.min(MOST)));
        self.portion.load(records, rows.clone(), MOST)?;
        let rows: &[[i32; WIDTH]] = bytemuck::cast_slice(self.portion.bytes(records, rows));
        if let Some(at) = rows.iter().position(|row| row[0] as u32 > 1) {
            let reason = format!("row {}: the label is {}; 0 or 1 expected", self.next + at, rows[at][0]);
            return Err(bad(records.file().path(), reason));
        }
        self.next += rows.len();
        self.read += rows.len() as u64;
        Ok(rows)
    }

    /// Calls `visit` with the next rows, at most `limit`, a few at a time; returns how many there were.
    fn each(&mut self, limit: usize, mut visit: impl FnMut(&[[i32; WIDTH]])) -> Result<usize> {
        let mut read = 0;
        loop {
            let rows = self.take(limit - read)?;
            if rows.is_empty() {
                return Ok(read);
            }
            read += rows.len();
            rows.chunks(TURNED).for_each(&mut visit);
        }
    }
}

impl Rows for BinRows<'_> {
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize> {
        self.each(limit, |rows| {
            samples.labels.extend(rows.iter().map(|row| row[0] as f32));
            for (values, at) in samples.dense.iter_mut().zip(1..) {
                if let Values::Integers(values) = values {
                    values.extend(rows.iter().map(|row| row[at]));
                }
            }
            for (lookups, at) in samples.lookups.iter_mut().zip(1 + DENSE..) {
                lookups.rows.extend(rows.iter().map(|row| row[at] as u32));
            }
        })
    }

    fn read_batch(
        &mut self,
        batch: &mut Batch,
        limit: usize,
        (_, description): (&mut Samples, &Description),
    ) -> Result<usize> {
        let logarithms = description.dense.iter().all(|column| column.transform == Transform::Log && !column.age);
        let features = description.dense.iter().filter(|_| !logarithms).map(Dense::feature);
        let features: Vec<Feature> = features.collect();
        self.each(limit, |rows| {
            batch.labels.extend(rows.iter().map(|row| row[0] as f32));
            for row in rows {
                let integers = &row[1..=DENSE];
                if logarithms {
                    batch.dense.extend(integers.iter().map(|&value| log_count(Some(value.into()))));
                } else {
                    batch.dense.extend(integers.iter().zip(&features).map(|(&value, to)| to.integer(value)));
                }
            }
            for (bag, at) in batch.bags.iter_mut().zip(1 + DENSE..) {
                bag.rows.extend(rows.iter().map(|row| row[at] as u32));
                let before = bag.offsets[bag.offsets.len() - 1];
                bag.offsets.extend((1..=rows.len() as u32).map(|n| before + n));
            }
        })
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min((self.table.records.rows() - self.next) as u64);
        self.next += count as usize;
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        self.read * ROW_BYTES as u64
    }
}

/// Writes rows of 160 bytes.
pub(super) struct BinSink {
    file: WholeFile,
    dense: Vec<Dense>,
    rows: Vec<[i32; WIDTH]>,
}

impl BinSink {
    pub(super) fn create(folder: &Path, role: Split, description: &Description) -> Result<Self> {
        fits(description).map_err(|reason| bad(folder, reason))?;
        let file = WholeFile::create(&folder.join(format!("octorec_{}.bin", role.of(ROLES))))?;
        Ok(Self { file, dense: description.dense.clone(), rows: Vec::new() })
    }
}

impl super::Sink for BinSink {
    fn push(&mut self, samples: &Samples) -> Result<()> {
        self.rows.clear();
        self.rows.resize(samples.len(), [0; WIDTH]);
        for (row, label) in self.rows.iter_mut().zip(&samples.labels) {
            row[0] = *label as i32;
        }
        for ((values, column), at) in samples.dense.iter().zip(&self.dense).zip(1..) {
            if let Values::Integers(values) = values {
                // As logarithms, missing and negative values are 0; nothing else reads a 0 as what they are.
                let is_kept = |value: i32| match column.transform {
                    _ if value >= 0 => true,
                    Transform::Log => !column.age,
                    Transform::None => !column.age && value == i32::MIN,
                    Transform::Standardise => false,
                };
                if let Some(value) = values.iter().find(|value| !is_kept(**value)) {
                    let what =
                        if *value == i32::MIN { "a missing value".to_owned() } else { format!("the value {value}") };
                    let reason = format!(
                        "column {} has {what}, and rows of 160 bytes hold no negative numbers: give it transform = \"log\", \
                         or choose another --format",
                        column.name
                    );
                    return Err(bad(self.file.path(), reason));
                }
                // Missing ones are the smallest i32.
                self.rows.iter_mut().zip(values).for_each(|(row, &value)| row[at] = value.max(0));
            }
        }
        for (lookups, at) in samples.lookups.iter().zip(1 + DENSE..) {
            self.rows.iter_mut().zip(&lookups.rows).for_each(|(row, &id)| row[at] = id as i32);
        }
        self.file.append(bytemuck::cast_slice(&self.rows))
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.file.finish()
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
