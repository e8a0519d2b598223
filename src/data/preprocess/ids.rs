//! Ids by order of first appearance, from the distinct values of the parts: facebookresearch/dlrm's `data_utils.py`
//! walks over rows and gives each new value the next number, days in order.
//!
//! Within a part distinct values stand in the order of first appearance, and parts in the order of the text: a walk
//! over the distinct values of all parts meets every value's first appearance in the order of the rows. Columns are
//! independent of each other. A column whose table would exceed its share of memory is taken in
//! [shards](super::shards), of which one at a time is in memory. Where a vocabulary grows, its values have the first
//! ids, and new ones those behind them.
//!
//! The result of a column: its vocabulary, and a file with one id for each distinct value of each part.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::gather::Source;
use super::part::{Part, read_at};
use super::progress::{Meter, Stage};
use super::shards::Shards;
use crate::base::{Error, Result, interrupt};
use crate::data::key_map::{Key, KeyMap, TOGETHER};
use crate::data::vocabulary::file::{self as vocabulary, Size};
use crate::memory::WholeFile;

/// In place of an id: the value is too infrequent to have one, or a vocabulary lacks it.
pub(super) const INFREQUENT: u32 = u32::MAX;
/// More shards than this would help nobody: a column has 2^32 rows at most.
const SHARDS_MOST: u32 = 1 << 12;

/// What all columns have in common.
pub(super) struct Numbering<'a> {
    pub(super) parts: &'a [Source],
    /// Where the ids go.
    pub(super) work: &'a Path,
    /// Values seen less often share the last row; 0: every value has a row of its own, and unseen ones have none.
    pub(super) min_count: u32,
    /// Bytes of memory for one column.
    pub(super) memory: u64,
    pub(super) meter: &'a Meter<'a>,
}

/// A column that is being numbered.
pub(super) struct Column<'a> {
    /// Which of the parts' columns.
    pub(super) at: usize,
    pub(super) name: &'a str,
    /// Where its vocabulary goes.
    pub(super) vocabulary: PathBuf,
    /// The vocabulary that is used as it is, instead of a new one.
    pub(super) known: Option<PathBuf>,
    /// The vocabulary whose values have the first ids of a new one, and what it says of itself.
    pub(super) first: Option<(PathBuf, Size)>,
}

impl Column<'_> {
    /// Values that have the first ids.
    pub(super) fn first_values(&self) -> u64 {
        self.first.as_ref().map_or(0, |(_, size)| size.values)
    }
}

/// Where a column's ids are.
pub(super) fn ids_path(work: &Path, column: usize) -> PathBuf {
    work.join(format!("{column:05}.ids"))
}

/// Is given a part's distinct values and how often each occurs; says whether to go on.
type Visit<'a, K> = dyn FnMut(&Source, &[K], &[u32]) -> Result<bool> + 'a;

impl Numbering<'_> {
    /// Numbers a column, unless that was done before.
    pub(super) fn number<K: Key>(&self, column: &Column<'_>) -> Result<Size> {
        let path = ids_path(self.work, column.at);
        let positions: u64 = self.parts.iter().map(|part| u64::from(part.contents.entries[column.at].distinct)).sum();
        if fs::metadata(&path).is_ok_and(|data| data.len() == 4 * positions) {
            self.meter.add(Stage::Ids, positions);
            return vocabulary::read::<K>(&column.vocabulary, |_| ());
        }
        let whole = match &column.known {
            Some(known) => self.by_known::<K>(column, known)?,
            None if self.min_count == 0 => self.at_once::<K>(column)?,
            None => self.frequent_at_once::<K>(column)?,
        };
        let size = match whole {
            Some(size) => size,
            None => self.in_shards::<K>(column, positions)?,
        };
        self.meter.add(Stage::Ids, positions);
        Ok(size)
    }

    /// Numbers a column that does not fit as a whole, of so many distinct values of parts.
    fn in_shards<K: Key>(&self, column: &Column<'_>, positions: u64) -> Result<Size> {
        let values = match &column.known {
            Some(known) => vocabulary::read::<K>(known, |_| ())?.values,
            None => positions + column.first_values(),
        };
        // Enough if all are different: a table as it grows, at its emptiest, and counts.
        let bytes = values * (6 * size_of::<(K, u32)>() + 12) as u64;
        let enough = bytes.div_ceil(self.memory.max(1)).clamp(2, SHARDS_MOST.into()) as u32;
        let mut shards = enough.next_power_of_two();
        while shards <= SHARDS_MOST {
            if let Some(size) = Shards::<K>::cut(self, column, shards)?.ids()? {
                return Ok(size);
            }
            shards *= 2;
        }
        Err(Error::config(
            "--memory",
            format!("column {} needs more memory than {} bytes: give more", column.name, self.memory),
        ))
    }

    /// Walks over the distinct values of the parts, and how often each occurs in its part if `counted`.
    pub(super) fn walk<K: Key>(&self, at: usize, counted: bool, visit: &mut Visit<'_, K>) -> Result<bool> {
        let (mut keys, mut counts) = (Vec::new(), Vec::new());
        for part in self.parts {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            let entry = part.contents.entries[at];
            let file = File::open(&part.path).map_err(Error::io(&part.path, "open"))?;
            read_at(&file, &part.path, entry.keys_at, entry.distinct as usize, &mut keys)?;
            if counted {
                read_at(&file, &part.path, entry.counts_at, entry.distinct as usize, &mut counts)?;
            }
            if !visit(part, &keys, &counts)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes a column whose values are rows already: buckets and hashes.
    pub(super) fn as_they_are<K: Key>(&self, at: usize) -> Result<()> {
        let mut file = WholeFile::create(&ids_path(self.work, at))?;
        let mut rows = Vec::new();
        self.walk::<K>(at, false, &mut |_, keys, _| {
            rows.clear();
            rows.extend(keys.iter().map(|key| key.row()));
            self.meter.add(Stage::Ids, keys.len() as u64);
            file.append(bytemuck::cast_slice(&rows)).map(|()| true)
        })?;
        file.finish_unsynced().map(|_| ())
    }

    pub(super) fn too_many(column: &Column<'_>) -> Error {
        let reason = "has more than 2^32 - 2 different values: raise --min-count".to_owned();
        Error::config(format!("column {}", column.name), reason)
    }

    /// One walk with all values in memory; `None` when they do not fit.
    fn at_once<K: Key>(&self, column: &Column<'_>) -> Result<Option<Size>> {
        let Some(mut table) = self.first::<K>(column)? else { return Ok(None) };
        let mut vocabulary = self.begin::<K>(column)?;
        let path = ids_path(self.work, column.at);
        let mut file = WholeFile::create(&path)?;
        let (mut ids, mut new) = (Vec::new(), Vec::new());
        let whole = self.walk::<K>(column.at, false, &mut |_, keys, _| {
            ids.clear();
            new.clear();
            for some in keys.chunks(TOGETHER) {
                if !self.fits(&table, some.len(), 0) {
                    return Ok(false);
                }
                table.touch(some);
                for &key in some {
                    let next = table.len() as u32;
                    let id = table.get_or_insert(key, next);
                    if id == next {
                        new.push(key);
                    }
                    ids.push(id);
                }
            }
            if table.len() >= INFREQUENT as usize - TOGETHER {
                return Err(Self::too_many(column));
            }
            vocabulary.append(&new)?;
            file.append(bytemuck::cast_slice(&ids)).map(|()| true)
        })?;
        if !whole {
            return Ok(None);
        }
        let size = vocabulary.finish()?;
        file.finish_unsynced()?;
        Ok(Some(size))
    }

    pub(super) fn fits<K: Key>(&self, table: &KeyMap<K>, more: usize, beside: usize) -> bool {
        !table.may_grow(more) || table.bytes_after_growth() + beside as u64 <= self.memory
    }

    /// Two walks with all values in memory, where those that are infrequent are left out.
    fn frequent_at_once<K: Key>(&self, column: &Column<'_>) -> Result<Option<Size>> {
        let Some(mut table) = self.first::<K>(column)? else { return Ok(None) };
        let first = table.len();
        // How often each value occurs, by first appearance, behind those that have their ids; then its id.
        let mut totals: Vec<u32> = (0..first as u32).collect();
        let whole = self.walk::<K>(column.at, true, &mut |_, keys, counts| {
            for (some, counts) in keys.chunks(TOGETHER).zip(counts.chunks(TOGETHER)) {
                // Counts grow by doubling: three times their bytes at the worst moment.
                if !self.fits(&table, some.len(), 12 * totals.len()) {
                    return Ok(false);
                }
                table.touch(some);
                for (&key, &count) in some.iter().zip(counts) {
                    let at = table.get_or_insert(key, totals.len() as u32) as usize;
                    if at == totals.len() {
                        totals.push(0);
                    }
                    if at >= first {
                        totals[at] = totals[at].saturating_add(count);
                    }
                }
            }
            Ok(table.len() < INFREQUENT as usize / 2)
        })?;
        if !whole {
            return Ok(None);
        }
        let mut vocabulary = self.begin::<K>(column)?;
        let mut file = WholeFile::create(&ids_path(self.work, column.at))?;
        let frequent = totals[first..].iter().filter(|&&total| total >= self.min_count).count();
        let last = (first + frequent) as u32;
        let (mut seen, mut next, mut ids, mut new) = (first, first as u32, Vec::new(), Vec::new());
        self.walk::<K>(column.at, false, &mut |_, keys, _| {
            ids.clear();
            new.clear();
            for some in keys.chunks(TOGETHER) {
                table.touch(some);
                for &key in some {
                    let at = table.get(key).expect("every value was seen") as usize;
                    if at == seen {
                        seen += 1;
                        let frequent = totals[at] >= self.min_count;
                        totals[at] = if frequent { next } else { last };
                        next += u32::from(frequent);
                        new.extend(frequent.then_some(key));
                    }
                    ids.push(totals[at]);
                }
            }
            vocabulary.append(&new)?;
            file.append(bytemuck::cast_slice(&ids)).map(|()| true)
        })?;
        let size = vocabulary.finish()?;
        file.finish_unsynced()?;
        Ok(Some(size))
    }

    /// The values of a vocabulary, by their ids, and what it says of itself; `None` when they do not fit.
    fn table<K: Key>(&self, of: &Path) -> Result<Option<(KeyMap<K>, Size)>> {
        let mut table = KeyMap::new();
        let (mut next, mut whole) = (0u32, true);
        let size = vocabulary::read::<K>(of, |keys| {
            for &key in keys {
                whole = whole && self.fits(&table, 1, 0);
                if whole {
                    table.get_or_insert(key, next);
                }
                next = next.wrapping_add(1);
            }
        })?;
        Ok(whole.then_some((table, size)))
    }

    /// The values of a column that have the first ids, by these; `None` when they do not fit.
    fn first<K: Key>(&self, column: &Column<'_>) -> Result<Option<KeyMap<K>>> {
        match &column.first {
            Some((first, _)) => Ok(self.table::<K>(first)?.map(|(table, _)| table)),
            None => Ok(Some(KeyMap::new())),
        }
    }

    /// Begins a column's vocabulary, with the values that have the first ids.
    pub(super) fn begin<K: Key>(&self, column: &Column<'_>) -> Result<vocabulary::Writer> {
        match &column.first {
            Some((first, size)) => Self::copied::<K>(column, first, *size),
            None => vocabulary::Writer::create::<K>(&column.vocabulary, self.min_count > 0),
        }
    }

    /// Ids by a vocabulary that was made before, which is in memory as a whole.
    fn by_known<K: Key>(&self, column: &Column<'_>, known: &Path) -> Result<Option<Size>> {
        let Some((table, size)) = self.table::<K>(known)? else { return Ok(None) };
        let mut file = WholeFile::create(&ids_path(self.work, column.at))?;
        let mut ids = Vec::new();
        self.walk::<K>(column.at, false, &mut |part, keys, _| {
            ids.clear();
            for (at, &key) in (0u32..).zip(keys) {
                ids.push(match (table.get(key), size.unseen_row) {
                    (Some(id), _) => id,
                    (None, true) => size.values as u32,
                    (None, false) => return Err(self.unseen(column, known, part, at, key)),
                });
            }
            file.append(bytemuck::cast_slice(&ids)).map(|()| true)
        })?;
        Self::copy::<K>(column, known, size)?;
        file.finish_unsynced()?;
        Ok(Some(size))
    }

    /// Copies a vocabulary, which goes with the data; a copy has its name only when it is whole.
    pub(super) fn copy<K: Key>(column: &Column<'_>, known: &Path, size: Size) -> Result<()> {
        Self::copied::<K>(column, known, size)?.finish().map(|_| ())
    }

    /// A column's vocabulary on its way to its file, with the values of another one.
    fn copied<K: Key>(column: &Column<'_>, known: &Path, size: Size) -> Result<vocabulary::Writer> {
        let mut copy = vocabulary::Writer::create::<K>(&column.vocabulary, size.unseen_row)?;
        let mut result = Ok(());
        vocabulary::read::<K>(known, |keys| {
            if result.is_ok() {
                result = copy.append(keys);
            }
        })?;
        result.map(|()| copy)
    }

    /// The error that names the first row of a part with a value that a vocabulary lacks.
    pub(super) fn unseen<K: Key>(&self, column: &Column<'_>, known: &Path, part: &Source, at: u32, key: K) -> Error {
        let mut whole = Part::default();
        if let Err(error) = whole.read(&part.path, &part.contents) {
            return error;
        }
        let before = self.parts.iter().filter(|other| other.input == part.input && other.piece < part.piece);
        let lines: u64 = before.map(|other| other.contents.head.lines).sum();
        let row = lines + whole.first_row_of(column.at, at) as u64 + 1;
        let around = if part.contents.head.skipped == 0 { "row" } else { "about row" };
        let reason = format!(
            "{around} {row} of input file {}: column {} has the value {}, which is not in this vocabulary, and it has no row \
             for unseen values: is it of other data? Otherwise give new values rows with --grow, or make it with \
             --min-count 1 or more",
            part.input + 1,
            column.name,
            key.shown()
        );
        Error::bad_file(known, reason)
    }
}
