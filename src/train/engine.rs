//! What trains: one rank with the whole model, or several with a part each. A run does not care which.

use std::borrow::Cow;
use std::sync::Arc;

use super::ranks::{Ranks, Step};
use super::step::forward;
use super::{Clock, Profile, step};
use crate::base::Result;
use crate::data::{Batch, Loader, LoaderMode, Plan, Source, Waited};
use crate::machine::team::Team;
use crate::model::{Dlrm, Parameter};

/// Whoever has weights that are saved and loaded by name.
pub trait Weights {
    /// Every tensor, in the order of the reference's state dict.
    ///
    /// # Errors
    /// When the ranks that have them fail.
    fn parameters(&self) -> Result<Vec<Parameter>>;

    /// The numbers of one tensor, row-major.
    ///
    /// # Errors
    /// As [`Weights::parameters`].
    fn export(&self, parameter: &Parameter) -> Result<Cow<'_, [f32]>>;

    /// Overwrites one tensor.
    ///
    /// # Errors
    /// As [`Weights::parameters`].
    ///
    /// # Panics
    /// When `values` has another size than the parameter's shape.
    fn import(&mut self, parameter: &Parameter, values: &[f32]) -> Result<()>;
}

impl Weights for Dlrm {
    fn parameters(&self) -> Result<Vec<Parameter>> {
        Ok(Self::parameters(self))
    }

    fn export(&self, parameter: &Parameter) -> Result<Cow<'_, [f32]>> {
        Ok(Self::export(self, parameter))
    }

    fn import(&mut self, parameter: &Parameter, values: &[f32]) -> Result<()> {
        Self::import(self, parameter, values);
        Ok(())
    }
}

/// One rank or several.
pub enum Engine {
    /// A team with all of the model.
    One(Team, Box<Dlrm>),
    /// Ranks with a part each.
    Many(Ranks),
}

/// Minibatches on their way to what trains.
pub enum Feed {
    /// Whole ones, for one rank, and the one that it trained on last.
    Whole(Loader, Option<Batch>),
    /// The ranks load their slices themselves; whether they have one.
    Slices(Result<bool>),
}

impl Weights for Engine {
    fn parameters(&self) -> Result<Vec<Parameter>> {
        match self {
            Self::One(_, model) => Ok(model.parameters()),
            Self::Many(ranks) => ranks.parameters(),
        }
    }

    fn export(&self, parameter: &Parameter) -> Result<Cow<'_, [f32]>> {
        match self {
            Self::One(_, model) => Ok(model.export(parameter)),
            Self::Many(ranks) => ranks.export(parameter).map(Cow::from),
        }
    }

    fn import(&mut self, parameter: &Parameter, values: &[f32]) -> Result<()> {
        match self {
            Self::One(_, model) => {
                model.import(parameter, values);
                Ok(())
            }
            Self::Many(ranks) => ranks.import(parameter, values),
        }
    }
}

impl Engine {
    /// Starts to load minibatches; several ranks do it in this mode.
    ///
    /// # Errors
    /// When the system gives no thread, or a rank fails.
    pub fn feed(&self, source: &Arc<dyn Source>, plan: Plan, mode: LoaderMode) -> Result<Feed> {
        match self {
            Self::One(..) => Ok(Feed::Whole(Loader::start(Arc::clone(source), plan)?, None)),
            Self::Many(ranks) => Ok(Feed::Slices(ranks.feed(source, plan, mode)?)),
        }
    }

    /// Trains on the next minibatch at learning rate `rate`; nothing after the last.
    ///
    /// # Errors
    /// What is wrong with the data, which leaves the weights as they are, or when a rank fails.
    ///
    /// # Panics
    /// When it is fed for another number of ranks.
    pub fn advance(&mut self, feed: &mut Feed, rate: f32, clock: &mut Clock) -> Result<Option<Step>> {
        match (self, feed) {
            (Self::One(team, model), Feed::Whole(loader, last)) => {
                if let Some(last) = last.take() {
                    loader.recycle(last);
                }
                let Some((batch, position)) = clock.wait(|| loader.next_batch())? else { return Ok(None) };
                let loss = step(team, model, &batch, rate, clock);
                let samples = batch.samples();
                *last = Some(batch);
                Ok(Some(Step { loss, samples, position }))
            }
            (Self::Many(ranks), Feed::Slices(more)) => {
                if !std::mem::replace(more, Ok(false))? {
                    return Ok(None);
                }
                let (step, next) = ranks.advance(rate)?;
                *more = next;
                Ok(Some(step))
            }
            _ => panic!("an engine is fed as it was asked to be"),
        }
    }

    /// Ends the loading: how long training has waited for minibatches, and bytes of files that were read, by reader.
    ///
    /// # Errors
    /// When a rank fails.
    pub fn unfeed(&self, feed: Feed) -> Result<(Waited, Vec<u64>)> {
        match (self, feed) {
            (Self::Many(ranks), _) => {
                let used = ranks.data_use()?;
                ranks.unfeed()?;
                Ok(used)
            }
            (Self::One(..), Feed::Whole(loader, _)) => Ok((loader.waited(), vec![loader.bytes_read()])),
            (Self::One(..), Feed::Slices(_)) => panic!("an engine is fed as it was asked to be"),
        }
    }

    /// Appends the click probabilities of a minibatch's samples to `to`.
    ///
    /// # Errors
    /// When a rank fails.
    pub fn predict(&mut self, batch: &Arc<Batch>, to: &mut Vec<f32>) -> Result<()> {
        match self {
            Self::One(team, model) => {
                forward(team, model, batch, &mut Clock::new(false));
                to.extend_from_slice(model.probabilities(batch));
            }
            Self::Many(ranks) => to.extend(ranks.predict(batch)?),
        }
        Ok(())
    }

    /// Draws initial weights.
    ///
    /// # Errors
    /// When a rank fails.
    pub fn initialise(&mut self, seed: u64) -> Result<()> {
        match self {
            Self::One(team, model) => {
                model.initialise(team, seed);
                Ok(())
            }
            Self::Many(ranks) => ranks.initialise(seed),
        }
    }

    /// How rows were last moved and why, where one rank decides.
    #[must_use]
    pub fn update_choice(&self) -> Option<String> {
        match self {
            Self::One(_, model) => model.update_choice().map(ToString::to_string),
            Self::Many(_) => None,
        }
    }

    /// What every stage of steps like the last one has to do, where one rank does it all.
    #[must_use]
    pub fn profile(&self, feed: &Feed) -> Option<Profile> {
        match (self, feed) {
            (Self::One(_, model), Feed::Whole(_, Some(batch))) => Some(Profile::of(model, batch)),
            _ => None,
        }
    }
}
