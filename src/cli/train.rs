//! `octorec train`: trains a model, from the first step or from where an earlier run stopped.

mod init;
mod prepare;
mod report;
mod resolve;
mod warm_up;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use self::prepare::Prepared;
pub(super) use self::prepare::{late_evaluations, steps_of};
use self::resolve::Resumed;
pub(super) use self::warm_up::{asked_warm_ups, long_warm_ups};
use super::collective::Choice;
use super::copies::CopyArgs;
use super::heed_signals;
use super::help::{DATA, MODEL, OUTPUT};
use super::overrides::{BaseArgs, KeyArgs};
use super::profile::{LimitsBracket, Profiled};
use super::ranks::{ExchangeArgs, RankArgs};
use super::trained::{VerifyArgs, saved_in};
use super::unseen::Unseen;
use crate::base::console::note;
use crate::base::{Deadline, Error, Result};
use crate::collective::World;
use crate::data::LoaderMode;
use crate::exchange::Traffic;
use crate::memory::write_file;
use crate::train::{Benchmark, Outcome, OutputDir, Run, Summary, checkpoint_in};

/// Arguments of `octorec train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    base: BaseArgs,

    /// Save configuration, metrics and checkpoint in this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "resume", display_order = 7)]
    out: Option<PathBuf>,

    /// Replace the run that --out holds, or files there that have the names of a run's.
    #[arg(long, requires = "out", conflicts_with = "resume", help_heading = OUTPUT)]
    force: bool,

    /// Continue the run in this directory, bit for bit as if it had never stopped.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["preset", "config", "init"], display_order = 8)]
    resume: Option<PathBuf>,

    /// Continue the run that --out holds, if it has saved anything, as --resume does, and begin it otherwise: for a
    /// command that is given again after a crash. The configuration and --init must be the run's.
    #[arg(long, requires = "out", conflicts_with_all = ["force", "mllog"], help_heading = OUTPUT)]
    auto_resume: bool,

    /// Start from the weights of a run's directory or of a safetensors file (octorec's or a PyTorch state dict, whose
    /// numbers may be F32, BF16 or F16); values of text keep the rows that the vocabulary beside it gives them, if
    /// there is one, new values of training samples get new rows, and dense columns keep the means, deviations and
    /// newest moments that octorec's checkpoint or export has of them.
    #[arg(long, value_name = "DIR|FILE", help_heading = MODEL)]
    init: Option<PathBuf>,

    #[command(flatten)]
    verify: VerifyArgs,

    #[command(flatten)]
    ranks: RankArgs,

    #[command(flatten)]
    exchange: ExchangeArgs,

    /// How several ranks read the data: each its own slices of minibatches (default), one for all, or each everything.
    #[arg(long, value_name = "MODE", value_enum, help_heading = DATA)]
    loader: Option<LoaderMode>,

    #[command(flatten)]
    copies: CopyArgs,

    /// Write the loss of every step to this file, one a line, in the place of what it holds; with --resume, of
    /// the steps from there on.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    trace_loss: Option<PathBuf>,

    /// Write MLPerf's log of the run to this file: its `:::MLLOG` lines, as mlcommons/logging checks them.
    #[arg(long, value_name = "FILE", conflicts_with = "resume", help_heading = OUTPUT)]
    mllog: Option<PathBuf>,

    /// By which of MLPerf's rules it is logged: dlrm (v0.7 to v2.1), or dlrm_dcnv2 (from v3.0 on); default: by the
    /// network.
    #[arg(long, value_name = "NAME", value_enum, requires = "mllog", help_heading = OUTPUT)]
    mllog_benchmark: Option<Benchmark>,

    /// Who submits it.
    #[arg(long, value_name = "NAME", requires = "mllog", help_heading = OUTPUT)]
    mllog_org: Option<String>,

    /// Print where the steps' time went: a table of stages beside this machine's limits, which are measured before and
    /// after training; of several machines, those of the first one. With --json they are in the object, too.
    #[arg(long, help_heading = OUTPUT)]
    profile: bool,

    /// Write a trace of the first thousand steps for Perfetto (ui.perfetto.dev) or chrome://tracing: a process a rank,
    /// in it the stages of its compute threads and the work of each communication thread; of several machines, those of
    /// the first one.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    trace: Option<PathBuf>,

    /// Print the results as one JSON object on stdout.
    #[arg(long, display_order = 10)]
    json: bool,
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
    /// The warnings and notes that were told.
    warnings: Vec<String>,
}

impl TrainArgs {
    /// How long ranks and machines wait for each other.
    pub const fn deadline(&self) -> Deadline {
        self.ranks.timeout
    }

    /// Trains, reports and, if the user interrupted, fails with [`Error::Interrupted`] after saving.
    pub fn run(mut self, world: &World) -> Result<()> {
        heed_signals()?;
        let ready = self.ready(world).inspect_err(tell_unbegun)?;
        let Prepared { mut run, placement, isa, collective, .. } = ready;
        let bracket = LimitsBracket::open(self.profile, &run.config, (&placement, isa))?;
        let from = run.state.progress.step;
        let trained = run.train().map_err(|error| init::explained(error, self.init_file().as_deref()));
        let has_begun = run.state.progress.step > from;
        let summary = trained.inspect_err(|error| {
            if !has_begun {
                tell_unbegun(error)
            }
        })?;
        let limits = bracket.close();
        let (breakdowns, traffic) = (run.ranks.breakdowns(), run.ranks.traffic());
        let profiled = match (&limits, &breakdowns, &run.state.profile) {
            (Ok(Some(limits)), Ok(breakdowns), Some(profile)) => {
                Some(Profiled::new(profile, (breakdowns, world.machines()), *limits))
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
            warnings: Vec::new(),
        };
        let unseen = Unseen(run.source.unseen_values()).together(world, self.ranks.timeout);
        let told = self.report(&run, results, unseen.as_ref().ok());
        if let Some(path) = self.trace.as_ref().filter(|_| world.is_first()) {
            let text = run.ranks.trace()?;
            write_file(path, text.as_bytes())?;
        }
        limits?;
        breakdowns?;
        traffic?;
        unseen?;
        told?;
        if summary.outcome == Outcome::Interrupted { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// All that comes before the first step.
    fn ready(&mut self, world: &World) -> Result<Prepared> {
        self.find_begun(world)?;
        self.check_flags()?;
        // Claimed before any work is done, so that a taken directory is refused at once.
        let mut output = self.claim_output(world)?;
        if self.resume.is_some() {
            // The first machine may have brought back files of a run that was to be replaced.
            world.meet("take the folder", self.ranks.timeout)?;
        }
        let asked = self.resolve()?;
        if let (Some(output), Some(resumed)) = (&mut output, &asked.resumed) {
            // Before the data are read: a kill may come from now on.
            let is_noted = resumed.is_changed || resumed.rows_taken;
            output.resume_with(Some(&asked.config).filter(|_| is_noted), resumed.rows_taken)?;
        }
        let mut prepared = self.prepare(world, asked, output)?;
        self.begin(&mut prepared.run, prepared.resumed.as_ref())?;
        Ok(prepared)
    }

    /// Has --auto-resume continue what --out holds, if that has saved anything; of several machines the first one
    /// knows.
    fn find_begun(&mut self, world: &World) -> Result<()> {
        let Some(out) = self.out.as_ref().filter(|_| self.auto_resume) else { return Ok(()) };
        let has_saved = out.is_dir() && checkpoint_in(out).exists();
        let deadline = self.ranks.timeout;
        let told = world.all_gather("find the run", vec![u8::from(has_saved)], deadline)?;
        if told[0] == [1] {
            if has_saved {
                init::refuse_another(self.init.as_deref(), out, self.verify)?;
            }
            self.resume = self.out.take();
            // It has its weights by now.
            self.init = None;
        }
        Ok(())
    }

    /// Refuses flags that do nothing beside the others, and weights that cannot be begun with.
    fn check_flags(&self) -> Result<()> {
        if self.verify.no_verify && self.resume.is_none() && self.init.is_none() && !self.auto_resume {
            let reason = "there is nothing to verify: it goes with --resume or --init".to_owned();
            return Err(Error::config("--no-verify", reason));
        }
        let unsaved = self.out.is_none() && self.resume.is_none();
        let keys = ["train.checkpoint_every", "train.checkpoint_minutes", "train.keep_best"];
        if let Some(origin) = keys.into_iter().find_map(|key| self.keys.origin(key)).filter(|_| unsaved) {
            let reason = "nothing is saved without a folder: name one with --out DIR, or leave it away".to_owned();
            return Err(Error::config(origin, reason));
        }
        match &self.init {
            Some(path) if path.is_dir() => saved_in(path, false).map(|_| ()),
            Some(path) => init::check(path),
            None => Ok(()),
        }
    }

    /// The file of the weights that the run begins with.
    fn init_file(&self) -> Option<PathBuf> {
        self.init.as_deref().map(checkpoint_in)
    }

    /// The folder of the run, if it has one: that of the first machine, which writes for all.
    fn claim_output(&self, world: &World) -> Result<Option<OutputDir>> {
        match (&self.resume, &self.out) {
            _ if !world.is_first() => Ok(None),
            (Some(path), _) if path.is_file() => {
                let reason = "is a file: name the run's directory, or start from its weights with --init".to_owned();
                Err(Error::Checkpoint { path: path.clone(), reason })
            }
            (Some(path), _) if path.is_dir() => OutputDir::resume(path).map(Some),
            (_, Some(path)) => OutputDir::create(path, self.force).map(Some),
            _ => Ok(None),
        }
    }

    /// Takes up the run that is continued, and brings the folder to where it begins: nothing of that is touched before
    /// all is known that the run needs.
    fn begin(&self, run: &mut Run, resumed: Option<&Resumed>) -> Result<()> {
        if let Some(Resumed { path, progress, rows_taken, .. }) = resumed {
            run.restore(path, !self.verify.no_verify, *rows_taken)?;
            run.ranks.continue_after(progress.step)?;
            note!("resuming after step {} ({})", progress.step, path.display());
        }
        run.begin()
    }
}

/// Tells whoever has interrupted a run before its first step that there is nothing to go on with.
fn tell_unbegun(error: &Error) {
    if matches!(error, Error::Interrupted) {
        note!("interrupted before the first step: nothing was trained or saved");
    }
}
