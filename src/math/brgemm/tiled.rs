//! The passes on bfloat16 with AMX: one thread's share, in blocks of 32 x 32 sums.
//!
//! A block's step in depth is four tile products for four tile loads, and tiles are multiplied so fast that everything
//! but the first-level cache is slow beside them. From the outside in: rows of the result, columns of it, and chunks of
//! depth. A chunk of the right operand is packed tile by tile, 32 columns of it stay in the first-level cache while the
//! rows' left operand passes by, and the unfinished sums of rows x columns wait in the second. So an operand comes from
//! the third once for so many rows or columns.
//!
//! The definition: the depth is padded with zeros to whole units of 64 terms, and a sum takes each half of a unit as
//! [`crate::simd::bf16::dot_tile`] says, in ascending order, from its bias or from 0.

use std::cell::RefCell;
use std::ops::Range;

use super::panels::{Panels, Row, WIDTH};
use super::passes::After;
use super::plan::{Copies, Plan, Shape};
use super::sweep::Ending;
use super::tile::{Cell, Finish, put};
use super::transposed::transpose_pairs;
use crate::machine::team::Team;
use crate::memory::Buffer;
use crate::simd::amx::{Amx, BLOCK, Left, Origin, Packed, Pairs, Sums, TILE, Tiles, UNIT};
use crate::simd::bf16::pair;
use crate::simd::{Kernel, Simd};
use crate::sync::{Grid, GridPart};

/// Columns whose sums wait together.
const COLUMNS: usize = 256;
/// Most rows whose sums wait together: 1 MiB of them.
const ROWS: usize = 1024;
/// Units of a chunk of depth: 16 KiB of either operand for 32 rows or columns.
const CHUNK: usize = 4;
/// Bytes of a left operand that is transposed first: it should stay in the second-level cache.
const LEFT_BYTES: usize = 1 << 20;

/// Blocks of columns in a panel.
const STRIPS: usize = WIDTH / BLOCK;

/// The left operand.
#[derive(Debug, Clone, Copy)]
pub(super) enum LeftSource<'a> {
    /// Its rows are rows of panels of bfloat16, which padding makes whole units; whole tiles of rows can be read.
    ByRow(Left<'a>),
    /// Its rows are columns of samples.
    ByColumn(Samples<'a>),
}

/// The right operand, panels of pairs `stride` rows apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum RightSource<'a> {
    /// A row has the next pair of all columns.
    Ready {
        /// All panels.
        cells: &'a [Row<f32>],
        /// Rows between panels.
        stride: usize,
    },
    /// A row has a pair of columns, one step after the other; it holds two terms of each, and `rows` rows there are.
    Transposed {
        /// All panels.
        cells: &'a [Row<f32>],
        /// Rows between panels.
        stride: usize,
        /// Rows of a panel.
        rows: usize,
    },
    /// Two samples have the next pair of all columns.
    Samples(Samples<'a>),
}

/// Samples that are summed over, in panels of bfloat16: two of them make a row of pairs, on their way to the tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Samples<'a> {
    /// All panels.
    pub(super) cells: &'a [Row<u16>],
    /// Rows between panels.
    pub(super) stride: usize,
    /// How many count; those behind them are taken for zeros.
    pub(super) count: usize,
}

impl Samples<'_> {
    /// N columns from `column` on of samples 2 `index` and 2 `index` + 1, column by column.
    #[inline(always)]
    fn pair<const N: usize>(&self, panel: usize, index: usize, column: usize) -> [u32; N] {
        let zeros = [0; N];
        let [even, odd] = [2 * index, 2 * index + 1].map(|sample| {
            let cells = (sample < self.count).then(|| &self.cells[panel * self.stride + sample]);
            cells.map_or(&zeros, |cells| cells[column..].first_chunk().expect("columns of one panel"))
        });
        let mut pairs = [0; N];
        for ((to, &even), &odd) in pairs.iter_mut().zip(even).zip(odd) {
            *to = pair(even, odd);
        }
        pairs
    }
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
struct TiledSweep<'a, C> {
    amx: Amx,
    out: GridPart<'a, Row<C>>,
    /// Columns of the whole result.
    columns: usize,
    left: LeftSource<'a>,
    right: RightSource<'a>,
    /// Pairs of every sum.
    steps: usize,
    /// One a column of the whole result.
    bias: Option<&'a [f32]>,
    ending: Ending<'a, C>,
}

impl<C: Cell> Kernel for TiledSweep<'_, C> {
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
                let packed = first(&mut room.packed, CHUNK * group.len());
                self.group(simd, &tiles, left, [block.clone(), group], sums, packed);
            }
        }
        drop(tiles);
        ROOM.set(room);
    }
}

impl<'a> LeftSource<'a> {
    /// Most rows of the result whose sums wait together.
    fn height(&self, units: usize) -> usize {
        match self {
            Self::ByRow(_) => ROWS,
            Self::ByColumn(_) => (LEFT_BYTES / (units.max(1) * size_of::<Pairs>()) / WIDTH * WIDTH).clamp(WIDTH, ROWS),
        }
    }

    /// Rows of 32 pairs that a copy of `rows` rows takes, if one is made.
    fn copied(&self, units: usize, rows: usize) -> usize {
        match self {
            Self::ByRow(_) => 0,
            Self::ByColumn(_) => units * rows.next_multiple_of(TILE),
        }
    }

    /// The rows as tiles want them, the first of them in row 0.
    #[inline(always)]
    fn prepare<'b, S: Simd>(&self, simd: S, rows: Range<usize>, copy: &'b mut [Pairs]) -> Left<'b>
    where
        'a: 'b,
    {
        match *self {
            Self::ByRow(Left { cells, stride }) => Left { cells: &cells[rows.start..], stride },
            Self::ByColumn(samples) => {
                let height = rows.len().next_multiple_of(TILE);
                for (unit, copy) in copy.chunks_mut(height).enumerate() {
                    for half in 0..2 {
                        let start = unit * UNIT + half * TILE;
                        for (first, copy) in rows.clone().step_by(TILE).zip(copy.chunks_mut(TILE)) {
                            let mut tile = [[0; TILE]; TILE];
                            for (d, row) in tile.iter_mut().enumerate() {
                                *row = samples.pair(first / WIDTH, start + d, first % WIDTH);
                            }
                            let to = &mut bytemuck::cast_slice_mut(copy)[half * TILE..];
                            simd.transpose(bytemuck::cast_slice(tile.as_flattened()), TILE, to, UNIT);
                        }
                    }
                }
                Left { cells: copy, stride: height }
            }
        }
    }
}

impl RightSource<'_> {
    /// Units of the group's blocks of columns, tile by tile: `to[block][unit]`.
    #[inline(always)]
    fn pack<S: Simd>(&self, simd: S, group: Range<usize>, units: Range<usize>, steps: usize, to: &mut [Packed]) {
        let count = units.len();
        // Filled for tails and transposed pieces only.
        let (mut padded, mut columns) = ([[0.0; WIDTH]; UNIT], [[0.0; WIDTH]; WIDTH]);
        for (panel, to) in (group.start / STRIPS..).zip(to[..count * group.len()].chunks_mut(STRIPS * count)) {
            for (index, unit) in units.clone().enumerate() {
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
                    Self::Samples(samples) => {
                        for (d, row) in padded.iter_mut().enumerate() {
                            *row = bytemuck::cast(samples.pair::<WIDTH>(panel, unit * UNIT + d, 0));
                        }
                        &padded
                    }
                };
                for (half, to) in to[index..].iter_mut().step_by(count).enumerate() {
                    for (d, row) in rows.iter().enumerate() {
                        let columns: &[[u32; TILE]; WIDTH / TILE] = bytemuck::cast_ref(row);
                        to[d / TILE][0][d % TILE] = columns[2 * half];
                        to[d / TILE][1][d % TILE] = columns[2 * half + 1];
                    }
                }
            }
        }
    }
}

impl<C: Cell> TiledSweep<'_, C> {
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
            let count = CHUNK.min(units - first);
            self.right.pack(simd, group.clone(), first..first + count, self.steps, packed);
            let left = Left { cells: &left.cells[first * left.stride..], ..left };
            for (index, (strip, sums)) in group.clone().zip(sums.chunks_mut(blocks)).enumerate() {
                let packed = &packed[index * count..][..count];
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
pub(super) struct TiledPass<'a, C> {
    pub(super) shape: Shape,
    pub(super) left: LeftSource<'a>,
    pub(super) right: RightSource<'a>,
    /// One a column of the result.
    pub(super) bias: Option<&'a [f32]>,
    pub(super) after: After<'a, C>,
}

impl<C: Cell> TiledPass<'_, C> {
    /// Deals the first `shape.rows` rows of `out` to the team.
    pub(super) fn run(self, team: &Team, amx: Amx, out: &mut Panels<C>) {
        let Self { shape, left, right, bias, after } = self;
        let shape = Shape { grain: shape.grain.next_multiple_of(BLOCK), ..shape };
        let copies =
            Copies { rows: left.height(shape.steps.div_ceil(UNIT)), left: matches!(left, LeftSource::ByColumn(_)) };
        let (plan, sizes) = (Plan::for_tiles(shape, copies), [out.panels(), shape.rows, out.stride()]);
        if sizes[0] == 0 || sizes[1] == 0 {
            return;
        }
        let (vectors, ending, columns, steps) = (amx.avx512_bf16(), Ending::from(after), shape.columns, shape.steps);
        let grid = Grid::new(out.cells_mut(), sizes, [plan.across, plan.down], shape.grain);
        team.each(grid, |out| vectors.run(TiledSweep { amx, out, columns, left, right, steps, bias, ending }));
    }
}
