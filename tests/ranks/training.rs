//! Several ranks train as one does: whatever the division of tables, the number of ranks, the pooling and the
//! precision.

use crate::channels::Channels;
use crate::shard::{linked, on};
use crate::weighing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use octorec::base::config::{
    Config, DataConfig, Interaction, ModelConfig, Pooling, Precision, SourceKind, Update, WeightedPooling, Wire, Wires,
};
use octorec::base::{Deadline, Error, RankId};
use octorec::collective::World;
use octorec::collective::plan::{Reduction, Topology, hierarchical, reductions};
use octorec::data::{self, Batch, LoaderMode, Opening, Reader, Schema, Source, Split};
use octorec::machine::placement::Wishes;
use octorec::machine::{Machine, place};
use octorec::model::{BuildNetwork, Graph, Limits, Stage, TrainSpec};
use octorec::optim::{Averages, ByGroup, Optimizer, ParamGroup};
use octorec::shard::scheme::{Part, Scheme, Sharding};
use octorec::simd::Isa;
use octorec::train::{BuildFabric, Questions, Ranks, Setup, evaluate};
use proptest::prelude::*;

const ROWS: [u64; 5] = [700, 3, 41, 1000, 260];
const DIM: usize = 12;
const BATCH: usize = 50;
const RATE: f32 = 0.05;

/// What ranks are connected by: windows in shared memory, and channels that copy.
const FABRICS: [(&str, BuildFabric); 2] =
    [("windows", World::fabric), ("channels", |_, job, _, lanes| Ok(Box::new(Channels::new(job, lanes))))];

/// How steps are averaged; `eps` is large, so that the order of sums matters little where gradients are small.
const AVERAGES: Averages = Averages { beta1: 0.9, beta2: 0.99, eps: 0.01, bias_correction: true };

/// Optimizers of layers and rows that keep something.
const KEEPING: [(Optimizer, Optimizer); 3] = [
    (Optimizer::Adam { averages: AVERAGES, decay: 0.01 }, Optimizer::SparseAdam { averages: AVERAGES }),
    (
        Optimizer::Adagrad { eps: 0.01, initial: 0.05, decay: 0.01 },
        Optimizer::RowwiseAdagrad { eps: 0.01, initial: 0.05 },
    ),
    (Optimizer::Lamb { averages: AVERAGES, decay: 0.01 }, Optimizer::Adagrad { eps: 0.01, initial: 0.05, decay: 0.0 }),
];

struct Case {
    config: Config,
    schema: Schema,
    batches: Vec<Arc<Batch>>,
    spec: TrainSpec,
}

impl Case {
    fn new(pooling: Pooling, interaction: Interaction, precision: Precision, steps: usize) -> Self {
        // The last minibatch of an epoch is smaller, down to fewer samples than ranks.
        Self::of_sizes([BATCH, BATCH, 29, 3], pooling, interaction, precision, steps)
    }

    /// The same in minibatches of these sizes in turns, the first the largest.
    fn of_sizes(
        sizes: [usize; 4],
        pooling: Pooling,
        interaction: Interaction,
        precision: Precision,
        steps: usize,
    ) -> Self {
        let bottom = vec![13, 40, DIM];
        let (rows, top, cross_rank) = (ROWS.to_vec(), vec![33, 1], 9);
        let model = ModelConfig { bottom, top, dim: DIM, rows, interaction, pooling, cross_rank, ..Default::default() };
        let data = DataConfig { source: SourceKind::Random, lookups: 4.into(), zipf: 1.05, ..DataConfig::default() };
        let config = Config { model, data, ..Config::default() };
        let source = data::open(&config, Opening::default()).unwrap();
        let mut reader = source.open(Split::Train, 0).unwrap();
        let draw = |index: usize| {
            let mut batch = Batch::new(source.schema());
            reader.read(&mut batch, sizes[index % 4]).unwrap();
            Arc::new(batch)
        };
        let batches = (0..steps).map(draw).collect();
        let spec = TrainSpec { precision, ..TrainSpec::sgd(sizes[0]) };
        Self { schema: source.schema().clone(), config, batches, spec }
    }

    /// With weights of the look-ups in some tables.
    fn weighted(mut self, which: impl Fn(usize) -> bool) -> Self {
        weighing::weigh(&mut self.schema, &mut self.batches, which);
        self
    }

    /// Losses and tables of one rank.
    fn alone(&self) -> (Vec<f64>, Vec<Vec<f32>>) {
        self.finish(&crate::alone::alone(&self.config.model, &self.schema, self.spec, 1, Isa::best()).unwrap())
    }

    /// Losses, tables and moments of ranks that train on all minibatches.
    fn finish(&self, ranks: &Ranks) -> (Vec<f64>, Vec<Vec<f32>>) {
        ranks.initialise(7).unwrap();
        let losses = self.batches.iter().map(|batch| ranks.step(batch, RATE).unwrap()).collect();
        let parameters = ranks.parameters().unwrap();
        let tables = parameters[..ROWS.len()].iter().map(|table| ranks.export(table).unwrap());
        let moments = ranks.moments(&parameters);
        let moments = moments.iter().map(|moment| ranks.export(moment).unwrap());
        (losses, tables.chain(moments).collect())
    }

    fn setup(&self, schemes: Vec<Scheme>, ranks: usize, threads: usize) -> Setup {
        let machine = Machine::load("host").unwrap();
        let wishes = Wishes { ranks: Some(ranks), threads: Some(threads), ..Wishes::default() };
        let placement = place(&machine, &wishes).unwrap();
        let sharding = Sharding::new(&ROWS, vec![DIM; ROWS.len()], ranks, schemes).unwrap();
        Setup::new(&self.config.model, &self.schema, sharding, self.spec, &placement)
    }

    /// With `threads` communication threads a rank, which share its cores.
    fn with_communication(setup: Setup, threads: usize, overlap: bool) -> Setup {
        let mut setup = Setup { overlap, spin: false, ..setup };
        for place in &mut setup.places {
            place.comm = vec![place.compute[0]; threads];
        }
        setup
    }

    fn together(&self, setup: Setup) -> (Vec<f64>, Vec<Vec<f32>>) {
        self.finish(&Ranks::start(setup).unwrap())
    }

    /// Compares ranks with one, over every fabric; what carries messages changes no bit.
    fn compare(&self, alone: &(Vec<f64>, Vec<Vec<f32>>), setup: Setup, bound: f64, what: &str) {
        let [windows, channels] = FABRICS.map(|(_, fabric)| self.together(Setup { fabric, ..setup.clone() }));
        if matches!(self.spec.update, Update::Atomic | Update::Rtm) {
            // Threads add in any order.
            self.close(alone, channels, bound, &format!("{what}, {}", FABRICS[1].0));
        } else {
            assert!(windows == channels, "{what}: the bits are those of {}", FABRICS[0].0);
        }
        self.close(alone, windows, bound, what);
    }

    fn close(&self, alone: &(Vec<f64>, Vec<Vec<f32>>), found: (Vec<f64>, Vec<Vec<f32>>), bound: f64, what: &str) {
        let (losses, tables) = found;
        for (step, (alone, found)) in alone.0.iter().zip(&losses).enumerate() {
            assert!((alone - found).abs() <= bound * alone.abs(), "{what}: step {step}: {found}, not {alone}");
        }
        for (table, (alone, found)) in alone.1.iter().zip(&tables).enumerate() {
            let apart = alone.iter().zip(found).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
            // Rows move by some 1e-3; a wrong or a lost gradient is far above this.
            assert!(apart <= 20.0 * bound.max(1e-6), "{what}: table {table} is {apart} apart");
        }
    }
}

/// Every way to reduce among so many ranks: around a ring with a chord where there are enough, so that slices go
/// several ways, and on machines of any size.
fn every_way(ranks: usize) -> Vec<Reduction> {
    let mut links: Vec<_> = (1..ranks).map(|rank| (rank - 1, rank)).collect();
    links.extend((ranks > 2).then_some((0, ranks - 1)));
    links.extend((ranks > 3).then_some((0, 2)));
    let site = on(&linked(&vec![(4096, 50.0); ranks], &links), ranks);
    let machines = (1..=ranks).filter(|local| ranks.is_multiple_of(*local));
    let machines = machines.map(|local| hierarchical(ranks, local));
    reductions(&Topology::along(&site)).into_iter().chain(machines).collect()
}

/// Sizes that add up to `whole`, as even as they come, dealt to ranks in turn from `first` on.
fn parts(whole: u64, count: usize, ranks: usize, first: usize) -> Vec<Part> {
    let count = count.min(whole as usize) as u64;
    let size = |part: u64| whole * (part + 1) / count - whole * part / count;
    (0..count)
        .map(|part| Part { rank: RankId(((first as u64 + part) % ranks as u64) as u32), size: size(part) })
        .collect()
}

fn scheme(kind: usize, table: usize, ranks: usize) -> Scheme {
    let rows = ROWS[table];
    match kind {
        0 => Scheme::Table(RankId((table % ranks) as u32)),
        1 => Scheme::Column(parts(DIM as u64, ranks.min(DIM), ranks, table)),
        2 => Scheme::RowContiguous(parts(rows, ranks, ranks, table)),
        3 => Scheme::RowCyclic((0..ranks.min(rows as usize)).map(|rank| RankId(rank as u32)).collect()),
        _ => Scheme::Replicated,
    }
}

#[test]
fn every_scheme_on_any_number_of_ranks_trains_as_one_rank_does() {
    let case = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 20);
    let alone = case.alone();
    for ranks in [1, 2, 3, 4, 5, 8] {
        for kind in 0..5 {
            let schemes = (0..ROWS.len()).map(|table| scheme(kind, table, ranks)).collect();
            let setup = case.setup(schemes, ranks, 1);
            case.compare(&alone, setup.clone(), 1e-5, &format!("{ranks} ranks, scheme {kind}"));
            let overlapped = Case::with_communication(setup, 1, true);
            case.compare(&alone, overlapped, 1e-5, &format!("{ranks} ranks, scheme {kind}, overlapped"));
        }
        let mixed = (0..ROWS.len()).map(|table| scheme(table, table, ranks)).collect();
        case.compare(&alone, case.setup(mixed, ranks, 2), 1e-5, &format!("{ranks} ranks of 2 threads, mixed"));
    }
}

#[test]
fn means_concatenation_cross_layers_and_halves_too() {
    for (pooling, interaction, precision, bound) in [
        (Pooling::Mean, Interaction::Dot, Precision::F32, 1e-5),
        (Pooling::Sum, Interaction::Cat, Precision::F32, 1e-5),
        // Sums of gradients in another order move a weight over a rounding border of bfloat16 now and then.
        (Pooling::Mean, Interaction::Dot, Precision::Bf16, 1e-3),
        (Pooling::Sum, Interaction::Dcn, Precision::F32, 1e-5),
        (Pooling::Sum, Interaction::Dcn, Precision::Bf16, 1e-3),
    ] {
        let case = Case::new(pooling, interaction, precision, 20);
        let alone = case.alone();
        for ranks in [2, 3] {
            let mixed = (0..ROWS.len()).map(|table| scheme((table + ranks) % 5, table, ranks)).collect();
            let what = format!("{ranks} ranks, {pooling:?}, {interaction:?}, {precision:?}");
            case.compare(&alone, case.setup(mixed, ranks, 1), bound, &what);
        }
    }
}

/// Each part brings together its own rows: those that it looks up, and those of messages that wait, in windows, in
/// pieces or widened, until the last part has read them.
#[test]
fn parts_of_a_slice_bring_together_their_rows_as_the_whole_does() {
    for (pooling, wire) in [(Pooling::Sum, Wire::F32), (Pooling::Mean, Wire::F32), (Pooling::Mean, Wire::Bf16)] {
        let mut case = Case::of_sizes([420, 300, 130, 3], pooling, Interaction::Dot, Precision::F32, 4);
        for ranks in [1, 2, 3] {
            for kind in 0..6 {
                let kind_of = |table| if kind == 5 { table } else { kind };
                let schemes: Vec<_> = (0..ROWS.len()).map(|table| scheme(kind_of(table), table, ranks)).collect();
                let [whole, parts] = [420, 64].map(|part| {
                    case.spec.part = part;
                    Setup { wires: Wires::all(wire), ..case.setup(schemes.clone(), ranks, 2) }
                });
                let whole = case.together(whole);
                // Layers that are on their way are waited for by the first part alone.
                let overlapped = Case::with_communication(parts.clone(), 1, true);
                for setup in
                    [overlapped].into_iter().chain(FABRICS.map(|(_, fabric)| Setup { fabric, ..parts.clone() }))
                {
                    let found = case.together(setup);
                    assert!(found == whole, "{ranks} ranks, scheme {kind}, {pooling:?}, {wire:?}");
                }
            }
        }
    }
}

#[test]
fn what_optimizers_keep_of_layers_and_rows_is_that_of_one_rank_wherever_it_is_kept() {
    let momentum = Optimizer::Momentum { momentum: 0.9, decay: 0.0 };
    let whole = KEEPING.into_iter().chain([(momentum, momentum)]).map(|pair| (pair, Precision::F32, 1e-5));
    let halves = [KEEPING[0], KEEPING[2], (momentum, momentum)].map(|pair| (pair, Precision::Bf16, 1e-3));
    for ((optimizer, optimizer_rows), precision, bound) in whole.chain(halves) {
        let mut case = Case::new(Pooling::Mean, Interaction::Dot, precision, 12).weighted(|table| table == 2);
        let plain = case.alone();
        case.spec.optimizers = ByGroup::of_kinds(optimizer, optimizer_rows);
        let alone = case.alone();
        // Numbers of weights and rows, and counters.
        let of = |optimizer: Optimizer| {
            let single = optimizer.row_moment().is_some() as usize + optimizer.counter().is_some() as usize;
            optimizer.moments().len() + single
        };
        let kept = ROWS.len() * of(optimizer_rows) + 8 * of(optimizer);
        assert!(alone.0[11] != plain.0[11] && alone.1.len() == plain.1.len() + kept, "{optimizer:?} matters");
        for ranks in [1, 2, 3, 5] {
            // Each scheme by itself, and all of them mixed among any number of ranks.
            for kind in if ranks == 3 { 0..6 } else { 5..6 } {
                let kind_of = |table| match if kind == 5 { table } else { kind } {
                    // Whose rows stay whole.
                    1 if optimizer_rows.row_moment().is_some() => 2,
                    kind => kind,
                };
                let schemes = (0..ROWS.len()).map(|table| scheme(kind_of(table), table, ranks)).collect();
                let (setup, what) = (
                    case.setup(schemes, ranks, 1),
                    format!("{optimizer:?}, {precision:?}, {ranks} ranks, scheme {kind}"),
                );
                case.compare(&alone, setup.clone(), bound, &what);
                if kind == 5 {
                    let overlapped = Case::with_communication(setup, 2, true);
                    case.compare(&alone, overlapped, bound, &format!("{what}, overlapped"));
                }
            }
        }
    }
}

#[test]
fn columns_of_a_table_are_not_divided_where_a_number_is_kept_of_whole_rows() {
    let mut case = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 1);
    case.spec.optimizers[ParamGroup::Sparse] = KEEPING[1].1;
    let schemes = |kind| (0..ROWS.len()).map(|table| scheme(kind, table, 2)).collect();
    let error = Ranks::start(case.setup(schemes(1), 2, 1)).err().expect("refused").to_string();
    assert!(error.contains("table 0: divide it by rows") && error.contains("rowwise-adagrad"), "{error}");
    case.together(case.setup(schemes(2), 2, 1));
    case.spec.optimizers[ParamGroup::Sparse] = Optimizer::Sgd;
    case.together(case.setup(schemes(1), 2, 1));
    case.config.model.weighted_pooling = WeightedPooling::Learned;
    let error = Ranks::start(case.setup(schemes(1), 2, 1)).err().expect("refused").to_string();
    assert!(error.contains("table 0: divide it by rows") && error.contains("weighted_pooling = \"fixed\""), "{error}");
    case.together(case.setup(schemes(2), 2, 1));
}

#[test]
fn gradients_are_clipped_by_the_norm_of_those_of_all_ranks() {
    // The last two minibatches have other norms: of one epoch, some steps are clipped and others are not.
    for (optimizer, precision, bound) in [
        (Optimizer::Sgd, Precision::F32, 1e-5),
        (Optimizer::Momentum { momentum: 0.9, decay: 0.01 }, Precision::Bf16, 1e-3),
        (KEEPING[2].0, Precision::F32, 1e-5),
    ] {
        let mut case = Case::new(Pooling::Mean, Interaction::Dot, precision, 12);
        let of_norm = |case: &mut Case, clip_norm: f64| {
            case.spec.clip_norm = Some(clip_norm);
            case.alone()
        };
        case.spec.optimizers[ParamGroup::Dense] = optimizer;
        let plain = case.alone();
        let [wide, alone, tight] = [1e6, 0.2, 0.02].map(|norm| of_norm(&mut case, norm));
        assert!(wide == plain, "{optimizer:?}: a bound that nothing reaches changes no bit");
        assert!(alone.0[11] != plain.0[11] && alone.0[11] != tight.0[11], "{optimizer:?}: clipping matters");
        of_norm(&mut case, 0.2);
        for ranks in [2, 3, 5] {
            for reduction in every_way(ranks) {
                let name = reduction.name;
                let schemes = (0..ROWS.len()).map(|table| scheme(table, table, ranks)).collect();
                let setup = Setup { reduction, ..case.setup(schemes, ranks, 1) };
                let what = format!("{optimizer:?}, {precision:?}, {ranks} ranks, {name}");
                let own = case.together(setup.clone());
                for (threads, overlap) in [(1, false), (1, true), (3, true)] {
                    let found = case.together(Case::with_communication(setup.clone(), threads, overlap));
                    assert!(found == own, "{what}: {threads} communication threads, overlap {overlap}");
                }
                case.close(&alone, own, bound, &what);
            }
        }
    }
}

#[test]
fn weights_of_look_ups_go_with_them_in_every_scheme() {
    let plain = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 12).alone();
    for pooling in [Pooling::Sum, Pooling::Mean] {
        // All columns, and some: messages of the others stay as they are.
        for some in [false, true] {
            let case = Case::new(pooling, Interaction::Dot, Precision::F32, 12);
            let case = case.weighted(|table| !some || table % 2 == 0);
            let alone = case.alone();
            assert!(alone.0[0] != plain.0[0], "weights matter");
            for ranks in [1, 2, 3] {
                for kind in 0..5 {
                    let schemes = (0..ROWS.len()).map(|table| scheme(kind, table, ranks)).collect();
                    let setup = case.setup(schemes, ranks, 1);
                    let what = format!("{pooling:?}, some {some}, {ranks} ranks, scheme {kind}");
                    case.compare(&alone, setup.clone(), 1e-5, &what);
                    for overlap in [false, true] {
                        let overlapped = Case::with_communication(setup.clone(), 1, overlap);
                        case.compare(&alone, overlapped, 1e-5, &format!("{what}, overlap {overlap}"));
                    }
                }
            }
        }
    }
}

#[test]
fn weighted_rows_move_in_every_way_and_precision() {
    for (precision, bound) in [(Precision::F32, 1e-5), (Precision::Bf16, 1e-3), (Precision::Bf16Lsb8, 1e-3)] {
        let mut case = Case::new(Pooling::Mean, Interaction::Dot, precision, 8).weighted(|table| table != 3);
        let alone = case.alone();
        let ways = [Update::Auto, Update::Serial, Update::RaceFree, Update::Sorted, Update::Atomic, Update::Rtm];
        for (update, fused) in ways.into_iter().flat_map(|update| [(update, true), (update, false)]) {
            case.spec = TrainSpec { update, update_fused: fused, ..case.spec };
            let mixed = (0..ROWS.len()).map(|table| scheme(table + 2, table, 3)).collect();
            let what = format!("{update:?}, fused {fused}, {precision:?}");
            case.compare(&alone, case.setup(mixed, 3, 2), bound, &what);
        }
    }
}

#[test]
fn a_minibatch_without_the_weights_that_it_should_have_ends_the_ranks() {
    let case = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 1);
    let bare = case.batches[0].clone();
    let case = case.weighted(|table| table == 2);
    // Divided, and replicated.
    for kind in [0, 4] {
        let schemes = (0..ROWS.len()).map(|table| scheme(kind, table, 2)).collect();
        let ranks = Ranks::start(case.setup(schemes, 2, 1)).unwrap();
        let message = ranks.step(&bare, RATE).unwrap_err().to_string();
        assert!(message.contains("table 2: one weight a look-up"), "{message}");
    }
}

#[test]
fn results_depend_on_neither_threads_nor_time() {
    let case = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 8);
    let schemes = |ranks| (0..ROWS.len()).map(|table| scheme(table, table, ranks)).collect::<Vec<_>>();
    for reduction in every_way(5) {
        let run = |threads| case.together(Setup { reduction: reduction.clone(), ..case.setup(schemes(5), 5, threads) });
        let first = run(1);
        assert!(run(1) == first, "{} is the same twice", reduction.name);
        assert!(run(2) == first && run(3) == first, "{} is the same on more threads", reduction.name);
    }
}

#[test]
fn it_does_not_matter_who_exchanges_gradients_and_when() {
    for precision in [Precision::F32, Precision::Bf16, Precision::Bf16Lsb8] {
        let case = Case::new(Pooling::Sum, Interaction::Dot, precision, 6);
        for ranks in [2, 3, 5] {
            let schemes: Vec<_> = (0..ROWS.len()).map(|table| scheme(table, table, ranks)).collect();
            for reduction in every_way(ranks) {
                let name = reduction.name;
                let setup = Setup { reduction, ..case.setup(schemes.clone(), ranks, 1) };
                let own = case.together(setup.clone());
                for (threads, overlap) in [(1, false), (1, true), (2, true), (3, true)] {
                    let found = case.together(Case::with_communication(setup.clone(), threads, overlap));
                    let who = format!("{threads} communication threads, overlap {overlap}");
                    assert!(found == own, "{ranks} ranks, {name}, {precision:?}, {who}");
                }
            }
        }
    }
}

#[test]
fn rows_and_gradients_travel_in_halves_if_asked() {
    for (precision, bound) in [(Precision::F32, 2e-3), (Precision::Bf16, 3e-3)] {
        let mut case = Case::new(Pooling::Mean, Interaction::Dot, precision, 12).weighted(|table| table == 2);
        let alone = case.alone();
        for ranks in [1, 2, 3, 5] {
            for kind in 0..6 {
                let kind_of = |table| if kind == 5 { table } else { kind };
                let schemes: Vec<_> = (0..ROWS.len()).map(|table| scheme(kind_of(table), table, ranks)).collect();
                let whole = case.setup(schemes, ranks, 1);
                let halves = Setup { wires: Wires::all(Wire::Bf16), ..whole.clone() };
                let what = format!("{precision:?}, {ranks} ranks, scheme {kind}");
                case.compare(&alone, halves.clone(), bound, &what);
                let found = case.together(halves);
                assert_eq!(found == case.together(whole), ranks == 1, "{what}: rounded where something travels");
            }
        }
        // Momentum does not take the shorter way, in which the last term of a sum moves the weight.
        let momentum = Optimizer::Momentum { momentum: 0.9, decay: 0.0 };
        // LAMB's norms are of what all threads and ranks have.
        for optimizer in [Optimizer::Sgd, momentum, KEEPING[2].0] {
            case.spec.optimizers[ParamGroup::Dense] = optimizer;
            let alone = case.alone();
            for reduction in every_way(4) {
                let name = reduction.name;
                let schemes = (0..ROWS.len()).map(|table| scheme(table, table, 4)).collect();
                let setup = Setup { wires: Wires::all(Wire::Bf16), reduction, ..case.setup(schemes, 4, 1) };
                let own = case.together(setup.clone());
                for (threads, overlap) in [(1, false), (3, true)] {
                    let found = case.together(Case::with_communication(setup.clone(), threads, overlap));
                    assert!(found == own, "{name}, {threads} communication threads");
                }
                // However small a gradient, LAMB's step is as long as the weights: what is rounded tells more.
                let bound = if optimizer.needs_norms() { 20.0 * bound } else { bound };
                case.close(&alone, own, bound, name);
            }
        }
    }
}

#[test]
fn where_a_rank_has_no_communication_threads_all_reduce_as_it_does() {
    let case = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 4);
    let alone = case.alone();
    // Communication threads come to replicated tables before the last layers, compute threads behind them.
    let setup = case.setup((0..ROWS.len()).map(|table| scheme(4, table, 2)).collect(), 2, 1);
    let mut mixed = Case::with_communication(setup, 1, true);
    mixed.places[1].comm.clear();
    let mixed = Setup { deadline: Deadline::fixed(Duration::from_secs(20)), ..mixed };
    case.compare(&alone, mixed, 1e-5, "one of two ranks has a communication thread");
}

#[test]
fn a_steps_time_is_told_by_what_it_was_for() {
    let case = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 6);
    let setup = case.setup((0..ROWS.len()).map(|table| scheme(table, table, 2)).collect(), 2, 1);
    for (threads, overlap) in [(0, false), (1, true)] {
        let ranks = Ranks::start(Case::with_communication(setup.clone(), threads, overlap)).unwrap();
        ranks.initialise(7).unwrap();
        case.batches.iter().for_each(|batch| {
            ranks.step(batch, RATE).unwrap();
        });
        for (rank, breakdown) in ranks.breakdowns().unwrap().iter().enumerate() {
            assert_eq!((breakdown.rank as usize, breakdown.steps), (rank, 6));
            assert_eq!(breakdown.stages_ms.len(), Stage::ALL.len());
            assert!(breakdown.stages_ms.iter().all(|ms| *ms >= 0.0), "{breakdown:?}");
            let (hidden, exposed) = (breakdown.hidden_dense_ms, breakdown.stages_ms[Stage::ReduceDense as usize]);
            assert!(breakdown.stages_ms[Stage::Top as usize] > 0.0 && hidden + exposed > 0.0, "{breakdown:?}");
            // Compute threads have nothing to hide behind.
            assert!(overlap || hidden == 0.0, "{breakdown:?}");
        }
    }
}

#[test]
fn the_work_of_a_stage_is_that_of_all_ranks_together() {
    let case = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 2);
    let limits = Limits { gflop_s: 1.0, stream_gb_s: 1.0, gather_gb_s: 1.0, scatter_gb_s: 1.0 };
    let work = |ranks: &Ranks, stage: Stage| {
        ranks.initialise(7).unwrap();
        case.batches.iter().for_each(|batch| _ = ranks.step(batch, RATE).unwrap());
        let stages = ranks.profile().unwrap().stages(&ranks.breakdowns().unwrap(), &limits);
        let found = stages.into_iter().find(|found| found.stage == stage.name()).unwrap();
        (found.operations, found.sent_bytes)
    };
    let alone = crate::alone::alone(&case.config.model, &case.schema, case.spec, 1, Isa::best()).unwrap();
    // Where each rank updates a slice, all of them update no more than one does.
    let ranks = Ranks::start(case.setup((0..ROWS.len()).map(|table| scheme(0, table, 2)).collect(), 2, 1)).unwrap();
    let (updated, (operations, sent)) = (work(&alone, Stage::UpdateDense), work(&ranks, Stage::ReduceDense));
    assert!(updated.0 > 0.0 && operations == updated.0, "{operations} operations of two ranks, {updated:?} of one");
    assert!(sent > 0.0 && 2.0 * sent == ranks.traffic().unwrap().dense_gradients.total() as f64, "{sent} bytes a step");
}

#[test]
fn predictions_are_those_of_one_rank() {
    let plain = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 4);
    let weighted = Case::new(Pooling::Mean, Interaction::Dot, Precision::F32, 4).weighted(|_| true);
    // Whole tables, and columns as well: forward has no sums over ranks.
    for (case, kinds) in [(plain, 1), (weighted, 2)] {
        let alone = crate::alone::alone(&case.config.model, &case.schema, case.spec, 1, Isa::best()).unwrap();
        alone.initialise(7).unwrap();
        let schemes = (0..ROWS.len()).map(|table| scheme(table % kinds, table, 3)).collect();
        let ranks = Ranks::start(case.setup(schemes, 3, 1)).unwrap();
        ranks.initialise(7).unwrap();
        for batch in &case.batches {
            let [expected, found] = [&alone, &ranks].map(|ranks| ranks.predict(batch).unwrap());
            assert!(expected.len() == batch.samples() && found == expected, "{kinds} kinds of schemes");
        }
    }
}

#[test]
fn a_rank_that_panics_ends_all_with_its_message() {
    let case = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 1);
    let ranks = Ranks::start(case.setup((0..ROWS.len()).map(|table| scheme(0, table, 3)).collect(), 3, 1)).unwrap();
    ranks.initialise(7).unwrap();
    let batch = case.batches[0].clone();
    ranks.step(&batch, RATE).unwrap();
    let number = std::sync::atomic::AtomicU32::new(0);
    let error = ranks
        .all(move |_| {
            let late = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 2;
            assert!(!late, "row 7 is bad");
            Ok(())
        })
        .unwrap_err();
    assert!(matches!(error, Error::Rank(_)) && error.to_string().contains("row 7 is bad"), "{error}");
    // The job is over, and says so instead of hanging.
    assert!(ranks.step(&batch, RATE).is_err());
}

#[test]
fn ranks_wait_for_one_that_still_builds_its_memory_however_long() {
    /// Whether a rank has been late.
    static LATE: AtomicBool = AtomicBool::new(false);
    let case = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 1);
    let setup = case.setup((0..ROWS.len()).map(|table| scheme(0, table, 2)).collect(), 2, 1);
    let network: BuildNetwork = |spec, supply| {
        if !LATE.swap(true, Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(600));
        }
        Graph::build(spec, supply)
    };
    let ranks =
        Ranks::start(Setup { deadline: Deadline::fixed(Duration::from_millis(200)), network, ..setup }).unwrap();
    assert!(LATE.load(Ordering::Relaxed));
    ranks.all(|_| Ok(())).unwrap();
}

/// A data set that counts its readers.
struct Counted(Arc<dyn Source>, AtomicU32);

impl Source for Counted {
    fn schema(&self) -> &Schema {
        self.0.schema()
    }

    fn samples(&self, split: Split) -> Option<u64> {
        self.0.samples(split)
    }

    fn open(&self, split: Split, start: u64) -> octorec::base::Result<Box<dyn Reader + '_>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.open(split, start)
    }
}

#[test]
fn an_evaluation_is_read_by_those_whom_its_loader_names() {
    let case = Case::new(Pooling::Sum, Interaction::Dot, Precision::F32, 1);
    let ranks = Ranks::start(case.setup((0..ROWS.len()).map(|table| scheme(0, table, 3)).collect(), 3, 1)).unwrap();
    ranks.initialise(7).unwrap();
    let questions = Questions { samples: Some(200), ..Questions::default() };
    let found = LoaderMode::ALL.map(|mode| {
        let counted = Arc::new(Counted(data::open(&case.config, Opening::default()).unwrap(), AtomicU32::new(0)));
        let source: Arc<dyn Source> = counted.clone();
        let found = evaluate(&ranks, &source, (Split::Test, BATCH), mode, questions.clone()).unwrap().unwrap();
        let readers = if mode == LoaderMode::Broadcast { 1 } else { 3 };
        assert_eq!(counted.1.load(Ordering::Relaxed), readers, "{mode:?}");
        found.scores
    });
    assert!(found[0].samples == 200 && found[0] == found[1] && found[1] == found[2], "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_division_will_do(
        ranks in 1usize..7,
        kinds in prop::collection::vec(0usize..5, ROWS.len()),
        weighted in prop::collection::vec(any::<bool>(), ROWS.len()),
        mean: bool,
    ) {
        let pooling = if mean { Pooling::Mean } else { Pooling::Sum };
        let case = Case::new(pooling, Interaction::Dot, Precision::F32, 4).weighted(|table| weighted[table]);
        let schemes = kinds.iter().enumerate().map(|(table, kind)| scheme(*kind, table, ranks)).collect();
        case.compare(&case.alone(), case.setup(schemes, ranks, 1), 1e-5, &format!("{ranks} ranks, {kinds:?}, {weighted:?}"));
    }
}
