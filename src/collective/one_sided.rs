//! An all-to-all without copies: whoever produces rows writes them straight into the peer's window, and the peer reads
//! them where they lie.
//!
//! [`OneSided::begin`] lets a closure fill each message in place and hands it over; [`OneSided::finish`] waits for the
//! others' messages and lends them until they are dropped. Between the two the rank computes. A message is one slot, so
//! windows must hold all that goes from one rank to another; what stays with its rank never enters a window.

use super::lobby::{Inbox, Outbox};
use super::parcels::Parcels;
use super::schedule::Payload;
use crate::base::{Error, Place, RankId, Result};
use crate::sync::{Line, Waiting};

/// One rank's part of an all-to-all of [`Parcels`].
#[derive(Debug)]
pub struct OneSided {
    place: Place,
    /// To whom and how many bytes; the next rank first, and none empty.
    sends: Vec<(RankId, usize)>,
    /// From whom and how many bytes.
    receives: Vec<(RankId, usize)>,
    /// Which sends this run still owes.
    owed: Vec<bool>,
}

impl OneSided {
    /// The part of the lane's rank; `stage` is what messages call it: "all-to-all of pooled rows".
    ///
    /// # Panics
    /// When the lane has another number of ranks, or a window is smaller than a message.
    #[must_use]
    pub fn new(parcels: &Parcels, payload: Payload, outbox: &Outbox, inbox: &Inbox, stage: &'static str) -> Self {
        let (rank, ranks) = (outbox.rank, parcels.ranks());
        assert_eq!(ranks, outbox.sent.len(), "parcels for the ranks of the lane");
        let peers = || (1..ranks).map(|step| RankId(((rank.index() + step) % ranks) as u32));
        let bytes =
            |from, to| -> usize { parcels.between(from, to).map(|x| x.send.len()).sum::<usize>() * payload.bytes() };
        let sends: Vec<_> = peers().map(|to| (to, bytes(rank, to))).filter(|(_, bytes)| *bytes > 0).collect();
        let receives: Vec<_> = peers().map(|from| (from, bytes(from, rank))).filter(|(_, bytes)| *bytes > 0).collect();
        for (to, bytes) in &sends {
            let room = outbox.room(*to);
            assert!(*bytes <= room, "{bytes} bytes from {rank} to {to} in a window of {room}");
        }
        for (from, bytes) in &receives {
            let room = inbox.room(*from);
            assert!(*bytes <= room, "{bytes} bytes from {from} to {rank} in a window of {room}");
        }
        let owed = vec![false; sends.len()];
        Self { place: Place { rank, stage, sequence: 0 }, sends, receives, owed }
    }

    /// Fills all messages of this rank and hands them over. `pack` gets the receiver and exactly the lines of the
    /// message: its parcels one after another. It may use plain stores, or streaming ones, which are in order when they
    /// return (see [`crate::sync::stream_lines`]), on any threads that it joins; what it does not write is what an
    /// earlier message left there.
    ///
    /// Waits only for slots that the receivers still read: those of the run before the last.
    ///
    /// # Errors
    /// [`Error::Rank`] when the job is in trouble.
    pub fn begin(&mut self, outbox: &mut Outbox, mut pack: impl FnMut(RankId, &mut [Line])) -> Result<()> {
        self.place.sequence += 1;
        outbox.job.enter(self.place);
        self.owed.fill(true);
        let mut waiting = Waiting::default();
        loop {
            let (mut progress, mut waits_for) = (false, None);
            for ((to, bytes), owed) in self.sends.iter().zip(&mut self.owed).filter(|(_, owed)| **owed) {
                if let Some(mut slot) = outbox.end(*to).try_open() {
                    pack(*to, &mut slot[..Line::hold(*bytes)]);
                    slot.publish(*bytes);
                    outbox.sent[to.index()] += bytes;
                    outbox.waited += std::mem::take(&mut waiting).spent();
                    (*owed, progress) = (false, true);
                } else {
                    waits_for = Some(*to);
                }
            }
            match waits_for {
                None => return Ok(()),
                Some(peer) if !progress => waiting.turn(&outbox.job, self.place, peer).map_err(Error::Rank)?,
                Some(_) => {}
            }
        }
    }

    /// Waits for all messages of the run that was begun last, and lends them.
    ///
    /// # Errors
    /// [`Error::Rank`] when the job is in trouble.
    pub fn finish<'a>(&'a self, inbox: &'a mut Inbox) -> Result<Incoming<'a>> {
        for (from, bytes) in &self.receives {
            let mut waiting = Waiting::default();
            while !inbox.has(self.place, *from, *bytes).map_err(Error::Rank)? {
                waiting.turn(&inbox.job, self.place, *from).map_err(Error::Rank)?;
            }
            inbox.waited += waiting.spent();
        }
        Ok(Incoming { inbox, receives: &self.receives })
    }
}

/// The messages of an all-to-all, read where they lie; dropping them gives the slots back.
pub struct Incoming<'a> {
    inbox: &'a mut Inbox,
    receives: &'a [(RankId, usize)],
}

impl Incoming<'_> {
    /// The message from a rank: its parcels one after another; empty when nothing is due from it.
    #[must_use]
    pub fn from(&self, rank: RankId) -> &[Line] {
        let due = self.receives.iter().any(|(from, _)| *from == rank);
        if due { self.inbox.end(rank).front().expect("finish has seen it") } else { &[] }
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        self.receives.iter().for_each(|(from, _)| self.inbox.end_mut(*from).release());
    }
}
