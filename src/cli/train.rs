//! `octorec train`: trains a model, from the first step or from where an earlier run stopped.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::overrides::{BaseArgs, KeyArgs};
use super::profile::{Profiled, limits};
use super::ranks::{Breakdowns, RankArgs};
use super::session::{Trained, build_model, describe, open_data, place_team};
use super::tuned::use_plans;
use crate::base::config::{Config, Layers};
use crate::base::units::{Bytes, Count, Seconds};
use crate::base::{Error, Result, interrupt};
use crate::data::{Labels, Source, Unseen, Vocabulary};
use crate::exchange::Traffic;
use crate::machine::limits::Bracket;
use crate::train::{Checkpoint, Clock, Engine, LossTrace, Outcome, OutputDir, Progress, Run, Summary, save_vocabulary};

/// Arguments of `octorec train`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct TrainArgs {
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    keys: KeyArgs,

    /// Save configuration, metrics and checkpoint in this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,

    /// Replace the run that --out holds.
    #[arg(long, requires = "out")]
    force: bool,

    /// Continue the run in this directory, bit for bit as if it had never stopped.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["preset", "config", "init"])]
    resume: Option<PathBuf>,

    /// Start from the weights of a safetensors file (octorec's or a PyTorch state dict).
    #[arg(long, value_name = "FILE")]
    init: Option<PathBuf>,

    #[command(flatten)]
    several: RankArgs,

    /// Write the loss of every step to this file, one a line.
    #[arg(long, value_name = "FILE")]
    trace_loss: Option<PathBuf>,

    /// Print where the steps' time went: a table of stages beside this machine's limits, which are measured before and
    /// after training. With --json they are in the object, too.
    #[arg(long)]
    profile: bool,

    /// Write a trace of the first thousand steps, stage by stage, for Perfetto (ui.perfetto.dev) or chrome://tracing.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print the results as one JSON object on stdout.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Results<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a Profiled>,
    #[serde(skip_serializing_if = "Option::is_none")]
    breakdowns: Option<&'a Breakdowns>,
    /// Bytes from each rank to each other, evaluations included.
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic: Option<&'a Traffic>,
}

impl TrainArgs {
    /// Trains, reports and, if the user interrupted, fails with [`Error::Interrupted`] after saving.
    pub fn run(&self) -> Result<()> {
        interrupt::install()?;
        let trained = self.resume.as_deref().map(Trained::find).transpose()?;
        let (config, vocabulary, checkpoint) = match trained {
            Some(Trained { path, header: Some((progress, config)), vocabulary }) => {
                let config = self.keys.finish(Layers::from_config(&config, "--resume"))?;
                (config, vocabulary, Some((path, progress)))
            }
            Some(Trained { path, .. }) => {
                let reason = "is not one of octorec's runs: start from its weights with --init".to_owned();
                return Err(Error::Checkpoint { path, reason });
            }
            None => (self.keys.finish(self.base.layers()?)?, None, None),
        };
        // Claimed before any work is done, so that a taken directory is refused at once.
        let output = self.output(checkpoint.as_ref().map(|(_, progress)| *progress))?;
        let mut run = self.prepare(config, vocabulary, output)?;
        describe(&run.config, &*run.source, &run.engine)?;
        if let Some((path, progress)) = &checkpoint {
            run.restore(path)?;
            eprintln!("resuming after step {} ({})", progress.step, path.display());
        }
        let (dim, precision) = (run.config.model.dim, run.config.train.precision);
        let limits = |engine: &Engine| match engine {
            Engine::One(team, _) => limits(team, dim, precision).map(Some),
            Engine::Many(_) => Ok(None),
        };
        let before = if self.profile { limits(&run.engine)? } else { None };
        let summary = run.train()?;
        let profiled = match (before, &run.profile) {
            (Some(before), Some(profile)) => limits(&run.engine).map(|after| {
                let after = after.as_ref()?;
                let brackets = std::array::from_fn(|i| Bracket { before: before[i], after: after[i] });
                Some(Profiled::new(profile, &run.clock, brackets))
            }),
            _ => Ok(None),
        };
        let (breakdowns, traffic) = match &run.engine {
            Engine::Many(ranks) => {
                let breakdowns = self.profile.then(|| ranks.breakdowns()).transpose();
                (breakdowns.map(|ranks| ranks.map(Breakdowns::new)), ranks.traffic().map(Some))
            }
            Engine::One(..) => (Ok(None), Ok(None)),
        };
        // What the run found is told before anything that may fail.
        let results = Results {
            summary: &summary,
            profile: profiled.as_ref().ok().and_then(Option::as_ref),
            breakdowns: breakdowns.as_ref().ok().and_then(Option::as_ref),
            traffic: traffic.as_ref().ok().and_then(Option::as_ref),
        };
        self.report(&run, &results);
        traffic?;
        if let Some(path) = &self.trace {
            run.clock.write_trace(path)?;
        }
        profiled?;
        breakdowns?;
        if summary.outcome == Outcome::Interrupted { Err(Error::Interrupted) } else { Ok(()) }
    }

    fn output(&self, resumed: Option<Progress>) -> Result<Option<OutputDir>> {
        match (&self.resume, &self.out, resumed) {
            (Some(path), _, Some(progress)) => OutputDir::resume(path, progress.step).map(Some),
            (_, Some(path), _) => OutputDir::create(path, self.force).map(Some),
            _ => Ok(None),
        }
    }

    fn prepare(&self, config: Config, known: Option<Vocabulary>, output: Option<OutputDir>) -> Result<Run> {
        let (source, mut engine) = self.engine(&config, known)?;
        match &self.init {
            Some(path) => Checkpoint::open(path)?.load_into(&mut engine)?,
            None if self.resume.is_some() => (),
            None => engine.initialise(config.train.seed)?,
        }
        if let Some(output) = &output {
            output.write_config(&config)?;
            if let Some(vocabulary) = source.vocabulary() {
                save_vocabulary(&output.vocabulary(), vocabulary)?;
            }
        }
        let loss_trace = self.trace_loss.as_deref().map(LossTrace::create).transpose()?;
        Ok(Run {
            config,
            source,
            loader: self.several.loader.unwrap_or_default(),
            engine,
            progress: Progress::default(),
            output,
            loss_trace,
            clock: Clock::new(self.trace.is_some()),
            profile: None,
        })
    }

    /// The data, and what trains on it, all weights 0.
    fn engine(&self, config: &Config, known: Option<Vocabulary>) -> Result<(Arc<dyn Source>, Engine)> {
        let several = self.several.several(config)?;
        if several && self.trace.is_some() {
            let reason = "--trace is for one rank: leave --ranks, --plan and --determinism ranks away";
            return Err(Error::Config { origin: "--ranks".to_owned(), reason: reason.to_owned() });
        }
        if several {
            let source = open_data(config, known, Labels::Required, Unseen::Fault)?;
            let ranks = self.several.start(config, &*source)?;
            return Ok((source, Engine::Many(ranks)));
        }
        let (team, home) = place_team(config.train.threads, config.train.isa)?;
        use_plans(config, &team)?;
        let source = open_data(config, known, Labels::Required, Unseen::Fault)?;
        let model = build_model(config, &*source, &team, &home)?;
        Ok((source, Engine::One(team, Box::new(model))))
    }

    fn report(&self, run: &Run, results: &Results<'_>) {
        let Results { summary, profile, breakdowns, traffic } = results;
        if self.json {
            println!("{}", serde_json::to_string(&results).expect("a summary is representable in JSON"));
        }
        if let Some(profile) = profile {
            eprintln!("{profile}");
        }
        if let Some(breakdowns) = breakdowns {
            eprintln!("{breakdowns}");
        }
        let read: Vec<_> = summary.data_bytes_read.iter().map(|&bytes| Bytes(bytes).to_string()).collect();
        eprintln!(
            "{} steps, {} samples in {} ({} samples/s); waited for data {:.3} ms a step ({:.2} % of it) and {:.3} s for the \
             first minibatch, read {}",
            summary.steps,
            Count(summary.samples),
            Seconds(summary.seconds),
            Count(summary.samples_per_s as u64),
            summary.data_wait_ms_step,
            100.0 * (summary.data_wait_seconds - summary.data_first_wait_seconds)
                / summary.seconds.max(f64::MIN_POSITIVE),
            summary.data_first_wait_seconds,
            read.join(" and ")
        );
        if let Some(traffic) = traffic.filter(|traffic| traffic.ids.ranks() > 1) {
            let sent =
                traffic.parts().into_iter().map(|(name, links)| (name, links.total())).filter(|(_, sent)| *sent > 0);
            let sent: Vec<_> = sent.map(|(name, sent)| format!("{name} {}", Bytes(sent as u64))).collect();
            eprintln!("sent among ranks: {} ({})", Bytes(traffic.total().total() as u64), sent.join(", "));
        }
        if summary.skipped_rows > 0 {
            eprintln!("left out {} malformed rows", Count(summary.skipped_rows));
        }
        if summary.outcome == Outcome::TargetReached {
            eprintln!("reached AUC {} after {}", run.config.train.target_auc, Seconds(summary.seconds));
        }
        match (&run.output, summary.outcome) {
            (Some(output), Outcome::Interrupted) => {
                eprintln!("saved; continue with: octorec train --resume {}", output.path().display());
            }
            (Some(output), _) => eprintln!("saved: {}", output.checkpoint().display()),
            (None, Outcome::Interrupted) => eprintln!("nothing was saved: there was no --out DIR"),
            (None, _) => (),
        }
    }
}
