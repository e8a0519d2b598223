//! Ids of a column whose values exceed a thread's share of memory, in shards by the values' hash: a fixed number of
//! walks over the parts, however many shards there are.
//!
//! Two walks count the distinct values of all parts that fall into each shard, and bring them, with how often they
//! occur, into files in which each shard has a stretch of its own. Each shard is then hashed alone: its values get
//! numbers within it, by first appearance. Another walk takes these numbers in the order of the parts: a number that is
//! the shard's next one is a value's first appearance, which gets the next id. Each shard's numbers then become ids,
//! alone again, and the last walk brings these into the order of the parts.

use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytemuck::Pod;

use super::ids::{Column, INFREQUENT, Numbering, ids_path};
use super::part::read_at;
use crate::base::{Error, Result, interrupt};
use crate::data::key_map::{Key, KeyMap, shard};
use crate::data::unfinished::remove;
use crate::data::vocabulary::file::{self as vocabulary, Size};
use crate::memory::WholeFile;

/// The extension of files that hold shards, which a column that was not finished begins anew.
pub(super) const SHARDED: &str = "shards";
/// Numbers that are read at once of a shard that is taken alone.
const STEP: usize = 1 << 14;

/// A column in shards.
pub(super) struct Shards<'a, K> {
    numbering: &'a Numbering<'a>,
    column: &'a Column<'a>,
    /// How many there are: a power of two.
    count: u32,
    /// Distinct values of parts before each shard, and of all.
    starts: Vec<u64>,
    /// Those values; how often each occurs in its part, then its number within the shard, then its id.
    keys: Scratch<K>,
    numbers: Scratch<u32>,
}

impl<'a, K: Key> Shards<'a, K> {
    /// Brings a column's values into shards.
    pub(super) fn cut(numbering: &'a Numbering<'a>, column: &'a Column<'a>, count: u32) -> Result<Self> {
        let mut sizes = vec![0; count as usize];
        numbering.walk::<K>(column.at, false, &mut |_, keys, _| {
            keys.iter().for_each(|&key| sizes[shard(key, count) as usize] += 1);
            Ok(true)
        })?;
        let starts = starts(&sizes);
        let keys = Scratch::create(numbering, column, "keys", &starts)?;
        let numbers = Scratch::create(numbering, column, "numbers", &starts)?;
        let together = together(numbering, count);
        let (mut to, mut counts_to) = (Writer::new(&keys, &starts, together), Writer::new(&numbers, &starts, together));
        let counted = column.known.is_none();
        numbering.walk::<K>(column.at, counted, &mut |_, keys, counts| {
            for &key in keys {
                to.push(shard(key, count), key)?;
            }
            for (&key, &times) in keys.iter().zip(counts) {
                counts_to.push(shard(key, count), times)?;
            }
            Ok(true)
        })?;
        to.finish()?;
        counts_to.finish()?;
        Ok(Self { numbering, column, count, starts, keys, numbers })
    }

    /// Numbers the column; `None` when a shard does not fit.
    pub(super) fn ids(self) -> Result<Option<Size>> {
        let size = match &self.column.known {
            None => self.numbered()?,
            Some(known) => self.known(known)?,
        };
        let Some(size) = size else { return Ok(None) };
        self.gather()?;
        self.keys.remove()?;
        self.numbers.remove()?;
        Ok(Some(size))
    }

    /// Calls `each` with the values of a shard, some at a time, and with their numbers, which it changes; ends where it
    /// says so, with false.
    fn alone(&self, shard: usize, mut each: impl FnMut(&[K], &mut [u32]) -> bool) -> Result<bool> {
        let (mut keys, mut numbers) = (Vec::new(), Vec::new());
        let end = self.starts[shard + 1];
        for at in (self.starts[shard]..end).step_by(STEP) {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            let some = (end - at).min(STEP as u64) as usize;
            self.keys.read(at, some, &mut keys)?;
            self.numbers.read(at, some, &mut numbers)?;
            if !each(&keys, &mut numbers) {
                return Ok(false);
            }
            self.numbers.write(at, &numbers)?;
        }
        Ok(true)
    }

    /// Numbers of new ids; the vocabulary is written.
    fn numbered(&self) -> Result<Option<Size>> {
        let first = self.column.first.as_ref().map(|(first, _)| Known::cut(self, first)).transpose()?;
        // How often each value without an id occurs in all parts, then its id.
        let totals = Scratch::create(self.numbering, self.column, "totals", &self.starts)?;
        // Values of each shard that have an id, and that have none yet.
        let (mut known, mut distinct) = (Vec::new(), Vec::new());
        for shard in 0..self.count as usize {
            let table = match &first {
                Some(first) => first.table(self.numbering, shard, true)?,
                None => Some(KeyMap::new()),
            };
            let Some(table) = table else { return Ok(None) };
            known.push(table.len() as u32);
            let Some(found) = self.count_values(shard, table)? else { return Ok(None) };
            totals.write(self.starts[shard], &found)?;
            distinct.push(found.len());
        }
        let size = self.merge(&totals, &known)?;
        let last = u32::try_from(size.values).map_err(|_| Numbering::too_many(self.column))?;
        let (mut own, mut ids) = (Vec::new(), Vec::new());
        for (shard, (&known, &distinct)) in known.iter().zip(&distinct).enumerate() {
            if let Some(first) = &first {
                first.ids.read(first.starts[shard], known as usize, &mut own)?;
            }
            totals.read(self.starts[shard], distinct, &mut ids)?;
            ids.iter_mut().filter(|id| **id == INFREQUENT).for_each(|id| *id = last);
            self.alone(shard, |_, numbers| {
                for number in numbers {
                    *number = number.checked_sub(known).map_or_else(|| own[*number as usize], |new| ids[new as usize]);
                }
                true
            })?;
        }
        first.iter().try_for_each(Known::remove)?;
        totals.remove()?;
        Ok(Some(size))
    }

    /// Gives the values of a shard numbers within it, by first appearance, behind those in the table, which have an id;
    /// returns how often each of the others occurs.
    fn count_values(&self, shard: usize, mut table: KeyMap<K>) -> Result<Option<Vec<u32>>> {
        let known = table.len() as u32;
        let mut totals: Vec<u32> = Vec::new();
        let whole = self.alone(shard, |keys, numbers| {
            for (&key, number) in keys.iter().zip(numbers) {
                // Counts grow by doubling: three times their bytes at the worst moment.
                if !self.numbering.fits(&table, 1, 12 * totals.len()) {
                    return false;
                }
                let times = *number;
                *number = table.get_or_insert(key, known + totals.len() as u32);
                let Some(new) = number.checked_sub(known) else { continue };
                if new as usize == totals.len() {
                    totals.push(0);
                }
                let total = &mut totals[new as usize];
                *total = total.saturating_add(times);
            }
            table.len() < INFREQUENT as usize / 2
        })?;
        Ok(whole.then_some(totals))
    }

    /// Gives frequent values ids by their first appearance of all: the vocabulary, and `totals` become ids. So many
    /// values of each shard are `known`: they have the first ids.
    fn merge(&self, totals: &Scratch<u32>, known: &[u32]) -> Result<Size> {
        let together = together(self.numbering, self.count);
        let min_count = self.numbering.min_count;
        let mut vocabulary = self.numbering.begin::<K>(self.column)?;
        let mut numbers = Reader::new(&self.numbers, &self.starts, together);
        let (mut totals, mut ids) =
            (Reader::new(totals, &self.starts, together), Writer::new(totals, &self.starts, together));
        let mut seen = known.to_vec();
        let values = u32::try_from(self.column.first_values()).map_err(|_| Numbering::too_many(self.column))?;
        let (mut values, mut new) = (values, Vec::new());
        self.numbering.walk::<K>(self.column.at, false, &mut |_, keys, _| {
            new.clear();
            for &key in keys {
                let shard = shard(key, self.count);
                let seen = &mut seen[shard as usize];
                if numbers.next(shard)? < *seen {
                    continue;
                }
                *seen += 1;
                if totals.next(shard)? < min_count {
                    ids.push(shard, INFREQUENT)?;
                    continue;
                }
                if values >= INFREQUENT - 1 {
                    return Err(Numbering::too_many(self.column));
                }
                ids.push(shard, values)?;
                new.push(key);
                values += 1;
            }
            vocabulary.append(&new).map(|()| true)
        })?;
        ids.finish()?;
        vocabulary.finish()
    }

    /// Numbers of ids by a vocabulary that was made before, which is copied.
    fn known(&self, known: &Path) -> Result<Option<Size>> {
        let values = Known::cut(self, known)?;
        let size = values.size;
        let unseen = if size.unseen_row { size.values as u32 } else { INFREQUENT };
        for shard in 0..self.count as usize {
            let Some(table) = values.table(self.numbering, shard, false)? else { return Ok(None) };
            self.alone(shard, |keys, numbers| {
                keys.iter().zip(numbers).for_each(|(&key, id)| *id = table.get(key).unwrap_or(unseen));
                true
            })?;
        }
        values.remove()?;
        Numbering::copy::<K>(self.column, known, size)?;
        Ok(Some(size))
    }

    /// Writes the column's ids in the order of the parts.
    fn gather(&self) -> Result<()> {
        let mut numbers = Reader::new(&self.numbers, &self.starts, together(self.numbering, self.count));
        let mut file = WholeFile::create(&ids_path(self.numbering.work, self.column.at))?;
        let mut ids = Vec::new();
        self.numbering.walk::<K>(self.column.at, false, &mut |part, keys, _| {
            ids.clear();
            for (at, &key) in (0u32..).zip(keys) {
                let id = numbers.next(shard(key, self.count))?;
                if let (INFREQUENT, Some(known)) = (id, &self.column.known) {
                    return Err(self.numbering.unseen(self.column, known, part, at, key));
                }
                ids.push(id);
            }
            file.append(bytemuck::cast_slice(&ids)).map(|()| true)
        })?;
        file.finish_unsynced().map(|_| ())
    }
}

/// The values of a vocabulary that was made before, in the shards of a column.
struct Known<K> {
    size: Size,
    /// Values before each shard, and of all.
    starts: Vec<u64>,
    values: Scratch<K>,
    ids: Scratch<u32>,
}

impl<K: Key> Known<K> {
    /// Brings the values of a vocabulary file, and their ids, into shards.
    fn cut(shards: &Shards<'_, K>, path: &Path) -> Result<Self> {
        let Shards { numbering, column, count, .. } = *shards;
        let mut sizes = vec![0; count as usize];
        let size = vocabulary::read::<K>(path, |keys| {
            keys.iter().for_each(|&key| sizes[shard(key, count) as usize] += 1);
        })?;
        let starts = starts(&sizes);
        let together = together(numbering, count);
        let values = Scratch::create(numbering, column, "known-keys", &starts)?;
        let ids = Scratch::create(numbering, column, "known-ids", &starts)?;
        let (mut to, mut ids_to) = (Writer::new(&values, &starts, together), Writer::new(&ids, &starts, together));
        let (mut next, mut result) = (0u32, Ok(()));
        vocabulary::read::<K>(path, |keys| {
            for &key in keys {
                let shard = shard(key, count);
                if result.is_ok() {
                    result = to.push(shard, key).and_then(|()| ids_to.push(shard, next));
                }
                next = next.wrapping_add(1);
            }
        })?;
        result.and_then(|()| to.finish()).and_then(|()| ids_to.finish())?;
        Ok(Self { size, starts, values, ids })
    }

    /// The values of a shard by their ids, or by their numbers `within` it; `None` when they do not fit.
    fn table(&self, numbering: &Numbering<'_>, shard: usize, within: bool) -> Result<Option<KeyMap<K>>> {
        let mut table = KeyMap::new();
        let (mut some, mut their) = (Vec::new(), Vec::new());
        let end = self.starts[shard + 1];
        for at in (self.starts[shard]..end).step_by(STEP) {
            let count = (end - at).min(STEP as u64) as usize;
            self.values.read(at, count, &mut some)?;
            self.ids.read(at, count, &mut their)?;
            for (&key, &id) in some.iter().zip(&their) {
                if !numbering.fits(&table, 1, 0) {
                    return Ok(None);
                }
                let number = if within { table.len() as u32 } else { id };
                table.get_or_insert(key, number);
            }
        }
        Ok(Some(table))
    }

    fn remove(&self) -> Result<()> {
        self.values.remove()?;
        self.ids.remove()
    }
}

/// Numbers before each of some shards, and of all.
fn starts(sizes: &[u64]) -> Vec<u64> {
    let sums = sizes.iter().scan(0, |sum, size| {
        *sum += size;
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

/// Numbers of each shard that are read or written at once where all shards are: of three files, with 8 bytes each.
fn together(numbering: &Numbering<'_>, shards: u32) -> usize {
    (numbering.memory / (32 * u64::from(shards))).clamp(16, STEP as u64) as usize
}

/// A file with a stretch of numbers for each shard.
struct Scratch<T> {
    path: PathBuf,
    file: File,
    kind: PhantomData<T>,
}

impl<T: Pod> Scratch<T> {
    fn create(numbering: &Numbering<'_>, column: &Column<'_>, what: &str, starts: &[u64]) -> Result<Self> {
        let path = numbering.work.join(format!("{:05}-{what}.{SHARDED}", column.at));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(Error::io(&path, "create"))?;
        let bytes = starts[starts.len() - 1] * size_of::<T>() as u64;
        file.set_len(bytes).map_err(Error::io(&path, "write"))?;
        Ok(Self { path, file, kind: PhantomData })
    }

    fn read(&self, at: u64, count: usize, into: &mut Vec<T>) -> Result<()> {
        read_at(&self.file, &self.path, at * size_of::<T>() as u64, count, into)
    }

    fn write(&self, at: u64, some: &[T]) -> Result<()> {
        let written = self.file.write_all_at(bytemuck::cast_slice(some), at * size_of::<T>() as u64);
        written.map_err(Error::io(&self.path, "write"))
    }

    fn remove(&self) -> Result<()> {
        remove(&self.path)
    }
}

/// Reads the stretches of all shards side by side.
struct Reader<'a, T> {
    from: &'a Scratch<T>,
    ends: &'a [u64],
    /// What comes behind each shard's buffer, the buffer, and how much of it was taken.
    shards: Vec<(u64, Vec<T>, usize)>,
    together: usize,
}

impl<'a, T: Pod> Reader<'a, T> {
    fn new(from: &'a Scratch<T>, starts: &'a [u64], together: usize) -> Self {
        let (starts, ends) = (&starts[..starts.len() - 1], &starts[1..]);
        Self { from, ends, shards: starts.iter().map(|&start| (start, Vec::new(), 0)).collect(), together }
    }

    /// A shard's next number, which there must be.
    fn next(&mut self, shard: u32) -> Result<T> {
        let (next, buffer, taken) = &mut self.shards[shard as usize];
        if *taken == buffer.len() {
            let some = (self.ends[shard as usize] - *next).min(self.together as u64);
            self.from.read(*next, some as usize, buffer)?;
            *next += some;
            *taken = 0;
        }
        *taken += 1;
        Ok(buffer[*taken - 1])
    }
}

/// Writes the stretches of all shards side by side.
struct Writer<'a, T> {
    to: &'a Scratch<T>,
    /// Where each shard's buffer goes, and the buffer.
    shards: Vec<(u64, Vec<T>)>,
    together: usize,
}

impl<'a, T: Pod> Writer<'a, T> {
    fn new(to: &'a Scratch<T>, starts: &[u64], together: usize) -> Self {
        let starts = &starts[..starts.len() - 1];
        let shards = starts.iter().map(|&start| (start, Vec::with_capacity(together))).collect();
        Self { to, shards, together }
    }

    fn push(&mut self, shard: u32, number: T) -> Result<()> {
        let (at, buffer) = &mut self.shards[shard as usize];
        buffer.push(number);
        if buffer.len() == self.together {
            self.to.write(*at, buffer)?;
            *at += buffer.len() as u64;
            buffer.clear();
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        self.shards.iter().try_for_each(|(at, buffer)| self.to.write(*at, buffer))
    }
}
