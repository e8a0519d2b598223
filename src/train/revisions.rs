//! Hot rows that follow the data: every so many samples those are hot which the next samples look up most.
//!
//! Training data are gone through in the order of their samples, in windows. Which rows have copies during a window is
//! told from a sample of this very window, read ahead by a thread of its own while the window before is trained on. So
//! the rows that are hot at a step depend on the data and the step alone, not on the ranks, nor on where a run was
//! interrupted; and rows that come into fashion are copied when they do, not when they have been counted.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use serde::Serialize;

use super::checkpoint::Progress;
use super::{Reporter, Run};
use crate::base::units::{Bytes, Count, Many};
use crate::base::{Error, Result};
use crate::data::hot::HotSlots;
use crate::machine::team::roam;

/// Hot rows, and what share of the look-ups is of them.
pub type Found = (HotSlots, f64);

/// Tells the hot rows of some training samples.
pub type FindHot = dyn Fn(Range<u64>) -> Result<Found> + Send + Sync;

/// Which samples are a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Training samples of an epoch; nothing where they never end.
    samples: Option<u64>,
    /// Samples of a window.
    span: u64,
}

/// The hot rows of the windows of a run, one after the other.
pub struct Revisions {
    windows: Windows,
    length: Length,
    find: Arc<FindHot>,
    /// The window that ranks have copies for.
    now: u64,
    /// Another one, whose hot rows are being found.
    next: Option<(u64, JoinHandle<Result<Found>>)>,
}

/// How long a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So many passes over the data.
    Epochs(u64),
    /// So many steps of so many samples, over as many passes as that takes.
    Steps(u64, u64),
}

/// A revision, as the log has it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Revised {
    kind: &'static str,
    /// After this step.
    pub step: u64,
    /// Rows with copies from then on.
    pub rows: u64,
    /// Those of them that had none before.
    pub entered: u64,
    /// The share of the look-ups of the samples to come that are of them.
    pub hot_lookups: f64,
    /// What ranks sent each other for it.
    pub bytes: u64,
    /// How long training waited for it.
    pub ms: f64,
}

impl Windows {
    /// Of `span` samples each, the last one of up to twice as many, in an epoch of `samples`, if it ends.
    #[must_use]
    pub const fn new(samples: Option<u64>, span: u64) -> Self {
        Self { samples, span }
    }

    /// How many there are in an epoch.
    fn count(self) -> Option<u64> {
        self.samples.map(|samples| (samples / self.span).max(1))
    }

    /// The window of the sample of this number in an epoch, or where that has ended, of the next epoch's first sample.
    #[must_use]
    pub fn of(self, sample: u64) -> u64 {
        match (self.samples, self.count()) {
            (Some(samples), Some(count)) => (sample % samples.max(1) / self.span).min(count - 1),
            _ => sample / self.span,
        }
    }

    /// Its samples.
    #[must_use]
    pub fn range(self, window: u64) -> Range<u64> {
        let end = match self.count() {
            Some(count) if window + 1 >= count => self.samples.unwrap_or(u64::MAX),
            _ => (window + 1).saturating_mul(self.span),
        };
        window.saturating_mul(self.span)..end
    }
}

impl Revisions {
    /// Of a run of this length that has copies of the hot rows of the window at `start`.
    #[must_use]
    pub fn new(windows: Windows, length: Length, start: u64, find: Arc<FindHot>) -> Self {
        Self { windows, length, find, now: windows.of(start), next: None }
    }

    /// What is hot from here on, if that is another window than before.
    ///
    /// # Errors
    /// What the data find.
    fn due(&mut self, at: &Progress) -> Result<Option<Found>> {
        let window = self.windows.of(at.sample);
        let due = if window == self.now { None } else { Some(self.turn(window)?) };
        if self.next.is_none() {
            self.look_ahead(at);
        }
        Ok(due)
    }

    fn turn(&mut self, window: u64) -> Result<Found> {
        self.now = window;
        match self.next.take() {
            Some((next, found)) if next == window => found.join().map_err(|_| {
                let source = std::io::Error::other("it has panicked");
                Error::Threads { wanted: 1, source }
            })?,
            // A run that goes back gets here, one whose minibatch is longer than a window, and one that has no thread
            // to find the rows before they are due.
            _ => (self.find)(self.windows.range(window)),
        }
    }

    /// Begins to find the hot rows of the next window, if the run gets there.
    fn look_ahead(&mut self, at: &Progress) {
        let next = match self.windows.count() {
            Some(1) => return,
            Some(count) if self.now + 1 == count => 0,
            _ => self.now + 1,
        };
        let range = self.windows.range(next);
        // A window that begins before this one is the next epoch's.
        let before = if next == 0 { self.windows.samples.unwrap_or(0) } else { 0 };
        let reached = match self.length {
            Length::Epochs(epochs) => next > 0 || at.epoch + 1 < epochs,
            Length::Steps(steps, samples) => {
                let left = steps.saturating_sub(at.step).saturating_mul(samples);
                (before + range.start).saturating_sub(at.sample) < left
            }
        };
        if !reached {
            return;
        }
        let find = self.find.clone();
        let found = std::thread::Builder::new().name("octorec-hot".to_owned()).spawn(move || {
            // Not on the core of the rank that asks.
            roam();
            find(range)
        });
        // Where no thread is to be had, the rows are found when they are due.
        self.next = found.ok().map(|found| (next, found));
    }
}

impl Run {
    /// Has copies of other hot rows from here on, if that is due.
    pub(super) fn revise(&mut self, reporter: &Reporter) -> Result<()> {
        let began = Instant::now();
        let Some(revisions) = &mut self.revisions else { return Ok(()) };
        let Some((hot, hot_lookups)) = revisions.due(&self.state.progress)? else { return Ok(()) };
        let entered = self.ranks.layout().hot().map_or(0, |before| hot.missing_in(before));
        let (step, rows) = (self.state.progress.step, hot.rows());
        let bytes = self.ranks.revise_hot(Arc::new(hot))?;
        let ms = began.elapsed().as_secs_f64() * 1e3;
        let revised = Revised { kind: "hot_rows", step, rows, entered, hot_lookups, bytes, ms };
        reporter.say(&revised.to_string());
        self.output.as_mut().map_or(Ok(()), |output| output.log(&revised))
    }
}

impl fmt::Display for Revised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, rows, entered, hot_lookups, bytes, ms, .. } = self;
        write!(
            f,
            "step {step}: copies of {}, {} of them new; {:.1} % of the look-ups to come are of them; {} sent in {ms:.0} ms",
            Many(*rows, "row"),
            Count(*entered),
            100.0 * hot_lookups,
            Bytes(*bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::data::hot::HotSet;

    #[test]
    fn windows_part_an_epoch_and_begin_anew_with_the_next() {
        let windows = Windows::new(Some(35), 10);
        assert_eq!([0, 9, 10, 29, 30, 34, 35, 70].map(|sample| windows.of(sample)), [0, 0, 1, 2, 2, 2, 0, 0]);
        assert_eq!([0, 1, 2].map(|window| windows.range(window)), [0..10, 10..20, 20..35]);
        let one = Windows::new(Some(9), 10);
        assert_eq!((one.of(8), one.of(9), one.range(0)), (0, 0, 0..9));
        let endless = Windows::new(None, 10);
        assert_eq!((endless.of(95), endless.range(9)), (9, 90..100));
    }

    fn slots(rows: &[u32]) -> HotSlots {
        let mut set = HotSet::new();
        set.push_some(100, rows.iter().copied());
        HotSlots::new(&set)
    }

    #[test]
    fn rows_are_revised_once_a_window_and_found_ahead() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let note = asked.clone();
        // Of each window two rows, one of them new.
        let find = move |range: Range<u64>| {
            note.lock().unwrap().push(range.clone());
            let first = (range.start / 10) as u32;
            Ok((slots(&[first, first + 1]), 0.5))
        };
        let mut revisions = Revisions::new(Windows::new(Some(30), 10), Length::Epochs(2), 4, Arc::new(find));
        let mut at = |epoch, sample| {
            let due = revisions.due(&Progress { epoch, sample, ..Progress::default() }).unwrap();
            due.map(|(hot, _)| hot.table(0).rows().to_vec())
        };
        assert_eq!([at(0, 4), at(0, 9)], [None, None]);
        assert_eq!([at(0, 10), at(0, 15)], [Some(vec![1, 2]), None]);
        assert_eq!(at(0, 28), Some(vec![2, 3]));
        // An epoch may end before its last sample is told to be the next one's first.
        assert_eq!([at(0, 30), at(1, 0)], [Some(vec![0, 1]), None]);
        assert_eq!([at(1, 10), at(1, 20)].map(|due| due.map(|rows| rows[0])), [Some(1), Some(2)]);
        assert_eq!(at(1, 29), None);
        // Nothing beyond the last epoch.
        assert!(revisions.next.is_none());
        assert_eq!(*asked.lock().unwrap(), [10..20, 20..30, 0..10, 10..20, 20..30]);
    }

    #[test]
    fn windows_that_a_run_does_not_reach_are_not_looked_at() {
        let ahead = |samples, steps, step, sample| {
            let find = |_| Ok((slots(&[1]), 0.5));
            let mut revisions =
                Revisions::new(Windows::new(samples, 10), Length::Steps(steps, 2), sample, Arc::new(find));
            let at = Progress { step, sample, ..Progress::default() };
            revisions.due(&at).unwrap();
            revisions.next.map(|(window, _)| window)
        };
        // Five steps to the next window: the sixth is its first.
        assert_eq!([ahead(None, 5, 0, 0), ahead(None, 6, 0, 0), ahead(None, 6, 3, 6)], [None, Some(1), Some(1)]);
        assert_eq!([ahead(Some(30), 15, 10, 20), ahead(Some(30), 16, 10, 20)], [None, Some(0)]);
        assert_eq!(ahead(Some(30), 10, 4, 8), Some(1));
    }
}
