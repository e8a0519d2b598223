//! The passes on tiles of AMX-BF16: one thread's share, in blocks of 32 x 32 sums.
//!
//! A block's step in depth is four tile products for four tile loads, and tiles are multiplied so fast that everything
//! but the first-level cache is slow beside them. From the outside in: rows of the result, columns of it, and chunks of
//! depth. 32 columns of a chunk of the right operand stay in the first-level cache while the rows' left operand passes
//! by, and the unfinished sums of rows x columns wait in the second. So an operand comes from the third once for so
//! many rows or columns.
//!
//! The definition: the depth is padded with zeros to whole units of 64 terms, and a sum takes each half of a unit as
//! [`crate::simd::bf16::dot_tile`] says, or [`crate::simd::bf16::dot_thirds`] for 32-bit floats, in ascending order,
//! from its bias or from 0. 32-bit floats are parted on their way to the tiles, so both operands are copied.

use std::cell::RefCell;
use std::ops::Range;

use super::operands::{Copies, LeftOperand, LeftSource, RightOperand, RightSource, STRIPS, first};
use super::panels::{Panels, Row, WIDTH};
use super::passes::{After, Onto};
use super::plan::{Plan, Shape};
use super::terms::Term;
use super::tile::{Cell, put};
use crate::machine::team::Team;
use crate::memory::Buffer;
use crate::simd::amx::{Amx, BLOCK, Left, Origin, Packed, Pairs, Sums, TILE, Tiles, UNIT};
use crate::simd::{Kernel, Simd};
use crate::sync::{Grid, GridPart};

/// Columns whose sums wait together.
const COLUMNS: usize = 256;
/// Rows whose sums wait together. Of the 2 MiB of L2, 0.9 are taken: twice as many rows were up to a sixth slower.
const ROWS: usize = 512;
/// Bytes of a left operand that a thread copies first: read once for so many columns, it may come from L3.
const LEFT_BYTES: usize = 8 << 20;

/// A thread's memory, kept from pass to pass.
struct Scratchpad {
    /// Unfinished sums.
    sums: Buffer<Sums>,
    /// Its own copies of a left operand, and of a group's right one.
    left: Buffer<Pairs>,
    packed: Buffer<Packed>,
}

impl Scratchpad {
    /// No memory yet.
    fn empty() -> Self {
        Self { sums: Buffer::zeroed(0), left: Buffer::zeroed(0), packed: Buffer::zeroed(0) }
    }
}

thread_local! {
    static SCRATCHPAD: RefCell<Scratchpad> = RefCell::new(Scratchpad::empty());
    /// Operands of the passes that this thread began.
    static COPIES: RefCell<Copies> = RefCell::new(Copies::empty());
}

/// Rows of each of the fewest, equal parts of `rows` that have at most `most`, in whole blocks.
fn part_of(rows: &Range<usize>, most: usize) -> usize {
    rows.len().div_ceil(rows.len().div_ceil(most)).next_multiple_of(BLOCK)
}

/// A share of a pass.
struct TiledSweep<'a, T, C> {
    amx: Amx,
    out: GridPart<'a, Row<C>>,
    /// Columns of the whole result.
    columns: usize,
    left: LeftOperand<'a, T>,
    right: RightOperand<'a, T>,
    /// Pairs of every sum.
    steps: usize,
    /// One a column of the whole result.
    bias: Option<&'a [f32]>,
    /// What sums start from where there is no bias.
    onto: Onto,
    ending: After<'a, C>,
}

/// Rows of the result, and their left operand.
struct Block<'a> {
    rows: Range<usize>,
    left: Left<'a>,
    /// The row that it begins with.
    first: usize,
}

/// Sums that wait together, and a chunk of their depth.
struct Chunk<'a> {
    rows: Range<usize>,
    /// Blocks of columns.
    group: Range<usize>,
    units: Range<usize>,
    /// The group's right operand.
    right: &'a [Packed],
}

impl<T: Term, C: Cell> Kernel for TiledSweep<'_, T, C> {
    type Out = ();
    const BF16: bool = true;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let (rows, units) = (self.out.rows(), self.steps.div_ceil(UNIT));
        let strips =
            self.out.panels().start * STRIPS..(self.out.panels().end * STRIPS).min(self.columns.div_ceil(BLOCK));
        if rows.is_empty() || strips.is_empty() {
            return;
        }
        // The memory is taken out and given back: the body of a closure that the standard library calls would be
        // compiled without this kernel's instruction set, and each of its vector operations would be a call.
        let mut room = SCRATCHPAD.replace(Scratchpad::empty());
        let tiles = self.amx.tiles();
        let most = match self.left {
            LeftOperand::Shared(_) => usize::MAX,
            LeftOperand::Own(_) => (LEFT_BYTES / (T::PARTS * units.max(1) * size_of::<Pairs>())).max(1),
        };
        let Scratchpad { sums, left, packed } = &mut room;
        let height = part_of(&rows, most);
        for row in rows.clone().step_by(height) {
            let rows = row..rows.end.min(row + height);
            let block = match self.left {
                LeftOperand::Shared(left) => Block { rows, left, first: 0 },
                LeftOperand::Own(source) => {
                    Block { left: source.copied(simd, rows.clone(), units, left), rows, first: row }
                }
            };
            for strip in strips.clone().step_by(COLUMNS / BLOCK) {
                let group = strip..strips.end.min(strip + COLUMNS / BLOCK);
                self.group(simd, &tiles, &block, group, sums, packed);
            }
        }
        drop(tiles);
        SCRATCHPAD.set(room);
    }
}

impl<T: Term, C: Cell> TiledSweep<'_, T, C> {
    /// A group of blocks of columns for a block of rows.
    #[inline(always)]
    fn group<S: Simd>(
        &mut self,
        simd: S,
        tiles: &Tiles,
        block: &Block<'_>,
        group: Range<usize>,
        sums: &mut Buffer<Sums>,
        packed: &mut Buffer<Packed>,
    ) {
        let (rows, units, size) = (&block.rows, self.steps.div_ceil(UNIT), group.len() * T::BLOCK);
        let height = part_of(rows, ROWS);
        let sums = first(sums, height / BLOCK * group.len());
        // Copies are kept if there are more rows to come that need them.
        let kept = usize::from(rows.len() > height);
        for row in rows.clone().step_by(height) {
            // Sums without terms are their bias.
            for unit in (0..units.max(1)).step_by(T::CHUNK) {
                let (chunk, units) = (unit / T::CHUNK, unit..units.min(unit + T::CHUNK));
                let right = match self.right {
                    RightOperand::Shared { cells, blocks } => {
                        &cells[(chunk * blocks + group.start) * T::BLOCK..][..size]
                    }
                    RightOperand::Own(source) => {
                        let all = first(packed, (kept * self.steps / (T::CHUNK * UNIT) + 1) * size);
                        let packed = &mut all[kept * chunk * size..][..size];
                        if row == rows.start {
                            source.pack(simd, group.clone(), units.clone(), self.steps, packed);
                        }
                        packed
                    }
                };
                let rows = row..rows.end.min(row + height);
                let chunk = Chunk { rows, group: group.clone(), units, right };
                self.chunk(simd, tiles, block, &chunk, sums);
            }
        }
    }

    /// Adds a chunk of their depth to sums, block by block; those that are complete are given to the result.
    #[inline(always)]
    fn chunk<S: Simd>(&mut self, simd: S, tiles: &Tiles, block: &Block<'_>, chunk: &Chunk<'_>, sums: &mut [Sums]) {
        let (Block { left, first, .. }, Chunk { rows, group, units, right }) = (block, chunk);
        let blocks = rows.len().div_ceil(BLOCK);
        let left = Left { cells: &left.cells[units.start * left.stride..], ..*left };
        let packed = right.chunks(T::BLOCK).map(|packed| &packed[..units.len() * T::PARTS]);
        for ((strip, sums), packed) in group.clone().zip(sums.chunks_mut(blocks)).zip(packed) {
            let width = BLOCK.min(self.columns - strip * BLOCK);
            let mut bias = [0.0; BLOCK];
            if let Some(all) = self.bias {
                bias[..width].copy_from_slice(&all[strip * BLOCK..][..width]);
            }
            let begins = units.start == 0;
            let origin = if begins && self.onto == Onto::Zero { Origin::Row(&bias) } else { Origin::Sums };
            for (row, sums) in rows.clone().step_by(BLOCK).zip(sums) {
                let height = BLOCK.min(rows.end - row);
                let next = if row + BLOCK < rows.end { row + BLOCK } else { rows.start };
                let row_and_next = [row - first, next - first];
                if begins && self.onto == Onto::Result {
                    self.take_up(simd, sums, strip, row..row + height);
                }
                match (height > TILE, width > TILE) {
                    _ if T::PARTS == 3 => tiles.multiply_thirds(sums, origin, left, row_and_next, packed),
                    (true, true) => tiles.multiply::<2, 2>(sums, origin, left, row_and_next, packed),
                    (false, true) => tiles.multiply::<1, 2>(sums, origin, left, row_and_next, packed),
                    (true, false) => tiles.multiply::<2, 1>(sums, origin, left, row_and_next, packed),
                    (false, false) => tiles.multiply::<1, 1>(sums, origin, left, row_and_next, packed),
                }
                if units.end == self.steps.div_ceil(UNIT) {
                    self.finish(simd, sums, strip, row..row + height);
                }
            }
        }
    }

    /// Takes sums from the result, to go on with.
    #[inline(always)]
    fn take_up<S: Simd>(&mut self, simd: S, sums: &mut Sums, strip: usize, rows: Range<usize>) {
        let (panel, column) = (strip / STRIPS, strip % STRIPS * BLOCK);
        let start = self.out.rows().start;
        let out = &self.out.panel(panel)[rows.start - start..rows.end - start];
        for (sums, out) in sums.0.iter_mut().zip(out) {
            for at in (0..BLOCK).step_by(S::LANES) {
                simd.store(C::load(simd, &out[column + at..]), &mut sums[at..]);
            }
        }
    }

    /// Gives complete sums to the result.
    #[inline(always)]
    fn finish<S: Simd>(&mut self, simd: S, sums: &Sums, strip: usize, rows: Range<usize>) {
        let (panel, column) = (strip / STRIPS, strip % STRIPS * BLOCK);
        let width = WIDTH.min(self.columns - panel * WIDTH);
        let finish = self.ending.of(panel, &rows);
        let start = self.out.rows().start;
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
    /// Without a bias.
    pub(super) onto: Onto,
    pub(super) after: After<'a, C>,
}

impl<T: Term, C: Cell> TiledPass<'_, T, C> {
    /// Deals the first `shape.rows` rows of `out` to the team.
    pub(super) fn run(self, team: &Team, amx: Amx, out: &mut Panels<C>) {
        let Self { shape, left, right, bias, onto, after } = self;
        let Shape { rows, columns, steps, .. } = shape;
        if rows == 0 || columns == 0 {
            return;
        }
        let plan = Plan::for_tiles(shape, BLOCK, [left.copying(), right.copying()]);
        let mut copies = COPIES.replace(Copies::empty());
        let left = left.for_team(team, amx, [rows, steps.div_ceil(UNIT), plan.across], &mut copies.left);
        let right = right.for_team(team, amx, [columns, steps, plan.down], &mut copies.right);
        let (vectors, ending) = (amx.avx512_bf16(), after);
        let (sizes, grain) = ([out.panels(), rows, out.stride()], shape.grain.next_multiple_of(BLOCK));
        let grid = Grid::new(out.cells_mut(), sizes, [plan.across, plan.down], grain);
        team.each(grid, |out| vectors.run(TiledSweep { amx, out, columns, left, right, steps, bias, onto, ending }));
        COPIES.set(copies);
    }
}
