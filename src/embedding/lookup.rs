//! Forward pass of the embedding bags: SC20, Algorithm 1, for all tables at once.
//!
//! Work is cut by look-ups: (target, table, sample) cells in this order, each counting its look-ups and one more for
//! itself, fall into ranges of nearly equal weight, some for each thread, or fewer where there is little to do. So long
//! and short bags, few tables and few samples all share out well, and a thread that is done early takes ranges of
//! another. A bag is summed by one thread in its own order, whoever that is: bits do not depend on threads.

use super::form::{Seen, with_seen};
use super::gradient_source::share;
use super::row::{Pool, columns, prefetch, prefetch_write, rows_ahead};
use super::weights::{Alike, Weigh};
use super::{Lookups, Slots, Table};
use crate::base::config::Pooling;
use crate::data::BagView;
use crate::machine::team::Team;
use crate::simd::{Kernel, Simd};
use crate::sync::{Band, Each, Lender, Lent, Line, Matrix, Stores};

/// How many samples ahead the place of a pooled vector is asked for.
const WRITE_DISTANCE: usize = 12;

/// Elements of vectors that are put together in the first cache before they pass the others: a fence a few vectors, not
/// one a vector, and room is left for the rows that are asked for.
const STAGED: usize = 2048;

/// Elements of a piece from which on its vectors pass the caches: of fewer, the fence and the memory that is cleaned
/// for them would cost more than is saved.
const FEW: usize = STAGED / 16;

/// What cells of a piece weigh, at least: of fewer, the leader takes as long to cut it as a thread to pool its rows.
const LEAST: usize = 64;

/// Vectors that are put together, from a line on.
#[repr(align(64))]
struct Staged([f32; STAGED]);

/// The forward pass, with its memory.
#[derive(Debug)]
pub struct LookUp {
    pooling: Pooling,
    lender: Lender<f32>,
}

/// Look-ups in some tables, and where what is pooled of them goes: a rank's samples, say, and the message to it.
#[derive(Debug)]
pub struct Target<'a> {
    /// The look-ups.
    pub lookups: Lookups<'a>,
    /// Room for the vectors, which is used up.
    pub vectors: &'a mut [f32],
    /// Where they lie there, in rows of samples; or table after table, in each one a bag, of which tables may then have
    /// any numbers.
    pub slots: Option<Slots<'a>>,
    /// How they are stored: vectors that are whole aligned lines can pass the caches, others are stored as ever.
    pub stores: Stores,
}

impl LookUp {
    /// A forward pass for a team of `threads`, one target at a time.
    #[must_use]
    pub fn new(pooling: Pooling, tables: usize, threads: usize) -> Self {
        Self::for_targets(pooling, tables, threads, 1)
    }

    /// With room for so many targets at a time.
    #[must_use]
    pub fn for_targets(pooling: Pooling, tables: usize, threads: usize, targets: usize) -> Self {
        Self { pooling, lender: Lender::new(tables * targets, threads * Team::PIECES_A_THREAD) }
    }

    /// Writes, for every row (sample) of `features` and every table, the sum or the mean of the rows that the sample's
    /// bag names, each times its learned weight, if it has one, which is rounded, and the look-up's; an empty bag gives
    /// 0. Sums start at 0 and run in the order of the bag, one fused multiply-add a look-up; a mean is the sum times
    /// the rounded reciprocal of the bag's length. Of split rows the upper halves count.
    ///
    /// # Panics
    /// When a bag has not as many samples as `features` or names a row that the table does not have (see
    /// `Batch::check`), or tables differ in width.
    pub fn run(&mut self, team: &Team, tables: &[Table], lookups: Lookups<'_>, features: &mut [f32], slots: Slots<'_>) {
        let target = Target { lookups, vectors: features, slots: Some(slots), stores: Stores::Plain };
        self.run_all(team, tables, &mut [target]);
    }

    /// The same for several targets at once, whose samples the team shares.
    ///
    /// # Panics
    /// As [`LookUp::run`], and when a target without slots has not as many vectors as bags.
    pub fn run_all(&mut self, team: &Team, tables: &[Table], targets: &mut [Target<'_>]) {
        targets.iter().for_each(|target| target.lookups.check(tables.len()));
        let Some(dim) = tables.first().map(Table::dim) else { return };
        assert!(tables.iter().all(|table| table.dim() == dim), "all tables have one width");
        let bags = || targets.iter().flat_map(|target| target.lookups.bags());
        let total: usize = bags().map(weight).sum();
        let pieces = team.pieces().min(total / LEAST + 1);
        let sequences = targets.iter().any(|target| target.slots.is_some_and(|slots| slots.positions > 1));
        if !sequences {
            cut(&mut self.lender, bags(), total, pieces);
        }
        let mut loan = self.lender.begin();
        for Target { lookups, vectors, slots, .. } in targets.iter_mut() {
            let mut left = std::mem::take(vectors);
            let Some(Slots { row, starts, positions, step }) = *slots else {
                for bag in lookups.bags() {
                    let data = left.split_off_mut(..bag.samples() * dim).expect("a vector a bag");
                    loan.matrix(Matrix { data, width: dim });
                }
                assert!(left.is_empty(), "a vector a bag");
                continue;
            };
            assert_eq!(starts.len(), tables.len(), "a place for each table");
            let samples = left.len() / row;
            assert!(lookups.bags().all(|bag| bag.samples() == samples * positions), "as many bags a sample");
            assert!(positions == 1 || tables.len() == 1 && step >= dim, "sequences of one table, vectors side by side");
            // A sequence is a window of its own, with what lies between its vectors.
            loan.windows(left, row, starts, (positions - 1) * step + dim);
        }
        if sequences {
            loan.cut_evenly(pieces);
        }
        pool(team, tables, targets, self.pooling, loan.lend());
    }
}

/// Pools all bags.
fn pool(team: &Team, tables: &[Table], targets: &[Target<'_>], pooling: Pooling, lent: Lent<'_, f32>) {
    let isa = team.isa();
    // Nothing is the threads' own but the memory that they begin with: none, until a vector is put together there.
    let mut threads = vec![(); team.threads()];
    team.share_with(Each::new(&mut threads), lent, |()| None::<Staged>, |staged, mut out| {
        for at in out.matrices() {
            let (Target { lookups, slots, stores, .. }, of) = (&targets[at / tables.len()], at % tables.len());
            let (table, bag, weights, out) = (&tables[of], lookups.bag(of), lookups.weights(of), out.band(at));
            let vectors = slots.map_or([1, table.dim()], |slots| [slots.positions, slots.step]);
            let streams = *stores == Stores::Streaming && can_stream(&out, table.dim(), vectors);
            with_seen!(table, form => match table.row_weights() {
                None if streams => {
                    let staged = staged.get_or_insert_with(|| Staged([0.0; STAGED]));
                    isa.run(PoolBags { form, table, learned: Alike, bag, vectors, weights, pooling, staged: Some(staged), out });
                }
                None => {
                    isa.run(PoolBags { form, table, learned: Alike, bag, vectors, weights, pooling, staged: None, out });
                }
                Some(learned) => {
                    isa.run(PoolBags { form, table, learned, bag, vectors, weights, pooling, staged: None, out });
                }
            });
        }
    });
}

/// Whether vectors can pass the caches: nothing lies between them, each begins with a line, and they are worth a fence.
fn can_stream(out: &Band<'_, f32>, dim: usize, [positions, step]: [usize; 2]) -> bool {
    let whole = (positions == 1 || step == dim) && dim.is_multiple_of(Line::FLOATS) && out.has_lines();
    whole && dim <= STAGED && out.rows().len() * positions * dim >= FEW
}

/// What a table's bags weigh: their look-ups, and one more each.
fn weight(bag: BagView<'_>) -> usize {
    bag.look_ups() + bag.samples()
}

/// Cuts the (table, bag) cells, which weigh so much in all, into so many ranges of equal weight.
fn cut<'a>(lender: &mut Lender<f32>, bags: impl Iterator<Item = BagView<'a>>, total: usize, pieces: usize) {
    lender.reset();
    let (mut before, mut next) = (0, 1);
    for (index, bag) in bags.enumerate() {
        let end = before + weight(bag);
        while next < pieces && total * next / pieces < end {
            lender.cut(index, first_cell(bag, total * next / pieces - before));
            next += 1;
        }
        before = end;
    }
}

/// The first sample before which cells weigh `wanted` or more; all of them weigh more.
fn first_cell(bag: BagView<'_>, wanted: usize) -> usize {
    let weigh = |cell: usize| (bag.offsets[cell] - bag.offsets[0]) as usize + cell;
    // Where bags are of one size, as those of most tables are.
    let guess = wanted * bag.samples() / weigh(bag.samples());
    for cell in [guess, guess + 1] {
        if weigh(cell) >= wanted && (cell == 0 || weigh(cell - 1) < wanted) {
            return cell;
        }
    }
    let (mut low, mut high) = (0, bag.samples());
    while low < high {
        let middle = usize::midpoint(low, high);
        if weigh(middle) < wanted { low = middle + 1 } else { high = middle }
    }
    low
}

/// One table's bags for a range of samples, stored as ever or streamed: what is read on another node had better not be
/// fetched from there first.
struct PoolBags<'a, F, W> {
    form: F,
    table: &'a Table,
    learned: W,
    bag: BagView<'a>,
    /// How many bags a sample has, and how far their vectors lie from each other.
    vectors: [usize; 2],
    weights: Option<&'a [f32]>,
    pooling: Pooling,
    /// Where vectors are put together that pass the caches.
    staged: Option<&'a mut Staged>,
    out: Band<'a, f32>,
}

impl<F: Seen, W: Weigh> Kernel for PoolBags<'_, F, W> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { form, table, learned, bag, vectors: [positions, step], weights, pooling, mut staged, mut out } =
            self;
        let (dim, rows) = (table.dim(), bag.rows);
        let mine = out.rows();
        if mine.is_empty() {
            return;
        }
        let (table, width) = (table.words(), table.width());
        let seen = F::seen_words(dim);
        let distance = rows_ahead(seen * size_of::<u32>());
        // The first rows have nothing before them to hide behind, but they can be fetched at the same time.
        let first = bag.offsets[mine.start * positions] as usize;
        for &row in rows[first..].iter().take(distance) {
            prefetch(simd, &table[row as usize * width..][..seen]);
            learned.prefetch(simd, row as usize);
        }
        let bags = Bags { form, table, width, dim, rows, learned, offsets: bag, weights, pooling, distance };
        // One call that pools, wherever the vector goes: all widths of columns are compiled into it.
        let (ahead, most) = (WRITE_DISTANCE.div_ceil(positions), STAGED / dim);
        let (mut at, mut held) = (mine.start * positions, 0);
        for sample in mine.clone() {
            // Each table's vectors lie far from each other, and in no cache that is near; streamed ones pass by all.
            if staged.is_none() && sample + ahead < mine.end {
                prefetch_write(simd, out.row(sample + ahead));
            }
            for position in 0..positions {
                let to = match &mut staged {
                    Some(staged) => &mut staged.0[held * dim..],
                    None => &mut out.row(sample)[position * step..],
                };
                bags.pool(simd, at, &mut to[..dim]);
                (at, held) = (at + 1, held + 1);
                if let Some(staged) = &staged
                    && (held == most || at == mine.end * positions)
                {
                    out.stream(simd, (at - held) * dim, &staged.0[..held * dim]);
                    held = 0;
                }
            }
        }
    }
}

/// What all bags of a table have in common.
struct Bags<'a, F, W> {
    form: F,
    table: &'a [u32],
    width: usize,
    dim: usize,
    rows: &'a [u32],
    learned: W,
    offsets: BagView<'a>,
    weights: Option<&'a [f32]>,
    pooling: Pooling,
    distance: usize,
}

impl<F: Seen, W: Weigh> Bags<'_, F, W> {
    /// Pools the bag at `at`.
    #[inline(always)]
    fn pool<S: Simd>(&self, simd: S, at: usize, out: &mut [f32]) {
        let Self { form, table, width, dim, rows, learned, offsets: bag, weights, pooling, distance } = *self;
        let bounds = bag.offsets[at] as usize..bag.offsets[at + 1] as usize;
        let scale = if pooling == Pooling::Mean && !bounds.is_empty() { share(bag, at) } else { 1.0 };
        let mut work = Pool { form, table, width, dim, rows, learned, weights, bag: bounds, scale, out, distance };
        columns(simd, dim, &mut work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Bag;

    #[test]
    fn ranges_weigh_nearly_the_same_whatever_the_skew() {
        // One bag holds nearly all look-ups of the first table; the second has one a sample.
        let skewed = Bag { offsets: vec![0, 0, 1, 101, 102, 102], rows: vec![0; 102] };
        let even = Bag { offsets: (0..=5).collect(), rows: vec![0; 5] };
        let bags = [skewed, even];
        for threads in 1..7 {
            let mut lender = Lender::new(2, threads);
            cut(&mut lender, bags.iter().map(Bag::view), 117, threads);
            let range = |index: usize, part: usize| lender.range(part, [index, 5], 2);
            let weight = |part: usize| -> usize {
                let weigh = |(index, bag): (usize, &Bag)| {
                    let range = range(index, part);
                    (bag.offsets[range.end] - bag.offsets[range.start]) as usize + range.len()
                };
                bags.iter().enumerate().map(weigh).sum()
            };
            let weights: Vec<_> = (0..threads).map(weight).collect();
            assert_eq!(weights.iter().sum::<usize>(), 117);
            // No range is heavier than its share and the largest cell.
            assert!(weights.iter().all(|&weight| weight <= 117 / threads + 101), "{weights:?}");
            (0..2).for_each(|index| assert!((0..threads).flat_map(|part| range(index, part)).eq(0..5)));
        }
    }

    #[test]
    fn every_cell_is_found_whatever_the_sizes_of_bags() {
        let sizes: [fn(u32) -> u32; 5] = [|_| 1, |_| 0, |_| 7, |n| n % 4, |n| if n == 3 { 90 } else { n % 2 }];
        for (which, size) in sizes.into_iter().enumerate() {
            let mut offsets = vec![0];
            (0..40).for_each(|n| offsets.push(offsets[n as usize] + size(n)));
            let bag = Bag { rows: vec![0; offsets[40] as usize], offsets };
            let weigh = |cell: usize| bag.offsets[cell] as usize + cell;
            for wanted in 0..weigh(40) {
                let expected = (0..=40).find(|cell| weigh(*cell) >= wanted).unwrap();
                assert_eq!(first_cell(bag.view(), wanted), expected, "{wanted} of sizes {which}");
            }
        }
        // Tables without a cell, and pieces that begin with a table.
        let bag = |samples: u32| Bag { offsets: (0..=samples).collect(), rows: vec![0; samples as usize] };
        let mut lender = Lender::new(4, 4);
        let samples = [0, 6, 0, 2];
        cut(&mut lender, samples.map(bag).iter().map(Bag::view), 16, 4);
        let rows = |table: usize, piece| lender.range(piece, [table, samples[table] as usize], 4).collect::<Vec<_>>();
        let ranges = |table: usize| [0, 1, 2, 3].map(|piece| rows(table, piece));
        let expected = |ranges: [std::ops::Range<usize>; 4]| ranges.map(|range| range.collect::<Vec<_>>());
        assert_eq!([ranges(0), ranges(2)], [(); 2].map(|()| expected([0..0, 0..0, 0..0, 0..0])));
        assert_eq!(ranges(1), expected([0..2, 2..4, 4..6, 6..6]));
        assert_eq!(ranges(3), expected([0..0, 0..0, 0..0, 0..2]));
    }

    #[test]
    fn small_cells_fill_ranges_to_their_share() {
        // Bags of 0 to 6 look-ups, so that no cell weighs more than 7, and most of them in the second table.
        let bag = |samples: u32, most: u32| {
            let sizes = (0..samples).map(|sample| sample * 5 % (most + 1));
            let offsets: Vec<u32> = std::iter::once(0)
                .chain(sizes.scan(0, |end, size| {
                    *end += size;
                    Some(*end)
                }))
                .collect();
            let rows = vec![0; *offsets.last().unwrap() as usize];
            Bag { offsets, rows }
        };
        let bags = [bag(90, 1), bag(90, 6), bag(90, 3)];
        let total: usize = bags.iter().map(|bag| bag.rows.len() + 90).sum();
        for pieces in [1, 2, 3, 7, 16, 40] {
            let mut lender = Lender::new(3, pieces);
            cut(&mut lender, bags.iter().map(Bag::view), total, pieces);
            let mut next = [0; 3];
            for piece in 0..pieces {
                let mut weight = 0;
                for (index, bag) in bags.iter().enumerate() {
                    let range = lender.range(piece, [index, 90], 3);
                    assert!(range.is_empty() || range.start == next[index], "ranges follow each other");
                    next[index] += range.len();
                    weight += (bag.offsets[range.end] - bag.offsets[range.start]) as usize + range.len();
                }
                let share = total as f64 / pieces as f64;
                assert!((weight as f64 - share).abs() <= 8.0, "piece {piece} of {pieces} weighs {weight}, not {share}");
            }
            assert_eq!(next, [90; 3]);
        }
    }
}
