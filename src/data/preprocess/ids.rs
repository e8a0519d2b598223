//! Ids by order of first appearance, from the distinct values of the parts: facebookresearch/dlrm's `data_utils.py`
//! walks over rows and gives each new value the next number, days in order.
//!
//! Within a part distinct values stand in the order of first appearance, and parts in the order of the text: a walk
//! over the distinct values of all parts meets every value's first appearance in the order of the rows. Columns are
//! independent of each other. A column whose table would exceed its share of memory is taken in shards by hash: each
//! shard notes the position of every first appearance, and merging these sorted lists gives the numbers; the values of
//! one shard at a time are in memory.
//!
//! The result of a column: its vocabulary, and a file with one id for each distinct value of each part.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytemuck::Pod;

use super::disk::{Growing, cannot_write, remove};
use super::gather::Source;
use super::part::{Part, read_at};
use super::progress::{Meter, Stage};
use super::vocabulary::{self, Size};
use crate::base::{Error, Result, interrupt};
use crate::data::table::{Key, TOGETHER, Table, shard};

/// In place of an id: the value is too infrequent to have one.
const INFREQUENT: u32 = u32::MAX;
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
}

/// Where a column's ids are.
pub(super) fn ids_path(work: &Path, column: usize) -> PathBuf {
    work.join(format!("{column:05}.ids"))
}

/// A shard's first appearance of a value.
#[derive(Clone, Copy)]
struct First<K> {
    position: u64,
    key: K,
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
        let mut shards = 1;
        loop {
            let size = match &column.known {
                Some(known) => self.by_known::<K>(column, known, shards)?,
                None if shards == 1 && self.min_count == 0 => self.at_once::<K>(column)?,
                None => self.in_shards::<K>(column, shards)?,
            };
            if let Some(size) = size {
                self.meter.add(Stage::Ids, positions);
                return Ok(size);
            }
            shards *= 2;
            if shards > SHARDS_MOST {
                return Err(Error::config(
                    "--memory",
                    format!("column {} needs more memory than {} bytes: give more", column.name, self.memory),
                ));
            }
        }
    }

    /// Walks over the distinct values of the parts, and how often each occurs in its part if `counted`.
    fn walk<K: Key>(&self, at: usize, counted: bool, visit: &mut Visit<'_, K>) -> Result<bool> {
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
        let mut file = Growing::create(&ids_path(self.work, at))?;
        let mut rows = Vec::new();
        self.walk::<K>(at, false, &mut |_, keys, _| {
            rows.clear();
            rows.extend(keys.iter().map(|key| key.row()));
            self.meter.add(Stage::Ids, keys.len() as u64);
            file.append(bytemuck::cast_slice(&rows)).map(|()| true)
        })?;
        file.finish()
    }

    fn too_many(column: &Column<'_>) -> Error {
        let reason = "has more than 2^32 - 2 different values: raise --min-count".to_owned();
        Error::config(format!("column {}", column.name), reason)
    }

    /// One walk with all values in memory; `None` when they do not fit.
    fn at_once<K: Key>(&self, column: &Column<'_>) -> Result<Option<Size>> {
        let mut table = Table::new();
        let mut vocabulary = vocabulary::Writer::create::<K>(&column.vocabulary, false)?;
        let path = ids_path(self.work, column.at);
        let mut file = Growing::create(&path)?;
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
        file.finish()?;
        Ok(Some(size))
    }

    fn fits<K: Key>(&self, table: &Table<K>, more: usize, beside: usize) -> bool {
        !table.may_grow(more) || table.bytes_after_growth() + beside as u64 <= self.memory
    }

    fn shard_file(&self, column: &Column<'_>, shard: u32, what: &str) -> PathBuf {
        self.work.join(format!("{:05}-{shard:05}.{what}", column.at))
    }

    /// The same in shards, and with infrequent values left out; `None` when a shard does not fit.
    fn in_shards<K: Key>(&self, column: &Column<'_>, shards: u32) -> Result<Option<Size>> {
        for number in 0..shards {
            if !self.note_firsts::<K>(column, shards, number)? {
                return Ok(None);
            }
        }
        let size = self.merge_firsts::<K>(column, shards)?;
        let path = ids_path(self.work, column.at);
        let last = u32::try_from(size.values).map_err(|_| Self::too_many(column))?;
        let mut ids = Ids::create(&path)?;
        for number in 0..shards {
            let (locals, globals) =
                (self.shard_file(column, number, "locals"), self.shard_file(column, number, "globals"));
            let globals: Vec<u32> =
                bytemuck::allocation::pod_collect_to_vec(&fs::read(&globals).map_err(Error::io(&globals, "read"))?);
            let mut locals = Reader::<u32>::open(&locals)?;
            ids.rewind();
            self.walk::<K>(column.at, false, &mut |_, keys, _| {
                ids.change(keys.len(), number > 0, |ids| {
                    for (id, &key) in ids.iter_mut().zip(keys) {
                        if shard(key, shards) == number {
                            let local = locals.next()?.expect("one for each value of the shard");
                            let global = globals[local as usize];
                            *id = if global == INFREQUENT { last } else { global };
                        }
                    }
                    Ok(())
                })?;
                Ok(true)
            })?;
        }
        ids.finish()?;
        for number in 0..shards {
            for what in ["locals", "globals", "firsts", "counts"] {
                remove(&self.shard_file(column, number, what))?;
            }
        }
        Ok(Some(size))
    }

    /// Walks over one shard: its values by first appearance, how often each occurs, and the number within the shard of
    /// every distinct value of every part.
    fn note_firsts<K: Key>(&self, column: &Column<'_>, shards: u32, number: u32) -> Result<bool> {
        let mut table = Table::new();
        let mut totals: Vec<u32> = Vec::new();
        let mut locals = Growing::create(&self.shard_file(column, number, "locals"))?;
        let mut firsts = Growing::create(&self.shard_file(column, number, "firsts"))?;
        let mut position = 0u64;
        let (mut some, mut numbers, mut new) = (Vec::new(), Vec::new(), Vec::new());
        let whole = self.walk::<K>(column.at, true, &mut |_, keys, counts| {
            some.clear();
            some.extend(
                (0u32..).zip(keys).filter(|&(_, &key)| shard(key, shards) == number).map(|(at, &key)| (at, key)),
            );
            numbers.clear();
            new.clear();
            for &(at, key) in &some {
                // Counts grow by doubling: three times their bytes at the worst moment.
                if !self.fits(&table, 1, 12 * totals.len()) {
                    return Ok(false);
                }
                let next = table.len() as u32;
                let local = table.get_or_insert(key, next);
                if local == next {
                    new.extend_from_slice(bytemuck::bytes_of(&(position + u64::from(at))));
                    new.extend_from_slice(bytemuck::bytes_of(&key));
                    totals.push(0);
                }
                let total = &mut totals[local as usize];
                *total = total.saturating_add(counts[at as usize]);
                numbers.push(local);
            }
            if table.len() >= INFREQUENT as usize / 2 {
                return Ok(false);
            }
            position += keys.len() as u64;
            firsts.append(&new)?;
            locals.append(bytemuck::cast_slice(&numbers)).map(|()| true)
        })?;
        if whole {
            locals.finish()?;
            firsts.finish()?;
            let mut counts = Growing::create(&self.shard_file(column, number, "counts"))?;
            counts.append(bytemuck::cast_slice(&totals))?;
            counts.finish()?;
        }
        Ok(whole)
    }

    /// Merges the shards' first appearances: the vocabulary, and for each shard the ids of its values.
    fn merge_firsts<K: Key>(&self, column: &Column<'_>, shards: u32) -> Result<Size> {
        struct Shard<K> {
            positions: FirstReader<K>,
            counts: Reader<u32>,
            globals: Growing,
            next: Option<First<K>>,
        }
        let mut all = Vec::with_capacity(shards as usize);
        for number in 0..shards {
            let mut positions = FirstReader::<K>::open(&self.shard_file(column, number, "firsts"))?;
            let counts = Reader::open(&self.shard_file(column, number, "counts"))?;
            let globals = Growing::create(&self.shard_file(column, number, "globals"))?;
            let next = positions.next()?;
            all.push(Shard { positions, counts, globals, next });
        }
        let mut vocabulary = vocabulary::Writer::create::<K>(&column.vocabulary, self.min_count > 0)?;
        let mut values = 0u64;
        while let Some((first, from)) =
            all.iter_mut().filter_map(|shard| Some((shard.next?, shard))).min_by_key(|(first, _)| first.position)
        {
            let count = from.counts.next()?.expect("a count for each value");
            let frequent = count >= self.min_count;
            let id = if frequent { u32::try_from(values).map_err(|_| Self::too_many(column))? } else { INFREQUENT };
            from.globals.append(bytemuck::bytes_of(&id))?;
            if frequent {
                if id >= INFREQUENT - 1 {
                    return Err(Self::too_many(column));
                }
                vocabulary.append(&[first.key])?;
                values += 1;
            }
            from.next = from.positions.next()?;
        }
        for shard in all {
            shard.globals.finish()?;
        }
        vocabulary.finish()
    }

    /// Ids by a vocabulary that was made before.
    fn by_known<K: Key>(&self, column: &Column<'_>, known: &Path, shards: u32) -> Result<Option<Size>> {
        let path = ids_path(self.work, column.at);
        let mut ids = Ids::create(&path)?;
        let mut size = Size { values: 0, unseen_row: false };
        for number in 0..shards {
            let mut table = Table::new();
            let (mut next, mut whole) = (0u32, true);
            size = vocabulary::read::<K>(known, |keys| {
                for &key in keys {
                    whole = whole && self.fits(&table, 1, 0);
                    if whole && shard(key, shards) == number {
                        table.get_or_insert(key, next);
                    }
                    next = next.wrapping_add(1);
                }
            })?;
            if !whole {
                return Ok(None);
            }
            ids.rewind();
            self.walk::<K>(column.at, false, &mut |part, keys, _| {
                ids.change(keys.len(), number > 0, |ids| {
                    for (at, (id, &key)) in (0u32..).zip(ids.iter_mut().zip(keys)) {
                        if shard(key, shards) == number {
                            *id = match (table.get(key), size.unseen_row) {
                                (Some(id), _) => id,
                                (None, true) => size.values as u32,
                                (None, false) => return Err(self.unseen(column, known, part, at, key)),
                            };
                        }
                    }
                    Ok(())
                })?;
                Ok(true)
            })?;
        }
        // The vocabulary goes with the data; a copy has its name only when it is whole.
        let mut copy = vocabulary::Writer::create::<K>(&column.vocabulary, size.unseen_row)?;
        let mut result = Ok(());
        vocabulary::read::<K>(known, |keys| {
            if result.is_ok() {
                result = copy.append(keys);
            }
        })?;
        result.and_then(|()| copy.finish())?;
        ids.finish()?;
        Ok(Some(size))
    }

    /// The error that names the first row of a part with a value that a vocabulary lacks.
    fn unseen<K: Key>(&self, column: &Column<'_>, known: &Path, part: &Source, at: u32, key: K) -> Error {
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
             for unseen values: is it of other data? Otherwise make it with --min-count 1 or more",
            part.input + 1,
            column.name,
            key.shown()
        );
        Error::bad_file(known, reason)
    }
}

/// A file of ids that several walks fill in, part after part.
struct Ids {
    path: PathBuf,
    file: File,
    at: u64,
    some: Vec<u32>,
}

impl Ids {
    fn partial(path: &Path) -> PathBuf {
        path.with_extension("ids-partial")
    }

    fn create(path: &Path) -> Result<Self> {
        let partial = Self::partial(path);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&partial);
        Ok(Self { path: path.to_owned(), file: file.map_err(Error::io(path, "create"))?, at: 0, some: Vec::new() })
    }

    fn rewind(&mut self) {
        self.at = 0;
    }

    /// Lets `change` see and change the next `count` ids.
    fn change(&mut self, count: usize, written: bool, change: impl FnOnce(&mut [u32]) -> Result<()>) -> Result<()> {
        self.some.clear();
        self.some.resize(count, 0);
        if written {
            let bytes = bytemuck::cast_slice_mut(&mut self.some);
            self.file.read_exact_at(bytes, self.at).map_err(Error::io(&self.path, "read"))?;
        }
        change(&mut self.some)?;
        self.file.write_all_at(bytemuck::cast_slice(&self.some), self.at).map_err(cannot_write(&self.path))?;
        self.at += 4 * count as u64;
        Ok(())
    }

    fn finish(self) -> Result<()> {
        fs::rename(Self::partial(&self.path), &self.path).map_err(cannot_write(&self.path))
    }
}

/// Numbers from a file, one after the other.
struct Reader<T> {
    path: PathBuf,
    file: BufReader<File>,
    kind: std::marker::PhantomData<T>,
}

impl<T: Pod> Reader<T> {
    fn open(path: &Path) -> Result<Self> {
        let file = BufReader::with_capacity(1 << 16, File::open(path).map_err(Error::io(path, "open"))?);
        Ok(Self { path: path.to_owned(), file, kind: std::marker::PhantomData })
    }

    fn next(&mut self) -> Result<Option<T>> {
        let mut value = T::zeroed();
        match self.file.read_exact(bytemuck::bytes_of_mut(&mut value)) {
            Ok(()) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(Error::io(&self.path, "read")(error)),
        }
    }
}

/// First appearances from a file: a position, then a value.
struct FirstReader<K>(Reader<u64>, std::marker::PhantomData<K>);

impl<K: Key> FirstReader<K> {
    fn open(path: &Path) -> Result<Self> {
        Ok(Self(Reader::open(path)?, std::marker::PhantomData))
    }

    fn next(&mut self) -> Result<Option<First<K>>> {
        let Some(position) = self.0.next()? else { return Ok(None) };
        let mut key = K::default();
        self.0.file.read_exact(bytemuck::bytes_of_mut(&mut key)).map_err(Error::io(&self.0.path, "read"))?;
        Ok(Some(First { position, key }))
    }
}
