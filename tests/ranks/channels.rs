//! A second fabric: channels that copy, with messages of a few cache lines and delays at random. Where messages may
//! wait for those of other ranks, the last one waits until its sender says that it has sent all. What a job computes
//! may not depend on what carries its messages.

use std::sync::Mutex;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded};
use octorec::base::rng::{Random, Stream};
use octorec::base::{Error, Place, RankId, Result, Trouble, Unpoisoned};
use octorec::collective::{Carrier, Fabric, LaneSpec};
use octorec::memory::{Buffer, Supply};
use octorec::sync::{Barrier, Job, Line, Stores, Waiting};

/// Bytes of the longest message: most messages of a step are longer.
const ROOM: usize = 3 * Line::BYTES;

/// Messages that are under way on a channel at most.
const DEPTH: usize = 2;

/// A message: its length in bytes, and its lines.
type Message = (usize, Vec<Line>);

/// Both ends of a channel, until they are taken; none where ranks do not talk.
type Ends = (Option<Sender<Message>>, Option<Receiver<Message>>);

/// Channels between all ranks that were planned to talk.
pub struct Channels {
    job: Job,
    lanes: Vec<LaneSpec>,
    /// For `[lane][from][to]`.
    ends: Mutex<Vec<Ends>>,
}

impl Channels {
    /// For lanes of these sizes.
    pub fn new(job: &Job, lanes: Vec<LaneSpec>) -> Self {
        let ranks = || RankId::all(job.ranks());
        let mut ends = Vec::new();
        for lane in &lanes {
            for (from, to) in ranks().flat_map(|from| ranks().map(move |to| (from, to))) {
                let channel = (lane.links.at(from, to) > 0).then(|| bounded(DEPTH + 1));
                ends.push(channel.map_or((None, None), |(sender, receiver)| (Some(sender), Some(receiver))));
            }
        }
        Self { job: job.clone(), lanes, ends: Mutex::new(ends) }
    }
}

impl Fabric for Channels {
    fn memory(&self, _: RankId, supply: &mut Supply<'_>) -> Result<Buffer<Line>> {
        supply.buffer("no windows", 0)
    }

    fn connect(&self, barrier: &mut Barrier, _: Buffer<Line>) -> Result<Vec<Box<dyn Carrier>>> {
        let (rank, ranks) = (barrier.rank(), self.job.ranks());
        barrier.wait_without_deadline("channels").map_err(Error::Rank)?;
        let mut ends = self.ends.lock().unpoisoned();
        let lane = |lane: usize| {
            let senders = (0..ranks).map(|to| ends[(lane * ranks + rank.index()) * ranks + to].0.take()).collect();
            let receivers =
                (0..ranks).map(|from| ends[(lane * ranks + from) * ranks + rank.index()].1.take()).collect();
            Box::new(Channel {
                job: self.job.clone(),
                rank,
                senders,
                receivers,
                together: self.lanes[lane].together,
                held: vec![None; ranks],
                fronts: vec![None; ranks],
                sent: vec![0; ranks],
                waited: Duration::ZERO,
                waiting: Waiting::default(),
                random: Random::new((rank.0 as u64) << 8 | lane as u64, Stream::Label),
                drawn: 0,
            }) as Box<dyn Carrier>
        };
        Ok((0..self.lanes.len()).map(lane).collect())
    }
}

/// A rank's ends of one lane.
struct Channel {
    job: Job,
    rank: RankId,
    senders: Vec<Option<Sender<Message>>>,
    receivers: Vec<Option<Receiver<Message>>>,
    /// Whether messages wait.
    together: bool,
    /// The last message to each rank, while it waits.
    held: Vec<Option<Message>>,
    /// The message from each rank that was seen and is not released.
    fronts: Vec<Option<Message>>,
    sent: Vec<usize>,
    waited: Duration,
    waiting: Waiting,
    random: Random,
    drawn: u64,
}

impl Channel {
    /// Whether the medium is late this time.
    fn is_late(&mut self) -> bool {
        self.drawn += 1;
        let [kind, length, ..] = self.random.block(self.drawn);
        if kind.is_multiple_of(1024) {
            std::thread::sleep(Duration::from_micros(u64::from(length % 100)));
        }
        kind.is_multiple_of(5)
    }
}

impl Carrier for Channel {
    fn rank(&self) -> RankId {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.senders.len()
    }

    fn room(&self, from: RankId, to: RankId) -> usize {
        let is_there =
            if from == self.rank { self.senders[to.index()].is_some() } else { self.receivers[from.index()].is_some() };
        if is_there { ROOM } else { 0 }
    }

    fn stores(&self, _: RankId, _: usize) -> Stores {
        Stores::Plain
    }

    fn try_send(&mut self, to: RankId, bytes: usize, write: &mut dyn FnMut(&mut [Line])) -> bool {
        assert!(bytes <= ROOM, "a message of {bytes} bytes");
        let late = self.is_late();
        let sender = self.senders[to.index()].as_ref().expect("a channel to a rank that receives");
        if late || sender.len() >= DEPTH {
            return false;
        }
        let mut lines = vec![Line::default(); Line::hold(bytes)];
        write(&mut lines);
        let message = (bytes, lines);
        let leaves = if self.together { self.held[to.index()].replace(message) } else { Some(message) };
        // A receiver that has ended is in trouble, of which the next wait tells.
        leaves.into_iter().for_each(|message| drop(sender.try_send(message)));
        self.sent[to.index()] += bytes;
        true
    }

    fn hand_over(&mut self) {
        for (held, sender) in self.held.iter_mut().zip(&self.senders) {
            // The place beyond the depth is its own.
            held.take().into_iter().zip(sender).for_each(|(message, sender)| drop(sender.try_send(message)));
        }
    }

    fn has(&mut self, place: Place, from: RankId, bytes: usize) -> std::result::Result<bool, Trouble> {
        if self.fronts[from.index()].is_none() && !self.is_late() {
            let receiver = self.receivers[from.index()].as_ref().expect("a channel from a rank that sends");
            self.fronts[from.index()] = receiver.try_recv().ok();
        }
        match &self.fronts[from.index()] {
            None => Ok(false),
            Some((sent, _)) if *sent != bytes => {
                Err(self.job.poison(Trouble::Disagreement { place, peer: from, sent: *sent, due: bytes }))
            }
            Some(_) => Ok(true),
        }
    }

    fn front(&self, from: RankId) -> &[Line] {
        &self.fronts[from.index()].as_ref().expect("a message that was seen").1
    }

    fn release(&mut self, from: RankId) {
        assert!(self.fronts[from.index()].take().is_some(), "a message that was seen");
    }

    fn pause(&mut self, place: Place, peer: RankId) -> std::result::Result<(), Trouble> {
        self.waiting.turn(&self.job, place, peer)
    }

    fn moved(&mut self) {
        self.waited += std::mem::take(&mut self.waiting).spent();
    }

    fn sent(&self) -> &[usize] {
        &self.sent
    }

    fn waited(&self) -> Duration {
        self.waited + self.waiting.spent()
    }
}
