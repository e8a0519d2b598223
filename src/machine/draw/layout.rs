//! Where things stand in the picture: nodes round a circle, or under their switches.
//!
//! Invariant: no two boxes overlap. Round the circle the order follows a ring of direct links if there is one, so that
//! most links run between neighbours. Units are SVG pixels, y grows downwards.

use crate::machine::describe::{End, Link, Machine};
use crate::machine::routes::Hop;

/// How far things are apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spacing {
    /// Free space between boxes round the circle, and the most of it between frames.
    pub gap: f64,
    /// Inner margin of a frame.
    pub margin: f64,
    /// Space between the rows of switches and the frames.
    pub storey: f64,
    /// Width and height of a switch.
    pub switch: (f64, f64),
}

impl Spacing {
    /// Of a picture for its own sake.
    pub const WIDE: Self = Self { gap: 64.0, margin: 14.0, storey: 90.0, switch: (150.0, 34.0) };
}

/// A box by its upper left corner.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rect {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Rect {
    pub fn around(center: (f64, f64), width: f64, height: f64) -> Self {
        Self { x: center.0 - width / 2.0, y: center.1 - height / 2.0, width, height }
    }

    pub fn center(&self) -> (f64, f64) {
        (self.x + self.width / 2.0, self.y + self.height / 2.0)
    }

    /// Whether the point is inside.
    pub fn holds(&self, (x, y): (f64, f64)) -> bool {
        x > self.x && x < self.x + self.width && y > self.y && y < self.y + self.height
    }

    /// Whether the boxes come nearer than `gap`.
    pub fn touches(&self, other: &Self, gap: f64) -> bool {
        self.x < other.x + other.width + gap
            && other.x < self.x + self.width + gap
            && self.y < other.y + other.height + gap
            && other.y < self.y + self.height + gap
    }
}

/// A line that stands for one or several links.
#[derive(Debug, Clone, PartialEq)]
pub struct Wire {
    pub from: (f64, f64),
    pub to: (f64, f64),
    /// The directions of these links in which the line is drawn.
    pub links: Vec<Hop>,
}

impl Wire {
    /// The point after a share of its length.
    pub fn point(&self, share: f64) -> (f64, f64) {
        (self.from.0 + share * (self.to.0 - self.from.0), self.from.1 + share * (self.to.1 - self.from.1))
    }
}

/// The whole picture, its origin at the upper left corner of everything.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    pub nodes: Vec<Rect>,
    pub switches: Vec<Rect>,
    pub frames: Vec<Rect>,
    pub wires: Vec<Wire>,
    pub width: f64,
    pub height: f64,
}

/// Places boxes of `width` by `height`, one a node.
pub fn layout(machine: &Machine, width: f64, height: f64, spacing: &Spacing) -> Layout {
    let mut layout = if machine.switches.is_empty() && machine.nodes.len() <= 8 {
        circle(machine, width, height, spacing)
    } else {
        storeys(machine, width, height, spacing)
    };
    let boxes = || layout.nodes.iter().chain(&layout.switches).chain(&layout.frames);
    let left = boxes().map(|rect| rect.x).fold(f64::INFINITY, f64::min);
    let top = boxes().map(|rect| rect.y).fold(f64::INFINITY, f64::min);
    layout.width = boxes().map(|rect| rect.x + rect.width).fold(0.0, f64::max) - left;
    layout.height = boxes().map(|rect| rect.y + rect.height).fold(0.0, f64::max) - top;
    for rect in layout.nodes.iter_mut().chain(&mut layout.switches).chain(&mut layout.frames) {
        rect.x -= left;
        rect.y -= top;
    }
    for point in layout.wires.iter_mut().flat_map(|wire| [&mut wire.from, &mut wire.to]) {
        point.0 -= left;
        point.1 -= top;
    }
    layout
}

fn circle(machine: &Machine, width: f64, height: f64, spacing: &Spacing) -> Layout {
    let order = ring(machine);
    let count = order.len();
    let step = std::f64::consts::TAU / count as f64;
    // Half a step, so that the picture stands on a side and not on a corner; two nodes stand side by side.
    let first = if count == 2 { -std::f64::consts::PI } else { -(std::f64::consts::FRAC_PI_2 + step / 2.0) };
    let mut nodes = vec![Rect::default(); count];
    let mut radius = if count == 1 { 0.0 } else { 60.0 };
    loop {
        for (position, node) in order.iter().enumerate() {
            let angle = first + step * position as f64;
            nodes[*node] = Rect::around((radius * 1.15 * angle.cos(), radius * angle.sin()), width, height);
        }
        let crowded = (0..count).any(|a| (0..a).any(|b| nodes[a].touches(&nodes[b], spacing.gap)));
        if !crowded {
            break;
        }
        radius += 10.0;
    }
    let mut layout = Layout { nodes, ..Layout::default() };
    layout.wires = straight(machine, &layout, |_| true);
    layout
}

/// Links as straight lines from centre to centre.
fn straight(machine: &Machine, layout: &Layout, wanted: impl Fn(usize) -> bool) -> Vec<Wire> {
    let center = |end: End| match end {
        End::Node(id) => {
            let node = machine.nodes.iter().position(|node| node.id == id).expect("links end at nodes of the machine");
            layout.nodes[node].center()
        }
        End::Switch(position) => layout.switches[position].center(),
    };
    let wire = |(link, described): (usize, &Link)| {
        let [from, to] = described.ends.map(center);
        Wire { from, to, links: vec![Hop { link, forward: true }] }
    };
    machine.links.iter().enumerate().filter(|(link, _)| wanted(*link)).map(wire).collect()
}

/// Positions of nodes along a ring of direct links; in the machine's order if there is none.
fn ring(machine: &Machine) -> Vec<usize> {
    let count = machine.nodes.len();
    let joined = |a: usize, b: usize| {
        let ends = [End::Node(machine.nodes[a].id), End::Node(machine.nodes[b].id)];
        machine.links.iter().any(|link| link.ends == ends || link.ends == [ends[1], ends[0]])
    };
    fn extend(path: &mut Vec<usize>, count: usize, joined: &dyn Fn(usize, usize) -> bool) -> bool {
        let last = path[path.len() - 1];
        if path.len() == count {
            return joined(last, path[0]);
        }
        for next in 0..count {
            if !path.contains(&next) && joined(last, next) {
                path.push(next);
                if extend(path, count, joined) {
                    return true;
                }
                path.pop();
            }
        }
        false
    }
    let mut path = vec![0];
    if count > 2 && extend(&mut path, count, &joined) { path } else { (0..count).collect() }
}

/// Switches without nodes on top, then those with nodes, then a frame with the nodes of each.
fn storeys(machine: &Machine, width: f64, height: f64, spacing: &Spacing) -> Layout {
    let Spacing { gap, margin, storey, switch: (switch_width, switch_height) } = *spacing;
    let home = |node: usize| {
        machine.links.iter().enumerate().find_map(|(link, described)| match described.ends {
            [End::Node(id), End::Switch(switch)] | [End::Switch(switch), End::Node(id)]
                if id == machine.nodes[node].id =>
            {
                // Down, as its line is drawn.
                Some((switch, Hop { link, forward: matches!(described.ends[0], End::Switch(_)) }))
            }
            _ => None,
        })
    };
    // Frames: one for each switch with nodes, in the machine's order, and one for nodes without a switch.
    let mut groups: Vec<(Option<usize>, Vec<usize>, Vec<Hop>)> = Vec::new();
    for node in 0..machine.nodes.len() {
        let (switch, link) = home(node).unzip();
        match groups.iter_mut().find(|group| group.0 == switch) {
            Some(group) => {
                group.1.push(node);
                group.2.extend(link);
            }
            None => groups.push((switch, vec![node], link.into_iter().collect())),
        }
    }
    let leaves: Vec<usize> = groups.iter().filter_map(|group| group.0).collect();
    let upper: Vec<usize> = (0..machine.switches.len()).filter(|switch| !leaves.contains(switch)).collect();
    let leaf_y = if upper.is_empty() { 0.0 } else { switch_height + storey };
    let frame_y = if leaves.is_empty() { 0.0 } else { leaf_y + switch_height + storey * 0.7 };

    let mut layout = Layout {
        nodes: vec![Rect::default(); machine.nodes.len()],
        switches: vec![Rect::default(); machine.switches.len()],
        ..Layout::default()
    };
    let mut shown = Vec::new();
    let mut x = 0.0;
    for (switch, members, links) in &groups {
        let columns = columns(members.len());
        let rows = members.len().div_ceil(columns);
        let frame = Rect {
            x,
            y: frame_y,
            width: columns as f64 * (width + margin) + margin,
            height: rows as f64 * (height + margin) + margin,
        };
        for (position, node) in members.iter().enumerate() {
            let (row, column) = ((position / columns) as f64, (position % columns) as f64);
            let corner = (frame.x + margin + column * (width + margin), frame.y + margin + row * (height + margin));
            layout.nodes[*node] = Rect { x: corner.0, y: corner.1, width, height };
        }
        if let Some(switch) = switch {
            let middle = frame.center().0;
            layout.switches[*switch] =
                Rect::around((middle, leaf_y + switch_height / 2.0), switch_width, switch_height);
            let wire = Wire { from: (middle, leaf_y + switch_height), to: (middle, frame.y), links: links.clone() };
            layout.wires.push(wire);
            shown.extend(links.iter().map(|hop| hop.link));
        }
        x += frame.width + gap * 2.5;
        layout.frames.push(frame);
    }
    let whole = x - gap * 2.5;
    for (position, switch) in upper.iter().enumerate() {
        let middle = whole * (position as f64 + 0.5) / upper.len() as f64;
        layout.switches[*switch] = Rect::around((middle, switch_height / 2.0), switch_width, switch_height);
    }
    let others = straight(machine, &layout, |link| !shown.contains(&link));
    layout.wires.extend(others);
    layout
}

/// Columns of a grid, a little wider than high and without a ragged last row where possible.
fn columns(count: usize) -> usize {
    let least = (count as f64).sqrt().ceil() as usize;
    (least..=2 * least).find(|columns| count.is_multiple_of(*columns)).unwrap_or(least).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::describe::SHIPPED;

    #[test]
    fn no_boxes_overlap() {
        for (name, _) in SHIPPED {
            let machine = Machine::load(name).expect("shipped machines are right");
            let layout = layout(&machine, 170.0, 120.0, &Spacing::WIDE);
            let boxes: Vec<&Rect> = layout.nodes.iter().chain(&layout.switches).collect();
            for (position, a) in boxes.iter().enumerate() {
                assert!(a.x >= 0.0 && a.x + a.width <= layout.width + 1e-9, "{name}: {a:?}");
                assert!(a.y >= 0.0 && a.y + a.height <= layout.height + 1e-9, "{name}: {a:?}");
                for b in &boxes[..position] {
                    assert!(!a.touches(b, 1.0), "{name}: {a:?} and {b:?}");
                }
            }
        }
    }

    #[test]
    fn the_circle_follows_direct_links() {
        let machine = Machine::load("twisted-hypercube-8").expect("shipped");
        let order = ring(&machine);
        for (position, node) in order.iter().enumerate() {
            let next = order[(position + 1) % order.len()] as u32;
            let ends = [*node as u32, next].map(|id| End::Node(crate::base::NodeId(id)));
            assert!(machine.links.iter().any(|link| link.ends.iter().all(|end| ends.contains(end))), "{order:?}");
        }
    }

    #[test]
    fn grids_have_full_rows() {
        assert_eq!([1, 2, 4, 16, 32, 64].map(columns), [1, 2, 2, 4, 8, 8]);
    }
}
