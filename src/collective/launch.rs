//! Ranks as threads of one process: started together, and ended together whatever happens to one.

use std::ops::Range;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::{Error, Place, RankId, Result, Trouble, Unpoisoned, Waited};
use crate::sync::{Barrier, Job, barriers};

/// How often it is looked whether the job is in trouble.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a rank is given when it starts.
pub struct Member {
    /// Its number.
    pub rank: RankId,
    /// The job that it belongs to.
    pub job: Job,
    /// Its place at the job's barrier.
    pub barrier: Barrier,
}

/// Starts the thread of a rank, one of `ranks`.
///
/// # Errors
/// When the system refuses it, which ends the job.
pub fn spawn_rank(
    job: &Job,
    rank: RankId,
    ranks: usize,
    life: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("octorec-{rank}")).spawn(life).map_err(|source| {
        let error = Error::Threads { wanted: ranks, source };
        job.poison(Trouble::Failed { place: Place::start(rank), message: error.to_string() });
        error
    })
}

/// Runs `body` once for each of these ranks of the job, which are all that this machine has and meet among themselves,
/// each on a thread of its own, and returns what they return, by rank.
///
/// A rank that panics or fails poisons the job, and the others return from their next wait. One that is stuck outside
/// of any wait is left behind after the job's deadline: the caller gets the trouble, and should end the process.
///
/// # Errors
/// The error of the rank that failed first, or the job's trouble.
///
/// # Panics
/// Never: a rank that returned has a result.
pub fn launch<T: Send + 'static>(
    job: &Job,
    local: Range<usize>,
    body: impl Fn(Member) -> Result<T> + Send + Sync + 'static,
) -> Result<Vec<T>> {
    let (first, ranks) = (local.start, local.len());
    let (body, (sender, results)) = (Arc::new(body), mpsc::channel());
    // A rank's own error, before it poisoned the job for the others.
    let own: Arc<Mutex<Option<Error>>> = Arc::default();
    let mut refused = None;
    for barrier in barriers(job, local) {
        let (rank, body, sender, own) = (barrier.rank(), body.clone(), sender.clone(), own.clone());
        let theirs = job.clone();
        let life = move || {
            let member = Member { rank, job: theirs.clone(), barrier };
            let result = theirs.guard(rank, || body(member)).map_err(|error| {
                if !matches!(error, Error::Rank(_)) {
                    own.lock().unpoisoned().get_or_insert(error);
                }
            });
            // Nobody listens any more if this rank was left behind.
            let _ = sender.send((rank, result));
        };
        if let Err(error) = spawn_rank(job, rank, ranks, life) {
            refused = Some(error);
            break;
        }
    }
    drop(sender);
    let mut values: Vec<Option<T>> = (0..ranks).map(|_| None).collect();
    let mut since_trouble: Option<Waited> = None;
    loop {
        match results.recv_timeout(LOOK_EVERY) {
            Ok((rank, Ok(value))) => values[rank.index() - first] = Some(value),
            Ok((_, Err(()))) => {}
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if job.check().is_err() && since_trouble.get_or_insert_with(Waited::begin).look() > job.deadline().time
                {
                    break;
                }
            }
        }
    }
    if let Err(trouble) = job.check() {
        let own = own.lock().unpoisoned().take();
        return Err(refused.or(own).unwrap_or(Error::Rank(trouble)));
    }
    Ok(values.into_iter().map(|value| value.expect("every rank returned a value")).collect())
}
