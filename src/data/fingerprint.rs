//! What tells files of data from others at little cost. Names and times, which a copy does not keep, do not count.

use std::io::Read;
use std::path::Path;

use twox_hash::XxHash3_64;

use super::text::decoded;
use crate::base::input;
use crate::memory::FileBytes;

/// Bytes that are read at each end of a file.
const END: usize = 16 << 10;

/// The fingerprint of a file's size and of some bytes at both of its ends; nothing where it cannot be read.
pub(super) fn of_ends(path: &Path) -> Option<u64> {
    let file = FileBytes::open(path).ok()?;
    let (len, part) = (file.len(), file.len().min(END));
    let (first, last) = (file.bytes(0..part).ok()?, file.bytes(len - part..len).ok()?);
    Some(of_bytes([&(len as u64).to_le_bytes()[..], &first, &last]))
}

/// The fingerprint of the beginning of a text, compressed or not; nothing where it cannot be read. A line that is
/// mended further on, or left out, changes nothing: a text that has grown is told by its rows.
pub(super) fn of_text(path: &Path) -> Option<u64> {
    let mut first = Vec::new();
    let (text, _) = decoded(input::open(path).ok()?, path).ok()?;
    text.take(END as u64).read_to_end(&mut first).ok()?;
    Some(of_bytes([&*first]))
}

/// The fingerprint of some bytes in their order.
pub(super) fn of_bytes<'a>(all: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    all.into_iter().fold(0, XxHash3_64::oneshot_with_seed)
}

/// The fingerprint of several files in their order, as it is kept.
pub(super) fn of_files(files: impl Iterator<Item = Option<u64>>) -> Option<String> {
    let files: Vec<u64> = files.collect::<Option<_>>()?;
    Some(format!("{:016x}", of_bytes(files.iter().map(bytemuck::bytes_of))))
}
