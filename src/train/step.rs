//! The corridor: one minibatch from its samples to moved weights, every stage named once.

use super::Clock;
use crate::data::Batch;
use crate::machine::team::Team;
use crate::model::{Dlrm, Stage};

/// Trains on one minibatch at learning rate `rate` and returns its mean loss (from before the update).
///
/// # Panics
/// When the minibatch was not checked against the model's schema, or is larger than the model has room for.
pub fn step(team: &Team, model: &mut Dlrm, batch: &Batch, rate: f32, clock: &mut Clock) -> f64 {
    let loss = forward(team, model, batch, clock);

    clock.time(Stage::BackTop, || model.back_top(team, batch));
    clock.time(Stage::BackInteract, || model.back_interact(team, batch));
    clock.time(Stage::BackBottom, || model.back_bottom(team, batch));

    clock.time(Stage::UpdateRows, || model.update_rows(team, batch, rate));
    clock.time(Stage::UpdateDense, || model.update_dense(team, rate));
    clock.step_done();
    loss
}

/// The way to the loss: also all of an evaluation.
pub(super) fn forward(team: &Team, model: &mut Dlrm, batch: &Batch, clock: &mut Clock) -> f64 {
    clock.time(Stage::LookUp, || model.look_up(team, batch));
    clock.time(Stage::Bottom, || model.bottom(team, batch));
    clock.time(Stage::Interact, || model.interact(team, batch));
    clock.time(Stage::Top, || model.top(team, batch));
    clock.time(Stage::Loss, || model.loss(team, batch))
}
