//! The messages of the engine, against a scripted server.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc::channel},
    time::Duration,
};

use outrigger_core::{
    Digest, EngineId, ModelName, ServableId, ServableName, Version, Versions,
    engine::{FromEngine, ToEngine},
};
use outrigger_oip_client::{Client, Config, HostConfig};
use outrigger_oip_engine::{Engine, Settings};
use outrigger_run::{Clock, Engine as _, Event, PackagedModel, Start};
use outrigger_testkit::oip::{Protocol, Seen, Server, identity};
use tempfile::TempDir;
use tokio::{runtime::Handle, sync::mpsc, task::JoinHandle, time::timeout};

/// The time limit for any wait, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running engine in front of a server.
struct Bench {
    engine: Arc<Engine>,
    events: mpsc::Receiver<(EngineId, Event)>,
    packages: TempDir,
    _task: JoinHandle<()>,
}

fn version(number: i64) -> ServableId {
    let name: ModelName = "m".parse().expect("a name");
    ServableId { name: ServableName::of(&name), version: Version(number) }
}

impl Bench {
    fn start(server: &Server) -> Self {
        let config = Config::new(vec![HostConfig::new(server.address())]);
        let client = Client::new(config, &[Handle::current()]).expect("a valid configuration");
        let settings = Settings { load: true, ..Settings::default() };
        let engine = Arc::new(Engine::new(client, settings).expect("an engine"));
        let (reports, events) = mpsc::channel(16);
        let start = Start {
            engine: EngineId::default(),
            clock: Clock::start(),
            versions: Versions::after(Version(1)),
            events: reports,
        };
        let task = tokio::spawn(Arc::clone(&engine).run(start));
        let packages = tempfile::tempdir().expect("a directory");
        Self { engine, events, packages, _task: task }
    }

    /// Publishes and adds a version of the server's model called `model`.
    async fn add(&self, number: i64, model: &str) {
        let directory: PathBuf = self.packages.path().join(number.to_string());
        fs::create_dir(&directory).expect("a directory");
        let text = format!(r#"{{"remote": {{"model": "{model}"}}, "inputs": [], "outputs": []}}"#);
        fs::write(directory.join("metadata.json"), text).expect("written");
        let digest: Digest = format!("sha256:{number:064}").parse().expect("a digest");
        let model = PackagedModel::from(directory.as_path());
        self.engine.publish(version(number), digest, model).await.expect("published");
        self.engine.send(ToEngine::Add(version(number)));
    }

    /// Waits for the next report about a version.
    async fn next(&mut self) -> FromEngine {
        loop {
            let event = timeout(PATIENCE, self.events.recv()).await.expect("a report in time");
            match event.expect("the engine runs").1 {
                Event::Version(report) => return report,
                Event::Condition(_) | Event::Settled => {}
            }
        }
    }
}

/// The name of the model in a message about the repository.
fn name_of(seen: &Seen) -> String {
    String::from_utf8_lossy(&seen.body[2..]).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_model_that_is_being_unloaded_is_loaded_afterwards() {
    let ((begun, unload), (release, released)) = (channel(), channel::<()>());
    let released = Mutex::new(released);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&calls);
    let record = move |call: &str, seen: &Seen| {
        let mut calls = recorded.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(format!("{call} {}", name_of(seen)));
    };
    let server = Server::start(Protocol::Http2, move |seen| {
        match seen.call.rsplit('/').next() {
            Some("RepositoryModelLoad") => record("load", seen),
            Some("RepositoryModelUnload") => {
                begun.send(()).expect("the test waits");
                let released = released.lock().unwrap_or_else(PoisonError::into_inner);
                released.recv_timeout(PATIENCE).expect("released");
                record("unload", seen);
            }
            _ => {}
        }
        identity::server(seen)
    })
    .await;
    let mut bench = Bench::start(&server);
    bench.add(1, "m").await;
    assert_eq!(bench.next().await, FromEngine::Up(version(1)));
    bench.engine.send(ToEngine::Remove(version(1)));
    tokio::task::spawn_blocking(move || unload.recv_timeout(PATIENCE))
        .await
        .expect("no panic")
        .expect("the unload has begun");
    bench.add(2, "m").await;
    // Another version, whose messages come later, overtakes the one that waits.
    bench.add(3, "other").await;
    assert_eq!(bench.next().await, FromEngine::Up(version(3)));
    release.send(()).expect("the server waits");
    assert_eq!(bench.next().await, FromEngine::Gone(version(1)));
    assert_eq!(bench.next().await, FromEngine::Up(version(2)));
    let calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(*calls, ["load m", "load other", "unload m", "load m"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_of_two_versions_is_unloaded_with_the_last() {
    let server = Server::start(Protocol::Http2, identity::server).await;
    let mut bench = Bench::start(&server);
    for number in [1, 2] {
        bench.add(number, "m").await;
        assert_eq!(bench.next().await, FromEngine::Up(version(number)));
    }
    for (number, unloads) in [(1, 0), (2, 1)] {
        bench.engine.send(ToEngine::Remove(version(number)));
        assert_eq!(bench.next().await, FromEngine::Gone(version(number)));
        assert_eq!(server.count("RepositoryModelUnload"), unloads);
    }
}
