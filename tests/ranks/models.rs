//! Models that are more than a DLRM among ranks, with a wide part or of time series: whatever the division of their
//! tables, and the optimizers that move them.

use std::sync::Arc;

use crate::weighing;

use octorec::base::RankId;
use octorec::base::config::{
    Composition, Config, DataConfig, Interaction, LookUps, ModelConfig, Pooling, Precision, SourceKind,
    WeightedPooling, Wire, Wires,
};
use octorec::data::derived::Derived;
use octorec::data::{self, Batch, Opening, Schema, Split};
use octorec::embedding::TableTensor;
use octorec::machine::placement::Wishes;
use octorec::machine::{Machine, place};
use octorec::math::Grains;
use octorec::model::{Parameter, TensorSlot, TrainSpec};
use octorec::optim::{Averages, ByGroup, Optimizer, ParamGroup};
use octorec::shard::scheme::{Part, Scheme, Sharding};
use octorec::train::{Ranks, Rates, Setup};

const RATES: Rates = Rates { layers: 0.05, rows: 0.04, wide: 0.1 };
/// More would part an odd pair of samples differently.
const BATCH: usize = 50;

#[derive(Clone)]
struct Case {
    model: ModelConfig,
    schema: Schema,
    batches: Vec<Arc<Batch>>,
    spec: TrainSpec,
}

/// Losses, and all weights and moments by their names.
type Outcome = (Vec<f64>, Vec<(String, Vec<f32>)>);

impl Case {
    fn wide(interaction: Interaction, pooling: Pooling, precision: Precision, wide: Optimizer) -> Self {
        let crosses = [&["C2", "C1"][..], &["C3", "C4", "C2"]];
        let owned = |cross: &[&str]| cross.iter().map(|&name| name.to_owned()).collect();
        let bottom = if interaction == Interaction::Cat { vec![5] } else { vec![5, 12] };
        let model = ModelConfig {
            bottom,
            top: vec![33, 1],
            dim: 12,
            rows: vec![700, 3, 41, 260],
            interaction,
            pooling,
            wide: true,
            wide_crosses: crosses.map(owned).to_vec(),
            wide_buckets: 90,
            ..ModelConfig::default()
        };
        Self::new(model, 3.into(), precision, wide)
    }

    /// Of users, whose bags are pooled, and sequences that are shorter, as long as, and longer than the series; as wide
    /// as several panels where they are side by side.
    fn series(interaction: Interaction, pooling: Pooling, precision: Precision, layers: Optimizer) -> Self {
        let model = ModelConfig {
            bottom: vec![5, 9, 12],
            top: vec![21, 35],
            dim: 12,
            rows: vec![700, 3, 41, 260],
            interaction,
            pooling,
            ts_length: 5,
            sequences: ["C1", "C3"].map(str::to_owned).to_vec(),
            tsl_mlp: vec![7],
            arch_mlp: vec![18, 1],
            ..ModelConfig::default()
        };
        let mut case = Self::new(model, LookUps::Each(vec![9, 3, 6, 2]), precision, layers);
        case.spec.optimizers[ParamGroup::Dense] = layers;
        case
    }

    /// Of tables of 12, 7, 3 and 4 columns, which matrices make as wide as the first.
    fn mixed(interaction: Interaction, pooling: Pooling, precision: Precision) -> Self {
        let model = ModelConfig {
            bottom: vec![5, 12],
            top: vec![33, 1],
            dim: 12,
            rows: vec![3, 41, 700, 260],
            interaction,
            pooling,
            md_temperature: 0.25,
            md_threshold: 5,
            ..ModelConfig::default()
        };
        Self::new(model, 3.into(), precision, Optimizer::Sgd)
    }

    /// Of four columns, of which three are looked up by quotients and remainders.
    fn composed(operation: Composition, interaction: Interaction, pooling: Pooling, precision: Precision) -> Self {
        let model = ModelConfig {
            bottom: vec![5, 12],
            top: vec![33, 1],
            dim: 12,
            rows: vec![700, 3, 41, 260],
            interaction,
            pooling,
            qr_collisions: 5,
            qr_operation: operation,
            qr_threshold: 10,
            ..ModelConfig::default()
        };
        Self::new(model, 3.into(), precision, Optimizer::Sgd)
    }

    /// Rows have learned weights, which begin with numbers that are not all 1, and so have look-ups of some tables.
    fn weighed(mut self, rows: Optimizer) -> Self {
        self.model.weighted_pooling = WeightedPooling::Learned;
        weighing::weigh(&mut self.schema, &mut self.batches, |table| table % 3 == 1);
        self.spec.optimizers[ParamGroup::Sparse] = rows;
        self
    }

    /// Of layers of one's own, in which everything is read by several, and a wide part.
    fn own(pooling: Pooling, precision: Precision) -> Self {
        let model = r#"
            bottom = [5]
            dim = 12
            rows = [700, 3, 41, 260]
            wide = true
            layers = [
                { name = "bottom", type = "linear", of = "dense", outputs = [20, 12] },
                { name = "x", type = "relu", of = "bottom" },
                { name = "fm", type = "dot", of = ["x", "C1", "C3"] },
                { name = "mixed", type = "sum", of = ["x", "C2", "C4"] },
                { name = "g", type = "sigmoid", of = "mixed" },
                { name = "deep", type = "concat", of = ["mixed", "g", "embeddings"] },
                { name = "crossed", type = "cross", of = "deep", layers = 2, rank = 7 },
                { name = "both", type = "concat", of = ["crossed", "fm", "g"] },
                { name = "out", type = "linear", of = "both", outputs = [33, 1] },
                { name = "wide", type = "wide" },
                { name = "logit", type = "sum", of = ["out", "wide"] },
            ]
        "#;
        let mut whole = toml::Table::try_from(ModelConfig::default()).unwrap();
        whole.extend(model.parse::<toml::Table>().unwrap());
        Self::new(ModelConfig { pooling, ..whole.try_into().unwrap() }, 3.into(), precision, FTRL)
    }

    fn new(model: ModelConfig, lookups: LookUps, precision: Precision, wide: Optimizer) -> Self {
        let data = DataConfig {
            source: SourceKind::Random,
            lookups,
            lookups_fixed: false,
            zipf: 1.05,
            ..DataConfig::default()
        };
        let config = Config { model, data, ..Config::default() };
        let source = Derived::of(&config.model, data::open(&config, Opening::default()).unwrap()).unwrap();
        let mut reader = source.open(Split::Train, 0).unwrap();
        let draw = |index: usize| {
            let mut batch = Batch::new(source.schema());
            reader.read(&mut batch, [BATCH, BATCH, 29, 3][index % 4]).unwrap();
            Arc::new(batch)
        };
        let batches = (0..8).map(draw).collect();
        let deep = Optimizer::Adagrad { eps: 0.01, initial: 0.05, decay: 0.0 };
        let optimizers = ByGroup::new(|group| match (group, wide) {
            (ParamGroup::Dense | ParamGroup::Sparse, _) => deep,
            // Of rows it is lazy.
            (ParamGroup::WideSparse, Optimizer::Adam { averages, .. }) => Optimizer::SparseAdam { averages },
            _ => wide,
        });
        let spec = TrainSpec { precision, optimizers, ..TrainSpec::sgd(BATCH) };
        Self { schema: source.schema().clone(), model: config.model, batches, spec }
    }

    /// Every table in a way of its own, those of one column, too.
    fn setup(&self, kind: impl Fn(usize) -> usize, ranks: usize, grains: bool) -> Setup {
        let dims = self.model.dims(&self.schema.rows());
        let rows = self.schema.rows();
        // Columns of rows that have one weight stay together.
        let kind = |table| match kind(table) {
            1 if self.model.weighs_rows() => 2,
            kind => kind,
        };
        let schemes =
            (0..rows.len()).map(|table| scheme(kind(table), table, ranks, rows[table], dims[table])).collect();
        let sharding = Sharding::new(&rows, dims, ranks, schemes).unwrap();
        let wishes = Wishes { ranks: Some(ranks), threads: Some(1), ..Wishes::default() };
        let placement = place(&Machine::load("host").unwrap(), &wishes).unwrap();
        let setup = Setup::new(&self.model, &self.schema, sharding, self.spec, &placement);
        Setup { grains: grains.then(|| Grains::of(BATCH)), ..setup }
    }

    /// The same with minibatches that are several times as large.
    fn times(mut self, count: usize) -> Self {
        for batch in &mut self.batches {
            let one = batch.clone();
            (1..count).for_each(|_| Arc::make_mut(batch).append_range(&one, 0..one.samples()));
        }
        let samples = count * BATCH;
        self.spec = TrainSpec { samples, part: samples, ..self.spec };
        self
    }

    fn run(&self, setup: Setup) -> Outcome {
        let ranks = Ranks::start(setup).unwrap();
        ranks.initialise(7).unwrap();
        let is_row_weight = |of: &&Parameter| matches!(of.slot, TensorSlot::Table(_, TableTensor::RowWeight));
        for of in ranks.parameters().unwrap().iter().filter(is_row_weight) {
            ranks
                .import_rows(
                    of,
                    0..of.rows(),
                    &(0..of.len()).map(|row| (row % 7) as f32 * 0.3 - 0.4).collect::<Vec<_>>(),
                )
                .unwrap();
        }
        let losses = self.batches.iter().map(|batch| ranks.step(batch, RATES).unwrap()).collect();
        let mut parameters = ranks.parameters().unwrap();
        parameters.extend(ranks.moments(&parameters));
        let export = parameters.iter().map(|of| (of.name.clone(), ranks.export(of).unwrap()));
        (losses, export.collect())
    }
}

fn parts(whole: u64, count: usize, ranks: usize, first: usize) -> Vec<Part> {
    let count = count.min(whole as usize) as u64;
    let size = |part: u64| whole * (part + 1) / count - whole * part / count;
    let rank = |part: u64| RankId(((first as u64 + part) % ranks as u64) as u32);
    (0..count).map(|part| Part { rank: rank(part), size: size(part) }).collect()
}

fn scheme(kind: usize, table: usize, ranks: usize, rows: u64, dim: usize) -> Scheme {
    match kind % 5 {
        0 => Scheme::Table(RankId((table % ranks) as u32)),
        1 => Scheme::Column(parts(dim as u64, ranks, ranks, table)),
        2 => Scheme::RowContiguous(parts(rows, ranks, ranks, table)),
        3 => Scheme::RowCyclic((0..ranks.min(rows as usize)).map(|rank| RankId(rank as u32)).collect()),
        _ => Scheme::Replicated,
    }
}

fn close(alone: &Outcome, found: &Outcome, bound: f64, what: &str) {
    for (step, (alone, found)) in alone.0.iter().zip(&found.0).enumerate() {
        assert!((alone - found).abs() <= bound * alone.abs(), "{what}: step {step}: {found}, not {alone}");
    }
    for ((name, alone), (_, found)) in alone.1.iter().zip(&found.1) {
        let apart = alone.iter().zip(found).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
        assert!(apart <= 20.0 * bound, "{what}: {name} is {apart} apart");
    }
}

const FTRL: Optimizer = Optimizer::Ftrl { beta: 0.1, l1: 1e-3, l2: 0.01, initial: 0.01, decay: 0.0 };
const ADAM: Optimizer =
    Optimizer::Adam { averages: Averages { beta1: 0.9, beta2: 0.99, eps: 0.01, bias_correction: true }, decay: 0.0 };

/// Every case on several ranks, however its tables are divided.
fn learns_as_alone(case: &Case, alone: &Outcome, bound: f64, what: &str) {
    for ranks in [2, 3, 5, 8] {
        for kind in 0..6 {
            let what = format!("{what}, {ranks} ranks, scheme {kind}");
            let setup = case.setup(|table| if kind == 5 { table } else { kind }, ranks, false);
            let own = case.run(setup.clone());
            close(alone, &own, bound, &what);
            if ranks < 4 {
                let mut overlapped = Setup { overlap: true, spin: false, ..setup };
                overlapped.places.iter_mut().for_each(|place| place.comm = vec![place.compute[0]; 2]);
                assert!(case.run(overlapped) == own, "{what}: communication threads change no bit");
            }
        }
    }
}

/// As [`learns_as_alone`], bit for bit.
fn is_the_same_as_alone(case: &Case, what: &str) {
    let alone = case.run(case.setup(|_| 0, 1, true));
    for ranks in [1, 2, 3, 8] {
        for kind in 0..6 {
            let found = case.run(case.setup(|table| if kind == 5 { table } else { kind }, ranks, true));
            let what = format!("{what}, {ranks} ranks, scheme {kind}");
            for ((name, alone), (_, found)) in alone.1.iter().zip(&found.1) {
                let differs = alone.iter().zip(found).position(|(a, b)| a.to_bits() != b.to_bits());
                assert!(differs.is_none(), "{what}: {name} differs from element {differs:?} on");
            }
            assert!(alone.0 == found.0, "{what}: losses");
        }
    }
}

#[test]
fn a_wide_part_learns_among_ranks_as_on_one_however_its_tables_are_divided() {
    for (interaction, pooling, precision, wide, bound) in [
        (Interaction::Cat, Pooling::Sum, Precision::F32, FTRL, 1e-5),
        (Interaction::Dot, Pooling::Mean, Precision::F32, ADAM, 1e-5),
        (Interaction::Cat, Pooling::Sum, Precision::Bf16, FTRL, 1e-3),
        (Interaction::Dcn, Pooling::Sum, Precision::F32, FTRL, 1e-5),
    ] {
        let case = Case::wide(interaction, pooling, precision, wide);
        let alone = case.run(case.setup(|_| 0, 1, false));
        let told = |values: &[f32]| values.iter().any(|x| *x != 0.0);
        let of_wide = |(name, values): &&(String, Vec<f32>)| name.contains("wide_") && told(values);
        let kept = if wide == FTRL { 2 } else { 3 };
        assert_eq!(alone.1.iter().filter(of_wide).count(), (6 + 2) * (1 + kept), "all of the wide part has learned");
        learns_as_alone(&case, &alone, bound, &format!("{interaction:?}, {pooling:?}, {precision:?}"));
    }
}

#[test]
fn tables_of_one_column_beside_a_wide_part_are_moved_by_their_own_optimizer() {
    let mut case = Case::wide(Interaction::Cat, Pooling::Sum, Precision::F32, FTRL);
    (case.model.md_temperature, case.model.md_threshold) = (0.4, 5);
    assert_eq!(case.model.dims(&case.schema.rows()), [1, 12, 4, 2, 1, 1, 1, 1, 1, 1]);
    let alone = case.run(case.setup(|_| 0, 1, false));
    // Among others, every table by itself: as copies, which no group has.
    learns_as_alone(&case, &alone, 1e-5, "narrow and wide");
    is_the_same_as_alone(&case, "narrow and wide");
}

#[test]
fn a_time_series_learns_among_ranks_as_on_one_however_its_tables_are_divided() {
    for (interaction, pooling, precision, bound) in [
        (Interaction::Dot, Pooling::Sum, Precision::F32, 1e-5),
        (Interaction::Cat, Pooling::Mean, Precision::F32, 1e-5),
        (Interaction::Dot, Pooling::Sum, Precision::Bf16, 1e-3),
        (Interaction::Dcn, Pooling::Mean, Precision::F32, 1e-5),
    ] {
        let case = Case::series(interaction, pooling, precision, Optimizer::Sgd);
        let alone = case.run(case.setup(|_| 0, 1, false));
        learns_as_alone(&case, &alone, bound, &format!("{interaction:?}, {pooling:?}, {precision:?}"));
    }
}

/// Of rows that are whole lines, and so many that messages pass the caches.
#[test]
fn long_messages_of_sequences_are_the_same_among_ranks() {
    let mut case = Case::series(Interaction::Dot, Pooling::Mean, Precision::F32, Optimizer::Sgd);
    (case.model.dim, case.model.ts_length, case.model.bottom) = (64, 24, vec![5, 9, 64]);
    let sequence = case.model.ts_length * case.model.dim * size_of::<f32>();
    assert!(BATCH / 2 * 2 * sequence > 256 << 10, "for the samples of one rank, both sequences of the other");
    let alone = case.run(case.setup(|_| 0, 1, true));
    assert!(case.run(case.setup(|_| 0, 2, true)) == alone);
}

#[test]
fn tables_of_mixed_dimensions_are_the_same_among_ranks() {
    for (interaction, pooling, precision, bound) in [
        (Interaction::Dot, Pooling::Sum, Precision::F32, 1e-5),
        (Interaction::Cat, Pooling::Mean, Precision::Bf16, 1e-3),
    ] {
        let case = Case::mixed(interaction, pooling, precision);
        let what = format!("{interaction:?}, {pooling:?}, {precision:?}");
        assert_eq!(case.model.dims(&case.schema.rows()), [12, 6, 3, 4]);
        let alone = case.run(case.setup(|_| 0, 1, false));
        learns_as_alone(&case, &alone, bound, &what);
        is_the_same_as_alone(&case, &what);
    }
}

#[test]
fn learned_weights_of_rows_are_the_same_among_ranks() {
    let averages = Averages { beta1: 0.9, beta2: 0.99, eps: 0.01, bias_correction: true };
    let adagrad = Optimizer::Adagrad { eps: 0.01, initial: 0.05, decay: 0.0 };
    let rowwise = Optimizer::RowwiseAdagrad { eps: 0.01, initial: 0.05 };
    let (sum, mean, f32, bf16) = (Pooling::Sum, Pooling::Mean, Precision::F32, Precision::Bf16);
    let cases = [
        (Case::mixed(Interaction::Dot, sum, f32).weighed(Optimizer::Sgd), 1e-5),
        (Case::mixed(Interaction::Cat, mean, bf16).weighed(adagrad), 1e-3),
        (Case::wide(Interaction::Cat, mean, f32, FTRL).weighed(rowwise), 1e-5),
        (Case::series(Interaction::Dot, mean, f32, Optimizer::Sgd).weighed(adagrad), 1e-5),
        (Case::own(sum, f32).weighed(Optimizer::SparseAdam { averages }), 1e-5),
        (Case::own(mean, bf16).weighed(Optimizer::Sgd), 1e-3),
    ];
    for (at, (case, bound)) in cases.iter().enumerate() {
        let alone = case.run(case.setup(|_| 0, 1, false));
        let weights: Vec<_> =
            alone.1.iter().filter(|(name, _)| name.contains("_W_l") || name.contains("row_w")).collect();
        let of_rows = case.spec.optimizers[ParamGroup::Sparse];
        let of_table = of_rows.moments().len()
            + usize::from(of_rows.row_moment().is_some())
            + usize::from(of_rows.counter().is_some());
        assert_eq!(weights.len(), 4 * (1 + of_table), "weights of each of four tables, and what is kept of them");
        let moved = |(name, values): &&(String, Vec<f32>)| {
            !name.starts_with("state") && (0..).zip(values).any(|(row, w)| *w != (row % 7) as f32 * 0.3 - 0.4)
        };
        assert_eq!(weights.into_iter().filter(moved).count(), 4, "all of them learn");
        learns_as_alone(case, &alone, *bound, &format!("case {at}"));
        is_the_same_as_alone(case, &format!("case {at}"));
    }
}

#[test]
fn layers_of_ones_own_are_the_same_among_ranks() {
    for (pooling, precision, bound) in [
        (Pooling::Sum, Precision::F32, 1e-5),
        (Pooling::Mean, Precision::F32, 1e-5),
        (Pooling::Sum, Precision::Bf16, 1e-3),
    ] {
        let case = Case::own(pooling, precision);
        let what = format!("{pooling:?}, {precision:?}");
        let alone = case.run(case.setup(|_| 0, 1, false));
        learns_as_alone(&case, &alone, bound, &what);
        is_the_same_as_alone(&case, &what);
    }
}

#[test]
fn quotients_and_remainders_are_the_same_among_ranks() {
    for (operation, interaction, pooling, precision, bound) in [
        (Composition::Mult, Interaction::Dot, Pooling::Sum, Precision::F32, 1e-5),
        (Composition::Concat, Interaction::Dcn, Pooling::Mean, Precision::F32, 1e-5),
        (Composition::Add, Interaction::Cat, Pooling::Sum, Precision::Bf16, 1e-3),
    ] {
        let case = Case::composed(operation, interaction, pooling, precision);
        let what = format!("{operation:?}, {interaction:?}, {pooling:?}, {precision:?}");
        assert_eq!(case.schema.rows(), [140, 3, 9, 52, 5, 5, 5]);
        let alone = case.run(case.setup(|_| 0, 1, false));
        learns_as_alone(&case, &alone, bound, &what);
        is_the_same_as_alone(&case, &what);
    }
}

#[test]
fn the_bits_of_a_wide_part_do_not_depend_on_ranks_where_that_is_asked_for() {
    for (interaction, pooling, precision, wide) in [
        (Interaction::Cat, Pooling::Sum, Precision::F32, FTRL),
        (Interaction::Dot, Pooling::Mean, Precision::F32, ADAM),
        (Interaction::Cat, Pooling::Sum, Precision::Bf16, FTRL),
        (Interaction::Dcn, Pooling::Sum, Precision::F32, Optimizer::Sgd),
    ] {
        let case = Case::wide(interaction, pooling, precision, wide);
        is_the_same_as_alone(&case, &format!("{interaction:?}, {pooling:?}, {precision:?}"));
    }
}

/// Each part has steps of its own, whoever has looked up their rows.
#[test]
fn parts_of_a_time_series_learn_as_the_whole_does() {
    for pooling in [Pooling::Sum, Pooling::Mean] {
        let case = Case::series(Interaction::Dot, pooling, Precision::F32, Optimizer::Sgd).times(6);
        let in_parts = Case { spec: TrainSpec { part: 64, ..case.spec }, ..case.clone() };
        for (ranks, grains) in [(1, false), (2, false), (2, true)] {
            for kind in 0..6 {
                let kind_of = |table| if kind == 5 { table } else { kind };
                let [whole, parts] = [&case, &in_parts].map(|case| case.run(case.setup(kind_of, ranks, grains)));
                assert!(whole == parts, "{ranks} ranks, scheme {kind}, {pooling:?}, by grains {grains}");
            }
        }
    }
}

#[test]
fn the_bits_of_a_time_series_do_not_depend_on_ranks_where_that_is_asked_for() {
    for (interaction, pooling, precision, layers) in [
        (Interaction::Dot, Pooling::Sum, Precision::F32, Optimizer::Sgd),
        (Interaction::Cat, Pooling::Mean, Precision::F32, ADAM),
        (Interaction::Dot, Pooling::Sum, Precision::Bf16, Optimizer::Sgd),
        (Interaction::Dcn, Pooling::Mean, Precision::F32, Optimizer::Sgd),
    ] {
        let case = Case::series(interaction, pooling, precision, layers);
        is_the_same_as_alone(&case, &format!("{interaction:?}, {pooling:?}, {precision:?}"));
    }
}

#[test]
fn rows_and_gradients_that_travel_rounded_are_near() {
    let of_wide = Case::wide(Interaction::Cat, Pooling::Sum, Precision::F32, FTRL);
    let of_series = Case::series(Interaction::Dot, Pooling::Sum, Precision::F32, Optimizer::Sgd);
    for (case, what) in [(of_wide, "wide"), (of_series, "series")] {
        let alone = case.run(case.setup(|_| 0, 1, false));
        let rounded = case.run(Setup { wires: Wires::all(Wire::Bf16), ..case.setup(|table| table, 3, false) });
        close(&alone, &rounded, 2e-3, what);
        assert!(alone.1 != rounded.1, "{what}");
    }
}
