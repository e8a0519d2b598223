//! Writes a block file. Samples come in any portions; blocks are cut to size, and the file appears when it is whole.

use std::ops::Range;
use std::path::Path;

use bytemuck::Zeroable;
use serde::{Deserialize, Serialize};

use super::codes;
use super::layout::{
    ALIGN, BLOCK, BlockHead, BlockRef, Content, END, FileHead, MAGIC, MOST_ROWS, MOST_VALUES, Section, Trailer,
    VERSION, aligned, block_crc, contents, index_crc,
};
use crate::base::{Error, Result};
use crate::data::formats::Sink;
use crate::data::samples::{Samples, Values};
use crate::data::schema::Description;
use crate::memory::WholeFile;

/// How a section's bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// None: the mapped file is read in place.
    #[default]
    Raw,
    /// LZ4: fast, and smaller.
    Lz4,
    /// Zstandard: smallest.
    Zstd,
}

impl Codec {
    /// The most bytes that can come of one that is stored: LZ4 makes a match longer by at most 255 for each; a block of
    /// Zstandard's takes at least 4 and holds at most 2^17.
    pub(super) const fn most_growth(self) -> usize {
        match self {
            Self::Raw => 1,
            Self::Lz4 => 255,
            Self::Zstd => 1 << 15,
        }
    }

    /// The codec with this number in a file.
    pub(super) fn of_number(number: u8) -> Option<Self> {
        [Self::Raw, Self::Lz4, Self::Zstd].get(usize::from(number)).copied()
    }
}

/// How a file is cut and compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Compression; a section that would not shrink stays raw.
    pub codec: Codec,
    /// Samples a block, 1 to 2^20.
    pub block_rows: u32,
}

impl Default for Options {
    /// Raw blocks of 4096 samples: a column of one is a few pages.
    fn default() -> Self {
        Self { codec: Codec::Raw, block_rows: 4096 }
    }
}

/// A block file on its way.
pub struct Writer {
    file: WholeFile,
    description: Description,
    contents: Vec<Content>,
    options: Options,
    pending: Samples,
    blocks: Vec<BlockRef>,
    rows: u64,
    longest: Vec<u32>,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    codes: Vec<u32>,
    plain: Vec<u8>,
    /// The block without its head and entries.
    body: Vec<u8>,
    sections: Vec<Section>,
}

impl Writer {
    /// Begins the file `path`.
    ///
    /// # Errors
    /// When it cannot be created, or the description is impossible.
    ///
    /// # Panics
    /// When a block would have no sample, or more than 2^20.
    pub fn create(path: &Path, description: &Description, options: Options) -> Result<Self> {
        assert!((1..=MOST_ROWS).contains(&options.block_rows), "a block has 1 to 2^20 samples");
        description.check().map_err(|reason| Error::bad_file(path, reason))?;
        let mut file = WholeFile::create(path)?;
        let schema = description.to_toml();
        let head = FileHead {
            magic: MAGIC,
            version: VERSION,
            schema_bytes: u32::try_from(schema.len()).expect("a schema is shorter than 4 GiB"),
            schema_crc: crc32fast::hash(schema.as_bytes()),
            block_rows: options.block_rows,
            reserved: [0; 2],
        };
        file.append(bytemuck::bytes_of(&head))?;
        file.append(schema.as_bytes())?;
        pad(&mut file)?;
        Ok(Self {
            file,
            contents: contents(description),
            options,
            pending: Samples::new(description),
            blocks: Vec::new(),
            rows: 0,
            longest: vec![0; description.categorical.len()],
            description: description.clone(),
            scratch: Scratch::default(),
        })
    }

    fn flush(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let result = self.encode(&pending, 0..pending.len());
        self.pending = pending;
        self.pending.clear();
        result
    }

    /// Writes one block.
    fn encode(&mut self, samples: &Samples, range: Range<usize>) -> Result<()> {
        let head_bytes = aligned(size_of::<BlockHead>() + self.contents.len() * size_of::<Section>());
        self.scratch.sections.clear();
        self.scratch.body.clear();
        for at in 0..self.contents.len() {
            let mut section = self.section(samples, &range, self.contents[at])?;
            let Scratch { plain, body, .. } = &mut self.scratch;
            let (codec, packed) = compressed(self.options.codec, plain);
            let stored = packed.as_deref().unwrap_or(plain);
            section.codec = codec as u8;
            section.crc = crc32fast::hash(stored);
            section.stored = u32::try_from(stored.len()).map_err(|_| too_large(&self.file))?;
            section.offset = (head_bytes + body.len()) as u64;
            body.extend_from_slice(stored);
            body.resize(aligned(body.len()), 0);
            self.scratch.sections.push(section);
        }
        let Scratch { sections, body, .. } = &self.scratch;
        let head = BlockHead {
            magic: BLOCK,
            number: u32::try_from(self.blocks.len()).map_err(|_| too_large(&self.file))?,
            rows: range.len() as u32,
            sections: sections.len() as u32,
            bytes: (head_bytes + body.len()) as u64,
            crc: 0,
            reserved: 0,
        };
        let head = BlockHead { crc: block_crc(&head, bytemuck::cast_slice(sections)), ..head };
        self.blocks.push(BlockRef { offset: self.file.written(), first: self.rows });
        self.rows += range.len() as u64;
        self.file.append(bytemuck::bytes_of(&head))?;
        self.file.append(bytemuck::cast_slice(sections))?;
        pad(&mut self.file)?;
        self.file.append(body)
    }

    /// Puts a section's bytes, not yet compressed, into `scratch.plain`.
    fn section(&mut self, samples: &Samples, range: &Range<usize>, content: Content) -> Result<Section> {
        let Scratch { codes, plain, .. } = &mut self.scratch;
        let columns = &self.description.categorical;
        let span = |table: usize| samples.lookups[table].span(range, columns[table].hots);
        let mut floats = |values: &[f32]| {
            plain.clear();
            plain.extend_from_slice(bytemuck::cast_slice(values));
            (values.len(), 0, 4)
        };
        if let Content::Dense(column) = content
            && self.description.weighs(column)
            && let Some((at, reason)) = samples.dense[column].no_weight(range.clone())
        {
            let reason =
                format!("sample {}: column {}: {reason}", self.rows + at as u64, self.description.dense[column].name);
            return Err(Error::bad_file(self.file.path().to_owned(), reason));
        }
        let (count, base, width) = match content {
            Content::Labels if self.description.label.float => floats(&samples.labels[range.clone()]),
            Content::Labels => {
                let labels = &samples.labels[range.clone()];
                if let Some(at) = labels.iter().position(|&label| label != 0.0 && label != 1.0) {
                    let reason = format!(
                        "sample {}: the label is {}, but the schema says 0 or 1: set float = true in [label]",
                        self.rows + at as u64,
                        labels[at]
                    );
                    return Err(Error::bad_file(self.file.path().to_owned(), reason));
                }
                codes.clear();
                codes.extend(labels.iter().map(|&label| label as u32));
                (codes.len(), 0, codes::pack(codes, plain))
            }
            Content::Dense(column) => match &samples.dense[column] {
                Values::Floats(values) => floats(&values[range.clone()]),
                Values::Integers(values) => {
                    let base = codes::of_signed(&values[range.clone()], codes);
                    (codes.len(), base, codes::pack(codes, plain))
                }
            },
            Content::Weights(table) => floats(&samples.lookups[table].weights[span(table)]),
            Content::Rows(table) => {
                let rows = &samples.lookups[table].rows[span(table)];
                let base = codes::of_unsigned(rows, codes);
                // The greatest code tells the greatest row: no second walk for a whole block.
                if codes.iter().any(|&code| u64::from(base) + u64::from(code) >= columns[table].rows) {
                    return Err(beyond(samples, table, &self.description));
                }
                (codes.len(), base, codes::pack(codes, plain))
            }
            Content::Ends(table) => {
                let first = span(table).start as u32;
                codes.clear();
                codes.extend(samples.lookups[table].ends[range.clone()].iter().map(|end| end - first));
                let (mut before, longest) = (0, &mut self.longest[table]);
                for &end in codes.iter() {
                    *longest = (*longest).max(end - before);
                    before = end;
                }
                (codes.len(), 0, codes::pack(codes, plain))
            }
        };
        if let Content::Rows(table) = content
            && columns[table].hots > 0
        {
            self.longest[table] = columns[table].hots;
        }
        // What is written can be read.
        let count = u32::try_from(count).ok().filter(|count| *count <= MOST_VALUES);
        let count = count.ok_or_else(|| too_large(&self.file))?;
        Ok(Section { count, base, width, ..Section::zeroed() })
    }
}

impl Sink for Writer {
    /// Of samples that the description cannot hold, fails with the place of the first. Panics when they contradict it
    /// ([`Samples::check`]).
    fn push(&mut self, samples: &Samples) -> Result<()> {
        samples.check(&self.description);
        let block = self.options.block_rows as usize;
        let mut from = 0;
        while from < samples.len() {
            let take = (block - self.pending.len()).min(samples.len() - from);
            if take == block {
                self.encode(samples, from..from + block)?;
            } else {
                self.pending.extend_from(samples, from..from + take, &self.description);
                if self.pending.len() == block {
                    self.flush()?;
                }
            }
            from += take;
        }
        Ok(())
    }

    /// Writes what is left and the index; only now the file has its name.
    fn finish(mut self: Box<Self>) -> Result<u64> {
        if !self.pending.is_empty() {
            self.flush()?;
        }
        let index = [bytemuck::cast_slice(&self.blocks), bytemuck::cast_slice::<u32, u8>(&self.longest)].concat();
        let trailer = Trailer {
            index: self.file.written(),
            blocks: self.blocks.len() as u64,
            rows: self.rows,
            version: VERSION,
            crc: 0,
            magic: END,
        };
        let trailer = Trailer { crc: index_crc(&trailer, &index), ..trailer };
        self.file.append(&index)?;
        self.file.append(bytemuck::bytes_of(&trailer))?;
        self.file.finish()
    }
}

fn too_large(file: &WholeFile) -> Error {
    let reason =
        "a column of a block exceeds 2^30 values or 4 GiB, or a file 2^32 blocks: write more files, or smaller blocks"
            .to_owned();
    Error::bad_file(file.path().to_owned(), reason)
}

/// Of the first look-up that its table does not have: blocks before it were written.
fn beyond(samples: &Samples, table: usize, description: &Description) -> Error {
    let (column, lookups) = (&description.categorical[table], &samples.lookups[table]);
    let (at, sample) = lookups.beyond(column.hots, column.rows).expect("the greatest row is beyond its table");
    Error::RowBeyondTable {
        table: table as u32,
        name: column.name.clone(),
        row: u64::from(lookups.rows[at]),
        rows: column.rows,
        sample,
    }
}

/// The bytes compressed, if that makes them smaller.
fn compressed(codec: Codec, plain: &[u8]) -> (Codec, Option<Vec<u8>>) {
    let packed = match codec {
        Codec::Raw => None,
        Codec::Lz4 => Some(lz4_flex::block::compress(plain)),
        // Compressing memory fails only for want of memory; raw bytes are right as well.
        Codec::Zstd => zstd::bulk::compress(plain, 3).ok(),
    };
    match packed {
        Some(packed) if packed.len() < plain.len() => (codec, Some(packed)),
        _ => (Codec::Raw, None),
    }
}

fn pad(file: &mut WholeFile) -> Result<()> {
    let at = file.written() as usize;
    file.append(&[0; ALIGN][..aligned(at) - at])
}
