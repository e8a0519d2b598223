//! What was measured of the network between machines: `octorec topo --measure` in a job of several.

use serde::{Deserialize, Serialize};

use super::store::{age, now_s};
use crate::machine::describe::{FIGURES, LINK_GB_S};

/// The layout of the file that keeps it.
const VERSION: u32 = 2;

/// A network, by what MPI's own calls take on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Of this layout.
    version: u32,
    /// The machines' names, by their numbers.
    pub hosts: Vec<String>,
    /// When, in seconds since 1970.
    pub measured_s: u64,
    /// Bytes of the messages whose bandwidth was measured.
    pub message_bytes: usize,
    /// What the first machine and each other one send each other at the same time while the others are silent, each
    /// way, in GB/s.
    pub pairs_gb_s: Vec<f64>,
    /// How long the shortest messages between them take, in ns.
    pub pairs_ns: Vec<f64>,
    /// What leaves each machine when all send to all, several messages at once, in GB/s.
    pub together_gb_s: f64,
    /// Core seconds taken from computing by 10^9 bytes that leave a machine or come to it; 0 where messages disturb no
    /// core.
    #[serde(default)]
    pub core_s_per_gb: f64,
}

/// What was found when all machines sent to all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Together {
    /// GB/s that left each machine, while its cores had nothing else to do.
    pub gb_s: f64,
    /// As [`Network::core_s_per_gb`].
    pub core_s_per_gb: f64,
}

impl Network {
    /// Measured just now: seconds of both directions of a message of so many bytes and of the shortest, between the
    /// first machine and each other; and what was found when all sent to all.
    #[must_use]
    pub fn of(hosts: Vec<String>, message_bytes: usize, pairs_s: &[[f64; 2]], together: Together) -> Self {
        let gb_s = |bytes: usize, seconds: f64| bytes as f64 / seconds / 1e9;
        Self {
            version: VERSION,
            measured_s: now_s(),
            message_bytes,
            pairs_gb_s: pairs_s.iter().map(|[whole, _]| gb_s(message_bytes, *whole)).collect(),
            pairs_ns: pairs_s.iter().map(|[_, least]| least * 1e9).collect(),
            together_gb_s: together.gb_s,
            core_s_per_gb: together.core_s_per_gb,
            hosts,
        }
    }

    /// What plans take for the way from a machine into the network: what leaves it when all send, and half the longest
    /// journey, in GB/s and ns.
    #[must_use]
    pub fn adapter(&self) -> (f64, f64) {
        (self.together_gb_s, self.pairs_ns.iter().copied().fold(0.0, f64::max) / 2.0)
    }

    /// Whether it connects all these machines, as many of a name as there are.
    #[must_use]
    pub fn connects(&self, hosts: &[String]) -> bool {
        let count = |of: &[String], name: &String| of.iter().filter(|host| *host == name).count();
        hosts.iter().all(|host| count(hosts, host) <= count(&self.hosts, host))
    }

    /// "measured 3 days ago".
    #[must_use]
    pub fn age(&self) -> String {
        age(self.measured_s)
    }

    /// What makes it useless.
    pub(super) fn check(&self) -> Result<(), String> {
        let others = self.hosts.len().saturating_sub(1);
        let gb_s = self.pairs_gb_s.iter().chain([&self.together_gb_s]).find(|figure| !LINK_GB_S.contains(*figure));
        let ns = self.pairs_ns.iter().find(|figure| !FIGURES.contains(*figure));
        if self.version != VERSION {
            return Err(format!("version {} is not this octorec's, which is {VERSION}", self.version));
        }
        if others == 0 || self.pairs_gb_s.len() != others || self.pairs_ns.len() != others {
            return Err(format!("{} machines have not as many pairs", self.hosts.len()));
        }
        if !(0.0..=*FIGURES.end()).contains(&self.core_s_per_gb) {
            return Err(format!("core_s_per_gb: no hardware has a figure of {}", self.core_s_per_gb));
        }
        match gb_s.or(ns) {
            Some(figure) => Err(format!("no hardware has a figure of {figure}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(hosts: &[&str]) -> Network {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let pairs = vec![[1e-3, 2e-6]; hosts.len() - 1];
        Network::of(hosts, 1_000_000, &pairs, Together { gb_s: 1.0, core_s_per_gb: 0.5 })
    }

    #[test]
    fn figures_are_those_of_what_was_timed() {
        let found = network(&["a", "b", "c"]);
        assert_eq!((&found.pairs_gb_s[..], found.together_gb_s), (&[1.0, 1.0][..], 1.0));
        assert_eq!(found.adapter(), (1.0, 1000.0));
        found.check().unwrap();
        assert!(Network { together_gb_s: 0.0, ..found.clone() }.check().is_err());
        assert!(Network { core_s_per_gb: 1e300, ..found.clone() }.check().is_err());
        assert!(Network { core_s_per_gb: 0.0, ..found.clone() }.check().is_ok());
        assert!(Network { core_s_per_gb: -0.5, ..found.clone() }.check().is_err());
        assert!(Network { pairs_ns: Vec::new(), ..found }.check().is_err());
    }

    #[test]
    fn it_connects_its_machines_and_some_of_them() {
        let found = network(&["a", "b", "b"]);
        let connects =
            |hosts: &[&str]| found.connects(&hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>());
        assert!(connects(&["b", "a"]) && connects(&["b", "b"]) && connects(&["a", "b", "b"]));
        assert!(!connects(&["a", "a"]) && !connects(&["a", "c"]));
    }
}
