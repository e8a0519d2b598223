//! `octorec topo`: what octorec thinks of a machine, where it would place ranks, and why.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::base::{Error, Result};
use crate::machine::placement::{CommCores, Placement, RankPer, Wishes};
use crate::machine::{Machine, draw, place};

/// Flags of `octorec topo`.
#[derive(Debug, Clone, Args)]
pub struct TopoArgs {
    /// The machine: `host`, a shipped name, FILE.toml, an hwloc FILE.xml, or synthetic:DESCRIPTION
    #[arg(long, value_name = "MACHINE", default_value = "host")]
    pub topology: String,
    /// What a rank is given
    #[arg(long, value_enum, default_value_t)]
    pub rank_per: RankPer,
    /// How many ranks; default: one for each node, socket or cache
    #[arg(long, value_name = "N")]
    pub ranks: Option<usize>,
    /// Compute threads of each rank; default: one on each core that does not communicate
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Communication cores of each rank: a number or `auto`
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = comm_cores)]
    pub comm_cores: CommCores,
    /// Compute on all hardware threads of a core
    #[arg(long)]
    pub smt: bool,
    /// Draw machine and ranks as a picture
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print everything as JSON, for scripts
    #[arg(long, conflicts_with = "export")]
    pub json: bool,
    /// Print the machine as a description that can be corrected and loaded again
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub export: Option<Export>,
}

/// Formats of a machine's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Export {
    /// As in `topology/*.toml`.
    Toml,
}

#[derive(Serialize)]
struct Everything<'a> {
    machine: &'a Machine,
    wishes: &'a Wishes,
    placement: &'a Placement,
}

/// A `--comm-cores` value.
pub(super) fn comm_cores(text: &str) -> std::result::Result<CommCores, String> {
    match text {
        "auto" => Ok(CommCores::Auto),
        number => number.parse().map(CommCores::Count).map_err(|_| "a number or `auto` is expected".to_owned()),
    }
}

/// Prints the machine and the placement, or one of the other forms that were asked for.
///
/// # Errors
/// As [`Machine::load`] and [`place`], and when the picture or the output cannot be written.
pub fn run(args: &TopoArgs) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(report(args)?.as_bytes()).and_then(|()| stdout.flush());
    match written {
        // Whoever reads has seen enough (`octorec topo | head`).
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|source| Error::Io { path: "standard output".into(), action: "write", source }),
    }
}

/// What [`run`] prints; writes the picture if one was asked for.
///
/// # Errors
/// As [`run`].
pub fn report(args: &TopoArgs) -> Result<String> {
    let machine = Machine::load(&args.topology)?;
    if args.export == Some(Export::Toml) {
        return Ok(machine.to_toml());
    }
    let wishes = Wishes {
        rank_per: args.rank_per,
        ranks: args.ranks,
        threads: args.threads,
        comm_cores: args.comm_cores,
        smt: args.smt,
    };
    let placement = place(&machine, &wishes)?;
    let mut text = if args.json {
        let everything = Everything { machine: &machine, wishes: &wishes, placement: &placement };
        let json = serde_json::to_string_pretty(&everything).expect("plain data with string keys is JSON");
        json + "\n"
    } else {
        draw::text(&machine, &placement)
    };
    if let Some(path) = &args.svg {
        fs::write(path, draw::svg(&machine, &placement)).map_err(Error::io(path, "write"))?;
        if !args.json {
            text.push_str(&format!("\npicture    {}\n", path.display()));
        }
    }
    Ok(text)
}
