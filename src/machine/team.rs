//! The threads of a rank: they run a closure together, on whole regions or on pieces of memory.
//!
//! Work is dealt statically: which thread computes which piece depends on the piece and the thread count alone, and no
//! result depends on it, because pieces are independent (see `sync::parts`).
//!
//! A team that stands on a [`RankPlace`] pins thread i to the place's i-th processing unit, its owner included. Threads
//! that the owner starts later inherit its pin; those that belong to nobody's core call [`roam`].

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::placement::RankPlace;
use crate::base::{Error, PuId, Result};
use crate::ffi::linux::{current_affinity, pin_current_thread};
use crate::simd::Isa;
use crate::sync::{Crew, Parts, Patience};

/// What this process may run on, as it was before the first team pinned a thread.
static PERMITTED: OnceLock<Vec<PuId>> = OnceLock::new();

/// A rank's threads and the instruction set that they use. The thread that owns the team is its number 0.
///
/// A region cannot start inside another, and two threads cannot share a team: neither compiles.
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
    /// The owner's processing units from before, to be given back.
    owner_before: Option<Vec<PuId>>,
}

impl Team {
    /// A team of `threads` that uses this processor's widest vectors and pins nothing; 0: one thread for each core
    /// that this process may use.
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
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if threads == 0 { cores } else { threads };
        let patience = if threads <= cores { Patience::OWN_CORE } else { Patience::SHARED_CORE };
        let crew = Crew::start(threads, patience, |_| ()).map_err(refused(threads))?;
        Ok(Self { crew, isa, owner_before: None })
    }

    /// A team that stands on a rank's place, every thread pinned; `spin` as the placement says.
    ///
    /// # Errors
    /// When the system refuses a thread or a pin.
    pub fn placed(place: &RankPlace, spin: bool) -> Result<Self> {
        let before = current_affinity()?;
        // The first team sees the process as it was started.
        PERMITTED.get_or_init(|| before.clone());
        let patience = if spin { Patience::OWN_CORE } else { Patience::SHARED_CORE };
        let pus = place.compute.clone();
        let failed = Arc::new(Mutex::new(None));
        let report = Arc::clone(&failed);
        pin_current_thread(&pus[..1])?;
        let crew = Crew::start(place.compute.len(), patience, move |thread| {
            if let Err(error) = pin_current_thread(&pus[thread..=thread]) {
                *report.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        });
        let crew = crew.map_err(refused(place.compute.len()))?;
        let team = Self { crew, isa: Isa::best(), owner_before: Some(before) };
        // Helpers have tried their pins before they enter their first region.
        team.run(|_| ());
        let error = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.map_or(Ok(team), Err)
    }

    /// How many threads work together.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.crew.threads()
    }

    /// The instruction set that kernels run with.
    #[must_use]
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// Runs `body(thread)` on every thread at once and waits for all.
    ///
    /// # Panics
    /// When `body` panics on any thread, with the first panic's message.
    pub fn run(&self, body: impl Fn(usize) + Sync) {
        self.crew.run(&body);
    }

    /// Runs `body(piece)` for every piece, thread t taking the t-th share of consecutive pieces.
    ///
    /// # Panics
    /// As [`Team::run`].
    pub fn each<P: Parts>(&self, parts: P, body: impl Fn(P::Part) + Sync) {
        self.crew.deal(parts, body);
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if let Some(before) = self.owner_before.take() {
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

fn refused(wanted: usize) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::Threads { wanted, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::placement::Wishes;
    use crate::machine::{Machine, place};

    #[test]
    fn placed_threads_stay_on_their_units_and_the_owner_gets_its_own_back() {
        let before = current_affinity().unwrap();
        let machine = Machine::load("host").unwrap();
        let placement = place(&machine, &Wishes { ranks: Some(1), threads: Some(3), ..Wishes::default() }).unwrap();
        let home = &placement.ranks[0];
        let team = Team::placed(home, placement.spin).unwrap();
        assert_eq!(team.threads(), 3);
        team.run(|thread| assert_eq!(current_affinity().unwrap(), [home.compute[thread]]));
        let roaming = std::thread::spawn(|| {
            let inherited = current_affinity().unwrap();
            roam();
            (inherited, current_affinity().unwrap())
        });
        let (inherited, roaming) = roaming.join().unwrap();
        assert_eq!(inherited, home.compute[..1]);
        assert!(roaming.len() >= before.len());
        drop(team);
        assert_eq!(current_affinity().unwrap(), before);
    }

    #[test]
    fn a_unit_that_is_not_there_is_an_error() {
        let machine = Machine::load("host").unwrap();
        let placement = place(&machine, &Wishes { ranks: Some(1), threads: Some(2), ..Wishes::default() }).unwrap();
        let mut home = placement.ranks[0].clone();
        home.compute[1] = PuId(1000);
        let message = Team::placed(&home, placement.spin).err().unwrap().to_string();
        assert!(message.contains("pin this thread to cpus [1000]"), "{message}");
    }
}
