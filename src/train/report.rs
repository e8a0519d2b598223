//! What a run says while it works: a progress bar on a terminal, plain lines elsewhere; always on stderr.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::metrics::Scores;
use crate::base::config::{Loss, ModelConfig};
use crate::base::console::note;
use crate::base::units::{Count, Seconds};
use crate::data::{Batch, Split};

/// Between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Share of the newest step in the loss that is shown.
const SMOOTHING: f64 = 0.02;

/// A dense feature beyond this is taken as the cause where training diverges.
const UNSCALED: f32 = 1e3;

/// The dense feature that is far larger than the others', or no number, which a layer cannot learn from; features have
/// these names, if any.
pub(super) fn unscaled(batch: &Batch, names: &[(String, String)]) -> Option<String> {
    let width = batch.dense_width - usize::from(batch.weighted);
    let rows = batch.dense.chunks_exact(batch.dense_width.max(1));
    let features = rows.flat_map(|row| &row[..width.min(row.len())]);
    // NaN counts as the largest.
    let (at, most) = features.map(|x| x.abs()).enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let found = match most.is_finite() {
        true if most <= UNSCALED => return None,
        true => format!(
            "reaches {most:e} in this minibatch: scale it, in a schema by transform = \"log\" or \"standardise\" (a lower --lr \
             helps less)"
        ),
        false => format!(
            "is {most} in this minibatch, and a finite number is expected: correct it in the data, or leave the value blank, \
             which counts as 0"
        ),
    };
    let at = at % width;
    let name = names.get(at).map_or_else(String::new, |(name, _)| format!(" ({name})"));
    Some(format!("dense feature {} of {width}{name} {found}", at + 1))
}

/// The loss of a minibatch of which nothing is learned, and why: no sample counts, by the data's weights in `column` or
/// by those that the loss gives labels. Nothing where one counts.
pub(super) fn weightless(batch: &Batch, column: Option<&str>, model: &ModelConfig) -> Option<String> {
    let mut counted: Vec<f32> = batch
        .labels
        .iter()
        .zip(batch.each_sample_weight())
        .filter(|(_, own)| *own > 0.0)
        .map(|(label, _)| *label)
        .collect();
    let cause = match column {
        Some(column) if counted.is_empty() => format!("have weight 0 by column {column}"),
        _ if model.loss == Loss::Wbce => {
            let which = if counted.len() < batch.samples() { "that count in the data " } else { "" };
            counted.retain(|label| model.loss_weights[usize::from(*label >= 1.0)] > 0.0);
            let [none, click] = model.loss_weights;
            format!("{which}have labels of weight 0 by model.loss_weights = [{none}, {click}]")
        }
        _ => return None,
    };
    counted.is_empty().then(|| format!("0: all its samples {cause}, and nothing is learned of such samples"))
}

/// Shows a run's progress.
#[derive(Debug)]
pub struct Reporter {
    bar: Option<ProgressBar>,
    total: Option<u64>,
    started: Instant,
    first_step: u64,
    last_line: Instant,
    samples: u64,
    smooth_loss: Option<f64>,
}

impl Reporter {
    /// Shows steps from `first_step` to `total` where that is known.
    #[must_use]
    pub fn new(first_step: u64, total: Option<u64>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(8));
            let template = match total {
                Some(_) => "{bar:30} {pos}/{len} steps  {msg}  {eta} left",
                None => "{spinner} {pos} steps  {msg}  {elapsed}",
            };
            bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
            bar.set_position(first_step);
            bar.reset_eta();
            bar
        });
        let now = Instant::now();
        Self { bar, total, started: now, first_step, last_line: now, samples: 0, smooth_loss: None }
    }

    /// After a step.
    pub fn step(&mut self, step: u64, loss: f64, samples: usize) {
        self.samples += samples as u64;
        let smooth = self.smooth_loss.map_or(loss, |old| old + SMOOTHING * (loss - old));
        self.smooth_loss = Some(smooth);
        let due = self.bar.is_some() || self.last_line.elapsed() >= LINE_INTERVAL;
        if !due {
            return;
        }
        let seconds = self.started.elapsed().as_secs_f64();
        if let Some(bar) = &self.bar {
            bar.set_position(step);
            bar.set_message(self.message(smooth, seconds));
        } else {
            self.last_line = Instant::now();
            note!("{}", self.line(step, smooth, seconds));
        }
    }

    /// The loss, and how fast all steps in these seconds were.
    fn message(&self, loss: f64, seconds: f64) -> String {
        format!("loss {loss:.4}  {} samples/s", Count((self.samples as f64 / seconds) as u64))
    }

    /// The same as a plain line, with what is left.
    fn line(&self, step: u64, loss: f64, seconds: f64) -> String {
        let left = self.total.map(|total| {
            let left = Seconds(left_s(seconds, step - self.first_step, total.saturating_sub(step)));
            (format!("/{total}"), format!("  {left} left"))
        });
        let (of, left) = left.unwrap_or_default();
        format!("step {step}{of}  {}{left}", self.message(loss, seconds))
    }

    /// After an evaluation on the samples of a split, by the model as it was after a step.
    pub fn evaluation(&self, step: u64, split: Split, scores: &Scores, best_possible: Option<f64>) {
        let ceiling = best_possible.map(|auc| format!("; best possible AUC {auc:.4}")).unwrap_or_default();
        self.say(&format!("step {step}: {} {scores}{ceiling}", split.name()));
    }

    /// A line for people.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| note!("{line}")),
            None => note!("{line}"),
        }
    }

    /// Clears the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Seconds of so many steps more, if so many took these.
fn left_s(seconds: f64, done: u64, left: u64) -> f64 {
    seconds / done as f64 * left as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Schema;

    #[test]
    fn dense_features_that_nothing_can_be_learned_from_are_named() {
        let found = |values: &[f32]| {
            let mut batch = Batch::new(&Schema { dense: 2, weighted: false, tables: Vec::new() });
            batch.dense.extend_from_slice(values);
            unscaled(&batch, &[("price".to_owned(), String::new())])
        };
        assert_eq!(found(&[1.0, -1e3, 0.0, 5.0]), None);
        for (values, told) in [
            ([1.0, 2e3, 0.0, 5.0], "dense feature 2 of 2 reaches 2e3 in this minibatch: scale it"),
            (
                [1.0, 2e3, f32::NEG_INFINITY, 5.0],
                "dense feature 1 of 2 (price) is inf in this minibatch, and a finite number",
            ),
            ([1.0, 2e3, 0.0, f32::NAN], "dense feature 2 of 2 is NaN in this minibatch, and a finite number"),
        ] {
            assert!(found(&values).is_some_and(|found| found.starts_with(told)), "{:?}", found(&values));
        }
    }

    #[test]
    fn a_minibatch_of_which_nothing_is_learned_says_by_which_weights() {
        let found = |samples: &[(f32, f32)], column: Option<&str>, loss, loss_weights| {
            let mut batch = Batch::new(&Schema { dense: 0, weighted: column.is_some(), tables: Vec::new() });
            for (label, weight) in samples {
                batch.labels.push(*label);
                batch.dense.extend(column.map(|_| *weight));
            }
            weightless(&batch, column, &ModelConfig { loss, loss_weights, ..ModelConfig::default() })
        };
        let all = |what: &str| Some(format!("0: all its samples {what}, and nothing is learned of such samples"));
        let (none, some, part) = ([(0.0, 0.0), (1.0, 0.0)], [(0.0, 2.0), (0.0, 0.5)], [(0.0, 2.0), (1.0, 0.0)]);
        let of_column = all("have weight 0 by column w");
        assert_eq!(found(&none, Some("w"), Loss::Bce, [1.0, 1.0]), of_column);
        assert_eq!(found(&none, Some("w"), Loss::Wbce, [0.0, 0.0]), of_column);
        let of_labels = all("have labels of weight 0 by model.loss_weights = [0, 1]");
        assert_eq!(found(&some, Some("w"), Loss::Wbce, [0.0, 1.0]), of_labels);
        assert_eq!(found(&some, None, Loss::Wbce, [0.0, 1.0]), of_labels);
        let of_both = all("that count in the data have labels of weight 0 by model.loss_weights = [0, 1]");
        assert_eq!(found(&part, Some("w"), Loss::Wbce, [0.0, 1.0]), of_both);
        assert_eq!(found(&part, None, Loss::Wbce, [0.0, 1.0]), None, "a click counts");
        assert_eq!(found(&some, Some("w"), Loss::Bce, [1.0, 1.0]), None);
    }

    #[test]
    fn what_is_left_takes_as_long_a_step_as_what_was_done() {
        assert_eq!(left_s(10.0, 20, 80), 40.0);
        let now = Instant::now();
        let (bar, total, first_step, samples) = (None, Some(200), 100, 640);
        let reporter = Reporter { bar, total, started: now, first_step, last_line: now, samples, smooth_loss: None };
        assert_eq!(reporter.line(110, 0.5, 10.0), "step 110/200  loss 0.5000  64 samples/s  90.0 s left");
    }
}
