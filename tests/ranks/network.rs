//! A second network behind the seam: one linear layer on the concatenated features. It knows no bottom MLP, leaves a
//! table unused, and its tables differ in width.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use octorec::base::config::{Config, DataConfig, ModelConfig, Precision, SourceKind};
use octorec::base::{Deadline, RankId, Result};
use octorec::data::hot::{HotSet, HotSlots};
use octorec::data::{self, Batch, Opening, Schema, Split};
use octorec::layer::{InputGradient, LayerTensor, Linear, LossLayer, Mlp};
use octorec::machine::placement::Wishes;
use octorec::machine::team::Team;
use octorec::machine::{Machine, place};
use octorec::math::brgemm::{export_rows, import_rows};
use octorec::math::{self, Grains};
use octorec::memory::{Buffer, Supply};
use octorec::model::{Announce, BuildNetwork, Network, NetworkSpec, Parameter, Stage, TrainSpec, Work};
use octorec::optim::ParamGroup;
use octorec::shard::scheme::{Part, Scheme, Sharding};
use octorec::train::{Ranks, Setup};

/// The columns of the features that the layer reads: all but the last table's.
const UNUSED: usize = 6;
const DIMS: [usize; 4] = [5, 16, 3, UNUSED];
const ROWS: [u64; 4] = [40, 300, 7, 90];

/// logit = w · features + b.
#[derive(Debug)]
struct LinearModel {
    layer: Mlp,
    loss: LossLayer,
    features: Buffer<f32>,
    /// The part of the features that is used, row-major.
    used: Buffer<f32>,
    logits: Buffer<f32>,
    row: usize,
    /// Goes before some of its stages.
    before: fn(Stage),
}

fn build(spec: &NetworkSpec<'_>, supply: &mut Supply<'_>) -> Result<Box<dyn Network>> {
    build_behind(spec, supply, |_| ())
}

fn build_behind(spec: &NetworkSpec<'_>, supply: &mut Supply<'_>, before: fn(Stage)) -> Result<Box<dyn Network>> {
    let row: usize = spec.dims.iter().zip(spec.positions).map(|(dim, positions)| dim * positions).sum();
    Ok(Box::new(LinearModel {
        layer: Mlp::new(&[row - UNUSED, 1], spec.part, InputGradient::Needed, spec.kept[ParamGroup::Dense], supply)?,
        loss: LossLayer::new(spec.config, spec.samples, spec.part, supply)?,
        features: supply.buffer("features", spec.samples * row)?,
        used: supply.buffer("used features", spec.part * (row - UNUSED))?,
        logits: supply.buffer("logits", spec.part)?,
        row,
        before,
    }))
}

impl Network for LinearModel {
    fn initialise(&mut self, seed: u64) {
        let inputs = self.row - UNUSED;
        let weight: Vec<f32> = (0..inputs).map(|at| ((at as u64 * 37 + seed) % 19) as f32 / 19.0 - 0.5).collect();
        self.layer.layers_mut()[0].import(LayerTensor::Weight, 0..1, &weight);
    }

    fn each_layer<'a>(&'a self, each: &mut dyn FnMut(&'a Linear)) {
        self.layer.layers().iter().for_each(each);
    }

    fn each_layer_mut<'a>(&'a mut self, each: &mut dyn FnMut(&'a mut Linear)) {
        self.layer.layers_mut().iter_mut().for_each(each);
    }

    fn layer_names(&self, _: usize) -> [String; 2] {
        ["linear.weight", "linear.bias"].map(str::to_owned)
    }

    fn features_mut(&mut self, samples: &Range<usize>) -> &mut [f32] {
        &mut self.features[samples.start * self.row..samples.end * self.row]
    }

    fn features(&self, samples: usize) -> &[f32] {
        &self.features[..samples * self.row]
    }

    fn bottom(&mut self, _: &Team, _: &Batch, _: &math::Part<'_>) {
        (self.before)(Stage::Bottom);
    }

    fn interact(&mut self, team: &Team, part: &math::Part<'_>) {
        let width = self.row - UNUSED;
        let rows = self.features.chunks_exact(self.row).skip(part.samples.start).take(part.len());
        self.used.chunks_exact_mut(width).zip(rows).for_each(|(to, from)| to.copy_from_slice(&from[..width]));
        import_rows(team, part.len(), &self.used, width, self.layer.input_mut());
    }

    fn top(&mut self, team: &Team, _: &Batch, part: &math::Part<'_>) {
        self.layer.forward(team, part.len(), false);
        export_rows(team, self.layer.output(), &mut self.logits[..part.len()], 1);
    }

    fn loss(&mut self, team: &Team, batch: &Batch, part: &math::Part<'_>, whole: usize) {
        let labels = &batch.labels[part.samples.clone()];
        self.loss.forward(
            team,
            part.samples.start,
            &self.logits[..part.len()],
            labels,
            batch.sample_weights(part.samples.start),
            whole,
        );
    }

    fn losses(&self, samples: usize) -> &[f64] {
        self.loss.terms(samples)
    }

    fn probabilities(&self, samples: usize) -> &[f32] {
        self.loss.probabilities(samples)
    }

    fn back_top(&mut self, team: &Team, part: &math::Part<'_>, announce: Announce<'_>) {
        let (_, gradient) = self.layer.output_and_gradient();
        import_rows(team, part.len(), self.loss.gradient(), 1, gradient);
        self.layer.backward(team, part, announce);
    }

    fn back_interact(&mut self, team: &Team, part: &math::Part<'_>, _: Announce<'_>) {
        let width = self.row - UNUSED;
        export_rows(team, self.layer.input_gradient(), &mut self.used[..part.len() * width], width);
        let rows = self.features.chunks_exact_mut(self.row).skip(part.samples.start).take(part.len());
        for (to, from) in rows.zip(self.used.chunks_exact(width)) {
            to[..width].copy_from_slice(from);
            to[width..].fill(0.0);
        }
    }

    fn back_bottom(&mut self, _: &Team, _: &math::Part<'_>, _: Announce<'_>) {
        (self.before)(Stage::BackBottom);
    }

    fn work(&self, stage: Stage, samples: usize) -> Work {
        let weights = (samples * (self.row - UNUSED)) as f64;
        match stage {
            Stage::Top => Work::arithmetic(2.0 * weights),
            Stage::BackTop => Work::arithmetic(4.0 * weights),
            _ => Work::NONE,
        }
    }
}

/// Losses, and all tensors by name.
type Outcome = (Vec<f64>, Vec<(String, Vec<f32>)>);

/// How many rows of each table reach the network: 1, pooled.
const POOLED: [usize; 4] = [1; 4];
/// More than any bag has; fewer than most have.
const SEQUENCES: [usize; 4] = [1, 5, 2, 1];

fn config() -> Config {
    let model = ModelConfig { bottom: vec![13, 4], top: vec![1], dim: 4, rows: ROWS.to_vec(), ..Default::default() };
    let data =
        DataConfig { source: SourceKind::Random, lookups: 4.into(), lookups_fixed: false, ..DataConfig::default() };
    Config { model, data, ..Config::default() }
}

fn minibatch(config: &Config) -> (Schema, Arc<Batch>) {
    let source = data::open(config, Opening::default()).unwrap();
    let mut batch = Batch::new(source.schema());
    source.open(Split::Train, 0).unwrap().read(&mut batch, 40).unwrap();
    (source.schema().clone(), Arc::new(batch))
}

fn tensors(ranks: &Ranks) -> Vec<(String, Vec<f32>)> {
    let of = |one: Parameter| {
        let values = ranks.export(&one).unwrap();
        (one.name, values)
    };
    ranks.parameters().unwrap().into_iter().map(of).collect()
}

/// Half of each table's rows.
fn half_hot() -> Arc<HotSlots> {
    let mut set = HotSet::new();
    ROWS.into_iter().for_each(|rows| set.push_some(rows, (0..rows as u32).filter(|row| row % 4 < 2)));
    Arc::new(HotSlots::new(&set))
}

fn train(ranks: usize, kind: usize, sequences: [usize; 4], grains: Option<Grains>, communicate: bool) -> Outcome {
    train_with((ranks, kind), sequences, grains, communicate, None)
}

fn train_with(
    (ranks, kind): (usize, usize),
    sequences: [usize; 4],
    grains: Option<Grains>,
    communicate: bool,
    hot: Option<Arc<HotSlots>>,
) -> Outcome {
    let config = config();
    let (schema, batch) = minibatch(&config);
    let rank = |at: usize| RankId((at % ranks) as u32);
    let halves =
        |whole: u64| vec![Part { rank: rank(0), size: whole / 2 }, Part { rank: rank(1), size: whole - whole / 2 }];
    let scheme = |table: usize| match (kind + table) % 5 {
        0 => Scheme::Table(rank(table)),
        1 => Scheme::Column(halves(DIMS[table] as u64)),
        2 => Scheme::RowContiguous(halves(ROWS[table])),
        3 => Scheme::RowCyclic((0..ranks.min(7)).map(rank).collect()),
        _ => Scheme::Replicated,
    };
    let sharding = Sharding::new(&ROWS, DIMS.to_vec(), ranks, (0..4).map(scheme).collect()).unwrap();
    let wishes = Wishes { ranks: Some(ranks), threads: Some(1), ..Wishes::default() };
    let placement = place(&Machine::load("host").unwrap(), &wishes).unwrap();
    let room = TrainSpec { precision: Precision::F32, ..TrainSpec::sgd(40) };
    let setup = Setup::new(&config.model, &schema, sharding, room, &placement);
    let mut setup = Setup { network: build, sequences: sequences.to_vec(), grains, hot, spin: false, ..setup };
    if communicate {
        setup.places.iter_mut().for_each(|place| place.comm = place.compute.clone());
    }
    let ranks = Ranks::start(setup).unwrap();
    ranks.initialise(3).unwrap();
    let losses = (0..8).map(|_| ranks.step(&batch, 0.2).unwrap()).collect();
    (losses, tensors(&ranks))
}

fn compare(alone: &Outcome, found: &Outcome, what: &str) {
    for (step, (alone, found)) in alone.0.iter().zip(&found.0).enumerate() {
        assert!((alone / found - 1.0).abs() < 1e-5, "{what}, step {step}: {found}, not {alone}");
    }
    for ((name, alone), (_, found)) in alone.1.iter().zip(&found.1) {
        let apart = alone.iter().zip(found).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
        assert!(apart < 1e-6, "{what}: {name} is {apart:e} apart");
    }
}

#[test]
fn another_network_trains_on_any_number_of_ranks_and_every_division() {
    let alone = train(1, 0, POOLED, None, false);
    assert!(alone.0[7] < alone.0[0], "it learns: {:?}", alone.0);
    let names: Vec<_> = alone.1.iter().map(|(name, _)| name.as_str()).collect();
    let tables = ["emb_l.0.weight", "emb_l.1.weight", "emb_l.2.weight", "emb_l.3.weight"];
    assert_eq!(names, [&tables[..], &["linear.weight", "linear.bias"]].concat());
    on_any_number_of_ranks(&alone, POOLED);
}

#[test]
fn sequences_come_unpooled_on_any_number_of_ranks_and_in_every_division() {
    on_any_number_of_ranks(&train(1, 0, SEQUENCES, None, false), SEQUENCES);
}

fn on_any_number_of_ranks(alone: &Outcome, sequences: [usize; 4]) {
    let ordered = train(1, 0, sequences, Some(Grains::exactly(8)), false);
    for ranks in [2, 3, 5] {
        for kind in 0..5 {
            for communicate in [false, true] {
                let found = train(ranks, kind, sequences, None, communicate);
                compare(alone, &found, &format!("{ranks} ranks, schemes from {kind}, communicate {communicate}"));
            }
            let found = train(ranks, kind, sequences, Some(Grains::exactly(8)), false);
            assert!(found == ordered, "{ranks} ranks, from {kind}: bits");
            let found = train_with((ranks, kind), sequences, None, kind == 0, Some(half_hot()));
            compare(alone, &found, &format!("{ranks} ranks, schemes from {kind}, copies of hot rows"));
            let found = train_with((ranks, kind), sequences, Some(Grains::exactly(8)), false, Some(half_hot()));
            assert!(found == ordered, "{ranks} ranks, from {kind}: bits with copies of hot rows");
        }
    }
}

/// Behind the backward pass communication threads reduce: what they do is not where the rank is.
#[test]
fn a_rank_that_panics_is_told_with_its_stage_and_step() {
    fn fail_in(at: Stage, stage: Stage) {
        assert!(at != stage, "row 7 is bad");
    }
    let failing: [(BuildNetwork, Stage); 2] = [
        (|spec, supply| build_behind(spec, supply, |at| fail_in(at, Stage::Bottom)), Stage::Bottom),
        (|spec, supply| build_behind(spec, supply, |at| fail_in(at, Stage::BackBottom)), Stage::BackBottom),
    ];
    for ((network, stage), communicate) in failing.into_iter().flat_map(|case| [(case, false), (case, true)]) {
        let error = error_of_two(network, communicate, Duration::from_secs(300));
        let told = format!("in {} #41: panicked: row 7 is bad", stage.name());
        assert!(error.contains(&told), "communicate {communicate}: {error}");
    }
}

#[test]
fn a_rank_that_stalls_is_named_within_the_deadline() {
    /// Whether a rank has stalled.
    static STALLED: AtomicBool = AtomicBool::new(false);
    fn stall(at: Stage) {
        if at == Stage::BackBottom && !STALLED.swap(true, Ordering::Relaxed) {
            std::thread::sleep(Duration::from_secs(6));
        }
    }
    let error = error_of_two(|spec, supply| build_behind(spec, supply, stall), false, Duration::from_secs(3));
    assert!(error.contains(" #41: waited 3 s for rank"), "{error}");
    assert!(error.contains(&format!("in {} #41)", Stage::BackBottom.name())), "{error}");
}

/// What step 41 of a run of two ranks with this network fails with, the first of this process.
fn error_of_two(network: BuildNetwork, communicate: bool, deadline: Duration) -> String {
    let config = config();
    let (schema, batch) = minibatch(&config);
    let wishes = Wishes { ranks: Some(2), threads: Some(1), ..Wishes::default() };
    let placement = place(&Machine::load("host").unwrap(), &wishes).unwrap();
    let schemes = (0..4).map(|table| Scheme::Table(RankId(table % 2))).collect();
    let sharding = Sharding::new(&ROWS, DIMS.to_vec(), 2, schemes).unwrap();
    let setup = Setup::new(&config.model, &schema, sharding, TrainSpec::sgd(40), &placement);
    let mut setup =
        Setup { network, sequences: POOLED.to_vec(), spin: false, deadline: Deadline::fixed(deadline), ..setup };
    if communicate {
        setup.places.iter_mut().for_each(|place| place.comm = place.compute.clone());
    }
    let ranks = Ranks::start(setup).unwrap();
    ranks.initialise(3).unwrap();
    ranks.continue_after(40).unwrap();
    ranks.step(&batch, 0.2).unwrap_err().to_string()
}

/// One step in plain loops: a sequence's rows lie side by side in their order, after zeros; the first ones do not count
/// where there are too many.
#[test]
fn a_step_on_sequences_is_what_its_definition_says() {
    let config = config();
    let (schema, batch) = minibatch(&config);
    let machine = Machine::load("host").unwrap();
    let placement = place(&machine, &Wishes { ranks: Some(1), threads: Some(2), ..Wishes::default() }).unwrap();
    let sharding = Sharding::new(&ROWS, DIMS.to_vec(), 1, vec![Scheme::Table(RankId(0)); 4]).unwrap();
    let room = TrainSpec { ..TrainSpec::sgd(40) };
    let setup = Setup::new(&config.model, &schema, sharding, room, &placement);
    let ranks = Ranks::start(Setup { network: build, sequences: SEQUENCES.to_vec(), ..setup }).unwrap();
    ranks.initialise(3).unwrap();
    let before = tensors(&ranks);
    let found = ranks.step(&batch, 0.2).unwrap();
    let after = tensors(&ranks);

    let (weight, bias) = (&before[4].1, f64::from(before[5].1[0]));
    let mut expected: Vec<Vec<f64>> =
        before[..4].iter().map(|(_, x)| x.iter().map(|x| f64::from(*x)).collect()).collect();
    let (mut loss, mut start) = (0.0, [0; 4]);
    for table in 1..4 {
        start[table] = start[table - 1] + DIMS[table - 1] * SEQUENCES[table - 1];
    }
    for sample in 0..40 {
        // Each of its look-ups with the first feature of its row; the last table is not used.
        let mut places = Vec::new();
        for (table, &positions) in SEQUENCES.iter().enumerate().take(3) {
            for (behind, row) in batch.bags[table].of(sample).iter().rev().enumerate() {
                match positions {
                    1 => places.push((table, *row as usize, start[table])),
                    _ if behind < positions => {
                        let position = positions - 1 - behind;
                        places.push((table, *row as usize, start[table] + position * DIMS[table]));
                    }
                    _ => {}
                }
            }
        }
        let dot = |&(table, row, at): &(usize, usize, usize)| -> f64 {
            let row = before[table].1[row * DIMS[table]..][..DIMS[table]].iter();
            row.zip(&weight[at..]).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum()
        };
        let logit: f64 = bias + places.iter().map(dot).sum::<f64>();
        let (p, label) = (1.0 / (1.0 + (-logit).exp()), f64::from(batch.labels[sample]));
        loss -= (label * p.ln() + (1.0 - label) * (1.0 - p).ln()) / 40.0;
        for (table, row, at) in places {
            for column in 0..DIMS[table] {
                expected[table][row * DIMS[table] + column] -=
                    0.2 * (p - label) / 40.0 * f64::from(weight[at + column]);
            }
        }
    }
    assert!((found - loss).abs() < 1e-6, "{found}, not {loss}");
    for (table, expected) in expected.iter().enumerate() {
        let apart = after[table].1.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        let moved = before[table].1.iter().zip(expected).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-6 && (table == 3 || moved > 1e-4), "table {table} is {apart:e} apart, moved by {moved:e}");
    }
}
