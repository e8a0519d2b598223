//! What tells files of data from others at little cost. Names and times, which a copy does not keep, do not count.

use std::io::Read;
use std::path::Path;

use twox_hash::XxHash3_64;

use super::formats::Table;
use super::text::{Wanted, decoded};
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
    let (text, _) = decoded(input::open(path).ok()?, path, Wanted::All).ok()?;
    text.take(END as u64).read_to_end(&mut first).ok()?;
    Some(of_bytes([&*first]))
}

/// The fingerprint of some bytes in their order.
pub(super) fn of_bytes<'a>(all: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    all.into_iter().fold(0, XxHash3_64::oneshot_with_seed)
}

/// What stands between the fingerprint of files and that of first values.
const AND: char = '-';

/// The fingerprint of several tables in their order, as it is kept: that of their files and, where that knows no
/// values, those of the first values of the first and the last one ([`Table::first_values`]), which cost a page a column
/// each.
pub(super) fn of_tables(tables: &[&dyn Table]) -> Option<String> {
    let all = |each: &[u64]| format!("{:016x}", of_bytes(each.iter().map(bytemuck::bytes_of)));
    let files: Vec<u64> = tables.iter().map(|table| table.fingerprint()).collect::<Option<_>>()?;
    let ends = tables.first().into_iter().chain(tables.last());
    let values: Vec<[u64; 2]> = ends.filter_map(|table| table.first_values()).collect();
    let [placed, named] = [0, 1].map(|how| all(&values.iter().map(|both| both[how]).collect::<Vec<_>>()));
    Some(if values.is_empty() { all(&files) } else { format!("{}{AND}{placed}{AND}{named}", all(&files)) })
}

/// Whether two fingerprints, as they are kept, may be of the same tables: the files must be, and the last that both
/// have of first values, since earlier versions kept none, or those in the order of the files' columns alone.
#[must_use]
pub fn may_be_same(a: &str, b: &str) -> bool {
    let [a, b] = [a, b].map(|kept| kept.split(AND).collect::<Vec<_>>());
    let last = a.len().min(b.len()) - 1;
    a[0] == b[0] && a[last] == b[last]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_values_count_where_both_fingerprints_have_them() {
        for (a, b, same) in [
            ("1", "1", true),
            ("1", "2", false),
            ("1-3", "1", true),
            ("1-3", "2", false),
            ("1-3", "1-3", true),
            ("1-3", "1-4", false),
            ("1-3-5", "1", true),
            ("1-3-5", "1-3", true),
            ("1-3-5", "1-4", false),
            ("1-3-5", "1-4-5", true),
            ("1-3-5", "2-3-5", false),
            ("1-3-5", "1-3-6", false),
        ] {
            assert_eq!((may_be_same(a, b), may_be_same(b, a)), (same, same), "{a}, {b}");
        }
    }
}
