//! What copies of hot rows are predicted to save and to cost is what minibatches of such rows send.

use std::sync::Arc;

use octorec::base::RankId;
use octorec::base::config::Precision;
use octorec::collective::Links;
use octorec::data::hot::{HotSet, HotSlots, Inputs};
use octorec::data::{Batch, Schema};
use octorec::exchange::{HotCopies, Layout, LayoutSpec, Traffic};
use octorec::shard::{HotPrice, HotPrices, Model, Part, RankLoad, Scheme, Sharding};

use super::{shipped, workload};
use crate::planned;

const ROWS: [u64; 5] = [200_000, 30_000, 4_000, 9_000, 60];
const SKEWS: [f64; 5] = [1.2, 1.05, 1.3, 1.1, 0.9];
const LOOKUPS: [usize; 5] = [1, 3, 1, 2, 1];
const BATCH: usize = 4096;
// Half of the columns take whole cache lines, as parts of messages do.
const DIM: usize = 32;

/// A minibatch with fixed numbers of look-ups, row 0 the hottest of each table.
fn minibatch(samples: usize) -> Batch {
    let mut batch = Batch::new(&Schema::criteo(0, &ROWS));
    let mut state = 1u64;
    for ((bag, rows), (skew, lookups)) in batch.bags.iter_mut().zip(ROWS).zip(SKEWS.into_iter().zip(LOOKUPS)) {
        let mut sums = vec![0.0];
        for row in 0..rows {
            sums.push(sums[row as usize] + f64::from(row as u32 + 1).powf(-skew));
        }
        for _ in 0..samples {
            for _ in 0..lookups {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let drawn = (state >> 11) as f64 / (1u64 << 53) as f64 * sums[rows as usize];
                bag.rows.push((sums.partition_point(|sum| *sum <= drawn) - 1) as u32);
            }
            bag.close();
        }
    }
    batch.labels.resize(samples, 0.0);
    batch
}

/// Whether a sample looks up none but the first rows, so many of each table that is copied.
fn is_hot(batch: &Batch, hot: &[u64], sample: usize) -> bool {
    let copied = batch.bags.iter().zip(hot).take(4);
    copied.into_iter().all(|(bag, hot)| bag.of(sample).iter().all(|row| u64::from(*row) < *hot))
}

fn hot_share(batch: &Batch, hot: &[u64]) -> f64 {
    (0..BATCH).filter(|sample| is_hot(batch, hot, *sample)).count() as f64 / BATCH as f64
}

/// As many hot samples as a minibatch has, drawn as its are; nothing where few are hot.
fn hot_samples(batch: &Batch, hot: &[u64]) -> Option<Batch> {
    if hot_share(batch, hot) < 0.05 {
        return None;
    }
    let more = minibatch(24 * BATCH);
    let chosen = (0..more.samples()).filter(|sample| is_hot(&more, hot, *sample)).take(BATCH);
    let mut batch = Batch::new(&Schema::criteo(0, &ROWS));
    chosen.for_each(|sample| batch.push_from(&more, sample));
    (batch.samples() == BATCH).then_some(batch)
}

fn schemes(ranks: usize) -> Vec<Scheme> {
    let rank = |at: usize| RankId((at % ranks) as u32);
    let halves =
        |whole: u64| vec![Part { rank: rank(1), size: whole / 2 }, Part { rank: rank(2), size: whole - whole / 2 }];
    vec![
        Scheme::Table(rank(0)),
        Scheme::RowCyclic((0..ranks).map(rank).collect()),
        Scheme::Column(halves(DIM as u64)),
        Scheme::RowContiguous(halves(ROWS[3])),
        Scheme::Replicated,
    ]
}

/// Copies of these rows on all ranks.
fn copies_of(set: &HotSet) -> HotCopies {
    HotCopies { slots: Arc::new(HotSlots::new(set)), precision: Precision::F32, weighing: 0 }
}

#[test]
fn bytes_of_every_kind_are_near_those_of_minibatches_and_enough_is_the_least_that_saves_most() {
    let batch = minibatch(BATCH);
    let mut work = workload(&ROWS, DIM, BATCH);
    for ((table, skew), lookups) in work.tables.iter_mut().zip(SKEWS).zip(LOOKUPS) {
        (table.skew, table.lookups) = (skew, lookups as f64);
    }
    for ranks in [2, 4, 8] {
        let sharding = Sharding::new(&ROWS, vec![DIM; ROWS.len()], ranks, schemes(ranks)).unwrap();
        let prices = HotPrices::new(&work, &sharding);
        let (ladder, chosen) = prices.ladder(None, u64::MAX);
        let chosen = ladder[chosen.expect("these rows are hot")];
        for price in [prices.of(8 << 10), prices.of(64 << 10), chosen] {
            let hot = prices.rows(price.budget);
            assert_eq!((price.rows, price.bytes), (hot.iter().sum(), hot.iter().sum::<u64>() * 8 * DIM as u64));
            assert!(price.bytes <= price.budget && hot[4] == 0, "{price:?}: of replicated tables nothing");
            let mut set = HotSet::new();
            ROWS.iter().zip(&hot).for_each(|(rows, hot)| set.push_some(*rows, 0..*hot as u32));
            let slots = Some(copies_of(&set));
            let sent = |hot| {
                let layout = Layout::new(sharding.clone(), &LayoutSpec::default()).with_hot(hot);
                planned::step_traffic(&layout, (&batch, Inputs::Mixed), &Links::uniform(ranks, 0))
            };
            let bags = |sent: &Traffic| [&sent.ids, &sent.pooled_rows, &sent.pooled_gradients].map(Links::total);
            let (without, with) = (sent(None), sent(slots));
            let near = |what: &str, planned: f64, found: usize, bound: f64| {
                // Messages are whole cache lines.
                let lines = (64 * ranks * (ranks - 1)) as f64;
                let apart = (planned - found as f64).abs();
                assert!(
                    apart <= bound * found as f64 + lines,
                    "{ranks} ranks, {what}: {planned:.0} planned, {found} found, {price:?}"
                );
            };
            near("without", price.without, bags(&without).iter().sum(), 0.02);
            // Of one minibatch: the hottest rows are a draw.
            near("bags that travel", price.cold, bags(&with).iter().sum(), 0.1);
            near("sums of gradients", price.gradients, with.hot_gradients.total(), 0.1);
            near("rows that moved", price.moved, with.hot_rows.total(), 0.1);
            // Samples that look up hot rows alone, as many as a minibatch has.
            let hot = prices.fae_rows(price.budget);
            let (fae, hot_batch, share) = (price.fae, hot_samples(&batch, &hot), hot_share(&batch, &hot));
            assert!((fae.inputs - share).abs() < 0.02, "{ranks} ranks: {fae:?}, and {share} are hot");
            assert_eq!(fae.rows, hot.iter().sum::<u64>());
            if let Some(hot_batch) = hot_batch {
                let mut set = HotSet::new();
                ROWS.iter().zip(&hot).for_each(|(rows, hot)| set.push_some(*rows, 0..*hot as u32));
                let hot = Some(copies_of(&set));
                let layout = Layout::new(sharding.clone(), &LayoutSpec::default()).with_hot(hot);
                let sent = planned::step_traffic(&layout, (&hot_batch, Inputs::Hot), &Links::uniform(ranks, 0));
                assert_eq!(bags(&sent), [0; 3]);
                near("a step of hot inputs", fae.hot, sent.hot_gradients.total() + sent.hot_rows.total(), 0.1);
                let mean = share * fae.hot + (1.0 - share) * price.without;
                assert!((fae.mean - mean).abs() < 0.03 * price.without, "{fae:?}");
            }
            assert!(price.with() < price.without, "{price:?}");
        }
        let saved = |price: &HotPrice| price.without - price.with();
        let most = ladder.iter().map(saved).fold(0.0, f64::max);
        assert!(saved(&chosen) >= 0.99 * most);
        assert!(ladder.iter().filter(|price| price.budget < chosen.budget).all(|price| saved(price) < 0.99 * most));
        assert!(ladder.is_sorted_by(|a, b| 2 * a.budget == b.budget && a.rows <= b.rows));
    }
    // Where every row is as seldom as any other, no copy pays.
    let sharding = Sharding::new(&[1 << 20], vec![DIM], 4, vec![Scheme::Table(RankId(0))]).unwrap();
    let work = workload(&[1 << 20], DIM, BATCH);
    let (ladder, chosen) = HotPrices::new(&work, &sharding).ladder(None, u64::MAX);
    assert!(chosen.is_none() && ladder.iter().all(|price| price.rows == 0), "{ladder:?}");
}

/// What each rank is predicted to do with rows has the bytes that prices have.
#[test]
fn what_ranks_send_is_what_was_priced() {
    let mut work = workload(&ROWS, DIM, BATCH);
    for ((table, skew), lookups) in work.tables.iter_mut().zip(SKEWS).zip(LOOKUPS) {
        (table.skew, table.lookups) = (skew, lookups as f64);
    }
    for ranks in [2, 4, 8] {
        let site = shipped("twisted-hypercube-8", ranks);
        let model = Model::new(&work, &site);
        let sharding = Sharding::new(&ROWS, vec![DIM; ROWS.len()], ranks, schemes(ranks)).unwrap();
        let prices = HotPrices::new(&work, &sharding);
        let others = |rank: usize| (BATCH - model.samples(RankId(rank as u32))) as f64;
        let peers = (ranks - 1) as f64;
        let of = |loads: &[RankLoad], sent: &dyn Fn(&RankLoad, f64) -> f64| {
            loads.iter().enumerate().map(|(rank, load)| sent(load, others(rank))).sum::<f64>()
        };
        let bags =
            |load: &RankLoad, others: f64| others * (load.ids + 2.0 * 4.0 * load.columns) + peers * load.id_heads;
        let same = |what: &str, found: f64, priced: f64, part: f64| {
            assert!((found - priced).abs() <= part * priced, "{ranks} ranks, {what}: {found} of {priced}");
        };
        let without = RankLoad::without_copies(&model, &sharding);
        let price = prices.of(64 << 10);
        // Look-ups of a minibatch are whole numbers there.
        same("without", of(&without, &bags), price.without, 1e-3);
        let with = RankLoad::with_copies(&model, &prices, &prices.rows(price.budget), Inputs::Mixed);
        same("bags that travel", of(&with, &bags), price.cold, 1e-9);
        same("sums", of(&with, &|load, _| load.sent_sums.iter().sum()), price.gradients, 0.02);
        // Each rank's hot rows once to each other one: a slot and what a look-up reads.
        let filled = prices.rows(price.budget).iter().sum::<u64>() as f64 * peers * 4.0 * (1.0 + DIM as f64);
        same("copies that are written", price.filling, filled, 0.05);
        assert_eq!(price.with_revisions(10), price.with() + price.filling / 10.0);
        same("rows that moved", of(&with, &|load, _| peers * load.moved), price.moved, 1e-3);
        // All that is looked up is looked up somewhere: less of it for others, more at home.
        let home = |loads: &[RankLoad]| loads.iter().map(|load| load.for_own[0]).sum::<f64>();
        let away = |loads: &[RankLoad]| of(loads, &|load, others| others * load.for_others[0]);
        let [[away_with, away_without], [home_with, home_without]] =
            [[away(&with), away(&without)], [home(&with), home(&without)]];
        assert!(away_with < away_without, "{ranks} ranks: {away_with} of {away_without}");
        assert!(home_with > home_without, "{ranks} ranks: {home_with} of {home_without}");
        let hot = RankLoad::with_copies(&model, &prices, &prices.fae_rows(price.budget), Inputs::Hot);
        assert!(of(&hot, &|load, others| others * load.columns) == 0.0 && away(&hot) == 0.0, "{hot:?}");
        let sums = of(&hot, &|load, _| load.sent_sums.iter().sum::<f64>() + peers * load.moved);
        same("hot inputs", sums, price.fae.hot, 0.02);
        // Without a hot row as much is looked up, and where (only bags without a row of a part no longer travel).
        let none = RankLoad::with_copies(&model, &prices, &[0; ROWS.len()], Inputs::Mixed);
        for (none, without) in none.iter().zip(&without) {
            let all = |load: &RankLoad| [load.for_others[0], load.for_own[0], load.update[0]];
            for (none, without) in all(none).into_iter().zip(all(without)) {
                assert!((none - without).abs() <= 0.15 * without.max(1.0), "{none} {without}");
            }
            assert_eq!((none.sums, none.moved), ([0.0; 2], 0.0));
        }
    }
}
