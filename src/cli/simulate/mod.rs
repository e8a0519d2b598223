//! `octorec simulate`: what machines would do, also such as one does not have.

mod calibrate;
pub(super) mod collectives;
mod question;
mod sc20;
mod step;

use clap::{Args, Subcommand};

use super::chart;
use crate::base::{Result, console};

/// Arguments of `octorec simulate`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SimulateArgs {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    step: step::StepArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What each schedule of each collective would take, against the least that links and memories allow.
    Collectives(collectives::CollectivesArgs),
    /// The scaling results of the SC20 paper from its machines and its implementation's rates, beside what it tells.
    Sc20(sc20::Sc20Args),
}

impl SimulateArgs {
    /// Prints what is predicted.
    ///
    /// # Errors
    /// When the machine cannot be read, or has no room for the ranks.
    pub fn run(&self) -> Result<()> {
        let report = match &self.what {
            Some(What::Collectives(args)) => args.report(),
            Some(What::Sc20(args)) => args.report(),
            None => self.step.report(),
        };
        console::result(format_args!("{}", report?))
    }
}
