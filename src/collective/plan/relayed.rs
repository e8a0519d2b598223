//! `relayed`: an all-to-all whose parcels go partly by way of other ranks, where the machine's own routes collide.
//!
//! A machine sends what goes from one node to another along one fixed way, though others may be as short; where many of
//! these ways share a link, others stay idle. A rank on another way can take a part and send it on: it lands in its
//! transit buffer in one round and leaves it in a later one. Who takes how much is what [`super::phases`] finds, from
//! the sizes of all parcels, so that hot owners and unequal slices are evened out as well. Relays cost memory
//! bandwidth: where that is short, fewer are used. A part is whole cache lines, unless it is the last one.
//!
//! Every process that plans finds the same: nothing here depends on time, on threads or on the order of a hash.

use std::collections::BTreeMap;
use std::ops::Range;

use super::exchange::{Exchange, bring_all};
use super::phases::{Demand, Division, Takes, Taste, Way, divide};
use super::{Fold, Goal, Hop, Parcels, Payload, Schedule};
use crate::base::RankId;
use crate::collective::price::{Timing, Works};
use crate::machine::Site;
use crate::sync::Line;

/// The name of its schedules.
pub(super) const NAME: &str = "relayed";

/// What is tried where there are few nodes with ranks, until one is near what its linear program promises.
const TASTES: [Taste; 4] = [
    Taste { phases: 1, wire: 1e-3, relay: 1e-2, longest: 1e-3 },
    Taste { phases: 2, wire: 0.0, relay: 1e-2, longest: 1e-3 },
    Taste { phases: 2, wire: 1e-4, relay: 0.0, longest: 1e-3 },
    Taste { phases: 3, wire: 1e-4, relay: 0.0, longest: 1e-3 },
];
const FEW: usize = 8;
const NEAR: f64 = 1.005;

/// What is taken where there are more.
const TASTE_OF_MANY: Taste = Taste { phases: 2, wire: 1e-4, relay: 0.0, longest: 0.0 };

/// Among still more, relays are sought only on shortest ways, and so many of them for each pair.
const ALL_RELAYS_OF: usize = 16;
const FEW_RELAYS: usize = 2;

/// The most ways of a linear program that is solved in a second or so; where there are more, all goes directly.
const MOST_WAYS: usize = 5000;

/// Who gains less of the time than this needs no second round.
const LEAST_GAIN: f64 = 1e-3;

/// The all-to-all of `parcels` among the ranks of a site, as short as the works that count allow. Where relays gain
/// nothing it is [`Exchange::AllToAll`].
///
/// # Panics
/// When parcels and site have different ranks.
#[must_use]
pub fn relayed(parcels: &Parcels, payload: Payload, site: &Site, works: Works) -> Schedule {
    assert_eq!(parcels.ranks(), site.ranks.len(), "parcels among the ranks of a site");
    let schedule = |rounds| Schedule::new(NAME, Goal::AllToAll(parcels.clone()), payload, rounds);
    let plain = schedule(Exchange::AllToAll.plan(parcels, payload).rounds);
    let flow = Flow::new(parcels, payload, site, works);
    // Where nobody can help, that is known at once.
    let relays: usize = flow.demands.values().map(|demand| demand.relays.len()).sum();
    if relays == 0 || 2 * flow.demands.len() + relays > MOST_WAYS {
        return plain;
    }
    let price = |schedule: &Schedule| Timing::of(schedule, site, works).seconds;
    let mut best: Option<(f64, Schedule)> = None;
    let few = flow.seats.members.len() <= FEW;
    for taste in if few { &TASTES[..] } else { &[TASTE_OF_MANY] } {
        let Some((rounds, seconds)) = flow.rounds(parcels, payload, *taste) else { continue };
        if seconds > flow.direct_s() * (1.0 - LEAST_GAIN) {
            return plain;
        }
        let found = schedule(rounds);
        if !few {
            return found;
        }
        let priced = price(&found);
        if best.as_ref().is_none_or(|(least, _)| priced < *least) {
            best = Some((priced, found));
        }
        if priced <= seconds * NEAR {
            break;
        }
    }
    best.filter(|(priced, _)| *priced < price(&plain)).map_or(plain, |(_, found)| found)
}

/// From where to where, and whether it stays with its rank.
type Pair = (usize, usize, bool);

/// Ranks on one node with one memory are alike: they share a seat.
struct Seats {
    of: Vec<usize>,
    members: Vec<Vec<usize>>,
}

impl Seats {
    fn of(site: &Site) -> Self {
        let mut places = BTreeMap::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut of = Vec::with_capacity(site.ranks.len());
        for (rank, standing) in site.ranks.iter().enumerate() {
            let seat = *places.entry((site.home(RankId(rank as u32)), standing.pool)).or_insert(members.len());
            members.resize_with(members.len().max(seat + 1), Vec::new);
            members[seat].push(rank);
            of.push(seat);
        }
        Self { of, members }
    }

    fn pair(&self, from: usize, to: usize) -> Pair {
        (self.of[from], self.of[to], from == to)
    }

    /// The first of a seat.
    fn rank(&self, seat: usize) -> RankId {
        RankId(self.members[seat][0] as u32)
    }

    fn path<'a>(&self, site: &'a Site, from: usize, to: usize) -> &'a [usize] {
        site.path(self.rank(from), self.rank(to))
    }

    /// Who could relay from one seat to another.
    fn relays(&self, site: &Site, from: usize, to: usize) -> Vec<usize> {
        let direct = self.path(site, from, to);
        let wires = |relay: usize| self.path(site, from, relay).iter().chain(self.path(site, relay, to));
        // One that avoids no wire of the direct way helps nobody.
        let helps = |relay: &usize| direct.iter().any(|wire| !wires(*relay).any(|other| other == wire));
        let seats = self.members.len();
        let others = (0..seats).filter(|relay| *relay != from && *relay != to).filter(helps);
        if seats <= ALL_RELAYS_OF {
            return others.collect();
        }
        let mut others: Vec<usize> = others.filter(|relay| wires(*relay).count() <= direct.len()).collect();
        // Other pairs prefer others.
        others.sort_by_key(|relay| (relay + seats - (from + to) % seats) % seats);
        let every = others.len().div_ceil(FEW_RELAYS).max(1);
        others.into_iter().step_by(every).collect()
    }
}

/// What must flow, and through what.
struct Flow {
    seats: Seats,
    /// In elements.
    demands: BTreeMap<Pair, Demand>,
    /// Bytes a second, of wires and then of pools.
    rates: Vec<f64>,
    wires: usize,
}

impl Flow {
    fn new(parcels: &Parcels, payload: Payload, site: &Site, works: Works) -> Self {
        let seats = Seats::of(site);
        let (there, travels) = payload.accesses();
        let wires = site.wires.len();
        // As the price of a schedule has it.
        let takes = |(from, to, stays): Pair| -> Takes {
            let mut takes: Takes = seats.path(site, from, to).iter().map(|wire| (*wire, travels as f64)).collect();
            if works == Works::LinksAndMemories {
                let [sends, receives] = [from, to].map(|seat| wires + site.ranks[seats.rank(seat).index()].pool);
                let (read, written) = (there as f64, if stays { there } else { there + 2 * travels } as f64);
                match sends == receives {
                    true => takes.push((sends, read + written)),
                    false => takes.extend([(sends, read), (receives, written)]),
                }
            }
            takes
        };
        let mut demands: BTreeMap<Pair, Demand> = BTreeMap::new();
        for parcel in parcels.iter().filter(|parcel| !parcel.send.is_empty()) {
            let pair = seats.pair(parcel.from.index(), parcel.to.index());
            let demand = demands.entry(pair).or_insert_with(|| {
                let (from, to, _) = pair;
                let legs = |relay: usize| (relay, [takes((from, relay, false)), takes((relay, to, false))]);
                let relays = seats.relays(site, from, to).into_iter().map(legs).collect();
                Demand { from, to, amount: 0.0, direct: takes(pair), relays }
            });
            demand.amount += parcel.send.len() as f64;
        }
        let pools = site.pools.iter().map(|pool| pool.rates.stream_copy_gb_s);
        let rates = site.wires.iter().map(|wire| wire.gb_s).chain(pools).map(|gb_s| gb_s * 1e9).collect();
        Self { seats, demands, rates, wires }
    }

    /// Seconds until the busiest has moved what it must when all goes directly.
    fn direct_s(&self) -> f64 {
        let mut busy = vec![0.0; self.rates.len()];
        for demand in self.demands.values() {
            demand.direct.iter().for_each(|(at, share)| busy[*at] += demand.amount * share / self.rates[*at]);
        }
        busy.into_iter().fold(0.0, f64::max)
    }

    /// The rounds of a division, and the seconds that it promises.
    fn rounds(&self, parcels: &Parcels, payload: Payload, taste: Taste) -> Option<(Vec<Vec<Hop>>, f64)> {
        let demands: Vec<Demand> = self.demands.values().cloned().collect();
        let (divisions, seconds) = divide(&demands, &self.rates, self.wires, taste)?;
        let divisions: BTreeMap<Pair, Division> = self.demands.keys().copied().zip(divisions).collect();
        let (ranks, members) = (parcels.ranks(), &self.seats.members);
        let mut cutter = Cutter::new(parcels, payload, taste.rounds());
        // Rank r serves r + 1 first, so that at no time all send to one.
        for (from, to) in (1..=ranks).flat_map(|step| (0..ranks).map(move |from| (from, (from + step) % ranks))) {
            if let Some(division) = divisions.get(&self.seats.pair(from, to)) {
                let relay = |seat: usize| members[seat][(from + to) % members[seat].len()];
                bring_all(parcels, from, to).iter().for_each(|whole| cutter.cut(whole, division, relay));
            }
        }
        Some((cutter.rounds, seconds))
    }
}

/// Cuts parcels into parts.
struct Cutter {
    rounds: Vec<Vec<Hop>>,
    /// Elements of a cache line.
    grain: usize,
    /// Of each rank, where the free part of its transit buffer begins for what it sends and for what it receives.
    free: Vec<[usize; 2]>,
}

impl Cutter {
    fn new(parcels: &Parcels, payload: Payload, rounds: usize) -> Self {
        let grain = (Line::BYTES / payload.accesses().0.max(1)).max(1);
        let free = RankId::all(parcels.ranks()).map(|rank| parcels.transit_starts(rank)).collect();
        Self { rounds: vec![Vec::new(); rounds], grain, free }
    }

    /// What a hop would bring directly, divided so; `relay`: which rank of a seat relays.
    fn cut(&mut self, whole: &Hop, division: &Division, relay: impl Fn(usize) -> usize) {
        let len = whole.source.len();
        let grains = len.div_ceil(self.grain) as f64;
        let (mut until, mut start) = (0.0, 0);
        for (at, (way, share)) in division.iter().enumerate() {
            until += share;
            // However shares are rounded, the last part is the rest.
            let is_last = at + 1 == division.len();
            let end = if is_last { len } else { (until * grains).round() as usize * self.grain };
            let part = start..end.clamp(start, len);
            let span = |of: &Range<usize>| of.start + part.start..of.start + part.end;
            let (source, target) = (span(&whole.source), span(&whole.target));
            let hop = |from, to, source, target| Hop { from, to, source, target, fold: Fold::Copy };
            match *way {
                Way::Direct(round) => self.rounds[round].push(hop(whole.from, whole.to, source, target)),
                Way::By(seat, [first, second]) => {
                    let relay = relay(seat);
                    let free = &mut self.free[relay];
                    let [sends, receives] = free.map(|start| start..start + part.len());
                    // Each part begins as far from the buffer's start as whole lines are long.
                    let taken = part.len().next_multiple_of(self.grain);
                    *free = free.map(|start| start + taken);
                    let relay = RankId(relay as u32);
                    self.rounds[first].push(hop(whole.from, relay, source, receives));
                    self.rounds[second].push(hop(relay, whole.to, sends, target));
                }
            }
            start = part.end;
        }
    }
}
