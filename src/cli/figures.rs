//! The figures of a machine: measured for `octorec topo --measure`, taken from the user's cache by whoever prices
//! plans.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::output::{refuse_edited, refuse_unwritable};
use super::table::Table;
use super::topo::{Export, TopoArgs, described};
use crate::base::config::cache_dir;
use crate::base::console::{self, note, pretty};
use crate::base::units::Bytes;
use crate::base::{Error, NodeId, PuId, Result};
use crate::collective::World;
use crate::machine::cluster::{UNMEASURED, cluster};
use crate::machine::figures::{self, Figures, Network, Store, Together};
use crate::machine::limits::{Processor, core_seconds_taken};
use crate::machine::placement::{CommCores, Wishes};
use crate::machine::team::Team;
use crate::machine::{Machine, place};
use crate::simd::Isa;
use crate::train::DEADLINE;

/// The user's cache, where there is one.
fn store() -> Option<Store> {
    cache_dir().map(Store::new)
}

/// As [`Machine::load`]; this host with its measured figures, if they are kept.
///
/// # Errors
/// As [`Machine::load`].
pub fn load(wanted: &str) -> Result<Machine> {
    let (machine, notes) = figures::load(wanted, store().as_ref())?;
    notes.iter().for_each(|reason| note!("warning: {reason}"));
    Ok(machine)
}

/// Whose figures plans are priced with, in one line; `assumed` is what stands for unknown ones.
#[must_use]
pub fn line(machine: &Machine, assumed: &[String]) -> String {
    let network = machine.assumptions.iter().filter(|line| *line == UNMEASURED);
    let (given, assumed): (Vec<&str>, Vec<&str>) =
        assumed.iter().chain(network).map(String::as_str).partition(|reason| reason.contains("as given with"));
    let told = |name: &str, list: &[&str]| {
        if list.is_empty() { String::new() } else { format!("; {name}: {}", list.join("; ")) }
    };
    let (except, guessed) = (told("except", &given), told("assumed", &assumed));
    match &machine.measured {
        Some(measured) => format!("figures: measured on this machine {measured}{except}{guessed}"),
        None if machine.is_this_system && !assumed.is_empty() => {
            let assumed = assumed.join("; ");
            format!("figures: assumed, not measured: {assumed}; `octorec topo --measure` measures them once{except}")
        }
        None => format!("figures: as described for {}{except}{guessed}", machine.name),
    }
}

/// What is to be said beside [`line()`] of measured figures that may be of another state of this machine, or are.
#[must_use]
pub fn remark(machine: &Machine) -> Option<String> {
    machine.figures_note.as_ref().map(|reason| format!("note: {reason}"))
}

/// Tells both, and returns the line.
#[must_use]
pub fn tell(machine: &Machine, assumed: &[String]) -> String {
    let line = line(machine, assumed);
    note!("{line}");
    remark(machine).iter().for_each(|told| note!("{told}"));
    line
}

/// What `--json` prints.
#[derive(Serialize)]
struct FiguresReport<'a> {
    #[serde(flatten)]
    figures: &'a Figures,
    /// Of several machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Network>,
    /// The file that keeps the machine's figures; none without a cache.
    kept: Option<String>,
}

/// Measures this machine, keeps what was found, and returns it as text or JSON.
///
/// # Errors
/// When threads or memory are refused, and when the figures can neither be kept nor exported.
pub fn measure(args: &TopoArgs, world: &World) -> Result<String> {
    let mut machine = Machine::load("host")?;
    let store = store();
    if store.is_none() && args.export.is_none() && !args.json {
        let reason =
            "there is no folder for a cache: set OCTOREC_CACHE or HOME, or write the figures with --export FILE";
        return Err(Error::config("--measure", reason));
    }
    // What was found is written, if it is to be, whether or not it can be kept.
    let written = args.export.is_some() || args.json;
    if let Some(store) = store.as_ref().filter(|_| !written) {
        store.try_out().map_err(|error| {
            let remedy =
                "have OCTOREC_CACHE name a folder that can be written, or write the figures with --export FILE";
            Error::config("--measure", format!("the figures cannot be kept: {error}: {remedy}"))
        })?;
    }
    if let (Some(Export::File(path)), true) = (&args.export, world.is_first()) {
        refuse_edited("--export", path, None)?;
        // Of several machines as one that is known when all are measured.
        described(&machine)?;
        refuse_unwritable(&[Some(path)])?;
    }
    let least = figures::LEAST_SECONDS * machine.nodes.len() as f64;
    if args.seconds < least {
        note!("note: {least} s are the least for this machine's nodes: it may take longer than {} s", args.seconds);
    }
    let told = &mut |what: &str| note!("measuring {what}");
    let figures = figures::measure(&machine, Duration::from_secs_f64(args.seconds), told)?;
    let or_warned = |kept: Result<PathBuf>| match kept {
        Err(error) if written => {
            note!("warning: the figures are not kept: {error}");
            Ok(None)
        }
        kept => kept.map(Some),
    };
    let keep = || store.as_ref().map_or(Ok(None), |store| or_warned(store.keep(&figures)));
    let kept = in_turn(world, keep)?.map(|path| path.display().to_string());
    figures.complete(&mut machine, kept.as_deref().unwrap_or("not kept"));
    let network = measure_network(world, &machine)?;
    let network_kept = match (&network, store) {
        (Some(network), Some(store)) if world.is_first() => {
            or_warned(store.keep_network(network))?.map(|path| path.display().to_string())
        }
        _ => None,
    };
    if world.machines() > 1 {
        machine = whole(world, &machine, network.as_ref())?;
    }
    if !world.is_first() {
        return Ok(String::new());
    }
    let mut text = String::new();
    if args.json {
        text = pretty(&FiguresReport { figures: &figures, network, kept });
    } else {
        // Writing to a String cannot fail.
        let _ = write(&figures, &mut text);
        if let Some(network) = &network {
            let _ = write_network(network, &mut text);
        }
        for kept in kept.into_iter().chain(network_kept) {
            let _ = writeln!(text, "\nkept       {kept}");
        }
    }
    match args.write(args.export.as_ref(), &machine) {
        Ok(_) if args.json => Ok(text),
        Ok(written) => Ok(text + &written),
        // What took minutes is not lost with a file.
        Err(error) => {
            console::result(format_args!("{text}"))?;
            Err(error)
        }
    }
}

/// Does something on one machine after another: machines that are alike may share a folder, and write the same file
/// there.
fn in_turn<T>(world: &World, act: impl FnOnce() -> Result<T>) -> Result<T> {
    for _ in 0..world.machine() {
        world.all_gather("keep figures", Vec::new(), DEADLINE)?;
    }
    let done = act()?;
    for _ in world.machine()..world.machines() {
        world.all_gather("keep figures", Vec::new(), DEADLINE)?;
    }
    Ok(done)
}

/// Times the network between all machines; nothing for one.
fn measure_network(world: &World, machine: &Machine) -> Result<Option<Network>> {
    /// Long enough for the bandwidth, short enough for seconds on a slow network.
    const BYTES: usize = 4 << 20;
    const RUNS: usize = 9;
    /// Messages of a machine that are under way at once, as in a step of training, and their size.
    const AT_ONCE: usize = 8;
    const PART_BYTES: usize = 1 << 20;
    /// Of the shortest messages, since one is quickly done.
    const SHORT_RUNS: usize = 200;
    /// At least so many seconds while cores compute, since they are disturbed for milliseconds at a time.
    const BUSY_S: f64 = 0.5;
    if world.machines() == 1 {
        return Ok(None);
    }
    note!("measuring the network");
    let (whole, short) = (world.time_pairs(BYTES, RUNS)?, world.time_pairs(1, SHORT_RUNS)?);
    let pairs: Vec<[f64; 2]> = whole.into_iter().zip(short).map(|(whole, short)| [whole, short]).collect();
    let others = world.machines() - 1;
    let at_once = AT_ONCE.div_ceil(others);
    let together = |runs: usize| Ok(world.time_together(PART_BYTES, at_once, runs)?.unwrap_or_default());
    let idle_s = together(RUNS)?;
    // All cores compute, since MPI's thread would run on one that does not.
    let wishes = Wishes { comm_cores: CommCores::Count(0), ..Wishes::default() };
    let placement = place(machine, &wishes)?;
    let pus: Vec<PuId> = placement.ranks.iter().flat_map(|place| place.compute.iter().copied()).collect();
    let team = Team::pinned(&pus, placement.spin, Isa::best())?;
    // All machines begin now, and send as often.
    let all_s = world.all_gather("time all machines at once", idle_s.to_ne_bytes().to_vec(), DEADLINE)?;
    let slowest_s = all_s.into_iter().filter_map(|bytes| Some(f64::from_ne_bytes(bytes.try_into().ok()?)));
    let runs = RUNS.max((BUSY_S / slowest_s.fold(idle_s, f64::max)).ceil() as usize);
    let (sent, core_s) = core_seconds_taken(&team, || together(runs));
    sent?;
    // The first run warms up.
    let (bytes, travelled) = (PART_BYTES * at_once * others, 2 * PART_BYTES * at_once * others * (runs + 1));
    let together = Together { gb_s: bytes as f64 / idle_s / 1e9, core_s_per_gb: core_s / travelled as f64 * 1e9 };
    Ok(Some(Network::of(world.hosts().to_vec(), BYTES, &pairs, together)))
}

/// All machines as one, which a description may keep.
fn whole(world: &World, own: &Machine, network: Option<&Network>) -> Result<Machine> {
    let own = serde_json::to_vec(own).expect("names, numbers and lists are representable in JSON");
    let all = world.all_gather("describe machines", own, DEADLINE)?;
    let parts = all.iter().map(|bytes| {
        let machine: Machine = serde_json::from_slice(bytes).map_err(|error| Error::Mpi {
            action: "describe machines".to_owned(),
            reason: format!("a machine speaks otherwise: {error}; start the same octorec on all"),
        })?;
        let placement = place(&machine, &Wishes::default())?;
        Ok((machine, placement))
    });
    Ok(cluster(&parts.collect::<Result<Vec<_>>>()?, network).0)
}

/// The network that connects these machines, if it was measured and kept.
#[must_use]
pub fn network(hosts: &[String]) -> Option<Network> {
    let kept = store()?.find_network(hosts);
    kept.notes.iter().for_each(|reason| note!("warning: {reason}"));
    kept.figures.map(|(network, _)| network)
}

fn write_network(network: &Network, out: &mut String) -> std::fmt::Result {
    let all = network.hosts.len();
    let bytes = Bytes(network.message_bytes as u64);
    writeln!(
        out,
        "network of {all} machines: {:.2} GB/s leave each when all send to all; 1 GB that leaves or comes takes {:.2} core \
         seconds\n",
        network.together_gb_s, network.core_s_per_gb
    )?;
    let mut table = Table::new([&format!("machine 0 and, {bytes}"), "GB/s each way", "us of the shortest"]);
    let figures = network.pairs_gb_s.iter().zip(&network.pairs_ns);
    for ((host, machine), (gb_s, ns)) in network.hosts.iter().zip(0..).skip(1).zip(figures) {
        table.row([format!("{machine} ({host})"), format!("{gb_s:.2}"), format!("{:.1}", ns / 1e3)]);
    }
    writeln!(out, "{table}")
}

fn write(figures: &Figures, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "{}",
        Processor::of_this_machine().map_or_else(|_| Processor::model_here(), |found| found.to_string())
    )?;
    writeln!(out, "measured in {:.1} s; GB/s and GFLOP/s of all cores of a node together\n", figures.took_s)?;
    let rows = format!("rows of {} B", figures.row_bytes);
    let heads = ["node", "threads", "memory", "read", "copy", "non-temporal", &rows, "changed", "f32", "bf16"];
    let mut table = Table::new(heads);
    for node in &figures.nodes {
        let peaks = [Some(node.peak_f32_gflop_s), node.peak_bf16_gflop_s];
        let peaks = peaks.map(|peak| peak.map_or_else(|| "-".to_owned(), |peak| format!("{peak:.0}")));
        let names = [node.node.to_string(), node.threads.to_string(), Bytes(node.field_bytes as u64).to_string()];
        let gb_s = [node.read_gb_s, node.copy_gb_s, node.stream_copy_gb_s, node.row_gb_s, node.row_update_gb_s];
        table.row(names.into_iter().chain(gb_s.map(|gb_s| format!("{gb_s:.1}"))).chain(peaks));
    }
    writeln!(out, "{table}")?;
    matrix(figures, "written to the memory of node, GB/s", |pair| Some(format!("{:.1}", pair.write_gb_s)), out)?;
    if figures.nodes.len() > 1 {
        let loaded = |pair: &figures::PairFigures| Some(format!("{:.1}", pair.loaded_gb_s?));
        matrix(figures, "the same while all write to all", loaded, out)?;
    }
    matrix(figures, "a cache line to a core of node, ns", |pair| Some(format!("{:.0}", pair.latency_ns?)), out)?;
    match (figures.nodes.len(), &figures.links[..]) {
        (1, _) => writeln!(out, "links      nothing to measure: only one node may be used")?,
        (_, []) => {}
        (_, links) => {
            let links = links.iter().map(|[a, b]| format!("{a}-{b}")).collect::<Vec<_>>().join(" ");
            writeln!(out, "links      {links}: inferred from distances and what pairs write")?;
        }
    }
    for route in &figures.routes {
        let way = route.iter().map(u32::to_string).collect::<Vec<_>>().join("-");
        writeln!(out, "route      {way}: inferred from what pairs write while all do")?;
    }
    figures.doubts.iter().try_for_each(|doubt| writeln!(out, "doubtful: {doubt}"))
}

/// From each node (row) to each (column).
fn matrix(
    figures: &Figures,
    title: &str,
    cell: impl Fn(&figures::PairFigures) -> Option<String>,
    out: &mut String,
) -> std::fmt::Result {
    let nodes = || figures.nodes.iter().map(|node| node.node);
    let mut table = Table::new(std::iter::once("from".to_owned()).chain(nodes().map(|node| node.to_string())));
    for from in nodes() {
        let pair = |to: u32| figures.pair(NodeId(from), NodeId(to)).and_then(&cell);
        let cells = nodes().map(|to| pair(to).unwrap_or_else(|| "-".to_owned()));
        table.row(std::iter::once(from.to_string()).chain(cells));
    }
    writeln!(out, "{title}\n{table}")
}
