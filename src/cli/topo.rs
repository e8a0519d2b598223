//! `octorec topo`: what octorec thinks of a machine, where it would place ranks, and why.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::place::PlaceArgs;
use crate::base::{Result, console};
use crate::machine::placement::{Placement, Wishes};
use crate::machine::{Machine, draw, place};
use crate::memory::write_file;

/// Flags of `octorec topo`.
#[derive(Debug, Clone, Args)]
pub struct TopoArgs {
    /// Which machine, and what of it a rank is given
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Compute threads of each rank; 0: one on each core that does not communicate
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,
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

/// Prints the machine and the placement, or one of the other forms that were asked for.
///
/// # Errors
/// As [`Machine::load`] and [`place`], and when the picture or the output cannot be written.
pub fn run(args: &TopoArgs) -> Result<()> {
    console::result(format_args!("{}", report(args)?)).map(|_| ())
}

/// What [`run`] prints; writes the picture if one was asked for.
///
/// # Errors
/// As [`run`].
pub fn report(args: &TopoArgs) -> Result<String> {
    let machine = Machine::load(&args.place.topology)?;
    if args.export == Some(Export::Toml) {
        return Ok(machine.to_toml());
    }
    let wishes = args.place.wishes(args.threads);
    let placement = place(&machine, &wishes)?;
    let mut text = if args.json {
        let everything = Everything { machine: &machine, wishes: &wishes, placement: &placement };
        let json = serde_json::to_string_pretty(&everything).expect("plain data with string keys is JSON");
        json + "\n"
    } else {
        draw::text(&machine, &placement)
    };
    if let Some(path) = &args.svg {
        write_file(path, draw::svg(&machine, &placement).as_bytes())?;
        if !args.json {
            text.push_str(&format!("\npicture    {}\n", path.display()));
        }
    }
    Ok(text)
}
