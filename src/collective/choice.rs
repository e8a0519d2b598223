//! Which reduction the tensors of a model take on a machine: all that can be planned there, priced for their sizes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::{Reduction, Topology, reductions};
use super::price::{Timing, Works, without_waits};
use super::schedule::{Hop, Payload, Schedule};
use super::slices::Slices;
use crate::machine::Site;

/// Prices that differ by less than this say nothing.
const ALIKE: f64 = 1.01;

/// Among more ranks, schedules are planned and priced for longer than the answer is worth: they take the usual one.
pub const MOST_COMPARED: usize = 64;

/// A reduction and what it takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Priced {
    /// The reduction.
    pub reduction: Reduction,
    /// Seconds in which all tensors are reduced and gathered, one after another.
    pub seconds: f64,
}

/// A tensor that is reduce-scattered and, changed by its owners, gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Reduced {
    /// Elements of each rank's gradient.
    pub gradients: usize,
    /// 32-bit words of what is gathered.
    pub words: usize,
}

/// The reductions that ranks of a site can choose from: the one that is named, if there is such a one here, or all; of
/// more than [`MOST_COMPARED`] ranks the usual one.
#[must_use]
pub fn candidates(named: Option<&str>, site: &Site) -> Vec<Reduction> {
    let topology = Topology::along(site);
    let usual = if site.local.is_some() { "hierarchical" } else { "two-ring" };
    match named {
        None if site.ranks.len() <= MOST_COMPARED => reductions(&topology),
        named => Reduction::named(named.unwrap_or(usual), &topology).into_iter().collect(),
    }
}

/// The reductions among a site's ranks with their prices, the best first, then from the cheapest on. Of those that send
/// the same, as most do among two ranks, only the first is listed. Among more than [`MOST_COMPARED`] ranks a schedule
/// is priced as if no rank waited for another.
///
/// Where memories make several take alike, the one that takes links the shortest is best: they are what pooled rows
/// need, too, and what is priced of a memory may in truth be a cache's. Where links are alike, too, the one with the
/// fewest rounds is: ranks meet in each of them, which takes more than the latency that is priced.
///
/// # Panics
/// When the site has other ranks, or the payload is raw bytes.
#[must_use]
pub fn priced(reductions: Vec<Reduction>, tensors: &[Reduced], payload: Payload, site: &Site) -> Vec<Priced> {
    let ranks = site.ranks.len();
    let seconds = |schedule: &Schedule, works: Works| match ranks > MOST_COMPARED {
        true => without_waits(schedule, site, works),
        false => Timing::of(schedule, site, works).seconds,
    };
    // Layers are often alike.
    let mut alike: BTreeMap<Reduced, f64> = BTreeMap::new();
    tensors.iter().for_each(|tensor| *alike.entry(*tensor).or_default() += 1.0);
    let takes = |reduction: &Reduction, works: Works| -> f64 {
        let plan = |elements: usize, payload| reduction.plan(&Slices::even(elements, ranks), payload);
        let both = |tensor: &Reduced| {
            let [there, back] = [plan(tensor.gradients, payload), plan(tensor.words, Payload::F32).all_gather()];
            seconds(&there, works) + seconds(&back, works)
        };
        alike.iter().map(|(tensor, times)| times * both(tensor)).sum()
    };
    let largest = tensors.iter().map(|tensor| tensor.gradients).max().unwrap_or(0);
    let mut known: Vec<Vec<Vec<Hop>>> = Vec::new();
    let mut all: Vec<Priced> = Vec::new();
    for reduction in reductions {
        let hops = sorted(&reduction.plan(&Slices::even(largest, ranks), payload));
        if !known.contains(&hops) {
            known.push(hops);
            all.push(Priced { seconds: takes(&reduction, Works::LinksAndMemories), reduction });
        }
    }
    all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let alike = |least: f64, seconds: f64| seconds <= least * ALIKE;
    let near = all.iter().take_while(|priced| alike(all[0].seconds, priced.seconds));
    let links: Vec<f64> = near.map(|priced| takes(&priced.reduction, Works::Links)).collect();
    let least = links.iter().copied().fold(f64::INFINITY, f64::min);
    // Links that are busy for less than prices are right by decide nothing, such as those of ranks in one memory.
    let idle = |at: usize| links[at] <= (ALIKE - 1.0) * all[at].seconds;
    let short = (0..links.len()).filter(|at| alike(least, links[*at]) || idle(*at));
    let best = short.min_by_key(|at| all[*at].reduction.rounds.len());
    if let Some(best) = best {
        all[..=best].rotate_right(1);
    }
    all
}

/// What is sent in each round, in an order of its own.
fn sorted(schedule: &Schedule) -> Vec<Vec<Hop>> {
    let mut rounds = schedule.rounds.clone();
    rounds.iter_mut().for_each(|hops| hops.sort_by_key(|hop| (hop.from, hop.to, hop.source.start)));
    rounds
}
