//! What a schedule puts on a machine's links, round by round: small multiples of the machine, with an arrow along each
//! direction of a link that carries something.
//!
//! Width is bytes, alike in all panels but that of the sum; colour is time, over that of the busiest link of the panel.
//! Where nodes share a line to their switch, their boxes have the colour of their own link. Where the mouse rests, an
//! arrow tells its exact bytes.

use std::fmt::Write as _;

use super::canvas::{
    BORDER, COMM, COMPUTE, IDLE, INK, PALE, PAPER, escaped, frames, free_place, line, open, rect, switches, text,
};
use super::layout::{Layout, Rect, Spacing, Wire, layout};
use crate::base::units::Bytes;
use crate::machine::describe::{End, Link, Machine};
use crate::machine::routes::{Hop, LinkLoads};

/// A picture of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// Its first line.
    pub title: String,
    /// Its second line.
    pub summary: String,
    /// Of each node what is written in its box: its ranks. Empty: it has none.
    pub ranks: Vec<String>,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
    /// What is not drawn, if that is so.
    pub rest: Option<String>,
}

/// Rounds that put the same on the links.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Which ones.
    pub title: String,
    /// What they do together.
    pub summary: String,
    /// Bytes in all of them.
    pub loads: LinkLoads,
    /// Bytes between ranks of one node, by node, in all of them.
    pub within: Vec<u64>,
    /// How many they are: arrows show what each carries.
    pub rounds: u64,
    /// Whether this is the whole schedule, whose arrows have a scale of their own.
    pub whole: bool,
}

/// Panels side by side are not wider than this, unless one is.
const WIDEST: f64 = 1720.0;
/// A picture is at least so wide, that its words have room.
const NARROWEST: f64 = 760.0;
/// Height of the picture's head, of a panel's, and of the legend.
const HEAD: f64 = 58.0;
const PANEL_HEAD: f64 = 50.0;
const FOOT: f64 = 40.0;
/// Inner margin of a panel, and space between panels.
const PAD: f64 = 16.0;
const APART: f64 = 14.0;
/// Width of arrows for the fewest and the most bytes.
const THIN: f64 = 1.4;
const THICK: f64 = 6.5;
/// Letters of labels.
const LABEL: f64 = 9.0;
/// From this share of the busiest link's time on a link is as busy.
const BUSIEST: f64 = 0.99;

/// Boxes of nodes: what fits into small multiples.
#[derive(Clone, Copy)]
struct Scale {
    node: (f64, f64),
    spacing: Spacing,
    /// Whether ranks are written in boxes.
    ranks: bool,
}

impl Scale {
    const fn of(nodes: usize) -> Self {
        if nodes <= 16 {
            let spacing = Spacing { gap: 58.0, margin: 10.0, storey: 110.0, switch: (92.0, 24.0) };
            Self { node: (58.0, 34.0), spacing, ranks: true }
        } else {
            let spacing = Spacing { gap: 26.0, margin: 5.0, storey: 100.0, switch: (76.0, 22.0) };
            Self { node: (24.0, 16.0), spacing, ranks: false }
        }
    }
}

/// The picture as SVG.
///
/// # Panics
/// When a panel is not one of this machine.
#[must_use]
pub fn rounds(machine: &Machine, picture: &Picture) -> String {
    let scale = Scale::of(machine.nodes.len());
    let plan = layout(machine, scale.node.0, scale.node.1, &scale.spacing);
    let words =
        picture.panels.iter().flat_map(|panel| [panel.title.len() as f64 * 7.4, panel.summary.len() as f64 * 6.0]);
    let width = words.fold(plan.width, f64::max) + 2.0 * PAD;
    let height = plan.height + PANEL_HEAD + PAD;
    let most = (((WIDEST + APART) / (width + APART)) as usize).max(1);
    let rows = picture.panels.len().div_ceil(most).max(1);
    let columns = picture.panels.len().div_ceil(rows).max(1);
    let inner = (columns as f64 * (width + APART) - APART).max(NARROWEST);
    let top = BORDER + HEAD;
    let below = top + rows as f64 * (height + APART);
    let note = if picture.rest.is_some() { 24.0 } else { 0.0 };

    let mut out = open(inner + 2.0 * BORDER, below + note + FOOT + BORDER);
    text(&mut out, (BORDER, BORDER + 14.0), 19.0, INK, "start", &picture.title);
    text(&mut out, (BORDER, BORDER + 36.0), 12.0, PALE, "start", &picture.summary);
    let most = |panel: &Panel| panel.loads.bytes.iter().flatten().copied().max().unwrap_or(0) as f64;
    let each = picture.panels.iter().filter(|panel| !panel.whole).map(|panel| most(panel) / panel.rounds as f64);
    let each = each.fold(0.0, f64::max);
    for (number, panel) in picture.panels.iter().enumerate() {
        let corner = ((number % columns) as f64, (number / columns) as f64);
        let place =
            Rect { x: BORDER + corner.0 * (width + APART), y: top + corner.1 * (height + APART), width, height };
        rect(&mut out, &place, "#ffffff", "#dde4e9", 8.0);
        text(&mut out, (place.x + PAD, place.y + 21.0), 13.0, INK, "start", &panel.title);
        text(&mut out, (place.x + PAD, place.y + 37.0), 10.5, PALE, "start", &panel.summary);
        let left = place.x + (width - plan.width) / 2.0;
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "<g transform=\"translate({left:.1} {:.1})\">", place.y + PANEL_HEAD);
        let thickest = if panel.whole { most(panel) } else { each * panel.rounds as f64 };
        links(&mut out, machine, &plan, panel, thickest);
        nodes(&mut out, machine, &plan, picture, panel, scale);
        let _ = writeln!(out, "</g>");
    }
    if let Some(rest) = &picture.rest {
        text(&mut out, (BORDER, below + 14.0), 12.0, INK, "start", rest);
    }
    legend(&mut out, below + note + FOOT - 8.0);
    out.push_str("</svg>\n");
    out
}

fn nodes(out: &mut String, machine: &Machine, plan: &Layout, picture: &Picture, panel: &Panel, scale: Scale) {
    switches(out, plan, machine.switches.iter().map(|switch| switch.name.clone()), LABEL + 1.0);
    let tints = tints(machine, plan, &panel.loads);
    let boxes = machine.nodes.iter().zip(&plan.nodes).zip(&picture.ranks).zip(&panel.within).zip(&tints);
    for ((((node, place), ranks), within), tint) in boxes {
        let (fill, ink) = if ranks.is_empty() { ("#eef1f3", PALE) } else { ("#ffffff", INK) };
        let fill = tint.as_deref().unwrap_or(fill);
        let (x, y) = place.center();
        if *within > 0 {
            // Behind the box, so that it shows as a rim.
            let rim = Rect::around((x, y), place.width + 5.0, place.height + 5.0);
            let words = escaped(&format!("within {}: {within} bytes", node.id));
            let _ = writeln!(out, "<g><title>{words}</title>");
            rect(out, &rim, "#cfe0ec", "none", 8.0);
            let _ = writeln!(out, "</g>");
        }
        rect(out, place, fill, ink, if scale.ranks { 6.0 } else { 3.0 });
        if !scale.ranks {
            text(out, (x, y + 3.2), LABEL, ink, "middle", &node.id.0.to_string());
            continue;
        }
        text(out, (x, y - 2.0), LABEL + 2.0, ink, "middle", &node.id.to_string());
        text(out, (x, y + 11.0), LABEL, PALE, "middle", if ranks.is_empty() { "no rank" } else { ranks });
        if *within > 0 {
            let words = format!("{} inside", Bytes(within / panel.rounds));
            text(out, (x, place.y + place.height + LABEL + 3.0), LABEL, INK, "middle", &words);
        }
    }
}

/// Colours of nodes that share a line to their switch: of the busier direction of their own link, where one carries
/// anything.
fn tints(machine: &Machine, plan: &Layout, loads: &LinkLoads) -> Vec<Option<String>> {
    let busy = shares(machine, loads);
    let shared = plan.wires.iter().filter(|wire| wire.links.len() > 1).flat_map(|wire| &wire.links);
    let mut tints = vec![None; machine.nodes.len()];
    for hop in shared {
        let share = busy[hop.link].into_iter().fold(0.0, f64::max);
        let ends = machine.links[hop.link].ends;
        let node = machine.nodes.iter().position(|node| ends.contains(&End::Node(node.id)));
        if let Some(node) = node.filter(|_| share > 0.0) {
            let full = if share >= BUSIEST { COMM } else { COMPUTE };
            tints[node] = Some(mixed(full, 0.12 + 0.4 * share));
        }
    }
    tints
}

/// Links, arrows along those that carry something, and labels on these.
fn links(out: &mut String, machine: &Machine, plan: &Layout, panel: &Panel, thickest: f64) {
    frames(out, plan);
    let busy = shares(machine, &panel.loads);
    let carried = |hop: &Hop| panel.loads.bytes[hop.link][usize::from(!hop.forward)];
    let mut labels = Vec::new();
    for wire in &plan.wires {
        let clipped = clip(wire, plan);
        line(out, &clipped, IDLE, if wire.links.len() > 1 { 3.0 } else { 1.4 });
        let back: Vec<Hop> = wire.links.iter().map(|hop| Hop { forward: !hop.forward, ..*hop }).collect();
        let ways = [&wire.links, &back].map(|way| Way::of(machine, way, &carried, &busy));
        let both = ways.iter().all(|way| way.most > 0);
        for (way, arrow) in ways.iter().zip([clipped.clone(), Wire { from: clipped.to, to: clipped.from, links: back }])
        {
            if way.most == 0 {
                continue;
            }
            let width = THIN + (THICK - THIN) * way.most as f64 / thickest;
            let title = escaped(&way.told.join("\n")).replace('\n', " ");
            let shape = arrow_path(&arrow, width, both);
            let _ = writeln!(out, "<path d=\"{shape}\" fill=\"{}\"><title>{title}</title></path>", colour(way.share));
        }
        let mut words = ways.each_ref().map(|way| way.label(panel.rounds, wire.links.len()));
        // What division into whole lines makes of equal parts is one number.
        let [there, back] = &ways;
        if there.used == back.used && alike(there.most, back.most) && alike(there.least, back.least) {
            words[1] = words[0].clone();
        }
        labels.push((clipped, words));
    }
    let mut places: Vec<Rect> = Vec::new();
    let mut write = |wire: &Wire, near: f64, words: &str| {
        if words.is_empty() {
            return;
        }
        let size = (words.len() as f64 * LABEL * 0.58 + 5.0, LABEL + 4.0);
        let place = free_place(wire, near, size, plan, &places);
        let _ = writeln!(out, "<g fill-opacity=\"0.86\">");
        rect(out, &place, PAPER, "none", 3.0);
        let _ = writeln!(out, "</g>");
        let (x, y) = place.center();
        text(out, (x, y + LABEL * 0.36), LABEL, INK, "middle", words);
        places.push(place);
    };
    for (wire, [there, back]) in &labels {
        match there == back {
            true => write(wire, 0.5, there),
            // Each near the head of its arrow.
            false => {
                let apart = if there.is_empty() || back.is_empty() { 0.0 } else { 0.18 };
                write(wire, 0.5 + apart, there);
                write(wire, 0.5 - apart, back);
            }
        }
    }
}

/// One way along a line of the picture.
struct Way {
    /// Bytes of the links that carry the fewest, of those that carry some, and the most.
    least: u64,
    most: u64,
    /// How many carry some.
    used: usize,
    /// The largest share of the busiest link's time.
    share: f64,
    /// Each link's bytes in words.
    told: Vec<String>,
}

impl Way {
    fn of(machine: &Machine, hops: &[Hop], carried: &dyn Fn(&Hop) -> u64, busy: &[[f64; 2]]) -> Self {
        let mut way = Self { least: u64::MAX, most: 0, used: 0, share: 0.0, told: Vec::new() };
        for hop in hops {
            let bytes = carried(hop);
            if bytes > 0 {
                way.least = way.least.min(bytes);
                way.most = way.most.max(bytes);
                way.used += 1;
                way.share = way.share.max(busy[hop.link][usize::from(!hop.forward)]);
                way.told.push(format!("{}: {bytes} bytes;", direction(machine, hop)));
            }
        }
        way
    }

    /// Bytes of a round; of several links, how many carry how much.
    fn label(&self, rounds: u64, links: usize) -> String {
        let bytes = |bytes: u64| Bytes(bytes / rounds).to_string();
        let (least, most) = (bytes(self.least), bytes(self.most));
        match (self.used, links) {
            (0, _) => String::new(),
            (_, 1) => most,
            (used, _) if least == most => format!("{used} x {most}"),
            (used, _) => format!("{used} x {least} to {most}"),
        }
    }
}

/// Whether the difference would not be seen.
fn alike(a: u64, b: u64) -> bool {
    a.abs_diff(b) as f64 <= 0.01 * a.max(b) as f64
}

/// "node 3 to leaf0".
#[must_use]
pub fn direction(machine: &Machine, hop: &Hop) -> String {
    let [mut from, mut to] = machine.links[hop.link].ends;
    if !hop.forward {
        (from, to) = (to, from);
    }
    format!("{} to {}", machine.end_name(from), machine.end_name(to))
}

/// Each direction's time over that of the busiest; links are taken as alike where the bandwidth of one is unknown.
fn shares(machine: &Machine, loads: &LinkLoads) -> Vec<[f64; 2]> {
    let known = machine.links.iter().all(|link| link.gb_s.is_some());
    let seconds = |(bytes, link): (&[u64; 2], &Link)| {
        let gb_s = link.gb_s.filter(|_| known).unwrap_or(1.0);
        bytes.map(|bytes| bytes as f64 / gb_s)
    };
    let all: Vec<[f64; 2]> = loads.bytes.iter().zip(&machine.links).map(seconds).collect();
    let most = all.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    all.into_iter().map(|both| both.map(|seconds| seconds / most)).collect()
}

/// Orange for what is busy as long as the busiest, blue for the others, the paler the less.
fn colour(share: f64) -> String {
    if share >= BUSIEST { COMM.to_owned() } else { mixed(COMPUTE, 0.3 + 0.7 * share.clamp(0.0, 1.0)) }
}

/// So much of a colour on white.
fn mixed(colour: &str, share: f64) -> String {
    let part = |at: usize| f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap_or(0));
    let [red, green, blue] = [1, 3, 5].map(|at| (255.0 + (part(at) - 255.0) * share).round() as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// The part of a wire that is outside of the boxes at its ends.
fn clip(wire: &Wire, plan: &Layout) -> Wire {
    let inside = |point: (f64, f64)| plan.nodes.iter().chain(&plan.switches).find(|place| place.holds(point));
    let outside = |wire: &Wire| {
        let Some(place) = inside(wire.from) else { return wire.from };
        let (x, y) = (wire.to.0 - wire.from.0, wire.to.1 - wire.from.1);
        // How far to the nearer side, over the way to the other end.
        let reach = |half: f64, way: f64| if way == 0.0 { f64::INFINITY } else { half / way.abs() };
        let share = reach(place.width / 2.0, x).min(reach(place.height / 2.0, y)).min(0.5);
        wire.point(share)
    };
    let turned = Wire { from: wire.to, to: wire.from, links: Vec::new() };
    Wire { from: outside(wire), to: outside(&turned), links: wire.links.clone() }
}

/// An arrow of this width along a wire; to the right of it if another one comes the other way.
fn arrow_path(wire: &Wire, width: f64, both: bool) -> String {
    let (x, y) = (wire.to.0 - wire.from.0, wire.to.1 - wire.from.1);
    let length = x.hypot(y).max(1e-6);
    let (along, across) = ((x / length, y / length), (-y / length, x / length));
    let head = (5.0 + 1.3 * width).min(length * 0.6);
    let wing = 2.2 + 0.85 * width;
    let aside = if both { wing.min(width / 2.0 + 2.2) + 0.6 } else { 0.0 };
    let at = |far: f64, side: f64| {
        let side = side + aside;
        let x = wire.from.0 + along.0 * far + across.0 * side;
        let y = wire.from.1 + along.1 * far + across.1 * side;
        format!("{x:.1} {y:.1}")
    };
    let (half, neck) = (width / 2.0, length - head);
    let corners = [
        at(0.0, half),
        at(neck, half),
        at(neck, wing),
        at(length, 0.0),
        at(neck, -wing),
        at(neck, -half),
        at(0.0, -half),
    ];
    format!("M{}Z", corners.join("L"))
}

fn legend(out: &mut String, y: f64) {
    let mut x = BORDER;
    let mut entry = |colours: &[String], words: &str| {
        for colour in colours {
            rect(out, &Rect { x, y: y - 9.0, width: 12.0, height: 9.0 }, colour, "none", 0.0);
            x += 12.0;
        }
        text(out, (x + 7.0, y), 11.0, PALE, "start", words);
        x += 30.0 + words.len() as f64 * 6.2;
    };
    entry(&[colour(1.0)], "the panel's busiest links");
    entry(&[0.1, 0.5, 0.9].map(colour), "busy for less of the time");
    entry(&[IDLE.to_owned()], "unused");
    entry(&[], "width and numbers: bytes");
}
