//! What a run tells when it has ended.

use std::io::ErrorKind;
use std::path::Path;

use super::{Results, TrainArgs};
use crate::base::console::note;
use crate::base::units::{Bytes, Count, Many, Seconds};
use crate::base::{Error, Result, console};
use crate::cli::place::RankCount;
use crate::cli::session::report_skipped;
use crate::train::{Best, Evaluations, Outcome, Run, Summary, Writers};

impl TrainArgs {
    /// Tells what came out; training has ended and saved, whoever reads.
    pub(super) fn report(&self, run: &Run, results: &Results<'_>) -> Result<()> {
        let Results { summary, profile, traffic, .. } = results;
        let mut written = Ok(());
        if self.json {
            written = console::json_told(&results).and_then(|read| match read {
                true => Ok(()),
                false => Err(Error::io(Path::new("standard output"), "write")(ErrorKind::BrokenPipe.into())),
            });
        }
        if let Some(profile) = profile {
            note!("{profile}");
        }
        note!("{}", spent(summary));
        if let Some(traffic) = traffic {
            let sent =
                traffic.parts().into_iter().map(|(name, links)| (name, links.total())).filter(|(_, sent)| *sent > 0);
            let sent: Vec<_> = sent.map(|(name, sent)| format!("{name} {}", Bytes(sent as u64))).collect();
            note!("sent among ranks: {} ({})", Bytes(traffic.total().total() as u64), sent.join(", "));
        }
        report_skipped(summary.skipped_rows);
        if summary.outcome == Outcome::TargetReached {
            let whole = summary
                .target_seconds
                .map(|seconds| format!(" ({} with evaluations and checkpoints)", Seconds(seconds)));
            let (target, took) = (run.config.train.target_auc, Seconds(summary.seconds));
            note!("reached AUC {target} after {took}{}", whole.unwrap_or_default());
        }
        if summary.outcome == Outcome::NoImprovement {
            note!("{}", exhausted(run));
        }
        match (run.state.progress.evaluations.best, run.best_kept()) {
            (Some(Best { step, auc }), Some(path)) => {
                note!("best: test AUC {auc:.4} after step {step}, kept: octorec eval --checkpoint {}", path.display());
            }
            // It may be of a time when none was kept, or somebody has trained on from it.
            (Some(Best { step, auc }), None) if run.keeps_best() && run.output.is_some() => {
                note!("best: test AUC {auc:.4} after step {step}, whose model is not kept; none has been better since");
            }
            _ => (),
        }
        match (&run.output, summary.outcome) {
            (Some(output), Outcome::Interrupted) => {
                // Another number than one asks for without a word is asked for again.
                let ranks = match (run.ranks.layout().ranks(), run.ranks.world().machines()) {
                    (ranks, 1) if ranks > 1 || self.ranks.place.ranks != RankCount::Auto => format!(" --ranks {ranks}"),
                    _ => String::new(),
                };
                note!("saved; continue with: octorec train --resume {}{ranks}", output.path().display());
            }
            (Some(output), _) => {
                let writers = match run.state.saved {
                    Some(Writers::Each) => ", each machine its own tables",
                    Some(Writers::First) => ", all by the first machine: others do not see its folder",
                    Some(Writers::Alone) | None => "",
                };
                note!("saved: {}{writers}", output.checkpoint().display());
            }
            (None, Outcome::Interrupted) => note!("nothing was saved: there was no --out DIR"),
            (None, _) => (),
        }
        written
    }
}

/// Why evaluations have ended a run.
fn exhausted(run: &Run) -> String {
    let Evaluations { best, since, .. } = run.state.progress.evaluations;
    let tests = Many(since, "evaluation");
    let more = if run.output.is_some() { " (--resume with a larger --patience goes on)" } else { "" };
    match best {
        Some(Best { step, auc }) => {
            format!("no better test AUC in {tests} since step {step}, when it was {auc:.4}{more}")
        }
        None => format!("no test AUC in {tests}: an AUC needs test samples of both kinds, and scores that are numbers"),
    }
}

/// What a run took: steps, samples, seconds, and which of these it waited for data.
fn spent(summary: &Summary) -> String {
    let Summary { steps, samples, seconds, .. } = *summary;
    if steps == 0 {
        let why = if summary.outcome == Outcome::Finished { "left to train" } else { "made" };
        return format!("no step was {why}: the run stands at step {}", Count(summary.step));
    }
    let read: Vec<_> =
        summary.data_bytes_read.iter().filter(|&&read| read > 0).map(|&read| Bytes(read).to_string()).collect();
    let read = if read.is_empty() { String::new() } else { format!("; read {}", read.join(" and ")) };
    let waited = |seconds: f64| if seconds < 5e-3 { "no time".to_owned() } else { Seconds(seconds).to_string() };
    let (first, all) = (summary.data_first_wait_seconds, summary.data_wait_seconds);
    format!(
        "{}, {} in {} ({} samples/s); of this time, the first minibatch took {} to read, and later steps waited for data {} in \
         all{read}",
        Many(steps, "step"),
        Many(samples, "sample"),
        Seconds(seconds),
        Count(summary.samples_per_s as u64),
        waited(first),
        waited(all - first),
    )
}
