//! What pictures are made of: boxes, text and the places of labels, in plain SVG.
//!
//! Well-formed by construction: every text goes through `escaped`.

use std::fmt::Write as _;

pub use super::layout::Rect;
use super::layout::{Layout, Wire};

pub const COMPUTE: &str = "#2f7fb8";
pub const COMM: &str = "#e8872b";
pub const IDLE: &str = "#d3d9de";
pub const INK: &str = "#22303c";
pub const PALE: &str = "#5c6b78";
pub const WIRE: &str = "#8fa0ae";
pub const PAPER: &str = "#fbfcfd";

/// Space round the picture.
pub const BORDER: f64 = 28.0;

/// The start of a picture of this size, on paper.
pub fn open(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{PAPER}\"/>\n"
    )
}

/// The switches with their names, in letters of this size.
pub fn switches(out: &mut String, plan: &Layout, names: impl Iterator<Item = String>, size: f64) {
    for (name, place) in names.zip(&plan.switches) {
        rect(out, place, "#e4edf4", PALE, 6.0);
        let (x, y) = place.center();
        text(out, (x, y + size * 0.3), size, INK, "middle", &name);
    }
}

/// The frames round nodes of one switch.
pub fn frames(out: &mut String, plan: &Layout) {
    for frame in &plan.frames {
        rect(out, frame, "#f1f4f6", "#c6d0d8", 8.0);
    }
}

pub fn rect(out: &mut String, place: &Rect, fill: &str, stroke: &str, radius: f64) {
    let Rect { x, y, width, height } = place;
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius}\" fill=\"{fill}\" \
         stroke=\"{stroke}\"/>"
    );
}

pub fn line(out: &mut String, wire: &Wire, colour: &str, thick: f64) {
    let ((x1, y1), (x2, y2)) = (wire.from, wire.to);
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"{thick}\"/>"
    );
}

pub fn text(out: &mut String, (x, y): (f64, f64), size: f64, colour: &str, anchor: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{colour}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

/// Text between tags: the three characters with a meaning are replaced, what XML cannot hold is left out.
pub fn escaped(text: &str) -> String {
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

/// The place along a wire where a label of this size covers the least, as near as can be to a share of its length:
/// boxes and other labels count most, other wires little.
pub fn free_place(wire: &Wire, near: f64, (width, height): (f64, f64), plan: &Layout, labels: &[Rect]) -> Rect {
    let cost = |place: &Rect, share: f64| {
        let hit = |rects: &[Rect]| rects.iter().filter(|rect| rect.touches(place, 2.0)).count() as f64;
        let crossed =
            plan.wires.iter().filter(|other| other.links != wire.links && crosses(other, place)).count() as f64;
        100.0 * (hit(&plan.nodes) + hit(&plan.switches) + hit(labels)) + 3.0 * crossed + (share - near).abs()
    };
    let places = (0..=60).map(|step| {
        let share = 0.2 + 0.01 * f64::from(step);
        let place = Rect::around(wire.point(share), width, height);
        (cost(&place, share), place)
    });
    places.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, place)| place).unwrap_or_default()
}

/// Whether a wire comes near a label.
fn crosses(wire: &Wire, place: &Rect) -> bool {
    let place = Rect::around(place.center(), place.width + 14.0, place.height + 14.0);
    (0..=200).map(|step| wire.point(f64::from(step) / 200.0)).any(|point| place.holds(point))
}
