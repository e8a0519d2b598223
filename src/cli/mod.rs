//! The command line: one file a command. Arguments become a configuration, and results become text or JSON.
//!
//! Results that a script may want go to stdout, everything that people watch goes to stderr.

pub mod bench;
mod config;
mod convert;
mod data;
mod eval;
mod inspect;
mod overrides;
pub mod place;
mod plan;
mod predict;
mod preprocess;
mod profile;
mod ranks;
mod session;
pub mod topo;
mod train;
mod tune;
mod tuned;

use clap::{Parser, Subcommand};

use crate::base::Result;

/// Train deep recommenders (DLRM) on CPU servers.
#[derive(Debug, Parser)]
#[command(name = "octorec", version, propagate_version = true, max_term_width = 100)]
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
    /// Turn raw logs into octorec's blocks.
    Preprocess(Box<preprocess::PreprocessArgs>),
    /// Print a configuration: a preset, a file, or both with changes.
    Config(config::ConfigArgs),
    /// Turn a data set of one format into another.
    Convert(convert::ConvertArgs),
    /// Show what a data set holds: labels, missing values, cardinalities, skew.
    Inspect(inspect::InspectArgs),
    /// Check or generate a data set.
    Data(data::DataArgs),
    /// Show a machine, where ranks and threads go on it, and why.
    Topo(topo::TopoArgs),
    /// Decide which rank holds which part of which table, and why.
    Plan(plan::PlanArgs),
    /// Measure what this machine can do: threads, memory, arithmetic.
    Bench(bench::BenchArgs),
    /// Measure how octorec does best on this machine, and write it down.
    Tune(tune::TuneArgs),
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// Whatever the command met; see [`crate::base::Error`].
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Train(args) => args.run(),
            Command::Eval(args) => args.run(),
            Command::Predict(args) => args.run(),
            Command::Preprocess(args) => args.run(),
            Command::Config(args) => args.run(),
            Command::Convert(args) => args.run(),
            Command::Inspect(args) => args.run(),
            Command::Data(args) => args.run(),
            Command::Topo(args) => topo::run(&args),
            Command::Plan(args) => args.run(),
            Command::Bench(args) => args.run(),
            Command::Tune(args) => args.run(),
        }
    }
}
