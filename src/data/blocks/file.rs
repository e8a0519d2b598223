//! A block file, mapped. Opening reads its head and index; each block is checked when it is first read, whoever reads
//! it: later readers of the same opened file, such as the other ranks of a process, touch only the rows that they want.
//!
//! Others may write into the file ([`FileMap`]): all that leads to other bytes is copied before it is checked, and
//! numbers alone are read in place.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Zeroable;

use super::cursor::Cursor;
use super::layout::{
    BLOCK, BlockHead, BlockRef, Content, END, FileHead, MAGIC, MOST_ROWS, Section, Trailer, VERSION, aligned,
    block_crc, contents, index_crc,
};
use super::writer::Codec;
use crate::base::{Error, Result};
use crate::data::fingerprint::of_bytes;
use crate::data::formats::{Rows, Table};
use crate::data::schema::Description;
use crate::memory::{Access, FileMap};

/// A block file, open for reading.
#[derive(Debug)]
pub struct BlockFile {
    path: PathBuf,
    bytes: FileMap,
    description: Description,
    pub(super) contents: Vec<Content>,
    blocks: Vec<BlockRef>,
    /// A bit a block: whether some reader found it sound.
    sound: Vec<AtomicU64>,
    rows: u64,
    longest: Vec<u32>,
}

/// A block whose head and entries are checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) number: usize,
    pub(super) first: u64,
    pub(super) rows: usize,
    pub(super) bytes: &'a [u8],
}

impl BlockFile {
    /// Maps a file and reads its index.
    ///
    /// # Errors
    /// [`Error::BadFile`] when it is none of octorec's, of another version, truncated (with the last whole block) or
    /// damaged.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = FileMap::open(path)?;
        let fail = |reason: String| bytes.check().err().unwrap_or(Error::bad_file(path, reason));
        let Some(head) = read::<FileHead>(&bytes, 0).filter(|head| head.magic == MAGIC) else {
            return Err(fail("is no block file: it does not begin as one".to_owned()));
        };
        if head.version != VERSION {
            let version = head.version;
            return Err(fail(format!(
                "has version {version} of the block format; this octorec reads version {VERSION}"
            )));
        }
        let start = size_of::<FileHead>();
        let schema = bytes.get(start..start.saturating_add(head.schema_bytes as usize)).map(<[u8]>::to_vec);
        let schema = schema.filter(|schema| crc32fast::hash(schema) == head.schema_crc);
        let schema = schema.and_then(|schema| String::from_utf8(schema).ok());
        let Some(schema) = schema else { return Err(fail("its schema is damaged (checksum)".to_owned())) };
        let description = Description::parse(&schema, path)?;
        let first_block = aligned(start + schema.len());
        let mut file = Self {
            path: path.to_owned(),
            contents: contents(&description),
            blocks: Vec::new(),
            sound: Vec::new(),
            rows: 0,
            longest: Vec::new(),
            bytes,
            description,
        };
        file.read_index(first_block)?;
        file.bytes.advise(Access::Sequential);
        Ok(file)
    }

    fn read_index(&mut self, first_block: usize) -> Result<()> {
        let end = self.bytes.len().saturating_sub(size_of::<Trailer>());
        let Some(trailer) = read::<Trailer>(&self.bytes, end).filter(|trailer| trailer.magic == END) else {
            return Err(self.truncated(first_block));
        };
        let index =
            usize::try_from(trailer.index).ok().and_then(|index| self.bytes.get(index..end)).map(<[u8]>::to_vec);
        let index = index.filter(|index| index_crc(&trailer, index) == trailer.crc);
        let tables = self.description.categorical.len();
        let blocks = usize::try_from(trailer.blocks).ok().and_then(|blocks| blocks.checked_mul(size_of::<BlockRef>()));
        let (Some(index), Some(split)) = (index, blocks) else {
            return Err(self.fail("its index is damaged (checksum): write the file again".to_owned()));
        };
        if split.checked_add(4 * tables) != Some(index.len()) {
            return Err(self.fail("its index does not fit its schema: write the file again".to_owned()));
        }
        let (refs, longest) = index.split_at(split);
        self.blocks = bytemuck::allocation::pod_collect_to_vec(refs);
        self.longest = bytemuck::allocation::pod_collect_to_vec(longest);
        self.sound = (0..self.blocks.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        self.rows = trailer.rows;
        if self.blocks.first().map_or(trailer.rows, |block| block.first) != 0 {
            return Err(self.fail("its index does not count its samples from 0: write the file again".to_owned()));
        }
        // Readers share out as many samples as an index tells of: it tells of no more than its blocks can hold.
        let firsts = self.blocks.iter().map(|block| block.first);
        let ends = firsts.clone().skip(1).chain([trailer.rows]);
        let counts = firsts.zip(ends).map(|(first, end)| end.checked_sub(first));
        let possible = 1..=u64::from(MOST_ROWS);
        if let Some(number) = counts.map(|rows| rows.is_some_and(|rows| possible.contains(&rows))).position(|is| !is) {
            return Err(self.fail(format!(
                "its index says that block {number} has no samples, or more than {MOST_ROWS}: write the file again"
            )));
        }
        Ok(())
    }

    /// Why there is no trailer, found by walking over the blocks.
    fn truncated(&self, first_block: usize) -> Error {
        let (mut at, mut blocks, mut rows) = (first_block, 0u64, 0u64);
        while let Some(head) = read::<BlockHead>(&self.bytes, at).filter(|head| head.magic == BLOCK) {
            let next = usize::try_from(head.bytes).ok().and_then(|bytes| at.checked_add(bytes));
            let Some(next) = next.filter(|&next| next <= self.bytes.len() && next > at) else { break };
            (at, blocks, rows) = (next, blocks + 1, rows + u64::from(head.rows));
        }
        self.fail(format!(
            "is truncated at byte {}, within block {blocks} or behind the last one: its {blocks} whole blocks have {rows} \
             samples: copy or write it again",
            self.bytes.len()
        ))
    }

    /// The last block that begins at or before a sample; blocks of no samples do not exist.
    pub(super) fn block_of(&self, sample: u64) -> usize {
        self.blocks.partition_point(|block| block.first <= sample).saturating_sub(1)
    }

    /// Whether a block was found sound since the file was opened.
    pub(super) fn is_sound(&self, number: usize) -> bool {
        // Relaxed: the bytes that it speaks of never change.
        self.sound[number / 64].load(Ordering::Relaxed) >> (number % 64) & 1 == 1
    }

    /// Notes that a block is sound.
    pub(super) fn found_sound(&self, number: usize) {
        self.sound[number / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
    }

    /// A block, its head and entries checked; the latter are then in `entries`.
    pub(super) fn block(&self, number: usize, entries: &mut Vec<Section>) -> Result<Block<'_>> {
        let BlockRef { offset, first } = self.blocks[number];
        let next = self.blocks.get(number + 1).map_or(self.rows, |block| block.first);
        entries.resize(self.contents.len(), Section::zeroed());
        let entries: &mut [u8] = bytemuck::cast_slice_mut(entries);
        let found = usize::try_from(offset).ok().and_then(|at| {
            let head = read::<BlockHead>(&self.bytes, at).filter(|head| head.magic == BLOCK)?;
            let bytes = self.bytes.get(at..at.checked_add(usize::try_from(head.bytes).ok()?)?)?;
            entries.copy_from_slice(bytes.get(size_of::<BlockHead>()..)?.get(..entries.len())?);
            (block_crc(&head, entries) == head.crc).then_some((head, bytes))
        });
        let damaged = |what: &str| {
            let last = next - 1;
            self.fail(format!("block {number} (samples {first} to {last}): {what}: copy or write the file again"))
        };
        let Some((head, bytes)) = found else { return Err(damaged("its head is damaged (checksum)")) };
        let rows = next - first;
        if u64::from(head.rows) != rows || head.sections as usize != self.contents.len() {
            return Err(damaged("its head contradicts the index"));
        }
        Ok(Block { number, first, rows: head.rows as usize, bytes })
    }

    /// How the section with this entry, a block's number `at`, is stored, and its bytes in the file.
    pub(super) fn section<'a>(&self, block: &Block<'a>, at: usize, section: &Section) -> Result<(Codec, &'a [u8])> {
        let stored = usize::try_from(section.offset)
            .ok()
            .and_then(|from| block.bytes.get(from..from.checked_add(section.stored as usize)?));
        let Some(stored) = stored else { return Err(self.damaged(block, at, "its place lies beyond the block")) };
        match Codec::of_number(section.codec) {
            Some(codec) if matches!(section.width, 0 | 1 | 2 | 4) => Ok((codec, stored)),
            _ => Err(self.damaged(block, at, "its encoding is unknown")),
        }
    }

    pub(super) fn damaged(&self, block: &Block<'_>, section: usize, what: &str) -> Error {
        let column = match self.contents[section] {
            Content::Labels => &self.description.label.name,
            Content::Dense(column) => &self.description.dense[column].name,
            Content::Rows(table) | Content::Ends(table) | Content::Weights(table) => {
                &self.description.categorical[table].name
            }
        };
        let Block { number, first, .. } = block;
        let last = first + block.rows as u64 - 1;
        self.fail(format!(
            "block {number} (samples {first} to {last}), column {column}: {what}: copy or write the file again"
        ))
    }

    /// Tells whether all that was read so far was the file's: see [`FileMap::check`].
    pub(super) fn check(&self) -> Result<()> {
        self.bytes.check()
    }

    /// What is wrong: that the file was cut short, if it was, since all else may follow from it.
    fn fail(&self, reason: String) -> Error {
        self.check().err().unwrap_or(Error::bad_file(self.path.clone(), reason))
    }
}

impl Table for BlockFile {
    fn description(&self) -> &Description {
        &self.description
    }

    fn rows(&self) -> u64 {
        self.rows
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn longest(&self) -> Vec<u32> {
        self.longest.clone()
    }

    /// What the file says of itself, of its first and of its last block. A file that was damaged and is whole again
    /// has the one that it had.
    fn fingerprint(&self) -> Option<u64> {
        let trailer: Trailer = read(&self.bytes, self.bytes.len().checked_sub(size_of::<Trailer>())?)?;
        let head = |block: &BlockRef| Some(read::<BlockHead>(&self.bytes, usize::try_from(block.offset).ok()?)?.crc);
        let ends: Vec<u32> =
            self.blocks.first().into_iter().chain(self.blocks.last()).map(head).collect::<Option<_>>()?;
        Some(of_bytes([bytemuck::bytes_of(&trailer), bytemuck::cast_slice(&ends)]))
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        if start > self.rows {
            let reason = format!("sample {start} is asked for, but this file has {} samples", self.rows);
            return Err(self.fail(reason));
        }
        Ok(Box::new(Cursor::new(self, self.block_of(start), start)))
    }
}

/// A structure at a byte of the file, if there are enough bytes.
fn read<T: bytemuck::AnyBitPattern>(bytes: &[u8], at: usize) -> Option<T> {
    bytes.get(at..at.checked_add(size_of::<T>())?).map(bytemuck::pod_read_unaligned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::blocks::{Options, Writer};
    use crate::data::formats::Sink;

    /// Opens a file whose index tells of blocks that begin at these samples, and of so many samples.
    fn indexed(firsts: &[u64], rows: u64) -> Result<BlockFile> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.octo");
        Box::new(Writer::create(&path, &Description::criteo(1, &[9]), Options::default())?).finish()?;
        let bytes = std::fs::read(&path).unwrap();
        let end = bytes.len() - size_of::<Trailer>();
        let trailer: Trailer = read(&bytes, end).unwrap();
        // The index of a file without blocks is that of its columns.
        let (blocks, columns) = bytes[..end].split_at(trailer.index as usize);
        let refs: Vec<BlockRef> = firsts.iter().map(|&first| BlockRef { offset: 64, first }).collect();
        let index = [bytemuck::cast_slice::<BlockRef, u8>(&refs), columns].concat();
        let trailer = Trailer { blocks: refs.len() as u64, rows, ..trailer };
        let trailer = Trailer { crc: index_crc(&trailer, &index), ..trailer };
        std::fs::write(&path, [blocks, &index, bytemuck::bytes_of(&trailer)].concat()).unwrap();
        BlockFile::open(&path)
    }

    #[test]
    fn an_index_tells_of_no_more_samples_than_its_blocks_can_hold() {
        const MOST: u64 = MOST_ROWS as u64;
        for (firsts, rows) in [(&[][..], 0), (&[0], 1), (&[0], MOST), (&[0, MOST, MOST + 1], 2 * MOST)] {
            assert_eq!(indexed(firsts, rows).unwrap().rows(), rows);
        }
        for (firsts, rows, number) in [
            (&[0][..], 0, 0),
            (&[0], MOST + 1, 0),
            (&[0], u64::MAX, 0),
            (&[0, 5, 5], 9, 1),
            (&[0, 7, 3], 9, 1),
            (&[0, 7], 3, 1),
            (&[0, 7], 8 + MOST, 1),
        ] {
            let message = indexed(firsts, rows).unwrap_err().to_string();
            let expected = format!("block {number} has no samples, or more than 1048576: write the file again");
            assert!(message.contains(&expected), "{firsts:?}, {rows}: {message}");
        }
        for (firsts, rows) in [(&[][..], 5), (&[3], 5)] {
            let message = indexed(firsts, rows).unwrap_err().to_string();
            assert!(message.contains("does not count its samples from 0"), "{firsts:?}, {rows}: {message}");
        }
    }
}
