//! Rows of one width that lie one behind the other in a file, read a portion at a time.

use std::ops::Range;
use std::sync::Arc;

use crate::base::Result;
use crate::memory::FileBytes;

/// Bytes of a table's rows that are read at a time: enough that a system call is little beside the copy, few enough for
/// the second-level cache.
pub(super) const PORTION: usize = 256 << 10;

/// Rows of `width` bytes from byte `start` of a file on.
#[derive(Debug, Clone)]
pub(super) struct Records {
    file: Arc<FileBytes>,
    start: usize,
    width: usize,
    rows: usize,
}

impl Records {
    /// Rows that lie in a file.
    ///
    /// # Panics
    /// When they do not.
    pub(super) fn new(file: Arc<FileBytes>, start: usize, width: usize, rows: usize) -> Self {
        let end = rows.checked_mul(width).and_then(|bytes| bytes.checked_add(start));
        assert!(end.is_some_and(|end| end <= file.len()), "{rows} rows of {width} bytes lie in the file");
        Self { file, start, width, rows }
    }

    /// The file.
    pub(super) fn file(&self) -> &FileBytes {
        &self.file
    }

    /// Bytes of a row.
    pub(super) const fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub(super) const fn rows(&self) -> usize {
        self.rows
    }
}

/// The rows of a [`Records`] that one reader has in memory.
#[derive(Debug, Default)]
pub(super) struct Portion {
    /// Words, so that numbers of any type lie aligned where a row's width is a multiple of theirs.
    words: Vec<u64>,
    loaded: Range<usize>,
}

impl Portion {
    /// Reads `rows`, if they are not here yet. A reader that goes on from where it was gets more of them, in the end
    /// `most`: it will ask for them next.
    pub(super) fn load(&mut self, records: &Records, rows: Range<usize>, most: usize) -> Result<()> {
        let Range { start, end } = self.loaded;
        if start <= rows.start && rows.end <= end {
            return Ok(());
        }
        let goes_on = start <= rows.start && rows.start <= end.saturating_add(most);
        let ahead = if goes_on { (2 * self.loaded.len()).min(most) } else { 0 };
        let count = rows.len().max(ahead).min(records.rows - rows.start);
        let bytes = count * records.width;
        if self.words.len() < bytes.div_ceil(8) {
            self.words.resize(bytes.div_ceil(8), 0);
        }
        // Until they are here, none are.
        self.loaded = 0..0;
        let into = &mut bytemuck::cast_slice_mut(&mut self.words)[..bytes];
        records.file.read_at(records.start + rows.start * records.width, into)?;
        self.loaded = rows.start..rows.start + count;
        Ok(())
    }

    /// The bytes of rows that were loaded.
    pub(super) fn bytes(&self, records: &Records, rows: Range<usize>) -> &[u8] {
        let at = (rows.start - self.loaded.start) * records.width;
        &bytemuck::cast_slice(&self.words)[at..at + rows.len() * records.width]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_get_their_rows_and_those_that_go_on_get_more_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let row = |row: usize| [row as u8, (row >> 8) as u8, 7];
        let all: Vec<u8> = (0..1000).flat_map(row).collect();
        std::fs::write(&path, [&[1, 2][..], &all].concat()).unwrap();
        let records = Records::new(Arc::new(FileBytes::open(&path).unwrap()), 2, 3, 1000);
        let mut portion = Portion::default();
        let mut look = |rows: Range<usize>| {
            portion.load(&records, rows.clone(), 64).unwrap();
            assert_eq!(portion.bytes(&records, rows.clone()), &all[3 * rows.start..3 * rows.end], "{rows:?}");
            portion.loaded.clone()
        };
        assert_eq!(look(500..510), 500..510);
        assert_eq!(look(510..520), 510..530);
        assert_eq!(look(522..526), 510..530);
        // Gaps are read over, here to the most that is read ahead.
        assert_eq!(look(540..541), 540..580);
        assert_eq!(look(580..581), 580..644);
        assert_eq!(look(700..701), 700..764);
        // Nobody knows how it goes on from here.
        assert_eq!(look(3..5), 3..5);
        assert_eq!(look(5..5), 3..5);
        assert_eq!(look(900..1000), 900..1000);
        assert_eq!(look(1000..1000), 900..1000);
    }
}
