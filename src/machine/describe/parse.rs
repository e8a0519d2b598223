//! From the shape of a description to a machine: expands groups and checks each value where it stands.
//!
//! Every error names the line of the value that is wrong. Relations over the whole machine are checked last (`check`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use toml::Spanned;

use super::check::{self, Places};
use super::file::{Ends, File, LinkGroup, NodeGroup, Sizes, TierGroup};
use super::{
    CapacityTier, Core, Distances, End, FIGURES, L3Group, LINK_GB_S, LOCAL_DISTANCE, Link, MEMORY_MOST, Machine,
    NODES_MOST, Node, PUS_MOST, Pu, Route, Switch,
};
use crate::base::{Error, NodeId, PuId, Result, input};
use crate::machine::routes::Routes;

/// No node has more cores than this, so that a slip of the pen cannot ask for all memory.
const CORES_MAX: usize = 1024;
/// The hosts of a description have no more hardware threads than this together, for the same reason.
const ALL_PUS_MOST: usize = 1 << 18;
/// Hardware threads of a core, at most.
const SMT_MAX: usize = 8;
/// No description has more switches: everything looks for them by name.
const SWITCHES_MOST: usize = 4 * NODES_MOST;
/// No node has more memory than this.
const MEMORY_GIB_MAX: f64 = (MEMORY_MOST >> 30) as f64;

/// The text of a description, to turn places into lines.
pub struct Source<'a> {
    text: &'a str,
    origin: &'a str,
}

impl Source<'_> {
    /// An error at a place of the text.
    pub fn at(&self, place: &Range<usize>, reason: impl Into<String>) -> Error {
        let line = input::line(self.text, place.start);
        Error::Topology { origin: self.origin.to_owned(), line, reason: reason.into() }
    }

    fn within(&self, value: &Spanned<f64>, what: &str, range: &RangeInclusive<f64>) -> Result<f64> {
        let number = *value.get_ref();
        if range.contains(&number) {
            return Ok(number);
        }
        let [least, most] = [range.start(), range.end()];
        let reason = format!("{what} = {number} must lie in [{least:e}, {most:e}]; leave the key out if unknown");
        Err(self.at(&value.span(), reason))
    }

    /// A size in GiB as bytes; 0 is a node without memory.
    fn bytes(&self, gib: &Spanned<f64>) -> Result<u64> {
        let number = *gib.get_ref();
        if (0.0..=MEMORY_GIB_MAX).contains(&number) {
            return Ok((number * f64::from(1 << 30)) as u64);
        }
        Err(self.at(&gib.span(), format!("memory_gib = {number} must be 0 (no memory) to {MEMORY_GIB_MAX}")))
    }

    fn figure(&self, value: Option<&Spanned<f64>>, what: &str) -> Result<Option<f64>> {
        value.map(|value| self.within(value, what, &FIGURES)).transpose()
    }
}

pub fn parse(text: &str, origin: &str) -> Result<Machine> {
    let source = Source { text, origin };
    let file: File = input::from_toml(text).map_err(|(place, reason)| source.at(&place, reason))?;
    let mut places = Places::default();
    let nodes = nodes(&source, &file, &mut places)?;
    let tiers = tiers(&source, &file.memory_only, &nodes, &mut places)?;
    let switches = switches(&source, &file, &mut places)?;
    let mut machine = Machine {
        name: file.name,
        about: file.about.trim().to_owned(),
        nodes,
        tiers,
        switches,
        links: Vec::new(),
        routes: Vec::new(),
        distances: Distances { ids: Vec::new(), rows: Vec::new() },
        is_this_system: false,
        assumptions: Vec::new(),
        measured: None,
        figures_note: None,
        cpu_quota: None,
    };
    for group in &file.link {
        links(&source, group, &mut machine, &mut places)?;
    }
    check::worked(&source, &machine, &places)?;
    for entry in &file.route {
        let mut path = Vec::new();
        for end in entry.path.get_ref() {
            path.extend(ends(&source, end, &entry.path.span(), &machine)?);
            if path.len() > machine.nodes.len() + machine.switches.len() {
                break;
            }
        }
        check::route(&source, &machine, &mut places, &path, &entry.path.span())?;
        machine.routes.push(Route { path });
    }
    check::graph(&source, &machine, &places)?;
    machine.distances.ids =
        machine.nodes.iter().map(|node| node.id).chain(machine.tiers.iter().map(|tier| tier.id)).collect();
    let routes = Routes::new(&machine);
    match &file.distances {
        Some(rows) => {
            machine.distances.rows = check::distances(&source, &machine, &routes, rows)?;
        }
        None => {
            machine.distances.rows = by_hops(&machine, &routes);
            machine.assumptions.push("distances: not described, 10 at home and 10 more each hop".to_owned());
        }
    }
    for tier in machine.tiers.iter_mut().filter(|tier| tier.near.is_empty()) {
        tier.near = nearest_nodes(&machine.distances, tier.id, &machine.nodes);
    }
    Ok(machine)
}

/// The nodes with the smallest distance to a tier.
pub fn nearest_nodes(distances: &Distances, tier: NodeId, nodes: &[Node]) -> Vec<NodeId> {
    let far = |node: &Node| distances.between(tier, node.id).unwrap_or(u32::MAX);
    let least = nodes.iter().map(far).min();
    nodes.iter().filter(|node| Some(far(node)) == least).map(|node| node.id).collect()
}

fn nodes(source: &Source<'_>, file: &File, places: &mut Places) -> Result<Vec<Node>> {
    let (mut nodes, mut pus) = (Vec::<(Node, usize)>::new(), 0);
    for (group, entry) in file.node.iter().enumerate() {
        let described = node(source, entry.get_ref(), &entry.span())?;
        let threads = |node: &Node| node.cores.iter().map(|core| core.pus.len()).sum::<usize>();
        let more = numbers(source, &entry.get_ref().ids)?.len();
        pus += more * threads(&described);
        if pus > ALL_PUS_MOST {
            let reason =
                format!("{pus} hardware threads: at most {ALL_PUS_MOST} can be described: describe fewer nodes");
            return Err(source.at(&entry.get_ref().ids.span(), reason));
        }
        for id in numbers(source, &entry.get_ref().ids)? {
            if places.nodes.insert(NodeId(id), entry.get_ref().ids.span()).is_some() {
                return Err(source.at(&entry.get_ref().ids.span(), format!("node {id} is described twice")));
            }
            nodes.push((Node { id: NodeId(id), ..described.clone() }, group));
        }
    }
    if nodes.is_empty() {
        return Err(source.at(&(0..0), "no [[node]] is described: a machine needs at least one"));
    }
    nodes.sort_by_key(|(node, _)| node.id);
    let count = nodes.len() as u32;
    for (position, (node, group)) in nodes.iter_mut().enumerate() {
        let entry = file.node[*group].get_ref();
        let share = |value: &Option<Spanned<u32>>, default: u32, what: &str| match value {
            None => Ok(position as u32 / default),
            Some(value) if *value.get_ref() == 0 => {
                Err(source.at(&value.span(), format!("{what} = 0: each has at least one node")))
            }
            Some(value) => Ok(position as u32 / value.get_ref()),
        };
        node.host = entry.host.map_or_else(|| share(&entry.nodes_per_host, count, "nodes_per_host"), Ok)?;
        node.package = entry.package.map_or_else(|| share(&entry.nodes_per_package, 1, "nodes_per_package"), Ok)?;
    }
    number_pus(source, file, &mut nodes)?;
    let mut of_hosts = BTreeMap::<u32, [usize; 2]>::new();
    for (node, _) in &nodes {
        let [count, pus] = of_hosts.entry(node.host).or_default();
        *count += 1;
        *pus += node.cores.iter().map(|core| core.pus.len()).sum::<usize>();
    }
    let large = |(node, _): &&(Node, usize)| of_hosts[&node.host][0] > NODES_MOST || of_hosts[&node.host][1] > PUS_MOST;
    if let Some((node, group)) = nodes.iter().find(large) {
        let [count, pus] = of_hosts[&node.host];
        let reason = format!(
            "host {} has {count} nodes with {pus} hardware threads: at most {NODES_MOST} with at most {PUS_MOST} are \
             possible; say with `nodes_per_host` or `host` which nodes are of one host",
            node.host
        );
        return Err(source.at(&file.node[*group].get_ref().ids.span(), reason));
    }
    Ok(nodes.into_iter().map(|(node, _)| node).collect())
}

/// One node of a group, without its number and its hardware threads' numbers.
fn node(source: &Source<'_>, entry: &NodeGroup, place: &Range<usize>) -> Result<Node> {
    let cores = *entry.cores.get_ref();
    if !(1..=CORES_MAX).contains(&cores) {
        return Err(source.at(
            &entry.cores.span(),
            format!("cores = {cores} must be 1 to {CORES_MAX}; memory without cores is a [[memory_only]]"),
        ));
    }
    let smt = entry.smt.as_ref().map_or(1, |smt| *smt.get_ref());
    if !(1..=SMT_MAX).contains(&smt) {
        let place = entry.smt.as_ref().map_or(place.clone(), Spanned::span);
        return Err(source.at(&place, format!("smt = {smt} must be 1 to {SMT_MAX} hardware threads a core")));
    }
    let pu = Pu { id: PuId(0), allowed: true };
    Ok(Node {
        id: NodeId(0),
        host: 0,
        package: 0,
        cores: vec![Core { pus: vec![pu; smt] }; cores],
        l1_bytes: entry.l1_kib.map(bytes_of_kib),
        l2_bytes: entry.l2_kib.map(bytes_of_kib),
        l3: l3_groups(source, entry, cores)?,
        memory_bytes: source.bytes(&entry.memory_gib)?,
        free_bytes: None,
        memory_allowed: true,
        memory_gb_s: source.figure(entry.memory_gb_s.as_ref(), "memory_gb_s")?,
        copy_gb_s: source.figure(entry.copy_gb_s.as_ref(), "copy_gb_s")?,
        stream_copy_gb_s: source.figure(entry.stream_copy_gb_s.as_ref(), "stream_copy_gb_s")?,
        row_gb_s: source.figure(entry.row_gb_s.as_ref(), "row_gb_s")?,
        row_update_gb_s: source.figure(entry.row_update_gb_s.as_ref(), "row_update_gb_s")?,
        peak_f32_gflop_s: source.figure(entry.peak_f32_gflop_s.as_ref(), "peak_f32_gflop_s")?,
        peak_bf16_gflop_s: source.figure(entry.peak_bf16_gflop_s.as_ref(), "peak_bf16_gflop_s")?,
    })
}

const fn bytes_of_kib(kib: u64) -> u64 {
    kib.saturating_mul(1024)
}

fn l3_groups(source: &Source<'_>, entry: &NodeGroup, cores: usize) -> Result<Vec<L3Group>> {
    let Some(kib) = &entry.l3_kib else { return Ok(Vec::new()) };
    let sizes = match (&entry.l3_cores, &entry.l3_groups) {
        (Some(sizes), _) => {
            let sum = sizes.get_ref().iter().fold(0, |sum: usize, size| sum.saturating_add(*size));
            if sum != cores || sizes.get_ref().contains(&0) {
                return Err(source.at(&sizes.span(), format!("l3_cores add up to {sum}, the node has {cores} cores")));
            }
            sizes.get_ref().clone()
        }
        (None, Some(groups)) => {
            let groups_count = *groups.get_ref();
            if groups_count == 0 || !cores.is_multiple_of(groups_count) {
                let reason = format!("{cores} cores do not fall into l3_groups = {groups_count}: write l3_cores");
                return Err(source.at(&groups.span(), reason));
            }
            vec![cores / groups_count; groups_count]
        }
        (None, None) => vec![cores],
    };
    let kibs = match kib.get_ref() {
        Sizes::Alike(kib) => vec![*kib; sizes.len()],
        Sizes::Each(kibs) if kibs.len() == sizes.len() => kibs.clone(),
        Sizes::Each(kibs) => {
            let reason = format!("l3_kib has {} sizes for {} last-level caches", kibs.len(), sizes.len());
            return Err(source.at(&kib.span(), reason));
        }
    };
    let mut first_core = 0;
    Ok(sizes
        .into_iter()
        .zip(kibs)
        .map(|(cores, kib)| {
            let group = L3Group { bytes: bytes_of_kib(kib), first_core, cores };
            first_core += cores;
            group
        })
        .collect())
}

/// Linux's usual order: first the first hardware thread of all cores of a host, then the second ones.
fn number_pus(source: &Source<'_>, file: &File, nodes: &mut [(Node, usize)]) -> Result<()> {
    let mut cores_of_host = BTreeMap::<u32, u32>::new();
    for (node, _) in nodes.iter() {
        *cores_of_host.entry(node.host).or_default() += node.cores.len() as u32;
    }
    let mut next_of_host = BTreeMap::<u32, u32>::new();
    let mut seen = BTreeSet::new();
    for (node, group) in nodes {
        let entry = &file.node[*group];
        let next = next_of_host.entry(node.host).or_default();
        for core in &mut node.cores {
            for (thread, pu) in core.pus.iter_mut().enumerate() {
                pu.id = PuId(*next + thread as u32 * cores_of_host[&node.host]);
            }
            *next += 1;
        }
        let mut place = entry.span();
        if let Some(pus) = &entry.get_ref().pus {
            place = pus.span();
            let some = |ids: &Vec<u32>| (1..=SMT_MAX).contains(&ids.len());
            if pus.get_ref().len() != node.cores.len() || !pus.get_ref().iter().all(some) {
                let reason = format!(
                    "pus lists {} cores, the node has {}: one list of 1 to {SMT_MAX} numbers a core",
                    pus.get_ref().len(),
                    node.cores.len()
                );
                return Err(source.at(&place, reason));
            }
            for (core, ids) in node.cores.iter_mut().zip(pus.get_ref()) {
                core.pus = ids.iter().map(|id| Pu { id: PuId(*id), allowed: true }).collect();
            }
        }
        for pu in node.cores.iter().flat_map(|core| &core.pus) {
            if !seen.insert((node.host, pu.id)) {
                return Err(source.at(&place, format!("{} belongs to two cores of host {}", pu.id, node.host)));
            }
        }
    }
    Ok(())
}

fn tiers(
    source: &Source<'_>,
    groups: &[Spanned<TierGroup>],
    nodes: &[Node],
    places: &mut Places,
) -> Result<Vec<CapacityTier>> {
    let mut tiers = Vec::new();
    for entry in groups {
        let group = entry.get_ref();
        let near: Vec<NodeId> = group.near.iter().flat_map(|near| near.get_ref()).map(|id| NodeId(*id)).collect();
        let place = group.near.as_ref().map_or(entry.span(), Spanned::span);
        let mut named = BTreeSet::new();
        for id in &near {
            if !nodes.iter().any(|node| node.id == *id) {
                return Err(source.at(&place, format!("near: there is no {id} with cores")));
            }
            if !named.insert(id) {
                return Err(source.at(&place, format!("near: {id} is named twice")));
            }
        }
        for id in numbers(source, &group.ids)? {
            if places.nodes.insert(NodeId(id), group.ids.span()).is_some() {
                return Err(source.at(&group.ids.span(), format!("node {id} is described twice")));
            }
            tiers.push(CapacityTier {
                id: NodeId(id),
                memory_bytes: source.bytes(&group.memory_gib)?,
                free_bytes: None,
                memory_gb_s: source.figure(group.memory_gb_s.as_ref(), "memory_gb_s")?,
                memory_allowed: true,
                near: near.clone(),
            });
        }
    }
    tiers.sort_by_key(|tier| tier.id);
    Ok(tiers)
}

fn switches(source: &Source<'_>, file: &File, places: &mut Places) -> Result<Vec<Switch>> {
    let mut switches: Vec<Switch> = Vec::new();
    if let Some(entry) = file.switch.get(SWITCHES_MOST) {
        let reason = format!("{} switches: at most {SWITCHES_MOST} can be described", file.switch.len());
        return Err(source.at(&entry.span(), reason));
    }
    for entry in &file.switch {
        let name = entry.get_ref().name.clone();
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return Err(source.at(&entry.span(), format!("the switch's name `{name}` must start with a letter")));
        }
        if switches.iter().any(|switch| switch.name == name) {
            return Err(source.at(&entry.span(), format!("switch `{name}` is described twice")));
        }
        let oversubscription = source.figure(entry.get_ref().oversubscription.as_ref(), "oversubscription")?;
        switches.push(Switch { name, oversubscription });
        places.switches.push(entry.span());
    }
    Ok(switches)
}

fn links(source: &Source<'_>, group: &Spanned<LinkGroup>, machine: &mut Machine, places: &mut Places) -> Result<()> {
    let gb_s = group.get_ref().gb_s.as_ref().map(|value| source.within(value, "gb_s", &LINK_GB_S)).transpose()?;
    let latency_ns = source.figure(group.get_ref().latency_ns.as_ref(), "latency_ns")?;
    let core_s_per_gb = source.figure(group.get_ref().core_s_per_gb.as_ref(), "core_s_per_gb")?;
    for pair in &group.get_ref().pairs {
        let [left, right] = pair.get_ref();
        let left = ends(source, left, &pair.span(), machine)?;
        let right = ends(source, right, &pair.span(), machine)?;
        for from in &left {
            for to in &right {
                check::link(source, machine, places, [*from, *to], &pair.span())?;
                places.worked.extend(core_s_per_gb.map(|_| (machine.links.len(), pair.span())));
                machine.links.push(Link { ends: [*from, *to], gb_s, latency_ns, core_s_per_gb });
            }
        }
    }
    Ok(())
}

/// The ends that were meant; each must exist.
fn ends(source: &Source<'_>, written: &Ends, place: &Range<usize>, machine: &Machine) -> Result<Vec<End>> {
    match written {
        Ends::Switch(name) => match machine.switches.iter().position(|switch| switch.name == *name) {
            Some(position) => Ok(vec![End::Switch(position)]),
            None => Err(source.at(place, format!("there is no switch `{name}`: describe it as a [[switch]]"))),
        },
        Ends::Nodes(ids) => ids
            .iter()
            .cloned()
            .flatten()
            .map(|id| match machine.node(NodeId(id)) {
                Some(node) => Ok(End::Node(node.id)),
                None => {
                    let (first, last) = (machine.nodes[0].id.0, machine.nodes[machine.nodes.len() - 1].id.0);
                    let reason = format!("there is no node {id} with cores: they are numbered {first} to {last}");
                    Err(source.at(place, reason))
                }
            })
            .collect(),
    }
}

fn numbers(source: &Source<'_>, ids: &Spanned<Ends>) -> Result<Vec<u32>> {
    match ids.get_ref() {
        Ends::Nodes(ids) => Ok(ids.iter().cloned().flatten().collect()),
        Ends::Switch(name) => {
            Err(source.at(&ids.span(), format!("ids = \"{name}\" must be node numbers like 3 or \"0-3,8\"")))
        }
    }
}

fn by_hops(machine: &Machine, routes: &Routes) -> Vec<Vec<u32>> {
    let far = |from: NodeId, to: NodeId| match routes.shortest_hops(from, to) {
        Some(hops) => LOCAL_DISTANCE + 10 * hops as u32,
        None if from == to => LOCAL_DISTANCE,
        // A tier has no links; it is further away than a neighbour.
        None => LOCAL_DISTANCE + 10,
    };
    let ids = &machine.distances.ids;
    ids.iter().map(|from| ids.iter().map(|to| far(*from, *to)).collect()).collect()
}
