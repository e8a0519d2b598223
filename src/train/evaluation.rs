//! Judging a model by samples that it was not trained on.

use std::sync::{Arc, Mutex, PoisonError};

use super::Ranks;
use super::metrics::{Asked, Evaluation, Exchange, Sums, Tally, Tied};
use crate::base::config::TrainConfig;
use crate::base::{Error, Result, TableId};
use crate::data::{Batch, Loader, Plan, Position, Source, Split};

/// Minibatches that are read ahead.
const READ_AHEAD: usize = 4;

/// What is asked of an evaluation beside scores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Questions {
    /// In how many buckets of probabilities calibration is told; 0: not.
    pub buckets: u64,
    /// By which table's rows samples are grouped for an AUC by group: each sample has at most one.
    pub groups: Option<TableId>,
    /// As many of the first samples are enough, to the end of their minibatch; nothing: all are judged.
    pub samples: Option<u64>,
}

/// The minibatches of a split, one after the other.
struct Reading {
    loader: Loader,
    /// Samples before the next one.
    first: u64,
}

impl Reading {
    /// Of `batch` samples at a time.
    fn start(source: &Arc<dyn Source>, (split, batch): (Split, usize)) -> Result<Self> {
        let plan = Plan { split, batch, epochs: 1, start: Position::default(), shuffle: None, depth: READ_AHEAD };
        Ok(Self { loader: Loader::start(Arc::clone(source), plan)?, first: 0 })
    }

    /// The next one, and the number of its first sample; nothing after the last.
    fn next(&mut self, ranks: &Ranks) -> Result<Option<(Arc<Batch>, u64)>> {
        let Some((batch, _)) = self.loader.next_batch()? else { return Ok(None) };
        if ranks.interrupted() {
            return Err(Error::Interrupted);
        }
        let first = self.first;
        self.first += batch.samples() as u64;
        Ok(Some((Arc::new(batch), first)))
    }
}

/// Who takes probabilities.
pub trait Taker {
    /// Takes those of the next samples; false: nobody wants more.
    ///
    /// # Errors
    /// When they cannot be taken.
    fn take(&mut self, probabilities: &[f32]) -> Result<bool>;

    /// Told before a wait for samples: whoever asked is to be answered. False: nobody wants more.
    ///
    /// # Errors
    /// As [`Taker::take`].
    fn pause(&mut self) -> Result<bool>;
}

/// Runs every sample of `split` through the model, `batch` at a time at most, and hands over their probabilities, in
/// order.
///
/// # Errors
/// When the data is malformed, or the user interrupts, and those of `to`.
pub fn predict(ranks: &Ranks, source: &Arc<dyn Source>, of: (Split, usize), to: &mut dyn Taker) -> Result<()> {
    let mut reading = Reading::start(source, of)?;
    loop {
        if !reading.loader.is_ready() && !to.pause()? {
            return Ok(());
        }
        let Some((batch, _)) = reading.next(ranks)? else { return Ok(()) };
        if !to.take(&ranks.predict(&batch)?)? {
            return Ok(());
        }
        recycle(&reading.loader, batch);
    }
}

/// Gives a batch back to its loader, unless a rank is still about to let go of it.
fn recycle(loader: &Loader, batch: Arc<Batch>) {
    if let Some(batch) = Arc::into_inner(batch) {
        loader.recycle(batch);
    }
}

/// The model's scores on all samples of `split`, `batch` at a time, and what else is asked; `None` where there is no
/// sample. All machines of a job call it at the same time, and find the same.
///
/// Each rank keeps what it scores itself, 4 bytes a sample, 4 more where true probabilities are known and 8 where
/// samples are grouped; they are sorted there, and merged in pieces that fit.
///
/// # Errors
/// As [`predict`], and when a sample has several groups.
pub fn evaluate(
    ranks: &Ranks,
    source: &Arc<dyn Source>,
    (split, batch): (Split, usize),
    questions: Questions,
) -> Result<Option<Evaluation>> {
    let batch = questions.samples.map_or(batch, |most| batch.min(most.max(1) as usize));
    let mut reading = Reading::start(source, (split, batch))?;
    let first_rank = ranks.local().start;
    let tallies: Arc<[Mutex<Tally>]> = ranks.local().map(|_| Mutex::default()).collect();
    while questions.samples.is_none_or(|most| reading.first < most)
        && let Some((batch, first)) = reading.next(ranks)?
    {
        if let Some(table) = questions.groups {
            one_group(source, &batch, table, first)?;
        }
        let (tallies, source, whole) = (tallies.clone(), Arc::clone(source), batch.clone());
        ranks.all(move |rank| {
            let probabilities = rank.predict(&whole)?;
            let slice = rank.layout.slice(whole.samples(), rank.number);
            let truths = source.truth(split, first + slice.start as u64, slice.len());
            let groups = questions.groups.map(|table| {
                let bag = &whole.bags[table.index()];
                slice.clone().map(|sample| bag.of(sample).first().copied())
            });
            let tally = &tallies[rank.number.index() - first_rank];
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.take(&probabilities, &whole.labels[slice], groups, truths.as_deref());
            Ok(())
        })?;
        // Whether somebody has interrupted another machine.
        ranks.everywhere("evaluate a minibatch", Vec::<u8>::new())?;
        recycle(&reading.loader, batch);
    }
    let sorted = tallies.clone();
    ranks.all(move |rank| {
        let tally = &sorted[rank.number.index() - first_rank];
        tally.lock().unwrap_or_else(PoisonError::into_inner).sort(Some(&rank.team));
        Ok(())
    })?;
    let take = |tally: &Mutex<Tally>| std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
    let tallies: Vec<Tally> = tallies.iter().map(take).collect();
    let asked = Asked { buckets: questions.buckets, groups: questions.groups.is_some() };
    let found = Evaluation::new(&tallies, asked, ranks)?;
    Ok((found.scores.samples > 0).then_some(found))
}

/// Refuses a sample with several groups.
fn one_group(source: &Arc<dyn Source>, batch: &Batch, table: TableId, first: u64) -> Result<()> {
    let bag = &batch.bags[table.index()];
    let Some(sample) = (0..bag.samples()).find(|sample| bag.of(*sample).len() > 1) else { return Ok(()) };
    let reason = format!(
        "column {} has {} values in sample {}, which lies in one group: name a column of one value a sample",
        source.schema().tables[table.index()].name,
        bag.of(sample).len(),
        first + sample as u64
    );
    Err(Error::config("--gauc", reason))
}

impl Exchange for Ranks {
    fn machines(&self) -> (usize, usize) {
        (self.world.machine(), self.world.machines())
    }

    fn sums(&self, own: Sums) -> Result<Vec<Sums>> {
        Ok(self.everywhere("gather scores", vec![own])?.concat())
    }

    fn tied(&self, own: Vec<Tied>) -> Result<Vec<Vec<Tied>>> {
        self.everywhere("merge scores", own)
    }
}

/// Whether an evaluation is due after this step: by steps, or because a part of the epoch was completed.
pub(super) fn evaluation_due(train: &TrainConfig, epoch_steps: Option<u64>, number: u64) -> bool {
    let parts = |steps: u64| {
        let done = |step: u64| u128::from(step) * u128::from(train.evals_per_epoch) / u128::from(steps.max(1));
        done(number) > done(number - 1)
    };
    train.eval_every > 0 && number.is_multiple_of(train.eval_every) || epoch_steps.is_some_and(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluations_are_due_by_steps_and_by_parts_of_an_epoch() {
        let due = |eval_every: u64, evals_per_epoch: u64, epoch_steps: Option<u64>| -> Vec<u64> {
            let train = TrainConfig { eval_every, evals_per_epoch, ..TrainConfig::default() };
            (1..=20).filter(|step| evaluation_due(&train, epoch_steps, *step)).collect()
        };
        assert_eq!(due(0, 4, Some(10)), [3, 5, 8, 10, 13, 15, 18, 20]);
        assert_eq!(due(7, 1, Some(10)), [7, 10, 14, 20]);
        assert_eq!(due(0, 99, Some(3)), (1..=20).collect::<Vec<_>>());
        assert!(due(0, 0, Some(10)).is_empty() && due(0, 4, None).is_empty());
    }
}
