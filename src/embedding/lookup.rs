//! Forward pass of the embedding bags: SC20, Algorithm 1, for all tables at once.
//!
//! Work is cut by look-ups: (table, sample) cells in table-major order, each counting its look-ups and one more for
//! itself, fall into ranges of nearly equal weight, some for each thread. So long and short bags, few tables and few
//! samples all share out well, and a thread that is done early takes ranges of another. A bag is summed by one thread
//! in its own order, whoever that is: bits do not depend on threads.

use super::form::{Seen, with_seen};
use super::gradient_source::share;
use super::row::{Pool, columns, prefetch, prefetch_write, rows_ahead};
use super::weights::{Alike, Weigh};
use super::{Lookups, Slots, Table};
use crate::base::config::Pooling;
use crate::data::BagView;
use crate::machine::team::Team;
use crate::simd::{Kernel, Simd};
use crate::sync::{Band, Lender, Lent, Line, Matrix, Stores};

/// How many samples ahead the place of a pooled vector is asked for.
const WRITE_DISTANCE: usize = 12;

/// Elements of vectors that are put together in the first cache before they pass the others: a fence a few vectors, not
/// one a vector, and room is left for the rows that are asked for.
const STAGED: usize = 2048;

/// Elements of a piece from which on its vectors pass the caches: of fewer, the fence and the memory that is cleaned
/// for them would cost more than is saved.
const FEW: usize = STAGED / 16;

/// Vectors that are put together, from a line on.
#[repr(align(64))]
struct Staged([f32; STAGED]);

/// The forward pass, with its memory.
#[derive(Debug)]
pub struct LookUp {
    pooling: Pooling,
    lender: Lender<f32>,
}

impl LookUp {
    /// A forward pass for a team of `threads`.
    #[must_use]
    pub fn new(pooling: Pooling, tables: usize, threads: usize) -> Self {
        Self { pooling, lender: Lender::new(tables, threads) }
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
        self.run_by((team, Stores::Plain), tables, lookups, features, slots);
    }

    /// As [`LookUp::run`], with such stores: vectors that are whole aligned lines can pass the caches, others are
    /// stored as ever.
    ///
    /// # Panics
    /// As [`LookUp::run`].
    pub fn run_by(
        &mut self,
        (team, stores): (&Team, Stores),
        tables: &[Table],
        lookups: Lookups<'_>,
        features: &mut [f32],
        slots: Slots<'_>,
    ) {
        let Some(dim) = width(tables, lookups) else { return };
        let Slots { row, starts, positions, step } = slots;
        let samples = features.len() / row;
        assert!(lookups.bags().all(|bag| bag.samples() == samples * positions), "as many bags a sample");
        assert!(positions == 1 || tables.len() == 1 && step >= dim, "sequences of one table, in vectors side by side");
        if positions == 1 {
            cut(&mut self.lender, lookups, team.pieces());
        } else {
            cut_evenly(&mut self.lender, samples, team.pieces());
        }
        // A sequence is a window of its own, with what lies between its vectors.
        let lent = self.lender.windows(features, row, starts, (positions - 1) * step + dim);
        pool((team, stores), tables, (lookups, self.pooling), [positions, step], lent);
    }

    /// The same into vectors that lie table after table, in each one a bag: tables may have any numbers of bags.
    ///
    /// # Panics
    /// When there are not as many vectors as bags, or as [`LookUp::run`].
    pub fn run_apart(
        &mut self,
        (team, stores): (&Team, Stores),
        tables: &[Table],
        lookups: Lookups<'_>,
        vectors: &mut [f32],
    ) {
        let Some(dim) = width(tables, lookups) else { return };
        let bags: usize = lookups.bags().map(|bag| bag.samples()).sum();
        assert_eq!(vectors.len(), bags * dim, "a vector a bag");
        cut(&mut self.lender, lookups, team.pieces());
        let mut left = vectors;
        let mut block = |bags: usize| left.split_off_mut(..bags * dim).expect("a vector a bag");
        let lent = self.lender.matrices(lookups.bags().map(|bag| Matrix { data: block(bag.samples()), width: dim }));
        pool((team, stores), tables, (lookups, self.pooling), [1, dim], lent);
    }
}

/// Columns of all these tables, which are those of the look-ups; nothing where there are none.
///
/// # Panics
/// As [`LookUp::run`].
fn width(tables: &[Table], lookups: Lookups<'_>) -> Option<usize> {
    lookups.check(tables.len());
    let dim = tables.first()?.dim();
    assert!(tables.iter().all(|table| table.dim() == dim), "all tables have one width");
    Some(dim)
}

/// Pools all bags, of which a sample has so many a table, in vectors so far from each other.
fn pool(
    (team, stores): (&Team, Stores),
    tables: &[Table],
    (lookups, pooling): (Lookups<'_>, Pooling),
    vectors: [usize; 2],
    lent: Lent<'_, f32>,
) {
    let isa = team.isa();
    team.share(lent, |mut out| {
        for (of, table) in tables.iter().enumerate() {
            let (bag, weights, out) = (lookups.bag(of), lookups.weights(of), out.band(of));
            let streams = stores == Stores::Streaming && can_stream(&out, table.dim(), vectors);
            with_seen!(table, form => match table.row_weights() {
                None if streams => {
                    isa.run(PoolBags::<_, _, true> { form, table, learned: Alike, bag, vectors, weights, pooling, out });
                }
                None => {
                    isa.run(PoolBags::<_, _, false> { form, table, learned: Alike, bag, vectors, weights, pooling, out });
                }
                Some(learned) => {
                    isa.run(PoolBags::<_, _, false> { form, table, learned, bag, vectors, weights, pooling, out });
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

/// Cuts the (table, bag) cells into ranges of equal weight.
fn cut(lender: &mut Lender<f32>, lookups: Lookups<'_>, pieces: usize) {
    lender.reset(lookups.tables(), pieces);
    let total: usize = lookups.bags().map(|bag| bag.look_ups() + bag.samples()).sum();
    let (mut before, mut next) = (0, 0);
    for (index, bag) in lookups.bags().enumerate() {
        let samples = bag.samples();
        let end = before + bag.look_ups() + samples;
        // Boundaries in tables before this one are at its first cell, where all are at first.
        while next <= pieces && total * next / pieces < end {
            lender.cut(index, next, first_cell(bag, total * next / pieces - before));
            next += 1;
        }
        (next..=pieces).for_each(|later| lender.cut(index, later, samples));
        before = end;
    }
}

/// Gives every piece nearly as many samples of the only table.
fn cut_evenly(lender: &mut Lender<f32>, samples: usize, pieces: usize) {
    lender.reset(1, pieces);
    (0..=pieces).for_each(|piece| lender.cut(0, piece, samples * piece / pieces));
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
struct PoolBags<'a, F, W, const STREAMS: bool> {
    form: F,
    table: &'a Table,
    learned: W,
    bag: BagView<'a>,
    /// How many bags a sample has, and how far their vectors lie from each other.
    vectors: [usize; 2],
    weights: Option<&'a [f32]>,
    pooling: Pooling,
    out: Band<'a, f32>,
}

impl<F: Seen, W: Weigh, const STREAMS: bool> Kernel for PoolBags<'_, F, W, STREAMS> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { form, table, learned, bag, vectors: [positions, step], weights, pooling, mut out } = self;
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
        if STREAMS {
            let mut staged = Staged([0.0; STAGED]);
            let most = STAGED / dim;
            for first in (mine.start * positions..mine.end * positions).step_by(most) {
                let held = most.min(mine.end * positions - first);
                let staged = &mut staged.0[..held * dim];
                for (at, out) in (first..).zip(staged.chunks_exact_mut(dim)) {
                    bags.pool(simd, at, out);
                }
                out.stream(simd, first * dim, staged);
            }
            return;
        }
        let (mut at, ahead, end) = (mine.start * positions, WRITE_DISTANCE.div_ceil(positions), mine.end);
        for sample in mine {
            // Each table's vectors lie far from each other, and in no cache that is near.
            if sample + ahead < end {
                prefetch_write(simd, out.row(sample + ahead));
            }
            // One vector, or those of a sequence, the last of which ends the row.
            let mut left = out.row(sample);
            loop {
                bags.pool(simd, at, &mut left[..dim]);
                at += 1;
                if left.len() <= dim {
                    break;
                }
                left = &mut left[step..];
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
            cut(&mut lender, Lookups::plain(&bags), threads);
            let weight = |part: usize| -> usize {
                let weigh = |(index, bag): (usize, &Bag)| {
                    let range = lender.range(index, part);
                    (bag.offsets[range.end] - bag.offsets[range.start]) as usize + range.len()
                };
                bags.iter().enumerate().map(weigh).sum()
            };
            let weights: Vec<_> = (0..threads).map(weight).collect();
            assert_eq!(weights.iter().sum::<usize>(), 117);
            // No range is heavier than its share and the largest cell.
            assert!(weights.iter().all(|&weight| weight <= 117 / threads + 101), "{weights:?}");
            (0..2).for_each(|index| assert_eq!(lender.range(index, threads - 1).end, 5));
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
        cut(&mut lender, Lookups::plain(&[bag(0), bag(6), bag(0), bag(2)]), 4);
        let ranges = |table: usize| (0..4).map(|piece| lender.range(table, piece)).collect::<Vec<_>>();
        assert_eq!([ranges(0), ranges(2)], [vec![0..0; 4], vec![0..0; 4]]);
        assert_eq!([ranges(1), ranges(3)], [vec![0..2, 2..4, 4..6, 6..6], vec![0..0, 0..0, 0..0, 0..2]]);
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
            cut(&mut lender, Lookups::plain(&bags), pieces);
            let mut next = [0; 3];
            for piece in 0..pieces {
                let mut weight = 0;
                for (index, bag) in bags.iter().enumerate() {
                    let range = lender.range(index, piece);
                    assert_eq!(range.start, next[index], "ranges follow each other");
                    next[index] = range.end;
                    weight += (bag.offsets[range.end] - bag.offsets[range.start]) as usize + range.len();
                }
                let share = total as f64 / pieces as f64;
                assert!((weight as f64 - share).abs() <= 8.0, "piece {piece} of {pieces} weighs {weight}, not {share}");
            }
            assert_eq!(next, [90; 3]);
        }
    }
}
