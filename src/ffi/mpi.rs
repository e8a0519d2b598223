//! MPI, as far as octorec needs it: messages between processes that own their memory while they travel, and the way out
//! of a job for good.
//!
//! Sources: MPI 3.1, chapters 3 (point-to-point), 4 (datatypes), 8 (errors) and 12.4 (threads). The crate `mpi` starts
//! and ends the library; its communicators stay on one thread and its requests borrow, so both are wrapped anew here.
//!
//! Every call fails where the library does not run, and panics on another thread than the one that started the library,
//! unless that grants [`Calls::Any`]. A request keeps its buffers until the library says that it has done with them.
//! What other processes do no type can hold: those of a job are one program, and agree on collective calls, their order
//! and their counts, as the methods demand.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::sync::{RwLock, RwLockReadGuard};
use std::thread::{self, ThreadId};

use crate::base::Unpoisoned;
use bytemuck::Pod;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::raw::AsRaw;
use mpi::traits::Equivalence;
use mpi::{Threading, ffi};

/// Whether the library runs. Calls hold it, so that the library does not end meanwhile.
static RUNS: RwLock<bool> = RwLock::new(false);

/// Which threads may call the library at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Any number (MPI_THREAD_MULTIPLE).
    Any,
    /// Only the one that started it (all lesser levels).
    One,
}

/// The library, started. It ends when this is dropped, which waits for calls of other threads, on the thread that
/// started it:
///
/// ```compile_fail,E0277
/// # use octorec::ffi::mpi::{Calls, Library};
/// let library = Library::start(Calls::Any);
/// std::thread::spawn(move || drop(library));
/// ```
pub struct Library {
    universe: Universe,
    calls: Calls,
    /// Neither Send nor Sync.
    thread: PhantomData<*const ()>,
}

/// A group of processes with messages of their own (MPI_Comm). It lives as long as the process: to free one is
/// collective, and peers may be gone.
///
/// All methods panic on a thread that may not call ([`Library::calls`]).
pub struct Communicator {
    handle: ffi::MPI_Comm,
    callers: Callers,
}

// SAFETY: a communicator is a handle to what belongs to the process, not to a thread; each call checks its thread and
// that the library runs.
unsafe impl Send for Communicator {}
// SAFETY: as above; no method changes it.
unsafe impl Sync for Communicator {}

/// The only thread that may call the library, if not all may.
#[derive(Debug, Clone, Copy)]
struct Callers(Option<ThreadId>);

impl Callers {
    /// Checks that this thread may call.
    fn check(self) {
        assert!(self.0.is_none_or(|only| only == thread::current().id()), "one thread alone may call MPI");
    }

    /// For a call: the library runs until what is returned is dropped.
    fn enter(self) -> Result<RwLockReadGuard<'static, bool>, Failure> {
        self.check();
        let runs = RUNS.read().unpoisoned();
        if *runs { Ok(runs) } else { Err(Failure::of("MPI does not run")) }
    }
}

/// Memory of which the first elements are to be sent.
#[derive(Debug, Default)]
pub struct Part<T> {
    /// The memory.
    pub memory: Vec<T>,
    /// So many elements.
    pub used: usize,
}

/// What the library says went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// In these words.
    #[must_use]
    pub fn of(words: &str) -> Self {
        Self(words.to_owned())
    }

    /// With what it happened to.
    #[must_use]
    pub fn with(&self, what: &str) -> Self {
        Self(format!("{what}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a call did what it should.
fn done(code: c_int) -> Result<(), Failure> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: `text` is as long as the library may write, and one byte more, which stays 0.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &raw mut len) };
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    Err(Failure(text.to_string_lossy().into_owned()))
}

impl Library {
    /// Starts it for calls from these threads, or fewer if it grants no more; `None` when it was started before.
    #[must_use]
    pub fn start(wanted: Calls) -> Option<Self> {
        let wanted = if wanted == Calls::Any { Threading::Multiple } else { Threading::Funneled };
        let (universe, level) = mpi::initialize_with_threading(wanted)?;
        let any = (wanted, level) == (Threading::Multiple, Threading::Multiple);
        let calls = if any { Calls::Any } else { Calls::One };
        *RUNS.write().unpoisoned() = true;
        Some(Self { universe, calls, thread: PhantomData })
    }

    /// Which threads may call it.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.calls
    }

    /// Its name and version, in one line.
    #[must_use]
    pub fn version(&self) -> String {
        let text = mpi::environment::library_version().unwrap_or_default();
        text.lines().next().unwrap_or_default().trim_end_matches('\0').to_owned()
    }

    /// All processes of the job, with messages of their own.
    ///
    /// # Errors
    /// What the library says.
    pub fn world(&self) -> Result<Communicator, Failure> {
        let callers = Callers((self.calls == Calls::One).then(|| thread::current().id()));
        Communicator { handle: self.universe.world().as_raw(), callers }.duplicate()
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // Behind all calls, and before `universe` ends the library.
        *RUNS.write().unpoisoned() = false;
    }
}

impl Communicator {
    /// A communicator of the same processes whose messages meet no others. All processes make it at the same time.
    ///
    /// # Errors
    /// What the library says.
    pub fn duplicate(&self) -> Result<Self, Failure> {
        let _runs = self.callers.enter()?;
        let mut new = MaybeUninit::uninit();
        // SAFETY: a communicator, and a place for one.
        done(unsafe { ffi::MPI_Comm_dup(self.handle, new.as_mut_ptr()) })?;
        // SAFETY: the call has written it.
        let new = unsafe { new.assume_init() };
        // SAFETY: the library's constant.
        let to_caller = unsafe { ffi::RSMPI_ERRORS_RETURN };
        // SAFETY: a communicator and a handler that exist.
        done(unsafe { ffi::MPI_Comm_set_errhandler(new, to_caller) })?;
        Ok(Self { handle: new, callers: self.callers })
    }

    /// The number of this process among them.
    ///
    /// # Panics
    /// When the library has ended.
    #[must_use]
    pub fn rank(&self) -> usize {
        let _runs = self.callers.enter().expect("the library runs");
        let mut rank = 0;
        // SAFETY: a communicator, and a place for a number.
        done(unsafe { ffi::MPI_Comm_rank(self.handle, &raw mut rank) }).expect("a communicator of this job");
        rank as usize
    }

    /// How many processes they are.
    ///
    /// # Panics
    /// When the library has ended.
    #[must_use]
    pub fn size(&self) -> usize {
        let _runs = self.callers.enter().expect("the library runs");
        let mut size = 0;
        // SAFETY: as above.
        done(unsafe { ffi::MPI_Comm_size(self.handle, &raw mut size) }).expect("a communicator of this job");
        size as usize
    }

    /// Ends all processes of the job, now (MPI_Abort); only this one where the library ends or has ended.
    pub fn abort(&self, code: u8) -> ! {
        self.callers.check();
        if let Ok(runs) = RUNS.try_read()
            && *runs
        {
            // SAFETY: no memory of this process is used afterwards.
            unsafe { ffi::MPI_Abort(self.handle, c_int::from(code)) };
        }
        std::process::exit(c_int::from(code))
    }

    /// Adds up what all processes have (MPI_Allreduce); all call it at the same time, with as many values.
    ///
    /// # Errors
    /// What the library says.
    ///
    /// # Panics
    /// When there are more than 2^31 - 1.
    pub fn all_reduce(&self, values: &mut [f32]) -> Result<(), Failure> {
        let count = c_int::try_from(values.len()).expect("less than 2^31 elements");
        let (float, sum) = (f32::equivalent_datatype().as_raw(), SystemOperation::sum().as_raw());
        let before = values.to_vec();
        let (from, to) = (before.as_ptr().cast::<c_void>(), values.as_mut_ptr().cast::<c_void>());
        let _runs = self.callers.enter()?;
        // SAFETY: so many floats are to be read there, and as many to be written elsewhere, before the call returns;
        // the other processes pass as many, which this method demands of all.
        done(unsafe { ffi::MPI_Allreduce(from, to, count, float, sum, self.handle) })
    }

    /// Sends each process its part, the parts of all being of one size, and receives as many (MPI_Alltoall); all call
    /// it at the same time, with parts of that size.
    ///
    /// # Errors
    /// What the library says.
    ///
    /// # Panics
    /// When the lengths differ, are no multiple of the number of processes, or a part has 2 GiB or more.
    pub fn all_to_all(&self, from: &[u8], to: &mut [u8]) -> Result<(), Failure> {
        let processes = self.size();
        assert!(from.len() == to.len() && from.len().is_multiple_of(processes), "a part for each process");
        let count = c_int::try_from(from.len() / processes).expect("less than 2 GiB");
        let (from, to) = (from.as_ptr().cast::<c_void>(), to.as_mut_ptr().cast::<c_void>());
        let _runs = self.callers.enter()?;
        // SAFETY: a part for each process is to be read there, and as much to be written elsewhere, before the call
        // returns; the parts of other processes are as long, which this method demands of all.
        done(unsafe { ffi::MPI_Alltoall(from, count, byte(), to, count, byte(), self.handle) })
    }

    /// Sends as many bytes to process `other` as it sends here at the same time (MPI_Sendrecv).
    ///
    /// # Errors
    /// What the library says.
    ///
    /// # Panics
    /// When the lengths differ, or there are 2 GiB or more.
    pub fn swap(&self, other: usize, from: &[u8], to: &mut [u8]) -> Result<(), Failure> {
        assert_eq!(from.len(), to.len(), "as many there as back");
        let (count, other) = (c_int::try_from(from.len()).expect("less than 2 GiB"), other as c_int);
        let (from, to) = (from.as_ptr().cast::<c_void>(), to.as_mut_ptr().cast::<c_void>());
        let (byte, ignored, of) = (byte(), ignored(), self.handle);
        let _runs = self.callers.enter()?;
        // SAFETY: so many bytes are to be read there, and as many to be written elsewhere, before the call returns; a
        // message that is longer is an error (MPI 3.1, 3.2.4).
        done(unsafe { ffi::MPI_Sendrecv(from, count, byte, other, 0, to, count, byte, other, 0, of, ignored) })
    }

    /// Waits for all processes (MPI_Barrier).
    ///
    /// # Errors
    /// What the library says.
    pub fn barrier(&self) -> Result<(), Failure> {
        let _runs = self.callers.enter()?;
        // SAFETY: a communicator that exists.
        done(unsafe { ffi::MPI_Barrier(self.handle) })
    }

    /// Begins to send the first elements of all parts, one after another, as one message of this tag to process `to`.
    ///
    /// # Errors
    /// What the library says.
    ///
    /// # Panics
    /// When a part is 2 GiB or longer, or shorter than what is to be sent of it.
    pub fn send<T: Pod>(&self, parts: Vec<Part<T>>, to: usize, tag: u16) -> Result<Sending<T>, Failure> {
        let _runs = self.callers.enter()?;
        let byte = byte();
        let mut request = MaybeUninit::uninit();
        let (to, tag) = (to as c_int, c_int::from(tag));
        let bytes = |part: &[T]| c_int::try_from(size_of_val(part)).expect("less than 2 GiB");
        let filled = || parts.iter().filter(|part| part.used > 0).map(|part| &part.memory[..part.used]);
        if filled().nth(1).is_none() {
            // A message of nothing has no part.
            let only = filled().next().unwrap_or_default();
            let at: *const c_void = only.as_ptr().cast();
            // SAFETY: the part lies there, is not written, and does not move until the request is done: `Sending` owns
            // it.
            done(unsafe { ffi::MPI_Isend(at, bytes(only), byte, to, tag, self.handle, request.as_mut_ptr()) })?;
        } else {
            let (lengths, places): (Vec<c_int>, Vec<ffi::MPI_Aint>) =
                filled().map(|part| (bytes(part), part.as_ptr().expose_provenance() as ffi::MPI_Aint)).unzip();
            let kind = Layout::new(&lengths, &places, byte)?;
            // SAFETY: as above for all parts, which lie where `kind` says, counted from address 0 (MPI_BOTTOM), and may
            // be read by their addresses alone, since these were exposed.
            done(unsafe { ffi::MPI_Isend(ptr::null(), 1, kind.0, to, tag, self.handle, request.as_mut_ptr()) })?;
        }
        // SAFETY: the call has written it.
        let request = Request { handle: unsafe { request.assume_init() }, callers: self.callers };
        Ok(Sending { request, parts: ManuallyDrop::new(parts) })
    }

    /// Begins to receive the next message of this tag from process `from`, which is no longer than `into`.
    ///
    /// # Errors
    /// What the library says.
    ///
    /// # Panics
    /// When there is room for 2 GiB or more.
    pub fn receive<T: Pod>(&self, mut into: Vec<T>, from: usize, tag: u16) -> Result<Receiving<T>, Failure> {
        let _runs = self.callers.enter()?;
        let mut request = MaybeUninit::uninit();
        let bytes = c_int::try_from(size_of_val(&into[..])).expect("less than 2 GiB");
        let at: *mut c_void = into.as_mut_ptr().cast();
        let (from, tag) = (from as c_int, c_int::from(tag));
        // SAFETY: the lines lie there, nobody reads or writes them, and they do not move until the request is done:
        // `Receiving` owns them.
        done(unsafe { ffi::MPI_Irecv(at, bytes, byte(), from, tag, self.handle, request.as_mut_ptr()) })?;
        // SAFETY: the call has written it.
        let request = Request { handle: unsafe { request.assume_init() }, callers: self.callers };
        Ok(Receiving { request, memory: ManuallyDrop::new(into) })
    }
}

fn byte() -> ffi::MPI_Datatype {
    u8::equivalent_datatype().as_raw()
}

/// The place of a status that nobody reads.
fn ignored() -> *mut ffi::MPI_Status {
    // SAFETY: the library's constant.
    unsafe { ffi::RSMPI_STATUS_IGNORE }
}

/// A datatype: parts of these lengths at these addresses.
struct Layout(ffi::MPI_Datatype);

impl Layout {
    fn new(lengths: &[c_int], places: &[ffi::MPI_Aint], of: ffi::MPI_Datatype) -> Result<Self, Failure> {
        let mut new = MaybeUninit::uninit();
        let (parts, lengths, places) = (lengths.len() as c_int, lengths.as_ptr(), places.as_ptr());
        // SAFETY: as many lengths and places as parts.
        done(unsafe { ffi::MPI_Type_create_hindexed(parts, lengths, places, of, new.as_mut_ptr()) })?;
        // SAFETY: the call has written it.
        let mut new = Self(unsafe { new.assume_init() });
        // SAFETY: a type that exists.
        done(unsafe { ffi::MPI_Type_commit(&raw mut new.0) })?;
        Ok(new)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: a type that exists; a request under way keeps what it needs of it (MPI 3.1, 4.1.9).
        unsafe { ffi::MPI_Type_free(&raw mut self.0) };
    }
}

/// Something under way.
struct Request {
    handle: ffi::MPI_Request,
    callers: Callers,
}

// SAFETY: a handle to what belongs to the process, not to a thread; each call checks its thread and that the library
// runs.
unsafe impl Send for Request {}

impl Request {
    /// Whether what was sent has left.
    fn has_left(&mut self) -> Result<bool, Failure> {
        let _runs = self.callers.enter()?;
        let mut flag = 0;
        // SAFETY: a request under way, or none any more, and a place for a flag.
        done(unsafe { ffi::MPI_Test(&raw mut self.handle, &raw mut flag, ignored()) })?;
        Ok(flag != 0)
    }

    /// The bytes of what was received, once it has come.
    fn received(&mut self) -> Result<Option<usize>, Failure> {
        let _runs = self.callers.enter()?;
        // The library need not write all of the status.
        let (mut flag, mut bytes, mut status) = (0, 0, MaybeUninit::zeroed());
        // SAFETY: a request under way, or none any more, and places for a flag and a status.
        done(unsafe { ffi::MPI_Test(&raw mut self.handle, &raw mut flag, status.as_mut_ptr()) })?;
        if flag == 0 {
            return Ok(None);
        }
        // SAFETY: a status that the library has written, and a place for a number.
        done(unsafe { ffi::MPI_Get_count(status.as_ptr(), byte(), &raw mut bytes) })?;
        Ok(Some(bytes as usize))
    }
}

/// A message on its way out. Dropped before it has left, it keeps its memory for good.
pub struct Sending<T> {
    request: Request,
    parts: ManuallyDrop<Vec<Part<T>>>,
}

impl<T> Sending<T> {
    /// Its memory, once the library has done with it.
    ///
    /// # Errors
    /// What the library says.
    pub fn test(&mut self) -> Result<Option<Vec<Part<T>>>, Failure> {
        Ok(self.request.has_left()?.then(|| std::mem::take(&mut *self.parts)))
    }
}

/// Memory for a message that has not come. Dropped before, it stays for good.
pub struct Receiving<T> {
    request: Request,
    memory: ManuallyDrop<Vec<T>>,
}

impl<T> Receiving<T> {
    /// The memory, with the bytes of the message that is in it, once it has come.
    ///
    /// # Errors
    /// What the library says, e.g. that the message was longer than the memory.
    pub fn test(&mut self) -> Result<Option<(Vec<T>, usize)>, Failure> {
        Ok(self.request.received()?.map(|bytes| (std::mem::take(&mut *self.memory), bytes)))
    }

    /// Waits for nothing any more, and gives the memory back; a message that has just come is lost.
    ///
    /// # Errors
    /// What the library says.
    pub fn cancel(mut self) -> Result<Vec<T>, Failure> {
        let _runs = self.request.callers.enter()?;
        // SAFETY: a request under way.
        done(unsafe { ffi::MPI_Cancel(&raw mut self.request.handle) })?;
        // SAFETY: as above; of a request that was cancelled, this returns (MPI 3.1, 3.8.4).
        done(unsafe { ffi::MPI_Wait(&raw mut self.request.handle, ignored()) })?;
        Ok(std::mem::take(&mut *self.memory))
    }
}

#[cfg(test)]
mod tests {
    use mpi::topology::SimpleCommunicator;

    use super::*;

    #[test]
    fn a_call_before_the_library_runs_fails_and_one_of_another_thread_panics() {
        let world = |only| Communicator { handle: SimpleCommunicator::world().as_raw(), callers: Callers(only) };
        // No test of this binary starts MPI.
        assert_eq!(world(None).barrier(), Err(Failure::of("MPI does not run")));
        let own = thread::current().id();
        assert_eq!(world(Some(own)).barrier(), Err(Failure::of("MPI does not run")));
        let elsewhere = thread::spawn(move || world(Some(own)).barrier()).join().unwrap_err();
        assert_eq!(elsewhere.downcast_ref(), Some(&"one thread alone may call MPI"));
    }
}
