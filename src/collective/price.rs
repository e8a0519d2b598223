//! What a schedule takes on a machine: its messages as fluids that share links and memories fairly.
//!
//! Each message flows from the moment at which both its ranks have begun its round. All messages on their way at a time get
//! max-min fair rates (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2): they grow together until a link or a
//! memory is full; what passes there keeps its rate, the others go on growing. A message takes of a link its bytes, of its
//! sender's memory what is read, and of its receiver's what is written into the window, read there, added and put into place
//! ([`Schedule::memory_bytes`]). The last byte arrives with the latency of its way. A rank begins its next round when its
//! messages of this one have gone and come, as the executor does.

use std::collections::BTreeMap;

use super::schedule::{Fold, Hop, Schedule};
use crate::base::RankId;
use crate::machine::Site;

/// What is priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Works {
    /// Links alone, as if memories were endlessly fast.
    Links,
    /// Links, and the memories at both ends.
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
}

/// What limits a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Busiest {
    /// "link node 3 to node 4" or "memory of node 2".
    pub name: String,
    /// Its share of the time.
    pub share: f64,
}

/// The rate of what nothing limits, between ranks of one node where memories cost nothing: bytes a second.
const AT_ONCE: f64 = 1e18;

/// All hops of a round from one rank to another: they share a channel, so they go one after another.
struct Message {
    from: usize,
    to: usize,
    bytes: f64,
    /// Which resources it takes, and how much of each for one byte on its way.
    takes: Vec<(usize, f64)>,
    latency_s: f64,
}

impl Timing {
    /// Of a schedule among the ranks of a site.
    ///
    /// # Panics
    /// When schedule and site have different ranks.
    #[must_use]
    pub fn of(schedule: &Schedule, site: &Site, works: Works) -> Self {
        assert_eq!(schedule.ranks(), site.ranks.len(), "a schedule among the ranks of a site");
        let wires = site.wires.len();
        let rates =
            site.wires.iter().map(|wire| wire.gb_s).chain(site.pools.iter().map(|pool| pool.rates.stream_copy_gb_s));
        let rates: Vec<f64> = rates.map(|gb_s| gb_s * 1e9).collect();
        let rounds: Vec<Vec<Message>> =
            schedule.rounds.iter().map(|hops| messages(schedule, hops, site, works)).collect();
        let mut bytes = vec![0.0; rates.len()];
        for message in rounds.iter().flatten() {
            message.takes.iter().for_each(|(resource, share)| bytes[*resource] += share * message.bytes);
        }
        let seconds = Flowing::new(&rounds, &rates, schedule.ranks()).run();
        Self { seconds, pool_bytes: bytes.split_off(wires), wire_bytes: bytes }
    }

    /// The link or memory that is busy for the largest share of the time; none where nothing moves.
    #[must_use]
    pub fn busiest(&self, site: &Site) -> Option<Busiest> {
        let wires = site
            .wires
            .iter()
            .zip(&self.wire_bytes)
            .map(|(wire, bytes)| (format!("link {}", wire.name), bytes, wire.gb_s));
        let pools = site.pools.iter().zip(&self.pool_bytes);
        let pools =
            pools.map(|(pool, bytes)| (format!("memory of {}", pool.name()), bytes, pool.rates.stream_copy_gb_s));
        let all =
            wires.chain(pools).map(|(name, bytes, gb_s)| Busiest { name, share: bytes / (gb_s * 1e9) / self.seconds });
        all.filter(|busiest| busiest.share > 0.0).reduce(|a, b| if b.share > a.share { b } else { a })
    }
}

/// The messages of a round.
fn messages(schedule: &Schedule, hops: &[Hop], site: &Site, works: Works) -> Vec<Message> {
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
            match pool(from) == pool(to) {
                true => takes.push((pool(from), read + written)),
                false => takes.extend([(pool(from), read), (pool(to), written)]),
            }
        }
        Message { from: from.index(), to: to.index(), bytes, takes, latency_s: site.latency_s(from, to) }
    };
    channels.into_iter().map(message).collect()
}

/// A schedule on its way.
struct Flowing<'a> {
    rounds: &'a [Vec<Message>],
    rates: &'a [f64],
    /// Each rank's round; all of them: it has ended.
    at: Vec<usize>,
    /// Messages of its round that it still waits for, sent and received.
    open: Vec<usize>,
    /// What flows, with the bytes that are left.
    flows: Vec<(&'a Message, f64)>,
    /// When what has left its sender arrives, and where.
    arrivals: Vec<(f64, usize)>,
    now: f64,
}

impl<'a> Flowing<'a> {
    fn new(rounds: &'a [Vec<Message>], rates: &'a [f64], ranks: usize) -> Self {
        let (at, open) = (vec![0; ranks], vec![0; ranks]);
        Self { rounds, rates, at, open, flows: Vec::new(), arrivals: Vec::new(), now: 0.0 }
    }

    fn run(mut self) -> f64 {
        (0..self.at.len()).for_each(|rank| self.enter(rank));
        while !self.flows.is_empty() || !self.arrivals.is_empty() {
            let rates = self.fair();
            let ends = self.flows.iter().zip(&rates).map(|((_, left), rate)| left / rate).fold(f64::INFINITY, f64::min);
            let comes = self.arrivals.iter().map(|(when, _)| when - self.now).fold(f64::INFINITY, f64::min);
            let step = ends.min(comes).max(0.0);
            self.now += step;
            // What ends at the same moment but for rounding ends together.
            let (now, soon) = (self.now, self.now * 1e-9 + 1e-15);
            let mut gone = Vec::new();
            let mut rate = rates.into_iter();
            self.flows.retain_mut(|(message, left)| {
                let rate = rate.next().expect("a rate for each flow");
                *left -= step * rate;
                let done = *left <= soon * rate;
                if done {
                    gone.push(*message);
                }
                !done
            });
            self.arrivals.extend(gone.iter().map(|message| (now + message.latency_s, message.to)));
            let mut ready: Vec<usize> =
                gone.iter().filter(|message| message.from != message.to).map(|message| message.from).collect();
            self.arrivals.retain(|(when, to)| {
                let here = *when <= now + soon;
                if here {
                    ready.push(*to);
                }
                !here
            });
            for rank in ready {
                self.open[rank] -= 1;
                if self.open[rank] == 0 {
                    self.at[rank] += 1;
                    self.enter(rank);
                }
            }
        }
        self.now
    }

    /// A rank begins its next round that has messages of it; those whose other rank is there, too, begin to flow.
    fn enter(&mut self, rank: usize) {
        while let Some(round) = self.rounds.get(self.at[rank]) {
            let here = self.at[rank];
            let mine = || round.iter().filter(|message| message.from == rank || message.to == rank);
            // What stays is one thing to wait for, what goes or comes another.
            self.open[rank] = mine().count();
            if self.open[rank] > 0 {
                let ready = mine().filter(|message| {
                    let other = if message.from == rank { message.to } else { message.from };
                    other == rank || self.at[other] == here && self.open[other] > 0
                });
                self.flows.extend(ready.map(|message| (message, message.bytes)));
                return;
            }
            self.at[rank] += 1;
        }
        self.open[rank] = 0;
    }

    /// Max-min fair rates of all flows, in bytes on their way a second.
    fn fair(&self) -> Vec<f64> {
        let mut rates = vec![AT_ONCE; self.flows.len()];
        let mut left = self.rates.to_vec();
        let mut grows: Vec<usize> = (0..self.flows.len()).collect();
        while !grows.is_empty() {
            let mut shares = vec![0.0; left.len()];
            for &flow in &grows {
                self.flows[flow].0.takes.iter().for_each(|(resource, share)| shares[*resource] += share);
            }
            let fulls =
                left.iter().zip(&shares).map(|(left, share)| if *share > 0.0 { left / share } else { f64::INFINITY });
            let fulls: Vec<f64> = fulls.collect();
            let level = fulls.iter().copied().fold(f64::INFINITY, f64::min);
            if level == f64::INFINITY {
                break;
            }
            let is_full = |resource: usize| fulls[resource] <= level * (1.0 + 1e-9);
            let (stay, grow): (Vec<usize>, Vec<usize>) = grows
                .into_iter()
                .partition(|&flow| self.flows[flow].0.takes.iter().any(|(resource, _)| is_full(*resource)));
            for flow in stay {
                rates[flow] = level;
                for (resource, share) in &self.flows[flow].0.takes {
                    left[*resource] = (left[*resource] - share * level).max(0.0);
                }
            }
            grows = grow;
        }
        rates
    }
}
