//! A page of a search: the trials in order, the best so far, every trial as a line through its values, what matters,
//! and a table.

use std::fmt::Write;

use plotters::prelude::*;
use serde_json::Value;

use super::journal::{End, Trial};
use super::space::Space;
use super::target::{NEVER, Target};

/// Pixels of a plot.
const SIZE: (u32, u32) = (900, 420);

/// What a backend that writes into a string cannot fail at.
const DRAWN: &str = "a text takes every drawing";

const BEST: RGBColor = RGBColor(0x1b, 0x6c, 0xa8);
const WORST: RGBColor = RGBColor(0xd8, 0xd8, 0xd8);
const STOPPED: RGBColor = RGBColor(0xe0, 0x7b, 0x00);

/// What a page shows.
pub struct Page<'a> {
    pub space: &'a Space,
    /// With what is wanted of each, small where that is good, and how it is written.
    pub trials: &'a [(&'a Trial, f64, String)],
    /// What is wanted.
    pub target: Target,
    /// As [`Target::heading`].
    pub heading: &'a str,
    pub shares: &'a [Option<f64>],
}

impl Page<'_> {
    /// As HTML, whole in one file.
    pub fn html(&self) -> String {
        let mut html = String::from(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>octorec search</title>\n<style>\
             body{font:15px/1.5 sans-serif;max-width:960px;margin:2em auto;color:#222}table{border-collapse:collapse}\
             td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}\
             .bar{background:#1b6ca8;height:10px;display:inline-block}</style></head>\n<body>\n<h1>octorec search</h1>\n",
        );
        let ended = self.trials.len();
        let _ =
            write!(html, "<p>{ended} trials for {}.</p>\n<h2>Best so far</h2>\n{}\n", self.heading, self.best_so_far());
        let _ = write!(html, "<h2>Trials by their values</h2>\n{}\n<h2>What matters</h2>\n<table>\n", self.parallel());
        html += "<tr><th>key</th><th>share of the variance of ranks</th><th></th></tr>\n";
        for (parameter, share) in self.space.parameters.iter().zip(self.shares) {
            let share = share.map_or_else(
                || ("too few trials".to_owned(), 0.0),
                |share| (format!("{:.0} %", 100.0 * share), 200.0 * share),
            );
            let key = escaped(&parameter.key);
            let _ = writeln!(
                html,
                "<tr><td>{key}</td><td>{}</td><td style=\"text-align:left\"><span class=\"bar\" style=\"width:{:.0}px\"></span></td></tr>",
                share.0, share.1
            );
        }
        html += "</table>\n<h2>Trials</h2>\n<table>\n<tr><th>trial</th><th>";
        html += &escaped(self.heading);
        html += "</th><th>end</th><th>evaluations</th>";
        self.space.parameters.iter().for_each(|parameter| html += &format!("<th>{}</th>", escaped(&parameter.key)));
        html += "</tr>\n";
        for (trial, _, score) in self.in_order() {
            let end = trial.end.map_or("under way", End::name);
            let _ = write!(html, "<tr><td>{}</td><td>{score}</td><td>{end}</td>", trial.number);
            let _ = write!(html, "<td>{}</td>", trial.evaluations.len());
            trial.values.iter().for_each(|value| html += &format!("<td>{}</td>", escaped(&shown(value))));
            html += "</tr>\n";
        }
        html + "</table>\n</body></html>\n"
    }

    /// The best first.
    fn in_order(&self) -> Vec<&(&Trial, f64, String)> {
        let mut trials: Vec<_> = self.trials.iter().collect();
        trials.sort_by(|a, b| a.1.total_cmp(&b.1));
        trials
    }

    /// Every trial as a dot, and the best so far as a line: up is better.
    fn best_so_far(&self) -> String {
        // Trials that failed or did not reach their target have no place.
        let points: Vec<(f64, f64, bool)> = self
            .trials
            .iter()
            .filter(|(_, score, _)| *score < NEVER)
            .map(|(trial, score, _)| (trial.number as f64, -score, trial.end == Some(End::Stopped)))
            .collect();
        let mut best = f64::NEG_INFINITY;
        let line: Vec<(f64, f64)> = points
            .iter()
            .map(|(number, height, _)| {
                best = best.max(*height);
                (*number, best)
            })
            .collect();
        let (low, high) = bounds(points.iter().map(|point| point.1));
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            area.fill(&WHITE).expect(DRAWN);
            let last = points.last().map_or(1.0, |point| point.0).max(1.0);
            let mut chart = ChartBuilder::on(&area)
                .margin(14)
                .x_label_area_size(40)
                .y_label_area_size(70)
                .build_cartesian_2d(-0.5..last + 0.5, low..high)
                .expect(DRAWN);
            // Of what is to be small, up is better all the same.
            let label = |height: &f64| format!("{:.4}", self.written(-height));
            let mut mesh = chart.configure_mesh();
            mesh.x_desc("trial").y_desc(self.heading).light_line_style(WHITE).y_label_formatter(&label);
            mesh.x_label_formatter(&|number| format!("{number:.0}")).draw().expect(DRAWN);
            chart.draw_series(LineSeries::new(line, BEST.stroke_width(2))).expect(DRAWN);
            let dot = |(number, height, stopped): &(f64, f64, bool)| {
                let colour = if *stopped { STOPPED } else { BEST };
                Circle::new((*number, *height), 4, colour.filled())
            };
            chart.draw_series(points.iter().map(dot)).expect(DRAWN);
            area.present().expect(DRAWN);
        }
        svg
    }

    /// A score as people write it.
    fn written(&self, score: f64) -> f64 {
        if self.target == Target::Auc { 1.0 - score } else { score }
    }

    /// An axis a key and one for what is wanted, a line a trial, from the worst to the best.
    fn parallel(&self) -> String {
        let axes = self.space.parameters.len();
        let finite: Vec<f64> = self.trials.iter().map(|trial| trial.1).filter(|score| *score < NEVER).collect();
        let (low, high) = bounds(finite.iter().map(|score| -score));
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            area.fill(&WHITE).expect(DRAWN);
            let mut chart = ChartBuilder::on(&area)
                .margin(30)
                .build_cartesian_2d(-0.3..axes as f64 + 0.3, -0.15..1.12)
                .expect(DRAWN);
            let count = finite.len().max(2) as f64 - 1.0;
            let mut trials: Vec<_> = self.in_order().into_iter().filter(|trial| trial.1 < NEVER).enumerate().collect();
            trials.reverse();
            for (rank, (trial, score, _)) in trials {
                let height = (-score - low) / (high - low);
                let points = trial.places.iter().copied().chain([height]).enumerate();
                let share = rank as f64 / count;
                let mixed = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share.sqrt()) as u8;
                let colour = RGBColor(mixed(BEST.0, WORST.0), mixed(BEST.1, WORST.1), mixed(BEST.2, WORST.2));
                let width = if rank == 0 { 3 } else { 1 };
                let points = points.map(|(axis, place)| (axis as f64, place));
                chart.draw_series(LineSeries::new(points, colour.stroke_width(width))).expect(DRAWN);
            }
            let text = |axis: usize, height: f64, words: String| {
                let style = ("sans-serif", 13).into_font().color(&BLACK);
                Text::new(words, (axis as f64 - 0.04, height), style)
            };
            for axis in 0..=axes {
                let line = [(axis as f64, 0.0), (axis as f64, 1.0)];
                chart.draw_series(LineSeries::new(line, BLACK.stroke_width(1))).expect(DRAWN);
                let (name, bottom, top) = match self.space.parameters.get(axis) {
                    Some(parameter) => {
                        let of = |place: f64| shown(&json_of(&parameter.domain.at(place)));
                        (parameter.key.clone(), of(0.0), of(1.0 - f64::EPSILON))
                    }
                    None => {
                        let of = |height: f64| format!("{:.4}", self.written(-height));
                        (self.heading.to_owned(), of(low), of(high))
                    }
                };
                let labels = [text(axis, 1.1, name), text(axis, 1.04, top), text(axis, -0.04, bottom)];
                chart.draw_series(labels).expect(DRAWN);
            }
            area.present().expect(DRAWN);
        }
        svg
    }
}

/// A little more than what the numbers span.
fn bounds(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    if low > high {
        return (0.0, 1.0);
    }
    let room = ((high - low) * 0.05).max(1e-6);
    (low - room, high + room)
}

/// A value of a configuration as JSON.
pub fn json_of(value: &toml::Value) -> Value {
    serde_json::to_value(value).expect("a value is representable in JSON")
}

/// A value for people.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if number != 0.0 && !(1e-3..1e4).contains(&number.abs()) {
                format!("{number:.3e}")
            } else {
                format!("{number:.4}")
            }
        }
        other => other.to_string(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_every_trial_every_key_and_what_matters() {
        let text = "[train]\nlr = { from = 0.01, to = 1.0, log = true }\noptimizer = { choices = [\"sgd\", \"a<b\"] }";
        let space = Space::parse(text, "space.toml").unwrap();
        let trial = |number: u64, places: [f64; 2], end: End| Trial {
            number,
            places: places.to_vec(),
            values: space.parameters.iter().zip(places).map(|(p, place)| json_of(&p.domain.at(place))).collect(),
            end: Some(end),
            reason: None,
            evaluations: Vec::new(),
            seconds: 1.0,
            target_seconds: None,
            kept: None,
        };
        let trials = [
            trial(0, [0.2, 0.9], End::Finished),
            trial(1, [0.6, 0.1], End::Stopped),
            trial(2, [0.9, 0.1], End::Failed),
        ];
        let scored = [
            (&trials[0], 0.3, "0.7000".to_owned()),
            (&trials[1], 0.25, "0.7500".to_owned()),
            (&trials[2], f64::INFINITY, "-".to_owned()),
        ];
        let page =
            Page { space: &space, trials: &scored, target: Target::Auc, heading: "AUC", shares: &[Some(0.5), None] };
        let html = page.html();
        for text in
            ["train.lr", "train.optimizer", "a&lt;b", "0.7500", "stopped early", "failed", "50 %", "too few trials"]
        {
            assert!(html.contains(text), "{text} in {html}");
        }
        assert_eq!(html.matches("<svg").count(), 2);
        // A dot for each trial that has a score.
        assert_eq!(html.matches("<circle").count(), 2);
        assert!(
            html.find("<td>1</td><td>0.7500").unwrap() < html.find("<td>0</td><td>0.7000").unwrap(),
            "the best first"
        );
        // Without any trial there is a page, too.
        assert!(Page { trials: &[], ..page }.html().ends_with("</html>\n"));
    }
}
