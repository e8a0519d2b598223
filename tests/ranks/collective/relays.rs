//! All-to-alls with relays: proven, carried out to the last byte, and near the bound where owners are hot.

use octorec::base::RankId;
use octorec::collective::plan::{Exchange, relayed};
use octorec::collective::{Between, Bound, Executor, Hop, Links, Parcels, Payload, Schedule, Timing, Works};
use octorec::machine::{Machine, Site};
use octorec::simd::Isa;
use proptest::prelude::*;

use super::proof::check;
use super::{job, rank, sizes, with_lanes};
use crate::shard::{on, shipped};

/// A machine in one piece, of so many nodes and switches, with a rank or several on each node.
fn any_site(seed: u64, nodes: usize, switches: usize, ranks: usize) -> Site {
    let name = |vertex: usize| if vertex < nodes { vertex.to_string() } else { format!("\"s{}\"", vertex - nodes) };
    let vertices = nodes + switches;
    let mut pairs: Vec<(usize, usize)> =
        (1..vertices).map(|vertex| (vertex, sizes(seed + vertex as u64, 1, 1000)[0] % vertex)).collect();
    pairs.extend(sizes(seed, vertices, vertices - 1).into_iter().enumerate().filter(|(from, to)| from > to));
    pairs.sort_unstable();
    pairs.dedup();
    let mut text =
        format!("name = \"any\"\n[[node]]\nids = \"0-{}\"\ncores = 4\nmemory_gib = 4\nmemory_gb_s = 50\n", nodes - 1);
    (0..switches).for_each(|at| text += &format!("[[switch]]\nname = \"s{at}\"\n"));
    for (number, (from, to)) in pairs.iter().enumerate() {
        let gb_s = 5 + sizes(seed * 7 + number as u64, 1, 20)[0];
        text += &format!("[[link]]\npairs = [[{}, {}]]\ngb_s = {gb_s}\n", name(*from), name(*to));
    }
    on(&Machine::parse(&text, "any").expect("a valid machine"), ranks)
}

/// Sources of all owners with unequal parcels; one owner is hot.
fn any_parcels(seed: u64, ranks: usize) -> Parcels {
    let source = |at: usize| {
        let most = if at == 1 { 4000 } else { 700 };
        (rank(at % ranks), sizes(seed * 31 + at as u64, ranks, most))
    };
    Parcels::new(ranks, &(0..ranks + 2).map(source).collect::<Vec<_>>())
}

/// Every parcel at its place, by the executor, over windows of so many bytes; twice, so that a transit buffer is used
/// again.
fn carry_out(schedule: &Schedule, parcels: &Parcels, window: usize) -> Result<(), TestCaseError> {
    let ranks = schedule.ranks();
    let cell = |rank: usize, at: usize| (rank as u64 + 1) << 32 | at as u64;
    let (theirs, plan) = (parcels.clone(), schedule.clone());
    let results = with_lanes(&job(ranks), vec![Links::uniform(ranks, window)], move |member, mut lanes| {
        let me = member.rank;
        let send: Vec<u64> = (0..theirs.send_len(me)).map(|at| cell(me.index(), at)).collect();
        let mut transit = vec![0; plan.transit_len(me)];
        let mut executor = Executor::new(&plan, &*lanes[0], "test");
        let mut receive = Vec::new();
        for _ in 0..2 {
            receive = vec![0; theirs.receive_len(me)];
            let mut memory = Between::new(&send, &mut receive, Isa::best()).relaying(&mut transit);
            executor.run(&mut *lanes[0], &mut memory)?;
        }
        Ok((receive, lanes[0].sent().to_vec()))
    });
    let traffic = schedule.traffic();
    for (index, (receive, sent)) in results.unwrap().iter().enumerate() {
        let twice: Vec<usize> = traffic.row(rank(index)).iter().map(|bytes| 2 * bytes).collect();
        prop_assert_eq!(sent, &twice);
        for parcel in parcels.iter().filter(|parcel| parcel.to == rank(index)) {
            for (from, to) in parcel.send.clone().zip(parcel.receive.clone()) {
                prop_assert_eq!(receive[to], cell(parcel.from.index(), from));
            }
        }
    }
    Ok(())
}

fn ratio(schedule: &Schedule, site: &Site, works: Works) -> f64 {
    let bound = Bound::of(&schedule.goal, schedule.payload, site);
    let bound = if works == Works::Links { bound.links_s } else { bound.seconds() };
    Timing::of(schedule, site, works).seconds / bound
}

#[test]
fn a_hot_owner_is_relayed_on_the_twisted_hypercube() {
    let site = shipped("twisted-hypercube-8", 8);
    let sources = (0..8).map(|owner| (rank(owner), vec![if owner == 1 { 4 << 20 } else { 1 << 20 }; 8]));
    let sources: Vec<_> = sources.collect();
    let parcels = Parcels::new(8, &sources);
    let direct = Exchange::AllToAll.plan(&parcels, Payload::Raw(4));
    for (works, most, gain) in [(Works::Links, 1.02, 1.45), (Works::LinksAndMemories, 1.15, 1.08)] {
        let plan = relayed(&parcels, Payload::Raw(4), &site, works);
        assert_eq!(check(&plan), Ok(()));
        let [found, before] = [&plan, &direct].map(|schedule| ratio(schedule, &site, works));
        assert!(found <= most && before / found >= gain, "{works:?}: {found}, {before} without relays");
        // Each relay is priced in memory, too.
        assert!(plan.memory_bytes() > direct.memory_bytes());
    }
    let text = relayed(&parcels, Payload::Raw(4), &site, Works::Links).to_string();
    assert!(text.starts_with("relayed all-to-all among 8 ranks") && text.contains(" transit 0.."), "{text}");
}

#[test]
fn both_rounds_are_alike_on_the_hypercube() {
    let (site, parcels) = (shipped("hypercube-8", 8), Parcels::uniform(8, 1 << 15));
    let plan = relayed(&parcels, Payload::Raw(8), &site, Works::LinksAndMemories);
    assert_eq!(check(&plan), Ok(()));
    let round = |hops: &Vec<Hop>| Schedule { rounds: vec![hops.clone()], ..plan.clone() }.traffic();
    let rounds: Vec<Links> = plan.rounds.iter().map(round).collect();
    assert_eq!(rounds.len(), 2);
    // But for parts that are whole lines.
    for (from, to) in (0..64).map(|at| (rank(at / 8), rank(at % 8))) {
        let [first, second] = [0, 1].map(|at| rounds[at].at(from, to));
        assert!(first.abs_diff(second) <= 1024, "{from} to {to}: {first} and {second} bytes");
    }
    carry_out(&plan, &parcels, 1 << 16).unwrap();
}

#[test]
fn nobody_relays_where_nobody_can_help() {
    for (name, ranks) in [("fat-tree-64", 64), ("two-socket", 2), ("epyc-nps4-2s", 8), ("full-4", 4), ("ring-4", 1)] {
        let (site, parcels) = (shipped(name, ranks), Parcels::uniform(ranks, 1000));
        for works in [Works::Links, Works::LinksAndMemories] {
            let plan = relayed(&parcels, Payload::Raw(4), &site, works);
            assert_eq!(plan.rounds, Exchange::AllToAll.plan(&parcels, Payload::Raw(4)).rounds, "{name}");
            assert!((0..ranks).all(|rank| plan.transit_len(RankId(rank as u32)) == 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// On any machine, with several ranks on a node, and any parcels.
    #[test]
    fn relays_bring_every_parcel_to_its_place(
        nodes in 1usize..=8,
        switches in 0usize..3,
        each in 1usize..3,
        seed in 0u64..1000,
        window_lines in 1usize..5,
        links in any::<bool>(),
    ) {
        let ranks = (nodes * each).clamp(2, 8);
        let site = any_site(seed, nodes, switches, ranks);
        let parcels = any_parcels(seed, ranks);
        let works = if links { Works::Links } else { Works::LinksAndMemories };
        let plan = relayed(&parcels, Payload::Raw(8), &site, works);
        prop_assert_eq!(check(&plan), Ok(()));
        let direct = Exchange::AllToAll.plan(&parcels, Payload::Raw(8));
        let [found, before] = [&plan, &direct].map(|schedule| Timing::of(schedule, &site, works).seconds);
        prop_assert!(found <= before, "{} {}", found, before);
        carry_out(&plan, &parcels, window_lines * 64)?;
    }
}
