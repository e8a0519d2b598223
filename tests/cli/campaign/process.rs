//! One process of octorec: how it is started, limited, disturbed and watched until it ends.

use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The most processor time that a command of the campaign may take, and the longest that it may take none: every one of
/// them needs a few seconds of it, which may be minutes on a machine that has much else to do.
const HANG: Duration = Duration::from_secs(60);

/// A command line, and the limits of the shell under which it runs.
#[derive(Debug, Clone, Default)]
pub struct Line {
    words: Vec<String>,
    limits: Vec<String>,
    /// Whether somebody who may not write everywhere runs it.
    unprivileged: bool,
}

impl Line {
    /// Words that are separated by spaces.
    pub fn new(words: impl AsRef<str>) -> Self {
        Self { words: words.as_ref().split_whitespace().map(str::to_owned).collect(), ..Self::default() }
    }

    /// Whether it has something to finish when it is asked to stop: what only looks and prints just ends.
    pub fn heeds_signals(&self) -> bool {
        self.words.first().is_some_and(|first| !["plan", "topo", "config"].contains(&first.as_str()))
    }

    /// Further words.
    #[must_use]
    pub fn and(mut self, words: impl AsRef<str>) -> Self {
        self.words.extend(words.as_ref().split_whitespace().map(str::to_owned));
        self
    }

    /// One further word, which may have spaces in it.
    #[must_use]
    pub fn word(mut self, word: impl Into<String>) -> Self {
        self.words.push(word.into());
        self
    }

    /// Under `ulimit` with these words.
    #[must_use]
    pub fn limit(mut self, limit: impl Into<String>) -> Self {
        self.limits.push(limit.into());
        self
    }

    /// As a user without privileges, if it would be root who runs it.
    #[must_use]
    pub fn unprivileged(mut self) -> Self {
        self.unprivileged = true;
        self
    }

    /// Starts it; its output is gathered until it ends.
    pub fn start(&self, program: &str) -> Running {
        let mut child = self.spawn(program);
        let (stdout, stderr) = (gather(child.stdout.take()), gather(child.stderr.take()));
        Running { child, stdout: Some(stdout), stderr: Some(stderr), began: Instant::now(), signals: Vec::new() }
    }

    /// Starts it with somebody who reads `most` bytes of its output or of its messages and then closes that pipe.
    pub fn start_unread(&self, program: &str, messages: bool, most: u64) -> Running {
        let mut child = self.spawn(program);
        let (out, err): (Option<ChildStdout>, Option<ChildStderr>) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr) = match messages {
            false => (gather(out.map(|pipe| pipe.take(most))), gather(err)),
            true => (gather(out), gather(err.map(|pipe| pipe.take(most)))),
        };
        Running { child, stdout: Some(stdout), stderr: Some(stderr), began: Instant::now(), signals: Vec::new() }
    }

    fn spawn(&self, program: &str) -> Child {
        let mut command = if self.limits.is_empty() {
            Command::new(program)
        } else {
            let limits: String = self.limits.iter().map(|limit| format!("ulimit {limit} && ")).collect();
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{limits}exec \"$0\" \"$@\""), program]);
            shell
        };
        if self.unprivileged && rustix::process::getuid().is_root() {
            use std::os::unix::process::CommandExt;
            // Nobody's number on every Linux.
            command.uid(65534).gid(65534);
        }
        command.args(&self.words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary starts")
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for limit in &self.limits {
            write!(f, "ulimit {limit}; ")?;
        }
        write!(f, "octorec {}", self.words.join(" "))?;
        if self.unprivileged { write!(f, " (as nobody)") } else { Ok(()) }
    }
}

fn gather(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    let mut pipe = pipe.expect("the pipe was asked for");
    spawn(move || {
        let mut bytes = Vec::new();
        // Dropped at its end, or at its limit: then nobody reads any more.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// A process that was started.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    began: Instant,
    signals: Vec<Signal>,
}

impl Running {
    /// Whether it ended before `time` had passed.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        let began = Instant::now();
        loop {
            if self.child.try_wait().expect("a child can be waited for").is_some() {
                return true;
            }
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return false;
            }
            sleep(left.min(Duration::from_millis(2)));
        }
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.child.try_wait().expect("a child can be waited for").is_none() {
            kill_process(Pid::from_child(&self.child), signal).expect("an own child can be signalled");
            self.signals.push(signal);
        }
    }

    /// Its processor time, in hundredths of a second; nothing once it has ended.
    fn processor_time(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // Fields 14 and 15 (proc(5)); the second is a name, and may hold anything but ends with the last bracket.
        let mut fields = status[status.rfind(')')? + 1..].split_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        Some(ticks()? + ticks()?)
    }

    /// Whether it does not end: it has taken too much of a processor, or nothing for too long.
    fn hangs(&mut self) -> bool {
        let (mut seen, mut since) = (0, Instant::now());
        while !self.ends_within(Duration::from_secs(1)) {
            let taken = self.processor_time().unwrap_or(seen);
            // What waits wakes up now and then.
            if taken > seen + 10 {
                (seen, since) = (taken, Instant::now());
            }
            if taken > 100 * HANG.as_secs() || since.elapsed() > HANG {
                return true;
            }
        }
        false
    }

    /// Waits for its end; what takes too long is killed, and said to hang.
    pub fn end(mut self) -> Ended {
        let hung = self.hangs();
        if hung {
            self.child.kill().expect("an own child can be killed");
        }
        let status = self.child.wait().expect("a child can be waited for");
        let [stdout, stderr] = [&mut self.stdout, &mut self.stderr]
            .map(|pipe| pipe.take().expect("it ends once").join().expect("reading a pipe does not panic"));
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let signals = std::mem::take(&mut self.signals);
        Ended { status, hung, stdout, stderr, took: self.began.elapsed(), signals }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Of a case that panicked; one that ended is none any more.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What became of a process.
#[derive(Debug)]
pub struct Ended {
    status: ExitStatus,
    /// Whether it had to be killed after [`HANG`].
    pub hung: bool,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// Its messages.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
    /// What was sent to it.
    pub signals: Vec<Signal>,
}

impl Ended {
    /// Its exit code, unless a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Whether it did what it was asked for.
    pub fn succeeded(&self) -> bool {
        self.status.success()
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Its last lines of messages, for people.
    pub fn last_words(&self) -> String {
        let lines: Vec<&str> = self.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
        let shown = lines[lines.len().saturating_sub(3)..].join(" / ");
        shown.chars().take(400).collect()
    }
}
