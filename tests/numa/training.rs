//! Three steps of a tiny model: the same bits on the bare machine and on the emulated one.
//!
//! The two differ in instruction set, number of threads and kernel; none of these may change a bit. The model is tiny
//! because vector code is some 200 times slower under emulation.

use std::fmt::Write;
use std::sync::Arc;

use octorec::base::config::{Command, Config, Layers};
use octorec::base::{PuId, RankId};
use octorec::data::{Batch, Opening, Schema, Split};
use octorec::machine::placement::Wishes;
use octorec::model::TrainSpec;
use octorec::shard::scheme::{Scheme, Sharding};
use octorec::simd::Isa;
use octorec::train::{Ranks, Setup};

use crate::place::placement;

const STEPS: usize = 3;

pub fn config() -> Config {
    let mut layers = Layers::default();
    let document = "[model]\nbottom = [13, 19, 8]\ntop = [17, 1]\ndim = 8\nrows = [400, 30, 7, 90]\n\
                    [train]\nbatch = 24\nlr = 0.5\n[data]\nsource = \"criteo\"";
    layers.document(document, "tests/numa").expect("the document is right");
    layers.finish(Command::Train).expect("the configuration is right")
}

/// The schema and the first minibatches, generated once: the generator's calibration is the slow part.
pub fn batches(config: &Config) -> (Schema, Vec<Arc<Batch>>) {
    let opening = Opening::default();
    let source = octorec::data::open(config, opening).expect("the generator opens");
    let mut reader = source.open(Split::Train, 0).expect("the first sample exists");
    let read = |_| {
        let mut batch = Batch::new(source.schema());
        assert_eq!(reader.read(&mut batch, config.train.batch).expect("generated"), config.train.batch);
        batch.check(source.schema()).expect("the batch fits the schema");
        Arc::new(batch)
    };
    let batches = (0..STEPS).map(read).collect();
    (source.schema().clone(), batches)
}

/// One line a step, the loss and its bits, and one for all weights after the last; of one rank on these processing
/// units.
fn losses(pus: &[PuId], isa: Isa, config: &Config, schema: &Schema, batches: &[Arc<Batch>]) -> String {
    let wishes = Wishes { ranks: Some(1), ..Wishes::default() };
    let mut placement = octorec::machine::place(&crate::host(), &wishes).expect("one rank has a place");
    placement.ranks[0].compute = pus.to_vec();
    let (rows, dim) = (&config.model.rows, config.model.dim);
    let sharding = Sharding::new(rows, vec![dim; rows.len()], 1, vec![Scheme::Table(RankId(0)); rows.len()])
        .expect("whole tables");
    let setup = Setup::new(&config.model, schema, sharding, TrainSpec::sgd(config.train.batch), &placement);
    let ranks = Ranks::start(Setup { isa, ..setup }).expect("the model fits");
    ranks.initialise(config.train.seed).expect("the rank draws weights");
    let mut text = String::new();
    for (number, batch) in (1..).zip(batches) {
        let loss = ranks.step(batch, config.train.lr as f32).expect("the rank trains");
        writeln!(text, "step {number} loss {loss} bits {:016x}", loss.to_bits()).expect("a String takes all");
    }
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut weights = 0;
    for parameter in ranks.parameters().expect("the rank answers") {
        for weight in ranks.export(&parameter).expect("the rank answers") {
            // FNV-1a over the weights' bits.
            hash = (hash ^ u64::from(weight.to_bits())).wrapping_mul(0x0100_0000_01b3);
            weights += 1;
        }
    }
    writeln!(text, "{weights} weights hash {hash:016x}").expect("a String takes all");
    text
}

/// With this machine's widest vectors and all of its cores.
pub fn losses_here() -> String {
    let wishes = Wishes { ranks: Some(1), ..Wishes::default() };
    let placement = octorec::machine::place(&crate::host(), &wishes).expect("one rank has a place");
    let (pus, isa) = (&placement.ranks[0].compute, Isa::best());
    eprintln!("bare machine: {} threads with {}", pus.len(), isa.name());
    let config = config();
    let (schema, batches) = batches(&config);
    losses(pus, isa, &config, &schema, &batches)
}

/// The losses of the file at `path` must come out again, on one thread of each instruction set and on all nodes.
pub fn compare(path: &str) -> String {
    let expected = std::fs::read_to_string(path).expect("the script left the bare machine's losses");
    // Those of several ranks follow: see `ranks`.
    let expected: String = expected.lines().take(STEPS + 1).map(|line| format!("{line}\n")).collect();
    assert_eq!(expected.lines().count(), STEPS + 1, "{expected}");
    let pus: Vec<PuId> = placement().ranks.iter().flat_map(|rank| rank.compute.clone()).collect();
    let config = config();
    let (schema, batches) = batches(&config);
    for isa in Isa::all() {
        for pus in [&pus[..1], &pus] {
            let found = losses(pus, isa, &config, &schema, &batches);
            assert_eq!(found, expected, "{isa:?} on {} threads", pus.len());
        }
    }
    let first = expected.lines().next().expect("counted above");
    format!("{STEPS} steps and all weights, on 1 and {} threads; {first}", pus.len())
}
