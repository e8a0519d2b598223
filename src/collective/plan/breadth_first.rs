//! `breadth-first`: as few rounds as the machine's links allow. In round t of the all-gather each rank receives the slices
//! of all ranks that are t links away, from neighbours that are a link nearer to them and have them since the round before;
//! each slice is divided among these neighbours so that the busiest link into the rank ends as early as possible. Only
//! links between neighbours are used, so where ranks see equally many others at each distance all links are always busy.
//!
//! Source: Zhao et al., Efficient direct-connect topologies for collective communications, arXiv 2202.03356, section 5.

use super::{Fold, Hop, Slices};
use crate::base::RankId;
use crate::collective::slices::GRAIN;
use crate::machine::Site;
use crate::machine::network::{Arc, max_flow};

/// Which part of a rank's slice comes to another from whom.
#[derive(Debug, Clone, PartialEq)]
struct Arrival {
    owner: usize,
    to: usize,
    /// Neighbours, each with its share; all shares together are 1.
    from: Vec<(usize, f64)>,
}

/// How slices spread over a machine's links.
#[derive(Debug, Clone, PartialEq)]
pub struct BreadthFirst {
    ranks: usize,
    /// What arrives in each round of the all-gather.
    rounds: Vec<Vec<Arrival>>,
}

impl BreadthFirst {
    /// Among the ranks of a site, whose slices are equal.
    #[must_use]
    pub fn of(site: &Site) -> Self {
        let ranks = site.ranks.len();
        let rank = |number: usize| RankId(number as u32);
        // 0: no neighbours.
        let width = |from: usize, to: usize| site.neighbour_gb_s(rank(from), rank(to)).unwrap_or(0.0);
        let widths: Vec<Vec<f64>> = (0..ranks).map(|from| (0..ranks).map(|to| width(from, to)).collect()).collect();
        let far: Vec<Vec<usize>> = (0..ranks).map(|owner| distances(&widths, owner)).collect();
        let last = far.iter().flatten().copied().max().unwrap_or(0);
        let round = |round: usize| {
            let arrivals = |to: usize| {
                let owners: Vec<usize> = (0..ranks).filter(|owner| far[*owner][to] == round).collect();
                let brings = |owner: usize, from: usize| far[owner][from] + 1 == round && widths[from][to] > 0.0;
                divide(&owners, to, &widths, brings)
            };
            (0..ranks).flat_map(arrivals).collect()
        };
        Self { ranks, rounds: (1..=last).map(round).collect() }
    }

    /// The rounds of the reduce-scatter: those of the all-gather from the last to the first, each hop turned round.
    pub(super) fn rounds(&self, slices: &Slices) -> Vec<Vec<Hop>> {
        assert_eq!(self.ranks, slices.ranks(), "a schedule for the ranks of the slices");
        let hops = |arrival: &Arrival| {
            let slice = slices.slice(arrival.owner);
            let lines = slice.len().div_ceil(GRAIN);
            let mut until = 0.0;
            let mut start = slice.start;
            let mut hops = Vec::new();
            for (at, (neighbour, share)) in arrival.from.iter().enumerate() {
                until += share;
                let is_last = at + 1 == arrival.from.len();
                let cut = (until * lines as f64).round() as usize * GRAIN;
                let end = if is_last { slice.end } else { (slice.start + cut).min(slice.end) };
                let (from, to) = (RankId(arrival.to as u32), RankId(*neighbour as u32));
                hops.push(Hop { from, to, source: start..end, target: start..end, fold: Fold::Add });
                start = end;
            }
            hops
        };
        self.rounds.iter().rev().map(|round| round.iter().flat_map(hops).collect()).collect()
    }
}

/// How many ways of neighbours lie between a rank and each.
fn distances(widths: &[Vec<f64>], owner: usize) -> Vec<usize> {
    let mut far = vec![usize::MAX; widths.len()];
    far[owner] = 0;
    let mut edge = std::collections::VecDeque::from([owner]);
    while let Some(here) = edge.pop_front() {
        for next in 0..widths.len() {
            if widths[here][next] > 0.0 && far[next] == usize::MAX {
                far[next] = far[here] + 1;
                edge.push_back(next);
            }
        }
    }
    far
}

/// Which neighbour brings how much of the slices of `owners`, so that the busiest way into a rank is as little busy as
/// possible: seconds are raised, by Newton's method on the narrowest cut, until all slices find room in them.
fn divide(owners: &[usize], to: usize, widths: &[Vec<f64>], brings: impl Fn(usize, usize) -> bool) -> Vec<Arrival> {
    let ranks = widths.len();
    let [source, sink] = [owners.len() + ranks, owners.len() + ranks + 1];
    let neighbours: Vec<usize> = (0..ranks).filter(|from| owners.iter().any(|owner| brings(*owner, *from))).collect();
    let mut seconds = 0.0;
    loop {
        let mut arcs: Vec<Arc> = Vec::new();
        let mut pairs = Vec::new();
        for (at, owner) in owners.iter().enumerate() {
            for &from in neighbours.iter().filter(|from| brings(*owner, **from)) {
                pairs.push((at, from));
                arcs.push(Arc { from: at, to: owners.len() + from, capacity: 1.0 });
            }
        }
        arcs.extend((0..owners.len()).map(|at| Arc { from: source, to: at, capacity: 1.0 }));
        let room = |from: &usize| Arc { from: owners.len() + from, to: sink, capacity: widths[*from][to] * seconds };
        arcs.extend(neighbours.iter().map(room));
        let flow = max_flow(sink + 1, &arcs, source, sink);
        let crowded: Vec<usize> = (0..owners.len()).filter(|at| flow.near[*at]).collect();
        let ways = neighbours.iter().filter(|from| flow.near[owners.len() + *from]);
        let longer = crowded.len() as f64 / ways.map(|from| widths[*from][to]).sum::<f64>();
        if flow.amount >= owners.len() as f64 * (1.0 - 1e-9) || longer <= seconds * (1.0 + 1e-12) {
            let share = |at: usize| {
                let parts = pairs.iter().zip(&flow.arcs).filter(|((owner, _), flow)| *owner == at && **flow > 1e-9);
                parts.map(|((_, from), flow)| (*from, *flow)).collect()
            };
            return owners.iter().enumerate().map(|(at, &owner)| Arrival { owner, to, from: share(at) }).collect();
        }
        seconds = longer;
    }
}
