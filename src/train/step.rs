//! The corridor: one minibatch from its samples to moved weights, on each of 1 to n ranks.
//!
//! Each rank walks its own slice. A rank that is alone has no peers to exchange with: its rows are pooled straight into
//! the features, nothing is copied, and nothing waits. Rows are exchanged and moved for the whole slice; the network
//! takes it in parts, each forward and back before the next, and a part's pooled rows are brought together just before,
//! unless the rank has nothing better to do earlier. Where a minibatch is of hot inputs alone ([`Inputs`]), no
//! rank asks another for rows.

use super::hot_step;
use super::rank::Rank;
use super::reduction::UpdateContext;
use crate::base::Result;
use crate::data::hot::Inputs;
use crate::exchange::Minibatch;
use crate::layer::Linear;
use crate::model::Stage;
use crate::optim::StepSizes;

/// Trains on this rank's slice of a minibatch; leaves the losses of its own samples.
pub(super) fn step(rank: &mut Rank, minibatch: &Minibatch, step_sizes: StepSizes) -> Result<()> {
    begin_rows(rank, minibatch)?;
    for part in 0..rank.parts.count() {
        forward(rank, minibatch, part)?;
        backward(rank, minibatch, part, step_sizes)?;
    }
    hot_step::sum_gradients(rank, minibatch)?;
    update_rows(rank, minibatch, step_sizes)?;
    hot_step::send_moved_rows(rank, minibatch)?;
    update_dense(rank, step_sizes)?;
    rank.clock.step_done();
    Ok(())
}

/// The way to the loss alone: all of an evaluation.
pub(super) fn evaluate(rank: &mut Rank, minibatch: &Minibatch) -> Result<()> {
    begin_rows(rank, minibatch)?;
    (0..rank.parts.count()).try_for_each(|part| forward(rank, minibatch, part))
}

/// Rows of the whole slice: sent for, pooled for others, and this rank's own terms of divided rows.
fn begin_rows(rank: &mut Rank, minibatch: &Minibatch) -> Result<()> {
    if minibatch.inputs != Inputs::Cold {
        hot_step::refresh_copies(rank)?;
    }
    rank.parts.cut(minibatch.slice.samples(), minibatch.whole);
    rank.looked_up = 0;

    exchange_ids(rank, minibatch)?;
    look_up_for_others(rank, minibatch)?;
    exchange_unpooled(rank, minibatch)?;
    look_up_divided(rank, minibatch);
    Ok(())
}

/// A part's way to the loss. The first one waits for the pooled rows of other ranks, which travel while this rank pools
/// its own and the bottom MLP runs, and for the layers that the step before has moved.
fn forward(rank: &mut Rank, minibatch: &Minibatch, part: usize) -> Result<()> {
    if rank.looked_up == part {
        look_up_own(rank, minibatch);
    }
    let batch = &*minibatch.slice;
    let Rank { context, network, reduction, parts, clock, .. } = rank;
    reduction.complete(&mut **network, clock)?;
    clock.time(Stage::Bottom, || network.bottom(&context.team, batch, &parts.part(part)));
    join_rows(rank, minibatch, part)?;
    let Rank { context, network, parts, clock, .. } = rank;
    let (team, part) = (&context.team, &parts.part(part));
    clock.time(Stage::Interact, || network.interact(team, part));
    clock.time(Stage::Top, || network.top(team, batch, part));
    clock.time(Stage::Loss, || network.loss(team, batch, part, minibatch.whole));
    Ok(())
}

/// A part's way back; the last one sends the gradients of pooled rows, of the whole slice. The reduction of each
/// layer's gradient over the ranks begins as soon as the gradient is complete.
fn backward(rank: &mut Rank, minibatch: &Minibatch, part: usize, step_sizes: StepSizes) -> Result<()> {
    let Rank { context, network, tables, reduction, parts, clock, .. } = rank;
    let (team, of) = (&context.team, &parts.part(part));
    let announce = &mut |index, layer: &mut Linear| reduction.begin(index, layer, step_sizes);
    clock.time(Stage::BackTop, || network.back_top(team, of, announce));
    clock.time(Stage::BackInteract, || {
        network.back_interact(team, of, announce);
        let gradient = network.features_mut(&of.samples);
        tables.divide_by_bag_lengths(context, (&minibatch.slice, &of.samples), gradient);
    });
    if of.is_last {
        // Gradients of pooled rows travel while the bottom MLP runs back.
        send_gradients(rank, minibatch)?;
    }
    let Rank { context, network, reduction, parts, clock, .. } = rank;
    let announce = &mut |index, layer: &mut Linear| reduction.begin(index, layer, step_sizes);
    clock.time(Stage::BackBottom, || network.back_bottom(&context.team, &parts.part(part), announce));
    Ok(())
}

/// Ids of rows, to the ranks that own them.
fn exchange_ids(rank: &mut Rank, minibatch: &Minibatch) -> Result<()> {
    let Rank { context, ids, lanes, clock, .. } = rank;
    clock.exchange([Stage::PackIds, Stage::WaitIds], &mut *lanes.ids, |lane| ids.exchange(context, lane, minibatch))
}

/// Rows that other ranks asked for, pooled into their windows.
fn look_up_for_others(rank: &mut Rank, minibatch: &Minibatch) -> Result<()> {
    let Rank { context, tables, ids, pooled, lanes, clock, .. } = rank;
    clock.exchange([Stage::LookUp, Stage::WaitRows], &mut *lanes.pooled, |lane| {
        pooled.begin(context, lane, minibatch, ids, |messages| tables.look_up(context, ids, messages))
    })
}

/// Rows of divided tables that travel as they are, where the number of ranks changes no bit.
fn exchange_unpooled(rank: &mut Rank, minibatch: &Minibatch) -> Result<()> {
    let Rank { context, tables, ids, unpooled, lanes, clock, .. } = rank;
    let (Some(unpooled), Some(lane)) = (unpooled, &mut lanes.unpooled) else { return Ok(()) };
    clock.exchange([Stage::LookUp, Stage::WaitRows], &mut **lane, |lane| {
        unpooled.exchange(context, lane, minibatch, ids, |shard, bag, rows| {
            tables.look_up_unpooled(context, shard, bag, rows);
        })
    })
}

/// This rank's terms of divided rows for its own samples, those of the whole slice.
fn look_up_divided(rank: &mut Rank, minibatch: &Minibatch) {
    let Rank { context, tables, ids, pooled, clock, .. } = rank;
    clock.time(Stage::LookUp, || tables.look_up_divided(context, ids, pooled.own_mut(context, minibatch, ids)));
}

/// Rows that this rank holds whole, pooled into the features of the next part.
fn look_up_own(rank: &mut Rank, minibatch: &Minibatch) {
    let Rank { context, network, tables, ids, parts, looked_up, clock, .. } = rank;
    let samples = &parts.part(*looked_up).samples;
    *looked_up += 1;
    clock.time(Stage::LookUp, || {
        tables.look_up_own(context, (ids, &minibatch.slice), samples, network.features_mut(samples));
    });
}

/// Pooled rows of other ranks, to their places among the features of a part.
fn join_rows(rank: &mut Rank, minibatch: &Minibatch, part: usize) -> Result<()> {
    // As long as they travel, there may be own rows of later parts to pool.
    while rank.looked_up < rank.parts.count()
        && !rank.pooled.has_come(&rank.context, &mut *rank.lanes.pooled, minibatch)?
    {
        look_up_own(rank, minibatch);
    }
    let Rank { context, network, tables, ids, pooled, unpooled, lanes, parts, clock, .. } = rank;
    let part = &parts.part(part);
    let features = network.features_mut(&part.samples);
    clock.exchange([Stage::JoinRows, Stage::WaitRows], &mut *lanes.pooled, |lane| {
        pooled.finish(context, lane, (minibatch, ids), (part, &mut *features), unpooled.as_ref())
    })?;
    clock.time(Stage::JoinRows, || {
        tables.divide_by_bag_lengths(context, (&minibatch.slice, &part.samples), features);
    });
    Ok(())
}

/// Gradients of pooled rows, to the owners; those of replicated tables are this rank's own until they are reduced.
fn send_gradients(rank: &mut Rank, minibatch: &Minibatch) -> Result<()> {
    let Rank { context, network, tables, ids, gradients, reduction, lanes, clock, .. } = rank;
    let batch = &*minibatch.slice;
    let gradient = network.features(batch.samples());
    clock.time(Stage::UpdateRows, || reduction.begin_replicas(&context.team, tables, batch, gradient));
    clock.exchange([Stage::PackGradients, Stage::WaitGradients], &mut *lanes.gradients, |lane| {
        gradients.begin(context, lane, minibatch, ids, gradient)
    })
}

/// Rows of this rank's shards, by the gradients of all ranks' samples.
fn update_rows(rank: &mut Rank, minibatch: &Minibatch, step_sizes: StepSizes) -> Result<()> {
    let Rank { context, network, tables, ids, gradients, hot, lanes, clock, .. } = rank;
    clock.exchange([Stage::UpdateRows, Stage::WaitGradients], &mut *lanes.gradients, |lane| {
        let batch = &*minibatch.slice;
        let own = (batch, network.features(batch.samples()));
        let hot = hot.as_ref().map(|hot| &hot.rows).filter(|_| minibatch.inputs != Inputs::Cold);
        gradients.finish(context, lane, minibatch, ids, |messages| {
            tables.update_rows(context, ids, messages, own, hot, step_sizes);
        })
    })
}

/// Weights of layers and replicated tables, where their gradients are reduced.
fn update_dense(rank: &mut Rank, step_sizes: StepSizes) -> Result<()> {
    let Rank { context, network, tables, reduction, clock, .. } = rank;
    reduction.update(UpdateContext { team: &context.team, network: &mut **network, tables, clock, step_sizes })
}
