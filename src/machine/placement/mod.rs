//! Where ranks stand: which cores compute, which communicate, and where each rank's memory is.
//!
//! A pure function of machine and wishes. Invariants: only allowed hardware threads are used; a physical core belongs
//! to one rank, unless there are fewer cores than ranks; a communication core never computes; a rank's cores are of
//! one place (node, socket or last-level cache). Every choice states its reason. When threads outnumber what they
//! run on, `spin` is false: whoever waits must then yield, or it would keep the one it waits for from running.

mod share;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub(super) use self::share::cores_each;
use self::share::{Share, shares};
use super::describe::{CpuQuota, Machine};
use super::ranges::ranges;
use crate::base::config::THREADS_MAX;
use crate::base::units::Many;
use crate::base::{Error, NodeId, PuId, RankId, Result};

/// No run has more ranks than this, so that a slip of the pen cannot ask for all memory.
pub const RANKS_MAX: usize = 4096;

/// Numbers of communication cores of which a rank's best is looked for.
const COMM_CORES: [usize; 5] = [0, 1, 2, 4, 8];

/// What a rank is given: the unit that is not split without need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum RankPer {
    /// A NUMA node.
    #[default]
    Node,
    /// A package with all of its nodes.
    Socket,
    /// The cores of one last-level cache.
    L3,
}

/// How many cores of a rank communicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CommCores {
    /// By the rank's cores: none below 5, 1 below 10, 2 below 20, else 4; none if there is one rank. So plans have it;
    /// training and simulations take the number with which a step is quickest, predictions and sums by grains none.
    #[default]
    Auto,
    /// As many as this.
    Count(usize),
}

/// What the user wishes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Wishes {
    /// What a rank is given.
    pub rank_per: RankPer,
    /// How many ranks; `None`: one for each unit.
    pub ranks: Option<usize>,
    /// Compute threads of each rank; `None`: one for each of its cores that does not communicate.
    pub threads: Option<usize>,
    /// Communication cores of each rank.
    pub comm_cores: CommCores,
    /// Whether all hardware threads of a core compute.
    pub smt: bool,
}

/// Where one rank stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankPlace {
    /// Its number.
    pub rank: RankId,
    /// The host that it runs on; processing units are numbered within it.
    pub host: u32,
    /// Its home: the first node of its cores.
    pub node: NodeId,
    /// Where its memory is; more than one if it spans nodes.
    pub memory_nodes: Vec<NodeId>,
    /// The processing unit of each compute thread; one appears again when threads share it.
    pub compute: Vec<PuId>,
    /// The processing unit of each communication thread; empty: compute threads communicate.
    pub comm: Vec<PuId>,
    /// Where threads run that work for it beside these, as those that load its data do: idle cores of its place, or of
    /// its host, where there is one for each rank; else all that is idle in its place, siblings of busy cores included,
    /// or all of its place where nothing is idle on the host; empty: anywhere.
    #[serde(default)]
    pub aside: Vec<PuId>,
}

/// Where all ranks stand, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Ascending by rank.
    pub ranks: Vec<RankPlace>,
    /// Whether waiting threads may spin: every thread has a processing unit of its own.
    pub spin: bool,
    /// What was decided and why.
    pub reasons: Vec<String>,
    /// What the user should know before believing any figure.
    pub warnings: Vec<String>,
}

impl RankPlace {
    /// Whether its communication threads run on cores that compute.
    #[must_use]
    pub fn shares_cores(&self) -> bool {
        self.comm.iter().any(|pu| self.compute.contains(pu))
    }
}

impl Placement {
    /// So many communication threads of each rank on its compute threads' cores, which then yield while they wait.
    #[must_use]
    pub fn sharing(&self, threads: usize) -> Self {
        let mut shared = Self { spin: false, ..self.clone() };
        for rank in &mut shared.ranks {
            rank.comm = rank.compute.iter().copied().cycle().take(threads).collect();
        }
        shared
    }

    /// Whether a rank has more compute threads than processing units for them.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.ranks.iter().any(|rank| rank.compute.iter().collect::<BTreeSet<_>>().len() < rank.compute.len())
    }

    /// Whether communication threads of a rank run on cores that compute.
    #[must_use]
    pub fn shares_cores(&self) -> bool {
        self.ranks.iter().any(RankPlace::shares_cores)
    }

    /// One line on where a rank stands: `rank 0 on node 0: 28 threads on cpus 0-27, 4 communicate on 24-27`.
    #[must_use]
    pub fn line(&self, rank: &RankPlace) -> String {
        // Threads may take turns on a cpu, which is named once.
        let list = |pus: &[PuId]| ranges(pus.iter().map(|pu| pu.0).collect::<BTreeSet<_>>());
        let threads = Many(rank.compute.len() as u64, "thread");
        let cpus = if rank.compute.len() == 1 { "cpu" } else { "cpus" };
        let mut line = format!("{} on {}: {threads} on {cpus} {}", rank.rank, rank.node, list(&rank.compute));
        if !rank.comm.is_empty() {
            line += &format!(", {} communicate on {}", rank.comm.len(), list(&rank.comm));
        }
        if !self.spin {
            line += ", more threads than cores: waiting threads yield";
        }
        line
    }
}

/// Places ranks on a machine.
///
/// # Errors
/// [`Error::Placement`] when a wish is zero or absurd, when no core is allowed, or when communication cores would leave
/// none for computing.
pub fn place(machine: &Machine, wishes: &Wishes) -> Result<Placement> {
    let fail = |reason: String| Err(Error::Placement { reason });
    let (mut reasons, mut warnings) = (Vec::new(), Vec::new());
    let mut units = shares(machine, wishes.rank_per, &mut reasons, &mut warnings);
    if units.is_empty() {
        return fail("this process may use no core of the machine: look at its cpuset and affinity".to_owned());
    }
    let places = units.clone();
    let most = machine.cpu_quota.as_ref().map_or(usize::MAX, CpuQuota::whole);
    let count = wishes.ranks.unwrap_or_else(|| units.len().min(most));
    if !(1..=RANKS_MAX).contains(&count) {
        return fail(format!("{count} ranks: between 1 and {RANKS_MAX} are possible"));
    }
    if let Some(threads) = wishes.threads.filter(|threads| !(1..=THREADS_MAX).contains(threads)) {
        return fail(format!("{threads} threads a rank: between 1 and {THREADS_MAX} are possible"));
    }
    reasons.push(count_reason(count, units.len(), wishes));
    let mut wishes = wishes.clone();
    if let Some(quota) = &machine.cpu_quota {
        warnings.extend(fit(quota, &mut units, &mut wishes, count));
    }

    let wishes = &wishes;
    let mut spin = true;
    let (mut ranks, mut unit_of) = (Vec::new(), Vec::new());
    let mut splits: Vec<Split> = Vec::new();
    for (unit, share) in units.iter().enumerate() {
        // Ranks are dealt in blocks, so that neighbours by number are neighbours by place.
        let here: Vec<usize> = match count <= units.len() {
            true => (unit..count.min(unit + 1)).collect(),
            false => (0..count).filter(|rank| rank * units.len() / count == unit).collect(),
        };
        for (position, rank) in here.iter().enumerate() {
            let (cores, shared) = share.part(position, here.len());
            let rank = RankId(*rank as u32);
            let comm = comm_count(wishes, cores.len(), shared, count)
                .map_err(|reason| Error::Placement { reason: format!("{rank}: {reason}") })?;
            let (compute_cores, comm_cores) = cores.split_at(cores.len() - comm);
            let pus = processing_units(compute_cores, wishes.smt);
            let threads = wishes.threads.unwrap_or(pus.len());
            spin &= !shared && threads <= pus.len();
            splits.push(Split { rank, cores: cores.len(), comm, threads, pus: pus.len(), shared });
            ranks.push(RankPlace {
                rank,
                host: share.host,
                node: share.node,
                memory_nodes: share.memory_nodes.clone(),
                compute: pus.iter().copied().cycle().take(threads).collect(),
                comm: comm_cores.iter().map(|core| core[0]).collect(),
                aside: Vec::new(),
            });
            unit_of.push(unit);
        }
    }
    set_aside(&mut ranks, &unit_of, &places);
    explain(&splits, wishes, &mut reasons);
    if !spin {
        warnings.push(time_shared(&splits, &units));
    }
    if wishes.threads.is_none() {
        warnings.extend(unequal(&ranks));
    }
    let threads = ranks.iter().map(|place| place.compute.len() + place.comm.len()).sum::<usize>();
    if spin && threads > most {
        spin = false;
        let cpus = Many(most as u64, "cpu");
        warnings.push(format!("{threads} threads take turns in a quota of {cpus}: waiting threads yield"));
    }
    Ok(Placement { ranks, spin, reasons, warnings })
}

/// The numbers of communication cores among which the best for these wishes is looked for, be it by steps or by a
/// simulation: none, and one, or as many as at most a quarter of a rank's compute threads, where each thread still has
/// a processing unit of its own.
///
/// # Errors
/// As [`place`].
pub fn comm_cores_to_try(machine: &Machine, wishes: &Wishes) -> Result<Vec<usize>> {
    let placed = |count: usize| place(machine, &Wishes { comm_cores: CommCores::Count(count), ..wishes.clone() });
    let cores = placed(0)?.ranks.iter().map(|rank| rank.compute.len()).min().unwrap_or(1);
    let fits = |count: &usize| *count <= (cores / 4).max(1) && *count < cores;
    let able = |count: &usize| *count == 0 || fits(count) && placed(*count).is_ok_and(|placement| placement.spin);
    Ok(COMM_CORES.into_iter().filter(able).collect())
}

/// Says where each rank's other threads run, of which `unit_of` tells the unit; `units` have all allowed cores. A busy
/// sibling takes from what computes on its core, on which all ranks wait: idle cores come first, even of other places,
/// unless they are fewer than the ranks that would use them, some of which would then share one.
fn set_aside(ranks: &mut [RankPlace], unit_of: &[usize], units: &[Share]) {
    let used = ranks.iter().flat_map(|place| place.compute.iter().chain(&place.comm).map(move |pu| (place.host, *pu)));
    let used: BTreeSet<(u32, PuId)> = used.collect();
    let is_idle = |unit: usize, pu: &PuId| !used.contains(&(units[unit].host, *pu));
    let idle_cores = |unit: usize| units[unit].cores.iter().filter(move |core| core.iter().all(|pu| is_idle(unit, pu)));
    let idle = |unit: usize| -> Vec<PuId> {
        units[unit].cores.iter().flatten().copied().filter(|pu| is_idle(unit, pu)).collect()
    };
    let on = |host: u32| (0..units.len()).filter(move |unit| units[*unit].host == host);
    for (place, &unit) in ranks.iter_mut().zip(unit_of) {
        let here = unit_of.iter().filter(|of| **of == unit).count();
        // Ranks that have idle cores in their places use them, too.
        let on_host = unit_of.iter().filter(|of| units[**of].host == place.host).count();
        let elsewhere = || on(place.host).flat_map(idle_cores);
        let own = idle(unit);
        place.aside = if idle_cores(unit).count() >= here {
            idle_cores(unit).flatten().copied().collect()
        } else if elsewhere().count() >= on_host {
            elsewhere().flatten().copied().collect()
        } else if !own.is_empty() || on(place.host).any(|unit| !idle(unit).is_empty()) {
            own
        } else {
            units[unit].cores.concat()
        };
    }
}

/// Leaves as many cores in the units of `count` ranks as a quota has time for, unless numbers that are wished for need
/// more of them: then no core is set aside to communicate that was not asked for. Returns what the user should know.
fn fit(quota: &CpuQuota, units: &mut Vec<Share>, wishes: &mut Wishes, count: usize) -> Option<String> {
    units.truncate(count);
    let mut fewer = units.clone();
    let warning = within(quota, &mut fewer, wishes.smt);
    // Who names numbers of threads or of communication cores gets them: what is beyond the quota takes turns.
    let comm = if let CommCores::Count(comm) = wishes.comm_cores { comm } else { 0 };
    let named = (wishes.threads.unwrap_or(1) + comm) * count.div_ceil(units.len());
    let some = wishes.threads.is_some() || comm > 0;
    if !some || fewer.iter().all(|unit| unit.cores.len() >= named) {
        *units = fewer;
        // Who asked for no more threads than that has nothing to hear.
        return warning.filter(|_| wishes.threads.is_none_or(|threads| threads * count > quota.whole()));
    }
    if wishes.comm_cores == CommCores::Auto {
        wishes.comm_cores = CommCores::Count(0);
    }
    None
}

/// Leaves so many cores in these units that their threads fit a quota, if they can; a warning where there were more.
/// Threads that all spin use up a quota soon, and then nobody runs until the next period.
fn within(quota: &CpuQuota, units: &mut [Share], smt: bool) -> Option<String> {
    let sizes: Vec<usize> = units.iter().map(|unit| unit.cores.len()).collect();
    let threads = units.iter().flat_map(|unit| &unit.cores).map(Vec::len).max().filter(|_| smt).unwrap_or(1);
    let most = cores_each(&sizes, quota.whole() / threads);
    units.iter_mut().for_each(|unit| unit.cores.truncate(most));
    let [all, left] = [sizes.iter().sum(), units.iter().map(|unit| unit.cores.len()).sum::<usize>()];
    (left < all).then(|| {
        format!(
            "{}: the quota is the time of {} cpus, so {left} of {all} cores are used; raise it (docker run --cpus), or \
             allow whole cores in its place (--cpuset-cpus, taskset)",
            quota.file.display(),
            quota.cpus
        )
    })
}

/// A warning where a rank has far fewer threads than another.
fn unequal(ranks: &[RankPlace]) -> Option<String> {
    let threads = |place: &&RankPlace| place.compute.len();
    let (least, most) = (ranks.iter().min_by_key(threads)?, ranks.iter().map(|place| place.compute.len()).max()?);
    (10 * least.compute.len() < 9 * most).then(|| {
        format!(
            "{} computes on {} and another rank on {most}: all have equal slices of a minibatch and wait for the last; allow as \
             many cores of each node",
            least.rank,
            Many(least.compute.len() as u64, "thread")
        )
    })
}

/// One rank's cores, divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Split {
    rank: RankId,
    cores: usize,
    comm: usize,
    threads: usize,
    pus: usize,
    shared: bool,
}

/// Communication cores out of `cores`.
fn comm_count(wishes: &Wishes, cores: usize, shared: bool, ranks: usize) -> std::result::Result<usize, String> {
    match wishes.comm_cores {
        CommCores::Count(0) => Ok(0),
        CommCores::Count(count) if shared => {
            Err(format!("it shares its only core, so --comm-cores {count} is impossible: use 0 or fewer ranks"))
        }
        CommCores::Count(count) if count >= cores => Err(format!(
            "--comm-cores {count} leaves none of its {cores} cores for computing: use at most {}",
            cores - 1
        )),
        CommCores::Count(count) => Ok(count),
        CommCores::Auto if ranks == 1 || shared => Ok(0),
        CommCores::Auto => {
            let wanted = match cores {
                0..5 => 0,
                5..10 => 1,
                10..20 => 2,
                _ => 4,
            };
            // Threads that were asked for come first.
            Ok(wanted.min(cores.saturating_sub(wishes.threads.unwrap_or(0))))
        }
    }
}

/// First the first hardware thread of each core; with `smt` then the second ones.
fn processing_units(cores: &[Vec<PuId>], smt: bool) -> Vec<PuId> {
    let levels = if smt { cores.iter().map(Vec::len).max().unwrap_or(0) } else { 1 };
    (0..levels).flat_map(|level| cores.iter().filter_map(move |core| core.get(level).copied())).collect()
}

fn count_reason(count: usize, units: usize, wishes: &Wishes) -> String {
    let unit = match wishes.rank_per {
        RankPer::Node => "NUMA node",
        RankPer::Socket => "socket",
        RankPer::L3 => "last-level cache",
    };
    if wishes.ranks.is_none() && count < units {
        return format!(
            "ranks {count}: as many as a quota has cpus, on the first {count} of {units} places (one a {unit})"
        );
    }
    if wishes.ranks.is_none() || count == units {
        return format!("ranks {count}: one for each {unit} with allowed cores");
    }
    if count < units {
        format!("ranks {count}: as wished, on the first {count} of {units} places (one a {unit})")
    } else {
        format!("ranks {count}: as wished, more than places ({units}, one a {unit}), so they divide the cores")
    }
}

/// One line for all ranks that were divided alike.
fn explain(splits: &[Split], wishes: &Wishes, reasons: &mut Vec<String>) {
    let mut kinds: Vec<(Split, Vec<u32>)> = Vec::new();
    for split in splits {
        let kind = Split { rank: RankId(0), ..*split };
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, ranks)) => ranks.push(split.rank.0),
            None => kinds.push((kind, vec![split.rank.0])),
        }
    }
    for (Split { cores, comm, threads, pus, .. }, ranks) in kinds {
        let who = format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, ranges(ranks));
        let comm_reason = match wishes.comm_cores {
            CommCores::Count(_) => "as wished".to_owned(),
            CommCores::Auto if splits.len() == 1 => "auto: one rank has nobody to talk to".to_owned(),
            CommCores::Auto if wishes.threads.is_some() => "auto: what the wished threads leave, up to 4".to_owned(),
            CommCores::Auto => format!("auto: 0 below 5 cores, 1 below 10, 2 below 20, else 4; {cores} here"),
        };
        let which = if comm > 0 { ", the last of its share" } else { "" };
        let comm = Many(comm as u64, "communication core");
        reasons.push(format!("{who}: {comm}{which} ({comm_reason})"));
        let threads_reason = match (wishes.threads, wishes.smt) {
            (Some(_), _) => "as wished",
            (None, true) => "every hardware thread of the other cores (--smt)",
            (None, false) => "one on each other core; hardware siblings compute only with --smt",
        };
        let idle = pus.saturating_sub(threads);
        let idle = if idle > 0 { format!("; {} idle", Many(idle as u64, "processing unit")) } else { String::new() };
        reasons.push(format!("{who}: {} ({threads_reason}){idle}", Many(threads as u64, "compute thread")));
    }
}

fn time_shared(splits: &[Split], units: &[Share]) -> String {
    let cores: usize = units.iter().map(|unit| unit.cores.len()).sum();
    let what = if splits.iter().any(|split| split.shared) {
        format!("{} take turns on {}", Many(splits.len() as u64, "rank"), Many(cores as u64, "core"))
    } else {
        let crowded = splits.iter().find(|split| split.threads > split.pus);
        crowded.map_or_else(String::new, |split| {
            format!("{} threads of a rank take turns on {}", split.threads, Many(split.pus as u64, "processing unit"))
        })
    };
    format!("{what}: waiting threads yield instead of spinning")
}
