//! The loop of a run: step after step, with what is due between them (tests, turns of hot and cold inputs, saves).
//!
//! What goes wrong in a step or after it leaves weights that are worth something: one machine saves them before the
//! error is told ([`TrainingLoop::or_kept`]), but not where a rank has failed, where the loss is no longer a number, or
//! where saving itself has failed.

use std::time::{Duration, Instant};

use super::entries::{EvalEntry, StepEntry};
use super::evaluation::{Questions, evaluate, evaluation_due};
use super::feed::Upcoming;
use super::metrics::{Evaluation, Scores};
use super::order::Order;
use super::output::OutputDir;
use super::report::Reporter;
use super::run::Run;
use super::summary::{Outcome, Summary};
use super::{Best, Rates, Step};
use crate::base::config::BestBy;
use crate::base::{Error, Result};
use crate::data::{Split, Waited};
use crate::optim::Schedule;

/// Metrics are handed to the system this often, so that a watcher sees them.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// A loss by weight of so many times the run's first one, or of so many if that was less than 1...
const EXPLODED: f64 = 100.0;

/// ...in so many steps, one behind the other, comes of weights that are worth nothing any more.
const EXPLODED_STEPS: u64 = 10;

/// A run under way.
pub(super) struct TrainingLoop<'a> {
    run: &'a mut Run,
    order: Order,
    /// How many steps there will be; nothing when the data decides.
    total: Option<u64>,
    /// Steps of an epoch, where that is known.
    epoch_steps: Option<u64>,
    /// Of the learning rates of layers, rows, and a wide part.
    schedules: [Schedule; 3],
    upcoming: Upcoming,
    reporter: Reporter,
    tally: LoopTotals,
    /// Whether an evaluation was due before the first step.
    was_due: bool,
}

/// Time and losses of this process.
struct LoopTotals {
    samples: u64,
    steps: u64,
    training: Duration,
    final_loss: Option<f64>,
    /// Steps up to the last one whose losses have exploded.
    exploded: u64,
    /// The last evaluation, on whichever samples these are made.
    evaluated: Option<Tested>,
    /// The last one on the test samples.
    tested: Option<Tested>,
    lowest_logloss: Option<Best>,
    began: Instant,
    /// How long it took to the target.
    reached: Option<Duration>,
    flushed: Instant,
}

/// What an evaluation found.
#[derive(Clone, Copy)]
struct Tested {
    /// The model's step.
    step: u64,
    scores: Scores,
    best_possible_auc: Option<f64>,
}

/// What became of a step.
enum Next {
    Made(Made),
    /// The user has interrupted the test before it.
    Interrupted,
    /// There is no more data.
    Ended,
}

/// A step that was made.
struct Made {
    number: u64,
    step: Step,
    /// As [`TrainingLoop::schedules`].
    rates: [f64; 3],
    took: Duration,
}

/// What the loader did for the steps.
struct DataUse {
    waited: Waited,
    bytes: Vec<u64>,
}

impl LoopTotals {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            samples: 0,
            steps: 0,
            training: Duration::ZERO,
            final_loss: None,
            exploded: 0,
            evaluated: None,
            tested: None,
            lowest_logloss: None,
            began: now,
            reached: None,
            flushed: now,
        }
    }
}

impl<'a> TrainingLoop<'a> {
    /// Lets the ranks load the first minibatch.
    pub fn start(run: &'a mut Run) -> Result<Self> {
        run.open_best()?;
        run.look_at_samples();
        let train = &run.config.train;
        let order = Order::new(run.hot.as_ref().map(|hot| &hot.tags), train.minibatch(), &run.state.progress)?;
        let total = run.total_steps(&order)?;
        let schedules = [Schedule::new, Schedule::rows, Schedule::wide].map(|of| of(train));
        let reporter = Reporter::new(run.state.progress.step, total);
        let mut tally = LoopTotals::new();
        let epoch_steps = order.epoch_steps(&*run.source);
        run.mllog.as_mut().map_or(Ok(()), |log| log.run_starts(epoch_steps))?;
        let began = Instant::now();
        let upcoming = Upcoming::of(&run.ranks, &order.streams(&run.source, run.plan()), run.loader)?;
        tally.training += began.elapsed();
        run.time_next_save(Duration::ZERO);
        let was_due = run.state.progress.evaluations.is_due;
        Ok(Self { run, order, total, epoch_steps, schedules, upcoming, reporter, tally, was_due })
    }

    /// Goes on to the last step.
    pub fn run(mut self) -> Result<Summary> {
        let outcome = self.steps()?;
        self.finish(outcome)
    }

    /// Makes steps until there are no more, evaluations end the run, or the user interrupts.
    fn steps(&mut self) -> Result<Outcome> {
        if self.run.state.progress.evaluations.is_due {
            let evaluated = self.evaluate(true);
            self.or_kept(evaluated)?;
        }
        if let Some(outcome) = self.ended() {
            return Ok(outcome);
        }
        while self.total.is_none_or(|total| self.run.state.progress.step < total) {
            if self.run.ranks.interrupted() {
                // Before anything was done there is nothing to save: what was there before stays.
                let has_begun = self.tally.steps > 0 || self.tally.evaluated.is_some();
                return has_begun.then_some(Outcome::Interrupted).ok_or(Error::Interrupted);
            }
            let next = self.next_step();
            let made = match self.or_kept(next)? {
                Next::Made(made) => made,
                // The head of the loop sees the flag.
                Next::Interrupted => continue,
                Next::Ended => break,
            };
            self.check(&made)?;
            let after = self.after_step(&made);
            if let Some(outcome) = self.or_kept(after)? {
                return Ok(outcome);
            }
            if self.is_to_be_saved(made.number) {
                let began = Instant::now();
                self.run.save()?;
                self.run.time_next_save(began.elapsed());
            }
        }
        Ok(Outcome::Finished)
    }

    /// Whether a checkpoint is due after this step, behind which training goes on: at the end all is saved anyway.
    /// While the loss may have exploded, the one before stays.
    fn is_to_be_saved(&self, step: u64) -> bool {
        let every = self.run.config.train.checkpoint_every;
        let is_due = every > 0 && step.is_multiple_of(every) || self.run.ranks.save_due();
        is_due
            && self.tally.exploded == 0
            && self.total.is_none_or(|total| step < total)
            && !self.run.ranks.interrupted()
    }

    /// Makes the next step, after the test between turns if that is due.
    fn next_step(&mut self) -> Result<Next> {
        if self.order.is_due() && !self.judge()? {
            return Ok(Next::Interrupted);
        }
        let (began, inputs) = (Instant::now(), self.order.next());
        let number = self.run.state.progress.step + 1;
        let rates = self.schedules.each_ref().map(|schedule| schedule.rate(number));
        if !self.upcoming.take(inputs)? {
            return Ok(Next::Ended);
        }
        let [layers, rows, wide] = rates.map(|rate| rate as f32);
        self.run.revise(&self.reporter)?;
        let (step, more) = self.run.ranks.advance(inputs, Rates { layers, rows, wide })?;
        self.upcoming.put(inputs, more);
        Ok(Next::Made(Made { number, step, rates, took: began.elapsed() }))
    }

    /// Refuses a loss that is no number, and one that has exploded and stays so; tells and notes what the first step
    /// shows.
    fn check(&mut self, made: &Made) -> Result<()> {
        if self.tally.samples == 0 {
            let choice = self.run.ranks.update_choice()?.map(|choice| format!("update of embedding rows: {choice}"));
            let doubt = self.run.doubt(&self.order, &made.step);
            let doubt = doubt.map(|doubt| format!("warning: the loss of the first step is {doubt}"));
            let all = choice.into_iter().chain(doubt).chain(self.run.unused_plans());
            all.for_each(|told| self.reporter.say(&told));
        }
        let progress = &mut self.run.state.progress;
        // A minibatch without weight has none.
        if progress.step == 0 || progress.first_loss.is_none() && self.tally.final_loss == Some(0.0) {
            progress.first_loss = Some(made.step.weighted_mean).filter(|loss| *loss > 1.0);
        }
        let has_exploded = made.step.weighted_mean > EXPLODED * progress.first_loss.unwrap_or(1.0);
        self.tally.exploded = if has_exploded { self.tally.exploded + 1 } else { 0 };
        if !made.step.loss.is_finite() || self.tally.exploded == EXPLODED_STEPS {
            self.reporter.finish();
            let rate = made.rates.into_iter().fold(0.0, f64::max);
            return Err(self.run.diverged((made.number, &self.order), &made.step, rate));
        }
        if self.run.state.profile.is_none() {
            self.run.state.profile = Some(self.run.ranks.profile()?);
        }
        Ok(())
    }

    /// How evaluations have ended the run, if they have.
    fn ended(&self) -> Option<Outcome> {
        let (train, progress) = (&self.run.config.train, &self.run.state.progress);
        if progress.evaluations.have_reached(train, progress.step) {
            return Some(Outcome::TargetReached);
        }
        progress.evaluations.exhaust(train.patience).then_some(Outcome::NoImprovement)
    }

    /// Records a step, and tests where that is due; how that ends the run, if it does.
    fn after_step(&mut self, made: &Made) -> Result<Option<Outcome>> {
        let recorded = self.record(made);
        self.run.state.progress = self.order.step_done(self.run.state.progress, made.step.position);
        self.reporter.step(made.number, made.step.loss, made.step.samples);
        recorded?;
        // Before anything is saved, so that a run that goes on from there decides and logs nothing twice.
        if self.order.is_due() && self.total.is_none_or(|total| made.number < total) {
            self.judge()?;
        }
        if !evaluation_due(&self.run.config.train, self.epoch_steps, made.number) {
            return Ok(None);
        }
        let is_told = self.evaluate(true)?;
        let outcome = self.ended();
        let log = self.run.mllog.as_mut().filter(|_| is_told && outcome.is_none());
        log.map_or(Ok(()), |log| log.goes_on(made.number))?;
        Ok(outcome)
    }

    /// Saves, and evaluates what was not evaluated yet.
    fn finish(mut self, mut outcome: Outcome) -> Result<Summary> {
        let (waited, bytes) = self.run.ranks.unfeed()?;
        if self.tally.steps == 0 && self.run.state.is_resumed && !self.was_due {
            // It is saved as it was trained, and not as somebody asks for who trains nothing.
            self.run.output.as_mut().map_or(Ok(()), OutputDir::leave_untrained)?;
        } else if !self.run.stays_saved(self.tally.exploded, &self.reporter) {
            self.run.save()?;
        }
        let step = self.run.state.progress.step;
        if outcome != Outcome::Interrupted && !self.is_evaluated(step) {
            self.evaluate(false)?;
            if self.tally.reached.is_some() {
                outcome = Outcome::TargetReached;
            } else if !self.is_evaluated(step)
                && self.run.ranks.interrupted()
                && self.run.source.samples(self.run.evaluated()) != Some(0)
            {
                // All that is left is the last test, which --resume makes up for.
                outcome = Outcome::Interrupted;
            }
        }
        if outcome == Outcome::Finished && self.tally.steps == 0 && self.run.state.is_resumed {
            outcome = Outcome::AlreadyFinished;
        }
        self.run.mllog.as_mut().map_or(Ok(()), |log| log.run_stops(false))?;
        if outcome != Outcome::Interrupted && self.run.evaluated() == Split::Validation {
            self.test()?;
        }
        self.reporter.finish();
        self.run.flush()?;
        Ok(self.summary(outcome, DataUse { waited, bytes }))
    }

    fn is_evaluated(&self, step: u64) -> bool {
        self.tally.evaluated.is_some_and(|evaluated| evaluated.step == step)
    }

    fn record(&mut self, made: &Made) -> Result<()> {
        let Self { run, tally, .. } = self;
        let Made { step: Step { loss, samples, .. }, rates, took, .. } = *made;
        tally.samples += samples as u64;
        tally.steps += 1;
        tally.training += took;
        tally.final_loss = Some(loss);
        if let Some(trace) = &mut run.loss_trace {
            trace.push(loss)?;
        }
        if let Some(output) = &mut run.output {
            let seconds = took.as_secs_f64();
            output.log(&StepEntry {
                kind: "step",
                step: made.number,
                epoch: run.state.progress.epoch,
                loss,
                lr: rates[0],
                lr_rows: rates[1],
                lr_wide: run.config.model.wide.then_some(rates[2]),
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

    /// Evaluates and logs, if there are samples for that, on the way or at the end, and notes whether the target is
    /// reached and which evaluation is the best; whether it came to its end.
    fn evaluate(&mut self, on_the_way: bool) -> Result<bool> {
        let Self { run, tally, reporter, .. } = self;
        let split = run.evaluated();
        if run.source.samples(split) == Some(0) {
            return Ok(false);
        }
        run.state.progress.evaluations.is_due = on_the_way;
        let step = run.state.progress.step;
        run.mllog.as_mut().map_or(Ok(()), |log| log.eval_starts(step))?;
        let (began, which) = (Instant::now(), (split, run.config.train.eval_batch));
        let found = match evaluate(&run.ranks, &run.source, which, run.loader, Questions::default()) {
            // The weights are saved already or will be: the caller's loop sees the flag next.
            Err(Error::Interrupted) => return Ok(false),
            result => result?,
        };
        let Some(Evaluation { scores, best_possible_auc, .. }) = found else { return Ok(false) };
        if run.config.train.reaches_target(scores.auc) {
            tally.reached = Some(tally.began.elapsed());
        }
        if let Some(log) = &mut run.mllog {
            log.eval_stops(step, scores.auc)?;
            if tally.reached.is_some() {
                // Before anything is saved: that is no part of the run's time.
                log.run_stops(true)?;
            }
        }
        reporter.evaluation(step, split, &scores, best_possible_auc);
        if let Some(output) = &mut run.output {
            if tally.steps == 0 {
                // A process before may have logged the same one: this one takes its place.
                output.flush()?;
                output.rewind(step, true)?;
            }
            let ms = began.elapsed().as_secs_f64() * 1e3;
            let named = (split == Split::Validation).then_some(split.name());
            let entry = EvalEntry { kind: "eval", step, split: named, best_step: None, scores, best_possible_auc, ms };
            output.log(&entry)?;
            output.flush()?;
        }
        tally.evaluated = Some(Tested { step, scores, best_possible_auc });
        if split == Split::Test {
            tally.tested = tally.evaluated;
        }
        let now = Best::new(step, &scores);
        if now.is_better(tally.lowest_logloss, BestBy::Logloss) {
            tally.lowest_logloss = Some(now);
        }
        run.take_evaluation(now, on_the_way, tally.steps > 0)?;
        Ok(true)
    }

    /// Scores the test samples, if there are some, by the model that is kept, the best one or else the last, of a run
    /// whose evaluations are on others. The ranks then have that model. A run has ended as it has where the user
    /// interrupts it here, and is told how to make up for it.
    fn test(&mut self) -> Result<()> {
        let Self { run, tally, reporter, .. } = self;
        if run.source.samples(Split::Test) == Some(0) {
            return Ok(());
        }
        let began = Instant::now();
        let Some(model_step) = run.take_kept()? else { return Ok(()) };
        let which = (Split::Test, run.config.train.eval_batch);
        let found = match evaluate(&run.ranks, &run.source, which, run.loader, Questions::default()) {
            Err(Error::Interrupted) => {
                run.tell_untested("the user has interrupted");
                return Ok(());
            }
            result => result?,
        };
        let Some(Evaluation { scores, best_possible_auc, .. }) = found else { return Ok(()) };
        reporter.evaluation(model_step, Split::Test, &scores, best_possible_auc);
        if let Some(output) = &mut run.output {
            let (step, split) = (run.state.progress.step, Some(Split::Test.name()));
            let best_step = Some(model_step).filter(|of| *of != step);
            let ms = began.elapsed().as_secs_f64() * 1e3;
            output.log(&EvalEntry { kind: "eval", step, split, best_step, scores, best_possible_auc, ms })?;
        }
        tally.tested = Some(Tested { step: model_step, scores, best_possible_auc });
        Ok(())
    }

    /// Tests between the turns of hot and cold inputs, and begins the next turn; false: the user interrupts.
    fn judge(&mut self) -> Result<bool> {
        let Self { run, order, reporter, .. } = self;
        let train = &run.config.train;
        let questions =
            Questions { samples: Some(train.hot_test_samples).filter(|most| *most > 0), ..Questions::default() };
        let which = (run.evaluated(), train.eval_batch);
        let found = match evaluate(&run.ranks, &run.source, which, run.loader, questions) {
            Err(Error::Interrupted) => return Ok(false),
            result => result?,
        };
        let judged = order.judge(&mut run.state.progress, found.map(|found| found.scores.logloss));
        if judged.rate != judged.rate_before {
            reporter.say(&judged.told(which.0));
        }
        run.state.judged = Some(judged);
        run.output.as_mut().map_or(Ok(()), |output| output.log(&judged))?;
        Ok(true)
    }

    /// What an error on the way has not made worthless is saved, as [`Run::keep`] does.
    fn or_kept<T>(&mut self, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            self.reporter.finish();
            // Before this process's first step there is nothing newer to save.
            let stays = self.tally.steps == 0 || self.run.stays_saved(self.tally.exploded, &self.reporter);
            if stays { error } else { self.run.keep(error, &self.reporter) }
        })
    }

    fn summary(&self, outcome: Outcome, data: DataUse) -> Summary {
        let Self { run, tally, .. } = self;
        let (best, step) = (run.state.progress.evaluations.best, run.state.progress.step);
        // Evaluations on test samples are of the steps that they come after, and the user may have interrupted later.
        let is_of_end = |tested: &Tested| run.evaluated() == Split::Validation || tested.step == step;
        let scores = tally.tested.filter(is_of_end).map(|tested| tested.scores);
        let validated = tally.evaluated.filter(|_| run.evaluated() == Split::Validation);
        // The scores on test samples, and on others by which the choice is made.
        let of_best = tally.tested.filter(|tested| best.is_some_and(|best| best.step == tested.step));
        let (best_test, best_validation) = match run.evaluated() {
            Split::Validation => (of_best.map(|tested| Best::new(tested.step, &tested.scores)), best),
            Split::Train | Split::Test => (best, None),
        };
        let (seconds, between) = (tally.training.as_secs_f64(), (data.waited.all - data.waited.first).as_secs_f64());
        Summary {
            outcome,
            auc: scores.map(|scores| scores.auc),
            best_possible_auc: tally.tested.and_then(|tested| tested.best_possible_auc),
            shuffle: run.state.judged,
            logloss: scores.map(|scores| scores.logloss),
            pr_auc: scores.map(|scores| scores.pr_auc),
            normalised_entropy: scores.map(|scores| scores.normalised_entropy),
            accuracy: scores.map(|scores| scores.accuracy),
            calibration: scores.map(|scores| scores.calibration),
            validation_auc: validated.map(|found| found.scores.auc),
            validation_logloss: validated.map(|found| found.scores.logloss),
            best_auc: best_test.and_then(|best| best.auc),
            best_logloss: best_test.and_then(|best| best.logloss),
            best_validation_auc: best_validation.and_then(|best| best.auc),
            best_validation_logloss: best_validation.and_then(|best| best.logloss),
            best_step: best.map(|best| best.step),
            lowest_logloss: tally.lowest_logloss,
            step,
            saved_step: run.state.saved_step,
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
            skipped_rows: run.source.skipped_rows(),
        }
    }
}
