//! Which processor was measured: a figure without it means nothing.

use std::fmt;
use std::fs;

use serde::Serialize;

use crate::base::Result;
use crate::base::units::{Bytes, Many};
use crate::machine::discover;
use crate::simd::{Avx512Bf16, Isa};

/// The processor of this machine, as far as a measurement depends on it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Processor {
    /// The vendor's name, as the kernel tells it.
    pub model: String,
    /// Physical cores of all sockets.
    pub cores: usize,
    /// NUMA nodes with cores.
    pub nodes: usize,
    /// The widest vectors that octorec uses here.
    pub isa: &'static str,
    /// Whether it multiplies bf16 pairs.
    pub bf16: bool,
    /// All last-level caches together, in bytes.
    pub l3_bytes: Option<u64>,
    /// Threads that wanted to run during the last minute, on average: figures of a busy machine are too low.
    pub load: Option<f64>,
}

impl Processor {
    /// The name of this machine's processor alone, as the kernel tells it.
    #[must_use]
    pub fn model_here() -> String {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        model(&info).unwrap_or("unknown processor").to_owned()
    }

    /// This machine's.
    ///
    /// # Errors
    /// When the hardware cannot be explored.
    pub fn of_this_machine() -> Result<Self> {
        let machine = discover::host()?;
        let l3: u64 = machine.nodes.iter().flat_map(|node| &node.l3).map(|group| group.bytes).sum();
        Ok(Self {
            model: Self::model_here(),
            cores: machine.nodes.iter().map(|node| node.cores.len()).sum(),
            nodes: machine.nodes.len(),
            isa: Isa::best().name(),
            bf16: Avx512Bf16::detect().is_some(),
            l3_bytes: (l3 > 0).then_some(l3),
            load: fs::read_to_string("/proc/loadavg").ok().and_then(|text| load(&text)),
        })
    }
}

/// The first number of `/proc/loadavg`.
fn load(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// The value of the first `model name : …` line.
fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cores, nodes) = (Many(self.cores as u64, "core"), Many(self.nodes as u64, "NUMA node"));
        write!(f, "{}, {cores}, {nodes}, {}", self.model, self.isa)?;
        if self.bf16 {
            write!(f, " with bf16")?;
        }
        match self.l3_bytes {
            Some(bytes) => write!(f, ", L3 {}", Bytes(bytes))?,
            None => write!(f, ", L3 unknown")?,
        }
        match self.load {
            Some(load) if load > 0.5 => {
                write!(
                    f,
                    "\nnote: the load average is {load:.1}: other programs may compute here and spoil the figures"
                )
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found() {
        assert_eq!(model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), Some("Some CPU @ 2 GHz"));
        assert_eq!(model("processor\t: 0\n"), None);
        assert_eq!(load("0.25 0.5 0.75 1/99 4711\n"), Some(0.25));
    }
}
