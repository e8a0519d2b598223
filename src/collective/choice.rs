//! Which reduction the tensors of a model take on a machine: all that can be planned there, priced for their sizes.

use std::cmp::Ordering;

use super::plan::Reduction;
use super::price::{Timing, Works};
use super::schedule::{Hop, Payload, Schedule};
use super::slices::Slices;
use crate::machine::Site;

/// Within this much of the least price, prices say nothing: then the one with the fewest rounds is best, since ranks meet in
/// each of them, which costs more than the latency of links that is priced.
const ALIKE: f64 = 1.01;

/// A reduction and what it takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Priced {
    /// The reduction.
    pub reduction: Reduction,
    /// Seconds in which all tensors are reduced and gathered, one after another.
    pub seconds: f64,
}

/// A tensor that is reduce-scattered and, changed by its owners, gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduced {
    /// Elements of each rank's gradient.
    pub gradients: usize,
    /// 32-bit words of what is gathered.
    pub words: usize,
}

/// The reductions among a site's ranks with their prices, the best first. Of those that send the same, as most do among two
/// ranks, only the first is listed.
///
/// # Panics
/// When the site has other ranks, or the payload is raw bytes.
#[must_use]
pub fn priced(reductions: Vec<Reduction>, tensors: &[Reduced], payload: Payload, site: &Site) -> Vec<Priced> {
    let ranks = site.ranks.len();
    let largest = tensors.iter().map(|tensor| tensor.gradients).max().unwrap_or(0);
    let mut known: Vec<Vec<Vec<Hop>>> = Vec::new();
    let mut all: Vec<Priced> = Vec::new();
    for reduction in reductions {
        let hops = sorted(&reduction.plan(&Slices::even(largest, ranks), payload));
        if known.contains(&hops) {
            continue;
        }
        known.push(hops);
        let takes = |schedule: &Schedule| Timing::of(schedule, site, Works::LinksAndMemories).seconds;
        let plan = |elements: usize, payload| reduction.plan(&Slices::even(elements, ranks), payload);
        let both = |tensor: &Reduced| {
            takes(&plan(tensor.gradients, payload)) + takes(&plan(tensor.words, Payload::F32).reversed())
        };
        let seconds = tensors.iter().map(both).sum();
        all.push(Priced { reduction, seconds });
    }
    let least = all.iter().map(|priced| priced.seconds).fold(f64::INFINITY, f64::min);
    let place = |priced: &Priced| {
        let alike = priced.seconds <= least * ALIKE;
        (!alike, if alike { priced.reduction.rounds.len() } else { 0 })
    };
    all.sort_by(|a, b| match place(a).cmp(&place(b)) {
        Ordering::Equal => a.seconds.total_cmp(&b.seconds),
        other => other,
    });
    all
}

/// What is sent in each round, in an order of its own.
fn sorted(schedule: &Schedule) -> Vec<Vec<Hop>> {
    let mut rounds = schedule.rounds.clone();
    rounds.iter_mut().for_each(|hops| hops.sort_by_key(|hop| (hop.from, hop.to, hop.source.start)));
    rounds
}
