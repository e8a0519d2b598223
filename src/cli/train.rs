//! `octorec train`: trains a model, from the first step or from where an earlier run stopped.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

use super::collective::Choice;
use super::copies::{CopyArgs, hot_inputs, revisions, slots};
use super::heed_signals;
use super::help::{MODEL, OUTPUT};
use super::overrides::{BaseArgs, KeyArgs};
use super::place::RankCount;
use super::profile::{Profiled, limits};
use super::ranks::{ExchangeArgs, Overlap, Purpose, RankArgs, Started, machine_team};
use super::session::{Learned, Trained, VerifyArgs, describe, open_data, refuse_overwriting, report_skipped};
use crate::base::config::{Command, Config, Hot, Layers, Vocab};
use crate::base::console::note;
use crate::base::units::{Bytes, Count, Many, Seconds};
use crate::base::{Error, Result, console};
use crate::collective::World;
use crate::data::{Labels, Source, Split, Unseen};
use crate::exchange::Traffic;
use crate::machine::limits::{Bracket, Processor};
use crate::machine::placement::Placement;
use crate::memory::{forget_cached, write_file};
use crate::simd::Isa;
use crate::train::{
    Benchmark, Checkpoint, LossTrace, MlLog, Outcome, OutputDir, Progress, Run, Submission, Summary, Writers, hot_in,
    load_vocabulary, plan_in, vocabulary_in,
};

/// Arguments of `octorec train`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct TrainArgs {
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    base: BaseArgs,

    /// Save configuration, metrics and checkpoint in this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "resume", display_order = 7)]
    out: Option<PathBuf>,

    /// Replace the run that --out holds.
    #[arg(long, requires = "out", help_heading = OUTPUT)]
    force: bool,

    /// Continue the run in this directory, bit for bit as if it had never stopped.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["preset", "config", "init"], display_order = 8)]
    resume: Option<PathBuf>,

    /// Start from the weights of a safetensors file (octorec's or a PyTorch state dict); values of text get the rows
    /// that the vocabulary beside it gives them, if there is one.
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    init: Option<PathBuf>,

    #[command(flatten)]
    verify: VerifyArgs,

    #[command(flatten)]
    ranks: RankArgs,

    #[command(flatten)]
    exchange: ExchangeArgs,

    #[command(flatten)]
    copies: CopyArgs,

    /// Write the loss of every step to this file, one a line.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    trace_loss: Option<PathBuf>,

    /// Write MLPerf's log of the run to this file: its `:::MLLOG` lines, as mlcommons/logging checks them.
    #[arg(long, value_name = "FILE", conflicts_with = "resume", help_heading = OUTPUT)]
    mllog: Option<PathBuf>,

    /// By which of MLPerf's rules it is logged: dlrm (v0.7 to v2.1), or dlrm_dcnv2 (from v3.0 on); default: by the
    /// network.
    #[arg(long, value_name = "NAME", value_parser = benchmark(), requires = "mllog", help_heading = OUTPUT)]
    mllog_benchmark: Option<Benchmark>,

    /// Who submits it.
    #[arg(long, value_name = "NAME", requires = "mllog", help_heading = OUTPUT)]
    mllog_org: Option<String>,

    /// Print where the steps' time went: a table of stages beside this machine's limits, which are measured before and
    /// after training. With --json they are in the object, too.
    #[arg(long, help_heading = OUTPUT)]
    profile: bool,

    /// Write a trace of the first thousand steps for Perfetto (ui.perfetto.dev) or chrome://tracing: a process a rank,
    /// in it the stages of its compute threads and the work of each communication thread.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    trace: Option<PathBuf>,

    /// Print the results as one JSON object on stdout.
    #[arg(long, display_order = 10)]
    json: bool,
}

fn benchmark() -> impl TypedValueParser<Value = Benchmark> {
    PossibleValuesParser::new(Benchmark::ALL.map(Benchmark::name))
        .map(|name| Benchmark::ALL.into_iter().find(|one| one.name() == name).expect("no other value is possible"))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Results<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a Profiled>,
    /// Bytes from each rank to each other, evaluations included.
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic: Option<&'a Traffic>,
    /// How dense gradients are reduced among several ranks, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    collective: Option<&'a Choice>,
}

impl TrainArgs {
    /// Trains, reports and, if the user interrupted, fails with [`Error::Interrupted`] after saving.
    pub fn run(&self, world: &World) -> Result<()> {
        heed_signals()?;
        if self.verify.no_verify && self.resume.is_none() && self.init.is_none() {
            let reason = "there is nothing to verify: it goes with --resume or --init".to_owned();
            return Err(Error::config("--no-verify", reason));
        }
        let unsaved = self.out.is_none() && self.resume.is_none();
        if let Some(origin) = self.keys.origin("train.checkpoint_every").filter(|_| unsaved) {
            let reason = "nothing is saved without a folder: name one with --out DIR, or leave it away".to_owned();
            return Err(Error::config(origin, reason));
        }
        // Claimed before any work is done, so that a taken directory is refused at once.
        let output = match (&self.resume, &self.out) {
            // The first machine writes for all.
            _ if !world.is_first() => None,
            (Some(path), _) if path.is_file() => {
                let reason = "is a file: name the run's directory, or start from its weights with --init".to_owned();
                return Err(Error::Checkpoint { path: path.clone(), reason });
            }
            (Some(path), _) if path.is_dir() => Some(OutputDir::resume(path)?),
            (_, Some(path)) => Some(OutputDir::create(path, self.force)?),
            _ => None,
        };
        let trained = self.resume.as_deref().map(|path| Trained::find(path, self.verify)).transpose()?;
        let (config, known, checkpoint) = match trained {
            Some(Trained { path, header: Some((progress, trained)), known }) => {
                let config = self.keys.finish_with(
                    Layers::from_config(&trained, "--resume"),
                    Command::Train,
                    self.copies.values(),
                )?;
                let kept = [
                    ("data.vocab", config.data.vocab == trained.data.vocab),
                    ("data.rows_cap", config.data.rows_cap == trained.data.rows_cap),
                ];
                if let Some((key, _)) = kept.into_iter().find(|(_, same)| !same) {
                    let reason = "a run keeps the vocabulary that it began with: leave the key away, or begin another \
                                  run with --out"
                        .to_owned();
                    return Err(Error::config(format!("{key} with --resume"), reason));
                }
                let hot = |config: &Config| (config.train.hot_set.clone(), config.train.hot_budget);
                let in_turns = [&config, &trained].map(|config| config.train.hot == Hot::Fae);
                if in_turns == [true; 2] && hot(&config) != hot(&trained) {
                    let reason =
                        "a run whose hot and cold inputs take turns keeps the hot rows that it began with: leave the key away, \
                         or begin another run with --out and --init"
                            .to_owned();
                    let origin = "train.hot_set or train.hot_budget with --resume".to_owned();
                    return Err(Error::config(origin, reason));
                }
                (config, known, Some((path, progress)))
            }
            Some(Trained { path, .. }) => {
                let reason = "is not one of octorec's runs: start from its weights with --init".to_owned();
                return Err(Error::Checkpoint { path, reason });
            }
            None => {
                let config = self.keys.finish_with(self.base.layers()?, Command::Train, self.copies.values())?;
                config.train.check_ends_of_warm_up()?;
                let known = self.numbers_of_init(&config)?;
                (config, known, None)
            }
        };
        let progress = checkpoint.as_ref().map(|(_, progress)| *progress);
        let (mut run, placement, isa, collective) = self.prepare(world, config, known, output, progress)?;
        if let Some((path, progress)) = &checkpoint {
            run.restore(path, !self.verify.no_verify)?;
            note!("resuming after step {} ({})", progress.step, path.display());
        }
        // Nothing of the folder is touched before all is known that the run needs; one that goes on has a description
        // until it saves what was trained otherwise.
        match (&mut run.output, progress) {
            (Some(output), Some(progress)) => output.rewind(progress.step)?,
            (Some(output), None) => {
                output.begin()?;
                run.describe_itself()?;
            }
            (None, _) => {}
        }
        let of_model = run.config.clone();
        let limits =
            |started: bool| started.then(|| limits(&machine_team(&placement, isa)?, &of_model, None)).transpose();
        let before = limits(self.profile)?;
        let summary = run.train()?;
        let after = limits(self.profile);
        let (breakdowns, traffic) = (run.ranks.breakdowns(), run.ranks.traffic());
        let profiled = match (before, &after, &breakdowns, &run.profile) {
            (Some(before), Ok(Some(after)), Ok(breakdowns), Some(profile)) => {
                let brackets = std::array::from_fn(|i| Bracket { before: before[i], after: after[i] });
                Some(Profiled::new(profile, breakdowns, brackets))
            }
            _ => None,
        };
        // What the run found is told before anything that may fail.
        let several = traffic.as_ref().ok().filter(|traffic| traffic.ids.ranks() > 1);
        let results = Results {
            summary: &summary,
            profile: profiled.as_ref(),
            traffic: several,
            collective: collective.as_ref(),
        };
        let told = self.report(&run, &results);
        if let Some(path) = self.trace.as_ref().filter(|_| world.is_first()) {
            let text = run.ranks.trace()?;
            write_file(path, text.as_bytes())?;
        }
        after?;
        breakdowns?;
        traffic?;
        told?;
        if summary.outcome == Outcome::Interrupted { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Refuses a part of the samples for tests where there are others for that, and what would need some where there
    /// are none.
    fn judged(&self, config: &Config, source: &dyn Source) -> Result<()> {
        let train = &config.train;
        let others = !config.data.test_path.is_empty();
        let apart = others || source.has_own_tests();
        if let Some(origin) =
            self.keys.origin("data.test_fraction").filter(|_| apart && config.data.test_fraction > 0.0)
        {
            let reason = match others {
                true => "all samples of --test-data are for tests, and none of --data: leave one of the two away",
                false => "the data say which samples are for tests, and none is taken from the others: leave it away",
            };
            return Err(Error::config(origin, reason));
        }
        let wanted = [
            ("train.target_auc", train.target_auc > 0.0),
            ("train.eval_every", train.eval_every > 0),
            ("train.evals_per_epoch", train.evals_per_epoch > 0),
        ];
        if source.samples(Split::Test) != Some(0) {
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
        Ok(())
    }

    /// Where a run begins with a model's weights, values of text have the rows that they have there.
    fn numbers_of_init(&self, config: &Config) -> Result<Learned> {
        let numbered = config.data.is_stored() && config.data.vocab != Vocab::Hash;
        let beside = self.init.as_deref().filter(|_| numbered).map(vocabulary_in).filter(|beside| beside.exists());
        let (Some(beside), Some(path)) = (beside, &self.init) else { return Ok(Learned::default()) };
        if let Ok(Some((_, trained))) = Checkpoint::open_as(path, false)?.header() {
            let (cap, vocab) = (trained.data.rows_cap, trained.data.vocab);
            let kept = [
                ("data.rows_cap", cap == config.data.rows_cap, format!("--rows-cap {cap}")),
                ("data.vocab", vocab == config.data.vocab, format!("--vocab {}", format!("{vocab:?}").to_lowercase())),
            ];
            if let Some((key, _, remedy)) = kept.into_iter().find(|(_, same, _)| !same) {
                let reason = format!(
                    "values of text keep the rows that they have in the model whose weights the run begins with: use {remedy}"
                );
                return Err(Error::config(format!("{key} with --init"), reason));
            }
        }
        let vocabulary = Some(load_vocabulary(&beside, !self.verify.no_verify)?);
        Ok(Learned { vocabulary, ..Learned::default() })
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

    fn prepare(
        &self,
        world: &World,
        mut config: Config,
        known: Learned,
        output: Option<OutputDir>,
        resumed: Option<Progress>,
    ) -> Result<(Run, Placement, Isa, Option<Choice>)> {
        let inputs = [
            &config.data.path,
            &config.data.test_path,
            &config.data.schema,
            &config.train.tuned,
            &config.train.hot_set,
        ];
        let inputs = inputs.map(Path::new);
        let inputs: Vec<&Path> = inputs.into_iter().chain(self.init.as_deref()).collect();
        let mine = || [&self.base.config, &self.ranks.plan].into_iter().flatten().map(PathBuf::as_path);
        let lost = |output: &OutputDir| {
            let mut all = inputs.iter().copied().chain(mine()).filter(|input| !input.as_os_str().is_empty());
            all.find(|input| output.would_lose(input)).map(Path::to_owned)
        };
        if let Some(input) = output.as_ref().filter(|_| resumed.is_none()).and_then(lost) {
            let reason = format!(
                "{} has the name of a file of a run's, which this run would replace: move it elsewhere, or choose another \
                 folder",
                input.display()
            );
            return Err(Error::config("--out", reason));
        }
        let own: Vec<PathBuf> = output.as_ref().map_or_else(Vec::new, |output| output.files().into());
        let inputs: Vec<&Path> = inputs.into_iter().chain(mine()).chain(own.iter().map(PathBuf::as_path)).collect();
        refuse_overwriting("--trace-loss", self.trace_loss.as_deref(), &inputs)?;
        refuse_overwriting("--trace", self.trace.as_deref(), &inputs)?;
        refuse_overwriting("--mllog", self.mllog.as_deref(), &inputs)?;
        let mut mllog = self.begin_mllog(world, &config)?;
        let source = open_data(&mut config, known, Labels::Required, Unseen::Fault)?;
        self.judged(&config, &*source)?;
        // Of the files as training finds them: who saves may do so because one of them was damaged.
        let _ = source.fingerprint();
        let purpose = Purpose::Train(self.exchange.overlap);
        let hot = hot_inputs(&config, &*source, self.resume.as_deref().map(hot_in).as_deref())?;
        let deadline = Duration::from_secs_f64(self.ranks.timeout);
        world.meet("read the data", deadline)?;
        if let Some(hot) = &hot {
            world.agree("have the same hot inputs", &hot.tags.digest(), deadline)?;
        }
        let kept = self.resume.as_deref().map(plan_in);
        let from = resumed.map_or(0, |progress| progress.sample);
        let kept = (kept.as_deref(), hot.as_ref().map(|hot| slots(&*source, hot)), from);
        let started = self.ranks.start(world, &config, &*source, purpose, kept, self.trace.is_some())?;
        match &self.init {
            Some(path) => {
                let weights = self.verify.open(path)?;
                weights.check_numbers(source.vocabulary(), &vocabulary_in(path))?;
                weights.check_columns(&*source)?;
                weights.load_into(&started.ranks)?;
            }
            None if self.resume.is_some() => (),
            None => started.ranks.initialise(config.train.seed)?,
        }
        if let Some(log) = &mut mllog {
            let (org, samples) = (self.mllog_org.as_deref(), |split| source.samples(split).unwrap_or(0));
            let submission = Submission {
                benchmark: self.benchmark(&config),
                org: org.unwrap_or("octorec").to_owned(),
                platform: Processor::model_here(),
            };
            log.describe(&config, &submission, [samples(Split::Train), samples(Split::Test)])?;
            log.initialised(&config.model.network())?;
        }
        let loss_trace = self.trace_loss.as_deref().filter(|_| world.is_first()).map(LossTrace::create).transpose()?;
        describe(&config, &*source, &started)?;
        if self.exchange.loader.is_some() && started.ranks.layout().ranks() == 1 {
            note!("one rank reads everything itself: --loader changes nothing");
        }
        if self.exchange.overlap == Overlap::Off && started.ranks.layout().ranks() == 1 {
            note!("one rank exchanges nothing: --overlap off changes nothing");
        }
        let Started { ranks, placement, isa, plan, dense } = started;
        let revisions = revisions(&config, &source, &ranks, from);
        let run = Run {
            config,
            source,
            loader: self.exchange.loader.unwrap_or_default(),
            hot,
            revisions,
            ranks,
            progress: Progress::default(),
            output,
            saves: self.out.is_some() || self.resume.is_some(),
            plan,
            loss_trace,
            mllog,
            profile: None,
            judged: None,
            saved: None,
        };
        Ok((run, placement, isa, dense))
    }

    /// Tells what came out; training has ended and saved, whoever reads.
    fn report(&self, run: &Run, results: &Results<'_>) -> Result<()> {
        let Results { summary, profile, traffic, .. } = results;
        let mut written = Ok(());
        if self.json {
            written = console::json(&results).and_then(|read| match read {
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
            let whole = summary.target_seconds.map(|seconds| format!(" ({} with evaluations)", Seconds(seconds)));
            let (target, took) = (run.config.train.target_auc, Seconds(summary.seconds));
            note!("reached AUC {target} after {took}{}", whole.unwrap_or_default());
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
                let writers = match run.saved {
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

/// What a run took: steps, samples, seconds, and which of these it waited for data.
fn spent(summary: &Summary) -> String {
    let Summary { steps, samples, seconds, .. } = *summary;
    if steps == 0 {
        return format!("no step was left to train: the run stands at step {}", Count(summary.step));
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
