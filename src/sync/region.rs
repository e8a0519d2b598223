//! A fork-join region: one closure, run once by each of T threads, all of which have finished when it returns.
//!
//! # Protocol
//! The leader (the thread that calls [`Crew::run`]) shares one [`Mailbox`] with each of its T - 1 helpers, and there
//! the states of a region stand.
//!
//! * A helper that has waited long enough raises its `asleep` flag, looks at `epoch` once more and parks; the leader
//!   changes `epoch` before it looks at the flags. A sequentially consistent fence stands between the write and the
//!   read on both sides, so at least one of the two sees the other's write: no wake-up is lost.
//!
//! A panic in any thread is caught there, the region is joined as usual, and the first payload is thrown again in the
//! leader.
//!
//! # Cost
//! A region costs the journeys of cache lines between cores. A mailbox is one line, so that it travels to its helper
//! and back, which is the least possible, and helpers never queue for a counter. How long that takes depends on the
//! line: some are half as fast again as others, probably for where their part of the outermost cache lies. So a crew
//! tries [`CANDIDATES`] lines for each mailbox when it starts, and stays with the quickest. What a closure captures
//! travels in the same line if it is small enough ([`Crew::run`] demands closures that may be copied); more than that
//! stays with the leader and is one journey more. The flags of sleepers have lines of their own, which stay shared
//! while nobody sleeps. `pause` takes 140 cycles on Intel cores since Skylake, a good part of a region: a waiting
//! thread first looks [`EAGER_LOOKS`] times without it. `octorec bench team` measures all of this, the journey of a
//! line alone, rayon and scoped threads.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;

use super::mailbox::{Mailbox, Next, Order};
use super::primitive::{Arc, AtomicBool, Mutex, Ordering, Yielding, fence, thread};
use crate::base::Unpoisoned;

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
    pub(super) fn linger(self, looks: u32) -> bool {
        self.linger_after(EAGER_LOOKS, looks)
    }

    /// The same, where so many looks come before the first `pause`.
    pub(super) fn linger_after(self, eager: u32, looks: u32) -> bool {
        let eager = if self.spins == 0 { 0 } else { eager };
        if looks > eager {
            if looks - eager > self.spins {
                return false;
            }
            pause();
        }
        true
    }
}

/// Lines that a crew tries for each mailbox.
const CANDIDATES: usize = if cfg!(loom) { 2 } else { 16 };
/// Journeys by which a line is judged.
const TRIALS: usize = 64;
/// What the choice of a mailbox may take: on a busy machine a journey can take milliseconds.
const CHOICE: Duration = Duration::from_millis(25);

struct Shared {
    /// [`CANDIDATES`] for each helper, one helper's after another's.
    mailboxes: Box<[CachePadded<Mailbox>]>,
    asleep: Box<[CachePadded<AtomicBool>]>,
    /// Whether `panic` holds something: set before a helper's `done`, read after it.
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    patience: Patience,
}

/// A leader's helpers, waiting for work. Dropping it stops and joins them.
pub struct Crew {
    shared: Arc<Shared>,
    helpers: Vec<thread::JoinHandle<()>>,
    /// Where each helper waits: a number in `mailboxes`.
    places: Vec<usize>,
    /// Whether a region runs. A region has one leader, so two threads must not share a crew, which the cell forbids;
    /// nor may a region start inside another of the same crew, which the cell tells at run time.
    running: Cell<bool>,
}

/// A crew while a region runs.
struct Running<'a>(&'a Cell<bool>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
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
        let shared = Arc::new(Shared {
            mailboxes: (0..(threads - 1) * CANDIDATES).map(|_| CachePadded::new(Mailbox::new())).collect(),
            asleep: (1..threads).map(|_| CachePadded::new(AtomicBool::new(false))).collect(),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            patience,
        });
        let prepare = Arc::new(prepare);
        let (helpers, places) = (Vec::with_capacity(threads - 1), Vec::with_capacity(threads - 1));
        let mut crew = Self { shared, helpers, places, running: Cell::new(false) };
        for index in 1..threads {
            let (shared, prepare) = (crew.shared.clone(), prepare.clone());
            let body = move || {
                // Told to the leader as if a region had panicked: one who waits for this helper finds it.
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| prepare(index))) {
                    shared.keep_panic(payload);
                }
                shared.help(index);
            };
            // If this fails, dropping `crew` stops the helpers that were started.
            crew.helpers.push(thread::Builder::new().name(format!("octorec-{index}")).spawn(body)?);
            crew.places.push((index - 1) * CANDIDATES);
        }
        if patience.spins > 0 && !cfg!(loom) {
            (0..threads - 1).for_each(|helper| crew.choose(helper));
        }
        Ok(crew)
    }

    /// Threads in a region, the leader included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Whether its threads spin while they wait: a region then begins and ends within microseconds. Those that give
    /// their cores away are woken for each.
    #[must_use]
    pub fn spins(&self) -> bool {
        self.shared.patience.spins > 0
    }

    /// Runs `body(i)` once for every thread i in 0..T and returns when all have finished.
    ///
    /// A closure that captures nothing but references and small values may be copied; any other can be passed as a
    /// reference to it. Captures of at most 40 bytes travel with the call, which saves a journey of a cache line where
    /// the closure is `move`: its references then point at what is meant, not at the leader's variables.
    ///
    /// # Panics
    /// With the payload of the first thread that panicked, after all have finished; and in a region of this crew. The
    /// latter mostly does not compile, because a closure that captures a crew is not `Sync`, but a closure can reach a
    /// crew without a capture, through a `thread_local!`.
    pub fn run<F: Fn(usize) + Sync + Copy>(&self, body: F) {
        // SAFETY: `body` outlives the call.
        #[allow(unsafe_code)]
        unsafe {
            self.lead(Order::call(&body));
        }
    }

    /// [`Crew::run`] by an order to call its closure. The leader is thread 0 by the same order, so that the closure is
    /// compiled once, and all of this once for all closures.
    ///
    /// # Safety
    /// The order calls a closure, which is alive, with what it borrows, until this returns or unwinds.
    #[allow(unsafe_code)]
    unsafe fn lead(&self, order: Order) {
        assert!(!self.running.replace(true), "a region cannot start inside another of the same crew");
        let _running = Running(&self.running);
        let own = || {
            // SAFETY: the caller's promise.
            unsafe { order.run(0) };
        };
        if self.helpers.is_empty() {
            return own();
        }
        for place in &self.places {
            // SAFETY: the mailbox is idle, because the last region was joined and this crew has no second leader: it is
            // not Sync, and `running` says that its own thread is in no other region. This region is joined below,
            // before the closure may be gone.
            unsafe {
                self.shared.mailboxes[*place].post(order);
            }
        }
        self.wake();
        let own = catch_unwind(AssertUnwindSafe(own));
        self.places.iter().for_each(|place| self.shared.join(*place));
        let theirs = self.shared.take_panic();
        if let Some(payload) = own.err().or(theirs) {
            resume_unwind(payload);
        }
    }

    /// Gives one helper an order that borrows nothing, and waits until it is completed.
    fn tell(&self, helper: usize, order: Order) {
        let place = self.places[helper];
        // SAFETY: as in `lead`, since no region runs while a crew is started; nothing is borrowed.
        #[allow(unsafe_code)]
        unsafe {
            self.shared.mailboxes[place].post(order);
        }
        self.wake();
        self.shared.join(place);
    }

    /// Sends a helper to one of its mailboxes.
    fn seat(&mut self, helper: usize, candidate: usize) {
        let place = helper * CANDIDATES + candidate;
        self.tell(helper, Order::GoTo(place));
        self.places[helper] = place;
    }

    /// Seats a helper at the mailbox whose line takes the shortest time, in the median of its journeys.
    fn choose(&mut self, helper: usize) {
        let (start, mut best) = (Instant::now(), (Duration::MAX, 0));
        for candidate in 0..CANDIDATES {
            self.seat(helper, candidate);
            let mut journeys = [Duration::MAX; TRIALS];
            for journey in &mut journeys {
                let departure = Instant::now();
                self.tell(helper, Order::call(&|_: usize| ()));
                *journey = departure.elapsed();
                if start.elapsed() > CHOICE {
                    break;
                }
            }
            journeys.sort_unstable();
            best = best.min((journeys[TRIALS / 2], candidate));
        }
        self.seat(helper, best.1);
    }

    /// Wakes the helpers that sleep; for after an order.
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
        // A region's thread that ends the process drops what is its own, as a crew in a `thread_local!`, and never
        // comes back to its region: the helpers, which share their mailboxes, are left to it.
        if self.running.get() {
            return;
        }
        for place in &self.places {
            // SAFETY: idle, because no region runs: the last one was joined. Nothing is borrowed.
            #[allow(unsafe_code)]
            unsafe {
                self.shared.mailboxes[*place].post(Order::END);
            }
        }
        self.wake();
        // By its thread, not by its mailbox: one that died while it was prepared will never look there.
        for helper in self.helpers.drain(..) {
            // A helper catches panics, so there is nothing to learn from its result.
            let _ = helper.join();
        }
    }
}

impl Shared {
    /// Waits until the helper at this mailbox has finished.
    fn join(&self, place: usize) {
        let mailbox = &self.mailboxes[place];
        // Read once: it does not change, and the model has fewer steps to interleave.
        let (last, mut looks, mut yielding) = (mailbox.last(), 0u32, Yielding::default());
        while !mailbox.is_idle(last) {
            looks = looks.saturating_add(1);
            if !self.patience.linger(looks) {
                yielding.turn();
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
        self.panic.lock().unpoisoned().take()
    }

    /// Keeps the first panic for the leader.
    fn keep_panic(&self, payload: Box<dyn Any + Send>) {
        let mut first = self.panic.lock().unpoisoned();
        match &*first {
            None => *first = Some(payload),
            // A payload may panic when it is dropped.
            Some(_) => std::mem::forget(payload),
        }
        // Relaxed: published by `done`.
        self.panicked.store(true, Ordering::Relaxed);
    }

    /// A helper's life: wait for an epoch, work, report.
    fn help(&self, index: usize) {
        let mut mailbox = &*self.mailboxes[(index - 1) * CANDIDATES];
        loop {
            let epoch = self.next_epoch(mailbox, index);
            // SAFETY: running, as the new epoch says; finished below.
            #[allow(unsafe_code)]
            let order = unsafe { mailbox.order() };
            let work = AssertUnwindSafe(|| {
                // SAFETY: running: `lead` neither returns nor unwinds before `join` has read this helper's `done`
                // below, so what its closure borrows is alive.
                #[allow(unsafe_code)]
                unsafe {
                    order.run(index)
                }
            });
            let next = catch_unwind(work).unwrap_or_else(|payload| {
                self.keep_panic(payload);
                Next::Stay
            });
            mailbox.finish(epoch);
            match next {
                Next::Stay => (),
                Next::GoTo(place) => mailbox = &self.mailboxes[place],
                Next::End => return,
            }
        }
    }

    fn next_epoch(&self, mailbox: &Mailbox, index: usize) -> usize {
        let seen = mailbox.completed();
        let mut looks = 0u32;
        loop {
            looks += 1;
            if !self.patience.linger(looks) {
                break;
            }
            if let Some(epoch) = mailbox.poll(seen) {
                return epoch;
            }
        }
        let asleep = &self.asleep[index - 1];
        loop {
            asleep.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if let Some(epoch) = mailbox.poll(seen) {
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
mod tests;

#[cfg(all(test, loom))]
mod models {
    use super::super::primitive::Guarded;
    use super::*;
    use crate::base::panics;

    /// Interleavings of two regions and the shutdown, with a helper that spins, sleeps or does both, or moves first;
    /// with up to seven preemptions, or more where LOOM_MAX_PREEMPTIONS allows more: seven are many more than a wrong
    /// order of two accesses needs, and all of them take minutes.
    #[test]
    fn two_regions_and_the_end() {
        for (patience, moves) in
            [(Patience::OWN_CORE, false), (Patience::SHARED_CORE, false), (Patience::SHARED_CORE, true)]
        {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = builder.preemption_bound.max(Some(7));
            builder.check(move || {
                let mut crew = Crew::start(2, patience, |_| ()).unwrap();
                if moves {
                    crew.seat(0, 1);
                }
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

    /// Interleavings of two regions in which the helper panics, before the first of which its preparation did, with as
    /// many preemptions as LOOM_MAX_PREEMPTIONS allows: each region tells its own first panic. One that is kept after
    /// `done` fails here, and so does a `done` whose order does not publish the relaxed flag.
    #[test]
    fn each_region_tells_the_panic_of_its_helper() {
        loom::model(|| {
            // Without the hook, which would print it for every interleaving.
            let crew = Crew::start(2, Patience::SHARED_CORE, |_| resume_unwind(Box::new("prepared"))).unwrap();
            for (thrown, told) in [("ran", "prepared"), ("ran again", "ran again")] {
                let region = || {
                    crew.run(move |index| {
                        if index == 1 {
                            resume_unwind(Box::new(thrown));
                        }
                    });
                };
                let payload = catch_unwind(AssertUnwindSafe(region)).unwrap_err();
                assert_eq!(panics::words(&*payload), told);
            }
        });
    }
}
