//! A schedule on a machine: what each of its rounds puts on the links, told and drawn.

use std::fmt::Write as _;
use std::ops::Range;

use serde::Serialize;

use crate::base::units::{Bytes, Many};
use crate::base::{RankId, console};
use crate::collective::{Hop, Schedule, Timing, Works};
use crate::machine::describe::End;
use crate::machine::draw::{Panel, Picture, direction};
use crate::machine::placement::Placement;
use crate::machine::ranges::ranges;
use crate::machine::routes::LinkLoads;
use crate::machine::{Machine, Routes, Site};

/// The most panels of a picture.
const MOST_PANELS: usize = 24;
/// Rounds whose bytes differ by less than this share on every link share a panel.
const ALIKE: f64 = 0.01;
/// Columns of a line of text, about.
const COLUMNS: usize = 110;

/// What a round, or several, put on the machine.
#[derive(Debug, Clone)]
struct Load {
    /// Their numbers, from 0 on.
    rounds: Range<usize>,
    /// Bytes of them together, on links, and by node between ranks of one.
    links: LinkLoads,
    within: Vec<u64>,
    /// Whether this is the whole schedule as if it were one round.
    whole: bool,
}

impl Load {
    /// Whether another one is the same but for the little that division into whole lines makes.
    fn alike(&self, other: &Self) -> bool {
        let all = |load: &Self| load.links.bytes.iter().flatten().chain(&load.within).copied().collect::<Vec<u64>>();
        let near = |(a, b): (u64, u64)| (a == 0) == (b == 0) && a.abs_diff(b) as f64 <= ALIKE * a.max(b) as f64;
        all(self).into_iter().zip(all(other)).all(near)
    }

    fn add(&mut self, other: &Self) {
        let both = |(sum, more): (&mut [u64; 2], &[u64; 2])| (0..2).for_each(|way| sum[way] += more[way]);
        self.links.bytes.iter_mut().zip(&other.links.bytes).for_each(both);
        self.within.iter_mut().zip(&other.within).for_each(|(sum, more)| *sum += more);
        self.rounds.end = self.rounds.end.max(other.rounds.end);
    }

    /// Over how many rounds bytes are divided where a round's are told.
    fn count(&self) -> u64 {
        if self.whole { 1 } else { self.rounds.len() as u64 }
    }

    /// Of each round on average.
    fn each(&self) -> LinkLoads {
        LinkLoads { bytes: self.links.bytes.iter().map(|both| both.map(|bytes| bytes / self.count())).collect() }
    }

    /// "rounds 2-5".
    fn title(&self) -> String {
        let Range { start, end } = self.rounds;
        if self.whole {
            format!("all {end} rounds")
        } else if self.count() == 1 {
            format!("round {end}")
        } else {
            format!("rounds {}-{end}, each", start + 1)
        }
    }

    /// Bytes of a round on all links, and the link that is busy the longest.
    fn summary(&self, machine: &Machine) -> String {
        let loads = self.each();
        let total = Bytes(loads.bytes.iter().flatten().sum());
        let busiest = loads.bottleneck(machine).map(|busiest| {
            let ms = busiest.seconds * 1e3;
            format!("; longest on {}: {} ms", direction(machine, &busiest.hop), digits(ms))
        });
        format!("{total} on links{}", busiest.unwrap_or_default())
    }
}

/// Three digits that say something.
fn digits(number: f64) -> String {
    let places = (2.0 - number.max(1e-6).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{number:.places$}")
}

/// A schedule on a machine.
pub(super) struct Shown<'a> {
    schedule: &'a Schedule,
    machine: &'a Machine,
    site: &'a Site,
    placement: &'a Placement,
    bytes: u64,
    timing: Timing,
    rounds: Vec<Load>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    machine: &'a str,
    schedule: &'a str,
    collective: &'a str,
    ranks: usize,
    /// Of each rank's tensor or send buffer.
    bytes: u64,
    predicted_us: f64,
    rounds: Vec<Round>,
    total: Round,
}

/// Bytes in a round.
#[derive(Serialize)]
struct Round {
    links: Vec<OnLink>,
    within: Vec<Within>,
}

/// Bytes in one direction of a link.
#[derive(Serialize)]
struct OnLink {
    from: String,
    to: String,
    bytes: u64,
}

/// Bytes between ranks of one node.
#[derive(Serialize)]
struct Within {
    node: u32,
    bytes: u64,
}

impl<'a> Shown<'a> {
    pub(super) fn new(
        schedule: &'a Schedule,
        machine: &'a Machine,
        placement: &'a Placement,
        site: &'a Site,
        bytes: u64,
    ) -> Self {
        let routes = Routes::new(machine);
        let home = |rank: RankId| {
            let node = placement.ranks[rank.index()].node;
            machine.nodes.iter().position(|own| own.id == node).expect("ranks are placed on nodes of the machine")
        };
        let nodes = machine.nodes.len();
        let load = |(number, hops): (usize, &Vec<Hop>)| {
            let mut traffic = vec![vec![0; nodes]; nodes];
            for hop in hops {
                traffic[home(hop.from)][home(hop.to)] += schedule.hop_bytes(hop) as u64;
            }
            let within = (0..nodes).map(|node| traffic[node][node]).collect();
            Load { rounds: number..number + 1, links: routes.loads(machine, &traffic), within, whole: false }
        };
        let rounds = schedule.rounds.iter().enumerate().map(load).collect();
        let timing = Timing::of(schedule, site, Works::LinksAndMemories);
        Self { schedule, machine, site, placement, bytes, timing, rounds }
    }

    /// Rounds that follow each other and are alike, together.
    fn groups(&self) -> Vec<Load> {
        let groups = self.rounds.chunk_by(Load::alike);
        let sum = |rounds: &[Load]| {
            let mut sum = rounds[0].clone();
            rounds[1..].iter().for_each(|round| sum.add(round));
            sum
        };
        groups.map(sum).collect()
    }

    fn total(&self) -> Load {
        let mut total = Load { whole: true, ..self.rounds[0].clone() };
        self.rounds[1..].iter().for_each(|round| total.add(round));
        total
    }

    /// Of all groups those that are drawn, and the first round that is not.
    fn drawn(&self) -> (Vec<Load>, Option<usize>) {
        let mut groups = self.groups();
        // One panel is for the sum.
        let first = (groups.len() > MOST_PANELS - 1).then(|| groups[MOST_PANELS - 1].rounds.start);
        groups.truncate(MOST_PANELS - 1);
        (groups, first)
    }

    /// What is not drawn, in words.
    pub(super) fn rest(&self) -> Option<String> {
        let all = self.rounds.len();
        let first = self.drawn().1? + 1;
        Some(format!("rounds {first} to {all} are not drawn: without --svg all are printed"))
    }

    fn title(&self) -> String {
        let (schedule, bytes) = (self.schedule, Bytes(self.bytes));
        format!("{} {}, {bytes} a rank", schedule.algorithm, schedule.goal.name())
    }

    /// What it takes, and why.
    fn summary(&self) -> String {
        let (ranks, rounds) = (Many(self.site.ranks.len() as u64, "rank"), Many(self.rounds.len() as u64, "round"));
        let busiest = self
            .timing
            .busiest(self.site)
            .map(|busiest| format!(", the {} busy for {:.0} % of it", busiest.name, busiest.share * 100.0));
        let ms = digits(self.timing.seconds * 1e3);
        format!("{}: {ranks}, {rounds}, {ms} ms predicted{}", self.machine.name, busiest.unwrap_or_default())
    }

    pub(super) fn head(&self) -> String {
        format!("schedule   {}\nmachine    {}\n", self.title(), self.summary())
    }

    pub(super) fn picture(&self) -> Picture {
        let panel = |load: &Load| Panel {
            title: load.title(),
            summary: load.summary(self.machine),
            loads: load.links.clone(),
            within: load.within.clone(),
            rounds: load.count(),
            whole: load.whole,
        };
        let (groups, _) = self.drawn();
        let mut panels: Vec<Panel> = groups.iter().map(panel).collect();
        if panels.len() > 1 {
            panels.push(panel(&self.total()));
        }
        let ranks = self.machine.nodes.iter().map(|node| {
            let own: Vec<u32> =
                self.placement.ranks.iter().filter(|place| place.node == node.id).map(|place| place.rank.0).collect();
            match own.len() {
                0 => String::new(),
                1 => format!("rank {}", own[0]),
                _ => format!("ranks {}", ranges(own)),
            }
        });
        Picture { title: self.title(), summary: self.summary(), ranks: ranks.collect(), panels, rest: self.rest() }
    }

    /// The directions that carry something, with their bytes.
    fn on_links<'b>(&'b self, load: &'b LinkLoads) -> impl Iterator<Item = ([String; 2], u64)> + 'b {
        let name = |end: End| match end {
            End::Node(node) => node.0.to_string(),
            End::Switch(_) => self.machine.end_name(end),
        };
        let both =
            load.bytes.iter().enumerate().flat_map(|(link, bytes)| [(link, true, bytes[0]), (link, false, bytes[1])]);
        both.filter(|(_, _, bytes)| *bytes > 0).map(move |(link, forward, bytes)| {
            let [a, b] = self.machine.links[link].ends.map(name);
            (if forward { [a, b] } else { [b, a] }, bytes)
        })
    }

    /// All rounds, those that are alike together.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\na>b: from node or switch a to b")?;
        let groups = self.groups();
        for load in &groups {
            writeln!(out, "\n{}: {}", load.title(), load.summary(self.machine))?;
            self.write_load(load, out)?;
        }
        if groups.len() > 1 {
            let total = self.total();
            writeln!(out, "\n{}: {}", total.title(), total.summary(self.machine))?;
            self.write_load(&total, out)?;
        }
        Ok(())
    }

    /// Directions by their bytes, the most first; then what stays within nodes.
    fn write_load(&self, load: &Load, out: &mut String) -> std::fmt::Result {
        let links = load.each();
        let mut by_bytes: Vec<(String, Vec<String>)> = Vec::new();
        let mut all: Vec<_> = self.on_links(&links).collect();
        all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        for ([from, to], bytes) in all {
            let (bytes, way) = (Bytes(bytes).to_string(), format!("{from}>{to}"));
            match by_bytes.last_mut().filter(|last| last.0 == bytes) {
                Some(last) => last.1.push(way),
                None => by_bytes.push((bytes, vec![way])),
            }
        }
        for (node, within) in self.machine.nodes.iter().zip(&load.within).filter(|(_, within)| **within > 0) {
            by_bytes.push((Bytes(within / load.count()).to_string(), vec![format!("within {}", node.id)]));
        }
        for (bytes, ways) in by_bytes {
            let mut line = format!("{bytes:>12} ");
            for way in ways {
                if line.len() + way.len() >= COLUMNS {
                    writeln!(out, "{line}")?;
                    line = " ".repeat(13);
                }
                line.push(' ');
                line.push_str(&way);
            }
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    pub(super) fn json(&self) -> String {
        let round = |load: &Load| Round {
            links: self.on_links(&load.links).map(|([from, to], bytes)| OnLink { from, to, bytes }).collect(),
            within: self
                .machine
                .nodes
                .iter()
                .zip(&load.within)
                .filter(|(_, bytes)| **bytes > 0)
                .map(|(node, bytes)| Within { node: node.id.0, bytes: *bytes })
                .collect(),
        };
        console::pretty(&Report {
            machine: &self.machine.name,
            schedule: self.schedule.algorithm,
            collective: self.schedule.goal.name(),
            ranks: self.site.ranks.len(),
            bytes: self.bytes,
            predicted_us: self.timing.seconds * 1e6,
            rounds: self.rounds.iter().map(round).collect(),
            total: round(&self.total()),
        })
    }
}
