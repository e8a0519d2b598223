//! The machine as a picture: sockets with their cores, links with their bandwidths, ranks by colour.

use std::fmt::Write as _;

use super::canvas::{
    BORDER, COMM, COMPUTE, IDLE, INK, PALE, PAPER, WIRE, frames, free_place, line, open, rect, switches, text,
};
use super::known;
use super::layout::{Layout, Rect, Spacing, Wire, layout};
use crate::base::PuId;
use crate::base::units::Bytes;
use crate::machine::describe::{Machine, Node, Switch};
use crate::machine::placement::Placement;

const FORBIDDEN: &str = "#ffffff";

/// Height of the head with title and summary.
const HEAD: f64 = 62.0;

/// Sizes within a node's box; smaller where there are many nodes.
#[derive(Clone, Copy)]
struct Scale {
    core: f64,
    gap: f64,
    columns: usize,
    label: f64,
    font: f64,
    pad: f64,
}

impl Scale {
    const fn of(nodes: usize) -> Self {
        if nodes <= 16 {
            Self { core: 11.0, gap: 3.0, columns: 8, label: 52.0, font: 11.0, pad: 10.0 }
        } else {
            Self { core: 6.0, gap: 2.0, columns: 7, label: 30.0, font: 8.0, pad: 6.0 }
        }
    }

    fn line(self) -> f64 {
        self.font + 5.0
    }

    fn grid_height(self, cores: usize) -> f64 {
        (cores.div_ceil(self.columns) as f64 * (self.core + self.gap)).max(self.line()) + self.gap
    }

    fn width(self) -> f64 {
        2.0 * self.pad + self.label + self.columns as f64 * (self.core + self.gap)
    }
}

/// Cores of a node that are drawn together.
struct Block {
    label: String,
    colours: Vec<&'static str>,
}

/// The picture as SVG.
#[must_use]
pub fn svg(machine: &Machine, placement: &Placement) -> String {
    let scale = Scale::of(machine.nodes.len());
    let blocks: Vec<Vec<Block>> = machine.nodes.iter().map(|node| blocks(node, placement)).collect();
    let box_height = |blocks: &Vec<Block>| {
        let cores: f64 = blocks.iter().map(|block| scale.grid_height(block.colours.len())).sum();
        2.0 * scale.pad + 2.0 * scale.line() + scale.gap + cores
    };
    let height = blocks.iter().map(box_height).fold(0.0, f64::max);
    let plan = layout(machine, scale.width(), height, &Spacing::WIDE);
    let tiers = if machine.tiers.is_empty() { 0.0 } else { 64.0 };
    let total_width = plan.width.max(620.0) + 2.0 * BORDER;
    let total_height = plan.height + HEAD + tiers + 2.0 * BORDER + 34.0;

    let mut out = open(total_width, total_height);
    head(&mut out, machine, placement);
    let left = BORDER + (plan.width.max(620.0) - plan.width) / 2.0;
    // Writing to a String cannot fail.
    let _ = writeln!(out, "<g transform=\"translate({left:.1} {:.1})\">", BORDER + HEAD);
    frames(&mut out, &plan);
    wires(&mut out, machine, &plan);
    let name = |switch: &Switch| {
        let ratio = switch.oversubscription.map_or_else(String::new, |ratio| format!(" ({ratio}:1)"));
        format!("{}{ratio}", switch.name)
    };
    switches(&mut out, &plan, machine.switches.iter().map(name), 13.0);
    for ((node, blocks), place) in machine.nodes.iter().zip(&blocks).zip(&plan.nodes) {
        node_box(&mut out, node, blocks, place, scale);
    }
    let _ = writeln!(out, "</g>");
    tier_row(&mut out, machine, total_width, BORDER + HEAD + plan.height + 18.0);
    legend(&mut out, machine, total_height - BORDER);
    out.push_str("</svg>\n");
    out
}

/// A node's cores by rank; those of no rank come last.
fn blocks(node: &Node, placement: &Placement) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut used = vec![false; node.cores.len()];
    for place in placement.ranks.iter().filter(|place| place.host == node.host) {
        let mut colours = Vec::new();
        for (core, used) in node.cores.iter().zip(&mut used) {
            let has = |list: &[PuId]| core.pus.iter().any(|pu| list.contains(&pu.id));
            let comm = has(&place.comm);
            if comm || has(&place.compute) {
                colours.push(if comm { COMM } else { COMPUTE });
                *used = true;
            }
        }
        if !colours.is_empty() {
            blocks.push(Block { label: place.rank.to_string(), colours });
        }
    }
    let rest = |allowed: bool| {
        let cores = node.cores.iter().zip(&used);
        cores.filter(|(core, used)| !**used && core.allowed().next().is_some() == allowed).count()
    };
    let (idle, forbidden) = (rest(true), rest(false));
    if idle + forbidden > 0 {
        let colours = [vec![IDLE; idle], vec![FORBIDDEN; forbidden]].concat();
        blocks.push(Block { label: "idle".to_owned(), colours });
    }
    blocks
}

fn head(out: &mut String, machine: &Machine, placement: &Placement) {
    text(out, (BORDER, BORDER + 14.0), 19.0, INK, "start", &machine.name);
    let memory = Bytes(machine.nodes.iter().map(|node| node.memory_bytes).sum());
    let spin = if placement.spin { "" } else { ", time-shared" };
    let counts = [
        (machine.nodes.len(), "node"),
        (machine.cores(), "core"),
        (machine.links.len(), "link"),
        (placement.ranks.len(), "rank"),
    ];
    let [nodes, cores, links, ranks] = counts.map(|(count, word)| super::counted(count, word));
    let summary = format!("{nodes}, {cores}, {memory}, {links}, {ranks}{spin}");
    text(out, (BORDER, BORDER + 36.0), 12.0, PALE, "start", &summary);
}

fn node_box(out: &mut String, node: &Node, blocks: &[Block], place: &Rect, scale: Scale) {
    rect(out, place, "#ffffff", INK, 7.0);
    let (left, mut y) = (place.x + scale.pad, place.y + scale.pad + scale.font);
    text(out, (left, y), scale.font + 2.0, INK, "start", &node.id.to_string());
    let memory = Bytes(node.memory_bytes);
    let speed = node.memory_gb_s.map_or_else(String::new, |gb_s| format!(", {} GB/s", known(Some(gb_s))));
    y += scale.line();
    text(out, (left, y), scale.font, PALE, "start", &format!("{memory}{speed}"));
    y += scale.line() - scale.font + scale.gap;
    for block in blocks {
        text(out, (left, y + scale.core - 1.0), scale.font - 1.0, PALE, "start", &block.label);
        for (position, colour) in block.colours.iter().enumerate() {
            let (row, column) = (position / scale.columns, position % scale.columns);
            let step = scale.core + scale.gap;
            let corner = (left + scale.label + column as f64 * step, y + row as f64 * step);
            square(out, corner, scale.core, colour);
        }
        y += scale.grid_height(block.colours.len());
    }
}

fn wires(out: &mut String, machine: &Machine, plan: &Layout) {
    for wire in &plan.wires {
        line(out, wire, WIRE, if wire.links.len() > 1 { 5.0 } else { 2.0 });
    }
    let mut labels: Vec<Rect> = Vec::new();
    for wire in &plan.wires {
        let Some(label) = wire_label(machine, wire) else { continue };
        let place = free_place(wire, 0.5, (label.len() as f64 * 6.6 + 8.0, 16.0), plan, &labels);
        rect(out, &place, PAPER, "none", 4.0);
        let (x, y) = place.center();
        text(out, (x, y + 4.0), 11.0, INK, "middle", &label);
        labels.push(place);
    }
}

/// The bandwidth of one direction; `None` when it is unknown.
fn wire_label(machine: &Machine, wire: &Wire) -> Option<String> {
    let speeds = wire.links.iter().filter_map(|hop| machine.links[hop.link].gb_s);
    let (least, most) = speeds.fold((f64::INFINITY, 0.0_f64), |(low, high), gb_s| (low.min(gb_s), high.max(gb_s)));
    if most == 0.0 {
        return None;
    }
    let speed = match least == most {
        true => known(Some(most)),
        false => format!("{}-{}", known(Some(least)), known(Some(most))),
    };
    Some(if wire.links.len() > 1 { format!("{} x {speed} GB/s", wire.links.len()) } else { format!("{speed} GB/s") })
}

fn tier_row(out: &mut String, machine: &Machine, width: f64, y: f64) {
    let count = machine.tiers.len() as f64;
    for (position, tier) in machine.tiers.iter().enumerate() {
        let middle = width * (position as f64 + 0.5) / count;
        let place = Rect::around((middle, y + 24.0), 200.0_f64.min(width / count - 6.0), 44.0);
        rect(out, &place, "#eef3ea", "#8aa06f", 7.0);
        text(out, (middle, y + 20.0), 12.0, INK, "middle", &format!("{}: memory only", tier.id));
        let near = crate::machine::ranges::ranges(tier.near.iter().map(|node| node.0));
        text(out, (middle, y + 37.0), 11.0, PALE, "middle", &format!("{}, near {near}", Bytes(tier.memory_bytes)));
    }
}

fn legend(out: &mut String, machine: &Machine, y: f64) {
    let mut x = BORDER;
    let entries = [(COMPUTE, "computes"), (COMM, "communicates"), (IDLE, "idle"), (FORBIDDEN, "not allowed")];
    for (colour, word) in entries {
        square(out, (x, y - 10.0), 11.0, colour);
        text(out, (x + 17.0, y), 11.0, PALE, "start", word);
        x += 40.0 + word.len() as f64 * 6.8;
    }
    let unknown = machine.links.iter().any(|link| link.gb_s.is_none());
    let note = if unknown { "a square is a core; link bandwidth unknown" } else { "a square is a core; GB/s each way" };
    text(out, (x, y), 11.0, PALE, "start", note);
}

fn square(out: &mut String, (x, y): (f64, f64), size: f64, colour: &str) {
    let stroke = if colour == FORBIDDEN { PALE } else { "none" };
    rect(out, &Rect { x, y, width: size, height: size }, colour, stroke, 1.5);
}
