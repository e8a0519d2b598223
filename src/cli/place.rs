//! Where ranks stand: the flags that mean the same in every command, and the team of a bench of kernels.

use std::path::Path;

use clap::Args;

use super::help::MACHINE;
use crate::base::config::IsaChoice;
use crate::base::console::note;
use crate::base::{Error, NodeId, Result};
use crate::machine::placement::{CommCores, Placement, RANKS_MAX, RankPer, Wishes};
use crate::machine::team::Team;
use crate::machine::{Machine, place};
use crate::simd::Isa;

/// Where ranks stand.
#[derive(Debug, Clone, Args)]
pub struct PlaceArgs {
    /// How many ranks, each a team of --threads threads with its own part of the tables; `auto`: one for each NUMA node
    /// with allowed cores.
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = rank_count, display_order = 9)]
    pub ranks: RankCount,

    /// The machine: `host`, FILE.toml or an hwloc FILE.xml; to look at, also a shipped name or synthetic:DESCRIPTION.
    #[arg(long, value_name = "MACHINE", default_value = "host", help_heading = MACHINE)]
    pub topology: String,

    /// What a rank is given.
    #[arg(long, value_enum, default_value_t, help_heading = MACHINE)]
    pub rank_per: RankPer,

    /// Compute on all hardware threads of a core.
    #[arg(long, help_heading = MACHINE)]
    pub smt: bool,

    /// Cores of each rank that reduce the gradients of layers while the others compute: a number, or `auto`; `train`
    /// then tries some before it begins and prints what they gave.
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = comm_cores, help_heading = MACHINE)]
    pub comm_cores: CommCores,
}

impl PlaceArgs {
    /// As many ranks as this on this host, and all else as it comes.
    #[must_use]
    pub fn count(ranks: usize) -> Self {
        Self {
            ranks: RankCount::Count(ranks),
            topology: "host".to_owned(),
            rank_per: RankPer::default(),
            smt: false,
            comm_cores: CommCores::Auto,
        }
    }

    /// What is asked of a machine; `threads` 0: one on each core that does not communicate.
    #[must_use]
    pub const fn wishes(&self, threads: usize) -> Wishes {
        let ranks = match self.ranks {
            RankCount::Auto => None,
            RankCount::Count(count) => Some(count),
        };
        let threads = if threads == 0 { None } else { Some(threads) };
        Wishes { rank_per: self.rank_per, ranks, threads, comm_cores: self.comm_cores, smt: self.smt }
    }

    /// Tells of the placement that these wishes have on a machine which flags change nothing about it, and what may
    /// give every thread a processing unit of its own where those of a rank take turns.
    pub fn advise(&self, machine: &Machine, wishes: &Wishes, placement: &Placement) {
        idle_flags(machine, wishes, placement).iter().for_each(|told| note!("note: {told}"));
        if !self.smt && placement.is_crowded() {
            note!("note: --smt may give each thread of a rank its own hardware thread");
        }
    }
}

/// Flags among these wishes without which ranks would stand where they do.
#[must_use]
pub fn idle_flags(machine: &Machine, wishes: &Wishes, placement: &Placement) -> Vec<&'static str> {
    let same = |without: Wishes| {
        place(machine, &without).is_ok_and(|other| other.ranks == placement.ranks && other.spin == placement.spin)
    };
    let smt = wishes.smt && same(Wishes { smt: false, ..wishes.clone() });
    let usual = RankPer::default();
    let rank_per = wishes.rank_per != usual && same(Wishes { rank_per: usual, ..wishes.clone() });
    [
        (smt, "--smt changes nothing here: threads stand where they do without it"),
        (rank_per, "--rank-per changes nothing here: ranks stand where those of --rank-per node do"),
    ]
    .into_iter()
    .filter_map(|(is_idle, told)| is_idle.then_some(told))
    .collect()
}

/// Tells what the user should know of where ranks stand before believing a time that is measured there.
pub fn warn(placement: &Placement) {
    warn_of_places(placement);
    if !placement.spin {
        note!("warning: threads take turns: no time measured here says anything about scaling");
    }
}

/// Tells what is unusual about where ranks stand.
pub fn warn_of_places(placement: &Placement) {
    placement.warnings.iter().for_each(|warning| note!("warning: {warning}"));
}

/// The file that describes a machine; nothing where the machine has a name alone.
#[must_use]
pub fn machine_file(topology: &str) -> Option<&Path> {
    Some(Path::new(topology)).filter(|file| file.extension().is_some())
}

/// Of a machine that somebody described, what it has too little of is the description's.
#[must_use]
pub fn on_described(topology: &str, error: Error) -> Error {
    match error {
        Error::NodeFull { .. } | Error::ShardTooBig { .. } if topology != "host" => {
            Error::config(format!("--topology {topology}"), error.to_string())
        }
        error => error,
    }
}

/// A number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankCount {
    /// One for each unit of the machine.
    Auto,
    /// As many as this.
    Count(usize),
}

/// A `--ranks` value.
pub fn rank_count(text: &str) -> std::result::Result<RankCount, String> {
    match text {
        "auto" => Ok(RankCount::Auto),
        number => match number.parse() {
            Ok(count) if (1..=RANKS_MAX).contains(&count) => Ok(RankCount::Count(count)),
            _ => Err(format!("a number from 1 to {RANKS_MAX} or `auto` is expected")),
        },
    }
}

/// A `--comm-cores` value.
pub fn comm_cores(text: &str) -> std::result::Result<CommCores, String> {
    match text {
        "auto" => Ok(CommCores::Auto),
        number => number.parse().map(CommCores::Count).map_err(|_| "a number or `auto` is expected".to_owned()),
    }
}

/// The team of rank 0 on this host, every thread pinned, with the nodes of its memory; prints where it stands.
///
/// `threads` 0 means one for each core of the rank. For benches of kernels, which one team runs.
///
/// # Errors
/// When this processor has no such instruction set, the hardware cannot be explored, or threads are refused.
pub fn place_team(threads: usize, isa: IsaChoice) -> Result<(Team, Vec<NodeId>)> {
    let isa = Isa::chosen(isa)?;
    let machine = Machine::load("host")?;
    let threads = (threads > 0).then_some(threads);
    let placement = place(&machine, &Wishes { ranks: Some(1), threads, ..Wishes::default() })?;
    warn(&placement);
    let rank = &placement.ranks[0];
    let team = Team::pinned(&rank.compute, placement.spin, isa)?;
    note!("placement: {}", placement.line(rank));
    Ok((team, rank.memory_nodes.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_change_nothing_about_where_ranks_stand_are_told() {
        let machine = Machine::load("two-socket").unwrap();
        let told = |wishes: Wishes| {
            let idle = idle_flags(&machine, &wishes, &place(&machine, &wishes).unwrap());
            idle.iter().filter_map(|told| told.split(' ').next()).collect::<Vec<_>>()
        };
        let wishes = |smt, rank_per, threads| Wishes { smt, rank_per, threads, ..Wishes::default() };
        // Two hardware threads a core: of all that compute, but not of so few threads that each has a core.
        assert!(told(wishes(true, RankPer::Node, None)).is_empty());
        assert_eq!(told(wishes(true, RankPer::Node, Some(4))), ["--smt"]);
        // A socket is a node there.
        assert_eq!(told(wishes(false, RankPer::Socket, None)), ["--rank-per"]);
        assert!(told(Wishes::default()).is_empty());
        let machine = Machine::load("epyc-nps4-2s").unwrap();
        let wishes = Wishes { rank_per: RankPer::Socket, ..Wishes::default() };
        assert!(idle_flags(&machine, &wishes, &place(&machine, &wishes).unwrap()).is_empty());
    }
}
