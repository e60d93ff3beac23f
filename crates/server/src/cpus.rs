//! The processors that the process may use, and the threads that follow from them.

use std::{fs, path::Path, thread};

use outrigger_budget::cgroup_files;
use outrigger_ui::Cpus;

/// The processors of this machine that the process may use, and the number of threads that serve
/// predictions: that of the setting, or if it is 0, the number of cores or of whole CPUs of the quota,
/// if that is lower.
pub(crate) fn detect(setting: u32) -> Cpus {
    let root = Path::new("/");
    let usable = thread::available_parallelism().map_or(1, usize::from);
    let threads = if setting == 0 { usable } else { setting as usize };
    Cpus { cores: cores(root).unwrap_or(usable), quota: quota(root), threads }
}

/// The number of cores on which the kernel may run the process: the bits of a mask, which is written
/// in groups of hexadecimal digits (proc_pid_status(5)).
fn cores(root: &Path) -> Option<usize> {
    let text = fs::read_to_string(root.join("proc/self/status")).ok()?;
    let mask = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"))?;
    let ones = mask.trim().chars().filter_map(|digit| digit.to_digit(16)).map(u32::count_ones);
    Some(ones.sum::<u32>() as usize).filter(|cores| *cores > 0)
}

/// The lowest quota of the process's control groups, in CPUs; `None` without one.
fn quota(root: &Path) -> Option<f64> {
    let files = cgroup_files(root, "cpu", "cpu.max", "cpu.cfs_quota_us");
    let quotas = files.iter().filter_map(|file| match file.ends_with("cpu.max") {
        true => {
            let text = fs::read_to_string(file).ok()?;
            let (quota, period) = text.trim().split_once(' ')?;
            share(quota, period)
        }
        false => {
            let period = fs::read_to_string(file.with_file_name("cpu.cfs_period_us")).ok()?;
            share(&fs::read_to_string(file).ok()?, &period)
        }
    });
    quotas.min_by(f64::total_cmp)
}

/// The CPUs of a quota in each period, both in microseconds; `None` for `max` and -1.
fn share(quota: &str, period: &str) -> Option<f64> {
    let quota: u64 = quota.trim().parse().ok()?;
    let period: u64 = period.trim().parse().ok()?;
    (period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn root(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn with(files: &[(&str, &str)]) -> Option<f64> {
        quota(root(files).path())
    }

    #[test]
    fn cores_are_the_bits_of_the_mask() {
        let with = |status| cores(root(&[("proc/self/status", status)]).path());
        assert_eq!(
            with("Name:\tx\nCpus_allowed:\t3f,ffffffff\nCpus_allowed_list:\t0-37\n"),
            Some(38)
        );
        assert_eq!(with("Name:\tx\n"), None);
    }

    #[test]
    fn the_lowest_quota_of_version_2_counts() {
        let nested = [
            ("proc/self/cgroup", "0::/pods/one\n"),
            ("sys/fs/cgroup/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/pods/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/pods/one/cpu.max", "400000 100000\n"),
        ];
        assert_eq!(with(&nested), Some(1.5));
        assert_eq!(with(&nested[..2]), None);
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn version_1_has_a_hierarchy_for_cpus() {
        let files = |quota| {
            [
                ("proc/self/cgroup", "4:memory:/a\n5:cpu,cpuacct:/docker/abc\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ]
        };
        assert_eq!(with(&files("250000\n")), Some(2.5));
        assert_eq!(with(&files("-1\n")), None);
    }

    #[test]
    fn threads_are_those_of_the_setting_or_of_the_machine() {
        let cpus = detect(0);
        assert!((1..=cpus.cores).contains(&cpus.threads), "{cpus:?}");
        assert_eq!(detect(7).threads, 7);
    }
}
