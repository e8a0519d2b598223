//! The values of one column of one row group, from any row on, as integers or floats with their levels.

use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::columns::{Kind, Leaf};
use crate::base::panics::answered;
use crate::memory::{FileBytes, FileCursor};

/// Bytes that are read for a page's head, which has some dozens.
const HEAD_BYTES: usize = 512;

/// A file, and how many of its bytes one reader has asked for.
pub(super) struct Counted {
    file: Arc<FileBytes>,
    pub(super) read: AtomicU64,
}

impl Counted {
    /// Nothing was asked for yet.
    pub(super) fn new(file: &Arc<FileBytes>) -> Self {
        Self { file: Arc::clone(file), read: AtomicU64::new(0) }
    }
}

impl Length for Counted {
    fn len(&self) -> u64 {
        self.file.len() as u64
    }
}

impl ChunkReader for Counted {
    type T = BufReader<FileCursor>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let start = usize::try_from(start).ok().filter(|&start| start <= self.file.len());
        let start = start.ok_or_else(|| ParquetError::EOF("a page lies beyond the file".to_owned()))?;
        Ok(BufReader::with_capacity(HEAD_BYTES, self.file.cursor(start)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let range = usize::try_from(start).ok().and_then(|start| Some(start..start.checked_add(length)?));
        let range = range.filter(|range| range.end <= self.file.len());
        let range = range.ok_or_else(|| ParquetError::EOF("a page ends beyond the file".to_owned()))?;
        // Relaxed: one reader counts for itself.
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        let mut bytes = vec![0; length];
        self.file.fill(range.start, &mut bytes)?;
        Ok(bytes.into())
    }
}

/// What was read of a column; `integers` or `floats` by its kind, only values that are there.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) integers: Vec<i64>,
    pub(super) floats: Vec<f32>,
    /// Definition levels, where a value or a list may be missing; otherwise empty.
    pub(super) present: Vec<i16>,
    /// Repetition levels of lists: 0 begins a row.
    pub(super) again: Vec<i16>,
}

/// Runs what the library does with bytes of a file. Some damage makes it panic; that is an error of the file like
/// others.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // Whoever gets an error of a reader drops that reader.
    answered(work).unwrap_or_else(|words| Err(ParquetError::General(format!("its bytes make no sense: {words}"))))
}

/// The values of the column `at` of a row group, from its first row on.
pub(super) fn values(file: &Arc<Counted>, metadata: &ParquetMetaData, group: usize, at: usize) -> Result<ColumnReader> {
    let part = metadata.row_group(group);
    let chunk = part.column(at);
    let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
    let range = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
    let end = range.and_then(|(start, bytes)| start.checked_add(bytes));
    if end.is_none_or(|end| end > file.len()) {
        return Err(ParquetError::EOF("it lies beyond the file".to_owned()));
    }
    let unread = match chunk.compression() {
        Compression::BROTLI(_) => "brotli",
        Compression::LZO => "LZO",
        _ => "",
    };
    if !unread.is_empty() {
        return Err(ParquetError::NYI(format!("it is packed with {unread}")));
    }
    let pages = SerializedPageReader::new(Arc::clone(file), chunk, usize::try_from(part.num_rows())?, None)?;
    Ok(get_column_reader(chunk.column_descr_ptr(), Box::new(pages)))
}

/// A position in a column of a row group.
pub(super) struct Numbers {
    reader: ColumnReader,
    unsigned: bool,
    /// Whether it has none, by its type.
    blank: bool,
}

impl Numbers {
    /// Enters a row group at its row `skip`.
    pub(super) fn open(
        file: &Arc<Counted>,
        metadata: &ParquetMetaData,
        group: usize,
        leaf: &Leaf,
        skip: usize,
    ) -> Result<Self> {
        guarded(|| Self::enter(file, metadata, group, leaf, skip))
    }

    fn enter(file: &Arc<Counted>, metadata: &ParquetMetaData, group: usize, leaf: &Leaf, skip: usize) -> Result<Self> {
        let reader = values(file, metadata, group, leaf.at)?;
        let (unsigned, blank) = (leaf.kind == Kind::Whole { unsigned: true }, leaf.kind == Kind::Blank);
        let mut numbers = Self { reader, unsigned, blank };
        numbers.pass(skip)?;
        Ok(numbers)
    }

    /// Steps over rows; pages of theirs alone are not decoded.
    pub(super) fn skip(&mut self, rows: usize) -> Result<()> {
        guarded(|| self.pass(rows))
    }

    fn pass(&mut self, rows: usize) -> Result<()> {
        let skipped = match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => reader.skip_records(rows)?,
            ColumnReader::Int32ColumnReader(reader) => reader.skip_records(rows)?,
            ColumnReader::Int64ColumnReader(reader) => reader.skip_records(rows)?,
            ColumnReader::FloatColumnReader(reader) => reader.skip_records(rows)?,
            ColumnReader::DoubleColumnReader(reader) => reader.skip_records(rows)?,
            _ => unreachable!("other types were refused when the file was opened"),
        };
        if skipped < rows { Err(short(skipped)) } else { Ok(()) }
    }

    /// The next `rows` rows.
    pub(super) fn read(&mut self, rows: usize, into: &mut Scratch) -> Result<()> {
        guarded(|| self.take(rows, into))
    }

    fn take(&mut self, rows: usize, into: &mut Scratch) -> Result<()> {
        let Scratch { integers, floats, present, again } = into;
        for levels in [&mut *present, &mut *again] {
            levels.clear();
        }
        integers.clear();
        floats.clear();
        let (levels, unsigned) = ((present, again), self.unsigned);
        match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => records(reader, rows, levels, integers, i64::from),
            ColumnReader::Int32ColumnReader(reader) if unsigned => {
                records(reader, rows, levels, integers, |value| i64::from(value as u32))
            }
            ColumnReader::Int32ColumnReader(reader) => records(reader, rows, levels, integers, i64::from),
            ColumnReader::Int64ColumnReader(reader) => records(reader, rows, levels, integers, |value| value),
            ColumnReader::FloatColumnReader(reader) => records(reader, rows, levels, floats, |value| value),
            ColumnReader::DoubleColumnReader(reader) => records(reader, rows, levels, floats, |value| value as f32),
            _ => unreachable!("other types were refused when the file was opened"),
        }?;
        if self.blank && !integers.is_empty() {
            return Err(ParquetError::General("its type says that it has no values, but it has some".to_owned()));
        }
        Ok(())
    }
}

/// Appends the next `rows` rows of a column: their values, by `number`, and their levels.
pub(super) fn records<T: DataType, N>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    (present, again): (&mut Vec<i16>, &mut Vec<i16>),
    numbers: &mut Vec<N>,
    number: impl Fn(T::T) -> N,
) -> Result<()> {
    let (mut values, mut read) = (Vec::new(), 0);
    while read < rows {
        let (records, ..) = reader.read_records(rows - read, Some(present), Some(again), &mut values)?;
        if records == 0 {
            return Err(short(read));
        }
        read += records;
    }
    numbers.extend(values.into_iter().map(number));
    Ok(())
}

fn short(rows: usize) -> ParquetError {
    ParquetError::EOF(format!("it ends {rows} rows further on"))
}
