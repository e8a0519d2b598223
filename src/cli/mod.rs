//! The command line: one file a command. Arguments become a configuration, and results become text or JSON.
//!
//! Results that a script may want go to stdout, everything that people watch goes to stderr.

pub mod bench;
mod by_number;
mod chart;
mod collective;
mod config;
mod convert;
mod copies;
mod data;
mod deep;
mod division;
mod eval;
mod export;
mod figures;
pub mod guide;
mod help;
mod importance;
mod inspect;
mod machines;
mod network;
mod output;
mod overrides;
pub mod place;
mod plan;
mod predict;
mod preprocess;
mod profile;
mod ranks;
mod schedule;
mod schema;
mod search;
mod session;
mod simulate;
mod table;
mod terminal;
mod text;
mod timing;
pub mod topo;
mod train;
mod trained;
mod trials;
mod tune;
mod tuned;
mod unseen;

use clap::{Parser, Subcommand};

use crate::base::config::refuse_several;
use crate::base::console::note;
use crate::base::{Deadline, Error, Result, console};
use crate::collective::World;
use crate::ffi::signals;
use crate::machine::team::fit_pool;
use crate::train::DEADLINE;

/// Train deep recommenders (DLRM) on CPU servers.
#[derive(Debug, Parser)]
#[command(
    name = "octorec",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Of a flag that comes twice the last counts, but --set and lists go on; names of files, folders, presets and \
                  machines come once."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a model and save it.
    Train(train::TrainArgs),
    /// Score a trained model on labelled data.
    Eval(eval::EvalArgs),
    /// Write a click probability for every row of a file.
    Predict(predict::PredictArgs),
    /// Write a trained model for other programs: ONNX, PyTorch.
    Export(export::ExportArgs),
    /// Turn raw logs into octorec's blocks.
    Preprocess(Box<preprocess::PreprocessArgs>),
    /// Train with many configurations and say which was best.
    Search(Box<search::SearchArgs>),
    /// Print a configuration: a preset, a file, or both with changes.
    Config(config::ConfigArgs),
    /// Turn a data set of one format into another.
    Convert(convert::ConvertArgs),
    /// Show what a data set holds: labels, missing values, cardinalities, skew; or how it differs from a model's.
    Inspect(inspect::InspectArgs),
    /// Explain how a table of text is described, key by key.
    #[command(override_help = schema::help())]
    Schema(schema::SchemaArgs),
    /// Print a page of the manual.
    Guide(guide::GuideArgs),
    /// Check or generate a data set.
    Data(data::DataArgs),
    /// Show a machine, where ranks and threads go on it, and why; measure it, or show a schedule on its links.
    Topo(topo::TopoArgs),
    /// Decide which rank holds which part of which table, and why.
    Plan(plan::PlanArgs),
    /// Predict what a machine would do, also one that is only described.
    Simulate(simulate::SimulateArgs),
    /// Measure what this machine can do: threads, memory, arithmetic.
    Bench(bench::BenchArgs),
    /// Measure how octorec does best on this machine, and write it down.
    Tune(tune::TuneArgs),
}

impl Command {
    /// What can be done about a malformed row that the command meets, and about one in a file's first line; nothing
    /// where it says so itself, or reads no rows.
    fn remedies(&self) -> Option<[&'static str; 2]> {
        const LEAVE_OUT: &str = "mend the line, or leave such rows out with --on-bad-row skip";
        const NOT_CRITEO: &str = "mend the line, or leave such rows out with --on-bad-row skip; a table that is no log of \
                                  Criteo's is described with --schema FILE, which lists its columns where it has no header";
        let any = match self {
            Self::Train(_) | Self::Search(_) | Self::Config(_) | Self::Plan(_) | Self::Simulate(_) | Self::Tune(_) => {
                return Some([LEAVE_OUT, NOT_CRITEO]);
            }
            Self::Eval(_) | Self::Inspect(_) => LEAVE_OUT,
            // Of one file alone, malformed rows can be answered.
            Self::Predict(args) if args.is_of_folder() => {
                "mend the line: a probability is written for every row, so none is left out"
            }
            Self::Predict(_) => {
                "mend the line, or have such rows answered in their place with --on-bad-row answer: a probability is written \
                 for every row, so none is left out"
            }
            Self::Convert(_) | Self::Data(_) => {
                "mend the line, or leave such rows out with `octorec preprocess` and its --on-bad-row skip"
            }
            Self::Preprocess(_)
            | Self::Export(_)
            | Self::Schema(_)
            | Self::Guide(_)
            | Self::Topo(_)
            | Self::Bench(_) => {
                return None;
            }
        };
        Some([any; 2])
    }
}

/// From now on a command stops in order when it is asked to; nobody asks by a terminal that was closed under nohup.
fn heed_signals() -> Result<()> {
    signals::heed_wishes_to_stop().map_err(|source| Error::Signals { source })
}

impl Cli {
    /// The machines of the job. Of a command that is one machine's, the others wait for the first; a search, which may
    /// take days and starts processes of its own, is refused on all of them.
    ///
    /// # Errors
    /// As [`World::find`], and [`Error::Config`] where a launcher has started several processes of a search.
    pub fn world(&self) -> Result<World> {
        if let Command::Search(_) = self.command {
            refuse_several("search")?;
        }
        World::find()
    }

    /// How long the machines of a job wait for each other.
    #[must_use]
    pub const fn deadline(&self) -> Deadline {
        match &self.command {
            Command::Train(args) => args.deadline(),
            Command::Eval(args) => args.deadline(),
            Command::Predict(args) => args.deadline(),
            _ => DEADLINE,
        }
    }

    /// Runs the command, on all machines of a job at the same time.
    ///
    /// # Errors
    /// Whatever the command met; see [`crate::base::Error`].
    pub fn run(self, world: &World) -> Result<()> {
        if !world.is_first() {
            console::speak_as_other_machine(world.machine());
        }
        fit_pool()?;
        machines::bound(world).iter().for_each(|reason| note!("warning: {reason}"));
        let remedies = self.command.remedies();
        let done = match self.command {
            Command::Train(args) => args.run(world),
            Command::Eval(args) => args.run(world),
            Command::Predict(args) => args.run(world),
            Command::Bench(args) => args.run(world),
            Command::Topo(args) if args.measure => topo::run(&args, world),
            // The others are one machine's, whose wish to stop ends the rest, too, once it has stopped in order.
            _ if !world.is_first() => heed_signals(),
            Command::Preprocess(args) => args.run(),
            Command::Export(args) => args.run(),
            Command::Search(args) => args.run(),
            Command::Config(args) => args.run(),
            Command::Convert(args) => args.run(),
            Command::Inspect(args) => args.run(),
            Command::Schema(args) => args.run(),
            Command::Guide(args) => args.run(),
            Command::Data(args) => args.run(),
            Command::Topo(args) => topo::run(&args, world),
            Command::Plan(args) => args.run(),
            Command::Simulate(args) => args.run(),
            Command::Tune(args) => args.run(),
        };
        done.map_err(|error| match remedies {
            Some([_, first]) if matches!(error, Error::BadRow { line: 1, .. }) => error.with_remedy(first),
            Some([any, _]) => error.with_remedy(any),
            None => error,
        })
    }
}
