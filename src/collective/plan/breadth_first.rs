//! `breadth-first`: as few rounds as the machine's links allow. In round t of the all-gather each rank receives the
//! slices of all ranks that are t links away, from neighbours that are a link nearer to them and have them since the
//! round before; each slice is divided among these neighbours so that the busiest link into the rank ends as early as
//! possible. Only links between neighbours are used, so where ranks see equally many others at each distance all links
//! are always busy.
//!
//! Source: Zhao et al., Efficient direct-connect topologies for collective communications, arXiv 2202.03356, section 5.
//! Their shares are real numbers. Here they are whole parts of a slice cut in a few ways, so that a schedule is the
//! same for every size: the fewest ways that lose little.

use super::{Flow, Reduction};
use crate::base::RankId;
use crate::machine::Site;
use crate::machine::network::{Arc, MaxFlow, max_flow};

/// The most ways: shares are multiples of a twelfth at the finest, and of every fraction down to a quarter.
const WAYS_MOST: usize = 12;

/// Ways are few enough when their rounds take at most this much of what real shares would.
const NEAR: f64 = 1.005;

/// What must come to a rank in a round: the slices of some owners, each from any of some neighbours.
struct Front {
    to: usize,
    owners: Vec<usize>,
    /// Neighbours that bring something, each with the GB/s of its way.
    neighbours: Vec<(usize, f64)>,
    /// Positions of owners and of neighbours that can bring their slices.
    pairs: Vec<(usize, usize)>,
}

/// Among the ranks of a site, whose slices are equal. None where neighbours do not lead from each rank to each other
/// one: two explicit routes may each pass the node at which the other ends.
#[must_use]
pub fn breadth_first(site: &Site) -> Option<Reduction> {
    let ranks = site.ranks.len();
    let rank = |number: usize| RankId(number as u32);
    // 0: no neighbours.
    let width = |from: usize, to: usize| site.neighbour_gb_s(rank(from), rank(to)).unwrap_or(0.0);
    let widths: Vec<Vec<f64>> = (0..ranks).map(|from| (0..ranks).map(|to| width(from, to)).collect()).collect();
    let far: Vec<Vec<usize>> = (0..ranks).map(|owner| distances(&widths, owner)).collect();
    let last = far.iter().flatten().copied().max().unwrap_or(0);
    if last == APART {
        return None;
    }
    let fronts = |round: usize| (0..ranks).map(|to| Front::of(to, round, &widths, &far)).collect();
    let rounds: Vec<Vec<Front>> = (1..=last).map(fronts).collect();
    let real: Vec<Vec<f64>> = rounds.iter().map(|fronts| fronts.iter().map(Front::seconds).collect()).collect();
    let least: f64 = real.iter().map(|round| slowest(round)).sum();
    let mut best: Option<(f64, usize, Vec<Vec<Flow>>)> = None;
    for ways in 1..=WAYS_MOST {
        let (mut seconds, mut flows) = (0.0, Vec::new());
        for (fronts, real) in rounds.iter().zip(&real) {
            let divided = fronts.iter().zip(real).map(|(front, real)| front.divide(ways, *real));
            let (times, shares): (Vec<f64>, Vec<Vec<Flow>>) = divided.unzip();
            seconds += slowest(&times);
            flows.push(shares.concat());
        }
        if best.as_ref().is_none_or(|best| seconds < best.0) {
            best = Some((seconds, ways, flows));
        }
        if seconds <= least * NEAR {
            break;
        }
    }
    let (_, ways, mut rounds) = best.expect("one way at least");
    // The reduce-scatter: rounds of the all-gather from the last to the first, each hop turned round.
    rounds.reverse();
    Some(Reduction::new("breadth-first", ranks, ways, rounds))
}

fn slowest(seconds: &[f64]) -> f64 {
    seconds.iter().copied().fold(0.0, f64::max)
}

/// No way of neighbours leads there.
const APART: usize = usize::MAX;

/// How many ways of neighbours lie between a rank and each.
fn distances(widths: &[Vec<f64>], owner: usize) -> Vec<usize> {
    let mut far = vec![APART; widths.len()];
    far[owner] = 0;
    let mut edge = std::collections::VecDeque::from([owner]);
    while let Some(here) = edge.pop_front() {
        for next in 0..widths.len() {
            if widths[here][next] > 0.0 && far[next] == APART {
                far[next] = far[here] + 1;
                edge.push_back(next);
            }
        }
    }
    far
}

impl Front {
    /// What comes to `to` in a round of the all-gather.
    fn of(to: usize, round: usize, widths: &[Vec<f64>], far: &[Vec<usize>]) -> Self {
        let ranks = widths.len();
        let owners: Vec<usize> = (0..ranks).filter(|owner| far[*owner][to] == round).collect();
        let brings = |owner: usize, from: usize| far[owner][from] + 1 == round && widths[from][to] > 0.0;
        let near = (0..ranks).filter(|from| owners.iter().any(|owner| brings(*owner, *from)));
        let neighbours: Vec<(usize, f64)> = near.map(|from| (from, widths[from][to])).collect();
        let all = (0..owners.len()).flat_map(|owner| (0..neighbours.len()).map(move |from| (owner, from)));
        let pairs = all.filter(|(owner, from)| brings(owners[*owner], neighbours[*from].0)).collect();
        Self { to, owners, neighbours, pairs }
    }

    /// The most that comes, of slices of so much and through ways that carry this.
    fn flow(&self, slice: f64, carries: impl Fn(f64) -> f64) -> MaxFlow {
        // No way brings more than all.
        let (middle, whole) = (self.owners.len(), self.owners.len() as f64 * slice);
        let [source, sink] = [middle + self.neighbours.len(), middle + self.neighbours.len() + 1];
        let arc = |from: usize, to: usize, capacity: f64| Arc { from, to, capacity };
        let mut arcs: Vec<Arc> = self.pairs.iter().map(|(owner, from)| arc(*owner, middle + from, slice)).collect();
        arcs.extend((0..middle).map(|owner| arc(source, owner, slice)));
        let neighbours = self.neighbours.iter().enumerate();
        arcs.extend(neighbours.map(|(from, (_, width))| arc(middle + from, sink, carries(*width).min(whole))));
        max_flow(sink + 1, &arcs, source, sink)
    }

    /// Seconds in which the busiest way has carried its shares of slices of 1, as few as possible: raised, by Newton's
    /// method on the narrowest cut, until all slices find room in them.
    fn seconds(&self) -> f64 {
        let whole = self.owners.len() as f64;
        let mut seconds = 0.0;
        loop {
            let flow = self.flow(1.0, |width| width * seconds);
            let crowded = (0..self.owners.len()).filter(|owner| flow.near[*owner]).count() as f64;
            let near = self.neighbours.iter().zip(&flow.near[self.owners.len()..]).filter(|(_, near)| **near);
            let longer = crowded / near.map(|((_, width), _)| width).sum::<f64>();
            if flow.amount >= whole * (1.0 - 1e-9) || longer <= seconds * (1.0 + 1e-12) {
                return seconds;
            }
            seconds = longer;
        }
    }

    /// The shares in parts of which a slice has `ways`, and the seconds of the busiest way, which are at least
    /// `seconds`.
    fn divide(&self, ways: usize, mut seconds: f64) -> (f64, Vec<Flow>) {
        let slice = ways as f64;
        // A part that rounding would keep out by a hair comes in.
        let parts = |width: f64, seconds: f64| (width * seconds * slice * (1.0 + 1e-9)).floor();
        let flow = loop {
            let flow = self.flow(slice, |width| parts(width, seconds));
            let whole = self.owners.len() as f64 * slice;
            if flow.amount > whole - 0.5 {
                break flow;
            }
            // Who has time for all would have no use for more, and wait for a narrow way part by part.
            let busy = self.neighbours.iter().filter(|(_, width)| parts(*width, seconds) < whole);
            let next = busy.map(|(_, width)| (parts(*width, seconds) + 1.0) / (width * slice));
            seconds = next.fold(f64::INFINITY, f64::min);
        };
        let mut until = vec![0; self.owners.len()];
        let shares = self.pairs.iter().zip(&flow.arcs).filter(|(_, flow)| **flow > 0.5).map(|((owner, from), flow)| {
            let start = until[*owner];
            until[*owner] += flow.round() as usize;
            Flow { from: self.to, to: self.neighbours[*from].0, owner: self.owners[*owner], ways: start..until[*owner] }
        });
        let mut flows: Vec<Flow> = shares.collect();
        // What goes one way together follows each other.
        flows.sort_by_key(|flow| (flow.to, flow.owner));
        (seconds, flows)
    }
}
