//! The machine and the placement as tables. Neighbours that are alike share a line.

use std::fmt::Write as _;

use super::{counted, known};
use crate::base::units::Bytes;
use crate::machine::describe::{CapacityTier, End, Machine, Node};
use crate::machine::placement::{Placement, RankPlace};
use crate::machine::ranges::ranges;
use crate::machine::routes::Routes;

/// Matrices are printed up to this many nodes.
const MATRIX_MAX: usize = 16;

/// Everything that is known and decided, with reasons.
#[must_use]
pub fn text(machine: &Machine, placement: &Placement) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_machine(machine, &mut out);
    let _ = write_placement(placement, &mut out);
    out
}

fn write_machine(machine: &Machine, out: &mut String) -> std::fmt::Result {
    let memory = Bytes(machine.nodes.iter().map(|node| node.memory_bytes).sum());
    let (nodes, cores) = (counted(machine.nodes.len(), "node"), counted(machine.cores(), "core"));
    let hosts = counted(machine.hosts(), "host");
    writeln!(out, "machine    {}: {nodes}, {cores}, {memory}, {hosts}", machine.name)?;
    if !machine.about.is_empty() {
        writeln!(out, "           {}", machine.about.replace('\n', "\n           "))?;
    }
    let header = ["nodes", "package", "cores", "smt", "L1", "L2", "L3", "memory", "GB/s", "f32 GF/s", "bf16 GF/s"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for group in machine.nodes.chunk_by(alike) {
        rows.push(node_row(group));
    }
    writeln!(out, "\n{}", table(&rows))?;
    for tier in &machine.tiers {
        writeln!(out, "{}", tier_line(tier))?;
    }
    write_links(machine, out)?;
    if machine.distances.ids.len() <= MATRIX_MAX && machine.distances.ids.len() > 1 {
        writeln!(out, "\ndistances\n{}", machine.distances)?;
    }
    if !machine.assumptions.is_empty() {
        writeln!(out, "\nassumed\n  {}", machine.assumptions.join("\n  "))?;
    }
    Ok(())
}

/// Whether two neighbours differ in their numbers only.
fn alike(a: &Node, b: &Node) -> bool {
    let key = |node: &Node| {
        let pus: Vec<Vec<bool>> =
            node.cores.iter().map(|core| core.pus.iter().map(|pu| pu.allowed).collect()).collect();
        let speeds = (node.memory_gb_s, node.peak_f32_gflop_s, node.peak_bf16_gflop_s);
        let caches = (node.l1_bytes, node.l2_bytes, node.l3.clone());
        (pus, caches, node.memory_bytes, node.memory_allowed, speeds)
    };
    a.id.0 + 1 == b.id.0 && key(a) == key(b)
}

fn node_row(group: &[Node]) -> Vec<String> {
    let node = &group[0];
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), |bytes| Bytes(bytes).to_string());
    let (first, last) = (node.package, group[group.len() - 1].package);
    let allowed = node.cores.iter().filter(|core| core.allowed().next().is_some()).count();
    let cores = match allowed == node.cores.len() {
        true => allowed.to_string(),
        false => format!("{allowed} of {}", node.cores.len()),
    };
    let l3 = match node.l3.as_slice() {
        [] => "?".to_owned(),
        [only] => Bytes(only.bytes).to_string(),
        groups => format!("{} x {}", groups.len(), Bytes(groups[0].bytes)),
    };
    let memory = Bytes(node.memory_bytes);
    vec![
        ranges(group.iter().map(|node| node.id.0)),
        if first == last { first.to_string() } else { format!("{first}-{last}") },
        cores,
        node.smt().to_string(),
        size(node.l1_bytes),
        size(node.l2_bytes),
        l3,
        if node.memory_allowed { memory.to_string() } else { format!("{memory} (not allowed)") },
        known(node.memory_gb_s),
        known(node.peak_f32_gflop_s),
        known(node.peak_bf16_gflop_s),
    ]
}

fn tier_line(tier: &CapacityTier) -> String {
    let near = ranges(tier.near.iter().map(|node| node.0));
    let allowed = if tier.memory_allowed { "" } else { ", not allowed" };
    let (id, memory, speed) = (tier.id, Bytes(tier.memory_bytes), known(tier.memory_gb_s));
    format!("memory     {id}: {memory} without cores (capacity tier), {speed} GB/s, near node {near}{allowed}")
}

fn write_links(machine: &Machine, out: &mut String) -> std::fmt::Result {
    if machine.links.is_empty() {
        return writeln!(out, "\nlinks      none: one node");
    }
    let (links, diameter) = (machine.links.len(), Routes::new(machine).diameter());
    writeln!(out, "\nlinks      {links}, any two nodes within {}", counted(diameter, "hop"))?;
    let far = |link: usize| machine.links[link].ends[1];
    let same = |a: &usize, b: &usize| {
        let (x, y) = (&machine.links[*a], &machine.links[*b]);
        (x.gb_s, x.latency_ns) == (y.gb_s, y.latency_ns)
            && (matches!(far(*a), End::Node(_)) && matches!(far(*b), End::Node(_)) || far(*a) == far(*b))
            && matches!(x.ends[0], End::Node(_)) == matches!(y.ends[0], End::Node(_))
    };
    let order: Vec<usize> = (0..links).collect();
    for group in order.chunk_by(same) {
        let first = &machine.links[group[0]];
        let ends = match first.ends {
            [End::Node(_), End::Switch(_)] => {
                let nodes = group.iter().filter_map(|link| match machine.links[*link].ends[0] {
                    End::Node(id) => Some(id.0),
                    End::Switch(_) => None,
                });
                format!("{} - nodes {}", machine.end_name(first.ends[1]), ranges(nodes))
            }
            [End::Node(_), End::Node(_)] => {
                let pairs = group.iter().map(|link| {
                    let name = |end: End| machine.end_name(end).trim_start_matches("node ").to_owned();
                    let [a, b] = machine.links[*link].ends;
                    format!("{}-{}", name(a), name(b))
                });
                pairs.collect::<Vec<_>>().join(" ")
            }
            [a, b] => format!("{} - {}", machine.end_name(a), machine.end_name(b)),
        };
        let (gb_s, latency) = (known(first.gb_s), known(first.latency_ns));
        writeln!(out, "  {ends}: {gb_s} GB/s each way, {latency} ns")?;
    }
    for switch in &machine.switches {
        if let Some(ratio) = switch.oversubscription {
            writeln!(out, "  {} is oversubscribed {ratio}:1", switch.name)?;
        }
    }
    Ok(())
}

fn write_placement(placement: &Placement, out: &mut String) -> std::fmt::Result {
    let waiting = if placement.spin { "waiting threads may spin" } else { "waiting threads yield" };
    writeln!(out, "\nplacement  {}, {waiting}", counted(placement.ranks.len(), "rank"))?;
    let header = ["rank", "host", "node", "memory", "threads", "on cpus", "comm cpus"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(placement.ranks.iter().map(rank_row));
    writeln!(out, "{}", table(&rows))?;
    writeln!(out, "\nreasons\n  {}", placement.reasons.join("\n  "))?;
    if !placement.warnings.is_empty() {
        writeln!(out, "\nwarnings\n  {}", placement.warnings.join("\n  "))?;
    }
    Ok(())
}

fn rank_row(place: &RankPlace) -> Vec<String> {
    let mut compute: Vec<u32> = place.compute.iter().map(|pu| pu.0).collect();
    compute.sort_unstable();
    compute.dedup();
    let comm = ranges(place.comm.iter().map(|pu| pu.0));
    vec![
        place.rank.0.to_string(),
        place.host.to_string(),
        place.node.0.to_string(),
        ranges(place.memory_nodes.iter().map(|node| node.0)),
        place.compute.len().to_string(),
        ranges(compute),
        if comm.is_empty() { "-".to_owned() } else { comm },
    ]
}

/// Columns as wide as their widest cell, two spaces apart, right-aligned.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| width(row, column)).max().unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        format!("  {}", cells.join("  ")).trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_stand_under_each_other_whatever_the_letters() {
        let rows = [["größe", "12"], ["x", "3"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(table(&rows), "  größe  12\n      x   3");
    }
}
