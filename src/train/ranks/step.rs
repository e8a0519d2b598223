//! The corridor of several ranks: one minibatch from its samples to moved weights, every stage named once.

use super::rank::Rank;
use crate::base::Result;
use crate::data::Batch;
use crate::exchange::{Ordered, Pieces};

/// Trains on this rank's slice of a minibatch and returns the losses of its samples.
pub(super) fn step(rank: &mut Rank, whole: &Batch, rate: f32) -> Result<Vec<f64>> {
    forward(rank, whole)?;
    let samples = whole.samples();
    let Rank { layout, team, model, ids, gradients, dense, ordered, lanes, batch, .. } = rank;
    let [_, _, gradients_lane, dense_lane] = lanes;

    if let Some((ordered, _)) = ordered {
        model.dense_mut().cut(ordered.nodes.share(), samples);
    }
    model.dense_mut().back_top(team, batch);
    model.dense_mut().back_interact(team, batch);

    // Gradients of pooled rows travel while the bottom MLP runs back.
    model.finish_gradients(team, batch);
    let gradient = model.dense().features_gradient(batch.samples());
    gradients.begin(team, layout, gradients_lane, samples, gradient)?;
    model.dense_mut().back_bottom(team, batch);

    gradients.finish(layout, gradients_lane, |from, message| {
        model.update_rows(team, layout, ids, from, message, rate);
    })?;

    if let Some((ordered, lane)) = ordered {
        let gradient = (model.dense().features_gradient(batch.samples()), model.dense().slots());
        let Ordered { replicas, nodes, .. } = ordered;
        replicas.exchange(layout, lane, batch, gradient)?;
        replicas.take(layout, samples, |bags, gradient, stride| {
            model.update_replicas(team, bags, gradient, stride, rate);
        });
        let parts = model.dense_mut().parts_mut(nodes.parts());
        nodes.sum(team, lane, parts.into_iter().map(|part| Pieces::new(part, team.isa())).collect())?;
        model.dense_mut().update(team, rate);
        return Ok(model.dense().losses(batch.samples()).to_vec());
    }
    model.sum_replicas(team, batch);
    dense.sum(dense_lane, Pieces::new(model.sums_mut(), team.isa()))?;
    model.update_dense(team, rate);
    Ok(model.dense().losses(batch.samples()).to_vec())
}

/// The way to the loss: also all of an evaluation.
pub(super) fn forward(rank: &mut Rank, whole: &Batch) -> Result<()> {
    rank.steps += 1;
    rank.enter("forward");
    rank.take_slice(whole);
    let samples = whole.samples();
    let Rank { layout, team, model, ids, pooled, ordered, lanes, batch, .. } = rank;
    let [ids_lane, pooled_lane, ..] = lanes;

    ids.exchange(layout, ids_lane, batch, samples)?;
    pooled.begin(layout, pooled_lane, samples, |to, message| model.look_up(team, layout, ids, to, message))?;

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
    model.look_up_replicas(team, batch);
    model.dense_mut().bottom(team, batch);
    let rest = ordered.as_ref().map(|(ordered, _)| (&ordered.rest, &*batch));
    pooled.finish(team, layout, pooled_lane, model.dense_mut().features_mut(batch.samples()), rest)?;
    model.finish_features(team, batch);

    model.dense_mut().interact(team, batch);
    model.dense_mut().top(team, batch);
    model.dense_mut().loss(team, batch, samples);
    Ok(())
}
