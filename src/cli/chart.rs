//! Charts as SVG: lines over the number of ranks or over thresholds, bars of parts, and the trials of a search.

use plotters::coord::Shift;
use plotters::prelude::*;

/// Pixels of a chart.
const SIZE: (u32, u32) = (760, 440);

/// Pixels of a chart of trials.
const WIDE: (u32, u32) = (900, 420);

/// Told apart by most people, also in print.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x1b, 0x6c, 0xa8),
    RGBColor(0xe0, 0x7b, 0x00),
    RGBColor(0x2a, 0x8f, 0x5b),
    RGBColor(0xb0, 0x3a, 0x48),
    RGBColor(0x6f, 0x56, 0xa3),
    RGBColor(0x6b, 0x6b, 0x6b),
    RGBColor(0x9c, 0x6b, 0x3f),
];

/// A line, or dots that are not joined.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub joined: bool,
}

/// A bar of parts, one above the other.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    pub name: String,
    pub parts: Vec<f64>,
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max).max(f64::MIN_POSITIVE) * 1.08
}

/// What a backend that writes into a string cannot fail at.
const DRAWN: &str = "a text takes every drawing";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What is drawn on an area of so many pixels.
fn drawn(size: (u32, u32), draw: impl FnOnce(&Area<'_>)) -> String {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).expect(DRAWN);
        draw(&area);
        area.present().expect(DRAWN);
    }
    svg
}

/// A chart with room for what its axes are called.
fn framed<'a, 'b, 's>(area: &'a Area<'s>) -> ChartBuilder<'a, 'b, SVGBackend<'s>> {
    let mut chart = ChartBuilder::on(area);
    chart.margin(14).x_label_area_size(40).y_label_area_size(56);
    chart
}

/// Draws a line as dots of so many pixels, joined where they are to be, and names it.
fn series<'a, C: CoordTranslate<From = (f64, f64)>>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, C>,
    line: &Line,
    colour: RGBColor,
    radius: i32,
) {
    if line.joined {
        chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2))).expect(DRAWN);
    }
    chart
        .draw_series(line.points.iter().map(|point| Circle::new(*point, radius, colour.filled())))
        .expect(DRAWN)
        .label(&line.name)
        .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
}

/// Names what was drawn, in a corner of its chart.
fn legend<'a, C: CoordTranslate>(chart: &mut ChartContext<'a, SVGBackend<'a>, C>, corner: SeriesLabelPosition) {
    let mut labels = chart.configure_series_labels();
    labels.position(corner).border_style(BLACK.mix(0.2)).background_style(WHITE.mix(0.8));
    labels.draw().expect(DRAWN);
}

/// Lines over x, both axes from 0.
pub(super) fn lines(title: &str, [x, y]: [&str; 2], all: &[Line]) -> String {
    let points = || all.iter().flat_map(|line| &line.points);
    let (right, top) = (largest(points().map(|point| point.0)), largest(points().map(|point| point.1)));
    drawn(SIZE, |area| {
        let mut chart =
            framed(area).caption(title, ("sans-serif", 18)).build_cartesian_2d(0.0..right, 0.0..top).expect(DRAWN);
        chart.configure_mesh().x_desc(x).y_desc(y).light_line_style(WHITE).draw().expect(DRAWN);
        for (line, colour) in all.iter().zip(COLOURS.iter().cycle()) {
            series(&mut chart, line, if line.joined { *colour } else { BLACK }, 4);
        }
        legend(&mut chart, SeriesLabelPosition::UpperLeft);
    })
}

/// Lines over thresholds.
#[derive(Debug, Clone)]
pub(super) struct Panel<'a> {
    pub y: &'a str,
    pub lines: Vec<Line>,
    /// A value that is marked, with its name.
    pub level: Option<(&'a str, f64)>,
}

/// Panels side by side, each over thresholds on a logarithmic axis, of which the one at `chosen` is marked.
pub(super) fn thresholds(x: &str, chosen: f64, panels: &[Panel<'_>]) -> String {
    drawn((SIZE.0 * panels.len() as u32, SIZE.1), |area| {
        for (panel, area) in panels.iter().zip(area.split_evenly((1, panels.len()))) {
            let points = || panel.lines.iter().flat_map(|line| &line.points);
            let right = points().map(|point| point.0).fold(f64::MIN_POSITIVE, f64::max);
            let left = points().map(|point| point.0).fold(right / 10.0, f64::min);
            let level = panel.level.map(|(_, value)| value);
            let top = largest(points().map(|point| point.1).chain(level));
            let mut chart = framed(&area).build_cartesian_2d((left..right).log_scale(), 0.0..top).expect(DRAWN);
            let number = |x: &f64| format!("{x:.0e}");
            let mut mesh = chart.configure_mesh();
            mesh.x_desc(x).y_desc(panel.y).x_label_formatter(&number).light_line_style(WHITE).draw().expect(DRAWN);
            for (line, colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
                series(&mut chart, line, *colour, 3);
            }
            let across = panel.level.map(|(name, value)| (name, vec![(left, value), (right, value)]));
            let down = (chosen > 0.0).then(|| ("chosen", vec![(chosen, 0.0), (chosen, top)]));
            for ((name, ends), colour) in across.into_iter().chain(down).zip([BLACK, COLOURS[5]]) {
                chart
                    .draw_series(LineSeries::new(ends, colour.stroke_width(1)))
                    .expect(DRAWN)
                    .label(name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
            }
            legend(&mut chart, SeriesLabelPosition::UpperRight);
        }
    })
}

/// Bars side by side.
pub(super) fn bars(title: &str, y: &str, parts: &[&str], all: &[Bar]) -> String {
    let top = largest(all.iter().map(|bar| bar.parts.iter().sum()));
    drawn(SIZE, |area| {
        let mut chart = framed(area)
            .caption(title, ("sans-serif", 18))
            .build_cartesian_2d((0..all.len().max(1)).into_segmented(), 0.0..top * 1.2)
            .expect(DRAWN);
        let name = |at: &SegmentValue<usize>| match at {
            SegmentValue::CenterOf(at) => all.get(*at).map_or_else(String::new, |bar| bar.name.clone()),
            _ => String::new(),
        };
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().y_desc(y).light_line_style(WHITE).x_labels(all.len()).x_label_formatter(&name);
        mesh.draw().expect(DRAWN);
        for (part, (label, colour)) in parts.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let colour = *colour;
            let piece = |(at, bar): (usize, &Bar)| {
                let from: f64 = bar.parts[..part].iter().sum();
                let corners = [(SegmentValue::Exact(at), from), (SegmentValue::Exact(at + 1), from + bar.parts[part])];
                let mut piece = Rectangle::new(corners, colour.filled());
                piece.set_margin(0, 0, 6, 6);
                piece
            };
            chart
                .draw_series(all.iter().enumerate().map(piece))
                .expect(DRAWN)
                .label(*label)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight);
    })
}

/// Of trials, their numbers, how high each stands and whether it was stopped: a dot each, and the best so far as a
/// line.
pub(super) fn trials(y: &str, label: impl Fn(&f64) -> String, all: &[(f64, f64, bool)]) -> String {
    let mut best = f64::NEG_INFINITY;
    let line = all.iter().map(|(number, height, _)| {
        best = best.max(*height);
        (*number, best)
    });
    let (low, high) = bounds(all.iter().map(|trial| trial.1));
    let last = all.last().map_or(1.0, |trial| trial.0).max(1.0);
    drawn(WIDE, |area| {
        let mut chart =
            framed(area).y_label_area_size(70).build_cartesian_2d(-0.5..last + 0.5, low..high).expect(DRAWN);
        let mut mesh = chart.configure_mesh();
        mesh.x_desc("trial").y_desc(y).light_line_style(WHITE).y_label_formatter(&label);
        mesh.x_label_formatter(&|number| format!("{number:.0}")).draw().expect(DRAWN);
        chart.draw_series(LineSeries::new(line, COLOURS[0].stroke_width(2))).expect(DRAWN);
        let dot = |(number, height, stopped): &(f64, f64, bool)| {
            Circle::new((*number, *height), 4, COLOURS[usize::from(*stopped)].filled())
        };
        chart.draw_series(all.iter().map(dot)).expect(DRAWN);
    })
}

/// An axis of several, with what stands at its ends.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub name: String,
    pub bottom: String,
    pub top: String,
}

/// Axes side by side, and lines through their places on all of these, from 0 to 1: the first, which is the best, is
/// told from the last by its colour.
pub(super) fn parallel(axes: &[Axis], all: &[Vec<f64>]) -> String {
    let (best, worst) = (COLOURS[0], RGBColor(0xd8, 0xd8, 0xd8));
    drawn(WIDE, |area| {
        let right = axes.len() as f64 - 0.7;
        let mut chart = ChartBuilder::on(area).margin(30).build_cartesian_2d(-0.3..right, -0.15..1.12).expect(DRAWN);
        let count = all.len().max(2) as f64 - 1.0;
        for (rank, places) in all.iter().enumerate().rev() {
            let share = rank as f64 / count;
            let mixed = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share.sqrt()) as u8;
            let colour = RGBColor(mixed(best.0, worst.0), mixed(best.1, worst.1), mixed(best.2, worst.2));
            let width = if rank == 0 { 3 } else { 1 };
            let points = places.iter().enumerate().map(|(axis, place)| (axis as f64, *place));
            chart.draw_series(LineSeries::new(points, colour.stroke_width(width))).expect(DRAWN);
        }
        for (at, axis) in axes.iter().enumerate() {
            let at = at as f64;
            chart.draw_series(LineSeries::new([(at, 0.0), (at, 1.0)], BLACK.stroke_width(1))).expect(DRAWN);
            let text = |height: f64, words: &String| {
                Text::new(words.clone(), (at - 0.04, height), ("sans-serif", 13).into_font().color(&BLACK))
            };
            let labels = [text(1.1, &axis.name), text(1.04, &axis.top), text(-0.04, &axis.bottom)];
            chart.draw_series(labels).expect(DRAWN);
        }
    })
}

/// A little more than what the numbers span.
pub(super) fn bounds(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    if low > high {
        return (0.0, 1.0);
    }
    let room = ((high - low) * 0.05).max(1e-6);
    (low - room, high + room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_show_their_titles_names_and_every_point() {
        let line = Line { name: "octorec".to_owned(), points: vec![(1.0, 1.0), (2.0, 1.9), (4.0, 3.5)], joined: true };
        let svg = lines("speed-up", ["ranks", "times"], &[line]);
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        // Three points and the legend's.
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(["speed-up", "ranks", "times", "octorec"].iter().all(|text| svg.contains(text)), "{svg}");
        let bar = |name: &str, parts: [f64; 2]| Bar { name: name.to_owned(), parts: parts.to_vec() };
        let svg = bars("time", "ms", &["compute", "exposed"], &[bar("1", [3.0, 0.0]), bar("2", [1.5, 0.4])]);
        assert!(["time", "ms", "compute", "exposed"].iter().all(|text| svg.contains(text)), "{svg}");
    }

    #[test]
    fn panels_over_thresholds_show_every_point_and_what_is_marked() {
        let line = |name: &str| Line { name: name.to_owned(), points: vec![(1.0, 0.0), (1e-3, 7.0)], joined: true };
        let size = Panel { y: "MiB", lines: vec![line("counted"), line("estimated")], level: Some(("budget", 9.0)) };
        let share = Panel { y: "%", lines: vec![line("look-ups")], level: None };
        let svg = thresholds("threshold", 1e-2, &[size.clone(), share]);
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.matches("<circle").count(), 9);
        let words = ["MiB", "%", "counted", "estimated", "look-ups", "budget", "chosen", "threshold", "1e-2"];
        assert!(words.iter().all(|text| svg.contains(text)), "{svg}");
        // One threshold, and that of all rows.
        let one = Panel { lines: vec![Line { points: vec![(1.0, 3.0)], ..line("counted") }], ..size };
        assert!(!thresholds("threshold", 0.0, &[one]).contains("chosen"));
    }
}
