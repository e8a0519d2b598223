//! What trains: one rank with the whole model, or several with a part each. A run does not care which.

use std::borrow::Cow;
use std::sync::Arc;

use super::ranks::Ranks;
use super::step::forward;
use super::{Clock, Profile, step};
use crate::base::Result;
use crate::data::Batch;
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
    /// Trains on a minibatch at learning rate `rate` and returns its mean loss (from before the update).
    ///
    /// # Errors
    /// When a rank fails.
    pub fn step(&mut self, batch: &Arc<Batch>, rate: f32, clock: &mut Clock) -> Result<f64> {
        match self {
            Self::One(team, model) => Ok(step(team, model, batch, rate, clock)),
            Self::Many(ranks) => ranks.step(batch, rate),
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

    /// What every stage of steps like this one has to do, where one rank does it all.
    #[must_use]
    pub fn profile(&self, batch: &Batch) -> Option<Profile> {
        match self {
            Self::One(_, model) => Some(Profile::of(model, batch)),
            Self::Many(_) => None,
        }
    }
}
