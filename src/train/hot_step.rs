//! The stages of the corridor that there are for hot rows alone, of which every rank has a copy: sums of their
//! gradients, to the owners, and rows that owners have moved, to all copies.
//!
//! Without copies of hot rows they do nothing. Cold inputs read no copy: their stages leave copies behind their rows,
//! until inputs come that read them.

use super::Clock;
use super::copies::{CopyState, HotState};
use super::rank::Rank;
use crate::base::Result;
use crate::data::hot::Inputs;
use crate::exchange::{HotLanes, Minibatch, RankContext};
use crate::model::{Stage, Tables};

/// Before look-ups read them: copies of hot rows that are not equal to their rows. No step sends this.
pub(super) fn refresh_copies(rank: &mut Rank) -> Result<()> {
    let Rank { context, tables, hot, clock, .. } = rank;
    let Some(hot) = hot else { return Ok(()) };
    match std::mem::take(&mut hot.state) {
        CopyState::Fresh => return Ok(()),
        CopyState::Stale => {}
        CopyState::Overwritten => tables.mark_all_hot(&context.layout),
    }
    let before = hot.lanes.rows.sent().to_vec();
    send_marked_rows(context, tables, hot, clock)?;
    let sent = hot.lanes.rows.sent().iter().zip(&before);
    hot.filled.iter_mut().zip(sent).for_each(|(filled, (after, before))| *filled += after - before);
    Ok(())
}

/// Before rows are moved: sums of hot rows' gradients, from each rank to the owners, unless they have gone bag by bag.
pub(super) fn sum_gradients(rank: &mut Rank, minibatch: &Minibatch) -> Result<()> {
    let Rank { context, network, tables, ids, hot, clock, .. } = rank;
    let Some(HotState { rows, lanes: HotLanes { gradients: Some(lane), .. }, .. }) = hot else { return Ok(()) };
    if minibatch.inputs == Inputs::Cold {
        return Ok(());
    }
    clock.exchange([Stage::PackGradients, Stage::WaitGradients], &mut **lane, |lane| {
        tables.sum_hot(context, ids, network.features(minibatch.slice.samples()), rows);
        rows.exchange_sums(context, lane)
    })
}

/// After rows were moved: the hot ones among them, from their owners to all copies; after cold inputs copies stay
/// behind.
pub(super) fn send_moved_rows(rank: &mut Rank, minibatch: &Minibatch) -> Result<()> {
    let Rank { context, tables, ids, hot, clock, .. } = rank;
    let Some(hot) = hot else { return Ok(()) };
    let is_cold = minibatch.inputs == Inputs::Cold;
    clock.time(Stage::UpdateRows, || {
        tables.mark_hot(context, (ids, &minibatch.slice), Some(&hot.rows).filter(|_| !is_cold));
    });
    if !is_cold {
        return send_marked_rows(context, tables, hot, clock);
    }
    if hot.state == CopyState::Fresh {
        hot.state = CopyState::Stale;
    }
    Ok(())
}

/// Hot rows that are marked, from their owners to all copies.
fn send_marked_rows(
    context: &RankContext,
    tables: &mut Tables,
    HotState { rows, lanes, .. }: &mut HotState,
    clock: &mut Clock,
) -> Result<()> {
    clock.exchange([Stage::UpdateRows, Stage::WaitRows], &mut *lanes.rows, |lane| {
        tables.list_hot(context, rows);
        rows.exchange_rows(&context.team, lane)?;
        tables.take_hot(context, rows);
        Ok(())
    })
}
