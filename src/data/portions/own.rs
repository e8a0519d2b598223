//! One epoch of which a rank reads its own samples only: its slice of every minibatch, in any order.
//!
//! Invariant: the slices of all ranks, in the order of ranks, are what [`Epoch`](super::super::Epoch) gives as one
//! minibatch. Without a shuffle a slice is a stretch of rows: the reader steps over the others. With a windowed shuffle
//! the samples that the permutation puts into the rank's slices are picked in the order of the file, and handed out in
//! the order of the permutation; a window takes 1/R of its samples in memory, and every rank draws its whole
//! permutation. As in an [`Epoch`](super::super::Epoch), the next window can be read while one is handed out.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Slice;
use crate::base::{Error, Result};
use crate::data::shuffle::permute;
use crate::data::{Batch, Reader, Shuffle, Source, Split};

/// Samples that are picked between two looks at the wish to stop.
const CHUNK: usize = 4096;

/// A reader of one rank's slices.
pub struct OwnEpoch<'a> {
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
    slice: Slice,
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
    order: Vec<u32>,
    picks: Vec<u64>,
    stop: Option<&'a AtomicBool>,
}

/// The rank's samples of one window.
struct Picked {
    /// Those that were picked so far, in the order of the file.
    samples: Batch,
    /// All of them, by their number in the epoch, with the position that each goes to.
    own: Vec<(u64, u32)>,
    /// For each of the rank's positions, its place in `samples`.
    places: Vec<u32>,
}

impl Grid {
    /// Samples of the minibatch that begins at `at`.
    fn size(&self, at: u64) -> usize {
        self.total.map_or(self.batch, |total| self.batch.min(total.saturating_sub(at))) as usize
    }

    /// Calls `each` with the rank's positions among `from..to`, stretch by stretch.
    fn own(&self, from: u64, to: u64, mut each: impl FnMut(std::ops::Range<u64>)) {
        let from = from.max(self.start);
        let mut first = self.start + (from - self.start) / self.batch * self.batch;
        while first < to {
            let slice = self.slice.of(self.size(first));
            let (begin, end) = (first + slice.start as u64, first + slice.end as u64);
            if begin.max(from) < end.min(to) {
                each(begin.max(from)..end.min(to));
            }
            first += self.batch;
        }
    }
}

impl<'a> OwnEpoch<'a> {
    /// Opens an epoch at its sample `start`, where a minibatch of `batch` samples begins; the rest is as in
    /// [`Epoch::open`](super::super::Epoch::open).
    ///
    /// # Errors
    /// As [`Source::open`].
    pub fn open(
        source: &'a dyn Source,
        split: Split,
        shuffle: Option<Shuffle>,
        (epoch, start): (u64, u64),
        (batch, slice): (usize, Slice),
        stop: Option<&'a AtomicBool>,
    ) -> Result<Self> {
        let total = source.samples(split);
        let grid = Grid { slice, batch: batch as u64, start, total };
        let shuffle = shuffle.filter(|_| total.is_some_and(|total| start < total));
        let Some(shuffle) = shuffle else {
            return Ok(Self { reader: source.open(split, start)?, reader_at: start, grid, at: start, shuffled: None });
        };
        let number = start / shuffle.window as u64;
        let first = number * shuffle.window as u64;
        let [now, next] =
            [(); 2].map(|()| Picked { samples: Batch::new(source.schema()), own: Vec::new(), places: Vec::new() });
        let (used, begun, trouble) = (0, false, None);
        let (order, picks) = (Vec::new(), Vec::new());
        let window = Window { shuffle, epoch, now, used, next, number, begun, trouble, order, picks, stop };
        Ok(Self { reader: source.open(split, first)?, reader_at: first, grid, at: start, shuffled: Some(window) })
    }

    /// Appends the rank's slice of the next minibatch and returns how many samples the whole minibatch has; 0 at the
    /// end.
    ///
    /// # Errors
    /// As [`Reader::read`].
    ///
    /// # Panics
    /// When the source has fewer samples than it says.
    pub fn next_slice(&mut self, to: &mut Batch) -> Result<usize> {
        let size = self.grid.size(self.at);
        let slice = self.grid.slice.of(size);
        if let Some(window) = &mut self.shuffled {
            for _ in slice {
                while window.used == window.now.places.len() {
                    window.fill(&mut *self.reader, &mut self.reader_at, self.grid)?;
                }
                to.push_from(&window.now.samples, window.now.places[window.used] as usize);
                window.used += 1;
            }
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
    pub(in crate::data) fn is_read(&self) -> bool {
        self.shuffled.as_ref().is_some_and(|window| !window.has_more(self.grid))
    }

    /// Reads up to `count` of the rank's samples of the window after this, or of the first; nothing where samples are
    /// not shuffled.
    pub(in crate::data) fn read_ahead(&mut self, count: usize) {
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
            self.next.samples.samples() < self.next.own.len() || Some(span.end) < grid.total
        } else {
            !span.is_empty()
        }
    }

    /// Finds the rank's samples of the next window.
    fn begin(&mut self, grid: Grid) {
        let span = self.span(grid);
        permute(&mut self.order, (span.end - span.start) as usize, self.shuffle, self.epoch, self.number);
        let (Picked { samples, own, places }, order) = (&mut self.next, &self.order);
        samples.clear();
        own.clear();
        grid.own(span.start, span.end, |positions| {
            for position in positions {
                let sample = span.start + u64::from(order[(position - span.start) as usize]);
                own.push((sample, own.len() as u32));
            }
        });
        own.sort_unstable();
        places.clear();
        places.resize(own.len(), 0);
        for (place, &(_, position)) in (0..).zip(own.iter()) {
            places[position as usize] = place;
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
        let Picked { samples, own, .. } = &mut self.next;
        let target = samples.samples().saturating_add(count).min(own.len());
        while samples.samples() < target && self.trouble.is_none() {
            // Relaxed: the flag carries no data.
            if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.trouble = Some(Error::Interrupted);
                return;
            }
            let picked = samples.samples();
            let due = &own[picked..target.min(picked + CHUNK)];
            self.picks.clear();
            self.picks.extend(due.iter().map(|&(sample, _)| sample - *reader_at));
            match reader.pick(samples, &self.picks) {
                Ok(found) => assert_eq!(found, due.len(), "a source has the samples that it says"),
                Err(error) => self.trouble = Some(error),
            }
            *reader_at = due[due.len() - 1].0 + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::DataConfig;
    use crate::data::Criteo;

    #[test]
    fn a_window_is_nearly_read_when_it_is_due() {
        let config = DataConfig { train_samples: 10_000, test_samples: 0, ..DataConfig::default() };
        let source = Criteo::new(&config, &[9; 2], 1).unwrap();
        let (batch, slice) = (60, Slice::new(1, 3));
        let shuffle = Some(Shuffle { seed: 7, window: 1700 });
        let mut epoch = OwnEpoch::open(&source, Split::Train, shuffle, (0, 0), (batch, slice), None).unwrap();
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
                let missing = window.next.own.len() - window.next.samples.samples();
                assert!(missing <= 2 * batch / 3, "{missing} samples are missing");
            }
        }
        assert!(due > 0 && epoch.is_read() && handed_out == 3333, "{due} windows, {handed_out} samples");
    }
}
