//! `multi-ring`: rings that share no direction of a link, each with an equal part of every slice. Where rings take all
//! links, as four do among five ranks that are all linked, none is ever idle.
//!
//! On the twisted hypercube of eight sockets two are the most, which leave a third of the links idle: no three of its
//! ten directed rings are disjoint. The published code of SC20 has two there, 0-1-2-4-7-6-5-3 and its reverse.

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
    /// Further rings, of which the next begins with these ranks; whether the search ends.
    fn rings(&mut self, found: &mut Vec<Vec<usize>>, ring: &mut Vec<usize>) -> bool {
        let (ranks, last) = (self.ways.len(), ring[ring.len() - 1]);
        if ring.len() == ranks {
            if !self.take(last, ring[0]) {
                return false;
            }
            // Most likely nobody has taken its reverse.
            let back: Vec<usize> = ring.iter().rev().copied().collect();
            let ends = found.len() + 1 < self.most() && self.take_ring(&back) && {
                let ends = self.with(found, &[ring, &back]);
                self.give_ring(&back, ranks);
                ends
            };
            let ends = ends || self.with(found, &[ring]);
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

    /// Goes on with these rings, too, whose wires are taken; whether the search ends.
    fn with(&mut self, found: &mut Vec<Vec<usize>>, rings: &[&Vec<usize>]) -> bool {
        let before = found.len();
        found.extend(rings.iter().map(|ring| (*ring).clone()));
        if found.len() > self.best.len() {
            self.best.clone_from(found);
        }
        let ends = self.best.len() >= self.most() || self.rings(found, &mut vec![0]);
        found.truncate(before);
        ends
    }

    /// Whether all wires of a ring are free; then they are taken.
    fn take_ring(&mut self, ring: &[usize]) -> bool {
        let next = |at: usize| ring[(at + 1) % ring.len()];
        match (0..ring.len()).find(|at| !self.take(ring[*at], next(*at))) {
            Some(steps) => {
                self.give_ring(ring, steps);
                false
            }
            None => true,
        }
    }

    /// Gives back the wires of the first steps of a ring.
    fn give_ring(&mut self, ring: &[usize], steps: usize) {
        (0..steps).for_each(|at| self.give(ring[at], ring[(at + 1) % ring.len()]));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Search among ranks where each of these pairs has a wire each way.
    fn rings(ranks: usize, pairs: &[(usize, usize)]) -> Vec<Vec<usize>> {
        let wires: Vec<[usize; 1]> = (0..2 * pairs.len()).map(|wire| [wire]).collect();
        let mut ways = vec![vec![None; ranks]; ranks];
        for (link, &(a, b)) in pairs.iter().enumerate() {
            ways[a][b] = Some(&wires[2 * link][..]);
            ways[b][a] = Some(&wires[2 * link + 1][..]);
        }
        let mut search = Search { ways, taken: vec![false; wires.len()], tries: TRIES, best: Vec::new() };
        search.rings(&mut Vec::new(), &mut vec![0]);
        assert!(search.taken.iter().all(|taken| !taken) || search.tries == 0);
        search.best
    }

    #[test]
    fn rings_are_as_many_as_can_be_disjoint() {
        let all: Vec<(usize, usize)> = (0..5).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
        let torus = |at: usize| [(at, at / 4 * 4 + (at + 1) % 4), (at, (at + 4) % 16)];
        let torus: Vec<(usize, usize)> = (0..16).flat_map(torus).collect();
        let twisted = [(0, 1), (2, 3), (4, 5), (6, 7), (0, 3), (1, 2), (4, 7), (5, 6), (0, 7), (1, 6), (2, 4), (3, 5)];
        for (ranks, pairs, wanted) in
            [(2, &[(0, 1)][..], 1), (3, &[(0, 1), (1, 2)], 0), (5, &all, 4), (8, &twisted, 2), (16, &torus, 2)]
        {
            let found = rings(ranks, pairs);
            assert!(found.len() >= wanted && (ranks > 8 || found.len() == wanted), "{ranks} ranks: {found:?}");
            let mut steps: Vec<[usize; 2]> = found
                .iter()
                .flat_map(|ring| (0..ranks).map(move |at| [ring[at], ring[(at + 1) % ranks]]))
                .inspect(|[a, b]| assert!(pairs.contains(&(*a, *b)) || pairs.contains(&(*b, *a))))
                .collect();
            steps.sort_unstable();
            steps.dedup();
            assert_eq!(steps.len(), found.len() * ranks, "no step is in two rings");
        }
    }
}
