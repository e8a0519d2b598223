//! The corridor: one minibatch from its samples to moved weights, every stage named once.

use crate::data::Batch;
use crate::machine::team::Team;
use crate::model::Dlrm;

/// Trains on one minibatch at learning rate `rate` and returns its mean loss (from before the update).
///
/// # Panics
/// When the minibatch was not checked against the model's schema, or is larger than the model has room for.
pub fn step(team: &Team, model: &mut Dlrm, batch: &Batch, rate: f32) -> f64 {
    let loss = forward(team, model, batch);

    model.back_top(team, batch);
    model.back_interact(team, batch);
    model.back_bottom(team, batch);

    model.update_rows(team, batch, rate);
    model.update_dense(team, rate);
    loss
}

/// The way to the loss: also all of an evaluation.
pub(super) fn forward(team: &Team, model: &mut Dlrm, batch: &Batch) -> f64 {
    model.look_up(team, batch);
    model.bottom(team, batch);
    model.interact(team, batch);
    model.top(team, batch);
    model.loss(team, batch)
}
