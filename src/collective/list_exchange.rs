//! All-to-all and all-gather of lists of any length (`MPI_Alltoallv` and `MPI_Allgatherv`, without counts at the
//! receiver): of 32-bit words, one from each rank to each other, or one from each rank to all (around a ring).
//!
//! The length goes first, in a message of its own, so that the receiver knows what is due; what is longer than a window
//! follows in pieces. One thread serves all peers in turn, so ranks cannot wait for each other in a circle; long pieces
//! are copied by its team, unless the team's threads sleep and would have to be woken.

use super::carrier::Carrier;
use crate::base::{Error, Place, RankId, Result};
use crate::machine::team::Team;
use crate::simd::Isa;
use crate::sync::{Line, Rows, Stores, write_lines};

/// Words of a piece that a team copies for each of its threads, at least: the more they are, the longer it takes them
/// to begin and to end together.
const EACH: usize = (2 << 10) / size_of::<u32>();

/// Words of a piece that so many threads copy, at least.
const fn least_of(threads: usize) -> usize {
    if threads * EACH > Team::WORDS_ALONE { threads * EACH } else { Team::WORDS_ALONE }
}

/// Words of a line.
const LINE: usize = Line::BYTES / size_of::<u32>();

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
pub struct ListExchange {
    place: Place,
    isa: Isa,
    peers: Vec<Progress>,
}

impl ListExchange {
    /// For `rank` of `ranks`; troubles name the stage.
    #[must_use]
    pub fn new(rank: RankId, ranks: usize, isa: Isa, stage: &'static str) -> Self {
        Self { place: Place { rank, stage, sequence: 0 }, isa, peers: vec![Progress::default(); ranks] }
    }

    /// Sends `out(r)` to each rank r and replaces `into[r]` by what r has sent; this rank's own are left alone. The
    /// calling thread leads the team.
    ///
    /// # Errors
    /// [`Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When a list has 2^32 words or more, or there is not one a rank to be replaced.
    pub fn all_to_all_v<'a>(
        &mut self,
        team: &Team,
        carrier: &mut dyn Carrier,
        out: impl Fn(usize) -> &'a [u32],
        into: &mut [Vec<u32>],
    ) -> Result<()> {
        let (own, ranks, by) = (carrier.rank().index(), carrier.ranks(), By { isa: self.isa, team: Some(team) });
        self.place.sequence += 1;
        self.peers.fill(Progress::default());
        let mut handed_over = false;
        loop {
            let (mut progress, mut waits_for) = (false, None);
            let mut all_sent = true;
            for peer in (1..ranks).map(|step| (own + step) % ranks) {
                let state = &mut self.peers[peer];
                let (rank, place) = (RankId(peer as u32), self.place);
                let sent = state.send(carrier, by, rank, out(peer));
                let got = state.receive(carrier, (by, place), rank, &mut into[peer])?;
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
    ///
    /// # Panics
    /// When a list has 2^32 words or more, or there is not one a rank.
    pub fn all_gather_v(&mut self, carrier: &mut dyn Carrier, lists: &mut [Vec<u32>]) -> Result<()> {
        let (own, ranks, by) = (carrier.rank().index(), carrier.ranks(), By { isa: self.isa, team: None });
        let [next, previous] = [own + 1, own + ranks - 1].map(|peer| RankId((peer % ranks) as u32));
        self.place.sequence += 1;
        let place = self.place;
        let (mut sent, mut got) = (0, 0);
        let (mut sending, mut receiving) = (Progress::default(), Progress::default());
        loop {
            let mut progress = false;
            // What has come from the one before goes on to the next.
            if sent < ranks - 1 && sent <= got {
                let list = &lists[(own + ranks - sent) % ranks];
                progress |= sending.send(carrier, by, next, list);
                if sending.announced && sending.sent == list.len() {
                    (sent, sending) = (sent + 1, Progress::default());
                }
            }
            if got < ranks - 1 {
                let list = &mut lists[(own + ranks - 1 - got) % ranks];
                progress |= receiving.receive(carrier, (by, place), previous, list)?;
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

/// Who copies.
#[derive(Clone, Copy)]
struct By<'a> {
    isa: Isa,
    team: Option<&'a Team>,
}

impl<'a> By<'a> {
    /// The team, for so many words. One whose threads sleep while they wait is not woken for every piece.
    fn team_for(self, words: usize) -> Option<&'a Team> {
        self.team.filter(|team| team.threads() > 1 && team.spins() && words >= least_of(team.threads()))
    }

    /// Writes words to the lines that hold them. On return all stores are in order with later ones of this thread.
    fn write(self, stores: Stores, lines: &mut [Line], words: &[u32]) {
        let Some(team) = self.team_for(words.len()) else { return write_lines(self.isa, stores, lines, words) };
        let (isa, lines) = (self.isa, &mut lines[..Line::hold(size_of_val(words))]);
        team.each(Rows::new(lines, 1, team.threads(), 1), |band| {
            let first = band.first * LINE;
            write_lines(isa, stores, band.data, &words[first..words.len().min(first + band.rows * LINE)]);
        });
    }

    /// Reads words from the first lines.
    fn read(self, words: &mut [u32], lines: &[Line]) {
        let from: &[u32] = &bytemuck::cast_slice(lines)[..words.len()];
        let Some(team) = self.team_for(words.len()) else { return words.copy_from_slice(from) };
        team.each(Rows::new(words, 1, team.threads(), LINE), |band| {
            band.data.copy_from_slice(&from[band.first..band.first + band.rows]);
        });
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
    fn send(&mut self, carrier: &mut dyn Carrier, by: By<'_>, to: RankId, words: &[u32]) -> bool {
        if !self.announced {
            let mut first = [0; 16];
            first[0] = u32::try_from(words.len()).expect("fewer than 2^32 words go to a rank");
            self.announced = carrier.try_send(to, Line::BYTES, &mut |lines| lines[0] = Line::from(first));
            return self.announced;
        }
        let piece = piece(carrier, carrier.rank(), to).min(words.len() - self.sent);
        let words = &words[self.sent..][..piece];
        let stores = carrier.stores(to, size_of_val(words));
        let gone = piece > 0 && carrier.try_send(to, size_of_val(words), &mut |lines| by.write(stores, lines, words));
        self.sent += if gone { piece } else { 0 };
        gone
    }

    /// Receives a message, if one is due and there.
    fn receive(
        &mut self,
        carrier: &mut dyn Carrier,
        (by, place): (By<'_>, Place),
        from: RankId,
        into: &mut Vec<u32>,
    ) -> Result<bool> {
        let Some(due) = self.due else {
            let due = &mut self.due;
            return carrier
                .try_receive(place, from, Line::BYTES, &mut |lines| {
                    let first: &[u32] = bytemuck::cast_slice(&lines[..1]);
                    *due = Some(first[0] as usize);
                    // Only what is longer than the list before is written twice.
                    into.resize(first[0] as usize, 0);
                })
                .map_err(Error::Rank);
        };
        let piece = piece(carrier, from, carrier.rank()).min(due - self.got);
        if piece == 0 {
            return Ok(false);
        }
        let words = &mut into[self.got..][..piece];
        let mut read = |lines: &[Line]| by.read(words, lines);
        let got = carrier.try_receive(place, from, piece * size_of::<u32>(), &mut read).map_err(Error::Rank)?;
        self.got += if got { piece } else { 0 };
        Ok(got)
    }
}

/// Words of the longest message.
fn piece(carrier: &dyn Carrier, from: RankId, to: RankId) -> usize {
    carrier.room(from, to) / size_of::<u32>()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::collective::{Fabric, Links, SharedMemory, launch};
    use crate::memory::Supply;
    use crate::sync::{Job, Patience};

    const ALONE: usize = Team::WORDS_ALONE;

    #[test]
    fn teams_copy_what_is_long_for_each_thread_unless_they_sleep() {
        assert_eq!([2, 32, 64].map(least_of), [ALONE, ALONE, 2 * ALONE]);
        let cores = std::thread::available_parallelism().unwrap().get();
        for (threads, copies) in [(2, cores > 1), (cores + 1, false)] {
            let team = Team::new(threads).unwrap();
            let by = By { isa: team.isa(), team: Some(&team) };
            let copied = [ALONE - 1, ALONE, 1 << 30].map(|words| by.team_for(words).is_some());
            assert_eq!(copied, [false, copies, copies], "{threads} threads on {cores} cores");
        }
    }

    /// Lists of every length around what one thread copies and around a piece, there and back in other lengths.
    #[test]
    fn lists_arrive_whoever_copies_them() {
        let room = 2 * ALONE + 3 * LINE;
        let around = [0, 1, LINE, ALONE, room, 2 * room].map(|words| [words.saturating_sub(1), words, words + 5]);
        let sizes = around.concat();
        let steps = sizes.len();
        let list = move |from: usize, to: usize, step: usize| -> Vec<u32> {
            let len = sizes[(5 * step + 3 * from + 7 * to) % sizes.len()];
            (0..len).map(|at| (from << 28 | to << 24 | step << 18) as u32 ^ at as u32).collect()
        };
        for (ranks, threads) in [(2, 1), (2, 3), (3, 2)] {
            let job = Job::new(ranks, Patience::SHARED_CORE, Duration::from_secs(60));
            let windows = Links::uniform(ranks, room * size_of::<u32>());
            let (fabric, list) = (SharedMemory::new(&job, vec![windows]), list.clone());
            let results = launch(&job, 0..ranks, move |mut member| {
                let memory = fabric.memory(member.rank, &mut Supply::System)?;
                let mut lane = fabric.connect(&mut member.barrier, memory)?.pop().expect("a lane");
                let (own, team) = (member.rank.index(), Team::new(threads)?);
                let mut lists = ListExchange::new(member.rank, ranks, team.isa(), "lists");
                let mut into = vec![Vec::new(); ranks];
                for step in 0..steps {
                    let out: Vec<_> = (0..ranks).map(|to| list(own, to, step)).collect();
                    lists.all_to_all_v(&team, &mut *lane, |to| &out[to], &mut into)?;
                    for from in (0..ranks).filter(|from| *from != own) {
                        assert!(into[from] == list(from, own, step), "{from} to {own}, step {step}, {threads} threads");
                    }
                }
                let sent = |to| (0..steps).map(|step| Line::BYTES + 4 * list(own, to, step).len()).sum::<usize>();
                assert!((0..ranks).all(|to| lane.sent()[to] == if to == own { 0 } else { sent(to) }));
                Ok(())
            });
            results.unwrap();
        }
    }
}
