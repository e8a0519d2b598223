//! What benches of collectives have in common: ranks on cores, windows, a clock behind a barrier, and the copy limit.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::base::{Deadline, Error, PuId, Result, Unpoisoned, median};
use crate::collective::plan::Topology;
use crate::collective::{Buffers, Carrier, LaneSpec, Machines, Member, Raw, World, launch};
use crate::machine::limits::{self, Bracket, Field, Processor, STREAM_COPY_FORMULA, around};
use crate::machine::placement::{CommCores, Wishes};
use crate::machine::site::Known;
use crate::machine::team::Team;
use crate::machine::{Machine, Placement, Site, place};
use crate::memory::{Arena, Supply};
use crate::simd::Isa;
use crate::sync::{Barrier, Job, Patience};

/// No collective of a bench takes that long.
const DEADLINE: Deadline = Deadline::fixed(Duration::from_secs(60));

/// Timed batches; the median counts.
const BATCHES: usize = 9;

/// About how long a batch should take.
const BATCH: Duration = Duration::from_millis(40);

/// Runs of the first batch, and the most of any other.
const RUNS_FIRST: usize = 3;
const RUNS_MAX: usize = 5000;

/// How many times more runs a batch may take than the one before.
const RUNS_GROWTH: usize = 16;

/// The largest message or tensor.
const MOST_BYTES: usize = 1 << 30;

/// A `--bytes` value: a multiple of 4, so that it is whole numbers.
pub fn message_bytes(text: &str) -> std::result::Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes| (64..=MOST_BYTES).contains(bytes) && bytes % 4 == 0);
    bytes.ok_or_else(|| format!("a multiple of 4 from 64 to {MOST_BYTES} is expected"))
}

/// Bytes of one run of a collective, by all ranks.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Between ranks.
    pub moved: usize,
    /// Read from memory and written to it.
    pub memory: usize,
}

/// What a collective does.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Figures {
    /// Of one run, the median of some batches.
    microseconds: f64,
    /// Bytes between ranks in one run.
    bytes: usize,
    /// Bytes between ranks / s.
    gb_s: f64,
    /// Bytes read and written / s.
    memory_gb_s: f64,
    /// `memory_gb_s` over the non-temporal copy limit.
    ratio: f64,
}

impl Figures {
    fn new(seconds: f64, sizes: Sizes) -> Self {
        let rate = |bytes: usize| bytes as f64 / seconds / 1e9;
        let (gb_s, memory_gb_s) = (rate(sizes.moved), rate(sizes.memory));
        Self { microseconds: seconds * 1e6, bytes: sizes.moved, gb_s, memory_gb_s, ratio: 0.0 }
    }

    /// With the ratio to the limit.
    pub fn against(self, frame: &Frame) -> Self {
        Self { ratio: self.memory_gb_s / frame.copy_limit.mean(), ..self }
    }

    /// As cells of a table.
    pub fn cells(&self) -> [String; 4] {
        let figure = |x: f64| format!("{x:.1}");
        let percent = format!("{:.0} %", self.ratio * 100.0);
        [figure(self.microseconds), figure(self.gb_s), figure(self.memory_gb_s), percent]
    }
}

/// What all figures of a bench are held against.
#[derive(Debug, Serialize)]
pub struct Frame {
    machine: Processor,
    ranks: usize,
    /// Whether ranks share cores, so that they wait for each other's turn.
    cores_shared: bool,
    /// Of all cores that the ranks use together, around the work.
    copy_limit: Bracket,
    copy_formula: &'static str,
}

impl Frame {
    /// What the columns mean.
    pub const LEGEND: &str = "  GB/s             bytes from rank to rank / s, 10^9 bytes a second\n  \
                              GB/s of memory   bytes that the ranks read and write / s, as the limit counts them\n";
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        let shared = if self.cores_shared { ", which share cores" } else { "" };
        writeln!(f, "{} ranks{shared}; limit: non-temporal copy {:.1} GB/s", self.ranks, self.copy_limit.mean())?;
        if let Some(remark) = self.copy_limit.remark("the copy limit (GB/s)") {
            writeln!(f, "{remark}")?;
        }
        Ok(())
    }
}

/// A rank's clock: runs what it is given in batches, all ranks together.
pub struct Clock<'a> {
    /// Of a batch; set by rank 0 after the one before.
    runs: &'a AtomicUsize,
    seconds: &'a Mutex<Vec<f64>>,
    world: &'a World,
}

impl Clock<'_> {
    /// Times `run` on all ranks.
    pub fn run(&self, barrier: &mut Barrier, mut run: impl FnMut() -> Result<()>) -> Result<()> {
        for batch in 0..=BATCHES {
            if barrier.is_first() {
                // Relaxed: the barrier orders it.
                let runs = agreed(self.world, self.runs.load(Ordering::Relaxed))?;
                self.runs.store(runs, Ordering::Relaxed);
            }
            barrier.wait("batch of the bench").map_err(Error::Rank)?;
            let runs = self.runs.load(Ordering::Relaxed);
            let start = Instant::now();
            (0..runs).try_for_each(|_| run())?;
            barrier.wait("end of a batch").map_err(Error::Rank)?;
            let seconds = start.elapsed().as_secs_f64() / runs as f64;
            if !barrier.is_first() {
                continue;
            }
            // Each batch tells how many runs the next one takes: where other processes want the cores, too, runs may
            // take a thousand times longer all of a sudden, and a batch of the old number would take minutes.
            self.runs.store(next_runs(runs, seconds), Ordering::Relaxed);
            // The first one warms up.
            if batch > 0 {
                self.seconds.lock().unpoisoned().push(seconds);
            }
        }
        Ok(())
    }
}

/// Whether so many ranks, of all machines, can exchange something.
pub fn enough(ranks: usize) -> Result<()> {
    if ranks > 1 {
        return Ok(());
    }
    let reason = "one rank has nobody to send to: use 2 or more".to_owned();
    Err(Error::config("--ranks", reason))
}

/// How many runs the next batch has.
fn next_runs(runs: usize, seconds: f64) -> usize {
    ((BATCH.as_secs_f64() / seconds) as usize).min(runs * RUNS_GROWTH).clamp(1, RUNS_MAX)
}

/// The first machine's number of runs, when all machines are there.
fn agreed(world: &World, runs: usize) -> Result<usize> {
    let all = world.all_gather("batch of the bench", runs.to_le_bytes().to_vec(), DEADLINE)?;
    let first = all[0].as_slice().try_into().expect("a machine gives as many bytes as this one");
    Ok(usize::from_le_bytes(first))
}

/// Where the ranks of a bench stand: one thread each.
pub struct BenchRanks {
    placement: Placement,
    /// The links between them, where all are on one machine.
    site: Option<Site>,
    world: World,
    machines: Machines,
}

impl BenchRanks {
    /// `ranks` ranks on each machine of a world.
    pub fn new(world: &World, ranks: usize) -> Result<Self> {
        enough(ranks * world.machines())?;
        let machine = Machine::load("host")?;
        let wishes =
            Wishes { ranks: Some(ranks), threads: Some(1), comm_cores: CommCores::Count(0), ..Wishes::default() };
        let (world, machines) = (world.clone(), Machines::new(&vec![ranks; world.machines()]));
        let placement = place(&machine, &wishes)?;
        let site = (machines.count() == 1).then(|| Site::new(&machine, &placement, Known::default()));
        Ok(Self { placement, site, world, machines })
    }

    /// How many ranks there are, on all machines together.
    pub fn ranks(&self) -> usize {
        self.machines.all_ranks()
    }

    /// What is known of where they are.
    pub fn topology(&self) -> Topology<'_> {
        let local = (self.machines.count() > 1).then(|| self.machines.ranks(0).len());
        Topology { ranks: self.ranks(), site: self.site.as_ref(), local }
    }

    /// The ranks on their machine, if it is the only one.
    pub const fn site(&self) -> Option<&Site> {
        self.site.as_ref()
    }

    /// What MPI's own call takes among machines, by its name: alone, and with the copies into its buffer and out of it;
    /// nothing for one machine.
    pub fn time_raw(&self, what: Raw, sizes: Sizes, bytes: usize) -> Result<Vec<(&'static str, Figures)>> {
        let mut found = Vec::new();
        for buffers in [Buffers::AsTheyAre, Buffers::Filled] {
            let (mut runs, mut all) = (RUNS_FIRST, Vec::new());
            for batch in 0..=BATCHES {
                let agreed = agreed(&self.world, runs)?;
                let Some(seconds) = self.world.time_raw(what, buffers, bytes, agreed)? else { return Ok(found) };
                runs = next_runs(agreed, seconds);
                all.extend((batch > 0).then_some(seconds));
            }
            found.push((what.name_with(buffers), Figures::new(median(&mut all), sizes)));
        }
        Ok(found)
    }

    /// Does the work between two measurements of the limit, which the cores of all ranks reach together, on memory of
    /// `field_bytes` or of [`Field::sensible_bytes`].
    pub fn measure<T>(&self, field_bytes: Option<usize>, work: impl FnOnce() -> Result<T>) -> Result<(Frame, T)> {
        let machine = Processor::of_this_machine()?;
        let mut pus: Vec<PuId> = self.placement.ranks.iter().flat_map(|rank| rank.compute.clone()).collect();
        pus.sort_unstable();
        pus.dedup();
        let team = Team::pinned(&pus, true, Isa::best())?;
        let bytes = field_bytes.unwrap_or_else(|| Field::sensible_bytes(machine.l3_bytes));
        let mut field = Field::new(&team, bytes, limits::Pages::Huge)?;
        let ([copy_limit], result) = around(|| [field.stream_copy(&team)], work);
        let (ranks, cores_shared) = (self.ranks(), !self.placement.spin);
        Ok((Frame { machine, ranks, cores_shared, copy_limit, copy_formula: STREAM_COPY_FORMULA }, result?))
    }

    /// Runs `body` on every rank, with its windows in an arena of its own; the median of what its clock timed.
    pub fn time(
        &self,
        sizes: Sizes,
        lane: LaneSpec,
        body: impl Fn(&mut Member, &mut dyn Carrier, Isa, &Clock<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Figures> {
        let placement = self.placement.clone();
        let patience = if placement.spin { Patience::OWN_CORE } else { Patience::SHARED_CORE };
        let job = Job::on_machines(self.world.elsewhere(&self.machines), patience, DEADLINE);
        let fabric = self.world.fabric(&job, &self.machines, vec![lane])?;
        let runs = AtomicUsize::new(RUNS_FIRST);
        let (local, world) = (self.machines.ranks(self.world.machine()), self.world.clone());
        let first = local.start;
        let batches = launch(&job, local, move |mut member| {
            let place = &placement.ranks[member.rank.index() - first];
            let team = Team::pinned(&place.compute, placement.spin, Isa::best())?;
            let touch = |bytes: &mut [u8]| team.touch(bytes);
            let windows = |supply: &mut Supply<'_>| fabric.memory(member.rank, supply);
            let (memory, _) = Arena::of(&place.memory_nodes, touch, windows)?;
            let mut lanes = fabric.connect(&mut member.barrier, memory)?;
            let seconds = Mutex::new(Vec::with_capacity(BATCHES));
            body(&mut member, &mut *lanes[0], team.isa(), &Clock { runs: &runs, seconds: &seconds, world: &world })?;
            Ok(seconds.into_inner().unpoisoned())
        })?;
        let mut seconds = batches.into_iter().next().unwrap_or_default();
        Ok(Figures::new(median(&mut seconds), sizes))
    }
}
