//! The bytes between ranks are those of a minibatch that is really sent, and the cost model counts the same.

use std::collections::BTreeSet;

use octorec::base::rng::{Random, Stream};
use octorec::base::{RankId, TableId};
use octorec::data::Slice;
use octorec::exchange::{Layout, LayoutSpec};
use octorec::machine::{Machine, Routes};
use octorec::math::Grains;
use octorec::shard::planner::price;
use octorec::shard::{HotPrices, Kind, Model, Part, Scheme, Sharding, Workload, report};
use proptest::prelude::*;

use super::{any_sharding, linked, mesh, on, sample_rank, work_of};
use crate::sent;

fn off_diagonal(matrix: &sent::Matrix) -> u64 {
    let cells =
        matrix.iter().enumerate().flat_map(|(from, row)| row.iter().enumerate().map(move |(to, n)| (from, to, n)));
    cells.filter(|(from, to, _)| from != to).map(|(_, _, bytes)| bytes).sum()
}

proptest! {
    #[test]
    fn bytes_are_those_of_a_minibatch_that_is_sent(sharding in any_sharding(), batch in 0usize..40, seed: u64) {
        let ranks = sharding.ranks();
        let mut pooled = vec![vec![0; ranks]; ranks];
        let mut ids = pooled.clone();
        let mut looked_up = std::collections::BTreeMap::new();
        let random = Random::new(seed, Stream::Sample(0));
        for (draw, (table, sample)) in (0..sharding.tables()).flat_map(|t| (0..batch).map(move |n| (t, n))).enumerate() {
            let table = TableId(table as u32);
            if sharding.scheme(table).kind() == Kind::Replicated {
                continue;
            }
            let owner = sample_rank(batch, ranks, sample);
            for shard in sharding.of_table(table) {
                pooled[shard.rank.index()][owner.index()] += shard.columns.len() as u64 * 2;
            }
            for lookup in 0..3 {
                let row = random.below(draw as u64 * 3 + lookup, sharding.rows(table));
                // Slices of one rank share the ids that they need.
                let having = sharding.of_table(table).iter().filter(|shard| shard.rows.local(row).is_some());
                let to: BTreeSet<_> = having.map(|shard| (shard.rank, shard.rows.first)).collect();
                for (rank, first) in to {
                    ids[owner.index()][rank.index()] += 4;
                    *looked_up.entry((table, rank, first, owner)).or_insert(0u64) += 1;
                }
            }
        }
        // Offsets: one more than samples, for every table and owner of rows, even to and from a rank without samples.
        for table in TableId::all(sharding.tables()) {
            if sharding.scheme(table).kind() != Kind::Replicated {
                let streams: BTreeSet<_> = sharding.of_table(table).iter().map(|s| (s.rank, s.rows.first)).collect();
                for (rank, _) in streams {
                    for (from, sent) in ids.iter_mut().enumerate() {
                        let samples = Slice::new(from, ranks).of(batch).len() as u64;
                        sent[rank.index()] += 4 * (samples + 1);
                    }
                }
            }
        }
        prop_assert_eq!(&sent::pooled(&sharding, batch, 2), &pooled);
        let back = sent::gradients(&sharding, batch, 2);
        prop_assert!((0..ranks).all(|a| (0..ranks).all(|b| back[a][b] == pooled[b][a])));
        let counted = sent::ids(&sharding, batch, |shard, from| {
            looked_up.get(&(shard.table, shard.rank, shard.rows.first, from)).copied().unwrap_or(0)
        });
        prop_assert_eq!(&counted, &ids);
    }

    #[test]
    fn the_cost_model_counts_the_same_bytes(sharding in any_sharding(), batch in 1usize..50) {
        let machine = mesh(&vec![(1 << 20, 50.0); sharding.ranks()]);
        agree(&sharding, &machine, batch);
    }

    #[test]
    fn and_so_it_does_over_routes_of_several_links(sharding in any_sharding(), batch in 1usize..50) {
        agree(&sharding, &Machine::load("twisted-hypercube-8").unwrap(), batch);
    }
}

/// The model's exchanges are the exact matrices', in sum and on the busiest link.
fn agree(sharding: &Sharding, machine: &Machine, batch: usize) {
    let (work, site) = (work_of(sharding, batch), on(machine, sharding.ranks()));
    let model = Model::new(&work, &site);
    let cost = model.cost(sharding);
    let pooled = sent::pooled(sharding, batch, 4);
    let gradients = sent::gradients(sharding, batch, 4);
    assert_eq!(cost.exchanges[1].bytes, off_diagonal(&pooled));
    assert_eq!(cost.exchanges[2].bytes, off_diagonal(&gradients));
    for (exchange, matrix) in cost.exchanges[1..].iter().zip([&pooled, &gradients]) {
        let mut nodes = vec![vec![0; machine.nodes.len()]; machine.nodes.len()];
        for (from, row) in matrix.iter().enumerate() {
            row.iter().enumerate().for_each(|(to, bytes)| nodes[from][to] += bytes);
        }
        let bottleneck = Routes::new(machine).loads(machine, &nodes).bottleneck(machine);
        let (found, wanted) = (exchange.wire.as_ref().map(|wire| wire.1), bottleneck.map(|link| link.bytes));
        assert_eq!(found, wanted);
    }
    // Ids are expected values, rounded a part: as many look-ups as the minibatch has, in every set of column slices.
    // What a rank keeps for itself is rounded once more.
    let expected = sent::ids(sharding, batch, |_, _| 0);
    let rounding = (8 * sharding.ranks()) as f64;
    let look_ups = |bytes: u64| bytes as f64 - off_diagonal(&expected) as f64;
    assert!(look_ups(cost.exchanges[0].bytes) >= -rounding, "{:?}", cost.exchanges[0]);
    let all: usize = TableId::all(sharding.tables())
        .map(|table| {
            let shards = sharding.of_table(table);
            let holders: BTreeSet<_> = shards.iter().map(|shard| shard.rank).collect();
            if sharding.scheme(table).kind() == Kind::Column { batch * holders.len() } else { batch }
        })
        .sum();
    assert!(cost.exchanges[0].bytes <= off_diagonal(&expected) + 4 * all as u64 + 4 * sharding.shards().len() as u64);
    // A weight goes with each look-up and nowhere else.
    let mut weighted = work.clone();
    weighted.tables.iter_mut().for_each(|table| table.weighted = true);
    let heavier = Model::new(&weighted, &site).cost(sharding);
    let (once, twice) = (look_ups(cost.exchanges[0].bytes), look_ups(heavier.exchanges[0].bytes));
    assert!((2.0 * once - twice).abs() <= rounding, "{once} bytes of ids, {twice} with weights");
    assert_eq!(heavier.exchanges[1..], cost.exchanges[1..]);
}

#[test]
fn where_ranks_change_no_bit_gradients_and_rows_go_as_they_are() {
    let half = |rank| Part { rank: RankId(rank), size: 500 };
    let schemes = vec![Scheme::Replicated, Scheme::RowContiguous(vec![half(0), half(1)])];
    let sharding = Sharding::new(&[1000, 1000], vec![16; 2], 2, schemes).unwrap();
    let site = on(&mesh(&[(1024, 50.0); 2]), 2);
    let cost = |grains| {
        let mut work = work_of(&sharding, 64);
        work.grains = grains;
        (work.tables[0].lookups, work.tables[1].lookups) = (3.0, 2.0);
        work.tables[0].weighted = true;
        Model::new(&work, &site).cost(&sharding)
    };
    let (sums, samples) = (cost(None), cost(Some(Grains::of(64))));
    // Of 32 samples a gradient, where its look-ups begin, and of each of three a row and a weight; two words besides.
    assert_eq!(samples.allreduce_bytes, 4 * (32 * (16 + 1 + 3 * 2) + 2));
    // Of 64 look-ups in a half every second one's bag has another there; half of them are of the other rank's samples.
    assert_eq!(samples.exchanges[1].bytes - sums.exchanges[1].bytes, 2 * 16 * 16 * 4);
    assert_eq!(samples.exchanges[2], sums.exchanges[2]);
    assert!(samples.ranks[0].dense_bytes < sums.ranks[0].dense_bytes, "no gradients by row");
}

#[test]
fn ranks_are_planned_with_as_many_samples_as_whole_grains_have() {
    // Of 32 grains of 64 samples 12 of 20 ranks have two, and the first one has one.
    let (batch, ranks) = (2048, 20);
    let sharding = Sharding::new(&[1000], vec![16], ranks, vec![Scheme::Table(RankId(0))]).unwrap();
    let mut work = work_of(&sharding, batch);
    (work.grains, work.sample_bytes) = (Some(Grains::of(batch)), 1000);
    let layout = Layout::new(sharding.clone(), &LayoutSpec { grains: work.grains, ..LayoutSpec::default() });
    let slices: Vec<usize> = RankId::all(ranks).map(|rank| layout.samples(batch, rank)).collect();
    assert_eq!([slices[0], slices.iter().filter(|slice| **slice == 128).count()], [64, 12]);
    let site = on(&mesh(&vec![(1024, 50.0); ranks]), ranks);
    let model = Model::new(&work, &site);
    assert_eq!(RankId::all(ranks).map(|rank| model.samples(rank)).collect::<Vec<_>>(), slices);
    // Memory, of which each rank has its own.
    let lighter = Workload { sample_bytes: 0, ..work.clone() };
    let lighter = Model::new(&lighter, &site);
    for (pool, slice) in slices.iter().enumerate() {
        let wanted = [&model, &lighter].map(|model| model.wanted(&model.tally(&sharding), pool));
        assert_eq!(wanted[0] - wanted[1], 1000 * *slice as i64, "pool {pool}");
    }
    // A replicated table's lists are those of the longest slice.
    let copied = Sharding::new(&[1000], vec![16], ranks, vec![Scheme::Replicated]).unwrap();
    assert_eq!(model.cost(&copied).allreduce_bytes, 4 * (128 * (16 + 1 + 1) + 2));
    // Without copies, rows of 16 numbers and their gradients travel for all samples but the owner's, and before them
    // where a bag begins and its one row.
    let others = (batch - 64) as f64;
    let (found, wanted) =
        (HotPrices::new(&work, &sharding).of(0).without, 2.0 * others * 64.0 + 4.0 * (2.0 * others + 19.0));
    assert!((found / wanted - 1.0).abs() < 1e-9, "{found}, not {wanted}");
}

#[test]
fn lists_for_replicated_tables_go_around_a_ring_of_ranks() {
    let sharding = Sharding::new(&[1000], vec![16], 4, vec![Scheme::Replicated]).unwrap();
    let work = work_of(&sharding, 4096);
    let all = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)];
    // Three lists over each step from a rank to the next. In a line the last step is back over all links, and for rank
    // 0 it is one of those that come before.
    for (pairs, steps) in [(&all[..], 3.0), (&all[..4], 3.0), (&all[..3], 5.0)] {
        let site = on(&linked(&[(1024, 1000.0); 4], pairs), 4);
        let model = Model::new(&work, &site);
        let cost = model.cost(&sharding);
        let wanted = 3.0 * cost.allreduce_bytes as f64 / 10e9 + steps * site.wires[0].latency_ns * 1e-9;
        let found = cost.ranks[0].allreduce_s - model.dense.as_ref().map_or(0.0, |dense| dense.seconds);
        assert!((found / wanted - 1.0).abs() < 1e-9, "{} links: {found:e}, not {wanted:e}", pairs.len());
    }
}

#[test]
fn a_list_for_replicated_tables_is_read_by_its_rank_and_written_by_the_other() {
    let sharding = Sharding::new(&[1000], vec![16], 2, vec![Scheme::Replicated]).unwrap();
    // Memory is slower than the link.
    let (work, site) = (work_of(&sharding, 4096), on(&mesh(&[(1024, 1.0); 2]), 2));
    let model = Model::new(&work, &site);
    let cost = model.cost(&sharding);
    let wanted = 2.0 * cost.allreduce_bytes as f64 / 1e9 + site.wires[0].latency_ns * 1e-9;
    let found = cost.ranks[0].allreduce_s - model.dense.as_ref().map_or(0.0, |dense| dense.seconds);
    assert!((found / wanted - 1.0).abs() < 1e-9, "{found:e}, not {wanted:e}");
}

#[test]
fn ranks_that_copy_and_those_of_replicated_tables_are_named_as_what_limits_a_plan() {
    let whole = |rank| Scheme::Table(RankId(rank));
    // Memory is slower than the link.
    let site = on(&mesh(&[(1024, 1.0); 2]), 2);
    for (schemes, limit, copies) in [
        // 2 x 4,096 x 16 x 4 bytes of each rank: its own part of both tables' rows, and both tables' for its samples.
        (vec![whole(0), whole(1)], "exchange of pooled rows as the rank copies, 0.524 of ", 3),
        (vec![Scheme::Replicated; 2], "update of replicated tables, ", 1),
    ] {
        let sharding = Sharding::new(&[1000; 2], vec![16; 2], 2, schemes).unwrap();
        let work = work_of(&sharding, 4096);
        let model = Model::new(&work, &site);
        let text = report::text(&model, &price(&model, sharding).expect("there is room"));
        assert!(text.contains(&format!("\nlimited by {limit}")), "{text}");
        assert_eq!(text.matches(", busiest rank 0, which copies: ").count(), copies, "{text}");
    }
}

#[test]
fn the_network_takes_no_cores_of_ranks_on_one_host() {
    let text = "name = \"hosts\"\n[[node]]\nids = \"0-3\"\ncores = 4\nnodes_per_host = 2\nmemory_gib = 1\n\
                [[switch]]\nname = \"leaf\"\n[[link]]\npairs = [[\"0-3\", \"leaf\"]]\ngb_s = 10\ncore_s_per_gb = 2\n";
    let site = on(&Machine::parse(text, "hosts").unwrap(), 4);
    let of = |from, to| site.core_s(RankId(from), RankId(to));
    assert_eq!([of(0, 1), of(3, 2)], [[0.0; 2]; 2]);
    assert_eq!([of(0, 2), of(3, 1)], [[2e-9; 2]; 2]);
}

#[test]
fn an_exchange_takes_as_long_as_the_network_keeps_the_cores_of_a_host() {
    let text = "name = \"hosts\"\n[[node]]\nids = \"0-1\"\ncores = 4\nnodes_per_host = 1\nmemory_gib = 1\n\
                memory_gb_s = 1000\n[[link]]\npairs = [[0, 1]]\ngb_s = 10\n";
    let [free, worked] =
        ["", "core_s_per_gb = 2\n"].map(|more| on(&Machine::parse(&format!("{text}{more}"), "hosts").unwrap(), 2));
    let whole = |rank| Scheme::Table(RankId(rank));
    for schemes in [[whole(0), whole(1)], [Scheme::Replicated, Scheme::Replicated]] {
        let sharding = Sharding::new(&[1000, 1000], vec![16; 2], 2, schemes.to_vec()).unwrap();
        let work = work_of(&sharding, 4096);
        let [free_cost, worked_cost] = [&free, &worked].map(|site| Model::new(&work, site).cost(&sharding));
        let cores = worked.ranks[0].network_threads as f64;
        // Each byte leaves one host and enters the other, and both have the same bytes. The link, which carries half of
        // them each way meanwhile, has carried them long before.
        let more = |bytes: u64| bytes as f64 * (2e-9 / cores - 1.0 / 20e9);
        let exchanged = free_cost.exchanges.iter().map(|exchange| more(exchange.bytes)).sum::<f64>();
        let lists = more(2 * free_cost.allreduce_bytes);
        // Which is told, where the link was before.
        for (free, worked) in free_cost.exchanges.iter().zip(&worked_cost.exchanges).filter(|(free, _)| free.bytes > 0)
        {
            let wanted = worked.bytes as f64 * 2e-9 / cores;
            let (name, found) = worked.cores.as_ref().expect("cores work for it");
            assert!((found / wanted - 1.0).abs() < 0.01 && name.starts_with("network cores of host "), "{worked:?}");
            assert!(free.cores.is_none() && free.wire == worked.wire, "{free:?} {worked:?}");
        }
        let model = Model::new(&work, &worked);
        let text = report::text(&model, &price(&model, sharding).expect("there is room"));
        let named = text.matches(", busiest network cores of host ").count();
        let exchanges = worked_cost.exchanges.iter().filter(|exchange| exchange.bytes > 0).count();
        assert_eq!(named, exchanges + usize::from(worked_cost.allreduce_bytes > 0), "{text}");
        let [free, worked] = [&free_cost, &worked_cost].map(|cost| &cost.ranks[0]);
        for (free_s, worked_s, more_s) in
            [(free.exchange_s, worked.exchange_s, exchanged), (free.allreduce_s, worked.allreduce_s, lists)]
        {
            assert!((worked_s - free_s - more_s).abs() <= 0.01 * more_s, "{free_s:e} + {more_s:e}, not {worked_s:e}");
        }
    }
}
