//! `octorec topo --schedule`: what a collective's schedule puts on each link of a machine, round by round, as a
//! picture, as text or as JSON.

mod shown;

use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

use self::shown::Shown;
use super::figures;
use super::place::PlaceArgs;
use super::simulate::collectives::tensor_bytes;
use crate::base::units::Bytes;
use crate::base::{Error, Result};
use crate::collective::plan::{ALL_TO_ALLS, Reduction, Topology, exchange, exchanges, reductions};
use crate::collective::{Parcels, Payload, Reduced, Schedule, Slices, Timing, Works, priced};
use crate::machine::draw::rounds;
use crate::machine::site::Known;
use crate::machine::{Site, place};
use crate::memory::write_file;

/// What stands for the cheapest schedule.
const AUTO: &str = "auto";
/// Of more ranks nobody can see what goes where.
const MOST_RANKS: usize = 64;

/// Which schedule is shown.
#[derive(Debug, Clone, Args)]
pub struct ScheduleArgs {
    /// Show a collective's schedule instead of machine and ranks: the bytes that its rounds put on each link, as text,
    /// as JSON or drawn (--svg); `auto`: the cheapest one there
    #[arg(long, value_name = "NAME|auto", value_parser = names())]
    #[arg(conflicts_with_all = ["export", "measure", "threads", "smt", "comm_cores"])]
    pub schedule: Option<String>,
    /// Which collective the schedule is of: by default `all-to-all` where its name is one of `scatter-list`,
    /// `fused-scatter`, `alltoall`, `pairwise` and `relayed`, else `all-reduce`
    #[arg(long, value_name = "COLLECTIVE", value_enum, requires = "schedule")]
    pub of: Option<Operation>,
    /// Bytes of each rank's tensor (reductions, and the result of gathers) or send buffer (all-to-all)
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = tensor_bytes, requires = "schedule")]
    pub bytes: u64,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new([AUTO].into_iter().chain(Reduction::NAMES).chain(ALL_TO_ALLS))
}

/// A collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// Every rank gets all ranks' slices.
    AllGather,
    /// Every rank gets the sum of its slice.
    ReduceScatter,
    /// Every rank gets the sum of everything.
    AllReduce,
    /// Every rank gets its part of what each has.
    AllToAll,
}

impl Operation {
    /// The schedule of it that belongs to a reduce-scatter.
    fn of(self, scatter: &Schedule) -> Schedule {
        match self {
            Self::AllGather => scatter.all_gather(),
            Self::ReduceScatter => scatter.clone(),
            Self::AllReduce => scatter.all_reduce(),
            Self::AllToAll => unreachable!("an all-to-all reduces nothing"),
        }
    }
}

fn refuse<T>(origin: &str, reason: String) -> Result<T> {
    Err(Error::config(origin, reason))
}

/// What `topo --schedule NAME` prints; writes the picture if one was asked for.
///
/// # Errors
/// When the machine cannot be read or has no room for the ranks, when it has no such schedule, and when the picture
/// cannot be written.
pub fn report(name: &str, args: &ScheduleArgs, places: &PlaceArgs, svg: Option<&Path>, json: bool) -> Result<String> {
    let machine = figures::load(&places.topology)?;
    let placement = place(&machine, &places.wishes(1))?;
    let site = Site::new(&machine, &placement, Known::default());
    match site.ranks.len() {
        1 => {
            let reason =
                format!("{} has one rank, which sends nothing: set --ranks, or name a larger machine", machine.name);
            return refuse(&format!("--topology {}", places.topology), reason);
        }
        many if many > MOST_RANKS => {
            return refuse("--ranks", format!("{many} are too many to see what goes where: at most {MOST_RANKS}"));
        }
        _ => {}
    }
    let _ = figures::tell(&machine, &site.assumptions);
    let schedule = args.plan(name, &site)?;
    let shown = Shown::new(&schedule, &machine, &placement, &site, args.bytes);
    if let Some(path) = svg {
        write_file(path, rounds(&machine, &shown.picture()).as_bytes())?;
    }
    Ok(match (json, svg) {
        (true, _) => shown.json(),
        (false, None) => shown.head() + &shown.text(),
        (false, Some(path)) => {
            let rest = shown.rest().map_or_else(String::new, |rest| format!("           {rest}\n"));
            format!("{}picture    {}\n{rest}", shown.head(), path.display())
        }
    })
}

impl ScheduleArgs {
    /// The schedule that is shown.
    fn plan(&self, name: &str, site: &Site) -> Result<Schedule> {
        let exchanges_all = ALL_TO_ALLS.contains(&name);
        let usual = if exchanges_all { Operation::AllToAll } else { Operation::AllReduce };
        let of = self.of.unwrap_or(usual);
        let (ranks, elements) = (site.ranks.len(), self.bytes as usize / size_of::<f32>());
        let works = Works::LinksAndMemories;
        if of == Operation::AllToAll {
            if name != AUTO && !exchanges_all {
                let reason =
                    format!("{name} is of gathers and reductions: leave --of away, or name {}", one_of(&ALL_TO_ALLS));
                return refuse("--schedule", reason);
            }
            if elements < ranks {
                let reason =
                    format!("{} are nothing for each of {ranks} ranks: at least {}", Bytes(self.bytes), 4 * ranks);
                return refuse("--bytes", reason);
            }
            let (parcels, payload) = (Parcels::uniform(ranks, elements / ranks), Payload::Raw(size_of::<f32>()));
            if let Some(named) = exchange(name, &parcels, payload, site, works) {
                return Ok(named);
            }
            let all = exchanges(&parcels, payload, site, works).into_iter();
            let timed = all.map(|schedule| (Timing::of(&schedule, site, works).seconds, schedule));
            let best = timed.min_by(|a, b| a.0.total_cmp(&b.0));
            return Ok(best.expect("there are planners").1);
        }
        if exchanges_all {
            let reason = format!("{name} is of all-to-alls: leave --of away, or name {}", one_of(&Reduction::NAMES));
            return refuse("--schedule", reason);
        }
        let topology = Topology::along(site);
        let reduction = if name == AUTO {
            // As training chooses: for the reduce-scatter and the all-gather together.
            let tensor = Reduced { gradients: elements, words: elements };
            let best = priced(reductions(&topology), &[tensor], Payload::F32, site).into_iter().next();
            best.expect("there are planners").reduction
        } else {
            match Reduction::named(name, &topology) {
                Some(reduction) => reduction,
                None => {
                    let there: Vec<&str> = reductions(&topology).iter().map(|reduction| reduction.name).collect();
                    let why = match name {
                        "hierarchical" => "is for several machines with equally many ranks",
                        _ => "finds no way along these links, or nothing to gain there",
                    };
                    return refuse("--schedule", format!("{name} {why}: name {}", one_of(&there)));
                }
            }
        };
        Ok(of.of(&reduction.plan(&Slices::even(elements, ranks), Payload::F32)))
    }
}

/// "a, b or c".
fn one_of(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}
