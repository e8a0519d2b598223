//! Eight ranks, one a node: their memory lies on their nodes, they send what was planned, and train as one rank does.

use std::fmt::Write;
use std::process::Command;
use std::sync::Arc;

use octorec::base::RankId;
use octorec::base::config::Config;
use octorec::collective::plan::{Reduction, Topology};
use octorec::data::hot::Inputs;
use octorec::data::{Batch, Schema};
use octorec::machine::placement::{CommCores, RankPlace, Wishes};
use octorec::machine::site::Known;
use octorec::machine::{Placement, Site};
use octorec::math::Grains;
use octorec::model::TrainSpec;
use octorec::shard::scheme::{Part, Scheme, Sharding};
use octorec::simd::Isa;
use octorec::train::{Ranks, Setup};

use crate::place::placement;
use crate::planned::{planned_traffic, plus};
use crate::training::{batches, config};

/// Steps on several ranks; a wait costs milliseconds under emulation, and a step has a dozen.
const STEPS: usize = 2;

/// Each table divided in another way, as far as there are ranks.
fn schemes(rows: &[u64], ranks: usize) -> Vec<Scheme> {
    let rank = |at: usize| RankId((at % ranks) as u32);
    let even = |whole: u64, count: usize| -> Vec<Part> {
        let count = count.min(ranks) as u64;
        let size = |part: u64| whole * (part + 1) / count - whole * part / count;
        (0..count).map(|part| Part { rank: rank(part as usize), size: size(part) }).collect()
    };
    vec![
        Scheme::RowContiguous(even(rows[0], 8)),
        Scheme::RowCyclic((0..ranks.min(8)).map(rank).collect()),
        Scheme::Replicated,
        Scheme::Column(even(8, 4)),
    ]
}

/// Sums by `grains`, or in the order in which ranks come.
fn start(config: &Config, schema: &Schema, placement: &Placement, isa: Isa, grains: Option<Grains>) -> Ranks {
    started(config, schema, placement, |setup| Setup { grains, isa, ..setup })
}

/// With a change to what is usual.
fn started(config: &Config, schema: &Schema, placement: &Placement, change: impl FnOnce(Setup) -> Setup) -> Ranks {
    let ranks = placement.ranks.len();
    let sharding = Sharding::new(
        &config.model.rows,
        config.model.dims(&config.model.rows),
        ranks,
        schemes(&config.model.rows, ranks),
    );
    let (spec, batch) = (TrainSpec::sgd(config.train.batch), config.train.batch);
    let setup = Setup::new(&config.model, schema, sharding.expect("the schemes divide the tables"), spec, placement);
    assert!(batch >= 8);
    let ranks = Ranks::start(change(setup)).expect("the ranks start");
    ranks.initialise(config.train.seed).expect("the ranks draw weights");
    ranks
}

/// Fewer grains than a large minibatch would have: one a rank.
fn grains() -> Option<Grains> {
    Some(Grains::exactly(8))
}

/// One line a step, the loss and its bits, and one for all weights after the last.
fn losses(ranks: &Ranks, config: &Config, batches: &[Arc<Batch>]) -> String {
    let mut text = String::new();
    for (number, batch) in (1..).zip(batches) {
        let loss = ranks.step(batch, config.train.lr as f32).expect("the ranks train");
        writeln!(text, "ranks step {number} loss {loss} bits {:016x}", loss.to_bits()).expect("a String takes all");
    }
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for parameter in ranks.parameters().expect("the ranks answer") {
        for weight in ranks.export(&parameter).expect("the ranks answer") {
            // FNV-1a over the weights' bits.
            hash = (hash ^ u64::from(weight.to_bits())).wrapping_mul(0x0100_0000_01b3);
        }
    }
    writeln!(text, "ranks weights hash {hash:016x}").expect("a String takes all");
    text
}

fn first_batches(config: &Config) -> (Schema, Vec<Arc<Batch>>) {
    let (schema, batches) = batches(config);
    (schema, batches.into_iter().take(STEPS).collect())
}

/// Of one rank with this machine's widest vectors.
pub fn losses_here() -> String {
    let config = config();
    let (schema, batches) = first_batches(&config);
    let machine = crate::host();
    let wishes = Wishes { ranks: Some(1), threads: Some(1), ..Default::default() };
    let placement = octorec::machine::place(&machine, &wishes).expect("one rank has a place");
    losses(&start(&config, &schema, &placement, Isa::best(), grains()), &config, &batches)
}

/// The lines of [`losses_here`] in the file at `path`.
fn expected(path: &str) -> String {
    let expected = std::fs::read_to_string(path).expect("the script left the bare machine's losses");
    let expected: String =
        expected.lines().filter(|line| line.starts_with("ranks ")).map(|line| format!("{line}\n")).collect();
    assert_eq!(expected.lines().count(), STEPS + 1, "{expected}");
    expected
}

/// Trains with a core of each node for the gradients of layers, behind the backward pass; the losses are those in the
/// file at `path` but for the order of summation.
pub fn communicate(path: &str) -> String {
    let wishes = Wishes { comm_cores: CommCores::Count(1), ..Wishes::default() };
    let placement = octorec::machine::place(&crate::host(), &wishes).expect("each node has a core to spare");
    let shape = |cores: &dyn Fn(&RankPlace) -> usize| placement.ranks.iter().map(cores).collect::<Vec<_>>();
    assert_eq!((shape(&|rank| rank.compute.len()), shape(&|rank| rank.comm.len())), (vec![1; 8], vec![1; 8]));
    let config = config();
    let (schema, batches) = first_batches(&config);
    let ranks = start(&config, &schema, &placement, Isa::best(), None);
    let (found, expected) = (losses(&ranks, &config, &batches), expected(path));
    let trace = |text: &str| -> Vec<f64> {
        let words = text.lines().filter_map(|line| line.split(' ').nth(4).filter(|_| line.contains("loss")));
        words.map(|word| word.parse().expect("a loss is a number")).collect()
    };
    let pairs: Vec<(f64, f64)> = trace(&found).into_iter().zip(trace(&expected)).collect();
    assert_eq!(pairs.len(), STEPS);
    let most = pairs.iter().map(|(found, expected)| (found / expected - 1.0).abs()).fold(0.0, f64::max);
    assert!(most < 1e-5, "{found}\n{expected}");
    let verified = ranks.verify().expect("the kernel says where pages are");
    assert!(verified.all_at_home(), "{verified}");
    format!("8 compute and 8 communication cores; losses within {most:.1e} of one rank's")
}

/// `octorec train` finds out by itself how many cores should communicate, and trains.
pub fn choose() -> String {
    let file = "/tmp/model.toml";
    let model = "[model]\nbottom = [13, 19, 8]\ntop = [17, 1]\ndim = 8\nrows = [400, 30, 7, 90]\n\
                 [train]\nbatch = 24\n[data]\nsource = \"random\"\ntrain_samples = 480\ntest_samples = 48\n";
    std::fs::write(file, model).expect("the guest's files can be written");
    let own = std::env::current_exe().expect("it runs");
    // Two ranks of a core that computes and one that may communicate: more threads would only wait for their turn
    // longer.
    let words = ["train", "--config", file, "--ranks", "2", "--steps", "2"];
    let output = Command::new(own).arg("--octorec").args(words).output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let trade = told.lines().find_map(|line| line.strip_prefix("communication cores of a rank: ")).expect(&told);
    assert!(trade.contains("with 0: ") && trade.contains(", 1: "), "{trade}");
    trade.to_owned()
}

/// Trains on all nodes with dense gradients reduced by other schedules where they are reduced by one: sums by grains
/// have an exchange of their own, and the bits in the file at `path` come out again.
pub fn whatever(path: &str) -> String {
    let (config, placement) = (config(), placement());
    let site = Site::new(&crate::host(), &placement, Known::default());
    let (schema, batches) = first_batches(&config);
    let names = ["direct", "pipelined-trees"];
    for name in names {
        let reduction = Reduction::named(name, &Topology::along(&site)).expect("links for it");
        let ranks = started(&config, &schema, &placement, |setup| Setup { grains: grains(), reduction, ..setup });
        assert_eq!(losses(&ranks, &config, &batches), expected(path), "{name}");
    }
    format!("the bits of one rank with {}", names.join(" and "))
}

/// Trains on all nodes; the losses in the file at `path`, of one rank on the bare machine, must come out again.
pub fn train(path: &str) -> String {
    let expected = expected(path);
    let (config, placement) = (config(), placement());
    let (schema, batches) = first_batches(&config);
    let ranks = start(&config, &schema, &placement, Isa::best(), grains());
    assert_eq!(ranks.layout().ranks(), 8);
    assert_eq!(losses(&ranks, &config, &batches), expected, "one rank on the bare machine");

    // After training, so that nothing has moved since.
    let verified = ranks.verify().expect("the kernel says where pages are");
    assert!(verified.all_at_home(), "{verified}");
    for place in &placement.ranks {
        let own: Vec<_> = verified.0.iter().filter(|region| region.rank == place.rank).collect();
        let named = |name: &str| own.iter().filter(|region| region.name == name && region.bytes > 0).count();
        assert_eq!(place.memory_nodes.len(), 1, "one node a rank");
        assert_eq!(named("receive windows"), 1, "{}", place.rank);
        let shards = ranks.layout().of(place.rank).shards.iter().map(|shard| &schema.tables[shard.table.index()].name);
        shards.for_each(|name| assert_eq!(named(name), 1, "{}, {name}", place.rank));
    }

    let (found, planned) = (
        ranks.traffic().expect("the ranks answer"),
        batches
            .iter()
            .map(|batch| planned_traffic(&ranks, batch, Inputs::Mixed).expect("the ranks answer"))
            .reduce(|sum, step| plus(&sum, &step))
            .expect("there are steps"),
    );
    for ((name, planned), (_, found)) in planned.parts().into_iter().zip(found.parts()) {
        assert_eq!(found, planned, "{name}, from row to column");
    }
    let total = found.total();
    for from in (0..8).map(RankId) {
        for to in (0..8).map(RankId).filter(|to| *to != from) {
            assert!(total.at(from, to) > 0, "{from} to {to}");
        }
    }
    format!("{verified}; {} bytes sent as planned; the bits of one rank", total.total())
}
