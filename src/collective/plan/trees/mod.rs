//! `spanning-trees`: as fast as the narrowest cut of the machine's links allows, however unequal they are. Each rank's
//! slice is cut among trees that span all ranks, and so many trees go along a link as it has time for: no link of the
//! cut is ever idle. What goes up a tree is cut in chunks that follow each other, so that all its levels work at the
//! same time.
//!
//! Source: Zhao et al., ForestColl: Throughput-optimal collective communications on heterogeneous network fabrics,
//! arXiv 2402.06787. Theirs are trees of the all-gather; these of the reduce-scatter, which its reverse turns round.

mod packing;
mod splitting;

use std::collections::{BTreeMap, BTreeSet};

use self::packing::{Edge, Tree, pack};
use self::splitting::{Way, divide};
use super::{Flow, Payload, Reduction, Slices, breadth_first};
use crate::base::RankId;
use crate::collective::bound::{Bound, gather_s};
use crate::collective::price::{Timing, Works};
use crate::machine::Site;
use crate::machine::network::{Arc, Network};

/// Trees are pipelined in so many chunks that their levels wait for each other for at most this share of the time; but
/// in no more than so many, because every message takes some time.
const IDLE: f64 = 0.02;
const CHUNKS_MOST: f64 = 64.0;

/// Beyond so many ranks trees are not tried where another schedule is so near to the bound: many messages take long to
/// price.
const MANY: usize = 16;
const NEAR: f64 = 1.02;

/// Among the ranks of a site, whose slices are equal: every part of a slice goes up its tree at once, in as few rounds
/// as the trees have levels. None where the machine's routes leave too little of its links, or where many ranks have
/// nothing to gain over `breadth-first`.
#[must_use]
pub fn spanning_trees(site: &Site) -> Option<Reduction> {
    Trees::of(site).map(|trees| trees.reduction("spanning-trees", 1))
}

/// As [`spanning_trees`], in chunks. None, too, where trees keep links busy without.
#[must_use]
pub fn pipelined_trees(site: &Site) -> Option<Reduction> {
    let trees = Trees::of(site)?;
    let chunks = ((trees.levels_over_links(site) - 1.0) / IDLE).ceil().min(CHUNKS_MOST) as usize;
    (chunks > 1).then(|| trees.reduction("pipelined-trees", chunks))
}

/// Time over bound of large tensors on links, where it can be planned.
fn breadth_first_over_bound(site: &Site) -> Option<f64> {
    let schedule = breadth_first(site)?.plan(&Slices::even(1 << 30, site.ranks.len()), Payload::F32);
    Some(Timing::of(&schedule, site, Works::Links).seconds / Bound::of(&schedule.goal, schedule.payload, site).links_s)
}

/// Trees from every rank to all others along a machine's links.
#[derive(Debug, Clone, PartialEq)]
struct Trees {
    ranks: usize,
    /// In how many parts a slice is cut; each of them goes along a tree.
    parts: u64,
    trees: Vec<Tree>,
}

impl Trees {
    fn of(site: &Site) -> Option<Self> {
        if site.ranks.len() > MANY && breadth_first_over_bound(site).is_some_and(|ratio| ratio <= NEAR) {
            return None;
        }
        let mut homes: Vec<Vec<usize>> = vec![Vec::new(); site.homes().len()];
        (0..site.ranks.len()).for_each(|rank| homes[site.home(RankId(rank as u32))].push(rank));
        // From parent to child, against the direction in which sums go.
        let whole = Network::of(site).reversed();
        let parts: BTreeSet<Vec<usize>> = walks(site, &homes).iter().flat_map(|walk| parts(walk)).collect();
        // A link that no message takes is as good as none.
        let used = |(number, arc): (usize, &Arc)| Arc {
            capacity: if parts.contains(&[number][..]) { arc.capacity } else { 0.0 },
            ..*arc
        };
        let arcs = whole.arcs().iter().enumerate().map(used).collect();
        let network = Network::new(whole.homes(), whole.vertices(), arcs);
        let ranks: Vec<u64> = homes.iter().map(|ranks| ranks.len() as u64).collect();
        let bytes: Vec<f64> = ranks.iter().map(|ranks| *ranks as f64).collect();
        // Of a gigabyte a rank.
        let seconds = gather_s(&network, &bytes) * 1e9;
        let (units, ways) = divide(&network, &ranks, seconds, &|arcs| parts.contains(arcs))?;
        let trees = pack(site.ranks.len(), &edges(&homes, &ways, units), units)?;
        Some(Self { ranks: site.ranks.len(), parts: units, trees })
    }

    /// Time of one level of all trees after the other, over that of the busiest link.
    fn levels_over_links(&self, site: &Site) -> f64 {
        let mut levels = vec![vec![0.0; site.wires.len()]; self.ranks];
        for tree in &self.trees {
            let mut depths = vec![0; self.ranks];
            for &[parent, child] in &tree.edges {
                depths[child] = depths[parent] + 1;
                let wires = site.path(RankId(child as u32), RankId(parent as u32));
                let seconds = |wire: usize| tree.units as f64 / site.wires[wire].gb_s;
                wires.iter().for_each(|wire| levels[depths[parent]][*wire] += seconds(*wire));
            }
        }
        let most = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
        let all: Vec<f64> = (0..site.wires.len()).map(|wire| levels.iter().map(|level| level[wire]).sum()).collect();
        let apart = levels.iter().map(|level| most(level)).sum::<f64>();
        if apart > 0.0 { apart / most(&all) } else { 1.0 }
    }

    /// The reduce-scatter along these trees, in which every part of a slice is cut in so many chunks.
    fn reduction(&self, name: &'static str, chunks: usize) -> Reduction {
        let parts = self.parts as usize;
        let mut rounds: Vec<Vec<Flow>> = Vec::new();
        let mut begun = vec![0; self.ranks];
        for tree in &self.trees {
            let first = begun[tree.root];
            begun[tree.root] += tree.units as usize;
            let mut depths = vec![0; self.ranks];
            for &[parent, child] in &tree.edges {
                depths[child] = depths[parent] + 1;
                for chunk in 0..chunks {
                    // As the all-gather has it: a chunk goes down a level a round.
                    let round = chunk + depths[parent];
                    if rounds.len() <= round {
                        rounds.resize(round + 1, Vec::new());
                    }
                    let ways = chunk * parts + first..chunk * parts + begun[tree.root];
                    rounds[round].push(Flow { from: child, to: parent, owner: tree.root, ways });
                }
            }
        }
        rounds.reverse();
        rounds.iter_mut().for_each(join);
        Reduction::new(name, self.ranks, parts * chunks, rounds)
    }
}

/// How many trees may go from rank to rank: between homes as ways allow, among which their ranks take turns; within a
/// home, all.
fn edges(homes: &[Vec<usize>], ways: &[Way], units: u64) -> Vec<Edge> {
    let mut edges: BTreeMap<[usize; 2], u64> = BTreeMap::new();
    for way in ways {
        let [from, to] = [&homes[way.from], &homes[way.to]];
        let turns = from.len().max(to.len());
        for turn in 0..turns {
            let share = way.units / turns as u64 + u64::from((turn as u64) < way.units % turns as u64);
            *edges.entry([from[turn % from.len()], to[turn % to.len()]]).or_default() += share;
        }
    }
    let all = units * homes.iter().map(Vec::len).sum::<usize>() as u64;
    for home in homes {
        let pairs = home.iter().flat_map(|from| home.iter().map(|to| [*from, *to]));
        edges.extend(pairs.filter(|[from, to]| from != to).map(|pair| (pair, all)));
    }
    edges.into_iter().map(|([from, to], units)| Edge { from, to, units }).collect()
}

/// One flow for parts that follow each other.
fn join(round: &mut Vec<Flow>) {
    round.sort_by_key(|flow| (flow.to, flow.from, flow.owner, flow.ways.start));
    round.dedup_by(|next, last| {
        let joins =
            (last.from, last.to, last.owner, last.ways.end) == (next.from, next.to, next.owner, next.ways.start);
        if joins {
            last.ways.end = next.ways.end;
        }
        joins
    });
}

/// The wires from each home to each of its neighbours, from the last to the first.
fn walks(site: &Site, homes: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let pairs = (0..homes.len()).flat_map(|from| (0..homes.len()).map(move |to| (from, to)));
    let ends = pairs.filter(|(from, to)| from != to);
    let ends = ends.map(|(from, to)| [from, to].map(|home| RankId(homes[home][0] as u32)));
    let ends = ends.filter(|[from, to]| site.neighbour_gb_s(*from, *to).is_some());
    ends.map(|[from, to]| site.path(from, to).iter().rev().copied().collect()).collect()
}

/// All that follows each other on a walk.
fn parts(walk: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..walk.len()).flat_map(move |start| (start + 1..=walk.len()).map(move |end| walk[start..end].to_vec()))
}
