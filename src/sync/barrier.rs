//! A barrier among ranks: nobody passes before all have come.
//!
//! # Protocol
//! Each rank has a cache line with the number of barriers that it has come to, which it alone writes. To pass number n
//! a rank stores n into its own line (release) and waits until every other line holds n or more (acquire). What any
//! rank wrote before it came is therefore seen by all that passed. Numbers only grow, so nothing is reset, and a rank
//! that is already at n + 1 disturbs nobody who still looks for n. R lines are read by each of R ranks: meant for setup
//! and benches, not for steps.

use std::ops::Range;

use crossbeam::utils::CachePadded;

use super::primitive::{Arc, AtomicUsize, Ordering};
use super::{Job, Waiting};
use crate::base::{Place, RankId, Trouble};

/// A rank's place at the barrier.
pub struct Barrier {
    job: Job,
    rank: RankId,
    /// The first of those who meet.
    first: usize,
    came: Arc<Vec<CachePadded<AtomicUsize>>>,
    /// What this rank's line holds.
    number: usize,
}

/// The place of each of these ranks of a job at a barrier of their own: those of one machine.
///
/// # Panics
/// When the job has no such ranks.
#[must_use]
pub fn barriers(job: &Job, ranks: Range<usize>) -> Vec<Barrier> {
    assert!(ranks.end <= job.ranks(), "ranks {ranks:?} of {}", job.ranks());
    let came = Arc::new(ranks.clone().map(|_| CachePadded::new(AtomicUsize::new(0))).collect::<Vec<_>>());
    let first = ranks.start;
    ranks
        .map(|rank| Barrier { job: job.clone(), rank: RankId(rank as u32), first, came: came.clone(), number: 0 })
        .collect()
}

impl Barrier {
    /// Whose it is.
    #[must_use]
    pub const fn rank(&self) -> RankId {
        self.rank
    }

    /// Whether it is that of the first rank of those who meet.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.rank.0 as usize == self.first
    }

    /// Waits until all ranks have come; `stage` says before what, for messages.
    ///
    /// # Errors
    /// The job's trouble; this rank's own if a rank does not come before the deadline.
    pub fn wait(&mut self, stage: &'static str) -> Result<(), Trouble> {
        self.come(stage, Waiting::default)
    }

    /// As [`Barrier::wait`], without a deadline: where some ranks may have much to do before they come.
    ///
    /// # Errors
    /// The job's trouble.
    pub fn wait_without_deadline(&mut self, stage: &'static str) -> Result<(), Trouble> {
        self.come(stage, Waiting::endless)
    }

    fn come(&mut self, stage: &'static str, wait: fn() -> Waiting) -> Result<(), Trouble> {
        self.number += 1;
        let place = Place { rank: self.rank, stage, sequence: self.number as u64 };
        self.job.enter(place);
        let own = self.rank.index() - self.first;
        self.came[own].store(self.number, Ordering::Release);
        for (peer, came) in self.came.iter().enumerate().filter(|(peer, _)| *peer != own) {
            let mut waiting = wait();
            while came.load(Ordering::Acquire) < self.number {
                waiting.turn(&self.job, place, RankId((self.first + peer) as u32))?;
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;
    use crate::sync::Patience;

    #[test]
    fn nobody_passes_before_all_have_come() {
        for ranks in 1..=5u64 {
            let job = Job::new(ranks as usize, Patience::SHARED_CORE, Duration::from_secs(20));
            let count = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for mut barrier in barriers(&job, 0..job.ranks()) {
                    let count = &count;
                    scope.spawn(move || {
                        for round in 1..=200 {
                            count.fetch_add(1, Ordering::Relaxed);
                            barrier.wait("test").unwrap();
                            let seen = count.load(Ordering::Relaxed);
                            assert!((round * ranks..=round * ranks + ranks - 1).contains(&seen), "{seen} in {round}");
                            barrier.wait("test").unwrap();
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_rank_that_does_not_come_is_named() {
        let job = Job::new(3, Patience::SHARED_CORE, Duration::from_millis(30));
        let mut places = barriers(&job, 0..job.ranks());
        let late = places.pop().unwrap();
        let troubles: Vec<String> = std::thread::scope(|scope| {
            let pass = |mut barrier: Barrier| scope.spawn(move || barrier.wait("setup").unwrap_err().to_string());
            let threads: Vec<_> = places.into_iter().map(pass).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(troubles[0].contains("for rank 2") && troubles[0].contains("in setup #1"), "{troubles:?}");
        assert_eq!(troubles[0], troubles[1]);
        drop(late);
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::time::Duration;

    use super::super::primitive::{Guarded, thread};
    use super::*;
    use crate::sync::Patience;

    struct Cell(Guarded<u32>);
    // SAFETY: written before the barrier by one thread, read after it by another; loom checks the order.
    #[allow(unsafe_code)]
    unsafe impl Sync for Cell {}
    // SAFETY: as above.
    #[allow(unsafe_code)]
    unsafe impl Send for Cell {}

    /// What a rank wrote before the barrier is seen after it, and may be overwritten after the next one.
    #[test]
    fn a_barrier_orders_both_sides() {
        loom::model(|| {
            let job = Job::new(2, Patience::SHARED_CORE, Duration::MAX);
            let mut places = barriers(&job, 0..job.ranks());
            let cell = Arc::new(Cell(Guarded::new(0)));
            let (mut second, mut first) = (places.pop().unwrap(), places.pop().unwrap());
            let theirs = cell.clone();
            let thread = thread::spawn(move || {
                // SAFETY: the reader reads between the barriers only.
                #[allow(unsafe_code)]
                theirs.0.with_mut(|cell| unsafe { *cell = 1 });
                second.wait("test").unwrap();
                second.wait("test").unwrap();
                // SAFETY: as above.
                #[allow(unsafe_code)]
                theirs.0.with_mut(|cell| unsafe { *cell = 2 });
            });
            first.wait("test").unwrap();
            // SAFETY: the writer writes before the first and after the second barrier only.
            #[allow(unsafe_code)]
            cell.0.with(|cell| assert_eq!(unsafe { *cell }, 1));
            first.wait("test").unwrap();
            thread.join().unwrap();
        });
    }

    /// A rank that gives up frees the one that waits for it.
    #[test]
    fn a_poisoned_job_frees_whoever_waits() {
        loom::model(|| {
            let job = Job::new(2, Patience::SHARED_CORE, Duration::MAX);
            let mut places = barriers(&job, 0..job.ranks());
            places.truncate(1);
            let mut first = places.pop().unwrap();
            let waiting = thread::spawn(move || first.wait("test").unwrap_err());
            let place = Place { rank: RankId(1), stage: "end", sequence: 1 };
            let trouble = Trouble::Failed { place, message: "gave up".to_owned() };
            assert_eq!(job.poison(trouble.clone()), trouble);
            assert_eq!(waiting.join().unwrap(), trouble);
        });
    }
}
