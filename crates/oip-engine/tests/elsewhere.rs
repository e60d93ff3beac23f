//! The scenarios of engines elsewhere, with servers of the protocol that end and come back.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use outrigger_core::{Content, DType, Tensor};
use outrigger_oip_client::{Client, Config, HostConfig};
use outrigger_oip_engine::{Engine, Settings};
use outrigger_run::{self as run, Call, PackagedModel};
use outrigger_testkit::{
    elsewhere::{self, Behaviour, Site, Told},
    oip::{Answer, Protocol, Seen, Server, identity},
};
use tempfile::TempDir;
use tokio::{runtime::Handle, time::Instant};

/// Servers with models that return their input.
struct Servers {
    processes: Vec<Process>,
    packages: TempDir,
}

struct Process {
    server: Server,
    state: Arc<Mutex<State>>,
}

struct State {
    kind: Kind,
    loaded: BTreeSet<String>,
    behaviour: Behaviour,
    /// The number of runs that were answered with scores.
    answered: usize,
}

/// A kind of servers, each of which says in its own way that it does not have a model.
#[derive(Clone, Copy)]
enum Kind {
    Triton,
    MlServer,
}

impl Kind {
    /// The answer to the question whether an unknown model is ready.
    fn unknown(self) -> Answer {
        match self {
            Self::Triton => Answer::Message(Vec::new().into()),
            Self::MlServer => Answer::Status(2, "Exception calling application".to_owned()),
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servers {
    async fn start(count: usize) -> Self {
        let mut processes = Vec::new();
        for kind in [Kind::Triton, Kind::MlServer].into_iter().cycle().take(count) {
            let state =
                State { kind, loaded: BTreeSet::new(), behaviour: Behaviour::Works, answered: 0 };
            let state = Arc::new(Mutex::new(state));
            let answers = Arc::clone(&state);
            let script = move |seen: &Seen| lock(&answers).answer(seen);
            let server = Server::start(Protocol::Http2, script).await;
            processes.push(Process { server, state });
        }
        Self { processes, packages: tempfile::tempdir().expect("a directory") }
    }
}

impl State {
    fn answer(&mut self, seen: &Seen) -> Answer {
        if self.behaviour == Behaviour::IsSilent {
            return Answer::Never;
        }
        match seen.call.rsplit('/').next() {
            Some("RepositoryModelLoad") => {
                self.loaded.insert(name_of(seen));
            }
            Some("RepositoryModelUnload") => {
                self.loaded.remove(&name_of(seen));
            }
            Some("ModelReady") if !self.loaded.contains(&name_of(seen)) => {
                return self.kind.unknown();
            }
            Some("ModelInfer") => return self.run(seen),
            _ => {}
        }
        identity::server(seen)
    }

    fn run(&mut self, seen: &Seen) -> Answer {
        let status = |code, message: &str| Answer::Status(code, message.to_owned());
        match self.behaviour {
            _ if !self.loaded.contains(&name_of(seen)) => status(5, "unknown model"),
            Behaviour::Works => {
                self.answered += 1;
                identity::grpc(seen)
            }
            Behaviour::IsSilent | Behaviour::Hangs => Answer::Never,
            Behaviour::Lacks => status(5, "unknown model"),
            Behaviour::Fails => status(13, "Stub process is not healthy"),
            Behaviour::Refuses => status(3, "unexpected shape"),
        }
    }
}

/// The name of the model in a message, which is its first text.
fn name_of(seen: &Seen) -> String {
    let length = usize::from(seen.body[1]);
    String::from_utf8_lossy(&seen.body[2..2 + length]).into_owned()
}

impl Site for Servers {
    fn engine(&self) -> Arc<dyn run::Engine> {
        let hosts = self.processes.iter().map(|it| HostConfig::new(it.server.address())).collect();
        let client = Client::new(Config::new(hosts), &[Handle::current()]).expect("valid");
        let interval = Duration::from_millis(200);
        let settings = Settings { load: true, interval, ..Settings::default() };
        Arc::new(Engine::new(client, settings).expect("an engine"))
    }

    fn servers(&self) -> usize {
        self.processes.len()
    }

    fn package(&self, number: i64) -> PackagedModel {
        let directory = self.packages.path().join(number.to_string());
        fs::create_dir_all(&directory).expect("a directory");
        let text =
            format!(r#"{{"remote": {{"model": "m{number}"}}, "inputs": [], "outputs": []}}"#);
        fs::write(directory.join("metadata.json"), text).expect("written");
        PackagedModel::from(directory.as_path())
    }

    fn call(&self, deadline: Instant) -> Call {
        let content = Content::Bytes(1_f32.to_le_bytes().to_vec().into());
        let input = Tensor { name: "x".into(), dtype: DType::Float32, shape: vec![1, 1], content };
        Call::new(vec![input], vec!["OUT_x".into()], deadline)
    }

    fn stop(&self, server: usize) -> BoxFuture<'_, ()> {
        async move {
            let Process { server, state } = &self.processes[server];
            server.stop().await;
            lock(state).loaded.clear();
        }
        .boxed()
    }

    fn resume(&self, server: usize) -> BoxFuture<'_, ()> {
        self.processes[server].server.resume().boxed()
    }

    fn behave(&self, server: usize, behaviour: Behaviour) {
        lock(&self.processes[server].state).behaviour = behaviour;
    }

    fn answered(&self, server: usize) -> usize {
        lock(&self.processes[server].state).answered
    }

    fn told(&self, server: usize) -> Told {
        let count = |method: &str| self.processes[server].server.count(method);
        Told {
            loads: count("RepositoryModelLoad"),
            unloads: count("RepositoryModelUnload"),
            runs: count("ModelInfer"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_at_the_load_follows_when_it_is_back() {
    elsewhere::one_is_down_at_load(&Servers::start(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_empty_loads_again_and_no_run_fails() {
    elsewhere::one_restarts_empty(&Servers::start(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_restart_in_turn_fail_no_run() {
    for count in [2, 3] {
        elsewhere::all_restart_in_turn(&Servers::start(count).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_model_costs_no_time() {
    elsewhere::one_lacks_the_model(&Servers::start(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_each_run_fails_no_caller() {
    elsewhere::one_fails_each_run(&Servers::start(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_in_runs_is_left_out() {
    elsewhere::one_hangs(&Servers::start(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_all_down_are_told_nothing_until_they_are_back() {
    for count in [1, 2] {
        elsewhere::all_are_down(&Servers::start(count).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_hang_have_been_away_since_their_last_answers() {
    for count in [1, 2] {
        elsewhere::all_are_silent(&Servers::start(count).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_data_of_a_caller_is_no_fault_of_the_servers() {
    for count in [1, 2] {
        elsewhere::a_caller_sends_bad_data(&Servers::start(count).await).await;
    }
}
