//! The memory that the process may take by default.

use std::{fs, path::Path};

use crate::cgroup::cgroup_files;

/// The share of the cgroup's limit that is left free: the kernel counts page tables, sockets and
/// the cache of files that are being written to the cgroup too.
const RESERVE: u64 = 8;
/// The share of the machine's memory that a process without a limit takes.
const UNLIMITED: u64 = 4;

/// The memory that the process may take if nothing is configured: the limit of its cgroup less an
/// eighth, or a quarter of the machine's memory if there is no limit.
pub fn default_memory() -> u64 {
    of(Path::new("/"))
}

/// The default on a machine with this root directory.
fn of(root: &Path) -> u64 {
    let machine = physical(root).unwrap_or(1 << 30);
    // Version 1 shows a huge number if there is no limit.
    let limit = cgroups(root).into_iter().min().filter(|limit| *limit < machine);
    limit.map_or(machine / UNLIMITED, |limit| limit - limit / RESERVE)
}

/// The machine's memory in bytes.
fn physical(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// The limits of the process's cgroup and those above it.
fn cgroups(root: &Path) -> Vec<u64> {
    let files = cgroup_files(root, "memory", "memory.max", "memory.limit_in_bytes");
    files.iter().filter_map(|file| limit(file)).collect()
}

fn limit(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");
    const GIB: u64 = 1 << 30;

    fn with(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        of(root.path())
    }

    #[test]
    fn without_a_limit_it_is_a_quarter_of_the_machine() {
        assert_eq!(with(&[MACHINE]), 2 * GIB);
        let unlimited = [
            MACHINE,
            ("proc/self/cgroup", "0::/user.slice\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
        ];
        assert_eq!(with(&unlimited), 2 * GIB);
    }

    #[test]
    fn the_lowest_limit_of_version_2_counts() {
        let nested = [
            MACHINE,
            ("proc/self/cgroup", "0::/pods/one\n"),
            ("sys/fs/cgroup/pods/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/pods/one/memory.max", "2147483648\n"),
        ];
        assert_eq!(with(&nested), GIB / 8 * 7);
        let container =
            [MACHINE, ("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "1073741824\n")];
        assert_eq!(with(&container), GIB / 8 * 7);
    }

    #[test]
    fn version_1_has_a_hierarchy_for_memory() {
        let groups = "5:cpu,cpuacct:/a\n4:memory:/docker/abc\n";
        let outside = [
            MACHINE,
            ("proc/self/cgroup", groups),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
        ];
        assert_eq!(with(&outside), (GIB / 2) / 8 * 7, "the path is that outside of the container");
        let none = [
            MACHINE,
            ("proc/self/cgroup", groups),
            ("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(with(&none), 2 * GIB);
    }
}
