//! Operands of passes on tiles: copies in the tiles' order.
//!
//! Each thread copies what it needs just before it multiplies, so that it finds it in its own L2. But it multiplies
//! some rows with some columns: others need the same rows, and others the same columns. Where they are many and the
//! copy takes long, because operands are transposed or parted, the team makes one for all of them before the pass.

use std::ops::Range;

use super::panels::{Row, WIDTH};
use super::plan::Copying;
use super::terms::{Samples, Term};
use super::transposed::transpose_pairs;
use crate::machine::team::Team;
use crate::memory::Buffer;
use crate::simd::amx::{Amx, BLOCK, Left, Packed, Pairs, TILE, UNIT};
use crate::simd::{Kernel, Simd};
use crate::sync::{Grid, GridPart};

/// Blocks of columns in a panel.
pub(super) const STRIPS: usize = WIDTH / BLOCK;

/// The left operand.
#[derive(Debug, Clone, Copy)]
pub(super) enum LeftSource<'a, T> {
    /// Its rows are rows of panels of bfloat16, which padding makes whole units; whole tiles of rows can be read.
    Ready(Left<'a>),
    /// Its rows are samples.
    ByRow(Samples<'a, T>),
    /// Its rows are columns of samples.
    ByColumn(Samples<'a, T>),
}

/// The right operand.
#[derive(Debug, Clone, Copy)]
pub(super) enum RightSource<'a, T> {
    /// Panels of pairs of bfloat16: a row has the next pair of all columns.
    Ready {
        /// All panels.
        cells: &'a [Row<f32>],
        /// Rows between panels.
        stride: usize,
    },
    /// The same, but a row has a pair of columns, one step after the other; it holds two terms of each, and `rows` rows
    /// there are.
    Transposed {
        /// All panels.
        cells: &'a [Row<f32>],
        /// Rows between panels.
        stride: usize,
        /// Rows of a panel.
        rows: usize,
    },
    /// Two rows have the next pair of all columns.
    ByRow(Samples<'a, T>),
    /// A row has all terms of a column.
    ByColumn(Samples<'a, T>),
}

/// Memory for copies of a pass's operands: it grows to what the largest layer needs and is then reused.
pub(super) struct Copies {
    pub(super) left: Buffer<Pairs>,
    pub(super) right: Buffer<Packed>,
}

impl Copies {
    /// No memory yet.
    pub(super) fn empty() -> Self {
        Self { left: Buffer::zeroed(0), right: Buffer::zeroed(0) }
    }
}

/// At least `len` elements of the buffer, which grows if it must.
pub(super) fn first<T: bytemuck::Pod>(buffer: &mut Buffer<T>, len: usize) -> &mut [T] {
    if buffer.len() < len {
        *buffer = Buffer::zeroed(len);
    }
    &mut buffer[..len]
}

/// Into how many ranges of panels and of rows a copy is cut.
fn pieces(team: &Team, panels: usize) -> [usize; 2] {
    let pieces = team.pieces();
    if panels < pieces { [panels.max(1), pieces.div_ceil(panels.max(1))] } else { [pieces, 1] }
}

/// How threads come to a left operand.
#[derive(Clone, Copy)]
pub(super) enum LeftOperand<'a, T> {
    /// It lies there, all rows of it.
    Shared(Left<'a>),
    /// Each thread copies the rows of its share.
    Own(LeftSource<'a, T>),
}

impl<'a, T: Term> LeftSource<'a, T> {
    /// What its copy takes.
    pub(super) const fn copying(&self) -> Copying {
        match self {
            Self::Ready(_) => Copying::Free,
            Self::ByRow(_) if T::PARTS == 1 => Copying::Cheap,
            Self::ByRow(_) => Copying::Parted,
            Self::ByColumn(_) => Copying::Transposed,
        }
    }

    /// `rows` rows as tiles want them; `sharers` threads need the same.
    pub(super) fn for_team<'b>(
        self,
        team: &Team,
        amx: Amx,
        [rows, units, sharers]: [usize; 3],
        copies: &'b mut Buffer<Pairs>,
    ) -> LeftOperand<'b, T>
    where
        'a: 'b,
    {
        if let Self::Ready(left) = self {
            return LeftOperand::Shared(left);
        }
        if !self.copying().is_shared(sharers) {
            return LeftOperand::Own(self);
        }
        let (whole, stride) = (T::PARTS * rows.next_multiple_of(BLOCK), Self::stride(rows));
        let cells = first(copies, units * stride);
        let grid = Grid::new(cells, [units, whole, stride], pieces(team, units), T::PARTS * BLOCK);
        team.share(grid, |part| amx.avx512_bf16().run(LeftCopy { source: self, rows, part }));
        LeftOperand::Shared(Left { cells: copies, stride })
    }

    /// Rows of 32 pairs from a unit of a copy to the next: an odd number of tiles, so that units spread over all sets
    /// of a cache.
    fn stride(rows: usize) -> usize {
        T::PARTS * (rows.next_multiple_of(BLOCK) + TILE)
    }

    /// Rows that are copied together, unit by unit: neighbours in memory are next in depth where a row is a column of
    /// samples.
    fn band(&self) -> usize {
        if matches!(self, Self::ByColumn(_)) { WIDTH } else { usize::MAX }
    }

    /// These rows, the first of them in row 0.
    #[inline(always)]
    pub(super) fn copied<'b, S: Simd>(
        &self,
        simd: S,
        rows: Range<usize>,
        units: usize,
        copies: &'b mut Buffer<Pairs>,
    ) -> Left<'b> {
        let stride = Self::stride(rows.len());
        let cells = first(copies, units * stride);
        for row in rows.clone().step_by(self.band()) {
            let band = row..rows.end.min(row.saturating_add(self.band()));
            for (unit, copy) in cells.chunks_mut(stride).enumerate() {
                self.bring(simd, band.clone(), unit, &mut copy[(row - rows.start) * T::PARTS..]);
            }
        }
        Left { cells, stride }
    }

    /// A unit of some rows: the first part of 16 rows, then their other parts.
    #[inline(always)]
    fn bring<S: Simd>(&self, simd: S, rows: Range<usize>, unit: usize, copy: &mut [Pairs]) {
        match *self {
            Self::Ready(_) => {}
            Self::ByRow(samples) => {
                let mut parts = [[0; UNIT]; 3];
                for (r, row) in rows.enumerate() {
                    samples.row(unit, row, &mut parts);
                    let to = copy[r / TILE * TILE * T::PARTS + r % TILE..].iter_mut().step_by(TILE);
                    to.zip(&parts[..T::PARTS]).for_each(|(to, part)| *to = *part);
                }
            }
            Self::ByColumn(samples) => turn(simd, samples, rows, unit, copy),
        }
    }
}

/// The copy of some rows and units of a left operand.
struct LeftCopy<'a, T> {
    source: LeftSource<'a, T>,
    /// All rows.
    rows: usize,
    part: GridPart<'a, Pairs>,
}

impl<T: Term> Kernel for LeftCopy<'_, T> {
    type Out = ();
    const BF16: bool = true;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let first = self.part.rows().start / T::PARTS;
        let rows = first..(self.part.rows().end / T::PARTS).min(self.rows);
        for row in rows.clone().step_by(self.source.band()) {
            let band = row..rows.end.min(row.saturating_add(self.source.band()));
            for unit in self.part.panels() {
                let copy = &mut self.part.panel(unit)[(row - first) * T::PARTS..];
                self.source.bring(simd, band.clone(), unit, copy);
            }
        }
    }
}

/// A unit of a left operand whose rows are columns of samples.
#[inline(always)]
fn turn<S: Simd, T: Term>(simd: S, samples: Samples<'_, T>, rows: Range<usize>, unit: usize, copy: &mut [Pairs]) {
    let mut tiles = [[[0; TILE]; TILE]; 3];
    for half in 0..2 {
        let start = unit * UNIT + half * TILE;
        for (first, copy) in rows.clone().step_by(TILE).zip(copy.chunks_mut(TILE * T::PARTS)) {
            for d in 0..TILE {
                let mut parts = [[0; TILE]; 3];
                samples.pair(first / WIDTH, start + d, first % WIDTH, &mut parts);
                for (tile, part) in tiles.iter_mut().zip(&parts[..T::PARTS]) {
                    tile[d] = *part;
                }
            }
            for (tile, copy) in tiles.iter().zip(copy.chunks_mut(TILE)) {
                let to = &mut bytemuck::cast_slice_mut(copy)[half * TILE..];
                simd.transpose(bytemuck::cast_slice(tile.as_flattened()), TILE, to, UNIT);
            }
        }
    }
}

/// How threads come to a right operand, in tiles: `[chunk of depth][block of columns][unit][part]`, each chunk of a
/// block [`Term::BLOCK`] long.
#[derive(Clone, Copy)]
pub(super) enum RightOperand<'a, T> {
    /// The team copied all of it.
    Shared {
        /// All chunks.
        cells: &'a [Packed],
        /// Blocks of columns.
        blocks: usize,
    },
    /// Each thread copies the columns of its share, just before their first use: they are in its L2 then.
    Own(RightSource<'a, T>),
}

impl<'a, T: Term> RightSource<'a, T> {
    /// What its copy takes.
    pub(super) const fn copying(&self) -> Copying {
        match self {
            Self::Ready { .. } => Copying::Cheap,
            Self::ByRow(_) if T::PARTS == 1 => Copying::Cheap,
            Self::ByRow(_) => Copying::Parted,
            Self::Transposed { .. } | Self::ByColumn(_) => Copying::Transposed,
        }
    }

    /// `columns` columns of so many steps, as tiles want them; `sharers` threads need the same.
    pub(super) fn for_team<'b>(
        self,
        team: &Team,
        amx: Amx,
        [columns, steps, sharers]: [usize; 3],
        copies: &'b mut Buffer<Packed>,
    ) -> RightOperand<'b, T>
    where
        'a: 'b,
    {
        if !self.copying().is_shared(sharers) {
            return RightOperand::Own(self);
        }
        let (blocks, chunks) = (columns.div_ceil(BLOCK), steps.div_ceil(UNIT * T::CHUNK).max(1));
        let rows = blocks * T::BLOCK;
        let cells = first(copies, chunks * rows);
        let grid = Grid::new(cells, [chunks, rows, rows], pieces(team, chunks), STRIPS * T::BLOCK);
        team.share(grid, |part| amx.avx512_bf16().run(RightCopy { source: self, steps, part }));
        RightOperand::Shared { cells: copies, blocks }
    }
}

/// The copy of some columns and chunks of a right operand.
struct RightCopy<'a, T> {
    source: RightSource<'a, T>,
    steps: usize,
    part: GridPart<'a, Packed>,
}

impl<T: Term> Kernel for RightCopy<'_, T> {
    type Out = ();
    const BF16: bool = true;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let blocks = self.part.rows().start / T::BLOCK..self.part.rows().end / T::BLOCK;
        let units = self.steps.div_ceil(UNIT);
        for chunk in self.part.panels() {
            let units = chunk * T::CHUNK..units.min((chunk + 1) * T::CHUNK);
            self.source.pack(simd, blocks.clone(), units, self.steps, self.part.panel(chunk));
        }
    }
}

impl<T: Term> RightSource<'_, T> {
    /// Units of blocks of columns, from a whole panel's first on, all of one chunk: `to[block][unit][part]`.
    #[inline(always)]
    pub(super) fn pack<S: Simd>(
        &self,
        simd: S,
        blocks: Range<usize>,
        units: Range<usize>,
        steps: usize,
        to: &mut [Packed],
    ) {
        // Filled for tails and transposed pieces only.
        let (mut padded, mut columns) = ([[0.0; WIDTH]; UNIT], [[0.0; WIDTH]; WIDTH]);
        for (panel, to) in (blocks.start / STRIPS..).zip(to[..blocks.len() * T::BLOCK].chunks_mut(STRIPS * T::BLOCK)) {
            for (index, unit) in units.clone().enumerate() {
                let to = &mut to[index * T::PARTS..];
                let rows = match *self {
                    Self::Ready { cells, stride } => {
                        let from = &cells[panel * stride..][unit * UNIT..steps.min((unit + 1) * UNIT)];
                        if let Some(whole) = from.first_chunk() {
                            whole
                        } else {
                            padded[..from.len()].copy_from_slice(from);
                            padded[from.len()..].fill([0.0; WIDTH]);
                            &padded
                        }
                    }
                    Self::Transposed { cells, stride, rows: end } => {
                        let from = &cells[unit * stride..][panel * UNIT..end.min((panel + 1) * UNIT)];
                        transpose_pairs(simd, from, &mut columns, &mut padded);
                        &padded
                    }
                    Self::ByRow(samples) => {
                        pack_rows(samples, panel, unit, to);
                        continue;
                    }
                    Self::ByColumn(samples) => {
                        pack_columns(simd, samples, panel, unit, to);
                        continue;
                    }
                };
                for (d, row) in rows.iter().enumerate() {
                    pack_row(bytemuck::cast_ref(row), d, T::BLOCK, to);
                }
            }
        }
    }
}

/// Pair number `d` of a panel's 64 columns to its place in the tiles of both blocks of columns, `block` elements apart.
#[inline(always)]
fn pack_row(row: &[u32; WIDTH], d: usize, block: usize, to: &mut [Packed]) {
    let columns: &[[u32; TILE]; WIDTH / TILE] = bytemuck::cast_ref(row);
    for (to, columns) in to.iter_mut().step_by(block).zip(columns.as_chunks::<2>().0) {
        to[d / TILE][0][d % TILE] = columns[0];
        to[d / TILE][1][d % TILE] = columns[1];
    }
}

/// A unit of 64 columns whose terms are in rows.
#[inline(always)]
fn pack_rows<T: Term>(samples: Samples<'_, T>, panel: usize, unit: usize, to: &mut [Packed]) {
    let mut parts = [[0; WIDTH]; 3];
    for d in 0..UNIT {
        samples.pair(panel, unit * UNIT + d, 0, &mut parts);
        for (part, row) in parts[..T::PARTS].iter().enumerate() {
            pack_row(row, d, T::BLOCK, &mut to[part..]);
        }
    }
}

/// A unit of 64 columns that are rows of their terms.
#[inline(always)]
fn pack_columns<S: Simd, T: Term>(simd: S, samples: Samples<'_, T>, panel: usize, unit: usize, to: &mut [Packed]) {
    let mut columns = [[[0; UNIT]; TILE]; 3];
    for index in 0..WIDTH / TILE {
        for c in 0..TILE {
            let mut parts = [[0; UNIT]; 3];
            let column = panel * WIDTH + index * TILE + c;
            if column < samples.count {
                samples.row(unit, column, &mut parts);
            }
            for (columns, part) in columns.iter_mut().zip(&parts[..T::PARTS]) {
                columns[c] = *part;
            }
        }
        // The last panel may have one block of columns only.
        let Some(to) = to.get_mut(index / 2 * T::BLOCK..) else { return };
        for (columns, to) in columns.iter().zip(to.iter_mut().take(T::PARTS)) {
            for (half, to) in to.iter_mut().enumerate() {
                let from = &bytemuck::cast_slice(columns.as_flattened())[half * TILE..];
                simd.transpose(from, UNIT, bytemuck::cast_slice_mut(to[index % 2].as_flattened_mut()), TILE);
            }
        }
    }
}
