//! What a run tells when it has ended.

use std::io::ErrorKind;
use std::path::Path;

use super::{Results, TrainArgs};
use crate::base::config::{BestBy, Loss};
use crate::base::console::note;
use crate::base::error::shell;
use crate::base::units::{Bytes, Count, Many, Seconds};
use crate::base::{Error, Result, console};
use crate::cli::place::RankCount;
use crate::cli::session::report_skipped;
use crate::cli::unseen::Unseen;
use crate::data::Split;
use crate::train::{Best, Evaluations, Outcome, Run, Summary, Writers};

/// A log loss of so many times the lowest one has risen.
const RISEN: f64 = 1.1;

impl TrainArgs {
    /// Tells what came out; training has ended and saved, whoever reads.
    pub(super) fn report(&self, run: &Run, mut results: Results<'_>, unseen: Option<&Unseen>) -> Result<()> {
        let Results { summary, profile, traffic, .. } = results;
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
        unseen.iter().for_each(|unseen| unseen.report_judged());
        if summary.outcome == Outcome::TargetReached {
            let (target, took) = (run.config.train.target_auc, Seconds(summary.seconds));
            match summary.target_seconds.filter(|_| summary.steps > 0) {
                Some(whole) => {
                    note!("reached AUC {target} after {took} ({} with evaluations and checkpoints)", Seconds(whole));
                }
                None => note!("the run stands where it has reached AUC {target} (a higher --target-auc goes on)"),
            }
        }
        if summary.outcome == Outcome::NoImprovement {
            note!("{}", exhausted(run));
        }
        if summary.outcome != Outcome::Interrupted {
            doubts(run, summary).iter().for_each(|doubt| note!("note: {doubt}"));
        }
        let by = run.config.train.best_by;
        let [auc, logloss] = evaluated(summary).map(|score| score.filter(|score| score.is_finite()));
        let told = |best: &Best| told(run, best);
        // What has exploded since then was not saved.
        let older = summary.saved_step.filter(|step| *step < summary.step);
        let older = older.map(|step| format!("the last checkpoint is that of step {step}"));
        let last = Best { step: summary.step, auc, logloss };
        match (run.state.progress.evaluations.best, run.best_kept()) {
            (Some(best), Some(path)) => {
                note!("best: {}, kept: octorec eval --checkpoint {}", told(&best), shell(path));
            }
            // It may be of a time when none was kept, or somebody has trained on from it.
            (Some(best), None) if run.keeps_best() && run.output.is_some() => {
                note!("best: {}, whose model is not kept; none has been better since", told(&best));
            }
            (Some(best), None) if is_finished(summary) && best.is_better(Some(last), by) => {
                let saved = match (run.saves, &older) {
                    (true, None) => "; the last model is the one that is saved",
                    (true, Some(_)) => "",
                    (false, _) => "; nothing is saved",
                };
                note!("best: {}{saved} (a new run with --out DIR --keep-best keeps the best)", told(&best));
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
                let saved = older.or_else(|| run.state.saved.map(|_| "saved".to_owned()));
                let saved = saved.map_or_else(String::new, |saved| saved + "; ");
                note!("{saved}continue with: octorec train --resume {}{ranks}", shell(output.path()));
            }
            (Some(output), _) => match (older, run.state.saved) {
                (Some(older), _) => note!("{older}: {}", output.checkpoint().display()),
                (None, Some(writers)) => {
                    let writers = match writers {
                        Writers::Each => ", each machine its own tables",
                        Writers::First { is_seen: false } => ", all by the first machine: others do not see its folder",
                        Writers::First { is_seen: true } => {
                            ", all by the first machine: on this file system, others could damage what it writes"
                        }
                        Writers::Alone => "",
                    };
                    note!("saved: {}{writers}", output.checkpoint().display());
                }
                (None, None) => (),
            },
            (None, Outcome::Interrupted) => note!("nothing was saved: there was no --out DIR"),
            _ => (),
        }
        if !self.json {
            return Ok(());
        }
        results.warnings = console::warnings();
        match console::json_told(&results)? {
            true => Ok(()),
            false => Err(Error::io(Path::new("standard output"), "write")(ErrorKind::BrokenPipe.into())),
        }
    }
}

/// Whether all steps are done, by this process or before it.
const fn is_finished(summary: &Summary) -> bool {
    matches!(summary.outcome, Outcome::Finished | Outcome::AlreadyFinished)
}

/// Why evaluations have ended a run.
fn exhausted(run: &Run) -> String {
    let Evaluations { best, since, .. } = run.state.progress.evaluations;
    let (tests, by, split) = (Many(since, "evaluation"), run.config.train.best_by, run.evaluated().name());
    let more = if run.output.is_some() { " (--resume with a larger --patience goes on)" } else { "" };
    match (best.and_then(|best| Some((best.step, best.score(by)?))), by) {
        (Some((step, score)), _) => {
            format!("no better {split} {} in {tests} since step {step}, when it was {score:.4}{more}", by.words())
        }
        (None, BestBy::Auc) => {
            format!(
                "no {split} AUC in {tests}: an AUC needs {split} samples of both kinds, and scores that are numbers"
            )
        }
        (None, BestBy::Logloss) => format!("no {split} log loss in {tests}: it needs scores that are numbers"),
    }
}

/// An evaluation of a run, by its score.
fn told(run: &Run, best: &Best) -> String {
    let by = run.config.train.best_by;
    let score = best.score(by).map_or_else(|| "-".to_owned(), |score| format!("{score:.4}"));
    format!("{} {} {score} after step {}", run.evaluated().name(), by.words(), best.step)
}

/// AUC and log loss of a run's last evaluation.
fn evaluated(summary: &Summary) -> [Option<f64>; 2] {
    [summary.validation_auc.or(summary.auc), summary.validation_logloss.or(summary.logloss)]
}

/// What may be wrong with a model that its scores and the length of its run show.
fn doubts(run: &Run, summary: &Summary) -> Vec<String> {
    let train = &run.config.train;
    // A process before may have reached it; the best evaluation by another score does not tell.
    let best = run.state.progress.evaluations.best.and_then(|best| best.auc);
    let is_reached = summary.outcome == Outcome::TargetReached || best.is_some_and(|best| best >= train.target_auc);
    let is_told = train.best_by == BestBy::Auc || summary.step == summary.steps;
    let [auc, logloss] = evaluated(summary);
    let is_missed = train.target_auc > 0.0 && auc.is_some() && is_told && !is_reached;
    let target = is_missed.then(|| format!("train.target_auc = {} was not reached", train.target_auc));
    // Of samples without weight nothing was learned, which is told, and no other rate would help.
    let has_weights = run.source.about().weight.is_some() || run.config.model.loss == Loss::Wbce;
    let is_weightless = has_weights && summary.final_loss == Some(0.0);
    let entropy = summary.normalised_entropy.filter(|entropy| *entropy > 1.0 && !is_weightless);
    let worse = entropy.map(|entropy| {
        format!(
            "the normalised entropy is {entropy:.4}, above 1: these probabilities are worse than the mean label for all, as those \
             of a model that was trained for too long (--patience N), at too high a rate (--lr), or not for long enough"
        )
    });
    let low = summary.lowest_logloss.and_then(|best| Some((best.step, best.logloss?)));
    let risen = low.zip(logloss).filter(|((_, low), last)| train.best_by == BestBy::Auc && *last > RISEN * low);
    let samples = run.evaluated().name();
    let risen = risen.map(|((step, low), last)| {
        format!(
            "the {samples} log loss was {low:.4} after step {step} and is {last:.4} now: a new run with --out DIR --keep-best --set \
             train.best_by=logloss keeps the model of the lowest one"
        )
    });
    let [worse, risen, weighed] = match run.config.model.reweighed() {
        Some(weighed) => [None, None, Some(weighed)],
        None => [worse, risen, None],
    };
    let (minibatch, samples) = (train.minibatch() as u64, run.source.samples(Split::Train));
    let whole = samples.filter(|samples| summary.steps > 0 && (1..=minibatch).contains(samples)).map(|samples| {
        format!(
            "a minibatch of {} holds all {}, so that an epoch is one step: a smaller --batch makes more",
            Count(minibatch),
            Many(samples, "training sample")
        )
    });
    [target, worse, risen, weighed, whole].into_iter().flatten().collect()
}

/// What a run took: steps, samples, seconds, and which of these it waited for data.
fn spent(summary: &Summary) -> String {
    let Summary { steps, samples, seconds, .. } = *summary;
    if steps == 0 {
        let why = if is_finished(summary) { "left to train" } else { "made" };
        let more = match summary.outcome {
            Outcome::AlreadyFinished => ", and no further one is asked for (a larger --epochs or --steps goes on)",
            _ => "",
        };
        return format!("no step was {why}: the run stands at step {}{more}", Count(summary.step));
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
