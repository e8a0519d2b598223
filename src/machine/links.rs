//! Which nodes of a machine are joined by links, inferred: from distances alone, or from them and from what was
//! measured.
//!
//! No software can ask a board for its links. Distances order pairs by how many links lie between them; what pairs of
//! nodes write alone tells how much a link carries; and what they write while all write at once tells who shares links
//! with whom: the max-min fair shares ([`Fluid`]) that would come of some links and routes are held against it.
//!
//! Everything here is a function of its arguments.

use std::collections::BTreeSet;

use super::fluid::{Activity, Fluid};
use super::routes::{Hop, Routes};
use crate::base::NodeId;
use crate::base::units::Many;

/// Links and routes explain a measurement that is off by no more than this, the root of the mean squared logarithm of
/// what is found over what is expected.
const EXPLAINED: f64 = 0.10;
/// What does not, must at least come so much nearer to be taken instead of what distances say.
const BETTER: f64 = 0.5;
/// A change that helps less than this helps nothing.
const HELPS: f64 = 0.97;
/// A pair that is off by more than this factor is told.
const FAR_OFF: f64 = 1.3;
/// All pairs together reach less than this share of what their links carry alone: that is told.
const WEAK: f64 = 0.8;
/// With less than this something else limits them, such as cores that take turns: that explains no links.
const LIMITED: f64 = 0.5;

/// Links and routes are changed one by one on machines of so many nodes, at most; there are too many of them on larger
/// ones.
const FEW: usize = 8;
/// And links so often, at most.
const CHANGES: usize = 64;
/// Of all links that shares speak for, so many are changed.
const STARTS: usize = 4;
/// Figures that are apart by less than this factor are of links, or memories, of one kind.
const ONE_KIND: f64 = 1.15;

/// What was measured among nodes.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    /// Their numbers, ascending.
    pub nodes: &'a [NodeId],
    /// Distances as the firmware tells them, symmetric.
    pub distances: &'a [Vec<u32>],
    /// What each (row) writes to each (column), itself included, while all others are silent, in GB/s.
    pub alone: &'a [Vec<f64>],
    /// What each writes to each other while all do, in GB/s.
    pub loaded: &'a [Vec<f64>],
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inferred {
    /// Positions of nodes that are joined.
    pub links: Vec<[usize; 2]>,
    /// Ways that are not the ones of [`Routes`], by positions.
    pub routes: Vec<Vec<usize>>,
    /// What makes that doubtful, in words.
    pub doubts: Vec<String>,
    /// Whether these are what distances say although they do not explain what was measured.
    pub unexplained: bool,
}

/// All links that distances allow, each with the largest distance of a link, ascending: everything that is near enough
/// is joined, the machine is in one piece, and more hops are never nearer. The last one joins all pairs.
#[must_use]
pub fn by_distance(distances: &[Vec<u32>]) -> Vec<(u32, Vec<[usize; 2]>)> {
    let nodes = distances.len();
    let all: Vec<[usize; 2]> = pairs(nodes).into_iter().filter(|[a, b]| a < b).collect();
    let steps: BTreeSet<u32> = all.iter().map(|[a, b]| distances[*a][*b]).collect();
    let ids: Vec<NodeId> = (0..nodes as u32).map(NodeId).collect();
    let links = |limit: u32| {
        let near: Vec<[usize; 2]> = all.iter().copied().filter(|[a, b]| distances[*a][*b] <= limit).collect();
        let routes = Routes::along(ids.clone(), 0, &near, &[]);
        follow(distances, &ids, &routes).then_some((limit, near))
    };
    steps.into_iter().filter_map(links).collect()
}

/// Whether distances between nodes are those of links: no pair is apart, and none with more hops is nearer.
#[must_use]
pub fn follow(distances: &[Vec<u32>], nodes: &[NodeId], routes: &Routes) -> bool {
    let all = pairs(nodes.len()).into_iter();
    let mut by_hops: Vec<_> = all.map(|[a, b]| (routes.shortest_hops(nodes[a], nodes[b]), distances[a][b])).collect();
    by_hops.sort_unstable();
    by_hops.iter().all(|(hops, _)| hops.is_some()) && by_hops.windows(2).all(|two| two[0].1 <= two[1].1)
}

/// The links and routes that distances and measurement speak for.
///
/// Distances are believed where they explain the measurement: the fewest links that they allow first. Where none do,
/// links are added and taken away one by one, and equally short routes tried, as long as that comes nearer to what was
/// measured; what explains it then is taken, with a doubt, else the links stay what distances say, with another one.
///
/// # Panics
/// When there are fewer than two nodes, or a matrix is not as large as they are many.
#[must_use]
pub fn infer(measured: &Measured<'_>) -> Inferred {
    let nodes = measured.nodes.len();
    let Measured { distances, alone, loaded, .. } = measured;
    let lengths = [alone, loaded].into_iter().flat_map(|rows| rows.iter().map(Vec::len));
    let mut lengths = lengths.chain(distances.iter().map(Vec::len)).chain([distances.len(), alone.len(), loaded.len()]);
    assert!(nodes > 1 && lengths.all(|length| length == nodes), "matrices of all nodes");
    let of_distances: Vec<Guess> =
        by_distance(measured.distances).into_iter().map(|(_, links)| Guess::new(measured, links, Vec::new())).collect();
    let first = of_distances[0].clone();
    let explains = |guess: &&Guess| guess.error <= EXPLAINED && guess.strength >= LIMITED;
    let mut best = of_distances.iter().find(explains).cloned();
    if best.is_none() && nodes <= FEW {
        best = of_distances.iter().map(|guess| guess.clone().with_routes(measured)).find(|guess| explains(&guess));
    }
    if best.is_none() && nodes <= FEW {
        let mut of_shares = by_share(measured);
        of_shares.sort_by(|a, b| a.error.total_cmp(&b.error));
        let starts = of_distances.iter().chain(of_shares.iter().take(STARTS));
        let changed = starts.map(|guess| guess.clone().with_links(measured).with_routes(measured));
        let nearest = changed.min_by(|a, b| a.error.total_cmp(&b.error));
        best = nearest.filter(|guess| explains(&guess) && guess.error <= first.error * BETTER);
    }
    let unexplained = best.is_none();
    let taken = best.unwrap_or_else(|| first.clone());
    let mut doubts = Vec::new();
    if taken.links != first.links {
        let list = |links: Vec<&[usize; 2]>| {
            let names = links.iter().map(|[a, b]| format!("{}-{}", measured.nodes[*a].0, measured.nodes[*b].0));
            names.collect::<Vec<_>>().join(" ")
        };
        let only =
            |own: &Guess, other: &Guess| list(own.links.iter().filter(|link| !other.links.contains(link)).collect());
        let parts = [(only(&first, &taken), "there are no"), (only(&taken, &first), "there are")];
        let told = parts.iter().filter(|part| !part.0.is_empty()).map(|(links, are)| format!("{are} links {links}"));
        let told = told.collect::<Vec<_>>().join(", ");
        doubts.push(format!("links are not those that distances speak for: as it was measured, {told}"));
    }
    doubts.extend(taken.doubts(measured));
    Inferred { links: taken.links, routes: taken.routes, doubts, unexplained }
}

/// Joins pairs from those on that write the most while all write, each time one more: who is joined shares less with
/// others.
fn by_share(measured: &Measured<'_>) -> Vec<Guess> {
    let share = |[a, b]: &[usize; 2]| measured.loaded[*a][*b] + measured.loaded[*b][*a];
    let mut all: Vec<[usize; 2]> = pairs(measured.nodes.len()).into_iter().filter(|[a, b]| a < b).collect();
    all.sort_by(|a, b| share(b).total_cmp(&share(a)).then(a.cmp(b)));
    let first = |count: usize| {
        let mut links = all[..count].to_vec();
        links.sort_unstable();
        Guess::new(measured, links, Vec::new())
    };
    (measured.nodes.len() - 1..all.len()).map(first).filter(|guess| guess.error.is_finite()).collect()
}

/// Each figure as the median of its kind, so that noise does not decide which of several like links is full first.
fn smooth(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = |figure: &f64| {
        let first = sorted.partition_point(|other| *other <= figure / ONE_KIND);
        let last = sorted.partition_point(|other| *other < figure * ONE_KIND);
        sorted[(first + last) / 2]
    };
    figures.iter().map(median).collect()
}

/// Links and routes, and how far they are from what was measured.
#[derive(Debug, Clone, PartialEq)]
struct Guess {
    links: Vec<[usize; 2]>,
    routes: Vec<Vec<usize>>,
    error: f64,
    /// As [`Expected`] has it.
    strength: f64,
}

/// What would be measured with some links and routes.
struct Expected {
    alone: Vec<Vec<f64>>,
    loaded: Vec<Vec<f64>>,
    /// What was measured under load over that, as the median of all pairs.
    strength: f64,
}

impl Guess {
    fn new(measured: &Measured<'_>, links: Vec<[usize; 2]>, routes: Vec<Vec<usize>>) -> Self {
        let mut guess = Self { links, routes, error: f64::INFINITY, strength: 0.0 };
        if let Some(expected) = guess.expect(measured) {
            guess.strength = expected.strength;
            let pairs = pairs(measured.nodes.len());
            let off = |pair: &[usize; 2]| expected.off(measured, *pair).iter().map(|off| off.ln().powi(2)).sum::<f64>();
            let sum: f64 = pairs.iter().map(off).sum();
            guess.error = (sum / pairs.len() as f64).sqrt();
        }
        guess
    }

    fn paths(&self, nodes: &[NodeId]) -> Routes {
        Routes::along(nodes.to_vec(), 0, &self.links, &self.routes)
    }

    /// Nothing where the links leave nodes apart.
    fn expect(&self, measured: &Measured<'_>) -> Option<Expected> {
        let Measured { nodes, alone, loaded, .. } = *measured;
        let (count, routes) = (nodes.len(), self.paths(nodes));
        // Each direction of each link, then what each node can give, then what its memory can take.
        let links: Vec<f64> = self.links.iter().flat_map(|[a, b]| [alone[*a][*b], alone[*b][*a]]).collect();
        let own = smooth(&(0..count).map(|node| alone[node][node]).collect::<Vec<_>>());
        let mut fluid = Fluid::new([smooth(&links), own.clone(), own].concat());
        let first = 2 * self.links.len();
        let mut expected = vec![vec![f64::INFINITY; count]; count];
        let pairs = pairs(count);
        for [from, to] in pairs.iter().copied() {
            routes.shortest_hops(nodes[from], nodes[to])?;
            let wires = routes.path(nodes[from], nodes[to]).into_iter().map(Hop::wire);
            let takes: Vec<(usize, f64)> =
                wires.chain([first + from, first + count + to]).map(|of| (of, 1.0)).collect();
            let rates = takes.iter().map(|(of, _)| fluid.rates()[*of]);
            expected[from][to] = rates.fold(f64::INFINITY, f64::min);
            fluid.add(Activity { amount: 1.0, takes, latency_s: 0.0 }, []);
        }
        let mut shares = vec![vec![0.0; count]; count];
        for ([from, to], rate) in pairs.iter().zip(fluid.fair()) {
            shares[*from][*to] = rate;
        }
        let mut strengths: Vec<f64> = pairs.iter().map(|[from, to]| loaded[*from][*to] / shares[*from][*to]).collect();
        strengths.sort_unstable_by(f64::total_cmp);
        Some(Expected { alone: expected, loaded: shares, strength: strengths[strengths.len() / 2] })
    }

    /// The nearest of the guesses; this one where none is.
    fn or_nearer(self, others: impl Iterator<Item = Self>) -> Self {
        let nearest = others.min_by(|a, b| a.error.total_cmp(&b.error));
        nearest.filter(|nearest| nearest.error < self.error * HELPS).unwrap_or(self)
    }

    /// With links added and taken away, one by one, until that helps no more.
    fn with_links(mut self, measured: &Measured<'_>) -> Self {
        let nodes = measured.nodes.len();
        for _ in 0..CHANGES {
            let toggled = |pair: [usize; 2]| {
                let mut links = self.links.clone();
                match links.binary_search(&pair) {
                    Ok(at) => drop(links.remove(at)),
                    Err(at) => links.insert(at, pair),
                }
                Self::new(measured, links, Vec::new())
            };
            let all = pairs(nodes).into_iter().filter(|[a, b]| a < b).map(toggled);
            let next = self.clone().or_nearer(all.collect::<Vec<_>>().into_iter());
            let ended = self.error <= EXPLAINED || next == self;
            self = next;
            if ended {
                break;
            }
        }
        self
    }

    /// With other ways among the shortest, pair by pair, until they help no more.
    fn with_routes(mut self, measured: &Measured<'_>) -> Self {
        let all: Vec<[usize; 2]> = pairs(measured.nodes.len()).into_iter().filter(|[a, b]| a < b).collect();
        loop {
            let before = self.error;
            for [from, to] in all.iter().copied() {
                if self.error <= EXPLAINED || !self.error.is_finite() {
                    return self;
                }
                let ways = self.shortest(from, to);
                let change = |way: Vec<usize>| {
                    let kept = self.routes.iter().filter(|other| (other[0], other[other.len() - 1]) != (from, to));
                    Self::new(measured, self.links.clone(), kept.cloned().chain([way]).collect())
                };
                let others: Vec<Self> =
                    if ways.len() > 1 { ways.into_iter().map(change).collect() } else { Vec::new() };
                self = self.or_nearer(others.into_iter());
            }
            if self.error >= before {
                return self;
            }
        }
    }

    /// All shortest ways between two nodes.
    fn shortest(&self, from: usize, to: usize) -> Vec<Vec<usize>> {
        let near = |at: usize| {
            self.links.iter().filter_map(move |[a, b]| if *a == at { Some(*b) } else { (*b == at).then_some(*a) })
        };
        let mut ways = vec![vec![from]];
        loop {
            let done: Vec<Vec<usize>> = ways.iter().filter(|way| way[way.len() - 1] == to).cloned().collect();
            if !done.is_empty() || ways.is_empty() {
                return done;
            }
            let longer = ways.iter().flat_map(|way| {
                near(way[way.len() - 1]).filter(|next| !way.contains(next)).map(|next| [&way[..], &[next]].concat())
            });
            ways = longer.collect();
        }
    }

    /// Where what was measured contradicts.
    fn doubts(&self, measured: &Measured<'_>) -> Vec<String> {
        let Some(expected) = self.expect(measured) else { return Vec::new() };
        let mut doubts = Vec::new();
        let worst = |kind: usize| {
            let far = |[from, to]: &[usize; 2]| expected.off(measured, [*from, *to])[kind];
            let off = pairs(measured.nodes.len()).into_iter().map(|pair| (far(&pair), pair));
            let mut off: Vec<(f64, [usize; 2])> =
                off.filter(|(off, _)| *off > FAR_OFF || *off < 1.0 / FAR_OFF).collect();
            off.sort_by(|a, b| b.0.ln().abs().total_cmp(&a.0.ln().abs()).then(a.1.cmp(&b.1)));
            off
        };
        let others = |count: usize| match count {
            0 => String::new(),
            count => format!(" and {}", Many(count as u64, "more pair")),
        };
        let name = |[from, to]: [usize; 2]| format!("{} to {}", measured.nodes[from].0, measured.nodes[to].0);
        if let [(off, pair), more @ ..] = &worst(0)[..] {
            let than = if *off > 1.0 { "faster" } else { "slower" };
            doubts.push(format!(
                "nodes {}{} are written to {than} than the links on their way: there may be other links",
                name(*pair),
                others(more.len())
            ));
        }
        if let [(_, pair), more @ ..] = &worst(1)[..] {
            let [from, to] = *pair;
            let (found, share) = (measured.loaded[from][to], expected.loaded[from][to] * expected.strength);
            doubts.push(format!(
                "nodes {}{} write {found:.1} GB/s while all pairs write, where links and routes let one expect {share:.1}: \
                 there may be others",
                name(*pair),
                others(more.len())
            ));
        }
        if doubts.is_empty() && self.error > EXPLAINED {
            let percent = self.error * 100.0;
            doubts.push(format!("links and routes explain what pairs write within {percent:.0} % on average only"));
        }
        if expected.strength < WEAK {
            let percent = expected.strength * 100.0;
            doubts.push(format!("while all pairs write, links carry {percent:.0} % of what they carry for one pair"));
        }
        doubts
    }
}

impl Expected {
    /// What was measured of a pair over what is expected: alone, and under load.
    fn off(&self, measured: &Measured<'_>, [from, to]: [usize; 2]) -> [f64; 2] {
        let loaded = self.loaded[from][to] * self.strength;
        [measured.alone[from][to] / self.alone[from][to], measured.loaded[from][to] / loaded]
    }
}

/// From each to each other.
fn pairs(nodes: usize) -> Vec<[usize; 2]> {
    let all = (0..nodes).flat_map(|from| (0..nodes).map(move |to| [from, to]));
    all.filter(|[from, to]| from != to).collect()
}
