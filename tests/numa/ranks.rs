//! Eight ranks, one a node: their memory lies on their nodes, they send what was planned, and train as one rank does.

use std::fmt::Write;
use std::sync::Arc;

use octorec::base::RankId;
use octorec::base::config::Config;
use octorec::data::{Batch, Schema};
use octorec::machine::Placement;
use octorec::math::Grains;
use octorec::model::Room;
use octorec::shard::scheme::{Part, Scheme, Sharding};
use octorec::simd::Isa;
use octorec::train::ranks::{Ranks, Setup};

use crate::place::placement;
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

fn start(config: &Config, schema: &Schema, placement: &Placement, isa: Isa) -> Ranks {
    let ranks = placement.ranks.len();
    let sharding = Sharding::new(&config.model.rows, config.model.dim, ranks, schemes(&config.model.rows, ranks));
    let (room, batch) = (Room::samples(config.train.batch), config.train.batch);
    let setup = Setup::new(&config.model, schema, sharding.expect("the schemes divide the tables"), room, placement);
    // Fewer grains than a large minibatch would have: one a rank.
    let grains = Some(Grains::exactly(8));
    assert!(batch >= 8);
    let ranks = Ranks::start(Setup { grains, isa, ..setup }).expect("the ranks start");
    ranks.initialise(config.train.seed).expect("the ranks draw weights");
    ranks
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
    (schema, batches.into_iter().take(STEPS).map(Arc::new).collect())
}

/// Of one rank with this machine's widest vectors.
pub fn losses_here() -> String {
    let config = config();
    let (schema, batches) = first_batches(&config);
    let machine = crate::host();
    let wishes = octorec::machine::placement::Wishes { ranks: Some(1), threads: Some(1), ..Default::default() };
    let placement = octorec::machine::place(&machine, &wishes).expect("one rank has a place");
    losses(&start(&config, &schema, &placement, Isa::best()), &config, &batches)
}

/// Trains on all nodes; the losses in the file at `path`, of one rank on the bare machine, must come out again.
pub fn train(path: &str) -> String {
    let expected = std::fs::read_to_string(path).expect("the script left the bare machine's losses");
    let expected: String =
        expected.lines().filter(|line| line.starts_with("ranks ")).map(|line| format!("{line}\n")).collect();
    assert_eq!(expected.lines().count(), STEPS + 1, "{expected}");
    let (config, placement) = (config(), placement());
    let (schema, batches) = first_batches(&config);
    let ranks = start(&config, &schema, &placement, Isa::best());
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
            .map(|batch| ranks.planned_traffic(batch).expect("the ranks answer"))
            .reduce(|sum, step| sum.plus(&step))
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
