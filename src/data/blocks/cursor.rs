//! A position in a block file. A block is verified when the cursor enters it; raw sections are then read in place,
//! compressed ones from memory that is reused, so reading on allocates nothing.

use std::ops::Range;

use super::codes;
use super::file::{Block, BlockFile};
use super::layout::{Content, MOST_VALUES, Section};
use super::writer::Codec;
use crate::base::Result;
use crate::data::fill::{Features, Fill};
use crate::data::formats::{Rows, Table};
use crate::data::{Batch, Description, Samples};

/// Streams samples from a block file.
pub(super) struct Cursor<'a> {
    file: &'a BlockFile,
    /// The block that is entered next, or was entered last.
    number: usize,
    entered: Option<Block<'a>>,
    /// The number of the next sample in the file.
    next: u64,
    columns: Vec<Column<'a>>,
    /// The entries of the block that is entered.
    entries: Vec<Section>,
    /// A section's bytes while they are unpacked.
    packed: Vec<u8>,
    codes: Vec<u32>,
    bytes: u64,
    /// Bytes of a sample that are read in place in the current block and were not counted when it was entered.
    row_bytes: u64,
}

/// A section of the current block.
#[derive(Default)]
struct Column<'a> {
    section: Option<Section>,
    raw: &'a [u8],
    /// Decompressed bytes; unused where the section is raw.
    unpacked: Vec<u8>,
    is_raw: bool,
}

impl Column<'_> {
    fn bytes(&self) -> &[u8] {
        if self.is_raw { self.raw } else { &self.unpacked }
    }

    fn section(&self) -> &Section {
        self.section.as_ref().expect("a block was entered")
    }
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a BlockFile, number: usize, next: u64) -> Self {
        let columns = file.contents.iter().map(|_| Column::default()).collect();
        let (entries, packed, codes) = (Vec::new(), Vec::new(), Vec::new());
        Self { file, number, entered: None, next, columns, entries, packed, codes, bytes: 0, row_bytes: 0 }
    }

    /// Enters block `number`: verifies it, unless that was done, and unpacks all of its columns.
    fn load(&mut self) -> Result<()> {
        // After an error the columns belong to no block.
        self.entered = None;
        let block = self.file.block(self.number, &mut self.entries)?;
        // Before any memory is asked for: checksums are no secret.
        self.check_counts(&block)?;
        let sound = self.file.is_sound(self.number);
        let mut row_bytes = 0;
        for at in 0..self.columns.len() {
            let section = self.entries[at];
            let (codec, stored) = self.file.section(&block, at, &section)?;
            if sound && codec == Codec::Raw {
                row_bytes += stored.len() as u64;
            } else {
                self.bytes += stored.len() as u64;
            }
            let damaged = |what: &str| self.file.damaged(&block, at, what);
            let plain = section.plain();
            let column = &mut self.columns[at];
            column.is_raw = codec == Codec::Raw;
            column.raw = stored;
            if !column.is_raw {
                // What is unpacked is what was checked, even where others write into the file.
                self.packed.clear();
                self.packed.extend_from_slice(stored);
            }
            let packed = if column.is_raw { stored } else { &self.packed[..] };
            if !sound && crc32fast::hash(packed) != section.crc {
                return Err(damaged("the checksum does not match"));
            }
            if !column.is_raw {
                if plain > packed.len().saturating_mul(codec.most_growth()) {
                    return Err(damaged("its size is impossible"));
                }
                column.unpacked.resize(plain, 0);
                let found = match codec {
                    Codec::Lz4 => lz4_flex::block::decompress_into(packed, &mut column.unpacked).ok(),
                    _ => zstd::bulk::decompress_to_buffer(packed, &mut column.unpacked[..]).ok(),
                };
                if found != Some(plain) {
                    return Err(damaged("it does not decompress"));
                }
            } else if stored.len() != plain {
                return Err(damaged("its size contradicts the number of its values"));
            }
            column.section = Some(section);
        }
        // Of a block that was found sound, they are checked where they are read ([`ends`]).
        if !sound {
            self.check_ends(&block)?;
        }
        self.file.check()?;
        self.file.found_sound(self.number);
        // The mean: samples of several look-ups differ.
        self.row_bytes = row_bytes / block.rows as u64;
        self.entered = Some(block);
        Ok(())
    }

    /// Whether the entries give every section as many values as the block's samples ask for, and none more than it may
    /// have: those of no bytes would take memory all the same.
    fn check_counts(&self, block: &Block<'_>) -> Result<()> {
        let description = self.file.description();
        for (at, content) in self.file.contents.iter().enumerate() {
            let Section { count, width, .. } = self.entries[at];
            let (expected, float) = match *content {
                Content::Labels => (block.rows, description.label.float),
                Content::Dense(column) => (block.rows, description.dense[column].float),
                Content::Ends(_) => (block.rows, false),
                Content::Weights(_) => {
                    let before = if matches!(self.file.contents[at - 1], Content::Ends(_)) { 2 } else { 1 };
                    (self.entries[at - before].count as usize, true)
                }
                Content::Rows(table) => match description.categorical[table].hots {
                    // As many as their ends say.
                    0 => (count as usize, false),
                    hots => (block.rows * hots as usize, false),
                },
            };
            if count > MOST_VALUES {
                return Err(self.file.damaged(block, at, "the number of its values is impossible"));
            }
            if count as usize != expected || (float && width != 4) {
                return Err(self.file.damaged(block, at, "the number of its values contradicts the block's samples"));
            }
        }
        Ok(())
    }

    /// Whether the ends of samples' look-ups rise to as many as there are.
    fn check_ends(&mut self, block: &Block<'_>) -> Result<()> {
        for at in 0..self.columns.len() {
            if !matches!(self.file.contents[at], Content::Ends(_)) {
                continue;
            }
            let (rows, ends) = (&self.columns[at - 1], &self.columns[at]);
            self.codes.clear();
            codes::unpack(ends.section(), ends.bytes(), 0..block.rows, 0, &mut self.codes);
            if !self.codes.is_sorted() {
                return Err(self.file.damaged(block, at, "its samples' ends fall"));
            }
            if self.codes.last() != Some(&rows.section().count) {
                return Err(self.file.damaged(block, at, "the number of its values contradicts its samples' ends"));
            }
        }
        Ok(())
    }

    /// The samples of the current block that come next, at most `limit`; nothing at the end of the file.
    fn advance(&mut self, limit: usize) -> Result<Option<Range<usize>>> {
        if self.next == self.file.rows() || limit == 0 {
            return Ok(None);
        }
        let inside = |block: &Block<'_>, next| (block.first..block.first + block.rows as u64).contains(&next);
        if !self.entered.as_ref().is_some_and(|block| inside(block, self.next)) {
            self.number = self.file.block_of(self.next);
            self.load()?;
        }
        let block = self.entered.expect("a block was entered");
        let start = (self.next - block.first) as usize;
        let end = block.rows.min(start + limit);
        self.next += (end - start) as u64;
        self.bytes += self.row_bytes * (end - start) as u64;
        Ok(Some(start..end))
    }

    /// Appends samples `range` of the current block.
    fn hand_to(&mut self, to: &mut impl Fill, range: &Range<usize>) -> Result<()> {
        let description = self.file.description();
        // Where the current column's look-ups stand in the block.
        let mut span = 0..0;
        to.begin(range.len());
        for (at, (column, content)) in self.columns.iter().zip(&self.file.contents).enumerate() {
            let (section, bytes) = (column.section(), column.bytes());
            let codes = &mut self.codes;
            codes.clear();
            match *content {
                Content::Labels if description.label.float => to.labels().extend(codes::floats(bytes, range.clone())),
                Content::Labels => {
                    codes::unpack(section, bytes, range.clone(), section.base, codes);
                    to.labels().extend(codes.iter().map(|&code| code as f32));
                }
                Content::Dense(number) if description.dense[number].float => {
                    to.floats(number, codes::floats(bytes, range.clone()));
                }
                Content::Dense(number) => {
                    codes::unpack(section, bytes, range.clone(), 0, codes);
                    to.integers(number, codes.iter().map(|&code| codes::signed(code, section.base)));
                }
                Content::Rows(table) => match description.categorical[table].hots {
                    // The ends come next and say which.
                    0 => span = 0..0,
                    hots => {
                        span = range.start * hots as usize..range.end * hots as usize;
                        codes::unpack(section, bytes, span.clone(), section.base, to.lookups(table).0);
                    }
                },
                Content::Ends(table) => {
                    let (rows, found) = looked_up(self.file, &self.columns, self.entered, at, range, codes)?;
                    span = found;
                    to.ends(table, codes.iter().map(|end| end - span.start as u32));
                    codes::unpack(rows.section(), rows.bytes(), span.clone(), rows.section().base, to.lookups(table).0);
                }
                Content::Weights(table) => to.lookups(table).1.extend(codes::floats(bytes, span.clone())),
            }
        }
        self.file.check()
    }

    /// Appends the next samples, at most `limit`; returns how many there were.
    fn hand_all(&mut self, to: &mut impl Fill, limit: usize) -> Result<usize> {
        let mut read = 0;
        while let Some(range) = self.advance(limit - read)? {
            self.hand_to(to, &range)?;
            read += range.len();
        }
        Ok(read)
    }
}

impl Rows for Cursor<'_> {
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize> {
        self.hand_all(samples, limit)
    }

    fn read_batch(
        &mut self,
        batch: &mut Batch,
        limit: usize,
        (_, description): (&mut Samples, &Description),
    ) -> Result<usize> {
        self.hand_all(&mut Features::new(batch, description), limit)
    }

    /// Blocks that are stepped over are not entered.
    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min(self.file.rows() - self.next);
        self.next += count;
        Ok(count)
    }

    /// Blocks count when they are checked or unpacked, otherwise the samples of theirs.
    fn bytes_read(&self) -> u64 {
        self.bytes
    }
}

/// Fills `codes` with the ends of samples `range`, from section `at`; returns the column of their rows, and where their
/// look-ups stand in it.
fn looked_up<'c, 'a>(
    file: &BlockFile,
    columns: &'c [Column<'a>],
    block: Option<Block<'_>>,
    at: usize,
    range: &Range<usize>,
    codes: &mut Vec<u32>,
) -> Result<(&'c Column<'a>, Range<usize>)> {
    let (rows, column) = (&columns[at - 1], &columns[at]);
    let known = ends(column.section(), column.bytes(), range, codes);
    // Ends that are none would lead anywhere.
    file.check()?;
    match known.filter(|span| span.end <= rows.section().count as usize) {
        Some(span) => Ok((rows, span)),
        None => Err(file.damaged(&block.expect("a block was entered"), at - 1, "its samples' ends have changed")),
    }
}

/// Fills `codes` with the ends of samples `range`; returns where their look-ups stand in the block. Nothing where they
/// fall: another program has written into the file since they were checked.
fn ends(section: &Section, bytes: &[u8], range: &Range<usize>, codes: &mut Vec<u32>) -> Option<Range<usize>> {
    let start = if range.start == 0 {
        0
    } else {
        codes::unpack(section, bytes, range.start - 1..range.start, 0, codes);
        codes[0] as usize
    };
    codes.clear();
    codes::unpack(section, bytes, range.clone(), 0, codes);
    let rise = codes.is_sorted() && codes.first().is_none_or(|&first| start <= first as usize);
    rise.then(|| start..codes.last().map_or(start, |&end| end as usize))
}

#[cfg(test)]
mod tests {
    use super::super::layout::{BlockHead, BlockRef, Trailer, block_crc};
    use super::super::{Options, Writer};
    use super::*;
    use crate::data::formats::Sink;
    use crate::data::samples::Values;

    /// What reading a block of three samples says after the entries of its sections were changed, with their checksum.
    fn reading(change: impl FnOnce(&mut [Section])) -> Result<usize> {
        let mut description = Description::criteo(1, &[9, 9]);
        description.categorical[0].hots = 0;
        description.categorical[1].weighted = true;
        let mut samples = Samples::new(&description);
        samples.labels = vec![0.0, 1.0, 0.0];
        samples.dense[0] = Values::Integers(vec![3, 4, 5]);
        samples.lookups[0].rows = vec![2, 2, 2, 2];
        samples.lookups[0].ends = vec![1, 1, 4];
        samples.lookups[1].rows = vec![7, 8, 7];
        samples.lookups[1].weights = vec![0.5; 3];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.octo");
        let mut writer = Box::new(Writer::create(&path, &description, Options::default())?);
        writer.push(&samples)?;
        writer.finish()?;

        let mut bytes = std::fs::read(&path).unwrap();
        let end = bytes.len() - size_of::<Trailer>();
        let trailer: Trailer = bytemuck::pod_read_unaligned(&bytes[end..]);
        let at = trailer.index as usize;
        let block: BlockRef = bytemuck::pod_read_unaligned(&bytes[at..at + size_of::<BlockRef>()]);
        let start = block.offset as usize;
        let entries = start + size_of::<BlockHead>();
        let head: BlockHead = bytemuck::pod_read_unaligned(&bytes[start..entries]);
        let after = entries + head.sections as usize * size_of::<Section>();
        let mut sections: Vec<Section> = bytemuck::pod_collect_to_vec(&bytes[entries..after]);
        change(&mut sections);
        let head = BlockHead { crc: block_crc(&head, bytemuck::cast_slice(&sections)), ..head };
        bytes[start..entries].copy_from_slice(bytemuck::bytes_of(&head));
        bytes[entries..after].copy_from_slice(bytemuck::cast_slice(&sections));
        std::fs::write(&path, bytes).unwrap();
        let file = BlockFile::open(&path)?;
        let mut cursor = Cursor::new(&file, 0, 0);
        cursor.read(&mut Samples::new(&description), 9)
    }

    #[test]
    fn no_more_memory_is_asked_for_than_a_block_can_need() {
        assert_eq!(reading(|_| ()).unwrap(), 3);
        // Values of no bytes: the look-ups of C1, which are all the same, are such.
        let impossible = "the number of its values is impossible";
        let contradicts = "the number of its values contradicts the block's samples";
        for (section, column, count, expected) in [
            (2, "C1", u32::MAX, impossible),
            (2, "C1", MOST_VALUES + 1, impossible),
            (2, "C1", MOST_VALUES, "the number of its values contradicts its samples' ends"),
            (2, "C1", 3, "the number of its values contradicts its samples' ends"),
            (0, "label", MOST_VALUES, contradicts),
            (1, "I1", MOST_VALUES, contradicts),
            (3, "C1", MOST_VALUES, contradicts),
            (4, "C2", MOST_VALUES, contradicts),
            (5, "C2", MOST_VALUES, contradicts),
        ] {
            let message = reading(|sections| sections[section].count = count).unwrap_err().to_string();
            assert!(message.contains(&format!("column {column}: {expected}")), "{section}, {count}: {message}");
        }
        // What unpacks to more than any bytes of its codec do, of a number of values that is possible.
        for codec in [Codec::Lz4, Codec::Zstd] {
            let packed = |sections: &mut [Section]| {
                (sections[2].codec, sections[2].count, sections[2].width) = (codec as u8, MOST_VALUES, 4);
            };
            let message = reading(packed).unwrap_err().to_string();
            assert!(message.contains("column C1: its size is impossible"), "{codec:?}: {message}");
        }
    }
}
