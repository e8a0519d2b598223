//! How a pass is cut: over the threads, and into pieces that fit the caches.
//!
//! The model counts cycles of the slowest thread: its multiply-adds at 32 lanes a cycle, plus what it moves between its
//! L2 and the rest of the machine at 4 bytes a cycle. All ways to factor the threads into (ranges of panels) x (ranges
//! of rows) are compared and the cheapest wins; so 15 panels on two threads are cut by rows, a wide layer with a small
//! minibatch by panels. Tiles multiply so fast that copies of operands count beside it: see [`Copying`].
//!
//! A thread's part falls into pieces that others may take over: cores of a shared machine differ by a tenth to a
//! quarter for milliseconds, and passes became 8 to 20 % quicker (medians of passes in turns, 1024 x 1024 x 1024 to
//! 2048 x 480 x 1024) when the slower core was helped. On cores that nobody disturbs, pieces cost up to 2 %, perhaps by
//! more tiles of 13 rows. With 32 registers, less depth, right operands of 1 MiB or of a part of L1, and left operands
//! packed in strips were measured beside them and are not better.
//!
//! On a Zen 3 with busy neighbours, passes of one thread whose right operands were copied in strips were quicker than
//! without (medians of ratios of passes in turns, 256 rows to 1024 x 1024 x 1024): backward-by-weights by -1 to 12 %,
//! forward by 3 to 9 %, backward-by-data by 1 to 9 %. With 128 rows, forward was 3 % slower. What makes the difference
//! is that a tile asks for the sums that the next one goes on with: without that, passes were up to 15 % slower.

use std::fmt;
use std::sync::OnceLock;

use super::panels::WIDTH;
use crate::machine::l2_bytes;
use crate::simd::Isa;

/// What may stay in L2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Near {
    /// Bytes of the right operand.
    right_bytes: usize,
    /// Most steps between two visits of a tile of the result, so that its rows of the left operand wait in L2 for the
    /// group's other columns: 64 KiB of 1024 steps. A visit moves as many bytes as 2 steps, and takes 0.2 % of the time
    /// of 1024.
    depth: usize,
    /// Whether right operands are copied in strips where that pays.
    strips: bool,
}

impl Near {
    /// With this processor's cache of the second level.
    fn here() -> Self {
        static HERE: OnceLock<Near> = OnceLock::new();
        *HERE.get_or_init(|| {
            let near = Self::of(l2_bytes().unwrap_or(1 << 20));
            Self { strips: near.strips && Plan::reads_strips(Isa::best()), ..near }
        })
    }

    /// Half of 1 MiB, which servers with AVX-512 have at least. Of the 512 KiB of those with AVX2 alone a quarter: with
    /// half the depth passes of a Zen 3 reached 86 to 95 % of the peak so, and 81 to 88 % with all of them.
    const fn of(l2_bytes: usize) -> Self {
        if l2_bytes >= 1 << 20 {
            Self { right_bytes: 512 << 10, depth: 1024, strips: false }
        } else {
            Self { right_bytes: 128 << 10, depth: 512, strips: true }
        }
    }
}

/// Steps of a strip that stays in half of 32 KiB of L1, 16 columns wide.
const STRIP_DEPTH: usize = 256;

/// Fewest rows of a thread for which it copies right operands in strips.
const STRIP_ROWS: usize = 256;

/// Fewest rows of a piece of work, so that a right operand is used often once it is near.
const PIECE_ROWS: usize = 96;

/// Most rows of a band: 192 KiB of the left operand, of 256 steps, wait in L2 for all strips of a group.
pub(super) const BAND_ROWS: usize = 2 * PIECE_ROWS;

/// Fewest cycles of a piece of work: some microseconds, so that a tenth of one for claiming it counts little.
const PIECE_CYCLES: usize = 1 << 14;

/// Bytes of one step of one panel of the right operand.
const STEP_BYTES: usize = 4 * WIDTH;

/// Steps times panels that a written plan may ask scratch memory for at most, a thread: 64 MiB.
const MOST_RIGHT_STEPS: usize = (64 << 20) / STEP_BYTES;

/// The result's size and who shares the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows of the result.
    pub rows: usize,
    /// Ranges of rows begin at multiples of this.
    pub grain: usize,
    /// Columns of the result.
    pub columns: usize,
    /// Terms of each sum, pairs of bfloat16 counted as one.
    pub steps: usize,
    /// Whether a sum cannot be left and taken up again: results in bfloat16 hold no partial sums.
    pub whole: bool,
    /// Threads.
    pub threads: usize,
}

impl Shape {
    /// The same work where bfloat16 are widened: a pair is two steps.
    #[must_use]
    pub const fn widened(self) -> Self {
        Self { steps: 2 * self.steps, ..self }
    }
}

/// Elements of the result and steps that a tile product adds in a cycle: 16 x 16 x 16 in 16.
const TILE_PRODUCTS: usize = 256;

/// Fewest threads that need the same for which all of them copy it together. A transposed pair costs half a cycle, and
/// one that comes from L3, where other threads' copies are, as much: passes of two threads were up to 8 % slower so.
/// That more gain by it is counted, not measured.
const SHARERS: usize = 4;

/// What it takes to bring an operand into the order that tiles want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copying {
    /// It lies so.
    Free,
    /// It is brought to another place: some 200 cycles for 32 x 64 pairs.
    Cheap,
    /// Its 32-bit floats are parted.
    Parted,
    /// It is transposed: some 150 cycles for 16 x 16 pairs.
    Transposed,
}

impl Copying {
    /// Cycles for 20 pairs.
    const fn cycles(self) -> usize {
        match self {
            Self::Free => 0,
            Self::Cheap => 2,
            Self::Parted => 5,
            Self::Transposed => 10,
        }
    }

    /// Whether so many threads that need the same copy it together.
    pub(super) fn is_shared(self, sharers: usize) -> bool {
        matches!(self, Self::Parted | Self::Transposed) && sharers >= SHARERS
    }
}

/// A choice, with what the model expects of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Ranges of panels.
    pub across: usize,
    /// Ranges of rows.
    pub down: usize,
    /// Steps of one chunk of depth; a multiple of 64.
    pub depth: usize,
    /// Panels whose right operand is in L2 at a time.
    pub group: usize,
    /// Whether the right operand is copied in strips as wide as a tile.
    pub strips: bool,
    /// Cycles of the slowest thread's multiply-adds.
    pub compute_cycles: usize,
    /// Bytes that the slowest thread moves in and out of its L2.
    pub moved_bytes: usize,
}

impl Plan {
    /// The plan that was measured to be best, where one is installed (see [`super::install`]), or the model's.
    ///
    /// # Panics
    /// When there are no threads.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        super::tuned::installed(shape).unwrap_or_else(|| Self::modelled(shape))
    }

    /// The cheapest plan by the model.
    ///
    /// # Panics
    /// When there are no threads.
    #[must_use]
    pub fn modelled(shape: Shape) -> Self {
        Self::modelled_with(shape, Near::here())
    }

    fn modelled_with(shape: Shape, near: Near) -> Self {
        assert!(shape.threads > 0, "somebody does the work");
        let ways = (1..=shape.threads).filter(|across| shape.threads.is_multiple_of(*across));
        let plans = ways.map(|across| Self::cut(shape, across, near));
        plans.min_by_key(|plan| plan.compute_cycles + plan.moved_bytes / 4).expect("1 divides all")
    }

    /// As [`Plan::new`], for a pass on tiles: ranges of rows begin at multiples of `block`, too, and threads copy the
    /// left operand of their rows and the right one of their columns, or, where many need the same and it takes long, a
    /// part of all.
    pub(super) fn for_tiles(shape: Shape, block: usize, [left, right]: [Copying; 2]) -> Self {
        let modelled = || {
            let shape = Shape { grain: shape.grain.next_multiple_of(block), ..shape };
            let Shape { rows, grain, columns, steps, threads, .. } = shape;
            let ways = (1..=threads).filter(|across| threads.is_multiple_of(*across));
            let cycles = |plan: &Self| {
                let own_rows = (rows.div_ceil(grain).div_ceil(plan.down) * grain).min(rows);
                let own_columns = columns.div_ceil(WIDTH).div_ceil(plan.across) * WIDTH;
                let copied = |copy: Copying, own, sharers| if copy.is_shared(sharers) { own / sharers } else { own };
                let left = left.cycles() * copied(left, own_rows, plan.across);
                let right = right.cycles() * copied(right, own_columns, plan.down);
                steps * (own_rows * own_columns / TILE_PRODUCTS + (left + right) / 20)
            };
            ways.map(|across| Self::cut(shape, across, Near::here())).min_by_key(cycles).expect("1 divides all")
        };
        super::tuned::installed(shape).unwrap_or_else(modelled)
    }

    /// The plan with so many ranges of panels.
    fn cut(shape: Shape, across: usize, near: Near) -> Self {
        let strips = near.strips && Self::rows_of(shape, across) >= STRIP_ROWS && Self::may_be_strips(shape);
        let most = if strips { STRIP_DEPTH } else { near.depth };
        let chunks = if shape.whole { 1 } else { shape.steps.div_ceil(most).max(1) };
        let depth = Self::depth_of(shape, chunks);
        Self::with(shape, across, depth, Self::group_of(shape, across, depth, near.right_bytes), strips)
    }

    /// Whether strips can be as short as L1 wants them.
    const fn may_be_strips(shape: Shape) -> bool {
        !shape.whole || shape.steps <= STRIP_DEPTH
    }

    /// Most rows of a thread.
    fn rows_of(shape: Shape, across: usize) -> usize {
        let Shape { rows, grain, threads, .. } = shape;
        (rows.div_ceil(grain).div_ceil(threads / across) * grain).min(rows)
    }

    /// Steps of each of so many chunks.
    fn depth_of(shape: Shape, chunks: usize) -> usize {
        shape.steps.div_ceil(chunks).next_multiple_of(WIDTH).max(WIDTH)
    }

    /// As many panels of one thread as fit `bytes`, at least one.
    fn group_of(shape: Shape, across: usize, depth: usize, bytes: usize) -> usize {
        let panels = shape.columns.div_ceil(WIDTH).div_ceil(across);
        (bytes / (depth * STEP_BYTES)).clamp(1, panels.max(1))
    }

    /// A plan with the model's expectations.
    fn with(shape: Shape, across: usize, depth: usize, group: usize, strips: bool) -> Self {
        let Shape { columns, steps, threads, .. } = shape;
        let down = threads / across;
        let panels = columns.div_ceil(WIDTH).div_ceil(across);
        let rows = Self::rows_of(shape, across);
        let chunks = steps.div_ceil(depth).max(1);
        let right = panels * STEP_BYTES * steps;
        let left = rows * 4 * steps * panels.div_ceil(group);
        let result = rows * panels * STEP_BYTES * (2 * chunks - 1);
        let compute_cycles = rows * panels * steps * (WIDTH / 32);
        Self { across, down, depth, group, strips, compute_cycles, moved_bytes: right + left + result }
    }
}

/// How the work is shared out.
impl Plan {
    /// Into how many ranges of panels and of rows a thread's part falls: pieces that another thread may take over.
    pub(super) fn pieces(&self, shape: Shape) -> [usize; 2] {
        let panels = shape.columns.div_ceil(WIDTH).div_ceil(self.across);
        let group = self.group.min(panels).max(1);
        let row_cycles = (group * self.depth.min(shape.steps) * (WIDTH / 32)).max(1);
        let rows = PIECE_ROWS.max(PIECE_CYCLES / row_cycles);
        [panels.div_ceil(group).max(1), (shape.rows / self.down / rows).max(1)]
    }
}

/// What may be chosen.
impl Plan {
    /// Whether an instruction set's tiles read strips; a plan's strips are not used where they do not.
    #[must_use]
    pub const fn reads_strips(isa: Isa) -> bool {
        matches!(isa, Isa::Scalar(_) | Isa::Avx2(_))
    }

    /// The plan with these choices: `across` ranges of panels, chunks of `depth` steps, `group` panels at a time, which
    /// are copied in `strips` or not.
    ///
    /// # Errors
    /// A sentence, when the shape does not allow one of them.
    pub fn chosen(shape: Shape, across: usize, depth: usize, group: usize, strips: bool) -> Result<Self, String> {
        let Shape { threads, steps, whole, .. } = shape;
        if across == 0 || !threads.is_multiple_of(across) {
            return Err(format!("{threads} threads cannot be cut into {across} ranges of panels"));
        }
        if depth == 0 || !depth.is_multiple_of(WIDTH) {
            return Err(format!("a depth of {depth} steps is no multiple of {WIDTH}"));
        }
        if whole && depth < steps {
            return Err(format!("sums of {steps} steps in bfloat16 cannot be left after {depth}"));
        }
        if group == 0 || group > shape.columns.div_ceil(WIDTH).max(1) || group.saturating_mul(depth) > MOST_RIGHT_STEPS
        {
            return Err(format!("{group} panels of {depth} steps at a time are none, or too many"));
        }
        Ok(Self::with(shape, across, depth, group, strips))
    }

    /// Plans worth measuring, the model's first: every cut over the threads, one to some chunks of depth, right
    /// operands of a part of L2 up to several, in strips that may stay in L1 or not.
    ///
    /// # Panics
    /// When there are no threads.
    #[must_use]
    pub fn candidates(shape: Shape) -> Vec<Self> {
        let mut plans = vec![Self::modelled(shape)];
        let near = Near::here();
        let chunks = |most: usize| if shape.whole { 1 } else { shape.steps.div_ceil(most).max(1) };
        let rows = (1..=2 * chunks(near.depth)).filter(|&chunks| chunks == 1 || !shape.whole);
        let depths = rows.map(|chunks| (Self::depth_of(shape, chunks), false));
        let strips = (Self::reads_strips(Isa::best()) && Self::may_be_strips(shape))
            .then(|| (Self::depth_of(shape, chunks(STRIP_DEPTH)), true));
        let depths: Vec<_> = depths.chain(strips).collect();
        for across in (1..=shape.threads).filter(|across| shape.threads.is_multiple_of(*across)) {
            for &(depth, strips) in &depths {
                for bytes in [1, 2, 4, 8, 16].map(|quarters| near.right_bytes * quarters / 4) {
                    let plan = Self::with(shape, across, depth, Self::group_of(shape, across, depth, bytes), strips);
                    if !plans.contains(&plan) {
                        plans.push(plan);
                    }
                }
            }
        }
        plans
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { across, down, depth, group, strips, compute_cycles, moved_bytes } = self;
        let strips = if *strips { ", in strips" } else { "" };
        write!(f, "panels / {across}, rows / {down}; {depth} steps x {group} panels at a time{strips}; ")?;
        write!(f, "{:.3} M cycles, {:.1} MB", *compute_cycles as f64 / 1e6, *moved_bytes as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::brgemm::weights_shape;

    const WIDE: Shape = Shape { rows: 1024, grain: 1, columns: 4096, steps: 4096, whole: false, threads: 2 };

    #[test]
    fn the_grid_follows_the_shape() {
        let plan = Plan::new(WIDE);
        assert_eq!((plan.across, plan.down), (2, 1), "{plan}");
        let odd = Plan::new(Shape { rows: 2048, columns: 15 * WIDTH, ..WIDE });
        assert_eq!((odd.across, odd.down), (1, 2), "{odd}");
        let one = Plan::new(Shape { columns: 1, ..WIDE });
        assert_eq!((one.across, one.down), (1, 2), "{one}");
        let many = Plan::new(Shape { threads: 28, ..WIDE });
        assert_eq!(many.across * many.down, 28, "{many}");
    }

    #[test]
    fn the_right_operand_stays_in_l2() {
        for steps in [0, 1, 13, 64, 479, 1024, 1025, 3000, 4096] {
            for near in [512 << 10, 2 << 20].map(Near::of) {
                let plan = Plan::modelled_with(Shape { steps, ..WIDE }, near);
                let right_bytes = plan.group * plan.depth * STEP_BYTES;
                assert!(right_bytes <= near.right_bytes && plan.depth.is_multiple_of(WIDTH), "{plan}");
                assert!(plan.depth <= near.depth);
                assert!(Plan::modelled_with(Shape { steps, whole: true, ..WIDE }, near).depth >= steps);
            }
        }
    }

    #[test]
    fn strips_are_short_and_used_often() {
        let plan = |shape, l2_bytes| Plan::modelled_with(shape, Near::of(l2_bytes));
        for steps in [1, 64, 257, 4096] {
            let shape = Shape { steps, ..WIDE };
            let strips = plan(shape, 512 << 10);
            assert!(strips.strips && strips.depth <= STRIP_DEPTH, "{strips}");
            assert!(!plan(shape, 1 << 20).strips, "not measured to be better");
            let few = plan(Shape { rows: STRIP_ROWS - 1, ..shape }, 512 << 10);
            assert!(!few.strips, "{few}");
            let whole = plan(Shape { whole: true, ..shape }, 512 << 10);
            assert_eq!(whole.strips, steps <= STRIP_DEPTH, "{whole}");
        }
    }

    #[test]
    fn pieces_keep_to_groups_and_are_not_small() {
        for (rows, columns, steps) in [(1024, 4096, 4096), (2048, 512, 13), (2048, 1, 256), (5, 64, 3), (0, 64, 64)] {
            for threads in [1, 2, 28] {
                let shape = Shape { rows, columns, steps, threads, ..WIDE };
                let plan = Plan::modelled(shape);
                let [across, down] = plan.pieces(shape);
                let panels = columns.div_ceil(WIDTH).div_ceil(plan.across);
                assert!(panels.div_ceil(across) <= plan.group && across <= panels, "{plan}");
                assert!(down == 1 || rows / plan.down / down >= PIECE_ROWS, "{down} ranges of rows, {plan}");
            }
        }
        assert_eq!(Plan::modelled_with(WIDE, Near::of(1 << 20)).pieces(WIDE), [16, 10]);
    }

    #[test]
    fn candidates_differ_and_can_be_chosen() {
        for (steps, whole) in [(0, false), (13, true), (479, false), (4096, false), (4096, true)] {
            let shape = Shape { steps, whole, ..WIDE };
            let candidates = Plan::candidates(shape);
            assert_eq!(candidates[0], Plan::modelled(shape));
            assert!(candidates.len() > 1, "{steps}");
            for (index, plan) in candidates.iter().enumerate() {
                let Plan { across, depth, group, strips, .. } = *plan;
                assert_eq!(Plan::chosen(shape, across, depth, group, strips).as_ref(), Ok(plan));
                assert!(!candidates[..index].contains(plan), "{plan}");
            }
        }
    }

    #[test]
    fn many_threads_share_the_gradient_of_a_narrow_layer() {
        // 4 blocks of 64 x 64 weights on 28 threads: none has more than a quarter of one.
        let narrow = Plan::modelled(weights_shape(2048, 256, 64, 28));
        assert_eq!(narrow.compute_cycles, WIDTH / 4 * 2048 * 2, "{narrow}");
        let few = weights_shape(2048, 256, 64, 4);
        assert_eq!(few.grain, WIDTH);
    }

    #[test]
    fn tiles_avoid_copies() {
        let shape = Shape { rows: 1024, grain: WIDTH, columns: 1024, steps: 1024, whole: false, threads: 2 };
        let across = |shape, copies| Plan::for_tiles(shape, 32, copies).across;
        // Nobody transposes what another thread transposes too,
        assert_eq!(across(shape, [Copying::Transposed, Copying::Cheap]), 1);
        assert_eq!(across(shape, [Copying::Transposed, Copying::Parted]), 1);
        assert_eq!(across(shape, [Copying::Free, Copying::Transposed]), 2);
        assert_eq!(across(Shape { rows: 256, ..shape }, [Copying::Parted; 2]), 2);
        assert_eq!(across(Shape { columns: 256, ..shape }, [Copying::Parted; 2]), 1);
        // unless one panel of rows cannot be shared out;
        assert_eq!(across(Shape { rows: 64, ..shape }, [Copying::Transposed, Copying::Cheap]), 2);
        // and if many need it, they transpose it together.
        let many = Plan::for_tiles(Shape { threads: 32, ..shape }, 32, [Copying::Transposed, Copying::Cheap]);
        assert!(Copying::Transposed.is_shared(many.across) && many.across * many.down == 32, "{many}");
    }

    #[test]
    fn impossible_choices_are_refused() {
        for (across, depth, group, reason) in
            [(3, 64, 1, "cannot be cut"), (0, 64, 1, "cannot be cut"), (1, 65, 1, "multiple"), (1, 64, 65, "too many")]
        {
            let message = Plan::chosen(WIDE, across, depth, group, false).unwrap_err();
            assert!(message.contains(reason), "{message}");
        }
        assert!(Plan::chosen(Shape { whole: true, ..WIDE }, 1, 64, 1, false).unwrap_err().contains("bfloat16"));
        assert!(Plan::chosen(WIDE, 1, usize::MAX / 64 * 64, 64, false).is_err());
    }

    #[test]
    fn it_prints_itself() {
        let text = Plan::modelled_with(WIDE, Near::of(1 << 20)).to_string();
        assert_eq!(text, "panels / 2, rows / 1; 1024 steps x 2 panels at a time; 268.435 M cycles, 360.7 MB");
        let text = Plan::modelled_with(WIDE, Near::of(512 << 10)).to_string();
        assert_eq!(text, "panels / 2, rows / 1; 256 steps x 2 panels at a time, in strips; 268.435 M cycles, 562.0 MB");
    }
}
