//! Judging a model by samples that it was not trained on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::IntoIter;

use super::Ranks;
use super::feed::together;
use super::metrics::{ByValue, EachSample, Evaluation, Grouping, NO_VALUE, Tally};
use super::rank::Rank;
use crate::base::config::{EvalSplit, TrainConfig};
use crate::base::{Error, Result, TableId};
use crate::data::{Batch, Column, Loader, LoaderMode, Plan, Portion, Position, RankLoader, Source, Split};

/// Minibatches that are read ahead.
const READ_AHEAD: usize = 4;

/// What is asked of an evaluation beside scores.
#[derive(Clone, Default)]
pub struct Questions {
    /// In how many buckets of probabilities calibration is told; 0: not.
    pub buckets: u64,
    /// By which columns samples are grouped; each sample has one value of a column at most.
    pub groupings: Vec<GroupBy>,
    /// As many of the first samples are enough, to the end of their minibatch; nothing: all are judged.
    pub samples: Option<u64>,
    /// Whether what each sample was given is wanted, which every machine then holds.
    pub each: bool,
    /// Counts samples that are scored, for whoever wants to know how far it has come.
    pub scored: Arc<AtomicU64>,
}

/// A column whose values group samples, and what is asked of the groups: each of one column at most.
#[derive(Clone)]
pub struct GroupBy {
    /// The data that have the column, with the samples that the model's data have, in their order; nothing: it is a
    /// column of the model's data.
    pub data: Option<Arc<dyn Source>>,
    /// The column's table.
    pub table: TableId,
    /// Whether the mean AUC of groups is asked for.
    pub gauc: bool,
    /// Whether the scores of each value are.
    pub by: bool,
}

impl GroupBy {
    /// The data that have the column, where the model's are these.
    fn source<'a>(&'a self, source: &'a dyn Source) -> &'a dyn Source {
        self.data.as_deref().unwrap_or(source)
    }

    /// The column.
    fn column<'a>(&'a self, source: &'a dyn Source) -> &'a Column {
        &self.source(source).schema().tables[self.table.index()]
    }

    fn grouping(&self, source: &dyn Source) -> Grouping {
        let Self { gauc, by, .. } = *self;
        Grouping { unseen: self.column(source).unseen().map(|row| row as u32), gauc, by }
    }
}

/// Which samples a run's evaluations are made on: those for validation, unless the data have none or
/// `train.eval_split` says otherwise.
#[must_use]
pub fn evaluated(train: &TrainConfig, source: &dyn Source) -> Split {
    match train.eval_split {
        EvalSplit::Validation if source.samples(Split::Validation) != Some(0) => Split::Validation,
        EvalSplit::Validation | EvalSplit::Test => Split::Test,
    }
}

/// All of a split, `batch` samples at a time, in its order.
fn plan(split: Split, batch: usize) -> Plan {
    Plan { split, batch, epochs: 1, start: Position::default(), shuffle: None, depth: READ_AHEAD }
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
pub fn predict(
    ranks: &Ranks,
    source: &Arc<dyn Source>,
    (split, batch): (Split, usize),
    to: &mut dyn Taker,
) -> Result<()> {
    let mut loader = Loader::start(Arc::clone(source), plan(split, batch))?;
    loop {
        if !loader.is_ready() && !to.pause()? {
            return Ok(());
        }
        let Some((batch, _)) = loader.next_batch()? else { return Ok(()) };
        if ranks.interrupted() {
            return Err(Error::Interrupted);
        }
        let batch = Arc::new(batch);
        if !to.take(&ranks.predict(&batch)?)? {
            return Ok(());
        }
        // Unless a rank is still about to let go of it, its memory is used again.
        if let Some(batch) = Arc::into_inner(batch) {
            loader.recycle(batch);
        }
    }
}

/// A rank's part in an evaluation: it reads and scores its own slice of each minibatch.
struct RankEvaluation {
    source: Arc<dyn Source>,
    groupings: Arc<[GroupBy]>,
    loader: RankLoader,
    /// The slice that is scored next; nothing after the last.
    next: Option<Portion>,
    /// Of each grouping by a column of other data, who reads these, and their part of the slice.
    beside: Vec<Option<(RankLoader, Option<Portion>)>>,
    slice: Arc<Batch>,
    tally: Tally,
    /// Of each sample of the slice that was scored last, if that is wanted: its probability, label and weight.
    each: Option<Vec<[f32; 3]>>,
}

impl RankEvaluation {
    /// One for each rank of this machine.
    fn start_all(
        ranks: &Ranks,
        source: &Arc<dyn Source>,
        plan: Plan,
        mode: LoaderMode,
        Questions { groupings, each, .. }: &Questions,
    ) -> Result<Vec<Self>> {
        let layout = ranks.layout();
        let start = |source: &Arc<dyn Source>| {
            let of = (ranks.local(), layout.ranks());
            RankLoader::start(source, plan, mode, of, layout.grains(), &ranks.asides()).map(Vec::into_iter)
        };
        let loaders = start(source)?;
        let beside = groupings.iter().map(|by| by.data.as_ref().map(start).transpose());
        let mut beside: Vec<Option<IntoIter<RankLoader>>> = beside.collect::<Result<_>>()?;
        let groupings: Arc<[GroupBy]> = groupings.as_slice().into();
        let of_rank = |loader| Self {
            source: Arc::clone(source),
            groupings: Arc::clone(&groupings),
            loader,
            next: None,
            beside: beside.iter_mut().map(|loaders| Some((loaders.as_mut()?.next()?, None))).collect(),
            slice: Arc::new(Batch::new(source.schema())),
            tally: Tally::new(groupings.len(), source.schema().weighted),
            each: each.then(Vec::new),
        };
        Ok(loaders.map(of_rank).collect())
    }

    /// Reads the slice of the minibatch behind `before` samples; whether there is one.
    fn fetch(&mut self, rank: &Rank, before: u64) -> Result<bool> {
        self.next = self.loader.next_portion()?;
        for (loader, next) in self.beside.iter_mut().flatten() {
            *next = loader.next_portion()?;
        }
        if let Some(portion) = &self.next {
            let slice = rank.context.layout.slice(portion.samples, rank.context.rank);
            let first = before + slice.start as u64;
            self.grouped(portion).try_for_each(|(by, portion)| self.one_group(portion, by, first))?;
        }
        Ok(self.next.is_some())
    }

    /// Scores the slice of a minibatch behind `before` samples, and reads the next one: samples of the minibatch, and
    /// whether there is more, or what is wrong with the data, which is no error of the rank.
    fn score(&mut self, rank: &mut Rank, split: Split, before: u64) -> Result<(u64, Result<bool>)> {
        let mut portion = self.next.take().expect("there is a slice, as was said");
        let whole = portion.samples;
        let groups: Vec<_> = self.grouped(&portion).map(|(by, portion)| groups_of(portion, by.table)).collect();
        portion.take(Arc::make_mut(&mut self.slice));
        self.loader.recycle(portion);
        for (loader, next) in self.beside.iter_mut().flatten() {
            next.take().into_iter().for_each(|portion| loader.recycle(portion));
        }
        let range = rank.context.layout.slice(whole, rank.context.rank);
        let truths = self.source.truth(split, before + range.start as u64, range.len());
        let labels = self.slice.labels.clone();
        let weights: Vec<_> = self.slice.each_sample_weight().collect();
        let probabilities = rank.predict_slice(&mut self.slice, whole)?;
        self.tally.take(&probabilities, &labels, self.slice.weighted.then_some(&weights), &groups, truths.as_deref());
        if let Some(each) = &mut self.each {
            let own = probabilities.iter().zip(&labels).zip(&weights);
            each.extend(own.map(|((probability, label), weight)| [*probability, *label, *weight]));
        }
        Ok((whole as u64, self.fetch(rank, before + whole as u64)))
    }

    /// The groupings, each with the slice of the data that have its column; of the model's data it is this one.
    fn grouped<'a>(&'a self, own: &'a Portion) -> impl Iterator<Item = (&'a GroupBy, &'a Portion)> {
        let of = move |beside: &'a Option<(RankLoader, Option<Portion>)>| match beside {
            Some((_, next)) => next.as_ref().expect("as many samples as the model's data have"),
            None => own,
        };
        self.groupings.iter().zip(self.beside.iter().map(of))
    }

    /// Refuses a sample with several groups; the slice's first one is number `first`.
    fn one_group(&self, portion: &Portion, by: &GroupBy, first: u64) -> Result<()> {
        let bag = &portion.batch().bags[by.table.index()];
        let mut samples = (first..).zip(portion.range());
        let Some((number, sample)) = samples.find(|(_, sample)| bag.of(*sample).len() > 1) else { return Ok(()) };
        let reason = format!(
            "column {} has {} values in sample {number}, which lies in one group: name a column of one value a sample",
            by.column(&*self.source).name,
            bag.of(sample).len(),
        );
        Err(Error::config(if by.gauc { "--gauc" } else { "--by" }, reason))
    }
}

/// The group of each sample of a slice: its row of a table.
fn groups_of(portion: &Portion, table: TableId) -> Vec<u32> {
    let bag = &portion.batch().bags[table.index()];
    portion.range().map(|sample| bag.of(sample).first().copied().unwrap_or(NO_VALUE)).collect()
}

/// The text of a row's value in the vocabulary of the data, where that has one, and no other value has the row.
fn text_of(source: &dyn Source, table: TableId, row: u32) -> Option<String> {
    let (vocabulary, column) = (source.about().vocabulary.as_deref()?, &source.schema().tables[table.index()]);
    let mut data = source;
    while let Some(of) = data.made_of() {
        data = of;
    }
    let at = data.schema().tables.iter().position(|of_data| of_data.name == column.name)?;
    let row = row as usize;
    match vocabulary.texts() {
        [] => vocabulary.columns().get(at)?.get(row).map(|value| format!("{value:08x}")),
        texts => {
            // With a limit on rows, several values have one.
            let own = |values: &&Vec<_>| values.len() as u64 + u64::from(vocabulary.unseen_row()) <= column.rows;
            texts.get(at).filter(own)?.get(row).map(|value| String::from_utf8_lossy(value).into_owned())
        }
    }
}

/// The model's scores on all samples of `split`, `batch` at a time, and what else is asked; `None` where there is no
/// sample, or none of the first ones counts, where these are enough. `mode` says who of the ranks reads. All machines
/// of a job call it at the same time, and find the same.
///
/// Each rank keeps what it scores itself, 4 bytes a sample, 4 more where true probabilities are known and 8 for each
/// column that groups samples; where they have weights, 16 and 16 for each such column. They are sorted there, and
/// merged in pieces that fit. Where it is asked for, every machine keeps what each sample was given, all ranks' samples
/// in their order: see [`EachSample`].
///
/// # Errors
/// As [`predict`], and when a sample has several groups.
pub fn evaluate(
    ranks: &Ranks,
    source: &Arc<dyn Source>,
    (split, batch): (Split, usize),
    mode: LoaderMode,
    questions: Questions,
) -> Result<Option<Evaluation>> {
    let batch = questions.samples.map_or(batch, |most| batch.min(most.max(1) as usize));
    let parts = RankEvaluation::start_all(ranks, source, plan(split, batch), mode, &questions)?;
    let fetched = ranks.all_with(parts, |mut own, rank| {
        let more = own.fetch(rank, 0);
        Ok((own, more))
    })?;
    let (mut parts, fetched): (Vec<_>, Vec<_>) = fetched.into_iter().unzip();
    let (mut more, mut first) = (together(fetched.into_iter()), 0);
    let mut each = questions.each.then(EachSample::default);
    loop {
        // Whoever is interrupted while it reads stops all, before any of them goes on.
        ranks.everywhere("evaluate a minibatch", Vec::<u8>::new())?;
        if ranks.interrupted() {
            return Err(Error::Interrupted);
        }
        if !more? || questions.samples.is_some_and(|most| first >= most) {
            break;
        }
        let before = first;
        let scored = ranks.all_with(parts, move |mut own, rank| {
            let done = own.score(rank, split, before)?;
            Ok((own, done))
        })?;
        let (own, done): (Vec<_>, Vec<_>) = scored.into_iter().unzip();
        parts = own;
        if let Some(each) = &mut each {
            let own = parts.iter_mut().filter_map(|part| part.each.as_mut()).flat_map(std::mem::take).collect();
            let all = ranks.everywhere("gather predictions", own)?;
            all.into_iter().flatten().for_each(|sample| each.push(sample, source.schema().weighted));
        }
        first += done[0].0;
        // Relaxed: the number carries no other data.
        questions.scored.fetch_add(done[0].0, Ordering::Relaxed);
        more = together(done.into_iter().map(|(_, more)| more));
    }
    let tallies = ranks.all_with(parts, |RankEvaluation { mut tally, .. }, rank| {
        tally.sort(&rank.context.team);
        Ok(tally)
    })?;
    let groupings: Vec<_> = questions.groupings.iter().map(|by| by.grouping(&**source)).collect();
    let all = questions.samples.is_none();
    let Some(mut found) = Evaluation::new(&tallies, all, questions.buckets, &groupings, ranks)? else {
        return Ok(None);
    };
    found.each = each;
    let by = questions.groupings.iter().find(|grouping| grouping.by);
    for (by, ByValue { values, .. }) in by.into_iter().zip(&mut found.by_value) {
        for value in values {
            value.value = value.row.and_then(|row| text_of(by.source(&**source), by.table, row));
        }
    }
    Ok(Some(found))
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
