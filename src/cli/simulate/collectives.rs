//! `octorec simulate collectives`: all schedules of all collectives on a described machine, priced, beside its bounds.

use std::fmt;

use clap::Args;
use serde::Serialize;

use crate::base::console::shown;
use crate::base::units::{Bytes, parse_bytes};
use crate::base::{Error, Result};
use crate::cli::figures;
use crate::cli::place::{PlaceArgs, RankCount};
use crate::cli::table::Table;
use crate::collective::plan::{Topology, exchanges, reductions};
use crate::collective::{Bound, Parcels, Payload, Schedule, Slices, Timing, Works};
use crate::machine::site::Known;
use crate::machine::{Site, place};

/// A tensor with more bytes is no message.
const MOST_BYTES: u64 = 1 << 40;

/// Every pair of ranks is looked at several times: beyond this it takes minutes.
const MOST_RANKS: usize = 256;

/// Flags of `octorec simulate collectives`.
#[derive(Debug, Clone, Args)]
pub struct CollectivesArgs {
    /// The machine: `host`, a shipped name, FILE.toml, an hwloc FILE.xml or synthetic:DESCRIPTION
    #[arg(long, value_name = "MACHINE", default_value = "host")]
    topology: String,
    /// How many ranks; `auto`: one for each NUMA node with cores
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = crate::cli::place::rank_count)]
    ranks: RankCount,
    /// Bytes of each rank's tensor (reductions, and the result of gathers) or send buffer (all-to-all)
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', default_value = "1MiB,64MiB", value_parser = tensor_bytes)]
    bytes: Vec<u64>,
    /// Send bfloat16 instead of f32 in gathers and reductions; sums stay in f32
    #[arg(long)]
    bf16: bool,
    /// Price links alone, as if memories were endlessly fast
    #[arg(long)]
    links_only: bool,
    /// Print one JSON object, for scripts
    #[arg(long)]
    json: bool,
}

/// A `--bytes` value.
pub(crate) fn tensor_bytes(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_bytes(text)?;
    match (64..=MOST_BYTES).contains(&bytes) && bytes % 4 == 0 {
        true => Ok(bytes),
        false => Err(format!("a multiple of 4 from 64 to {} is expected", Bytes(MOST_BYTES))),
    }
}

/// What is predicted.
#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    figures: String,
    ranks: usize,
    links_only: bool,
    rows: Vec<Row>,
}

/// A schedule of a collective.
#[derive(Debug, Serialize)]
struct Row {
    collective: &'static str,
    bytes: u64,
    planner: &'static str,
    rounds: usize,
    time_us: f64,
    bound_us: f64,
    /// Time over bound; 1 where nothing has to move.
    ratio: f64,
    /// Whether no other schedule is faster.
    chosen: bool,
    /// What is busy for the largest share of the time.
    busiest: Option<String>,
    busiest_share: f64,
}

impl CollectivesArgs {
    /// All of it as text or JSON.
    pub(super) fn report(&self) -> Result<String> {
        let machine = figures::load(&self.topology)?;
        let wishes = PlaceArgs { ranks: self.ranks, topology: self.topology.clone(), ..PlaceArgs::count(1) }.wishes(1);
        let placement = place(&machine, &wishes)?;
        let site = Site::new(&machine, &placement, Known::default());
        if site.ranks.len() < 2 {
            let reason =
                format!("{} has one rank, which sends nothing: set --ranks, or name a larger machine", machine.name);
            return Err(Error::config(format!("--topology {}", self.topology), reason));
        }
        if site.ranks.len() > MOST_RANKS {
            let reason = format!("{} ranks are too many to simulate: at most {MOST_RANKS}", site.ranks.len());
            return Err(Error::config("--ranks", reason));
        }
        let figures = figures::tell(&machine, &site.assumptions);
        let rows = self.bytes.iter().flat_map(|bytes| self.rows(&site, *bytes)).collect();
        let ranks = site.ranks.len();
        let report = Report { machine: machine.name, figures, ranks, links_only: self.links_only, rows };
        Ok(shown(&report, self.json))
    }

    /// All collectives with tensors of so many bytes.
    fn rows(&self, site: &Site, bytes: u64) -> Vec<Row> {
        let ranks = site.ranks.len();
        let elements = bytes as usize / size_of::<f32>();
        let payload = if self.bf16 { Payload::Bf16 } else { Payload::F32 };
        let slices = Slices::even(elements, ranks);
        let reductions = reductions(&Topology::along(site));
        let reduce_scatters: Vec<Schedule> = reductions.iter().map(|kind| kind.plan(&slices, payload)).collect();
        let of_all = |change: fn(&Schedule) -> Schedule| reduce_scatters.iter().map(change).collect::<Vec<_>>();
        let all = [
            of_all(Schedule::all_gather),
            reduce_scatters.clone(),
            of_all(Schedule::all_reduce),
            exchanges(&Parcels::uniform(ranks, elements / ranks), Payload::Raw(4), site, self.works()),
        ];
        all.into_iter().flat_map(|schedules| self.priced(&schedules, site, bytes)).collect()
    }

    /// What is priced.
    const fn works(&self) -> Works {
        if self.links_only { Works::Links } else { Works::LinksAndMemories }
    }

    /// One collective by all of its schedules.
    fn priced(&self, schedules: &[Schedule], site: &Site, bytes: u64) -> Vec<Row> {
        let works = self.works();
        let bound = Bound::of(&schedules[0].goal, schedules[0].payload, site);
        let bound_s = if self.links_only { bound.links_s } else { bound.seconds() };
        let timings: Vec<Timing> = schedules.iter().map(|schedule| Timing::of(schedule, site, works)).collect();
        let least = timings.iter().map(|timing| timing.seconds).fold(f64::INFINITY, f64::min);
        let first = timings.iter().position(|timing| timing.seconds <= least);
        let row = |(at, (schedule, timing)): (usize, (&Schedule, &Timing))| {
            let busiest = timing.busiest(site);
            Row {
                collective: schedule.goal.name(),
                bytes,
                planner: schedule.algorithm,
                rounds: schedule.rounds.len(),
                time_us: timing.seconds * 1e6,
                bound_us: bound_s * 1e6,
                ratio: if bound_s > 0.0 { timing.seconds / bound_s } else { 1.0 },
                chosen: Some(at) == first,
                busiest_share: busiest.as_ref().map_or(0.0, |busiest| busiest.share),
                busiest: busiest.map(|busiest| busiest.name),
            }
        };
        schedules.iter().zip(&timings).enumerate().map(row).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.links_only { "links alone" } else { "links and memories" };
        writeln!(f, "{} ranks on {}, {what}; *: the fastest\n", self.ranks, self.machine)?;
        let mut table =
            Table::new(["collective", "a rank", "schedule", "rounds", "time us", "bound us", "ratio", "busiest"]);
        let mut before = None;
        for row in &self.rows {
            let first = before.replace((row.collective, row.bytes)) != Some((row.collective, row.bytes));
            let once = |text: String| if first { text } else { String::new() };
            let busiest = row
                .busiest
                .as_ref()
                .map_or_else(String::new, |name| format!("{name} {:.0} %", row.busiest_share * 1e2));
            table.row([
                once(row.collective.to_owned()),
                once(Bytes(row.bytes).to_string()),
                format!("{}{}", row.planner, if row.chosen { " *" } else { "  " }),
                row.rounds.to_string(),
                format!("{:.1}", row.time_us),
                format!("{:.1}", row.bound_us),
                format!("{:.2}", row.ratio),
                busiest,
            ]);
        }
        write!(f, "{table}")
    }
}
