//! `multi-ring`: rings that share no direction of a link, each with an equal part of every slice. Where they take all links,
//! as three of them do on the twisted hypercube of eight sockets, none is ever idle.
//!
//! The published code of SC20 has two rings there, 0-1-2-4-7-6-5-3 and its reverse, which leave a third of the links idle.

use super::{Reduction, Ring};
use crate::base::RankId;
use crate::machine::Site;

/// Ranks that are tried in some place of some ring, at most.
const TRIES: usize = 1 << 16;

/// As many rings through all ranks of a site as are soon found, whose steps lead to neighbours and share no wire.
#[must_use]
pub fn disjoint_rings(site: &Site) -> Vec<Ring> {
    let ranks = site.ranks.len();
    let way = |from: usize, to: usize| {
        let [from, to] = [from, to].map(|rank| RankId(rank as u32));
        site.neighbour_gb_s(from, to).map(|_| site.path(from, to))
    };
    let ways = (0..ranks).map(|from| (0..ranks).map(|to| way(from, to)).collect()).collect();
    let mut search = Search { ways, taken: vec![false; site.wires.len()], tries: TRIES, best: Vec::new() };
    if ranks > 1 {
        search.rings(&mut Vec::new(), &mut vec![0]);
    }
    search.best.into_iter().map(Ring::through).collect()
}

/// Around all these rings.
///
/// # Panics
/// When there is no ring, or they go through different ranks.
#[must_use]
pub fn multi_ring(rings: &[Ring]) -> Reduction {
    let mut rounds = vec![Vec::new(); rings[0].ranks() - 1];
    for (way, ring) in rings.iter().enumerate() {
        assert_eq!(ring.ranks(), rings[0].ranks(), "rings through the same ranks");
        rounds.iter_mut().zip(ring.rounds(way)).for_each(|(round, flows)| round.extend(flows));
    }
    Reduction::new("multi-ring", rings[0].ranks(), rings.len(), rounds)
}

struct Search<'a> {
    /// The wires from each rank to each neighbour.
    ways: Vec<Vec<Option<&'a [usize]>>>,
    taken: Vec<bool>,
    tries: usize,
    /// The most rings so far.
    best: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Further rings, of which the next begins with these ranks; whether there cannot be more.
    fn rings(&mut self, found: &mut Vec<Vec<usize>>, ring: &mut Vec<usize>) -> bool {
        let (ranks, last) = (self.ways.len(), ring[ring.len() - 1]);
        if ring.len() == ranks {
            if !self.take(last, ring[0]) {
                return false;
            }
            found.push(ring.clone());
            if found.len() > self.best.len() {
                self.best.clone_from(found);
            }
            let ends = self.best.len() == self.most() || self.rings(found, &mut vec![0]);
            found.pop();
            self.give(last, ring[0]);
            return ends;
        }
        for next in 1..ranks {
            if self.tries == 0 {
                return true;
            }
            if ring.contains(&next) || !self.take(last, next) {
                continue;
            }
            self.tries -= 1;
            ring.push(next);
            let ends = self.rings(found, ring);
            ring.pop();
            self.give(last, next);
            if ends {
                return true;
            }
        }
        false
    }

    /// Whether all wires to a neighbour are free; then they are taken.
    fn take(&mut self, from: usize, to: usize) -> bool {
        let Some(way) = self.ways[from][to].filter(|way| way.iter().all(|wire| !self.taken[*wire])) else {
            return false;
        };
        way.iter().for_each(|wire| self.taken[*wire] = true);
        true
    }

    fn give(&mut self, from: usize, to: usize) {
        self.ways[from][to].into_iter().flatten().for_each(|wire| self.taken[*wire] = false);
    }

    /// Every ring leaves every rank by another neighbour; among the ranks of one node, one ring is as good as several.
    fn most(&self) -> usize {
        let leaving = |ways: &Vec<Option<&[usize]>>| ways.iter().flatten().filter(|way| !way.is_empty()).count();
        self.ways.iter().map(leaving).min().unwrap_or(1).max(1)
    }
}
