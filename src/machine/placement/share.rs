//! The units that ranks are given: a node's, a socket's or a cache's allowed cores, and their memory.

use std::collections::BTreeMap;

use super::RankPer;
use crate::base::{NodeId, PuId, even_part};
use crate::machine::describe::{Core, Machine, Node};

/// One unit.
#[derive(Debug, Clone)]
pub struct Share {
    pub host: u32,
    pub node: NodeId,
    pub memory_nodes: Vec<NodeId>,
    /// The allowed hardware threads of each core that has any.
    pub cores: Vec<Vec<PuId>>,
}

impl Share {
    /// The cores of the `position`-th of `count` ranks, and whether another rank has them too.
    pub fn part(&self, position: usize, count: usize) -> (&[Vec<PuId>], bool) {
        let cores = self.cores.len();
        if count <= cores {
            return (&self.cores[even_part(cores, position, count)], false);
        }
        (std::slice::from_ref(&self.cores[position % cores]), true)
    }
}

/// How many of each place's cores are used, at most, if all together are no more than `most` and places share them
/// evenly: what is left over is no use to ranks that wait for each other. One at least.
pub fn cores_each(sizes: &[usize], most: usize) -> usize {
    let used = |level: usize| sizes.iter().map(|size| level.min(*size)).sum::<usize>();
    let largest = sizes.iter().copied().max().unwrap_or(1);
    (1..=largest).rev().find(|level| used(*level) <= most).unwrap_or(1)
}

/// All units with at least one allowed core, in the order of nodes.
pub fn shares(
    machine: &Machine,
    rank_per: RankPer,
    reasons: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Vec<Share> {
    let mut shares: Vec<(u32, Share)> = Vec::new();
    // Of each memory, how many nodes use it: those that have it before those that have none.
    let at_home = machine.nodes.iter().filter(|node| has_memory(node) && node.cores.iter().any(is_allowed));
    let mut users: BTreeMap<NodeId, usize> = at_home.map(|node| (node.id, 1)).collect();
    for node in &machine.nodes {
        let parts: Vec<&[Core]> = match rank_per {
            RankPer::L3 if !node.l3.is_empty() => {
                node.l3.iter().map(|group| &node.cores[group.first_core..group.first_core + group.cores]).collect()
            }
            _ => vec![&node.cores],
        };
        if rank_per == RankPer::L3 && node.l3.is_empty() {
            reasons.push(format!("{}: its last-level caches are unknown, so all of its cores are one place", node.id));
        }
        let allowed: Vec<Vec<Vec<PuId>>> = parts.into_iter().map(allowed).filter(|cores| !cores.is_empty()).collect();
        if allowed.is_empty() {
            reasons.push(format!("{}: none of its cores is allowed, so no rank stands there", node.id));
            continue;
        }
        let memory = memory(machine, node, &mut users, warnings);
        for cores in allowed {
            let package = shares.iter_mut().find(|(package, share)| {
                rank_per == RankPer::Socket && (*package, share.host) == (node.package, node.host)
            });
            match package {
                Some((_, share)) => {
                    share.cores.extend(cores);
                    if !share.memory_nodes.contains(&memory) {
                        share.memory_nodes.push(memory);
                    }
                }
                None => shares
                    .push((node.package, Share { host: node.host, node: node.id, memory_nodes: vec![memory], cores })),
            }
        }
    }
    shares.into_iter().map(|(_, share)| share).collect()
}

fn allowed(cores: &[Core]) -> Vec<Vec<PuId>> {
    cores.iter().map(|core| core.allowed().collect::<Vec<_>>()).filter(|pus| !pus.is_empty()).collect()
}

fn is_allowed(core: &Core) -> bool {
    core.allowed().next().is_some()
}

fn has_memory(node: &Node) -> bool {
    node.memory_allowed && node.memory_bytes > 0
}

/// The node's own memory, or the nearest that is allowed on the same host; of memories at equal distance one that is
/// said to be near this node, and of those one that the fewest nodes use, so that none lies idle beside a full one.
fn memory(machine: &Machine, node: &Node, users: &mut BTreeMap<NodeId, usize>, warnings: &mut Vec<String>) -> NodeId {
    if has_memory(node) {
        return node.id;
    }
    let here = |id: &NodeId| machine.node(*id).is_some_and(|other| other.host == node.host);
    let nodes = machine.nodes.iter().filter(|other| other.host == node.host);
    let nodes = nodes.filter(|other| has_memory(other)).map(|other| (other.id, false));
    // A tier belongs to the hosts of the nodes that it is near.
    let tiers = machine.tiers.iter().filter(|tier| tier.memory_allowed && tier.memory_bytes > 0);
    let tiers = tiers.filter(|tier| tier.near.iter().any(here)).map(|tier| (tier.id, tier.near.contains(&node.id)));
    let far = |other: NodeId| machine.distances.between(node.id, other).unwrap_or(u32::MAX);
    let used = |other: NodeId| users.get(&other).copied().unwrap_or(0);
    let key = |(other, near): &(NodeId, bool)| (far(*other), !near, used(*other), *other);
    let Some((nearest, near)) = nodes.chain(tiers).min_by_key(key) else {
        warnings.push(format!("{}: no memory is known that its ranks may use", node.id));
        return node.id;
    };
    *users.entry(nearest).or_default() += 1;
    let why = if node.memory_allowed { "it has no memory" } else { "its memory is not allowed" };
    let access = if near { "which is near it" } else { "every access is remote" };
    warnings.push(format!("{}: {why}, so its ranks use that of {nearest}: {access}", node.id));
    nearest
}
