//! Copies of hot rows on every rank: no bit of the results is another, and what travels falls to what was planned.

use crate::channels::Channels;
use crate::planned::{planned_traffic, plus};
use crate::weighing;

use std::sync::Arc;

use octorec::base::RankId;
use octorec::base::config::{ModelConfig, Pooling, Precision, WeightedPooling, Wire, Wires};
use octorec::collective::{Links, World};
use octorec::data::hot::{HotSet, HotSlots, Inputs};
use octorec::data::{Batch, Column, Schema};
use octorec::exchange::Traffic;
use octorec::machine::placement::{CommCores, Wishes};
use octorec::machine::{Machine, place};
use octorec::math::Grains;
use octorec::model::{Limits, Stage, TrainSpec};
use octorec::optim::{Averages, ByGroup, Optimizer, ParamGroup};
use octorec::shard::scheme::{Part, Scheme, Shard, Sharding};
use octorec::train::{BuildFabric, Ranks, Setup};

const ROWS: [u64; 6] = [700, 3, 41, 1000, 260, 90];
const DIM: usize = 11;
const BATCH: usize = 52;
const RATE: f32 = 0.05;
const LIMITS: Limits = Limits { gflop_s: 1.0, stream_gb_s: 1.0, gather_gb_s: 1.0, scatter_gb_s: 1.0 };
const SIZES: [usize; 6] = [BATCH, BATCH, 29, 3, 1, 40];

/// What ranks are connected by: windows in shared memory, and channels that copy.
const CHANNELS: BuildFabric = |_, job, _, lanes| Ok(Box::new(Channels::new(job, lanes)));

const AVERAGES: Averages = Averages { beta1: 0.9, beta2: 0.99, eps: 0.01, bias_correction: true };

/// Optimizers of rows.
const OPTIMIZERS: [Optimizer; 5] = [
    Optimizer::Sgd,
    Optimizer::Momentum { momentum: 0.9, decay: 0.0 },
    Optimizer::Adagrad { eps: 0.01, initial: 0.05, decay: 0.0 },
    Optimizer::RowwiseAdagrad { eps: 0.01, initial: 0.05 },
    Optimizer::SparseAdam { averages: AVERAGES },
];

/// All of them, and some where rows have learned weights, too.
fn of_rows() -> impl Iterator<Item = (Optimizer, bool)> {
    let learned = [OPTIMIZERS[0], OPTIMIZERS[2], OPTIMIZERS[3]].map(|optimizer| (optimizer, true));
    OPTIMIZERS.map(|optimizer| (optimizer, false)).into_iter().chain(learned)
}

/// A number that looks drawn.
const fn drawn(of: usize) -> usize {
    ((of as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize
}

/// Some rows of each table: all, none, or about as many as this part of them.
fn hot(part: [usize; 2]) -> Arc<HotSlots> {
    let mut set = HotSet::new();
    for (table, rows) in ROWS.into_iter().enumerate() {
        match table {
            1 => set.push_whole(rows),
            5 => set.push_some(rows, std::iter::empty()),
            _ => {
                set.push_some(rows, (0..rows as u32).filter(|row| drawn(*row as usize + 7 * table) % part[1] < part[0]))
            }
        }
    }
    Arc::new(HotSlots::new(&set))
}

#[derive(Clone)]
struct Case {
    model: ModelConfig,
    schema: Schema,
    batches: Vec<Arc<Batch>>,
    inputs: Vec<Inputs>,
    spec: TrainSpec,
    grains: Option<Grains>,
    wire: Wire,
    /// Of each rank.
    threads: usize,
}

type Outcome = (Vec<f64>, Vec<f32>, Vec<Vec<f32>>);

impl Case {
    /// Bags of up to four look-ups, often of the first rows.
    fn new(pooling: Pooling, precision: Precision, optimizer_rows: Optimizer, weighted: bool) -> Self {
        Self::of((&SIZES, DIM), pooling, precision, optimizer_rows, weighted)
    }

    /// The same in minibatches of other sizes, the first the largest, and rows of other widths.
    fn of(
        (sizes, dim): (&[usize], usize),
        pooling: Pooling,
        precision: Precision,
        optimizer_rows: Optimizer,
        weighted: bool,
    ) -> Self {
        let (bottom, top) = (vec![4, 20, dim], vec![17, 1]);
        let model = ModelConfig { bottom, top, dim, rows: ROWS.to_vec(), pooling, ..ModelConfig::default() };
        let tables = ROWS.into_iter().map(|rows| Column::new(format!("of {rows}"), rows)).collect();
        let mut schema = Schema { dense: 4, weighted: false, tables };
        let mut at = 0;
        let mut next = |below: usize| {
            at += 1;
            drawn(at) % below
        };
        let mut batch = |samples: usize| {
            let mut batch = Batch::new(&schema);
            for _ in 0..samples {
                batch.dense.extend((0..4).map(|_| next(1000) as f32 / 500.0 - 1.0));
                batch.labels.push(next(2) as f32);
                for (bag, rows) in batch.bags.iter_mut().zip(ROWS) {
                    // None in one of five bags, one in two of them.
                    let count = [0, 1, 1, 2, 4][next(5)];
                    let below = if next(3) == 0 { rows } else { rows.min(30) } as usize;
                    bag.rows.extend((0..count).map(|_| next(below) as u32));
                    bag.close();
                }
            }
            Arc::new(batch)
        };
        let mut batches: Vec<_> = sizes.iter().copied().map(&mut batch).collect();
        weighing::weigh(&mut schema, &mut batches, |table| weighted && table != 2);
        let optimizers = ByGroup::of_kinds(Optimizer::Sgd, optimizer_rows);
        let spec = TrainSpec { precision, optimizers, ..TrainSpec::sgd(sizes[0]) };
        let inputs = vec![Inputs::Mixed; batches.len()];
        let (grains, wire, threads) = (Some(Grains::exactly(8)), Wire::F32, 2);
        Self { model, schema, batches, inputs, spec, grains, wire, threads }
    }

    /// Cold and hot inputs in turns, and mixed ones at last; of the hot ones, only look-ups of these rows are left.
    fn in_turns(self, hot: &HotSlots) -> Self {
        use Inputs::{Cold, Hot, Mixed};
        let inputs = vec![Cold, Hot, Hot, Cold, Cold, Hot, Hot, Cold, Mixed, Cold];
        let batch = |(at, inputs): (usize, &Inputs)| {
            let whole = &self.batches[at % self.batches.len()];
            if *inputs != Hot {
                return whole.clone();
            }
            let mut batch = Batch::new(&self.schema);
            batch.dense.extend_from_slice(&whole.dense);
            batch.labels.extend_from_slice(&whole.labels);
            for (table, (to, from)) in batch.bags.iter_mut().zip(&whole.bags).enumerate() {
                let slots = hot.table(table);
                for sample in 0..whole.samples() {
                    let first = from.offsets[sample] as usize;
                    for (at, row) in (first..).zip(from.of(sample)).filter(|(_, row)| slots.slot(**row).is_some()) {
                        to.rows.push(*row);
                        batch.weights[table].extend(whole.weights[table].get(at));
                    }
                    to.close();
                }
            }
            Arc::new(batch)
        };
        let batches = inputs.iter().enumerate().map(batch).collect();
        Self { batches, inputs, ..self }
    }

    fn steps(&self) -> impl Iterator<Item = (&Arc<Batch>, Inputs)> {
        self.batches.iter().zip(self.inputs.iter().copied())
    }

    /// Rows have learned weights.
    fn learned(mut self) -> Self {
        self.model.weighted_pooling = WeightedPooling::Learned;
        self
    }

    /// Whether columns of rows stay together, because something is kept of whole rows.
    fn keeps_rows(&self) -> bool {
        self.spec.optimizers[ParamGroup::Sparse].row_moment().is_some() || self.model.weighs_rows()
    }

    fn ranks(&self, ranks: usize, schemes: Vec<Scheme>, hot: Option<Arc<HotSlots>>, fabric: BuildFabric) -> Ranks {
        let wishes = Wishes {
            ranks: Some(ranks),
            threads: Some(self.threads),
            comm_cores: CommCores::Count(0),
            ..Wishes::default()
        };
        let placement = place(&Machine::load("host").unwrap(), &wishes).unwrap();
        let sharding = Sharding::new(&ROWS, vec![self.model.dim; ROWS.len()], ranks, schemes).unwrap();
        let setup = Setup::new(&self.model, &self.schema, sharding, self.spec, &placement);
        let (grains, wire) = (self.grains, self.wire);
        Ranks::start(Setup { grains, wires: Wires::all(wire), hot, fabric, spin: false, ..setup }).unwrap()
    }

    fn alone(&self) -> Outcome {
        self.train(&self.ranks(1, schemes(0, 1), None, World::fabric))
    }

    /// Losses, predictions, and tables with their moments.
    fn train(&self, ranks: &Ranks) -> Outcome {
        ranks.initialise(7).unwrap();
        let step = |(batch, inputs)| {
            let loss = ranks.step_on(batch, inputs, RATE).unwrap();
            // What only looks leaves all as it is, however far behind copies are.
            let looked = ranks.predict(&self.batches[0]).unwrap();
            loss + looked.iter().map(|p| f64::from(*p)).sum::<f64>()
        };
        let losses = self.steps().map(step).collect();
        let predictions = ranks.predict(&self.batches[2]).unwrap();
        let parameters = ranks.parameters().unwrap();
        let tables = parameters.iter().filter(|of| of.is_of_table()).map(|of| ranks.export(of).unwrap());
        let moments = ranks.moments(&parameters);
        let moments = moments.iter().map(|moment| ranks.export(moment).unwrap());
        (losses, predictions, tables.chain(moments).collect())
    }
}

/// Table t divided in way `kind`, or of kind 5 each in another; of kind 6 rows are divided and stay together.
fn schemes(kind: usize, ranks: usize) -> Vec<Scheme> {
    schemes_of(DIM, kind, ranks)
}

/// The same of rows of so many columns.
fn schemes_of(dim: usize, kind: usize, ranks: usize) -> Vec<Scheme> {
    let scheme = |table: usize| {
        let rank = |at: usize| RankId(((at + table) % ranks) as u32);
        let parts = |whole: u64, count: usize| -> Vec<Part> {
            let count = (count as u64).min(whole);
            let size = |part: u64| whole * (part + 1) / count - whole * part / count;
            (0..count).map(|part| Part { rank: rank(part as usize), size: size(part) }).collect()
        };
        match if kind == 5 { table } else { kind } {
            0 => Scheme::Table(rank(0)),
            // More slices than ranks, of odd widths.
            1 => Scheme::Column(parts(dim as u64, 3)),
            2 => Scheme::RowContiguous(parts(ROWS[table], ranks + 1)),
            3 => Scheme::RowCyclic((0..ranks.min(ROWS[table] as usize)).map(rank).collect()),
            4 => Scheme::Replicated,
            6 if table.is_multiple_of(2) => Scheme::RowCyclic(vec![rank(0)]),
            6 => {
                let together = |part: Part| Part { rank: rank(0), ..part };
                Scheme::RowContiguous(parts(ROWS[table], 2).into_iter().map(together).collect())
            }
            _ => Scheme::Table(rank(1)),
        }
    };
    (0..ROWS.len()).map(scheme).collect()
}

#[test]
fn no_bit_depends_on_copies_of_hot_rows_nor_on_ranks_schemes_and_what_optimizers_keep() {
    for (at, (optimizer, learned)) in of_rows().enumerate() {
        for (precision, pooling) in [(Precision::F32, Pooling::Sum), (Precision::Bf16, Pooling::Mean)] {
            let case = Case::new(pooling, precision, optimizer, at % 2 == 0);
            let case = if learned { case.learned() } else { case };
            let rows = hot([3, 4]);
            // Every other optimizer sees cold and hot inputs in turns.
            let case = if (at + usize::from(pooling == Pooling::Mean)) % 2 == 0 { case } else { case.in_turns(&rows) };
            let alone = case.alone();
            for (step, ranks) in [1, 2, 3, 4, 8].into_iter().enumerate() {
                // Each optimizer meets every number of ranks, each number of ranks every scheme.
                let kinds = if ranks == 3 { vec![0, 1, 2, 3, 5, 6] } else { vec![(at + step) % 4, 5] };
                for kind in kinds {
                    // Columns of rows of which a number is kept stay together.
                    if case.keeps_rows() && matches!(kind, 1 | 5) {
                        continue;
                    }
                    let fabric = if (at + step) % 2 == 0 { World::fabric } else { CHANNELS };
                    let found = case.train(&case.ranks(ranks, schemes(kind, ranks), Some(rows.clone()), fabric));
                    let what = format!("{optimizer:?}, learned {learned}, {precision:?}, {ranks} ranks, scheme {kind}");
                    assert!(found.0 == alone.0, "{what}: losses {:?}, not {:?}", found.0, alone.0);
                    assert!(found.1 == alone.1, "{what}: predictions");
                    for (index, (found, alone)) in found.2.iter().zip(&alone.2).enumerate() {
                        let differs = found.iter().zip(alone).position(|(a, b)| a.to_bits() != b.to_bits());
                        assert_eq!(differs, None, "{what}: tensor {index}");
                    }
                }
            }
        }
    }
}

/// So many look-ups and rows that teams mark, list and take them: of divided rows, where some tables are replicated,
/// which lie among others; and of divided columns, where look-ups have weights, and cold and hot inputs take turns.
#[test]
fn no_bit_depends_on_how_many_threads_mark_list_and_take_rows() {
    const WIDE: usize = 225;
    let rows = hot([3, 4]);
    let of_rows = || {
        let [cyclic, contiguous] = [3, 2].map(|kind| schemes(kind, 2));
        let replicated = [3, 5, 1].into_iter();
        let mut schemes = [&cyclic[..3], &contiguous[3..]].concat();
        replicated.for_each(|table| schemes[table] = Scheme::Replicated);
        schemes
    };
    for (precision, optimizer, learned, columns) in [
        (Precision::F32, OPTIMIZERS[0], false, false),
        (Precision::Bf16, OPTIMIZERS[3], true, false),
        (Precision::F32, OPTIMIZERS[0], false, true),
    ] {
        let case = Case::of((&[3000, 2900, 40], WIDE), Pooling::Sum, precision, optimizer, columns);
        let case = if learned { case.learned() } else { case };
        let case = if columns { case.in_turns(&rows) } else { case };
        let schemes = || if columns { schemes_of(WIDE, 1, 2) } else { of_rows() };
        for grains in [None, case.grains] {
            let run = |threads, part| {
                let spec = TrainSpec { part, ..case.spec };
                let case = Case { grains, threads, spec, ..case.clone() };
                case.train(&case.ranks(2, schemes(), Some(rows.clone()), World::fabric))
            };
            let first = run(1, 3000);
            let what = format!("{precision:?}, columns {columns}");
            assert!(grains.is_none() || first == case.alone(), "{what}: one thread of two ranks");
            for (threads, part) in [(2, 3000), (2, 320), (3, 320)] {
                assert!(run(threads, part) == first, "{what}, {threads} threads, parts of {part}, {grains:?}");
            }
        }
    }
}

#[test]
fn sums_of_hot_rows_gradients_move_them_as_one_rank_does() {
    for (at, (optimizer, learned)) in of_rows().enumerate() {
        for (precision, pooling, bound) in
            [(Precision::F32, Pooling::Sum, 1e-5), (Precision::Bf16, Pooling::Mean, 1e-3)]
        {
            let case = Case { grains: None, ..Case::new(pooling, precision, optimizer, at % 2 == 1) };
            let case = if learned { case.learned() } else { case };
            let alone = case.alone();
            for ranks in [2, 3, 8] {
                for kind in if ranks == 3 { 0..7 } else { 2..4 } {
                    if case.keeps_rows() && matches!(kind, 1 | 5) {
                        continue;
                    }
                    let what = format!("{optimizer:?}, learned {learned}, {precision:?}, {ranks} ranks, scheme {kind}");
                    for part in [[3, 4], [1, 1], [0, 1]] {
                        let ranks = |fabric| case.ranks(ranks, schemes(kind, ranks), Some(hot(part)), fabric);
                        let found = case.train(&ranks(World::fabric));
                        assert!(part != [3, 4] || found == case.train(&ranks(CHANNELS)), "{what}: over channels");
                        for (alone, found) in alone.0.iter().zip(&found.0) {
                            assert!((alone - found).abs() <= bound * alone.abs(), "{what}: {found}, not {alone}");
                        }
                        for (index, (alone, found)) in alone.2.iter().zip(&found.2).enumerate() {
                            let apart =
                                alone.iter().zip(found).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
                            assert!(apart <= 20.0 * bound.max(1e-6), "{what}: tensor {index} is {apart} apart");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_travels_is_what_was_planned_to_the_byte_and_less_where_rows_are_hot() {
    for ranks in [1, 2, 3, 8] {
        let ways = [(None, Wire::F32), (None, Wire::Bf16), (Some(Grains::exactly(8)), Wire::F32)];
        let kinds = [(false, Precision::F32, false), (true, Precision::Bf16, false), (true, Precision::Bf16, true)];
        for ((grains, wire), (weighted, precision, learned)) in
            ways.into_iter().flat_map(|way| kinds.map(|of| (way, of)))
        {
            let case = Case { grains, wire, ..Case::new(Pooling::Sum, precision, Optimizer::Sgd, weighted) };
            let case = if learned { case.learned() } else { case };
            let sent = |hot: Option<Arc<HotSlots>>| {
                let mut schemes = schemes(5, ranks);
                if learned {
                    schemes[1] = Scheme::Table(RankId(0));
                }
                let ranks = case.ranks(ranks, schemes, hot, World::fabric);
                ranks.initialise(7).unwrap();
                let mut planned: Option<Traffic> = None;
                for (batch, inputs) in case.steps() {
                    ranks.step_on(batch, inputs, RATE).unwrap();
                    let step = planned_traffic(&ranks, batch, inputs).unwrap();
                    planned = Some(planned.map_or_else(|| step.clone(), |before| plus(&before, &step)));
                    let found = ranks.traffic().unwrap();
                    for ((name, planned), (_, found)) in
                        planned.as_ref().unwrap().parts().into_iter().zip(found.parts())
                    {
                        assert_eq!(found, planned, "{name}, {grains:?}, {wire:?}, from row to column");
                    }
                }
                ranks.traffic().unwrap()
            };
            let [without, none, some, all] =
                [None, Some([0, 1]), Some([3, 4]), Some([1, 1])].map(|part| sent(part.map(hot)));
            assert!(without.hot_rows.total() == 0 && without.hot_gradients.total() == 0);
            if ranks == 1 {
                assert_eq!([&some, &all].map(|sent| sent.total().total()), [0; 2]);
                continue;
            }
            let pooled = |sent: &Traffic| sent.pooled_rows.total();
            assert!(pooled(&none) <= pooled(&without) && pooled(&some) < pooled(&none) && pooled(&all) < pooled(&some));
            assert!(some.hot_rows.total() > 0 && all.hot_rows.total() > some.hot_rows.total());
            let sums = [&none, &some, &all].map(|sent| sent.hot_gradients.total());
            if grains.is_some() {
                // Gradients go bag by bag, and ids with them.
                assert!(sums == [0; 3] && all.pooled_gradients == none.pooled_gradients);
            } else {
                assert!(sums.is_sorted() && all.pooled_gradients.total() < some.pooled_gradients.total());
                assert!(all.ids.total() < some.ids.total() && some.ids.total() < none.ids.total());
            }
        }
    }
}

#[test]
fn copies_are_those_of_the_rows_that_are_hot_from_then_on() {
    // Before each step; rows enter, stay and leave, all at once at last.
    let parts = [[1, 2], [2, 5], [2, 5], [3, 4], [0, 1], [1, 1]];
    for (at, (optimizer, learned)) in of_rows().enumerate() {
        for (grains, precision, bound) in [
            (Some(Grains::exactly(8)), Precision::Bf16, 0.0),
            (None, Precision::F32, 1e-5),
            (None, Precision::Bf16, 1e-3),
        ] {
            let case = Case { grains, ..Case::new(Pooling::Sum, precision, optimizer, at % 2 == 0) };
            let case = if learned { case.learned() } else { case };
            let alone = case.alone();
            for (ranks, kind) in [(2, 3), (3, if case.keeps_rows() { 0 } else { 5 }), (8, 2)] {
                let what = format!("{optimizer:?}, learned {learned}, {grains:?}, {precision:?}, {ranks} ranks");
                let mut started = case.ranks(ranks, schemes(kind, ranks), Some(hot([1, 3])), World::fabric);
                started.initialise(7).unwrap();
                let mut before = hot([1, 3]);
                for (step, (((batch, inputs), part), alone)) in case.steps().zip(parts).zip(&alone.0).enumerate() {
                    let now = hot(part);
                    let bytes = started.revise_hot(now.clone()).unwrap();
                    // Before the first step nothing is equal: all copies are written.
                    let entered = if step == 0 { now.rows() } else { now.missing_in(&before) };
                    assert_eq!(bytes, spread(&started, &now, (step > 0).then_some(&*before)), "{what}: {entered} rows");
                    before = now;
                    let sent = started.traffic().unwrap();
                    let loss = started.step_on(batch, inputs, RATE).unwrap();
                    let planned = plus(&sent, &planned_traffic(&started, batch, inputs).unwrap());
                    assert_eq!(started.traffic().unwrap(), planned, "{what}, step {step}");
                    let looked: f64 = started.predict(&case.batches[0]).unwrap().iter().map(|p| f64::from(*p)).sum();
                    let found = loss + looked;
                    assert!((found - alone).abs() <= bound * alone.abs(), "{what}, step {step}: {found}, not {alone}");
                }
            }
        }
    }
}

/// Bytes that owners send for rows that are hot now and were not before: of each shard how many they are, and of each
/// row its slot and what look-ups read, to every other rank.
fn spread(ranks: &Ranks, now: &HotSlots, before: Option<&HotSlots>) -> u64 {
    let layout = ranks.layout();
    // How long a list is takes a cache line.
    let list = |rank: u32| -> usize {
        let shards = layout.of(RankId(rank)).shards.iter();
        let of = |shard: &Shard| {
            let table = shard.table.index();
            let enters = |row: &&u32| before.is_none_or(|before| before.table(table).slot(**row).is_none());
            let here = |row: &&u32| shard.rows.local(u64::from(**row)).is_some();
            let rows = now.table(table).rows().iter().filter(enters).filter(here).count();
            1 + rows * (1 + layout.hot_words(shard))
        };
        64 + shards.map(of).sum::<usize>() * size_of::<u32>()
    };
    let all: usize = (0..layout.ranks() as u32).map(list).sum();
    (all * (layout.ranks() - 1)) as u64
}

#[test]
fn hot_inputs_need_no_rows_of_others_and_cold_ones_no_copies() {
    let rows = hot([3, 4]);
    for (grains, precision, bound) in
        [(Some(Grains::exactly(8)), Precision::F32, 0.0), (None, Precision::F32, 1e-5), (None, Precision::Bf16, 1e-3)]
    {
        for (ranks, kind) in [(2, 3), (3, 5), (3, 1), (8, 2), (3, 6)] {
            let case = Case { grains, ..Case::new(Pooling::Sum, precision, OPTIMIZERS[2], true) }.in_turns(&rows);
            let (alone, what) = (case.alone(), format!("{grains:?}, {precision:?}, {ranks} ranks, scheme {kind}"));
            let started = case.ranks(ranks, schemes(kind, ranks), Some(rows.clone()), World::fabric);
            started.initialise(7).unwrap();
            let mut before = started.traffic().unwrap();
            for ((batch, inputs), alone) in case.steps().zip(&alone.0) {
                let loss = started.step_on(batch, inputs, RATE).unwrap();
                let now = started.traffic().unwrap();
                let planned = plus(&before, &planned_traffic(&started, batch, inputs).unwrap());
                for ((name, planned), (_, found)) in planned.parts().into_iter().zip(now.parts()) {
                    assert_eq!(found, planned, "{what}, {inputs:?}: {name}, from row to column");
                }
                let sent = |of: fn(&Traffic) -> &Links| of(&now).total() - of(&before).total();
                let stages = started.profile().unwrap().stages(&started.breakdowns().unwrap(), &LIMITS);
                let packed = stages.iter().find(|stage| stage.stage == Stage::PackIds.name());
                let profiled = packed.map_or(0.0, |stage| stage.sent_bytes);
                assert_eq!(profiled, sent(|sent| &sent.ids) as f64, "{what}, {inputs:?}: ids in the profile");
                match inputs {
                    Inputs::Hot => {
                        assert!(sent(|sent| &sent.pooled_rows) == 0 && sent(|sent| &sent.hot_rows) > 0, "{what}");
                        let travelled = sent(|sent| &sent.ids) + sent(|sent| &sent.pooled_gradients);
                        // Where sums have an order, gradients go bag by bag.
                        assert_eq!(travelled > 0, grains.is_some(), "{what}");
                    }
                    Inputs::Cold => {
                        let copied = sent(|sent| &sent.hot_rows) + sent(|sent| &sent.hot_gradients);
                        assert!(copied == 0 && sent(|sent| &sent.pooled_rows) > 0, "{what}");
                    }
                    Inputs::Mixed => {}
                }
                let looked: f64 = started.predict(&case.batches[0]).unwrap().iter().map(|p| f64::from(*p)).sum();
                let found = loss + looked;
                assert!((found - alone).abs() <= bound * alone.abs(), "{what}, {inputs:?}: {found}, not {alone}");
                before = started.traffic().unwrap();
            }
        }
    }
}

#[test]
fn hot_inputs_with_other_rows_are_refused_in_whatever_order_sums_are() {
    for (grains, kind) in [(None, 0), (Some(Grains::exactly(8)), 0), (None, 3), (Some(Grains::exactly(8)), 3)] {
        let case = Case { grains, ..Case::new(Pooling::Sum, Precision::F32, Optimizer::Sgd, false) };
        let ranks = case.ranks(2, schemes(kind, 2), Some(hot([1, 4])), World::fabric);
        ranks.initialise(7).unwrap();
        let error = ranks.step_on(&case.batches[0], Inputs::Hot, RATE).unwrap_err().to_string();
        assert!(error.contains("told to be hot look up rows that are not") && error.contains("--inputs"), "{error}");
    }
}

#[test]
fn copies_follow_weights_that_are_set() {
    let case = Case::new(Pooling::Sum, Precision::Bf16, OPTIMIZERS[2], false);
    let (first, second) = case.batches.split_at(3);
    let started = |ranks: usize, kind, hot| case.ranks(ranks, schemes(kind, ranks), hot, World::fabric);
    let alone = started(1, 0, None);
    let part = |batches: &[Arc<Batch>]| {
        let inputs = vec![Inputs::Mixed; batches.len()];
        Case { batches: batches.to_vec(), inputs, ..case.clone() }
    };
    part(first).train(&alone);
    // Everything there is of it goes to ranks that had other weights, and have trained on them.
    let others = started(3, 3, Some(hot([3, 4])));
    part(second).train(&others);
    let parameters = alone.parameters().unwrap();
    for parameter in parameters.iter().chain(&alone.moments(&parameters)) {
        others.import_rows(parameter, 0..parameter.rows(), &alone.export(parameter).unwrap()).unwrap();
    }
    let step = |ranks: &Ranks| -> Vec<f64> { second.iter().map(|batch| ranks.step(batch, RATE).unwrap()).collect() };
    let predict = |ranks: &Ranks| ranks.predict(&case.batches[0]).unwrap();
    assert_eq!(predict(&others), predict(&alone));
    assert_eq!(step(&others), step(&alone));
    assert_eq!(predict(&others), predict(&alone));
}
