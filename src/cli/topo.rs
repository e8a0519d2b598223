//! `octorec topo`: what octorec thinks of a machine, where it would place ranks, and why; what it measures of it; and
//! what schedules put on its links.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use serde::Serialize;

use super::figures;
use super::output::{refuse_overwriting, write_editable};
use super::place::{PlaceArgs, RankCount, machine_file};
use super::schedule::{self, ScheduleArgs};
use crate::base::console::note;
use crate::base::{Error, Result, console};
use crate::collective::World;
use crate::machine::placement::{CommCores, Placement, RankPer, Wishes};
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
    /// Draw machine and ranks, or the schedule, as a picture
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print everything as JSON, for scripts
    #[arg(long)]
    pub json: bool,
    /// Write the machine as a description that can be corrected and loaded again (--topology FILE), with the figures
    /// that were measured; `toml` prints it
    #[arg(long, value_name = "FILE|toml")]
    pub export: Option<Export>,
    /// Measure this machine (seconds a node) and keep the figures in the user's cache, from where `train`, `plan` and
    /// `bench` take them: memory bandwidth and peak of each node, bandwidth from each to each, alone and while all
    /// write to all, latency, and the links that follow from these. The cache is $OCTOREC_CACHE, else
    /// $XDG_CACHE_HOME/octorec, else ~/.cache/octorec. Under mpirun every machine measures itself, and then all measure
    /// the network between them
    #[arg(long, conflicts_with_all = ["svg", "ranks", "threads", "rank_per", "smt", "comm_cores"])]
    pub measure: bool,
    /// About how long measuring may take: less memory is measured on where it would take longer
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, requires = "measure", value_parser = seconds)]
    pub seconds: f64,
    /// Which schedule is shown instead
    #[command(flatten)]
    pub shown: ScheduleArgs,
}

/// A number of seconds.
fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=1e6).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 0.1 on is expected".to_owned())
}

/// Where a machine's description goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Export {
    /// To standard output.
    Print,
    /// Into a file, as those in `topology/*.toml`.
    File(PathBuf),
}

impl FromStr for Export {
    type Err = Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Infallible> {
        Ok(if text == "toml" { Self::Print } else { Self::File(PathBuf::from(text)) })
    }
}

#[derive(Serialize)]
struct TopoReport<'a> {
    machine: &'a Machine,
    wishes: &'a Wishes,
    placement: &'a Placement,
}

/// Prints the machine and the placement, or one of the other forms that were asked for.
///
/// # Errors
/// As [`Machine::load`] and [`place`], and when the picture or the output cannot be written.
pub fn run(args: &TopoArgs, world: &World) -> Result<()> {
    let report = report(args, world)?;
    if !world.is_first() {
        return Ok(());
    }
    console::result(format_args!("{report}"))
}

/// What [`run`] prints; writes the picture or the description if one was asked for.
///
/// # Errors
/// As [`run`].
pub fn report(args: &TopoArgs, world: &World) -> Result<String> {
    args.check()?;
    let export = match &args.export {
        Some(Export::File(path)) => Some(path.as_path()),
        Some(Export::Print) | None => None,
    };
    let svg = ("--svg", args.svg.as_deref());
    refuse_overwriting(&[svg], machine_file(&args.place.topology).as_slice())?;
    // The description itself may be written again: it is the same, or else refused.
    refuse_overwriting(&[svg, ("--export", export)], &[])?;
    if args.measure {
        return figures::measure(args, world);
    }
    if let Some(name) = &args.shown.schedule {
        return schedule::report(name, &args.shown, &args.place, args.svg.as_deref(), args.json);
    }
    let machine = figures::load(&args.place.topology)?;
    figures::remark(&machine).iter().for_each(|told| note!("{told}"));
    let exported = match &args.export {
        Some(Export::Print) => return described(&machine),
        export => args.write(export.as_ref(), &machine)?,
    };
    let wishes = args.place.wishes(args.threads);
    let placement = place(&machine, &wishes)?;
    args.place.advise(&machine, &wishes, &placement);
    let mut text = if args.json {
        console::pretty(&TopoReport { machine: &machine, wishes: &wishes, placement: &placement })
    } else {
        let measured = machine.measured.as_ref();
        let figures = measured.map_or_else(String::new, |when| format!("\nfigures    measured {when}\n"));
        draw::text(&machine, &placement) + &figures + &exported
    };
    if let Some(path) = &args.svg {
        write_file(path, draw::svg(&machine, &placement).as_bytes())?;
        if !args.json {
            text.push_str(&format!("\npicture    {}\n", path.display()));
        }
    }
    Ok(text)
}

impl TopoArgs {
    /// What clap cannot check.
    fn check(&self) -> Result<()> {
        let refuse = |origin: &str, reason: &str| Err(Error::config(origin, reason));
        if self.measure && self.place.topology != "host" {
            return refuse("--measure", "measures this machine: leave --topology away");
        }
        let PlaceArgs { ranks, rank_per, smt, comm_cores, .. } = &self.place;
        let places = *ranks != RankCount::Auto || *rank_per != RankPer::default() || *smt;
        let places = places || *comm_cores != CommCores::Auto || self.threads > 0;
        if self.export == Some(Export::Print) && (self.json || self.svg.is_some() || self.measure || places) {
            return refuse(
                "--export toml",
                "is all that is printed: name a file (--export FILE), or leave the other flags away",
            );
        }
        if let Some(Export::File(path)) = &self.export
            && path.extension().is_none_or(|extension| extension != "toml")
        {
            let path = path.display();
            return refuse(
                "--export",
                &format!("{path}: a description's name ends in .toml, by which --topology knows it"),
            );
        }
        Ok(())
    }

    /// Writes the description into the file that was named; the line that says so.
    pub(super) fn write(&self, export: Option<&Export>, machine: &Machine) -> Result<String> {
        let Some(Export::File(path)) = export else { return Ok(String::new()) };
        write_editable("--export", path, &described(machine)?)?;
        machine.forbidden().iter().for_each(|some| note!("note: --export: {some}"));
        Ok(format!("\nwritten    {}: --topology {} takes it\n", path.display(), path.display()))
    }
}

/// The machine's description, which `--topology` takes: what it would refuse is no description.
pub(super) fn described(machine: &Machine) -> Result<String> {
    let text = machine.to_toml();
    let refused = match Machine::parse(&text, "description") {
        Ok(_) => return Ok(text),
        // Of a text that is written nowhere, a line says more than its number.
        Err(Error::Topology { line, reason, .. }) => {
            format!("`{}`: {reason}", text.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim())
        }
        Err(error) => error.to_string(),
    };
    let reason = format!("{} has what --topology would refuse, so that nothing is written: {refused}", machine.name);
    Err(Error::config("--export", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_that_would_be_refused_is_refused_with_its_own_words() {
        let mut machine = Machine::load("two-socket").unwrap();
        assert!(described(&machine).is_ok());
        machine.links.iter_mut().for_each(|link| link.gb_s = Some(-1.0));
        let message = described(&machine).unwrap_err().to_string();
        assert!(message.contains("would refuse, so that nothing is written: `gb_s = -1"), "{message}");
        assert!(message.contains("must lie in") && !message.contains("description:"), "{message}");
    }
}
