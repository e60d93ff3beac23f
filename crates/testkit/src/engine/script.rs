//! What a test wants the engine to do, and what it saw.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use outrigger_core::Tensor;
use tonic::{Code, Status};

use super::Gate;

/// A version about to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The servable.
    pub name: String,
    /// Its version.
    pub version: i64,
    /// Its directory.
    pub path: PathBuf,
}

/// How a load goes. Without a script: by what the directory holds.
#[derive(Debug, Clone)]
pub enum Loading {
    /// By what the directory holds.
    Normal,
    /// The same, once the gate opens; LOADING until then.
    Held(Gate),
    /// Fails, and ends with this error.
    Fails(Code, String),
}

/// How a reload goes.
#[derive(Debug, Clone)]
pub enum Reloading {
    /// As TensorFlow Serving does it.
    Normal,
    /// Waits at the gate first, holding the lock that every reload needs.
    Held(Gate),
    /// Is refused; nothing changes.
    Refused(Code, String),
}

/// A prediction to answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The servable.
    pub name: String,
    /// Its version.
    pub version: i64,
    /// The signature's name.
    pub signature: String,
    /// The inputs, by name.
    pub inputs: BTreeMap<String, Tensor>,
    /// The outputs asked for.
    pub outputs: Vec<String>,
    /// The time the client said it waits (`grpc-timeout`).
    pub timeout: Option<Duration>,
    /// The trace it is part of (`traceparent`, `tracestate`).
    pub trace: [Option<String>; 2],
}

/// How a prediction is answered.
#[derive(Debug, Clone)]
pub enum Predicting {
    /// With these outputs.
    Outputs(Vec<Tensor>),
    /// With these bytes in place of a PredictResponse.
    Bytes(Bytes),
    /// With an error.
    Fails(Code, String),
    /// With the second, once the gate opens.
    Held(Gate, Box<Predicting>),
}

/// A call the engine got, in the order they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// Predict, with the code it was answered with before any script.
    Predict {
        /// The servable.
        name: String,
        /// Its version; none: the latest.
        version: Option<i64>,
        /// NOT_FOUND when it was not available, else OK.
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
    /// HandleReloadConfigRequest: versions by name.
    Reload(BTreeMap<String, BTreeSet<i64>>),
}

/// What a client must never do to an engine, because a real one would hang or
/// serve the wrong thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A reload while another one was unanswered.
    ConcurrentReload,
    /// A base path that does not exist stops discovery for every model.
    MissingBasePath(PathBuf),
    /// A reload waits for ever for a new name without versions on disk.
    MissingVersion(PathBuf),
    /// A (name, version) that was seen before is not loaded afresh for certain.
    VersionReused(String, i64),
    /// A version directory was gone when it was about to be loaded.
    Vanished(PathBuf),
    /// A name that was taken out came back with a reload that had to wait for it.
    NameReadded(String),
}

type OnLoad = dyn Fn(&Load) -> Loading + Send + Sync;
type OnReload = dyn Fn() -> Reloading + Send + Sync;
type OnPredict = dyn Fn(&Prediction) -> Predicting + Send + Sync;

/// The script and the record. They outlive restarts of the engine.
#[derive(Default)]
pub(super) struct Script {
    load: Mutex<Option<Arc<OnLoad>>>,
    reload: Mutex<Option<Arc<OnReload>>>,
    predict: Mutex<Option<Arc<OnPredict>>>,
    freeze: Mutex<Option<Gate>>,
    received: Mutex<Vec<Received>>,
    violations: Mutex<Vec<Violation>>,
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

    /// Scripts run outside the lock: they may change the script.
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
        let mut violations = lock(&self.violations);
        // The poll would repeat itself with every tick.
        if !violations.contains(&violation) {
            violations.push(violation);
        }
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        lock(&self.violations).clone()
    }
}

impl Predicting {
    /// The answer after its gates: outputs or bytes.
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
            };
        }
    }
}

/// A test that panicked with a lock held has failed anyway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
