//! A page of a search: the trials in order, the best so far, every trial as a line through its values, what matters,
//! and a table.

use std::fmt::Write;

use serde_json::Value;

use super::journal::{End, Trial};
use super::space::{Parameter, Space};
use super::target::{NEVER, Target};
use crate::cli::chart::{self, Axis};

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
        let placed = self.trials.iter().filter(|(_, score, _)| *score < NEVER);
        let dots: Vec<_> =
            placed.map(|(trial, score, _)| (trial.number as f64, -score, trial.end == Some(End::Stopped))).collect();
        chart::trials(self.heading, |height| self.written(*height), &dots)
    }

    /// A score by its height as people write it: of what is to be small, up is better all the same.
    fn written(&self, height: f64) -> String {
        format!("{:.4}", if self.target == Target::Auc { 1.0 + height } else { -height })
    }

    /// An axis a key and one for what is wanted, a line a trial, from the worst to the best.
    fn parallel(&self) -> String {
        let trials: Vec<_> = self.in_order().into_iter().filter(|trial| trial.1 < NEVER).collect();
        let (low, high) = chart::bounds(trials.iter().map(|trial| -trial.1));
        let line = |(trial, score, _): &&(&Trial, f64, String)| {
            trial.places.iter().copied().chain([(-score - low) / (high - low)]).collect()
        };
        let lines: Vec<Vec<f64>> = trials.iter().map(line).collect();
        let of_key = |parameter: &Parameter| {
            let of = |place: f64| shown(&json_of(&parameter.domain.at(place)));
            Axis { name: parameter.key.clone(), bottom: of(0.0), top: of(1.0 - f64::EPSILON) }
        };
        let wanted = Axis { name: self.heading.to_owned(), bottom: self.written(low), top: self.written(high) };
        let axes: Vec<Axis> = self.space.parameters.iter().map(of_key).chain([wanted]).collect();
        chart::parallel(&axes, &lines)
    }
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
            killed: None,
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
