//! The machine as a picture: sockets with their cores, links with their bandwidths, ranks by colour.
//!
//! Plain SVG text, well-formed by construction: every text goes through `escaped`.

use std::fmt::Write as _;

use super::known;
use super::layout::{Layout, Rect, Wire, layout};
use crate::base::PuId;
use crate::base::units::Bytes;
use crate::machine::describe::{Machine, Node};
use crate::machine::placement::Placement;

const COMPUTE: &str = "#2f7fb8";
const COMM: &str = "#e8872b";
const IDLE: &str = "#d3d9de";
const FORBIDDEN: &str = "#ffffff";
const INK: &str = "#22303c";
const PALE: &str = "#5c6b78";
const WIRE: &str = "#8fa0ae";

/// Space round the picture.
const BORDER: f64 = 28.0;
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
    let plan = layout(machine, scale.width(), height);
    let tiers = if machine.tiers.is_empty() { 0.0 } else { 64.0 };
    let total_width = plan.width.max(620.0) + 2.0 * BORDER;
    let total_height = plan.height + HEAD + tiers + 2.0 * BORDER + 34.0;

    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{total_width:.0}\" height=\"{total_height:.0}\" \
         viewBox=\"0 0 {total_width:.0} {total_height:.0}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fbfcfd\"/>\n"
    );
    head(&mut out, machine, placement);
    let left = BORDER + (plan.width.max(620.0) - plan.width) / 2.0;
    let _ = writeln!(out, "<g transform=\"translate({left:.1} {:.1})\">", BORDER + HEAD);
    for frame in &plan.frames {
        rect(&mut out, frame, "#f1f4f6", "#c6d0d8", 8.0);
    }
    wires(&mut out, machine, &plan);
    for (switch, place) in machine.switches.iter().zip(&plan.switches) {
        rect(&mut out, place, "#e4edf4", PALE, 6.0);
        let ratio = switch.oversubscription.map_or_else(String::new, |ratio| format!(" ({ratio}:1)"));
        let (x, y) = place.center();
        text(&mut out, (x, y + 4.0), 13.0, INK, "middle", &format!("{}{ratio}", switch.name));
    }
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
        let ((x1, y1), (x2, y2)) = (wire.from, wire.to);
        let thick = if wire.links.len() > 1 { 5.0 } else { 2.0 };
        let _ = writeln!(
            out,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{WIRE}\" stroke-width=\"{thick}\"/>"
        );
    }
    let mut labels: Vec<Rect> = Vec::new();
    for wire in &plan.wires {
        let Some(label) = wire_label(machine, wire) else { continue };
        let place = free_place(wire, label.len() as f64 * 6.6 + 8.0, plan, &labels);
        rect(out, &place, "#fbfcfd", "none", 4.0);
        let (x, y) = place.center();
        text(out, (x, y + 4.0), 11.0, INK, "middle", &label);
        labels.push(place);
    }
}

/// The bandwidth of one direction; `None` when it is unknown.
fn wire_label(machine: &Machine, wire: &Wire) -> Option<String> {
    let speeds = wire.links.iter().filter_map(|link| machine.links[*link].gb_s);
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

/// The place along a wire where a label covers the least: boxes and other labels count most, other wires little.
fn free_place(wire: &Wire, width: f64, plan: &Layout, labels: &[Rect]) -> Rect {
    let cost = |place: &Rect, share: f64| {
        let hit = |rects: &[Rect]| rects.iter().filter(|rect| rect.touches(place, 2.0)).count() as f64;
        let crossed = plan.wires.iter().filter(|other| *other != wire && crosses(other, place)).count() as f64;
        100.0 * (hit(&plan.nodes) + hit(&plan.switches) + hit(labels)) + 3.0 * crossed + (share - 0.5).abs()
    };
    let places = (0..=60).map(|step| {
        let share = 0.2 + 0.01 * f64::from(step);
        let (x, y) = point(wire, share);
        let place = Rect::around((x, y), width, 16.0);
        (cost(&place, share), place)
    });
    places.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, place)| place).unwrap_or_default()
}

fn point(wire: &Wire, share: f64) -> (f64, f64) {
    (wire.from.0 + share * (wire.to.0 - wire.from.0), wire.from.1 + share * (wire.to.1 - wire.from.1))
}

/// Whether a wire comes near a label.
fn crosses(wire: &Wire, place: &Rect) -> bool {
    let place = Rect::around(place.center(), place.width + 14.0, place.height + 14.0);
    (0..=200)
        .map(|step| point(wire, f64::from(step) / 200.0))
        .any(|(x, y)| x > place.x && x < place.x + place.width && y > place.y && y < place.y + place.height)
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

fn rect(out: &mut String, place: &Rect, fill: &str, stroke: &str, radius: f64) {
    let Rect { x, y, width, height } = place;
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius}\" fill=\"{fill}\" \
         stroke=\"{stroke}\"/>"
    );
}

fn square(out: &mut String, (x, y): (f64, f64), size: f64, colour: &str) {
    let stroke = if colour == FORBIDDEN { PALE } else { "none" };
    rect(out, &Rect { x, y, width: size, height: size }, colour, stroke, 1.5);
}

fn text(out: &mut String, (x, y): (f64, f64), size: f64, colour: &str, anchor: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{colour}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

/// Text between tags: the three characters with a meaning are replaced, what XML cannot hold is left out.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}
