//! All that a run needs before its first step: data, ranks, weights and the files that it writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::resolve::{Resolved, Resumed};
use super::{TrainArgs, init};
use crate::base::config::{Command, Config, Decay, EvalSplit, Layers, TrainConfig};
use crate::base::console::note;
use crate::base::units::{Count, Many};
use crate::base::{Error, Result};
use crate::cli::collective::Choice;
use crate::cli::copies::{hot_inputs, revisions, slots};
use crate::cli::division::Wanted;
use crate::cli::output::{refuse_mixing, refuse_overwriting, refuse_text_folder, refuse_unwritable};
use crate::cli::ranks::{Overlap, Purpose, StartSpec, Started};
use crate::cli::session::{describe, growth_told, open_data};
use crate::collective::World;
use crate::data::hot::HotInputs;
use crate::data::{About, Opening, Source, Split};
use crate::machine::limits::Processor;
use crate::machine::placement::Placement;
use crate::memory::forget_cached;
use crate::simd::Isa;
use crate::train::{
    Benchmark, LossTrace, MlLog, OutputDir, Rates, Run, RunState, Start, Submission, digest, evaluated, hot_in,
    plan_in, vocabulary_in,
};

/// A run that can begin.
pub(super) struct Prepared {
    pub run: Run,
    /// Where it goes on, if it does.
    pub resumed: Option<Resumed>,
    /// Where its ranks stand.
    pub placement: Placement,
    /// Their instruction set.
    pub isa: Isa,
    /// Why dense gradients are reduced as they are, where that was chosen.
    pub collective: Option<Choice>,
}

/// The data, and which of it is hot, if hot and cold inputs take turns.
struct Opened {
    source: Arc<dyn Source>,
    hot: Option<HotInputs>,
}

/// Refuses to train on a column without a name: a checkpoint whose model has one cannot be read again.
fn refuse_nameless(config: &Config) -> Result<()> {
    let at = config.model.columns.iter().position(String::is_empty);
    at.map_or(Ok(()), |at| {
        let reason = format!(
            "categorical column {} has no name, by which a model knows its columns: write the data again with a name for it; \
             `octorec preprocess csv` takes the `name` of its schema",
            at + 1
        );
        Err(Error::bad_file(&config.data.path, reason))
    })
}

/// Refuses rates that are no 32-bit numbers, by which steps are made.
fn refuse_endless_rates(train: &TrainConfig) -> Result<()> {
    let Rates { layers, rows, wide } = Rates::base(train);
    let key_of_wide = if train.lr_wide.given().is_some() { "train.lr_wide" } else { "train.lr" };
    let keys = [("train.lr", layers), ("train.lr_rows", rows), (key_of_wide, wide)];
    let Some((key, _)) = keys.into_iter().find(|(_, rate)| !rate.is_finite()) else { return Ok(()) };
    let reason = "with what scales it, the rate is more than a 32-bit number holds, and every weight would be lost in the \
                  first step: use a lower one";
    Err(Error::config(key, reason))
}

impl TrainArgs {
    /// Opens the data, starts the ranks and sets their weights, but for those of a run that is continued.
    pub(super) fn prepare(&self, world: &World, asked: Resolved, output: Option<OutputDir>) -> Result<Prepared> {
        let Resolved { mut config, opening, rows, resumed, layers } = asked;
        refuse_endless_rates(&config.train)?;
        self.check_outputs(world, &config, output.as_ref(), resumed.is_some())?;
        let mut mllog = self.begin_mllog(world, &config)?;
        let from_where = if self.resume.is_some() { "the run" } else { "--init" };
        let kept_scales = opening.scales.clone();
        let numbers = opening.known.as_ref().filter(|_| self.init.is_some()).map(digest);
        let Opened { source, hot } = self.open(world, &mut config, opening)?;
        let from = resumed.as_ref().map_or(0, |resumed| resumed.progress.sample);
        let kept = self.resume.as_deref().map(plan_in);
        let hot_slots = hot.as_ref().map(|hot| slots(&*source, hot));
        let task = self.ranks.task(world, &config, &*source, Purpose::Train(self.exchange.overlap));
        let wanted = Wanted { kept: kept.as_deref(), ..task.wanted };
        let traced = self.trace.is_some();
        let started = self.ranks.start(StartSpec { wanted, traced, hot: hot_slots, from, ..task })?;
        let start = self.set_weights(&config, &*source, &started, numbers)?;
        if let Some(log) = &mut mllog {
            self.describe_in_log(log, &config, &*source)?;
        }
        let loss_trace = self.trace_loss.as_deref().filter(|_| world.is_first()).map(LossTrace::create).transpose()?;
        describe(&config, &*source, &started, kept_scales.as_ref().map(|kept| (kept, from_where)))?;
        if source.samples(Split::Validation) != Some(0) && evaluated(&config.train, &*source) == Split::Test {
            note!(
                "note: train.eval_split = \"test\": the validation samples are left unused (octorec eval --split validation \
                 scores them)"
            );
        }
        note!("{}", recipe(&config.train));
        self.note_rates_of_others(&config.train);
        self.warn_of_late_decay(&layers, &config.train, source.samples(Split::Train));
        self.warn_of_long_warm_up(&layers, &config.train, source.samples(Split::Train));
        if self.loader.is_some() && started.ranks.layout().ranks() == 1 {
            note!("one rank reads everything itself: --loader changes nothing");
        }
        if self.exchange.overlap == Overlap::Off && started.ranks.layout().ranks() == 1 {
            note!("one rank exchanges nothing: --overlap off changes nothing");
        }
        let Started { ranks, placement, isa, plan, dense: collective } = started;
        let revisions = revisions(&config, &source, &ranks, from);
        let run = Run {
            config,
            source,
            loader: self.loader.unwrap_or_default(),
            hot,
            revisions,
            ranks,
            start,
            output,
            saves: self.out.is_some() || self.resume.is_some(),
            plan,
            loss_trace,
            mllog,
            state: RunState::of(rows),
        };
        Ok(Prepared { run, resumed, placement, isa, collective })
    }

    /// Tells those who ask for an optimizer alone whose rate it takes: one may be a hundred times another's.
    fn note_rates_of_others(&self, train: &TrainConfig) {
        if self.resume.is_some() || self.base.config.is_some() {
            return;
        }
        let rows = train.lr_rows.given().map_or(("train.lr", train.lr), |rate| ("train.lr_rows", rate));
        for (optimizer, (key, rate)) in [("train.optimizer", ("train.lr", train.lr)), ("train.optimizer_rows", rows)] {
            if let Some(origin) = self.keys.origin(optimizer).filter(|_| self.keys.origin(key).is_none()) {
                note!("note: {origin}: its rate is the preset's, {rate}; --set {key}=RATE changes it");
            }
        }
    }

    /// Warns of decays that the user asks for, and that the run, of so many samples, ends before; those of a preset are
    /// for longer runs.
    fn warn_of_late_decay(&self, asked: &Layers, train: &TrainConfig, samples: Option<u64>) {
        let Some(steps) = steps_of(train, samples) else { return };
        let given = |keys: [&str; 3]| keys.into_iter().any(|key| self.keys.ask_for(key, asked));
        let layers = given(["train.decay", "train.decay_start", "train.decay_steps"]);
        // Rows follow where they have no keys of their own.
        let rows = layers || given(["train.decay_rows", "train.decay_start_rows", "train.decay_steps_rows"]);
        late_decays(train, steps, [layers, rows]).iter().for_each(|told| note!("warning: {told}"));
    }

    /// Refuses to wait for evaluations on the way, or to keep the best model of a new run by them, where the first one
    /// would not come before the last step.
    fn check_evaluations(&self, train: &TrainConfig, samples: Option<u64>) -> Result<()> {
        let Some(reason) = late_evaluations(train, samples) else { return Ok(()) };
        let keeps = self.resume.is_none() && train.keep_best.given() == Some(true);
        let wanted = [
            ("train.patience", train.patience > 0, "never ends training"),
            ("train.keep_best", keeps, "keeps the last model alone"),
        ];
        for (key, _, so) in wanted.into_iter().filter(|(_, is_wanted, _)| *is_wanted) {
            match self.keys.origin(key) {
                Some(origin) => return Err(Error::config(origin, reason)),
                None => note!("warning: {key} {so}: {reason}"),
            }
        }
        Ok(())
    }

    /// Refuses to write over a file that the run reads, or that is another of its own, and to where nothing can be.
    fn check_outputs(&self, world: &World, config: &Config, output: Option<&OutputDir>, resumed: bool) -> Result<()> {
        let init = self.init_file();
        let mut inputs = self.base.input_files(config, Command::Train);
        inputs.extend(init.as_deref().into_iter().chain(self.ranks.input_files()));
        let lost = |output: &OutputDir| inputs.iter().copied().find(|input| output.would_lose(input));
        if let Some(input) = output.filter(|_| !resumed).and_then(lost) {
            let reason = format!(
                "{} has the name of a file of a run's, which this run would replace: move it elsewhere, or choose another \
                 folder",
                input.display()
            );
            return Err(Error::config("--out", reason));
        }
        if let Some(output) = output.filter(|_| !resumed) {
            refuse_text_folder("--out", "a run", output.path(), config)?;
        }
        let own: Vec<PathBuf> = output.map_or_else(Vec::new, OutputDir::files);
        inputs.extend(own.iter().map(PathBuf::as_path));
        let outputs = [("--trace-loss", &self.trace_loss), ("--trace", &self.trace), ("--mllog", &self.mllog)];
        for (flag, path) in outputs.into_iter().filter(|(_, path)| path.is_some()) {
            refuse_mixing(self.json, (flag, path.as_deref()), &format!("does what {flag} writes"))?;
        }
        refuse_overwriting(&outputs.map(|(flag, path)| (flag, path.as_deref())), &inputs)?;
        // Before any of them is emptied, and before the data are read.
        refuse_unwritable(&outputs.map(|(_, path)| path.as_deref().filter(|_| world.is_first())))
    }

    /// Opens the data, which all machines do at the same time.
    fn open(&self, world: &World, config: &mut Config, opening: Opening<'_>) -> Result<Opened> {
        let source = open_data(config, opening)?;
        refuse_nameless(config)?;
        self.check_test_samples(config, &*source)?;
        self.check_evaluations(&config.train, source.samples(Split::Train))?;
        // Of the files as training finds them: who saves may do so because one of them was damaged.
        for split in Split::ALL {
            let _ = source.fingerprint(split);
        }
        let hot = hot_inputs(config, &*source, self.resume.as_deref().map(hot_in).as_deref())?;
        let deadline = self.ranks.timeout;
        world.meet("read the data", deadline)?;
        if let Some(hot) = &hot {
            world.agree("have the same hot inputs", &hot.tags.digest(), deadline)?;
        }
        Ok(Opened { source, hot })
    }

    /// Takes weights from --init, or draws them; those of a run that is continued are its checkpoint's. `numbers` tells
    /// by which vocabulary values of --init have their rows. Returns with whose weights the run begins.
    fn set_weights(
        &self,
        config: &Config,
        source: &dyn Source,
        started: &Started,
        numbers: Option<String>,
    ) -> Result<Option<Start>> {
        match (&self.init, self.init_file()) {
            (Some(path), Some(file)) => {
                let weights = self.verify.open(&file)?;
                let About { vocabulary, growth, .. } = source.about();
                let numbers = vocabulary.as_deref().map(|vocabulary| numbers.unwrap_or_else(|| digest(vocabulary)));
                let doubt = weights.check_numbers(numbers.as_deref(), source, &vocabulary_in(path), init::INSTEAD)?;
                doubt.iter().for_each(|reason| note!("warning: {reason}"));
                match config.data.is_stored() {
                    true => init::check_columns(&weights, config, source)?,
                    false => weights.check_columns(source, true)?,
                }
                weights
                    .other_label(source)
                    .iter()
                    .for_each(|reason| note!("warning: --init {}: {reason}", path.display()));
                weights.begin(&started.ranks, growth, config.train.seed)?;
                note!("--init {}: {}", path.display(), weights.told(&started.ranks)?);
                let found = weights.has_moments(&started.ranks)?;
                let told = init::taken_sums(config, found, growth);
                if let Some((origin, told)) = self.keys.origin("train.initial_accumulator").zip(told) {
                    note!("note: {origin} {told} taken from --init {}", path.display());
                }
                growth_told(config.data.rows_cap, growth)
                    .iter()
                    .for_each(|told| note!("--init {}: {told}", path.display()));
                Ok(Some(Start::of(path, &weights)))
            }
            _ if self.resume.is_some() => Ok(None),
            _ => started.ranks.initialise(config.train.seed).map(|()| None),
        }
    }

    /// Refuses a part of the samples for tests where there are others for that, and what would need some where there
    /// are none.
    fn check_test_samples(&self, config: &Config, source: &dyn Source) -> Result<()> {
        let train = &config.train;
        let others = !config.data.test_path.is_empty();
        let apart = others || source.about().has_own_tests;
        if let Some(origin) =
            self.keys.origin("data.test_fraction").filter(|_| apart && config.data.test_fraction > 0.0)
        {
            let reason = match others {
                true => "all samples of --test-data are for tests, and none of --data: leave one of the two away",
                false => "the data say which samples are for tests, and none is taken from the others: leave it away",
            };
            return Err(Error::config(origin, reason));
        }
        if let Some(origin) = self.keys.origin("train.eval_split")
            && train.eval_split == EvalSplit::Validation
            && source.samples(Split::Validation) == Some(0)
        {
            let reason = "the data have no validation samples beside test samples: keep some with --validation-fraction, \
                          or leave it away";
            return Err(Error::config(origin, reason));
        }
        let wanted = [
            ("train.target_auc", train.target_auc > 0.0),
            ("train.patience", train.patience > 0),
            ("train.keep_best", train.keep_best.given() == Some(true)),
            ("train.eval_every", train.eval_every > 0),
            ("train.evals_per_epoch", train.evals_per_epoch > 0),
        ];
        if source.samples(evaluated(train, source)) != Some(0) {
            return Ok(());
        }
        let remedy = match config.data.is_stored() {
            true => "name some with --test-data or --test-fraction",
            false => "generate some with data.test_samples",
        };
        for (key, _) in wanted.into_iter().filter(|(_, wanted)| *wanted) {
            if let Some(origin) = self.keys.origin(key) {
                let reason = format!("there are no test samples to judge by: {remedy}, or leave it away");
                return Err(Error::config(origin, reason));
            }
        }
        if train.target_auc > 0.0 {
            note!("warning: there are no test samples, so that train.target_auc is never reached: {remedy}");
        }
        if train.patience > 0 {
            note!("warning: there are no test samples, so that train.patience never ends training: {remedy}");
        }
        Ok(())
    }

    /// By which rules the run is logged.
    fn benchmark(&self, config: &Config) -> Benchmark {
        self.mllog_benchmark.unwrap_or_else(|| Benchmark::of(config))
    }

    /// Begins MLPerf's log, if one is asked for: before anything is read, and with what is read on the disk.
    fn begin_mllog(&self, world: &World, config: &Config) -> Result<Option<MlLog>> {
        let Some(path) = &self.mllog else { return Ok(None) };
        let data = [&config.data.path, &config.data.test_path].map(Path::new);
        let stored = config.data.is_stored();
        let mut cleared = true;
        for path in data.into_iter().filter(|path| stored && !path.as_os_str().is_empty()) {
            if let Err(error) = forget_cached(path) {
                note!("warning: {error}: the log says that nothing was forgotten");
                cleared = false;
            }
        }
        if !world.is_first() {
            return Ok(None);
        }
        MlLog::begin(path, self.benchmark(config), cleared).map(Some)
    }

    /// Says in MLPerf's log what is trained on what.
    fn describe_in_log(&self, log: &mut MlLog, config: &Config, source: &dyn Source) -> Result<()> {
        let (org, samples) = (self.mllog_org.as_deref(), |split| source.samples(split).unwrap_or(0));
        let submission = Submission {
            benchmark: self.benchmark(config),
            org: org.unwrap_or("octorec").to_owned(),
            platform: Processor::model_here(),
        };
        let eval = evaluated(&config.train, source);
        log.describe(config, &submission, [samples(Split::Train), samples(eval)])?;
        log.initialised(&config.model.network())
    }
}

/// Why no evaluation comes before the last step of a run over so many samples, if none does.
pub(in crate::cli) fn late_evaluations(train: &TrainConfig, samples: Option<u64>) -> Option<String> {
    let epoch = samples.map(|samples| samples.div_ceil(train.minibatch() as u64));
    let part = epoch.filter(|_| train.evals_per_epoch > 0).map(|steps| steps.div_ceil(train.evals_per_epoch));
    let first = Some(train.eval_every).filter(|steps| *steps > 0).into_iter().chain(part).min();
    let steps = steps_of(train, samples).filter(|steps| *steps > 0 && first.is_none_or(|first| first >= *steps))?;
    Some(format!(
        "the run has {}, and no evaluation comes before its last one: train for longer, or use --eval-every N with N below that",
        Many(steps, "step")
    ))
}

/// How many steps a run has over so many samples; nothing where it never ends.
pub(in crate::cli) fn steps_of(train: &TrainConfig, samples: Option<u64>) -> Option<u64> {
    let of_epochs = |samples: u64| train.epochs.saturating_mul(samples.div_ceil(train.minibatch() as u64));
    if train.steps > 0 { Some(train.steps) } else { samples.map(of_epochs) }
}

/// What is to be said of the rates of layers and of rows, if somebody has asked for their decay, that a run of so many
/// steps ends before.
fn late_decays(train: &TrainConfig, steps: u64, [of_layers, of_rows]: [bool; 2]) -> Vec<String> {
    let [layers, rows] = train.courses();
    let is_late = |[_, start, decay]: [u64; 3]| decay > 0 && start >= steps;
    let [layers_late, rows_late] = [of_layers && is_late(layers), of_rows && is_late(rows)];
    let rise = ("train.warmup_steps", layers[0]);
    let of_their_own = train.warmup_steps_rows.given().is_some();
    let rise_rows = (if of_their_own { "train.warmup_steps_rows" } else { rise.0 }, rows[0]);
    let one_key = train.decay_start_rows.given().is_none() && (train.decay_start.given().is_some() || !of_their_own);
    let late = if layers_late && rows_late && one_key {
        // Neither may fall before it has risen.
        let latest = if rise_rows.1 > rise.1 { rise_rows } else { rise };
        vec![("the rate", "train.decay_start", layers, latest)]
    } else {
        let each = [
            (layers_late, ("the rate of layers", "train.decay_start", layers, rise)),
            (rows_late, ("the rate of rows", "train.decay_start_rows", rows, rise_rows)),
        ];
        each.into_iter().filter_map(|(is_late, told)| is_late.then_some(told)).collect()
    };
    let told = |(rate, key, [_, start, _], (rise, risen)): (&str, &str, [u64; 3], (&str, u64))| {
        let remedy = match risen {
            0 => format!("--set {key}=0 has it decay from the first step"),
            _ if risen < steps => format!("--set {key}={risen} has it decay from the end of the warm-up on"),
            _ => format!("choose {rise}, {risen} now, and {key} within them"),
        };
        let (start, steps) = (Count(start), Many(steps, "step"));
        format!("{rate} decays from step {start} on, and the run has {steps}, so that it never does; {remedy}")
    };
    late.into_iter().map(told).collect()
}

/// One line on how weights move.
fn recipe(train: &TrainConfig) -> String {
    let rates = Rates::base(train);
    let decays = [train.decay, train.decay_rows.or(train.decay)];
    let mut courses = train.courses().into_iter().zip(decays).map(|([_, first, steps], decay)| {
        let first_told = Count(first);
        match decay {
            _ if steps == 0 => None,
            Decay::Polynomial | Decay::Cosine => Some(format!("in steps {first_told} to {}", Count(first + steps))),
            Decay::Steps | Decay::Exponential => Some(format!("from step {first_told} on")),
        }
    });
    let decay = match (courses.next().flatten(), courses.next().flatten()) {
        (None, None) => String::new(),
        (Some(layers), Some(rows)) if layers == rows => format!("; decaying {layers}"),
        (layers, rows) => [("layers", layers), ("rows", rows)]
            .into_iter()
            .filter_map(|(of, course)| course.map(|course| format!("; {of} decaying {course}")))
            .collect(),
    };
    format!(
        "training: minibatches of {}, {}; layers by {} at rate {}, rows by {} at {}{decay}",
        Count(train.batch as u64),
        if train.steps > 0 { Many(train.steps, "step").to_string() } else { Many(train.epochs, "epoch").to_string() },
        train.optimizer.name(),
        rates.layers,
        train.optimizer_rows.name(),
        rates.rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::Setting::Given;

    #[test]
    fn each_rate_that_would_fall_behind_the_last_step_is_told_with_its_own_keys() {
        let base = TrainConfig { decay_steps: 5, ..TrainConfig::default() };
        let told = |train: &TrainConfig| late_decays(train, 10, [true; 2]);
        let late = |rate: &str, start: u64, remedy: &str| {
            format!("{rate} decays from step {start} on, and the run has 10 steps, so that it never does; {remedy}")
        };
        assert!(told(&base).is_empty());
        let both = TrainConfig { decay_start: Given(50), ..base.clone() };
        let first = |key: &str| format!("--set {key}=0 has it decay from the first step");
        assert_eq!(told(&both), [late("the rate", 50, &first("train.decay_start"))]);
        // Of a preset's decay, what the user has asked for.
        assert_eq!(
            late_decays(&both, 10, [false, true]),
            [late("the rate of rows", 50, &first("train.decay_start_rows"))]
        );
        assert!(late_decays(&both, 10, [false; 2]).is_empty() && late_decays(&both, 51, [true; 2]).is_empty());
        let rows = TrainConfig { decay_start_rows: Given(30), ..base.clone() };
        assert_eq!(told(&rows), [late("the rate of rows", 30, &first("train.decay_start_rows"))]);
        let layers = TrainConfig { decay_start_rows: Given(3), ..both.clone() };
        assert_eq!(told(&layers), [late("the rate of layers", 50, &first("train.decay_start"))]);
        let each = TrainConfig { decay_start_rows: Given(30), ..both.clone() };
        assert_eq!(
            told(&each),
            [
                late("the rate of layers", 50, &first("train.decay_start")),
                late("the rate of rows", 30, &first("train.decay_start_rows")),
            ]
        );
        // Rows alone decay.
        let alone = TrainConfig { decay_steps: 0, decay_steps_rows: Given(5), ..both.clone() };
        assert_eq!(told(&alone), [late("the rate of rows", 50, &first("train.decay_start_rows"))]);
        // None falls before it has risen.
        let slower = TrainConfig { warmup_steps: 2, warmup_steps_rows: Given(4), ..both };
        let risen = "--set train.decay_start=4 has it decay from the end of the warm-up on";
        assert_eq!(told(&slower), [late("the rate", 50, risen)]);
        let slow = TrainConfig { warmup_steps_rows: Given(20), ..base };
        let within = "choose train.warmup_steps_rows, 20 now, and train.decay_start_rows within them";
        assert_eq!(told(&slow), [late("the rate of rows", 20, within)]);
    }

    #[test]
    fn a_column_without_a_name_is_refused_whatever_the_data() {
        let mut config = Config::default();
        config.data.path = "days/blocks".to_owned();
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (names, told) in [(["user", ""], true), (["user", " "], false), (["", "user"], true)] {
            config.model.columns = named(&names);
            let message = refuse_nameless(&config).map_or_else(|error| error.to_string(), |()| String::new());
            let at = names.iter().position(|name| name.is_empty()).map_or(0, |at| at + 1);
            assert_eq!(
                message.starts_with(&format!("days/blocks: categorical column {at} has no name")),
                told,
                "{message}"
            );
        }
        config.model.columns.clear();
        refuse_nameless(&config).unwrap();
    }
}
