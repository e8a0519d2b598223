//! What carries the bytes of a schedule from rank to rank, and the bytes on each link.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::base::{Place, RankId, Trouble};
use crate::memory::{Buffer, Supply};
use crate::sync::{Barrier, Line, Stores};

/// One rank's end of a medium with a channel of messages, in order, from each rank to each other.
///
/// Nothing here waits except [`Carrier::pause`], so that one thread can serve all channels. Sender and receiver cut
/// what is longer than a message the same way: into pieces of [`Carrier::room`]. A carrier that is given room for a
/// whole one-sided message lets the sender write it where the receiver reads it; one with less room gets copies, in
/// pieces ([`super::OneSided`]).
pub trait Carrier: Send + Sync {
    /// Whose end this is.
    fn rank(&self) -> RankId;

    /// How many ranks it connects.
    fn ranks(&self) -> usize;

    /// Bytes of the longest message from `from` to `to`, one of which is this rank; both ends say the same. 0: there is
    /// no channel.
    fn room(&self, from: RankId, to: RankId) -> usize;

    /// Hands a message of `bytes` bytes over to `to`, if there is a place for it: then `write` fills its lines.
    ///
    /// Afterwards the message is the receiver's, whatever it was written with: plain stores or streaming ones.
    fn try_send(&mut self, to: RankId, bytes: usize, write: &mut dyn FnMut(&mut [Line])) -> bool;

    /// Hands over those of several messages, to different ranks, for which there are places now: `fill` gets the lines
    /// of all that can be filled together, at once or some after others, and what is handed over leaves `due`, in which
    /// the rest then stands in an order that suits this carrier. Returns whether anything was. Between its opening and
    /// its handing over nothing is waited for.
    ///
    /// # Panics
    /// When the ranks of `due` are not in the order in which they follow this one, the first behind the last.
    fn try_send_each(&mut self, due: &mut Vec<Outgoing>, fill: &mut dyn FnMut(&mut [Opened<'_>])) -> bool {
        let before = due.len();
        due.retain(|&Outgoing { to, bytes, stores }| {
            !self.try_send(to, bytes, &mut |lines| fill(&mut [Opened { to, stores, lines }]))
        });
        due.len() < before
    }

    /// How a message of `bytes` bytes to `to` is best written: past the caches, unless a carrier knows better. Shared
    /// memory knows no nodes: to a rank on the same one, too, lines go by its memory, not by a cache that both share.
    fn stores(&self, _to: RankId, _bytes: usize) -> Stores {
        Stores::Streaming
    }

    /// All messages of this stage to all ranks were handed over: what waited for more may leave.
    fn hand_over(&mut self) {}

    /// Whether the next message from `from`, which must be `bytes` long, has come.
    ///
    /// # Errors
    /// [`Trouble::Disagreement`] when it has another length.
    fn has(&mut self, place: Place, from: RankId, bytes: usize) -> Result<bool, Trouble>;

    /// The message from `from` that [`Carrier::has`] has seen, until it is released.
    ///
    /// # Panics
    /// When there is none.
    fn front(&self, from: RankId) -> &[Line];

    /// Gives the place of that message back to its sender.
    ///
    /// # Panics
    /// When there is none.
    fn release(&mut self, from: RankId);

    /// Nothing could be done: lets a moment pass. `peer` is one of those that are waited for.
    ///
    /// # Errors
    /// The job's trouble, and this rank's own after the deadline.
    fn pause(&mut self, place: Place, peer: RankId) -> Result<(), Trouble>;

    /// Something was done: the next [`Carrier::pause`] begins a new wait.
    fn moved(&mut self);

    /// Bytes that this rank has sent to each rank so far.
    fn sent(&self) -> &[usize];

    /// How long its user has waited for other ranks so far.
    fn waited(&self) -> Duration;

    /// Lets `read` have the next message from `from`, which must be `bytes` long, if it has come.
    ///
    /// # Errors
    /// As [`Carrier::has`].
    fn try_receive(
        &mut self,
        place: Place,
        from: RankId,
        bytes: usize,
        read: &mut dyn FnMut(&[Line]),
    ) -> Result<bool, Trouble> {
        if !self.has(place, from, bytes)? {
            return Ok(false);
        }
        read(self.front(from));
        self.release(from);
        Ok(true)
    }
}

/// A message that waits for its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// Whom it is for.
    pub to: RankId,
    /// How long it is.
    pub bytes: usize,
    /// How it is best written: see [`Carrier::stores`].
    pub stores: Stores,
}

/// A message that has its place, and is the sender's until it is handed over.
#[derive(Debug)]
pub struct Opened<'a> {
    /// Whom it is for.
    pub to: RankId,
    /// How it is best written.
    pub stores: Stores,
    /// Exactly those that it takes.
    pub lines: &'a mut [Line],
}

/// What a lane must carry.
#[derive(Debug, Clone)]
pub struct LaneSpec {
    /// The longest message on each link, in bytes.
    pub links: Links,
    /// Whether all ranks send in the same stages and say when they have ([`Carrier::hand_over`]), so that messages to
    /// one place may wait for each other; else each message leaves at once.
    pub together: bool,
}

impl LaneSpec {
    /// Whose messages leave at once.
    #[must_use]
    pub const fn at_once(links: Links) -> Self {
        Self { links, together: false }
    }

    /// Whose messages may wait for those of other ranks.
    #[must_use]
    pub const fn together(links: Links) -> Self {
        Self { links, together: true }
    }
}

/// What connects the ranks of a job: it gives each of them its carriers.
pub trait Fabric: Send + Sync {
    /// The memory that `rank` lends the fabric for messages to it; asking changes nothing in the fabric.
    ///
    /// # Errors
    /// When the supply is exhausted.
    fn memory(&self, rank: RankId, supply: &mut Supply<'_>) -> crate::base::Result<Buffer<Line>>;

    /// Bytes that it takes for `rank` beside that memory: what travels to other machines and from them.
    fn beside(&self, _rank: RankId) -> usize {
        0
    }

    /// Waits for all ranks, and returns this rank's ends of all lanes.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when a rank does not come.
    ///
    /// # Panics
    /// When `memory` is not from [`Fabric::memory`], or a rank connects twice.
    fn connect(&self, barrier: &mut Barrier, memory: Buffer<Line>) -> crate::base::Result<Vec<Box<dyn Carrier>>>;
}

/// A number of bytes for each link, from each rank to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Links {
    ranks: usize,
    bytes: Vec<usize>,
}

impl Links {
    /// The same number on all links; none from a rank to itself.
    #[must_use]
    pub fn uniform(ranks: usize, bytes: usize) -> Self {
        Self::from_fn(ranks, |_, _| bytes)
    }

    /// What `bytes` says from one rank to another; none from a rank to itself.
    #[must_use]
    pub fn from_fn(ranks: usize, bytes: impl Fn(RankId, RankId) -> usize) -> Self {
        let links = RankId::all(ranks).flat_map(|from| RankId::all(ranks).map(move |to| (from, to)));
        Self { ranks, bytes: links.map(|(from, to)| if from == to { 0 } else { bytes(from, to) }).collect() }
    }

    /// How many ranks there are.
    #[must_use]
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    /// Both numbers of each link, added.
    ///
    /// # Panics
    /// When they connect different numbers of ranks.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        assert_eq!(self.ranks, other.ranks, "links of the same ranks");
        self.bytes.iter_mut().zip(&other.bytes).for_each(|(sum, bytes)| *sum += bytes);
        self
    }

    /// From one rank to another.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn at(&self, from: RankId, to: RankId) -> usize {
        self.row(from)[to.index()]
    }

    /// As [`Links::at`], to be changed.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn at_mut(&mut self, from: RankId, to: RankId) -> &mut usize {
        assert!(to.index() < self.ranks, "{to} of {}", self.ranks);
        &mut self.bytes[from.index() * self.ranks + to.index()]
    }

    /// From one rank to each.
    #[must_use]
    pub fn row(&self, from: RankId) -> &[usize] {
        &self.bytes[from.index() * self.ranks..][..self.ranks]
    }

    /// Each number changed.
    #[must_use]
    pub fn map(mut self, change: impl Fn(usize) -> usize) -> Self {
        self.bytes.iter_mut().for_each(|bytes| *bytes = change(*bytes));
        self
    }

    /// On all links.
    #[must_use]
    pub fn total(&self) -> usize {
        self.bytes.iter().sum()
    }
}

impl Serialize for Links {
    /// A list of lists: from each rank, to each rank.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.bytes.chunks(self.ranks))
    }
}

impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in self.bytes.chunks(self.ranks) {
            row.iter().try_for_each(|bytes| write!(f, " {bytes:>12}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}
