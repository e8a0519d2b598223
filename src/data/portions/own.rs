//! One epoch of which a rank reads its own samples only: its slice of every minibatch, in any order.
//!
//! Invariant: the slices of all ranks, in the order of ranks, are what [`Epoch`](super::super::Epoch) gives as one
//! minibatch. Without a shuffle a slice is a stretch of rows: the reader steps over the others. With a windowed shuffle
//! the samples that the permutation puts into the rank's slices are picked in the order of the file, and handed out in
//! the order of the permutation; a window takes 1/R of its samples in memory, and every rank draws its whole permutation.

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
    /// The window that is filled next.
    number: u64,
    samples: Batch,
    /// For each of the rank's positions in the window, its place in `samples`.
    places: Vec<u32>,
    /// Positions that were handed out.
    used: usize,
    order: Vec<u32>,
    /// Samples of the window with the position that each goes to.
    own: Vec<(u32, u32)>,
    picks: Vec<u64>,
    stop: Option<&'a AtomicBool>,
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
        let window = Window {
            shuffle,
            epoch,
            number,
            samples: Batch::new(source.schema()),
            places: Vec::new(),
            used: 0,
            order: Vec::new(),
            own: Vec::new(),
            picks: Vec::new(),
            stop,
        };
        Ok(Self { reader: source.open(split, first)?, reader_at: first, grid, at: start, shuffled: Some(window) })
    }

    /// Appends the rank's slice of the next minibatch and returns how many samples the whole minibatch has; 0 at the end.
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
                while window.used == window.places.len() {
                    window.fill(&mut *self.reader, &mut self.reader_at, self.grid)?;
                }
                to.push_from(&window.samples, window.places[window.used] as usize);
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

    /// See [`Reader::bytes_read`].
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.reader.bytes_read()
    }
}

impl Window<'_> {
    /// Picks the rank's samples of the next window, if it has any there.
    fn fill(&mut self, reader: &mut dyn Reader, reader_at: &mut u64, grid: Grid) -> Result<()> {
        let (total, size) = (grid.total.expect("only what ends is shuffled"), self.shuffle.window as u64);
        let first = self.number * size;
        let end = total.min(first + size);
        assert!(first < end, "positions lie in the epoch");
        permute(&mut self.order, (end - first) as usize, self.shuffle, self.epoch, self.number);
        self.number += 1;
        self.own.clear();
        let (own, order) = (&mut self.own, &self.order);
        grid.own(first, end, |positions| {
            for position in positions {
                own.push((order[(position - first) as usize], own.len() as u32));
            }
        });
        own.sort_unstable();
        self.places.clear();
        self.places.resize(own.len(), 0);
        for (place, &(_, position)) in (0..).zip(own.iter()) {
            self.places[position as usize] = place;
        }
        self.used = 0;
        self.samples.clear();
        for own in self.own.chunks(CHUNK) {
            // Relaxed: the flag carries no data.
            if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(Error::Interrupted);
            }
            self.picks.clear();
            self.picks.extend(own.iter().map(|&(sample, _)| first + u64::from(sample) - *reader_at));
            let picked = reader.pick(&mut self.samples, &self.picks)?;
            assert_eq!(picked, own.len(), "a source has the samples that it says");
            *reader_at += self.picks[own.len() - 1] + 1;
        }
        Ok(())
    }
}
