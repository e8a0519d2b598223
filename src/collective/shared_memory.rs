//! The fabric of shared memory: lanes of windows, and the rendezvous at which ranks hand each other their ends.
//!
//! Every rank has the memory of its own receive windows in its own arena, cuts it into windows, keeps the reading
//! ends and leaves the writing ends for those who will write. After that no lock is touched again. There is a window
//! only between ranks that were planned to talk.

use std::sync::Mutex;
use std::time::Duration;

use super::carrier::{Carrier, Fabric, Links, Opened, Outgoing};
use crate::base::{Error, Place, RankId, Result, Trouble, Unpoisoned};
use crate::memory::{Buffer, Supply, recycled};
use crate::sync::{Barrier, Job, Line, Receiver, Sender, Slot, Waiting, window_lines, windows};

/// Where the ranks of a job exchange the ends of their windows.
pub struct SharedMemory {
    job: Job,
    /// Of each lane, the bytes of the longest message on each link.
    lanes: Vec<Links>,
    /// Writing ends, for `[lane][to][from]`.
    ends: Mutex<Vec<Option<Sender>>>,
}

impl SharedMemory {
    /// For lanes with windows of these sizes.
    ///
    /// # Panics
    /// When a lane is for another number of ranks.
    #[must_use]
    pub fn new(job: &Job, lanes: Vec<Links>) -> Self {
        assert!(lanes.iter().all(|lane| lane.ranks() == job.ranks()), "lanes connect all ranks");
        let ends = (0..lanes.len() * job.ranks() * job.ranks()).map(|_| None).collect();
        Self { job: job.clone(), lanes, ends: Mutex::new(ends) }
    }

    /// All windows that `rank` reads: lane, sender, and lines of a slot.
    fn slots(&self, rank: RankId) -> Vec<(usize, RankId, usize)> {
        let ranks = || RankId::all(self.job.ranks());
        let of_lane = |(number, lane)| {
            let lines = move |from| (number, from, Line::hold(Links::at(lane, from, rank)));
            ranks().map(lines).filter(|(_, _, lines)| *lines > 0)
        };
        self.lanes.iter().enumerate().flat_map(of_lane).collect()
    }
}

impl Fabric for SharedMemory {
    fn memory(&self, rank: RankId, supply: &mut Supply<'_>) -> Result<Buffer<Line>> {
        let lines: Vec<usize> = self.slots(rank).into_iter().map(|(_, _, lines)| lines).collect();
        supply.buffer("receive windows", window_lines(&lines))
    }

    fn connect(&self, barrier: &mut Barrier, memory: Buffer<Line>) -> Result<Vec<Box<dyn Carrier>>> {
        let (rank, ranks) = (barrier.rank(), self.job.ranks());
        let at = |lane: usize, to: usize, from: usize| (lane * ranks + to) * ranks + from;
        let slots = self.slots(rank);
        let lines: Vec<usize> = slots.iter().map(|(_, _, lines)| *lines).collect();
        let mut readers: Vec<Vec<Option<Receiver>>> =
            self.lanes.iter().map(|_| (0..ranks).map(|_| None).collect()).collect();
        {
            let mut ends = self.ends.lock().unpoisoned();
            for ((lane, from, _), (sender, receiver)) in slots.into_iter().zip(windows(memory, &lines)) {
                let place = &mut ends[at(lane, rank.index(), from.index())];
                assert!(place.replace(sender).is_none(), "{rank} connects once");
                readers[lane][from.index()] = Some(receiver);
            }
        }
        barrier.wait_without_deadline("exchange of windows").map_err(Error::Rank)?;
        let mut ends = self.ends.lock().unpoisoned();
        let lanes = readers.into_iter().enumerate().map(|(lane, readers)| {
            let writers = (0..ranks).map(|to| ends[at(lane, to, rank.index())].take()).collect();
            let (job, sent, waited) = (self.job.clone(), vec![0; ranks], Duration::ZERO);
            let (waiting, memory) = (Waiting::default(), OpenMemory::new(ranks));
            Box::new(Lane { job, rank, writers, readers, sent, waited, waiting, memory }) as Box<dyn Carrier>
        });
        Ok(lanes.collect())
    }
}

/// A rank's ends of one set of windows: to other ranks and from them. One thread uses it at a time.
pub struct Lane {
    job: Job,
    rank: RankId,
    /// By receiver; none where there is no window.
    writers: Vec<Option<Sender>>,
    /// By sender.
    readers: Vec<Option<Receiver>>,
    sent: Vec<usize>,
    waited: Duration,
    waiting: Waiting,
    memory: OpenMemory,
}

/// Memory that is used again whenever several windows are open at once.
struct OpenMemory {
    slots: Vec<(Outgoing, Slot<'static>)>,
    opened: Vec<Opened<'static>>,
}

impl OpenMemory {
    fn new(ranks: usize) -> Self {
        Self { slots: Vec::with_capacity(ranks), opened: Vec::with_capacity(ranks) }
    }
}

impl Lane {
    fn reader(&mut self, from: RankId) -> &mut Receiver {
        self.readers[from.index()].as_mut().expect("a window from a rank that sends")
    }
}

impl Carrier for Lane {
    fn rank(&self) -> RankId {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.writers.len()
    }

    fn room(&self, from: RankId, to: RankId) -> usize {
        if from == self.rank {
            self.writers[to.index()].as_ref().map_or(0, Sender::room)
        } else {
            self.readers[from.index()].as_ref().map_or(0, Receiver::room)
        }
    }

    #[inline]
    fn try_send(&mut self, to: RankId, bytes: usize, write: &mut dyn FnMut(&mut [Line])) -> bool {
        let end = self.writers[to.index()].as_mut().expect("a window to a rank that receives");
        let Some(mut slot) = end.try_open() else { return false };
        write(&mut slot[..Line::hold(bytes)]);
        slot.publish(bytes);
        self.sent[to.index()] += bytes;
        true
    }

    fn try_send_each(&mut self, due: &mut Vec<Outgoing>, fill: &mut dyn FnMut(&mut [Opened<'_>])) -> bool {
        let Self { rank, writers, sent, memory, .. } = self;
        let (before, behind) = writers.split_at_mut(rank.index());
        let (mut slots, mut wanted): (Vec<(Outgoing, Slot<'_>)>, _) =
            (recycled(std::mem::take(&mut memory.slots)), due.iter().peekable());
        for (to, end) in (rank.index()..).zip(behind).chain((0..).zip(before)) {
            let Some(message) = wanted.next_if(|message| message.to.index() == to) else { continue };
            let end = end.as_mut().expect("a window to a rank that receives");
            slots.extend(end.try_open().map(|slot| (*message, slot)));
        }
        assert!(wanted.next().is_none(), "ranks in the order in which they follow {rank}: {due:?}");
        let any = !slots.is_empty();
        if any {
            let mut opened: Vec<Opened<'_>> = recycled(std::mem::take(&mut memory.opened));
            opened.extend(slots.iter_mut().map(|(Outgoing { to, bytes, stores }, slot)| {
                let lines = &mut slot[..Line::hold(*bytes)];
                Opened { to: *to, stores: *stores, lines }
            }));
            fill(&mut opened);
            memory.opened = recycled(opened);
        }
        due.retain(|message| slots.iter().all(|(gone, _)| gone.to != message.to));
        for (Outgoing { to, bytes, .. }, slot) in slots.drain(..) {
            slot.publish(bytes);
            sent[to.index()] += bytes;
        }
        memory.slots = recycled(slots);
        any
    }

    #[inline]
    fn has(&mut self, place: Place, from: RankId, bytes: usize) -> std::result::Result<bool, Trouble> {
        let end = self.reader(from);
        if !end.is_filled() {
            return Ok(false);
        }
        match end.bytes() {
            Some(sent) if sent != bytes => {
                Err(self.job.poison(Trouble::Disagreement { place, peer: from, sent, due: bytes }))
            }
            _ => Ok(true),
        }
    }

    #[inline]
    fn front(&self, from: RankId) -> &[Line] {
        let end = self.readers[from.index()].as_ref().expect("a window from a rank that sends");
        end.front().expect("a message that was seen")
    }

    #[inline]
    fn release(&mut self, from: RankId) {
        self.reader(from).release();
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

/// The lanes of two ranks whose longest message has `bytes` bytes, for models: the fabric's lock is not loom's.
#[cfg(all(test, loom))]
pub(super) fn pair(job: &Job, bytes: usize) -> [Lane; 2] {
    let slots = [Line::hold(bytes); 2];
    let mut ends = windows(Buffer::zeroed(window_lines(&slots)), &slots).into_iter();
    let ((to_first, from_second), (to_second, from_first)) = (ends.next().unwrap(), ends.next().unwrap());
    let lane = |rank: u32, sender, receiver| {
        let at = 1 - rank as usize;
        let (mut writers, mut readers) = ([None, None], [None, None]);
        (writers[at], readers[at]) = (Some(sender), Some(receiver));
        Lane {
            job: job.clone(),
            rank: RankId(rank),
            writers: writers.into(),
            readers: readers.into(),
            sent: vec![0; 2],
            waited: Duration::ZERO,
            waiting: Waiting::default(),
            memory: OpenMemory::new(2),
        }
    };
    [lane(0, to_second, from_second), lane(1, to_first, from_first)]
}
