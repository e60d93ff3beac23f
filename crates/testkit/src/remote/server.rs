//! The process of the engine.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use outrigger_core::{DType, ServableId};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::{Model, Reply, Request, Values};

/// The engine's process: a socket, the loaded models, and the test's script. It runs in the
/// runtime of the test, and ends when it is dropped.
pub struct Server {
    directory: TempDir,
    process: Arc<Process>,
    running: Mutex<Option<JoinHandle<()>>>,
}

/// The behaviour of a server that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Answers every request.
    Answers,
    /// Answers no request.
    Hangs,
    /// Refuses every request for the moment.
    Refuses,
    /// Refuses the values of every run.
    RefusesValues,
}

type OnLoad = dyn Fn(&ServableId) -> Result<(), String> + Send + Sync;
type OnRun = dyn Fn(&ServableId, Vec<f32>) -> Result<Vec<f32>, String> + Send + Sync;

struct Process {
    mode: watch::Sender<Mode>,
    /// The number of the present start.
    start: Mutex<u64>,
    models: Mutex<BTreeMap<ServableId, Model>>,
    received: Mutex<Vec<Request>>,
    on_load: Mutex<Arc<OnLoad>>,
    on_run: Mutex<Arc<OnRun>>,
}

impl Server {
    /// Starts a server in the current runtime.
    pub fn start() -> io::Result<Self> {
        let process = Process {
            mode: watch::Sender::new(Mode::Answers),
            start: Mutex::default(),
            models: Mutex::default(),
            received: Mutex::default(),
            on_load: Mutex::new(Arc::new(|_| Ok(()))),
            on_run: Mutex::new(Arc::new(|_, scores| Ok(scores))),
        };
        let (process, running) = (Arc::new(process), Mutex::default());
        let server = Self { directory: tempfile::tempdir()?, process, running };
        server.resume()?;
        Ok(server)
    }

    /// The path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("engine.sock")
    }

    /// Ends the process: connections break, nothing listens, the models are lost.
    pub async fn stop(&self) {
        let Some(running) = lock(&self.running).take() else { return };
        running.abort();
        running.await.expect_err("it was aborted");
        std::fs::remove_file(self.socket()).expect("the socket was there");
        lock(&self.process.models).clear();
    }

    /// Starts the process again at the same address, without models.
    pub fn resume(&self) -> io::Result<()> {
        let listener = UnixListener::bind(self.socket())?;
        *lock(&self.process.start) += 1;
        let running = tokio::spawn(serve(listener, Arc::clone(&self.process)));
        *lock(&self.running) = Some(running);
        Ok(())
    }

    /// Changes the behaviour. Hanging requests are answered when the mode no longer hangs.
    pub fn behave(&self, mode: Mode) {
        self.process.mode.send_replace(mode);
    }

    /// Sets the result of loads.
    pub fn on_load(
        &self,
        script: impl Fn(&ServableId) -> Result<(), String> + Send + Sync + 'static,
    ) {
        *lock(&self.process.on_load) = Arc::new(script);
    }

    /// Sets the result of runs, given the scores that the model computes.
    pub fn on_run(
        &self,
        script: impl Fn(&ServableId, Vec<f32>) -> Result<Vec<f32>, String> + Send + Sync + 'static,
    ) {
        *lock(&self.process.on_run) = Arc::new(script);
    }

    /// All requests since the first start, in order of arrival.
    pub fn received(&self) -> Vec<Request> {
        lock(&self.process.received).clone()
    }

    /// The loaded versions.
    pub fn loaded(&self) -> Vec<ServableId> {
        lock(&self.process.models).keys().cloned().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = lock(&self.running).take() {
            running.abort();
        }
    }
}

async fn serve(listener: UnixListener, process: Arc<Process>) {
    // Connections end with the listener, as they do when a process ends.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.expect("the listener works until it is dropped");
                connections.spawn(answer(stream, Arc::clone(&process)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers one request. An error means that the client has gone.
async fn answer(mut stream: UnixStream, process: Arc<Process>) -> io::Result<()> {
    let mut request = Vec::new();
    stream.read_to_end(&mut request).await?;
    let request: Request = serde_json::from_slice(&request)?;
    lock(&process.received).push(request.clone());
    let mut mode = process.mode.subscribe();
    let mode = mode.wait_for(|mode| *mode != Mode::Hangs).await.map(|mode| *mode);
    let reply = match mode {
        Ok(Mode::RefusesValues) if matches!(request, Request::Run(..)) => {
            Reply::Refused("unexpected values".to_owned())
        }
        Ok(Mode::Answers | Mode::RefusesValues) => process.answer(request),
        _ => Reply::NotReady,
    };
    stream.write_all(&serde_json::to_vec(&reply)?).await
}

impl Process {
    fn answer(&self, request: Request) -> Reply {
        match request {
            Request::List => {
                let versions = lock(&self.models).keys().cloned().collect();
                Reply::Loaded { start: *lock(&self.start), versions }
            }
            Request::Load(id, model) => {
                let script = Arc::clone(&lock(&self.on_load));
                if let Err(message) = script(&id) {
                    return Reply::Failed(message);
                }
                lock(&self.models).insert(id, model);
                Reply::Done
            }
            Request::Unload(id) => {
                lock(&self.models).remove(&id);
                Reply::Done
            }
            Request::Describe(id) => self.of(id, |_, model| Reply::Model(model)),
            Request::Run(id, inputs) => self.of(id, |id, model| self.run(id, model, &inputs)),
        }
    }

    fn of(&self, id: ServableId, reply: impl FnOnce(&ServableId, Model) -> Reply) -> Reply {
        let model = lock(&self.models).get(&id).copied();
        match model {
            Some(model) => reply(&id, model),
            None => Reply::NotServed(id),
        }
    }

    fn run(&self, id: &ServableId, model: Model, inputs: &[Values]) -> Reply {
        let treatment = inputs.iter().find(|input| input.name == "treatment");
        let Some(Values { shape, bytes, .. }) = treatment else {
            return Reply::Failed("there is no input treatment".to_owned());
        };
        let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let values: Vec<f32> = bytes.chunks_exact(4).map(value).collect();
        let width = usize::try_from(model.treatment).unwrap_or(usize::MAX).max(1);
        let score = |row: &[f32]| model.bias + row.iter().sum::<f32>();
        let scores = values.chunks_exact(width).map(score).collect();
        let script = Arc::clone(&lock(&self.on_run));
        match script(id, scores) {
            Err(message) => Reply::Failed(message),
            Ok(scores) => Reply::Outputs(vec![Values {
                name: "scores".to_owned(),
                dtype: DType::Float32,
                shape: shape[..shape.len() - 1].to_vec(),
                bytes: scores.into_iter().flat_map(f32::to_le_bytes).collect(),
            }]),
        }
    }
}

/// Sends a request to the server at `socket`, and waits for the reply.
pub(super) async fn call(socket: &Path, request: &Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(&serde_json::to_vec(request)?).await?;
    stream.shutdown().await?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await?;
    Ok(serde_json::from_slice(&reply)?)
}

/// Locks a mutex. A poisoned lock is used: a test that panicked with it held has failed anyway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
