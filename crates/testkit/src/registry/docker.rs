//! Debian's `docker-registry` as a fixture.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    thread,
};

use tempfile::TempDir;

use crate::tools::if_installed;

/// A running `docker-registry` on loopback; stopped when dropped.
#[derive(Debug)]
pub struct DockerRegistry {
    child: Child,
    host: String,
    directory: TempDir,
}

impl DockerRegistry {
    /// `127.0.0.1:PORT`, as in references; to be listed for plain HTTP.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Removes a tag in the registry's files, since its API cannot remove tags.
    pub fn remove_tag(&self, name: &str, tag: &str) {
        let repositories = self.directory.path().join("docker/registry/v2/repositories");
        let tag = repositories.join(name).join("_manifests/tags").join(tag);
        fs::remove_dir_all(tag).expect("the tag is there");
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `docker-registry` on a free port over an empty directory. Returns `None` if it is not
/// installed: the test then prints that it is skipped. With `CI` set, it panics instead.
pub fn docker_registry() -> Option<DockerRegistry> {
    start("")
}

/// Like [`docker_registry`], with access only for the user `ann` with the password `s3cret`.
pub fn docker_registry_with_password() -> Option<DockerRegistry> {
    start(HTPASSWD)
}

/// The bcrypt hash of "s3cret".
const HTPASSWD: &str = "ann:$2y$05$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK\n";

fn start(htpasswd: &str) -> Option<DockerRegistry> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = directory.path();
    let mut config = format!(
        "version: 0.1\nlog: {{level: info, formatter: json}}\nhttp: {{addr: \"127.0.0.1:0\"}}\n\
         storage: {{filesystem: {{rootdirectory: {root:?}}}, delete: {{enabled: true}}}}\n"
    );
    if !htpasswd.is_empty() {
        let users = root.join("htpasswd");
        fs::write(&users, htpasswd).expect("a writable directory");
        config += &format!("auth: {{htpasswd: {{realm: testkit, path: {users:?}}}}}\n");
    }
    let path = root.join("config.yml");
    fs::write(&path, config).expect("a writable directory");
    let spawned = Command::new("docker-registry")
        .args(["serve".as_ref(), path.as_os_str()])
        .env_remove("OTEL_TRACES_EXPORTER")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = if_installed("docker-registry", spawned)?;
    let host = listening(&mut child);
    Some(DockerRegistry { child, host, directory })
}

/// Reads the address from the log. A thread reads the rest of the log, so that the registry never
/// blocks on writing it.
fn listening(child: &mut Child) -> String {
    let mut log = BufReader::new(child.stderr.take().expect("piped above")).lines();
    let mut seen = String::new();
    let host = log.by_ref().map_while(Result::ok).find_map(|line| {
        seen += &line;
        let start = line.find("listening on ")? + "listening on ".len();
        let end = line[start..].find(['"', ',', ' ']).map_or(line.len(), |end| start + end);
        Some(line[start..end].to_owned())
    });
    thread::spawn(move || log.map_while(Result::ok).for_each(drop));
    host.unwrap_or_else(|| panic!("docker-registry does not listen: {seen}"))
}
