//! Lanes: the carrier of shared memory, and the lobby in which ranks hand each other the ends of their windows.
//!
//! Every rank plans the memory of its own receive windows, in its own arena, cuts it into windows, keeps the reading
//! ends and leaves the writing ends in the lobby for those who will write. After that no lock is touched again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::carrier::{Carrier, Links};
use crate::base::{Error, Place, RankId, Result, Trouble};
use crate::memory::{Buffer, Supply};
use crate::sync::{Gate, Job, Line, Receiver, Sender, Waiting, window_lines, windows};

/// Where the ranks of a job meet before they begin.
pub struct Lobby {
    job: Job,
    /// Of each lane, the bytes of the longest message on each link.
    lanes: Vec<Links>,
    /// Writing ends, for `[lane][to][from]`.
    ends: Mutex<Vec<Option<Sender>>>,
}

impl Lobby {
    /// A lobby for lanes with windows of these sizes.
    ///
    /// # Panics
    /// When a lane is for another number of ranks.
    #[must_use]
    pub fn new(job: &Job, lanes: Vec<Links>) -> Self {
        assert!(lanes.iter().all(|lane| lane.ranks() == job.ranks()), "lanes connect all ranks");
        let ends = (0..lanes.len() * job.ranks() * job.ranks()).map(|_| None).collect();
        Self { job: job.clone(), lanes, ends: Mutex::new(ends) }
    }

    /// The sizes in lines of the slots of all windows that `rank` reads, by lane, then by sender.
    fn slots(&self, rank: RankId) -> Vec<usize> {
        let peers = || (0..self.job.ranks() as u32).map(RankId).filter(move |peer| *peer != rank);
        self.lanes.iter().flat_map(|lane| peers().map(|peer| Line::hold(lane.at(peer, rank)))).collect()
    }

    /// The memory of the windows that `rank` reads, to be settled in its arena.
    ///
    /// # Errors
    /// When the plan would exceed the address space.
    pub fn memory(&self, rank: RankId, supply: &mut Supply) -> Result<Buffer<Line>> {
        supply.buffer("receive windows", window_lines(&self.slots(rank)))
    }

    /// Leaves this rank's writing ends to the others, waits for all, and takes those that are for this rank.
    ///
    /// # Errors
    /// [`Error::Rank`] when a rank does not come.
    ///
    /// # Panics
    /// When `memory` is not from [`Lobby::memory`], or a rank enters twice.
    pub fn enter(&self, gate: &mut Gate, memory: Buffer<Line>) -> Result<Vec<Lane>> {
        let (rank, ranks) = (gate.rank(), self.job.ranks());
        let at = |lane: usize, to: usize, from: usize| (lane * ranks + to) * ranks + from;
        let mut made = windows(memory, &self.slots(rank)).into_iter();
        let mut inboxes = Vec::with_capacity(self.lanes.len());
        {
            let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
            for lane in 0..self.lanes.len() {
                let mut inbox: Vec<Option<Receiver>> = (0..ranks).map(|_| None).collect();
                for peer in (0..ranks).filter(|peer| *peer != rank.index()) {
                    let (sender, receiver) = made.next().expect("a window for each lane and peer");
                    let place = &mut ends[at(lane, rank.index(), peer)];
                    assert!(place.replace(sender).is_none(), "{rank} enters once");
                    inbox[peer] = Some(receiver);
                }
                inboxes.push(inbox);
            }
        }
        gate.pass("exchange of windows").map_err(Error::Rank)?;
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let lanes = inboxes.into_iter().enumerate().map(|(lane, inbox)| {
            let outbox = (0..ranks).map(|to| ends[at(lane, to, rank.index())].take()).collect();
            let (job, inbox_job) = (self.job.clone(), self.job.clone());
            Lane {
                outbox: Outbox { job, rank, ends: outbox, sent: vec![0; ranks], waited: Duration::ZERO },
                inbox: Inbox { job: inbox_job, ends: inbox, waited: Duration::ZERO },
                waiting: Waiting::default(),
            }
        });
        Ok(lanes.collect())
    }
}

/// A rank's ends of one set of windows: to each other rank and from each. One thread uses it at a time.
pub struct Lane {
    outbox: Outbox,
    inbox: Inbox,
    waiting: Waiting,
}

/// The writing half of a lane.
pub struct Outbox {
    pub(super) job: Job,
    pub(super) rank: RankId,
    ends: Vec<Option<Sender>>,
    pub(super) sent: Vec<usize>,
    pub(super) waited: Duration,
}

/// The reading half of a lane.
pub struct Inbox {
    pub(super) job: Job,
    ends: Vec<Option<Receiver>>,
    pub(super) waited: Duration,
}

impl Lane {
    /// Both halves, so that messages can be kept and read while others are sent.
    pub fn halves(&mut self) -> (&mut Outbox, &mut Inbox) {
        (&mut self.outbox, &mut self.inbox)
    }

    /// How long its user has waited for other ranks so far.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.outbox.waited + self.inbox.waited + self.waiting.spent()
    }
}

impl Outbox {
    /// Bytes of the longest message to `to`.
    ///
    /// # Panics
    /// When `to` is this rank or none.
    #[must_use]
    pub fn room(&self, to: RankId) -> usize {
        self.ends[to.index()].as_ref().expect("a window to every other rank").room()
    }

    pub(super) fn end(&mut self, to: RankId) -> &mut Sender {
        self.ends[to.index()].as_mut().expect("a window to every other rank")
    }
}

impl Inbox {
    /// Bytes of the longest message from `from`.
    ///
    /// # Panics
    /// When `from` is this rank or none.
    #[must_use]
    pub fn room(&self, from: RankId) -> usize {
        self.end(from).room()
    }

    pub(super) fn end(&self, from: RankId) -> &Receiver {
        self.ends[from.index()].as_ref().expect("a window from every other rank")
    }

    pub(super) fn end_mut(&mut self, from: RankId) -> &mut Receiver {
        self.ends[from.index()].as_mut().expect("a window from every other rank")
    }

    /// Whether a message of `due` bytes from `from` is there.
    pub(super) fn has(&mut self, place: Place, from: RankId, due: usize) -> std::result::Result<bool, Trouble> {
        let end = self.end_mut(from);
        if !end.is_filled() {
            return Ok(false);
        }
        match end.bytes() {
            Some(sent) if sent != due => Err(self.job.poison(Trouble::Disagreement { place, peer: from, sent, due })),
            _ => Ok(true),
        }
    }
}

impl Carrier for Lane {
    fn rank(&self) -> RankId {
        self.outbox.rank
    }

    fn ranks(&self) -> usize {
        self.outbox.ends.len()
    }

    fn room(&self, from: RankId, to: RankId) -> usize {
        if from == self.outbox.rank { self.outbox.room(to) } else { self.inbox.room(from) }
    }

    #[inline]
    fn try_send(&mut self, to: RankId, bytes: usize, write: impl FnOnce(&mut [Line])) -> bool {
        let Some(mut slot) = self.outbox.end(to).try_open() else { return false };
        write(&mut slot[..Line::hold(bytes)]);
        slot.publish(bytes);
        self.outbox.sent[to.index()] += bytes;
        true
    }

    #[inline]
    fn try_receive(
        &mut self,
        place: Place,
        from: RankId,
        bytes: usize,
        read: impl FnOnce(&[Line]),
    ) -> std::result::Result<bool, Trouble> {
        if !self.inbox.has(place, from, bytes)? {
            return Ok(false);
        }
        let end = self.inbox.end_mut(from);
        read(end.front().expect("it has come"));
        end.release();
        Ok(true)
    }

    fn enter(&mut self, place: Place) {
        self.outbox.job.enter(place);
    }

    fn pause(&mut self, place: Place, peer: RankId) -> std::result::Result<(), Trouble> {
        self.waiting.turn(&self.outbox.job, place, peer)
    }

    fn moved(&mut self) {
        self.outbox.waited += std::mem::take(&mut self.waiting).spent();
    }

    fn sent(&self) -> &[usize] {
        &self.outbox.sent
    }
}

/// The lanes of two ranks whose longest message has `bytes` bytes, for models: a lobby's lock is not loom's.
#[cfg(all(test, loom))]
pub(super) fn pair(job: &Job, bytes: usize) -> [Lane; 2] {
    let slots = [Line::hold(bytes); 2];
    let mut ends = windows(Buffer::zeroed(window_lines(&slots)), &slots).into_iter();
    let ((to_first, from_second), (to_second, from_first)) = (ends.next().unwrap(), ends.next().unwrap());
    let lane = |rank: u32, sender, receiver| {
        let at = 1 - rank as usize;
        let (mut senders, mut receivers) = ([None, None], [None, None]);
        (senders[at], receivers[at]) = (Some(sender), Some(receiver));
        Lane {
            outbox: Outbox {
                job: job.clone(),
                rank: RankId(rank),
                ends: senders.into(),
                sent: vec![0; 2],
                waited: Duration::ZERO,
            },
            inbox: Inbox { job: job.clone(), ends: receivers.into(), waited: Duration::ZERO },
            waiting: Waiting::default(),
        }
    };
    [lane(0, to_second, from_second), lane(1, to_first, from_first)]
}
