//! A machine as TOML, so that what was discovered can be corrected by hand and loaded again.
//!
//! Invariant: parsing the text gives an equal machine, save for what only this process knows (permissions,
//! `is_this_system`, inferred assumptions) and for distances that measured links contradict: a test holds it for every
//! machine. Cores that this process may not use are described, too, since the machine has them; a comment says which
//! it may.

use std::fmt::Write as _;

use super::{Core, End, Machine, Node};
use crate::base::{NodeId, PuId};
use crate::machine::links::follow;
use crate::machine::ranges::ranges;
use crate::machine::routes::Routes;

pub fn to_toml(machine: &Machine) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(machine, &mut text);
    text
}

fn write(machine: &Machine, out: &mut String) -> std::fmt::Result {
    writeln!(out, "name = {}\nabout = {}", quoted(&machine.name), quoted(&machine.about))?;
    if let Some(measured) = &machine.measured {
        writeln!(out, "# figures: measured {}", measured.replace('\n', " "))?;
    }
    for assumption in &machine.assumptions {
        writeln!(out, "# {}", assumption.replace('\n', " "))?;
    }
    if let Some(some) = forbidden(machine) {
        writeln!(out, "# {some}")?;
    }
    let nodes: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
    // Nodes with cores are first in the matrix.
    if follow(&machine.distances.rows, &nodes, &Routes::new(machine)) {
        writeln!(out, "distances = [")?;
        for row in &machine.distances.rows {
            writeln!(out, "    {row:?},")?;
        }
        writeln!(out, "]")?;
    } else {
        writeln!(out, "# the firmware's distances are left out: they are not those of the links")?;
    }
    for node in &machine.nodes {
        node_entry(node, out)?;
    }
    for tier in &machine.tiers {
        writeln!(out, "\n[[memory_only]]\nids = {}\nmemory_gib = {:?}", tier.id.0, gib(tier.memory_bytes))?;
        number(out, "memory_gb_s", tier.memory_gb_s)?;
        writeln!(out, "near = {:?}", tier.near.iter().map(|node| node.0).collect::<Vec<_>>())?;
    }
    for switch in &machine.switches {
        writeln!(out, "\n[[switch]]\nname = {}", quoted(&switch.name))?;
        number(out, "oversubscription", switch.oversubscription)?;
    }
    let end = |end: End| match end {
        End::Node(id) => id.0.to_string(),
        End::Switch(position) => quoted(&machine.switches[position].name),
    };
    let alike = |a: usize, b: usize| {
        let (a, b) = (&machine.links[a], &machine.links[b]);
        (a.gb_s, a.latency_ns, a.core_s_per_gb) == (b.gb_s, b.latency_ns, b.core_s_per_gb)
    };
    for (position, link) in machine.links.iter().enumerate() {
        let pair = format!("[{}, {}]", end(link.ends[0]), end(link.ends[1]));
        if position == 0 || !alike(position - 1, position) {
            write!(out, "\n[[link]]\npairs = [{pair}")?;
        } else {
            write!(out, ", {pair}")?;
        }
        if position + 1 == machine.links.len() || !alike(position, position + 1) {
            writeln!(out, "]")?;
            number(out, "gb_s", link.gb_s)?;
            number(out, "latency_ns", link.latency_ns)?;
            number(out, "core_s_per_gb", link.core_s_per_gb)?;
        }
    }
    for route in &machine.routes {
        let path: Vec<String> = route.path.iter().map(|step| end(*step)).collect();
        writeln!(out, "\n[[route]]\npath = [{}]", path.join(", "))?;
    }
    Ok(())
}

/// That a machine has cores that this process may not use, and what follows for its description.
pub fn forbidden(machine: &Machine) -> Option<String> {
    let cores = || machine.nodes.iter().flat_map(|node| &node.cores);
    let allowed: Vec<PuId> = cores().flat_map(Core::allowed).collect();
    let usable = cores().filter(|core| core.allowed().next().is_some()).count();
    (usable < cores().count()).then(|| {
        format!(
            "all {} cores are described, of which this process may use {usable} (cpus {}): `plan` and `simulate` place \
             ranks on all that `cores`, `l3_cores` and `pus` list",
            cores().count(),
            ranges(allowed.iter().map(|pu| pu.0))
        )
    })
}

fn node_entry(node: &Node, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n[[node]]\nids = {}\nhost = {}\npackage = {}", node.id.0, node.host, node.package)?;
    writeln!(out, "cores = {}\nsmt = {}", node.cores.len(), node.smt())?;
    let kib = |out: &mut String, key: &str, bytes: Option<u64>| {
        bytes.map_or(Ok(()), |bytes| writeln!(out, "{key} = {}", bytes >> 10))
    };
    kib(out, "l1_kib", node.l1_bytes)?;
    kib(out, "l2_kib", node.l2_bytes)?;
    let l3_kib: Vec<u64> = node.l3.iter().map(|group| group.bytes >> 10).collect();
    if let Some(first) = l3_kib.first() {
        match l3_kib.iter().all(|kib| kib == first) {
            true => writeln!(out, "l3_kib = {first}")?,
            false => writeln!(out, "l3_kib = {l3_kib:?}")?,
        }
        writeln!(out, "l3_cores = {:?}", node.l3.iter().map(|group| group.cores).collect::<Vec<_>>())?;
    }
    writeln!(out, "memory_gib = {:?}", gib(node.memory_bytes))?;
    number(out, "memory_gb_s", node.memory_gb_s)?;
    number(out, "copy_gb_s", node.copy_gb_s)?;
    number(out, "stream_copy_gb_s", node.stream_copy_gb_s)?;
    number(out, "row_gb_s", node.row_gb_s)?;
    number(out, "row_update_gb_s", node.row_update_gb_s)?;
    number(out, "peak_f32_gflop_s", node.peak_f32_gflop_s)?;
    number(out, "peak_bf16_gflop_s", node.peak_bf16_gflop_s)?;
    let pus: Vec<Vec<u32>> = node.cores.iter().map(|core| core.pus.iter().map(|pu| pu.id.0).collect()).collect();
    writeln!(out, "pus = {pus:?}")
}

/// Exact: memory sizes are far below 2^53 bytes and 2^30 is a power of two.
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn number(out: &mut String, key: &str, value: Option<f64>) -> std::fmt::Result {
    value.map_or(Ok(()), |value| writeln!(out, "{key} = {value:?}"))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
