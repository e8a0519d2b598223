//! A run from its first step to its last: data in, weights moved, progress shown, everything saved.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::checkpoint::{self, Checkpoint, Origin, Progress, TrainedOn, Writers};
use super::evaluation::{Questions, evaluate, evaluation_due};
use super::feed::Upcoming;
use super::hot_file::save_hot;
use super::loss_trace::LossTrace;
use super::metrics::{Evaluation, Scores};
use super::mllog::MlLog;
use super::order::{Judged, Order, untrainable};
use super::output::OutputDir;
use super::report::{Reporter, unscaled};
use super::revisions::Revisions;
use super::summary::{Outcome, Summary};
use super::vocabulary::save_vocabulary;
use super::{Profile, Ranks, Rates, Step};
use crate::base::config::Config;
use crate::base::console::note;
use crate::base::{Error, Result};
use crate::data::hot::HotInputs;
use crate::data::{Loader, LoaderMode, Plan, Position, Shuffle, Source, Split, Waited};
use crate::optim::Schedule;

/// Metrics are handed to the system this often, so that a watcher sees them.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Everything that a training run needs.
pub struct Run {
    /// Fully resolved.
    pub config: Config,
    /// Where samples come from.
    pub source: Arc<dyn Source>,
    /// Who of several ranks reads what.
    pub loader: LoaderMode,
    /// Which rows and training samples are hot, if hot and cold samples take turns.
    pub hot: Option<HotInputs>,
    /// How hot rows follow the data, if they do.
    pub revisions: Option<Revisions>,
    /// What trains.
    pub ranks: Ranks,
    /// Where training stands.
    pub progress: Progress,
    /// Where results go, if anywhere; of several machines the first one's.
    pub output: Option<OutputDir>,
    /// Whether results go somewhere, be it from another machine.
    pub saves: bool,
    /// Who of several ranks holds what, as a plan's file.
    pub plan: Option<String>,
    /// One loss a line goes here, if anywhere.
    pub loss_trace: Option<LossTrace>,
    /// MLPerf's log, if one is written.
    pub mllog: Option<MlLog>,
    /// What a step has to do, from the first one on.
    pub profile: Option<Profile>,
    /// The last test between turns of hot and cold inputs.
    pub judged: Option<Judged>,
    /// Who has written the last checkpoint, if there was one.
    pub saved: Option<Writers>,
}

/// What the loader did for the steps.
struct DataUse {
    waited: Waited,
    bytes: Vec<u64>,
}

#[derive(Serialize)]
struct StepEntry {
    kind: &'static str,
    step: u64,
    epoch: u64,
    loss: f64,
    lr: f64,
    lr_rows: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lr_wide: Option<f64>,
    ms: f64,
    samples_per_s: f64,
}

#[derive(Serialize)]
struct EvalEntry {
    kind: &'static str,
    step: u64,
    #[serde(flatten)]
    scores: Scores,
    best_possible_auc: Option<f64>,
    ms: f64,
}

/// Time and losses of this process.
struct Tally {
    samples: u64,
    steps: u64,
    training: Duration,
    final_loss: Option<f64>,
    scores: Option<(u64, Scores, Option<f64>)>,
    began: Instant,
    /// How long it took to the target.
    reached: Option<Duration>,
    flushed: Instant,
}

impl Run {
    /// Takes weights and position from a checkpoint of this model, `verified` as by [`Checkpoint::open_as`].
    ///
    /// # Errors
    /// When the file does not fit the model, is damaged, was trained on other data or in another order within a pass,
    /// or is none of octorec's.
    pub fn restore(&mut self, path: &Path, verified: bool) -> Result<()> {
        let checkpoint = Checkpoint::open_as(path, verified)?;
        let Some((progress, _)) = checkpoint.header()? else {
            return Err(Error::Checkpoint {
                path: path.to_owned(),
                reason: "holds weights but no training position: start from it with --init".to_owned(),
            });
        };
        checkpoint.check_weights(self.source.schema())?;
        checkpoint.check_columns(&*self.source)?;
        let progress = checkpoint.goes_on(progress, &self.config, &*self.source)?;
        if !checkpoint.has_moments(&self.ranks)? {
            return Err(Error::Checkpoint {
                path: path.to_owned(),
                reason: "has nothing of what the optimizer kept: start from its weights with --init".to_owned(),
            });
        }
        checkpoint.load_into(&self.ranks)?;
        self.progress = progress;
        Ok(())
    }

    /// Trains to the end, evaluating and saving on the way.
    ///
    /// # Errors
    /// When data cannot be read, results cannot be written, or the loss is no longer a number. What was saved before
    /// stays.
    pub fn train(&mut self) -> Result<Summary> {
        let mut order =
            Order::new(self.hot.as_ref().map(|hot| &hot.tags), self.config.train.minibatch(), &self.progress)?;
        let total = self.total_steps(&order)?;
        let train_config = &self.config.train;
        let [layers, rows, wide] = [Schedule::new, Schedule::rows, Schedule::wide].map(|of| of(train_config));
        let train = self.config.train.clone();
        let mut reporter = Reporter::new(self.progress.step, total);
        let mut tally = Tally {
            samples: 0,
            steps: 0,
            training: Duration::ZERO,
            final_loss: None,
            scores: None,
            began: Instant::now(),
            reached: None,
            flushed: Instant::now(),
        };
        let epoch_steps = order.epoch_steps(&*self.source);
        self.mllog.as_mut().map_or(Ok(()), |log| log.run_starts(epoch_steps))?;
        let began = Instant::now();
        let mut more = Upcoming::of(&self.ranks, &order.streams(&self.source, self.plan()), self.loader)?;
        tally.training += began.elapsed();
        let mut outcome = Outcome::Finished;
        while total.is_none_or(|total| self.progress.step < total) {
            if self.ranks.interrupted() {
                outcome = Outcome::Interrupted;
                break;
            }
            let judged = if order.is_due() { self.judge(&mut order, &reporter) } else { Ok(true) };
            if !self.or_kept(judged, (&reporter, tally.steps))? {
                continue;
            }
            let (began, inputs) = (Instant::now(), order.next());
            let number = self.progress.step + 1;
            let rates = [layers.rate(number), rows.rate(number), wide.rate(number)];
            let advanced = match more.take(inputs) {
                Ok(false) => break,
                Ok(true) => {
                    let [layers, rows, wide] = rates.map(|rate| rate as f32);
                    let revised = self.revise(&reporter);
                    revised.and_then(|()| self.ranks.advance(inputs, Rates { layers, rows, wide }))
                }
                Err(error) => Err(error),
            };
            let step = match advanced {
                Ok((step, next)) => {
                    more.put(inputs, next);
                    step
                }
                Err(error) => return self.or_kept(Err(error), (&reporter, tally.steps)),
            };
            let Step { loss, samples, position } = step;
            let took = began.elapsed();
            if tally.samples == 0
                && let Some(choice) = self.ranks.update_choice()?
            {
                reporter.say(&format!("update of embedding rows: {choice}"));
            }
            if !loss.is_finite() {
                reporter.finish();
                return Err(self.diverged(number, loss, rates.into_iter().fold(0.0, f64::max)));
            }
            if self.profile.is_none() {
                self.profile = Some(self.ranks.profile()?);
            }
            let recorded = self.record(&mut tally, samples, loss, rates, took);
            self.progress = order.step_done(self.progress, position);
            reporter.step(number, loss, samples);
            self.or_kept(recorded, (&reporter, tally.steps))?;
            // Before anything is saved, so that a run that goes on from there decides and logs nothing twice.
            if order.is_due() && total.is_none_or(|total| number < total) {
                let judged = self.judge(&mut order, &reporter);
                self.or_kept(judged, (&reporter, tally.steps))?;
            }
            if evaluation_due(&train, epoch_steps, number) {
                let evaluated = self.evaluate(&mut tally, &reporter);
                let is_told = self.or_kept(evaluated, (&reporter, tally.steps))?;
                if tally.reached.is_some() {
                    outcome = Outcome::TargetReached;
                    break;
                }
                let log = self.mllog.as_mut().filter(|_| is_told);
                let told = log.map_or(Ok(()), |log| log.goes_on(number));
                self.or_kept(told, (&reporter, tally.steps))?;
            }
            if train.checkpoint_every > 0 && number.is_multiple_of(train.checkpoint_every) {
                self.save()?;
            }
        }
        let (waited, bytes) = self.ranks.unfeed()?;
        let data = DataUse { waited, bytes };
        self.save()?;
        if outcome != Outcome::Interrupted && tally.scores.is_none_or(|(step, ..)| step != self.progress.step) {
            self.evaluate(&mut tally, &reporter)?;
            let is_judged = tally.scores.is_some_and(|(step, ..)| step == self.progress.step);
            if tally.reached.is_some() {
                outcome = Outcome::TargetReached;
            } else if !is_judged && self.ranks.interrupted() && self.source.samples(Split::Test) != Some(0) {
                // All that is left is the last test, which --resume makes up for.
                outcome = Outcome::Interrupted;
            }
        }
        self.mllog.as_mut().map_or(Ok(()), |log| log.run_stops(false))?;
        reporter.finish();
        self.flush()?;
        Ok(self.summary(&tally, outcome, data))
    }

    /// How many steps there will be; `None` when the data decides.
    fn total_steps(&self, order: &Order) -> Result<Option<u64>> {
        let train = &self.config.train;
        match self.source.samples(Split::Train) {
            _ if train.steps > 0 && self.source.samples(Split::Train) != Some(0) => Ok(Some(train.steps)),
            Some(0) => Err(untrainable(&*self.source)),
            // From where the run stands: its steps before may have been of other minibatches.
            Some(samples) if self.hot.is_none() => {
                let Progress { step, epoch, sample, .. } = self.progress;
                let steps = |samples: u64| samples.div_ceil(train.minibatch() as u64);
                let now = if epoch < train.epochs { steps(samples.saturating_sub(sample)) } else { 0 };
                let later = train.epochs.saturating_sub(epoch.saturating_add(1)).saturating_mul(steps(samples));
                Ok(Some(later.saturating_add(step + now)))
            }
            Some(_) => Ok(order.epoch_steps(&*self.source).map(|steps| train.epochs.saturating_mul(steps))),
            None => Err(Error::config(
                "train.steps",
                "this data source never ends: say how many steps to train, e.g. --steps 1000",
            )),
        }
    }

    fn plan(&self) -> Plan {
        let train = &self.config.train;
        let data = &self.config.data;
        Plan {
            split: Split::Train,
            batch: train.minibatch(),
            // A number of steps goes through as many epochs as it takes.
            epochs: if train.steps > 0 { u64::MAX } else { train.epochs },
            start: Position { epoch: self.progress.epoch, sample: self.progress.sample },
            shuffle: data.shuffle.then_some(Shuffle { seed: train.seed, window: data.shuffle_window }),
            depth: data.prefetch,
        }
    }

    fn record(&mut self, tally: &mut Tally, samples: usize, loss: f64, rates: [f64; 3], took: Duration) -> Result<()> {
        tally.samples += samples as u64;
        tally.steps += 1;
        tally.training += took;
        tally.final_loss = Some(loss);
        if let Some(trace) = &mut self.loss_trace {
            trace.push(loss)?;
        }
        if let Some(output) = &mut self.output {
            let seconds = took.as_secs_f64();
            output.log(&StepEntry {
                kind: "step",
                step: self.progress.step + 1,
                epoch: self.progress.epoch,
                loss,
                lr: rates[0],
                lr_rows: rates[1],
                lr_wide: self.config.model.wide.then_some(rates[2]),
                ms: seconds * 1e3,
                samples_per_s: samples as f64 / seconds,
            })?;
            if tally.flushed.elapsed() >= FLUSH_INTERVAL {
                output.flush()?;
                tally.flushed = Instant::now();
            }
        }
        Ok(())
    }

    /// Evaluates and logs, if there are test samples, and notes whether the target is reached; whether it came to its
    /// end.
    fn evaluate(&mut self, tally: &mut Tally, reporter: &Reporter) -> Result<bool> {
        if self.source.samples(Split::Test) == Some(0) {
            return Ok(false);
        }
        let step = self.progress.step;
        self.mllog.as_mut().map_or(Ok(()), |log| log.eval_starts(step))?;
        let (began, which) = (Instant::now(), (Split::Test, self.config.train.eval_batch));
        let found = match evaluate(&self.ranks, &self.source, which, self.loader, Questions::default()) {
            // The weights are saved already or will be: the caller's loop sees the flag next.
            Err(Error::Interrupted) => return Ok(false),
            result => result?,
        };
        let Some(Evaluation { scores, best_possible_auc, .. }) = found else { return Ok(false) };
        let target = self.config.train.target_auc;
        if target > 0.0 && scores.auc >= target {
            tally.reached = Some(tally.began.elapsed());
        }
        if let Some(log) = &mut self.mllog {
            log.eval_stops(step, scores.auc)?;
            if tally.reached.is_some() {
                // Before anything is saved: that is no part of the run's time.
                log.run_stops(true)?;
            }
        }
        reporter.evaluation(step, &scores, best_possible_auc);
        if let Some(output) = &mut self.output {
            let ms = began.elapsed().as_secs_f64() * 1e3;
            output.log(&EvalEntry { kind: "eval", step, scores, best_possible_auc, ms })?;
            output.flush()?;
        }
        tally.scores = Some((step, scores, best_possible_auc));
        Ok(true)
    }

    /// Tests between the turns of hot and cold inputs, and begins the next turn; false: the user interrupts.
    fn judge(&mut self, order: &mut Order, reporter: &Reporter) -> Result<bool> {
        let train = &self.config.train;
        let questions =
            Questions { samples: Some(train.hot_test_samples).filter(|most| *most > 0), ..Questions::default() };
        let which = (Split::Test, train.eval_batch);
        let found = match evaluate(&self.ranks, &self.source, which, self.loader, questions) {
            Err(Error::Interrupted) => return Ok(false),
            result => result?,
        };
        let judged = order.judge(&mut self.progress, found.map(|found| found.scores.logloss));
        if judged.rate != judged.rate_before {
            reporter.say(&judged.to_string());
        }
        self.judged = Some(judged);
        self.output.as_mut().map_or(Ok(()), |output| output.log(&judged))?;
        Ok(true)
    }

    /// Writes to the output, if there is one, how the model is trained and what maps its categories to rows.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn describe_itself(&self) -> Result<()> {
        let Some(output) = &self.output else { return Ok(()) };
        output.write_config(&self.config)?;
        self.plan.as_ref().map_or(Ok(()), |plan| output.write_plan(plan))?;
        let save = |hot: &HotInputs| save_hot(&output.hot(), self.source.schema(), &hot.set, Some(&hot.tags));
        self.hot.as_ref().map_or(Ok(()), save)?;
        self.source.vocabulary().map_or(Ok(()), |vocabulary| save_vocabulary(&output.vocabulary(), vocabulary))
    }

    fn save(&mut self) -> Result<()> {
        self.describe_anew()?;
        // What was trained is worth more than what is written about it, whose disk may be full.
        let flushed = self.flush();
        self.save_weights()?;
        flushed
    }

    /// Writes what a run is described by where it is not there yet.
    fn describe_anew(&mut self) -> Result<()> {
        if let Some(output) = &mut self.output
            && (output.recreate()? || self.saved.is_none())
        {
            self.describe_itself()?;
        }
        Ok(())
    }

    fn save_weights(&mut self) -> Result<()> {
        if !self.saves {
            return Ok(());
        }
        let (schema, vocabulary, scales) = (self.source.schema(), self.source.vocabulary(), &self.source.scales()?);
        let (dense, data) = (self.source.dense_columns(), TrainedOn::of(&*self.source));
        let origin = Origin { schema, vocabulary, scales, dense, data };
        let path = self.output.as_ref().map(OutputDir::checkpoint);
        let saved = checkpoint::save(path.as_deref(), &self.ranks, self.progress, &self.config, origin);
        if let Some(path) = path.filter(|path| saved.is_err() && path.exists()) {
            note!("note: {} is still that of an earlier step, whole and safe", path.display());
        }
        self.saved = Some(saved?);
        self.output.as_ref().map_or(Ok(()), OutputDir::saved)
    }

    fn flush(&mut self) -> Result<()> {
        let traced = self.loss_trace.as_mut().map_or(Ok(()), LossTrace::flush);
        self.output.as_mut().map_or(Ok(()), OutputDir::flush).and(traced)
    }

    /// Saves what was trained before this error, unless it is a rank's, whose weights are gone, or one machine's, which
    /// the others do not know of; returns the error.
    fn keep(&mut self, error: Error, reporter: &Reporter) -> Error {
        let step = self.progress.step;
        let alone = self.ranks.world().machines() == 1;
        if alone && !matches!(error, Error::Rank(_)) && step > 0 && self.keeps() && self.output.is_some() {
            reporter.say(&format!("saved after step {step}: once the cause is gone, continue with --resume"));
        }
        error
    }

    /// Whether the weights are saved, whatever becomes of what is written about them.
    fn keeps(&mut self) -> bool {
        let described = self.describe_anew();
        let _ = self.flush();
        self.save_weights().and(described).is_ok()
    }

    /// What an error on the way has not made worthless is saved, as [`Run::keep`] does.
    fn or_kept<T>(&mut self, result: Result<T>, (reporter, steps): (&Reporter, u64)) -> Result<T> {
        result.map_err(|error| {
            reporter.finish();
            // Before this process has done a step, what is there is no older, and may be told in words that are not at
            // fault.
            if steps == 0 { error } else { self.keep(error, reporter) }
        })
    }

    fn diverged(&self, step: u64, loss: f64, rate: f64) -> Error {
        let saved = self.output.as_ref().map(OutputDir::checkpoint).filter(|path| path.exists());
        Error::Diverged { step, loss, rate, cause: self.unscaled(), saved }
    }

    /// As [`unscaled`], of the next minibatch.
    fn unscaled(&self) -> Option<String> {
        let plan = Plan { depth: 1, ..self.plan() };
        let (batch, _) = Loader::start(Arc::clone(&self.source), plan).ok()?.next_batch().ok()??;
        unscaled(&batch)
    }

    fn summary(&self, tally: &Tally, outcome: Outcome, data: DataUse) -> Summary {
        let scores = tally.scores.map(|(_, scores, _)| scores);
        let seconds = tally.training.as_secs_f64();
        let between = (data.waited.all - data.waited.first).as_secs_f64();
        Summary {
            outcome,
            auc: scores.map(|scores| scores.auc),
            best_possible_auc: tally.scores.and_then(|(_, _, best)| best),
            shuffle: self.judged,
            logloss: scores.map(|scores| scores.logloss),
            pr_auc: scores.map(|scores| scores.pr_auc),
            normalised_entropy: scores.map(|scores| scores.normalised_entropy),
            accuracy: scores.map(|scores| scores.accuracy),
            calibration: scores.map(|scores| scores.calibration),
            step: self.progress.step,
            steps: tally.steps,
            samples: tally.samples,
            seconds,
            data_wait_seconds: data.waited.all.as_secs_f64(),
            data_first_wait_seconds: data.waited.first.as_secs_f64(),
            data_wait_ms_step: if tally.steps == 0 { 0.0 } else { 1e3 * between / tally.steps as f64 },
            data_bytes_read: data.bytes,
            samples_per_s: if tally.samples == 0 { 0.0 } else { tally.samples as f64 / seconds },
            target_seconds: tally.reached.map(|took| took.as_secs_f64()),
            final_loss: tally.final_loss,
            skipped_rows: self.source.skipped_rows(),
        }
    }
}
