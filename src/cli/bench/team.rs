//! `octorec bench team`: the cost of a fork-join region, beside rayon's broadcast and scoped threads.
//!
//! A region is timed from the leader's call to its return, the reading of the clock included. "Hot" regions follow each
//! other; "idle" ones come after a millisecond of sleep, when helpers have parked. The body marks that its thread was
//! there, and the marks are counted afterwards. What a closure captures travels with the call if it is small and moved
//! into it; one row shows what it costs to leave it where the leader keeps its variables. Below all regions lies the
//! machine's own limit: a cache line that travels to another core and back, here sixteen of them, since the journey
//! depends on the line. Teams are pinned as the trainer's are; five are started and their regions taken together.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use crossbeam::utils::CachePadded;
use serde::Serialize;

use crate::base::Result;
use crate::cli::table::Table;
use crate::machine::describe::Machine;
use crate::machine::limits::{Processor, journeys};
use crate::machine::placement::{Wishes, place};
use crate::machine::team::{Team, pool};
use crate::simd::Isa;

/// Regions after an idle millisecond.
const IDLE_REGIONS: usize = 300;
/// Hot regions of those that take microseconds, at most.
const SLOW_REGIONS: usize = 5_000;
/// Regions before the first that is timed.
const WARM_UP: usize = 1_000;
/// Teams that are timed, one after another: what a region costs depends a little on where the machine put a team's
/// lines and how busy its neighbours are.
const TEAMS: usize = 5;
/// Cache lines whose journeys are timed: they differ by half.
const LINES: usize = 16;

/// Flags of `octorec bench team`.
#[derive(Debug, Clone, Copy, Args)]
pub struct TeamArgs {
    /// Threads of the team; default: one for each core of the first NUMA node
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Hot regions that are timed
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..))]
    regions: u32,
    /// Print one JSON object, for scripts
    #[arg(long)]
    pub(super) json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Processor,
    threads: usize,
    /// Two readings of the clock, included in every figure.
    clock_ns: f64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    state: &'static str,
    median_ns: f64,
    p99_ns: f64,
    min_ns: f64,
    regions: usize,
    /// All of them.
    #[serde(skip)]
    nanoseconds: Vec<f64>,
}

/// One mark a thread, each on a line of its own, so that marking costs no journey.
type Marks = [CachePadded<AtomicUsize>];

fn mark(marks: &Marks, thread: usize) {
    // One writer each: a load and a store are enough.
    marks[thread].store(marks[thread].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Marks of a region whose body captures nothing: in the program's own data.
static EMPTY: [CachePadded<AtomicUsize>; 256] = [const { CachePadded::new(AtomicUsize::new(0)) }; 256];

/// Regions before the first that is timed.
fn warm_up(idle: Option<Duration>, regions: usize) -> usize {
    if idle.is_some() { 1 } else { WARM_UP.min(regions) }
}

/// The nanoseconds of `regions` runs of `region`, each after `idle`.
fn clock(idle: Option<Duration>, regions: usize, mut region: impl FnMut()) -> Vec<f64> {
    (0..warm_up(idle, regions)).for_each(|_| region());
    let run = |_| {
        if let Some(idle) = idle {
            std::thread::sleep(idle);
        }
        let start = Instant::now();
        region();
        start.elapsed().as_nanos() as f64
    };
    (0..regions).map(run).collect()
}

fn time(what: &'static str, idle: Option<Duration>, regions: usize, region: impl FnMut()) -> Row {
    Row::new(what, idle, clock(idle, regions, region))
}

impl Row {
    fn new(what: &'static str, idle: Option<Duration>, nanoseconds: Vec<f64>) -> Self {
        let state = if idle.is_some() { "after 1 ms" } else { "hot" };
        let mut row = Self { what, state, median_ns: 0.0, p99_ns: 0.0, min_ns: 0.0, regions: 0, nanoseconds };
        row.sum_up();
        row
    }

    /// Takes the regions of another row in.
    fn extend(&mut self, more: Self) {
        self.nanoseconds.extend(more.nanoseconds);
        self.sum_up();
    }

    fn sum_up(&mut self) {
        self.nanoseconds.sort_unstable_by(f64::total_cmp);
        self.regions = self.nanoseconds.len();
        let at = |share: f64| self.nanoseconds[((self.regions - 1) as f64 * share) as usize];
        (self.median_ns, self.p99_ns, self.min_ns) = (at(0.5), at(0.99), at(0.0));
    }
}

/// Lines that go to another core and come back, between the first two threads of a team that do nothing else: all
/// journeys, and those of the quickest line.
fn line_rows(team: &Team, regions: usize) -> [Row; 2] {
    let each = regions.div_ceil(LINES);
    let times = journeys(team, LINES, warm_up(None, each), each, Duration::MAX);
    let all = Row::new("a cache line, there and back", None, times.concat());
    let rows = times.into_iter().map(|line| Row::new("the quickest line of 16", None, line));
    let quickest = rows.min_by(|a, b| a.median_ns.total_cmp(&b.median_ns));
    [all, quickest.expect("there are lines")]
}

/// Measures all rows.
///
/// # Errors
/// When threads are refused or the hardware cannot be explored.
///
/// # Panics
/// When a thread missed a region.
pub fn measure(args: TeamArgs) -> Result<Report> {
    let machine = Processor::of_this_machine()?;
    let hot = (args.regions as usize).div_ceil(TEAMS);
    let slow = hot.min(SLOW_REGIONS);
    let idle = Some(Duration::from_millis(1));
    let idle_regions = hot.min(IDLE_REGIONS);
    let mut marks: Vec<CachePadded<AtomicUsize>> = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    let wanted = (args.threads > 0).then_some(args.threads);
    let placement = place(&Machine::load("host")?, &Wishes { ranks: Some(1), threads: wanted, ..Wishes::default() })?;
    for _ in 0..TEAMS {
        let team = Team::pinned(&placement.ranks[0].compute, placement.spin, Isa::best())?;
        let threads = team.threads();
        marks.resize_with(threads, || CachePadded::new(AtomicUsize::new(0)));
        let mut these = Vec::new();
        if threads > 1 {
            these.extend(line_rows(&team, hot));
        }
        // Threads beyond the marks share one, and are then not counted.
        let nothing = || team.run(|thread| mark(&EMPTY, thread % EMPTY.len()));
        these.push(time("octorec, nothing captured", None, hot, nothing));
        for (idle, regions) in [(None, hot), (idle, idle_regions)] {
            let marks = &marks[..];
            these.push(time("octorec", idle, regions, || team.run(move |thread| mark(marks, thread))));
        }
        let left = || team.run(|thread| mark(&marks, thread));
        these.push(time("octorec, captures left with the leader", None, hot, left));
        if rows.is_empty() {
            rows = these;
        } else {
            rows.iter_mut().zip(these).for_each(|(all, more)| all.extend(more));
        }
    }
    let threads = marks.len();
    let counted =
        |marks: &CachePadded<AtomicUsize>| marks.load(Ordering::Relaxed) >= TEAMS * (hot + warm_up(None, hot));
    assert!(threads > EMPTY.len() || EMPTY[..threads].iter().all(counted), "a thread missed a region");

    let pool = pool(threads)?;
    for (idle, regions) in [(None, slow), (idle, idle_regions)] {
        rows.push(time("rayon broadcast", idle, regions, || {
            pool.broadcast(|context| mark(&marks, context.index()));
        }));
    }
    drop(pool);

    for (idle, regions) in [(None, slow), (idle, idle_regions)] {
        rows.push(time("std::thread::scope", idle, regions, || {
            std::thread::scope(|scope| {
                for thread in 1..threads {
                    let marks = &marks;
                    scope.spawn(move || mark(marks, thread));
                }
                mark(&marks, 0);
            });
        }));
    }
    let of_teams = 2 * (hot + warm_up(None, hot)) + idle_regions + warm_up(idle, idle_regions);
    let of_others = slow + warm_up(None, slow) + idle_regions + warm_up(idle, idle_regions);
    let expected = TEAMS * of_teams + 2 * of_others;
    for (thread, marks) in marks.iter().enumerate() {
        assert_eq!(marks.load(Ordering::Relaxed), expected, "thread {thread} missed a region");
    }
    let clock_ns = time("", None, hot, || ()).median_ns;
    Ok(Report { machine, threads, clock_ns, rows })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "regions of {} threads; ns, of which the clock takes {:.0}\n", self.threads, self.clock_ns)?;
        let mut table = Table::new(["", "", "median", "p99", "min", "regions"]);
        for row in &self.rows {
            let figure = |x: f64| format!("{x:.0}");
            let figures = [figure(row.median_ns), figure(row.p99_ns), figure(row.min_ns), row.regions.to_string()];
            table.row([row.what.to_owned(), row.state.to_owned()].into_iter().chain(figures));
        }
        write!(f, "{table}")
    }
}
