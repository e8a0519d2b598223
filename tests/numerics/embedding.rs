//! Every way to move embedding rows against the definition, and every kind of pooling against plain loops.
//!
//! `serial`, `race-free`, `sorted` and `auto`, fused and separate, give the definition's bits for any number of threads
//! and any instruction set; `atomic` and `rtm` differ by the rounding of a row's sums in another order. All of this for
//! whole rows and for rows in halves.

use octorec::base::config::{Pooling, Precision, Setting, TrainConfig, Update};
use octorec::base::rng::{Random, Stream};
use octorec::data::{Batch, Column, Schema};
use octorec::embedding::{LookUp, Lookups, Slots, Source, Spec, Table, TableTensor, Target, Updater};
use octorec::machine::team::Team;
use octorec::memory::{Arena, Supply};
use octorec::optim::{Averages, Optimizer, ParamState, rowwise_rate};
use octorec::simd::Isa;
use octorec::simd::split::shorten;
use octorec::sync::{Line, Stores};
use proptest::prelude::*;

const RATE: f32 = 0.1;
const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::Bf16Lsb8];
const DETERMINISTIC: [Update; 4] = [Update::Serial, Update::RaceFree, Update::Sorted, Update::Auto];

/// Tables, look-ups and the gradient of the pooled vectors.
#[derive(Debug, Clone)]
struct Case {
    dim: usize,
    rows: Vec<u64>,
    /// Where each table\'s pooled vector begins in a sample\'s features.
    starts: Vec<usize>,
    batch: Batch,
    weights: Option<Vec<Vec<f32>>>,
    pooling: Pooling,
    precision: Precision,
    optimizer: Optimizer,
}

struct Draw(Random, u64);

impl Draw {
    fn new(seed: u64) -> Self {
        Self(Random::new(seed, Stream::Label), 0)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.1 += 1;
        self.0.below(self.1, bound)
    }

    fn float(&mut self) -> f32 {
        self.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

impl Case {
    /// Bags of every table, `bags[t][n]`.
    fn new(dim: usize, rows: &[u64], bags: &[Vec<Vec<u32>>], weighted: bool, pooling: Pooling) -> Self {
        let tables = rows.iter().map(|&rows| Column::new("C", rows)).collect();
        let schema = Schema { dense: 0, weighted: false, tables };
        let mut batch = Batch::new(&schema);
        for n in 0..bags[0].len() {
            for (bag, source) in batch.bags.iter_mut().zip(bags) {
                bag.rows.extend(&source[n]);
                bag.close();
            }
            batch.labels.push(0.0);
        }
        batch.check(&schema).expect("rows lie in their tables");
        let mut draw = Draw::new(77);
        let weights = weighted.then(|| batch.bags.iter().map(|bag| draw.floats(bag.rows.len())).collect());
        let starts = (0..rows.len()).map(|table| 2 + table * dim).collect();
        Self {
            dim,
            rows: rows.to_vec(),
            starts,
            batch,
            weights,
            pooling,
            precision: Precision::F32,
            optimizer: Optimizer::Sgd,
        }
    }

    /// Three tables with empty bags, repeated rows and one row in every second look-up.
    fn skewed(dim: usize, samples: usize, seed: u64, weighted: bool, pooling: Pooling) -> Self {
        let mut draw = Draw::new(seed);
        let rows = [1000, 1, 40];
        let mut bag = |rows: u64| -> Vec<u32> {
            let count = [0, 1, 7, 40][draw.below(4) as usize];
            (0..count).map(|_| if draw.below(2) == 0 { rows as u32 / 2 } else { draw.below(rows) as u32 }).collect()
        };
        let bags: Vec<Vec<_>> = rows.iter().map(|&rows| (0..samples).map(|_| bag(rows)).collect()).collect();
        Self::new(dim, &rows, &bags, weighted, pooling)
    }

    /// The same with tables of another precision.
    fn at(&self, precision: Precision) -> Self {
        Self { precision, ..self.clone() }
    }

    /// What a row keeps of a number.
    fn kept(&self, x: f32) -> f32 {
        if self.precision == Precision::Bf16Lsb8 { shorten(x) } else { x }
    }

    /// What a look-up sees of it.
    fn seen(&self, x: f32) -> f32 {
        if self.precision.is_split() { f32::from_bits(x.to_bits() & 0xffff_0000) } else { x }
    }

    fn lookups(&self) -> Lookups<'_> {
        match &self.weights {
            Some(weights) => Lookups::new(&self.batch.bags, weights),
            None => Lookups::plain(&self.batch.bags),
        }
    }

    /// Two foreign columns before the pooled vectors and three behind them.
    fn slots(&self) -> Slots<'_> {
        Slots::new(2 + self.rows.len() * self.dim + 3, &self.starts)
    }

    fn tables(&self) -> Vec<Table> {
        let mut draw = Draw::new(5);
        let table = |&rows: &u64| {
            let table = Table::new("C".to_owned(), rows, self.dim, self.keeps(), &mut Supply::System);
            let mut table = table.expect("memory");
            let values = draw.floats(rows as usize * self.dim);
            table.set_weights(0, &values);
            table
        };
        self.rows.iter().map(table).collect()
    }

    fn gradient(&self) -> Vec<f32> {
        Draw::new(6).floats(self.batch.samples() * self.slots().row)
    }

    fn source<'a>(&'a self, gradient: &'a [f32]) -> Source<'a> {
        Source { lookups: self.lookups(), gradient, slots: self.slots() }
    }

    fn keeps(&self) -> ParamState {
        ParamState { precision: self.precision, optimizer: self.optimizer, row_weights: false }
    }

    fn spec(&self, update: Update, fused: bool, threads: usize) -> Spec {
        // TrainSpec for one look-up: everything beyond shows that memory grows.
        let (pooling, tables, dim) = (self.pooling, self.rows.len(), self.dim);
        Spec { update, fused, pooling, tables, dim, kept: self.keeps(), lookups: 1, threads }
    }

    /// All rows after two updates.
    fn moved(&self, team: &Team, update: Update, fused: bool) -> Vec<Vec<f32>> {
        let mut tables = self.tables();
        let spec = self.spec(update, fused, team.threads());
        let mut updater = Updater::new(spec, &mut Supply::System).expect("memory");
        for _ in 0..2 {
            updater.run(team, &mut tables, &[self.source(&self.gradient())], RATE);
        }
        tables.iter().map(|table| table.weights().to_vec()).collect()
    }

    /// The factor of each look-up of a table, by sample.
    fn factors(&self, table: usize, n: usize) -> impl Iterator<Item = (usize, f32)> + '_ {
        let bag = &self.batch.bags[table];
        let bounds = bag.offsets[n] as usize..bag.offsets[n + 1] as usize;
        let part = if self.pooling == Pooling::Mean { 1.0 / bounds.len() as f32 } else { 1.0 };
        bounds.map(move |position| (position, part * self.weights.as_ref().map_or(1.0, |w| w[table][position])))
    }

    /// The definition in plain loops: all rows after two updates.
    fn expected(&self) -> Vec<Vec<f32>> {
        let (gradient, slots) = (self.gradient(), self.slots());
        let mut all: Vec<_> = self.tables().iter().map(|table| table.weights().to_vec()).collect();
        for _ in 0..2 {
            for (t, rows) in all.iter_mut().enumerate() {
                for n in 0..self.batch.samples() {
                    for (position, factor) in self.factors(t, n) {
                        let row = self.batch.bags[t].rows[position] as usize;
                        for e in 0..self.dim {
                            let g = factor * gradient[n * slots.row + slots.starts[t] + e];
                            let weight = &mut rows[row * self.dim + e];
                            *weight = self.kept((-RATE).mul_add(g, *weight));
                        }
                    }
                }
            }
        }
        all
    }

    /// Pooled vectors in f64.
    fn pooled(&self) -> Vec<f64> {
        let tables: Vec<_> = self.tables().iter().map(|table| table.weights().into_owned()).collect();
        let mut out = Vec::new();
        for n in 0..self.batch.samples() {
            for (t, table) in tables.iter().enumerate() {
                for e in 0..self.dim {
                    let row = |position: usize| self.batch.bags[t].rows[position] as usize;
                    let value = |position| f64::from(self.seen(table[row(position) * self.dim + e]));
                    out.push(self.factors(t, n).map(|(position, f)| f64::from(f) * value(position)).sum());
                }
            }
        }
        out
    }

    fn features(&self, team: &Team) -> Vec<f32> {
        let mut features = vec![7.5; self.batch.samples() * self.slots().row];
        let mut forward = LookUp::new(self.pooling, self.rows.len(), team.threads());
        for _ in 0..2 {
            forward.run(team, &self.tables(), self.lookups(), &mut features, self.slots());
        }
        features
    }
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

/// All ways against the definition, for one team.
fn check_updates(case: &Case, team: &Team) {
    let expected = case.expected();
    for fused in [true, false] {
        for update in DETERMINISTIC {
            let same = bits(&case.moved(team, update, fused)) == bits(&expected);
            let (threads, dim, precision) = (team.threads(), case.dim, case.precision.name());
            assert!(same, "{update:?}, fused {fused}, {threads} threads, dim {dim}, {precision}");
        }
        for update in [Update::Atomic, Update::Rtm] {
            let found = case.moved(team, update, fused);
            // A row's sums in another order: each of its look-ups rounds at the magnitude of the sum.
            let lookups = case.batch.bags.iter().map(|bag| bag.rows.len()).max().unwrap_or(0) as f32;
            let unit = if case.precision == Precision::Bf16Lsb8 { 256.0 * f32::EPSILON } else { f32::EPSILON };
            let bound = (1.0 + RATE * lookups) * lookups.max(1.0) * unit;
            for (x, y) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert!((x - y).abs() <= bound, "{update:?}, fused {fused}: {x} is not {y} within {bound}");
            }
        }
    }
}

fn check_forward(case: &Case, team: &Team) {
    let (features, slots) = (case.features(team), case.slots());
    let width = case.rows.len() * case.dim;
    for (row, expected) in features.chunks(slots.row).zip(case.pooled().chunks(width)) {
        assert!(row[..2].iter().chain(&row[2 + width..]).all(|&x| x == 7.5), "foreign columns stay");
        for (x, y) in row[2..2 + width].iter().zip(expected) {
            assert!((f64::from(*x) - y).abs() < 2e-5, "{x} is not {y}");
        }
    }
}

#[test]
fn all_ways_agree_for_all_threads_and_dims() {
    for threads in [1, 2, 3, 5] {
        let team = Team::new(threads).unwrap();
        for dim in [1, 3, 8, 16, 17, 64, 100] {
            for precision in PRECISIONS {
                let case = Case::skewed(dim, 60, dim as u64, false, Pooling::Sum).at(precision);
                check_updates(&case, &team);
                check_forward(&case, &team);
            }
        }
    }
}

#[test]
fn means_and_weights_agree_too() {
    for (weighted, pooling) in [(true, Pooling::Sum), (false, Pooling::Mean), (true, Pooling::Mean)] {
        for threads in [1, 3] {
            let team = Team::new(threads).unwrap();
            for dim in [3, 16, 300] {
                for precision in PRECISIONS {
                    let case = Case::skewed(dim, 50, 9, weighted, pooling).at(precision);
                    check_updates(&case, &team);
                    check_forward(&case, &team);
                }
            }
        }
    }
}

#[test]
fn instruction_sets_and_threads_change_no_bit() {
    let dims = [1, 8, 17, 64, 130, 300].into_iter();
    for (dim, precision) in dims.flat_map(|dim| PRECISIONS.map(|precision| (dim, precision))) {
        let case = Case::skewed(dim, 40, 4, dim == 17, Pooling::Mean).at(precision);
        let one = Team::with_isa(1, Isa::all()[0]).unwrap();
        let (features, rows) = (case.features(&one), case.moved(&one, Update::Serial, true));
        for isa in Isa::all() {
            for threads in [1, 2, 5] {
                let team = Team::with_isa(threads, isa).unwrap();
                assert_eq!(bits(&[case.features(&team)]), bits(std::slice::from_ref(&features)), "{isa:?}, dim {dim}");
                for update in DETERMINISTIC {
                    assert_eq!(bits(&case.moved(&team, update, true)), bits(&rows), "{isa:?} {update:?}, dim {dim}");
                }
            }
        }
    }
}

/// Where vectors lie in some memory, from an element on.
type Place<'a> = (usize, Option<Slots<'a>>);

/// Whatever cuts the samples: nothing, one place or several; sequences have several bags a sample.
#[test]
fn samples_are_pooled_some_by_some_as_all_at_once() {
    for (weighted, positions) in [(false, 1), (true, 1), (false, 5)] {
        let (samples, dim) = (30, 20);
        let case = Case::skewed(dim, samples * positions, 12, weighted, Pooling::Mean);
        let of = if positions == 1 { 3 } else { 1 };
        let row = (of + positions) * dim;
        let (tables, places) = (&case.tables()[..of], [0, 1, 2]);
        let starts = [5, 5 + dim, 5 + 2 * dim];
        let slots = Slots::new(row, &starts[..of]).sequences(positions, dim);
        for (isa, threads) in Isa::all().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
            let team = Team::with_isa(threads, isa).unwrap();
            let pooled = |cuts: &[usize]| {
                let (mut features, mut look_up) = (vec![7.5; samples * row], LookUp::new(case.pooling, of, threads));
                for cut in cuts.windows(2) {
                    let lookups = case.lookups().in_tables(&places[..of]).in_bags(&slots.bags(&(cut[0]..cut[1])));
                    look_up.run(&team, tables, lookups, &mut features[cut[0] * row..cut[1] * row], slots);
                }
                bits(&[features])
            };
            let whole = pooled(&[0, samples]);
            for cuts in [&[0, 17, samples][..], &[0, 0, 1, 2, 29, samples, samples]] {
                assert_eq!(pooled(cuts), whole, "{isa:?}, {threads} threads, weighted {weighted}, cut at {cuts:?}");
            }
        }
    }
}

/// Targets of several lengths and forms, one of them without a bag: each gets what it would get alone.
#[test]
fn several_targets_at_once_get_what_each_gets_alone() {
    let (samples, dim) = (40, 16);
    let case = Case::skewed(dim, samples, 12, true, Pooling::Mean);
    let (tables, places) = (case.tables(), [0, 1, 2]);
    let (row, starts) = (4 * dim, [0, dim, 3 * dim]);
    let slots = Slots::new(row, &starts);
    let targets = [(0..13, true), (13..13, true), (13..20, false), (20..samples, true), (5..6, false)];
    let len = |(range, in_rows): &(std::ops::Range<usize>, bool)| range.len() * if *in_rows { row } else { 3 * dim };
    for (isa, threads) in Isa::all().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
        let team = Team::with_isa(threads, isa).unwrap();
        for stores in [Stores::Plain, Stores::Streaming] {
            let pooled = |at_once: usize| {
                let mut look_up = LookUp::new(case.pooling, tables.len(), threads);
                let mut memory: Vec<_> = targets.iter().map(|of| vec![Line::from([7; 16]); len(of) / 16]).collect();
                let mut all: Vec<_> = std::iter::zip(&targets, &mut memory)
                    .map(|((range, in_rows), memory)| Target {
                        lookups: case.lookups().in_tables(&places).in_bags(range),
                        vectors: bytemuck::cast_slice_mut(memory),
                        slots: in_rows.then_some(slots),
                        stores,
                    })
                    .collect();
                all.chunks_mut(at_once).for_each(|some| look_up.run_all(&team, &tables, some));
                memory
            };
            assert!(pooled(targets.len()) == pooled(1), "{isa:?}, {threads} threads, {stores:?}");
        }
    }
}

/// Rows and vectors of whole aligned lines pass the caches, others do not; whatever lies between vectors stays.
#[test]
fn streamed_vectors_are_stored_ones() {
    for dim in [8, 16, 48, 130, 4096] {
        let case = Case::skewed(dim, 50, 12, dim == 16, Pooling::Mean);
        let (tables, samples) = (case.tables(), case.batch.samples());
        let whole = (3 * dim + 16).next_multiple_of(16);
        for (isa, threads) in Isa::all().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
            let team = Team::with_isa(threads, isa).unwrap();
            let written = |stores: Stores, floats: usize, (first, slots): Place<'_>| {
                let mut memory = vec![Line::from([u32::MAX; 16]); floats.div_ceil(16)];
                let mut look_up = LookUp::new(case.pooling, tables.len(), threads);
                let vectors = &mut bytemuck::cast_slice_mut(&mut memory)[first..floats];
                let target = Target { lookups: case.lookups(), vectors, slots, stores };
                look_up.run_all(&team, &tables, &mut [target]);
                memory
            };
            for (row, first) in [(whole, 16), (whole, 2), (whole + 3, 16)] {
                let starts = [0, 1, 2].map(|table| first + table * dim);
                let slots = Some(Slots::new(row, &starts));
                let [plain, streamed] =
                    [Stores::Plain, Stores::Streaming].map(|stores| written(stores, samples * row, (0, slots)));
                assert!(plain == streamed, "{isa:?}, {threads} threads, dim {dim}, rows of {row} from {first} on");
            }
            for first in [0, 3] {
                let floats = first + 3 * samples * dim;
                let [plain, streamed] =
                    [Stores::Plain, Stores::Streaming].map(|stores| written(stores, floats, (first, None)));
                assert!(plain == streamed, "{isa:?}, {threads} threads, dim {dim}, vectors from {first} on");
            }
        }
    }
}

/// Whatever they are stored by, and whether something lies between the vectors, which stays.
#[test]
fn sequences_are_bags_whose_vectors_lie_in_one_row() {
    let (samples, positions) = (12, 5);
    for dim in [8, 16, 48, 608] {
        let case = Case::skewed(dim, samples * positions, 12, false, Pooling::Mean);
        let (tables, lookups) = (&case.tables()[..1], Lookups::plain(&case.batch.bags[..1]));
        for (isa, threads) in Isa::all().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
            let (team, mut look_up) = (Team::with_isa(threads, isa).unwrap(), LookUp::new(case.pooling, 1, threads));
            let mut apart = vec![0.0; samples * positions * dim];
            let plain = Target { lookups, vectors: &mut apart, slots: None, stores: Stores::Plain };
            look_up.run_all(&team, tables, &mut [plain]);
            for (step, stores) in
                [dim, dim + 16].map(|step| [(step, Stores::Plain), (step, Stores::Streaming)]).concat()
            {
                let row = (16 + positions * step).next_multiple_of(16);
                let mut memory = vec![Line::from([u32::MAX; 16]); samples * row / 16];
                let slots = Some(Slots::new(row, &[16]).sequences(positions, step));
                let vectors = bytemuck::cast_slice_mut(&mut memory);
                look_up.run_all(&team, tables, &mut [Target { lookups, vectors, slots, stores }]);
                let mut expected = vec![u32::MAX; samples * row];
                for (at, vector) in apart.chunks(dim).enumerate() {
                    let first = at / positions * row + 16 + at % positions * step;
                    expected[first..][..dim].copy_from_slice(bytemuck::cast_slice(vector));
                }
                let written: &[u32] = bytemuck::cast_slice(&memory);
                assert!(written == expected, "{isa:?}, {threads} threads, dim {dim}, {step} apart, {stores:?}");
            }
        }
    }
}

#[test]
fn one_sample_one_table_and_nothing_at_all() {
    for threads in [1, 4] {
        let team = Team::new(threads).unwrap();
        for bags in [vec![vec![vec![3, 3, 0]]], vec![vec![vec![]; 5]], vec![vec![]]] {
            for precision in PRECISIONS {
                let case = Case::new(5, &[4], &bags, false, Pooling::Mean).at(precision);
                check_updates(&case, &team);
                check_forward(&case, &team);
            }
        }
    }
}

#[test]
fn rows_of_large_minibatches_move_by_all_that_their_gradients_say() {
    const SAMPLES: usize = 1 << 17;
    let config = |batch| TrainConfig { batch, lr: f64::from(RATE), ..TrainConfig::default() };
    let by_name = TrainConfig { update: Update::Serial, ..config(SAMPLES) };
    let quick = TrainConfig { lr_rows: Setting::Given(1.0), ..config(SAMPLES) };
    assert!([config(SAMPLES / 8), by_name, quick].iter().all(|config| Optimizer::rows(config) == Optimizer::Sgd));
    let bags = vec![(0..SAMPLES as u32).map(|sample| vec![sample % 3]).collect()];
    let optimizer = Optimizer::rows(&config(SAMPLES));
    let (case, team) = (Case { optimizer, ..Case::new(4, &[3], &bags, false, Pooling::Sum) }, Team::new(2).unwrap());
    let (mut tables, slots) = (case.tables(), case.slots());
    let before = tables[0].weights().to_vec();
    // Of a mean loss; less than most weights can be moved by at once.
    let gradient: Vec<f32> = case.gradient().iter().map(|g| (0.02 + 0.01 * g) / SAMPLES as f32).collect();
    let mut updater = Updater::new(case.spec(Update::Auto, true, 2), &mut Supply::System).expect("memory");
    updater.run(&team, &mut tables, &[case.source(&gradient)], RATE);
    for (at, (after, before)) in tables[0].weights().iter().zip(before).enumerate() {
        let of = |sample: usize| f64::from(gradient[sample * slots.row + slots.starts[0] + at % case.dim]);
        let expected = -f64::from(RATE) * (at / case.dim..SAMPLES).step_by(3).map(of).sum::<f64>();
        let moved = f64::from(*after) - f64::from(before);
        assert!((moved / expected - 1.0).abs() < 0.01, "weight {at}: {moved}, not {expected}");
    }
}

#[test]
fn split_rows_move_bit_for_bit_as_whole_ones() {
    for threads in [1, 3] {
        let team = Team::new(threads).unwrap();
        for update in DETERMINISTIC {
            for fused in [true, false] {
                let case = Case::skewed(33, 60, 2, true, Pooling::Mean);
                let (whole, split) = (case.moved(&team, update, fused), case.at(Precision::Bf16));
                assert_eq!(bits(&split.moved(&team, update, fused)), bits(&whole), "{update:?}, fused {fused}");
            }
        }
    }
}

#[test]
fn rtm_moves_whole_rows_only_and_says_so() {
    let case = Case::skewed(8, 10, 1, false, Pooling::Sum).at(Precision::Bf16);
    let updater = Updater::new(case.spec(Update::Rtm, true, 1), &mut Supply::System).unwrap();
    let note = updater.note().expect("a note");
    assert!(note.contains("atomic") && note.contains("halves"), "{note}");
}

#[test]
fn large_tables_sort_by_every_digit() {
    let mut draw = Draw::new(8);
    let rows = 3_000_000;
    let bags = (0..3000).map(|_| (0..3).map(|_| draw.below(rows) as u32 / 7 * 7).collect()).collect();
    let case = Case::new(2, &[rows], &[bags], false, Pooling::Sum);
    check_updates(&case, &Team::new(3).unwrap());
}

#[test]
fn planned_memory_serves_as_well() {
    let case = Case::skewed(16, 60, 3, false, Pooling::Sum);
    let team = Team::new(2).unwrap();
    let lookups = case.batch.bags.iter().map(|bag| bag.rows.len()).sum();
    for update in DETERMINISTIC {
        for fused in [true, false] {
            let spec = Spec { lookups, ..case.spec(update, fused, 2) };
            let (home, touch) = ([octorec::base::NodeId(0)], |memory: &mut [u8]| team.touch(memory));
            let build = |supply: &mut Supply<'_>| Updater::new(spec, supply);
            let (mut updater, _) = Arena::of(&home, touch, build).unwrap();
            let mut tables = case.tables();
            for _ in 0..2 {
                updater.run(&team, &mut tables, &[case.source(&case.gradient())], RATE);
            }
            let found: Vec<_> = tables.iter().map(|table| table.weights().to_vec()).collect();
            assert_eq!(bits(&found), bits(&case.expected()), "{update:?}, fused {fused}");
        }
    }
}

#[test]
fn the_choice_follows_the_skew_and_says_so() {
    let team = Team::new(2).unwrap();
    let chosen = |case: &Case, team: &Team| {
        let mut updater = Updater::new(case.spec(Update::Auto, true, team.threads()), &mut Supply::System).unwrap();
        updater.run(team, &mut case.tables(), &[case.source(&case.gradient())], RATE);
        let choice = *updater.choice().expect("an update was made");
        (choice.update, choice.to_string())
    };
    // All look-ups in the lower half of the rows: equal ranges of rows would leave one of two threads idle.
    let lower = vec![(0..2000).map(|n| vec![n % 500]).collect()];
    let (update, why) = chosen(&Case::new(64, &[1000], &lower, false, Pooling::Sum), &team);
    assert!(update == Update::Sorted && why.contains("has 100 %"), "{why}");
    let few = vec![vec![vec![1]; 3]];
    let (update, why) = chosen(&Case::new(64, &[1000], &few, false, Pooling::Sum), &team);
    assert!(update == Update::Serial && why.contains("only 3 look-ups"), "{why}");
    let one = Team::new(1).unwrap();
    let (update, why) = chosen(&Case::new(64, &[1000], &lower, false, Pooling::Sum), &one);
    assert!(update == Update::Serial && why.contains("one thread"), "{why}");
}

#[test]
fn the_choice_is_renewed_when_look_ups_change() {
    let team = Team::new(8).unwrap();
    let uniform = vec![(0..2000).map(|n| vec![n * 7 % 1000]).collect()];
    let lower = vec![(0..2000).map(|n| vec![n % 125]).collect()];
    let [uniform, lower] = [uniform, lower].map(|bags| Case::new(64, &[1000], &bags, false, Pooling::Sum));
    let mut updater = Updater::new(uniform.spec(Update::Auto, true, 8), &mut Supply::System).unwrap();
    let mut tables = uniform.tables();
    let mut update = |case: &Case| {
        updater.run(&team, &mut tables, &[case.source(&case.gradient())], RATE);
        let choice = updater.choice().expect("an update was made");
        (choice.update, choice.to_string())
    };
    // Both ways share these out evenly: the clock decides, once it has seen both.
    let told: Vec<_> = (0..10).map(|_| update(&uniform).1).collect();
    assert!(told[0].contains("the busiest of 8 equal row ranges has 1"), "{}", told[0]);
    assert!(told[9].contains(" ms race-free and ") && told[9].contains("2000 look-ups took "), "{}", told[9]);
    // Within 256 minibatches it is noticed that one thread would have all rows, and not before the second look.
    let chosen: Vec<_> = (0..300).map(|_| update(&lower)).collect();
    assert_eq!(chosen[0].1, told[9]);
    assert_eq!(chosen[299].0, Update::Sorted);
    assert!(chosen[299].1.contains("the busiest of 8 equal row ranges has 100 %"), "{}", chosen[299].1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn random_minibatches_agree(
        dim in 1usize..40,
        threads in 1usize..6,
        weighted: bool,
        mean: bool,
        precision in 0usize..3,
        rows in proptest::collection::vec(1u64..300, 1..4),
        picks in proptest::collection::vec(proptest::collection::vec(any::<u32>(), 0..20), 0..40),
    ) {
        let row = |pick: u32, rows: u64| (u64::from(pick) % rows) as u32;
        let bags: Vec<Vec<Vec<u32>>> = rows
            .iter()
            .map(|&rows| picks.iter().map(|bag| bag.iter().map(|&pick| row(pick, rows)).collect()).collect())
            .collect();
        let pooling = if mean { Pooling::Mean } else { Pooling::Sum };
        let case = Case::new(dim, &rows, &bags, weighted, pooling).at(PRECISIONS[precision]);
        let team = Team::new(threads).unwrap();
        check_updates(&case, &team);
        check_forward(&case, &team);
    }
}

impl Case {
    /// The same bags and gradients from several sources, such as ranks: samples up to each of `ends`.
    fn cut(&self, ends: &[usize]) -> Vec<(Self, Vec<f32>)> {
        let (row, gradient) = (self.slots().row, self.gradient());
        let mut start = 0;
        let mut part = |&end: &usize| {
            let samples = start..end;
            start = end;
            let mut case = self.clone();
            for (t, bag) in case.batch.bags.iter_mut().enumerate() {
                let whole = &self.batch.bags[t];
                let [from, to] = [samples.start, samples.end].map(|sample| whole.offsets[sample] as usize);
                bag.rows = whole.rows[from..to].to_vec();
                bag.offsets = whole.offsets[samples.start..=samples.end].iter().map(|end| end - from as u32).collect();
                if let (Some(all), Some(own)) = (&self.weights, &mut case.weights) {
                    own[t] = all[t][from..to].to_vec();
                }
            }
            (case, gradient[samples.start * row..samples.end * row].to_vec())
        };
        ends.iter().map(&mut part).collect()
    }

    /// All rows and their moments after three updates by these sources.
    fn moved_by(&self, parts: &[(Self, Vec<f32>)], team: &Team, update: Update, fused: bool) -> Vec<Vec<f32>> {
        let mut tables = self.tables();
        let spec = self.spec(update, fused, team.threads());
        let mut updater = Updater::new(spec, &mut Supply::System).expect("memory");
        tables.iter_mut().for_each(|table| table.reset_optimizer_state(team));
        let sources: Vec<_> = parts.iter().map(|(case, gradient)| case.source(gradient)).collect();
        (0..3).for_each(|_| updater.run(team, &mut tables, &sources, RATE));
        let moments = tables.iter().flat_map(|table| {
            let of_rows = self.optimizer.row_moment().map(|_| TableTensor::RowMoment);
            let moments = (0..self.optimizer.moments().len()).map(TableTensor::Moment).chain(of_rows);
            moments.map(move |moment| table.export(moment, 0..table.rows()).into_owned())
        });
        tables.iter().map(|table| table.weights().to_vec()).chain(moments).collect()
    }

    /// What an optimizer is, in plain loops: rows and what is kept of them after three updates. `step` moves a row and
    /// its moments, `kept` numbers a weight or one of the row, by the sum of the row's gradients.
    fn defined(&self, kept: usize, step: impl Fn(&mut [f32], &[f32], &mut [Vec<f32>])) -> Vec<Vec<f32>> {
        let (gradient, slots) = (self.gradient(), self.slots());
        let mut all: Vec<_> = self.tables().iter().map(|table| table.weights().to_vec()).collect();
        let of_row = if self.optimizer.row_moment().is_some() { 1 } else { self.dim };
        let one = |rows: &Vec<f32>| vec![self.optimizer.initial(); rows.len() / self.dim * of_row];
        let mut moments: Vec<Vec<Vec<f32>>> = all.iter().map(|rows| vec![one(rows); kept]).collect();
        for (t, (rows, moments)) in all.iter_mut().zip(&mut moments).enumerate() {
            let mut sums = std::collections::BTreeMap::<usize, Vec<f32>>::new();
            for n in 0..self.batch.samples() {
                for (position, factor) in self.factors(t, n) {
                    let row = self.batch.bags[t].rows[position] as usize;
                    let sum = sums.entry(row).or_insert_with(|| vec![0.0; self.dim]);
                    let gradient = &gradient[n * slots.row + slots.starts[t]..];
                    sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += factor * g);
                }
            }
            for _ in 0..3 {
                for (row, sum) in &sums {
                    let (of_weights, of_moments) =
                        (row * self.dim..(row + 1) * self.dim, row * of_row..(row + 1) * of_row);
                    let mut own: Vec<_> = moments.iter().map(|moment| moment[of_moments.clone()].to_vec()).collect();
                    step(&mut rows[of_weights.clone()], sum, &mut own);
                    rows[of_weights].iter_mut().for_each(|weight| *weight = self.kept(*weight));
                    moments
                        .iter_mut()
                        .zip(own)
                        .for_each(|(moment, own)| moment[of_moments.clone()].copy_from_slice(&own));
                }
            }
        }
        all.into_iter().chain(moments.into_iter().flatten()).collect()
    }

    /// The same for an optimizer with a formula for each weight.
    fn by_weight(&self, formula: impl Fn(f32, f32, &mut [f32; 2]) -> f32) -> Vec<Vec<f32>> {
        let kept = self.optimizer.moments().len();
        self.defined(kept, |weights, sum, moments| {
            for (e, weight) in weights.iter_mut().enumerate() {
                let mut own = [0.0; 2];
                (0..kept).for_each(|which| own[which] = moments[which][e]);
                *weight = formula(*weight, sum[e], &mut own);
                (0..kept).for_each(|which| moments[which][e] = own[which]);
            }
        })
    }

    /// What each optimizer but SGD is; three updates at the first step's pace.
    fn moved_once(&self) -> Vec<Vec<f32>> {
        match self.optimizer {
            Optimizer::Momentum { momentum, .. } => self.by_weight(|weight, g, [buffer, _]| {
                *buffer = momentum.mul_add(*buffer, g);
                (-RATE).mul_add(*buffer, weight)
            }),
            Optimizer::Adagrad { eps, .. } => self.by_weight(|weight, g, [sum, _]| {
                *sum = g.mul_add(g, *sum);
                (-RATE).mul_add(g / (sum.sqrt() + eps), weight)
            }),
            Optimizer::SparseAdam { averages } => self.by_weight(|weight, g, [mean, square]| {
                let [rest1, rest2] = [averages.beta1, averages.beta2].map(|beta| (1.0 - beta) as f32);
                *mean = (averages.beta1 as f32).mul_add(*mean, rest1 * g);
                *square = (averages.beta2 as f32).mul_add(*square, (rest2 * g) * g);
                // The first step: 1 - beta^1.
                let step = f64::from(RATE) * (1.0 - averages.beta2).sqrt() / (1.0 - averages.beta1);
                (-(step as f32)).mul_add(*mean / (square.sqrt() + averages.eps), weight)
            }),
            Optimizer::RowwiseAdagrad { eps, .. } => self.defined(1, |weights, sum, moments| {
                let rate = rowwise_rate(sum, &mut moments[0][0], RATE, eps);
                weights.iter_mut().zip(sum).for_each(|(weight, g)| *weight = (-rate).mul_add(*g, *weight));
            }),
            other => panic!("{other:?} is not for rows that move once"),
        }
    }
}

#[test]
fn a_row_moves_once_by_the_sum_of_its_gradients_from_any_number_of_sources() {
    let averages = Averages { beta1: 0.9, beta2: 0.999, eps: 1e-8, bias_correction: true };
    for optimizer in [
        Optimizer::Momentum { momentum: 0.9, decay: 0.0 },
        Optimizer::Adagrad { eps: 1e-10, initial: 0.25, decay: 0.0 },
        Optimizer::SparseAdam { averages },
        Optimizer::RowwiseAdagrad { eps: 1e-8, initial: 0.0 },
    ] {
        moves_once(optimizer);
    }
}

fn moves_once(optimizer: Optimizer) {
    for (weighted, pooling) in [(false, Pooling::Sum), (true, Pooling::Mean)] {
        let dims: &[usize] = if optimizer.moments() == ["momentum_buffer"] { &[3, 16, 100, 300] } else { &[3, 100] };
        for (dim, precision) in dims.iter().flat_map(|dim| PRECISIONS.map(|p| (*dim, p))) {
            let mut case = Case::skewed(dim, 60, 8, weighted, pooling).at(precision);
            case.optimizer = optimizer;
            let expected = bits(&case.moved_once());
            for isa in Isa::all() {
                for (threads, fused) in [(1, true), (3, true), (2, false)] {
                    let team = Team::with_isa(threads, isa).unwrap();
                    for ends in [&[60][..], &[17, 60], &[0, 1, 30, 30, 60]] {
                        let moved = case.moved_by(&case.cut(ends), &team, Update::Auto, fused);
                        assert_eq!(
                            bits(&moved),
                            expected,
                            "{optimizer:?}, {isa:?}, {threads} threads, dim {dim}, {precision:?}, {ends:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn several_sources_move_rows_as_one_after_the_other() {
    for (weighted, pooling) in [(false, Pooling::Sum), (true, Pooling::Mean)] {
        let case = Case::skewed(17, 60, 8, weighted, pooling);
        let one = Team::new(1).unwrap();
        let expected = case.moved_by(&case.cut(&[60]), &one, Update::Serial, true);
        for threads in [1, 3] {
            let team = Team::new(threads).unwrap();
            for (update, fused) in DETERMINISTIC.into_iter().flat_map(|update| [(update, true), (update, false)]) {
                for ends in [&[60][..], &[17, 60], &[0, 1, 30, 30, 60]] {
                    let moved = case.moved_by(&case.cut(ends), &team, update, fused);
                    assert_eq!(bits(&moved), bits(&expected), "{update:?}, fused {fused}, {threads} threads, {ends:?}");
                }
            }
        }
    }
}
