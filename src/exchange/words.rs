//! Lists of 32-bit words of any length: one from each rank to each other, or one from each rank to all (around a ring).
//!
//! The length goes first, in a message of its own, so that the receiver knows what is due; what is longer than a window
//! follows in pieces. One thread serves all peers in turn, so ranks cannot wait for each other in a circle.

use crate::base::{Error, Place, RankId, Result};
use crate::collective::Carrier;
use crate::embedding::PackedBag;
use crate::simd::Isa;
use crate::sync::{Line, write_lines};

/// What has been done with one peer.
#[derive(Debug, Default, Clone, Copy)]
struct Progress {
    announced: bool,
    sent: usize,
    /// How many words are due, once the peer has said so.
    due: Option<usize>,
    got: usize,
}

/// The exchange of lists, with its memory.
#[derive(Debug)]
pub(super) struct Words {
    place: Place,
    isa: Isa,
    peers: Vec<Progress>,
}

impl Words {
    pub(super) fn new(rank: RankId, ranks: usize, isa: Isa, stage: &'static str) -> Self {
        Self { place: Place { rank, stage, sequence: 0 }, isa, peers: vec![Progress::default(); ranks] }
    }

    /// Sends `out(r)` to each rank r and replaces `into[r]` by what r has sent; this rank's own are left alone.
    ///
    /// # Errors
    /// [`Error::Rank`] when the job is in trouble.
    pub(super) fn swap<'a>(
        &mut self,
        carrier: &mut dyn Carrier,
        out: impl Fn(usize) -> &'a [u32],
        into: &mut [Vec<u32>],
    ) -> Result<()> {
        let (own, ranks) = (carrier.rank().index(), carrier.ranks());
        self.place.sequence += 1;
        carrier.enter(self.place);
        self.peers.fill(Progress::default());
        let mut handed_over = false;
        loop {
            let (mut progress, mut waits_for) = (false, None);
            let mut all_sent = true;
            for peer in (1..ranks).map(|step| (own + step) % ranks) {
                let state = &mut self.peers[peer];
                let (rank, place) = (RankId(peer as u32), self.place);
                let sent = state.send(carrier, self.isa, rank, out(peer));
                let got = state.receive(carrier, place, rank, &mut into[peer])?;
                progress |= sent || got;
                all_sent &= state.has_sent(out(peer).len());
                if !state.is_done(out(peer).len()) {
                    waits_for = Some(rank);
                }
            }
            if all_sent && !handed_over {
                carrier.hand_over();
                handed_over = true;
            }
            match (waits_for, progress) {
                (None, _) => return Ok(()),
                (_, true) => carrier.moved(),
                (Some(peer), false) => carrier.pause(self.place, peer).map_err(Error::Rank)?,
            }
        }
    }

    /// Sends this rank's list, which is among `lists` by its number, around a ring of all ranks, and takes in the
    /// others'.
    ///
    /// # Errors
    /// [`Error::Rank`] when the job is in trouble.
    pub(super) fn gather(&mut self, carrier: &mut dyn Carrier, lists: &mut [Vec<u32>]) -> Result<()> {
        let (own, ranks) = (carrier.rank().index(), carrier.ranks());
        let [next, previous] = [own + 1, own + ranks - 1].map(|peer| RankId((peer % ranks) as u32));
        self.place.sequence += 1;
        let place = self.place;
        carrier.enter(place);
        let (mut sent, mut got) = (0, 0);
        let (mut sending, mut receiving) = (Progress::default(), Progress::default());
        loop {
            let mut progress = false;
            // What has come from the one before goes on to the next.
            if sent < ranks - 1 && sent <= got {
                let list = &lists[(own + ranks - sent) % ranks];
                progress |= sending.send(carrier, self.isa, next, list);
                if sending.announced && sending.sent == list.len() {
                    (sent, sending) = (sent + 1, Progress::default());
                }
            }
            if got < ranks - 1 {
                let list = &mut lists[(own + ranks - 1 - got) % ranks];
                progress |= receiving.receive(carrier, place, previous, list)?;
                if receiving.due == Some(receiving.got) {
                    (got, receiving) = (got + 1, Progress::default());
                }
            }
            match (sent.min(got) + 1 >= ranks, progress) {
                (true, _) => return Ok(()),
                (false, true) => carrier.moved(),
                (false, false) => {
                    let peer = if got + 1 < ranks { previous } else { next };
                    carrier.pause(place, peer).map_err(Error::Rank)?;
                }
            }
        }
    }
}

impl Progress {
    fn is_done(&self, sends: usize) -> bool {
        self.has_sent(sends) && self.due == Some(self.got)
    }

    const fn has_sent(&self, sends: usize) -> bool {
        self.announced && self.sent == sends
    }

    /// Sends a message, if there is one to send and room for it.
    fn send(&mut self, carrier: &mut dyn Carrier, isa: Isa, to: RankId, words: &[u32]) -> bool {
        if !self.announced {
            let mut first = [0; 16];
            first[0] = u32::try_from(words.len()).expect("fewer than 2^32 words go to a rank");
            self.announced = carrier.try_send(to, Line::BYTES, &mut |lines| lines[0] = Line::from(first));
            return self.announced;
        }
        let piece = piece(carrier, carrier.rank(), to).min(words.len() - self.sent);
        let words = &words[self.sent..][..piece];
        let stores = carrier.stores(to, size_of_val(words));
        let gone =
            piece > 0 && carrier.try_send(to, size_of_val(words), &mut |lines| write_lines(isa, stores, lines, words));
        self.sent += if gone { piece } else { 0 };
        gone
    }

    /// Receives a message, if one is due and there.
    fn receive(&mut self, carrier: &mut dyn Carrier, place: Place, from: RankId, into: &mut Vec<u32>) -> Result<bool> {
        let Some(due) = self.due else {
            let due = &mut self.due;
            return carrier
                .try_receive(place, from, Line::BYTES, &mut |lines| {
                    let first: &[u32] = bytemuck::cast_slice(&lines[..1]);
                    *due = Some(first[0] as usize);
                    into.clear();
                })
                .map_err(Error::Rank);
        };
        let piece = piece(carrier, from, carrier.rank()).min(due - self.got);
        if piece == 0 {
            return Ok(false);
        }
        let mut append = |lines: &[Line]| into.extend_from_slice(&bytemuck::cast_slice(lines)[..piece]);
        let got = carrier.try_receive(place, from, piece * size_of::<u32>(), &mut append).map_err(Error::Rank)?;
        self.got += if got { piece } else { 0 };
        Ok(got)
    }
}

/// Finds what lies one after another in a message from word `start` on, each of so many bags as `of` says: where bags'
/// look-ups begin and the last one's end, the rows, and a weight for each where `of` says so. Returns where they end.
///
/// # Panics
/// When the message is shorter than they are.
pub(super) fn find_bags(
    words: &[u32],
    start: usize,
    of: impl Iterator<Item = (usize, bool)>,
    bags: &mut [PackedBag],
) -> usize {
    let mut end = start;
    for (bag, (samples, weighted)) in bags.iter_mut().zip(of) {
        let offsets = end..end + samples + 1;
        let count = words[offsets.end - 1] as usize;
        let rows = offsets.end..offsets.end + count;
        let weights = rows.end..rows.end + if weighted { count } else { 0 };
        end = weights.end;
        *bag = PackedBag { offsets, rows, weights };
    }
    end
}

/// Words of the longest message.
fn piece(carrier: &dyn Carrier, from: RankId, to: RankId) -> usize {
    carrier.room(from, to) / size_of::<u32>()
}
