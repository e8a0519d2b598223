//! One thread reads every minibatch, all ranks share it: the batch of `broadcast`.
//!
//! Minibatches lie in a ring of `Arc`s, as many as can be under way at once. The reader fills the oldest when no rank
//! holds it any more, and a new one otherwise (a rank keeps more than two); so none is allocated once they go round.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, bounded};

use crate::base::{Error, Result, panics};
use crate::data::loader::{Stream, round};
use crate::data::{Batch, Plan, Position, Source};
use crate::machine::team::roam;

/// A minibatch and the place after it.
pub(super) type Shared = (Arc<Batch>, Position);

/// What all ranks know of the thread that reads.
pub(super) struct Common {
    source: Arc<dyn Source>,
    /// Set when nobody listens any more: whoever drops the last end would wait for a whole window otherwise.
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<Result<()>>>>,
    /// Why there is nothing more, once a rank has asked.
    trouble: Mutex<Option<String>>,
    pub(super) bytes: Arc<AtomicU64>,
}

impl Common {
    /// Why the channels are closed: an error for every rank, the first of them in full.
    pub(super) fn ending(&self) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let ended = thread.join().unwrap_or_else(|panic| {
                let reason = format!("the loader panicked: {}", panics::words(&*panic));
                Err(Error::config("data", reason))
            });
            *trouble = ended.as_ref().err().map(ToString::to_string);
            ended?;
        }
        match &*trouble {
            Some(reason) => Err(Error::config("loader", reason.clone())),
            None => Ok(()),
        }
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        // No rank listens any more, so that the thread ends at its next minibatch, or where it waits for samples. The
        // flag carries no data, hence relaxed.
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            self.source.close();
            // Whatever it would report, nobody is there to act on it.
            let _ = thread.join();
        }
    }
}

/// Starts the reader; a channel a rank. It ends when its work is done or no rank listens.
pub(super) fn start(source: Arc<dyn Source>, plan: Plan, ranks: usize) -> Result<(Arc<Common>, Vec<Receiver<Shared>>)> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..ranks).map(|_| bounded(plan.depth)).unzip();
    let bytes = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let (counted, read_from, watched) = (Arc::clone(&bytes), Arc::clone(&source), Arc::clone(&stop));
    let read = move || {
        // Whoever starts a loader may be pinned to a compute core.
        roam();
        deliver(&*read_from, plan, &watched, &senders, &counted)
    };
    let thread = std::thread::Builder::new().name("loader".to_owned()).spawn(read);
    let thread = Mutex::new(Some(thread.map_err(Error::io("loader thread".as_ref(), "start"))?));
    Ok((Arc::new(Common { source, stop, thread, trouble: Mutex::new(None), bytes }), receivers))
}

fn deliver(
    source: &dyn Source,
    plan: Plan,
    stop: &AtomicBool,
    ranks: &[Sender<Shared>],
    bytes: &AtomicU64,
) -> Result<()> {
    let schema = source.schema();
    let mut ring: VecDeque<_> = (0..round(plan.depth)).map(|_| Arc::new(Batch::new(schema))).collect();
    let mut stream = Stream::new(source, plan, None, Some(stop));
    loop {
        // What is newer than the oldest is held as well, if that is.
        let free = ring.front_mut().is_some_and(|oldest| Arc::get_mut(oldest).is_some());
        let oldest = if free { ring.pop_front() } else { None };
        let mut batch = oldest.unwrap_or_else(|| Arc::new(Batch::new(schema)));
        let filled = Arc::get_mut(&mut batch).expect("nobody else has it");
        filled.clear();
        let Some(position) = stream.next(filled)? else { return Ok(()) };
        // Relaxed: a figure for a report, it orders nothing.
        bytes.store(stream.bytes_read(), Ordering::Relaxed);
        let mut heard = false;
        for rank in ranks {
            heard |= rank.send((Arc::clone(&batch), position)).is_ok();
        }
        if !heard {
            return Ok(());
        }
        ring.push_back(batch);
        stream.read_ahead();
    }
}
