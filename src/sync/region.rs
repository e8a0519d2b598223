//! A fork-join region: one closure, run once by each of T threads, all of which have finished when it returns.
//!
//! # Protocol
//! The leader (the thread that calls [`Crew::run`]) shares one `Desk` with each of its T - 1 helpers. Two counters say
//! whose it is:
//!
//! | state    | `epoch` | `done` | who may touch the job      |
//! |----------|---------|--------|----------------------------|
//! | idle     | e       | e      | the leader                 |
//! | running  | e + 1   | e      | the helper reads it        |
//! | finished | e + 1   | e + 1  | the leader (idle again)    |
//!
//! * idle -> running: the leader, `epoch`'s only writer, writes the job and then the next `epoch` (release). A helper
//!   that sees the new epoch (acquire) therefore sees the job.
//! * running -> finished: the helper, `done`'s only writer, stores the epoch into it (release) after its last access to
//!   the job and to whatever the closure borrows. The leader that has read it (acquire) on every desk may free all that.
//! * A helper that has waited long enough raises its `asleep` flag, looks at `epoch` once more and parks; the leader
//!   changes `epoch` before it looks at the flags. A sequentially consistent fence stands between the write and the
//!   read on both sides, so at least one of the two sees the other's write: no wake-up is lost.
//!
//! A panic in any thread is caught there, the region is joined as usual, and the first payload is thrown again in the
//! leader.
//!
//! # Cost
//! A region costs the journeys of cache lines between cores. A desk is one line, so that it travels to its helper and
//! back, which is the least possible, and helpers never queue for a counter. What a closure captures travels in the same
//! line if it is small enough ([`Crew::run`] demands closures that may be copied); more than that stays with the leader
//! and is one journey more. The flags of sleepers have lines of their own, which stay shared while nobody sleeps. `pause`
//! takes 140 cycles on Intel cores since Skylake, a good part of a region: a waiting thread first looks [`EAGER_LOOKS`]
//! times without it. `octorec bench team` measures all of this, the journey of a line alone, rayon and scoped threads.

use std::any::Any;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crossbeam::utils::CachePadded;

use super::primitive::{Arc, AtomicBool, AtomicUsize, Guarded, Mutex, Ordering, fence, thread};

/// Looks at a cache line before a waiting thread starts to pause between looks: a few microseconds.
const EAGER_LOOKS: u32 = if cfg!(loom) { 0 } else { 2000 };

/// How long a waiting thread spins before it gives its core away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Busy-wait turns (each one `pause` instruction) before the thread yields or parks.
    pub spins: u32,
}

impl Patience {
    /// For threads that have a core of their own: some 50 us.
    pub const OWN_CORE: Self = Self { spins: if cfg!(loom) { 1 } else { 1500 } };
    /// For more threads than cores: never spin.
    pub const SHARED_CORE: Self = Self { spins: 0 };

    /// Waits a moment before a thread's look number `looks` (from 1): not at all at first, then for a `pause`. False
    /// when the thread has looked often enough and should give its core away.
    fn linger(self, looks: u32) -> bool {
        let eager = if self.spins == 0 { 0 } else { EAGER_LOOKS };
        if looks > eager {
            if looks - eager > self.spins {
                return false;
            }
            pause();
        }
        true
    }
}

/// Words of captures that travel in the desk: what its cache line has left.
const CARRIED: usize = 5;

/// What a closure has captured, or its address when that is larger.
type Captures = MaybeUninit<[*const (); CARRIED]>;

/// The closure of a region with its type and lifetime taken away; valid from idle -> running until joined.
#[derive(Clone, Copy)]
struct Job {
    /// Calls the closure that the captures hold; nothing else may be handed to it. `None` ends the helper.
    call: Option<unsafe fn(&Captures, usize)>,
    captures: Captures,
}

impl Job {
    const END: Self = Self { call: None, captures: MaybeUninit::uninit() };

    fn new<F: Fn(usize) + Sync + Copy>(body: &F) -> Self {
        let mut captures = Captures::uninit();
        if const { size_of::<F>() <= size_of::<Captures>() && align_of::<F>() <= align_of::<Captures>() } {
            // SAFETY: F fits, as just checked. It may be copied, and since it is Sync by any thread that has a
            // reference to it; the copy needs no drop.
            #[allow(unsafe_code)]
            unsafe {
                captures.as_mut_ptr().cast::<F>().write(*body);
            }
            Self { call: Some(call::<F>), captures }
        } else {
            // SAFETY: the first word is there and takes an address.
            #[allow(unsafe_code)]
            unsafe {
                captures.as_mut_ptr().cast::<&F>().write(body);
            }
            Self { call: Some(call::<&F>), captures }
        }
    }

    /// Runs the closure as thread `index`. False: there is none, the helper's life ends.
    ///
    /// # Safety
    /// What the closure borrows is alive, which it is while the region's [`Crew::run`] has not returned.
    #[allow(unsafe_code)]
    unsafe fn run(&self, index: usize) -> bool {
        let Some(call) = self.call else { return false };
        // SAFETY: `call` and `captures` come from one `new`, the only place that makes a job with a closure.
        unsafe { call(&self.captures, index) };
        true
    }
}

/// Calls the F that lies in `captures`.
///
/// # Safety
/// [`Job::new`] has written an F there, and what it borrows is alive.
#[allow(unsafe_code)]
unsafe fn call<F: Fn(usize)>(captures: &Captures, index: usize) {
    // SAFETY: the caller's promise; `new` has checked size and alignment.
    let body = unsafe { &*captures.as_ptr().cast::<F>() };
    body(index);
}

/// What the leader and one helper pass to and fro: one cache line.
struct Desk {
    epoch: AtomicUsize,
    done: AtomicUsize,
    job: Guarded<Job>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Desk>() == 64, "a desk is one cache line");

struct Shared {
    desks: Box<[CachePadded<Desk>]>,
    asleep: Box<[CachePadded<AtomicBool>]>,
    /// Whether `panic` holds something: set before a helper's `done`, read after it.
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    patience: Patience,
}

// SAFETY: a desk's `job` is the only field that is not Sync by itself; the protocol above lets the leader write it only
// while its helper does not read it, and what it holds is a copy of, or a reference to, a Sync closure.
#[allow(unsafe_code)]
unsafe impl Sync for Shared {}

// SAFETY: a reference to a Sync closure may move between threads, and so may a copy, which any thread could have made.
#[allow(unsafe_code)]
unsafe impl Send for Shared {}

/// A leader's helpers, waiting for work. Dropping it stops and joins them.
pub struct Crew {
    shared: Arc<Shared>,
    helpers: Vec<thread::JoinHandle<()>>,
    // A region has one leader: two threads must not share a crew, and a region must not start inside another.
    not_sync: std::marker::PhantomData<std::cell::Cell<()>>,
}

impl Crew {
    /// Starts `threads - 1` helpers; the caller of [`Crew::run`] is the remaining thread, number 0.
    ///
    /// `prepare(i)` runs first on helper i (1 to T - 1), to pin or name it.
    ///
    /// # Errors
    /// When the system refuses a thread.
    ///
    /// # Panics
    /// When `threads` is 0.
    pub fn start(
        threads: usize,
        patience: Patience,
        prepare: impl Fn(usize) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        assert!(threads > 0, "a crew has at least its leader");
        let desk = |_| {
            CachePadded::new(Desk {
                epoch: AtomicUsize::new(0),
                done: AtomicUsize::new(0),
                job: Guarded::new(Job::END),
            })
        };
        let shared = Arc::new(Shared {
            desks: (1..threads).map(desk).collect(),
            asleep: (1..threads).map(|_| CachePadded::new(AtomicBool::new(false))).collect(),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            patience,
        });
        let prepare = Arc::new(prepare);
        let mut crew = Self { shared, helpers: Vec::with_capacity(threads - 1), not_sync: std::marker::PhantomData };
        for index in 1..threads {
            let (shared, prepare) = (crew.shared.clone(), prepare.clone());
            let body = move || {
                prepare(index);
                shared.help(index);
            };
            // If this fails, dropping `crew` stops the helpers that were started.
            crew.helpers.push(thread::Builder::new().name(format!("octorec-{index}")).spawn(body)?);
        }
        Ok(crew)
    }

    /// Threads in a region, the leader included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Runs `body(i)` once for every thread i in 0..T and returns when all have finished.
    ///
    /// A closure that captures nothing but references and small values may be copied; any other can be passed as a
    /// reference to it. Captures of at most 40 bytes travel with the call, which saves a journey of a cache line where
    /// the closure is `move`: its references then point at what is meant, not at the leader's variables.
    ///
    /// # Panics
    /// With the payload of the first thread that panicked, after all have finished.
    pub fn run<F: Fn(usize) + Sync + Copy>(&self, body: F) {
        if self.helpers.is_empty() {
            return body(0);
        }
        self.fork(Job::new(&body));
        let own = catch_unwind(AssertUnwindSafe(|| body(0)));
        self.shared.join();
        let theirs = self.shared.take_panic();
        if let Some(payload) = own.err().or(theirs) {
            resume_unwind(payload);
        }
    }

    /// Hands the job to every helper. Its captures must outlive the next [`Shared::join`].
    fn fork(&self, job: Job) {
        for desk in &self.shared.desks {
            desk.job.with_mut(|slot| {
                // SAFETY: state idle: the last region was joined, so the helper does not read the slot, and this crew
                // has no second leader (it is neither Sync nor re-entrant).
                #[allow(unsafe_code)]
                unsafe {
                    *slot = job;
                }
            });
            desk.announce();
        }
        self.wake();
    }

    /// Wakes the helpers that sleep; for after an announcement.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        for (helper, asleep) in self.helpers.iter().zip(&self.shared.asleep) {
            if asleep.load(Ordering::Relaxed) {
                helper.thread().unpark();
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.fork(Job::END);
        for helper in self.helpers.drain(..) {
            // A helper catches panics, so there is nothing to learn from its result.
            let _ = helper.join();
        }
    }
}

impl Desk {
    /// idle -> running.
    fn announce(&self) {
        // Relaxed: the leader reads its own last write. A store is enough, because nobody else writes.
        let epoch = self.epoch.load(Ordering::Relaxed).wrapping_add(1);
        self.epoch.store(epoch, Ordering::Release);
    }
}

impl Shared {
    /// Waits until every helper has finished.
    fn join(&self) {
        for desk in &self.desks {
            // Relaxed: the leader reads its own last write.
            let epoch = desk.epoch.load(Ordering::Relaxed);
            let mut looks = 0u32;
            while desk.done.load(Ordering::Acquire) != epoch {
                looks = looks.saturating_add(1);
                if !self.patience.linger(looks) {
                    thread::yield_now();
                }
            }
        }
    }

    /// What the first helper that panicked in this region threw; for after [`Shared::join`].
    fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        // Without a panic the lock stays untouched: taking it costs a third of a region.
        if !self.panicked.load(Ordering::Relaxed) {
            return None;
        }
        self.panicked.store(false, Ordering::Relaxed);
        self.panic.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }

    /// A helper's life: wait for an epoch, work, report.
    fn help(&self, index: usize) {
        let desk = &self.desks[index - 1];
        let mut seen = 0;
        loop {
            seen = self.next_epoch(seen, index);
            let job = desk.job.with(|slot| {
                // SAFETY: state running: the acquire of the new epoch ordered the leader's write before this read, and
                // the leader writes again only after this helper's store to `done`.
                #[allow(unsafe_code)]
                unsafe {
                    *slot
                }
            });
            let work = AssertUnwindSafe(|| {
                // SAFETY: state running: `run` neither returns nor unwinds before `join` has read this helper's `done`
                // below, so what its closure borrows is alive.
                #[allow(unsafe_code)]
                unsafe {
                    job.run(index)
                }
            });
            match catch_unwind(work) {
                Ok(true) => (),
                Ok(false) => return,
                Err(payload) => {
                    let mut first = self.panic.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    first.get_or_insert(payload);
                    // Relaxed: published by `done`.
                    self.panicked.store(true, Ordering::Relaxed);
                }
            }
            desk.done.store(seen, Ordering::Release);
        }
    }

    fn next_epoch(&self, seen: usize, index: usize) -> usize {
        let desk = &self.desks[index - 1];
        let new_epoch = || Some(desk.epoch.load(Ordering::Acquire)).filter(|epoch| *epoch != seen);
        let mut looks = 0u32;
        loop {
            looks += 1;
            if !self.patience.linger(looks) {
                break;
            }
            if let Some(epoch) = new_epoch() {
                return epoch;
            }
        }
        let asleep = &self.asleep[index - 1];
        loop {
            asleep.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if let Some(epoch) = new_epoch() {
                asleep.store(false, Ordering::Relaxed);
                return epoch;
            }
            thread::park();
        }
    }
}

fn pause() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    thread::yield_now();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_thread_runs_every_region_once() {
        for patience in [Patience::OWN_CORE, Patience::SHARED_CORE] {
            for threads in 1..=4 {
                let crew = Crew::start(threads, patience, |_| ()).unwrap();
                let calls: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
                for _ in 0..200 {
                    crew.run(|index| {
                        calls[index].fetch_add(1, Ordering::Relaxed);
                    });
                }
                assert!(calls.iter().all(|count| count.load(Ordering::Relaxed) == 200));
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_leader_and_the_crew_lives_on() {
        let crew = Crew::start(3, Patience::OWN_CORE, |_| ()).unwrap();
        for culprit in 0..3 {
            let body = |index: usize| assert!(index != culprit, "thread {index} gave up");
            let caught = catch_unwind(AssertUnwindSafe(|| crew.run(body))).unwrap_err();
            let message = caught.downcast_ref::<String>().unwrap();
            assert_eq!(*message, format!("thread {culprit} gave up"));
        }
        crew.run(|_| ());
        // When all give up, nothing of it is left for the next region.
        assert!(catch_unwind(AssertUnwindSafe(|| crew.run(|_| panic!("all gave up")))).is_err());
        crew.run(|_| ());
    }

    #[test]
    fn sleepers_wake_up() {
        let crew = Crew::start(2, Patience::SHARED_CORE, |_| ()).unwrap();
        let calls = AtomicU64::new(0);
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            crew.run(|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(calls.load(Ordering::Relaxed), 40);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;

    /// All interleavings of two regions and the shutdown, with a helper that spins, sleeps or does both.
    #[test]
    fn two_regions_and_the_end() {
        for patience in [Patience::OWN_CORE, Patience::SHARED_CORE] {
            loom::model(move || {
                let crew = Crew::start(2, patience, |_| ()).unwrap();
                let cells = [Guarded::new(0u32), Guarded::new(0u32)];
                struct Cells<'a>(&'a [Guarded<u32>; 2]);
                // SAFETY: each thread touches its own cell inside a region; the leader touches both between regions.
                #[allow(unsafe_code)]
                unsafe impl Sync for Cells<'_> {}
                let shared = Cells(&cells);
                let shared = &shared;
                for _ in 0..2 {
                    crew.run(move |index| {
                        shared.0[index].with_mut(|cell| {
                            // SAFETY: cell `index` belongs to this thread during the region.
                            #[allow(unsafe_code)]
                            unsafe {
                                *cell += 1;
                            }
                        });
                    });
                }
                for cell in &cells {
                    // SAFETY: the regions are joined; loom checks that they happened before.
                    #[allow(unsafe_code)]
                    cell.with(|cell| assert_eq!(unsafe { *cell }, 2));
                }
            });
        }
    }
}
