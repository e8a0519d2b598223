//! What ranks send each other in a step: ids, pooled rows, their gradients, and the dense gradients.
//!
//! A rank reads its own slice of the minibatch. It sends the ids of its samples to the owners of rows ([`Ids`]); owners
//! pool what they have straight into the windows of those who asked ([`Pooled`]); gradients of pooled rows go back the
//! same way ([`Gradients`]). What every rank has a copy of moves by the sum of all gradients: layers ([`LayerExchange`])
//! and replicated tables ([`Dense`]). Routes and shards are in the [`Layout`].
//!
//! Owners always sum. Under mean pooling the sample's rank divides, because it alone knows how long a bag is when the
//! rows are divided; the bits are those of one rank. Weights of look-ups go to the owners with the ids, where a column
//! has weights; nothing goes for other columns.
//!
//! Sources: SC20, IV; ids that travel instead of minibatches that everybody reads: Intel's MLPerf DLRM (2021).

mod dense;
mod gradients;
mod ids;
mod layers;
mod layout;
mod ordered;
mod pooled;
mod traffic;
mod words;

pub use dense::{Dense, Pieces};
pub use gradients::Gradients;
pub use ids::Ids;
pub use layers::{LayerExchange, Share, shares};
pub use layout::{Group, Holding, Layout, Stream};
pub use ordered::{Ordered, Rest};
pub use pooled::Pooled;
pub use traffic::Traffic;

use crate::base::RankId;
use crate::collective::{Links, Parcels};
use crate::data::Bag;
use crate::embedding::Slots;
use crate::machine::team::Team;
use crate::sync::Rows;

/// The sizes of the lanes that an exchange needs, for minibatches of up to `batch` samples: the one of [`Ids`], of
/// [`Pooled`] and of [`Gradients`], then `hands` for [`LayerExchange`], the first of them also for [`Dense`], and last of
/// [`Ordered`] where sums are cut into grains.
#[must_use]
pub fn lanes(layout: &Layout, batch: usize, hands: usize) -> Vec<Links> {
    /// Bytes of a message of ids or of dense gradients; what is longer goes in pieces.
    const PIECE: usize = 256 << 10;
    let ranks = layout.ranks();
    let (mut pooled, mut gradients) = (Links::uniform(ranks, 0), Links::uniform(ranks, 0));
    for (from, to) in pairs(ranks) {
        let bytes = layout.samples(batch, to) * layout.of(from).stride * size_of::<f32>();
        *pooled.at_mut(from, to) = bytes;
        *gradients.at_mut(to, from) = bytes;
    }
    let pieces = std::iter::repeat_n(Links::uniform(ranks, PIECE), hands);
    let ordered = layout.grains().map(|_| Links::uniform(ranks, PIECE));
    [Links::uniform(ranks, PIECE), pooled, gradients].into_iter().chain(pieces).chain(ordered).collect()
}

fn pairs(ranks: usize) -> impl Iterator<Item = (RankId, RankId)> {
    let rank = |at: usize| RankId(at as u32);
    (0..ranks * ranks).map(move |at| (rank(at / ranks), rank(at % ranks))).filter(|(from, to)| from != to)
}

/// The messages of pooled rows: from each rank one to each, a row of `stride` elements a sample of the receiver.
fn pooled_parcels(layout: &Layout, batch: usize) -> Parcels {
    let ranks = (0..layout.ranks() as u32).map(RankId);
    let source = |owner: RankId| {
        let stride = layout.of(owner).stride;
        (owner, ranks.clone().map(|to| layout.samples(batch, to) * stride).collect())
    };
    Parcels::new(layout.ranks(), &ranks.clone().map(source).collect::<Vec<_>>())
}

/// The messages of gradients: those of [`pooled_parcels`], the other way.
fn gradient_parcels(layout: &Layout, batch: usize) -> Parcels {
    let ranks = (0..layout.ranks() as u32).map(RankId);
    let source = |from: RankId| {
        let samples = layout.samples(batch, from);
        (from, ranks.clone().map(|to| samples * layout.of(to).stride).collect())
    };
    Parcels::new(layout.ranks(), &ranks.clone().map(source).collect::<Vec<_>>())
}

/// Multiplies each sample's vector of one table with the part that a look-up has in the sample's bag; empty bags stay.
pub fn average(team: &Team, features: &mut [f32], slots: Slots, dim: usize, table: usize, bag: &Bag) {
    let first = slots.first + table * dim;
    team.each(Rows::new(features, slots.row, team.threads(), 1), |band| {
        for (sample, row) in (band.first..).zip(band.data.chunks_exact_mut(slots.row)) {
            let count = bag.of(sample).len();
            // The part that the embedding floor computes too; by 1 nothing changes.
            let part = 1.0 / count as f32;
            if count > 1 {
                row[first..first + dim].iter_mut().for_each(|x| *x *= part);
            }
        }
    });
}
