//! Models that packages carry, which are published to the repository of a server.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use tempfile::TempDir;

use super::*;

/// A server that reads models from a directory, as Triton does: it has a model ready from its load
/// to its unload, and can load only those that are there.
struct Colocated {
    far: Far,
    repository: TempDir,
}

fn answer(seen: &Seen, root: &Path, loaded: &Mutex<BTreeSet<String>>) -> Answer {
    let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
    match seen.call.rsplit('/').next() {
        Some("RepositoryModelLoad") => {
            let name = name_of(seen, 2);
            if !root.join(&name).join("config.pbtxt").is_file() {
                return Answer::Status(3, format!("failed to load '{name}'"));
            }
            loaded.insert(name);
        }
        Some("RepositoryModelUnload") => {
            loaded.remove(&name_of(seen, 2));
        }
        Some("ModelReady") if !loaded.contains(&name_of(seen, 1)) => {
            return Answer::Message(Bytes::new());
        }
        Some("ModelInfer") if !loaded.contains(&name_of(seen, 1)) => {
            return Answer::Status(14, "Request for unknown model".to_owned());
        }
        _ => {}
    }
    identity::server(seen)
}

impl Colocated {
    /// With this time until an idle version is unloaded.
    async fn start(idle: &str) -> Self {
        let repository = tempfile::tempdir().expect("a directory");
        let root = repository.path().to_owned();
        let loaded: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let server = Server::start(Protocol::Http2, move |seen| answer(seen, &root, &loaded)).await;
        let (address, root) = (server.address(), repository.path().display());
        let settings = format!("endpoint: '{address}', repository: '{root}'");
        Self { far: Far::with(server, &settings, idle).await, repository }
    }

    /// Publishes a package with the model `m` and another one that it uses.
    async fn publish(&self, content: &str) -> String {
        let files = [
            ("oip/m/config.pbtxt", "name: \"m\" ensemble { model_name: \"step\" }"),
            ("oip/m/1/weights", content),
            ("oip/step/config.pbtxt", "name: \"step\""),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let files: Vec<_> = package(3.0).into_iter().chain(files).collect();
        self.far.stack.publish_files(NAME, "latest", &files).await
    }

    fn directories(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.repository.path()).expect("a directory").flatten();
        entries.map(|entry| entry.file_name().into_string().expect("a name")).collect()
    }

    /// Sends requests until only the models of this version are published.
    async fn until_only(&self, digest: &str) {
        let end = Instant::now() + PATIENCE;
        while self.directories() != names(digest) {
            assert!(Instant::now() < end, "there are {:?}", self.directories());
            assert_eq!(self.far.scores(&[2.0]).await.expect("scores"), [2.0]);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn names(digest: &str) -> BTreeSet<String> {
    let part = &digest.trim_start_matches("sha256:")[..16];
    ["m", "step"].map(|name| format!("{name}-{part}")).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_carried_model_is_published_loaded_and_replaced() {
    let colocated = Colocated::start("2s").await;
    let far = &colocated.far;
    let first = colocated.publish("1").await;
    assert_eq!(far.scores(&[2.0]).await.expect("scores"), [2.0]);
    assert_eq!(colocated.directories(), names(&first));
    let main = names(&first).into_iter().next().expect("a name");
    let text =
        std::fs::read_to_string(colocated.repository.path().join(&main).join("config.pbtxt"));
    let text = text.expect("a file");
    assert!(text.starts_with(&format!("name: \"{main}\"")), "{text}");
    let second = colocated.publish("2").await;
    colocated.until_only(&second).await;
    assert_eq!(far.scores(&[2.0]).await.expect("scores"), [2.0]);
    let unloaded: Vec<_> = names(&first).into_iter().collect();
    assert_eq!(far.models("RepositoryModelUnload"), unloaded, "the model before its step");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_takes_over_published_models_and_removes_others() {
    let mut colocated = Colocated::start("30m").await;
    let first = colocated.publish("1").await;
    colocated.far.scores(&[2.0]).await.expect("scores");
    let stale = colocated.repository.path().join("m-0000000000000000");
    std::fs::create_dir(&stale).expect("a directory");
    std::fs::write(stale.join(".outrigger"), format!("sha256:{}", "0".repeat(64)))
        .expect("written");
    colocated.far.stack.restart().await;
    assert_eq!(colocated.far.scores(&[2.0]).await.expect("scores"), [2.0]);
    assert_eq!(colocated.directories(), names(&first));
    let unloaded = colocated.far.models("RepositoryModelUnload");
    assert_eq!(unloaded, ["m-0000000000000000"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_the_server_refuses_to_load_has_a_reason() {
    let colocated = Colocated::start("30m").await;
    let files = [("oip/m/1/weights".to_owned(), "w".to_owned())];
    let files: Vec<_> = package(3.0).into_iter().chain(files).collect();
    colocated.far.stack.publish_files(NAME, "latest", &files).await;
    let status = colocated.far.scores(&[2.0]).await.expect_err("refused");
    assert_eq!(reason(&status), "ENGINE_FAILED");
    assert!(status.message().contains("failed to load"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_carried_model_needs_an_engine_with_a_repository() {
    let far = Far::start("").await;
    let files = [("oip/m/config.pbtxt".to_owned(), String::new())];
    let files: Vec<_> = package(3.0).into_iter().chain(files).collect();
    far.stack.publish_files(NAME, "latest", &files).await;
    let status = far.scores(&[2.0]).await.expect_err("refused");
    assert_eq!(reason(&status), "IMAGE_INVALID");
    assert!(status.message().contains("`repository`"), "{status}");
}
