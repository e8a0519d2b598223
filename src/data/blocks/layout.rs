//! The bytes of a block file, version 1; all numbers are little-endian.
//!
//! ```text
//! FileHead   the schema's length and checksum
//! schema     the Description as TOML, padded to 64 bytes
//! block 0    BlockHead, its Sections, then each section's bytes at a multiple of 64
//! block 1    …
//! index      a BlockRef a block, then a u32 a categorical column: the most look-ups of a sample
//! Trailer    where the index is; the last bytes of the file
//! ```
//!
//! The sections of a block are, in this order: labels; each dense column; for each categorical column its rows, then
//! (hots = 0) the ends of the samples' look-ups, then (weighted) the weights. Integers are written as their distance
//! from the block's smallest, ends as they are, in as few bytes as all of them fit, so most Criteo columns take one or
//! two bytes a row.

use bytemuck::{Pod, Zeroable};

use crate::data::schema::Description;

const _: () = assert!(cfg!(target_endian = "little"), "files are mapped and read in place");

/// The first bytes of a file.
pub(super) const MAGIC: [u8; 8] = *b"OCTOREC\n";
/// The last bytes of a whole file.
pub(super) const END: [u8; 8] = *b"CEROTCO\n";
/// The first bytes of a block.
pub(super) const BLOCK: u32 = u32::from_le_bytes(*b"BLK\n");
/// The version that is written, and the only one that is read.
pub(super) const VERSION: u32 = 1;
/// The most samples of a block.
pub(super) const MOST_ROWS: u32 = 1 << 20;
/// The most values of a section: 2^10 look-ups for each of the most samples, in 4 GiB at the widest.
pub(super) const MOST_VALUES: u32 = 1 << 30;
/// Sections begin at multiples of this.
pub(super) const ALIGN: usize = 64;

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct FileHead {
    pub magic: [u8; 8],
    pub version: u32,
    pub schema_bytes: u32,
    pub schema_crc: u32,
    /// Samples of every block but the last.
    pub block_rows: u32,
    pub reserved: [u32; 2],
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct BlockHead {
    pub magic: u32,
    pub number: u32,
    pub rows: u32,
    pub sections: u32,
    /// All bytes of the block, this head included.
    pub bytes: u64,
    /// Of this head (with 0 here) and the sections' entries.
    pub crc: u32,
    pub reserved: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Section {
    /// From the block's first byte.
    pub offset: u64,
    /// Bytes in the file.
    pub stored: u32,
    /// Values.
    pub count: u32,
    /// What is added to every value.
    pub base: u32,
    /// Of the bytes in the file.
    pub crc: u32,
    /// Bytes a value: 0 (all are `base`), 1, 2 or 4.
    pub width: u8,
    /// See [`super::Codec`].
    pub codec: u8,
    pub reserved: [u8; 6],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct BlockRef {
    pub offset: u64,
    /// The number of the block's first sample.
    pub first: u64,
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Trailer {
    pub index: u64,
    pub blocks: u64,
    pub rows: u64,
    pub version: u32,
    /// Of the index and the three numbers above.
    pub crc: u32,
    pub magic: [u8; 8],
}

/// What a section holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Labels,
    Dense(usize),
    Rows(usize),
    Ends(usize),
    Weights(usize),
}

/// The sections of every block, in order.
pub(super) fn contents(description: &Description) -> Vec<Content> {
    let mut contents = vec![Content::Labels];
    contents.extend((0..description.dense.len()).map(Content::Dense));
    for (number, column) in description.categorical.iter().enumerate() {
        contents.push(Content::Rows(number));
        contents.extend((column.hots == 0).then_some(Content::Ends(number)));
        contents.extend(column.weighted.then_some(Content::Weights(number)));
    }
    contents
}

/// The next multiple of [`ALIGN`].
pub(super) fn aligned(at: usize) -> usize {
    at.next_multiple_of(ALIGN)
}

/// The checksum of a block's head and entries.
pub(super) fn block_crc(head: &BlockHead, entries: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytemuck::bytes_of(&BlockHead { crc: 0, ..*head }));
    hasher.update(entries);
    hasher.finalize()
}

/// The checksum of the index and what the trailer says of it.
pub(super) fn index_crc(trailer: &Trailer, index: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytemuck::cast_slice(&[trailer.index, trailer.blocks, trailer.rows]));
    hasher.update(index);
    hasher.finalize()
}
