//! The machines of a job, before it starts: what each one has, and that all mean the same job.

use serde::{Deserialize, Serialize};

use super::figures;
use crate::base::config::{Config, alone_on_machine};
use crate::base::console::note;
use crate::base::{Deadline, Error, Result};
use crate::collective::World;
use crate::data::{About, Source, Split};
use crate::ffi::linux::{affinity_of_group, current_affinity};
use crate::machine::Machine;
use crate::machine::cluster::cluster;
use crate::machine::figures::Network;
use crate::machine::placement::Placement;
use crate::simd::Isa;
use crate::train::digest;

/// What a machine tells all others.
#[derive(Serialize, Deserialize)]
struct Introduction {
    /// What must be the same on all machines: its name, and what it is here.
    same: Vec<(String, String)>,
    machine: Machine,
    placement: Placement,
}

/// All machines of a job.
pub struct Everyone {
    /// As one machine.
    pub machine: Machine,
    /// All ranks on it.
    pub placement: Placement,
    /// How many ranks each machine has.
    pub counts: Vec<usize>,
}

/// Gathers what all machines have, and compares what must be the same.
///
/// # Errors
/// [`Error::Mpi`] that names the machine and what differs there, or a machine that did not answer.
pub fn introduce(
    world: &World,
    config: &Config,
    source: &dyn Source,
    (machine, placement): (&Machine, &Placement),
    isa: Isa,
    deadline: Deadline,
) -> Result<Everyone> {
    let mut network: Option<Network> = None;
    let parts = if world.machines() == 1 {
        vec![(machine.clone(), placement.clone())]
    } else {
        let own = Introduction {
            same: same(config, source, placement, isa),
            machine: machine.clone(),
            placement: placement.clone(),
        };
        let own = serde_json::to_vec(&own).expect("names, numbers and lists are representable in JSON");
        let all = world.all_gather("compare machines", own, deadline)?;
        let read = |bytes: &Vec<u8>| serde_json::from_slice::<Introduction>(bytes);
        let all: Vec<Introduction> = all.iter().map(read).collect::<std::result::Result<_, _>>().map_err(|error| {
            let reason = format!("a machine speaks otherwise: {error}; start the same octorec on all");
            Error::Mpi { action: "compare machines".to_owned(), reason }
        })?;
        agree(world, &all)?;
        if world.is_first() {
            let places: Vec<_> = all.iter().map(|one| &one.placement).collect();
            sharing(world.hosts(), &places).iter().for_each(|reason| note!("warning: {reason}"));
        }
        // The first one's knowledge is all machines'.
        let known = if world.is_first() { figures::network(world.hosts()) } else { None };
        let known = serde_json::to_vec(&known).expect("names and numbers are representable in JSON");
        let known = world.all_gather("tell of the network", known, deadline)?;
        network = serde_json::from_slice(&known[0]).unwrap_or_default();
        all.into_iter().map(|part| (part.machine, part.placement)).collect()
    };
    let counts = parts.iter().map(|(_, placement)| placement.ranks.len()).collect();
    let (machine, placement) = cluster(&parts, network.as_ref());
    Ok(Everyone { machine, placement, counts })
}

/// What is to be said of a launcher that lets this process use a part of a machine of which no other process uses the
/// rest.
pub fn bound(world: &World) -> Option<String> {
    if world.machines() == 1 || !alone_on_machine() {
        return None;
    }
    // Where the kernel does not tell, nothing is known.
    let (own, all) = (current_affinity().ok()?.len(), affinity_of_group().ok()?.len());
    (own < all).then(|| {
        format!(
            "its launcher lets octorec use {own} of the {all} cpus that it has here: give it all of them (mpirun \
             --bind-to none; srun --cpus-per-task={all}, or --cpu-bind=none)"
        )
    })
}

/// What is to be said of the first two processes of one host that use the same cpus.
fn sharing(hosts: &[String], places: &[&Placement]) -> Option<String> {
    let cpus = |machine: usize| places[machine].ranks.iter().flat_map(|rank| rank.compute.iter().chain(&rank.comm));
    let shares =
        |one: usize, other: usize| hosts[one] == hosts[other] && cpus(one).any(|cpu| cpus(other).any(|o| o == cpu));
    let mut pairs = (0..places.len()).flat_map(|one| (one + 1..places.len()).map(move |other| (one, other)));
    pairs.find(|(one, other)| shares(*one, *other)).map(|(one, other)| {
        format!(
            "machines {one} and {other} are both on {} and use the same cpus: start one process a machine (mpirun \
             --map-by ppr:1:node; srun --ntasks-per-node=1), whose ranks share it (--ranks), or give each cpus of its own",
            hosts[one]
        )
    })
}

/// What results depend on.
fn same(config: &Config, source: &dyn Source, placement: &Placement, isa: Isa) -> Vec<(String, String)> {
    let mut same = vec![
        ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("instruction set (choose one that all have with --isa)".to_owned(), isa.name().to_owned()),
        ("communication cores of a rank".to_owned(), placement.ranks[0].comm.len().to_string()),
    ];
    for split in Split::ALL {
        same.push((format!("samples of the data ({split:?})").to_lowercase(), format!("{:?}", source.samples(split))));
    }
    same.push(("columns of the data".to_owned(), format!("{:?}", source.schema())));
    let About { vocabulary, numbering, .. } = source.about();
    let vocabulary = vocabulary.as_deref().map_or_else(|| "none".to_owned(), digest);
    same.push(("vocabulary of the data".to_owned(), vocabulary));
    // Each judges by its own data what a checkpoint says of them.
    same.push(("vocabularies beside the data (their fingerprint)".to_owned(), numbering.digest()));
    for split in Split::ALL {
        let found = source.fingerprint(split).unwrap_or_else(|| "none".to_owned());
        same.push((format!("files of the {} samples (their fingerprint)", split.name()), found));
    }
    // Threads are each machine's own.
    let mut config = config.clone();
    config.train.threads = 0;
    let mut section = String::new();
    for line in config.to_toml().lines() {
        match line.split_once(" = ") {
            Some((key, value)) => same.push((format!("{section}{key}"), value.to_owned())),
            None if line.starts_with('[') => section = format!("{}.", line.trim_matches(['[', ']'])),
            None => same.push((format!("{section}(continued)"), line.to_owned())),
        }
    }
    same
}

/// Whether all mean the same job.
fn agree(world: &World, all: &[Introduction]) -> Result<()> {
    let first = &all[0];
    for (number, other) in all.iter().enumerate().skip(1) {
        let differs = first.same.iter().zip(&other.same).find(|(a, b)| a != b);
        if let Some(((name, here), (_, there))) = differs {
            let [other, first] = [number, 0].map(|machine| world.name(machine));
            let reason = format!("{other} and {first} differ in {name}: {there} and {here}");
            return Err(Error::Mpi { action: "run one job on machines that differ".to_owned(), reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{NodeId, PuId, RankId};
    use crate::machine::placement::RankPlace;

    #[test]
    fn processes_of_one_host_that_use_the_same_cpus_are_told() {
        let place = |cpus: [u32; 2]| {
            let [compute, comm] = cpus.map(|cpu| vec![PuId(cpu)]);
            let node = NodeId(0);
            let rank = RankPlace {
                rank: RankId(0),
                host: 0,
                node,
                memory_nodes: vec![node],
                compute,
                comm,
                aside: Vec::new(),
            };
            Placement { ranks: vec![rank], spin: true, reasons: Vec::new(), warnings: Vec::new() }
        };
        let (low, high, both) = (place([0, 1]), place([2, 3]), place([3, 0]));
        let hosts = |names: [&str; 3]| names.map(str::to_owned);
        let same = hosts(["a", "b", "b"]);
        assert_eq!(sharing(&same, &[&low, &low, &high]), None, "cpus of their own, or hosts of their own");
        assert_eq!(sharing(&hosts(["a", "b", "c"]), &[&low, &low, &low]), None);
        let told = sharing(&same, &[&low, &high, &both]).unwrap();
        assert!(told.starts_with("machines 1 and 2 are both on b and use the same cpus: "), "{told}");
        assert!(told.contains("--map-by ppr:1:node"), "{told}");
    }
}
