//! `train.determinism = "ranks"`: the number of ranks and the division of tables change no bit.
//!
//! Everything is held against one rank that has whole tables, bit by bit: the loss of every step and all weights.

use crate::requirement::required;
use crate::weighing;

use std::sync::Arc;

use octorec::base::RankId;
use octorec::base::config::{Config, DataConfig, Interaction, ModelConfig, Pooling, Precision, SourceKind, Update};
use octorec::data::{self, Batch, Opening, Schema, Split};
use octorec::machine::placement::Wishes;
use octorec::machine::{Machine, place};
use octorec::math::Grains;
use octorec::model::TrainSpec;
use octorec::optim::{Averages, ByGroup, Optimizer};
use octorec::shard::scheme::{Part, Scheme, Sharding};
use octorec::simd::Isa;
use octorec::train::{Ranks, Setup};
use proptest::prelude::*;

const RATE: f32 = 0.05;

#[derive(Clone)]
struct Case {
    config: Config,
    schema: Schema,
    batches: Vec<Arc<Batch>>,
    spec: TrainSpec,
    grains: Option<Grains>,
    isa: Isa,
}

/// What a run leaves, as bits.
#[derive(PartialEq)]
struct Outcome {
    losses: Vec<u64>,
    weights: Vec<(String, Vec<u32>)>,
}

impl Case {
    fn new(model: ModelConfig, lookups: usize, batches: &[usize], precision: Precision) -> Self {
        let data = DataConfig {
            source: SourceKind::Random,
            lookups: lookups.into(),
            lookups_fixed: false,
            zipf: 1.05,
            ..DataConfig::default()
        };
        let config = Config { model, data, ..Config::default() };
        let source = data::open(&config, Opening::default()).unwrap();
        let mut reader = source.open(Split::Train, 0).unwrap();
        let draw = |&samples: &usize| {
            let mut batch = Batch::new(source.schema());
            reader.read(&mut batch, samples).unwrap();
            Arc::new(batch)
        };
        let schema = source.schema().clone();
        let largest = *batches.iter().max().unwrap();
        let batches = batches.iter().map(draw).collect();
        let spec = TrainSpec { precision, ..TrainSpec::sgd(largest) };
        Self { schema, config, batches, spec, grains: Some(Grains::of(largest)), isa: Isa::best() }
    }

    /// With weights of the look-ups in some tables.
    fn weighted(mut self, which: impl Fn(usize) -> bool) -> Self {
        weighing::weigh(&mut self.schema, &mut self.batches, which);
        self
    }

    fn ranks(&self, schemes: Vec<Scheme>, ranks: usize, threads: usize) -> Ranks {
        let machine = Machine::load("host").unwrap();
        let wishes = Wishes { ranks: Some(ranks), threads: Some(threads), ..Wishes::default() };
        let placement = place(&machine, &wishes).unwrap();
        let sharding =
            Sharding::new(&self.config.model.rows, self.config.model.dims(&self.config.model.rows), ranks, schemes)
                .unwrap();
        let setup = Setup::new(&self.config.model, &self.schema, sharding, self.spec, &placement);
        Ranks::start(Setup { grains: self.grains, isa: self.isa, ..setup }).unwrap()
    }

    fn run(&self, schemes: Vec<Scheme>, ranks: usize, threads: usize) -> Outcome {
        let ranks = self.ranks(schemes, ranks, threads);
        ranks.initialise(7).unwrap();
        let losses = self.batches.iter().map(|batch| ranks.step(batch, RATE).unwrap().to_bits()).collect();
        Outcome { losses, weights: weights(&ranks) }
    }

    /// One rank with whole tables.
    fn alone(&self) -> Outcome {
        let outcome = self.run(self.schemes(|_| 0, 1), 1, 1);
        assert!(outcome.losses.iter().all(|loss| f64::from_bits(*loss).is_finite()));
        outcome
    }

    /// Each table's scheme by the number of its kind: see [`scheme`].
    fn schemes(&self, kind: impl Fn(usize) -> usize, ranks: usize) -> Vec<Scheme> {
        let (rows, dim) = (&self.config.model.rows, self.config.model.dim);
        (0..rows.len()).map(|table| scheme(kind(table), table, ranks, rows[table], dim)).collect()
    }
}

fn weights(ranks: &Ranks) -> Vec<(String, Vec<u32>)> {
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    let parameters = ranks.parameters().unwrap();
    parameters.iter().map(|one| (one.name.clone(), bits(ranks.export(one).unwrap()))).collect()
}

fn assert_same(alone: &Outcome, found: &Outcome, what: &str) {
    for (step, (alone, found)) in alone.losses.iter().zip(&found.losses).enumerate() {
        let [alone, found] = [alone, found].map(|bits| f64::from_bits(*bits));
        assert!(alone.to_bits() == found.to_bits(), "{what}: step {step}: {found}, not {alone}");
    }
    for ((name, alone), (_, found)) in alone.weights.iter().zip(&found.weights) {
        let first = alone.iter().zip(found).position(|(a, b)| a != b);
        assert!(first.is_none(), "{what}: {name} differs from element {first:?} on");
    }
    assert!(alone == found, "{what}");
}

/// Sizes that add up to `whole`, as even as they come, dealt to ranks in turn from `first` on.
fn parts(whole: u64, count: usize, ranks: usize, first: usize) -> Vec<Part> {
    let count = count.min(whole as usize) as u64;
    let size = |part: u64| whole * (part + 1) / count - whole * part / count;
    let rank = |part: u64| RankId(((first as u64 + part) % ranks as u64) as u32);
    (0..count).map(|part| Part { rank: rank(part), size: size(part) }).collect()
}

const KINDS: usize = 5;

fn scheme(kind: usize, table: usize, ranks: usize, rows: u64, dim: usize) -> Scheme {
    match kind % KINDS {
        0 => Scheme::Table(RankId((table % ranks) as u32)),
        1 => Scheme::Column(parts(dim as u64, ranks.min(dim), ranks, table)),
        2 => Scheme::RowContiguous(parts(rows, ranks, ranks, table)),
        3 => Scheme::RowCyclic((0..ranks.min(rows as usize)).map(|rank| RankId(rank as u32)).collect()),
        _ => Scheme::Replicated,
    }
}

fn small(pooling: Pooling, interaction: Interaction) -> ModelConfig {
    let (bottom, top, rows) = (vec![13, 40, 12], vec![33, 1], vec![700, 3, 41, 1000, 260]);
    let (cross_layers, cross_rank) = (2, 9);
    ModelConfig { bottom, top, dim: 12, rows, interaction, pooling, cross_layers, cross_rank, ..Default::default() }
}

/// Twenty minibatches, that at the end of an epoch being smaller, down to fewer samples than ranks.
fn twenty() -> Vec<usize> {
    [50, 50, 29, 3].repeat(5)
}

#[test]
fn every_scheme_on_any_number_of_ranks_gives_the_bits_of_one() {
    let case = Case::new(small(Pooling::Sum, Interaction::Dot), 4, &twenty(), Precision::F32);
    let alone = case.alone();
    for ranks in [1, 2, 3, 4, 5, 8] {
        for kind in 0..KINDS {
            let found = case.run(case.schemes(|_| kind, ranks), ranks, 1);
            assert_same(&alone, &found, &format!("{ranks} ranks, scheme {kind}"));
        }
        let mixed = case.schemes(|table| table, ranks);
        assert_same(&alone, &case.run(mixed, ranks, 2), &format!("{ranks} ranks of 2 threads, mixed"));
    }
}

/// Minibatches of several parts of 64 samples, or of several grains, down to less than one.
#[test]
fn how_a_minibatch_is_parted_changes_no_bit() {
    let batches = [300, 300, 193, 128, 3];
    let precisions = [Precision::F32, Precision::Bf16];
    for (interaction, precision) in
        [Interaction::Dot, Interaction::Dcn].into_iter().flat_map(|interaction| precisions.map(|of| (interaction, of)))
    {
        for isa in Isa::every() {
            let mut case = Case::new(small(Pooling::Mean, interaction), 3, &batches, precision);
            case.isa = isa;
            for grains in [None, Some(Grains::of(300)), Some(Grains::exactly(4))] {
                case.grains = grains;
                for ranks in [1, 2] {
                    let schemes = || case.schemes(|table| table, ranks);
                    let whole = case.run(schemes(), ranks, 2);
                    assert!(whole.losses.iter().all(|loss| f64::from_bits(*loss).is_finite()));
                    for part in [1, 64, 150] {
                        let found =
                            Case { spec: TrainSpec { part, ..case.spec }, ..case.clone() }.run(schemes(), ranks, 2);
                        let what = format!(
                            "parts of {part}, {ranks} ranks, {interaction:?}, {precision:?}, {isa:?}, {grains:?}"
                        );
                        assert_same(&whole, &found, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn halves_means_concatenation_and_cross_layers_too_on_any_instruction_set() {
    for (pooling, interaction, precision) in [
        (Pooling::Mean, Interaction::Dot, Precision::F32),
        (Pooling::Sum, Interaction::Cat, Precision::F32),
        (Pooling::Mean, Interaction::Dot, Precision::Bf16),
        (Pooling::Sum, Interaction::Dot, Precision::Bf16Lsb8),
        (Pooling::Sum, Interaction::Dcn, Precision::F32),
        (Pooling::Sum, Interaction::Dcn, Precision::Bf16),
    ] {
        let mut case = Case::new(small(pooling, interaction), 4, &twenty(), precision);
        let momentum = Optimizer::Momentum { momentum: 0.9, decay: 0.0 };
        let averages = Averages { beta1: 0.9, beta2: 0.999, eps: 1e-8, bias_correction: true };
        let pairs = [
            (Optimizer::Sgd, Optimizer::Sgd),
            (momentum, momentum),
            (Optimizer::Adam { averages, decay: 0.01 }, Optimizer::SparseAdam { averages }),
            (
                Optimizer::Adagrad { eps: 1e-10, initial: 0.0, decay: 0.0 },
                Optimizer::RowwiseAdagrad { eps: 1e-8, initial: 0.1 },
            ),
            (Optimizer::Lamb { averages, decay: 0.01 }, Optimizer::Adagrad { eps: 1e-10, initial: 0.0, decay: 0.0 }),
        ];
        for (isa, (optimizer, optimizer_rows)) in Isa::all().into_iter().flat_map(|isa| pairs.map(|pair| (isa, pair))) {
            case.isa = isa;
            // Momentum and LAMB have their gradients clipped, in all steps.
            let clip_norm = (optimizer == momentum || optimizer.needs_norms()).then_some(0.02);
            let optimizers = ByGroup::of_kinds(optimizer, optimizer_rows);
            case.spec = TrainSpec { optimizers, clip_norm, ..case.spec };
            let alone = case.alone();
            for ranks in [2, 3, 5] {
                // Of rows of which a number is kept all columns stay together.
                let whole = |kind| if kind % KINDS == 1 && optimizer_rows.row_moment().is_some() { 2 } else { kind };
                let mixed = case.schemes(|table| whole(table + ranks), ranks);
                let what =
                    format!("{ranks} ranks, {pooling:?}, {interaction:?}, {precision:?}, {isa:?}, {optimizer:?}");
                assert_same(&alone, &case.run(mixed, ranks, 1), &what);
            }
        }
    }
}

#[test]
fn look_ups_with_weights_give_the_bits_of_one_rank_in_every_scheme() {
    for (pooling, precision) in
        [(Pooling::Sum, Precision::F32), (Pooling::Mean, Precision::F32), (Pooling::Mean, Precision::Bf16)]
    {
        for some in [false, true] {
            let case = Case::new(small(pooling, Interaction::Dot), 4, &twenty()[..12], precision);
            let case = case.weighted(|table| !some || table % 2 == 0);
            let alone = case.alone();
            for ranks in [1, 2, 3, 8] {
                for kind in 0..KINDS {
                    let found = case.run(case.schemes(|_| kind, ranks), ranks, 1);
                    let what = format!("{pooling:?}, {precision:?}, some {some}, {ranks} ranks, scheme {kind}");
                    assert_same(&alone, &found, &what);
                }
                let mixed = case.schemes(|table| table, ranks);
                assert_same(&alone, &case.run(mixed, ranks, 2), &format!("{ranks} ranks of 2 threads, mixed"));
            }
        }
    }
}

#[test]
fn look_ups_with_weights_give_the_same_on_any_instruction_set() {
    let model = small(Pooling::Sum, Interaction::Cat);
    let mut case = Case::new(model, 4, &twenty()[..8], Precision::F32).weighted(|_| true);
    let outcomes: Vec<_> = Isa::all()
        .into_iter()
        .map(|isa| {
            case.isa = isa;
            case.run(case.schemes(|table| table + 2, 3), 3, 1)
        })
        .collect();
    outcomes.iter().for_each(|outcome| assert_same(&outcomes[0], outcome, "the first instruction set"));
}

#[test]
fn weights_of_one_are_none() {
    let case = Case::new(small(Pooling::Mean, Interaction::Dot), 4, &twenty()[..8], Precision::F32);
    let plain = case.alone();
    let mut case = case.weighted(|_| true);
    assert!(case.alone().losses != plain.losses, "weights matter");
    for batch in &mut case.batches {
        Arc::make_mut(batch).weights.iter_mut().flatten().for_each(|weight| *weight = 1.0);
    }
    for ranks in [1, 3] {
        let found = case.run(case.schemes(|table| table + 2, ranks), ranks, 1);
        assert_same(&plain, &found, &format!("{ranks} ranks"));
    }
}

#[test]
fn every_deterministic_way_to_move_rows_gives_the_same() {
    for (precision, weighted) in
        [(Precision::F32, false), (Precision::Bf16Lsb8, false), (Precision::F32, true), (Precision::Bf16Lsb8, true)]
    {
        let case = Case::new(small(Pooling::Sum, Interaction::Dot), 4, &twenty()[..8], precision);
        let mut case = case.weighted(|table| weighted && table != 1);
        let alone = case.alone();
        for update in [Update::Serial, Update::RaceFree, Update::Sorted] {
            for fused in [true, false] {
                case.spec = TrainSpec { update, update_fused: fused, ..case.spec };
                let found = case.run(case.schemes(|table| table + 2, 3), 3, 2);
                assert_same(&alone, &found, &format!("{update:?}, fused {fused}, {precision:?}, {weighted}"));
            }
        }
    }
}

#[test]
fn f32_on_tiles_follow_fused_multiply_adds_whoever_computes_them() {
    let on_tiles = Isa::every().into_iter().find(|isa| isa.amx_thirds().is_some());
    let Some(on_tiles) = required("amx-bf16", on_tiles.ok_or("not detected")) else { return };
    let (bottom, top, rows) = (vec![13, 130, 80], vec![200, 70, 1], vec![5000, 900]);
    let model = ModelConfig { bottom, top, dim: 80, rows, ..Default::default() };
    let mut case = Case::new(model, 2, &[300, 300, 77, 300], Precision::F32);
    case.isa = Isa::all()[0];
    let fused = case.alone();
    case.isa = on_tiles;
    let tiled = case.alone();
    assert!(tiled.weights != fused.weights, "tiles were used");
    for (step, (tiled, fused)) in tiled.losses.iter().zip(&fused.losses).enumerate() {
        let [tiled, fused] = [tiled, fused].map(|bits| f64::from_bits(*bits));
        assert!((tiled - fused).abs() <= 1e-6 * fused, "step {step}: {tiled}, not {fused}");
    }
    for (ranks, threads) in [(1, 2), (1, 5), (2, 1), (3, 2)] {
        let found = case.run(case.schemes(|table| table + 2, ranks), ranks, threads);
        assert_same(&tiled, &found, &format!("{ranks} ranks of {threads} threads"));
    }
}

#[test]
fn layers_of_several_panels_and_many_grains() {
    let (bottom, top, rows) = (vec![13, 130, 64], vec![200, 70, 1], vec![5000, 900]);
    let model = ModelConfig { bottom, top, dim: 64, rows, ..Default::default() };
    for precision in [Precision::F32, Precision::Bf16] {
        let mut case = Case::new(model.clone(), 2, &[300, 300, 77], precision);
        for grains in [1, 8, 64] {
            case.grains = Some(Grains::exactly(grains));
            let alone = case.alone();
            for ranks in [2, 3, 5] {
                let found = case.run(case.schemes(|table| table + ranks, ranks), ranks, 2);
                assert_same(&alone, &found, &format!("{grains} grains, {ranks} ranks, {precision:?}"));
            }
        }
    }
}

#[test]
fn a_minibatch_is_the_sum_of_its_grains() {
    // The other mode sums in another order: close, and not the same, or this mode would do nothing.
    let case = Case::new(small(Pooling::Sum, Interaction::Dot), 4, &twenty()[..8], Precision::F32);
    let by_grains = case.alone();
    let at_once = Case { grains: Some(Grains::exactly(1)), ..case }.alone();
    assert!(by_grains.weights != at_once.weights);
    for (a, b) in by_grains.losses.iter().zip(&at_once.losses).map(|(a, b)| (f64::from_bits(*a), f64::from_bits(*b))) {
        assert!((a - b).abs() <= 1e-5 * b.abs(), "{a} and {b}");
    }
}

#[test]
fn a_sample_is_computed_alike_among_any_others() {
    for precision in [Precision::F32, Precision::Bf16] {
        for interaction in [Interaction::Dot, Interaction::Cat] {
            let mut case = Case::new(small(Pooling::Sum, interaction), 4, &[64], precision);
            for isa in Isa::all() {
                case.isa = isa;
                let ranks = case.ranks(case.schemes(|_| 0, 1), 1, 1);
                ranks.initialise(7).unwrap();
                let all: Vec<_> = ranks.predict(&case.batches[0]).unwrap().into_iter().map(f32::to_bits).collect();
                for size in [1, 2, 7, 13, 33] {
                    let mut some = Batch::new(&case.schema);
                    let range = 64 - size..64;
                    some.append_range(&case.batches[0], range.clone());
                    let found = ranks.predict(&Arc::new(some)).unwrap();
                    let found: Vec<_> = found.into_iter().map(f32::to_bits).collect();
                    assert_eq!(found, all[range], "{size} samples, {precision:?}, {interaction:?}, {isa:?}");
                }
            }
        }
    }
}

#[test]
fn what_some_ranks_saved_others_continue() {
    let case = Case::new(small(Pooling::Mean, Interaction::Dot), 4, &twenty(), Precision::Bf16);
    let alone = case.alone();
    for (before, after) in [(3, 5), (8, 1), (2, 4)] {
        let first = case.ranks(case.schemes(|table| table, before), before, 1);
        first.initialise(7).unwrap();
        let mut losses: Vec<_> =
            case.batches[..9].iter().map(|batch| first.step(batch, RATE).unwrap().to_bits()).collect();
        let second = case.ranks(case.schemes(|table| table + 3, after), after, 1);
        for parameter in first.parameters().unwrap() {
            second.import_rows(&parameter, 0..parameter.rows(), &first.export(&parameter).unwrap()).unwrap();
        }
        losses.extend(case.batches[9..].iter().map(|batch| second.step(batch, RATE).unwrap().to_bits()));
        let found = Outcome { losses, weights: weights(&second) };
        assert_same(&alone, &found, &format!("{after} ranks after {before}"));
    }
}

#[test]
fn two_ranks_give_the_same_bits_on_any_number_of_threads_in_either_mode() {
    let case = Case::new(small(Pooling::Sum, Interaction::Dot), 4, &twenty()[..8], Precision::F32);
    let machine = Machine::load("host").unwrap();
    for grains in [None, case.grains] {
        let run = |threads| {
            let wishes = Wishes { ranks: Some(2), threads: Some(threads), ..Wishes::default() };
            let model = &case.config.model;
            let sharding =
                Sharding::new(&model.rows, model.dims(&model.rows), 2, case.schemes(|table| table, 2)).unwrap();
            let setup = Setup::new(model, &case.schema, sharding, case.spec, &place(&machine, &wishes).unwrap());
            let ranks = Ranks::start(Setup { grains, ..setup }).unwrap();
            ranks.initialise(7).unwrap();
            let losses = case.batches.iter().map(|batch| ranks.step(batch, RATE).unwrap().to_bits()).collect();
            Outcome { losses, weights: weights(&ranks) }
        };
        let first = run(1);
        for threads in [2, 3, 5] {
            assert_same(&first, &run(threads), &format!("{threads} threads, {grains:?}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn any_schema_and_division_will_do(
        ranks in 1usize..9,
        rows in prop::collection::vec(1u64..300, 1..6),
        kinds in prop::collection::vec(0usize..KINDS, 6),
        dim in 1usize..40,
        hidden in 1usize..90,
        batches in prop::collection::vec(1usize..70, 3),
        lookups in 1usize..7,
        grains in 0u32..7,
        weighted in prop::collection::vec(any::<bool>(), 6),
        mean: bool,
        half: bool,
    ) {
        let pooling = if mean { Pooling::Mean } else { Pooling::Sum };
        let model = ModelConfig { bottom: vec![4, hidden, dim], top: vec![hidden, 1], dim, rows, pooling, ..Default::default() };
        let precision = if half { Precision::Bf16 } else { Precision::F32 };
        let mut case = Case::new(model, lookups, &batches, precision).weighted(|table| weighted[table]);
        case.grains = Some(Grains::exactly(1 << grains));
        let alone = case.alone();
        let found = case.run(case.schemes(|table| kinds[table], ranks), ranks, 1);
        assert_same(&alone, &found, &format!("{ranks} ranks, {kinds:?}, {weighted:?}"));
    }
}
