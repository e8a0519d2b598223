//! What a schedule takes on a machine: its messages as fluids that share links and memories fairly.
//!
//! Each message flows ([`Fluid`]) from the moment at which both its ranks have begun its round. It takes of a link its
//! bytes, of its sender's memory what is read, and of its receiver's what is written into the window, read there, added
//! and put into place ([`Schedule::memory_bytes`]). Between hosts it takes of the cores of both what the network does
//! ([`Site::network_work`]), unless those who copy are given one by one. The last byte arrives with the latency of its
//! way. A rank begins its next round when its messages of this one have gone and come, as the executor does.

use std::collections::BTreeMap;

use super::schedule::{Fold, Hop, Schedule};
use crate::base::RankId;
use crate::machine::Site;
use crate::machine::fluid::{Activity, After, Fluid};

/// What is priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Works {
    /// Links alone, as if memories and cores were endlessly fast.
    Links,
    /// Links, the memories at both ends, and what the network takes of cores there.
    LinksAndMemories,
}

/// What a schedule takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// Until the last rank has ended.
    pub seconds: f64,
    /// Bytes on each of the site's wires.
    pub wire_bytes: Vec<f64>,
    /// Bytes read and written in each of its pools.
    pub pool_bytes: Vec<f64>,
    /// Core seconds that the network takes of each of its hosts.
    pub core_s: Vec<f64>,
}

/// What limits a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Busiest {
    /// "link node 3 to node 4", "memory of node 2" or "network cores of host 1".
    pub name: String,
    /// Its share of the time.
    pub share: f64,
}

/// All hops of a round from one rank to another: they share a channel, so they go one after another.
struct Message {
    from: usize,
    to: usize,
    activity: Activity,
}

impl Timing {
    /// Of a schedule among the ranks of a site.
    ///
    /// # Panics
    /// When schedule and site have different ranks.
    #[must_use]
    pub fn of(schedule: &Schedule, site: &Site, works: Works) -> Self {
        assert_eq!(schedule.ranks(), site.ranks.len(), "a schedule among the ranks of a site");
        let mut fluid = Fluid::new(rates(site));
        let start = vec![None; schedule.ranks()];
        let ends: Vec<usize> = flow(schedule, site, works, None, &mut fluid, start).into_iter().flatten().collect();
        let flowed = fluid.run();
        let seconds = ends.into_iter().map(|end| flowed[end].gone_s).fold(0.0, f64::max);
        let mut bytes = fluid.taken();
        let core_s = bytes.split_off(site.wires.len() + site.pools.len());
        Self { seconds, core_s, pool_bytes: bytes.split_off(site.wires.len()), wire_bytes: bytes }
    }

    /// The link, memory or host that is busy for the largest share of the time; none where nothing moves.
    #[must_use]
    pub fn busiest(&self, site: &Site) -> Option<Busiest> {
        let hosts = site.wires.len() + site.pools.len();
        let name = |resource: usize| match resource < hosts {
            true => site.resource_name(resource),
            false => Site::cores_name(resource - hosts),
        };
        let taken = self.wire_bytes.iter().chain(&self.pool_bytes).chain(&self.core_s).zip(rates(site)).enumerate();
        let all =
            taken.map(|(resource, (taken, rate))| Busiest { name: name(resource), share: taken / rate / self.seconds });
        all.filter(|busiest| busiest.share > 0.0).reduce(|a, b| if b.share > a.share { b } else { a })
    }
}

/// What there is a second: bytes of a site's wires and memories, and cores of its hosts that work for the network.
fn rates(site: &Site) -> Vec<f64> {
    let mut rates = site.resources();
    rates.extend(site.network_cores());
    rates
}

/// Seconds of a schedule among the ranks of a site if none waited for another: what the busiest link, memory or host
/// takes, and the longest latency of each round.
#[must_use]
pub fn without_waits(schedule: &Schedule, site: &Site, works: Works) -> f64 {
    let rates = rates(site);
    let (mut loads, mut latencies_s) = (vec![0.0; rates.len()], 0.0);
    for hops in &schedule.rounds {
        let mut latency_s = 0.0;
        for Message { activity, .. } in messages(schedule, hops, site, works, None) {
            activity.takes.iter().for_each(|(resource, takes)| loads[*resource] += takes * activity.amount);
            latency_s = f64::max(latency_s, activity.latency_s);
        }
        latencies_s += latency_s;
    }
    loads.iter().zip(rates).map(|(load, rate)| load / rate).fold(0.0, f64::max) + latencies_s
}

/// Who copies for a rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Copier {
    /// A resource.
    pub resource: usize,
    /// How much of it a byte takes that is read or written.
    pub takes: f64,
    /// The rank's host.
    pub host: u32,
    /// How often a byte that leaves the host, or comes from another, is read or written besides.
    pub network: f64,
    /// How many cores the resource is.
    pub cores: f64,
}

/// Adds a schedule to what shares the resources of a site, and of the ranks' copiers, or where none are given of the
/// hosts' cores behind them: a rank begins after the activity in its place, and has ended with the one that is returned
/// there.
pub fn flow(
    schedule: &Schedule,
    site: &Site,
    works: Works,
    copiers: Option<&[Copier]>,
    fluid: &mut Fluid,
    mut done: Vec<Option<usize>>,
) -> Vec<Option<usize>> {
    for hops in &schedule.rounds {
        let mut ends = vec![Vec::new(); schedule.ranks()];
        for Message { from, to, activity } in messages(schedule, hops, site, works, copiers) {
            let ready = [done[from], done[to].filter(|_| from != to)].into_iter().flatten().map(After::Gone);
            let number = fluid.add(activity, ready);
            ends[to].push(After::Arrived(number));
            if from != to {
                ends[from].push(After::Gone(number));
            }
        }
        // A rank that has nothing to do in a round is in the next one already.
        for (done, ends) in done.iter_mut().zip(ends).filter(|(_, ends)| !ends.is_empty()) {
            *done = Some(fluid.add(Activity::MOMENT, ends));
        }
    }
    done
}

/// The messages of a round.
fn messages(schedule: &Schedule, hops: &[Hop], site: &Site, works: Works, copiers: Option<&[Copier]>) -> Vec<Message> {
    let (there, travels) = schedule.payload.accesses();
    let mut channels: BTreeMap<(RankId, RankId), (f64, f64)> = BTreeMap::new();
    for hop in hops {
        // Of the receiver's memory: where it lands, in the window, and what it is added to.
        let arrives = match (hop.from == hop.to, hop.fold) {
            (true, _) => there,
            (false, Fold::Copy) => there + 2 * travels,
            (false, Fold::Add) => 2 * there + 2 * travels,
        };
        let (bytes, written) = channels.entry((hop.from, hop.to)).or_default();
        *bytes += (hop.source.len() * travels) as f64;
        *written += (hop.source.len() * arrives) as f64;
    }
    let message = |((from, to), (bytes, written)): ((RankId, RankId), (f64, f64))| {
        let mut takes: Vec<(usize, f64)> = site.path(from, to).iter().map(|wire| (*wire, 1.0)).collect();
        if works == Works::LinksAndMemories {
            let pool = |rank: RankId| site.wires.len() + site.ranks[rank.index()].pool;
            let (read, written) = (there as f64 / travels as f64, written / bytes);
            if let Some(copiers) = copiers {
                // The sender reads and writes into the window, the receiver does the rest.
                let [own, theirs] = [from, to].map(|rank| copiers[rank.index()]);
                let besides = if own.host == theirs.host { [0.0; 2] } else { [own.network, theirs.network] };
                let [leaves, comes] = site.core_s(from, to);
                takes.push((own.resource, own.takes * (read + 1.0 + besides[0]) + leaves / own.cores));
                let received = theirs.takes * ((written - 1.0).max(0.0) + besides[1]);
                takes.push((theirs.resource, received + comes / theirs.cores));
            } else {
                let hosts = site.wires.len() + site.pools.len();
                let work = site.network_work(from, to).into_iter().filter(|(_, core_s)| *core_s > 0.0);
                takes.extend(work.map(|(host, core_s)| (hosts + host, core_s)));
            }
            match pool(from) == pool(to) {
                true => takes.push((pool(from), read + written)),
                false => takes.extend([(pool(from), read), (pool(to), written)]),
            }
        }
        let activity = Activity { amount: bytes, takes, latency_s: site.latency_s(from, to) };
        Message { from: from.index(), to: to.index(), activity }
    };
    channels.into_iter().map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::plan::direct;
    use crate::collective::{Payload, Slices};
    use crate::machine::placement::Wishes;
    use crate::machine::site::Known;
    use crate::machine::{Machine, place};

    #[test]
    fn where_nobody_waits_both_prices_are_the_same() {
        let machine = Machine::load("two-socket").unwrap();
        let site = Site::new(&machine, &place(&machine, &Wishes::default()).unwrap(), Known::default());
        let schedule = direct(2).plan(&Slices::even(1 << 20, 2), Payload::F32);
        for works in [Works::Links, Works::LinksAndMemories] {
            let [found, wanted] = [without_waits(&schedule, &site, works), Timing::of(&schedule, &site, works).seconds];
            assert!((found / wanted - 1.0).abs() < 1e-9, "{works:?}: {found:e}, not {wanted:e}");
        }
    }
}
