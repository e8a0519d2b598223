//! What FAE's code reads beside its three files: the numbers of rows, and its test samples.
//!
//! Both are from the reference's preparation of Criteo's Kaggle log: `*_processed.npz` has the arrays `X_int` (samples
//! x 13), `X_cat` (samples x 26), `y` (samples) and `counts` (26) of the seven days, `*_day_count.npz` how many samples
//! each day has, `*_fea_count.npz` the `counts` alone. Test samples are the first half, rounded up, of the last day;
//! FAE's code never reads the second half. They take some 160 bytes each in memory. Rows are taken as they are, without
//! the modulo of `--max-ind-range`.

use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::packed::Layout;
use super::{bad, fault};
use crate::base::{Error, Result, interrupt};
use crate::data::formats::npy::{self, Header};
use crate::data::formats::npz::{self, Member};
use crate::data::formats::pickle::{Dtype, Number};
use crate::data::formats::{Rows, Table};
use crate::data::samples::Values;
use crate::data::{Description, Samples};
use crate::memory::{FileBytes, listed};

const PROCESSED: &str = "_processed.npz";
const DAYS: &str = "_day_count.npz";
const COUNTS: &str = "_fea_count.npz";

/// Numbers that are read at a time.
const PORTION: usize = 1 << 13;

/// The files that were found.
#[derive(Debug, Default)]
pub(super) struct Beside {
    processed: Option<PathBuf>,
    days: Option<PathBuf>,
    counts: Option<PathBuf>,
}

impl Beside {
    /// Looks in a folder, and for what is not there in the one above.
    ///
    /// # Errors
    /// When the folder cannot be listed, or two files could be meant.
    pub(super) fn find(folder: &Path) -> Result<Self> {
        let above = folder.join("..");
        // The folder above may be nobody's business.
        let folders = [listed(folder, "list")?, listed(&above, "list").unwrap_or_default()];
        let find = |ending: &str| -> Result<Option<PathBuf>> {
            for files in &folders {
                let mut named = files.iter().filter(|path| {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    // A file of a single day has its number there.
                    let stem = name.strip_suffix(ending);
                    stem.is_some_and(|stem| stem.rsplit('_').next().is_none_or(|last| last.parse::<u32>().is_err()))
                });
                match (named.next(), named.next()) {
                    (Some(path), Some(other)) => {
                        let reason = format!("could be meant, or {}: copy that of these data beside", other.display());
                        return Err(bad(path, format!("{reason} {}", folder.join(super::HOT).display())));
                    }
                    (Some(path), None) => return Ok(Some(path.clone())),
                    (None, _) => {}
                }
            }
            Ok(None)
        };
        Ok(Self { processed: find(PROCESSED)?, days: find(DAYS)?, counts: find(COUNTS)? })
    }

    /// How many rows each table has, and the file that says so.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn counts(&self) -> Result<Option<(Vec<u64>, PathBuf)>> {
        let path = self.counts.as_ref().or(self.processed.as_ref());
        path.map(|path| Ok((npz::counts(path)?, path.clone()))).transpose()
    }

    /// The file with the days' samples, by which some are test samples.
    pub(super) fn days(&self) -> Option<&Path> {
        self.days.as_deref()
    }

    /// FAE's test samples, where both files are there that tell them.
    ///
    /// # Errors
    /// When they cannot be read, or have other columns.
    pub(super) fn test(&self, layout: &Layout) -> Result<Option<HeldOut>> {
        let (Some(processed), Some(days)) = (&self.processed, &self.days) else { return Ok(None) };
        let days_of = npz::integers(days, "total_per_file")?;
        let total = days_of.iter().try_fold(0u64, |total, day| total.checked_add(*day));
        let last = days_of.last().copied().unwrap_or(0);
        let first = total.unwrap_or(u64::MAX) - last;
        let range = first..first + last.div_ceil(2);
        let file = Columns { file: FileBytes::streamed(processed)?, total, range, days };
        Ok(Some(HeldOut { path: processed.clone(), ..file.read(layout)? }))
    }
}

/// Test samples, in memory.
pub(super) struct HeldOut {
    path: PathBuf,
    samples: Samples,
    description: Description,
}

impl HeldOut {
    /// Raises `most` to the largest row of each table that they look up.
    pub(super) fn largest(&self, most: &mut [Option<u32>]) {
        for (most, lookups) in most.iter_mut().zip(&self.samples.lookups) {
            *most = (*most).max(lookups.rows.iter().copied().max());
        }
    }

    /// The same samples of columns of these names and sizes.
    pub(super) fn described(self, description: &Description) -> Self {
        Self { description: description.clone(), ..self }
    }
}

impl Table for HeldOut {
    fn description(&self) -> &Description {
        &self.description
    }

    fn rows(&self) -> u64 {
        self.samples.len() as u64
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        Ok(Box::new(Reader { table: self, next: start as usize, read: 0 }))
    }
}

struct Reader<'a> {
    table: &'a HeldOut,
    next: usize,
    /// Samples that were read.
    read: u64,
}

impl Rows for Reader<'_> {
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize> {
        let table = self.table;
        let count = (table.samples.len() - self.next).min(limit);
        samples.extend_from(&table.samples, self.next..self.next + count, &table.description);
        self.next += count;
        self.read += count as u64;
        Ok(count)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min((self.table.samples.len() - self.next) as u64);
        self.next += count as usize;
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        let columns = 1 + self.table.description.dense.len() + self.table.description.categorical.len();
        self.read * 4 * columns as u64
    }
}

/// Some samples of the arrays of an archive.
struct Columns<'a> {
    file: Arc<FileBytes>,
    /// How many samples all days have by the file that says so.
    total: Option<u64>,
    range: Range<u64>,
    days: &'a Path,
}

impl Columns<'_> {
    fn read(&self, layout: &Layout) -> Result<HeldOut> {
        let description = layout.description(&vec![u64::from(u32::MAX); layout.tables]);
        let mut samples = Samples::new(&description);
        let is_label = |number: Number| number.whole().filter(|label| matches!(label, 0 | 1));
        self.array("y", 1, |_, number| {
            samples.labels.push(is_label(number).ok_or("a label is 0 or 1")? as f32);
            Ok(())
        })?;
        self.array("X_int", layout.dense, |column, number| {
            match &mut samples.dense[column] {
                Values::Floats(values) => values.push(number.float() as f32),
                Values::Integers(values) => {
                    let value = number.whole().and_then(|value| i32::try_from(value).ok());
                    values.push(value.ok_or("a whole number of 32 bits is expected, as in the training samples")?);
                }
            }
            Ok(())
        })?;
        self.array("X_cat", layout.tables, |column, number| {
            let row = number.whole().and_then(|row| u32::try_from(row).ok());
            samples.lookups[column].rows.push(row.ok_or("a row's number is expected")?);
            Ok(())
        })?;
        Ok(HeldOut { path: PathBuf::new(), samples, description })
    }

    /// Hands the numbers of the samples to `push`, each with its column: row by row or column by column, as they stand.
    fn array(
        &self,
        name: &str,
        columns: usize,
        mut push: impl FnMut(usize, Number) -> std::result::Result<(), &'static str>,
    ) -> Result<()> {
        let path = self.file.path();
        let array = format!("array {name}");
        let fail = |reason: String| bad(path, format!("{array}: {reason}"));
        let mut stream = BufReader::new(Member::open(&self.file, name)?);
        let header = Header::take(&mut stream, path, &array)?;
        let (rows, width) = match header.shape[..] {
            [rows] => (rows as u64, 1),
            [rows, width] => (rows as u64, width),
            _ => return Err(fail(format!("has shape {:?}; a row for each sample is expected", header.shape))),
        };
        if width != columns {
            let reason = format!(
                "has {width} columns, but the training samples have {columns}: remove the file, or copy that of the same data"
            );
            return Err(fail(reason));
        }
        if Some(rows) != self.total {
            let days = self.days.display();
            return Err(fail(format!("has {rows} samples, but {days} counts others: copy that of the same data")));
        }
        let dtype = match &*header.dtype {
            "<i4" => Dtype::Signed(4),
            "<i8" => Dtype::Signed(8),
            "<f4" => Dtype::Float(4),
            "<f8" => Dtype::Float(8),
            other => {
                let reason = format!("has dtype {other}; <i4, <i8, <f4 or <f8 expected: convert it with astype");
                return Err(fail(reason));
            }
        };
        let number = |cell: &[u8]| dtype.number(cell).expect("a cell has the size of its dtype");
        let size = usize::from(header.dtype.as_bytes()[2] - b'0');
        let Range { start, end } = self.range;
        let (turns, step) = if header.by_columns { (width, 1) } else { (1, width) };
        let mut bytes = vec![0; PORTION * size];
        for turn in 0..turns {
            skip(&mut stream, start * (step * size) as u64).map_err(|error| npy::unreadable(path, &array, &error))?;
            let mut left = (end - start) as usize * step;
            let mut done = 0;
            while left > 0 {
                if interrupt::requested() {
                    return Err(Error::Interrupted);
                }
                let portion = &mut bytes[..left.min(PORTION) * size];
                stream.read_exact(portion).map_err(|error| npy::unreadable(path, &array, &error))?;
                for cell in portion.chunks_exact(size) {
                    let column = turn + done % step;
                    let sample = start + (done / step) as u64;
                    push(column, number(cell))
                        .map_err(|reason| fault(path, sample, format!("{array} has {}: {reason}", number(cell))))?;
                    done += 1;
                }
                left -= portion.len() / size;
            }
            skip(&mut stream, (rows - end) * (step * size) as u64)
                .map_err(|error| npy::unreadable(path, &array, &error))?;
        }
        // Where the archive's checksum is compared.
        skip(&mut stream, 1).map_err(|error| npy::unreadable(path, &array, &error))
    }
}

/// Steps over bytes; fewer only where the stream ends, which the next read tells.
fn skip(stream: &mut impl Read, bytes: u64) -> std::io::Result<()> {
    std::io::copy(&mut stream.take(bytes), &mut std::io::sink()).map(|_| ())
}
