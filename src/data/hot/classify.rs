//! One pass over all inputs that tells hot ones from cold ones: the paper's input classifier (section 4.2).
//!
//! Workers read every so many portions each, by readers of their own, and whoever calls gets all portions in the order
//! of the data set, whatever the number of workers. A worker has up to [`IN_FLIGHT`] portions in memory, which it
//! reuses; of what others read it skips.

use crossbeam::channel::{Receiver, Sender, bounded};

use super::HotSet;
use super::sample::longest;
use crate::base::{Error, Result, interrupt};
use crate::data::{Batch, Source, Split};

/// Portions of a worker: one that is filled, one that waits, one that is looked at.
const IN_FLIGHT: usize = 3;

/// Consecutive inputs, told apart.
#[derive(Debug)]
pub struct Classified {
    /// The number of the first in its split.
    pub first: u64,
    /// The inputs.
    pub batch: Batch,
    /// Whether each is hot.
    pub hot: Vec<bool>,
}

/// How many inputs there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// All.
    pub inputs: u64,
    /// Those that look up hot rows only.
    pub hot: u64,
}

/// Reads a split by so many workers, at least one, and hands its inputs to `sink`, portion by portion and in order.
///
/// # Errors
/// What the source or `sink` finds, a row that is none of its table's, [`Error::Config`] where the samples never end,
/// [`Error::Threads`], and [`Error::Interrupted`].
///
/// # Panics
/// When the set is of other tables than the source.
pub fn classify(
    source: &dyn Source,
    split: Split,
    set: &HotSet,
    workers: usize,
    mut sink: impl FnMut(&Classified) -> Result<()>,
) -> Result<Tally> {
    let Some(total) = source.samples(split) else {
        let reason = "its samples never end, so that they cannot all be told apart".to_owned();
        return Err(Error::config("data.source", reason));
    };
    let portion = longest(source.schema().longest());
    let portions = total.div_ceil(portion);
    let workers = (workers as u64).clamp(1, portions.max(1));
    let work = Work { source, split, set, total, portion, workers };
    std::thread::scope(|scope| {
        let mut lanes = Vec::new();
        for worker in 0..workers {
            let (hand, take) = bounded(1);
            let (give, reuse) = bounded(IN_FLIGHT);
            let work = &work;
            let run = move || {
                if let Err(error) = work.run(worker, &hand, &reuse) {
                    // Where nobody listens any more, another error is told.
                    let _ = hand.send(Err(error));
                }
            };
            let started = std::thread::Builder::new().name(format!("classify {worker}")).spawn_scoped(scope, run);
            started.map_err(Error::threads(workers as usize))?;
            lanes.push((take, give));
        }
        let mut tally = Tally::default();
        for number in 0..portions {
            let (take, give) = &lanes[(number % workers) as usize];
            let (classified, hot) = take.recv().expect("a worker hands out all of its portions, or an error")?;
            sink(&classified)?;
            tally.inputs += classified.batch.samples() as u64;
            tally.hot += hot as u64;
            // A worker that has done its part takes nothing back.
            let _ = give.send(classified);
        }
        Ok(tally)
    })
}

/// What all workers know.
struct Work<'a> {
    source: &'a dyn Source,
    split: Split,
    set: &'a HotSet,
    total: u64,
    portion: u64,
    workers: u64,
}

impl Work<'_> {
    /// Hands out portions `worker`, `worker + workers` …
    fn run(&self, worker: u64, hand: &Sender<Result<(Classified, usize)>>, reuse: &Receiver<Classified>) -> Result<()> {
        let schema = self.source.schema();
        let mut first = worker * self.portion;
        let mut reader = self.source.open(self.split, first.min(self.total))?;
        while first < self.total {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            let fresh = || Classified { first, batch: Batch::new(schema), hot: Vec::new() };
            let Classified { mut batch, mut hot, .. } = reuse.try_recv().unwrap_or_else(|_| fresh());
            batch.clear();
            let wanted = self.portion.min(self.total - first) as usize;
            let found = reader.read(&mut batch, wanted)?;
            assert_eq!(found, wanted, "a source has as many samples as it says");
            batch.check(schema)?;
            let count = self.set.classify(&batch, &mut hot);
            if hand.send(Ok((Classified { first, batch, hot }, count))).is_err() {
                return Ok(());
            }
            let next = first + self.workers * self.portion;
            if next < self.total {
                reader.skip(next - first - self.portion)?;
            }
            first = next;
        }
        Ok(())
    }
}
