//! What ranks send each other of tables in a step: ids, pooled rows and their gradients.
//!
//! A rank reads its own slice of the minibatch. It sends the ids of its samples to the owners of rows ([`Ids`]); owners
//! pool what they have straight into the windows of the ranks that asked ([`Pooled`]); gradients of pooled rows go back
//! the same way ([`Gradients`]). Replicated tables ([`Replicas`]), of which every rank has a copy, move by the
//! gradients of all. Routes and shards are in the [`Layout`]. Layers are `train/reduction`'s.
//!
//! Where the number of ranks and the division of tables shall change no bit, sums that depend on who has what get a
//! fixed order: rows of bags that several ranks hold travel unpooled, to be added in the bag's order ([`Unpooled`]),
//! and gradients of replicated rows go as they are, to be added in the order of samples.
//!
//! Where ranks have copies of hot rows ([`Layout::with_hot`]), bags of these alone are pooled at home: only other bags
//! travel ([`Vectors`]), and sums of gradients to the owners and rows back from them ([`HotRows`]).
//!
//! Owners of divided rows sum, whatever the model's pooling. Under mean pooling the sample's rank divides, because it
//! alone knows how long a bag is; the bits are those of one rank. Weights of look-ups go to the owners with the ids,
//! where a column has weights; nothing goes for other columns.
//!
//! Sources: SC20, IV; ids that travel instead of minibatches that everybody reads: Intel's MLPerf DLRM (2021).

mod context;
mod gradients;
mod hot;
mod ids;
mod layout;
mod messages;
mod pooled;
mod replicas;
mod row_gradients;
mod scan;
mod traffic;
mod unpooled;
mod vectors;

pub use context::{Minibatch, RankContext};
pub use gradients::Gradients;
pub use hot::{HotRows, MovedRows};
pub use ids::Ids;
pub use layout::{Group, HotCopies, Layout, LayoutSpec};
pub use pooled::Pooled;
pub use replicas::{Replicas, replica_groups};
pub use row_gradients::RowListPart;
pub use scan::{Counters, exclusive_scan_table};
pub use traffic::Traffic;
pub use unpooled::Unpooled;
pub use vectors::Vectors;

use crate::base::RankId;
use crate::collective::{LaneSpec, Links};
use crate::sync::Line;

/// One of something for each lane that a job's ranks need: what it must carry, or a rank's end of it.
#[derive(Debug, Clone)]
pub struct LanePlan<T> {
    /// Those that every step uses.
    pub step: Lanes<T>,
    /// Where there are hot rows.
    pub hot: Option<HotLanes<T>>,
    /// For [`Replicas`], where there are any: around a ring.
    pub replicas: Option<T>,
    /// For the reduction of dense gradients, one a thread that takes part.
    pub dense: Vec<T>,
}

/// The lanes of a plan that every step uses.
#[derive(Debug, Clone)]
pub struct Lanes<T> {
    /// For [`Ids`].
    pub ids: T,
    /// For [`Pooled`].
    pub pooled: T,
    /// For [`Gradients`].
    pub gradients: T,
    /// For [`Unpooled`], where the number of ranks changes no bit.
    pub unpooled: Option<T>,
}

/// The lanes of a plan that [`HotRows`] need.
#[derive(Debug, Clone)]
pub struct HotLanes<T> {
    /// For their gradients, unless these go with others.
    pub gradients: Option<T>,
    /// For the rows that have moved.
    pub rows: T,
}

/// Bytes of a message of ids or of dense gradients, at most; what is longer goes in pieces.
const PIECE: usize = 256 << 10;

/// Bytes of a message of hot rows or of their gradients' sums, at most: these are copied by whole teams, each of whose
/// threads so has some pages for the time that it takes them to begin and end together. Among many ranks (more than 32,
/// or 22 of 64 threads each) pieces are so short that one thread copies them.
const LIST: usize = 1 << 20;

/// Bytes of a message between the ranks of one of so many pairs: pieces become smaller, so that the windows of all
/// pairs of a machine together take no more than those of 8 ranks, until they are a page.
#[must_use]
pub const fn piece_of_pairs(pairs: usize) -> usize {
    part_of_pairs(PIECE, pairs)
}

/// The same of a message of so many bytes between any two of 8 ranks.
const fn part_of_pairs(bytes: usize, pairs: usize) -> usize {
    let shared = bytes * 64 / if pairs > 64 { pairs } else { 64 };
    if shared < 4096 { 4096 } else { shared / Line::BYTES * Line::BYTES }
}

impl<T> LanePlan<T> {
    /// The same lanes, with what each becomes: one after the other, in an order that the plan alone decides.
    pub fn map<U>(self, mut each: impl FnMut(T) -> U) -> LanePlan<U> {
        LanePlan {
            step: Lanes {
                ids: each(self.step.ids),
                pooled: each(self.step.pooled),
                gradients: each(self.step.gradients),
                unpooled: self.step.unpooled.map(&mut each),
            },
            hot: self
                .hot
                .map(|HotLanes { gradients, rows }| HotLanes { gradients: gradients.map(&mut each), rows: each(rows) }),
            replicas: self.replicas.map(&mut each),
            dense: self.dense.into_iter().map(each).collect(),
        }
    }
}

impl LanePlan<LaneSpec> {
    /// For minibatches of up to `batch` samples; `dense` says how long the messages of a thread's dense reduction are.
    /// Of several machines, one has windows for up to so many `pairs` of ranks: all say the same number, since what
    /// ranks of two machines send each other goes in pieces of one size.
    #[must_use]
    pub fn new(layout: &Layout, (batch, pairs): (usize, usize), dense: Vec<Links>) -> Self {
        let ranks = layout.ranks();
        let list =
            |bytes: usize| bytes.next_multiple_of(Line::BYTES).clamp(piece_of_pairs(pairs), part_of_pairs(LIST, pairs));
        let together = |bytes: &dyn Fn(RankId, RankId) -> usize| LaneSpec::together(Links::from_fn(ranks, bytes));
        let sums = || together(&|from, to| list(hot::sum_bytes(layout, batch, from, to)));
        let rows = || {
            let of: Vec<usize> = RankId::all(ranks).map(|owner| hot::row_bytes(layout, batch, owner)).collect();
            together(&|from, _| list(of[from.index()]))
        };
        let vectors = |pass| {
            let elements = |from, to| row_elements(layout, batch, Route::of(pass, from, to));
            together(&|from, to| elements(from, to) * layout.wire().bytes())
        };
        Self {
            step: Lanes {
                ids: together(&|from, to| ids::expected(layout, batch, from, to).clamp(64, PIECE)),
                pooled: vectors(Pass::Forward),
                gradients: vectors(Pass::Backward),
                unpooled: layout.grains().map(|_| together(&|_, _| piece_of_pairs(pairs))),
            },
            hot: layout.hot().map(|_| HotLanes { gradients: layout.grains().is_none().then(sums), rows: rows() }),
            replicas: (!layout.replicated().is_empty()).then(|| {
                let next = |from: RankId| (from.index() + 1) % ranks;
                LaneSpec::at_once(Links::from_fn(ranks, |from, to| if to.index() == next(from) { PIECE } else { 0 }))
            }),
            dense: dense.into_iter().map(|links| LaneSpec::at_once(links.map(|bytes| bytes.min(PIECE)))).collect(),
        }
    }
}

/// Who exchange vectors: the owner of rows, and the rank that asks it for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Has the rows.
    pub owner: RankId,
    /// Has the samples that look them up.
    pub asking: RankId,
}

/// What travels on a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Pooled rows, from the owner.
    Forward,
    /// Their gradients, to the owner.
    Backward,
}

impl Route {
    /// From a rank to itself: in rows that are divided.
    #[must_use]
    pub const fn own(rank: RankId) -> Self {
        Self { owner: rank, asking: rank }
    }

    /// On which a message goes from a rank to another in a pass.
    #[must_use]
    pub const fn of(pass: Pass, from: RankId, to: RankId) -> Self {
        match pass {
            Pass::Forward => Self { owner: from, asking: to },
            Pass::Backward => Self { owner: to, asking: from },
        }
    }
}

/// Bytes of the last message on a route, one end of which is the rank that `ids` are of, in a minibatch of `whole`
/// samples, as they go over the wire: whole lines.
#[must_use]
pub fn message_bytes(layout: &Layout, ids: &Ids, whole: usize, pass: Pass, route: Route) -> usize {
    let elements = ids.vectors(route, pass).elements(layout.samples(whole, route.asking));
    (elements * layout.wire().bytes()).next_multiple_of(Line::BYTES)
}

/// Elements of pooled rows on a route, at most: a row of the owner's stride a sample of the rank that asks.
fn row_elements(layout: &Layout, batch: usize, Route { owner, asking }: Route) -> usize {
    layout.samples(batch, asking) * layout.of(owner).stride
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_all_pairs_of_a_machine_take_no_more_than_those_of_8_ranks() {
        // Of 2, 8, 16 and 64 ranks of one machine, and of 8 on each of 8 machines.
        let found = [4, 64, 256, 4096, 960].map(piece_of_pairs);
        assert_eq!(found, [PIECE, PIECE, 64 << 10, 4 << 10, 17_472]);
    }
}
