//! A training step allocates nothing once it has run: neither from the heap nor, for its large buffers, from the
//! system.
//!
//! All threads of the process are counted, and all of them are the step's: minibatches are drawn before. So the test
//! has a process of its own, which runs nothing beside the step.

use std::sync::Arc;

use octorec::base::RankId;
use octorec::base::config::{
    Config, DataConfig, Interaction, ModelConfig, Pooling, Precision, Update, WeightedPooling,
};
use octorec::data::derived::Derived;
use octorec::data::hot::{HotSet, HotSlots};
use octorec::data::{self, Batch, Opening, Split};
use octorec::machine::placement::{CommCores, Wishes};
use octorec::machine::{Machine, place};
use octorec::math::Grains;
use octorec::model::TrainSpec;
use octorec::optim::{Averages, ByGroup, Optimizer};
use octorec::shard::scheme::{Part, Scheme, Sharding};
use octorec::simd::Isa;
use octorec::train::{Ranks, Setup};
use stats_alloc::{Region, Stats};

use crate::{COUNTED, alone};

/// Steps that are counted. After 256, `auto` looks at the look-ups again.
const fn counted(update: Update) -> usize {
    if matches!(update, Update::Auto) { 260 } else { 12 }
}

/// Pages of the address space, from where whole buffers are mapped.
fn mapped_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux tells it");
    text.split_whitespace().next().and_then(|pages| pages.parse().ok()).expect("a number")
}

/// What `work` took from the heap and from the system.
fn taken(work: impl FnOnce()) -> (Stats, i128) {
    let pages = mapped_pages();
    let region = Region::new(COUNTED);
    work();
    let stats = region.change();
    (stats, i128::from(mapped_pages()) - i128::from(pages))
}

fn config(interaction: Interaction, pooling: Pooling) -> Config {
    let bottom = vec![13, 70, 16];
    let rows = vec![500, 3, 40];
    let (top, cross_rank) = (vec![33, 1], 9);
    let model = ModelConfig { bottom, top, dim: 16, rows, interaction, pooling, cross_rank, ..ModelConfig::default() };
    let source = octorec::base::config::SourceKind::Random;
    let data = DataConfig { source, lookups: 4.into(), zipf: 1.05, ..DataConfig::default() };
    Config { model, data, ..Config::default() }
}

fn rank_of(at: usize, ranks: usize) -> RankId {
    RankId((at % ranks) as u32)
}

/// Two parts.
fn half(whole: u64, ranks: usize) -> Vec<Part> {
    let part = |at: usize, size: u64| Part { rank: rank_of(at, ranks), size };
    vec![part(1, whole / 2), part(0, whole - whole / 2)]
}

fn batches(config: &Config, sizes: &[usize]) -> Vec<Arc<Batch>> {
    let source = Derived::of(&config.model, data::open(config, Opening::default()).unwrap()).unwrap();
    let mut reader = source.open(Split::Train, 0).unwrap();
    let draw = |&size: &usize| {
        let mut batch = Batch::new(source.schema());
        reader.read(&mut batch, size).unwrap();
        Arc::new(batch)
    };
    sizes.iter().map(draw).collect()
}

/// Fails if steps take memory once each minibatch was trained on.
fn nothing_is_taken(ranks: &Ranks, batches: &[Arc<Batch>], count: usize, name: &str) {
    ranks.initialise(1).unwrap();
    let steps = |count: usize| {
        let losses = batches.iter().cycle().take(count);
        losses.map(|batch| ranks.step(batch, 0.01).unwrap()).sum::<f64>()
    };
    steps(batches.len());
    // The test harness, too, may say something meanwhile, and a channel takes memory when somebody first waits at it,
    // which may be late, and threads of ranks before may still be ending; but not always, and a step is always the
    // same.
    let round = |_| taken(|| assert!(steps(count).is_finite(), "the step trains"));
    let counts = |stats: &Stats| (stats.allocations, stats.reallocations, stats.deallocations);
    let rounds = (0..8).map(round).map(|(stats, pages)| (counts(&stats), pages));
    let least = rounds.min_by_key(|((new, grown, gone), pages)| (new + grown + gone, pages.unsigned_abs()));
    let (counts, pages) = least.expect("eight rounds");
    assert_eq!((counts, pages), ((0, 0, 0), 0), "{name}");
    println!("nothing allocated: {name}");
}

/// Fails if it takes memory for the samples of a training step to score a few others.
fn scoring_takes_little(ranks: &Ranks, [large, small]: [&Arc<Batch>; 2]) {
    ranks.step(large, 0.01).unwrap();
    let round = |_| taken(|| assert_eq!(ranks.predict(small).unwrap().len(), small.samples())).0.bytes_allocated;
    let least = (0..8).map(round).min().expect("eight rounds");
    assert!(least < 32 << 10, "{least} bytes for {} samples", small.samples());
}

/// Two of three rows of each table.
fn hot(rows: &[u64]) -> Arc<HotSlots> {
    let mut set = HotSet::new();
    rows.iter().for_each(|rows| set.push_some(*rows, (0..*rows as u32).filter(|row| row % 3 > 0)));
    Arc::new(HotSlots::new(&set))
}

#[test]
fn a_step_allocates_nothing_once_it_has_run() {
    if !alone("allocation::a_step_allocates_nothing_once_it_has_run") {
        return;
    }
    let (seen, _) = taken(|| drop(std::hint::black_box(vec![1u8; 100])));
    assert_eq!(seen.allocations, 1, "the heap is counted");
    let (_, pages) = taken(|| std::mem::forget(octorec::memory::Buffer::<u8>::zeroed(1 << 20)));
    assert!(pages >= 256, "mapped buffers are counted: {pages}");

    let updates = [Update::Serial, Update::Atomic, Update::Rtm, Update::RaceFree, Update::Sorted, Update::Auto];
    for threads in [1, 2] {
        for (interaction, pooling, precision) in [
            (Interaction::Dot, Pooling::Sum, Precision::F32),
            (Interaction::Cat, Pooling::Mean, Precision::F32),
            (Interaction::Dot, Pooling::Sum, Precision::Bf16),
            (Interaction::Dcn, Pooling::Sum, Precision::F32),
            (Interaction::Dcn, Pooling::Sum, Precision::Bf16),
        ] {
            let config = config(interaction, pooling);
            // An epoch ends with a smaller minibatch.
            let batches = batches(&config, &[96, 96, 96, 41]);
            let schema = data::open(&config, Opening::default()).unwrap().schema().clone();
            for (update, update_fused) in updates.into_iter().flat_map(|update| [(update, true), (update, false)]) {
                let spec = TrainSpec { update, update_fused, precision, ..TrainSpec::sgd(96) };
                let ranks = crate::alone::alone(&config.model, &schema, spec, threads, Isa::best()).unwrap();
                let name =
                    format!("{update:?}, fused: {update_fused}, {interaction:?}, {precision:?}, {threads} threads");
                nothing_is_taken(&ranks, &batches, counted(update), &name);
            }
        }
    }
    // Gradients of long slices, which are summed in chains, and rows of large minibatches, moved by their sums.
    let large = config(Interaction::Dot, Pooling::Sum);
    let long = batches(&large, &[5000, 5000, 5000, 41]);
    let schema = data::open(&large, Opening::default()).unwrap().schema().clone();
    let optimizers = ByGroup::of_kinds(Optimizer::Sgd, Optimizer::SgdOfSums);
    for precision in [Precision::F32, Precision::Bf16] {
        let spec = TrainSpec { precision, optimizers, ..TrainSpec::sgd(5000) };
        let ranks = crate::alone::alone(&large.model, &schema, spec, 2, Isa::best()).unwrap();
        nothing_is_taken(&ranks, &long, 12, &format!("5,000 samples, {precision:?}"));
    }
    teams_of_ranks_take_nothing();
    // A time series, and tables narrower than others.
    let series =
        |model: ModelConfig| ModelConfig { ts_length: 2, sequences: vec!["C1".to_owned(), "C3".to_owned()], ..model };
    let mixed = |model: ModelConfig| ModelConfig { md_temperature: 0.3, md_threshold: 1, ..model };
    let plain = || config(Interaction::Dot, Pooling::Sum);
    let quotients = |model: ModelConfig| ModelConfig { qr_collisions: 3, qr_threshold: 10, ..model };
    for (name, model) in [
        ("a time series", series(plain().model)),
        ("mixed dimensions", mixed(plain().model)),
        ("quotients", quotients(plain().model)),
    ] {
        let config = Config { model, ..plain() };
        let batches = batches(&config, &[96, 96, 96, 41]);
        let source = Derived::of(&config.model, data::open(&config, Opening::default()).unwrap()).unwrap();
        let schema = source.schema().clone();
        for precision in [Precision::F32, Precision::Bf16] {
            let spec = TrainSpec { precision, ..TrainSpec::sgd(96) };
            let ranks = crate::alone::alone(&config.model, &schema, spec, 2, Isa::best()).unwrap();
            nothing_is_taken(&ranks, &batches, 12, &format!("{name}, {precision:?}"));
        }
    }
    // Several ranks, every way to divide a table among them, and every way to reduce dense gradients: also of layers
    // without biases.
    let config = config(Interaction::Dcn, Pooling::Mean);
    let batches = self::batches(&config, &[96, 96, 96, 41]);
    let schema = data::open(&config, Opening::default()).unwrap().schema().clone();
    let averages = Averages { beta1: 0.9, beta2: 0.999, eps: 1e-8, bias_correction: true };
    let (sgd, adam) = (Optimizer::Sgd, Optimizer::Adam { averages, decay: 0.0 });
    let pairs = [
        (2, (sgd, sgd)),
        (4, (sgd, sgd)),
        (2, (Optimizer::Momentum { momentum: 0.9, decay: 0.0 }, Optimizer::SparseAdam { averages })),
        (2, (adam, Optimizer::RowwiseAdagrad { eps: 1e-8, initial: 0.0 })),
        (2, (Optimizer::Lamb { averages, decay: 0.0 }, sgd)),
    ];
    for (count, (optimizer, optimizer_rows)) in pairs {
        let clip_norm = (optimizer != sgd).then_some(0.01);
        let optimizers = ByGroup::of_kinds(optimizer, optimizer_rows);
        let spec = TrainSpec { optimizers, clip_norm, ..TrainSpec::sgd(96) };
        let columns = match optimizer_rows.row_moment() {
            None => Scheme::Column(half(16, count)),
            Some(_) => Scheme::RowContiguous(half(40, count)),
        };
        let wishes = Wishes { ranks: Some(count), threads: Some(1), ..Wishes::default() };
        let placement = place(&Machine::load("host").unwrap(), &wishes).unwrap();
        let rank = |at: usize| rank_of(at, count);
        for schemes in [
            // Tables that are looked up, summed and moved together.
            vec![Scheme::Replicated, Scheme::Replicated, columns],
            vec![
                Scheme::RowContiguous(half(500, count)),
                Scheme::Table(rank(1)),
                Scheme::RowCyclic((0..count).map(rank).collect()),
            ],
        ] {
            let sharding =
                Sharding::new(&config.model.rows, config.model.dims(&config.model.rows), count, schemes).unwrap();
            let setup = Setup { spin: false, ..Setup::new(&config.model, &schema, sharding, spec, &placement) };
            let mut with_threads = setup.clone();
            with_threads.places.iter_mut().for_each(|place| place.comm = place.compute.clone());
            let mut weighed = setup.clone();
            weighed.config.weighted_pooling = WeightedPooling::Learned;
            let by_grains = Setup { grains: Some(Grains::exactly(8)), ..setup.clone() };
            let copies = |setup: &Setup| Setup { hot: Some(hot(&config.model.rows)), ..setup.clone() };
            let with_copies = [("copies, blocking", copies(&setup)), ("copies, by grains", copies(&by_grains))];
            let ways = [("blocking", setup), ("overlapped", with_threads), ("by grains", by_grains)];
            // Columns of rows that have one weight are not divided.
            let divides = |scheme: &Scheme| matches!(scheme, Scheme::Column(_));
            let weighed = (!weighed.sharding.schemes().iter().any(divides))
                .then(|| [("learned weights, copies", copies(&weighed)), ("learned weights", weighed)]);
            for (way, setup) in ways.into_iter().chain(with_copies).chain(weighed.into_iter().flatten()) {
                let name = format!("{count} ranks, {way}, {optimizer_rows:?}, {:?}", setup.sharding.schemes());
                nothing_is_taken(&Ranks::start(setup).unwrap(), &batches, 12, &name);
            }
        }
    }
}

/// Several threads of several ranks, with so many look-ups in wide rows that they share out what there is to do with
/// copies and sums.
fn teams_of_ranks_take_nothing() {
    const BATCH: usize = 5000;
    let mut config = config(Interaction::Dot, Pooling::Sum);
    (config.model.bottom, config.model.dim, config.model.rows) = (vec![13, 96], 96, vec![9000, 300, 2000]);
    let batches = batches(&config, &[BATCH, BATCH, BATCH, 41]);
    let schema = data::open(&config, Opening::default()).unwrap().schema().clone();
    let wishes = Wishes { ranks: Some(2), threads: Some(2), comm_cores: CommCores::Count(0), ..Wishes::default() };
    let placement = place(&Machine::load("host").unwrap(), &wishes).unwrap();
    let schemes = vec![Scheme::RowContiguous(half(9000, 2)), Scheme::Replicated, Scheme::Column(half(96, 2))];
    let sharding = Sharding::new(&config.model.rows, config.model.dims(&config.model.rows), 2, schemes).unwrap();
    let setup = Setup::new(&config.model, &schema, sharding, TrainSpec::sgd(BATCH), &placement);
    for hot in [None, Some(hot(&config.model.rows))] {
        let name = format!("two threads of two ranks, copies: {}", hot.is_some());
        let setup = Setup { spin: false, hot, ..setup.clone() };
        let ranks = Ranks::start(setup).unwrap();
        nothing_is_taken(&ranks, &batches, batches.len(), &name);
        scoring_takes_little(&ranks, [&batches[0], &batches[3]]);
    }
}
