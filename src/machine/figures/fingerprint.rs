//! By what a machine is known again.

use serde::{Deserialize, Serialize};

use crate::machine::describe::Machine;
use crate::machine::limits::Processor;
use crate::machine::ranges::ranges;
use crate::simd::Isa;

/// Up to this share of a node's memory nothing differs: a kernel keeps more or less for itself from boot to boot.
const SAME_MEMORY: f64 = 0.03;

/// Up to this share nobody can tell: a virtual machine gives memory back while it runs (a balloon), which changes no
/// figure; a module more or less of eight, or modules of another size, look the same, and change them.
const LIKELY_MEMORY: f64 = 0.25;

/// What figures depend on, as far as it can be told without measuring: the processor, a quota of its time, and of each
/// node the hardware threads that this process may use, the memory, and the distances. A process that may use less of a
/// machine than another one has a machine of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// The processor's name.
    pub processor: String,
    /// The instruction set that octorec uses on it.
    pub isa: String,
    /// Nodes with cores, ascending.
    pub nodes: Vec<NodePrint>,
    /// Distances between nodes, memory without cores included.
    pub distances: Vec<Vec<u32>>,
    /// The cpus whose time a control group grants, where it limits what may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<f64>,
}

/// A node, as far as figures depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePrint {
    /// Its number.
    pub node: u32,
    /// Its physical cores.
    pub cores: usize,
    /// Its hardware threads that may be used, as "0-27,112-139".
    pub pus: String,
    /// Whether its memory may be used.
    pub memory_allowed: bool,
    /// Its memory in bytes.
    pub memory_bytes: u64,
}

impl Fingerprint {
    /// Of this host.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        let nodes = machine.nodes.iter().map(|node| {
            let mut pus: Vec<u32> = node.cores.iter().flat_map(|core| core.allowed()).map(|pu| pu.0).collect();
            pus.sort_unstable();
            NodePrint {
                node: node.id.0,
                cores: node.cores.len(),
                pus: ranges(pus),
                memory_allowed: node.memory_allowed,
                memory_bytes: node.memory_bytes,
            }
        });
        Self {
            processor: Processor::model_here(),
            isa: Isa::best().name().to_owned(),
            nodes: nodes.collect(),
            distances: machine.distances.rows.clone(),
            cpu_quota: machine.cpu_quota.as_ref().map(|quota| quota.cpus),
        }
    }

    /// The first thing in which a machine differs from this one; `None`: they are the same, as far as can be told, but
    /// for what [`Fingerprint::doubt`] says.
    #[must_use]
    pub fn difference(&self, here: &Self) -> Option<String> {
        if self.processor != here.processor {
            return Some(format!("the processor is {}, here {}", self.processor, here.processor));
        }
        if self.isa != here.isa {
            return Some(format!("the instruction set is {}, here {}", self.isa, here.isa));
        }
        if self.nodes.len() != here.nodes.len() {
            return Some(format!("the number of nodes is {}, here {}", self.nodes.len(), here.nodes.len()));
        }
        if self.cpu_quota != here.cpu_quota {
            let told = |quota: Option<f64>| quota.map_or_else(|| "none".to_owned(), |cpus| format!("{cpus} cpus"));
            return Some(format!("the quota is {}, here {}", told(self.cpu_quota), told(here.cpu_quota)));
        }
        for (there, here) in self.nodes.iter().zip(&here.nodes) {
            let node = there.node;
            if (there.node, there.cores) != (here.node, here.cores) {
                let (cores, of, own) = (there.cores, here.node, here.cores);
                return Some(format!("cores of node {node}: {cores}, here of node {of}: {own}"));
            }
            if (&there.pus, there.memory_allowed) != (&here.pus, here.memory_allowed) {
                return Some(format!("cpus {} of node {node} may be used, here {}", there.pus, here.pus));
            }
        }
        if let Some((node, there, here)) = self.memory_beyond(here, LIKELY_MEMORY) {
            return Some(format!("node {node} has {there:.1} GiB, here {here:.1}"));
        }
        (self.distances != here.distances).then(|| "the distances between nodes are others".to_owned())
    }

    /// Why a machine that does not differ may yet be another one: its memory is so different as that of a virtual
    /// machine may be from hour to hour, and that of a machine with other modules for good.
    #[must_use]
    pub fn doubt(&self, here: &Self) -> Option<String> {
        let (node, there, here) = self.memory_beyond(here, SAME_MEMORY)?;
        Some(format!("measured when node {node} had {there:.1} GiB, here {here:.1}"))
    }

    /// The first node whose memory differs by more than a share of the larger one, and both sizes in GiB.
    fn memory_beyond(&self, here: &Self, share: f64) -> Option<(u32, f64, f64)> {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let mut pairs =
            self.nodes.iter().zip(&here.nodes).map(|(a, b)| (a.node, gib(a.memory_bytes), gib(b.memory_bytes)));
        pairs.find(|(_, there, here)| (there - here).abs() > share * there.max(*here))
    }

    /// A name for a file: of fingerprints that differ, these differ, too.
    #[must_use]
    pub fn name(&self) -> String {
        let text = serde_json::to_string(self).expect("plain data is JSON");
        fnv1a(text.as_bytes())
    }
}

/// The hash of that name, in hexadecimal.
pub(super) fn fnv1a(bytes: &[u8]) -> String {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_known_again_and_others_are_told_apart() {
        let machine = Machine::load("twisted-hypercube-8").unwrap();
        let own = Fingerprint::of(&machine);
        assert_eq!(own.difference(&own), None);
        let differs = |change: &dyn Fn(&mut Fingerprint), words: &str| {
            let mut other = own.clone();
            change(&mut other);
            let told = other.difference(&own).unwrap_or_default();
            assert!(told.contains(words), "{words}: {told}");
            assert_ne!(other.name(), own.name());
        };
        differs(&|other| other.processor += " II", "the processor is");
        differs(&|other| other.isa = "avx".to_owned(), "the instruction set is avx");
        differs(&|other| drop(other.nodes.pop()), "the number of nodes is 7, here 8");
        differs(&|other| other.cpu_quota = Some(3.5), "the quota is 3.5 cpus, here none");
        differs(&|other| other.nodes[3].cores = 4, "cores of node 3: 4, here of node 3: 28");
        differs(
            &|other| other.nodes[3].pus = "84-85".to_owned(),
            "cpus 84-85 of node 3 may be used, here 84-111,308-335",
        );
        differs(&|other| other.nodes[2].memory_bytes /= 2, "node 2 has 96.0 GiB, here 192.0");
        differs(&|other| other.distances[0][1] = 77, "the distances");
        // Another boot; a balloon, or a module less; modules of another size.
        let with = |percent: u64| {
            let mut other = own.clone();
            other.nodes[2].memory_bytes = other.nodes[2].memory_bytes / 100 * percent;
            (own.difference(&other), own.doubt(&other))
        };
        assert_eq!(with(98), (None, None));
        for (percent, gib) in [(96, "184.3"), (88, "169.0"), (80, "153.6")] {
            let doubt = format!("measured when node 2 had 192.0 GiB, here {gib}");
            assert_eq!(with(percent), (None, Some(doubt)));
        }
        assert_eq!(with(70).0.as_deref(), Some("node 2 has 192.0 GiB, here 134.4"));
    }
}
