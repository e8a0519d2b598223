//! An all-to-all of one message from each rank to each: whoever produces rows writes them straight into the receiver's
//! window, and the receiver reads them where they lie.
//!
//! [`OneSided::begin`] lets a closure fill the messages, as many at once as have a place, and hands them over;
//! [`OneSided::finish`] waits for the others' messages and lends them until they are dropped. Between the two the rank
//! computes. What stays with its rank never enters a message.
//!
//! Where the carrier has room for a whole message, it is written and read in place. Where it has less (a network, or a
//! window that is meant to be small), the message is staged in memory of this exchange and travels in pieces; then
//! `begin` never waits, and `finish` also sends what has not left yet, so ranks cannot wait for each other in a circle.

use super::carrier::{Carrier, Opened, Outgoing};
use crate::base::{Error, Place, RankId, Result};
use crate::memory::recycled;
use crate::sync::{Line, Stores};

/// One rank's part of an all-to-all.
#[derive(Debug)]
pub struct OneSided {
    place: Place,
    handed_over: bool,
    /// The next rank's first; none is empty.
    sends: Vec<Message>,
    receives: Vec<Message>,
    /// Messages that wait for a place, and those that are filled together: memory that runs use again.
    due: Vec<Outgoing>,
    opened: Vec<Opened<'static>>,
}

/// A message from or to one peer.
#[derive(Debug)]
struct Message {
    peer: RankId,
    bytes: usize,
    /// Bytes that have been sent or received in this run.
    done: usize,
    /// Bytes of a piece.
    piece: usize,
    /// The message, where it travels in pieces; else it is in the window.
    staged: Vec<Line>,
}

impl Message {
    const fn new(peer: RankId) -> Self {
        Self { peer, bytes: 0, done: 0, piece: 0, staged: Vec::new() }
    }

    /// Of so many bytes, over a channel with so much room.
    fn plan(&mut self, bytes: usize, room: usize) {
        let whole = room >= bytes;
        self.piece = if whole { bytes } else { room / Line::BYTES * Line::BYTES };
        assert!(self.piece > 0 || bytes == 0, "{bytes} bytes are due between {} and this rank: {room} fit", self.peer);
        self.staged.resize(if whole { 0 } else { Line::hold(bytes) }, Line::default());
        (self.bytes, self.done) = (bytes, 0);
    }

    const fn in_place(&self) -> bool {
        self.staged.is_empty()
    }

    const fn is_done(&self) -> bool {
        self.done == self.bytes
    }

    /// Bytes of the next piece, and the lines that it has of the staged message.
    fn next(&self) -> (usize, std::ops::Range<usize>) {
        let bytes = self.piece.min(self.bytes - self.done);
        let first = self.done / Line::BYTES;
        (bytes, first..first + Line::hold(bytes))
    }

    /// Sends what it can of a staged message; whether anything went.
    fn push(&mut self, carrier: &mut dyn Carrier) -> bool {
        let before = self.done;
        while !self.is_done() {
            let (bytes, lines) = self.next();
            let staged = &self.staged[lines];
            if !carrier.try_send(self.peer, bytes, &mut |to| to.copy_from_slice(staged)) {
                break;
            }
            self.done += bytes;
        }
        self.done > before
    }

    /// Takes in what has come of a message; whether anything has.
    fn pull(&mut self, carrier: &mut dyn Carrier, place: Place) -> Result<bool> {
        let before = self.done;
        while !self.is_done() {
            let (bytes, lines) = self.next();
            let came = if self.in_place() {
                carrier.has(place, self.peer, bytes)
            } else {
                let staged = &mut self.staged[lines];
                carrier.try_receive(place, self.peer, bytes, &mut |from| staged.copy_from_slice(from))
            };
            if !came.map_err(Error::Rank)? {
                break;
            }
            self.done += bytes;
        }
        Ok(self.done > before)
    }
}

impl OneSided {
    /// The part of `rank` of `ranks` in an all-to-all that is not planned yet; `stage` is what error messages call it:
    /// "all-to-all of pooled rows".
    #[must_use]
    pub fn new(rank: RankId, ranks: usize, stage: &'static str) -> Self {
        let peers = || (1..ranks).map(|step| Message::new(RankId(((rank.index() + step) % ranks) as u32)));
        Self {
            place: Place { rank, stage, sequence: 0 },
            handed_over: true,
            sends: peers().collect(),
            receives: peers().collect(),
            due: Vec::with_capacity(ranks),
            opened: Vec::with_capacity(ranks),
        }
    }

    /// The next runs send `bytes(from, to)` from each rank to each other. Where messages are staged, only larger ones
    /// than any before allocate.
    ///
    /// # Panics
    /// When the carrier has no channel where a message is due.
    pub fn plan(&mut self, carrier: &dyn Carrier, bytes: impl Fn(RankId, RankId) -> usize) {
        let rank = self.place.rank;
        let room = |from, to, bytes| if bytes > 0 { carrier.room(from, to) } else { 0 };
        for message in &mut self.sends {
            let bytes = bytes(rank, message.peer);
            message.plan(bytes, room(rank, message.peer, bytes));
        }
        for message in &mut self.receives {
            let bytes = bytes(message.peer, rank);
            message.plan(bytes, room(message.peer, rank, bytes));
        }
    }

    /// Fills all messages of this rank and hands them over. `pack` gets those that can be filled now, all that is left
    /// of them at once where their places are free, to be filled on any threads that it joins; what it does not write
    /// is what an earlier message left there.
    ///
    /// Waits only for windows that the receivers still read, those of the run before the last; never with a message
    /// that is filled and not handed over.
    ///
    /// # Errors
    /// [`Error::Rank`] when the job is in trouble.
    pub fn begin(&mut self, carrier: &mut dyn Carrier, mut pack: impl FnMut(&mut [Opened<'_>])) -> Result<()> {
        self.place.sequence += 1;
        self.sends.iter_mut().chain(&mut self.receives).for_each(|message| message.done = 0);
        let in_place = self.sends.iter().filter(|message| message.in_place() && !message.is_done());
        self.due.clear();
        self.due.extend(in_place.map(|&Message { peer: to, bytes, .. }| {
            let stores = carrier.stores(to, bytes);
            Outgoing { to, bytes, stores }
        }));
        while let Some(last) = self.due.last() {
            let peer = last.to;
            if carrier.try_send_each(&mut self.due, &mut pack) {
                carrier.moved();
            } else {
                carrier.pause(self.place, peer).map_err(Error::Rank)?;
            }
        }
        let mut staged: Vec<Opened<'_>> = recycled(std::mem::take(&mut self.opened));
        staged.extend(self.sends.iter_mut().filter(|message| !message.in_place()).map(|message| {
            let Message { peer, staged, .. } = message;
            Opened { to: *peer, stores: Stores::Plain, lines: staged }
        }));
        if !staged.is_empty() {
            pack(&mut staged);
        }
        self.opened = recycled(staged);
        for message in &mut self.sends {
            if message.in_place() {
                message.done = message.bytes;
            } else {
                message.push(carrier);
            }
        }
        self.handed_over = false;
        self.hand_over(carrier);
        Ok(())
    }

    /// Tells the carrier, once a run, when all has been sent.
    fn hand_over(&mut self, carrier: &mut dyn Carrier) {
        if !self.handed_over && self.sends.iter().all(Message::is_done) {
            carrier.hand_over();
            self.handed_over = true;
        }
    }

    /// Sends and takes in what it can of the run that was begun last: whom it waits for then, and whether anything has
    /// moved.
    fn progress(&mut self, carrier: &mut dyn Carrier) -> Result<(Option<RankId>, bool)> {
        let (mut progress, mut waits_for) = (false, None);
        for message in self.sends.iter_mut().filter(|message| !message.is_done()) {
            progress |= message.push(carrier);
            waits_for = if message.is_done() { waits_for } else { Some(message.peer) };
        }
        self.hand_over(carrier);
        for message in self.receives.iter_mut().filter(|message| !message.is_done()) {
            progress |= message.pull(carrier, self.place)?;
            waits_for = if message.is_done() { waits_for } else { Some(message.peer) };
        }
        Ok((waits_for, progress))
    }

    /// Whether [`OneSided::finish`] would not wait; whoever asks has something else to do.
    ///
    /// # Errors
    /// [`Error::Rank`] when the job is in trouble.
    pub fn has_come(&mut self, carrier: &mut dyn Carrier) -> Result<bool> {
        let (waits_for, progress) = self.progress(carrier)?;
        if progress {
            carrier.moved();
        }
        Ok(waits_for.is_none())
    }

    /// Waits for all messages of the run that was begun last, and lends them: once, or several times as long as they
    /// are kept.
    ///
    /// # Errors
    /// [`Error::Rank`] when the job is in trouble.
    pub fn finish<'a>(&'a mut self, carrier: &'a mut dyn Carrier) -> Result<Incoming<'a>> {
        loop {
            match self.progress(carrier)? {
                (None, _) => break,
                (_, true) => carrier.moved(),
                (Some(peer), false) => carrier.pause(self.place, peer).map_err(Error::Rank)?,
            }
        }
        carrier.moved();
        Ok(Incoming { own: self.place.rank, carrier, receives: &self.receives, kept: false })
    }
}

/// The messages of an all-to-all, read where they lie; dropping them gives the windows back, unless they are kept.
pub struct Incoming<'a> {
    own: RankId,
    carrier: &'a mut dyn Carrier,
    receives: &'a [Message],
    kept: bool,
}

impl Incoming<'_> {
    /// Leaves the messages where they lie, for another call of [`OneSided::finish`] to lend them again.
    pub const fn keep(&mut self) {
        self.kept = true;
    }

    /// The message from a rank; empty when nothing is due from it.
    #[must_use]
    pub fn from(&self, rank: RankId) -> &[Line] {
        // The next rank's is the first; this rank's own would be behind the last.
        let ranks = self.receives.len() + 1;
        match self.receives.get((rank.index() + ranks - self.own.index() - 1) % ranks) {
            Some(message) if message.bytes == 0 => &[],
            Some(message) if message.in_place() => self.carrier.front(rank),
            Some(message) => &message.staged,
            None => &[],
        }
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        let in_place = self.receives.iter().filter(|message| !self.kept && message.bytes > 0 && message.in_place());
        in_place.for_each(|message| self.carrier.release(message.peer));
    }
}
