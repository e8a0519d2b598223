//! Minibatches that are ready before they are needed: a thread reads ahead, the consumer gives batches back for reuse.
//!
//! Protocol: full batches travel through a channel that holds `depth` of them, so the thread is at most `depth` + 1 ahead;
//! empty ones travel back through another. Nobody waits for an empty batch: where none came back, a new one is made. The
//! thread ends at the last batch, at an error, or when the consumer is gone; only then is the channel of full batches
//! closed, and the consumer asks the thread's result why. An error or a panic therefore arrives after all batches before
//! it, and never as silence.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};

use super::shuffle::{Epoch, Shuffle};
use super::{Batch, Reader, Source, Split};
use crate::base::{Error, Result};
use crate::machine::team::roam;

/// A place in a training run: an epoch, and how many of its samples were consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// Counted from 0.
    pub epoch: u64,
    /// Samples of the epoch before this place.
    pub sample: u64,
}

/// What a loader delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Which samples.
    pub split: Split,
    /// Samples a minibatch; the last one of an epoch may have fewer.
    pub batch: usize,
    /// Passes over the samples, those before `start` included.
    pub epochs: u64,
    /// Where to begin.
    pub start: Position,
    /// The order; nothing: that of the source.
    pub shuffle: Option<Shuffle>,
    /// Minibatches that are kept ready.
    pub depth: usize,
}

/// A stream of minibatches.
pub struct Loader {
    /// Closed (dropped) first when the loader is dropped: the thread's next send then fails.
    full: Option<Receiver<(Batch, Position)>>,
    empty: Sender<Batch>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
    waited: Duration,
}

impl Loader {
    /// Starts to read.
    ///
    /// # Errors
    /// When the system gives no thread.
    ///
    /// # Panics
    /// When a minibatch would have no samples, or none should be kept ready.
    pub fn start(source: Arc<dyn Source>, plan: Plan) -> Result<Self> {
        assert!(plan.batch > 0 && plan.depth > 0, "a minibatch has samples, and a loader keeps one ready");
        let (full_in, full) = bounded(plan.depth);
        // Room for all batches that can exist at once: those ready, one being filled, and two with the consumer.
        let (empty, empty_out) = bounded(plan.depth + 3);
        let stop = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("loader".to_owned())
            .spawn(move || {
                // Whoever starts a loader may be pinned to a compute core.
                roam();
                deliver(&*source, plan, &watched, &full_in, &empty_out)
            })
            .map_err(Error::io("loader thread".as_ref(), "start"))?;
        Ok(Self { full: Some(full), empty, stop, thread: Some(thread), waited: Duration::ZERO })
    }

    /// The next minibatch and the place after it; nothing after the last.
    ///
    /// # Errors
    /// What the source found, or [`Error::RowBeyondTable`]; after an error there is nothing more.
    ///
    /// # Panics
    /// When the source panicked, with its message.
    pub fn next_batch(&mut self) -> Result<Option<(Batch, Position)>> {
        let Some(full) = &self.full else { return Ok(None) };
        let received = match full.try_recv() {
            Ok(batch) => Some(batch),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                let start = Instant::now();
                let received = full.recv().ok();
                self.waited += start.elapsed();
                received
            }
        };
        if received.is_none() {
            self.full = None;
            if let Some(thread) = self.thread.take() {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            }
        }
        Ok(received)
    }

    /// Gives a batch back, so that its memory is filled again.
    pub fn recycle(&self, batch: Batch) {
        // A batch too many, or one that comes after the end, is simply freed.
        let _ = self.empty.try_send(batch);
    }

    /// Seconds that the consumer has waited for batches.
    #[must_use]
    pub fn wait_seconds(&self) -> f64 {
        self.waited.as_secs_f64()
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Relaxed: the flag carries no data.
        self.stop.store(true, Ordering::Relaxed);
        self.full = None;
        if let Some(thread) = self.thread.take() {
            // Whatever it would report, nobody is there to act on it.
            let _ = thread.join();
        }
    }
}

/// The loader's thread.
fn deliver(
    source: &dyn Source,
    plan: Plan,
    stop: &AtomicBool,
    full: &Sender<(Batch, Position)>,
    empty: &Receiver<Batch>,
) -> Result<()> {
    let schema = source.schema();
    for epoch in plan.start.epoch..plan.epochs {
        let mut sample = if epoch == plan.start.epoch { plan.start.sample } else { 0 };
        let mut reader = Epoch::open(source, plan.split, plan.shuffle, epoch, sample, Some(stop))?;
        let first = sample;
        loop {
            let mut batch = empty.try_recv().unwrap_or_else(|_| Batch::new(schema));
            batch.clear();
            let read = reader.read(&mut batch, plan.batch)?;
            if read == 0 {
                break;
            }
            batch.check(schema)?;
            sample += read as u64;
            if full.send((batch, Position { epoch, sample })).is_err() {
                return Ok(());
            }
            if read < plan.batch {
                break;
            }
        }
        // An empty split would turn for ever through epochs of nothing.
        if sample == 0 && first == 0 {
            break;
        }
    }
    Ok(())
}
