//! One epoch in any order: whole minibatches, or those samples of each that are one rank's slice.
//!
//! Invariants: an epoch has every sample exactly once, and one that is opened at the end of a minibatch goes on exactly
//! as one that was opened at 0; the slices of all ranks, in the order of ranks, are the whole minibatch. An endless
//! source has no order that could be learned, so it is never shuffled.
//!
//! Without a shuffle a slice is a stretch of rows: the reader steps over the others. With a windowed shuffle the
//! samples that the permutation puts into the rank's slices are picked in the order of the file, and handed out in the
//! order of the permutation; a window takes 1/R of its samples in memory, and every rank draws its whole permutation.
//! While a window is handed out the next one can be read at the same pace ([`Epoch::read_ahead`]), so that nobody waits
//! for a whole window but the first: two windows are in memory.

use std::sync::atomic::{AtomicBool, Ordering};

use super::shuffle::permute;
use super::{Batch, Reader, Shuffle, Slice, Source, Split};
use crate::base::{Error, Result};

/// Samples that are picked between two looks at the wish to stop.
const CHUNK: usize = 4096;

/// In place of a position: the sample goes to none of the rank's.
const NOWHERE: u32 = u32::MAX;

/// A reader of one epoch's minibatches, or of one rank's slices of them.
pub struct Epoch<'a> {
    reader: Box<dyn Reader + 'a>,
    /// Samples of the split before the reader's next one.
    reader_at: u64,
    grid: Grid,
    /// Samples of the epoch before the next minibatch.
    at: u64,
    shuffled: Option<Window<'a>>,
}

/// Where minibatches and slices lie in an epoch.
#[derive(Debug, Clone, Copy)]
struct Grid {
    /// The rank's; nothing: all of a minibatch.
    slice: Option<Slice>,
    /// Samples of a minibatch.
    batch: u64,
    /// Where the first one begins.
    start: u64,
    /// Samples of the epoch, where it ends.
    total: Option<u64>,
}

struct Window<'a> {
    shuffle: Shuffle,
    epoch: u64,
    /// The samples that are handed out.
    now: Picked,
    /// Positions that were handed out.
    used: usize,
    /// What was picked of window `number`, if that was begun.
    next: Picked,
    number: u64,
    begun: bool,
    /// Why reading ahead stopped; told when the window is due.
    trouble: Option<Error>,
    /// The permutation of window `number`, and once it is known where each sample goes, those that are the rank's, in
    /// the order of the file: both by their number in the window.
    order: Vec<u32>,
    /// For each of its samples, the rank's position that it goes to.
    goes_to: Vec<u32>,
    picks: Vec<u64>,
    stop: Option<&'a AtomicBool>,
}

/// The rank's samples of one window.
struct Picked {
    /// Those that were picked so far, in the order of the file.
    samples: Batch,
    /// For each of the rank's positions, its place in `samples` when all are picked.
    places: Vec<u32>,
}

impl Grid {
    /// Samples of the minibatch that begins at `at`.
    fn size(&self, at: u64) -> usize {
        self.total.map_or(self.batch, |total| self.batch.min(total.saturating_sub(at))) as usize
    }

    /// The rank's samples of a minibatch of `size`.
    fn slice(&self, size: usize) -> std::ops::Range<usize> {
        self.slice.map_or(0..size, |slice| slice.of(size))
    }

    /// Calls `each` with the rank's positions among `from..to`, stretch by stretch.
    fn own(&self, from: u64, to: u64, mut each: impl FnMut(std::ops::Range<u64>)) {
        let from = from.max(self.start);
        let mut first = self.start + (from - self.start) / self.batch * self.batch;
        while first < to {
            let slice = self.slice(self.size(first));
            let (begin, end) = (first + slice.start as u64, first + slice.end as u64);
            if begin.max(from) < end.min(to) {
                each(begin.max(from)..end.min(to));
            }
            first += self.batch;
        }
    }
}

impl<'a> Epoch<'a> {
    /// Opens an epoch at its sample `start`, where a minibatch of `batch` samples begins, for the rank that has `slice`
    /// of each, or for all of them; without `shuffle`, in the source's order. When `stop` is set, filling a window ends
    /// early with [`Error::Interrupted`].
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
        (epoch, start): (u64, u64),
        (batch, slice): (usize, Option<Slice>),
        stop: Option<&'a AtomicBool>,
    ) -> Result<Self> {
        let total = source.samples(split);
        let grid = Grid { slice, batch: batch as u64, start, total };
        let shuffle = shuffle.filter(|_| total.is_some_and(|total| start < total));
        let Some(shuffle) = shuffle else {
            return Ok(Self { reader: source.open(split, start)?, reader_at: start, grid, at: start, shuffled: None });
        };
        assert!(shuffle.window > 0 && u32::try_from(shuffle.window).is_ok(), "a window has 1 to 2^32 - 1 samples");
        let number = start / shuffle.window as u64;
        let first = number * shuffle.window as u64;
        let [now, next] = [(); 2].map(|()| Picked { samples: Batch::new(source.schema()), places: Vec::new() });
        let (used, begun, trouble) = (0, false, None);
        let (order, goes_to, picks) = (Vec::new(), Vec::new(), Vec::new());
        let window = Window { shuffle, epoch, now, used, next, number, begun, trouble, order, goes_to, picks, stop };
        Ok(Self { reader: source.open(split, first)?, reader_at: first, grid, at: start, shuffled: Some(window) })
    }

    /// Appends the next minibatch, or the rank's slice of it, and returns how many samples the whole minibatch has; 0
    /// at the end. A whole minibatch has fewer than others where the source pauses.
    ///
    /// # Errors
    /// As [`Reader::read`].
    ///
    /// # Panics
    /// When the source has fewer samples than it says.
    pub fn next_slice(&mut self, to: &mut Batch) -> Result<usize> {
        let mut size = self.grid.size(self.at);
        let slice = self.grid.slice(size);
        if let Some(window) = &mut self.shuffled {
            for _ in slice {
                while window.used == window.now.places.len() {
                    window.fill(&mut *self.reader, &mut self.reader_at, self.grid)?;
                }
                to.push_from(&window.now.samples, window.now.places[window.used] as usize);
                window.used += 1;
            }
        } else if self.grid.slice.is_none() {
            size = self.reader.read(to, self.grid.batch as usize)?;
        } else if !slice.is_empty() {
            let first = self.at + slice.start as u64;
            let gap = first - self.reader_at;
            assert_eq!(self.reader.skip(gap)?, gap, "a source has the samples that it says");
            assert_eq!(self.reader.read(to, slice.len())?, slice.len(), "a source has the samples that it says");
            self.reader_at = first + slice.len() as u64;
        }
        self.at += size as u64;
        Ok(size)
    }

    /// Whether all of the rank's samples were read, though not all may have been handed out.
    pub(super) fn is_read(&self) -> bool {
        self.shuffled.as_ref().is_some_and(|window| !window.has_more(self.grid))
    }

    /// Reads up to `count` of the rank's samples of the window after this, or of the first; nothing where samples are
    /// not shuffled.
    pub(super) fn read_ahead(&mut self, count: usize) {
        if let Some(window) = &mut self.shuffled {
            window.ahead(&mut *self.reader, &mut self.reader_at, self.grid, count);
        }
    }

    /// See [`Reader::bytes_read`].
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.reader.bytes_read()
    }
}

impl Window<'_> {
    /// Hands out the rank's samples of the next window, if it has any there.
    fn fill(&mut self, reader: &mut dyn Reader, reader_at: &mut u64, grid: Grid) -> Result<()> {
        assert!(self.has_more(grid) || self.begun, "positions lie in the epoch");
        self.ahead(reader, reader_at, grid, usize::MAX);
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        std::mem::swap(&mut self.now, &mut self.next);
        (self.used, self.begun) = (0, false);
        self.number += 1;
        Ok(())
    }

    /// Where the next window begins and ends.
    fn span(&self, grid: Grid) -> std::ops::Range<u64> {
        let (total, size) = (grid.total.expect("only what ends is shuffled"), self.shuffle.window as u64);
        self.number * size..total.min((self.number + 1) * size)
    }

    /// Whether there are samples that nobody has looked for yet.
    fn has_more(&self, grid: Grid) -> bool {
        let span = self.span(grid);
        if self.begun {
            self.next.samples.samples() < self.next.places.len() || Some(span.end) < grid.total
        } else {
            !span.is_empty()
        }
    }

    fn is_stopped(&self) -> bool {
        // Relaxed: the flag carries no data.
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Finds the rank's samples of the next window, unless it is stopped before.
    fn begin(&mut self, grid: Grid) {
        let span = self.span(grid);
        permute(&mut self.order, (span.end - span.start) as usize, self.shuffle, self.epoch, self.number);
        // Of a window of everything there is, this alone takes seconds.
        if self.is_stopped() {
            self.trouble = Some(Error::Interrupted);
            return;
        }
        let Self { order, goes_to, next: Picked { samples, places }, .. } = self;
        goes_to.clear();
        goes_to.resize(order.len(), NOWHERE);
        let mut count = 0;
        grid.own(span.start, span.end, |positions| {
            for position in positions {
                goes_to[order[(position - span.start) as usize] as usize] = count;
                count += 1;
            }
        });
        samples.clear();
        places.clear();
        places.resize(count as usize, 0);
        order.clear();
        for (sample, &position) in (0..).zip(goes_to.iter()).filter(|(_, position)| **position != NOWHERE) {
            places[position as usize] = order.len() as u32;
            order.push(sample);
        }
        self.begun = true;
    }

    /// Picks up to `count` of the rank's samples of the next window.
    fn ahead(&mut self, reader: &mut dyn Reader, reader_at: &mut u64, grid: Grid, count: usize) {
        if !self.begun {
            if !self.has_more(grid) {
                return;
            }
            self.begin(grid);
        }
        let start = self.span(grid).start;
        let target = self.next.samples.samples().saturating_add(count).min(self.next.places.len());
        while self.next.samples.samples() < target && self.trouble.is_none() {
            if self.is_stopped() {
                self.trouble = Some(Error::Interrupted);
                return;
            }
            let Picked { samples, .. } = &mut self.next;
            let picked = samples.samples();
            let due = &self.order[picked..target.min(picked + CHUNK)];
            self.picks.clear();
            self.picks.extend(due.iter().map(|sample| start + u64::from(*sample) - *reader_at));
            match reader.pick(samples, &self.picks) {
                Ok(found) => assert_eq!(found, due.len(), "a source has the samples that it says"),
                Err(error) => self.trouble = Some(error),
            }
            *reader_at = start + u64::from(due[due.len() - 1]) + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::DataConfig;
    use crate::data::Criteo;

    #[test]
    fn a_window_is_handed_out_in_the_order_of_its_permutation() {
        let config = DataConfig { train_samples: 250, test_samples: 0, ..DataConfig::default() };
        let source = Criteo::new(&config, &[9; 2], 1).unwrap();
        let [mut stored, mut expected, mut found] = [(); 3].map(|()| Batch::new(source.schema()));
        Source::open(&source, Split::Train, 0).unwrap().read(&mut stored, 250).unwrap();
        let (shuffle, mut order) = (Shuffle { seed: 7, window: 100 }, Vec::new());
        for (window, first) in (0..250).step_by(100).enumerate() {
            permute(&mut order, usize::min(100, 250 - first), shuffle, 4, window as u64);
            order.iter().for_each(|&sample| expected.push_from(&stored, first + sample as usize));
        }
        let mut epoch = Epoch::open(&source, Split::Train, Some(shuffle), (4, 0), (60, None), None).unwrap();
        while epoch.next_slice(&mut found).unwrap() > 0 {}
        assert!(found == expected && found != stored);
    }

    #[test]
    fn an_epoch_opened_behind_its_end_is_judged_as_in_order() {
        let config = DataConfig { train_samples: 250, test_samples: 0, ..DataConfig::default() };
        let source = Criteo::new(&config, &[100; 26], 13).unwrap();
        let shuffle = Some(Shuffle { seed: 1, window: 100 });
        for start in [0, 249, 250, 251, 299, 300, 1000] {
            let left = |shuffle| {
                let mut epoch = Epoch::open(&source, Split::Train, shuffle, (0, start), (1000, None), None)
                    .map_err(|error| error.to_string())?;
                epoch.next_slice(&mut Batch::new(source.schema())).map_err(|error| error.to_string())
            };
            assert_eq!(left(shuffle), left(None), "from sample {start}");
        }
    }

    #[test]
    fn a_window_is_nearly_read_when_it_is_due() {
        let config = DataConfig { train_samples: 10_000, test_samples: 0, ..DataConfig::default() };
        let source = Criteo::new(&config, &[9; 2], 1).unwrap();
        let (batch, slice) = (60, Slice::new(1, 3));
        let shuffle = Some(Shuffle { seed: 7, window: 1700 });
        let mut epoch = Epoch::open(&source, Split::Train, shuffle, (0, 0), (batch, Some(slice)), None).unwrap();
        let (mut handed_out, mut due) = (0, 0);
        loop {
            let mut minibatch = Batch::new(source.schema());
            if epoch.next_slice(&mut minibatch).unwrap() == 0 {
                break;
            }
            handed_out += minibatch.samples();
            epoch.read_ahead(batch / 3);
            let window = epoch.shuffled.as_ref().unwrap();
            if window.used == window.now.places.len() && window.begun {
                due += 1;
                let missing = window.next.places.len() - window.next.samples.samples();
                assert!(missing <= 2 * batch / 3, "{missing} samples are missing");
            }
        }
        assert!(due > 0 && epoch.is_read() && handed_out == 3333, "{due} windows, {handed_out} samples");
    }
}
