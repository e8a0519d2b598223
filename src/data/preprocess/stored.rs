//! The rows of all parts as one table, with ids in place of values.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::gather::Source;
use super::ids::ids_path;
use super::part::{Part, read_at};
use crate::base::{Error, Result, interrupt};
use crate::data::Samples;
use crate::data::samples::Values;
use crate::data::schema::Description;

/// All rows of a run.
pub(super) struct Stored<'a> {
    parts: &'a [Source],
    description: &'a Description,
    /// Rows before each part, and of all.
    rows: Vec<u64>,
    columns: Vec<Ids>,
}

/// The ids of a column.
struct Ids {
    path: PathBuf,
    file: File,
    /// Distinct values before each part.
    starts: Vec<u64>,
}

/// Memory of one thread that reads rows.
#[derive(Default)]
pub(super) struct Scratch {
    part: Part,
    ids: Vec<u32>,
}

fn sums(counts: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sums = vec![0];
    sums.extend(counts.scan(0, |sum, count| {
        *sum += count;
        Some(*sum)
    }));
    sums
}

impl<'a> Stored<'a> {
    pub(super) fn open(parts: &'a [Source], description: &'a Description, work: &Path) -> Result<Self> {
        let columns = (0..description.categorical.len()).map(|column| {
            let path = ids_path(work, column);
            let file = File::open(&path).map_err(Error::io(&path, "open"))?;
            let starts = sums(parts.iter().map(|part| u64::from(part.contents.entries[column].distinct)));
            Ok(Ids { path, file, starts })
        });
        let columns = columns.collect::<Result<_>>()?;
        Ok(Self {
            parts,
            description,
            rows: sums(parts.iter().map(|part| u64::from(part.contents.head.rows))),
            columns,
        })
    }

    /// Calls `visit` with the rows of `range`, part after part; `samples` is cleared before each.
    pub(super) fn each(
        &self,
        range: Range<u64>,
        scratch: &mut Scratch,
        samples: &mut Samples,
        mut visit: impl FnMut(&Samples) -> Result<()>,
    ) -> Result<()> {
        let first = self.rows.partition_point(|&start| start <= range.start) - 1;
        for (at, part) in self.parts.iter().enumerate().skip(first) {
            let (start, end) = (self.rows[at], self.rows[at + 1]);
            if start >= range.end {
                break;
            }
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            let within = (range.start.max(start) - start) as usize..(range.end.min(end) - start) as usize;
            if within.is_empty() {
                continue;
            }
            scratch.part.read(&part.path, &part.contents)?;
            samples.clear();
            self.append(at, within, scratch, samples)?;
            visit(samples)?;
        }
        Ok(())
    }

    fn append(&self, at: usize, within: Range<usize>, scratch: &mut Scratch, samples: &mut Samples) -> Result<()> {
        let Scratch { part, ids } = scratch;
        samples.labels.extend_from_slice(&part.labels()[within.clone()]);
        for (column, values) in samples.dense.iter_mut().enumerate() {
            let words = &part.integers(column)[within.clone()];
            match values {
                Values::Integers(values) => values.extend_from_slice(words),
                Values::Floats(values) => values.extend(words.iter().map(|&bits| f32::from_bits(bits as u32))),
            }
        }
        for (column, (stored, lookups)) in self.columns.iter().zip(&mut samples.lookups).enumerate() {
            let (from, to) = (stored.starts[at], stored.starts[at + 1]);
            read_at(&stored.file, &stored.path, 4 * from, (to - from) as usize, ids)?;
            if let Some(ends) = part.ends(column) {
                let before = lookups.rows.len() as u32;
                let start = if within.start == 0 { 0 } else { ends[within.start - 1] };
                lookups.ends.extend(ends[within.clone()].iter().map(|end| end - start + before));
            }
            part.map_rows(column, within.clone(), ids, &mut lookups.rows);
            lookups.weights.extend_from_slice(part.weights(column, within.clone()));
        }
        debug_assert_eq!(self.description.categorical.len(), samples.lookups.len());
        Ok(())
    }
}
