//! The values behind a column's row numbers, in a file beside the manifest: new data is mapped by it as the old was.
//!
//! A head of 32 bytes with the checksums of the values and of itself, then the values in the order of their ids,
//! little-endian. Criteo's values are the 32-bit words that the log writes in hexadecimal; values of other tables are
//! 64-bit fingerprints of their text ([`fingerprint`]).

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use bytemuck::{Pod, Zeroable};

use crate::base::{Error, Result, input, interrupt};
use crate::data::Growth;
use crate::data::fingerprint::of_bytes;
use crate::data::key_map::Key;
use crate::data::schema::{Categorical, Description};
use crate::memory::WholeFile;

/// How a file begins whose head has no checksum of its own: those of the first version.
const MAGIC_1: [u8; 8] = *b"OCTVOC\x01\n";
/// How files begin that are written.
const MAGIC_2: [u8; 8] = *b"OCTVOC\x02\n";
/// What is said of a file that others should replace.
const DAMAGED: &str = "damaged (checksum): copy it again, or preprocess its data again";
/// Bytes of values read at once.
const STEP: usize = 1 << 20;
/// The most bytes of a column's name in that of its file: names of files have 255 with all that stands around it.
const NAME_MOST: usize = 200;

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Head {
    magic: [u8; 8],
    values: u64,
    key_bytes: u32,
    /// 1: one more row, the last, for infrequent and unseen values.
    unseen_row: u32,
    /// Of the values.
    crc: u32,
    /// Of the bytes above; 0 in files of the first version.
    head_crc: u32,
}

impl Head {
    /// Of no values yet.
    fn of<K>(unseen_row: bool) -> Self {
        let (key_bytes, unseen_row) = (size_of::<K>() as u32, u32::from(unseen_row));
        Self { magic: MAGIC_2, key_bytes, unseen_row, ..Self::zeroed() }
    }

    fn own_crc(&self) -> u32 {
        let bytes = bytemuck::bytes_of(self);
        crc32fast::hash(&bytes[..bytes.len() - size_of::<u32>()])
    }

    /// What tells the values, in their order, from others.
    fn identity(&self) -> u64 {
        let Self { values, key_bytes, unseen_row, crc, .. } = self;
        of_bytes([bytemuck::bytes_of(values), bytemuck::bytes_of(&[*key_bytes, *unseen_row, *crc])])
    }

    fn size(&self) -> Size {
        Size { values: self.values, unseen_row: self.unseen_row > 0 }
    }

    fn is_sound(&self) -> bool {
        match self.magic {
            MAGIC_1 => self.head_crc == 0 && self.unseen_row <= 1,
            MAGIC_2 => self.head_crc == self.own_crc(),
            _ => false,
        }
    }
}

/// What a vocabulary file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::data) struct Size {
    pub(in crate::data) values: u64,
    pub(in crate::data) unseen_row: bool,
}

impl Size {
    /// Rows of the column's table.
    pub(in crate::data) fn rows(self) -> u64 {
        self.values + u64::from(self.unseen_row)
    }
}

/// The 64-bit fingerprint of a text value (XXH3); that of the empty text, a missing value, is 0.
///
/// Among forty million values of one column the chance that any two share a fingerprint is 1 in 23,000.
#[must_use]
pub fn fingerprint(text: &[u8]) -> u64 {
    if text.is_empty() { 0 } else { twox_hash::XxHash3_64::oneshot(text) }
}

/// The names of the files of columns' vocabularies, one a column and each another one: that of the column, and its
/// number, too, where other columns' names would be the same file's, or like one with a number.
pub(in crate::data) fn file_names(description: &Description) -> Vec<String> {
    let name = |column: &Categorical| -> String {
        let mut bytes = 0;
        let kept = |c: char| if c.is_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
        let fits = |c: &char| {
            bytes += c.len_utf8();
            bytes <= NAME_MOST
        };
        column.name.chars().map(kept).take_while(fits).collect()
    };
    let names: Vec<String> = description.categorical.iter().map(name).collect();
    let mut times = HashMap::new();
    names.iter().for_each(|name| *times.entry(&**name).or_insert(0) += 1);
    let file = |(at, name): (usize, &String)| {
        let alone = times[&**name] == 1 && name.starts_with(|c: char| !c.is_ascii_digit());
        if alone { format!("{name}.vocabulary") } else { format!("{at:05}-{name}.vocabulary") }
    };
    names.iter().enumerate().map(file).collect()
}

/// A vocabulary on its way to its file.
pub(in crate::data) struct Writer {
    file: WholeFile,
    head: Head,
    hasher: crc32fast::Hasher,
}

impl Writer {
    pub(in crate::data) fn create<K: Key>(path: &Path, unseen_row: bool) -> Result<Self> {
        let mut file = WholeFile::create(path)?;
        let head = Head::of::<K>(unseen_row);
        file.append(bytemuck::bytes_of(&head))?;
        Ok(Self { file, head, hasher: crc32fast::Hasher::new() })
    }

    pub(in crate::data) fn append<K: Key>(&mut self, keys: &[K]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(keys);
        self.head.values += keys.len() as u64;
        self.hasher.update(bytes);
        self.file.append(bytes)
    }

    pub(in crate::data) fn finish(mut self) -> Result<Size> {
        self.head.crc = self.hasher.finalize();
        self.head.head_crc = self.head.own_crc();
        self.file.overwrite_start(bytemuck::bytes_of(&self.head))?;
        self.file.finish()?;
        Ok(self.head.size())
    }
}

/// Writes the values of a column that text was numbered by while it was opened, as those of a log that was
/// preprocessed.
///
/// # Errors
/// When it cannot be written.
pub(in crate::data) fn write(path: &Path, texts: &[Box<[u8]>], unseen_row: bool) -> Result<()> {
    let mut file = Writer::create::<u64>(path, unseen_row)?;
    let keys: Vec<u64> = texts.iter().map(|text| fingerprint(text)).collect();
    file.append(&keys)?;
    file.finish().map(|_| ())
}

/// Opens a vocabulary file whose head is sound and whose length is what the head says.
fn open(path: &Path) -> Result<(File, Head)> {
    let bad = |reason: &str| Error::bad_file(path, reason);
    let mut file = input::open(path)?;
    let mut head = Head::zeroed();
    let whole = file.read_exact(bytemuck::bytes_of_mut(&mut head)).is_ok();
    if !whole || ![MAGIC_1, MAGIC_2].contains(&head.magic) {
        return Err(bad("is no vocabulary file: it does not begin as one"));
    }
    if !head.is_sound() {
        return Err(bad(&format!("its head is {DAMAGED}")));
    }
    let bytes = file.metadata().map_err(Error::io(path, "read"))?.len();
    let expected = head.values.checked_mul(u64::from(head.key_bytes));
    if expected.and_then(|values| values.checked_add(size_of::<Head>() as u64)) != Some(bytes) {
        return Err(bad(&format!(
            "has {bytes} bytes, which {} values of {} do not take: it is {DAMAGED}",
            head.values, head.key_bytes
        )));
    }
    Ok((file, head))
}

/// Reads a vocabulary file, `each` taking some values at a time in the order of their ids.
pub(in crate::data) fn read<K: Key>(path: &Path, each: impl FnMut(&[K])) -> Result<Size> {
    let (file, head) = open(path)?;
    if head.key_bytes as usize != size_of::<K>() {
        let reason = format!(
            "holds values of {} bits, this data has values of {}: it belongs to other data",
            8 * head.key_bytes,
            8 * size_of::<K>()
        );
        return Err(Error::bad_file(path, reason));
    }
    read_values(path, file, &head, each)
}

fn read_values<K: Pod>(path: &Path, mut file: File, head: &Head, mut each: impl FnMut(&[K])) -> Result<Size> {
    let mut hasher = crc32fast::Hasher::new();
    let mut left = head.values;
    let mut keys = vec![K::zeroed(); STEP / size_of::<K>()];
    while left > 0 {
        if interrupt::requested() {
            return Err(Error::Interrupted);
        }
        let count = keys.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let some = &mut keys[..count];
        file.read_exact(bytemuck::cast_slice_mut(some)).map_err(Error::io(path, "read"))?;
        hasher.update(bytemuck::cast_slice(some));
        each(some);
        left -= count as u64;
    }
    if hasher.finalize() != head.crc {
        return Err(Error::bad_file(path, format!("is {DAMAGED}")));
    }
    Ok(head.size())
}

/// Reads values of any kind, `each` taking the bytes of some at a time.
fn read_any(path: &Path, file: File, head: &Head, mut each: impl FnMut(&[u8])) -> Result<Size> {
    match head.key_bytes {
        4 => read_values::<u32>(path, file, head, |values| each(bytemuck::cast_slice(values))),
        8 => read_values::<u64>(path, file, head, |values| each(bytemuck::cast_slice(values))),
        bytes => {
            let reason = format!("holds values of {bytes} bytes, where 4 or 8 are possible: it is {DAMAGED}");
            Err(Error::bad_file(path, reason))
        }
    }
}

/// What a vocabulary file says of itself.
///
/// # Errors
/// When it is no vocabulary file, its head is damaged, or it is cut.
pub(in crate::data) fn size(path: &Path) -> Result<Size> {
    open(path).map(|(_, head)| head.size())
}

/// Reads a vocabulary file of any values and checks it; returns the rows of its column's table.
///
/// # Errors
/// When it is damaged or no vocabulary file.
pub(in crate::data) fn check(path: &Path) -> Result<u64> {
    let (file, head) = open(path)?;
    read_any(path, file, &head, |_| ()).map(Size::rows)
}

/// What tells the values of a vocabulary file, in their order, from others: by its head, which has their number and
/// their checksum, so that they are not read. Nothing where there is no file.
///
/// # Errors
/// When it is no vocabulary file, its head is damaged, or it is cut.
pub(in crate::data) fn identity(path: &Path) -> Result<Option<u64>> {
    if path.exists() { open(path).map(|(_, head)| Some(head.identity())) } else { Ok(None) }
}

/// The same of values that lie in no file, as that would tell it which holds them.
pub(in crate::data) fn identity_of<K: Key>(mut values: impl Iterator<Item = K>, unseen_row: bool) -> u64 {
    let (mut head, mut hasher) = (Head::of::<K>(unseen_row), crc32fast::Hasher::new());
    let mut some = Vec::with_capacity(STEP / size_of::<K>());
    loop {
        some.clear();
        some.extend(values.by_ref().take(STEP / size_of::<K>()));
        if some.is_empty() {
            return Head { crc: hasher.finalize(), ..head }.identity();
        }
        head.values += some.len() as u64;
        hasher.update(bytemuck::cast_slice(&some));
    }
}

/// What the vocabulary of a column has grown by since it had this [`identity`]: its first values are those, in their
/// order. Nothing where they are not. Only of a file that has another one by now the values are read.
///
/// # Errors
/// When it is no vocabulary file, or damaged.
pub(in crate::data) fn growth(path: &Path, column: &str, since: u64) -> Result<Option<Growth>> {
    let (file, head) = open(path)?;
    let Size { values, unseen_row } = head.size();
    let growth = |kept: u64| Growth { column: column.to_owned(), kept, absent: None, new: values - kept, unseen_row };
    if head.identity() == since {
        return Ok(Some(growth(values)));
    }
    // How many they were is a part of what told them: no other number of the first values is taken for it.
    let is_it = |values: u64, hasher: &crc32fast::Hasher| {
        Head { values, crc: hasher.clone().finalize(), ..head }.identity() == since
    };
    let (mut hasher, mut values) = (crc32fast::Hasher::new(), 0);
    let mut kept = is_it(0, &hasher).then_some(0);
    read_any(path, file, &head, |bytes| {
        for value in bytes.chunks_exact(head.key_bytes as usize) {
            if kept.is_some() {
                return;
            }
            hasher.update(value);
            values += 1;
            kept = is_it(values, &hasher).then_some(values);
        }
    })?;
    Ok(kept.map(growth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_in_order_and_damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("C1.vocabulary");
        let keys: Vec<u32> = (0..600_000).map(|n: u32| n.wrapping_mul(0x9E37_79B1)).collect();
        let mut writer = Writer::create::<u32>(&path, true).unwrap();
        keys.chunks(1000).for_each(|some| writer.append(some).unwrap());
        let size = writer.finish().unwrap();
        assert_eq!((size.values, size.rows()), (600_000, 600_001));
        let mut found = Vec::new();
        assert_eq!(read::<u32>(&path, |some| found.extend_from_slice(some)).unwrap(), size);
        assert_eq!(found, keys);

        let message = |found: Result<Size>| found.unwrap_err().to_string();
        assert!(message(read::<u64>(&path, |_| ())).contains("holds values of 32 bits, this data has values of 64"));
        assert_eq!(check(&path).unwrap(), 600_001);
        let told = identity(&path).unwrap();
        assert_eq!(told, Some(identity_of(keys.iter().copied(), true)));
        // Models of all versions have it in their files: it stays what it was.
        let values = [0_u32, 19, 17, 10, 14, 3, 11, 4, 9, 13, 7, 12, 15, 1, 16, 5, 2, 6, 18, 8];
        assert_eq!(identity_of(values.into_iter(), false), 0x4227_B5F0_61A5_D5FD);
        let whole = std::fs::read(&path).unwrap();
        for bit in (0..8 * size_of::<Head>()).chain([8 * 40, 8 * whole.len() - 1]) {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bytes).unwrap();
            let found = message(read::<u32>(&path, |_| ()));
            let what = if bit < 64 { "is no vocabulary file" } else { "is damaged (checksum)" };
            // Of the first version it would have no checksum of its head.
            assert!(found.contains(what) || bit < 64 && found.contains("head is damaged"), "bit {bit}: {found}");
            assert!(check(&path).is_err(), "bit {bit}");
        }
        for len in [0, 31, 32, 1000, whole.len() - 1] {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(read::<u32>(&path, |_| ()).is_err() && check(&path).is_err(), "{len} bytes");
        }
        std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        assert!(message(read::<u32>(&path, |_| ())).contains("is damaged (checksum)"));
        // As the first version wrote it.
        let old = [&MAGIC_1[..], &whole[8..28], &[0; 4], &whole[32..]].concat();
        std::fs::write(&path, &old).unwrap();
        assert_eq!((check(&path).unwrap(), read::<u32>(&path, |_| ()).unwrap()), (600_001, size));
        assert_eq!(identity(&path).unwrap(), told);
        // Values behind these are growth; of others, or in another order, nothing has grown.
        let since = told.unwrap();
        let later = folder.path().join("later");
        let grown = |keys: &[u32], unseen_row: bool| {
            let mut writer = Writer::create::<u32>(&later, unseen_row).unwrap();
            writer.append(keys).unwrap();
            writer.finish().unwrap();
            growth(&later, "C1", since).unwrap()
        };
        let expected =
            |new| Some(Growth { column: "C1".to_owned(), kept: 600_000, absent: None, new, unseen_row: true });
        let all = [&keys[..], &[3, 1, 4]].concat();
        assert_eq!(grown(&all, true), expected(3));
        assert_eq!(grown(&keys, true), expected(0));
        for (keys, unseen_row) in [(&all[1..], true), (&keys[1..], true), (&all, false), (&all[..0], true)] {
            assert_eq!(grown(keys, unseen_row), None);
        }
        grown(&all, true);
        let mut bytes = std::fs::read(&later).unwrap();
        bytes[4_000] ^= 1;
        std::fs::write(&later, bytes).unwrap();
        assert!(growth(&later, "C1", since).unwrap_err().to_string().contains("is damaged (checksum)"));
        // The same values in another order, or with no row for others, are other rows.
        for (keys, unseen_row) in [(&keys[1..], true), (&[&keys[1..], &keys[..1]].concat()[..], true), (&keys, false)] {
            let mut writer = Writer::create::<u32>(&path, unseen_row).unwrap();
            writer.append(keys).unwrap();
            writer.finish().unwrap();
            assert_ne!(identity(&path).unwrap(), told);
        }
        assert_eq!(identity(&folder.path().join("nowhere")).unwrap(), None);
        // Nobody waits for the other end of a pipe in its place.
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let found = [super::size(&pipe), read::<u32>(&pipe, |_| ())].map(message);
        assert!(found.iter().all(|found| found.contains("pipe: is a pipe, no regular file")), "{found:?}");
        assert!(check(&pipe).is_err() && identity(&pipe).is_err() && growth(&pipe, "C1", 0).is_err());
        std::fs::write(&path, "C1,C2").unwrap();
        assert!(message(read::<u32>(&path, |_| ())).contains("is no vocabulary file"));
    }

    #[test]
    fn every_column_has_a_file_of_its_own_that_a_folder_can_hold() {
        let long = "é".repeat(150);
        let names = ["a/b", "a?b", "00000-a_b", &long, "user", "7"];
        let categorical = names.map(|name| Categorical::new(name, 1)).to_vec();
        let files = file_names(&Description { categorical, ..Description::default() });
        let cut = format!("{}.vocabulary", "é".repeat(100));
        let expected = ["00000-a_b", "00001-a_b", "00002-00000-a_b"].map(|name| format!("{name}.vocabulary"));
        assert_eq!(files[..3], expected);
        assert_eq!(files[3..], [&cut[..], "user.vocabulary", "00005-7.vocabulary"]);
    }

    #[test]
    fn fingerprints_are_those_of_xxh3() {
        // Known answer of the reference implementation's documentation: XXH3_64bits("abc") under seed 0.
        assert_eq!(fingerprint(b"abc"), 0x78AF_5F94_892F_3950);
        assert_eq!(fingerprint(b""), 0);
    }
}
