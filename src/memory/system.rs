//! How much memory this process can still have, and what limits it: the machine, its control groups of either version,
//! or the limits of the process (`ulimit -v`, `ulimit -d`).

use std::fmt;
use std::fs;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::groups::{ControlGroup, control_groups};

/// What can still be had, and from whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Available {
    pub(super) bytes: u64,
    pub(super) limit: Limit,
}

/// What ends first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Limit {
    /// The machine's memory.
    Machine,
    /// A control group's, which the folder describes.
    Group(PathBuf),
    /// The process's address space.
    AddressSpace,
    /// The process's data.
    Data,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => write!(f, "the machine's memory"),
            Self::Group(folder) => write!(f, "the control group's memory, {}", folder.display()),
            Self::AddressSpace => write!(f, "the process's address space, ulimit -v"),
            Self::Data => write!(f, "the process's data, ulimit -d"),
        }
    }
}

/// Bytes that can be allocated without swapping: the kernel's estimate, or what is left of the limit of a control group
/// or of the process if that is less. `None` where none of them can be read.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    available().map(|available| available.bytes)
}

/// Lets this process have as many files open at a time as it may. Shells begin with fewer, for programs that call
/// select(2).
pub fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Where it is refused, whoever opens a file too many says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// As [`available_bytes`], with the one that gives least.
pub(super) fn available() -> Option<Available> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemAvailable:"));
    let machine = machine.map(|bytes| Available { bytes, limit: Limit::Machine });
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let process = |resource, used: &str, limit| {
        let most = getrlimit(resource).current?;
        Some(Available { bytes: most.saturating_sub(field(&status, used).unwrap_or(0)), limit })
    };
    let limits = [
        machine,
        process(Resource::As, "VmSize:", Limit::AddressSpace),
        process(Resource::Data, "VmData:", Limit::Data),
    ];
    let groups = control_groups("memory");
    limits.into_iter().flatten().chain(groups.iter().filter_map(group)).min_by_key(|available| available.bytes)
}

/// What one control group leaves; nothing where it has no limit.
fn group(group: &ControlGroup) -> Option<Available> {
    let folder = &group.folder;
    // Who takes more than `high` is refused nothing, and slowed down to a crawl.
    let (limits, usage) = match group.second {
        true => (&["memory.max", "memory.high"][..], "memory.current"),
        false => (&["memory.limit_in_bytes"][..], "memory.usage_in_bytes"),
    };
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    // Version 1 says that there is none by the largest number of whole pages.
    let limit = limits.iter().filter_map(|name| number(name)).min().filter(|limit| *limit < 1 << 62)?;
    let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let counted = |name: &str| {
        let line = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    // Cached files count as used, and are dropped before anybody goes without.
    // Version 1 counts those of groups below apart; its totals are what version 2 has.
    let of_version = |name: &str| if group.second { counted(name) } else { counted(&format!("total_{name}")) };
    let cached = ["inactive_file", "active_file"].map(of_version).iter().sum::<u64>();
    let used = number(usage)?.saturating_sub(cached);
    Some(Available { bytes: limit.saturating_sub(used), limit: Limit::Group(folder.to_owned()) })
}

/// The value of a `name   12345 kB` line, in bytes.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line[name.len()..].trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::groups::groups_below;
    use super::*;

    #[test]
    fn meminfo_is_understood() {
        let text = "MemTotal:       24 kB\nMemAvailable:   16384000 kB\n";
        assert_eq!(field(text, "MemAvailable:"), Some(16_384_000 * 1024));
        assert_eq!(field(text, "Swap:"), None);
        assert!(available_bytes().is_none_or(|bytes| bytes > 0));
    }

    /// A tree of control groups: files with what is in them.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn left(folder: &Path, own: &str) -> Vec<(u64, String)> {
        let name = |limit: &Limit| match limit {
            Limit::Group(at) => at.strip_prefix(folder).unwrap().display().to_string(),
            other => other.to_string(),
        };
        let groups = groups_below(folder, own, "memory");
        groups.iter().filter_map(group).map(|found| (found.bytes, name(&found.limit))).collect()
    }

    #[test]
    fn control_groups_of_both_versions_count_with_all_above_them() {
        let second = tree(&[
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "900\n"),
            ("a/memory.stat", "anon 5\ninactive_file 250\nactive_file 50\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.current", "800\n"),
        ]);
        assert_eq!(left(second.path(), "0::/a/b\n"), [(400, "a".to_owned())]);
        assert!(left(second.path(), "0::/\n").is_empty());
        let first = tree(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.usage_in_bytes", "77\n"),
            ("memory/docker/x/memory.limit_in_bytes", "5000\n"),
            ("memory/docker/x/memory.usage_in_bytes", "6000\n"),
        ]);
        assert_eq!(
            left(first.path(), "9:cpu,memory:/docker/x\n3:pids:/docker/x\n"),
            [(0, "memory/docker/x".to_owned())]
        );
        // A container sees its own group where the root would be, under the host's path.
        let inside = tree(&[("memory.max", "4096"), ("memory.current", "96")]);
        assert_eq!(left(inside.path(), "0::/docker/y\n"), [(4000, String::new())]);
        assert!(left(inside.path(), "nonsense\n").is_empty());
        let high = tree(&[("memory.max", "max\n"), ("memory.high", "1073741824\n"), ("memory.current", "73741824\n")]);
        assert_eq!(left(high.path(), "0::/\n"), [(1_000_000_000, String::new())]);
    }
}
