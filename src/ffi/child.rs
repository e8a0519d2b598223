//! Work in a process of its own, for libraries that may crash on what they are given; and processes that end with the
//! one that started them.
//!
//! Sources: fork(2), alarm(2), prctl(2), signal-safety(7).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitStatus};

/// What `work` returns, computed by a copy of this process that ends with it. A crash, an exit or a hang of more than
/// `seconds` there is an error here, and nothing that the work writes in memory is seen.
///
/// The copy has this thread alone: a lock that another thread held stays held in it. That of glibc's allocator is freed
/// by fork itself; of any other, the copy would wait until its `seconds` have passed.
///
/// # Errors
/// When the work did not end by itself, with how it ended, or when there can be no other process.
pub fn in_child(seconds: u32, work: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    let (from, to) = io::pipe()?;
    // SAFETY: the copy runs `work` on this thread's own data, and ends without this process's destructors.
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
                _ => Err(io::Error::other(format!("ended with {status}"))),
            }
        }
    }
}

/// All that the copy does.
fn end_of(seconds: u32, mut to: impl Write, work: impl FnOnce() -> Vec<u8>) -> ! {
    // SAFETY: both ask the kernel for something that concerns this process alone: an end after a time, and no core
    // file.
    unsafe { libc::alarm(seconds) };
    // SAFETY: as above.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    // What it would say is of no use to who asked: how it ended is told.
    std::panic::set_hook(Box::new(|_| ()));
    let answer = catch_unwind(AssertUnwindSafe(work));
    let written = answer.is_ok_and(|answer| to.write_all(&answer).is_ok());
    // SAFETY: ends the copy, and runs nothing of what it shares with the process before it.
    unsafe { libc::_exit(i32::from(!written)) }
}

/// Starts a program in a group of its own, which the keys of this terminal do not reach; it is asked to end (SIGTERM)
/// when the thread that starts it ends, however that comes.
///
/// # Errors
/// When the system refuses.
pub fn start_bound(command: &mut Command) -> io::Result<Child> {
    let parent = std::process::id();
    let bind = move || {
        // SAFETY: asks the kernel for something that concerns the new process alone.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // Who ended before that would not be noticed.
        // SAFETY: only reads.
        if unsafe { libc::getppid() }.cast_unsigned() == parent {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    };
    command.process_group(0);
    // SAFETY: between fork and exec `bind` makes two system calls, and an error of either holds no memory.
    unsafe { command.pre_exec(bind) };
    command.spawn()
}

/// Asks a program to end in good order, as a key would (SIGINT); one that has ended hears nothing.
pub fn interrupt(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        // SAFETY: a signal to a process of ours that nobody has waited for, so that its number is still its own.
        unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) };
    }
}

fn wait(child: libc::pid_t) -> io::Result<ExitStatus> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a place for what is told.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            return Ok(ExitStatus::from_raw(status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
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
    }
}
