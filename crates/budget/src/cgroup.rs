//! The files of the process's control groups, as cgroups(7) describes them.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The files of one controller in the process's control group and those above it, from the innermost
/// to the root: those called `v2` in the unified hierarchy, and those called `v1` in the controller's
/// own hierarchy of version 1. In a container the group's path may be that outside of it, and only
/// the root exists. `root` is the root directory of the machine.
pub fn cgroup_files(root: &Path, controller: &str, v2: &str, v1: &str) -> Vec<PathBuf> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut files = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let mount = root.join("sys/fs/cgroup");
        let (mount, file) = match controllers {
            "" => (mount, v2),
            _ if controllers.split(',').any(|it| it == controller) => (mount.join(controller), v1),
            _ => continue,
        };
        let relative = Path::new(path.trim_start_matches('/'));
        files.extend(relative.ancestors().map(|group| mount.join(group).join(file)));
    }
    files.retain(|file| file.exists());
    files
}
