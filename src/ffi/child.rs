//! Work in a process of its own, for libraries that may crash on what they are given; and processes that end with the
//! one that started them.
//!
//! Sources: fork(2), alarm(2), prctl(2), seccomp(2), signal-safety(7), and glibc's `__reclaim_stacks`.

use std::ffi::{c_int, c_long, c_ulong};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitStatus};

use rustix::io::retry_on_intr;
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, getppid, kill_process, set_dumpable_behavior,
    set_parent_process_death_signal, waitpid,
};
use rustix::thread::set_no_new_privs;

/// How a copy ends that the system does not hold to being alone.
const REFUSED: c_int = 99;

/// What `work` returns, computed by a copy of this process that ends with it. A crash, an exit or a hang of more than
/// `seconds` there is an error here, and nothing that the work writes in memory is seen.
///
/// The copy has this thread alone, for good: where the work starts another, the system ends the copy (SIGSYS). A lock
/// that another thread held stays held in it. That of glibc's allocator is freed by fork itself; of any other, the copy
/// would wait until its `seconds` have passed.
///
/// # Errors
/// When the work did not end by itself, with how it ended, or when there can be no other process;
/// [`io::ErrorKind::Unsupported`] where the system lets no process filter its calls.
pub fn in_child(seconds: u32, work: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    let (from, to) = io::pipe()?;
    // SAFETY: the copy runs `work` on a copy of this thread, and ends without this process's destructors. What `work`
    // borrows from other threads, on their stacks or in their thread-locals, is there as it was: glibc would hand that
    // memory to threads that start in the copy, and none can (`stay_alone`).
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(from);
            end_of(seconds, to, work)
        }
        _ => {
            drop(to);
            let mut answer = Vec::new();
            let read = File::from(std::os::fd::OwnedFd::from(from)).read_to_end(&mut answer);
            let status = wait(child)?;
            read?;
            match status.code() {
                Some(0) => Ok(answer),
                Some(REFUSED) => {
                    let reason = "this system runs nothing apart: its kernel, or the container, allows no filters of system \
                                  calls (seccomp)";
                    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
                }
                _ => Err(io::Error::other(format!("ended with {status}"))),
            }
        }
    }
}

/// All that the copy does.
fn end_of(seconds: u32, mut to: impl Write, work: impl FnOnce() -> Vec<u8>) -> ! {
    if stay_alone().is_err() {
        // SAFETY: ends the copy, and runs nothing of what it shares with the process before it.
        unsafe { libc::_exit(REFUSED) }
    }
    // SAFETY: asks the kernel for something that concerns this process alone: an end after a time.
    unsafe { libc::alarm(seconds) };
    // No core file.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // What it would say is of no use to who asked: how it ended is told.
    std::panic::set_hook(Box::new(|_| ()));
    let answer = catch_unwind(AssertUnwindSafe(work));
    let written = answer.is_ok_and(|answer| to.write_all(&answer).is_ok());
    // SAFETY: as above.
    unsafe { libc::_exit(c_int::from(!written)) }
}

/// From now on the system ends this process before it starts a thread.
///
/// An error instead of an end would come too late: until then glibc has prepared the thread's memory.
fn stay_alone() -> io::Result<()> {
    let step = |code: u32, taken, k| libc::sock_filter { code: code as u16, jt: taken, jf: 0, k };
    let is = |call: c_long, taken| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, taken, call as u32);
    let mut steps = [
        // The call's number is the first word of what a filter is asked about.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        is(libc::SYS_clone, 2),
        is(libc::SYS_clone3, 1),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let mode = c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // Who has no administrator's rights may only then set a filter.
    set_no_new_privs(true)?;
    // SAFETY: a filter of as many steps as it says, all alive; the kernel checks it and keeps a copy.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Starts a program in a group of its own, which the keys of this terminal do not reach; it is asked to end (SIGTERM)
/// when the thread that starts it ends, however that comes.
///
/// # Errors
/// When the system refuses.
pub fn start_bound(command: &mut Command) -> io::Result<Child> {
    let parent = Pid::from_raw(std::process::id().cast_signed());
    let bind = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // Who ended before that would not be noticed.
        if getppid() == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    command.process_group(0);
    // SAFETY: between fork and exec `bind` makes two system calls, and an error of either holds no memory.
    unsafe { command.pre_exec(bind) };
    command.spawn()
}

/// Asks a program to end in good order, as a key would (SIGINT); one that has ended hears nothing.
pub fn interrupt(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        // Nobody has waited for it, so that its number is still its own.
        let _ = kill_process(Pid::from_child(child), Signal::INT);
    }
}

fn wait(child: libc::pid_t) -> io::Result<ExitStatus> {
    let ended = retry_on_intr(|| waitpid(Pid::from_raw(child), WaitOptions::empty()))?;
    let (_, status) = ended.expect("who waits without a limit is told");
    Ok(ExitStatus::from_raw(status.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_computed_comes_back_and_nothing_else() {
        let mut local = 1;
        // More than a pipe holds.
        let answer = in_child(60, || {
            local = 2;
            vec![7; 1 << 20]
        });
        assert_eq!(answer.unwrap(), vec![7; 1 << 20]);
        assert_eq!(local, 1);
    }

    #[test]
    fn crashes_exits_panics_and_hangs_are_errors() {
        let ended = |seconds, work: fn() -> Vec<u8>| in_child(seconds, work).unwrap_err().to_string();
        // SAFETY: a signal to the copy itself.
        let crash = || unsafe { libc::raise(libc::SIGKILL) }.to_ne_bytes().to_vec();
        assert!(ended(60, crash).contains("signal: 9"));
        assert!(ended(60, || std::process::exit(3)).contains("3"));
        assert!(ended(60, || panic!("on purpose")).contains("1"));
        let hang = || loop {
            std::thread::sleep(std::time::Duration::from_secs(60));
        };
        assert!(ended(1, hang).contains("signal: 14"));
        // What it would run on may be the stack of a thread of this process, which the work may borrow.
        assert!(ended(60, || std::thread::spawn(Vec::new).join().unwrap()).contains("signal: 31"));
    }
}
