//! The engine against a scripted process.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use outrigger_core::{
    Content, DType, Digest, EngineId, ModelName, Reason, ServableId, ServableName, Tensor, Version,
    Versions,
    engine::{Condition, FromEngine, ToEngine},
};
use outrigger_oip::{InferResponse, grpc};
use outrigger_onnx::{Config, Engine};
use outrigger_proto::inference::{
    ModelInferRequest, RepositoryIndexResponse, RepositoryModelLoadRequest,
    RepositoryModelLoadResponse, RepositoryModelUnloadRequest, RepositoryModelUnloadResponse,
    ServerMetadataResponse, model_repository_parameter::ParameterChoice,
    repository_index_response::ModelIndex,
};
use outrigger_run::{
    Adopted, Call, Clock, Engine as _, Event, PackagedModel, RowLayout, RunError, Start, Target,
};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server};
use prost::Message;
use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout},
};
use tonic::Code;

/// A time within which an event has certainly come.
const LONG: Duration = Duration::from_secs(20);

/// The state of the process.
#[derive(Debug, Default)]
struct State {
    /// Its start.
    start: u32,
    /// The directory of each model, by name and version.
    models: BTreeMap<(String, String), String>,
    /// Names of models that are being loaded, and stay so.
    stuck: BTreeSet<String>,
    /// True if it answers nothing.
    hangs: bool,
    /// The answer to each load.
    refusal: Option<(Code, &'static str)>,
}

/// The process, the engine and its events.
struct World {
    state: Arc<Mutex<State>>,
    server: Server,
    engine: Arc<Engine>,
    events: mpsc::Receiver<(EngineId, Event)>,
    tasks: JoinSet<()>,
}

impl World {
    async fn new() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let answers = Arc::clone(&state);
        let script = move |seen: &Seen| answer(&mut lock(&answers), seen);
        let server = Server::start(Protocol::Http2, script).await;
        let endpoint = server.address().parse().expect("an address");
        let config = Config::new(EngineId::new("onnx"), endpoint);
        let engine = Arc::new(Engine::new(config, &[Handle::current()], None));
        Self { state, server, engine, events: mpsc::channel(1).1, tasks: JoinSet::new() }
    }

    fn start(&mut self) -> Clock {
        let clock = Clock::start();
        let (sender, events) = mpsc::channel(64);
        self.events = events;
        self.tasks.spawn(Arc::clone(&self.engine).run(Start {
            engine: EngineId::new("onnx"),
            clock,
            versions: Versions::after(Version(100)),
            events: sender,
        }));
        clock
    }

    async fn add(&self, id: &ServableId) {
        let model =
            PackagedModel { directory: directory(id).into(), uplift: None, is_double: false };
        let published = self.engine.publish(id.clone(), Digest::of(b"image"), model).await;
        published.expect("nothing to fail");
        self.engine.send(ToEngine::Add(id.clone()));
    }

    /// Waits for the next report about a version.
    async fn report(&mut self) -> FromEngine {
        loop {
            if let Event::Version(report) = self.event().await {
                return report;
            }
        }
    }

    async fn event(&mut self) -> Event {
        timeout(LONG, self.events.recv()).await.expect("in time").expect("the task runs").1
    }

    /// Waits until `holds`.
    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let wait = async {
            while !holds(self) {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, wait).await.expect("in time");
    }

    /// The reports about versions that nobody has waited for.
    fn versions_reported(&mut self) -> Vec<FromEngine> {
        let events = std::iter::from_fn(|| self.events.try_recv().ok());
        let version = |(_, event)| match event {
            Event::Version(report) => Some(report),
            _ => None,
        };
        events.filter_map(version).collect()
    }

    /// The loads that the process was told so far.
    fn loads(&self) -> usize {
        self.server.count("/RepositoryModelLoad")
    }

    /// Ends the process, and starts it again without models.
    fn restart(&self) {
        let mut state = lock(&self.state);
        state.start += 1;
        state.models.clear();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn version(number: i64) -> ServableId {
    let name: ModelName = "churn".parse().expect("a name");
    ServableId { name: ServableName::of(&name), version: Version(number) }
}

fn wire(id: &ServableId) -> (String, String) {
    (id.name.as_str().to_owned(), id.version.0.to_string())
}

fn directory(id: &ServableId) -> String {
    format!("/store/trees/{}", id.version.0)
}

fn answer(state: &mut State, seen: &Seen) -> Answer {
    let call = seen.call.rsplit('/').next().expect("a path");
    match call {
        _ if state.hangs => Answer::Never,
        "ServerMetadata" => message(&ServerMetadataResponse {
            extensions: vec![format!("start/{}", state.start)],
            ..Default::default()
        }),
        "RepositoryIndex" => message(&RepositoryIndexResponse {
            models: state.models.iter().map(|entry| listed(entry, &state.stuck)).collect(),
        }),
        "RepositoryModelLoad" => {
            let request = RepositoryModelLoadRequest::decode(seen.body.clone()).expect("a request");
            if let Some((code, text)) = state.refusal {
                return Answer::Status(code as i32, text.to_owned());
            }
            let text = |name: &str| match &request.parameters[name].parameter_choice {
                Some(ParameterChoice::StringParam(text)) => text.clone(),
                other => panic!("{name} is {other:?}"),
            };
            let is_stuck = state.stuck.contains(&request.model_name);
            state.models.insert((request.model_name.clone(), text("version")), text("directory"));
            if is_stuck { Answer::Never } else { message(&RepositoryModelLoadResponse {}) }
        }
        "RepositoryModelUnload" => {
            let request = RepositoryModelUnloadRequest::decode(seen.body.clone()).expect("one");
            state.models.retain(|(name, _), _| *name != request.model_name);
            message(&RepositoryModelUnloadResponse {})
        }
        "ModelInfer" => inferred(state, seen),
        other => panic!("{other} was called"),
    }
}

fn listed(
    ((name, version), directory): (&(String, String), &String),
    stuck: &BTreeSet<String>,
) -> ModelIndex {
    ModelIndex {
        name: name.clone(),
        version: version.clone(),
        state: if stuck.contains(name) { "LOADING" } else { "READY" }.to_owned(),
        reason: directory.clone(),
    }
}

/// The inputs, as outputs, in the opposite order.
fn inferred(state: &State, seen: &Seen) -> Answer {
    let request = ModelInferRequest::decode(seen.body.clone()).expect("a request");
    let id = (request.model_name.clone(), request.model_version.clone());
    if !state.models.contains_key(&id) {
        return Answer::Status(Code::NotFound as i32, "it is not loaded".to_owned());
    }
    let (request, _) = grpc::read_request(request).expect("a request");
    let outputs = request.inputs.into_iter().rev().collect();
    message(&grpc::write_response(InferResponse { outputs, ..Default::default() }, true))
}

fn message(message: &impl Message) -> Answer {
    Answer::Message(message.encode_to_vec().into())
}

#[tokio::test]
async fn versions_are_loaded_and_unloaded() {
    let mut world = World::new().await;
    world.start();
    let id = version(1);
    world.add(&id).await;
    assert_eq!(world.report().await, FromEngine::Up(id.clone()));
    assert_eq!(lock(&world.state).models[&wire(&id)], directory(&id));
    world.engine.send(ToEngine::Remove(id.clone()));
    assert_eq!(world.report().await, FromEngine::Gone(id));
    assert!(lock(&world.state).models.is_empty());
}

#[tokio::test]
async fn a_restart_is_reported_before_the_versions_that_it_lost_and_loads_nothing_by_itself() {
    let mut world = World::new().await;
    world.start();
    let id = version(1);
    world.add(&id).await;
    assert_eq!(world.report().await, FromEngine::Up(id.clone()));
    world.restart();
    match world.event().await {
        Event::Condition(condition) => assert_eq!(condition.restarts, 1),
        other => panic!("{other:?} came first"),
    }
    assert_eq!(world.report().await, FromEngine::Lost(id));
    let again = version(2);
    world.add(&again).await;
    assert_eq!(world.report().await, FromEngine::Up(again));
    assert_eq!(world.loads(), 2);
}

#[tokio::test]
async fn a_process_that_hangs_has_been_away_since_its_last_answer() {
    let mut world = World::new().await;
    let clock = world.start();
    assert_eq!(world.event().await, Event::Condition(Condition::up()));
    lock(&world.state).hangs = true;
    let down = loop {
        match world.event().await {
            Event::Condition(condition) => break condition,
            other => assert_eq!(other, Event::Settled),
        }
    };
    let silent = down.down_since.map(|since| clock.now().since(since));
    assert!(silent >= Some(Duration::from_secs(2)), "{silent:?}");
    assert_eq!(down.failure.map(|failure| failure.reason), Some(Reason::Deadline));
}

#[tokio::test]
async fn a_version_of_an_earlier_process_is_not_loaded_again() {
    let mut world = World::new().await;
    let (id, directory) = adopted(&world);
    lock(&world.state).models.insert(wire(&id), directory.path().display().to_string());
    world.start();
    assert_eq!(world.report().await, FromEngine::Up(id));
    assert_eq!(world.loads(), 0);
}

#[tokio::test]
async fn other_files_under_the_name_of_a_version_are_replaced() {
    let mut world = World::new().await;
    let (id, directory) = adopted(&world);
    lock(&world.state).models.insert(wire(&id), "/store/trees/other".to_owned());
    world.start();
    assert_eq!(world.report().await, FromEngine::Up(id.clone()));
    assert_eq!(world.server.count("/RepositoryModelUnload"), 1);
    assert_eq!(lock(&world.state).models[&wire(&id)], directory.path().display().to_string());
}

/// A version that an earlier process had, and the directory of its files.
fn adopted(world: &World) -> (ServableId, tempfile::TempDir) {
    let (id, directory) = (version(1), tempfile::tempdir().expect("a directory"));
    let model = PathBuf::from(directory.path());
    let loaded = vec![Adopted { id: id.clone(), digest: Digest::of(b"image"), model }];
    let known = world.engine.adopt(loaded).expect("nothing to fail");
    assert_eq!(known, BTreeSet::from([id.clone()]));
    (id, directory)
}

#[tokio::test]
async fn a_refused_load_fails_with_the_reason_and_is_not_tried_again() {
    for (code, reason) in
        [(Code::InvalidArgument, Reason::ImageInvalid), (Code::Internal, Reason::EngineFailed)]
    {
        let mut world = World::new().await;
        lock(&world.state).refusal = Some((code, "no such operator"));
        world.start();
        world.add(&version(1)).await;
        match world.report().await {
            FromEngine::Failed(id, failure) => {
                assert_eq!((id, failure.reason), (version(1), reason));
                assert!(failure.message.contains("no such operator"), "{failure:?}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(world.loads(), 1);
    }
}

#[tokio::test]
async fn a_version_is_gone_when_its_load_has_ended() {
    let mut world = World::new().await;
    lock(&world.state).stuck.insert("churn".to_owned());
    world.start();
    let id = version(1);
    world.add(&id).await;
    world.until(|world| world.loads() == 1).await;
    world.engine.send(ToEngine::Remove(id.clone()));
    let looks = |world: &World| world.server.count("/RepositoryIndex");
    let before = looks(&world);
    world.until(|world| looks(world) > before + 1).await;
    assert!(world.versions_reported().is_empty());
    // The process ends, and with it the load.
    world.restart();
    assert_eq!(world.report().await, FromEngine::Gone(id));
}

#[tokio::test]
async fn runs_return_the_outputs_that_were_asked_for_and_keep_their_inputs_if_not_sent() {
    let mut world = World::new().await;
    world.start();
    let id = version(1);
    world.add(&id).await;
    assert_eq!(world.report().await, FromEngine::Up(id.clone()));
    let tensor = |name: &str, number: f32| Tensor {
        name: name.into(),
        dtype: DType::Float32,
        shape: vec![1],
        content: Content::Bytes(number.to_le_bytes().to_vec().into()),
    };
    let inputs = vec![tensor("x", 1.0), tensor("y", 2.0)];
    let call = |outputs: &[&str]| {
        let outputs = outputs.iter().map(|name| (*name).into()).collect();
        Call::new(inputs.clone(), outputs, Instant::now() + LONG)
    };
    let bound = |id: ServableId| {
        world.engine.bind(Target {
            id,
            signature: "serving_default".into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            layout: RowLayout::Unknown,
        })
    };
    let outputs = bound(id.clone()).run(call(&["x"])).await.expect("outputs");
    assert_eq!(outputs, [tensor("x", 1.0)]);
    let missing = bound(id).run(call(&["z"])).await.expect_err("there is none");
    assert_eq!(missing.reason(), Reason::EngineFailed);
    match bound(version(2)).run(call(&["x"])).await {
        Err(RunError::Unsent { inputs: kept, source }) => {
            assert_eq!(kept, inputs);
            assert!(matches!(*source, RunError::NotServed { .. }), "{source}");
        }
        other => panic!("{other:?}"),
    }
}
