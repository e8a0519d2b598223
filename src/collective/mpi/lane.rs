//! The fabric of several machines: windows among the ranks of one, frames of MPI between machines.
//!
//! A lane in which all ranks send in the same stage sends one frame from machine to machine ([`Endpoint::close`]); a
//! lane whose ranks send each for itself (the dense reduction, rings) has an endpoint a rank, with communicators of
//! their own.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::driver::Driver;
use super::endpoint::{Endpoint, Message, POSTED, Route, header, lines_of};
use crate::base::units::Bytes;
use crate::base::{Error, Place, RankId, Result, Trouble};
use crate::collective::Machines;
use crate::collective::carrier::{Carrier, Fabric, LaneSpec, Links, Opened, Outgoing};
use crate::collective::shared_memory::SharedMemory;
use crate::ffi::mpi::{Calls, Communicator, Part};
use crate::memory::{Buffer, Supply};
use crate::sync::{Barrier, Job, Line, Stores};

/// Bytes of a message that stay in the caches until MPI reads them: half of a core's second-level cache.
const NEAR: usize = 1 << 20;

/// What connects the ranks of several machines.
pub(super) struct Bridge {
    machines: Machines,
    shared: SharedMemory,
    ways: Arc<Ways>,
    job: Job,
}

/// All lanes' ways to other machines. Lanes outlive the fabric that connected them: the last holder ends the messages,
/// since what comes for a receive that was taken back is lost.
struct Ways {
    driver: Arc<Driver>,
    job: Job,
    lanes: Vec<Ends>,
    communicators: Vec<Arc<Communicator>>,
}

/// One lane's way to other machines.
struct Ends {
    links: Arc<Links>,
    /// Whether ranks close parts of common frames.
    together: bool,
    /// One for all ranks of this machine, or one a rank.
    endpoints: Vec<Arc<Endpoint>>,
    /// By endpoint, by rank: where messages to it and from it go.
    peers: Vec<Arc<Vec<Option<usize>>>>,
}

/// Lines of the part that a rank fills for one machine at most: on each link the longest message and, before it, one of
/// a line that announces it.
fn part_lines(links: &Links, from: usize, to: Range<usize>) -> usize {
    let bytes = |to: usize| links.at(RankId(from as u32), RankId(to as u32));
    to.map(bytes).filter(|bytes| *bytes > 0).map(|bytes| lines_of(bytes) + lines_of(Line::BYTES)).sum()
}

impl Bridge {
    /// For lanes of these sizes; all processes make it at the same time.
    ///
    /// # Errors
    /// What MPI says.
    pub fn new(driver: &Arc<Driver>, machines: Machines, job: &Job, lanes: Vec<LaneSpec>) -> Result<Self> {
        let own = driver.process;
        let within = |lane: &LaneSpec| {
            let mut links = lane.links.clone();
            let ranks = || 0..links.ranks();
            let across: Vec<_> = ranks()
                .flat_map(|from| ranks().map(move |to| (from, to)))
                .filter(|(from, to)| machines.of(*from) != own || machines.of(*to) != own)
                .collect();
            across.into_iter().for_each(|(from, to)| *links.at_mut(RankId(from as u32), RankId(to as u32)) = 0);
            links
        };
        let shared = SharedMemory::new(job, lanes.iter().map(within).collect());
        // One communicator a lane, or one a sender of each machine: as many on all machines.
        let widest = machines.widest();
        let count: usize = lanes.iter().map(|lane| if lane.together { 1 } else { widest }).sum();
        let communicators = driver.communicators(count, job.deadline())?;
        let mut of_lanes = communicators.iter().cloned();
        let any_thread = driver.calls == Calls::Any;
        let mut ends = Vec::new();
        for LaneSpec { links, together } in lanes {
            let of_lane: Vec<_> = of_lanes.by_ref().take(if together { 1 } else { widest }).collect();
            let ranks = machines.ranks(own);
            let groups: Vec<Range<usize>> =
                if together { vec![ranks] } else { ranks.map(|rank| rank..rank + 1).collect() };
            let (mut endpoints, mut peers) = (Vec::new(), Vec::new());
            for group in groups {
                let (routes, peer_of) = routes(&machines, own, &links, &group, &of_lane)?;
                endpoints.push(Arc::new(Endpoint::new(routes, group, links.ranks(), any_thread)));
                peers.push(Arc::new(peer_of));
            }
            driver.take(&endpoints);
            ends.push(Ends { links: Arc::new(links), together, endpoints, peers });
        }
        let ways = Arc::new(Ways { driver: driver.clone(), job: job.clone(), lanes: ends, communicators });
        Ok(Self { machines, shared, ways, job: job.clone() })
    }
}

/// The ways from a group of ranks to those of other machines with which it has links, and which of them leads to each
/// rank.
fn routes(
    machines: &Machines,
    own: usize,
    links: &Links,
    group: &Range<usize>,
    communicators: &[Arc<Communicator>],
) -> Result<(Vec<Route>, Vec<Option<usize>>)> {
    let (mut routes, mut peer_of) = (Vec::new(), vec![None; links.ranks()]);
    let first = |machine: usize| machines.ranks(machine).start;
    let together = communicators.len() == 1 && group.len() == machines.ranks(own).len();
    for machine in (0..machines.count()).filter(|machine| *machine != own) {
        let theirs = machines.ranks(machine);
        let groups: Vec<Range<usize>> =
            if together { vec![theirs] } else { theirs.map(|rank| rank..rank + 1).collect() };
        for peers in groups {
            let lines = |from: &Range<usize>, to: &Range<usize>| {
                from.clone().map(|from| part_lines(links, from, to.clone())).sum::<usize>()
            };
            let (out, capacity) = (lines(group, &peers), lines(&peers, group));
            if out + capacity == 0 {
                continue;
            }
            if out.max(capacity) > MOST_LINES {
                return Err(too_long(machine, out.max(capacity)));
            }
            peers.clone().for_each(|rank| peer_of[rank] = Some(routes.len()));
            // The sender's communicator, the receiver's number as the tag.
            let [here, there] = [group.start - first(own), peers.start - first(machine)];
            let way = |sender: usize, receiver: usize| (communicators[sender].clone(), receiver as u16);
            let (out, into) = if together { (way(0, 0), way(0, 0)) } else { (way(here, there), way(there, here)) };
            routes.push(Route { process: machine, out, into, capacity });
        }
    }
    Ok((routes, peer_of))
}

/// Lines of a message at most: MPI counts its bytes in 32 bits with a sign.
const MOST_LINES: usize = i32::MAX as usize / Line::BYTES;

fn too_long(machine: usize, lines: usize) -> Error {
    let reason = format!(
        "what is sent to machine {machine} or comes from it at a time may take {}, and MPI's messages are shorter than 2 GiB: it \
         grows with the samples of a step (train.batch x train.accumulate) or of an evaluation's (train.eval_batch), whichever \
         are more: lower those, or use more machines",
        Bytes((lines * Line::BYTES) as u64)
    );
    Error::config("train.batch", reason)
}

impl Fabric for Bridge {
    fn memory(&self, rank: RankId, supply: &mut Supply<'_>) -> Result<Buffer<Line>> {
        self.shared.memory(rank, supply)
    }

    fn beside(&self, rank: RankId) -> usize {
        /// Parts that a rank fills while others are on their way.
        const PARTS: usize = 2;
        let own = rank.index();
        let others = || {
            (0..self.job.ranks())
                .filter(|other| self.machines.of(*other) != self.ways.driver.process)
                .map(|other| other..other + 1)
        };
        let lines = |lane: &Ends| {
            let out: usize = others().map(|other| part_lines(&lane.links, own, other)).sum();
            let into: usize = others().map(|other| part_lines(&lane.links, other.start, own..own + 1)).sum();
            PARTS * out + POSTED * into
        };
        self.ways.lanes.iter().map(lines).sum::<usize>() * Line::BYTES
    }

    fn connect(&self, barrier: &mut Barrier, memory: Buffer<Line>) -> Result<Vec<Box<dyn Carrier>>> {
        let rank = barrier.rank();
        let own = rank.index() - self.machines.ranks(self.ways.driver.process).start;
        let inside = self.shared.connect(barrier, memory)?;
        let lanes = inside.into_iter().zip(&self.ways.lanes).map(|(inside, ends)| {
            let at = if ends.together { 0 } else { own };
            let (endpoint, peers) = (ends.endpoints[at].clone(), ends.peers[at].clone());
            let count = 1 + peers.iter().flatten().max().map_or(0, |last| last + 1);
            let capacity = |peer: usize| {
                let to = (0..peers.len()).filter(|to| peers[*to] == Some(peer));
                to.map(|to| part_lines(&ends.links, rank.index(), to..to + 1)).sum()
            };
            let staging = (0..count - 1).map(|peer| Staging { part: Part::default(), capacity: capacity(peer) });
            Box::new(Lane {
                job: self.job.clone(),
                rank,
                together: ends.together,
                links: ends.links.clone(),
                staging: staging.collect(),
                current: peers.iter().map(|_| None).collect(),
                sent: vec![0; peers.len()],
                within: Vec::with_capacity(peers.len()),
                inside,
                endpoint,
                peers,
                _ways: self.ways.clone(),
            }) as Box<dyn Carrier>
        });
        Ok(lanes.collect())
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        // Of a job that failed, nobody may take what has not left.
        let is_well = self.job.check().is_ok();
        let patience = if is_well { self.job.deadline().time } else { Duration::ZERO };
        self.driver.leave(self.lanes.drain(..).flat_map(|ends| ends.endpoints).collect(), patience);
        if is_well {
            self.driver.give_back(std::mem::take(&mut self.communicators));
        }
    }
}

/// What a rank has written for another machine and not handed over.
struct Staging {
    part: Part<Line>,
    capacity: usize,
}

/// A rank's ends of one lane: windows to the ranks of its machine, frames to others.
struct Lane {
    job: Job,
    rank: RankId,
    inside: Box<dyn Carrier>,
    together: bool,
    endpoint: Arc<Endpoint>,
    /// By rank; none on this machine, and where there is no link.
    peers: Arc<Vec<Option<usize>>>,
    links: Arc<Links>,
    /// By peer.
    staging: Vec<Staging>,
    /// By sender, the message that was seen.
    current: Vec<Option<Message>>,
    sent: Vec<usize>,
    /// Memory for messages to ranks of this machine that wait for their places.
    within: Vec<Outgoing>,
    /// Messages come for as long as this is held.
    _ways: Arc<Ways>,
}

impl Carrier for Lane {
    fn rank(&self) -> RankId {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.sent.len()
    }

    fn room(&self, from: RankId, to: RankId) -> usize {
        let other = if from == self.rank { to } else { from };
        if self.peers[other.index()].is_some() { self.links.at(from, to) } else { self.inside.room(from, to) }
    }

    fn try_send(&mut self, to: RankId, bytes: usize, write: &mut dyn FnMut(&mut [Line])) -> bool {
        let Some(peer) = self.peers[to.index()] else {
            let gone = self.inside.try_send(to, bytes, write);
            self.sent[to.index()] += if gone { bytes } else { 0 };
            return gone;
        };
        let Staging { part, capacity } = &mut self.staging[peer];
        let lines = lines_of(bytes);
        assert!(lines <= *capacity, "a message of {bytes} bytes to {to}");
        let full = part.used + lines > *capacity;
        if (full || !self.together) && !self.endpoint.is_open(peer) {
            return false;
        }
        if full {
            self.endpoint.send(peer, std::mem::take(part));
        }
        if part.memory.is_empty() {
            part.memory = self.endpoint.spare(peer, *capacity);
        }
        let place = &mut part.memory[part.used..][..lines];
        place[0] = header(self.rank, to, bytes);
        write(&mut place[1..]);
        part.used += lines;
        self.sent[to.index()] += bytes;
        if !self.together {
            self.endpoint.send(peer, std::mem::take(part));
        }
        true
    }

    fn try_send_each(&mut self, due: &mut Vec<Outgoing>, fill: &mut dyn FnMut(&mut [Opened<'_>])) -> bool {
        // Windows on this machine are filled together, frames for others one after another.
        let before = due.len();
        let mut within = std::mem::take(&mut self.within);
        within.extend(due.extract_if(.., |message| self.peers[message.to.index()].is_none()));
        within.iter().for_each(|message| self.sent[message.to.index()] += message.bytes);
        self.inside.try_send_each(&mut within, fill);
        within.iter().for_each(|message| self.sent[message.to.index()] -= message.bytes);
        due.retain(|&Outgoing { to, bytes, stores }| {
            !self.try_send(to, bytes, &mut |lines| fill(&mut [Opened { to, stores, lines }]))
        });
        due.append(&mut within);
        self.within = within;
        due.len() < before
    }

    fn stores(&self, to: RankId, bytes: usize) -> Stores {
        // MPI reads a frame on this node, and soon.
        let near = self.peers[to.index()].is_some() && bytes <= NEAR;
        if near { Stores::Plain } else { self.inside.stores(to, bytes) }
    }

    fn hand_over(&mut self) {
        self.inside.hand_over();
        if self.together {
            for (peer, staging) in self.staging.iter_mut().enumerate() {
                self.endpoint.close(peer, self.rank, std::mem::take(&mut staging.part));
            }
        }
    }

    fn has(&mut self, place: Place, from: RankId, bytes: usize) -> std::result::Result<bool, Trouble> {
        if self.peers[from.index()].is_none() {
            return self.inside.has(place, from, bytes);
        }
        let current = &mut self.current[from.index()];
        if current.is_none() {
            let taken = self.endpoint.take(from, self.rank);
            *current =
                taken.map_err(|failure| self.job.poison(Trouble::Failed { place, message: failure.to_string() }))?;
        }
        match current {
            None => Ok(false),
            Some(message) if message.bytes == bytes => Ok(true),
            Some(Message { bytes: sent, .. }) => {
                Err(self.job.poison(Trouble::Disagreement { place, peer: from, sent: *sent, due: bytes }))
            }
        }
    }

    fn front(&self, from: RankId) -> &[Line] {
        match self.peers[from.index()] {
            None => self.inside.front(from),
            Some(_) => self.current[from.index()].as_ref().expect("a message that was seen").lines(),
        }
    }

    fn release(&mut self, from: RankId) {
        match self.peers[from.index()] {
            None => self.inside.release(from),
            Some(_) => self.endpoint.release(self.current[from.index()].take().expect("a message that was seen")),
        }
    }

    fn pause(&mut self, place: Place, peer: RankId) -> std::result::Result<(), Trouble> {
        // What has moved may be what is waited for.
        if self.endpoint.drive_here() { Ok(()) } else { self.inside.pause(place, peer) }
    }

    fn moved(&mut self) {
        self.inside.moved();
    }

    fn sent(&self) -> &[usize] {
        &self.sent
    }

    fn waited(&self) -> Duration {
        self.inside.waited()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_mpi_cannot_count_are_refused() {
        // Each of two ranks here sends as much to one there.
        let machines = Machines::new(&[2, 2]);
        let refused = routes(&machines, 0, &Links::uniform(4, 1100 << 20), &(0..2), &[]).err();
        let message = refused.expect("more than 2 GiB").to_string();
        for told in ["machine 1", "train.batch x train.accumulate", "train.eval_batch", "lower those"] {
            assert!(message.contains(told), "{message}");
        }
    }
}
