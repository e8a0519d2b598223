//! The thread that starts MPI, moves what is under way, and ends it.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, unbounded};

use super::endpoint::Endpoint;
use crate::base::console::note;
use crate::base::{Deadline, Error, Result, Unpoisoned, Waited};
use crate::ffi::mpi::{Calls, Communicator, Failure, Library};
use crate::sync::Yielding;

/// How long the library may take to end.
const LAST: Duration = Duration::from_secs(10);

/// How often somebody who waits for the thread looks at the clock.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the thread is asked to do with all processes' communicator.
type Task = Box<dyn FnOnce(&Communicator) + Send>;

/// The thread, and what was learned when it started.
pub(super) struct Driver {
    tasks: Option<Sender<Task>>,
    /// Disconnected when the thread has ended the library.
    ended: Receiver<()>,
    endpoints: Arc<Mutex<Vec<Weak<Endpoint>>>>,
    /// Communicators that nobody uses.
    spare: Mutex<Vec<Arc<Communicator>>>,
    /// Which threads call the library.
    pub calls: Calls,
    pub version: String,
    pub process: usize,
    pub processes: usize,
}

impl Driver {
    /// Starts the library, for calls from these threads if it grants them.
    ///
    /// # Errors
    /// When it was started before, or the system refuses a thread.
    pub fn start(wanted: Calls) -> Result<Self> {
        let (tasks, inbox) = unbounded();
        let (started, start) = bounded(1);
        let (ends, ended) = bounded::<()>(0);
        let endpoints: Arc<Mutex<Vec<Weak<Endpoint>>>> = Arc::default();
        let theirs = endpoints.clone();
        let life = move || {
            let library = Library::start(wanted).ok_or_else(|| Failure::of("it was started before"));
            match library.and_then(|library| Ok((library.world()?, library))) {
                Ok((world, library)) => {
                    let _ = started.send(Ok((library.calls(), library.version(), world.rank(), world.size())));
                    serve(&world, &inbox, &theirs);
                    drop(library);
                    drop(ends);
                }
                Err(failure) => drop(started.send(Err(failure))),
            }
        };
        let thread = std::thread::Builder::new().name("octorec-mpi".to_owned()).spawn(life);
        thread.map_err(Error::threads(1))?;
        let refused = |reason: String| Error::Mpi { action: "start MPI".to_owned(), reason };
        let (calls, version, process, processes) = start
            .recv()
            .map_err(|_| refused("its thread ended".to_owned()))?
            .map_err(|failure| refused(failure.to_string()))?;
        let spare = Mutex::default();
        Ok(Self { tasks: Some(tasks), ended, endpoints, spare, calls, version, process, processes })
    }

    /// Has the thread do something, and returns what comes of it. It may wait for other processes in it, which may need
    /// what was handed over before: that leaves first, if it does so within `patience`. From then on no process waits
    /// longer than `deadline`: the thread may never be free again, and what is left to do is to end the job.
    ///
    /// # Errors
    /// What the library says, and when the deadline has passed.
    pub fn call<T: Send + 'static>(
        &self,
        action: &'static str,
        patience: Duration,
        deadline: Deadline,
        task: impl FnOnce(&Communicator) -> std::result::Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let failed = |reason: String| Error::Mpi { action: action.to_owned(), reason };
        let (sender, answer) = bounded(1);
        let (handed, left) = bounded(1);
        let endpoints = self.endpoints.clone();
        let task: Task = Box::new(move |world| {
            hand_over(&endpoints, patience);
            let _ = handed.send(());
            drop(sender.send(task(world)));
        });
        let tasks = self.tasks.as_ref().expect("the driver runs until it is dropped");
        tasks.send(task).map_err(|_| failed("its thread ended".to_owned()))?;
        let mut waited = Waited::begin();
        // A thread that another task keeps does not even begin.
        let most = patience.saturating_add(deadline.time);
        let begun = receive(&left, &mut waited, most);
        let until = waited.look().saturating_add(deadline.time).min(most);
        let answer = begun.and_then(|()| receive(&answer, &mut waited, until)).map_err(|why| {
            failed(match why {
                RecvTimeoutError::Disconnected => "its thread ended".to_owned(),
                RecvTimeoutError::Timeout => overdue(waited.look(), deadline),
            })
        })?;
        answer.map_err(|failure| failed(failure.to_string()))
    }

    /// So many communicators that nobody else uses: those that were given back, and new ones for what they lack. All
    /// processes ask for as many at the same time, and so give back the same ones.
    ///
    /// A library has some 2,000 of them, and none is ever freed ([`Communicator`]).
    ///
    /// # Errors
    /// What the library says, and when a process does not come within `deadline`.
    pub fn communicators(&self, count: usize, deadline: Deadline) -> Result<Vec<Arc<Communicator>>> {
        let mut all: Vec<_> = {
            let mut spare = self.spare.lock().unpoisoned();
            let kept = spare.len().min(count);
            spare.drain(..kept).collect()
        };
        let lacking = count - all.len();
        let make = move |world: &Communicator| {
            // A process that still waits for messages by one of these would take those of the next who has it.
            world.barrier()?;
            (0..lacking).map(|_| world.duplicate().map(Arc::new)).collect::<std::result::Result<Vec<_>, _>>()
        };
        all.extend(self.call("make communicators", deadline.time, deadline, make)?);
        Ok(all)
    }

    /// Gives back communicators by which nothing is under way, in the order in which they came.
    pub fn give_back(&self, communicators: Vec<Arc<Communicator>>) {
        self.spare.lock().unpoisoned().extend(communicators);
    }

    /// Drives these endpoints from now on, for as long as somebody holds them.
    pub fn take(&self, endpoints: &[Arc<Endpoint>]) {
        self.endpoints.lock().unpoisoned().extend(endpoints.iter().map(Arc::downgrade));
    }

    /// Drives these endpoints no more, once what was handed over has left or `patience` has passed.
    pub fn leave(&self, endpoints: Vec<Arc<Endpoint>>, patience: Duration) {
        let all = self.endpoints.clone();
        // If the thread has ended, so has the library; and one that waits in it for others is left there.
        let _ = self.call("end messages", patience, Deadline::fixed(LAST), move |_| {
            let gone = |weak: &Weak<Endpoint>| endpoints.iter().any(|endpoint| weak.as_ptr() == Arc::as_ptr(endpoint));
            all.lock().unpoisoned().retain(|weak| !gone(weak));
            endpoints.iter().for_each(|endpoint| endpoint.end());
            Ok(())
        });
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.tasks = None;
        // All that was to be done is done, so this process may end without the library: MPICH 4.0 over UCX's TCP
        // sometimes waits in MPI_Finalize for a process that has left it.
        if self.ended.recv_timeout(LAST) == Err(RecvTimeoutError::Timeout) {
            note!("warning: MPI has not ended within {} s and is left as it is", LAST.as_secs());
        }
    }
}

/// What comes before so much has been waited.
fn receive<T>(from: &Receiver<T>, waited: &mut Waited, most: Duration) -> std::result::Result<T, RecvTimeoutError> {
    loop {
        let rest = most.saturating_sub(waited.look());
        match from.recv_timeout(rest.min(LOOK_EVERY)) {
            Err(RecvTimeoutError::Timeout) if waited.look() < most => {}
            done => return done,
        }
    }
}

/// What is told of machines that were waited for in vain, for so long.
fn overdue(waited: Duration, deadline: Deadline) -> String {
    let (seconds, remedy) = ((10.0 * waited.as_secs_f64()).round() / 10.0, deadline.remedy(" If one"));
    format!("not all machines have done so within {seconds} s: are they alive, and their network?{remedy}")
}

/// The endpoints that somebody holds.
fn held(endpoints: &Mutex<Vec<Weak<Endpoint>>>) -> Vec<Arc<Endpoint>> {
    endpoints.lock().unpoisoned().iter().filter_map(Weak::upgrade).collect()
}

/// Drives all endpoints until what was handed over to them has left, or `patience` has passed.
fn hand_over(endpoints: &Mutex<Vec<Weak<Endpoint>>>, patience: Duration) {
    let (began, mut idle) = (Instant::now(), Yielding::default());
    loop {
        let (mut moved, mut left) = (false, true);
        for endpoint in held(endpoints) {
            moved |= endpoint.drive();
            left &= endpoint.has_left();
        }
        if left || began.elapsed() >= patience {
            return;
        }
        idle = if moved { Yielding::default() } else { idle };
        idle.turn();
    }
}

fn serve(world: &Communicator, inbox: &Receiver<Task>, endpoints: &Mutex<Vec<Weak<Endpoint>>>) {
    let mut idle = Yielding::default();
    loop {
        match inbox.try_recv() {
            Ok(task) => {
                task(world);
                idle = Yielding::default();
            }
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => {}
        }
        let mut moved = false;
        for endpoint in held(endpoints) {
            moved |= endpoint.drive();
        }
        idle = if moved { Yielding::default() } else { idle };
        idle.turn();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_are_overdue_are_told_with_the_time_that_was_waited_and_what_allows_more() {
        let deadline = Deadline { flag: Some("--timeout"), ..Deadline::fixed(Duration::from_secs(300)) };
        let told = overdue(Duration::from_millis(310_420), deadline);
        assert!(told.starts_with("not all machines have done so within 310.4 s: "), "{told}");
        assert!(told.ends_with("If one only has more to do, allow more with --timeout above 300"), "{told}");
        let fixed = overdue(Duration::from_secs(10), Deadline::fixed(LAST));
        assert!(fixed.ends_with("within 10 s: are they alive, and their network?"), "{fixed}");
    }
}
