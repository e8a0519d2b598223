//! The threads of a rank: they run a closure together, on whole regions or on pieces of memory.
//!
//! Pieces of work are dealt statically, or shared so that a thread that is done early helps a late one. No result
//! depends on which thread computes a piece, because pieces are independent (see `sync::parts`).
//!
//! A pinned team pins its owner too, and gives the owner's old affinity back when it is dropped. Threads that the owner
//! starts meanwhile inherit its pin; those that belong to no rank's core call [`roam`].

use std::ops::Deref;
use std::sync::{OnceLock, mpsc};

use crate::base::config::tells_rayon;
use crate::base::{Error, PuId, Result};
use crate::ffi::linux::{HUGE_PAGE_BYTES, current_affinity, pin_current_thread};
use crate::machine::describe::CpuQuota;
use crate::machine::discover;
use crate::simd::Isa;
use crate::sync::{Crew, Parts, Patience, Rows, each_alone};

/// Threads of rayon's pool at most: what hashes and reads files is bound by memory and disks.
const POOL: usize = 64;

/// What this process may run on, as it was before the first team pinned a thread.
static PERMITTED: OnceLock<Vec<PuId>> = OnceLock::new();

/// A rank's threads, a [`Crew`] with its ways to run a closure, and the instruction set that they use. The thread that
/// owns the team is its number 0.
///
/// Two threads cannot share a team, so a closure that captures one to start a region inside a region does not compile.
/// A team that a closure reaches without capturing it, through a `thread_local!`, refuses at run time.
///
/// ```
/// # use octorec::machine::team::Team;
/// let team = Team::new(2)?;
/// team.run(|thread| assert!(thread < 2));
/// # Ok::<(), octorec::base::Error>(())
/// ```
///
/// ```compile_fail,E0277
/// # use octorec::machine::team::Team;
/// let team = Team::new(2)?;
/// team.run(|_| team.run(|_| ()));
/// # Ok::<(), octorec::base::Error>(())
/// ```
pub struct Team {
    crew: Crew,
    isa: Isa,
    /// The owner's processing units from before it was pinned, to be given back.
    /// Behind the crew, which ends first.
    _owner: Owner,
}

impl Team {
    /// A team of `threads` that uses this processor's widest vectors; 0: one thread for each core that this process
    /// may use.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(threads: usize) -> Result<Self> {
        Self::with_isa(threads, Isa::best())
    }

    /// As [`Team::new`], with a chosen instruction set.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Self> {
        let cores = processors();
        let threads = if threads == 0 { cores } else { threads };
        let patience = if threads <= cores { Patience::OWN_CORE } else { Patience::SHARED_CORE };
        let crew = Crew::start(threads, patience, |_| ()).map_err(Error::threads(threads))?;
        Ok(Self { crew, isa, _owner: Owner(None) })
    }

    /// A team whose thread i runs on processing unit `pus[i]` only; the calling thread is number 0.
    ///
    /// `spin` says whether each has its processing unit to itself (see `Placement`): if not, waiting threads yield.
    ///
    /// # Errors
    /// [`Error::Threads`] when the system refuses a thread, [`Error::System`] when it refuses to pin one.
    ///
    /// # Panics
    /// When `pus` is empty.
    pub fn pinned(pus: &[PuId], spin: bool, isa: Isa) -> Result<Self> {
        assert!(!pus.is_empty(), "a team has at least its leader");
        let before = current_affinity()?;
        // The first team sees the process as it was started, and so does rayon's pool: later its one thread would be
        // here.
        if PERMITTED.get().is_none() {
            start_pool()?;
        }
        PERMITTED.get_or_init(|| before.clone());
        pin_current_thread(&pus[..1])?;
        // From here on the caller gets its own place back, whatever happens.
        let mut owner = Owner(Some(before));
        let patience = if spin { Patience::OWN_CORE } else { Patience::SHARED_CORE };
        let (places, (sender, answers)) = (pus.to_vec(), mpsc::channel());
        let pin = move |thread: usize| {
            // The receiver lives until all have answered.
            let _ = sender.send(pin_current_thread(&places[thread..=thread]));
        };
        let crew = Crew::start(pus.len(), patience, pin).map_err(Error::threads(pus.len()))?;
        for answer in answers.iter().take(pus.len() - 1) {
            answer?;
        }
        Ok(Self { crew, isa, _owner: Owner(owner.0.take()) })
    }

    /// Writes a zero to every page, whole huge pages by one thread, so that fresh memory comes into being where the
    /// team runs.
    pub fn touch(&self, memory: &mut [u8]) {
        const PAGE_BYTES: usize = 4096;
        let (pages, rest) = memory.split_at_mut(memory.len() / PAGE_BYTES * PAGE_BYTES);
        if let Some(first) = rest.first_mut() {
            *first = 0;
        }
        let bands = Rows::new(pages, PAGE_BYTES, self.threads(), HUGE_PAGE_BYTES / PAGE_BYTES);
        self.each(bands, |band| band.data.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 0));
    }

    /// How many pieces of work there are for each thread; see [`Team::pieces`].
    pub const PIECES_A_THREAD: usize = 8;

    /// Into how many pieces [`Crew::share`] wants work cut that is the same for all of them: enough that the last ones
    /// end nearly together, few enough that claiming them costs nothing.
    #[must_use]
    pub fn pieces(&self) -> usize {
        Self::PIECES_A_THREAD * self.threads()
    }

    /// The instruction set that kernels run with.
    #[must_use]
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// Whether work is much for [`Team::share_if`], where `few` is what one thread has done by the time that threads
    /// which spin have begun and ended together. Those that do not must be woken first, which takes some times as long.
    #[must_use]
    pub fn is_much(&self, work: usize, few: usize) -> bool {
        work >= if self.spins() { few } else { 4 * few }
    }

    /// Words of 32 bits that a thread copies alone: a core has copied so many, 64 KiB, by the time that threads which
    /// spin have begun and ended together, some microseconds.
    pub const WORDS_ALONE: usize = (64 << 10) / size_of::<u32>();

    /// As [`Crew::share`] where there is much to do ([`Team::is_much`]); else on the calling thread alone, in the order
    /// of pieces: it has done little by the time that many threads have begun and ended together, some microseconds.
    ///
    /// # Panics
    /// As [`Crew::run`].
    pub fn share_if<P: Parts>(&self, much: bool, pieces: P, body: impl Fn(P::Part) + Sync) {
        if much && self.threads() > 1 { self.share(pieces, body) } else { each_alone(pieces, body) }
    }
}

impl Deref for Team {
    type Target = Crew;

    fn deref(&self) -> &Crew {
        &self.crew
    }
}

/// As many threads as have a processor to themselves here.
#[must_use]
pub fn processors() -> usize {
    // The standard library's set of cpus ends at 1024: where the kernel counts more, it takes all cpus that there are
    // as this thread's, and looks for no quota.
    let allowed = current_affinity().map_or(usize::MAX, |pus| pus.len());
    let granted = discover::cpu_quota().as_ref().map_or(usize::MAX, CpuQuota::whole);
    found_by_std().min(allowed).min(granted)
}

/// What the standard library, and with it rayon, takes for that.
fn found_by_std() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// How many threads rayon is told to start where nobody says: 0, which is what its own variable says, or as many as
/// have a processor to themselves.
fn threads_of_pool() -> usize {
    if tells_rayon() { 0 } else { processors() }
}

/// Threads of rayon beside its own pool, so many; 0: as many as have a processor to themselves, or as rayon's own
/// variable says.
///
/// # Errors
/// When the system refuses a thread.
pub fn pool(threads: usize) -> Result<rayon::ThreadPool> {
    let wanted = if threads == 0 { threads_of_pool() } else { threads };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(wanted).build();
    pool.map_err(std::io::Error::other).map_err(Error::threads(threads))
}

/// Starts rayon's pool now where it would have threads for cpus that this process may not use: on a kernel that counts
/// more than 1,024 of them. For those who read data before the first team is there, or without any.
///
/// # Errors
/// When the system refuses a thread.
pub fn fit_pool() -> Result<()> {
    if !tells_rayon() && processors() < found_by_std() { start_pool() } else { Ok(()) }
}

/// Starts rayon's pool on the processing units of this thread, unless there is one.
fn start_pool() -> Result<()> {
    let threads = threads_of_pool().min(POOL);
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        // It has no source where there is a pool.
        Err(error) if std::error::Error::source(&error).is_some() => {
            Err(Error::Threads { wanted: threads, source: std::io::Error::other(error) })
        }
        _ => Ok(()),
    }
}

/// Gives the thread that made a team the processing units that it had.
#[derive(Debug)]
struct Owner(Option<Vec<PuId>>);

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            // The owner keeps its pin if the system no longer allows what it allowed before: nothing depends on it.
            let _ = pin_current_thread(&before);
        }
    }
}

/// Lets the current thread run wherever this process may: for a thread that was started by a pinned one but belongs to
/// no rank's core, such as the data loader's.
pub fn roam() {
    if let Some(permitted) = PERMITTED.get() {
        // A hint to the scheduler: a loader on a compute core is slower, not wrong.
        let _ = pin_current_thread(permitted);
    }
}

/// The same on those of these processing units alone that this process may use; they are a rank's to be used beside its
/// cores. Where there are none, or the system refuses them, wherever this process may.
pub fn roam_on(pus: &[PuId]) {
    let pus = permitted_of(pus, PERMITTED.get().map(Vec::as_slice));
    if pus.is_empty() || pin_current_thread(&pus).is_err() {
        roam();
    }
}

/// Those of `pus` that are permitted, where that is known: a described machine may have others, too.
fn permitted_of(pus: &[PuId], permitted: Option<&[PuId]>) -> Vec<PuId> {
    pus.iter().copied().filter(|pu| permitted.is_none_or(|permitted| permitted.contains(pu))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::linux::current_pu;

    #[test]
    fn pinned_threads_stay_where_they_were_told_and_touch_every_page_once() {
        let home = current_affinity().expect("affinity can be read");
        for (pus, spin) in [(home.clone(), true), ([&home[..], &home[..]].concat(), false)] {
            let team = Team::pinned(&pus, spin, Isa::best()).expect("allowed processing units");
            assert_eq!((team.threads(), team.spins()), (pus.len(), spin));
            team.run(|thread| {
                assert_eq!(current_affinity().expect("affinity can be read"), [pus[thread]]);
                assert_eq!(current_pu(), pus[thread]);
            });
            for len in [0, 1, 4096, 4097, 5 << 20] {
                let mut memory = vec![1u8; len];
                team.touch(&mut memory);
                assert!(memory.iter().enumerate().all(|(at, &byte)| (byte == 0) == at.is_multiple_of(4096)), "{len}");
            }
        }
    }

    #[test]
    fn little_is_done_by_the_leader_alone() {
        let (team, leader) = (Team::new(3).expect("threads"), std::thread::current().id());
        for much in [false, true] {
            let mut counts = vec![0; 100];
            team.share_if(much, Rows::new(&mut counts, 1, 50, 1), |band| {
                assert!(much || std::thread::current().id() == leader);
                band.data.iter_mut().for_each(|count| *count += 1);
            });
            assert_eq!(counts, [1; 100]);
        }
    }

    #[test]
    fn threads_that_must_be_woken_share_more_work_alone() {
        let home = current_affinity().expect("affinity can be read")[0];
        for (spin, most) in [(true, 9), (false, 39)] {
            let team = Team::pinned(&[home], spin, Isa::best()).expect("an allowed processing unit");
            assert!(!team.is_much(most, 10) && team.is_much(most + 1, 10), "spins: {spin}");
        }
    }

    #[test]
    fn an_impossible_place_is_an_error_and_no_hang() {
        let home = current_affinity().expect("affinity can be read");
        let message = Team::pinned(&[home[0], PuId(5000)], false, Isa::best()).err().expect("no such cpu").to_string();
        assert_eq!(current_affinity().expect("affinity can be read"), home, "the caller is where it was");
        assert!(message.contains("cpus [5000]"), "{message}");
    }

    #[test]
    fn a_thread_that_may_use_one_cpu_has_one_processor() {
        let home = current_affinity().expect("affinity can be read");
        assert!((1..=home.len()).contains(&processors()), "{} of {home:?}", processors());
        pin_current_thread(&home[..1]).expect("an allowed processing unit");
        assert_eq!(processors(), 1);
        pin_current_thread(&home).expect("the way back");
    }

    #[test]
    fn rayon_has_no_threads_for_cpus_that_are_not_this_processs() {
        let granted = discover::cpu_quota().map_or(usize::MAX, |quota| quota.whole());
        assert!(processors() <= granted.min(found_by_std()), "{} of {granted}", processors());
        // In this process the first to ask for it, this or a team, starts it; here it is right by itself.
        fit_pool().expect("threads");
        assert!(rayon::current_num_threads() <= processors().max(1) || tells_rayon());
    }

    #[test]
    fn who_roams_stays_where_the_process_may_be() {
        let [own, foreign] = [PuId(1), PuId(6)];
        assert_eq!(permitted_of(&[own, foreign], Some(&[PuId(0), own])), [own]);
        assert_eq!(permitted_of(&[own, foreign], None), [own, foreign], "of what no team has seen nothing is known");
    }

    #[test]
    fn a_pin_is_inherited_until_a_thread_roams_and_ends_with_the_team() {
        let before = current_affinity().expect("affinity can be read");
        let team = Team::pinned(&before[..1], true, Isa::best()).expect("an allowed processing unit");
        let started = std::thread::spawn(|| {
            let inherited = current_affinity().expect("affinity can be read");
            roam();
            (inherited, current_affinity().expect("affinity can be read"))
        });
        let (inherited, roaming) = started.join().expect("no panic");
        assert_eq!(inherited, before[..1]);
        assert!(roaming.len() >= before.len());
        let aside = before[before.len() - 1..].to_vec();
        let on = |pus: Vec<PuId>| {
            let started = std::thread::spawn(move || {
                roam_on(&pus);
                current_affinity().expect("affinity can be read")
            });
            started.join().expect("no panic")
        };
        assert_eq!(on(aside.clone()), aside);
        assert_eq!([on(Vec::new()), on(vec![PuId(5000)])], [roaming.clone(), roaming]);
        drop(team);
        assert_eq!(current_affinity().expect("affinity can be read"), before);
    }
}
