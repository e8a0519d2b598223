//! A run: what it is made of, where it goes on from, and what it saves. Its steps are the training loop's.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::best::Evaluations;
use super::checkpoint::{self, Checkpoint, KnownRows, Origin, Progress, Start, TrainedOn, Writers};
use super::evaluation::evaluated;
use super::hot_file::save_hot;
use super::loss_trace::LossTrace;
use super::mllog::MlLog;
use super::order::{Judged, Order, untrainable};
use super::output::OutputDir;
use super::report::{Reporter, unscaled, weightless};
use super::revisions::Revisions;
use super::summary::Summary;
use super::training_loop::TrainingLoop;
use super::vocabulary::save_vocabulary;
use super::{InputStream, Profile, Ranks, Step};
use crate::base::config::{Config, TrainConfig};
use crate::base::console::note;
use crate::base::units::Many;
use crate::base::{Error, Result};
use crate::data::hot::HotInputs;
use crate::data::statistics::Statistics;
use crate::data::{Batch, Loader, LoaderMode, Plan, Position, Shuffle, Source, Split};

/// Training goes on for so many times as long as the last checkpoint took, at least, until one is due by time: all but
/// the first take less than 5 % of a run.
const REST: u32 = 20;

/// Initial weights hardly prefer a label, so that the first loss is about ln 2; one beyond this comes of the data.
const HIGHEST_FIRST_LOSS: f64 = 3.0;

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
    /// With whose weights it began, if with another model's.
    pub start: Option<Start>,
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
    /// What it has come to.
    pub state: RunState,
}

/// What a run has come to.
#[derive(Debug, Default)]
pub struct RunState {
    /// Where training stands.
    pub progress: Progress,
    /// What a step has to do, from the first one on.
    pub profile: Option<Profile>,
    /// The last test between turns of hot and cold inputs.
    pub judged: Option<Judged>,
    /// Who has written this process's last checkpoint, if there was one.
    pub saved: Option<Writers>,
    /// The step of the last checkpoint, this process's or an earlier one's, if there is one.
    pub saved_step: Option<u64>,
    /// Whether this process has written how the run is trained.
    pub(super) is_described: bool,
    /// Whether an earlier process has begun the run, and saved it.
    pub(super) is_resumed: bool,
    /// What is known of the rows of the model that it goes on or begins with.
    pub rows: KnownRows,
    /// What its training samples look like, where that is known and will be saved.
    pub(super) statistics: Option<Statistics>,
    /// The folder of the best model, if that is kept; of several machines the first one's.
    pub(super) best: Option<OutputDir>,
    /// Whether this process has written there how the model is trained.
    pub(super) is_best_described: bool,
    /// Whether the model of the best evaluation is in it.
    pub(super) is_best_kept: bool,
    /// Whether the model in it was kept by other samples or another score than the run's own, or cannot be read.
    pub(super) is_best_others: bool,
}

impl RunState {
    /// That of a run that has not begun, with what is known of the rows of its model.
    #[must_use]
    pub fn of(rows: KnownRows) -> Self {
        Self { rows, ..Self::default() }
    }
}

impl Run {
    /// Which samples its evaluations are made on.
    #[must_use]
    pub fn evaluated(&self) -> Split {
        evaluated(&self.config.train, &*self.source)
    }

    /// Takes weights and position from a checkpoint of this model, `verified` as by [`Checkpoint::open_as`]; rows of
    /// the data are those of the model where they are `taken` for them.
    ///
    /// # Errors
    /// When the file does not fit the model, is damaged, was trained on other data or in another order within a pass,
    /// or is none of octorec's.
    pub fn restore(&mut self, path: &Path, verified: bool, taken: bool) -> Result<()> {
        let checkpoint = Checkpoint::open_as(path, verified)?.taking_rows(taken);
        let Some((progress, trained)) = checkpoint.header()? else {
            return Err(Error::Checkpoint {
                path: path.to_owned(),
                reason: "holds weights but no training position: start from it with --init".to_owned(),
            });
        };
        checkpoint.check_weights(self.source.schema())?;
        checkpoint.check_columns(&*self.source, false)?;
        let mut progress = checkpoint.goes_on(progress, &self.config, &*self.source)?;
        let Evaluations { best, since, is_due, .. } = progress.evaluations;
        // All machines go on by what the first one finds.
        let may_be_others = self.ranks.world().is_first() && (best.is_some() || since > 0);
        let (by, split) = (self.config.train.best_by, self.evaluated());
        let others = match may_be_others {
            true if trained.train.best_by != by => Some("train.best_by is another than before".to_owned()),
            true if checkpoint.check_tests(&self.config, &*self.source, split).is_err() => {
                Some(format!("these are other {} samples than before", split.name()))
            }
            true if checkpoint.check_evaluated(&self.config, &*self.source, split).is_err() => {
                Some("evaluations were made on samples of another kind before".to_owned())
            }
            _ => None,
        };
        if let Some(why) = others {
            let (split, by) = (split.name(), by.words());
            note!("note: {why}: the best {split} {by} is that of tests from here on");
            progress.evaluations = Evaluations { is_due, ..Evaluations::default() };
        }
        // Before what the optimizer kept is looked for by such names.
        checkpoint.check_project(&self.ranks)?;
        if checkpoint.has_moments(&self.ranks)?.contains(&Some(false)) {
            return Err(Error::Checkpoint {
                path: path.to_owned(),
                reason: "lacks what these optimizers keep: start from its weights with --init".to_owned(),
            });
        }
        checkpoint.load_into(&self.ranks)?;
        (self.state.progress, self.state.is_resumed) = (progress, true);
        self.state.saved_step = Some(progress.step);
        self.state.statistics = checkpoint.statistics_of(&*self.source)?;
        self.start = checkpoint.start()?;
        Ok(())
    }

    /// Trains to the end, evaluating and saving on the way.
    ///
    /// # Errors
    /// When data cannot be read, results cannot be written, or the loss is no longer a number. What was saved before
    /// stays.
    pub fn train(&mut self) -> Result<Summary> {
        let summary = TrainingLoop::start(self).and_then(TrainingLoop::run);
        if let Some(log) = self.mllog.as_mut().filter(|_| summary.is_err()) {
            // The error that ends the run is told already.
            let _ = log.run_stops(false);
        }
        summary
    }

    /// How many steps there will be; `None` when the data decides.
    pub(super) fn total_steps(&self, order: &Order) -> Result<Option<u64>> {
        let train = &self.config.train;
        match self.source.samples(Split::Train) {
            _ if train.steps > 0 && self.source.samples(Split::Train) != Some(0) => Ok(Some(train.steps)),
            Some(0) => Err(untrainable(&*self.source)),
            // From where the run stands: its steps before may have been of other minibatches.
            Some(samples) if self.hot.is_none() => {
                let Progress { step, epoch, sample, .. } = self.state.progress;
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

    /// Which samples the loaders read, in which order, from where on.
    pub(super) fn plan(&self) -> Plan {
        let train = &self.config.train;
        let data = &self.config.data;
        Plan {
            split: Split::Train,
            batch: train.minibatch(),
            // A number of steps goes through as many epochs as it takes.
            epochs: if train.steps > 0 { u64::MAX } else { train.epochs },
            start: Position { epoch: self.state.progress.epoch, sample: self.state.progress.sample },
            shuffle: data.shuffle.then_some(Shuffle { seed: train.seed, window: data.shuffle_window }),
            depth: data.prefetch,
        }
    }

    /// Brings the output, if there is one, to where the run begins: a new run is described there, and one that goes on
    /// has a description until it saves what was trained otherwise. All machines take part.
    ///
    /// # Errors
    /// When a file cannot be written, and when another machine fails.
    pub fn begin(&mut self) -> Result<()> {
        let Progress { step, evaluations, .. } = self.state.progress;
        match &mut self.output {
            Some(output) if self.state.is_resumed => output.rewind(step, evaluations.is_due)?,
            Some(output) => {
                output.begin()?;
                self.describe_itself()?;
            }
            None => (),
        }
        self.ranks.meet_described()
    }

    /// Writes to the output, if there is one, how the model is trained and what maps its categories to rows.
    pub(super) fn describe_itself(&mut self) -> Result<()> {
        self.output.as_ref().map_or(Ok(()), |output| self.describe(output))?;
        self.state.is_described = true;
        Ok(())
    }

    /// Writes the same to a directory.
    pub(super) fn describe(&self, output: &OutputDir) -> Result<()> {
        output.write_config(&self.config)?;
        self.plan.as_ref().map_or(Ok(()), |plan| output.write_plan(plan))?;
        let save = |hot: &HotInputs| save_hot(&output.hot(), self.source.schema(), &hot.set, Some(&hot.tags));
        self.hot.as_ref().map_or(Ok(()), save)?;
        let own = self.source.about().vocabulary.as_deref();
        let vocabulary = own.or(self.state.rows.vocabulary.as_deref());
        vocabulary.map_or(Ok(()), |vocabulary| save_vocabulary(&output.vocabulary(), vocabulary))
    }

    /// Looks at some of the training samples, if what they look like will be saved here. Where they cannot be read,
    /// what an earlier process has seen of them stays.
    pub(super) fn look_at_samples(&mut self) {
        if self.output.is_none() {
            return;
        }
        match Statistics::of_training(&*self.source) {
            Ok(found) => self.state.statistics = found,
            // Training meets the wish to stop as well.
            Err(Error::Interrupted) => (),
            Err(error) => note!(
                "warning: training samples cannot be looked at, so that `inspect --against` may tell less of this run: {error}"
            ),
        }
    }

    /// Has the next checkpoint due by time, after one that took so long, if any is.
    pub(super) fn time_next_save(&self, took: Duration) {
        let wait = until_next_save(&self.config.train, took).filter(|_| self.saves);
        self.ranks.set_save_at(wait.map(|wait| Instant::now() + wait));
    }

    /// Whether there is a checkpoint of this run.
    pub(super) const fn has_saved(&self) -> bool {
        self.state.saved_step.is_some()
    }

    /// Saves the weights, and what describes the run where that is gone.
    pub(super) fn save(&mut self) -> Result<()> {
        self.describe_anew()?;
        // What was trained is worth more than what is written about it, whose disk may be full.
        let flushed = self.flush();
        self.save_weights()?;
        flushed
    }

    /// Writes what a run is described by where it is not there yet, or is an earlier process's.
    fn describe_anew(&mut self) -> Result<()> {
        let is_gone = self.output.as_mut().map_or(Ok(false), OutputDir::recreate)?;
        let is_due = is_gone || self.output.is_some() && !self.state.is_described;
        self.describe_if(is_due, Self::describe_itself)
    }

    /// Has the run described, by `describe`, if that is due on the first machine, for which others wait then as long as
    /// it takes; all machines take part.
    pub(super) fn describe_if(&mut self, is_due: bool, describe: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let all = self.ranks.everywhere("describe the run", vec![u8::from(is_due)])?;
        if all.iter().flatten().all(|due| *due == 0) {
            return Ok(());
        }
        describe(self)?;
        self.ranks.meet_described()
    }

    fn save_weights(&mut self) -> Result<()> {
        if !self.saves {
            return Ok(());
        }
        let path = self.output.as_ref().map(OutputDir::checkpoint);
        self.state.saved = Some(self.save_as(path.as_deref(), self.state.progress)?);
        self.state.saved_step = Some(self.state.progress.step);
        self.output.as_mut().map_or(Ok(()), OutputDir::saved)
    }

    /// Writes a checkpoint of the weights, by which the run stands there; all machines take part, and the first one has
    /// a path and has described the run.
    pub(super) fn save_as(&self, path: Option<&Path>, progress: Progress) -> Result<Writers> {
        let (schema, scales) = (self.source.schema(), &self.source.scales()?);
        // Of data that lie away from their vocabularies, what was known of them before holds.
        let (about, rows_taken) = &self.state.rows.with(self.source.about());
        let data = TrainedOn::of(&*self.source);
        let (start, statistics) = (self.start.as_ref(), self.state.statistics.as_ref());
        let origin = Origin { schema, about, rows_taken: *rows_taken, scales, data, start, statistics };
        let saved = checkpoint::save(path, &self.ranks, progress, &self.config, origin);
        if let Some(path) = path.filter(|path| saved.is_err() && path.exists()) {
            note!("note: {} is still that of an earlier step, whole and safe", path.display());
        }
        saved
    }

    /// Hands metrics and the trace of losses to the system.
    pub(super) fn flush(&mut self) -> Result<()> {
        let traced = self.loss_trace.as_mut().map_or(Ok(()), LossTrace::flush);
        self.output.as_mut().map_or(Ok(()), OutputDir::flush).and(traced)
    }

    /// Whether the checkpoint before stays, where there is one, since the losses of so many steps up to the last one
    /// have exploded, which is told.
    pub(super) fn stays_saved(&self, exploded: u64, reporter: &Reporter) -> bool {
        let stays = exploded > 0 && self.has_saved();
        if stays {
            // They do not move with the other one.
            let (train, model) = (&self.config.train, &self.config.model);
            let wide = train.lr_wide.given().filter(|_| model.wide);
            let others = [("train.lr_rows", train.lr_rows.given()), ("train.lr_wide", wide)].into_iter();
            let others = others.filter_map(|(key, rate)| Some((key, rate.filter(|rate| *rate > 0.0)?)));
            let others: String = others.map(|(key, rate)| format!(" and a lower {key}, {rate} now")).collect();
            reporter.say(&format!(
                "warning: what was trained since the last checkpoint is not saved: the loss has exploded in the last {}; go on \
                 from that checkpoint at a lower --lr{others}",
                if exploded == 1 { "step".to_owned() } else { Many(exploded, "step").to_string() }
            ));
        }
        stays
    }

    /// Saves progress after an error outside the ranks; returns the error. A failed rank has lost its weights; with
    /// several machines the others do not know of the error.
    pub(super) fn keep(&mut self, error: Error, reporter: &Reporter) -> Error {
        let step = self.state.progress.step;
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

    /// The error of a loss that is no number any more, or has exploded: that of the step which stands next in the
    /// order.
    pub(super) fn diverged(&self, (number, order): (u64, &Order), step: &Step, rate: f64) -> Error {
        let saved = self.output.as_ref().map(OutputDir::checkpoint).filter(|path| path.exists());
        let (loss, by_weight) = step.told_loss();
        Error::Diverged { step: number, loss, by_weight, rate, cause: self.unscaled(order), saved }
    }

    /// A first loss that comes of the data, and what in them it comes of; its step is the one that stands next in the
    /// order.
    pub(super) fn doubt(&self, order: &Order, step: &Step) -> Option<String> {
        if step.loss == 0.0 {
            let column = self.source.about().weight.as_deref();
            return weightless(&self.next_batch(order)?, column, &self.config.model);
        }
        // An optimizer whose steps are bounded survives it, with a network that tells nothing any more.
        let cause = if step.weighted_mean > HIGHEST_FIRST_LOSS { self.unscaled(order) } else { None };
        let (loss, by_weight) = step.told_loss();
        cause.map(|cause| format!("{loss:.3e}{}: {cause}", if by_weight { " by weight" } else { "" }))
    }

    /// As [`unscaled`], of the next minibatch in the order.
    fn unscaled(&self, order: &Order) -> Option<String> {
        unscaled(&self.next_batch(order)?, &self.source.about().dense_columns)
    }

    /// The minibatch that stands next in the order, if it can be read.
    fn next_batch(&self, order: &Order) -> Option<Batch> {
        let streams = order.streams(&self.source, Plan { depth: 1, ..self.plan() });
        let InputStream { source, plan, .. } = streams.into_iter().find(|stream| stream.inputs == order.next())?;
        let (batch, _) = Loader::start(source, plan).ok()?.next_batch().ok()??;
        Some(batch)
    }
}

/// How long training goes on until a checkpoint is due by time, after one that took so long; nothing: none is.
fn until_next_save(train: &TrainConfig, took: Duration) -> Option<Duration> {
    let by_time = train.checkpoint_every == 0 && train.checkpoint_minutes > 0.0;
    by_time.then(|| Duration::from_secs_f64(60.0 * train.checkpoint_minutes).max(REST * took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_due_by_time_and_take_a_small_part_of_it() {
        let wait = |checkpoint_every: u64, checkpoint_minutes: f64, took: f64| {
            let train = TrainConfig { checkpoint_every, checkpoint_minutes, ..TrainConfig::default() };
            until_next_save(&train, Duration::from_secs_f64(took)).map(|wait| wait.as_secs_f64())
        };
        assert_eq!(until_next_save(&TrainConfig::default(), Duration::ZERO), Some(Duration::from_secs(1800)));
        assert_eq!([wait(0, 0.5, 0.0), wait(0, 0.5, 1.5)], [Some(30.0); 2]);
        assert_eq!(wait(0, 0.5, 10.0), Some(200.0), "10 of 210 seconds");
        assert_eq!([wait(0, 0.0, 10.0), wait(100, 0.5, 10.0)], [None; 2]);
    }
}
