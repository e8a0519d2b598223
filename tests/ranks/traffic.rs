//! What ranks send each other is what was planned, to the byte; and their memory is where they say.

use crate::planned::{planned_traffic, plus};
use crate::requirement::required;
use crate::{sent, weighing};

use std::sync::Arc;

use octorec::base::RankId;
use octorec::base::config::{Config, DataConfig, ModelConfig, SourceKind, Wire, Wires};
use octorec::collective::plan::{Reduction, Ring, Topology, reductions, ring, two_ring};
use octorec::data::hot::Inputs;
use octorec::data::{self, Batch, Opening, Schema, Slice, Split};
use octorec::exchange::Traffic;
use octorec::machine::placement::Wishes;
use octorec::machine::{Machine, place};
use octorec::math::Grains;
use octorec::model::TrainSpec;
use octorec::shard::scheme::{Kind, Part, Scheme, Sharding};
use octorec::train::{Ranks, Setup};

const ROWS: [u64; 5] = [700, 3, 41, 1000, 260];
const DIM: usize = 12;
const BATCH: usize = 50;

fn model() -> ModelConfig {
    ModelConfig { bottom: vec![13, 40, DIM], top: vec![33, 1], dim: DIM, rows: ROWS.to_vec(), ..Default::default() }
}

fn mixed(ranks: usize) -> Vec<Scheme> {
    let rank = |at: usize| RankId((at % ranks) as u32);
    let halves =
        |whole: u64| vec![Part { rank: rank(1), size: whole / 2 }, Part { rank: rank(2), size: whole - whole / 2 }];
    vec![
        Scheme::RowContiguous(halves(ROWS[0])),
        Scheme::Replicated,
        Scheme::Column(halves(DIM as u64)),
        Scheme::RowCyclic((0..ranks).map(rank).collect()),
        Scheme::Table(rank(3)),
    ]
}

/// The tables whose look-ups have weights, where any have: divided by rows, replicated, whole.
const WEIGHTED: [usize; 3] = [0, 1, 4];

fn around(ranks: usize) -> Reduction {
    ring(&Ring::of(ranks))
}

/// Ranks at work on minibatches of several sizes.
fn at_work(
    ranks: usize,
    reduction: Reduction,
    grains: Option<Grains>,
    weighted: bool,
    wire: Wire,
) -> (Ranks, Schema, Vec<Arc<Batch>>) {
    let data = DataConfig { source: SourceKind::Random, lookups: 4.into(), ..DataConfig::default() };
    let config = Config { model: model(), data, ..Config::default() };
    let source = data::open(&config, Opening::default()).unwrap();
    let mut reader = source.open(Split::Train, 0).unwrap();
    let draw = |samples| {
        let mut batch = Batch::new(source.schema());
        reader.read(&mut batch, samples).unwrap();
        Arc::new(batch)
    };
    let mut batches = [BATCH, 29, 3].map(draw).to_vec();
    let mut schema = source.schema().clone();
    weighing::weigh(&mut schema, &mut batches, |table| weighted && WEIGHTED.contains(&table));
    let wishes = Wishes { ranks: Some(ranks), threads: Some(1), ..Wishes::default() };
    let placement = place(&Machine::load("host").unwrap(), &wishes).unwrap();
    let sharding = Sharding::new(&ROWS, vec![DIM; ROWS.len()], ranks, mixed(ranks)).unwrap();
    let room = TrainSpec { ..TrainSpec::sgd(BATCH) };
    let setup = Setup::new(&config.model, &schema, sharding, room, &placement);
    let ranks = Ranks::start(Setup { reduction, grains, wires: Wires::all(wire), ..setup }).unwrap();
    ranks.initialise(7).unwrap();
    (ranks, schema, batches)
}

#[test]
fn ranks_send_what_was_planned_to_the_byte() {
    for ranks in [1, 2, 3, 5, 8] {
        let ways = |wire| {
            let all = reductions(&Topology::of(ranks)).into_iter();
            all.map(move |reduction| (reduction, None, false, wire))
        };
        let grains = Some(Grains::of(BATCH));
        let more =
            [(None, true), (grains, false), (grains, true)].map(|(grains, w)| (around(ranks), grains, w, Wire::F32));
        for (reduction, grains, weighted, wire) in ways(Wire::F32).chain(ways(Wire::Bf16)).chain(more) {
            let name_of = reduction.name;
            let (ranks, _, batches) = at_work(ranks, reduction, grains, weighted, wire);
            let mut planned: Option<Traffic> = None;
            for batch in &batches {
                ranks.step(batch, 0.05).unwrap();
                let step = planned_traffic(&ranks, batch, Inputs::Mixed).unwrap();
                planned = Some(planned.map_or_else(|| step.clone(), |before| plus(&before, &step)));
                let found = ranks.traffic().unwrap();
                for ((name, planned), (_, found)) in planned.as_ref().unwrap().parts().into_iter().zip(found.parts()) {
                    assert_eq!(found, planned, "{name}, {}, {grains:?}, from row to column", name_of);
                    let sends = match name {
                        "dense gradients" => grains.is_none(),
                        "for determinism" => grains.is_some(),
                        "hot rows' gradients" | "hot rows" => false,
                        _ => true,
                    };
                    assert_eq!(found.total() > 0, sends && found.ranks() > 1, "{name}");
                }
            }
        }
    }
}

#[test]
fn the_planners_bytes_are_those_of_the_wire_but_for_whole_lines() {
    let cases = [(false, Wire::F32), (true, Wire::F32), (true, Wire::Bf16)];
    for (ranks, (weighted, rounded)) in [2, 3, 8].into_iter().flat_map(|ranks| cases.map(|case| (ranks, case))) {
        let (ranks, schema, batches) = at_work(ranks, two_ring(&Ring::of(ranks)), None, weighted, rounded);
        let element = rounded.bytes();
        let (layout, sharding) = (ranks.layout(), ranks.layout().sharding());
        for batch in &batches {
            let (wire, whole) = (planned_traffic(&ranks, batch, Inputs::Mixed).unwrap(), batch.samples());
            let lookups = |shard: &octorec::shard::Shard, from: RankId| {
                let bag = &batch.bags[shard.table.index()];
                let samples = Slice::new(from.index(), layout.ranks()).of(whole);
                let rows = samples.flat_map(|sample| bag.of(sample));
                let words = if schema.tables[shard.table.index()].weighted { 2 } else { 1 };
                words * rows.filter(|row| shard.rows.local(u64::from(**row)).is_some()).count() as u64
            };
            let (ids, pooled) = (sent::ids(sharding, whole, lookups), sent::pooled(sharding, whole, element as u64));
            for (from, to) in (0..layout.ranks() * layout.ranks()).map(|at| (at / layout.ranks(), at % layout.ranks()))
            {
                if from == to {
                    continue;
                }
                let (a, b) = (RankId(from as u32), RankId(to as u32));
                // A line announces a list.
                assert_eq!(wire.ids.at(a, b), ids[from][to] as usize + 64, "ids, {a} to {b}");
                let own = sharding.of_rank(a).filter(|shard| sharding.scheme(shard.table).kind() != Kind::Replicated);
                let gap = layout.of(a).stride - own.map(|shard| shard.columns.len()).sum::<usize>();
                let samples = layout.samples(whole, b);
                assert!(gap < 64 / element);
                assert_eq!(
                    wire.pooled_rows.at(a, b),
                    pooled[from][to] as usize + samples * gap * element,
                    "{a} to {b}"
                );
                assert_eq!(wire.pooled_gradients.at(b, a), wire.pooled_rows.at(a, b));
            }
        }
    }
}

#[test]
fn every_region_of_every_rank_is_where_it_should_be() {
    let (ranks, schema, _) = at_work(3, around(3), Some(Grains::of(BATCH)), false, Wire::F32);
    let names: Vec<_> = schema.tables.iter().map(|table| table.name.clone()).collect();
    let Some(verified) = required("numa-calls", ranks.verify()) else { return };
    assert!(verified.all_at_home(), "{verified}");
    assert!(verified.to_string().ends_with("MiB on their nodes"), "{verified}");
    for rank in (0..3).map(RankId) {
        let regions: Vec<_> = verified.0.iter().filter(|region| region.rank == rank).collect();
        assert!(regions.iter().any(|region| region.name == "receive windows" && region.bytes > 1 << 20));
        // The shards of divided tables and the replica.
        let shards = ranks.layout().of(rank).shards.len();
        assert_eq!(regions.iter().filter(|region| names.contains(&region.name)).count(), shards + 1);
    }
}

#[test]
fn weights_cost_a_word_a_look_up_of_weighted_columns_and_nothing_else() {
    for grains in [None, Some(Grains::of(BATCH))] {
        let planned = |weighted| {
            let (ranks, _, batches) = at_work(3, around(3), grains, weighted, Wire::F32);
            let planned = planned_traffic(&ranks, &batches[0], Inputs::Mixed).unwrap();
            (planned, ranks, batches[0].clone())
        };
        let ((with, ranks, batch), (without, ..)) = (planned(true), planned(false));
        let (layout, sharding) = (ranks.layout(), ranks.layout().sharding());
        for (from, to) in (0..9).map(|at| (RankId(at / 3), RankId(at % 3))).filter(|(from, to)| from != to) {
            let look_ups = |from: RankId, table: usize, held: &dyn Fn(u64) -> bool| {
                let rows = layout.slice(batch.samples(), from).flat_map(|sample| batch.bags[table].of(sample));
                rows.filter(|row| held(u64::from(**row))).count()
            };
            let holder = sharding.of_rank(to).filter(|shard| WEIGHTED.contains(&shard.table.index()));
            let divided = holder.filter(|shard| sharding.scheme(shard.table).kind() != Kind::Replicated);
            let divided: usize =
                divided.map(|shard| look_ups(from, shard.table.index(), &|row| shard.rows.local(row).is_some())).sum();
            assert_eq!(with.ids.at(from, to), without.ids.at(from, to) + 4 * divided, "{from} to {to}");
            // Around a ring: to the next rank goes all but its own. Without grains sums go, which have no weights.
            let next = to.0 == (from.0 + 1) % 3;
            let lists = (0..3).map(RankId).filter(|rank| next && grains.is_some() && *rank != to);
            let replicated: usize = lists.map(|rank| look_ups(rank, 1, &|_| true)).sum();
            assert_eq!(with.ordered.at(from, to), without.ordered.at(from, to) + 4 * replicated, "{from} to {to}");
        }
        assert_eq!(with.pooled_rows, without.pooled_rows);
        assert_eq!(with.pooled_gradients, without.pooled_gradients);
        assert_eq!(with.dense_gradients, without.dense_gradients);
    }
}

#[test]
fn windows_grow_with_the_number_of_ranks_and_not_with_its_square() {
    let bytes = |ranks: usize| -> usize {
        let (ranks, ..) = at_work(ranks, two_ring(&Ring::of(ranks)), None, false, Wire::F32);
        let regions = ranks.verify().unwrap().0;
        regions.iter().filter(|region| region.name == "receive windows").map(|region| region.bytes).sum()
    };
    // A window of a ring is as large as its slice; four times as many ranks have four times as many of them.
    let (few, many) = (bytes(4), bytes(16));
    assert!(many < 6 * few, "{few} bytes of 4 ranks, {many} of 16");
}
