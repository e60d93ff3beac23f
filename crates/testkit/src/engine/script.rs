//! The test's scripts for the engine, and the engine's records of calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use outrigger_core::Tensor;
use tokio::sync::{Semaphore, watch};
use tonic::{Code, Status};

use super::Gate;

/// A version about to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The servable.
    pub name: String,
    /// The version.
    pub version: i64,
    /// The version's directory.
    pub path: PathBuf,
}

/// The course of a load.
#[derive(Debug, Clone)]
pub enum Loading {
    /// Loads the SavedModel in the directory, if there is one.
    Normal,
    /// Stays LOADING until the gate opens, then loads as in `Normal`.
    Held(Gate),
    /// Fails with this error.
    Fails(Code, String),
}

/// The course of a reload.
#[derive(Debug, Clone)]
pub enum Reloading {
    /// Behaves as TensorFlow Serving does.
    Normal,
    /// Waits at the gate first, with the lock held that every reload needs.
    Held(Gate),
    /// Fails with this error and changes nothing.
    Refused(Code, String),
}

/// A prediction to answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The servable.
    pub name: String,
    /// The version.
    pub version: i64,
    /// The signature's name.
    pub signature: String,
    /// The inputs, by name.
    pub inputs: BTreeMap<String, Tensor>,
    /// The requested outputs.
    pub outputs: Vec<String>,
    /// The client's deadline (`grpc-timeout`).
    pub timeout: Option<Duration>,
    /// The request's trace headers (`traceparent`, `tracestate`).
    pub trace: [Option<String>; 2],
}

/// The answer to a prediction.
#[derive(Debug, Clone)]
pub enum Predicting {
    /// Answers with these outputs.
    Outputs(Vec<Tensor>),
    /// Answers with these bytes in place of a PredictResponse.
    Bytes(Bytes),
    /// Fails with this error.
    Fails(Code, String),
    /// Waits until the gate opens, then gives the inner answer.
    Held(Gate, Box<Predicting>),
    /// Waits for one of the workers, which works for its time, then gives the inner answer.
    Worked(Workers, Box<Predicting>),
}

/// Workers of an engine, each of which works on one prediction at a time. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct Workers {
    free: Arc<Semaphore>,
    time: Duration,
}

impl Workers {
    /// `count` workers that take `time` for each prediction.
    pub fn new(count: usize, time: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(count)), time }
    }

    /// Waits for a worker and its work. The work is done even if nothing waits for it any more, as
    /// in TensorFlow Serving, which does not see that its caller has gone.
    async fn work(&self) {
        let Self { free, time } = self.clone();
        let work = tokio::spawn(async move {
            let _worker = free.acquire_owned().await;
            tokio::time::sleep(time).await;
        });
        work.await.expect("the work does not panic");
    }
}

/// A call that the engine received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// Predict, with the code of looking up its servable.
    Predict {
        /// The servable.
        name: String,
        /// The requested version; `None` means the latest.
        version: Option<i64>,
        /// NOT_FOUND if the version was not AVAILABLE, else OK.
        found: Code,
    },
    /// GetModelMetadata.
    Metadata {
        /// The servable.
        name: String,
    },
    /// GetModelStatus.
    Status {
        /// The servable.
        name: String,
    },
    /// HandleReloadConfigRequest, with the versions of each name.
    Reload(BTreeMap<String, BTreeSet<i64>>),
}

/// A client's mistake that would make a real engine hang or serve the wrong version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A reload was sent before the previous one was answered.
    ConcurrentReload,
    /// A base path does not exist, which stops discovery for every model.
    MissingBasePath(PathBuf),
    /// A new name has no version on disk, so a reload would wait for ever.
    MissingVersion(PathBuf),
    /// A (name, version) was used again; an engine does not reliably load it again.
    VersionReused(String, i64),
    /// A version's directory was missing when it was about to be loaded.
    Vanished(PathBuf),
    /// A removed name was added again by a reload, which then had to wait for it.
    NameReadded(String),
}

type OnLoad = dyn Fn(&Load) -> Loading + Send + Sync;
type OnReload = dyn Fn() -> Reloading + Send + Sync;
type OnPredict = dyn Fn(&Prediction) -> Predicting + Send + Sync;

/// Scripts and records, which outlive restarts of the engine.
#[derive(Default)]
pub(super) struct Script {
    load: Mutex<Option<Arc<OnLoad>>>,
    reload: Mutex<Option<Arc<OnReload>>>,
    predict: Mutex<Option<Arc<OnPredict>>>,
    freeze: Mutex<Option<Gate>>,
    received: Mutex<Vec<Received>>,
    violations: watch::Sender<Vec<Violation>>,
}

impl Script {
    pub(super) fn on_load(&self, script: Arc<OnLoad>) {
        *lock(&self.load) = Some(script);
    }

    pub(super) fn on_reload(&self, script: Arc<OnReload>) {
        *lock(&self.reload) = Some(script);
    }

    pub(super) fn on_predict(&self, script: Arc<OnPredict>) {
        *lock(&self.predict) = Some(script);
    }

    /// The course of a load by the script. Scripts run without the lock, since they may change the
    /// script.
    pub(super) fn loading(&self, load: &Load) -> Loading {
        let script = lock(&self.load).clone();
        script.map_or(Loading::Normal, |script| script(load))
    }

    pub(super) fn reloading(&self) -> Reloading {
        let script = lock(&self.reload).clone();
        script.map_or(Reloading::Normal, |script| script())
    }

    pub(super) fn predicting(&self, prediction: &Prediction) -> Predicting {
        let script = lock(&self.predict).clone();
        match script {
            Some(script) => script(prediction),
            None => super::tensor::row_sums(prediction),
        }
    }

    pub(super) fn freeze(&self, gate: Option<Gate>) {
        if let Some(gate) = std::mem::replace(&mut *lock(&self.freeze), gate) {
            gate.open();
        }
    }

    /// Waits while the engine is frozen.
    pub(super) async fn thawed(&self) {
        let gate = lock(&self.freeze).clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
    }

    pub(super) fn receive(&self, call: Received) {
        lock(&self.received).push(call);
    }

    pub(super) fn received(&self) -> Vec<Received> {
        lock(&self.received).clone()
    }

    pub(super) fn violate(&self, violation: Violation) {
        self.violations.send_if_modified(|violations| {
            // Recorded once, because the poll finds it again at every tick.
            let is_new = !violations.contains(&violation);
            violations.extend(is_new.then_some(violation));
            is_new
        });
    }

    pub(super) fn violations(&self) -> watch::Receiver<Vec<Violation>> {
        self.violations.subscribe()
    }
}

impl Predicting {
    /// Waits at the answer's gates; returns the outputs or the bytes.
    pub(super) async fn settle(self) -> Result<Result<Vec<Tensor>, Bytes>, Status> {
        let mut answer = self;
        loop {
            answer = match answer {
                Self::Outputs(outputs) => return Ok(Ok(outputs)),
                Self::Bytes(bytes) => return Ok(Err(bytes)),
                Self::Fails(code, message) => return Err(Status::new(code, message)),
                Self::Held(gate, then) => {
                    gate.pass().await;
                    *then
                }
                Self::Worked(workers, then) => {
                    workers.work().await;
                    *then
                }
            };
        }
    }
}

/// Locks a mutex. A poisoned lock is used: a test that panicked with it held has failed anyway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
