//! The stages of the corridor that there are for hot rows alone, of which every rank has a copy: sums of their
//! gradients, to the owners, and rows that owners have moved, to all copies.
//!
//! Without copies of hot rows they do nothing. Cold inputs read no copy: their stages leave copies behind their rows,
//! until inputs come that read them.

use super::rank::{CopyState, Rank};
use crate::base::Result;
use crate::data::hot::Inputs;
use crate::exchange::Minibatch;
use crate::model::Stage;

/// Before look-ups read them: copies of hot rows that are not equal to their rows. No step sends this.
pub(super) fn refresh_copies(rank: &mut Rank) -> Result<()> {
    match std::mem::take(&mut rank.copies) {
        CopyState::Fresh => return Ok(()),
        CopyState::Stale => {}
        CopyState::Overwritten => rank.tables.mark_all_hot(&rank.context.layout),
    }
    let sent = |rank: &Rank| rank.lanes.hot_rows.as_ref().map_or_else(Vec::new, |lane| lane.sent().to_vec());
    let before = sent(rank);
    send_marked_rows(rank)?;
    let after = sent(rank);
    rank.filled
        .iter_mut()
        .zip(after.iter().zip(&before))
        .for_each(|(filled, (after, before))| *filled += after - before);
    Ok(())
}

/// Before rows are moved: sums of hot rows' gradients, from each rank to the owners, unless they have gone bag by bag.
pub(super) fn sum_gradients(rank: &mut Rank, minibatch: &Minibatch) -> Result<()> {
    let Rank { context, network, tables, ids, hot, lanes, clock, .. } = rank;
    let (Some(hot), Some(lane)) = (hot, &mut lanes.hot_gradients) else { return Ok(()) };
    if minibatch.inputs == Inputs::Cold {
        return Ok(());
    }
    clock.exchange([Stage::PackGradients, Stage::WaitGradients], &mut **lane, |lane| {
        tables.sum_hot(context, ids, network.features(minibatch.slice.samples()), hot);
        hot.exchange_sums(context, lane)
    })
}

/// After rows were moved: the hot ones among them, from their owners to all copies; after cold inputs copies stay
/// behind.
pub(super) fn send_moved_rows(rank: &mut Rank, minibatch: &Minibatch) -> Result<()> {
    let Rank { context, tables, ids, hot, copies, clock, .. } = rank;
    let Some(hot) = hot else { return Ok(()) };
    let is_cold = minibatch.inputs == Inputs::Cold;
    clock.time(Stage::UpdateRows, || {
        tables.mark_hot(context, (ids, &minibatch.slice), Some(&*hot).filter(|_| !is_cold));
    });
    if !is_cold {
        return send_marked_rows(rank);
    }
    if *copies == CopyState::Fresh {
        *copies = CopyState::Stale;
    }
    Ok(())
}

/// Hot rows that are marked, from their owners to all copies.
fn send_marked_rows(rank: &mut Rank) -> Result<()> {
    let Rank { context, tables, hot, lanes, clock, .. } = rank;
    let (Some(hot), Some(lane)) = (hot, &mut lanes.hot_rows) else { return Ok(()) };
    clock.exchange([Stage::UpdateRows, Stage::WaitRows], &mut **lane, |lane| {
        tables.list_hot(context, hot);
        hot.exchange_rows(&context.team, lane)?;
        tables.take_hot(context, hot);
        Ok(())
    })
}
