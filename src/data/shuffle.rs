//! One epoch in random order, in the memory of one window.
//!
//! The samples of a split are cut into windows of W; the samples of a window are permuted by a function of (seed,
//! epoch, window) alone. Invariant: an epoch has every sample exactly once, and an epoch opened at sample s continues
//! exactly as one opened at 0 after s samples. An endless source has no order that could be learned, so it is never
//! shuffled.
//!
//! While a window is handed out the next one can be read at the same pace ([`Epoch::read_ahead`]), so that nobody waits
//! for a whole window but the first: two windows are in memory.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Batch, Reader, Source, Split};
use crate::base::rng::{Random, Stream};
use crate::base::{Error, Result};

/// Which random order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shuffle {
    /// Decides all orders.
    pub seed: u64,
    /// Samples that are permuted among themselves, at least 1 and less than 2^32.
    pub window: usize,
}

/// Samples that are read between two looks at the wish to stop.
const CHUNK: usize = 4096;

/// A reader of one epoch.
pub struct Epoch<'a> {
    source: Box<dyn Reader + 'a>,
    shuffled: Option<Window<'a>>,
}

struct Window<'a> {
    shuffle: Shuffle,
    epoch: u64,
    /// The window in `samples`.
    number: u64,
    samples: Batch,
    /// What was read of the next window, and whether there is more.
    next: Batch,
    ended: bool,
    /// Why reading ahead stopped; told when the window is due.
    trouble: Option<Error>,
    order: Vec<u32>,
    /// Samples of the window that were handed out.
    used: usize,
    /// Samples to skip in the first window.
    skip: usize,
    stop: Option<&'a AtomicBool>,
}

impl<'a> Epoch<'a> {
    /// Opens an epoch at its sample `start`; without `shuffle`, in the source's order. When `stop` is set, filling a
    /// window ends early with [`Error::Interrupted`].
    ///
    /// # Errors
    /// As [`Source::open`].
    ///
    /// # Panics
    /// When a window has no sample or 2^32 and more.
    pub fn open(
        source: &'a dyn Source,
        split: Split,
        shuffle: Option<Shuffle>,
        epoch: u64,
        start: u64,
        stop: Option<&'a AtomicBool>,
    ) -> Result<Self> {
        let total = source.samples(split);
        let (Some(shuffle), Some(total)) = (shuffle, total) else {
            return Ok(Self { source: source.open(split, start)?, shuffled: None });
        };
        assert!(shuffle.window > 0 && u32::try_from(shuffle.window).is_ok(), "a window has 1 to 2^32 - 1 samples");
        let window = shuffle.window as u64;
        let number = start / window;
        // Past the end there is no window to begin: the source judges the start.
        let first = if start >= total { start } else { number * window };
        let [samples, next] = [source.schema(); 2].map(Batch::new);
        let (order, used, skip) = (Vec::new(), 0, (start - first) as usize);
        let (ended, trouble) = (false, None);
        let window = Window { shuffle, epoch, number, samples, next, ended, trouble, order, used, skip, stop };
        Ok(Self { source: source.open(split, first)?, shuffled: Some(window) })
    }
}

/// Fills `order` with the permutation of a window.
pub(super) fn permute(order: &mut Vec<u32>, samples: usize, shuffle: Shuffle, epoch: u64, window: u64) {
    // The stream has 24 bits for the epoch and 32 for the window; beyond, orders would repeat.
    let random = Random::new(shuffle.seed, Stream::Shuffle(epoch as u32 & 0xFF_FFFF, window as u32));
    order.clear();
    order.extend(0..samples as u32);
    for last in (1..samples).rev() {
        order.swap(last, random.below(last as u64, last as u64 + 1) as usize);
    }
}

impl Window<'_> {
    /// Reads the next window; false at the end of the epoch.
    fn fill(&mut self, source: &mut dyn Reader) -> Result<bool> {
        if !self.order.is_empty() {
            self.number += 1;
        }
        self.ahead(source, self.shuffle.window);
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        std::mem::swap(&mut self.samples, &mut self.next);
        self.next.clear();
        permute(&mut self.order, self.samples.samples(), self.shuffle, self.epoch, self.number);
        self.used = std::mem::take(&mut self.skip);
        Ok(self.used < self.order.len())
    }

    /// Reads up to `count` samples of the next window.
    fn ahead(&mut self, source: &mut dyn Reader, count: usize) {
        let target = (self.next.samples() + count).min(self.shuffle.window);
        while self.next.samples() < target && !self.ended && self.trouble.is_none() {
            // Relaxed: the flag carries no data.
            if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.trouble = Some(Error::Interrupted);
                return;
            }
            let wanted = (target - self.next.samples()).min(CHUNK);
            match source.read(&mut self.next, wanted) {
                Ok(read) => self.ended = read < wanted,
                Err(error) => self.trouble = Some(error),
            }
        }
    }
}

impl Epoch<'_> {
    /// Whether all samples were read, though not all may have been handed out.
    pub(super) fn is_read(&self) -> bool {
        self.shuffled.as_ref().is_some_and(|window| window.ended)
    }

    /// Reads up to `count` samples of the window after this, or of the first; nothing where samples are not shuffled.
    pub(super) fn read_ahead(&mut self, count: usize) {
        if let Some(window) = &mut self.shuffled {
            window.ahead(&mut *self.source, count);
        }
    }
}

impl Reader for Epoch<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        let Some(window) = &mut self.shuffled else { return self.source.read(batch, limit) };
        let mut read = 0;
        while read < limit {
            if window.used == window.order.len() && !window.fill(&mut *self.source)? {
                break;
            }
            let take = (limit - read).min(window.order.len() - window.used);
            for &n in &window.order[window.used..window.used + take] {
                batch.push_from(&window.samples, n as usize);
            }
            window.used += take;
            read += take;
        }
        Ok(read)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let Some(window) = &mut self.shuffled else { return self.source.skip(count) };
        let mut skipped = 0;
        while skipped < count {
            if window.used == window.order.len() && !window.fill(&mut *self.source)? {
                break;
            }
            let take = (window.order.len() - window.used).min(usize::try_from(count - skipped).unwrap_or(usize::MAX));
            window.used += take;
            skipped += take as u64;
        }
        Ok(skipped)
    }

    fn bytes_read(&self) -> u64 {
        self.source.bytes_read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(samples: usize, seed: u64, epoch: u64, window: u64) -> Vec<u32> {
        let mut order = Vec::new();
        permute(&mut order, samples, Shuffle { seed, window: samples }, epoch, window);
        order
    }

    #[test]
    fn an_epoch_opened_behind_its_end_is_judged_as_in_order() {
        use crate::base::config::DataConfig;
        let config = DataConfig { train_samples: 250, test_samples: 0, ..DataConfig::default() };
        let source = super::super::Criteo::new(&config, &[100; 26], 13).unwrap();
        let shuffle = Some(Shuffle { seed: 1, window: 100 });
        for start in [0, 249, 250, 251, 299, 300, 1000] {
            let left = |shuffle| {
                let mut epoch =
                    Epoch::open(&source, Split::Train, shuffle, 0, start, None).map_err(|error| error.to_string())?;
                let mut batch = Batch::new(source.schema());
                epoch.read(&mut batch, 1000).map_err(|error| error.to_string())
            };
            assert_eq!(left(shuffle), left(None), "from sample {start}");
        }
    }

    #[test]
    fn every_order_is_a_permutation_of_its_own() {
        for samples in [0, 1, 2, 3, 100, 4097] {
            let mut sorted = order(samples, 1, 2, 3);
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..samples as u32));
        }
        let base = order(100, 1, 2, 3);
        assert_eq!(base, order(100, 1, 2, 3));
        for other in [order(100, 2, 2, 3), order(100, 1, 3, 3), order(100, 1, 2, 4), (0..100).collect()] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn all_permutations_of_three_are_equally_likely() {
        let mut counts = std::collections::HashMap::new();
        (0..6000).for_each(|window| *counts.entry(order(3, 5, 0, window)).or_insert(0u32) += 1);
        assert!(counts.len() == 6 && counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
