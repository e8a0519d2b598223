//! The corridor: one minibatch from its samples to moved weights, on each of 1 to n ranks, every stage named once.
//!
//! Each rank walks its own slice. A rank that is alone has no peers to exchange with: its rows are pooled straight into
//! the features, nothing is copied, and nothing waits. Rows are looked up, exchanged and moved for the whole slice; the
//! network takes it in parts, each forward and back before the next. Where a minibatch is of hot inputs alone
//! ([`Inputs`]), no rank asks another for rows.

use super::rank::{CopyState, Rank};
use super::reduction::Scene;
use crate::base::Result;
use crate::data::hot::Inputs;
use crate::model::Stage;
use crate::optim::StepSizes;

/// Trains on this rank's slice of a minibatch of `whole` samples; leaves the losses of its own.
pub(super) fn step(rank: &mut Rank, whole: usize, step_sizes: StepSizes) -> Result<()> {
    look_up(rank, whole)?;
    for part in 0..rank.parts.count() {
        forward(rank, whole, part)?;
        backward(rank, whole, part, step_sizes)?;
    }
    sum_hot(rank)?;
    let Rank { layout, team, network, tables, ids, gradients, hot, lanes, batch, inputs, clock, .. } = rank;
    clock.exchange([Stage::UpdateRows, Stage::WaitGradients], &mut *lanes.gradients, |lane| {
        let own = (&**batch, network.features(batch.samples()));
        let hot = hot.as_ref().filter(|_| *inputs != Inputs::Cold);
        gradients.finish(team, layout, lane, ids, |messages| {
            tables.update_rows(team, (layout, ids), messages, own, hot, step_sizes);
        })
    })?;
    send_moved_hot_rows(rank)?;

    let Rank { team, network, tables, reduction, clock, .. } = rank;
    reduction.update(Scene { team, network: &mut **network, tables, step_sizes, clock })?;
    clock.step_done();
    Ok(())
}

/// The way to the loss alone: all of an evaluation.
pub(super) fn evaluate(rank: &mut Rank, whole: usize) -> Result<()> {
    look_up(rank, whole)?;
    (0..rank.parts.count()).try_for_each(|part| forward(rank, whole, part))
}

/// Sums of hot rows' gradients, from each rank to the owners, unless they have gone bag by bag.
fn sum_hot(rank: &mut Rank) -> Result<()> {
    let Rank { layout, team, network, tables, ids, hot, lanes, batch, inputs, clock, .. } = rank;
    let (Some(hot), Some(lane)) = (hot, &mut lanes.hot_gradients) else { return Ok(()) };
    if *inputs == Inputs::Cold {
        return Ok(());
    }
    clock.exchange([Stage::PackGradients, Stage::WaitGradients], &mut **lane, |lane| {
        tables.sum_hot(team, layout, ids, network.features(batch.samples()), hot);
        hot.exchange_sums(layout, lane)
    })
}

/// Copies of hot rows that are not equal to their rows, before look-ups read them: no step sends this.
pub(super) fn refresh_hot_copies(rank: &mut Rank) -> Result<()> {
    match std::mem::take(&mut rank.copies) {
        CopyState::Fresh => return Ok(()),
        CopyState::Stale => {}
        CopyState::Overwritten => rank.tables.mark_all_hot(&rank.layout),
    }
    let sent = |rank: &Rank| rank.lanes.hot_rows.as_ref().map_or_else(Vec::new, |lane| lane.sent().to_vec());
    let before = sent(rank);
    send_marked_hot_rows(rank)?;
    let after = sent(rank);
    rank.filled
        .iter_mut()
        .zip(after.iter().zip(&before))
        .for_each(|(filled, (after, before))| *filled += after - before);
    Ok(())
}

/// Hot rows that a step has moved, from their owners to all copies; after cold inputs copies stay behind.
fn send_moved_hot_rows(rank: &mut Rank) -> Result<()> {
    let Rank { layout, team, tables, ids, hot, batch, inputs, copies, clock, .. } = rank;
    let Some(hot) = hot else { return Ok(()) };
    let is_cold = *inputs == Inputs::Cold;
    clock.time(Stage::UpdateRows, || {
        tables.mark_hot(team, layout, (ids, batch), Some(&*hot).filter(|_| !is_cold));
    });
    if !is_cold {
        return send_marked_hot_rows(rank);
    }
    if *copies == CopyState::Fresh {
        *copies = CopyState::Stale;
    }
    Ok(())
}

/// Hot rows that are marked, from their owners to all copies.
fn send_marked_hot_rows(rank: &mut Rank) -> Result<()> {
    let Rank { layout, tables, hot, lanes, clock, .. } = rank;
    let (Some(hot), Some(lane)) = (hot, &mut lanes.hot_rows) else { return Ok(()) };
    clock.exchange([Stage::UpdateRows, Stage::WaitRows], &mut **lane, |lane| {
        tables.list_hot(layout, hot);
        hot.exchange_rows(lane)?;
        tables.take_hot(layout, hot);
        Ok(())
    })
}

/// Rows of the whole slice: sent for, pooled for others, pooled for this rank's own samples.
fn look_up(rank: &mut Rank, whole: usize) -> Result<()> {
    rank.steps += 1;
    rank.enter("forward");
    if rank.inputs != Inputs::Cold {
        refresh_hot_copies(rank)?;
    }
    let Rank {
        layout,
        team,
        network,
        tables,
        ids,
        pooled,
        unpooled,
        reduction,
        lanes,
        batch,
        inputs,
        parts,
        clock,
        ..
    } = rank;
    parts.cut(batch.samples(), whole);

    clock.exchange([Stage::PackIds, Stage::WaitIds], &mut *lanes.ids, |lane| {
        ids.exchange(team, layout, lane, (batch, *inputs), whole)
    })?;
    clock.exchange([Stage::LookUp, Stage::WaitRows], &mut *lanes.pooled, |lane| {
        pooled.begin(team, layout, lane, (ids, whole), |to, message| tables.look_up(team, layout, ids, to, message))
    })?;
    if let (Some(unpooled), Some(lane)) = (&mut *unpooled, &mut lanes.unpooled) {
        clock.exchange([Stage::LookUp, Stage::WaitRows], &mut **lane, |lane| {
            unpooled.exchange(layout, lane, (ids, batch), |shard, bag, rows| {
                tables.look_up_unpooled(team, layout, shard, bag, rows);
            })
        })?;
    }

    // Pooled rows travel while this rank pools its own and the bottom MLP runs.
    clock.time(Stage::LookUp, || {
        let (features, partial) = (network.features_mut(batch.samples()), pooled.own_mut(layout, ids));
        tables.look_up_own(team, layout, ids, batch, features, partial);
    });
    reduction.complete(&mut **network, clock)
}

/// A part's way to the loss; the first one joins the pooled rows of other ranks, of the whole slice.
fn forward(rank: &mut Rank, whole: usize, part: usize) -> Result<()> {
    rank.enter("forward");
    let Rank { layout, team, network, tables, ids, pooled, unpooled, lanes, batch, parts, clock, .. } = rank;
    let (is_first, part) = (part == 0, &parts.part(part));
    clock.time(Stage::Bottom, || network.bottom(team, batch, part));
    if is_first {
        clock.exchange([Stage::JoinRows, Stage::WaitRows], &mut *lanes.pooled, |lane| {
            let unpooled = unpooled.as_ref().map(|unpooled| (unpooled, &**batch));
            pooled.finish(team, layout, lane, (ids, network.features_mut(batch.samples())), unpooled)
        })?;
        clock.time(Stage::JoinRows, || {
            tables.divide_by_bag_lengths(team, layout, batch, network.features_mut(batch.samples()));
        });
    }

    clock.time(Stage::Interact, || network.interact(team, part));
    clock.time(Stage::Top, || network.top(team, batch, part));
    clock.time(Stage::Loss, || network.loss(team, batch, part, whole));
    Ok(())
}

/// A part's way back; the last one sends the gradients of pooled rows, of the whole slice.
fn backward(rank: &mut Rank, whole: usize, part: usize, step_sizes: StepSizes) -> Result<()> {
    rank.enter("backward");
    let Rank { layout, team, network, tables, ids, gradients, reduction, lanes, batch, parts, clock, .. } = rank;
    let part = &parts.part(part);

    // The reduction of each layer's gradient over the ranks begins as soon as the gradient is complete.
    clock.time(Stage::BackTop, || {
        network.back_top(team, part, &mut |index, layer| reduction.begin(index, layer, step_sizes[layer.group()]))
    });
    clock.time(Stage::BackInteract, || {
        network.back_interact(team, part, &mut |index, layer| reduction.begin(index, layer, step_sizes[layer.group()]));
    });

    // Gradients of pooled rows travel while the bottom MLP runs back.
    if part.is_last {
        clock.time(Stage::BackInteract, || {
            tables.divide_by_bag_lengths(team, layout, batch, network.features_mut(batch.samples()));
        });
        clock.time(Stage::UpdateRows, || {
            reduction.begin_replicas(team, tables, batch, network.features(batch.samples()));
        });
        clock.exchange([Stage::PackGradients, Stage::WaitGradients], &mut *lanes.gradients, |lane| {
            gradients.begin(team, layout, lane, (ids, whole), network.features(batch.samples()))
        })?;
    }
    clock.time(Stage::BackBottom, || {
        network.back_bottom(team, part, &mut |index, layer| reduction.begin(index, layer, step_sizes[layer.group()]));
    });
    Ok(())
}
