//! How much time of cpus a control group grants: a quota (`docker run --cpus`) forbids no core, it stops all threads
//! for a while once they have used up their time together.

use std::fs;

use crate::machine::describe::CpuQuota;
use crate::memory::ControlGroup;

/// The least that these groups grant; none where none has a limit.
pub fn least(groups: &[ControlGroup]) -> Option<CpuQuota> {
    groups.iter().filter_map(of).min_by(|a, b| a.cpus.total_cmp(&b.cpus))
}

/// What one control group grants: microseconds of each period.
fn of(group: &ControlGroup) -> Option<CpuQuota> {
    let read = |name: &str| fs::read_to_string(group.folder.join(name)).ok();
    let (name, text) = match group.second {
        true => ("cpu.max", read("cpu.max")?),
        false => ("cpu.cfs_quota_us", read("cpu.cfs_quota_us")? + " " + &read("cpu.cfs_period_us")?),
    };
    // Where there is no limit, "max" or -1 stands instead.
    let mut numbers = text.split_whitespace().map(|word| word.parse::<f64>().ok().filter(|number| *number > 0.0));
    let (quota, period) = (numbers.next()??, numbers.next()??);
    Some(CpuQuota { cpus: (quota / period * 100.0).round() / 100.0, file: group.folder.join(name) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::groups_below;

    #[test]
    fn quotas_of_both_versions_are_read_and_the_least_counts() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("cpu.max", "1600000 100000\n"),
            ("a/cpu.max", "350000 100000\n"),
            ("a/b/cpu.max", "max 100000\n"),
            ("cpu/x/cpu.cfs_quota_us", "800000\n"),
            ("cpu/x/cpu.cfs_period_us", "50000\n"),
            ("cpu/x/y/cpu.cfs_quota_us", "-1\n"),
            ("cpu/x/y/cpu.cfs_period_us", "100000\n"),
        ];
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = |own: &str| {
            let quota = least(&groups_below(folder.path(), own, "cpu"))?;
            Some((quota.cpus, quota.whole(), quota.file.strip_prefix(folder.path()).unwrap().display().to_string()))
        };
        assert_eq!(found("0::/a/b\n"), Some((3.5, 4, "a/cpu.max".to_owned())));
        assert_eq!(found("0::/\n"), Some((16.0, 16, "cpu.max".to_owned())));
        assert_eq!(found("4:cpu,cpuacct:/x/y\n"), Some((16.0, 16, "cpu/x/cpu.cfs_quota_us".to_owned())));
        assert_eq!(found("4:cpuset:/x/y\n"), None);
    }
}
