//! A job of ranks that stand or fall together: waiting with an end, and one flag that stops everybody.
//!
//! # Protocol
//! | state    | `poisoned` | `first`            |
//! |----------|------------|--------------------|
//! | sound    | false      | empty              |
//! | poisoned | true       | the first trouble  |
//!
//! sound -> poisoned, once and for good: whoever meets trouble writes it under the lock if the slot is empty, then
//! raises the flag (release). A thread that sees the flag (acquire) takes the lock and finds the trouble: the flag is
//! raised by one who has had the lock, so that nobody who sees it can have the lock before. Every loop in which a rank
//! waits for another runs through [`Waiting::turn`], which looks at the flag: no rank waits longer than the deadline
//! for one that died, and all report the same first cause.
//!
//! The places of the ranks are kept for messages only; no protocol depends on them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;

use super::Patience;
use super::primitive::{Arc, AtomicBool, Mutex, Ordering, Yielding};
use crate::base::{Deadline, Error, Place, RankId, Result, Trouble, Unpoisoned, Waited, panics};

/// Looks without a `pause` before a waiting thread begins to pause between them.
const EAGER_LOOKS: u32 = if cfg!(loom) { 0 } else { 500 };

/// Turns between two looks at the clock while a thread spins.
const LOOKS_A_CLOCK: u32 = 256;

/// What the ranks of one job share; a clone is the same job.
#[derive(Clone)]
pub struct Job(Arc<Shared>);

struct Shared {
    patience: Patience,
    deadline: Deadline,
    poisoned: CachePadded<AtomicBool>,
    first: Mutex<Option<Trouble>>,
    /// Always the standard library's lock: it is in no protocol. A rank's compute thread alone writes its own.
    places: Box<[CachePadded<std::sync::Mutex<Place>>]>,
    /// Of each rank of another machine, that machine.
    elsewhere: Box<[Option<String>]>,
}

impl Job {
    /// A job of `ranks` ranks, whose threads wait with `patience` and at most `deadline` for each other, which no user
    /// chooses.
    ///
    /// # Panics
    /// When `ranks` is 0.
    #[must_use]
    pub fn new(ranks: usize, patience: Patience, deadline: Duration) -> Self {
        Self::on_machines(vec![None; ranks], patience, Deadline::fixed(deadline))
    }

    /// The same, where some ranks are on other machines: of each rank the name of that machine, if it is another one.
    ///
    /// # Panics
    /// When there is no rank.
    #[must_use]
    pub fn on_machines(elsewhere: Vec<Option<String>>, patience: Patience, deadline: Deadline) -> Self {
        let ranks = elsewhere.len();
        assert!(ranks > 0, "a job has ranks");
        let place = |rank| CachePadded::new(std::sync::Mutex::new(Place::start(RankId(rank as u32))));
        Self(Arc::new(Shared {
            patience,
            deadline,
            poisoned: CachePadded::new(AtomicBool::new(false)),
            first: Mutex::new(None),
            places: (0..ranks).map(place).collect(),
            elsewhere: elsewhere.into(),
        }))
    }

    /// How many ranks it has.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.0.places.len()
    }

    /// The longest that one rank waits for another.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.0.deadline
    }

    /// Notes what a rank's compute thread begins, for messages about the rank. Other threads of a rank note nothing:
    /// where one waits, it says so itself.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn enter(&self, place: Place) {
        *self.0.places[place.rank.index()].lock().unpoisoned() = place;
    }

    /// What a rank's compute thread began last.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn place(&self, rank: RankId) -> Place {
        *self.0.places[rank.index()].lock().unpoisoned()
    }

    /// sound -> poisoned. Returns the trouble that was first, which may be another rank's.
    pub fn poison(&self, trouble: Trouble) -> Trouble {
        let mut first = self.0.first.lock().unpoisoned();
        let first = first.get_or_insert(trouble).clone();
        self.0.poisoned.store(true, Ordering::Release);
        first
    }

    /// Whether the job may go on.
    ///
    /// # Errors
    /// The first trouble.
    ///
    /// # Panics
    /// Never: the flag is raised after the trouble was written.
    pub fn check(&self) -> std::result::Result<(), Trouble> {
        if !self.0.poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        let first = self.0.first.lock().unpoisoned();
        Err(first.clone().expect("poisoned after the trouble was written"))
    }

    /// Looks whether `ready` has something for as long as the job's threads spin: what is there soon is found without a
    /// wake-up. Nothing at once where they share cores.
    pub fn look<T>(&self, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        (1..).take_while(|looks| self.0.patience.linger(*looks)).find_map(|_| ready())
    }

    /// What is known where `place` has waited for `peer` until the deadline.
    fn stalled(&self, place: Place, peer: RankId) -> Trouble {
        let Shared { elsewhere, .. } = &*self.0;
        let machine: Option<Box<str>> = elsewhere[peer.index()].as_deref().map(Box::from);
        let own = self.place(place.rank);
        // Exchanges count themselves, evaluations' too; what people know is the step that the rank is in.
        let place = if own.sequence == 0 { place } else { Place { sequence: own.sequence, ..place } };
        let began = |rank: RankId| {
            let last = self.place(rank);
            let same = (last.stage, last.sequence) == (own.stage, own.sequence);
            (elsewhere[rank.index()].is_none() && !same).then_some(last)
        };
        let local = (0..self.ranks() as u32).filter_map(|rank| began(RankId(rank)));
        let behind: Box<[Place]> = if machine.is_some() { Box::default() } else { local.collect() };
        Trouble::Stalled { place, peer, machine, waited: self.deadline(), behind }
    }

    /// Runs what a thread of `rank` does; its panic or error poisons the job, and is told with the stage in which the
    /// rank's compute thread is.
    ///
    /// # Errors
    /// The body's own error, or the job's first trouble if it panicked.
    pub fn guard<T>(&self, rank: RankId, body: impl FnOnce() -> Result<T>) -> Result<T> {
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(value)) => Ok(value),
            // It comes from the job, which is poisoned already.
            Ok(Err(Error::Rank(trouble))) => Err(Error::Rank(self.poison(trouble))),
            Ok(Err(error)) => {
                self.poison(Trouble::Failed { place: self.place(rank), message: error.to_string() });
                Err(error)
            }
            Err(payload) => {
                let message = panics::words(&*payload).to_owned();
                Err(Error::Rank(self.poison(Trouble::Panicked { place: self.place(rank), message })))
            }
        }
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({} ranks)", self.ranks())
    }
}

/// One wait for another rank: first it only looks, then it pauses between looks, then it gives its core away.
#[derive(Debug, Clone, Copy, Default)]
pub struct Waiting {
    looks: u32,
    /// When the first turn began and the last one ended.
    turns: Option<(Instant, Instant)>,
    waited: Option<Waited>,
    yielding: Yielding,
    endless: bool,
}

impl Waiting {
    /// A wait without a deadline, which only the job's trouble ends.
    #[must_use]
    pub fn endless() -> Self {
        Self { endless: true, ..Self::default() }
    }

    /// Lets a moment pass, because what `place` needs from `peer` is not there yet.
    ///
    /// # Errors
    /// The job's first trouble, which is this wait's if the deadline passes.
    pub fn turn(&mut self, job: &Job, place: Place, peer: RankId) -> std::result::Result<(), Trouble> {
        if !cfg!(loom) {
            let now = Instant::now();
            self.turns.get_or_insert((now, now)).1 = now;
        }
        self.looks = self.looks.saturating_add(1);
        job.check()?;
        let spinning = job.0.patience.linger_after(EAGER_LOOKS, self.looks);
        if !spinning {
            self.yielding.turn();
        }
        // Models know no time, and loom itself finds waits without an end.
        if !cfg!(loom) && (!spinning || self.looks.is_multiple_of(LOOKS_A_CLOCK)) {
            let waited = self.waited.get_or_insert_with(Waited::begin).look();
            if !self.endless && waited >= job.deadline().time {
                return Err(job.poison(job.stalled(place, peer)));
            }
        }
        Ok(())
    }

    /// How long this wait had taken at its last turn.
    #[must_use]
    pub fn spent(&self) -> Duration {
        self.turns.map_or(Duration::ZERO, |(began, last)| last - began)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn place(rank: u32) -> Place {
        Place { rank: RankId(rank), stage: "test", sequence: 3 }
    }

    /// What ends a rank's wait for something that never comes.
    fn end_of_wait(job: &Job, [rank, peer]: [u32; 2]) -> Trouble {
        let mut waiting = Waiting::default();
        loop {
            if let Err(trouble) = waiting.turn(job, place(rank), RankId(peer)) {
                return trouble;
            }
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_names_the_peer() {
        for patience in [Patience::OWN_CORE, Patience::SHARED_CORE] {
            let job = Job::new(2, patience, Duration::from_millis(20));
            job.enter(Place { rank: RankId(1), stage: "dream", sequence: 9 });
            let trouble = end_of_wait(&job, [0, 1]);
            let text = trouble.to_string();
            assert!(text.contains("rank 0 in test #3") && text.contains("for rank 1"), "{text}");
            assert!(text.contains("(began last: rank 1 in dream #9)"), "{text}");
            assert_eq!(job.check().unwrap_err(), trouble);
            // Whoever waits now learns of the first trouble at once.
            assert_eq!(end_of_wait(&job, [1, 0]), trouble);
        }
    }

    #[test]
    fn ranks_that_wait_where_the_one_that_tells_it_waits_are_not_behind() {
        let job = Job::new(3, Patience::SHARED_CORE, Duration::from_millis(20));
        for (rank, stage) in [(0, "reduce"), (1, "reduce"), (2, "update")] {
            job.enter(Place { rank: RankId(rank), stage, sequence: 4 });
        }
        let text = end_of_wait(&job, [0, 1]).to_string();
        assert!(text.contains("rank 0 in test #4") && text.contains("(began last: rank 2 in update #4)"), "{text}");
    }

    #[test]
    fn who_has_a_core_of_its_own_looks_before_it_is_woken_and_others_do_not() {
        for (patience, looks) in [(Patience::OWN_CORE, 7), (Patience::SHARED_CORE, 0)] {
            let (job, mut looked) = (Job::new(1, patience, Duration::from_secs(5)), 0);
            let found = job.look(|| {
                looked += 1;
                (looked == 7).then_some("task")
            });
            assert_eq!((found, looked), (Some("task").filter(|_| looks > 0), looks));
            assert_eq!(job.look(|| None::<()>), None, "it ends");
        }
    }

    #[test]
    fn of_a_rank_of_another_machine_the_machine_is_named_and_no_stage() {
        let elsewhere = vec![None, None, Some("machine 1 (node7)".to_owned())];
        let deadline = Deadline { flag: Some("--patience"), ..Deadline::fixed(Duration::from_millis(20)) };
        let job = Job::on_machines(elsewhere, Patience::SHARED_CORE, deadline);
        let text = end_of_wait(&job, [0, 2]).to_string();
        assert!(text.contains("for rank 2 on machine 1 (node7): ") && !text.contains("start #0"), "{text}");
        assert!(text.contains("allow more with --patience above 0.02"), "{text}");
    }

    #[test]
    fn panics_and_errors_poison_the_job_with_their_words() {
        let job = Job::new(2, Patience::OWN_CORE, Duration::from_secs(5));
        job.enter(place(1));
        let error = job.guard(RankId(1), || -> Result<()> { panic!("row {} is bad", 7) }).unwrap_err();
        assert!(error.to_string().starts_with("rank 1 in test #3: panicked: row 7 is bad"), "{error}");
        // The first trouble stays.
        let second = job.guard(RankId(0), || -> Result<()> { panic!("me too") }).unwrap_err();
        assert_eq!(second.to_string(), error.to_string());
        let job = Job::new(1, Patience::OWN_CORE, Duration::from_secs(5));
        assert!(matches!(job.guard(RankId(0), || Err::<(), _>(Error::Interrupted)), Err(Error::Interrupted)));
        assert!(job.check().unwrap_err().to_string().contains("interrupted"));
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::panic::resume_unwind;

    use super::super::primitive::thread;
    use super::*;

    fn job() -> Job {
        Job::new(2, Patience::SHARED_CORE, Duration::MAX)
    }

    /// A rank that panics or fails frees the one that waits for it, which finds the trouble behind the flag. A flag
    /// that is raised before the trouble is written fails here, and loom itself finds a wait without an end.
    #[test]
    fn whoever_waits_is_told_of_a_panic_and_of_an_error() {
        for panics in [true, false] {
            loom::model(move || {
                let job = job();
                let theirs = job.clone();
                let waiting = thread::spawn(move || {
                    let mut waiting = Waiting::default();
                    loop {
                        if let Err(trouble) = waiting.turn(&theirs, Place::start(RankId(1)), RankId(0)) {
                            return trouble;
                        }
                    }
                });
                let body = || {
                    // Without the hook, which would print it for every interleaving.
                    if panics { resume_unwind(Box::new("gave up")) } else { Err(Error::config("model", "gave up")) }
                };
                let error = job.guard::<()>(RankId(0), body).unwrap_err();
                let trouble = waiting.join().unwrap();
                let (text, kind) = (trouble.to_string(), if panics { "panicked" } else { "model" });
                assert_eq!(text, format!("rank 0 in start #0: {kind}: gave up; the ranks stop together"));
                assert_eq!(error.to_string(), if panics { text } else { "model: gave up".to_owned() });
            });
        }
    }

    /// Of the troubles that two ranks meet at once both tell the same, which stays the job's. A lock that is given back
    /// between the look for a first trouble and its note fails here, and so does a trouble that takes the place of one.
    #[test]
    fn of_two_troubles_both_ranks_tell_the_first() {
        loom::model(|| {
            let fail = |job: &Job, rank: u32| {
                let body = || -> Result<()> { resume_unwind(Box::new("gave up")) };
                match job.guard(RankId(rank), body) {
                    Err(Error::Rank(trouble)) => trouble,
                    other => panic!("{other:?}"),
                }
            };
            let job = job();
            let theirs = job.clone();
            let other = thread::spawn(move || fail(&theirs, 1));
            let told = fail(&job, 0);
            // The other one's may come now.
            assert_eq!(job.check(), Err(told.clone()));
            assert_eq!(other.join().unwrap(), told);
            assert_eq!(job.check(), Err(told));
        });
    }
}
