//! Updates in the order of rows: the look-ups of a minibatch become a transposed compressed-sparse-row matrix (for each
//! row, the look-ups that name it), and threads take rows so that each has nearly as many look-ups.
//!
//! No thread reads all look-ups, and a row stays in registers while all its look-ups move it. Three regions:
//!
//! 1. count: each thread takes an equal part of all look-ups and counts them by bucket, a bucket being a range of rows
//!    of one table (the rows' upper bits);
//! 2. scatter: it writes (row, look-up) records to their buckets, each thread to places of its own (a radix sort's
//!    first pass, stable because a part's places lie behind those of the parts before it);
//! 3. move: threads take consecutive buckets, equal in look-ups; each sorts its buckets by the rows' lower bits
//!    (stable) and walks the rows.
//!
//! Stable sorting keeps a row's look-ups in the order of the serial definition, and one thread has all of them, so the
//! bits are those of the definition, for any number of threads and buckets. A single row hotter than a thread's part
//! cannot be split without giving that up.

use std::ops::Range;

use super::Table;
use super::form::Form;
use super::gradient_source::{GradientSource, GradientSources, sample_of};
use super::table::Matrices;
use super::update::{Spec, meet};
use super::walk::{MoveEach, SumEach, SumRowwise, WalkRows};
use crate::base::{Result, even_part};
use crate::machine::team::Team;
use crate::memory::{Buffer, Supply, recycled};
use crate::optim::{Optimizer, ParamState, StepRule, StepSize};
use crate::sync::{AtomicU64, Each, Grid, Lender, Matrix, Rows, atomic_words, put};

/// Look-ups that a bucket has on average: enough to pay for its counters, few enough to be sorted in the first cache.
const BUCKET_LOOKUPS: usize = 256;

/// Buckets of a table at most: the lines that a thread scatters to stay in its second cache.
const TABLE_BUCKETS: usize = 1024;

/// Buckets that there are at least for each thread, so that they can be balanced.
const THREAD_BUCKETS: usize = 16;

/// Look-ups of a piece of the work, at least: of fewer, the leader takes as long to cut it as a thread to move its
/// rows.
const FEW: usize = 64;

/// Buckets of up to this many look-ups are sorted by insertion.
const SMALL: usize = 24;

/// Sorted updates, with their memory.
#[derive(Debug)]
pub(super) struct Sorter {
    /// Row in the upper half, token in the lower half.
    records: Buffer<u64>,
    spare: Buffer<u64>,
    /// Threads x buckets: first how many, then where the next one goes.
    counts: Buffer<u32>,
    /// Where each bucket starts, and the end.
    starts: Buffer<u32>,
    /// Look-ups before those of each thread's share of the buckets.
    before: Vec<u32>,
    layouts: Vec<TableBuckets>,
    /// The first bucket of each thread, and the end.
    bounds: Vec<usize>,
    lend_tables: Lender<u32>,
    lend_records: Lender<u64>,
    lend_spare: Lender<u64>,
    /// Numbers that are kept of rows, where they are.
    lend_row_moments: Lender<f32>,
    /// Learned weights of rows, where they are.
    lend_row_weights: Lender<f32>,
    /// Memory that steps use again: of the former and of the latter.
    beside: [Vec<Matrix<'static, f32>>; 2],
    kept: ParamState,
    /// The sum of a row's gradients, one for each piece of the work, from a cache line on.
    sums: Buffer<f32>,
}

/// One table's buckets.
#[derive(Debug, Clone, Copy)]
struct TableBuckets {
    /// Look-ups of the tables before it.
    before: usize,
    first: usize,
    buckets: usize,
    /// A row's bucket is `first + (row >> shift)`.
    shift: u32,
    rows: usize,
}

impl Sorter {
    /// Room for `lookups` look-ups in all; more are possible, but allocate once.
    pub(super) fn new(spec: &Spec, lookups: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let Spec { tables, threads, dim, .. } = *spec;
        let pieces = threads * Team::PIECES_A_THREAD;
        let sums = pieces * sum_width(spec.kept, dim);
        let buckets =
            (2 * lookups / BUCKET_LOOKUPS + 2 * THREAD_BUCKETS * threads + 2 * tables).min(tables * TABLE_BUCKETS);
        Ok(Self {
            records: supply.buffer("sorted look-ups", lookups)?,
            spare: supply.buffer("look-ups being sorted", lookups)?,
            counts: supply.buffer("counts of look-ups", threads * buckets)?,
            starts: supply.buffer("starts of buckets", buckets + 1)?,
            before: vec![0; threads],
            layouts: Vec::with_capacity(tables),
            bounds: Vec::with_capacity(pieces + 1),
            lend_tables: Lender::new(tables, pieces),
            lend_records: Lender::new(1, pieces),
            lend_spare: Lender::new(1, pieces),
            lend_row_moments: Lender::new(0, pieces),
            lend_row_weights: Lender::new(0, pieces),
            beside: Default::default(),
            sums: supply.buffer("sums of a row's gradients", sums)?,
            kept: spec.kept,
        })
    }

    /// Moves all rows; `sources` are as many for each table.
    pub(super) fn run<F: Form>(
        &mut self,
        form: F,
        team: &Team,
        tables: &mut [Table],
        sources: &[GradientSource<'_>],
        step_size: StepSize,
    ) {
        let (threads, isa) = (team.threads(), team.isa());
        let Some(dim) = tables.first().map(Table::dim) else { return };
        let of_each = sources.len() / tables.len();
        let (total, buckets) = self.lay_out(tables, sources, threads);
        self.count(team, sources, [total, buckets]);
        self.places(team, buckets);
        self.scatter(team, sources, [total, buckets]);
        let pieces = team.pieces().min(total / FEW + 1);
        self.share_out(total, buckets, pieces);

        let Self { records, spare, starts, layouts, bounds, lend_tables, lend_records, lend_spare, .. } = self;
        let (starts, layouts, bounds, rate) = (&starts[..=buckets], &layouts[..], &bounds[..], step_size.rate);
        let ParamState { optimizer, row_weights, .. } = self.kept;
        let rowwise = optimizer.row_moment().is_some();
        let [mut moments, mut weights]: [Vec<Matrix<'_, f32>>; 2] = std::mem::take(&mut self.beside).map(recycled);
        let tables = lend_tables.matrices(tables.iter_mut().map(|table| {
            let Matrices { rows, row_moments, row_weights } = table.matrices_mut();
            moments.extend(rowwise.then_some(row_moments));
            weights.extend(row_weights);
            rows
        }));
        let lent_moments = self.lend_row_moments.matrices(moments.drain(..));
        let lent_weights = self.lend_row_weights.matrices(weights.drain(..));
        let records = lend_records.matrices([Matrix { data: &mut records[..total], width: 1 }]);
        let spare = lend_spare.matrices([Matrix { data: &mut spare[..total], width: 1 }]);
        let (sums_gradients, width) = (self.kept.sums_gradients(), sum_width(self.kept, dim));
        self.sums.grow(pieces * width);
        let sums = Rows::new(&mut self.sums[..pieces * width], width, pieces, 1);
        let lent = ((tables, (lent_moments, lent_weights)), ((records, spare), sums));
        team.share(lent, |((mut tables, (mut moments, mut weights)), ((mut records, mut spare), sums))| {
            let (first, end) = (bounds[tables.part()], bounds[tables.part() + 1]);
            let (mut records, mut spare) = (records.band(0), spare.band(0));
            let (records, spare) = (records.all(), spare.all());
            let offset = |bucket: usize| (starts[bucket] - starts[first]) as usize;
            for index in tables.matrices() {
                let layout = layouts[index];
                let (from, to) = (first.max(layout.first), end.min(layout.first + layout.buckets));
                if from >= to {
                    continue;
                }
                for bucket in from..to {
                    let bounds = offset(bucket)..offset(bucket + 1);
                    sort_lower(&mut records[bounds.clone()], &mut spare[bounds], layout.shift);
                }
                let records = &records[offset(from)..offset(to)];
                let (band, sources) = (tables.band(index), GradientSources(&sources[index * of_each..][..of_each]));
                let sum = &mut sums.data[..if sums_gradients { dim } else { 0 }];
                let weights = row_weights.then(|| weights.band(index));
                match optimizer {
                    Optimizer::Sgd if !sums_gradients => {
                        isa.run(WalkRows { band, records, sources, each: MoveEach { form, dim, rate } });
                    }
                    Optimizer::RowwiseAdagrad { eps, .. } => {
                        let kept = moments.band(index);
                        let each = SumRowwise { form, sum, kept, weights, rate, eps };
                        isa.run(WalkRows { band, records, sources, each });
                    }
                    _ => match optimizer.at(step_size) {
                        // The same walk, compiled for a rule of this type: the others are told apart at each row.
                        StepRule::Sgd(rule) => {
                            isa.run(WalkRows { band, records, sources, each: SumEach { form, sum, weights, rule } });
                        }
                        rule => {
                            isa.run(WalkRows { band, records, sources, each: SumEach { form, sum, weights, rule } })
                        }
                    },
                }
            }
        });
        self.beside = [recycled(moments), recycled(weights)];
    }

    /// Chooses buckets; returns how many look-ups and buckets there are.
    fn lay_out(&mut self, tables: &[Table], sources: &[GradientSource<'_>], threads: usize) -> (usize, usize) {
        let (mut before, mut first) = (0, 0);
        self.layouts.clear();
        for (table, sources) in tables.iter().zip(sources.chunks(sources.len() / tables.len())) {
            let count: usize = sources.iter().map(|source| source.bag().rows.len()).sum();
            let balance = (THREAD_BUCKETS * threads).div_ceil(tables.len()).min(count / 4);
            let wanted = (count / BUCKET_LOOKUPS).max(balance).clamp(1, TABLE_BUCKETS).next_power_of_two();
            let last = table.rows().saturating_sub(1);
            let bits = usize::BITS - last.leading_zeros();
            // Rows are of 32 bits, none of which is left where all are cut off: the largest tables have two buckets at
            // least.
            let shift = bits.saturating_sub(wanted.trailing_zeros()).min(u32::BITS - 1);
            let buckets = (last >> shift) + 1;
            self.layouts.push(TableBuckets { before, first, buckets, shift, rows: table.rows() });
            before += count;
            first += buckets;
        }
        assert!(u32::try_from(before).is_ok(), "a minibatch has fewer than 2^32 look-ups");
        self.records.grow(before);
        self.spare.grow(before);
        self.counts.grow(threads * first);
        self.starts.grow(first + 1);
        (before, first)
    }

    fn count(&mut self, team: &Team, sources: &[GradientSource<'_>], [total, buckets]: [usize; 2]) {
        let (threads, layouts) = (team.threads(), &self.layouts);
        team.each(Rows::new(&mut self.counts[..threads * buckets], buckets, threads, 1), |counts| {
            counts.data.fill(0);
            let part = even_part(total, counts.first, threads);
            for (layout, sources) in layouts.iter().zip(sources.chunks(sources.len() / layouts.len())) {
                let counts = &mut counts.data[layout.first..layout.first + layout.buckets];
                for (rows, positions) in parts_of(sources, &part, layout.before) {
                    rows.bag().rows[positions].iter().for_each(|row| counts[(row >> layout.shift) as usize] += 1);
                }
            }
        });
    }

    /// Turns counts into places: bucket by bucket, in each one thread after the other. Each thread does so for its
    /// share of the buckets, once it is known how many look-ups lie before that.
    fn places(&mut self, team: &Team, buckets: usize) {
        let (threads, Self { counts, starts, before, .. }) = (team.threads(), self);
        let counts = &mut counts[..threads * buckets];
        before.resize(threads, 0);
        let (sizes, cut) = ([threads, buckets, buckets], [1, threads]);
        team.share((Grid::new(counts, sizes, cut, 1), Each::new(before)), |(mut counts, all)| {
            *all = 0;
            counts.panels().for_each(|thread| *all += counts.panel(thread).iter().sum::<u32>());
        });
        let mut next = 0;
        before.iter_mut().for_each(|all| next += std::mem::replace(all, next));
        starts[buckets] = next;
        let starts = Grid::new(&mut starts[..buckets], [1, buckets, buckets], cut, 1);
        team.share(
            ((Grid::new(counts, sizes, cut, 1), starts), Each::new(before)),
            |((mut counts, mut starts), next)| {
                for bucket in 0..counts.rows().len() {
                    starts.panel(0)[bucket] = *next;
                    for thread in counts.panels() {
                        let count = &mut counts.panel(thread)[bucket];
                        *next += std::mem::replace(count, *next);
                    }
                }
            },
        );
    }

    fn scatter(&mut self, team: &Team, sources: &[GradientSource<'_>], [total, buckets]: [usize; 2]) {
        let (threads, layouts) = (team.threads(), &self.layouts);
        let records = atomic_words(&mut self.records[..total]);
        team.each(Rows::new(&mut self.counts[..threads * buckets], buckets, threads, 1), |places| {
            let part = even_part(total, places.first, threads);
            for (layout, sources) in layouts.iter().zip(sources.chunks(sources.len() / layouts.len())) {
                let places = &mut places.data[layout.first..layout.first + layout.buckets];
                for (source, positions) in parts_of(sources, &part, layout.before) {
                    scatter_part(records, places, positions, layout.shift, source);
                }
            }
        });
    }

    /// Gives each piece consecutive buckets with nearly as many look-ups.
    fn share_out(&mut self, total: usize, buckets: usize, pieces: usize) {
        let starts = &self.starts[..=buckets];
        self.bounds.clear();
        for piece in 0..pieces {
            let wanted = (total * piece / pieces) as u32;
            let above = starts[..buckets].partition_point(|&start| start < wanted);
            let nearer = above > 0 && wanted - starts[above - 1] < starts[above] - wanted;
            // The first piece also has the empty buckets at the start.
            self.bounds.push(if piece == 0 { 0 } else { above - usize::from(nearer) });
        }
        self.bounds.push(buckets);
        let Self { lend_tables, lend_records, lend_spare, lend_row_moments, lend_row_weights, .. } = self;
        [&mut *lend_records, lend_spare].into_iter().for_each(Lender::reset);
        lend_tables.reset();
        let mut beside =
            [(lend_row_moments, self.kept.optimizer.row_moment().is_some()), (lend_row_weights, self.kept.row_weights)];
        beside.iter_mut().for_each(|(lend, _)| lend.reset());
        for &bound in &self.bounds[1..pieces] {
            let at = starts[bound] as usize;
            lend_records.cut(0, at);
            lend_spare.cut(0, at);
            let index = self.layouts.partition_point(|layout| layout.first <= bound) - 1;
            let (layout, bucket) = (self.layouts[index], bound - self.layouts[index].first);
            let row = if bucket >= layout.buckets { layout.rows } else { bucket << layout.shift };
            lend_tables.cut(index, row);
            // Where none are kept there are no matrices.
            for (lend, kept) in &mut beside {
                let [index, row] = if *kept { [index, row] } else { [0; 2] };
                lend.cut(index, row);
            }
        }
    }
}

/// Elements of a row's sum, to the end of a cache line, where rows are moved by sums.
fn sum_width(kept: ParamState, dim: usize) -> usize {
    if kept.sums_gradients() { dim.next_multiple_of(16) } else { 1 }
}

/// Which look-ups of each source of a table lie in `part` of all, when `before` lie in the tables before it.
fn parts_of<'a, 'f>(
    sources: &'a [GradientSource<'f>],
    part: &'a Range<usize>,
    mut before: usize,
) -> impl Iterator<Item = (&'a GradientSource<'f>, Range<usize>)> {
    sources.iter().map(move |source| {
        let count = source.bag().rows.len();
        let positions = meet(part, before, count);
        before += count;
        (source, positions)
    })
}

/// Writes the records of the look-ups at `positions` to the next places of their buckets.
fn scatter_part(
    records: &[AtomicU64],
    places: &mut [u32],
    positions: Range<usize>,
    shift: u32,
    source: &GradientSource<'_>,
) {
    let bag = source.bag();
    let mut sample = sample_of(bag, positions.start);
    let mut position = positions.start;
    while position < positions.end {
        let end = (bag.offsets[sample + 1] as usize).min(positions.end);
        for position in position..end {
            let row = bag.rows[position];
            let place = &mut places[(row >> shift) as usize];
            put(&records[*place as usize], u64::from(row) << 32 | u64::from(source.token(sample, position)));
            *place += 1;
        }
        position = position.max(end);
        sample += 1;
    }
}

/// Sorts records that agree in all but the lowest `bits` bits of their rows by these; equal ones keep their order.
fn sort_lower(records: &mut [u64], spare: &mut [u64], bits: u32) {
    if bits == 0 || records.len() < 2 {
        return;
    }
    if records.len() <= SMALL {
        for index in 1..records.len() {
            let record = records[index];
            let mut hole = index;
            while hole > 0 && records[hole - 1] >> 32 > record >> 32 {
                records[hole] = records[hole - 1];
                hole -= 1;
            }
            records[hole] = record;
        }
        return;
    }
    // A digit has at most 8 bits.
    let passes = if bits <= 16 { 2 } else { 4 };
    let digit = bits.div_ceil(passes);
    for pass in (0..passes).step_by(2) {
        sort_digits(records, spare, 32 + pass * digit, digit);
    }
}

/// Two passes of a stable counting sort, by two digits that follow each other, there and back; both are counted at
/// once.
fn sort_digits(records: &mut [u64], spare: &mut [u64], shift: u32, digit: u32) {
    let of = |record: u64, shift: u32| (record >> shift) as usize & ((1 << digit) - 1);
    let (mut low, mut high) = ([0u32; 256], [0u32; 256]);
    for &record in &*records {
        low[of(record, shift)] += 1;
        high[of(record, shift + digit)] += 1;
    }
    for places in [&mut low, &mut high] {
        let mut next = 0;
        places[..1 << digit].iter_mut().for_each(|place| next += std::mem::replace(place, next));
    }
    let scatter = |from: &[u64], to: &mut [u64], places: &mut [u32; 256], shift: u32| {
        for &record in from {
            let place = &mut places[of(record, shift)];
            to[*place as usize] = record;
            *place += 1;
        }
    };
    scatter(records, spare, &mut low, shift);
    scatter(spare, records, &mut high, shift + digit);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{Pooling, Update};
    use crate::base::rng::{Random, Stream};

    #[test]
    fn pieces_get_their_share_of_look_ups() {
        // Buckets of 0 to 9 look-ups, in two tables.
        let sizes: Vec<u32> = (0..300u32).map(|bucket| bucket * 7 % 10).collect();
        let total = sizes.iter().sum::<u32>() as usize;
        for pieces in [1, 2, 3, 8, 40] {
            let (kept, threads) = (ParamState::default(), pieces);
            let (update, pooling) = (Update::Sorted, Pooling::Sum);
            let spec = Spec { update, fused: true, pooling, tables: 2, dim: 1, kept, lookups: total, threads };
            let mut sorter = Sorter::new(&spec, total, &mut Supply::System).unwrap();
            sorter.starts.grow(301);
            let mut start = 0;
            for (bucket, size) in sizes.iter().enumerate() {
                sorter.starts[bucket] = start;
                start += size;
            }
            sorter.starts[300] = start;
            let layout = |first, buckets| TableBuckets { before: 0, first, buckets, shift: 0, rows: buckets };
            sorter.layouts.extend([layout(0, 100), layout(100, 200)]);
            sorter.share_out(total, 300, pieces);
            assert_eq!((sorter.bounds[0], sorter.bounds[pieces]), (0, 300));
            for bounds in sorter.bounds.windows(2) {
                let look_ups = f64::from(sorter.starts[bounds[1]] - sorter.starts[bounds[0]]);
                let share = total as f64 / pieces as f64;
                // A boundary is the bucket's edge that is nearer to the wanted place.
                assert!((look_ups - share).abs() <= 10.0, "{look_ups} of {share} in a piece of {pieces}");
            }
        }
    }

    #[test]
    fn sorting_is_stable_for_all_sizes_and_digits() {
        let random = Random::new(3, Stream::Label);
        for bits in [0, 1, 3, 8, 11, 16, 17, 24, 32] {
            for len in [0, 1, 2, SMALL, SMALL + 1, 1000] {
                let row =
                    |i: usize| random.below((bits * 2000) as u64 + i as u64, 1 << bits.min(20)) << (bits.max(20) - 20);
                let records: Vec<u64> = (0..len).map(|i| row(i) << 32 | i as u64).collect();
                let (mut found, mut spare) = (records.clone(), vec![0; len]);
                sort_lower(&mut found, &mut spare, bits);
                let mut expected = records;
                // Tokens ascend, so that sorting whole records is the stable order.
                expected.sort_unstable();
                assert_eq!(found, expected, "{bits} bits, {len} records");
            }
        }
    }
}
