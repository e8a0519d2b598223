//! The control groups of this process, of either version: its own and all above it, each of which may limit it.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// A control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlGroup {
    /// What describes it.
    pub folder: PathBuf,
    /// Whether it is of version 2.
    pub second: bool,
}

/// Those of this process that have this controller, such as "memory".
#[must_use]
pub fn control_groups(controller: &str) -> Vec<ControlGroup> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups_below(Path::new(MOUNT), &own, controller)
}

/// The same where they are mounted elsewhere; `own` is `/proc/self/cgroup`.
#[must_use]
pub fn groups_below(mount: &Path, own: &str, controller: &str) -> Vec<ControlGroup> {
    let mut found = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        // Version 2 names no controllers.
        let (root, second) = match controllers {
            "" => (mount.to_owned(), true),
            first if first.split(',').any(|name| name == controller) => (mount.join(controller), false),
            _ => continue,
        };
        // Within a container the path may be that of the host: then what is mounted is the container's own.
        let mut at = root.join(path.trim_start_matches('/'));
        loop {
            found.push(ControlGroup { folder: at.clone(), second });
            if at == root || !at.pop() {
                break;
            }
        }
    }
    found
}
