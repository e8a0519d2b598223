//! Steps whose time follows from a few divisions.

use super::{MessageKind, Outcome, Rates, Scene, simulate};
use crate::base::config::{Interaction, ModelConfig, OptimizerName, TrainConfig};
use crate::collective::Payload;
use crate::collective::plan::direct;
use crate::machine::placement::{CommCores, Wishes};
use crate::machine::site::Known;
use crate::machine::{Machine, Site, place};
use crate::model::{Limits, Shape, Stage};
use crate::optim::{Optimizer, ParamState};
use crate::shard::{Kind, Model, Options, RankLoad, Reserve, TableLoad, Workload, plan};

/// Two nodes of four cores: 100 GB/s and 1000 GFLOP/s each, 10 GB/s between them.
const MACHINE: &str = r#"
    name = "pair"
    [[node]]
    ids = "0-1"
    cores = 4
    memory_gib = 64
    memory_gb_s = 100
    peak_f32_gflop_s = 1000
    [[link]]
    pairs = [[0, 1]]
    gb_s = 10
    latency_ns = 1
"#;

fn workload(batch: usize) -> Workload {
    let table = |name: &str| TableLoad {
        name: name.to_owned(),
        rows: 1 << 20,
        dim: 64,
        positions: 1,
        lookups: 1.0,
        longest: 1,
        skew: 0.0,
        weighted: false,
        state_bytes: 0,
        row_weight_bytes: 0,
        row_state_bytes: 0,
        sorting: 0,
        stored: false,
    };
    Workload {
        tables: vec![table("a"), table("b")],
        batch,
        weight_bytes: 4,
        exchange_bytes: 4,
        payload: Payload::F32,
        dense_bytes: 0,
        sample_bytes: 0,
        part_bytes: 0,
        part_rows: 1,
        part: None,
        layers: Vec::new(),
        collective: None,
        sample_operations: 0,
        bf16: false,
        learns: true,
        grains: None,
        reserve: Reserve::default(),
    }
}

/// A network of two columns of 64 numbers each beside a bottom layer of 64, whose top layers have these outputs.
fn shape(top: &[usize], cross_rank: Option<usize>) -> Shape {
    network(&[16, 64], top, cross_rank)
}

/// The same with these bottom layers.
fn network(bottom: &[usize], top: &[usize], cross_rank: Option<usize>) -> Shape {
    let interaction = if cross_rank.is_some() { Interaction::Dcn } else { Interaction::Cat };
    let model = ModelConfig {
        bottom: bottom.to_vec(),
        dim: 64,
        interaction,
        cross_layers: 1,
        cross_rank: cross_rank.unwrap_or(1),
        // A network ends in one number; what costs anything is before.
        top: [top, &[1]].concat(),
        ..ModelConfig::default()
    };
    let mut shape = Shape::of(&model, &[1; 2], &[64; 2]);
    shape.blocks.last_mut().unwrap().layers.pop();
    shape
}

fn step(ranks: usize, comm_cores: usize, overlap: bool, batch: usize, shape: &Shape, rates: &Rates) -> Outcome {
    divided(MACHINE, Kind::Table, (ranks, comm_cores, overlap), batch, shape, rates)
}

/// The same on a machine that is described so, with tables that are divided in this way.
fn divided(
    machine: &str,
    scheme: Kind,
    (ranks, comm_cores, overlap): (usize, usize, bool),
    batch: usize,
    shape: &Shape,
    rates: &Rates,
) -> Outcome {
    trained(machine, scheme, (ranks, comm_cores, overlap), batch, shape, rates, &TrainConfig::default())
}

/// The same with the layers' optimizer and clipping of this configuration.
fn trained(
    machine: &str,
    scheme: Kind,
    (ranks, comm_cores, overlap): (usize, usize, bool),
    batch: usize,
    shape: &Shape,
    rates: &Rates,
    train: &TrainConfig,
) -> Outcome {
    let machine = Machine::parse(machine, "here").unwrap();
    let wishes = Wishes { ranks: Some(ranks), comm_cores: CommCores::Count(comm_cores), ..Wishes::default() };
    let placement = place(&machine, &wishes).unwrap();
    let site = Site::new(&machine, &placement, Known::default());
    let workload = workload(batch);
    let model = Model::new(&workload, &site);
    let options = Options { replicate_below: 0, scheme: Some(scheme) };
    let plan = plan(&model, &options).unwrap();
    let reduction = (ranks > 1).then(|| direct(ranks));
    simulate(&Scene {
        shape,
        kept: ParamState { optimizer: Optimizer::dense(train), ..ParamState::default() },
        clips: train.clip_norm > 0.0,
        model: &model,
        rows: &RankLoad::without_copies(&model, &plan.sharding),
        placement: &placement,
        reduction: reduction.as_ref(),
        payload: Payload::F32,
        overlap,
        rates,
    })
}

fn near(found: f64, wanted: f64, part: f64) {
    assert!((found / wanted - 1.0).abs() < part, "{found:e} is not {wanted:e}");
}

#[test]
fn layers_of_an_interaction_take_their_time_and_are_reduced() {
    let (batch, plain) = (4096, shape(&[256], None));
    let crossed = shape(&[256], Some(1000));
    assert_eq!(crossed.parameters() - plain.parameters(), 192 * 1000 + 1000 * 192 + 192);
    let rates = Rates::at_the_limits();
    let limits = Limits { gflop_s: 1000.0, stream_gb_s: 100.0, gather_gb_s: 100.0, scatter_gb_s: 100.0 };
    let ms = |shape: &Shape| -> f64 {
        Stage::ALL.into_iter().map(|stage| limits.ms(&shape.work(stage, batch, ParamState::default()))).sum()
    };
    let took = |shape: &Shape| step(1, 0, true, batch, shape, &rates).step_s * 1e3;
    // Backward, what is beside the layers comes after them: some of it is no longer hidden.
    let (more, least) = (took(&crossed) - took(&plain), ms(&crossed) - ms(&plain));
    assert!(more > 0.99 * least && more < 1.1 * least, "{more} ms, of {least}");
    // Of two ranks, gradients of all layers are reduced.
    let reduced = |shape: &Shape| {
        let outcome = step(2, 0, false, batch, shape, &rates);
        outcome.exposed_s[MessageKind::DenseGradients as usize]
    };
    let bytes = |shape: &Shape| shape.parameters() as f64;
    near(reduced(&crossed) / reduced(&plain), bytes(&crossed) / bytes(&plain), 0.05);
}

#[test]
fn a_rank_alone_takes_the_sum_of_its_stages_and_waits_for_nobody() {
    let batch = 4096;
    let limits = Limits { gflop_s: 1000.0, stream_gb_s: 100.0, gather_gb_s: 100.0, scatter_gb_s: 100.0 };
    let ms = |shape: &Shape, stage| limits.ms(&shape.work(stage, batch, ParamState::default()));
    let mut rates = Rates::at_the_limits();
    let alone = |shape: &Shape| {
        let outcome = step(1, 0, true, batch, shape, &rates);
        let all: f64 = Stage::ALL.into_iter().map(|stage| ms(shape, stage)).sum();
        // Two tables: a row of 256 bytes read for a look-up, a sum written, an id read; as much and a row's write to
        // update.
        let rows = (2 * batch) as f64 * (256.0 + 256.0 + 4.0 + 512.0 + 256.0 + 4.0) / 100e6;
        near(outcome.step_s * 1e3, all + rows, 1e-3);
        near(outcome.compute_s, outcome.step_s, 1e-9);
        assert_eq!(outcome.exposed_s, [0.0; MessageKind::ALL.len()]);
        outcome
    };
    // Of the bottom MLP's backward pass only the first layer is worth half.
    alone(&network(&[16, 256, 64], &[], None));
    let shape = shape(&[256], None);
    let outcome = alone(&shape);
    let share = outcome.stages_s[Stage::BackTop as usize] / outcome.step_s;
    assert_eq!(outcome.bottleneck(), format!("back top MLP ({:.0} % of the step)", share * 1e2));

    // Half the rate of one stage, and what is no stage's.
    rates.of_limit[Stage::Top as usize] = 0.5;
    (rates.step_s, rates.sample_s, rates.whole_sample_s) = (1e-3, 1e-6, 2e-6);
    let slower = step(1, 0, true, batch, &shape, &rates);
    near((slower.step_s - outcome.step_s) * 1e3, ms(&shape, Stage::Top) + 1.0 + 3e-3 * batch as f64, 1e-6);
}

#[test]
fn an_update_of_replicated_tables_is_told_where_it_limits_a_step() {
    let (shape, mut rates) = (shape(&[64], None), Rates::at_the_limits());
    rates.of_limit[Stage::UpdateRows as usize] = 0.01;
    for (scheme, told) in
        [(Kind::Table, "% of the step)"), (Kind::Replicated, "% of the step, most of it of replicated tables)")]
    {
        let limit = divided(MACHINE, scheme, (2, 0, false), 4096, &shape, &rates).bottleneck();
        assert!(limit.starts_with("update rows (") && limit.ends_with(told), "{limit}");
    }
}

#[test]
fn who_waits_for_lists_behind_layers_waits_for_the_layers() {
    // 64 MiB of a layer's sums and weights are on the link for some milliseconds, short lists for microseconds.
    let (wide, rates) = (shape(&[87_381], None), Rates { core_gb_s: 1e3, ..Rates::at_the_limits() });
    let outcome = divided(MACHINE, Kind::Replicated, (2, 1, true), 64, &wide, &rates);
    let [lists, dense] =
        [MessageKind::ReplicaGradients, MessageKind::DenseGradients].map(|kind| outcome.exposed_s[kind as usize]);
    assert!(lists < 0.1 * dense, "{lists:e}, {dense:e}");
    assert!(outcome.bottleneck().starts_with("dense gradients on link node "), "{}", outcome.bottleneck());
}

#[test]
fn outcomes_of_two_orders_are_mixed_by_their_shares() {
    let rates = Rates::at_the_limits();
    let [a, b] = [64, 256].map(|top| step(1, 0, true, 4096, &shape(&[top], None), &rates));
    let mixed = a.clone().mixed(&b, 0.25);
    assert_eq!(mixed.step_s, 0.75 * a.step_s + 0.25 * b.step_s);
    assert_eq!(mixed.compute_s, 0.75 * a.compute_s + 0.25 * b.compute_s);
}

#[test]
fn what_a_sample_takes_besides_is_told_of_all_cores_and_done_by_those_that_compute() {
    let (shape, rates) = (shape(&[64], None), Rates::at_the_limits());
    let besides = Rates { sample_s: 1e-6, ..rates.clone() };
    let [plain, more] = [&rates, &besides].map(|rates| step(2, 1, false, 4096, &shape, rates).step_s);
    near(more - plain, 1e-6 * 2048.0 * 4.0 / 3.0, 1e-6);
}

#[test]
fn between_hosts_cores_copy_what_goes_and_what_comes_and_work_for_the_network() {
    // A core moves 1 GB/s, and the last byte comes a millisecond late.
    let hosts = MACHINE.replace("cores = 4", "cores = 4\n    nodes_per_host = 1");
    let hosts = hosts.replace("latency_ns = 1", "latency_ns = 1e6");
    let (shape, rows) = (shape(&[64], None), f64::from(1 << 20) * (1.0 - (-2048.0 / f64::from(1 << 20)).exp()));
    let pooled = (Kind::Table, MessageKind::PooledRows, 2048.0 * 64.0 * 4.0);
    let lists = (Kind::Replicated, MessageKind::ReplicaGradients, 2.0 * rows * 66.0 * 4.0);
    // What is told of the implementation, in copies, and of the link, in seconds of a core, adds up.
    for (network_copies, core_s_per_gb) in [(0.0, 0.0), (2.0, 0.0), (0.0, 2.0), (2.0, 2.0)] {
        let rates = Rates { core_gb_s: 1.0, network_copies, ..Rates::at_the_limits() };
        let worked = format!("latency_ns = 1e6\n    core_s_per_gb = {core_s_per_gb}");
        let hosts = if core_s_per_gb > 0.0 { hosts.replace("latency_ns = 1e6", &worked) } else { hosts.clone() };
        for (scheme, kind, bytes) in [pooled, lists] {
            let outcome = divided(&hosts, scheme, (2, 1, false), 4096, &shape, &rates);
            let took_s = outcome.exposed_s[kind as usize] + outcome.hidden_s[kind as usize];
            near(took_s, 2.0 * (2.0 + network_copies + core_s_per_gb) * bytes / 1e9 + 1e-3, 1e-3);
        }
    }
}

#[test]
fn what_the_network_takes_of_compute_cores_they_lack_while_messages_travel() {
    let hosts = MACHINE.replace("cores = 4", "cores = 4\n    nodes_per_host = 1");
    // All four cores of each rank are kept busy by 1 GB/s that leaves and 1 GB/s that comes: a tenth of the link.
    let worked = hosts.replace("latency_ns = 1", "latency_ns = 1\n    core_s_per_gb = 2");
    let (shape, rates) = (shape(&[64], None), Rates::at_the_limits());
    let [free, taken] = [&hosts, &worked].map(|hosts| divided(hosts, Kind::Table, (2, 0, false), 4096, &shape, &rates));
    // Pooled rows and their gradients, each way.
    let bytes = 2.0 * 2048.0 * 64.0 * 4.0;
    let most = 2.0 * bytes * 2.0 / 4.0 / 1e9;
    let more = taken.step_s - free.step_s;
    assert!(more > 0.3 * most && more < 2.0 * most, "{more:e} s longer, the work of {most:e} s; {taken:?}");
}

#[test]
fn two_ranks_halve_what_they_compute_and_wait_for_a_slow_link() {
    let (shape, rates) = (shape(&[64], None), Rates::at_the_limits());
    let [one, two] = [1, 2].map(|ranks| step(ranks, 0, true, 65_536, &shape, &rates));
    // Half of each table's rows go to the other rank.
    let bytes = 65_536.0 / 2.0 * 64.0 * 4.0;
    for kind in [MessageKind::PooledRows, MessageKind::Gradients] {
        let found = two.exposed_s[kind as usize];
        assert!(found > 0.5 * bytes / 10e9 && found < 1.1 * bytes / 10e9, "{found:e}");
    }
    assert!(two.compute_s > 0.4 * one.compute_s && two.compute_s < 0.75 * one.compute_s, "{one:?} {two:?}");
    assert!(two.bottleneck().contains("on link node"), "{}", two.bottleneck());
    let links = two.busy.iter().filter(|(name, _)| name.starts_with("link")).count();
    assert_eq!(links, 2);
}

#[test]
fn a_memory_that_exchanges_keep_busier_than_the_link_is_what_limits_them() {
    // 32 MiB of sums and as much of weights each way: 1.7 ms of the link. Of a memory a byte is read, and where it
    // lands read and written as often as it takes to add it to what is there: 3 ms.
    let machine = MACHINE.replace("gb_s = 10\n", "gb_s = 40\n");
    let limit = divided(&machine, Kind::Table, (2, 0, false), 64, &shape(&[87_381], None), &Rates::at_the_limits());
    assert!(limit.bottleneck().starts_with("dense gradients on memory of node "), "{}", limit.bottleneck());
}

#[test]
fn layers_are_reduced_behind_the_backward_pass_or_waited_for() {
    // Half of 64 MiB each way over the link, as gradients and as weights; nobody is slowed by copying.
    let (wide, rates) = (shape(&[87_381], None), Rates { core_gb_s: 1e3, ..Rates::at_the_limits() });
    let dense = MessageKind::DenseGradients as usize;
    let wire_s = f64::from(64 << 20) / 10e9;
    let [overlapped, after] = [true, false].map(|overlap| step(2, 1, overlap, 64, &wide, &rates));
    near(overlapped.exposed_s[dense] + overlapped.hidden_s[dense], wire_s, 0.15);
    assert!(after.exposed_s[dense] >= overlapped.exposed_s[dense]);
    near(after.exposed_s[dense], wire_s, 0.15);

    // With a thousand times the samples the backward pass of the bottom layer does not matter: layers come back in the
    // next step, behind look-ups, unless the step waits for them.
    let waits = Rates { waits_before_update: true, ..rates.clone() };
    let [later, now] = [&rates, &waits].map(|rates| step(2, 1, true, 8192, &wide, rates));
    assert!(now.exposed_s[dense] > later.exposed_s[dense], "{now:?} {later:?}");
    assert!(now.step_s > later.step_s);

    // Nothing is busy for longer than there is time, be it after the last rank's last stage.
    for outcome in [&overlapped, &after, &later, &now] {
        assert!(outcome.busy.iter().all(|(_, share)| *share <= 1.0 + 1e-9), "{:?}", outcome.busy);
    }

    // Compute cores have nothing to hide behind.
    let blocking = step(2, 0, true, 64, &wide, &rates);
    assert!(blocking.hidden_s[dense] < 0.05 * wire_s && blocking.exposed_s[dense] > 0.9 * wire_s, "{blocking:?}");
}

#[test]
fn gradients_of_replicated_tables_are_sent_and_waited_for_before_copies_move() {
    let (shape, rates) = (shape(&[64], None), Rates { core_gb_s: 1e3, ..Rates::at_the_limits() });
    let of = |comm_cores, overlap| divided(MACHINE, Kind::Replicated, (2, comm_cores, overlap), 65_536, &shape, &rates);
    // Of two tables the rows that 32,768 look-ups name of 2^20: a sum of 64 numbers of each, an offset and the row's
    // number.
    let rows = f64::from(1 << 20) * (1.0 - (-32_768.0 / f64::from(1 << 20)).exp());
    let wire_s = 2.0 * rows * 66.0 * 4.0 / 10e9;
    let (replicas, dense) = (MessageKind::ReplicaGradients as usize, MessageKind::DenseGradients as usize);
    let [blocking, after, behind] = [of(0, true), of(1, false), of(1, true)];
    for outcome in [&blocking, &after, &behind] {
        near(outcome.exposed_s[replicas] + outcome.hidden_s[replicas], wire_s, 0.02);
        assert!(outcome.exposed_s[..replicas].iter().all(|seconds| *seconds == 0.0), "{:?}", outcome.exposed_s);
        assert!(outcome.exposed_s[dense] < 0.1 * wire_s, "{:?}", outcome.exposed_s);
    }
    near(blocking.exposed_s[replicas], wire_s, 0.02);
    near(after.exposed_s[replicas], wire_s, 0.02);
    // The bottom MLP runs back beside it.
    assert!(behind.exposed_s[replicas] < 0.98 * wire_s, "{:?}", behind.exposed_s);
    assert!(behind.step_s < after.step_s, "{behind:?} {after:?}");
}

#[test]
fn norms_cost_an_exchange_of_each_layer_and_of_all_gradients() {
    // Three layers; whatever is sent arrives a tenth of a millisecond later.
    let late = MACHINE.replace("latency_ns = 1", "latency_ns = 1e5");
    let (shape, rates) = (shape(&[64, 32], None), Rates::at_the_limits());
    for (comm_cores, overlap) in [(0, false), (1, false), (1, true)] {
        let step_s = |optimizer, clip_norm| {
            let train = TrainConfig { optimizer, clip_norm, ..TrainConfig::default() };
            let ways = (2, comm_cores, overlap);
            trained(&late, Kind::Table, ways, 64, &shape, &rates, &train).step_s
        };
        let [sgd, lamb] = [OptimizerName::Sgd, OptimizerName::Lamb].map(|optimizer| step_s(optimizer, 0.0));
        assert!(lamb > sgd + 3e-4, "{lamb} {sgd}");
        // Adam keeps as much as LAMB.
        near(lamb - step_s(OptimizerName::Adam, 0.0), 3e-4, 1e-2);
        near(step_s(OptimizerName::Sgd, 1.0) - sgd, 1e-4, 1e-2);
        near(step_s(OptimizerName::Lamb, 1.0) - lamb, 1e-4, 1e-2);
    }
}

#[test]
fn gradients_go_in_buckets_and_are_copied_where_an_implementation_does_so() {
    let shape = shape(&[64, 64, 64, 1], None);
    let rates = Rates::at_the_limits();
    let layers = |outcome: &Outcome| {
        let trace: serde_json::Value = serde_json::from_str(&outcome.trace()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let reduced = |event: &&serde_json::Value| {
            event["name"].as_str().unwrap().starts_with("reduce layer")
                && event["pid"] == 0
                && event["args"]["step"] == 2
        };
        events.iter().filter(reduced).count()
    };
    assert_eq!(layers(&step(2, 1, true, 512, &shape, &rates)), 5);
    let buckets = Rates { bucket_bytes: 25 << 20, copies_gradients: true, ..rates.clone() };
    let bucketed = step(2, 1, true, 512, &shape, &buckets);
    assert_eq!(layers(&bucketed), 1);
    let copied_s = 2.0 * (2 * shape.parameters() * 4) as f64 / 100e9;
    // The way back shares its memory with the reduction.
    let found = bucketed.stages_s[Stage::ReduceDense as usize];
    assert!(found > 0.99 * copied_s && found < 2.0 * copied_s, "{found:e} {copied_s:e}");
}

#[test]
fn rates_are_documents() {
    let rates = Rates::parse("layers = 0.5\nstep_ms = 2\nbucket_mib = 1").unwrap();
    assert_eq!(
        (rates.of(Stage::Top), rates.of(Stage::LookUp), rates.step_s, rates.bucket_bytes),
        (0.5, 1.0, 2e-3, 1 << 20)
    );
    for (text, why) in [
        ("layers = 0", "layers = 0"),
        ("step_ms = -1", "step_ms = -1"),
        ("step_ms = 1e308", "step_ms"),
        ("layer = 1", "unknown field `layer`"),
    ] {
        let reason = Rates::parse(text).unwrap_err();
        assert!(reason.contains(why), "{reason}");
    }
}
