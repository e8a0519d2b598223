//! Sparse gradients of a rank: sums by rows, of those rows alone that a step meets.
//!
//! A team shares out the look-ups to mark their rows, and then the rows to count and to write those that are marked.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::table_group::GroupSpec;
use crate::base::Result;
use crate::embedding::{Source, Table, Updater};
use crate::exchange::{Counters, RowListPart, exclusive_scan_table};
use crate::machine::team::Team;
use crate::memory::{Supply, recycled};
use crate::optim::ParamState;
use crate::sync::{AtomicU32, AtomicU64, Each};

/// Look-ups that one thread marks alone, and words of marks and marked rows that it goes through: it has done so with
/// these by the time that a team has begun and ended together, some microseconds ([`Team::is_much`]: longer, where its
/// threads sleep).
const FEW: usize = 2048;

/// Look-ups of a piece of those that a team marks: so few that the fewest that it marks are pieces for several threads.
const PIECE: usize = FEW / 4;

/// Words of marks of a unit at least: as many as a cache line has.
const LEAST: usize = 8;

/// Rows of a table that a step meets, marked by many threads at once.
#[derive(Debug)]
pub(super) struct RowSet {
    /// A bit a row. Relaxed: who reads them does so in a region behind that of the marks.
    bits: Vec<AtomicU64>,
}

impl RowSet {
    /// Of so many rows.
    pub(super) fn new(rows: usize) -> Self {
        Self { bits: (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds a row.
    #[inline(always)]
    pub(super) fn mark(&self, row: u32) {
        let (word, bit) = (&self.bits[row as usize / 64], 1 << (row % 64));
        // Rows are met again and again, and only a change takes the line away from other threads.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// How many rows are marked in some words.
    fn count(&self, words: Range<usize>) -> u32 {
        self.bits[words].iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
    }

    /// These rows, rising.
    fn rows(&self, words: Range<usize>) -> impl Iterator<Item = u32> {
        words.flat_map(move |word| {
            let mut bits = self.bits[word].load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(64 * word as u32 + bit)
            })
        })
    }

    /// Forgets them.
    fn clear(&self, words: Range<usize>) {
        // Most words may have no mark, and only a change takes their lines away from other threads.
        let marked = self.bits[words].iter().filter(|word| word.load(Ordering::Relaxed) != 0);
        marked.for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

/// Look-ups in the table of one of several sets.
#[derive(Debug)]
pub(super) struct LookupChunk<'a> {
    set: usize,
    rows: &'a [u32],
}

impl<'a> LookupChunk<'a> {
    /// As how many chunks so many look-ups in so many tables are pushed, at most.
    pub(super) const fn most(tables: usize, look_ups: usize) -> usize {
        tables + look_ups.div_ceil(PIECE)
    }

    /// Adds look-ups in the table of a set, in pieces.
    pub(super) fn push(to: &mut Vec<Self>, set: usize, rows: &'a [u32]) {
        to.extend(rows.chunks(PIECE).map(|rows| Self { set, rows }));
    }

    /// Marks what look-ups name, of each set what `row_of(set)` says of the row that is looked up, if it does.
    pub(super) fn mark<F: Fn(u32) -> Option<u32>>(
        team: &Team,
        chunks: &mut [Self],
        sets: &[RowSet],
        row_of: impl Fn(usize) -> F + Sync,
    ) {
        let look_ups = chunks.iter().map(|chunk| chunk.rows.len()).sum();
        team.share_if(team.is_much(look_ups, FEW), Each::new(chunks), |LookupChunk { set, rows }| {
            let row_of = row_of(*set);
            rows.iter().filter_map(|row| row_of(*row)).for_each(|row| sets[*set].mark(row));
        });
    }
}

/// Some rows of a set, by which a team shares out what there is to do with those that are marked.
#[derive(Debug)]
pub(super) struct RowUnit {
    pub set: usize,
    /// Where their marks are.
    words: Range<usize>,
    /// For each receiver, first how many of the marked rows it gets, then where the next one goes among those that it
    /// gets of the set.
    pub next: Vec<u32>,
}

impl Counters for RowUnit {
    fn counters(&mut self) -> impl Iterator<Item = &mut u32> {
        self.next.iter_mut()
    }
}

impl RowUnit {
    /// All of some sets of so many rows and receivers each, set by set, in pieces of nearly one size for so many
    /// threads.
    pub(super) fn all(sets: impl Iterator<Item = [usize; 2]> + Clone, threads: usize) -> Vec<Self> {
        let words = |[rows, _]: [usize; 2]| rows.div_ceil(64);
        let long = sets.clone().map(words).sum::<usize>().div_ceil(Team::PIECES_A_THREAD * threads).max(LEAST);
        let units = |(set, sizes): (usize, [usize; 2])| {
            let unit = move |first| Self { set, words: first..words(sizes).min(first + long), next: vec![0; sizes[1]] };
            (0..words(sizes)).step_by(long).map(unit)
        };
        sets.enumerate().flat_map(units).collect()
    }

    /// Words of marks that some of them go through.
    pub(super) fn words(units: &[Self]) -> usize {
        units.iter().map(|unit| unit.words.len()).sum()
    }

    /// Its rows that are marked, rising.
    pub(super) fn rows<'a>(&self, sets: &'a [RowSet]) -> impl Iterator<Item = u32> + use<'a> {
        sets[self.set].rows(self.words.clone())
    }

    /// Forgets the marks.
    pub(super) fn clear(&self, sets: &[RowSet]) {
        sets[self.set].clear(self.words.clone());
    }

    /// Counts the marked rows, all of which go to the one receiver; `of` gets how many each set that has rows has.
    pub(super) fn count_marked(team: &Team, units: &mut [Self], sets: &[RowSet], of: impl FnMut(usize, usize, usize)) {
        let much = team.is_much(Self::words(units), FEW);
        team.share_if(much, Each::new(units), |unit| unit.next.fill(sets[unit.set].count(unit.words.clone())));
        Self::line_up(units, of);
    }

    /// Makes of counts where each unit's rows begin; `of` gets, of each set that has rows and each of its receivers,
    /// how many there are.
    fn line_up(units: &mut [Self], mut of: impl FnMut(usize, usize, usize)) {
        for of_set in units.chunk_by_mut(|a, b| a.set == b.set) {
            exclusive_scan_table(of_set);
            let Self { set, next, .. } = &mut of_set[0];
            next.iter_mut().enumerate().for_each(|(receiver, all)| of(*set, receiver, std::mem::take(all) as usize));
        }
    }
}

/// Who gets sums of some columns of a table's rows.
#[derive(Debug)]
struct Receiver {
    columns: Range<usize>,
    /// How many rows it gets.
    rows: usize,
    part: RowListPart,
}

/// Sums of the gradients of some tables' rows.
#[derive(Debug)]
pub(super) struct SparseGradients {
    /// A row a row of each table: 0 between steps.
    sums: Vec<Table>,
    updater: Updater,
    met: Vec<RowSet>,
    units: Vec<RowUnit>,
    /// By table.
    receivers: Vec<Vec<Receiver>>,
    dim: usize,
    /// As many rows are marked at most.
    looked_up: usize,
    /// Memory that steps use again.
    chunks: Vec<LookupChunk<'static>>,
    shared: Vec<&'static [AtomicU32]>,
}

/// One of the tables of [`SparseGradients`].
#[derive(Debug)]
pub(super) struct SumsOf {
    pub name: String,
    pub rows: usize,
    /// The columns of each receiver.
    pub receivers: Vec<Range<usize>>,
}

impl SparseGradients {
    /// Of these tables, which are looked up as `spec` says.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub(super) fn new(
        tables: impl Iterator<Item = SumsOf>,
        spec: &GroupSpec<'_>,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        // Plain SGD on 32-bit floats adds up.
        let kept = ParamState::default();
        let (mut sums, mut sizes, mut receivers) = (Vec::new(), Vec::new(), Vec::new());
        for SumsOf { name, rows, receivers: columns } in tables {
            sums.push(Table::new(name, rows as u64, spec.dim, kept, supply)?);
            sizes.push([rows, columns.len()]);
            let receiver = |columns| Receiver { columns, rows: 0, part: RowListPart::default() };
            receivers.push(columns.into_iter().map(receiver).collect());
        }
        Ok(Self {
            updater: spec.updater(sums.len(), kept, supply)?,
            met: sizes.iter().map(|[rows, _]| RowSet::new(*rows)).collect(),
            units: RowUnit::all(sizes.iter().copied(), spec.threads),
            shared: Vec::with_capacity(sums.len()),
            dim: spec.dim,
            looked_up: 0,
            chunks: Vec::with_capacity(LookupChunk::most(sums.len(), spec.lookups)),
            receivers,
            sums,
        })
    }

    /// Adds up the gradients of these look-ups, each table's by rows.
    pub(super) fn sum(&mut self, team: &Team, source: Source<'_>) {
        if !source.gradient.is_empty() {
            // An update of zeros at rate -1 adds gradients up.
            self.updater.run(team, &mut self.sums, &[source], -1.0);
        }
        let mut chunks: Vec<LookupChunk<'_>> = recycled(std::mem::take(&mut self.chunks));
        source.lookups.bags().enumerate().for_each(|(table, bag)| LookupChunk::push(&mut chunks, table, bag.rows));
        LookupChunk::mark(team, &mut chunks, &self.met, |_| Some);
        self.chunks = recycled(chunks);
        self.looked_up = source.lookups.total();
    }

    /// Counts the rows that have gradients, for those receivers of their table that `receivers_of(table, row)` gives,
    /// each once.
    pub(super) fn count<R: Iterator<Item = (usize, u32)>>(
        &mut self,
        team: &Team,
        receivers_of: impl Fn(usize, u32) -> R + Sync,
    ) {
        let Self { met, units, receivers, looked_up, .. } = self;
        let much = team.is_much(RowUnit::words(units) + *looked_up, FEW);
        team.share_if(much, Each::new(units), |unit| {
            unit.next.fill(0);
            for row in unit.rows(met) {
                receivers_of(unit.set, row).for_each(|(receiver, _)| unit.next[receiver] += 1);
            }
        });
        RowUnit::line_up(units, |table, receiver, rows| receivers[table][receiver].rows = rows);
    }

    /// Makes room for what one of a table's receivers gets: so many rows of so many columns.
    pub(super) fn make_room(&mut self, table: usize, receiver: usize, room: impl FnOnce([usize; 2]) -> RowListPart) {
        let Receiver { columns, rows, part: own } = &mut self.receivers[table][receiver];
        *own = room([*rows, columns.len()]);
    }

    /// Writes the sums that were counted, each table's rows rising, by the number that `receivers_of` gives beside the
    /// receiver, where there is room for them in a list; makes them 0 again.
    pub(super) fn write<R: Iterator<Item = (usize, u32)>>(
        &mut self,
        team: &Team,
        receivers_of: impl Fn(usize, u32) -> R + Sync,
        list: &[AtomicU32],
    ) {
        let Self { sums, met, units, receivers, dim, .. } = self;
        let mut shared: Vec<&[AtomicU32]> = recycled(std::mem::take(&mut self.shared));
        shared.extend(sums.iter_mut().map(Table::shared_words));
        let written: usize = receivers.iter().flatten().map(|receiver| receiver.rows * receiver.columns.len()).sum();
        let (much, dim) = (team.is_much(RowUnit::words(units) + written, Team::WORDS_ALONE), *dim);
        team.share_if(much, Each::new(units), |unit| {
            let (sums, receivers) = (shared[unit.set], &receivers[unit.set]);
            for row in unit.rows(met) {
                // Relaxed: a row is in one unit, and regions order what was before and comes behind.
                let sum = &sums[row as usize * dim..][..dim];
                for (at, number) in receivers_of(unit.set, row) {
                    let (receiver, next) = (&receivers[at], &mut unit.next[at]);
                    let bits = sum[receiver.columns.clone()].iter().map(|sum| sum.load(Ordering::Relaxed));
                    receiver.part.put(list, *next as usize, number, bits);
                    *next += 1;
                }
                // The last one has got it, and it is still in the cache.
                sum.iter().for_each(|sum| sum.store(0.0f32.to_bits(), Ordering::Relaxed));
            }
            unit.clear(met);
        });
        self.shared = recycled(shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::Pooling;
    use crate::data::Bag;
    use crate::embedding::{Lookups, Slots};
    use crate::model::TrainSpec;
    use crate::sync::atomic_words_32;

    const DIM: usize = 5;
    const ROWS: [usize; 3] = [9000, 0, 70];

    /// Who gets rows: of the first table one receiver the even and one the odd ones, one all in some columns; of the
    /// last one all.
    fn receivers() -> [Vec<Range<usize>>; 3] {
        [vec![0..DIM, 0..DIM, 1..4], Vec::new(), std::iter::once(0..DIM).collect()]
    }

    fn number_of(table: usize, receiver: usize, row: u32) -> Option<u32> {
        match (table, receiver) {
            (0, 0 | 1) => (row as usize % 2 == receiver).then_some(row / 2),
            _ => Some(row),
        }
    }

    /// So many look-ups, all in the first table but every seventh, with gradients that are whole numbers.
    fn bags(look_ups: usize, step: usize) -> Vec<Bag> {
        let bag = |table: usize| {
            let rows = (0..look_ups).filter(|at| (at % 7 == 0) == (table == 2) && table != 1);
            let rows: Vec<_> = rows.map(|at| ((at * 31 + step * 17) % ROWS[table]) as u32).collect();
            // One sample has all of them.
            Bag { offsets: vec![0, rows.len() as u32], rows }
        };
        (0..3).map(bag).collect()
    }

    fn receivers_of(table: usize, row: u32) -> impl Iterator<Item = (usize, u32)> {
        (0..receivers()[table].len()).filter_map(move |receiver| Some((receiver, number_of(table, receiver, row)?)))
    }

    fn expected(bags: &[Bag], gradient: &[f32]) -> Vec<u32> {
        let mut list = Vec::new();
        for (table, columns) in receivers().into_iter().enumerate() {
            let mut counts = vec![0.0; ROWS[table]];
            bags[table].rows.iter().for_each(|row| counts[*row as usize] += 1.0f32);
            for (receiver, columns) in columns.into_iter().enumerate() {
                let met = (0..).zip(&counts).filter(|(_, count)| **count > 0.0);
                let met: Vec<_> = met.filter_map(|(row, n)| Some((number_of(table, receiver, row)?, *n))).collect();
                list.push(met.len() as u32);
                for (_, count) in &met {
                    let sums = gradient[table * DIM..][columns.clone()].iter().map(|g| (g * count).to_bits());
                    list.extend(sums);
                }
                list.extend(0..=met.len() as u32);
                list.extend(met.iter().map(|(row, _)| *row));
            }
        }
        list
    }

    #[test]
    fn sums_are_listed_once_whoever_marks_counts_and_writes_them() {
        let train = TrainSpec::sgd(1);
        for threads in [1, 2, 3] {
            let spec = GroupSpec { train: &train, pooling: Pooling::Sum, dim: DIM, lookups: 100, threads, targets: 1 };
            let of = ROWS.iter().zip(receivers());
            let tables = of.map(|(&rows, receivers)| SumsOf { name: "sums".to_owned(), rows, receivers });
            let mut sums = SparseGradients::new(tables, &spec, &mut Supply::System).unwrap();
            let (team, mut list, starts) = (Team::new(threads).unwrap(), Vec::new(), [0, DIM, 2 * DIM]);
            assert!(sums.chunks.capacity() >= LookupChunk::most(ROWS.len(), 100), "as many as are planned for");
            // Around what one thread marks, goes through and writes alone, be its team awake or asleep.
            let (alone, woken) = (Team::WORDS_ALONE, 4 * Team::WORDS_ALONE);
            let around = [FEW - 150, FEW - 1, FEW + 1, 4 * FEW - 1, 4 * FEW + PIECE + 1, alone, woken];
            for (step, look_ups) in [0, 1, 2, 40_000].into_iter().chain(around).enumerate() {
                let (bags, gradient) = (bags(look_ups, step), [1.0, -2.0, 3.0, 4.0, 5.0].repeat(3));
                let (lookups, slots) = (Lookups::plain(&bags), Slots::new(3 * DIM, &starts));
                let source = Source { lookups, gradient: &gradient, slots };
                sums.sum(&team, source);
                sums.count(&team, receivers_of);
                let mut end = 0;
                for (table, receivers) in receivers().iter().enumerate() {
                    for receiver in 0..receivers.len() {
                        sums.make_room(table, receiver, |sizes| {
                            let part = RowListPart::behind(&mut list, end, sizes);
                            end = part.end();
                            part
                        });
                    }
                }
                sums.write(&team, receivers_of, atomic_words_32(&mut list));
                assert!(list[..end] == expected(&bags, &gradient), "{look_ups} look-ups, {threads} threads");
                let words = sums.sums.iter().flat_map(|table| table.weights().into_owned());
                assert!(words.map(f32::to_bits).all(|bits| bits == 0), "sums are 0 between steps");
            }
        }
    }

    #[test]
    fn units_cover_all_marks_once_and_count_them() {
        let team = Team::new(3).unwrap();
        for sizes in [vec![0], vec![1, 64, 65], vec![0, 100_000, 0, 3, 9000], vec![64 * (FEW - 1)], vec![256 * FEW]] {
            let sets: Vec<_> = sizes.iter().map(|rows| RowSet::new(*rows)).collect();
            let mut units = RowUnit::all(sizes.iter().map(|rows| [*rows, 1]), 3);
            assert!(units.len() <= sizes.len() + 3 * Team::PIECES_A_THREAD, "{} units", units.len());
            let marked = |set: usize| (0..sizes[set] as u32).filter(|row| row % 5 < 2).collect::<Vec<_>>();
            let rows: Vec<_> = (0..sizes.len()).map(marked).collect();
            let mut chunks = Vec::new();
            // Every row is met twice; of what is looked up in all others, nothing is marked.
            for (set, rows) in rows.iter().enumerate() {
                (0..2).for_each(|_| LookupChunk::push(&mut chunks, set, rows));
            }
            let unmarked: Vec<u32> = vec![4; 3];
            LookupChunk::push(&mut chunks, 0, &unmarked);
            LookupChunk::mark(&team, &mut chunks, &sets, |_| |row: u32| (row % 5 < 2).then_some(row));
            let mut counts = vec![0; sizes.len()];
            RowUnit::count_marked(&team, &mut units, &sets, |set, _, count| counts[set] = count);
            let mut found = vec![Vec::new(); sizes.len()];
            for unit in &units {
                assert_eq!(unit.next, [found[unit.set].len() as u32], "units begin behind those before");
                found[unit.set].extend(unit.rows(&sets));
                unit.clear(&sets);
            }
            assert!(found == rows && counts.iter().copied().eq(rows.iter().map(Vec::len)), "{sizes:?}");
            assert!(units.iter().all(|unit| unit.rows(&sets).next().is_none()), "marks are forgotten");
        }
    }
}
