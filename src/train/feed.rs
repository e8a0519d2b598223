//! Steps on minibatches that ranks load themselves, each its own slice.

use std::sync::Arc;
use std::time::Duration;

use super::ranks::Task;
use super::{Ranks, Rates, Step};
use crate::base::{Result, Unpoisoned};
use crate::data::hot::Inputs;
use crate::data::{LoaderMode, Plan, RankLoader, Source, Waited};

/// Where minibatches of such inputs come from.
pub struct InputStream {
    /// What they look up.
    pub inputs: Inputs,
    /// The data.
    pub source: Arc<dyn Source>,
    /// What of it, in which order.
    pub plan: Plan,
}

/// Of each stream, whether the ranks have loaded a minibatch, or what is wrong with its data.
pub(super) struct Upcoming(Vec<(Inputs, Result<bool>)>);

impl Upcoming {
    /// Lets ranks load these.
    ///
    /// # Errors
    /// As [`Ranks::feed`].
    pub fn of(ranks: &Ranks, streams: &[InputStream], mode: LoaderMode) -> Result<Self> {
        let more = ranks.feed(streams, mode)?;
        Ok(Self(streams.iter().map(|stream| stream.inputs).zip(more).collect()))
    }

    fn at(&mut self, inputs: Inputs) -> &mut Result<bool> {
        let found = self.0.iter_mut().find(|(of, _)| *of == inputs);
        &mut found.expect("inputs of one of the streams").1
    }

    /// Whether there is a minibatch of such inputs; it is then trained on.
    pub fn take(&mut self, inputs: Inputs) -> Result<bool> {
        std::mem::replace(self.at(inputs), Ok(false))
    }

    /// What follows it.
    pub fn put(&mut self, inputs: Inputs, more: Result<bool>) {
        *self.at(inputs) = more;
    }
}

impl Ranks {
    /// Lets every rank load its own slices of minibatches from now on, from a source each for some inputs; of each
    /// whether there is a first one.
    ///
    /// # Errors
    /// As [`Ranks::all`]; inside, what is wrong with the data, which leaves the ranks as they are.
    ///
    /// # Panics
    /// As [`RankLoader::start`].
    pub fn feed(&self, streams: &[InputStream], mode: LoaderMode) -> Result<Vec<Result<bool>>> {
        let (ranks, grains) = (self.layout().ranks(), self.layout().grains());
        let mut loaders: Vec<Vec<(Inputs, RankLoader)>> = self.local().map(|_| Vec::new()).collect();
        for InputStream { inputs, source, plan } in streams {
            let of = (self.local(), ranks);
            let started = RankLoader::start(source, *plan, mode, of, grains, &self.asides())?;
            loaders.iter_mut().zip(started).for_each(|(loaders, loader)| loaders.push((*inputs, loader)));
        }
        let more = self.all_with(loaders, |loaders, rank| Ok(rank.feed(loaders)))?;
        let mut more: Vec<_> = more.into_iter().map(Vec::into_iter).collect();
        Ok(streams.iter().map(|_| together(more.iter_mut().filter_map(Iterator::next))).collect())
    }

    /// Ends the loading: how long the ranks have waited for their slices, the longest of them, and bytes that were read
    /// for each. On several machines all do it at the same time, and learn of all ranks.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn unfeed(&self) -> Result<(Waited, Vec<u64>)> {
        let used = self.all(|rank| {
            let used = rank.data_use();
            rank.feed(Vec::new());
            Ok(used)
        })?;
        let nanos = |time: Duration| time.as_nanos() as u64;
        let own = used.into_iter().map(|(Waited { all, first, .. }, bytes)| [nanos(all), nanos(first), bytes]);
        let used = self.everywhere("gather what loaders did", own.collect())?.concat();
        let longest = used.iter().max_by_key(|used| used[0]).map_or([0; 2], |[all, first, _]| [*all, *first]);
        let [all, first] = longest.map(Duration::from_nanos);
        Ok((Waited::new(all, first), used.iter().map(|used| used[2]).collect()))
    }

    /// Trains on the minibatch of such inputs that the ranks have loaded, at these learning rates; the loss is that of
    /// [`Ranks::step`]. Beside it, whether there is a next minibatch of these inputs.
    ///
    /// # Errors
    /// As [`Ranks::all`]; inside, what is wrong with the data of the next minibatch, which leaves the ranks as they
    /// are.
    ///
    /// # Panics
    /// When there is no minibatch.
    pub fn advance(&self, inputs: Inputs, rates: Rates) -> Result<(Step, Result<bool>)> {
        self.run(&mut |_| Task::Advance(inputs, rates))?;
        let outcome = |rank: usize| self.outcomes[rank].lock().unpoisoned();
        let Step { samples, position, .. } = outcome(0).step.take().expect("a step was made");
        let losses = self.losses()?;
        let (loss, weighted_mean) = (losses.mean(), losses.weighted_mean());
        let more = (0..self.local().len()).map(|rank| outcome(rank).more.take().expect("a step was made"));
        Ok((Step { loss, weighted_mean, samples, position }, together(more)))
    }
}

/// Whether all ranks have a slice, or the first error.
///
/// # Panics
/// When some have and some have not.
pub(super) fn together(more: impl Iterator<Item = Result<bool>>) -> Result<bool> {
    let mut all = None;
    let mut error = None;
    for more in more {
        match more {
            Ok(more) => assert!(*all.get_or_insert(more) == more, "minibatches end for all ranks at once"),
            Err(failure) => error = error.or(Some(failure)),
        }
    }
    error.map_or(Ok(all.unwrap_or(false)), Err)
}
