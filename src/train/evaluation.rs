//! Judging a model by samples that it was not trained on.

use std::sync::{Arc, Mutex, PoisonError};

use super::Ranks;
use super::metrics::{Asked, Evaluation, Exchange, Sums, Tally, Tied};
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
}

/// Gives `each` every minibatch of a split, `batch` samples at a time, with the number of its first sample.
fn read(
    ranks: &Ranks,
    source: &Arc<dyn Source>,
    (split, batch): (Split, usize),
    mut each: impl FnMut(&Arc<Batch>, u64) -> Result<()>,
) -> Result<()> {
    let plan = Plan { split, batch, epochs: 1, start: Position::default(), shuffle: None, depth: READ_AHEAD };
    let mut loader = Loader::start(Arc::clone(source), plan)?;
    let mut first = 0;
    while let Some((batch, _)) = loader.next_batch()? {
        if ranks.interrupted() {
            return Err(Error::Interrupted);
        }
        let batch = Arc::new(batch);
        each(&batch, first)?;
        first += batch.samples() as u64;
        recycle(&loader, batch);
    }
    Ok(())
}

/// Runs every sample of `split` through the model, `batch` at a time: their probabilities, in order.
///
/// # Errors
/// When the data is malformed, or the user interrupts.
pub fn predict(ranks: &Ranks, source: &Arc<dyn Source>, split: Split, batch: usize) -> Result<Vec<f32>> {
    let mut probabilities = Vec::new();
    read(ranks, source, (split, batch), |batch, _| {
        probabilities.extend(ranks.predict(batch)?);
        Ok(())
    })?;
    Ok(probabilities)
}

/// Gives a batch back to its loader, unless a rank is still about to let go of it.
fn recycle(loader: &Loader, batch: Arc<Batch>) {
    if let Some(batch) = Arc::into_inner(batch) {
        loader.recycle(batch);
    }
}

/// The model's scores on all samples of `split`, `batch` at a time, and what else is asked; `None` where there is no sample.
/// All machines of a job call it at the same time, and find the same.
///
/// Each rank keeps what it scores itself, 4 bytes a sample, 4 more where true probabilities are known and 8 where samples are
/// grouped; they are sorted there, and merged in pieces that fit.
///
/// # Errors
/// As [`predict`], and when a sample has several groups.
pub fn evaluate(
    ranks: &Ranks,
    source: &Arc<dyn Source>,
    (split, batch): (Split, usize),
    questions: Questions,
) -> Result<Option<Evaluation>> {
    let first_rank = ranks.local().start;
    let tallies: Arc<[Mutex<Tally>]> = ranks.local().map(|_| Mutex::default()).collect();
    read(ranks, source, (split, batch), |batch, first| {
        if let Some(table) = questions.groups {
            one_group(source, batch, table, first)?;
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
        ranks.everywhere("evaluate a minibatch", Vec::<u8>::new()).map(|_| ())
    })?;
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
    Err(Error::Config { origin: "--gauc".to_owned(), reason })
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
