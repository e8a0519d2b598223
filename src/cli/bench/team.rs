//! `octorec bench team`: the cost of a fork-join region, beside rayon's broadcast and scoped threads.
//!
//! A region is timed from the leader's call to its return, the reading of the clock included. "Hot" regions follow each
//! other; "idle" ones come after a millisecond of sleep, when helpers have parked. The body marks that its thread was
//! there, and the marks are counted afterwards. What a closure captures travels with the call if it is small and moved
//! into it; one row shows what it costs to leave it where the leader keeps its variables. Below all regions lies the machine's own limit: a cache line that
//! travels to another core and back.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;
use serde::Serialize;

use super::TeamArgs;
use super::table::Table;
use crate::base::{Error, Result};
use crate::machine::limits::Processor;
use crate::machine::team::Team;

/// Regions after an idle millisecond.
const IDLE_REGIONS: usize = 300;
/// Hot regions of those that take microseconds, at most.
const SLOW_REGIONS: usize = 5_000;
/// Regions before the first that is timed.
const WARM_UP: usize = 1_000;

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
}

/// One mark a thread, each on a line of its own, so that marking costs no journey.
type Marks = [CachePadded<AtomicUsize>];

fn mark(marks: &Marks, thread: usize) {
    // One writer each: a load and a store are enough.
    marks[thread].store(marks[thread].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Marks of a region whose body captures nothing: in the program's own data.
static EMPTY: [CachePadded<AtomicUsize>; 256] = [const { CachePadded::new(AtomicUsize::new(0)) }; 256];

/// Times `regions` runs of `region`, each after `idle`.
fn time(what: &'static str, idle: Option<Duration>, regions: usize, mut region: impl FnMut()) -> Row {
    for _ in 0..if idle.is_some() { 1 } else { WARM_UP.min(regions) } {
        region();
    }
    let mut nanoseconds = Vec::with_capacity(regions);
    for _ in 0..regions {
        if let Some(idle) = idle {
            std::thread::sleep(idle);
        }
        let start = Instant::now();
        region();
        nanoseconds.push(start.elapsed().as_nanos() as f64);
    }
    nanoseconds.sort_by(f64::total_cmp);
    let at = |share: f64| nanoseconds[((regions - 1) as f64 * share) as usize];
    let state = if idle.is_some() { "after 1 ms" } else { "hot" };
    Row { what, state, median_ns: at(0.5), p99_ns: at(0.99), min_ns: at(0.0), regions }
}

/// A line that goes to another core and comes back, between two threads that do nothing else.
fn journey(regions: usize) -> Row {
    let line = CachePadded::new(AtomicUsize::new(0));
    let total = regions + WARM_UP.min(regions);
    let wait = |value: usize| {
        let mut looks = 0u32;
        while line.load(Ordering::Acquire) != value {
            looks += 1;
            // In case both threads share a core.
            if looks.is_multiple_of(1 << 14) {
                std::thread::yield_now();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for trip in 0..total {
                wait(2 * trip + 1);
                line.store(2 * trip + 2, Ordering::Release);
            }
        });
        let mut trip = 0;
        time("a cache line, there and back", None, regions, || {
            line.store(2 * trip + 1, Ordering::Release);
            wait(2 * trip + 2);
            trip += 1;
        })
    })
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
    let team = Team::new(args.threads)?;
    let threads = team.threads();
    let hot = args.regions as usize;
    let slow = hot.min(SLOW_REGIONS);
    let idle = Some(Duration::from_millis(1));
    let idle_regions = hot.min(IDLE_REGIONS);
    let marks: Vec<CachePadded<AtomicUsize>> = (0..threads).map(|_| CachePadded::new(AtomicUsize::new(0))).collect();
    let mut rows = Vec::new();
    if threads > 1 {
        rows.push(journey(hot));
    }

    // Threads beyond the marks share one, and are then not counted.
    rows.push(time("octorec, nothing captured", None, hot, || team.run(|thread| mark(&EMPTY, thread % EMPTY.len()))));
    let counted = |marks: &CachePadded<AtomicUsize>| marks.load(Ordering::Relaxed) >= hot + WARM_UP.min(hot);
    assert!(threads > EMPTY.len() || EMPTY[..threads].iter().all(counted), "a thread missed a region");
    for (idle, regions) in [(None, hot), (idle, idle_regions)] {
        let marks = &marks[..];
        rows.push(time("octorec", idle, regions, || team.run(move |thread| mark(marks, thread))));
    }
    rows.push(time("octorec, captures left with the leader", None, hot, || team.run(|thread| mark(&marks, thread))));
    drop(team);

    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| Error::Threads { wanted: threads, source: std::io::Error::other(error) })?;
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
    let expected = 2 * (hot + WARM_UP.min(hot)) + 2 * (slow + WARM_UP.min(slow)) + 3 * (idle_regions + 1);
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
