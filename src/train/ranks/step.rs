//! The corridor of several ranks: one minibatch from its samples to moved weights, every stage named once.

use super::rank::Rank;
use super::times::Stage;
use crate::base::Result;
use crate::exchange::{Ordered, Pieces};

/// Trains on this rank's slice of a minibatch of so many samples and returns the losses of its own.
pub(super) fn step(rank: &mut Rank, samples: usize, rate: f32) -> Result<Vec<f64>> {
    forward(rank, samples)?;
    if rank.ordered.is_some() {
        return ordered_step(rank, samples, rate);
    }
    let Rank { layout, team, model, ids, gradients, shipping, lanes, batch, times, .. } = rank;
    let [_, _, lane] = lanes;

    // Layers leave as soon as their gradients are there.
    times.time(Stage::Dense, || {
        model.dense_mut().back_top(team, batch, |index, layer| shipping.layer(index, layer, rate));
        model.dense_mut().back_interact(team, batch);
        model.finish_gradients(team, batch);
    });
    times.time(Stage::Tables, || model.sum_replicas(team, batch));
    shipping.sums(model, rate);

    // Gradients of pooled rows travel while the bottom MLP runs back.
    let waited = lane.waited();
    times.time(Stage::PackGradients, || {
        let gradient = model.dense().features_gradient(batch.samples());
        gradients.begin(team, layout, lane, samples, gradient)
    })?;
    times.shift(Stage::PackGradients, Stage::WaitGradients, lane.waited() - waited);
    times.time(Stage::Dense, || {
        model.dense_mut().back_bottom(team, batch, |index, layer| shipping.layer(index, layer, rate));
    });

    let waited = lane.waited();
    times.time(Stage::UpdateRows, || {
        gradients.finish(layout, lane, |from, message| model.update_rows(team, layout, ids, from, message, rate))
    })?;
    times.shift(Stage::UpdateRows, Stage::WaitGradients, lane.waited() - waited);

    shipping.finish(team, model, rate)?;
    times.time(Stage::UpdateRows, || model.update_replicas(team, rate));
    times.step_done();
    Ok(model.dense().losses(batch.samples()).to_vec())
}

/// The rest of [`step`] where the number of ranks changes no bit: sums of gradients go by grains of the minibatch, and
/// gradients of replicated tables go to all in the order of samples.
fn ordered_step(rank: &mut Rank, samples: usize, rate: f32) -> Result<Vec<f64>> {
    let Rank { layout, team, model, ids, gradients, ordered, lanes, batch, times, .. } = rank;
    let [_, _, lane] = lanes;
    let (Ordered { replicas, nodes, .. }, ordered_lane) =
        ordered.as_mut().map(|(ordered, lane)| (ordered, lane)).expect("asked for");

    times.time(Stage::Dense, || {
        model.dense_mut().cut(nodes.share(), samples);
        model.dense_mut().back_top(team, batch, |_, _| ());
        model.dense_mut().back_interact(team, batch);
        model.finish_gradients(team, batch);
    });
    let waited = lane.waited();
    times.time(Stage::PackGradients, || {
        let gradient = model.dense().features_gradient(batch.samples());
        gradients.begin(team, layout, lane, samples, gradient)
    })?;
    times.shift(Stage::PackGradients, Stage::WaitGradients, lane.waited() - waited);
    times.time(Stage::Dense, || model.dense_mut().back_bottom(team, batch, |_, _| ()));
    let waited = lane.waited();
    times.time(Stage::UpdateRows, || {
        gradients.finish(layout, lane, |from, message| model.update_rows(team, layout, ids, from, message, rate))
    })?;
    times.shift(Stage::UpdateRows, Stage::WaitGradients, lane.waited() - waited);

    times.time(Stage::UpdateRows, || {
        let gradient = (model.dense().features_gradient(batch.samples()), model.dense().slots());
        replicas.exchange(layout, ordered_lane, batch, gradient)?;
        replicas.take(layout, samples, |lookups, gradient, stride| {
            model.update_replicas_by(team, lookups, gradient, stride, rate);
        });
        Ok(())
    })?;
    times.time(Stage::ExposedDense, || {
        let parts = model.dense_mut().parts_mut(nodes.parts());
        nodes.sum(team, ordered_lane, parts.into_iter().map(|part| Pieces::new(part, team.isa())).collect())
    })?;
    times.time(Stage::Dense, || model.dense_mut().update(team, rate));
    times.step_done();
    Ok(model.dense().losses(batch.samples()).to_vec())
}

/// The way to the loss: also all of an evaluation.
pub(super) fn forward(rank: &mut Rank, samples: usize) -> Result<()> {
    rank.steps += 1;
    rank.enter("forward");
    let Rank { layout, team, model, ids, pooled, ordered, shipping, lanes, batch, times, .. } = rank;
    let [ids_lane, lane, _] = lanes;

    let waited = ids_lane.waited();
    times.time(Stage::PackIds, || ids.exchange(layout, ids_lane, batch, samples))?;
    times.shift(Stage::PackIds, Stage::WaitIds, ids_lane.waited() - waited);

    let waited = lane.waited();
    times.time(Stage::Tables, || {
        pooled.begin(layout, lane, samples, |to, message| model.look_up(team, layout, ids, to, message))
    })?;
    times.shift(Stage::Tables, Stage::WaitRows, lane.waited() - waited);

    if let Some((ordered, lane)) = ordered {
        ordered.rest.exchange(
            layout,
            lane,
            batch,
            |rank| ids.bags(rank),
            |shard, bag, rows| {
                model.look_up_rows(team, layout, shard, bag, rows);
            },
        )?;
    }

    // Pooled rows travel while the bottom MLP and the replicated tables are at work.
    times.time(Stage::Tables, || model.look_up_replicas(team, batch));
    shipping.home(model)?;
    times.time(Stage::Dense, || model.dense_mut().bottom(team, batch));
    let waited = lane.waited();
    let rest = ordered.as_ref().map(|(ordered, _)| (&ordered.rest, &*batch));
    times.time(Stage::UnpackRows, || {
        pooled.finish(team, layout, lane, model.dense_mut().features_mut(batch.samples()), rest)
    })?;
    times.shift(Stage::UnpackRows, Stage::WaitRows, lane.waited() - waited);

    times.time(Stage::Dense, || {
        model.finish_features(team, batch);
        model.dense_mut().interact(team, batch);
        model.dense_mut().top(team, batch);
        model.dense_mut().loss(team, batch, samples);
    });
    Ok(())
}
