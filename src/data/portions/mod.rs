//! Minibatches for ranks: every rank has a [`RankLoader`], which gives it its slice of each global minibatch.
//!
//! | mode        | who reads                                   | bytes read, all ranks | samples parsed, all ranks |
//! |-------------|---------------------------------------------|-----------------------|---------------------------|
//! | `local`     | each rank its own slice (Intel's)           | once                  | once                      |
//! | `broadcast` | one thread; all ranks share it (NVIDIA's)   | once                  | once                      |
//! | `naive`     | each rank everything (the reference's)      | R times               | R times                   |
//!
//! What is stored in blocks is read by the block: in `local`, one that slices of several ranks lie in is read by each.
//!
//! Invariant: in every mode, with and without a shuffle, and after resuming at any minibatch's end, the slices of all
//! ranks in their order are the minibatch that a [`Loader`] gives under the same [`Plan`]. The last minibatch of an
//! epoch is divided as any other is: by [`Slice::of`].
//!
//! A rank's loop, on the rank's own thread:
//!
//! ```no_run
//! # use octorec::data::{LoaderMode, Plan, RankLoader, Source};
//! # fn ranks(source: std::sync::Arc<dyn Source>, plan: Plan) -> octorec::base::Result<()> {
//! for mut loader in RankLoader::start(&source, plan, LoaderMode::Local, (0..8, 8), None, &[])? {
//!     std::thread::spawn(move || -> octorec::base::Result<()> {
//!         while let Some(portion) = loader.next_portion()? {
//!             // Samples `portion.range()` of `portion.batch()` are this rank's; the whole minibatch has
//!             // `portion.samples`. `portion.position` is what a checkpoint after this step saves.
//!             loader.recycle(portion);
//!         }
//!         eprintln!("waited {:?}, read {} bytes", loader.waited().all, loader.bytes_read());
//!         Ok(())
//!     });
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Each rank must take its portions to the end or be dropped: in `broadcast` the thread that reads waits for the
//! slowest, at most [`Plan::depth`] minibatches ahead of it. An error reaches every rank, after the minibatches before
//! it. Only what a rank reads itself is checked by it: in `local`, a row beyond its table is found by the rank that
//! looks it up.

mod shared;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam::channel::Receiver;

use super::{Batch, Loader, Plan, Position, Source, Waited};
use crate::base::{PuId, Result, named};
use crate::math::Grains;

/// A rank's share of every minibatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    rank: usize,
    ranks: usize,
    grains: Option<Grains>,
}

named! {
    /// Who reads what.
    #[derive(Default)]
    pub enum LoaderMode {
        /// Each rank reads its own slice.
        #[default]
        Local = "local",
        /// One thread reads, the ranks share.
        Broadcast = "broadcast",
        /// Each rank reads everything and keeps its slice.
        Naive = "naive",
    }
}

/// One rank's end of the loading.
pub struct RankLoader {
    slice: Slice,
    feed: Feed,
    /// The place before the next minibatch.
    last: Position,
    waited: Waited,
}

enum Feed {
    /// The loader reads the rank's samples and no others.
    Own(Loader),
    /// The loader reads everything.
    All(Loader),
    /// Nothing once the last one was taken. It closes before the reader is dropped, which would wait for it.
    Shared(Option<Receiver<shared::Shared>>, Arc<shared::Common>),
}

/// A rank's share of one minibatch.
pub struct Portion {
    held: Held,
    range: Range<usize>,
    /// Samples of the whole minibatch.
    pub samples: usize,
    /// The place after the minibatch.
    pub position: Position,
}

enum Held {
    Own(Batch),
    Shared(Arc<Batch>),
}

impl Slice {
    /// The share of `rank` of `ranks`.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn new(rank: usize, ranks: usize) -> Self {
        assert!(rank < ranks, "rank {rank} of {ranks}");
        Self { rank, ranks, grains: None }
    }

    /// Of minibatches that are cut into grains: whole grains.
    #[must_use]
    pub const fn with_grains(self, grains: Option<Grains>) -> Self {
        Self { grains, ..self }
    }

    /// Its samples of a minibatch of `samples`: consecutive, in the order of ranks. Without grains the first
    /// `samples % ranks` ranks have one more than the others; a slice is empty where ranks outnumber samples.
    #[must_use]
    pub fn of(&self, samples: usize) -> Range<usize> {
        if let Some(grains) = self.grains {
            return grains.samples(samples, &grains.share(self.ranks, self.rank));
        }
        let (size, more) = (samples / self.ranks, samples % self.ranks);
        let start = self.rank * size + self.rank.min(more);
        start..start + size + usize::from(self.rank < more)
    }
}

impl Portion {
    /// A minibatch that has the rank's samples, and perhaps others.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        self.held.batch()
    }

    /// Which of the minibatch's samples are the rank's.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Makes `slice` the rank's samples: in exchange for its memory where the portion has no others, else by copying.
    pub fn take(&mut self, slice: &mut Batch) {
        match &mut self.held {
            Held::Own(batch) if self.range == (0..batch.samples()) => std::mem::swap(batch, slice),
            held => {
                slice.clear();
                slice.append_range(held.batch(), self.range.clone());
            }
        }
    }
}

impl Held {
    fn batch(&self) -> &Batch {
        match self {
            Self::Own(batch) => batch,
            Self::Shared(batch) => batch,
        }
    }
}

impl RankLoader {
    /// Starts to read for the ranks `local` of `ranks`, those of this process; one loader each, in their order.
    /// Minibatches may be cut into grains, which no two ranks share. Each of these ranks' own loaders runs on
    /// processing units of its own, `asides` in the order of ranks, as far as there are any; who reads for all of them
    /// runs anywhere.
    ///
    /// # Errors
    /// When the system gives no thread.
    ///
    /// # Panics
    /// As [`Loader::start`].
    pub fn start(
        source: &Arc<dyn Source>,
        plan: Plan,
        mode: LoaderMode,
        (local, ranks): (Range<usize>, usize),
        grains: Option<Grains>,
        asides: &[Vec<PuId>],
    ) -> Result<Vec<Self>> {
        let slice = |rank| Slice::new(rank, ranks).with_grains(grains);
        if mode != LoaderMode::Broadcast {
            let naive = mode == LoaderMode::Naive;
            let asides = asides.iter().cloned().chain(std::iter::repeat_with(Vec::new));
            let alone = |(rank, aside)| Self::alone(source, plan, naive, slice(rank), aside);
            return local.zip(asides).map(alone).collect();
        }
        let (common, receivers) = shared::start(Arc::clone(source), plan, local.len())?;
        let rank = |(rank, receiver)| Self {
            slice: slice(rank),
            feed: Feed::Shared(Some(receiver), Arc::clone(&common)),
            last: plan.start,
            waited: Waited::default(),
        };
        Ok(local.zip(receivers).map(rank).collect())
    }

    /// Starts to read for one rank, wherever the others are: `local`, or `naive`.
    fn alone(source: &Arc<dyn Source>, plan: Plan, naive: bool, slice: Slice, aside: Vec<PuId>) -> Result<Self> {
        let source = Arc::clone(source);
        let feed = match naive {
            true => Feed::All(Loader::begin(source, plan, None, aside)?),
            false => Feed::Own(Loader::begin(source, plan, Some(slice), aside)?),
        };
        Ok(Self { slice, feed, last: plan.start, waited: Waited::default() })
    }

    /// The rank's share of the next minibatch; nothing after the last.
    ///
    /// # Errors
    /// As [`Loader::next_batch`].
    pub fn next_portion(&mut self) -> Result<Option<Portion>> {
        let next = match &mut self.feed {
            Feed::Own(loader) | Feed::All(loader) => {
                loader.next_batch()?.map(|(batch, position)| (Held::Own(batch), position))
            }
            Feed::Shared(receiver, common) => {
                let Some(open) = receiver else { return Ok(None) };
                let received = self.waited.receive(open);
                if received.is_none() {
                    *receiver = None;
                    common.ending()?;
                }
                received.map(|(batch, position)| (Held::Shared(batch), position))
            }
        };
        let Some((held, position)) = next else { return Ok(None) };
        let before = if position.epoch == self.last.epoch { self.last.sample } else { 0 };
        let samples = (position.sample - before) as usize;
        self.last = position;
        let slice = self.slice.of(samples);
        let range = if matches!(self.feed, Feed::Own(_)) { 0..slice.len() } else { slice };
        Ok(Some(Portion { held, range, samples, position }))
    }

    /// Gives a portion back, so that its memory is filled again.
    pub fn recycle(&self, portion: Portion) {
        match (&self.feed, portion.held) {
            (Feed::Own(loader) | Feed::All(loader), Held::Own(batch)) => loader.recycle(batch),
            // The ring has it, too.
            (_, held) => drop(held),
        }
    }

    /// How long the rank has waited for minibatches.
    #[must_use]
    pub const fn waited(&self) -> Waited {
        match &self.feed {
            Feed::Own(loader) | Feed::All(loader) => loader.waited(),
            Feed::Shared(..) => self.waited,
        }
    }

    /// Bytes of files that were read so far for this rank; in `broadcast`, rank 0 counts them.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        match &self.feed {
            Feed::Own(loader) | Feed::All(loader) => loader.bytes_read(),
            // Relaxed: a figure for a report, it orders nothing.
            Feed::Shared(_, common) if self.slice.rank == 0 => common.bytes.load(Ordering::Relaxed),
            Feed::Shared(..) => 0,
        }
    }
}
