//! What hwloc sees, as a [`Machine`]: of this host, of an XML export, or of a synthetic description.
//!
//! hwloc knows shape (cores, caches, nodes, distances, permissions) and no speed: bandwidths and peaks stay `None`, and
//! links are inferred from distances, with the inference written into `assumptions`. Nothing is ever bound through
//! hwloc: on a topology that is not this system its bindings return success and do nothing, so pinning and memory
//! placement go through `ffi`. Exploring uses hwlocality at hwloc 2.8, the oldest that this crate is tried with.

mod objects;
mod quota;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use hwlocality::Topology;
use hwlocality::object::distance::DistancesKind;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder};

use super::describe::{
    CapacityTier, Core, CpuQuota, Distances, End, LOCAL_DISTANCE, Link, MEMORY_MOST, Machine, NODES_MOST, Node,
    PUS_MOST, nearest_nodes,
};
use super::links::by_distance;
use crate::base::{Error, NodeId, Result, input};
use crate::ffi::child::in_child;
use crate::ffi::linux::current_affinity;
use crate::memory::{NodeMemory, control_groups};

/// What hwloc cannot tell.
pub(super) const UNMEASURED: &str = "bandwidths, latencies and peaks: unknown, hwloc does not measure";
/// How an assumption begins that says how links were found.
pub(super) const LINKS: &str = "links: inferred";

/// The machine that runs this process, with what the process may use: control group and its quota, container, affinity.
///
/// # Errors
/// [`Error::Discovery`] when hwloc cannot explore the system.
pub fn host() -> Result<Machine> {
    let builder = Topology::builder();
    let mut machine = explore(builder, "this machine", "host", "discovered on this machine by hwloc")?;
    match current_affinity() {
        Ok(pus) => machine.restrict(|pu| pus.binary_search(&pu).is_ok(), |_| true),
        Err(reason) => machine.assumptions.push(format!("all cores are taken as allowed: {reason}")),
    }
    let free = |id: NodeId| NodeMemory::of(id).map(|memory| memory.free);
    machine.nodes.iter_mut().for_each(|node| node.free_bytes = free(node.id));
    machine.tiers.iter_mut().for_each(|tier| tier.free_bytes = free(tier.id));
    let allowed = machine.nodes.iter().flat_map(|node| &node.cores).flat_map(Core::allowed).count();
    machine.cpu_quota = cpu_quota().filter(|quota| quota.cpus < allowed as f64);
    Ok(machine)
}

/// The least time of cpus that a control group grants this process, if any limits it.
#[must_use]
pub fn cpu_quota() -> Option<CpuQuota> {
    quota::least(&control_groups("cpu"))
}

/// The name of the machine that runs this process.
#[must_use]
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// A machine from hwloc's XML export (`lstopo machine.xml`).
///
/// # Errors
/// [`Error::Io`] when the file cannot be read, [`Error::Discovery`] when hwloc cannot make sense of it.
pub fn xml_file(path: &Path) -> Result<Machine> {
    let text = input::read_text(path)?;
    let name = path.file_stem().map_or_else(|| "xml".to_owned(), |stem| stem.to_string_lossy().into_owned());
    xml(&text, &name, &path.display().to_string())
}

/// A machine from the text of hwloc's XML export; `origin` is the file name that errors show.
///
/// # Errors
/// [`Error::Discovery`] when hwloc cannot make sense of it.
pub fn xml(text: &str, name: &str, origin: &str) -> Result<Machine> {
    // hwloc may crash on XML that it did not write (2.9 does, on a bit that flipped): no crash of this process.
    const SECONDS: u32 = 60;
    let action = "read the hwloc XML";
    let failed = |reason| Error::Discovery { origin: origin.to_owned(), action, reason };
    let explored = || {
        let builder = Topology::builder().from_xml(text).map_err(|error| failure(origin, action, &error))?;
        explore(builder, origin, name, &format!("from the hwloc export {name}.xml"))
    };
    let answer = || {
        let found = explored().map_err(|error| match error {
            Error::Discovery { reason, .. } => reason,
            other => other.to_string(),
        });
        serde_json::to_vec(&found).expect("a machine has names, numbers and lists")
    };
    let answer = in_child(SECONDS, answer).map_err(|error| {
        failed(match error.kind() {
            ErrorKind::Unsupported => format!("{error}: describe the machine instead, see --topology"),
            _ => format!("hwloc {error}: export the machine anew with `lstopo FILE.xml`"),
        })
    })?;
    let found: std::result::Result<Machine, String> = serde_json::from_slice(&answer).expect("it was just written");
    found.map_err(failed)
}

/// A machine from hwloc's synthetic description, e.g. `Package:2 NUMANode:1 Core:28 PU:2`.
///
/// # Errors
/// [`Error::Discovery`] when hwloc cannot make sense of it.
pub fn synthetic(description: &str) -> Result<Machine> {
    let origin = format!("synthetic:{description}");
    let size = objects::synthetic_size(description);
    if size > PUS_MOST as u64 {
        let reason = format!(
            "its counts multiply to {size} hardware threads; at most {PUS_MOST}, on at most {NODES_MOST} NUMA nodes, can be \
             described: use smaller counts"
        );
        return Err(Error::Discovery { origin, action: "use the description", reason });
    }
    // hwloc's sets have a bit for each number below the largest.
    let largest = objects::largest_index(description);
    if largest >= PUS_MOST as u64 {
        let reason = format!("indexes: {largest} is no hardware thread's number: they are below {PUS_MOST}");
        return Err(Error::Discovery { origin, action: "use the description", reason });
    }
    let builder = Topology::builder().from_synthetic(description).map_err(|_| Error::Discovery {
        origin: origin.clone(),
        action: "read the description",
        reason: "hwloc wants levels and counts like `Package:2 NUMANode:1 Core:28 PU:2`".to_owned(),
    })?;
    explore(builder, &origin, "synthetic", &origin)
}

/// The library's own words name its functions and numbers; what a person can do is look at the description.
fn failure(origin: &str, action: &'static str, error: &dyn std::error::Error) -> Error {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    let words = cause.to_string();
    // Of an error number, what it means.
    let number = words.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).next_back();
    let reason = match number.filter(|_| words.contains("errno")) {
        Some(number) => std::io::Error::from_raw_os_error(number).to_string(),
        None if words.contains("errno") => "hwloc found what it does not understand".to_owned(),
        None => words,
    };
    let reason = if origin == "this machine" {
        format!("{reason}: describe the machine instead, see --topology")
    } else {
        format!("{reason}: does `lstopo` show it?")
    };
    Error::Discovery { origin: origin.to_owned(), action, reason }
}

fn explore(builder: TopologyBuilder, origin: &str, name: &str, about: &str) -> Result<Machine> {
    let topology = builder
        // Permissions are told by `allowed_cpuset` and `allowed_nodeset`; what is forbidden is still shown.
        .with_flags(BuildFlags::INCLUDE_DISALLOWED)
        .map_err(|error| failure(origin, "prepare hwloc", &error))?
        .build()
        .map_err(|error| failure(origin, "explore the hardware with hwloc", &error))?;
    let (pus, places) =
        (topology.objects_with_type(ObjectType::PU).len(), topology.objects_with_type(ObjectType::NUMANode).len());
    if pus > PUS_MOST || places > NODES_MOST {
        let reason = format!(
            "it has {pus} hardware threads on {places} NUMA nodes; at most {PUS_MOST} on at most {NODES_MOST} can be used: \
             describe a part of it"
        );
        return Err(Error::Discovery { origin: origin.to_owned(), action: "use what hwloc found", reason });
    }
    let mut assumptions = Vec::new();
    let (nodes, mut tiers) = nodes_and_tiers(&topology, &mut assumptions);
    if nodes.is_empty() {
        let reason = "hwloc found no NUMA node with cores".to_owned();
        return Err(Error::Discovery { origin: origin.to_owned(), action: "use what hwloc found", reason });
    }
    let memories = nodes.iter().map(|node| (node.id, node.memory_bytes));
    let mut memories = memories.chain(tiers.iter().map(|tier| (tier.id, tier.memory_bytes)));
    if let Some((id, bytes)) = memories.find(|(_, bytes)| *bytes > MEMORY_MOST) {
        let reason = format!("{id} has {bytes} bytes of memory; at most {MEMORY_MOST} can be used: correct it there");
        return Err(Error::Discovery { origin: origin.to_owned(), action: "use what hwloc found", reason });
    }
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).chain(tiers.iter().map(|tier| tier.id)).collect();
    let distances = distances(&topology, ids, &mut assumptions);
    for tier in &mut tiers {
        if tier.near.is_empty() {
            tier.near = nearest_nodes(&distances, tier.id, &nodes);
        }
    }
    assumptions.push(UNMEASURED.to_owned());
    let mut machine = Machine {
        name: name.to_owned(),
        about: about.to_owned(),
        nodes,
        tiers,
        switches: Vec::new(),
        links: Vec::new(),
        routes: Vec::new(),
        distances,
        is_this_system: topology.is_this_system(),
        assumptions,
        measured: None,
        figures_note: None,
        cpu_quota: None,
    };
    infer_links(&mut machine);
    Ok(machine)
}

/// Nodes with cores, and memory that has none of its own: its cpuset is empty or belongs to a node before it.
fn nodes_and_tiers(topology: &Topology, assumptions: &mut Vec<String>) -> (Vec<Node>, Vec<CapacityTier>) {
    let mut found: Vec<_> = topology.objects_with_type(ObjectType::NUMANode).collect();
    found.sort_by_key(|object| object.os_index());
    let (mut nodes, mut tiers) = (Vec::<Node>::new(), Vec::new());
    let mut taken = BTreeSet::new();
    for object in found {
        let node = objects::node(topology, object, nodes.len() as u32);
        let pus: Vec<_> = node.cores.iter().flat_map(|core| &core.pus).map(|pu| pu.id).collect();
        if pus.is_empty() || pus.iter().any(|pu| taken.contains(pu)) {
            let shares = |other: &&Node| other.cores.iter().flat_map(|core| &core.pus).any(|pu| pus.contains(&pu.id));
            let near: Vec<NodeId> = nodes.iter().filter(shares).map(|node| node.id).collect();
            tiers.push(CapacityTier {
                id: node.id,
                memory_bytes: node.memory_bytes,
                free_bytes: None,
                memory_gb_s: None,
                memory_allowed: node.memory_allowed,
                near,
            });
        } else {
            taken.extend(pus);
            nodes.push(node);
        }
    }
    let orphans = topology.objects_with_type(ObjectType::PU).filter(|pu| !taken.contains(&objects::pu_id(pu))).count();
    if orphans > 0 {
        assumptions.push(format!("{orphans} hardware threads belong to no NUMA node and are not used"));
    }
    (nodes, tiers)
}

/// The firmware's matrix, made symmetric by the larger value; 10 and 20 where there is none.
fn distances(topology: &Topology, ids: Vec<NodeId>, assumptions: &mut Vec<String>) -> Distances {
    let count = ids.len();
    let default = |row: usize, column: usize| if row == column { LOCAL_DISTANCE } else { 2 * LOCAL_DISTANCE };
    let defaults: Vec<Vec<u32>> =
        (0..count).map(|row| (0..count).map(|column| default(row, column)).collect()).collect();
    let mut rows = defaults.clone();
    let matrices =
        topology.distances_with_type(Some(DistancesKind::MEANS_LATENCY), ObjectType::NUMANode).unwrap_or_default();
    let Some(matrix) = matrices.first() else {
        if count > 1 {
            assumptions.push("distances: the firmware tells none, 10 at home and 20 elsewhere".to_owned());
        }
        return Distances { ids, rows };
    };
    // hwloc's order of nodes is its own.
    let positions: Vec<Option<usize>> = matrix
        .objects()
        .map(|object| {
            let id = objects::node_id(object?);
            ids.iter().position(|known| *known == id)
        })
        .collect();
    for ((from, to), value) in matrix.enumerate_distances() {
        let (Some(row), Some(column)) = (positions[from], positions[to]) else { continue };
        rows[row][column] = u32::try_from(value).unwrap_or(u32::MAX);
    }
    let broken = (0..count).any(|row| {
        (0..count).any(|column| (rows[row][column] == LOCAL_DISTANCE) != (row == column))
            || rows[row].iter().any(|distance| *distance < LOCAL_DISTANCE)
    });
    if broken {
        let reason = "distances: the firmware's contradict themselves, so 10 at home and 20 elsewhere";
        assumptions.push(reason.to_owned());
        return Distances { ids, rows: defaults };
    }
    let mut asymmetric = None;
    for row in 0..count {
        for column in 0..row {
            let both = [rows[row][column], rows[column][row]];
            if both[0] != both[1] {
                asymmetric = Some((ids[row], ids[column]));
                let larger = both[0].max(both[1]);
                rows[row][column] = larger;
                rows[column][row] = larger;
            }
        }
    }
    if let Some((a, b)) = asymmetric {
        assumptions.push(format!("distances: the firmware's are asymmetric (e.g. {a}, {b}); the larger one is used"));
    }
    Distances { ids, rows }
}

/// The least remote distance is taken for a direct link, if that gives one piece and hops in the order of distances;
/// else larger distances are added until it does.
fn infer_links(machine: &mut Machine) {
    let ids: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
    let distance = |from: &NodeId, to: &NodeId| machine.distances.between(*from, *to).unwrap_or(u32::MAX);
    let distances: Vec<Vec<u32>> = ids.iter().map(|from| ids.iter().map(|to| distance(from, to)).collect()).collect();
    let Some((limit, links)) = by_distance(&distances).into_iter().next() else { return };
    let link = |pair: [usize; 2]| Link {
        ends: pair.map(|at| End::Node(ids[at])),
        gb_s: None,
        latency_ns: None,
        core_s_per_gb: None,
    };
    machine.links = links.into_iter().map(link).collect();
    machine.assumptions.push(format!("{LINKS}, one between any two nodes at distance {limit} or less"));
}
