//! The passes on tiles of AMX-BF16: one thread's share, in blocks of 32 x 32 sums.
//!
//! A block's step in depth is four tile products for four tile loads, and tiles are multiplied so fast that everything
//! but the first-level cache is slow beside them. From the outside in: rows of the result, columns of it, and chunks of
//! depth. A chunk of the right operand is packed tile by tile, 32 columns of it stay in the first-level cache while the
//! rows' left operand passes by, and the unfinished sums of rows x columns wait in the second. So an operand comes from
//! the third once for so many rows or columns.
//!
//! The definition: the depth is padded with zeros to whole units of 64 terms, and a sum takes each half of a unit as
//! [`crate::simd::bf16::dot_tile`] says, or [`crate::simd::bf16::dot_thirds`] for 32-bit floats, in ascending order, from
//! its bias or from 0. 32-bit floats are parted on their way to the tiles, so both operands are copied.

use std::cell::RefCell;
use std::ops::Range;

use super::panels::{Panels, Row, WIDTH};
use super::passes::After;
use super::plan::{Copies, Plan, Shape};
use super::sweep::Ending;
use super::terms::{Samples, Term};
use super::tile::{Cell, Finish, put};
use super::transposed::transpose_pairs;
use crate::machine::team::Team;
use crate::memory::Buffer;
use crate::simd::amx::{Amx, BLOCK, Left, Origin, Packed, Pairs, Sums, TILE, Tiles, UNIT};
use crate::simd::{Kernel, Simd};
use crate::sync::{Grid, GridPart};

/// Columns whose sums wait together.
const COLUMNS: usize = 256;
/// Blocks of columns in a panel.
const STRIPS: usize = WIDTH / BLOCK;

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

/// A thread's memory, kept from pass to pass.
struct Room {
    sums: Buffer<Sums>,
    packed: Buffer<Packed>,
    left: Buffer<Pairs>,
}

impl Room {
    /// No memory yet.
    fn empty() -> Self {
        Self { sums: Buffer::zeroed(0), packed: Buffer::zeroed(0), left: Buffer::zeroed(0) }
    }
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::new(Room::empty());
}

/// At least `len` elements of the buffer, which grows if it must.
fn first<T: bytemuck::Pod>(buffer: &mut Buffer<T>, len: usize) -> &mut [T] {
    if buffer.len() < len {
        *buffer = Buffer::zeroed(len);
    }
    &mut buffer[..len]
}

/// A share of a pass.
struct TiledSweep<'a, T, C> {
    amx: Amx,
    out: GridPart<'a, Row<C>>,
    /// Columns of the whole result.
    columns: usize,
    left: LeftSource<'a, T>,
    right: RightSource<'a, T>,
    /// Pairs of every sum.
    steps: usize,
    /// One a column of the whole result.
    bias: Option<&'a [f32]>,
    ending: Ending<'a, C>,
}

impl<T: Term, C: Cell> Kernel for TiledSweep<'_, T, C> {
    type Out = ();
    const BF16: bool = true;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let (rows, units) = (self.out.rows.clone(), self.steps.div_ceil(UNIT));
        let strips = self.out.panels.start * STRIPS..(self.out.panels.end * STRIPS).min(self.columns.div_ceil(BLOCK));
        if rows.is_empty() || strips.is_empty() {
            return;
        }
        let height = self.left.height(units);
        let height = rows.len().div_ceil(rows.len().div_ceil(height)).next_multiple_of(BLOCK);
        // The memory is taken out and given back: the body of a closure that the standard library calls would be compiled
        // without this kernel's instruction set, and each of its vector operations would be a call.
        let mut room = ROOM.replace(Room::empty());
        let tiles = self.amx.tiles();
        for row in rows.clone().step_by(height) {
            let block = row..rows.end.min(row + height);
            let copy = first(&mut room.left, self.left.copied(units, block.len()));
            let left = self.left.prepare(simd, block.clone(), copy);
            for strip in strips.clone().step_by(COLUMNS / BLOCK) {
                let group = strip..strips.end.min(strip + COLUMNS / BLOCK);
                let sums = first(&mut room.sums, block.len().div_ceil(BLOCK) * group.len());
                let packed = first(&mut room.packed, T::PARTS * T::CHUNK * group.len());
                self.group(simd, &tiles, left, [block.clone(), group], sums, packed);
            }
        }
        drop(tiles);
        ROOM.set(room);
    }
}

impl<'a, T: Term> LeftSource<'a, T> {
    /// Most rows of the result whose sums wait together.
    fn height(&self, units: usize) -> usize {
        match self {
            Self::Ready(_) => T::ROWS,
            Self::ByRow(_) | Self::ByColumn(_) => {
                let row = T::PARTS * units.max(1) * size_of::<Pairs>();
                (T::LEFT_BYTES / row / WIDTH * WIDTH).clamp(WIDTH, T::ROWS)
            }
        }
    }

    /// Rows of 32 pairs that a copy of `rows` rows takes, if one is made.
    fn copied(&self, units: usize, rows: usize) -> usize {
        match self {
            Self::Ready(_) => 0,
            Self::ByRow(_) | Self::ByColumn(_) => T::PARTS * units * rows.next_multiple_of(BLOCK),
        }
    }

    /// The rows as tiles want them, the first of them in row 0: the first part of 16 rows, then their other parts.
    #[inline(always)]
    fn prepare<'b, S: Simd>(&self, simd: S, rows: Range<usize>, copy: &'b mut [Pairs]) -> Left<'b>
    where
        'a: 'b,
    {
        let stride = T::PARTS * rows.len().next_multiple_of(BLOCK);
        match *self {
            Self::Ready(Left { cells, stride }) => return Left { cells: &cells[rows.start..], stride },
            Self::ByRow(samples) => {
                for (unit, copy) in copy.chunks_mut(stride).enumerate() {
                    let mut parts = [[0; UNIT]; 3];
                    for (r, row) in rows.clone().enumerate() {
                        samples.row(unit, row, &mut parts);
                        let to = copy[r / TILE * TILE * T::PARTS + r % TILE..].iter_mut().step_by(TILE);
                        to.zip(&parts[..T::PARTS]).for_each(|(to, part)| *to = *part);
                    }
                }
            }
            Self::ByColumn(samples) => {
                let mut tiles = [[[0; TILE]; TILE]; 3];
                for (unit, copy) in copy.chunks_mut(stride).enumerate() {
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
            }
        }
        Left { cells: copy, stride }
    }
}

impl<T: Term> RightSource<'_, T> {
    /// Units of the group's blocks of columns, tile by tile: `to[block][unit][part]`.
    #[inline(always)]
    fn pack<S: Simd>(&self, simd: S, group: Range<usize>, units: Range<usize>, steps: usize, to: &mut [Packed]) {
        let block = units.len() * T::PARTS;
        // Filled for tails and transposed pieces only.
        let (mut padded, mut columns) = ([[0.0; WIDTH]; UNIT], [[0.0; WIDTH]; WIDTH]);
        for (panel, to) in (group.start / STRIPS..).zip(to[..block * group.len()].chunks_mut(STRIPS * block)) {
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
                        pack_rows(samples, panel, unit, block, to);
                        continue;
                    }
                    Self::ByColumn(samples) => {
                        pack_columns(simd, samples, panel, unit, block, to);
                        continue;
                    }
                };
                for (d, row) in rows.iter().enumerate() {
                    pack_row(bytemuck::cast_ref(row), d, block, to);
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
fn pack_rows<T: Term>(samples: Samples<'_, T>, panel: usize, unit: usize, block: usize, to: &mut [Packed]) {
    let mut parts = [[0; WIDTH]; 3];
    for d in 0..UNIT {
        samples.pair(panel, unit * UNIT + d, 0, &mut parts);
        for (part, row) in parts[..T::PARTS].iter().enumerate() {
            pack_row(row, d, block, &mut to[part..]);
        }
    }
}

/// A unit of 64 columns that are rows of their terms.
#[inline(always)]
fn pack_columns<S: Simd, T: Term>(
    simd: S,
    samples: Samples<'_, T>,
    panel: usize,
    unit: usize,
    block: usize,
    to: &mut [Packed],
) {
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
        let Some(to) = to.get_mut(index / 2 * block..) else { return };
        for (columns, to) in columns.iter().zip(to.iter_mut().take(T::PARTS)) {
            for (half, to) in to.iter_mut().enumerate() {
                let from = &bytemuck::cast_slice(columns.as_flattened())[half * TILE..];
                simd.transpose(from, UNIT, bytemuck::cast_slice_mut(to[index % 2].as_flattened_mut()), TILE);
            }
        }
    }
}

impl<T: Term, C: Cell> TiledSweep<'_, T, C> {
    /// A group of blocks of columns for some rows, all of the depth; `left` begins with the first of the rows.
    #[inline(always)]
    fn group<S: Simd>(
        &mut self,
        simd: S,
        tiles: &Tiles,
        left: Left<'_>,
        [rows, group]: [Range<usize>; 2],
        sums: &mut [Sums],
        packed: &mut [Packed],
    ) {
        let (blocks, units) = (rows.len().div_ceil(BLOCK), self.steps.div_ceil(UNIT));
        let mut first = 0;
        loop {
            let count = T::CHUNK.min(units - first);
            self.right.pack(simd, group.clone(), first..first + count, self.steps, packed);
            let left = Left { cells: &left.cells[first * left.stride..], ..left };
            for (index, (strip, sums)) in group.clone().zip(sums.chunks_mut(blocks)).enumerate() {
                let packed = &packed[index * count * T::PARTS..][..count * T::PARTS];
                let width = BLOCK.min(self.columns - strip * BLOCK);
                let mut bias = [0.0; BLOCK];
                if let Some(all) = self.bias {
                    bias[..width].copy_from_slice(&all[strip * BLOCK..][..width]);
                }
                let origin = if first == 0 { Origin::Row(&bias) } else { Origin::Sums };
                for (block, sums) in sums.iter_mut().enumerate() {
                    let row = block * BLOCK;
                    let height = BLOCK.min(rows.len() - row);
                    let row_and_next = [row, if block + 1 < blocks { row + BLOCK } else { 0 }];
                    match (height > TILE, width > TILE) {
                        _ if T::PARTS == 3 => tiles.multiply_thirds(sums, origin, left, row_and_next, packed),
                        (true, true) => tiles.multiply::<2, 2>(sums, origin, left, row_and_next, packed),
                        (false, true) => tiles.multiply::<1, 2>(sums, origin, left, row_and_next, packed),
                        (true, false) => tiles.multiply::<2, 1>(sums, origin, left, row_and_next, packed),
                        (false, false) => tiles.multiply::<1, 1>(sums, origin, left, row_and_next, packed),
                    }
                    if first + count == units {
                        self.finish(simd, sums, strip, rows.start + row..rows.start + row + height);
                    }
                }
            }
            first += count;
            if first == units {
                return;
            }
        }
    }

    /// Gives complete sums to the result.
    #[inline(always)]
    fn finish<S: Simd>(&mut self, simd: S, sums: &Sums, strip: usize, rows: Range<usize>) {
        let (panel, column) = (strip / STRIPS, strip % STRIPS * BLOCK);
        let width = WIDTH.min(self.columns - panel * WIDTH);
        let finish = match self.ending {
            Ending::Keep => Finish::Keep,
            Ending::Relu => Finish::Relu,
            Ending::Gate(gate) => Finish::Gate(&gate.panel(panel)[rows.clone()]),
        };
        let start = self.out.rows.start;
        let out = &mut self.out.panel(panel)[rows.start - start..rows.end - start];
        for (r, (out, sums)) in out.iter_mut().zip(&sums.0).enumerate() {
            for at in (0..BLOCK.min(width - column)).step_by(S::LANES) {
                put(simd, simd.load(&sums[at..]), finish, r, out, column + at, width);
            }
        }
    }
}

/// A pass on tiles.
pub(super) struct TiledPass<'a, T, C> {
    pub(super) shape: Shape,
    pub(super) left: LeftSource<'a, T>,
    pub(super) right: RightSource<'a, T>,
    /// One a column of the result.
    pub(super) bias: Option<&'a [f32]>,
    pub(super) after: After<'a, C>,
}

impl<T: Term, C: Cell> TiledPass<'_, T, C> {
    /// Deals the first `shape.rows` rows of `out` to the team.
    pub(super) fn run(self, team: &Team, amx: Amx, out: &mut Panels<C>) {
        let Self { shape, left, right, bias, after } = self;
        let copies =
            Copies { rows: left.height(shape.steps.div_ceil(UNIT)), left: !matches!(left, LeftSource::Ready(_)) };
        let (plan, sizes) = (Plan::for_tiles(shape, BLOCK, copies), [out.panels(), shape.rows, out.stride()]);
        if sizes[0] == 0 || sizes[1] == 0 {
            return;
        }
        let (vectors, ending, columns, steps) = (amx.avx512_bf16(), Ending::from(after), shape.columns, shape.steps);
        let grid = Grid::new(out.cells_mut(), sizes, [plan.across, plan.down], shape.grain.next_multiple_of(BLOCK));
        team.each(grid, |out| vectors.run(TiledSweep { amx, out, columns, left, right, steps, bias, ending }));
    }
}
