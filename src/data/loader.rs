//! Minibatches that are ready before they are needed: a thread reads ahead, the consumer gives batches back for reuse.
//!
//! Protocol: full batches travel through a channel that holds `depth` of them, so the thread is at most `depth` + 1
//! ahead; empty ones travel back through another. As many as can be under way at once exist from the start and go round
//! in turn, so all have grown to their size after one round; a consumer that keeps batches makes new ones necessary,
//! and nobody waits for an empty one. The thread ends at the last batch, at an error, or when the consumer is gone;
//! only then is the channel of full batches closed, and the consumer asks the thread's result why. An error or a panic
//! therefore arrives after all batches before it, and never as silence.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};

use super::{Batch, Epoch, Shuffle, Slice, Source, Split};
use crate::base::{Error, PuId, Result};
use crate::machine::team::roam_on;

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

/// How long a consumer has waited for minibatches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waited {
    /// In all.
    pub all: Duration,
    /// Of that, for the first one: what a shuffle's first window takes, once a run.
    pub first: Duration,
    any: bool,
}

impl Waited {
    /// So long in all, and so long of that for the first minibatch.
    #[must_use]
    pub const fn new(all: Duration, first: Duration) -> Self {
        Self { all, first, any: true }
    }
}

impl std::ops::Add for Waited {
    type Output = Self;

    /// Of a consumer of both.
    fn add(self, other: Self) -> Self {
        Self { all: self.all + other.all, first: self.first + other.first, any: self.any || other.any }
    }
}

impl Waited {
    /// Takes what is ready, or waits for it; nothing from a channel that is closed.
    pub(super) fn receive<T>(&mut self, channel: &Receiver<T>) -> Option<T> {
        let received = match channel.try_recv() {
            Ok(item) => Some(item),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                let start = Instant::now();
                let received = channel.recv().ok();
                self.all += start.elapsed();
                received
            }
        };
        if !std::mem::replace(&mut self.any, true) {
            self.first = self.all;
        }
        received
    }
}

/// A stream of minibatches.
pub struct Loader {
    /// Closed (dropped) before the reader when the loader is dropped: the thread's next send then fails.
    full: Option<Receiver<(Batch, Position)>>,
    reader: ReaderThread,
    empty: Sender<Batch>,
    waited: Waited,
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
        Self::begin(source, plan, None, Vec::new())
    }

    /// Starts to read whole minibatches, or one rank's slice of each, where the others' samples are stepped over; on
    /// these processing units, if there are any, so that what is read lies near those who use it.
    pub(super) fn begin(source: Arc<dyn Source>, plan: Plan, slice: Option<Slice>, aside: Vec<PuId>) -> Result<Self> {
        assert!(plan.batch > 0 && plan.depth > 0, "a minibatch has samples, and a loader keeps one ready");
        let (full_in, full) = bounded(plan.depth);
        let (empty, empty_out) = bounded(round(plan.depth));
        (0..round(plan.depth)).try_for_each(|_| empty.try_send(Batch::new(source.schema()))).expect("there is room");
        let read = move |source: &dyn Source, stop: &AtomicBool, bytes: &AtomicU64| {
            deliver(Stream::new(source, plan, slice, Some(stop)), bytes, &full_in, &empty_out)
        };
        let reader = ReaderThread::start(source, aside, read)?;
        Ok(Self { full: Some(full), reader, empty, waited: Waited::default() })
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
        let received = self.waited.receive(full);
        if received.is_none() {
            self.full = None;
            self.reader.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        }
        Ok(received)
    }

    /// Whether a minibatch is ready, so that [`Loader::next_batch`] does not wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.full.as_ref().is_some_and(|full| !full.is_empty())
    }

    /// Gives a batch back, so that its memory is filled again.
    pub fn recycle(&self, batch: Batch) {
        // A batch too many, or one that comes after the end, is simply freed.
        let _ = self.empty.try_send(batch);
    }

    /// How long the consumer has waited for batches.
    #[must_use]
    pub const fn waited(&self) -> Waited {
        self.waited
    }

    /// Bytes of files that were read so far, for the minibatches that are ready, too.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        // Relaxed: a figure for a report, it orders nothing.
        self.reader.bytes.load(Ordering::Relaxed)
    }
}

/// A thread that reads a source for a channel's receivers. Dropped when these are gone, it is stopped and joined: it
/// ends at its next minibatch, or where it waits for samples.
pub(super) struct ReaderThread {
    source: Arc<dyn Source>,
    /// Set when nobody listens any more: whoever drops the thread would wait for a whole window otherwise.
    stop: Arc<AtomicBool>,
    /// Bytes of files that were read so far.
    pub(super) bytes: Arc<AtomicU64>,
    /// Nothing once it was joined.
    thread: Option<JoinHandle<Result<()>>>,
}

impl ReaderThread {
    /// Runs `read(source, stop, bytes)` on a thread of its own: on these processing units, if there are any, else
    /// wherever this process may.
    ///
    /// # Errors
    /// [`Error::Threads`].
    pub(super) fn start(
        source: Arc<dyn Source>,
        aside: Vec<PuId>,
        read: impl FnOnce(&dyn Source, &AtomicBool, &AtomicU64) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (stop, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (read_from, watched, counted) = (Arc::clone(&source), Arc::clone(&stop), Arc::clone(&bytes));
        let body = move || {
            // Whoever starts a loader may be pinned to a compute core.
            roam_on(&aside);
            read(&*read_from, &watched, &counted)
        };
        let thread = std::thread::Builder::new().name("loader".to_owned()).spawn(body);
        let thread = Some(thread.map_err(|source| Error::Threads { wanted: 1, source })?);
        Ok(Self { source, stop, bytes, thread })
    }

    /// Waits for the thread: what it has ended with, or its panic. That is told once; later, all is well.
    pub(super) fn join(&mut self) -> std::thread::Result<Result<()>> {
        self.thread.take().map_or(Ok(Ok(())), JoinHandle::join)
    }
}

impl Drop for ReaderThread {
    fn drop(&mut self) {
        // Relaxed: the flag carries no data.
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.is_some() {
            self.source.close();
            // Whatever it would report, nobody is there to act on it.
            let _ = self.join();
        }
    }
}

/// The minibatches of a plan, one after the other: whole, or one rank's slices of them.
pub(super) struct Stream<'a> {
    source: &'a dyn Source,
    plan: Plan,
    slice: Option<Slice>,
    stop: Option<&'a AtomicBool>,
    /// Before the next minibatch.
    at: Position,
    open: Option<Epoch<'a>>,
    /// The next epoch, of which samples are read while the last ones of this are handed out.
    next: Option<Epoch<'a>>,
    /// Bytes that readers of earlier epochs read.
    closed_bytes: u64,
}

impl<'a> Stream<'a> {
    /// At the plan's start; when `stop` is set, filling a window ends early with [`Error::Interrupted`].
    pub(super) fn new(source: &'a dyn Source, plan: Plan, slice: Option<Slice>, stop: Option<&'a AtomicBool>) -> Self {
        Self { source, plan, slice, stop, at: plan.start, open: None, next: None, closed_bytes: 0 }
    }

    /// Appends the next minibatch to an empty one, checked; returns the place after it, or nothing after the last.
    pub(super) fn next(&mut self, batch: &mut Batch) -> Result<Option<Position>> {
        while self.at.epoch < self.plan.epochs {
            let Position { epoch, sample } = self.at;
            let open = match (&mut self.open, self.next.take()) {
                (Some(open), next) => {
                    self.next = next;
                    open
                }
                (None, Some(next)) => self.open.insert(next),
                (None, None) => self.open.insert(opened(self.source, &self.plan, self.slice, self.at, self.stop)?),
            };
            let read = open.next_slice(batch)?;
            let ended = if self.source.about().pauses { read == 0 } else { read < self.plan.batch };
            if ended {
                self.closed_bytes += self.open.take().map_or(0, |open| open.bytes_read());
                self.at = Position { epoch: epoch + 1, sample: 0 };
            } else {
                self.at.sample += read as u64;
            }
            if read > 0 {
                batch.check(self.source.schema())?;
                return Ok(Some(Position { epoch, sample: sample + read as u64 }));
            }
            // An empty split would turn for ever through epochs of nothing.
            if sample == 0 {
                break;
            }
        }
        Ok(None)
    }

    /// Reads as many samples as a minibatch has of the next window, or of the next epoch when this has no more: to be
    /// called when the minibatch is on its way, so that it is not held up, nor lost with what is wrong with later
    /// samples.
    pub(super) fn read_ahead(&mut self) {
        let Plan { batch, shuffle, epochs, .. } = self.plan;
        // Without a shuffle there are no windows.
        let (Some(open), Some(_)) = (&mut self.open, shuffle) else { return };
        let count = self.slice.map_or(batch, |slice| slice.of(batch).len()).max(1);
        open.read_ahead(count);
        if open.is_read() && self.at.epoch + 1 < epochs {
            if self.next.is_none() {
                let start = Position { epoch: self.at.epoch + 1, sample: 0 };
                // What cannot be opened is told when it is due, behind the samples that are still to come.
                self.next = opened(self.source, &self.plan, self.slice, start, self.stop).ok();
            }
            self.next.iter_mut().for_each(|next| next.read_ahead(count));
        }
    }

    /// Bytes of files that were read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        let ahead = self.next.as_ref().map_or(0, Epoch::bytes_read);
        self.closed_bytes + ahead + self.open.as_ref().map_or(0, Epoch::bytes_read)
    }
}

fn opened<'a>(
    source: &'a dyn Source,
    plan: &Plan,
    slice: Option<Slice>,
    at: Position,
    stop: Option<&'a AtomicBool>,
) -> Result<Epoch<'a>> {
    Epoch::open(source, plan.split, plan.shuffle, (at.epoch, at.sample), (plan.batch, slice), stop)
}

/// The loader's thread.
fn deliver(
    mut stream: Stream<'_>,
    bytes: &AtomicU64,
    full: &Sender<(Batch, Position)>,
    empty: &Receiver<Batch>,
) -> Result<()> {
    let schema = stream.source.schema();
    loop {
        let mut batch = empty.try_recv().unwrap_or_else(|_| Batch::new(schema));
        batch.clear();
        let Some(position) = stream.next(&mut batch)? else { return Ok(()) };
        // Relaxed: a figure for a report, it orders nothing.
        bytes.store(stream.bytes_read(), Ordering::Relaxed);
        if full.send((batch, position)).is_err() {
            return Ok(());
        }
        stream.read_ahead();
    }
}

/// Batches that can be under way at once: those ready, one being filled, and two with the consumer.
pub(super) const fn round(depth: usize) -> usize {
    depth + 3
}
