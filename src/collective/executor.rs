//! Carries out one rank's part of a schedule over any carrier, in one thread.
//!
//! In each round the thread serves all of the rank's hops in turn, whatever is ready, so that a rank whose peer is not
//! yet there still sends and receives elsewhere, and no circle of ranks can wait for each other: a hop waits only for
//! hops of earlier rounds, for earlier hops on its own channel, and, if it adds, for earlier terms of the same
//! elements. That last rule fixes the order of summation. What is longer than a message goes in pieces. What stays with
//! the rank is moved while others are waited for: within its round, and in an all-to-all, where nothing else touches
//! its place, in any.
//!
//! Planning allocates, running does not.

use std::ops::Range;

use super::carrier::Carrier;
use super::memory::Memory;
use super::schedule::{Fold, Goal, Hop, Payload, Schedule};
use crate::base::{Error, Place, RankId, Result};

/// Bytes that stay with a rank and are moved at a time, before it looks again for what has come: some microseconds'
/// worth.
const KEEP_BYTES: usize = 256 << 10;

/// One rank's part of a schedule.
#[derive(Debug)]
pub struct Executor {
    place: Place,
    payload: Payload,
    rounds: Vec<Round>,
    /// Copies within the rank's own memory, in the order of rounds.
    local_copies: Vec<(Range<usize>, Range<usize>)>,
}

#[derive(Debug)]
struct Round {
    moves: Vec<Move>,
    /// How many local copies may be done before the end of this round, and must be done at its end.
    may_copy: usize,
    must_copy: usize,
}

/// This rank's side of a hop.
#[derive(Debug)]
struct Move {
    peer: RankId,
    sends: bool,
    /// In this rank's memory.
    span: Range<usize>,
    fold: Fold,
    /// The most elements of a message.
    piece: usize,
    /// The earlier move on the same channel.
    channel_before: Option<usize>,
    /// Earlier moves that add to some of the same elements.
    terms_before: Vec<usize>,
    /// Whether it adds the last terms to elements that are this rank's.
    completes: bool,
    /// Elements that are done in this run.
    done: usize,
}

impl Move {
    fn is_done(&self) -> bool {
        self.done == self.span.len()
    }

    /// The elements of the next message.
    fn next(&self) -> Range<usize> {
        let start = self.span.start + self.done;
        start..(start + self.piece).min(self.span.end)
    }
}

impl Executor {
    /// The part of the carrier's rank; `stage` is what messages call it: "reduce-scatter of layer 3".
    ///
    /// # Panics
    /// When schedule and carrier have different ranks, or a channel has no room for an element that must pass it.
    #[must_use]
    pub fn new(schedule: &Schedule, carrier: &dyn Carrier, stage: &'static str) -> Self {
        assert_eq!(schedule.ranks(), carrier.ranks(), "a schedule for the ranks of its carrier");
        let (rank, width) = (carrier.rank(), schedule.payload.bytes());
        let mut local_copies = Vec::new();
        let round = |hops: &Vec<Hop>| {
            let mut moves: Vec<Move> = Vec::new();
            for hop in hops.iter().filter(|hop| (hop.from == rank) != (hop.to == rank)) {
                let sends = hop.from == rank;
                let (peer, span) = if sends { (hop.to, &hop.source) } else { (hop.from, &hop.target) };
                let room = carrier.room(hop.from, hop.to);
                assert!(room >= width, "the window from {} to {} has {room} bytes: too few", hop.from, hop.to);
                let same_channel = |other: &Move| other.sends == sends && other.peer == peer;
                let same_terms = |other: &Move| {
                    let shares = other.span.start.max(span.start) < other.span.end.min(span.end);
                    !sends && !other.sends && hop.fold == Fold::Add && other.fold == Fold::Add && shares
                };
                moves.push(Move {
                    peer,
                    sends,
                    span: span.clone(),
                    fold: hop.fold,
                    piece: room / width,
                    channel_before: moves.iter().rposition(same_channel),
                    terms_before: (0..moves.len()).filter(|&at| same_terms(&moves[at])).collect(),
                    completes: false,
                    done: 0,
                });
            }
            let stays = |hop: &&Hop| hop.from == rank && hop.to == rank;
            local_copies.extend(hops.iter().filter(stays).flat_map(|hop| local_pieces(hop, width)));
            Round { moves, may_copy: local_copies.len(), must_copy: local_copies.len() }
        };
        let mut rounds: Vec<Round> = schedule.rounds.iter().map(round).collect();
        if let Goal::AllToAll(_) = schedule.goal {
            // From one buffer into another: nothing else reads or writes there, so that it can be done in any round.
            let last = rounds.len().saturating_sub(1);
            for (number, round) in rounds.iter_mut().enumerate() {
                (round.may_copy, round.must_copy) =
                    (local_copies.len(), if number == last { local_copies.len() } else { 0 });
            }
        }
        if let Goal::ReduceScatter(slices) = &schedule.goal {
            mark_last_terms(&mut rounds, &slices.slice(rank.index()));
        }
        Self { place: Place { rank, stage, sequence: 0 }, payload: schedule.payload, rounds, local_copies }
    }

    /// How many elements get their last term by [`Memory::complete`]: after a reduce-scatter among several ranks all of
    /// this rank's.
    #[must_use]
    pub fn completed(&self) -> usize {
        let moves = self.rounds.iter().flat_map(|round| &round.moves);
        moves.filter(|hop| hop.completes).map(|hop| hop.span.len()).sum()
    }

    /// Runs the part once; all ranks run theirs.
    ///
    /// # Errors
    /// [`Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When `memory` is too small, or its elements travel otherwise than the schedule says.
    pub fn run(&mut self, carrier: &mut dyn Carrier, memory: &mut dyn Memory) -> Result<()> {
        assert_eq!(self.payload, memory.payload(), "schedule and memory agree how elements travel");
        self.place.sequence += 1;
        let mut copied = 0;
        let (place, payload, local_copies) = (self.place, self.payload, &self.local_copies);
        self.rounds
            .iter_mut()
            .try_for_each(|round| round.run(place, payload, carrier, memory, local_copies, &mut copied))
    }
}

/// What stays, in pieces that make nobody wait long.
fn local_pieces(hop: &Hop, width: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let (source, target, len) = (hop.source.clone(), hop.target.start, hop.source.len());
    // Elements that move up within one memory to places of their own can only move all at once.
    let at_once = source.start < target && target < source.end;
    let piece = if at_once { len } else { (KEEP_BYTES / width).max(1) };
    (0..len).step_by(piece).map(move |first| {
        let end = len.min(first + piece);
        (source.start + first..source.start + end, target + first..target + end)
    })
}

/// Marks the moves that add the last terms to the elements `own`, which end with this rank.
fn mark_last_terms(rounds: &mut [Round], own: &Range<usize>) {
    let mut later: Vec<Range<usize>> = Vec::new();
    for hop in rounds.iter_mut().rev().flat_map(|round| round.moves.iter_mut().rev()) {
        if hop.sends || hop.fold != Fold::Add {
            continue;
        }
        let overlaps = |other: &Range<usize>| other.start.max(hop.span.start) < other.end.min(hop.span.end);
        hop.completes = own.start <= hop.span.start && hop.span.end <= own.end && !later.iter().any(overlaps);
        later.push(hop.span.clone());
    }
}

impl Round {
    fn run(
        &mut self,
        place: Place,
        payload: Payload,
        carrier: &mut dyn Carrier,
        memory: &mut dyn Memory,
        local_copies: &[(Range<usize>, Range<usize>)],
        copied: &mut usize,
    ) -> Result<()> {
        self.moves.iter_mut().for_each(|hop| hop.done = 0);
        loop {
            let (mut progress, mut waits_for) = (false, None);
            for index in 0..self.moves.len() {
                let hop = &self.moves[index];
                if hop.is_done() || !self.is_next(index) {
                    continue;
                }
                let (peer, span, fold, completes) = (hop.peer, hop.next(), hop.fold, hop.completes);
                let (elements, bytes) = (span.len(), span.len() * payload.bytes());
                let gone = if hop.sends {
                    let stores = carrier.stores(peer, bytes);
                    carrier.try_send(peer, bytes, &mut |lines| memory.put(span.clone(), lines, fold, stores))
                } else {
                    let got = carrier.try_receive(place, peer, bytes, &mut |lines| match completes {
                        true => memory.complete(span.clone(), lines),
                        false => memory.get(span.clone(), lines, fold),
                    });
                    got.map_err(Error::Rank)?
                };
                if gone {
                    self.moves[index].done += elements;
                    progress = true;
                } else {
                    waits_for = waits_for.or(Some(peer));
                }
            }
            // What stays at home is moved while others are waited for, and the rest when it must.
            let most = if waits_for.is_some() { self.may_copy } else { self.must_copy };
            if !progress && *copied < most {
                let (source, target) = local_copies[*copied].clone();
                memory.keep(source, target);
                *copied += 1;
                progress = true;
            }
            match (progress, waits_for) {
                (true, _) => carrier.moved(),
                (false, Some(peer)) => carrier.pause(place, peer).map_err(Error::Rank)?,
                (false, None) => return Ok(()),
            }
        }
    }

    /// Whether what a move waits for within this round is done.
    fn is_next(&self, index: usize) -> bool {
        let hop = &self.moves[index];
        let piece = hop.next();
        let added = |&before: &usize| {
            let term = &self.moves[before];
            piece.end.min(term.span.end) <= term.span.start + term.done || piece.end <= term.span.start
        };
        hop.channel_before.is_none_or(|before| self.moves[before].is_done()) && hop.terms_before.iter().all(added)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_stays_goes_in_pieces_that_overwrite_nothing() {
        let len = KEEP_BYTES / 4 * 2 + 5;
        for (from, to) in [(0, len), (0, 3), (3, 0), (7, 7), (9, 9 + len - 1)] {
            let (home, span) = (RankId(0), |start| start..start + len);
            let hop = Hop { from: home, to: home, source: span(from), target: span(to), fold: Fold::Copy };
            let before: Vec<u32> = (0..).take(2 * len + 9).collect();
            let mut after = before.clone();
            let pieces: Vec<_> = local_pieces(&hop, 4).collect();
            let overwritten = from < to && to < from + len;
            assert_eq!(pieces.len(), if overwritten { 1 } else { 3 });
            pieces.into_iter().for_each(|(source, target)| after.copy_within(source, target.start));
            assert_eq!(after[span(to)], before[span(from)], "{from} to {to}");
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::time::Duration;

    use loom::thread;

    use super::super::memory::Tensor;
    use super::super::plan::direct;
    use super::super::shared_memory::{Lane, pair};
    use super::super::slices::Slices;
    use super::*;
    use crate::simd::Isa;
    use crate::sync::{Job, Patience};

    /// Runs a schedule for f32 among two ranks, a thread each, whose windows hold `bytes` bytes. Rank r begins with r +
    /// 1 everywhere; returns what both end with. Loom sees whoever touches a slot that is the other's, and waits
    /// without an end.
    fn exchange(schedule: &Schedule, elements: usize, bytes: usize) -> [Vec<f32>; 2] {
        let job = Job::new(2, Patience::SHARED_CORE, Duration::MAX);
        let [first, second] = pair(&job, bytes);
        let run = move |schedule: Schedule, mut lane: Lane| {
            let mut data = vec![lane.rank().0 as f32 + 1.0; elements];
            let mut executor = Executor::new(&schedule, &lane, "model");
            executor.run(&mut lane, &mut Tensor::new(&mut data, Payload::F32, Isa::best())).unwrap();
            data
        };
        let theirs = schedule.clone();
        let other = thread::spawn(move || run(theirs, second));
        let own = run(schedule.clone(), first);
        [own, other.join().unwrap()]
    }

    /// Messages in both directions at once, and a second round that waits for the first.
    #[test]
    fn two_ranks_reduce_and_gather() {
        loom::model(|| {
            let slices = Slices::of(&[1, 1]);
            let schedule = direct(2).plan(&slices, Payload::F32).all_reduce();
            assert_eq!(exchange(&schedule, 2, 64), [[3.0, 3.0], [3.0, 3.0]]);
        });
    }

    /// More pieces one way than a window has slots: the sender waits for what the receiver releases.
    #[test]
    fn a_sender_waits_for_slots() {
        loom::model(|| {
            let slices = Slices::of(&[3 * 16, 0]);
            let schedule = direct(2).plan(&slices, Payload::F32);
            let [own, theirs] = exchange(&schedule, 48, 64);
            assert_eq!((own, theirs), (vec![3.0; 48], vec![2.0; 48]));
        });
    }
}
