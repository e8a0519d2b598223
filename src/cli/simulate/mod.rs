//! `octorec simulate`: what machines would do, also such as one does not have.

mod collectives;

use clap::{Args, Subcommand};

use crate::base::{Result, console};

/// Arguments of `octorec simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What each schedule of each collective would take, against the least that links and memories allow.
    Collectives(collectives::CollectivesArgs),
}

impl SimulateArgs {
    /// Prints what is predicted.
    ///
    /// # Errors
    /// When the machine cannot be read, or has no room for the ranks.
    pub fn run(&self) -> Result<()> {
        let What::Collectives(args) = &self.what;
        console::result(format_args!("{}", args.report()?)).map(|_| ())
    }
}
