//! How much memory this process can still have.

use std::fs;

/// Bytes that can be allocated without swapping: the kernel's estimate, or what is left of the control group's limit
/// if that is less. `None` where neither can be read.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemAvailable:"));
    let group = || {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        let limit = number("/sys/fs/cgroup/memory.max")?;
        Some(limit.saturating_sub(number("/sys/fs/cgroup/memory.current")?))
    };
    match (system, group()) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The value of a `name   12345 kB` line, in bytes.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line[name.len()..].trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_understood() {
        let text = "MemTotal:       24 kB\nMemAvailable:   16384000 kB\n";
        assert_eq!(field(text, "MemAvailable:"), Some(16_384_000 * 1024));
        assert_eq!(field(text, "Swap:"), None);
        assert!(available_bytes().is_none_or(|bytes| bytes > 0));
    }
}
