//! Signals that ask the process to stop or would end it without a word, and the way out for code that may do next to
//! nothing.
//!
//! Sources: sigaction(2), signal-safety(7).

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Once, OnceLock};

use crate::base::interrupt;

/// Asked with an address that could not be read: whether it can be now.
pub type Repair = fn(usize) -> bool;

static REPAIR: OnceLock<Repair> = OnceLock::new();
static INSTALLED: Once = Once::new();
/// What was there before; the standard library's own, which tells a stack that is too deep.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Lets a write beyond the limit of file sizes (`ulimit -f`) fail with an error instead of ending the process.
pub fn refuse_large_files() {
    // SAFETY: ignoring a signal runs no code of ours, and the number is one that may be ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Signals by which this process is asked to stop: by a terminal, by launchers and schedulers of jobs before they kill
/// it, and by a terminal that is closed.
const WISHES: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGHUP];
/// Whether a terminal has asked before. Relaxed: the flag carries no data.
static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT, SIGTERM, SIGUSR1 and SIGHUP ask for an orderly end ([`interrupt::requested`]), however often
/// they come; only a second SIGINT ends the process at once. Where whoever started this process had SIGHUP ignored, as
/// nohup does, it stays so.
///
/// # Errors
/// When the system refuses.
pub fn heed_wishes_to_stop() -> io::Result<()> {
    for signal in WISHES {
        let mut now = zeroed();
        // SAFETY: no new action is named, so that this only writes the present one to `now`.
        let known = unsafe { libc::sigaction(signal, ptr::null(), &mut now) } == 0;
        if known && signal == libc::SIGHUP && now.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        let mut new = zeroed();
        new.sa_sigaction = on_wish as extern "C" fn(c_int) as usize;
        new.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: `new` is a whole action whose function takes a signal's number and does what is async-signal-safe.
        if unsafe { libc::sigaction(signal, &new, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_wish(signal: c_int) {
    if signal == libc::SIGINT && ASKED.swap(true, Ordering::Relaxed) {
        end_at_once(interrupt::EXIT_CODE);
    }
    interrupt::request();
}

/// Ends the process with this exit code, without destructors or anything that libraries do at the end.
pub fn end_at_once(code: u8) -> ! {
    // SAFETY: ends the process, and runs nothing of it; async-signal-safe.
    unsafe { libc::_exit(c_int::from(code)) }
}

/// From now on, `repair` is asked about addresses of mapped files behind which there is no file any more (SIGBUS), from
/// the thread that met one and at any point of its work. What it does not repair goes on to whoever took the signal
/// before. The first one to be named stays.
///
/// # Errors
/// When the system refuses.
///
/// # Safety
/// `repair` does what is async-signal-safe, and nothing else: it takes no lock, no memory, and never unwinds.
pub unsafe fn repair_mappings(repair: Repair) -> io::Result<()> {
    let mut result = Ok(());
    // Who comes meanwhile waits until there is somebody to ask.
    INSTALLED.call_once(|| {
        let _ = REPAIR.set(repair);
        result = take_bus_errors();
    });
    result
}

fn take_bus_errors() -> io::Result<()> {
    let (mut new, mut before) = (zeroed(), zeroed());
    new.sa_sigaction = on_bus as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `new` is a whole action whose function takes what SA_SIGINFO gives and does what is async-signal-safe.
    let result = unsafe { libc::sigaction(libc::SIGBUS, &new, &mut before) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let _ = BEFORE.set(before);
    Ok(())
}

/// An action that says nothing: no function, no flag, no other signal held back.
fn zeroed() -> libc::sigaction {
    // SAFETY: all of its members are numbers or optional functions, of which zeros are a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

extern "C" fn on_bus(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a whole siginfo, which lives as long as this call.
    let info = unsafe { &*info };
    // Numbers of 0 and below are those of signals that a process sent, which have no address.
    let is_fault = info.si_code > 0;
    // SAFETY: a fault's siginfo has an address; of another one the same bytes are read and not used.
    let address = unsafe { info.si_addr() }.addr();
    if is_fault && REPAIR.get().is_some_and(|repair| repair(address)) {
        return;
    }
    // Who took the signal before gets it: when the access is tried again, or once more.
    let default = zeroed();
    let before = BEFORE.get().unwrap_or(&default);
    // SAFETY: `before` is what sigaction gave, or the default action.
    unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
    if !is_fault {
        // SAFETY: async-signal-safe; it is delivered when this handler has returned.
        unsafe { libc::raise(signal) };
    }
}

/// Bytes that the system gives to every process that is not at its limits.
const LITTLE: usize = 1 << 20;

/// The last words of a process that aborts for want of memory.
static WITHOUT_MEMORY: OnceLock<Vec<u8>> = OnceLock::new();
/// Whether a thread has begun to end the process.
static ENDING: AtomicBool = AtomicBool::new(false);
/// That thread's number.
static ENDER: AtomicI32 = AtomicI32::new(0);

/// From now on a process that aborts because the system has no memory for it, as the C library does where it cannot
/// start a thread, ends with this message and exit code 1 instead. The first message to be named stays.
pub fn tell_aborts_without_memory(message: Vec<u8>) {
    if WITHOUT_MEMORY.set(message).is_ok() {
        // SAFETY: the function takes a signal's number; it maps a page, reads what was written before it was named
        // here, and calls `end_with`, all of which is async-signal-safe.
        unsafe { libc::signal(libc::SIGABRT, on_abort as extern "C" fn(c_int) as usize) };
    }
}

/// Where it returns, the process aborts as it was about to.
extern "C" fn on_abort(_: c_int) {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the system's choice touches nothing that is there.
    let little = unsafe { libc::mmap(ptr::null_mut(), LITTLE, access, kind, -1, 0) };
    let is_ending = ENDING.load(Ordering::Acquire);
    if (little == libc::MAP_FAILED || is_ending)
        && let Some(message) = WITHOUT_MEMORY.get()
    {
        end_with(message);
    }
}

/// Writes to standard error and ends the process with exit code 1, without memory, locks or destructors. Of several
/// threads that want to at a time, one does.
pub fn end_with(message: &[u8]) -> ! {
    let own = rustix::thread::gettid().as_raw_pid();
    while ENDING.swap(true, Ordering::AcqRel) {
        if ENDER.load(Ordering::Acquire) == own {
            // A signal has interrupted this thread's own last words.
            // SAFETY: ends the process.
            unsafe { libc::_exit(1) };
        }
        // Until a signal comes, or the process ends.
        rustix::event::pause();
    }
    ENDER.store(own, Ordering::Release);
    let mut left = message;
    while !left.is_empty() {
        // SAFETY: `left` is as long as is said.
        let written = unsafe { libc::write(libc::STDERR_FILENO, left.as_ptr().cast(), left.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => left = &left[written..],
            _ => break,
        }
    }
    // SAFETY: ends the process, and runs nothing of it.
    unsafe { libc::_exit(1) }
}
