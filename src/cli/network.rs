//! A network as a picture: a box for each layer, with what it reads above it and how many numbers it gives.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use layout::core::base::Orientation;
use layout::core::format::{ClipHandle, RenderBackend};
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

use crate::base::config::{DENSE, EMBEDDINGS, LayerKind, ModelConfig, NamedLayer, Width};
use crate::base::units::Many;
use crate::machine::draw::canvas;
use crate::machine::draw::canvas::{BORDER, COMPUTE, INK, PALE, WIRE};

/// Width of a letter, and height of a line, of the larger letters.
const LETTER: [f64; 2] = [8.0, 18.0];
/// Sizes of letters: of a name, and of what is below it.
const SIZES: [f64; 2] = [13.0, 11.0];

/// The network of a model as SVG.
///
/// # Errors
/// As [`ModelConfig::widths`].
pub(super) fn svg(model: &ModelConfig) -> Result<String, String> {
    let names = model.column_names(model.rows.len().max(model.columns.len()));
    let columns = Some(&names[..]).filter(|names| !names.is_empty());
    let (layers, widths) = (model.network(), model.widths(columns)?);
    let mut graph = VisualGraph::new(Orientation::TopToBottom);
    let mut add = |lines: &[String]| {
        let letters = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) as f64;
        let size = Point::new(letters.mul_add(LETTER[0], 20.0), (lines.len() as f64).mul_add(LETTER[1], 16.0));
        let shape = ShapeKind::new_box(&lines.join("\n"));
        graph.add_node(Element::create(shape, StyleAttr::simple(), Orientation::TopToBottom, size))
    };
    let mut boxes = BTreeMap::new();
    let inputs =
        layers.iter().flat_map(|layer| &layer.of).filter(|name| layers.iter().all(|layer| layer.name != **name));
    for name in inputs {
        boxes
            .entry(&name[..])
            .or_insert_with(|| add(&[name.clone(), given(model, name, columns.map(<[String]>::len))]));
    }
    for &at in &widths.order {
        let (name, about) = (&layers[at].name, said(model, &layers[at], at == widths.logit));
        let gives = gives(widths.of[at]);
        boxes.insert(
            name,
            add(&[name.clone(), about, gives].into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>()),
        );
    }
    for layer in &layers {
        for of in &layer.of {
            graph.add_edge(Arrow::simple(""), boxes[&of[..]], boxes[&layer.name[..]]);
        }
    }
    let mut picture = Picture { shapes: String::new(), texts: String::new(), size: [0.0; 2] };
    graph.do_it(false, false, false, &mut picture);
    let [width, height] = picture.size.map(|size| size + BORDER);
    Ok(format!("{}{}{}</svg>\n", canvas::open(width, height), picture.shapes, picture.texts))
}

/// How many numbers a layer gives.
fn gives(width: Width) -> String {
    let each = if width.each_step { " a step" } else { "" };
    width.numbers.map_or_else(String::new, |numbers| format!("{}{each}", Many(numbers as u64, "number")))
}

/// What features of a name are.
fn given(model: &ModelConfig, name: &str, columns: Option<usize>) -> String {
    let dim = Many(model.dim as u64, "number");
    match name {
        DENSE if model.bottom[0] == 0 => "as many as the data has".to_owned(),
        DENSE => Many(model.bottom[0] as u64, "number").to_string(),
        EMBEDDINGS => match columns {
            Some(count) => format!("{}, {dim} each", Many(count as u64, "column")),
            None => format!("all columns, {dim} each"),
        },
        _ => format!("column, {dim}"),
    }
}

/// What a layer is.
fn said(model: &ModelConfig, layer: &NamedLayer, is_logit: bool) -> String {
    let list = |widths: &[usize]| widths.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let kind = layer.kind.name();
    let said = match layer.kind {
        LayerKind::Linear => format!("{kind} {}", list(&layer.outputs)),
        LayerKind::Attention => {
            let hidden = if layer.outputs.is_empty() { String::new() } else { format!(" by {}", list(&layer.outputs)) };
            format!("{kind}{hidden} over {} steps", model.ts_length)
        }
        LayerKind::Cross => {
            let [layers, rank] = [layer.layers, layer.rank].map(|size| size.unwrap_or(0));
            format!("{kind}, {layers} layers of rank {rank}")
        }
        LayerKind::Dot if layer.itself == Some(true) => format!("{kind}, each with itself, too"),
        LayerKind::Wide => format!("{kind}, {}", Many(model.wide_crosses.len() as u64, "cross")),
        _ => kind.to_owned(),
    };
    if is_logit { format!("{said}: the logit") } else { said }
}

/// What the layout draws.
struct Picture {
    shapes: String,
    texts: String,
    size: [f64; 2],
}

impl Picture {
    fn reach(&mut self, point: Point) {
        self.size = [self.size[0].max(point.x), self.size[1].max(point.y)];
    }
}

impl RenderBackend for Picture {
    fn draw_rect(&mut self, at: Point, size: Point, _: &StyleAttr, _: Option<String>, _: Option<ClipHandle>) {
        self.reach(at.add(size));
        let place = canvas::Rect { x: at.x, y: at.y, width: size.x, height: size.y };
        canvas::rect(&mut self.shapes, &place, "#e4edf4", COMPUTE, 6.0);
    }

    fn draw_text(&mut self, at: Point, text: &str, _: &StyleAttr) {
        let lines = text.lines().count() as f64;
        for (line, words) in text.lines().enumerate() {
            let y = (line as f64 - (lines - 1.0) / 2.0).mul_add(LETTER[1], at.y + SIZES[1] / 3.0);
            let (size, colour) = if line == 0 { (SIZES[0], INK) } else { (SIZES[1], PALE) };
            canvas::text(&mut self.texts, (at.x, y), size, colour, "middle", words);
        }
    }

    fn draw_arrow(
        &mut self,
        path: &[(Point, Point)],
        _: bool,
        _: (bool, bool),
        _: &StyleAttr,
        _: Option<String>,
        _: &str,
    ) {
        let [(start, out), (near, end), more @ ..] = path else { return };
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            self.shapes,
            "<path d=\"M {:.1} {:.1} C {:.1} {:.1}, {:.1} {:.1}, {:.1} {:.1}",
            start.x, start.y, out.x, out.y, near.x, near.y, end.x, end.y
        );
        for (near, end) in more {
            self.reach(*end);
            let _ = write!(self.shapes, " S {:.1} {:.1}, {:.1} {:.1}", near.x, near.y, end.x, end.y);
        }
        let _ = writeln!(self.shapes, "\" stroke=\"{WIRE}\" stroke-width=\"1.6\" fill=\"none\"/>");
    }

    fn draw_line(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn draw_circle(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn create_clip(&mut self, _: Point, _: Point, _: usize) -> ClipHandle {
        0
    }
}
