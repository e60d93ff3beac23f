use std::{fs, os::unix::fs::symlink, path::Path, sync::Mutex, time::Duration};

use super::*;
use crate::config::Kinds;

const FILE: &str =
    "images: {repository: r.example/team}\nserver: {max_in_flight: 3, max_users: 7}\n";

/// Records the models of the last call; refuses a model called `refused`.
#[derive(Default)]
struct Recorder(Mutex<Option<lifecycle::Tunables>>);

impl Models for Recorder {
    async fn reconfigure(&self, tunables: lifecycle::Tunables) -> Result<(), lifecycle::Error> {
        if tunables.models.iter().any(|model| model.name.as_str() == "refused") {
            let (key, message) = ("models[0]".to_owned(), "is refused".to_owned());
            return Err(lifecycle::Error::Config { key, message });
        }
        *self.0.lock().unwrap() = Some(tunables);
        Ok(())
    }
}

/// A reloader of a file in a directory of its own.
struct Rig {
    directory: tempfile::TempDir,
    limits: RequestLimits,
    reloader: Reloader<Recorder>,
}

impl Rig {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("outrigger.yaml");
        fs::write(&path, FILE).unwrap();
        let flags = vec![("limits.per_caller".to_owned(), "5".to_owned())];
        let source = Source::open(Kinds::shipped(), Some(path), Vec::new(), flags).unwrap();
        let config = source.load().unwrap().config;
        let limits = RequestLimits::new(&config);
        let (models, reloads) = (Recorder::default(), Reloads::default());
        let reloader = Reloader::new(source, config, models, limits.clone(), reloads);
        Self { directory, limits, reloader }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, text: &str) {
        fs::write(self.path().join("outrigger.yaml"), text).unwrap();
    }

    /// Reloads from the file as it is now; returns the result.
    async fn reload(&mut self) -> (&'static str, Option<String>) {
        self.reloader.reload(self.reloader.source.read()).await;
        let last = self.reloader.reloads.last().borrow().clone().expect("a reload");
        (last.outcome, last.error)
    }

    /// The names of the models that were applied last; `None` if none have been.
    fn models(&self) -> Option<Vec<String>> {
        let applied = self.reloader.models.0.lock().unwrap();
        let models = &applied.as_ref()?.models;
        Some(models.iter().map(|model| model.name.to_string()).collect())
    }

    /// Whether the next check of the file would reload it.
    fn look(&mut self) -> bool {
        let look = self.reloader.source.read();
        self.reloader.has_changed(&look)
    }
}

#[tokio::test]
async fn limits_change_and_flags_stay() {
    let mut rig = Rig::new();
    assert_eq!(rig.reload().await, ("unchanged", None));
    rig.write(&FILE.replace("max_users: 7", "max_users: 8, default_deadline: 3s"));
    assert_eq!(rig.reload().await, ("ok", None));
    assert_eq!(rig.limits.tensors.load().max_users, 8);
    assert_eq!(rig.limits.default_deadline(), Duration::from_secs(3));
    rig.write(&format!("{FILE}limits: {{per_caller: 6}}"));
    assert_eq!(rig.reload().await, ("ok", None), "max_users is back");
    assert_eq!(rig.limits.tensors.load().max_users, 7);
    let held: Vec<_> = (0..5).map(|_| rig.limits.per_caller.take(party).unwrap()).collect();
    assert!(rig.limits.per_caller.take(party).is_none(), "the flag wins over the file");
    drop(held);
    assert_eq!(rig.reload().await, ("unchanged", None));
}

fn party() -> crate::caller::Party {
    crate::caller::Party::Unknown(std::net::Ipv4Addr::LOCALHOST.into())
}

#[tokio::test]
async fn models_change_with_the_limits_or_neither_does() {
    let mut rig = Rig::new();
    rig.write(&FILE.replace("max_users: 7", "max_users: 8"));
    assert_eq!(rig.reload().await, ("ok", None));
    assert_eq!(rig.models(), None, "no model and no setting of models has changed");
    let file = FILE.replace("max_users: 7", "max_users: 9");
    rig.write(&format!("{file}models: [{{name: refused}}, {{name: b}}]"));
    let (outcome, error) = rig.reload().await;
    assert!(outcome == "refused" && error.as_ref().unwrap().contains("models[0]"), "{error:?}");
    assert_eq!((rig.models(), rig.limits.tensors.load().max_users), (None, 8));
    rig.write(&format!("{file}models: [{{name: a}}, {{name: b}}]"));
    assert_eq!(rig.reload().await, ("ok", None));
    assert_eq!(rig.models().unwrap(), ["a", "b"]);
    assert_eq!(rig.limits.tensors.load().max_users, 9);
    rig.write(FILE);
    assert_eq!(rig.reload().await, ("ok", None));
    assert!(rig.models().unwrap().is_empty());
}

#[tokio::test]
async fn nothing_changes_if_a_part_of_the_change_needs_a_restart() {
    let mut rig = Rig::new();
    let wrong = "store: {path: /elsewhere}\ntraces: {endpoint: 'http://secret@collector:4317'}\n";
    rig.write(&format!("{}{wrong}", FILE.replace("max_users: 7", "max_users: 8")));
    let why = "a restart is needed for store.path (was not given), traces.endpoint (was not given)";
    assert_eq!(rig.reload().await, ("refused", Some(why.to_owned())));
    assert_eq!(rig.limits.tensors.load().max_users, 7);
    rig.write(FILE);
    assert_eq!(rig.reload().await, ("unchanged", None), "the file is as it was again");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_changes_nothing() {
    let mut rig = Rig::new();
    for (text, problem) in [
        ("server: {max_users: none}", "server.max_users: "),
        ("server: {max_users: 0}", "server.max_users: must be at least 1"),
        ("servers: {}", "images.repository: without it"),
        ("{", "the file is not valid YAML"),
    ] {
        rig.write(text);
        let (outcome, error) = rig.reload().await;
        let error = error.expect("a problem");
        assert!(outcome == "invalid" && error.contains(problem), "{text}: {outcome}, {error}");
        assert_eq!(rig.limits.tensors.load().max_users, 7, "{text}");
    }
    fs::remove_file(rig.path().join("outrigger.yaml")).unwrap();
    let (outcome, error) = rig.reload().await;
    assert_eq!(outcome, "invalid");
    assert!(error.unwrap().contains("outrigger.yaml: No such file"));
}

#[tokio::test]
async fn a_changed_file_is_tried_once_and_only_when_it_is_at_rest() {
    let mut rig = Rig::new();
    assert!(!rig.look());
    rig.write("");
    assert!(!rig.look(), "an editor may have truncated the file to write it");
    rig.write("server: {max_users: 8}");
    assert!(!rig.look(), "it is still being written");
    assert!(rig.look());
    rig.reload().await;
    assert!(!rig.look(), "invalid, and tried already");
    rig.write(FILE);
    assert!(!rig.look() && rig.look());
}

#[tokio::test]
async fn a_link_that_points_elsewhere_is_a_change() {
    let mut rig = Rig::new();
    let path = rig.path().to_owned();
    let publish = |version: &str, text: &str| {
        fs::create_dir(path.join(version)).unwrap();
        fs::write(path.join(version).join("outrigger.yaml"), text).unwrap();
        symlink(version, path.join("..data_tmp")).unwrap();
        fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
    };
    // The kubelet mounts a ConfigMap in this way.
    publish("..1", FILE);
    fs::remove_file(path.join("outrigger.yaml")).unwrap();
    symlink("..data/outrigger.yaml", path.join("outrigger.yaml")).unwrap();
    assert!(!rig.look() && !rig.look());
    publish("..2", &FILE.replace("max_users: 7", "max_users: 9"));
    assert!(!rig.look() && rig.look());
    assert_eq!(rig.reload().await, ("ok", None));
    assert_eq!(rig.limits.tensors.load().max_users, 9);
}
