//! What one piece of text became: integers, and for each categorical column its distinct values in the order of first
//! appearance with a code a look-up. A finished part is never made again.
//!
//! Ids are later given to distinct values only, which are far fewer than rows: a part then needs no more than one id a
//! distinct value to become rows of tables. `Head`, an `Entry` a column, then the body, all little-endian.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytemuck::{Pod, Zeroable};

use crate::base::{Error, Result};
use crate::data::blocks::codes::{append, width};
use crate::data::table::{Key, TOGETHER, Table};
use crate::data::tsv::{Columns, Tally};
use crate::memory::WholeFile;

const MAGIC: [u8; 8] = *b"OCTPART\x03";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Head {
    magic: [u8; 8],
    /// Bytes of the file.
    bytes: u64,
    /// Lines of text, good or not.
    pub(super) lines: u64,
    /// Malformed rows that were left out.
    pub(super) skipped: u64,
    /// Good rows.
    pub(super) rows: u32,
    dense: u32,
    categorical: u32,
    key_bytes: u32,
    /// Of everything behind the head.
    crc: u32,
    reserved: u32,
}

/// Where a categorical column lies in a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Entry {
    /// The distinct values begin here.
    pub(super) keys_at: u64,
    /// How many there are.
    pub(super) distinct: u32,
    /// Bytes of a code: 1, 2 or 4.
    pub(super) width: u32,
    /// How often each distinct value occurs.
    pub(super) counts_at: u64,
    /// A code a look-up.
    pub(super) codes_at: u64,
    /// Look-ups: as many as rows, unless rows have lists of values.
    pub(super) lookups: u64,
    /// Where each row's look-ups end; 0: each row has one.
    pub(super) ends_at: u64,
    /// A weight a look-up; 0: they have none.
    pub(super) weights_at: u64,
}

/// Head and entries of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) head: Head,
    pub(super) entries: Vec<Entry>,
}

/// Memory that parts are made in, reused from part to part.
#[derive(Debug, Clone)]
pub(super) struct Maker<K> {
    table: Table<K>,
    keys: Vec<K>,
    counts: Vec<u32>,
    codes: Vec<u32>,
    bytes: Vec<u8>,
}

impl<K: Key> Maker<K> {
    pub(super) fn new() -> Self {
        let (table, keys) = (Table::new(), Vec::new());
        Self { table, keys, counts: Vec::new(), codes: Vec::new(), bytes: Vec::new() }
    }

    /// Writes a part; it has its name only when it is whole.
    pub(super) fn write(
        &mut self,
        path: &Path,
        columns: &Columns<K>,
        (dense, categorical): (usize, usize),
        tally: Tally,
    ) -> Result<Contents> {
        let mut head = Head {
            magic: MAGIC,
            lines: tally.lines,
            skipped: tally.skipped,
            rows: u32::try_from(columns.rows()).expect("a piece of text has fewer rows than bytes"),
            dense: dense as u32,
            categorical: categorical as u32,
            key_bytes: size_of::<K>() as u32,
            ..Head::zeroed()
        };
        let mut entries = vec![Entry::zeroed(); categorical];
        self.bytes.clear();
        self.bytes.resize(size_of::<Head>() + categorical * size_of::<Entry>(), 0);
        self.append(&columns.labels);
        for column in 0..dense {
            self.append(columns.integers(column));
        }
        for (column, entry) in entries.iter_mut().enumerate() {
            self.number(columns.keys(column));
            entry.distinct = self.keys.len() as u32;
            entry.lookups = self.codes.len() as u64;
            if let Some(ends) = columns.ends(column) {
                entry.ends_at = self.append(ends);
            }
            if let Some(weights) = columns.weights(column) {
                entry.weights_at = self.append(weights);
            }
            let keys = std::mem::take(&mut self.keys);
            entry.keys_at = self.append(&keys);
            self.keys = keys;
            let counts = std::mem::take(&mut self.counts);
            entry.counts_at = self.append(&counts);
            self.counts = counts;
            entry.codes_at = self.bytes.len() as u64;
            let width = width(entry.distinct.saturating_sub(1)).max(1);
            append(&self.codes, width, &mut self.bytes);
            entry.width = width.into();
            self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        }
        self.bytes[size_of::<Head>()..][..categorical * size_of::<Entry>()]
            .copy_from_slice(bytemuck::cast_slice(&entries));
        head.bytes = self.bytes.len() as u64;
        head.crc = crc32fast::hash(&self.bytes[size_of::<Head>()..]);
        self.bytes[..size_of::<Head>()].copy_from_slice(bytemuck::bytes_of(&head));
        let mut file = WholeFile::create(path)?;
        file.append(&self.bytes)?;
        file.finish_unsynced()?;
        Ok(Contents { head, entries })
    }

    fn append<T: Pod>(&mut self, values: &[T]) -> u64 {
        let at = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytemuck::cast_slice(values));
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        at
    }

    /// Distinct values by first appearance, how often each occurs, and the code of every look-up.
    fn number(&mut self, values: &[K]) {
        self.table.clear();
        self.keys.clear();
        self.counts.clear();
        self.codes.clear();
        for some in values.chunks(TOGETHER) {
            for &value in some {
                let code = self.table.get_or_insert(value, self.keys.len() as u32);
                if code as usize == self.keys.len() {
                    self.keys.push(value);
                    self.counts.push(0);
                }
                self.counts[code as usize] += 1;
                self.codes.push(code);
            }
        }
    }
}

/// The head and entries of a part that was finished earlier; `None` where there is none, or a damaged one. The whole
/// part is read and held to its checksum: a machine that lost power may have lost what was not yet on the disk.
pub(super) fn finished<K: Key>(path: &Path, (dense, categorical): (usize, usize)) -> Result<Option<Contents>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(path, "read")(error)),
    };
    let Some((head, behind)) = bytes.split_at_checked(size_of::<Head>()) else { return Ok(None) };
    let head: Head = bytemuck::pod_read_unaligned(head);
    let expected = (MAGIC, bytes.len() as u64, dense as u32, categorical as u32, size_of::<K>() as u32);
    let found = (head.magic, head.bytes, head.dense, head.categorical, head.key_bytes);
    if found != expected || crc32fast::hash(behind) != head.crc {
        return Ok(None);
    }
    let entries = bytemuck::allocation::pod_collect_to_vec(&behind[..categorical * size_of::<Entry>()]);
    Ok(Some(Contents { head, entries }))
}

/// Reads `count` values at byte `at`.
pub(super) fn read_at<T: Pod>(file: &File, path: &Path, at: u64, count: usize, into: &mut Vec<T>) -> Result<()> {
    into.resize(count, T::zeroed());
    file.read_exact_at(bytemuck::cast_slice_mut(into), at).map_err(Error::io(path, "read"))
}

/// A part in memory.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// Words, so that every section lies as its type wants it.
    words: Vec<u64>,
    dense: usize,
    rows: usize,
    entries: Vec<Entry>,
}

impl Part {
    /// Reads a whole part.
    pub(super) fn read(&mut self, path: &Path, contents: &Contents) -> Result<()> {
        let file = File::open(path).map_err(Error::io(path, "open"))?;
        read_at(&file, path, 0, contents.head.bytes as usize / 8, &mut self.words)?;
        let crc = crc32fast::hash(&bytemuck::cast_slice(&self.words)[size_of::<Head>()..]);
        if crc != contents.head.crc {
            let reason = "has changed since it was written: run the same command again, which makes it anew".to_owned();
            return Err(Error::bad_file(path, reason));
        }
        (self.dense, self.rows) = (contents.head.dense as usize, contents.head.rows as usize);
        self.entries.clone_from(&contents.entries);
        Ok(())
    }

    fn values<T: Pod>(&self, at: u64, count: usize) -> &[T] {
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        bytemuck::cast_slice(&bytes[at as usize..][..count * size_of::<T>()])
    }

    fn body(&self) -> u64 {
        (size_of::<Head>() + self.entries.len() * size_of::<Entry>()) as u64
    }

    pub(super) fn labels(&self) -> &[f32] {
        self.values(self.body(), self.rows)
    }

    pub(super) fn integers(&self, column: usize) -> &[i32] {
        debug_assert!(column < self.dense);
        let stride = (4 * self.rows).next_multiple_of(8) as u64;
        self.values(self.body() + (1 + column as u64) * stride, self.rows)
    }

    /// Where each row's look-ups end, in a column of lists.
    pub(super) fn ends(&self, column: usize) -> Option<&[u32]> {
        let entry = self.entries[column];
        (entry.ends_at > 0).then(|| self.values(entry.ends_at, self.rows))
    }

    /// The look-ups of rows `range`.
    fn lookups(&self, column: usize, range: Range<usize>) -> Range<usize> {
        match self.ends(column) {
            Some(ends) => {
                let end = |row: usize| if row == 0 { 0 } else { ends[row - 1] as usize };
                end(range.start)..end(range.end)
            }
            None => range,
        }
    }

    /// The weights of the look-ups of rows `range`; none where the column has no weights.
    pub(super) fn weights(&self, column: usize, range: Range<usize>) -> &[f32] {
        let entry = self.entries[column];
        if entry.weights_at == 0 {
            return &[];
        }
        &self.values(entry.weights_at, entry.lookups as usize)[self.lookups(column, range)]
    }

    /// Appends the ids of rows `range`: `ids` has one for each distinct value of the column.
    pub(super) fn map_rows(&self, column: usize, range: Range<usize>, ids: &[u32], to: &mut Vec<u32>) {
        let (entry, range) = (self.entries[column], self.lookups(column, range));
        let (at, count) = (entry.codes_at, entry.lookups as usize);
        match entry.width {
            1 => to.extend(self.values::<u8>(at, count)[range].iter().map(|&c| ids[usize::from(c)])),
            2 => to.extend(self.values::<u16>(at, count)[range].iter().map(|&c| ids[usize::from(c)])),
            _ => to.extend(self.values::<u32>(at, count)[range].iter().map(|&c| ids[c as usize])),
        }
    }

    /// The first row that has a distinct value.
    pub(super) fn first_row_of(&self, column: usize, distinct: u32) -> usize {
        let codes: Vec<u32> = (0..self.entries[column].distinct).collect();
        let mut all = Vec::with_capacity(self.rows);
        self.map_rows(column, 0..self.rows, &codes, &mut all);
        let lookup = all.iter().position(|&code| code == distinct).unwrap_or(0);
        self.ends(column).map_or(lookup, |ends| ends.partition_point(|&end| end as usize <= lookup))
    }
}
