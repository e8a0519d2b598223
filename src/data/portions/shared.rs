//! One thread reads every minibatch, all ranks share it: the batch of `broadcast`.
//!
//! Minibatches lie in a ring of `Arc`s, as many as can be under way at once. The reader fills the oldest when no rank
//! holds it any more, and a new one otherwise (a rank keeps more than two); so none is allocated once they go round.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crossbeam::channel::{Receiver, Sender, bounded};

use crate::base::{Error, Result, Unpoisoned, panics};
use crate::data::loader::{ReaderThread, Stream, round};
use crate::data::{Batch, Plan, Position, Source};

/// A minibatch and the place after it.
pub(super) type Shared = (Arc<Batch>, Position);

/// What all ranks know of the thread that reads.
pub(super) struct Common {
    reader: Mutex<ReaderThread>,
    /// Why there is nothing more, once a rank has asked.
    trouble: Mutex<Option<String>>,
    /// The reader's, which can be asked while a rank waits for its end.
    pub(super) bytes: Arc<AtomicU64>,
}

impl Common {
    /// Why the channels are closed: an error for every rank, the first of them in full.
    pub(super) fn ending(&self) -> Result<()> {
        let mut reader = self.reader.lock().unpoisoned();
        let mut trouble = self.trouble.lock().unpoisoned();
        let ended = reader.join().unwrap_or_else(|panic| {
            let reason = format!("the loader panicked: {}", panics::words(&*panic));
            Err(Error::config("data", reason))
        });
        if let Err(error) = ended {
            *trouble = Some(error.to_string());
            return Err(error);
        }
        match &*trouble {
            Some(reason) => Err(Error::config("loader", reason.clone())),
            None => Ok(()),
        }
    }
}

/// Starts the reader; a channel a rank. It ends when its work is done or no rank listens.
pub(super) fn start(source: Arc<dyn Source>, plan: Plan, ranks: usize) -> Result<(Arc<Common>, Vec<Receiver<Shared>>)> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..ranks).map(|_| bounded(plan.depth)).unzip();
    let read =
        move |source: &dyn Source, stop: &AtomicBool, bytes: &AtomicU64| deliver(source, plan, stop, &senders, bytes);
    let reader = ReaderThread::start(source, Vec::new(), read)?;
    let bytes = Arc::clone(&reader.bytes);
    Ok((Arc::new(Common { reader: Mutex::new(reader), trouble: Mutex::new(None), bytes }), receivers))
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
