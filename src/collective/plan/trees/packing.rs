//! Packing spanning trees: as many from each rank as wanted, which together take no more of an edge than it has.
//!
//! Trees that are the same so far are grown as one, edge by edge. An edge may be added to so many of them that every
//! set of ranks keeps at least as much capacity that enters it as there are trees that have not reached it yet; a max
//! flow says how many these are. While that holds, there is always a next edge (Edmonds, Edge-disjoint branchings,
//! 1973).
//!
//! Sources: Berczi and Frank, Packing arborescences, 2010; Zhao et al., ForestColl, arXiv 2402.06787.

use crate::machine::network::{Arc, max_flow};

/// Capacity from one vertex to another, in trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// The parent.
    pub from: usize,
    /// The child.
    pub to: usize,
    /// How many trees may have it.
    pub units: u64,
}

/// Equal trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Where they begin.
    pub root: usize,
    /// How many they are.
    pub units: u64,
    /// Parent and child, every parent before its children.
    pub edges: Vec<[usize; 2]>,
}

/// Trees that grow.
#[derive(Debug, Clone)]
struct Growing {
    tree: Tree,
    /// How far each rank is from the root; none: not yet reached.
    depths: Vec<Option<usize>>,
    /// Edges that others need, now and from now on.
    closed: Vec<bool>,
}

impl Growing {
    fn is_whole(&self) -> bool {
        self.tree.edges.len() + 1 == self.depths.len()
    }
}

/// `units` spanning trees from each of `ranks` ranks, as flat as is easily found; none where the edges do not allow
/// them.
#[must_use]
pub fn pack(ranks: usize, edges: &[Edge], units: u64) -> Option<Vec<Tree>> {
    let mut edges = edges.to_vec();
    let seed = |root: usize| Growing {
        tree: Tree { root, units, edges: Vec::new() },
        depths: (0..ranks).map(|rank| (rank == root).then_some(0)).collect(),
        closed: vec![false; edges.len()],
    };
    let mut all: Vec<Growing> = (0..ranks).map(seed).collect();
    for depth in 1..ranks {
        // In turns, so that no rank's trees take all that makes trees flat.
        let mut grows = true;
        while grows {
            grows = false;
            let mut at = 0;
            while at < all.len() {
                grows |= grow(&mut all, at, depth, &mut edges);
                at += 1;
            }
        }
    }
    all.iter().all(Growing::is_whole).then(|| all.into_iter().map(|growing| growing.tree).collect())
}

/// Adds an edge to a rank at this depth, the widest first; whether there was one.
fn grow(all: &mut Vec<Growing>, at: usize, depth: usize, edges: &mut [Edge]) -> bool {
    loop {
        let growing = &all[at];
        let open = |&number: &usize| {
            let Edge { from, to, units } = edges[number];
            let leads_on = growing.depths[from] == Some(depth - 1) && growing.depths[to].is_none();
            leads_on && units > 0 && !growing.closed[number]
        };
        let widest = (0..edges.len()).filter(open).max_by_key(|number| (edges[*number].units, usize::MAX - number));
        let Some(number) = widest else { return false };
        let units = room(all, at, edges, number);
        if units == 0 {
            all[at].closed[number] = true;
            continue;
        }
        let rest = all[at].tree.units - units;
        if rest > 0 {
            let mut others = all[at].clone();
            others.tree.units = rest;
            others.closed[number] = true;
            all.push(others);
        }
        let Edge { from, to, .. } = edges[number];
        edges[number].units -= units;
        all[at].tree.units = units;
        all[at].tree.edges.push([from, to]);
        all[at].depths[to] = Some(depth);
        return true;
    }
}

/// To how many of the trees `at` an edge may be added: what can flow from its tail to its head, where each other tree
/// helps to go from the tail to all that it has reached, less the number of these trees.
fn room(all: &[Growing], at: usize, edges: &[Edge], number: usize) -> u64 {
    let Edge { from, to, units } = edges[number];
    let mut arcs: Vec<Arc> = edges
        .iter()
        .filter(|edge| edge.units > 0)
        .map(|edge| Arc { from: edge.from, to: edge.to, capacity: edge.units as f64 })
        .collect();
    let mut vertices = all[at].depths.len();
    let mut others = 0;
    for (_, other) in all.iter().enumerate().filter(|(other, growing)| *other != at && growing.depths[to].is_none()) {
        let capacity = other.tree.units as f64;
        others += other.tree.units;
        if other.tree.edges.is_empty() {
            arcs.push(Arc { from, to: other.tree.root, capacity });
            continue;
        }
        let reached = (0..other.depths.len()).filter(|rank| other.depths[*rank].is_some());
        arcs.push(Arc { from, to: vertices, capacity });
        arcs.extend(reached.map(|to| Arc { from: vertices, to, capacity }));
        vertices += 1;
    }
    let flow = max_flow(vertices, &arcs, from, to).amount.round() as u64;
    flow.saturating_sub(others).min(units).min(all[at].tree.units)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directed graphs with any capacities and no promise that much flows.
    fn graph(random: &mut impl FnMut(u64) -> u64) -> (usize, Vec<Edge>) {
        let ranks = 2 + random(5) as usize;
        let mut edges = Vec::new();
        for (from, to) in (0..ranks * ranks).map(|pair| (pair / ranks, pair % ranks)) {
            if from != to && random(3) > 0 {
                edges.push(Edge { from, to, units: 1 + random(6) });
            }
        }
        (ranks, edges)
    }

    #[test]
    fn trees_are_as_many_as_the_narrowest_cut_allows() {
        let mut number = 5_u64;
        let mut random = move |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (number >> 33) % below
        };
        let mut packed = 0;
        for _ in 0..300 {
            let (ranks, edges) = graph(&mut random);
            // What enters a set of ranks is for the trees of all ranks beyond it.
            let allowed = |set: usize| -> u64 {
                let inside = |rank: usize| set >> rank & 1 == 1;
                let enters: u64 = edges.iter().filter(|e| !inside(e.from) && inside(e.to)).map(|e| e.units).sum();
                enters / (0..ranks).filter(|rank| !inside(*rank)).count() as u64
            };
            let most = (1..(1 << ranks) - 1).map(allowed).min().expect("sets");
            assert_eq!(pack(ranks, &edges, most + 1), None);
            if most == 0 {
                continue;
            }
            packed += 1;
            let trees = pack(ranks, &edges, most).expect("as many as all cuts allow");
            for root in 0..ranks {
                let units: u64 = trees.iter().filter(|tree| tree.root == root).map(|tree| tree.units).sum();
                assert_eq!(units, most);
            }
            for tree in &trees {
                let mut reached = vec![tree.root];
                for [from, to] in &tree.edges {
                    assert!(reached.contains(from) && !reached.contains(to), "{tree:?}");
                    reached.push(*to);
                }
                assert_eq!(reached.len(), ranks);
            }
            for edge in &edges {
                let has = |tree: &&Tree| tree.edges.contains(&[edge.from, edge.to]);
                assert!(trees.iter().filter(has).map(|tree| tree.units).sum::<u64>() <= edge.units);
            }
        }
        assert!(packed > 100, "{packed}");
    }
}
