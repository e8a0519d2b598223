//! The machines of a job: this process runs the local ranks of one of them.

use std::sync::Arc;
use std::time::Duration;

use super::carrier::{Fabric, LaneSpec};
use super::machines::Machines;
#[cfg(feature = "mpi")]
use super::mpi::Processes;
use super::shared_memory::SharedMemory;
#[cfg(feature = "mpi")]
use crate::base::config::bound_although_alone;
use crate::base::config::launched;
#[cfg(feature = "mpi")]
use crate::base::console::note;
use crate::base::{Deadline, Error, Result};
#[cfg(feature = "mpi")]
use crate::ffi::linux::{affinity_of_group, current_affinity, unpin_current_thread};
#[cfg(feature = "mpi")]
use crate::machine::{discover, ranges::ranges};
use crate::sync::Job;

/// What MPI does by itself, among processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raw {
    /// MPI_Alltoall, of so many bytes from each to each.
    AllToAll,
    /// MPI_Allreduce, of a tensor of f32 of so many bytes.
    AllReduce,
}

impl Raw {
    /// MPI's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllToAll => "MPI_Alltoall",
            Self::AllReduce => "MPI_Allreduce",
        }
    }

    /// The same, and what is timed of it.
    #[must_use]
    pub const fn name_with(self, buffers: Buffers) -> &'static str {
        match (self, buffers) {
            (_, Buffers::AsTheyAre) => self.name(),
            (Self::AllToAll, Buffers::Filled) => "MPI_Alltoall, copied",
            (Self::AllReduce, Buffers::Filled) => "MPI_Allreduce, copied",
        }
    }
}

/// What is timed of a call of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffers {
    /// The call alone.
    AsTheyAre,
    /// What is sent is first copied into the call's buffer, and what has come out of it, as whoever keeps tensors of
    /// their own must do. octorec's ranks write into messages what they would otherwise write into such a tensor.
    Filled,
}

/// How long machines wait for each other, at least, where each goes at its own pace: it reads data, or a checkpoint,
/// or writes a vocabulary.
const OWN_PACE: Duration = Duration::from_secs(3600);

/// How often a machine tells the others that its process lives, whatever that works on.
pub(super) const BEAT: Duration = Duration::from_millis(500);

/// How long a process that lives may seem silent: its thread for that waits for a core, or its message for others.
const SILENCE: Duration = BEAT.saturating_mul(4);

/// The stage in which a machine tells why it ends.
pub(super) const END: &str = "end";

/// Who takes what is gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takers {
    /// All machines.
    All,
    /// The first one.
    First,
}

/// How long a machine waits for the others.
#[cfg_attr(not(feature = "mpi"), allow(dead_code))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    /// Until one of them gives something at this stage.
    pub deadline: Deadline,
    /// Until one that is waited for gives a sign of life, where it may work for longer than that; none where it may
    /// not: then the deadline is earlier.
    pub silence: Option<Deadline>,
    /// Whether the wish to stop ends it.
    pub heeds: bool,
}

impl Waiting {
    /// For those that are as far as this one.
    pub const fn until(deadline: Deadline) -> Self {
        Self { deadline, silence: None, heeds: false }
    }

    /// For those that work so long at most, and are silent no longer than `silence`.
    fn beside_work(time: Duration, silence: Deadline) -> Self {
        let silent = Some(silence.at_least(SILENCE));
        Self { deadline: silence.at_least(time), silence: silent, heeds: false }
    }
}

/// The processes that a launcher has started, one a machine. What several do together all do at the same time.
pub(super) trait ProcessGroup: Send + Sync {
    /// This process's number.
    fn machine(&self) -> usize;

    /// How many processes there are.
    fn machines(&self) -> usize;

    /// What the hosts of all machines are called.
    fn hosts(&self) -> &[String];

    /// What connects them, in one line.
    fn describe(&self) -> String;

    /// What all machines give, by machine: for all of them, or for the first alone, where the others get nothing but
    /// their own; `stage` says what for, and all must mean the same.
    ///
    /// # Errors
    /// [`Error::Mpi`] when a machine does not give its own within that time, is silent, has failed, or means something
    /// else; [`Error::Interrupted`] when it ends because of the wish to stop, or this one does.
    fn gather(&self, stage: &'static str, own: &[u8], to: Takers, waiting: Waiting) -> Result<Vec<Vec<u8>>>;

    /// Gives no more signs of life: what this machine gives from now on is its last, and nobody waits for more.
    fn fall_silent(&self);

    /// As [`World::fabric`].
    fn fabric(&self, job: &Job, machines: &Machines, lanes: Vec<LaneSpec>) -> Result<Box<dyn Fabric>>;

    /// Seconds of one call of MPI's own, of so many in a row, on memory that was used before.
    ///
    /// # Errors
    /// What MPI says.
    fn time_raw(&self, what: Raw, buffers: Buffers, bytes: usize, runs: usize) -> Result<f64>;

    /// Seconds in which this process and the first one send each other so many bytes, one pair after another: the
    /// median of so many runs, for each process but the first. What counts is the first one's.
    ///
    /// # Errors
    /// What MPI says.
    fn time_pairs(&self, bytes: usize, runs: usize) -> Result<Vec<f64>>;

    /// Seconds in which each process sends each other so many messages, all of them under way at once, and asks for
    /// them in turns with naps, as it does in training: the median of so many runs.
    ///
    /// # Errors
    /// What MPI says.
    fn time_together(&self, bytes: usize, at_once: usize, runs: usize) -> Result<f64>;

    /// Ends all processes, now.
    fn abort(&self, code: u8) -> !;
}

/// All machines of a job, which has one process on each: as many as MPI's world counts, of which each has ranks of its
/// own. A clone is the same job. A process that nobody has started as one of several is alone.
#[derive(Clone, Default)]
pub struct World(Option<Arc<dyn ProcessGroup>>);

impl World {
    /// One machine.
    #[must_use]
    pub const fn alone() -> Self {
        Self(None)
    }

    /// The machines that a launcher (mpirun, srun) has started this process for; alone without one.
    ///
    /// # Errors
    /// [`crate::base::Error::Mpi`] when there are several and this program was built without MPI, and what MPI says.
    pub fn find() -> Result<Self> {
        launched().filter(|processes| *processes > 1).map_or_else(|| Ok(Self::alone()), Self::join)
    }

    #[cfg(feature = "mpi")]
    fn join(launched: usize) -> Result<Self> {
        let widened = if bound_although_alone() { use_whole_machine()? } else { None };
        let processes = Processes::start()?;
        // The first machine tells for all.
        widened.iter().filter(|_| processes.machine() == 0).for_each(|line| note!("note: {line}"));
        // Where MPI does not understand the launcher, each process would be a job of its own.
        if processes.machines() < launched {
            let reason = format!(
                "the launcher says that it has started so many, and MPI finds {}: use `srun --mpi=pmix` (`srun \
                 --mpi=list` names what Slurm has), or the mpirun of the MPI that octorec was built with",
                processes.machines()
            );
            return Err(Error::Mpi { action: format!("work as one of {launched} processes"), reason });
        }
        Ok(Self(Some(Arc::new(processes))))
    }

    #[cfg(not(feature = "mpi"))]
    fn join(processes: usize) -> Result<Self> {
        Err(Error::Mpi {
            action: format!("work as one of {processes} processes"),
            reason:
                "this octorec was built without MPI: build it with `make build MPI=1`, or start it once, without a launcher"
                    .to_owned(),
        })
    }

    /// This machine's number.
    #[must_use]
    pub fn machine(&self) -> usize {
        self.0.as_ref().map_or(0, |processes| processes.machine())
    }

    /// What the hosts of all machines are called, by machine; nothing for one.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        self.0.as_ref().map_or(&[], |processes| processes.hosts())
    }

    /// A machine's number and, of several, the name of its host.
    #[must_use]
    pub fn name(&self, machine: usize) -> String {
        named(machine, self.hosts())
    }

    /// Of each rank the machine, if it is another one.
    #[must_use]
    pub fn elsewhere(&self, machines: &Machines) -> Vec<Option<String>> {
        let of = |machine: usize| (machine != self.machine()).then(|| self.name(machine));
        (0..machines.all_ranks()).map(|rank| of(machines.of(rank))).collect()
    }

    /// How many machines there are.
    #[must_use]
    pub fn machines(&self) -> usize {
        self.0.as_ref().map_or(1, |processes| processes.machines())
    }

    /// Whether this machine writes for all: the first one.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.machine() == 0
    }

    /// How machines are connected, in one line; nothing for one.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        self.0
            .as_ref()
            .map(|processes| format!("machine {} of {}: {}", self.machine(), self.machines(), processes.describe()))
    }

    /// What all machines give, by machine; `stage` says what for ("compare configurations").
    ///
    /// # Errors
    /// [`Error::Mpi`] when a machine does not give its own within `deadline`, has failed, or is at another stage, and
    /// [`Error::Interrupted`] when it was asked to stop.
    pub fn all_gather(&self, stage: &'static str, own: Vec<u8>, deadline: Deadline) -> Result<Vec<Vec<u8>>> {
        self.gather_to(Takers::All, stage, own, Waiting::until(deadline))
    }

    /// Waits until all machines have come to this stage by themselves, each at its own pace, which is no step's: an
    /// hour at least, but not for longer than `deadline` for one that gives no sign of life. The wish to stop ends it.
    ///
    /// # Errors
    /// As [`World::all_gather`], and [`Error::Interrupted`].
    pub fn meet(&self, stage: &'static str, deadline: Deadline) -> Result<()> {
        let waiting = Waiting { heeds: true, ..Waiting::beside_work(OWN_PACE, deadline) };
        self.gather_to(Takers::All, stage, Vec::new(), waiting).map(|_| ())
    }

    /// As [`World::meet`], but for the wish to stop, which ends nothing: it may be why one of them writes something
    /// before this stage, and is heeded behind it.
    ///
    /// # Errors
    /// As [`World::all_gather`].
    pub fn meet_anyway(&self, stage: &'static str, deadline: Deadline) -> Result<()> {
        self.gather_to(Takers::All, stage, Vec::new(), Waiting::beside_work(OWN_PACE, deadline)).map(|_| ())
    }

    /// Waits, for as long as it takes, until all machines have done this, and all have done it well: at the end of a
    /// job, where the first one may be at work alone for days (`octorec preprocess`), and those that wait have nothing
    /// else to do. The wish to stop is for those to heed that still work: they may be writing what this job was for.
    /// That a process has died is the launcher's to notice, which then ends all; one that stands still, or that the
    /// network has lost, gives no sign of life, and nobody waits for that longer than `silence`.
    ///
    /// # Errors
    /// [`Error::Mpi`] when another machine has failed or is silent, and [`Error::Interrupted`] when it was asked to
    /// stop.
    pub fn all_done(&self, stage: &'static str, silence: Deadline) -> Result<()> {
        self.fall_silent();
        self.gather_to(Takers::All, stage, Vec::new(), Waiting::beside_work(Duration::MAX, silence)).map(|_| ())
    }

    /// Whether all machines have the same of something that each has made for itself.
    ///
    /// # Errors
    /// [`Error::Mpi`] that names the machine.
    pub fn agree(&self, what: &'static str, own: &str, deadline: Deadline) -> Result<()> {
        let all = self.all_gather(what, own.as_bytes().to_vec(), deadline)?;
        all.iter().position(|theirs| *theirs != all[0]).map_or(Ok(()), |other| {
            let reason = format!("{} and {} have different ones", self.name(other), self.name(0));
            Err(Error::Mpi { action: what.to_owned(), reason })
        })
    }

    /// Tells all machines why this one ends, and hears why they do, by machine.
    ///
    /// # Errors
    /// When another machine does not end within `patience`: it has to be ended.
    pub fn end(&self, reason: String, patience: Duration) -> Result<Vec<String>> {
        self.fall_silent();
        let all = self.all_gather(END, reason.into_bytes(), Deadline::fixed(patience))?;
        Ok(all.into_iter().map(|reason| String::from_utf8_lossy(&reason).into_owned()).collect())
    }

    /// As [`World::all_gather`], for the first machine alone: the others get nothing but their own.
    ///
    /// # Errors
    /// As [`World::all_gather`].
    pub fn gather(&self, stage: &'static str, own: Vec<u8>, deadline: Deadline) -> Result<Vec<Vec<u8>>> {
        self.gather_to(Takers::First, stage, own, Waiting::until(deadline))
    }

    /// As [`ProcessGroup::fall_silent`].
    fn fall_silent(&self) {
        self.0.iter().for_each(|processes| processes.fall_silent());
    }

    fn gather_to(&self, to: Takers, stage: &'static str, own: Vec<u8>, waiting: Waiting) -> Result<Vec<Vec<u8>>> {
        match &self.0 {
            None => Ok(vec![own]),
            Some(processes) => processes.gather(stage, &own, to, waiting),
        }
    }

    /// Connects the ranks of a job, which are on these machines; all machines do so at the same time.
    ///
    /// # Errors
    /// What MPI says.
    ///
    /// # Panics
    /// When these are not as many machines.
    pub fn fabric(&self, job: &Job, machines: &Machines, lanes: Vec<LaneSpec>) -> Result<Box<dyn Fabric>> {
        assert_eq!(machines.count(), self.machines(), "ranks for each machine");
        match &self.0 {
            None => Ok(Box::new(SharedMemory::new(job, lanes.into_iter().map(|lane| lane.links).collect()))),
            Some(processes) => processes.fabric(job, machines, lanes),
        }
    }

    /// Seconds that one call of MPI's own takes, of so many in a row; nothing for one machine. All machines call it at
    /// the same time.
    ///
    /// # Errors
    /// What MPI says.
    pub fn time_raw(&self, what: Raw, buffers: Buffers, bytes: usize, runs: usize) -> Result<Option<f64>> {
        self.0.as_ref().map(|processes| processes.time_raw(what, buffers, bytes, runs)).transpose()
    }

    /// Seconds in which the first machine and each other one send each other so many bytes, the median of so many runs,
    /// as the first one sees them; nothing for one machine. All machines call it at the same time.
    ///
    /// # Errors
    /// What MPI says.
    pub fn time_pairs(&self, bytes: usize, runs: usize) -> Result<Vec<f64>> {
        self.0.as_ref().map_or_else(|| Ok(Vec::new()), |processes| processes.time_pairs(bytes, runs))
    }

    /// Seconds in which each machine sends each other so many messages at once, the median of so many runs; nothing for
    /// one machine. All machines call it at the same time.
    ///
    /// # Errors
    /// What MPI says.
    pub fn time_together(&self, bytes: usize, at_once: usize, runs: usize) -> Result<Option<f64>> {
        self.0.as_ref().map(|processes| processes.time_together(bytes, at_once, runs)).transpose()
    }

    /// Ends the processes of all machines, with this exit code.
    pub fn abort(&self, code: u8) -> ! {
        match &self.0 {
            None => std::process::exit(i32::from(code)),
            Some(processes) => processes.abort(code),
        }
    }
}

/// Undoes what Open MPI does unless it is told otherwise, and what is to be said of that: it binds a process to a core,
/// a node or a package. One that has a machine to itself places its threads better. What is no such part is somebody's
/// wish.
#[cfg(feature = "mpi")]
fn use_whole_machine() -> Result<Option<String>> {
    let (own, all) = (current_affinity()?, affinity_of_group()?);
    if own.len() == all.len() || !discover::host()?.has_part(&own, &all) {
        return Ok(None);
    }
    unpin_current_thread()?;
    Ok(Some(format!(
        "octorec uses all {} cpus of its machine, where no other process of the job is, and not only cpus {}, to which \
         Open MPI has bound it: fewer with --threads (where it was not Open MPI but taskset: \
         mpirun --bind-to none)",
        all.len(),
        ranges(own.iter().map(|pu| pu.0))
    )))
}

/// A machine's number and, where it is known, the name of its host.
pub(super) fn named(machine: usize, hosts: &[String]) -> String {
    match hosts.get(machine) {
        Some(host) => format!("machine {machine} ({host})"),
        None => format!("machine {machine}"),
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World(machine {} of {})", self.machine(), self.machines())
    }
}
