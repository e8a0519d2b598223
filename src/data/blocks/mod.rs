//! octorec's own format: a directory of block files with a manifest (`dataset.toml`), or one block file.
//!
//! A file is cut into blocks of a few thousand samples, a block into columns. Each (block, column) has its own checksum
//! and compression, so any slice of samples is read from the mapped file without touching the blocks beside it, and
//! damage is named by block and column. `layout` has the bytes.

pub(super) mod codes;
mod cursor;
mod file;
mod layout;
mod manifest;
mod writer;

pub use file::BlockFile;
pub use manifest::{MANIFEST, Manifest, Part};
pub use writer::{Codec, Options, Writer};

/// How block files are called: `part-00000.octo`.
pub const EXTENSION: &str = "octo";
