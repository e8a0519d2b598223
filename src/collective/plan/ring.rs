//! `ring`: R - 1 rounds in which every rank sends one slice to its successor, so that each link of the ring carries
//! (R - 1) / R of the tensor and no other link is used.
//!
//! Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.

use super::{Flow, Reduction};
use crate::base::RankId;
use crate::machine::Site;

/// The order in which a ring visits the ranks: on machines whose links form one, successors should be neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring(Vec<usize>);

impl Ring {
    /// 0, 1, 2 … and back to 0.
    ///
    /// # Panics
    /// When there is no rank.
    #[must_use]
    pub fn of(ranks: usize) -> Self {
        Self::through((0..ranks).collect())
    }

    /// In this order.
    ///
    /// # Panics
    /// When it does not visit each rank once.
    #[must_use]
    pub fn through(order: Vec<usize>) -> Self {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(
            !order.is_empty() && sorted.iter().copied().eq(0..order.len()),
            "a ring visits each rank once: {order:?}"
        );
        Self(order)
    }

    /// From neighbour to neighbour of a site where its links form such a ring and it is soon found; else as
    /// [`Ring::of`].
    ///
    /// # Panics
    /// When there is no rank.
    #[must_use]
    pub fn along(site: &Site) -> Self {
        /// Ranks that are tried in some place of the ring, at most.
        const TRIES: usize = 1 << 16;
        let ranks = site.ranks.len();
        let neighbours = |from: usize, to: usize| {
            let [from, to] = [from, to].map(|rank| RankId(rank as u32));
            site.neighbour_gb_s(from, to).is_some()
        };
        let mut order = vec![0];
        let mut next = vec![1];
        for _ in 0..TRIES {
            let Some(last) = order.last().copied() else { break };
            let free = |rank: &usize| neighbours(last, *rank) && !order.contains(rank);
            if order.len() == ranks && neighbours(last, order[0]) {
                return Self::through(order);
            }
            let depth = next.len() - 1;
            match (next[depth]..ranks).find(free) {
                Some(rank) => {
                    next[depth] = rank + 1;
                    order.push(rank);
                    next.push(0);
                }
                None => {
                    order.pop();
                    next.pop();
                }
            }
        }
        Self::of(ranks)
    }

    /// The other way around.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self(self.0.iter().rev().copied().collect())
    }

    /// How many ranks it visits.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.0.len()
    }

    /// The rounds of one way of every slice. Slice s sets out at its owner's successor and arrives at its owner, each
    /// rank on its way adding its own part.
    pub(super) fn rounds(&self, way: usize) -> Vec<Vec<Flow>> {
        let ranks = self.0.len();
        let flow = |round: usize, at: usize| {
            let [from, to, owner] = [at, at + 1, at + 2 * ranks - 1 - round].map(|at| self.0[at % ranks]);
            Flow { from, to, owner, ways: way..way + 1 }
        };
        (0..ranks - 1).map(|round| (0..ranks).map(|at| flow(round, at)).collect()).collect()
    }
}

/// Around this ring.
#[must_use]
pub fn ring(order: &Ring) -> Reduction {
    Reduction::new("ring", order.ranks(), 1, order.rounds(0))
}
