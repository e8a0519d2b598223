//! One end of the messages between processes: what several ranks of a machine have for the ranks of another goes as one
//! message of MPI, a frame.
//!
//! A frame is a list of messages, each a line that says from whom to whom and how long, and the lines of its body.
//! Every rank of the group that shares an endpoint fills a part of its own; the frame leaves when all have closed
//! theirs, and MPI gathers the parts from where they lie. A part that is full before it is closed leaves alone, ahead
//! of the frame. A frame that has come is read where it lies; its memory takes the next one when its last message was
//! released.
//!
//! An endpoint that beats sends each peer an empty frame now and then, which tells no more than that its process lives.
//!
//! Who waits drives the library, where it may be called by any thread, and the [`Driver`](super::driver::Driver) drives
//! it for all: MPI moves nothing by itself.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use crate::base::{RankId, Unpoisoned};
use crate::collective::world::BEAT;
use crate::ffi::mpi::{Communicator, Failure, Part, Receiving, Sending};
use crate::sync::Line;

/// Frames from a peer that there is memory for.
pub(super) const POSTED: usize = 2;
/// Frames to a peer that are on their way before the next one waits.
const UNDER_WAY: usize = 4;

/// Lines that a message takes in a frame.
pub(super) const fn lines_of(bytes: usize) -> usize {
    1 + Line::hold(bytes)
}

/// Another endpoint, as it is reached from here.
pub(super) struct Route {
    /// The process, among all.
    pub process: usize,
    /// Where messages to it go, and their tag.
    pub out: (Arc<Communicator>, u16),
    /// Where messages from it come, and their tag.
    pub into: (Arc<Communicator>, u16),
    /// Lines of the longest frame from it.
    pub capacity: usize,
}

/// A message that has come.
pub(super) struct Message {
    frame: Arc<Frame>,
    lines: Range<usize>,
    /// Its length.
    pub bytes: usize,
}

impl Message {
    pub fn lines(&self) -> &[Line] {
        &self.frame.memory[self.lines.clone()]
    }
}

struct Frame {
    memory: Vec<Line>,
    peer: usize,
}

pub(super) struct Endpoint {
    state: Mutex<State>,
    /// Whether whoever waits may call the library.
    any_thread: bool,
}

struct State {
    peers: Vec<Peer>,
    /// By rank of the group, by sender among all ranks.
    inboxes: Vec<Vec<VecDeque<Message>>>,
    /// The first rank of the group.
    first: usize,
    /// When the next signs of life are due, if it gives any.
    beats: Option<Instant>,
    failure: Option<Failure>,
}

struct Peer {
    route: Route,
    /// By rank of the group, closed parts of frames.
    parts: Vec<VecDeque<Part<Line>>>,
    /// Frames that nobody has given to the library.
    outgoing: VecDeque<Vec<Part<Line>>>,
    sending: VecDeque<Sending<Line>>,
    receiving: VecDeque<Receiving<Line>>,
    /// When the last frame came, be it an empty one.
    heard: Instant,
    spare_parts: SpareParts,
    spare_frames: Vec<Vec<Line>>,
}

impl Peer {
    /// Tells it that this process lives, unless it has yet to take what was sent before: that says as much.
    fn beat(&mut self) {
        if self.outgoing.is_empty() && self.sending.is_empty() {
            self.outgoing.push_back(Vec::new());
        }
    }
}

/// Memory of parts that have left.
#[derive(Default)]
struct SpareParts(Vec<Vec<Line>>);

impl SpareParts {
    /// Some of it for so many lines: the shortest that holds them, so that each rank finds what is of its own size, or
    /// else the longest, which is too short; nothing where none is left.
    fn take(&mut self, lines: usize) -> Vec<Line> {
        let of = |memory: &Vec<Line>| (memory.len() < lines, memory.len().abs_diff(lines));
        let best = self.0.iter().enumerate().min_by_key(|(_, memory)| of(memory)).map(|(at, _)| at);
        best.map_or_else(Vec::new, |at| self.0.swap_remove(at))
    }

    /// Keeps the memory of parts that have any: a rank that had nothing to say has closed one without, and whoever took
    /// that would make new memory while what lies below it is never taken.
    fn keep(&mut self, parts: Vec<Part<Line>>) {
        self.0.extend(parts.into_iter().map(|part| part.memory).filter(|memory| !memory.is_empty()));
    }
}

/// This memory, of so many lines at least.
fn grown(mut memory: Vec<Line>, lines: usize) -> Vec<Line> {
    if memory.len() < lines {
        memory.resize(lines, Line::default());
    }
    memory
}

impl Endpoint {
    /// Of the ranks `group`, of all `ranks`.
    pub fn new(routes: Vec<Route>, group: Range<usize>, ranks: usize, any_thread: bool) -> Self {
        let peer = |route| Peer {
            route,
            parts: group.clone().map(|_| VecDeque::new()).collect(),
            outgoing: VecDeque::new(),
            sending: VecDeque::new(),
            receiving: VecDeque::new(),
            heard: Instant::now(),
            spare_parts: SpareParts::default(),
            spare_frames: Vec::new(),
        };
        let inbox = |_| (0..ranks).map(|_| VecDeque::new()).collect();
        let peers = routes.into_iter().map(peer).collect();
        let inboxes = group.clone().map(inbox).collect();
        let state = State { peers, inboxes, first: group.start, beats: None, failure: None };
        Self { state: Mutex::new(state), any_thread }
    }

    /// Whether it beats from now on.
    pub fn beat(&self, beats: bool) {
        self.state().beats = beats.then(Instant::now);
    }

    /// When the last frame of a peer came, or an empty one.
    pub fn heard(&self, peer: usize) -> Instant {
        self.state().peers[peer].heard
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Memory for a part of so many lines to a peer.
    pub fn spare(&self, peer: usize, lines: usize) -> Vec<Line> {
        // The lock is held for this line alone: to fill megabytes under it would keep all ranks of the group waiting.
        let memory = self.state().peers[peer].spare_parts.take(lines);
        grown(memory, lines)
    }

    /// Whether a frame to a peer would not have to wait for those before it.
    pub fn is_open(&self, peer: usize) -> bool {
        let Peer { outgoing, sending, .. } = &self.state().peers[peer];
        outgoing.len() + sending.len() < UNDER_WAY
    }

    /// A part leaves as a frame of its own.
    pub fn send(&self, peer: usize, part: Part<Line>) {
        let mut state = self.state();
        state.peers[peer].outgoing.push_back(vec![part]);
        self.drive_if_allowed(&mut state);
    }

    /// A rank of the group has closed its part of the next frame; the last one sends it.
    pub fn close(&self, peer: usize, rank: RankId, part: Part<Line>) {
        let mut state = self.state();
        let own = rank.index() - state.first;
        let of = &mut state.peers[peer];
        of.parts[own].push_back(part);
        if of.parts.iter().all(|parts| !parts.is_empty()) {
            let frame: Vec<Part<Line>> = of.parts.iter_mut().filter_map(VecDeque::pop_front).collect();
            if frame.iter().any(|part| part.used > 0) {
                of.outgoing.push_back(frame);
            } else {
                of.spare_parts.keep(frame);
            }
        }
        self.drive_if_allowed(&mut state);
    }

    /// The next message from one rank to another, if it has come. Whoever finds none of those that are due drives once
    /// for all of them ([`Endpoint::drive_here`]): to drive asks the library about every peer.
    ///
    /// # Errors
    /// What the library says.
    pub fn take(&self, from: RankId, to: RankId) -> Result<Option<Message>, Failure> {
        let mut state = self.state();
        let own = to.index() - state.first;
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        Ok(state.inboxes[own][from.index()].pop_front())
    }

    /// A message was read.
    pub fn release(&self, message: Message) {
        if let Some(frame) = Arc::into_inner(message.frame) {
            self.state().peers[frame.peer].spare_frames.push(frame.memory);
        }
    }

    /// Lets the library move what is under way, unless another thread does; whether anything moved. Called by a thread
    /// that may call the library.
    pub fn drive(&self) -> bool {
        match self.state.try_lock() {
            Ok(mut state) => state.drive(),
            Err(_) => false,
        }
    }

    /// As [`Endpoint::drive`], if any thread may.
    pub fn drive_here(&self) -> bool {
        self.any_thread && self.drive()
    }

    fn drive_if_allowed(&self, state: &mut State) {
        if self.any_thread {
            state.drive();
        }
    }

    /// Whether all that was handed over has left; nothing leaves after a failure.
    pub fn has_left(&self) -> bool {
        let state = self.state();
        let idle = |peer: &Peer| peer.outgoing.is_empty() && peer.sending.is_empty();
        state.failure.is_some() || state.peers.iter().all(idle)
    }

    /// Gives back the memory of frames that will not come. Called by a thread that may call the library.
    pub fn end(&self) {
        for peer in &mut self.state().peers {
            // What the library refuses keeps its memory.
            peer.receiving.drain(..).for_each(|receiving| drop(receiving.cancel()));
        }
    }
}

impl State {
    fn drive(&mut self) -> bool {
        if self.failure.is_some() {
            return false;
        }
        if self.beats.is_some_and(|due| due <= Instant::now()) {
            self.beats = Some(Instant::now() + BEAT);
            self.peers.iter_mut().for_each(Peer::beat);
        }
        let mut moved = false;
        for number in 0..self.peers.len() {
            match self.drive_peer(number) {
                Ok(some) => moved |= some,
                Err(failure) => {
                    let process = self.peers[number].route.process;
                    self.failure = Some(failure.with(&format!("messages of machine {process}")));
                    return true;
                }
            }
        }
        moved
    }

    fn drive_peer(&mut self, number: usize) -> Result<bool, Failure> {
        let Self { peers, inboxes, first, .. } = self;
        let peer = &mut peers[number];
        let mut moved = false;
        while peer.sending.len() < UNDER_WAY
            && let Some(frame) = peer.outgoing.pop_front()
        {
            let (communicator, tag) = &peer.route.out;
            // Signs of life keep nobody awake.
            moved |= !frame.is_empty();
            peer.sending.push_back(communicator.send(frame, peer.route.process, *tag)?);
        }
        while let Some(sending) = peer.sending.front_mut() {
            let Some(parts) = sending.test()? else { break };
            peer.sending.pop_front();
            moved |= !parts.is_empty();
            peer.spare_parts.keep(parts);
        }
        if peer.route.capacity > 0 {
            while peer.receiving.len() < POSTED {
                let mut memory = peer.spare_frames.pop().unwrap_or_default();
                memory.resize(peer.route.capacity, Line::default());
                let (communicator, tag) = &peer.route.into;
                peer.receiving.push_back(communicator.receive(memory, peer.route.process, *tag)?);
            }
        }
        while let Some(receiving) = peer.receiving.front_mut() {
            let Some((memory, bytes)) = receiving.test()? else { break };
            peer.receiving.pop_front();
            peer.heard = Instant::now();
            if bytes == 0 {
                peer.spare_frames.push(memory);
                continue;
            }
            deliver(Arc::new(Frame { memory, peer: number }), bytes / Line::BYTES, inboxes, *first);
            moved = true;
        }
        Ok(moved)
    }
}

/// The line before a message.
pub(super) fn header(from: RankId, to: RankId, bytes: usize) -> Line {
    let mut words = [0; 16];
    (words[0], words[1]) = (from.0, to.0);
    (words[2], words[3]) = (bytes as u32, (bytes >> 32) as u32);
    Line::from(words)
}

/// Puts all messages of a frame of so many lines where their receivers look.
fn deliver(frame: Arc<Frame>, lines: usize, inboxes: &mut [Vec<VecDeque<Message>>], first: usize) {
    let mut at = 0;
    while at < lines {
        let words: &[u32] = bytemuck::cast_slice(&frame.memory[at..=at]);
        let (from, to) = (words[0] as usize, words[1] as usize);
        let bytes = words[2] as usize | (words[3] as usize) << 32;
        let body = at + 1..at + lines_of(bytes);
        at = body.end;
        inboxes[to - first][from].push_back(Message { frame: frame.clone(), lines: body, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_nothing_to_say_leave_the_memory_of_others_in_use() {
        let mut spare = SpareParts::default();
        let mut first = None;
        for round in 0..100 {
            let memory = grown(spare.take(8), 8);
            assert_eq!(*first.get_or_insert(memory.as_ptr()), memory.as_ptr(), "round {round} makes no new memory");
            let silent = || Part { memory: Vec::new(), used: 0 };
            spare.keep(vec![Part { memory, used: 3 }, silent(), silent()]);
            assert_eq!(spare.0.len(), 1, "round {round}");
        }
        assert_eq!(grown(spare.take(16), 16).len(), 16, "what is too short grows");
    }

    #[test]
    fn ranks_of_different_sizes_find_memory_of_their_own() {
        let mut spare = SpareParts::default();
        let sizes = [5, 40, 1, 300, 7];
        let all: usize = sizes.iter().sum();
        for round in 0..100 {
            // Whoever comes first is another one each time.
            let order = (0..sizes.len()).map(|at| (at * (1 + round % 4) + round) % sizes.len());
            let memory: Vec<_> = order.map(|rank| grown(spare.take(sizes[rank]), sizes[rank])).collect();
            spare.keep(memory.into_iter().map(|memory| Part { memory, used: 1 }).collect());
            let kept: usize = spare.0.iter().map(Vec::len).sum();
            assert_eq!((spare.0.len(), kept), (sizes.len(), all), "round {round}");
        }
        // One that needs more than ever takes the longest, so that there are no more of them.
        assert_eq!((grown(spare.take(301), 301).len(), spare.0.len()), (301, sizes.len() - 1));
        assert_eq!(spare.take(0).len(), 1);
    }
}
