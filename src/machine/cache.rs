//! What Linux says of a processor's caches, without hwloc: blocking asks for it before any machine is discovered.

use std::fs;

/// Bytes of the second-level cache of the first processor, where the system tells.
///
/// Source: Linux, Documentation/ABI/testing/sysfs-devices-system-cpu.
#[must_use]
pub fn l2_bytes() -> Option<usize> {
    (0..8).find_map(|index| {
        let told = |what| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}")).ok();
        (told("level")?.trim() == "2").then(|| bytes(told("size")?.trim())).flatten()
    })
}

/// Bytes of a size as in `512K`.
fn bytes(size: &str) -> Option<usize> {
    size.strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_kib() {
        assert_eq!(["512K", "2048K", "512", "K", "-1K"].map(bytes), [Some(512 << 10), Some(2 << 20), None, None, None]);
    }
}
