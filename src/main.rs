//! The `octorec` command: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use octorec::base::{Error, console, interrupt};
use octorec::cli::Cli;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Interrupted) => ExitCode::from(interrupt::EXIT_CODE),
        Err(error) => {
            console::write_note(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}
