//! The bridge between machines: MPI carries between them what windows carry inside of one.
//!
//! A machine is a process with its local ranks; a rank is known by its number among all, machine after machine. Lanes
//! are the same as among the ranks of one machine ([`Bridge`]); what the machines themselves have to agree on goes by
//! [`Processes::gather`].

mod driver;
mod endpoint;
mod incoming;
mod lane;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use self::driver::Driver;
use self::endpoint::{Endpoint, Route, header, lines_of};
use self::incoming::{Incoming, head_of};
use self::lane::Bridge;
use super::carrier::{Fabric, LaneSpec};
use super::world::{END, ProcessGroup, Takers, Waiting, named};
use super::{Buffers, Machines, Raw};
use crate::base::config::one_caller;
use crate::base::{Deadline, Error, RankId, Result, Unpoisoned, Waited, interrupt, median};
use crate::ffi::mpi::{Calls, Communicator, Failure, Part};
use crate::ffi::signals::end_at_once;
use crate::machine::discover::host_name;
use crate::sync::{Job, Line, Yielding};

/// How long a machine waits for others to take what it has sent before it does something else together with them.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long machines that MPI has started may take to meet, and to what they time.
const MEETING: Deadline = Deadline::fixed(Duration::from_secs(300));

/// How long a thread that is busy in the library may take to end all processes.
const LAST_WORD: Deadline = Deadline::fixed(Duration::from_secs(2));

/// Bytes of a message between machines themselves; what is longer goes in pieces.
const PIECE: usize = 64 << 10;

/// The processes of a job, one a machine.
pub struct Processes {
    driver: Arc<Driver>,
    control: Arc<Endpoint>,
    /// By machine, what has come by the control.
    incoming: Mutex<Vec<Incoming>>,
    /// The control's.
    communicator: Arc<Communicator>,
    /// What each machine is called, for messages.
    hosts: Vec<String>,
}

impl Processes {
    /// Starts MPI.
    ///
    /// # Errors
    /// What MPI says, and [`Error::Config`] for an unknown wish of who calls it.
    pub fn start() -> Result<Self> {
        let wanted = if one_caller()? { Calls::One } else { Calls::Any };
        let driver = Arc::new(Driver::start(wanted)?);
        let duplicate = |world: &Communicator| world.duplicate().map(Arc::new);
        let communicator = driver.call("make a communicator", PATIENCE, MEETING, duplicate)?;
        let (own, processes) = (driver.process, driver.processes);
        let others = (0..processes).filter(|process| *process != own);
        let way = || (communicator.clone(), 0);
        let capacity = lines_of(PIECE);
        let routes = others.map(|process| Route { process, out: way(), into: way(), capacity }).collect();
        let control = Arc::new(Endpoint::new(routes, own..own + 1, processes, driver.calls == Calls::Any));
        driver.take(std::slice::from_ref(&control));
        let incoming = Mutex::new((0..processes).map(|_| Incoming::default()).collect());
        let mut all = Self { driver, control, incoming, communicator, hosts: Vec::new() };
        all.control.beat(true);
        let names = all.gather("name machines", host_name().as_bytes(), Takers::All, Waiting::until(MEETING))?;
        all.hosts = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        Ok(all)
    }

    /// Sends another machine as much of this one's own as can leave now; whether anything did.
    fn give(&self, stage: &str, own: &[u8], other: usize, sent: &mut Option<usize>) -> bool {
        let (rank, peer) = (|machine: usize| RankId(machine as u32), self.peer(other));
        let mut progress = false;
        while sent.is_none_or(|sent| sent < own.len()) && self.control.is_open(peer) {
            let mut memory = self.control.spare(peer, lines_of(PIECE));
            let bytes = if let Some(first) = *sent {
                let piece = PIECE.min(own.len() - first);
                let body: &mut [u8] = bytemuck::cast_slice_mut(&mut memory[1..]);
                body[..piece].copy_from_slice(&own[first..first + piece]);
                *sent = Some(first + piece);
                piece
            } else {
                memory[1] = head_of(stage, own.len());
                *sent = Some(0);
                Line::BYTES
            };
            memory[0] = header(rank(self.machine()), rank(other), bytes);
            self.control.send(peer, Part { memory, used: lines_of(bytes) });
            progress = true;
        }
        progress
    }

    /// Takes the next message of another machine; whether there was one.
    fn hear(&self, stage: &str, other: usize, incoming: &mut Incoming) -> Result<bool> {
        let failed = |failure: Failure| Error::Mpi { action: stage.to_owned(), reason: failure.to_string() };
        let rank = |machine: usize| RankId(machine as u32);
        let Some(message) = self.control.take(rank(other), rank(self.machine())).map_err(failed)? else {
            return Ok(false);
        };
        let bytes: &[u8] = bytemuck::cast_slice(message.lines());
        incoming.take(&bytes[..message.bytes]);
        self.control.release(message);
        Ok(true)
    }

    /// Which of these machines has given no sign of life for too long, and what that is; `quiet` has of each machine
    /// when its last one came, and how long the next one is waited for.
    fn silent(
        &self,
        mut of: impl Iterator<Item = usize>,
        silence: Option<Deadline>,
        quiet: &mut [(Option<Instant>, Waited)],
    ) -> Option<(usize, Deadline)> {
        let silence = silence?;
        let is_silent = |other: &usize| {
            let (last, waited) = &mut quiet[*other];
            let heard = Some(self.control.heard(self.peer(*other)));
            if *last != heard {
                *last = heard;
                waited.restart();
            }
            waited.look() > silence.time
        };
        of.find(is_silent).map(|other| (other, silence))
    }

    /// The number that the control has for another machine.
    fn peer(&self, other: usize) -> usize {
        if other < self.machine() { other } else { other - 1 }
    }
}

impl ProcessGroup for Processes {
    fn hosts(&self) -> &[String] {
        &self.hosts
    }

    fn machine(&self) -> usize {
        self.driver.process
    }

    fn machines(&self) -> usize {
        self.driver.processes
    }

    fn describe(&self) -> String {
        let calls = match self.driver.calls {
            Calls::Any => "all threads that communicate call it (MPI_THREAD_MULTIPLE)",
            Calls::One => "one thread calls it for all (MPI_THREAD_FUNNELED)",
        };
        format!("{}; {calls}", self.driver.version)
    }

    fn abort(&self, code: u8) -> ! {
        // The driver's thread may be busy in the library, for good.
        if self.driver.calls == Calls::Any {
            self.communicator.abort(code);
        }
        let abort = move |world: &Communicator| -> std::result::Result<(), _> { world.abort(code) };
        let _ = self.driver.call("abort", Duration::ZERO, LAST_WORD, abort);
        // The launcher ends the others when it sees how this one has ended.
        end_at_once(code)
    }

    fn fall_silent(&self) {
        self.control.beat(false);
    }

    fn gather(&self, stage: &'static str, own: &[u8], to: Takers, waiting: Waiting) -> Result<Vec<Vec<u8>>> {
        let (machine, machines) = (self.machine(), self.machines());
        let mut incoming = self.incoming.lock().unpoisoned();
        let takes = |machine: usize| to == Takers::All || machine == 0;
        // What need not be sent or received is done already.
        let mut whole: Vec<Option<Vec<u8>>> = vec![if takes(machine) { None } else { Some(Vec::new()) }; machines];
        whole[machine] = Some(own.to_owned());
        let mut sent: Vec<Option<usize>> =
            (0..machines).map(|other| if takes(other) { None } else { Some(own.len()) }).collect();
        let (mut waited, mut yielding) = (Waited::begin(), Yielding::default());
        let mut quiet = vec![(None, waited); machines];
        loop {
            let mut progress = false;
            for other in (0..machines).filter(|other| *other != machine) {
                progress |= self.give(stage, own, other, &mut sent[other]);
                while whole[other].is_none() {
                    whole[other] = incoming[other].given(stage, other)?;
                    if whole[other].is_some() || !self.hear(stage, other, &mut incoming[other])? {
                        break;
                    }
                    progress = true;
                }
            }
            let done = |other: usize| sent[other] == Some(own.len()) && whole[other].is_some();
            let waits_for = (0..machines).filter(|other| *other != machine && !done(*other));
            let Some(last) = waits_for.clone().next_back() else { return Ok(whole.into_iter().flatten().collect()) };
            let failed = |reason: String| Err(Error::Mpi { action: stage.to_owned(), reason });
            let name = |other: usize| named(other, &self.hosts);
            if waiting.heeds && interrupt::requested() {
                return Err(Error::Interrupted);
            }
            let so_far = waited.look();
            if progress {
                waited.restart();
                yielding = Yielding::default();
            } else if self.control.drive_here() {
                yielding = Yielding::default();
            } else if so_far > waiting.deadline.time {
                return failed(unanswered(&name(last), waiting.deadline));
            } else if let Some((other, silence)) = self.silent(waits_for, waiting.silence, &mut quiet) {
                return failed(silent(&name(other), silence));
            } else {
                yielding.turn();
            }
        }
    }

    fn time_raw(&self, what: Raw, buffers: Buffers, bytes: usize, runs: usize) -> Result<f64> {
        let processes = self.machines();
        self.driver.call(what.name(), PATIENCE, MEETING, move |world| {
            let (mut floats, mut send, mut receive) = match what {
                Raw::AllReduce => (vec![0f32; bytes / size_of::<f32>()], Vec::new(), Vec::new()),
                Raw::AllToAll => (Vec::new(), vec![0u8; bytes * processes], vec![0u8; bytes * processes]),
            };
            let (mut tensor, mut own, filled) = (floats.clone(), send.clone(), buffers == Buffers::Filled);
            let mut began = Instant::now();
            // The first call warms up.
            for run in 0..=runs {
                began = if run == 1 { Instant::now() } else { began };
                if filled {
                    floats.copy_from_slice(&tensor);
                    send.copy_from_slice(&own);
                }
                match what {
                    Raw::AllReduce => world.all_reduce(&mut floats)?,
                    Raw::AllToAll => world.all_to_all(&send, &mut receive)?,
                }
                if filled {
                    tensor.copy_from_slice(&floats);
                    own.copy_from_slice(&receive);
                }
                std::mem::swap(&mut send, &mut receive);
            }
            Ok(began.elapsed().as_secs_f64() / runs as f64)
        })
    }

    fn time_pairs(&self, bytes: usize, runs: usize) -> Result<Vec<f64>> {
        let (own, processes) = (self.machine(), self.machines());
        self.driver.call("time pairs of machines", PATIENCE, MEETING, move |world| {
            let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
            let mut medians = Vec::new();
            for other in 1..processes {
                let mut seconds = vec![0.0];
                if own == 0 || own == other {
                    seconds.clear();
                    let peer = if own == 0 { other } else { 0 };
                    // The first one warms up.
                    for run in 0..=runs {
                        let began = Instant::now();
                        world.swap(peer, &from, &mut to)?;
                        seconds.extend((run > 0).then(|| began.elapsed().as_secs_f64()));
                    }
                }
                world.barrier()?;
                medians.push(median(&mut seconds));
            }
            Ok(medians)
        })
    }

    fn time_together(&self, bytes: usize, at_once: usize, runs: usize) -> Result<f64> {
        let (own, processes) = (self.machine(), self.machines());
        self.driver.call("time all machines at once", PATIENCE, MEETING, move |world| {
            let others = (0..processes).filter(|other| *other != own);
            let peers: Vec<usize> = others.flat_map(|other| std::iter::repeat_n(other, at_once)).collect();
            let mut memory: Vec<[Vec<u8>; 2]> = peers.iter().map(|_| [vec![1; bytes], vec![0; bytes]]).collect();
            let mut seconds = Vec::new();
            // The first one warms up.
            for run in 0..=runs {
                world.barrier()?;
                let began = Instant::now();
                let (mut going, mut coming) = (Vec::new(), Vec::new());
                for (&peer, [from, to]) in peers.iter().zip(memory.drain(..)) {
                    coming.push(world.receive(to, peer, 0)?);
                    going.push(world.send(vec![Part { memory: from, used: bytes }], peer, 0)?);
                }
                let (mut left, mut come, mut idle) = (Vec::new(), Vec::new(), Yielding::default());
                while !(going.is_empty() && coming.is_empty()) {
                    let open = going.len() + coming.len();
                    drain(&mut going, |message| Ok(message.test()?.map(|mut parts| left.extend(parts.pop()))))?;
                    drain(&mut coming, |message| Ok(message.test()?.map(|(memory, _)| come.push(memory))))?;
                    if going.len() + coming.len() < open {
                        idle = Yielding::default();
                    }
                    idle.turn();
                }
                seconds.extend((run > 0).then(|| began.elapsed().as_secs_f64()));
                memory.extend(left.into_iter().zip(come).map(|(part, to)| [part.memory, to]));
            }
            Ok(median(&mut seconds))
        })
    }

    fn fabric(&self, job: &Job, machines: &Machines, lanes: Vec<LaneSpec>) -> Result<Box<dyn Fabric>> {
        Ok(Box::new(Bridge::new(&self.driver, machines.clone(), job, lanes)?))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.driver.leave(vec![self.control.clone()], PATIENCE);
    }
}

/// What is told of a machine that was waited for in vain.
fn unanswered(who: &str, deadline: Deadline) -> String {
    let remedy = deadline.remedy(" If it");
    format!("{who} did not answer within {deadline} s: is it alive, and its network?{remedy}")
}

/// What is told of a machine that may work for long and has given no sign of life.
fn silent(who: &str, silence: Deadline) -> String {
    let remedy = |flag| format!(" If it only stood still for a while, allow that with {flag} above {silence}");
    let remedy = silence.flag.map_or_else(String::new, remedy);
    format!("{who} has given no sign of life for {silence} s: does its process run, and its network?{remedy}")
}

/// Lets those go that are done.
fn drain<T>(
    messages: &mut Vec<T>,
    mut done: impl FnMut(&mut T) -> std::result::Result<Option<()>, Failure>,
) -> std::result::Result<(), Failure> {
    let mut index = 0;
    while index < messages.len() {
        match done(&mut messages[index])? {
            Some(()) => drop(messages.swap_remove(index)),
            None => index += 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_does_not_answer_is_told_with_a_remedy_where_there_is_one() {
        // As long as machines take to meet, which no flag chooses.
        let chosen = Deadline { flag: Some("--timeout"), ..MEETING };
        let [told, met] = [chosen, MEETING].map(|deadline| unanswered("machine 1 (node7)", deadline));
        assert!(told.starts_with("machine 1 (node7) did not answer within 300 s: "), "{told}");
        assert!(
            told.ends_with("its network? If it only has more to do, allow more with --timeout above 300"),
            "{told}"
        );
        assert!(met.ends_with("its network?"), "{met}");
        let [told, met] = [chosen, MEETING].map(|silence| silent("machine 0 (node6)", silence));
        assert!(told.starts_with("machine 0 (node6) has given no sign of life for 300 s: "), "{told}");
        assert!(told.ends_with(" If it only stood still for a while, allow that with --timeout above 300"), "{told}");
        assert!(met.ends_with("its network?"), "{met}");
    }
}
